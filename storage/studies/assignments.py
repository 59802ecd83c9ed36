"""Assignment of items to workers and their answers: claim, submit, undo.

Every writing method runs in one BEGIN IMMEDIATE transaction, so everything that it has read still holds when it writes;
the tables refuse a second assignment of an item to a worker, and more leases and votes than an item gets.
`storage.studies.next_items` chooses the next item. Expired leases are ended by the next claim.
"""

from __future__ import annotations

import json
import math
import random
import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.errors import UserError
from core.stored_studies import Assignment, Saved, UnsentAnswers, VoteRefused
from core.studies import WORK, Answers, Item, ItemKind, Rules
from storage.engine.database import Database, Repository, first_row, read, write, writing
from storage.engine.rows import Row, change_row, insert_row, now, pack, pack_value, record_of, when, whole
from storage.studies.next_items import next_item, told_of
from storage.studies.rows import append_log, item_of, require_study, rules_of, touch

LONGEST_COMMENT = 2000
LONGEST_KEY = 100
_MOST_NOTED = 20_000
"""Number of latest assignments whose lease time by `time.monotonic` is kept."""
_BY_TOKEN = "SELECT * FROM assignments WHERE public = ?"
_NOT_YOURS = "This image is not assigned to you, or no longer; continue with the next one."
"""Refusal for missing assignments and for those of others: the same for both, so that nothing is revealed."""
_QUERIES = DataTable(__file__, str)


def _with_conditions(name: str) -> str:
    """Return a query with the conditions that it names in braces."""
    return _QUERIES[name].format(to_see=_QUERIES["to_see"].format_map(_QUERIES), to_read=_QUERIES["to_read"])


def _release(db: Db, study_id: str, worker: str) -> None:
    """End the worker's lease for a pause. They get the item first on return, if it is still needed."""
    query = "UPDATE assignments SET state = 'expired' WHERE study = ? AND worker = ? AND state = 'leased'"
    db.execute(query, [study_id, worker])


