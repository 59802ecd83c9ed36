"""Methods that make test cases, such as DILLEMA and LANCE, compared on the same sources. Pure.

A figure of a method has a 95 % interval over sources. A difference is the figure of a method minus that of the
reference method, over the sources that both have, so that what makes a source hard for both cancels. In shares each
source weighs the same. Valid failures per 100 images and per minute are totals over sources, divided by the totals of
images and of model time.

An image is valid if people say so, in a study or a review. If nobody judged it, it is valid if it fails none of the
checks that all methods have. So figures "by checks" are as good as the checks. Figures "by votes" use a study's sample
alone (`evaluation.validity`). Their differences combine two intervals as if they were independent (Zou and Donner 2008,
Statistics in Medicine 27), which is too wide rather than too narrow if sources are hard for both methods.
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
"""Takes flags of images and returns people's votes on them, new faults of the model as `Judged.wrong`, with the names
of their strata. Returns None if nobody voted on any of these images."""


@dataclass(frozen=True)
class MethodImages(Columns):
    """Test cases of several methods, column by column. Columns from `judged` on are `YES`, `NO` or `UNKNOWN`."""

    method: Numbers
    source: Numbers
    """Number of each image's source, from 0. `method` has the number of each image's method, from 0."""
    edit_type: Numbers
    """Number of each image's edit type, from 0; -1 for none or several."""
    cell: Numbers
    """Number of each image's cell (label, edit type, alternative), from 0; -1 for an image without exactly one edit."""
    judged: Numbers
    """Whether people find the image valid, in a study or a review."""
    passed: Numbers
    """`YES` if the image fails none of the checks that all methods have, `UNKNOWN` if methods share no check."""
    shows: Numbers
    """Whether the edit is visible in the image, by a check."""
    kept: Numbers
    """Whether the image still shows its label or fits its mask, by a check."""
    wrong: Numbers
    """Whether the model under test is wrong."""
    fault: Numbers
    """Whether the model is wrong though it is right on the source."""

    @property
    def valid(self) -> Numbers:
        """Whether each image is valid: by people, else by the checks."""
        return np.where(self.judged == UNKNOWN, self.passed, self.judged)

    @property
    def valid_failure(self) -> Numbers:
        """Whether each image is valid and shows a new fault of the model. `UNKNOWN` if one of the two is unknown: right
        answers on images of unknown validity are left out like faults, so the rate has no bias. An image that people
        find invalid is `NO`, even if the model has not read it.
        """
        failure = np.where((self.fault == YES) & (self.valid == YES), YES, NO)
        unknown = ((self.fault == UNKNOWN) | (self.valid == UNKNOWN)) & (self.judged != NO)
        return np.where(unknown, UNKNOWN, failure)


@dataclass(frozen=True)
class MethodFigure:
    """One figure of all methods, in their order."""

    name: str
    unit: Unit
    values: tuple[Figure, ...]
    differences: tuple[Figure | None, ...]
    """Each method's figure minus the reference's, over the sources that both have. None for the reference."""


@dataclass(frozen=True)
class MethodTable:
    """The figures of all methods, for all edits or one edit type."""

    edit_type: str
    """Name of the edit type; "" for all edits."""
    images: tuple[int, ...]
    sources: tuple[int, ...]
    """Number of sources that each method has an image of."""
    shared: tuple[int, ...]
    """Number of sources that both the method and the reference have an image of."""
    figures: tuple[MethodFigure, ...]


@dataclass(frozen=True, eq=False)
class _Measure:
    """A figure that is a statistic of means over sources."""

    columns: Floats
    """Values of each source, (methods, sources, k)."""
    counts: Flags
    worst: Floats
    """The values of a source that would lower the figure most, (methods, k)."""
    best: Floats
    statistic: Statistic
    images: Numbers
    missing: str
    """Reason that the figure gives if no source counts."""

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
    """The figures of some images, such as all of one edit type."""

    def __init__(self, images: MethodImages, own: Flags, methods: int, sources: int) -> None:
        self._images, self._own, self._shape = images, own, (methods, sources)
        self.made = self._sums(np.ones(len(images), bool))
        """Number of images of each method and source, (methods, sources)."""

    def share(self, column: Numbers, missing: str) -> _Measure:
        """Return the share of images with `YES` among those with a known value, as a mean over sources."""
        yes, known = self._sums(column == YES), self._sums(column != UNKNOWN)
        ends = np.zeros((self._shape[0], 1)), np.ones((self._shape[0], 1))
        return _Measure(ratio(yes, known)[..., None], known > 0, *ends, lambda of: of[..., 0], known, missing)

    def excess(self, control: Floats) -> _Measure:
        """Return the error minus the error on the method's control set, over the sources with such a set."""
        wrong, known = self._sums(self._images.wrong == YES), self._sums(self._images.wrong != UNKNOWN)
        counts = (known > 0) & np.isfinite(control)
        ends = np.tile([0.0, 1.0], (self._shape[0], 1))
        return _Measure(
            np.stack([ratio(wrong, known), control], axis=-1),
            *(counts, ends, 1 - ends, lambda of: of[..., 0] - of[..., 1], known, "it has no control set"),
        )

    def rate(self, above: Numbers, below: Floats, times: float, missing: str) -> _Measure:
        """Return `times` x the number of `YES` in `above` / the sum of `below`, over sources with `below` above 0."""
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
        """Return the number of images whose value is known, (methods, sources)."""
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
    """Compare methods: a table for all edits, then one for each edit type with at least `FEWEST_CASES` images of
    several methods each.

    `control` is the model's error on the control set of each method and source, (methods, sources), 0 to 1; NaN without
    one. `seconds` is the model time of each method and source, all images included: captions, language model,
    inversion and drawing. NaN if unknown, 0 if the method did not try the source.
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
    """Return the numbers of the cells in which the images of a method show that the model is weak: more than a share
    `weak` of them are valid failures. Of the images of one source in a cell, only the first counts, since the others
    fail with it. On average at most 5 % of the cells returned are not weak.
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
        """Compare the images of `own`. `kinds` are the edit types of each method; empty if `own` has one edit type."""
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
    """Return the valid share, and the valid failures per 100 images and per minute, of the images of one method."""
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
    """Return `first` minus `second`, with an interval from both as if they were independent. If one of the figures is
    only bounded, so is the difference.
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
    """Return `first` divided by `second`, both at least 0. The interval is as in `difference_of`, of logarithms."""
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
