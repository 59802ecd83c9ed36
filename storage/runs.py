"""Runs and the versions of their values: the rows and back.

Functions of an open database: those that write run inside `Database.write`, those that read inside `Database.read`.
What a person typed is only ever a bound parameter.
"""

from __future__ import annotations

import itertools
import json
import re
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
from storage.types import Run, StoredState, StoredValue

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
    run_id: str = "",
) -> str:
    """A new run; its id is 16 hexadecimal digits, drawn at random unless it is given.

    Raises UserError for a name that is empty or too long, ValueError for an id that is not one.
    """
    keep_image(db, source)
    run_id = run_id or secrets.token_hex(8)
    if not is_run_id(run_id):
        raise ValueError(f"{run_id[:80]!r} is not the id of a run")
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
    state: Row = {"name": _name(name), "task": pack_value(task), "settings": pack(dict(settings))}
    _append_state(db, run_id, state)
    return run_id


def is_run_id(text: str) -> bool:
    """Whether this is written as the id of a run: 16 hexadecimal digits."""
    return re.fullmatch(r"[0-9a-f]{16}", text) is not None


def set_task(db: sqlite_utils.Database, run_id: str, task: Task) -> None:
    """Give the run another task. Raises UserError for an unknown run."""
    _change_state(db, run_id, task=pack_value(task))


def set_settings(db: sqlite_utils.Database, run_id: str, settings: Mapping[str, Any]) -> int | None:
    """Give the run other settings; returns the id of the state, None when they are the same. Raises UserError for an
    unknown run.
    """
    return _change_state(db, run_id, settings=pack(dict(settings)))


def set_prompts(db: sqlite_utils.Database, run_id: str, prompts: Mapping[StageName, str]) -> int | None:
    """Give the run prompt templates of its own, all at once; returns as `set_settings`. Raises UserError likewise."""
    return _change_state(db, run_id, prompts=pack(dict(prompts)))


def set_mask(db: sqlite_utils.Database, run_id: str, mask: StoredImage | None, classes: Mapping[int, str]) -> None:
    """Give the run a mask whose file is on the disk, or take it away. Raises UserError for an unknown run."""
    if mask is not None:
        keep_image(db, mask)
    named = {str(number): name for number, name in sorted(classes.items())} if mask else {}
    _change_state(db, run_id, mask=mask.sha if mask else None, mask_classes=pack(named))


def set_removed(db: sqlite_utils.Database, run_id: str, removed: bool) -> None:
    """Take the run out of the list of runs, or put it back. Raises UserError for an unknown run."""
    _change_state(db, run_id, removed=int(removed))


def rename(db: sqlite_utils.Database, run_id: str, name: str) -> None:
    """Give the run another name. Raises UserError for an unknown run, or a name that is empty or too long."""
    _change_state(db, run_id, name=_name(name))


def duplicate_run(db: sqlite_utils.Database, run_id: str) -> str:
    """A new run with the source, task, settings, mask, prompts and latest values of this one; returns its id.

    Test cases stay where they were made: one image counted in two runs would count twice in everything that follows.
    Raises UserError for an unknown run.
    """
    require_run(db, run_id)
    new_id = secrets.token_hex(8)
    row = next(db.query("SELECT profile, source, sample, notes FROM runs WHERE id = ?", [run_id]))
    db.table("runs").insert({"id": new_id, **row, "created": now()})
    state = _latest_state(db, run_id)
    _append_state(db, new_id, {**state, "name": _copy_name(db, state["name"]), "removed": 0})
    for value in _latest_values(db, run_id):
        append_value(db, new_id, value.stage, value.value)
    return new_id


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
    values = {value.stage: value for value in _latest_values(db, run_id)}
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
        mask_sha=state["mask"],
        mask_path=images / file_name(state["mask"]) if state["mask"] else None,
        mask_classes={int(number): name for number, name in json.loads(state["mask_classes"]).items()},
        prompts=json.loads(state["prompts"]),
        removed=bool(state["removed"]),
        state=next(db.query("SELECT max(id) AS id FROM run_states WHERE run = ?", [run_id]))["id"],
    )


