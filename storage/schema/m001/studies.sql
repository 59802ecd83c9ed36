-- Validity studies: rules, items, workers, assignments and votes.
--
-- Triggers hold what a study promises whatever writes to it: an item gets exactly K votes, an answer stays, and the
-- figures of items, enrolments and workers follow the assignments.

CREATE TABLE studies (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('draft', 'running', 'paused', 'closed')),
    rules TEXT NOT NULL CHECK (json_type(rules) = 'object'),  -- those that count: the draft, or the latest of study_rules
    votes INTEGER NOT NULL CHECK (votes > 0),       -- of an item, as in the rules
    link TEXT UNIQUE,                               -- the token of the open invitation; NULL when it is off
    revision INTEGER NOT NULL DEFAULT 0,            -- one more with every change that a result could show
    created TEXT NOT NULL,
    changed TEXT NOT NULL
) STRICT;

CREATE TABLE study_rules (  -- what a study went by, from its start on
    study TEXT NOT NULL REFERENCES studies (id),
    version INTEGER NOT NULL CHECK (version > 0),
    rules TEXT NOT NULL CHECK (json_type(rules) = 'object'),
    created TEXT NOT NULL,
    PRIMARY KEY (study, version)
) STRICT;

CREATE TABLE study_archive (  -- the latest row of a study counts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL REFERENCES studies (id),
    archived INTEGER NOT NULL CHECK (archived IN (0, 1)),
    created TEXT NOT NULL
) STRICT;
CREATE INDEX study_archive_by_study ON study_archive (study, id, archived);

CREATE TABLE study_panels (  -- the latest row of a study counts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL REFERENCES studies (id),
    settings TEXT NOT NULL CHECK (json_valid(settings)),
    created TEXT NOT NULL
) STRICT;
CREATE INDEX study_panels_by_study ON study_panels (study, id);

CREATE TABLE study_items (  -- only leases, votes and outcome change, by triggers; place at the start
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL REFERENCES studies (id),
    public TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL CHECK (kind IN ('item', 'control', 'quiz', 'training')),
    place INTEGER,  -- 0, 1, ... among those of its kind; NULL in a draft
    image TEXT NOT NULL REFERENCES images (sha),
    source TEXT REFERENCES images (sha),
    content TEXT NOT NULL CHECK (json_type(content) = 'object'),  -- the other fields of a NewItem
    leases INTEGER NOT NULL DEFAULT 0 CHECK (leases >= 0),
    votes INTEGER NOT NULL DEFAULT 0 CHECK (votes >= 0),
    created TEXT NOT NULL,
    outcome TEXT NOT NULL DEFAULT ''
        CHECK (outcome IN ('valid', 'invalid', 'no consensus', 'too few votes', '')),
    test_case INTEGER GENERATED ALWAYS AS (json_extract(content, '$.test_case')) VIRTUAL
) STRICT;
CREATE UNIQUE INDEX study_items_by_place ON study_items (study, kind, place);
CREATE INDEX study_items_by_room ON study_items (study, kind, votes + leases, votes);
CREATE INDEX study_items_by_test_case ON study_items (test_case, outcome) WHERE test_case IS NOT NULL;
CREATE INDEX study_items_drawn ON study_items (study, test_case) WHERE test_case IS NOT NULL;

CREATE TABLE workers (
    id TEXT PRIMARY KEY NOT NULL,
    approved INTEGER NOT NULL DEFAULT 0 CHECK (approved >= 0),
    rejected INTEGER NOT NULL DEFAULT 0 CHECK (rejected >= 0),
    pending INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0),
    blocked INTEGER NOT NULL DEFAULT 0 CHECK (blocked IN (0, 1)),
    created TEXT NOT NULL
) STRICT;

CREATE TABLE worker_codes (  -- a worker's latest code is the one that opens; the code itself is nowhere
    sha TEXT PRIMARY KEY NOT NULL,
    worker TEXT NOT NULL UNIQUE REFERENCES workers (id),
    created TEXT NOT NULL
) STRICT;

CREATE TABLE worker_browsers (
    worker TEXT NOT NULL REFERENCES workers (id),
    browser TEXT NOT NULL CHECK (length(browser) = 64),  -- of the value of its cookie, which is not kept
    created TEXT NOT NULL,
    PRIMARY KEY (worker, browser)
) STRICT, WITHOUT ROWID;
CREATE INDEX worker_browsers_by_browser ON worker_browsers (browser);

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
    training_seen INTEGER NOT NULL DEFAULT 0 CHECK (training_seen >= 0),
    created TEXT NOT NULL,
    PRIMARY KEY (study, worker)
) STRICT, WITHOUT ROWID;
CREATE INDEX enrolments_by_worker ON enrolments (worker, created);