class Assignments(Repository):
    """The assignments of all studies."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._given: dict[int, float] = {}
        """Lease time of this process's assignments by `time.monotonic`, which nobody can set."""
        self.lost: frozenset[str] = frozenset()
        """Pictures that could not be read when a worker was to judge them: no item with one of them is leased."""

    @write
    def claim(self, db: Db, study_id: str, worker: str, kind: ItemKind) -> Assignment | None:
        """Lease the worker's next item: one that they already have, of any kind (its lease is renewed); else an item of
        `kind` whose lease expired and that still needs a vote; else a new one, in a random order of their own. None
        if there is nothing for them now.

        Raises VoteRefused if the study is not running, or the worker is excluded, blocked or not enrolled.
        """
        rules = _may_write(db, study_id, worker)
        time = now()
        _end_leases(db, study_id, time)
        expires = _later(time, rules)
        query = "SELECT id FROM assignments WHERE study = ? AND worker = ? AND state = 'leased' ORDER BY number LIMIT 1"
        if held := first_row(db, query, [study_id, worker]):
            db.execute("UPDATE assignments SET expires = ? WHERE id = ?", [expires, held["id"]])
            return _by_id(db, held["id"])
        if kind == "item" and _has_had_most(db, study_id, worker, rules):
            return None
        values = {"study": study_id, "worker": worker, "kind": kind, "votes": rules.votes}
        for row in list(db.query(_QUERIES["claim"], values)):
            if row["image"] in self.lost or row["source"] in self.lost:
                continue
            change = "UPDATE assignments SET state = 'leased', accepted = ?, expires = ? WHERE id = ?"
            db.execute(change, [time, expires, row["id"]])
            return self._noted(_by_id(db, row["id"]))
        item = next_item(db, study_id, worker, kind, rules, self.lost)
        return None if item is None else self._noted(_give(db, study_id, worker, item, rules.seed, time, expires))

    @read
    def ahead(self, db: Db, study_id: str, worker: str, kind: ItemKind, assignment_id: int) -> Item | None:
        """Return the item that `claim` would lease once the assignment `assignment_id` is answered, or None. Nothing is
        leased or reserved: it allows preloading the picture. Raises UserError for an unknown study.
        """
        rules = rules_of(require_study(db, study_id)["rules"])
        values = {"study": study_id, "worker": worker, "kind": kind, "votes": rules.votes, "beside": assignment_id}
        if own := first_row(db, _QUERIES["ahead"], values):
            return item_of(own)
        upcoming = next_item(db, study_id, worker, kind, rules, self.lost, remember=False)
        return None if upcoming is None else _item(db, upcoming["id"])

    @read
    def get(self, db: Db, public: str) -> Assignment | None:
        """Return an assignment by its opaque token, in any state, or None. It may belong to another worker."""
        row = first_row(db, _BY_TOKEN, [whole(public[:100])])
        return None if row is None else _assignment(db, row)

    @read
    def image_of(self, db: Db, token: str, worker: str) -> str | None:
        """Return the picture of a token while its worker judges it or reads its explanation, else None."""
        row = first_row(db, _with_conditions("image_of"), {"token": whole(token[:100]), "worker": worker})
        return None if row is None else str(row["sha"])

    @read
    def judging(self, db: Db, worker: str) -> dict[str, set[str]]:
        """Return the hashes of the pictures that the worker judges now or reads feedback on, by study."""
        pictures_by_study: dict[str, set[str]] = {}
        for row in db.query(_with_conditions("judging"), {"worker": worker}):
            pictures_by_study.setdefault(row["study"], set()).update({row["image"], row["source"]} - {None, ""})
        return pictures_by_study

    @write
    def submit(
        self,
        db: Db,
        public: str,
        worker: str,
        answers: Answers,
        comment: str,
        seconds: float,
        key: str,
        right: bool | None = None,
    ) -> Saved:
        """Save the answers and return "saved"; "again" if the client's `key` was ever saved before.

        `answers` are already checked (study.questions.check_answers). `seconds`, measured by the client, are bounded by
        the time since the lease. For an item with a known answer `right` must tell whether it was answered right
        (core.studies.right): the worker's figures count it. An expired lease does not matter while the item needs the
        vote.

        Raises VoteRefused: "not yours" (also for missing assignments), "answered", "full", "not running", "excluded",
        "blocked".
        """
        row = _own_row(db, public, worker)
        if row is None:
            raise VoteRefused("not yours", _NOT_YOURS)
        key = whole(key)
        if list(db.query("SELECT 1 FROM study_votes WHERE assignment = ? AND key = ?", [row["id"], key])):
            return "again"  # first of all: a saved vote stays saved, also if the study was closed since
        rules = _may_write(db, row["study"], worker)
        if row["state"] == "submitted":
            then = "go on with the next one" if row["kind"] == "training" else "undo that answer to give another one"
            raise VoteRefused("answered", f"You have answered this image already; {then}.")
        time = now()
        if row["state"] == "expired":
            _end_leases(db, row["study"], time)  # so that expired leases of others do not block the item
            if _is_full(db, row):
                text = "This image has all its votes from other people by now; continue with the next one."
                raise VoteRefused("full", text)
            if row["kind"] == "item" and _has_had_most(db, row["study"], worker, rules):
                text = "You have judged as many images as one person does in this study; others judge this one."
                raise VoteRefused("full", text)
        if row["kind"] != "item" and right is None:
            raise ValueError("say whether an item with a known answer was answered right (core.studies.right)")
        _check_vote(answers, comment, seconds, key)
        answers, comment = {name: whole(answer) for name, answer in answers.items()}, whole(comment)
        bounded = min(max(seconds, 0.0), self._most_seconds(row, time, rules))
        vote = _append_vote(db, row["id"], "submitted", key, answers, comment, bounded, time)
        columns: dict[str, Any] = {"state": "submitted", "vote": vote, "submitted": time, "draft": None}
        columns["was_right"] = None if row["kind"] == "item" else int(bool(right))
        if row["first_vote"] is None:
            columns["first_vote"] = vote
        else:
            columns["changes"] = row["changes"] + 1
        change_row(db, "assignments", row["id"], columns)
        touch(db, row["study"])
        return "saved"

    @write
    def keep_draft(self, db: Db, public: str, worker: str, draft: UnsentAnswers | None) -> bool:
        """Replace the worker's unsent answers; None removes them. Return False for assignments of others or already
        sent ones. Renews the lease unless it has expired.
        """
        row = _own_row(db, public, worker)
        if row is None or row["state"] == "submitted":
            return False
        time, columns = now(), {"draft": None if draft is None else pack_value(draft)}
        if row["state"] == "leased" and row["expires"] > time:
            columns["expires"] = _later(time, rules_of(require_study(db, row["study"])["rules"]))
        change_row(db, "assignments", row["id"], columns)
        return True

    @write
    def undo(self, db: Db, study_id: str, worker: str) -> Assignment | None:
        """Undo the worker's latest answer: the item is leased to them again with these answers; their current lease is
        released, and the log of votes keeps both answers. None without an answer, or if it was undone already, approved
        or rejected, or followed by feedback. Raises VoteRefused like `claim`.
        """
        rules = _may_write(db, study_id, worker)
        row = _to_undo(db, study_id, worker)
        if row is None:
            return None
        time = now()
        # One lease at a time: the current item comes after this one, if it is still needed then.
        _release(db, study_id, worker)
        answers, comment = _answers(db, row["vote"])
        _append_vote(db, row["id"], "withdrawn", None, answers, comment, 0.0, time)
        change_row(db, "assignments", row["id"], {"state": "leased", "expires": _later(time, rules)})
        touch(db, study_id)
        return _by_id(db, row["id"])

    @read
    def to_read(self, db: Db, study_id: str, worker: str) -> Assignment | None:
        """Return the training item that the worker has answered and not left yet, or None."""
        row = first_row(db, _with_conditions("unread"), [study_id, worker])
        return None if row is None else _assignment(db, row)

    @write
    def read_on(self, db: Db, public: str, worker: str) -> bool:
        """Record that a worker read the feedback on a training answer. Return False if there was nothing to read."""
        row = _own_row(db, public, worker)
        if row is None or row["kind"] != "training" or row["state"] != "submitted":
            return False
        db.execute("INSERT OR IGNORE INTO training_read (assignment, created) VALUES (?, ?)", [row["id"], now()])
        return True

    release = writing(_release)

    @write
    def set_aside(self, db: Db, study_id: str, worker: str, lost: Collection[str]) -> None:
        """End the worker's lease because these pictures of it cannot be read; no item with one of them is leased while
        `lost` contains it."""
        self.lost |= frozenset(lost)
        _release(db, study_id, worker)
        words = f"an item is set aside: {', '.join(sorted(lost))} is missing or damaged; restore it from a backup"
        append_log(db, "picture lost", words, study_id, worker)
        touch(db, study_id)

    @read
    def without_picture(self, db: Db, study_id: str) -> int:
        """Return the number of items with an unreadable picture."""
        values = {"study": study_id, "lost": json.dumps(sorted(self.lost))}
        return int(db.execute(_QUERIES["without_picture"], values).fetchone()[0]) if self.lost else 0

    @read
    def can_undo(self, db: Db, study_id: str, worker: str) -> bool:
        """Return True if `undo` would undo an answer in a running study."""
        return _to_undo(db, study_id, worker) is not None

    @read
    def progress(self, db: Db, study_id: str, worker: str) -> tuple[int, int]:
        """Return how many items a worker has judged and could still get, without those with a known answer."""
        study = require_study(db, study_id)
        values = {"study": study_id, "worker": worker, "votes": study["votes"]}
        remaining, seen = db.execute(_QUERIES["progress"], values).fetchone()
        done, most = seen or 0, rules_of(study["rules"]).most_items
        return done, min(remaining, max(0, most - done)) if most else remaining

    @read
    def controls_left(self, db: Db, study_id: str, worker: str) -> int:
        """Count a worker's remaining control items with the current one, without those seen or given feedback on."""
        query = _QUERIES["controls_left"]
        values = {"study": study_id, "worker": worker}
        seen_in_training = told_of(db, study_id, worker)
        if seen_in_training:
            columns = "image, source, json_extract(content, '$.origin.picture') AS picture"
            rows = db.query(query.format(columns=columns), values)
            return len({row["image"] for row in rows if seen_in_training.isdisjoint(row.values())})
        return int(db.execute(query.format(columns="count(DISTINCT image)"), values).fetchone()[0])

    @read
    def waiting(self, db: Db, study_id: str, worker: str) -> bool:
        """Return True if others have leased items that this worker has not judged: one of them may become free."""
        return bool(list(db.query(_QUERIES["waiting"], {"study": study_id, "worker": worker})))

    def _noted(self, assignment: Assignment) -> Assignment:
        self._given[assignment.id] = monotonic()
        while len(self._given) > _MOST_NOTED:
            del self._given[next(iter(self._given))]
        return assignment

    def _most_seconds(self, row: Row, time: str, rules: Rules) -> float:
        """Return the maximum seconds of a vote: the time since its lease, by the clock that gives more.

        The server's clock may have been set back since. `time.monotonic` stops while the machine sleeps, and another
        process may have given the lease: if neither clock can tell, it is the time of a lease.
        """
        by_clock = (when(time) - when(row["accepted"])).total_seconds()
        leased_at = self._given.get(row["id"])
        if leased_at is not None:
            return max(by_clock, monotonic() - leased_at)
        return by_clock if by_clock > 0 else 60 * rules.lease_minutes


