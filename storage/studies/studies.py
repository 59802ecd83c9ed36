"""The validity studies of a workspace. Methods that take a study's id raise UserError if the study is unknown."""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlite_utils import Database as Db

from core.csv_tables import cells
from core.data_files import DataTable
from core.errors import UserError
from core.stored_studies import ImportedVote, LogEntry
from core.studies import ITEM_KINDS, Adjudication, Exclusion, Item, NewItem, Rules, Study, StudyData, StudyState, Vote
from storage.engine.database import Database, Repository, read, reading, write, writing
from storage.engine.queries import first_column, first_value, insert_row, insert_rows, records
from storage.engine.rows import Row, checked_text, now, pack, pack_value, record_of, when, whole
from storage.studies.assignments import Assignments, hold_again
from storage.studies.imported_votes import import_vote, imported_worker
from storage.studies.next_items import look_again
from storage.studies.panels import Panels, ways_in
from storage.studies.records import Records, insert_records, records_of
from storage.studies.rows import append_log, item_of, log_change, require_study, rules_of, touch, update_study
from storage.studies.workers import Sessions, Workers, checked_reason, read_workers

LONGEST_NAME = 200
MOST_ITEMS = 100_000
"""Maximum number of items in a study, of all kinds together."""
_CONTENT = "expected why label classes edit_types caption counterfactual test_case model model_right group origin"
"""Fields of an item that are stored together as JSON in one column."""
_QUERIES = DataTable(__file__, str)


def create_study(db: Db, name: str, rules: Rules) -> str:
    """Create a draft and return its id, 16 hexadecimal digits. Raises UserError for an empty or too long name."""
    study_id, time = secrets.token_hex(8), now()
    row = {"id": study_id, "name": _name(name), "state": "draft", "created": time, "changed": time}
    insert_rows(db, "studies", [{**row, **_rules_columns(replace(rules, version=0))}])
    append_log(db, "created", "", study_id)
    return study_id


def _data(db: Db, study_id: str) -> StudyData:
    linked, panelled = ways_in(db, study_id)
    return StudyData(
        study=_study(db, require_study(db, study_id)),
        items=_items(db, study_id),
        votes=records(db, Vote, _QUERIES["votes"], [study_id]),
        workers=read_workers(db, study_id),
        exclusions=records(db, Exclusion, _QUERIES["exclusions"], [study_id]),
        adjudications=records(db, Adjudication, _QUERIES["adjudications"], [study_id]),
        history=_history(db, study_id),
        linked=linked,
        panelled=panelled,
        same_browser=_same_browser(db, study_id),
    )


def _history(db: Db, study_id: str) -> tuple[tuple[Rules, datetime], ...]:
    """Return the versions of a study's rules, each with its start time, oldest first; () for a draft."""
    require_study(db, study_id)
    rows = db.query("SELECT rules, created FROM study_rules WHERE study = ? ORDER BY version", [study_id])
    return tuple((rules_of(row["rules"]), when(row["created"])) for row in rows)


def _items(db: Db, study_id: str) -> tuple[Item, ...]:
    """Return the items of all kinds, in the order in which they were added."""
    require_study(db, study_id)
    return tuple(map(item_of, db.query("SELECT * FROM study_items WHERE study = ? ORDER BY id", [study_id])))


