"""The images of a version one by one, with all that is known of each: what an export is written from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.types import Edit
from storage.test_set_types import Role, SetEntry, SetVersion, Split
from storage.workspace import Workspace

_AT_ONCE = 500
_LONGEST_STEM = 40


@dataclass(frozen=True)
class SetExample:
    """One image of a version."""

    name: str
    """A safe file stem, one of its own in the version: the label in plain letters, and 16 digits of the hash."""
    image: Path
    """A PNG file: in the workspace, to be read only."""
    sha: str
    """The SHA-256 of that file."""
    label: str = ""
    split: Split = ""
    mask: Path | None = None
    """A PNG file of mode L and the size of the image: the number of a class at every pixel, 255 for none."""
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    source_sha: str = ""
    role: Role = "generated"
    caption: str = ""
    """What the source image shows."""
    new_caption: str = ""
    """What this image was made to show; "" of a source."""
    edits: tuple[Edit, ...] = ()
    edit_types: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready, as it is known now: lineage, checks, review, votes, predictions of a test case; else its origin."""


def examples_of(workspace: Workspace, version: SetVersion) -> Iterator[SetExample]:
    """The images of a version in the order of their hashes, which is that of its manifest. What was deleted is in it.

    Raises UserError for a file that is missing.
    """
    sets = workspace.test_sets
    captions = sets.captions(version.number)
    entries = sorted(sets.entries(version.number), key=lambda entry: entry.image)
    for start in range(0, len(entries), _AT_ONCE):
        some = entries[start : start + _AT_ONCE]
        facts = sets.facts([entry.test_case for entry in some if entry.test_case is not None])
        for entry in some:
            known = facts[entry.test_case] if entry.test_case is not None else None
            edits = known.edits if known is not None else ()
            yield SetExample(
                name=stem_of(entry),
                image=workspace.images.path(entry.image),
                sha=entry.image,
                label=entry.label,
                split=entry.split,
                mask=workspace.images.path(entry.mask) if entry.mask is not None else None,
                mask_classes=entry.mask_classes,
                source_sha=entry.source,
                role=entry.role,
                caption=captions.get(known.run if known is not None else entry.source, ""),
                new_caption=known.new_caption if known is not None else "",
                edits=edits,
                edit_types=tuple(dict.fromkeys(edit.edit_type for edit in edits)),
                facts=known.facts if known is not None else dict(entry.origin),
            )


def stem_of(entry: SetEntry) -> str:
    """The name of its file without an ending: the same in every workspace, and never a path."""
    words = re.sub(r"[^a-z0-9]+", "-", entry.label.lower())[:_LONGEST_STEM].strip("-")
    return f"{words or 'image'}-{entry.image[:16]}"
