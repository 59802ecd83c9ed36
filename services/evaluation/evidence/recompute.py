"""Recompute every figure of an evidence bundle from its tables, and compare it with the figure that the studio states.

Run it in the unpacked folder, with Python 3.11 or later, numpy, scipy and pandas:

    python recompute.py

It ends with code 0 if every file has its checksum and every number is equal, and with code 1 otherwise. Two numbers are
equal if their relative difference is at most 0.000000001, since processors round differently.

The tables are in `tables/`, one JSON object a line; `columns.json` explains each column. Nothing here is taken from the
studio's own program: each function states its formula and computes it. Only the order of the random draws is the
studio's. With another order, the ends of intervals would differ by chance.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special, stats

HERE = Path(__file__).resolve().parent
MANIFEST = "manifest.json"
ROLES = ("original", "test case", "reconstruction")
CONFIDENCE = 0.95
ENDS = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
DRAWS = 4000
"""Number of random draws behind an interval."""
MOST_GROUPS = 1000
"""Maximum number of groups into which sources are put. In each draw, a group gets one random weight."""
FEWEST_CASES = 20
"""A class or an edit gets a figure only with at least this number of test cases."""
MOST_ROWS = 200
"""A table of edits with more rows than this leaves out edits with fewer than `FEWEST_CASES` test cases."""
EQUAL = 1e-9
Array = np.ndarray
Record = dict[str, Any]
Rows = Iterator[tuple[str, Record]]


# The bundle


def read(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def table(name: str) -> pd.DataFrame:
    """Read a table of the bundle. It has all its columns even if it has no row."""
    with (HERE / "tables" / f"{name}.jsonl").open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return pd.DataFrame(rows, columns=list(read("columns.json")[name]), dtype=object)


def damaged_files() -> list[str]:
    """Return a sentence for each file that is missing or differs from its checksum in the manifest."""
    problems = []
    for file in read(MANIFEST)["files"]:
        path = HERE / file["name"]
        if not path.is_file():
            problems.append(f"{file['name']} is missing")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]:
            problems.append(f"{file['name']} differs from its checksum")
    return problems


def same(stated: Any, recomputed: Any) -> bool:
    if recomputed is not None and not math.isfinite(recomputed):
        recomputed = None
    if stated is None or recomputed is None:
        return stated is recomputed
    return math.isclose(stated, recomputed, rel_tol=EQUAL, abs_tol=EQUAL * 1e-3)


def figure(value: Any = None, low: Any = None, high: Any = None, **counts: Any) -> Record:
    """Return a figure with its interval. NaN or None means no value. `counts` are more numbers, such as n (images)."""
    return {"value": value, "low": low, "high": high, **counts}


def of_sources(value: float, low: float, high: float, n: int, sources: int) -> Record:
    """Return a figure with an interval over sources. With one source there is no interval, without sources no value."""
    if not sources:
        return figure(n=n, sources=sources)
    if sources < 2 or not math.isfinite(value):
        return figure(value, n=n, sources=sources)
    return figure(value, min(low, value), max(high, value), n=n, sources=sources)


def ratio(part: Any, whole: Any) -> Array:
    """Return part / whole; NaN where `whole` is not above 0."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole > 0)


# Intervals over sources


@cache
def random_weights() -> Array:
    return np.random.default_rng(1).standard_exponential((DRAWS, MOST_GROUPS))


def in_groups(rows: Array, chance: np.random.Generator) -> Array:
    """Return `rows`. More than `MOST_GROUPS` rows are summed up in `MOST_GROUPS` random groups."""
    if len(rows) <= MOST_GROUPS:
        return rows
    begins = np.arange(MOST_GROUPS) * len(rows) // MOST_GROUPS
    return np.add.reduceat(rows[chance.permutation(len(rows))], begins, axis=0)


def weights_of(size: Array, weighing: str) -> Array:
    """Return a weight for each source: its number of test cases `size` if `weighing` is "case", else 1."""
    return size if weighing == "case" else np.ones(len(size))


