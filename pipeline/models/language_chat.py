"""A chat model of transformers, prompted in its own chat template."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Any

from core.errors import CannotLoad, UnreadableReply, UserError
from core.progress import stop_if, stop_signal
from core.settings import LanguageSettings
from pipeline.models.batching import AtOnce
from pipeline.models.captioner import warpers_of
from pipeline.models.language import require_room
from pipeline.models.language_forms import allowed_tokens, forms_of
from pipeline.models.model_memory import UsesMemory
from pipeline.models.weights import NO_CODE, loaded_from, locate, pick_device, pick_dtype
from pipeline.profiles.text_sections import ChatLanguage
from pipeline.replies import read_reply, with_thoughts
from pipeline.seams import LanguageRequest

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

THOUGHT, THOUGHT_OVER = "<think>", "</think>"
"""Tags that models put around their thoughts."""
ON_GPU, ON_CPU = 16, 4
"""Default number of replies that are written at once. Larger batches gain little, and users see replies later."""


class ChatLanguageModel(UsesMemory):
    """A chat model that writes one batch of replies at a time. Its files define the chat template and end tokens."""

    def __init__(self, section: ChatLanguage) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = locate("language model", section)
        self.name = section.title
        self.thought = 0
        """Number of tokens that were spent on thoughts so far."""
        self._section = section
        self._lock = threading.Lock()
        self._device = pick_device()
        with loaded_from("language model", section, also=(ImportError,)):
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **NO_CODE)
            dtype = pick_dtype(section.dtype, self._device, chats=True)
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map=self._device, **NO_CODE)
        if not self._tokenizer.chat_template:
            raise CannotLoad(
                f"The language model {self.name} has no chat template, so it cannot be a language model of the kind "
                "“transformers”: take one that was trained to chat, often called Instruct."
            )
        self._model: Any = model.to(self._device).eval()
        positions = int(getattr(model.config.get_text_config(), "max_position_embeddings", 0) or 4096)
        self._context = min(section.context_length or positions, positions)
        ends = model.generation_config.eos_token_id
        ends = [self._tokenizer.eos_token_id] if ends is None else [ends] if isinstance(ends, int) else list(ends)
        self._ends: list[int] = [end for end in ends if end is not None]
        self._at_once = AtOnce(section.batch or (ON_CPU if self._device == "cpu" else ON_GPU))
        self._forms = forms_of(self._tokenizer, self._model, self._ends) if section.hold_form else None

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        """Return the model's thoughts, if any, and its reply. The reply fits the schema if profile and tokenizer allow
        that. Raises UserError if prompt, thoughts and reply may exceed the context, UnreadableReply if there are only
        thoughts, and Cancelled even in the middle of a reply.
        """
        (reply,) = self.complete_many([request], settings)
        if isinstance(reply, UserError):
            raise reply
        return reply

    def complete_many(
        self,
        requests: Sequence[LanguageRequest],
        settings: LanguageSettings,
        on_reply: Callable[[int], None] = lambda _done: None,
    ) -> Sequence[str | UserError]:
        """See `BatchLanguageModel.complete_many`. A batch that does not fit in memory is halved, see `AtOnce.each`."""

        def write(part: Sequence[LanguageRequest], first: int) -> list[str | UserError]:
            return self._replies(part, settings, lambda done: on_reply(first + done))

        with self._lock:
            return self._at_once.each(requests, write, self.free_others)

    def _replies(
        self, requests: Sequence[LanguageRequest], settings: LanguageSettings, on_reply: Callable[[int], None]
    ) -> list[str | UserError]:
        import torch

        section, refused = self._section, dict[int, UserError]()
        thinks = section.thinking > 0 and "think" in str(self._tokenizer.chat_template)
        rows: dict[int, _Row] = {}
        for place, request in enumerate(requests):
            text = self.chat(request.prompt)
            if thinks and not text.rstrip().endswith(THOUGHT):
                text += f"{THOUGHT}\n"
            elif not thinks and text.rstrip().endswith(THOUGHT):  # a template that always begins a thought
                text += f"\n{THOUGHT_OVER}\n\n"
            tokens = self._encode(text)
            try:
                require_room(len(tokens) + (section.thinking if thinks else 0), settings, self._context)
            except UserError as error:
                refused[place] = error
                continue
            rows[place] = _Row(tokens, torch.Generator(self._device).manual_seed(request.seed))
        if thinks and rows:
            self._think(list(rows.values()), settings)
        for place, row in rows.items():
            request = requests[place]
            constrained = request.schema is not None and self._forms is not None
            row.form = self._forms.start(request.schema) if constrained else None  # type: ignore[union-attr, arg-type]
            row.stops = tuple(s for s in (*section.stop, *request.stop) if s)
        if rows:
            self._write(list(rows.values()), settings.max_new_tokens, settings, lambda n: on_reply(len(refused) + n))
        return [
            refused[place] if place in refused else self._reply(request, rows[place], settings)
            for place, request in enumerate(requests)
        ]

    def _reply(self, request: LanguageRequest, row: _Row, settings: LanguageSettings) -> str | UserError:
        text = str(self._tokenizer.decode(row.written, skip_special_tokens=True)).strip()
        answer, thoughts = text, ""
        if row.form is None:
            answer, thoughts = astuple(read_reply(text))
            if thoughts:  # unrequested thoughts are part of the reply, and of its length
                spent = max(1, len(row.written) - len(self._encode(answer)))
                self.thought += spent
                log.info("%s spent %d tokens on thoughts.", self.name, spent)
            if thoughts and not answer:
                return UnreadableReply(
                    f"The language model spent the longest reply ({settings.max_new_tokens} tokens) on thoughts and "
                    "said nothing: raise the longest reply, or set thinking in the profile, which counts separately.",
                    request.prompt,
                    text,
                    attempts=1,
                )
        if ends := [at for s in row.stops if (at := answer.find(s)) >= 0]:
            text = with_thoughts(thoughts, answer[: min(ends)].strip())
        return with_thoughts(row.thoughts, text)

    def chat(self, prompt: str) -> str:
        """Return the model's input text: its chat template filled with the system text and the prompt."""
        import jinja2

        system = self._section.system
        message = {"role": "user", "content": prompt}
        if system:
            try:
                text = self._in_template([{"role": "system", "content": system}, message])
            except jinja2.TemplateError:  # some templates refuse a system message, others ignore it
                text = ""
            if system in text:
                return text
            message["content"] = f"{system}\n\n{prompt}"
        return self._in_template([message])

    def _in_template(self, messages: list[dict[str, str]]) -> str:
        options = {"enable_thinking": self._section.thinking > 0}  # a template that does not know it ignores it
        return str(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **options))

    def score(self, text: str) -> float:
        import torch

        with self._lock, torch.inference_mode():
            tokens = self._tokenizer(text, return_tensors="pt").input_ids[:, : self._context].to(self._device)
            # A single token predicts no other.
            return float(self._model(input_ids=tokens, labels=tokens).loss) if tokens.shape[1] > 1 else 0.0

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False).input_ids)

    def _think(self, rows: Sequence[_Row], settings: LanguageSettings) -> None:
        """Write the thoughts before the replies, each within the profile's limit, and append them to the inputs."""
        for row in rows:
            row.stops = (THOUGHT_OVER,)
        self._write(rows, self._section.thinking, settings, lambda _over: None)
        for row in rows:
            new = [token for token in row.written if token not in self._ends]
            self.thought += len(new)
            row.thoughts, over, _ = str(self._tokenizer.decode(new)).partition(THOUGHT_OVER)
            row.tokens += new + self._encode("\n\n" if over else f"\n{THOUGHT_OVER}\n\n")
            row.written, row.over = [], False

    def _write(
        self, rows: Sequence[_Row], longest: int, settings: LanguageSettings, on_over: Callable[[int], None]
    ) -> None:
        """Write the texts of all rows at once, until each has ended. Inputs are padded on the left to one length."""
        import torch
        from transformers import GenerationConfig

        width, pad = max(len(row.tokens) for row in rows), self._ends[0] if self._ends else 0
        config = GenerationConfig(
            max_new_tokens=longest,
            eos_token_id=self._ends or None,
            pad_token_id=pad,
            # `draw` below draws each token with the row's own generator, so the model's own sampling is switched off.
            do_sample=False,
            temperature=1.0,
            top_p=1.0,
            top_k=50,
            repetition_penalty=1.0,
        )
        # The profile has no setting for min-p, so the model's own value applies.
        least, counted = getattr(self._model.generation_config, "min_p", None) or None, 0
        warpers = warpers_of(settings.temperature, self._section.top_k, settings.top_p, least)

        def draw(_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            nonlocal counted
            stop_if(stop_signal())
            for at, row in enumerate(rows):
                if not row.over:
                    self._weigh(row, scores[at])
            scores = warpers(None, scores) if settings.temperature else scores
            drawn = torch.full_like(scores, -torch.inf)
            for at, row in enumerate(rows):
                token = pad if row.over else self._next(row, scores[at], settings, longest)
                drawn[at, token] = 0
            if (over := sum(row.over for row in rows)) != counted:
                counted = over
                on_over(over)
            return drawn

        def stopped(ids: torch.Tensor, _scores: torch.Tensor) -> torch.Tensor:
            return torch.tensor([row.over for row in rows], device=ids.device)

        with torch.inference_mode():
            self._model.generate(
                torch.tensor([[pad] * (width - len(row.tokens)) + row.tokens for row in rows], device=self._device),
                attention_mask=torch.tensor(
                    [[0] * (width - len(row.tokens)) + [1] * len(row.tokens) for row in rows], device=self._device
                ),
                generation_config=config,
                logits_processor=[draw],
                stopping_criteria=[stopped],
            )

    def _weigh(self, row: _Row, scores: torch.Tensor) -> None:
        """Change a row's scores in place: make repeated tokens less likely and tokens outside its schema impossible."""
        import torch
        from transformers import RepetitionPenaltyLogitsProcessor

        penalty = self._section.repetition_penalty
        if penalty != 1:
            seen = torch.tensor([row.tokens + row.written], device=scores.device)
            scores[:] = RepetitionPenaltyLogitsProcessor(penalty)(seen, scores[None])[0]
        if row.form is not None:
            allowed = torch.from_numpy(allowed_tokens(row.form, len(scores))).to(scores.device)
            scores.masked_fill_(~allowed, -torch.inf)

    def _next(self, row: _Row, scores: torch.Tensor, settings: LanguageSettings, longest: int) -> int:
        """Return a row's next token, chosen by its scores. Mark the row as over if the token ends its text."""
        import torch

        likely = torch.multinomial(scores.softmax(-1), 1, generator=row.draws) if settings.temperature else None
        token = int(scores.argmax() if likely is None else likely)
        row.written.append(token)
        if token in self._ends:
            row.over = True
            return token
        if row.form is not None:
            row.form.consume_token(token)
        # A stop may begin within a token, and each of its characters may take up to four tokens, one per byte.
        longest_stop = 1 + 4 * max(map(len, row.stops), default=0)
        tail = str(self._tokenizer.decode(row.written[-longest_stop:])) if row.stops else ""
        row.over = len(row.written) >= longest or any(s in tail for s in row.stops)
        return token


@dataclass
class _Row:
    """State of one reply while it is written."""

    tokens: list[int]
    """Token ids of the input, which the model reads before it writes."""
    draws: torch.Generator
    """Generator of this row alone, so that draws in other rows do not affect it."""
    form: Any = None
    """Constraint of the reply (an LLMatcher of llguidance), or None for an unconstrained reply."""
    stops: tuple[str, ...] = ()
    written: list[int] = field(default_factory=list)
    over: bool = False
    thoughts: str = ""
    """The model's thoughts before the reply, if the profile lets it think."""
