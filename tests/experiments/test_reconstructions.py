"""The report on models under test on reconstructions: its figures, and the goals met and missed."""

from __future__ import annotations

import pytest

from experiments.reconstructions import report

pytestmark = [pytest.mark.slow]


def line(number: int, original: float, corrected: float, uncorrected: float) -> dict[str, object]:
    accuracy = {"original": original, "corrected": corrected, "uncorrected": uncorrected}
    return {"number": number, "task": "segmentation" if number % 2 else "classification", "accuracy": accuracy}


def test_a_goal_is_shown_by_the_interval_met_by_the_figure_and_else_missed() -> None:
    lines = [line(number, 0.9, 0.9, 0.903 if number % 2 else 0.89) for number in range(4000)]
    told = report([*lines, {"number": 4000, "task": "classification"}])
    rows = {row.split(" | ")[0].strip("| "): row.rsplit(" | ", 1)[1].strip(" |") for row in told.splitlines()[4:8]}
    assert list(rows.values()) == ["shown", "missed", "shown", "shown"], told
    assert "| classification, label right, uncorrected | 2000 | 90.0 % (" in told
    assert "1 of 4001 sources were refused and are left out." in told
    few = report([line(number, 0.9, 0.9, 0.9) for number in range(40)])
    assert few.count(" | met |") == 2, "so few labels show nothing"
