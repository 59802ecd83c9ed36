"""What is served of the drawing: control images while a threshold is moved, previews of what is drawn."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import ValidationError

from pipeline.errors import UserError
from pipeline.settings import ConditioningSettings, GenerationSettings
from ui.studio import Studio

_FOR_A_WHILE = {"Cache-Control": "private, max-age=600"}
LONGEST = 4096
"""Pixels that a page may ask for on the long side."""
_NEVER_KEPT = {"Cache-Control": "no-store"}


def add_drawing_routes(app: FastAPI, studio: Studio) -> None:
    """Add them to `app`, before the pages are mounted."""

    @app.get("/control/{run_id}.png", include_in_schema=False)
    def control(run_id: str, request: Request) -> Response:
        """The control image of a run under the settings of the query: those of the conditioning, and `short_side`.

        `longest` is how many pixels the page has for the longer side: more are not sent.
        """
        asked = dict(request.query_params)
        asked.pop("v", None)
        longest = asked.pop("longest", "0")
        side = asked.pop("short_side", None)
        try:
            generation = studio.profile.settings.generation
            size = GenerationSettings.model_validate(generation.model_dump() | ({"short_side": side} if side else {}))
            settings = ConditioningSettings.model_validate(asked)
        except ValidationError as error:
            first = error.errors()[0]
            return PlainTextResponse(f"{first['loc'][0]}: {first['msg']}", status_code=422)
        try:
            data = studio.controls.png(
                run_id, settings, size.short_side, min(int(longest), LONGEST) if longest.isdecimal() else 0
            )
        except UserError as error:
            return PlainTextResponse(str(error), status_code=404)
        if data is None:
            return PlainTextResponse("A model draws this kind: ask for it on the page first.", status_code=404)
        # A map hangs on the mask, which may be another one tomorrow.
        headers = _NEVER_KEPT if settings.kind == "segmentation" else _FOR_A_WHILE
        return Response(data, media_type="image/png", headers=headers)

    @app.get("/previews/{name}.png", include_in_schema=False)
    def preview(name: str) -> Response:
        data = studio.previews.png(name)
        if data is None:
            return PlainTextResponse("This preview is gone: the image is further on.", status_code=404)
        return Response(data, media_type="image/png", headers=_FOR_A_WHILE)
