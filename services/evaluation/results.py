"""Calculates all figures of an evaluation from the images of a subject and a model's answers. Saves nothing: columns
come in, and an `Evaluated` goes out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from core.errors import UserError
from core.evaluation_results import FEWEST_CASES, GateResult, LossEffect, Weighing
from core.figures import Flags, Floats, Numbers, ratio
from core.types import TaskKind
from core.words import few_names
from evaluation.class_mapping import ClassMap, report_of
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG, Answers, comparison_answer, effectiveness, paired_difference
from evaluation.gate import Compared, gate
from evaluation.report import answer
from evaluation.samples import all_of_a_part
from evaluation.segmentation import Losses, Pixels, loss_effect, right_pixels, segmentation_effect
from evaluation.sensitivity import Changes, SensitivityRow, sensitivity
from evaluation.validity import Judged, ValidityEffect, validity_effect
from services.evaluation.scoring import Scored, judged_of, worth_words
from services.evaluation.segmented import MaskValidity, PixelCells, SegmentedLosses, cells_of, losses_of
from services.evaluation.stored_predictions import ModelAnswers
from services.evaluation.study_votes import StudyVotes, chosen_words, votes_on
from services.evaluation.subjects import Cases, methods_of
from services.evaluation.texts import TEXTS
from services.evaluation.types import EDIT_TABLES, WORST, Cell, EditRow, EditTable, Evaluated, ModelComparison, Pending
from storage.curation.case_columns import ACCEPTED, Outcome
from storage.evaluation.models_under_test import StoredModel

MOST_ROWS = 200
"""A table of edits with more rows than this leaves out edits with fewer than `FEWEST_CASES` test cases."""
BESIDE = 2
"""Number of threads that calculate figures besides the calling one."""
NO_EDIT, SEVERAL_TYPES = "no edit", "several edit types"
STANDING: Mapping[TaskKind, tuple[str, str]] = {
    "classification": ("right", "wrong"),
    "segmentation": ("loses no class", "loses a class"),
}
"""Words for a right and for a wrong outcome of a model on an image, by task."""


_limits_lock = threading.Lock()
_limits: list[threadpool_limits] = []
"""One limit for each thread inside `without_blas_threads`."""


@contextmanager
def without_blas_threads() -> Iterator[None]:
    """Run numpy's linear algebra on one thread within this context.

    A bootstrap multiplies many small matrices, in several threads at once. Between two products, the threads of the
    BLAS library wait busily and take CPU cores from the threads that calculate. The limit holds for the whole process.
    Several threads may be within the context at once.
    """
    with _limits_lock:
        _limits.append(threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _limits_lock:
            limits = _limits.pop()
            if not _limits:  # the first limit of all, which knows the original number of threads
                limits.unregister()


@dataclass(frozen=True, eq=False, kw_only=True)
class Standing:
    """Right and wrong answers, by test case and by source."""

    right: NDArray[np.int8]
    """`RIGHT`, `WRONG` or `UNKNOWN` for each test case. A segmenter is wrong if it loses a protected class that it
    finds on the original, right if it loses none, and unknown if it finds none there."""
    predicted: Numbers
    """Index of the answer in `EvaluationResult.names`, or -1. A segmenter's answer is the class that it loses most."""
    before: NDArray[np.int8]
    """Outcome on each source's original, as in `right`. A segmenter is right if it finds all classes in the mask."""
    predicted_before: Numbers
    compared: Flags
    """True for each source that counts: the original and a test case can be compared."""
    read: Flags
    """True for each test case that the model has read."""


