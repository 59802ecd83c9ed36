"""The map at /curate/map: all images that fit a view as points, near each other where they look alike.

The page brings its frame; its script (`curate-map.js`) asks for the points as bytes, draws them, and makes the address
of what is picked with the lasso. Which images lie in a region the server tells when that address is opened.
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
from services.commands import Commands
from services.curation.gallery import Gallery
from services.curation.map import MAPS, ImageMap, MakeMap, MapName, MapPoints, StopMap
from services.curation.meaning import Meaning
from services.curation.views import View, gallery_address
from ui.curate.frame import curate_page
from ui.curate.requests import add_command
from ui.explore.parts import acts, button, key, press, short_model, small, value_row
from ui.frame import signed_in
from ui.markup import Html, el
from ui.replies import FRESH, fetched, fetched_at, page_at

COLOURS = ("class", "edit type", "review", "weather", "time of day", "study", "tag", "batch", "profile", "method")
"""Facets that points can be coloured by."""
KEYS = (
    (("←", "→", "↑", "↓"), "move"),
    (("+", "−"), "nearer, further"),
    (("0",), "all of it"),
    (("L",), "lasso, or not"),
    (("V",), "pick all in sight"),
    (("Enter",), "open what is picked"),
    (("Esc",), "pick nothing"),
)


def add_map(app: FastAPI, commands: Commands, gallery: Gallery, image_map: ImageMap, meaning: Meaning) -> None:
    """Add the page, what it fetches and what it sends."""

    @page_at(app, "/curate/map", ("The whole map", "/curate/map"))
    def page(request: Request) -> str:
        view = View.of((name, value) for name, value in request.query_params.multi_items() if value)
        meaning.begin()
        return map_page(view, gallery, image_map, meaning, signed_in(request))

    @app.get("/curate/api/map-points", include_in_schema=False)
    def points(
        view: Annotated[str, Query(max_length=LONGEST_ADDRESS)] = "",
        map: Annotated[str, Query(max_length=10)] = MAPS[0],
        colour: Annotated[str, Query(max_length=1300)] = COLOURS[0],
    ) -> Response:
        def make() -> Mapping[str, Any]:
            if map not in MAPS or not (colour in COLOURS or colour.startswith("model:")):
                raise UserError("There is no such map: reload the page.", field="map")
            found.append(image_map.points(_name(map), View.read(view).filter, colour))
            return {}

        found: list[MapPoints] = []
        refused = fetched(make)
        return Response(packed(found[0]), media_type="application/octet-stream", headers=FRESH) if found else refused

    @fetched_at(app, "/curate/api/map-state")
    def state() -> Mapping[str, Any]:
        return _state(image_map, meaning)

    @fetched_at(app, "/curate/api/map-image")
    def image(entry: Annotated[int, Query(ge=1)]) -> Mapping[str, Any]:
        found = gallery.detail(entry).entry
        edits = ", ".join(f"{edit.keyword} → {edit.alternative}" for edit in found.edits)
        words = [", ".join(found.classes), edits, "" if found.verdict == "open" else found.verdict]
        return {"sha": found.image_sha, "words": [part for part in words if part]}

    for command in (MakeMap, StopMap):
        add_command(app, commands, command.name)


def _name(text: str) -> MapName:
    return "umap" if text == "umap" else "pca"


def _state(image_map: ImageMap, meaning: Meaning) -> Mapping[str, Any]:
    filling, making = meaning.filling(), image_map.making()
    made = image_map.layout("umap")
    return {
        "embedded": filling.done,
        "total": filling.total,
        "filling": filling.working,
        "problem": filling.problem,
        "making": making.working,
        "note": making.note,
        "failed": making.problem,
        "umap": len(made.entries) if made is not None else 0,
        "available": image_map.available,
    }


def packed(points: MapPoints) -> bytes:
    """Pack points, lowest byte first: header length, JSON header padded to 4, u4 entries, u2 places, u1 categories."""
    legend = [{"name": one.name, "value": one.value, "count": one.count} for one in points.legend]
    header = json.dumps({"count": len(points.entries), "missing": points.missing, "legend": legend}).encode()
    header += b" " * (-len(header) % 4)
    arrays = (points.entries.astype("<u4"), points.places.astype("<u2"), points.categories)
    return b"".join((struct.pack("<I", len(header)), header, *(array.tobytes() for array in arrays)))


def map_page(view: View, gallery: Gallery, image_map: ImageMap, meaning: Meaning, signed: bool = False) -> str:
    """The page as a document; its points come later."""
    shown = View(view.filter)
    models = tuple(gallery.totals(View()).models)
    data = json.dumps({"view": shown.address, "pairs": shown.pairs, "state": _state(image_map, meaning)})
    return curate_page(
        "Map",
        "map",
        _side(shown, models),
        _stage(),
        el("template", data, id="first"),
        signed_in=signed,
        sheets=("curate-map.css",),
        scripts=("curate-map.js",),
    )


def _side(view: View, models: tuple[str, ...]) -> Html:
    options = [el("option", name.capitalize(), value=name) for name in COLOURS]
    options += [el("option", f"Model {short_model(name, {})}", value=f"model:{name}") for name in models]
    filtered = el("p", "Only what fits the filter of the gallery. ", el("a", "All images", href="/curate/map"))
    lines = [value_row([key(name) for name in names], words) for names, words in KEYS]
    return el(
        "aside",
        el("div", el("h2", "Colour"), el("select", options, id="colour", aria_label="Colour by"), class_="group"),
        el("div", id="legend", class_="legend", role="group", aria_label="What the colours mean"),
        filtered if view.pairs else None,
        el(
            "div",
            el("h2", "Places"),
            el(
                "div",
                press("PCA", class_="tab on", data_map="pca", aria_pressed="true"),
                press("UMAP", class_="tab", data_map="umap", aria_pressed="false"),
                class_="tabs",
                role="group",
                aria_label="Which map",
            ),
            small("", id="about-map"),
            el("progress", id="map-progress", max=100, hidden=True, aria_label="making the map"),
            acts(
                button("Make it", "", "s", id="make-map"),
                button("Stop", "", "s q", id="stop-map", hidden=True),
                id="making",
                hidden=True,
            ),
            class_="group",
        ),
        small("", id="embedding", role="status"),
        el("details", el("summary", "Keys"), el("table", lines), class_="keys-of-map"),
        class_="card map-side",
    )


def _stage() -> Html:
    tools = el(
        "div",
        button(["Lasso", key("L")], "", "s", id="lasso", aria_pressed="false", title="Draw around images to pick them"),
        button("+", "", "s", id="nearer", aria_label="Nearer"),
        button("−", "", "s", id="further", aria_label="Further"),
        button("All", "", "s", id="fit", title="Show all of the map"),
        class_="tools",
        role="toolbar",
        aria_label="Tools of the map",
    )
    picked = el(
        "div",
        el("b", "", id="picked-count", aria_live="polite"),
        el("a", "Open in the grid", href=gallery_address(), class_="btn p", id="open-picked"),
        button("None", "", "q", id="pick-none"),
        id="picked",
        class_="picked card",
        hidden=True,
    )
    return el(
        "section",
        el(
            "div",
            el("h1", el("b", "", id="point-count"), " ", el("span", "", id="point-words")),
            tools,
            class_="toolbar",
        ),
        el(
            "div",
            el("canvas", id="points"),
            el("canvas", id="over"),
            el("p", "Loading the map …", id="empty", class_="empty"),
            el("figure", el("img", alt=""), el("figcaption"), id="shown", class_="card", hidden=True),
            picked,
            id="stage",
            tabindex=0,
            role="application",
            aria_label="Map of the images: arrows move, plus and minus zoom, L is the lasso",
        ),
        class_="middle",
    )