def read_states(db: sqlite_utils.Database, run_id: str, since: int) -> tuple[StoredState, ...]:
    """The states of a run from the one with the id `since` on, oldest first; of 0 all of them. Raises UserError for an
    unknown run.
    """
    require_run(db, run_id)
    query = "SELECT id, settings, prompts, created FROM run_states WHERE run = ? AND id >= ? ORDER BY id"
    return tuple(_state(row) for row in db.query(query, [run_id, since]))


def read_prompt_states(db: sqlite_utils.Database, run_id: str) -> tuple[StoredState, ...]:
    """The states of a run with which its prompts became others, oldest first."""
    changed = "SELECT *, lag(prompts, 1, '{}') OVER (ORDER BY id) AS earlier FROM run_states WHERE run = ?"
    query = f"SELECT id, settings, prompts, created FROM ({changed}) WHERE prompts <> earlier ORDER BY id"
    return tuple(_state(row) for row in db.query(query, [run_id]))


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


def run_exists(db: sqlite_utils.Database, run_id: str) -> bool:
    """Whether there is such a run, removed or not."""
    return _first(db, "SELECT 1 FROM runs WHERE id = ?", [run_id]) is not None


def require_run(db: sqlite_utils.Database, run_id: str) -> None:
    """Raises UserError when there is no such run."""
    if not run_exists(db, run_id):
        raise UserError(f"This workspace has no run {run_id[:80]!r}; pick one from the list of runs.")


def _change_state(db: sqlite_utils.Database, run_id: str, **changes: Any) -> int | None:
    require_run(db, run_id)
    state = _latest_state(db, run_id)
    if all(state[field] == value for field, value in changes.items()):
        return None
    return _append_state(db, run_id, {**state, **changes})


def _append_state(db: sqlite_utils.Database, run_id: str, state: Row) -> int:
    return insert_row(db, "run_states", {"run": run_id, **state, "created": now()})


def _latest_state(db: sqlite_utils.Database, run_id: str) -> dict[str, Any]:
    """What a person may change, without the row's own columns."""
    row = dict(next(db.query("SELECT * FROM run_states WHERE run = ? ORDER BY id DESC LIMIT 1", [run_id])))
    return {name: value for name, value in row.items() if name not in ("id", "run", "created")}


def _latest_values(db: sqlite_utils.Database, run_id: str) -> list[StoredValue]:
    query = "SELECT * FROM stage_values WHERE id IN (SELECT max(id) FROM stage_values WHERE run = ? GROUP BY stage)"
    found = {value.stage: value for value in map(_value, db.query(query, [run_id]))}
    return [found[stage] for stage in STAGES if stage in found]


def _copy_name(db: sqlite_utils.Database, name: str) -> str:
    """ "Street, copy", or "Street, copy 2" where a run has that name already."""
    taken = {row["name"] for row in db.query("SELECT DISTINCT name FROM run_states")}
    root = re.sub(r", copy( \d+)?$", "", name)[: LONGEST_NAME - 20]
    copies = (f"{root}, copy" + (f" {number}" if number > 1 else "") for number in itertools.count(1))
    return next(copy for copy in copies if copy not in taken)


def _name(name: str) -> str:
    name = " ".join(name.split())
    if not name:
        raise UserError("The run has no name; give it one.")
    if len(name) > LONGEST_NAME:
        raise UserError(f"The name of the run has {len(name)} characters; give it one of at most {LONGEST_NAME}.")
    return name


def _state(row: Row) -> StoredState:
    return StoredState(row["id"], json.loads(row["settings"]), json.loads(row["prompts"]), when(row["created"]))


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


def _first(db: sqlite_utils.Database, query: str, parameters: Sequence[Any]) -> Row | None:
    return next(iter(db.query(query, parameters)), None)
