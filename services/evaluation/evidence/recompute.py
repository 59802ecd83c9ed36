"""Recompute every figure of an evidence bundle from its tables, and compare it with the figure that the studio states.

Run it in the unpacked folder, with Python 3.11 or later, numpy, scipy and pandas:

    python recompute.py

It ends with code 0 if every file has its checksum and every number is equal, and with code 1 otherwise. Two numbers are
equal if they differ by less than one part in a thousand million, which is what another processor may round differently.

The tables are in `tables/`, one JSON object a line; `columns.json` explains each column. Nothing here is taken from the
studio's own program: each function states its formula and computes it. Only the order of the random draws has to be the
studio's, or else the ends of intervals would differ by chance.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import pairwise, permutations
from pathlib import Path
from statistics import NormalDist
from typing import Any

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
"""Maximum number of groups of sources that get a random weight."""
FEWEST_CASES = 20
"""Minimum number of test cases of a class or an edit that gets a figure."""
MOST_ROWS = 200
"""Maximum number of rows of a table of edits that also lists edits with fewer test cases than that."""
EQUAL = 1e-9
Array = np.ndarray
Record = dict[str, Any]
Rows = Iterator[tuple[str, Record]]


# The bundle


def read(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def table(name: str) -> pd.DataFrame:
    """Return a table, with all its columns even if it has no row."""
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


def figure(value: float | None = None, low: float | None = None, high: float | None = None, **counts: Any) -> Record:
    """Return a figure with its interval. `counts` are whole numbers, such as n, the number of images."""
    return {"value": value, "low": low, "high": high, **counts}


def ratio(part: Any, whole: Any) -> Array:
    """Return part / whole; NaN where `whole` is not above 0."""
    part, whole = np.asarray(part, float), np.asarray(whole, float)
    return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole > 0)


# Intervals over sources


@cache
def random_weights() -> Array:
    return np.random.default_rng(1).standard_exponential((DRAWS, MOST_GROUPS))


def in_groups(rows: Array, chance: np.random.Generator) -> Array:
    """Add up the rows of sources in `MOST_GROUPS` random groups of nearly equal size, if there are more sources."""
    if len(rows) <= MOST_GROUPS:
        return rows
    begins = np.arange(MOST_GROUPS) * len(rows) // MOST_GROUPS
    return np.add.reduceat(rows[chance.permutation(len(rows))], begins, axis=0)


class SourceMeans:
    """Means over sources, and 4,000 draws of what the true means may be (Bayesian bootstrap, Rubin 1981).

    In each draw every source gets a random weight (exponential, seed 1). One more source stands for all unseen ones. It
    weighs as much as the source of a typical image, sum of w² / sum of w, times an exponential weight; each of its
    values is `worst` or `best`, with equal chance (seed 0). Columns with the same number in `together` are worst or
    best together. A 95 % interval goes from the draw of rank 2.5 % to that of rank 97.5 %.
    """

    def __init__(
        self,
        values: Array,
        weights: Array | None = None,
        worst: Array | None = None,
        best: Array | None = None,
        together: Array | None = None,
    ) -> None:
        columns = values.shape[1]
        self.weights = np.ones(len(values)) if weights is None else np.asarray(weights, float)
        self.sums = values * self.weights[:, None]
        self.worst = np.zeros(columns) if worst is None else worst
        self.best = np.ones(columns) if best is None else best
        self.together = np.arange(columns) if together is None else together
        self._draws: Array | None = None

    @property
    def draws(self) -> Array:
        if self._draws is None:
            chance = np.random.default_rng(0)
            sums = in_groups(np.column_stack([self.sums, self.weights]), chance)
            typical = (self.weights**2).sum() / self.weights.sum()
            rank = chance.permutation(DRAWS)
            of_unseen = -np.log((rank + 0.5) / DRAWS) * typical
            coin = chance.integers(0, 2, (int(self.together.max(initial=-1)) + 1, DRAWS // 2))
            is_best = (rank[:, None] % 2 == 1) ^ (coin[:, rank // 2].T == 1)
            unseen = np.where(is_best[:, self.together], self.best, self.worst)
            total = random_weights()[:, : len(sums)] @ sums
            self._draws = (total[:, :-1] + of_unseen[:, None] * unseen) / (total[:, -1] + of_unseen)[:, None]
        return self._draws

    def ends(self, statistic: Callable[[Array], Array]) -> tuple[float, float]:
        low, high = np.quantile(statistic(self.draws), ENDS, method="closest_observation")
        return float(low), float(high)

    def figure(self, statistic: Callable[[Array], Array], n: int, sources: int | None = None) -> Record:
        """Return the figure that `statistic` computes from the means. With one source there is no interval."""
        sources = len(self.weights) if sources is None else sources
        if not sources:
            return figure(n=0, sources=0)
        value = float(statistic(self.sums.sum(axis=0) / self.weights.sum()))
        if not math.isfinite(value):
            return figure(n=n, sources=sources)
        if sources < 2:
            return figure(value, n=n, sources=sources)
        low, high = self.ends(statistic)
        return figure(value, min(low, value), max(high, value), n=n, sources=sources)


def means_of_groups(
    values: Array, weights: Array, group: Array, groups: int, n: Array, lowest: float = 0.0
) -> tuple[list[Record], Array]:
    """Return the mean of each group of sources with an interval, and the p value of the test that the mean is 0.

    A value per source lies between `lowest` and 1. One unseen source, which weighs as a typical one, is at either end
    with equal chance: it moves the mean by half its weight and adds to the variance. The interval is that of the beta
    distribution with this mean and variance, wider by (t / z)² for few sources (Korn and Graubard 1998).
    """
    place = (values - lowest) / (1 - lowest)
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
        ends = lowest + (1 - lowest) * stats.beta.ppf([[ENDS[0]], [ENDS[1]]], a, b)
        below = stats.beta.cdf(lowest / (lowest - 1), a, b)
    mean = lowest + (1 - lowest) * ratio(weighted, total)
    low, high = np.minimum(ends[0], mean), np.maximum(ends[1], mean)
    found = []
    for one in range(groups):
        counts = {"n": int(n[one]), "sources": int(sources[one])}
        if not sources[one]:
            found.append(figure(**counts))
        elif sources[one] < 2:
            found.append(figure(float(mean[one]), **counts))
        else:
            found.append(figure(float(mean[one]), float(low[one]), float(high[one]), **counts))
    return found, np.where(sources < 2, np.nan, 2 * np.minimum(below, 1 - below))


def holm(p_values: Array) -> Array:
    """Return p values corrected for several tests (Holm 1979): the k-th smallest of m times m - k + 1, at least as
    large as the one before, at most 1. NaN is no test."""
    corrected = np.full(len(p_values), np.nan)
    known = np.flatnonzero(np.isfinite(p_values))
    order = known[np.argsort(p_values[known])]
    steps = p_values[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected


def clustering(wrong: Array, source: Array) -> tuple[float | None, float | None, float | None]:
    """Return the intra-class correlation (analysis of variance, Donner 1986), the design effect 1 + (m - 1) x
    correlation with m the mean number of images of an image's source (Kish 1965), and n / design effect.
    """
    _, number, size = np.unique(source, return_inverse=True, return_counts=True)
    sources, n = len(size), len(wrong)
    if sources < 2 or n == sources:
        alone = n == sources and n > 0
        return None, 1.0 if alone else None, float(n) if alone else None
    mean = np.bincount(number, wrong) / size
    between = (size * (mean - wrong.mean()) ** 2).sum() / (sources - 1)
    within = ((wrong - mean[number]) ** 2).sum() / (n - sources)
    usual = (n - (size**2).sum() / n) / (sources - 1)
    spread = between + (usual - 1) * within
    if not spread:
        return None, None, None
    correlation = float((between - within) / spread)
    effect = float(1 + ((size**2).sum() / n - 1) * max(correlation, 0.0))
    return correlation, effect, n / effect


# Errors of a classifier


class Answers:
    """What one model says about the images of one role, image by image, without images that it has not read."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame
        self.source = frame["source"].to_numpy(np.int64)
        self.way = frame["control_set"].to_numpy(np.int64)
        self.known = frame["comparable"].to_numpy(bool)
        self.wrong = self.known & (frame["predicted"] != frame["label"]).to_numpy(bool)

    def where(self, chosen: Any) -> Answers:
        return Answers(self.frame[np.asarray(chosen, bool)])

    def __len__(self) -> int:
        return len(self.source)


def shares_by_source(sources: Array, answers: Answers, weight: Array | None = None) -> tuple[Array, Array]:
    """Return the number of images of each source, and the number of wrong ones, both weighted."""
    place = np.searchsorted(sources, answers.source)
    each = np.ones(len(place)) if weight is None else weight
    return np.bincount(place, each, len(sources)), np.bincount(place, each * answers.wrong, len(sources))


def matched_controls(source: Array, way: Array, control_source: Array, control_way: Array) -> tuple[Array, Array]:
    """Return which test cases have a reconstruction of their source in their own control set, and a weight for each
    reconstruction: together, those of a source and set weigh as much as its test cases of that set.
    """
    pairs = Counter(zip(control_source.tolist(), control_way.tolist(), strict=True))
    own = list(zip(source.tolist(), way.tolist(), strict=True))
    has_control = np.array([kind >= 0 and (one, kind) in pairs for one, kind in own], bool)
    cases = Counter(pair for pair, has in zip(own, has_control, strict=True) if has)
    weight = [cases[pair] / pairs[pair] for pair in zip(control_source.tolist(), control_way.tolist(), strict=True)]
    return has_control, np.array(weight, float)


