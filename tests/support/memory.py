"""Measure the memory that a piece of work uses.

A process of its own measures, since tracemalloc counts all threads of a process, and leftovers of earlier tests would
count as well.
"""

from __future__ import annotations

import gc
import multiprocessing
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

MOST_NAMES = 5_000_000
"""Maximum number of new strings to add until Python's table of interned strings grows."""
Peaks = Callable[..., list[int]]
"""Function of a function of a module and a tuple of arguments for each call. It returns the maximum bytes in use by
call.
"""


@contextmanager
def measuring_process() -> Iterator[Peaks]:
    """Start the measuring process for all tests of a file.

    The first call runs once before measuring, so that no module is loaded during it. Arguments must be picklable.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:
        yield lambda work, *given: own.submit(_peaks, work, given).result()


def _peaks(work: Callable[..., Any], calls: tuple[tuple[Any, ...], ...]) -> list[int]:
    work(*calls[0])
    make_room_for_names()
    return [_peak(work, one) for one in calls]


def make_room_for_names() -> int:
    """Make Python's table of interned strings grow now, and not during a measurement. Return the bytes that it grew by.

    `pathlib` interns the parts of each path, so new file names fill the table. After some hundred thousand names the
    table is built anew: 3.8 MB at once in a small process, 15 MB in one that has loaded torch.
    """
    before = 0
    tracemalloc.start()
    try:
        for number in range(MOST_NAMES):
            sys.intern(f"a name that nobody else has: {number}")
            now, _ = tracemalloc.get_traced_memory()
            if number and now - before > 100_000:
                return now - before
            before = now
    finally:
        tracemalloc.stop()
    raise AssertionError("the table of interned strings does not grow")


def _peak(work: Callable[..., Any], arguments: tuple[Any, ...]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        work(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
