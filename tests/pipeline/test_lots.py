"""Many sources at once: the same values and pixels as one source after another, and a failure affects no other
source.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from PIL import Image

from core.errors import Cancelled, CannotLoad, UnreadableReply, UserError
from core.images import image_sha
from core.lineage import DrawnBatch, Failure, TestCase
from core.progress import Progress
from core.settings import CaptionSettings, GenerationSettings, LanguageSettings, Settings, SettingsWithEditing
from core.types import CounterfactualCaption, Edit, Task
from demo.render import render
from demo.scene import PROTECTED_ROAD_CLASSES, random_scene
from pipeline import lots
from pipeline.driver import Driver, SourceWork
from pipeline.lots import draw, run_stages, shape_of
from pipeline.methods.controlnet import CONTROL_IMAGE
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile
from pipeline.recipes import DILLEMA
from pipeline.request import DrawingBegan, Event, ImageDone, ImageFailed, MemoryStore, Request, StageDone
from pipeline.seams import CaptionRequest, DrawnImage, DrawRequest, LanguageRequest, Models
from pipeline.stages import generation
from pipeline.stages.generation import PlannedImage
from tests.pipeline.models.test_real_classes import paper_at, photo
from tests.pipeline.test_instruct import profile_with
from tests.support import tiny
from tests.support.demo_server import demo_models
from tests.support.made_once import MadeOnce
from tests.support.scripted import (
    NoiseBatches,
    NoiseEditor,
    ScriptedBatches,
    ScriptedCaptioner,
    ScriptedEmbedder,
    ScriptedLanguageModel,
    ScriptedModels,
    answer,
)

DEMO = load_profile("demo")
FIRST = 3_000_000
"""Number of the first scene. Trainings draw only from smaller numbers."""
BIRD = Task("classification", label="bird")
QUICK = DEMO.settings.model_copy(update={"generation": GenerationSettings(steps=2, short_side=64)})
BLUE = CounterfactualCaption("A blue bird.", (Edit("red", "blue", "attribute"),))


def lot_models(at_once: int, *refused: int, language: ScriptedLanguageModel | None = None) -> ScriptedModels:
    models = ScriptedModels(language)
    models.generator = NoiseBatches(at_once, *refused)
    return models


def batches(models: ScriptedModels) -> list[tuple[int, list[tuple[int, int]]]]:
    generator = models.generator
    assert isinstance(generator, NoiseBatches)
    return generator.batches


def asked_for(
    number: int, images: Sequence[PlannedImage] = (), settings: Settings = QUICK, side: int = 64
) -> SourceWork:
    """Return work on a picture with a colour of its own."""
    picture = Image.new("RGB", (side, 64), (number, 90, 120))
    return SourceWork(Request(BIRD, settings, seed=number, images=tuple(images), watched=False), MemoryStore(picture))


def blue(*seeds: int) -> list[PlannedImage]:
    return [PlannedImage(BLUE, seed) for seed in seeds]


def cases(work: SourceWork) -> list[TestCase]:
    assert isinstance(work.store, MemoryStore)
    return work.store.cases


def values(work: SourceWork) -> dict[str, Any]:
    return {name: held.value for name, held in work.store.values().items()}


def drawn_seeds(works: Sequence[SourceWork]) -> list[list[int]]:
    return [[case.lineage.seed for case in cases(work)] for work in works]


# Batches with images of several sources


def test_batches_cross_sources_and_all_have_one_size() -> None:
    models, said = lot_models(4), list[tuple[int, Event]]()
    works = [asked_for(0, blue(1, 2)), asked_for(1), asked_for(2, blue(3, 4, 5)), asked_for(3, blue(6))]
    draw(Driver(DEMO, models), works, lambda number, event: said.append((number, event)))
    assert batches(models) == [(4, [(0, 1), (1, 2), (2, 3), (3, 4)]), (4, [(0, 5), (1, 6)])]
    assert drawn_seeds(works) == [[1, 2], [], [3, 4, 5], [6]]
    assert [case.lineage.settings.drawn_in for case in cases(works[2])] == [
        DrawnBatch(size=4, place=2),
        DrawnBatch(size=4, place=3),
        DrawnBatch(size=4, place=0),
    ]
    assert [number for number, event in said if isinstance(event, DrawingBegan)] == [0, 2, 3]
    assert [(number, event.lineage.seed) for number, event in said if isinstance(event, ImageDone)] == [
        (0, 1),
        (0, 2),
        (2, 3),
        (2, 4),
        (2, 5),
        (3, 6),
    ]
    told = [event for _, event in said if isinstance(event, Progress)]
    assert {event.note for event in told} == {"images 1 to 4 of 6", "images 5 to 6 of 6"}
    assert (told[0].done, told[-1].done, told[-1].total) == (0, 12, 12)


def test_so_many_are_drawn_at_once_as_is_said() -> None:
    for at_once, in_settings, size in ((None, 0, 3), (None, 5, 5), (2, 5, 2)):
        models = lot_models(3)
        drawing = QUICK.generation.model_copy(update={"batch": in_settings})
        works = [asked_for(0, blue(1), QUICK.model_copy(update={"generation": drawing}))]
        draw(Driver(DEMO, models), works, at_once=at_once)
        assert batches(models) == [(size, [(0, 1)])], "the last one too is filled up"


def test_each_image_has_the_place_that_it_says() -> None:
    models = lot_models(4)
    at = [DrawnBatch(size=4, place=3), DrawnBatch(size=2, place=1), DrawnBatch(size=4, place=3), None, None]
    planned = [PlannedImage(BLUE, seed, batch=batch) for seed, batch in enumerate(at)]
    works = [asked_for(0, planned[:2]), asked_for(1, planned[2:])]
    draw(Driver(DEMO, models), works)
    assert batches(models) == [(4, [(0, 3), (1, 4), (3, 0)]), (2, [(1, 1)]), (4, [(3, 2)])]


def test_prompts_of_different_lengths_are_drawn_apart() -> None:
    models, long = lot_models(2), replace(BLUE, text="A blue bird. " * 20)
    works = [asked_for(0, [*blue(1), PlannedImage(long, 2)]), asked_for(1, [*blue(3), PlannedImage(long, 4)])]
    draw(Driver(DEMO, models), works)
    assert batches(models) == [(2, [(0, 1), (1, 3)]), (2, [(0, 2), (1, 4)])]


def test_only_works_of_one_shape_share_a_batch() -> None:
    driver, models = Driver(DEMO, lot_models(2)), lot_models(2)
    plain = asked_for(0, blue(1))
    more = QUICK.generation.model_copy(update={"steps": 3})
    others = [asked_for(1, blue(1), side=128), asked_for(2, blue(1), QUICK.model_copy(update={"generation": more}))]
    for other in others:
        assert shape_of(driver, other) != shape_of(driver, plain)
        with pytest.raises(ValueError, match="shapes"):
            draw(Driver(DEMO, models), [plain, other])
    several = QUICK.generation.model_copy(update={"images_per_caption": 4, "seed_mode": "fixed"})
    same = asked_for(3, blue(1), QUICK.model_copy(update={"generation": several}))
    assert shape_of(driver, same) == shape_of(driver, plain), "these say which images there are, not how they look"
    with pytest.raises(ValueError, match="plan the images first"):
        draw(driver, [replace(plain, request=replace(plain.request, images=None))])


class Editing(NoiseEditor):
    """Editor that records the batch size and the indices of the images in each call."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, list[int]]] = []

    def draw(
        self, requests: Sequence[DrawRequest], size: int, pictures: Sequence[Image.Image], *more: Any
    ) -> Sequence[DrawnImage]:
        assert len({picture.tobytes() for picture in pictures}) == 1
        self.batches.append((size, [one.place for one in requests]))
        return super().draw(requests, size, pictures, *more)


