"""Imports of images, and the report on their files, as stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

ImportState = Literal["unfinished", "done"]
"""Unfinished: it is going on, or it was stopped and the same command goes on with it."""
RowKind = Literal["refused", "changed", "known"]


@dataclass(frozen=True)
class ImportRow:
    """What was told of a file, in one sentence."""

    file: str
    reason: str
    kind: RowKind
    """Refused: it is not in the import. Changed: it is, and something was done to it or noticed of it. Known: its
    picture was in the workspace already."""


@dataclass(frozen=True)
class Import:
    """What was brought in at one time."""

    id: int
    name: str
    source: str
    """What the folder or archive is called."""
    layout: str
    """The format that was read; "" while it is unfinished."""
    header: Mapping[str, Any]
    """Of a set that a studio exported: JSON-ready."""
    state: ImportState
    created: datetime
    finished: datetime | None
    images: int
    """That are in, without originals."""
    made: int
    """Of these, how many came new."""
    sources: int
    """Originals of generated images."""
    rows: Mapping[str, int]
    """How many rows of its report are of each kind."""
