"""The test sets of a workspace: their versions, the content of a draft, and the release that makes it final."""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.errors import UserError
from core.image_filter import Facet, ImageFilter
from core.test_sets import (
    LONGEST_NAME,
    CaseOfSet,
    EntryCount,
    ImageHashes,
    SetEntry,
    SetVersion,
    ShownEntry,
    Split,
    TestSet,
    version_id,
)
from core.types import TaskKind
from storage.curation.selection import Selection
from storage.engine.database import Database, Repository, read, reading, write, writing
from storage.engine.queries import first_column, first_value, insert_row, insert_rows, records, required_row
from storage.engine.rows import Row, checked_text, now, pack, record_of, whole
from storage.images import Images
from storage.test_sets.facts import CaseFacts, captions_of, facts_of

LONGEST_NOTE = 4000
MOST_ENTRIES = 1_000_000
"""Maximum number of images in one version."""
Removed = tuple[Row, ...]
"""Rows of images that were removed from a draft. `put_back` uses them to undo the removal."""
_AT_ONCE = 500
"""Maximum number of images in memory while images are added to a draft."""
_ENTRY = "version image source label split mask mask_classes role test_case origin source_elsewhere".split()
_OWN: tuple[Facet, ...] = ("class", "split", "review")
"""Facets whose values a version stores itself. Values of all other facets come from the catalogue."""
_QUERIES = DataTable(__file__, str)


def _begin_next(db: Db, version: int) -> SetVersion:
    """Create a draft with the images of a released version, its parent. Raises UserError if the set has a draft."""
    parent = _version(db, version)
    drafts = "SELECT 1 FROM test_set_versions WHERE test_set = ? AND state = 'draft'"
    if parent.is_draft or first_value(db, drafts, [parent.test_set]):
        raise UserError(f"“{parent.set_name}” has a draft already: change that one, or delete it first.")
    number = _begin_draft(db, parent.test_set, version)
    copied = f"SELECT ?, {', '.join(_ENTRY[1:])} FROM test_set_entries WHERE version = ? ORDER BY id"
    db.execute(f"INSERT INTO test_set_entries ({', '.join(_ENTRY)}) {copied}", [number, version])
    return _version(db, number)


def _add(db: Db, version: int, entries: Iterable[SetEntry]) -> int:
    """Add images to a draft, all or none. Return the number of new ones. Images that the draft has stay unchanged.

    `entries` are read one by one. All images must be in the workspace, except the source of an imported image. Raises
    UserError for a released version, a missing image, and too many images.
    """
    _require_draft(db, version)
    count_before, waiting = _count(db, version), iter(entries)
    while some := list(islice(waiting, _AT_ONCE)):
        elsewhere = _missing(db, (entry.source for entry in some if entry.test_case is None))
        needed = [sha for entry in some for sha in (entry.image, entry.mask) if sha is not None]
        needed += [entry.source for entry in some if entry.source not in elsewhere]
        for sha in sorted(_missing(db, needed)):
            raise UserError(f"This workspace has no image {sha[:80]!r}; nothing was added.")
        insert_rows(db, "test_set_entries", (_row(version, entry, elsewhere) for entry in some), ignore=True)
    count = _count(db, version)
    if count > MOST_ENTRIES:
        raise UserError(f"A test set has at most {MOST_ENTRIES:,} images; choose fewer.")
    return count - count_before


def _version(db: Db, number: int) -> SetVersion:
    """Return a version by its row number. Raises UserError if it is gone, as a deleted draft is."""
    for version in _versions(db, "WHERE versions.number = ?", number):
        return version
    raise _gone()


def _entries(db: Db, version: int) -> tuple[SetEntry, ...]:
    """Return all images of a version, in the order in which they were added. `origins` returns their origins."""
    names = ", ".join(name for name in _ENTRY if name != "origin")
    query = f"SELECT {names} FROM test_set_entries WHERE version = ? ORDER BY id"
    return tuple(map(_entry, db.query(query, [version])))


