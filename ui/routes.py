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

from pipeline.embedded import NoRun
from pipeline.errors import UserError
from pipeline.masks import overlay
from services.exchange import Exchange
from services.runs import RunService
from services.samples import sample_named
from storage.images import Images
from ui.bodies import FROM_PAGE
from ui.theme import ASSETS, BUNDLES, bundle

_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_ASK_AGAIN = {"Cache-Control": "no-cache"}
log = logging.getLogger(__name__)


def add_routes(app: FastAPI, images: Images, runs: RunService, exchange: Exchange) -> None:
    """Add them to `app`, before the pages are mounted."""

    @app.get("/images/{sha}.png", include_in_schema=False)
    def image(sha: str) -> Response:
        # An image is named by its content, so what a browser holds under a name stays right.
        try:
            return FileResponse(images.path(sha), media_type="image/png", headers=_FOR_EVER)
        except UserError as error:
            return PlainTextResponse(str(error), status_code=404)

    @lru_cache(maxsize=32)
    def colours(sha: str) -> bytes:
        mask = images.load(sha)
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
            return FileResponse(sample_named(runs.samples, name).path, media_type="image/png", headers=_ASK_AGAIN)
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
        return _attached("image/png", lambda: exchange.saved_image(case_id))

    @app.get("/download/{case_id}.zip", include_in_schema=False)
    def saved_with_mask(case_id: int) -> Response:
        return _attached("application/zip", lambda: exchange.saved_with_mask(case_id))

    @app.post("/files", include_in_schema=False)
    async def take_picture(request: Request, name: str = "") -> Response:
        return await _taken(request, lambda data: vars(exchange.take_picture(data, name)))

    @app.post("/files/run", include_in_schema=False)
    async def take_run(request: Request) -> Response:
        return await _taken(request, lambda data: vars(exchange.take_run(data)))

    @app.post("/runs/{run_id}/mask", include_in_schema=False)
    async def give_mask(request: Request, run_id: str, classes: str = "") -> Response:
        return await _taken(request, lambda data: {"said": runs.give_mask(run_id, data, classes)})


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
    """What became of a file that was sent, as JSON; "problem" says in one sentence why it was not taken, and "offer" is
    "new" where a run can begin with it instead.
    """
    if FROM_PAGE not in request.headers:
        return PlainTextResponse("Files are taken from the studio's own page only.", status_code=403)
    try:
        data = await request.body()
        return JSONResponse({"problem": "", **await run_in_threadpool(take, data)})
    except NoRun as error:
        return JSONResponse({"problem": str(error), "offer": "new"})
    except UserError as error:
        return JSONResponse({"problem": str(error)})
    except Exception as error:  # the page must get a reply that it can show
        log.exception("a file could not be taken")
        return JSONResponse({"problem": f"The studio itself failed ({type(error).__name__}): the terminal says more."})
