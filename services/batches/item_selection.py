"""Selects the items of a data set that a plan takes. Pure: reads keys, labels and attributes, and opens no image.

An item's rank in the random order is a hash of the seed and its key, and the items with the lowest ranks are taken. So
the selection does not depend on the order of the items. A new or missing item changes at most one other selected item.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from heapq import heappush, heappushpop

from core.batches import Item
from core.words import count_of, few_names
from services.batches.plan_file import ChoosePart, nearest_first

_SEEN = 1000
"""Maximum number of class names, and of values of each attribute, to remember for the report."""
_RANKS = 2**64


def rank_of(seed: int, key: str) -> int:
    """Return an item's rank in the random order of `seed`, 0 to 2**64 - 1. Only seed and key determine the rank."""
    name = key.encode("utf-8", "surrogatepass")  # file names may have bytes that are not UTF-8
    return int.from_bytes(hashlib.blake2b(name, digest_size=8, key=str(seed).encode()).digest(), "big")


class ItemSelection(Iterator[Item]):
    """Iterates over the items that a plan takes, in their original order. Reads `items` once.

    Only items with the plan's classes, attributes and keys are taken. Of these, the plan may take a share, then at most
    a fixed number of each class, then at most a fixed number in all. The items are chosen at random. If a number is
    limited, the selected items stay in memory until all items have been read.
    """

    def __init__(self, items: Iterable[Item], choose: ChoosePart) -> None:
        self._choose = choose
        self._classes, self._missing_keys = frozenset(choose.classes or ()), set(choose.keys or ())
        self._labels = Counter[str]()
        self._values = {name: Counter[str]() for name in choose.attributes}
        self._seen = self._taken = self._without_label = self._before_number = 0
        self._of_class: dict[str, int] = {}
        self._passed = self._drawn(items)

    def __next__(self) -> Item:
        item = next(self._passed)
        self._taken += 1
        return item

    @property
    def report(self) -> tuple[str, ...]:
        """Return sentences on items that the plan asks for but the data set lacks. Complete after the last item."""
        choose, sentences = self._choose, [*self._about_classes(), *self._about_attributes()]
        if keys := self._missing_keys:
            sentences.append(
                f"Not in the data set: {count_of(len(keys), 'key')} of choose.keys: {few_names(sorted(keys))}."
            )
        if self._without_label:
            left = count_of(self._without_label, "item")
            sentences.append(f"Left out, since choose.a_class needs a class and they have no label: {left}.")
        if choose.number is not None and self._before_number < choose.number:
            fitting = count_of(self._before_number, "item")
            sentences.append(f"choose.number is {choose.number}, and {fitting} fit the plan.")
        if not self._taken:
            sentences.append(f"No item is taken: of {count_of(self._seen, 'item')} in the data set none fits the plan.")
        return tuple(sentences)

    def _drawn(self, items: Iterable[Item]) -> Iterator[Item]:
        choose, fitting = self._choose, self._fitting(items)
        if choose.share is not None:
            most = round(choose.share * _RANKS)
            fitting = ((rank, item) for rank, item in fitting if rank < most)
        if choose.a_class is None and choose.number is None:
            yield from (item for _, item in fitting)
            return
        drawn = self._of_lowest_ranks(fitting)
        if choose.number is not None:
            self._before_number = len(drawn)
            drawn = sorted(drawn, reverse=True)[: choose.number]
        for _, _, item in sorted(drawn, key=lambda one: one[1]):
            yield item

    def _of_lowest_ranks(self, fitting: Iterable[tuple[int, Item]]) -> list[tuple[int, int, Item]]:
        """Return the items with the lowest ranks, each as a tuple (negative rank, position in `fitting`, item). The
        plan's `a_class` limits the items of each class. Without `a_class`, `number` limits the items of all classes.
        """
        a_class = self._choose.a_class
        most = a_class or self._choose.number or 0
        heaps: dict[str, list[tuple[int, int, Item]]] = {}
        """Heaps of items by class. The first item of a heap is the next to drop."""
        for place, (rank, item) in enumerate(fitting):
            if a_class and not item.label:
                self._without_label += 1
                continue
            heap = heaps.setdefault(item.label if a_class else "", [])
            if len(heap) < most:
                heappush(heap, (-rank, place, item))
            elif -rank > heap[0][0]:
                heappushpop(heap, (-rank, place, item))
        if a_class:
            self._of_class = {label: len(heap) for label, heap in heaps.items()}
        return [one for heap in heaps.values() for one in heap]

    def _fitting(self, items: Iterable[Item]) -> Iterator[tuple[int, Item]]:
        """Yield (rank, item) of each item with the plan's classes, keys and attributes. Count all items read."""
        choose = self._choose
        keys = frozenset(choose.keys or ())
        allowed = {name: frozenset(values) for name, values in choose.attributes.items()}
        for item in items:
            self._seen += 1
            self._missing_keys.discard(item.key)
            if item.label in self._classes or len(self._labels) < _SEEN:
                self._labels[item.label] += 1
            for name, counts in self._values.items():
                value = item.attributes.get(name, "")
                if value in allowed[name] or len(counts) < _SEEN:
                    counts[value] += 1
            if self._classes and item.label not in self._classes:
                continue
            if keys and item.key not in keys:
                continue
            if all(item.attributes.get(name) in values for name, values in allowed.items()):
                yield rank_of(choose.seed, item.key), item

    def _about_classes(self) -> Iterator[str]:
        a_class = self._choose.a_class
        absent = sorted(label for label in self._classes if not self._labels[label])
        if absent:
            known = [label for label in self._labels if self._labels[label] and label]
            near = f"; there are {nearest_first(absent[0], known)}" if known else "; no item has a label"
            yield f"Without an item: {count_of(len(absent), 'class')} of choose.classes: {few_names(absent)}{near}."
        if a_class is not None:
            short = {label: number for label, number in self._of_class.items() if number < a_class}
            short |= {label: 0 for label in self._classes if label not in self._of_class and label not in absent}
            if short:
                numbers = few_names(sorted(f"{label} ({number})" for label, number in short.items()))
                which = count_of(len(short), "class", "has")
                yield f"choose.a_class is {a_class}, and {which} fewer items that fit the plan: {numbers}."

    def _about_attributes(self) -> Iterator[str]:
        for name, counts in self._values.items():
            absent = sorted(value for value in self._choose.attributes[name] if not counts[value])
            known = [value for value in counts if counts[value] and value]
            if absent:
                near = f"there are {nearest_first(absent[0], known)}" if known else "no item has this attribute"
                yield f"No item has choose.attributes.{name} = {few_names(absent)}; {near}."
