"""Workers with helpers: the same images, whoever is killed; what a lot does to the lots beside it."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from core.batches import Done
from core.errors import UserError
from services.batches import planning, service
from services.batches.engine import Told
from services.batches.io_workers import HelperDied, Helpers, Unread
from services.batches.plan_file import read_plan
from services.batches.pools import Does, InTurn, ProcessPool, lost
from services.batches.service import BatchService
from services.batches.work import Lot, Order, Piece
from storage.workspace import Workspace
from tests.services.batches.test_cluster import images, plan_of, run
from tests.support.batch_workers import Poisoned, here, scripted
from tests.support.workspaces import workspace_in

SOURCES = 12


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lots of two, so that a few sources are several lots."""
    monkeypatch.setattr(planning, "SOURCES_OF_A_LOT", 2)
    monkeypatch.setattr(service, "AT_ONCE", 2)


def helped(
    helpers: int, kept: list[ProcessPool], make: Callable[[Order], Does] = scripted
) -> Callable[..., ProcessPool]:
    """Makes one worker with so many helpers, and keeps it."""

    def pool(order: Order) -> ProcessPool:
        kept.append(ProcessPool(replace(order, helpers=helpers), 1, make))
        return kept[-1]

    return pool


def helpers_of(pool: ProcessPool) -> list[psutil.Process]:
    """The helpers that the worker of a pool has now."""
    (worker,) = pool.processes
    found = psutil.Process(worker).children()
    return [one for one in found if "resource_tracker" not in " ".join(one.cmdline())]


@pytest.mark.slow
def test_helpers_make_the_same_images_and_end_with_their_worker(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SOURCES)
    expected = run(plan, tmp_path / "here", here)
    assert len(expected) == SOURCES
    for number in (1, 2):
        pools: list[ProcessPool] = []
        seen: set[psutil.Process] = set()

        def look(told: Told, pools: list[ProcessPool] = pools, seen: set[psutil.Process] = seen) -> None:
            seen.update(helpers_of(pools[-1]))

        assert run(plan, tmp_path / str(number), helped(number, pools), look) == expected
        assert len(seen) == number * len(pools)
        assert not psutil.wait_procs(seen, timeout=60)[1]
        assert not list((tmp_path / str(number) / "images").glob(".*")), "no half file"


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["helper", "worker"])
def test_when_a_helper_or_its_worker_is_killed_nothing_is_lost(tmp_path: Path, victim: str) -> None:
    plan = plan_of(tmp_path, SOURCES)
    pools: list[ProcessPool] = []
    killed: list[psutil.Process] = []

    def kill(told: Told) -> None:
        stage = len(pools)
        if stage in (1, 3) and len(killed) < stage:  # once while sources are read, and once while images are saved
            found = helpers_of(pools[-1])
            killed.extend(found)
            os.kill(found[0].pid if victim == "helper" else pools[-1].processes[0], signal.SIGKILL)

    made = run(plan, tmp_path / "killed", helped(2, pools), kill)
    assert made == run(plan, tmp_path / "here", here)
    assert len(killed) == 4
    assert not psutil.wait_procs(killed, timeout=60)[1], "helpers end with their worker"


@pytest.mark.slow
def test_what_kills_its_worker_is_set_aside_alone_though_two_lots_are_with_it(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, SOURCES)
    made = run(plan, tmp_path / "workspace", helped(1, [], Poisoned))
    assert len(made) == SOURCES - 1
    with workspace_in(tmp_path / "workspace") as opened:
        (failure,) = opened.batches.failures(1)
    assert (failure.number, failure.stage) == (1, "captions")
    assert failure.reason == "Its worker died 3 times while it had this."
    assert failure.examples[0].endswith("002.png")


@pytest.mark.slow
def test_what_a_helper_cannot_write_ends_the_run_in_a_sentence(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 4)

    def pool(order: Order) -> ProcessPool:
        return ProcessPool(replace(order, helpers=1, images=tmp_path / "gone"), 1, scripted)

    with pytest.raises(UserError, match=r"The image was not saved in .*gone \(No such file"):
        run(plan, tmp_path / "workspace", pool)
    with workspace_in(tmp_path / "workspace") as opened:
        assert not opened.batches.failures(1) and not images(opened)
    assert len(run(plan, tmp_path / "workspace", helped(1, []))) == 4


