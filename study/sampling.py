"""How items are drawn: at random, or the same number from every stratum. Drawn again with the same seed, they are the
same.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=Hashable)
"""What is drawn: the numbers or names of images."""


def at_random(population: Sequence[T], number: int, seed: int) -> tuple[T, ...]:
    """Draw `wanted` (or all) without replacement, in random order. Raises ValueError unless wanted >= 1."""
    if number < 1:
        raise ValueError("Draw at least one image.")
    return tuple(_drawn("sample", seed).sample(list(population), min(number, len(population))))


def stratified(strata: Mapping[str, Sequence[T]], number: int, seed: int) -> tuple[T, ...]:
    """`wanted` in all, as equally many of each stratum as there are; a stratum that has too few gives all.

    Equal allocation: it makes the strata comparable, and it is no sample of the population as a whole. What does not
    divide goes to strata drawn at random. Something that lies in several strata is drawn once, for the first that gets
    it. Strata are told by name, so that their order does not matter. Raises ValueError unless wanted >= 1.
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
        # One of each in turn: after every round all strata that still have something have given equally many.
        for name in order:
            while left[name] and left[name][-1] in taken:
                left[name].pop()
            if left[name] and len(taken) < number:
                taken[left[name].pop()] = None
    return tuple(taken)


def _drawn(what: str, seed: int) -> random.Random:
    return random.Random(f"{what} {seed}")
