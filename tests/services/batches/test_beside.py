"""Workers with helper processes: the same images, whichever process is killed, and the effect of a lot on others."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from core.batches import Item, Pass, Piece, SourceRun
from core.errors import UserError
from services.batches import planning, service
from services.batches.io_workers import FileWork, HelperDied, IoWorkers, Order, UnreadSource
from services.batches.plan_file import read_plan
from services.batches.pools import ProcessPool
from services.batches.service import BatchService
from services.batches.worker_process import MakeRunner
from storage.workspace import Workspace
from tests.services.batches.test_cluster import images, plan_of, run
from tests.support.batch_workers import Deadly, Poisoned, here, leftovers, only_for, scripted
from tests.support.workspaces import workspace_in

SOURCES = 8


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lots of two sources, so that a few sources give several lots."""
    monkeypatch.setattr(planning, "SOURCES_OF_A_LOT", 2)
    monkeypatch.setattr(service, "AT_ONCE", 2)


def helped(helpers: int, kept: list[ProcessPool], make: MakeRunner = scripted) -> Callable[..., ProcessPool]:
    """Return a maker of pools with one worker and this number of helpers. It appends each pool to `kept`."""

    def pool(order: Order) -> ProcessPool:
        kept.append(ProcessPool(replace(order, helpers=helpers), 1, make))
        return kept[-1]

    return pool


def helpers_of(pool: ProcessPool) -> list[psutil.Process]:
    """Return the helper processes of a pool's only worker."""
    (worker,) = [slot.process for slot in pool._slots]
    found = psutil.Process(worker).children()
    return [one for one in found if "resource_tracker" not in " ".join(one.cmdline())]


@pytest.mark.soak
@pytest.mark.parametrize("helpers", [1, 2])
def test_helpers_make_the_same_images_and_end_with_their_worker(tmp_path: Path, helpers: int) -> None:
    plan = plan_of(tmp_path, SOURCES)
    expected = run(plan, tmp_path / "here", here)
    assert len(expected) == SOURCES
    pools: list[ProcessPool] = []
    seen: set[psutil.Process] = set()

    def look(_stage: Pass, _done: int) -> None:
        seen.update(helpers_of(pools[-1]))

    assert run(plan, tmp_path / "helped", helped(helpers, pools), look) == expected
    assert len(seen) == helpers * len(pools)
    assert not psutil.wait_procs(seen, timeout=60)[1]
    assert not list((tmp_path / "helped" / "images").glob(".*")), "no half file"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("victim", "stage"),
    [
        ("helper", "images"),
        pytest.param("helper", "captions", marks=pytest.mark.soak),
        pytest.param("worker", "images", marks=pytest.mark.soak),
        pytest.param("worker", "captions", marks=pytest.mark.soak),
    ],
)
def test_when_a_helper_or_its_worker_is_killed_nothing_is_lost(tmp_path: Path, victim: str, stage: Pass) -> None:
    """Helpers read sources in the first pass, and save images in the last."""
    plan = plan_of(tmp_path, SOURCES)
    pools: list[ProcessPool] = []
    killed: list[psutil.Process] = []

    def kill(at: Pass, _done: int) -> None:
        if at == stage and not killed:
            killed.extend(helpers_of(pools[0]))
            os.kill(killed[0].pid if victim == "helper" else pools[0]._slots[0].process, signal.SIGKILL)

    made = run(plan, tmp_path / "killed", only_for(stage, helped(2, pools)), kill)
    assert made == run(plan, tmp_path / "here", here)
    assert len(made) == SOURCES
    assert len(pools) == 1 and len(killed) == 2
    assert not psutil.wait_procs(killed, timeout=60)[1], "helpers end with their worker"
    assert not leftovers(tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.parametrize("helpers", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_what_kills_its_worker_is_set_aside_alone_though_two_lots_are_with_it(tmp_path: Path, helpers: int) -> None:
    plan = plan_of(tmp_path, SOURCES)
    made = run(plan, tmp_path / "workspace", only_for("captions", helped(helpers, [], Poisoned)))
    assert len(made) == SOURCES - 1
    with workspace_in(tmp_path / "workspace") as opened:
        (failure,) = opened.batches.failures(1)
    assert (failure.number, failure.stage) == (1, "captions")
    assert failure.reason == "Its worker died 3 times while it had this."
    assert failure.examples[0].endswith("002.png")


@pytest.mark.slow
def test_workers_that_end_one_after_another_end_the_run_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="3 workers in a row died before finishing any work"):
        run(plan_of(tmp_path, 4), tmp_path / "workspace", helped(0, [], Deadly))


@pytest.mark.slow
def test_what_a_helper_cannot_write_ends_the_run_in_a_sentence(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 4)

    def pool(order: Order) -> ProcessPool:
        return ProcessPool(replace(order, helpers=1, workspace=tmp_path / "gone"), 1, scripted)

    with pytest.raises(UserError, match=r"The image was not saved in .*gone/images\. No such file"):
        run(plan, tmp_path / "workspace", pool)
    with workspace_in(tmp_path / "workspace") as opened:
        assert not opened.batches.failures(1) and not images(opened)
    assert len(run(plan, tmp_path / "workspace", here)) == 4


def order_of(folder: Path) -> Order:
    """Plan a batch of two sources. Return its order for the workers."""
    with Workspace(folder / "workspace") as opened:
        batches = BatchService(opened)
        return batches.order(batches.plan(read_plan(plan_of(folder, 2))))


def test_what_is_asked_of_a_helper_that_has_died_is_refused(tmp_path: Path) -> None:
    order = order_of(tmp_path)
    before = set(psutil.Process().children())
    helpers = IoWorkers(replace(order, helpers=1), FileWork(order))
    try:
        missing = helpers.submit(FileWork.load, SourceRun("0" * 64, (0, 0), "", {}, {}))()
        assert isinstance(missing, UnreadSource) and "is missing from" in missing.failed and missing.final
        shutil.rmtree(tmp_path / "data")
        away = helpers.submit(FileWork.read, Piece(1, 0, Item("test/x/0.png"), 1))()
        assert isinstance(away, UnreadSource) and away.final and "data" in away.failed
        (own,) = (
            one for one in psutil.Process().children() if one not in before and "spawn_main" in str(one.cmdline())
        )
        own.kill()
        for _ in range(2):
            with pytest.raises(HelperDied):
                helpers.submit(FileWork.load, SourceRun("0" * 64, (0, 0), "", {}, {}))()
    finally:
        helpers.close()
