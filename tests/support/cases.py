"""Test cases as a test needs them: what it does not say about the lineage is filled in."""

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
    """A test case of a method that nobody knows, if not said otherwise;
    without a control image the image itself stands for it.
    """
    return TestCase(image, replace(LINEAGE, **lineage), {CONTROL_IMAGE: image if control is None else control})
