"""Stage 5 on a stand-in generator (`tests/support/scripted.py`): seeds, what is left out, progress, stopping, the plan.

`tests/pipeline/test_pipeline_demo.py` runs the real one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from PIL import Image

from core.errors import Cancelled, UserError
from core.lineage import TestCase
from core.progress import Progress
from core.settings import GenerationSettings
from core.types import CounterfactualCaption, CounterfactualCaptions, Edit, Task
from pipeline.methods.controlnet import ControlNetMethod, ControlNetSettings
from pipeline.recipes import DILLEMA
from pipeline.seams import Source
from pipeline.stages import generation
from tests.support.scripted import SUNNY_BIRD, NoiseGenerator

PROMPTS = DILLEMA.prompts("paper")
BIRD = Task("classification", label="bird")
ONE = CounterfactualCaption(SUNNY_BIRD.replace("red", "blue"), (Edit("red", "blue", "attribute"),))
TWO = CounterfactualCaption(SUNNY_BIRD.replace("sunny", "rainy"), (Edit("sunny", "rainy", "weather"),))
OFF = CounterfactualCaption("A cat.", (Edit("red", "green", "attribute"),), used=False)
SOURCE = Image.new("RGB", (64, 64), "green")
SMALL = GenerationSettings(steps=3, images_per_caption=2, short_side=64)

DRAWING = ControlNetSettings(generation=SMALL)


def run(captions: CounterfactualCaptions, made: object = (), **more: object) -> Iterator[TestCase]:
    method = ControlNetMethod(NoiseGenerator(), None, PROMPTS)
    images = generation.FixedWorklist(generation.plan(captions, SMALL, 9, made=made).images)  # type: ignore[arg-type]
    return generation.run(method, method.prepare(Source(SOURCE, BIRD), DRAWING), images, **more)  # type: ignore[arg-type]


def generate(captions: CounterfactualCaptions, **more: object) -> list[tuple[str, int, bytes]]:
    cases = run(captions, **more)
    return [(case.lineage.counterfactual.text, case.lineage.seed, case.image.tobytes()) for case in cases]


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
    generator = NoiseGenerator()
    method = ControlNetMethod(generator, None, DILLEMA.prompts("demo"))
    images = generation.FixedWorklist(generation.plan(CounterfactualCaptions((ONE,)), SMALL, 0).images)
    list(generation.run(method, method.prepare(Source(SOURCE, BIRD), DRAWING), images))
    assert {prompt for prompt, _ in generator.made} == {f"{ONE.text} Keep: bird."}


def test_progress_counts_steps_and_tells_the_remaining_time() -> None:
    seen: list[Progress] = []
    generate(CounterfactualCaptions((ONE, TWO)), progress=seen.append, seconds_per_step=2.0)
    assert (seen[0].done, seen[0].total, seen[0].seconds_left, seen[0].note) == (0, 12, 24.0, "image 1 of 4")
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert (seen[-1].done, seen[-1].seconds_left) == (12, 0.0)
    assert "image 3 of 4" in {p.note for p in seen}


def test_a_stop_ends_the_image_at_once_and_keeps_those_before() -> None:
    stop, seen, finished = threading.Event(), list[Progress](), []

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if progress.done == 4:
            stop.set()

    with pytest.raises(Cancelled):
        for case in run(CounterfactualCaptions((ONE, TWO)), progress=watch, cancelled=stop):
            finished.append(case)
    assert len(finished) == 1
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
