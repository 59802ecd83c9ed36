"""Stage 1, image to caption: describes the source image in several sentences."""

from __future__ import annotations

import time
from dataclasses import dataclass

from core.errors import UnreadableReply
from core.progress import stop_if
from core.settings import CaptionSettings
from core.types import Caption, StageValue, Task, Trace, Values, failed
from core.words import tokens
from pipeline.checks.texts import caption_checks, require, task_checks
from pipeline.replies import is_refusal, read_reply, whole_letters
from pipeline.stages.base import Stage, StageInputs

AGAIN_TEMPERATURES = (0.8, 1.0, 1.2, 1.4)
"""Temperatures for further captions, as temperature 0 would repeat the first caption. Higher ones give nonsense."""


@dataclass(frozen=True)
class _Said:
    text: str
    prompt: str
    raw: str
    why: str
    """Continuation of "The captioner ..." in messages, such as "said nothing"; "" if the text is a caption."""
    seed: int
    settings: CaptionSettings


def run(inputs: StageInputs) -> StageValue[Caption]:
    """Caption the source. If there is an earlier caption, sample with further seeds until a caption has other words and
    fails no more checks than the earlier caption. If no sample succeeds, return a sample with the earlier words. If no
    sample has these words, return the first sample. Raises UnreadableReply if there is no caption, and Cancelled.
    """
    settings: CaptionSettings = inputs.settings
    task, captioner = inputs.task, inputs.models.captioner
    unlike: str = inputs.before.text if inputs.before is not None else ""
    require(task_checks(task))
    start = time.monotonic()
    attempts: list[_Said] = []
    for number, temperature in enumerate(AGAIN_TEMPERATURES if unlike else (settings.temperature,)):
        stop_if(inputs.cancelled)
        tried_settings = settings
        if unlike and settings.temperature == 0:
            tried_settings = settings.model_copy(update={"temperature": temperature, "beams": 1})
        raw, prompt = captioner.caption(inputs.source, task, tried_settings, inputs.seed + number)
        attempts.append(_said(raw, prompt, inputs.seed + number, tried_settings))
        if _is_other(attempts[-1].text, unlike, task):
            break
    spoken = [attempt for attempt in attempts if attempt.text]
    if not spoken:
        stop_if(inputs.cancelled)
        message = f"The captioner {attempts[-1].why}: run it again, or write the caption yourself."
        raise UnreadableReply(message, attempts[-1].prompt, attempts[-1].raw, len(attempts))
    same = next((attempt for attempt in spoken if tokens(attempt.text) == tokens(unlike)), spoken[0])
    chosen = next((attempt for attempt in spoken if _is_other(attempt.text, unlike, task)), same)
    trace = Trace(
        author="model",
        model=captioner.name,
        prompt=chosen.prompt,
        raw_reply=chosen.raw,
        settings=chosen.settings.model_dump(mode="json"),
        seed=chosen.seed,
        attempts=len(attempts),
        seconds=time.monotonic() - start,
    )
    return StageValue(Caption(chosen.text), trace)


def _said(raw: str, prompt: str, seed: int, settings: CaptionSettings) -> _Said:
    reply = read_reply(raw)
    why = "refused to describe the image" if is_refusal(reply.answer) else ""
    if not reply.answer:
        why = "replied with thoughts alone" if reply.thoughts else "said nothing"
    text = "" if why else " ".join(reply.answer.split())
    return _Said(text, prompt, whole_letters(raw), why, seed, settings)


def _is_other(text: str, unlike: str, task: Task) -> bool:
    if not text or tokens(text) == tokens(unlike):
        return False
    return not unlike or len(failed(caption_checks(text, task))) <= len(failed(caption_checks(unlike, task)))


def caption_text(values: Values) -> str:
    """Return the source image's caption, given the values by stage, or "" if it has none."""
    caption = values.get("caption")
    return caption.text if isinstance(caption, Caption) else ""


CAPTION = Stage(
    name="caption",
    title="Caption",
    value=Caption,
    run=run,
    reads_source=True,
    producer="captioner",
    settings="caption",
    seen=lambda value: value.text,
    summary=lambda value: str(value.text),
    remarks=lambda value, _values, task: [check.note for check in failed(caption_checks(value.text, task))],
    doing="captioning the picture",
    plural=False,
    again="Caption again",
    same_again=(
        "The captioner was asked {times} times, each time with another seed, and gave no other caption that fits. It "
        "is almost certain of this one. To say something differently, edit the caption in its field."
    ),
)
