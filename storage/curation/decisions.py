"""People's decisions about images of the catalogue: verdicts, tags and labels, each with author and time.

A decision may be about many images. It is made and undone as a whole. Undoing deletes nothing, but records the earlier
state again. Images with a later decision stay unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.errors import UserError
from core.image_filter import ImageFilter
from core.stored_runs import VERDICTS, Verdict
from core.types import LONGEST_REASON
from core.words import count_of
from storage.curation.selection import Selection
from storage.engine.database import Repository, read, write
from storage.engine.queries import first_column, first_value, insert_row, insert_rows, records, required_row
from storage.engine.rows import Row, checked_text, now, pack, record_of

MOST_AT_ONCE = 100_000
"""Maximum number of images in one decision."""
LONGEST_AUTHOR = 60
LONGEST_TAG = 60
LONGEST_LABEL = 200
LONGEST_KEY = 100
DecisionKind = Literal["review", "tag", "label"]
_LOGS: dict[DecisionKind, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "review": (("reviews", ("test_case",)), ("reviews", ("entry",))),
    "tag": (("catalogue_tags", ("entry", "tag")),),
    "label": (("catalogue_labels", ("entry",)),),
}
"""Tables that record each kind of decision, with the columns that identify an image, or an image and its tag."""
_BEFORE_ANY: dict[str, dict[str, Any]] = {
    "reviews": {"verdict": "open", "reason": ""},
    "catalogue_tags": {"put": 0},
    "catalogue_labels": {"label": ""},
}
"""Initial values of the columns that a decision sets, by table: the state before any decision."""
_QUERIES = DataTable(__file__, str)


@dataclass(frozen=True)
class Target:
    """The images that a decision is about: a list of images, or all images that match a filter."""

    entries: Sequence[int] = ()
    filter: ImageFilter | None = None
    expected: int | None = None
    """Number of matching images that the person saw; None if the images are listed."""


@dataclass(frozen=True)
class Change:
    """The result of a decision."""

    decision: int
    """Number of the decision; 0 if nothing changed."""
    changed: int
    """Number of images that changed."""
    same: int
    """Number of images that were in the requested state already."""


@dataclass(frozen=True)
class TakenBack:
    """The result of an undo."""

    decision: int
    """Number of the decision that records the undo. It can be undone too."""
    undoes: int
    kind: DecisionKind
    what: str
    changed: int
    left: int
    """Number of images that the undo left unchanged, as they have a later decision."""
    again: bool
    """True if the undo of an undo brought the first decision into force again."""
    entry: int = 0
    """Catalogue number of the image if exactly one changed, else 0."""


@dataclass(frozen=True)
class Decision:
    """One decision about one or many images."""

    id: int
    kind: DecisionKind
    author: str
    what: str
    entries: int
    """Number of images that the decision changed."""
    undoes: int
    """Number of the decision that this one undoes, or 0."""
    undone: int
    """Number of the decision that undoes this one, or 0."""
    created: datetime


@dataclass(frozen=True)
class Said:
    """The part of a decision that is about one image: its verdict, tag or label."""

    kind: DecisionKind
    what: str
    reason: str
    author: str
    decision: int
    """Number of the decision; 0 for a verdict given on a run's page."""
    restored: bool
    """True if an undo brought this earlier verdict, tag or label back."""
    created: datetime


@dataclass(frozen=True)
class ReviewSession:
    """Summary of a person's review session."""

    id: int
    author: str
    repeats: float
    """Share of decisions, 0 to 0.2, after which the person sees an earlier image again, to decide a second time."""
    decisions: int
    images: int
    first: datetime | None
    last: datetime | None
    repeated: int
    agreed: int
    """Number of images that got the same verdict both times they were shown."""


