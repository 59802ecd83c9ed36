"""Processes of their own for what would hold up the server. Each begins as a copy of one that has all it needs."""

from __future__ import annotations

import multiprocessing
import os
import threading
from multiprocessing.context import ForkServerContext

_NEEDED = ["services.curation.import_process", "services.studies.analyses", "scipy.stats"]


def own_processes() -> ForkServerContext:
    """Where such processes are started. The one that is copied stays as long as the server."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_NEEDED)
    return context


def end_with_parent() -> None:
    """End this process when the one that started it ends."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
