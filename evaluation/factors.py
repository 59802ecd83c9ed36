"""Estimate which edits break a model, alone or together: main effects and two-way interactions of factors. Pure.

A factor is an edit type, such as weather. Its levels are “unchanged” and each alternative. A main effect is the effect
of a level with all other factors unchanged. An interaction is the effect of two levels together, minus the sum of their
single effects. So "night and rain" is distinguished from "night".

The model is linear, with an intercept for each source: only images of one source are compared with each other. Effects
are estimated by least squares, so a source need not have all combinations. Interactions of three factors are assumed to
be 0. Intervals come from the jackknife over sources (CR3, MacKinnon, Nielsen and Webb 2023, Journal of Econometrics
232) with Student's t distribution. As in `by_source`, one imagined source is added to represent sources that were not
tested. The effect in this source is 1 or -1 with equal chance. So an interval has a width even if the effect is 0 in
all tested sources. P-values are corrected for all rows by Holm's method.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from core.evaluation_results import EffectAnswer, EffectRow, FactorEffects, MixedRow, Weighing
from core.figures import Columns, Figure, Flags, Floats, Numbers
from evaluation.by_source import CONFIDENCE, MeansOfSources, adjusted, needed_sources, shares_of_sources

FEWEST = 5
"""Minimum number of sources to estimate an effect. Rarer levels of a factor are merged into one."""
ANY, OTHER = "any change", "other changes"
"""Names of two merged levels: all alternatives of a factor, and its rare alternatives."""
APART = "these images cannot tell it from other effects: draw the control set, or captions that change only one of both"
AT_ONCE = 500
"""Maximum number of sources in one step of the computation."""
_ZERO = 1e-9
"""Limit for eigenvalues, as a share of the information matrix's largest one. Smaller eigenvalues count as 0."""


@dataclass(frozen=True)
class Levels(Columns):
    """Images with the level of each factor in their captions, such as weather: “rain”."""

    source: Numbers
    levels: Numbers
    """Level of each factor, (images, factors): 0 if unchanged, else 1 + the index in `names`."""
    factors: Sequence[str]
    names: Sequence[Sequence[str]]
    """For each factor, the names of its changed levels."""

    def by_factor(self) -> Levels:
        """Return the same images with only two levels per factor: unchanged and changed."""
        return replace(self, levels=np.minimum(self.levels, 1), names=[(ANY,)] * len(self.factors))


class _Effect(NamedTuple):
    parts: tuple[tuple[str, str], ...]
    """Factors with their level: one pair, or two for an interaction. Empty for the merged rare combinations."""
    column: Flags


class _Fit(NamedTuple):
    figure: Figure
    error: float
    """Standard error of the effect; NaN if unknown."""
    p_value: float


def effects(images: Levels, outcome: Floats, weighing: Weighing = "source") -> FactorEffects:
    """Return all main effects and two-way interactions. `outcome` has a value per image, 0 to 1, or NaN if unknown."""
    known = np.isfinite(outcome)
    where, images, outcome = np.flatnonzero(known), images.where(known), outcome[known]
    found, few = _effects(images)
    all_fits = _fitted(images.source, [one.column for one in found], outcome, weighing)
    fits = [(one, fit) for one, fit in zip(found, all_fits, strict=True) if one.parts]
    p_adjusted = adjusted(np.array([fit.p_value for _, fit in fits]))
    tests = int(np.isfinite(p_adjusted).sum())
    rows = [_row(one, fit, p, tests, where) for (one, fit), p in zip(fits, p_adjusted.tolist(), strict=True)]
    unchanged = ~images.levels.any(axis=1)
    combos = np.unique(np.column_stack([images.source, images.levels]), axis=0)
    return FactorEffects(
        unchanged=_mean(images.source[unchanged], outcome[unchanged], weighing),
        rows=tuple(sorted(rows, key=_place)),
        few=few,
        images=len(outcome),
        sources=int((np.unique(combos[:, 0], return_counts=True)[1] > 1).sum()),
    )


