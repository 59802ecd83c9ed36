"""Tests for the steps around drawing an image: kinds of control image, seeds, speeds, previews, and the queue."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from PIL import Image

from core.errors import Cancelled, UserError
from core.lineage import read_settings
from core.masks import NamedMask
from core.progress import Progress
from core.settings import ConditioningSettings, GenerationSettings
from core.types import CounterfactualCaption, CounterfactualCaptions, Edit, Task
from pipeline.conditioning import UNLABELLED, colour_of, control_image, edges
from pipeline.drawing_speed import Effort, SideTime, Speeds, effort_of
from pipeline.driver import Driver, FixedWorklist, Worklist
from pipeline.methods import METHODS
from pipeline.methods.controlnet import CONTROL_IMAGE, CONTROLNET, ControlNetSettings
from pipeline.profiles.profile import load_profile
from pipeline.recipes import DILLEMA
from pipeline.request import Event, MemoryStore, Preview, Request
from pipeline.seams import Source
from pipeline.stages import generation
from services.jobs import JobHandle, JobQueue
from services.queries import run_facts
from services.runs.live_images import KEPT_PREVIEWS, Previews
from services.runs.state import profile_options
from services.studio import Studio
from tests.support.scripted import (
    InvertingDetector,
    NoiseGenerator,
    ScriptedEmbedder,
    ScriptedModels,
    do,
    models_of,
    one_case,
    over,
    parts_of,
    perform,
)
from tests.support.serving import until
from tests.support.workspaces import workspace_in
from ui.explore.drawing_routes import add_drawing_routes
from ui.explore.generation import generation_card
from ui.explore.runs import queue_part

BIRD = Task("classification", label="bird")
RED = Image.new("RGB", (60, 40), (200, 40, 40))
ONE = CounterfactualCaption("A blue bird.", (Edit("red", "blue", "attribute"),))
TWO = CounterfactualCaption("A bird in rain.", (Edit("sunny", "rainy", "weather"),))


# Kinds of control image


def test_a_segmentation_map_has_the_colours_of_the_classes_and_the_size_of_the_image() -> None:
    numbers = np.zeros((20, 30), np.uint8)
    numbers[:, 10:20], numbers[:, 20:] = 7, 9
    mask = NamedMask(Image.fromarray(numbers), {0: "Sky", 7: "vehicles", 9: "dragon"})
    shown = np.asarray(control_image(RED, ConditioningSettings(kind="segmentation"), mask=mask))
    assert shown.shape == (40, 60, 3)
    assert [tuple(shown[5, x]) for x in (5, 30, 55)] == [(6, 230, 230), (0, 102, 200), UNLABELLED]
    assert colour_of("lane marking") == colour_of("road") and colour_of("Pedestrian") == colour_of("person")
    with pytest.raises(UserError, match="mask"):
        control_image(RED, ConditioningSettings(kind="segmentation"))


def test_what_a_model_draws_comes_back_in_the_size_of_the_image() -> None:
    shown = control_image(RED, ConditioningSettings(kind="depth"), lambda _kind: InvertingDetector())
    assert shown.size == RED.size and shown.getpixel((3, 3)) == (55, 215, 215)
    with pytest.raises(UserError, match="soft edges"):
        control_image(RED, ConditioningSettings(kind="soft edges"))


def test_the_method_draws_on_the_kind_that_is_chosen() -> None:
    generator = NoiseGenerator()
    prompts = DILLEMA.prompts("demo")
    method = CONTROLNET.with_models(models_of(generator, detector=lambda _kind: InvertingDetector()), prompts)
    few = GenerationSettings(steps=2, short_side=64)
    settings = ControlNetSettings(conditioning=ConditioningSettings(kind="depth"), generation=few)
    case = one_case(method, method.prepare(Source(RED, BIRD), settings), ONE, 1, lambda _done, _total: None)
    assert generator.kinds == ["depth"] and case.lineage.settings == settings
    assert case.artifacts[CONTROL_IMAGE].getpixel((3, 3)) == (55, 215, 215)


def test_only_what_touches_the_pixels_makes_an_image_another_one() -> None:
    edges_, drawing = ConditioningSettings(), GenerationSettings()
    record = ControlNetSettings(conditioning=edges_, generation=drawing).plain()

    def drawn_alike(recorded: dict[str, Any], edges: ConditioningSettings, drawing: GenerationSettings) -> bool:
        now = ControlNetSettings(conditioning=edges, generation=drawing)
        return METHODS["controlnet"].drawn_alike(read_settings("controlnet", recorded), now)

    passed_over: tuple[dict[str, object], ...] = ({"images_per_caption": 3}, {"seed_mode": "fixed", "seed": 9})
    for changes in passed_over:
        assert drawn_alike(record, edges_, drawing.model_copy(update=changes))
    assert drawn_alike(record, edges_.model_copy(update={"coarse": True}), drawing), "Canny knows no coarse lines"
    counted: tuple[dict[str, object], ...] = ({"steps": 3}, {"guidance": 1.5}, {"negative_prompt": "x"})
    for changes in counted:
        assert not drawn_alike(record, edges_, drawing.model_copy(update=changes))
    assert not drawn_alike(record, edges_.model_copy(update={"low": 41}), drawing)
    assert not drawn_alike({"steps": "many"}, edges_, drawing)


# Seeds and presets


def test_a_fixed_seed_is_the_same_for_every_caption_and_counts_up() -> None:
    captions = CounterfactualCaptions((ONE, TWO))
    fixed = GenerationSettings(images_per_caption=2, seed_mode="fixed", seed=70)
    assert [image.seed for image in generation.plan(captions, fixed, 0).images] == [70, 71, 70, 71]
    assert generation.plan(captions, fixed, 0).images == generation.plan(captions, fixed, 5).images
    other = GenerationSettings(images_per_caption=2, seed_mode="random")
    assert len({image.seed for image in generation.plan(captions, other, 3).images}) == 4


def test_presets_are_data_of_the_profile() -> None:
    profile = load_profile("demo")
    assert profile.preset("draft")["steps"] < profile.preset("balanced")["steps"] <= profile.preset("paper")["steps"]
    assert profile.preset("balanced").keys() == profile.preset("paper").keys()
    for name in load_profile("paper").presets:
        GenerationSettings.model_validate(load_profile("paper").preset(name))


# Speed


def test_an_estimate_is_of_the_same_size_and_steps_where_there_was_one() -> None:
    speeds = Speeds()
    settings = GenerationSettings(steps=20, short_side=512)
    assert not speeds and speeds.seconds(effort_of(settings, (600, 400))) is None
    for seconds in (9.0, 4.0, 4.2):  # the first image also loaded the models
        speeds.add(Effort(512 * 768, 20), seconds)
    assert speeds.seconds(effort_of(settings, (600, 400))) == 4.2
    speeds.add(Effort(512 * 768, 10), 2.5)
    assert speeds.seconds(effort_of(settings.model_copy(update={"steps": 10}), (600, 400))) == 2.5
    assert speeds.seconds(effort_of(settings.model_copy(update={"steps": 5}), (600, 400))) == pytest.approx(1.25)
    smaller = speeds.seconds(effort_of(settings.model_copy(update={"short_side": 256}), (600, 400)))
    assert smaller == pytest.approx(4.2 / 4)
    unguided = speeds.seconds(effort_of(settings.model_copy(update={"guidance": 1.0}), (600, 400)))
    assert unguided == pytest.approx(4.2 / 2)


def test_previews_take_their_share_and_no_more() -> None:
    work, shown = SideTime(), 0
    begun = time.monotonic()
    # Run for half a second, and until the first preview is shown, which may take longer on a busy machine.
    while (passed := time.monotonic() - begun) < 0.5 or (not shown and passed < 60):
        if work.affordable(0.1):
            with work.measured():
                time.sleep(0.01)
                shown += 1
        time.sleep(0.002)
    assert 1 <= shown <= 6


# Drawing the images of a worklist


class List(FixedWorklist):
    """Worklist that drops its first image once `wanted` is False."""

    wanted = True

    def dropped(self) -> Collection[int]:
        return () if self.wanted else (0,)


def run(
    images: Worklist,
    on_step: Callable[[Progress], None] = lambda _: None,
    embedder: ScriptedEmbedder | None = None,
    cancelled: threading.Event | None = None,
    on_preview: Callable[[Image.Image], None] = lambda _: None,
) -> list[int]:
    """Draw the images of a worklist, and return their seeds."""
    profile, models, store = load_profile("demo"), ScriptedModels(), MemoryStore(RED)
    models.embedder = embedder or models.embedder
    few = profile.settings.model_copy(update={"generation": GenerationSettings(steps=4, short_side=64)})

    def tell(event: Event) -> None:
        if isinstance(event, Progress):
            on_step(event)
        elif isinstance(event, Preview):
            on_preview(event.image)

    Driver(profile, models).run(Request(BIRD, few, stages=()), store, tell, cancelled, images)
    return [case.lineage.seed for case in store.cases]


def test_an_image_that_is_dropped_stops_and_the_next_one_begins() -> None:
    images = List([generation.PlannedImage(ONE, seed) for seed in (1, 2, 3)])
    notes: list[str] = []

    def watch(progress: Progress) -> None:
        notes.append(f"{progress.note}, {progress.done} of {progress.total}")
        images.wanted = not (images.waiting() == 1 and progress.done == 5)

    assert run(images, watch) == [1, 3]
    assert "image 2 of 3, 5 of 12" in notes and "image 2 of 2, 8 of 8" in notes
    assert notes[-1] == "2 of 2 images, 8 of 8"


class Checking(ScriptedEmbedder):
    """Embedder that calls a function whenever it embeds an image."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    def image(self, image: Image.Image) -> Sequence[float]:
        self._meanwhile()
        return super().image(image)


