"""Addresses of a study's pages, and functions that write its figures as text. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote

from core.figures import percent
from core.studies import Item, Question
from core.study_report import Disagreement, Slice


def when(moment: datetime, seconds: bool = False) -> str:
    """Return a time as text in this machine's time zone, such as "21 Nov 2026, 18:04"."""
    there = moment.astimezone()
    return f"{there.day} {there.strftime('%b %Y, %H:%M:%S' if seconds else '%b %Y, %H:%M')}"


def text_of_question(question: Question) -> str:
    """Return a question's text for the lead's pages, with "[class]" in place of an image's label."""
    return question.text.replace("{label}", "[class]")


def divided_votes(counts: Mapping[str, int], question: Question) -> str:
    """Return the votes on an image as text, such as "3 yes, 2 no", or "2 · 4 · 4 · 5 · 5" on a rating scale."""
    if question.kind == "scale":
        return " · ".join(answer for answer in sorted(counts) for _ in range(counts[answer])) or "no vote"
    return ", ".join(f"{n} {answer}" for answer, n in counts.items()) or "no vote"


def in_order(counts: Mapping[str, int], question: Question) -> Mapping[str, int]:
    """Return the counts of votes in the order of the question's answers, so that each answer keeps its colour."""
    return {answer: counts[answer] for answer in question.answers() if answer in counts}


def ends(part: Slice) -> str:
    """Return a share's interval as text, such as "Wilson 95 %: 93.9 to 98.4 · n = 251"."""
    if part.rate.low is None or part.rate.high is None:
        return part.rate.words
    return f"Wilson 95 %: {100 * part.rate.low:.1f} to {100 * part.rate.high:.1f} · n = {part.rate.n:,}"


def same_share(after: Slice, before: Slice) -> bool:
    """Return True if two shares have the same counts, so that showing one of them is enough."""
    return (after.rate.count, after.rate.n) == (before.rate.count, before.rate.n)


def share(part: Slice) -> str:
    """Return a share as text, or the reason why it is unknown."""
    return percent(part.rate.value) if part.rate.value is not None else part.rate.words


def figure(words: str) -> str:
    """Return a figure's text, or only "undefined" if it is undefined."""
    return "undefined" if words.startswith("undefined") else words


def study_address(study_id: str, end: str = "") -> str:
    """Return the address of a page of a study."""
    return f"/study/{study_id}/{end}"


def worker_address(study_id: str, worker: str) -> str:
    """Return the address of the page with one worker's votes."""
    return study_address(study_id, f"workers/{quote(worker, safe='')}")


def item_address(study_id: str, item: Item) -> str:
    """Return the address of the page of one image."""
    return study_address(study_id, f"items/{quote(item.public, safe='')}")


def decide_address(study_id: str, case: Disagreement) -> str:
    """Return the address of the page where a person decides one question of one image."""
    return study_address(study_id, f"adjudication?item={case.item}&question={case.question}")
