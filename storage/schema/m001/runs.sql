-- Runs: their states, the values of their stages, the jobs that draw images, and the test cases.

CREATE TABLE processes (  -- every opening of the workspace; its lock file in open/ says whether it lasts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    opened TEXT NOT NULL
) STRICT;

CREATE TABLE images (  -- a row exists only when its whole file does: images/SHA.png
    sha TEXT PRIMARY KEY NOT NULL CHECK (length(sha) = 64 AND sha NOT GLOB '*[^0-9a-f]*'),
    width INTEGER NOT NULL CHECK (width > 0),
    height INTEGER NOT NULL CHECK (height > 0),
    mode TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes > 0),
    created TEXT NOT NULL
) STRICT;

CREATE TABLE runs (
    id TEXT PRIMARY KEY NOT NULL,
    profile TEXT NOT NULL,
    source TEXT NOT NULL REFERENCES images (sha),
    sample TEXT NOT NULL,
    notes TEXT NOT NULL CHECK (json_valid(notes)),
    created TEXT NOT NULL
) STRICT;
CREATE INDEX runs_by_source ON runs (source);

CREATE TABLE run_states (  -- what a person may change about a run; the latest row counts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL REFERENCES runs (id),
    name TEXT NOT NULL,
    task TEXT NOT NULL CHECK (json_valid(task)),
    settings TEXT NOT NULL CHECK (json_valid(settings)),
    mask TEXT REFERENCES images (sha),  -- an L-mode PNG of class numbers
    mask_classes TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(mask_classes)),  -- names by class numbers
    prompts TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(prompts)),
    removed INTEGER NOT NULL DEFAULT 0 CHECK (removed IN (0, 1)),
    recipe TEXT NOT NULL,
    created TEXT NOT NULL
) STRICT;
CREATE INDEX run_states_by_run ON run_states (run, id);

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
) STRICT;
CREATE INDEX jobs_by_run ON jobs (run, id);
CREATE INDEX jobs_running ON jobs (process) WHERE state = 'running';

CREATE TABLE stage_values (
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
    batch TEXT NOT NULL DEFAULT '',  -- values of one piece of work have one batch; '' for a piece of its own
    notes TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(notes)),  -- what a person should know of how it came about
    created TEXT NOT NULL
) STRICT;
CREATE INDEX stage_values_by_run ON stage_values (run, stage, id);

CREATE TABLE undo_log (  -- what was done stands in the other tables; here is which of it was taken back
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run TEXT NOT NULL REFERENCES runs (id),
    what TEXT NOT NULL CHECK (what IN ('begin', 'undo', 'redo')),  -- begin: nothing before it is taken back
    step TEXT NOT NULL,  -- the first row of what was taken back or done again, such as "value 12"
    made TEXT NOT NULL CHECK (json_valid(made)),  -- the rows that were added for it
    created TEXT NOT NULL
) STRICT;
CREATE INDEX undo_log_by_run ON undo_log (run, id);

CREATE TABLE test_cases (
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
    task TEXT NOT NULL CHECK (json_valid(task)),  -- the one that it was made for
    created TEXT NOT NULL,
    FOREIGN KEY (job, run) REFERENCES jobs (id, run)
) STRICT;
CREATE INDEX test_cases_by_run ON test_cases (run, id);
CREATE INDEX test_cases_by_job ON test_cases (job);
CREATE INDEX test_cases_by_image ON test_cases (image);

