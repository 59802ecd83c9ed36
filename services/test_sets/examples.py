"""A version as files: its images one by one, with all that is known of each now."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.errors import UserError
from pipeline.progress import OnProgress
from services.formats.exporting import export
from services.formats.types import Example, TestSet
from storage.test_set_types import SetEntry, SetVersion
from storage.workspace import Workspace

_AT_ONCE = 500
_LONGEST_STEM = 40


def export_version(
    workspace: Workspace,
    version: SetVersion,
    into: Path,
    layout: str,
    replace: bool = False,
    progress: OnProgress | None = None,
    licences: Mapping[str, str] | None = None,
) -> Path:
    """Write a released version as files (see `services.formats`), and give the folder. `licences` are those of models,
    by their name in the lineage; of others the card says that none is known.

    Raises UserError for a draft, which may be another set tomorrow, and as `services.formats.exporting.export`.
    """
    if version.is_draft:
        raise UserError(f"“{version.words}” is a draft: release it, then export the version.", field="version")
    examples = list(examples_of(workspace, version))
    models = sorted({one.facts["lineage"]["model"] for one in examples if "lineage" in one.facts})
    header = TestSet(
        name=version.set_name,
        version=version.id,
        note=version.note,
        created=version.released.isoformat() if version.released is not None else "",
        licences={model: (licences or {}).get(model, "") for model in models},
    )
    return export(header, examples, into, layout, replace=replace, progress=progress)


def examples_of(workspace: Workspace, version: SetVersion) -> Iterator[Example]:
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
            yield Example(
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