class TestSets(Repository):
    """The test sets of a workspace, and hashes by which their pictures are recognised."""

    __test__ = False  # pytest would take it for a class of tests

    def __init__(self, database: Database, images: Images) -> None:
        super().__init__(database)
        self._images = images

    # Sets and versions

    @write
    def create(self, db: Db, name: str, note: str = "") -> str:
        """Create a set with an empty draft; return its id. Raises UserError for an invalid or taken name."""
        return create_set(db, name, note)[0]

    @write
    def create_with(self, db: Db, name: str, note: str, entries: Iterable[SetEntry]) -> tuple[SetVersion, int]:
        """Create a set with a draft of these images, all or none. Return (draft, number of images)."""
        _, number = create_set(db, name, note)
        added = _add(db, number, entries)
        return _version(db, number), added

    begin_draft = writing(_begin_next)

    @write
    def begin_draft_with(self, db: Db, version: int, entries: Iterable[SetEntry]) -> tuple[SetVersion, int]:
        """Create a draft from a released version and add images, all or none. Return it and how many are new."""
        number = _begin_next(db, version).number
        added = _add(db, number, entries)
        return _version(db, number), added

    @write
    def delete_draft(self, db: Db, version: int) -> None:
        """Delete a draft, and its set if no version was released. Raises UserError for a released version."""
        _require_draft(db, version)
        draft = _version(db, version)
        db.execute("DELETE FROM test_set_entries WHERE version = ?", [version])
        db.execute("DELETE FROM test_set_versions WHERE number = ?", [version])
        if not first_value(db, "SELECT 1 FROM test_set_versions WHERE test_set = ?", [draft.test_set]):
            db.execute("DELETE FROM test_sets WHERE id = ?", [draft.test_set])

    @write
    def release(self, db: Db, version: int, expected: str, note: str, thresholds: Mapping[str, float]) -> SetVersion:
        """Make a draft final. Its id follows from its content. `expected` is the id of the content that was checked.

        Raises UserError if the draft was changed since, is no draft, or has the content of another version.
        """
        _require_draft(db, version)
        draft, note = _version(db, version), checked_note(note)
        content_id = version_id(draft.set_name, draft.parent, note, thresholds, _entries(db, version))
        if content_id != expected:
            raise UserError(
                f"Nothing was released: “{draft.set_name}” was changed after its check; look at it and try again."
            )
        if place := first_value(db, "SELECT place FROM test_set_versions WHERE sha = ?", [content_id]):
            raise UserError(f"Version {place} of “{draft.set_name}” has this content already: use it.")
        values = [content_id, now(), note, pack({name: float(value) for name, value in thresholds.items()}), version]
        db.execute(_QUERIES["release"], values)
        return _version(db, version)

    # Content of a draft

    add = writing(_add)

    @write
    def remove(self, db: Db, version: int, images: Sequence[str]) -> Removed:
        """Remove images from a draft. Return their rows for `put_back`. Raises UserError for a released version."""
        _require_draft(db, version)
        query = f"SELECT entries.* {_QUERIES['from_chosen']}"
        removed = tuple(db.query(query, [pack(list(dict.fromkeys(images))), version]))
        db.conn.executemany("DELETE FROM test_set_entries WHERE id = ?", ([row["id"]] for row in removed))
        return removed

    @write
    def put_back(self, db: Db, version: int, removed: Removed) -> int:
        """Put removed images back at their old places, without those that were added again. Return the number put back.
        Raises UserError for a released version.
        """
        _require_draft(db, version)
        return insert_rows(db, "test_set_entries", ({**row, "version": version} for row in removed), ignore=True)

    @write
    def part(self, db: Db, version: int, name: str, moved: Sequence[str], shared: Sequence[str]) -> SetVersion:
        """Move images of a draft into the draft of a new set, keeping labels and splits. Return the new draft.

        `shared` images are copied, so both drafts have them. Raises UserError for a released version or a taken name.
        """
        _require_draft(db, version)
        _, number = create_set(db, name, "")
        copied = ", ".join(f"entries.{column}" for column in _ENTRY[1:])
        query = (
            f"INSERT INTO test_set_entries ({', '.join(_ENTRY)}) SELECT {number}, {copied} {_QUERIES['from_chosen']}"
        )
        db.execute(query, [pack([*moved, *shared]), version])
        query = "DELETE FROM test_set_entries WHERE version = ? AND image = ?"
        db.conn.executemany(query, ((version, image) for image in moved))
        return _version(db, number)

    @write
    def relabel(self, db: Db, version: int, images: Sequence[str], label: str) -> int:
        """Set labels in a draft; "" removes them. Return how many changed. Raises UserError if an image is missing."""
        label = checked_text(label, "The label", LONGEST_NAME, "label")
        _require_inside(db, version, images)
        query = "UPDATE test_set_entries SET label = ? WHERE version = ? AND image = ? AND label <> ?"
        return db.conn.executemany(query, ((label, version, image, label) for image in images)).rowcount

    @write
    def set_splits(self, db: Db, version: int, splits: Mapping[str, Split]) -> int:
        """Set the splits of images in a draft. Return how many changed. Raises UserError if an image is missing."""
        _require_inside(db, version, tuple(splits))
        # One image at a time, as with a list SQLite would scan the whole version for each image.
        query = "UPDATE test_set_entries SET split = ? WHERE version = ? AND image = ? AND split <> ?"
        rows = ((split, version, image, split) for image, split in splits.items())
        return db.conn.executemany(query, rows).rowcount

    # Queries

    @read
    def all(self, db: Db) -> tuple[TestSet, ...]:
        """Return all sets, latest first."""
        query = "SELECT * FROM test_sets ORDER BY created DESC, rowid DESC"
        return tuple(_set(db, row) for row in list(db.query(query)))

    @read
    def names(self, db: Db) -> dict[str, str]:
        return dict(db.execute("SELECT id, name FROM test_sets").fetchall())

    @read
    def get(self, db: Db, set_id: str) -> TestSet:
        """Return one set. Raises UserError for an unknown id."""
        missing = f"There is no test set {set_id[:80]!r}; take one from the list."
        return _set(db, required_row(db, "test_sets", set_id, missing, "test_set"))

    @read
    def by_id(self, db: Db, beginning: str) -> tuple[SetVersion, ...]:
        """Return the released versions whose id begins with these hexadecimal digits."""
        return _versions(db, "WHERE versions.sha BETWEEN ? AND ?", beginning, f"{beginning}g")

    version = reading(_version)
    entries = reading(_entries)
    captions = reading(captions_of)

    @read
    def origins(self, db: Db, version: int, images: Iterable[str]) -> dict[str, Mapping[str, Any]]:
        """Return origins of imported images, by hash. They may be long: pass at most some hundred images."""
        rows = db.execute(_QUERIES["origins"], {"version": version, "images": pack(list(images))})
        return {image: json.loads(origin) for image, origin in rows}

    @read
    def page(self, db: Db, version: int, after: int, limit: int) -> tuple[tuple[int, SetEntry], ...]:
        """Return up to `limit` images of a version that come after the row `after`, each with its row number."""
        query = "SELECT * FROM test_set_entries WHERE version = ? AND id > ? ORDER BY id LIMIT ?"
        return tuple((row["id"], _entry(row)) for row in db.query(query, [version, after, limit]))

    @read
    def shown(self, db: Db, version: int, image_filter: ImageFilter, at: int, limit: int) -> tuple[ShownEntry, ...]:
        """Return up to `limit` images of a version that match a filter, from the zero-based place `at`."""
        query, values = _matching(db, version, image_filter, f"entries.*, {_QUERIES['review']} AS review")
        rows = db.query(f"{query} ORDER BY entries.id LIMIT :limit OFFSET :at", {**values, "at": at, "limit": limit})
        return tuple(ShownEntry(_entry(row), row["review"]) for row in rows)

    @read
    def chosen(self, db: Db, version: int, image_filter: ImageFilter) -> tuple[str, ...]:
        """Return the hashes of all images of a version that match a filter, in the order in which they were added."""
        query, values = _matching(db, version, image_filter, "image")
        return tuple(first_column(db, f"{query} ORDER BY entries.id", values))

    @read
    def count(self, db: Db, version: int, image_filter: ImageFilter) -> int:
        """Return the number of images of a version that match a filter."""
        return int(first_value(db, *_matching(db, version, image_filter, "count(*)")))

    @read
    def counts(self, db: Db, version: int) -> tuple[EntryCount, ...]:
        """Return the number of images of a version by label, split, role and review."""
        return tuple(EntryCount(*row) for row in db.execute(_QUERIES["counts"].format_map(_QUERIES), [version]))

    @read
    def tasks(self, db: Db, version: int) -> dict[TaskKind, tuple[str, ...]]:
        """Return the hashes of a version's generated images, by task. Images with an unknown task are left out."""
        images_by_task: dict[TaskKind, list[str]] = defaultdict(list)
        for image, kind in db.execute(_QUERIES["tasks"], [version]):
            images_by_task[kind].append(image)
        return {kind: tuple(images) for kind, images in images_by_task.items() if kind is not None}

    @read
    def not_accepted(self, db: Db, version: int) -> dict[int, str]:
        """Return the ids of test cases that are not accepted, each with "rejected", or "" if nobody decided."""
        return dict(db.execute(_QUERIES["not_accepted"], [version]).fetchall())

    @read
    def brought_not_accepted(self, db: Db, version: int) -> dict[str, str]:
        """Return the verdict ("rejected", or "" for none) on each imported image that is not accepted, by hash. A
        verdict of this workspace counts more than a verdict of the workspace that the image came from.
        """
        verdicts = db.execute(_QUERIES["brought_not_accepted"], [version])
        return {image: verdict if verdict == "rejected" else "" for image, verdict in verdicts if verdict != "accepted"}

    @read
    def cases(self, db: Db, ids: Iterable[int]) -> tuple[CaseOfSet, ...]:
        """Return test cases in the form for a test set, in the order of `ids`. Raises UserError if one is unknown."""
        case_ids = list(dict.fromkeys(ids))
        found = records(db, CaseOfSet, _QUERIES["cases"], [pack(case_ids)])
        if len(found) < len(case_ids):
            unknown = min({*case_ids} - {case.id for case in found})
            raise UserError(f"This workspace has no test case {unknown}; nothing was added.", field="cases")
        return found

    @read
    def versions_with(self, db: Db, image: str) -> tuple[SetVersion, ...]:
        """Return the versions of test sets that contain an image, latest first."""
        return tuple(_version(db, number) for number in first_column(db, _QUERIES["versions_with"], [image]))

    @read
    def facts(self, db: Db, ids: Sequence[int]) -> dict[int, CaseFacts]:
        """Return the current facts about these test cases, even if their runs are deleted."""
        return facts_of(db, ids, self._images.folder)

    @read
    def reviews_of(self, db: Db, images: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the latest verdict, reason and time by image, from this workspace. Skip undecided images."""
        return {row.pop("image"): row for row in db.query(_QUERIES["reviews_of"], [pack(list(images))])}

    # Hashes by which pictures are found again

    @read
    def hashes(self, db: Db, images: Iterable[str]) -> dict[str, ImageHashes]:
        """Return the hashes that are stored for these images, by image."""
        query = "SELECT * FROM image_hashes WHERE image IN (SELECT value FROM json_each(?))"
        rows = db.query(query, [pack(list(images))])
        return {row["image"]: ImageHashes(row["pixels"], int(row["perceptual"], 16)) for row in rows}

    @write
    def keep_hashes(self, db: Db, found: Mapping[str, ImageHashes]) -> None:
        """Save hashes of images, by image. Stored hashes are not replaced."""
        rows = (
            {"image": image, "pixels": hashes.pixels, "perceptual": f"{hashes.perceptual:016x}"}
            for image, hashes in found.items()
        )
        insert_rows(db, "image_hashes", rows, ignore=True)


def create_set(db: Db, name: str, note: str) -> tuple[str, int]:
    """Create a set with an empty draft. Return its id and the draft's row number. Raises the errors of `create`."""
    name = checked_text(name, "The name", LONGEST_NAME, "title", if_empty="The test set has no name; give it one.")
    if name.casefold() in map(str.casefold, first_column(db, "SELECT name FROM test_sets")):
        raise UserError(f"There is a test set “{name}” already; take another name, or add to it.", field="title")
    set_id = secrets.token_hex(8)
    insert_rows(db, "test_sets", [{"id": set_id, "name": name, "created": now()}])
    return set_id, _begin_draft(db, set_id, None, note)


def _begin_draft(db: Db, set_id: str, parent: int | None, note: str = "") -> int:
    place = first_value(db, "SELECT coalesce(max(place), 0) + 1 FROM test_set_versions WHERE test_set = ?", [set_id])
    row = {"test_set": set_id, "place": place, "state": "draft", "parent": parent, "note": checked_note(note)}
    return insert_row(db, "test_set_versions", {**row, "created": now()})


def _set(db: Db, row: Row) -> TestSet:
    versions = _versions(db, "WHERE versions.test_set = ? ORDER BY versions.place", row["id"])
    return record_of(TestSet, row, versions=versions)


def _versions(db: Db, which: str, *values: Any) -> tuple[SetVersion, ...]:
    """Return the versions that a query finds. `which` is its SQL after the joined tables: WHERE and ORDER BY."""
    rows = list(db.query(f"{_QUERIES['versions']} {which}", values))
    return tuple(record_of(SetVersion, row, entries=sum(json.loads(row["splits"]).values())) for row in rows)


def _gone() -> UserError:
    return UserError("This version is gone: it was a draft that somebody deleted.", field="version")


def _require_draft(db: Db, number: int) -> str:
    """Return the name of the set to which a draft belongs. Raises UserError if the version is no draft."""
    for place, state, name in db.execute(_QUERIES["require_draft"], [number]):
        if state != "draft":
            raise UserError(f"Version {place} of “{name}” is released and cannot be changed: begin a new draft.")
        return str(name)
    raise _gone()


def _row(version: int, entry: SetEntry, elsewhere: frozenset[str]) -> Row:
    return {
        **vars(entry),
        "version": version,
        "source": entry.image if entry.source in elsewhere else entry.source,
        "label": checked_text(entry.label, "The label", LONGEST_NAME, "label"),
        "mask_classes": pack({str(number): whole(name) for number, name in sorted(entry.mask_classes.items())}),
        "origin": pack(dict(entry.origin)),
        "source_elsewhere": entry.source if entry.source in elsewhere else "",
    }


def _entry(row: Row) -> SetEntry:
    return record_of(SetEntry, row, source=row["source_elsewhere"] or row["source"])


def _count(db: Db, version: int) -> int:
    return int(first_value(db, "SELECT count(*) FROM test_set_entries WHERE version = ?", [version]))


def _missing(db: Db, images: Iterable[str]) -> frozenset[str]:
    query = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT sha FROM images)"
    return frozenset(first_column(db, query, [pack(sorted(set(images)))]))


