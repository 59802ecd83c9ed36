"""The driver: it runs all stages in order, reuses values, and stops. For the stand-ins, see
`tests/support/scripted.py`.
"""

from __future__ import annotations

import dataclasses
import pickle
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import Cancelled, UserError
from core.images import image_sha
from core.lineage import TestCase
from core.masks import NamedMask
from core.progress import Progress
from core.settings import CounterfactualSettings, GenerationSettings, Settings
from core.types import Caption, CounterfactualCaption, CounterfactualCaptions, Keywords, StageValue, Task, Trace
from experiments.driving import produce
from pipeline.drawing_speed import effort_of
from pipeline.driver import Driver
from pipeline.freshness import stale_stages
from pipeline.profiles.profile import load_profile
from pipeline.recipes import DILLEMA, RECONSTRUCTION, is_drawn_from
from pipeline.request import DrawingBegan, Event, ImageDone, MemoryStore, Preview, Request, StageBegan, StageDone
from pipeline.stages.generation import PlannedImage
from tests.support.scripted import SUNNY_BIRD, ScriptedCaptioner, ScriptedLanguageModel, ScriptedModels

BIRD = Task("classification", label="bird")
SOURCE = Image.linear_gradient("L").resize((96, 64)).convert("RGB")
SETTINGS = Settings(
    counterfactuals=CounterfactualSettings(captions=3),
    generation=GenerationSettings(steps=4, short_side=64),
)
ALL = Request(BIRD, SETTINGS)


def driver(models: ScriptedModels | None = None) -> Driver:
    return Driver(load_profile("demo"), models or ScriptedModels())


def driven(
    store: MemoryStore | None = None, request: Request = ALL, models: ScriptedModels | None = None
) -> tuple[MemoryStore, list[Event]]:
    """Run a request. Return the store and the events."""
    store = store or MemoryStore(SOURCE)
    said: list[Event] = []
    driver(models).run(request, store, said.append)
    return store, said


def done(said: list[Event]) -> dict[str, bool]:
    """Return for each stage whether its value was reused. All images count as one stage."""
    found = {event.stage: event.reused for event in said if isinstance(event, StageDone)}
    images = [event.reused for event in said if isinstance(event, ImageDone)]
    return found | ({"images": all(images)} if images else {})


def copied(store: MemoryStore, **more: Any) -> MemoryStore:
    """Return a copy of the store, with other values for `more`."""
    copy = MemoryStore(SOURCE, {**store.held, **more})
    copy.cases = list(store.cases)
    return copy


def test_from_an_image_to_its_test_cases() -> None:
    store, said = driven(request=dataclasses.replace(ALL, seed=4))
    begun = [event.stage for event in said if isinstance(event, StageBegan)]
    assert begun == list(DILLEMA.names) == list(store.held)
    assert not any(done(said).values()) and len(store.cases) == 3
    assert store.held["caption"].value == Caption(SUNNY_BIRD)
    assert [item.text for item in store.held["keywords"].value.items] == ["red", "sunny", "by day", "grassy"]
    assert stale_stages(DILLEMA, BIRD, image_sha(SOURCE), store.held, SETTINGS) == {}
    assert {case.image.size for case in store.cases} == {SOURCE.size}
    for case in store.cases:
        assert case.lineage.counterfactual in store.held["counterfactuals"].value.items
        assert case.lineage.prompt == f"{case.lineage.counterfactual.text} Keep: bird."
        assert case.lineage.recipe == "dillema"


def test_everything_is_reused_when_nothing_changed() -> None:
    models = ScriptedModels()
    store, _ = driven(models=models)
    calls = len(models.language.prompts), len(models.generator.made), models.captioner.calls
    before = dict(store.held), list(store.cases)
    _, said = driven(store, models=models)
    assert all(done(said).values()) and len(done(said)) == 5
    assert (store.held, store.cases) == before
    assert calls == (len(models.language.prompts), len(models.generator.made), models.captioner.calls)


def test_a_missing_image_is_made_as_it_would_have_been() -> None:
    store, _ = driven()
    fewer = copied(store)
    del fewer.cases[1]
    driven(fewer)
    assert len(fewer.cases) == 3
    new, was = fewer.cases[-1], store.cases[1]
    assert (new.lineage.seed, new.image.tobytes()) == (was.lineage.seed, was.image.tobytes())


