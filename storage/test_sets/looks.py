"""Looking at what is in a version of a test set: a page of it, and how many images of each kind it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import sqlite_utils

from core.test_sets import Role, SetEntry, Split
from storage.engine.rows import Row, pack

Review = Literal["accepted", "rejected", "open", "none"]
"""What people decided of an image; "none" of a source, of which nobody decides."""


@dataclass(frozen=True)
class EntryFilter:
    """Which images of a version; None for all."""

    label: str | None = None
    split: Split | None = None
    role: Role | None = None
    review: Review | None = None
    images: tuple[str, ...] | None = None
    """Only these, by their hashes."""


@dataclass(frozen=True)
class ShownEntry:
    """An image of a version, and what people decided of it."""

    entry: SetEntry
    review: Review


@dataclass(frozen=True)
class EntryCount:
    """How many images of a version have this label, split and role, and were decided on so."""

    label: str
    split: Split
    role: Role
    review: Review
    images: int


ALL = EntryFilter()
# What nobody decided here of an image that was brought in counts as what was decided where it came from.
_REVIEW = """
    CASE WHEN role = 'source' THEN 'none' ELSE
        CASE coalesce(state.verdict, (
            SELECT max(verdict) FROM catalogue WHERE catalogue.image = entries.image AND there AND verdict <> 'open'
        ), json_extract(entries.origin, '$.facts.review.verdict'))
        WHEN 'accepted' THEN 'accepted' WHEN 'rejected' THEN 'rejected' ELSE 'open' END
    END
"""
_FROM = """
    FROM test_set_entries AS entries LEFT JOIN test_case_states AS state ON state.test_case = entries.test_case
"""
_WANTED = f"""
    WHERE version = :version AND (:label IS NULL OR label = :label) AND (:split IS NULL OR split = :split)
        AND (:role IS NULL OR role = :role) AND (:review IS NULL OR {_REVIEW} = :review)
        AND (:images IS NULL OR image IN (SELECT value FROM json_each(:images)))
"""


def page_of(
    db: sqlite_utils.Database, version: int, wanted: EntryFilter, at: int, limit: int, read: Callable[[Row], SetEntry]
) -> tuple[ShownEntry, ...]:
    """Images in the order in which they came, from the place `at` (0: the first)."""
    query = f"SELECT entries.*, {_REVIEW} AS review {_FROM} {_WANTED} ORDER BY entries.id LIMIT :limit OFFSET :at"
    rows = db.query(query, {**_values(version, wanted), "at": at, "limit": limit})
    return tuple(ShownEntry(read(row), row["review"]) for row in rows)


def images_of(db: sqlite_utils.Database, version: int, wanted: EntryFilter) -> tuple[str, ...]:
    """The hashes of these images, in the order in which they came."""
    query = f"SELECT image {_FROM} {_WANTED} ORDER BY entries.id"
    return tuple(image for (image,) in db.execute(query, _values(version, wanted)))


def count_of(db: sqlite_utils.Database, version: int, wanted: EntryFilter) -> int:
    """How many of these images there are."""
    return int(db.execute(f"SELECT count(*) {_FROM} {_WANTED}", _values(version, wanted)).fetchone()[0])


def counts_of(db: sqlite_utils.Database, version: int) -> tuple[EntryCount, ...]:
    """The images of a version, counted."""
    query = f"""
        SELECT label, split, role, {_REVIEW} AS review, count(*) {_FROM} WHERE version = ? GROUP BY 1, 2, 3, 4
        ORDER BY 1, 2, 3, 4
    """
    return tuple(EntryCount(*row) for row in db.execute(query, [version]))


def _values(version: int, wanted: EntryFilter) -> dict[str, str | int | None]:
    images = None if wanted.images is None else pack(list(wanted.images))
    held = {"label": wanted.label, "split": wanted.split, "role": wanted.role, "review": wanted.review}
    return {"version": version, "images": images, **held}
