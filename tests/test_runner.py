"""The runner: all stages in a row, what is reused, how it stops. The models are stand-ins, see `tests/scripted.py`."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest
from PIL import Image

from pipeline.errors import Cancelled, UserError
from pipeline.freshness import image_sha, stale_stages
from pipeline.profile import load_profile
from pipeline.progress import Progress
from pipeline.runner import Made, Runner
from pipeline.settings import CounterfactualSettings, GenerationSettings, Settings
from pipeline.speed import effort_of
from pipeline.types import Caption, Keywords, StageName, StageValue, Task, TestCase, Trace
from tests.scripted import SUNNY_BIRD, ScriptedLanguageModel, ScriptedModels

BIRD = Task("classification", label="bird")
SOURCE = Image.linear_gradient("L").resize((96, 64)).convert("RGB")
SETTINGS = Settings(
    counterfactuals=CounterfactualSettings(captions=3),
    generation=GenerationSettings(steps=4, short_side=64),
)


def runner(models: ScriptedModels | None = None) -> Runner:
    return Runner(load_profile("demo"), models or ScriptedModels())


def split(made: list[Made]) -> tuple[dict[StageName, StageValue[Any]], list[TestCase]]:
    """Stage values and test cases of what `augment` gave."""
    values = {one.stage: one.value for one in made if isinstance(one.value, StageValue)}
    return values, [one.value for one in made if isinstance(one.value, TestCase)]


def test_from_an_image_to_its_test_cases() -> None:
    made = list(runner().augment(SOURCE, BIRD, SETTINGS, seed=4))
    assert [one.stage for one in made] == [
        "caption",
        "keywords",
        "alternatives",
        "counterfactuals",
        *["generation"] * 3,
    ]
    assert not any(one.reused for one in made)
    values, cases = split(made)
    assert values["caption"].value == Caption(SUNNY_BIRD)
    assert [item.text for item in values["keywords"].value.items] == ["red", "sunny", "by day", "grassy"]
    assert stale_stages(BIRD, image_sha(SOURCE), values, SETTINGS) == {}
    assert {case.image.size for case in cases} == {SOURCE.size}
    for case in cases:
        assert case.counterfactual in values["counterfactuals"].value.items
        assert case.prompt == f"{case.counterfactual.text} Keep: bird."


def test_everything_is_reused_when_nothing_changed() -> None:
    models = ScriptedModels()
    values, cases = split(list(runner(models).augment(SOURCE, BIRD, SETTINGS)))
    calls = len(models.language.prompts), len(models.generator.made), models.captioner.calls
    made = list(runner(models).augment(SOURCE, BIRD, SETTINGS, values=values, test_cases=cases))
    assert all(one.reused for one in made)
    assert split(made) == (values, cases)
    assert calls == (len(models.language.prompts), len(models.generator.made), models.captioner.calls)


def test_a_missing_image_is_made_as_it_would_have_been() -> None:
    values, cases = split(list(runner().augment(SOURCE, BIRD, SETTINGS)))
    made = list(runner().augment(SOURCE, BIRD, SETTINGS, values=values, test_cases=cases[:1] + cases[2:]))
    new = [one.value for one in made if not one.reused]
    assert len(new) == 1
    assert isinstance(new[0], TestCase)
    assert (new[0].seed, new[0].image.tobytes()) == (cases[1].seed, cases[1].image.tobytes())


def test_a_person_s_keywords_are_taken_and_what_follows_is_made_again() -> None:
    first = runner()
    values, cases = split(list(first.augment(SOURCE, BIRD, SETTINGS)))
    chosen = Keywords(
        tuple(dataclasses.replace(item, used=item.text == "red") for item in values["keywords"].value.items)
    )
    values["keywords"] = dataclasses.replace(values["keywords"], value=chosen, trace=Trace("person"))
    made = list(runner().augment(SOURCE, BIRD, SETTINGS, values=values, test_cases=cases))
    reused = {one.stage: one.reused for one in made}
    assert reused == {
        "caption": True,
        "keywords": True,
        "alternatives": False,
        "counterfactuals": False,
        "generation": False,
    }
    _, again = split(made)
    assert {edit.keyword for case in again for edit in case.counterfactual.edits} == {"red"}


def test_another_image_is_captioned_anew() -> None:
    values, _ = split(list(runner().augment(SOURCE, BIRD, SETTINGS)))
    other = Image.new("RGB", (64, 64), "blue")
    made = list(runner().augment(other, BIRD, SETTINGS, values=values))
    assert not next(one for one in made if one.stage == "caption").reused


def test_other_generation_settings_make_new_images_from_the_same_captions() -> None:
    values, cases = split(list(runner().augment(SOURCE, BIRD, SETTINGS)))
    more = SETTINGS.model_copy(update={"generation": GenerationSettings(steps=5, short_side=64)})
    made = list(runner().augment(SOURCE, BIRD, more, values=values, test_cases=cases))
    assert [one.reused for one in made] == [True] * 4 + [False] * 3


def test_a_stop_in_the_middle_of_an_image_keeps_what_was_given() -> None:
    stop, given = threading.Event(), list[Made]()

    def watch(progress: Progress) -> None:
        if progress.stage == "generation" and progress.done == 6:
            stop.set()

    with pytest.raises(Cancelled):
        for made in runner().augment(SOURCE, BIRD, SETTINGS, progress=watch, cancelled=stop):
            given.append(made)
    assert [one.stage for one in given][-2:] == ["counterfactuals", "generation"]


def test_every_stage_says_that_it_works() -> None:
    seen: list[Progress] = []
    list(runner().augment(SOURCE, BIRD, SETTINGS, progress=seen.append))
    assert list(dict.fromkeys(progress.stage for progress in seen)) == [
        "caption",
        "keywords",
        "alternatives",
        "counterfactuals",
        "generation",
    ]


def test_the_gate_estimates_from_the_last_image() -> None:
    one = runner()
    values, _ = split(list(one.augment(SOURCE, BIRD, SETTINGS)))
    captions = values["counterfactuals"].value
    effort = effort_of(SETTINGS.generation, SOURCE.size)
    each = one.speeds.seconds(effort)
    assert each is not None
    assert one.plan(captions, SETTINGS, size=SOURCE.size).seconds == pytest.approx(each * 3)
    assert runner().plan(captions, SETTINGS).seconds is None


def test_the_profile_s_settings_are_the_defaults() -> None:
    made = runner().keywords(Caption(SUNNY_BIRD), BIRD)
    assert made.trace.settings == load_profile("demo").settings.keywords.model_dump(mode="json")


def test_captions_that_all_fail_are_not_generated() -> None:
    models = ScriptedModels(ScriptedLanguageModel("red | attribute", "red: blue", "A cat."))
    with pytest.raises(UserError, match="No counterfactual caption is ticked"):
        list(runner(models).augment(SOURCE, BIRD, SETTINGS))
    assert models.generator.made == []
