"""What people decide about images of the catalogue: verdicts, tags and labels, each kept with who said it and when.

One decision may be about many images; it happens as a whole or not at all, and is taken back as a whole. Nothing is
deleted by that: what counted before is said once more. What somebody else decided of an image meanwhile stays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlite_utils import Database as Db

from core.errors import UserError
from core.image_filter import ImageFilter
from core.stored_runs import VERDICTS, Verdict
from core.types import LONGEST_REASON
from core.words import count_of
from storage.curation import entry_sets
from storage.curation.decision_undo import DecisionKind, in_force, last_of, log_of, words_after
from storage.curation.selection import Selection
from storage.engine.database import Repository, read, write
from storage.engine.rows import Row, checked_text, insert_row, now, pack, record_of, when

MOST_AT_ONCE = 100_000
"""Images that one decision is about at most."""
LONGEST_AUTHOR = 60
LONGEST_TAG = 60
LONGEST_LABEL = 200
LONGEST_KEY = 100


@dataclass(frozen=True)
class Target:
    """Which images a decision is about: these, or all that a filter means."""

    entries: Sequence[int] = ()
    filter: ImageFilter | None = None
    expected: int | None = None
    """With a filter: how many images the person was told that it means."""


@dataclass(frozen=True)
class Change:
    """What came of a decision."""

    decision: int
    """Its number; 0 where nothing was changed."""
    changed: int
    """Images that are now something else."""
    same: int
    """Images that were so already."""


@dataclass(frozen=True)
class TakenBack:
    """What came of taking a decision back."""

    decision: int
    """The number of the decision that did it: it can be taken back as well."""
    undoes: int
    kind: DecisionKind
    what: str
    changed: int
    left: int
    """Images of which something else was decided since; they stay as they are."""
    again: bool
    """What was decided counts again: it was done again, and not taken back."""
    entry: int = 0
    """The image, where it is a single one that changed; else 0."""


@dataclass(frozen=True)
class Decision:
    """One thing that was decided, of one image or of many."""

    id: int
    kind: DecisionKind
    author: str
    """"" for somebody who gave no name."""
    what: str
    entries: int
    """Images that it changed."""
    undoes: int
    """The decision that it takes back; 0 for none."""
    undone: int
    """The decision that takes it back; 0 for none."""
    created: datetime


@dataclass(frozen=True)
class Said:
    """One thing that was said of one image."""

    kind: DecisionKind
    what: str
    reason: str
    author: str
    decision: int
    """0 where it was said on the page of its run."""
    restored: bool
    """Something that was taken back made it count again."""
    created: datetime


@dataclass(frozen=True)
class ReviewSession:
    """What a person decided at one go."""

    id: int
    author: str
    repeats: float
    """After this share of the decisions, from 0 to 0.2, an image is shown once more."""
    decisions: int
    images: int
    first: datetime | None
    last: datetime | None
    repeated: int
    """Images that were judged once more."""
    agreed: int
    """Of these, how many got the same verdict again."""


class Decisions(Repository):
    """What was decided about the images of the catalogue. Whatever saves is one transaction."""

    @write
    def review(
        self,
        db: Db,
        target: Target,
        verdict: Verdict,
        reason: str = "",
        author: str = "",
        session: int | None = None,
        key: str = "",
    ) -> Change:
        """Accept or reject images, or with "open" take back what was said of them. A verdict that an image has already
        is not said again, but for another reason. Of a session it is said by its author, where no other is named.

        What comes with the `key` of an earlier decision is that decision, and changes nothing.

        Raises UserError for images that are unknown, none or too many, and where a filter means another number of
        images than was expected.
        """
        if verdict not in VERDICTS:
            raise ValueError(f"there is no verdict {verdict!r}")
        reason = checked_text(reason, "The reason", LONGEST_REASON, "reason") if verdict == "rejected" else ""
        if session is not None:
            author = author or _session(db, session)["author"]
        if earlier := _decided_before(db, key, "review"):
            return Change(earlier["id"], earlier["entries"], 0)
        entries = _entries(db, target)
        query = """
            SELECT catalogue.id FROM json_each(:entries) AS wanted CROSS JOIN catalogue ON catalogue.id = wanted.value
                LEFT JOIN reviews ON reviews.id = catalogue.review
            WHERE catalogue.verdict <> :verdict OR :reason <> '' AND reviews.reason <> :reason ORDER BY wanted.key
        """
        found = db.execute(query, {"entries": pack(entries), "verdict": verdict, "reason": reason})
        changed = [entry for (entry,) in found]
        what = f"{verdict}: {reason}" if reason else verdict
        save = """
            INSERT INTO reviews (test_case, entry, verdict, reason, author, decision, created)
            SELECT test_case, iif(test_case IS NULL, catalogue.id, NULL), :verdict, :reason, :author, :decision, :now
            FROM json_each(:entries) AS wanted CROSS JOIN catalogue ON catalogue.id = wanted.value ORDER BY wanted.key
        """
        values = {"verdict": verdict, "reason": reason}
        return _decided(db, "review", what, author, entries, changed, save, values, key, session)

    @write
    def tag(self, db: Db, target: Target, tag: str, put: bool = True, author: str = "", key: str = "") -> Change:
        """Put a tag on images, or take it off; `key` as in `review`. Raises UserError as `review` does, and for a tag
        without a name.
        """
        name = checked_text(tag, "The tag", LONGEST_TAG, "tag")
        if not name:
            raise UserError("Give the tag a name.", field="tag")
        if earlier := _decided_before(db, key, "tag"):
            return Change(earlier["id"], earlier["entries"], 0)
        entries = _entries(db, target)
        query = """
            SELECT value FROM json_each(:entries) WHERE :put <> coalesce((
                SELECT put FROM catalogue_tags WHERE entry = value AND tag = :tag ORDER BY id DESC LIMIT 1
            ), 0) ORDER BY key
        """
        values: dict[str, Any] = {"tag": name, "put": int(put)}
        changed = [entry for (entry,) in db.execute(query, {**values, "entries": pack(entries)})]
        save = """
            INSERT INTO catalogue_tags (entry, tag, put, author, decision, created)
            SELECT value, :tag, :put, :author, :decision, :now FROM json_each(:entries) ORDER BY key
        """
        what = name if put else f"{name} (taken off)"
        return _decided(db, "tag", what, author, entries, changed, save, values, key)

    @write
    def relabel(self, db: Db, target: Target, label: str, author: str = "", key: str = "") -> Change:
        """Give images another label; `key` as in `review`. Raises UserError as `review`, for "" and for
        segmentations.
        """
        label = checked_text(label, "The label", LONGEST_LABEL, "label")
        if not label:
            raise UserError("Give the images a label: an image of a classification cannot do without.", field="label")
        if earlier := _decided_before(db, key, "label"):
            return Change(earlier["id"], earlier["entries"], 0)
        entries = _entries(db, target)
        query = """
            SELECT count(*) FROM json_each(?) AS wanted CROSS JOIN catalogue ON catalogue.id = wanted.value
            WHERE kind <> 'classification'
        """
        (without,) = db.execute(query, [pack(entries)]).fetchone()
        if without:
            many = count_of(without, "image", "belongs")
            raise UserError(
                f"{many} to a segmentation, which has protected classes and no label: choose classifications only.",
                field="label",
            )
        query = """
            SELECT catalogue.id FROM json_each(?) AS wanted CROSS JOIN catalogue ON catalogue.id = wanted.value
            WHERE label <> ? ORDER BY wanted.key
        """
        changed = [entry for (entry,) in db.execute(query, [pack(entries), label])]
        save = """
            INSERT INTO catalogue_labels (entry, label, before, author, decision, created)
            SELECT catalogue.id, :label, label, :author, :decision, :now
            FROM json_each(:entries) AS wanted CROSS JOIN catalogue ON catalogue.id = wanted.value ORDER BY wanted.key
        """
        return _decided(db, "label", label, author, entries, changed, save, {"label": label}, key)

    @write
    def take_back(self, db: Db, decision: int = 0, author: str = "", key: str = "") -> TakenBack:
        """What counted before a decision, and was not taken back itself, counts again, of each image where nothing else
        was decided since. 0: the last decision of this author that counts. What takes a decision back is a decision,
        and is taken back in its turn. `key` as in `review`.

        Raises UserError for an unknown decision, for one that does not count any more, and where there is none.
        """
        author = _author(author)
        if earlier := _decided_before(db, key, None):
            return _taken_back_before(db, earlier)
        row = in_force(db, decision) if decision else last_of(db, author)
        rows, again = words_after(db, row)
        moved = [(word.table, word.values) for word in rows if word.changes]
        created = now()
        about = {"kind": row["kind"], "author": author, "what": row["what"], "entries": len(moved)}
        about |= {"undoes": row["id"], "created": created, "key": key or None}
        number = insert_row(db, "image_decisions", about)
        for table, values in moved:
            held = {**values, "author": author, "decision": number, "created": created}
            names = ", ".join(held)
            db.conn.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(held))})", [*held.values()])
        left = len(rows) - len(moved)
        entry = _entry_of(db, moved[0][1]) if len(moved) == 1 else 0
        return TakenBack(number, row["id"], row["kind"], row["what"], len(moved), left, again, entry)

    @read
    def all(self, db: Db, limit: int = 100, after: int = 0, author: str | None = None) -> tuple[Decision, ...]:
        """Decisions, the latest first, at most `limit`, those older than the decision `after` where there is one."""
        query = """
            SELECT held.*, coalesce(held.undoes, 0) AS undoes, coalesce(undo.id, 0) AS undone
            FROM image_decisions AS held
                LEFT JOIN image_decisions AS undo ON undo.undoes = held.id
            WHERE (:after = 0 OR held.id < :after) AND (:author IS NULL OR held.author = :author)
            ORDER BY held.id DESC LIMIT :limit
        """
        rows = db.query(query, {"after": after, "author": author, "limit": limit})
        return tuple(record_of(Decision, row) for row in rows)

    @read
    def of_entry(self, db: Db, entry: int) -> tuple[Said, ...]:
        """All that was said of one image, the latest first. Raises UserError for an unknown one."""
        _require(db, [entry])
        query = """
            SELECT 'review' AS kind, reviews.verdict AS what, reason, author, decision, restores, reviews.created,
                reviews.id AS number
            FROM catalogue JOIN reviews ON reviews.test_case = catalogue.test_case WHERE catalogue.id = :entry
            UNION ALL SELECT 'review', verdict, reason, author, decision, restores, created, id
            FROM reviews WHERE entry = :entry
            UNION ALL SELECT 'tag', iif(put, tag, tag || ' (taken off)'), '', author, decision, restores, created, id
            FROM catalogue_tags WHERE entry = :entry
            UNION ALL SELECT 'label', iif(label = '', (
                SELECT before FROM catalogue_labels WHERE entry = :entry ORDER BY id LIMIT 1
            ), label), '', author, decision, restores, created, id FROM catalogue_labels WHERE entry = :entry
            ORDER BY created DESC, number DESC
        """
        return tuple(
            record_of(Said, row, decision=row["decision"] or 0, restored=row["restores"] is not None)
            for row in db.query(query, {"entry": entry})
        )

    # Sessions: a person's decisions at one go, with some images shown once more

    @write
    def begin_session(self, db: Db, author: str, repeats: float) -> int:
        """A new session; returns its number. `repeats`: from 0 to 0.2."""
        row = {"author": _author(author), "repeats": float(repeats), "created": now()}
        return insert_row(db, "review_sessions", row)

    @read
    def session(self, db: Db, session: int) -> ReviewSession:
        """A session as it is now. What was taken back in it counts as decided. Raises UserError for an unknown one."""
        row = _session(db, session)
        counts = """
            SELECT count(*), coalesce(sum(entries), 0), min(created), max(created)
            FROM image_decisions WHERE session = ?
        """
        decisions, images, first, last = db.execute(counts, [session]).fetchone()
        agreement = "SELECT count(*), coalesce(sum(verdict = before), 0) FROM review_repeats WHERE session = ?"
        repeated, agreed = db.execute(agreement, [session]).fetchone()
        return ReviewSession(
            session,
            row["author"],
            row["repeats"],
            decisions,
            images,
            when(first) if first else None,
            when(last) if last else None,
            repeated,
            agreed,
        )

    @read
    def repeatable(self, db: Db, session: int, waits: int) -> tuple[int, ...]:
        """Return images to show again: decided alone at least `waits` decisions ago, still so, not yet repeated."""
        return tuple(entry for entry, _ in _repeatable(db, session, waits))

    @write
    def answer_repeat(self, db: Db, session: int, entry: int, verdict: Verdict, reason: str = "") -> bool:
        """Keep what is said of an image shown again; return True if unchanged. Raises UserError if it is not due."""
        _session(db, session)
        reason = checked_text(reason, "The reason", LONGEST_REASON, "reason") if verdict == "rejected" else ""
        for held, before in _repeatable(db, session, 0):
            if held == entry:
                row = {"session": session, "entry": entry, "before": before, "verdict": verdict}
                insert_row(db, "review_repeats", {**row, "reason": reason, "created": now()})
                return bool(verdict == before)
        raise UserError(f"Image {entry} is not shown once more here: go on with the next one.", field="entry")


def _decided(
    db: Db,
    kind: DecisionKind,
    what: str,
    author: str,
    entries: Sequence[int],
    changed: Sequence[int],
    save: str,
    values: Row,
    key: str,
    session: int | None = None,
) -> Change:
    same = len(entries) - len(changed)
    if not changed:
        return Change(0, 0, same)
    author, created = _author(author), now()
    row = {"kind": kind, "author": author, "what": what, "entries": len(changed), "created": created}
    number = insert_row(db, "image_decisions", {**row, "session": session, "key": key or None})
    named = {"entries": pack(list(changed)), "author": author, "decision": number, "now": created}
    db.execute(save, {**values, **named})
    return Change(number, len(changed), same)


def _decided_before(db: Db, key: str, kind: DecisionKind | None) -> Row | None:
    """The decision of this kind, or with None what took one back, that came with the same key. Raises UserError where
    the key was of something else.
    """
    for row in db.query("SELECT * FROM image_decisions WHERE key = ?", [key]) if key else ():
        if kind != (None if row["undoes"] else row["kind"]):
            raise UserError("Something else was done with this key: give each decision its own.", field="key")
        return dict(row)
    return None


def _taken_back_before(db: Db, row: Row) -> TakenBack:
    first, again = row, True
    while first["undoes"] is not None:
        first, again = next(iter(db.query("SELECT * FROM image_decisions WHERE id = ?", [first["undoes"]]))), not again
    moved = list(db.query(f"SELECT * FROM {log_of(row['kind'])} WHERE decision = ?", [row["id"]]))
    entry = _entry_of(db, moved[0]) if len(moved) == 1 else 0
    left = first["entries"] - row["entries"]
    return TakenBack(row["id"], row["undoes"], row["kind"], row["what"], row["entries"], left, again, entry)


def _entry_of(db: Db, said: Row) -> int:
    if said.get("entry") is not None:
        return int(said["entry"])
    return int(db.execute("SELECT id FROM catalogue WHERE test_case = ?", [said["test_case"]]).fetchone()[0])


def _entries(db: Db, target: Target) -> list[int]:
    """The images that are meant. Raises UserError where there are none or too many, or not as many as expected."""
    if target.filter is not None:
        found: list[int] = entry_sets.entries_of(Selection(db, target.filter).whole).tolist()
        if target.expected is not None and len(found) != target.expected:
            raise UserError(
                f"Nothing was changed: {count_of(len(found), 'image', 'is')} here now, and not "
                f"{target.expected:,}. Look again, and decide then.",
                field="expected",
            )
    else:
        found = list(dict.fromkeys(target.entries))
        _require(db, found)
    if not found:
        raise UserError("There is no image to decide about: choose some first.", field="entries")
    if len(found) > MOST_AT_ONCE:
        raise UserError(
            f"These are {len(found):,} images; at most {MOST_AT_ONCE:,} are decided at once: choose fewer.",
            field="entries",
        )
    return found


def _require(db: Db, entries: Sequence[int]) -> None:
    query = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT id FROM catalogue) LIMIT 1"
    for (unknown,) in db.execute(query, [json.dumps(list(entries))]).fetchall():
        raise UserError(f"The catalogue has no image {unknown}; nothing was changed.", field="entries")


def _repeatable(db: Db, session: int, waits: int) -> list[tuple[int, str]]:
    """By its number, each image that can be shown once more, with what the person said of it in this session."""
    query = """
        WITH ordered AS (
            SELECT id, entries, row_number() OVER (ORDER BY id DESC) - 1 AS since
            FROM image_decisions WHERE session = :session AND kind = 'review'
        ), said AS (
            SELECT catalogue.id AS entry, catalogue.verdict AS verdict_now, reviews.verdict, since, ordered.entries,
                row_number() OVER (PARTITION BY catalogue.id ORDER BY reviews.id DESC) AS place
            FROM ordered JOIN reviews ON reviews.decision = ordered.id
                JOIN catalogue ON catalogue.test_case = reviews.test_case OR catalogue.id = reviews.entry
        )
        SELECT entry, verdict FROM said
        WHERE place = 1 AND entries = 1 AND since >= :waits AND verdict <> 'open' AND verdict_now <> 'open'
            AND entry NOT IN (SELECT entry FROM review_repeats WHERE session = :session)
        ORDER BY entry
    """
    return db.execute(query, {"session": session, "waits": waits}).fetchall()


def _session(db: Db, session: int) -> Row:
    for row in db.query("SELECT * FROM review_sessions WHERE id = ?", [session]):
        return row
    raise UserError(f"There is no session {session}; begin a new one.", field="session")


def _author(author: str) -> str:
    return checked_text(author, "Your name", LONGEST_AUTHOR, "author")
