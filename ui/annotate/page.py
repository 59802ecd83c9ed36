"""The document of the annotators' page. Its scripts fetch all content, so the document is the same for everybody."""

from __future__ import annotations

from ui.markup import Html
from ui.templating import render
from ui.theme import ASSETS, MISSING

SHEETS = ("studio.css", "annotate.css")
SCRIPTS = (
    "kept.js",
    "annotate-wire.js",
    "annotate-judge.js",
    "annotate-keys.js",
    "annotate.js",
)
"""Scripts in loading order. Each builds on those before it."""
SERVED = (*SHEETS, *SCRIPTS, "favicon.svg")
"""The only files that an annotator gets."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy: its own scripts, pictures and addresses, nothing written into the page, no frame."""


def annotate_page(preview: str = "") -> Html:
    """Return the whole document. With a study's id as `preview` the page shows its preview and records nothing."""

    def address(name: str) -> str:
        # The stamp makes a browser fetch a file again only after it has changed.
        return f"/annotate/assets/{name}?v={int((ASSETS / name).stat().st_mtime)}"

    return render(
        "annotate/page.html", address=address, sheets=SHEETS, scripts=SCRIPTS, missing=MISSING, preview=preview
    )
