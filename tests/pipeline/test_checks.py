"""Tests for the checks of texts: which texts pass or fail, and the sentence for the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UserError
from core.types import Check, CounterfactualCaption, Edit, EditType, Task, failed
from demo.language import TIME_PHRASES, caption, keywords
from demo.scene import GROUNDS, HILLS, PROTECTED_ROAD_CLASSES, TREES, WALLS, WATERS, Scene, random_scene
from pipeline.checks.contradictions import contradictions, load_rules
from pipeline.checks.texts import (
    alternative_checks,
    caption_checks,
    counterfactual_checks,
    keyword_checks,
    require,
    task_checks,
)

ROAD = Task("segmentation", protected=PROTECTED_ROAD_CLASSES)
BIRD = Task("classification", label="bird")
STREET = (
    "A road with two cars in sunny weather by day. The near car is red and the far car is blue. Trees line the road."
)


def counterfactual(text: str, *edits: tuple[str, str], edit_type: EditType = "attribute") -> CounterfactualCaption:
    return CounterfactualCaption(text, tuple(Edit(keyword, new, edit_type) for keyword, new in edits))


def names(checks: tuple[Check, ...]) -> list[str]:
    return [check.name for check in failed(checks)]


def test_a_good_counterfactual_caption_passes_every_check() -> None:
    new = STREET.replace("sunny", "snowy").replace("red", "yellow")
    checks = counterfactual_checks(STREET, counterfactual(new, ("sunny", "snowy"), ("red", "yellow")), ROAD)
    assert [check.name for check in checks] == [
        "edits made",
        "protected kept",
        "protected named as often",
        "nothing protected added",
        "nothing unasked changed",
        "nothing lost",
        "no repetition",
        "no contradiction",
    ]
    assert all(check.passed and check.note == "" for check in checks)


def test_further_words_may_change_with_the_weather() -> None:
    source = "A red bird in sunny weather by day. The bird sits on a twig. The ground is grassy."
    new = "A red bird in snowy weather by day. The bird sits on a twig. Snow covers the ground."
    edited = counterfactual(new, ("sunny", "snowy"), edit_type="weather")
    assert not failed(counterfactual_checks(source, edited, BIRD))


DOG = "A brown dog runs after a ball. Two people sit on a bench. The grass is green."


@pytest.mark.parametrize(
    ("text", "found", "note"),
    [
        (
            "A brown dog runs after a ball in snowy weather. Two people sit on a bench. Snow covers the grass. "
            + "A dog is seen in the distance. " * 20,
            "no repetition",
            "occurs 20 times",
        ),
        (
            "A brown dog runs in snowy weather. Two people sit on a bench. Snow covers the grass.",
            "nothing lost",
            "“a ball” is no longer named",
        ),
        (
            "A brown dog runs after a ball in snowy weather. Snow covers the grass.",
            "nothing lost",
            "nothing is left of the sentence “Two people sit on a bench.”",
        ),
        (
            "A castle on a hill in snowy weather with a dog and a ball, and people on a bench with grass.",
            "",
            "",
        ),
        (
            "A brown dog and a ball, two people on a bench, grass. An old castle with tall towers stands above a "
            "frozen lake where many skaters turn circles under coloured lanterns in snowy weather.",
            "nothing unasked changed",
            "more than can follow from the edit",
        ),
    ],
)
def test_an_edit_with_consequences_does_not_excuse_everything(text: str, found: str, note: str) -> None:
    edited = counterfactual(text, ("green", "snowy"), edit_type="weather")
    wrong = failed(counterfactual_checks(DOG, edited, Task("classification", label="dog")))
    assert [check.name for check in wrong if check.name == found] == ([found] if found else [])
    assert note in " ".join(check.note for check in wrong)
    if not found:
        assert not {"nothing lost", "no repetition"} & set(names(wrong))


def test_no_right_caption_of_the_drawn_world_is_blamed_for_a_loss() -> None:
    """The drawn world's own captions of edited scenes pass, for many scenes and all changes that a weather causes."""
    for seed in range(120):
        scene = random_scene(seed)
        for weather in ("snowy", "rainy", "sunny"):
            changed = scene.with_look(weather=weather)
            edit = (scene.look.weather, weather)
            task = Task("classification", label=scene.label) if scene.family == "object" else ROAD
            if edit[0] != edit[1]:
                edited = counterfactual(caption(changed), edit, edit_type="weather")
                assert not failed(counterfactual_checks(caption(scene), edited, task)), caption(changed)


