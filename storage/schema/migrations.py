"""The tables, as numbered steps forward. A step that was released is never edited: add the next one.

A database carries this program's mark (`application_id`) and the names of the steps it has had, so that a file of
another program or of a newer version is refused before it is touched.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlite_utils
from sqlite_utils import Migrations

from core.errors import UserError
from storage.curation import vectors
from storage.evaluation import retrainings
from storage.schema import (
    batch_facet,
    batch_tables,
    case_tasks,
    catalogue_tables,
    catalogue_triggers,
    decision_tables,
    first_tables,
    imports_tables,
    model_tables,
    score_tables,
    source_triggers,
    state_tables,
    study_tables,
    test_set_tables,
    training_tables,
)
from storage.studies import panels

APPLICATION_ID = 0x4453_5455  # "DSTU"; written into the header of the file

STEPS = (
    "m001_initial",
    "m002_judgements",
    "m003_studies",
    "m004_states",
    "m005_tokens",
    "m006_announced_rule",
    "m007_case_tasks",
    "m008_undo",
    "m009_drafts",
    "m010_browsers",
    "m011_archive",
    "m012_panels",
    "m013_training",
    "m014_trace_notes",
    "m015_catalogue",
    "m016_test_sets",
    "m017_decisions",
    "m018_imports",
    "m019_vectors",
    "m020_sources",
    "m021_batches",
    "m022_batch_facet",
    "m023_models_under_test",
    "m024_scores",
    "m025_retrainings",
    "m026_doubts",
)
"""The names of all steps of this version, in order."""
studio = Migrations("studio")
_SECOND = ("reviews", "readings")
_FOURTH = ("artifacts", "predictions")
_EIGHTH = ("undo_log",)
_TENTH = ("worker_browsers",)
_ELEVENTH = ("study_archive",)
APPEND_ONLY = (
    *first_tables.APPEND_ONLY,
    "reviews",
    *study_tables.APPEND_ONLY,
    *_FOURTH,
    *_EIGHTH,
    *_TENTH,
    *_ELEVENTH,
    *panels.APPEND_ONLY,
    *training_tables.APPEND_ONLY,
    *catalogue_tables.APPEND_ONLY,
    *test_set_tables.APPEND_ONLY,
    *decision_tables.APPEND_ONLY,
    *imports_tables.APPEND_ONLY,
    *model_tables.APPEND_ONLY,
    *model_tables.DOUBTS_APPEND_ONLY,
    *score_tables.APPEND_ONLY,
    *retrainings.APPEND_ONLY,
)
"""The tables whose rows never change and never go."""


@studio()
def m001_initial(db: sqlite_utils.Database) -> None:
    """Runs, the versions of their values, test cases, images, and the jobs that make them."""
    # One execute() a statement: executescript() would commit the transaction that the step runs in.
    for statement in first_tables.STATEMENTS:
        db.execute(statement)
    _only_append(db, first_tables.APPEND_ONLY)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


@studio()
def m002_judgements(db: sqlite_utils.Database) -> None:
    """What people and models under test say of an image; a run's mask, its edited prompts, and whether it is there."""
    for statement in (
        # Columns of run_states: the defaults say of every earlier row what was true of it.
        "ALTER TABLE run_states ADD COLUMN mask TEXT REFERENCES images (sha)",  # an L-mode PNG of class numbers
        "ALTER TABLE run_states ADD COLUMN mask_classes TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(mask_classes))",
        "ALTER TABLE run_states ADD COLUMN prompts TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(prompts))",
        "ALTER TABLE run_states ADD COLUMN removed INTEGER NOT NULL DEFAULT 0 CHECK (removed IN (0, 1))",
        """
        CREATE TABLE reviews (  -- a person's verdict; the latest row of a test case counts, "open" takes it back
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            test_case INTEGER NOT NULL REFERENCES test_cases (id),
            verdict TEXT NOT NULL CHECK (verdict IN ('accepted', 'rejected', 'open')),
            reason TEXT NOT NULL,
            created TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX reviews_by_case ON reviews (test_case, id)",
        """
        CREATE TABLE readings (  -- what a model under test said of an image; the latest row of the two counts
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            image TEXT NOT NULL REFERENCES images (sha),
            model TEXT NOT NULL,
            value TEXT NOT NULL CHECK (json_valid(value)),
            created TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX readings_by_image ON readings (image, model, id)",
    ):
        db.execute(statement)
    _only_append(db, _SECOND)


@studio()
def m003_studies(db: sqlite_utils.Database) -> None:
    """Validity studies: items, workers, assignments, votes, what was decided of them, and who is signed in."""
    for statement in (*study_tables.TABLES, *study_tables.TRIGGERS):
        db.execute(statement)
    _only_append(db, study_tables.APPEND_ONLY)


@studio()
def m004_states(db: sqlite_utils.Database) -> None:
    """Stages and recipes as data; and the latest state of everything in columns with an index, kept by triggers."""
    for statement in (
        # The same without a list of stages: a recipe says which there are.
        """
        CREATE TABLE new_stage_values (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL REFERENCES runs (id),
            stage TEXT NOT NULL CHECK (stage <> '' AND instr(stage, ' ') = 0),
            value TEXT NOT NULL CHECK (json_valid(value)),
            author TEXT NOT NULL CHECK (author IN ('model', 'person')),
            model TEXT NOT NULL,
            prompt TEXT NOT NULL,
            raw_reply TEXT NOT NULL,
            settings TEXT NOT NULL CHECK (json_valid(settings)),
            seed TEXT NOT NULL,  -- decimal: a seed may have 64 bits, an INTEGER has 63
            attempts INTEGER NOT NULL,
            seconds REAL NOT NULL,
            inputs_key TEXT NOT NULL,
            brought_back INTEGER REFERENCES stage_values (id),
            created TEXT NOT NULL
        ) STRICT
        """,
        "INSERT INTO new_stage_values SELECT * FROM stage_values ORDER BY id",
        *_in_place_of("stage_values"),
        "CREATE INDEX stage_values_by_run ON stage_values (run, stage, id)",
        "ALTER TABLE run_states ADD COLUMN recipe TEXT NOT NULL DEFAULT 'dillema'",
        # The same with its recipe, and with the images that its method made on the way in a table of their own.
        """
        CREATE TABLE new_test_cases (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL REFERENCES runs (id),
            job INTEGER,
            image TEXT NOT NULL REFERENCES images (sha),
            recipe TEXT NOT NULL,
            method TEXT NOT NULL,
            model TEXT NOT NULL,
            counterfactual TEXT NOT NULL CHECK (json_valid(counterfactual)),
            seed TEXT NOT NULL,
            prompt TEXT NOT NULL,
            negative_prompt TEXT NOT NULL,
            settings TEXT NOT NULL CHECK (json_valid(settings)),  -- those of its method
            seconds REAL NOT NULL,
            checks TEXT NOT NULL CHECK (json_valid(checks)),
            created TEXT NOT NULL,
            FOREIGN KEY (job, run) REFERENCES jobs (id, run)
        ) STRICT
        """,
        """
        INSERT INTO new_test_cases
        SELECT id, run, job, image, 'dillema', method, model, counterfactual, seed, prompt, negative_prompt, settings,
            seconds, checks, created FROM test_cases ORDER BY id
        """,
        """
        CREATE TABLE artifacts (  -- such as its control image
            test_case INTEGER NOT NULL REFERENCES test_cases (id),
            name TEXT NOT NULL CHECK (name <> ''),
            image TEXT NOT NULL REFERENCES images (sha),
            PRIMARY KEY (test_case, name)
        ) STRICT, WITHOUT ROWID
        """,
        "INSERT INTO artifacts SELECT id, 'control image', control FROM test_cases",
        *_in_place_of("test_cases"),
        "CREATE INDEX test_cases_by_run ON test_cases (run, id)",
        "CREATE INDEX test_cases_by_job ON test_cases (job)",
        "CREATE INDEX test_cases_by_image ON test_cases (image)",
        # What models under test say; its columns for what was the JSON of a reading, which are converted at opening:
        # their class maps become files.
        """
        CREATE TABLE predictions (  -- the latest row of an image and a model counts
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            image TEXT NOT NULL REFERENCES images (sha),
            model TEXT NOT NULL,
            kind TEXT NOT NULL CHECK (kind IN ('classification', 'segmentation')),
            name TEXT NOT NULL,  -- what the page calls the model
            label TEXT NOT NULL,  -- the likeliest class; '' of a segmentation
            top TEXT NOT NULL CHECK (json_valid(top)),
            classes TEXT NOT NULL CHECK (json_valid(classes)),
            class_map TEXT REFERENCES images (sha),  -- an L-mode PNG of class numbers; NULL of a classification
            created TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX predictions_by_image ON predictions (image, model, id)",
        "DROP TRIGGER readings_refuse_update",
        "DROP TRIGGER readings_refuse_delete",
        *state_tables.TABLES,
        *(f"INSERT INTO {table} {rows}" for table, rows in state_tables.REFILL.items()),
        state_tables.REFILL_OUTCOMES,
        *state_tables.TRIGGERS,
    ):
        db.execute(statement)
    _only_append(db, ("stage_values", "test_cases", *_FOURTH))


@studio()
def m005_tokens(db: sqlite_utils.Database) -> None:
    """What scripts show instead of a password."""
    db.execute(
        """
        CREATE TABLE tokens (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            sha TEXT NOT NULL UNIQUE CHECK (length(sha) = 64),  -- of the token, which is not kept
            name TEXT NOT NULL CHECK (name <> ''),
            reads_only INTEGER NOT NULL CHECK (reads_only IN (0, 1)),
            created TEXT NOT NULL,
            expires TEXT NOT NULL,
            withdrawn TEXT  -- when; NULL as long as it is not
        ) STRICT
        """
    )


@studio()
def m006_announced_rule(db: sqlite_utils.Database) -> None:
    """Outcomes of closed studies anew: an item with fewer votes than were announced has too few, whatever they say."""
    closed = "study IN (SELECT id FROM studies WHERE state = 'closed')"
    db.execute(f"{state_tables.REFILL_OUTCOMES} AND {closed}")


@studio()
def m007_case_tasks(db: sqlite_utils.Database) -> None:
    """The task that each test case was made for."""
    for statement in case_tasks.STATEMENTS:
        db.execute(statement)


@studio()
def m008_undo(db: sqlite_utils.Database) -> None:
    """What was taken back in a run, and done again; the values of one piece of work belong together; and a stage may
    be emptied again: by a version of its value that is null.
    """
    for statement in (
        """
        CREATE TABLE undo_log (  -- what was done stands in the other tables; here is which of it was taken back
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run TEXT NOT NULL REFERENCES runs (id),
            what TEXT NOT NULL CHECK (what IN ('begin', 'undo', 'redo')),  -- begin: nothing before it is taken back
            step TEXT NOT NULL,  -- the first row of what was taken back or done again, such as "value 12"
            made TEXT NOT NULL CHECK (json_valid(made)),  -- the rows that were added for it
            created TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX undo_log_by_run ON undo_log (run, id)",
        "ALTER TABLE stage_values ADD COLUMN batch TEXT NOT NULL DEFAULT ''",  # "": a piece of work of its own
        "DROP TRIGGER run_summaries_follow_values",
        state_tables.FOLLOW_VALUES,
    ):
        db.execute(statement)
    _only_append(db, _EIGHTH)


@studio()
def m009_drafts(db: sqlite_utils.Database) -> None:
    """What a worker has filled in of an item and not sent yet: no vote, and gone once there is one."""
    db.execute("ALTER TABLE assignments ADD COLUMN draft TEXT CHECK (draft IS NULL OR json_valid(draft))")


@studio()
def m010_browsers(db: sqlite_utils.Database) -> None:
    """From which browsers a worker came: two names in one browser may be one person."""
    db.execute(
        """
        CREATE TABLE worker_browsers (
            worker TEXT NOT NULL REFERENCES workers (id),
            browser TEXT NOT NULL CHECK (length(browser) = 64),  -- of the value of its cookie, which is not kept
            created TEXT NOT NULL,
            PRIMARY KEY (worker, browser)
        ) STRICT, WITHOUT ROWID
        """
    )
    db.execute("CREATE INDEX worker_browsers_by_browser ON worker_browsers (browser)")
    _only_append(db, _TENTH)


@studio()
def m011_archive(db: sqlite_utils.Database) -> None:
    """Studies that were put away, and taken out again."""
    for statement in (
        """
        CREATE TABLE study_archive (  -- the latest row of a study counts
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            study TEXT NOT NULL REFERENCES studies (id),
            archived INTEGER NOT NULL CHECK (archived IN (0, 1)),
            created TEXT NOT NULL
        ) STRICT
        """,
        "CREATE INDEX study_archive_by_study ON study_archive (study, id, archived)",
    ):
        db.execute(statement)
    _only_append(db, _ELEVENTH)


@studio()
def m012_panels(db: sqlite_utils.Database) -> None:
    """People of a panel, and what they said of themselves."""
    for statement in panels.TABLES:
        db.execute(statement)
    _only_append(db, panels.APPEND_ONLY)


@studio()
def m013_training(db: sqlite_utils.Database) -> None:
    """Training items: a fourth kind that no approval counts, and what was read of what was told of an answer."""
    training_tables.apply(db)
    _only_append(db, training_tables.APPEND_ONLY)


@studio()
def m014_trace_notes(db: sqlite_utils.Database) -> None:
    """What a person should know of how a value came about."""
    db.execute("ALTER TABLE stage_values ADD COLUMN notes TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(notes))")


@studio()
def m015_catalogue(db: sqlite_utils.Database) -> None:
    """The catalogue of images that can be curated: its facets, orders, full text and coverage."""
    for statement in (*catalogue_tables.TABLES, *catalogue_tables.REFILL, *catalogue_triggers.TRIGGERS):
        db.execute(statement)
    _only_append(db, catalogue_tables.APPEND_ONLY)


@studio()
def m016_test_sets(db: sqlite_utils.Database) -> None:
    """Test sets in versions, of which a released one never changes; and what images are found again by."""
    for statement in test_set_tables.STATEMENTS:
        db.execute(statement)
    _only_append(db, test_set_tables.APPEND_ONLY)


@studio()
def m017_decisions(db: sqlite_utils.Database) -> None:
    """Who decided what of images, to be taken back as one thing; labels that replace those of tasks; reviews of images
    without a test case; the order by source.
    """
    decision_tables.apply(db)
    _only_append(db, ("reviews", *decision_tables.APPEND_ONLY))


@studio()
def m018_imports(db: sqlite_utils.Database) -> None:
    """Images that were brought in: each import, its images as entries of the catalogue, and its report."""
    for statement in imports_tables.STATEMENTS:
        db.execute(statement)
    _only_append(db, imports_tables.APPEND_ONLY)


@studio()
def m019_vectors(db: sqlite_utils.Database) -> None:
    """Which embedders have placed images of the catalogue; the vectors are in files."""
    for statement in vectors.TABLES:
        db.execute(statement)


@studio()
def m020_sources(db: sqlite_utils.Database) -> None:
    """Sources that are found without a look at every image, and imports that are counted by an index."""
    for statement in source_triggers.STATEMENTS:
        db.execute(statement)


@studio()
def m021_batches(db: sqlite_utils.Database) -> None:
    """Whole data sets on their way to test cases."""
    for statement in batch_tables.STATEMENTS:
        db.execute(statement)


@studio()
def m022_batch_facet(db: sqlite_utils.Database) -> None:
    """Images that are found by the batch that has made them."""
    for statement in batch_facet.STATEMENTS:
        db.execute(statement)


@studio()
def m023_models_under_test(db: sqlite_utils.Database) -> None:
    """Which models predictions are of, all probabilities of classifiers, and what segmenters make of masks."""
    for statement in model_tables.STATEMENTS:
        db.execute(statement)
    model_tables.make_by_entry(db)
    _only_append(db, model_tables.APPEND_ONLY)


@studio()
def m024_scores(db: sqlite_utils.Database) -> None:
    """How likely people find each image valid, foretold from their votes on others."""
    score_tables.apply(db)
    _only_append(db, score_tables.APPEND_ONLY)


@studio()
def m025_retrainings(db: sqlite_utils.Database) -> None:
    """What training models under test further has brought."""
    for statement in retrainings.TABLES:
        db.execute(statement)
    _only_append(db, retrainings.APPEND_ONLY)


@studio()
def m026_doubts(db: sqlite_utils.Database) -> None:
    """How unsure segmenters are of images."""
    db.execute(model_tables.DOUBTS)
    _only_append(db, model_tables.DOUBTS_APPEND_ONLY)


def _in_place_of(table: str) -> tuple[str, str]:
    """The end of SQLite's own procedure for changing a table (https://sqlite.org/lang_altertable.html, section 7)."""
    return f"DROP TABLE {table}", f"ALTER TABLE new_{table} RENAME TO {table}"


def _only_append(db: sqlite_utils.Database, tables: Sequence[str]) -> None:
    for table in tables:
        for verb in ("UPDATE", "DELETE"):
            db.execute(
                f"CREATE TRIGGER {table}_refuse_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{table} is append-only'); END"
            )


def refusal(db: sqlite_utils.Database) -> str:
    """Why this version must not touch the file, as the end of a sentence about it; "" when it may. Reads only."""
    if not db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
        return ""  # empty: ours to fill
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return "is another program's database"
    if {step.name for step in studio.applied(db)} - set(STEPS):
        return "was written by a newer version of this program"
    return ""


def check(db: sqlite_utils.Database) -> None:
    """Raises UserError when the file belongs to another program or to a newer version. Reads only."""
    reason = refusal(db)
    if reason:
        path = db.execute("PRAGMA database_list").fetchone()[2]
        raise UserError(f"{path} {reason}; pick another workspace folder.")


def migrate(db: sqlite_utils.Database) -> None:
    """Take the steps that the database has not had. Call it in a transaction: all of them happen, or none.

    Checks again, now that no other process can write, and gives the connection the functions that triggers call. Raises
    UserError like `check`.
    """
    check(db)
    state_tables.give_functions(db.conn)
    done = len(studio.applied(db))
    studio.apply(db)
    if len(studio.applied(db)) > done:
        broken = db.execute("PRAGMA foreign_key_check").fetchone()
        if broken:
            raise RuntimeError(f"a step left a row of {broken[0]} that refers to nothing")
