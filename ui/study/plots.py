"""Plots of a study as SVG. They take any width, and each says in words (aria-label) what it shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import log10

from core.figures import Mean, Proportion, percent
from core.studies import SCALE
from core.study_report import Agreement, Measure, Slice, WorkerFigures
from ui.markup import Child, Html, el
from ui.study.words import same_share

STARTS = (0.95, 0.9, 0.8, 0.6, 0.4, 0.2, 0.0)
"""Where an axis of shares may begin. It is always labelled: dots, unlike bars, may stand on an axis that is cut."""
LOW = 0.9
"""Shares below it are drawn in another colour, so that they are found; nothing depends on it."""
STEPS = 200
"""So many points at most in a line: more cannot be seen."""


@dataclass(frozen=True)
class Axis:
    """A stretch of numbers that fills the width of a plot."""

    low: float
    high: float
    ticks: tuple[float, ...]
    unit: str = "%"
    """"%" for shares from 0 to 1, "" for plain numbers."""

    def place(self, value: float) -> str:
        """Where a value stands, as a coordinate: "0.00%" to "100.00%"; what is beyond the ends stands at them."""
        share = (value - self.low) / (self.high - self.low)
        return f"{100 * min(1.0, max(0.0, share)):.2f}%"

    def said(self, value: float) -> str:
        """A tick in words."""
        return f"{100 * value:.0f}" if self.unit == "%" else f"{value:g}"


RATING = Axis(1.0, 5.0, (1.0, 2.0, 3.0, 4.0, 5.0), "")


def share_axis(slices: Iterable[Slice]) -> Axis:
    """The shortest axis that holds all intervals and bounds of these slices, up to 100 %."""
    ends = [
        end
        for part in slices
        for end in (part.rate.low, part.rate.value, part.bounds.worst if part.bounds.missing else None)
        if end is not None
    ]
    lowest = min(ends, default=0.0)
    low = next(start for start in STARTS if start <= lowest)
    return Axis(low, 1.0, tuple(low + step * (1.0 - low) / 4 for step in (0, 1, 2, 3, 4)))


def ruler(axis: Axis) -> Html:
    """The axis alone, for the head of a column. Every second tick is "between", which narrow screens leave out."""
    last = len(axis.ticks) - 1
    marks = [
        el(
            "text",
            axis.said(tick),
            el("tspan", " %") if axis.unit == "%" and place == last else None,
            x=axis.place(tick),
            y=11,
            class_="end" if place == last else "start" if place == 0 else "between" if place % 2 else "",
        )
        for place, tick in enumerate(axis.ticks)
    ]
    return el("div", _svg(14, "", marks, "ruler"), class_="ruler-place")


def interval(part: Slice, axis: Axis, before: Slice | None = None) -> Html:
    """A share with its interval. Pale: bounds with the discarded images. A ring: the share `before` exclusions."""
    if part.rate.value is None:
        return el("span", part.rate.words.removeprefix("undefined: "), class_="mut none")
    drawn: list[Child] = [_grid(axis, 22)]
    worst, best = part.bounds.worst, part.bounds.best
    if part.bounds.missing and worst is not None and best is not None:
        drawn.append(_line(axis, worst, best, 9, "bounds"))
    drawn.extend(_dot(part.rate, axis, 9, "dot"))
    label = part.rate.words
    if part.bounds.missing:
        label += f"; {part.bounds.words}"
    if before is not None and before.rate.value is not None and not same_share(part, before):
        drawn.extend(_dot(before.rate, axis, 17, "ring"))
        label += f"; before exclusions {before.rate.words}"
    return _svg(22, label, drawn, "interval" + (" low" if part.rate.value < LOW else ""))


def mean_interval(mean: Mean) -> Html:
    """The mean rating from 1 to 5 with its interval."""
    if mean.value is None:
        return el("span", mean.words, class_="mut none")
    found = Proportion(0, 0, mean.value, mean.low, mean.high, mean.words)
    return _svg(22, mean.words, [_grid(RATING, 22), *_dot(found, RATING, 9, "dot")], "interval")


def answer_bar(counts: Mapping[str, int], valid: Sequence[str] = ()) -> Html:
    """One bar, divided as the votes are. Answers that mean valid are in the accent, others in the colour of warnings;
    where no answer means anything of the kind, in shades of grey."""
    total = sum(counts.values())
    label = ", ".join(f"{n} {answer}" for answer, n in counts.items()) or "no vote"
    drawn: list[Child] = []
    left = 0.0
    for place, (answer, n) in enumerate(counts.items()):
        if n:
            width = 100 * n / total
            look = ("yes" if answer in valid else "no") if valid else f"grey-{place % 5}"
            drawn.append(
                el(
                    "rect",
                    el("title", f"{n} {answer}"),
                    x=f"{left:.2f}%",
                    y=0,
                    width=f"{width:.2f}%",
                    height=8,
                    class_=look,
                )
            )
            left += width
    return _svg(8, label, drawn, "answers")


def histogram(counts: Mapping[str, int]) -> Html:
    """How often each point of a scale was given, as five columns with their numbers below."""
    most = max((counts.get(point, 0) for point in SCALE), default=0)
    drawn: list[Child] = []
    for place, point in enumerate(SCALE):
        n = counts.get(point, 0)
        height = 34 * n / most if most else 0
        drawn.append(
            el(
                "rect",
                el("title", f"{point}: {n} votes"),
                x=f"{place * 20 + 2}%",
                y=f"{36 - height:.1f}",
                width="16%",
                height=f"{max(height, 0.75):.1f}",
            )
        )
        drawn.append(el("text", point, x=f"{place * 20 + 10}%", y=48))
    return _svg(50, ", ".join(f"{point}: {counts.get(point, 0)}" for point in SCALE) + " votes", drawn, "histogram")


def agreement_scale(found: Agreement) -> Html:
    """The measures beyond chance on one line from 0 to 1, over the grounds of Landis and Koch; above them, on a line
    of its own, raw agreement, which those grounds say nothing of. What is undefined has no dot."""
    axis = Axis(0.0, 1.0, (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), "")
    named = (("alpha", found.alpha), ("AC1", found.ac1), ("kappa", found.fleiss))
    measures = [*named, ("ordinal alpha", found.ordinal)] if found.ordinal is not None else [*named]
    top = 58
    height = top + 20 * len(measures) + 16
    drawn: list[Child] = [
        el("line", x1="0%", x2="100%", y1=10, y2=10, class_="pairs"),
        [el("line", x1=end, x2=end, y1=6, y2=14, class_="pairs") for end in ("0%", "100%")],
        el("text", "0 % of pairs equal", x="0%", y=29, class_="ground-words start"),
        el("text", "100 %", x="100%", y=29, class_="ground-words end"),
        *_measure("raw", found.raw, axis, 10),
        el("text", "beyond chance", x="0%", y=top - 6, class_="ground-words start"),
        [
            el("rect", x=axis.place(low), y=top, width="20%", height=20 * len(measures), class_=f"ground-{place}")
            for place, low in enumerate(axis.ticks[:-1])
        ],
    ]
    for place, (name, measure) in enumerate(measures):
        drawn.extend(_measure(name, measure, axis, top + 20 * place + 10))
    for place, (low, word) in enumerate(zip(axis.ticks, LEVELS, strict=False)):
        drawn.append(el("text", word, x=f"{100 * low + 10:.0f}%", y=height - 3, class_=f"level level-{place}"))
    label = ", ".join(f"{name} {measure.words}" for name, measure in (("raw", found.raw), *measures))
    return _svg(height, label, drawn, "agreement")


def _measure(name: str, measure: Measure, axis: Axis, y: int) -> Iterable[Child]:
    """The dot of a measure with its name beside it, or the name alone."""
    if measure.value is None:
        yield el("text", f"{name}: undefined", x="1%", y=y + 4, class_="name")
        return
    right = measure.value > 0.55
    yield el("circle", cx=axis.place(measure.value), cy=y, r=4.5)
    yield el(
        "text",
        f"{name} {measure.words}",
        x=axis.place(measure.value),
        dx=-9 if right else 9,
        y=y + 4,
        class_="name end" if right else "name",
    )


LEVELS = ("slight", "fair", "moderate", "substantial", "nearly perfect")
"""Landis and Koch 1977, as `study.agreement.level` says them."""


def votes_over_time(times: Sequence[datetime], needed: int) -> Html | None:
    """How the votes came in, from the first to the last; the dashed line is all that are needed. None below 2 votes."""
    if len(times) < 2 or times[-1] <= times[0]:
        return None
    begin, span = times[0], (times[-1] - times[0]).total_seconds()
    top = max(needed, len(times))
    stride = max(1, len(times) // STEPS)
    chosen = sorted({*range(0, len(times), stride), len(times) - 1})
    points = [f"{100 * (times[n] - begin).total_seconds() / span:.2f},{44 - 40 * (n + 1) / top:.2f}" for n in chosen]
    line = " ".join(points)
    drawn: list[Child] = [
        el("polygon", points=f"0,44 {line} 100,44", class_="under"),
        el("polyline", points=line, class_="line"),
        el(
            "line",
            x1=0,
            x2=100,
            y1=f"{44 - 40 * needed / top:.2f}",
            y2=f"{44 - 40 * needed / top:.2f}",
            class_="needed",
        )
        if needed
        else None,
    ]
    label = f"{len(times)} votes from {times[0]:%d %b %H:%M} to {times[-1]:%d %b %H:%M}"
    return el(
        "svg",
        drawn,
        viewBox="0 0 100 46",
        preserveAspectRatio="none",
        class_="plot timeline",
        role="img",
        aria_label=label,
    )


def worker_scatter(workers: Sequence[WorkerFigures], too_fast: float) -> Html | None:
    """Plot workers by median seconds a vote (logarithmic) and agreement with the consensus. None for fewer than two."""
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

    def height(share: float) -> float:
        return 8 + 150 * (1 - (share - floor) / (1 - floor))

    drawn: list[Child] = []
    if too_fast > 0 and log10(too_fast) > axis.low:
        edge = axis.place(log10(too_fast))
        drawn.append(
            el("rect", el("title", "faster than the rules expect"), x=0, y=0, width=edge, height=166, class_="fast")
        )
    for second in (1, 2, 5, 10, 20, 60):
        if log10(second) > axis.high:
            break
        x = axis.place(log10(second))
        drawn.append(el("line", x1=x, x2=x, y1=0, y2=166, class_="grid"))
        drawn.append(el("text", f"{second} s", x=x, y=180))
    for step in range(5):
        share = floor + step * (1 - floor) / 4
        y = f"{height(share):.1f}"
        drawn.append(el("line", x1=0, x2="100%", y1=y, y2=y, class_="grid"))
        drawn.append(el("text", f"{100 * share:.0f} %", x=0, dx=4, y=f"{height(share) - 3:.1f}", class_="start"))
    most = max(w.votes for w in shown)
    for worker in shown:
        seconds, share = worker.median_seconds or 0.0, worker.with_consensus.value or 0.0
        out = worker.exclusion is not None
        drawn.append(
            el(
                "circle",
                el(
                    "title",
                    f"{worker.worker}: {seconds:.1f} s, {percent(share)} with the consensus, {worker.votes} votes"
                    + (", excluded" if out else ""),
                ),
                cx=axis.place(log10(max(seconds, 0.01))),
                cy=f"{height(share):.1f}",
                r=f"{3.5 + 4 * (worker.votes / most) ** 0.5:.1f}" if most else 4,
                class_="out" if out else "in",
            )
        )
    label = f"{len(shown)} workers by median seconds a vote and share of answers equal to the consensus"
    return _svg(186, label, drawn, "scatter")


def _dot(found: Proportion, axis: Axis, y: int, look: str) -> Iterable[Child]:
    """A point with its interval, if it has one."""
    if found.value is None:
        return
    if found.low is not None and found.high is not None:
        yield _line(axis, found.low, found.high, y, look)
    yield el("circle", cx=axis.place(found.value), cy=y, r=4.5 if look == "dot" else 3, class_=look)


def _line(axis: Axis, low: float, high: float, y: int, look: str) -> Html:
    return el("line", x1=axis.place(low), x2=axis.place(high), y1=y, y2=y, class_=look)


def _grid(axis: Axis, height: int) -> list[Html]:
    """A pale upright at every tick."""
    return [el("line", x1=axis.place(tick), x2=axis.place(tick), y1=0, y2=height, class_="grid") for tick in axis.ticks]


def _svg(height: int, label: str, drawn: Child, look: str) -> Html:
    """The frame of a plot as wide as its place. Without words it is decoration."""
    words = {"role": "img", "aria_label": label} if label else {"aria_hidden": "true"}
    title = el("title", label) if label else None
    return el("svg", title, drawn, height=height, class_=f"plot {look}", **words)
