"""A batch with the real demo models in worker processes: after kills of its processes every image is there once, with
the pixels that it has without a kill. Also the command line that a person uses for it.

`python -m tests.support.batch_kills` does the same for 200 images and 40 kills.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.batch_kills import drawn_data, made, plan_file, run, with_kills

pytestmark = [pytest.mark.demo, pytest.mark.slow]
SOURCES = 6


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("batch")
    drawn_data(folder / "data", SOURCES)
    return plan_file(folder, folder / "data", captions=1, steps=2)


@pytest.fixture(scope="module")
def calm(plan: Path) -> Path:
    """The workspace of the plan with one worker and without a kill, made as a person makes it."""
    workspace = plan.parent / "calm"
    looked = run(workspace, "run", plan, "--workers", 1)
    assert looked.returncode == 4, looked.stderr
    assert "waits for your yes" in looked.stdout and "batch approve 1" in looked.stdout
    assert f"Images: {SOURCES} test cases." in looked.stdout and "Time: " in looked.stdout
    assert run(workspace, "approve", 1).returncode == 0
    drawn = run(workspace, "run", 1, "--workers", 1)
    assert drawn.returncode == 0, drawn.stderr
    return workspace


@pytest.mark.parametrize(("kills", "workers"), [(2, 1), pytest.param(8, 2, marks=pytest.mark.soak)])
def test_after_kills_every_image_is_there_once_with_the_same_pixels(
    plan: Path, calm: Path, tmp_path: Path, kills: int, workers: int
) -> None:
    done = list(with_kills(tmp_path / "workspace", plan, kills, workers))
    before, after = made(calm), made(tmp_path / "workspace")
    assert len(before.images) == SOURCES
    assert after.images == before.images, done
    assert after.test_cases == SOURCES
    assert set(after.states) == {"done"}


@pytest.mark.soak
def test_more_workers_give_the_same_images(plan: Path, calm: Path) -> None:
    several = run(plan.parent / "several", "run", plan, "--yes", "--workers", 3)
    assert several.returncode == 0, several.stderr
    assert made(plan.parent / "several").images == made(calm).images


def test_the_command_line_tells_how_far_it_is(plan: Path, calm: Path) -> None:
    assert f"Drawn things: done; {SOURCES} of {SOURCES} images" in run(calm, "status").stdout
    told = run(calm, "report", plan).stdout
    assert f"Images: {SOURCES} of {SOURCES} done" in told and "s of a worker each" in told
    assert run(calm, "retry-failed", 1).stdout == "Nothing has failed.\n"
    assert run(calm, "approve", 1).stderr.strip().endswith("approved already.")
    for arguments in (("status", 9), ("run", calm / "no-plan.toml"), ("status", "x")):
        wrong = run(calm, *arguments)
        assert wrong.returncode == 2 and wrong.stderr.count("\n") == 1, wrong.stderr
