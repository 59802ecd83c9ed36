"""Separate processes for work that would block the server, forked from a process that has loaded the modules."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.context import ForkServerContext

_NEEDED = ["services.curation.import_source", "services.studies.analyses", "scipy.stats"]


def own_processes() -> ForkServerContext:
    """Return a context for starting processes. Each is forked from a helper process that has the modules loaded."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_NEEDED)
    return context


def end_with_parent() -> None:
    """End this process when its parent ends."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
