"""A measured figure beside the bound that it has to keep, and the table of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One thing that was timed several times."""

    what: str
    milliseconds: tuple[float, ...]
    """One for each time."""
    bound: float
    """At most so many milliseconds, for `share` of the times."""
    share: float = 0.5
    """0.5: the median."""
    floor: tuple[float, ...] = ()
    """Milliseconds, one for each time, for the same way through browser, server and screen with nothing of the studio
    in it, taken in turns with `milliseconds`: how often it fits into them says little of the machine's hour."""

    @property
    def median(self) -> float:
        return statistics.median(self.milliseconds)

    @property
    def measured(self) -> float:
        """Milliseconds that `share` of the times did not exceed."""
        if self.share == 0.5:
            return self.median
        ordered = sorted(self.milliseconds)
        return ordered[math.ceil(self.share * len(ordered)) - 1]

    @property
    def over_floor(self) -> float:
        """The median, in medians of the floor."""
        return self.median / statistics.median(self.floor)

    @property
    def held(self) -> bool:
        """Whether the bound was kept."""
        return self.measured <= self.bound


def reported(figures: Sequence[Figure], before: str = "") -> int:
    """Print the table, under a line on the machine if there is one. The exit code: 1 when a bound was missed."""
    if before:
        print(f"{before}\n")
    print(table(figures))
    return 0 if all(figure.held for figure in figures) else 1


def table(figures: Sequence[Figure]) -> str:
    """As Markdown: median, fastest and slowest of so many times, the ratio to the floor, and the bound."""
    lines = [
        "| what | median | fastest to slowest | times | floor | at most | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for figure in figures:
        spread = f"{min(figure.milliseconds):.0f} to {max(figure.milliseconds):.0f} ms"
        kept = "kept" if figure.held else "**missed**"
        floor = f"{figure.over_floor:.1f} × {statistics.median(figure.floor):.0f} ms" if figure.floor else ""
        most = "" if figure.share == 0.5 else f"; {100 * figure.share:.0f} % within {figure.measured:.0f} ms"
        lines.append(
            f"| {figure.what} | {figure.median:.0f} ms{most} | {spread} | {len(figure.milliseconds)} "
            f"| {floor} | {figure.bound:.0f} ms | {kept} |"
        )
    return "\n".join(lines)
