"""Imports of images, and the report on their files, as stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

ImportState = Literal["unfinished", "done"]
""""unfinished": it is running, or it was stopped and the same command resumes it."""
RowKind = Literal["refused", "changed", "known"]


@dataclass(frozen=True)
class ImportRow:
    """A report on one file, in one sentence."""

    file: str
    reason: str
    kind: RowKind
    """"refused": not imported. "changed": imported, with a change or a remark. "known": its picture was already in the
    workspace."""


@dataclass(frozen=True)
class Import:
    """The images of one import."""

    id: int
    name: str
    source: str
    """Name of the folder or archive."""
    layout: str
    """Format that was read; "" while unfinished."""
    header: Mapping[str, Any]
    """Header of a set that a studio exported: JSON-ready."""
    state: ImportState
    created: datetime
    finished: datetime | None
    images: int
    """Number of images imported so far, without originals."""
    made: int
    """Number of imported images that were new to the workspace."""
    sources: int
    """Number of originals of generated images."""
    rows: Mapping[str, int]
    """Number of report rows of each kind."""
