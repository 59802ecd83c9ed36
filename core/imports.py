"""Types for imports of images and for the report on their files, as stored and shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from core.test_sets import Role, Split
from core.types import Edit

ImportState = Literal["unfinished", "done"]
"""State of an import. "unfinished": it is running, or it was stopped. The same command resumes a stopped import."""
RowKind = Literal["refused", "changed", "known"]


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """Facts about an image that files of a data set state."""

    mask_classes: Mapping[int, str] = field(default_factory=dict)
    """Class names of the mask by number, 0 to 254."""
    label: str = ""
    """Label from the files. If a person changed the label of a stored image, the person's label is used instead."""
    split: Split = ""
    role: Role = "generated"
    """"source" for the original of generated images, which gets no entry in the catalogue; else "generated"."""
    source: str = ""
    """SHA-256 of the image from which this one was made, or "". That image may be missing in the set or workspace."""
    caption: str = ""
    """Caption of the source image, or ""."""
    new_caption: str = ""
    """Caption from which this image was made, or ""."""
    edits: tuple[Edit, ...] = ()
    edit_types: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Lineage, checks, review, votes and predictions as JSON values. Files of other programs may add columns."""


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