def test_an_editor_edits_the_sources_one_after_another() -> None:
    models = ScriptedModels()
    models.editor = editing = Editing()
    settings = SettingsWithEditing(**QUICK.model_dump())
    works = [
        asked_for(0, blue(1, 2), settings),
        asked_for(1, [PlannedImage(replace(BLUE, text=""), 3), *blue(4)], settings),
    ]
    works = [replace(work, request=replace(work.request, recipe="dillema-instruct")) for work in works]
    said = list[Event]()
    draw(Driver(profile_with("no editor"), models), works, lambda _number, event: said.append(event))
    assert editing.batches == [(2, [0, 1]), (2, [0])] and drawn_seeds(works) == [[1, 2], [4]]
    assert [event.image.seed for event in said if isinstance(event, ImageFailed)] == [3]


# Their checks


class SeveralVectors(ScriptedEmbedder):
    """Embedder for several images or texts at once. It records the number of new ones, and fails for those in
    `fails`.
    """

    def __init__(self, *fails: str) -> None:
        self.fails, self.asked, self.known = fails, list[tuple[str, int]](), set[str]()

    def image(self, image: Image.Image) -> Sequence[float]:
        return self.images([image])[0]

    def images(self, images: Sequence[Image.Image]) -> Sequence[Sequence[float]]:
        self.record("images", [image_sha(image) for image in images])
        return [(1.0, image.getpixel((0, 0))[0] / 255) for image in images]  # type: ignore[index]

    def text(self, text: str) -> Sequence[float]:
        return self.texts([text])[0]

    def texts(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        if any(text in self.fails for text in texts):
            raise RuntimeError("this text is poison")
        self.record("texts", texts)
        return [(len(text) / 100, 1.0) for text in texts]

    def record(self, kind: str, inputs: Sequence[str]) -> None:
        if new := set(inputs) - self.known:
            self.known |= new
            self.asked.append((kind, len(new)))


def test_what_is_drawn_together_is_embedded_together() -> None:
    green = CounterfactualCaption("A green bird.", (Edit("red", "green", "attribute"),))
    planned = [blue(1, 2), [PlannedImage(green, 3)], blue(4)]

    def checks(models: ScriptedModels) -> list[list[Any]]:
        works = [asked_for(number, images) for number, images in enumerate(planned)]
        draw(Driver(DEMO, models), works)
        return [[case.checks for case in cases(work)] for work in works]

    models, labels = lot_models(4), len(DEMO.tasks.labels)
    models.embedder = together = SeveralVectors()
    made = checks(models)
    assert together.asked == [("images", 3 + 4), ("texts", 2 * labels)], "of four images, three sources, two captions"

    class OneByOne(ScriptedEmbedder):
        def image(self, image: Image.Image) -> Sequence[float]:
            return together.image(image)

        def text(self, text: str) -> Sequence[float]:
            return together.text(text)

    models.embedder = OneByOne()
    assert checks(models) == made


def test_what_cannot_be_embedded_fails_its_own_image_only() -> None:
    models, said = lot_models(3), list[tuple[int, Event]]()
    models.embedder = SeveralVectors("A green bird.")
    green = PlannedImage(CounterfactualCaption("A green bird.", ()), 2)
    works = [asked_for(0, blue(1)), asked_for(1, [green]), asked_for(2, blue(3))]
    draw(Driver(DEMO, models), works, lambda number, event: said.append((number, event)))
    assert batches(models) == [(3, [(0, 1), (1, 2), (2, 3)])] and drawn_seeds(works) == [[1], [], [3]]
    failed = [(number, str(event.error)) for number, event in said if isinstance(event, ImageFailed)]
    assert failed == [(1, "this text is poison")]


# What fails


class Remembering(MemoryStore):
    """Store that records failed images."""

    def __init__(self, source: Image.Image) -> None:
        super().__init__(source)
        self.failed: list[Failure] = []

    def save_failure(self, failure: Failure) -> None:
        self.failed.append(failure)


def test_an_image_that_is_refused_or_has_no_caption_takes_no_other_along() -> None:
    models, said = lot_models(3, 2), list[tuple[int, Event]]()
    store = Remembering(Image.new("RGB", (64, 64)))
    empty = PlannedImage(replace(BLUE, text=" "), 7)
    works = [
        SourceWork(Request(BIRD, QUICK, images=(empty, *blue(1, 2))), store),
        asked_for(1, blue(3)),
    ]
    draw(Driver(DEMO, models), works, lambda number, event: said.append((number, event)))
    assert drawn_seeds(works) == [[1], [3]]
    failed = [(number, event.image.seed, str(event.error)) for number, event in said if isinstance(event, ImageFailed)]
    assert failed == [
        (0, 7, "A counterfactual caption is empty: write it, or untick it."),
        (0, 2, "The safety checker refused this image."),
    ]
    assert [(one.seed, one.tries) for one in store.failed] == [(7, 1), (2, 1)]


def test_what_breaks_a_batch_is_found_and_the_others_are_drawn() -> None:
    class Breaking(NoiseBatches):
        def draw(self, requests: Sequence[DrawRequest], *more: Any) -> Sequence[DrawnImage]:
            if any(one.seed == 2 for one in requests):
                raise RuntimeError("this seed is poison")
            return super().draw(requests, *more)

    models, said = lot_models(3), list[Event]()
    models.generator = Breaking(3)
    works = [asked_for(0, blue(1, 2)), asked_for(1, blue(3))]
    draw(Driver(DEMO, models), works, lambda _number, event: said.append(event))
    assert batches(models) == [(3, [(0, 1)]), (3, [(2, 3)])], "at their places"
    assert [str(event.error) for event in said if isinstance(event, ImageFailed)] == ["this seed is poison"]


class Broken(Remembering):
    """Store whose source cannot be read."""

    def source(self) -> Image.Image:
        raise UserError("The image is damaged or cut short: save or download it again.")


def test_a_source_that_cannot_be_read_fails_by_itself() -> None:
    models, said = lot_models(2), list[tuple[int, Event]]()
    broken = Broken(Image.new("RGB", (64, 64)))
    request = Request(BIRD, QUICK, images=tuple(blue(1, 2)))
    works = [SourceWork(request, broken), asked_for(1, blue(3, 4))]
    draw(Driver(DEMO, models), works, lambda number, event: said.append((number, event)))
    assert drawn_seeds(works) == [[], [3, 4]] and [one.seed for one in broken.failed] == [1, 2]
    assert [number for number, event in said if isinstance(event, ImageFailed)] == [0, 0]
    every = [replace(work, request=replace(work.request, images=())) for work in works]
    first, second = run_stages(Driver(DEMO, lot_models(2)), every)
    assert "damaged" in str(first) and second is None and set(values(every[1])) == set(DILLEMA.names)


def test_a_full_disk_and_a_missing_model_end_all_of_it() -> None:
    class Full(MemoryStore):
        def save_case(self, case: TestCase) -> None:
            raise OSError(28, "No space left on device")

    works = [
        SourceWork(Request(BIRD, QUICK, images=tuple(blue(1))), Full(Image.new("RGB", (64, 64)))),
        asked_for(1, blue(2)),
    ]
    with pytest.raises(OSError, match="No space"):
        draw(Driver(DEMO, lot_models(1)), works)

    class Unloaded(NoiseBatches):
        def draw(self, *_: Any) -> Sequence[DrawnImage]:
            raise CannotLoad("There is no room for the image generator.")

    models = lot_models(1)
    models.generator = Unloaded(1)
    with pytest.raises(CannotLoad):
        draw(Driver(DEMO, models), [asked_for(0, blue(1)), asked_for(1, blue(2))])


def test_a_stop_is_heeded_within_a_step_and_keeps_what_is_there() -> None:
    stop, works = threading.Event(), [asked_for(0, blue(1, 2)), asked_for(1, blue(3, 4))]
    models = lot_models(2)

    def at_the_second_batch(number: int, event: Event) -> None:
        if number == 1 and isinstance(event, Progress) and event.step == 1:
            stop.set()

    with pytest.raises(Cancelled):
        draw(Driver(DEMO, models), works, at_the_second_batch, stop)
    assert drawn_seeds(works) == [[1, 2], []] and len(batches(models)) == 1

    def raising(_number: int, event: Event) -> None:
        if isinstance(event, Progress) and event.step == 1:
            raise RuntimeError("the page is gone")

    with pytest.raises(RuntimeError, match="the page is gone"):
        draw(Driver(DEMO, lot_models(2)), [asked_for(0, blue(1, 2))], raising)


# Text stages


class SeveralCaptions(ScriptedCaptioner):
    """Captioner for several pictures at once. It records the pictures of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[list[int]] = []

    def caption_many(self, requests: Sequence[CaptionRequest], settings: CaptionSettings) -> list[tuple[str, str]]:
        self.together.append([one.seed for one in requests])
        return [self.caption(one.image, one.task, settings, one.seed) for one in requests]


def with_values_of(works: Sequence[SourceWork]) -> list[dict[str, Any]]:
    """Return the values that `Driver.run` makes for each work alone."""
    alone = [SourceWork(work.request, MemoryStore(work.store.source())) for work in works]
    driver = Driver(DEMO, ScriptedModels())
    for work in alone:
        driver.run(work.request, work.store)
    return [values(work) for work in alone]


def test_requests_of_several_sources_reach_a_model_together_and_in_their_order() -> None:
    models = ScriptedModels(ScriptedBatches(answer))
    models.captioner = captioner = SeveralCaptions()
    works, said = [asked_for(number) for number in range(5)], list[tuple[int, Event]]()
    assert run_stages(Driver(DEMO, models), works, lambda number, event: said.append((number, event))) == [None] * 5
    assert captioner.together == [[0, 1, 2, 3, 4]]
    language = models.language
    assert isinstance(language, ScriptedBatches)
    assert [len(asked) for asked in language.batches[:2]] == [5, 5], "keywords of all, alternatives of all"
    assert language.batches[0] == sorted(language.batches[0])
    assert [values(work) for work in works] == with_values_of(works)
    done = [(number, event.stage) for number, event in said if isinstance(event, StageDone)]
    assert {stage for _, stage in done[:5]} == {"caption"}, "captions of all come first"
    assert len(done) == len(set(done)) == 20


def test_more_sources_than_run_side_by_side_are_all_worked_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lots, "SIDE_BY_SIDE", 3)
    models = ScriptedModels(ScriptedBatches(answer))
    works = [asked_for(number) for number in range(8)]
    assert run_stages(Driver(DEMO, models), works) == [None] * 8
    assert [values(work) for work in works] == with_values_of(works)
    assert isinstance(models.language, ScriptedBatches) and len(models.language.batches[0]) == 3


def test_models_that_take_one_request_are_asked_for_one_source_after_another() -> None:
    models, said = ScriptedModels(), list[tuple[int, str]]()

    def told(number: int, event: Event) -> None:
        if isinstance(event, StageDone):
            said.append((number, event.stage))

    works = [asked_for(number) for number in range(2)]
    assert run_stages(Driver(DEMO, models), works, told) == [None, None]
    assert said == [(0, "caption"), (1, "caption"), *((n, stage) for n in (0, 1) for stage in DILLEMA.names[1:])]


def test_values_that_are_fresh_ask_no_model() -> None:
    works = [asked_for(number) for number in range(2)]
    run_stages(Driver(DEMO, ScriptedModels()), works)

    class NoModels:
        """Models that must not be used: each access fails."""

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"nothing was to be asked of the {name}")

    before, said = [values(work) for work in works], list[Event]()
    assert run_stages(Driver(DEMO, cast(Models, NoModels())), works, lambda _number, event: said.append(event)) == [
        None,
        None,
    ]
    assert [values(work) for work in works] == before
    assert all(event.reused for event in said if isinstance(event, StageDone)) and len(said) == 8


def test_replies_that_cannot_be_read_end_their_own_source_only() -> None:
    def spoilt(prompt: str) -> str:
        return "I cannot help with that." if "gnu" in prompt else answer(prompt)

    for language in (ScriptedBatches(spoilt), ScriptedLanguageModel(spoilt)):
        models = ScriptedModels(language)
        works = [asked_for(number) for number in range(3)]
        works[1] = replace(works[1], request=replace(works[1].request, task=Task("classification", label="gnu")))
        ended = run_stages(Driver(DEMO, models), works)
        assert isinstance(ended[1], UnreadableReply) and ended[0] is ended[2] is None
        assert set(values(works[1])) == {"caption"} and set(values(works[2])) == set(DILLEMA.names)


def test_what_a_model_raises_at_one_request_is_not_told_of_the_others() -> None:
    class Choking(ScriptedBatches):
        def complete_many(
            self, requests: Sequence[LanguageRequest], settings: LanguageSettings, on_reply: Callable[[int], None]
        ) -> Sequence[str | UserError]:
            if any("gnu" in one.prompt for one in requests):
                raise RuntimeError("CUDA out of memory.")
            return super().complete_many(requests, settings, on_reply)

    works = [asked_for(number) for number in range(3)]
    works[1] = replace(works[1], request=replace(works[1].request, task=Task("classification", label="gnu")))
    ended = run_stages(Driver(DEMO, ScriptedModels(Choking(answer))), works)
    assert "ran out of memory" in str(ended[1]) and ended[0] is ended[2] is None


def test_text_stages_can_be_stopped() -> None:
    stop = threading.Event()

    def stopping(prompt: str) -> str:
        stop.set()
        return answer(prompt)

    for language in (ScriptedBatches(stopping), ScriptedLanguageModel(stopping)):
        stop.clear()
        works = [asked_for(number) for number in range(4)]
        with pytest.raises(Cancelled):
            run_stages(Driver(DEMO, ScriptedModels(language)), works, cancelled=stop)
        assert all(set(values(work)) == {"caption"} for work in works)

    def raising(_number: int, event: Event) -> None:
        if isinstance(event, StageDone) and event.stage == "keywords":
            raise Cancelled("Stopped.")

    with pytest.raises(Cancelled):
        run_stages(Driver(DEMO, ScriptedModels(ScriptedBatches(answer))), works, raising)


# The embedded models


def scene_works(count: int, settings: Settings) -> list[SourceWork]:
    works = []
    for number in range(count):
        scene = random_scene(FIRST + number, "object" if number % 2 else "road")
        road = scene.family == "road"
        task = Task("segmentation", protected=PROTECTED_ROAD_CLASSES) if road else Task("classification", scene.label)
        picture = Image.fromarray(render(scene)[0])
        works.append(SourceWork(Request(task, settings, seed=number, images=(), watched=False), MemoryStore(picture)))
    return works


@pytest.mark.demo
@pytest.mark.slow
def test_a_captioner_says_the_same_of_an_image_alone_and_among_others() -> None:
    captioner: Any = demo_models().captioner
    asked = [
        CaptionRequest(work.store.source(), work.request.task, number)
        for number, work in enumerate(scene_works(4, QUICK))
    ]
    for settings in (CaptionSettings(), CaptionSettings(temperature=0.7)):
        alone = [captioner.caption(one.image, one.task, settings, one.seed) for one in asked]
        assert captioner.caption_many(asked, settings) == alone
        assert captioner.caption_many(asked[::-1], settings) == alone[::-1]
    beams = CaptionSettings(temperature=1.0, beams=2)
    alone = [captioner.caption(one.image, one.task, beams, one.seed) for one in asked[:2]]
    assert captioner.caption_many(asked[:2], beams) == alone


@pytest.mark.demo
@pytest.mark.slow
def test_a_lot_has_the_values_of_single_runs_and_each_image_is_drawn_again_alone_to_the_bit() -> None:
    own = DEMO.settings
    settings = own.model_copy(
        update={
            "counterfactuals": own.counterfactuals.model_copy(update={"captions": 2}),
            "generation": own.generation.model_copy(update={"steps": 2}),
        }
    )
    driver = Driver(DEMO, demo_models())
    works = scene_works(3, settings)
    assert run_stages(driver, works) == [None] * 3
    for work in works:
        alone = MemoryStore(work.store.source())
        driver.run(work.request, alone)
        assert {name: held.value for name, held in alone.held.items()} == values(work)

    planned = [
        replace(
            work,
            request=replace(
                work.request,
                images=generation.plan(values(work)["counterfactuals"], settings.generation, work.request.seed).images,
            ),
        )
        for work in works
    ]
    shapes = {shape_of(driver, work) for work in planned}
    assert len(shapes) == 1
    draw(driver, planned, at_once=4)
    made = [(work, case) for work in planned for case in cases(work)]
    assert len(made) == sum(len(work.request.images or ()) for work in planned) > 4
    again = random.Random(0).sample(made, 2)
    for work, case in again:
        lineage = case.lineage
        image = PlannedImage(lineage.counterfactual, lineage.seed, batch=lineage.settings.drawn_in)
        assert image.batch is not None and image.batch.size == 4, "the last batch is filled up"
        store = MemoryStore(work.store.source(), work.store.values())
        driver.run(replace(work.request, stages=(), images=(image,)), store)
        (alone_case,) = store.cases
        assert alone_case.image.tobytes() == case.image.tobytes()
        assert alone_case.artifacts[CONTROL_IMAGE].tobytes() == case.artifacts[CONTROL_IMAGE].tobytes()
        assert replace(alone_case.lineage, seconds=0.0) == replace(lineage, seconds=0.0)
        assert [(c.name, c.passed) for c in alone_case.checks] == [(c.name, c.passed) for c in case.checks]
        assert [c.value for c in alone_case.checks] == pytest.approx([c.value for c in case.checks], abs=1e-6)
    # Neighbours change nothing: the sources in reverse order, each image at its old place in a batch.
    fixed = [
        replace(
            work,
            request=replace(
                work.request,
                images=tuple(
                    PlannedImage(case.lineage.counterfactual, case.lineage.seed, batch=case.lineage.settings.drawn_in)
                    for case in cases(work)
                ),
            ),
            store=MemoryStore(work.store.source(), work.store.values()),
        )
        for work in planned
    ]
    draw(driver, fixed[::-1])
    for work, other in zip(planned, fixed, strict=True):
        pixels = {(c.lineage.counterfactual, c.lineage.seed): c.image.tobytes() for c in cases(work)}
        assert {(c.lineage.counterfactual, c.lineage.seed): c.image.tobytes() for c in cases(other)} == pixels


# The real classes at small size


@pytest.mark.slow
def test_stable_diffusion_draws_each_on_its_own_control_image_and_halves_what_does_not_fit(
    made_once: MadeOnce,
) -> None:
    import torch

    profile = paper_at(tiny.paper_models(made_once), generator={"safety_checker": False})
    models = load_models(profile)
    driver = Driver(profile, models)
    drawing = GenerationSettings(steps=2, short_side=64, guidance=5.0)
    settings = profile.settings.model_copy(update={"generation": drawing})
    long = replace(BLUE, text="a photo of a very long road " * 12)

    def works() -> list[SourceWork]:
        return [
            SourceWork(
                Request(BIRD, settings, stages=(), images=(PlannedImage(BLUE, n), PlannedImage(long, 9 + n))),
                MemoryStore(photo(n)),
            )
            for n in range(3)
        ]

    lot, said = works(), list[Event]()
    draw(driver, lot, lambda _number, event: said.append(event), at_once=3)
    assert not [event for event in said if isinstance(event, ImageFailed)]

    def same_alone(work: SourceWork) -> None:
        for case in cases(work):
            batch = case.lineage.settings.drawn_in
            store = MemoryStore(work.store.source())
            image = PlannedImage(case.lineage.counterfactual, case.lineage.seed, batch=batch)
            driver.run(replace(work.request, images=(image,)), store)
            assert store.cases[0].image.tobytes() == case.image.tobytes()

    for place, work in enumerate(lot):
        assert [case.lineage.settings.drawn_in for case in cases(work)] == [DrawnBatch(size=3, place=place)] * 2
        same_alone(work)

    generator: Any = models.generator

    def full(_unet: object, given: tuple[Any, ...]) -> None:
        if len(given[0]) > 4:  # with guidance each image needs two rows
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    lot = works()
    said.clear()
    with generator._pipe.unet.register_forward_pre_hook(full):
        draw(driver, lot, lambda _number, event: said.append(event), at_once=4)
    sizes = {
        case.lineage.settings.drawn_in.size for work in lot for case in cases(work) if case.lineage.settings.drawn_in
    }
    assert sizes == {2} and sum(len(cases(work)) for work in lot) == 6
    notes = [event.note for event in said if isinstance(event, Progress)]
    assert notes[-1].endswith("(2 at once, as there is too little memory for 4)")
    same_alone(lot[0])
