"""Runs a pass of a batch in shards, for clusters that start jobs without Ray, such as job arrays of SLURM. The work is
handed out in files, as lots (pieces of work that are done together). Shards are processes on any machines that each do
a share of the lots. Their results are merged into the ledger later.

A shard uses no database. It reads the lots from the workspace's folder, writes images there under their hashes as every
worker does, and appends the results of each lot to its own file. Only `hand_out` and `merge` open the workspace. Work
done twice, by a restarted or killed shard, counts once.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

from core.batches import Done, Lot, Pass, Piece, SourceRun
from core.errors import UserError, disk_reason
from core.locks import take_lock
from core.stored_runs import SavedCase
from core.types import from_plain, to_plain
from core.version import version
from pipeline.methods import read_lineage
from pipeline.recipes import values_from_plain
from services.batches.io_workers import Order
from services.batches.plan_file import plan_from_text
from services.batches.planning import Planner
from services.batches.pools import Pool, work_off
from services.batches.service import order_of
from storage.batches.ledger import MOST_DEATHS
from storage.images import remove_files_of
from storage.workspace import IMAGES, THUMBNAILS, Workspace

SHARDS = "shards"
"""Name of the workspace's folder for the files of shards."""
LOTS, ANSWERS = "lots.jsonl", "*-of-*.jsonl"
RECORDED_TOGETHER = 32
"""Number of lots (groups of work) whose results are merged in one transaction."""

Outcome = Literal["shards", "approval", "done"]


@dataclass(frozen=True)
class Progress:
    """Number of lots (groups of work) handed out to shards, and number of lots with results."""

    lots: int
    answered: int

    @property
    def left(self) -> int:
        """Return the number of lots without results."""
        return self.lots - self.answered


@dataclass(frozen=True)
class _Header:
    """First line of the file with the work for shards: everything that a shard needs besides the work itself."""

    batch: int
    stage: Pass
    plan: str
    """Plan in TOML."""
    at_once: int
    version: str
    process: int
    """Number of the process that wrote the file."""


def handed_out(workspace: Path, batch: int) -> Path | None:
    """Return the folder with the work that a batch has handed out to shards; None if none is handed out."""
    folders = [path.parent for path in (workspace / SHARDS / str(batch)).glob(f"*/{LOTS}")]
    return min(folders) if folders else None


def progress(workspace: Path, batch: int) -> Progress | None:
    """Return the progress of the work that a batch handed out, or None if it handed out no work. Reads all results."""
    folder = handed_out(workspace, batch)
    if folder is None:
        return None
    lots = sum(1 for _ in _lots(folder))
    return Progress(lots, len({number for number, _ in _answers(folder)}))


def hand_out(workspace: Workspace, batch: int, order: Order) -> Outcome:
    """Write the work of the current pass to a file for shards, unless work is handed out already. Return "shards" if
    shards have work, "approval" if the captions wait for approval, "done" if nothing is left. Raises UserError while
    another process works on the batch.
    """
    if handed_out(workspace.folder, batch) is not None:
        return "shards"
    ledger = workspace.batches
    with _held(workspace, batch):
        current = Planner(workspace, batch, order).next_pass()
        if current is None:
            ledger.finish(batch)
            return "done"
        if current.stage == "images" and current.approved is None:
            return "approval"
        folder = workspace.folder / SHARDS / str(batch) / f"{current.stage}-{order.process}"
        folder.mkdir(parents=True, exist_ok=True)
        half = folder / f"{LOTS}.tmp"
        header = _Header(batch, current.stage, current.plan, current.at_once, version(), order.process)
        with half.open("w", encoding="utf-8") as file:
            file.write(_line(to_plain(header)))
            number = 0
            while pieces := ledger.claim(batch, current.stage):
                file.write(_line({"lot": number, "pieces": [to_plain(piece) for piece in pieces]}))
                number += 1
            file.flush()
            os.fsync(file.fileno())
        half.rename(folder / LOTS)
        return "shards"


def take_back(workspace: Workspace, batch: int) -> bool:
    """Remove the work that a batch has handed out, with all unmerged results. Return False if none was handed out."""
    folder = handed_out(workspace.folder, batch)
    if folder is not None:
        _remove(workspace, folder)
    return folder is not None


