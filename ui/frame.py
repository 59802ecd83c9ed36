"""The frame of all pages for the study lead: the header with its links, and the document of rendered pages."""

from __future__ import annotations

from collections.abc import Sequence

from ui.markup import Child, Html
from ui.security.guard import SIGNED_IN
from ui.templating import render
from ui.theme import ASSETS, LEAD, MISSING, asset_address

NAVIGATION = (
    ("explore", "Explore", "/"),
    ("curate", "Curate", "/curate/"),
    ("batches", "Batches", "/batches/"),
    ("study", "Study", "/study/"),
    ("evaluate", "Evaluate", "/evaluate/"),
    ("scripts", "Scripts", "/scripts"),
)

_FIRST = Html((ASSETS / "first.js").read_text(encoding="utf-8").replace("MISSING_WORDS", MISSING))
"""Script in the document of each page. It chooses light or dark before the first paint, so that a dark page does not
flash white. It records clicks, keys and sent forms until the scripts that handle them have loaded, then repeats them in
order. It does not record what the browser handles itself: forms with an address, typed text, Enter, the space bar and
Tab. It reports a script that does not load.
"""


def header(here: str, *status: Child, tools: Child = None, **attributes: str) -> Html:
    """Return the header: links to the studio's pages, `tools`, `status`, and the sign-out, which shows if the document
    has the class "locked". `here` is a name in NAVIGATION; its link gets `attributes`.
    """
    return render("header.html", pages=NAVIGATION, here=here, link=attributes, tools=tools, status=status)


def document(
    title: str, *body: Child, sheets: Sequence[str] = (), scripts: Sequence[str] = (), assets: str = "/ui/"
) -> str:
    """Return a whole HTML document. `sheets` and `scripts` are names of files in `ui/assets`. `assets` is the address
    below which these files are served, with "/" at its end.
    """
    return render(
        "document.html",
        title=title,
        content=body,
        icon_address=asset_address("favicon.svg", assets),
        sheets=[asset_address(name, assets) for name in ("studio.css", "study.css", *sheets)],
        first=_FIRST,
        scripts=[asset_address(name, assets) for name in scripts],
        locked=SIGNED_IN.get(),
    )


def page(
    title: str,
    *content: Child,
    here: str = "study",
    ends: Child = None,
    sheets: Sequence[str] = (),
    scripts: Sequence[str] = (),
) -> str:
    """Return a page for the study lead. `here` is a name in NAVIGATION. `ends` is the status in the header."""
    body = render("page.html", header=header(here, ends), content=content)
    return document(title, body, sheets=sheets, scripts=(LEAD, *scripts))


def not_there(words: str, back: tuple[str, str] = ("Explore", "/"), heading: str = "Not there") -> str:
    """Return a page that says why the requested page is missing. `back` is the text and the address of a link."""
    return page(heading, render("not_there.html", words=words, back=back, heading=heading), here="")
