"""The images of a version of a test set with all known facts, for writing the version as files."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.csv_tables import cells
from core.errors import UserError
from core.progress import OnProgress
from core.test_sets import SetEntry, SetVersion
from core.types import Edit, from_plain, to_plain
from formats.exporting import export
from formats.types import Example, TestSet
from pipeline.profiles.profile import load_profile, profile_names
from pipeline.run_files.provenance import xmp
from storage.curation.imports import ImportedImage
from storage.test_sets.facts import CaseFacts
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
    """Write a released version as files in the format `layout` (see `formats`), and return the folder. `licences` adds
    licences of models, by the model's name in the lineage, to those that the shipped profiles state. The card of the
    export names models without a known licence.

    Raises UserError for a draft, since a draft may still change, and whenever `formats.exporting.export` raises it.
    """
    if version.is_draft:
        raise UserError(f"“{version.words}” is a draft: release it, then export the version.", field="version")
    images = VersionImages(workspace, version)
    models: set[str] = set()
    plan = []
    for example in images.all():
        models.add(_from_lineage(example.facts, "model"))
        plan.append(dataclasses.replace(example, caption="", new_caption="", edits=(), facts={}))
    models.discard("")
    header = TestSet(
        name=version.set_name,
        version=version.id,
        note=version.note,
        created=version.released.isoformat() if version.released is not None else "",
        licences=_licences(sorted(models), licences or {}),
    )
    return export(header, plan, into, layout, replace=replace, progress=progress, complete=images.of)


def _from_lineage(facts: Mapping[str, Any], name: str) -> str:
    """Return the value of the key `name`, such as "model", in the lineage in `facts`. Return "" if the value is
    missing or is not a text. Facts of imported images may have any shape.
    """
    lineage = facts.get("lineage")
    value = lineage.get(name) if isinstance(lineage, dict) else None
    return value if isinstance(value, str) else ""


def _licences(models: Sequence[str], licences: Mapping[str, str]) -> dict[str, str]:
    """Return the licence of each model, from `licences` or else from the shipped profiles; "" if unknown."""
    known = dict(licences)
    for name in profile_names() if set(models) - known.keys() else ():
        known = {**load_profile(name).drawing_licences(), **known}
    return {model: known.get(model, "") for model in models}


class VersionImages:
    """The images of a version. Their facts are read in small groups, when needed."""

    def __init__(self, workspace: Workspace, version: SetVersion) -> None:
        self._workspace, self._version = workspace, version
        self._captions = workspace.test_sets.captions(version.number)
        entries = workspace.test_sets.entries(version.number)
        self._entries = {entry.image: entry for entry in sorted(entries, key=lambda entry: entry.image)}

    def all(self) -> Iterator[Example]:
        entries = list(self._entries.values())
        for start in range(0, len(entries), _AT_ONCE):
            yield from self._examples(entries[start : start + _AT_ONCE])

    def of(self, some: Sequence[Example]) -> Iterator[Example]:
        """Yield the images of `some` in the same order, with all known facts."""
        return self._examples([self._entries[example.sha] for example in some])

    def _examples(self, entries: Sequence[SetEntry]) -> Iterator[Example]:
        sets, images = self._workspace.test_sets, self._workspace.images
        facts = sets.facts([entry.test_case for entry in entries if entry.test_case is not None])
        imported = [entry.image for entry in entries if entry.test_case is None]
        origins, reviews = sets.origins(self._version.number, imported), sets.reviews_of(imported)
        for entry in entries:
            known = facts[entry.test_case] if entry.test_case is not None else None
            metadata = (
                _said_of(known, self._captions)
                if known is not None
                else _brought(origins.get(entry.image, {}), entry.source, self._captions)
            )
            if entry.role == "generated" and entry.image in reviews:
                metadata["facts"] = {**metadata["facts"], "review": reviews[entry.image]}
            yield Example(
                name=stem_of(entry),
                image=images.path(entry.image),
                sha=entry.image,
                **cells(entry, "label split mask_classes role"),
                mask=images.path(entry.mask) if entry.mask is not None else None,
                mask_sha=entry.mask or "",
                source=entry.source,
                xmp=_packet(_from_lineage(metadata["facts"], "method")) if _is_drawn(entry, metadata) else "",
                **metadata,
            )


_packet = lru_cache(maxsize=64)(xmp)
"""Cached function that returns the XMP metadata of images drawn by a method."""


def _is_drawn(entry: SetEntry, facts: Mapping[str, Any]) -> bool:
    """Return True if a model seems to have drawn the image: a test case, or an imported image with another source, a
    new caption, edits, or a method in its lineage. An imported photograph has none of these.
    """
    if entry.role == "source":
        return False
    drawn_from = entry.test_case is not None or entry.source != entry.image
    return drawn_from or bool(facts["new_caption"] or facts["edits"] or _from_lineage(facts["facts"], "method"))


def origin_of(image: ImportedImage, import_name: str) -> dict[str, Any]:
    """Return the facts about an imported image to store with its entry in a test set."""
    metadata: dict[str, Any] = {"import": import_name, **cells(image, "name caption new_caption")}
    metadata |= {"edits": [to_plain(edit) for edit in image.edits], "edit_types": list(image.edit_types)}
    metadata["facts"] = dict(image.facts)
    return {name: value for name, value in metadata.items() if value}


def _said_of(known: CaseFacts, captions: Mapping[str, str]) -> dict[str, Any]:
    types = tuple(dict.fromkeys(edit.edit_type for edit in known.edits))
    return cells(known, "new_caption edits facts") | {"caption": captions.get(known.run, ""), "edit_types": types}


def _brought(origin: Mapping[str, Any], source: str, captions: Mapping[str, str]) -> dict[str, Any]:
    """Return the metadata of an imported or source image. `origin` holds the facts that `origin_of` stored."""
    return {
        "caption": origin.get("caption") or captions.get(source, ""),
        "new_caption": origin.get("new_caption", ""),
        "edits": from_plain(tuple[Edit, ...], origin.get("edits", [])),  # type: ignore[arg-type]
        "edit_types": tuple(origin.get("edit_types", ())),
        "facts": origin.get("facts", {}),
    }


def stem_of(entry: SetEntry) -> str:
    """Return a file name without suffix for an entry. It is the same in every workspace, and has no folder."""
    words = re.sub(r"[^a-z0-9]+", "-", entry.label.lower())[:_LONGEST_STEM].strip("-")
    return f"{words or 'image'}-{entry.image[:16]}"
