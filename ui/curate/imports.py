"""The pages of imports: archives and pictures are brought in, and the report says what became of every file.

What is chosen comes as one archive: the script packs several pictures, or a folder, as a zip. Its body goes to the disk
and not into memory, and is read in the background; its page asks how far it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from fastapi import FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from core.csv_tables import csv_text
from core.errors import UserError
from core.image_filter import ImageFilter
from core.imports import Import, ImportRow, RowKind
from core.words import count_of
from services.commands import Commands
from services.curation.imports import ImportService, ImportState
from services.curation.views import gallery_address
from services.test_sets.exports import FORMAT_TITLES, file_stem
from ui.curate.frame import curate_page
from ui.curate.requests import add_command
from ui.curate.sets_words import SETS, set_address
from ui.explore.parts import (
    acts,
    bar,
    button,
    head_table,
    here_link,
    icon,
    left,
    list_line,
    more_line,
    muted,
    page_head,
    pill,
    save_link,
    value_row,
)
from ui.frame import signed_in
from ui.markup import Child, Html, el, join
from ui.replies import FRESH, attached, fetched_at, page_at, with_file
from ui.security.request_limits import IMAGE_FILES, refusal, require_own_page
from ui.study.fields import area, field, select, text_input, tick, wrong
from ui.study.words import when

IMPORT = "/curate/import"
BACK = ("Import", IMPORT)
ROWS = 200
"""Rows of a report in a page."""
_ROWS_AT_ONCE = 5000
COLUMNS = ("file", "kind", "reason")
KIND_WORDS: Mapping[RowKind, str] = {
    "refused": "refused",
    "changed": "changed",
    "known": "known already",
}
STATES = {"running": "", "done": "ok", "failed": "bad", "stopped": "warn"}
SHEETS, SCRIPTS = ("curate-sets.css",), ("curate-sets-import.js",)


def add_imports(app: FastAPI, commands: Commands, imports: ImportService) -> None:
    """Add the pages, what they fetch, and what they send."""

    @app.get(IMPORT, include_in_schema=False)
    def import_page(request: Request) -> Response:
        content = el(
            "div", _head(), _form(), el("section", state_part(imports.state())), _earlier(imports.stored.all())
        )
        return HTMLResponse(_page("Import", content, signed_in(request)), headers=FRESH)

    @page_at(app, f"{IMPORT}/{{number}}", BACK)
    def report(request: Request, number: int, kind: str = "", after: Annotated[int, Query(ge=0)] = 0) -> str:
        found, asked = imports.stored.get(number), _kind(kind)
        rows = imports.stored.rows(number, after, ROWS + 1, asked)
        return _page(found.name, report_page(found, asked, after, rows), signed_in(request))

    @page_at(app, f"{IMPORT}/{{number}}/{{name}}.csv", BACK)
    def report_file(request: Request, number: int, name: str, kind: str = "") -> Response:
        headers = attached(f"{file_stem(imports.stored.get(number).name, 'import')}-report.csv")
        lines = _lines(imports, number, _kind(kind))
        return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)

    @fetched_at(app, "/curate/api/import")
    def state() -> Mapping[str, Any]:
        found = imports.state()
        active = found is not None and found.state == "running"
        parts: dict[str, Html] = {"part-import": state_part(found)}
        if not active:
            parts["part-earlier"] = _earlier(imports.stored.all())
        return {"active": active, "parts": parts}

    @app.get("/curate/api/import-ready", include_in_schema=False)
    def ready(request: Request) -> Response:
        """Say whether an archive would be taken: the page asks before it packs and sends one."""
        try:
            imports.require_ready(*_fields(request.query_params))
        except UserError as error:
            return refusal(error)
        return JSONResponse({"ready": True}, headers=FRESH)

    @app.post(f"{IMAGE_FILES}import", include_in_schema=False)
    async def taken(request: Request) -> Response:
        """Take an archive as a plain body; what is asked with it stands in the address."""
        asked = request.query_params

        def take(file: Path) -> Mapping[str, Any]:
            labels = [label for line in asked.get("labels", "").splitlines() for label in line.split(",")]
            found = imports.import_upload(
                file,
                asked.get("file", "")[:200] or "upload.zip",
                asked.get("name", ""),
                *_fields(asked),
                [" ".join(label.split()) for label in labels if label.strip()],
                asked.get("test_set", "") if "test_set" in asked else None,
            )
            return {"active": True, "parts": {"part-import": state_part(found)}}

        try:  # before all of it is read
            require_own_page(request)
            await run_in_threadpool(imports.require_ready, *_fields(asked))
        except UserError as error:
            return refusal(error)
        return await with_file(request, take, "file")

    add_command(app, commands, "stop-import")
    add_command(
        app, commands, "import-into-test-set", lambda _, done: {"result": done, "go": set_address(done["test_set"])}
    )


def _fields(asked: Mapping[str, str]) -> tuple[str, str]:
    """The format and the classes of masks, which are looked at before an archive is sent."""
    return asked.get("layout", ""), asked.get("classes", "")


def _lines(imports: ImportService, number: int, kind: RowKind | None) -> Iterator[bytes]:
    """The report as CSV, some rows at a time."""
    yield csv_text([], COLUMNS).encode()
    after = 0
    while rows := imports.stored.rows(number, after, _ROWS_AT_ONCE, kind):
        after = rows[-1][0]
        held = [{"file": row.file, "kind": row.kind, "reason": row.reason} for _, row in rows]
        yield csv_text(held, COLUMNS).partition("\r\n")[2].encode()


def _kind(text: str) -> RowKind | None:
    return text if text in get_args(RowKind) else None  # type: ignore[return-value]


# The pages


def _page(title: str, content: Html, signed: bool) -> str:
    return curate_page(title, "sets", content, signed_in=signed, sheets=SHEETS, scripts=SCRIPTS)


def _head(*acts: Child) -> Html:
    return page_head(
        "All test sets", SETS, [el("h1", "Import images"), el("span", class_="grow"), acts], class_="set-head"
    )


def _form() -> Html:
    layouts = [("", "find out"), *FORMAT_TITLES.items()]
    return el(
        "form",
        el(
            "div",
            el("b", "Drop an archive, pictures or a folder here"),
            muted(
                "A .zip or .tar of any format that an export has, or of plain folders: the name of a folder is a "
                "label, “train”, “val” or “test” is a split, “masks” holds masks. Beside folders of plain names a "
                "folder “test” is a label, too."
            ),
            acts(
                _chooser("files", "Choose files", accept=".zip,.tar,.gz,.tgz,.xz,.bz2,image/*", multiple=True),
                _chooser("folder", "Choose a folder", webkitdirectory=True),
            ),
            el("p", "", id="chosen", class_="chosen", role="status"),
            wrong("file", {}),
            id="drop",
            class_="drop",
        ),
        el(
            "div",
            field(
                "name",
                "Name",
                text_input("name", "", maxlength=200, class_="wide", placeholder="the name of the file"),
                {},
            ),
            field("layout", "Format", select("layout", layouts, ""), {}),
            class_="fields",
        ),
        more_line(
            "Known labels, classes of masks",
            field(
                "labels",
                "Known labels",
                area("labels", "", 2, maxlength=20_000, placeholder="bird, boat, house"),
                {},
                "With commas or on lines. An image with another label is refused and told; empty takes any.",
            ),
            field(
                "classes",
                "Classes of masks",
                area("classes", "", 2, maxlength=20_000, placeholder="0 sky, 1 road"),
                {},
                "Their numbers and names, where the files do not say them.",
            ),
            data_keep="more",
        ),
        tick(
            "as_set",
            "Also make a test set of it",
            False,
            "Its images come into a draft, with labels, splits and masks.",
        ),
        field(
            "test_set",
            "Name of the test set",
            text_input(
                "test_set", "", maxlength=200, class_="wide", placeholder="the name of the export or the import"
            ),
            {},
            "A set of this name gets them into its draft.",
            look="of-set",
        ),
        wrong("", {}),
        acts(el("button", icon("up"), "Import", type="submit", class_="btn p", id="begin", disabled=True)),
        el("div", id="upload", class_="working", data_own=True, hidden=True),
        id="import-form",
        class_="card part import-form",
        novalidate=True,
    )


def _chooser(name: str, words: str, **attributes: str | bool) -> Html:
    return el(
        "label",
        words,
        el("input", type="file", id=f"choose-{name}", aria_label=words, **attributes),
        class_="btn file-choice",
    )


def _gallery_of(name: str) -> str:
    """Where the gallery shows the images of an import."""
    return gallery_address(ImageFilter(facets={"import": (name,)}))


def state_part(state: ImportState | None) -> Html:
    """How far the latest import of an upload is, or what came of it."""
    if state is None:
        return el("div", id="part-import")
    link: Child = None
    if state.number and state.state == "done":
        link = acts(
            el("a", "See the images", href=_gallery_of(state.name), class_="btn s", id="to-imported"),
            el("a", "See the report", href=f"{IMPORT}/{state.number}", class_="btn s", id="to-report"),
        )
    if state.state == "running":
        total = f"{state.done:,} of {state.total:,}" if state.total else "finding out what is in it"
        told = count_of(state.rows, "row") + " in the report" if state.rows else ""
        words = " · ".join(part for part in (total, told) if part) + left(state.seconds_left)
        content: list[Child] = [
            el("b", state.name),
            el("span", words, class_="mut"),
            bar(state.done / state.total if state.total else None),
            button("Stop", look="s", data_stop_import=True),
        ]
    else:
        content = [
            el("b", state.name),
            pill(state.state, STATES[state.state]),  # type: ignore[arg-type]
            el("span", state.message),
            link,
        ]
    return el("div", content, id="part-import", class_="card box import-state", data_state=state.state, role="status")


def _earlier(imports: Sequence[Import]) -> Html:
    if not imports:
        return el("section", id="part-earlier")
    lines = [_line(held) for held in imports]
    return el(
        "section", el("h2", "Imported before"), el("div", lines, class_="set-list"), id="part-earlier", class_="earlier"
    )


def _line(held: Import) -> Html:
    told = ", ".join(f"{held.rows[kind]:,} {words}" for kind, words in KIND_WORDS.items() if held.rows.get(kind))
    return list_line(
        held.name,
        _counts(held),
        f"{IMPORT}/{held.id}",
        "set-line",
        pill("finished", "ok") if held.state == "done" else pill("unfinished", "warn"),
        el("span", told or el("small", "all came as they are", class_="mut"), class_="versions-line"),
        when=when(held.created),
    )


def _counts(held: Import) -> str:
    title = FORMAT_TITLES.get(held.layout, "")
    known = held.images - held.made
    parts = [
        title,
        count_of(held.images, "image"),
        f"{known:,} of them known" if known else "",
        count_of(held.sources, "source") if held.sources else "",
    ]
    return " · ".join(part for part in parts if part)


def report_page(held: Import, kind: RowKind | None, after: int, rows: Sequence[tuple[int, ImportRow]]) -> Html:
    """What was told of the files of an import: some rows, of one kind if asked for."""
    here, shown = f"{IMPORT}/{held.id}", rows[:ROWS]
    chips: list[Child] = [_kind_link(here, None, "all", sum(held.rows.values()), kind is None)]
    chips += [
        _kind_link(here, one, words, held.rows.get(one, 0), kind == one)
        for one, words in KIND_WORDS.items()
        if held.rows.get(one)
    ]
    said = f"kind={kind}&" if kind else ""
    steps = [
        el("a", "First", href=f"{here}?{said}", class_="btn s") if after else None,
        el("a", "Next", href=f"{here}?{said}after={shown[-1][0]}", class_="btn s", id="next")
        if len(rows) > ROWS
        else None,
    ]
    body: Child = el("p", "Nothing was refused, changed or known already.", class_="empty")
    if shown:
        lines = [
            value_row(row.file, pill(KIND_WORDS[row.kind], "bad" if row.kind == "refused" else ""), row.reason)
            for _, row in shown
        ]
        body = el("div", head_table(("file", "", "what became of it"), lines, class_="report"), class_="scroll")
    gallery = el(
        "a",
        "Its images",
        href=_gallery_of(held.name),
        class_="btn",
        id="to-images",
    )
    name = file_stem(held.name, "import")
    save = save_link("Save as CSV", f"{here}/{name}.csv?{said}", look="", id="save-report")
    return el(
        "div",
        page_head(
            "Import images",
            IMPORT,
            [el("h1", held.name), el("span", class_="grow"), save if held.rows else None, gallery],
            muted(f"{_counts(held)} · {held.source} · {when(held.created)}"),
            class_="set-head",
        ),
        _into_set(held) if held.state == "done" and held.images else None,
        el(
            "section",
            el("div", el("div", chips, class_="chips"), el("span", class_="grow"), join(*steps), class_="toolbar"),
            body,
            class_="card box",
        ),
        class_="import-report",
    )


def _into_set(held: Import) -> Html:
    """A form that puts its images into a test set, now or once more."""
    usual = str(held.header.get("name", "")) or held.name
    return el(
        "form",
        el("label", "Put its images into the test set", for_="f-test_set"),
        text_input("test_set", usual, maxlength=200),
        el("button", "Put them in", type="submit", class_="btn"),
        wrong("test_set", {}),
        wrong("", {}),
        id="into-set",
        class_="card box into-set",
        data_import=held.id,
        novalidate=True,
    )


def _kind_link(here: str, kind: RowKind | None, words: str, number: int, on: bool) -> Html:
    return here_link([words, " ", el("small", f"{number:,}")], f"{here}?kind={kind}" if kind else here, on, look="chip")
