"""Files that callers of Gradio's endpoints send: only what was uploaded is taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gradio as gr
from gradio.components import Component
from gradio.utils import get_upload_folder

from pipeline.errors import UserError


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


@contextmanager
def taking(path: str) -> Iterator[bytes]:
    """The bytes of an uploaded file, which is removed afterwards. Raises UserError for any other path."""
    file = uploaded(path)
    try:
        yield file.read_bytes()
    finally:
        file.unlink(missing_ok=True)