@dataclass(frozen=True, eq=False, kw_only=True)
class EvaluationResult(Standing):
    """The figures of an evaluation, and the columns that link each figure to its images."""

    evaluated: Evaluated
    cases: Cases
    names: tuple[str, ...]
    """Possible answers: the labels, or the protected classes of a segmenter."""
    change: Floats
    """Figure of each test case minus that of the reconstruction or original it is compared with; NaN if unknown."""
    after: Floats
    """Figure of each test case: the probability of the true class or the share of right pixels; NaN if unknown."""
    control_right: NDArray[np.int8]
    """Outcome of each reconstruction, coded as in `right`."""
    control_after: Floats
    """Figure of each reconstruction. `after` says which figure."""
    pixels: PixelCells | None = None
    """Flags of the images that each pixel figure of a segmenter counts; None for a classifier."""

    @property
    def known(self) -> Flags:
        """Return True for each test case if both its outcome and that of its original are known."""
        return (self.right != UNKNOWN) & self.compared[self.cases.generated.source]

    @property
    def faults(self) -> Flags:
        """Return True for each test case that the model gets wrong although it gets the original right."""
        wrong: Flags = self.right == WRONG
        # A segmenter is wrong only about what it finds on the original.
        return wrong if self.pixels is not None else wrong & (self.before[self.cases.generated.source] == RIGHT)


_HasWay = TypeVar("_HasWay", Answers, Losses, Pixels)
_Answers = tuple[Numbers, NDArray[np.int8], Numbers]
"""Positions of some images, their outcomes (`RIGHT`, `WRONG` or `UNKNOWN`), and the model's answers."""


@dataclass(frozen=True)
class _Edits:
    """Edits of test cases, as columns: position of the test case, and index of the edit's value in `names`."""

    case: Numbers
    group: Numbers
    names: Sequence[str]


