"""Test cases for tests. The fields of the lineage that a test does not name are filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from PIL import Image

from core.lineage import Lineage, TestCase, UnreadSettings
from core.types import CounterfactualCaption
from pipeline.methods.controlnet import CONTROL_IMAGE

LINEAGE = Lineage(
    counterfactual=CounterfactualCaption("x", ()),
    seed=1,
    method="m",
    model="m",
    prompt="p",
    negative_prompt="",
    settings=UnreadSettings(),
    seconds=0.1,
)


def made_case(image: Image.Image, control: Image.Image | None = None, **lineage: Any) -> TestCase:
    """Return a test case of an unknown method, with changes to its lineage. Without `control` the image is its own
    control image.
    """
    return TestCase(image, replace(LINEAGE, **lineage), {CONTROL_IMAGE: image if control is None else control})
