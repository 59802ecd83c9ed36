"""Error rates of a model under test on generated images, compared with their sources (the paper's RQ2). Pure.

All figures use one of two weightings. In the first weighting, each source weighs the same: its test cases together have
the source's weight, and so have its reconstructions. In the second weighting, each test case weighs the same: a source
weighs as much as all its test cases, also in figures on originals and reconstructions. Answers that cannot be compared
with the label are left out and reported, never counted as wrong. Two models are compared on the same images, source by
source, so that the difficulty of a source cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core import evaluation_results as results
from core.evaluation_results import FEWEST_CASES, Weighing
from core.figures import Columns, Figure, Floats, Numbers, ratio
from evaluation import by_source
from evaluation.by_source import MeansOfSources
from evaluation.report import TEMPLATES

RIGHT, WRONG, UNKNOWN = 1, 0, -1
BINS = 15
"""Number of bins of equal width for calibration, the comparison of confidence with accuracy (Guo et al. 2017)."""


@dataclass(frozen=True)
class Answers(Columns):
    """A model's answers to images, column by column; all columns have one length."""

    source: Numbers
    """Number of each image's source, from 0."""
    right: NDArray[np.int8]
    """`RIGHT`, `WRONG`, or `UNKNOWN` if the answer cannot be compared with the label."""
    said: Numbers
    """Index of the label that the model predicts, from 0; -1 if the predicted class has no label."""
    confidence: Floats
    """Probability of the predicted label, or of a predicted class that has no label. Values are 0 to 1."""
    way: Numbers | None = None
    """Number of the control set that each image is compared with; -1 for none. None if there is only one set."""

    @property
    def known(self) -> Answers:
        return self.where(self.right != UNKNOWN)


def effectiveness(
    original: Answers,
    generated: Answers,
    reconstructed: Answers | None,
    label: Numbers,
    labels: Sequence[str],
    splits: Sequence[str],
    weighing: Weighing = "source",
) -> results.Effectiveness:
    """Return all figures on the errors of a model. `original` has one answer per source. `label` is each source's index
    in `labels`, and `splits` its data split or "". `weighing` tells if sources or test cases weigh the same.

    A source counts only if its original and at least one test case can be compared with the label. Comparisons with
    reconstructions use only sources and test cases that have one. Raises ValueError for sources of several splits.
    """
    split = by_source.one_split(splits)
    first, cases = original.known, generated.known
    control = reconstructed.known if reconstructed is not None else None
    read = [answers for answers in (original, generated, reconstructed) if answers is not None]
    left_out = sum(int((answers.right == UNKNOWN).sum()) for answers in read)
    both = np.intersect1d(first.source, cases.source)
    first, cases = first.where(np.isin(first.source, both)), cases.where(np.isin(cases.source, both))
    control = control.where(np.isin(control.source, both)) if control is not None else None

    size, wrong = _counts(both, cases)
    all_wrong, none_wrong = int((size == wrong).sum()), int((wrong == 0).sum())
    originals, wrong_originals = _counts(both, first)
    shares = np.column_stack([ratio(wrong_originals, originals), ratio(wrong, size)])
    weights = size if weighing == "case" else np.ones(len(both))
    means, n = MeansOfSources(shares, weights), len(cases)
    compared, weight = cases, None
    if control is not None and cases.way is not None and control.way is not None:
        with_own, weight = by_source.matched(cases.source, cases.way, control.source, control.way)
        compared, control, weight = cases.where(with_own), control.where(weight > 0), weight[weight > 0]
    controls, wrong_controls = _counts(both, control, weight) if control is not None else (np.zeros(len(both)),) * 2
    has_control = controls > 0
    size_beside, wrong_beside = (size, wrong) if compared is cases else _counts(both, compared)
    after_beside = ratio(wrong_beside, size_beside)
    with_control = np.column_stack([shares[:, 0], after_beside, ratio(wrong_controls, controls)])[has_control]
    controlled, n_beside = MeansOfSources(with_control, weights[has_control]), int(size_beside[has_control].sum())

    def of_control(column: int, less: int | None = None, images: int = n_beside) -> Figure:
        if not has_control.any():
            return Figure(None, why=no_control_words(reconstructed))
        return controlled.figure(lambda of: of[..., column] - (0.0 if less is None else of[..., less]), images)

    return results.Effectiveness(
        split=split,
        weighing=weighing,
        sources=len(both),
        cases=n,
        left_out=left_out,
        error_original=means.figure(lambda of: of[..., 0], len(both)),
        error_generated=means.figure(lambda of: of[..., 1], n),
        difference=means.figure(lambda of: of[..., 1] - of[..., 0], n),
        factor=by_source.ratio_of(means, 1, 0, n, "the model is right about every original"),
        controlled=len(with_control),
        error_original_controlled=of_control(0, images=len(with_control)),
        error_generated_controlled=of_control(1),
        error_reconstructed=of_control(2, images=0 if control is None else len(control)),
        excess=of_control(1, less=2),
        flips=_flips(both, first, cases),
        together=results.Together(all_wrong, len(both) - all_wrong - none_wrong, none_wrong),
        clustering=by_source.clustering((cases.right == WRONG).astype(np.float64), cases.source),
        classes=_classes(shares, size, weights, label[both], labels),
        confusion=(_confusion(first, label, labels), _confusion(cases, label, labels)),
        calibration=(calibration(first), calibration(cases)),
    )


def no_control_words(read: Columns | None) -> str:
    """Return why no reconstruction is compared. `read` has the answers to reconstructions; None if none exist."""
    if read is None:
        return "there are no reconstructions of these sources"
    return "no reconstruction of these sources can be compared" if len(read) else "no reconstruction is read yet"


