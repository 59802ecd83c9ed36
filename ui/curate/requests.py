"""What the pages of Curate send: commands as JSON to /curate/api/NAME. A reply is JSON; an error is one sentence and
the field that it belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

from core.csv_tables import plain
from core.errors import UserError
from services.commands import Commands, UnknownCommand
from ui.curate.frame import FRESH
from ui.security.request_limits import answered, refusal

Show = Callable[[Any, Any], Mapping[str, Any]]
"""A command and what it has given, to the JSON of the reply."""


def given(command: Any, result: Any) -> Mapping[str, Any]:
    """What a command gives, as it is."""
    return {"result": plain(result)}


def add_command(app: FastAPI, commands: Commands, name: str, show: Show = given) -> None:
    """Let the pages send one command. `show` says what they get for it."""
    if name not in commands.known():
        raise UnknownCommand(f"there is no command {name!r}")

    @app.post(f"/curate/api/{name}", include_in_schema=False)
    async def send(request: Request) -> Response:
        def act(data: dict[str, Any]) -> dict[str, Any]:
            command = commands.parse(name, data)
            return dict(show(command, commands.do(command)))

        return await answered(request, act)


def fetched(make: Callable[[], Mapping[str, Any]]) -> Response:
    """The reply to a page that looks: JSON, or the sentence that says why there is none."""
    try:
        return JSONResponse(make(), headers=FRESH)
    except UserError as error:
        return refusal(error)
