"""Checks of an image with a new background: the subject's pixels are unchanged, and no second subject shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.figures import percent
from core.types import Check
from core.words import and_list
from pipeline.checks.images import BACKGROUND_FREE, BANDS, SUBJECT_FOUND, SUBJECT_KEPT, SUBJECT_SIZE
from pipeline.cutting import Mask
from pipeline.seams import Segmenter


def background_checks(
    image: Image.Image,
    background: Image.Image,
    subject: NDArray[np.uint8],
    mask: Mask,
    phrases: Sequence[str],
    avoid: Sequence[str],
    segmenter: Segmenter | None,
) -> tuple[Check, ...]:
    """Return all checks of an image. `subject` has the pixels of the subject, (height, width, 3), and `mask` is True
    where the subject is. `phrases` name the subject, and `avoid` names what else the background must not show. Without
    a segmenter, the checks that need one are left out.
    """
    equal = (np.asarray(image) == subject).all(axis=2)[mask].mean()
    unchanged = BANDS[SUBJECT_KEPT].judge(SUBJECT_KEPT, float(equal), "Pixels of the subject were changed.")
    if segmenter is None:
        return (unchanged,)
    return (
        unchanged,
        _free(background, mask, (*phrases, *avoid), segmenter),
        *_at_place(image, mask, phrases, segmenter),
    )


def _free(background: Image.Image, mask: Mask, words: Sequence[str], segmenter: Segmenter) -> Check:
    """Check that the segmenter finds none of the words in the background. Pixels behind the subject do not count, nor
    do things that the segmenter is unsure about.
    """
    seen, named, unknown = np.zeros_like(mask), list[str](), list[str]()
    for word in dict.fromkeys(words):
        try:
            things = [one.mask for one in segmenter.find(background, word) if one.sure]
        except UserError:
            unknown.append(word)
            continue
        seen |= np.any(things, axis=0) if things else False
        named += [word] if things else []
    remark = f"The segmenter does not know {_quoted(unknown)}." if unknown else ""
    if len(unknown) == len(dict.fromkeys(words)):
        return Check(BACKGROUND_FREE, None, note=remark)
    share = float(seen[~mask].mean())
    note = f"{percent(share)} of the background beside the subject looks like {_quoted(named)}."
    check = BANDS[BACKGROUND_FREE].judge(BACKGROUND_FREE, 1 - share, note)
    return replace(check, note=" ".join(filter(None, (check.note, remark))))


def _at_place(image: Image.Image, mask: Mask, phrases: Sequence[str], segmenter: Segmenter) -> list[Check]:
    """Check that the subject is found where it was put, and that nothing larger is found there."""
    try:
        whole = [one.mask for phrase in phrases for one in segmenter.find(image, phrase)]
    except UserError as error:
        return [Check(name, None, note=str(error)) for name in (SUBJECT_FOUND, SUBJECT_SIZE)]
    kind = _quoted(phrases)
    at_place = [one for one in whole if (one & mask).sum() > one.sum() / 2]
    there = np.any(at_place, axis=0) if at_place else np.zeros_like(mask)
    overlap = float((there & mask).sum() / max(1, (there | mask).sum()))
    note = f"Little or nothing of {kind} is found where the subject was put."
    checks = [BANDS[SUBJECT_FOUND].judge(SUBJECT_FOUND, overlap, note)]
    if there.any():
        grown = f"{kind} found at the subject's place is larger than the subject: the background may continue it."
        ratio = min(1.0, float(mask.sum() / there.sum()))
        checks.append(BANDS[SUBJECT_SIZE].judge(SUBJECT_SIZE, ratio, grown))
    return checks


def _quoted(words: Sequence[str]) -> str:
    return and_list(f"“{word}”" for word in words)
