"""The memory that a piece of work takes.

It is measured in a process of its own: tracemalloc counts what all threads of a process make, and what an earlier test
left behind, a thread or garbage whose finalizer fails, would count as well.
"""

from __future__ import annotations

import gc
import multiprocessing
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any


def peaks(work: Callable[..., Any], *given: tuple[Any, ...]) -> list[int]:
    """Bytes at most in use while `work`, a function of a module, does each that is given, one after another.

    The first is done once before anything counts, so that no module is loaded while it does. What is given has to
    survive pickling.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:
        return own.submit(_peaks, work, given).result()


def _peaks(work: Callable[..., Any], given: tuple[tuple[Any, ...], ...]) -> list[int]:
    work(*given[0])
    return [_peak(work, one) for one in given]


def _peak(work: Callable[..., Any], given: tuple[Any, ...]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        work(*given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
