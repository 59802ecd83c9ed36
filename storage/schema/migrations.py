"""The schema of the database, in numbered steps: m001 is the schema of version 0.1.0. A released step is never edited.

The database stores this program's mark (`application_id`) and the number of its last step (`user_version`). So a file
of another program or a newer version is refused before it is changed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlite_utils import Database as Db

from core.errors import UserError

APPLICATION_ID = 0x4453_5455  # "DSTU"; written into the header of the file
_FIRST = ("access", "decisions", "imports", "test_sets", "batches", "studies", "models", "runs", "catalogue")
"""SQL files of m001 in order. A trigger must come after its table."""
APPEND_ONLY = (
    *("processes", "images", "runs", "run_states", "stage_values", "undo_log", "test_cases", "artifacts"),
    *("models_under_test", "models_asked", "predictions", "probabilities", "pixel_counts", "doubts"),
    *("retrainings", "score_runs", "image_hashes", "imported_images", "import_rows"),
    *("reviews", "catalogue_tags", "catalogue_labels", "image_decisions", "review_sessions", "review_repeats"),
    *("study_rules", "study_archive", "study_panels", "study_votes", "exclusions", "decisions", "adjudications"),
    *("training_read", "participants", "person_answers", "worker_browsers", "study_log"),
)
"""Tables of m001 to which rows are only added: none is ever changed or deleted."""


def m001_initial(db: Db) -> None:
    """Create all tables, from one SQL file for each kind of thing."""
    for name in _FIRST:
        for statement in _statements((Path(__file__).parent / "m001" / f"{name}.sql").read_text("utf-8")):
            db.execute(statement)
    for table in APPEND_ONLY:
        for verb in ("UPDATE", "DELETE"):
            db.execute(
                f"CREATE TRIGGER {table}_refuse_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def m002_decision_keys(db: Db) -> None:
    """Add a column for the key that a client sends with a decision, so that a decision sent twice counts once."""
    db.execute("ALTER TABLE image_decisions ADD COLUMN key TEXT")
    db.execute("CREATE UNIQUE INDEX image_decisions_by_key ON image_decisions (key) WHERE key IS NOT NULL")


def m003_searches(db: Db) -> None:
    """Store searches for the model's failures, and whether each image was chosen by a search or at random."""
    values = "CHECK (chosen_by IN ('', 'aim', 'random'))"
    db.execute(f"ALTER TABLE batch_work ADD COLUMN chosen_by TEXT NOT NULL DEFAULT '' {values}")
    db.execute(
        "CREATE TABLE batch_searches (id INTEGER PRIMARY KEY AUTOINCREMENT, "
        "batch INTEGER NOT NULL REFERENCES batches (id), "
        "settings TEXT NOT NULL CHECK (json_valid(settings)), created TEXT NOT NULL) STRICT"
    )


def m004_questions(db: Db) -> None:
    """Add a column with the part of a person's question that made a search choose an image ("" for none). Add an index
    of the images that a search chose because they may show a weakness.
    """
    db.execute("ALTER TABLE batch_work ADD COLUMN asked TEXT NOT NULL DEFAULT ''")
    db.execute("CREATE INDEX batch_work_aimed ON batch_work (test_case) WHERE chosen_by = 'aim'")


def m005_starts(db: Db) -> None:
    """Add a facet to the catalogue: whether an image was drawn from noise or from the inverted source."""
    (first_facets,) = db.execute("SELECT sql FROM sqlite_master WHERE name = 'catalogue_first_facets'").fetchone()
    db.execute("DROP VIEW catalogue_first_facets")
    db.execute(f"""{first_facets}
UNION ALL SELECT catalogue.id, 'start',
    iif(json_extract(settings, '$.generation.start') = 'inverted', 'inverted', 'noise')
FROM catalogue JOIN test_cases ON test_cases.id = catalogue.test_case
WHERE json_type(settings, '$.generation') = 'object'
UNION ALL SELECT entry, 'start',
    iif(json_extract(facts, '$.lineage.settings.generation.start') = 'inverted', 'inverted', 'noise')
FROM imported_images WHERE made AND json_type(facts, '$.lineage.settings.generation') = 'object'""")
    db.execute(
        "INSERT INTO catalogue_marks SELECT entry, facet, value, 1 FROM catalogue_first_facets WHERE facet = 'start'"
    )


def m006_judgements(db: Db) -> None:
    """Store judgements of images by a vision-language model. Add them to the images' checks in the catalogue."""
    for statement in _statements((Path(__file__).parent / "m006.sql").read_text("utf-8")):
        db.execute(statement)


STEPS: tuple[Callable[[Db], None], ...] = (
    m001_initial,
    m002_decision_keys,
    m003_searches,
    m004_questions,
    m005_starts,
    m006_judgements,
)


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. `executescript` is not used, as it would commit the step's transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def refusal(db: Db) -> str:
    """Return the reason why this version must not change the file, as the end of a sentence; "" if none exists."""
    if not db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        return ""  # an empty file may become a workspace
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return "is another program's database"
    step = _last_step(db)
    if step == 0:
        return "was written before version 0.1.0, whose workspaces no released version opens"
    if step > len(STEPS):
        return "was written by a newer version of this program"
    return ""


def is_current(db: Db) -> bool:
    """Return True if all steps of this version's schema were applied."""
    return _last_step(db) == len(STEPS)


def check(db: Db) -> None:
    """Raise UserError if the file belongs to another program or another version. Only reads the file."""
    reason = refusal(db)
    if reason:
        path = db.execute("PRAGMA database_list").fetchone()[2]
        raise UserError(f"{path} {reason}; pick another workspace folder.")


def migrate(db: Db) -> None:
    """Apply the missing steps in the caller's transaction, all or none. Raises UserError in the cases of `check`."""
    check(db)
    if is_current(db):
        return
    for step in STEPS[_last_step(db) :]:
        step(db)
    db.execute(f"PRAGMA user_version = {len(STEPS)}")
    broken = db.execute("PRAGMA foreign_key_check").fetchone()
    if broken:
        raise RuntimeError(f"a step left a row of {broken[0]} that refers to nothing")


def _last_step(db: Db) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