CREATE TABLE exclusions (  -- the latest row of a study and a worker counts
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL REFERENCES studies (id),
    worker TEXT NOT NULL REFERENCES workers (id),
    excluded INTEGER NOT NULL CHECK (excluded IN (0, 1)),
    reason TEXT NOT NULL,
    author TEXT NOT NULL CHECK (author IN ('rule', 'person')),
    created TEXT NOT NULL
) STRICT;

CREATE TABLE decisions (  -- approved or rejected: all that a worker had answered in a study until then
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL REFERENCES studies (id),
    worker TEXT NOT NULL REFERENCES workers (id),
    verdict TEXT NOT NULL CHECK (verdict IN ('approved', 'rejected', 'pending')),
    reason TEXT NOT NULL,
    created TEXT NOT NULL
) STRICT;

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
    draft TEXT CHECK (draft IS NULL OR json_valid(draft)),  -- filled in and not sent yet; no vote
    UNIQUE (item, worker),
    CHECK (state <> 'submitted' OR vote IS NOT NULL),
    FOREIGN KEY (study, worker) REFERENCES enrolments (study, worker)
) STRICT;
CREATE INDEX assignments_leased ON assignments (study, expires) WHERE state = 'leased';
CREATE INDEX assignments_by_worker ON assignments (study, worker, state, number, item, kind);
CREATE INDEX assignments_latest ON assignments (study, worker, vote) WHERE state = 'submitted';
CREATE INDEX assignments_in_order ON assignments (study, first_vote) WHERE state = 'submitted';
CREATE INDEX assignments_of_training ON assignments (study, worker, vote) WHERE kind = 'training';

CREATE TABLE study_votes (  -- every answer that was given, and every undo
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    assignment INTEGER NOT NULL REFERENCES assignments (id),
    event TEXT NOT NULL CHECK (event IN ('submitted', 'withdrawn')),
    key TEXT,  -- the client's, so that a second sending is known; NULL for an undo
    answers TEXT NOT NULL CHECK (json_type(answers) = 'object'),
    comment TEXT NOT NULL,
    seconds REAL NOT NULL,
    created TEXT NOT NULL,
    UNIQUE (assignment, key)
) STRICT;

CREATE TABLE training_read (  -- the worker has gone on after what was told of an answer
    assignment INTEGER PRIMARY KEY NOT NULL REFERENCES assignments (id),
    created TEXT NOT NULL
) STRICT;

CREATE TABLE adjudications (  -- the latest row of an item and a question counts; "" takes it back
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL REFERENCES studies (id),
    item INTEGER NOT NULL REFERENCES study_items (id),
    question TEXT NOT NULL,
    answer TEXT NOT NULL,
    reason TEXT NOT NULL,
    created TEXT NOT NULL
) STRICT;
CREATE INDEX adjudications_by_item ON adjudications (study, item, question, id);

CREATE TABLE participants (  -- who a worker is for the panel that they came from
    study TEXT NOT NULL,
    worker TEXT NOT NULL,
    participant TEXT NOT NULL,
    created TEXT NOT NULL,
    PRIMARY KEY (study, worker),
    UNIQUE (study, participant),
    FOREIGN KEY (study, worker) REFERENCES enrolments (study, worker)
) STRICT, WITHOUT ROWID;

CREATE TABLE person_answers (  -- the latest row of a study and a worker counts; never beside a vote
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL,
    worker TEXT NOT NULL,
    answers TEXT NOT NULL CHECK (json_type(answers) = 'object'),
    created TEXT NOT NULL,
    FOREIGN KEY (study, worker) REFERENCES enrolments (study, worker)
) STRICT;
CREATE INDEX person_answers_by_worker ON person_answers (study, worker, id);

CREATE TABLE study_log (  -- what was done, and what was refused; no reference: a refusal may name nothing that is
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    study TEXT NOT NULL,
    worker TEXT NOT NULL,
    event TEXT NOT NULL,
    detail TEXT NOT NULL,
    created TEXT NOT NULL
) STRICT;
CREATE INDEX study_log_by_study ON study_log (study, id);

CREATE TRIGGER studies_go_forward BEFORE UPDATE OF id, state, votes, created ON studies
WHEN NEW.id <> OLD.id OR NEW.created <> OLD.created OR (OLD.state = 'closed' AND NEW.state <> 'closed')
    OR (OLD.state <> 'draft' AND (NEW.state = 'draft' OR NEW.votes < OLD.votes))
