"""Depth by MiDaS: the detector of controlnet_aux with the pinned timm, whole, with random weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.settings import ConditioningSettings
from pipeline.conditioning import control_image
from pipeline.models import Models, load_models
from tests.pipeline.test_detectors import photo, with_detector
from tests.support.made_once import MadeOnce
from tests.support.midas import FILE, save_midas

pytestmark = pytest.mark.slow
DEPTH = ConditioningSettings(kind="depth")


@pytest.fixture(scope="module")
def models(made_once: MadeOnce) -> Models:
    return load_models(with_detector(made_once("midas", save_midas), "depth"))


def test_depth_is_drawn_in_the_size_of_the_source(models: Models) -> None:
    shown = control_image(photo(), DEPTH, models.detector)
    assert shown.size == (150, 100) and shown.mode == "RGB"
    pixels = np.asarray(shown)
    assert (pixels == pixels[..., :1]).all(), "it is grey"
    assert pixels.min() < 20 and pixels.max() > 235, "from far to near"
    assert control_image(photo(), DEPTH, models.detector).tobytes() == shown.tobytes()
    assert control_image(photo().rotate(180), DEPTH, models.detector).tobytes() != shown.tobytes()


def test_the_weights_are_those_of_the_file(models: Models) -> None:
    import torch

    detector: Any = models.detector("depth")
    held = torch.load(Path(detector.name) / FILE)
    loaded = detector._model.model.model.state_dict()
    assert loaded.keys() == held.keys() and all(weights.equal(held[name]) for name, weights in loaded.items())


def test_a_picture_without_any_depth_is_drawn_flat(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    detector: Any = models.detector("depth")
    last = detector._model.model.model.scratch.output_conv[4]
    monkeypatch.setattr(last, "weight", torch.nn.Parameter(torch.zeros_like(last.weight)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shown = control_image(Image.new("RGB", (150, 100), "grey"), DEPTH, models.detector)
    assert shown.size == (150, 100) and len(set(shown.getdata())) == 1
