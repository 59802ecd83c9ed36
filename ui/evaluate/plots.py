"""Values for the plots and tables of an evaluation, which `templates/plots.html` draws. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from core.evaluation_results import Order
from core.figures import Figure, Floats
from services.evaluation.types import Cell, CellKind
from ui.study.plots import Axis

FOUND_STEPS = 60
"""Number of steps of a curve that shows how many faults a person finds by looking at images in a given order."""


def change_axis(figures: Iterable[Figure]) -> Axis:
    """Return the shortest axis that holds all intervals and 0, with some room at both ends."""
    ends = [end for one in figures for end in (one.low, one.value, one.high) if end is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    room = 0.04 * ((high - low) or 1.0)
    return Axis(low - room, high + room, (), "")


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix, or a part of one."""

    title: str
    names: list[str]
    """Names of the columns: the answers of the model."""
    rows: list[tuple[str, list[tuple[Cell, float | None, bool, bool]]]]
    """Each row: its label and its cells. A cell is (the images that it counts, their share of the label's images,
    True if its answer is right, True if a click opens the images). The share is None if the label has no image."""


def confusion(
    title: str, labels: Sequence[str], shares: Floats, chosen: Sequence[int], kind: CellKind = "confusion"
) -> Confusion:
    """Return the confusion matrix of the `chosen` labels. The column "any other" counts all other answers. Cells of
    this column open their images only if `chosen` has every label that has images.
    """
    whole = len(chosen) == sum(bool(np.isfinite(row).any()) for row in shares)
    rest = [column for column in range(shares.shape[1]) if column not in set(chosen)]
    has_rest = bool(rest) and bool(np.nansum(shares[np.ix_(list(chosen), rest)]) > 0)
    rows = []
    for number in chosen:
        cells = [(float(shares[number, column]), labels[column], column == number) for column in chosen]
        if has_rest:
            cells.append((float(shares[number, rest].sum()), "", False))
        row = [
            (Cell(kind, labels[number], answer), share if np.isfinite(share) else None, right, bool(answer or whole))
            for share, answer, right in cells
        ]
        rows.append((labels[number], row))
    return Confusion(title, [labels[number] for number in chosen] + ["any other"] * has_rest, rows)


def found_points(order: Order, images: int, most: int) -> str:
    """Return SVG points of a curve: faults among the first images in an order. The plot's top is `most` faults."""
    places = sorted({round(images * step / FOUND_STEPS) for step in range(FOUND_STEPS + 1)})
    return " ".join(f"{100 * place / (images or 1):.1f},{50 - 50 * order.found(place) / most:.1f}" for place in places)
