"""Limits numpy's linear algebra to one thread while several threads here calculate figures."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_limits: list[threadpool_limits] = []
"""One limit for each thread inside the context."""


@contextmanager
def without_blas_threads() -> Iterator[None]:
    """Run numpy's linear algebra on one thread within this context.

    A bootstrap multiplies many small matrices, in several threads at once. Between two products, the threads of the
    BLAS library wait busily and take CPU cores from the threads that calculate. The limit holds for the whole process.
    Several threads may be within the context at once.
    """
    with _lock:
        _limits.append(threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limits = _limits.pop()
            if not _limits:  # the first limit of all, which knows the original number of threads
                limits.unregister()