def _has_had_most(db: Db, study_id: str, worker: str, rules: Rules) -> bool:
    query = "SELECT items_seen FROM enrolments WHERE study = ? AND worker = ?"
    return bool(rules.most_items) and db.execute(query, [study_id, worker]).fetchone()[0] >= rules.most_items


def hold_again(db: Db, study_id: str) -> None:
    """Renew all leases of a study."""
    expires = _later(now(), rules_of(require_study(db, study_id)["rules"]))
    db.execute("UPDATE assignments SET expires = ? WHERE study = ? AND state = 'leased'", [expires, study_id])


def _may_write(db: Db, study_id: str, worker: str) -> Rules:
    """Return the rules of the study. Raises VoteRefused unless it is running and the worker's votes count in it."""
    study = require_study(db, study_id)
    if study["state"] != "running":
        words = {"paused": "is paused; please come back later", "closed": "is closed; no more votes are taken"}
        raise VoteRefused("not running", f"This study {words.get(study['state'], 'has not started yet')}.")
    enrolment = first_row(db, _QUERIES["may_write"], [study_id, worker])
    if enrolment is None:
        raise VoteRefused("not enrolled", "You are not part of this study; open the link of its invitation.")
    if enrolment["blocked"]:
        raise VoteRefused("blocked", "Your worker name was blocked by the study lead; please write to them.")
    if enrolment["exclusion"] is not None:
        raise VoteRefused("excluded", "You can no longer vote in this study; ask the person who invited you.")
    return rules_of(study["rules"])


