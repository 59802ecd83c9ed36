"""Estimates how long this machine takes to draw an image, from measured images. Knows no models and no files."""

from __future__ import annotations

import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from core.settings import GenerationSettings

KEPT = 7
"""Number of drawing times kept for each `Effort`. Estimates use their median, as the first time includes loading."""


@dataclass(frozen=True)
class Effort:
    """Properties of an image that decide how long it takes to draw."""

    pixels: int
    steps: int
    guided: bool = True
    """True if guidance is used, for which the network runs twice at each step."""
    by: str = ""
    """Name of the method that draws, "" for the plain generator. Speeds of different models are not comparable."""

    @property
    def work(self) -> float:
        """Measure of the network's work: pixels times steps, and twice that with guidance."""
        return float(self.pixels * self.steps * (2 if self.guided else 1))


def effort_of(settings: GenerationSettings, size: tuple[int, int]) -> Effort:
    """Return the `Effort` to draw one image, given the source's size."""
    scale = settings.short_side / max(1, min(size))
    return Effort(round(size[0] * scale * size[1] * scale), settings.steps, settings.guidance > 1)


class Speeds:
    """Remembers the drawing seconds of images by their `Effort`. May be used from any thread."""

    def __init__(self) -> None:
        self._held: dict[Effort, deque[float]] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._held)

    def add(self, effort: Effort | None, seconds: float) -> None:
        """Remember the drawing seconds of an image. Without an `effort`, nothing is remembered."""
        if effort is None:
            return
        with self._lock:
            self._held.setdefault(effort, deque(maxlen=KEPT)).append(seconds)

    def seconds(self, effort: Effort | None) -> float | None:
        """Return the expected seconds, scaled from the most similar `Effort` of the same method. None if `effort` is
        None, or if no image of that method was measured.
        """
        with self._lock:
            alike = [known for known in self._held if effort is not None and known.by == effort.by]
            if not alike or effort is None:
                return None
            closest = min(alike, key=lambda known: _distance(known, effort))
            return statistics.median(self._held[closest]) * effort.work / closest.work


def _distance(known: Effort, target: Effort) -> tuple[float, bool, float]:
    """Return a key that sorts known efforts by similarity to `target`: first in size, then guidance, then steps."""
    return _ratio(known.pixels, target.pixels), known.guided != target.guided, _ratio(known.steps, target.steps)


def _ratio(a: float, b: float) -> float:
    return max(a, b) / max(1.0, min(a, b))


class SideTime:
    """Measures the time spent on a side task, such as previews, to limit its share of the time since the start."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._spent = self._last = 0.0

    def affordable(self, share: float) -> bool:
        """Return True if the side task, run once more, would stay within this share of the time since the start."""
        return self._spent + self._last <= share * (time.monotonic() - self._start)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the time of a `with` block. The block must run the side task, such as a preview, once."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._last = time.monotonic() - begun
            self._spent += self._last
