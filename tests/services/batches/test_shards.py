"""Batches in shards: the same images as without shards, if parts are stopped, damaged, repeated or merged twice.

The tests use stand-ins for the models in this process. `make soak` also runs the commands with the embedded models.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from cli.batches import main
from core.errors import UserError
from services.batches import planning, shards
from services.batches.engine import Engine
from services.batches.io_workers import Order
from services.batches.plan_file import read_plan
from services.batches.pools import HerePool, Pool, Returned
from services.batches.service import BatchService
from services.batches.shards import Progress, hand_out, handed_out, merge, progress, take_back, work
from services.batches.work import Worker
from storage.workspace import Workspace
from tests.services.batches.test_batches import images
from tests.support.batch_cases import batch_images
from tests.support.batch_kills import drawn_data, plan_file, run
from tests.support.scripted import ScriptedLanguageModel, ScriptedModels, answer
from tests.support.workspaces import workspace_in

SOURCES, SHARDS = 10, 3


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lots of two sources, so that each shard has some."""
    monkeypatch.setattr(planning, "SOURCES_OF_A_LOT", 2)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    images(tmp_path / "data", SOURCES)
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def planned(workspace: Workspace, folder: Path, more: str = "") -> tuple[int, Order]:
    """Plan a batch of the images in `folder / "data"`. Return its number and its order for the workers."""
    service = BatchService(workspace)
    number = service.plan(read_plan(plan_file(folder, folder / "data", captions=2, more=more)))
    return number, service.order(number)


def stand_in(order: Order) -> Worker:
    """Return a worker with stand-ins for the models."""
    return Worker(order, ScriptedModels())  # type: ignore[arg-type]


def here(order: Order) -> Pool:
    """Return a pool in this process, with stand-ins for the models."""
    return HerePool(order, stand_in)


def at_a_loss(order: Order) -> Pool:
    """Return a pool like `here`, whose language model gives unreadable replies for boats."""

    def reply(prompt: str) -> str:
        return "?" if "label boat" in prompt else answer(prompt)

    return HerePool(order, lambda order: Worker(order, ScriptedModels(ScriptedLanguageModel(reply))))  # type: ignore[arg-type]


def all_shards(workspace: Workspace, number: int) -> None:
    """Work on each shard, the last one first."""
    for shard in range(SHARDS, 0, -1):
        assert work(workspace.folder, number, shard, SHARDS, here).left == 0


@pytest.mark.slow
def test_shards_make_the_images_of_a_batch_without_them(workspace: Workspace, tmp_path: Path) -> None:
    number, order = planned(workspace, tmp_path)
    passes = []
    while (outcome := hand_out(workspace, number, order)) != "approval":
        assert outcome == "shards"
        passes.append(workspace.batches.get(number).stage)
        all_shards(workspace, number)
        assert merge(workspace, number, order).left == 0
    assert passes == ["captions", "language"]
    workspace.batches.approve(number)
    assert hand_out(workspace, number, order) == "shards"
    all_shards(workspace, number)
    merge(workspace, number, order)
    assert hand_out(workspace, number, order) == "done"
    assert not list((workspace.folder / shards.SHARDS).rglob("*.jsonl"))  # the files of shards are removed
    made = batch_images(workspace, number)
    assert len(made) == 2 * SOURCES
    with workspace_in(tmp_path / "other") as other:
        alone, order = planned(other, tmp_path)
        other.batches.approve(alone, ahead=True)
        assert Engine(other, alone, order, here).run() == "done"
        assert batch_images(other, alone) == made


