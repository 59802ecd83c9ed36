"""Which items of a data set a plan takes. Pure: looks at keys, labels and attributes, and opens no image.

Chance is a hash of the seed and of an item's key, its rank: the items of the lowest ranks are taken. So the same ones
are, in whatever order they come, and an item that is added or taken away moves one place at most.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heappush, heappushpop
from typing import Generic, Protocol, TypeVar

from core.words import count_of
from services.batches.plan_file import BatchPlan, ChoosePart, nearest_first

NAMED = 5
"""Of many classes or keys, as many as a sentence names."""
_SEEN = 1000
"""Of classes and values that nobody asked for, as many as are kept for "there are"."""
_RANKS = 2**64


class Item(Protocol):
    """What is asked of an item of a data set: see `formats.in_place`."""

    @property
    def key(self) -> str:
        """Its name in the data set, the same at every reading; no two have the same."""
        ...

    @property
    def label(self) -> str:
        """Its class; "" where it has none."""
        ...

    @property
    def attributes(self) -> Mapping[str, str]:
        """Such as {"weather": "rainy"}."""
        ...


I = TypeVar("I", bound=Item)  # noqa: E741
_Held = list[tuple[int, int, I]]
"""Items with their ranks below 0, so that the first one of the heap is the one to go, and their places."""


def rank_of(seed: int, key: str) -> int:
    """The place of a key in an order that `seed` draws, from 0 to 2**64 - 1. Hangs on nothing but the two."""
    name = key.encode("utf-8", "surrogatepass")  # names of files may hold what UTF-8 has not
    return int.from_bytes(hashlib.blake2b(name, digest_size=8, key=str(seed).encode()).digest(), "big")


class ItemSelection(Generic[I], Iterator[I]):
    """The items that a plan takes, in the order in which they come. Goes through them once.

    Keeps those in memory that are drawn by number until all have been seen, and no others.
    """

    def __init__(self, items: Iterable[I], choose: ChoosePart) -> None:
        self._choose = choose
        self._missing = _Missing(choose)
        self._passed: Iterator[I] = self._drawn(items)

    def __next__(self) -> I:
        return next(self._passed)

    @property
    def report(self) -> tuple[str, ...]:
        """What of the plan's choice was not there, a sentence each; whole once all items have been gone through."""
        return self._missing.sentences()

    def _drawn(self, items: Iterable[I]) -> Iterator[I]:
        choose, fitting = self._choose, self._fitting(items)
        if choose.share is not None:
            most = round(choose.share * _RANKS)
            fitting = ((rank, item) for rank, item in fitting if rank < most)
        if choose.a_class is None and choose.number is None:
            yield from (self._missing.taken(item) for _, item in fitting)
            return
        held = list(self._of_each_class(fitting))
        if choose.number is not None:
            self._missing.before_number = len(held)
            held = sorted(held, reverse=True)[: choose.number]
        for _, _, item in sorted(held, key=lambda one: one[1]):
            yield self._missing.taken(item)

    def _of_each_class(self, fitting: Iterable[tuple[int, I]]) -> _Held[I]:
        """Those of the lowest ranks: of each class so many, or of all so many, or both."""
        most = self._choose.a_class or self._choose.number or 0
        class_of: Callable[[I], str] = (lambda item: item.label) if self._choose.a_class else lambda _item: ""
        heaps: dict[str, _Held[I]] = {}
        for place, (rank, item) in enumerate(fitting):
            label = class_of(item)
            if self._choose.a_class and not label:
                self._missing.without_label += 1
                continue
            heap = heaps.setdefault(label, [])
            if len(heap) < most:
                heappush(heap, (-rank, place, item))
            elif -rank > heap[0][0]:
                heappushpop(heap, (-rank, place, item))
        if self._choose.a_class:
            self._missing.of_class = {label: len(heap) for label, heap in heaps.items()}
        return [one for heap in heaps.values() for one in heap]

    def _fitting(self, items: Iterable[I]) -> Iterator[tuple[int, I]]:
        """Those that the plan does not leave out by name, each with its rank."""
        choose = self._choose
        classes, keys = frozenset(choose.classes or ()), frozenset(choose.keys or ())
        wanted = {name: frozenset(values) for name, values in choose.attributes.items()}
        for item in items:
            self._missing.seen(item)
            if classes and item.label not in classes:
                continue
            if keys and item.key not in keys:
                continue
            if all(item.attributes.get(name) in values for name, values in wanted.items()):
                yield rank_of(choose.seed, item.key), item


