"""Decides whether a new model may replace an old one: its error on test cases may be higher by at most a margin. Pure.

Both models answer the same test cases, so their errors are compared source by source. Only valid faults count, as a
share of all test cases; either each source weighs the same, or each test case. The answer is "no worse" if the
one-sided 95 % upper bound of the difference is at most the margin, "worse" if the lower bound is above the margin, and
"cannot tell" otherwise. With several classes, "no worse" must hold for each class, which needs no correction (Berger
1982, Technometrics 24). Holm's method corrects "worse" for several tests: one of the whole set, and one of each class.
So the answers "no worse" and "worse" are each false in at most 5 % of comparisons.

The bounds are quantiles of random samples: sources get random weights (Bayesian bootstrap, as in `by_source`). One
imagined, additional source represents unseen sources: in each sample, one model is wrong on this source and the other
is right. A test case adds nothing to the difference if both models are right, both are wrong, or people found the test
case invalid. If only one model is wrong and nobody judged the test case, the test case counts by its chance of being
valid. This chance is estimated, with Jeffreys's prior, from judged test cases on which only this model is wrong. With
fewer than `FEWEST_OF_STRATUM` such test cases, all judged test cases on which either model is wrong are used instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from core.evaluation_results import FEWEST_CASES, GateAnswer, GateResult, GateRow, Weighing
from core.figures import Columns, Flags, Floats, Numbers
from evaluation import by_source
from evaluation.by_source import CONFIDENCE, SAMPLES, MeansOfSources
from evaluation.samples import FEWEST_OF_STRATUM

VALID, INVALID, NOT_JUDGED = 1, 0, -1
FEW_DRAWS = 10
"""Minimum number of samples in a tail to count them for the p-value. With fewer, Student's t distribution is used."""


@dataclass(frozen=True)
class Compared(Columns):
    """Test cases with the results of two models, column by column; all columns have one length."""

    source: Numbers
    first: Flags
    """True if the old model is wrong on the test case."""
    second: Flags
    """True if the new model is wrong on the test case."""
    judged: Numbers
    """`VALID` or `INVALID` by people's consensus; `NOT_JUDGED` without a consensus."""
    group: Numbers
    """Index in `groups` of each test case's class; -1 for none."""
    groups: Sequence[str]
    """Names of the classes to compare one by one as well; empty to compare only the whole set."""


def gate(compared: Compared, margin: float, weighing: Weighing = "source") -> GateResult:
    """Return whether the new model is worse. `margin` is the allowed rise of the share of valid faults, 0 to 1. The
    whole set has a row, and so has each class with at least `FEWEST_CASES` test cases. The answer is "worse" if any row
    is worse, "no worse" if all rows are no worse, and "cannot tell" otherwise.
    """
    chance = _chance_valid(compared)
    # The random weights of a class's sources are independent of those behind these samples, so shuffle the samples.
    mixed = chance[0], chance[1][np.random.default_rng(3).permutation(SAMPLES)]
    rows = [_row("", compared, np.ones(len(compared), bool), chance, margin, weighing)]
    few = list[str]()
    for number, name in enumerate(compared.groups):
        own = compared.group == number
        if own.sum() >= FEWEST_CASES:
            rows.append(_row(name, compared, own, mixed, margin, weighing))
        elif own.any():
            few.append(name)
    worse = by_source.adjusted(np.array([p for _, p in rows])) <= 1 - CONFIDENCE
    decided = [
        replace(row, answer="worse", needed=None) if is_worse else row
        for (row, _), is_worse in zip(rows, worse.tolist(), strict=True)
    ]
    answer: GateAnswer = "no worse"
    if any(row.answer != "no worse" for row in decided):
        answer = "worse" if worse.any() else "cannot tell"
    differing = compared.first != compared.second
    return GateResult(
        answer=answer,
        margin=margin,
        weighing=weighing,
        rows=tuple(decided),
        few=tuple(few),
        only_first=int((compared.first & differing).sum()),
        only_second=int((compared.second & differing).sum()),
        judged=int((compared.judged != NOT_JUDGED).sum()),
        invalid=int((compared.judged == INVALID).sum()),
        differing_not_judged=int((differing & (compared.judged == NOT_JUDGED)).sum()),
    )


