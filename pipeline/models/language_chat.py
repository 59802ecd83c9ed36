"""A chat model of transformers, asked in its own chat template."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.errors import CannotLoad
from pipeline.models.captioner import LOAD_ERRORS, seeded
from pipeline.models.language import require_room
from pipeline.models.language_forms import Form, Forms
from pipeline.models.weights import NO_CODE, loading, locate, pick_device, pick_dtype, unreadable
from pipeline.settings import LanguageSettings
from pipeline.text_sections import ChatLanguage

if TYPE_CHECKING:
    import torch

THOUGHT, THOUGHT_OVER = "<think>", "</think>"
"""What models that think put around their thoughts."""


class ChatModel:
    """One model, one call at a time. The model says by its chat template what it reads, and how it ends."""

    def __init__(self, section: ChatLanguage) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = locate("language model", section)
        self.name = section.title
        self.thought = 0
        """Tokens that were spent on thoughts so far."""
        self._section = section
        self._lock = threading.Lock()
        self._device = pick_device()
        try:
            with loading():
                self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **NO_CODE)
                dtype = pick_dtype(section.dtype, self._device, chats=True)
                model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **NO_CODE)
        except (*LOAD_ERRORS, ImportError) as error:
            raise unreadable("language model", section, error) from error
        if not self._tokenizer.chat_template:
            raise CannotLoad(
                f"The language model {self.name} brings no chat template, so it cannot be asked as kind transformers: "
                "take one that was trained to chat, often called Instruct."
            )
        self._model: Any = model.to(self._device).eval()
        positions = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 4096)
        self._context = min(section.context_length or positions, positions)
        ends = model.generation_config.eos_token_id
        ends = [self._tokenizer.eos_token_id] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        self._ends: list[int] = [end for end in ends if end is not None]
        self._forms = self._known_forms() if section.hold_form else None

    def _known_forms(self) -> Forms | None:
        from llguidance.hf import from_tokenizer
        from transformers import PreTrainedTokenizerFast

        if not isinstance(self._tokenizer, PreTrainedTokenizerFast):
            return None  # an old kind that says too little of its tokens: the reply is asked for and not held
        size = self._model.get_output_embeddings().weight.shape[0]
        return Forms(from_tokenizer(self._tokenizer, n_vocab=size, eos_token=self._ends))

    def complete(
        self,
        prompt: str,
        settings: LanguageSettings,
        seed: int,
        stop: Sequence[str] = (),
        schema: Mapping[str, Any] | None = None,
    ) -> str:
        """The reply without thoughts, up to a stop, an end token or the longest reply; held to `schema`.

        Raises UserError when the prompt, the longest thought and the longest reply do not fit the context.
        """
        section = self._section
        text = self.chat(prompt)
        thinks = section.thinking > 0 and "think" in str(self._tokenizer.chat_template)
        if thinks and not text.rstrip().endswith(THOUGHT):
            text += f"{THOUGHT}\n"
        elif not thinks and text.rstrip().endswith(THOUGHT):  # a template that leaves no choice
            text += f"\n{THOUGHT_OVER}\n\n"
        with self._lock, seeded(seed):
            tokens = self._encode(text)
            require_room(len(tokens) + (section.thinking if thinks else 0), settings, self._context)
            if thinks:
                tokens += self._thought(tokens, settings)
            form = self._forms.start(schema) if schema is not None and self._forms is not None else None
            stops = [s for s in (*section.stop, *stop) if s]
            new = self._generate(tokens, settings.max_new_tokens, settings, stops, form)
        reply = str(self._tokenizer.decode(new, skip_special_tokens=True))
        reply = reply.rpartition(THOUGHT_OVER)[2] if form is None else reply
        ends = [at for s in stops if (at := reply.find(s)) >= 0]
        return reply[: min(ends, default=len(reply))].strip()

    def chat(self, prompt: str) -> str:
        """What the model reads: its chat template with the prompt, and with what it is told before every prompt."""
        import jinja2

        system = self._section.system
        asked = {"role": "user", "content": prompt}
        if system:
            try:
                text = self._in_template([{"role": "system", "content": system}, asked])
            except jinja2.TemplateError:  # some refuse a system message, others pass over it
                text = ""
            if system in text:
                return text
            asked["content"] = f"{system}\n\n{prompt}"
        return self._in_template([asked])

    def _in_template(self, messages: list[dict[str, str]]) -> str:
        told = {"enable_thinking": self._section.thinking > 0}  # a template that does not know the word passes over it
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **told))

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _thought(self, tokens: list[int], settings: LanguageSettings) -> list[int]:
        """What the model thinks before its reply, no longer than the profile allows, and with its end."""
        new = self._generate(tokens, self._section.thinking, settings, [THOUGHT_OVER], None)
        new = [token for token in new if token not in self._ends]
        self.thought += len(new)
        over = THOUGHT_OVER in str(self._tokenizer.decode(new))
        return new + self._encode("\n\n" if over else f"\n{THOUGHT_OVER}\n\n")

    def _generate(
        self, tokens: list[int], longest: int, settings: LanguageSettings, stops: list[str], form: Form | None
    ) -> list[int]:
        import torch
        from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

        config = GenerationConfig(
            max_new_tokens=longest,
            eos_token_id=self._ends or None,
            pad_token_id=self._ends[0] if self._ends else 0,  # fills nothing: there is one reply at a time
            repetition_penalty=self._section.repetition_penalty,
            **_sampling(settings, self._section.top_k),
        )

        def held(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            assert form is not None
            if ids.shape[1] > len(tokens):
                form.add(int(ids[0, -1]))
            allowed = torch.from_numpy(form.allowed(scores.shape[1])).to(scores.device)
            return scores.masked_fill(~allowed, -torch.inf)

        def stopped(ids: torch.Tensor, _scores: torch.Tensor) -> torch.Tensor:
            # A stop may begin in the midst of a token; no token stands for less than a letter of it.
            tail = self._tokenizer.decode(ids[0, max(len(tokens), ids.shape[1] - longest_stop) :])
            return torch.tensor([any(s in tail for s in stops)], device=ids.device)

        longest_stop = 1 + 4 * max(map(len, stops), default=0)
        given = torch.tensor([tokens], device=self._device)
        ids = self._model.generate(
            given,
            attention_mask=torch.ones_like(given),
            generation_config=config,
            logits_processor=LogitsProcessorList([held] if form is not None else []),
            stopping_criteria=StoppingCriteriaList([stopped] if stops else []),
        )
        return [int(token) for token in ids[0, len(tokens) :]]


def _sampling(settings: LanguageSettings, top_k: int) -> dict[str, Any]:
    if settings.temperature == 0:
        return {"do_sample": False}
    return {"do_sample": True, "temperature": settings.temperature, "top_p": settings.top_p, "top_k": top_k}
