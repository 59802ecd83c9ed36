"""True answers for simulated annotators. Known answers come from a file. All other answers are guessed."""

from __future__ import annotations

import hashlib
import io
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from PIL import Image

from core.csv_tables import Table, as_written
from core.studies import Question

TRUTH_COLUMNS = ("item", "kind", "question", "asked", "answer", "sight")
"""Columns of the file that a lead downloads, fills in and uploads. Only `sight` and `answer` are read."""
MAX_PIXELS = 50_000_000


def pixels(data: bytes) -> str:
    """Return the SHA-256 of the size and RGB pixels of a PNG or WebP file. Raises ValueError for other files."""
    try:
        image = Image.open(io.BytesIO(data), formats=("PNG", "WEBP"))
        if image.width * image.height > MAX_PIXELS:
            raise ValueError(f"the image has more than {MAX_PIXELS:,} pixels")
        return pixels_of(image)
    except OSError as error:
        raise ValueError("the file is no PNG or WebP image") from error


def pixels_of(image: Image.Image) -> str:
    """Return the SHA-256 of an image's size and RGB pixels."""
    size = f"{image.width}x{image.height}\0".encode()
    return hashlib.sha256(size + image.convert("RGB").tobytes()).hexdigest()


def sight(image: str, source: str, text: str) -> str:
    """Return a hash of everything that a worker sees: the pixels of image and source, and the text of the question."""
    return hashlib.sha256("\0".join((image, source, text)).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class AnswerKey:
    """True answers by `sight` (a hash of the item as a worker sees it). A guess replaces an unknown answer."""

    known: Mapping[str, str] = field(default_factory=dict)
    valid: float = 0.95
    """Probability that a guess is positive ("yes", or 4 or 5 on a scale). A choice is guessed uniformly."""
    seed: int = 0

    def answer(self, image: str, source: str, question: Question) -> str:
        """Return the true answer to a question. It is the same for all workers and runs; "" for free text."""
        answers, seen = question.answers(), sight(image, source, question.text)
        known = self.known.get(seen, "")
        if not answers or known in answers:
            return known
        drawn = random.Random(f"{self.seed}\0{seen}")
        if question.kind == "choice":
            return drawn.choice(answers)
        good = drawn.random() < self.valid
        if question.kind == "scale":
            return drawn.choice(("4", "5") if good else ("1", "2", "3"))
        return "yes" if good else "no"


def read_truth(table: Table) -> dict[str, str]:
    """Return a file's known answers by `sight`. Raises ValueError for a missing column or two answers to a `sight`."""
    missing = [name for name in ("sight", "answer") if name not in table.columns]
    if missing:
        raise ValueError(
            f"The file of true answers has no column {' and no column '.join(missing)}: get one from the study's "
            "exports and fill in the answers."
        )
    known: dict[str, str] = {}
    for number, row in enumerate(table.rows, start=1):
        seen, answer = row.get("sight", ""), as_written(row.get("answer", ""))
        if answer and known.setdefault(seen, answer) != answer:
            raise ValueError(f"Row {number} of the file of true answers says “{answer[:80]}”, an earlier row differs.")
    return known
