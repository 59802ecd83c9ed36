"""An embedder: CLIP, which places images and texts in one space."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from pipeline.bands import Band
from pipeline.images import image_sha
from pipeline.model_sections import ClipEmbedder
from pipeline.models.captioner import LOAD_ERRORS
from pipeline.models.weights import loading, locate, pick_device, pick_dtype, unreadable

KEPT = 1000
"""Vectors that are remembered: the checks of each image ask for its source, and for the same words, again."""


class Clip:
    """A CLIP of transformers. One call at a time."""

    def __init__(self, section: ClipEmbedder, bands: Mapping[str, Band] | None = None) -> None:
        """`bands` are the lines of the checks that were set with this model."""
        from transformers import CLIPModel, CLIPProcessor

        folder = locate("embedder", section)
        self.name, self.bands = section.title, dict(bands or {})
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], list[float]] = OrderedDict()
        self._device = pick_device()
        self._dtype = pick_dtype(section.dtype, self._device)
        try:
            with loading():
                self._processor: Any = CLIPProcessor.from_pretrained(folder, local_files_only=True)
                model = CLIPModel.from_pretrained(
                    folder, dtype=self._dtype, device_map=self._device, local_files_only=True
                )
        except LOAD_ERRORS as error:
            raise unreadable("embedder", section, error) from error
        self._model: Any = model.to(self._device).eval()

    def image(self, image: Image.Image) -> list[float]:
        """The unit vector of an RGB image."""
        return self.images([image])[0]

    def images(self, images: Sequence[Image.Image]) -> list[list[float]]:
        """The unit vectors of RGB images, read at once."""

        def embed(places: Sequence[int]) -> Any:
            wanted = [images[place] for place in places]
            pixels = self._processor.image_processor(images=wanted, return_tensors="pt").pixel_values
            return self._model.get_image_features(pixel_values=pixels.to(self._device, self._dtype))

        return self._remembered([("image", image_sha(image)) for image in images], embed)

    def text(self, text: str) -> list[float]:
        """The unit vector of a text, or of as much of its beginning as CLIP reads (77 tokens as a rule)."""

        def embed(_places: Sequence[int]) -> Any:
            encoded = self._processor.tokenizer(text, truncation=True, return_tensors="pt").to(self._device)
            return self._model.get_text_features(**encoded)

        return self._remembered([("text", text)], embed)[0]

    def _remembered(self, keys: Sequence[tuple[str, str]], embed: Callable[[Sequence[int]], Any]) -> list[list[float]]:
        """The vectors of these, of which `embed` gives the features of those that are not known, by their places."""
        import torch

        with self._lock:
            new = {key: place for place, key in enumerate(keys) if key not in self._known}
            if new:
                with torch.inference_mode():
                    self._known.update(zip(new, _unit(embed(list(new.values()))), strict=True))
            for key in keys:
                self._known.move_to_end(key)
            found = [self._known[key] for key in keys]
            while len(self._known) > KEPT:
                self._known.popitem(last=False)
            return found


def _unit(features: Any) -> list[list[float]]:
    """(images, n) features, bare or in a model's output, as vectors of length 1."""
    vectors = getattr(features, "pooler_output", features).float()
    found: list[list[float]] = (vectors / vectors.norm(dim=1, keepdim=True)).tolist()
    return found
