"""Data types for judgements: a vision-language model (the judge) answers questions about generated images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.types import Check, Edit, Task

JUDGE = "judge: "
"""Prefix of the names of all checks by a judge."""
IN_EVERY_JUDGEMENT = f"{JUDGE}picture whole"
"""Name of a check that every judgement has."""


@dataclass(frozen=True)
class JudgeReply:
    """A question to the judge about one factor, and the judge's last reply."""

    prompt: str
    reply: str
    """The whole reply, including the model's reasoning; "" if none came."""
    attempts: int


@dataclass(frozen=True)
class Judgement:
    """The checks of one image by a judge, and their cost."""

    checks: tuple[Check, ...]
    replies: Mapping[str, JudgeReply]
    seconds: float
    """Seconds for this image: the time of its batch divided by the batch's number of images."""
    tokens: int | None
    """Tokens read and written for this image; None if the server does not report them."""


@dataclass(frozen=True)
class ToJudge:
    """A stored image that a judge can be asked about."""

    entry: int
    image: str
    source: str
    task: Task
    edits: tuple[Edit, ...]
    seed: int


@dataclass(frozen=True)
class JudgeCost:
    """Cost of the judgements of one judge so far."""

    images: int
    seconds: float | None
    tokens: float | None
