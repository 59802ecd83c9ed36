"""Predicts from an image's checks how likely people find it valid. The score is learnt from the votes of studies, and
compared with votes that it has not learnt from. Scores of the whole workspace are stored, so that filters can use them.

A score is for one task, classification or segmentation, and predicts no images of the other task. There, checks mean
something else, and people answer other questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from core.csv_tables import facts
from core.errors import UserError
from core.figures import Flags, Floats, Numbers
from core.types import TaskKind
from core.validity_score import FEWEST, Agreement, ScoreRun, ValidityScore
from evaluation.validity import ValidityEffect
from evaluation.validity_score import agreement, cross_fitted, learn
from services.commands import Command
from services.evaluation.subjects import Cases
from services.evaluation.texts import TEXTS
from services.evaluation.types import ScoreView, StudyShown
from storage.curation.case_columns import CaseTable, Outcome
from storage.curation.scores import NewScores
from storage.workspace import Workspace

TASKS: tuple[TaskKind, ...] = get_args(TaskKind)
OUTCOMES = {"valid": True, "invalid": False}
"""Outcomes of a study that the score learns from; others are ignored."""
FEWEST_SHOWN = 10
"""A study's agreement is shown only if at least this number of its images is judged."""
LEAST_WORTH = 0.05
"""Minimum share by which the score has to narrow an interval. If it does less, a note says that it does not help."""
NOT_JUDGED = "No score of validity is learnt: no study has judged an image."
_Votes = np.recarray[Any, Any]
"""A row for each judged image and study, with the fields `row` (in the table of images), `valid`, `study`, `source`."""


class ScoreImages(Command, name="score-images"):
    """Predict from the checks of each image how likely people find the image valid, for each task that has enough votes
    to learn from. Filters use the new scores. Earlier scores stay stored, but are no longer used.
    """


@dataclass(frozen=True, eq=False)
class Scored:
    """The chance that people find each image of one task valid."""

    chance: Floats
    """Chance that people find the image of each row of the table valid, 0 to 1; NaN for images of other tasks. For a
    judged image, the chance is learnt from votes on other sources."""
    checked: Flags
    """True for each image of the task that has a figure of a check. The scores of other images are not stored."""
    learnt: ValidityScore
    studies: Mapping[str, str]
    """Names of the studies that the score was learnt from, by id."""
    view: ScoreView


def score_images(
    table: CaseTable, checks: Mapping[str, tuple[Numbers, Floats]], outcomes: Sequence[Outcome], task: TaskKind
) -> Scored | str:
    """Return the score of all images of a task, or a sentence on why it is missing. `checks` maps each check to its
    entries and figures. `outcomes` are the outcomes of studies, oldest first.
    """
    of_task = _of_task(table, task)
    rows = {name: table.rows_of(entries) for name, (entries, _) in checks.items()}
    names = tuple(sorted(name for name, fitted in rows.items() if of_task[fitted].any()))
    if not names:
        return TEXTS.paragraph("no-score.txt", task=task, lacking="checks")
    judged, studies = _votes(table, of_task, outcomes)
    numbers = int(judged.valid.sum()), int((~judged.valid).sum())
    if min(numbers) < FEWEST:
        return TEXTS.paragraph("no-score.txt", task=task, lacking="votes", fewest=FEWEST, numbers=numbers)
    figures = np.full((len(table), len(names)), np.nan)
    for column, name in enumerate(names):
        figures[rows[name], column] = checks[name][1]
    last = _last(judged)
    try:
        fitted = cross_fitted(names, figures[last.row], last.valid, last.source)
    except ValueError:
        return TEXTS.paragraph("no-score.txt", task=task, lacking="sources")
    learnt = learn(names, figures[last.row], last.valid, task)
    chance = np.full(len(table), np.nan)
    chance[of_task] = learnt(figures[of_task])
    chance[last.row] = fitted
    titles = tuple(studies.values())
    shown = [
        found for place, name in enumerate(titles) if (found := _shown(names, figures, judged, place, name)) is not None
    ]
    view = ScoreView(titles, agreement(fitted, last.valid, last.source), tuple(shown))
    return Scored(chance, of_task & ~np.isnan(figures).all(axis=1), learnt, studies, view)


def judged_of(cases: Cases, votes: Sequence[Outcome]) -> Numbers:
    """Return for each test case 1 if votes find it valid, 0 if not, -1 if nobody judged it."""
    latest = {one.test_case: OUTCOMES[one.outcome] for one in votes if one.outcome in OUTCOMES}
    ids = cases.table.test_case[cases.generated.row].tolist()
    return np.array([latest.get(test_case, -1) for test_case in ids], np.int64)


@dataclass(frozen=True)
class ScoringResult:
    """Outcome of scoring all images."""

    runs: tuple[ScoreRun, ...]
    """The stored scores of each task with enough votes."""
    notes: tuple[str, ...]
    """Sentences on why images of a task have no new score, one for each such task."""


