"""`python -m experiments.coverage` simulates worlds and counts how often intervals hold the truth."""

from __future__ import annotations

import pytest

from experiments.coverage import intervals, of_factors, of_gate, of_score, of_training, of_votes
from experiments.coverage.__main__ import main


def test_the_report_measures_how_often_intervals_cover(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two worlds. The tables of votes and of trainings are left out, since other tests cover them."""
    monkeypatch.setattr(
        intervals, "worlds", lambda: [intervals.World(30, "skewed", error, 0.3) for error in (0.02, 0.1)]
    )
    for module in (of_votes, of_score, of_training):
        monkeypatch.setattr(module, "measurements", lambda _: [])
    monkeypatch.setattr(of_gate, "WORLDS", [of_gate.GateWorld(100, 1, 0.0, 0.0)])
    monkeypatch.setattr(of_factors, "WORLDS", [of_factors.FactorWorld(50, 2, 1, 3, 0.1, False)])
    assert main(["--repetitions", "60"]) == 0
    text = capsys.readouterr().out
    for figure in intervals.FIGURES:
        assert f"## {figure[0].upper()}{figure[1:]}\n" in text
    assert "| 30 | skewed | 0.3 | " in text and text.count("Of 2 worlds") == len(intervals.FIGURES)
    assert "| 100 | 1 | 0 points | 0 points |" in text
    assert "| 50 | 2 | 1 | 3 | 10 % | none planted |" in text
    with pytest.raises(SystemExit):
        main(["--repetitions", "0"])
    assert "say a number from 1 to 100,000" in capsys.readouterr().err
