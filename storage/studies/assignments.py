"""Assign items to workers and save their answers: claim, submit, undo.

Every writing method runs in one BEGIN IMMEDIATE transaction, so what it has read is still true when it writes. The
tables refuse a second assignment of an item to a worker, and more leases and votes than an item needs.
`storage.studies.next_items` chooses the next item. Expired leases are ended by the next claim.
"""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.stored_studies import Assignment, Saved, UnsentAnswers, VoteRefused
from core.studies import WORK, Answers, Item, ItemKind, Rules
from storage.engine.database import Database, Repository, first_row, read, write, writing
from storage.engine.queries import change_row, first_value, insert_row
from storage.engine.rows import Row, now, pack_value, record_of, when, whole
from storage.studies.next_items import next_item, told_of
from storage.studies.rows import append_vote, item_of, items_given, log_change, release, require_study, rules_of, touch

_MOST_NOTED = 20_000
"""Maximum number of assignments whose lease time is remembered. The oldest are forgotten first."""
_BY_TOKEN = "SELECT * FROM assignments WHERE public = ?"
_NOT_YOURS = "This image is not, or no longer, assigned to you; continue with the next one."
"""Message for a missing assignment and for another worker's assignment. Workers cannot tell these cases apart."""
_QUERIES = DataTable(__file__, str)


def _with_conditions(name: str) -> str:
    """Return the query `name` with the conditions `to_see` and `to_read` filled in."""
    return _QUERIES[name].format(to_see=_QUERIES["to_see"].format_map(_QUERIES), to_read=_QUERIES["to_read"])


