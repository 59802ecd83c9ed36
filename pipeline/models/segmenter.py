"""Segmenters: models that find the things that a phrase names. One call at a time."""

from __future__ import annotations

import json
import pickle
import threading
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.images import image_sha
from core.latest import Latest
from core.model_sections import Weights
from core.words import forms_of, tokens
from pipeline.models.weights import loaded_from, locate, pick_device
from pipeline.profiles.image_sections import (
    MASKS,
    SEGMENTER,
    ClipSegSection,
    GroundedSamSection,
    PhraseNetSection,
    Sam3Section,
)
from pipeline.seams import Found, Points, Segmenter

Mask = NDArray[np.bool_]
Shares = NDArray[np.float32]
_REMEMBERED = 10_000
"""Maximum number of cached results, each for a picture and a phrase. Most are empty, and the others take a few kB."""
_SMALLEST = 0.0005
"""Minimum size of a connected piece that counts as a thing, as a share of the picture."""


class _Part:
    """A model of transformers and the processor that prepares its inputs. `GroundedSam` has two of them."""

    def __init__(self, role: str, weights: Weights, model: Any, processor: Any) -> None:
        folder, self._device = locate(role, weights), pick_device()
        with loaded_from(role, weights):
            self.processor: Any = processor.from_pretrained(folder, local_files_only=True)
            self._model: Any = model.from_pretrained(folder, local_files_only=True).to(self._device).eval()

    def __call__(self, image: Image.Image, options: dict[str, Any] | None = None, **prompt: Any) -> tuple[Any, Any]:
        """Return the inputs that the processor made, and the model's outputs."""
        import torch

        inputs = self.processor(images=image, return_tensors="pt", **prompt).to(self._device)
        with torch.inference_mode():
            return inputs, self._model(**inputs, **(options or {}))

    def require_short(self, phrase: str, most: int) -> str:
        """Return the phrase in lower case. Raises UserError if it is empty or has more than `most` tokens."""
        text = " ".join(phrase.lower().replace(".", " ").split())
        if not text:
            raise UserError("Name the thing to find, such as “bird”.")
        if len(self.processor.tokenizer(text).input_ids) > most:
            raise UserError(f"“{text[:80]}” is too long for the segmenter: name the thing in a few words.")
        return text


class GroundedSam:
    """Segments with two models: GroundingDINO finds boxes by the phrase, and SAM 2.1 finds the mask in each box."""

    def __init__(self, section: GroundedSamSection) -> None:
        from transformers import GroundingDinoForObjectDetection, GroundingDinoProcessor, Sam2Model, Sam2Processor

        self.name, self._section, self._lock = section.title, section, threading.Lock()
        self._boxes = _Part(SEGMENTER, section, GroundingDinoForObjectDetection, GroundingDinoProcessor)
        self._masks = _Part(MASKS, section.masks, Sam2Model, Sam2Processor)

    def find(self, image: Image.Image, phrase: str) -> list[Found]:
        """Return the things whose scores reach the threshold. If none does, half the threshold is used."""
        with self._lock:
            text = self._boxes.require_short(phrase, 64)
            inputs, outputs = self._boxes(image, text=[[text]])
            for sure in (True, False):
                threshold = self._section.threshold / (1 if sure else 2)
                [result] = self._boxes.processor.post_process_grounded_object_detection(
                    outputs,
                    inputs.input_ids,
                    threshold=threshold,
                    text_threshold=self._section.text_threshold,
                    target_sizes=[(image.height, image.width)],
                )
                if len(result["boxes"]):
                    masks = self._masked(image, input_boxes=[result["boxes"].tolist()])
                    return _sorted(zip(masks, result["scores"].tolist(), strict=True), sure)
            return []

    def at(self, image: Image.Image, points: Points) -> Mask | None:
        with self._lock:
            places = [[[[x, y] for x, y, _ in points]]]
            labels = [[[int(inside) for _, _, inside in points]]]
            return self._masked(image, input_points=places, input_labels=labels)[0]

    def _masked(self, image: Image.Image, **prompt: Any) -> list[Mask]:
        inputs, outputs = self._masks(image, {"multimask_output": False}, **prompt)
        [masks] = self._masks.processor.post_process_masks(outputs.pred_masks.cpu(), inputs["original_sizes"].cpu())
        return list(masks[:, 0].numpy().astype(bool))


class Sam3:
    """SAM 3: one model that finds the boxes and masks of all things that fit a phrase."""

    def __init__(self, section: Sam3Section) -> None:
        from transformers import Sam3Model, Sam3Processor

        self.name, self._section, self._lock = section.title, section, threading.Lock()
        self._part = _Part(SEGMENTER, section, Sam3Model, Sam3Processor)

    def find(self, image: Image.Image, phrase: str) -> list[Found]:
        """Return the things whose scores reach the threshold. If none does, half the threshold is used."""
        with self._lock:
            _, outputs = self._part(image, text=self._part.require_short(phrase, 32))
            for sure in (True, False):
                threshold = self._section.threshold / (1 if sure else 2)
                [result] = self._part.processor.post_process_instance_segmentation(
                    outputs, threshold, self._section.mask_threshold, [(image.height, image.width)]
                )
                if len(result["scores"]):
                    masks = result["masks"].cpu().numpy().astype(bool)
                    return _sorted(zip(masks, result["scores"].tolist(), strict=True), sure)
            return []

    def at(self, image: Image.Image, points: Points) -> Mask | None:
        return None


