"""The frame of Curate's pages: the header with the tabs, and the route for commands. The server renders these pages, so
that a gallery appears after 0.15 s, not after 1.1 s as with Gradio's script (on two cores).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from fastapi import FastAPI

from core.csv_tables import plain
from services.commands import Commands, UnknownCommand
from ui.frame import document, header
from ui.markup import Child, el
from ui.replies import add_posted
from ui.templating import render
from ui.theme import LEAD

Tab = Literal["images", "coverage", "map", "sets"]


def curate_page(
    title: str, tab: Tab, *content: Child, status: Child = None, sheets: Sequence[str] = (), scripts: Sequence[str] = ()
) -> str:
    """Return a page of Curate as a document. `status` goes into the header; `sheets`, `scripts` are in `ui/assets`."""
    top = header("curate", status, tools=render("curate/pages.html", tab=tab))
    main = el("main", *content, class_=f"curate {tab}")
    return document(title, top, main, sheets=("curate.css", *sheets), scripts=(LEAD, *scripts))


Show = Callable[[Any, Any], Mapping[str, Any]]
"""Function that takes a command and the command's result. It returns values to add to the reply."""


def add_command(app: FastAPI, commands: Commands, name: str, show: Show = lambda _command, _result: {}) -> None:
    """Let pages send a command as JSON to /curate/api/NAME. The reply is JSON with the `result` of the command and the
    values that `show` adds, such as the next address. An error reply has a message and the name of the wrong field.
    """
    if name not in commands.known():
        raise UnknownCommand(f"There is no command {name!r} for pages of Curate.")

    def act(data: dict[str, Any]) -> Mapping[str, Any]:
        command = commands.parse(name, data)
        result = commands.do(command)
        return {"result": plain(result), **show(command, result)}

    add_posted(app, f"/curate/api/{name}", act)
