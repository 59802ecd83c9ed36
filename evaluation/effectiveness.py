"""How often a model under test is wrong on generated images, beside the very same sources (the paper's RQ2). Pure.

Everything is compared by source: an original counts once, its test cases and reconstructions count with it. What a
model says that cannot be compared with the label is left out and told, never counted as wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.evaluation_results import Calibration, ClassRow, Confusion, Effectiveness, Flips, Together
from core.figures import Figure, Floats, ratio
from evaluation.by_source import Resampled, adjusted, clustering, distinct_rows, means_of_groups, one_split

RIGHT, WRONG, UNKNOWN = 1, 0, -1
BINS = 15
"""Of equal width, for the calibration (Guo et al. 2017)."""
FEWEST = 20
"""Images of a row of a table: of fewer no figure is shown."""


@dataclass(frozen=True)
class Answers:
    """What a model says of images, column by column; all columns have one length."""

    source: NDArray[np.int64]
    """The number of the source of each image, from 0."""
    right: NDArray[np.int8]
    """`RIGHT`, `WRONG`, or `UNKNOWN` where it cannot be compared."""
    said: NDArray[np.int64]
    """The number of the class that it names, from 0; -1 for one that is none of the labels."""
    confidence: Floats
    """The probability of that class, 0 to 1."""

    def __len__(self) -> int:
        return len(self.source)

    def where(self, wanted: NDArray[np.bool_]) -> Answers:
        """Those that are wanted."""
        return Answers(self.source[wanted], self.right[wanted], self.said[wanted], self.confidence[wanted])

    @property
    def known(self) -> Answers:
        """Those that can be compared."""
        return self.where(self.right != UNKNOWN)


def effectiveness(
    original: Answers,
    generated: Answers,
    reconstructed: Answers | None,
    label: NDArray[np.int64],
    labels: Sequence[str],
    splits: Sequence[str],
    seed: int = 0,
) -> Effectiveness:
    """All figures. `original` has one answer a source; `label` numbers the label of each source among `labels`, and
    `splits` names the split of each source, or "".

    Only sources count of which the original and a test case can be compared. Raises ValueError for sources of several
    splits.
    """
    split = one_split(splits)
    first, cases = original.known, generated.known
    control = reconstructed.known if reconstructed is not None else None
    left_out = len(original) + len(generated) - len(first) - len(cases)
    if reconstructed is not None and control is not None:
        left_out += len(reconstructed) - len(control)
    both = np.intersect1d(first.source, cases.source)
    first, cases = first.where(np.isin(first.source, both)), cases.where(np.isin(cases.source, both))
    control = control.where(np.isin(control.source, both)) if control is not None and len(control) else None
    sums = _sums(both, first, cases, control)
    n, controls = len(cases), len(control) if control is not None else 0
    with_control = int((sums[:, 4] > 0).sum())
    drawn = Resampled(sums, seed)
    no_control = Figure(None, why="there are no reconstructions of these sources")
    wrong = (cases.right == WRONG).astype(np.float64)
    return Effectiveness(
        split=split,
        sources=len(both),
        cases=n,
        left_out=left_out,
        error_original=drawn.figure(lambda sums: _error(sums, 0), len(both), share=True),
        error_generated=drawn.figure(lambda sums: _error(sums, 2), n, share=True),
        error_reconstructed=drawn.figure(lambda sums: _error(sums, 4), controls, share=True, counted=with_control)
        if with_control
        else no_control,
        difference=drawn.figure(lambda sums: _error(sums, 2) - _error(sums, 0), n),
        excess=drawn.figure(lambda sums: _error(sums, 7) - _error(sums, 4), n, counted=with_control)
        if with_control
        else no_control,
        factor=_factor(sums, drawn, n),
        flips=_flips(both, first, cases, drawn),
        together=_together(sums),
        clustering=clustering(wrong, cases.source),
        classes=_classes(sums, label[both], labels),
        confusion=(_confusion(first, label, labels), _confusion(cases, label, labels)),
        calibration=(calibration(first), calibration(cases)),
    )


def _sums(both: NDArray[np.int64], first: Answers, cases: Answers, control: Answers | None) -> Floats:
    """By source: originals, wrong ones; test cases, wrong ones; reconstructions, wrong ones; test cases that are newly
    wrong less those that are newly right; and the test cases, and wrong ones, of sources with a reconstruction. The
    last three follow from the others, so there are no more kinds of sources for them.
    """
    columns: list[Floats] = []
    for answers in (first, cases, control):
        if answers is None:
            columns += [np.zeros(len(both))] * 2
            continue
        place = np.searchsorted(both, answers.source)
        columns.append(_counted(place, np.ones(len(place)), len(both)))
        columns.append(_counted(place, answers.right == WRONG, len(both)))
    place, lost, gained = _flipped(both, first, cases)
    columns.append(_counted(place, lost.astype(float) - gained, len(both)))
    controlled = columns[4] > 0
    columns += [columns[2] * controlled, columns[3] * controlled]
    return np.stack(columns, axis=1)


def _counted(place: NDArray[np.int64], weights: NDArray[Any], length: int) -> Floats:
    return np.bincount(place, weights=weights, minlength=length).astype(np.float64)


def _error(sums: Floats, images: int) -> Floats:
    """The share of wrong ones among some images, whose number is in the column `images` and they in the next one."""
    return ratio(sums[..., images + 1], sums[..., images])


def _factor(sums: Floats, drawn: Resampled, n: int) -> Figure:
    if len(sums) and not sums[:, 1].any():
        return Figure(None, n=n, sources=len(sums), why="the model is right about every original")
    return drawn.figure(lambda held: ratio(ratio(held[..., 3], held[..., 2]), ratio(held[..., 1], held[..., 0])), n)


def _flipped(
    both: NDArray[np.int64], first: Answers, cases: Answers
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Of each test case the place of its source among `both`, whether it is newly wrong, and whether newly right."""
    before = np.full(len(both), UNKNOWN)
    before[np.searchsorted(both, first.source)] = first.right
    place = np.searchsorted(both, cases.source)
    lost = (before[place] == RIGHT) & (cases.right == WRONG)
    gained = (before[place] == WRONG) & (cases.right == RIGHT)
    return place, lost, gained