BEGIN SELECT RAISE(ABORT, 'a study goes from draft to running to closed, and asks for no fewer votes later'); END;

CREATE TRIGGER studies_stay BEFORE DELETE ON studies WHEN OLD.state <> 'draft'
BEGIN SELECT RAISE(ABORT, 'a study that has started is kept'); END;

CREATE TRIGGER study_items_keep_what_they_are
BEFORE UPDATE OF id, study, public, kind, image, source, content, created ON study_items
BEGIN SELECT RAISE(ABORT, 'an item stays what it is'); END;

CREATE TRIGGER study_items_keep_their_place BEFORE UPDATE OF place ON study_items WHEN OLD.place IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'an item keeps its place'); END;

CREATE TRIGGER study_items_stay BEFORE DELETE ON study_items
WHEN (SELECT state FROM studies WHERE id = OLD.study) <> 'draft'
BEGIN SELECT RAISE(ABORT, 'the items of a study that has started are kept'); END;

CREATE TRIGGER assignments_stay_whose_they_are
BEFORE UPDATE OF id, public, image_token, source_token, study, worker, item, kind, side, number, imported,
    first_vote
ON assignments WHEN OLD.first_vote IS NOT NULL OR (
    NEW.id <> OLD.id OR NEW.public <> OLD.public OR NEW.image_token <> OLD.image_token
    OR NEW.source_token IS NOT OLD.source_token OR NEW.study <> OLD.study OR NEW.worker <> OLD.worker
    OR NEW.item <> OLD.item OR NEW.kind <> OLD.kind OR NEW.side <> OLD.side OR NEW.number <> OLD.number
    OR NEW.imported <> OLD.imported
)
BEGIN SELECT RAISE(ABORT, 'an assignment stays that of its worker and item'); END;

CREATE TRIGGER assignments_stay BEFORE DELETE ON assignments
BEGIN SELECT RAISE(ABORT, 'assignments are kept'); END;

-- An item has at most as many leases and votes together as the rules ask for votes.

CREATE TRIGGER assignments_need_room BEFORE INSERT ON assignments
WHEN NEW.kind = 'item' AND NEW.state <> 'expired' AND NEW.imported = 0 AND (
    SELECT study_items.votes + study_items.leases >= studies.votes
    FROM study_items JOIN studies ON studies.id = study_items.study WHERE study_items.id = NEW.item
)
BEGIN SELECT RAISE(ABORT, 'the item has as many leases and votes as it gets'); END;

CREATE TRIGGER assignments_need_room_again BEFORE UPDATE OF state ON assignments
WHEN NEW.kind = 'item' AND OLD.state = 'expired' AND NEW.state <> 'expired' AND NEW.imported = 0 AND (
    SELECT study_items.votes + study_items.leases >= studies.votes
    FROM study_items JOIN studies ON studies.id = study_items.study WHERE study_items.id = NEW.item
)
BEGIN SELECT RAISE(ABORT, 'the item has as many leases and votes as it gets'); END;

-- The figures follow the assignments: a new one adds, a changed one adds what it is now and takes off what it was.

CREATE TRIGGER assignments_counted AFTER INSERT ON assignments BEGIN
    UPDATE study_items SET
        leases = leases + (NEW.state = 'leased' AND NEW.counts),
        votes = votes + (NEW.state = 'submitted' AND NEW.counts)
    WHERE id = NEW.item;
    UPDATE enrolments SET
        items_seen = items_seen + (NEW.state = 'submitted' AND NEW.kind = 'item'),
        controls_seen = controls_seen
            + (NEW.state = 'submitted' AND NEW.kind = 'control' AND NEW.was_right IS NOT NULL),
        controls_right = controls_right + (NEW.state = 'submitted' AND NEW.kind = 'control' AND NEW.was_right IS 1),
        quiz_seen = quiz_seen + (NEW.state = 'submitted' AND NEW.kind = 'quiz' AND NEW.was_right IS NOT NULL),
        quiz_right = quiz_right + (NEW.state = 'submitted' AND NEW.kind = 'quiz' AND NEW.was_right IS 1),
        training_seen = training_seen + (NEW.state = 'submitted' AND NEW.kind = 'training')
    WHERE study = NEW.study AND worker = NEW.worker;
    UPDATE workers SET
        approved = approved + (NEW.state = 'submitted' AND NEW.kind <> 'training' AND NEW.verdict = 'approved'),
        rejected = rejected + (NEW.state = 'submitted' AND NEW.kind <> 'training' AND NEW.verdict = 'rejected'),
        pending = pending + (NEW.state = 'submitted' AND NEW.kind <> 'training' AND NEW.verdict = 'pending')
    WHERE id = NEW.worker;
