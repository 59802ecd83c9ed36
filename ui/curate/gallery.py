"""The gallery at /curate/: filters, a grid of any size, one image as large as it can be, and what is known of it.

The address says the view, so that it can be saved, sent and gone back to. The page comes with its first images; of all
others the script asks for those in sight (`curate.js`), by their place.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from core.catalogue import CatalogueEntry
from core.errors import UserError
from core.image_filter import LONGEST_ADDRESS
from core.words import count_of
from services.commands import Commands
from services.curation.gallery import MOST_IN_PAGE, PAGE, Gallery, Totals
from services.curation.views import View, gallery_address
from ui.curate.detail import detail_panel, no_detail, origin_part
from ui.curate.filters import filter_column, order_choice
from ui.curate.frame import curate_page
from ui.curate.requests import add_command
from ui.explore.parts import acts, button, help_window, icon, key, muted, text_line, value_row
from ui.frame import signed_in
from ui.markup import Child, Html, el
from ui.replies import add_posted, fetched_at, page_at
from ui.security.request_limits import LIKE_PICTURE, refusal, require_own_page

SENT = ("decide", "tag-images", "relabel-images", "undo-decision", "begin-review", "answer-repeat", "review-figures",
        "score-images")  # fmt: skip
"""The commands that the page sends."""
SCRIPTS = ("curate.js", "curate-filters.js", "curate-review.js", "curate-growing.js")
MOST_CHECKS = 12
"""Checks whose sliders are open at a time."""
KEYS = (
    (("A",), "accept, and go on"),
    (("R",), "reject: a digit for the reason, Enter for none"),
    (("T",), "tag"),
    (("L",), "give another label"),
    (("U",), "undo the last decision"),
    (("←", "→"), "the image before, the next one"),
    (("↑", "↓"), "a row up, a row down"),
    (("Enter",), "large, beside its source; again for the grid"),
    (("X",), "select, or not"),
    (("Shift", "←", "→"), "select on the way"),
    (("Esc",), "out of what is open; then no selection"),
    (("/",), "search"),
    (("?",), "these keys"),
)


def add_gallery(app: FastAPI, commands: Commands, gallery: Gallery) -> None:
    """Add the page and what it fetches."""

    @page_at(app, "/curate/", ("All images", gallery_address()))
    def page(request: Request) -> str:
        return gallery_page(_view(request), gallery, signed_in(request))

    @fetched_at(app, "/curate/api/cells")
    def cells(
        view: Annotated[str, Query(max_length=LONGEST_ADDRESS)] = "",
        at: Annotated[int, Query(ge=0)] = 0,
        n: Annotated[int, Query(ge=1, le=MOST_IN_PAGE)] = PAGE,
        held: Annotated[str, Query(max_length=40)] = "",
        thumbs: Annotated[int, Query(ge=0, le=MOST_IN_PAGE)] = 0,
    ) -> Mapping[str, Any]:
        forgotten = bool(held) and not gallery.holds(held)
        found = gallery.page(View.read(view), at, n, held).entries
        # A screen of thumbnails in one reply: a request for each of them takes ten times as long as to read it.
        ready = [b64encode(data).decode() for data in gallery.thumbnails(found[:thumbs])]
        return {"cells": [cell(entry) for entry in found], "thumbs": ready, "forgotten": forgotten}

    @fetched_at(app, "/curate/api/cell")
    def one_cell(entry: Annotated[int, Query(ge=1)]) -> Mapping[str, Any]:
        return {"cell": cell(gallery.entry(entry))}

    @fetched_at(app, "/curate/api/grown")
    def grown(view: Annotated[str, Query(max_length=LONGEST_ADDRESS)] = "") -> Mapping[str, Any]:
        read = View.read(view)
        return {"count": gallery.count(read).number, "grows": gallery.grows(read)}

    @fetched_at(app, "/curate/api/place")
    def place(
        entry: Annotated[int, Query(ge=1)],
        view: Annotated[str, Query(max_length=LONGEST_ADDRESS)] = "",
        held: Annotated[str, Query(max_length=40)] = "",
    ) -> Mapping[str, Any]:
        return {"place": gallery.place(View.read(view), entry, held)}

    @fetched_at(app, "/curate/api/ids")
    def ids(
        view: Annotated[str, Query(max_length=LONGEST_ADDRESS)] = "",
        held: Annotated[str, Query(max_length=40)] = "",
    ) -> Mapping[str, Any]:
        return {"ids": gallery.ids(View.read(view), held)}

    @app.post(LIKE_PICTURE, include_in_schema=False)
    async def like_picture(request: Request) -> Response:
        try:
            require_own_page(request)
            picture = await run_in_threadpool(gallery.keep_picture, await request.body())
        except UserError as error:
            return refusal(error)
        return JSONResponse({"picture": picture})

    add_posted(app, "/curate/api/hold", lambda sent: {"held": gallery.hold(View.read(str(sent.get("view", ""))))})
    for name in SENT:
        add_command(app, commands, name)

    @fetched_at(app, "/curate/api/totals")
    def totals(
        view: Annotated[str, Query(max_length=LONGEST_ADDRESS)] = "",
        check: Annotated[list[str] | None, Query(max_length=MOST_CHECKS)] = None,
        held: Annotated[str, Query(max_length=40)] = "",
    ) -> Mapping[str, Any]:
        read = View.read(view)
        found = gallery.totals(read, check or (), held)
        count = found.count.number
        parts = {
            "filters": filter_column(read, found),
            "order": order_choice(read, found),
            "part-empty": _empty(count, count or gallery.count(View()).number, found.waiting),
        }
        note = _waiting_words(found.waiting) if found.waiting and count else ""
        is_filter = read.is_filter and not held
        return {
            "count": count,
            "parts": parts,
            "note": note,
            "waiting": found.waiting,
            "filter": is_filter,
        }

    @fetched_at(app, "/curate/api/detail")
    def detail(entry: Annotated[int, Query(ge=1)], undecided: bool = False) -> Mapping[str, Any]:
        found = gallery.detail(entry)
        return {"parts": {"detail": detail_panel(found.undecided() if undecided else found)}}

    @fetched_at(app, "/curate/api/origin")
    def origin(entry: Annotated[int, Query(ge=1)]) -> Mapping[str, Any]:
        return {"parts": {"origin": origin_part(gallery.origin(entry))}}


def _view(request: Request) -> View:
    """What the address says; where the page stands in it is its script's."""
    own = ("at", "image", "large")
    return View.of((name, value) for name, value in request.query_params.multi_items() if name not in own and value)