def test_one_of_two_cars_that_gets_lost_is_noticed() -> None:
    source = "A road with two cars. The near car is blue and the far car is red."
    new = "A road with two cars. The near car is purple."
    lost = failed(counterfactual_checks(source, counterfactual(new, ("blue", "purple")), ROAD))
    assert [check.name for check in lost] == ["protected named as often", "nothing unasked changed"]
    assert lost[0].note == "“car” is named less often than before: one may be lost."


def test_a_lost_protected_word_is_named() -> None:
    new = STREET.replace("two cars", "two bicycles").replace("red", "green")
    lost = failed(counterfactual_checks(STREET, counterfactual(new, ("red", "green")), ROAD))
    assert [check.name for check in lost] == ["protected kept", "nothing unasked changed"]
    assert lost[0].note == "“cars” is no longer in the caption, but protected by the task."
    bird = counterfactual("A blue parrot on a twig.", ("red", "blue"))
    assert names(counterfactual_checks("A red bird on a twig.", bird, BIRD))[0] == "label kept"


def test_an_added_protected_class_is_named() -> None:
    new = STREET.replace("Trees line", "Pedestrians line")
    found = failed(counterfactual_checks(STREET, counterfactual(new, ("Trees", "Pedestrians")), ROAD))
    assert [check.name for check in found] == ["nothing protected added"]
    assert "“pedestrian” was not named before" in found[0].note


@pytest.mark.parametrize(
    ("new", "edit", "note"),
    [
        (STREET, ("red", "green"), "“green” is not in the caption where “red” was."),
        (STREET.replace("is red", "is red and green"), ("red", "green"), "“red” still stands where it was."),
        (STREET.replace("is red", "is small"), ("red", "green"), "“green” is not in the caption where “red” was."),
        # "blue" describes another car already, so it does not count for this edit.
        (STREET.replace("is red", "is small"), ("red", "blue"), "“blue” is not in the caption where “red” was."),
    ],
)
def test_an_edit_that_is_missing_is_named(new: str, edit: tuple[str, str], note: str) -> None:
    found = failed(counterfactual_checks(STREET, counterfactual(new, edit), ROAD))
    assert [check.name for check in found][:1] == ["edits made"]
    assert found[0].note == note


@pytest.mark.parametrize(
    ("source", "new", "edits"),
    [
        (STREET, STREET.replace("is red", "is blue"), [("red", "blue")]),
        (
            STREET,
            STREET.replace("red", "X").replace("blue", "red").replace("X", "blue"),
            [("red", "blue"), ("blue", "red")],
        ),
        (STREET, STREET.replace("Trees", "Palm trees"), [("trees", "palm trees")]),
        ("A dark red bird.", "A red bird.", [("dark red", "red")]),
        ("A red bird and a red tree.", "A blue bird and a red tree.", [("red", "blue")]),
        (
            STREET,
            "Two cars on a road: the near car is red, the far car green. Trees line the road.",
            [("blue", "green")],
        ),
    ],
)
def test_edits_that_are_there(source: str, new: str, edits: list[tuple[str, str]]) -> None:
    checks = counterfactual_checks(source, counterfactual(new, *edits), BIRD)
    assert "edits made" not in names(checks)


