"""Compare methods that make test cases, such as DILLEMA and LANCE, on the same sources. Pure.

A figure of a method has a 95 % interval over sources. A difference is a method's figure minus the reference method's
figure, over the sources of both methods. So the difficulty of a source cancels. If a figure is a share of images, each
source weighs the same. Valid failures per 100 images and per minute are totals over sources, divided by the totals of
images and of model time.

An image is valid if people say so, in a study or a review. If nobody judged it, it is valid if it fails none of the
checks that all methods have. So figures "by checks" are only as good as the checks. Figures "by votes" use a study's
sample alone (`evaluation.validity`). Their differences combine two intervals as if they were independent (Zou and
Donner 2008, Statistics in Medicine 27), so their intervals are rather too wide than too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from core.evaluation_results import FEWEST_CASES
from core.figures import Columns, Figure, Flags, Floats, Numbers, ratio
from evaluation.by_source import MeansOfSources, Statistic, Unseen
from evaluation.search import WEAK, detected
from evaluation.validity import Judged, validity_effect

YES, NO, UNKNOWN = 1, 0, -1
NO_IMAGE = "it has no such image"
FEW = f"fewer than {FEWEST_CASES} images"
Unit = Literal["share", "number"]
Votes = Callable[[Flags], "tuple[Judged, Sequence[str]] | None"]
"""Function that takes flags of images and returns people's votes on them, with the names of their strata. In the votes,
`Judged.wrong` marks new faults of the model. Returns None if nobody voted on any of these images."""


@dataclass(frozen=True)
class MethodImages(Columns):
    """Test cases of several methods, column by column. The columns from `judged` on hold `YES`, `NO` or `UNKNOWN`."""

    method: Numbers
    source: Numbers
    """Number of each image's source, from 0. `method` holds the number of its method, from 0."""
    edit_type: Numbers
    """Number of each image's edit type, from 0; -1 for none or several."""
    cell: Numbers
    """Index of each image's cell (label, edit type and alternative together); -1 if it has no edit or several edits."""
    judged: Numbers
    """`YES` if people find the image valid, in a study or a review."""
    passed: Numbers
    """`YES` if the image fails none of the checks that all methods have; `UNKNOWN` without such checks."""
    shows: Numbers
    """`YES` if a check finds the edit in the image."""
    kept: Numbers
    """`YES` if a check finds that the image still shows its label, or fits its mask."""
    wrong: Numbers
    """`YES` if the model under test is wrong on the image."""
    fault: Numbers
    """`YES` if the model is wrong on the image and right on its source."""

    @property
    def valid(self) -> Numbers:
        """`YES` for each valid image, `NO` or `UNKNOWN` otherwise. People's judgement comes first, then the checks."""
        return np.where(self.judged == UNKNOWN, self.passed, self.judged)

    @property
    def valid_failure(self) -> Numbers:
        """`YES` if the image is valid and shows a new fault of the model. `NO` if people find the image invalid. For
        other images, `UNKNOWN` if the fault or the validity is unknown, and `NO` if both are known. An image of unknown
        validity is `UNKNOWN` even if the model is right on it, because `NO` would bias the figures.
        """
        failure = np.where((self.fault == YES) & (self.valid == YES), YES, NO)
        unknown = ((self.fault == UNKNOWN) | (self.valid == UNKNOWN)) & (self.judged != NO)
        return np.where(unknown, UNKNOWN, failure)


@dataclass(frozen=True)
class MethodFigure:
    """One figure, with a value for each method, in the order of the methods."""

    name: str
    unit: Unit
    values: tuple[Figure, ...]
    differences: tuple[Figure | None, ...]
    """Each method's figure minus the reference method's, over the sources that both have. None for the reference."""


@dataclass(frozen=True)
class MethodTable:
    """Table of the figures of all methods, for all edits or for one edit type."""

    edit_type: str
    """Name of the edit type; "" for all edits."""
    images: tuple[int, ...]
    sources: tuple[int, ...]
    """For each method, the number of sources with an image."""
    shared: tuple[int, ...]
    """For each method, the number of sources with an image of it and an image of the reference method."""
    figures: tuple[MethodFigure, ...]


