"""The driver runs a recipe: it takes a request, reports events, and keeps values and images in a store.

Page, command line and scripts all use the driver. It decides what is still fresh and what must be made again, stops
when asked to, and resumes from what the store has. Knows no page and no database.

Images are drawn in batches of one size, and the last batch is filled up. The pixels of an image depend on its own seed,
caption and control image, on the size of its batch and its place there, and never on the other images in the batch. So
an image can be drawn again alone, given the `DrawnBatch` in its lineage.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from core.errors import Cancelled, UnreadableReply, UserError, one_line, out_of_memory
from core.images import image_sha
from core.lineage import Failure, Lineage, MethodSettings, TestCase
from core.masks import NO_MASK, InMask, in_mask
from core.progress import Pace, Progress, stop_if, stoppable
from core.settings import Settings
from core.types import GENERATION, CounterfactualCaption, CounterfactualCaptions, StageName, Task, Values
from pipeline.drawing_speed import Effort, SideTime, Speeds
from pipeline.freshness import Producer, inputs_key, stale_stages, with_producer
from pipeline.methods import method_of
from pipeline.methods.base import Preparations
from pipeline.profiles.profile import Profile
from pipeline.prompting import PromptSet, edited_prompts
from pipeline.recipes import Recipe, recipe_of
from pipeline.request import (
    DrawingBegan,
    Emit,
    Event,
    ImageDone,
    ImageFailed,
    Placed,
    Preview,
    Remarked,
    Request,
    StageBegan,
    StageDone,
    Store,
)
from pipeline.seams import CaseRequest, InversionStore, Method, Models, OnStep, Prepared, Source
from pipeline.stages import generation
from pipeline.stages.base import EarlyReply, StageInputs, StageMade
from pipeline.stages.generation import Plan, PlannedImage

PREVIEW_SHARE = 0.04
"""Maximum share of drawing time for previews. A preview that would exceed it is left out."""
MOST_OPEN = 8
"""Maximum number of batches that wait until they are full. If there are more, the oldest one is drawn."""

EmitOf = Callable[[int, Event], None]
"""Progress callback: called with a source's index and an event, one call at a time. If it raises an error at an event
of a text stage, work on this source ends. An error at an event of the drawing, or Cancelled, ends all work."""


def ignore(*_event: object) -> None:
    """Do nothing. This is the default function for events."""


class Driver:
    """Runs recipes with the models of one profile, from any thread, one request at a time. `speeds` remembers how long
    images took. `prompts` replaces the profile's prompt set. `inversions` stores inverted sources.
    """

    def __init__(
        self,
        profile: Profile,
        models: Models,
        prompts: PromptSet | None = None,
        inversions: InversionStore | None = None,
    ) -> None:
        self.profile, self.models, self.inversions = profile, models, inversions
        self._prompts = prompts
        self._loaded: dict[Recipe, PromptSet] = {}
        self.speeds = Speeds()
        self.preparations = Preparations()

    def run(
        self,
        request: Request,
        store: Store,
        emit: Emit = ignore,
        cancelled: threading.Event | None = None,
        worklist: Worklist | None = None,
    ) -> None:
        """Run a request's text stages, draw its images, and save results in `store`. A `worklist`, which may change
        during the run, replaces the request's images. If an image cannot be made, ImageFailed is emitted and the next
        one begins. Raises UserError, UnreadableReply and Cancelled; finished results stay in the store.
        """
        recipe = recipe_of(request.recipe)
        draws = worklist is not None or request.images is None or bool(request.images)
        method = recipe.drawing_method
        if draws and (refused := method.refused(self.profile, method.settings_of(request.settings))):
            raise UserError(refused)  # before the text stages take their time
        run = _RecipeRun(self, recipe, store, emit, cancelled)
        names = recipe.names if request.stages is None else request.stages
        for place, name in enumerate(names):
            stop_if(cancelled)
            request = store.latest(request)
            run.stage(name, request, names[place + 1 :])
        if draws:
            run.draw(request, worklist)

    # Prompts, producers and plans

    def prompts(self, recipe: Recipe, edited: Mapping[StageName, str] | None = None) -> PromptSet:
        """Return a recipe's prompts with the templates that a person edited. Raises PromptError for an invalid one."""
        if recipe not in self._loaded:
            self._loaded[recipe] = self._prompts or recipe.prompts(self.profile.prompts)
        own = {slot.name for slot in recipe.prompt_slots}
        templates = {name: template for name, template in (edited or {}).items() if name in own}
        return edited_prompts(self._loaded[recipe], recipe.prompt_slots, templates)

    def producers(self, recipe: Recipe, prompts: PromptSet, settings: Settings) -> dict[StageName, Producer]:
        """Return, for each stage, the model and prompts that would produce its value now. Loads no model."""
        models = {
            "captioner": self.profile.captioner,
            "segmenter": self.profile.segmenter,
            "language model": self.profile.language,
        }
        templates = {name: prompt.template for name, prompt in prompts.prompts.items()}
        return {
            stage.name: Producer(
                model.title if (model := models[stage.producer]) is not None else "",
                templates[stage.prompt.name] if stage.prompt else "",
                tuple((slot.name, templates.get(slot.name, "")) for slot in stage.others_sent(settings)),
            )
            for stage in recipe.stages
            if stage.producer in models
        }

    def made(
        self,
        recipe: Recipe,
        drawn: Iterable[Lineage],
        own: MethodSettings,
        task: Task,
        prompts: PromptSet,
        classes_in_mask: InMask = NO_MASK,
    ) -> dict[tuple[CounterfactualCaption, int], Lineage]:
        """Return the `drawn` images that this recipe would draw in the same way now, by caption and seed. `own` are the
        method's settings (`Recipe.drawn_with`). Facts that a lineage does not record count as equal.
        """
        method = method_of(recipe.method)
        model = method.model_name(self.models, own)
        return {
            (lineage.counterfactual, lineage.seed): lineage
            for lineage in drawn
            if lineage.recipe == recipe.name
            and lineage.method == method.name
            and method.drawn_alike(lineage.settings, own)
            and (lineage.model == model or "" in (lineage.model, model))
            and lineage.task in (task, None)  # its checks depend on the task
            and method.prompt(prompts, lineage.counterfactual, task, classes_in_mask) in (lineage.prompt, None)
        }

    def plan(
        self,
        recipe: Recipe,
        values: Values,
        settings: Settings,
        seed: int = 0,
        made: Collection[tuple[CounterfactualCaption, int]] = (),
        size: tuple[int, int] | None = None,
        failures: Collection[Failure] = (),
    ) -> Plan:
        """Return the images to draw, for a person's approval. Without captions, the plan is empty. `made` has caption
        and seed of each image that exists. `size` is the source's (width, height), to estimate the time.
        """
        method = method_of(recipe.method)
        own = method.settings_of(settings)
        each = self.speeds.seconds(method.effort(own, size or (1, 1)))
        captions = recipe.captions(values)
        if captions is None:
            return Plan((), 0, 0, each and 0.0)
        plan = generation.plan(captions, method.planning(settings), seed, each, made, failures)
        preparing = method.preparing(own) if plan.images else 0.0
        return plan if plan.seconds is None else replace(plan, seconds=plan.seconds + preparing * (each or 0.0))


