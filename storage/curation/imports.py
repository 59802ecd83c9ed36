"""The images that were brought into a workspace: which import each came with, and what its files said of it.

Every method that saves runs in one transaction and returns after its commit. An image whose picture can be curated here
already is linked to that entry of the catalogue; for any other one an entry is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlite_utils import Database as Db

from core.csv_tables import cells
from core.errors import UserError
from core.images import StoredImage
from core.imports import Import, ImportRow, RowKind
from core.test_sets import Role, Split
from core.types import Check, Edit, to_plain
from storage.engine.database import Repository, read, write
from storage.engine.rows import Row, insert_row, now, record_of, unpack_value, whole
from storage.images import keep_image

_AT_ONCE = 500
# Both are answered by an index alone.
_COUNTS = """
    SELECT count(entry), coalesce(sum(made), 0), count(*) - count(entry) FROM imported_images WHERE import = ?
"""
_TOLD = "SELECT kind, count(*) FROM import_rows WHERE import = ? GROUP BY kind"


@dataclass(frozen=True)
class NewImage:
    """An image that is brought in. Its files are in the workspace; their rows need not be."""

    name: str
    """Its own in the import."""
    image: StoredImage
    mask: StoredImage | None = None
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    label: str = ""
    split: Split = ""
    role: Role = "generated"
    """"source": the original of generated images; it is linked as such, and is no entry of the catalogue."""
    source: str = ""
    """The SHA-256 of the image that it was made from, which may be elsewhere; "" for none."""
    caption: str = ""
    """What the source shows."""
    new_caption: str = ""
    edits: tuple[Edit, ...] = ()
    edit_types: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON-ready: whatever else its files said."""


@dataclass(frozen=True)
class ImportedImage:
    """An image of an import."""

    name: str
    image: str
    """The SHA-256 of its file, as is that of its mask."""
    mask: str | None
    mask_classes: Mapping[int, str]
    label: str
    """As its files say it, or as a person decided since of the entry that was made for it."""
    split: Split
    role: Role
    source: str
    caption: str
    new_caption: str
    edits: tuple[Edit, ...]
    edit_types: tuple[str, ...]
    facts: Mapping[str, Any]
    entry: int | None
    """In the catalogue; None of the original of generated images."""
    made: bool
    """The entry was made for it; else its picture was in the workspace."""
    test_case: int | None
    """Of its entry, where the picture was made here."""