def test_a_person_s_keywords_are_taken_and_what_follows_is_made_again() -> None:
    store, _ = driven()
    held = store.held["keywords"]
    chosen = Keywords(tuple(dataclasses.replace(item, used=item.text == "red") for item in held.value.items))
    written = dataclasses.replace(held, value=chosen, trace=Trace("person"))
    again, said = driven(copied(store, keywords=written))
    assert done(said) == {
        "caption": True,
        "keywords": True,
        "alternatives": False,
        "counterfactuals": False,
        "images": False,
    }
    new = again.cases[3:]
    assert {edit.keyword for case in new for edit in case.lineage.counterfactual.edits} == {"red"}


def test_an_edited_caption_costs_one_image_and_asks_no_other_model() -> None:
    models = ScriptedModels()
    store, _ = driven(models=models)
    asked, made = (models.captioner.calls, len(models.language.prompts)), len(models.generator.made)
    held = store.held["counterfactuals"]
    first, second, *others = held.value.items
    written = dataclasses.replace(second, text="A red bird in a heavy storm by day.")
    value = CounterfactualCaptions((first, written, *others))
    again, said = driven(
        copied(store, counterfactuals=dataclasses.replace(held, value=value, trace=Trace("person"))), models=models
    )
    assert (models.captioner.calls, len(models.language.prompts)) == asked
    assert len(models.generator.made) == made + 1
    assert [event.reused for event in said if isinstance(event, StageDone)] == [True] * 4
    images = [(event.reused, event.lineage.counterfactual) for event in said if isinstance(event, ImageDone)]
    assert sorted(reused for reused, _ in images) == [False, True, True] and (False, written) in images
    assert len(again.cases) == 4 and again.cases[-1].lineage.counterfactual == written

    source = dataclasses.replace(store.held["caption"], value=Caption("A red bird in the snow."), trace=Trace("person"))
    _, said = driven(copied(store, caption=source), models=models)
    assert models.captioner.calls == asked[0], "the source image has its caption"
    assert list(done(said).values()) == [True, False, False, False, False], "all else hangs on that caption"


def test_a_bare_value_is_read_by_later_stages_and_made_anew_by_its_own() -> None:
    written = Caption("A red bird in the snow.")
    later = dataclasses.replace(ALL, stages=DILLEMA.names[1:], images=())
    read, _ = driven(MemoryStore(SOURCE, {"caption": written}), later)
    assert [item.text for item in read.held["keywords"].value.items] == ["red"] and read.held[
        "caption"
    ].value == written
    anew, _ = driven(MemoryStore(SOURCE, {"caption": written}), dataclasses.replace(ALL, images=()))
    assert anew.held["caption"].value == Caption(SUNNY_BIRD)


def test_another_image_is_captioned_anew() -> None:
    store, _ = driven()
    _, said = driven(MemoryStore(Image.new("RGB", (64, 64), "blue"), store.held))
    assert not done(said)["caption"]


def test_other_generation_settings_make_new_images_from_the_same_captions() -> None:
    store, _ = driven()
    more = SETTINGS.model_copy(update={"generation": GenerationSettings(steps=5, short_side=64)})
    again, said = driven(copied(store), dataclasses.replace(ALL, settings=more))
    assert list(done(said).values()) == [True] * 4 + [False] and len(again.cases) == 6


def test_another_prompt_or_model_makes_new_images_from_the_same_captions() -> None:
    store, _ = driven()
    drawn = dataclasses.replace(ALL, stages=())
    _, said = driven(store, drawn)
    assert done(said) == {"images": True}

    label = dataclasses.replace(drawn, task=Task("classification", label="red bird"))
    again, said = driven(copied(store), label)
    assert done(said) == {"images": False}
    assert {case.lineage.prompt.partition("Keep: ")[2] for case in again.cases[3:]} == {"red bird."}
    worded = {"diffusion": "$kept: $caption"}
    again, said = driven(copied(store), dataclasses.replace(drawn, prompts=worded))
    assert done(said) == {"images": False} and again.cases[3].lineage.prompt.startswith("bird: ")

    models = ScriptedModels()
    models.generator.name = "another generator"
    again, said = driven(copied(store), drawn, models)
    assert done(said) == {"images": False} and again.cases[3].lineage.model == "another generator"
    nameless = [dataclasses.replace(case, lineage=dataclasses.replace(case.lineage, model="")) for case in store.cases]
    unnamed = MemoryStore(SOURCE, store.held)
    unnamed.cases = nameless
    _, said = driven(unnamed, drawn, models)
    assert done(said) == {"images": True}, "nobody can tell that they were drawn by another one"


