-- Batches: whole data sets on their way to test cases.

CREATE TABLE batches (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL CHECK (name <> ''),
    plan TEXT NOT NULL,  -- as it was read, in TOML
    digest TEXT NOT NULL UNIQUE,  -- of what it asks for
    profile TEXT NOT NULL,
    recipe TEXT NOT NULL,
    settings TEXT NOT NULL CHECK (json_valid(settings)),  -- of each of its runs
    at_once INTEGER NOT NULL CHECK (at_once > 0),  -- images of a lot
    pass TEXT NOT NULL DEFAULT 'captions' CHECK (pass IN ('captions', 'language', 'images')),
    planned TEXT,  -- when all its sources were there
    approved TEXT,  -- when a person said yes to the captions
    wish TEXT NOT NULL DEFAULT 'go' CHECK (wish IN ('go', 'pause', 'cancel')),
    process INTEGER REFERENCES processes (id),  -- the one that works on it, or did
    notes TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(notes)),  -- what was told of the choice of items
    created TEXT NOT NULL,
    finished TEXT  -- when nothing was left to do
) STRICT;

CREATE TABLE batch_sources (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    batch INTEGER NOT NULL REFERENCES batches (id),
    key TEXT NOT NULL,  -- its name in the data set
    label TEXT NOT NULL,
    split TEXT NOT NULL,
    attributes TEXT NOT NULL CHECK (json_valid(attributes)),
    stamp TEXT NOT NULL,  -- tells when its file is changed
    run TEXT REFERENCES runs (id),  -- once it is read
    UNIQUE (batch, key)
) STRICT;
CREATE INDEX batch_sources_in_order ON batch_sources (batch);
CREATE UNIQUE INDEX batch_sources_by_run ON batch_sources (run) WHERE run IS NOT NULL;

CREATE TABLE batch_work (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    batch INTEGER NOT NULL REFERENCES batches (id),
    pass TEXT NOT NULL CHECK (pass IN ('captions', 'language', 'images')),
    lot INTEGER NOT NULL,
    place INTEGER NOT NULL,
    source INTEGER NOT NULL REFERENCES batch_sources (id),
    key TEXT NOT NULL,  -- a hash of all that it is made from
    counterfactual TEXT NOT NULL DEFAULT '',  -- the caption of an image, in JSON
    seed INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'planned' CHECK (state IN ('planned', 'leased', 'done', 'failed', 'skipped')),
    tries INTEGER NOT NULL DEFAULT 0,  -- that ended with a failure, or with the death of the worker
    seeds INTEGER NOT NULL DEFAULT 0,  -- that these tries have spent
    forgiven INTEGER NOT NULL DEFAULT 0,  -- of these tries: a person asked for more
    deaths INTEGER NOT NULL DEFAULT 0,  -- of workers that had it alone or with others
    reason TEXT NOT NULL DEFAULT '',  -- why it failed or was skipped, the last time
    test_case INTEGER REFERENCES test_cases (id),
    seconds REAL NOT NULL DEFAULT 0,  -- its share of what the lot took in a worker
    changed TEXT NOT NULL,
    UNIQUE (batch, key),
    UNIQUE (batch, pass, lot, place)
) STRICT;
CREATE INDEX batch_work_planned ON batch_work (batch, pass, lot, place) WHERE state = 'planned';
CREATE INDEX batch_work_leased ON batch_work (batch) WHERE state = 'leased';
CREATE INDEX batch_work_failed ON batch_work (batch, pass, reason) WHERE state IN ('failed', 'skipped');
CREATE INDEX batch_work_by_source ON batch_work (source);
CREATE INDEX batch_work_made ON batch_work (batch, id) WHERE test_case IS NOT NULL;

CREATE TABLE batch_counts (
    batch INTEGER NOT NULL REFERENCES batches (id),
    pass TEXT NOT NULL CHECK (pass IN ('captions', 'language', 'images')),
    state TEXT NOT NULL CHECK (state IN ('planned', 'leased', 'done', 'failed', 'skipped')),
    number INTEGER NOT NULL CHECK (number >= 0),
    seconds REAL NOT NULL,
    PRIMARY KEY (batch, pass, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE batch_minutes (  -- how much was done in each minute in which something was
    batch INTEGER NOT NULL REFERENCES batches (id),
    pass TEXT NOT NULL CHECK (pass IN ('captions', 'language', 'images')),
    minute TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (batch, pass, minute)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER batch_work_counted AFTER INSERT ON batch_work BEGIN
    INSERT INTO batch_counts (batch, pass, state, number, seconds)
    VALUES (NEW.batch, NEW.pass, NEW.state, 1, NEW.seconds)
    ON CONFLICT (batch, pass, state) DO UPDATE SET number = number + 1, seconds = seconds + excluded.seconds;
END;

CREATE TRIGGER batch_work_recounted AFTER UPDATE OF state, seconds ON batch_work BEGIN
    UPDATE batch_counts SET number = number - 1, seconds = seconds - OLD.seconds
    WHERE batch = OLD.batch AND pass = OLD.pass AND state = OLD.state;
    INSERT INTO batch_counts (batch, pass, state, number, seconds)
    VALUES (NEW.batch, NEW.pass, NEW.state, 1, NEW.seconds)
    ON CONFLICT (batch, pass, state) DO UPDATE SET number = number + 1, seconds = seconds + excluded.seconds;
END;

CREATE TRIGGER batch_work_timed AFTER UPDATE OF state ON batch_work
WHEN NEW.state = 'done' AND OLD.state <> 'done'
BEGIN
    INSERT INTO batch_minutes (batch, pass, minute, number)
    VALUES (NEW.batch, NEW.pass, substr(NEW.changed, 1, 16), 1)
    ON CONFLICT (batch, pass, minute) DO UPDATE SET number = number + 1;
END;

CREATE TRIGGER batch_work_stays BEFORE DELETE ON batch_work
BEGIN SELECT RAISE(ABORT, 'what a batch had to do is not forgotten'); END;

CREATE TRIGGER batch_work_once BEFORE UPDATE OF state ON batch_work WHEN OLD.state = 'done'
BEGIN SELECT RAISE(ABORT, 'what is done stays done'); END;
