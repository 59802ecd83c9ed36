"""The combinations of a factorial experiment: which edits come together, and what its images can tell apart."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from core.settings import CounterfactualSettings
from core.types import Alternative, Alternatives, Caption, Edit, EditType, KeywordAlternatives
from pipeline.stages.counterfactuals import choose_edits
from pipeline.stages.factorial import factorial

TYPES: tuple[EditType, ...] = ("weather", "time of day", "attribute", "background", "object")


def pools(*sizes: int) -> list[list[Edit]]:
    """Return this number of alternatives for each factor."""
    return [[Edit(f"old {at}", f"{at}.{number}", TYPES[at]) for number in range(size)] for at, size in enumerate(sizes)]


def rank_of(designs: list[tuple[tuple[Edit, ...], ...]], factors: int) -> int:
    """Return how many main effects and interactions the images tell apart, each source with its unchanged image."""
    rows = []
    for design in designs:
        changed = np.array([[any(e.edit_type == name for e in edits) for name in TYPES[:factors]] for edits in design])
        changed = np.vstack([np.zeros(factors), changed])
        pairs = [changed[:, a] * changed[:, b] for a, b in combinations(range(factors), 2)]
        columns = np.column_stack([changed, *pairs])
        rows.append(columns - columns.mean(axis=0))
    return int(np.linalg.matrix_rank(np.concatenate(rows)))


def test_few_factors_get_all_combinations_but_the_unchanged_one() -> None:
    found = factorial(pools(1, 1, 1), 7, seed=3)
    alternatives = [{edit.alternative for edit in edits} for edits in found]
    assert len(found) == 7 and all(alternatives) and len({frozenset(one) for one in alternatives}) == 7
    assert [len(edits) for edits in found] == [1, 1, 1, 2, 2, 2, 3]
    assert {frozenset(e.alternative for e in edits) for edits in factorial(pools(2, 2), 8, 0)} == {
        frozenset(filter(None, pair)) for pair in product(("", "0.0", "0.1"), ("", "1.0", "1.1"))
    } - {frozenset()}


@pytest.mark.parametrize(("factors", "captions"), [(4, 10), (4, 12), (5, 15), (5, 20)])
def test_a_fraction_with_as_many_captions_as_effects_tells_all_of_them_apart_in_each_source(
    factors: int, captions: int
) -> None:
    effects = factors + factors * (factors - 1) // 2
    for seed in range(5):
        design = factorial(pools(*[1] * factors), captions, seed)
        assert len(set(design)) == len(design) == captions
        assert rank_of([design], factors) == effects


def test_with_fewer_captions_other_sources_get_other_fractions_and_all_tell_the_effects_apart() -> None:
    designs = [factorial(pools(1, 1, 1, 1), 4, seed) for seed in range(12)]
    assert all(len(design) == 4 for design in designs) and len(set(designs)) > 3
    assert rank_of(designs, 4) == 10
    often = np.array([sum(e.edit_type == name for d in designs for edits in d for e in edits) for name in TYPES[:4]])
    assert often.max() < 1.5 * often.min(), "each factor is changed about as often"
    assert designs[0] == factorial(pools(1, 1, 1, 1), 4, 0), "a seed gives one design"


def test_a_factor_has_as_many_alternatives_as_the_captions_can_tell_apart() -> None:
    designs = [factorial(pools(4, 4, 4), 7, seed) for seed in range(20)]
    for design in designs:
        assert all(len({e.alternative for edits in design for e in edits if e.edit_type == name}) == 1
                   for name in TYPES[:3])  # fmt: skip
    used = {e.alternative for design in designs for edits in design for e in edits}
    assert used == {f"{factor}.{number}" for factor in range(3) for number in range(4)}, "sources differ in theirs"


def test_the_stage_changes_one_keyword_of_an_edit_type_at_once_in_the_order_of_the_caption() -> None:
    def item(keyword: str, edit_type: EditType, *texts: str) -> KeywordAlternatives:
        return KeywordAlternatives(keyword, edit_type, tuple(Alternative(text) for text in texts))

    alternatives = Alternatives(
        (item("blue", "attribute", "green"), item("sunny", "weather", "rainy"), item("red", "attribute", "white"))
    )
    caption = Caption("A red bird in sunny weather. The twig is blue.")
    settings = CounterfactualSettings(combinations="factorial", captions=8)
    found = choose_edits(caption, alternatives, settings, 0)
    words = [tuple(edit.alternative for edit in edits) for edits in found]
    assert sorted(words) == [("green",), ("rainy",), ("rainy", "green"), ("white",), ("white", "rainy")]
    assert choose_edits(caption, Alternatives(()), settings, 0) == ()