def test_a_shard_that_is_stopped_goes_on_where_it_was(workspace: Workspace, tmp_path: Path) -> None:
    number, order = planned(workspace, tmp_path)
    hand_out(workspace, number, order)
    stop = threading.Event()
    found = work(workspace.folder, number, 1, 1, here, stop, lambda _: stop.set())
    assert (found.answered, found.left) == (1, SOURCES // 2 - 1)
    (file,) = (workspace.folder / shards.SHARDS).rglob("1-of-1.jsonl")
    with file.open("a", encoding="utf-8") as torn:  # a shard was killed while it wrote
        torn.write(file.read_text()[:40])
    assert progress(workspace.folder, number) == Progress(SOURCES // 2, 1)
    assert merge(workspace, number, order).left == SOURCES // 2 - 1
    assert handed_out(workspace.folder, number) is not None
    counts = BatchService(workspace).status(number).passes[0]
    assert (counts.number("done"), counts.number("planned")) == (2, SOURCES - 2)
    told: list[int] = []
    # The number of shards may change: finished lots are skipped.
    for shard in (1, 2):
        work(workspace.folder, number, shard, 2, here, tell=lambda found: told.append(found.answered))
    assert len(told) == SOURCES // 2 - 1
    merge(workspace, number, order)
    assert BatchService(workspace).status(number).passes[0].number("done") == SOURCES
    assert workspace.runs.count() == SOURCES


def test_an_answer_counts_once_however_often_it_is_merged(workspace: Workspace, tmp_path: Path) -> None:
    number, order = planned(workspace, tmp_path, "[images]\ntries = 3\n")
    for _ in range(2):
        hand_out(workspace, number, order)
        if workspace.batches.get(number).stage == "captions":
            all_shards(workspace, number)
            merge(workspace, number, order)
    assert workspace.batches.get(number).stage == "language"
    work(workspace.folder, number, 1, 2, at_a_loss)
    left = {merge(workspace, number, order).left for _ in range(3)}
    assert left == {2}  # two of the five lots belong to the other shard
    work(workspace.folder, number, 2, 2, at_a_loss)
    merge(workspace, number, order)
    status = BatchService(workspace).status(number).passes[1]
    assert (status.number("done"), status.number("planned")) == (SOURCES // 2, SOURCES // 2)
    for again in range(2):  # use up the remaining tries
        assert hand_out(workspace, number, order) == "shards", again
        work(workspace.folder, number, 1, 1, at_a_loss)
        merge(workspace, number, order)
    status = BatchService(workspace).status(number).passes[1]
    assert status.number("failed") == SOURCES // 2


def test_whoever_would_do_the_same_work_is_told(workspace: Workspace, tmp_path: Path) -> None:
    number, order = planned(workspace, tmp_path)
    with pytest.raises(UserError, match="hand-out"):
        work(workspace.folder, number, 1, 2, here)
    hand_out(workspace, number, order)
    with pytest.raises(UserError, match=f"batch merge {number}"):
        Engine(workspace, number, order, here).run()

    def again(_: Progress) -> None:
        with pytest.raises(UserError, match="is already running"):
            work(workspace.folder, number, 1, 2, here)

    work(workspace.folder, number, 1, 2, here, tell=again)
    assert take_back(workspace, number) and not take_back(workspace, number)
    assert Engine(workspace, number, order, here).run() == "approval"


def test_lots_of_another_version_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    number, order = planned(workspace, tmp_path)
    hand_out(workspace, number, order)
    (file,) = (workspace.folder / shards.SHARDS).rglob(shards.LOTS)
    header, rest = file.read_text().split("\n", 1)
    file.write_text(json.dumps({**json.loads(header), "version": "0.0.1"}) + "\n" + rest)
    with pytest.raises(UserError, match=re.escape("version 0.0.1")):
        work(workspace.folder, number, 1, 1, here)


class Dying(HerePool):
    """Pool whose worker dies whenever it has a certain source."""

    def wait(self, seconds: float) -> Sequence[Returned]:
        if any(piece.item.key.endswith("/3.png") for piece in self._lots[0].pieces):
            return (Returned(self._lots.popleft(), died=True),)
        return super().wait(seconds)


def test_a_source_that_kills_its_worker_is_set_aside(workspace: Workspace, tmp_path: Path) -> None:
    number, order = planned(workspace, tmp_path)
    hand_out(workspace, number, order)
    work(workspace.folder, number, 1, 1, lambda order: Dying(order, stand_in))
    assert merge(workspace, number, order).left == 0
    (group,) = workspace.batches.failures(number)
    assert group.examples == ["test/boat/3.png"] and "died 3 times" in group.reason
    assert BatchService(workspace).status(number).passes[0].number("done") == SOURCES - 1


def test_half_files_of_shards_stay_until_their_lots_are_merged(workspace: Workspace, tmp_path: Path) -> None:
    number, order = planned(workspace, tmp_path)
    hand_out(workspace, number, order)
    half = workspace.images.folder / f".-{order.process}-{'a' * 16}.tmp"
    half.write_bytes(b"half")
    with Workspace(workspace.folder):
        assert half.exists()  # a shard elsewhere may be writing the file
    assert workspace.images.orphans() == ()
    all_shards(workspace, number)
    merge(workspace, number, order)
    assert not half.exists()


@pytest.mark.soak
def test_the_commands_do_a_batch_in_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Shards run in a process of their own. Commands that only read and write the batch run in this process."""
    drawn_data(tmp_path / "data", 4)
    plan, folder = plan_file(tmp_path, tmp_path / "data", captions=1), tmp_path / "workspace"

    def batch(*arguments: object) -> tuple[int, str]:
        code = main(["--workspace", str(folder), *map(str, arguments)])
        return code, capsys.readouterr().out

    assert batch("plan", plan)[0] == 0
    code, printed = batch("hand-out", 1)
    assert code == 0 and "2 lots wait for shards" in printed
    assert batch("run", "1")[0] == 2  # the command refuses, since shards have the batch
    for _ in ("captions", "language"):
        found = run(folder, "run", 1, "--shard", "1/1", "--workers", 1)
        assert found.returncode == 0 and "2 of 2 lots are done" in found.stdout, found.stderr
        code, printed = batch("merge", 1)
    assert code == 4, printed  # the captions wait for approval
    assert batch("approve", 1)[0] == 0
    assert batch("hand-out", 1)[0] == 0
    hidden = folder / "studio.db"
    os.rename(hidden, tmp_path / "elsewhere.db")  # a shard needs no database
    assert run(folder, "run", 1, "--shard", "2/2", "--workers", 1).returncode == 0
    assert run(folder, "run", 1, "--shard", "1/2", "--workers", 1).returncode == 0
    os.rename(tmp_path / "elsewhere.db", hidden)
    assert "With shards: 1 of 1 lots" in batch("status", 1)[1]
    assert batch("merge", 1)[0] == 0
    with Workspace(folder) as workspace:
        assert len(batch_images(workspace, 1)) == 4
    with pytest.raises(SystemExit, match="2"):
        batch("run", 1, "--shard", "3/2")