class Imports(Repository):
    """The imports of a workspace."""

    @write
    def begin(self, db: Db, name: str, source: str, content: str, options: Mapping[str, Any]) -> int:
        """The number of a new import, or of the one that had the same content and options: finished or not, it is that
        one, under its own name.
        """
        key = [content, _key(options)]
        for (number,) in db.execute("SELECT id FROM imports WHERE content = ? AND options = ?", key).fetchall():
            return int(number)
        row = {"name": whole(name), "source": whole(source), "content": key[0], "options": key[1], "created": now()}
        return insert_row(db, "imports", row)

    @write
    def add(self, db: Db, number: int, images: Sequence[NewImage]) -> int:
        """Bring in images with their files; those that the import has stay as they are. Returns how many came new to
        the catalogue.
        """
        if _row(db, number)["state"] == "done":
            return 0
        made = 0
        query = "SELECT 1 FROM imported_images WHERE import = ? AND image = ?"
        for new in images:
            if db.execute(query, [number, new.image.sha]).fetchone() is not None:
                continue
            for stored in (new.image, new.mask):
                if stored is not None:
                    keep_image(db, stored)
            entry, is_new = (None, False) if new.role == "source" else _entry_of(db, new.image.sha)
            insert_row(db, "imported_images", {"import": number, "entry": entry, "made": int(is_new), **_columns(new)})
            made += is_new
        return made

    @write
    def finish(self, db: Db, number: int, layout: str, header: Mapping[str, Any], rows: Sequence[ImportRow]) -> None:
        """All of it is in; `rows` are the report. Of one that is done nothing changes."""
        if _row(db, number)["state"] == "done":
            return
        db.conn.executemany(
            "INSERT INTO import_rows (import, file, reason, kind) VALUES (?, ?, ?, ?)",
            ([number, whole(row.file), whole(row.reason), row.kind] for row in rows),
        )
        db.execute(
            "UPDATE imports SET state = 'done', layout = ?, header = ?, finished = ? WHERE id = ?",
            [layout, _json(header), now(), number],
        )

    @read
    def get(self, db: Db, number: int) -> Import:
        """One import. Raises UserError for an unknown number."""
        return _get(db, number)

    @read
    def all(self, db: Db) -> tuple[Import, ...]:
        """Every import, the latest first."""
        numbers = db.execute("SELECT id FROM imports ORDER BY id DESC").fetchall()
        return tuple(_get(db, number) for (number,) in numbers)

    @read
    def find(self, db: Db, content: str, options: Mapping[str, Any]) -> Import | None:
        """The import that had this content and these options."""
        row = db.execute(
            "SELECT id FROM imports WHERE content = ? AND options = ?", [content, _key(options)]
        ).fetchone()
        return _get(db, row[0]) if row is not None else None

    @read
    def held(self, db: Db, number: int) -> frozenset[str]:
        """The images that an import has brought in so far."""
        rows = db.execute("SELECT image FROM imported_images WHERE import = ?", [number])
        return frozenset(image for (image,) in rows)

    @read
    def rows(
        self, db: Db, number: int, after: int = 0, limit: int = 100, kind: RowKind | None = None
    ) -> tuple[tuple[int, ImportRow], ...]:
        """At most `limit` rows of the report behind the row `after`, each with its number; of one kind if asked."""
        query = "SELECT * FROM import_rows WHERE import = ? AND id > ? AND (? IS NULL OR kind = ?) ORDER BY id LIMIT ?"
        rows = db.query(query, [number, after, kind, kind, limit])
        return tuple((row["id"], ImportRow(row["file"], row["reason"], row["kind"])) for row in rows)

    def images(self, number: int, linked: bool = False) -> Iterator[ImportedImage]:
        """The images of an import in the order in which they came, some read at a time; `linked`: only those whose
        picture was in the workspace.
        """
        after = 0
        while page := self._page(number, linked, after):
            yield from (image for _, image in page)
            after = page[-1][0]

    @read
    def of_entries(self, db: Db, entries: Sequence[int]) -> tuple[tuple[str, ImportedImage], ...]:
        """The images that these entries of the catalogue were made for, each with the name of its import, in the order
        of the entries; those of test cases are left out.
        """
        query = """
            SELECT brought.*, NULL AS test_case, catalogue.label AS label_now, imports.name AS import_name
            FROM json_each(?) AS wanted CROSS JOIN catalogue ON catalogue.id = wanted.value
                CROSS JOIN imported_images AS brought ON brought.entry = catalogue.id AND made
                JOIN imports ON imports.id = brought.import
            WHERE catalogue.test_case IS NULL ORDER BY wanted.key
        """
        return tuple((row["import_name"], _image(row)) for row in db.query(query, [json.dumps(list(entries))]))

    @read
    def _page(self, db: Db, number: int, linked: bool, after: int) -> tuple[tuple[int, ImportedImage], ...]:
        query = f"""
            SELECT brought.*, catalogue.test_case, iif(made, catalogue.label, brought.label) AS label_now
            FROM imported_images AS brought
                LEFT JOIN catalogue ON catalogue.id = brought.entry
            WHERE import = ? AND brought.id > ? {"AND entry IS NOT NULL AND NOT made" if linked else ""}
            ORDER BY brought.id LIMIT {_AT_ONCE}
        """
        return tuple((row["id"], _image(row)) for row in db.query(query, [number, after]))


def _get(db: Db, number: int) -> Import:
    row = _row(db, number)
    images, made, sources = db.execute(_COUNTS, [number]).fetchone()
    rows = dict(db.execute(_TOLD, [number]).fetchall())
    header = json.loads(row["header"])
    return record_of(Import, row, header=header, images=images, made=made, sources=sources, rows=rows)


def _row(db: Db, number: int) -> Row:
    for row in list(db.query("SELECT * FROM imports WHERE id = ?", [number])):
        return row
    raise UserError(f"There is no import {number}; take one from the list.", field="number")


def _key(options: Mapping[str, Any]) -> str:
    return json.dumps(options, sort_keys=True)


def _entry_of(db: Db, image: str) -> tuple[int, bool]:
    """The entry that a picture has in the catalogue, or the number of a new one. What is of a deleted run cannot be
    seen, and does not count.
    """
    row = db.execute("SELECT min(id) FROM catalogue WHERE image = ? AND there", [image]).fetchone()
    if row[0] is not None:
        return int(row[0]), False
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'catalogue'").fetchone()
    return (int(row[0]) if row is not None else 0) + 1, True


def _columns(new: NewImage) -> Row:
    texts = cells(new, "name label caption new_caption")
    return {
        **{column: whole(text) for column, text in texts.items()},
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
    """JSON text without half letters, which no reader of the database takes. Raises ValueError for infinity and NaN."""
    return whole(json.dumps(data, ensure_ascii=False, allow_nan=False))


def _image(row: Row) -> ImportedImage:
    return record_of(
        ImportedImage,
        row,
        mask_classes={int(number): named for number, named in json.loads(row["mask_classes"]).items()},
        label=row["label_now"],
        edits=unpack_value(tuple[Edit, ...], row["edits"]),
        edit_types=tuple(json.loads(row["edit_types"])),
        facts=json.loads(row["facts"]),
    )
