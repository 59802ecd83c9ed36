"""Holds back the threads of numpy's linear algebra while threads of ours make figures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_limits: list[threadpool_limits] = []
"""One for each thread that is inside."""


@contextmanager
def without_blas_threads() -> Iterator[None]:
    """Within this, the thread that asks for a product of matrices calculates it alone.

    The products of a bootstrap are small and many, and are made in threads beside each other: between two of them the
    threads of the library wait busily, and take the cores from ours. It holds for the whole process, and several
    threads may be in it at once.
    """
    with _lock:
        _limits.append(threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limits = _limits.pop()
            if not _limits:  # the first of all, which knows how many threads there were before
                limits.unregister()
