"""The ControlNet method: what reaches the generator, which here gives back its control image, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from demo.render import render
from demo.scene import random_scene
from pipeline.methods import ControlNetMethod, plain_settings
from pipeline.prompting import load_prompts
from pipeline.seams import OnStep
from pipeline.settings import ConditioningSettings, ControlKind, GenerationSettings
from pipeline.types import CounterfactualCaption, Edit, Task, TestCase

SETTINGS = GenerationSettings(short_side=128, steps=3, negative_prompt="blurred")
SNOW = CounterfactualCaption("A red bird in snowy weather.", (Edit("sunny", "snowy", "weather"),))
BIRD = Task("classification", label="bird")


class Echo:
    """A generator that gives the control image, inverted, and remembers what it was asked."""

    name = "echo"

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.sizes: list[tuple[int, int]] = []
        self.kinds: list[ControlKind] = []

    def on(self, kind: ControlKind) -> Echo:
        self.kinds.append(kind)
        return self

    def preview(self) -> Image.Image | None:
        return None

    def generate(
        self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
    ) -> Image.Image:
        self.prompts.append(prompt)
        self.sizes.append(control.size)
        for step in range(settings.steps):
            on_step(step + 1, settings.steps)
        return control.point(lambda value: 255 - value)


class Brightness:
    """An embedder for which bright images show snow."""

    name = "brightness"

    def image(self, image: Image.Image) -> Sequence[float]:
        share = float(np.asarray(image).mean()) / 255
        return (share, (1 - share**2) ** 0.5)

    def text(self, text: str) -> Sequence[float]:
        return (1.0, 0.0) if "snowy" in text else (0.0, 1.0)


def source(width: int = 150, height: int = 100) -> Image.Image:
    return Image.fromarray(render(random_scene(3, "object", "bird"), 150)[0]).crop((0, 0, width, height))


def make(
    generator: Echo, task: Task = BIRD, embedder: Brightness | None = None, **size: int
) -> tuple[TestCase, list[tuple[int, int]]]:
    steps: list[tuple[int, int]] = []
    method = ControlNetMethod(generator, embedder, load_prompts("demo"))

    def on_step(done: int, total: int) -> None:
        steps.append((done, total))

    return method.make(source(**size), task, SNOW, ConditioningSettings(), SETTINGS, 9, on_step), steps


def test_prompt_carries_caption_and_what_is_kept() -> None:
    generator = Echo()
    case, _ = make(generator)
    assert generator.prompts == [case.prompt]
    assert SNOW.text in case.prompt and case.prompt.count("bird") == 2
    case, _ = make(generator, Task("segmentation", protected=("road", "lane marking")))
    assert "road, lane marking" in case.prompt


def test_generator_gets_its_size_and_the_source_gets_its_own_back() -> None:
    generator = Echo()
    case, steps = make(generator)
    assert generator.sizes == [(192, 128)]
    assert case.image.size == case.control.size == (150, 100)
    assert set(np.unique(np.asarray(case.control))) == {0, 255}
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_the_record_is_enough_to_make_it_again() -> None:
    case, _ = make(Echo())
    assert (case.seed, case.method, case.model, case.negative_prompt) == (9, "controlnet", "echo", "blurred")
    assert case.settings == plain_settings(ConditioningSettings(), SETTINGS)
    conditioning = ConditioningSettings(**case.settings["conditioning"])
    rest = {key: value for key, value in case.settings.items() if key != "conditioning"}
    assert (conditioning, GenerationSettings(**rest)) == (ConditioningSettings(), SETTINGS)


def test_checks_say_whether_edges_are_kept_and_the_edit_shows() -> None:
    shows, _ = make(Echo(), embedder=Brightness())
    found = {check.name: check for check in shows.checks}
    assert found["edit shows"].passed and found["edit shows"].note == ""
    assert [check.name for check in make(Echo())[0].checks] == ["edges kept"]


def test_check_fails_with_a_sentence_when_the_edit_does_not_show() -> None:
    class Dark(Echo):
        def generate(self, *arguments: object) -> Image.Image:  # type: ignore[override]
            return Image.new("RGB", super().generate(*arguments).size, (9, 9, 9))  # type: ignore[arg-type]

    case, _ = make(Dark(), embedder=Brightness())
    found = {check.name: check for check in case.checks}
    assert not found["edit shows"].passed and "may not show" in found["edit shows"].note
    assert found["edges kept"].value == 0.0 and not found["edges kept"].passed