def chosen(items: Iterable[I], plan: BatchPlan) -> ItemSelection[I]:
    """The items that a plan takes: those of its classes, attributes and keys, and of these as many at random as it
    says, of each class and then of all. The same ones in whatever order they come.
    """
    return ItemSelection(items, plan.choose)


class _Missing:
    """Counts what went by, to tell what was not there."""

    def __init__(self, choose: ChoosePart) -> None:
        self._choose = choose
        self._labels: Counter[str] = Counter()
        self._wanted_labels = frozenset(choose.classes or ())
        self._keys = set(choose.keys or ())
        self._values: dict[str, Counter[str]] = {name: Counter() for name in choose.attributes}
        self._items = self._taken = 0
        self.without_label = 0
        self.before_number = 0
        self.of_class: dict[str, int] = {}

    def seen(self, item: Item) -> None:
        self._items += 1
        self._keys.discard(item.key)
        if item.label in self._wanted_labels or len(self._labels) < _SEEN:
            self._labels[item.label] += 1
        for name, counts in self._values.items():
            value = item.attributes.get(name, "")
            if value in self._choose.attributes[name] or len(counts) < _SEEN:
                counts[value] += 1

    def taken(self, item: I) -> I:
        self._taken += 1
        return item

    def sentences(self) -> tuple[str, ...]:
        """What was missing, the most telling first."""
        choose = self._choose
        said = [*self._classes(), *self._attributes()]
        if self._keys:
            said.append(f"Not in the data set: {count_of(len(self._keys), 'key')} of choose.keys: {_few(self._keys)}.")
        if self.without_label:
            left = count_of(self.without_label, "item")
            said.append(f"Left out, since choose.a_class asks for classes and they have none: {left}.")
        if choose.number is not None and self.before_number < choose.number:
            said.append(f"choose.number is {choose.number}, and {count_of(self.before_number, 'item')} fit the plan.")
        if not self._taken:
            said.append(f"No item is taken: of {count_of(self._items, 'item')} in the data set none fits the plan.")
        return tuple(said)

    def _classes(self) -> Iterator[str]:
        choose = self._choose
        absent = sorted(label for label in self._wanted_labels if not self._labels[label])
        if absent:
            known = [label for label in self._labels if self._labels[label] and label]
            near = f"; there are {nearest_first(absent[0], known)}" if known else "; no item has a label"
            yield f"Without an item: {count_of(len(absent), 'class')} of choose.classes: {_few(absent)}{near}."
        if choose.a_class is not None:
            short = {label: number for label, number in self.of_class.items() if number < choose.a_class}
            short |= {label: 0 for label in self._wanted_labels if label not in self.of_class and label not in absent}
            if short:
                told = [f"{label} ({number})" for label, number in short.items()]
                which = count_of(len(short), "class", "has")
                yield f"choose.a_class is {choose.a_class}, and {which} fewer items that fit the plan: {_few(told)}."

    def _attributes(self) -> Iterator[str]:
        for name, counts in self._values.items():
            absent = sorted(value for value in self._choose.attributes[name] if not counts[value])
            known = [value for value in counts if counts[value] and value]
            if absent:
                near = f"there are {nearest_first(absent[0], known)}" if known else "no item has this attribute"
                yield f"No item has choose.attributes.{name} = {_few(absent)}; {near}."


def _few(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - NAMED} more" if len(ordered) > NAMED else ""
    return ", ".join(ordered[:NAMED]) + more
