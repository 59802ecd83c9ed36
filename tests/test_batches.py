"""Several images at once: what is drawn together, what is told and kept of each, and the same bits alone."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.driver import Driver, ImageDone, ImageFailed, MemoryStore, Request
from pipeline.errors import Cancelled, UserError
from pipeline.lineage import Batch, TestCase
from pipeline.methods import read_lineage, read_settings
from pipeline.methods.controlnet import ControlNetMethod, ControlNetSettings
from pipeline.methods.drawing import SAFE
from pipeline.models import Models, load_models
from pipeline.profile import load_profile
from pipeline.progress import Progress
from pipeline.recipes import DILLEMA
from pipeline.seams import Drawn, Source, Wanted
from pipeline.settings import GenerationSettings
from pipeline.stages import generation
from pipeline.stages.generation import Images, PlannedImage
from pipeline.types import CounterfactualCaption, Edit, Task
from services.jobs import JobHandle, JobQueue
from tests import tiny
from tests.scripted import NoiseBatches, ScriptedModels, over
from tests.test_real_classes import paper_at

BIRD = Task("classification", label="bird")
SOURCE = Image.new("RGB", (64, 64), "green")
FEW = GenerationSettings(steps=3, short_side=64)
BLUE = CounterfactualCaption("A blue bird.", (Edit("red", "blue", "attribute"),))


def run(
    generator: NoiseBatches, images: generation.Worklist, drawing: GenerationSettings = FEW, **more: Any
) -> Iterator[TestCase]:
    method = ControlNetMethod(generator, None, DILLEMA.prompts("demo"))
    prepared = method.prepare(Source(SOURCE, BIRD), ControlNetSettings(generation=drawing))
    return generation.run(method, prepared, images, **more)


def images(*seeds: int) -> Images:
    return Images([PlannedImage(BLUE, seed) for seed in seeds])


def seeds(cases: Iterator[TestCase]) -> list[int]:
    return [case.lineage.seed for case in cases]


# Which are drawn together


def test_images_are_drawn_in_batches_of_one_size_and_each_says_in_which() -> None:
    generator = NoiseBatches(3)
    made = [case.lineage for case in run(generator, images(1, 2, 3, 4, 5))]
    assert generator.batches == [(3, [(0, 1), (1, 2), (2, 3)]), (3, [(0, 4), (1, 5)])]
    assert [one.settings.drawn_in for one in made] == [Batch(size=3, place=place) for place in (0, 1, 2, 0, 1)]
    assert all(read_lineage(one.plain()) == one for one in made)
    assert made[0].seconds == made[1].seconds == made[2].seconds, "what a batch took is shared out"


def test_what_waits_is_shared_out_evenly_so_that_little_is_drawn_only_to_fill_up() -> None:
    generator = NoiseBatches(3)
    assert seeds(run(generator, images(1, 2, 3, 4))) == [1, 2, 3, 4]
    assert generator.batches == [(2, [(0, 1), (1, 2)]), (2, [(0, 3), (1, 4)])], "and not three, and one with two more"


def test_a_batch_is_no_larger_than_what_waits_unless_the_settings_say_so() -> None:
    generator = NoiseBatches(8)
    assert seeds(run(generator, images(1, 2))) == [1, 2]
    assert seeds(run(generator, images(1, 2), FEW.model_copy(update={"batch": 4}))) == [1, 2]
    assert [size for size, _ in generator.batches] == [2, 4]
    single = NoiseBatches(1)
    (case,) = run(single, images(7))
    assert "batch" not in case.lineage.plain()["settings"], "one at a time is recorded as ever"
    assert case.image.tobytes() == next(run(generator, images(7))).image.tobytes()


def test_records_of_earlier_versions_were_drawn_one_at_a_time_and_a_batch_makes_no_other_image() -> None:
    old = ControlNetSettings().plain()
    del old["generation"]["batch"], old["generation"]["control_until"]
    read = read_settings("controlnet", old)
    assert read == ControlNetSettings() and read.drawn_in == Batch()
    at_once = ControlNetSettings(batch=Batch(size=8, place=3), generation=GenerationSettings(batch=8))
    assert at_once.pixels() == ControlNetSettings().pixels()
    beyond = read_settings("controlnet", old | {"batch": {"size": 4, "place": 9}})
    assert beyond.drawn_in is None, "no batch has such a place"


def test_images_are_made_again_in_the_batches_and_places_that_they_had() -> None:
    generator = NoiseBatches(1)
    had = [Batch(size=4, place=2), Batch(size=4, place=0), Batch(size=4, place=2), Batch()]
    planned = [PlannedImage(BLUE, seed, batch=batch) for seed, batch in enumerate(had)]
    made = list(run(generator, Images([*planned, PlannedImage(BLUE, 9)]), together=5))
    assert [case.lineage.settings.drawn_in for case in made] == [Batch(), had[0], had[1], had[2], Batch()]
    assert generator.batches[1:3] == [(4, [(2, 0), (0, 1)]), (4, [(2, 2)])]


def test_a_driver_makes_recorded_images_again_together() -> None:
    models = ScriptedModels()
    models.generator = generator = NoiseBatches(1)
    planned = tuple(PlannedImage(BLUE, seed, batch=Batch(size=2, place=seed)) for seed in (0, 1))
    request = Request(BIRD, load_profile("demo").settings, stages=(), images=planned)
    Driver(load_profile("demo"), models).run(request, MemoryStore(SOURCE))
    assert generator.batches == [(2, [(0, 0), (1, 1)])]


# What is told and kept


def test_progress_counts_the_steps_of_all_that_are_drawn() -> None:
    told: list[Progress] = []
    seeds(run(NoiseBatches(2), images(1, 2, 3), progress=told.append, seconds_per_step=2.0))
    assert [(one.done, one.total, one.step, one.note) for one in told] == [
        *((2 * step, 9, step, "images 1 to 2 of 3") for step in range(4)),
        *((6 + step, 9, step, "image 3 of 3") for step in range(4)),
        (9, 9, 0, "3 of 3 images"),
    ]
    assert told[0].seconds_left == 18.0


def test_what_was_checked_before_a_stop_is_kept_and_a_step_heeds_it() -> None:
    stop, kept = threading.Event(), []
    with pytest.raises(Cancelled):
        for case in run(NoiseBatches(3), images(1, 2, 3), cancelled=stop):
            kept.append(case)
            stop.set()
    assert len(kept) == 1
    stop.clear()
    generator = NoiseBatches(3)

    def at_the_second_step(told: Progress) -> None:
        if told.step == 2:
            stop.set()

    with pytest.raises(Cancelled):
        list(run(generator, images(1, 2, 3), cancelled=stop, progress=at_the_second_step))
    assert not generator.batches


def test_one_that_is_refused_or_dropped_leaves_the_others_as_they_are() -> None:
    class Dropping(Images):
        out: Collection[int] = ()

        def dropped(self) -> Collection[int]:
            return self.out

    failed: list[tuple[int, str]] = []
    worklist = Dropping([PlannedImage(BLUE, seed) for seed in (1, 2, 3, 4)])
    kept = []
    for case in run(NoiseBatches(4, 2), worklist, on_failure=lambda one, error: failed.append((one.seed, str(error)))):
        kept.append(case.lineage.seed)
        assert {check.name: check.passed for check in case.checks}[SAFE]
        worklist.out = (2,)
    assert kept == [1, 4] and failed == [(2, "The safety checker refused this image.")]

    class Gone(Dropping):
        out: Collection[int] = (0, 1)

        def take(self, most: int = 1) -> Sequence[PlannedImage]:
            taken = super().take(most)
            self.out = self.out if self.waiting() else ()
            return taken

    generator = NoiseBatches(2)
    assert seeds(run(generator, Gone([PlannedImage(BLUE, seed) for seed in (1, 2, 3, 4)]))) == [3, 4]
    assert len(generator.batches) == 1, "a batch that nobody wants stops at its next step"


def test_a_refused_image_is_told_by_itself_and_the_run_goes_on() -> None:
    models = ScriptedModels()
    models.generator = NoiseBatches(4, 6)
    planned = tuple(PlannedImage(BLUE, seed) for seed in (5, 6, 7))
    store, said = MemoryStore(SOURCE), list[Any]()
    request = Request(BIRD, load_profile("demo").settings, stages=(), images=planned)
    Driver(load_profile("demo"), models).run(request, store, said.append)
    assert [event.image.seed for event in said if isinstance(event, ImageFailed)] == [6]
    assert sum(isinstance(event, ImageDone) for event in said) == len(store.cases) == 2


def test_the_queue_takes_several_parts_at_once() -> None:
    jobs, seen = JobQueue(), list[tuple[str, ...]]()

    def work(handle: JobHandle) -> None:
        while parts := handle.take_parts(2):
            jobs.drop_part(number, parts[0].id)
            seen.append(tuple(part.name for part in handle.at_parts()))

    number = jobs.submit("a", ("generation",), work, ("one", "two", "three"))
    over(jobs)
    view = jobs.view(number)
    assert seen == [("two",), ()] and view is not None
    assert [part.state for part in view.parts] == ["dropped", "done", "dropped"]
    jobs.close()


# The real classes


QUICK = GenerationSettings(steps=3, short_side=64, guidance=5.0)
LONG = "a photo of a very long road " * 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batches")
    tiny.save_stable_diffusion(folder / "generator", folder / "controlnet", safety_checker=True)
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> Models:
    return load_models(paper_at(folder, generator={"safety_checker": False}))


def control() -> Image.Image:
    rng = np.random.default_rng(1)
    return Image.fromarray(rng.integers(0, 2, (8, 12), np.uint8) * 255).convert("RGB").resize((48, 32))


def drawn(generator: Any, wanted: Sequence[tuple[str, int, int]], size: int, **changes: Any) -> Sequence[Drawn]:
    settings = QUICK.model_copy(update=changes)
    return generator.draw([Wanted(*one) for one in wanted], size, control(), settings, lambda _done, _total: None)


def pixels(result: Drawn) -> bytes:
    assert result.image is not None
    return result.image.tobytes()


@pytest.mark.slow
def test_the_same_batch_shape_gives_the_same_bits_whatever_is_beside_it(models: Models) -> None:
    generator: Any = models.generator
    asked = [("a bird", 5, 0), (LONG, 8, 2)]
    together = drawn(generator, asked, 3)
    assert len({pixels(one) for one in together}) == 2
    assert [one.batch for one in together] == [Batch(size=3, place=place) for place in (0, 2)]
    for one, result in zip(asked, together, strict=True):
        (alone,) = drawn(generator, [one], 3)
        assert pixels(alone) == pixels(result), "it is filled up, and has the same bits"
        (single,) = drawn(generator, [(one[0], one[1], 0)], 1)
        apart = np.asarray(single.image, float) - np.asarray(result.image, float)
        assert (apart**2).mean() < 255**2 / 10**4, "of another shape they are alike: 40 dB at least"
    (again,) = drawn(generator, asked[:1], 1)
    assert pixels(again) == generator.generate("a bird", control(), QUICK, 5, lambda _done, _total: None).tobytes()


@pytest.mark.slow
def test_on_a_cpu_small_images_are_drawn_together_where_nobody_watches(models: Models) -> None:
    generator: Any = models.generator
    assert generator.batch((128, 128)) == 1, "each is to be seen when it is done"
    assert generator.batch((128, 128), watched=False) > 1
    assert generator.batch((512, 512), watched=False) == 1, "a large one keeps the cores busy by itself"


@pytest.mark.slow
def test_too_little_memory_halves_the_batch_and_says_so(models: Models) -> None:
    import torch

    generator: Any = models.generator
    few = QUICK.model_copy(update={"steps": 1})
    rows: list[int] = []

    def full(_unet: object, given: tuple[Any, ...]) -> None:
        rows.append(len(given[0]))
        if len(given[0]) > 4:  # with guidance each image takes two rows
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    with generator._pipe.unet.register_forward_pre_hook(full):
        steps: list[tuple[int, int]] = []
        wanted = [Wanted("a bird", seed, seed) for seed in range(3)]
        made = generator.draw(wanted, 8, control(), few, lambda done, total: steps.append((done, total)))
        assert [one.batch for one in made] == [Batch(size=2, place=place) for place in (0, 1, 0)]
        assert rows[:3] == [16, 8, 4] and generator.batch(control().size) == 1
        assert steps == sorted(steps) and steps[-1][0] == steps[-1][1]
    assert pixels(made[1]) == pixels(drawn(generator, [("a bird", 1, 1)], 2, steps=1)[0])
    generator._room.clear()


@pytest.mark.slow
def test_texts_and_the_control_image_are_read_once_and_a_controlnet_rests_after_its_end(models: Models) -> None:
    generator: Any = models.generator
    net, asked = generator._net("canny"), dict[str, int]()

    def counting(name: str, module: Any) -> Any:
        asked[name] = 0

        def count(*_: object) -> None:
            asked[name] += 1

        return module.register_forward_pre_hook(count)

    whole = [pixels(one) for one in drawn(generator, [("a tree", 1, 0)], 1)]
    parts = {
        "text": generator._pipe.text_encoder,
        "edges": net.controlnet_cond_embedding.conv_in,
        "steered": net.controlnet_mid_block,
        "drawn": generator._pipe.unet,
    }
    hooks = [counting(name, module) for name, module in parts.items()]
    try:
        assert whole == [pixels(one) for one in drawn(generator, [("a tree", 1, 0)], 1)]
        steps = asked["drawn"]
        assert asked == {"text": 0, "edges": 0, "steered": steps, "drawn": steps}, "all of it is still there"
        drawn(generator, [("a new tree", 2, 0), ("a new tree", 3, 1)], 2, negative_prompt="blurred")
        assert (asked["text"], asked["edges"], asked["steered"]) == (2, 1, 2 * steps)
        until = drawn(generator, [("a tree", 1, 0)], 1, control_until=0.67)
        assert asked["steered"] < 3 * steps < asked["drawn"] + 1
    finally:
        for hook in hooks:
            hook.remove()
    stock = generator._pipe(
        prompt_embeds=generator.embeddings("a tree", "")[0],
        negative_prompt_embeds=generator.embeddings("a tree", "")[1],
        image=control(),
        num_inference_steps=QUICK.steps,
        guidance_scale=QUICK.guidance,
        control_guidance_end=0.67,
        generator=torch_generator(1),
    ).images[0]
    assert pixels(until[0]) == stock.tobytes() and pixels(until[0]) != whole[0], "as the stock pipeline draws it"


def torch_generator(seed: int) -> Any:
    import torch

    return torch.Generator("cpu").manual_seed(seed)


@pytest.mark.slow
def test_the_safety_checker_judges_each_image_of_a_batch(folder: Path) -> None:
    import torch

    generator: Any = load_models(paper_at(folder)).generator
    assert [one.image for one in drawn(generator, [("a bird", 1, 0), ("a bird", 2, 1)], 2)] == [None, None]
    checker = generator._pipe.safety_checker
    torch.nn.init.normal_(checker.visual_projection.weight)
    near: list[float] = []

    def look(_module: object, _given: object, embedding: Any) -> None:
        near.extend(torch.nn.functional.cosine_similarity(embedding, checker.concept_embeds[:1]).tolist())

    with checker.visual_projection.register_forward_hook(look):
        drawn(generator, [("a bird", 1, 0), ("a bird", 2, 1)], 2)
    checker.special_care_embeds_weights.data.fill_(10)
    checker.concept_embeds_weights.data.fill_(sum(near) / 2)
    results = drawn(generator, [("a bird", 1, 0), ("a bird", 2, 1)], 2)
    flagged = max(range(2), key=near.__getitem__)
    assert [one.safe for one in results] == [place != flagged for place in range(2)]
    assert results[flagged].image is None and isinstance(results[flagged].refused, UserError)
    assert results[1 - flagged].image is not None


@pytest.mark.slow
def test_previews_show_all_that_are_drawn(models: Models) -> None:
    generator: Any = models.generator
    shown: list[Image.Image | None] = []
    wanted = [Wanted("a bird", seed, seed) for seed in (0, 2, 3)]
    generator.draw(wanted, 4, control(), QUICK, lambda _done, _total: shown.append(generator.preview()))
    assert {image.size for image in shown if image is not None} == {(96, 64)} and generator.preview() is None
