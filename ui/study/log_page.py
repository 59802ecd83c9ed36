"""What happened in a study and what was refused, latest first. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from storage.study_types import LogEntry
from ui.views.markup import Html, el


def log_page(entries: Sequence[LogEntry], limit: int) -> Html:
    """A table of events; times in UTC."""
    if not entries:
        return el("section", el("p", "Nothing has happened yet.", class_="mut"), class_="card box")
    rows = [
        el(
            "tr",
            el("td", f"{entry.created:%d %b %Y, %H:%M:%S}", class_="mut when"),
            el("td", entry.event),
            el("td", entry.worker),
            el("td", entry.detail, class_="mut"),
        )
        for entry in entries
    ]
    head = [el("th", words, scope="col") for words in ("time (UTC)", "event", "worker", "detail")]
    more = el("p", f"The latest {limit} events.", class_="mut small") if len(entries) >= limit else None
    return el(
        "section",
        el("div", el("table", el("thead", el("tr", head)), el("tbody", rows), class_="log"), class_="scroll"),
        more,
        class_="card box",
    )