def order_of(folder: Path) -> Order:
    """That of a plan of two sources."""
    with Workspace(folder / "workspace") as opened:
        batches = BatchService(opened)
        return batches.order(batches.plan(read_plan(plan_of(folder, 2))))


def test_what_is_asked_of_a_helper_that_has_died_is_refused(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    before = set(psutil.Process().children())
    helpers = Helpers(order, 1)
    try:
        missing = helpers.load("0" * 64, "", {})()
        assert isinstance(missing, Unread) and "is missing from" in missing.failed and missing.final
        shutil.rmtree(tmp_path / "data")
        away = helpers.read(Piece(1, 0, "test/x/0.png", "", "", 1))()
        assert isinstance(away, Unread) and away.final and "data" in away.failed
        (own,) = (
            one for one in psutil.Process().children() if one not in before and "spawn_main" in str(one.cmdline())
        )
        own.kill()
        for _ in range(2):
            with pytest.raises(HelperDied):
                helpers.load("0" * 64, "", {})()
    finally:
        helpers.close()


# What a lot does to others


def lot(number: int, pieces: int = 2) -> Lot:
    """One with so many pieces."""
    return Lot(number, "images", tuple(Piece(10 * number + at, at, "", "", "", 0) for at in range(pieces)))


class Held:
    """A worker that holds each lot until it is let go."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self._changed = threading.Condition()
        self._free: set[int] = set()

    def do(self, lot: Lot) -> tuple[Done, ...]:
        with self._changed:
            self.begun.append(lot.number)
            self._changed.notify_all()
            self._changed.wait_for(lambda: lot.number in self._free)
        return ()

    def let(self, number: int) -> None:
        with self._changed:
            self._free.add(number)
            self._changed.notify_all()

    def until(self, *begun: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.begun == list(begun), 60), self.begun


def test_lots_begin_in_their_order_two_at_a_time_and_one_piece_alone() -> None:
    worker = Held()
    turns = InTurn(worker, 1)
    lots = [lot(0), lot(1), lot(2, 1), lot(3), lot(4)]
    with ThreadPoolExecutor(len(lots)) as threads:
        asked = [threads.submit(turns.do, one.number, one) for one in reversed(lots)][::-1]
        worker.until(0, 1)
        worker.let(1)
        asked[1].result(60)
        assert worker.begun == [0, 1], "the one that is alone waits for all before it"
        worker.let(0)
        worker.until(0, 1, 2)
        worker.let(2)
        asked[2].result(60)
        worker.until(0, 1, 2, 3, 4)
        worker.let(3)
        worker.let(4)


def test_without_helpers_they_begin_one_after_another() -> None:
    worker = Held()
    turns = InTurn(worker, 0)
    with ThreadPoolExecutor(2) as threads:
        second, first = threads.submit(turns.do, 1, lot(1)), threads.submit(turns.do, 0, lot(0))
        worker.until(0)
        worker.let(0)
        first.result(60)
        worker.until(0, 1)
        worker.let(1)
        second.result(60)


@pytest.mark.parametrize(
    ("sizes", "helpers", "died"),
    [
        ((2, 2), 0, 1),
        ((2, 2), 2, 2),
        ((1, 2), 2, 1),
        ((2, 1), 2, 1),
        ((2,), 2, 1),
        ((), 2, 0),
    ],
)
def test_of_the_lots_of_a_dead_worker_those_that_it_was_at_are_told_apart(
    sizes: Sequence[int], helpers: int, died: int
) -> None:
    lots = [lot(number, pieces) for number, pieces in enumerate(sizes)]
    found = lost(lots, helpers)
    assert [one.lot for one in found] == lots
    assert [one.died for one in found] == [place < died for place in range(len(lots))]
    assert all(one.died != one.untouched for one in found)
