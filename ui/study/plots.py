"""Positions in the plots of a study, which `templates/plots.html` draws. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from math import log10

from core.figures import percent
from core.studies import SCALE
from core.study_report import Slice, WorkerFigures

STARTS = (0.95, 0.9, 0.8, 0.6, 0.4, 0.2, 0.0)
"""Values at which an axis of shares may begin. The start of an axis is labelled, as it is often not 0."""
LOW = 0.9
"""Share below which a value is drawn in another colour, to stand out. Nothing else depends on it."""
STEPS = 200
"""Maximum number of points of a line. More could not be distinguished."""


@dataclass(frozen=True)
class Axis:
    """A range of numbers over the width of a plot."""

    low: float
    high: float
    ticks: tuple[float, ...]
    unit: str = "%"
    """Unit of the labels: "%" for shares from 0 to 1, "" for plain numbers."""

    def place(self, value: float) -> str:
        """Return a value's position, "0.00%" to "100.00%". Values beyond the ends are drawn at the ends."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(1.0, max(0.0, share)):.2f}%"

    def said(self, value: float) -> str:
        """Return the label at a value of the axis, without unit."""
        return f"{100 * value:.0f}" if self.unit == "%" else f"{value:g}"


RATING = Axis(1.0, 5.0, (1.0, 2.0, 3.0, 4.0, 5.0), "")
AGREEMENT = Axis(0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), "")


def share_axis(slices: Iterable[Slice]) -> Axis:
    """Return the shortest axis up to 100 % that contains all intervals and bounds of these shares."""
    ends = [
        end
        for part in slices
        for end in (part.rate.low, part.rate.value, part.bounds.worst if part.bounds.missing else None)
        if end is not None
    ]
    lowest = min(ends, default=0.0)
    low = next(start for start in STARTS if start <= lowest)
    return Axis(low, 1.0, tuple(low + step * (1.0 - low) / 4 for step in (0, 1, 2, 3, 4)))


def is_low(part: Slice) -> bool:
    """Return True if a share is below `LOW`, so that it is drawn in another colour."""
    return part.rate.value is not None and part.rate.value < LOW


def answer_parts(counts: Mapping[str, int]) -> list[tuple[str, int, str, str]]:
    """Return (answer, number of votes, start in per cent, width in per cent) for each part of a bar."""
    widths = [100 * n / (sum(counts.values()) or 1) for n in counts.values()]
    starts = accumulate(widths, initial=0.0)
    placed = zip(counts.items(), starts, widths, strict=False)
    return [(answer, n, f"{start:.2f}", f"{width:.2f}") for (answer, n), start, width in placed]


def columns(counts: Mapping[str, int]) -> list[tuple[str, int, float]]:
    """Return (point of a rating scale, number of votes, height of its column)."""
    most = max((counts.get(point, 0) for point in SCALE), default=0) or 1
    return [(point, counts.get(point, 0), 34 * counts.get(point, 0) / most) for point in SCALE]


def votes_over_time(times: Sequence[datetime], needed: int) -> tuple[str, str] | None:
    """Return the SVG points of the votes over time, and the height of the line of needed votes. None for fewer than two
    votes.
    """
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    begin, span = times[0], (times[-1] - times[0]).total_seconds()
    top = max(needed, len(times))
    stride = max(1, len(times) // STEPS)
    chosen = sorted({*range(0, len(times), stride), len(times) - 1})
    points = [f"{100 * (times[n] - begin).total_seconds() / span:.2f},{44 - 40 * (n + 1) / top:.2f}" for n in chosen]
    return " ".join(points), f"{44 - 40 * needed / top:.2f}"


@dataclass(frozen=True)
class Scatter:
    """The plot of workers: median seconds per vote (logarithmic) against agreement with the consensus."""

    fast: str | None
    """Position of the time below which the rules call a vote too fast; None if this time is outside the plot."""
    seconds: list[tuple[int, str]]
    shares: list[tuple[str, float]]
    dots: list[tuple[WorkerFigures, str, str, str, str]]
    """Each worker with a description, x, y and radius of the dot."""


def worker_scatter(workers: Sequence[WorkerFigures], too_fast: float) -> Scatter | None:
    """Return the plot of workers, or None for fewer than two workers whose agreement is known."""
    shown = [w for w in workers if w.median_seconds is not None and w.with_consensus.value is not None]
    if len(shown) < 2:
        return None
    times = [w.median_seconds or 0.0 for w in shown]
    axis = Axis(
        log10(next((edge for edge in (0.5, 0.2) if edge < min(times)), 0.1)),
        log10(next((edge for edge in (12.0, 30.0, 70.0) if edge > max(times)), 200.0)),
        (),
    )
    lowest = min(w.with_consensus.value or 0.0 for w in shown)
    floor = next(start for start in (0.8, 0.6, 0.4, 0.2, 0.0) if start <= lowest)
    most = max(w.votes for w in shown)

    def height(share: float) -> float:
        return 8 + 150 * (1 - (share - floor) / (1 - floor))

    def dot(worker: WorkerFigures) -> tuple[WorkerFigures, str, str, str, str]:
        seconds, share = worker.median_seconds or 0.0, worker.with_consensus.value or 0.0
        words = f"{worker.worker}: {seconds:.1f} s, {percent(share)} with the consensus, {worker.votes} votes"
        radius = f"{3.5 + 4 * (worker.votes / most) ** 0.5:.1f}" if most else "4"
        return worker, words, axis.place(log10(max(seconds, 0.01))), f"{height(share):.1f}", radius

    steps = [floor + step * (1 - floor) / 4 for step in range(5)]
    return Scatter(
        axis.place(log10(too_fast)) if too_fast > 0 and log10(too_fast) > axis.low else None,
        [(second, axis.place(log10(second))) for second in (1, 2, 5, 10, 20, 60) if log10(second) <= axis.high],
        [(f"{100 * share:.0f} %", height(share)) for share in steps],
        [dot(worker) for worker in shown],
    )
