"""What happened in a study, or in all of the workspace with what was refused there; latest first. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storage.study_types import LogEntry
from study.types import Study
from ui.study.frame import study_address
from ui.views.markup import Child, Html, el


def log_page(study: Study, entries: Sequence[LogEntry], limit: int, names: Mapping[str, str] | None = None) -> Html:
    """A table of events; times in UTC. With `names` (study id to name) the entries are those of all studies, and of
    none: attempts to sign in, and requests that were refused before it was known what study they were about.
    """
    address = study_address(study.id, "log")
    ways = [
        el("a", words, href=to, class_="chip on" if here else "chip", aria_current="true" if here else None)
        for words, to, here in (
            ("this study", address, names is None),
            ("all studies, sign-ins and refusals", f"{address}?all=1", names is not None),
        )
    ]
    if not entries:
        body: Child = el("p", "Nothing has happened yet.", class_="mut")
    else:
        columns = ["time (UTC)", "event", "worker", "detail", *(["study"] if names is not None else [])]
        rows = [_row(entry, names) for entry in entries]
        head = el("thead", el("tr", [el("th", words, scope="col") for words in columns]))
        body = el("div", el("table", head, el("tbody", rows), class_="log"), class_="scroll")
    more = el("p", f"The latest {limit} events.", class_="mut small") if len(entries) >= limit else None
    return el("section", el("span", ways, class_="chips"), body, more, class_="card box")


def _row(entry: LogEntry, names: Mapping[str, str] | None) -> Html:
    return el(
        "tr",
        el("td", f"{entry.created:%d %b %Y, %H:%M:%S}", class_="mut when"),
        el("td", entry.event),
        el("td", entry.worker),
        el("td", entry.detail, class_="mut"),
        el("td", names.get(entry.study_id, ""), class_="mut") if names is not None else None,
    )
