"""The driver runs a recipe: a request in, events out, with a store that keeps values and images.

Page, command line and scripts all use it. It decides what is still fresh and what has to be made again, stops if asked
to, and resumes from what the store has. Knows no page and no database.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from PIL import Image

from core.errors import UnreadableReply, UserError, out_of_memory
from core.images import image_sha
from core.lineage import DEFAULT_RECIPE, Failure, Lineage, TestCase
from core.masks import NO_MASK, InMask, in_mask
from core.progress import Progress, stop_if, stoppable
from core.settings import Settings
from core.types import GENERATION, CounterfactualCaption, CounterfactualCaptions, StageName, StageValue, Task
from pipeline.drawing import Drawing, EmitOf, SourceWork
from pipeline.drawing_speed import Speeds
from pipeline.freshness import Producer, inputs_key, producers, stale_stages, with_producer
from pipeline.methods import method_of
from pipeline.methods.base import Preparations
from pipeline.profiles.profile import Profile
from pipeline.prompting import PromptSet, edited_prompts
from pipeline.recipes import Recipe, recipe_of
from pipeline.request import Emit, Event, ImageDone, ImageFailed, MemoryStore, Request, StageBegan, StageDone, Store
from pipeline.seams import Models
from pipeline.stages import generation
from pipeline.stages.base import EarlyReply, StageInputs, StageMade
from pipeline.stages.generation import FixedWorklist, Plan, PlannedImage, Worklist


def ignore(_event: Event) -> None:
    """Ignore an event."""


class Driver:
    """Runs recipes with the models of one profile, each loaded at its first use. `speeds` has its drawing times.

    `prompts` replaces the profile's prompt set, for a run that was made with another one. May be used from any thread,
    by one request at a time.
    """

    def __init__(self, profile: Profile, models: Models, prompts: PromptSet | None = None) -> None:
        self.profile, self.models = profile, models
        self._prompts = prompts
        self._loaded: dict[Recipe, PromptSet] = {}
        self.speeds = Speeds()
        self._preparations = Preparations()

    def run(
        self,
        request: Request,
        store: Store,
        emit: Emit = ignore,
        cancelled: threading.Event | None = None,
        worklist: Worklist | None = None,
    ) -> None:
        """Carry out a request. `worklist` replaces the request's images if they may change meanwhile.

        ImageFailed tells of an image that cannot be made, and the next one begins. The store decides whether it is
        tried again later, with the next seed.

        Raises UserError for what a person has to correct, UnreadableReply, and Cancelled, between two replies or
        within one denoising step after being asked to stop. The store keeps what was finished.
        """
        recipe = recipe_of(request.recipe)
        draws = worklist is not None or request.images is None or bool(request.images)
        if draws and (refused := recipe.cannot_draw(self.profile)):
            raise UserError(refused)  # before the text stages take their time
        run = _RecipeRun(self, recipe, store, emit, cancelled)
        names = recipe.names if request.stages is None else request.stages
        for place, name in enumerate(names):
            stop_if(cancelled)
            request = store.latest(request)
            run.stage(name, request, names[place + 1 :])
        if draws:
            run.draw(request, worklist)

    def drawing(
        self,
        recipe: Recipe,
        edited_prompts: Mapping[StageName, str],
        worklist: Worklist,
        emit: EmitOf,
        cancelled: threading.Event | None,
    ) -> Drawing:
        """Load the models that draw images of a recipe. Raises UserError if the profile cannot draw them."""
        if refused := recipe.cannot_draw(self.profile):
            raise UserError(refused)
        prompts, labels = self.prompts(recipe, edited_prompts), self.profile.tasks.labels
        method = method_of(recipe.method).with_models(self.models, prompts, labels)
        return Drawing(recipe, method, self.speeds, self._preparations, worklist, emit, cancelled)

    def produce(
        self,
        recipe: Recipe,
        name: StageName,
        source: Image.Image,
        task: Task,
        values: Mapping[StageName, Any],
        settings: Settings | None = None,
        seed: int = 0,
        cancelled: threading.Event | None = None,
    ) -> StageValue[Any]:
        """Run one stage on earlier values and return its value. `settings` defaults to the profile's."""
        store = MemoryStore(source, values)
        settings = settings or recipe.settings_in(self.profile)
        self.run(Request(task, settings, recipe.name, seed, stages=(name,), images=()), store, cancelled=cancelled)
        return store.held[name]

    def draw(
        self,
        source: Image.Image,
        task: Task,
        captions: CounterfactualCaptions,
        settings: Settings | None = None,
        seed: int = 0,
        emit: Emit = ignore,
        cancelled: threading.Event | None = None,
        recipe: str = DEFAULT_RECIPE,
    ) -> list[TestCase]:
        """Draw captions and return the images, by default with the profile's settings. Raises the first error."""
        settings = settings or recipe_of(recipe).settings_in(self.profile)
        images = generation.plan(captions, settings.generation, seed).images
        store = MemoryStore(source)

        def tell(event: Event) -> None:
            if isinstance(event, ImageFailed):
                raise event.error
            emit(event)

        self.run(Request(task, settings, recipe, seed, stages=(), images=images), store, tell, cancelled)
        return store.cases

    # What would be done

    def prompts(self, recipe: Recipe, edited: Mapping[StageName, str] | None = None) -> PromptSet:
        """Return a recipe's prompts with a person's templates for them. Raises PromptError for an invalid template."""
        if recipe not in self._loaded:
            self._loaded[recipe] = self._prompts or recipe.prompts(self.profile.prompts)
        held = self._loaded[recipe]
        return edited_prompts(held, recipe.prompt_slots, recipe.own_prompts(edited or {}))

    def producers(self, recipe: Recipe, prompts: PromptSet, settings: Settings) -> dict[StageName, Producer]:
        """Return the present producers of the text stages' values. Loads nothing."""
        return producers(recipe, self.profile.captioner.title, self.profile.language.title, prompts, settings)

    def made(
        self,
        recipe: Recipe,
        drawn: Iterable[Lineage],
        settings: Settings,
        task: Task,
        prompts: PromptSet,
        held: InMask = NO_MASK,
    ) -> dict[tuple[CounterfactualCaption, int], Lineage]:
        """Return the drawn images that this recipe would draw in the same way now, by caption and seed.

        `held` tells where the source's mask has the protected classes. Unknown things (a model without a name, a method
        without a prompt) count as the same.
        """
        method = method_of(recipe.method)
        own = method.settings_of(settings)
        model = method.model_name(self.models, own)
        return {
            (lineage.counterfactual, lineage.seed): lineage
            for lineage in drawn
            if lineage.recipe == recipe.name
            and lineage.method == method.name
            and method.drawn_alike(lineage.settings, own)
            and (lineage.model == model or "" in (lineage.model, model))
            and lineage.task in (task, None)  # its checks are about the task too
            and method.prompt(prompts, lineage.counterfactual, task, held) in (lineage.prompt, None)
        }

    def plan(
        self,
        recipe: Recipe,
        values: Mapping[StageName, Any],
        settings: Settings,
        seed: int = 0,
        made: Collection[tuple[CounterfactualCaption, int]] = (),
        size: tuple[int, int] | None = None,
        failures: Collection[Failure] = (),
    ) -> Plan:
        """Return the plan behind the gate, empty without captions, with the time for a source of `size`."""
        method = method_of(recipe.method)
        each = self.speeds.seconds(method.effort(method.settings_of(settings), size or (1, 1)))
        captions = recipe.captions(values)
        if captions is None:
            return Plan((), 0, 0, each and 0.0)
        return generation.plan(captions, settings.generation, seed, each, made, failures)


