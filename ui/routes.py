"""Routes for files: images of the workspace, thumbnails, samples, style sheets, scripts, documentation, downloads."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from mimetypes import guess_type
from pathlib import Path
from typing import IO, Annotated

from fastapi import FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse

from core.errors import DiskTrouble, UserError
from services.commands import Missing
from services.pictures import StoredPictures
from services.runs.exchange import MOST_RUNS, Exchange
from services.runs.samples import Sample, sample_named
from ui.frame import not_there
from ui.replies import attached, file_at
from ui.security.guard import SIGN_IN, SIGN_OUT
from ui.theme import ASSETS, BUNDLES, bundle

DOCS = Path(__file__).resolve().parent.parent / "docs"
log = logging.getLogger(__name__)
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_ASK_AGAIN = {"Cache-Control": "no-cache"}


async def unknown_address(request: Request, error: Exception) -> Response:
    """Return the reply for an unknown address: an HTML page for a browser, JSON for a script."""
    if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(not_there("There is no page at this address."), status_code=404)
    return JSONResponse({"detail": getattr(error, "detail", "Not Found")}, status_code=404)


async def disk_trouble(request: Request, error: Exception) -> Response:
    """Return the reply if the disk or the database fails. On the sign-in page, open to all, it names no path."""
    log.warning("%s: %s", request.url.path, error)
    words = DiskTrouble.FOR_OTHERS if request.url.path in (SIGN_IN, SIGN_OUT) else str(error)
    if "text/html" in request.headers.get("accept", ""):
        shown = not_there(words, heading="The studio has trouble with its disk")
        return HTMLResponse(shown, status_code=503)
    return JSONResponse({"error": words}, status_code=503)


def add_routes(app: FastAPI, pictures: StoredPictures, samples: tuple[Sample, ...], exchange: Exchange) -> None:
    """Add the routes to `app`. The pages must be mounted later."""

    @file_at(app, "/images/{sha}.png")
    def image(sha: str) -> Response:
        # An image is named by the hash of its content, so a browser may keep it for ever.
        return Response(pictures.png(sha), media_type="image/png", headers=_FOR_EVER)

    @app.get("/thumbs/{sha}.webp", include_in_schema=False)
    async def thumbnail(sha: str) -> Response:
        try:
            # Reading some kilobytes takes less time than a switch to another thread, and a screen needs dozens.
            data = pictures.ready_thumbnail(sha) or await run_in_threadpool(pictures.thumbnail, sha)
            return Response(data, media_type="image/webp", headers=_FOR_EVER)
        except UserError as error:
            return PlainTextResponse(str(error), status_code=404)

    @file_at(app, "/masks/{sha}.png")
    def mask(sha: str) -> Response:
        return Response(pictures.mask_colours(sha), media_type="image/png", headers=_FOR_EVER)

    @file_at(app, "/samples/{name}.png")
    def sample(name: str) -> Response:
        return FileResponse(sample_named(samples, name).path, media_type="image/png", headers=_ASK_AGAIN)

    @file_at(app, "/ui/{name}")
    def asset(name: str) -> Response:
        if name in BUNDLES:  # the address contains the hash of the content
            return Response(bundle(name), media_type=guess_type(name)[0], headers=_FOR_EVER)
        known = {file.name: file for file in ASSETS.iterdir()}
        if name not in known:
            raise Missing("The studio has no such file: reload the page.")
        return FileResponse(known[name], headers=_ASK_AGAIN)

    @file_at(app, "/docs/{name}.md")
    def doc(name: str) -> Response:
        known = {file.stem: file for file in DOCS.glob("*.md")}
        if name not in known:
            raise Missing("There is no such page of the documentation.")
        return FileResponse(known[name], media_type="text/plain; charset=utf-8", headers=_ASK_AGAIN)

    @file_at(app, "/download/{case_id}.png")
    def saved_image(case_id: int) -> Response:
        name, data = exchange.saved_image(case_id)
        return Response(data, media_type="image/png", headers=attached(name))

    @file_at(app, "/download/accepted.zip")
    def saved_accepted(run: Annotated[list[str], Query(max_length=MOST_RUNS)]) -> Response:
        file = tempfile.TemporaryFile()  # noqa: SIM115 - it is closed when it is sent
        try:
            name = exchange.saved_accepted(run, file)
        except UserError:
            file.close()
            raise
        length = file.tell()
        file.seek(0)
        headers = {**attached(name), "Content-Length": str(length)}
        return StreamingResponse(_pieces(file), media_type="application/zip", headers=headers)

    @file_at(app, "/download/{case_id}.zip")
    def saved_with_mask(case_id: int) -> Response:
        name, data = exchange.saved_with_mask(case_id)
        return Response(data, media_type="application/zip", headers=attached(name))


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(1 << 20):
            yield piece
