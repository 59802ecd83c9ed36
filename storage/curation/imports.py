"""The imports of a workspace, and their images with the facts from the imported files.

If a picture is in the catalogue already, its image is linked to that entry. Otherwise a new entry is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database as Db

from core.csv_tables import cells
from core.data_files import DataTable
from core.images import StoredImage
from core.imports import ImageFacts, Import, ImportRow, RowKind
from core.types import Check, to_plain
from storage.engine.database import Repository, read, write
from storage.engine.queries import (
    change_row,
    first_column,
    first_value,
    insert_row,
    insert_rows,
    record,
    records,
    required_row,
)
from storage.engine.rows import Row, now, record_of, whole
from storage.images import keep_image

_AT_ONCE = 500
_QUERIES = DataTable(__file__, str)


@dataclass(frozen=True)
class NewImage(ImageFacts):
    """An image to import. Its files are in the workspace, but may have no rows in the database yet."""

    name: str
    """Name of the image, unique in the import."""
    image: StoredImage
    mask: StoredImage | None = None
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class ImportedImage(ImageFacts):
    """An imported image as stored. Images and masks are named by the SHA-256 of their files."""

    name: str
    image: str
    mask: str | None
    entry: int | None
    """Catalogue number; None for a source image, which is not in the catalogue."""
    made: bool
    """True if a catalogue entry was made for this image; False if its picture was in the workspace already."""
    test_case: int | None
    """Id of the test case to which the image is linked, if its picture was made in this workspace."""


class Imports(Repository):
    @write
    def begin(self, db: Db, name: str, source: str, content: str, options: Mapping[str, Any]) -> int:
        """Return the number of a new import, or of an earlier one with the same content and options, to continue it."""
        query = "SELECT id FROM imports WHERE content = ? AND options = ?"
        if known := first_value(db, query, [content, _key(options)]):
            return int(known)
        row = {"name": whole(name), "source": whole(source), "content": content, "options": _key(options)}
        return insert_row(db, "imports", {**row, "created": now()})

    @write
    def add(self, db: Db, number: int, images: Sequence[NewImage]) -> int:
        """Add images with their files; skip those that this import has. Return how many are new to the catalogue."""
        if _row(db, number)["state"] == "done":
            return 0
        added = 0
        query = "SELECT 1 FROM imported_images WHERE import = ? AND image = ?"
        for new in images:
            if first_value(db, query, [number, new.image.sha]):
                continue
            for stored in (new.image, new.mask):
                if stored is not None:
                    keep_image(db, stored)
            entry, is_new = (None, False) if new.role == "source" else _entry_of(db, new.image.sha)
            insert_row(db, "imported_images", {"import": number, "entry": entry, "made": int(is_new), **_columns(new)})
            added += is_new
        return added

    @write
    def finish(self, db: Db, number: int, layout: str, header: Mapping[str, Any], rows: Sequence[ImportRow]) -> None:
        """Mark an import as done and save its report `rows`. If it is done already, nothing changes."""
        if _row(db, number)["state"] == "done":
            return
        report = ({"file": whole(row.file), "reason": whole(row.reason), "kind": row.kind} for row in rows)
        insert_rows(db, "import_rows", ({"import": number, **row} for row in report))
        done = {"state": "done", "layout": layout, "header": _json(header), "finished": now()}
        change_row(db, "imports", number, done)

    @read
    def get(self, db: Db, number: int) -> Import:
        """Return one import. Raises UserError if the number is unknown."""
        _row(db, number)
        return records(db, Import, f"{_QUERIES['imports']} WHERE id = ?", [number])[0]

    @read
    def all(self, db: Db) -> tuple[Import, ...]:
        """Return all imports, latest first."""
        return records(db, Import, f"{_QUERIES['imports']} ORDER BY id DESC")

    @read
    def find(self, db: Db, content: str, options: Mapping[str, Any]) -> Import | None:
        """Return the import with this content and these options, or None."""
        query = f"{_QUERIES['imports']} WHERE content = ? AND options = ?"
        return record(db, Import, query, [content, _key(options)])

    @read
    def held(self, db: Db, number: int) -> frozenset[str]:
        """Return the SHA-256 of each image that an import has added so far."""
        return frozenset(first_column(db, "SELECT image FROM imported_images WHERE import = ?", [number]))

    @read
    def rows(
        self, db: Db, number: int, after: int = 0, limit: int = 100, kind: RowKind | None = None
    ) -> tuple[tuple[int, ImportRow], ...]:
        """Return up to `limit` numbered rows of a report, after row number `after`, of all kinds or of one `kind`."""
        query = "SELECT * FROM import_rows WHERE import = ? AND id > ? AND (? IS NULL OR kind = ?) ORDER BY id LIMIT ?"
        rows = db.query(query, [number, after, kind, kind, limit])
        return tuple((row["id"], record_of(ImportRow, row)) for row in rows)

    def images(self, number: int, linked: bool = False) -> Iterator[ImportedImage]:
        """Yield the images of an import in order. With `linked`, yield only those that were in the workspace before."""
        after = 0
        while page := self._page(number, linked, after):
            yield from (image for _, image in page)
            after = page[-1][0]

    @read
    def of_entries(self, db: Db, entries: Sequence[int]) -> tuple[tuple[str, ImportedImage], ...]:
        """Return (name of the import, image) for each of these entries that an import made, in the same order."""
        rows = db.query(_QUERIES["of_entries"], [json.dumps(list(entries))])
        return tuple((row["import_name"], record_of(ImportedImage, row)) for row in rows)

    @read
    def _page(self, db: Db, number: int, linked: bool, after: int) -> tuple[tuple[int, ImportedImage], ...]:
        values = {"import": number, "after": after, "linked": linked, "most": _AT_ONCE}
        return tuple((row["id"], record_of(ImportedImage, row)) for row in db.query(_QUERIES["page"], values))


def _row(db: Db, number: int) -> Row:
    return required_row(db, "imports", number, f"There is no import {number}; take one from the list.", "number")


def _key(options: Mapping[str, Any]) -> str:
    return json.dumps(options, sort_keys=True)


def _entry_of(db: Db, image: str) -> tuple[int, bool]:
    """Return (number of the entry with this image, False), or (new number, True). Ignore entries of deleted runs."""
    entry = first_value(db, "SELECT min(id) FROM catalogue WHERE image = ? AND there", [image])
    if entry is not None:
        return entry, False
    return (first_value(db, "SELECT seq FROM sqlite_sequence WHERE name = 'catalogue'") or 0) + 1, True


def _columns(new: NewImage) -> Row:
    texts = cells(new, "name label caption new_caption")
    return {
        **{name: whole(text) for name, text in texts.items()},
        **cells(new, "split role source"),
        "image": new.image.sha,
        "mask": new.mask.sha if new.mask is not None else None,
        "mask_classes": _json({str(number): named for number, named in sorted(new.mask_classes.items())}),
        "edits": _json([to_plain(edit) for edit in new.edits]),
        "edit_types": _json(list(new.edit_types)),
        "checks": _json([to_plain(check) for check in new.checks]),
        "facts": _json(dict(new.facts)),
        "created": now(),
    }


def _json(data: Any) -> str:
    """Return JSON text without lone surrogates, which readers refuse. Raises ValueError for infinity and NaN."""
    return whole(json.dumps(data, ensure_ascii=False, allow_nan=False))