class Assignments(Repository):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._given: dict[int, float] = {}
        """Lease time by `time.monotonic` for each assignment leased by this process. Nobody can set this clock back."""
        self.lost: frozenset[str] = frozenset()
        """Pictures that could not be read when a worker was to judge them. Items with such a picture are not leased."""

    @write
    def claim(self, db: Db, study_id: str, worker: str, kind: ItemKind) -> Assignment | None:
        """Lease the worker's next item, or return None if none exists now.

        If the worker has an item of any kind, renew its lease. Otherwise choose an item of `kind` whose lease to this
        worker expired and that still needs a vote, else a new one in the worker's own random order. Raises VoteRefused
        if the study is not running, or the worker is excluded, blocked or not enrolled.
        """
        rules = _may_write(db, study_id, worker)
        time = now()
        _end_leases(db, study_id, time)
        expires = _later(time, rules)
        query = "SELECT id FROM assignments WHERE study = ? AND worker = ? AND state = 'leased' ORDER BY number LIMIT 1"
        if leased := first_value(db, query, [study_id, worker]):
            change_row(db, "assignments", leased, {"expires": expires})
            return _by_id(db, leased)
        if kind == "item" and _has_had_most(db, study_id, worker, rules):
            return None
        values = {"study": study_id, "worker": worker, "kind": kind, "votes": rules.votes}
        for row in list(db.query(_QUERIES["claim"], values)):
            if row["image"] in self.lost or row["source"] in self.lost:
                continue
            change_row(db, "assignments", row["id"], {"state": "leased", "accepted": time, "expires": expires})
            return self._noted(_by_id(db, row["id"]))
        item = next_item(db, study_id, worker, kind, rules, self.lost)
        return None if item is None else self._noted(_give(db, study_id, worker, item, rules.seed, time, expires))

    @read
    def ahead(self, db: Db, study_id: str, worker: str, kind: ItemKind, assignment_id: int) -> Item | None:
        """Return the item that `claim` would lease once the assignment `assignment_id` is answered, or None.

        A page uses it to load the picture early. Nothing is leased. Raises UserError for an unknown study.
        """
        rules = rules_of(require_study(db, study_id)["rules"])
        values = {"study": study_id, "worker": worker, "kind": kind, "votes": rules.votes, "beside": assignment_id}
        if own := first_row(db, _QUERIES["ahead"], values):
            return item_of(own)
        upcoming = next_item(db, study_id, worker, kind, rules, self.lost, remember=False)
        return None if upcoming is None else _item(db, upcoming["id"])

    @read
    def get(self, db: Db, public: str) -> Assignment | None:
        """Return the assignment with this opaque token, in any state and of any worker; None if it does not exist."""
        row = first_row(db, _BY_TOKEN, [whole(public[:100])])
        return None if row is None else _assignment(db, row)

    @read
    def image_of(self, db: Db, token: str, worker: str) -> str | None:
        """Return the hash of the picture with this token while the worker may see it (judging, feedback); else None."""
        sha: str | None = first_value(db, _with_conditions("image_of"), {"token": whole(token[:100]), "worker": worker})
        return sha

    @read
    def judging(self, db: Db, worker: str) -> dict[str, set[str]]:
        """Return, by study, the hashes of pictures that the worker is judging or reading feedback on."""
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
        """Save the answers and return "saved". Return "again" if a vote with the client's `key` was saved before.

        The caller checks all values first (`answers` with study.questions.check_answers). `seconds` come from the
        client and are limited to the time since the lease. For an item with a known answer, `right` says if the worker
        answered right (core.studies.right). A vote after the end of the lease is saved if the item still needs votes.
        Raises VoteRefused with one of the codes "not yours" (also for missing assignments), "answered", "full",
        "not running", "not enrolled", "excluded", "blocked".
        """
        row = _own_row(db, public, worker)
        if row is None:
            raise VoteRefused("not yours", _NOT_YOURS)
        key = whole(key)
        if first_value(db, "SELECT 1 FROM study_votes WHERE assignment = ? AND key = ?", [row["id"], key]):
            return "again"  # checked first, as a saved vote stays saved after the study is closed
        rules = _may_write(db, row["study"], worker)
        if row["state"] == "submitted":
            then = "go on with the next one" if row["kind"] == "training" else "undo that answer to give another one"
            raise VoteRefused("answered", f"You have answered this image already; {then}.")
        time = now()
        if row["state"] == "expired":
            _end_leases(db, row["study"], time)  # expired leases of others must not block the item
            if row["kind"] == "item" and first_value(db, _QUERIES["is_full"], [row["item"]]):
                text = "This image has all its votes from other people by now; continue with the next one."
                raise VoteRefused("full", text)
            if row["kind"] == "item" and _has_had_most(db, row["study"], worker, rules):
                text = "You have judged as many images as one person does in this study; others judge this one."
                raise VoteRefused("full", text)
        if row["kind"] != "item" and right is None:
            raise ValueError("say whether an item with a known answer was answered right (core.studies.right)")
        answers, comment = {name: whole(answer) for name, answer in answers.items()}, whole(comment)
        bounded = min(max(seconds, 0.0), self._most_seconds(row, time, rules))
        vote = append_vote(db, row["id"], "submitted", key, answers, comment, bounded, time)
        columns: dict[str, Any] = {"state": "submitted", "vote": vote, "submitted": time, "draft": None}
        columns["was_right"] = None if row["kind"] == "item" else int(bool(right))
        columns |= {"first_vote": vote} if row["first_vote"] is None else {"changes": row["changes"] + 1}
        change_row(db, "assignments", row["id"], columns)
        touch(db, row["study"])
        return "saved"

    @write
    def keep_draft(self, db: Db, public: str, worker: str, draft: UnsentAnswers | None) -> bool:
        """Replace the worker's unsent answers; None removes them. Renews the lease unless it has expired.

        Return False if the assignment belongs to another worker or is answered.
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
        """Undo the worker's latest vote, and lease its item to the worker again. The answers of the vote are filled in.

        The worker's current lease is released. The log of votes keeps all answers. Return None if there is no vote, or
        if the vote was undone already, approved, rejected or followed by feedback. Raises VoteRefused like `claim`.
        """
        rules = _may_write(db, study_id, worker)
        row = _to_undo(db, study_id, worker)
        if row is None:
            return None
        time = now()
        # A worker has one lease at a time. The current item comes later, if it still needs votes then.
        release(db, study_id, worker)
        answers, comment = _answers(db, row["vote"])
        append_vote(db, row["id"], "withdrawn", None, answers, comment, 0.0, time)
        change_row(db, "assignments", row["id"], {"state": "leased", "expires": _later(time, rules)})
        touch(db, study_id)
        return _by_id(db, row["id"])

    @read
    def to_read(self, db: Db, study_id: str, worker: str) -> Assignment | None:
        """Return the training item whose feedback the worker has still to read, or None."""
        row = first_row(db, _with_conditions("unread"), [study_id, worker])
        return None if row is None else _assignment(db, row)

    @write
    def read_on(self, db: Db, public: str, worker: str) -> bool:
        """Record that a worker read the feedback on a training item. Return False if there was no feedback to read."""
        row = _own_row(db, public, worker)
        if row is None or row["kind"] != "training" or row["state"] != "submitted":
            return False
        db.execute("INSERT OR IGNORE INTO training_read (assignment, created) VALUES (?, ?)", [row["id"], now()])
        return True

    release = writing(release)

    @write
    def set_aside(self, db: Db, study_id: str, worker: str, lost: Collection[str]) -> None:
        """End the worker's lease because the pictures `lost` of its item cannot be read. Items with a picture in
        `self.lost` are no longer leased.
        """
        self.lost |= frozenset(lost)
        release(db, study_id, worker)
        words = f"an item is set aside: {', '.join(sorted(lost))} is missing or damaged; restore it from a backup"
        log_change(db, "picture lost", words, study_id, worker)

    @read
    def without_picture(self, db: Db, study_id: str) -> int:
        values = {"study": study_id, "lost": json.dumps(sorted(self.lost))}
        return int(first_value(db, _QUERIES["without_picture"], values)) if self.lost else 0

    @read
    def can_undo(self, db: Db, study_id: str, worker: str) -> bool:
        """Return True if `undo` would undo an answer of the worker in a running study."""
        return _to_undo(db, study_id, worker) is not None

    @read
    def progress(self, db: Db, study_id: str, worker: str) -> tuple[int, int]:
        """Return the numbers of ordinary items that a worker has judged, and of those that the worker may still get."""
        study = require_study(db, study_id)
        values = {"study": study_id, "worker": worker, "votes": study["votes"]}
        remaining, seen = db.execute(_QUERIES["progress"], values).fetchone()
        done, most = seen or 0, rules_of(study["rules"]).most_items
        return done, min(remaining, max(0, most - done)) if most else remaining

    @read
    def controls_left(self, db: Db, study_id: str, worker: str) -> int:
        """Return the number of control pictures that a worker has seen neither as a control item nor in training."""
        query = _QUERIES["controls_left"]
        values = {"study": study_id, "worker": worker}
        seen_in_training = told_of(db, study_id, worker)
        if seen_in_training:
            columns = "image, source, json_extract(content, '$.origin.picture') AS picture"
            rows = db.query(query.format(columns=columns), values)
            return len({row["image"] for row in rows if seen_in_training.isdisjoint(row.values())})
        return int(first_value(db, query.format(columns="count(DISTINCT image)"), values))

    @read
    def waiting(self, db: Db, study_id: str, worker: str) -> bool:
        """Return True if others hold leases on items that this worker has not judged. These items may become free."""
        return bool(first_value(db, _QUERIES["waiting"], {"study": study_id, "worker": worker}))

    def _noted(self, assignment: Assignment) -> Assignment:
        self._given[assignment.id] = monotonic()
        while len(self._given) > _MOST_NOTED:
            del self._given[next(iter(self._given))]
        return assignment

    def _most_seconds(self, row: Row, time: str, rules: Rules) -> float:
        """Return the maximum seconds that a vote can have taken: the time since the worker got the item.

        Two clocks measure this time, and the longer time is returned: the server's clock may have been set back, and
        `time.monotonic` stops while the machine sleeps. Without any measured time, return the duration of a lease.
        """
        by_clock = (when(time) - when(row["accepted"])).total_seconds()
        leased_at = self._given.get(row["id"])
        if leased_at is not None:
            return max(by_clock, monotonic() - leased_at)
        return by_clock if by_clock > 0 else 60 * rules.lease_minutes


def _has_had_most(db: Db, study_id: str, worker: str, rules: Rules) -> bool:
    query = "SELECT items_seen FROM enrolments WHERE study = ? AND worker = ?"
    return bool(rules.most_items) and first_value(db, query, [study_id, worker]) >= rules.most_items


def hold_again(db: Db, study_id: str) -> None:
    expires = _later(now(), rules_of(require_study(db, study_id)["rules"]))
    db.execute("UPDATE assignments SET expires = ? WHERE study = ? AND state = 'leased'", [expires, study_id])


def _may_write(db: Db, study_id: str, worker: str) -> Rules:
    """Return the study's rules. Raises VoteRefused unless it is running and the worker's votes count in it."""
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
    """Return the worker's latest answered assignment; None if none exists or it cannot be undone."""
    values = {"study": study_id, "worker": worker}
    row = first_row(db, _QUERIES["to_undo"], values)
    # A worker who has read the feedback would only repeat the right answer.
    if row is None or row["kind"] not in WORK:
        return None
    return None if first_value(db, _QUERIES["taken_back"], {**values, "vote": row["vote"]}) else row