def mixed(images: Levels, looks: Floats) -> tuple[MixedRow, ...]:
    """Return a row for each pair of factors A and B: how much a requested change of A also changes the look of B.
    `looks`, (images, factors), tells how much the look of a factor changed in an image: 0 to 1, NaN if unknown. A pair
    needs an image whose caption changes A and keeps B, and in which the look of B is known.
    """
    plain, found = images.by_factor(), list[tuple[str, str, _Fit, Figure]]()
    for seen, name in enumerate(plain.factors):
        known = np.isfinite(looks[:, seen])
        with_name = _main_effects(plain.where(known), looks[known, seen])
        none = Figure(None, why="it is asked for in none of these images")
        own = with_name[name].figure if name in with_name else none
        # A requested change of the factor itself changes its look, so only images without that are compared.
        known &= plain.levels[:, seen] == 0
        fits = _main_effects(plain.where(known), looks[known, seen])
        found += [(changed, name, fit, own) for changed, fit in fits.items()]
    p_adjusted = adjusted(np.array([fit.p_value for _, _, fit, _ in found]))
    rows = [
        MixedRow(changed, seen, fit.figure, own, None if np.isnan(p) else p)
        for (changed, seen, fit, own), p in zip(found, p_adjusted.tolist(), strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (not row.mixes, -(row.effect.value or 0.0), row.asked, row.seen)))


def _main_effects(images: Levels, outcome: Floats) -> dict[str, _Fit]:
    """Return the effect of each factor on an outcome, by the factor's name. `images` come from `Levels.by_factor`."""
    found, _ = _effects(images, pairs=False)
    fits = _fitted(images.source, [one.column for one in found], outcome, "source")
    return {one.parts[0][0]: fit for one, fit in zip(found, fits, strict=True)}


def _effects(images: Levels, pairs: bool = True) -> tuple[list[_Effect], int]:
    """Return all effects that occur in at least one image, and the number of rare combinations of two levels."""
    found, factors, few = list[_Effect](), list[tuple[str, Numbers, list[str]]](), 0
    for factor, names, level in zip(images.factors, images.names, images.levels.T, strict=True):
        numbers, frequent, _ = _pooled(level, images.source, len(names))
        factors.append((factor, numbers, [OTHER if at < 0 else names[at] for at in frequent]))
        found += [_Effect(((factor, name),), numbers == at + 1) for at, name in enumerate(factors[-1][2])]
    for (first, a, names), (second, b, others) in combinations(factors, 2) if pairs else ():
        combos = [((first, one), (second, other)) for one in names for other in others]
        both = np.where((a > 0) & (b > 0), (a - 1) * len(others) + b, 0)
        numbers, frequent, rare = _pooled(both, images.source, len(combos))
        few += rare
        found += [_Effect(combos[of] if of >= 0 else (), numbers == at + 1) for at, of in enumerate(frequent)]
    return found, few


def _pooled(level: Numbers, source: Numbers, levels: int) -> tuple[Numbers, list[int], int]:
    """Merge all rare levels (fewer than `FEWEST` sources) into one, and drop levels without an image. Level 0 stays.
    Return each image's new level, each new level's old index (-1 for the merged one), and the number of rare levels.
    """
    sources = np.bincount(np.unique(np.column_stack([level, source]), axis=0)[:, 0], minlength=levels + 1)[1:]
    frequent, rare = np.flatnonzero(sources >= FEWEST), np.flatnonzero((sources > 0) & (sources < FEWEST))
    new = np.zeros(levels + 1, np.int64)
    new[frequent + 1], new[rare + 1] = np.arange(1, len(frequent) + 1), len(frequent) + 1
    return new[level], [*frequent.tolist(), *[-1] * bool(len(rare))], len(rare)