def _flips(both: NDArray[np.int64], first: Answers, cases: Answers, drawn: Resampled) -> Flips:
    from scipy import stats

    _, lost, gained = _flipped(both, first, cases)
    net = drawn.figure(lambda held: ratio(held[..., 6], held[..., 2]), len(cases))
    b, c = int(lost.sum()), int(gained.sum())
    alone = len(cases) > 0 and len(cases) == len(both)
    p_value = float(stats.binomtest(b, b + c).pvalue) if alone and b + c else None
    return Flips(b, c, len(cases), net, p_value)


def _together(sums: Floats) -> Together:
    size, wrong = sums[:, 2], sums[:, 3]
    pairs, number = distinct_rows(sums[:, 2:4])
    by_number = tuple((int(m), int(k), int(of)) for (m, k), of in zip(pairs, number, strict=True))
    every, none = int((size == wrong).sum()), int((wrong == 0).sum())
    return Together(every, len(sums) - every - none, none, by_number)


def _classes(sums: Floats, label: NDArray[np.int64], labels: Sequence[str]) -> tuple[ClassRow, ...]:
    images, wrong_images, cases, wrong_cases = sums[:, :4].T
    groups = len(labels)
    of_class = np.bincount(label, weights=cases, minlength=groups).astype(np.int64)
    sources = np.bincount(label, minlength=groups)
    alone = np.ones(len(sums))
    original, _ = means_of_groups(wrong_images / images, alone, label, groups, sources)
    generated, _ = means_of_groups(wrong_cases / cases, cases, label, groups, of_class)
    change, p_values = means_of_groups(wrong_cases / cases - wrong_images / images, alone, label, groups, of_class)
    p_values[of_class < FEWEST] = np.nan
    rows = []
    for number, p in enumerate(adjusted(p_values)):
        held = _share(original[number]), _share(generated[number]), change[number]
        if not sources[number]:
            continue
        if of_class[number] < FEWEST:
            few = f"fewer than {FEWEST} test cases"
            held = tuple(Figure(None, n=one.n, sources=one.sources, why=few) for one in held)  # type: ignore[assignment]
        tested = None if np.isnan(p) else (float(p_values[number]), float(p))
        rows.append(
            ClassRow(labels[number], int(sources[number]), int(of_class[number]), *held, *(tested or (None, None)))
        )
    return tuple(rows)


def _share(found: Figure) -> Figure:
    """With its ends between 0 and 1."""
    if found.low is None or found.high is None:
        return found
    return replace(found, low=max(found.low, 0.0), high=min(found.high, 1.0))


def _confusion(answers: Answers, label: NDArray[np.int64], labels: Sequence[str]) -> Confusion:
    rows, other = label[answers.source], len(labels)
    said = np.where(answers.said < 0, other, answers.said)
    counts = np.zeros((len(labels), len(labels) + 1))
    np.add.at(counts, (rows, said), 1)
    images = counts.sum(axis=1)
    return Confusion(tuple(labels), ratio(counts, images[:, None]), images.astype(np.int64))


def calibration(answers: Answers, bins: int = BINS) -> Calibration:
    """The expected calibration error with bins of equal width (Naeini et al. 2015), and what stands in the bins."""
    place = np.minimum((answers.confidence * bins).astype(int), bins - 1)
    images = _counted(place, np.ones(len(place)), bins)
    sure, right = _counted(place, answers.confidence, bins), _counted(place, answers.right == RIGHT, bins)
    error = float(np.abs(sure - right).sum() / len(answers)) if len(answers) else None

    def mean(sums: Floats) -> tuple[float | None, ...]:
        return tuple(float(one / of) if of else None for one, of in zip(sums, images, strict=True))

    return Calibration(error, mean(sure), mean(right), tuple(int(one) for one in images))
