"""Tests for the benchmark of the time that a batch takes outside its models: each part runs and starts on time."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.beside import almost_done
from benchmarks.runs_of_batches import Run, Stamp
from services.batches.engine import Engine
from services.batches.service import BatchService
from tests.support.batch_workers import here
from tests.support.workspaces import workspace_in


def test_a_batch_that_is_almost_done_goes_on_with_what_is_left(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        number, service = almost_done(workspace, 16, left=8), BatchService(workspace)
        before = workspace.batches.counts(number)
        assert {state: one.number for state, one in before["images"].items()} == {"done": 16, "planned": 8}
        assert before["captions"]["done"].number == before["language"]["done"].number == 24
        assert Engine(workspace, number, service.order(number), here).run() == "done"
        assert service.status(number).passes[-1].number("done") == 24
        assert not workspace.batches.failures(number)


def test_seconds_are_those_of_the_first_so_many_through_the_passes() -> None:
    run = Run(stamps={"captions": [Stamp(100, 10.0, 1, 1), Stamp(150, 15.0, 1, 1)], "images": [Stamp(104, 52.0, 1, 1)]})
    assert run.each(100, ("captions", "images")) == pytest.approx(0.1 + 0.5)
    assert run.each(1000, ("captions", "images")) == pytest.approx(0.1 + 0.5), "at the end, where there are not so many"
    assert run.stamp("captions", 120).done == 150