CREATE TABLE artifacts (  -- such as its control image
    test_case INTEGER NOT NULL REFERENCES test_cases (id),
    name TEXT NOT NULL CHECK (name <> ''),
    image TEXT NOT NULL REFERENCES images (sha),
    PRIMARY KEY (test_case, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE run_summaries (  -- a line in the list of runs
    number INTEGER PRIMARY KEY AUTOINCREMENT,  -- in the order in which the runs were made
    run TEXT NOT NULL UNIQUE REFERENCES runs (id),
    state INTEGER NOT NULL REFERENCES run_states (id),  -- the latest
    search TEXT NOT NULL,  -- name and label, a line each: what a search looks into
    removed INTEGER NOT NULL,
    changed TEXT NOT NULL,  -- when anything in it was saved last
    stages TEXT NOT NULL DEFAULT '',  -- those that have a value, each with a space behind it
    test_cases INTEGER NOT NULL DEFAULT 0,
    accepted INTEGER NOT NULL DEFAULT 0,  -- of the test cases, by the latest review
    job TEXT  -- the state of the latest generation
) STRICT;
CREATE INDEX run_summaries_by_change ON run_summaries (removed, changed, number, search);

CREATE TABLE test_case_states (  -- what a person thinks of a test case now
    test_case INTEGER PRIMARY KEY REFERENCES test_cases (id),
    run TEXT NOT NULL,
    verdict TEXT NOT NULL DEFAULT '' CHECK (verdict IN ('accepted', 'rejected', '')),  -- '': open
    review INTEGER REFERENCES reviews (id)  -- the latest, also one that took an earlier one back
) STRICT;
CREATE INDEX test_case_states_by_verdict ON test_case_states (verdict, run, test_case);

-- What the summary of a run says follows from its other rows.

CREATE TRIGGER run_summaries_begin AFTER INSERT ON run_states
WHEN NOT EXISTS (SELECT 1 FROM run_summaries WHERE run = NEW.run)
BEGIN
    INSERT INTO run_summaries (run, state, search, removed, changed)
    VALUES (
        NEW.run, NEW.id, NEW.name || char(10) || coalesce(json_extract(NEW.task, '$.label'), ''), NEW.removed,
        NEW.created
    );
END;

CREATE TRIGGER run_summaries_follow_states AFTER INSERT ON run_states
WHEN EXISTS (SELECT 1 FROM run_summaries WHERE run = NEW.run AND state < NEW.id)
BEGIN
    UPDATE run_summaries SET state = NEW.id, removed = NEW.removed, changed = max(changed, NEW.created),
        search = NEW.name || char(10) || coalesce(json_extract(NEW.task, '$.label'), '')
    WHERE run = NEW.run;
END;

CREATE TRIGGER run_summaries_follow_values AFTER INSERT ON stage_values BEGIN
    UPDATE run_summaries SET changed = max(changed, NEW.created), stages = coalesce((
        SELECT group_concat(stage || ' ', '') FROM (
            SELECT stage, max(id) AS latest FROM stage_values WHERE run = NEW.run GROUP BY stage ORDER BY min(id)
        ) WHERE (SELECT value FROM stage_values WHERE id = latest) <> 'null'  -- a stage may be emptied again
    ), '') WHERE run = NEW.run;
END;

CREATE TRIGGER run_summaries_follow_new_jobs AFTER INSERT ON jobs BEGIN
    UPDATE run_summaries SET job = (SELECT state FROM jobs WHERE run = NEW.run ORDER BY id DESC LIMIT 1)
    WHERE run = NEW.run;
END;

CREATE TRIGGER run_summaries_follow_jobs AFTER UPDATE OF state ON jobs BEGIN
    UPDATE run_summaries SET job = (SELECT jobs.state FROM jobs WHERE run = NEW.run ORDER BY id DESC LIMIT 1)
    WHERE run = NEW.run;
END;

CREATE TRIGGER test_case_states_begin AFTER INSERT ON test_cases BEGIN
    INSERT INTO test_case_states (test_case, run) VALUES (NEW.id, NEW.run);
    UPDATE run_summaries SET changed = max(changed, NEW.created), test_cases = test_cases + 1 WHERE run = NEW.run;
END;

CREATE TRIGGER test_case_states_follow_reviews AFTER INSERT ON reviews WHEN NEW.test_case IS NOT NULL BEGIN
    UPDATE test_case_states SET review = NEW.id, verdict = iif(NEW.verdict = 'open', '', NEW.verdict)
    WHERE test_case = NEW.test_case AND coalesce(review, 0) < NEW.id;
END;

-- A run counts the accepted test cases that were made for its present task. They are counted on, not anew: a decision
-- may be about all images of a large run.
CREATE TRIGGER run_summaries_follow_verdicts AFTER UPDATE OF verdict ON test_case_states
WHEN OLD.verdict <> NEW.verdict
BEGIN
    UPDATE run_summaries SET accepted = accepted + (NEW.verdict = 'accepted') - (OLD.verdict = 'accepted')
    WHERE run = NEW.run AND (SELECT task FROM test_cases WHERE id = NEW.test_case)
        = (SELECT task FROM run_states WHERE id = run_summaries.state);
END;

CREATE TRIGGER run_summaries_follow_tasks AFTER UPDATE OF state ON run_summaries
WHEN (SELECT task FROM run_states WHERE id = OLD.state) <> (SELECT task FROM run_states WHERE id = NEW.state)
BEGIN
    UPDATE run_summaries SET accepted = (
        SELECT count(*) FROM test_cases JOIN test_case_states ON test_case_states.test_case = test_cases.id
        WHERE test_cases.run = NEW.run AND verdict = 'accepted'
            AND test_cases.task = (SELECT task FROM run_states WHERE id = NEW.state)
    ) WHERE run = NEW.run;
END;

CREATE TRIGGER jobs_end_once BEFORE UPDATE ON jobs
WHEN OLD.state <> 'running' OR NEW.id <> OLD.id OR NEW.run <> OLD.run OR NEW.process <> OLD.process
    OR NEW.total <> OLD.total OR NEW.inputs_key <> OLD.inputs_key OR NEW.started <> OLD.started
BEGIN SELECT RAISE(ABORT, 'a job can only be ended, once'); END;

CREATE TRIGGER jobs_stay BEFORE DELETE ON jobs BEGIN SELECT RAISE(ABORT, 'jobs are kept'); END;
