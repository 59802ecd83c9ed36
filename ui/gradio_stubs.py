"""Gradio without the stubs that it writes for its components whenever it is imported: a third of the time of that."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def no_stubs() -> Iterator[None]:
    """Import Gradio within. It leaves out a component whose file cannot be told, so none is told here."""
    plain = inspect.getfile

    def getfile(thing: Any) -> str:
        if type(thing).__name__ == "ComponentMeta":
            raise OSError("no stub is wanted")
        return plain(thing)

    with patch.object(inspect, "getfile", getfile):
        yield
