"""Captioners: BLIP, which takes no prompt; BLIP-2, which answers questions or samples several captions; and Florence-2,
which takes the name of a task. Chat models are in `captioner_chat`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from string import Template
from typing import TYPE_CHECKING, Any

from PIL import Image

from core.errors import UserError
from core.settings import CaptionSettings
from core.types import Task
from pipeline.models.batching import AtOnce
from pipeline.models.model_memory import UsesMemory
from pipeline.models.weights import NO_CODE, loaded_from, locate, pick_device, pick_dtype
from pipeline.profiles.text_sections import Blip2Captioner, BlipCaptioner, ChatCaptioner, Florence2Captioner
from pipeline.seams import CaptionRequest

if TYPE_CHECKING:
    import torch

LEAST_SHARE = 0.05
"""Minimum likelihood of a sampled word, divided by the likelihood of the likeliest word. Most words below are wrong."""
AT_ONCE = 16
"""Maximum number of images that are captioned at once. Larger batches gain little."""
ON_CPU = 4
"""Maximum number of images that are captioned at once on a CPU, by models with a large vocabulary."""
MOST_LIKELY = 50
"""Number of likeliest words from which `generate` samples, if a model's own settings do not say otherwise."""


class CaptioningModel(UsesMemory, ABC):
    """A captioning model of transformers. It takes one call at a time. A call captions several pictures at once if each
    can have its own random draws. The captions are the same as for single pictures.
    """

    continues = False
    """True if the model's output begins with the prompt."""

    def __init__(
        self,
        section: Blip2Captioner | BlipCaptioner | Florence2Captioner | ChatCaptioner,
        processor: Any,
        model: Any,
        chats: bool = False,
    ) -> None:
        """`processor` and `model` are the classes that read the model's files. `chats` is True for a chat model."""
        folder = locate("captioner", section)
        self.name = section.title
        self._lock = threading.Lock()
        self._device = pick_device()
        self._dtype = pick_dtype(section.dtype, self._device, chats)

        def read(kind: Any, **more: Any) -> Any:
            options = NO_CODE if kind.__name__.startswith("Auto") else {"local_files_only": True}
            return kind.from_pretrained(folder, **more, **options)

        with loaded_from("captioner", section, also=(ImportError,) if chats else ()):
            self._processor: Any = read(processor)
            loaded = read(model, dtype=self._dtype, device_map=self._device)
        self._model: Any = loaded.to(self._device).eval()
        self._at_once = AtOnce(ON_CPU if self._device == "cpu" else AT_ONCE)

    def _generate(self, encoded: Mapping[str, Any], longest: int, seed: int, drawn: dict[str, Any]) -> list[str]:
        """Return the texts that transformers' `generate` writes with the options `drawn`, without the prompt."""
        with self._lock, seeded(seed):
            ids = self._model.generate(**encoded, max_new_tokens=longest, **drawn)
        new = ids[:, encoded["input_ids"].shape[1] :] if self.continues else ids
        texts = self._processor.batch_decode(new, skip_special_tokens=True)
        return [str(text).strip() for text in texts]

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        (reply,) = self._say_all([CaptionRequest(image, task, seed)], settings)
        return reply

    @abstractmethod
    def _say_all(self, requests: Sequence[CaptionRequest], settings: CaptionSettings) -> list[tuple[str, str]]:
        """Return the caption and the prompt of each request."""

    @property
    def _config(self) -> Any:
        return self._model.generation_config

    def _draws_apart(self, settings: CaptionSettings) -> bool:
        return own_draws(self._config, settings)

    def _drawn(
        self, seeds: Sequence[int], settings: CaptionSettings, several: int = 1, top_p: float | None = None
    ) -> dict[str, Any]:
        """Return the options of `generate` for `several` texts per seed. A single seed is set by `seeded` instead."""
        more = {"num_return_sequences": several} if several > 1 else {}
        if len(seeds) == 1:
            return more | sampling(settings, top_p)
        return more | sampling_apart(settings, self._config, seeds, self._device, several, top_p)

    def caption_many(
        self, requests: Sequence[CaptionRequest], settings: CaptionSettings
    ) -> Sequence[tuple[str, str] | UserError]:
        """See `BatchCaptioner.caption_many`. If texts cannot have their own random draws, requests run one by one."""
        if not self._draws_apart(settings):
            return [self.caption(one.image, one.task, settings, one.seed) for one in requests]
        return self._at_once.each(requests, lambda part, _first: self._say_all(part, settings), self.free_others)


