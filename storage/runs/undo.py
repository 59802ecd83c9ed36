"""The undo history of a run. Nothing is deleted, as an undo adds rows that repeat the earlier state.

The steps come from the tables that store changes: states of the run, versions of values, reviews. `undo_log` records
which steps were undone and redone, and which rows each undo or redo added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.errors import UserError
from core.run_steps import Path, RunSteps, UndoStep
from core.stored_runs import Verdict
from storage.engine.database import Repository, read, write
from storage.engine.queries import first_value, insert_row
from storage.engine.rows import Row, now, pack
from storage.runs.rows import append_state, empty_stage, latest_state, repeat_value, require_run
from storage.runs.test_cases import insert_review

_QUERIES = DataTable(__file__, str)


Way = Literal["undo", "redo"]


class Steps(Repository):
    @read
    def of(self, db: Db, run_id: str) -> RunSteps:
        """Return the steps of a run that can be undone or redone. Raises UserError for an unknown run."""
        require_run(db, run_id)
        history = _steps(db, run_id)
        return RunSteps(_told(db, history.done), _told(db, history.undone))

    @write
    def take(self, db: Db, run_id: str, what: Way, key: str) -> tuple[int, ...]:
        """Undo or redo a step. Return the ids of the rows that this added, in the table of the step's kind. Raises
        UserError for an undo of a step that is not in effect, and for a redo after something else was done.
        """
        history = _steps(db, run_id)
        steps = history.done if what == "undo" else history.undone
        step = next((one for one in steps if one.key == key), None)
        if step is None:
            raise UserError("The run has changed since the page was opened: reload the page, and try again.")
        added = {"state": _put_state, "value": _put_values, "review": _put_reviews}[step.kind](db, run_id, step, what)
        made = pack([(step.kind, number) for number in added])
        insert_row(db, "undo_log", {"run": run_id, "what": what, "step": step.key, "made": made, "created": now()})
        return added


def _steps(db: Db, run_id: str) -> RunSteps:
    log = list(db.query("SELECT * FROM undo_log WHERE run = ? ORDER BY id", [run_id]))
    began = max((entry["created"] for entry in log if entry["what"] == "begin"), default="")
    added = {(kind, number) for entry in log for kind, number in json.loads(entry["made"])}
    rows = db.query(_QUERIES["events"], {"run": run_id, "began": began})
    events = [row for row in rows if (row["kind"], row["id"]) not in added]
    events += [entry for entry in log if entry["what"] != "begin"]
    done: list[UndoStep] = []
    undone: list[UndoStep] = []
    for event in sorted(events, key=lambda event: event["created"]):
        if "kind" in event:
            _add(done, event)
            undone.clear()
        elif event["what"] == "undo":
            _move(event["step"], done, undone)
        else:
            _move(event["step"], undone, done)
    return RunSteps(tuple(done), tuple(undone))


def _add(done: list[UndoStep], row: Row) -> None:
    stages = (row["stage"],) if row["stage"] else ()
    for place, step in enumerate(done if row["batch"] else ()):
        if step.batch == row["batch"]:
            done[place] = replace(step, rows=(*step.rows, row["id"]), stages=(*step.stages, *stages))
            return
    done.append(UndoStep(row["kind"], (row["id"],), stages, row["author"] == "person", batch=row["batch"]))


def _move(key: str, source: list[UndoStep], target: list[UndoStep]) -> None:
    for step in [step for step in source if step.key == key]:
        source.remove(step)
        target.append(step)


def _told(db: Db, steps: Sequence[UndoStep]) -> tuple[UndoStep, ...]:
    if not steps or steps[-1].kind != "state":
        return tuple(steps)
    return (*steps[:-1], replace(steps[-1], changed=tuple(_changes(db, steps[-1].rows[0]))))


# Of a state only the values that the step changed are restored. Other changes stay

_ABSENT = object()
_AS_JSON = ("task", "settings", "prompts")


def _changes(db: Db, state_id: int) -> dict[Path, tuple[Any, Any]]:
    after, before = (_leaves(row) for row in db.query(_QUERIES["states"], {"id": state_id}))
    paths = dict.fromkeys((*before, *after))
    pairs = {path: (before.get(path, _ABSENT), after.get(path, _ABSENT)) for path in paths}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def _leaves(row: Row) -> dict[Path, Any]:
    """Return the values in a state by their paths. A mask and its class names count as one value."""
    leaves: dict[Path, Any] = {
        ("name",): row["name"],
        ("recipe",): row["recipe"],
        ("mask",): (row["mask"], row["mask_classes"]),
    }
    for column in _AS_JSON:
        for name, part in json.loads(row[column]).items():
            if column == "settings" and isinstance(part, dict):
                leaves |= {(column, name, field): value for field, value in part.items()}
            else:
                leaves[(column, name)] = part
    return leaves


def _columns(leaves: Mapping[Path, Any]) -> dict[str, Any]:
    mask, classes = leaves[("mask",)]
    plain: dict[str, dict[str, Any]] = {column: {} for column in _AS_JSON}
    for path, value in leaves.items():
        if len(path) == 2:
            plain[path[0]][path[1]] = value
        elif len(path) == 3:
            plain[path[0]].setdefault(path[1], {})[path[2]] = value
    named = {"name": leaves[("name",)], "recipe": leaves[("recipe",)], "mask": mask, "mask_classes": classes}
    return named | {column: pack(value) for column, value in plain.items()}


def _put_state(db: Db, run_id: str, step: UndoStep, what: str) -> tuple[int, ...]:
    current = latest_state(db, run_id)
    leaves = _leaves(current)
    for path, (before, after) in _changes(db, step.rows[0]).items():
        value = before if what == "undo" else after
        if value is _ABSENT:
            leaves.pop(path, None)
        else:
            leaves[path] = value
    return (append_state(db, run_id, {**current, **_columns(leaves)}),)


def _put_values(db: Db, run_id: str, step: UndoStep, what: str) -> tuple[int, ...]:
    added = []
    for stage in dict.fromkeys(step.stages):
        rows = [number for number, of_stage in zip(step.rows, step.stages, strict=True) if of_stage == stage]
        query = "SELECT max(id) FROM stage_values WHERE run = ? AND stage = ? AND id < ?"
        source = rows[-1] if what == "redo" else first_value(db, query, [run_id, stage, rows[0]])
        number = repeat_value(db, source) if source is not None else None
        added.append(empty_stage(db, run_id, stage) if number is None else number)
    return tuple(added)


def _put_reviews(db: Db, run_id: str, step: UndoStep, what: str) -> tuple[int, ...]:
    added = []
    for number in step.rows:
        case = first_value(db, "SELECT test_case FROM reviews WHERE id = ?", [number])
        last = number if what == "redo" else number - 1
        verdict: Verdict
        verdict, reason, restores = db.execute(_QUERIES["review"], [case, last]).fetchone() or ("open", "", 0)
        added.append(insert_review(db, case, verdict, reason, restores))
    return tuple(added)
