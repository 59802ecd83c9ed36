"""The stage for the region where a source may change: its value, the values that it outdates, and its use in a
method.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
from PIL import Image

from core.errors import UserError
from core.images import image_sha
from core.lineage import read_settings
from core.regions import WHOLE, Region, region_of
from core.settings import SettingsWithEdit
from core.types import Caption, Task
from pipeline.driver import Driver
from pipeline.freshness import drawing_key, stale_stages
from pipeline.profiles.profile import load_profile
from pipeline.recipes import RECONSTRUCTION, Recipe
from pipeline.request import MemoryStore, Request
from pipeline.run_files.embedded import read_run_in
from services.studio import Studio
from tests.support.own_region import painting
from tests.support.scripted import SUNNY_BIRD, ScriptedModels, do, parts_of

pytestmark = pytest.mark.slow

BIRD = Task("classification", label="bird")
SOURCE = Image.linear_gradient("L").resize((96, 64)).convert("RGB")
LEFT = Image.new("L", SOURCE.size)
LEFT.paste(255, (0, 0, 40, 64))
PAINTED = region_of(LEFT)


@pytest.fixture(autouse=True)
def recipe() -> Iterator[Recipe]:
    with painting() as known:
        yield known


def request(recipe: Recipe, **fields: object) -> Request:
    driver_settings = recipe.settings_in(load_profile("demo"))
    return Request(BIRD, driver_settings, recipe.name, **fields)  # type: ignore[arg-type]


def test_nobody_has_painted_so_the_whole_picture_may_change(recipe: Recipe) -> None:
    store = MemoryStore(SOURCE)
    Driver(load_profile("demo"), ScriptedModels()).run(request(recipe), store)
    assert store.held["region"].value == WHOLE and store.held["region"].trace.author == "model"
    (case,) = store.cases
    assert case.lineage.settings.region == WHOLE and case.image.getextrema() == ((255, 255), (0, 0), (0, 0))


def test_a_painted_region_reaches_the_method_and_is_recorded_with_the_image(recipe: Recipe) -> None:
    driver = Driver(load_profile("demo"), ScriptedModels())
    store = MemoryStore(SOURCE, {"caption": Caption(SUNNY_BIRD), "region": PAINTED})
    driver.run(request(recipe, stages=()), store)
    (case,) = store.cases
    assert case.lineage.settings.region == PAINTED
    right = (40, 0, 96, 64)
    assert case.image.crop(right).tobytes() == SOURCE.crop(right).tobytes()
    assert case.image.getpixel((39, 5)) == (255, 0, 0)
    driver.run(request(recipe, stages=()), store)
    assert len(store.cases) == 1, "what would be drawn alike is not drawn again"
    other = MemoryStore(SOURCE.resize((64, 64)), {"caption": Caption(SUNNY_BIRD), "region": PAINTED})
    with pytest.raises(UserError, match="of 96x64 pixels, but this picture has 64x64"):
        driver.run(request(recipe, stages=()), other)


def test_a_region_outdates_no_text_and_the_task_outdates_no_region(recipe: Recipe) -> None:
    store = MemoryStore(SOURCE)
    settings = recipe.settings_in(load_profile("demo"))
    Driver(load_profile("demo"), ScriptedModels()).run(request(recipe, images=()), store)
    assert stale_stages(recipe, BIRD, "other", store.held, settings)["region"].startswith("the source image was")
    house = Task("classification", label="house")
    sha = image_sha(SOURCE)
    assert "region" not in stale_stages(recipe, house, sha, store.held, settings)
    values = {"caption": Caption(SUNNY_BIRD), "region": WHOLE}
    whole, painted = (drawing_key(recipe, BIRD, "s", {**values, "region": one}, settings) for one in (WHOLE, PAINTED))
    assert whole != painted and whole.partition(" region")[0] == painted.partition(" region")[0]
    plain = [drawing_key(RECONSTRUCTION, BIRD, "s", {**values, "region": one}, settings) for one in (WHOLE, PAINTED)]
    assert plain[0] == plain[1], "ControlNet does not look at it"
    edited = dataclasses.replace(recipe, method="edit", settings=SettingsWithEdit)
    kept, within = (edited.drawn_with(SettingsWithEdit(), {**values, "region": one}) for one in (WHOLE, PAINTED))
    assert within.region == PAINTED and kept.pixels() != within.pixels()
    assert read_settings("edit", within.plain()) == within, "and it is recorded"


def test_painting_outdates_images_and_can_be_undone_kept_and_taken_elsewhere(studio: Studio) -> None:
    run_id = studio.workspace.runs.create(SOURCE, BIRD, "demo", "bird", studio.profile.settings.model_dump(mode="json"))
    for name, fields in (("recipe", {"recipe": "painted"}), ("run-all", {}), ("generate", {})):
        assert do(studio, run_id, name, **fields) == ""
    card = parts_of(studio, run_id)["region"]
    assert "The whole picture may change." in card and "<textarea hidden" in card

    assert do(studio, run_id, "value", stage="region", text=PAINTED.text) == ""
    state = studio.states.of(run_id)
    assert state.run.values["region"].value.value == PAINTED and not state.stale
    assert set(state.outdated.values()) == {"of an earlier region"} and state.gate.plan is not None
    assert "41.7 % of the picture may change." in parts_of(studio, run_id)["region"]
    assert do(studio, run_id, "generate") == ""
    state = studio.states.of(run_id)
    assert len(state.run.test_cases) == 2 and len(state.outdated) == 1
    held = read_run_in(studio.exchange.saved_image(state.run.test_cases[-1].id)[1])
    assert held is not None and held.run.values["region"].value == PAINTED
    assert held.case is not None and held.case.lineage.settings.region == PAINTED

    assert do(studio, run_id, "undo", stage="region") == ""
    state = studio.states.of(run_id)
    assert state.run.values["region"].value.value == WHOLE and len(state.run.test_cases) - len(state.outdated) == 1
    assert do(studio, run_id, "redo") == ""
    assert studio.states.of(run_id).run.values["region"].value.value == PAINTED


def test_what_is_no_region_of_the_source_is_refused_and_nothing_is_lost(studio: Studio) -> None:
    run_id = studio.workspace.runs.create(SOURCE, BIRD, "demo", "bird", studio.profile.settings.model_dump(mode="json"))
    do(studio, run_id, "recipe", recipe="painted")
    assert do(studio, run_id, "value", stage="region", text=PAINTED.text) == ""
    for text, reason in (
        (region_of(LEFT.resize((48, 32))).text, "of 48x32 pixels, but this picture has 96x64 pixels: paint"),
        (PAINTED.text[:-2], "do not add up to its size: paint it again."),
        (region_of(Image.new("L", SOURCE.size)).text, "Nothing is painted"),
    ):
        assert reason in do(studio, run_id, "value", stage="region", text=text)
    assert studio.states.of(run_id).run.values["region"].value.value == PAINTED


def test_who_paints_over_what_another_page_painted_is_told(studio: Studio) -> None:
    run_id = studio.workspace.runs.create(SOURCE, BIRD, "demo", "bird", studio.profile.settings.model_dump(mode="json"))
    do(studio, run_id, "recipe", recipe="painted")
    do(studio, run_id, "value", stage="region", text=PAINTED.text, tab="one")
    seen = studio.states.of(run_id).run.values["region"].id
    do(studio, run_id, "value", stage="region", text=Region().text, tab="two", version=seen)
    do(studio, run_id, "value", stage="region", text=region_of(LEFT.rotate(180)).text, tab="one", version=seen)
    told = studio.states.of(run_id).notices["region"]
    assert told.startswith("“Region” was changed elsewhere in the meantime") and "in the history" in told
    assert len(studio.workspace.runs.history(run_id, "region")) == 3
