"""The control set of an evaluation: the sources of its test cases, drawn again from their own captions without an edit.
Profile, method, settings and seed are the same as for the test cases, so that any difference from the control set is
the effect of the edits. `Recipe.control` of the test cases' recipe names the recipe that draws the control set.

Each reconstruction (an image of the control set) belongs to the run of its source, and has that run's mask and label.
The queue of runs draws reconstructions one by one, and skips those that exist.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from core.errors import Cancelled, UserError
from core.lineage import Lineage, UnreadSettings
from core.progress import OnCount
from core.settings import Settings
from core.stored_runs import Run
from core.types import CounterfactualCaption
from core.words import count_of
from pipeline.methods import method_of
from pipeline.recipes import Recipe, control_of, recipe_of
from pipeline.stages.generation import PlannedImage
from services.changes import Changes
from services.evaluation.predicting import Read
from services.evaluation.subjects import Cases
from services.evaluation.types import Subject
from services.jobs import JobView
from services.runs.execution import Execution
from services.work_queue import OnWork, WorkQueue, WorkView

DRAWING = "drawing reconstructions"
READING = "reading them"
"""Name of the second progress step, in which a model reads the reconstructions."""
LOOK_SECONDS = 0.5
"""Seconds between two checks for cancellation."""
FAILURES = 5
"""Number of consecutive failed sources after which drawing stops."""


@dataclass(frozen=True)
class ControlsDrawn:
    """Result of drawing the missing reconstructions."""

    drawn: int
    failed: tuple[tuple[str, str], ...]
    """Run id and error sentence of each failed reconstruction."""
    not_read: str = ""
    """A sentence or two on why the model did not read all reconstructions; "" if it did."""

    @property
    def note(self) -> str:
        """Return a note for the user on failed and unread reconstructions; "" if there are none."""
        failed = f"{count_of(len(self.failed), 'reconstruction')} could not be drawn: " if self.failed else ""
        return " ".join(filter(None, [failed and failed + self.failed[0][1], self.not_read]))


class ControlSets:
    """Draws control sets. All methods may be called from any thread."""

    def __init__(self, execution: Execution, cases: Callable[[Subject], Cases], changes: Changes | None = None) -> None:
        """`execution` runs the drawing. `cases` returns the current images of a subject."""
        self._execution, self._cases = execution, cases
        self.work = WorkQueue(changes, name="drawing of a control set")
        """Queue of work that draws control sets. Each result is a `ControlsDrawn`."""

    def make(self, subject: Subject, about: str, read: Callable[[OnCount], Read] | None = None) -> WorkView:
        """Begin to draw the missing reconstructions of a subject; then `read` has a model read them. Return this work,
        or the work in progress with the key `about`. Raises UserError if no reconstruction can be drawn.
        """
        if self.work.going_on(DRAWING, about) is None:
            self._require(self._cases(subject))

        def work(on_work: OnWork) -> ControlsDrawn:
            drawn = self._draw_all(subject, on_work)
            if read is None:
                return drawn
            try:
                return replace(drawn, not_read=read(lambda done, total: on_work(done, total, READING)).note)
            except UserError as error:  # what was drawn stays
                return replace(drawn, not_read=f"The reconstructions are drawn, but could not be read: {error}")

        return self.work.begin(DRAWING, about, work)

    # Implementation

    def _require(self, cases: Cases) -> None:
        """Raise UserError with the reason if no reconstruction can be drawn."""
        cases.require()
        if not len(cases.generated):
            raise UserError("These images include no test case: choose others.", field="subject")
        if not len(cases.lacking):
            known = len(set(cases.controls.source.tolist()))
            if (cases.way < 0).all():
                raise UserError(cases.without_control, field="subject")
            if known == cases.view.sources:
                raise UserError("Each source has a reconstruction already.", field="subject")
            raise UserError(
                "No further reconstruction can be drawn. Possible reasons why a source has none: a person rejected it, "
                "the images were imported, their runs were deleted, or their method draws no reconstructions.",
                field="subject",
            )
        run, lineage = self._like(self._waiting(cases)[0])
        self._settings(run, lineage, _control(lineage))

    def _waiting(self, cases: Cases) -> list[int]:
        test_cases: list[int] = cases.table.test_case[cases.generated.row[cases.lacking]].tolist()
        return test_cases

    def _like(self, test_case: int) -> tuple[Run, Lineage]:
        case = self._execution.workspace.test_cases.get(test_case)
        return self._execution.workspace.runs.get(case.run_id), case.lineage

    def _draw_all(self, subject: Subject, on_count: OnCount) -> ControlsDrawn:
        waiting = self._waiting(self._cases(subject))
        on_count(0, len(waiting))
        drawn, in_a_row, failed = 0, 0, list[tuple[str, str]]()
        for done, test_case in enumerate(waiting):
            run, lineage = self._like(test_case)
            try:
                drawn += self._draw(run.id, lineage, lambda done=done: on_count(done, len(waiting)))  # type: ignore[misc]
                in_a_row = 0
            except UserError as error:
                failed.append((run.id, str(error)))
                in_a_row += 1
                if in_a_row == FAILURES:
                    words = f"{drawn:,} reconstructions were drawn, then {FAILURES} in a row failed: {error}"
                    raise UserError(words) from error
            on_count(done + 1, len(waiting))
        if failed and not drawn:
            raise UserError(failed[0][1])
        return ControlsDrawn(drawn, tuple(failed))

    def _draw(self, run_id: str, lineage: Lineage, tell: Callable[[], None]) -> bool:
        """Have the queue draw a reconstruction, calling `tell` during the wait. Return False if the run had one."""
        jobs, runs = self._execution.jobs, self._execution.workspace.runs
        before = jobs.of_run(run_id)
        if before is not None and before.active:
            self._until_over(before.id, tell)
        run, control = runs.get(run_id), _control(lineage)
        lineages = (case.lineage for case in run.test_cases)
        drawn_as = control.name, lineage.method, lineage.settings.start
        if any((one.recipe, one.method, one.settings.start) == drawn_as for one in lineages):
            return False
        text = recipe_of(lineage.recipe).source_caption({name: saved.value.value for name, saved in run.values.items()})
        if not text:
            raise UserError("The run of a source has no caption: run its first stage, or write one.")
        image = PlannedImage(CounterfactualCaption(text, ()), lineage.seed)
        job = self._execution.start_images(run_id, (image,), control.name, self._settings(run, lineage, control))
        try:
            finished = self._until_over(job, tell)
        except Cancelled:
            jobs.cancel_job(job)
            self._until_over(job, lambda: None)  # once this has stopped, nothing may still be drawing
            raise
        if finished is not None and finished.state == "failed":
            raise UserError(finished.message)
        if finished is not None and finished.state == "cancelled":
            raise UserError("The drawing was cancelled in the queue: begin it again.")
        return True

    def _until_over(self, job: int, tell: Callable[[], None]) -> JobView | None:
        jobs = self._execution.jobs
        while (view := jobs.wait(job, LOOK_SECONDS)) is not None and view.active:
            if jobs.closing:
                raise Cancelled
            tell()
        return view

    def _settings(self, run: Run, lineage: Lineage, control: Recipe) -> Settings:
        """Return the settings for drawing the reconstruction of a test case. Raises UserError if it cannot be drawn."""
        method, driver = method_of(lineage.method), self._execution.driver
        if isinstance(lineage.settings, UnreadSettings):
            raise UserError("This version of the studio cannot read the settings of the test cases: update the studio.")
        settings = self._execution.runs.settings(run, control.name).model_copy(
            update={name: getattr(lineage.settings, name) for name in method.sections}
        )
        model = method.model_name(driver.models, method.settings_of(settings))
        if model and model != lineage.model:
            raise UserError(
                f"The test cases were drawn by {lineage.model}, and the profile “{driver.profile.name}” draws by "
                f"{model}: start the studio with the profile “{run.profile}”."
            )
        return settings


def _control(lineage: Lineage) -> Recipe:
    control = control_of(lineage.recipe)
    assert control is not None, "a test case without a control set lacks none"
    return control