class _RecipeRun:
    def __init__(
        self, driver: Driver, recipe: Recipe, store: Store, emit: Emit, cancelled: threading.Event | None
    ) -> None:
        self._driver, self._recipe, self._store = driver, recipe, store
        self._emit, self._cancelled = emit, cancelled
        self._source = store.source()
        self._sha = image_sha(self._source)
        self._replies: dict[StageName, EarlyReply] = {}
        """Replies that answer later stages too, by the name of the later stage."""

    def stage(self, name: StageName, request: Request, later: tuple[StageName, ...]) -> None:
        driver, recipe, store, settings = self._driver, self._recipe, self._store, request.settings
        prompts, values = driver.prompts(recipe, request.prompts), store.values()
        stage, made_by = recipe.stage(name), driver.producers(recipe, prompts, settings)
        fresh = name in values and name not in stale_stages(recipe, request.task, self._sha, values, settings, made_by)
        if fresh and name != request.anew:
            self._emit(StageDone(name, values[name], reused=True))
            return
        self._emit(StageBegan(name, recipe.names.index(name) + 1, len(recipe.cards)))
        bare = {read: value.value for read, value in values.items()}
        if missing := next((read for read in stage.reads if read not in bare), None):
            raise UserError(recipe.missing(missing))
        tries = store.tries(name)
        spent = sum(failure.tries for failure in store.failures() if failure.stage == name)
        ahead = recipe.asked_ahead(name, settings, prompts)
        if not set(ahead) <= set(later):
            ahead = ()  # those stages do not all run next, so their parts of the reply would be lost
        inputs = StageInputs(
            source=self._source,
            task=request.task,
            values={read: bare[read] for read in stage.reads},
            settings=getattr(settings, stage.settings) if stage.settings else None,
            models=driver.models,
            prompt=prompts[stage.prompt.name] if stage.prompt is not None else None,
            seed=request.seed + len(tries) + spent,  # a new seed for each try, or the old value comes again
            before=tries[-1].value if fresh and tries else None,
            progress=self._emit,
            cancelled=self._cancelled,
            others={slot.name: prompt for slot in stage.other_prompts if (prompt := prompts.get(slot.name))},
            next={other: getattr(settings, recipe.stage(other).settings) for other in ahead},
            early_reply=self._replies.get(name),
        )
        try:
            with stoppable(self._cancelled):
                made = stage.run(inputs)
        except UnreadableReply as error:
            failure = Failure(name, spent + error.attempts, str(error), prompt=error.prompt, raw_reply=error.raw_reply)
            store.save_failure(failure)
            raise
        except Exception as error:
            if not isinstance(error, UserError) and out_of_memory(error):
                raise UserError(
                    f"The machine ran out of memory at the stage {stage.title.lower()}: end other programs that use "
                    "memory, or use a profile with smaller models."
                ) from error
            raise
        stop_if(self._cancelled)  # asked to stop while the model replied: its reply is dropped
        if isinstance(made, StageMade):
            self._replies.update(made.early_replies)
            made = made.value
        key = inputs_key(recipe, name, request.task, self._sha if stage.reads_source else "", bare, settings)
        value = replace(made, inputs_key=with_producer(key, made_by[name]) if name in made_by else key)
        store.save_value(name, value)
        self._emit(StageDone(name, value, unchanged=inputs.before is not None and value.value == inputs.before))

    def draw(self, request: Request, worklist: Worklist | None) -> None:
        if worklist is None:
            worklist = FixedWorklist(self._lacking(request) if request.images is None else request.images)
        if not worklist.waiting():
            return  # no need to load a generator
        if request.images:
            captions = dict.fromkeys(image.counterfactual for image in request.images)
            generation.require_ready(request.task, CounterfactualCaptions(tuple(captions)))
        drawing = Drawing(
            self._driver,
            self._recipe,
            request.prompts,
            worklist,
            lambda _number, event: self._emit(event),
            self._cancelled,
        )
        source = drawing.prepare(0, SourceWork(request, self._store))
        at_once = drawing.method.batch(source.prepared, worklist.waiting(), request.watched)
        most = max([at_once, *(image.batch.size for image in request.images or () if image.batch)])
        while True:
            stop_if(self._cancelled)
            if not (images := worklist.take(most)):
                break
            drawing.put(source, images, at_once)
            drawing.finish()
        if drawing.done:
            steps = drawing.done * (source.prepared.settings.steps or 1)
            self._emit(Progress(GENERATION, steps, steps, 0.0, f"{drawing.made} of {drawing.done} images"))

    def _lacking(self, request: Request) -> list[PlannedImage]:
        """Return the planned images that are not drawn yet. Report the images that are drawn already as reused."""
        driver, recipe, store, settings = self._driver, self._recipe, self._store, request.settings
        values = {name: value.value for name, value in store.values().items()}
        captions = recipe.captions(values)
        if captions is None:
            raise UserError(recipe.last.comes_first)
        generation.require_ready(request.task, captions)
        planning = recipe.drawing_method.planning(settings)
        images = generation.plan(captions, planning, request.seed, failures=store.failures()).images
        prompts, classes_in_mask = driver.prompts(recipe, request.prompts), in_mask(store.mask(), request.task)
        drawn_with = recipe.drawn_with(settings, values)
        made = driver.made(recipe, store.drawn(), drawn_with, request.task, prompts, classes_in_mask)
        lacking = []
        for image in images:
            lineage = made.get((image.counterfactual, image.seed))
            if lineage is None:
                lacking.append(image)
            else:
                self._emit(ImageDone(lineage, reused=True))
        return lacking


