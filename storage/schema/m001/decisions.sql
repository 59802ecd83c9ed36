-- Decisions of people about images: verdicts, tags and labels.
--
-- A decision is one thing that a person did to one image or to many. What it changed stands in the log of its kind
-- (reviews, catalogue_tags, catalogue_labels), a row an image, and each row names its decision; the latest row of an
-- image (and a tag) counts. To take a decision back is another decision, which says again what counted before: its rows
-- name in `restores` the row whose word counts again, 0 where nobody had said anything; NULL is a new word.

CREATE TABLE review_sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    author TEXT NOT NULL,
    repeats REAL NOT NULL CHECK (repeats BETWEEN 0 AND 0.2),  -- of its decisions, after how many one is shown again
    created TEXT NOT NULL
) STRICT;

CREATE TABLE image_decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL CHECK (kind IN ('review', 'tag', 'label')),
    author TEXT NOT NULL,  -- '' for somebody who gave no name
    what TEXT NOT NULL,  -- the verdict, the tag or the label, in words
    entries INTEGER NOT NULL CHECK (entries >= 0),  -- that it changed
    undoes INTEGER UNIQUE REFERENCES image_decisions (id),  -- what it takes back
    session INTEGER REFERENCES review_sessions (id),
    created TEXT NOT NULL
) STRICT;
CREATE INDEX image_decisions_by_author ON image_decisions (author, id);
CREATE INDEX image_decisions_by_session ON image_decisions (session, id) WHERE session IS NOT NULL;

CREATE TABLE review_repeats (  -- an image that was shown once more: its verdict stays what it was
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session INTEGER NOT NULL REFERENCES review_sessions (id),
    entry INTEGER NOT NULL REFERENCES catalogue (id),
    before TEXT NOT NULL CHECK (before IN ('accepted', 'rejected')),
    verdict TEXT NOT NULL CHECK (verdict IN ('accepted', 'rejected', 'open')),
    reason TEXT NOT NULL,
    created TEXT NOT NULL,
    UNIQUE (session, entry)
) STRICT;

CREATE TABLE reviews (  -- a person's verdict; the latest row of an image counts, "open" takes it back
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    test_case INTEGER REFERENCES test_cases (id),
    entry INTEGER REFERENCES catalogue (id),  -- of an image that is no test case
    verdict TEXT NOT NULL CHECK (verdict IN ('accepted', 'rejected', 'open')),
    reason TEXT NOT NULL,
    author TEXT NOT NULL DEFAULT '',  -- '' for somebody who gave no name
    decision INTEGER REFERENCES image_decisions (id),
    restores INTEGER,
    created TEXT NOT NULL,
    CHECK ((test_case IS NULL) <> (entry IS NULL))
) STRICT;
CREATE INDEX reviews_by_case ON reviews (test_case, id);
CREATE INDEX reviews_by_entry ON reviews (entry, id) WHERE entry IS NOT NULL;
CREATE INDEX reviews_by_decision ON reviews (decision) WHERE decision IS NOT NULL;

CREATE TABLE catalogue_tags (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    entry INTEGER NOT NULL REFERENCES catalogue (id),
    tag TEXT NOT NULL CHECK (tag <> ''),
    put INTEGER NOT NULL CHECK (put IN (0, 1)),
    author TEXT NOT NULL DEFAULT '',
    decision INTEGER REFERENCES image_decisions (id),
    restores INTEGER,
    created TEXT NOT NULL
) STRICT;
CREATE INDEX catalogue_tags_by_entry ON catalogue_tags (entry, tag, id);
CREATE INDEX catalogue_tags_by_decision ON catalogue_tags (decision) WHERE decision IS NOT NULL;

CREATE TABLE catalogue_labels (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    entry INTEGER NOT NULL REFERENCES catalogue (id),
    label TEXT NOT NULL,  -- '' for that of its task
    before TEXT NOT NULL,  -- the label that it had; in its first row that of its task
    author TEXT NOT NULL,
    decision INTEGER REFERENCES image_decisions (id),
    restores INTEGER,
    created TEXT NOT NULL
) STRICT;
CREATE INDEX catalogue_labels_by_entry ON catalogue_labels (entry, id);
CREATE INDEX catalogue_labels_by_decision ON catalogue_labels (decision) WHERE decision IS NOT NULL;