@dataclass(frozen=True, eq=False)
class _Measure:
    """Data from which a figure of each method is computed: values of sources, and a statistic of their means."""

    columns: Floats
    """Values of each source for each method, (methods, sources, k)."""
    counts: Flags
    worst: Floats
    """Values, (methods, k), that an unseen source would have in the worst case. They give the lowest figure."""
    best: Floats
    statistic: Statistic
    images: Numbers
    missing: str
    """Reason to give if no source counts, so that the figure has no value."""

    def value(self, method: int) -> Figure:
        counts = self.counts[method]
        n, ends = int(self.images[method, counts].sum()), (self.worst[method], self.best[method])
        return self._figure(self.columns[method, counts], *ends, self.statistic, n)

    def difference(self, method: int, reference: int) -> Figure:
        both, k = self.counts[method] & self.counts[reference], self.columns.shape[2]
        columns = np.concatenate([self.columns[one, both] for one in (method, reference)], axis=1)
        worst = np.concatenate([self.worst[method], self.best[reference]])
        best = np.concatenate([self.best[method], self.worst[reference]])
        n = min(int(self.images[one, both].sum()) for one in (method, reference))

        def statistic(of: Floats) -> Floats:
            return self.statistic(of[..., :k]) - self.statistic(of[..., k:])

        return self._figure(columns, worst, best, statistic, n)

    def _figure(self, columns: Floats, worst: Floats, best: Floats, statistic: Statistic, n: int) -> Figure:
        if n < FEWEST_CASES:
            return Figure(None, n=n, sources=len(columns), why=FEW if n or not self.missing else self.missing)
        together = np.zeros(len(worst), np.int64)
        return MeansOfSources(columns, None, Unseen(worst, best, together)).figure(statistic, n)


class _Group:
    """Computes the figures of some images, such as all images of one edit type."""

    def __init__(self, images: MethodImages, own: Flags, methods: int, sources: int) -> None:
        self._images, self._own, self._shape = images, own, (methods, sources)
        self.made = self._sums(np.ones(len(images), bool))
        """Number of images, (methods, sources)."""

    def share(self, column: Numbers, missing: str) -> _Measure:
        """Return the share of `YES` among the known values of a column, as a mean over sources."""
        yes, known = self._sums(column == YES), self._sums(column != UNKNOWN)
        ends = np.zeros((self._shape[0], 1)), np.ones((self._shape[0], 1))
        return _Measure(ratio(yes, known)[..., None], known > 0, *ends, lambda of: of[..., 0], known, missing)

    def excess(self, control: Floats) -> _Measure:
        """Return the error rate minus the error rate on the control set, over the sources with a control set."""
        wrong, known = self._sums(self._images.wrong == YES), self._sums(self._images.wrong != UNKNOWN)
        counts = (known > 0) & np.isfinite(control)
        ends = np.tile([0.0, 1.0], (self._shape[0], 1))
        return _Measure(
            np.stack([ratio(wrong, known), control], axis=-1),
            *(counts, ends, 1 - ends, lambda of: of[..., 0] - of[..., 1], known, "it has no control set"),
        )

    def rate(self, above: Numbers, below: Floats, times: float, missing: str) -> _Measure:
        """Return `times` x the count of `YES` in `above` / the sum of `below`. Sources with `below` 0 do not count."""
        columns = np.stack([self._sums(above == YES).astype(np.float64), below], axis=-1)
        counts = below > 0
        typical = ratio(np.where(counts, below, 0).sum(1), counts.sum(1))
        most = ratio(np.where(counts, self.made, 0).sum(1), counts.sum(1))  # all images of a typical source
        worst, best = np.stack([np.zeros_like(typical), typical], 1), np.stack([most, typical], 1)
        columns[~counts] = 0.0

        def statistic(of: Floats) -> Floats:
            return times * ratio(of[..., 0], of[..., 1])

        return _Measure(columns, counts, worst, best, statistic, self.made, missing)

    def known(self, column: Numbers) -> Floats:
        """Return the number of images with a known value in `column`, (methods, sources)."""
        return self._sums(column != UNKNOWN).astype(np.float64)

    def _sums(self, flags: Flags) -> Numbers:
        methods, sources = self._shape
        place = (self._images.method * sources + self._images.source)[self._own & flags]
        return np.bincount(place, minlength=methods * sources).reshape(self._shape)


