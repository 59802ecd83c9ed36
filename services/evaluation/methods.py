"""Compares methods of making test cases. A method is a recipe and what drawing starts from, such as noise."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.check_words import WORDS, CheckWords
from core.data_files import DataTable
from core.errors import UserError
from core.evaluation_results import FEWEST_CASES
from core.figures import Floats, Numbers, ratio
from core.types import TaskKind
from evaluation.effectiveness import UNKNOWN, WRONG
from evaluation.methods import YES, MethodImages, MethodTable, compare_methods, weak_cells
from evaluation.methods import Votes as VotesOf
from evaluation.report import CANNOT_TELL, number_with_interval, with_interval
from services.evaluation.facts import finite
from services.evaluation.results import EvaluationResult, judged_images, strata_of
from services.evaluation.scoring import judged_of
from services.evaluation.study_votes import StudyVotes
from services.evaluation.subjects import Method, edits_by_row, methods_of
from services.evaluation.texts import TEXTS
from storage.curation.case_columns import ACCEPTED, OPEN, REJECTED, Outcome
from storage.workspace import Workspace

SHOWS = "edit shows"
KEPT: Mapping[TaskKind, str] = {"classification": "label seen", "segmentation": "mask kept"}
"""Name of the check that an image still shows its label, or still fits its mask, by task."""
COUNTED: Mapping[str, str] = {
    "valid": "valid",
    "edit shows": "shows",
    "label kept": "kept",
    "wrong": "wrong",
    "excess": "wrong",
    "failures of 100": "valid_failure",
    "failures a minute": "valid_failure",
    "valid by votes": "judged",
}
"""Name of the column of `MethodImages` that flags the images behind a figure, by figure."""
FIGURES: Mapping[str, str] = DataTable(__file__, str)
"""Title of each figure of a comparison, by the figure's name."""


@dataclass(frozen=True)
class MethodCost:
    """Cost of the images of a method."""

    minutes: float | None
    """Minutes of model time, inversion included. None unless all images come from batches: only batches record it."""
    edits: int
    """Number of values of stages, such as captions, that people wrote."""
    reviews: int
    """Number of images that people accepted or rejected."""
    votes: int
    """Number of votes of studies."""


