"""The list of test sets, and what to do as long as there is none. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.test_sets import SetVersion, TestSet
from core.words import count_of
from ui.curate.frame import curate_page
from ui.curate.sets_words import set_address, splits_in_words
from ui.templating import render

SHEETS, SCRIPTS = ("curate-sets.css",), ("curate-sets.js",)


def list_page(sets: Sequence[TestSet], labels: Mapping[str, int], signed_in: bool) -> str:
    """All test sets, the latest first; `labels` says how many the shown version of each has, by its id."""
    shown = render("curate/sets.html", sets=[_line(one, labels.get(one.id, 0)) for one in sets])
    return curate_page("Test sets", "sets", shown, signed_in=signed_in, sheets=SHEETS, scripts=SCRIPTS)


def shown_version(held: TestSet) -> SetVersion:
    """The version of a set that is looked at first: its draft, or else the latest."""
    version = held.draft or held.latest
    assert version is not None  # a set goes with its last version
    return version


def _line(held: TestSet, labels: int) -> tuple[TestSet, str, SetVersion, list[SetVersion], str]:
    """The set, its address, the version that is looked at first, the released ones from the latest, and facts."""
    version = shown_version(held)
    facts = [count_of(version.entries, "image"), count_of(labels, "label") if labels else "", splits_in_words(version)]
    released = [one for one in reversed(held.versions) if not one.is_draft]
    return held, set_address(held.id), version, released, " · ".join(filter(None, facts))
