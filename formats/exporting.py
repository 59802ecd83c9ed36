"""Write a test set as files in a format of the user's choice."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from core.data_files import DataTable
from core.errors import UserError
from core.progress import OnProgress
from core.test_sets import SPLITS
from formats.draft import Complete, drafted, require_names_of_their_own
from formats.layouts import LAYOUTS
from formats.pages import CARD, CROISSANT, card, croissant
from formats.types import Example, TestSet

_COLUMNS = DataTable(__file__, str)


def export(
    test_set: TestSet,
    examples: Iterable[Example],
    into: Path,
    layout: str,
    *,
    replace: bool = False,
    progress: OnProgress | None = None,
    complete: Complete | None = None,
) -> Path:
    """Write a test set into the new folder `into`, and return its path. The same set gives the same bytes.

    To save memory, `examples` may lack captions, edits and other facts. Then `complete` gets some hundred examples at a
    time, and returns them with these facts. Until the folder is complete, its name contains "unfinished". A failed or
    stopped export leaves no files. Raises UserError for an unknown or read-only format, an empty set, a missing or
    damaged file, a set that the format cannot hold, a full disk, or a folder with files. With `replace`, the folder may
    have the files of an earlier export. Raises ValueError for unsafe or repeated names. Errors of `progress` stop the
    export.
    """
    ordered = sorted(examples, key=lambda example: (SPLITS.index(example.split), example.name))
    known = LAYOUTS.get(layout)
    if known is None or known.write is None:
        names = ", ".join(name for name, each in LAYOUTS.items() if each.write is not None)
        raise UserError(f"“{layout}” is no format to write: choose one of {names}.", field="layout")
    if not ordered:
        raise UserError("The set is empty: there is nothing to export.")
    require_names_of_their_own(ordered)
    with drafted(into, replace, progress, complete) as draft:
        with draft.records(ordered):
            description = known.write(draft, ordered)
        draft.put(CARD, card(test_set, ordered, known.title, description, draft.left_out).encode())
        draft.put(CROISSANT, croissant(test_set, description, draft.files, _COLUMNS))
        draft.finish(layout, test_set, len(ordered))
    return into
