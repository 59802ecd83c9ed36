"""Studies, their rules and items: the rows and back. Functions of an open database, like those of `storage.runs`.

What a person typed is only ever a bound parameter.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

import sqlite_utils

from pipeline.errors import UserError
from storage.next_items import look_again
from storage.rows import Row, insert_row, now, pack, pack_value, unpack_value, when, whole
from storage.study_types import LogEntry
from study.types import Item, NewItem, Rules, Study, StudyState

LONGEST_NAME = 200
"""Characters in the name of a study."""
LONGEST_DETAIL = 1000
"""Characters of a line in the log: what a stranger sent must not fill the disk."""
MOST_ITEMS = 100_000
"""Items of a study, control items and quiz included."""
_CONTENT = ("expected label classes edit_types caption counterfactual test_case model model_right group origin").split()


def create_study(db: sqlite_utils.Database, name: str, rules: Rules) -> str:
    """A new draft; its id is 16 hexadecimal digits. Raises UserError for a name that is empty or too long."""
    study_id, time = secrets.token_hex(8), now()
    row = {"id": study_id, "name": _name(name), "state": "draft", "created": time, "changed": time}
    db.table("studies").insert({**row, **_rules_columns(replace(rules, version=0))})
    append_log(db, "created", "", study_id)
    return study_id


def rename_study(db: sqlite_utils.Database, study_id: str, name: str) -> None:
    """Give the study another name, in any state. Raises UserError for an unknown study or a name that does not do."""
    study, name = require_study(db, study_id), _name(name)
    if study["name"] != name:
        db.execute("UPDATE studies SET name = ? WHERE id = ?", [name, study_id])
        touch(db, study_id)
        append_log(db, "renamed", f"from “{study['name']}” to “{name}”", study_id)


def delete_draft(db: sqlite_utils.Database, study_id: str) -> None:
    """Let a draft go, with its items; a line of the log stays. Raises UserError once the study has started."""
    study = require_study(db, study_id)
    if study["state"] != "draft":
        raise UserError("A study that has started is kept, with all its votes; it can be closed.")
    for table in ("study_items", "enrolments"):
        db.execute(f"DELETE FROM {table} WHERE study = ?", [study_id])
    db.execute("DELETE FROM studies WHERE id = ?", [study_id])
    append_log(db, "draft deleted", study["name"], study_id)


def set_rules(db: sqlite_utils.Database, study_id: str, rules: Rules) -> None:
    """Give a draft other rules. Raises UserError for a study that has started."""
    if require_study(db, study_id)["state"] != "draft":
        raise UserError("The rules of a study are fixed when it starts; make a new study for other rules.")
    _update(db, study_id, _rules_columns(replace(rules, version=0)))


def set_votes(db: sqlite_utils.Database, study_id: str, votes: int, consensus: int) -> None:
    """Ask for more votes an item: a new version of the rules. Raises UserError for fewer, or a study not going on."""
    row = require_study(db, study_id)
    rules = rules_of(row["rules"])
    if row["state"] not in ("running", "paused"):
        raise UserError("Votes can be added to a study that is running or paused.")
    if votes < rules.votes:
        raise UserError(f"Every item gets {rules.votes} votes already; name that number or a larger one.")
    if not 1 <= consensus <= votes:
        raise UserError(f"A consensus of {votes} votes takes between 1 and {votes} equal answers.")
    if (votes, consensus) == (rules.votes, rules.consensus):
        return
    later = replace(rules, votes=votes, consensus=consensus, version=rules.version + 1)
    _update(db, study_id, _rules_columns(later))
    _keep_version(db, study_id, later)
    look_again(db, study_id)
    change = f"votes of an item from {rules.votes} to {votes}, consensus from {rules.consensus} to {consensus}"
    append_log(db, "extended", change, study_id)


def add_items(db: sqlite_utils.Database, study_id: str, items: Sequence[NewItem]) -> tuple[int, ...]:
    """Add items whose images are in the workspace; returns their ids, in order.

    Raises UserError for a study that is closed, an image that is not there, or too many items.
    """
    study = require_study(db, study_id)
    if study["state"] == "closed":
        raise UserError("This study is closed: nothing can be added to it; make a new study.")
    there = _count(db, "SELECT count(*) FROM study_items WHERE study = ?", [study_id])
    if there + len(items) > MOST_ITEMS:
        raise UserError(f"A study has at most {MOST_ITEMS:,} items; choose fewer.")
    _require_images(db, items)
    ids = tuple(_insert_item(db, study_id, item) for item in items)
    if study["state"] != "draft" and ids:
        _give_places(db, study_id)
        kinds = {item.kind for item in items}
        counts = (f"{sum(item.kind == kind for item in items)} of kind {kind}" for kind in sorted(kinds))
        append_log(db, "extended", "items added: " + ", ".join(counts), study_id)
    touch(db, study_id)
    return ids


def remove_items(db: sqlite_utils.Database, study_id: str, ids: Sequence[int]) -> None:
    """Take items out of a draft; ids that are not in it change nothing. Raises UserError once the study has started."""
    if require_study(db, study_id)["state"] != "draft":
        raise UserError("The items of a study are fixed when it starts; it can be extended, nothing can be taken out.")
    for item_id in ids:
        db.execute("DELETE FROM study_items WHERE id = ? AND study = ?", [item_id, study_id])
    touch(db, study_id)


def change_state(db: sqlite_utils.Database, study_id: str, state: StudyState, only: StudyState | None = None) -> None:
    """Start, pause, resume or close; again the same changes nothing. With `only`, no other state is left for it.

    Raises UserError for a step that is none.
    """
    old: StudyState = require_study(db, study_id)["state"]
    if old == state:
        return
    if old == "closed":
        raise UserError("This study is closed, for good; make a new study to go on.")
    if old == "draft" and (state != "running" or only == "paused"):
        raise UserError("This study has not started yet; start it first.")
    if old == "paused" and only == "draft":
        raise UserError("This study has started already and is paused; resume it.")
    if old == "draft":
        _freeze(db, study_id)
    event = {"running": "started" if old == "draft" else "resumed", "paused": "paused", "closed": "closed"}[state]
    if state == "closed":
        db.execute("UPDATE assignments SET state = 'expired' WHERE study = ? AND state = 'leased'", [study_id])
    _update(db, study_id, {"state": state})
    append_log(db, event, "", study_id)


def set_link(db: sqlite_utils.Database, study_id: str, on: bool) -> str:
    """Open the invitation, or end it; returns its token, "" when it is off. An ended one never opens again."""
    study = require_study(db, study_id)
    if bool(study["link"]) == on:
        return study["link"] or ""
    link = secrets.token_urlsafe(16) if on else None
    _update(db, study_id, {"link": link})
    append_log(db, "invitation opened" if on else "invitation ended", "", study_id)
    return link or ""


def require_study(db: sqlite_utils.Database, study_id: str) -> Row:
    """The study's row. Raises UserError when there is no such study."""
    for row in db.query("SELECT * FROM studies WHERE id = ?", [study_id]):
        return row
    raise UserError(f"This workspace has no study {study_id[:80]!r}; pick one from the list of studies.")


