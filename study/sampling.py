"""Draw items at random, or equally many from each stratum (group of items). The same seed draws the same items."""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def at_random(population: Sequence[T], number: int, seed: int) -> tuple[T, ...]:
    """Draw `number` things without repetition, or all if fewer, in random order.

    Raises ValueError unless number >= 1.
    """
    if number < 1:
        raise ValueError("Draw at least one image.")
    return tuple(random.Random(f"sample {seed}").sample(list(population), min(number, len(population))))


def stratified(strata: Mapping[str, Sequence[T]], number: int, seed: int) -> tuple[T, ...]:
    """Draw `number` things in total, equally many from each stratum. A stratum with too few things gives all.

    Equal numbers make the strata comparable, but the result is no sample of the whole population. If the number cannot
    be divided, strata drawn at random give one more. A thing in several strata is drawn only once. The order of the
    strata does not matter, as their names are sorted. Raises ValueError unless number >= 1.
    """
    if number < 1:
        raise ValueError("Draw at least one image.")
    drawn = random.Random(f"strata {seed}")
    left = {name: drawn.sample(list(strata[name]), len(strata[name])) for name in sorted(strata)}
    taken: dict[T, None] = {}
    while len(taken) < number:
        order = [name for name in left if left[name]]
        if not order:
            break
        drawn.shuffle(order)
        # Each stratum gives one thing in turn, so all strata with things left have given equally many.
        for name in order:
            while left[name] and left[name][-1] in taken:
                left[name].pop()
            if left[name] and len(taken) < number:
                taken[left[name].pop()] = None
    return tuple(taken)
