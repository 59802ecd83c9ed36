"""What is served beside the pages: the images of the workspace, the samples, the style sheet and the script."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import FileResponse, PlainTextResponse, Response

from pipeline.errors import UserError
from ui.studio import Studio
from ui.theme import ASSETS

_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_ASK_AGAIN = {"Cache-Control": "no-cache"}


def add_routes(app: FastAPI, studio: Studio) -> None:
    """Add them to `app`, before the pages are mounted."""

    @app.get("/images/{sha}.png", include_in_schema=False)
    def image(sha: str) -> Response:
        # An image is named by its content, so what a browser holds under a name stays right.
        try:
            return FileResponse(studio.workspace.image_path(sha), media_type="image/png", headers=_FOR_EVER)
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
        known = {file.name: file for file in ASSETS.iterdir()}
        if name not in known:
            return PlainTextResponse("There is no such file.", status_code=404)
        return FileResponse(known[name], headers=_ASK_AGAIN)