@dataclass(eq=False)
class Evaluation:
    """One evaluation; `result` calculates its figures."""

    model: StoredModel
    title: str
    """Name of the model on pages and in reports."""
    cases: Cases
    mapping: ClassMap
    answers: ModelAnswers
    pending: Pending
    votes: Sequence[Outcome]
    studies: Sequence[StudyVotes]
    """Studies with their single votes."""
    score: Callable[[], Scored | str]
    """Returns the chances that people find images valid, or why they are unknown. Runs in another thread."""
    masks: MaskValidity
    weighing: Weighing = "source"
    """Unit with equal weight in the figures: each source, or each test case."""

    def result(self) -> EvaluationResult:
        """Calculate all figures of the evaluation. Raises ValueError for sources of several splits."""
        notes = TEXTS.paragraphs(
            "evaluation-notes.txt",
            pending=self.pending,
            note=self.model.identity.note,
            unmapped=few_names([f"“{one.label}”" for one in self.mapping.unmapped]),
            cases=self.cases,
            can_have_control=bool((self.cases.way >= 0).any()),
        )
        self._notes = [*self.cases.left_out, *notes]
        # Some figures are calculated in parallel: most of the time is spent in numpy, which releases the lock.
        with without_blas_threads(), ThreadPoolExecutor(BESIDE, "figures") as self._beside:
            self._scored = self._beside.submit(self.score)
            return self._segmented() if self.cases.view.kind == "segmentation" else self._classified()

    def _classified(self) -> EvaluationResult:
        cases = self.cases
        first, cased, control = (
            self.answers.classified(self.model, self.mapping, cases, images) for images in cases.all_images
        )
        inexact = first.inexact + cased.inexact + control.inexact
        self._notes += TEXTS.paragraphs("inexact.txt", images=inexact)
        standing = _standing_of(
            cases,
            (cased.place, cased.answers.right, cased.answers.said),
            (first.place, first.answers.right, first.answers.said),
        )
        judged = self._beside.submit(self._validity, standing)
        effect = effectiveness(
            first.answers,
            self._with_way(cased.answers, cased.place),
            self._with_way(control.answers, control.place, True) if len(cases.controls) else None,
            np.maximum(cases.originals.label, 0),
            cases.labels,
            cases.split,
            self.weighing,
        )
        of_original = _means_of(first.true, first.answers.source, len(cases.originals))
        of_control = self._of_control(control.true, control.place)
        after = _spread(cased.place, cased.true, len(cases.generated), np.nan)
        newly = (standing.right == WRONG) & (standing.before[cases.generated.source] == RIGHT)
        tables, against_control, change = self._edits(after, of_original, of_control, newly, EDIT_TABLES)
        validity, notes = judged.result()
        if validity is not None:  # the same figure has the same interval everywhere
            validity = replace(validity, as_measured=effect.error_generated)
        self._notes += notes
        words = answer(self.title, effect, validity, [one.row for one in tables["edit type"]])
        evaluated = self._evaluated(words, tables, against_control, validity, cases.labels, effectiveness=effect)
        controls = control.place, control.answers.right, control.true
        return self._result(standing, controls, evaluated=evaluated, names=cases.labels, change=change, after=after)

    def _result(
        self, standing: Standing, controls: tuple[Numbers, NDArray[np.int8], Floats], **values: Any
    ) -> EvaluationResult:
        """Return the result with these `values`. `controls` has position, outcome and figure of each reconstruction."""
        place, outcome, figure = controls
        size = len(self.cases.controls)
        right, after = _spread(place, outcome, size, UNKNOWN), _spread(place, figure, size, np.nan)
        return EvaluationResult(cases=self.cases, control_right=right, control_after=after, **values, **vars(standing))

    def _segmented(self) -> EvaluationResult:
        cases, holds = self.cases, self.masks.holds
        first, cased, control = (
            self.answers.segmented(self.model, self.mapping, cases, images) for images in cases.all_images
        )
        masked, size = int(cases.generated.masks.there.sum()), len(cases.generated)
        counts = {"size": size, "masked": masked, "counted": len(cased.place), "left": self.pending.left}
        self._notes += TEXTS.paragraphs("mask-notes.txt", why=self.masks.why, **counts)
        names = self.mapping.group_names
        drawn = control if len(cases.controls) else None

        def stand() -> tuple[SegmentedLosses, Standing]:
            lost = losses_of(cases, self.mapping, first, cased, control)
            after = cased.place, lost.generated.right, lost.generated.most
            return lost, _standing_of(cases, after, (first.place, lost.originals.right, lost.originals.most))

        def lose() -> LossEffect:
            lost, _ = standing.result()
            controls = self._with_way(lost.controls, control.place, True) if drawn else None
            generated = self._with_way(lost.generated, cased.place)
            return loss_effect(lost.originals, generated, controls, lost.names, cases.split, self.weighing)

        # Each call waits only for calls submitted before it.
        standing = self._beside.submit(stand)
        judged = self._beside.submit(lambda: self._validity(standing.result()[1]))
        losing = self._beside.submit(lose)
        effect = segmentation_effect(
            first.pixels,
            self._with_way(cased.pixels, cased.place),
            self._with_way(drawn.pixels, drawn.place, True) if drawn else None,
            holds[cased.place],
            names,
            cases.split,
            self.weighing,
        )
        shares, (lost, stood) = (effect.confusion_original, effect.confusion_generated), standing.result()
        cells = self._beside.submit(cells_of, cases, names, first, cased, lost, holds, shares)
        # The share of right pixels; an image that loses a class counts as wrong.
        after = _spread(cased.place, right_pixels(cased.pixels), size, np.nan)
        of_original = _means_of(right_pixels(first.pixels), first.pixels.source, len(cases.originals))
        of_control = self._of_control(right_pixels(control.pixels), control.place)
        wrong = stood.right == WRONG
        tables, against_control, change = self._edits(after, of_original, of_control, wrong, EDIT_TABLES[:3])
        (validity, notes), losses = judged.result(), losing.result()
        if validity is not None:
            validity = replace(validity, as_measured=losses.generated)
        self._notes += (*TEXTS.paragraphs("none-to-lose.txt", cases=losses.left_out), *notes)
        words = answer(self.title, effect, validity, [one.row for one in tables["edit type"]], losses)
        evaluated = self._evaluated(
            *(words, tables, against_control, validity, names),
            segmentation=effect,
            losses=losses,
            unchecked=self.masks.unchecked,
        )
        controls = control.place, lost.controls.right, right_pixels(control.pixels)
        values = {"evaluated": evaluated, "names": lost.names, "change": change, "after": after}
        return self._result(stood, controls, pixels=cells.result(), **values)

    def _evaluated(
        self,
        answer: str,
        tables: dict[EditTable, tuple[EditRow, ...]],
        against_control: bool,
        validity: ValidityEffect | None,
        labels: tuple[str, ...],
        **of_its_kind: Any,
    ) -> Evaluated:
        """Return the figures to show; `of_its_kind` has the fields that only a classifier, or only a segmenter, has."""
        score, table = self._scored.result(), self.cases.table
        self._notes += worth_words(validity)
        worst = sorted({entry for rows in tables.values() for row in rows for entry in row.worst})
        shas = table.images.of(table.rows_of(np.array(worst, np.int64)))
        evaluated = Evaluated(
            subject=self.cases.view,
            model=self.title,
            kind=self.model.identity.kind,
            identity=self.model.identity,
            mapping=report_of(self.mapping),
            pending=self.pending,
            edits=tables,
            against_control=against_control,
            validity=validity,
            answer=answer,
            notes=tuple(self._notes),
            labels=labels,
            thumbnails=dict(zip(worst, shas, strict=True)),
            score=None if isinstance(score, str) else score.view,
            **of_its_kind,
        )
        return replace(evaluated, notes=(*filter(None, [evaluated.doubt]), *evaluated.notes))

    # Control sets

    def _with_way(self, cells: _HasWay, place: Numbers, control: bool = False) -> _HasWay:
        """Return `cells`. If there are several control sets, `way` gets the number of each image's control set."""
        way = self.cases.control_way if control else self.cases.way
        return replace(cells, way=way[place]) if self.cases.mixed else cells

    def _of_control(self, values: Floats, place: Numbers) -> Floats:
        """Return for each test case the mean value of the reconstructions to compare with; NaN if there are none. These
        reconstructions have the test case's source and control set. `place` has the position of each value's image.
        """
        cases, ways = self.cases, int(self.cases.way.max(initial=0)) + 1
        source = cases.controls.source[place] * ways + cases.control_way[place]
        means = _means_of(values, source, ways * len(cases.originals))
        return np.where(cases.way >= 0, means[cases.generated.source * ways + cases.way], np.nan)

    # Edits

    def _edits(
        self, after: Floats, of_original: Floats, of_control: Floats, wrong: Flags, names: Sequence[EditTable]
    ) -> tuple[dict[EditTable, tuple[EditRow, ...]], bool, Floats]:
        """Return the tables with these `names`, then a flag, then the change of each test case. The flag is True if
        test cases are compared with reconstructions, and False if they are compared with originals. `after` has the
        figure of each test case, `of_original` that of each source's original. `of_control` has the mean figure of the
        reconstructions with which a test case is compared, or NaN. `wrong` marks the wrong test cases.
        """
        cases = self.cases
        against_control = bool(np.isfinite(of_control).any())
        compare_with = of_control if against_control else of_original[cases.generated.source]
        missing = int((np.isfinite(after) & ~np.isfinite(compare_with)).sum())
        if against_control and missing:
            words = f"The tables of edits leave out {missing:,} test cases whose sources have no reconstruction."
            self._notes.append(words)
        changes = Changes(cases.generated.source, after, compare_with, wrong)
        tables: dict[EditTable, tuple[EditRow, ...]] = {}
        for table in names:
            edits = self._shown(table, edits_of(cases, table))
            rows = sensitivity(changes, edits.case, edits.group, edits.names, self.weighing)
            tables[table] = self._with_worst(table, rows, edits, after - compare_with)
        return tables, against_control, after - compare_with

    def _shown(self, table: EditTable, edits: _Edits) -> _Edits:
        sizes = np.bincount(edits.group, minlength=len(edits.names))
        few = (sizes > 0) & (sizes < FEWEST_CASES)
        if (sizes > 0).sum() <= MOST_ROWS or not few.any():
            return edits
        self._notes.append(
            f"{int(few.sum()):,} values of the table “{table}” have fewer than {FEWEST_CASES} test cases and are not "
            "listed."
        )
        listed = ~few[edits.group]
        return _Edits(edits.case[listed], edits.group[listed], edits.names)

    def _with_worst(
        self, table: EditTable, rows: Sequence[SensitivityRow], edits: _Edits, lost: Floats
    ) -> tuple[EditRow, ...]:
        cases = self.cases
        shown = np.isfinite(lost[edits.case]) & (lost[edits.case] < 0)
        case, group = edits.case[shown], edits.group[shown]
        order = np.lexsort((lost[case], group))
        case, group = case[order], group[order]
        ends = np.searchsorted(group, np.arange(len(edits.names) + 1))
        number = {name: place for place, name in enumerate(edits.names)}
        entry = cases.table.entry
        edit_rows = []
        for one in rows:
            at = number[one.name]
            worst = dict.fromkeys(case[ends[at] : min(ends[at + 1], ends[at] + 2 * WORST)].tolist())
            entries = [int(entry[cases.generated.row[place]]) for place in worst][:WORST]
            edit_rows.append(EditRow(one, Cell(table, one.name), tuple(entries)))
        return tuple(edit_rows)

    # Validity

    def _validity(self, standing: Standing) -> tuple[ValidityEffect | None, list[str]]:
        cases, right, compared = self.cases, standing.right, standing.compared
        known = (right != UNKNOWN) & compared[cases.generated.source]
        row = cases.generated.row[known]
        stratum, names = strata_of(cases, right == WRONG)
        found = judged_images(cases, np.flatnonzero(known), right == WRONG, stratum, self.votes, self.studies)
        if found is None:
            return None, ["No study has judged an image of these test cases: the number of valid faults is not known."]
        judged, studies = found
        names_of_studies = few_names([f"“{one}”" for one in judged.studies])
        values = {"several": len(judged.studies) > 1, "studies": names_of_studies, "methods": len(cases.methods)}
        notes = [*TEXTS.paragraphs("validity-notes.txt", standing=STANDING[cases.task], **values)]
        chance, score = None, self._scored.result()
        if isinstance(score, str):
            notes.append(score)
        else:
            chance = score.chance[row]
        subject = cases.view.subject.filter
        chosen = chosen_words(studies, subject.words if subject is not None else "")
        if judged.outside is not None:
            chosen = "; ".join(filter(None, ("all of them accepted", chosen)))
        effect = validity_effect(replace(judged, score=chance), names, weighing=self.weighing)
        return replace(effect, chosen=chosen), notes


