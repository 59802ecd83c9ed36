"""Write a test set as files in any format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from core.errors import UserError
from core.progress import OnProgress
from formats.draft import Complete, drafted, require_names_of_their_own
from formats.layouts import LAYOUTS
from formats.pages import CARD, CROISSANT, card, croissant
from formats.types import SPLITS, Example, TestSet

_COLUMNS = {
    "name": "The name of the image, its own in the set.",
    "label": "The class of the image; empty where it has none.",
    "split": "train, validation or test; empty where the set is not split.",
    "role": "source: an image that others were made from; generated: any other image, also an imported one.",
    "file": "The image file, from the folder of this description.",
    "sha256": "sha256 of the image's PNG file as the studio keeps it, without what an export writes into it.",
    "source_sha256": "The same of the image that this one was made from.",
    "caption": "What the source image shows.",
    "new_caption": "What the image was made to show.",
    "edits": "What was changed, as JSON text: keyword, alternative, edit type.",
    "edit_types": "The kinds of the edits.",
    "mask_classes": "The class numbers of the mask and their names, as JSON text.",
    "facts": "How the image was made, checked and judged, as JSON text.",
}


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
    """Write the set into the new folder `into` and return its path. The same set gives the same bytes.

    With `complete`, `examples` may lack captions, edits and facts, which take most of the memory: `complete` is asked
    for them when they are written, some hundred at a time.

    Until all of it is there the folder beside it is called unfinished; its manifest is written last. A failed or
    stopped export leaves nothing. Raises UserError for an unknown or read-only format, an empty set, a file that is
    missing or damaged, a set that the format cannot hold, a full disk, and a folder that is not empty (with `replace`:
    unless all that it holds is of an earlier export). Raises ValueError for names that are unsafe or there twice, and
    what `progress` raises, which stops the export.
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
