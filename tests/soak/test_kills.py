"""Test the program that kills a thousand times, with two kills of most kinds of work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak import kills
from tests.support.killed_work import KINDS


def test_of_what_was_acknowledged_nothing_is_lost_and_nothing_twice(tmp_path: Path) -> None:
    asked = ["--kills", "18", "--out", str(tmp_path / "kills.md"), "--state", str(tmp_path / "kills.json")]
    assert kills.main(asked) == 0, (tmp_path / "kills.md").read_text(encoding="utf-8")
    told = (tmp_path / "kills.md").read_text(encoding="utf-8")
    assert "nothing was lost and nothing is there twice.** All else was as it should be." in told
    assert all(f"\n| {kind.name} | " in told for kind in KINDS) and not (tmp_path / "kills.json").exists()


def test_it_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, asked = KINDS[1], ["--kills", "25", "--out", str(tmp_path / "kills.md"), "--state", str(tmp_path / "state")]
    monkeypatch.setattr(kills, "KINDS", (one,))
    real, killed = kills.Kills.kill, list[int]()

    def kill(self: kills.Kills) -> None:
        if len(killed) == 2:
            killed.append(0)
            raise KeyboardInterrupt
        real(self)
        killed.append(1)

    monkeypatch.setattr(kills.Kills, "kill", kill)
    with pytest.raises(KeyboardInterrupt):
        kills.main(asked)
    assert json.loads((tmp_path / "state").read_text(encoding="utf-8"))[one.name]["kills"] == 2
    assert kills.main(asked) == 0 and sum(killed) == 3
    assert f"| {one.name} | 3 |" in (tmp_path / "kills.md").read_text(encoding="utf-8")


def test_what_is_lost_or_there_twice_stands_in_the_report(tmp_path: Path) -> None:
    counts = {"votes": {"kills": 1, "lost": ["abc saved yes"]}, "imports": {"kills": 1, "twice": ["bird, 2 times"]}}
    done = {kind.name: {"kills": 1} for kind in KINDS} | counts
    (tmp_path / "kills.json").write_text(json.dumps(done), encoding="utf-8")
    asked = ["--kills", "1", "--out", str(tmp_path / "kills.md"), "--state", str(tmp_path / "kills.json")]
    assert kills.main(asked) == 1
    told = (tmp_path / "kills.md").read_text(encoding="utf-8")
    assert "1 was lost and 1 is there twice" in told and "- votes: abc saved yes" in told
    assert "- imports: bird, 2 times" in told


@pytest.mark.parametrize("number", [100, 1000, 2000])
def test_the_shares_of_all_kinds_are_all_kills(number: int) -> None:
    assert sum(round(kind.share * number) for kind in KINDS) == number
