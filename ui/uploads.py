"""Files that callers of Gradio's endpoints send: only what was uploaded is taken."""

from __future__ import annotations

from pathlib import Path

import gradio as gr
from gradio.components import Component
from gradio.utils import get_upload_folder


def keep_to_uploads(component: Component) -> None:
    """Have a component take files from the folder of uploads alone.

    Gradio copies whatever looks like a file in what a caller sends into that folder, before a function of ours sees it:
    any file of this machine, as it looks at paths only in applications that it has launched itself and not in mounted
    ones, and whatever an address of the web gives.
    """

    async def kept(path: str | Path | None) -> str | None:
        return None if path is None else str(uploaded(str(path)))

    component.async_move_resource_to_block_cache = kept  # type: ignore[method-assign]


def uploaded(path: str) -> Path:
    """Where an uploaded file lies. Raises gr.Error for any other path."""
    found = Path(path).resolve()
    if not found.is_relative_to(Path(get_upload_folder()).resolve()) or not found.is_file():
        raise gr.Error("There is no such upload: send the file first.", title="file", print_exception=False)
    return found
