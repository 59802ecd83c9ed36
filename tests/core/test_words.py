"""Tests for finding whole words, plurals, and the words that name a label or a protected class."""

from __future__ import annotations

import pytest

from core.types import Task
from core.words import (
    classes_in,
    contains,
    count_of,
    find_phrase,
    forms_of,
    is_protected,
    meaning,
    plural,
    protected_spans,
    protected_words_in,
    singular,
)
from demo.language import caption, protected_words
from demo.scene import OBJECT_CLASSES, PROTECTED_ROAD_CLASSES, random_scene

ROAD = Task("segmentation", protected=PROTECTED_ROAD_CLASSES)
BIRD = Task("classification", label="bird")


def test_a_phrase_is_found_as_whole_words_whatever_the_case() -> None:
    text = "The car passes a cart by day. By  Day, the Car's lamps are off."
    assert [text[a:b] for a, b in find_phrase(text, "car")] == ["car", "Car"]
    assert [text[a:b] for a, b in find_phrase(text, "by day")] == ["by day", "By  Day"]
    assert not contains(text, "art")
    assert not contains(text, "day lamps")
    assert find_phrase(text, "") == find_phrase(text, "...") == find_phrase("", "car") == []
    assert not contains("a tree-lined road", "tree")


def test_phrases_of_one_meaning_are_those_that_differ_in_spelling_alone() -> None:
    assert {meaning(one) for one in ("Dusk", "at dusk", "the dusk.", "during the  DUSK")} == {"dusk"}
    assert meaning("snow-covered ground") == meaning("on Snow covered ground")
    apart = ("dusk", "not dusk", "dusk or dawn", "two birds", "birds", "no birds", "in", "!")
    assert len({meaning(one) for one in apart}) == len(apart)


@pytest.mark.parametrize(
    ("one", "many"),
    [
        ("car", "cars"),
        ("bus", "buses"),
        ("butterfly", "butterflies"),
        ("boy", "boys"),
        ("person", "people"),
        ("woman", "women"),
        ("child", "children"),
        ("lane marking", "lane markings"),
        ("house", "houses"),
        ("crosswalk", "crosswalks"),
        ("box", "boxes"),
    ],
)
def test_plurals_there_and_back(one: str, many: str) -> None:
    assert plural(one) == many
    assert singular(many) == one
    assert singular(one) == one


def test_what_stands_for_a_class() -> None:
    assert {"vehicle", "vehicles", "car", "cars", "truck", "bus", "buses"} <= set(forms_of("vehicle"))
    assert {"pedestrian", "pedestrians", "person", "people"} <= set(forms_of("pedestrian"))
    assert {"pavement", "sidewalk"} <= set(forms_of("sidewalk")) & set(forms_of("pavement"))
    assert forms_of("Cars")[:2] == ("cars", "car")
    assert set(forms_of("goldfinch, Carduelis carduelis")) >= {"goldfinch", "goldfinches", "carduelis carduelis"}
    assert forms_of("") == ()


def test_protected_words_are_those_of_the_text() -> None:
    text = "A road with two Cars. People walk on the sidewalk, a person waits. Trees line the road."
    assert protected_words_in(text, ROAD) == ("road", "cars", "people", "sidewalk", "person")
    assert [text[a:b] for a, b in protected_spans(text, ROAD)][1] == "Cars"
    assert classes_in(text, ROAD) == ("road", "pavement", "vehicle", "pedestrian")
    assert protected_words_in("A dog on grass.", BIRD) == ()


def test_a_longer_name_wins_over_a_shorter_one() -> None:
    task = Task("segmentation", protected=("lane marking", "road"))
    assert protected_words_in("The road markings are new.", task) == ("road markings",)


@pytest.mark.parametrize("phrase", ["cars", "two cars", "the car", "A pedestrian", "road", "a group of people"])
def test_phrases_that_say_nothing_but_a_protected_class(phrase: str) -> None:
    assert is_protected(phrase, ROAD)


@pytest.mark.parametrize("phrase", ["red car", "wet road", "trees", "two", ""])
def test_phrases_that_may_change(phrase: str) -> None:
    assert not is_protected(phrase, ROAD)


@pytest.mark.parametrize("label", OBJECT_CLASSES)
def test_the_drawn_world_names_its_labels(label: str) -> None:
    scene = random_scene(5, "object", label)
    assert protected_words_in(caption(scene), Task("classification", label=label)) == (label,)


def test_the_drawn_world_protects_its_road_scenes() -> None:
    for seed in range(60):
        scene = random_scene(seed, "road")
        found = protected_words_in(caption(scene), ROAD)
        assert set(protected_words(scene)) - {"no"} <= set(found), caption(scene)
        assert set(found) <= {"road", "car", "cars", "pavement", "pedestrian", "pedestrians"}


def test_a_count_carries_its_noun_and_verb_in_the_form_of_its_number():
    assert count_of(1, "vote") == "1 vote"
    assert count_of(0, "vote") == "0 votes"
    assert count_of(2500, "protected class") == "2,500 protected classes"
    assert count_of(1, "LoRA category") == "1 LoRA category"
    assert count_of(2, "LoRA category", "has") == "2 LoRA categories have"
    assert count_of(1, "image", "shows") == "1 image shows"
    assert count_of(3, "image", "shows") == "3 images show"
    assert count_of(2, "image", "was") == "2 images were"
