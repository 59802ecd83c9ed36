"""An embedder: CLIP, which maps images and texts to vectors of one space."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from PIL import Image

from core.images import image_sha
from core.latest import Latest
from core.model_sections import ClipEmbedder
from core.thresholds import Band
from pipeline.models.weights import loaded_from, locate, pick_device, pick_dtype

KEPT = 1000
"""Maximum number of cached vectors. The checks of each image need the vectors of its source and its words again."""
SMALL = 20_000_000
"""Number of parameters of the vision part. Models with fewer leave the cores of a CPU partly idle."""
SMALL_ON_CPU, ON_CPU, ON_GPU = (4, 8), (1, 4), (8, 32)
"""Batch sizes (images, texts) for a small model on a CPU, a large model on a CPU, and any model on a GPU. On a CPU,
a small model needs little over twice the time of one item per batch. Image batches do not speed up a large model."""
LENGTHS = 16
"""Texts are padded to the next multiple of this number of tokens."""


class Clip:
    """A CLIP of transformers, one call at a time. The other inputs of a batch do not change a vector. On some
    processors, the place in the batch changes the last bits of a vector. The batch size would change these bits too, so
    all batches are filled up to one size. The padded length of a text depends on that text alone.
    """

    def __init__(self, section: ClipEmbedder, bands: Mapping[str, Band] | None = None) -> None:
        """`bands` has the thresholds that the profile sets for checks with this model, by the checks' names."""
        from transformers import CLIPModel, CLIPProcessor

        folder = locate("embedder", section)
        self.name, self.bands = section.title, dict(bands or {})
        self._lock = threading.Lock()
        self._known = Latest[list[float]](KEPT)
        self._device = pick_device()
        self._dtype = pick_dtype(section.dtype, self._device)
        with loaded_from("embedder", section):
            self._processor: Any = CLIPProcessor.from_pretrained(folder, local_files_only=True)
            model = CLIPModel.from_pretrained(folder, dtype=self._dtype, device_map=self._device, local_files_only=True)
        self._model: Any = model.to(self._device).eval()
        small = sum(weights.numel() for weights in model.vision_model.parameters()) < SMALL
        on_cpu = SMALL_ON_CPU if small else ON_CPU
        self._images_at_once, self._texts_at_once = on_cpu if self._device == "cpu" else ON_GPU
        self._positions: int = model.config.text_config.max_position_embeddings

    def image(self, image: Image.Image) -> list[float]:
        return self.images([image])[0]

    def images(self, images: Sequence[Image.Image]) -> list[list[float]]:
        def embed(places: Sequence[int]) -> list[list[float]]:
            vectors = list[list[float]]()
            for part in _parts(places, self._images_at_once):
                batch = [images[place] for place in _filled(part, self._images_at_once)]
                pixels = self._processor.image_processor(images=batch, return_tensors="pt").pixel_values
                seen = self._model.get_image_features(pixel_values=pixels.to(self._device, self._dtype))
                vectors += _unit(seen)[: len(part)]
            return vectors

        return self._remembered([("image", image_sha(image)) for image in images], embed)

    def text(self, text: str) -> list[float]:
        return self.texts([text])[0]

    def texts(self, texts: Sequence[str]) -> list[list[float]]:
        def embed(places: Sequence[int]) -> list[list[float]]:
            tokenizer, vectors = self._processor.tokenizer, dict[int, list[float]]()
            ids = {at: tokenizer(texts[at], truncation=True).input_ids for at in places}
            lengths = {at: min(-(-len(ids[at]) // LENGTHS) * LENGTHS, self._positions) for at in places}
            for length in sorted(set(lengths.values())):
                for part in _parts([at for at in places if lengths[at] == length], self._texts_at_once):
                    rows = {"input_ids": [ids[at] for at in _filled(part, self._texts_at_once)]}
                    encoded = tokenizer.pad(rows, padding="max_length", max_length=length, return_tensors="pt")
                    read = _unit(self._model.get_text_features(**encoded.to(self._device)))
                    vectors.update(zip(part, read, strict=False))  # without the rows that fill up the batch
            return [vectors[at] for at in places]

        return self._remembered([("text", text) for text in texts], embed)

    def _remembered(
        self, keys: Sequence[tuple[str, str]], embed: Callable[[Sequence[int]], list[list[float]]]
    ) -> list[list[float]]:
        import torch

        with self._lock, torch.inference_mode():
            return self._known.each(keys, embed)


def _parts(places: Sequence[int], size: int) -> list[Sequence[int]]:
    return [places[at : at + size] for at in range(0, len(places), size)]


def _filled(part: Sequence[int], size: int) -> list[int]:
    return [*part, *[part[0]] * (size - len(part))]


def _unit(features: Any) -> list[list[float]]:
    """Return feature vectors (count, n), given as a tensor or in a model's output, scaled to length 1."""
    vectors = getattr(features, "pooler_output", features).float()
    unit: list[list[float]] = (vectors / vectors.norm(dim=1, keepdim=True)).tolist()
    return unit
