"""Search among the captions of a batch for the cells (label, edit type and alternative) in which a model is weak.

The images of the batch wait, and the search draws some in each round. It chooses every fifth image at random. Other
images help to answer questions that a person asked about parts of the batch, or come from cells that may be weak. The
workspace stores the search's choices, the model's predictions and people's decisions. So a killed search can resume.
Each round uses the latest decisions of people.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from core.batches import Candidate, ChosenBy
from core.errors import UserError
from core.figures import Figure, Flags, Floats, Numbers
from core.image_filter import ImageFilter
from core.progress import OnCount
from core.settings import UnderTestSettings
from core.types import from_plain, to_plain
from core.words import count_of, meaning
from evaluation.by_source import MeansOfSources
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG
from evaluation.search import WEAK, Cells, Pick, beliefs, detected, next_round
from services.batches.planning import Planner
from services.evaluation.scoring import judged_of
from services.evaluation.search_questions import (
    Answer,
    CellName,
    DrawnImage,
    Part,
    answer_of,
    cell_name,
    matched,
    with_one_edit,
)
from services.evaluation.service import EvaluationService
from services.evaluation.subjects import numbered
from services.evaluation.texts import TEXTS
from services.evaluation.types import EvaluationQuestion, Subject
from storage.curation.case_columns import REJECTED
from storage.workspace import Workspace

ROUND = 20
"""Number of images that a search draws in a round."""
MOST_IMAGES, MOST_MINUTES = 1_000_000, 100_000
"""Maximum number of images of a search, and of minutes of one run."""
UNLIKELY = 0.05
"""A cell is called "unlikely" if its chance of being weak is below this."""
MOST_QUESTIONS = 10
"""Maximum number of questions that a person can ask in one search."""
Nearest = Callable[[str, Sequence[str]], Sequence[str]]
"""Returns the names that are nearest in meaning to a text, the nearest first."""
CellState = Literal["weak", "open", "unlikely"]


@dataclass(frozen=True)
class CellRow:
    """One cell: a label, an edit type and an alternative."""

    label: str
    """Class of the sources; "" for a segmentation."""
    edit_type: str
    spellings: tuple[str, ...]
    """The alternatives of the cell, which `core.words.meaning` finds equal, the most frequent first."""
    images: int
    """Number of images that count: the model was right about their sources."""
    faults: int
    """Number of counted images that are valid faults."""
    chance: float
    """Chance that the cell is weak, 0 to 1."""
    state: CellState
    """"weak" if detected, "unlikely" if `chance` is below `UNLIKELY`, else "open"."""
    valid: float
    """Chance that an image of the cell is valid, 0 to 1. Each image that people rejected or found invalid lowers it."""
    waiting: int
    """Number of images of the cell that could still be drawn."""
    next: int
    """Number of the cell's images that the next round draws because the cell may be weak. Random draws do not count."""

    @property
    def alternative(self) -> str:
        """Return the most frequent spelling."""
        return self.spellings[0]

    @property
    def name(self) -> CellName:
        """Return the name of the cell."""
        return self.label, self.edit_type, meaning(self.alternative)


@dataclass(frozen=True)
class SearchView:
    """Result of a search so far, as a page shows it."""

    weak: float
    """Share of valid faults above which a cell is weak, 0 to 1."""
    cells: tuple[CellRow, ...]
    """All cells: the weak ones first, then by `CellRow.chance`, the highest first."""
    over_labels: tuple[CellRow, ...]
    """One row for each alternative, about its cells of all labels together. `label` is "". Counts are summed over these
    cells; `chance` is the largest chance of a cell. Empty if there is only one label."""
    chosen: int
    """Number of images that the search chose."""
    drawn: int
    """Number of chosen images that exist already."""
    next_random: int
    """Number of images that the next round draws at random; 0 if there is no next round."""
    next_asked: int
    """Number of images that the next round draws to answer questions."""
    answers: tuple[Answer, ...]
    """Answers to the questions that a person asked."""
    weak_filter: str
    """Filter of the counted images in weak cells, as text for a URL; "" if there are no such images."""
    error: Figure
    """Share of valid faults among all images that could be drawn, estimated from those chosen at random."""
    notes: tuple[str, ...]

    @property
    def weak_cells(self) -> tuple[CellRow, ...]:
        """Return the weak cells."""
        return tuple(one for one in self.cells if one.state == "weak")

    @property
    def aimed(self) -> tuple[CellRow, ...]:
        """Return the cells that the next round aims at, those with most images first."""
        return tuple(sorted((one for one in self.cells if one.next), key=lambda one: -one.next))


