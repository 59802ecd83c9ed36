"""Training items in the tables of studies, as the step `m013_training` makes them. A released step is never edited.

A fourth kind of item. What a worker answered of it is kept like any answer, and nothing counts it but `training_seen`:
no approval, no figure of control items or quiz. What a worker has been told of an answer they have read once they say
so: until then a page that is loaded again tells it again.
"""

from __future__ import annotations

import sqlite_utils

APPEND_ONLY = ("training_read",)

_ITEMS = (
    # The same with a fourth kind; outcome and test_case are of the step m004_states.
    """
    CREATE TABLE new_study_items (  -- only leases, votes and outcome change, by triggers; place at the start
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        study TEXT NOT NULL REFERENCES studies (id),
        public TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL CHECK (kind IN ('item', 'control', 'quiz', 'training')),
        place INTEGER,  -- 0, 1, ... among those of its kind; NULL in a draft
        image TEXT NOT NULL REFERENCES images (sha),
        source TEXT REFERENCES images (sha),
        content TEXT NOT NULL CHECK (json_valid(content)),  -- the other fields of a NewItem
        leases INTEGER NOT NULL DEFAULT 0 CHECK (leases >= 0),
        votes INTEGER NOT NULL DEFAULT 0 CHECK (votes >= 0),
        created TEXT NOT NULL,
        outcome TEXT NOT NULL DEFAULT ''
            CHECK (outcome IN ('valid', 'invalid', 'no consensus', 'too few votes', '')),
        test_case INTEGER GENERATED ALWAYS AS (json_extract(content, '$.test_case')) VIRTUAL
    ) STRICT
    """,
    """
    INSERT INTO new_study_items
        (id, study, public, kind, place, image, source, content, leases, votes, created, outcome)
    SELECT id, study, public, kind, place, image, source, content, leases, votes, created, outcome
    FROM study_items ORDER BY id
    """,
    "DROP TABLE study_items",
    "ALTER TABLE new_study_items RENAME TO study_items",
    "CREATE UNIQUE INDEX study_items_by_place ON study_items (study, kind, place)",
    "CREATE INDEX study_items_by_room ON study_items (study, kind, votes + leases, votes)",
    "CREATE INDEX study_items_by_test_case ON study_items (test_case, outcome) WHERE test_case IS NOT NULL",
)
_READ = (
    "ALTER TABLE enrolments ADD COLUMN training_seen INTEGER NOT NULL DEFAULT 0 CHECK (training_seen >= 0)",
    "CREATE INDEX assignments_of_training ON assignments (study, worker, vote) WHERE kind = 'training'",
    """
    CREATE TABLE training_read (  -- the worker has gone on after what was told of an answer
        assignment INTEGER PRIMARY KEY NOT NULL REFERENCES assignments (id),
        created TEXT NOT NULL
    ) STRICT
    """,
)

_SEEN = "({row}.state = 'submitted' AND {row}.kind = '{kind}' AND ({row}.kind = 'item' OR {row}.was_right IS NOT NULL))"
_RIGHT = "({row}.state = 'submitted' AND {row}.kind = '{kind}' AND {row}.was_right IS 1)"
_TRAINED = "({row}.state = 'submitted' AND {row}.kind = '{kind}')"
_DECIDED = "({row}.state = 'submitted' AND {row}.kind IN ('item', 'control', 'quiz') AND {row}.verdict = '{kind}')"


def _follow(old: bool) -> str:
    """The statements that let all counters follow a new or changed assignment."""

    def change(column: str, condition: str, kind: str = "") -> str:
        before = f" - {condition.format(row='OLD', kind=kind)}" if old else ""
        return f"{column} = {column} + {condition.format(row='NEW', kind=kind)}{before}"

    item = ", ".join(
        change(column, f"({{row}}.state = '{state}' AND {{row}}.counts)")
        for column, state in (("leases", "leased"), ("votes", "submitted"))
    )
    enrolment = ", ".join(
        (
            change("items_seen", _SEEN, "item"),
            change("controls_seen", _SEEN, "control"),
            change("controls_right", _RIGHT, "control"),
            change("quiz_seen", _SEEN, "quiz"),
            change("quiz_right", _RIGHT, "quiz"),
            change("training_seen", _TRAINED, "training"),
        )
    )
    worker = ", ".join(change(kind, _DECIDED, kind) for kind in ("approved", "rejected", "pending"))
    return f"""
        UPDATE study_items SET {item} WHERE id = NEW.item;
        UPDATE enrolments SET {enrolment} WHERE study = NEW.study AND worker = NEW.worker;
        UPDATE workers SET {worker} WHERE id = NEW.worker;
    """


_COUNTED = {
    "assignments_counted": (
        f"CREATE TRIGGER assignments_counted AFTER INSERT ON assignments BEGIN {_follow(old=False)} END"
    ),
    "assignments_recounted": f"""
        CREATE TRIGGER assignments_recounted AFTER UPDATE OF state, counts, was_right, verdict ON assignments
        WHEN OLD.state <> NEW.state OR OLD.counts <> NEW.counts OR OLD.verdict <> NEW.verdict
            OR OLD.was_right IS NOT NEW.was_right
        BEGIN {_follow(old=True)} END
    """,
}
"""In the place of the triggers of these names of the step m003_studies: they count what was seen of the training, and
leave it out of what was decided."""


def apply(db: sqlite_utils.Database) -> None:
    """Make the tables so. Every trigger that names the items is taken away while another table takes their place, and
    comes back as it was, but for those of `_COUNTED`.
    """
    triggers = db.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND sql LIKE '%study_items%' ORDER BY rowid"
    ).fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    for statement in (*_ITEMS, *_READ):
        db.execute(statement)
    for name, sql in triggers:
        db.execute(_COUNTED.get(name, sql))