def score_workspace(workspace: Workspace) -> ScoringResult:
    """Learn a score from all votes of each task, and score the task's images that have checks. Earlier scores of a task
    with too few votes stay. Raises UserError if no task has enough votes.
    """
    columns = workspace.case_columns
    votes = columns.outcomes()
    if not votes:
        raise UserError(NOT_JUDGED)
    checks = columns.checks()
    table = columns.table()  # after the checks, so that it has all their images
    runs, notes = list[ScoreRun](), list[str]()
    for task in TASKS:
        if not _of_task(table, task).any():
            continue
        score = score_images(table, checks, votes, task)
        if isinstance(score, str):
            notes.append(score)
            continue
        scored = score.checked
        new = NewScores(score.studies, score.learnt, score.view.own, table.entry[scored], score.chance[scored])
        runs.append(workspace.scores.get(workspace.scores.save(new)))
    if not runs:
        raise UserError(" ".join(notes) or "There is no image to score.")
    return ScoringResult(tuple(runs), tuple(notes))


def scoring_facts(found: ScoringResult) -> dict[str, Any]:
    """Return the outcome of scoring all images, JSON-ready."""
    images, scores = sum(one.images for one in found.runs), [score_facts(one) for one in found.runs]
    return facts(found, "notes", images=images, scores=scores)


def score_facts(run: ScoreRun) -> dict[str, Any]:
    """Return facts on a task's scores, JSON-ready: number of images, agreement with people, and studies learnt from."""
    measured = run.agreement
    return {
        **facts(run, "task images checks created", run=run.id),
        **facts(measured, "valid threshold precision recall", judged=measured.images),
        **facts(measured.auc, "low high why", auc=measured.auc.value),
        "studies": [{"study": study, "title": title} for study, title in run.studies.items()],
        "reliability": [{"foretold": mean, "valid": share, "images": number} for mean, share, number in measured.bins],
    }


def _of_task(table: CaseTable, task: TaskKind) -> Flags:
    return table.segmentation == (task == "segmentation")


def _votes(table: CaseTable, of_task: Flags, outcomes: Sequence[Outcome]) -> tuple[_Votes, dict[str, str]]:
    """Return the votes on images of a task, and the names of their studies by id."""
    row_of = {case: row for row, case in enumerate(table.test_case.tolist()) if case >= 0 and of_task[row]}
    judged = [one for one in outcomes if one.test_case in row_of and one.outcome in OUTCOMES]
    titles = {one.study: one.title for one in judged}
    number = {study: place for place, study in enumerate(titles)}
    rows = np.array([row_of[one.test_case] for one in judged], np.int64)
    valid = np.array([OUTCOMES[one.outcome] for one in judged], bool)
    source = table.sources.numbers[rows]
    # An image without a source is its own source.
    source = np.where(source < 0, len(table.sources.values) + rows, source)
    study = np.array([number[one.study] for one in judged], np.int64)
    columns = [("row", np.int64), ("valid", np.bool_), ("study", np.int64), ("source", np.int64)]
    return np.rec.fromarrays([rows, valid, study, source], dtype=columns), titles


def _last(votes: _Votes) -> _Votes:
    _, at = np.unique(votes.row[::-1], return_index=True)
    return votes[np.sort(len(votes) - 1 - at)].view(np.recarray)


def _shown(names: Sequence[str], figures: Floats, votes: _Votes, study: int, title: str) -> StudyShown | None:
    """Return how well scores, learnt from other studies and sources, agree with a study's votes; None for few votes."""
    judged = votes[votes.study == study]
    others = votes[(votes.study != study) & ~np.isin(votes.source, judged.source)]
    both = judged.valid.any() and not judged.valid.all()
    if len(judged) < FEWEST_SHOWN or not both or min(int(others.valid.sum()), int((~others.valid).sum())) < FEWEST:
        return None
    last = _last(others)
    try:
        learnt = learn(names, figures[last.row], last.valid)
    except ValueError:
        return None
    return StudyShown(title, agreement(learnt(figures[judged.row]), judged.valid, judged.source))


def worth_words(found: ValidityEffect | None) -> list[str]:
    """Return a sentence if the score does not narrow the interval of the share of valid faults; else []."""
    if found is None:
        return []
    plain, helped = (one.width for one in (found.by_strata, found.with_score))
    if plain is None or helped is None or helped < (1 - LEAST_WORTH) * plain:
        return []
    return [
        f"The score of validity does not narrow the interval here: {100 * helped:.1f} points with the score, and "
        f"{100 * plain:.1f} without."
    ]


def agreement_words(found: Agreement) -> str:
    """Describe how well a score agrees with people, in a sentence."""
    return TEXTS.paragraph("agreement.txt", auc=found.auc, images=found.images)
