"""The benchmark of lots measures both ways, and the parts of each."""

from __future__ import annotations

import pytest

from benchmarks import lots
from tests.support.demo_server import demo_models


@pytest.mark.demo
@pytest.mark.slow
def test_both_ways_and_several_processes_make_test_cases() -> None:
    inside, beside = lots.measure(1, 2, 2, demo_models(), 0)
    for figure in (inside, beside):
        assert len(figure.ratios) == len(figure.of_cpu) == 1 and figure.ratios[0] > 0
    for part in ("captions", "replies", "control images", "drawing", "of which decoding", "checks", "PNG files"):
        assert inside.words.count(part) >= 2, "of each way"
    assert "2 processes" in beside.words
