"""Votes of studies on test cases: each worker's votes, their answers on control items, and how the images of each study
were chosen. Cached until a study changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.consensus import counted
from core.figures import Flags, Numbers
from core.latest import Latest
from core.studies import Answers, Question, StudyData
from evaluation.worker_errors import Ballots
from storage.curation.case_columns import Outcome
from storage.workspace import Workspace

NO_CONSENSUS = "no consensus"
DRAWN, REMOVED = "items drawn", "items removed"
"""Events in the log of a study."""
_FILTER = re.compile(r"that fitted \((.*)\), seed")
_EQUALLY = re.compile(r"drawn (equally of each [a-z ]+)")
_ANYWAY = ("kind: ", "test cases alone", "not in a study", "role: ")
"""First words of filter criteria that do not bias the choice of test cases. `how_chosen` leaves these criteria out."""
LONGEST_WORDS = 120
MOST_KEPT = 100
"""Maximum number of studies whose votes are cached."""


@dataclass(frozen=True)
class StudyVotes:
    """Votes of one study."""

    study: str
    title: str
    chosen: tuple[str, ...]
    """Criteria by which the study's images were chosen, in words; empty for random draws from all images."""
    cases: Numbers
    """Test case of each single vote; -1 for a control item. All columns have equal length."""
    worker: Numbers
    valid: Flags
    known: Numbers
    """1 for a valid control item, 0 for an invalid one; -1 for a test case."""
    adjudicated: frozenset[int]
    """Test cases on which the study lead has decided."""


class StudyVotesReader:
    """Reads the votes of studies, cached until a study changes. Thread-safe."""

    def __init__(self, workspace: Workspace) -> None:
        self._studies, self._kept = workspace.studies, Latest[StudyVotes](MOST_KEPT)

    def of(self, outcomes: Sequence[Outcome], test_cases: Numbers) -> tuple[StudyVotes, ...]:
        """Return the votes of each study that judged some of these test cases, in the order of `outcomes`."""
        is_relevant = np.isin([one.test_case for one in outcomes], test_cases).tolist()
        titles = {one.study: one.title for one, is_own in zip(outcomes, is_relevant, strict=True) if is_own}
        return tuple(self._of(study, title) for study, title in titles.items())

    def _of(self, study: str, title: str) -> StudyVotes:
        def read() -> StudyVotes:
            log = [(one.event, one.detail) for one in self._studies.log(study, limit=10**6)]
            return votes_of(self._studies.data(study), title, how_chosen(log))

        return self._kept.once((study, title, self._studies.revision(study)), read)


