"""Draw items at random, or the same number from every stratum. The same seed draws the same items.\n"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
"""Type of the drawn things: numbers or names of images."""


def at_random(population: Sequence[T], number: int, seed: int) -> tuple[T, ...]:
    """Draw `number` things, or all if fewer, in random order, each once. Raises ValueError unless number >= 1."""
    if number < 1:
        raise ValueError("Draw at least one image.")
    return tuple(_drawn("sample", seed).sample(list(population), min(number, len(population))))


def stratified(strata: Mapping[str, Sequence[T]], number: int, seed: int) -> tuple[T, ...]:
    """Draw `number` in total, equally many from each stratum; a stratum with too few gives all.

    Equal allocation makes the strata comparable, but is no sample of the whole population. The remainder goes to strata
    drawn at random. Something in several strata is drawn once, for the first that gets it. Strata are identified by
    name, so that their order does not matter. Raises ValueError unless number >= 1.
    """
    if number < 1:
        raise ValueError("Draw at least one image.")
    drawn = _drawn("strata", seed)
    left = {name: drawn.sample(list(strata[name]), len(strata[name])) for name in sorted(strata)}
    taken: dict[T, None] = {}
    while len(taken) < number:
        order = [name for name in left if left[name]]
        if not order:
            break
        drawn.shuffle(order)
        # One of each in turn: after every round all strata with something left have given equally many.
        for name in order:
            while left[name] and left[name][-1] in taken:
                left[name].pop()
            if left[name] and len(taken) < number:
                taken[left[name].pop()] = None
    return tuple(taken)


def _drawn(what: str, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}")
