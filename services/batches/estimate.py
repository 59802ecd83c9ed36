"""Estimates images, hours, disk space and money of a batch, in numbers and words. Pure.

A value without measurements is unknown (None), and "cannot tell" in words: never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.model_sections import in_bytes
from core.settings import Settings
from core.words import count_of
from services.batches.plan_file import BatchPlan, most_captions

CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Measured:
    """Speeds and sizes measured on this machine with these models; None if not measured."""

    seconds_a_caption: float | None = None
    """Seconds of one worker to caption one source image."""
    seconds_a_language: float | None = None
    """Seconds of one worker for all language stages of one source image."""
    seconds_an_image: float | None = None
    """Seconds of one worker for one generated image with its checks and files."""
    bytes_an_image: float | None = None
    """Bytes on the disk, with thumbnail and record."""


@dataclass(frozen=True)
class Estimate:
    """Estimate of a batch, one stage after the other, each shared evenly among `workers`. None for unknown. No work
    takes no time, even without measurements.
    """

    sources: int
    """Source images left to do."""
    images: int | None
    """Maximum number of test cases left to do: captions that are not written or not drawn make it fewer."""
    measured: Measured
    workers: int = 1
    price_an_hour: float | None = None
    """Price of all machines together per hour."""
    currency: str = ""

    @property
    def hours_by_stage(self) -> Mapping[str, float | None]:
        """Return the hours of each stage, with all workers."""
        measured = self.measured
        seconds = {
            "captions": _times(self.sources, measured.seconds_a_caption),
            "language": _times(self.sources, measured.seconds_a_language),
            "images": _times(self.images, measured.seconds_an_image),
        }
        return {name: None if each is None else each / 3600 / self.workers for name, each in seconds.items()}

    @property
    def hours_known(self) -> float | None:
        """Return the hours of the measured stages, a lower bound; None if none was measured."""
        known = [hours for hours in self.hours_by_stage.values() if hours is not None]
        return sum(known) if known else None

    @property
    def hours(self) -> float | None:
        """Return the hours of all stages."""
        return None if None in self.hours_by_stage.values() else self.hours_known

    @property
    def bytes(self) -> float | None:
        """Return bytes on the disk."""
        return _times(self.images, self.measured.bytes_an_image)

    @property
    def money(self) -> float | None:
        """Return the price of all hours."""
        return None if self.hours is None or self.price_an_hour is None else self.hours * self.price_an_hour

    def words(self) -> tuple[str, ...]:
        """Return the estimate in plain sentences: images, hours, disk, and money if the plan has a price."""
        cost = () if self.price_an_hour is None else (self._money(self.price_an_hour),)
        return (self._images(), self._hours(), self._disk(), *cost)

    def _images(self) -> str:
        sources = count_of(self.sources, "source image")
        if self.images is None:
            return f"Images: {CANNOT_TELL}; the settings set no number of captions for the {sources}."
        if not self.sources:  # sources are read, and their captions written
            return f"Images: {count_of(self.images, 'test case')}."
        return f"Images: at most {self.images:,} test cases from {sources}."

    def _hours(self) -> str:
        by_stage, workers = self.hours_by_stage, count_of(self.workers, "worker")
        unknown = [name for name, hours in by_stage.items() if hours is None]
        parts = "; ".join(f"{name} {_duration(hours)}" for name, hours in by_stage.items() if hours is not None)
        if self.hours is not None:
            return f"Time: about {_duration(self.hours)} with {workers} ({parts})."
        if not self.hours_known:
            return f"Time: {CANNOT_TELL}; none of this was done yet with these models and settings."
        return f"Time: more than {_duration(self.hours_known)} with {workers} ({parts}); {CANNOT_TELL} {_all(unknown)}."

    def _disk(self) -> str:
        return f"Disk: {CANNOT_TELL}." if self.bytes is None else f"Disk: about {in_bytes(self.bytes)}."

    def _money(self, price_an_hour: float) -> str:
        price = amount(price_an_hour, self.currency)
        if self.money is None:
            return f"Money: {CANNOT_TELL}; an hour is {price}."
        each = f", {amount(self.money / self.images, self.currency)} a test case" if self.images else ""
        return f"Money: about {amount(self.money, self.currency)} at {price} an hour{each}."


def images_at_most(plan: BatchPlan, settings: Settings, sources: int) -> int | None:
    """Return the maximum images that a plan makes from this many sources, or None if nothing limits the captions.
    `settings` come from `settings_of`.
    """
    written, drawn = most_captions(plan, settings), plan.edits.captions_a_source
    captions = written if drawn is None else drawn
    return None if captions is None else sources * captions * plan.images.seeds_a_caption


def _times(number: int | None, each: float | None) -> float | None:
    if number == 0:
        return 0.0
    return None if number is None or each is None else number * each


def _duration(hours: float) -> str:
    """Return a duration such as "40 s", "12 min", "3.5 hours" or "96 hours"."""
    seconds = hours * 3600
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{hours:.1f} hours" if hours < 10 else f"{hours:,.0f} hours"


def amount(number: float, currency: str) -> str:
    """Return money in words with two decimals, or with two significant digits if it is very little."""
    digits = f"{number:,.2f}" if number >= 0.1 or number == 0 else f"{number:.2g}"
    return f"{digits} {currency}".strip()


def _all(names: list[str]) -> str:
    return " and ".join(names)