def cell(entry: CatalogueEntry) -> list[Any]:
    """What the grid shows of an image: its number, its file, the verdict, what is wrong with it, and its words."""
    marks = [name for name, standing in entry.standings.items() if standing == "newly wrong"]
    failed = sum(check.passed is False for check in entry.checks)
    counterfactual = ", ".join(f"{edit.keyword} → {edit.alternative}" for edit in entry.edits)
    words = " · ".join(part for part in (", ".join(entry.classes), counterfactual) if part)
    return [entry.id, entry.image_sha, entry.verdict, len(marks), failed, words, entry.source_sha]


def gallery_page(view: View, gallery: Gallery, signed: bool = False) -> str:
    """The page as a document, with the images that come first."""
    totals, first = gallery.totals(view), gallery.page(view).entries
    count, whole = totals.count.number, gallery.count(View()).number
    data = {"view": view.address, "count": count, "filter": view.is_filter, "waiting": totals.waiting}
    return curate_page(
        "Curate",
        "images",
        _filters(view, totals),
        el(
            "section",
            _toolbar(view, totals),
            _grid(_empty(count, whole, totals.waiting)),
            _large(),
            _said(),
            class_="middle",
        ),
        no_detail("Pick an image to see all that is known of it." if count else ""),
        _selection_bar(),
        _dialogs(),
        el("template", json.dumps({**data, "cells": [cell(entry) for entry in first]}), id="first"),
        status=el("span", count_of(whole, "image"), class_="pill", id="whole"),
        signed_in=signed,
        scripts=SCRIPTS,
    )


def _filters(view: View, totals: Totals) -> Html:
    ways = (("text", "words in captions"), ("edited", "words of edits"), ("like", "what images show"))
    said = {"text": view.filter.text, "edited": view.filter.edited, "like": view.like}
    used = next((name for name, words in said.items() if words), "text")
    search = el(
        "form",
        text_line(name="text", id="search", value=said[used], placeholder="search", maxlength=300, aria_label="Search"),
        el(
            "div",
            el(
                "select",
                [el("option", words, value=name, selected=name == used) for name, words in ways],
                id="search-in",
                aria_label="Search in",
                title="What images show is looked for in the pictures, whatever their captions say",
            ),
            el(
                "label",
                "like a picture",
                el("input", type="file", accept="image/*", id="like-picture", class_="unseen"),
                class_="btn s",
                title="Images that look most like a picture of yours. The workspace keeps it for the address",
            ),
            class_="search-ways",
        ),
        id="search-form",
        role="search",
        class_="search",
    )
    bring_in = el("a", "Bring images in", href="/curate/import", class_="small", id="import")
    content = (el("h2", "Filter"), search, filter_column(view, totals), bring_in)
    return el("aside", content, class_="card filter-card", id="filter")