class Worklist(Protocol):
    """The images to be made. They may change during the run, except in a `FixedWorklist`."""

    def take(self, most: int = 1) -> Sequence[PlannedImage]:
        """Return at most `most` images, which count as begun now. Empty if none is left."""

    def dropped(self) -> Collection[int]:
        """Return the images of the latest `take` that are no longer wanted, as zero-based indices."""

    def waiting(self) -> int:
        """Return the number of images that are not begun."""


class FixedWorklist:
    """A worklist that does not change."""

    def __init__(self, images: Iterable[PlannedImage]) -> None:
        self._images = deque(images)

    def take(self, most: int = 1) -> Sequence[PlannedImage]:
        return [self._images.popleft() for _ in range(min(most, len(self._images)))]

    def dropped(self) -> Collection[int]:
        return ()

    def waiting(self) -> int:
        return len(self._images)


@dataclass(frozen=True)
class SourceWork:
    """One source image and the request for it."""

    request: Request
    store: Store


@dataclass(frozen=True)
class DrawnSource:
    """A source that is prepared for drawing."""

    number: int
    """Index of the source's `SourceWork`."""
    work: SourceWork
    prepared: Prepared


@dataclass(frozen=True)
class _Image:
    source: DrawnSource
    planned: PlannedImage
    taken: int
    """Zero-based index of the image among those that one call of `Worklist.take` returned."""


