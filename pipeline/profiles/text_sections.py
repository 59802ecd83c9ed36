"""Sections of a profile that choose the captioner and the language model."""

from __future__ import annotations

import re
from string import Template
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from core.model_sections import DType, Weights
from core.settings import LONGEST_REPLY, LanguageSettings
from core.types import Data


class BlipCaptioner(Weights):
    """A BLIP that captions without a question."""

    family: ClassVar[str] = "BLIP"

    kind: Literal["blip"]
    dtype: DType = "auto"


class CaptionQuestion(Data):
    """One question to a captioner that takes text; its answer becomes one sentence of the caption."""

    prompt: str
    """Text that the model reads; it may contain $task."""
    sentence: str = "$answer"
    """Template of the sentence; it contains $answer."""

    @model_validator(mode="after")
    def _variables(self) -> CaptionQuestion:
        for text, known in ((self.prompt, {"task"}), (self.sentence, {"answer"})):
            unknown = set(Template(text).get_identifiers()) - known
            if unknown:
                raise ValueError(f"{text!r} uses ${min(unknown)}: it may use ${min(known)} only")
        return self


class Blip2Captioner(Weights):
    """A BLIP-2 that answers questions about aspects of the scene, as the paper describes it, or samples several
    captions, as its released code does (`samples = 2`, `top_p = 0.9`, and a temperature of 1 in `[settings.caption]`).
    """

    family: ClassVar[str] = "BLIP-2"

    kind: Literal["blip-2"]
    dtype: DType = "auto"
    questions: tuple[CaptionQuestion, ...] = Field((CaptionQuestion(prompt=""),), min_length=1)
    samples: int = Field(0, ge=0, le=10)
    """Number of captions to sample and join. A repeated caption is used once. If 0, `questions` are asked instead."""
    top_p: float = Field(0.9, gt=0, le=1)
    """Total probability of the likeliest words, from which each word of a sample is drawn (nucleus sampling)."""

    @model_validator(mode="after")
    def _one_way(self) -> Blip2Captioner:
        if self.samples and "questions" in self.model_fields_set:
            raise ValueError("give either questions or samples: samples are drawn without a question")
        return self


class Florence2Captioner(Weights):
    """A Florence-2 in the format of transformers: weights of florence-community, not those with their own code."""

    family: ClassVar[str] = "Florence-2"

    kind: Literal["florence-2"]
    dtype: DType = "auto"
    task: Literal["<CAPTION>", "<DETAILED_CAPTION>", "<MORE_DETAILED_CAPTION>"] = "<MORE_DETAILED_CAPTION>"
    """Kind of caption: one sentence, several, or a paragraph."""


ONLY_FACTS = (
    "This picture is used for $task. Describe it in three to six short sentences. Name the main objects with their "
    "number and colours, where they are, what is in the background, the weather, the light and the time of day, as far "
    "as they can be seen. Use the words of the task for what it names. Only facts that the picture shows: no guesses, "
    "no feelings, no opinions, no list and no introduction."
)
"""Default prompt of a chat model. It excludes moods, since a mood in a caption would become an edit of moods."""


class _Asked(Data):
    prompt: str = ONLY_FACTS
    """The instruction that is sent with the picture; it may contain $task."""
    max_pixels: int = Field(1_000_000, ge=1_024, le=50_000_000)
    """Pictures with more pixels are made smaller before the model sees them."""

    @field_validator("prompt")
    @classmethod
    def _task_only(cls, prompt: str) -> str:
        unknown = set(Template(prompt).get_identifiers()) - {"task"}
        if unknown or not Template(prompt).is_valid():
            raise ValueError("prompt may contain $task and no other variable; write $$ for a dollar sign")
        return prompt


class ChatCaptioner(_Asked, Weights):
    """Any model of transformers that chats about pictures (image-text-to-text) and has a chat template."""

    family: ClassVar[str] = "Chat model"

    kind: Literal["chat"]
    dtype: DType = "auto"
    thinking: bool = False
    """True if the model may think before it answers. Only some chat templates offer this choice."""
    image_options: dict[str, Any] = Field(default_factory=dict)
    """Options of the processor for pictures, as on the model's card, such as `do_image_splitting = false`."""


_OURS = frozenset(
    "model messages stream seed stop temperature top_p max_tokens max_completion_tokens response_format".split()
)
"""Fields of a request to a server that the studio sets, so that `Server.more` may not contain them."""


