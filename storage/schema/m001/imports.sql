-- Imports: images that were brought in.
--
-- An import is a row of `imports`; each of its images is a row of `imported_images` for good. An image that can be
-- curated is an entry of the catalogue: a new one without a test case (`made`), or the one that the same picture has
-- already. The originals of generated images are no entries: they are linked as sources.

CREATE TABLE imports (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL CHECK (name <> ''),
    source TEXT NOT NULL,  -- what the folder or archive is called; no path
    content TEXT NOT NULL CHECK (length(content) = 64),  -- the SHA-256 of what is in it
    options TEXT NOT NULL CHECK (json_valid(options)),  -- how it was asked to be read
    layout TEXT NOT NULL DEFAULT '',  -- the format that was read; '' until all of it was
    header TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(header)),  -- of a set that a studio exported
    state TEXT NOT NULL DEFAULT 'unfinished' CHECK (state IN ('unfinished', 'done')),
    created TEXT NOT NULL,
    finished TEXT,
    UNIQUE (content, options),
    CHECK ((state = 'done') = (finished IS NOT NULL))
) STRICT;

CREATE TABLE imported_images (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    import INTEGER NOT NULL REFERENCES imports (id),
    -- Its row in the catalogue, NULL of the original of a generated image; a new one is made after this row.
    entry INTEGER REFERENCES catalogue (id) DEFERRABLE INITIALLY DEFERRED,
    made INTEGER NOT NULL CHECK (made IN (0, 1)),  -- 1: the entry was made for it
    name TEXT NOT NULL,
    image TEXT NOT NULL REFERENCES images (sha),
    mask TEXT REFERENCES images (sha),
    mask_classes TEXT NOT NULL CHECK (json_valid(mask_classes)),
    label TEXT NOT NULL,
    split TEXT NOT NULL CHECK (split IN ('train', 'validation', 'test', '')),
    role TEXT NOT NULL CHECK (role IN ('generated', 'source')),
    source TEXT NOT NULL,  -- the SHA-256 of its source, '' for none; that image may be elsewhere
    caption TEXT NOT NULL,
    new_caption TEXT NOT NULL,
    edits TEXT NOT NULL CHECK (json_valid(edits)),
    edit_types TEXT NOT NULL CHECK (json_valid(edit_types)),
    checks TEXT NOT NULL CHECK (json_valid(checks)),
    facts TEXT NOT NULL CHECK (json_valid(facts)),
    created TEXT NOT NULL,
    UNIQUE (import, image),
    CHECK (entry IS NOT NULL OR NOT made)
) STRICT;
CREATE UNIQUE INDEX imported_images_made ON imported_images (entry) WHERE made;
CREATE INDEX imported_images_by_entry ON imported_images (entry) WHERE entry IS NOT NULL;
CREATE INDEX imported_images_by_source ON imported_images (source) WHERE source <> '';
CREATE INDEX imported_images_counted ON imported_images (import, entry, made);

CREATE TABLE import_rows (  -- what was told of a file
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    import INTEGER NOT NULL REFERENCES imports (id),
    file TEXT NOT NULL,
    reason TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('refused', 'changed', 'known'))
) STRICT;
CREATE INDEX import_rows_by_import ON import_rows (import, id);
CREATE INDEX import_rows_by_kind ON import_rows (import, kind);

CREATE TRIGGER imports_refuse_update BEFORE UPDATE ON imports
WHEN OLD.state = 'done' OR (NEW.id, NEW.name, NEW.source, NEW.content, NEW.options, NEW.created)
    IS NOT (OLD.id, OLD.name, OLD.source, OLD.content, OLD.options, OLD.created)
BEGIN SELECT RAISE(ABORT, 'an import stays what it was'); END;

CREATE TRIGGER imports_refuse_delete BEFORE DELETE ON imports
BEGIN SELECT RAISE(ABORT, 'an import stays what it was'); END;
