"""Tests for `python -m benchmarks.reference`: its comparisons and its report, run once at the smallest size."""

from __future__ import annotations

import pytest

from benchmarks.figures import Comparison, Figure, comparisons, reported


def test_a_comparison_says_whether_it_was_kept_and_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    better = Comparison("ours by theirs", (3.5, 1.5, 2.0), (1.8, 1.9, 1.7), least=1.5, aim=3, words="12 of each.")
    full = Comparison("a batch", (0.6,), most=0.5, because="the cores are full")
    longer = Comparison("a run", (1.07,), most=1.1, aim=1.05)
    assert comparisons([better, full, longer]).splitlines()[2:] == [
        "| ours by theirs | 2.00 | 1.50 to 3.50 | 1.80 | 3 | at least 1.5, aim 3 | kept, **aim missed** |",
        "| a batch | 0.60 | 0.60 to 0.60 |  | 1 | at most 0.5 | the cores are full |",
        "| a run | 1.07 | 1.07 to 1.07 |  | 1 | at most 1.1, aim 1.05 | kept, **aim missed** |",
        "",
        "ours by theirs: 12 of each.",
    ]
    assert reported([Figure("a page", (5.0,), 9.0), better, full]) == 0
    told = capsys.readouterr().out
    assert "| a page | 5 ms |" in told and "| a batch | 0.60 |" in told
    assert reported([Comparison("a batch", (0.6,), most=0.5)]) == 1
    assert "| at most 0.5 | **missed** |" in capsys.readouterr().out
    assert reported([Comparison("ours by theirs", (1.4,), least=1.5)]) == 1