def compare_methods(
    images: MethodImages,
    edit_types: Sequence[str],
    control: Floats,
    seconds: Floats,
    reference: int = 0,
    votes: Votes = lambda _own: None,
) -> tuple[MethodTable, ...]:
    """Compare methods. Return a table for all edits, then one table per edit type. An edit type has a table if several
    methods have at least `FEWEST_CASES` images of it.

    `control` is the model's error rate on each method's control set, (methods, sources), 0 to 1; NaN without one.
    `seconds`, (methods, sources), is the time that all models ran to make the images, from caption to drawing. It is
    NaN if unknown, 0 if the method did not try the source.
    """
    methods, sources = control.shape
    everything = np.ones(len(images), bool)
    compared = _Compared(images, control, reference, votes)
    whole = _Group(images, everything, methods, sources)
    kinds = [np.unique(images.edit_type[images.method == one]) for one in range(methods)]
    tables = [compared.table("", everything, seconds, kinds)]
    for number, name in enumerate(edit_types):
        own = images.edit_type == number
        if (np.bincount(images.method[own], minlength=methods) >= FEWEST_CASES).sum() < 2:
            continue
        # All images of a source share its time.
        time = seconds * np.nan_to_num(ratio(_Group(images, own, methods, sources).made, whole.made))
        tables.append(compared.table(name, own, time, [()] * methods))
    return tuple(tables)


def weak_cells(images: MethodImages, method: int, weak: float = WEAK) -> Numbers:
    """Return the numbers of the cells in which a method's images show that the model is weak: more than the share
    `weak` of them are valid failures. Only the first image of each source in a cell counts, because images of one
    source often fail together. On average at most 5 % of the returned cells are not weak.
    """
    failure = images.valid_failure
    own = np.flatnonzero((images.method == method) & (images.cell >= 0) & (failure != UNKNOWN))
    if not len(own):
        return np.zeros(0, np.int64)
    pairs = images.cell[own] * (int(images.source.max()) + 1) + images.source[own]
    own = own[np.unique(pairs, return_index=True)[1]]
    cells, place = np.unique(images.cell[own], return_inverse=True)
    faults = np.bincount(place, weights=failure[own] == YES, minlength=len(cells)).astype(np.int64)
    found: Numbers = cells[detected(np.bincount(place), faults, weak)]
    return found


@dataclass(frozen=True, eq=False)
class _Compared:
    images: MethodImages
    control: Floats
    reference: int
    votes: Votes

    def table(self, name: str, own: Flags, seconds: Floats, kinds: Sequence[Sized]) -> MethodTable:
        """Return the table of images in `own`. `kinds` has each method's edit types, or () in a table of one type."""
        images, reference, methods = self.images, self.reference, len(seconds)
        group = _Group(images, own, *self.control.shape)
        failure = images.valid_failure
        no_time = "its model time, or the validity of all its images, is not known"
        known = group.known(failure)
        # The time of images that the model has not read does not count.
        time = np.nan_to_num(seconds) * np.where(group.made > 0, ratio(known, group.made), 1.0)
        measures = {
            "valid": group.share(images.valid, "neither people nor a shared check judged the images"),
            "edit shows": group.share(images.shows, "it has no such check"),
            "label kept": group.share(images.kept, "it has no such check"),
            "wrong": group.share(images.wrong, "the model has not read it"),
            "excess": group.excess(self.control),
            "failures of 100": group.rate(failure, known, 100.0, "no image has a known validity and model result"),
            "failures a minute": group.rate(failure, time, 60.0, no_time),
        }
        names = [*measures]
        if self.votes(own) is not None:
            names += ["valid by votes", "failures of 100 by votes", "failures a minute by votes"]

        def by_votes(method: int, sources: Flags) -> Sequence[Figure]:
            if len(names) == len(measures):
                return ()
            selected = own & (images.method == method) & sources[images.source]
            minutes = np.where(sources, seconds[method] / 60, 0.0)
            return _voted(self.votes(selected), int(selected.sum()), minutes)

        has, everywhere = group.made > 0, np.ones(group.made.shape[1], bool)
        values, differences = list[list[Figure]](), list[Sequence[Figure | None]]()
        for one in range(methods):
            nothing = None if has[one].any() else Figure(None, why=NO_IMAGE)
            values.append([*(nothing or each.value(one) for each in measures.values()), *by_votes(one, everywhere)])
            unlike = _unlike(kinds, one, reference) if has[one].any() and has[reference].any() else NO_IMAGE
            if one == reference or unlike:
                differences.append([None if one == reference else Figure(None, why=unlike)] * len(names))
                continue
            both = has[one] & has[reference]
            votes = zip(by_votes(one, both), by_votes(reference, both), strict=True)
            less = [each.difference(one, reference) for each in measures.values()]
            differences.append([*less, *(difference_of(*pair) for pair in votes)])
        rows = zip(names, zip(*values, strict=True), zip(*differences, strict=True), strict=True)
        figures = tuple(
            MethodFigure(key, "number" if key.startswith("failures") else "share", of_all, less)
            for key, of_all, less in rows
        )
        images_of, sources_of, shared = (one.sum(1).tolist() for one in (group.made, has, has & has[reference]))
        return MethodTable(name, tuple(images_of), tuple(sources_of), tuple(shared), figures)