class Studies(Repository):
    """Access to the studies. Their workers, assignments and sessions are in attributes."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.workers = Workers(database)
        self.assignments = Assignments(database)
        self.sessions = Sessions(database)
        self.panels = Panels(database)

    # Set-up and state

    create = writing(create_study)

    @write
    def rename(self, db: Db, study_id: str, name: str) -> None:
        """Rename a study in any state. Raises UserError if the name is empty or too long."""
        study, name = require_study(db, study_id), _name(name)
        if study["name"] != name:
            update_study(db, study_id, {"name": name})
            append_log(db, "renamed", f"from “{study['name']}” to “{name}”", study_id)

    @write
    def delete_draft(self, db: Db, study_id: str) -> None:
        """Delete a draft with its items; a log line stays. Raises UserError once the study has started."""
        study = require_study(db, study_id)
        if study["state"] != "draft":
            raise UserError("A study that has started cannot be deleted, as its votes are kept; close it instead.")
        for table, column in (("study_items", "study"), ("enrolments", "study"), ("studies", "id")):
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", [study_id])
        append_log(db, "draft deleted", study["name"], study_id)

    @write
    def set_rules(self, db: Db, study_id: str, rules: Rules) -> None:
        """Change the rules of a draft. Raises UserError once the study has started."""
        if require_study(db, study_id)["state"] != "draft":
            raise UserError("The rules of a study are fixed when it starts; make a new study for other rules.")
        update_study(db, study_id, _rules_columns(replace(rules, version=0)))

    @write
    def set_votes(self, db: Db, study_id: str, votes: int, consensus: int) -> None:
        """Raise the number of votes per item. Raises UserError for fewer votes, and for a draft or closed study."""
        row = require_study(db, study_id)
        rules = rules_of(row["rules"])
        if row["state"] not in ("running", "paused"):
            raise UserError("Votes can only be added while a study is running or paused.")
        if votes < rules.votes:
            raise UserError(f"The number of votes per item cannot be reduced: enter {rules.votes} or more.")
        if not 1 <= consensus <= votes:
            raise UserError(f"With {votes} votes per item, choose a consensus of 1 to {votes} equal answers.")
        if (votes, consensus) == (rules.votes, rules.consensus):
            return
        later = replace(rules, votes=votes, consensus=consensus, version=rules.version + 1)
        update_study(db, study_id, _rules_columns(later))
        _keep_version(db, study_id, later)
        look_again(db, study_id)
        change = f"votes of an item from {rules.votes} to {votes}, consensus from {rules.consensus} to {consensus}"
        append_log(db, "extended", change, study_id)

    @write
    def add_items(self, db: Db, study_id: str, items: Sequence[NewItem]) -> tuple[int, ...]:
        """Add items and return their ids. Raises UserError for a closed study, a missing image, or too many items."""
        study = require_study(db, study_id)
        if study["state"] == "closed":
            raise UserError("This study is closed: nothing can be added to it; make a new study.")
        if first_value(db, "SELECT count(*) FROM study_items WHERE study = ?", [study_id]) + len(items) > MOST_ITEMS:
            raise UserError(f"A study has at most {MOST_ITEMS:,} items; choose fewer.")
        for sha in {sha for item in items for sha in (item.image_sha, item.source_sha) if sha is not None}:
            if not first_value(db, "SELECT 1 FROM images WHERE sha = ?", [sha]):
                raise UserError(f"This workspace has no image {sha[:80]!r}; import it first.")
        ids = tuple(_insert_item(db, study_id, item) for item in items)
        if study["state"] != "draft" and ids:
            _give_places(db, study_id)
            counts = sorted(Counter(item.kind for item in items).items())
            words = ", ".join(f"{number} of kind {kind}" for kind, number in counts)
            append_log(db, "extended", f"items added: {words}", study_id)
        touch(db, study_id)
        return ids

    @write
    def remove_items(self, db: Db, study_id: str, ids: Sequence[int]) -> None:
        """Remove items from a draft. Unknown ids are ignored. Raises UserError once the study has started."""
        if require_study(db, study_id)["state"] != "draft":
            raise UserError(
                "Items cannot be removed once a study has started. You can add items until the study is closed."
            )
        query = "DELETE FROM study_items WHERE id = ? AND study = ?"
        db.conn.executemany(query, ((item_id, study_id) for item_id in ids))
        touch(db, study_id)

    @write
    def start(self, db: Db, study_id: str) -> None:
        """Freeze the rules as version 1 and accept votes. Raises UserError for a study without items or questions."""
        _change_state(db, study_id, "running", "draft")

    @write
    def pause(self, db: Db, study_id: str) -> None:
        """Pause the study: accept no votes until it is resumed. Raises UserError for a draft or a closed study."""
        _change_state(db, study_id, "paused")

    @write
    def resume(self, db: Db, study_id: str) -> None:
        """Resume the study: accept votes again. Raises UserError for a draft or a closed study."""
        _change_state(db, study_id, "running", "paused")

    @write
    def close(self, db: Db, study_id: str) -> None:
        """Close the study for good, so it accepts no more votes. Raises UserError for a draft."""
        _change_state(db, study_id, "closed")

    @write
    def archive(self, db: Db, study_id: str, archived: bool) -> None:
        """Archive a study (a running one is paused), or bring it back. Raises UserError for a draft."""
        row = require_study(db, study_id)
        if row["state"] == "draft":
            raise UserError("A draft cannot be archived; delete it, or start it first.")
        if _is_archived(db, study_id) == archived:
            return
        if archived and row["state"] == "running":
            _change_state(db, study_id, "paused")
        insert_row(db, "study_archive", {"study": study_id, "archived": int(archived), "created": now()})
        log_change(db, "archived" if archived else "taken out of the archive", "", study_id)

    @write
    def set_link(self, db: Db, study_id: str, on: bool) -> str:
        """Open a study's invitation, or end it for good. Return the token of its link, or "" if it ended."""
        study = require_study(db, study_id)
        if bool(study["link"]) == on:
            return study["link"] or ""
        link = secrets.token_urlsafe(16) if on else None
        update_study(db, study_id, {"link": link})
        append_log(db, "invitation opened" if on else "invitation ended", "", study_id)
        return link or ""

    @write
    def restore(self, db: Db, records: Records, images: Mapping[str, str], check: Callable[[StudyData], None]) -> str:
        """Restore a study from its records, all or nothing. Return its id. `check` may raise UserError to refuse it."""
        return insert_records(db, records, images, lambda study_id: check(_data(db, study_id)))

    # Queries

    @read
    def whole(self, db: Db, study_id: str) -> tuple[StudyData, dict[str, Any]]:
        """Return a study's data and the rows for `restore`, from one snapshot, without sign-in data and link."""
        return _data(db, study_id), records_of(db, study_id)

    @read
    def get(self, db: Db, study_id: str) -> Study:
        """Return a study with its rules and counts."""
        return _study(db, require_study(db, study_id))

    @read
    def all(self, db: Db) -> tuple[Study, ...]:
        """Return all studies, latest first."""
        rows = list(db.query("SELECT * FROM studies ORDER BY created DESC, rowid DESC"))
        return tuple(_study(db, row) for row in rows)

    items = reading(_items)
    rules_history = reading(_history)
    data = reading(_data)

    @read
    def revision(self, db: Db, study_id: str) -> int:
        """Return a number that grows when the results may change. It shows if a cached result is outdated."""
        return int(require_study(db, study_id)["revision"])

    @read
    def log(self, db: Db, study_id: str = "", limit: int = 200) -> tuple[LogEntry, ...]:
        """Return log entries, latest first, of one study; of all studies if `study_id` is ""."""
        where = "WHERE study = :study" if study_id else ""
        query = f"SELECT *, study AS study_id FROM study_log {where} ORDER BY id DESC LIMIT :n"
        return records(db, LogEntry, query, {"study": study_id, "n": limit})

    # Answers that do not come from the study's own workers

    note = writing(append_log)

    @write
    def adjudicate(self, db: Db, study_id: str, item: int, question: str, answer: str, reason: str) -> None:
        """Save a person's answer to a question of an item, apart from the votes. "" withdraws an earlier answer.

        Raises UserError if the item is not one of the study's, or the answer is longer than 2000 characters.
        """
        require_study(db, study_id)
        query = "SELECT 1 FROM study_items WHERE id = ? AND study = ? AND kind = 'item'"
        if not first_value(db, query, [item, study_id]):
            raise UserError("This study has no such item; reload the page.")
        if not 0 < len(question) <= 80 or len(answer) > 2000:
            raise UserError("This answer cannot be saved: answer a question of the study, in at most 2000 characters.")
        row = {"study": study_id, "item": item, "question": whole(question), "answer": whole(answer)}
        insert_row(db, "adjudications", {**row, "reason": checked_reason(reason, needed=False), "created": now()})
        log_change(db, "adjudicated" if answer else "adjudication taken back", f"item {item}, {question}", study_id)

    @write
    def import_votes(self, db: Db, study_id: str, votes: Iterable[ImportedVote]) -> int:
        """Save votes that were collected elsewhere, all or none. Return their number.

        The votes become finished assignments of workers named `imported-NAME`, in the order of submission. Plain tuples
        with the fields of `ImportedVote` are accepted too. An item may get more votes than it needs; then its first
        votes count. Votes of an excluded worker count after the worker is readmitted. Raises UserError for a draft or
        closed study, for an item of another study, for a second vote of a worker on an item, and for impossible times
        or names.
        """
        if require_study(db, study_id)["state"] not in ("running", "paused"):
            raise UserError("Votes can only be imported into a study that is running or paused; start it first.")
        rows = sorted((ImportedVote(*vote) for vote in votes), key=lambda vote: vote.submitted)
        items = {item["id"]: item for item in db.query("SELECT * FROM study_items WHERE study = ?", [study_id])}
        decisions: dict[tuple[str, str, str], int] = {}
        numbers: dict[str, int] = {}
        for vote in rows:
            worker = imported_worker(db, study_id, vote, numbers)
            if vote.item not in items:
                raise UserError(f"Nothing was imported: a vote is on item {vote.item}, which this study does not have.")
            import_vote(db, study_id, worker, numbers[worker], items[vote.item], vote, decisions)
        for worker, number in numbers.items():
            db.execute("UPDATE enrolments SET given = ? WHERE study = ? AND worker = ?", [number, study_id, worker])
        log_change(db, "votes brought in", f"{len(rows)} votes of {len(numbers)} workers", study_id)
        return len(rows)


