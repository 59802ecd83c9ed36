"""An in-memory cache that keeps the most recently used values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

V = TypeVar("V")


class Latest(Generic[V]):
    """A cache of up to `size` values by key. The least recently used one is dropped. Thread-safe."""

    def __init__(self, size: int) -> None:
        self._size, self._kept, self._lock = size, OrderedDict[object, V](), threading.Lock()

    def get(self, key: object) -> V | None:
        """Return the value of a key, or None if it is not in the cache."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: object, value: V) -> V:
        """Store a value and return it. If the cache exceeds its size, drop the least recently used value."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return value

    def once(self, key: object, make: Callable[[], V]) -> V:
        """Return the cached value, else call `make` and store its result. Two threads may both call `make`."""
        stored = self.get(key)
        return self.put(key, make()) if stored is None else stored
