"""Replies to the lead's pages: a page or the reason for none, JSON, and files."""

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
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from core.errors import DiskTrouble, UserError
from services.changes import Revisions
from ui.frame import not_there, signed_in
from ui.security.request_limits import answered, failed, refusal, require_own_page

FRESH = {"Cache-Control": "no-store"}
log = logging.getLogger(__name__)


def _get(app: FastAPI, path: str, make: Callable[..., Any], reply: Callable[..., Response]) -> None:
    """Serve an address. `make` gives the accepted parameters, `reply` the response."""
    signature = inspect.signature(make, eval_str=True).replace(return_annotation=Response)
    reply = wraps(make)(reply)
    reply.__signature__ = signature  # type: ignore[attr-defined]
    app.get(path, include_in_schema=False)(reply)


def page_at(
    app: FastAPI, path: str, back: Callable[..., tuple[str, str]] | tuple[str, str]
) -> Callable[[Callable[..., str | Response]], None]:
    """Serve a page at an address (see `shown`). Its function takes the request; `back` may take the same parameters."""

    def add(make: Callable[..., str | Response]) -> None:
        def reply(**arguments: Any) -> Response:
            return shown(arguments["request"], back(**arguments) if callable(back) else back, lambda: make(**arguments))

        _get(app, path, make, reply)

    return add


def fetched_at(app: FastAPI, path: str, without_field: int = 400) -> Callable[[Callable[..., Mapping[str, Any]]], None]:
    """Serve JSON at an address (see `fetched`)."""

    def add(make: Callable[..., Mapping[str, Any]]) -> None:
        _get(app, path, make, lambda **arguments: fetched(lambda: make(**arguments), without_field))

    return add


def file_at(app: FastAPI, path: str) -> Callable[[Callable[..., Response]], None]:
    """Serve a file at an address. On UserError reply with its text."""

    def add(make: Callable[..., Response]) -> None:
        def reply(**arguments: Any) -> Response:
            try:
                return make(**arguments)
            except UserError as error:
                return PlainTextResponse(str(error), status_code=404)

        _get(app, path, make, reply)

    return add


def shown(request: Request, back: tuple[str, str], make: Callable[[], str | Response]) -> Response:
    """Reply with the page that `make` returns; on UserError with an error page that links `back`: words and address."""
    try:
        content = make()
    except DiskTrouble:
        raise
    except UserError as error:
        return HTMLResponse(not_there(str(error), signed_in(request), back), status_code=404)
    return content if isinstance(content, Response) else HTMLResponse(content, headers=FRESH)


def fetched(make: Callable[[], Mapping[str, Any]], without_field: int = 400) -> Response:
    """Reply with the JSON that `make` returns, or with the message of its UserError."""
    try:
        return JSONResponse(make(), headers=FRESH)
    except UserError as error:
        return refusal(error, 400 if error.field else without_field)


def watched(
    revisions: Revisions, seen: str, make: Callable[[], Mapping[str, Any]], without_field: int = 400
) -> Response:
    """Like `fetched`, with the revision of the reply. Nothing is read if the page has `seen` the same revision."""
    # The revision is read before the state: a later change is then fetched once more, and never missed.
    revision = revisions.now()
    return fetched(lambda: {"same": True} if seen == revision else {"revision": revision, **make()}, without_field)


def add_posted(app: FastAPI, path: str, act: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Let the pages send JSON to an address. `act` returns the reply."""

    @app.post(path, include_in_schema=False)
    async def posted(request: Request) -> Response:
        return await answered(request, act)


async def with_file(request: Request, take: Callable[[Path], Mapping[str, Any]], field: str = "") -> Response:
    """Reply to a file, which is kept on the disk until then. `field` is named if the file is empty."""
    with tempfile.TemporaryDirectory(prefix="upload-") as folder:
        file = Path(folder) / "file"
        try:
            require_own_page(request)
            with file.open("wb") as written:
                async for part in request.stream():
                    written.write(part)
            if not file.stat().st_size:
                raise UserError("The file is empty: choose another one.", field=field)
            return JSONResponse(await run_in_threadpool(take, file))
        except UserError as error:
            return refusal(error)
        except Exception as error:  # the page must get a reply that it can show
            log.exception("%s failed", request.url.path)
            return failed(error)


def page_number(text: str) -> int:
    """Return a number from an address; 1 for anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 and int(text) else 1


def attached(name: str) -> dict[str, str]:
    """Return the headers of a file that the browser saves under this name."""
    # A header takes ASCII only, so other letters are encoded as in RFC 8187.
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}", **FRESH}