class Decisions(Repository):
    """Decisions about the images of the catalogue. Each write is one transaction."""

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
        """Accept or reject images, or withdraw the images' verdicts (`verdict` "open").

        An image that already has the verdict is recorded again only with another reason. With a `session`, the default
        author is the session's author. If an earlier decision has the same `key`, return its result and change nothing.
        Raises UserError for unknown images, no images or too many, and if a filter does not match the expected number
        of images.
        """
        if verdict not in VERDICTS:
            raise ValueError(f"there is no verdict {verdict!r}")
        reason = _reason(verdict, reason)
        if session is not None:
            author = author or _session(db, session)["author"]
        what = f"{verdict}: {reason}" if reason else verdict
        return _decide(db, "review", what, author, target, {"verdict": verdict, "reason": reason}, key, session)

    @write
    def tag(self, db: Db, target: Target, tag: str, put: bool = True, author: str = "", key: str = "") -> Change:
        """If `put`, add a tag to images, else remove it. See `review` for `key` and errors. "" is no valid tag."""
        name = checked_text(tag, "The tag", LONGEST_TAG, "tag", if_empty="Give the tag a name.")
        what = name if put else f"{name} (taken off)"
        return _decide(db, "tag", what, author, target, {"tag": name, "put": int(put)}, key)

    @write
    def relabel(self, db: Db, target: Target, label: str, author: str = "", key: str = "") -> Change:
        """Relabel images. See `review` for `key` and errors. An empty label and segmentation images are errors."""
        empty = "Give the images a label: an image of a classification cannot do without."
        label = checked_text(label, "The label", LONGEST_LABEL, "label", if_empty=empty)
        return _decide(db, "label", label, author, target, {"label": label}, key)

    @write
    def take_back(self, db: Db, decision: int = 0, author: str = "", key: str = "") -> TakenBack:
        """Undo a decision. Images that a later decision changed stay as they are. Other undone decisions stay undone.

        With `decision` 0, undo this author's latest decision in force. The undo is a decision too and can be undone.
        `key` works as in `review`. Raises UserError if the decision is unknown or undone, or if there is none to undo.
        """
        author = _author(author)
        if earlier := _decided_before(db, key, None):
            return _taken_back(db, earlier["id"])
        chain = _in_force(db, decision) if decision else _last_of(db, author)
        moved, created = _rows_after(db, chain[0]), now()
        row = {"kind": chain[0]["kind"], "what": chain[0]["what"], "undoes": chain[-1]["id"], "entries": len(moved)}
        row |= {"author": author, "created": created, "key": key or None}
        number = insert_row(db, "image_decisions", row)
        for table, values in moved:
            insert_rows(db, table, [{**values, "author": author, "decision": number, "created": created}])
        return _taken_back(db, number)

    @read
    def all(self, db: Db, limit: int = 100, after: int = 0, author: str | None = None) -> tuple[Decision, ...]:
        """Return up to `limit` decisions, latest first. `after` is the id of the last decision of the previous page."""
        return records(db, Decision, _QUERIES["listed"], {"after": after, "author": author, "limit": limit})

    @read
    def of_entry(self, db: Db, entry: int) -> tuple[Said, ...]:
        """Return all decisions about one image, latest first. Raises UserError if the image is unknown."""
        _require(db, [entry])
        return records(db, Said, _QUERIES["of_entry"], {"entry": entry})

    # Sessions: consecutive decisions of one person, in which some images are shown again

    @write
    def begin_session(self, db: Db, author: str, repeats: float) -> int:
        """Start a review session and return its number. `repeats` is the share of images to show again, 0 to 0.2."""
        return insert_row(db, "review_sessions", {"author": _author(author), "repeats": repeats, "created": now()})

    @read
    def session(self, db: Db, session: int) -> ReviewSession:
        """Return a review session. Its counts include undone decisions. Raises UserError if the session is unknown."""
        figures = next(db.query(_QUERIES["session"], {"session": session}))
        return record_of(ReviewSession, {**_session(db, session), **figures})

    @read
    def repeatable(self, db: Db, session: int, waits: int) -> tuple[int, ...]:
        """Return images that a session can show a second time. The person last judged each image in a decision of its
        own, and made at least `waits` decisions since. The images still have a verdict and were shown once.
        """
        return tuple(entry for entry, _ in _repeatable(db, session, waits))

    @write
    def answer_repeat(self, db: Db, session: int, entry: int, verdict: Verdict, reason: str = "") -> bool:
        """Save the second verdict on an image. Return True if it equals the first. Raises UserError if none is due."""
        _session(db, session)
        reason = _reason(verdict, reason)
        for candidate, before in _repeatable(db, session, 0):
            if candidate == entry:
                row = {"session": session, "entry": entry, "before": before, "verdict": verdict}
                insert_row(db, "review_repeats", {**row, "reason": reason, "created": now()})
                return bool(verdict == before)
        raise UserError(f"Image {entry} is not due to be judged again here: continue with the next one.", field="entry")


