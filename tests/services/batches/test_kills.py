"""A batch with the demo's models in worker processes: after kills every image exists once, with the same pixels as
without a kill. The tests use the command line too.

`python -m tests.support.batch_kills` does the same for 200 images and 40 kills.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from services.batches.io_workers import Order
from services.batches.pools import HerePool
from services.batches.work import Worker
from services.batches.worker_process import single_threaded_runner
from tests.support.batch_kills import (
    Kill,
    drawn_data,
    made,
    plan_file,
    random_kills,
    run,
    run_here,
    with_kills,
)

pytestmark = [pytest.mark.demo, pytest.mark.slow]
SOURCES = 4


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batch")
    drawn_data(folder / "data", SOURCES)
    return plan_file(folder, folder / "data", captions=1, steps=2, together=2)


@pytest.fixture(scope="module")
def in_this_process() -> Iterator[None]:
    """Run the commands in this process, with one thread like worker processes."""
    import torch

    threads = torch.get_num_threads()

    def pool(order: Order, workers: int) -> HerePool:
        return HerePool(order, partial(single_threaded_runner, make=Worker))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cli.batches.ProcessPool", pool)
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def waiting(plan: Path, in_this_process: None) -> Path:
    """Workspace in which the plan's captions wait for approval."""
    workspace = plan.parent / "waiting"
    looked = run_here(workspace, "run", plan)
    assert looked.returncode == 4, looked.stderr
    assert "waits for your yes" in looked.stdout and "batch approve 1" in looked.stdout
    assert f"Images: {SOURCES} test cases." in looked.stdout and "Time: " in looked.stdout
    return workspace


@pytest.fixture(scope="module")
def calm(waiting: Path, in_this_process: None) -> Path:
    """Workspace of the plan, completed without a kill by the commands that a person uses."""
    workspace = waiting.parent / "calm"
    shutil.copytree(waiting, workspace)
    assert run_here(workspace, "approve", 1).returncode == 0
    drawn = run_here(workspace, "run", 1)
    assert drawn.returncode == 0, drawn.stderr
    return workspace


def same_as_without(calm: Path, workspace: Path, done: list[str]) -> None:
    """Check that every image exists once, with the same pixels."""
    before, after = made(calm), made(workspace)
    assert len(before.images) == SOURCES
    assert after.images == before.images, done
    assert after.test_cases == SOURCES
    assert set(after.states) == {"done"}


def test_after_kills_every_image_is_there_once_with_the_same_pixels(
    plan: Path, waiting: Path, calm: Path, tmp_path: Path
) -> None:
    """The worker and its driver are killed after a lot is drawn. The lot in progress is then drawn image by image."""
    shutil.copytree(waiting, tmp_path / "workspace")
    done = list(with_kills(tmp_path / "workspace", plan, [Kill("all", 1)], workers=1))
    same_as_without(calm, tmp_path / "workspace", done)


@pytest.mark.soak
@pytest.mark.parametrize(("kills", "workers"), [(2, 1), (8, 2)])
def test_after_many_kills_at_any_time_the_images_are_the_same(
    plan: Path, calm: Path, tmp_path: Path, kills: int, workers: int
) -> None:
    done = list(with_kills(tmp_path / "workspace", plan, random_kills(kills), workers))
    same_as_without(calm, tmp_path / "workspace", done)


@pytest.mark.soak
def test_more_workers_give_the_same_images(plan: Path, calm: Path) -> None:
    several = run(plan.parent / "several", "run", plan, "--yes", "--workers", 3)
    assert several.returncode == 0, several.stderr
    assert made(plan.parent / "several").images == made(calm).images


def test_the_command_line_tells_how_far_it_is(plan: Path, calm: Path) -> None:
    assert f"Drawn things: done; {SOURCES} of {SOURCES} images" in run_here(calm, "status").stdout
    told = run_here(calm, "report", plan).stdout
    assert f"Images: {SOURCES} of {SOURCES} done" in told and "s of a worker each" in told
    assert run_here(calm, "retry-failed", 1).stdout == "Nothing has failed.\n"
    assert run_here(calm, "approve", 1).stderr.strip().endswith("approved already.")
    for arguments in (("status", 9), ("run", calm / "no-plan.toml"), ("status", "x")):
        wrong = run_here(calm, *arguments)
        assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1, wrong.stderr
