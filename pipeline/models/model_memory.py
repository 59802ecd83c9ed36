"""Manages the memory of models. Measures needed and free memory, makes room, and returns memory to the system."""

from __future__ import annotations

import ctypes
import gc
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from core.errors import out_of_memory
from core.model_sections import Weights

R = TypeVar("R")

WORK = 1_500_000_000
"""Bytes reserved for a model's intermediate results, in addition to its weights."""


class UsesMemory:
    """Base of models that may need much memory while they work."""

    free_others: Callable[[], bool] = staticmethod(lambda: False)
    """Function that releases all other models, and returns True if it released one. Set by `Models`."""


def with_room(work: Callable[[], R], *steps: Callable[[], bool]) -> R:
    """Return the result of `work`. When memory runs out, call `steps` in order until one returns True: it freed memory
    or made the work smaller. Then start `work` again. Raises the error if no step returns True.
    """
    while True:
        try:
            return work()
        except Exception as error:
            if not lacked_memory(error):
                raise
            failed = error
        _let_go(failed)
        if not any(step() for step in steps):
            raise failed
        give_back_memory()


def lacked_memory(error: BaseException) -> bool:
    """Return True if the error, or the cause of a loader's error, is that memory ran out."""
    return out_of_memory(error) or (error.__cause__ is not None and out_of_memory(error.__cause__))


def _let_go(error: BaseException | None) -> None:
    """Clear an error's stack frames. This frees objects of the failed work, so that the next try has more memory."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def memory_of(weights: Weights, on_gpu: bool) -> int:
    """Return the bytes of a model's weights at the precision in which it runs; 0 if the profile does not say."""
    dtype = getattr(weights, "dtype", "auto")
    half = on_gpu if dtype == "auto" else dtype != "float32"
    return weights.memory_half if half else weights.memory_full


def to_release(needed: int, free: int, loaded: Mapping[str, int]) -> list[str]:
    """Return the models to release, in the order of `loaded`, so that a model of `needed` bytes and its working memory
    fit. The list is empty if they fit already. If releasing all is not enough, return all models of known size, since
    loading may still succeed.
    """
    chosen = list[str]()
    for role, size in loaded.items():
        if needed + WORK <= free:
            break
        if size:  # releasing a model of unknown size may free nothing
            chosen.append(role)
            free += size
    return chosen


def free_memory(place: str) -> int:
    """Return the free bytes of GPU memory for "cuda", or of main memory for "cpu"."""
    if place == "cuda":
        import torch

        # Memory that torch keeps cached after models were freed is available to the next model.
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return int(torch.cuda.mem_get_info()[0]) + int(cached)
    return memory()[1]


def give_back_memory() -> None:
    """Release unused main memory and GPU memory of this process."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
    with suppress(OSError, AttributeError):  # glibc keeps memory that was freed in small pieces
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def memory() -> tuple[int, int]:
    """Return the total and the free memory in bytes."""
    import psutil

    usage = psutil.virtual_memory()
    return _within_limit(usage.total, usage.available)


def _within_limit(total: int, free: int, limits: Path = Path("/sys/fs/cgroup")) -> tuple[int, int]:
    """Return total and free memory within the limits of a container, which may have less than the machine."""
    try:
        limit = int((limits / "memory.max").read_text())
        return min(total, limit), max(0, min(free, limit - int((limits / "memory.current").read_text())))
    except (OSError, ValueError):
        return total, free
