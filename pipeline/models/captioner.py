"""Captioners: BLIP, which captions unasked; BLIP-2, asked questions or left to caption several times; and Florence-2,
which goes by the name of a task. Those that chat are in `captioner_chat`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from string import Template
from typing import TYPE_CHECKING, Any

from PIL import Image

from pipeline.errors import UserError
from pipeline.models.weights import NO_CODE, loading, locate, pick_device, pick_dtype, unreadable
from pipeline.seams import CaptionRequest
from pipeline.settings import CaptionSettings
from pipeline.text_sections import Blip2Captioner, BlipCaptioner, Florence2Captioner
from pipeline.types import Task

if TYPE_CHECKING:
    import torch

LOAD_ERRORS = (OSError, ValueError, RuntimeError, KeyError)
LEAST_SHARE = 0.05
"""When sampling, a word is said only if it is at least so likely as the likeliest one, as a share of it.

The words after that are many and each is wrong: with the temperature up they broke captions off or named other things.
"""


AT_ONCE = 16
"""Images that are captioned at once: more gain little."""
MOST_LIKELY = 50
"""When sampling, `generate` picks from so many words where a model's own settings do not say otherwise."""


class Blip:
    """A BLIP of transformers."""

    def __init__(self, section: BlipCaptioner) -> None:
        from transformers import BlipForConditionalGeneration, BlipProcessor

        folder = locate("captioner", section)
        self.name = section.title
        self._lock = threading.Lock()
        self._device = pick_device()
        self._dtype = pick_dtype(section.dtype, self._device)
        try:
            with loading():
                self._processor: Any = BlipProcessor.from_pretrained(folder, local_files_only=True)
                model = BlipForConditionalGeneration.from_pretrained(
                    folder, dtype=self._dtype, device_map=self._device, local_files_only=True
                )
        except LOAD_ERRORS as error:
            raise unreadable("captioner", section, error) from error
        self._model: Any = model.to(self._device).eval()
        self._positions: int = model.config.text_config.max_position_embeddings

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        """The caption, and "" as the prompt: this model takes none. Never longer than its positions allow."""
        pixels = self._processor(images=image, return_tensors="pt").pixel_values.to(self._device, self._dtype)
        limit = min(settings.max_new_tokens, self._positions - 2)
        with self._lock, seeded(seed):
            ids = self._model.generate(pixel_values=pixels, max_new_tokens=limit, **sampling(settings))
        return str(self._processor.decode(ids[0], skip_special_tokens=True)).strip(), ""

    def caption_many(self, requests: Sequence[CaptionRequest], settings: CaptionSettings) -> list[tuple[str, str]]:
        """See `BatchCaptioner.caption_many`. Beams that are sampled share their draws: those are asked one by one."""
        if settings.temperature and settings.beams > 1:
            return [self.caption(one.image, one.task, settings, one.seed) for one in requests]
        limit = min(settings.max_new_tokens, self._positions - 2)
        said: list[tuple[str, str]] = []
        for first in range(0, len(requests), AT_ONCE):
            part = requests[first : first + AT_ONCE]
            pixels = self._processor(images=[one.image for one in part], return_tensors="pt").pixel_values
            drawn = sampling(settings) if settings.temperature == 0 else self._drawn_apart(part, settings)
            with self._lock, seeded(0):
                ids = self._model.generate(
                    pixel_values=pixels.to(self._device, self._dtype), max_new_tokens=limit, **drawn
                )
            said += [(str(text).strip(), "") for text in self._processor.batch_decode(ids, skip_special_tokens=True)]
        return said

    def _drawn_apart(self, requests: Sequence[CaptionRequest], settings: CaptionSettings) -> dict[str, Any]:
        """What `generate` is given so that each row draws its words by its own seed, as it would alone."""
        import torch
        from transformers import (
            LogitsProcessorList,
            MinPLogitsWarper,
            TemperatureLogitsWarper,
            TopKLogitsWarper,
        )

        draws = [torch.Generator(self._device).manual_seed(one.seed) for one in requests]
        warpers = LogitsProcessorList(
            [
                TemperatureLogitsWarper(float(settings.temperature)),
                TopKLogitsWarper(MOST_LIKELY),
                MinPLogitsWarper(LEAST_SHARE),
            ]
        )

        def draw(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            shares = torch.softmax(warpers(ids, scores), dim=-1)
            found = torch.full_like(scores, -torch.inf)
            for at, generator in enumerate(draws):
                found[at, torch.multinomial(shares[at : at + 1], 1, generator=generator)[0]] = 0
            return found

        return {"do_sample": False, "num_beams": 1, "logits_processor": LogitsProcessorList([draw])}


class Blip2:
    """A BLIP-2 of transformers, asked every question of the profile, each answer becoming one sentence; or, where the
    profile says so, left to caption several times, as in the paper's released code.
    """

    def __init__(self, section: Blip2Captioner) -> None:
        from transformers import Blip2ForConditionalGeneration, Blip2Processor

        folder = locate("captioner", section)
        self.name = section.title
        self._questions = section.questions
        self._samples, self._top_p = section.samples, section.top_p
        self._lock = threading.Lock()
        self._device = pick_device()
        self._dtype = pick_dtype(section.dtype, self._device)
        try:
            with loading():
                self._processor: Any = Blip2Processor.from_pretrained(folder, local_files_only=True)
                model = Blip2ForConditionalGeneration.from_pretrained(
                    folder, dtype=self._dtype, device_map=self._device, local_files_only=True
                )
        except LOAD_ERRORS as error:
            raise unreadable("captioner", section, error) from error
        self._model: Any = model.to(self._device).eval()

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        """The sentences as one text, and the prompts sent, one a line. No sentence for a question without an answer.

        Samples are drawn in one go, without a prompt, and each is said once; at temperature 0 there is only one.
        """
        if self._samples:
            free = {"do_sample": True, "temperature": settings.temperature, "top_p": self._top_p}
            drawn = free | {"num_return_sequences": self._samples} if settings.temperature else sampling(settings)
            said = self._answers(self.encode(image, ""), settings, seed, drawn)
            return " ".join(dict.fromkeys(as_sentence(text) for text in said if text)), ""
        sentences, prompts = [], []
        for number, question in enumerate(self._questions):
            prompt = Template(question.prompt).substitute(task=task.describe())
            prompts.append(prompt)
            (answer,) = self._answers(self.encode(image, prompt), settings, seed + number, sampling(settings))
            if answer:
                sentences.append(as_sentence(Template(question.sentence).substitute(answer=answer)))
        return " ".join(sentences), "\n".join(prompts)

    def encode(self, image: Image.Image, prompt: str) -> dict[str, torch.Tensor]:
        """Pixels and token ids (1, n), ready for the model.

        Raises UserError when the ids do not hold the places where the picture goes: older revisions of the weights
        leave them out, and such a model answers without looking.
        """
        encoded = self._processor(images=image, text=prompt, return_tensors="pt")
        config = self._model.config
        if int((encoded.input_ids == config.image_token_id).sum()) != config.num_query_tokens:
            raise UserError(
                f"The captioner {self.name} does not mark where the picture goes, so captions would not depend on it: "
                "name a newer revision of it in the profile."
            )
        return {
            "pixel_values": encoded.pixel_values.to(self._device, self._dtype),
            "input_ids": encoded.input_ids.to(self._device),
            "attention_mask": encoded.attention_mask.to(self._device),
        }

    def _answers(
        self, encoded: dict[str, torch.Tensor], settings: CaptionSettings, seed: int, drawn: dict[str, Any]
    ) -> list[str]:
        with self._lock, seeded(seed):
            ids = self._model.generate(**encoded, max_new_tokens=settings.max_new_tokens, **drawn)
        # What comes back begins with the prompt.
        new = ids[:, encoded["input_ids"].shape[1] :]
        texts = self._processor.tokenizer.batch_decode(new, skip_special_tokens=True)
        return [" ".join(str(text).split()).strip(" .") for text in texts]


class Florence2:
    """A Florence-2 of transformers. One caption at a time."""

    def __init__(self, section: Florence2Captioner) -> None:
        from transformers import AutoProcessor, Florence2ForConditionalGeneration

        folder = locate("captioner", section)
        self.name = section.title
        self._task = section.task
        self._lock = threading.Lock()
        self._device = pick_device()
        self._dtype = pick_dtype(section.dtype, self._device)
        try:
            with loading():
                self._processor: Any = AutoProcessor.from_pretrained(folder, **NO_CODE)
                model = Florence2ForConditionalGeneration.from_pretrained(
                    folder, dtype=self._dtype, device_map=self._device, local_files_only=True
                )
        except LOAD_ERRORS as error:
            raise unreadable("captioner", section, error) from error
        self._model: Any = model.to(self._device).eval()

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        """The caption, and the name of the model's own task, which stands for the words that it was trained on."""
        encoded = self._processor(images=image, text=self._task, return_tensors="pt").to(self._device, self._dtype)
        with self._lock, seeded(seed):
            ids = self._model.generate(**encoded, max_new_tokens=settings.max_new_tokens, **sampling(settings))
        # What its processor would do with it is for boxes and regions; of a caption it leaves the text.
        (text,) = self._processor.batch_decode(ids, skip_special_tokens=True)
        return str(text).strip(), self._task


def sampling(settings: CaptionSettings) -> dict[str, Any]:
    """The settings as `generate` of transformers takes them. Temperature 0 is the likeliest text."""
    if settings.temperature == 0:
        return {"num_beams": settings.beams, "do_sample": False}
    free = {"do_sample": True, "temperature": settings.temperature, "min_p": LEAST_SHARE}
    return {"num_beams": settings.beams, **free}


def as_sentence(text: str) -> str:
    """The text with a capital at its start and one full stop at its end."""
    text = text.strip().rstrip(".")
    return text[:1].upper() + text[1:] + ("" if text.endswith(("!", "?")) else ".")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """While it holds, no gradients are kept and torch draws from `seed`; afterwards the random state is as it was."""
    import torch

    with torch.inference_mode(), torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