def read_study(db: sqlite_utils.Database, study_id: str) -> Study:
    """A study as the list shows it. Raises UserError for an unknown study."""
    return _study(db, require_study(db, study_id))


def read_studies(db: sqlite_utils.Database) -> tuple[Study, ...]:
    """All studies, the latest first."""
    rows = list(db.query("SELECT * FROM studies ORDER BY created DESC, rowid DESC"))
    return tuple(_study(db, row) for row in rows)


def read_items(db: sqlite_utils.Database, study_id: str) -> tuple[Item, ...]:
    """The items of a study in the order in which they were added. Raises UserError for an unknown study."""
    require_study(db, study_id)
    return tuple(map(item_of, db.query("SELECT * FROM study_items WHERE study = ? ORDER BY id", [study_id])))


def read_rules(db: sqlite_utils.Database, study_id: str) -> tuple[tuple[Rules, datetime], ...]:
    """The rules that the study went by, and since when, oldest first; () of a draft. Raises UserError."""
    require_study(db, study_id)
    rows = db.query("SELECT rules, created FROM study_rules WHERE study = ? ORDER BY version", [study_id])
    return tuple((rules_of(row["rules"]), when(row["created"])) for row in rows)


def item_of(row: Row) -> Item:
    """The item in a row of study_items."""
    content = json.loads(row["content"])
    for name in ("classes", "edit_types"):
        content[name] = tuple(content[name])
    return Item(
        image_sha=row["image"],
        source_sha=row["source"],
        kind=row["kind"],
        id=row["id"],
        public=row["public"],
        **content,
    )


@lru_cache(maxsize=64)
def rules_of(text: str) -> Rules:
    """The rules in a column. Kept by their text: every claim and every vote needs them."""
    rules: Rules = unpack_value(Rules, text)
    return rules


def touch(db: sqlite_utils.Database, study_id: str) -> None:
    """Something changed that a result could show."""
    _update(db, study_id, {})


def append_log(db: sqlite_utils.Database, event: str, detail: str, study_id: str = "", worker: str = "") -> None:
    """A line of the log; what is too long is cut."""
    row = {"study": study_id[:80], "worker": worker[:80], "event": event[:80], "detail": detail[:LONGEST_DETAIL]}
    insert_row(db, "study_log", {**{name: whole(text) for name, text in row.items()}, "created": now()})


