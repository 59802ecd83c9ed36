"""Writes evidence bundles for pages, scripts and agents, in the background. Finished bundles are kept for an hour."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

from core.errors import UserError
from services.changes import Changes
from services.commands import Missing, does
from services.evaluation import commands as acts
from services.evaluation.evidence.bundle import released, write_bundle
from services.evaluation.service import EvaluationService, about, cancelled, work_facts
from services.evaluation.types import EvaluationQuestion
from services.queries import Query
from services.test_sets.exports import ReadyExport, drop_export, written_export
from services.work_queue import OnWork, WorkQueue, WorkView
from storage.workspace import Workspace

NAME = "evidence"


class Evidence:
    """The evidence bundles of one workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, evaluations: EvaluationService, changes: Changes | None = None) -> None:
        self._workspace, self._evaluations = workspace, evaluations
        self.work = WorkQueue(changes, drop_export, name="evidence of a test set")
        """Queue that writes bundles. `work.of(about(question))` finds the work for an `EvaluationQuestion`."""

    @does("begin-evidence", acts.OnTwoModels)
    def begin_evidence(self, sent: acts.OnTwoModels) -> dict[str, Any]:
        """Begin to write the evidence of an evaluation as one zip: the images of a released version of a test set with
        their lineage, the predictions, the votes, all figures, and a script that recomputes every figure from these.
        With a second model, also the comparison. `download_evidence` gives the zip.
        """
        return work_facts(self.begin(*self._evaluations.asked_both(sent)))

    @does("show-evidence", Query)
    def show_evidence(self, work: Annotated[int, acts.work_of("begin_evidence")]) -> dict[str, Any]:
        """Show the progress of an evidence bundle."""
        return work_facts(self.work.view(work))

    @does("cancel-evidence")
    def cancel_evidence(self, work: Annotated[int, acts.work_of("begin_evidence")]) -> dict[str, Any]:
        """Stop writing an evidence bundle."""
        return cancelled(self.work, work)

    def begin(self, *questions: EvaluationQuestion) -> WorkView:
        """Begin to write the evidence of one or two models, or return the work in progress. Its result is a
        `ReadyExport`. Raises UserError for a draft, and for images of a filter.
        """
        self.require(questions[0])
        return self.work.begin(NAME, about(questions[0]), partial(self._write, questions))

    def require(self, question: EvaluationQuestion) -> None:
        """Raise UserError unless the question is on a released version of a test set."""
        released(self._workspace, question)

    def ready(self, number: int) -> ReadyExport:
        """Return a finished bundle. Raises UserError if it is not finished, Missing if the file is gone."""
        view = self.work.view(number)
        if view.state != "done":
            raise UserError(view.error or "This evidence bundle is not finished: show_evidence tells its progress.")
        export: ReadyExport = view.result
        if not export.file.is_file():
            raise Missing("The file of this evidence bundle is gone: write the bundle again.")
        return export

    def _write(self, questions: tuple[EvaluationQuestion, ...], on_work: OnWork) -> ReadyExport:
        version = released(self._workspace, questions[0])
        on_work(0, 0)

        def write(file: Path) -> None:
            write_bundle(self._workspace, self._evaluations, questions, file, on_work)

        return written_export(self._workspace, version, NAME, write)
