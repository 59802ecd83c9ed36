"""What each of several trainings has brought, on the same images: means over seeds, with intervals over seeds and
sources (the paper's RQ3). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from core.evaluation_results import AUGMENTED, CONTROL, ON_GENERATED, ORIGINAL, ArmRow
from core.figures import Figure, Floats
from evaluation.by_source import CONFIDENCE

GENERATED, BY_VOTES, RANKED = "+ generated, all", "+ generated, valid", "+ generated, best ranked half"
ARMS = (ORIGINAL, AUGMENTED, CONTROL, GENERATED, BY_VOTES, RANKED)
CONTROLS = (AUGMENTED, CONTROL)
"""What learns from generated images has to gain more than these, or it is not their edits that help."""
RESAMPLES = 4000


@dataclass(frozen=True)
class Measured:
    """What the models of one arm, one for each seed, are right about on one set of images."""

    source: NDArray[np.int64]
    """The number of the source of each image."""
    right: NDArray[np.bool_] | Floats
    """(seeds, images); of a segmenter the share of the pixels of each image, 0 to 1."""


@dataclass(frozen=True)
class WonBack:
    """How much of what the generated images cost an arm has won back."""

    arm: str
    share: Figure
    """(arm on generated - baseline on generated) / (baseline on original - baseline on generated): 1 is all of it."""


def beside_controls(measured: Mapping[str, Mapping[str, Measured]]) -> dict[tuple[str, str], Figure]:
    """By arm and control: the gain of an arm with generated images over the control on unseen sources, if measured."""
    found = {}
    for control in (one for one in CONTROLS if one in measured):
        if ON_GENERATED not in measured[control]:
            continue
        pairs = {name: {ON_GENERATED: held[ON_GENERATED]} for name, held in measured.items()}
        for row in Arms(pairs, control).rows():
            if row.arm not in (ORIGINAL, *CONTROLS):
                found[row.arm, control] = row.gain
    return found


class Arms:
    """The arms of one comparison, measured on the same sets by as many seeds each."""

    def __init__(self, measured: Mapping[str, Mapping[str, Measured]], baseline: str, seed: int = 0) -> None:
        """`measured` is by arm and set. Raises ValueError for an arm with other images or seeds than the `baseline`."""
        self._measured, self._baseline = measured, baseline
        self._chance = np.random.default_rng(seed)
        base = measured[baseline]
        self.seeds = len(next(iter(base.values())).right)
        for arm, sets in measured.items():
            for name, held in sets.items():
                if held.right.shape != base[name].right.shape or (held.source != base[name].source).any():
                    raise ValueError(
                        f"{arm} was measured on other images of {name}, or by other seeds, than {baseline}"
                    )
        self._draws = self._chance.multinomial(self.seeds, np.full(self.seeds, 1 / self.seeds), size=RESAMPLES)
        self._sources = {name: self._drawn(held.source) for name, held in base.items()}

    def rows(self) -> tuple[ArmRow, ...]:
        """Each arm on each set."""
        found = []
        for arm, sets in self._measured.items():
            for name, held in sets.items():
                value, drawn = self._accuracy(arm, name)
                gain = Figure(None, why="the others are compared with it")
                if arm != self._baseline:
                    base, base_drawn = self._accuracy(self._baseline, name)
                    gain = self._figure(value - base, drawn - base_drawn, held)
                found.append(ArmRow(arm, name, self.seeds, self._figure(value, drawn, held), gain))
        return tuple(found)

    def won_back(self, original: str, generated: str) -> tuple[WonBack, ...]:
        """Each arm but the baseline; without a value where what the baseline loses is nothing, or may be chance."""
        before, before_drawn = self._accuracy(self._baseline, original)
        after, after_drawn = self._accuracy(self._baseline, generated)
        found = []
        for arm in self._measured:
            if arm == self._baseline:
                continue
            value, drawn = self._accuracy(arm, generated)
            held = self._measured[arm][generated]
            lost, lost_drawn = before - after, before_drawn - after_drawn
            if lost <= 0 or np.quantile(lost_drawn, (1 - CONFIDENCE) / 2) <= 0:
                words = "the model loses nothing on the generated images"
                if lost > 0:
                    words = "what the model loses on the generated images may be chance"
                found.append(WonBack(arm, Figure(None, n=held.right.shape[1], why=words)))
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                shares = np.where(lost_drawn > 0, (drawn - after_drawn) / lost_drawn, np.nan)
            found.append(WonBack(arm, self._figure((value - after) / lost, shares, held)))
        return tuple(found)

    def _drawn(self, source: NDArray[np.int64]) -> tuple[NDArray[np.int64], Floats]:
        """The place of the source of each image, and the draws of each source, (resamples, sources), for all arms."""
        _, number = np.unique(source, return_inverse=True)
        sources = int(number.max()) + 1
        return number, self._chance.multinomial(sources, np.full(sources, 1 / sources), size=RESAMPLES).astype(float)

    def _accuracy(self, arm: str, name: str) -> tuple[float, Floats]:
        """The mean over seeds and images, and that of each resample of seeds and sources."""
        held, (number, times) = self._measured[arm][name], self._sources[name]
        sources = times.shape[1]
        right = np.stack([np.bincount(number, weights=one, minlength=sources) for one in held.right])
        images = np.bincount(number, minlength=sources)
        of_seeds = times @ right.T / (times @ images)[:, None]
        return float(held.right.mean()), (of_seeds * self._draws).sum(axis=1) / self.seeds

    def _figure(self, value: float, drawn: Floats, held: Measured) -> Figure:
        sources = len(np.unique(held.source))
        if self.seeds < 2 or sources < 2:
            return Figure(value, n=held.right.shape[1], sources=sources, why="no interval with one seed or one source")
        if np.isnan(drawn).all():
            return Figure(value, n=held.right.shape[1], sources=sources, why="no interval: too little is lost to tell")
        low, high = np.nanquantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        return Figure(value, float(low), float(high), held.right.shape[1], sources)