def _end_leases(db: Db, study_id: str, time: str) -> None:
    query = "UPDATE assignments SET state = 'expired' WHERE study = ? AND state = 'leased' AND expires <= ?"
    db.execute(query, [study_id, time])


def _give(db: Db, study_id: str, worker: str, item: Row, seed: int, time: str, expires: str) -> Assignment:
    db.execute("UPDATE enrolments SET given = given + 1 WHERE study = ? AND worker = ?", [study_id, worker])
    row = {
        "public": secrets.token_urlsafe(16),
        "image_token": secrets.token_urlsafe(16),
        "source_token": secrets.token_urlsafe(16) if item["source"] else None,
        "study": study_id,
        "worker": worker,
        "item": item["id"],
        "kind": item["kind"],
        "side": random.Random(f"side\0{seed}\0{worker}\0{item['id']}").choice(("left", "right")),
        "number": items_given(db, study_id, worker),
        "state": "leased",
        "accepted": time,
        "expires": expires,
    }
    return _by_id(db, insert_row(db, "assignments", row))


def _later(time: str, rules: Rules) -> str:
    ends = datetime.fromisoformat(time).astimezone(UTC) + timedelta(minutes=rules.lease_minutes)
    return ends.isoformat(timespec="microseconds")


def _own_row(db: Db, public: str, worker: str) -> Row | None:
    """Return the assignment with this token; None if none exists or it belongs to another worker."""
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
    about = {"item": _item(db, row["item"]), "study_id": row["study"]}
    return record_of(Assignment, row, answers=answers, comment=comment, **about)
