"""RQ1: is a generated image valid? A simulated study beside the truth, how often its intervals hold the truth, and what
an automatic score is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.figures import Figure, Floats, Proportion
from core.validity_score import Agreement
from evaluation.effectiveness import WRONG
from evaluation.validity import Judged, ValidityEffect, sample_sizes, validity_effect
from evaluation.validity_score import agreement, cross_fitted, learn
from experiments.paper.annotators import vote
from experiments.paper.reading import CANNOT_TELL, VALID, Numbers, Read
from experiments.paper.size import Size
from experiments.paper.world import side
from study.intervals import wilson

RESAMPLES = 1000
"""Of the bootstrap of each of many studies."""
FIGURES = {
    "wrong and valid, by strata": "by_strata",
    "wrong and valid, with the score": "with_score",
    "error among valid images": "among_valid",
}
"""What is known of validity by a study, and where it stands in `ValidityEffect`: these intervals claim 95 %."""
PAPERS_WAY = "error times the share judged valid (the paper's way)"
SHARE = "share of valid images (Wilson)"


@dataclass(frozen=True)
class ShareValid:
    """What is true of the test cases of one kind."""

    name: str
    images: int
    valid: int
    cannot_tell: int


@dataclass(frozen=True)
class StudyResult:
    """One simulated study of images drawn at random, one a source at most."""

    images: int
    discarded: int
    found: Proportion
    """The share that the annotators find valid."""
    true: float | None
    """The same of those images by the truth."""
    right: int
    """Of how many images the annotators agreed on the truth."""


@dataclass(frozen=True)
class Coverage:
    """Of how many repeated studies the interval of a figure holds the truth."""

    figure: str
    truth: float | None
    studies: int
    """That gave an interval."""
    held: int
    width: float | None
    """The mean width of the interval."""

    @property
    def share(self) -> float | None:
        """How often it holds the truth, 0 to 1; None without a study."""
        return self.held / self.studies if self.studies else None


@dataclass(frozen=True)
class Validity:
    """All of RQ1 for one family."""

    by_type: tuple[ShareValid, ...]
    """Of all, then of each edit type."""
    broken_by: tuple[tuple[str, int], ...]
    """What is wrong with the broken ones, and how often."""
    study: StudyResult
    effect: ValidityEffect | None
    """What one study makes of the error rate of a classifier."""
    coverage: tuple[Coverage, ...]
    score: Agreement | None
    """How far the automatic score, learnt on one study, agrees with the truth of images of other sources; None where
    there are too few broken images to learn from."""
    score_why: str


def strata(found: Read, wrong: NDArray[np.bool_]) -> tuple[Numbers, tuple[str, ...]]:
    """The number of the stratum of each case, and their names: model right or wrong, and edit type."""
    types = sorted(set(found.edit_types))
    names = tuple(f"{word}, {one}" for word in ("right", "wrong") for one in types)
    numbers = [len(types) * int(bad) + types.index(one) for bad, one in zip(wrong, found.edit_types, strict=True)]
    return np.array(numbers, np.int64), names


def wrong_cases(found: Read) -> NDArray[np.bool_]:
    """Whether the classifier is wrong on each case."""
    return np.asarray(found.answers()[1][0].right == WRONG)


def score_of(found: Read, learnt_on: NDArray[np.bool_], seed: int) -> Floats | None:
    """How likely people find each case valid, learnt from the votes of a study on some of them; None where it has too
    few votes of either kind.
    """
    cast = vote(found.truth == VALID, seed)
    wanted = learnt_on & cast.known & (found.truth != CANNOT_TELL)
    try:
        return learn(found.checks, found.measured[wanted], cast.valid[wanted])(found.measured)
    except ValueError:
        return None


def score_of_each(found: Read, seed: int) -> Floats | None:
    """The same by the votes on other sources, for each of them; None as above."""
    cast = vote(found.truth == VALID, seed)
    known = cast.known & (found.truth != CANNOT_TELL)
    score = np.full(len(known), float(cast.valid[known].mean()) if known.any() else 0.5)
    try:
        score[known] = cross_fitted(found.checks, found.measured[known], cast.valid[known], found.of_case[known])
    except ValueError:
        return None
    return score


def sides_of(found: Read) -> tuple[str, ...]:
    """The side of each case."""
    own = [side(one) for one in found.sources]
    return tuple(own[number] for number in found.of_case)


def validity(found: Read, size: Size) -> Validity:
    """All of it."""
    sides = np.array(sides_of(found))
    score = score_of(found, sides == "train", seed=1)
    shown = (sides == "test") & (found.truth != CANNOT_TELL)
    agreed, why = None, ""
    if score is None:
        why = "the votes find too few broken images on the training side to learn from"
    elif not shown.any():
        why = "there is no image of the test side"
    else:
        agreed = agreement(score[shown], found.truth[shown] == VALID, found.of_case[shown])
    broken = [name for one in found.why for name in one]
    return Validity(
        by_type=tuple(_shares(found)),
        broken_by=tuple(sorted(((name, broken.count(name)) for name in set(broken)), key=lambda one: -one[1])),
        study=_study(found, size, seed=2),
        effect=_effect(found, size, score) if found.family == "object" else None,
        coverage=coverage(found, size, score) if found.family == "object" else share_coverage(found, size),
        score=agreed,
        score_why=why,
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
    """A case of each source, drawn at random."""
    order = chance.permutation(len(source))
    _, first = np.unique(source[order], return_index=True)
    return np.sort(order[first])


def _study(found: Read, size: Size, seed: int) -> StudyResult:
    chance = np.random.default_rng(seed)
    known = np.flatnonzero(found.truth != CANNOT_TELL)
    asked = known[_one_a_source(found.of_case[known], chance)]
    asked = np.sort(chance.permutation(asked)[: size.judged])
    truth = found.truth[asked] == VALID
    cast = vote(truth, seed)
    decided = int(cast.known.sum())
    return StudyResult(
        len(asked),
        len(asked) - decided,
        wilson(int(cast.valid.sum()), decided),
        float(truth.mean()) if len(truth) else None,
        int((cast.valid == truth)[cast.known].sum()),
    )


def _effect(found: Read, size: Size, score: Floats | None) -> ValidityEffect:
    known = found.truth != CANNOT_TELL
    numbers, names = strata(found, wrong_cases(found))
    rows = np.flatnonzero(known)
    return _asked(
        found.of_case[rows],
        wrong_cases(found)[rows],
        numbers[rows],
        names,
        found.truth[rows] == VALID,
        score[rows] if score is not None else None,
        size,
        seed=3,
    )


def _asked(
    source: Numbers,
    wrong: NDArray[np.bool_],
    stratum: Numbers,
    names: Sequence[str],
    valid: NDArray[np.bool_],
    score: Floats | None,
    size: Size,
    seed: int,
    resamples: int = RESAMPLES,
) -> ValidityEffect:
    """A study of a sample of these images, stratified; what is true of the others nobody asks."""
    chance = np.random.default_rng(seed)
    wanted = sample_sizes([int((stratum == one).sum()) for one in range(len(names))], size.judged)
    asked = np.concatenate(
        [chance.permutation(np.flatnonzero(stratum == one))[:number] for one, number in enumerate(wanted)]
    )
    cast = vote(valid[asked], seed)
    votes_for, votes = np.zeros(len(source), np.int64), np.zeros(len(source), np.int64)
    votes_for[asked], votes[asked] = cast.votes_for, cast.votes
    held = Judged(source, wrong, stratum, votes_for, votes, score)
    return validity_effect(held, names, seed, resamples)


def coverage(found: Read, size: Size, score: Floats | None) -> tuple[Coverage, ...]:
    """How often the intervals of repeated studies hold the truth. The test cases that there are stand for all there
    could be: each study draws sources from them with replacement, takes a stratified sample of their images, and asks
    annotators of its own.
    """
    known = found.truth != CANNOT_TELL
    numbers, names = strata(found, wrong_cases(found))
    wrong, valid = wrong_cases(found), found.truth == VALID
    truths = {
        "by_strata": float((wrong & valid)[known].mean()),
        "with_score": float((wrong & valid)[known].mean()),
        "times_valid": float((wrong & valid)[known].mean()),
        "among_valid": float(wrong[known & valid].mean()) if (known & valid).any() else float("nan"),
    }
    of_source = [np.flatnonzero(known & (found.of_case == one)) for one in range(len(found.sources))]
    of_source = [rows for rows in of_source if len(rows)]
    tallies: dict[str, list[tuple[bool, float]]] = {name: [] for name in truths}
    for number in range(size.studies):
        chance = np.random.default_rng((5, number))
        drawn = [of_source[int(one)] for one in chance.integers(0, len(of_source), size.study_sources)]
        rows = np.concatenate(drawn)
        source = np.repeat(np.arange(len(drawn)), [len(one) for one in drawn])
        own = score[rows] if score is not None else None
        held = _asked(source, wrong[rows], numbers[rows], names, valid[rows], own, size, number)
        for name, truth in truths.items():
            figure: Figure = getattr(held, name)
            if figure.low is not None and figure.high is not None:
                tallies[name].append((figure.low <= truth <= figure.high, figure.high - figure.low))
    named = {**FIGURES, PAPERS_WAY: "times_valid"}
    rows_of = [_tallied(title, truths[name], tallies[name]) for title, name in named.items()]
    return (*rows_of, *share_coverage(found, size))


def share_coverage(found: Read, size: Size) -> tuple[Coverage, ...]:
    """The same of the plain share of valid images: one image a source, and Wilson's interval."""
    known = np.flatnonzero(found.truth != CANNOT_TELL)
    of_source = [known[found.of_case[known] == one] for one in range(len(found.sources))]
    of_source = [rows for rows in of_source if len(rows)]
    truth = float(np.mean([(found.truth[rows] == VALID).mean() for rows in of_source])) if of_source else float("nan")
    tally = []
    for number in range(size.studies):
        chance = np.random.default_rng((6, number))
        sources = chance.integers(0, len(of_source), size.judged)
        asked = np.array([chance.choice(of_source[int(one)]) for one in sources])
        cast = vote(found.truth[asked] == VALID, 100_000 + number)
        held = wilson(int(cast.valid.sum()), int(cast.known.sum()))
        if held.low is not None and held.high is not None:
            tally.append((held.low <= truth <= held.high, held.high - held.low))
    return (_tallied(SHARE, truth, tally),)


def _tallied(name: str, truth: float, tally: Sequence[tuple[bool, float]]) -> Coverage:
    width = float(np.mean([width for _, width in tally])) if tally else None
    return Coverage(name, truth if np.isfinite(truth) else None, len(tally), sum(held for held, _ in tally), width)
