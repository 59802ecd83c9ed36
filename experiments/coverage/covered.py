"""Coverage, the share of a figure's intervals that contain its true value in a simulated world, and its table. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.figures import Figure
from evaluation.by_source import LEAST, MOST

ROUNDING = 1e-9
"""Maximum distance from an interval at which the true value still counts as inside, since both are rounded."""


@dataclass(frozen=True)
class Covered:
    """Share of a figure's intervals that contain its true value in one simulated world. All shares are 0 to 1."""

    figure: str
    world: Mapping[str, str]
    """Properties of the world: the first columns of its row in the table."""
    column: str
    """Heading of the table's column, such as the true error."""
    truth: float
    covers: float | None
    """The share of intervals that contain the truth, or None if no interval was shown."""
    shown: float
    """The share of repetitions that show an interval or a bound."""
    claims: float
    """The share of repetitions whose interval is above 0. These are false claims if the true value is 0."""
    mean: float | None
    again: int = 0
    """Number of repetitions of the second measurement, which is made if the first one is below `LEAST`; otherwise 0."""


Measurement = Callable[[], Sequence[Covered]]
"""Function that simulates a world many times, and returns the coverage of its figures."""


def covered(figure: str, world: Mapping[str, str], column: str, figures: Sequence[Figure], truth: float) -> Covered:
    """Return how often the intervals of `figures`, one for each repetition, contain the true value `truth`."""
    ends = [(one.low, one.high) for one in figures if one.low is not None]
    hits = sum(low <= truth + ROUNDING and (high is None or truth <= high + ROUNDING) for low, high in ends)
    values = [one.value for one in figures if one.value is not None]
    return Covered(
        figure,
        world,
        column,
        truth,
        hits / len(ends) if ends else None,
        len(ends) / len(figures),
        sum(low > 0 for low, _ in ends) / len(figures),
        sum(values) / len(values) if values else None,
    )


def table(found: Sequence[Covered]) -> list[str]:
    """Return the coverage of one figure in several worlds as Markdown, with a sentence about it."""
    heads, columns = list(found[0].world), list(dict.fromkeys(one.column for one in found))
    cells = {(tuple(one.world.values()), one.column): _cell(one) for one in found}
    lines = [f"## {found[0].figure[:1].upper()}{found[0].figure[1:]}", ""]
    lines += [f"| {' | '.join([*heads, *columns])} |", f"|{' --- |' * len(heads)}{' ---: |' * len(columns)}"]
    for world in dict.fromkeys(world for world, _ in cells):
        lines.append(f"| {' | '.join([*world, *(cells.get((world, column), '') for column in columns)])} |")
    return [*lines, "", summary(found), ""]


def summary(found: Sequence[Covered]) -> str:
    """Describe how many worlds reach the goal. If the true value is 0, also tell how often an interval excludes 0."""
    covers = [one.covers for one in found if one.covers is not None]
    above, below = sum(one > MOST for one in covers), sum(one < LEAST for one in covers)
    text = (
        f"Of {len(found)} worlds {len(covers) - above - below} are covered in {LEAST:.0%} to {MOST:.0%} of the "
        f"repetitions, {above} more often, and {below} less often"
    )
    if len(covers) < len(found):
        text += f"; in {len(found) - len(covers)} there are too few to say"
    if covers:
        text += f"; least often in {100 * min(covers):.1f} %"
    if not any(one.truth for one in found):
        text += f". In at most {100 * max(one.claims for one in found):.1f} % something above 0 is claimed"
    return f"{text}."


def _cell(found: Covered) -> str:
    if found.covers is None:
        return "too few"
    mark = "**" if found.covers < LEAST else ""
    shown = f" ({100 * found.shown:.0f} %)" if found.shown < 1 else ""
    again = f" (n = {found.again:,})" if found.again else ""
    return f"{mark}{100 * found.covers:.1f}{mark}{shown}{again}"
