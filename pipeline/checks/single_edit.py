"""Finds the places at which two captions differ, word by word. Pure: knows no model."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from core.words import token_spans, tokens

_JOINING = frozenset(("a", "an", "the", "of"))
"""Words that may stay the same within one change. For example, "on a hill" to "in a valley" keeps the "a"."""


@dataclass(frozen=True)
class Change:
    """A sequence of words that was replaced by another one. Both are as written in their texts."""

    gone: str
    """The replaced words of the source. "" if words were only added."""
    came: str
    """The new words. "" if words were only removed."""
    keyword: str
    """Words of the source to replace. If words were only added or only removed, the unchanged word before the change is
    included. If the change is at the start of the text, the unchanged word after the change is included instead."""
    alternative: str
    """Words that replace `keyword`. If `keyword` includes an unchanged word, `alternative` includes that word too."""


def changes(source: str, text: str) -> tuple[Change, ...]:
    """Return the changes from `source` to `text`, in text order. Capitals and small letters count as equal."""
    before, after = tokens(source), tokens(text)
    start = _common(before, after)
    end = min(_common(before[::-1], after[::-1]), min(len(before), len(after)) - start)
    middle = before[start : len(before) - end], after[start : len(after) - end]
    runs: list[tuple[int, int, int, int]] = []
    for what, a0, a1, b0, b1 in SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
        if what == "equal":
            continue
        between = middle[0][runs[-1][1] : a0] if runs else ()
        if runs and set(between) <= _JOINING:
            a0, _, b0, _ = runs.pop()
        runs.append((a0, a1, b0, b1))
    return tuple(_change(source, text, *(start + place for place in run)) for run in runs)


def _common(one: list[str], other: list[str]) -> int:
    equal = (a == b for a, b in zip(one, other, strict=False))
    return next((place for place, same in enumerate(equal) if not same), min(len(one), len(other)))


def _change(source: str, text: str, a0: int, a1: int, b0: int, b1: int) -> Change:
    gone, came = _words(source, a0, a1), _words(text, b0, b1)
    if gone and came:
        return Change(gone, came, gone, came)
    # An edit needs words on both sides, so a neighbouring word, the same in both texts, is included.
    before = min(a0, b0, 1)
    after = 0 if before else 1
    return Change(gone, came, _words(source, a0 - before, a1 + after), _words(text, b0 - before, b1 + after))


def _words(text: str, first: int, end: int) -> str:
    spans = token_spans(text)[first:end]
    return text[spans[0][0] : spans[-1][1]] if spans else ""
