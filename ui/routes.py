"""What is served beside the pages: the images of the workspace, the samples, the style sheet and the scripts.

And the files that a person drops or chooses, which come in here as the plain body of a request.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from functools import lru_cache
from mimetypes import guess_type
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response

from pipeline.errors import UserError
from pipeline.images import MAX_BYTES
from pipeline.masks import overlay
from ui import exchange, masks
from ui.drawing_routes import add_drawing_routes
from ui.studio import Studio
from ui.theme import ASSETS, BUNDLES, bundle

FROM_PAGE = "x-studio"
"""A header that only our own page sends: a browser lets no other site send it, so no other site can give us files."""
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_ASK_AGAIN = {"Cache-Control": "no-cache"}
log = logging.getLogger(__name__)


def add_routes(app: FastAPI, studio: Studio) -> None:
    """Add them to `app`, before the pages are mounted."""
    add_drawing_routes(app, studio)

    @app.get("/images/{sha}.png", include_in_schema=False)
    def image(sha: str) -> Response:
        # An image is named by its content, so what a browser holds under a name stays right.
        try:
            return FileResponse(studio.workspace.image_path(sha), media_type="image/png", headers=_FOR_EVER)
        except UserError as error:
            return PlainTextResponse(str(error), status_code=404)

    @lru_cache(maxsize=32)
    def colours(sha: str) -> bytes:
        mask = studio.workspace.image(sha)
        if mask.mode != "L":
            raise UserError("This image is no mask.")
        file = io.BytesIO()
        overlay(mask).save(file, "PNG")
        return file.getvalue()

    @app.get("/masks/{sha}.png", include_in_schema=False)
    def mask(sha: str) -> Response:
        try:
            return Response(colours(sha), media_type="image/png", headers=_FOR_EVER)
        except UserError as error:
            return PlainTextResponse(str(error), status_code=404)

    @app.get("/samples/{name}.png", include_in_schema=False)
    def sample(name: str) -> Response:
        try:
            return FileResponse(studio.sample(name).path, media_type="image/png", headers=_ASK_AGAIN)
        except UserError as error:
            return PlainTextResponse(str(error), status_code=404)

    @app.get("/ui/{name}", include_in_schema=False)
    def asset(name: str) -> Response:
        if name in BUNDLES:  # asked for by the stamp of what is in it
            return Response(bundle(name), media_type=guess_type(name)[0], headers=_FOR_EVER)
        known = {file.name: file for file in ASSETS.iterdir()}
        if name not in known:
            return PlainTextResponse("There is no such file.", status_code=404)
        return FileResponse(known[name], headers=_ASK_AGAIN)

    @app.get("/download/{case_id}.png", include_in_schema=False)
    def saved_image(case_id: int) -> Response:
        return _attached("image/png", lambda: exchange.saved_image(studio, case_id))

    @app.get("/download/{case_id}.zip", include_in_schema=False)
    def saved_with_mask(case_id: int) -> Response:
        return _attached("application/zip", lambda: exchange.saved_with_mask(studio, case_id))

    @app.post("/files", include_in_schema=False)
    async def take_picture(request: Request, name: str = "") -> Response:
        return await _taken(request, lambda data: vars(exchange.take_picture(studio, data, name)))

    @app.post("/files/run", include_in_schema=False)
    async def take_run(request: Request) -> Response:
        return await _taken(request, lambda data: vars(exchange.take_run(studio, data)))

    @app.post("/runs/{run_id}/mask", include_in_schema=False)
    async def give_mask(request: Request, run_id: str, classes: str = "") -> Response:
        return await _taken(request, lambda data: {"said": masks.give_mask(studio, run_id, data, classes)})


def _attached(media_type: str, make: Callable[[], tuple[str, bytes]]) -> Response:
    """A file that the browser saves under the name that it is given."""
    try:
        name, data = make()
    except UserError as error:
        return PlainTextResponse(str(error), status_code=404)
    # A header takes ASCII only: other letters are written as RFC 8187 has it.
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
    return Response(data, media_type=media_type, headers=headers)


async def _taken(request: Request, take: Callable[[bytes], dict[str, Any]]) -> Response:
    """What became of a file that was sent, as JSON; "problem" says in one sentence why it was not taken."""
    if FROM_PAGE not in request.headers:
        return PlainTextResponse("Files are taken from the studio's own page only.", status_code=403)
    try:
        data = await _body(request)
        return JSONResponse({"problem": "", **await run_in_threadpool(take, data)})
    except UserError as error:
        return JSONResponse({"problem": str(error)})
    except Exception as error:  # the page must get a reply that it can show
        log.exception("a file could not be taken")
        return JSONResponse({"problem": f"The studio itself failed ({type(error).__name__}): the terminal says more."})


async def _body(request: Request) -> bytes:
    """The file, never more of it in memory than is taken. Raises UserError when it is larger."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BYTES:
            raise UserError(f"The file is larger than {MAX_BYTES // 1_000_000} MB: save it smaller.")
        parts.append(part)
    return b"".join(parts)
