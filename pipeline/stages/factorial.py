"""Chooses the combinations of edits of a factorial experiment. Such an experiment measures the effect of each edit, and
the extra effect of two edits together.

An edit type is a factor. The unchanged words are its first level, and each edit of this type is a further level. If a
source has enough captions, they hold all combinations. Otherwise they hold the combinations that best tell main effects
and interactions of two factors apart. The information matrix of these combinations has the largest determinant
(D-optimality). They are found by exchange (Fedorov 1972, Theory of Optimal Experiments). A small prior in the matrix
allows fewer captions than effects (DuMouchel and Jones 1994, Technometrics 36). The seed decides among equally good
choices. Sources with other seeds get other combinations, so all sources together tell the effects apart.

The combination without an edit is part of each experiment but never of the result: the control set draws it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, product
from math import prod

import numpy as np

from core.figures import Floats
from core.types import Edit

_PRIOR = 1e-3
"""Small number added to the diagonal of the information matrix, so that the matrix can always be inverted."""
_PASSES = 10
"""Maximum number of passes. A pass exchanges each chosen combination for a better one, if there is one."""


def factorial(pools: Sequence[Sequence[Edit]], captions: int, seed: int) -> tuple[tuple[Edit, ...], ...]:
    """Return the edits of at most `captions` different captions. Captions with the fewest edits come first. Each edit
    type is a factor, and a caption has at most one edit of each type. `pools` has the edits by keyword in caption
    order. Effects are main effects and interactions of two factors. If there are more effects than captions, `seed`
    chooses edits to leave out, but each factor keeps at least one edit.
    """
    chance = random.Random(seed)
    factors = _factors(pools, captions, chance)
    levels = [len(edits) + 1 for edits in factors]
    if not factors:
        return ()
    chosen = [*product(*map(range, levels))][1:]
    if len(chosen) > captions:
        chosen = _fraction(levels, captions, chance)
    place = {edit: at for at, edit in enumerate(edit for pool in pools for edit in pool)}
    combos = [
        sorted((edits[level - 1] for edits, level in zip(factors, combo, strict=True) if level), key=lambda e: place[e])
        for combo in chosen
    ]
    return tuple(map(tuple, sorted(combos, key=len)))


def _factors(pools: Sequence[Sequence[Edit]], captions: int, chance: random.Random) -> list[list[Edit]]:
    """Return each factor's edits. While effects outnumber captions, the largest factor loses a random edit."""
    by_type: dict[str, list[Edit]] = {}
    for edit in (edit for pool in pools for edit in pool):
        by_type.setdefault(edit.edit_type, []).append(edit)
    factors = list(by_type.values())
    while _effects(factors) > captions and (most := max(map(len, factors))) > 1:
        longest = chance.choice([edits for edits in factors if len(edits) == most])
        longest.pop(chance.randrange(most))
    return factors


def _effects(factors: Sequence[Sequence[Edit]]) -> int:
    """Return the number of main effects and of interactions of two factors."""
    sizes = [len(edits) for edits in factors]
    return sum(sizes) + sum(prod(pair) for pair in combinations(sizes, 2))


def _fraction(levels: Sequence[int], captions: int, chance: random.Random) -> list[tuple[int, ...]]:
    """Return the best combinations of levels, one per caption. Level 0 is unchanged; at least one level is not 0."""
    candidates = [*product(*map(range, levels))][1:]
    chance.shuffle(candidates)  # equal ones are taken in this order
    rows = _rows([(0,) * len(levels), *candidates], levels)
    base, rows = rows[0], rows[1:]
    information = _PRIOR * np.eye(rows.shape[1]) + np.outer(base, base)
    chosen: list[int] = []
    for _ in range(captions):
        gain = np.einsum("ij,ij->i", rows @ np.linalg.inv(information), rows)
        gain[chosen] = -1.0
        chosen.append(int(np.argmax(gain.round(9))))
        information += np.outer(rows[chosen[-1]], rows[chosen[-1]])
    for _ in range(_PASSES):
        exchanged = False
        for at in range(captions):
            inverse = rows @ np.linalg.inv(information) @ rows.T
            gone, gain = chosen[at], inverse.diagonal()
            # The factor by which the determinant grows if `gone` is replaced.
            growth = (1 + gain) * (1 - gain[gone]) + inverse[gone] ** 2
            growth[chosen] = 0.0
            best = int(np.argmax(growth))
            if growth[best] > 1 + 1e-9:
                information += np.outer(rows[best], rows[best]) - np.outer(rows[gone], rows[gone])
                chosen[at], exchanged = best, True
        if not exchanged:
            break
    return [candidates[at] for at in chosen]


def _rows(combos: Sequence[Sequence[int]], levels: Sequence[int]) -> Floats:
    """Return the design matrix of combinations: a column of ones, main effects, and interactions of two factors. The
    columns of a factor are centred over its levels.
    """
    mains = []
    for factor, number in enumerate(levels):
        centred = np.linalg.qr(np.eye(number) - 1 / number)[0][:, : number - 1] * np.sqrt(number)
        mains.append(centred[[combo[factor] for combo in combos]])
    pairs = [(a[:, :, None] * b[:, None, :]).reshape(len(combos), -1) for a, b in combinations(mains, 2)]
    return np.concatenate([np.ones((len(combos), 1)), *mains, *pairs], axis=1)
