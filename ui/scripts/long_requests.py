"""Endpoints that wait without a thread of their own: downloads of test sets, imports of images, plans of batches."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any

from fastapi.concurrency import run_in_threadpool
from gradio.data_classes import FileData
from pydantic import BeforeValidator, Field

from core.errors import UserError
from core.test_sets import LONGEST_NAME
from services.batches.running import BatchRuns, PlanByScript
from services.batches.service import facts_of
from services.commands import Command
from services.curation.imports import ImportService, ImportState
from services.queries import Query
from services.test_sets.exports import FORMAT_TITLES, FORMATS, WRITTEN, ReadyExport, SetExports
from services.test_sets.versions import LONGEST_REFERENCE
from services.work_queue import WorkView
from ui.scripts.uploads import file_data, new_upload, uploaded

MOST_LABELS = 10_000
LOOK_SECONDS = 0.1
"""Seconds between two checks of unfinished work."""


def _listed(labels: Any) -> Any:
    if isinstance(labels, str):
        labels = labels.split(",")
    if isinstance(labels, list) and all(isinstance(label, str) for label in labels):
        return [" ".join(label.split()) for label in labels if label.strip()]
    return labels


class DownloadTestSet(Query, name="download-test-set"):
    """Give a released version of a test set as a zip of image files, labels, splits and masks, once it is written."""

    version: str = Field(
        max_length=LONGEST_REFERENCE,
        description="A released version: its id or the first 8 digits of it, SET@2, or SET for the latest",
    )
    format: str = Field(
        "imagefolder", max_length=80, description="The format of the files", json_schema_extra={"enum": list(WRITTEN)}
    )


class ImportImages(Command, name="import-images", keeps=True):
    """Begin to import the images of a zip or tar with their labels, splits and masks, and give the import's number."""

    file: FileData = Field(description="A zip or tar of any format that an export has, or of plain folders")
    title: str = Field("", max_length=LONGEST_NAME, description="Name of the import; empty: the name of the file")
    format: str = Field(
        "",
        max_length=80,
        description="The format of the files; empty: the studio detects it",
        json_schema_extra={"enum": ["", *FORMATS]},
    )
    labels: Annotated[
        tuple[Annotated[str, Field(max_length=LONGEST_NAME)], ...],
        BeforeValidator(_listed),
        Field(
            max_length=MOST_LABELS,
            description="The known labels, as a list or separated by commas. Images with other labels are refused. "
            "Empty: any label",
        ),
    ] = ()
    classes: str = Field(
        "", max_length=20_000, description="The number and name of each class of masks, such as “0 sky, 1 road”"
    )
    test_set: str | None = Field(
        None,
        max_length=LONGEST_REFERENCE,
        description="Also put the images into the draft of this test set; “”: the name that was exported with them",
    )


@dataclass(frozen=True)
class Waiter:
    """A caller who waits for the answer to a request."""

    listens: Callable[[], Awaitable[bool]]
    """Coroutine that returns True while the caller is connected."""
    seconds: float = math.inf
    """Maximum seconds to wait. After that, the answer is the progress so far."""


async def zip_of(command: DownloadTestSet, exports: SetExports, waiter: Waiter) -> dict[str, Any]:
    """Return the zip as a file of Gradio, or the progress if the caller stops waiting. The export stops once no caller
    waits for it, unless a page began it. Raises UserError.
    """
    if command.format not in WRITTEN:
        raise UserError(f"There is no format {command.format!r:.80}: choose {', '.join(WRITTEN)}.", field="format")
    views, asked_again, end = list[WorkView](), False, time.monotonic() + waiter.seconds

    def begin() -> None:
        views.append(exports.start(command.version, command.format, waits=True))

    try:
        await run_in_threadpool(begin)
        view = views[0]
        while view.active:
            if time.monotonic() >= end:
                asked_again = True  # the caller will ask again
                return {"state": view.state, "done": view.done, "total": view.total}
            if not await waiter.listens():
                raise UserError("The caller has left, so the export was not sent: request it again.")
            await asyncio.sleep(LOOK_SECONDS)
            view = exports.view(view.id)
        if view.state == "cancelled":
            raise UserError("Somebody else has stopped the export: request it again.")
        if view.state == "failed":
            raise UserError(view.error)
        return await run_in_threadpool(lambda: fetchable(exports.ready(view.id)))
    finally:
        for view in views:
            exports.leave(view.id, asked_again)


def fetchable(ready: ReadyExport) -> dict[str, Any]:
    """Return the zip as a file that the caller may download. It remains when the export is removed."""
    return file_data(_linked(ready.file, ready.name), orig_name=ready.name)


async def planned(sent: PlanByScript, runs: BatchRuns, waiter: Waiter) -> dict[str, Any]:
    """Plan a batch and wait until its items are chosen. Return the batch with the fields of `list_batches`. If this
    takes longer than the caller waits, return 0 for the batch, and the number of files examined so far. Planning then
    continues, and a caller who sends the same plan again waits for it. Raises UserError.
    """
    end = time.monotonic() + waiter.seconds
    view = await run_in_threadpool(runs.plan, sent)
    while view.active and time.monotonic() < end and await waiter.listens():
        await asyncio.sleep(LOOK_SECONDS)
        view = runs.planning.view(view.id)
    if view.state == "failed":
        raise UserError(view.error, field="plan")
    if view.state == "cancelled":
        raise UserError("Somebody else has stopped the planning: send the plan again.", field="plan")
    if view.active:
        return {"batch": 0, "state": "planning", "looked_through": view.done}
    return await run_in_threadpool(lambda: dict(facts_of(runs.status(view.result))))


async def brought_in(sent: ImportImages, imports: ImportService, waiter: Waiter) -> dict[str, Any]:
    """Begin an import, and wait until its first images are stored. Return the progress and the id ("number") of the
    import. The id is 0 if the caller waits too short a time. The import continues after the caller has left. Raises
    UserError if the import fails or is stopped.
    """
    if sent.format and sent.format not in FORMAT_TITLES:
        raise UserError(f"There is no format {sent.format!r:.80}: choose {', '.join(FORMAT_TITLES)}.", field="format")
    end = time.monotonic() + waiter.seconds
    state = begun = await run_in_threadpool(_begin, sent, imports)
    while state.state == "running" and not state.number and time.monotonic() < end and await waiter.listens():
        await asyncio.sleep(LOOK_SECONDS)
        now = imports.state()
        if now is None or now.upload != begun.upload:
            raise UserError("The import is over, and another one has begun: see the results of both in list_imports.")
        state = now
    if state.state in ("failed", "stopped"):
        raise UserError(state.message, field="file" if state.state == "failed" else "")
    return {"number": state.number, "title": state.name, "state": state.state, "said": state.message}


def _begin(sent: ImportImages, imports: ImportService) -> ImportState:
    path = uploaded(sent.file.path)
    name = PureWindowsPath(sent.file.orig_name or path.name).name
    # The import moves its file away. The upload must stay, since callers who send the same content share it.
    taken = _linked(path, "upload")
    try:
        return imports.import_upload(taken, name, sent.title, sent.format, sent.classes, sent.labels, sent.test_set)
    finally:
        taken.unlink(missing_ok=True)
        taken.parent.rmdir()


def _linked(file: Path, name: str) -> Path:
    """Link a file under another name into a new folder of the uploads. Copy the file if it cannot be linked."""
    to = new_upload(name)
    try:
        os.link(file, to)
    except OSError:  # the file is on another disk, or the disk has no links
        shutil.copyfile(file, to)
    return to
