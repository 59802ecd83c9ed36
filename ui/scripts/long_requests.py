"""Endpoints that wait for what takes time without a thread of their own: test sets as files, and archives of images."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Annotated, Any

from fastapi.concurrency import run_in_threadpool
from gradio.data_classes import FileData
from gradio.utils import get_upload_folder
from pydantic import BeforeValidator, Field

from core.errors import UserError
from core.test_sets import LONGEST_NAME
from services.batches.running import BatchRuns, PlanByScript
from services.batches.service import facts_of
from services.commands import Command
from services.curation.imports import ImportService, ImportState
from services.queries import Query
from services.test_sets.exports import FORMAT_TITLES, WRITTEN, ReadyExport, SetExports
from services.test_sets.versions import LONGEST_REFERENCE
from services.work_queue import WorkView
from ui.scripts.uploads import uploaded

MOST_LABELS = 10_000
LOOK_SECONDS = 0.1
"""Between two looks at what is waited for."""


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


class ImportImages(Command, name="import-images"):
    """Begin to bring in the images of a zip or tar with their labels, splits and masks, and give the number of the
    import.
    """

    file: FileData = Field(description="A zip or tar of any format that an export has, or of plain folders")
    title: str = Field("", max_length=LONGEST_NAME, description="What the import is called; empty: as its file is")
    format: str = Field(
        "",
        max_length=80,
        description="The format of the files; empty: it is found out",
        json_schema_extra={"enum": ["", *FORMAT_TITLES]},
    )
    labels: Annotated[
        tuple[Annotated[str, Field(max_length=LONGEST_NAME)], ...],
        BeforeValidator(_listed),
        Field(
            max_length=MOST_LABELS,
            description="The labels that are known, as a list or with commas between: an image with another one is "
            "refused; empty takes any",
        ),
    ] = ()
    classes: str = Field(
        "", max_length=20_000, description="The number and name of each class of masks, such as “0 sky, 1 road”"
    )
    test_set: str | None = Field(
        None,
        max_length=LONGEST_REFERENCE,
        description="Put the images into the draft of this test set too; “” for the name that was exported with them",
    )


@dataclass(frozen=True)
class Waiter:
    """Who waits for an answer."""

    listens: Callable[[], Awaitable[bool]]
    """Whether anybody still does."""
    seconds: float = math.inf
    """How long they wait at most; then they are told how far it is."""


async def zip_of(asked: DownloadTestSet, exports: SetExports, waiter: Waiter) -> dict[str, Any]:
    """The zip as an upload of Gradio's, or how far it is where that takes longer than is waited.

    An export that nobody waits for any more is stopped, unless a page has begun it. Raises UserError.
    """
    if asked.format not in WRITTEN:
        raise UserError(f"There is no format {asked.format!r:.80}: take {', '.join(WRITTEN)}.", field="format")
    held, wanted, end = list[WorkView](), False, time.monotonic() + waiter.seconds

    def begin() -> None:
        held.append(exports.start(asked.version, asked.format, waits=True))

    try:
        await run_in_threadpool(begin)
        view = held[0]
        while view.active:
            if time.monotonic() >= end:
                wanted = True  # it is asked for again
                return {"state": view.state, "done": view.done, "total": view.total}
            if not await waiter.listens():
                raise UserError("Nobody waits for this export any more.")
            await asyncio.sleep(LOOK_SECONDS)
            view = exports.view(view.id)
        if view.state == "cancelled":
            raise UserError("The export was stopped by somebody else: ask for it again.")
        if view.state == "failed":
            raise UserError(view.error)
        return await run_in_threadpool(lambda: _fetchable(exports.ready(view.id)))
    finally:
        for view in held:
            exports.leave(view.id, wanted)


def _fetchable(ready: ReadyExport) -> dict[str, Any]:
    """The zip among the files that a caller may fetch, where it stays when the export goes."""
    return {
        "path": str(_linked(ready.file, ready.name)),
        "orig_name": ready.name,
        "meta": {"_type": "gradio.FileData"},
    }


async def planned(sent: PlanByScript, runs: BatchRuns, waiter: Waiter) -> dict[str, Any]:
    """The batch of a plan as `list_batches` tells it, once its items are chosen; how many of the data set were looked
    through where that takes longer than is waited, with 0 for the batch.

    It goes on when nobody waits for it, and the same plan sent again waits for it anew. Raises UserError.
    """
    end = time.monotonic() + waiter.seconds
    view = await run_in_threadpool(runs.plan, sent)
    while view.active and time.monotonic() < end and await waiter.listens():
        await asyncio.sleep(LOOK_SECONDS)
        view = runs.planning.view(view.id)
    if view.state == "failed":
        raise UserError(view.error, field="plan")
    if view.state == "cancelled":
        raise UserError("The planning was stopped by somebody else: send the plan again.", field="plan")
    if view.active:
        return {"batch": 0, "state": "planning", "looked_through": view.done}
    return await run_in_threadpool(lambda: dict(facts_of(runs.status(view.result))))


async def brought_in(sent: ImportImages, imports: ImportService, waiter: Waiter) -> dict[str, Any]:
    """Begin an import; its number and how far it is, once it has a number, which it gets with its first images.

    It goes on when nobody waits for it. The number is 0 where it takes longer than is waited. Raises UserError, also
    for an import that ends without one.
    """
    if sent.format and sent.format not in FORMAT_TITLES:
        raise UserError(f"There is no format {sent.format!r:.80}: take {', '.join(FORMAT_TITLES)}.", field="format")
    end = time.monotonic() + waiter.seconds
    state = begun = await run_in_threadpool(_begin, sent, imports)
    while state.state == "running" and not state.number and time.monotonic() < end and await waiter.listens():
        await asyncio.sleep(LOOK_SECONDS)
        now = imports.state()
        if now is None or now.upload != begun.upload:
            raise UserError("The import is over, and another one has begun: list_imports tells what came of both.")
        state = now
    if state.state in ("failed", "stopped"):
        raise UserError(state.message, field="file" if state.state == "failed" else "")
    return {"number": state.number, "title": state.name, "state": state.state, "said": state.message}


def _begin(sent: ImportImages, imports: ImportService) -> ImportState:
    path = uploaded(sent.file.path)
    name = PureWindowsPath(sent.file.orig_name or path.name).name
    # The import moves its file, and whoever sends the same once more has sent this very file.
    taken = _linked(path, "upload")
    try:
        return imports.import_upload(taken, name, sent.title, sent.format, sent.classes, sent.labels, sent.test_set)
    finally:
        taken.unlink(missing_ok=True)
        taken.parent.rmdir()


def _linked(file: Path, name: str) -> Path:
    """A file under another name in a new folder among the uploads: no second copy where both are on one disk."""
    Path(get_upload_folder()).mkdir(parents=True, exist_ok=True)
    to = Path(tempfile.mkdtemp(dir=get_upload_folder())) / name
    try:
        os.link(file, to)
    except OSError:  # on another disk, or one without links
        shutil.copyfile(file, to)
    return to
