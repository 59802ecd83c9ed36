"""The gallery at /curate/: filters, a grid of any number of images, and one image enlarged with all facts about it. The
address holds filter and order, so that people can save and send it. The page contains the first images. When a
person scrolls, the script (`curate.js`) requests further images by their position in the order.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response

from core.catalogue import CatalogueEntry
from core.image_filter import LONGEST_ADDRESS
from core.words import count_of
from services.commands import Commands
from services.curation.gallery import MOST_IN_PAGE, PAGE, Gallery
from services.curation.views import View, gallery_address
from ui.curate.detail import detail_panel, origin_part
from ui.curate.filters import filter_column, order_choice
from ui.curate.frame import add_command, curate_page
from ui.explore.parts import pill
from ui.markup import Html, join
from ui.replies import add_posted, fetched_at, page_at, with_file
from ui.security.request_limits import LIKE_PICTURE
from ui.templating import render

SENT = ("decide", "tag-images", "relabel-images", "undo-decision", "begin-review", "answer-repeat", "review-figures",
        "score-images", "judge-images", "stop-judging")  # fmt: skip
SCRIPTS = ("curate.js", "curate-filters.js", "curate-review.js", "curate-growing.js")
MOST_CHECKS = 12
"""Maximum number of checks whose sliders may be open at a time."""
Address = Annotated[str, Query(max_length=LONGEST_ADDRESS)]
HeldName = Annotated[str, Query(max_length=40)]
"""Name of a frozen list of images, so that it stays the same while a person reviews it; "" for none."""
EntryNumber = Annotated[int, Query(ge=1)]


def add_gallery(app: FastAPI, commands: Commands, gallery: Gallery) -> None:
    """Add the routes of the gallery page and its data."""

    @page_at(app, "/curate/", ("All images", gallery_address()))
    def page(request: Request) -> str:
        # Ignore the parameters of the position, which only the script reads.
        pairs = request.query_params.multi_items()
        view = View.of((name, value) for name, value in pairs if name not in ("at", "image", "large") and value)
        return gallery_page(view, gallery)

    @fetched_at(app, "/curate/api/cells")
    def cells(
        view: Address = "",
        at: Annotated[int, Query(ge=0)] = 0,
        n: Annotated[int, Query(ge=1, le=MOST_IN_PAGE)] = PAGE,
        held: HeldName = "",
        thumbs: Annotated[int, Query(ge=0, le=MOST_IN_PAGE)] = 0,
    ) -> Mapping[str, Any]:
        forgotten = bool(held) and not gallery.holds(held)
        found = gallery.page(View.read(view), at, n, held).entries
        # One reply holds a screen of thumbnails, since a request for each would take ten times as long as reading it.
        ready = [b64encode(data).decode() for data in gallery.thumbnails(found[:thumbs])]
        return {"cells": [cell(entry) for entry in found], "thumbs": ready, "forgotten": forgotten}

    @fetched_at(app, "/curate/api/cell")
    def one_cell(entry: EntryNumber) -> Mapping[str, Any]:
        return {"cell": cell(gallery.entry(entry))}

    @fetched_at(app, "/curate/api/grown")
    def grown(view: Address = "") -> Mapping[str, Any]:
        parsed = View.read(view)
        return {"count": gallery.count(parsed).number, "grows": gallery.grows(parsed)}

    @fetched_at(app, "/curate/api/place")
    def place(entry: EntryNumber, view: Address = "", held: HeldName = "") -> Mapping[str, Any]:
        return {"place": gallery.place(View.read(view), entry, held)}

    @fetched_at(app, "/curate/api/ids")
    def ids(view: Address = "", held: HeldName = "") -> Mapping[str, Any]:
        return {"ids": gallery.ids(View.read(view), held)}

    @app.post(LIKE_PICTURE, include_in_schema=False)
    async def like_picture(request: Request) -> Response:
        return await with_file(request, lambda file: {"picture": gallery.keep_picture(file.read_bytes())})

    def hold(sent: Mapping[str, Any]) -> Mapping[str, Any]:
        view = View.read(str(sent.get("view", "")))
        name = gallery.hold(view)
        return {"held": name, "count": gallery.count(view, name).number}

    add_posted(app, "/curate/api/hold", hold)
    for name in SENT:
        add_command(app, commands, name)

    @fetched_at(app, "/curate/api/totals")
    def totals(
        view: Address = "",
        check: Annotated[list[str] | None, Query(max_length=MOST_CHECKS)] = None,
        held: HeldName = "",
    ) -> Mapping[str, Any]:
        parsed = View.read(view)
        totals_found = gallery.totals(parsed, check or (), held)
        count = totals_found.count.number
        parts = {
            "filters": filter_column(parsed, totals_found),
            "order": order_choice(parsed, totals_found),
            "part-empty": _no_images(count, count or gallery.count(View()).number, totals_found.waiting),
        }
        note = _waiting_words(totals_found.waiting) if totals_found.waiting and count else ""
        is_filter = parsed.is_filter and not held
        return {"count": count, "parts": parts, "note": note, "waiting": totals_found.waiting, "filter": is_filter}

    @fetched_at(app, "/curate/api/detail")
    def detail(entry: EntryNumber, undecided: bool = False) -> Mapping[str, Any]:
        found = gallery.detail(entry)
        return {"parts": {"detail": detail_panel(found.undecided() if undecided else found)}}

    @fetched_at(app, "/curate/api/origin")
    def origin(entry: EntryNumber) -> Mapping[str, Any]:
        return {"parts": {"origin": origin_part(gallery.origin(entry), gallery.judge_replies(entry))}}


def cell(entry: CatalogueEntry) -> list[Any]:
    """Return the data of an image in the grid: id, hash, verdict, number of models that are newly wrong on it, number
    of failed checks, text, and hash of the source.
    """
    marks = [name for name, standing in entry.standings.items() if standing == "newly wrong"]
    failed = sum(check.passed is False for check in entry.checks)
    counterfactual = ", ".join(f"{edit.keyword} → {edit.alternative}" for edit in entry.edits)
    words = " · ".join(part for part in (", ".join(entry.classes), counterfactual) if part)
    return [entry.id, entry.image_sha, entry.verdict, len(marks), failed, words, entry.source_sha]


def gallery_page(view: View, gallery: Gallery) -> str:
    """Return the gallery page as a document, with its first images."""
    totals, first = gallery.totals(view), gallery.page(view).entries
    count, whole = totals.count.number, gallery.count(View()).number
    data = {"view": view.address, "count": count, "filter": view.is_filter, "waiting": totals.waiting}
    searches = {"text": view.filter.text, "edited": view.filter.edited, "like": view.like}
    search_in = next((name for name, words in searches.items() if words), "text")
    content = render(
        "curate/gallery.html",
        search_in=search_in,
        search_words=searches[search_in],
        filters=filter_column(view, totals),
        order=order_choice(view, totals),
        count=count,
        empty=_no_images(count, whole, totals.waiting),
        first=join(json.dumps({**data, "cells": [cell(entry) for entry in first]})),
    )
    status = pill(count_of(whole, "image"), id="whole")
    return curate_page("Curate", "images", content, status=status, scripts=SCRIPTS)


def _no_images(count: int, whole: int, waiting: int) -> Html:
    """Return the message for an empty gallery: why, and what to do. It is hidden if there are images."""
    words = _waiting_words(waiting)
    return render("curate/no_images.html", count=count, whole=whole, waiting=waiting, waiting_words=words)


def _waiting_words(waiting: int) -> str:
    return f"{count_of(waiting, 'image', 'is')} not compared yet, so they may be missing here."
