"""What the lead's pages send: JSON in a POST with a header of our own, answered with JSON, errors in one sentence."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from pipeline.errors import UserError

FROM_PAGE = "x-studio"
"""A header that only our own pages send: a browser lets no other site send it."""
LARGEST = 400_000
"""Bytes of a body."""
log = logging.getLogger(__name__)


class FieldError(UserError):
    """What is wrong with one field of a form; the page shows it beside it."""

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


class Missing(UserError):
    """There is no such thing: answered with 404."""


def add_post(app: FastAPI, path: str, act: Callable[..., Mapping[str, Any]], largest: int = LARGEST) -> None:
    """`act(data, **path parameters)` answers a POST of a JSON object; it runs in a thread of its own.

    A UserError comes back as {"error": sentence} with status 400 (404 for `Missing`), with "field" for a `FieldError`.
    """

    async def handle(request: Request) -> Response:
        if FROM_PAGE not in request.headers:
            return JSONResponse({"error": "This is taken from the studio's own pages only."}, status_code=403)
        try:
            data = await _json(request, largest)
            return JSONResponse(dict(await run_in_threadpool(act, data, **request.path_params)))
        except FieldError as error:
            return JSONResponse({"error": str(error), "field": error.field}, status_code=400)
        except UserError as error:
            return JSONResponse({"error": str(error)}, status_code=404 if isinstance(error, Missing) else 400)
        except Exception as error:  # the page must get a reply that it can show
            log.exception("%s failed", path)
            words = f"The studio itself failed ({type(error).__name__}): the terminal says more."
            return JSONResponse({"error": words}, status_code=500)

    app.add_api_route(path, handle, methods=["POST"], include_in_schema=False)


@contextmanager
def in_words() -> Iterator[None]:
    """The sentences of `study`, which raises ValueError, as errors of a person."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, UserError):
            raise
        raise UserError(str(error)) from error


def text_of(data: Mapping[str, Any], name: str, longest: int = 2000) -> str:
    """A text that was sent, trimmed; "" when it is missing. Raises FieldError when it is none or too long."""
    value = data.get(name, "")
    if not isinstance(value, str):
        raise FieldError(name, "This has to be text. Please reload the page.")
    value = value.strip()
    if len(value) > longest:
        raise FieldError(name, f"This has {len(value)} characters; at most {longest} fit.")
    return value


async def _json(request: Request, largest: int) -> dict[str, Any]:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise UserError("This takes JSON only. Please reload the page.")
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > largest:
            raise UserError("This is more than a page of the studio sends. Please shorten it.")
        parts.append(part)
    try:
        data = json.loads(b"".join(parts) or b"{}")
    except (ValueError, RecursionError) as error:
        raise UserError("What was sent is no JSON. Please reload the page.") from error
    if not isinstance(data, dict):
        raise UserError("What was sent is no JSON object. Please reload the page.")
    return data
