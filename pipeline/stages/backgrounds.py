"""Descriptions of new backgrounds, each from an instruction, a place and a time. None of them may name the subject.

Either the language model writes the description, or the filled-in prompt is the description. A person's own pictures
may replace descriptions. Descriptions have the type `CounterfactualCaption`, and are handled in the same way.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from core.errors import UserError
from core.images import read_image
from core.progress import Pace
from core.seeds import derive_seed
from core.settings import BackgroundsSettings
from core.types import (
    CounterfactualCaption,
    CounterfactualCaptions,
    Edit,
    PromptSlot,
    StageValue,
    Trace,
    failed,
)
from pipeline.checks.texts import counterfactual_checks, no_class_named, require, task_checks
from pipeline.stages.asking import Answer, Inquiry, NoAnswer, ask_all, joined_trace, require_one, unanswered
from pipeline.stages.base import Stage, StageInputs
from pipeline.stages.counterfactuals import captions_line, captions_remarks, captions_seen, tell
from pipeline.stages.parsing import read_caption
from pipeline.stages.reply_schema import caption_schema

ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
NAMED = 3
"""Maximum number of unreadable pictures that a stage's notes list by name."""


def run(inputs: StageInputs) -> StageValue[CounterfactualCaptions]:
    """Return at most `settings.captions` descriptions of places and times, chosen by the seed. If `settings.bank` is
    not 0, the descriptions come from a bank of that size, which all sources share. Otherwise description k takes
    `derive_seed(seed, k)`, and further attempts take the next seeds. If a description fails a check, for example by
    naming the label, the model is asked again. If every attempt fails, the best attempt is kept but not used. Raises
    UserError for an empty list or folder, UnreadableReply if no reply is readable, and Cancelled.
    """
    settings: BackgroundsSettings = inputs.settings
    task, prompt, start = inputs.task, inputs.prompt, time.monotonic()
    require(task_checks(task))
    if settings.folder:
        return _own_pictures(settings, inputs.seed)
    assert prompt is not None
    avoid, rng = listed(settings.avoid), random.Random(inputs.seed)
    wordings = list(product(*(listed(text) for text in (settings.instructions, settings.places, settings.times))))
    if not wordings:
        raise UserError("A background needs an instruction, a place and a time: name at least one of each.")
    if settings.bank:
        random.Random(0).shuffle(wordings)
        numbers = rng.sample(range(settings.bank), min(settings.captions, settings.bank))
        chosen = [(wordings[number % len(wordings)], derive_seed(0, number)) for number in numbers]
    else:
        some = rng.sample(wordings, min(settings.captions, len(wordings)))
        chosen = [(wording, derive_seed(inputs.seed, number)) for number, wording in enumerate(some)]

    def described(text: str, wording: Sequence[str]) -> CounterfactualCaption:
        edits = (Edit("place", wording[1], "background"), Edit("time", wording[2], "time of day"))
        item = CounterfactualCaption(text, edits, checks=failed((no_class_named(text, avoid),)))
        return replace(item, used=not failed(counterfactual_checks("", item, task)))

    def values(wording: Sequence[str]) -> dict[str, str | int]:
        words = dict(zip(("instruction", "place", "time"), wording, strict=True))
        return {"task": task.describe(), "avoid": ", ".join((*task.kept(), *avoid)), **words}

    def inquiry(wording: Sequence[str], seed: int) -> Inquiry[str]:
        def shortcomings(text: str) -> int:
            return len(failed(counterfactual_checks("", described(text, wording), task)))

        return Inquiry(values(wording), read_caption, seed, shortcomings, caption_schema(""))

    pace, answers = Pace(len(chosen)), list[Answer[str] | NoAnswer]()
    if settings.written:
        answers = ask_all(
            "a description of a background",
            inputs.models.language,
            prompt,
            [inquiry(*one) for one in chosen],
            settings,
            lambda done: tell(inputs.progress, pace, done),
            inputs.cancelled,
        )
    require_one(answers)
    wordings = [wording for wording, _ in chosen]
    if answers:
        pairs = zip(answers, wordings, strict=True)
        texts = [(answer.value, wording) for answer, wording in pairs if isinstance(answer, Answer)]
    else:
        texts = [(prompt.evaluate(**values(wording)), wording) for wording in wordings]
    items = {text: described(text, wording) for text, wording in texts}
    notes = (*unanswered(answers), *(note for answer in answers for note in answer.notes))
    model = inputs.models.language.name if answers else ""
    trace = joined_trace(model, answers, settings, inputs.seed, start, notes)
    return StageValue(CounterfactualCaptions(tuple(items.values())), trace)


def listed(text: str) -> tuple[str, ...]:
    """Return the parts of a text that commas separate, without repeats."""
    return tuple(dict.fromkeys(part for one in text.split(",") if (part := " ".join(one.split()))))


def _own_pictures(settings: BackgroundsSettings, seed: int) -> StageValue[CounterfactualCaptions]:
    """Return the names of some pictures of the folder. The trace names those that cannot be read."""
    folder, names, unreadable = Path(settings.folder).expanduser(), list[str](), list[str]()
    try:
        files = sorted(one.name for one in folder.iterdir() if one.suffix.lower() in ENDINGS)
    except OSError as error:
        raise UserError(f"The folder of backgrounds {folder} cannot be read: {error.strerror or error}.") from error
    for name in random.Random(seed).sample(files, len(files)):
        try:
            read_image(folder / name)
        except UserError as error:
            unreadable.append(f"{name}: {error}")
            continue
        names.append(name)
        if len(names) == settings.captions:
            break
    if not names:
        why = f" {unreadable[0]}" if unreadable else ""
        raise UserError(f"There is no usable picture in the folder {folder}: put PNG or JPEG files there.{why}")
    notes = [f"This picture of the folder is left out. {one}" for one in unreadable[:NAMED]]
    if len(unreadable) > NAMED:
        notes.append(f"{len(unreadable) - NAMED} more pictures of the folder cannot be read.")
    trace = Trace("model", settings=settings.model_dump(mode="json"), seed=seed, notes=tuple(notes))
    pictures = (CounterfactualCaption(name, (Edit("picture", Path(name).stem, "background"),)) for name in names)
    return StageValue(CounterfactualCaptions(tuple(pictures)), trace)


def own_picture(folder: str, name: str) -> Path:
    """Return the path of a picture in the folder. Raises UserError if the folder has no picture of this name."""
    file = Path(folder).expanduser() / name
    if file.name != name or not file.is_file():
        raise UserError(f"There is no picture “{name}” in the folder {folder}: run the stage Backgrounds again.")
    return file


BACKGROUNDS = Stage(
    name="counterfactuals",
    title="Backgrounds",
    value=CounterfactualCaptions,
    run=run,
    prompt=PromptSlot("backgrounds", ("place", "time"), ("instruction", "avoid", "task")),
    settings="backgrounds",
    seen=captions_seen,
    summary=captions_line,
    remarks=captions_remarks,
    doing="describing backgrounds",
)