def test_an_image_that_is_dropped_while_it_is_checked_is_not_kept() -> None:
    class Shown(List):
        def take(self, most: int = 1) -> Sequence[generation.PlannedImage]:
            self.wanted = True
            return super().take(most)

        def drop_the_second(self) -> None:
            self.wanted = self.waiting() != 1

    images, notes = Shown([generation.PlannedImage(ONE, seed) for seed in (1, 2, 3)]), list[str]()
    assert run(images, lambda told: notes.append(told.note), Checking(images.drop_the_second)) == [1, 3]
    assert notes[-1] == "2 of 2 images"


def test_an_image_that_is_checked_when_all_is_stopped_is_not_kept() -> None:
    stop, images = threading.Event(), FixedWorklist([generation.PlannedImage(ONE, seed) for seed in (1, 2)])
    with pytest.raises(Cancelled):
        run(images, embedder=Checking(stop.set), cancelled=stop)
    assert images.waiting() == 1


def test_previews_come_between_the_steps() -> None:
    shown: list[Image.Image] = []
    images = FixedWorklist([generation.PlannedImage(ONE, 1)])
    assert run(images, on_preview=shown.append) == [1]
    assert 1 <= len(shown) <= 3 and all(image.size == (16, 16) for image in shown)


def test_a_preview_is_held_for_a_moment_under_a_name_of_its_own() -> None:
    previews = Previews()
    names = [previews.put(Image.new("RGB", (4, 4), (n, 0, 0))) for n in range(KEPT_PREVIEWS + 2)]
    assert len(set(names)) == len(names) and all(len(name) >= 24 for name in names)
    assert previews.png(names[0]) is None and previews.png("nothing") is None
    held = previews.png(names[-1])
    assert held is not None and Image.open(io.BytesIO(held)).getpixel((0, 0)) == (KEPT_PREVIEWS + 1, 0, 0)


