"""Files that callers of Gradio's endpoints send and get: only what was uploaded is taken, and none is kept for long."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import gradio as gr
from fastapi.concurrency import run_in_threadpool
from gradio.components import Component
from gradio.utils import get_upload_folder

from core.errors import UserError

KEPT_SECONDS, LOOK_SECONDS = 3600.0, 300.0
"""How long a file is kept that was sent, or made to be fetched; and the time between two looks for older ones.

Who has used a file does not remove it: two who send the same have sent one file, as its content is its place."""
log = logging.getLogger(__name__)


def keep_to_uploads(component: Component) -> None:
    """Have a component take files from the folder of uploads alone.

    Gradio copies whatever looks like a file in what a caller sends into that folder, before a function of ours sees it:
    any file of this machine, as it looks at paths only in applications that it has launched itself and not in mounted
    ones, and whatever an address of the web gives.
    """

    async def kept(path: str | Path | None) -> str | None:
        try:
            return None if path is None else str(uploaded(str(path)))
        except UserError as error:
            raise gr.Error(str(error), title=error.field, print_exception=False) from error

    component.async_move_resource_to_block_cache = kept  # type: ignore[method-assign]


def uploaded(path: str) -> Path:
    """Where an uploaded file lies. Raises UserError for any other path."""
    found = Path(path).resolve() if path and path.isprintable() else None
    if found is None or not found.is_relative_to(Path(get_upload_folder()).resolve()) or not found.is_file():
        raise UserError("There is no such upload: send the file first.", field="file")
    return found


@asynccontextmanager
async def uploads_forgotten(_: object) -> AsyncIterator[None]:
    """As long as a server runs, whatever lies in the folder of uploads is removed when it is old enough.

    Gradio's own `delete_cache` leaves folders, and what has come of a file whose sender went away.
    """
    task = asyncio.create_task(_forget_again_and_again())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _forget_again_and_again() -> None:
    while True:
        try:
            await run_in_threadpool(forget_uploads, KEPT_SECONDS)
        except OSError:  # such as a folder that nobody may read
            log.exception("old uploads could not be removed")
        await asyncio.sleep(LOOK_SECONDS)


def forget_uploads(seconds: float) -> None:
    """Remove what has lain in the folder of uploads for longer than that, and folders that are empty as long."""
    before = time.time() - seconds
    for found in sorted(Path(get_upload_folder()).rglob("*"), reverse=True):  # what is in a folder before it
        with suppress(OSError):  # it is in use, not empty, or gone
            if found.lstat().st_ctime < before:
                found.rmdir() if found.is_dir() and not found.is_symlink() else found.unlink()
