"""Stage 5 on a stand-in generator (`tests/support/scripted.py`): seeds, skipped images, progress, stopping, the plan.

`tests/pipeline/test_pipeline_demo.py` runs the real generator.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest
from PIL import Image

from core.errors import Cancelled, UserError
from core.progress import OnProgress, Progress
from core.settings import GenerationSettings
from core.types import CounterfactualCaption, CounterfactualCaptions, Edit, Task
from pipeline.drawing_speed import effort_of
from pipeline.driver import Driver
from pipeline.profiles.profile import load_profile
from pipeline.request import Event, MemoryStore, Request
from pipeline.stages import generation
from tests.support.scripted import SUNNY_BIRD, ScriptedModels

BIRD = Task("classification", label="bird")
ONE = CounterfactualCaption(SUNNY_BIRD.replace("red", "blue"), (Edit("red", "blue", "attribute"),))
TWO = CounterfactualCaption(SUNNY_BIRD.replace("sunny", "rainy"), (Edit("sunny", "rainy", "weather"),))
OFF = CounterfactualCaption("A cat.", (Edit("red", "green", "attribute"),), used=False)
SOURCE = Image.new("RGB", (64, 64), "green")
SMALL = GenerationSettings(steps=3, images_per_caption=2, short_side=64)

DEMO = load_profile("demo")
SETTINGS = DEMO.settings.model_copy(update={"generation": SMALL})


def generate(
    captions: CounterfactualCaptions,
    made: Collection[tuple[CounterfactualCaption, int]] = (),
    on_progress: OnProgress = lambda _: None,
    cancelled: threading.Event | None = None,
    store: MemoryStore | None = None,
    models: ScriptedModels | None = None,
    seconds_per_image: float | None = None,
) -> list[tuple[str, int, bytes]]:
    """Draw the images. Return the caption, the seed and the pixels of each."""
    driver, store = Driver(DEMO, models or ScriptedModels()), store or MemoryStore(SOURCE)
    if seconds_per_image is not None:
        driver.speeds.add(effort_of(SMALL, SOURCE.size), seconds_per_image)
    images = generation.plan(captions, SMALL, 9, made=made).images

    def tell(event: Event) -> None:
        if isinstance(event, Progress):
            on_progress(event)

    driver.run(Request(BIRD, SETTINGS, stages=(), images=images), store, tell, cancelled)
    return [(case.lineage.counterfactual.text, case.lineage.seed, case.image.tobytes()) for case in store.cases]


def test_every_image_has_a_seed_of_its_own_that_hangs_on_nothing_else() -> None:
    both = generate(CounterfactualCaptions((ONE, OFF, TWO)))
    assert [text for text, _, _ in both] == [ONE.text, ONE.text, TWO.text, TWO.text]
    assert len({seed for _, seed, _ in both}) == 4
    unticked = CounterfactualCaption(ONE.text, ONE.edits, used=False)
    assert generate(CounterfactualCaptions((unticked, OFF, TWO))) == both[2:]


def test_images_that_are_there_are_not_made_again() -> None:
    both = generate(CounterfactualCaptions((ONE, TWO)))
    rest = generate(CounterfactualCaptions((ONE, TWO)), made={(ONE, both[0][1]), (TWO, both[2][1])})
    assert rest == [both[1], both[3]]


def test_the_label_stands_in_the_prompt_of_every_image() -> None:
    models = ScriptedModels()
    generate(CounterfactualCaptions((ONE,)), models=models)
    assert {prompt for prompt, _ in models.generator.made} == {f"{ONE.text} Keep: bird."}


def test_progress_counts_steps_and_tells_the_remaining_time() -> None:
    seen: list[Progress] = []
    generate(CounterfactualCaptions((ONE, TWO)), on_progress=seen.append, seconds_per_image=6.0)
    assert (seen[0].done, seen[0].total, seen[0].seconds_left, seen[0].note) == (0, 12, 24.0, "image 1 of 4")
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert (seen[-1].done, seen[-1].seconds_left) == (12, 0.0)
    assert "image 3 of 4" in {p.note for p in seen}


def test_a_stop_ends_the_image_at_once_and_keeps_those_before() -> None:
    stop, seen, store = threading.Event(), list[Progress](), MemoryStore(SOURCE)

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if progress.done == 4:
            stop.set()

    with pytest.raises(Cancelled):
        generate(CounterfactualCaptions((ONE, TWO)), on_progress=watch, cancelled=stop, store=store)
    assert len(store.cases) == 1
    assert max(progress.done for progress in seen) == 4


def test_the_plan_says_what_it_will_cost() -> None:
    plan = generation.plan(CounterfactualCaptions((ONE, OFF, TWO)), SMALL, 9, seconds_per_image=1.5)
    assert (len(plan.images), plan.captions, plan.steps, plan.seconds) == (4, 2, 12, 6.0)
    assert generation.plan(CounterfactualCaptions((OFF,)), SMALL, 9).images == ()
    assert generation.plan(CounterfactualCaptions((ONE,)), SMALL, 9).seconds is None


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ((OFF,), "No counterfactual caption is ticked"),
        ((CounterfactualCaption(" ", ()),), "counterfactual caption is empty"),
    ],
)
def test_nothing_is_generated_of_nothing(items: tuple[CounterfactualCaption, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        generation.require_ready(BIRD, CounterfactualCaptions(items))