@dataclass(eq=False)  # compared by identity, so that `remove` takes this batch out of a list, and no equal one
class _Batch:
    size: int
    key: Hashable
    images: dict[int, _Image] = field(default_factory=dict)

    def place_for(self, image: PlannedImage) -> int | None:
        if image.batch is not None:
            return None if image.batch.place in self.images else image.batch.place
        return next((place for place in range(self.size) if place not in self.images), None)


class _Dropped(Cancelled):
    """Raised if the images being drawn are no longer wanted. The run goes on with other images."""


class Drawing:
    """Draws images of one recipe in batches."""

    def __init__(
        self,
        driver: Driver,
        recipe: Recipe,
        edited_prompts: Mapping[StageName, str],
        worklist: Worklist,
        emit: EmitOf,
        cancelled: threading.Event | None,
    ) -> None:
        """Load the models that draw images of the recipe. `worklist` tells how many images are to come, and which are
        no longer wanted. Raises UserError if the profile cannot draw them.
        """
        if refused := recipe.cannot_draw(driver.profile):
            raise UserError(refused)
        self._description = method_of(recipe.method)
        prompts, labels = driver.prompts(recipe, edited_prompts), driver.profile.tasks.labels
        self.method: Method[Any] = self._description.with_models(driver.models, prompts, labels, driver.inversions)
        self.done = self.made = 0
        """Numbers of images so far: `made` counts test cases, and `done` counts failed images too."""
        self.stopped = False
        """True if `emit` raised the error that ended the work, False if the method failed."""
        self._driver, self._recipe, self._worklist = driver, recipe, worklist
        self._emit, self._cancelled = emit, cancelled
        self._open: list[_Batch] = []
        self._pace: Pace | None = None
        self._steps = 0.0
        """Number of denoising steps done since the beginning, including those of dropped images."""
        self._smaller = 0
        """Reduced size of the latest batch that did not fit in memory, or 0 if every batch fitted."""

    def prepare(self, number: int, work: SourceWork) -> DrawnSource:
        """Prepare a source for drawing, and emit events about it. Raises errors of `Method.prepare`."""
        request, store = work.request, work.store
        self.tell(number, DrawingBegan())
        if placing := getattr(self.method, "placing", ""):  # for methods whose models run in several ways
            self.tell(number, Placed(placing))
        values, image = {name: value.value for name, value in store.values().items()}, store.source()
        caption, region = self._recipe.source_caption(values), self._recipe.region(values).mask(image.size)
        source = Source(image, request.task, caption, store.mask(), region)
        settings = self._recipe.drawn_with(request.settings, values)
        emit = partial(self.tell, number)
        prepared = self._driver.preparations.prepared(
            self._description, self.method, source, settings, emit, self._cancelled
        )
        if prepared.remark:
            self.tell(number, Remarked(prepared.remark))
        return DrawnSource(number, work, prepared)

    def put(
        self, source: DrawnSource, images: Sequence[PlannedImage], size: int, keys: Sequence[Hashable] | None = None
    ) -> None:
        """Put images of a source into batches, and draw the full ones. A batch has `size` images, unless its images ask
        for another size in `PlannedImage.batch`. Only images with equal `keys` share a batch.
        """
        for taken, (image, key) in enumerate(zip(images, keys or [None] * len(images), strict=True)):
            size_and_key = (size if image.batch is None else image.batch.size, key)
            for batch in self._open:
                if (batch.size, batch.key) == size_and_key and (place := batch.place_for(image)) is not None:
                    break
            else:
                batch = _Batch(*size_and_key)
                place = batch.place_for(image)
                assert place is not None
                self._open.append(batch)
            batch.images[place] = _Image(source, image, taken)
        for batch in [batch for batch in self._open if len(batch.images) == batch.size]:
            self._open.remove(batch)
            self._draw(batch)
        while len(self._open) > MOST_OPEN:
            self._draw(self._open.pop(0))

    def finish(self) -> None:
        """Draw the remaining batches, which are not full."""
        while self._open:
            self._draw(self._open.pop(0))

    def fail(self, number: int, work: SourceWork, image: PlannedImage, error: Exception) -> None:
        """Record and report that an image cannot be made. Re-raises CannotLoad, which stops every other image too."""
        error = generation.explained(error)
        self.done += 1
        work.store.save_failure(image.failure(one_line(error)))
        self.tell(number, ImageFailed(image, error))

    def tell(self, number: int, event: Event) -> None:
        """Emit an event. `stopped` becomes True if `emit` raises an error."""
        self.stopped = True
        self._emit(number, event)
        self.stopped = False

    def _draw(self, batch: _Batch) -> None:
        images = [image for _, image in sorted(batch.images.items())]
        requests = [
            CaseRequest(image.planned.counterfactual, image.planned.seed, place)
            for place, image in sorted(batch.images.items())
        ]
        try:
            stop_if(self._cancelled)
            on_step = self._on_step(images, batch.size)
            finishing = self.method.make([one.source.prepared for one in images], requests, batch.size, on_step)
        except _Dropped:
            return
        except Cancelled:
            raise
        except Exception as error:
            if self.stopped:
                raise
            if len(images) == 1:
                image = images[0]
                self.fail(image.source.number, image.source.work, image.planned, error)
                return
            for place, image in sorted(batch.images.items()):  # to find the one that fails
                self._draw(_Batch(batch.size, batch.key, {place: image}))
            return
        for image, finish in zip(images, finishing, strict=True):
            began = time.monotonic()
            try:
                case = finish()
                self._stop_if_dropped([image])  # an image is checked after its last step
            except _Dropped:
                continue
            except Cancelled:
                raise
            except Exception as error:  # noqa: BLE001 - reported for this image; the others go on
                self.fail(image.source.number, image.source.work, image.planned, error)
            else:
                self._save(image, case, batch.size)
                # Includes the seconds that checking and saving the image took.
                effort = self._effort(image.source.prepared)
                self._driver.speeds.add(effort, case.lineage.seconds + time.monotonic() - began)

    def _save(self, image: _Image, case: TestCase, size: int) -> None:
        self.done, self.made = self.done + 1, self.made + 1
        source = image.source
        lineage = replace(case.lineage, recipe=self._recipe.name, task=source.work.request.task)
        if lineage.settings.drawn_in is not None and lineage.settings.drawn_in.size < size:
            self._smaller = lineage.settings.drawn_in.size
        source.work.store.save_case(replace(case, lineage=lineage))
        self.tell(source.number, ImageDone(lineage))

    def _effort(self, prepared: Prepared) -> Effort | None:
        return self._description.effort(prepared.settings, prepared.source.image.size)

    def _stop_if_dropped(self, images: list[_Image]) -> None:
        stop_if(self._cancelled)
        if {image.taken for image in images} <= set(self._worklist.dropped()):
            raise _Dropped

    def _on_step(self, images: list[_Image], size: int) -> OnStep:
        """Report that a batch begins, and return the function that reports its steps."""
        prepared, watched = images[0].source.prepared, images[0].source.work.request.watched
        steps = prepared.settings.steps or 1
        if self._pace is None:
            known = self._driver.speeds.seconds(self._effort(prepared))
            self._pace = Pace(0, None if known is None else known / steps)
        pace, before, previews = self._pace, self._steps, SideTime()
        first, last = self.done + 1, self.done + len(images)
        which = f"image {first}" if len(images) == 1 else f"images {first} to {last}"
        smaller = f"{self._smaller} at once, as there is too little memory for {size}"
        numbers = dict.fromkeys(image.source.number for image in images)

        def tell(step: float) -> None:
            total = last + sum(len(batch.images) for batch in self._open) + self._worklist.waiting()
            at = self.done * steps + int(step * len(images))
            pace.total = round(self._steps) + total * steps - at
            # Some models compile or load parts at the first image, which takes longer.
            notes = [getattr(self.method, "waits", ""), smaller if 0 < self._smaller < size else ""]
            remarks = ", ".join(filter(None, notes))
            note = f"{which} of {total}{f' ({remarks})' if remarks else ''}"
            left = pace.seconds_left(self._steps)
            for number in numbers:
                self.tell(number, Progress(GENERATION, at, total * steps, left, note, int(step)))

        def on_step(done: int, of: int) -> None:
            self._stop_if_dropped(images)
            # A scheduler may take a few more steps than the settings say, so steps are scaled to the bar's length.
            step = min(done, of) * steps / max(of, 1)
            self._steps = before + step * len(images)
            tell(step)
            if watched and done < of and previews.affordable(PREVIEW_SHARE):
                with previews.measured():
                    if (shown := self.method.preview()) is not None:
                        self.tell(images[0].source.number, Preview(shown))

        tell(0)
        return on_step
