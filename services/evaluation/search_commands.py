"""Commands that search batches for weak cells, and the state of a search as pages show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from core.errors import Cancelled, UserError
from core.settings import UnderTestSettings
from evaluation.search import WEAK
from pipeline.seams import Models
from services.batches.running import BatchCommand, BatchRuns
from services.commands import does
from services.edit_conflicts import LARGEST_ID
from services.evaluation.near_cells import NearCell, add_alternative, near_cells
from services.evaluation.service import EvaluationService
from services.evaluation.types import ModelChoice
from services.evaluation.weak_cells import (
    MOST_IMAGES,
    MOST_MINUTES,
    SearchSettings,
    SearchView,
    WeakCellSearch,
    images_of,
    settings_of_search,
)
from services.queries import Query
from services.runs.execution import Execution
from storage.workspace import Workspace

MOST_NEAR = 5
"""Maximum number of weak cells for which alternatives are proposed."""
MOST_NEAREST = 3
"""Maximum number of labels and edits to suggest if a question contains no label and no edit of the batch."""


@dataclass(frozen=True)
class SearchState:
    """A search for weak cells in a batch, as its page shows it."""

    models: tuple[ModelChoice, ...]
    """Models that can be chosen, the one of the latest search first."""
    settings: SearchSettings | None
    """Settings of the latest search; None before the first."""
    view: SearchView | None
    """Result of the latest search; None before the first."""
    near: tuple[NearCell, ...] = ()
    """The first weak cells. Each has further alternatives that a person can add to the search."""
    problem: str = ""
    """Sentence on why nothing can be shown; "" if something can."""


class BeginSearch(BatchCommand):
    """A command that searches a batch for weak cells."""

    key: str = Field(
        "", max_length=80, description="The model: a “key” of list_models_under_test; empty: the profile's"
    )
    images: int = Field(
        SearchSettings.images, ge=1, le=MOST_IMAGES, description="Maximum number of images that the search chooses"
    )
    minutes: int = Field(
        0, ge=0, le=MOST_MINUTES, description="Maximum minutes of this run, which ends after its round; 0: no limit"
    )
    weak: float = Field(
        100 * WEAK, gt=0, lt=100, description="Per cent of valid faults above which an edit of a label is weak"
    )

    def settings(self, model: UnderTestSettings, mapping: str = "") -> SearchSettings:
        """Return the settings of the search with a model. `mapping` is as in `SearchSettings`."""
        return SearchSettings(model, self.images, self.weak / 100, self.minutes, mapping)


class AboutQuestion(BatchCommand):
    """A command on a question of a search."""

    question: str = Field(
        min_length=1, max_length=200, description="A hypothesis in words of the batch's labels and edits: kites at dusk"
    )


class AboutCell(BatchCommand):
    """A command on a weak cell of a search."""

    cell: str = Field(max_length=1000, description="The “key” of a cell in “near” of show_search")


class Searches:
    """The searches of a workspace. All methods may be called from any thread."""

    def __init__(
        self,
        workspace: Workspace,
        batches: BatchRuns,
        evaluations: EvaluationService,
        models: Models,
        execution: Execution,
    ) -> None:
        """`models` provides the sentence model, which finds the names nearest to a question. `execution` asks the
        language model for alternatives.
        """
        self._workspace, self._batches, self._evaluations = workspace, batches, evaluations
        self._models, self._execution = models, execution

    @does("begin-search", BeginSearch)
    def begin_search(self, sent: BeginSearch) -> dict[str, Any]:
        """Draw images of a batch where a model is likely to fail, in rounds, to find the edits and labels for which it
        is weak. All other images of the batch wait. The captions count as approved. A paused search continues; a larger
        number of images prolongs it.
        """
        subject = images_of(self._workspace, sent.batch)
        models = self._evaluations.models(subject)
        if not sent.key and not models:
            raise UserError("The profile names no model under test for these images: choose one.", field="key")
        chosen = self._evaluations.choice(sent.key, subject) if sent.key else models[0]
        settings = sent.settings(chosen.settings)

        def on_count(_done: int, _total: int) -> None:
            if self._batches.stopping(sent.batch):
                raise Cancelled

        search = WeakCellSearch(self._workspace, self._evaluations, sent.batch, settings, on_count)
        self._batches.search(sent.batch, search.choose)
        search.begin()
        return {"batch": sent.batch}

    @does("show-search", Query)
    def show_search(
        self, batch: Annotated[int, Field(ge=0, le=LARGEST_ID, description="The batch, as list_batches gives it")]
    ) -> dict[str, Any]:
        """Show what the search in a batch has found: weak cells, all cells with their images and valid faults, and the
        share of valid faults among the images chosen at random.
        """
        state = self.state(batch)
        search = None if state.view is None else asdict(state.view)
        return {"search": search, "near": [asdict(one) for one in state.near], "problem": state.problem}

    @does("ask-search", AboutQuestion)
    def ask_search(self, batch: int, question: str) -> dict[str, Any]:
        """Ask whether a model is weak on the labels and edits that the words of a question name. The search draws some
        images of each round to answer it. show_search returns the answers with intervals.
        """
        self._search(batch).ask(question, partial(nearest_names, self._models))
        return self.show_search(batch)

    @does("forget-question", AboutQuestion)
    def forget_question(self, batch: int, question: str) -> dict[str, Any]:
        """Remove a question of a search; its images stay."""
        self._search(batch).forget(question)
        return self.show_search(batch)

    @does("propose-alternatives", AboutCell)
    def propose_alternatives(self, batch: int, cell: str) -> dict[str, Any]:
        """Ask the language model for further alternatives for a weak cell's keyword. show_search lists the proposals
        once the model has answered. add_alternative adds a proposal to the search.
        """
        near = next((one for one in self.state(batch).near if one.key == cell), None)
        if near is None:
            raise UserError("No weak cell has this key: take a key that show_search lists under “near”.", field="cell")
        self._execution.more_alternatives(near.run, near.keyword)
        return {"run": near.run, "keyword": near.keyword}

    @does("add-alternative", AboutCell)
    def add_alternative(
        self,
        batch: int,
        cell: str,
        alternative: Annotated[str, Field(min_length=1, max_length=200, description="The words of the alternative")],
    ) -> dict[str, Any]:
        """Search another alternative for the keyword of a cell: add a caption with it to each source in the cell. The
        captions count as approved, and the search takes them before its next round.
        """
        return {"sources": add_alternative(self._workspace, batch, cell, alternative)}

    def _search(self, batch: int) -> WeakCellSearch:
        """Return the latest search in a batch. Raises UserError before the first."""
        settings = settings_of_search(self._workspace, batch)
        if settings is None:
            self._workspace.batches.get(batch)
            raise UserError("Begin a search in this batch first, then ask.", field="question")
        return WeakCellSearch(self._workspace, self._evaluations, batch, settings)

    def state(self, batch: int) -> SearchState:
        """Return the state of the search in a batch, as a page shows it. No model reads an image."""
        models = self._evaluations.models(images_of(self._workspace, batch))
        settings = settings_of_search(self._workspace, batch)
        if settings is None:
            return SearchState(models, None, None)
        models = tuple(sorted(models, key=lambda one: one.settings != settings.model))
        try:
            view = self._search(batch).view(reads=False)
            near = near_cells(self._workspace, batch, [one.name for one in view.weak_cells[:MOST_NEAR]])
            return SearchState(models, settings, view, near)
        except UserError as error:
            return SearchState(models, settings, None, problem=str(error))


def nearest_names(models: Models, text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the `MOST_NEAREST` names nearest in meaning to a text; () if the sentence model cannot be loaded."""
    try:
        one, *others = np.array(models.sentences.vectors([text, *names]), np.float64)
    except UserError:
        return ()
    return tuple(names[place] for place in np.argsort(-np.array(others) @ one, kind="stable")[:MOST_NEAREST])
