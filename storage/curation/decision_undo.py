"""The state of images after a decision about them is undone or redone.

Undoing an undo redoes the first decision: decisions that undo each other form a chain from a first one, and its length
determines whether the first one is in force.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.errors import UserError
from storage.engine.rows import Row

DecisionKind = Literal["review", "tag", "label"]
_LOGS: dict[DecisionKind, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "review": (("reviews", ("test_case",)), ("reviews", ("entry",))),
    "tag": (("catalogue_tags", ("entry", "tag")),),
    "label": (("catalogue_labels", ("entry",)),),
}
"""Tables of the decisions of each kind, and the columns that identify one image or its tag in each."""
_SAID: dict[str, dict[str, Any]] = {
    "reviews": {"verdict": "open", "reason": ""},
    "catalogue_tags": {"put": 0},
    "catalogue_labels": {"label": ""},
}
"""Columns of a decision, by table, with their values before any decision."""
_QUERIES = DataTable(__file__, str)


def log_of(kind: DecisionKind) -> str:
    """Return the table of this kind of decision."""
    return _LOGS[kind][0][0]


@dataclass(frozen=True)
class WordAfter:
    """The value to store for one image after an undo or redo."""

    table: str
    values: dict[str, Any]
    """Values of the row, except author and time."""
    changes: bool


def in_force(db: Db, decision: int) -> Row:
    """Return the row to undo for a decision: its own, or its latest redo. Raises UserError if it is unknown or not in
    force.
    """
    found = _tip(db, decision)
    if found is None:
        raise UserError(f"There is no decision {decision}; take one from the list.", field="decision")
    row, counts = found
    if not counts:
        raise UserError("This decision was undone already: look at the current state.", field="decision")
    return row


def last_of(db: Db, author: str) -> Row:
    """Return the row to undo for the author's latest decision in force. Raises UserError without one."""
    query = "SELECT id FROM image_decisions WHERE author = ? AND undoes IS NULL ORDER BY id DESC"
    for (number,) in db.execute(query, [author]):
        found = _tip(db, number)
        if found is not None and found[1]:
            return found[0]
    raise UserError("You have no decision to undo.", field="decision")


def _tip(db: Db, decision: int) -> tuple[Row, bool] | None:
    """Return the last decision in the chain of undos from this one, and if this one is in force; None if unknown."""
    rows = list(db.query("SELECT * FROM image_decisions WHERE id = ?", [decision]))
    if not rows:
        return None
    row, counts = rows[0], True
    while undoing := list(db.query("SELECT * FROM image_decisions WHERE undoes = ?", [row["id"]])):
        row, counts = undoing[0], not counts
    return row, counts


def words_after(db: Db, tip: Row) -> tuple[list[WordAfter], bool]:
    """Return the values to store once a chain's last decision is undone, and whether its first one is in force then."""
    first, again = tip, False
    while first["undoes"] is not None:
        first, again = next(iter(db.query("SELECT * FROM image_decisions WHERE id = ?", [first["undoes"]]))), not again
    return [word for log in _LOGS[first["kind"]] for word in _words(db, first["id"], *log)], again


def _words(db: Db, decision: int, table: str, keys: tuple[str, ...]) -> list[WordAfter]:
    """Return, for every image of a chain's first decision, the value in this table once the last one is undone.

    It comes from the latest row whose decision is in force then. A row that repeats an earlier one for an undo does not
    count itself; one that Explore undid in a run does.
    """
    key = " AND ".join(f"{table}.{name} = held.{name}" for name in keys)
    defaults = _SAID[table]
    columns = ", ".join([*(f"held.{name}" for name in keys), *(f"was.{name} AS was_{name}" for name in defaults)])
    if table == "catalogue_labels":
        columns += ", (SELECT label FROM catalogue WHERE id = held.entry) AS label_now"
    query = _QUERIES["words_after"].format(table=table, columns=columns, key=key, keys=", ".join(keys), first=keys[0])
    statements = []
    for row in db.query(query, {"decision": decision}):
        values = {name: row[name] for name in keys} | {"restores": row["restores"]}
        values |= {name: row[f"was_{name}"] if row["had"] else none for name, none in defaults.items()}
        if table == "catalogue_labels":
            values["before"] = row["label_now"]
        statements.append(WordAfter(table, values, bool(row["changes"])))
    return statements
