"""The subject of the source, as the region of its pixels: found by the label, or marked by a box, points or paint."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from PIL import Image

from core.class_tables import superclass_of
from core.errors import UserError
from core.figures import percent
from core.regions import WHOLE, Region, region_of
from core.settings import SubjectSettings
from core.types import StageValue, Task, Trace, Values
from pipeline.checks.texts import require, task_checks
from pipeline.cutting import Box, cut_out
from pipeline.seams import Found, Models
from pipeline.stages.base import Stage, StageInputs
from pipeline.subject_mask import LARGE, take, tidied

NO_FINDER = "This profile has no model that finds things by a word."
NO_SUBJECT = "No subject is marked: paint it over the picture, draw a box around it, or press points on it."
MARGIN = 0.1
"""Width of the margin around a box, as a share of the box's sides. A model sees the box and this margin."""


def phrases_of(task: Task, settings: SubjectSettings) -> tuple[str, ...]:
    """Return the phrases by which a segmenter looks for the subject."""
    if settings.phrase.strip():
        return (settings.phrase.strip(),)
    return tuple(superclass_of(name) if settings.superclass else name for name in task.kept())


def run(inputs: StageInputs) -> StageValue[Region]:
    """Return the region of the subject's pixels. Raises UserError if none is found, if it fills the picture, or if a
    box or point is outside the picture.
    """
    settings: SubjectSettings = inputs.settings
    image, models, box, start = inputs.source, inputs.models, inputs.settings.corners, time.monotonic()
    require(task_checks(inputs.task))
    _require_inside(settings, image.size)
    phrases, model, mask, notes = phrases_of(inputs.task, settings), models.segmenter_name(), None, tuple[str, ...]()
    if not (model or box or settings.pixels):
        raise UserError(f"{NO_FINDER} {NO_SUBJECT}")
    if model and settings.pixels:
        mask = models.segmenter.at(image, settings.pixels)
    elif model and (found := _found(image, phrases, box, models)):
        mask, notes = take(found, " or ".join(phrases), settings.several)
    if mask is None and (box or settings.pixels):
        mask, model = tidied(cut_out(image, box, settings.pixels)), "GrabCut"
    if mask is not None and box is not None:
        inside = np.zeros(mask.shape, np.bool_)
        inside[box[1] : box[3], box[0] : box[2]] = True
        mask = mask & inside
    if mask is None or not mask.any():
        where = " within the box" if box else ""
        named = " or ".join(f"“{phrase}”" for phrase in phrases)
        raise UserError(f"No {named} was found{where}: try another word, or paint the subject yourself.")
    if mask.mean() > LARGE:
        filled = percent(float(mask.mean()))
        raise UserError(
            f"The subject fills {filled} of the picture, and no room is left for a background: paint a smaller "
            "subject, or use another picture."
        )
    plain, seconds = settings.model_dump(mode="json"), time.monotonic() - start
    trace = Trace("model", model, settings=plain, seconds=seconds, notes=notes)
    return StageValue(region_of(Image.fromarray(np.where(mask, np.uint8(255), np.uint8(0)))), trace)


def _found(image: Image.Image, phrases: tuple[str, ...], box: Box | None, models: Models) -> list[Found]:
    """Return the things that fit the phrases. With a box, the model sees only the box and a margin, and an unknown word
    is no error.
    """
    left, top, right, bottom = box or (0, 0, *image.size)
    wide, high = round(MARGIN * (right - left)), round(MARGIN * (bottom - top))
    around = max(0, left - wide), max(0, top - high), min(image.width, right + wide), min(image.height, bottom + high)
    try:
        found = [one for phrase in phrases for one in models.segmenter.find(image.crop(around), phrase)]
    except UserError:
        if box is None:
            raise
        return []
    whole = []
    for one in found:
        mask = np.zeros((image.height, image.width), np.bool_)
        mask[around[1] : around[3], around[0] : around[2]] = one.mask
        whole.append(replace(one, mask=mask))
    return whole


def _require_inside(settings: SubjectSettings, size: tuple[int, int]) -> None:
    corners = settings.corners or (0, 0, 0, 0)
    outside = [(x, y) for x, y, _ in settings.pixels if x >= size[0] or y >= size[1]]
    if outside or corners[2] > size[0] or corners[3] > size[1]:
        what = f"The point {outside[0][0]} {outside[0][1]}" if outside else f"The box {settings.box}"
        raise UserError(f"{what} lies outside of the picture, which has {size[0]}x{size[1]} pixels: place it within.")


def all_but_subject(values: Values) -> Region:
    """Return the region that a new background may change, or the whole picture if no subject is marked."""
    subject = values.get("subject")
    return subject.inverse() if isinstance(subject, Region) else WHOLE


SUBJECT = Stage(
    name="subject",
    title="Subject",
    value=Region,
    run=run,
    reads_source=True,
    producer="segmenter",
    settings="subject",
    fits=Region.require_fit,
    summary=lambda value: "nothing yet" if value.whole else value.describe(),
    doing="finding the subject",
    plural=False,
    again="Find again",
)
