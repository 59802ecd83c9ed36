"""The stage that asks for captions with one edit of a type: which replies it accepts, checks, keeps and reports."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.errors import UnreadableReply
from core.settings import PerturbationSettings
from core.types import EDIT_TYPES, Caption, CounterfactualCaptions, EditType, StageValue, Task, failed
from pipeline.checks.similarity import closeness, is_of_type
from pipeline.checks.single_edit import Change, changes
from pipeline.checks.texts import counterfactual_checks
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile
from pipeline.recipes import LANCE, prompt_title, section_card, stage_of_prompt
from pipeline.seams import Models, Sentences
from pipeline.stages import perturbations
from pipeline.stages.base import StageInputs
from pipeline.stages.parsing import Unreadable, read_perturbation
from tests.support.scripted import (
    PERTURBED,
    SUNNY_BIRD,
    ScriptedBatches,
    ScriptedLanguageModel,
    ScriptedSentences,
    answer,
)
from tests.support.stages import NO_SOURCE

BIRD = Task("classification", label="bird")
PROMPT = LANCE.prompts("demo")["perturbations"]


def perturbed(
    model: ScriptedLanguageModel, sentences: Sentences | None = None, caption: str = SUNNY_BIRD, **settings: Any
) -> StageValue[CounterfactualCaptions]:
    models = cast(Models, SimpleNamespace(language=model, sentences=sentences or ScriptedSentences()))
    values = {"caption": Caption(caption)}
    chosen = PerturbationSettings(**{"per_type": 1, **settings})
    return perturbations.run(StageInputs(NO_SOURCE, BIRD, values, chosen, models, PROMPT, 0))


# Differences between texts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SUNNY_BIRD, []),
        (SUNNY_BIRD.replace("red", "blue"), [("red", "blue")]),
        (SUNNY_BIRD.replace("A red", "An orange"), [("A red", "An orange")]),
        (SUNNY_BIRD.replace("on a twig", "in the snow"), [("on a twig", "in the snow")]),
        (SUNNY_BIRD.replace("red", "blue").replace("grassy", "sandy"), [("red", "blue"), ("grassy", "sandy")]),
        (SUNNY_BIRD.replace("sunny weather", "heavy rain"), [("sunny weather", "heavy rain")]),
        ("", [(SUNNY_BIRD.rstrip("."), "")]),
    ],
)
def test_the_places_that_differ_are_found(text: str, found: list[tuple[str, str]]) -> None:
    assert [(change.gone, change.came) for change in changes(SUNNY_BIRD, text)] == found


def test_words_put_in_or_taken_out_are_named_with_a_neighbour() -> None:
    (put_in,) = changes("A bird sits.", "A bird in heavy snow sits.")
    assert put_in == Change("", "in heavy snow", "bird", "bird in heavy snow")
    (first,) = changes("A bird sits.", "Sketch of A bird sits.")
    assert first == Change("", "Sketch of", "A", "Sketch of A")
    (taken_out,) = changes("A small bird sits.", "A bird sits.")
    assert taken_out == Change("small", "", "A small", "A")


def test_an_article_may_stay_inside_one_change_and_other_words_may_not() -> None:
    assert len(changes("A bird on a hill.", "A bird in a valley.")) == 1
    assert len(changes("A bird by day in rain.", "A bird at night in snow.")) == 2


# Replies


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        ("red -> blue | A blue bird sits.", "A blue bird sits."),
        ("attribute | red -> blue | A blue bird sits.", "A blue bird sits."),
        ("Sure! Here it is:\n- red → blue | “A blue bird sits.”", "A blue bird sits."),
        ("red -> blue\nNew caption: A blue bird sits.", "A blue bird sits."),
        ("A blue bird sits.", "A blue bird sits."),
        ("none", ""),
        ("None.", ""),
        ("none | A red bird sits.", ""),
    ],
)
def test_the_caption_of_a_reply_is_read(reply: str, text: str) -> None:
    assert read_perturbation(reply) == text


@pytest.mark.parametrize("reply", ["", "red -> blue", "red -> blue | blue", "I'm sorry, I cannot."])
def test_a_reply_without_a_caption_is_unreadable(reply: str) -> None:
    with pytest.raises(Unreadable):
        read_perturbation(reply)


# The stage


def test_each_type_gives_its_edit_and_the_note_names_types_without_one() -> None:
    model = ScriptedLanguageModel(answer)
    made = perturbed(model)
    found = {item.edits[0].edit_type: item for item in made.value.items}
    assert list(found) == [kind for kind in EDIT_TYPES if kind in PERTURBED]
    for kind, (old, new) in PERTURBED.items():
        (edit,) = found[cast(EditType, kind)].edits
        assert (edit.keyword, edit.alternative) == (old, new) and found[cast(EditType, kind)].used
    assert made.trace.notes == (
        "The language model found no edit of these types for this caption: subject, object, domain.",
    )
    assert len(model.prompts) == len(EDIT_TYPES) and len(set(model.seeds)) == len(EDIT_TYPES)
    assert "Type: weather" in made.trace.prompt and BIRD.describe() in made.trace.prompt


def test_what_a_reply_says_of_its_edit_is_not_believed() -> None:
    both = SUNNY_BIRD.replace("red", "blue").replace("grassy", "sandy")
    model = ScriptedLanguageModel(f"red -> blue | {both}")
    made = perturbed(model, edit_types="attribute", attempts=3)
    (item,) = made.value.items
    assert not item.used and made.trace.attempts == 3
    assert [edit.keyword for edit in item.edits] == ["red", "grassy"]
    wrong = failed(counterfactual_checks(SUNNY_BIRD, item, BIRD))
    assert [check.name for check in wrong] == ["one change"]
    assert wrong[0].note == "2 places of the caption were changed: one edit was asked for."
    assert made.trace.notes == ("Kept 0 of 1: attribute 0 of 1. Rejected by check: “one change” 1.",)
    assert LANCE.last.remarks(made.value, {"caption": Caption(SUNNY_BIRD)}, BIRD) == [
        f"not used: {both} {wrong[0].note}"
    ]


def test_a_better_reply_is_asked_for_and_an_unchanged_caption_is_left_out() -> None:
    better = f"red -> blue | {SUNNY_BIRD.replace('red', 'blue')}"
    model = ScriptedLanguageModel(f"red -> red | {SUNNY_BIRD}", better)
    assert [item.used for item in perturbed(model, edit_types="attribute").value.items] == [True]
    model = ScriptedLanguageModel(f"red -> red | {SUNNY_BIRD}")
    made = perturbed(model, edit_types="attribute", attempts=1)
    assert made.value.items == () and "attribute 0 of 1" in made.trace.notes[0]


def test_an_edit_of_another_type_or_of_the_label_is_rejected() -> None:
    model = ScriptedLanguageModel(f"sunny -> snowy | {SUNNY_BIRD.replace('sunny', 'snowy')}")
    (item,) = perturbed(model, edit_types="time of day", attempts=1, too_close=1).value.items
    assert [check.name for check in failed(item.checks)] == ["of its type"]
    assert "rather an edit of the type weather than time of day" in failed(item.checks)[0].note
    model = ScriptedLanguageModel(f"bird -> dog | {SUNNY_BIRD.replace('bird', 'dog')}")
    (item,) = perturbed(model, edit_types="subject", attempts=1).value.items
    wrong = failed(counterfactual_checks(SUNNY_BIRD, item, BIRD))
    assert not item.used and "label kept" in [check.name for check in wrong]


def test_words_that_mean_the_same_are_rejected_with_their_similarity() -> None:
    model = ScriptedLanguageModel(f"red -> crimson | {SUNNY_BIRD.replace('red', 'crimson')}")
    alike = ScriptedSentences(("crimson", "red"))
    (item,) = perturbed(model, alike, edit_types="attribute", attempts=1).value.items
    (wrong,) = failed(item.checks)
    assert wrong.name == "meaning changed" and wrong.value == 1 and wrong.threshold == 0.2 and not item.used
    assert wrong.note == "“crimson” comes close to “red”: 1.00, and the limit is 0.2."
    (item,) = perturbed(model, alike, edit_types="attribute", too_close=1, attempts=1).value.items
    assert "meaning changed" in [check.name for check in failed(item.checks)], "1 is not below the line"


def test_captions_that_came_out_alike_are_kept_once() -> None:
    made = perturbed(ScriptedLanguageModel(answer), per_type=3, edit_types="weather, attribute")
    assert [item.edits[0].edit_type for item in made.value.items] == ["attribute", "weather"]
    assert made.trace.notes == ()


def test_captions_that_are_written_together_come_out_as_one_by_one() -> None:
    alone, together = perturbed(ScriptedLanguageModel(answer)), perturbed(ScriptedBatches(answer))
    assert alone.value == together.value and alone.trace.notes == together.trace.notes


def test_a_caption_that_never_comes_ends_the_stage() -> None:
    with pytest.raises(UnreadableReply, match="a caption with one edit"):
        perturbed(ScriptedLanguageModel("red -> blue"), attempts=2)


# Words of the recipe


def test_a_second_stage_of_a_name_is_known_by_its_prompt_and_settings() -> None:
    assert stage_of_prompt("perturbations") == "counterfactuals" == stage_of_prompt("counterfactuals")
    assert prompt_title("perturbations") == "Counterfactual captions" and prompt_title("diffusion") == "Generate"
    assert section_card("perturbations") == "counterfactuals"


# With the real sentence model


@pytest.fixture(scope="module")
def sentences() -> Sentences:
    return load_models(load_profile("demo")).sentences


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gone", "came", "edit_type", "fits"),
    [
        ("red", "blue", "attribute", True),
        ("wooden", "metal", "attribute", True),
        ("sunny", "foggy", "weather", True),
        ("", "in heavy snow", "weather", True),
        ("by day", "at night", "time of day", True),
        ("in the morning", "at sunset", "time of day", True),
        ("grassy", "sandy", "background", True),
        ("on a street", "on a beach", "background", True),
        ("dog", "cat", "subject", True),
        ("a ball", "a book", "object", True),
        ("A photo of", "A pencil sketch of", "domain", True),
        ("sunny", "foggy", "time of day", False),
        ("by day", "at night", "weather", False),
        ("red", "blue", "weather", False),
        ("dog", "cat", "weather", False),
        ("dog", "cat", "time of day", False),
        ("red", "blue", "domain", False),
        ("sunny", "foggy", "object", False),
        ("red", "blue", "subject", False),
    ],
)
def test_an_edit_is_told_from_edits_of_other_types(
    sentences: Sentences, gone: str, came: str, edit_type: EditType, fits: bool
) -> None:
    found, likelier = is_of_type(Change(gone, came, gone or "dog", came), edit_type, sentences)
    assert found is fits, likelier


@pytest.mark.slow
def test_the_raw_measure_is_the_plain_cosine_and_counts_the_label_for_every_type(sentences: Sentences) -> None:
    change = Change("red", "bird-like", "red", "bird-like")
    assert closeness(change, "attribute", BIRD, sentences)[1] == "red"
    similarity, like = closeness(change, "attribute", BIRD, sentences, raw=True)
    assert like == "bird" and similarity is not None and similarity > 0.5
    put_in = Change("", "in heavy snow", "bird", "bird in heavy snow")
    assert closeness(put_in, "weather", BIRD, sentences) == (None, "")