def _change_state(db: Db, study_id: str, state: StudyState, only: StudyState | None = None) -> None:
    """Start, pause, resume or close a study. A repeated call does nothing. `only` is the state from which the change is
    allowed, None for any. Raises UserError if the change is refused.
    """
    old: StudyState = require_study(db, study_id)["state"]
    if old == state:
        return
    if old == "closed":
        raise UserError("This study is closed for good; make a new study to continue.")
    if old == "draft" and (state != "running" or only == "paused"):
        raise UserError("This study has not started yet; start it first.")
    if old == "paused" and only == "draft":
        raise UserError("This study has started already and is paused; resume it.")
    if old == "draft":
        _freeze(db, study_id)
    event = {"running": "started" if old == "draft" else "resumed", "paused": "paused", "closed": "closed"}[state]
    if state == "closed":
        db.execute("UPDATE assignments SET state = 'expired' WHERE study = ? AND state = 'leased'", [study_id])
    if event == "resumed":  # nobody could answer during the pause, so no worker loses their current item
        hold_again(db, study_id)
    update_study(db, study_id, {"state": state})
    append_log(db, event, "", study_id)


def _study(db: Db, row: Row) -> Study:
    rules = rules_of(row["rules"])
    items, controls, quiz, training = (_count_items(db, row, kind) for kind in ITEM_KINDS)
    workers, votes = db.execute(_QUERIES["judged"], [row["id"]]).fetchone()
    surplus = first_value(db, _QUERIES["surplus"], {"study": row["id"], "asked": rules.votes})
    counts = {"items": items, "controls": controls, "quiz": quiz, "training": training, "needed": items * rules.votes}
    counts |= {"votes": int(votes - surplus), "workers": int(workers)}
    return record_of(Study, row, rules=rules, archived=_is_archived(db, row["id"]), **counts)


