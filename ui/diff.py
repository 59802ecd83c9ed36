"""The difference of two texts, word by word. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

Kind = Literal["same", "removed", "added"]


@dataclass(frozen=True)
class Piece:
    """Consecutive words of a text, with the spaces and punctuation between them."""

    kind: Kind
    text: str


def word_diff(before: str, after: str) -> tuple[Piece, ...]:
    """Compare two texts word by word. Return the pieces in reading order: removed words, then the words in their place.
    If `before` is empty, all of `after` is "same".
    """
    if not before.strip():
        return (Piece("same", after),)
    old, new = _words(before), _words(after)
    matcher = SequenceMatcher(
        None, [word.strip().lower() for word in old], [word.strip().lower() for word in new], False
    )
    pieces: list[Piece] = []
    for what, a0, a1, b0, b1 in matcher.get_opcodes():
        if what == "equal":
            pieces.append(Piece("same", "".join(new[b0:b1])))
            continue
        if a1 > a0:
            pieces.append(Piece("removed", "".join(old[a0:a1])))
        if b1 > b0:
            pieces.append(Piece("added", "".join(new[b0:b1])))
    return tuple(pieces)


def shortened(pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Return the pieces with "…" in place of unchanged sentences."""
    if all(piece.kind == "same" for piece in pieces):
        return pieces
    short: list[Piece] = []
    for place, piece in enumerate(pieces):
        if piece.kind != "same":
            short.append(piece)
            continue
        sentences = re.findall(r"[^.!?]*[.!?]+\s*|[^.!?]+$", piece.text)
        first, last = place == 0, place == len(pieces) - 1
        # Keep the unchanged parts of a sentence that also contains a change.
        head = "" if first else sentences[0]
        rest = sentences if first else sentences[1:]
        tail = ""
        if rest and not last and not rest[-1].rstrip().endswith((".", "!", "?")):
            tail, rest = rest[-1], rest[:-1]
        left_out = "… " if rest else ""
        short.append(Piece("same", f"{head}{left_out}{tail}"))
    return tuple(short)


def _words(text: str) -> list[str]:
    """Split a text into words and punctuation marks, each with the spaces after it."""
    return re.findall(r"(?:\w+(?:[-'’]\w+)*|[^\w\s])\s*", text)
