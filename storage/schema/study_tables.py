"""The tables of validity studies, as the step `m003_studies` makes them. A released step is never edited.

What holds whatever a program does: a worker has one assignment of an item at most; an item never has more leases and
counted votes than its study asks for, unless an excluded worker was readmitted or votes were imported; counters follow
the assignments by triggers; what was decided, voted and logged stays.
"""

from __future__ import annotations

APPEND_ONLY = ("study_rules", "study_votes", "exclusions", "decisions", "adjudications", "study_log")
"""The tables of studies whose rows never change and never go."""

TABLES = (
    """
    CREATE TABLE studies (
        id TEXT PRIMARY KEY NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('draft', 'running', 'paused', 'closed')),
        rules TEXT NOT NULL CHECK (json_valid(rules)),  -- those that count: the draft, or the latest of study_rules
        votes INTEGER NOT NULL CHECK (votes > 0),       -- of an item, as in the rules
        link TEXT UNIQUE,                               -- the token of the open invitation; NULL when it is off
        revision INTEGER NOT NULL DEFAULT 0,            -- one more with every change that a result could show
        created TEXT NOT NULL,
        changed TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE study_rules (  -- what a study went by, from its start on
        study TEXT NOT NULL REFERENCES studies (id),
        version INTEGER NOT NULL CHECK (version > 0),
        rules TEXT NOT NULL CHECK (json_valid(rules)),
        created TEXT NOT NULL,
        PRIMARY KEY (study, version)
    ) STRICT
    """,
    """
    CREATE TABLE study_items (  -- only leases and votes change, by the triggers of assignments; place at the start
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        study TEXT NOT NULL REFERENCES studies (id),
        public TEXT NOT NULL UNIQUE,
        kind TEXT NOT NULL CHECK (kind IN ('item', 'control', 'quiz')),
        place INTEGER,  -- 0, 1, ... among those of its kind; NULL in a draft
        image TEXT NOT NULL REFERENCES images (sha),
        source TEXT REFERENCES images (sha),
        content TEXT NOT NULL CHECK (json_valid(content)),  -- the other fields of a NewItem
        leases INTEGER NOT NULL DEFAULT 0 CHECK (leases >= 0),
        votes INTEGER NOT NULL DEFAULT 0 CHECK (votes >= 0),
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE UNIQUE INDEX study_items_by_place ON study_items (study, kind, place)",
    "CREATE INDEX study_items_by_room ON study_items (study, kind, votes + leases, votes)",
    """
    CREATE TABLE workers (
        id TEXT PRIMARY KEY NOT NULL,
        approved INTEGER NOT NULL DEFAULT 0 CHECK (approved >= 0),
        rejected INTEGER NOT NULL DEFAULT 0 CHECK (rejected >= 0),
        pending INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0),
        blocked INTEGER NOT NULL DEFAULT 0 CHECK (blocked IN (0, 1)),
        created TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE worker_codes (  -- a worker's latest code is the one that opens; the code itself is nowhere
        sha TEXT PRIMARY KEY NOT NULL,
        worker TEXT NOT NULL UNIQUE REFERENCES workers (id),
        created TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE exclusions (  -- the latest row of a study and a worker counts
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        study TEXT NOT NULL REFERENCES studies (id),
        worker TEXT NOT NULL REFERENCES workers (id),
        excluded INTEGER NOT NULL CHECK (excluded IN (0, 1)),
        reason TEXT NOT NULL,
        author TEXT NOT NULL CHECK (author IN ('rule', 'person')),
        created TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE enrolments (  -- the figures follow the assignments by triggers
        study TEXT NOT NULL REFERENCES studies (id),
        worker TEXT NOT NULL REFERENCES workers (id),
        consented TEXT,
        exclusion INTEGER REFERENCES exclusions (id),  -- the one in force
        readmitted INTEGER NOT NULL DEFAULT 0 CHECK (readmitted IN (0, 1)),
        given INTEGER NOT NULL DEFAULT 0,   -- assignments so far: the number of the last
        reached INTEGER NOT NULL DEFAULT 0, -- how far in the worker's own order of the items
        items_seen INTEGER NOT NULL DEFAULT 0 CHECK (items_seen >= 0),
        controls_seen INTEGER NOT NULL DEFAULT 0 CHECK (controls_seen >= 0),
        controls_right INTEGER NOT NULL DEFAULT 0 CHECK (controls_right >= 0),
        quiz_seen INTEGER NOT NULL DEFAULT 0 CHECK (quiz_seen >= 0),
        quiz_right INTEGER NOT NULL DEFAULT 0 CHECK (quiz_right >= 0),
        created TEXT NOT NULL,
        PRIMARY KEY (study, worker)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX enrolments_by_worker ON enrolments (worker, created)",
    """
    CREATE TABLE decisions (  -- approved or rejected: all that a worker had answered in a study until then
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        study TEXT NOT NULL REFERENCES studies (id),
        worker TEXT NOT NULL REFERENCES workers (id),
        verdict TEXT NOT NULL CHECK (verdict IN ('approved', 'rejected', 'pending')),
        reason TEXT NOT NULL,
        created TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE assignments (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        public TEXT NOT NULL UNIQUE,
        image_token TEXT NOT NULL UNIQUE,
        source_token TEXT UNIQUE,
        study TEXT NOT NULL,
        worker TEXT NOT NULL,
        item INTEGER NOT NULL REFERENCES study_items (id),
        kind TEXT NOT NULL,  -- the item's
        side TEXT NOT NULL CHECK (side IN ('left', 'right')),
        number INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('leased', 'submitted', 'expired')),
        counts INTEGER NOT NULL DEFAULT 1 CHECK (counts IN (0, 1)),  -- 0 while its worker is excluded
        imported INTEGER NOT NULL DEFAULT 0 CHECK (imported IN (0, 1)),
        accepted TEXT NOT NULL,
        expires TEXT NOT NULL,
        first_vote INTEGER REFERENCES study_votes (id),
        vote INTEGER REFERENCES study_votes (id),  -- the latest that was submitted
        submitted TEXT,
        changes INTEGER NOT NULL DEFAULT 0,
        was_right INTEGER CHECK (was_right IN (0, 1)),  -- of a control or quiz item, once it was answered
        verdict TEXT NOT NULL DEFAULT 'pending' CHECK (verdict IN ('approved', 'rejected', 'pending')),
        decision INTEGER REFERENCES decisions (id),
        UNIQUE (item, worker),
        CHECK (state <> 'submitted' OR vote IS NOT NULL),
        FOREIGN KEY (study, worker) REFERENCES enrolments (study, worker)
    ) STRICT
    """,
    "CREATE INDEX assignments_leased ON assignments (study, expires) WHERE state = 'leased'",
    "CREATE INDEX assignments_by_worker ON assignments (study, worker, state, number, item, kind)",
    "CREATE INDEX assignments_latest ON assignments (study, worker, vote) WHERE state = 'submitted'",
    "CREATE INDEX assignments_in_order ON assignments (study, first_vote) WHERE state = 'submitted'",
    """
    CREATE TABLE study_votes (  -- every answer that was given, and every undo
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        assignment INTEGER NOT NULL REFERENCES assignments (id),
        event TEXT NOT NULL CHECK (event IN ('submitted', 'withdrawn')),
        key TEXT,  -- the client's, so that a second sending is known; NULL for an undo
        answers TEXT NOT NULL CHECK (json_valid(answers)),
        comment TEXT NOT NULL,
        seconds REAL NOT NULL,
        created TEXT NOT NULL,
        UNIQUE (assignment, key)
    ) STRICT
    """,
    """
    CREATE TABLE adjudications (  -- the latest row of an item and a question counts; "" takes it back
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        study TEXT NOT NULL REFERENCES studies (id),
        item INTEGER NOT NULL REFERENCES study_items (id),
        question TEXT NOT NULL,
        answer TEXT NOT NULL,
        reason TEXT NOT NULL,
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX adjudications_by_item ON adjudications (study, item, question, id)",
    """
    CREATE TABLE study_log (  -- what was done, and what was refused; no reference: a refusal may name nothing that is
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        study TEXT NOT NULL,
        worker TEXT NOT NULL,
        event TEXT NOT NULL,
        detail TEXT NOT NULL,
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX study_log_by_study ON study_log (study, id)",
    """
    CREATE TABLE sessions (  -- signed-in browsers; the token itself is nowhere
        sha TEXT PRIMARY KEY NOT NULL,
        role TEXT NOT NULL CHECK (role IN ('lead', 'worker')),
        worker TEXT REFERENCES workers (id),
        created TEXT NOT NULL,
        expires TEXT NOT NULL,
        CHECK ((role = 'worker') = (worker IS NOT NULL))
    ) STRICT
    """,
    "CREATE TABLE secrets (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL, changed TEXT NOT NULL) STRICT",
)

_FULL = """
    (SELECT study_items.votes + study_items.leases >= studies.votes
     FROM study_items JOIN studies ON studies.id = study_items.study WHERE study_items.id = NEW.item)
"""
_SEEN = "({row}.state = 'submitted' AND {row}.kind = '{kind}' AND ({row}.kind = 'item' OR {row}.was_right IS NOT NULL))"
_RIGHT = "({row}.state = 'submitted' AND {row}.kind = '{kind}' AND {row}.was_right IS 1)"
_DECIDED = "({row}.state = 'submitted' AND {row}.verdict = '{kind}')"


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
        )
    )
    worker = ", ".join(change(kind, _DECIDED, kind) for kind in ("approved", "rejected", "pending"))
    return f"""
        UPDATE study_items SET {item} WHERE id = NEW.item;
        UPDATE enrolments SET {enrolment} WHERE study = NEW.study AND worker = NEW.worker;
        UPDATE workers SET {worker} WHERE id = NEW.worker;
    """


TRIGGERS = (
    f"""
    CREATE TRIGGER assignments_need_room BEFORE INSERT ON assignments
    WHEN NEW.kind = 'item' AND NEW.state <> 'expired' AND NEW.imported = 0 AND {_FULL}
    BEGIN SELECT RAISE(ABORT, 'the item has as many leases and votes as it gets'); END
    """,
    f"""
    CREATE TRIGGER assignments_need_room_again BEFORE UPDATE OF state ON assignments
    WHEN NEW.kind = 'item' AND OLD.state = 'expired' AND NEW.state <> 'expired' AND NEW.imported = 0 AND {_FULL}
    BEGIN SELECT RAISE(ABORT, 'the item has as many leases and votes as it gets'); END
    """,
    f"CREATE TRIGGER assignments_counted AFTER INSERT ON assignments BEGIN {_follow(old=False)} END",
    f"""
    CREATE TRIGGER assignments_recounted AFTER UPDATE OF state, counts, was_right, verdict ON assignments
    WHEN OLD.state <> NEW.state OR OLD.counts <> NEW.counts OR OLD.verdict <> NEW.verdict
        OR OLD.was_right IS NOT NEW.was_right
    BEGIN {_follow(old=True)} END
    """,
    """
    CREATE TRIGGER assignments_stay_whose_they_are
    BEFORE UPDATE OF id, public, image_token, source_token, study, worker, item, kind, side, number, imported,
        first_vote
    ON assignments WHEN OLD.first_vote IS NOT NULL OR (
        NEW.id <> OLD.id OR NEW.public <> OLD.public OR NEW.image_token <> OLD.image_token
        OR NEW.source_token IS NOT OLD.source_token OR NEW.study <> OLD.study OR NEW.worker <> OLD.worker
        OR NEW.item <> OLD.item OR NEW.kind <> OLD.kind OR NEW.side <> OLD.side OR NEW.number <> OLD.number
        OR NEW.imported <> OLD.imported
    )
    BEGIN SELECT RAISE(ABORT, 'an assignment stays that of its worker and item'); END
    """,
    """
    CREATE TRIGGER assignments_stay BEFORE DELETE ON assignments
    BEGIN SELECT RAISE(ABORT, 'assignments are kept'); END
    """,
    """
    CREATE TRIGGER studies_go_forward BEFORE UPDATE OF id, state, votes, created ON studies
    WHEN NEW.id <> OLD.id OR NEW.created <> OLD.created OR (OLD.state = 'closed' AND NEW.state <> 'closed')
        OR (OLD.state <> 'draft' AND (NEW.state = 'draft' OR NEW.votes < OLD.votes))
    BEGIN SELECT RAISE(ABORT, 'a study goes from draft to running to closed, and asks for no fewer votes later'); END
    """,
    """
    CREATE TRIGGER studies_stay BEFORE DELETE ON studies WHEN OLD.state <> 'draft'
    BEGIN SELECT RAISE(ABORT, 'a study that has started is kept'); END
    """,
    """
    CREATE TRIGGER study_items_keep_what_they_are
    BEFORE UPDATE OF id, study, public, kind, image, source, content, created ON study_items
    BEGIN SELECT RAISE(ABORT, 'an item stays what it is'); END
    """,
    """
    CREATE TRIGGER study_items_keep_their_place BEFORE UPDATE OF place ON study_items WHEN OLD.place IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'an item keeps its place'); END
    """,
    """
    CREATE TRIGGER study_items_stay BEFORE DELETE ON study_items
    WHEN (SELECT state FROM studies WHERE id = OLD.study) <> 'draft'
    BEGIN SELECT RAISE(ABORT, 'the items of a study that has started are kept'); END
    """,
)