@dataclass(frozen=True)
class MethodsCompared:
    """The methods that made the test cases of one subject, side by side."""

    model: str
    title: str
    """Name of the evaluated images."""
    methods: tuple[Method, ...]
    reference: int
    """Index of the method that the others are compared with."""
    sources: int
    """Number of sources with an image by at least one method."""
    lacking: tuple[int, ...]
    """For each method, the number of `sources` without an image by it."""
    tables: tuple[MethodTable, ...]
    cells: tuple[tuple[str, ...], ...]
    """For each method, the weak cells that it found: label, edit type and alternative in words."""
    costs: tuple[MethodCost, ...]
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return the titles of the methods."""
        return tuple(one.title for one in self.methods)


@dataclass(frozen=True, eq=False)
class MethodsResult:
    """A comparison of methods, and the columns that link each number to its images."""

    compared: MethodsCompared
    images: MethodImages
    entry: Numbers
    """Catalogue entry of each image."""
    edit_types: tuple[str, ...]

    def entries(self, method: str, figure: str = "", edit_type: str = "") -> tuple[int, ...]:
        """Return the catalogue entries of the images behind a number. `method` is a `Method.key`. `figure` is a key of
        `COUNTED`, or "" for all images of the method. For "excess", the images on which the model is wrong are
        returned. Raises UserError for an unknown method, figure or edit type.
        """
        keys = [one.key for one in self.compared.methods]
        known = {"": -1} | {name: place for place, name in enumerate(self.edit_types)}
        if method not in keys or figure not in ("", *COUNTED) or edit_type not in known:
            raise UserError("This comparison no longer has the opened figure. Please go back and reload the page.")
        own = self.images.method == keys.index(method)
        if figure:
            own &= getattr(self.images, COUNTED[figure]) == YES
        if edit_type:
            own &= self.images.edit_type == known[edit_type]
        return tuple(sorted(self.entry[own].tolist()))


def methods_result(
    workspace: Workspace,
    found: EvaluationResult,
    outcomes: Sequence[Outcome],
    studies: Sequence[StudyVotes],
    reference: str = "",
) -> MethodsResult:
    """Compare the methods of the test cases of an evaluation. `reference` is a `Method.key`; "" for the first method.
    Raises UserError if there is only one method, or none with this key.
    """
    columns = _Columns(workspace, found, outcomes)
    methods = columns.methods
    if len(methods) < 2:
        raise UserError(
            f"All these images were made by one method, {methods[0].title}: choose images of several recipes, or of "
            "one recipe that drew both from noise and from the inverted source."
        )
    keys = [one.key for one in methods]
    if reference and reference not in keys:
        raise UserError(
            f"No method {reference!r:.120} made these images. Choose one of: {', '.join(keys)}.", field="reference"
        )
    first = keys.index(reference) if reference else 0
    images, seconds = columns.images, columns.seconds()
    tables = compare_methods(
        images, columns.edit_types, columns.control(), seconds, first, _votes(found, images.source, outcomes, studies)
    )
    has = np.zeros(seconds.shape, bool)
    has[images.method, images.source] = True
    compared = MethodsCompared(
        model=found.evaluated.model,
        title=found.evaluated.subject.title,
        methods=methods,
        reference=first,
        sources=len(has.T),
        lacking=tuple((~has).sum(1).tolist()),
        tables=tables,
        cells=tuple(
            tuple(columns.cells[cell] for cell in weak_cells(images, place).tolist()) for place in range(len(methods))
        ),
        costs=columns.costs(seconds, studies),
        notes=(*columns.notes({one.edit_type for one in tables}), *found.evaluated.notes),
    )
    return MethodsResult(compared, images, columns.entry, columns.edit_types)


def methods_facts(found: MethodsCompared) -> dict[str, Any]:
    """Return a comparison, JSON-ready."""
    return asdict(found) | {"methods": [asdict(one) | {"key": one.key, "title": one.title} for one in found.methods]}


def method_counts(found: MethodsCompared) -> list[tuple[str, list[str]]]:
    """Return the name of each count (images, sources, weak cells, costs) and its text for each method."""
    counts: list[tuple[str, Iterable[int]]] = [
        ("images", found.tables[0].images),
        ("sources", found.tables[0].sources),
        ("sources without an image", found.lacking),
        ("weak cells found", map(len, found.cells)),
        ("edits by a person", (one.edits for one in found.costs)),
        ("images reviewed", (one.reviews for one in found.costs)),
        ("votes", (one.votes for one in found.costs)),
    ]
    minutes = [CANNOT_TELL if one.minutes is None else f"{one.minutes:,.1f}" for one in found.costs]
    return [
        *((name, [f"{number:,}" for number in numbers]) for name, numbers in counts),
        ("minutes of model time", minutes),
    ]


def method_rows(table: MethodTable) -> list[tuple[str, list[str], list[str]]]:
    """Return the rows of a table as text: name, figure of each method, and difference of each method's figure from that
    of the reference method ("" for the reference itself).
    """
    rows = []
    for figure in table.figures:
        share = figure.unit == "share"
        points = figure.name == "excess"
        values = [with_interval(one, points) if share else number_with_interval(one) for one in figure.values]
        differences = [
            "" if one is None else with_interval(one, points=True) if share else number_with_interval(one, signed=True)
            for one in figure.differences
        ]
        rows.append((FIGURES[figure.name], values, differences))
    return rows


class _Columns:
    """Columns of data on the test cases of an evaluation. Test cases that people rejected are included."""

    def __init__(self, workspace: Workspace, found: EvaluationResult, outcomes: Sequence[Outcome]) -> None:
        self._workspace, self._found = workspace, found
        cases, table = found.cases, found.cases.table
        self._row = np.concatenate([cases.generated.row, cases.rejected])
        self.entry = table.entry[self._row]
        method, self.methods = methods_of(table, self._row)
        self._shas, source = np.unique(table.sources.numbers[self._row], return_inverse=True)
        self._labels = [cases.labels[one] if one >= 0 else "" for one in cases.generated.label.tolist()]
        self._labels += table.labels.of(cases.rejected)
        edit_type, cell = self._edits(method)
        self._checks = workspace.case_columns.check_outcomes(self.entry)
        wrong, fault = self._answers()
        nothing = np.full(len(self._row), -2, np.int8)
        shows, keeps = (self._checks.get(name, nothing) for name in (SHOWS, KEPT[cases.task]))
        columns = (method, source, edit_type, cell, self._judged(outcomes), self._passed(method), shows, keeps)
        self.images = MethodImages(*(np.maximum(one, -1).astype(np.int64) for one in (*columns, wrong, fault)))

    def _edits(self, method: Numbers) -> tuple[Numbers, Numbers]:
        """Return the number of each image's edit type, and of its cell (label, edit type, alternative). An image with
        several types has the type -1. An image with several edits has the cell -1. Exception: methods such as AGA make
        an edit of one type in all images. If an image has this edit first, the image counts by this edit.
        """
        edits_of = edits_by_row(self._found.cases.table, self._row)
        types = [{kind for kind, *_ in own} for own in edits_of]
        common = [
            set.intersection(*(types[one] for one in np.flatnonzero(method == number).tolist()))
            for number in range(len(self.methods))
        ]
        self.edit_types = tuple(sorted(set().union(*types)))
        number = {name: at for at, name in enumerate(self.edit_types)}
        cells: dict[tuple[str, str, str], int] = {}
        edit_type, cell = np.full(len(self._row), -1), np.full(len(self._row), -1)
        for one, own in enumerate(edits_of):
            counts_first = bool(own) and len(types[one]) > 1 and own[0][0] in common[method[one]]
            if len(types[one]) == 1 or counts_first:
                edit_type[one] = number[own[0][0]]
            if len(own) == 1 or counts_first:
                kind, _, alternative = own[0]
                cell[one] = cells.setdefault((self._labels[one], kind, alternative), len(cells))
        self.cells = tuple(", ".join(filter(None, name)) for name in cells)
        return edit_type, cell

    def _judged(self, outcomes: Sequence[Outcome]) -> Numbers:
        cases = self._found.cases
        judged = np.concatenate([judged_of(cases, outcomes), np.full(len(cases.rejected), -1)])
        verdict = cases.table.verdict[self._row]
        reviewed = np.where(verdict == ACCEPTED, 1, np.where(verdict == REJECTED, 0, -1))
        return np.where(judged < 0, reviewed, judged)

    def _passed(self, method: Numbers) -> NDArray[np.int8]:
        """Return 1 for each image that passes the checks common to all methods, 0 if it fails one, -1 if unknown. A
        method that has no check in common with any other method is left out: its images get -1.
        """
        counts = [np.bincount(method[one > -2], minlength=len(self.methods)) for one in self._checks.values()]
        made = np.array(counts, np.int64).reshape(-1, len(self.methods)) > 0
        unshared = ~made[made.sum(axis=1) > 1].any(axis=0)
        shared = made[:, ~unshared].all(axis=1) & ~unshared.all()
        self.shared_checks = tuple(name for name, one in zip(self._checks, shared.tolist(), strict=True) if one)
        self.without_checks = [one.title for one, left_out in zip(self.methods, unshared, strict=True) if left_out]
        columns = np.array([self._checks[name] for name in self.shared_checks]).reshape(-1, len(method))
        passed = np.where((columns == 0).any(0), 0, np.where((columns == 1).any(0), 1, -1))
        return np.where(unshared[method], -1, passed).astype(np.int8)

    def _answers(self) -> tuple[NDArray[np.int8], NDArray[np.int8]]:
        """Return two columns of flags: images with a wrong answer, and `EvaluationResult.faults`. -1 means unknown."""
        found = self._found
        unread, both = np.full(len(found.cases.rejected), -1), (found.right == WRONG, found.faults)
        wrong, fault = (np.concatenate([np.where(found.known, one, -1), unread]).astype(np.int8) for one in both)
        return wrong, fault

    def control(self) -> Floats:
        """Return each method's error on its control set, 0 to 1, by source: (methods, sources). NaN if it has none."""
        found, cases = self._found, self._found.cases
        errors = np.full((len(self.methods), len(self._shas)), np.nan)
        source = np.searchsorted(self._shas, cases.originals.number)
        known = (found.control_right != UNKNOWN) & found.compared[cases.controls.source]
        method = self.images.method[: len(cases.generated)]
        for number in range(len(self.methods)):
            ways = np.unique(cases.way[method == number])
            own = known & np.isin(cases.control_way, ways[ways >= 0])
            place = source[cases.controls.source[own]]
            n = np.bincount(place, minlength=len(self._shas))
            errors[number] = ratio(np.bincount(place, found.control_right[own] == WRONG, len(self._shas)), n)
        return errors

    def seconds(self) -> Floats:
        """Return seconds of model time, (methods, sources). NaN for a method if one of its runs is in no batch."""
        table = self._found.cases.table
        by_run = dict(zip(table.runs.of(self._row)[::-1], self.images.method.tolist()[::-1], strict=True))
        rows = self._workspace.case_columns.batch_seconds()
        of_batch = {one.batch: by_run[one.run] for one in rows if one.run in by_run}
        number = {table.sources.values[sha]: place for place, sha in enumerate(self._shas.tolist())}
        seconds = np.zeros((len(self.methods), len(self._shas)))
        for one in rows:
            if one.batch in of_batch and one.source in number:
                seconds[of_batch[one.batch], number[one.source]] += one.seconds
        for run in by_run.keys() - {one.run for one in rows}:
            seconds[by_run[run]] = np.nan
        return seconds

    def costs(self, seconds: Floats, studies: Sequence[StudyVotes]) -> tuple[MethodCost, ...]:
        table, edits = self._found.cases.table, self._workspace.case_columns.edits_by_hand()
        rows = [self._row[self.images.method == number] for number in range(len(self.methods))]
        return tuple(
            MethodCost(
                minutes=finite(of_method.sum() / 60),
                edits=sum(edits.get(run, 0) for run in set(table.runs.of(row))),
                reviews=int((table.verdict[row] != OPEN).sum()),
                votes=sum(int(np.isin(one.cases, table.test_case[row]).sum()) for one in studies),
            )
            for row, of_method in zip(rows, seconds, strict=True)
        )

    def notes(self, shown: Collection[str]) -> tuple[str, ...]:
        """Return notes on the images behind the figures, one sentence each. `shown` are the edit types with a table."""
        number_of = {name: int((self.images.edit_type == at).sum()) for at, name in enumerate(self.edit_types)}
        return TEXTS.paragraphs(
            "methods-notes.txt",
            few=[f"{name} ({number:,})" for name, number in number_of.items() if number and name not in shown],
            fewest=FEWEST_CASES,
            judged=int((self.images.judged >= 0).sum()),
            checks=[f"“{WORDS.get(name, CheckWords(name, '')).title}”" for name in self.shared_checks],
            without_checks=self.without_checks,
            rejected=len(self._found.cases.rejected),
        )


def _votes(
    found: EvaluationResult, source: Numbers, outcomes: Sequence[Outcome], studies: Sequence[StudyVotes]
) -> VotesOf:
    """Return a function from flags of images to votes on these images. `source` has each image's source number."""
    known, fault = found.known, found.faults
    stratum, names = strata_of(found.cases, found.right == WRONG)

    def votes(own: np.ndarray) -> Any:
        place = np.flatnonzero(own[: len(known)] & known)
        judged = judged_images(found.cases, place, fault, stratum, outcomes, studies)
        return None if judged is None else (replace(judged[0], source=source[place]), names)

    return votes
