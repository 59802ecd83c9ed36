"""Holds back the threads of numpy's linear algebra while threads of ours make figures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits


class _Limits:
    """How many threads are inside, and what to put back when the last of them leaves."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limits: threadpool_limits | None = None

    def enter(self) -> None:
        with self._lock:
            self._inside += 1
            if self._limits is None:
                self._limits = threadpool_limits(1, user_api="blas")

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._limits is not None:
                self._limits.unregister()
                self._limits = None


_LIMITS = _Limits()


@contextmanager
def without_blas_threads() -> Iterator[None]:
    """Within this, the thread that asks for a product of matrices calculates it alone.

    The products of a bootstrap are small and many, and are made in threads beside each other: between two of them the
    threads of the library wait busily, and take the cores from ours. It holds for the whole process, and several
    threads may be in it at once.
    """
    _LIMITS.enter()
    try:
        yield
    finally:
        _LIMITS.leave()
