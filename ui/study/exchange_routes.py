"""Where exports are fetched, and where images and votes that were made elsewhere come in, each as a plain body."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from pipeline.errors import UserError
from ui.studio import Studio
from ui.study.bringing import MOST_LIST, bring_items, bring_votes, files_of, told_votes
from ui.study.exporting import EXPORTS, ZIP, opened, stem, zipped
from ui.study.posting import FROM_PAGE, Missing

MOST_UPLOAD = 2_000_000_000
"""Bytes of a zip of images."""
EVEN_SO, LOOK = "even-so", "look"
log = logging.getLogger(__name__)


def add_exchange_routes(app: FastAPI, studio: Studio) -> None:
    """GET /study/{id}/export/{file}; POST /study/api/{id}/files?name=NAME and POST /study/api/{id}/votes.

    The posts take the file as their body and x-studio as a header, and answer {"count": items or votes, "said":
    sentences}, or {"error": sentence}. For votes, ?name=look tells what is in the file, and takes nothing;
    ?name=even-so leaves out rows that cannot be votes.
    """
    workspace = studio.workspace

    @app.get("/study/{study_id}/export/{file}", include_in_schema=False)
    def export(study_id: str, file: str) -> Response:
        try:
            if file == ZIP:
                name, parts = zipped(workspace, study_id)
                return StreamingResponse(parts, media_type="application/zip", headers=_attached(name))
            if file not in EXPORTS:
                return PlainTextResponse("There is no such file.", status_code=404)
            media_type, make = EXPORTS[file]
            study = opened(workspace, study_id)
            return Response(make(study), media_type=media_type, headers=_attached(f"{stem(study.data)}-{file}"))
        except UserError as error:
            return PlainTextResponse(str(error), status_code=404)

    def files(file: Path, name: str, study_id: str) -> Mapping[str, Any]:
        count, said = bring_items(workspace, study_id, files_of(name, file))
        return {"count": count, "said": said}

    def votes(file: Path, name: str, study_id: str) -> Mapping[str, Any]:
        if name == LOOK:
            count, said, problems = told_votes(workspace, study_id, file.read_bytes())
            return {"count": count, "said": said, "problems": problems}
        count, said = bring_votes(workspace, study_id, file.read_bytes(), even_so=name == EVEN_SO)
        return {"count": count, "said": said}

    add_file_post(app, "/study/api/{study_id}/files", files)
    add_file_post(app, "/study/api/{study_id}/votes", votes, MOST_LIST)


def add_file_post(app: FastAPI, path: str, act: Callable[..., Mapping[str, Any]], most: int = MOST_UPLOAD) -> None:
    """`act(file, name, **path parameters)` answers a POST whose body is a file of at most `most` bytes.

    The file waits on the disk, not in memory, and is gone afterwards; `name` is what the page calls it (?name=). A
    UserError comes back as {"error": sentence} with status 400. Runs in a thread of its own.
    """

    async def handle(request: Request) -> Response:
        if FROM_PAGE not in request.headers:
            return JSONResponse({"error": "Files are taken from the studio's own pages only."}, status_code=403)
        with tempfile.TemporaryDirectory(prefix="study-") as folder:
            file, size = Path(folder) / "file", 0
            with file.open("wb") as written:
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        words = f"The file is larger than {most // 1_000_000:,} MB: cut it into several."
                        return JSONResponse({"error": words}, status_code=400)
                    written.write(part)
            if not size:
                return JSONResponse({"error": "The file is empty: choose another one."}, status_code=400)
            name = request.query_params.get("name", "")[:200]
            try:
                return JSONResponse(dict(await run_in_threadpool(act, file, name, **request.path_params)))
            except UserError as error:
                return JSONResponse({"error": str(error)}, status_code=404 if isinstance(error, Missing) else 400)
            except Exception as error:  # the page must get a reply that it can show
                log.exception("%s failed", path)
                words = f"The studio itself failed ({type(error).__name__}): the terminal says more."
                return JSONResponse({"error": words}, status_code=500)

    app.add_api_route(path, handle, methods=["POST"], include_in_schema=False)


def _attached(name: str) -> dict[str, Any]:
    # A header takes ASCII only: other letters are written as RFC 8187 has it.
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}", "Cache-Control": "no-store"}
