"""The driver runs a recipe: a request in, events out, with a store that keeps values and images.

Page, command line and scripts all use it. It decides what is still fresh and what has to be made again, stops if asked
to, and resumes from what the store has. Knows no page and no database.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from PIL import Image

from core.errors import UnreadableReply, UserError, one_line, out_of_memory
from core.images import image_sha
from core.lineage import DEFAULT_RECIPE, Failure, Lineage, TestCase
from core.masks import NO_MASK, InMask, NamedMask, in_mask
from core.progress import OnProgress, Progress, stop_if, stoppable
from core.settings import Settings
from core.types import CounterfactualCaption, CounterfactualCaptions, StageName, StageValue, Task, Trace
from pipeline.drawing_speed import Speeds
from pipeline.freshness import Producer, inputs_key, producers, stale_stages, with_producer
from pipeline.methods import Preparations, method_of
from pipeline.profiles.profile import Profile
from pipeline.prompting import PromptSet, edited_prompts
from pipeline.recipes import Recipe, recipe_of
from pipeline.seams import Models, Source
from pipeline.stages import generation
from pipeline.stages.base import EarlyReply, StageInputs, StageMade
from pipeline.stages.generation import FixedWorklist, Plan, PlannedImage, Worklist


@dataclass(frozen=True)
class Request:
    """A request for one source image. Plain data that can be pickled and sent to another process."""

    task: Task
    settings: Settings
    """Settings of the recipe's type."""
    recipe: str = DEFAULT_RECIPE
    """The name of a recipe."""
    seed: int = 0
    prompts: Mapping[StageName, str] = field(default_factory=dict)
    """Prompt templates that replace the profile's, by slot."""
    stages: tuple[StageName, ...] | None = None
    """Text stages to run, in order. None for all. Fresh ones are left as they are."""
    anew: StageName = ""
    """A stage that runs even if it is fresh."""
    images: tuple[PlannedImage, ...] | None = None
    """Images to draw. None for all images of the captions that are not drawn yet."""
    watched: bool = True
    """True if somebody watches. Otherwise there are no previews, and small images are drawn together."""


@dataclass(frozen=True)
class StageBegan:
    """A text stage runs now."""

    stage: StageName
    number: int
    """Place of the stage in the recipe, from 1."""
    total: int
    """Number of stages of the recipe, including the drawing."""


@dataclass(frozen=True)
class StageDone:
    """A text stage has its value, which is in the store."""

    stage: StageName
    value: StageValue[Any]
    reused: bool = False
    """True if the value was fresh and is kept."""
    unchanged: bool = False
    """True if the stage ran again on the same inputs and gave the same value."""


@dataclass(frozen=True)
class DrawingBegan:
    """Drawing begins."""


@dataclass(frozen=True)
class Placed:
    """The generator is loaded."""

    words: str
    """Device and reason in words, such as "cpu, float32: no GPU was found"."""


@dataclass(frozen=True)
class Preview:
    """A preview of the image that is being drawn."""

    image: Image.Image


@dataclass(frozen=True)
class ImageDone:
    """An image is done and is in the store."""

    lineage: Lineage
    reused: bool = False
    """True if the image was there and would be drawn in the same way."""


@dataclass(frozen=True)
class ImageFailed:
    """An image could not be made, which the store has noted. The next one begins."""

    image: PlannedImage
    """The image with the seed that was used."""
    error: Exception
    """The error, as a UserError if its meaning is known."""


Event = StageBegan | StageDone | DrawingBegan | Placed | Progress | Preview | ImageDone | ImageFailed
Emit = Callable[[Event], None]
"""Called with every event, in the driver's thread. An error raised there ends the work."""


class Store(Protocol):
    """Values and images of one source image: the driver reads and saves them here."""

    def source(self) -> Image.Image:
        """Return the source image, RGB, always the same."""
        ...

    def mask(self) -> NamedMask | None:
        """Return the mask of the source image, or None."""
        ...

    def latest(self, request: Request) -> Request:
        """Return the request with the present task, settings and prompts, which may change meanwhile."""
        ...

    def values(self) -> Mapping[StageName, StageValue[Any]]:
        """Return the value of each stage that has one."""
        ...

    def tries(self, stage: StageName) -> tuple[StageValue[Any], ...]:
        """Return the earlier values of models at a stage, oldest first. Each further try takes another seed."""
        ...

    def save_value(self, stage: StageName, value: StageValue[Any]) -> None: ...

    def drawn(self) -> Collection[Lineage]:
        """Return the lineages of the images that are there."""
        ...

    def save_case(self, case: TestCase) -> None: ...

    def failures(self) -> Collection[Failure]:
        """Return the failures noted so far."""
        ...

    def save_failure(self, failure: Failure) -> None:
        """Note a failure. It replaces an earlier one of the same stage or image."""
        ...


