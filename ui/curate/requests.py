"""What the pages of Curate send: commands as JSON to /curate/api/NAME. A reply is JSON; an error is one sentence and
the field that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI

from core.csv_tables import plain
from services.commands import Commands, UnknownCommand
from ui.replies import add_posted

Show = Callable[[Any, Any], Mapping[str, Any]]
"""A command and what it has given, to the JSON of the reply."""


def given(command: Any, result: Any) -> Mapping[str, Any]:
    """What a command gives, as it is."""
    return {"result": plain(result)}


def add_command(app: FastAPI, commands: Commands, name: str, show: Show = given) -> None:
    """Let the pages send one command. `show` says what they get for it."""
    if name not in commands.known():
        raise UnknownCommand(f"there is no command {name!r}")

    def act(data: dict[str, Any]) -> Mapping[str, Any]:
        command = commands.parse(name, data)
        return show(command, commands.do(command))

    add_posted(app, f"/curate/api/{name}", act)
