"""Looking at what is in a version of a test set: a page of it, and how many images of each kind it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlite_utils

from core.image_filter import Facet, ImageFilter
from core.test_sets import EntryCount, SetEntry, ShownEntry
from storage.curation import entry_sets
from storage.curation.selection import Selection
from storage.engine.rows import Row, pack

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
_OWN: Mapping[Facet, str] = {"class": "label", "split": "split", "review": _REVIEW}
"""Facets of which a version has values of its own, with their columns."""
_LISTED = "(SELECT value FROM json_each(:{}))"
_OF_ENTRIES = f"image IN (SELECT catalogue.image FROM catalogue WHERE id IN {_LISTED})"


def page_of(
    db: sqlite_utils.Database,
    version: int,
    image_filter: ImageFilter,
    at: int,
    limit: int,
    read: Callable[[Row], SetEntry],
) -> tuple[ShownEntry, ...]:
    """Images in the order in which they came, from the place `at` on (0: the first)."""
    where, values = _where(db, version, image_filter)
    query = f"SELECT entries.*, {_REVIEW} AS review {_FROM} {where} ORDER BY entries.id LIMIT :limit OFFSET :at"
    rows = db.query(query, {**values, "at": at, "limit": limit})
    return tuple(ShownEntry(read(row), row["review"]) for row in rows)


def images_of(db: sqlite_utils.Database, version: int, image_filter: ImageFilter) -> tuple[str, ...]:
    """The hashes of these images, in the order in which they came."""
    where, values = _where(db, version, image_filter)
    return tuple(image for (image,) in db.execute(f"SELECT image {_FROM} {where} ORDER BY entries.id", values))


def count_of(db: sqlite_utils.Database, version: int, image_filter: ImageFilter) -> int:
    """How many of these images there are."""
    where, values = _where(db, version, image_filter)
    return int(db.execute(f"SELECT count(*) {_FROM} {where}", values).fetchone()[0])


def counts_of(db: sqlite_utils.Database, version: int) -> tuple[EntryCount, ...]:
    """The images of a version, counted."""
    query = f"""
        SELECT label, split, role, {_REVIEW} AS review, count(*) {_FROM} WHERE version = ? GROUP BY 1, 2, 3, 4
        ORDER BY 1, 2, 3, 4
    """
    return tuple(EntryCount(*row) for row in db.execute(query, [version]))


def _where(db: sqlite_utils.Database, version: int, image_filter: ImageFilter) -> tuple[str, dict[str, Any]]:
    """Write a filter as SQL. Label, split and review are the version's; all else is the catalogue's."""
    conditions, values = ["version = :version"], dict[str, Any](version=version)

    def listed(found: Sequence[Any]) -> str:
        name = f"list{len(values)}"
        values[name] = pack(list(found))
        return name

    def of_catalogue(other: ImageFilter) -> str:
        entries = entry_sets.entries_of(Selection(db, other).whole).tolist()
        return _OF_ENTRIES.format(listed(entries))

    for facet, column in _OWN.items():
        for chosen, sign in ((image_filter.facets.get(facet), ""), (image_filter.without.get(facet), "NOT ")):
            if chosen is None:
                continue
            condition = f"{column} IN {_LISTED.format(listed(chosen))}"
            if facet == "class" and any(chosen):  # the classes of a mask, which is no label, stand in the catalogue
                other = of_catalogue(ImageFilter(facets={facet: chosen, "kind": ("segmentation",)}))
                condition = f"({condition} OR label = '' AND {other})"
            conditions.append(f"{sign}({condition})")
    if image_filter.role:
        conditions.append("role = :role")
        values["role"] = image_filter.role
    if image_filter.images is not None:
        conditions.append(f"image IN {_LISTED.format(listed(image_filter.images))}")
    rest = replace(
        image_filter,
        facets={name: chosen for name, chosen in image_filter.facets.items() if name not in _OWN},
        without={name: chosen for name, chosen in image_filter.without.items() if name not in _OWN},
        images=None,
        role="",
    )
    if rest != ImageFilter():
        conditions.append(of_catalogue(rest))
    return f"WHERE {' AND '.join(conditions)}", values