@dataclass
class SourceMeans:
    """Means over sources, and 4,000 draws of possible true means (Bayesian bootstrap, Rubin 1981).

    In each draw, the weight of each source is multiplied by a random number (exponential, seed 1). An unseen source is
    added. Its weight is a random number (exponential) times a typical weight: the sum of w² / the sum of w, where w are
    the weights of the sources. Its values are `worst` or `best`, with equal chance (seed 0). In a draw, columns with
    the same number in `together` are all `worst` or all `best`. The ends of the 95 % interval are the draws of rank
    2.5 % and 97.5 %.
    """

    values: Array
    weights: Array
    worst: Array | float = 0.0
    best: Array | float = 1.0
    together: Array | None = None

    @cached_property
    def draws(self) -> Array:
        chance = np.random.default_rng(0)
        sums = in_groups(np.column_stack([self.values * self.weights[:, None], self.weights]), chance)
        typical = (self.weights**2).sum() / self.weights.sum()
        rank = chance.permutation(DRAWS)
        of_unseen = -np.log((rank + 0.5) / DRAWS) * typical
        together = np.arange(self.values.shape[1]) if self.together is None else self.together
        coin = chance.integers(0, 2, (int(together.max(initial=-1)) + 1, DRAWS // 2))
        is_best = (rank[:, None] % 2 == 1) ^ (coin[:, rank // 2].T == 1)
        unseen = np.where(is_best[:, together], self.best, self.worst)
        total = random_weights()[:, : len(sums)] @ sums
        return (total[:, :-1] + of_unseen[:, None] * unseen) / (total[:, -1] + of_unseen)[:, None]

    def ends(self, statistic: Callable[[Array], Array]) -> tuple[float, float]:
        low, high = np.quantile(statistic(self.draws), ENDS, method="closest_observation")
        return low, high

    def figure(self, statistic: Callable[[Array], Array], n: int, sources: int | None = None) -> Record:
        """Return `statistic` of the means as a figure with an interval. The figure states `n` images and `sources`."""
        sources = len(self.weights) if sources is None else sources
        if not sources:
            return figure(n=0, sources=0)
        value = float(statistic(self.weights @ self.values / self.weights.sum()))
        low, high = self.ends(statistic) if sources > 1 and math.isfinite(value) else (value, value)
        return of_sources(value, low, high, n, sources)


def means_of_groups(
    values: Array, weights: Array, group: Array, n: Array, lowest: float = 0.0
) -> tuple[list[Record], Array]:
    """Return each group's mean over its sources, with an interval, and the p value of the test that the mean is 0.

    `values` has a value of each source, between `lowest` and 1. `n` is the number of images of each group. Each group
    gets one unseen source with a typical weight. Its value is `lowest` or 1 with equal chance, so it moves the mean and
    adds to the variance. The interval is that of the beta distribution with this mean and variance, wider by (t / z)²
    for few sources (Korn and Graubard 1998).
    """
    place, groups = (values - lowest) / (1 - lowest), len(n)
    sources = np.bincount(group, minlength=groups)
    total = np.bincount(group, weights, groups)
    typical = ratio(np.bincount(group, weights**2, groups), total)
    weighted = np.bincount(group, weights * place, groups)
    with np.errstate(all="ignore"):
        middle = (weighted + typical / 2) / (total + typical)
        squares = np.bincount(group, (weights * (place - middle[group])) ** 2, groups)
        squares = squares + typical**2 * (middle**2 + (1 - middle) ** 2) / 2
        variance = squares / (total + typical) ** 2 * (sources + 1) / (sources + 2)
        tails = stats.norm.ppf(ENDS[1]) / stats.t.ppf(ENDS[1], np.maximum(sources, 1))
        size = (middle * (1 - middle) / variance - 1) * tails**2
        a, b = middle * size, (1 - middle) * size
        low, high = lowest + (1 - lowest) * stats.beta.ppf([[ENDS[0]], [ENDS[1]]], a, b)
        below = stats.beta.cdf(lowest / (lowest - 1), a, b)
    mean = lowest + (1 - lowest) * ratio(weighted, total)
    found = [of_sources(*row) for row in zip(mean, low, high, n, sources, strict=True)]
    return found, np.where(sources < 2, np.nan, 2 * np.minimum(below, 1 - below))


def holm(p_values: Array) -> Array:
    """Return p values corrected for several tests (Holm 1979). The k-th smallest of m values is multiplied by
    m - k + 1. A product below the previous corrected value takes that value; one above 1 becomes 1. NaN stays NaN."""
    corrected = np.full(len(p_values), np.nan)
    known = np.flatnonzero(np.isfinite(p_values))
    order = known[np.argsort(p_values[known])]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def clustering(wrong: Array, source: Any) -> tuple[float | None, float | None, float | None]:
    """Return the intra-class correlation (analysis of variance, Donner 1986), the design effect (Kish 1965), and n /
    design effect. The design effect is 1 + (m - 1) x correlation. m is the number of images of a source, averaged over
    images."""
    _, number, size = np.unique(source, return_inverse=True, return_counts=True)
    sources, n = len(size), len(wrong)
    if sources < 2 or n == sources:
        return (None, 1.0, n) if n == sources > 0 else (None, None, None)
    mean = np.bincount(number, wrong) / size
    between = (size * (mean - wrong.mean()) ** 2).sum() / (sources - 1)
    within = ((wrong - mean[number]) ** 2).sum() / (n - sources)
    usual = (n - (size**2).sum() / n) / (sources - 1)
    spread = between + (usual - 1) * within
    if not spread:
        return None, None, None
    correlation = (between - within) / spread
    effect = 1 + ((size**2).sum() / n - 1) * max(correlation, 0.0)
    return correlation, effect, n / effect


# Errors of a classifier
#
# Answers are rows of images that a model has read. `known`: the answer can be compared with the label. `wrong`: it
# differs.


def shares_by_source(sources: Any, answers: pd.DataFrame, weight: Array | None = None) -> tuple[Array, Array]:
    """Return two sums for each source: its images, and its wrong images. An image counts as its `weight`, else as 1."""
    place = np.searchsorted(sources, answers["source"])
    each = np.ones(len(place)) if weight is None else weight
    return np.bincount(place, each, len(sources)), np.bincount(place, each * answers["wrong"], len(sources))


def matched_controls(cases: pd.DataFrame, control: pd.DataFrame) -> tuple[Array, Array]:
    """Return True for each test case whose control set has a reconstruction of its source. Also return a weight for
    each reconstruction: number of test cases / number of reconstructions, both of the same source and control set.
    """
    own, drawn = (pd.MultiIndex.from_frame(one[["source", "control_set"]]) for one in (cases, control))
    has_control = own.isin(drawn) & (cases["control_set"] >= 0).to_numpy()
    of_cases, of_drawn = (one.value_counts().reindex(drawn, fill_value=0) for one in (own[has_control], drawn))
    return has_control, (of_cases / of_drawn).to_numpy(float)


def errors(answers: Sequence[pd.DataFrame], weighing: str, mixed: bool) -> tuple[Record, pd.DataFrame, pd.DataFrame]:
    """Return the figures on errors by name, then the originals and the test cases that count. A source counts if its
    original and at least one test case can be compared with their label. Answers that cannot be compared are left out,
    never counted as wrong. Sources are weighted as in `weights_of`. `mixed` is True for several control sets.
    """
    left_out = sum(int((~one["known"]).sum()) for one in answers)
    first, cases, control = (one[one["known"]] for one in answers)
    both = np.intersect1d(first["source"], cases["source"])
    first, cases, control = (one[one["source"].isin(both)] for one in (first.sort_values("source"), cases, control))

    size, wrong = shares_by_source(both, cases)
    before = first["wrong"].to_numpy(float)
    weights = weights_of(size, weighing)
    means, n, sources = SourceMeans(np.column_stack([before, wrong / size]), weights), len(cases), len(both)
    found = {
        "error on originals": means.figure(lambda m: m[..., 0], sources),
        "error on generated images": means.figure(lambda m: m[..., 1], n),
        "generated less original": means.figure(lambda m: m[..., 1] - m[..., 0], n),
    }

    def times(m: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.where(m[..., 0] > 0, m[..., 1] / m[..., 0], np.inf)

    found["generated over original"] = factor = means.figure(times, n)
    if sources > 1 and not math.isfinite(factor["value"]):  # no original is wrong: the factor is at least this
        factor["low"] = means.ends(times)[0]

    compared, weight = cases, None
    if mixed:
        has_own, weight = matched_controls(cases, control)
        compared, control, weight = cases[has_own], control[weight > 0], weight[weight > 0]
    controls, wrong_controls = shares_by_source(both, control, weight)
    has_control = controls > 0
    size_beside, wrong_beside = shares_by_source(both, compared)
    shares = np.column_stack([before, ratio(wrong_beside, size_beside), ratio(wrong_controls, controls)])
    with_control = SourceMeans(shares[has_control], weights[has_control])
    n_beside = int(size_beside[has_control].sum())
    statistics: list[tuple[str, Callable[[Array], Array], int]] = [
        ("error on originals, of sources with a reconstruction", lambda m: m[..., 0], int(has_control.sum())),
        ("error on generated images, of sources with a reconstruction", lambda m: m[..., 1], n_beside),
        ("error on reconstructions", lambda m: m[..., 2], len(control)),
        ("generated less reconstructed", lambda m: m[..., 1] - m[..., 2], n_beside),
    ]
    found |= {name: with_control.figure(statistic, images) for name, statistic, images in statistics}

    was_wrong = cases["source"].isin(first["source"][first["wrong"]])
    lost, gained = int((cases["wrong"] & ~was_wrong).sum()), int((~cases["wrong"] & was_wrong).sum())
    all_wrong, none_wrong = int((size == wrong).sum()), int((wrong == 0).sum())
    correlation, effect, effective = clustering(cases["wrong"].to_numpy(float), cases["source"])
    # McNemar's exact test, if each source has one test case: then all images are independent.
    tested = n > 0 and n == sources and lost + gained > 0
    counts = {
        "newly wrong": lost,
        "newly right": gained,
        "sources with a reconstruction": int(has_control.sum()),
        "sources with all test cases wrong": all_wrong,
        "sources with some test cases wrong": sources - all_wrong - none_wrong,
        "sources with no test case wrong": none_wrong,
        "images left out": left_out,
        "intra-class correlation": correlation,
        "design effect": effect,
        "effective number of images": effective,
        "p value of newly wrong against newly right": (stats.binomtest(lost, lost + gained).pvalue if tested else None),
    }
    found |= {name: figure(number, n=n, sources=sources) for name, number in counts.items()}
    return {f"all: {name}": one for name, one in found.items()}, first, cases


def classes(first: pd.DataFrame, cases: pd.DataFrame, labels: Sequence[str], weighing: str) -> Rows:
    """Yield for each class its error on originals and on test cases, their difference, and its corrected p value."""
    label = np.array([labels.index(one) for one in first["label"]], np.int64)
    size, wrong = shares_by_source(first["source"], cases)
    before, after, weights = first["wrong"].to_numpy(float), wrong / size, weights_of(size, weighing)
    sources = np.bincount(label, minlength=len(labels))
    images = np.bincount(label, size, len(labels)).astype(int)
    original, _ = means_of_groups(before, weights, label, sources)
    generated, _ = means_of_groups(after, weights, label, images)
    change, p_values = means_of_groups(after - before, weights, label, images, -1.0)
    corrected = holm(np.where(images < FEWEST_CASES, np.nan, p_values))
    for at in np.flatnonzero(sources).tolist():
        name, sizes = f"classes: {labels[at]}", {"n": images[at], "sources": sources[at]}
        few = figure() if images[at] < FEWEST_CASES else {}
        yield f"{name}: error on originals", original[at] | few
        yield f"{name}: error on generated images", generated[at] | few
        yield f"{name}: generated less original", change[at] | few
        yield f"{name}: originals wrong", figure(before[label == at].sum(), **sizes)
        yield f"{name}: test cases wrong", figure(wrong[label == at].sum(), **sizes)
        yield f"{name}: p value, corrected", figure(corrected[at], **sizes)


NO_LABEL = "none of the labels"


def confusion(labels: Sequence[str], before: Array, after: Array) -> Rows:
    """Yield how often each answer is given for each label. `before` is for originals, `after` for generated images: a
    row for each label, a column for each answer, `NO_LABEL` last. A value is a share of the label's images or pixels.
    """
    for at, label in enumerate(labels):
        for one, other, answer in zip(before[at], after[at], (*labels, NO_LABEL), strict=True):
            if one > 0 or other > 0:
                yield f"confusion: {label} taken for {answer}, originals", figure(one)
                yield f"confusion: {label} taken for {answer}, generated images", figure(other)


def answer_shares(answers: pd.DataFrame, labels: Sequence[str]) -> Array:
    """Return the share of each answer among the images with each label, (labels, labels + 1). The last column is for
    answers that are none of the labels; a label without images has NaN.
    """
    shares = pd.crosstab(answers["source_label"], answers["predicted"], normalize="index")
    return shares.reindex(columns=[*labels, ""], fill_value=0.0).reindex(list(labels)).to_numpy(float)


def calibration(answers: pd.DataFrame, what: str) -> Rows:
    """Yield the expected calibration error, which is the mean distance between confidence and accuracy in 15 bins of
    equal width (Naeini et al. 2015), and the figures of each bin. `what` names the images.
    """
    sure = answers["confidence"].to_numpy(float)
    place = np.minimum((sure * 15).astype(int), 14)
    images = np.bincount(place, minlength=15)
    sums, hits = np.bincount(place, sure, 15), np.bincount(place, ~answers["wrong"], 15)
    yield f"calibration: expected error, {what}", figure(ratio(np.abs(sums - hits).sum(), len(answers)))
    for at, n in enumerate(images):
        yield f"calibration: accuracy in bin {at + 1}, {what}", figure(ratio(hits[at], n), n=n)
        yield f"calibration: confidence in bin {at + 1}, {what}", figure(ratio(sums[at], n), n=n)


def edit_tables(
    cases: pd.DataFrame,
    edits: pd.DataFrame,
    change: Array,
    newly_wrong: Array,
    labels: Sequence[str] | None,
    weighing: str,
) -> Rows:
    """Yield the rows of the tables of edits, such as one for each keyword: the mean change of the true class's
    probability, averaged within each source first. For a segmenter (no `labels`), it is the change of the share of
    right pixels. `change` is measured from the source's reconstruction, or from the original if no test case has a
    reconstruction. P values are corrected over the rows of a table.
    """
    at = edits["image"].map({image: place for place, image in enumerate(cases["image"])})
    names = ("edit type", "keyword", "alternative")
    tables: dict[str, tuple[Any, Any]] = {name: (at, edits[name.replace(" ", "_")]) for name in names}
    what = "the share of right pixels"
    if labels is not None:
        tables["class"] = (range(len(cases)), cases["label"].where(cases["label"].isin(labels), ""))
        what = "the probability of the true class"
    for name, (place, value) in tables.items():
        rows = pd.DataFrame({"case": place, "value": value}).astype({"case": int})
        rows = rows[rows["value"] != ""]
        sizes = rows["value"].value_counts()
        if len(sizes) > MOST_ROWS:
            rows = rows[rows["value"].map(sizes) >= FEWEST_CASES]
        rows = rows.drop_duplicates()
        rows = rows[np.isfinite(change[rows["case"]])]
        if not len(rows):
            continue
        case = rows["case"].to_numpy()
        rows = rows.assign(change=change[case], newly=newly_wrong[case], source=cases["source"].to_numpy()[case])
        cells = rows.groupby(["value", "source"]).agg(
            change=("change", "mean"), newly=("newly", "sum"), size=("case", "size")
        )
        values, group = cells.index.levels[0], cells.index.codes[0]
        size, newly = cells["size"].to_numpy(float), cells["newly"].to_numpy(float)
        n = np.bincount(group, size).astype(int)
        weights = weights_of(size, weighing)
        means, p_values = means_of_groups(cells["change"].to_numpy(float), weights, group, n, -1.0)
        corrected = holm(np.where(n < FEWEST_CASES, np.nan, p_values))
        share = np.bincount(group, weights * newly / size) / np.bincount(group, weights)
        number = np.bincount(group, newly)
        for row, value in enumerate(values):
            few, totals = n[row] < FEWEST_CASES, {"n": n[row], "sources": means[row]["sources"]}
            yield f"{name}: {value}: change of {what}", figure(**totals) if few else means[row]
            yield f"{name}: {value}: newly wrong", figure(None if few else share[row], **totals)
            yield f"{name}: {value}: newly wrong test cases", figure(number[row], **totals)
            yield f"{name}: {value}: p value, corrected", figure(corrected[row], **totals)


# A segmenter
#
# Pixels are rows of images that a segmenter has read. `counts` are numbers of pixels by true and predicted class,
# (classes, classes + 1). The last column is for predictions of no class of the masks.

LOST = 0.15
"""Threshold in IoU. A class with at least this IoU is found. It is lost if its IoU falls by at least as much."""


def counts_of(pixels: pd.DataFrame, classes: int) -> Array:
    """Return the number of pixels by true and predicted class, (images, classes, classes + 1)."""
    return np.array(pixels["counts"].tolist(), float).reshape(len(pixels), classes, classes + 1)


def overlaps(counts: Array) -> Array:
    """Return the pixels in both mask and prediction, then those in either, for each class: (images, 2 x classes)."""
    hit = np.diagonal(counts, axis1=1, axis2=2)
    return np.concatenate([hit, counts.sum(axis=2) + counts.sum(axis=1)[:, :-1] - hit], axis=1)


def ious(counts: Array, groups: Sequence[Sequence[int]]) -> Array:
    """Return IoUs (images, classes). `groups` has each class's rows in `counts`. NaN if the mask lacks the class."""
    found = np.full((len(counts), len(groups)), np.nan)
    for at, own in enumerate(groups):
        here = counts[:, own].sum(axis=(1, 2))
        hit = counts[:, own][:, :, own].sum(axis=(1, 2))
        both = here + counts[:, :, own].sum(axis=(1, 2)) - hit
        found[:, at] = np.where(here > 0, ratio(hit, both), np.nan)
    return found


def mean_iou(overlaps: Array) -> Array:
    """Return the mean IoU over the classes that occur in mask or prediction. The argument comes from `overlaps`."""
    hit, union = np.split(overlaps, 2, axis=-1)
    return ratio(np.nan_to_num(ratio(hit, union)).sum(axis=-1), (union > 0).sum(axis=-1))


def pixel_figures(pixels: Sequence[pd.DataFrame], weighing: str, mixed: bool, names: Sequence[str]) -> Rows:
    """Yield mIoU and IoU, from one matrix of all pixels in which each source, or each test case, has equal weight. The
    intervals assume one more, unseen source. In each set of images, such as the originals, the unseen source's pixels
    are all right or all wrong. Its number of pixels of a class is a weighted mean over the sources.
    """
    both = np.intersect1d(pixels[0]["source"], pixels[1]["source"])
    first, cases, control = (one[one["source"].isin(both)] for one in pixels)
    has_own, weight = cases["source"].isin(control["source"]).to_numpy(), np.ones(len(control))
    if mixed:
        has_own, weight = matched_controls(cases, control)
        control, weight = control[weight > 0], weight[weight > 0]
    sets = {"original": first, "generated": cases, "kept": cases[cases["mask_holds"].astype(bool)]}
    if len(control):
        sets["control"] = control
        matched = first[first["source"].isin(control["source"])], cases[has_own]
        if len(matched[0]) < len(first) or len(matched[1]) < len(cases):  # else they equal the full sets
            sets["original beside"], sets["generated beside"] = matched
    cases_of = np.bincount(cases["source"], minlength=int(both.max(initial=-1)) + 1).astype(float)

    def weights(name: str) -> Array:
        source = sets[name]["source"].to_numpy()
        own = weight if name == "control" else np.ones(len(source))
        alike = np.bincount(source, own)[source] / own if len(source) else own
        if weighing == "source":
            return 1 / alike
        return np.ones(len(source)) if name == "kept" else cases_of[source] / alike

    of_source, width = weights_of(cases_of[both], weighing), 2 * len(names)
    sums = []
    for name, one in sets.items():
        total = np.zeros((len(both), width))
        place = np.searchsorted(both, one["source"])
        np.add.at(total, place, weights(name)[:, None] * overlaps(counts_of(one, len(names))))
        sums.append(total)
    area = np.concatenate([np.nan_to_num(ratio((one**2 / of_source[:, None]).sum(0), one.sum(0))) for one in sums])
    is_union = np.tile(np.arange(width) >= len(names), len(sets))
    best = np.where(is_union, area, np.roll(area, -len(names)))
    means = SourceMeans(
        np.concatenate(sums, axis=1) / of_source[:, None],
        of_source,
        worst=np.where(is_union, best, 0.0),
        best=best,
        together=np.repeat(np.arange(len(sets)), width),
    )
    begins = {name: at * width for at, name in enumerate(sets)}

    def miou(m: Array, name: str) -> Array:
        return mean_iou(m[..., begins[name] : begins[name] + width])

    def of(name: str, less: str = "") -> Record:
        if "control" not in sets and (name == "control" or name.endswith(" beside")):
            return figure(n=0, sources=0)
        name = name if name in sets else name.removesuffix(" beside")
        own = sets[name]
        return means.figure(
            lambda m: miou(m, name) - (miou(m, less) if less else 0.0), len(own), own["source"].nunique()
        )

    yield "all: mIoU on originals", of("original")
    yield "all: mIoU on generated images", of("generated")
    yield "all: generated less original", of("generated", "original")
    yield "all: mIoU on originals, of sources with a reconstruction", of("original beside")
    yield "all: mIoU on generated images, of sources with a reconstruction", of("generated beside")
    yield "all: mIoU on reconstructions", of("control")
    yield "all: generated less reconstructed", of("generated beside", "control")
    yield "all: mIoU on generated images whose mask holds", of("kept")

    shares = []
    for what, name in (("originals", "original"), ("generated images", "generated"), ("reconstructions", "control")):
        matrix = np.full((len(names), len(names) + 1), np.nan)
        if name in sets:
            matrix = np.tensordot(weights(name), counts_of(sets[name], len(names)), 1)
        hit, there = np.diagonal(matrix), matrix.sum(axis=1)
        values = {"IoU": ratio(hit, there + matrix.sum(axis=0)[:-1] - hit), "pixel accuracy": ratio(hit, there)}
        if name == "control":
            del values["pixel accuracy"]
        for kind, of_class in values.items():
            for label, value in zip(names, of_class, strict=True):
                yield f"classes: {label}: {kind} on {what}", figure(value, n=len(cases), sources=len(both))
        shares.append(ratio(matrix, there[:, None]))
    yield from confusion(names, *shares[:2])


LOSS_NAMES = {
    "error on originals": "originals on which it misses a protected class",
    "error on generated images": "generated images on which it loses a class",
    "error on generated images, of sources with a reconstruction": (
        "generated images on which it loses a class, of sources with a reconstruction"
    ),
    "error on reconstructions": "reconstructions on which it loses a class",
    "generated less reconstructed": "loses a class, generated less reconstructed",
    "newly wrong": "test cases that lose a class, if their original has all classes found",
    "sources with all test cases wrong": "sources with all test cases losing a class",
    "sources with some test cases wrong": "sources with some test cases losing a class",
    "sources with no test case wrong": "sources with no test case losing a class",
    "intra-class correlation": "intra-class correlation",
    "design effect": "design effect",
    "effective number of images": "effective number of images",
}
"""Names of the figures of `errors` for a segmenter. Its error is an image on which it loses a class."""


# Faults that are valid


INVALID, VALID, HARD = 0, 1, 2


def worker_states(ballots: pd.DataFrame, images: Array, pool: Array, fixed: Array, votes_of_an_image: float) -> Array:
    """Return random draws of each judged image's state, (draws, images): invalid, valid, or hard (its votes are
    random).

    The model is that of Dawid and Skene (1979), fitted by Gibbs sampling (seed 0). Control items are images of known
    truth. Each step draws, in turn, each worker's rates of right answers (beta), the population of workers (a grid of
    beta distributions), the share of each state in each pool of images (gamma), and the state of each image. `fixed` is
    the known state of an image whose votes are not used, else -1."""
    chance = np.random.default_rng(0)
    control, own = ballots[ballots["known"] >= 0], ballots[(ballots["known"] < 0) & ballots["image"].isin(images)]
    workers = int(ballots["worker"].max()) + 1 if len(ballots) else 1
    chains = int(np.clip(40_000 // max(len(images), 1), 10, 40))
    states = 3 if votes_of_an_image >= 3 else 2

    (no, yes), (bad, good) = np.zeros((2, len(images), workers)), np.zeros((2, 2, workers))
    for table, votes in ((yes, own[own["valid"]]), (no, own[~own["valid"]])):
        np.add.at(table, (np.searchsorted(images, votes["image"]), votes["worker"]), 1.0)
    is_right = control["valid"] == control["known"]
    for table, votes in ((good, control[is_right]), (bad, control[~is_right])):
        np.add.at(table, (votes["known"], votes["worker"]), 1.0)

    begin = np.nan_to_num(ratio(yes.sum(axis=1), (yes + no).sum(axis=1)), nan=0.5)
    now = (chance.random((chains, len(images))) < begin).astype(np.int8)
    now[:, fixed >= 0] = fixed[fixed >= 0]
    of_pool = (pool[:, None] == np.arange(int(pool.max(initial=0)) + 1)).astype(float)
    middle, alike = np.full((chains, 2), 0.8), np.full((chains, 2), 3.0)
    right = np.full((chains, 2, workers), 0.8)
    prior = np.array([0.5, 0.5, 0.1])[:states, None, None]
    grid_mean, grid_size = np.array([*product(np.linspace(0.525, 0.995, 20), [1.0, 4.0, 20.0, 100.0])]).T
    grid_a, grid_b = grid_mean * grid_size, (1 - grid_mean) * grid_size
    log_grid = special.gammaln(grid_size) - special.gammaln(grid_a) - special.gammaln(grid_b)
    draws = []
    for step in range(55):
        is_state = [(now == one).astype(float) for one in (INVALID, VALID, HARD)]
        said_yes, said_no = ([one @ votes for one in is_state] for votes in (yes, no))
        # On a hard image a coin decides whether the vote was right.
        of_yes = right[:, VALID] / (right[:, VALID] + (1 - right[:, INVALID]))
        of_no = (1 - right[:, VALID]) / ((1 - right[:, VALID]) + right[:, INVALID])
        yes_valid = chance.binomial(said_yes[HARD].astype(np.int64), of_yes)
        no_valid = chance.binomial(said_no[HARD].astype(np.int64), of_no)
        hits = [said_no[INVALID] + said_no[HARD] - no_valid, said_yes[VALID] + yes_valid]
        misses = [said_yes[INVALID] + said_yes[HARD] - yes_valid, said_no[VALID] + no_valid]
        if step == 0 and len(control):  # begin with the rates that the control items show
            hits = misses = [np.zeros((chains, workers))] * 2
        for truth in (INVALID, VALID):
            mean, size = middle[:, truth, None], alike[:, truth, None]
            a = hits[truth] + good[truth] + mean * size
            b = misses[truth] + bad[truth] + (1 - mean) * size
            right[:, truth] = np.clip(chance.beta(a, b), 1e-3, 1 - 1e-3)
        fit = workers * log_grid + np.log(right).sum(axis=-1)[..., None] * grid_a
        fit = fit + np.log1p(-right).sum(axis=-1)[..., None] * grid_b
        drawn = (fit + chance.gumbel(size=fit.shape)).argmax(axis=-1)
        middle, alike = grid_mean[drawn], grid_size[drawn]
        shares = np.stack([one @ of_pool for one in is_state[:states]])
        shares = np.maximum(chance.gamma(shares + prior), 1e-300)
        says_yes = [1 - right[:, INVALID], right[:, VALID]]
        if states == 3:
            says_yes.append((says_yes[INVALID] + says_yes[VALID]) / 2)
        logs = np.stack([np.log(one) @ yes.T + np.log1p(-one) @ no.T for one in says_yes])
        logs = logs + np.log(shares)[:, :, pool]
        steps = np.exp(logs - logs.max(axis=0)).cumsum(axis=0)
        now = (chance.random(now.shape) * steps[-1] > steps[:-1]).sum(axis=0).astype(np.int8)
        now[:, fixed >= 0] = fixed[fixed >= 0]
        if step >= 30:
            draws.append(now)
    return np.concatenate(draws)


def looks_random(images: Array, judged: Array) -> bool:
    """Return True if the judged images may be a random sample. `images` and `judged` are numbers of images by group.
    Pearson's statistic, and the number of images in groups without a judged image, are compared with those of 2,000
    random samples (seed 0). For each statistic, at least 1 in 200 samples must have an equal or higher value."""
    images, judged = images[images > 0], judged[images > 0]
    if len(images) == 1:
        return True
    samples = np.random.default_rng(0).multivariate_hypergeometric(images, int(judged.sum()), 2000, "marginals")
    samples = np.vstack([judged, samples])
    expected = images * judged.sum() / images.sum()
    distances = ((samples - expected) ** 2 / expected).sum(axis=1), (samples == 0) @ images
    return all((far >= far[0] * (1 - 1e-9)).mean() >= 0.005 for far in distances)


def pools_of(images: Array, judged: Array) -> tuple[Array, Array]:
    """Return each cell's pool, and the weight of each cell's judged images. A cell is a group of images.

    A cell with at least 5 judged images, or with only judged images, is a pool. The other judged cells form one common
    pool. If the judged images do not look like a random sample, an unjudged cell has the pool -1. If they look random,
    unjudged cells join the common pool. While the common pool has fewer than 5 judged images, the pool with the fewest
    judged images joins it.
    """
    number, raised = np.full(len(images), -1), np.ones(len(images))
    if not judged.any():
        return number, raised
    own = (judged > 0) & (judged >= np.minimum(images, 5))
    few = (images > 0) & ~own
    if few.any() and looks_random(images, judged):
        for place in np.argsort(np.where(own, judged, judged.max() + 1), kind="stable"):
            if judged[few].sum() >= 5 or not own.any():
                break
            own[place], few[place] = False, True
    else:
        few &= judged > 0
        raised[few] = images[few] / judged[few]
    number[own] = np.arange(int(own.sum()))
    number[few] = int(own.sum())
    return number, raised


def contradiction(judged: pd.DataFrame) -> bool:
    """Return True if two studies A and B contradict each other: more images are valid in A than B allows (p < 0.001). B
    gives v, the upper end of the 99.8 % interval of the valid share among images on which the model is wrong. If the
    model is wrong on a share e of A's images, B allows a valid share of at most 1 - e (1 - v) in A.
    """
    decided = judged[judged["decided"]]
    for (one, own), (other, rest) in product(decided.groupby("study"), decided[decided["wrong"]].groupby("study")):
        test = stats.binomtest(int(rest["valid"].sum()), len(rest))
        most = 1 - own["wrong"].mean() * (1 - test.proportion_ci(1 - 2 * 0.001).high)
        if one != other and stats.binom.sf(own["valid"].sum() - 1, len(own), most) < 0.001:
            return True
    return False


def pools_of_cells(images: Array, judged: Array) -> tuple[Array, Array, Array]:
    """Return three arrays. For each cell: its pool (-1 if unknown), and the weight of its judged images. For each pool:
    True if the model is wrong on its images. Cells are in pairs: a stratum's right images, then its wrong images.
    """
    pool, raised, is_wrong = np.full(len(images), -1), np.ones(len(images)), list[bool]()
    for kind in (True, False):
        own = np.arange(int(kind), len(images), 2)
        number, raised[own] = pools_of(images[own], judged[own])
        pool[own] = np.where(number >= 0, number + len(is_wrong), -1)
        is_wrong += [kind] * (int(number.max(initial=-1)) + 1)
    return pool, raised, np.array(is_wrong, bool)


@dataclass
class JudgedImages:
    """Images that people judged, in pools. Images of a pool are assumed to be valid with the same chance."""

    place: Array
    """Row of each image among all test cases."""
    pool: Array
    weight: Array
    source: Array
    score: Array
    pool_is_wrong: Array
    """One flag for each pool: True if the model is wrong on the pool's images."""

    @property
    def is_wrong(self) -> Array:
        return self.pool_is_wrong[self.pool]

    @property
    def in_pool(self) -> Array:
        return (self.pool[:, None] == np.arange(len(self.pool_is_wrong))).astype(float)

    def shares(self, values: Array) -> Array:
        """Return the weighted mean of `values` over the images of each pool; NaN for a pool without images."""
        return ratio((values * self.weight) @ self.in_pool, self.weight @ self.in_pool)


def states_of(judged: pd.DataFrame, ballots: pd.DataFrame, images: JudgedImages) -> tuple[Array, Array]:
    """Return random states of judged images (invalid, valid or hard), shape (draws, images), and each image's chance of
    being valid. The consensus is the only draw if no control item exists and images have under 3 votes.
    """
    valid, decided = judged["valid"].to_numpy(bool), judged["decided"].to_numpy(bool)
    consensus = np.where(valid, VALID, np.where(decided, INVALID, HARD))[images.place]
    votes = ballots["image"][ballots["known"] < 0].value_counts().median() if (ballots["known"] < 0).any() else 0.0
    if (ballots["known"] >= 0).any() or votes >= 3:
        settled = ~np.isin(images.place, ballots["image"]) | judged["adjudicated"].to_numpy(bool)[images.place]
        fixed = np.where(settled, consensus, -1)
        states = worker_states(ballots, images.place, images.pool, fixed, votes)
    else:
        states = consensus[None].astype(np.int8)
    is_valid, is_hard = (states == VALID).mean(axis=0), (states == HARD).mean(axis=0)
    share = np.full(len(images.pool_is_wrong), 0.5)
    if len(states) == 1:
        known = ((1 - is_hard) * images.weight) @ images.in_pool
        share = np.nan_to_num(ratio((is_valid * images.weight) @ images.in_pool, known), nan=0.5)
    return states, is_valid + is_hard * share[images.pool]


def weight_of_score(images: JudgedImages, chance_valid: Array, mass: Array, sizes: Array) -> float | None:
    """Return the weight of the score, 0 to 1, that makes the interval shortest (PPI++): the covariance of score and
    votes, divided by the variance of the score. It is computed from judged images on which the model is wrong. None if
    there are fewer than 50 such images. `mass` is the weight of each pool, `sizes` its number of images.
    """
    if images.is_wrong.sum() < 50:
        return None
    above = below = 0.0
    for one in np.flatnonzero(images.pool_is_wrong):
        own = images.pool == one
        if own.sum() > 1:
            spread = np.cov(images.score[own], chance_valid[own], aweights=images.weight[own])
            above += mass[one] ** 2 / own.sum() * spread[0, 1]
            below += mass[one] ** 2 / own.sum() * spread[0, 0] * (1 + own.sum() / sizes[one])
    return float(np.clip(above / below, 0.0, 1.0)) if below > 0 else 0.0


def drawn_shares(
    images: JudgedImages, states: Array, masses: Array, typical: float, score_weight: float
) -> tuple[Array, ...]:
    """Return 4,000 draws (seed 0) of seven shares. 1 (low) and 2 (high): valid images that the model gets wrong, among
    all images. 3 (low) and 4 (high): shares 1 and 2, corrected by the score. 5: the share of wrong images, times the
    share of valid images among the wrong images that people decided on. 6 (low) and 7 (high): wrong images among valid
    images. Images of unknown validity make low shares as low as possible, and high shares as high as possible.

    `masses` has a row for each source. Its columns: the weight in each pool of `images`; the weight of wrong images of
    unknown validity; the weight of right images of unknown validity; the scores in each pool; the whole weight. Each
    draw adds one unseen source of random weight. The mean of this weight is `typical`.
    """
    of_wrong, in_pool, mass = images.pool_is_wrong, images.in_pool, masses.mean(axis=0)
    pools, chance = len(of_wrong), np.random.default_rng(0)
    own_sources, place = np.unique(images.source, return_inverse=True)
    own_mass = masses[own_sources]
    others = in_groups(np.delete(masses, own_sources, axis=0), chance)
    others = random_weights()[:, : len(others)] @ others
    judged_sources = np.array([len(np.unique(place[images.pool == one])) for one in range(pools)])
    one_more = ratio(images.weight @ in_pool, judged_sources)
    wrong_places = place[images.is_wrong]
    plain_more = len(wrong_places) / max(len(np.unique(wrong_places)), 1)
    # One unseen source: all its images are right, or all are wrong.
    unseen = []
    for kind in (False, True):
        part = np.where(np.append(of_wrong, [True, False]) == kind, mass[: pools + 2], 0.0)
        if not part.any():
            part[pools if kind else pools + 1] = 1.0
        part /= part.sum()
        unseen.append([*part, *(part[:pools] * np.nan_to_num(ratio(mass[pools + 2 : -1], mass[:pools]))), 1.0])
    drawn = []
    for begin in range(0, DRAWS, 100):
        weights = chance.standard_exponential((100, len(own_sources)))
        sums = others[begin : begin + 100] + weights @ own_mass
        more = chance.standard_exponential(100) * typical
        sums += more[:, None] * np.array(unseen)[(chance.random(100) < 0.5).astype(int)]
        shares = sums[:, :-1] / sums[:, -1:]
        mass_of, nothing_known, scored = shares[:, :pools], shares[:, pools : pools + 2], shares[:, pools + 2 :]
        state = states[np.arange(begin, begin + 100) % len(states)]
        votes = weights[:, place] * images.weight
        size = votes @ in_pool
        of_judged = ratio((votes * images.score) @ in_pool, size)
        # What is not known is invalid, then valid.
        good = np.stack([(votes * (state == VALID)) @ in_pool, (votes * (state != INVALID)) @ in_pool])
        for kind in (True, False):
            own = np.flatnonzero(of_wrong == kind)
            if not len(own):
                continue
            # One unseen judged source, divided among the pools by their masses, is valid or not with equal chance. Each
            # pool gets the rest of a full source, which is valid as often as all pools are.
            part = mass[own] / mass[own].sum()
            for is_first, amount in ((True, part), (False, 1 - part)):
                if not (amount > 1e-9).any():
                    continue
                often = np.full((2, 100, 1), 0.5)
                if not is_first:
                    often = (ratio(good[:, :, own], size[:, own]) @ part)[:, :, None]
                added = chance.gamma(np.maximum(amount, 1e-9), size=(100, len(own))) * one_more[own]
                luck = chance.random((100, 1 if is_first else len(own)))
                good[:, :, own] += added * (luck < often)
                size[:, own] += added
        valid = mass_of * ratio(good, size)
        faults, rest = valid[..., of_wrong].sum(axis=-1), valid[..., ~of_wrong].sum(axis=-1)
        faults[1] += nothing_known[:, 0]
        rest[1] += nothing_known[:, 1]
        wrong_of = mass_of[:, of_wrong].sum(axis=1) + nothing_known[:, 0]
        mend = score_weight * np.nan_to_num(scored - mass_of * of_judged)[:, of_wrong].sum(axis=1)
        plain = weights[:, place] * images.is_wrong
        more_judged = chance.standard_exponential(100) * plain_more
        times = ratio(
            (plain * (state == VALID)).sum(axis=1) + more_judged * (chance.random(100) < 0.5),
            (plain * (state != HARD)).sum(axis=1) + more_judged,
        )
        mended, among = np.clip(faults + mend, 0.0, wrong_of), ratio(faults, faults + rest[::-1])
        drawn.append([*faults, *mended, wrong_of * times, *among])
    return tuple(np.concatenate(drawn, axis=1))


def validity(judged: pd.DataFrame, ballots: pd.DataFrame, strata: int, weighing: str, has_score: bool) -> Rows:
    """Yield the figures on wrong images that people found valid, estimated by strata (law of total probability).
    Intervals come from 4,000 draws (seed 0): each gives random weights to sources, adds one unseen source, and draws
    the states of judged images (`worker_states`). If the validity of images is unknown, they count as invalid for
    the lower end, and as valid for the upper end. With `has_score`, votes correct the images' scores
    (prediction-powered inference, Angelopoulos et al. 2023)."""
    wrong, decided = judged["wrong"].to_numpy(bool), judged["decided"].to_numpy(bool)
    without, outside = judged["undecided"].to_numpy(bool) & ~decided, judged["outside"].to_numpy(bool)
    voted = (decided | without) & ~outside
    score = judged["score"].to_numpy(float) if has_score else np.zeros(len(judged))

    # The weight of each image: its share of the weight of its source, which is 1 on average.
    sources, source, sizes = np.unique(judged["source"], return_inverse=True, return_counts=True)
    of_source = weights_of(sizes / sizes.mean(), weighing)
    weight = (of_source / sizes)[source]

    # Cells (a stratum; wrong or right) and pools of cells with one share of valid images.
    cell, cells = 2 * judged["stratum"].to_numpy(np.int64) + wrong, 2 * strata
    asked_of, in_cell = (np.bincount(cell[one], minlength=cells) for one in (voted, ~outside))
    pool, raised, of_wrong = pools_of_cells(in_cell, asked_of)
    pools = len(of_wrong)
    # Nothing is known of images outside of the judged ones.
    pool_of = np.where(outside, -1, pool[cell])
    is_unknown = pool_of < 0
    voters = np.flatnonzero(voted & ~is_unknown)
    asked_weight = weight[voters] * raised[cell[voters]]
    images = JudgedImages(voters, pool_of[voters], asked_weight, source[voters], score[voters], of_wrong)

    # A row for each source: weight in each pool, of unknown wrong and right images, scores in each pool, its weight.
    column = np.where(is_unknown, pools + np.where(wrong, 0, 1), pool_of)

    def by_source(weights: Array) -> Array:
        place = source * (pools + 2) + column
        return np.bincount(place, weights, len(sources) * (pools + 2)).reshape(len(sources), pools + 2)

    masses = np.column_stack([by_source(weight), by_source(weight * score)[:, :pools], of_source])
    mass = masses.mean(axis=0)
    states, chance_valid = states_of(judged, ballots, images)

    both = mass[:pools] * images.shares(chance_valid)
    wrong_share, value = mass[:pools][of_wrong].sum() + mass[pools], both[of_wrong].sum()
    times_valid = wrong_share * chance_valid[images.is_wrong].mean() if images.is_wrong.any() else math.nan
    bounds = [
        (mass[:pools] * images.shares(np.where(without[voters], end, chance_valid)))[of_wrong].sum() + end * mass[pools]
        for end in (0.0, 1.0)
    ]
    sizes_of_pools = np.bincount(column, minlength=pools)
    score_weight = weight_of_score(images, chance_valid, mass, sizes_of_pools) if has_score else None
    correction = (score_weight or 0.0) * (mass[pools + 2 : -1] - mass[:pools] * images.shares(images.score))
    with_score = np.clip(value + correction[of_wrong].sum(), 0.0, wrong_share)
    typical = (of_source**2).sum() / of_source.sum()
    low, high, mended_low, mended_high, times, among_low, among_high = drawn_shares(
        images, states, masses, typical, score_weight or 0.0
    )

    n = {"n": len(judged), "sources": len(sources)}

    def interval(value: float, low: Array, high: Array, is_unknown: bool = False) -> Record:
        value = np.nanmedian(low) if is_unknown else value
        ends = min(np.nanquantile(low, ENDS[0]), value), max(np.nanquantile(high, ENDS[1]), value)
        return figure(None if is_unknown else value, *ends, **n)

    against = contradiction(judged)
    nothing = against or (wrong.any() and not (voted & wrong).any())
    wrong_unknown, right_unknown = ((is_unknown & own).any() for own in (wrong, ~wrong))
    uses_score = not nothing and not wrong_unknown and score_weight is not None
    by_strata = not nothing or (voted.any() and not against)
    among_valid = ratio(both[of_wrong].sum(), both.sum())
    found = {
        "wrong and valid, at least": figure(bounds[0], **n),
        "wrong and valid, at most": figure(bounds[1], **n),
        "judged images without a consensus": figure(ratio(without.sum(), voted.sum()), n=voted.sum(), sources=0),
        "images with a consensus": figure(decided.sum()),
        "judged images without a consensus, number": figure(without.sum()),
        "answers to control items": figure((ballots["known"] >= 0).sum()),
        "weight of the score": figure(None if nothing else score_weight),
    }
    intervals: dict[str, tuple[Any, ...]] = {
        "times the share judged valid": (not nothing, times_valid, times, times),
        "error among valid images": (not nothing, among_valid, among_low, among_high, wrong_unknown or right_unknown),
        "wrong and valid, with the score": (uses_score, with_score, mended_low, mended_high),
        "wrong and valid, by strata": (by_strata, value, low, high, nothing or wrong_unknown),
    }
    for name, (is_known, *numbers) in intervals.items():
        found[name] = interval(*numbers) if is_known else figure(n=len(judged), sources=0)
    yield from ((f"validity: {name}", one) for name, one in found.items())


# A validity study


class Vote:
    """One worker's vote on one item."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.item, self.kind, self.worker = row["item"], row["kind"], row["worker"]
        self.imported = bool(row["imported"])
        self.submitted = datetime.fromisoformat(row["submitted"])
        self.answers: dict[str, str] = {}


class Outcome(NamedTuple):
    """The result of the votes on an item: consensus, no consensus, waiting, or too few votes."""

    status: str
    answer: str
    valid: bool | None
    counts: Mapping[str, int]

    @property
    def word(self) -> str:
        return self.status if self.valid is None else "valid" if self.valid else "invalid"


class Study:
    """The records of one study, with its items and votes in the order in which they came."""

    def __init__(self, about: Mapping[str, Any], items: pd.DataFrame, votes: pd.DataFrame) -> None:
        self.name, self.rules, self.closed = about["name"], about["rules"], about["state"] == "closed"
        self.history, self.adjudications = about["history"], about["adjudications"]
        self.workers, self.same_browser = about["workers"], about["same_browser"]
        self.excluded = {one["worker"] for one in about["exclusions"]}
        own = items[items["study"] == about["study"]]
        self.items: dict[str, Any] = {row["item"]: row for row in own.to_dict("records")}
        by_number: dict[int, Vote] = {}
        for row in votes[votes["study"] == about["study"]].to_dict("records"):  # one row for each question
            vote = by_number.setdefault(row["vote"], Vote(row))
            if row["answer"]:
                vote.answers[row["question"]] = row["answer"]
        self.votes = list(by_number.values())
        self.questions = self.rules["questions"]

    def of(self, kind: str) -> list[Vote]:
        return [vote for vote in self.votes if vote.kind == kind and vote.item in self.items]

    @property
    def images(self) -> list[Record]:
        return [item for item in self.items.values() if item["kind"] == "item"]


def answers_to(question: Mapping[str, Any]) -> list[str]:
    """Return the possible answers to a question, in order."""
    return {"yes-no": ["yes", "no"], "scale": ["1", "2", "3", "4", "5"]}.get(question["kind"], question["options"])


def concerns(question: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
    """Return True if a question applies to an item: it is about all items, or about a class that the item shows."""
    shown = {name.casefold() for name in item["classes"]}
    return not question["only_with"] or question["only_with"].casefold() in shown


def counted_votes(votes: Iterable[Vote], needed: int, excluded: set[str]) -> dict[str, list[Vote]]:
    """Return the first votes on each item, at most `needed`, one per worker. Votes of excluded workers are skipped."""
    found: dict[str, list[Vote]] = {}
    for vote in votes:
        if vote.kind == "item" and vote.worker not in excluded:
            own = found.setdefault(vote.item, [])
            if len(own) < needed and all(vote.worker != other.worker for other in own):
                own.append(vote)
    return found


def outcomes(study: Study, rules: Mapping[str, Any], votes: Mapping[str, Sequence[Vote]]) -> dict[str, dict[str, Any]]:
    """Return the outcome by item and by question, without questions for free text. A consensus needs `votes` votes, and
    `consensus` equal answers among them. An item with fewer votes is waiting, or has too few once the study is closed.
    """
    found: dict[str, dict[str, Any]] = {}
    for item in study.images:
        own, of_item = votes.get(item["item"], []), found.setdefault(item["item"], {})
        for question in rules["questions"]:
            follows, name = question["follows"], question["id"]
            reached = not follows or any(one.answers.get(follows) == question["follows_answer"] for one in own)
            if question["kind"] == "text" or not concerns(question, item) or not reached:
                continue
            counted = Counter(one.answers[name] for one in own if name in one.answers)
            counts = dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))
            best = next(iter(counts), "")
            status = "too few votes" if study.closed else "waiting"
            if len(own) >= rules["votes"]:
                status = "consensus" if best and counts[best] >= rules["consensus"] else "no consensus"
            answer = best if status == "consensus" else ""
            telling = bool(answer and question["valid"])
            of_item[name] = Outcome(status, answer, answer in question["valid"] if telling else None, counts)
    return found


def with_decisions(study: Study, found: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the outcomes with the study lead's answers where the votes reached no consensus."""
    decided = {item: dict(of_item) for item, of_item in found.items()}
    valid = {question["id"]: question["valid"] for question in study.questions}
    for one in study.adjudications:
        before = decided.get(one["item"], {}).get(one["question"])
        if before is not None and before.status != "consensus":
            of_valid = valid[one["question"]]
            is_valid = one["answer"] in of_valid if of_valid else None
            decided[one["item"]][one["question"]] = Outcome("consensus", one["answer"], is_valid, before.counts)
    return decided


WORDS = ("waiting", "invalid", "no consensus", "too few votes", "valid")


def of_images(found: Mapping[str, Mapping[str, Outcome]], questions: Sequence[Any]) -> dict[str, str]:
    """Return one outcome of each item. Among its outcomes on validity (no follow-ups), the first in `WORDS` counts."""
    telling = {one["id"] for one in questions if one["valid"] and not one["follows"]}
    words = {item: [one.word for name, one in own.items() if name in telling] for item, own in found.items()}
    return {item: min(own, key=WORDS.index) for item, own in words.items() if own}


def is_right(study: Study, vote: Vote) -> bool:
    """Return True if a vote has the right answer to each question of its item whose answer is known. A follow-up counts
    only after the answer that leads to it.
    """
    item, shown = study.items[vote.item], list[str]()
    expected = item["expected"]
    answers = vote.answers | expected
    for one in study.questions:
        leads = one["follows"] in shown and answers.get(one["follows"]) == one["follows_answer"]
        if concerns(one, item) and (not one["follows"] or leads):
            shown.append(one["id"])
    pairs = ((vote.answers.get(name, ""), expected[name]) for name in shown if name in expected)
    return all(own.strip().casefold() == right.strip().casefold() for own, right in pairs)


def wilson(count: int, n: int) -> Record:
    """Return count / n with its Wilson score interval (1927): (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)."""
    if not n:
        return figure(count=0, n=0)
    ends = stats.binomtest(count, n).proportion_ci(CONFIDENCE, method="wilson")
    return figure(count / n, ends.low, ends.high, count=count, n=n)


def bootstrap(images: Sequence[Any], seed: int, statistic: Callable[[Array], Array]) -> Record:
    """Return the 95 % percentile interval of `statistic` over 4,000 bootstrap samples of images."""
    kinds = Counter(images)
    shares = np.array(list(kinds.values())) / len(images)
    drawn = np.random.default_rng(abs(seed)).multinomial(len(images), shares, size=DRAWS)
    low, high = np.quantile(statistic(drawn @ np.array(list(kinds), dtype=float)), ENDS)
    return {"low": low, "high": high}


def valid_share(words: Iterable[str]) -> Record:
    """Return the valid share of images with a consensus. Its bounds take undecided images for invalid, or for valid."""
    number = Counter(words)
    valid, of = number["valid"], number["valid"] + number["invalid"]
    missing = number["no consensus"] + number["too few votes"]
    return wilson(valid, of) | {
        "asked": number.total(),
        "discarded": number["no consensus"],
        "too_few": number["too few votes"],
        "waiting": number["waiting"],
        "worst": ratio(valid, of + missing),
        "best": ratio(valid + missing, of + missing),
    }


def agreement(ratings: Sequence[Sequence[str]], answers: Sequence[str], ordered: bool) -> dict[str, Record]:
    """Return the agreement of votes. Raw agreement and alpha leave out items with one vote.

    Raw: the share of equal pairs among the pairs of votes on an item, averaged over items. Krippendorff's alpha: 1 -
    disagreement in pairs of votes on the same item / disagreement in all pairs of votes. AC1 (Gwet 2008) and kappa
    (Fleiss 1971): (raw - chance) / (1 - chance). Chance is sum p (1 - p) / (number of answers - 1) for AC1, and sum p²
    for kappa, where p is an answer's share of the votes on an item, averaged over items. Ordinal alpha weighs a
    disagreement by d². For answers a and b, d is (votes for a + votes for b) / 2 + votes for answers between a and b.
    """
    votes = np.array([[one.count(answer) for answer in answers] for one in ratings], float)
    values = dict.fromkeys(("raw agreement", "Krippendorff's alpha", "Gwet's AC1", "Fleiss' kappa"), math.nan)
    if ordered:
        values["Krippendorff's alpha, ordinal"] = math.nan
    items = votes[votes.sum(axis=1) > 1] if len(votes) else votes
    if len(items):
        size, total = items.sum(axis=1), items.sum(axis=0)
        raw = values["raw agreement"] = ((items * (items - 1)).sum(axis=1) / (size * (size - 1))).mean()
        if np.count_nonzero(total) > 1:
            values["Krippendorff's alpha"] = alpha(items, 1 - np.eye(len(answers)))
            if ordered:
                middle = total.cumsum() - total / 2
                values["Krippendorff's alpha, ordinal"] = alpha(items, (middle[:, None] - middle) ** 2)
        share = (votes / votes.sum(axis=1, keepdims=True)).mean(axis=0)
        if np.count_nonzero(share) > 1:
            values["Fleiss' kappa"] = (raw - (share**2).sum()) / (1 - (share**2).sum())
        if len(answers) > 1:
            chance = (share * (1 - share)).sum() / (len(answers) - 1)
            values["Gwet's AC1"] = (raw - chance) / (1 - chance)
    found = {name: figure(value, n=len(items)) for name, value in values.items()}
    every = Counter(answer for one in ratings for answer in one)
    for answer, number in every.most_common(1):
        found[f"most frequent answer: answer: {answer}"] = figure(number / every.total())
    return found


def alpha(items: Array, distance: Array) -> float:
    total = items.sum(axis=0)
    observed = np.einsum("ia,ib,ab,i", items, items, distance, 1 / (items.sum(axis=1) - 1))
    return 1 - (total.sum() - 1) * observed / (total @ distance @ total)


def dawid_skene(votes: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return the likeliest true answer of each item by Dawid and Skene's model (1979). `votes` are (item, worker,
    answer).

    EM begins with the shares of each item's votes. M: how often each truth occurs, and how often a worker gives each
    answer to each truth. E: the chance of each truth, given the item's votes. It ends when the bound on the likelihood,
    divided by the number of votes, grows by less than 0.00001, or after 100 rounds."""
    columns = [np.unique(column, return_inverse=True) for column in zip(*votes, strict=True)]
    if not votes or min(len(known) for known, _ in columns[1:]) < 2:
        return []
    (items, item), (workers, worker), (answers, answer) = columns
    truth = np.zeros((len(items), len(answers)))
    np.add.at(truth, (item, answer), 1.0)
    truth /= truth.sum(axis=1, keepdims=True)
    used = np.zeros((len(workers), len(answers), 1), bool)
    used[worker, answer] = True

    def maximise() -> tuple[Array, Array]:
        counts = np.zeros((len(workers), len(answers), len(answers)))
        np.add.at(counts, (worker, answer), truth[item])
        counts = np.where(used, np.maximum(counts, 1e-10), 0.0)
        return np.maximum(truth.mean(axis=0), 1e-10), counts / counts.sum(axis=1, keepdims=True)

    bound = -np.inf
    occurs, errors_of = maximise()
    for _ in range(100):
        logs = np.tile(np.log(occurs), (len(items), 1))
        np.add.at(logs, item, np.log(errors_of[worker, answer]))
        truth = special.softmax(logs, axis=1)
        occurs, errors_of = maximise()
        fit = (truth[item] * (np.log(occurs) + np.log(errors_of[worker, answer]))).sum()
        reached = (fit + special.entr(np.maximum(truth, 1e-10)).sum()) / len(votes)
        if reached - bound < 1e-5:
            break
        bound = reached
    return [answers[one] for one in truth.argmax(axis=1)]


NONE = "(none)"


def parts(study: Study, found: Mapping[str, Any], question: str) -> Rows:
    """Yield the share of valid images by class, edit type, sample and verdict of the model under test."""

    def verdict(item: Mapping[str, Any]) -> list[str]:
        if item["model_right"] is None:
            return []
        return [f"{item['model'] or 'model under test'}: {'right' if item['model_right'] else 'wrong'}"]

    ways: dict[str, Callable[[Mapping[str, Any]], list[str]]] = {
        "class": lambda item: [item["label"]] if item["label"] else item["classes"],
        "edit type": lambda item: item["edit_types"],
        "sample": lambda item: [item["group"]],
        "model under test": verdict,
    }
    for part, names in ways.items():
        groups: dict[str, list[str]] = {}
        for item in study.images:
            if item["item"] in found:
                for name in dict.fromkeys(one for one in names(item) if one) or (NONE,):
                    groups.setdefault(name, []).append(found[item["item"]])
        if set(groups) - {NONE}:
            for name, own in groups.items():
                yield named("valid", question, "after exclusions", part, name), valid_share(own)


def named(*words: str) -> str:
    return ": ".join(word for word in words if word)


def study_figures(study: Study) -> Rows:
    """Yield all figures of a study's report."""
    rules, ids = study.rules, [item["item"] for item in study.images]
    cast = [vote for vote in study.of("item") if study.items[vote.item]["kind"] == "item"]
    after = counted_votes(cast, rules["votes"], study.excluded)
    before = counted_votes(cast, rules["votes"], set())
    found, found_before = outcomes(study, rules, after), outcomes(study, rules, before)
    decided = with_decisions(study, found) if study.adjudications else None
    telling = any(one["valid"] for one in study.questions)

    def whole(outcomes_of: Mapping[str, Any], questions: Sequence[Any], used: str) -> tuple[str, Record]:
        return named("valid", used, "all"), valid_share(of_images(outcomes_of, questions).values())

    yield whole(found, study.questions, "after exclusions")
    yield whole(found_before, study.questions, "before exclusions")
    if decided is not None:
        yield whole(decided, study.questions, "with adjudications")
    if len(study.history) > 1 and telling:
        first = study.history[0]["rules"]
        by_first = outcomes(study, first, counted_votes(cast, first["votes"], study.excluded))
        yield whole(by_first, first["questions"], "by the first rules")
    yield from parts(study, of_images(found, study.questions), "")

    def ratings(question: Mapping[str, Any], votes: Mapping[str, Sequence[Vote]]) -> list[list[str]]:
        possible, name = set(answers_to(question)), question["id"]
        answers = ([one.answers.get(name) for one in votes.get(item, [])] for item in ids)
        return [own for all_of in answers if (own := [answer for answer in all_of if answer in possible])]

    def agreed(ratings: Sequence[Sequence[str]], question: Mapping[str, Any], used: str, name: str) -> Rows:
        for figure_name, one in agreement(ratings, answers_to(question), question["kind"] == "scale").items():
            what, _, answer = figure_name.partition(": ")
            yield named(what, name, used, answer or "all"), one

    on_validity = [one for one in study.questions if one["valid"]]
    alike = [one for one in on_validity if answers_to(one) == answers_to(on_validity[0])]
    pooled = [own for one in alike for own in ratings(one, after)]
    yield from agreed(pooled, alike[0] if alike else NO_QUESTION, "after exclusions", "")

    controls = [vote for vote in study.of("control") if study.items[vote.item]["expected"]]
    right = sum(is_right(study, vote) for vote in controls)
    yield named("control items right", "all votes", "all"), wilson(right, len(controls))
    for question in study.questions:
        own = {item: of_item[question["id"]] for item, of_item in found.items() if question["id"] in of_item}
        yield from question_figures(study, question, own, found_before, decided, ratings(question, after), after)
        if question["kind"] != "text":
            for used, votes in (("after exclusions", after), ("before exclusions", before)):
                yield from agreed(ratings(question, votes), question, used, question["id"])
    for _, later in pairwise(study.history):
        since = datetime.fromisoformat(later["since"])
        name = named("change of rules", "all", f"version {later['rules']['version']}")
        yield name, figure(count=sum(vote.submitted < since for vote in cast))
    yield from worker_counts(study, cast, after)


NO_QUESTION = {"kind": "text", "options": []}


def question_figures(
    study: Study,
    question: Mapping[str, Any],
    own: Mapping[str, Any],
    before: Mapping[str, Mapping[str, Any]],
    decided: Mapping[str, Mapping[str, Outcome]] | None,
    ratings: Sequence[Sequence[str]],
    votes: Mapping[str, Sequence[Vote]],
) -> Rows:
    """Yield a question's figures, except agreement. Intervals for votes and ratings are bootstrapped over images."""
    name, seed = question["id"], study.rules["seed"]
    if question["valid"]:
        yield named("valid", name, "after exclusions", "all"), valid_share(one.word for one in own.values())
        earlier = [of_item[name].word for of_item in before.values() if name in of_item]
        yield named("valid", name, "before exclusions", "all"), valid_share(earlier)
        person = {item: of_item[name] for item, of_item in (decided or {}).items() if name in of_item}
        if any(person[item].status != own[item].status for item in person):
            by_lead = valid_share(one.word for one in person.values())
            yield named("valid", name, "with adjudications", "all"), by_lead

        def valid_of(answers: Iterable[str]) -> int:
            return sum(one in question["valid"] for one in answers)

        images = [(valid_of(answers), len(answers)) for answers in ratings]
        good, n = sum(one for one, _ in images), sum(of for _, of in images)
        share = figure(ratio(good, n), count=good, n=n)
        if len({one / of for one, of in images}) > 1:
            share |= bootstrap(images, seed, lambda totals: totals[:, 0] / totals[:, 1])
        yield named("valid votes", name, "after exclusions", "all"), share

        ready = [item for item, one in own.items() if one.counts and one.status != "waiting"]
        best = [Counter(own[item].counts).most_common(2) for item in ready]
        majority = [one[0][0] for one in best if len(one) == 1 or one[0][1] > one[1][1]]
        by_majority = wilson(valid_of(majority), len(majority))
        yield named("valid by majority", name, "after exclusions", "all"), by_majority
        answers = [(one, v.worker, v.answers[name]) for one in ready for v in votes.get(one, []) if name in v.answers]
        labels = dawid_skene(answers)
        by_model = wilson(valid_of(labels), len(labels))
        yield named("valid by Dawid and Skene", name, "after exclusions", "all"), by_model
        yield from parts(study, {item: one.word for item, one in own.items()}, name)
    if question["kind"] == "text":
        return
    agreed = [one.answer for one in own.values() if one.status == "consensus"]
    every = Counter(one for answers in ratings for one in answers)
    for answer in answers_to(question):
        share = wilson(agreed.count(answer), len(agreed))
        yield named("consensus", name, "after exclusions", "answer", answer), share
        yield named("votes", name, "answer", answer), figure(count=every[answer])
    if question["kind"] == "scale":
        values = [sum(map(int, answers)) / len(answers) for answers in ratings]
        mean = figure(np.mean(values) if values else None, n=len(values))
        if len(set(values)) > 1:
            mean |= bootstrap(values, seed, lambda totals: totals / len(values))
        yield named("mean rating", name, "after exclusions", "all"), mean


def worker_counts(study: Study, cast: Sequence[Vote], after: Mapping[str, Sequence[Vote]]) -> Rows:
    """Yield the numbers of images, votes and workers. Workers without enough control items are "not judged"."""
    rules = study.rules
    names = dict.fromkeys([*study.workers, *(vote.worker for vote in study.votes)])
    work = Counter(vote.worker for vote in study.votes if vote.kind in ("item", "control", "quiz"))
    counts = Counter(vote.worker for own in after.values() for vote in own)
    seen = Counter(vote.worker for vote in study.of("control") if study.items[vote.item]["expected"])
    has_controls = rules["controls"]["share"] and any(one["kind"] == "control" for one in study.items.values())
    least = rules["controls"]["min_seen"] if has_controls else 0
    open_ones = [name for name in names if name not in study.excluded and seen[name] < least]
    counted, excluded = counts.total(), sum(vote.worker in study.excluded for vote in cast)
    voted = {vote.worker for vote in study.votes if vote.kind == "item" and not vote.imported}
    groups = [[name for name in group if name in voted] for group in study.same_browser]
    numbers = {
        "images": len(study.images),
        "images with all votes": sum(len(after.get(one["item"], [])) == rules["votes"] for one in study.images),
        "votes cast": len(cast),
        "votes of excluded workers": excluded,
        "votes beyond the number of an image": len(cast) - excluded - counted,
        "votes counted": counted,
        "workers": sum(work[name] > 0 for name in names),
        "workers who have answered nothing": sum(work[name] == 0 for name in names),
        "workers who share a browser": len({name for group in groups if len(group) > 1 for name in group}),
        "workers excluded": len(study.excluded),
        "workers not judged": sum(counts[name] > 0 for name in open_ones),
        "votes of workers not judged": sum(counts[name] for name in open_ones),
    }
    for name, number in numbers.items():
        yield named(name, "all"), figure(count=number)


# From votes to the images of the test set


def outcome_words(study: Study) -> dict[str, str]:
    """Return "valid", "invalid" or why there is no consensus, by item. Items that wait are left out. Where the votes
    reached no consensus, the study lead's decision counts.
    """
    found = outcomes(study, study.rules, counted_votes(study.votes, study.rules["votes"], study.excluded))
    images = of_images(with_decisions(study, found), study.questions)
    return {item: word for item, word in images.items() if word != "waiting"}


def says_valid(questions: Sequence[Any], answers: Mapping[str, str]) -> bool | None:
    verdicts = [answers[one["id"]] in one["valid"] for one in questions if answers.get(one["id"])]
    return all(verdicts) if verdicts else None


def single_votes(study: Study) -> list[tuple[int | None, str, bool, int]]:
    """Return (test case, worker, found valid, known truth) for each vote that counts. For a vote on a test case, the
    known truth is -1. For a vote on a control item, the known truth is 0 or 1, and the test case is None.
    """
    telling = [one for one in study.questions if one["valid"] and not one["follows"]]
    rows: list[tuple[int | None, str, bool, int]] = []
    for item, own in counted_votes(study.votes, study.rules["votes"], study.excluded).items():
        case = study.items[item]["test_case"]
        for vote in own:
            is_valid = says_valid(telling, vote.answers)
            if case is not None and is_valid is not None:
                rows.append((case, vote.worker, is_valid, -1))
    for vote in study.of("control"):
        expected = study.items[vote.item]["expected"]
        questions = [one for one in telling if expected.get(one["id"])]
        truth, is_valid = says_valid(questions, expected), says_valid(questions, vote.answers)
        if vote.worker not in study.excluded and truth is not None and is_valid is not None:
            rows.append((None, vote.worker, is_valid, int(truth)))
    return rows


def judged_images(cases: pd.DataFrame, studies: Mapping[str, Study], items: pd.DataFrame) -> tuple[Any, Any]:
    """Return a table of people's judgements, a row for each test case, and a table of the single votes behind them. If
    several studies judged an image, the last one with a consensus counts.
    """
    words = {name: outcome_words(study) for name, study in studies.items()}
    place = {case: at for at, case in enumerate(cases["test_case"]) if case is not None}
    study_of = [""] * len(cases)
    valid, decided, undecided = (np.zeros(len(cases), bool) for _ in range(3))
    for name, item, case in zip(items["study"], items["item"], items["test_case"], strict=True):
        word = words[name].get(item, "")
        if not word or case not in place:
            continue
        at = place[case]
        if word in ("valid", "invalid"):
            study_of[at], valid[at], decided[at], undecided[at] = name, word == "valid", True, False
        elif word == "no consensus" and not decided[at]:
            study_of[at], undecided[at] = name, True
    rows: list[tuple[int, int, bool, int]] = []
    adjudicated, workers = np.zeros(len(cases), bool), 0
    judging = [name for name in studies if name in study_of]
    for name in judging:
        study, votes = studies[name], single_votes(studies[name])
        number = {worker: workers + at for at, worker in enumerate(dict.fromkeys(vote[1] for vote in votes))}
        workers += len(number)
        for case, worker, is_valid, truth in votes:
            at = place.get(case, -1)
            if truth >= 0 or (at >= 0 and study_of[at] == name):
                rows.append((at if truth < 0 else -1, number[worker], is_valid, truth))
        for one in study.adjudications:
            at = place.get(study.items[one["item"]]["test_case"], -1) if one["item"] in study.items else -1
            if at >= 0 and study_of[at] == name:
                adjudicated[at] = True
    judged = pd.DataFrame({"valid": valid, "decided": decided, "undecided": undecided, "adjudicated": adjudicated})
    judged["study"] = [judging.index(name) if name in judging else -1 for name in study_of]
    ballots = pd.DataFrame(rows, columns=["image", "worker", "valid", "known"])
    return judged, ballots.astype({"image": int, "worker": int, "valid": bool, "known": int})


def strata_of(cases: pd.DataFrame, edits: pd.DataFrame, wrong: Array, types: Sequence[str]) -> tuple[Array, int]:
    """Return each test case's stratum (right or wrong, and its edit type if it has one), and the number of strata."""
    own = (
        edits[edits["edit_type"] != ""].groupby("image")["edit_type"].agg(["first", "nunique"]).reindex(cases["image"])
    )
    single = own["first"].map({name: at for at, name in enumerate(types)})
    kind = np.where(own["nunique"] == 1, single, len(types) + (own["nunique"] > 1))
    used, stratum = np.unique(kind.astype(np.int64) * 2 + wrong, return_inverse=True)
    return stratum, len(used)


def all_of_a_part(part: Array, judged: Array) -> bool:
    """Return True if all judged images are in `part`, and the chance that a random sample is in `part` is below 1 %."""
    n, inside = int(judged.sum()), int(part.sum())
    return bool(n and part[judged].all() and stats.hypergeom.pmf(n, len(part), inside, n) < 0.01)


# All figures


class Bundle:
    """The tables of this bundle."""

    def __init__(self) -> None:
        self.settings = read("settings.json")
        self.images = table("images").astype({"image": int, "source": int, "control_set": int})
        self.edits, self.items = table("edits").astype({"image": int}), table("items")
        self.predictions, self.pixels = (
            table(name).astype({"model": int, "image": int}) for name in ("predictions", "pixels")
        )
        votes = table("votes")
        self.studies = {one["study"]: Study(one, self.items, votes) for one in self.settings["studies"]}
        self.segments, self.weighing = self.settings["task"] == "segmentation", self.settings["weighing"]
        originals = self.images[self.images["role"] == "original"]
        self.images["source_label"] = self.images["source"].map(originals.set_index("source")["label"])
        self.cases = self.images[self.images["role"] == "test case"].reset_index(drop=True)
        self.mixed = self.cases["control_set"].nunique() > 1

    def read_by(self, model: int, rows: pd.DataFrame) -> list[pd.DataFrame]:
        """Return one model's `rows`, joined with the columns of their images, as one table for each role of images."""
        own = rows[rows["model"] == model].merge(self.images, on="image")
        return [own[own["role"] == role] for role in ROLES]

    def answers(self, model: int) -> list[pd.DataFrame]:
        """Return a model's answers, in one table for each role of images. A segmenter is wrong if it loses a class."""
        if self.segments:
            return self.losses(model)
        known = self.predictions["comparable"].astype(bool)
        frames = self.read_by(model, self.predictions.assign(known=known))
        return [frame.assign(wrong=frame["known"] & (frame["predicted"] != frame["label"])) for frame in frames]

    def losses(self, model: int) -> list[pd.DataFrame]:
        """Return a segmenter's answers for originals, test cases and reconstructions. An answer is wrong if a protected
        class is lost. On an original, a class is lost if its IoU is below 0.15. On another image, a class is lost if
        its IoU is at least 0.15 on the original and lower by 0.15 or more on the image. An image that can lose no class
        cannot be compared. `could` flags the classes that can be lost, and `lost` flags the lost classes.
        """
        about = self.settings["models"][model - 1]
        groups, numbers = [one["groups"] for one in about["protected"]], np.arange(len(about["protected"]))
        before = np.full((len(self.images), len(groups)), np.nan)
        of_source = np.zeros(before.shape, bool)
        pixels, found = self.read_by(model, self.pixels), list[pd.DataFrame]()
        for source, own in pixels[1][["source", "protected"]].itertuples(index=False):
            of_source[source, own] = True
        for role, frame in zip(ROLES, pixels, strict=True):
            iou, source = ious(counts_of(frame, len(about["labels"])), groups), frame["source"]
            if role == "original":
                before[source] = iou
                could, lost = of_source[source], iou < LOST
            else:
                protected = np.array([np.isin(numbers, own) for own in frame["protected"]], bool).reshape(iou.shape)
                could, lost = protected & (before[source] >= LOST), before[source] - iou >= LOST
            could = could & np.isfinite(iou)
            lost = could & lost
            frame = frame.assign(known=could.any(axis=1), wrong=lost.any(axis=1), could=list(could), lost=list(lost))
            found.append(frame)
        return found

    def right(self, model: int) -> Array:
        """Return for each test case 1 if right, 0 if wrong, and -1 if it or its original cannot be compared."""
        first, cases, _ = self.answers(model)
        known = cases[cases["known"] & cases["source"].isin(first["source"][first["known"]])]
        right = 1 - known.set_index("image")["wrong"].astype(int)
        return right.reindex(self.cases["image"], fill_value=-1).to_numpy()

    def evaluation(self, model: int) -> Rows:
        """Yield all figures of one model."""
        labels = self.settings["models"][model - 1]["labels"]
        frames = self.answers(model)
        found, first, cases = errors(frames, self.weighing, self.mixed)
        yield from found.items()
        yield from classes(first, cases, labels, self.weighing)
        yield from confusion(labels, answer_shares(first, labels), answer_shares(cases, labels))
        yield from calibration(first, "originals")
        yield from calibration(cases, "generated images")

        wrong = self.cases["image"].isin(frames[1]["image"][frames[1]["wrong"]]).to_numpy()
        was_right = frames[0]["source"][frames[0]["known"] & ~frames[0]["wrong"]]
        newly = wrong & self.cases["source"].isin(was_right).to_numpy()
        change = self.change(frame.assign(figure=frame["true"].astype(float)) for frame in frames)
        yield from edit_tables(self.cases, self.edits, change, newly, labels, self.weighing)
        yield from self.valid_faults(model, wrong, found["all: error on generated images"], "wrong")

    def change(self, frames: Iterable[pd.DataFrame]) -> Array:
        """Return each test case's value in the column `figure`, minus the value before the edit. The value before the
        edit is the mean over the source's reconstructions in the test case's control set, or the original's value if no
        test case has such a reconstruction. `frames` has originals, test cases and reconstructions.
        """
        first, cases, control = frames
        drawn = control[control["control_set"] >= 0].groupby(["source", "control_set"])["figure"].mean()
        before = drawn.reindex(pd.MultiIndex.from_frame(self.cases[["source", "control_set"]])).to_numpy(float)
        if not np.isfinite(before).any():
            before = self.cases["source"].map(first.groupby("source")["figure"].mean()).to_numpy(float)
        return self.cases["image"].map(cases.set_index("image")["figure"]).to_numpy(float) - before

    def valid_faults(self, model: int, wrong: Array, measured: Record, words: str) -> Rows:
        """Yield the figures on valid faults. `wrong` is True for a test case with a fault. `words` name a fault."""
        known = self.right(model) >= 0
        judged, ballots = judged_images(self.cases[known], self.studies, self.items)
        seen = (judged["decided"] | judged["undecided"]).to_numpy(bool)
        if not seen.any():
            return
        stratum, strata = strata_of(self.cases, self.edits, wrong, self.settings["edit_types"])
        accepted = self.cases["accepted"].to_numpy(bool)[known]
        score = self.cases["validity_score"].to_numpy(float)[known]
        judged = judged.assign(source=self.cases["source"].to_numpy()[known], wrong=wrong[known])
        judged = judged.assign(stratum=stratum[known], score=score)
        judged["outside"] = ~accepted if all_of_a_part(accepted, seen) else False
        yield "validity: as measured", measured
        for name, one in validity(judged, ballots, strata, self.weighing, bool(np.isfinite(score).any())):
            error = "error" if words == "wrong" else words
            yield name.replace("wrong and valid", f"{words} and valid").replace("error among", f"{error} among"), one

    def segmentation(self, model: int) -> Rows:
        """Yield all figures of one segmenter."""
        about, pixels, losses = self.settings["models"][model - 1], self.read_by(model, self.pixels), self.losses(model)
        yield from pixel_figures(pixels, self.weighing, self.mixed, about["labels"])
        lost, (found, *_) = losses[1], errors(losses, self.weighing, self.mixed)
        whole = {name: found[f"all: {name}"] for name in LOSS_NAMES}
        yield from ((f"all: {words}", whole[name]) for name, words in LOSS_NAMES.items())
        yield "all: test cases with no class to lose", whole["newly wrong"] | {"value": (~lost["known"]).sum()}
        for name in dict.fromkeys(one["name"] for one in about["protected"]):
            own = [at for at, one in enumerate(about["protected"]) if one["name"] == name]
            could, gone = (
                [sum(one[own].sum() for one in frame[key]) for frame in losses[1:]] for key in ("could", "lost")
            )
            for what, n, number in zip(("generated images", "reconstructions"), could, gone, strict=True):
                if any(could):
                    one = figure(ratio(number, n), n=n, sources=whole["newly wrong"]["sources"])
                    yield f"protected: {name}: lost on {what}", one

        shares = []
        for frame in pixels:
            counts = counts_of(frame, len(about["labels"]))
            hit = np.diagonal(counts, axis1=1, axis2=2).sum(axis=1)
            shares.append(frame.assign(figure=ratio(hit, counts.sum(axis=(1, 2)))))
        wrong = self.cases["image"].isin(lost["image"][lost["wrong"]]).to_numpy()
        for name, one in edit_tables(self.cases, self.edits, self.change(shares), wrong, None, self.weighing):
            yield name, one
            if name.endswith(": newly wrong"):
                yield name.removesuffix("newly wrong") + "loses a class", one
        yield from self.valid_faults(model, wrong, whole["error on generated images"], "loses a class")

    def comparison(self) -> Rows:
        """Yield the comparison of two models, on the test cases for which both have an answer that can be compared."""
        right = np.stack([self.right(1), self.right(2)])
        known = (right >= 0).all(axis=0)
        first, second = right[:, known] == 0
        cases = pd.DataFrame({"first": first, "second": second}).groupby(self.cases["source"].to_numpy()[known])
        means = SourceMeans(cases.mean().to_numpy(float), weights_of(cases.size().to_numpy(float), self.weighing))
        n = int(known.sum())
        yield "error of the first model", means.figure(lambda m: m[..., 0], n)
        yield "error of the second model", means.figure(lambda m: m[..., 1], n)
        yield "second less first", means.figure(lambda m: m[..., 1] - m[..., 0], n)
        sizes = {"n": n, "sources": len(means.weights)}
        yield "test cases that only the first gets wrong", figure((first & ~second).sum(), **sizes)
        yield "test cases that only the second gets wrong", figure((second & ~first).sum(), **sizes)
        yield "test cases left out", figure((~known).sum(), **sizes)

    def figures(self) -> Rows:
        """Yield the name and the numbers of each figure of the bundle."""
        models = self.settings["models"]
        for model in range(1, len(models) + 1):
            rows = self.segmentation(model) if self.segments else self.evaluation(model)
            yield from ((f"model {model}: {name}", one) for name, one in rows)
        if len(models) == 2:
            yield from ((f"models compared: {name}", one) for name, one in self.comparison())
        for number, study in enumerate(self.studies.values(), start=1):
            yield from ((f"study {number}: {name}", one) for name, one in study_figures(study))


NUMBERS = ("value", "low", "high", "n", "sources", "count", "asked", "discarded", "too_few", "waiting", "worst", "best")


def shown(one: Mapping[str, Any]) -> str:
    """Return the names and values of a figure's numbers as text."""
    words = [f"{name} {one[name]:.6g}" for name in NUMBERS if one.get(name) is not None]
    return ", ".join(words) or "none"


def main() -> int:
    problems = damaged_files()
    for problem in problems:
        print(f"DAMAGED: {problem}")
    stated = {one["name"]: one for one in read("figures.json")["figures"]}
    recomputed = dict(Bundle().figures())
    different = 0
    for name in [*stated, *(name for name in recomputed if name not in stated)]:
        one, other = stated.get(name), recomputed.get(name)
        if one is None or other is None:
            words = "not recomputed" if other is None else "not stated"
        else:
            words = "equal" if all(same(one.get(key), other.get(key)) for key in NUMBERS) else "DIFFERENT"
        different += words != "equal"
        print(f"{words} | {name} | {shown(one or {})}" + ("" if words == "equal" else f" | {shown(other or {})}"))
    print(f"{len(stated):,} figures are stated; {different:,} differ.")
    if problems:
        print(f"{len(problems):,} files are not as they were written.")
    return 1 if different or problems else 0


if __name__ == "__main__":
    sys.exit(main())
