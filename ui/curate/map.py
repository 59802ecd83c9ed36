"""The map at /curate/map: the images of a view as points, near each other if they look alike. Its script
(`curate-map.js`) requests the points as bytes, and puts the region of the lasso into an address. The server finds the
images in the region when that address is opened.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response

from core.errors import UserError
from core.image_filter import LONGEST_ADDRESS
from services.curation.map import MAPS, ImageMap, MapPoints
from services.curation.meaning import Meaning
from services.curation.views import View
from services.studio import Studio
from ui.curate.frame import add_command, curate_page
from ui.markup import join
from ui.replies import FRESH, fetched_at, page_at
from ui.templating import render

COLOURS = ("class", "edit type", "review", "weather", "time of day", "study", "tag", "batch", "profile", "method")


def add_map(app: FastAPI, studio: Studio) -> None:
    """Add the routes of the map page, its data and its actions."""
    gallery, image_map, meaning = studio.gallery, studio.image_map, studio.meaning

    @page_at(app, "/curate/map", ("The whole map", "/curate/map"))
    def page(request: Request) -> str:
        view = View.of((name, value) for name, value in request.query_params.multi_items() if value)
        meaning.begin()
        shown = View(view.filter)
        data = {"view": shown.address, "pairs": shown.pairs, "state": _state(image_map, meaning)}
        models = tuple(gallery.totals(View()).models)
        content = render("curate/map.html", view=shown, models=models, colours=COLOURS, first=join(json.dumps(data)))
        return curate_page("Map", "map", content, sheets=("curate-map.css",), scripts=("curate-map.js",))

    @fetched_at(app, "/curate/api/map-points")
    def points(
        view: Annotated[str, Query(max_length=LONGEST_ADDRESS)] = "",
        map: Annotated[str, Query(max_length=10)] = MAPS[0],
        colour: Annotated[str, Query(max_length=1300)] = COLOURS[0],
    ) -> Response:
        if map not in MAPS or not (colour in COLOURS or colour.startswith("model:")):
            raise UserError("The page has requested an unknown map: reload the page.", field="map")
        found = image_map.points("umap" if map == "umap" else "pca", View.read(view).filter, colour)
        return Response(packed(found), media_type="application/octet-stream", headers=FRESH)

    @fetched_at(app, "/curate/api/map-state")
    def state() -> Mapping[str, Any]:
        return _state(image_map, meaning)

    @fetched_at(app, "/curate/api/map-image")
    def image(entry: Annotated[int, Query(ge=1)]) -> Mapping[str, Any]:
        found = gallery.detail(entry).entry
        edits = ", ".join(f"{edit.keyword} → {edit.alternative}" for edit in found.edits)
        words = [", ".join(found.classes), edits, "" if found.verdict == "open" else found.verdict]
        return {"sha": found.image_sha, "words": [part for part in words if part]}

    for name in ("make-map", "stop-map"):
        add_command(app, studio.commands, name)


def _state(image_map: ImageMap, meaning: Meaning) -> Mapping[str, Any]:
    filling, making = meaning.filling(), image_map.making()
    umap = image_map.layout("umap")
    return {
        "embedded": filling.done,
        "total": filling.total,
        "filling": filling.working,
        "problem": filling.problem,
        "making": making is not None and making.active,
        "note": making.doing or "starting" if making is not None else "",
        "failed": making.error if making is not None else "",
        "umap": len(umap.entries) if umap is not None else 0,
        "available": image_map.available,
    }


def packed(points: MapPoints) -> bytes:
    """Pack points as little-endian bytes: length of the header (u4), JSON header padded to a multiple of 4 bytes,
    entries (u4), places (u2), categories (u1).
    """
    legend = [{"name": one.name, "value": one.value, "count": one.count} for one in points.legend]
    header = json.dumps({"count": len(points.entries), "missing": points.missing, "legend": legend}).encode()
    header += b" " * (-len(header) % 4)
    arrays = (points.entries.astype("<u4"), points.places.astype("<u2"), points.categories)
    return b"".join((struct.pack("<I", len(header)), header, *(array.tobytes() for array in arrays)))