class Server(Data):
    """An OpenAI-compatible server (vLLM, llama-server, Ollama, SGLang, a provider) and the model to use on it. Records
    of runs leave out address, key and limits. These fields affect no result, and people pass records on.
    """

    address: str = Field("http://127.0.0.1:8000/v1", exclude=True)
    """URL without /chat/completions; by default that of vLLM on this machine."""
    model: str = Field(min_length=1, max_length=200)
    """Name of the model on the server."""
    key_variable: str = Field("", exclude=True)
    """The environment variable that holds the key, or "" for a server that needs none."""
    timeout: float = Field(120, ge=0.1, le=3600, exclude=True)
    """Maximum seconds for one answer."""
    tries: int = Field(4, ge=1, le=10, exclude=True)
    """Maximum number of times that a request is sent. Errors that another try cannot help are reported at once."""
    parallel: int = Field(4, ge=1, le=64, exclude=True)
    """Number of requests sent at once: servers such as vLLM process them together."""
    context_length: int = Field(0, ge=0)
    """Maximum number of tokens of prompt and reply together. 0 to ask the server."""
    thinking: bool = False
    """True if the model may think before it replies. Even if False, thoughts are removed and their tokens counted."""
    more: dict[str, Any] = Field(default_factory=dict)
    """Further fields of every request, by the names that this server knows, such as `reasoning_effort = "none"`."""
    licence: str = ""
    """Licence of the model, in words."""

    @field_validator("address")
    @classmethod
    def _plain(cls, address: str) -> str:
        try:
            parts = urlsplit(address)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            known = False
        if not known:
            raise ValueError('address must be a URL such as "http://127.0.0.1:8000/v1"')
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "address must have no user name, no password and no part after ? or #: a key goes by key_variable"
            )
        return address.rstrip("/").removesuffix("/chat/completions")

    @field_validator("key_variable")
    @classmethod
    def _no_key(cls, name: str) -> str:
        # The message does not repeat the value, which may be the key itself.
        if name and not re.fullmatch("[A-Z][A-Z0-9_]*", name):
            raise ValueError(
                "key_variable must be the name of an environment variable in capitals, such as OPENAI_API_KEY; "
                "the key itself stays out of this file"
            )
        return name

    @field_validator("more")
    @classmethod
    def _not_ours(cls, more: dict[str, Any]) -> dict[str, Any]:
        if taken := _OURS & set(more):
            raise ValueError(f"{min(taken)} is set by the studio itself: take it out of more")
        return more

    @property
    def title(self) -> str:
        """Name of this model in records."""
        return self.model


class ServerCaptioner(_Asked, Server):
    """A model that sees pictures, on an OpenAI-compatible server."""

    kind: Literal["openai"]


AnyCaptioner = Annotated[
    BlipCaptioner | Blip2Captioner | Florence2Captioner | ChatCaptioner | ServerCaptioner, Field(discriminator="kind")
]


class ServerLanguage(Server):
    """A chat model on an OpenAI-compatible server."""

    kind: Literal["openai"]
    system: str = ""
    """System text sent to the model before every prompt."""


class JudgeSettings(LanguageSettings):
    """Settings of a judge's replies."""

    max_new_tokens: int = Field(300, ge=8, le=LONGEST_REPLY, description="Longest reply, in tokens")
    attempts: int = Field(3, ge=1, le=10, description="How often a reply that cannot be read is asked for again")


class ServerJudge(ServerLanguage):
    """A chat model that sees pictures and judges images, on an OpenAI-compatible server."""

    max_pixels: int = Field(1_000_000, ge=1_024, le=50_000_000)
    """Pictures with more pixels are made smaller before they are sent."""
    settings: JudgeSettings = JudgeSettings()


class CaptionerJudge(Data):
    """The profile's captioner as the judge: a chat model of transformers, which needs no further download."""

    kind: Literal["captioner"]
    settings: JudgeSettings = JudgeSettings()


AnyJudge = Annotated[ServerJudge | CaptionerJudge, Field(discriminator="kind")]


class _LocalLanguage(Weights):
    system: str = ""
    """System text sent to the model before every prompt."""
    stop: tuple[str, ...] = ()
    """Texts that end every reply. Stop texts of a stage's prompt and end tokens of the model end a reply too."""
    top_k: int = Field(40, ge=1)
    repetition_penalty: float = Field(1.0, gt=0)
    hold_form: bool = True
    """True to constrain replies to the schema that a stage asks for, so that they can be read."""


class GgufLanguage(_LocalLanguage):
    """A LLaMA in a GGUF file, run by ctransformers."""

    family: ClassVar[str] = "LLaMA"

    kind: Literal["llama-gguf"]
    file: str = ""
    """The file's name on the hub or in the folder `path`; empty when `path` is the file."""
    context_length: int = Field(512, ge=16)
    """Maximum number of tokens of prompt and reply together."""
    chat_template: str = "$prompt"
    """Template around a prompt, with the variables $prompt and $system."""
    batch_size: int = Field(64, ge=1)
    """Number of prompt tokens read at once. It changes the speed only."""
    threads: int = Field(-1, ge=-1)
    """Number of threads, -1 for the default of ctransformers."""
    gpu_layers: int = Field(0, ge=0)
    """Number of layers that run on an NVIDIA GPU (needs requirements-gpu.txt). Too large a number means all layers."""

    @property
    def title(self) -> str:
        return f"{super().title}/{self.file}" if self.file else super().title

    @field_validator("chat_template")
    @classmethod
    def _prompt(cls, template: str) -> str:
        names = set(Template(template).get_identifiers())
        if "prompt" not in names or names - {"prompt", "system"}:
            raise ValueError("chat_template must contain $prompt, may contain $system, and no other variable")
        return template


class ChatLanguage(_LocalLanguage):
    """Any chat model of transformers: a causal language model that has a chat template."""

    family: ClassVar[str] = "Chat model"

    kind: Literal["transformers"]
    dtype: DType = "auto"
    context_length: int = Field(0, ge=0)
    """Maximum number of tokens of prompt and reply together. 0 for as many as the model was made for."""
    thinking: int = Field(0, ge=0, le=100_000)
    """Maximum number of tokens of thoughts before a reply. Thoughts do not count as part of the reply. 0 for none."""
    batch: int = Field(0, ge=0, le=64)
    """Number of replies that are written at once, if a stage needs several. 0 for as many as suit the machine."""


AnyLanguage = Annotated[GgufLanguage | ChatLanguage | ServerLanguage, Field(discriminator="kind")]
