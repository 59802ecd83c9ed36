"""Interface of every model under test: it takes images and returns class probabilities or class maps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from PIL import Image

from core.errors import UserError, out_of_memory
from core.model_identity import ModelIdentity
from core.predictions import Doubt, map_size
from core.types import TaskKind
from evaluation.adapters.network import Network, logits_of, values_of
from evaluation.ranking import deep_gini, entropy


@dataclass(frozen=True, eq=False)
class Output:
    """A model's answers to some images, in the order of the images."""

    probabilities: np.ndarray | None = None
    """Class probabilities, (images, classes), float32. None for segmentation."""
    maps: tuple[Image.Image, ...] = ()
    """For segmentation, a class map of each input image: a picture of class numbers (mode L, size `map_size`)."""
    doubts: tuple[Doubt, ...] = ()
    """Uncertainty of each class map; () for a model without probabilities."""


DOUBT_SIDE = 64
"""Side of the largest grid of pixels at which a segmenter's uncertainty is measured. A grid suffices, as neighbouring
pixels are nearly equally uncertain."""

NO_NUMBER = (
    "The model under test answers with NaN or infinite numbers. Its weights are damaged, or its mean and std are "
    "not those of its training: correct them."
)


class Adapter(Protocol):
    """A loaded model under test, with one interface for all libraries and servers."""

    kind: TaskKind
    identity: ModelIdentity
    at_once: int
    """Number of images to pass in one call. The caller passes fewer if memory runs out."""

    def prepare(self, image: Image.Image) -> Any:
        """Return the model's input for an RGB image. May be called from several threads."""

    def answer(self, prepared: Sequence[Any], sizes: Sequence[tuple[int, int]]) -> Output:
        """Return the model's answers to prepared images. `sizes` are the original (width, height) of each. The other
        images of the call do not change an answer. Raises UserError, or an out-of-memory error (see `out_of_memory`).
        """


class LocalAdapter:
    """Base class of the adapters whose models run in this process."""

    kind: TaskKind
    identity: ModelIdentity

    def answer(self, prepared: Sequence[Any], sizes: Sequence[tuple[int, int]]) -> Output:
        """Run the model once for each group of images of equal size, because images are never padded. See `Adapter`."""
        places: dict[tuple[int, ...], list[int]] = {}
        for place, pixels in enumerate(prepared):
            places.setdefault(tuple(pixels.shape), []).append(place)
        answers: list[Any] = [None] * len(prepared)
        is_classifier = self.kind == "classification"
        for members in places.values():
            logits = self._logits([prepared[place] for place in members])
            self._check(logits, len(members))
            rows = logits.softmax(1).cpu().numpy() if is_classifier else logits
            for place, row in zip(members, rows, strict=True):
                answers[place] = row if is_classifier else (class_map(row[None], sizes[place]), doubt(row))
        if is_classifier:
            return Output(np.stack(answers).astype(np.float32))
        maps, doubts = zip(*answers, strict=True)
        return Output(maps=maps, doubts=doubts)

    def _logits(self, pixels: Sequence[Any]) -> Any:
        """Return logits as a torch tensor, (images, classes) or (images, classes, h, w). All images have one size."""
        raise NotImplementedError

    def _check(self, logits: Any, count: int) -> None:
        shape, rank = tuple(logits.shape), 2 if self.kind == "classification" else 4
        if len(shape) != rank or shape[:2] != (count, len(self.identity.classes)):
            raise UserError(
                f"For {count} images, the model under test returns an array of shape {shape}, which does not fit its "
                f"{len(self.identity.classes)} classes: correct the list of classes, or the model."
            )
        if not bool(logits.isfinite().all()):
            raise UserError(NO_NUMBER)


class TorchAdapter(LocalAdapter):
    """Runs a torch network with 32-bit numbers, on the GPU if there is one."""

    def __init__(self, network: Network) -> None:
        """Raises UserError if the network cannot process images of the prepared size."""
        import torch

        self.kind, self.prepare = network.identity.kind, network.prepare
        prepared = network.identity.preprocessing
        values = values_of(network.identity.name, self.prepare, prepared.mean)
        known = replace(prepared, assumed=replace(prepared.assumed, values=values))
        self.identity = replace(network.identity, preprocessing=known)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self.net = network.net.to(self._device).eval()
        self.at_once = images_at_once(self.kind, self._device == "cuda")
        if prepared.size is not None:
            self._try(prepared.size)

    def _try(self, size: tuple[int, int]) -> None:
        """Run the network on a black picture of this size. Raises UserError if its output does not fit the classes."""
        try:
            output = self._logits([self.prepare(Image.new("RGB", size))])
        except Exception as error:
            if not out_of_memory(error):  # reported later, with the images to predict
                raise
        else:
            self._check(output, 1)

    def _logits(self, pixels: Sequence[Any]) -> Any:
        import torch

        try:
            with torch.inference_mode():
                found = self.net(torch.stack(list(pixels)).to(self._device))
        except Exception as error:  # each network has its own error for a wrong size
            if out_of_memory(error):
                raise
            why = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
            height, width = pixels[0].shape[-2:]
            raise UserError(
                f"{self.identity.name} cannot take images of {width} × {height} pixels, the size to which they are "
                f"prepared: {why}. Correct the size; a model of transformers has it in its preprocessor_config.json.",
                field="size",
            ) from error
        return logits_of(found).float()


def images_at_once(kind: TaskKind, gpu: bool) -> int:
    """Return the number of images for one call of a model, on the GPU or on the CPU."""
    if gpu:
        return 128 if kind == "classification" else 16
    return 32 if kind == "classification" else 4


def class_map(logits: Any, size: tuple[int, int]) -> Image.Image:
    """Return a class map (mode L) from logits (1, classes, h, w). The map fits an image of `size` (see `map_size`)."""
    import torch

    width, height = map_size(size)
    whole = torch.nn.functional.interpolate(logits, size=(height, width), mode="bilinear", align_corners=False)
    return Image.fromarray(whole[0].argmax(0).to(torch.uint8).cpu().numpy())


def doubt(logits: Any) -> Doubt:
    """Return a segmenter's uncertainty about an image, from its logits (classes, h, w)."""
    down, across = (math.ceil(side / DOUBT_SIDE) for side in logits.shape[1:])
    some = logits[:, ::down, ::across].flatten(1).T.softmax(1).cpu().numpy()
    # Rounding can make the probabilities add up to a little more than 1, and their Gini index negative.
    return Doubt(float(entropy(some).mean()), max(0.0, float(deep_gini(some).mean())))
