"""The card of captions with one edit each, for a run of the recipe `lance`: its content and its actions, without a
browser.
"""

from __future__ import annotations

from core.types import CounterfactualCaptions
from services.studio import Studio
from tests.support.scripted import SUNNY_BIRD, ScriptedLanguageModel, answer, parts_of, performed
from tests.ui.explore.test_ui_studio import new_run


def captions(studio: Studio, run: str) -> CounterfactualCaptions:
    value: CounterfactualCaptions = studio.workspace.runs.get(run).values["counterfactuals"].value.value
    return value


def test_a_card_shows_what_was_kept_and_rejected_and_every_value_can_be_edited(studio: Studio) -> None:
    run = new_run(studio)
    performed(studio, run, "run-all")
    assert "counterfactuals" in studio.workspace.runs.get(run).values
    performed(studio, run, "recipe", recipe="lance")
    card = parts_of(studio, run)["counterfactuals"]
    assert "stale" in card, "captions of another recipe were made from other values"
    assert "captions of each edit type" in card and "edits at once" not in card and "combinations" not in card

    two_edits = SUNNY_BIRD.replace("red", "blue").replace("grassy", "sandy")
    model = ScriptedLanguageModel(lambda prompt: f"x | {two_edits}" if "Type: domain" in prompt else answer(prompt))
    studio.driver.models.language = model  # type: ignore[misc]
    performed(studio, run, "run-all")
    card = parts_of(studio, run)["counterfactuals"]
    assert "Kept 8 of 10:" in card and "domain 0 of 2. Rejected by check: “one change” 2." in card
    assert "not one change" in card and "2 places of the caption were changed" in card and " alike</small>" in card
    assert "no edit of these types for this caption: subject, object." in card
    held = captions(studio, run).items
    assert [item.used for item in held] == [True, True, True, True, False]

    performed(studio, run, "counterfactual-use", place=4, text=two_edits, used=True)
    assert captions(studio, run).items[4].used, "a person may draw it all the same"
    blue = SUNNY_BIRD.replace("red", "blue")
    performed(studio, run, "counterfactual-write", place=4, text=two_edits, new=f"{blue} It sings.")
    assert captions(studio, run).items[4].checks == (), "findings on another text"