def read_log(db: sqlite_utils.Database, study_id: str, limit: int) -> tuple[LogEntry, ...]:
    """The latest lines, latest first; of one study, or of all with ""."""
    where = "WHERE study = :study" if study_id else ""
    rows = db.query(f"SELECT * FROM study_log {where} ORDER BY id DESC LIMIT :n", {"study": study_id, "n": limit})
    return tuple(
        LogEntry(row["id"], when(row["created"]), row["event"], row["detail"], row["study"], row["worker"])
        for row in rows
    )


def _study(db: sqlite_utils.Database, row: Row) -> Study:
    rules = rules_of(row["rules"])
    counts = {kind: _count_items(db, row, kind) for kind in ("item", "control", "quiz")}
    # Every step of every annotator asks for the study: over the workers this is far quicker than over the items.
    query = "SELECT count(*), total(items_seen * (exclusion IS NULL)) FROM enrolments WHERE study = ?"
    workers, votes = db.execute(query, [row["id"]]).fetchone()
    return Study(
        id=row["id"],
        name=row["name"],
        state=row["state"],
        rules=rules,
        created=when(row["created"]),
        changed=when(row["changed"]),
        items=counts["item"],
        controls=counts["control"],
        quiz=counts["quiz"],
        votes=int(votes),
        needed=counts["item"] * rules.votes,
        workers=workers,
        link=row["link"] or "",
    )


def _count_items(db: sqlite_utils.Database, study: Row, kind: str) -> int:
    # Places are given without gaps, but not yet in a draft.
    what = "count(*)" if study["state"] == "draft" else "coalesce(max(place) + 1, 0)"
    return _count(db, f"SELECT {what} FROM study_items WHERE study = ? AND kind = ?", [study["id"], kind])


def _freeze(db: sqlite_utils.Database, study_id: str) -> None:
    row = require_study(db, study_id)
    if not _count(db, "SELECT count(*) FROM study_items WHERE study = ? AND kind = 'item'", [study_id]):
        raise UserError("This study has no items yet; choose the images that are to be judged.")
    rules = replace(rules_of(row["rules"]), version=1)
    if not rules.questions:
        raise UserError("This study asks nothing yet; choose a template or write a question.")
    _update(db, study_id, _rules_columns(rules))
    _keep_version(db, study_id, rules)
    _give_places(db, study_id)


def _give_places(db: sqlite_utils.Database, study_id: str) -> None:
    """Number the items that have no place yet, on from those that have, each kind for itself."""
    for kind in ("item", "control", "quiz"):
        first = _count(
            db, "SELECT count(*) FROM study_items WHERE study = ? AND kind = ? AND place NOT NULL", [study_id, kind]
        )
        query = "SELECT id FROM study_items WHERE study = ? AND kind = ? AND place IS NULL ORDER BY id"
        new = [row["id"] for row in db.query(query, [study_id, kind])]
        for place, item_id in enumerate(new, first):
            db.execute("UPDATE study_items SET place = ? WHERE id = ?", [place, item_id])
    look_again(db, study_id)


def _insert_item(db: sqlite_utils.Database, study_id: str, item: NewItem) -> int:
    content: dict[str, Any] = {name: getattr(item, name) for name in _CONTENT}
    content.update(expected=dict(item.expected), origin=dict(item.origin))
    row = {
        "study": study_id,
        "public": secrets.token_hex(8),
        "kind": item.kind,
        "image": item.image_sha,
        "source": item.source_sha,
        "content": pack(content),
        "created": now(),
    }
    return insert_row(db, "study_items", row)


def _require_images(db: sqlite_utils.Database, items: Sequence[NewItem]) -> None:
    wanted = {sha for item in items for sha in (item.image_sha, item.source_sha) if sha is not None}
    for sha in wanted:
        if not _count(db, "SELECT count(*) FROM images WHERE sha = ?", [sha]):
            raise UserError(f"This workspace has no image {sha[:80]!r}; bring it in first.")


def _keep_version(db: sqlite_utils.Database, study_id: str, rules: Rules) -> None:
    row = {"study": study_id, "version": rules.version, "rules": pack_value(rules), "created": now()}
    db.table("study_rules").insert(row)


def _rules_columns(rules: Rules) -> dict[str, Any]:
    return {"rules": pack_value(rules), "votes": rules.votes}


def _update(db: sqlite_utils.Database, study_id: str, columns: Row) -> None:
    names = "".join(f"{name} = :{name}, " for name in columns)
    query = f"UPDATE studies SET {names}changed = :changed, revision = revision + 1 WHERE id = :id"
    db.execute(query, {**columns, "changed": now(), "id": study_id})


def _count(db: sqlite_utils.Database, query: str, parameters: Sequence[Any]) -> int:
    return int(db.execute(query, parameters).fetchone()[0])


def _name(name: str) -> str:
    name = whole(" ".join(name.split()))
    if not name:
        raise UserError("The study has no name; give it one.")
    if len(name) > LONGEST_NAME:
        raise UserError(f"The name of the study has {len(name)} characters; give it one of at most {LONGEST_NAME}.")
    return name
