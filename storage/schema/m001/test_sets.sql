-- Test sets: named lists of images in versions.
--
-- A draft may change; of a version that was released no row changes and none goes; a set has one draft at most; a
-- version has an image once.

CREATE TABLE test_sets (
    id TEXT PRIMARY KEY NOT NULL,
    name TEXT NOT NULL UNIQUE CHECK (name <> ''),
    created TEXT NOT NULL
) STRICT;

CREATE TABLE test_set_versions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    test_set TEXT NOT NULL REFERENCES test_sets (id),
    place INTEGER NOT NULL CHECK (place > 0),  -- 1, 2, ... in its set
    state TEXT NOT NULL CHECK (state IN ('draft', 'released')),
    sha TEXT UNIQUE CHECK (length(sha) = 64 AND sha NOT GLOB '*[^0-9a-f]*'),  -- of its manifest; its id
    parent INTEGER REFERENCES test_set_versions (number),  -- what it was drafted from
    note TEXT NOT NULL DEFAULT '',
    thresholds TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(thresholds)),
    created TEXT NOT NULL,
    released TEXT,
    UNIQUE (test_set, place),
    CHECK ((state = 'released') = (sha IS NOT NULL) AND (sha IS NULL) = (released IS NULL))
) STRICT;
CREATE UNIQUE INDEX test_set_drafts ON test_set_versions (test_set) WHERE state = 'draft';

CREATE TABLE test_set_entries (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    version INTEGER NOT NULL REFERENCES test_set_versions (number),
    image TEXT NOT NULL REFERENCES images (sha),
    source TEXT NOT NULL REFERENCES images (sha),
    label TEXT NOT NULL,
    split TEXT NOT NULL CHECK (split IN ('train', 'validation', 'test', '')),
    mask TEXT REFERENCES images (sha),
    mask_classes TEXT NOT NULL CHECK (json_valid(mask_classes)),
    role TEXT NOT NULL CHECK (role IN ('generated', 'source')),
    test_case INTEGER REFERENCES test_cases (id),  -- NULL of a source, and of an image that was brought in
    origin TEXT NOT NULL CHECK (json_valid(origin)),
    source_elsewhere TEXT NOT NULL DEFAULT '',  -- an image of another workspace: the source of an imported image
    UNIQUE (version, image)
) STRICT;
CREATE INDEX test_set_entries_by_split ON test_set_entries (version, split);
CREATE INDEX test_set_entries_by_case ON test_set_entries (test_case) WHERE test_case IS NOT NULL;

CREATE TABLE image_hashes (  -- what a picture is found again by; worked out once, from its file
    image TEXT PRIMARY KEY NOT NULL REFERENCES images (sha),
    pixels TEXT NOT NULL CHECK (length(pixels) = 64),
    perceptual TEXT NOT NULL CHECK (length(perceptual) = 16)  -- hexadecimal: SQLite's integers have a sign
) STRICT, WITHOUT ROWID;

CREATE TRIGGER test_sets_refuse_update BEFORE UPDATE ON test_sets
WHEN EXISTS (SELECT 1 FROM test_set_versions WHERE test_set = OLD.id AND state = 'released')
BEGIN SELECT RAISE(ABORT, 'a released version does not change'); END;

CREATE TRIGGER test_sets_refuse_delete BEFORE DELETE ON test_sets
WHEN EXISTS (SELECT 1 FROM test_set_versions WHERE test_set = OLD.id AND state = 'released')
BEGIN SELECT RAISE(ABORT, 'a released version does not change'); END;

CREATE TRIGGER test_set_versions_begin_as_drafts BEFORE INSERT ON test_set_versions
WHEN NEW.state <> 'draft'
BEGIN SELECT RAISE(ABORT, 'a version begins as a draft'); END;

CREATE TRIGGER test_set_versions_are_not_released_empty BEFORE UPDATE ON test_set_versions
WHEN NEW.state = 'released' AND NOT EXISTS (SELECT 1 FROM test_set_entries WHERE version = NEW.number)
BEGIN SELECT RAISE(ABORT, 'a version without images is not released'); END;

CREATE TRIGGER test_set_versions_refuse_update BEFORE UPDATE ON test_set_versions
WHEN OLD.state = 'released'
BEGIN SELECT RAISE(ABORT, 'a released version does not change'); END;

CREATE TRIGGER test_set_versions_refuse_delete BEFORE DELETE ON test_set_versions
WHEN OLD.state = 'released'
BEGIN SELECT RAISE(ABORT, 'a released version does not change'); END;

CREATE TRIGGER test_set_entries_refuse_insert BEFORE INSERT ON test_set_entries
WHEN (SELECT state FROM test_set_versions WHERE number = NEW.version) = 'released'
BEGIN SELECT RAISE(ABORT, 'a released version does not change'); END;

CREATE TRIGGER test_set_entries_refuse_update BEFORE UPDATE ON test_set_entries
WHEN (SELECT state FROM test_set_versions WHERE number = OLD.version) = 'released'
    OR (SELECT state FROM test_set_versions WHERE number = NEW.version) = 'released'
BEGIN SELECT RAISE(ABORT, 'a released version does not change'); END;

CREATE TRIGGER test_set_entries_refuse_delete BEFORE DELETE ON test_set_entries
WHEN (SELECT state FROM test_set_versions WHERE number = OLD.version) = 'released'
BEGIN SELECT RAISE(ABORT, 'a released version does not change'); END;
