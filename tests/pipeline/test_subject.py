"""The stage that finds the subject: by the label, in a box, at points, or by cutting it out of its surroundings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from core.class_tables import superclass_of
from core.errors import UserError
from core.regions import Region
from core.settings import SubjectSettings
from core.types import StageValue, Task
from pipeline.cutting import cut_out
from pipeline.seams import Found, Points
from pipeline.stages.base import StageInputs
from pipeline.stages.subject import SUBJECT, phrases_of, run
from tests.support.scripted import ScriptedSegmenter

SIZE = (120, 80)
BIRD = Task("classification", label="bird")


def picture(*discs: tuple[int, int]) -> Image.Image:
    """Return a green picture with red discs of 20 pixels at these positions."""
    image = Image.new("RGB", SIZE, (40, 130, 50))
    for x, y in discs:
        ImageDraw.Draw(image).ellipse((x - 10, y - 10, x + 9, y + 9), (200, 40, 40))
    return image


def mask_of(value: StageValue[Region], size: tuple[int, int] = SIZE) -> NDArray[np.bool_]:
    mask = value.value.mask(size)
    assert mask is not None
    return np.asarray(mask) > 0


def found(
    image: Image.Image, settings: SubjectSettings | None = None, segmenter: Any = None, task: Task = BIRD
) -> StageValue[Region]:
    models: Any = SimpleNamespace(segmenter=segmenter, segmenter_name=lambda: segmenter.name if segmenter else "")
    return run(StageInputs(image, task, {}, settings or SubjectSettings(), models, None, 0))


class RedThings:
    """Segmenter that finds each red disc for any word, but knows no unicorn."""

    name = "red things"

    def __init__(self) -> None:
        self.asked = list[tuple[tuple[int, int], str]]()

    def find(self, image: Image.Image, phrase: str) -> list[Found]:
        from scipy.ndimage import label

        self.asked.append((image.size, phrase))
        if phrase == "unicorn":
            raise UserError("The segmenter does not know “unicorn”.")
        numbers, count = label(np.asarray(image)[..., 0] > 150)
        return [Found(numbers == number, 0.9) for number in range(1, count + 1)]

    def at(self, image: Image.Image, points: Points) -> NDArray[np.bool_] | None:
        return None


def test_the_label_is_looked_for_or_what_it_is_a_kind_of() -> None:
    segmenter = RedThings()
    ouzel = Task("classification", label="water ouzel")
    value = found(picture((40, 40)), segmenter=segmenter, task=ouzel)
    assert segmenter.asked == [(SIZE, "bird")] and value.trace.model == "red things"
    mask = mask_of(value)
    assert mask[40, 40] and not mask[40, 60] and 0.02 < mask.mean() < 0.04
    assert phrases_of(ouzel, SubjectSettings(superclass=False)) == ("water ouzel",)
    assert phrases_of(ouzel, SubjectSettings(phrase=" dipper ")) == ("dipper",)
    assert phrases_of(Task("segmentation", protected=("car", "unicorn")), SubjectSettings()) == ("car", "unicorn")
    names = ("box turtle", "garter snake", "ptarmigan", "tabby", "flower")
    assert [superclass_of(name) for name in names] == ["turtle", "snake", "bird", "cat", "flower"]


def test_of_several_things_the_largest_or_all_are_taken_and_it_is_told() -> None:
    image = picture((20, 40), (90, 40), (94, 44))
    largest = found(image, segmenter=RedThings())
    assert mask_of(largest)[40, 90] and not mask_of(largest)[40, 20]
    assert largest.trace.notes == ("2 things fit “bird”: the largest was taken.",)
    both = found(image, SubjectSettings(several="all"), RedThings())
    assert mask_of(both)[40, 90] and mask_of(both)[40, 20] and "all of them" in both.trace.notes[0]


def test_within_a_box_only_its_surroundings_are_looked_at() -> None:
    segmenter = RedThings()
    value = found(picture((20, 40), (90, 40)), SubjectSettings(box="75, 25, 105, 55"), segmenter)
    assert segmenter.asked == [((36, 36), "bird")]
    assert mask_of(value)[40, 90] and not mask_of(value)[40, 20]


def test_without_a_model_the_subject_is_cut_out_of_a_box_or_around_points() -> None:
    image = picture((30, 40), (90, 40))
    truth = np.asarray(picture((30, 40)))[..., 0] > 150
    for settings in (SubjectSettings(box="15 25 45 55"), SubjectSettings(points="30 40, 26 36, -90 40")):
        value = found(image, settings)
        mask = mask_of(value)
        assert value.trace.model == "GrabCut" and (mask & truth).sum() > 0.95 * (mask | truth).sum()
    by_model = found(image, SubjectSettings(points="30 40"), RedThings())
    assert by_model.trace.model == "GrabCut", "a model that takes no points"
    unknown = found(image, SubjectSettings(phrase="unicorn", box="15 25 45 55"), RedThings())
    assert unknown.trace.model == "GrabCut" and mask_of(unknown)[40, 30]
    assert (cut_out(image, (15, 25, 45, 55)) == cut_out(image, (15, 25, 45, 55))).all()


@pytest.mark.parametrize(
    ("image", "settings", "segmenter", "reason"),
    [
        (picture(), None, RedThings(), "No “bird” was found: try another word, or paint the subject yourself."),
        (picture(), SubjectSettings(phrase="ghost"), ScriptedSegmenter(), "No “ghost” was found"),
        (picture(), SubjectSettings(phrase="unicorn"), ScriptedSegmenter(), "The segmenter does not know “unicorn”"),
        (Image.new("RGB", SIZE, (200, 0, 0)), None, RedThings(), "The subject fills 100 % of the picture"),
        (
            picture(),
            None,
            None,
            "This profile has no model that finds things by a word. No subject is marked: paint it",
        ),
        (picture(), SubjectSettings(box="90 20 130 60"), None, "The box 90 20 130 60 lies outside of the picture"),
        (picture(), SubjectSettings(points="5 5, 5 80"), None, "The point 5 80 lies outside of the picture, which has"),
    ],
)
def test_what_cannot_be_found_is_told_in_one_sentence(
    image: Image.Image, settings: SubjectSettings | None, segmenter: Any, reason: str
) -> None:
    with pytest.raises(UserError) as error:
        found(image, settings, segmenter)
    assert str(error.value).startswith(reason)


@pytest.mark.parametrize("wrong", [{"box": "1 2 3"}, {"box": "9 2 3 8"}, {"box": "a b c d"}, {"points": "4"}])
def test_a_box_and_points_are_numbers(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"four whole numbers|is no pixel"):
        SubjectSettings.model_validate(wrong)


def test_a_summary_says_how_much_is_the_subject() -> None:
    value = found(picture((40, 40)), segmenter=RedThings())
    assert SUBJECT.summary(value.value) == "3.2 % of the picture" and SUBJECT.summary(Region()) == "nothing yet"
    assert value.value.inverse().inverse() == value.value and Region().inverse() == Region()
