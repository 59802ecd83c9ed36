"""The difference of two versions: figures, and the images of each kind with what they were and are. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.test_sets import SetEntry, SetVersion, TestSet
from services.test_sets.versions import Difference
from ui.curate import sets_words
from ui.curate.sets_words import PAGE, pages, reference, set_address
from ui.markup import Html, el
from ui.templating import render

KINDS: Mapping[str, tuple[str, str]] = {
    "added": ("added", "in the new one only"),
    "removed": ("removed", "in the old one only"),
    "relabelled": ("relabelled", "with another label"),
    "remasked": ("other mask", "another mask, or other names of its classes"),
    "resplit": ("re-split", "in another split"),
}
"""Words and meaning of each kind of difference, by its name in a `Difference` and in the address."""


def difference_page(
    old: SetVersion, new: SetVersion, found: Difference, kind: str, at: int, sets: Sequence[TestSet]
) -> Html:
    """The page without its frame. `kind` is a name of KINDS, or "" for the first that has any; `at` a page, from 1."""
    changes: dict[str, Sequence[tuple[SetEntry, SetEntry]]] = {
        "added": [(entry, entry) for entry in found.added],
        "removed": [(entry, entry) for entry in found.removed],
        "relabelled": found.relabelled,
        "remasked": found.remasked,
        "resplit": found.resplit,
    }
    if kind not in changes:
        kind = next((name for name, held in changes.items() if held), "added")
    query = {"old": reference(old), "new": reference(new)}
    address = set_address(new.test_set, "/compare")
    return render(
        "curate/set_difference.html",
        words=sets_words,
        old=old,
        new=new,
        found=found,
        kind=kind,
        kinds=KINDS,
        sets=sets,
        changes=changes,
        title=el("h1", "What is different"),
        address=address,
        addresses={name: set_address(new.test_set, "/compare", **query, kind=name) for name in KINDS},
        other_way=set_address(old.test_set, "/compare", old=query["new"], new=query["old"]),
        shown=changes[kind][(at - 1) * PAGE : at * PAGE],
        places=pages(address, {**query, "kind": kind}, at, len(changes[kind])),
    )
