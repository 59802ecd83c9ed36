"""The program that kills a thousand times, with two kills of most kinds of work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.soak import kills
from tests.support.killed_work import KINDS


def test_of_what_was_acknowledged_nothing_is_lost_and_nothing_twice(tmp_path: Path) -> None:
    asked = ["--kills", "18", "--out", str(tmp_path / "kills.md"), "--state", str(tmp_path / "kills.json")]
    assert kills.main(asked) == 0, (tmp_path / "kills.md").read_text(encoding="utf-8")
    counted = (tmp_path / "kills.json").read_text(encoding="utf-8")
    assert {name: one["kills"] > 0 for name, one in json.loads(counted).items()} == {kind.name: True for kind in KINDS}
    assert kills.main(asked) == 0
    assert (tmp_path / "kills.json").read_text(encoding="utf-8") == counted, "what was done is not done again"


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
