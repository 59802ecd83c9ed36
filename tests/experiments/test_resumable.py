"""A stopped measurement resumes with the items that have no result yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.resumable import measure_each

SQUARES = {(number,): number for number in range(4)}


def test_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    results, asked = tmp_path / "results.jsonl", list[int]()

    def measure(number: int) -> dict[str, Any]:
        if number == 2 and len(asked) == 2:
            raise KeyboardInterrupt
        asked.append(number)
        return {"number": number, "square": number**2}

    with pytest.raises(KeyboardInterrupt):
        measure_each(SQUARES, measure, results)
    asked.append(-1)
    lines = measure_each(SQUARES, measure, results)
    assert asked == [0, 1, -1, 2, 3]
    assert [line["square"] for line in lines] == [0, 1, 4, 9]
    assert len(results.read_text().splitlines()) == 4


def test_keeps_nothing_without_a_file() -> None:
    assert [line["number"] for line in measure_each(SQUARES, lambda number: {"number": number}, None)] == [0, 1, 2, 3]