def test_the_weather_has_to_change_wherever_it_is_named() -> None:
    source, new = "A bird in sunny weather. The sunny day is warm.", "A bird in rainy weather. The sunny day is warm."
    assert names(counterfactual_checks(source, counterfactual(new, ("sunny", "rainy"), edit_type="weather"), BIRD)) == [
        "edits made",
        "no contradiction",
    ]


def test_an_empty_counterfactual_caption_says_so_and_no_more() -> None:
    assert names(counterfactual_checks(STREET, counterfactual(" . ", ("red", "blue")), ROAD)) == ["caption not empty"]


def test_captions_have_to_name_what_is_protected() -> None:
    assert not failed(caption_checks("Two birds fly.", BIRD))
    assert not failed(caption_checks(STREET, ROAD))
    assert names(caption_checks("  ", BIRD)) == ["caption not empty"]
    assert "does not name the label “bird”" in failed(caption_checks("A dog.", BIRD))[0].note
    assert "none of the protected classes" in failed(caption_checks("A beach.", ROAD))[0].note


def test_keywords_have_to_be_in_the_caption_and_free() -> None:
    assert not failed(keyword_checks("red", STREET, ROAD))
    assert not failed(keyword_checks("far car is blue", STREET, ROAD))
    assert names(keyword_checks("green", STREET, ROAD)) == ["keyword in the caption"]
    assert names(keyword_checks("two cars", STREET, ROAD)) == ["keyword not protected"]
    assert names(keyword_checks(" ", STREET, ROAD)) == ["keyword not empty"]
    with pytest.raises(UserError, match="“Cars” is protected by the task"):
        require(keyword_checks("Cars", STREET, ROAD))


def test_alternatives_have_to_differ_and_to_leave_the_protected_words_alone() -> None:
    assert not failed(alternative_checks("red", "dark red", ROAD))
    assert names(alternative_checks("red", "Red", ROAD)) == ["alternative differs"]
    assert names(alternative_checks("red", "", ROAD)) == ["alternative not empty"]
    assert names(alternative_checks("red car", "red bicycle", ROAD)) == ["protected kept"]
    assert names(alternative_checks("trees", "people", ROAD)) == ["nothing protected added"]
    assert not failed(alternative_checks("red car", "blue car", ROAD))
    assert names(alternative_checks("sunny", "bird", BIRD)) == ["label not named instead"]
    assert names(alternative_checks("in sunny weather", "among birds", BIRD)) == ["label not named instead"]
    assert not failed(alternative_checks("red bird", "blue bird", BIRD)) and not failed(
        alternative_checks("sunny", "snowy", BIRD)
    )


def test_a_task_has_to_say_what_is_kept() -> None:
    assert not failed(task_checks(BIRD) + task_checks(ROAD))
    assert names(task_checks(Task("classification"))) == ["label given"]
    assert names(task_checks(Task("segmentation", protected=("",)))) == ["protected classes given"]


@pytest.mark.slow
def test_the_drawn_world_s_own_counterfactuals_pass() -> None:
    """Each kind of edit is tried on captions by the drawn world itself, with all consequences."""
    tried = 0
    for seed in range(120):
        scene = random_scene(seed)
        task = ROAD if scene.family == "road" else Task("classification", label=scene.label)
        for keyword in keywords(scene):
            new, alternative = edited(scene, keyword.slot)
            edit = Edit(keyword.text, alternative, keyword.edit_type)  # type: ignore[arg-type]
            if caption(scene) == caption(new):
                continue
            checks = counterfactual_checks(caption(scene), CounterfactualCaption(caption(new), (edit,)), task)
            assert not failed(checks), (caption(scene), caption(new), failed(checks))
            assert not failed(keyword_checks(keyword.text, caption(scene), task))
            tried += 1
    assert tried > 300


CHOICES = {"ground": GROUNDS, "trees": TREES, "walls": WALLS, "water": WATERS, "hills": HILLS}


