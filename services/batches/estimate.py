"""Estimates images, hours, disk space and money of a batch, in numbers and words. Pure.

A value without measurements is None, never zero. The words then say "cannot tell".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from core.batches import Pass
from core.model_sections import in_bytes
from core.settings import Settings
from core.text_templates import TextTemplates
from core.words import count_of, duration
from services.batches.plan_file import BatchPlan, most_captions


@dataclass(frozen=True)
class Estimate:
    """Estimate of the work that a batch has left. The stages run one after the other, and `workers` share each stage
    evenly. Unknown values are None. A finished stage takes no time, even if it was never measured.
    """

    sources: int
    """Number of source images that still need captions or other text."""
    images: int | None
    """Maximum number of images left to draw; None if unknown. Fewer captions may be written or chosen."""
    seconds: Mapping[Pass, float]
    """Seconds that one worker needs, by pass: for the text of one source image, or to draw, check and save one image.
    Measured in batches of this workspace with the same profile, recipe and settings. Unmeasured passes are absent.
    """
    bytes_an_image: float | None = None
    """Mean size in bytes of a generated image with its thumbnail; None without earlier batches to measure it."""
    workers: int = 1
    price_an_hour: float | None = None
    """Price per hour of all machines together; None if unknown."""
    currency: str = ""

    @property
    def hours_by_stage(self) -> Mapping[Pass, float | None]:
        """Return the clock hours that each stage takes with all workers; None for a stage that was not measured."""
        numbers: dict[Pass, int | None] = {"captions": self.sources, "language": self.sources, "images": self.images}
        seconds = {name: _times(number, self.seconds.get(name)) for name, number in numbers.items()}
        return {name: None if each is None else each / 3600 / self.workers for name, each in seconds.items()}

    @property
    def hours_known(self) -> float | None:
        """Return the hours of only the stages that were measured; None if none was."""
        known = [hours for hours in self.hours_by_stage.values() if hours is not None]
        return sum(known) if known else None

    @property
    def hours(self) -> float | None:
        """Return the hours of all stages, or None if one of them was not measured."""
        return None if None in self.hours_by_stage.values() else self.hours_known

    @property
    def bytes(self) -> float | None:
        """Return the bytes on the disk that the images left to draw will take, or None if unknown."""
        return _times(self.images, self.bytes_an_image)

    @property
    def money(self) -> float | None:
        """Return the price of all hours, or None if the hours or the price per hour are unknown."""
        return None if self.hours is None or self.price_an_hour is None else self.hours * self.price_an_hour

    def words(self) -> tuple[str, ...]:
        """Return the estimate in plain sentences: images, hours, disk, and money if the plan has a price."""
        by_stage = self.hours_by_stage
        known = [f"{name} {duration(3600 * hours)}" for name, hours in by_stage.items() if hours is not None]
        unknown = [name for name, hours in by_stage.items() if hours is None]
        return _TEXTS.paragraphs("estimate.txt", found=self, known=known, unknown=unknown)


def images_at_most(plan: BatchPlan, settings: Settings, sources: int) -> int | None:
    """Return the maximum number of images drawn from `sources` source images; None if captions are unlimited."""
    written, drawn = most_captions(plan, settings), plan.edits.captions_a_source
    captions = written if drawn is None else drawn
    return None if captions is None else sources * captions * plan.images.seeds_a_caption


def _times(number: int | None, each: float | None) -> float | None:
    if number == 0:
        return 0.0
    return None if number is None or each is None else number * each


def amount(number: float, currency: str) -> str:
    """Return money as text, such as "12.50 USD": with two decimals, or two significant digits if below 0.1."""
    digits = f"{number:,.2f}" if number >= 0.1 or number == 0 else f"{number:.2g}"
    return f"{digits} {currency}".strip()


_TEXTS = TextTemplates(
    Path(__file__).with_name("texts"), amount=amount, count_of=count_of, duration=duration, in_bytes=in_bytes
)
