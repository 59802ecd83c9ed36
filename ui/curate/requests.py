"""Commands of the pages of Curate: JSON to /curate/api/NAME. A reply is JSON; an error is one sentence and its
field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI

from core.csv_tables import plain
from services.commands import Commands, UnknownCommand
from ui.replies import add_posted

Show = Callable[[Any, Any], Mapping[str, Any]]
"""Makes the JSON of the reply from a command and its result."""


def given(command: Any, result: Any) -> Mapping[str, Any]:
    """Return the result of a command unchanged."""
    return {"result": plain(result)}


def add_command(app: FastAPI, commands: Commands, name: str, show: Show = given) -> None:
    """Let the pages send one command. `show` makes the reply."""
    if name not in commands.known():
        raise UnknownCommand(f"there is no command {name!r}")

    def act(data: dict[str, Any]) -> Mapping[str, Any]:
        command = commands.parse(name, data)
        return show(command, commands.do(command))

    add_posted(app, f"/curate/api/{name}", act)
