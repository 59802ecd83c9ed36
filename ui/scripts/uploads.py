"""Files that callers of endpoints upload or download. They are removed after about an hour."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi.concurrency import run_in_threadpool
from gradio.components import Component
from gradio.utils import get_upload_folder

from core.errors import UserError

KEPT_SECONDS, LOOK_SECONDS = 3600.0, 300.0
"""Seconds that an uploaded or downloadable file is kept, and seconds between two searches for older files.

A file is not removed after its use, because its path is the hash of its content and other callers may share it."""
log = logging.getLogger(__name__)


def keep_to_uploads(component: Component) -> None:
    """Make a component accept only files in the folder of uploads. Otherwise, a request could name any file of this
    machine or any web address, and Gradio would copy the content to the caller's uploads. Gradio prevents this only in
    applications that Gradio launched. The studio is not launched by Gradio.
    """

    async def kept(path: str | Path | None) -> str | None:
        try:
            return None if path is None else str(uploaded(str(path)))
        except UserError as error:
            raise gr.Error(str(error), title=error.field, print_exception=False) from error

    component.async_move_resource_to_block_cache = kept  # type: ignore[method-assign]


def file_data(path: Path | str, **more: str) -> dict[str, Any]:
    """Return the dictionary that represents a file in Gradio's requests and replies."""
    return {"path": str(path), **more, "meta": {"_type": "gradio.FileData"}}


def new_upload(name: str) -> Path:
    """Return a path for a new file of this name, in a new folder of the uploads."""
    Path(get_upload_folder()).mkdir(parents=True, exist_ok=True)
    return Path(tempfile.mkdtemp(dir=get_upload_folder())) / name


def uploaded(path: str) -> Path:
    """Return the path of an uploaded file. Raises UserError for any other path."""
    file = Path(path).resolve() if path and path.isprintable() else None
    if file is None or not file.is_relative_to(Path(get_upload_folder()).resolve()) or not file.is_file():
        raise UserError("There is no such upload: send the file first.", field="file")
    return file


@asynccontextmanager
async def uploads_forgotten(_: object) -> AsyncIterator[None]:
    """Remove old uploads as long as the server runs. Gradio's `delete_cache` leaves folders and incomplete files."""
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
        except OSError:  # such as an unreadable folder
            log.exception("old uploads could not be removed")
        await asyncio.sleep(LOOK_SECONDS)


def forget_uploads(seconds: float) -> None:
    """Remove uploaded files that are older than `seconds`, and empty folders."""
    before = time.time() - seconds
    for found in sorted(Path(get_upload_folder()).rglob("*"), reverse=True):  # a folder after its content
        with suppress(OSError):  # it is in use, not empty, or gone
            if found.lstat().st_ctime < before:
                found.rmdir() if found.is_dir() and not found.is_symlink() else found.unlink()
