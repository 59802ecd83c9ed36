"""RQ1: are generated images valid? Compares a simulated study with the truth, and measures how often the study's
intervals contain the truth and how useful an automatic score is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.figures import Figure, Floats, Proportion
from core.validity_score import Agreement
from evaluation.effectiveness import WRONG
from evaluation.samples import sample_sizes
from evaluation.validity import Judged, ValidityEffect, validity_effect
from evaluation.validity_score import agreement, cross_fitted, learn
from experiments.paper.annotators import Votes, flawless, hard_images, vote
from experiments.paper.intervals import RESAMPLES, over_sources, share_of
from experiments.paper.reading import CANNOT_TELL, VALID, Numbers, Read
from experiments.paper.size import Size
from experiments.paper.world import side
from study.intervals import wilson

FIGURES = {
    "wrong and valid, by strata": "by_strata",
    "wrong and valid, with the score": "with_score",
    "error among valid images": "among_valid",
    "error times the share judged valid (the paper's way)": "times_valid",
}
"""Titles of the estimates that a study gives of a classifier's error, each with its field in `ValidityEffect`."""
SHARE = "share of valid images (Wilson)"
ERRING, FLAWLESS = "simulated annotators who err", "simulated annotators who never err"


@dataclass(frozen=True)
class ShareValid:
    """Number of valid and of undecidable images among the test cases of one edit type, or of all."""

    name: str
    images: int
    valid: int
    cannot_tell: int


@dataclass(frozen=True)
class StudyResult:
    """Result of one simulated study. Its images are a random sample, with at most one image per source."""

    images: int
    discarded: int
    found: Proportion
    """Share of images that the annotators judge valid, among those with a consensus."""
    true: float | None
    """True share of valid images among all images of the study."""
    right: int
    """Number of images on which the annotators' consensus agrees with the truth."""


@dataclass(frozen=True)
class Coverage:
    """Share of repeated studies in which the interval for one figure contains the truth."""

    figure: str
    annotators: str
    """`ERRING`, or `FLAWLESS` for annotators who never err, so that only the choice of images is random."""
    truth: float | None
    share: Figure
    """Share of the intervals that contain the truth, with its own interval. Studies without an interval do not
    count."""
    width: float | None
    """Mean width of the intervals. None if no study gave an interval."""


@dataclass(frozen=True)
class Validity:
    """Results of RQ1 for one task."""

    by_type: tuple[ShareValid, ...]
    """Entry for all test cases, followed by an entry for each edit type."""
    broken_by: tuple[tuple[str, int], ...]
    """Defects of the broken images, with the number of images that have each one."""
    study: StudyResult
    effect: ValidityEffect | None
    """The classifier's error rates as one study estimates them. None for a segmenter."""
    truths: Mapping[str, float]
    """True values of the figures in `effect`, by title."""
    coverage: tuple[Coverage, ...]
    score: Agreement | None
    """Agreement of the automatic validity score with the truth, on images of sources that it did not learn from. None
    if there are too few broken images to learn from."""
    score_why: str
    over_accepting_all: Figure
    """Share of valid images among those that the score accepts, minus the share of valid images among all."""


def strata(found: Read, wrong: NDArray[np.bool_]) -> tuple[Numbers, tuple[str, ...]]:
    """Divide cases by edit type and by whether the model is right. Return each case's stratum number, and all names."""
    types = sorted(set(found.edit_types))
    names = tuple(f"{word}, {one}" for word in ("right", "wrong") for one in types)
    numbers = [len(types) * int(bad) + types.index(one) for bad, one in zip(wrong, found.edit_types, strict=True)]
    return np.array(numbers, np.int64), names


def wrong_cases(found: Read) -> NDArray[np.bool_]:
    """Return True for each test case that the classifier predicts wrongly."""
    return np.asarray(found.answers()[1][0].right == WRONG)


def votes_on(found: Read, rows: Numbers, seed: int) -> Votes:
    """Return the votes of simulated annotators on the cases `rows`."""
    valid = found.truth == VALID
    return vote(valid[rows], hard_images(valid)[rows], seed)


def score_of(found: Read, learnt_on: NDArray[np.bool_], seed: int) -> Floats | None:
    """Return for each case the probability that people judge it valid, learnt from simulated votes on some cases. None
    if too few cases were judged valid, or too few invalid.
    """
    rows = np.flatnonzero(learnt_on & (found.truth != CANNOT_TELL))
    cast = votes_on(found, rows, seed)
    try:
        return learn(found.checks, found.measured[rows[cast.known]], cast.valid[cast.known])(found.measured)
    except ValueError:
        return None