def edited(scene: Scene, slot: str) -> tuple[Scene, str]:
    """Return the scene with another look in one slot, and the words for it."""
    look = scene.look
    if slot == "weather":
        weather = "snowy" if look.weather != "snowy" else "rainy"
        return scene.with_look(weather=weather), weather
    if slot == "time":
        time = "night" if look.time != "night" else "day"
        return scene.with_look(time=time), TIME_PHRASES[time]
    if slot in CHOICES:
        new = next(word for word in CHOICES[slot] if word != getattr(look, slot))
        return scene.with_look(**{slot: new}), new
    place = int(slot.split()[1])
    colour = next(c for c in ("red", "green", "purple", "white", "yellow") if c not in look.colours)
    return scene.with_look(colours=(*look.colours[:place], colour, *look.colours[place + 1 :])), colour


@pytest.mark.parametrize(
    ("before", "after", "edit", "edit_type", "words"),
    [
        (
            "A camel in a desert in sunny weather.",
            "A camel in a desert in snowy weather.",
            "snowy",
            "weather",
            "desert",
        ),
        ("A bird by day. Sunny.", "A bird by day. It sits in the dark.", "dark", "time of day", "by day"),
        ("A bird in sunny weather. It is dry.", "A bird in rainy weather. It is dry.", "rainy", "weather", "is dry"),
    ],
)
def test_what_cannot_be_true_of_one_picture_is_named(
    before: str, after: str, edit: str, edit_type: EditType, words: str
) -> None:
    found = counterfactual_checks(before, counterfactual(after, ("sunny", edit), edit_type=edit_type), BIRD)
    check = next(check for check in found if check.name == "no contradiction")
    assert not check.passed and words in check.note


def test_a_contradiction_that_was_there_before_is_left_alone() -> None:
    before = "A red camel in a snowy desert."
    after = counterfactual("A blue camel in a snowy desert.", ("red", "blue"))
    assert not failed(counterfactual_checks(before, after, Task("classification", label="camel")))


def test_rules_of_ones_own_are_read_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('[[rules]]\nsays = "Cats fly not"\none = ["cat"]\nother = ["flies"]')
    found = contradictions("A cat flies.", load_rules(file))
    assert found == (("Cats fly not", "“cat” and “flies” do not go together: cats fly not."),)
    other = tmp_path / "wrong.toml"
    other.write_text('[[rules]]\nsays = "No"\none = "cat"\nother = ["flies"]')
    with pytest.raises(UserError, match="Rule 1"):
        load_rules(other)


def test_words_that_no_edit_asked_for_are_named() -> None:
    before = "A red bird in sunny weather. The ground is grassy."
    edited = counterfactual("A blue bird in sunny weather. The ground is sandy.", ("red", "blue"))
    check = next(c for c in counterfactual_checks(before, edited, BIRD) if c.name == "nothing unasked changed")
    assert not check.passed and "“grassy” is gone" in check.note and "“sandy” came in" in check.note
    weather = counterfactual(
        "A red bird in snowy weather. Snow covers the ground.", ("sunny", "snowy"), edit_type="weather"
    )
    check = next(c for c in counterfactual_checks(before, weather, BIRD) if c.name == "nothing unasked changed")
    assert check.passed and "“grassy” is gone" in check.note, "what may follow from the weather is only remarked"


def test_a_protected_word_that_a_person_forced_is_not_called_lost() -> None:
    assert not failed(keyword_checks("bird", "A red bird.", BIRD, forced=True))
    assert not failed(alternative_checks("bird", "cat", BIRD, forced=True))
    changed = CounterfactualCaption("A red cat.", (Edit("bird", "cat", "subject", forced=True),))
    checks = counterfactual_checks("A red bird.", changed, BIRD)
    assert not failed(checks)
    told = next(check for check in checks if check.name == "protected changed on purpose")
    assert "“bird”" in told.note and "insisted" in told.note
