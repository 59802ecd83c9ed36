"""Runs and the versions of their values: the rows and back.

Functions of an open database: those that write run inside `Database.write`, those that read inside `Database.read`.
What a person typed is only ever a bound parameter.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlite_utils

from pipeline.errors import UserError
from pipeline.types import STAGES, VALUE_TYPES, StageName, StageValue, Task, Trace, to_plain
from storage.generation import read_jobs, read_test_cases
from storage.images import StoredImage, file_name
from storage.rows import Row, insert_row, keep_image, now, pack, pack_value, unpack_value, when
from storage.types import Run, RunSummary, StoredValue

LONGEST_NAME = 200
"""Characters in the name of a run."""


def create_run(
    db: sqlite_utils.Database,
    source: StoredImage,
    task: Task,
    profile: str,
    name: str,
    settings: Mapping[str, Any],
    notes: Sequence[str],
    sample: str,
) -> str:
    """A new run; its id is 16 hexadecimal digits. Raises UserError for a name that is empty or too long."""
    keep_image(db, source)
    run_id = secrets.token_hex(8)
    db.table("runs").insert(
        {
            "id": run_id,
            "profile": profile,
            "source": source.sha,
            "sample": sample,
            "notes": pack(list(notes)),
            "created": now(),
        }
    )
    _append_state(db, run_id, {"name": _name(name), "task": pack_value(task), "settings": pack(dict(settings))})
    return run_id


def set_task(db: sqlite_utils.Database, run_id: str, task: Task) -> None:
    """Give the run another task. Raises UserError for an unknown run."""
    _change_state(db, run_id, "task", pack_value(task))


def set_settings(db: sqlite_utils.Database, run_id: str, settings: Mapping[str, Any]) -> None:
    """Give the run other settings. Raises UserError for an unknown run."""
    _change_state(db, run_id, "settings", pack(dict(settings)))


def rename(db: sqlite_utils.Database, run_id: str, name: str) -> None:
    """Give the run another name. Raises UserError for an unknown run, or a name that is empty or too long."""
    _change_state(db, run_id, "name", _name(name))


def append_value(
    db: sqlite_utils.Database,
    run_id: str,
    stage: StageName,
    value: StageValue[Any],
    brought_back: int | None = None,
) -> int:
    """A new version of a stage's value. Raises UserError for an unknown run, TypeError for a value of another stage."""
    kind = VALUE_TYPES[stage]
    if not isinstance(value.value, kind):
        raise TypeError(f"the stage {stage} has a {kind.__name__}, not a {type(value.value).__name__}")
    require_run(db, run_id)
    trace = value.trace
    return insert_row(
        db,
        "stage_values",
        {
            "run": run_id,
            "stage": stage,
            "value": pack_value(value.value),
            "author": trace.author,
            "model": trace.model,
            "prompt": trace.prompt,
            "raw_reply": trace.raw_reply,
            "settings": pack(to_plain(dict(trace.settings))),
            "seed": str(trace.seed),
            "attempts": trace.attempts,
            "seconds": trace.seconds,
            "inputs_key": value.inputs_key,
            "brought_back": brought_back,
            "created": now(),
        },
    )


def bring_back(db: sqlite_utils.Database, value_id: int) -> int:
    """Make an earlier version the latest again, by adding a copy of it. Raises UserError when there is none."""
    row = _first(db, "SELECT * FROM stage_values WHERE id = ?", [value_id])
    if row is None:
        raise UserError(f"There is no version {value_id} to bring back; pick one from the history.")
    value = _value(row)
    return append_value(db, value.run_id, value.stage, value.value, brought_back=value_id)


def read_history(db: sqlite_utils.Database, run_id: str, stage: StageName) -> tuple[StoredValue, ...]:
    """Every version of a stage's value, oldest first. Raises UserError for an unknown run."""
    require_run(db, run_id)
    rows = db.query("SELECT * FROM stage_values WHERE run = ? AND stage = ? ORDER BY id", [run_id, stage])
    return tuple(_value(row) for row in rows)