def _chance_valid(compared: Compared) -> tuple[Floats, Floats]:
    """Return two chances, (2,): the chance that a test case is valid if only the old model is wrong on it, and if only
    the new model is wrong on it. Both are 1 if no test case is judged. Also return random samples of the chances,
    (`SAMPLES`, 2). Sample i uses the same random weights of sources as sample i of the errors does.
    """
    if (compared.judged == NOT_JUDGED).all():
        return np.ones(2), np.ones((SAMPLES, 2))
    chances, drawn_chances = np.zeros(2), np.zeros((SAMPLES, 2))
    prior = np.random.default_rng(2).gamma(0.5, size=(2, 2, SAMPLES))
    for one, wrong in enumerate((compared.first & ~compared.second, compared.second & ~compared.first)):
        for own in (wrong, compared.first | compared.second):
            counted = [own & (compared.judged == state) for state in (VALID, INVALID)]
            if (number := sum(int(flags.sum()) for flags in counted)) >= FEWEST_OF_STRATUM:
                break
        shares, _ = by_source.shares_of_sources(counted, compared.source)
        none = np.zeros(2)
        drawn = MeansOfSources(shares, unseen=by_source.Unseen(none, none, np.zeros(2, np.int64))).samples
        mean = shares.mean(axis=0)
        # The prior weighs as much as one judged test case.
        unit = mean.sum() / number if number else 1.0
        chances[one] = (mean[0] + unit / 2) / (mean.sum() + unit)
        with_prior = drawn + unit * prior[one].T
        drawn_chances[:, one] = with_prior[:, 0] / with_prior.sum(axis=1)
    return chances, drawn_chances


def _row(
    name: str, compared: Compared, own: Flags, chance: tuple[Floats, Floats], margin: float, weighing: Weighing
) -> tuple[GateRow, float]:
    """Return the row of `own` test cases, and the p-value of "worse" (NaN if unknown). `gate` later sets "worse"."""
    first, second, judged = compared.first[own], compared.second[own], compared.judged[own]
    counted = [first, second]
    for state in (VALID, NOT_JUDGED):
        counted += [first & ~second & (judged == state), second & ~first & (judged == state)]
    shares, cases = by_source.shares_of_sources(counted, compared.source[own])
    worst, best = np.array([0, 1, 0, 1, 0, 0.0]), np.array([1, 0, 1, 0, 0, 0.0])
    unseen = by_source.Unseen(worst, best, np.zeros(6, np.int64))
    means = MeansOfSources(shares, cases if weighing == "case" else None, unseen)

    def difference(of: Floats, valid: Floats) -> Floats:
        faults = of[..., 2:4] + of[..., 4:] * valid
        return faults[..., 1] - faults[..., 0]

    n, sources = int(own.sum()), len(cases)
    errors = means.figure(lambda of: of[..., 0], n), means.figure(lambda of: of[..., 1], n)
    value = means.figure(lambda of: difference(of, chance[0]), n)
    if value.value is None or sources < by_source.FEWEST_SOURCES:
        return GateRow(name, *errors, value, "cannot tell", None), float("nan")
    drawn = difference(means.samples, chance[1])
    low, high = np.quantile(drawn, [1 - CONFIDENCE, CONFIDENCE], method="closest_observation")
    found = replace(value, low=min(float(low), value.value), high=max(float(high), value.value))
    assert found.low is not None and found.high is not None
    answer: GateAnswer = "no worse" if found.high <= margin else "cannot tell"
    needed = None
    if answer == "cannot tell":
        needed = by_source.needed_sources(sources, abs(margin - value.value), (found.high - found.low) / 2)
    return GateRow(name, *errors, found, answer, needed), _p_value(drawn, value.value, margin, sources)


def _p_value(drawn: Floats, value: float, margin: float, sources: int) -> float:
    """Return the one-sided p-value under the hypothesis that the difference is at most the margin."""
    from scipy import stats

    below = int((drawn <= margin).sum())
    if below >= FEW_DRAWS:
        return below / len(drawn)
    tail = float(stats.t.sf((value - margin) / max(float(drawn.std()), 1e-12), sources - 1))
    return min(tail, FEW_DRAWS / len(drawn))
