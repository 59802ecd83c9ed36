"""The tables of the first version, as the step `m001_initial` makes them. A released step is never edited."""

from __future__ import annotations

APPEND_ONLY = ("processes", "images", "runs", "run_states", "stage_values", "test_cases")

STATEMENTS = (
    """
    CREATE TABLE processes (  -- every opening of the workspace; its lock file in open/ says whether it lasts
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        opened TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE images (  -- a row exists only when its whole file does: images/SHA.png
        sha TEXT PRIMARY KEY NOT NULL CHECK (length(sha) = 64 AND sha NOT GLOB '*[^0-9a-f]*'),
        width INTEGER NOT NULL CHECK (width > 0),
        height INTEGER NOT NULL CHECK (height > 0),
        mode TEXT NOT NULL,
        bytes INTEGER NOT NULL CHECK (bytes > 0),
        created TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE runs (
        id TEXT PRIMARY KEY NOT NULL,
        profile TEXT NOT NULL,
        source TEXT NOT NULL REFERENCES images (sha),
        sample TEXT NOT NULL,
        notes TEXT NOT NULL CHECK (json_valid(notes)),
        created TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE run_states (  -- what a person may change about a run; the latest row counts
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run TEXT NOT NULL REFERENCES runs (id),
        name TEXT NOT NULL,
        task TEXT NOT NULL CHECK (json_valid(task)),
        settings TEXT NOT NULL CHECK (json_valid(settings)),
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX run_states_by_run ON run_states (run, id)",
    """
    CREATE TABLE stage_values (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run TEXT NOT NULL REFERENCES runs (id),
        stage TEXT NOT NULL CHECK (stage IN ('caption', 'keywords', 'alternatives', 'counterfactuals')),
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
    "CREATE INDEX stage_values_by_run ON stage_values (run, stage, id)",
    """
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run TEXT NOT NULL REFERENCES runs (id),
        process INTEGER NOT NULL REFERENCES processes (id),
        total INTEGER NOT NULL CHECK (total >= 0),
        inputs_key TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'done', 'cancelled', 'failed', 'interrupted')),
        message TEXT NOT NULL,
        started TEXT NOT NULL,
        finished TEXT CHECK ((finished IS NULL) = (state = 'running')),
        UNIQUE (id, run)
    ) STRICT
    """,
    "CREATE INDEX jobs_by_run ON jobs (run, id)",
    "CREATE INDEX jobs_running ON jobs (process) WHERE state = 'running'",
    """
    CREATE TABLE test_cases (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run TEXT NOT NULL REFERENCES runs (id),
        job INTEGER,
        image TEXT NOT NULL REFERENCES images (sha),
        control TEXT NOT NULL REFERENCES images (sha),
        counterfactual TEXT NOT NULL CHECK (json_valid(counterfactual)),
        seed TEXT NOT NULL,
        method TEXT NOT NULL,
        model TEXT NOT NULL,
        prompt TEXT NOT NULL,
        negative_prompt TEXT NOT NULL,
        settings TEXT NOT NULL CHECK (json_valid(settings)),
        seconds REAL NOT NULL,
        checks TEXT NOT NULL CHECK (json_valid(checks)),
        created TEXT NOT NULL,
        FOREIGN KEY (job, run) REFERENCES jobs (id, run)
    ) STRICT
    """,
    "CREATE INDEX test_cases_by_run ON test_cases (run, id)",
    "CREATE INDEX test_cases_by_job ON test_cases (job)",
    """
    CREATE TRIGGER jobs_end_once BEFORE UPDATE ON jobs
    WHEN OLD.state <> 'running' OR NEW.id <> OLD.id OR NEW.run <> OLD.run OR NEW.process <> OLD.process
        OR NEW.total <> OLD.total OR NEW.inputs_key <> OLD.inputs_key OR NEW.started <> OLD.started
    BEGIN SELECT RAISE(ABORT, 'a job can only be ended, once'); END
    """,
    "CREATE TRIGGER jobs_stay BEFORE DELETE ON jobs BEGIN SELECT RAISE(ABORT, 'jobs are kept'); END",
)
