"""Quiz items made of source images, as control items are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from core.studies import NewItem, Rules
from study.control_items import IsLeftOut, made_controls


def made_quiz(
    items: Sequence[NewItem],
    rules: Rules,
    controls: Sequence[NewItem] = (),
    left_out: IsLeftOut = lambda item: False,
    apart: frozenset[str] = frozenset(),
) -> tuple[NewItem, ...]:
    """As many quiz items as the rules ask for, made of the source images of `items` as `made_controls` does.

    Right and wrong ones in equal numbers where there are enough. Images that are a control item already come last: who
    took the quiz would know the answer. Fewer come back, or none, where there is nothing to make them of. In place of
    one that is `left_out` another one is made, and none shows what is `apart`. Drawn with the seed of the rules.
    """
    used = {item.image_sha for item in controls}
    could_be = (replace(item, kind="quiz") for item in all_made(items, rules, rules.seed + 1, apart))
    made = sorted((item for item in could_be if not left_out(item)), key=lambda item: item.image_sha in used)
    return chosen_of(made, rules.eligibility.quiz, f"quiz {rules.seed}")


def all_made(
    items: Sequence[NewItem],
    rules: Rules,
    seed: int,
    apart: frozenset[str] = frozenset(),
    there: Sequence[NewItem] = (),
) -> tuple[NewItem, ...]:
    """Make every source image a control item, right and wrong, with this seed, but none of what is `apart`."""
    number = sum(item.kind == "item" for item in items)
    if not number:
        return ()
    # Twice what there are sources, and more: then every source is there, right and wrong.
    most = 2 * number + 2
    everything = replace(rules, seed=seed, controls=replace(rules.controls, share=most / (number + most)))
    return made_controls(items, everything, there=there, apart=apart)


def chosen_of(made: Sequence[NewItem], number: int, words: str) -> tuple[NewItem, ...]:
    """Choose so many, the first ones first, right and wrong alike if possible, in an order drawn with `words`."""
    right_ones = [item for item in made if "no" not in item.expected.values()]
    wrong_ones = [item for item in made if "no" in item.expected.values()]
    chosen: list[NewItem] = []
    shown: set[str] = set()
    while len(chosen) < number and (right_ones or wrong_ones):
        turn = right_ones if right_ones and (len(chosen) % 2 == 0 or not wrong_ones) else wrong_ones
        # An image that was there with the other answer is taken only when nothing else is left.
        fresh = next((item for item in turn if item.image_sha not in shown), turn[0])
        turn.remove(fresh)
        shown.add(fresh.image_sha)
        chosen.append(fresh)
    random.Random(words).shuffle(chosen)
    return tuple(chosen)
