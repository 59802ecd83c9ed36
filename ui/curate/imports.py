"""The pages of imports: a form for archives and pictures, and a report on the files of an import. The script packs
several files into one archive, which is written to the disk. A background job reads it while the page asks for the
progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response, StreamingResponse

from core.csv_tables import csv_text
from core.image_filter import ImageFilter
from core.imports import Import, ImportRow, RowKind
from core.words import count_of
from services.commands import Commands
from services.curation.imports import ImportService, ImportState
from services.curation.views import gallery_address
from services.test_sets.exports import FORMAT_TITLES, file_stem
from ui.curate.frame import add_command, curate_page
from ui.curate.sets_words import set_address
from ui.markup import Html
from ui.replies import attached, fetched_at, page_at, with_file
from ui.security.request_limits import IMAGE_FILES
from ui.templating import render

IMPORT = "/curate/import"
BACK = ("Import", IMPORT)
ROWS = 200
_ROWS_AT_ONCE = 5000
COLUMNS = ("file", "kind", "reason")
KIND_WORDS: Mapping[RowKind, str] = {"refused": "refused", "changed": "changed", "known": "known already"}
SHEETS, SCRIPTS = ("curate-sets.css",), ("curate-sets-import.js",)


def add_imports(app: FastAPI, commands: Commands, imports: ImportService) -> None:
    """Add the pages of imports, their data and their actions."""

    @page_at(app, IMPORT, BACK)
    def import_page() -> str:
        layouts, earlier = [("", "find out"), *FORMAT_TITLES.items()], _earlier(imports.stored.all())
        content = render("curate/import.html", layouts=layouts, state=state_part(imports.state()), earlier=earlier)
        return _page("Import", content)

    @page_at(app, f"{IMPORT}/{{number}}", BACK)
    def report(number: int, kind: str = "", after: Annotated[int, Query(ge=0)] = 0) -> str:
        stored, row_kind = imports.stored.get(number), _kind(kind)
        rows = imports.stored.rows(number, after, ROWS + 1, row_kind)
        return _page(stored.name, report_page(stored, row_kind, after, rows))

    @page_at(app, f"{IMPORT}/{{number}}/{{name}}.csv", BACK)
    def report_file(number: int, name: str, kind: str = "") -> Response:
        headers = attached(f"{file_stem(imports.stored.get(number).name, 'import')}-report.csv")
        lines = _lines(imports, number, _kind(kind))
        return StreamingResponse(lines, media_type="text/csv; charset=utf-8", headers=headers)

    @fetched_at(app, "/curate/api/import")
    def state() -> Mapping[str, Any]:
        latest = imports.state()
        active = latest is not None and latest.state == "running"
        parts: dict[str, Html] = {"part-import": state_part(latest)}
        if not active:
            parts["part-earlier"] = _earlier(imports.stored.all())
        return {"active": active, "parts": parts}

    @fetched_at(app, "/curate/api/import-ready")
    def ready(request: Request) -> Mapping[str, Any]:
        """Reply whether an import can begin now. The page asks this before it packs and sends an archive."""
        imports.require_ready(*_fields(request.query_params))
        return {"ready": True}

    @app.post(f"{IMAGE_FILES}import", include_in_schema=False)
    async def taken(request: Request) -> Response:
        """Import the archive in the request body. The address holds the other parameters."""
        query = request.query_params

        def take(file: Path) -> Mapping[str, Any]:
            labels = [label for line in query.get("labels", "").splitlines() for label in line.split(",")]
            found = imports.import_upload(
                file,
                query.get("file", "")[:200] or "upload.zip",
                query.get("name", ""),
                *_fields(query),
                [" ".join(label.split()) for label in labels if label.strip()],
                query.get("test_set", "") if "test_set" in query else None,
            )
            return {"active": True, "parts": {"part-import": state_part(found)}}

        return await with_file(request, take, "file", ready=lambda: imports.require_ready(*_fields(query)))

    add_command(app, commands, "stop-import")
    add_command(app, commands, "import-into-test-set", lambda _, done: {"go": set_address(done["test_set"])})


def _fields(answers: Mapping[str, str]) -> tuple[str, str]:
    """Return the format and the mask classes that a request names, after checking them."""
    return answers.get("layout", ""), answers.get("classes", "")


def _lines(imports: ImportService, number: int, kind: RowKind | None) -> Iterator[bytes]:
    """Yield an import's report as lines of CSV."""
    yield csv_text([], COLUMNS).encode()
    after = 0
    while rows := imports.stored.rows(number, after, _ROWS_AT_ONCE, kind):
        after = rows[-1][0]
        records = [{"file": row.file, "kind": row.kind, "reason": row.reason} for _, row in rows]
        yield csv_text(records, COLUMNS).partition("\r\n")[2].encode()


def _kind(text: str) -> RowKind | None:
    return text if text in get_args(RowKind) else None  # type: ignore[return-value]


# The pages


def _page(title: str, content: Html) -> str:
    return curate_page(title, "sets", content, sheets=SHEETS, scripts=SCRIPTS)


def _gallery_of(name: str) -> str:
    return gallery_address(ImageFilter(facets={"import": (name,)}))


def state_part(state: ImportState | None) -> Html:
    """Return the progress or the outcome of the import of the latest upload."""
    return render("curate/import_state.html", state=state, gallery=_gallery_of(state.name) if state else "")


def _earlier(imports: Sequence[Import]) -> Html:
    return render("curate/imports_before.html", imports=imports, counts=_counts, kinds=KIND_WORDS)


def _counts(import_record: Import) -> str:
    known = import_record.images - import_record.made
    parts = [
        FORMAT_TITLES.get(import_record.layout, ""),
        count_of(import_record.images, "image"),
        f"{known:,} of them known" if known else "",
        count_of(import_record.sources, "source") if import_record.sources else "",
    ]
    return " · ".join(part for part in parts if part)


def report_page(import_record: Import, kind: RowKind | None, after: int, rows: Sequence[tuple[int, ImportRow]]) -> Html:
    """Return a page of an import's report: the numbered `rows` after row number `after`. All of them are of `kind`;
    None means any kind.
    """
    here, parameters = f"{IMPORT}/{import_record.id}", f"kind={kind}&" if kind else ""
    return render(
        "curate/import_report.html",
        held=import_record,
        kind=kind,
        kinds=KIND_WORDS,
        counts=_counts,
        here=here,
        first=f"{here}?{parameters}" if after else "",
        next=f"{here}?{parameters}after={rows[ROWS - 1][0]}" if len(rows) > ROWS else "",
        file=f"{here}/{file_stem(import_record.name, 'import')}.csv?{parameters}",
        gallery=_gallery_of(import_record.name),
        rows=[row for _, row in rows[:ROWS]],
    )
