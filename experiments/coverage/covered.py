"""Measure coverage (how often a figure's interval contains the true value) in simulated worlds, and list it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.figures import Figure
from evaluation.by_source import LEAST, MOST

ROUNDING = 1e-9
"""Rounding tolerance: a true value this close to an interval counts as inside."""


@dataclass(frozen=True)
class Covered:
    """Coverage of one figure's intervals in one simulated world. All shares are 0 to 1."""

    figure: str
    world: Mapping[str, str]
    """Properties of the simulated world, by name. They fill the first columns of the table."""
    column: str
    """Heading of the table's column for this coverage, such as "2 %" if the true error in the simulation is 2 %."""
    truth: float
    covers: float | None
    """Share of the intervals that contain the true value, or None without an interval."""
    shown: float
    """Share of the repetitions that give an interval or a bound."""
    claims: float
    """Share of the repetitions whose whole interval is above 0. If the true value is 0, these are false claims."""
    mean: float | None
    again: int = 0
    """Number of repetitions if the coverage was measured again because it was below `LEAST`. Otherwise 0."""


Measurement = Callable[[], Sequence[Covered]]
"""Function that simulates a world many times, and returns how often the intervals of its figures contain the truth."""


def covered(figure: str, world: Mapping[str, str], column: str, figures: Sequence[Figure], truth: float) -> Covered:
    """Return the coverage of the true value `truth`. `figures` has one figure with its interval for each repetition."""
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
    """Return a Markdown section: a table of one figure's coverage in several simulated worlds, and a summary."""
    heads, columns = list(found[0].world), list(dict.fromkeys(one.column for one in found))
    cells = {(tuple(one.world.values()), one.column): _cell(one) for one in found}
    lines = [f"## {found[0].figure[:1].upper()}{found[0].figure[1:]}", ""]
    lines += [f"| {' | '.join([*heads, *columns])} |", f"|{' --- |' * len(heads)}{' ---: |' * len(columns)}"]
    for world in dict.fromkeys(world for world, _ in cells):
        lines.append(f"| {' | '.join([*world, *(cells.get((world, column), '') for column in columns)])} |")
    return [*lines, "", summary(found), ""]


def summary(found: Sequence[Covered]) -> str:
    """State how many simulated worlds reach the coverage goal. If the truth is 0, add how often intervals miss 0."""
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
