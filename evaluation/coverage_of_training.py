"""How often intervals of what retraining gains hold the truth, in drawn worlds whose seeds and sources differ. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from core.figures import Figure
from evaluation.by_source import LEAST
from evaluation.retraining.arm_statistics import Arms, Measured

TrainingFigure = Literal["accuracy", "gain", "won back"]
SEEDS, ACCURACIES = (2, 3, 5), (0.5, 0.8, 0.99, 1.0)
LAYOUTS = ((20, 6), (33, 4), (132, 1))
"""Measured sources, and images of each."""
BETTER = 0.1
"""What the second arm is more accurate, at most."""
ORIGINAL_ACCURACY = 0.95
"""Of the baseline on originals, so that something can be won back."""
SHARED = 0.8
"""How alike two arms, or two sets, are in their sources and images (a correlation)."""


@dataclass(frozen=True)
class Spread:
    """Shares of the variance of what a model makes of an image."""

    name: str
    of_sources: float
    of_images: float
    of_seeds: float


SPREADS = (
    Spread("all images alike", 0.0, 0.5, 0.0),
    Spread("sources differ", 0.6, 0.2, 0.02),
    Spread("seeds differ", 0.3, 0.4, 0.1),
)


@dataclass(frozen=True)
class TrainingCoverage:
    """One figure in one world."""

    figure: TrainingFigure
    seeds: int
    accuracy: float
    """What is true of the baseline."""
    sources: int
    images: int
    spread: str
    covered: float | None
    """How often an interval that is shown holds the truth, 0 to 1; None where none is shown."""
    shown: float
    """How often there is an interval, 0 to 1."""
    width: float | None
    """Of the intervals that are shown, the mean."""


def training_table(repetitions: int, seed: int) -> tuple[TrainingCoverage, ...]:
    """Measure all worlds, each so many times."""
    return tuple(
        row
        for seeds in SEEDS
        for accuracy in ACCURACIES
        for layout in LAYOUTS
        for spread in SPREADS
        for row in measured_world(seeds, accuracy, layout, spread, repetitions, seed)
    )


def measured_world(
    seeds: int, accuracy: float, layout: tuple[int, int], spread: Spread, repetitions: int, seed: int
) -> Iterator[TrainingCoverage]:
    """Measure the figures of one world."""
    fate = np.random.default_rng(seed)
    source = np.repeat(np.arange(layout[0]), layout[1])
    other = accuracy if accuracy > 1 - BETTER else accuracy + BETTER
    lost = ORIGINAL_ACCURACY - accuracy
    truth: dict[TrainingFigure, float] = {"accuracy": accuracy, "gain": other - accuracy}
    if lost > 0:
        truth["won back"] = (other - accuracy) / lost
    held = {name: list[tuple[bool, float]]() for name in truth}
    for _ in range(repetitions):
        found = _figures(seeds, (accuracy, other), source, spread, fate, "won back" in truth)
        for name, figure in found.items():
            if figure.low is not None and figure.high is not None:
                inside = figure.low - 1e-12 <= truth[name] <= figure.high + 1e-12
                held[name].append((inside, figure.high - figure.low))
    for name, told in held.items():
        covered = float(np.mean([inside for inside, _ in told])) if told else None
        width = float(np.mean([wide for _, wide in told])) if told else None
        shown = len(told) / repetitions
        yield TrainingCoverage(name, seeds, accuracy, *layout, spread.name, covered, shown, width)


def _figures(
    seeds: int,
    accuracies: tuple[float, float],
    source: NDArray[np.int64],
    spread: Spread,
    fate: np.random.Generator,
    with_loss: bool,
) -> dict[TrainingFigure, Figure]:
    """The figures of one drawn comparison."""
    sources, images = int(source.max()) + 1, len(source)
    alike = fate.normal(size=sources)[source], fate.normal(size=images)
    of_seeds = [fate.normal(size=seeds) for _ in accuracies]

    def right(accuracy: float, of_seed: NDArray[np.float64]) -> Measured:
        from scipy import stats

        shift = stats.norm.ppf(accuracy)
        rest = np.sqrt(1 - spread.of_sources - spread.of_images - spread.of_seeds)
        own = fate.normal(size=sources)[source], fate.normal(size=images)
        parts = [SHARED * one + np.sqrt(1 - SHARED**2) * mine for one, mine in zip(alike, own, strict=True)]
        of_image = np.sqrt(spread.of_sources) * parts[0] + np.sqrt(spread.of_images) * parts[1]
        noise = rest * fate.normal(size=(seeds, images))
        return Measured(source, shift + of_image + np.sqrt(spread.of_seeds) * of_seed[:, None] + noise > 0)

    arms = {
        name: {"generated": right(one, of_seed)}
        for name, one, of_seed in zip(("base", "arm"), accuracies, of_seeds, strict=True)
    }
    if with_loss:
        for name, of_seed in zip(("base", "arm"), of_seeds, strict=True):
            arms[name]["original"] = right(ORIGINAL_ACCURACY, of_seed)
    compared = Arms(arms, "base")
    rows = {(row.arm, row.set): row for row in compared.rows()}
    found: dict[TrainingFigure, Figure] = {
        "accuracy": rows["base", "generated"].accuracy,
        "gain": rows["arm", "generated"].gain,
    }
    if with_loss:
        found["won back"] = compared.won_back("original", "generated")[0].share
    return found


def training_markdown(found: Sequence[TrainingCoverage]) -> list[str]:
    """The coverage as Markdown, a table for each figure: columns are the true accuracy of the baseline."""
    cells = {(one.figure, one.seeds, one.sources, one.images, one.spread, one.accuracy): one for one in found}
    accuracies = sorted({one.accuracy for one in found})
    lines = list[str]()
    for figure in dict.fromkeys(one.figure for one in found):
        lines += [f"## Retraining: {figure}", ""]
        lines += [f"| trainings | sources | images of each | | {' | '.join(f'{one:.0%}' for one in accuracies)} |"]
        lines += ["| ---: | ---: | ---: | --- |" + " ---: |" * len(accuracies)]
        for row in dict.fromkeys(
            (one.seeds, one.sources, one.images, one.spread) for one in found if one.figure == figure
        ):
            shown = " | ".join(_cell(cells.get((figure, *row, accuracy))) for accuracy in accuracies)
            lines.append(f"| {' | '.join(str(one) for one in row)} | {shown} |")
        lines.append("")
    return lines


def _cell(found: TrainingCoverage | None) -> str:
    if found is None:
        return ""
    if found.covered is None:
        return "too few"
    mark = "**" if found.covered < LEAST else ""
    some = f" ({100 * found.shown:.0f} %)" if found.shown < 1 else ""
    return f"{mark}{100 * found.covered:.1f}{mark}{some}"