def score_of_each(found: Read, seed: int) -> Floats | None:
    """Return for each case the probability that people judge it valid, learnt only from votes on other sources."""
    rows = np.flatnonzero(found.truth != CANNOT_TELL)
    cast = votes_on(found, rows, seed)
    rows, valid = rows[cast.known], cast.valid[cast.known]
    score = np.full(len(found.cases), float(valid.mean()) if len(valid) else 0.5)
    try:
        score[rows] = cross_fitted(found.checks, found.measured[rows], valid, found.of_case[rows])
    except ValueError:
        return None
    return score


def sides_of(found: Read) -> tuple[str, ...]:
    """Return the split (train, tune or test) of each case."""
    own = [side(one) for one in found.sources]
    return tuple(own[number] for number in found.of_case)


def validity(found: Read, size: Size) -> Validity:
    """Measure the validity of the test cases of one task, as a study and the truth tell it."""
    sides = np.array(sides_of(found))
    score = score_of(found, sides == "train", seed=1)
    shown = (sides == "test") & (found.truth != CANNOT_TELL)
    agreed, why = None, ""
    if score is None:
        why = "the votes find too few broken images on the training side to learn from"
    elif not shown.any():
        why = "there is no image of the test side"
    more = Figure(None, why=why)
    if score is not None and shown.any():
        accepted, valid = score[shown], found.truth[shown] == VALID
        agreed = agreement(accepted, valid, found.of_case[shown])
        accepts = accepted >= agreed.threshold
        more = over_sources(
            found.of_case[shown],
            lambda rows: (
                float(valid[rows][accepts[rows]].mean() - valid[rows].mean()) if accepts[rows].any() else np.nan
            ),
        )
    broken = [name for one in found.why for name in one]
    is_classifier = found.family == "object"
    return Validity(
        by_type=tuple(_shares(found)),
        broken_by=tuple(sorted(((name, broken.count(name)) for name in set(broken)), key=lambda one: -one[1])),
        study=_study(found, size, seed=2),
        effect=_known(found, score).asked(size, seed=3) if is_classifier else None,
        truths=_known(found, score).truths() if is_classifier else {},
        coverage=(*(coverage(found, size, score) if is_classifier else ()), *share_coverage(found, size)),
        score=agreed,
        score_why=why,
        over_accepting_all=more,
    )


def _shares(found: Read) -> list[ShareValid]:
    groups = [("all", np.ones(len(found.cases), bool))]
    groups += [(name, np.array(found.edit_types) == name) for name in sorted(set(found.edit_types))]
    return [
        ShareValid(
            name,
            int(own.sum()),
            int((found.truth[own] == VALID).sum()),
            int((found.truth[own] == CANNOT_TELL).sum()),
        )
        for name, own in groups
    ]


def _one_a_source(source: Numbers, chance: np.random.Generator) -> Numbers:
    """Return one random case per source."""
    order = chance.permutation(len(source))
    _, first = np.unique(source[order], return_index=True)
    return np.sort(order[first])


def _study(found: Read, size: Size, seed: int) -> StudyResult:
    chance = np.random.default_rng(seed)
    known = np.flatnonzero(found.truth != CANNOT_TELL)
    judged = known[_one_a_source(found.of_case[known], chance)]
    judged = np.sort(chance.permutation(judged)[: size.judged])
    truth, cast = found.truth[judged] == VALID, votes_on(found, judged, seed)
    decided = int(cast.known.sum())
    return StudyResult(
        len(judged),
        len(judged) - decided,
        wilson(int(cast.valid.sum()), decided),
        float(truth.mean()) if len(truth) else None,
        int((cast.valid == truth)[cast.known].sum()),
    )