def _toolbar(view: View, totals: Totals) -> Html:
    number = totals.count.number
    return el(
        "div",
        el("h1", el("b", f"{number:,}", id="count"), " ", el("span", _images(number), id="count-words")),
        button("", "", "s p", id="came", hidden=True, title="They came since: show them too"),
        el("a", "Filter", href="#filter", class_="btn s to-filter"),
        order_choice(view, totals),
        el(
            "label",
            el("span", "size", class_="unseen"),
            el("input", type="range", id="size", min=96, max=420, step=4, value=160, aria_label="Size of the pictures"),
            class_="size",
        ),
        el("b", "", id="review-place", class_="small", title="Place of this image among those of the filter"),
        el("span", "", id="review-figures", class_="mut small review-figures"),
        button(
            ["All ", el("span", f"{number:,}", data_count=True), " …"],
            "",
            "s",
            id="select-all",
            title="Decide on all images of this filter, or add them to a test set",
        ),
        button("Review", "", "s", id="review", title="Decide one after the other, with figures of how steady you are"),
        button([icon("undo"), "Undo", key("U")], "", "s", id="undo", disabled=True),
        button([el("span", "Keys"), key("?")], "", "s q", id="keys", data_keys_open=True, title="What the keys do"),
        class_="toolbar",
    )


def _images(number: int) -> str:
    return "image" if number == 1 else "images"


def _waiting_words(waiting: int) -> str:
    return f"{count_of(waiting, 'image', 'is')} not compared yet, and missing here until then."


def _empty(count: int, whole: int, waiting: int) -> Html:
    """What stands in place of images: why there are none, and what to do. Hidden where there are some."""
    if waiting:
        words: Child = "Nothing found so far."
        more: Child = f"{_waiting_words(waiting)} The page looks again by itself."
    elif whole:
        words = ["No image fits this filter. ", el("a", "Clear it", href=gallery_address(), data_view="")]
        more = None
    else:
        words = "There are no images yet."
        more = [
            el("a", "Bring in your own", href="/curate/import"),
            ", or make some: a few in ",
            el("a", "Explore", href="/"),
            ", many in ",
            el("a", "Batches", href="/batches/"),
            ".",
        ]
    return el("div", el("p", words), muted(more) if more else None, id="part-empty", class_="empty", hidden=count > 0)


def _grid(none: Html) -> Html:
    return el(
        "div",
        none,
        el("div", id="cells", role="presentation"),
        id="grid",
        class_="grid",
        tabindex=0,
        role="listbox",
        aria_label="Images",
        aria_multiselectable="true",
    )


def _large() -> Html:
    """One image as large as it can be, with its source beside it."""
    return el(
        "div",
        el("figure", el("img", alt="Source image", id="large-source"), el("figcaption", "Source")),
        el("figure", el("img", alt="Image", id="large-result"), el("figcaption", "Image")),
        id="large",
        class_="large",
        tabindex=-1,
        hidden=True,
    )


def _said() -> Html:
    """What was done, or went wrong: over the images, so that none moves."""
    close = button(icon("cross"), "", "q s", id="said-close", aria_label="Close")
    return el("div", el("span", "", id="said", role="status"), close, class_="said", hidden=True)


def _selection_bar() -> Html:
    """What can be done with all that is selected."""
    return el(
        "div",
        el("b", "", id="selected-count"),
        button([icon("check"), "Accept"], "", "", data_bulk="accept"),
        button([icon("cross"), "Reject"], "", "", data_bulk="reject"),
        button("Tag", "", "", data_bulk="tag"),
        button("Label", "", "", data_bulk="label"),
        button("Add to test set", "", "p", data_bulk="add-to-set"),
        button("None", "", "q", id="select-none"),
        id="selection",
        class_="selection card",
        hidden=True,
        role="toolbar",
        aria_label="What is selected",
    )


def _dialogs() -> Html:
    lines = [value_row([key(name) for name in names], words) for names, words in KEYS]
    keys = help_window("Keys", (), el("table", lines))
    ask = el(
        "dialog",
        el(
            "form",
            el("h2", "", id="ask-title"),
            muted("", id="ask-words"),
            el("div", id="ask-choices", class_="chips"),
            el("label", "", for_="ask-text", id="ask-label", class_="small mut"),
            text_line(id="ask-text", maxlength=300),
            el("p", "", id="ask-problem", role="alert", class_="wrong"),
            acts(
                button("Cancel", "", "q", id="ask-cancel"), el("button", "", type="submit", class_="btn p", id="ask-do")
            ),
            method="dialog",
        ),
        id="ask",
        class_="card",
    )
    return el("div", keys, ask, class_="windows")