def judged_images(
    cases: Cases,
    place: Numbers,
    wrong: Flags,
    stratum: Numbers,
    outcomes: Sequence[Outcome],
    studies: Sequence[StudyVotes],
) -> tuple[Judged, tuple[StudyVotes, ...]] | None:
    """Return people's votes on the test cases at these positions, and the studies that judged them; None without a
    vote. `wrong` and `stratum` have a value for each test case of `cases`.
    """
    row = cases.generated.row[place]
    judged = judged_of(cases, outcomes)[place]
    votes = votes_on(cases.table.test_case[row], outcomes, studies)
    voted = (judged >= 0) | votes.undecided
    if not voted.any():
        return None
    accepted = cases.table.verdict[row] == ACCEPTED
    images = Judged(
        cases.generated.source[place],
        wrong[place],
        stratum[place],
        (judged == 1).astype(np.int64),
        (judged >= 0).astype(np.int64),
        undecided=votes.undecided,
        ballots=votes.ballots,
        adjudicated=votes.adjudicated,
        outside=~accepted if all_of_a_part(accepted, voted) else None,
        study=votes.study,
        studies=tuple(one.title for one in votes.studies),
    )
    return images, votes.studies


def edits_of(cases: Cases, table: EditTable) -> _Edits:
    """Return each test case's values in a table of edits: edit types, keywords, alternatives or classes."""
    generated = cases.generated
    if table == "class":
        case = np.flatnonzero(generated.label >= 0)
        return _Edits(case, generated.label[case], cases.labels)
    edits = cases.table.edits
    column = {"edit type": edits.types, "keyword": edits.keywords, "alternative": edits.alternatives}[table]
    case = cases.case_of_edit
    selected = (case >= 0) & (column.numbers >= 0)
    return _Edits(case[selected], column.numbers[selected], column.values)


