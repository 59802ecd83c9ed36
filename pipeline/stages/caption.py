"""Stage 1, image to caption: what the source image shows, in several sentences."""

from __future__ import annotations

import time

from PIL import Image

from pipeline.checks import require, task_checks
from pipeline.errors import UnreadableReply
from pipeline.freshness import image_sha, inputs_key
from pipeline.seams import Captioner
from pipeline.settings import CaptionSettings
from pipeline.types import Caption, StageValue, Task, Trace


def run(
    image: Image.Image, task: Task, captioner: Captioner, settings: CaptionSettings, seed: int
) -> StageValue[Caption]:
    """The caption of an RGB image. Raises UnreadableReply when the captioner says nothing."""
    require(task_checks(task))
    start = time.monotonic()
    raw, prompt = captioner.caption(image, task, settings, seed)
    text = " ".join(raw.split())
    if not text:
        raise UnreadableReply(
            "The captioner said nothing: run it again, or write the caption yourself.", prompt, raw, 1
        )
    trace = Trace(
        author="model",
        model=captioner.name,
        prompt=prompt,
        raw_reply=raw,
        settings=settings.model_dump(mode="json"),
        seed=seed,
        seconds=time.monotonic() - start,
    )
    return StageValue(Caption(text), trace, inputs_key("caption", task, image_sha(image), {}, settings))
