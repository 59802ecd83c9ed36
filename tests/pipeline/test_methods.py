"""The ControlNet method: the requests to the generator, which returns its control image here, and the test cases."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import Cancelled, UserError
from core.images import fit
from core.lineage import TestCase, UnreadSettings, read_settings
from core.masks import NamedMask, in_mask
from core.settings import ConditioningSettings, ControlKind, GenerationSettings, Settings
from core.types import CounterfactualCaption, Edit, Task
from demo.render import render
from demo.scene import random_scene
from pipeline.checks.images import EDGES_KEPT
from pipeline.methods import method_of, read_lineage
from pipeline.methods.base import Preparations
from pipeline.methods.controlnet import (
    CONTROL_IMAGE,
    CONTROLNET,
    ControlNetMethod,
    ControlNetPrepared,
    ControlNetSettings,
)
from pipeline.recipes import DILLEMA
from pipeline.seams import OnStep, Source
from tests.support.scripted import OneByOne, ScriptedModels, models_of, one_case

SETTINGS = GenerationSettings(short_side=128, steps=3, negative_prompt="blurred")
SNOW = CounterfactualCaption("A red bird in snowy weather.", (Edit("sunny", "snowy", "weather"),))
BIRD = Task("classification", label="bird")


class Echo(OneByOne):
    """Generator that returns the same picture for every request."""

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
    """Embedder that finds snow in bright images."""

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
    method = CONTROLNET.with_models(models_of(generator, embedder), DILLEMA.prompts("demo"))

    def on_step(done: int, total: int) -> None:
        steps.append((done, total))

    prepared = method.prepare(Source(source(**size), task), ControlNetSettings(generation=SETTINGS))
    return one_case(method, prepared, SNOW, 9, on_step), steps


def test_prompt_carries_caption_and_what_is_kept() -> None:
    generator = Echo()
    case, _ = make(generator)
    assert generator.prompts == [case.lineage.prompt]
    assert SNOW.text in case.lineage.prompt and case.lineage.prompt.count("bird") == 2
    case, _ = make(generator, Task("segmentation", protected=("road", "lane marking")))
    assert "road, lane marking" in case.lineage.prompt, "the demo's model knows them all from its training"


STREET = Task("segmentation", protected=("road", "car", "pedestrian", "traffic light"))


@pytest.mark.parametrize(
    ("task", "classes", "text", "prompt"),
    [
        (BIRD, None, "A house in the snow.", "A photo with bird. A house in the snow."),
        (STREET, None, "Two taxis on a wet street.", "A photo with road, car. Two taxis on a wet street."),
        (STREET, None, "A lake at night.", "A lake at night."),
        # The mask decides on classes that it knows: it knows a pedestrian and shows none.
        (STREET, {0: "sky", 1: "Road", 2: "person"}, "A pedestrian.", "A photo with road. A pedestrian."),
        (STREET, {0: "road", 1: "car"}, "A wide road.", "A photo with road, car. A wide road."),
        # For things that the mask has no class for, the caption decides.
        (STREET, {0: "sky", 1: "road"}, "A stoplight.", "A photo with road, traffic light. A stoplight."),
        (STREET, {0: "pedestrian", 1: "road"}, "A car.", "A photo with road, car, pedestrian. A car."),
        (STREET, {0: "sky", 1: "sea", 2: "road", 3: "car", 4: "pedestrian", 5: "traffic light"}, "A bus.", "A bus."),
    ],
)
def test_only_classes_that_the_picture_holds_reach_the_diffusion_model(
    task: Task, classes: dict[int, str] | None, text: str, prompt: str
) -> None:
    generator, prompts = Echo(), DILLEMA.prompts("paper")
    halves = Image.fromarray(np.repeat(np.array([[0, 1, 255]], np.uint8), 100, axis=0)).resize((150, 100), 0)
    mask = None if classes is None else NamedMask(halves, classes)
    method, asked = CONTROLNET.with_models(models_of(generator), prompts), CounterfactualCaption(text, ())
    prepared = method.prepare(Source(source(), task, mask=mask), ControlNetSettings(generation=SETTINGS))
    case = one_case(method, prepared, asked, 9, lambda _done, _total: None)
    assert generator.prompts == [case.lineage.prompt] == [prompt]
    assert CONTROLNET.prompt(prompts, asked, task, in_mask(mask, task)) == prompt, "what is known before it is drawn"


def test_generator_gets_its_size_and_the_source_gets_its_own_back() -> None:
    generator = Echo()
    case, steps = make(generator)
    assert generator.sizes == [(192, 128)]
    assert case.image.size == case.artifacts[CONTROL_IMAGE].size == (150, 100)
    assert set(np.unique(np.asarray(case.artifacts[CONTROL_IMAGE]))) == {0, 255}
    assert steps == [(1, 3), (2, 3), (3, 3)]


def test_the_record_is_enough_to_make_it_again() -> None:
    made = make(Echo())[0].lineage
    assert (made.seed, made.method, made.model, made.negative_prompt) == (9, "controlnet", "echo", "blurred")
    assert made.settings == ControlNetSettings(conditioning=ConditioningSettings(), generation=SETTINGS)
    assert read_lineage(json.loads(json.dumps(made.plain()))) == made


@pytest.mark.parametrize(
    ("method", "recorded"), [("inversion", {"cross_replace": 0.8}), ("controlnet", {"steps": "many"})]
)
def test_settings_that_are_not_known_here_stay_as_they_were_recorded(method: str, recorded: dict[str, Any]) -> None:
    read = read_settings(method, recorded)
    assert isinstance(read, UnreadSettings)
    assert (read.plain(), read.steps) == (recorded, None)


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


class Painter(Echo):
    """Generator that returns the same picture for every request."""

    def __init__(self, picture: Image.Image) -> None:
        super().__init__()
        self.picture = picture

    def generate(self, *arguments: object) -> Image.Image:  # type: ignore[override]
        return self.picture


@pytest.mark.parametrize("kind", ["canny", "depth"])
@pytest.mark.parametrize("side", [128, 1024])
def test_edges_are_looked_for_at_the_size_at_which_was_drawn(kind: ControlKind, side: int) -> None:
    scenes = [Image.fromarray(render(random_scene(number), side)[0]) for number in (1, 77)]
    drawing = ControlNetSettings(conditioning=ConditioningSettings(kind=kind), generation=SETTINGS)
    kept = []
    for scene in scenes:  # the ideal image, and an image of another scene
        painter = Painter(fit(scene, SETTINGS.short_side))
        detector = ScriptedModels().detector
        method = CONTROLNET.with_models(models_of(painter, detector=detector), DILLEMA.prompts("demo"))
        case = one_case(method, method.prepare(Source(scenes[0], BIRD), drawing), SNOW, 1, lambda _done, _total: None)
        assert case.image.size == (side, side)
        kept.append(case.checks[0].value or 0.0)
    assert kept[0] == 1.0 and kept[1] < EDGES_KEPT


class Counted(ControlNetMethod):
    """Counts how often the method prepares a source."""

    times = 0

    def prepare(self, *arguments: Any) -> ControlNetPrepared:
        self.times += 1
        return super().prepare(*arguments)


def test_a_preparation_serves_as_long_as_the_control_image_would_be_the_same() -> None:
    method, kept = Counted(CONTROLNET, models_of(Echo()), DILLEMA.prompts("demo"), (), None), Preparations()

    def prepared(source: Source, **settings: Any) -> ControlNetPrepared:
        return kept.prepared(CONTROLNET, method, source, ControlNetSettings(**settings))

    bird = Source(source(), BIRD, "A bird.")
    first = prepared(bird, generation=SETTINGS)
    other = prepared(replace(bird, caption="A red bird."), generation=SETTINGS.model_copy(update={"steps": 9}))
    assert method.times == 1 and other.control is first.control
    assert (other.source.caption, other.settings.steps) == ("A red bird.", 9), "what is asked for now counts"
    prepared(bird, generation=SETTINGS, conditioning=ConditioningSettings(coarse=True))
    assert method.times == 1, "Canny knows no coarse lines"

    prepared(bird, generation=SETTINGS, conditioning=ConditioningSettings(low=41))
    prepared(bird, generation=SETTINGS.model_copy(update={"short_side": 64}))
    prepared(replace(bird, image=source(140)), generation=SETTINGS)
    assert method.times == 4

    painted = ConditioningSettings(kind="segmentation")
    for value, classes in ((1, {1: "sky"}), (1, {1: "sky"}), (2, {2: "sky"})):
        mask = NamedMask(Image.new("L", bird.image.size, value), classes)
        prepared(replace(bird, mask=mask), generation=SETTINGS, conditioning=painted)
    assert method.times == 6, "another mask paints another map"


def test_a_control_image_without_edges_is_told_of_and_others_are_not() -> None:
    method = CONTROLNET.with_models(models_of(Echo()), DILLEMA.prompts("demo"))

    def remark(image: Image.Image) -> str:
        return method.prepare(Source(image, BIRD), ControlNetSettings(generation=SETTINGS)).remark

    assert not remark(source())
    assert "edges in only 0 % of its area" in remark(Image.new("RGB", (150, 100), "teal"))


def test_a_stop_ends_the_preparation() -> None:
    stop = threading.Event()
    stop.set()
    method = CONTROLNET.with_models(models_of(Echo()), DILLEMA.prompts("demo"))
    with pytest.raises(Cancelled):
        method.prepare(Source(source(), BIRD), ControlNetSettings(), None, stop)


def test_a_method_that_is_not_known_here_claims_nothing() -> None:
    unknown = method_of("inversion")
    settings = read_settings(unknown.name, {"cross_replace": 0.8})
    assert (unknown.sections, unknown.artifacts, unknown.draws_whole) == ((), (), False)
    assert unknown.effort(settings, (64, 64)) is None and unknown.lacks(settings, masked=False) == ""
    assert unknown.settings_of(Settings()) == UnreadSettings()
    with pytest.raises(UserError, match="inversion"):
        unknown.with_models(ScriptedModels(), DILLEMA.prompts("demo"))


def test_a_preparation_hangs_on_all_of_a_source_where_a_method_says_nothing_else() -> None:
    bird, plain = Source(source(), BIRD, "A bird."), method_of("inversion")
    keys = [
        plain.preparation_key(given, ControlNetSettings())
        for given in (
            bird,
            replace(bird, image=bird.image.copy()),
            replace(bird, caption="A boat."),
            replace(bird, mask=NamedMask(Image.new("L", bird.image.size))),
        )
    ]
    assert keys[0] == keys[1] and len(set(keys)) == 3