class MemoryStore:
    """A store in memory."""

    def __init__(
        self,
        source: Image.Image,
        values: Mapping[StageName, Any] | None = None,
        mask: NamedMask | None = None,
        cases: Iterable[TestCase] = (),
    ) -> None:
        """`values` are `StageValue`s or bare values. Later stages read a bare value, but its inputs are unknown, so it
        counts as stale and a request for its stage makes it again.
        """
        self._source, self._mask = source, mask
        self.held = {
            name: value if isinstance(value, StageValue) else StageValue(value, Trace("person"))
            for name, value in (values or {}).items()
        }
        self.cases = list(cases)

    def source(self) -> Image.Image:
        return self._source

    def mask(self) -> NamedMask | None:
        return self._mask

    def latest(self, request: Request) -> Request:
        return request

    def values(self) -> Mapping[StageName, StageValue[Any]]:
        return self.held

    def tries(self, stage: StageName) -> tuple[StageValue[Any], ...]:
        return ()

    def save_value(self, stage: StageName, value: StageValue[Any]) -> None:
        self.held[stage] = value

    def drawn(self) -> Collection[Lineage]:
        return [case.lineage for case in self.cases]

    def save_case(self, case: TestCase) -> None:
        self.cases.append(case)

    def failures(self) -> Collection[Failure]:
        return ()

    def save_failure(self, failure: Failure) -> None:
        """Keep nothing: an event tells of the failure."""


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
        recipe, sha = recipe_of(request.recipe), image_sha(store.source())
        draws = worklist is not None or request.images is None or bool(request.images)
        if draws and (refused := recipe.cannot_draw(self.profile)):
            raise UserError(refused)  # before the text stages take their time
        names, said = recipe.names if request.stages is None else request.stages, dict[StageName, EarlyReply]()
        for place, name in enumerate(names):
            stop_if(cancelled)
            request = store.latest(request)
            self._stage(recipe, name, request, store, sha, emit, cancelled, names[place + 1 :], said)
        if draws:
            self._draw(recipe, request, store, emit, cancelled, worklist)

    def _stage(
        self,
        recipe: Recipe,
        name: StageName,
        request: Request,
        store: Store,
        source_sha: str,
        emit: Emit,
        cancelled: threading.Event | None,
        later: tuple[StageName, ...],
        said: dict[StageName, EarlyReply],
    ) -> None:
        """Run one stage. `later` are the stages that follow in this request; `said` has early replies for them."""
        prompts, held, source = self.prompts(recipe, request.prompts), store.values(), store.source()
        made_by = self.producers(recipe, prompts, request.settings)
        stale = stale_stages(recipe, request.task, source_sha, held, request.settings, made_by)
        fresh = name in held and name not in stale
        if fresh and name != request.anew:
            emit(StageDone(name, held[name], reused=True))
            return
        emit(StageBegan(name, recipe.names.index(name) + 1, len(recipe.cards)))
        tries = store.tries(name)
        before = tries[-1].value if fresh and tries else None
        values = {read: value.value for read, value in held.items()}
        ahead = recipe.asked_ahead(name, request.settings, prompts)
        spent = sum(failure.tries for failure in store.failures() if failure.stage == name)
        try:
            value = self.produce(
                recipe,
                name,
                source,
                request.task,
                values,
                request.settings,
                request.seed + len(tries) + spent,
                before=before,
                prompts=prompts,
                progress=emit,
                cancelled=cancelled,
                ahead=ahead if set(ahead) <= set(later) else (),  # who wants one alone has no use for replies to others
                said=said,
            )
        except UnreadableReply as error:
            store.save_failure(Failure(name, spent + error.attempts, str(error)))
            raise
        except Exception as error:
            if not isinstance(error, UserError) and out_of_memory(error):
                raise UserError(
                    f"The machine ran out of memory at the stage {recipe.stage(name).title.lower()}: end other "
                    "programs that use it, or take a profile with smaller models."
                ) from error
            raise
        stop_if(cancelled)  # asked to stop while the model replied: its reply is dropped
        store.save_value(name, value)
        emit(StageDone(name, value, unchanged=before is not None and value.value == before))

    def produce(
        self,
        recipe: Recipe,
        name: StageName,
        source: Image.Image,
        task: Task,
        values: Mapping[StageName, Any],
        settings: Settings | None = None,
        seed: int = 0,
        *,
        before: Any = None,
        prompts: PromptSet | None = None,
        progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
        ahead: Collection[StageName] = (),
        said: dict[StageName, EarlyReply] | None = None,
    ) -> StageValue[Any]:
        """Run one stage on the values of earlier ones and return its value with its key. Saves nothing.

        `settings` defaults to the profile's, `before` is as in `StageInputs`. `ahead` are later stages that the same
        model request may cover; their replies go into `said`, where they find them. Raises UserError if a value that
        the stage reads is missing, and errors of the stage.
        """
        stage, settings = recipe.stage(name), settings or recipe.settings_in(self.profile)
        prompts = prompts or self.prompts(recipe)
        for read in stage.reads:
            if read not in values:
                raise UserError(recipe.missing(read))
        given = StageInputs(
            source=source,
            task=task,
            values={read: values[read] for read in stage.reads},
            settings=getattr(settings, stage.settings) if stage.settings else None,
            models=self.models,
            prompt=prompts[stage.prompt.name] if stage.prompt is not None else None,
            seed=seed,
            before=before,
            progress=progress,
            cancelled=cancelled,
            others={
                slot.name: prompt for slot in stage.other_prompts if (prompt := prompts.get(slot.name)) is not None
            },
            next={later: getattr(settings, recipe.stage(later).settings) for later in ahead},
            said=None if said is None else said.get(name),
        )
        with stoppable(cancelled):
            made = stage.run(given)
        if isinstance(made, StageMade):
            if said is not None:
                said.update(made.said)
            made = made.value
        key = inputs_key(recipe, name, task, image_sha(source) if stage.reads_source else "", values, settings)
        producer = self.producers(recipe, prompts, settings).get(name)
        return replace(made, inputs_key=key if producer is None else with_producer(key, producer))

    def _draw(
        self,
        recipe: Recipe,
        request: Request,
        store: Store,
        emit: Emit,
        cancelled: threading.Event | None,
        worklist: Worklist | None,
    ) -> None:
        settings, source, prompts = request.settings, store.source(), self.prompts(recipe, request.prompts)
        values = {name: value.value for name, value in store.values().items()}
        if worklist is None:
            images = request.images
            if images is None:
                if (captions := recipe.captions(values)) is None:
                    raise UserError(recipe.last.comes_first)
                generation.require_ready(request.task, captions)
                wanted = generation.plan(captions, settings.generation, request.seed, failures=store.failures()).images
                there, held = store.drawn(), in_mask(store.mask(), request.task)
                made = self.made(recipe, there, settings, request.task, prompts, held)
                for image in wanted:
                    lineage = made.get((image.counterfactual, image.seed))
                    if lineage is not None:
                        emit(ImageDone(lineage, reused=True))
                images = tuple(image for image in wanted if (image.counterfactual, image.seed) not in made)
            worklist = FixedWorklist(images)
        if not worklist.waiting():
            return  # nothing to do is no reason to load a generator
        if request.images:
            asked = dict.fromkeys(image.counterfactual for image in request.images)
            generation.require_ready(request.task, CounterfactualCaptions(tuple(asked)))
        emit(DrawingBegan())
        description = method_of(recipe.method)
        own = description.settings_of(settings)
        method = description.with_models(self.models, prompts, self.profile.tasks.labels)
        if placing := getattr(method, "placing", ""):  # for methods whose models run in several ways
            emit(Placed(placing))
        given = Source(source, request.task, recipe.source_caption(values), store.mask())
        prepared = self._preparations.prepared(description, method, given, own, emit, cancelled)
        known = self.speeds.seconds(effort := description.effort(own, source.size))

        def failed(image: PlannedImage, error: Exception) -> None:
            told = generation.explained(error)
            store.save_failure(image.failure(one_line(told)))
            emit(ImageFailed(image, told))

        cases = generation.run(
            method,
            prepared,
            worklist,
            emit,
            cancelled,
            None if known is None else known / (own.steps or 1),
            (lambda image: emit(Preview(image))) if request.watched else None,
            failed,
            max((image.batch.size for image in request.images or () if image.batch), default=1),
            request.watched,
        )
        for case in cases:
            self.speeds.add(effort, case.lineage.seconds)
            drawn = replace(case, lineage=replace(case.lineage, recipe=recipe.name, task=request.task))
            store.save_case(drawn)
            emit(ImageDone(drawn.lineage))

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
        """Draw these captions and return their images. `settings` defaults to the profile's.

        Raises the error of the first image that fails.
        """
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
        """Return the prompts of a recipe with a person's edited templates. Templates of other recipes are ignored.

        Raises PromptError for an invalid template.
        """
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
        """Return the plan that a yes at the gate would start, empty without captions.

        The time is estimated for a source of `size`, by default a square.
        """
        method = method_of(recipe.method)
        each = self.speeds.seconds(method.effort(method.settings_of(settings), size or (1, 1)))
        captions = recipe.captions(values)
        if captions is None:
            return Plan((), 0, 0, each and 0.0)
        return generation.plan(captions, settings.generation, seed, each, made, failures)