def _decide(
    db: Db,
    kind: DecisionKind,
    what: str,
    author: str,
    target: Target,
    values: Row,
    key: str,
    session: int | None = None,
) -> Change:
    if earlier := _decided_before(db, key, kind):
        return Change(earlier["id"], earlier["entries"], 0)
    entries = _entries(db, target)
    if kind == "label":
        _require_classified(db, entries)
    changed = first_column(db, _QUERIES[f"{kind}_changes"], {**values, "entries": pack(entries)})
    same = len(entries) - len(changed)
    if not changed:
        return Change(0, 0, same)
    author, created = _author(author), now()
    row = {"kind": kind, "author": author, "what": what, "entries": len(changed), "created": created}
    number = insert_row(db, "image_decisions", {**row, "session": session, "key": key or None})
    named = {"entries": pack(changed), "author": author, "decision": number, "now": created}
    db.execute(_QUERIES[f"{kind}_save"], {**values, **named})
    return Change(number, len(changed), same)


def _decided_before(db: Db, key: str, kind: DecisionKind | None) -> Row | None:
    """Return the decision with this key, or None. Raises UserError if its kind is not `kind` (None means an undo)."""
    for row in db.query("SELECT * FROM image_decisions WHERE key = ?", [key]) if key else ():
        if kind != (None if row["undoes"] else row["kind"]):
            raise UserError("Another kind of decision used this key: give each decision its own key.", field="key")
        return dict(row)
    return None


def _taken_back(db: Db, number: int) -> TakenBack:
    chain = [row for row in _chain(db, number) if row["id"] <= number]
    row, entry = chain[-1], 0
    if row["entries"] == 1:
        (moved,) = db.query(f"SELECT * FROM {_LOGS[row['kind']][0][0]} WHERE decision = ?", [number])
        query = "SELECT id FROM catalogue WHERE id = ? OR test_case = ?"
        entry = first_value(db, query, [moved["entry"], moved.get("test_case")])
    left, again = chain[0]["entries"] - row["entries"], len(chain) % 2 == 1
    return TakenBack(number, row["undoes"], row["kind"], row["what"], row["entries"], left, again, entry)


def _entries(db: Db, target: Target) -> list[int]:
    """Return the target's catalogue numbers. Raises UserError for no images, too many, or an unexpected number."""
    if target.filter is not None:
        entries = Selection(db, target.filter).entries
        if target.expected is not None and len(entries) != target.expected:
            raise UserError(
                f"Nothing was changed: the filter now finds {count_of(len(entries), 'image')}, not "
                f"{target.expected:,}. Look at the images again before you decide.",
                field="expected",
            )
    else:
        entries = list(dict.fromkeys(target.entries))
        _require(db, entries)
    if not entries:
        raise UserError("There is no image to decide about: choose some first.", field="entries")
    if len(entries) > MOST_AT_ONCE:
        raise UserError(
            f"These are {len(entries):,} images, but at most {MOST_AT_ONCE:,} can be decided at once: choose fewer.",
            field="entries",
        )
    return entries