def _to_undo(db: Db, study_id: str, worker: str) -> Row | None:
    """Return the worker's latest answered assignment, while it is not undone or decided; else None."""
    values = {"study": study_id, "worker": worker}
    row = first_row(db, _QUERIES["to_undo"], values)
    # A worker who had feedback would only repeat the right answer.
    if row is None or row["kind"] not in WORK:
        return None
    return None if first_row(db, _QUERIES["taken_back"], {**values, "vote": row["vote"]}) else row


def _end_leases(db: Db, study_id: str, time: str) -> None:
    query = "UPDATE assignments SET state = 'expired' WHERE study = ? AND state = 'leased' AND expires <= ?"
    db.execute(query, [study_id, time])


def _give(db: Db, study_id: str, worker: str, item: Row, seed: int, time: str, expires: str) -> Assignment:
    db.execute("UPDATE enrolments SET given = given + 1 WHERE study = ? AND worker = ?", [study_id, worker])
    query = "SELECT given FROM enrolments WHERE study = ? AND worker = ?"
    row = {
        "public": secrets.token_urlsafe(16),
        "image_token": secrets.token_urlsafe(16),
        "source_token": secrets.token_urlsafe(16) if item["source"] else None,
        "study": study_id,
        "worker": worker,
        "item": item["id"],
        "kind": item["kind"],
        "side": random.Random(f"side\0{seed}\0{worker}\0{item['id']}").choice(("left", "right")),
        "number": next(db.query(query, [study_id, worker]))["given"],
        "state": "leased",
        "accepted": time,
        "expires": expires,
    }
    return _by_id(db, insert_row(db, "assignments", row))


