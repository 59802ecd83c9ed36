"""Checks of generated images: they notice things that move, vanish or change, and say so in a sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from core.masks import UNLABELLED, NamedMask
from core.settings import ConditioningSettings
from core.thresholds import Band
from core.types import Check, CounterfactualCaption, Edit, Task
from demo.render import render
from demo.scene import SEMANTIC_CLASSES, random_scene
from pipeline.checks.images import (
    DIRECTION,
    EDGES_KEPT,
    FORMS_KEPT,
    edge_tolerance,
    edges_kept,
    forms_kept,
    image_checks,
    texts_compared,
)
from pipeline.conditioning import condition

SETTINGS = ConditioningSettings(median=5)
BIRD = Task("classification", label="bird")
SNOW = CounterfactualCaption("A bird in snowy weather.", ())
SUN = "A bird in sunny weather."


class Placed:
    """Embedder that places texts as the test says, and images by brightness. Positions are angles from 0 to 1."""

    name = "placed"

    def __init__(self, texts: Mapping[str, float]) -> None:
        self._texts = texts
        self.bands: dict[str, Band] = {}

    def image(self, image: Image.Image) -> Sequence[float]:
        return _at(float(np.asarray(image).mean()) / 255)

    def text(self, text: str) -> Sequence[float]:
        return _at(next(angle for word, angle in self._texts.items() if word in text))


def _at(angle: float) -> tuple[float, float]:
    return math.cos(angle), math.sin(angle)


def grey(value: int) -> Image.Image:
    return Image.new("RGB", (32, 32), (value,) * 3)


def found(
    generated: Image.Image, embedder: Placed, caption: str = SUN, task: Task = BIRD, labels: Sequence[str] = ()
) -> dict[str, Check]:
    checks = image_checks(grey(0), generated, grey(0), caption, SNOW, task, embedder, labels)
    return {check.name: check for check in checks}


def test_edges_of_the_same_scene_under_another_look_are_kept() -> None:
    scene = random_scene(5_000_001, "road")
    source, snowy = (Image.fromarray(render(look)[0]) for look in (scene, scene.with_look(weather="snowy")))
    control = condition(source, SETTINGS)
    kept = edges_kept(snowy, control, SETTINGS)
    other = edges_kept(Image.fromarray(render(random_scene(77))[0]), control, SETTINGS)
    assert kept.passed and kept.value is not None and kept.value > 0.8 and not kept.note
    assert not other.passed and other.value is not None and other.value < EDGES_KEPT and "outlines" in other.note
    assert edges_kept(source, control, SETTINGS).value == 1.0


def test_what_has_melted_has_outlines_that_run_elsewhere() -> None:
    """A town keeps its outlines under another look, but not when seen through wavy glass."""
    scene = random_scene(107, "road").with_look(weather="sunny", time="day")
    scene = replace(scene, background="buildings")
    source, mask = render(scene)
    named = NamedMask(Image.fromarray(mask), dict(enumerate(SEMANTIC_CLASSES)))
    at_sunset = render(scene.with_look(time="sunset"))[0]
    rows, columns = np.mgrid[0:128, 0:128]
    wavy = at_sunset[
        np.clip(rows + np.round(3 * np.sin(columns / 3)), 0, 127).astype(int),
        np.clip(columns + np.round(3 * np.sin(rows / 3)), 0, 127).astype(int),
    ]
    images = [Image.fromarray(pixels) for pixels in (source, at_sunset, wavy)]
    kept, melted = (forms_kept(images[0], image, named) for image in images[1:])
    assert kept is not None and kept.passed and kept.value is not None and kept.value > 0.9
    assert melted is not None and not melted.passed and melted.value is not None and melted.value < 0.65
    assert "melted" in melted.note
    big, small = (forms_kept(images[0].resize(size), images[2], named) for size in ((512, 512), (130, 130)))
    assert big is not None and small is not None and big.value == pytest.approx(small.value, abs=0.1)
    assert forms_kept(images[0], images[1], NamedMask(Image.new("L", (128, 128), UNLABELLED))) is None
    street = Task("segmentation", protected=("road",))
    for task, given, wanted in ((street, named, True), (street, None, False), (BIRD, named, False)):
        checks = image_checks(images[0], images[2], images[0], SUN, SNOW, task, None, mask=given)
        assert (FORMS_KEPT in [check.name for check in checks]) is wanted


def test_a_line_may_move_by_the_tolerance_and_no_further() -> None:
    def line(at: int) -> Image.Image:
        pixels = np.zeros((128, 128, 3), np.uint8)
        pixels[:, at:] = 255
        return Image.fromarray(pixels)

    plain = ConditioningSettings(median=0, stretch=False)
    control = condition(line(60), plain)
    assert edges_kept(line(61), control, plain).value == 1.0
    assert edges_kept(line(66), control, plain).value == 0.0
    assert [edge_tolerance((side, side)) for side in (64, 128, 512, 4096)] == [1, 1, 4, 4]


def test_an_image_without_edges_to_keep_cannot_be_told() -> None:
    assert edges_kept(grey(9), grey(0), SETTINGS).outcome == "cannot tell"


def test_between_its_lines_a_check_cannot_tell() -> None:
    band = Band(failed_below=0.2, passed_from=0.6)
    found = [band.judge("x", value, "Bad.") for value in (0.1, 0.2, 0.59, 0.6)]
    assert [check.outcome for check in found] == ["failed", "cannot tell", "cannot tell", "passed"]
    assert [check.threshold for check in found] == [0.6] * 4 and "0.20" in found[1].note and found[0].note == "Bad."


def test_the_bands_of_a_profile_decide() -> None:
    embedder = Placed({"snowy": 1.0, "sunny": 0.0})
    assert found(grey(200), embedder)["edit shows"].passed
    embedder.bands = {"edit shows": Band(failed_below=0.99, passed_from=1.5)}
    assert found(grey(200), embedder)["edit shows"].passed is False


def test_an_image_that_fits_the_source_caption_better_shows_no_edit() -> None:
    """A step away from the source is not enough: the image must be nearer to the edited caption than to the
    source's.
    """
    embedder = Placed({"snowy": 1.0, "sunny": 0.0})
    assert found(grey(60), embedder)["edit shows"].outcome == "failed"


def test_an_edit_in_the_right_direction_passes_and_the_other_way_does_not() -> None:
    embedder = Placed({"snowy": 1.0, "sunny": 0.0})
    right = found(grey(200), embedder)
    assert right["edit shows"].passed and right["edit direction"].passed and right["fits its caption"].passed
    assert right["edit direction"].value is not None and right["edit direction"].value > 0.9
    wrong = found(grey(0), embedder)
    assert not wrong["edit shows"].passed and "may not show" in wrong["edit shows"].note
    assert not wrong["edit direction"].passed and "did not change the way" in wrong["edit direction"].note
    assert wrong["edit direction"].value == 0.0 < DIRECTION, "nothing changed, so there is no direction"


def test_another_picture_is_unlike_its_source() -> None:
    embedder = Placed({"snowy": 1.0, "sunny": 0.0})
    assert found(grey(100), embedder)["like the source"].passed
    far = found(grey(255), embedder)["like the source"]
    assert not far.passed and "unlike its source" in far.note


def test_the_label_must_be_the_likeliest_of_all() -> None:
    embedder = Placed({"bird": 0.4, "boat": 0.9, "snowy": 0.5, "sunny": 0.0})
    kept = found(grey(100), embedder, labels=("bird", "boat"))["label seen"]
    assert kept.passed and kept.value is not None and kept.value > 0.1
    odd = Placed({"bird": 0.9, "boat": 0.1, "snowy": 0.5, "sunny": 0.0})
    unseen = found(grey(240), odd, labels=("bird", "boat"))["label seen"]
    assert unseen.passed is None and "in the source either" in unseen.note
    lost = found(grey(240), embedder, labels=("bird", "boat"))["label seen"]
    assert not lost.passed and lost.note == "The image looks more like “boat” than like its label “bird”."


@pytest.mark.parametrize(
    ("caption", "task", "labels", "missing"),
    [
        ("", BIRD, ("boat",), "edit direction"),
        (SUN, BIRD, (), "label seen"),
        (SUN, BIRD, ("bird",), "label seen"),
        (SUN, Task("segmentation", protected=("road",)), ("boat",), "label seen"),
    ],
)
def test_what_cannot_be_checked_is_left_out(caption: str, task: Task, labels: Sequence[str], missing: str) -> None:
    embedder = Placed({"snowy": 0.5, "sunny": 0.0, "bird": 0.4, "boat": 0.9})
    assert missing not in found(grey(100), embedder, caption, task, labels)


def test_without_an_embedder_only_edges_are_checked() -> None:
    checks = image_checks(grey(0), grey(0), grey(0), SUN, SNOW, BIRD, None)
    assert [check.name for check in checks] == ["edges kept"]


def test_edges_of_an_edited_image_have_to_be_where_chance_would_not_find_them() -> None:
    """An image full of edges has edges where any source has them."""
    scene = Image.fromarray(render(random_scene(3, "road"), 256)[0])
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (256, 256, 3), np.uint8))
    moved = Image.fromarray(np.roll(np.asarray(scene), 16, axis=1))
    darker = scene.point(lambda value: value // 3 + 20)
    told: dict[str, list[bool | None]] = {}
    for image in (scene, darker, noise, moved):
        for control in (None, condition(scene, ConditioningSettings())):
            (check,) = image_checks(scene, image, control, SUN, SNOW, BIRD, None)
            told.setdefault(check.name, []).append(check.passed)
            assert check.passed or check.note
    assert told == {"edges in place": [True, True, False, False], "edges kept": [True, True, True, False]}


@pytest.mark.parametrize("task", [BIRD, Task("classification", label="gnu"), Task("segmentation", protected=("road",))])
@pytest.mark.parametrize("labels", [(), ("Bird", "boat", "house", "boat")])
@pytest.mark.parametrize("caption", ["", SUN, "A blue bird at night."])
def test_it_is_known_beforehand_which_texts_are_compared(caption: str, labels: Sequence[str], task: Task) -> None:
    class Asked(Placed):
        def text(self, text: str) -> Sequence[float]:
            texts.append(text)
            return _at(0.5)

    edits = (Edit("red", "blue", "attribute"), Edit("by day", "at night", "time of day"))
    for counterfactual in (SNOW, CounterfactualCaption("A blue bird at night.", edits)):
        texts = list[str]()
        image_checks(grey(9), grey(90), None, caption, counterfactual, task, Asked({}), labels)
        assert set(texts) == set(texts_compared(caption, counterfactual, task, labels))
