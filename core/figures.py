"""A measured figure with its interval."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Columns:
    """Base for dataclasses whose array fields are columns of the same length. Other fields belong to all rows."""

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def where(self, selected: Flags) -> Self:
        """Return a copy that has only the rows for which `selected` is True."""
        if selected.all():
            return self
        columns = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **{name: one[selected] for name, one in columns.items() if isinstance(one, np.ndarray)})


@dataclass(frozen=True)
class Figure:
    """A figure with its interval. An undefined value or end is None, and `why` gives the reason."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    """Number of images that the figure is computed from."""
    sources: int = 0
    why: str = ""
    """Reason for a missing value or interval; "" if both exist."""

    @property
    def clear_of_zero(self) -> bool:
        """True if the interval excludes 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def width(self) -> float | None:
        """Width of the interval (high - low); None without an interval."""
        return None if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Proportion:
    """A share with its interval. `words` states the share and the interval, or why they are undefined."""

    count: int
    n: int
    value: float | None
    """The share count / n, 0 to 1; None if n is 0."""
    low: float | None
    high: float | None
    words: str


@dataclass(frozen=True)
class Mean:
    """A mean over images with its interval, in the units of the values. `words` states both, or why none exists."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    words: str


@dataclass(frozen=True)
class Bounds:
    """Bounds of a share, 0 to 1. The lower bound counts every missing answer as a no, the upper bound as a yes."""

    worst: float | None
    best: float | None
    missing: int
    words: str


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """Return part / whole; NaN if `whole` is not above 0."""
    return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole > 0)


def chosen_percent(share: float) -> str:
    """Format a share that a person set, as a percentage without trailing zeros: 0.95 as "95 %"."""
    return f"{100 * share:.4g} %"


def percent(share: float) -> str:
    """Format a share for a sentence: "96.8 %", "100 %". Never rounds up to 100 % or down to 0 %."""
    if share in (0.0, 1.0):
        return f"{100 * share:.0f} %"
    return f"{min(max(100 * share, 0.1), 99.9):.1f} %"