class ClipSeg:
    """CLIPSeg gives each pixel the probability of the phrase, at a low resolution. It is small enough for a laptop."""

    def __init__(self, section: ClipSegSection) -> None:
        from transformers import CLIPSegForImageSegmentation, CLIPSegProcessor

        self.name, self._section, self._lock = section.title, section, threading.Lock()
        self._part = _Part(SEGMENTER, section, CLIPSegForImageSegmentation, CLIPSegProcessor)

    def find(self, image: Image.Image, phrase: str) -> list[Found]:
        with self._lock:
            _, outputs = self._part(image, text=self._part.require_short(phrase, 77))
            shares = _resized(outputs.logits.reshape(1, 1, *outputs.logits.shape[-2:]).sigmoid(), image.size)[0]
            return _pieces(shares > self._section.threshold, shares)

    def at(self, image: Image.Image, points: Points) -> Mask | None:
        return None


class PhraseNetSegmenter:
    """Segments by a `PhraseNet`. The model file lists the words, the phrases, and the words for single things."""

    def __init__(self, section: PhraseNetSection) -> None:
        import torch
        from safetensors import SafetensorError, safe_open
        from safetensors.torch import load_file

        from pipeline.models.phrase_net import PhraseNet

        self.name, self._section, self._lock = section.title, section, threading.Lock()
        with loaded_from(SEGMENTER, section, (SafetensorError,)), safe_open(locate(SEGMENTER, section), "pt") as file:
            header = {name: json.loads(text) for name, text in file.metadata().items()}
            self._words: list[str] = header["words"]
            self._phrases: dict[str, list[str]] = header["phrases"]
            self._single: list[str] = header["single"]
            net = PhraseNet(len(self._words))
            net.load_state_dict(load_file(locate(SEGMENTER, section)))
        # With channels last, a pass takes three quarters of the time on a CPU.
        self._net: Any = net.to(pick_device(), memory_format=torch.channels_last).eval()
        self._last: tuple[str, Shares] = "", np.empty((0, 0, 0), np.float32)

    def find(self, image: Image.Image, phrase: str) -> list[Found]:
        named = " ".join(word for word in tokens(phrase.lower()) if word not in ("a", "an", "the"))
        known = next((form for form in forms_of(named) if form in self._phrases), None)
        if known is None:
            raise UserError(f"The segmenter does not know “{phrase[:80]}”. It knows: {', '.join(self._phrases)}.")
        words = [self._words.index(word) for word in self._phrases[known]]
        shares = self._shares(image)
        share = shares[words].sum(0)
        mask = share > self._section.threshold
        single = [at for at in words if self._words[at] in self._single]
        if shares[single][:, mask].sum() > 0.5 * share[mask].sum():
            return _pieces(mask, share)
        return _sorted([(mask, float(share[mask].mean()))] if mask.mean() >= _SMALLEST else [])

    def at(self, image: Image.Image, points: Points) -> Mask | None:
        """Return areas at wanted points minus areas at unwanted points. An area is connected and has one class."""
        from scipy.ndimage import label

        words = self._shares(image).argmax(0)
        mask = np.zeros(words.shape, bool)
        for inside in (True, False):
            for x, y in ((x, y) for x, y, is_wanted in points if is_wanted == inside):
                numbers, _ = label(words == words[y, x], np.ones((3, 3)))
                mask[numbers == numbers[y, x]] = inside
        return mask

    def _shares(self, image: Image.Image) -> Shares:
        """Return the probability of each word at each pixel: (words, height, width). They add up to 1."""
        import torch

        with self._lock:
            if (sha := image_sha(image)) != self._last[0]:
                small = np.asarray(image.resize((128, 128), Image.Resampling.BILINEAR, reducing_gap=3), np.float32)
                pixels = torch.from_numpy(small).permute(2, 0, 1)[None] / 127.5 - 1
                with torch.inference_mode():
                    shares = self._net(pixels.to(pick_device())).softmax(1)
                self._last = sha, _resized(shares, image.size)
            return self._last[1]


class Remembering:
    """A segmenter that caches its results, since the same backgrounds are used behind many subjects."""

    def __init__(self, segmenter: Segmenter) -> None:
        self.name, self.at, self._segmenter = segmenter.name, segmenter.at, segmenter
        self._stored = Latest[bytes](_REMEMBERED)

    def find(self, image: Image.Image, phrase: str) -> list[Found]:
        def packed() -> bytes:
            return zlib.compress(pickle.dumps(self._segmenter.find(image, phrase)), 1)  # masks become some kB

        found: list[Found] = pickle.loads(zlib.decompress(self._stored.once((image_sha(image), phrase), packed)))
        return found


def _resized(shares: Any, size: tuple[int, int]) -> Shares:
    """Return word probabilities (1, words, h, w) resized to an image of `size`: (words, height, width)."""
    import torch

    if shares.shape[-2:] != size[::-1]:
        shares = torch.nn.functional.interpolate(shares, size=size[::-1], mode="bilinear", align_corners=False)
    return np.asarray(shares[0].float().cpu(), np.float32)


def _pieces(mask: Mask, shares: Shares) -> list[Found]:
    """Return each connected piece of a mask, with its mean probability as its score."""
    from scipy.ndimage import label

    numbers, count = label(mask, np.ones((3, 3)))
    pieces = [numbers == number for number in range(1, count + 1)]
    return _sorted((piece, float(shares[piece].mean())) for piece in pieces if piece.mean() >= _SMALLEST)


def _sorted(things: Iterable[tuple[Mask, float]], sure: bool = True) -> list[Found]:
    """Return a `Found` for each non-empty mask and its score, in descending order of score."""
    found = [Found(mask, score, sure) for mask, score in things if mask.any()]
    return sorted(found, key=lambda thing: -thing.score)
