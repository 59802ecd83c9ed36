"""Worker processes before anybody knows what they are to do: they import what they will need meanwhile.

That takes a core some five seconds, of which the one who is to send the order needs two to get ready itself. This
module imports next to nothing, so that the first worker begins at once.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

AHEAD = (
    "torch",
    "services.batches.pools",
    "diffusers.utils",
    "transformers.modeling_utils",
    "diffusers.models.modeling_utils",
    "diffusers.models.controlnets.controlnet",
    "diffusers.pipelines.controlnet.pipeline_controlnet",
)
"""What is imported while there is no order: in small pieces, since what an order does not need is left out then."""


@dataclass(frozen=True)
class Recruit:
    """A process that waits for its order."""

    process: SpawnProcess
    connection: Connection

    def close(self) -> None:
        """End one that got no order."""
        self.connection.close()
        self.process.terminate()
        self.process.join()


def recruited() -> Recruit:
    """A process that calculates in one thread and leaves Ctrl-C to this one. It ends when this one does."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_begin, args=(theirs,), daemon=True, name="batch worker")
    with _one_thread():
        process.start()
    theirs.close()  # or the end of the worker would not end the connection
    return Recruit(process, ours)


def _begin(connection: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Or it would look through a million objects again and again: a fifth of the time. Whoever serves turns it on.
    gc.disable()
    for name in AHEAD:
        if connection.poll():
            break
        with suppress(ImportError):  # another version may not have it: then it is not needed, or missed where it is
            import_module(name)
    with suppress(EOFError, ConnectionResetError):
        order = connection.recv()
        gc.freeze()  # what modules hold stays for good
        import_module("services.batches.pools").serve(connection, *order)


@contextmanager
def _one_thread() -> Iterator[None]:
    """What is started meanwhile calculates in one thread."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
