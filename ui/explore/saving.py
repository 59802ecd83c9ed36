"""How an image leaves the page: as a file that remembers its run, and with its mask where there is one."""

from __future__ import annotations

from core.stored_runs import Run, StoredTestCase
from services.runs.accepted import accepted_of
from ui.explore.parts import save_link
from ui.markup import Html, join


def save_accepted(run: Run) -> Html | None:
    """All accepted images of a run as one file; None as long as there are none."""
    number = len(accepted_of(run))
    if not number:
        return None
    words = (
        "A ZIP file with all accepted images, their masks, and metadata.parquet: label, caption, edits and seed of each"
    )
    return save_link(f"Save {number} accepted", f"download/accepted.zip?run={run.id}", id="save-accepted", title=words)


def save_links(run: Run, case: StoredTestCase) -> Html:
    """The buttons below an image. The server names the files."""
    keeps = "A PNG that carries this whole run: drop it on the page, here or in another workspace, to get it back"
    image = save_link("Save image", f"download/{case.id}.png", id="save-image", title=keeps)
    if run.mask_sha is None:
        return image
    words = "A ZIP file with the image, its mask at the same size, and the names of the classes"
    both = save_link("With mask", f"download/{case.id}.zip", id="save-mask", title=words)
    return join(image, both)
