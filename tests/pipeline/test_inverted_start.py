"""Drawing from the inverted source on the embedded models: what stays, what the result depends on, and refusals."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from core.errors import Cancelled, UserError
from core.lineage import DrawnBatch, TestCase, read_settings
from core.progress import Progress
from core.settings import GenerationSettings, Settings
from core.types import Caption, CounterfactualCaption, CounterfactualCaptions, Edit, StageValue, Task, Trace
from demo.language import caption
from demo.render import render
from demo.scene import PROTECTED_ROAD_CLASSES, random_scene
from pipeline.checks.images import INVERTED
from pipeline.driver import Driver, SourceWork, ignore
from pipeline.freshness import drawing_key
from pipeline.lots import draw
from pipeline.methods.controlnet import CONTROLNET, ControlNetSettings
from pipeline.models.inverting import Inverter
from pipeline.profiles.image_sections import Scheduler
from pipeline.profiles.profile import Profile, load_profile
from pipeline.recipes import DILLEMA
from pipeline.request import Emit, Event, MemoryStore, Request
from pipeline.run_files.webui import MadeWith
from pipeline.seams import Source
from pipeline.stages import generation
from services.runs.gate import EARLIER_SOURCE_CAPTION, Outdated
from services.studio import Studio
from tests.support.cases import made_case
from tests.support.demo_server import demo_models
from tests.support.scripted import NoiseGenerator, ScriptedModels, parts_of, performed
from tests.support.workspaces import workspace_in

DEMO = load_profile("demo")
ROAD = Task("segmentation", protected=PROTECTED_ROAD_CLASSES)
SCENE = random_scene(2_100_003, "road").with_look(weather="snowy", time="night")
SOURCE = Image.fromarray(render(SCENE)[0])
SAID = caption(SCENE)
OWN, SUNNY = (CounterfactualCaption(text, ()) for text in (SAID, caption(SCENE.with_look(weather="sunny"))))


def settings(**drawing: object) -> Settings:
    alike = {"start": "inverted", "inversion_evaluations": 2, "fresh_noise": 0.0, "fresh_noise_by_type": ""}
    asked = alike | drawing
    return DEMO.settings.model_copy(update={"generation": DEMO.settings.generation.model_copy(update=asked)})


def store_of(*captions: CounterfactualCaption, said: str = SAID, source: Image.Image = SOURCE) -> MemoryStore:
    return MemoryStore(source, {"caption": Caption(said), "counterfactuals": CounterfactualCaptions(captions)})


def drawn(driver: Driver, asked: Settings, *captions: CounterfactualCaption, tell: Emit = ignore) -> list[TestCase]:
    store = store_of(*captions)
    driver.run(Request(ROAD, asked, seed=4, stages=()), store, tell)
    return store.cases


def apart(one: TestCase, other: TestCase | Image.Image) -> float:
    """Return the mean distance of two images in grey values."""
    image = other.image if isinstance(other, TestCase) else other
    return float(np.abs(np.asarray(one.image, float) - np.asarray(image, float)).mean())


# On the embedded models


@pytest.mark.demo
@pytest.mark.slow
def test_it_keeps_more_of_the_source_shows_the_edit_and_its_seeds_mean_something_with_fresh_noise_only() -> None:
    driver, events = Driver(DEMO, demo_models()), list[Event]()
    from_noise = drawn(driver, settings(start="noise"), OWN, SUNNY)
    own, sunny = drawn(driver, settings(images_per_caption=3), OWN, SUNNY, tell=events.append)
    inverting = [event for event in events if isinstance(event, Progress) and event.note == "inverting the source"]
    done = sorted({at.done for at in inverting})
    assert {at.total for at in inverting} == {15} and done[:-1] == list(range(1, len(done))) and done[-1] == 15
    assert apart(own, SOURCE) < apart(from_noise[0], SOURCE) / 2
    assert apart(sunny, own) > 5, "the edit shows"
    (check,) = [check for check in own.checks if check.name == INVERTED]
    assert check.passed and check.value is not None and check.value > 35
    assert own.lineage.seed == sunny.lineage.seed == 0 and own.lineage.settings.source_caption == SAID

    guided_own, guided = drawn(driver, settings(guidance=3.0), OWN, SUNNY)
    assert guided_own.lineage.negative_prompt == SAID and apart(guided_own, own) < 1, "guidance adds the edit alone"
    assert apart(guided, own) > 5
    (worded,) = drawn(driver, settings(guidance=3.0, negative_prompt="rain"), OWN)
    assert worded.lineage.negative_prompt == "rain"

    several = drawn(driver, settings(images_per_caption=2, fresh_noise=0.2), OWN)
    assert len(several) == 2 and 0 < apart(*several) < apart(several[0], from_noise[0])
    weather = CounterfactualCaption(SUNNY.text, (Edit("snowy", "sunny", "weather"),))
    by_type = drawn(driver, settings(fresh_noise=0.2, fresh_noise_by_type="weather 1"), OWN, weather)
    expected = several[0], from_noise[1]
    assert [apart(one, other) for one, other in zip(by_type, expected, strict=True)] == [0, 0], "noise by DDIM"


@pytest.mark.demo
@pytest.mark.slow
def test_a_kept_inversion_gives_the_same_pixels_after_a_restart_and_beside_other_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, asked = demo_models(), settings(fresh_noise=0.1, batch=2)
    scene = random_scene(2_100_004, "road")
    other, said = Image.fromarray(render(scene)[0]), caption(scene)
    with workspace_in(tmp_path / "workspace") as workspace:
        driver = Driver(DEMO, models, inversions=workspace.inversions)
        first = drawn(driver, asked, OWN, SUNNY)
        works = list[SourceWork]()
        for picture, under, captions in ((SOURCE, SAID, (OWN,)), (other, said, (CounterfactualCaption(said, ()),))):
            images = generation.plan(CounterfactualCaptions(captions), asked.generation, 4).images
            store = store_of(*captions, said=under, source=picture)
            works.append(SourceWork(Request(ROAD, asked, seed=4, stages=(), images=images), store))
        draw(driver, works, at_once=2)
    beside, stranger = (work.store.cases[0] for work in works if isinstance(work.store, MemoryStore))
    assert (beside.lineage.settings.drawn_in, stranger.lineage.settings.drawn_in) == (
        DrawnBatch(size=2, place=0),
        DrawnBatch(size=2, place=1),
    )
    with workspace_in(tmp_path / "workspace") as workspace:
        monkeypatch.setattr(Inverter, "invert", None)  # any further inversion fails
        driver = Driver(DEMO, models, inversions=workspace.inversions)
        again, (resumed,) = drawn(driver, asked, OWN, SUNNY), drawn(driver, asked, OWN)
    assert [case.image.tobytes() for case in again] == [case.image.tobytes() for case in first]
    assert resumed.image.tobytes() == first[0].image.tobytes() == beside.image.tobytes()


@pytest.mark.demo
@pytest.mark.slow
def test_a_stop_ends_the_inversion() -> None:
    store, stop, told = store_of(OWN), threading.Event(), list[int]()

    def tell(event: Event) -> None:
        if isinstance(event, Progress) and event.note == "inverting the source":
            told.append(event.done)
            stop.set()

    with pytest.raises(Cancelled):
        Driver(DEMO, demo_models()).run(Request(ROAD, settings(), stages=()), store, tell, stop)
    assert told == [1] and not store.cases


@pytest.mark.demo
@pytest.mark.slow
def test_the_page_makes_equal_images_once_and_says_so(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as workspace:
        studio = Studio(DEMO, demo_models(), workspace)
        run_id = workspace.runs.create(SOURCE, ROAD, "demo", "road", DEMO.settings.model_dump(mode="json"))

        def do(name: str, **fields: object) -> str:
            return performed(studio, run_id, name, **fields).problem

        do("recipe", recipe="reconstruction")
        do("run-all")
        do("setting", setting="generation.start", value="noise")
        card = parts_of(studio, run_id)["generation"]
        assert 'data-setting="generation.start"' in card and "generation.fresh_noise" not in card
        do("setting", setting="generation.start", value="inverted")
        changes = {"fresh_noise_by_type": "", "fresh_noise": 0, "images_per_caption": 3, "inversion_evaluations": 1}
        for name, value in changes.items():
            assert not do("setting", setting=f"generation.{name}", value=value)
        card = parts_of(studio, run_id)["generation"]
        assert 'data-setting="generation.fresh_noise"' in card and "1 image from 1 caption" in card
        assert "all images of a caption are equal, so one is made" in card
        assert not do("generate")
        (case,) = studio.states.of(run_id).run.test_cases
        gate = studio.states.of(run_id).gate
        assert gate.plan is None and "are equal, so one is made" in gate.closed
        assert "are equal, so one is made" in do("regenerate", case=case.id)

        do("setting", setting="generation.fresh_noise", value=0.3)
        plan = studio.states.of(run_id).gate.plan
        assert plan is not None and len(plan.images) == 3, "with fresh noise they differ"
        before = studio.states.of(run_id).outdated
        do("setting", setting="generation.fresh_noise", value=0)
        assert not before and studio.states.of(run_id).gate.plan is None
        studio.close()


# What depends on what


def test_a_caption_takes_the_largest_share_of_fresh_noise_of_its_edit_types() -> None:
    asked = settings(
        fresh_noise=0.1, fresh_noise_by_type=GenerationSettings(fresh_noise_by_type="Weather .8").fresh_noise_by_type
    )
    assert asked.generation.fresh_noise_by_type == "weather 0.8"
    own, weather, hour = (
        CounterfactualCaption(SAID, tuple(Edit("a", "b", kind) for kind in kinds))
        for kinds in ((), ("time of day", "weather"), ("time of day",))
    )
    drawn_with = CONTROLNET.settings_of(asked, SAID)
    for caption_drawn, share in ((own, 0.1), (weather, 0.8), (hour, 0.1)):
        lineage = made_case(SOURCE, counterfactual=caption_drawn, method="controlnet", settings=drawn_with).lineage
        words = CONTROLNET.parameters(lineage, SOURCE.size, MadeWith("UniPCMultistepScheduler"))
        assert words["Fresh noise"] == share
    assert not CONTROLNET.equal_images(drawn_with) and not CONTROLNET.refused(DEMO, drawn_with)
    bare = CONTROLNET.settings_of(settings(fresh_noise_by_type="weather 0.8"), SAID)
    assert "some fresh noise for all captions" in CONTROLNET.refused(DEMO, bare), "else their seeds would be equal"


@pytest.mark.parametrize("typed", ["weather", "weather 2", "sun 0.2", "0.3", "weather nan", "weather -1"])
def test_anything_else_than_types_with_their_shares_is_refused(typed: str) -> None:
    with pytest.raises(ValidationError, match="edit type"):
        GenerationSettings(fresh_noise_by_type=typed)


def test_another_caption_of_the_source_outdates_images_of_the_inverted_source_only() -> None:
    values = store_of(OWN, SUNNY).values()
    bare = {name: value.value for name, value in values.items()}
    reworded = bare | {"caption": Caption("A street.")}
    for asked, depends in ((settings(), True), (settings(start="noise"), False)):
        before, after = (drawing_key(DILLEMA, ROAD, "s", one, asked) for one in (bare, reworded))
        assert (before != after) == depends
        keys = [
            CONTROLNET.preparation_key(Source(SOURCE, ROAD, said), CONTROLNET.settings_of(asked, said))
            for said in (SAID, "A street.")
        ]
        assert (keys[0] != keys[1]) == depends
        own, other = (CONTROLNET.settings_of(asked, said) for said in (SAID, "A street."))
        assert CONTROLNET.drawn_alike(own, other) != depends
        assert CONTROLNET.shape(own, (128, 128)) == CONTROLNET.shape(other, (128, 128)), "they share a batch"
        assert read_settings("controlnet", own.plain()).pixels() == own.pixels()
    more = settings(inversion_evaluations=5)
    assert not CONTROLNET.drawn_alike(CONTROLNET.settings_of(settings()), CONTROLNET.settings_of(more))
    unread = (settings(start="noise", inversion_evaluations=n, fresh_noise=n / 9) for n in (1, 5))
    assert CONTROLNET.drawn_alike(*(CONTROLNET.settings_of(one) for one in unread))


def test_images_of_an_earlier_caption_of_the_source_are_stale_on_the_page(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as workspace:
        run_id = workspace.runs.create(SOURCE, ROAD, "demo", "road", DEMO.settings.model_dump(mode="json"))
        for name, value in store_of(OWN).values().items():
            workspace.runs.append_value(run_id, name, value)
        for start in ("inverted", "noise"):
            own = CONTROLNET.settings_of(settings(start=start), SAID)
            case = made_case(SOURCE, counterfactual=OWN, method="controlnet", settings=own, task=ROAD)
            workspace.test_cases.append(run_id, None, case)
        outdated = Outdated(workspace)
        assert not outdated.reasons(workspace.runs.get(run_id), SOURCE.size)
        workspace.runs.append_value(run_id, "caption", StageValue(Caption("A street."), Trace("person"), ""))
        run = workspace.runs.get(run_id)
        assert outdated.reasons(run, SOURCE.size) == {run.test_cases[0].id: EARLIER_SOURCE_CAPTION}


def test_files_say_how_an_image_was_drawn_and_those_from_noise_say_what_they_always_did() -> None:
    own = CONTROLNET.settings_of(settings(fresh_noise=0.2), SAID)
    lineage = made_case(SOURCE, method="controlnet", settings=own).lineage
    words = CONTROLNET.parameters(lineage, SOURCE.size, MadeWith("UniPCMultistepScheduler"))
    assert (words["Sampler"], words["Start"], words["Fresh noise"]) == ("DDIM", "inverted source", 0.2)
    assert own.plain()["generation"]["start"] == "inverted" and own.plain()["inverted_under"] == SAID
    noise = ControlNetSettings().plain()
    assert "inverted_under" not in noise and "start" not in noise["generation"]
    assert read_settings("controlnet", noise) == ControlNetSettings()


def test_the_time_of_an_inversion_is_part_of_the_plan() -> None:
    driver, values = Driver(DEMO, ScriptedModels()), {"counterfactuals": CounterfactualCaptions((OWN, SUNNY))}
    driver.speeds.add(CONTROLNET.effort(CONTROLNET.settings_of(settings()), (128, 128)), 2.0)
    seconds = [
        driver.plan(DILLEMA, values, asked, size=(128, 128)).seconds
        for asked in (settings(start="noise"), settings(inversion_evaluations=3))
    ]
    assert seconds == [4.0, 4.0 + 8.0]


# Refusals


def changed(generator: str, **scheduler: object) -> Profile:
    profile = load_profile(generator)
    if not scheduler:
        return profile
    section = profile.generator.model_copy(update={"scheduler": Scheduler.model_validate(scheduler)})
    return profile.model_copy(update={"generator": section})


@pytest.mark.parametrize(
    ("profile", "said"),
    [
        (changed("modern"), "Z-Image cannot be inverted: use a profile with Stable Diffusion."),
        (changed("demo", name="LCMScheduler"), "LCMScheduler does not lead back to the noise"),
        (
            changed("demo", name="DPMSolverMultistepScheduler", options={"algorithm_type": "sde-dpmsolver++"}),
            "does not lead back to the noise",
        ),
    ],
)
def test_a_model_that_cannot_be_inverted_is_refused_before_anything_is_made(profile: Profile, said: str) -> None:
    kind = next(iter(profile.generator.by_kind()))
    asked = settings().model_copy(update={"conditioning": DEMO.settings.conditioning.model_copy(update={"kind": kind})})
    assert said in CONTROLNET.refused(profile, CONTROLNET.settings_of(asked))
    noise = asked.model_copy(update={"generation": GenerationSettings()})
    assert not CONTROLNET.refused(profile, CONTROLNET.settings_of(noise))
    models = ScriptedModels()
    with pytest.raises(UserError, match=said.split(":")[0]):
        Driver(profile, models).run(Request(ROAD, asked), MemoryStore(SOURCE))
    assert not models.captioner.calls


class OneWay(NoiseGenerator):
    """Generator that cannot invert."""

    inverting = None  # type: ignore[assignment]


def test_a_generator_without_a_way_back_is_refused_when_the_source_is_prepared() -> None:
    models = ScriptedModels()
    models.generator = OneWay()
    with pytest.raises(UserError, match="cannot be inverted"):
        drawn(Driver(DEMO, models), settings(), OWN)


def test_the_demo_starts_from_the_source_and_its_seeds_mean_something() -> None:
    drawing = DEMO.settings.generation
    assert drawing.inverted and drawing.fresh_noise_of(["weather"]) > drawing.fresh_noise_of(["attribute"]) > 0
    drawn_with = CONTROLNET.settings_of(DEMO.settings, SAID)
    assert not CONTROLNET.refused(DEMO, drawn_with) and not CONTROLNET.equal_images(drawn_with)
