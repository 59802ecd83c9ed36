"""The document of the annotators' page. All that it shows comes from its scripts, so it is the same for everybody."""

from __future__ import annotations

from ui.markup import el
from ui.theme import ASSETS, MISSING

SHEETS = ("studio.css", "annotate.css")
SCRIPTS = (
    "kept.js",
    "annotate-wire.js",
    "annotate-feedback.js",
    "annotate-judge.js",
    "annotate-keys.js",
    "annotate.js",
)
"""In the order in which they are read: each builds on those before it."""
SERVED = (*SHEETS, *SCRIPTS, "favicon.svg")
"""The only files that an annotator gets."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy: its own scripts, pictures and addresses, nothing written into the page, no frame."""


def annotate_page(preview: str = "") -> str:
    """The whole document. `preview`: a study's id; the page then shows its preview and records nothing."""

    def address(name: str) -> str:
        # The stamp makes a browser fetch a file again only when it was changed.
        return f"/annotate/assets/{name}?v={int((ASSETS / name).stat().st_mtime)}"

    first, later = SCRIPTS[:2], SCRIPTS[2:]
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="robots", content="noindex"),
        el("title", "Judging images"),
        el("link", rel="icon", href=address("favicon.svg")),
        [el("link", rel="stylesheet", href=address(name)) for name in SHEETS],
        # Before the first paint: the second says whether the page is dark.
        [el("script", src=address(name)) for name in first],
        [el("script", src=address(name), defer=True) for name in later],
    )
    body = el(
        "body",
        # The scripts put something else in its place. It shows only if they have not come after some seconds.
        el("div", el("p", MISSING, class_="no-script late"), id="app", class_="studio annotate"),
        el("noscript", el("p", "This page needs JavaScript: please switch it on for it.", class_="no-script")),
        data_preview=preview or None,
    )
    return f"<!doctype html>\n{el('html', head, body, lang='en')}"