def _fitted(source: Numbers, columns: Sequence[Flags], outcome: Floats, weighing: Weighing) -> list[_Fit]:
    """Return the effect of each column on the outcome, from comparisons within sources."""
    from scipy import stats

    if not columns or not len(outcome):
        return [_Fit(Figure(None, why="there is nothing to compare"), np.nan, np.nan) for _ in columns]
    x, count = np.stack(columns, axis=1).astype(np.float64), len(columns)
    parts = list(_centred(source, x, outcome, weighing))
    information, products, sources = np.zeros((count, count)), np.zeros(count), np.zeros(count, np.int64)
    for inside, answers in parts:
        information += np.einsum("snp,snq->pq", inside, inside, optimize=True)
        products += np.einsum("snp,sn->p", inside, answers)
        sources += ((inside**2).sum(axis=1) > _ZERO).sum(axis=0)
    values, vectors = np.linalg.eigh(information)
    unknown = (np.abs(vectors[:, values <= _ZERO * max(values[-1], 1.0)]) > 1e-6).any(axis=1)
    inverse = np.linalg.pinv(information, rcond=_ZERO, hermitian=True)
    effect = inverse @ products
    squares = np.zeros(count)
    for inside, answers in parts:
        # The change of all effects if a source is left out, without fitting again (Bell and McCaffrey 2002, Survey
        # Methodology 28).
        projected = inside @ inverse
        left = np.eye(inside.shape[1]) - projected @ inside.transpose(0, 2, 1)
        residual = (answers - inside @ effect)[..., None]
        change = projected.transpose(0, 2, 1) @ (np.linalg.pinv(left, rcond=_ZERO, hermitian=True) @ residual)
        squares += (change[..., 0] ** 2).sum(axis=0)
    total = sum(len(inside) for inside, _ in parts)
    errors = np.sqrt(squares * (total - 1) / max(total, 1) + 1 / (sources + 1.0) ** 2)
    fits, images = [], x.sum(axis=0).astype(np.int64)
    for value, error, n, of, cannot in zip(effect, errors, images.tolist(), sources.tolist(), unknown, strict=True):
        if of < FEWEST or cannot:
            why = f"fewer than {FEWEST} sources" if of < FEWEST else APART
            fits.append(_Fit(Figure(None, n=n, sources=of, why=why), np.nan, np.nan))
            continue
        reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, of - 1)) * error
        figure = Figure(float(value), float(value - reach), float(value + reach), n, of)
        fits.append(_Fit(figure, float(error), float(2 * stats.t.sf(abs(value) / error, of - 1))))
    return fits


def _centred(source: Numbers, x: Floats, outcome: Floats, weighing: Weighing) -> Iterator[tuple[Floats, Floats]]:
    """Yield the columns and the outcomes of up to `AT_ONCE` sources that have equally many images. The columns are
    (sources, images, columns), the outcomes (sources, images). The source's mean is subtracted from each value, and the
    value is multiplied by the root of the image's weight. Sources in which no column varies are left out.
    """
    order = np.argsort(source, kind="stable")
    begins = np.flatnonzero(np.diff(source[order], prepend=-1))
    sizes = np.diff(begins, append=len(order))
    for size in np.unique(sizes).tolist():
        rows = order[begins[sizes == size][:, None] + np.arange(size)]
        rows = rows[(x[rows] != x[rows][:, :1]).any(axis=(1, 2))]
        scale = 1.0 if weighing == "case" else size**-0.5
        for some in np.array_split(rows, -(-len(rows) // AT_ONCE) or 1):
            if len(some):
                inside, answers = x[some], outcome[some]
                yield (
                    scale * (inside - inside.mean(axis=1, keepdims=True)),
                    scale * (answers - answers.mean(axis=1, keepdims=True)),
                )


def _row(one: _Effect, fit: _Fit, p_adjusted: float, tests: int, where: Numbers) -> EffectRow:
    figure, images = fit.figure, tuple(where[one.column].tolist())
    if figure.value is None:
        return EffectRow(one.parts, figure, None, "cannot tell", None, images)
    answer: EffectAnswer = "cannot tell"
    if p_adjusted <= 1 - CONFIDENCE:
        answer = "raises" if figure.value > 0 else "lowers"
    needed = None
    if answer == "cannot tell":
        from scipy import stats

        reach = float(stats.norm.ppf(1 - (1 - CONFIDENCE) / 2 / tests)) * fit.error
        enough = needed_sources(figure.sources, figure.value, reach)
        needed = None if enough is None else max(enough, figure.sources + 1)
    return EffectRow(one.parts, figure, p_adjusted, answer, needed, images)


def _mean(source: Numbers, outcome: Floats, weighing: Weighing) -> Figure:
    if not len(source):
        return Figure(None, why="no image is without a change: draw the control set")
    shares, images = shares_of_sources([outcome], source)
    means = MeansOfSources(shares, images if weighing == "case" else None)
    return means.figure(lambda of: of[..., 0], len(source))


def _place(row: EffectRow) -> tuple[float | str, ...]:
    size = -abs(row.effect.value) if row.effect.value is not None else 1.0
    return (len(row.parts), row.answer == "cannot tell", size, *(f"{name} {level}" for name, level in row.parts))
