"""Checks of a subject in front of a new background: it stayed as it was, and it alone is found. The edges of the source
are not looked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.figures import percent
from core.types import Check
from pipeline.checks.images import BACKGROUND_FREE, BANDS, SUBJECT_FOUND, SUBJECT_KEPT, SUBJECT_SIZE
from pipeline.cutting import Mask
from pipeline.seams import Segmenter


def background_checks(
    image: Image.Image,
    background: Image.Image,
    subject: NDArray[np.uint8],
    mask: Mask,
    phrases: Sequence[str],
    segmenter: Segmenter | None,
) -> tuple[Check, ...]:
    """Return all checks of an image. `subject` has the pixels of the subject, (height, width, 3), and `mask` their
    place. `phrases` name it. Without a segmenter, the checks that need one are left out.
    """
    equal = (np.asarray(image) == subject).all(axis=2)[mask].mean()
    kept = BANDS[SUBJECT_KEPT].judge(SUBJECT_KEPT, float(equal), "Pixels of the subject were changed.")
    return (kept, *(_found(image, background, mask, phrases, segmenter) if segmenter is not None else ()))


def _found(
    image: Image.Image, background: Image.Image, mask: Mask, phrases: Sequence[str], segmenter: Segmenter
) -> list[Check]:
    """Return the checks of what the segmenter finds in the background alone, and in the whole picture."""
    try:
        alone, whole = (_of_kind(one, phrases, segmenter) for one in (background, image))
    except UserError as error:
        return [Check(name, None, note=str(error)) for name in (BACKGROUND_FREE, SUBJECT_FOUND, SUBJECT_SIZE)]
    kind = " or ".join(f"“{phrase}”" for phrase in phrases)
    share = float(np.any(alone, axis=0).mean()) if alone else 0.0
    at_place = [one for one in whole if (one & mask).sum() > one.sum() / 2]
    there = np.any(at_place, axis=0) if at_place else np.zeros_like(mask)
    overlap = float((there & mask).sum() / max(1, (there | mask).sum()))
    note = f"{percent(share)} of the background shows what looks like {kind}."
    checks = [
        BANDS[BACKGROUND_FREE].judge(BACKGROUND_FREE, 1 - share, note),
        BANDS[SUBJECT_FOUND].judge(SUBJECT_FOUND, overlap, f"Not much of {kind} is found where the subject was put."),
    ]
    if there.any():
        grown = f"What looks like {kind} is larger than the subject: the background may go on with it."
        kept = min(1.0, float(mask.sum() / there.sum()))
        checks.append(BANDS[SUBJECT_SIZE].judge(SUBJECT_SIZE, kept, grown))
    return checks


def _of_kind(image: Image.Image, phrases: Sequence[str], segmenter: Segmenter) -> list[Mask]:
    return [found.mask for phrase in phrases for found in segmenter.find(image, phrase)]
