"""The method `edit` on the embedded models: results, records, search for a strength, batches, refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.lineage import DrawnBatch, TestCase
from core.settings import EditSettings, SettingsWithEdit
from core.types import Caption, CounterfactualCaption, CounterfactualCaptions, Task
from demo.check_truth import part_shows
from demo.language import caption
from demo.render import render
from demo.scene import PROTECTED_ROAD_CLASSES, random_scene
from pipeline.checks.drift import FRAMING_KEPT
from pipeline.checks.images import INVERTED
from pipeline.driver import Driver, SourceWork
from pipeline.lots import draw
from pipeline.methods import read_lineage
from pipeline.methods.edit import EDIT, SWEEP, EditedSettings
from pipeline.profiles.profile import load_profile
from pipeline.recipes import DILLEMA, Recipe, recipes_for
from pipeline.request import MemoryStore, Request
from pipeline.run_files.webui import MadeWith
from pipeline.seams import CaseRequest, Source
from pipeline.stages.generation import plan
from services.studio import Studio
from tests.support.demo_server import demo_models
from tests.support.own_recipe import registered
from tests.support.scripted import ScriptedModels, models_of, noise, parts_of, performed
from tests.support.workspaces import workspace_in

DEMO = load_profile("demo")
ROAD = Task("segmentation", protected=PROTECTED_ROAD_CLASSES)
SCENE = random_scene(2_100_003, "road").with_look(weather="snowy", time="night")
IMAGE = Image.fromarray(render(SCENE)[0])
SAID = caption(SCENE)
OWN, SUNNY, DAY = (
    CounterfactualCaption(caption(SCENE.with_look(**look)), ()) for look in ({}, {"weather": "sunny"}, {"time": "day"})
)
RECIPE = Recipe(
    name="edited",
    title="Edited",
    description="Edits of the inverted source.",
    stages=DILLEMA.stages,
    captions=DILLEMA.captions,
    method="edit",
    settings=SettingsWithEdit,
)


def settings(steps: int = 4, guidance: float = 1.0, **edit: object) -> SettingsWithEdit:
    shared = {name: getattr(DEMO.settings, name) for name in type(DEMO.settings).model_fields}
    changes = {"steps": steps, "guidance": guidance, "inversion_evaluations": 2}
    drawing = DEMO.settings.generation.model_copy(update=changes)
    return SettingsWithEdit.model_validate(shared | {"generation": drawing, "edit": EditSettings.model_validate(edit)})


class Kept(dict[str, bytes]):
    """Inversions in memory that the tests share."""

    read, save = dict.get, dict.__setitem__


KEPT = Kept()


def edit_method() -> Any:
    return EDIT.with_models(models_of(demo_models().generator), DILLEMA.prompts("demo"), inversions=KEPT)


def made(
    asked: SettingsWithEdit, *captions: CounterfactualCaption, size: int = 0, region: Image.Image | None = None
) -> list[TestCase]:
    """Draw captions as one batch, with the checks that need no embedder."""
    method = edit_method()
    prepared = method.prepare(Source(IMAGE, ROAD, SAID, region=region), EDIT.settings_of(asked, SAID))
    wanted = [CaseRequest(one, 0, place) for place, one in enumerate(captions)]
    size = size or len(wanted)
    return [finish() for finish in method.make([prepared] * len(wanted), wanted, size, lambda *_: None)]


def own_settings(case: TestCase) -> EditedSettings:
    assert isinstance(case.lineage.settings, EditedSettings)
    return case.lineage.settings


def apart(one: TestCase, other: TestCase) -> float:
    """Return the mean distance of two images in grey values."""
    return float(np.abs(np.asarray(one.image, float) - np.asarray(other.image, float)).mean())


@pytest.fixture
def recipe() -> Iterator[Recipe]:
    with registered(RECIPE) as held:
        yield held


# On the embedded models


@pytest.mark.demo
@pytest.mark.slow
def test_an_edit_shows_the_rest_stays_and_its_record_tells_how_it_was_drawn() -> None:
    own, sunny, day = made(settings(), OWN, SUNNY, DAY)
    assert apart(sunny, own) > 5 and apart(day, own) > 5
    (free,) = made(settings(cross_replace=0, self_replace=0), SUNNY)
    assert apart(sunny, own) < apart(free, own), "attention control keeps more of the source"
    names = [check.name for check in sunny.checks]
    assert names[0] == FRAMING_KEPT and INVERTED in names and sunny.checks[0].passed
    recorded = own_settings(sunny)
    assert (recorded.source_caption, recorded.generation.start, recorded.drawn_in) == (
        SAID,
        "inverted",
        DrawnBatch(size=3, place=1),
    )
    assert sunny.lineage.negative_prompt == f"{SAID} Keep: {', '.join(ROAD.kept())}."
    assert read_lineage(json.loads(json.dumps(sunny.lineage.plain()))) == sunny.lineage
    assert EDIT.drawn_alike(recorded, EDIT.settings_of(settings(), SAID))
    assert not EDIT.drawn_alike(recorded, EDIT.settings_of(settings(self_replace=0.9), SAID))
    for guidance in (1.0, 3.0):
        (alone,) = made(settings(guidance=guidance), OWN)
        assert alone.image.tobytes() == own.image.tobytes(), "its own caption gives the source through the VAE"

    left = Image.new("L", IMAGE.size)
    left.paste(255, (0, 0, IMAGE.width // 2, IMAGE.height))
    (half,) = made(settings(), SUNNY, region=left)
    change = np.abs(np.asarray(half.image, float) - np.asarray(own.image, float)).mean((0, 2))
    assert change[: IMAGE.width // 4].mean() > 5 and change[3 * IMAGE.width // 4 :].max() < 1


@pytest.mark.demo
@pytest.mark.slow
def test_a_faint_edit_shows_once_it_is_strengthened_and_a_plain_one_stays_the_same() -> None:
    walled = random_scene(7_560_010)
    goal = walled.with_look(walls="plastered")
    said, wanted = caption(walled), CounterfactualCaption(caption(goal), ())
    method, found = edit_method(), dict[float, TestCase]()
    for least in (0.0, 0.6):
        asked = settings(5, cross_replace=0, self_replace=0, least_change=least)
        source = Source(Image.fromarray(render(walled)[0]), ROAD, said)
        prepared = method.prepare(source, EDIT.settings_of(asked, said))
        (finish,) = method.make([prepared], [CaseRequest(wanted, 0, 0)], 1, lambda *_: None)
        found[least] = finish()
    assert [part_shows(walled, goal, "walls", np.asarray(case.image)) for case in found.values()] == [False, True]
    sunny = [made(settings(least_change=least), SUNNY)[0].image.tobytes() for least in (0.0, 0.6)]
    assert sunny[0] == sunny[1], "light and weather change more than that"


@pytest.mark.demo
@pytest.mark.slow
def test_a_batch_and_single_images_differ_by_at_most_one_grey_value() -> None:
    together = made(settings(), SUNNY, DAY, OWN)
    for place, (case, said) in enumerate(zip(together, (SUNNY, DAY, OWN), strict=True)):
        (alone,) = made(settings(), said)
        assert np.abs(np.asarray(case.image, int) - np.asarray(alone.image, int)).max() <= 1
        assert own_settings(alone).drawn_in == DrawnBatch() and own_settings(case).batch.place == place
    long = CounterfactualCaption(" ".join([SUNNY.text] * 4), ())
    together = made(settings(), SUNNY, long, DAY)
    (filled,) = made(settings(), SUNNY, size=3)
    (other,) = made(settings(), long, size=3)
    assert np.abs(np.asarray(together[1].image, int) - np.asarray(other.image, int)).max() <= 1
    assert filled.image.tobytes() == together[0].image.tobytes(), "what stands beside it changes nothing"


@pytest.mark.demo
@pytest.mark.slow
def test_a_sweep_stops_at_the_first_strength_that_passes_and_drops_those_that_draw_the_same() -> None:
    asked = settings(sweep="self-replacement")
    values = EDIT.settings_of(asked, SAID)
    assert isinstance(values, EditedSettings) and values.swept == (0.4, 0.7, 0.9), "1.6, 2.8 and 3.6 of four steps"
    sunny, own = made(asked, SUNNY, OWN)
    taken = own_settings(sunny).taken
    assert taken in values.swept and own_settings(own).taken in values.swept
    (single,) = made(settings(self_replace=taken), SUNNY, size=2)
    assert single.image.tobytes() == sunny.image.tobytes()
    assert (sunny.checks[-1].name, sunny.checks[-1].value) == (SWEEP, taken)
    assert "At 4 steps 3 other values draw the same" in sunny.checks[-1].note
    assert EDIT.drawn_alike(own_settings(sunny), values)

    full = settings(sweep="guidance", full_sweep=True)
    (found,) = made(full, SUNNY)
    strength = own_settings(found).taken
    assert strength is not None and own_settings(found).drawn_in == DrawnBatch() and "draw the same" not in str(found)
    words = EDIT.parameters(found.lineage, IMAGE.size, MadeWith("UniPCMultistepScheduler"))
    assert (words["CFG scale"], words["Self replace"], words["Start"]) == (strength, 0.5, "inverted source")
    (single,) = made(settings(guidance=strength), SUNNY)
    assert np.abs(np.asarray(found.image, int) - np.asarray(single.image, int)).max() <= 1


@contextmanager
def evaluations() -> Iterator[list[int]]:
    """Record the number of rows in each evaluation of the denoising network, in order."""
    generator: Any = demo_models().generator.on("canny")
    rows = list[int]()
    with generator._pipe.unet.register_forward_pre_hook(
        lambda _unet, given, named: rows.append(len(given[0] if given else named["sample"])), with_kwargs=True
    ):
        yield rows


@pytest.mark.demo
@pytest.mark.slow
def test_a_second_edit_after_a_restart_of_the_studio_evaluates_the_network_for_the_edit_alone(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as workspace:
        run_id = workspace.runs.create(IMAGE, ROAD, "demo", "road", DEMO.settings.model_dump(mode="json"))

    def drawn(*commands: tuple[str, dict[str, str]]) -> tuple[list[int], list[str]]:
        with workspace_in(tmp_path / "workspace") as workspace, evaluations() as rows:
            studio = Studio(DEMO, demo_models(), workspace)
            for name, fields in (*commands, ("generate", {})):
                assert not performed(studio, run_id, name, **fields).problem
            studio.close()
            return rows, [case.image_sha for case in workspace.runs.get(run_id).test_cases]

    begun = ("recipe", {"recipe": "lance"}), ("run", {"stage": "region"}), ("caption", {"text": SAID})
    first, (sunny,) = drawn(*begun, ("counterfactual-add", {"new": SUNNY.text}))
    steps = DEMO.settings.generation.steps
    assert set(first) == {1} and len(first) >= 3 * steps
    second, (again, day) = drawn(("counterfactual-add", {"new": DAY.text}))
    assert second == [1] * steps and again == sunny != day, "the new picture alone, once a step"


@pytest.mark.demo
@pytest.mark.slow
def test_images_of_several_sources_are_drawn_beside_their_own(recipe: Recipe) -> None:
    flipped, works = IMAGE.transpose(Image.Transpose.FLIP_LEFT_RIGHT), list[SourceWork]()
    for picture in (IMAGE, flipped):
        asked = settings().model_copy(update={"generation": settings().generation.model_copy(update={"batch": 2})})
        images = plan(CounterfactualCaptions((SUNNY,)), EDIT.planning(asked), 4).images
        store = MemoryStore(picture, {"caption": Caption(SAID)})
        works.append(SourceWork(Request(ROAD, asked, recipe.name, stages=(), images=images), store))
    draw(Driver(DEMO, demo_models(), inversions=KEPT), works, at_once=2)
    first, second = (work.store.cases[0] for work in works if isinstance(work.store, MemoryStore))
    assert first.image.tobytes() == made(settings(), SUNNY, size=2)[0].image.tobytes()
    assert own_settings(second).drawn_in == DrawnBatch(size=2) and apart(first, second) > 5


@pytest.mark.demo
@pytest.mark.slow
def test_what_cannot_be_edited_is_refused_in_one_sentence() -> None:
    shouted = CounterfactualCaption(SAID.upper(), ())
    method = edit_method()
    prepared = method.prepare(Source(IMAGE, ROAD, SAID), EDIT.settings_of(settings(), SAID))
    wanted = [CaseRequest(SUNNY, 0, 0), CaseRequest(shouted, 0, 1)]
    finish, refused = method.make([prepared] * 2, wanted, 2, lambda *_: None)
    with evaluations() as rows:
        (alone,) = method.make([prepared], wanted[1:], 2, lambda *_: None)
    assert not rows, "it is found before anything is drawn"
    for unread in (refused, alone):
        with pytest.raises(UserError, match="reads no difference between this caption and that of the source"):
            unread()
    assert finish().image.size == IMAGE.size

    rough = settings(steps=2)
    rough = rough.model_copy(update={"generation": rough.generation.model_copy(update={"inversion_evaluations": 1})})
    with pytest.raises(UserError, match=r"it reaches a PSNR of only \d+\.\d dB, and 25 dB are needed") as told:
        method.prepare(Source(noise("a", 1, (128, 128)), ROAD, SAID), EDIT.settings_of(rough, SAID))
    assert "the recipe DILLEMA" in str(told.value)


@pytest.mark.demo
@pytest.mark.slow
def test_the_page_tells_at_the_last_card_that_a_source_does_not_invert(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as workspace:
        studio, source = Studio(DEMO, demo_models(), workspace), noise("a", 1, (128, 128))
        run_id = workspace.runs.create(source, ROAD, "demo", "noise", DEMO.settings.model_dump(mode="json"))
        commands: list[tuple[str, dict[str, object]]] = [
            ("recipe", {"recipe": "lance"}),
            ("setting", {"setting": "generation.steps", "value": 2}),
            ("setting", {"setting": "generation.inversion_evaluations", "value": 1}),
            ("run", {"stage": "region"}),
            ("caption", {"text": SAID}),
            ("counterfactual-add", {"new": SUNNY.text}),
            ("generate", {}),
        ]
        for name, fields in commands:
            assert not performed(studio, run_id, name, **fields).problem
        card = parts_of(studio, run_id)["generation"]
        assert not workspace.runs.get(run_id).test_cases
        studio.close()
    assert "redrawn without a change, it reaches a PSNR of only" in card and "use the recipe DILLEMA" in card


def test_models_that_cannot_be_inverted_draw_no_edits(recipe: Recipe) -> None:
    modern = load_profile("modern")
    assert recipe in recipes_for(DEMO) and recipe not in recipes_for(modern)
    assert EDIT.cannot_draw(modern).startswith("Z-Image cannot be inverted")
    with pytest.raises(UserError, match="cannot be inverted"):
        Driver(modern, ScriptedModels()).run(Request(ROAD, settings(), recipe.name), MemoryStore(IMAGE))


def test_the_page_offers_its_own_settings_and_makes_each_caption_once(recipe: Recipe, tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as workspace:
        studio = Studio(DEMO, ScriptedModels(), workspace)
        run_id = workspace.runs.create(IMAGE, ROAD, "demo", "road", DEMO.settings.model_dump(mode="json"))
        assert not performed(studio, run_id, "recipe", recipe=recipe.name).problem
        assert not performed(studio, run_id, "setting", setting="edit.sweep", value="guidance").problem
        card = parts_of(studio, run_id)["generation"]
        for name in (
            "edit.cross_replace",
            "edit.local_blend",
            "edit.least_change",
            "generation.inversion_evaluations",
            "generation.guidance",
        ):
            assert f'data-setting="{name}"' in card
        for name in ("generation.start", "generation.fresh_noise", "generation.negative_prompt"):
            assert f'data-setting="{name}"' not in card
        assert EDIT.equal_images(EDIT.settings_of(settings())).startswith("An edit of the inverted source")
        studio.close()
