"""A measured figure with its interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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