def _is_full(db: Db, row: Row) -> bool:
    return row["kind"] == "item" and bool(db.execute(_QUERIES["is_full"], [row["item"]]).fetchone()[0])


def _check_vote(answers: Answers, comment: str, seconds: float, key: str) -> None:
    """Raise UserError for too long a comment, ValueError for a form that none of our pages sends."""
    if not all(isinstance(name, str) and isinstance(answer, str) for name, answer in answers.items()):
        raise ValueError("answers are text by question id")
    if not math.isfinite(seconds):
        raise ValueError("the seconds of a vote are a number")
    if not 0 < len(key) <= LONGEST_KEY:
        raise ValueError(f"a vote has a key of 1 to {LONGEST_KEY} characters")
    if len(comment) > LONGEST_COMMENT:
        raise UserError(f"The comment has {len(comment)} characters; at most {LONGEST_COMMENT}, please.")


def _append_vote(
    db: Db, assignment: int, event: str, key: str | None, answers: Answers, comment: str, seconds: float, time: str
) -> int:
    row = {"assignment": assignment, "event": event, "key": key, "answers": pack(dict(answers))}
    return insert_row(db, "study_votes", {**row, "comment": comment, "seconds": float(seconds), "created": time})


def _later(time: str, rules: Rules) -> str:
    ends = datetime.fromisoformat(time).astimezone(UTC) + timedelta(minutes=rules.lease_minutes)
    return ends.isoformat(timespec="microseconds")


def _own_row(db: Db, public: str, worker: str) -> Row | None:
    """Return the assignment of a token, or None if there is none or it belongs to another worker."""
    row = first_row(db, _BY_TOKEN, [whole(public[:100])])
    return row if row is not None and row["worker"] == worker else None


def _by_id(db: Db, assignment: int) -> Assignment:
    return _assignment(db, next(db.query("SELECT * FROM assignments WHERE id = ?", [assignment])))


def _item(db: Db, item: int) -> Item:
    return item_of(next(db.query("SELECT * FROM study_items WHERE id = ?", [item])))


def _answers(db: Db, vote: int) -> tuple[Answers, str]:
    answers, comment = db.execute("SELECT answers, comment FROM study_votes WHERE id = ?", [vote]).fetchone()
    return json.loads(answers), comment


def _assignment(db: Db, row: Row) -> Assignment:
    answers, comment = _answers(db, row["vote"]) if row["vote"] is not None else ({}, "")
    draft = UnsentAnswers(**json.loads(row["draft"])) if row["draft"] else None
    about = {"item": _item(db, row["item"]), "study_id": row["study"], "draft": draft}
    return record_of(Assignment, row, answers=answers, comment=comment, **about)
