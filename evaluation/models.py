"""A model under test: loaded by name or from a file, and asked what it sees in an image. Loads torch at first use."""

from __future__ import annotations

import threading

from PIL import Image

from evaluation.architectures import Network, find_network
from evaluation.types import LARGEST_MAP, TOP, Guess, Prediction, encode_map
from pipeline.settings import UnderTestSettings
from pipeline.types import TaskKind


class ModelUnderTest:
    """One model under test. May be asked from any thread, one at a time."""

    def __init__(self, wanted: UnderTestSettings) -> None:
        """Loads it. Raises UserError when that cannot be."""
        import torch

        self.name = wanted.title
        self._lock = threading.Lock()
        self._network: Network = find_network(wanted)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._network.net.to(self._device).eval()

    @property
    def kind(self) -> TaskKind:
        """What it does."""
        return self._network.kind

    def predict(self, image: Image.Image) -> Prediction:
        """What it sees in an RGB image of any size."""
        import torch

        with self._lock, torch.inference_mode():
            pixels = self._network.prepare(image.convert("RGB"))
            found = self._network.net(pixels[None].to(self._device))
        logits = (found["out"] if isinstance(found, dict) else found).float().cpu()
        if self.kind == "classification":
            return Prediction("classification", self.name, top=self._top(logits[0]))
        return Prediction("segmentation", self.name, classes=self._network.classes, class_map=self._map(logits, image))

    def _top(self, logits: object) -> tuple[Guess, ...]:
        import torch

        assert isinstance(logits, torch.Tensor)
        values, places = logits.softmax(0).topk(min(TOP, len(self._network.classes)))
        return tuple(
            Guess(self._network.classes[int(place)], float(value)) for value, place in zip(values, places, strict=True)
        )

    def _map(self, logits: object, image: Image.Image) -> bytes:
        import torch

        assert isinstance(logits, torch.Tensor)
        scale = min(1.0, LARGEST_MAP / max(image.size))
        width, height = (max(1, round(side * scale)) for side in image.size)
        whole = torch.nn.functional.interpolate(logits, size=(height, width), mode="bilinear", align_corners=False)
        numbers = whole[0].argmax(0).to(torch.uint8).numpy()
        return encode_map(Image.fromarray(numbers))