def read_run(db: sqlite_utils.Database, run_id: str, images: Path) -> Run:
    """The run with the latest of everything; `images` is the folder of the image files. Raises UserError."""
    require_run(db, run_id)
    row = next(db.query("SELECT * FROM runs WHERE id = ?", [run_id]))
    state = _latest_state(db, run_id)
    latest = db.query(
        "SELECT * FROM stage_values WHERE id IN (SELECT max(id) FROM stage_values WHERE run = ? GROUP BY stage)",
        [run_id],
    )
    values = {value.stage: value for value in map(_value, latest)}
    return Run(
        id=run_id,
        name=state["name"],
        task=unpack_value(Task, state["task"]),
        profile=row["profile"],
        settings=json.loads(state["settings"]),
        sample=row["sample"],
        notes=tuple(json.loads(row["notes"])),
        source_sha=row["source"],
        source_path=images / file_name(row["source"]),
        created=when(row["created"]),
        values={stage: values[stage] for stage in STAGES if stage in values},
        test_cases=read_test_cases(db, run_id, images),
        jobs=read_jobs(db, run_id),
    )


def read_runs(db: sqlite_utils.Database, limit: int, images: Path) -> tuple[RunSummary, ...]:
    """The runs, the one that was worked on last first."""
    rows = db.query(
        """
        SELECT runs.*, state.name, state.task,
            max(
                state.created,
                coalesce((SELECT max(created) FROM stage_values WHERE run = runs.id), ''),
                coalesce((SELECT max(created) FROM test_cases WHERE run = runs.id), '')
            ) AS changed,
            (SELECT group_concat(DISTINCT stage) FROM stage_values WHERE run = runs.id) AS stages,
            (SELECT count(*) FROM test_cases WHERE run = runs.id) AS test_cases
        FROM runs JOIN run_states AS state
            ON state.id = (SELECT max(id) FROM run_states WHERE run = runs.id)
        ORDER BY changed DESC, runs.rowid DESC LIMIT ?
        """,
        [limit],
    )
    return tuple(_summary(row, images) for row in rows)


def share_edited(db: sqlite_utils.Database) -> dict[StageName, float]:
    """For each stage that has values: the share of runs (0 to 1) whose latest value a person wrote."""
    rows = db.query(
        """
        SELECT stage, avg(author = 'person') AS share FROM stage_values
        WHERE id IN (SELECT max(id) FROM stage_values GROUP BY run, stage) GROUP BY stage
        """
    )
    shares = {row["stage"]: float(row["share"]) for row in rows}
    return {stage: shares[stage] for stage in STAGES if stage in shares}


def require_run(db: sqlite_utils.Database, run_id: str) -> None:
    """Raises UserError when there is no such run."""
    if _first(db, "SELECT 1 FROM runs WHERE id = ?", [run_id]) is None:
        raise UserError(f"This workspace has no run {run_id[:80]!r}; pick one from the list of runs.")


def _change_state(db: sqlite_utils.Database, run_id: str, field: str, text: str) -> None:
    require_run(db, run_id)
    state = _latest_state(db, run_id)
    if state[field] != text:
        _append_state(db, run_id, {**state, field: text})


def _append_state(db: sqlite_utils.Database, run_id: str, state: Mapping[str, str]) -> None:
    db.table("run_states").insert({"run": run_id, **state, "created": now()})


def _latest_state(db: sqlite_utils.Database, run_id: str) -> dict[str, str]:
    query = "SELECT name, task, settings FROM run_states WHERE run = ? ORDER BY id DESC LIMIT 1"
    return dict(next(db.query(query, [run_id])))


def _name(name: str) -> str:
    name = " ".join(name.split())
    if not name:
        raise UserError("The run has no name; give it one.")
    if len(name) > LONGEST_NAME:
        raise UserError(f"The name of the run has {len(name)} characters; give it one of at most {LONGEST_NAME}.")
    return name


def _value(row: Row) -> StoredValue:
    trace = Trace(
        author=row["author"],
        model=row["model"],
        prompt=row["prompt"],
        raw_reply=row["raw_reply"],
        settings=json.loads(row["settings"]),
        seed=int(row["seed"]),
        attempts=row["attempts"],
        seconds=row["seconds"],
    )
    value = unpack_value(VALUE_TYPES[row["stage"]], row["value"])
    return StoredValue(
        id=row["id"],
        run_id=row["run"],
        stage=row["stage"],
        value=StageValue(value, trace, row["inputs_key"]),
        created=when(row["created"]),
        brought_back=row["brought_back"],
    )


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
    )


def _first(db: sqlite_utils.Database, query: str, parameters: Sequence[Any]) -> Row | None:
    return next(iter(db.query(query, parameters)), None)
