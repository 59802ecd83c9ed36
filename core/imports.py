"""Types for imports of images and for the report on their files, as stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

ImportState = Literal["unfinished", "done"]
"""State of an import. "unfinished": it is running, or it was stopped. The same command resumes a stopped import."""
RowKind = Literal["refused", "changed", "known"]


@dataclass(frozen=True)
class ImportRow:
    """One row of the report on an import: one file and one sentence about it."""

    file: str
    reason: str
    kind: RowKind
    """"refused": not imported. "changed": imported, with a change or a remark. "known": already in the workspace."""


@dataclass(frozen=True)
class Import:
    """An import, with the numbers of its images."""

    id: int
    name: str
    source: str
    layout: str
    """Format in which the images were read; "" while unfinished."""
    header: Mapping[str, Any]
    """Header of a test set that a studio exported, as JSON-ready data."""
    state: ImportState
    created: datetime
    finished: datetime | None
    images: int
    """Number of images imported so far, without the originals of generated images."""
    made: int
    sources: int
    """Number of imported originals of generated images."""
    rows: Mapping[str, int]
