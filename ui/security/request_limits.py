"""Checks of requests: their size, their JSON, and whether one of our own pages sent them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from core.errors import UserError
from services.commands import Missing, UnknownCommand
from services.studies.imports import MOST_LIST
from ui.security.guard import Application, Message, Receive, Scope, Send, is_foreign

log = logging.getLogger(__name__)
FROM_PAGE = "x-studio"
"""Name of a header that our pages send. Browsers let no other site send it, so requests with it are ours."""
ITEM_FILES, VOTE_FILES = "/study/files/", "/study/votes/"
"""Paths to which the lead's pages send files: images as items of a study, and votes. The study's id is appended."""
RESTORED = "/study/restored"
"""Path to which a page sends a study's export to restore the study."""
IMAGE_FILES = "/curate/files/"
MODEL_FILE = "/evaluate/files/model"
"""Path to which pages send a model's file. `IMAGE_FILES` is the path for an archive of images."""
LIKE_PICTURE = "/curate/like-picture"
"""Path to which the gallery sends a picture to find similar images."""
_MB = 1_000_000


class BadRequest(UserError):
    """Raised for a request that none of our pages sends. `status` is the status of the HTTP reply."""

    def __init__(self, status: int, sentence: str, field: str = "") -> None:
        super().__init__(sentence, field=field)
        self.status = status


@dataclass(frozen=True)
class Limit:
    """Maximum size of the bodies of requests to paths that begin with `prefix`."""

    prefix: str
    most: int
    """Maximum size in bytes."""
    sentence: str


_TOO_MUCH = "This is more than a page of the studio sends. Please shorten it."
_UPLOADED, _ZIPPED = 400 * _MB, 2_000 * _MB
_TOO_LARGE = f"The file is larger than {_ZIPPED // _MB:,} MB"
LIMITS = (
    Limit("/annotate/", 16 * 1024, "This request is too large: at most 16 KB are accepted."),
    Limit("/sign-", 16_000, "Only the form of the sign-in page is accepted here."),
    Limit("/study/api/", 400_000, _TOO_MUCH),
    Limit(LIKE_PICTURE, 40 * _MB, "The picture is larger than 40 MB: save it smaller."),
    Limit("/curate/api/", 2 * _MB, _TOO_MUCH),
    Limit(ITEM_FILES, _ZIPPED, f"{_TOO_LARGE}: cut it into several."),
    Limit(IMAGE_FILES, _ZIPPED, f"{_TOO_LARGE}: use python -m services.curation import."),
    Limit(MODEL_FILE, _ZIPPED, f"{_TOO_LARGE}: give its path on the studio's machine."),
    Limit(RESTORED, _ZIPPED, f"{_TOO_LARGE}: use python -m services.studies restore."),
    Limit(VOTE_FILES, MOST_LIST, f"The file is larger than {MOST_LIST // _MB} MB: cut it into several."),
    Limit("/gradio_api/upload", _UPLOADED, f"The file is larger than {_UPLOADED // _MB} MB: save it smaller."),
    Limit("", 4 * _MB, _TOO_MUCH),
)
"""Limits for all requests. Of those whose prefix fits the path, the first applies."""


class BodyLimit:
    """ASGI middleware that refuses a body above its limit, and reads no more of it, even if its length is not declared.
    Code that reads the body gets a `BadRequest` and may reply with its own message. Otherwise the middleware replies.
    """

    def __init__(self, app: Application, limits: Sequence[Limit] = LIMITS) -> None:
        self.app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = next(limit for limit in self._limits if scope["path"].startswith(limit.prefix))
        declared_length = dict(scope["headers"]).get(b"content-length", b"")
        declared_too_large = declared_length.isdigit() and int(declared_length) > limit.most
        size, over, answered, silenced = 0, False, False, False

        async def bounded() -> Message:
            nonlocal size, over
            if not declared_too_large:
                message = await receive()
                size += len(message.get("body", b""))
                if size <= limit.most:
                    return message
            over = True
            raise BadRequest(400, limit.sentence)

        async def sending(message: Message) -> None:
            nonlocal answered, silenced
            if message["type"] == "http.response.start":
                silenced = over and not 400 <= message["status"] < 500
                answered = not silenced
            if not silenced:
                await send(message)

        try:
            await self.app(scope, bounded, sending)
        except Exception:
            if answered or not over:
                raise
        if over and not answered:
            await JSONResponse({"error": limit.sentence}, 400)(scope, receive, send)


def require_own_page(request: Request) -> None:
    """Raise BadRequest unless one of our pages has sent the request."""
    if FROM_PAGE not in request.headers or is_foreign(request):
        raise BadRequest(403, "Only the studio's own pages may send this request.")


async def posted(request: Request) -> dict[str, Any]:
    """Return the JSON object that one of our pages has sent. Raises BadRequest for other senders and bodies."""
    require_own_page(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadRequest(400, "This address accepts JSON only. Please reload the page.")
    try:
        data = await request.json()
    except (ValueError, RecursionError) as error:
        raise BadRequest(400, "The request is not valid JSON. Please reload the page.") from error
    if not isinstance(data, dict):
        raise BadRequest(400, "The request is not a JSON object. Please reload the page.")
    return data


def refusal(error: UserError, usual: int = 400) -> JSONResponse:
    """Return a UserError's message and field as a JSON response. `usual` is the status of most errors."""
    status = error.status if isinstance(error, BadRequest) else 404 if isinstance(error, Missing) else usual
    return JSONResponse({"error": str(error)} | ({"field": error.field} if error.field else {}), status_code=status)


async def answered(request: Request, act: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Response:
    """Call `act` in a thread with the JSON object that one of our pages posted. Reply with the result of `act`."""
    try:
        return JSONResponse(await run_in_threadpool(act, await posted(request)))
    except UserError as error:
        return refusal(error)
    except UnknownCommand:
        return JSONResponse({"error": "This page has no such action. Reload the page."}, status_code=404)
    except Exception as error:  # reply with an error that the page can show
        log.exception("%s failed", request.url.path)
        return failed(error)


def failed(error: Exception) -> Response:
    """Return the reply to a page if the studio itself has failed."""
    words = f"The studio itself failed ({type(error).__name__}): the terminal says more."
    return JSONResponse({"error": words}, status_code=500)
