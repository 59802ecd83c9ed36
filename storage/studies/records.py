"""A whole study as plain rows, to move the study to another workspace. The functions take an open database.

The rows come from an untrusted file: only known columns with values of the right type are accepted, references must
lead to other rows of the file, and the rules of the tables hold. The rows never contain sign-in data.
"""

from __future__ import annotations

import json
import re
import secrets
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.errors import UserError
from core.panel import Panel, check_panel
from core.studies import NewItem, Rules
from storage.engine.queries import change_row, first_value, insert_row, insert_rows
from storage.engine.rows import Row, pack, pack_value, unpack_value, when, whole
from storage.studies.rows import append_log, require_study

Records = Mapping[str, Any]
"""Rows of a study by table. The table "study" has one row, the study itself."""
_STUDY = "id name state rules created changed"


@dataclass(frozen=True)
class RecordTable:
    columns: str
    query: str


_TABLES = DataTable(__file__, RecordTable)
_WHOLE = frozenset(
    "version place blocked excluded exclusion readmitted given reached id number counts imported first_vote vote "
    "changes was_right decision assignment item archived".split()
)
_MAY_MISS = frozenset("place source consented exclusion first_vote vote submitted was_right decision key".split())
_TIMES = frozenset("created changed consented accepted expires submitted".split())
_WORKER = re.compile(r"[\w.:@-]{1,90}")
_NOT_OURS = "This file is not one that the studio wrote, or it was changed"


def records_of(db: Db, study_id: str) -> dict[str, Any]:
    """Return all rows of a study. Raises UserError for an unknown study."""
    records: dict[str, Any] = {"study": _only(require_study(db, study_id), _STUDY)}
    for name, table in _TABLES.items():
        records[name] = [_only(row, table.columns) for row in db.query(table.query, [study_id])]
    return records


def _only(row: Mapping[str, Any], columns: str) -> dict[str, Any]:
    return {name: row[name] for name in columns.split()}


def insert_records(db: Db, records: Records, images: Mapping[str, str], check: Callable[[str], None]) -> str:
    """Insert a study with all its rows; return its id. A running study becomes paused.

    `images` maps hashes in the records to pictures of this workspace. `check` is called with the new id at the end. If
    another worker here has the name of a restored worker, the restored worker gets a new name. Raises UserError if the
    records are inconsistent or the study exists here already.
    """
    try:
        study_id = _Restoring(db, records, images).run()
        check(study_id)
    except (KeyError, TypeError, ValueError, AttributeError, sqlite3.Error) as error:
        raise UserError(
            f"{_NOT_OURS}: its records contradict each other or are incomplete. Nothing was restored."
        ) from error
    return study_id


