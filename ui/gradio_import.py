"""Imports Gradio without the interface files that it writes for editors, one for each of its classes, whenever it is
imported: they are of no use here, and take a second of every start.
"""

from __future__ import annotations

import inspect
from typing import Any


def import_gradio() -> None:
    """Import Gradio. It passes over a class without a file, as it does with those that are made at run time."""
    file_of = inspect.getfile

    def file_of_others(found: Any) -> str:
        if type(found).__name__ == "ComponentMeta":
            raise OSError("a class of Gradio")
        return file_of(found)

    inspect.getfile = file_of_others  # type: ignore[assignment]
    try:
        import gradio  # noqa: F401
    finally:
        inspect.getfile = file_of