@dataclass(frozen=True)
class _Known:
    """Images for simulated studies: whether the classifier is wrong on them, and whether they are valid."""

    source: Numbers
    wrong: NDArray[np.bool_]
    stratum: Numbers
    strata: tuple[str, ...]
    valid: NDArray[np.bool_]
    hard: NDArray[np.bool_]
    score: Floats | None

    def drawn(self, rows: Numbers, source: Numbers) -> _Known:
        """Return the images `rows`, which may repeat. `source` gives them new source numbers."""
        score = None if self.score is None else self.score[rows]
        return _Known(
            source, self.wrong[rows], self.stratum[rows], self.strata, self.valid[rows], self.hard[rows], score
        )

    def asked(self, size: Size, seed: int, annotators: str = ERRING) -> ValidityEffect:
        """Simulate a study of a stratified sample of the images, and return its figures. The study does not know which
        of the other images are valid.
        """
        chance = np.random.default_rng(seed)
        parts = [np.flatnonzero(self.stratum == one) for one in range(len(self.strata))]
        bad = [name.startswith("wrong") for name in self.strata]
        sizes = sample_sizes([len(part) for part in parts], size.judged, wrong=bad)
        judged = np.sort(np.concatenate([chance.permutation(one)[:n] for one, n in zip(parts, sizes, strict=True)]))
        erring = annotators == ERRING
        return self._effect(
            judged, vote(self.valid[judged], self.hard[judged], seed) if erring else flawless(self.valid[judged]), seed
        )

    def truths(self) -> dict[str, float]:
        """Return the true figures by title, from a study of all images by annotators who never err."""
        effect = self._effect(np.arange(len(self.valid)), flawless(self.valid), 0)
        values = {title: getattr(effect, name).value for title, name in FIGURES.items()}
        return {title: value for title, value in values.items() if value is not None}

    def _effect(self, judged: Numbers, cast: Votes, seed: int) -> ValidityEffect:
        votes_for, votes = np.zeros(len(self.source), np.int64), np.zeros(len(self.source), np.int64)
        votes_for[judged], votes[judged] = cast.votes_for, cast.votes
        undecided, ballots = np.zeros(len(self.source), bool), cast.ballots
        undecided[judged[~cast.known]] = True
        if ballots is not None:
            ballots = replace(ballots, image=np.where(ballots.image < 0, -1, judged[ballots.image]))
        columns = Judged(self.source, self.wrong, self.stratum, votes_for, votes, self.score, undecided, ballots)
        return validity_effect(columns, self.strata, seed, RESAMPLES)


def _known(found: Read, score: Floats | None) -> _Known:
    wrong, valid = wrong_cases(found), found.truth == VALID
    numbers, names = strata(found, wrong)
    whole = _Known(found.of_case, wrong, numbers, names, valid, hard_images(valid), score)
    rows = np.flatnonzero(found.truth != CANNOT_TELL)
    return whole.drawn(rows, found.of_case[rows])


def coverage(found: Read, size: Size, score: Floats | None) -> Iterator[Coverage]:
    """Yield how often each figure's interval contains the truth if a study is repeated. The population is the existing
    test cases. Each study draws sources with replacement, takes a stratified sample of their images, and gets new
    random votes.
    """
    known = _known(found, score)
    truths = known.truths()
    of_source = [np.flatnonzero(known.source == one) for one in np.unique(known.source)]
    tallies = {(title, one): list[tuple[bool, float]]() for title in FIGURES for one in (ERRING, FLAWLESS)}
    for number in range(size.studies):
        chance = np.random.default_rng((5, number))
        rows = [of_source[int(one)] for one in chance.integers(0, len(of_source), size.study_sources)]
        source = np.repeat(np.arange(len(rows)), [len(one) for one in rows])
        drawn = known.drawn(np.concatenate(rows), source)
        for annotators in (ERRING, FLAWLESS):
            effect = drawn.asked(size, number, annotators)
            for title, truth in truths.items():
                figure: Figure = getattr(effect, FIGURES[title])
                if figure.low is not None and figure.high is not None:
                    hit_and_width = (figure.low <= truth <= figure.high, figure.high - figure.low)
                    tallies[title, annotators].append(hit_and_width)
    for (title, annotators), tally in tallies.items():
        yield _tallied(title, annotators, truths.get(title), tally)


def share_coverage(found: Read, size: Size) -> Iterator[Coverage]:
    """Yield how often Wilson's interval for the share of valid images contains the truth, with one image per source."""
    rows = np.flatnonzero(found.truth != CANNOT_TELL)
    of_source = [rows[found.of_case[rows] == one] for one in np.unique(found.of_case[rows])]
    truth = float(np.mean([(found.truth[rows] == VALID).mean() for rows in of_source]))
    for annotators in (ERRING, FLAWLESS):
        tally = []
        for number in range(size.studies):
            chance = np.random.default_rng((6, number))
            sources = chance.integers(0, len(of_source), size.judged)
            judged = np.array([chance.choice(of_source[int(one)]) for one in sources])
            erring = annotators == ERRING
            cast = votes_on(found, judged, 100_000 + number) if erring else flawless(found.truth[judged] == VALID)
            interval = wilson(int(cast.valid.sum()), int(cast.known.sum()))
            if interval.low is not None and interval.high is not None:
                tally.append((interval.low <= truth <= interval.high, interval.high - interval.low))
        yield _tallied(SHARE, annotators, truth, tally)


def _tallied(name: str, annotators: str, truth: float | None, tally: Sequence[tuple[bool, float]]) -> Coverage:
    width = float(np.mean([width for _, width in tally])) if tally else None
    share = share_of(sum(hit for hit, _ in tally), len(tally), "no study gave an interval")
    return Coverage(name, annotators, truth, share, width)
