"""`python -m benchmarks.reference`: what it compares and says, tried once at its smallest size."""

from __future__ import annotations

import pytest

from benchmarks import reference
from benchmarks.figures import Comparison, Figure, comparisons, reported
from tests.support.demo_server import demo_models


def test_a_comparison_says_whether_it_was_kept_and_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    better = Comparison("ours by theirs", (3.5, 1.5, 2.0), (1.8, 1.9, 1.7), least=1.5, aim=3, words="12 of each.")
    full = Comparison("a batch", (0.6,), most=0.5, because="the cores are full")
    assert comparisons([better, full]).splitlines()[2:] == [
        "| ours by theirs | 2.00 | 1.50 to 3.50 | 1.80 | 3 | at least 1.5, aim 3 | kept, **aim missed** |",
        "| a batch | 0.60 | 0.60 to 0.60 |  | 1 | at most 0.5 | the cores are full |",
        "",
        "ours by theirs: 12 of each.",
    ]
    assert reported([Figure("a page", (5.0,), 9.0), better, full]) == 0
    told = capsys.readouterr().out
    assert "| a page | 5 ms |" in told and "| a batch | 0.60 |" in told
    assert reported([Comparison("a batch", (0.6,), most=0.5)]) == 1
    assert "| at most 0.5 | **missed** |" in capsys.readouterr().out
    assert reported([Comparison("ours by theirs", (1.4,), least=1.5)]) == 1


@pytest.mark.demo
@pytest.mark.slow
def test_both_ways_make_test_cases_of_a_sample() -> None:
    """The real embedded models: all that it does, once."""
    beside, without_checks, batch, edited = reference.measure(1, ("bird-on-a-twig",), 2, 2, demo_models(), 0)
    assert "2 test cases of each way" in beside.words, "as many by each"
    assert all(part in beside.words for part in ("captions", "replies", "drawing", "checks"))
    calls = float(beside.words.rpartition("; ")[2].rpartition(", ")[2].partition(" calls each")[0])
    assert calls >= 3, "its language model is asked for keywords, alternatives and the caption of each"
    assert without_checks.ratios[0] > beside.ratios[0] > 0 and beside.of_cpu[0] > 0
    assert "a batch of 2" in batch.what and len(batch.ratios) == len(batch.of_cpu) == 1
    assert "of the rate of multiplied matrices" in batch.words and "cores busy" in batch.words
    assert edited.held and edited.words.startswith("1 of 7 calls (1 of 2 images)"), "the edited one is drawn, no more"
