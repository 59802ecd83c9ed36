"""Speed of the list of runs in a large workspace: the first page with a count, a later page, and a search."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import sqlite_utils
from PIL import Image

from benchmarks.figures import Figure, reported
from core.lineage import Lineage, TestCase
from core.types import Caption, CounterfactualCaption, Edit, StageValue, Task, Trace
from pipeline.methods.controlnet import CONTROL_IMAGE, ControlNetSettings
from storage.workspace import Workspace

RUNS = 12_500
CASES = 4
"""Number of test cases of each run, half of them accepted."""
BOUND = 30.0
"""Maximum milliseconds for one query."""
TIMES = 50
PAGE = 50
"""Number of runs on a page."""


def measure() -> list[Figure]:
    """Measure the list of runs, and return three figures."""
    with tempfile.TemporaryDirectory() as folder, Workspace(Path(folder)) as workspace:
        prepared(workspace)
        runs = workspace.runs
        last = runs.search(RUNS // 2)[-1].id
        assert (runs.count(), runs.count("STREET 77")) == (RUNS, 111)
        return [
            timed(f"the list of {RUNS:,} runs", lambda: (runs.count(), runs.search(PAGE))),
            timed("a page in the middle of it", lambda: runs.search(PAGE, after=last)),
            timed("a search in it", lambda: (runs.count("reet 77"), runs.search(PAGE, find="reet 77"))),
        ]


def timed(what: str, read: Callable[[], object]) -> Figure:
    """Measure the milliseconds of each of `TIMES` calls of `read`."""
    found = []
    for _ in range(TIMES):
        began = time.perf_counter()
        read()
        found.append(1000 * (time.perf_counter() - began))
    return Figure(what, tuple(found), BOUND)


def prepared(workspace: Workspace) -> None:
    """Fill a workspace with `RUNS` runs. One is saved as usual; the others are copies of its database rows."""
    picture = Image.new("RGB", (16, 16), (90, 120, 150))
    first = workspace.runs.create(picture, Task("classification", "bird"), "demo", "Street 0", {"steps": 4})
    for number in range(3):
        workspace.runs.append_value(first, "caption", StageValue(Caption(f"A bird, {number}."), Trace("model"), "k"))
    job = workspace.jobs.start(first, CASES)
    caption = CounterfactualCaption("A gull.", (Edit("bird", "gull", "subject"),))
    for seed in range(CASES):
        lineage = Lineage(caption, seed, "controlnet", "a model", "A gull.", "", ControlNetSettings(), 0.5)
        case = TestCase(picture, lineage, {CONTROL_IMAGE: picture})
        workspace.test_cases.review(workspace.test_cases.append(first, job, case), "accepted" if seed % 2 else "open")
    workspace.jobs.finish(job, "done")

    def copy(db: sqlite_utils.Database) -> None:
        for number in range(1, RUNS):
            _copy(db, first, f"{number:016x}", f"Street {number}")

    workspace._database.write(copy)


def _copy(db: sqlite_utils.Database, first: str, run_id: str, name: str) -> None:
    """Copy all rows of a run under another id and name."""
    for what, where in (("runs", "id"), ("run_states", "run"), ("stage_values", "run"), ("test_cases", "run")):
        columns = [column.name for column in db.table(what).columns if column.name not in ("id", where, "job", "name")]
        named = [where, *columns, *(["name"] if what == "run_states" else [])]
        values = ["?", *columns, *(["?"] if what == "run_states" else [])]
        query = f"INSERT INTO {what} ({', '.join(named)}) SELECT {', '.join(values)} FROM {what} WHERE {where} = ?"
        db.execute(query, [run_id, *([name] if what == "run_states" else []), first])
    db.execute(
        """
        INSERT INTO reviews (test_case, verdict, reason, created)
        SELECT id, iif(CAST(seed AS INTEGER) % 2, 'accepted', 'open'), '', created FROM test_cases WHERE run = ?
        """,
        [run_id],
    )


if __name__ == "__main__":
    raise SystemExit(reported(measure()))
