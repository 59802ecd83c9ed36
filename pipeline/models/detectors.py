"""Detectors: the models of controlnet_aux that draw soft edges, line art and depth. One drawing at a time.

They work at sizes of their own (the requested short side, sides rounded to 64), so the output differs a little in size
from the input. The caller resizes it.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
from PIL import Image

from core.errors import UserError
from core.loading import LOADING
from core.model_sections import Weights
from core.settings import ConditioningSettings, ControlKind
from pipeline.models.weights import LOAD_ERRORS, locate, pick_device, unreadable

MULTIPLE = 64


class _Detector:
    """A detector: one class of controlnet_aux with its weights. `name` is the weights' title."""

    drawn_by: str
    """Name of the class in controlnet_aux."""
    files: tuple[str, ...]
    """Files that the folder of weights must have."""

    def __init__(self, kind: ControlKind, weights: Weights) -> None:
        folder = locate(f"detector of {kind}", weights)
        self.name = weights.title
        self._lock = threading.Lock()
        missing = [file for file in self.files if not (folder / file).is_file()]
        if missing:  # checked here, since the libraries would look for it elsewhere
            raise UserError(
                f"The weights of the detector of {kind} at {weights.title} lack the file {missing[0]}: "
                "get them again, or correct the profile."
            )
        try:
            with LOADING, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its import warns of every package that its other models need
                import controlnet_aux

                self._model: Any = getattr(controlnet_aux, self.drawn_by).from_pretrained(str(folder)).to(pick_device())
        except (*LOAD_ERRORS, ImportError) as error:
            raise unreadable(f"detector of {kind}", weights, error) from error

    def draw(self, image: Image.Image, settings: ConditioningSettings) -> Image.Image:
        """Return an RGB image, its sides rounded to multiples of 64."""
        side = max(MULTIPLE, round(min(image.size) / MULTIPLE) * MULTIPLE)
        with self._lock:
            drawn: Image.Image = self._draw(image, settings, {"detect_resolution": side, "image_resolution": side})
        return drawn.convert("RGB")

    def _draw(self, image: Image.Image, settings: ConditioningSettings, size: dict[str, int]) -> Image.Image:
        drawn: Image.Image = self._model(image, output_type="pil", **size)
        return drawn


class SoftEdges(_Detector):
    """Soft edges by HED, a network that finds edges at five scales."""

    drawn_by = "HEDdetector"
    files = ("ControlNetHED.pth",)


class LineArt(_Detector):
    """Line art: lines as an illustrator would draw them, fine or coarse."""

    drawn_by = "LineartDetector"
    files = ("sk_model.pth", "sk_model2.pth")

    def _draw(self, image: Image.Image, settings: ConditioningSettings, size: dict[str, int]) -> Image.Image:
        drawn: Image.Image = self._model(image, coarse=settings.coarse, output_type="pil", **size)
        return drawn


class Depth(_Detector):
    """Depth by MiDaS: near is bright, far is dark."""

    drawn_by = "MidasDetector"
    files = ("dpt_hybrid-midas-501f0c75.pt",)

    def _draw(self, image: Image.Image, settings: ConditioningSettings, size: dict[str, int]) -> Image.Image:
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a picture without any depth divides zero by zero
            return super()._draw(image, settings, size)


DETECTORS: dict[ControlKind, type[_Detector]] = {"soft edges": SoftEdges, "line art": LineArt, "depth": Depth}
"""The class for each kind of control image that a model draws."""
