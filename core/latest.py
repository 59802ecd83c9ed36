"""An in-memory cache that keeps the most recently used values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar, cast

V = TypeVar("V")


class Latest(Generic[V]):
    """A thread-safe cache by key. The weights of its values (`weigh`, by default 1) sum to at most `size`.

    The least recently used values are dropped. A value that is heavier than `size` is not kept.
    """

    def __init__(self, size: int, weigh: Callable[[V], int] = lambda _value: 1) -> None:
        self._size, self._weigh, self._weight = size, weigh, 0
        self._kept, self._lock = OrderedDict[object, V](), threading.Lock()

    def get(self, key: object) -> V | None:
        """Return the value of a key, or None if it is not in the cache."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: object, value: V) -> V:
        """Store a value and return it. If the cache exceeds its size, drop the least recently used values."""
        with self._lock:
            if key in self._kept:
                self._weight -= self._weigh(self._kept.pop(key))
            if self._weigh(value) <= self._size:
                self._kept[key] = value
                self._weight += self._weigh(value)
            while self._weight > self._size:
                self._weight -= self._weigh(self._kept.popitem(last=False)[1])
        return value

    def each(self, keys: Sequence[object], make: Callable[[list[int]], Iterable[V]]) -> list[V]:
        """Return the value of each key. `make` gets the index of each key that is not in the cache, and returns the
        values, which are then cached.
        """
        known = {key: self.get(key) for key in keys}
        new = {key: place for place, key in enumerate(keys) if known[key] is None}
        made = make(list(new.values())) if new else ()
        found = known | {key: self.put(key, value) for key, value in zip(new, made, strict=True)}
        return [cast(V, found[key]) for key in keys]

    def once(self, key: object, make: Callable[[], V]) -> V:
        """Return the cached value, else call `make` and store its result. Two threads may both call `make`."""
        stored = self.get(key)
        return self.put(key, make()) if stored is None else stored