# The queue


class Painter:
    """Job that draws its parts once the test lets it, and records them."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.go_on = threading.Event()
        self.begun = threading.Event()

    def __call__(self, handle: JobHandle) -> None:
        handle.at("generation")
        while parts := handle.take_parts(1):
            self.begun.set()
            while not self.go_on.wait(0.005):
                if handle.cancelled.is_set():
                    raise Cancelled
                if not handle.view.at_parts:
                    break
            else:
                self.made.append(parts[0].name)


@pytest.fixture
def jobs() -> Iterator[JobQueue]:
    made = JobQueue()
    yield made
    made.close()


def test_images_that_wait_are_moved_up_and_removed(jobs: JobQueue) -> None:
    work = Painter()
    number = jobs.submit("a", ("generation",), work, ("one", "two", "three", "four"), 2.0)
    assert work.begun.wait(60)
    assert jobs.move_up(number, 3) and not jobs.move_up(number, 1) and not jobs.move_up(number, 0)
    view = jobs.view(number)
    assert view is not None and [part.name for part in view.waiting] == ["two", "four", "three"]
    assert [part.name for part in view.at_parts] == ["one"]
    assert jobs.delete_part(number, 2) and not jobs.delete_part(number, 2) and not jobs.delete_part(number, 99)
    work.go_on.set()
    over(jobs)
    assert work.made == ["one", "two", "four"]


def test_the_image_at_work_is_cancelled_alone(jobs: JobQueue) -> None:
    work = Painter()
    number = jobs.submit("a", ("generation",), work, ("one", "two"))
    assert work.begun.wait(60) and jobs.delete_part(number, 0)

    def second_at_work() -> bool:
        view = jobs.view(number)
        return view is None or [part.id for part in view.at_parts] == [1]

    until(second_at_work)
    work.go_on.set()
    over(jobs)
    assert work.made == ["two"]


def test_jobs_that_wait_pass_each_other_and_all_of_them_are_cancelled_at_once(jobs: JobQueue) -> None:
    work = Painter()
    numbers = [jobs.submit(run_id, ("generation",), work, (run_id,)) for run_id in "abc"]
    assert work.begun.wait(60)
    assert jobs.move_up(numbers[2]) and not jobs.move_up(numbers[2]) and not jobs.move_up(numbers[0])
    assert [view.run_id for view in jobs.active()] == ["a", "c", "b"]
    assert jobs.delete_part(numbers[1], 0), "a job of nothing is over"
    assert [view.run_id for view in jobs.active()] == ["a", "c"]
    assert jobs.cancel_all()
    over(jobs)
    assert not work.made and not jobs.cancel_all()


def test_a_job_that_was_cancelled_is_in_nobodys_way(jobs: JobQueue) -> None:
    work = Painter()
    numbers = [jobs.submit(run_id, ("generation",), work, (run_id,)) for run_id in "abcd"]
    assert work.begun.wait(60) and jobs.cancel_job(numbers[2])
    assert jobs.move_up(numbers[3]) and not jobs.move_up(numbers[3]) and not jobs.move_up(numbers[2])
    assert [view.run_id for view in jobs.active()] == ["a", "d", "b"]
    work.go_on.set()
    over(jobs)
    assert work.made == ["a", "d", "b"]


def test_the_queue_says_what_is_at_work_and_how_long_it_takes(jobs: JobQueue) -> None:
    work = Painter()
    first = jobs.submit("a", ("generation",), work, ("<b>snowy</b> · seed 1", "rainy · seed 2"), 3.0)
    jobs.submit("b", ("generation",), work, ("foggy · seed 3",), 4.0)
    assert work.begun.wait(60)
    jobs.update(jobs._jobs[first], progress=Progress("generation", 2, 8, 5.0, "image 1 of 2"), preview="abc")
    shown = queue_part(jobs.active(), {"a": "one", "b": "a <i>bird</i>"}, "a", "another run")
    assert "3 running or waiting · 9 s left" in shown and "previews/abc.png" in shown
    assert "&lt;b&gt;snowy" in shown and "<b>snowy" not in shown and "<i>bird" not in shown
    assert shown.count('data-do="delete-job-part"') == 3 and shown.count('data-do="queue-up"') == 1
    assert queue_part((), {}, "a", "") == ""


# The page


def new_run(studio: Studio) -> str:
    settings = studio.profile.settings.model_dump(mode="json")
    source = Image.effect_noise((48, 32), 80).convert("RGB")
    return studio.workspace.runs.create(source, BIRD, "demo", "bird", settings)


def test_the_route_draws_what_the_method_would_draw_on(studio: Studio) -> None:
    run_id = new_run(studio)
    app = FastAPI()
    add_drawing_routes(app, studio.control_images, studio.previews, studio.profile.settings.generation)
    client = TestClient(app)
    settings = ConditioningSettings(low=20, high=60, median=1)
    asked = f"/control/{run_id}.png?kind=canny&low=20&high=60&median=1&stretch=true&short_side=128"
    reply = client.get(asked)
    assert reply.status_code == 200 and reply.headers["content-type"] == "image/png"
    shown = Image.open(io.BytesIO(reply.content))
    source = studio.workspace.images.load(studio.workspace.runs.get(run_id).source_sha)
    wanted = edges(np.asarray(source.resize((192, 128), Image.Resampling.LANCZOS), np.uint8), settings)
    assert shown.size == (192, 128)
    assert (np.asarray(shown.convert("L")) != wanted).mean() < 0.02
    assert client.get(asked.replace("low=20", "low=400")).content != reply.content
    for wrong, code, said in (
        ("low=many", 422, "low"),
        ("low=-5", 422, "low"),
        ("median=4", 422, "odd"),
        ("kind=magic", 422, "kind"),
        ("short_side=9999", 422, "a whole number from 64 to"),
        ("kind=segmentation", 404, "mask"),
        ("kind=depth", 404, "start it"),
    ):
        refused = client.get(f"/control/{run_id}.png?{wrong}")
        assert refused.status_code == code and said in refused.text
    assert client.get("/control/0000000000000000.png").status_code == 404
    assert client.get("/previews/nothing.png").status_code == 404
    name = studio.previews.put(RED)
    assert client.get(f"/previews/{name}.png").status_code == 200


def test_where_the_generator_runs_is_said_once_it_is_known(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")

    def told() -> tuple[str, str]:
        state = studio.states.of(run_id)
        return run_facts(state)["gate"]["generator_runs"], generation_card(state, profile_options(studio.profile))

    said, card = told()
    assert said == "" and 'id="gate-seconds"' in card and "Drawn on" not in card
    where = "on the GPU, half precision: 61 GB free, 5.5 GB needed"
    monkeypatch.setattr(studio.driver.models, "runs", lambda _role: where)
    said, card = told()
    (line,) = re.findall('<[^>]*id="gate-seconds"[^>]*>', card)
    assert said == where and f'title="Drawn {where}."' in line
    assert f">Drawn {where}.<" in card, "also for fingers, which see no title"


def test_seeds_next_fixed_and_random_at_the_gate(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")

    def planned() -> list[int]:
        plan = studio.states.of(run_id).gate.plan
        return [] if plan is None else [image.seed for image in plan.images]

    first = planned()
    do(studio, run_id, "generate")
    assert len(first) == 4 and not set(first) & set(planned())
    do(studio, run_id, "setting", setting="generation.images_per_caption", value="2")
    assert set(planned()) & set(first) == set() and len(planned()) == 4, "what is there already is kept"

    do(studio, run_id, "setting", setting="generation.images_per_caption", value="1")
    do(studio, run_id, "setting", setting="generation.seed_mode", value="fixed")
    do(studio, run_id, "setting", setting="generation.seed", value="99")
    assert planned() == [99] * 4
    do(studio, run_id, "generate")
    assert "seed 99 are made" in studio.states.of(run_id).gate.closed

    do(studio, run_id, "setting", setting="generation.seed_mode", value="random")
    drawn = planned()
    assert len(set(drawn)) == 4 and drawn == planned(), "the page names them before they are made"
    do(studio, run_id, "generate")
    assert not set(drawn) & set(planned())

    case = studio.workspace.runs.get(run_id).test_cases[0]
    assert not do(studio, run_id, "reuse-seed", case=str(case.id))
    held = studio.states.of(run_id).settings.generation
    assert (held.seed_mode, held.seed) == ("fixed", case.lineage.seed)
    assert "not of this run" in do(studio, run_id, "reuse-seed", case="12345")


def test_a_yes_makes_what_was_shown_or_nothing(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    shown = studio.states.of(run_id).gate.shown
    for part in ("generation", "source"):
        assert (f'data-shown="{shown}"' in parts_of(studio, run_id)[part]) == (part == "generation")

    # Another page changes the planned images and changes them back. The page then shows the same plan again.
    do(studio, run_id, "setting", tab="B", setting="generation.images_per_caption", value="8")
    other = studio.states.of(run_id).gate.shown
    assert "check them and approve again" in do(studio, run_id, "generate", tab="A", shown=shown)
    assert not studio.workspace.runs.get(run_id).jobs and other != shown
    assert "check them and approve again" in parts_of(studio, run_id)["generation"]
    do(studio, run_id, "setting", tab="B", setting="generation.images_per_caption", value="1")
    assert studio.states.of(run_id).gate.shown == shown

    # A plan with the same number of images is still another plan.
    steps = studio.states.of(run_id).settings.generation.steps
    do(studio, run_id, "setting", setting="generation.steps", value=steps + 1)
    assert do(studio, run_id, "generate", shown=shown)
    do(studio, run_id, "setting", setting="generation.steps", value=steps)

    # After all planned images were drawn, a second press approves nothing new.
    assert not do(studio, run_id, "generate", shown=shown)
    assert do(studio, run_id, "generate", shown=shown)
    assert len(studio.workspace.runs.get(run_id).test_cases) == 4
    assert not do(studio, run_id, "generate"), "a script that has seen nothing says yes to what is there"
    assert len(studio.workspace.runs.get(run_id).test_cases) == 8


def test_another_mask_is_another_picture_where_images_are_drawn_on_it(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")

    def shown() -> str:
        return studio.states.of(run_id).gate.shown

    def give_mask(number: int) -> None:
        studio.workspace.runs.set_mask(run_id, Image.new("L", (48, 32), number), {number: "road"})

    without = shown()
    give_mask(1)
    assert shown() == without != "", "on edges the mask changes nothing"
    nets = studio.profile.generator.controlnets
    nets["segmentation"] = nets["canny"]
    try:
        do(studio, run_id, "setting", setting="conditioning.kind", value="segmentation")
        first = shown()
        give_mask(2)
        assert "" not in (first, shown()) and first != shown()
    finally:
        del nets["segmentation"]


def test_presets_and_kinds_are_those_of_the_profile(studio: Studio) -> None:
    run_id = new_run(studio)
    assert not do(studio, run_id, "preset", preset="draft")
    assert studio.states.of(run_id).settings.generation.steps == studio.profile.preset("draft")["steps"]
    assert "draft, balanced, paper" in do(studio, run_id, "preset", preset="luxury")
    assert "no ControlNet for depth" in do(studio, run_id, "setting", setting="conditioning.kind", value="depth")
    assert "odd" in do(studio, run_id, "setting", setting="conditioning.median", value="4")


def test_a_kind_that_the_profile_does_not_have_closes_the_gate_and_nothing_else(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    held = studio.workspace.runs.get(run_id).settings
    studio.workspace.runs.set_settings(run_id, {**held, "conditioning": {**held["conditioning"], "kind": "depth"}})
    gate = studio.states.of(run_id).gate
    assert gate.plan is None and "no ControlNet for depth" in gate.closed
    assert do(studio, run_id, "generate") == gate.closed
    assert not do(studio, run_id, "setting", setting="caption.beams", value=2)
    assert not do(studio, run_id, "under-test", source="timm", model="resnet18")
    assert "no ControlNet for depth" in do(studio, run_id, "setting", setting="conditioning.low", value=41)
    assert not do(studio, run_id, "setting", setting="conditioning.kind", value="canny")
    do(studio, run_id, "run-all")
    assert studio.states.of(run_id).gate.plan is not None


def test_speeds_are_recalled_from_what_was_made_before(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "generate")
    later = Studio(studio.profile, ScriptedModels(), studio.workspace)
    plan = later.states.of(run_id).gate.plan
    assert plan is not None and plan.seconds is None
    later.estimates.recall()
    plan = later.states.of(run_id).gate.plan
    assert plan is not None and plan.seconds is not None
    later.estimates.probe()
    assert later.driver.models.generator.made == [], "nothing is tried out when something is known"  # type: ignore[attr-defined]


def test_the_first_estimate_counts_the_whole_image_and_makes_way_for_people(studio: Studio) -> None:
    from services.runs.estimates import PROBE_STEPS

    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    generator = studio.driver.models.generator
    blocker = Painter()
    studio.jobs.submit("another", ("generation",), blocker, ("x",))
    assert blocker.begun.wait(60)
    studio.estimates.probe()
    assert generator.made == [] and not studio.driver.speeds  # type: ignore[attr-defined]
    blocker.go_on.set()
    over(studio.jobs)
    until(lambda: bool(studio.driver.speeds))
    assert len(generator.made) == 2  # type: ignore[attr-defined]
    settings = studio.profile.settings.generation
    assert settings.steps > PROBE_STEPS
    plan = studio.states.of(run_id).gate.plan
    assert plan is not None and plan.seconds is not None


def test_a_control_image_without_edges_is_told_of_on_the_page(studio: Studio) -> None:
    settings = studio.profile.settings.model_dump(mode="json")
    blank = studio.workspace.runs.create(Image.new("RGB", (48, 32), "teal"), BIRD, "demo", "bird", settings)
    for run_id, told in ((blank, True), (new_run(studio), False)):
        do(studio, run_id, "run-all")
        assert not do(studio, run_id, "generate")
        assert ("edges in only 0 % of its area" in parts_of(studio, run_id)["generation"]) == told


def test_a_control_image_that_a_model_draws_is_drawn_in_the_worker(studio: Studio) -> None:
    run_id = new_run(studio)
    data = studio.profile.model_dump()
    nets = data["generator"]["controlnets"]
    nets["depth"] = {**nets["canny"], "detector": {"path": "demo/weights/clip"}}
    changed = type(studio.profile).model_validate(data)
    studio.profile.generator.controlnets.update(changed.generator.controlnets)
    assert not do(studio, run_id, "setting", setting="conditioning.kind", value="depth")
    assert not studio.states.of(run_id).control_there
    assert not do(studio, run_id, "draw-control")
    until(lambda: studio.states.of(run_id).control_there)
    held = studio.states.of(run_id).settings
    png = studio.control_images.png(run_id, held.conditioning, held.generation.short_side)
    assert png is not None and Image.open(io.BytesIO(png)).size == (192, 128)


def test_a_waiting_job_makes_what_the_gate_showed(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    blocker = Painter()
    studio.jobs.submit("another", ("generation",), blocker, ("x",))
    assert blocker.begun.wait(60)
    plan = studio.states.of(run_id).gate.plan
    assert plan is not None
    perform(studio, run_id, "generate")
    perform(studio, run_id, "setting", setting="generation.steps", value="3")
    blocker.go_on.set()
    over(studio.jobs)
    cases = studio.workspace.runs.get(run_id).test_cases
    assert [case.lineage.seed for case in cases] == [image.seed for image in plan.images]
    assert {case.lineage.settings.steps for case in cases} == {studio.profile.settings.generation.steps}


def test_a_generation_that_waits_is_recorded_and_what_becomes_of_it(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as workspace:
        studio = Studio(load_profile("demo"), ScriptedModels(), workspace)
        run_id = new_run(studio)
        do(studio, run_id, "run-all")
        blocker = Painter()
        studio.jobs.submit("another", ("generation",), blocker, ("x",))
        assert blocker.begun.wait(60)
        perform(studio, run_id, "generate")
        assert [(job.state, job.done, job.total) for job in workspace.runs.get(run_id).jobs] == [("running", 0, 4)]
        perform(studio, run_id, "cancel")
        assert workspace.runs.get(run_id).jobs[-1].state == "cancelled", "it never began, and is over all the same"
        perform(studio, run_id, "generate")
        assert perform(studio, run_id, "generate").problem, "one at a time"
        assert len(workspace.runs.get(run_id).jobs) == 2, "what was refused leaves no trace"
        studio.jobs.close(seconds=0)
        blocker.go_on.set()
        studio.close()
    with workspace_in(tmp_path / "workspace") as workspace:
        last = workspace.runs.get(run_id).jobs[-1]
        assert (last.state, last.done, last.total) == ("interrupted", 0, 4)
