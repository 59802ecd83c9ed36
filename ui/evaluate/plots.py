"""Plots and tables of an evaluation as SVG. They take any width, and each says in words what it shows. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from core.evaluation_results import Calibration, Order
from core.figures import Figure, Floats
from services.evaluation.types import Cell, CellKind
from ui.evaluate.words import OPENS, linked, signed
from ui.explore.parts import head_table
from ui.markup import Child, Html, el
from ui.study.plots import Axis

Open = Callable[[Cell], str | None]
"""Where the images of a number are opened; None where nothing is."""
FOUND_STEPS = 60
"""Points of a line of faults found."""
_FAINT = 0.005
"""Shares below it round to 0 and have no ground."""


def change_axis(figures: Iterable[Figure]) -> Axis:
    """The shortest axis that holds all intervals and 0, with some room at both ends."""
    ends = [end for one in figures for end in (one.low, one.value, one.high) if end is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    room = 0.04 * ((high - low) or 1.0)
    return Axis(low - room, high + room, (), "")


def change_plot(figures: Sequence[Figure], axis: Axis) -> Html:
    """Each figure as a dot on its interval, one below the other, and a dashed line at 0."""
    height = 6 + 14 * len(figures)
    zero = axis.place(0.0)
    drawn: list[Child] = [el("line", x1=zero, x2=zero, y1=0, y2=height, class_="zero")]
    said = []
    for number, one in enumerate(figures):
        y, look = 10 + 14 * number, "second" if number else "first"
        if one.value is None:
            continue
        if one.low is not None and one.high is not None:
            drawn.append(el("line", x1=axis.place(one.low), x2=axis.place(one.high), y1=y, y2=y, class_=f"span {look}"))
        drawn.append(el("circle", cx=axis.place(one.value), cy=y, r=4.5, class_=look))
        said.append(signed(one.value))
    return _svg(height, f"{', '.join(said)} around zero" if said else "no figure", drawn, "change")


def confusion_table(
    title: str,
    labels: Sequence[str],
    shares: Floats,
    chosen: Sequence[int],
    opened: Open | None,
    other: str,
    kind: CellKind = "confusion",
) -> Html:
    """Confusion matrix of `chosen` labels in per cent of a row. All else is `other`, linked if all are chosen."""
    whole = len(chosen) == sum(bool(np.isfinite(row).any()) for row in shares)
    rest = [column for column in range(shares.shape[1]) if column not in set(chosen)]
    has_rest = bool(rest) and bool(np.nansum(shares[np.ix_(list(chosen), rest)]) > 0)
    names = [labels[number] for number in chosen] + ([other] if has_rest else [])
    head = [el("th", el("span", name, title=name), scope="col") for name in names]
    rows = []
    for number in chosen:
        cells = [(float(shares[number, column]), labels[column], column == number) for column in chosen]
        if has_rest:
            cells.append((float(shares[number, rest].sum()), "", False))
        row = [
            _share_cell(Cell(kind, labels[number], said), share, right, opened if said or whole else None)
            for share, said, right in cells
        ]
        rows.append(el("tr", el("th", labels[number], scope="row", title=labels[number]), row))
    return el(
        "figure",
        el("figcaption", title),
        head_table([el("td"), head], rows, class_="confusion"),
    )


def _share_cell(cell: Cell, share: float, right: bool, opened: Open | None) -> Html:
    label = cell.name
    if not np.isfinite(share):
        return el("td", el("span", "–", class_="mut"), title=f"There is no image of {label}.")
    number = f"{100 * share:.0f}"
    words = f"{number} % of {label} is said to be {cell.said or 'none of these'}"
    link = opened(cell) if opened is not None and share > 0 else None
    strength = f"--share: {share:.3f}" if share >= _FAINT else None
    text = linked(number, link, f"{words}. {OPENS}", aria_label=words)
    return el("td", text, title=words, style=strength, class_="hit" if right else "miss")


def calibration_plot(named: Sequence[tuple[str, Calibration]]) -> Html:
    """Accuracy over confidence, by bins: a model that is as sure as it is right has its dots on the diagonal."""
    drawn: list[Child] = [
        el("rect", x=0, y=0, width=100, height=100, class_="frame"),
        el("line", x1=0, y1=100, x2=100, y2=0, class_="zero"),
    ]
    for number, (_, one) in enumerate(named):
        look = "second" if number else "first"
        most = max(one.images, default=0)
        dots = [
            (100 * sure, 100 - 100 * right, images)
            for sure, right, images in zip(one.confidence, one.accuracy, one.images, strict=True)
            if sure is not None and right is not None
        ]
        drawn.append(el("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y, _ in dots), class_=look))
        drawn += [
            el("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=f"{1.2 + 2 * (images / most) ** 0.5:.1f}", class_=look)
            for x, y, images in dots
        ]
    said = "; ".join(
        f"{name}: expected calibration error {100 * one.expected_error:.1f} %"
        for name, one in named
        if one.expected_error is not None
    )
    return el("svg", el("title", said), drawn, viewBox="-4 -4 108 108", class_="eval-plot calibration", role="img")


def found_plot(named: Sequence[tuple[str, Order]], images: int, words: str) -> Html:
    """How many different faults the first of so many images show, for each number of images, in several orders."""
    most = max((one.all_faults for _, one in named), default=0) or 1
    places = sorted({round(images * step / FOUND_STEPS) for step in range(FOUND_STEPS + 1)})
    drawn: list[Child] = [el("rect", x=0, y=0, width=100, height=50, class_="frame")]
    for look, one in reversed(named):
        points = [(100 * place / (images or 1), 50 - 50 * one.found(place) / most) for place in places]
        drawn.append(el("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_=look))
    return el(
        "svg",
        el("title", words),
        drawn,
        viewBox="0 0 100 50",
        preserveAspectRatio="none",
        class_="eval-plot found",
        role="img",
        aria_label=words,
    )


def parts_bar(parts: Sequence[tuple[str, int, str, str | None]]) -> Html:
    """Parts of a whole: the words, how many, the look, and where each is opened."""
    whole = sum(number for _, number, _, _ in parts) or 1
    pieces = [
        el(
            "a" if link else "span",
            el("b", f"{number:,}"),
            el("small", words),
            href=link,
            class_=f"piece {look} opens" if link else f"piece {look}",
            title=OPENS if link else None,
            style=f"flex-grow: {max(number / whole, 0.001):.4f}",
        )
        for words, number, look, link in parts
    ]
    return el("div", pieces, class_="parts-bar")


def _svg(height: int, said: str, drawn: Child, look: str) -> Html:
    return el("svg", el("title", said), drawn, height=height, class_=f"eval-plot {look}", role="img", aria_label=said)
