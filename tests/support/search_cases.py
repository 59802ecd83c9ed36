"""A batch in which one cell is planted as weak, with stand-ins for the models that draw and write: the model under test
answers with the colour of a picture, and the generator paints another colour for the edit that is planted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from core.settings import CaptionSettings, GenerationSettings
from core.types import Task
from pipeline.seams import OnStep
from tests.support.scripted import NoiseGenerator, ScriptedCaptioner, answer

SOURCES = 24
WEAK = ("red", "weather", "foggy")
"""The only planted cell: red things in fog are painted blue."""


class Looking(ScriptedCaptioner):
    """Says that a red bird sits on a twig, and a blue one on a stone, so that no edit names the colour."""

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        red, _, blue = np.asarray(image, float).mean(axis=(0, 1))
        place = "twig" if red > blue else "stone"
        return f"A bird in sunny weather by day. The bird sits on a {place}. The ground is grassy.", ""


class Painter(NoiseGenerator):
    """Paints the colour of the source, but blue if there is fog."""

    def generate(
        self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
    ) -> Image.Image:
        noisy = super().generate(prompt, control, settings, seed, on_step)
        colour = (230, 30, 30) if "twig" in prompt and "foggy" not in prompt else (30, 30, 230)
        return Image.blend(Image.new("RGB", noisy.size, colour), noisy, 0.1)


def one_edit_each(prompt: str) -> str:
    """Reply like `answer`, with a caption for each single alternative, and with another one if asked for more."""
    if "Keywords: sunny\n" in prompt:
        return "sunny: misty"
    if prompt.rstrip().endswith("Changes:"):
        lines = prompt.rsplit("Alternatives: ", 1)[1].splitlines()[0].split("; ")
        pairs = [line.split(": ") for line in lines]
        return "\n".join(f"{word} -> {one}" for word, options in pairs for one in options.split(", "))
    return answer(prompt)


def coloured(folder: Path) -> None:
    """Write `SOURCES` pictures, red and blue by turns, into class folders."""
    for place in range(SOURCES):
        inside = folder / "test" / ("red", "blue")[place % 2]
        inside.mkdir(parents=True, exist_ok=True)
        picture = np.full((32, 32, 3), 20 + place, np.uint8)
        picture[..., 0 if place % 2 == 0 else 2] = 230
        Image.fromarray(picture).save(inside / f"{place}.png")


def plan_of_colours(folder: Path, captions: int = 20) -> str:
    """Return a plan for such a folder, with a caption for each single edit up to `captions`."""
    return (
        f'name = "Colours"\n[data]\nroot = "{folder}"\nlayout = "imagefolder"\n'
        '[task]\nkind = "classification"\n[make]\nprofile = "demo"\nsettings = { "generation.steps" = 1, '
        f'"counterfactuals.captions" = {captions} }}\n'
    )
