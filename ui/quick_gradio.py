"""Makes Gradio faster by preventing two slow steps. At its import, Gradio writes type stubs, which takes a third of the
import's time. For each page, Gradio makes a server.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch


@contextmanager
def no_stubs() -> Iterator[None]:
    """Keep Gradio from writing type stubs within the `with` block. Gradio skips a component whose file is not found."""
    plain = inspect.getfile

    def getfile(thing: Any) -> str:
        if type(thing).__name__ == "ComponentMeta":
            raise OSError("no stub is wanted")
        return plain(thing)

    with patch.object(inspect, "getfile", getfile):
        yield


@contextmanager
def no_server() -> Iterator[None]:
    """Keep Gradio from making a server for a page built within the `with` block. The studio's own server serves it."""
    from gradio.routes import App

    with patch.object(App, "create_app"):
        yield