def _counts(sources: Numbers, answers: Answers, weight: Floats | None = None) -> tuple[Floats, Floats]:
    """Return two arrays for `sources`: the number of answers, and of wrong answers, each weighted by `weight`."""
    place = np.searchsorted(sources, answers.source)
    each = np.ones(len(place)) if weight is None else weight
    of_all, wrong = (np.bincount(place, one, len(sources)) for one in (each, each * (answers.right == WRONG)))
    return of_all.astype(np.float64), wrong.astype(np.float64)


def _flips(both: Numbers, first: Answers, cases: Answers) -> results.Flips:
    from scipy import stats

    before = np.full(len(both), UNKNOWN)
    before[np.searchsorted(both, first.source)] = first.right
    before = before[np.searchsorted(both, cases.source)]
    lost = int(((before == RIGHT) & (cases.right == WRONG)).sum())
    gained = int(((before == WRONG) & (cases.right == RIGHT)).sum())
    one_a_source = len(cases) > 0 and len(cases) == len(both)
    p_value = float(stats.binomtest(lost, lost + gained).pvalue) if one_a_source and lost + gained else None
    return results.Flips(lost, gained, len(cases), p_value)


def _classes(
    shares: Floats, size: Floats, weights: Floats, label: Numbers, labels: Sequence[str]
) -> tuple[results.ClassRow, ...]:
    """Return a row for each label that has sources. `shares`, (sources, 2): error rates on originals, on cases."""
    groups = len(labels)
    before, after = shares.T
    of_class = np.bincount(label, weights=size, minlength=groups).astype(np.int64)
    sources = np.bincount(label, minlength=groups)
    wrong_originals, wrong_cases = (
        np.rint(np.bincount(label, weights=wrong, minlength=groups)).astype(np.int64)
        for wrong in (before, after * size)
    )
    original, _ = by_source.means_of_groups(before, weights, label, groups, sources)
    generated, _ = by_source.means_of_groups(after, weights, label, groups, of_class)
    change, p_values = by_source.means_of_groups(after - before, weights, label, groups, of_class, lowest=-1.0)
    p_values[of_class < FEWEST_CASES] = np.nan
    rows = []
    for number, p in enumerate(by_source.adjusted(p_values)):
        figures = original[number], generated[number], change[number]
        if not sources[number]:
            continue
        if of_class[number] < FEWEST_CASES:
            few = f"fewer than {FEWEST_CASES} test cases"
            figures = tuple(Figure(None, n=one.n, sources=one.sources, why=few) for one in figures)  # type: ignore[assignment]
        tested = (None, None) if np.isnan(p) else (float(p_values[number]), float(p))
        n, cases, of_originals, of_cases = (int(of[number]) for of in (sources, of_class, wrong_originals, wrong_cases))
        rows.append(results.ClassRow(labels[number], n, cases, of_originals, of_cases, *figures, *tested))
    return tuple(rows)


def _confusion(answers: Answers, label: Numbers, labels: Sequence[str]) -> results.Confusion:
    rows, other = label[answers.source], len(labels)
    answer = np.where(answers.said < 0, other, answers.said)
    counts = np.zeros((len(labels), len(labels) + 1))
    np.add.at(counts, (rows, answer), 1)
    images = counts.sum(axis=1)
    return results.Confusion(tuple(labels), ratio(counts, images[:, None]), images.astype(np.int64))


def calibration(answers: Answers, bins: int = BINS) -> results.Calibration:
    """Return the expected calibration error over bins of equal width (Naeini et al. 2015), and each bin's figures."""
    place = np.minimum((answers.confidence * bins).astype(int), bins - 1)
    images = np.bincount(place, minlength=bins)
    sure, right = (np.bincount(place, one, bins).astype(float) for one in (answers.confidence, answers.right == RIGHT))
    error = float(np.abs(sure - right).sum() / len(answers)) if len(answers) else None

    def mean(sums: Floats) -> tuple[float | None, ...]:
        return tuple(float(one / of) if of else None for one, of in zip(sums, images, strict=True))

    return results.Calibration(error, mean(sure), mean(right), tuple(images.tolist()))


def paired_difference(
    source: Numbers, first: NDArray[np.int8], second: NDArray[np.int8], weighing: Weighing = "source"
) -> results.PairedDifference:
    """Compare the errors of two models. `first` and `second` hold `RIGHT`, `WRONG` or `UNKNOWN` for each test case.
    Test cases that are `UNKNOWN` for either model are left out.
    """
    known = (first != UNKNOWN) & (second != UNKNOWN)
    wrong = first[known] == WRONG, second[known] == WRONG
    shares, cases = by_source.shares_of_sources(wrong, source[known])
    means = MeansOfSources(shares, cases if weighing == "case" else None)
    n = int(known.sum())
    return results.PairedDifference(
        weighing=weighing,
        first=means.figure(lambda of: of[..., 0], n),
        second=means.figure(lambda of: of[..., 1], n),
        difference=means.figure(lambda of: of[..., 1] - of[..., 0], n),
        only_first=int((wrong[0] > wrong[1]).sum()),
        only_second=int((wrong[1] > wrong[0]).sum()),
        sources=len(cases),
        cases=n,
        left_out=len(source) - n,
    )


def comparison_answer(names: tuple[str, str], found: results.PairedDifference, wrong: str = "is wrong") -> str:
    """Return some sentences on which of two models is better, if that is known. `wrong` is a verb for the error."""
    gap = found.difference
    turned = None
    if gap.value is not None and gap.low is not None and gap.high is not None:
        turned = Figure(-gap.value, -gap.high, -gap.low, gap.n, gap.sources)
    return TEMPLATES.paragraph(
        "comparison.txt", first=names[0], second=names[1], found=found, wrong=wrong, turned=turned
    )
