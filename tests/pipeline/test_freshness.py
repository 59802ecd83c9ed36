"""Tests for changes that outdate a value, and changes that do not."""

from __future__ import annotations

import dataclasses
from typing import Any

from PIL import Image

from core.images import image_sha
from core.settings import CounterfactualSettings, Settings
from core.types import (
    Alternative,
    Alternatives,
    Caption,
    CounterfactualCaption,
    CounterfactualCaptions,
    Edit,
    Keyword,
    KeywordAlternatives,
    Keywords,
    StageName,
    StageValue,
    Task,
    Trace,
)
from pipeline.freshness import drawing_key, inputs_key, stale_stages
from pipeline.recipes import DILLEMA, is_drawn_from

TASK = Task("classification", label="bird")
SETTINGS = Settings()
CAPTION = Caption("A red bird on a sunny day.")
KEYWORDS = Keywords(
    (Keyword("red", "attribute"), Keyword("sunny", "weather"), Keyword("day", "time of day", used=False))
)
ALTERNATIVES = Alternatives(
    (KeywordAlternatives("red", "attribute", (Alternative("blue"), Alternative("green", False))),)
)
CAPTIONS = CounterfactualCaptions(
    (CounterfactualCaption("A blue bird on a sunny day.", (Edit("red", "blue", "attribute"),)),)
)
TEXTS: dict[StageName, Any] = {
    "caption": CAPTION,
    "keywords": KEYWORDS,
    "alternatives": ALTERNATIVES,
    "counterfactuals": CAPTIONS,
}


def fresh_values(task: Task = TASK, settings: Settings = SETTINGS) -> dict[StageName, StageValue[Any]]:
    """Return the values of all four stages, each made by a model from the values before it."""
    return {
        stage: StageValue(
            value, Trace("model", "m", prompt="p"), inputs_key(DILLEMA, stage, task, "sha", TEXTS, settings)
        )
        for stage, value in TEXTS.items()
    }


def stale(
    values: dict[StageName, StageValue[Any]], task: Task = TASK, settings: Settings = SETTINGS
) -> dict[StageName, str]:
    return stale_stages(DILLEMA, task, "sha", values, settings)


def changed(stage: StageName, value: Any) -> dict[StageName, StageValue[Any]]:
    """Return the values of all stages after a person changed one of them."""
    values = fresh_values()
    now: dict[StageName, Any] = {name: held.value for name, held in values.items()}
    return values | {stage: StageValue(value, Trace("person"), inputs_key(DILLEMA, stage, TASK, "sha", now, SETTINGS))}


def test_what_was_just_made_is_fresh() -> None:
    assert stale(fresh_values()) == {}
    assert stale({}) == {}


def test_a_changed_caption_outdates_all_that_follows() -> None:
    found = stale(changed("caption", Caption("A red bird on a rainy day.")))
    assert found == dict.fromkeys(
        ("keywords", "alternatives", "counterfactuals"), "the caption was changed after this was made"
    )


def test_a_caption_that_is_changed_back_makes_the_rest_fresh_again() -> None:
    assert stale(changed("caption", Caption(CAPTION.text))) == {}


def test_unticking_a_keyword_outdates_the_alternatives_and_what_follows() -> None:
    one = Keywords((KEYWORDS.items[0], dataclasses.replace(KEYWORDS.items[1], used=False), KEYWORDS.items[2]))
    found = stale(changed("keywords", one))
    assert found == {
        "alternatives": "the keywords were changed after this was made",
        "counterfactuals": "the stage before it (alternatives) is stale",
    }


def test_what_is_not_used_does_not_count() -> None:
    more = Keywords((*KEYWORDS.items, Keyword("on", "object", used=False)))
    assert stale(changed("keywords", more)) == {}
    item = ALTERNATIVES.items[0]
    fewer = Alternatives((dataclasses.replace(item, options=item.options[:1]),))
    assert stale(changed("alternatives", fewer)) == {}


def test_ticking_an_alternative_outdates_the_counterfactual_captions_only() -> None:
    ticked = Alternatives(
        (dataclasses.replace(ALTERNATIVES.items[0], options=(Alternative("blue"), Alternative("green"))),)
    )
    assert stale(changed("alternatives", ticked)) == {
        "counterfactuals": "the alternatives were changed after this was made"
    }


def test_another_task_outdates_all_but_a_caption_that_was_made_without_it() -> None:
    task = Task("classification", label="parrot")
    assert set(stale(fresh_values(), task)) == {"caption", "keywords", "alternatives", "counterfactuals"}
    values = fresh_values()
    silent = dataclasses.replace(values["caption"], trace=Trace("model", "blip"))
    found = stale(values | {"caption": silent}, task)
    assert set(found) == {"keywords", "alternatives", "counterfactuals"}
    assert found["keywords"] == "the task was changed after this was made"


def test_settings_outdate_what_a_model_made_and_not_what_a_person_wrote() -> None:
    settings = Settings(counterfactuals=CounterfactualSettings(edits_at_once=2))
    assert stale(fresh_values(), settings=settings) == {
        "counterfactuals": "the settings were changed after this was made"
    }
    assert stale(changed("counterfactuals", CAPTIONS), settings=settings) == {}


def test_another_source_image_outdates_the_caption() -> None:
    assert stale_stages(DILLEMA, TASK, "other", fresh_values(), SETTINGS)["caption"].startswith("the source image was")
    assert inputs_key(DILLEMA, "keywords", TASK, "a", TEXTS, SETTINGS) == inputs_key(
        DILLEMA, "keywords", TASK, "b", TEXTS, SETTINGS
    )


def test_the_generation_key_follows_the_ticked_captions() -> None:
    key = drawing_key(DILLEMA, TASK, "s", TEXTS, SETTINGS)
    unticked = CounterfactualCaptions((dataclasses.replace(CAPTIONS.items[0], used=False),))
    assert key != drawing_key(DILLEMA, TASK, "s", {**TEXTS, "counterfactuals": unticked}, SETTINGS)
    assert is_drawn_from(DILLEMA.name, CAPTIONS.items[0], TEXTS)
    assert not is_drawn_from(DILLEMA.name, CAPTIONS.items[0], {**TEXTS, "counterfactuals": unticked})


def test_the_sha_of_an_image_is_that_of_its_pixels() -> None:
    red = Image.new("RGB", (4, 2), "red")
    assert image_sha(red) == image_sha(red.convert("RGBA"))
    assert image_sha(red) != image_sha(Image.new("RGB", (2, 4), "red"))
    assert image_sha(red) != image_sha(Image.new("RGB", (4, 2), "blue"))
