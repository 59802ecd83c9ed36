"""The commands that start and stop work on runs: text stages, images after approval, control images, and the queue.

The driver of `pipeline` does the work, in the worker thread of `services.jobs`, one job at a time.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import SystemRandom
from typing import Annotated, Any

from PIL import Image
from pydantic import Field

from core.errors import Cancelled, UserError
from core.lineage import Failure, Lineage, TestCase
from core.masks import in_mask
from core.progress import Progress, stop_if, stoppable
from core.seeds import LARGEST
from core.settings import Settings
from core.stored_runs import JobState, Run
from core.types import GENERATION, Alternatives, Keyword, KeywordAlternatives, StageName, StageValue
from pipeline.conditioning import NamedMask
from pipeline.freshness import drawing_key
from pipeline.lots import phases_of
from pipeline.recipes import edits_in_words, recipe_of
from pipeline.request import DrawingBegan, Event, ImageFailed, Preview, Remarked, Request, StageBegan, StageDone
from pipeline.stages import alternatives
from pipeline.stages.generation import PlannedImage
from services.commands import KnownStage, RunCommand, does
from services.edit_conflicts import CaseId
from services.jobs import JobHandle, Part
from services.runs.editing import Editing
from services.runs.edits import keyword_of
from services.runs.life_cycle import RunService, ShownImages, case_of, require_task
from services.runs.live_images import Previews
from services.runs.state import CanBeInsistedOn, RunStates, StageNotes

REPLACED = "An earlier stage was changed after your edit, so this ran again. Undo or the history restores your edit."
"""Notice at a stage where a model replaced a person's value, because an earlier stage had changed."""


class RunStage(RunCommand):
    """Command to run one text stage."""

    stage: KnownStage
    force: bool = Field(False, description="True to replace a value that a person wrote; it stays in the history")


class RunStore:
    """Reads and saves the values and images of a run for the driver. New images belong to the job with the id `job`.
    Values with the same `batch` are undone together. By default, each store has a `batch` of its own.
    """

    def __init__(self, runs: RunService, run: Run, notes: StageNotes, job: int | None = None, batch: str = "") -> None:
        self._workspace, self._runs, self._run_id, self._job_id = runs.workspace, runs, run.id, job
        self._notes = notes
        self._source = runs.source(run)
        self._batch = batch or secrets.token_hex(8)

    def source(self) -> Image.Image:
        return self._source

    def mask(self) -> NamedMask | None:
        run = self._workspace.runs.get(self._run_id)
        return None if run.mask_sha is None else NamedMask(self._workspace.images.load(run.mask_sha), run.mask_classes)

    def latest(self, request: Request) -> Request:
        """Return the request with the run's latest task, settings and prompts, which may change during a job."""
        run = self._workspace.runs.get(self._run_id)
        settings, prompts = self._runs.settings(run, request.recipe), self._runs.templates(run)
        return replace(request, task=run.task, settings=settings, prompts=prompts)

    def values(self) -> Mapping[StageName, StageValue[Any]]:
        return {name: stored.value for name, stored in self._workspace.runs.get(self._run_id).values.items()}

    def tries(self, stage: StageName) -> tuple[StageValue[Any], ...]:
        versions = self._workspace.runs.history(self._run_id, stage)
        return tuple(version.value for version in versions if version.author == "model")

    def save_value(self, stage: StageName, value: StageValue[Any]) -> None:
        self._workspace.runs.append_value(self._run_id, stage, value, self._batch)

    def drawn(self) -> Collection[Lineage]:
        return [case.lineage for case in self._workspace.runs.get(self._run_id).test_cases]

    def save_case(self, case: TestCase) -> None:
        self._workspace.test_cases.append(self._run_id, self._job_id, case)

    def failures(self) -> Collection[Failure]:
        return self._notes.failures(self._run_id)

    def save_failure(self, failure: Failure) -> None:
        """Remember a failed image or text stage until the server stops. A person decides on another try."""
        self._notes.not_made(self._run_id, failure)


class _Wanted:
    """The `Worklist` of a job: its images, in the order that people have set."""

    def __init__(self, images: Sequence[PlannedImage], handle: JobHandle) -> None:
        self._images, self._handle = images, handle
        self._taken: tuple[Part, ...] = ()

    def take(self, most: int = 1) -> Sequence[PlannedImage]:
        self._taken = self._handle.take_parts(most)
        return [self._images[part.id] for part in self._taken]

    def dropped(self) -> Collection[int]:
        remaining = {part.id for part in self._handle.view.at_parts}
        return [place for place, part in enumerate(self._taken) if part.id not in remaining]

    def waiting(self) -> int:
        return len(self._handle.view.waiting)


