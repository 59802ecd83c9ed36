"""Workers that begin before there is an order: they are taken, they end, and one that dies is replaced."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest

from services.batches import planning, service
from services.batches import worker_start as recruits
from services.batches.pools import ProcessPool
from services.batches.worker_start import recruited
from tests.services.batches.test_cluster import plan_of, run
from tests.support.batch_workers import here, scripted

PATIENCE = 60


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lots of two, so that a few sources are several lots."""
    monkeypatch.setattr(planning, "SOURCES_OF_A_LOT", 2)
    monkeypatch.setattr(service, "AT_ONCE", 2)


def test_what_is_imported_ahead_is_there() -> None:
    for name in recruits.AHEAD:
        command = f"import importlib.util; assert importlib.util.find_spec({name!r}), {name!r}"
        assert subprocess.run([sys.executable, "-c", command], check=False).returncode == 0


@pytest.mark.slow
def test_one_that_waits_is_the_first_worker_and_one_that_has_died_is_replaced(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 6)
    expected = run(plan, tmp_path / "here", here)
    waiting = [recruited()]
    (first,) = (one.process.pid for one in waiting)
    pools: list[ProcessPool] = []

    def pool(order: object) -> ProcessPool:
        pools.append(ProcessPool(order, 2, scripted, waiting))  # type: ignore[arg-type]
        seen.append(pools[-1].processes)
        return pools[-1]

    seen: list[tuple[int, ...]] = []
    assert run(plan, tmp_path / "waited", pool) == expected
    assert not waiting and first in seen[0] and all(first not in later for later in seen[1:])

    waiting = [recruited()]
    waiting[0].process.kill()
    waiting[0].process.join()
    again = partial(ProcessPool, workers=2, make=scripted, waiting=waiting)
    assert run(plan, tmp_path / "died", again) == expected


@pytest.mark.slow
def test_one_without_an_order_ends_when_it_is_let_go_and_when_whoever_began_it_does() -> None:
    recruit = recruited()
    held = psutil.Process(recruit.process.pid)
    recruit.close()
    assert not psutil.pid_exists(held.pid) or held.status() == psutil.STATUS_ZOMBIE

    code = (
        "from services.batches.worker_start import recruited\n"
        "if __name__ == '__main__':\n"
        "    print(recruited().process.pid, flush=True)\n"
        "    input()\n"
    )
    command = [sys.executable, "-c", code]
    starter = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert starter.stdout is not None
        orphan = psutil.Process(int(starter.stdout.readline()))
    finally:
        starter.kill()
        starter.wait()
    assert not psutil.wait_procs([orphan], timeout=PATIENCE)[1]