class _Restoring:
    """Restores one study. Raises KeyError, TypeError, ValueError or an error of SQLite for inconsistent rows."""

    def __init__(self, db: Db, records: Records, images: Mapping[str, str]) -> None:
        self._db, self._records, self._images = db, records, images
        self._study_id = ""

    def run(self) -> str:
        study = _checked(self._records["study"], _STUDY)
        self._study_id = str(study["id"])
        if not re.fullmatch("[0-9a-f]{16}", self._study_id):
            raise ValueError("the id of a study is 16 hexadecimal digits")
        if name := first_value(self._db, "SELECT name FROM studies WHERE id = ?", [self._study_id]):
            raise UserError(f"This workspace has this study already, as “{name}”: only a missing one can be restored.")
        rules = self._rules(study["rules"])
        state = "paused" if study["state"] == "running" else study["state"]
        columns = {"state": state, "rules": pack_value(rules), "votes": rules.votes, "link": None}
        self._insert("studies", {**study, **columns})
        for row in self._rows("rules"):
            self._insert("study_rules", {**row, "rules": pack_value(self._rules(row["rules"])), **self._here})
        items = {row["id"]: insert_row(self._db, "study_items", self._item(row)) for row in self._rows("items")}
        names = {row["id"]: self._worker(row) for row in self._rows("workers")}
        self._said(items, names)
        for row in self._rows("adjudications"):
            self._append("adjudications", {**row, "item": items[row["item"]]})
        for row in self._rows("log"):
            self._append("study_log", {**row, "worker": names.get(row["worker"], row["worker"])})
        for row in self._rows("archive"):
            self._append("study_archive", row)
        for row in self._rows("panels"):
            panel: Panel = unpack_value(Panel, row["settings"])
            if check_panel(panel)[0]:
                raise ValueError("a panel has other settings")
            self._append("study_panels", {**row, "settings": pack_value(panel)})
        for row in self._rows("browsers"):
            insert_rows(self._db, "worker_browsers", [{**row, "worker": names[row["worker"]]}], ignore=True)
        append_log(self._db, "restored", f"from a file, as it was {study['changed']}", self._study_id)
        return self._study_id

    @property
    def _here(self) -> Row:
        return {"study": self._study_id}

    def _rows(self, table: str) -> list[dict[str, Any]]:
        return [_checked(row, _TABLES[table].columns) for row in self._records[table]]

    def _insert(self, table: str, row: Row) -> None:
        insert_rows(self._db, table, [row])

    def _append(self, table: str, row: Row) -> int:
        return insert_row(self._db, table, {**{name: row[name] for name in row if name != "id"}, **self._here})

    def _rules(self, text: str) -> Rules:
        rules: Rules = unpack_value(Rules, text)
        examples = tuple(replace(example, sha=self._images[example.sha]) for example in rules.examples)
        return replace(rules, examples=examples)

    def _item(self, row: Row) -> Row:
        content = json.loads(row["content"])
        read: NewItem = unpack_value(NewItem, pack({**content, "image_sha": row["image"]}))
        if set(content) - {*vars(read)} or not re.fullmatch("[0-9a-f]{16}", row["public"]):
            raise ValueError("an item has other fields")
        pictures = {"image": self._images[row["image"]], "source": row["source"] and self._images[row["source"]]}
        # A test case belongs to the workspace that the study comes from.
        content["test_case"] = None
        return {**_only(row, "public kind place created"), "content": pack(content), **pictures, **self._here}

    def _worker(self, row: Row) -> str:
        """Restore a worker and return the worker's name, with a number added if another worker here has this name."""
        name, tries = str(row["id"]), 1
        if not _WORKER.fullmatch(name):
            raise ValueError("a worker has another name")
        while created := first_value(self._db, "SELECT created FROM workers WHERE id = ?", [name]):
            if created == row["created"]:
                return name
            tries += 1
            name = f"{row['id']}-{tries}"
        self._insert("workers", _only(row, "id created blocked") | {"id": name})
        return name

    def _said(self, items: Mapping[int, int], names: Mapping[str, str]) -> None:
        """Insert enrolments, exclusions, decisions on workers, assignments and votes. Triggers update the counters."""

        def of(row: Row) -> Row:
            return {**row, "worker": names[row["worker"]]}

        exclusions = {row["id"]: self._append("exclusions", of(row)) for row in self._rows("exclusions")}
        for row in self._rows("enrolments"):
            self._insert("enrolments", {**of(row), **self._here, "exclusion": _at(exclusions, row["exclusion"])})
        decisions = {row["id"]: self._append("decisions", of(row)) for row in self._rows("decisions")}
        assignments = self._rows("assignments")
        ids = {}
        fixed = "worker kind side number imported accepted expires"
        for row in assignments:
            # Rows count only after all exist. So an item never seems to have too many votes in the meantime.
            new = {**_only(of(row), fixed), "item": items[row["item"]], "state": "expired", "counts": 0}
            tokens = {"public": secrets.token_urlsafe(16), "image_token": secrets.token_urlsafe(16)}
            if first_value(self._db, "SELECT source FROM study_items WHERE id = ?", [new["item"]]) is not None:
                tokens["source_token"] = secrets.token_urlsafe(16)
            ids[row["id"]] = self._append("assignments", {**new, **tokens})
        votes = {}
        for row in self._rows("votes"):
            answers = json.loads(row["answers"])
            if not all(isinstance(part, str) for pair in answers.items() for part in pair):
                raise ValueError("answers are text by question")
            new = {**row, "assignment": ids[row["assignment"]], "answers": pack(answers)}
            del new["id"]
            votes[row["id"]] = insert_row(self._db, "study_votes", new)
        for row in assignments:
            state = "expired" if row["state"] == "leased" else row["state"]
            columns = {"first_vote": _at(votes, row["first_vote"]), "vote": _at(votes, row["vote"]), "state": state}
            more = {**_only(row, "submitted changes was_right verdict"), "decision": _at(decisions, row["decision"])}
            change_row(self._db, "assignments", ids[row["id"]], {**columns, **more})
        for row in assignments:
            change_row(self._db, "assignments", ids[row["id"]], {"counts": row["counts"]})
        for row in self._rows("training_read"):
            self._insert("training_read", {**row, "assignment": ids[row["assignment"]]})


def _at(ids: Mapping[int, int], key: int | None) -> int | None:
    return None if key is None else ids[key]


def _checked(row: Any, columns: str) -> dict[str, Any]:
    """Return the known columns of a row, each checked by its type. Raises ValueError, KeyError or TypeError."""
    checked: dict[str, Any] = {}
    for name in columns.split():
        value = row[name]
        if value is None and name in _MAY_MISS:
            pass
        elif name in _WHOLE and not (name == "id" and isinstance(value, str)):
            if isinstance(value, bool) or not isinstance(value, int):
                raise ValueError(f"{name} is no whole number")
        elif name == "seconds":
            value = float(value)
            if not 0 <= value < 1e9:
                raise ValueError("seconds are from 0 on")
        elif not isinstance(value, str):
            raise ValueError(f"{name} is no text")
        elif name in _TIMES and when(value).tzinfo is None:
            raise ValueError(f"{name} names no zone")
        checked[name] = whole(value) if isinstance(value, str) else value
    return checked