class Blip(CaptioningModel):
    """A BLIP of transformers. It takes no prompt. The length of its captions is limited by the model's positions."""

    def __init__(self, section: BlipCaptioner) -> None:
        from transformers import BlipForConditionalGeneration, BlipProcessor

        super().__init__(section, BlipProcessor, BlipForConditionalGeneration)
        self._positions: int = self._model.config.text_config.max_position_embeddings
        self._at_once = AtOnce(AT_ONCE)

    def _say_all(self, requests: Sequence[CaptionRequest], settings: CaptionSettings) -> list[tuple[str, str]]:
        limit = min(settings.max_new_tokens, self._positions - 2)
        pixels = self._processor(images=[one.image for one in requests], return_tensors="pt").pixel_values
        encoded = {"pixel_values": pixels.to(self._device, self._dtype)}
        drawn = self._drawn([one.seed for one in requests], settings)
        return [(text, "") for text in self._generate(encoded, limit, requests[0].seed, drawn)]


class Blip2(CaptioningModel):
    """A BLIP-2 of transformers. It answers every question of the profile, and each answer becomes a sentence. If the
    profile says so, it samples several captions without a prompt instead, as in the paper's released code.
    """

    continues = True

    def __init__(self, section: Blip2Captioner) -> None:
        from transformers import Blip2ForConditionalGeneration, Blip2Processor

        super().__init__(section, Blip2Processor, Blip2ForConditionalGeneration)
        self._questions = section.questions
        self._samples, self._top_p = section.samples, section.top_p

    @property
    def _config(self) -> Any:
        return self._model.language_model.generation_config

    def _draws_apart(self, settings: CaptionSettings) -> bool:
        # Samples are drawn without beams.
        return super()._draws_apart(settings.model_copy(update={"beams": 1}) if self._samples else settings)

    def _say_all(self, requests: Sequence[CaptionRequest], settings: CaptionSettings) -> list[tuple[str, str]]:
        """Return, for each request, the caption and the prompts (one a line). The caption joins one sentence for each
        answered question. If the profile sets `samples`, the caption joins sampled captions without repeats instead,
        and the prompts are "". At temperature 0, there is one sample.
        """
        pictures, seeds = [one.image for one in requests], [one.seed for one in requests]
        if self._samples:
            several = self._samples if settings.temperature else 1
            sampled = self._answers(pictures, [""] * len(pictures), settings, seeds, several, self._top_p)
            return [(" ".join(dict.fromkeys(as_sentence(text) for text in texts if text)), "") for texts in sampled]
        sentences: list[list[str]] = [[] for _ in requests]
        prompts: list[list[str]] = [[] for _ in requests]
        for number, question in enumerate(self._questions):
            filled = [Template(question.prompt).substitute(task=one.task.describe()) for one in requests]
            answers = self._answers(pictures, filled, settings, [seed + number for seed in seeds])
            for at, (answer,) in enumerate(answers):
                prompts[at].append(filled[at])
                if answer:
                    sentences[at].append(as_sentence(Template(question.sentence).substitute(answer=answer)))
        return [(" ".join(texts), "\n".join(sent)) for texts, sent in zip(sentences, prompts, strict=True)]

    def encode(self, pictures: Sequence[Image.Image], prompts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return pixels and token ids (pictures, n) on the model's device, padded on the left. Raises UserError if the
        ids have no tokens for the picture, as with old revisions of the weights. The model would not see the picture.
        """
        several = {"padding": True, "padding_side": "left"} if len(pictures) > 1 else {}
        encoded = self._processor(images=list(pictures), text=list(prompts), return_tensors="pt", **several)
        config = self._model.config
        if ((encoded.input_ids == config.image_token_id).sum(1) != config.num_query_tokens).any():
            raise UserError(
                f"The captioner {self.name} does not mark where the picture goes, so it would not see the picture: "
                "name a newer revision of the captioner in the profile."
            )
        return {
            "pixel_values": encoded.pixel_values.to(self._device, self._dtype),
            "input_ids": encoded.input_ids.to(self._device),
            "attention_mask": encoded.attention_mask.to(self._device),
        }

    def _answers(
        self,
        pictures: Sequence[Image.Image],
        prompts: Sequence[str],
        settings: CaptionSettings,
        seeds: Sequence[int],
        several: int = 1,
        top_p: float | None = None,
    ) -> list[list[str]]:
        """Return `several` answers to each picture and prompt, sampled with its seed. With `top_p`, words are sampled
        from the likeliest ones that together have this probability, otherwise from all above `LEAST_SHARE`.
        """
        encoded = self.encode(pictures, prompts)
        drawn = self._drawn(seeds, settings, several, top_p)
        texts = self._generate(encoded, settings.max_new_tokens, seeds[0], drawn)
        answers = [" ".join(text.split()).strip(" .") for text in texts]
        return [answers[at : at + several] for at in range(0, len(answers), several)]


class Florence2(CaptioningModel):
    """A Florence-2 of transformers. The name of one of the model's tasks takes the place of a prompt."""

    def __init__(self, section: Florence2Captioner) -> None:
        from transformers import AutoProcessor, Florence2ForConditionalGeneration

        super().__init__(section, AutoProcessor, Florence2ForConditionalGeneration)
        self._task = section.task

    def _say_all(self, requests: Sequence[CaptionRequest], settings: CaptionSettings) -> list[tuple[str, str]]:
        # All have the same task, so all prompts have one length.
        images, prompts = [one.image for one in requests], [self._task] * len(requests)
        encoded = self._processor(images=images, text=prompts, return_tensors="pt").to(self._device, self._dtype)
        drawn = self._drawn([one.seed for one in requests], settings)
        # The processor's own post-processing is for boxes and regions, and leaves captions as they are.
        texts = self._generate(encoded, settings.max_new_tokens, requests[0].seed, drawn)
        return [(text, self._task) for text in texts]


def sampling(settings: CaptionSettings, top_p: float | None = None) -> dict[str, Any]:
    """Return options of transformers' `generate`. At temperature 0 it writes the likeliest text. Above 0 it samples
    words: the likeliest words with a total probability of `top_p`, or without `top_p`, all words above `LEAST_SHARE`.
    """
    if settings.temperature == 0:
        return {"num_beams": settings.beams, "do_sample": False}
    free: dict[str, Any] = {"do_sample": True, "temperature": settings.temperature}
    if top_p is not None:
        return free | {"top_p": top_p}
    return {"num_beams": settings.beams, **free, "min_p": LEAST_SHARE}


_OTHER_WARPERS: dict[str, Any] = {"typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "top_h": None}
"""Further sampling settings that a model's files may set, each with the value that turns it off."""


def own_draws(config: Any, settings: CaptionSettings) -> bool:
    """Return True if each text of a batch can be sampled by its own seed. False for sampled beams, which share their
    draws, and if `config` (the model's own settings for `generate`) sets other ways to sample.
    """
    if settings.temperature == 0:
        return True
    others = [name for name, idle in _OTHER_WARPERS.items() if getattr(config, name, None) not in (None, idle)]
    return settings.beams == 1 and not others


def sampling_apart(
    settings: CaptionSettings,
    config: Any,
    seeds: Sequence[int],
    device: str,
    several: int = 1,
    top_p: float | None = None,
) -> dict[str, Any]:
    """Return options of `generate` for a batch with `several` texts per seed. Each seed samples as if it were alone.
    `config` has the model's default settings for `generate`, which apply where `settings` has none.
    """
    if settings.temperature == 0:
        return sampling(settings)
    import torch

    draws = [torch.Generator(device).manual_seed(seed) for seed in seeds]
    most, own = getattr(config, "top_k", None), getattr(config, "top_p", None)
    least = LEAST_SHARE if top_p is None else getattr(config, "min_p", None)
    warpers = warpers_of(settings.temperature, MOST_LIKELY if most is None else most, top_p or own, least)

    def draw(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        shares = torch.softmax(warpers(ids, scores), dim=-1)
        only_drawn = torch.full_like(scores, -torch.inf)
        for at, generator in enumerate(draws):
            rows = slice(at * several, (at + 1) * several)
            only_drawn[rows].scatter_(1, torch.multinomial(shares[rows], 1, generator=generator), 0.0)
        return only_drawn

    # Only the drawn word stays possible. For several texts of a picture `generate` draws again, and gets the same word.
    return {"do_sample": several > 1, "num_beams": 1, "logits_processor": [draw]}


def warpers_of(temperature: float, top_k: int, top_p: float | None, min_p: float | None) -> Any:
    """Return transformers' score processors for these settings, in the order in which `generate` applies them."""
    import transformers

    warpers = {
        transformers.TemperatureLogitsWarper: float(temperature) or None,
        transformers.TopKLogitsWarper: top_k or None,
        transformers.TopPLogitsWarper: top_p if top_p is not None and top_p < 1 else None,
        transformers.MinPLogitsWarper: min_p,
    }
    return transformers.LogitsProcessorList([kind(value) for kind, value in warpers.items() if value is not None])


def as_sentence(text: str) -> str:
    """Return the text with a capital at its start and one full stop at its end."""
    text = text.strip().rstrip(".")
    return text[:1].upper() + text[1:] + ("" if text.endswith(("!", "?")) else ".")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within the context, compute no gradients and let torch draw from `seed`. Afterwards restore the random state."""
    import torch

    with torch.inference_mode(), torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
