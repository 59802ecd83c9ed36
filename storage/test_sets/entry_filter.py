"""The image filter for a version of a test set, as SQL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlite_utils import Database as Db

from core.image_filter import Facet, ImageFilter
from storage.curation import entry_sets
from storage.curation.selection import Selection
from storage.engine.rows import pack

REVIEW = """
    CASE WHEN role = 'source' THEN 'none' ELSE
        CASE coalesce(state.verdict, (
            SELECT max(verdict) FROM catalogue WHERE catalogue.image = entries.image AND there AND verdict <> 'open'
        ), json_extract(entries.origin, '$.facts.review.verdict'))
        WHEN 'accepted' THEN 'accepted' WHEN 'rejected' THEN 'rejected' ELSE 'open' END
    END
"""
"""Review of an entry; for an imported one without a decision here, the imported decision."""
FROM_ENTRIES = """
    FROM test_set_entries AS entries LEFT JOIN test_case_states AS state ON state.test_case = entries.test_case
"""
_OWN: Mapping[Facet, str] = {"class": "label", "split": "split", "review": REVIEW}
"""Facets that a version stores itself, with their columns."""
_LISTED = "(SELECT value FROM json_each(:{}))"
_OF_ENTRIES = f"image IN (SELECT catalogue.image FROM catalogue WHERE id IN {_LISTED})"


def where_of(db: Db, version: int, image_filter: ImageFilter) -> tuple[str, dict[str, Any]]:
    """Return a filter as SQL. Label, split and review are the version's; all else is the catalogue's."""
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
            if facet == "class" and any(chosen):  # the classes of a mask, which are no label, are in the catalogue
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
