"""Rows of the report: a measured figure with its uncertainty and its required minimum. Pure; needs no models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from study.intervals import wilson_ends


@dataclass(frozen=True)
class Row:
    """One measured figure with its limit `floor`: the maximum for seconds and memory, the minimum for other units."""

    what: str
    value: float
    floor: float
    unit: str
    """"%" for a share (0 to 1), "IoU", "s", "GB", or "" for a number of things."""
    count: int = 0
    """Number of judged images or objects. 0 for a figure that does not come from several of them."""
    beside: str = ""
    """Note for the table, such as the same figure for unedited scenes."""

    @property
    def reached(self) -> bool:
        """True if the floor is reached. False also if nothing was measured."""
        return self.value <= self.floor if self.unit in ("s", "GB") else self.value >= self.floor

    def cells(self) -> tuple[str, str, str, str, str]:
        """Return the cells of a row: name, measured value (a share with its interval), floor, yes or NO, and notes."""
        bound = "at most" if self.unit in ("s", "GB") else "at least"
        return (
            self.what,
            self._measured(),
            f"{bound} {_figure(self.floor, self.unit, round_floor=True)}",
            "yes" if self.reached else "NO",
            self.beside,
        )

    def _measured(self) -> str:
        if math.isnan(self.value):
            return "not measured"
        text = _figure(self.value, self.unit)
        if self.unit == "%" and self.count:
            low, high = wilson_ends(self.value, self.count)
            text += f" ({low * 100:.0f} to {high * 100:.0f}, n = {self.count})"
        return text


def share(what: str, hits: Sequence[bool], floor: float, note: str = "") -> Row:
    """Return a row named `what` with the share of `hits` that are true."""
    value = sum(hits) / len(hits) if hits else math.nan
    return Row(what, value, floor, "%", len(hits), note)


def percent(hits: Sequence[bool]) -> str:
    """Return the share of true values in `hits` in per cent, such as "38.9 %"; "none" if `hits` is empty."""
    return f"{sum(hits) / len(hits) * 100:.1f} %" if hits else "none"


def missed(rows: Sequence[Row]) -> list[str]:
    """Return one sentence for each row that misses its floor."""
    return [f"{row.what}: {row.cells()[1]}, wanted {row.cells()[2]}" for row in rows if not row.reached]


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table whose columns are aligned, so that it is readable in a terminal."""
    lines = [("what", "measured", "wanted", "reached", "note"), *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    text = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def _figure(value: float, unit: str, round_floor: bool = False) -> str:
    match unit:
        case "%":
            return f"{value * 100:.0f} %" if round_floor else f"{value * 100:.1f} %"
        case "IoU":
            return f"{value:.2f}" if round_floor else f"{value:.3f}"
        case "":
            return f"{value:.0f}"
        case _:
            return f"{value:.0f} {unit}" if round_floor else f"{value:.1f} {unit}"
