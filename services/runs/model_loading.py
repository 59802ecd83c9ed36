"""Loads each model under test in its own thread, since reading a file from a slow or dead drive may never end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

from core.errors import UserError
from core.words import count_of

T = TypeVar("T")
LOAD_SECONDS = 300.0
"""Maximum seconds to wait for a model. Two gigabytes from a slow disk take a minute."""
LOOK_SECONDS = 0.25
"""Maximum seconds until a cancellation takes effect."""


class ModelLoading(Generic[T]):
    """The models under test that are being loaded now. Thread-safe."""

    def __init__(self) -> None:
        self._coming: dict[str, Future[T]] = {}
        self._lock = threading.Lock()

    def load(self, key: str, title: str, make: Callable[[], T], on_wait: Callable[[], object]) -> T:
        """Call `make`, which loads a model, in its own thread and return the result. Concurrent requests with the same
        `key` share one call.

        `on_wait` is called repeatedly, and an exception from it ends the waiting. The loading itself cannot be stopped:
        the next request with this `key` waits for it again. Raises UserError after `LOAD_SECONDS`, or `make`'s errors.
        """
        with self._lock:
            coming = self._coming.get(key)
            if coming is None:
                self._coming = {name: one for name, one in self._coming.items() if not one.done()}
                coming = self._coming[key] = Future()
                threading.Thread(target=_load, args=(coming, make), name="load a model", daemon=True).start()
        end = time.monotonic() + LOAD_SECONDS
        while not wait([coming], LOOK_SECONDS).done:
            on_wait()
            if time.monotonic() > end:
                raise UserError(
                    f"{title} was not loaded within {count_of(round(LOAD_SECONDS / 60), 'minute')}: the drive of its "
                    "file may not answer. Copy the file to another drive, or choose another model."
                )
        with self._lock:
            self._coming.pop(key, None)
        return coming.result()


def _load(coming: Future[T], make: Callable[[], T]) -> None:
    try:
        coming.set_result(make())
    except Exception as error:  # noqa: BLE001 - raised again in the thread that waits for it
        coming.set_exception(error)