def errors(first: Answers, cases: Answers, control: Answers | None, weighing: str, mixed: bool) -> tuple[Record, Array]:
    """Return the figures on errors by name, and the sources that count: those whose original and at least one test case
    can be compared with their label. An answer that cannot be compared is left out, never counted as wrong. Each source
    weighs the same, or as much as its test cases.
    """
    left_out = sum(int((~one.known).sum()) for one in (first, cases, control) if one is not None)
    first, cases = first.where(first.known), cases.where(cases.known)
    control = control.where(control.known) if control is not None else None
    both = np.intersect1d(first.source, cases.source)
    first, cases = (one.where(np.isin(one.source, both)) for one in (first, cases))
    control = control.where(np.isin(control.source, both)) if control is not None else None

    size, wrong = shares_by_source(both, cases)
    originals, wrong_originals = shares_by_source(both, first)
    shares = np.column_stack([ratio(wrong_originals, originals), ratio(wrong, size)])
    weights = size if weighing == "case" else np.ones(len(both))
    means, n, sources = SourceMeans(shares, weights), len(cases), len(both)
    found = {
        "error on originals": means.figure(lambda m: m[..., 0], sources),
        "error on generated images": means.figure(lambda m: m[..., 1], n),
        "generated less original": means.figure(lambda m: m[..., 1] - m[..., 0], n),
    }

    def times(m: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.where(m[..., 0] > 0, m[..., 1] / m[..., 0], np.inf)

    factor = means.figure(times, n)
    if factor["value"] is None and factor["sources"] >= 2:  # no original is wrong: at least so many times
        factor["low"] = means.ends(times)[0]
    found["generated over original"] = factor

    compared, weight = cases, None
    if control is not None and mixed:
        has_own, weight = matched_controls(cases.source, cases.way, control.source, control.way)
        compared, control, weight = cases.where(has_own), control.where(weight > 0), weight[weight > 0]
    controls, wrong_controls = np.zeros(sources), np.zeros(sources)
    if control is not None:
        controls, wrong_controls = shares_by_source(both, control, weight)
    has_control = controls > 0
    size_beside, wrong_beside = shares_by_source(both, compared)
    beside = np.column_stack([shares[:, 0], ratio(wrong_beside, size_beside), ratio(wrong_controls, controls)])
    with_control = SourceMeans(beside[has_control], weights[has_control])
    n_beside = int(size_beside[has_control].sum())
    n_controls = 0 if control is None else len(control)
    statistics: list[tuple[str, Callable[[Array], Array], int]] = [
        ("error on originals, of sources with a reconstruction", lambda m: m[..., 0], int(has_control.sum())),
        ("error on generated images, of sources with a reconstruction", lambda m: m[..., 1], n_beside),
        ("error on reconstructions", lambda m: m[..., 2], n_controls),
        ("generated less reconstructed", lambda m: m[..., 1] - m[..., 2], n_beside),
    ]
    for name, statistic, images in statistics:
        found[name] = with_control.figure(statistic, images) if has_control.any() else figure(n=0, sources=0)

    before = dict(zip(first.source.tolist(), first.wrong.tolist(), strict=True))
    was_wrong = np.array([before[one] for one in cases.source.tolist()], bool)
    lost, gained = int((cases.wrong & ~was_wrong).sum()), int((~cases.wrong & was_wrong).sum())
    all_wrong, none_wrong = int((size == wrong).sum()), int((wrong == 0).sum())
    counts: dict[str, float | None] = {
        "newly wrong": lost,
        "newly right": gained,
        "sources with a reconstruction": int(has_control.sum()),
        "sources with all test cases wrong": all_wrong,
        "sources with some test cases wrong": sources - all_wrong - none_wrong,
        "sources with no test case wrong": none_wrong,
        "images left out": left_out,
    }
    correlation, effect, effective = clustering(cases.wrong.astype(float), cases.source)
    counts |= {
        "intra-class correlation": correlation,
        "design effect": effect,
        "effective number of images": effective,
    }
    # McNemar's exact test, if each source has one test case: then all images are independent.
    tested = n > 0 and n == sources and lost + gained > 0
    counts["p value of newly wrong against newly right"] = (
        float(stats.binomtest(lost, lost + gained).pvalue) if tested else None
    )
    found |= {name: figure(number, n=n, sources=sources) for name, number in counts.items()}
    return {f"all: {name}": one for name, one in found.items()}, both


def classes(first: Answers, cases: Answers, both: Array, labels: Sequence[str], weighing: str) -> Rows:
    """Yield the figures of each class: errors, their difference and its p value, corrected over all classes."""
    first, cases = (one.where(one.known & np.isin(one.source, both)) for one in (first, cases))
    of_source = dict(zip(first.source.tolist(), first.frame["label"], strict=True))
    label = np.array([labels.index(of_source[one]) for one in both.tolist()], np.int64)
    size, wrong = shares_by_source(both, cases)
    originals, wrong_originals = shares_by_source(both, first)
    before, after = ratio(wrong_originals, originals), ratio(wrong, size)
    weights = size if weighing == "case" else np.ones(len(both))
    sources = np.bincount(label, minlength=len(labels))
    images = np.bincount(label, size, len(labels)).astype(int)
    original, _ = means_of_groups(before, weights, label, len(labels), sources)
    generated, _ = means_of_groups(after, weights, label, len(labels), images)
    change, p_values = means_of_groups(after - before, weights, label, len(labels), images, -1.0)
    p_values[images < FEWEST_CASES] = np.nan
    corrected = holm(p_values)
    for at, name in enumerate(labels):
        if not sources[at]:
            continue
        figures = {
            "error on originals": original[at],
            "error on generated images": generated[at],
            "generated less original": change[at],
        }
        for what, one in figures.items():
            few = {"value": None, "low": None, "high": None} if images[at] < FEWEST_CASES else {}
            yield f"classes: {name}: {what}", one | few
        beside = {"n": int(images[at]), "sources": int(sources[at])}
        own = label == at
        yield f"classes: {name}: originals wrong", figure(round(before[own].sum()), **beside)
        yield f"classes: {name}: test cases wrong", figure(round((after * size)[own].sum()), **beside)
        yield f"classes: {name}: p value, corrected", figure(_number(corrected[at]), **beside)


def confusion(first: Answers, cases: Answers, both: Array, labels: Sequence[str]) -> Rows:
    """Yield how often each answer is given for each label: shares of the images with this label."""
    counts = []
    for answers in (first, cases):
        known = answers.where(answers.known & np.isin(answers.source, both)).frame
        counts.append(Counter(zip(known["source_label"], known["predicted"], strict=True)))
    images = [Counter(label for label, _ in one.elements()) for one in counts]
    for label in labels:
        for answer in (*labels, ""):
            before, after = (
                one[label, answer] / of[label] if of[label] else None for one, of in zip(counts, images, strict=True)
            )
            if before or after:
                name = f"confusion: {label} taken for {answer or NO_LABEL}"
                yield f"{name}, originals", figure(before)
                yield f"{name}, generated images", figure(after)


NO_LABEL = "none of the labels"


def calibration(answers: Answers, both: Array, what: str) -> Rows:
    """Yield the expected calibration error, the mean distance between confidence and accuracy in 15 bins of equal width
    (Naeini et al. 2015), and the bins.
    """
    own = answers.where(answers.known & np.isin(answers.source, both))
    sure, right = own.frame["confidence"].to_numpy(float), ~own.wrong
    place = np.minimum((sure * 15).astype(int), 14)
    images = np.bincount(place, minlength=15)
    sums, hits = np.bincount(place, sure, 15), np.bincount(place, right.astype(float), 15)
    error = float(np.abs(sums - hits).sum() / len(own)) if len(own) else None
    yield f"calibration: expected error, {what}", figure(error)
    for at in range(15):
        mean, share = (float(one[at] / images[at]) if images[at] else None for one in (sums, hits))
        yield f"calibration: accuracy in bin {at + 1}, {what}", figure(share, n=int(images[at]))
        yield f"calibration: confidence in bin {at + 1}, {what}", figure(mean, n=int(images[at]))


def edit_tables(
    cases: pd.DataFrame,
    edits: pd.DataFrame,
    change: Array,
    newly_wrong: Array,
    labels: Sequence[str] | None,
    weighing: str,
) -> Rows:
    """Yield the tables of edits: the mean change of the true class's probability for each value of an edit, in each
    source first. A segmenter, without `labels`, has the share of right pixels in its place. The change is that from the
    reconstruction of the source, or from the original if no test case has a reconstruction. P values are corrected over
    the rows of a table.
    """
    at = {image: place for place, image in enumerate(cases["image"])}
    tables: dict[str, list[tuple[int, str]]] = {
        name: [(at[image], value) for image, value in zip(edits["image"], edits[column], strict=True) if value]
        for name, column in (("edit type", "edit_type"), ("keyword", "keyword"), ("alternative", "alternative"))
    }
    what = "the share of right pixels"
    if labels is not None:
        tables["class"] = [(place, label) for place, label in enumerate(cases["label"]) if label in labels]
        what = "the probability of the true class"
    source = cases["source"].to_numpy(np.int64)
    for name, pairs in tables.items():
        sizes = Counter(value for _, value in pairs)
        if len(sizes) > MOST_ROWS:
            pairs = [(place, value) for place, value in pairs if sizes[value] >= FEWEST_CASES]
        pairs = [(place, value) for place, value in dict.fromkeys(pairs) if math.isfinite(change[place])]
        if not pairs:
            continue
        values = sorted({value for _, value in pairs})
        rows = pd.DataFrame(pairs, columns=["case", "value"])
        rows["change"], rows["newly"] = change[rows["case"]], newly_wrong[rows["case"]].astype(float)
        rows["source"], rows["group"] = source[rows["case"]], rows["value"].map(values.index)
        cells = rows.groupby(["group", "source"]).agg(
            change=("change", "sum"), newly=("newly", "sum"), size=("case", "size")
        )
        group = cells.index.get_level_values(0).to_numpy(np.int64)
        size = cells["size"].to_numpy(float)
        weights = size if weighing == "case" else np.ones(len(size))
        n = rows.groupby("group")["case"].size().to_numpy()
        means, p_values = means_of_groups(cells["change"].to_numpy() / size, weights, group, len(values), n, -1.0)
        p_values[n < FEWEST_CASES] = np.nan
        corrected = holm(p_values)
        newly = cells["newly"].to_numpy()
        share = np.bincount(group, weights * newly / size) / np.bincount(group, weights)
        number = np.bincount(group, newly)
        for place, value in enumerate(values):
            few = n[place] < FEWEST_CASES
            beside = {"n": means[place]["n"], "sources": means[place]["sources"]}
            whole = figure(**beside) if few else means[place]
            yield f"{name}: {value}: change of {what}", whole
            yield f"{name}: {value}: newly wrong", figure(None if few else float(share[place]), **beside)
            yield f"{name}: {value}: newly wrong test cases", figure(int(number[place]), **beside)
            yield f"{name}: {value}: p value, corrected", figure(_number(corrected[place]), **beside)


def mean_by(keys: Sequence[Any], values: Array) -> dict[Any, float]:
    """Return the mean of the known values of each key."""
    known = np.isfinite(values)
    frame = pd.DataFrame({"key": pd.Series(keys, dtype=object)[known], "value": values[known]})
    return frame.groupby("key", sort=False)["value"].mean().to_dict()


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


# A segmenter

LOST = 0.15
"""IoU from which a class is found, and fall of the IoU by which it is lost."""


class Pixels:
    """Pixels of some images by true and predicted class, (images, classes, classes + 1). The last column is for
    predictions of no class of the masks.
    """

    def __init__(self, frame: pd.DataFrame, classes: int) -> None:
        self.frame = frame
        self.source = frame["source"].to_numpy(np.int64)
        self.way = frame["control_set"].to_numpy(np.int64)
        self.counts = np.array(frame["counts"].tolist(), float).reshape(len(frame), classes, classes + 1)
        self.classes = classes

    def where(self, chosen: Any) -> Pixels:
        return Pixels(self.frame[np.asarray(chosen, bool)], self.classes)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def overlaps(self) -> Array:
        """Intersections, then unions, of mask and prediction for each class: (images, 2 x classes)."""
        hit = np.diagonal(self.counts, axis1=1, axis2=2)
        return np.concatenate([hit, self.counts.sum(axis=2) + self.counts.sum(axis=1)[:, :-1] - hit], axis=1)

    @property
    def right_share(self) -> Array:
        """Share of right pixels of each image; NaN if no pixel counts."""
        return ratio(np.diagonal(self.counts, axis1=1, axis2=2).sum(axis=1), self.counts.sum(axis=(1, 2)))

    def ious(self, groups: Sequence[Sequence[int]]) -> Array:
        """Return the IoU of classes that consist of `groups`, image by image; NaN where the mask lacks the class."""
        found = np.full((len(self), len(groups)), np.nan)
        for at, own in enumerate(groups):
            here = self.counts[:, own].sum(axis=(1, 2))
            hit = self.counts[:, own][:, :, own].sum(axis=(1, 2))
            both = here + self.counts[:, :, own].sum(axis=(1, 2)) - hit
            found[:, at] = np.where(here > 0, ratio(hit, both), np.nan)
        return found


def mean_iou(overlaps: Array) -> Array:
    """Return the mean IoU over the classes that are there, from intersections and unions."""
    hit, union = np.split(overlaps, 2, axis=-1)
    each = np.divide(hit, union, out=np.zeros_like(union), where=union > 0)
    return ratio(each.sum(axis=-1), (union > 0).sum(axis=-1))


def pixel_figures(
    first: Pixels, cases: Pixels, control: Pixels | None, holds: Array, weighing: str, mixed: bool, names: Sequence[str]
) -> Rows:
    """Yield mIoU and IoU from one matrix of all pixels, in which each source weighs the same, or each test case. An
    unseen source finds all or nothing of each class; its area is that of the source of a typical pixel.
    """
    both = np.intersect1d(first.source, cases.source)
    holds = holds[np.isin(cases.source, both)]
    first, cases = (one.where(np.isin(one.source, both)) for one in (first, cases))
    control = control.where(np.isin(control.source, both)) if control is not None else None
    has_own, weight = None, None
    if control is not None and mixed:
        has_own, weight = matched_controls(cases.source, cases.way, control.source, control.way)
        control, weight = control.where(weight > 0), weight[weight > 0]
    sets = {"original": first, "generated": cases, "kept": cases.where(holds)}
    if control is not None and len(control):
        sets["control"] = control
        sets["original beside"] = first.where(np.isin(first.source, control.source))
        sets["generated beside"] = cases.where(np.isin(cases.source, control.source) if has_own is None else has_own)
        if len(sets["original beside"]) == len(first) and len(sets["generated beside"]) == len(cases):
            del sets["original beside"], sets["generated beside"]  # they equal the full sets
    cases_of = np.bincount(cases.source, minlength=int(both.max(initial=-1)) + 1)

    def weights(name: str) -> Array:
        source = sets[name].source
        alike = np.bincount(source, minlength=len(cases_of))[source].astype(float)
        if name == "control" and weight is not None:
            alike = np.bincount(source, weight)[source] / weight
        if weighing == "source":
            return 1 / alike
        return np.ones(len(source)) if name == "kept" else cases_of[source] / alike

    of_source = cases_of[both].astype(float) if weighing == "case" else np.ones(len(both))
    sums = []
    for name, one in sets.items():
        total = np.zeros((len(both), 2 * one.classes))
        np.add.at(total, np.searchsorted(both, one.source), weights(name)[:, None] * one.overlaps)
        sums.append(total)
    width = 2 * len(names)
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
    place = {name: at * width for at, name in enumerate(sets)}

    def miou(name: str) -> Callable[[Array], Array]:
        return lambda m: mean_iou(m[..., place[name] : place[name] + width])

    def of(name: str, less: str = "") -> Record:
        if "control" not in sets and (name == "control" or name.endswith(" beside")):
            return figure(n=0, sources=0)
        name = name if name in sets else name.removesuffix(" beside")
        one, two = miou(name), miou(less) if less else None
        statistic = (lambda m: one(m) - two(m)) if two is not None else one
        return means.figure(statistic, len(sets[name]), len(np.unique(sets[name].source)))

    yield "all: mIoU on originals", of("original")
    yield "all: mIoU on generated images", of("generated")
    yield "all: generated less original", of("generated", "original")
    yield "all: mIoU on originals, of sources with a reconstruction", of("original beside")
    yield "all: mIoU on generated images, of sources with a reconstruction", of("generated beside")
    yield "all: mIoU on reconstructions", of("control")
    yield "all: generated less reconstructed", of("generated beside", "control")
    yield "all: mIoU on generated images whose mask holds", of("kept")

    matrices = {name: np.tensordot(weights(name), sets[name].counts, 1) for name in sets}
    none = np.full((len(names), len(names) + 1), np.nan)
    before, after, drawn = (matrices.get(name, none) for name in ("original", "generated", "control"))
    n = {"n": len(cases), "sources": len(both)}
    for at, name in enumerate(names):
        for what, matrix in (("originals", before), ("generated images", after), ("reconstructions", drawn)):
            hit = matrix[at, at]
            value = float(ratio(hit, matrix[at].sum() + matrix[:, at].sum() - hit))
            yield f"classes: {name}: IoU on {what}", figure(_number(value), **n)
        for what, matrix in (("originals", before), ("generated images", after)):
            value = float(ratio(matrix[at, at], matrix[at].sum()))
            yield f"classes: {name}: pixel accuracy on {what}", figure(_number(value), **n)
    shares = [ratio(matrix, matrix.sum(axis=1, keepdims=True)) for matrix in (before, after)]
    for at, name in enumerate(names):
        for to, answer in enumerate([*names, NO_LABEL]):
            if shares[0][at, to] > 0 or shares[1][at, to] > 0:
                pair = f"confusion: {name} taken for {answer}"
                yield f"{pair}, originals", figure(_number(shares[0][at, to]))
                yield f"{pair}, generated images", figure(_number(shares[1][at, to]))


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
"""Names of the figures of `errors` if a segmenter is wrong where it loses a class."""


# Faults that are valid


INVALID, VALID, HARD = 0, 1, 2


def worker_states(ballots: pd.DataFrame, images: Array, pool: Array, fixed: Array, votes_of_an_image: float) -> Array:
    """Return draws of the state of each judged image, (draws, images): invalid, valid, or hard (votes are coins).

    The model is that of Dawid and Skene (1979), with the answers to control items as known truth, fitted by Gibbs
    sampling (seed 0). In turn it draws each worker's rates of right answers (beta), the population of workers (a grid
    of beta distributions), the shares of the states in each pool (gamma), and the state of each image. `fixed` is a
    state that needs no votes, or -1.
    """
    chance = np.random.default_rng(0)
    control, own = ballots[ballots["known"] >= 0], ballots[(ballots["known"] < 0) & ballots["image"].isin(images)]
    workers = int(ballots["worker"].max()) + 1 if len(ballots) else 1
    chains = int(np.clip(40_000 // max(len(images), 1), 10, 40))
    states = 3 if votes_of_an_image >= 3 else 2

    def counts(rows: pd.DataFrame, place: Any, height: int) -> Array:
        found = np.zeros((height, workers))
        np.add.at(found, (np.asarray(place, np.int64), rows["worker"].to_numpy(np.int64)), 1.0)
        return found

    yes, no = (
        counts(rows, np.searchsorted(images, rows["image"]), len(images))
        for rows in (own[own["valid"]], own[~own["valid"]])
    )
    is_right = control["valid"] == (control["known"] == 1)
    good, bad = (counts(rows, rows["known"], 2) for rows in (control[is_right], control[~is_right]))

    voted = (yes + no).sum(axis=1)
    begin = np.divide(yes.sum(axis=1), voted, out=np.full(len(images), 0.5), where=voted > 0)
    now = (chance.random((chains, len(images))) < begin).astype(np.int8)
    now[:, fixed >= 0] = fixed[fixed >= 0]
    of_pool = (pool[:, None] == np.arange(int(pool.max(initial=0)) + 1)).astype(float)
    middle, alike = np.full((chains, 2), 0.8), np.full((chains, 2), 3.0)
    right = np.full((chains, 2, workers), 0.8)
    prior = np.array([0.5, 0.5, 0.1])[:states, None, None]
    grid = np.meshgrid(np.linspace(0.525, 0.995, 20), [1.0, 4.0, 20.0, 100.0], indexing="ij")
    grid_mean, grid_size = (one.ravel() for one in grid)
    grid_a, grid_b = grid_mean * grid_size, (1 - grid_mean) * grid_size
    log_grid = special.gammaln(grid_size) - special.gammaln(grid_a) - special.gammaln(grid_b)
    kept = []
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
            kept.append(now)
    return np.concatenate(kept)


def looks_random(images: Array, judged: Array) -> bool:
    """Return True if the judged images of each part may be a random sample of all: at least 1 in 200 of 2,000 random
    samples (seed 0) is as far off, by Pearson's statistic and by the images in parts without a judged one.
    """
    images, judged = images[images > 0], judged[images > 0]
    if len(images) == 1:
        return True
    samples = np.random.default_rng(0).multivariate_hypergeometric(images, int(judged.sum()), 2000, "marginals")
    samples = np.vstack([judged, samples])
    expected = images * judged.sum() / images.sum()
    for far in (((samples - expected) ** 2 / expected).sum(axis=1), (samples == 0) @ images):
        if (far >= far[0] * (1 - 1e-9)).mean() < 0.005:
            return False
    return True


def pools_of(images: Array, judged: Array) -> tuple[Array, Array]:
    """Return the pool of each cell (a stratum of right, or of wrong images), and the weight of its judged images.

    A cell with 5 judged images (or with all of fewer) is a pool. The others are one pool together, and cells without a
    judged image belong to it only if the sample looks random. The pool of any other cell is unknown: -1.
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
    """Return True if two studies cannot both be true: with the error e of the one and at most a share v of wrong images
    valid by the other, at most 1 - e (1 - v) of all images are valid, but the one found more (chance below 1 in 1,000).
    """
    if len(set(judged["study"]) - {-1}) < 2:
        return False
    decided = judged[judged["decided"]]
    for one, own in decided.groupby("study"):
        for other, rest in decided[decided["wrong"]].groupby("study"):
            if one == other:
                continue
            test = stats.binomtest(int(rest["valid"].sum()), len(rest))
            most = 1 - own["wrong"].mean() * (1 - test.proportion_ci(1 - 2 * 0.001).high)
            if stats.binom.sf(int(own["valid"].sum()) - 1, len(own), most) < 0.001:
                return True
    return False


def validity(judged: pd.DataFrame, ballots: pd.DataFrame, strata: int, weighing: str, has_score: bool) -> Rows:
    """Yield the figures on wrong images that people found valid, by strata (law of total probability), with an interval
    from 4,000 draws (seed 0): sources get random weights, one unseen source is added, and the states of the judged
    images are drawn (`worker_states`). Where nothing is known, the lower end takes images for invalid, the upper for
    valid. With a score of each image, the votes correct it (prediction-powered inference, Angelopoulos et al. 2023).
    """
    wrong, decided = judged["wrong"].to_numpy(bool), judged["decided"].to_numpy(bool)
    valid = judged["valid"].to_numpy(bool)
    without = judged["undecided"].to_numpy(bool) & ~decided
    outside = judged["outside"].to_numpy(bool)
    voted = (decided | without) & ~outside
    score = judged["score"].to_numpy(float) if has_score else np.zeros(len(judged))

    # The weight of each image: its share of the weight of its source, which is 1 on average.
    sources, source, sizes = np.unique(judged["source"], return_inverse=True, return_counts=True)
    of_source = sizes / sizes.mean() if weighing == "case" else np.ones(len(sizes))
    weight = (of_source / sizes)[source]

    # Cells (a stratum; wrong or right) and pools of cells with one share of valid images.
    cell, cells = 2 * judged["stratum"].to_numpy(np.int64) + wrong, 2 * strata
    images, asked_of = np.bincount(cell[~outside], minlength=cells), np.bincount(cell[voted], minlength=cells)
    pool, raised, is_wrong = np.full(cells, -1), np.ones(cells), list[bool]()
    for kind in (True, False):
        own = np.arange(int(kind), cells, 2)
        number, raised[own] = pools_of(images[own], asked_of[own])
        pool[own] = np.where(number >= 0, number + len(is_wrong), -1)
        is_wrong += [kind] * (int(number.max(initial=-1)) + 1)
    of_wrong, pools = np.array(is_wrong, bool), len(is_wrong)
    if outside.any():
        cell = cell + cells * outside
        pool, raised = np.append(pool, np.full(cells, -1)), np.append(raised, np.ones(cells))
        images = np.bincount(cell, minlength=2 * cells)
    unknown = (pool < 0) & (images > 0)
    asked = np.flatnonzero(voted & (pool[cell] >= 0))
    asked_pool = pool[cell[asked]]
    asked_weight = weight[asked] * raised[cell[asked]]

    # A row for each source: weight in each pool, of unknown wrong and right images, scores in each pool, its weight.
    column = np.where(pool[cell] >= 0, pool[cell], pools + np.where(wrong, 0, 1))

    def by_source(weights: Array) -> Array:
        place = source * (pools + 2) + column
        return np.bincount(place, weights, len(sources) * (pools + 2)).reshape(len(sources), pools + 2)

    masses = np.column_stack([by_source(weight), by_source(weight * score)[:, :pools], of_source])
    mass = masses.sum(axis=0) / len(sources)

    def by_pool(values: Array) -> Array:
        return np.bincount(asked_pool, values, pools).astype(float)

    # The chance that each judged image is valid.
    counts = Counter(ballots["image"][ballots["known"] < 0])
    votes_of_an_image = float(np.median(list(counts.values()))) if counts else 0.0
    consensus = np.where(valid, VALID, np.where(decided, INVALID, HARD))[asked]
    if (ballots["known"] >= 0).any() or votes_of_an_image >= 3:
        settled = ~np.isin(asked, ballots["image"]) | judged["adjudicated"].to_numpy(bool)[asked]
        fixed = np.where(settled, consensus, -1)
        states = worker_states(ballots, asked, asked_pool, fixed, votes_of_an_image)
    else:
        states = consensus[None].astype(np.int8)
    is_valid, is_hard = (states == VALID).mean(axis=0), (states == HARD).mean(axis=0)
    if len(states) > 1:
        chance_valid = is_valid + is_hard / 2
    else:
        known = by_pool((1 - is_hard) * asked_weight)
        share = np.where(known > 0, by_pool(is_valid * asked_weight) / np.maximum(known, 1e-300), 0.5)
        chance_valid = is_valid + is_hard * share[asked_pool]
    share_valid = ratio(by_pool(chance_valid * asked_weight), by_pool(asked_weight))

    # The figures.
    wrong_share = float(mass[:pools][of_wrong].sum() + mass[pools])
    value = float((mass[:pools] * share_valid)[of_wrong].sum())
    both = mass[:pools] * share_valid
    among_valid = float(ratio(both[of_wrong].sum(), both.sum()))
    own_asked = of_wrong[asked_pool]
    times_valid = wrong_share * float(chance_valid[own_asked].mean()) if own_asked.any() else math.nan
    bounds = []
    for end in (0.0, 1.0):
        share = ratio(by_pool(np.where(without[asked], end, chance_valid) * asked_weight), by_pool(asked_weight))
        bounds.append(float((mass[:pools] * share)[of_wrong].sum()) + end * float(mass[pools]))

    # The weight of the score that makes the interval shortest (PPI++): covariance with the votes over variance.
    score_weight = None
    if has_score and own_asked.sum() >= 50:
        above = below = 0.0
        all_of_pool = np.bincount(pool[cell][pool[cell] >= 0], minlength=pools)
        for one in np.flatnonzero(of_wrong):
            own = asked_pool == one
            if own.sum() < 2:
                continue
            spread = np.cov(score[asked[own]], chance_valid[own], aweights=asked_weight[own])
            above += mass[one] ** 2 / own.sum() * spread[0, 1]
            below += mass[one] ** 2 / own.sum() * spread[0, 0] * (1 + own.sum() / all_of_pool[one])
        score_weight = float(np.clip(above / below, 0.0, 1.0)) if below > 0 else 0.0
    judged_score = ratio(by_pool(score[asked] * asked_weight), by_pool(asked_weight))
    correction = (score_weight or 0.0) * (mass[pools + 2 : -1] - mass[:pools] * judged_score)
    with_score = float(np.clip(value + correction[of_wrong].sum(), 0.0, wrong_share))

    # The draws.
    chance = np.random.default_rng(0)
    own_sources, place = np.unique(source[asked], return_inverse=True)
    own_mass = masses[own_sources]
    others = in_groups(np.delete(masses, own_sources, axis=0), chance)
    others = random_weights()[:, : len(others)] @ others
    in_pool = (asked_pool[:, None] == np.arange(pools)).astype(float)
    judged_sources = np.array([len(np.unique(place[asked_pool == one])) for one in range(pools)])
    one_more = ratio(np.bincount(asked_pool, asked_weight, pools), judged_sources)
    wrong_places = place[own_asked]
    plain_more = len(wrong_places) / max(len(np.unique(wrong_places)), 1)
    typical = (of_source**2).sum() / of_source.sum()
    drawn = []
    for begin in range(0, DRAWS, 100):
        weights = chance.standard_exponential((100, len(own_sources)))
        sums = others[begin : begin + 100] + weights @ own_mass
        sums, total = sums[:, :-1], sums[:, -1]
        # One unseen source: all its images are wrong, or all are right.
        more = chance.standard_exponential(100) * typical
        total = total + more
        unseen_wrong = chance.random(100) < 0.5
        for kind in (True, False):
            known = np.where(np.append(of_wrong, [True, False]) == kind, mass[: pools + 2], 0.0)
            if not known.any():
                known[pools if kind else pools + 1] = 1.0
            added = np.where(unseen_wrong == kind, more, 0.0)[:, None] * (known / known.sum())
            sums[:, : pools + 2] += added
            sums[:, pools + 2 :] += added[:, :pools] * np.nan_to_num(ratio(mass[pools + 2 : -1], mass[:pools]))
        shares = sums / total[:, None]
        mass_of, nothing_known, scored = shares[:, :pools], shares[:, pools : pools + 2], shares[:, pools + 2 :]
        state = states[np.arange(begin, begin + 100) % len(states)]
        votes = weights[:, place] * asked_weight
        size = votes @ in_pool
        sure, open_ones = (votes * (state == VALID)) @ in_pool, (votes * (state == HARD)) @ in_pool
        good, size_of = np.stack([sure, sure + open_ones]), np.stack([size, size])
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
                    often = (ratio(good[:, :, own], size_of[:, :, own]) @ part)[:, :, None]
                added = chance.gamma(np.maximum(amount, 1e-9), size=(100, len(own))) * one_more[own]
                luck = chance.random((100, 1 if is_first else len(own)))
                good[:, :, own] += added * (luck < often)
                size_of[:, :, own] += added
        low, high = ratio(good, size_of)
        both_low = (mass_of * low)[:, of_wrong].sum(axis=1)
        both_high = (mass_of * high)[:, of_wrong].sum(axis=1) + nothing_known[:, 0]
        right_low = (mass_of * low)[:, ~of_wrong].sum(axis=1)
        right_high = (mass_of * high)[:, ~of_wrong].sum(axis=1) + nothing_known[:, 1]
        wrong_of = mass_of[:, of_wrong].sum(axis=1) + nothing_known[:, 0]
        of_judged = ratio((votes * score[asked]) @ in_pool, size)
        mend = (score_weight or 0.0) * np.nan_to_num(scored - mass_of * of_judged)[:, of_wrong].sum(axis=1)
        plain = weights[:, place] * own_asked
        more_judged = chance.standard_exponential(100) * plain_more
        times = ratio(
            (plain * (state == VALID)).sum(axis=1) + more_judged * (chance.random(100) < 0.5),
            (plain * (state != HARD)).sum(axis=1) + more_judged,
        )
        drawn.append(
            [
                both_low,
                both_high,
                np.clip(both_low + mend, 0.0, wrong_of),
                np.clip(both_high + mend, 0.0, wrong_of),
                wrong_of * times,
                ratio(both_low, both_low + right_high),
                ratio(both_high, both_high + right_low),
            ]
        )
    low, high, mended_low, mended_high, times, among_low, among_high = np.concatenate(drawn, axis=1)

    n, of = len(judged), len(sources)

    def interval(value: float, low: Array, high: Array, is_unknown: bool = False) -> Record:
        value = float(np.nanmedian(low)) if is_unknown else value
        ends = min(float(np.nanquantile(low, ENDS[0])), value), max(float(np.nanquantile(high, ENDS[1])), value)
        return figure(None if is_unknown else value, *ends, n=n, sources=of)

    against = contradiction(judged)
    nothing = against or (bool(wrong.any()) and not (voted & wrong).any())
    wrong_unknown, right_unknown = bool(unknown[1::2].any()), bool(unknown[0::2].any())
    empty = figure(n=n, sources=0)
    found = {"wrong and valid, at least": figure(bounds[0], n=n, sources=of)}
    found["wrong and valid, at most"] = figure(bounds[1], n=n, sources=of)
    found["judged images without a consensus"] = figure(n=0, sources=0)
    if voted.any():
        n_voted = int(voted.sum())
        found["judged images without a consensus"] = figure(int(without.sum()) / n_voted, n=n_voted, sources=0)
    found["times the share judged valid"] = empty if nothing else interval(times_valid, times, times)
    found["error among valid images"] = (
        empty if nothing else interval(among_valid, among_low, among_high, wrong_unknown or right_unknown)
    )
    found["wrong and valid, with the score"] = empty
    if not nothing and not wrong_unknown and score_weight is not None:
        found["wrong and valid, with the score"] = interval(with_score, mended_low, mended_high)
    by_strata = empty
    if not nothing or (voted.any() and not against):
        by_strata = interval(value, low, high, nothing or wrong_unknown)
    found["wrong and valid, by strata"] = by_strata
    yield from ((f"validity: {name}", one) for name, one in found.items())
    yield "validity: weight of the score", figure(None if nothing else score_weight)
    yield "validity: images with a consensus", figure(int(decided.sum()))
    yield "validity: judged images without a consensus, number", figure(int(without.sum()))
    yield "validity: answers to control items", figure(int((ballots["known"] >= 0).sum()))


# A validity study


class Vote:
    """One worker's vote on one item."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.item, self.kind, self.worker = row["item"], row["kind"], row["worker"]
        self.imported = bool(row["imported"])
        self.submitted = datetime.fromisoformat(row["submitted"])
        self.answers: dict[str, str] = {}


class Outcome:
    """The result of the votes on an item: consensus, no consensus, waiting, or too few votes."""

    def __init__(self, status: str, answer: str = "", valid: bool | None = None, counts: Any = None) -> None:
        self.status, self.answer, self.valid, self.counts = status, answer, valid, counts or {}


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
    """Return True if the item shows the class that the question is about, or if it is about all items."""
    shown = {name.casefold() for name in item["classes"]}
    return not question["only_with"] or question["only_with"].casefold() in shown


def asked(questions: Sequence[Any], item: Mapping[str, Any], answers: Mapping[str, str]) -> list[Any]:
    """Return the questions for an item, given the answers. A follow-up needs the answer that it follows."""
    found: dict[str, Any] = {}
    for one in questions:
        leads = one["follows"] in found and answers.get(one["follows"]) == one["follows_answer"]
        if concerns(one, item) and (not one["follows"] or leads):
            found[one["id"]] = one
    return list(found.values())


def counted_votes(votes: Iterable[Vote], needed: int, excluded: set[str]) -> dict[str, list[Vote]]:
    """Return the votes that count, by item: the first `needed` by different workers who are not excluded."""
    found: dict[str, list[Vote]] = {}
    for vote in votes:
        if vote.kind == "item" and vote.worker not in excluded:
            own = found.setdefault(vote.item, [])
            if len(own) < needed and all(vote.worker != other.worker for other in own):
                own.append(vote)
    return found


def outcomes(study: Study, rules: Mapping[str, Any], votes: Mapping[str, Sequence[Vote]]) -> dict[str, dict[str, Any]]:
    """Return the outcome of each item and question with fixed answers. A consensus is at least `consensus` equal
    answers among `votes` votes. With fewer votes an item waits, or has too few once the study is closed.
    """
    found: dict[str, dict[str, Any]] = {}
    for item in study.images:
        own, of_item = votes.get(item["item"], []), found.setdefault(item["item"], {})
        for question in rules["questions"]:
            follows, name = question["follows"], question["id"]
            reached = not follows or any(one.answers.get(follows) == question["follows_answer"] for one in own)
            if question["kind"] == "text" or not concerns(question, item) or not reached:
                continue
            given = Counter(one.answers[name] for one in own if name in one.answers)
            counts = dict(sorted(given.items(), key=lambda pair: (-pair[1], pair[0])))
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


def of_images(found: Mapping[str, Mapping[str, Any]], questions: Sequence[Any]) -> dict[str, Any]:
    """Return whether each image is valid, over all questions on validity that are no follow-ups: it waits if one waits,
    is invalid if one says so, is open if one is, and is valid otherwise.
    """
    telling = {one["id"] for one in questions if one["valid"] and not one["follows"]}
    images = {}
    for item, of_item in found.items():
        parts = [part for name, part in of_item.items() if name in telling]
        if not parts:
            continue
        statuses = [part.status for part in parts]
        if "waiting" in statuses:
            images[item] = Outcome("waiting")
        elif any(part.valid is False for part in parts):
            images[item] = Outcome("consensus", "invalid", False)
        elif open_ones := [one for one in ("no consensus", "too few votes") if one in statuses]:
            images[item] = Outcome(open_ones[0])
        else:
            images[item] = Outcome("consensus", "valid", True)
    return images


def is_right(study: Study, vote: Vote) -> bool:
    """Return True if a vote gives all known right answers of its item."""
    expected = study.items[vote.item]["expected"]
    of_item = asked(study.questions, study.items[vote.item], {**vote.answers, **expected})
    known = [one["id"] for one in of_item if one["id"] in expected]
    return all(plain(vote.answers.get(name, "")) == plain(expected[name]) for name in known)


def plain(text: str) -> str:
    return text.strip().casefold()


def wilson(count: int, n: int) -> Record:
    """Return count / n with its Wilson score interval (1927): (p + z²/2n ± z √(p(1-p)/n + z²/4n²)) / (1 + z²/n)."""
    if not n:
        return figure(count=0, n=0)
    p, z = count / n, NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return figure(p, 0.0 if p == 0 else max(0.0, low), 1.0 if p == 1 else min(1.0, high), count=count, n=n)


def bootstrap(images: Sequence[Any], seed: int, statistic: Callable[[Array], Array]) -> tuple[float, float]:
    """Return the percentile interval of 4,000 bootstrap samples of images. Equal images are drawn together."""
    kinds = Counter(images)
    shares = np.array(list(kinds.values())) / len(images)
    drawn = np.random.default_rng(abs(seed)).multinomial(len(images), shares, size=DRAWS)
    low, high = np.quantile(statistic(drawn @ np.array(list(kinds), dtype=float)), ENDS)
    return float(low), float(high)


def valid_share(found: Iterable[Any], telling: bool) -> Record:
    """Return the share of valid images among those with a consensus, and its bounds if all open images were invalid, or
    all valid.
    """
    found = list(found)
    decided = [one for one in found if one.status == "consensus"]
    number = Counter(one.status for one in found)
    valid, of = sum(one.valid is True for one in decided), len(decided) if telling else 0
    missing = number["no consensus"] + number["too few votes"] if telling else 0
    share = wilson(valid if telling else 0, of)
    n = of + missing
    return share | {
        "asked": len(found),
        "discarded": number["no consensus"],
        "too_few": number["too few votes"],
        "waiting": number["waiting"],
        "worst": valid / n if n else None,
        "best": (valid + missing) / n if n else None,
    }


def agreement(ratings: Sequence[Sequence[str]], answers: Sequence[str], ordered: bool) -> dict[str, Record]:
    """Return the agreement of votes. Items with one vote count only in the shares of answers in AC1 and kappa.

    Raw: the share of equal pairs of votes on an item, averaged over items. Krippendorff's alpha: 1 - observed /
    expected disagreement, from pairs of votes on an item and from pairs of all votes. AC1 (Gwet 2008) and kappa (Fleiss
    1971): (raw - chance) / (1 - chance), with chance = sum p (1 - p) / (answers - 1), and = sum p².
    """
    items = [Counter(one) for one in ratings if len(one) > 1]
    n, voted = len(items), [Counter(one) for one in ratings if one]
    share: dict[str, float] = {}
    for counts in voted:
        for answer, votes in counts.items():
            share[answer] = share.get(answer, 0.0) + votes / counts.total() / len(voted)
    names = ["raw agreement", "Krippendorff's alpha", "Gwet's AC1", "Fleiss' kappa"]
    names += ["Krippendorff's alpha, ordinal"] * bool(ordered and answers)
    values: dict[str, float | None] = dict.fromkeys(names)
    if items:
        equal = [sum(k * (k - 1) for k in one.values()) / (one.total() * (one.total() - 1)) for one in items]
        raw = values["raw agreement"] = sum(equal) / n
        total: Counter[str] = sum(items, Counter())
        if len(total) > 1:
            nominal = dict.fromkeys(permutations(total, 2), 1.0)
            values["Krippendorff's alpha"] = alpha(items, total, nominal)
            if ordered and answers:
                scale = [answer for answer in answers if answer in total]
                values["Krippendorff's alpha, ordinal"] = alpha(items, total, ordinal(scale, total))
        if len(share) > 1:
            chance = sum(p * p for p in share.values())
            values["Fleiss' kappa"] = (raw - chance) / (1 - chance)
        if (possible := len({*answers, *share})) > 1:
            chance = sum(p * (1 - p) for p in share.values()) / (possible - 1)
            values["Gwet's AC1"] = (raw - chance) / (1 - chance)
    found = {name: figure(value, n=n) for name, value in values.items()}
    every = Counter(answer for one in ratings for answer in one)
    if every:
        best, votes = every.most_common(1)[0]
        found[f"most frequent answer: answer: {best}"] = figure(votes / every.total())
    return found


def alpha(items: Sequence[Counter[str]], total: Counter[str], distance: Mapping[tuple[str, str], float]) -> float:
    observed = sum(
        one[a] * one[b] * distance[a, b] / (one.total() - 1) for one in items for a, b in permutations(one, 2)
    )
    expected = sum(total[a] * total[b] * apart for (a, b), apart in distance.items())
    return 1 - (total.total() - 1) * observed / expected


def ordinal(scale: Sequence[str], total: Counter[str]) -> dict[tuple[str, str], float]:
    """Return the squared distance of two answers of a scale: the votes between them, both ends counted half."""
    found = {}
    for i, j in permutations(range(len(scale)), 2):
        between = sum(total[scale[k]] for k in range(min(i, j), max(i, j) + 1))
        found[scale[i], scale[j]] = (between - (total[scale[i]] + total[scale[j]]) / 2) ** 2
    return found


def dawid_skene(votes: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """Return the likeliest true answer of each item by Dawid and Skene's model (1979), from (item, worker, answer).

    EM begins with the shares of each item's votes. M: how often each truth occurs, and how often a worker gives each
    answer to each truth. E: the chance of each truth, given the item's votes. It ends when the bound on the likelihood,
    divided by the number of votes, grows by less than 0.00001, or after 100 rounds.
    """
    workers, answers = sorted({one[1] for one in votes}), sorted({one[2] for one in votes})
    if len(workers) < 2 or len(answers) < 2:
        return {}
    items = list(dict.fromkeys(one[0] for one in votes))
    columns = [{name: at for at, name in enumerate(names)} for names in (items, workers, answers)]
    item, worker, said = (np.array([column[one[at]] for one in votes]) for at, column in enumerate(columns))
    truth = np.zeros((len(items), len(answers)))
    np.add.at(truth, (item, said), 1.0)
    truth /= truth.sum(axis=1, keepdims=True)
    given = np.zeros((len(workers), len(answers), 1), bool)
    given[worker, said] = True

    def maximise() -> tuple[Array, Array]:
        counts = np.zeros((len(workers), len(answers), len(answers)))
        np.add.at(counts, (worker, said), truth[item])
        counts = np.where(given, np.maximum(counts, 1e-10), 0.0)
        return np.maximum(truth.mean(axis=0), 1e-10), counts / counts.sum(axis=1, keepdims=True)

    bound = -np.inf
    occurs, errors_of = maximise()
    for _ in range(100):
        logs = np.tile(np.log(occurs), (len(items), 1))
        np.add.at(logs, item, np.log(errors_of[worker, said]))
        truth = np.exp(logs - logs.max(axis=1, keepdims=True))
        truth /= truth.sum(axis=1, keepdims=True)
        occurs, errors_of = maximise()
        fit = (truth[item] * (np.log(occurs) + np.log(errors_of[worker, said]))).sum()
        clipped = np.maximum(truth, 1e-10)
        reached = (fit - (clipped * np.log(clipped)).sum()) / len(votes)
        if reached - bound < 1e-5:
            break
        bound = reached
    return {name: answers[int(truth[at].argmax())] for at, name in enumerate(items)}


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
        groups: dict[str, list[Any]] = {}
        for item in study.images:
            if item["item"] in found:
                for name in dict.fromkeys(one for one in names(item) if one) or (NONE,):
                    groups.setdefault(name, []).append(found[item["item"]])
        if set(groups) <= {NONE}:
            continue
        for name, own in groups.items():
            yield named("valid", question, "after exclusions", part, name), valid_share(own, True)


def named(*words: str) -> str:
    return ": ".join(word for word in words if word)


def study_figures(study: Study) -> Rows:
    """Yield all figures of a study's report."""
    rules, ids = study.rules, {item["item"] for item in study.images}
    cast = [vote for vote in study.votes if vote.kind == "item" and vote.item in ids]
    after = counted_votes(cast, rules["votes"], study.excluded)
    before = counted_votes(cast, rules["votes"], set())
    found, found_before = outcomes(study, rules, after), outcomes(study, rules, before)
    decided = with_decisions(study, found) if study.adjudications else None
    images, telling = of_images(found, study.questions), any(one["valid"] for one in study.questions)

    def whole(outcomes_of: Mapping[str, Any], questions: Sequence[Any], used: str) -> tuple[str, Record]:
        return named("valid", used, "all"), valid_share(of_images(outcomes_of, questions).values(), telling)

    yield whole(found, study.questions, "after exclusions")
    yield whole(found_before, study.questions, "before exclusions")
    if decided is not None:
        yield whole(decided, study.questions, "with adjudications")
    if len(study.history) > 1 and telling:
        first = study.history[0]["rules"]
        by_first = outcomes(study, first, counted_votes(cast, first["votes"], study.excluded))
        yield whole(by_first, first["questions"], "by the first rules")
    yield from parts(study, images, "")

    def ratings(question: Mapping[str, Any], votes: Mapping[str, Sequence[Vote]]) -> dict[str, list[str]]:
        if question["kind"] == "text":
            return {}
        possible, name = set(answers_to(question)), question["id"]
        given = {item: [one.answers.get(name, "") for one in votes.get(item, [])] for item in ids_in_order}
        given = {item: [answer for answer in own if answer in possible] for item, own in given.items()}
        return {item: own for item, own in given.items() if own}

    ids_in_order = [item["item"] for item in study.images]
    on_validity = [one for one in study.questions if one["valid"]]
    alike = [one for one in on_validity if answers_to(one) == answers_to(on_validity[0])]
    pooled = [own for one in alike for own in ratings(one, after).values()]
    first_answers = answers_to(alike[0]) if alike else []
    is_scale = bool(alike) and alike[0]["kind"] == "scale"
    for name, one in agreement(pooled, first_answers, is_scale).items():
        yield _of_agreement(name, "", "after exclusions"), one

    controls = [vote for vote in study.of("control") if study.items[vote.item]["expected"]]
    right = sum(is_right(study, vote) for vote in controls)
    yield named("control items right", "all votes", "all"), wilson(right, len(controls))
    for question in study.questions:
        own = {item: of_item[question["id"]] for item, of_item in found.items() if question["id"] in of_item}
        yield from question_figures(study, question, own, found_before, decided, ratings(question, after), after)
        if question["kind"] != "text":
            answers, ordered = answers_to(question), question["kind"] == "scale"
            for used, votes in (("after exclusions", after), ("before exclusions", before)):
                for name, one in agreement(list(ratings(question, votes).values()), answers, ordered).items():
                    yield _of_agreement(name, question["id"], used), one
    for _, later in pairwise(study.history):
        since = datetime.fromisoformat(later["since"])
        name = named("change of rules", "all", f"version {later['rules']['version']}")
        yield name, figure(count=sum(vote.submitted < since for vote in cast))
    yield from worker_counts(study, cast, after)


def _of_agreement(name: str, question: str, used: str) -> str:
    figure_name, _, answer = name.partition(": ")
    return named(figure_name, question, used, answer or "all")


def question_figures(
    study: Study,
    question: Mapping[str, Any],
    own: Mapping[str, Any],
    before: Mapping[str, Mapping[str, Any]],
    decided: Mapping[str, Mapping[str, Any]] | None,
    ratings: Mapping[str, Sequence[str]],
    votes: Mapping[str, Sequence[Vote]],
) -> Rows:
    """Yield the figures of one question, but for the agreement. The interval of votes is a bootstrap over images."""
    name, seed = question["id"], study.rules["seed"]
    if question["valid"]:
        yield named("valid", name, "after exclusions", "all"), valid_share(own.values(), True)
        earlier = [of_item[name] for of_item in before.values() if name in of_item]
        yield named("valid", name, "before exclusions", "all"), valid_share(earlier, True)
        person = {item: of_item[name] for item, of_item in (decided or {}).items() if name in of_item}
        if any(person[item].status != own[item].status for item in person):
            yield named("valid", name, "with adjudications", "all"), valid_share(person.values(), True)

        images = [(sum(one in question["valid"] for one in given), len(given)) for given in ratings.values()]
        good, n = sum(one for one, _ in images), sum(of for _, of in images)
        share = figure(good / n if n else None, count=good, n=n)
        if len({one / of for one, of in images}) > 1:
            low, high = bootstrap(images, seed, lambda totals: totals[:, 0] / totals[:, 1])
            share |= {"low": low, "high": high}
        yield named("valid votes", name, "after exclusions", "all"), share

        ready = [item for item, one in own.items() if one.counts and one.status != "waiting"]
        best = [Counter(own[item].counts).most_common(2) for item in ready]
        majority = [one[0][0] for one in best if len(one) == 1 or one[0][1] > one[1][1]]
        by_majority = wilson(sum(one in question["valid"] for one in majority), len(majority))
        yield named("valid by majority", name, "after exclusions", "all"), by_majority
        given = [(one, v.worker, v.answers[name]) for one in ready for v in votes.get(one, []) if name in v.answers]
        labels = dawid_skene(given)
        by_model = wilson(sum(one in question["valid"] for one in labels.values()), len(labels))
        yield named("valid by Dawid and Skene", name, "after exclusions", "all"), by_model
        yield from parts(study, own, name)
    if question["kind"] == "text":
        return
    agreed = [one.answer for one in own.values() if one.status == "consensus"]
    every = Counter(one for given in ratings.values() for one in given)
    for answer in answers_to(question):
        share = wilson(agreed.count(answer), len(agreed))
        yield named("consensus", name, "after exclusions", "answer", answer), share
        yield named("votes", name, "answer", answer), figure(count=every[answer])
    if question["kind"] == "scale":
        values = [sum(map(int, given)) / len(given) for given in ratings.values()]
        mean = figure(sum(values) / len(values) if values else None, n=len(values))
        if len(set(values)) > 1:
            low, high = bootstrap(values, seed, lambda totals: totals / len(values))
            mean |= {"low": low, "high": high}
        yield named("mean rating", name, "after exclusions", "all"), mean


def worker_counts(study: Study, cast: Sequence[Vote], after: Mapping[str, Sequence[Vote]]) -> Rows:
    """Yield the numbers of images, votes and workers. A worker is judged if excluded, or after enough control items."""
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
    return {item: one.answer or one.status for item, one in images.items() if one.status != "waiting"}


def says_valid(questions: Sequence[Any], answers: Mapping[str, str]) -> bool | None:
    given = [answers[one["id"]] in one["valid"] for one in questions if answers.get(one["id"])]
    return all(given) if given else None


def single_votes(study: Study) -> list[tuple[int | None, str, bool, int]]:
    """Return (test case, worker, found valid, known truth) of each vote that counts; the truth is -1 for a test case.
    For a control item, whose truth is known, the test case is None.
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
    """Return the test cases with what people found, and the single votes on them. Of several studies on an image, the
    last one with a consensus counts.
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
    """Return the stratum of each test case, and their number: right or wrong, by edit type, by none, or by several."""
    by_case = edits[edits["edit_type"] != ""].groupby("image")["edit_type"].agg(lambda own: list(dict.fromkeys(own)))
    kinds = []
    for image in cases["image"]:
        own = by_case.get(image, [])
        kinds.append(types.index(own[0]) if len(own) == 1 else len(types) + (len(own) > 1))
    used, stratum = np.unique(np.array(kinds, np.int64) * 2 + wrong, return_inverse=True)
    return stratum, len(used)


def all_of_a_part(part: Array, judged: Array) -> bool:
    """Return True if the judged images are all of one part, which has a chance below 1 % for a random sample."""
    n, inside = int(judged.sum()), int(part.sum())
    return bool(n and part[judged].all() and stats.hypergeom.pmf(n, len(part), inside, n) < 0.01)


# All figures


class Bundle:
    """The tables of this bundle."""

    def __init__(self) -> None:
        self.settings = read("settings.json")
        self.images, self.edits, self.predictions, self.items = map(table, ("images", "edits", "predictions", "items"))
        votes = table("votes")
        self.studies = {one["study"]: Study(one, self.items, votes) for one in self.settings["studies"]}
        self.segments = self.settings["task"] == "segmentation"
        self.pixels = table("pixels")
        originals = self.images[self.images["role"] == "original"]
        label = dict(zip(originals["source"], originals["label"], strict=True))
        self.images["source_label"] = self.images["source"].map(label)
        self.cases = self.images[self.images["role"] == "test case"].reset_index(drop=True)

    def answers(self, model: int, role: str) -> Answers:
        """Return what a model says about the images of one role."""
        if self.segments:
            return Answers(self.losses(model)[role])
        own = self.predictions[self.predictions["model"] == model]
        return Answers(own.merge(self.images[self.images["role"] == role], on="image"))

    def pixels_of(self, model: int, role: str) -> Pixels:
        own = self.pixels[self.pixels["model"] == model]
        frame = own.merge(self.images[self.images["role"] == role], on="image")
        return Pixels(frame, len(self.settings["models"][model - 1]["labels"]))

    def losses(self, model: int) -> dict[str, pd.DataFrame]:
        """Return which images lose a protected class, as answers: "lost" is wrong. An original loses a class whose IoU
        is below 0.15. Another image loses one that has that IoU on the original and falls by as much. An image without
        a class to lose cannot be compared. The columns `could` and `lost` have the classes.
        """
        classes = self.settings["models"][model - 1]["protected"]
        groups = [one["groups"] for one in classes]
        frames, before = {}, np.full((len(self.images), len(classes)), np.nan)
        of_source = np.zeros((len(self.images), len(classes)), bool)
        for source, own in self.pixels_of(model, "test case").frame[["source", "protected"]].itertuples(index=False):
            of_source[source, own] = True
        for role in ROLES:
            pixels = self.pixels_of(model, role)
            ious = pixels.ious(groups)
            if role == "original":
                before[pixels.source] = ious
                could = of_source[pixels.source] & np.isfinite(ious)
                lost = could & (ious < LOST)
            else:
                protected = np.zeros(ious.shape, bool)
                for at, own in enumerate(pixels.frame["protected"]):
                    protected[at, own] = True
                could = protected & (before[pixels.source] >= LOST) & np.isfinite(ious)
                lost = could & (before[pixels.source] - ious >= LOST)
            frame = pixels.frame.assign(comparable=could.any(axis=1), label="kept", could=list(could), lost=list(lost))
            frame["predicted"] = np.where(lost.any(axis=1), "lost", "kept")
            frames[role] = frame
        return frames

    def right(self, model: int) -> Array:
        """Return for each test case 1 if the model is right, 0 if it is wrong, and -1 if it cannot be compared, or its
        original cannot.
        """
        first, cases = self.answers(model, "original"), self.answers(model, "test case")
        known = {*first.source[first.known].tolist()}
        found = {
            image: int(not wrong)
            for image, wrong, is_known, source in zip(
                cases.frame["image"], cases.wrong, cases.known, cases.source.tolist(), strict=True
            )
            if is_known and source in known
        }
        return np.array([found.get(image, -1) for image in self.cases["image"]])

    def evaluation(self, model: int) -> Rows:
        """Yield all figures of one model."""
        weighing, labels = self.settings["weighing"], self.settings["models"][model - 1]["labels"]
        first, cases, control = (self.answers(model, role) for role in ROLES)
        mixed = self.cases["control_set"].nunique() > 1
        has_control = (self.images["role"] == "reconstruction").any()
        found, both = errors(first, cases, control if has_control else None, weighing, mixed)
        yield from found.items()
        yield from classes(first, cases, both, labels, weighing)
        yield from confusion(first, cases, both, labels)
        yield from calibration(first, both, "originals")
        yield from calibration(cases, both, "generated images")

        after = self.cases["image"].map(dict(zip(cases.frame["image"], cases.frame["true"], strict=True)))
        pairs = list(zip(control.source.tolist(), control.way.tolist(), strict=True))
        change = after.to_numpy(float) - self.compared_with(
            mean_by(list(first.source), first.frame["true"].to_numpy(float)),
            mean_by(pairs, control.frame["true"].to_numpy(float)),
        )
        wrong = np.isin(self.cases["image"], cases.frame["image"][cases.wrong])
        right_before = np.isin(self.cases["source"].to_numpy(int), first.source[first.known & ~first.wrong])
        yield from edit_tables(self.cases, self.edits, change, wrong & right_before, labels, weighing)
        yield from self.valid_faults(model, wrong, found["all: error on generated images"], "wrong")

    def compared_with(self, of_source: Mapping[int, float], drawn: Mapping[tuple[int, int], float]) -> Array:
        """Return for each test case the figure that it is compared with: the mean of the reconstructions of its source
        in its own control set, or of the original if no test case has a reconstruction.
        """
        own = list(zip(self.cases["source"], self.cases["control_set"], strict=True))
        of_control = np.array([drawn.get(pair, np.nan) if pair[1] >= 0 else np.nan for pair in own], float)
        if np.isfinite(of_control).any():
            return of_control
        return np.array([of_source.get(source, np.nan) for source in self.cases["source"]], float)

    def valid_faults(self, model: int, wrong: Array, measured: Record, words: str) -> Rows:
        """Yield the figures on faults that are valid; `words` name a fault."""
        known = self.right(model) >= 0
        judged, ballots = judged_images(self.cases[known], self.studies, self.items)
        seen = (judged["decided"] | judged["undecided"]).to_numpy(bool)
        if not seen.any():
            return
        stratum, strata = strata_of(self.cases, self.edits, wrong, self.settings["edit_types"])
        accepted = self.cases["accepted"].to_numpy(bool)[known]
        score = self.cases["validity_score"].to_numpy(float)[known]
        judged["source"], judged["wrong"] = self.cases["source"].to_numpy(int)[known], wrong[known]
        judged["stratum"], judged["score"] = stratum[known], score
        judged["outside"] = ~accepted if all_of_a_part(accepted, seen) else False
        yield "validity: as measured", measured
        has_score = bool(np.isfinite(score).any())
        for name, one in validity(judged, ballots, strata, self.settings["weighing"], has_score):
            error = "error" if words == "wrong" else words
            yield name.replace("wrong and valid", f"{words} and valid").replace("error among", f"{error} among"), one

    def segmentation(self, model: int) -> Rows:
        """Yield all figures of one segmenter."""
        about, weighing = self.settings["models"][model - 1], self.settings["weighing"]
        first, cases, control = (self.pixels_of(model, role) for role in ROLES)
        mixed, drawn = self.cases["control_set"].nunique() > 1, (self.images["role"] == "reconstruction").any()
        holds = cases.frame["mask_holds"].to_numpy(bool)
        reconstructed = control if drawn else None
        yield from pixel_figures(first, cases, reconstructed, holds, weighing, mixed, about["labels"])
        losses = {role: Answers(frame) for role, frame in self.losses(model).items()}
        lost = losses["test case"]
        found, _ = errors(losses["original"], lost, losses["reconstruction"] if drawn else None, weighing, mixed)
        whole = {name: found[f"all: {name}"] for name in LOSS_NAMES}
        yield from ((f"all: {words}", whole[name]) for name, words in LOSS_NAMES.items())
        n = {key: whole["error on generated images"][key] for key in ("n", "sources")}
        counts = whole["newly wrong"]
        yield "all: test cases with no class to lose", counts | {"value": int((~lost.known).sum())}
        for name in dict.fromkeys(one["name"] for one in about["protected"]):
            own = [at for at, one in enumerate(about["protected"]) if one["name"] == name]
            numbers = []
            for role in ("test case", "reconstruction"):
                could, gone = (losses[role].frame[key].tolist() for key in ("could", "lost"))
                numbers.append([sum(int(one[own].sum()) for one in column) for column in (could, gone)])
            if not (numbers[0][0] or numbers[1][0]):
                continue
            for what, (of, number) in zip(("generated images", "reconstructions"), numbers, strict=True):
                share = number / of if of else None
                yield f"protected: {name}: lost on {what}", figure(share, n=of, sources=counts["sources"])

        after = self.cases["image"].map(dict(zip(cases.frame["image"], cases.right_share, strict=True)))
        change = after.to_numpy(float) - self.compared_with(
            mean_by(list(first.source), first.right_share),
            mean_by(list(zip(control.source.tolist(), control.way.tolist(), strict=True)), control.right_share),
        )
        wrong = np.isin(self.cases["image"], lost.frame["image"][lost.wrong])
        for name, one in edit_tables(self.cases, self.edits, change, wrong, None, weighing):
            yield name, one
            if name.endswith(": newly wrong"):
                yield name.removesuffix("newly wrong") + "loses a class", one
        yield from self.valid_faults(model, wrong, whole["error on generated images"] | n, "loses a class")

    def comparison(self) -> Rows:
        """Yield the figures of two models on the test cases that can be compared with both."""
        right = np.stack([self.right(1), self.right(2)])
        known = (right >= 0).all(axis=0)
        wrong = right[:, known] == 0
        sources, place = np.unique(self.cases["source"].to_numpy(int)[known], return_inverse=True)
        cases = np.bincount(place).astype(float)
        shares = np.stack([np.bincount(place, one) / cases for one in wrong], axis=1)
        means = SourceMeans(shares, cases if self.settings["weighing"] == "case" else None)
        n = int(known.sum())
        yield "error of the first model", means.figure(lambda m: m[..., 0], n)
        yield "error of the second model", means.figure(lambda m: m[..., 1], n)
        yield "second less first", means.figure(lambda m: m[..., 1] - m[..., 0], n)
        beside = {"n": n, "sources": len(sources)}
        yield "test cases that only the first gets wrong", figure(int((wrong[0] & ~wrong[1]).sum()), **beside)
        yield "test cases that only the second gets wrong", figure(int((wrong[1] & ~wrong[0]).sum()), **beside)
        yield "test cases left out", figure(int((~known).sum()), **beside)

    def figures(self) -> Rows:
        """Yield every figure by its name."""
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
    """Return the numbers of a figure in words."""
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