class _RecipeRun:
    """A request that is being carried out on one source."""

    def __init__(
        self, driver: Driver, recipe: Recipe, store: Store, emit: Emit, cancelled: threading.Event | None
    ) -> None:
        self._driver, self._recipe, self._store = driver, recipe, store
        self._emit, self._cancelled = emit, cancelled
        self._source = store.source()
        self._sha = image_sha(self._source)
        self._replies: dict[StageName, EarlyReply] = {}
        """Parts of earlier replies for later stages."""

    def stage(self, name: StageName, request: Request, later: tuple[StageName, ...]) -> None:
        """Run a stage, unless its value is fresh. `later` are the stages that follow in this request."""
        driver, recipe, store, settings = self._driver, self._recipe, self._store, request.settings
        stage, prompts, values = recipe.stage(name), driver.prompts(recipe, request.prompts), store.values()
        made_by = driver.producers(recipe, prompts, settings)
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
            ahead = ()  # who wants one alone has no use for replies to others
        inputs = StageInputs(
            source=self._source,
            task=request.task,
            values={read: bare[read] for read in stage.reads},
            settings=getattr(settings, stage.settings) if stage.settings else None,
            models=driver.models,
            prompt=prompts[stage.prompt.name] if stage.prompt is not None else None,
            seed=request.seed + len(tries) + spent,
            before=tries[-1].value if fresh and tries else None,
            progress=self._emit,
            cancelled=self._cancelled,
            others={slot.name: prompt for slot in stage.other_prompts if (prompt := prompts.get(slot.name))},
            next={other: getattr(settings, recipe.stage(other).settings) for other in ahead},
            said=self._replies.get(name),
        )
        try:
            with stoppable(self._cancelled):
                made = stage.run(inputs)
        except UnreadableReply as error:
            store.save_failure(Failure(name, spent + error.attempts, str(error)))
            raise
        except Exception as error:
            if not isinstance(error, UserError) and out_of_memory(error):
                raise UserError(
                    f"The machine ran out of memory at the stage {stage.title.lower()}: end other programs that use "
                    "it, or take a profile with smaller models."
                ) from error
            raise
        stop_if(self._cancelled)  # asked to stop while the model replied: its reply is dropped
        if isinstance(made, StageMade):
            self._replies.update(made.said)
            made = made.value
        key = inputs_key(recipe, name, request.task, self._sha if stage.reads_source else "", bare, settings)
        value = replace(made, inputs_key=with_producer(key, made_by[name]) if name in made_by else key)
        store.save_value(name, value)
        self._emit(StageDone(name, value, unchanged=inputs.before is not None and value.value == inputs.before))

    def draw(self, request: Request, worklist: Worklist | None) -> None:
        """Draw the images of the worklist, or else those of the request."""
        if worklist is None:
            worklist = FixedWorklist(self._lacking(request) if request.images is None else request.images)
        if not worklist.waiting():
            return  # nothing to do is no reason to load a generator
        if request.images:
            asked = dict.fromkeys(image.counterfactual for image in request.images)
            generation.require_ready(request.task, CounterfactualCaptions(tuple(asked)))
        drawing = self._driver.drawing(
            self._recipe, request.prompts, worklist, lambda _number, event: self._emit(event), self._cancelled
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
        """Return the images of the captions that are not drawn yet, and report the others as reused."""
        driver, recipe, store, settings = self._driver, self._recipe, self._store, request.settings
        captions = recipe.captions({name: value.value for name, value in store.values().items()})
        if captions is None:
            raise UserError(recipe.last.comes_first)
        generation.require_ready(request.task, captions)
        images = generation.plan(captions, settings.generation, request.seed, failures=store.failures()).images
        prompts, held = driver.prompts(recipe, request.prompts), in_mask(store.mask(), request.task)
        made = driver.made(recipe, store.drawn(), settings, request.task, prompts, held)
        lacking = []
        for image in images:
            lineage = made.get((image.counterfactual, image.seed))
            if lineage is None:
                lacking.append(image)
            else:
                self._emit(ImageDone(lineage, reused=True))
        return lacking
