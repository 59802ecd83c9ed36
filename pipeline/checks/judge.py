"""A vision-language model judges a generated image. It gets one question at a time, and each answer becomes a check.

The model is fallible, so its checks are inputs of the validity score. People's votes correct the score's errors. The
answer "cannot tell" counts neither for nor against an image, and nor does an unreadable reply.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Literal

from PIL import Image

from core.data_files import DataTable
from core.errors import CannotLoad, UserError
from core.judgements import Judgement, JudgeReply
from core.settings import LanguageSettings
from core.types import Check, Edit, Task, TaskKind
from pipeline.prompting import Prompt
from pipeline.replies import read_reply
from pipeline.seams import LanguageModel
from pipeline.stages.asking import Answer, Inquiry, NoAnswer, ask_all
from pipeline.stages.parsing import Unreadable, object_with
from pipeline.stages.reply_schema import object_schema, text_schema

LONGEST_REASON = 300
"""Maximum number of characters of the judge's reason, or of an unreadable reply, in the note of a check."""
CANNOT_TELL = "cannot tell"
_ANSWER = re.compile(r"[\s\"'“*_(]*(yes|no|cannot tell)[\s\"'”*_)]*(?:[.,;:!\n–—-]|$)", re.IGNORECASE)
"""Matches an answer, even if a punctuation mark and more text follow, but not the first word of "No idea"."""


@dataclass(frozen=True)
class Factor:
    """A question about a generated image."""

    classification: str
    """The question for a classification task. $kept and $edits are replaced by the image's label and its edits."""
    good: Literal["yes", "no"]
    """Answer with which the image passes."""
    both: Mapping[TaskKind, bool]
    """For each kind of task, True if the judge sees the source image before the generated one."""
    segmentation: str = ""
    """The question for a segmentation task, or "" to ask the question for a classification task."""
    edited: bool = False
    """True for a question about the edits, which is not asked if an image has none."""


FACTORS: Mapping[str, Factor] = DataTable(__file__, Factor, "factors")
"""Questions to the judge. Each key is the name of the check that reports the judge's answer."""
_PROMPT = DataTable(__file__, str, "prompt")
SCHEMA = object_schema(
    {"reason": text_schema(1, LONGEST_REASON), "answer": {"type": "string", "enum": ["yes", "no", CANNOT_TELL]}}
)
"""JSON schema of a reply. The reason comes first, so that the answer follows from it."""


@lru_cache(maxsize=1)
def questions_key() -> str:
    """Return a hash of the judge's prompt and questions. Answers are comparable if their hashes are equal."""
    return hashlib.sha256(Path(__file__).with_suffix(".toml").read_bytes()).hexdigest()[:12]


@dataclass(frozen=True)
class Case:
    """A generated image to judge."""

    source: Image.Image
    image: Image.Image
    """The generated image, RGB."""
    task: Task
    edits: tuple[Edit, ...]
    seed: int = 0


def judge_all(judge: LanguageModel, cases: Sequence[Case], settings: LanguageSettings) -> list[Judgement | UserError]:
    """Return a judge's judgement of each image, or a UserError if no reply about the image came. A question without a
    readable reply gives a check without a verdict. Raises Cancelled, and CannotLoad if the judge cannot be loaded.
    """
    began, before = time.monotonic(), getattr(judge, "tokens", 0)  # some models count them
    names = [(at, name) for at, case in enumerate(cases) for name in _factors(case)]
    prompt = Prompt("judge", _PROMPT["template"].strip())
    inquiries = [_inquiry(cases[at], FACTORS[name]) for at, name in names]
    results = ask_all("an answer", judge, prompt, inquiries, settings)
    seconds = (time.monotonic() - began) / max(1, len(cases))
    spent = getattr(judge, "tokens", 0) - before
    tokens = round(spent / max(1, len(cases))) if spent else None
    found: list[Judgement | UserError] = []
    for at in range(len(cases)):
        of_case = {name: result for (place, name), result in zip(names, results, strict=True) if place == at}
        errors = [result.error for result in of_case.values() if isinstance(result, NoAnswer) and not result.reason]
        if for_all := next((error for error in errors if isinstance(error, CannotLoad)), None):
            raise for_all
        if len(errors) == len(of_case):
            found.append(errors[0])
            continue
        checks = tuple(_check(name, result) for name, result in of_case.items())
        replies = {name: JudgeReply(one.prompt, one.raw_reply, one.attempts) for name, one in of_case.items()}
        found.append(Judgement(checks, replies, seconds, tokens))
    return found


def _factors(case: Case) -> list[str]:
    return [name for name, factor in FACTORS.items() if case.edits or not factor.edited]


def _inquiry(case: Case, factor: Factor) -> Inquiry[tuple[str, str]]:
    labels = ", ".join(name.partition(",")[0].strip() for name in case.task.kept())
    edits = "; ".join(f"“{edit.keyword}” becomes “{edit.alternative}”" for edit in case.edits) or "no change at all"
    segments = case.task.kind == "segmentation" and factor.segmentation
    question = Template(factor.segmentation if segments else factor.classification).safe_substitute(
        kept=labels, edits=edits
    )
    pictures = (case.source, case.image) if factor.both[case.task.kind] else (case.image,)
    values: dict[str, str | int] = {"task": case.task.describe(), "question": question}
    return Inquiry(values, _read, case.seed, schema=SCHEMA, pictures=pictures)


def _read(reply: str) -> tuple[str, str]:
    """Return the answer ("yes", "no" or "cannot tell") and the reason. Raises Unreadable for any other reply."""
    data = object_with(reply, "answer")
    answer, reason = (data["answer"], data.get("reason")) if data is not None else (reply, "")
    match = _ANSWER.match(answer) if isinstance(answer, str) else None
    if match is None:
        raise Unreadable("it has no answer “yes”, “no” or “cannot tell”")
    return match[1].lower(), _shortened(reason) if isinstance(reason, str) else ""


def _check(name: str, result: Answer[tuple[str, str]] | NoAnswer) -> Check:
    """Return the check `name` for a judge's answer. Its figure is 1 if passed, 0 if failed, None without a verdict."""
    if isinstance(result, NoAnswer):
        if not result.reason:
            return Check(name, None, note=str(result.error))
        raw = _shortened(read_reply(result.raw_reply).answer or result.raw_reply)
        return Check(name, None, note=f"The judge's reply cannot be read, as {result.reason}: “{raw}”.")
    answer, reason = result.value
    if answer == CANNOT_TELL:
        return Check(name, None, note=reason or "The judge cannot tell.")
    passed = answer == FACTORS[name].good
    return Check(name, passed, float(passed), reason)


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST_REASON else f"{text[: LONGEST_REASON - 1]}…"