def _unlike(kinds: Sequence[Sized], method: int, reference: int) -> str:
    if len(kinds[method]) == 1 and len(kinds[reference]) > 1:
        return "it makes edits of one type: compare within this type"
    if len(kinds[reference]) == 1 and len(kinds[method]) > 1:
        return "the reference makes edits of one type: compare within this type"
    return ""


def _voted(found: tuple[Judged, Sequence[str]] | None, n: int, minutes: Floats) -> tuple[Figure, Figure, Figure]:
    """Return a method's figures from votes: valid share, valid failures per 100 images, valid failures per minute."""
    if found is None or n < FEWEST_CASES:
        nothing = Figure(None, n=n, why=FEW if n < FEWEST_CASES else "nobody judged an image")
        return nothing, nothing, nothing
    judged, strata = found
    valid = validity_effect(replace(judged, wrong=np.ones(len(judged), bool)), strata).by_strata
    failures = validity_effect(judged, strata, weighing="case").by_strata
    made = np.bincount(judged.source, minlength=len(minutes))
    counts = (made > 0) | (minutes > 0)
    if not np.isfinite(minutes).all() or not minutes.sum():
        a_minute = Figure(None, n=n, why="its model time is not known")
    else:
        columns = np.stack([minutes[counts], made[counts].astype(np.float64)], axis=1)
        typical, images = columns.mean(axis=0).tolist()  # an unseen source takes no time, or twice the usual
        unseen = Unseen(np.array([0.0, images]), np.array([2 * typical, images]), np.zeros(2, np.int64))
        an_image = MeansOfSources(columns, None, unseen).figure(lambda of: ratio(of[..., 0], of[..., 1]), n)
        a_minute = quotient_of(failures, an_image)
    return valid, _times(failures, 100.0), a_minute


def difference_of(first: Figure, second: Figure) -> Figure:
    """Return `first` minus `second`. Its interval combines both intervals as if they were independent. If a figure has
    bounds but no value, so has the difference.
    """
    n, sources = min(first.n, second.n), min(first.sources, second.sources)
    ends = first.low, first.high, second.low, second.high
    if first.value is None or second.value is None or None in ends:
        why = first.why or second.why
        if None in ends:
            return Figure(None, n=n, sources=sources, why=why)
        return Figure(None, ends[0] - ends[3], ends[1] - ends[2], n, sources, why)  # type: ignore[operator]
    value = first.value - second.value
    below = math.hypot(first.value - ends[0], ends[3] - second.value)  # type: ignore[operator]
    above = math.hypot(ends[1] - first.value, second.value - ends[2])  # type: ignore[operator]
    return Figure(value, value - below, value + above, n, sources)


def quotient_of(first: Figure, second: Figure) -> Figure:
    """Return `first` / `second`, both at least 0. The interval is computed as in `difference_of`, from logarithms."""
    n, sources = first.n, first.sources
    if not second.value or not second.low or second.high is None or first.low is None or first.high is None:
        return Figure(None, n=n, sources=sources, why=first.why or second.why or "its model time is not known")
    if first.value is None:
        return Figure(None, first.low / second.high, first.high / second.low, n, sources, first.why)
    if not first.value:  # zero has no logarithm
        return Figure(0.0, 0.0, first.high / second.low, n, sources)
    value = first.value / second.value
    low = 0.0
    if first.low > 0:
        reach = math.hypot(math.log(first.value / first.low), math.log(second.high / second.value))
        low = value * math.exp(-reach)
    reach = math.hypot(math.log(first.high / first.value), math.log(second.value / second.low))
    return Figure(value, low, value * math.exp(reach), n, sources)


def _times(figure: Figure, factor: float) -> Figure:
    value, low, high = (None if one is None else factor * one for one in (figure.value, figure.low, figure.high))
    return replace(figure, value=value, low=low, high=high)
