"""The memory that a piece of work takes.

It is measured in a process of its own, since tracemalloc counts what all threads of a process make, and what an earlier
test left behind would count as well.
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
"""After so many new strings the table of Python's interned strings has grown, however large it is."""
Peaks = Callable[..., list[int]]
"""Called with a function of a module and one tuple of arguments a call: the most bytes in use while each call runs."""


@contextmanager
def measuring_process() -> Iterator[Peaks]:
    """Start the process that measures, for all tests of a file.

    The first call is made once before anything counts, so that no module is loaded while it does. Arguments have to
    survive pickling.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as own:
        yield lambda work, *given: own.submit(_peaks, work, given).result()


def _peaks(work: Callable[..., Any], given: tuple[tuple[Any, ...], ...]) -> list[int]:
    work(*given[0])
    make_room_for_names()
    return [_peak(work, one) for one in given]


def make_room_for_names() -> int:
    """Have Python's table of interned strings grow now, and not while something is measured; returns by how many bytes.

    `pathlib` interns the parts of each path, so that new names fill that table whatever becomes of them. Every hundred
    thousand of them it is made anew: 3.8 MB at once in a small process, 15 MB in one that has loaded torch.
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


def _peak(work: Callable[..., Any], given: tuple[Any, ...]) -> int:
    gc.collect()
    tracemalloc.start()
    try:
        work(*given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