def test_images_are_drawn_anew_only_where_the_mask_makes_their_prompt_another_one() -> None:
    task = Task("segmentation", protected=("bird", "pedestrian"))
    profile = load_profile("demo").model_copy(update={"prompts": "paper"})
    request = dataclasses.replace(ALL, task=task)

    def drawn(store: MemoryStore) -> tuple[list[bool], str]:
        said: list[Event] = []
        Driver(profile, ScriptedModels()).run(request, store, said.append)
        reused = [event.reused for event in said if isinstance(event, ImageDone)]
        return reused, store.cases[-1].lineage.prompt.partition(". ")[0]

    def masked(numbers: set[int], cases: list[TestCase]) -> MemoryStore:
        pixels = np.resize(np.array(sorted(numbers), np.uint8), (64, 96))
        classes = {0: "sky", 1: "bird", 2: "pedestrian"}
        store = MemoryStore(SOURCE, first.held, NamedMask(Image.fromarray(pixels), classes))
        store.cases = list(cases)
        return store

    first = MemoryStore(SOURCE)
    assert drawn(first) == ([False] * 3, "A photo with bird")
    assert drawn(masked({0, 1}, first.cases)) == ([True] * 3, "A photo with bird")
    walked = masked({0, 1, 2}, first.cases)
    assert drawn(walked) == ([False] * 3, "A photo with bird, pedestrian")
    assert drawn(masked({1, 2}, walked.cases[3:])) == ([True] * 3, "A photo with bird, pedestrian")


def test_a_stop_in_the_middle_of_an_image_keeps_what_was_given() -> None:
    stop, store = threading.Event(), MemoryStore(SOURCE)

    def watch(event: Event) -> None:
        if isinstance(event, Progress) and event.stage == "generation" and event.done == 6:
            stop.set()

    with pytest.raises(Cancelled):
        driver().run(ALL, store, watch, stop)
    assert len(store.held) == 4 and len(store.cases) == 1
    _, said = driven(store)
    assert sum(isinstance(event, ImageDone) and event.reused for event in said) == 1 and len(store.cases) == 3


@pytest.mark.parametrize("attempts", [1, 4])
@pytest.mark.parametrize("stage", ["keywords", "alternatives", "counterfactuals"])
def test_a_stop_while_the_language_model_speaks_lets_it_speak_no_further(stage: str, attempts: int) -> None:
    stop = threading.Event()

    def useless(_prompt: str) -> str:
        stop.set()
        return ""

    values = {name: held.value for name, held in driven()[0].held.items()}
    models = ScriptedModels(ScriptedLanguageModel(useless))
    settings = SETTINGS.model_copy(update={stage: getattr(SETTINGS, stage).model_copy(update={"attempts": attempts})})
    with pytest.raises(Cancelled):
        produce(driver(models), DILLEMA, stage, SOURCE, BIRD, values, settings, cancelled=stop)
    assert len(models.language.prompts) == 1


@pytest.mark.parametrize("said", ["", SUNNY_BIRD])
def test_a_stop_while_another_caption_is_looked_for_ends_the_search(said: str) -> None:
    stop, models = threading.Event(), ScriptedModels()

    class Stopped(ScriptedCaptioner):
        def caption(self, *given: Any) -> tuple[str, str]:
            stop.set()
            return super().caption(*given)

    class Tried(MemoryStore):
        def tries(self, stage: str) -> tuple[StageValue[Any], ...]:
            return tuple(self.held.values())

    store, request = Tried(SOURCE), dataclasses.replace(ALL, stages=("caption",), images=())
    if said:
        driver().run(request, store)
    models.captioner = Stopped(said)
    with pytest.raises(Cancelled):
        driver(models).run(dataclasses.replace(request, anew="caption"), store, cancelled=stop)
    assert models.captioner.calls == 1


def test_every_stage_says_that_it_works() -> None:
    _, said = driven()
    told = [event.stage for event in said if isinstance(event, StageBegan)]
    assert [event.number for event in said if isinstance(event, StageBegan)] == [1, 2, 3, 4]
    assert told == ["caption", "keywords", "alternatives", "counterfactuals"]
    assert {event.stage for event in said if isinstance(event, Progress)} == {"counterfactuals", "generation"}
    assert sum(isinstance(event, DrawingBegan) for event in said) == 1
    assert all(event.image.size == (16, 16) for event in said if isinstance(event, Preview))


def test_the_gate_estimates_from_the_last_image() -> None:
    one, store = driver(), MemoryStore(SOURCE)
    one.run(ALL, store)
    each = one.speeds.seconds(effort_of(SETTINGS.generation, SOURCE.size))
    assert each is not None
    values = {name: held.value for name, held in store.held.items()}
    assert one.plan(DILLEMA, values, SETTINGS, size=SOURCE.size).seconds == pytest.approx(each * 3)
    assert driver().plan(DILLEMA, values, SETTINGS).seconds is None
    assert driver().plan(DILLEMA, {}, SETTINGS).images == ()


