"""The views of results and review as markup, without a browser: which are offered, and that text stays text."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import pytest
from PIL import Image

from core.check_words import CAPTION_WORDS, WORDS
from core.predictions import ClassFigures, Guess, Prediction, encode_map
from core.settings import Settings, UnderTestSettings
from core.stored_runs import Review, Run, StoredArtifact, StoredTestCase
from core.types import Alternatives, Check, CounterfactualCaption, Edit, Task, stage_title
from evaluation.outcomes import ModelOutcome, outcome_of
from pipeline.methods.controlnet import CONTROL_IMAGE, CONTROLNET
from pipeline.recipes import DILLEMA
from services.runs.gate import Gate
from services.runs.predictions import ModelComparison
from services.runs.state import RunState
from services.runs.words import artifacts_of
from tests.support.cases import LINEAGE
from ui.explore.large import View, large_picture, modes, usable_mode
from ui.explore.page_frame import GROUPS, keys_window
from ui.explore.parts import icon
from ui.explore.stage import EXPLAINED
from ui.explore.stage_cards import FAILED
from ui.explore.strip import picture_column, review_bar
from ui.theme import ASSETS

NOW = datetime(2026, 1, 2, tzinfo=UTC)
SHA = "a" * 64
EVIL = "<script>alert(1)</script>"
FAILS = ModelOutcome("fails here", f"model fails here: {EVIL}")
SETTINGS = Settings(under_test=UnderTestSettings(source="timm", name="resnet18"))
MAP = encode_map(Image.new("L", (4, 4), 1))


def case(number: int = 1, review: Review | None = None) -> StoredTestCase:
    caption = CounterfactualCaption(f"A bird at night. {EVIL}", (Edit("by day", EVIL, "time of day"),))
    checks = (
        Check("edges kept", True, 0.9, threshold=0.6),
        Check("edit shows", False, -0.1, EVIL),
        Check("mask kept", None, 0.3, "It is weak on the source too."),
    )
    return StoredTestCase(
        number,
        "run",
        None,
        SHA,
        Path("i"),
        (64, 64),
        replace(LINEAGE, counterfactual=caption, seed=7, task=Task("classification", label="bird")),
        {CONTROL_IMAGE: StoredArtifact(SHA, Path("c"))},
        checks,
        "",
        NOW,
        review,
    )


def state(*cases: StoredTestCase, kind: str = "classification", masked: bool = False) -> RunState:
    task = (
        Task("classification", label="bird") if kind == "classification" else Task("segmentation", protected=("road",))
    )
    cases = tuple(replace(one, lineage=replace(one.lineage, task=task)) for one in cases)
    run = Run("run", "a run", task, "demo", {}, "", (), SHA, NOW, {}, cases, ())
    if masked:
        run = replace(run, mask_sha=SHA, mask_classes={1: "road", 2: EVIL})
    return RunState(
        run=run,
        source_size=(64, 64),
        recipe=DILLEMA,
        recipes=(DILLEMA,),
        settings=SETTINGS,
        stale={},
        problems={},
        histories={},
        job=None,
        gate=Gate(),
        control_there=True,
        outdated={},
        model_names={},
        notices={},
        prompts=DILLEMA.prompts("demo"),
        earlier_prompts=(),
        alternatives=Alternatives(()),
    )


def reviewed(verdict: str, reason: str = "") -> Review:
    return Review(verdict, reason, NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("review", "offered", "missing"),
    [
        (None, {"accept", "reject", "regenerate", "edit-caption"}, {"take-back", "verdict"}),
        (reviewed("accepted"), {"reject", "take-back", "verdict"}, {"accept"}),
        (reviewed("rejected", "other"), {"accept", "take-back", "verdict"}, {"reject"}),
    ],
)
def test_what_can_be_done_hangs_on_what_was_decided(
    review: Review | None, offered: set[str], missing: set[str]
) -> None:
    markup = review_bar(state().run, case(review=review))
    ids = set(re.findall(r'id="([\w-]+)"', markup))
    assert offered <= ids and not missing & ids


def test_reasons_fit_the_task() -> None:
    assert "label no longer right" in review_bar(state().run, case())
    run = state(case(), kind="segmentation").run
    street = review_bar(run, run.test_cases[0])
    assert "protected class lost" in street and "label no longer right" not in street


def test_only_what_is_there_can_be_looked_at() -> None:
    shown, seen = case(), ModelComparison(None)
    assert usable_mode("mask", state(shown), shown, seen) == "result"
    assert usable_mode("mask", state(shown, masked=True), shown, seen) == "mask"
    assert usable_mode("seen", state(shown), shown, seen) == "result"
    assert usable_mode("nonsense", state(shown), shown, seen) == "result"
    prediction = Prediction("segmentation", "m", classes=("sky", "road"), class_map=MAP)
    assert (
        usable_mode("seen", state(shown), shown, ModelComparison(None, source=prediction, results={1: prediction}))
        == "seen"
    )


def test_every_artifact_has_a_way_to_look_at_it() -> None:
    drawn = case()
    drawn = replace(drawn, lineage=replace(drawn.lineage, method="controlnet"))
    assert list(modes(artifacts_of(drawn)))[3:5] == ["made-control-image", "over-control-image"]
    other = replace(case(), artifacts={"edited region": StoredArtifact(SHA, Path("e"))})
    assert "Edited region" in picture_column(state(other), View(1, "made-edited-region"), ModelComparison(None))
    assert usable_mode("made-edited-region", state(other), other, ModelComparison(None)) == "made-edited-region"
    gone = replace(drawn, artifacts={})
    assert usable_mode("made-control-image", state(gone), gone, ModelComparison(None)) == "result"


@pytest.mark.parametrize("mode", [*modes(CONTROLNET.artifacts), "made-other-thing", "nonsense"])
def test_text_never_becomes_markup(mode: str) -> None:
    shown = case(review=reviewed("rejected", EVIL))
    prediction = Prediction("segmentation", EVIL, classes=("sky", EVIL), class_map=MAP)
    seen = ModelComparison(
        UnderTestSettings(source="file", name=EVIL, file=EVIL),
        source=prediction,
        results={1: prediction},
        figures={1: (ClassFigures(EVIL, 0.9, 0.1),)},
        outcomes={1: FAILS},
    )
    markup = picture_column(state(shown, kind="segmentation", masked=True), View(1, mode), seen)
    assert "<script" not in markup and "&lt;script&gt;" in markup
    problem = picture_column(state(shown), View(1, mode), ModelComparison(seen.wanted, problem=EVIL))
    assert "<script" not in problem


def test_counts_and_marks_are_words() -> None:
    cases = (case(1, reviewed("accepted")), case(2, reviewed("rejected", "other")), case(3))
    seen = ModelComparison(SETTINGS.under_test, outcomes={2: FAILS})
    markup = picture_column(state(*cases), View(), seen)
    assert "3 results, 1 accepted, 1 rejected" in markup
    assert markup.count('aria-label="The model under test fails here"') == 1
    assert "The model is being asked." in markup and "resnet18 of timm" in markup


def test_the_model_that_fails_and_the_image_that_is_bad_wear_different_signs() -> None:
    """Only a right prediction has a tick. A wrong prediction has neither the colour nor the icon of a failed check."""

    def verdict(label: str, then: str, now: str) -> str:
        guesses = [Prediction("classification", "m", (Guess(name, 0.9),)) for name in (then, now)]
        outcome = outcome_of(Task("classification", label=label), guesses[0], guesses[1], None, masked=False)
        seen = ModelComparison(SETTINGS.under_test, outcomes={1: outcome})
        found = re.search(
            r'<span class="pill[^>]*id="model-verdict".*?</span>', picture_column(state(case()), View(), seen)
        )
        assert found
        return found.group()

    tick, cross = icon("check"), icon("cross")
    assert tick in verdict("bird", "bird", "bird")
    for label, then, now, words in (
        ("cat", "road", "boat", "wrong before and after: road → boat"),
        ("bird", "bird", "boat", "fails here: bird → boat"),
        ("boat", "bird", "boat", "right here alone: bird → boat"),
        ("", "bird", "boat", "bird → boat"),
    ):
        shown = verdict(label, then, now)
        assert words in shown and tick not in shown and cross not in shown and "pill bad" not in shown


def test_a_check_passed_failed_or_cannot_tell_and_says_what_it_wants() -> None:
    markup = picture_column(state(case()), View(), ModelComparison(None, masked=True))
    pills = dict(re.findall(r'class="pill ?(\w*)" title="([^"]*)" data-outcome', markup))
    assert list(pills) == ["ok", "bad", ""], "three outcomes, each with a tone of its own"
    assert pills["ok"].startswith("Passed. At least 0.60 passes.") and "outlines" in pills["ok"]
    just_below = replace(case(), checks=(Check("edges kept", None, 0.5987, threshold=0.6),))
    said = re.sub("<[^>]*>", "", picture_column(state(just_below), View(), ModelComparison(None)))
    assert "0.599, from 0.600" in said, "it does not look as if it had reached its line"
    none = replace(case(), checks=(Check("edit direction", False, -0.001, threshold=0.2),))
    said = re.sub("<[^>]*>", "", picture_column(state(none), View(), ModelComparison(None)))
    assert "changed as asked 0.00, from 0.20" in said
    assert pills["bad"].startswith("Failed.")
    assert pills[""].startswith("Cannot tell here. It is weak on the source too.")


def test_help_explains_every_check_and_stage_in_plain_words() -> None:
    text = unescape(re.sub(r"<[^>]*>", " ", keys_window({"edges kept": 0.6})))
    for name, words in WORDS.items():
        assert name in text, "plans and scripts call it so"
        assert words.title in text and words.explanation.split(".")[0] in text
    assert "It passes at 0.60 or more." in text and text.count("It passes at") == 1
    assert all(finding in text for finding in FAILED.values())
    assert set(FAILED) <= set(CAPTION_WORDS), "each says what it means"
    for stage in DILLEMA.cards:
        assert stage_title(stage) in text and EXPLAINED[stage_title(stage)].split(".")[0] in text
    assert " gate" not in text


def test_the_five_likeliest_classes_before_and_after() -> None:
    before = Prediction("classification", "m", (Guess("bird", 0.98), Guess("boat", 0.01)))
    after = Prediction("classification", "m", (Guess("boat", 0.61), Guess("bird", 0.3)))
    bird = Task("classification", label="bird")
    fails = outcome_of(bird, before, after, None, masked=False)
    seen = ModelComparison(SETTINGS.under_test, source=before, results={1: after}, outcomes={1: fails})
    markup = picture_column(state(case()), View(), seen)
    assert "model fails here: bird → boat 0.61" in markup
    assert markup.count('class="right"') == 2 and markup.count('class="wrong"') == 1


def test_every_key_of_the_script_is_listed_and_the_other_way_round() -> None:
    script = (ASSETS / "keys.js").read_text(encoding="utf-8")
    start = script.index("const KEYS = {")
    table = script[start : script.index("};", start)]
    done = {name.strip('"').upper() for name in re.findall(r'^\s+("?[\w?]+"?):', table, re.MULTILINE)}
    arrows = {"→": "ARROWRIGHT", "←": "ARROWLEFT"}
    alone = {keys[0] for rows in GROUPS.values() for keys, _ in rows if len(keys) == 1}
    listed = {arrows.get(name, name.upper()) for name in alone if not name.isdigit()} - {"ESC", "↵"}
    assert done | {"?"} == listed, "the question mark is that of every page: help.js"
    assert {name for name in alone if name.isdigit()} == {
        str(number) for number in range(1, len(modes(CONTROLNET.artifacts)) + 1)
    }
    assert keys_window().count("<dt>") == sum(len(rows) for rows in GROUPS.values())


def test_the_picture_of_one_result_never_stands_under_the_name_of_another() -> None:
    """The page replaces an element with another key, so nobody judges the earlier picture while a new one loads."""
    first, second = case(1), replace(case(2), image_sha="b" * 64)
    for mode in ("result", "slider", "pair", "difference"):
        keys = [
            set(
                re.findall(
                    r'data-key="(big-\w+)"', large_picture(state(first, second), one, ModelComparison(None), mode)
                )
            )
            for one in (first, second)
        ]
        assert keys[0] and keys[1] and not keys[0] & keys[1]
