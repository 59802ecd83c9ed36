"""Gradio without what costs a start most and serves nobody here.

Whenever it is imported it writes stubs of its components, a third of the time that this takes; and it makes a server of
each page alone, also where the page is mounted in an application.
"""

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


@contextmanager
def no_server() -> Iterator[None]:
    """Put pages together within, and mount them afterwards."""
    from gradio.routes import App

    with patch.object(App, "create_app"):
        yield