def _require_inside(db: Db, version: int, images: Sequence[str]) -> None:
    name = _require_draft(db, version)
    for unknown in first_column(db, _QUERIES["outside"], [pack(list(images)), version]):
        raise UserError(f"“{name}” has no image {unknown[:80]!r}; nothing was changed.", field="images")


def checked_note(note: str) -> str:
    """Return the note of a version in stored form. Raises UserError if it is too long."""
    return checked_text(note, "The note", LONGEST_NOTE, "note", one_line=False)


def _matching(db: Db, version: int, image_filter: ImageFilter, columns: str) -> tuple[str, dict[str, Any]]:
    """Return SQL and its parameters to read `columns` of the images of a version that match a filter.

    Label, split and review are taken from the version, everything else from the catalogue.
    """
    conditions, values = ["version = :version"], dict[str, Any](version=version)

    def listed(found: Sequence[Any]) -> str:
        name = f"list{len(values)}"
        values[name] = pack(list(found))
        return f"(SELECT value FROM json_each(:{name}))"

    def of_catalogue(other: ImageFilter) -> str:
        return f"image IN (SELECT catalogue.image FROM catalogue WHERE id IN {listed(Selection(db, other).entries)})"

    for facet, column in zip(_OWN, ("label", "split", _QUERIES["review"]), strict=True):
        for chosen, sign in ((image_filter.facets.get(facet), ""), (image_filter.without.get(facet), "NOT ")):
            if chosen is None:
                continue
            condition = f"{column} IN {listed(chosen)}"
            if facet == "class" and any(chosen):  # masks have classes but no label, so ask the catalogue
                other = of_catalogue(ImageFilter(facets={facet: chosen, "kind": ("segmentation",)}))
                condition = f"({condition} OR label = '' AND {other})"
            conditions.append(f"{sign}({condition})")
    if image_filter.role:
        conditions.append("role = :role")
        values["role"] = image_filter.role
    if image_filter.images is not None:
        conditions.append(f"image IN {listed(image_filter.images)}")
    facets, without = (
        {name: chosen for name, chosen in every.items() if name not in _OWN}
        for every in (image_filter.facets, image_filter.without)
    )
    rest = replace(image_filter, facets=facets, without=without, images=None, role="")
    if rest != ImageFilter():
        conditions.append(of_catalogue(rest))
    return f"SELECT {columns} {_QUERIES['from_entries']} WHERE {' AND '.join(conditions)}", values
