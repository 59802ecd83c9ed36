"""Measured times and ratios, with the bounds that they must keep, and tables of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """The times of one action, measured several times."""

    what: str
    milliseconds: tuple[float, ...]
    """Measured milliseconds, one for each repetition."""
    bound: float
    """Maximum for `measured`, in milliseconds."""
    share: float = 0.5
    """Quantile of the measured times that is compared with the bound; 0.5 is the median."""
    floor: tuple[float, ...] = ()
    """Milliseconds of a similar action without the work to be measured, such as a call that does nothing. One value for
    each repetition. The ratio of `milliseconds` to `floor` depends little on the load of the machine."""

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def measured(self) -> float:
        """The quantile `share` of the measured milliseconds."""
        if self.share == 0.5:
            return self.median
        ordered = sorted(self.milliseconds)
        return ordered[math.ceil(self.share * len(ordered)) - 1]

    @property
    def over_floor(self) -> float:
        """Median of `milliseconds` divided by the median of `floor`."""
        return self.median / statistics.median(self.floor)

    @property
    def held(self) -> bool:
        """True if the bound was kept."""
        return self.measured <= self.bound


@dataclass(frozen=True)
class Comparison:
    """A ratio of two measured quantities, which depends less on the load of the machine than a time does."""

    what: str
    ratios: tuple[float, ...]
    """The ratio of each round of measurements, or a single ratio of two counts."""
    of_cpu: tuple[float, ...] = ()
    """The ratio of each round, computed from processor seconds of all processes instead of elapsed seconds."""
    least: float = 0.0
    most: float = math.inf
    """Maximum of the median ratio. `least` is its minimum."""
    aim: float = 0.0
    """Goal for the ratio, stricter than the bound. If only the goal is missed, this is printed and nothing fails."""
    because: str = ""
    """Known reason why this machine cannot keep the bound. With a reason, the bound counts as kept."""
    words: str = ""
    """Sentence about the measurement, printed below the table."""

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def held(self) -> bool:
        """True if the bound was kept."""
        return self.least <= self.median <= self.most or bool(self.because)


def reported(figures: Sequence[Figure | Comparison], before: str = "") -> int:
    """Print the text `before`, if any, and the tables. Return the exit code: 1 if a bound was missed."""
    timed = [figure for figure in figures if isinstance(figure, Figure)]
    compared = [figure for figure in figures if isinstance(figure, Comparison)]
    parts = [before, table(timed) if timed else "", comparisons(compared) if compared else ""]
    print("\n\n".join(part for part in parts if part), flush=True)
    return 0 if all(figure.held for figure in figures) else 1


def table(figures: Sequence[Figure]) -> str:
    """Return a Markdown table of times: median, range, number of repetitions, ratio to the floor, and bound."""
    lines = [
        "| what | median | fastest to slowest | times | floor | at most | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for figure in figures:
        spread = f"{min(figure.milliseconds):.0f} to {max(figure.milliseconds):.0f} ms"
        result = "kept" if figure.held else "**missed**"
        floor = f"{figure.over_floor:.1f} × {statistics.median(figure.floor):.0f} ms" if figure.floor else ""
        most = "" if figure.share == 0.5 else f"; {100 * figure.share:.0f} % within {figure.measured:.0f} ms"
        lines.append(
            f"| {figure.what} | {figure.median:.0f} ms{most} | {spread} | {len(figure.milliseconds)} "
            f"| {floor} | {figure.bound:.0f} ms | {result} |"
        )
    return "\n".join(lines)


def comparisons(figures: Sequence[Comparison]) -> str:
    """Return a Markdown table with a row for each comparison. Explanations follow the table."""
    lines = ["| what | ratio | lowest to highest | of processor time | rounds | bound | |", "|" + " --- |" * 7]
    for figure in figures:
        spread = f"{min(figure.ratios):.2f} to {max(figure.ratios):.2f}"
        of_cpu = f"{statistics.median(figure.of_cpu):.2f}" if figure.of_cpu else ""
        bound = f"at least {figure.least:g}" if figure.least else f"at most {figure.most:.3g}"
        bound += f", aim {figure.aim:g}" if figure.aim else ""
        within = figure.least <= figure.median <= figure.most
        result = "kept" if within else figure.because or "**missed**"
        aim_missed = figure.median < figure.aim if figure.least else 0 < figure.aim < figure.median
        result += ", **aim missed**" if aim_missed else ""
        lines.append(
            f"| {figure.what} | {figure.median:.2f} | {spread} | {of_cpu} | {len(figure.ratios)} | {bound} | {result} |"
        )
    return "\n".join((*lines, "", *(f"{figure.what}: {figure.words}" for figure in figures if figure.words)))