class Execution:
    """Starts and stops work on runs, from any thread. Starting raises UserError for a busy run or incomplete task."""

    def __init__(
        self, runs: RunService, notes: StageNotes, editing: Editing, states: RunStates, previews: Previews
    ) -> None:
        self.workspace, self.runs, self.driver, self.jobs = runs.workspace, runs, runs.driver, runs.jobs
        self.notes, self.editing, self.states, self.previews = notes, editing, states, previews
        self.estimates, self.control_images = states.estimates, states.control_images

    @does("cancel", RunCommand)
    def cancel(self, run: str) -> None:
        """Stop the work on a run."""
        self.jobs.cancel(run)

    @does("cancel-all")
    def cancel_all(self) -> None:
        """Stop all waiting and running jobs of all runs."""
        self.jobs.cancel_all()

    @does("run", RunStage)
    def run_stage(self, sent: RunStage) -> None:
        """Run one text stage, even if its value is fresh. If a person wrote the value, raises
        CanBeInsistedOn; `force` replaces the value instead. The same request to the model may also fill later stages.
        If a person wrote the value of such a later stage, the request fills only the stage that was asked for.
        """
        if not sent.force and self._holds_edit(self.workspace.runs.get(sent.run), sent.stage):
            message = (
                "You edited this. Running the stage again puts the model's value in its place; Undo and the history "
                "keep yours."
            )
            raise CanBeInsistedOn(message, sent.model_copy(update={"force": True}))
        self.start(sent.run, (sent.stage, *self._filled_with(sent)), sent.stage)

    def _filled_with(self, command: RunStage) -> tuple[StageName, ...]:
        """Return the later stages that the same request to the model fills; () if a person wrote one of the values."""
        _require_text_stage(command.stage)
        run = self.workspace.runs.get(command.run)
        recipe, settings, prompts = recipe_of(run.recipe), self.runs.settings(run), self.runs.prompts(run)
        ahead = recipe.asked_ahead(command.stage, settings, prompts)
        return () if any(self._holds_edit(run, name) for name in ahead) else ahead

    @does("run-from", RunCommand)
    def run_from(self, run: str, stage: KnownStage) -> None:
        """Run a text stage, then all later text stages that are empty or stale. If a person wrote the stage's value and
        it is fresh, the value stays and a later stage is the first to run. Raises UserError if all values stay.
        """
        _require_text_stage(stage)
        stored = self.workspace.runs.get(run)
        recipe, stale = recipe_of(stored.recipe), self.runs.stale(stored, self.runs.settings(stored))
        recipe.stage(stage)
        onwards = recipe.onwards(stage)
        anew = next((name for name in onwards if name in stale or not self._holds_edit(stored, name)), None)
        if anew is None:
            raise UserError(
                "You edited this and all later stages, so nothing was run: to replace an edit, run its stage alone."
            )
        self.start(run, onwards[onwards.index(anew) :], anew)

    @does("run-all", RunCommand)
    def run_up_to_gate(self, run: str) -> None:
        """Run every text stage that is empty or stale. Fresh values stay."""
        self.start(run, recipe_of(self.workspace.runs.get(run).recipe).names)

    def _holds_edit(self, run: Run, stage: StageName) -> bool:
        """Return True if a person wrote the value of a stage; False if a person confirmed a model's value."""
        stored = run.values.get(stage)
        if stored is None or stored.author != "person":
            return False
        versions = self.workspace.runs.history(run.id, stage)
        return all(version.author == "person" or version.value.value != stored.value.value for version in versions)

    def run_among_others(self, run: str) -> None:
        """Run the empty or stale text stages of a run that is started together with other runs. If memory is too small
        for all models, the job queues again before it changes the model. So one load of a model serves all runs.
        """
        self.start(run, recipe_of(self.workspace.runs.get(run).recipe).names, waits=not self.driver.models.fit_together)

    def start(self, run_id: str, stages: tuple[StageName, ...], anew: StageName = "", waits: bool = False) -> None:
        """Queue text stages of a run as a job. The stage `anew` runs even if its value is fresh. With `waits`, the job
        goes back to the end of the queue whenever its next stage needs another kind of model.
        """
        run = self.workspace.runs.get(run_id)
        require_task(run)
        for stage in stages:
            recipe_of(run.recipe).stage(stage)
        if anew:
            self.notes.solved(run_id, anew)
        request = Request(run.task, self.runs.settings(run), run.recipe, stages=stages, anew=anew, images=())
        batch = secrets.token_hex(8)  # the values of a job are undone together

        def work(part: tuple[StageName, ...], handle: JobHandle) -> None:
            at_present = self.workspace.runs.get(run_id)
            self._drive(replace(request, stages=part), at_present, handle, part[0], batch=batch)

        parts = [names for _, names in phases_of(request)] if waits else [stages]
        first, *later = (partial(work, part) for part in parts)
        self.workspace.runs.appear(run_id)
        self.jobs.submit(run_id, stages, first, later=later)

    @does("alternative-more", RunCommand, stage_of_command="alternatives")
    def more_alternatives(self, run: str, keyword: Annotated[str, Field(description="The keyword")]) -> None:
        """Ask the language model for more alternatives of one keyword. Existing alternatives stay. Raises UserError if
        the keyword does not exist any more, the run is busy, or its task is incomplete.
        """
        stored = self.workspace.runs.get(run)
        chosen = keyword_of(stored, keyword)
        recipe_of(stored.recipe).stage("alternatives")
        self.notes.solved(run, "alternatives")
        require_task(stored)
        self.jobs.submit(run, ("alternatives",), lambda handle: self._more(run, chosen, handle))

    def _more(self, run_id: str, keyword: Keyword, handle: JobHandle) -> None:
        handle.at("alternatives")
        run = self.workspace.runs.get(run_id)
        stored = run.values.get("alternatives")
        before: Alternatives = stored.value.value if stored else Alternatives(())
        models, prompt, stop = self.driver.models, self.runs.prompts(run)["alternatives"], handle.cancelled
        seed = len(RunStore(self.runs, run, self.notes).tries("alternatives"))
        try:
            if "caption" not in run.values:
                raise UserError(recipe_of(run.recipe).missing("caption"))
            caption, settings = run.values["caption"].value.value, self.runs.settings(run).alternatives
            with stoppable(stop):
                grown, trace = alternatives.more(
                    caption, before, keyword, run.task, models.language, prompt, settings, seed, models.sentences, stop
                )
        except UserError as error:
            self.notes.failed(run_id, "alternatives", error)
            raise
        stop_if(stop)
        with self.runs.changing:
            now = self.workspace.runs.get(run_id)
            self.editing.append_by_model(now, "alternatives", joined(now, before, grown), trace)
        self.notes.solved(run_id, "alternatives")

    @does("generate", RunCommand, stage_of_command="generation")
    def generate(self, run: str, shown: ShownImages = "") -> None:
        """Approve the gate of a run: its planned images are made. Raises UserError if the gate is closed, or if the
        planned images have changed since they were shown.
        """
        require_task(self.workspace.runs.get(run))
        with self.runs.changing:
            gate = self.states.of(run).gate
            if gate.plan is None:
                raise UserError(gate.closed)
            if shown not in ("", gate.shown):
                raise UserError("The planned images changed after they were shown: check them and approve again.")
            self.start_images(run, gate.plan.images)

    @does("regenerate", RunCommand, stage_of_command="generation")
    def regenerate(self, run: str, case: CaseId) -> None:
        """Draw the caption of a test case again, with a new seed and the run's present settings. Raises UserError for a
        test case of another run, and if the new image would equal an existing one.
        """
        lineage = case_of(self.workspace, run, case).lineage
        caption, seed = replace(lineage.counterfactual, used=True), SystemRandom().randint(0, LARGEST)
        stored, recipe = self.workspace.runs.get(run), recipe_of(lineage.recipe)
        settings, method = self.runs.settings(stored, recipe.name), recipe.drawing_method
        if equal := method.equal_images(method.settings_of(settings)):
            store, seed = RunStore(self.runs, stored, self.notes), method.planning(settings).seed
            prompts = self.driver.prompts(recipe, self.runs.templates(stored))
            mask_facts = in_mask(store.mask(), stored.task)
            drawn_with = recipe.drawn_with(settings, {name: value.value for name, value in store.values().items()})
            if (caption, seed) in self.driver.made(recipe, store.drawn(), drawn_with, stored.task, prompts, mask_facts):
                raise UserError(equal)
        self.start_images(run, (PlannedImage(caption, seed),), lineage.recipe)

    def start_images(
        self, run_id: str, images: Sequence[PlannedImage], recipe_name: str = "", settings: Settings | None = None
    ) -> int:
        """Queue images of a run as a job and return its number. By default, recipe and settings are the run's."""
        run = self.workspace.runs.get(run_id)
        recipe = recipe_of(recipe_name or run.recipe)
        if refused := recipe.cannot_draw(self.driver.profile):
            raise UserError(refused)
        settings = settings or self.runs.settings(run, recipe.name)
        values = {name: stored.value.value for name, stored in run.values.items()}
        key = drawing_key(recipe, run.task, self.runs.pixels(run.source_sha), values, settings)
        names = [f"{edits_in_words(recipe.name, image.counterfactual)} · seed {image.seed}" for image in images]
        prompts = self.runs.templates(run)
        request = Request(run.task, settings, recipe.name, prompts=prompts, stages=(), images=tuple(images))
        self.jobs.require_idle(run_id)
        # The job is stored before it waits: if the server is killed, a record of the missing images remains.
        job_id = self.workspace.jobs.start(run_id, len(images), key)
        try:
            return self.jobs.submit(
                run_id,
                (GENERATION,),
                lambda handle: self._draw(request, run_id, job_id, handle),
                names,
                self.estimates.seconds_per_image(run, settings),
                unbegun=lambda: self.workspace.jobs.finish(job_id, "cancelled"),
            )
        except UserError:  # another page started a job in the meantime
            self.workspace.jobs.finish(job_id, "cancelled")
            raise

    def _draw(self, request: Request, run_id: str, job_id: int, handle: JobHandle) -> None:
        handle.at(GENERATION)
        self.notes.solved(run_id, GENERATION)
        outcome: tuple[JobState, str] = ("failed", "The studio itself failed; the terminal says more.")
        try:
            run = self.workspace.runs.get(run_id)
            self._drive(replace(request, task=run.task), run, handle, GENERATION, job_id)
            outcome = ("done", "")
        except Cancelled:
            outcome = ("interrupted", "The studio was stopped.") if handle.closing else ("cancelled", "")
            raise
        except UserError as error:
            outcome = ("failed", str(error))
            raise
        finally:
            self.workspace.jobs.finish(job_id, *outcome)

    def _drive(
        self, request: Request, run: Run, handle: JobHandle, at: StageName, job_id: int | None = None, batch: str = ""
    ) -> None:
        """Run the driver and report to pages. An error is noted at its stage, or at `at` if no stage had begun."""
        failed: list[Exception] = []

        def tell(event: Event) -> None:
            nonlocal at
            match event:
                case StageBegan():
                    at = event.stage
                    handle.at(at)
                case DrawingBegan():
                    at = GENERATION
                case StageDone(reused=False):
                    self.notes.solved(run.id, event.stage)
                    if event.stage in written:
                        self.notes.tell(run.id, event.stage, REPLACED)
                    notice = recipe_of(request.recipe).stage(event.stage).same_again
                    if event.unchanged and notice:
                        self.notes.tell(run.id, event.stage, notice.format(times=event.value.trace.attempts))
                case Remarked():
                    self.notes.tell(run.id, GENERATION, event.words)
                case Progress():
                    handle.progress(event)
                case Preview():
                    handle.preview(self.previews.put(event.image))
                case ImageFailed():
                    failed.append(event.error)

        written = {stage for stage in request.stages or () if stage != request.anew and self._holds_edit(run, stage)}
        try:
            store = RunStore(self.runs, run, self.notes, job_id, batch)
            selection = _Wanted(request.images, handle) if request.images else None
            self.driver.run(request, store, tell, handle.cancelled, selection)
            if failed:
                raise _of_all(failed, len(request.images or ()))
        except UserError as error:
            self.notes.failed(run.id, at, error)
            raise

    @does("draw-control", RunCommand, stage_of_command="generation")
    def draw_control_image(self, run: str) -> None:
        """Queue a job in which a model draws the control image of a run. The job belongs to no stage."""
        stored = self.workspace.runs.get(run)
        settings = self.runs.settings(stored)

        def draw(handle: JobHandle) -> None:
            try:
                self.control_images.draw(stored, settings, self.driver.models.detector)
            except UserError as error:
                self.notes.failed(run, GENERATION, error)
                raise
            stop_if(handle.cancelled)

        self.workspace.runs.appear(run)
        self.jobs.submit(run, (), draw)
        self.notes.solved(run, GENERATION)


def joined(run: Run, before: Alternatives, grown: Alternatives) -> Alternatives:
    """Return a run's present alternatives, and after them those that `grown` has and `before` has not."""
    stored = run.values.get("alternatives")
    present = stored.value.value.items if stored else ()
    items: dict[str, KeywordAlternatives] = {item.keyword: item for item in present}
    had = {(item.keyword, option.text) for item in before.items for option in item.options}
    for item in grown.items:
        known = items.get(item.keyword, replace(item, options=()))
        skipped = had | {(item.keyword, option.text) for option in known.options}
        new = tuple(option for option in item.options if (item.keyword, option.text) not in skipped)
        if new:
            items[item.keyword] = replace(known, options=(*known.options, *new))
    return Alternatives(tuple(items.values()))


def _of_all(failed: Sequence[Exception], images: int) -> Exception:
    for error in failed:
        if not isinstance(error, UserError):
            return error
    if images == 1:
        return failed[0]
    reasons = dict.fromkeys(str(error) for error in failed)
    return UserError(f"{len(failed)} of {images} images could not be made: {' '.join(reasons)}")


def _require_text_stage(stage: StageName) -> None:
    if stage == GENERATION:
        raise UserError("This stage makes images, which need approval: use the command generate.", field="stage")
