"""The list of runs: a line for each, those that a search finds, and how many there are.

Functions of an open database that read, like those of `storage.runs`.
"""

from __future__ import annotations

import json
from pathlib import Path

import sqlite_utils

from pipeline.types import STAGES, Task
from storage.images import file_name
from storage.rows import Row, unpack_value, when
from storage.types import RunSummary


def read_runs(
    db: sqlite_utils.Database, limit: int, images: Path, removed: bool = False, find: str = ""
) -> tuple[RunSummary, ...]:
    """The runs, the one that was worked on last first; with `removed` the deleted ones.

    Of them those that have `find` in their name or label, whatever its letters' case.
    """
    rows = db.query(
        f"""
        SELECT runs.*, state.name, state.task, state.removed,
            max(
                state.created,
                coalesce((SELECT max(created) FROM stage_values WHERE run = runs.id), ''),
                coalesce((SELECT max(created) FROM test_cases WHERE run = runs.id), '')
            ) AS changed,
            (SELECT group_concat(DISTINCT stage) FROM stage_values WHERE run = runs.id) AS stages,
            (SELECT count(*) FROM test_cases WHERE run = runs.id) AS test_cases,
            (
                SELECT count(*) FROM test_cases
                JOIN reviews ON reviews.id = (SELECT max(id) FROM reviews WHERE test_case = test_cases.id)
                WHERE run = runs.id AND verdict = 'accepted'
            ) AS accepted,
            (SELECT jobs.state FROM jobs WHERE run = runs.id ORDER BY id DESC LIMIT 1) AS job
        FROM runs JOIN run_states AS state
            ON state.id = (SELECT max(id) FROM run_states WHERE run = runs.id)
        WHERE state.removed = :removed {_found(db, find)}
        ORDER BY changed DESC, runs.rowid DESC LIMIT :limit
        """,
        {"removed": int(removed), "find": find, "limit": limit},
    )
    return tuple(_summary(row, images) for row in rows)


def count_runs(db: sqlite_utils.Database, find: str = "") -> int:
    """How many runs there are, without the deleted ones, that have `find` in their name or label."""
    query = f"""
        SELECT count(*) AS number FROM runs JOIN run_states AS state
            ON state.id = (SELECT max(id) FROM run_states WHERE run = runs.id)
        WHERE state.removed = 0 {_found(db, find)}
    """
    return int(next(db.query(query, {"find": find}))["number"])


def _found(db: sqlite_utils.Database, find: str) -> str:
    """The condition of a search; "" for none. SQLite's own lower() knows the letters of English only."""
    if not find:
        return ""  # naming a function to a connection makes it forget all its prepared statements
    db.register_function(_holds, name="holds", deterministic=True)
    return "AND holds(state.name, state.task, :find)"


def _holds(name: str, task: str, find: str) -> bool:
    """Whether the name of a run, or the label in its task, contains a text."""
    wanted = find.casefold()
    return wanted in name.casefold() or wanted in str(json.loads(task).get("label", "")).casefold()


def _summary(row: Row, images: Path) -> RunSummary:
    present = set((row["stages"] or "").split(","))
    if row["test_cases"]:
        present.add("generation")
    return RunSummary(
        id=row["id"],
        name=row["name"],
        task=unpack_value(Task, row["task"]),
        profile=row["profile"],
        sample=row["sample"],
        source_sha=row["source"],
        source_path=images / file_name(row["source"]),
        created=when(row["created"]),
        changed=when(row["changed"]),
        stages=tuple(stage for stage in STAGES if stage in present),
        test_cases=row["test_cases"],
        accepted=row["accepted"],
        job=row["job"],
        removed=bool(row["removed"]),
    )
