"""The document of the annotators' page. Its scripts fetch all content, so the document is the same for everybody."""

from __future__ import annotations

from ui.markup import Html
from ui.templating import render
from ui.theme import ASSETS, MISSING

SHEETS = ("studio.css", "annotate.css")
SCRIPTS = ("kept.js", "annotate-wire.js", "annotate-judge.js", "annotate-keys.js", "annotate.js")
"""Scripts in loading order. Each builds on those before it."""
SERVED = (*SHEETS, *SCRIPTS, "favicon.svg")
"""The only files of `ui/assets` that annotators can fetch."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of the page: this server's scripts, styles, pictures and requests; no inline code, no frame.
"""


def annotate_page(preview: str = "") -> Html:
    """Return the page's document. If `preview` is a study's id, the page previews that study and records nothing."""

    def address(name: str) -> str:
        # The stamp is the time of the last change, so that browsers fetch a file again only after a change.
        return f"/annotate/assets/{name}?v={int((ASSETS / name).stat().st_mtime)}"

    return render(
        "annotate/page.html", address=address, sheets=SHEETS, scripts=SCRIPTS, missing=MISSING, preview=preview
    )