def strata_of(cases: Cases, wrong: Flags) -> tuple[Numbers, tuple[str, ...]]:
    """Return the stratum of each test case (right or wrong, edit type, method if several), and the strata's names."""
    edits = edits_of(cases, "edit type")
    types = len(edits.names)
    kind = np.full(len(wrong), types)
    kind[edits.case] = edits.group
    different = np.unique(edits.case * (types + 1) + edits.group) // (types + 1)
    kind[np.bincount(different, minlength=len(wrong)) > 1] = types + 1
    names = [*edits.names, NO_EDIT, SEVERAL_TYPES]
    method, methods = methods_of(cases.table, cases.generated.row)
    number = (method * (types + 2) + kind) * 2 + wrong
    used_strata, stratum = np.unique(number, return_inverse=True)
    words = STANDING[cases.task]
    stratum_names = []
    for one in used_strata.tolist():
        parts = [words[one % 2], names[one // 2 % (types + 2)]]
        stratum_names.append(", ".join(parts + [methods[one // 2 // (types + 2)].title] * (len(methods) > 1)))
    return stratum, tuple(stratum_names)


def _standing_of(cases: Cases, after: _Answers, before: _Answers) -> Standing:
    size, sources = len(cases.generated), len(cases.originals)
    right, first = _spread(after[0], after[1], size, UNKNOWN), _spread(before[0], before[1], sources, UNKNOWN)
    return Standing(
        right=right,
        predicted=_spread(after[0], after[2], size, -1),
        before=first,
        predicted_before=_spread(before[0], before[2], sources, -1),
        compared=(first != UNKNOWN) & np.isin(np.arange(sources), cases.generated.source[right != UNKNOWN]),
        read=np.isin(np.arange(size), after[0]),
    )


def _spread(place: Numbers, values: NDArray[Any], images: int, nothing: float) -> NDArray[Any]:
    """Return a value for each image: one of `values` at the positions `place`, `nothing` elsewhere."""
    spread = np.full(images, nothing, values.dtype)
    spread[place] = values
    return spread


def _means_of(values: Floats, source: Numbers, sources: int) -> Floats:
    """Return for each source the mean of its known values; NaN if it has none."""
    known = np.isfinite(values)
    number = np.bincount(source[known], minlength=sources)
    return ratio(np.bincount(source[known], weights=values[known], minlength=sources), number)


def entries_of(found: EvaluationResult, cell: Cell) -> tuple[int, ...]:
    """Return the sorted catalogue entries of images that `cell` counts; for an original, those of its test cases."""
    cases = found.cases
    rows = cases.controls.row if cell.kind == "controls" else cases.generated.row[_counted(found, cell)]
    return tuple(sorted(cases.table.entry[rows].tolist()))


def _counted(found: EvaluationResult, cell: Cell) -> Flags:
    """Return True for each test case that `cell` counts. A cell of the kind "controls" is not allowed."""
    cases = found.cases
    source, everything = cases.generated.source, np.ones(len(cases.generated), bool)
    if found.pixels is not None and cell.kind in ("kept", "class", "confusion", "confusion before"):
        return found.pixels.where(cell, source)
    counts, before = found.known, found.before[source]
    wrong, right = (counts & (found.right == one) for one in (WRONG, RIGHT))
    if cell.kind in ("edit type", "keyword", "alternative"):
        edits = edits_of(cases, cell.kind)  # type: ignore[arg-type]
        groups = [place for place, name in enumerate(edits.names) if name == cell.name]
        inside = np.isin(np.arange(len(source)), edits.case[np.isin(edits.group, groups)])
        return inside & counts & found.faults if cell.only_wrong else inside
    # The numbers of test cases of each one's source that count, and that are wrong.
    n, k = (np.bincount(source[one], minlength=len(found.before))[source] for one in (counts, wrong))
    number = {name: place for place, name in enumerate(cases.labels)}
    predicted = number.get(cell.said, -2) if cell.said else -1
    has_label = counts & (cases.generated.label == number.get(cell.name, -2))
    of_source = counts & (cases.originals.label[source] == number.get(cell.name, -2))
    return {
        "generated": everything,
        "originals": everything,
        "all wrong": counts & (k == n),
        "some wrong": counts & (k > 0) & (k < n),
        "none wrong": counts & (k == 0),
        "class": has_label & wrong if cell.only_wrong else has_label,
        "confusion": has_label & (found.predicted == predicted),
        "confusion before": of_source & (found.predicted_before[source] == predicted),
        "kept": ~everything,
        "missed before": found.compared[source] & (before == WRONG),
        "wrong": wrong,
        "right": right,
        "newly wrong": wrong & (before == RIGHT),
        "newly right": right & (before == WRONG),
        "left out": (found.right == UNKNOWN) & (found.read if found.pixels is not None else everything),
    }[cell.kind]


def compared(first: EvaluationResult, second: EvaluationResult, weighing: Weighing) -> ModelComparison | None:
    """Compare two models on the test cases that are in both results. Return None for models of different tasks."""
    if first.evaluated.kind != second.evaluated.kind:
        return None
    place, right = _aligned(first, second)
    paired = paired_difference(first.cases.generated.source[place], right[0], right[1], weighing)
    wrong = "is wrong" if first.evaluated.kind == "classification" else "loses a class"
    names = first.evaluated.model, second.evaluated.model
    return ModelComparison(names[1], comparison_answer(names, paired, wrong), paired)


def gate_of(
    first: EvaluationResult,
    second: EvaluationResult,
    votes: Sequence[Outcome],
    margin: float,
    by_class: bool,
    weighing: Weighing,
) -> GateResult:
    """Return whether the second model is worse than the first by more than `margin`, 0 to 1. `by_class` compares each
    label too. Raises UserError for models of different tasks.
    """
    if first.evaluated.kind != second.evaluated.kind:
        raise UserError("One model is a classifier and the other a segmenter, so there is nothing to compare.")
    place, right = _aligned(first, second)
    known = (right != UNKNOWN).all(axis=0)
    cases, place, right = first.cases, place[known], right[:, known]
    if not len(place):
        raise UserError("No test case can be compared with its label for both models: choose other images.")
    test_cases = Compared(
        source=cases.generated.source[place],
        first=right[0] == WRONG,
        second=right[1] == WRONG,
        judged=judged_of(cases, votes)[place],
        group=cases.generated.label[place],
        groups=cases.labels if by_class else (),
    )
    return replace(gate(test_cases, margin, weighing), left_out=int((~known).sum()))


def _aligned(first: EvaluationResult, second: EvaluationResult) -> tuple[Numbers, NDArray[np.int8]]:
    """Return the positions, in the first result, of the test cases that both results have, (n,), and the outcomes of
    both models, (2, n). An outcome is `UNKNOWN` if the answer to the source cannot be compared with a label.
    """
    one, two = (found.cases.table.entry[found.cases.generated.row] for found in (first, second))
    _, *place = np.intersect1d(one, two, assume_unique=True, return_indices=True)
    right = []
    for found, places in zip((first, second), place, strict=True):
        counts = found.compared[found.cases.generated.source[places]]
        right.append(np.where(counts, found.right[places], UNKNOWN).astype(np.int8))
    return place[0], np.stack(right)