def work(
    workspace: Path,
    batch: int,
    shard: int,
    of: int,
    pool: Callable[[Order], Pool],
    stop: threading.Event | None = None,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Progress:
    """Do the groups of work of one shard; shards are counted from 1 to `of`. Skip groups that have results. Return the
    progress, which is incomplete if `stop` was set. Raises UserError if the batch has no work for shards, if this shard
    is already running, or if no worker can work. Results of finished groups are kept.
    """
    folder = _required(workspace, batch)
    header = _header(folder)
    if header.version != version():
        raise UserError(
            f"This work was handed out by version {header.version} of the studio, and this is {version()}: install "
            f"{header.version}, or take the work back and hand it out again."
        )
    answered = {number for number, _ in _answers(folder)}
    share = [(number, lot) for number, lot in _lots(folder) if number % of == shard - 1]
    todo = [(number, lot) for number, lot in share if number not in answered]
    done = len(share) - len(todo)
    with _answering(folder, shard, of) as file:
        if todo:
            plan = plan_from_text(header.plan, Path(f"of the batch {batch}"))
            order = order_of(plan, header.at_once, workspace, -header.process)
            worked_off = _worked_off(pool(order), todo, stop or threading.Event())
            with closing(worked_off) as answers:
                for number, results in answers:
                    _append(file, _line({"lot": number, "done": [_plain_done(one) for one in results]}))
                    done += 1
                    tell(Progress(len(share), done))
    return Progress(len(share), done)


def _worked_off(
    pool: Pool, lots: Sequence[tuple[int, Lot]], stop: threading.Event
) -> Generator[tuple[int, tuple[Done, ...]]]:
    """Do each `Lot`, and yield its number and results, in any order. If a worker dies, each piece of the worker's lot
    is redone as a lot of one piece. A piece fails, here as in the ledger, after the deaths of `MOST_DEATHS` workers.
    """
    numbers = {piece.id: number for number, lot in lots for piece in lot.pieces}
    sizes = {number: len(lot.pieces) for number, lot in lots}
    results = defaultdict[int, list[Done]](list)
    deaths = Counter[int]()
    queue = deque(lot for _, lot in lots)
    for returned in work_off(pool, lambda: queue.popleft() if queue else None, stop.is_set):
        done = list(returned.done)
        for piece in returned.lot.pieces if returned.died else ():
            deaths[piece.id] += 1
            if deaths[piece.id] < MOST_DEATHS:
                queue.append(replace(returned.lot, pieces=(piece,)))
            else:
                reason = f"Its worker died {MOST_DEATHS} times while it had this."
                done.append(Done(piece.id, failed=reason, final=True))
        for one in done:
            number = numbers[one.id]
            results[number].append(one)
            if len(results[number]) == sizes[number]:
                yield number, tuple(results.pop(number))


def merge(workspace: Workspace, batch: int, order: Order) -> Progress:
    """Record each result of the shards once in the ledger. When all work has results, remove the files for shards.

    Raises UserError if the batch has no work for shards, another process works on it, or a file cannot be read.
    """
    folder = _required(workspace.folder, batch)
    tries = {number: {piece.id: piece.tries for piece in lot.pieces} for number, lot in _lots(folder)}
    merged = set[int]()
    with _held(workspace, batch):
        answers = _answers(folder)
        while some := list(islice(answers, RECORDED_TOGETHER)):
            leased = workspace.batches.lease(batch, {k: v for number, _ in some for k, v in tries[number].items()})
            results = {one.id: one for _, done in some for one in done if one.id in leased}
            workspace.batches.record(batch, list(results.values()), order.plan.images.tries)
            merged.update(number for number, _ in some)
    progress_made = Progress(len(tries), len(merged))
    if not progress_made.left:
        _remove(workspace, folder)
    return progress_made


# Files


def _required(workspace: Path, batch: int) -> Path:
    folder = handed_out(workspace, batch)
    if folder is None:
        raise UserError(
            f"No work of batch {batch} is handed out in {workspace}: run `python -m pipeline batch hand-out {batch}`."
        )
    return folder


def _remove(workspace: Workspace, folder: Path) -> None:
    """Remove the files for shards. The file with the work goes first: without it, nothing counts as handed out."""
    writer = -_header(folder).process
    (folder / LOTS).unlink()
    shutil.rmtree(folder)
    for folder_of_files in (workspace.folder / IMAGES, workspace.folder / THUMBNAILS):
        remove_files_of(folder_of_files, writer)


def _header(folder: Path) -> _Header:
    with (folder / LOTS).open(encoding="utf-8") as file:
        header: _Header = from_plain(_Header, json.loads(file.readline()))
        return header


def _lots(folder: Path) -> Iterator[tuple[int, Lot]]:
    stage = _header(folder).stage
    with (folder / LOTS).open(encoding="utf-8") as file:
        next(file)
        for line in file:
            plain = json.loads(line)
            yield plain["lot"], Lot(stage, tuple(map(_piece, plain["pieces"])))


def _answers(folder: Path) -> Iterator[tuple[int, tuple[Done, ...]]]:
    """Yield the number and the results of each lot. The unfinished last line of a killed shard is skipped."""
    for path in sorted(folder.glob(ANSWERS)):
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    answer = json.loads(line)
                    yield answer["lot"], tuple(map(_done, answer["done"]))
                except (ValueError, KeyError, TypeError) as error:
                    raise UserError(f"{path} has a line that is no result of a shard: remove that line.") from error


def _append(file: BinaryIO, line: str) -> None:
    """Append a line, and return when it is on the disk."""
    try:
        file.write(line.encode())
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"The results cannot be saved. {disk_reason(error)}.") from error


@contextmanager
def _answering(folder: Path, shard: int, of: int) -> Iterator[BinaryIO]:
    """Open the results file of a shard, locked against other processes, and cut off an unfinished last line."""
    with (folder / f"{shard}-of-{of}.jsonl").open("a+b") as file:
        try:
            take_lock(file, folder)
        except BlockingIOError as error:
            raise UserError(f"Shard {shard} of {of} is already running: wait for it, or stop it.") from error
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
        yield file


@contextmanager
def _held(workspace: Workspace, batch: int) -> Iterator[None]:
    workspace.batches.hold(batch)
    try:
        yield
    finally:
        workspace.batches.let_go(batch)


# Lots and results as plain data


def _line(plain: Any) -> str:
    return json.dumps(plain, ensure_ascii=False, allow_nan=False) + "\n"


def _piece(plain: Mapping[str, Any]) -> Piece:
    if (run := plain["run"]) is not None:
        run = from_plain(SourceRun, {**run, "values": values_from_plain(run["values"])})
    piece: Piece = from_plain(Piece, {**plain, "run": run})
    return piece


def _plain_done(done: Done) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(done)
    if done.case is not None:
        plain["case"]["lineage"] = done.case.lineage.plain()
    return plain


def _done(plain: Mapping[str, Any]) -> Done:
    if (case := plain["case"]) is not None:
        case = from_plain(SavedCase, {**case, "lineage": read_lineage(case["lineage"])})
    done: Done = from_plain(Done, {**plain, "values": values_from_plain(plain["values"]), "case": case})
    return done
