"""Database rows of a run: its states and the versions of its values. Each change adds a row; the latest counts."""

from __future__ import annotations

from typing import Any

from sqlite_utils import Database as Db

from core.csv_tables import cells
from core.errors import UserError
from core.stored_runs import StoredValue
from core.types import StageName, StageValue, Trace, stage_kinds, to_plain
from storage.engine.database import first_row
from storage.engine.queries import first_value, insert_row
from storage.engine.rows import Row, now, pack, pack_value, record_of, unpack_value


def require_run(db: Db, run_id: str) -> None:
    """Raise UserError if there is no run with this id."""
    if not run_exists(db, run_id):
        raise UserError(f"This workspace has no run {run_id[:80]!r}; pick one from the list of runs.", field="run")


def run_exists(db: Db, run_id: str) -> bool:
    """Return True if the workspace stores this run. Deleted runs are stored too."""
    return first_row(db, "SELECT 1 FROM runs WHERE id = ?", [run_id]) is not None


def insert_value(db: Db, run_id: str, stage: StageName, value: StageValue[Any], batch: str = "") -> int:
    """Insert a version of a stage's value and return its id. Versions of one `batch` are undone together.

    Raises UserError for an unknown run, and TypeError if the value has the type of another stage.
    """
    kind = stage_kinds()[stage].value
    if not isinstance(value.value, kind):
        raise TypeError(f"the stage {stage} has a {kind.__name__}, not a {type(value.value).__name__}")
    require_run(db, run_id)
    appear(db, run_id)
    trace = value.trace
    row = {
        "run": run_id,
        "stage": stage,
        "value": pack_value(value.value),
        **cells(trace, "author model prompt raw_reply attempts seconds"),
        "settings": pack(to_plain(dict(trace.settings))),
        "seed": str(trace.seed),
        "notes": pack(list(trace.notes)),
        "inputs_key": value.inputs_key,
        "batch": batch,
        "created": now(),
    }
    return insert_row(db, "stage_values", row)


def repeat_value(db: Db, value_id: int) -> int | None:
    """Insert a copy of an earlier version as the latest. Return its id, or None if that version does not exist."""
    row = first_row(db, "SELECT * FROM stage_values WHERE id = ? AND value <> 'null'", [value_id])
    if row is None:
        return None
    del row["id"]
    return insert_row(db, "stage_values", {**row, "brought_back": value_id, "batch": "", "created": now()})


def empty_stage(db: Db, run_id: str, stage: StageName) -> int:
    """Insert an empty version of a stage's value and return its id. Earlier versions stay."""
    texts = dict.fromkeys(("model", "prompt", "raw_reply", "inputs_key"), "")
    plain = {"value": "null", "author": "person", "settings": "{}", "seed": "0", "attempts": 0, "seconds": 0.0}
    return insert_row(db, "stage_values", {"run": run_id, "stage": stage, **plain, **texts, "created": now()})


def begin_steps(db: Db, run_id: str) -> None:
    """Mark the present content as the start of a run. Nothing that was saved earlier can be undone."""
    state = first_value(db, "SELECT max(id) FROM run_states WHERE run = ?", [run_id])
    insert_row(db, "undo_log", {"run": run_id, "what": "begin", "step": str(state), "made": "[]", "created": now()})


BEGUN = "coalesce((SELECT max(CAST(step AS INTEGER)) FROM undo_log WHERE run = summary.run AND what = 'begin'), 0)"
"""SQL for the id of the state with which a run last started (`begin_steps`); 0 if it never did."""


def waits(db: Db, run_id: str) -> bool:
    """Return True if a run is not in the list of runs yet, as nobody has done anything with it."""
    query = f"SELECT removed AND state <= {BEGUN} FROM run_summaries AS summary WHERE run = ?"
    return bool(first_value(db, query, [run_id]))


def appear(db: Db, run_id: str) -> None:
    if waits(db, run_id):
        append_state(db, run_id, {**latest_state(db, run_id), "removed": 0})


def change_state(db: Db, run_id: str, **changes: Any) -> int | None:
    require_run(db, run_id)
    state = latest_state(db, run_id)
    if all(state[field] == value for field, value in changes.items()):
        return None
    if "removed" not in changes:
        appear(db, run_id)
    return append_state(db, run_id, {**latest_state(db, run_id), **changes})


def append_state(db: Db, run_id: str, state: Row) -> int:
    return insert_row(db, "run_states", {"run": run_id, **state, "created": now()})


def latest_state(db: Db, run_id: str) -> dict[str, Any]:
    """Return the columns of a run's latest state by name, without id, run and time."""
    row = next(db.query("SELECT * FROM run_states WHERE run = ? ORDER BY id DESC LIMIT 1", [run_id]))
    return {name: value for name, value in row.items() if name not in ("id", "run", "created")}


def latest_values(db: Db, run_id: str) -> dict[StageName, StoredValue]:
    """Return the latest values by stage, in stage order. Values of stages that no recipe has are left out."""
    latest = "SELECT max(id) FROM stage_values WHERE run = ? GROUP BY stage"
    query = f"SELECT * FROM stage_values WHERE id IN ({latest}) AND value <> 'null'"
    row_by_stage = {row["stage"]: row for row in db.query(query, [run_id])}
    return {stage: stored_value(row_by_stage[stage]) for stage in stage_kinds() if stage in row_by_stage}


def stored_value(row: Row) -> StoredValue:
    trace = record_of(Trace, row)
    value = unpack_value(stage_kinds()[row["stage"]].value, row["value"])
    return record_of(StoredValue, row, run_id=row["run"], value=StageValue(value, trace, row["inputs_key"]))