def test_the_estimate_of_an_image_counts_its_checks_and_its_saving() -> None:
    class SlowStore(MemoryStore):
        def save_case(self, case: TestCase) -> None:
            time.sleep(0.2)
            super().save_case(case)

    one = driver()
    one.run(ALL, SlowStore(SOURCE))
    each = one.speeds.seconds(effort_of(SETTINGS.generation, SOURCE.size))
    assert each is not None and each >= 0.2


def test_the_profile_s_settings_are_the_defaults() -> None:
    made = produce(driver(), DILLEMA, "keywords", SOURCE, BIRD, {"caption": Caption(SUNNY_BIRD)})
    assert made.trace.settings == load_profile("demo").settings.keywords.model_dump(mode="json")


def test_a_stage_whose_input_is_missing_says_which() -> None:
    with pytest.raises(UserError, match=r"There are no keywords yet: run the second stage, or add one\."):
        produce(driver(), DILLEMA, "alternatives", SOURCE, BIRD, {"caption": Caption(SUNNY_BIRD)})
    with pytest.raises(UserError, match=r"There is no caption yet: run the first stage, or write one\."):
        driver().run(Request(BIRD, SETTINGS, stages=("keywords",), images=()), MemoryStore(SOURCE))


def test_captions_that_all_fail_are_not_generated() -> None:
    models = ScriptedModels(ScriptedLanguageModel("red | attribute", "red: blue", "A cat."))
    with pytest.raises(UserError, match="No counterfactual caption is ticked"):
        driven(models=models)
    assert models.generator.made == []


def test_one_stage_anew_takes_another_seed_and_what_follows_only_where_it_changed() -> None:
    class Remembering(MemoryStore):
        """Store that knows earlier tries, like a workspace."""

        def tries(self, stage: str) -> tuple[Any, ...]:
            return (self.held[stage],) if stage in self.held else ()

    models = ScriptedModels()
    store = Remembering(SOURCE, driven()[0].held)
    onwards = Request(BIRD, SETTINGS, stages=DILLEMA.onwards("keywords"), anew="keywords", images=())
    said: list[Event] = []
    driver(models).run(onwards, store, said.append)
    assert done(said) == {"keywords": False, "alternatives": True, "counterfactuals": True}
    assert models.language.seeds == [1] and store.held["keywords"].trace.seed == 1
    assert next(event for event in said if isinstance(event, StageDone)).unchanged


def test_a_reconstruction_draws_the_caption_as_it_is() -> None:
    models = ScriptedModels()
    store, said = driven(request=dataclasses.replace(ALL, recipe="reconstruction"), models=models)
    assert list(store.held) == ["caption"] and models.language.prompts == []
    (case,) = store.cases
    assert case.lineage.counterfactual == CounterfactualCaption(SUNNY_BIRD, ())
    assert (case.lineage.recipe, case.lineage.prompt) == ("reconstruction", f"{SUNNY_BIRD} Keep: bird.")
    assert not {"edit shows", "edit direction"} & {check.name for check in case.checks}, "there is no edit to show"
    began = next(event for event in said if isinstance(event, StageBegan))
    assert (began.number, began.total) == (1, 2)
    # The recipes share the caption, but not the images.
    _, said = driven(store, models=models)
    assert done(said)["caption"] and not done(said)["images"] and len(store.cases) == 4
    assert is_drawn_from(RECONSTRUCTION.name, case.lineage.counterfactual, {"caption": Caption(SUNNY_BIRD)})


def _in_another_process(data: bytes) -> list[tuple[int, bytes]]:
    store = MemoryStore(SOURCE)
    driver().run(pickle.loads(data), store)
    return [(case.lineage.seed, case.image.tobytes()) for case in store.cases]


@pytest.mark.slow
def test_a_request_does_the_same_in_another_process() -> None:
    captions = (CounterfactualCaption("A blue bird.", ()), CounterfactualCaption("A red bird at night.", ()))
    images = tuple(PlannedImage(caption, 7 + place) for place, caption in enumerate(captions))
    request = Request(BIRD, SETTINGS, prompts={"keywords": "$task $caption"}, stages=("caption",), images=images)
    data = pickle.dumps(request)
    assert pickle.loads(data) == request
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        there = pool.submit(_in_another_process, data).result(120)
    assert there == _in_another_process(data) and [seed for seed, _ in there] == [7, 8]