def _require_classified(db: Db, entries: Sequence[int]) -> None:
    without = first_value(db, _QUERIES["not_classified"], [pack(list(entries))])
    if without:
        many = count_of(without, "image", "belongs")
        raise UserError(
            f"{many} to a segmentation. Only images of classifications can have a label. Choose other images.",
            field="label",
        )


def _require(db: Db, entries: Sequence[int]) -> None:
    query = "SELECT value FROM json_each(?) WHERE value NOT IN (SELECT id FROM catalogue) LIMIT 1"
    for unknown in first_column(db, query, [pack(list(entries))]):
        raise UserError(f"The catalogue has no image {unknown}; nothing was changed.", field="entries")


def _repeatable(db: Db, session: int, waits: int) -> list[tuple[int, str]]:
    """Return (catalogue number, verdict in this session) of each image that can be shown again."""
    return db.execute(_QUERIES["repeatable"], {"session": session, "waits": waits}).fetchall()


def _session(db: Db, session: int) -> Row:
    missing = f"There is no session {session}; begin a new one."
    return required_row(db, "review_sessions", session, missing, "session")


def _author(author: str) -> str:
    return checked_text(author, "Your name", LONGEST_AUTHOR, "author")


def _reason(verdict: Verdict, reason: str) -> str:
    return checked_text(reason, "The reason", LONGEST_REASON, "reason") if verdict == "rejected" else ""


# Undoing an undo redoes the first decision. Decisions that undo each other form a chain. The first decision is in force
# if the number of undos is even.


def _in_force(db: Db, decision: int) -> list[Row]:
    """Return a decision and its chain of undos. Raises UserError if the decision is unknown or not in force."""
    chain = _chain(db, decision)
    if not chain:
        raise UserError(f"There is no decision {decision}; take one from the list.", field="decision")
    if sum(row["id"] > decision for row in chain) % 2:
        raise UserError("This decision was undone already: look at the current state.", field="decision")
    return chain


def _last_of(db: Db, author: str) -> list[Row]:
    """Return the author's latest decision in force, with any undos and redos of it. Raises UserError if none exists."""
    query = "SELECT id FROM image_decisions WHERE author = ? AND undoes IS NULL ORDER BY id DESC"
    for (number,) in db.execute(query, [author]):
        if len(chain := _chain(db, number)) % 2:
            return chain
    raise UserError("You have no decision to undo.", field="decision")


def _chain(db: Db, decision: int) -> list[Row]:
    """Return a decision, the undo of it, the undo of this undo, and so on, oldest first; [] if it is unknown."""
    return list(db.query(_QUERIES["chain"], [decision]))


def _rows_after(db: Db, first: Row) -> list[tuple[str, Row]]:
    """Return rows to insert, as (table, row), that undo the decision `first`. If `first` is undone, redo `first`.

    A new row copies the latest older row that is valid after this change. A row is valid if its decision is not undone
    or if no decision wrote the row. Rows that an undo of a decision wrote are never copied. Without a valid row, the
    new row has default values.
    """
    moved: list[tuple[str, Row]] = []
    for table, keys in _LOGS[first["kind"]]:
        key = " AND ".join(f"{table}.{name} = held.{name}" for name in keys)
        defaults = _BEFORE_ANY[table]
        columns = [f"held.{name}" for name in keys]
        columns += [f"coalesce(was.{name}, :{name}) AS {name}" for name in defaults]
        if table == "catalogue_labels":
            columns.append("(SELECT label FROM catalogue WHERE id = held.entry) AS before")
        parts = {"table": table, "columns": ", ".join(columns), "key": key, "keys": ", ".join(keys), "first": keys[0]}
        rows = db.query(_QUERIES["rows_after"].format(**parts), {**defaults, "decision": first["id"]})
        moved += [(table, row) for row in rows]
    return moved