def _is_archived(db: Db, study_id: str) -> bool:
    return bool(first_value(db, "SELECT archived FROM study_archive WHERE study = ? ORDER BY id DESC", [study_id]))


def _count_items(db: Db, study: Row, kind: str) -> int:
    # Places of items have no gaps. Items of drafts have no places yet.
    what = "count(*)" if study["state"] == "draft" else "coalesce(max(place) + 1, 0)"
    return int(first_value(db, f"SELECT {what} FROM study_items WHERE study = ? AND kind = ?", [study["id"], kind]))


def _freeze(db: Db, study_id: str) -> None:
    if not first_value(db, "SELECT 1 FROM study_items WHERE study = ? AND kind = 'item'", [study_id]):
        raise UserError("This study has no items yet; choose the images that are to be judged.")
    rules = replace(rules_of(require_study(db, study_id)["rules"]), version=1)
    if not rules.questions:
        raise UserError("This study has no questions yet; choose a template or write a question.")
    update_study(db, study_id, _rules_columns(rules))
    _keep_version(db, study_id, rules)
    _give_places(db, study_id)


def _give_places(db: Db, study_id: str) -> None:
    """Number the items that have no place yet. Numbers continue after the other items, separately for each kind."""
    for kind in ITEM_KINDS:
        of_kind = "FROM study_items WHERE study = ? AND kind = ? AND place"
        first = first_value(db, f"SELECT count(*) {of_kind} NOT NULL", [study_id, kind])
        new = first_column(db, f"SELECT id {of_kind} IS NULL ORDER BY id", [study_id, kind])
        db.conn.executemany("UPDATE study_items SET place = ? WHERE id = ?", enumerate(new, first))
    look_again(db, study_id)


def _insert_item(db: Db, study_id: str, item: NewItem) -> int:
    content = cells(item, _CONTENT) | {"expected": dict(item.expected), "origin": dict(item.origin)}
    pictures = {"image": item.image_sha, "source": item.source_sha}
    row = {"study": study_id, "public": secrets.token_hex(8), "kind": item.kind, "content": pack(content)}
    return insert_row(db, "study_items", {**row, **pictures, "created": now()})


def _keep_version(db: Db, study_id: str, rules: Rules) -> None:
    row = {"study": study_id, "version": rules.version, "rules": pack_value(rules), "created": now()}
    insert_rows(db, "study_rules", [row])


def _rules_columns(rules: Rules) -> dict[str, Any]:
    return {"rules": pack_value(rules), "votes": rules.votes}


def _name(name: str) -> str:
    return checked_text(name, "The name of the study", LONGEST_NAME, if_empty="The study has no name; give it one.")


def _same_browser(db: Db, study_id: str) -> tuple[tuple[str, ...], ...]:
    workers_by_browser: dict[str, list[str]] = defaultdict(list)
    for browser, worker in db.execute(_QUERIES["same_browser"], [study_id]):
        workers_by_browser[browser].append(worker)
    return tuple(dict.fromkeys(tuple(names) for names in workers_by_browser.values() if len(names) > 1))
