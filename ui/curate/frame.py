"""The frame of the pages of Curate: the studio's header with the tabs of Curate.

The server renders them, like the pages of a study. The first screen of a gallery then appears a second earlier than
with Gradio's script (measured: 0.15 s and 1.1 s on two cores), and their policy lets only our scripts run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ui.frame import document, header
from ui.markup import Child, el, join
from ui.templating import render
from ui.theme import LEAD

Tab = Literal["images", "coverage", "map", "sets"]


def curate_page(
    title: str,
    tab: Tab,
    *content: Child,
    status: Child = None,
    signed_in: bool = False,
    sheets: Sequence[str] = (),
    scripts: Sequence[str] = (),
) -> str:
    """Return a page of Curate as a document. `status` is in its header; `sheets` and `scripts` are in `ui/assets`."""
    return document(
        title,
        header("curate", status, tools=render("curate/pages.html", tab=tab)),
        el("main", join(*content), class_=f"curate {tab}"),
        sheets=("curate.css", *sheets),
        scripts=(LEAD, *scripts),
        locked=signed_in,
    )