def how_chosen(log: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the criteria by which a study's images were chosen, in words; empty for random draws from all images."""
    ways = list[str]()
    drawn = [detail for event, detail in log if event == DRAWN]
    if not drawn:
        return ("how they were chosen is not recorded",)
    for detail in drawn:
        if match := _FILTER.search(detail):
            ways += [part for part in match[1].split("; ") if not part.startswith(_ANYWAY)]
        if match := _EQUALLY.search(detail):
            ways.append(match[1])
    if any(event == REMOVED for event, _ in log):
        ways.append("some taken out by hand")
    return tuple(dict.fromkeys(ways))


def chosen_words(studies: Sequence[StudyVotes], subject_filter: str) -> str:
    """Return one text with the title of each study and the criteria by which its images were chosen. Criteria in
    `subject_filter` are left out, because they hold for all images. Returns "" if no criterion is left.
    """
    common = subject_filter.split("; ")
    ways = [(one.title, [way for way in one.chosen if way not in common]) for one in studies]
    words = "; ".join(f"“{title}”: {', '.join(own)}" for title, own in ways if own)
    return words if len(words) <= LONGEST_WORDS else f"{words[: LONGEST_WORDS - 1]}…"


def votes_of(data: StudyData, title: str, chosen: tuple[str, ...]) -> StudyVotes:
    """Return a study's counted votes, and the answers to its control items."""
    rules = data.study.rules
    telling = [one for one in rules.questions if one.valid and not one.follows]
    items = {item.id: item for item in data.items}
    excluded = {one.worker for one in data.exclusions}
    rows = list[tuple[int, str, bool, int]]()
    for item, votes in counted(data.votes, rules.votes, excluded).items():
        case = items[item].test_case
        for vote in votes:
            is_valid = _says(telling, vote.answers)
            if case is not None and is_valid is not None:
                rows.append((case, vote.worker, is_valid, -1))
    for vote in data.votes:
        if vote.kind != "control" or vote.worker in excluded or vote.item not in items:
            continue
        expected = items[vote.item].expected
        questions = [one for one in telling if expected.get(one.id)]
        truth, is_valid = _says(questions, expected), _says(questions, vote.answers)
        if truth is not None and is_valid is not None:
            rows.append((-1, vote.worker, is_valid, int(truth)))
    number = {worker: place for place, worker in enumerate(dict.fromkeys(row[1] for row in rows))}
    decided = {items[one.item].test_case for one in data.adjudications if one.item in items and one.answer}
    return StudyVotes(
        data.study.id,
        title,
        chosen,
        np.array([row[0] for row in rows], np.int64),
        np.array([number[row[1]] for row in rows], np.int64),
        np.array([row[2] for row in rows], bool),
        np.array([row[3] for row in rows], np.int64),
        frozenset(case for case in decided if case is not None),
    )


def _says(questions: Sequence[Question], answers: Answers) -> bool | None:
    """Return whether these answers find an image valid; None if no question on validity was answered."""
    answered = [(one, answers[one.id]) for one in questions if answers.get(one.id)]
    return all(answer in one.valid for one, answer in answered) if answered else None


@dataclass(frozen=True, eq=False)
class VotesOnCases:
    """Votes of studies on the test cases of an evaluation, in the order of the test cases."""

    undecided: Flags
    """True for each judged test case on which no study reached a consensus."""
    study: Numbers
    """Index of the study whose votes count for each test case; -1 for none."""
    adjudicated: Flags
    ballots: Ballots
    studies: tuple[StudyVotes, ...]


def votes_on(test_cases: Numbers, outcomes: Sequence[Outcome], studies: Sequence[StudyVotes]) -> VotesOnCases:
    """Return the votes on each test case. If several studies judged a test case, use the votes of the last study that
    reached a consensus on this test case. If no study reached a consensus, use the votes of the last study.
    """
    place = {case: at for at, case in enumerate(test_cases.tolist()) if case >= 0}
    number = {one.study: at for at, one in enumerate(studies)}
    study, undecided = np.full(len(test_cases), -1), np.zeros(len(test_cases), bool)
    for one in outcomes:
        at = place.get(one.test_case)
        if at is None or one.study not in number:
            continue
        if one.outcome in ("valid", "invalid"):
            study[at], undecided[at] = number[one.study], False
        elif one.outcome == NO_CONSENSUS and (study[at] < 0 or undecided[at]):
            study[at], undecided[at] = number[one.study], True
    adjudicated = np.zeros(len(test_cases), bool)
    none = np.zeros(0, np.int64)
    parts, workers = [(none, none, none.astype(bool), none)], 0
    judging = np.unique(study[study >= 0])
    for at in judging.tolist():
        entry = studies[at]
        image = np.array([place.get(case, -1) for case in entry.cases.tolist()], np.int64)
        counts = (entry.known >= 0) | ((image >= 0) & (study[image] == at))
        parts.append((image[counts], entry.worker[counts] + workers, entry.valid[counts], entry.known[counts]))
        workers += int(entry.worker.max(initial=-1)) + 1
        adjudicated[[place[case] for case in entry.adjudicated if case in place and study[place[case]] == at]] = True
    renumbered = np.where(study < 0, -1, np.searchsorted(judging, study))
    ballots = Ballots(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return VotesOnCases(undecided, renumbered, adjudicated, ballots, tuple(studies[at] for at in judging))