@dataclass(frozen=True)
class _Standing:
    """The captions of a batch by cell, and the results of their drawn images."""

    names: tuple[CellName, ...]
    """Names of the cells. Each has a label, an edit type and the `core.words.meaning` of an alternative."""
    spellings: tuple[Counter[str], ...]
    """For each cell, the number of captions with each spelling of the cell's alternative."""
    cells: Cells
    waiting: tuple[tuple[Candidate, ...], ...]
    """Images of each cell that can still be drawn, one for each source that has no image in the cell yet."""
    images: Numbers
    """For each cell, the number of images that count. Rejected images do not count."""
    faults: Numbers
    valid: Numbers
    """For each cell, the number of counted images that no study found invalid."""
    invalid: Numbers
    """Number of images of each cell that people rejected or found invalid."""
    counted: tuple[DrawnImage, ...]
    """The drawn images that `images` counts."""
    answers: tuple[Answer, ...]
    chosen: int
    drawn: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search, as a person or a script gives them."""

    model: UnderTestSettings
    images: int = 300
    """Maximum number of images that the search chooses in all."""
    weak: float = WEAK
    """Share of valid faults above which a cell is weak, 0 to 1."""
    minutes: int = 0
    """Maximum minutes of one run of the search. It then ends after the current round. 0 for no limit."""
    mapping: str = ""
    """Text of a user's file that maps labels to classes; "" for none."""
    questions: tuple[str, ...] = ()
    """Questions that a person asked, such as “kites at dusk”."""


def images_of(workspace: Workspace, batch: int) -> Subject:
    """Return the images of a batch."""
    return Subject(filter=ImageFilter(facets={"batch": (workspace.batches.get(batch).facet,)}))


def settings_of_search(workspace: Workspace, batch: int) -> SearchSettings | None:
    """Return the settings of the latest search in a batch, or None if there was none."""
    stored = workspace.batches.search(batch)
    return None if stored is None else from_plain(SearchSettings, stored)