END;

CREATE TRIGGER assignments_recounted AFTER UPDATE OF state, counts, was_right, verdict ON assignments
WHEN OLD.state <> NEW.state OR OLD.counts <> NEW.counts OR OLD.verdict <> NEW.verdict
    OR OLD.was_right IS NOT NEW.was_right
BEGIN
    UPDATE study_items SET
        leases = leases + (NEW.state = 'leased' AND NEW.counts)
            - (OLD.state = 'leased' AND OLD.counts),
        votes = votes + (NEW.state = 'submitted' AND NEW.counts)
            - (OLD.state = 'submitted' AND OLD.counts)
    WHERE id = NEW.item;
    UPDATE enrolments SET
        items_seen = items_seen + (NEW.state = 'submitted' AND NEW.kind = 'item')
            - (OLD.state = 'submitted' AND OLD.kind = 'item'),
        controls_seen = controls_seen
            + (NEW.state = 'submitted' AND NEW.kind = 'control' AND NEW.was_right IS NOT NULL)
            - (OLD.state = 'submitted' AND OLD.kind = 'control' AND OLD.was_right IS NOT NULL),
        controls_right = controls_right + (NEW.state = 'submitted' AND NEW.kind = 'control' AND NEW.was_right IS 1)
            - (OLD.state = 'submitted' AND OLD.kind = 'control' AND OLD.was_right IS 1),
        quiz_seen = quiz_seen + (NEW.state = 'submitted' AND NEW.kind = 'quiz' AND NEW.was_right IS NOT NULL)
            - (OLD.state = 'submitted' AND OLD.kind = 'quiz' AND OLD.was_right IS NOT NULL),
        quiz_right = quiz_right + (NEW.state = 'submitted' AND NEW.kind = 'quiz' AND NEW.was_right IS 1)
            - (OLD.state = 'submitted' AND OLD.kind = 'quiz' AND OLD.was_right IS 1),
        training_seen = training_seen + (NEW.state = 'submitted' AND NEW.kind = 'training')
            - (OLD.state = 'submitted' AND OLD.kind = 'training')
    WHERE study = NEW.study AND worker = NEW.worker;
    UPDATE workers SET
        approved = approved + (NEW.state = 'submitted' AND NEW.kind <> 'training' AND NEW.verdict = 'approved')
            - (OLD.state = 'submitted' AND OLD.kind <> 'training' AND OLD.verdict = 'approved'),
        rejected = rejected + (NEW.state = 'submitted' AND NEW.kind <> 'training' AND NEW.verdict = 'rejected')
            - (OLD.state = 'submitted' AND OLD.kind <> 'training' AND OLD.verdict = 'rejected'),
        pending = pending + (NEW.state = 'submitted' AND NEW.kind <> 'training' AND NEW.verdict = 'pending')
            - (OLD.state = 'submitted' AND OLD.kind <> 'training' AND OLD.verdict = 'pending')
    WHERE id = NEW.worker;
END;

-- Whether votes find an item valid is a rule of the studies, which SQL does not say: the program works out the items
-- that stand here before it commits.

CREATE TABLE pending_validity (item INTEGER NOT NULL REFERENCES study_items (id)) STRICT;

CREATE TRIGGER study_items_follow_votes AFTER UPDATE OF state, counts, vote ON assignments
WHEN NEW.kind = 'item' AND 'submitted' IN (OLD.state, NEW.state)
    AND (OLD.state <> NEW.state OR OLD.counts <> NEW.counts OR OLD.vote IS NOT NEW.vote)
BEGIN INSERT INTO pending_validity VALUES (NEW.item); END;

CREATE TRIGGER study_items_follow_adjudications AFTER INSERT ON adjudications
BEGIN INSERT INTO pending_validity VALUES (NEW.item); END;

CREATE TRIGGER study_items_follow_rules AFTER UPDATE OF state, rules ON studies
WHEN OLD.state <> 'draft' AND ((OLD.state = 'closed') <> (NEW.state = 'closed') OR OLD.rules <> NEW.rules)
BEGIN INSERT INTO pending_validity SELECT id FROM study_items WHERE study = NEW.id AND kind = 'item'; END;
