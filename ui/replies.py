"""Replies to the lead's browser: pages or error pages, JSON, and files."""

from __future__ import annotations

import inspect
import logging
import tempfile
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response

from core.errors import DiskTrouble, UserError
from services.changes import Revisions
from ui.frame import not_there
from ui.security.request_limits import answered, failed, refusal, require_own_page

FRESH = {"Cache-Control": "no-store"}
log = logging.getLogger(__name__)


def _get(app: FastAPI, path: str, make: Callable[..., Any], reply: Callable[..., Response]) -> None:
    """Serve `path` with the function `reply`. FastAPI passes it the same parameters as `make` has."""
    signature = inspect.signature(make, eval_str=True).replace(return_annotation=Response)
    reply = wraps(make)(reply)
    reply.__signature__ = signature  # type: ignore[attr-defined]
    app.get(path, include_in_schema=False)(reply)


def page_at(
    app: FastAPI, path: str, back: Callable[..., tuple[str, str]] | tuple[str, str]
) -> Callable[[Callable[..., str | Response]], None]:
    """Decorate a function whose page is served at `path`. If `path` ends with "/" and has no parameters, the address
    without the "/" redirects to it. A UserError becomes an error page with a link. `back` is the text and the address
    of this link, or a function that returns both and takes the same parameters.
    """

    def add(make: Callable[..., str | Response]) -> None:
        def reply(**arguments: Any) -> Response:
            try:
                content = make(**arguments)
            except DiskTrouble:
                raise
            except UserError as error:
                way = back(**arguments) if callable(back) else back
                return HTMLResponse(not_there(str(error), way), status_code=404)
            return content if isinstance(content, Response) else HTMLResponse(content, headers=FRESH)

        _get(app, path, make, reply)
        if path.endswith("/") and "{" not in path:
            app.get(path.rstrip("/"), include_in_schema=False)(lambda: RedirectResponse(path, status_code=308))

    return add


def fetched_at(
    app: FastAPI, path: str, without_field: int = 400
) -> Callable[[Callable[..., Mapping[str, Any] | Response]], None]:
    """Decorate a function whose result is served as JSON at `path`. See `fetched` for errors and `without_field`."""

    def add(make: Callable[..., Mapping[str, Any] | Response]) -> None:
        _get(app, path, make, lambda **arguments: fetched(lambda: make(**arguments), without_field))

    return add


def file_at(app: FastAPI, path: str) -> Callable[[Callable[..., Response]], None]:
    """Decorate a function whose response is served at `path`. The reply to a UserError is its message."""

    def add(make: Callable[..., Response]) -> None:
        def reply(**arguments: Any) -> Response:
            try:
                return make(**arguments)
            except UserError as error:
                return PlainTextResponse(str(error), status_code=404)

        _get(app, path, make, reply)

    return add


def fetched(make: Callable[[], Mapping[str, Any] | Response], without_field: int = 400) -> Response:
    """Return the result of `make` as JSON, or the message of its UserError. The status is `without_field` if this error
    names no field.
    """
    try:
        made = make()
        return made if isinstance(made, Response) else JSONResponse(made, headers=FRESH)
    except UserError as error:
        return refusal(error, 400 if error.field else without_field)


def watched(
    revisions: Revisions, seen: str, make: Callable[[], Mapping[str, Any]], without_field: int = 400
) -> Response:
    """Return the result of `make` and the revision as JSON; only {"same": true} if `seen` is the current revision."""
    # Read the revision before the state, so that a change in between is fetched twice and never missed.
    revision = revisions.now()
    return fetched(lambda: {"same": True} if seen == revision else {"revision": revision, **make()}, without_field)


def add_posted(app: FastAPI, path: str, act: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Let our pages post a JSON object to `path`. `act` gets the object and returns the JSON of the reply."""

    @app.post(path, include_in_schema=False)
    async def posted(request: Request) -> Response:
        return await answered(request, act)


async def with_file(
    request: Request,
    take: Callable[[Path], Mapping[str, Any]],
    field: str = "",
    ready: Callable[[], object] = lambda: None,
) -> Response:
    """Save the body of a request as a file, and reply with the result of `take` for this file. An error about an empty
    file names `field`. `ready` may raise UserError before the body is read.
    """
    with tempfile.TemporaryDirectory(prefix="upload-") as folder:
        file = Path(folder) / "file"
        try:
            require_own_page(request)
            await run_in_threadpool(ready)
            with file.open("wb") as written:
                async for part in request.stream():
                    written.write(part)
            if not file.stat().st_size:
                raise UserError("The file is empty: choose another one.", field=field)
            return JSONResponse(await run_in_threadpool(take, file))
        except UserError as error:
            return refusal(error)
        except Exception as error:  # reply with an error that the page can show
            log.exception("%s failed", request.url.path)
            return failed(error)


def page_number(text: str) -> int:
    """Parse the number of a page in an address. Anything but a number from 1 counts as 1."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) else 1


def attached(name: str) -> dict[str, str]:
    """Return headers that make the browser save the reply as a file with this name."""
    # A header may contain ASCII only, so other letters are encoded as in RFC 8187.
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}", **FRESH}
