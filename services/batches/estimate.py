"""What a batch is likely to take: images, hours, disk and money, in numbers and in words. Pure.

What nothing was measured of is None, and "cannot tell" in words: never zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.model_sections import in_bytes
from core.settings import Settings
from core.words import count_of
from services.batches.plan_file import BatchPlan, most_captions

CANNOT_TELL = "cannot tell"


@dataclass(frozen=True)
class Measured:
    """What was measured on this machine with these models; None where nothing was."""

    seconds_a_caption: float | None = None
    """Of one worker for the caption of one source image."""
    seconds_a_language: float | None = None
    """Of one worker for all language stages of one source image."""
    seconds_an_image: float | None = None
    """Of one worker for one generated image with its checks and files."""
    bytes_an_image: float | None = None
    """On the disk, with thumbnail and record."""


@dataclass(frozen=True)
class Estimate:
    """What a batch is likely to take. None: it cannot be told."""

    sources: int
    images: int | None
    """At most: captions that do not come, or are not drawn, make it fewer. As many test cases."""
    hours_of_captions: float | None
    """By the clock, with all workers; as the other hours."""
    hours_of_language: float | None
    hours_of_images: float | None
    hours: float | None
    bytes: float | None
    money: float | None
    price_an_hour: float | None
    currency: str
    workers: int

    @property
    def hours_known(self) -> float | None:
        """Those of the stages that were measured: it takes at least so long. None where none was."""
        known = [hours for hours in self._by_stage().values() if hours is not None]
        return sum(known) if known else None

    def words(self) -> tuple[str, ...]:
        """The estimate in plain sentences: images, hours, disk, money."""
        return (self._images(), self._hours(), self._disk(), self._money())

    def _images(self) -> str:
        sources = count_of(self.sources, "source image")
        if self.images is None:
            return f"Images: {CANNOT_TELL}; the settings set no number of captions for the {sources}."
        if not self.sources:  # they are read, and their captions written
            return f"Images: {count_of(self.images, 'test case')}."
        return f"Images: at most {self.images:,} test cases from {sources}."

    def _hours(self) -> str:
        by_stage, workers = self._by_stage(), count_of(self.workers, "worker")
        unknown = [name for name, hours in by_stage.items() if hours is None]
        told = "; ".join(f"{name} {_duration(hours)}" for name, hours in by_stage.items() if hours is not None)
        if self.hours is not None:
            return f"Time: about {_duration(self.hours)} with {workers} ({told})."
        if not self.hours_known:
            return f"Time: {CANNOT_TELL}; none of this was done yet with these models and settings."
        return f"Time: more than {_duration(self.hours_known)} with {workers} ({told}); {CANNOT_TELL} {_all(unknown)}."

    def _disk(self) -> str:
        return f"Disk: {CANNOT_TELL}." if self.bytes is None else f"Disk: about {in_bytes(self.bytes)}."

    def _money(self) -> str:
        if self.price_an_hour is None:
            return f"Money: {CANNOT_TELL}; the plan gives no cost.price_an_hour."
        price = _amount(self.price_an_hour, self.currency)
        if self.money is None:
            return f"Money: {CANNOT_TELL}; an hour is {price}."
        each = f", {_amount(self.money / self.images, self.currency)} a test case" if self.images else ""
        return f"Money: about {_amount(self.money, self.currency)} at {price} an hour{each}."

    def _by_stage(self) -> dict[str, float | None]:
        return {
            "captions": self.hours_of_captions,
            "language": self.hours_of_language,
            "images": self.hours_of_images,
        }


def images_at_most(plan: BatchPlan, settings: Settings, sources: int) -> int | None:
    """How many images a plan makes of so many source images at most; None where nothing sets the number of captions.
    `settings` are those of `settings_of`.
    """
    written, drawn = most_captions(plan, settings), plan.edits.captions_a_source
    captions = written if drawn is None else drawn
    return None if captions is None else sources * captions * plan.images.seeds_a_caption


def estimate(
    sources: int,
    images: int | None,
    measured: Measured,
    workers: int = 1,
    price_an_hour: float | None = None,
    currency: str = "",
) -> Estimate:
    """What it takes to make `images` of `sources`, one stage after the other, each shared out evenly among `workers`.

    `price_an_hour` is that of all that works at once, by the clock. Of what is left to do (in a batch that goes on)
    give the numbers of what is left. Nothing to do takes no time, whatever was measured.
    """
    stages = (
        _hours(sources, measured.seconds_a_caption, workers),
        _hours(sources, measured.seconds_a_language, workers),
        _hours(images, measured.seconds_an_image, workers),
    )
    known = [hours for hours in stages if hours is not None]
    hours = sum(known) if len(known) == len(stages) else None
    return Estimate(
        sources,
        images,
        *stages,
        hours=hours,
        bytes=_times(images, measured.bytes_an_image),
        money=None if hours is None or price_an_hour is None else hours * price_an_hour,
        price_an_hour=price_an_hour,
        currency=currency,
        workers=workers,
    )


def _times(number: int | None, each: float | None) -> float | None:
    if number == 0:
        return 0.0
    return None if number is None or each is None else number * each


def _hours(number: int | None, seconds: float | None, workers: int) -> float | None:
    whole = _times(number, seconds)
    return None if whole is None else whole / 3600 / workers


def _duration(hours: float) -> str:
    """Such as "40 s", "12 min", "3.5 hours" or "96 hours"."""
    seconds = hours * 3600
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{hours:.1f} hours" if hours < 10 else f"{hours:,.0f} hours"


def _amount(number: float, currency: str) -> str:
    """Money with two digits, or, where it is very little, with two that say something."""
    digits = f"{number:,.2f}" if number >= 0.1 or number == 0 else f"{number:.2g}"
    return f"{digits} {currency}".strip()


def _all(names: list[str]) -> str:
    return " and ".join(names)
