"""Routes for pictures during the preparation and drawing of an image: control images (such as edges), and previews."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from pydantic import ValidationError

from core.errors import UserError
from core.settings import ConditioningSettings, GenerationSettings
from services.commands import refused
from services.runs.live_images import ControlImages, Previews
from ui.replies import FRESH

_FOR_A_WHILE = {"Cache-Control": "private, max-age=600"}
LONGEST = 4096
"""Maximum number of pixels that a page may request for the longer side."""


class ControlQuery(ConditioningSettings):
    """Query of a control image: the settings to draw it, and its size."""

    short_side: int | None = None
    """Length in pixels of the control image's short side; None for the profile's value."""
    longest: int = 0
    """Maximum length in pixels of the longer side as it is sent; 0 for no limit."""
    v: str = ""
    """Part of the mask's hash if the picture depends on the mask, so that its address changes with the mask."""


def add_drawing_routes(
    app: FastAPI, control_images: ControlImages, previews: Previews, defaults: GenerationSettings
) -> None:
    """Add the routes to `app`; the pages must be mounted later. `defaults` give the size of a control image."""

    @app.get("/control/{run_id}.png", include_in_schema=False)
    def control(run_id: str, request: Request) -> Response:
        """Return the control image of a run, drawn with the settings in the query (a `ControlQuery`)."""
        try:
            query = ControlQuery.model_validate(dict(request.query_params))
        except ValidationError as error:
            return PlainTextResponse(str(refused(error, ControlQuery)), status_code=422)
        side = defaults.short_side if query.short_side is None else query.short_side
        try:  # the bounds are those of the profile's settings
            GenerationSettings.model_validate(defaults.model_dump() | {"short_side": side})
        except ValidationError as error:
            return PlainTextResponse(str(refused(error, GenerationSettings)), status_code=422)
        settings = ConditioningSettings.model_validate(query.model_dump(include=set(ConditioningSettings.model_fields)))
        try:
            data = control_images.png(run_id, settings, side, min(max(0, query.longest), LONGEST))
        except UserError as error:
            return PlainTextResponse(str(error), status_code=404)
        if data is None:
            return PlainTextResponse("A model draws this control image: start it on the page first.", status_code=404)
        # A segmentation map depends on the mask, which may change.
        headers = FRESH if settings.kind == "segmentation" else _FOR_A_WHILE
        return Response(data, media_type="image/png", headers=headers)

    @app.get("/previews/{name}.png", include_in_schema=False)
    def preview(name: str) -> Response:
        data = previews.png(name)
        if data is None:
            return PlainTextResponse("This preview is gone: the image has a newer one.", status_code=404)
        return Response(data, media_type="image/png", headers=_FOR_A_WHILE)