class WeakCellSearch:
    """A search in one batch with one model. `choose` is the callback for `services.batches.engine.Engine`."""

    def __init__(
        self,
        workspace: Workspace,
        service: EvaluationService,
        batch: int,
        settings: SearchSettings,
        on_count: OnCount = lambda _done, _total: None,
        on_round: Callable[[SearchView], None] = lambda _view: None,
    ) -> None:
        """`on_round` is called before each round."""
        self._workspace, self._ledger, self._service, self._number = workspace, workspace.batches, service, batch
        self._settings, self._on_count, self._on_round = settings, on_count, on_round
        self._began: float | None = None
        self._question = EvaluationQuestion(images_of(workspace, batch), settings.model, settings.mapping)

    def begin(self) -> None:
        """Record the search in the workspace, with the questions of an earlier search."""
        self._record(self._questions())

    def ask(self, question: str, nearest: Nearest) -> None:
        """Add a person's question. From the next round on, images are drawn to answer it. Raises UserError if its words
        name no label and no edit of the batch; `nearest` then finds the names that are nearest in meaning.
        """
        question, questions = " ".join(question.split()), self._questions()
        names = tuple(dict.fromkeys(cell_name(one) for one in with_one_edit(self._ledger.candidates(self._number))))
        found = matched(question, names)
        if names and not found.parts:
            known = tuple(dict.fromkeys(name for one in names for name in (one[0], one[2]) if name))
            like = () if found.missing else nearest(question, known)
            message = TEXTS.paragraph("unknown-question.txt", question=question, missing=found.missing, nearest=like)
            raise UserError(message, field="question")
        if question in questions:
            return
        if len(questions) >= MOST_QUESTIONS:
            raise UserError(f"At most {MOST_QUESTIONS} questions are kept: remove one first.", field="question")
        self._record((*questions, question))

    def forget(self, question: str) -> None:
        """Remove a question. Its images stay."""
        self._record(tuple(one for one in self._questions() if one != question))

    def _record(self, questions: tuple[str, ...]) -> None:
        self._ledger.add_search(self._number, to_plain(replace(self._settings, questions=questions)))

    def _questions(self) -> tuple[str, ...]:
        """Return the questions as they are now; a person may have changed them in another process."""
        stored = settings_of_search(self._workspace, self._number)
        return () if stored is None else stored.questions

    def choose(self, planner: Planner) -> bool:
        """Have the model read the new images, then choose the images of the next round. Return False if all images are
        chosen, or if the search's time is over. Raises Cancelled if the search is cancelled.
        """
        self._began = self._began or time.monotonic()
        standing = self._standing(reads=True)
        self._on_round(self._view(standing))
        is_late = 0 < 60 * self._settings.minutes <= time.monotonic() - self._began
        pick, chance = self._next(standing)
        if is_late or not len(pick.cell):
            return False
        waiting = [[one[at] for at in chance.permutation(len(one))] for one in standing.waiting]
        parts = [*_open_parts(standing.answers), ""]  # -1 is no question
        chosen: list[tuple[Candidate, ChosenBy, str]] = [
            (waiting[cell].pop(), "random" if uniform else "aim", parts[question])
            for cell, uniform, question in zip(pick.cell, pick.uniform, pick.question, strict=True)
        ]
        planner.choose(chosen)
        return True

    def _next(self, standing: _Standing) -> tuple[Pick, np.random.Generator]:
        """Return the next round (empty at the end), and the random generator that chooses its images."""
        # The same state gives the same choice, also after a kill.
        chance = np.random.default_rng([self._number, standing.chosen])
        left = np.array([len(one) for one in standing.waiting], np.int64)
        budget = self._settings.images - standing.chosen
        size = min(ROUND, budget)
        valid = _share_valid(standing.valid, standing.invalid)
        cells, questions = standing.cells, [one.cells(standing.names) for one in _open_parts(standing.answers).values()]
        counts = standing.images, standing.faults, left
        pick = next_round(cells, *counts, size, chance, valid, self._settings.weak, questions, budget)
        return pick, chance

    def view(self, reads: bool = True) -> SearchView:
        """Return the result so far. If `reads`, the model first reads images that it has not read."""
        return self._view(self._standing(reads))

    def _standing(self, reads: bool) -> _Standing:
        candidates = self._ledger.candidates(self._number)
        single = with_one_edit(candidates)
        notes = list[str]()
        if len(single) < len(candidates):
            several = count_of(len(candidates) - len(single), "caption", "has")
            notes.append(f"{several} several edits, or none: the search leaves them out.")
        outcome, rejected, wrong_sources = self._outcomes(single, notes, reads)
        known, numbers = numbered(map(cell_name, single))
        names, cell_of = tuple(known), numbers.tolist()
        spellings = tuple(Counter[str]() for _ in names)
        images, faults, valid, invalid = (np.zeros(len(names), np.int64) for _ in range(4))
        seen, counted = set[tuple[int, int]](), list[DrawnImage]()
        for one, cell in zip(single, cell_of, strict=True):
            spellings[cell][one.counterfactual.edits[0].alternative] += 1
            if one.test_case is not None or one.state in ("planned", "leased"):
                seen.add((cell, one.source))
            invalid[cell] += one.test_case in rejected
            if one.test_case is None or one.test_case not in outcome:
                continue
            fault, is_invalid = outcome[one.test_case]
            counted.append(DrawnImage(cell, one.source, one.test_case, fault, one.chosen_by == "random", one.asked))
            images[cell] += 1
            faults[cell] += fault
            valid[cell] += not is_invalid
            invalid[cell] += is_invalid
        waiting: list[list[Candidate]] = [[] for _ in names]
        for one, cell in zip(single, cell_of, strict=True):
            if one.waits and one.source not in wrong_sources and (cell, one.source) not in seen:
                seen.add((cell, one.source))
                waiting[cell].append(one)
        chosen = [one for one in single if one.chosen_by]
        cells = Cells(
            label=numbered(name[0] for name in names)[1],
            alternative=numbered(name[1:] for name in names)[1],
            edit_type=numbered(name[1] for name in names)[1],
        )
        return _Standing(
            names,
            spellings,
            cells,
            tuple(tuple(one) for one in waiting),
            images,
            faults,
            valid,
            invalid,
            tuple(counted),
            self._answers(names, spellings, waiting, counted),
            len(chosen),
            sum(one.test_case is not None for one in chosen),
            tuple(notes),
        )

    def _answers(
        self,
        names: tuple[CellName, ...],
        spellings: Sequence[Counter[str]],
        waiting: Sequence[Sequence[Candidate]],
        counted: Sequence[DrawnImage],
    ) -> tuple[Answer, ...]:
        left = np.array([len(one) for one in waiting], np.int64)
        # Each cell, each alternative over all labels, and each label over all edits can be asked about.
        parts = len(names) + len({name[1:] for name in names}) + len({name[0] for name in names})
        answers = list[Answer]()
        for question in self._questions():
            found = matched(question, names)
            answered = tuple(
                answer_of(part, names, spellings, left, counted, self._settings.weak, parts) for part in found.parts
            )
            answers.append(Answer(question, answered, found.unknown, found.missing))
        return tuple(answers)

    def _outcomes(
        self, candidates: Sequence[Candidate], notes: list[str], reads: bool
    ) -> tuple[dict[int, tuple[bool, bool]], frozenset[int], frozenset[int]]:
        """Return three things: two flags for each test case that counts, the rejected test cases, and the sources that
        the model gets wrong. The flags say if the test case is a valid fault, and if a study finds it invalid.
        Test cases of sources that the model gets wrong do not count: the edit is not the reason for the wrong answer.
        """
        if all(one.test_case is None for one in candidates):
            return {}, frozenset(), frozenset()
        cases = self._service.cases(self._question.subject)
        if cases.view.problem:
            raise UserError(cases.view.problem)
        if reads:
            read = self._service.read(self._question.model, cases, self._on_count)
            notes += filter(None, [read.note])
        elif self._service.pending(self._question).read == 0:
            return {}, frozenset(), frozenset()
        found = self._service.result(self._question)
        generated = found.cases.generated
        judged = judged_of(found.cases, self._workspace.case_columns.outcomes())
        ids = found.cases.table.test_case[generated.row]
        before = found.before[generated.source]
        known = (found.right != UNKNOWN) & (before == RIGHT)
        fault: Flags = (found.right == WRONG) & (judged != 0)
        rows = zip(ids[known].tolist(), fault[known].tolist(), (judged[known] == 0).tolist(), strict=True)
        outcome = {case: (is_fault, is_invalid) for case, is_fault, is_invalid in rows}
        table = found.cases.table
        rejected = frozenset(table.test_case[table.verdict == REJECTED].tolist())
        wrong = set(ids[before == WRONG].tolist())
        sources = frozenset(one.source for one in candidates if one.test_case in wrong)
        if sources:
            about = count_of(len(sources), "source")
            notes.append(f"The model is wrong about {about} before any edit: their images do not count.")
        notes += found.cases.left_out
        return outcome, rejected, sources

    def _view(self, standing: _Standing) -> SearchView:
        cells, pick = standing.cells, self._next(standing)[0]
        chance = beliefs(cells, standing.images, standing.faults).weak
        waiting = np.array([len(one) for one in standing.waiting], np.int64)
        aimed = np.bincount(pick.cell[~pick.uniform & (pick.question < 0)], minlength=len(cells))
        counts = np.array([standing.images, standing.faults, standing.valid, standing.invalid, waiting, aimed])
        named = [(*name[:2], each) for name, each in zip(standing.names, standing.spellings, strict=True)]
        rows = self._rows(named, chance, counts)
        over: tuple[CellRow, ...] = ()
        if len(np.unique(cells.label)) > 1:
            over_named: dict[int, tuple[str, str, Counter[str]]] = {}
            for number, (_, edit_type, each) in zip(cells.alternative.tolist(), named, strict=True):
                over_named.setdefault(number, ("", edit_type, Counter()))[2].update(each)
            sums = np.array([np.bincount(cells.alternative, weights=one) for one in counts], np.int64)
            largest = np.zeros(len(over_named))
            np.maximum.at(largest, cells.alternative, chance)
            over = self._rows([over_named[one] for one in range(len(over_named))], largest, sums)
        return SearchView(
            weak=self._settings.weak,
            cells=rows,
            over_labels=over,
            chosen=standing.chosen,
            drawn=standing.drawn,
            next_random=int(pick.uniform.sum()),
            weak_filter=self._weak_filter(standing),
            error=_error([(one.source, one.is_fault) for one in standing.counted if one.is_random]),
            next_asked=int((pick.question >= 0).sum()),
            answers=standing.answers,
            notes=standing.notes,
        )

    def _weak_filter(self, standing: _Standing) -> str:
        is_detected = detected(standing.images, standing.faults, self._settings.weak)
        cases = [one.test_case for one in standing.counted if is_detected[one.cell]]
        if not cases:
            return ""
        table, whole = self._workspace.case_columns.table(), self._question.subject.filter
        return whole.among(table.entry[np.isin(table.test_case, cases)].tolist()).address

    def _rows(
        self, names: Sequence[tuple[str, str, Counter[str]]], chance: Floats, counts: Numbers
    ) -> tuple[CellRow, ...]:
        images, faults, valid, invalid, waiting, aimed = counts
        found, shares, rows = (
            detected(images, faults, self._settings.weak),
            _share_valid(valid, invalid),
            list[CellRow](),
        )
        for place, (label, edit_type, each) in enumerate(names):
            is_unlikely = chance[place] < UNLIKELY and images[place]
            row = CellRow(
                label=label,
                edit_type=edit_type,
                spellings=tuple(spelling for spelling, _ in each.most_common()),
                images=int(images[place]),
                faults=int(faults[place]),
                chance=float(chance[place]),
                state="weak" if found[place] else "unlikely" if is_unlikely else "open",
                valid=float(shares[place]),
                waiting=int(waiting[place]),
                next=int(aimed[place]),
            )
            rows.append(row)
        rows.sort(key=lambda row: (row.state != "weak", -row.chance, row.label, row.edit_type, row.spellings))
        return tuple(rows)


def _open_parts(answers: Sequence[Answer]) -> Mapping[str, Part]:
    """Return, by `Part.key`, each part whose answer is “cannot tell” and which has images left to draw."""
    open_ones = [one for answer in answers for one in answer.parts if one.answer == "cannot tell" and one.waiting]
    return {one.part.key: one.part for one in open_ones}


def _share_valid(valid: Numbers, invalid: Numbers) -> Floats:
    """Estimate each cell's share of valid images. Two valid images are added, so that few images decide little."""
    shares: Floats = (valid + 2) / (valid + invalid + 2)
    return shares


def _error(images: Sequence[tuple[int, bool]]) -> Figure:
    """Return the share of valid faults among images chosen at random, with a 95 % interval over sources."""
    if not images:
        return Figure(None, why="no image chosen at random is read yet")
    _, place = np.unique([source for source, _ in images], return_inverse=True)
    sizes = np.bincount(place).astype(np.float64)
    shares = np.bincount(place, weights=[fault for _, fault in images]) / sizes
    return MeansOfSources(shares[:, None], sizes).figure(lambda of: of[..., 0], len(images))
