"""A measured figure with its interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Figure:
    """A figure with its interval. What is undefined is None, and `why` says it in words."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    """Images."""
    sources: int = 0
    why: str = ""
    """Why there is no value, or no interval; "" where there are both."""

    @property
    def clear_of_zero(self) -> bool:
        """Whether its interval leaves out 0."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    @property
    def width(self) -> float | None:
        """high - low; None without an interval."""
        return None if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Proportion:
    """A share of things, said in words where it is undefined."""

    count: int
    n: int
    value: float | None
    """count / n, 0 to 1; None without anything to count."""
    low: float | None
    """The ends of the interval, 0 to 1; None where it is undefined."""
    high: float | None
    words: str

    @property
    def width(self) -> float | None:
        """high - low, 0 to 1."""
        return None if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Mean:
    """A mean over images with its interval, in the units of the scale; None and words where it is undefined."""

    value: float | None
    low: float | None
    high: float | None
    n: int
    """Images."""
    words: str


@dataclass(frozen=True)
class Bounds:
    """What the share would be if everything missing were against it, and if everything were for it; 0 to 1."""

    worst: float | None
    best: float | None
    missing: int
    words: str


def ratio(part: NDArray[Any], whole: NDArray[Any]) -> Floats:
    """Return part / whole; NaN where `whole` is not above 0."""
    return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole > 0)


def chosen_percent(share: float) -> str:
    """Return a share that somebody chose in percent, without further decimals: 0.95 as "95 %"."""
    return f"{100 * share:.4g} %"


def percent(share: float) -> str:
    """A share as it stands in a sentence: "96.8 %", "100 %". Never rounded up to 100 % or down to 0 %."""
    if share in (0.0, 1.0):
        return f"{100 * share:.0f} %"
    return f"{min(max(100 * share, 0.1), 99.9):.1f} %"
