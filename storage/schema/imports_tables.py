"""The tables of images that were brought in, as the step `m018_imports` makes them. A released step is never edited.

An import is a row of `imports`; each of its images is a row of `imported_images` for good. An image that can be curated
is an entry of the catalogue: a new one without a test case (`made`), which follows from its row here, or the one that
the same picture has already. The originals of generated images are no entries: they are linked as sources.

What entries have of their imports stands in the catalogue as that of test cases does: facets, figures of checks, full
text. `storage.curation.catalogue_check` compares the two.
"""

from __future__ import annotations

APPEND_ONLY = ("imported_images", "import_rows")

_TABLES = (
    """
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
    ) STRICT
    """,
    """
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
    ) STRICT
    """,
    "CREATE UNIQUE INDEX imported_images_made ON imported_images (entry) WHERE made",
    "CREATE INDEX imported_images_by_entry ON imported_images (entry) WHERE entry IS NOT NULL",
    "CREATE INDEX imported_images_by_source ON imported_images (source) WHERE source <> ''",
    """
    CREATE TABLE import_rows (  -- what was told of a file
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        import INTEGER NOT NULL REFERENCES imports (id),
        file TEXT NOT NULL,
        reason TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('refused', 'changed', 'known'))
    ) STRICT
    """,
    "CREATE INDEX import_rows_by_import ON import_rows (import, id)",
    # The source of an image that was brought in may be an image of another workspace.
    "ALTER TABLE test_set_entries ADD COLUMN source_elsewhere TEXT NOT NULL DEFAULT ''",
)

_EDIT = """
    coalesce((
        SELECT json_extract(value, '$.alternative') FROM json_each(edits)
        WHERE json_extract(value, '$.edit_type') = '{}' LIMIT 1
    ), '')
"""
_SAID = "iif(json_type(facts, '{path}') = 'text', json_extract(facts, '{path}'), '')"
ENTRIES = f"""
    SELECT entry AS id, NULL AS test_case, image,
        (SELECT sha FROM images WHERE sha = imported_images.source AND sha <> imported_images.image) AS source,
        NULL AS run, iif(mask IS NOT NULL AND label = '', 'segmentation', 'classification') AS kind, label,
        CASE WHEN label <> '' THEN json_array(label) WHEN mask IS NULL THEN '[]'
            ELSE (SELECT json_group_array(DISTINCT value) FROM json_each(mask_classes)) END AS classes,
        (SELECT json_group_array(DISTINCT value) FROM json_each(edit_types)) AS edit_types,
        json_array_length(edits) AS edits,
        {_EDIT.format("weather")} AS weather, {_EDIT.format("time of day")} AS time_of_day,
        {_SAID.format(path="$.profile")} AS profile, {_SAID.format(path="$.lineage.recipe")} AS recipe,
        {_SAID.format(path="$.lineage.method")} AS method, 1 AS there, created
    FROM imported_images WHERE made
"""
"""The rows of the catalogue that are made for imported images."""
COLUMNS = (
    "id test_case image source run kind label classes edit_types edits weather time_of_day profile recipe method there "
    "created"
).split()
_LABEL_NOW = """
    (SELECT nullif(label, '') FROM catalogue_labels WHERE id = (
        SELECT max(id) FROM catalogue_labels WHERE entry = entries.id
    ))
"""
_LABELLED = {
    "label": f"coalesce({_LABEL_NOW}, label) AS label",
    "classes": f"iif({_LABEL_NOW} IS NULL, classes, json_array({_LABEL_NOW})) AS classes",
}
DECIDED = f"SELECT {', '.join(_LABELLED.get(name, name) for name in COLUMNS)} FROM ({ENTRIES}) AS entries"
"""The same with what was decided of their labels since."""
CHECKED = """
    SELECT entry, 'check:' || (json_extract(held.value, '$.name')) AS measure,
        min(json_extract(held.value, '$.value')) AS number
    FROM imported_images, json_each(checks) AS held
    WHERE made AND typeof(json_extract(held.value, '$.value')) IN ('real', 'integer') {only} GROUP BY 1, 2
"""
_OF_MADE = (
    "SELECT entry, 'imported' AS facet, '' AS value FROM imported_images WHERE made",
    """
    SELECT DISTINCT entry, 'check:' || (json_extract(held.value, '$.name')) AS facet,
        CASE json_extract(held.value, '$.passed') WHEN 1 THEN 'passed' WHEN 0 THEN 'failed' ELSE 'cannot tell' END
        AS value
    FROM imported_images, json_each(checks) AS held WHERE made
    """,
)
_OF_ALL = (
    """
    SELECT DISTINCT entry, 'import' AS facet, imports.name AS value
    FROM imported_images JOIN imports ON imports.id = imported_images.import WHERE entry IS NOT NULL
    """,
    "SELECT DISTINCT entry, 'split' AS facet, split AS value FROM imported_images WHERE entry NOTNULL AND split <> ''",
)
FACETS = " UNION ALL ".join(_OF_MADE + _OF_ALL)
"""Entry, facet and value of all that entries have of imports."""
NUMBERS = f"""
    SELECT measures.id AS measure, number, entry FROM ({CHECKED.format(only="")}) AS held
        JOIN catalogue_values AS measures ON measures.facet = 'measure' AND measures.value = held.measure
"""
WORDS = """
    SELECT entry, caption, new_caption AS counterfactual, coalesce((
        SELECT group_concat(json_extract(value, '$.keyword') || ' ' || json_extract(value, '$.alternative'), ' ')
        FROM json_each(edits)
    ), '') AS edited
    FROM imported_images WHERE made
"""
_NEW = "AND imported_images.id = NEW.id"
_NEW_MARKS = " UNION ALL ".join(f"{part} {_NEW}" for part in _OF_MADE)
_OTHER = "entry = NEW.entry AND imported_images.id <> NEW.id"

_TRIGGERS = (
    # All in one, as nobody says which of two triggers comes first: an entry that was not made here skips the beginning.
    # It may be of several imports, also of two of one name: a facet has it once.
    f"""
    CREATE TRIGGER catalogue_follows_imports AFTER INSERT ON imported_images WHEN NEW.entry IS NOT NULL BEGIN
        INSERT INTO catalogue ({", ".join(COLUMNS)}, verdict) SELECT *, 'open' FROM ({ENTRIES} {_NEW});
        INSERT INTO catalogue_marks SELECT entry, facet, value, 1 FROM ({_NEW_MARKS});
        INSERT INTO catalogue_values (facet, value)
        SELECT DISTINCT 'measure', measure FROM ({CHECKED.format(only=_NEW)}) AS held WHERE NOT EXISTS (
            SELECT 1 FROM catalogue_values WHERE facet = 'measure' AND value = held.measure
        );
        INSERT INTO catalogue_numbers SELECT measures.id, number, entry FROM ({CHECKED.format(only=_NEW)}) AS held
            JOIN catalogue_values AS measures ON measures.facet = 'measure' AND measures.value = held.measure;
        INSERT INTO catalogue_words (rowid, caption, counterfactual, edited) {WORDS} {_NEW};
        INSERT INTO catalogue_marks SELECT NEW.entry, 'import', name, 1 FROM imports
        WHERE id = NEW.import AND NOT EXISTS (
            SELECT 1 FROM imported_images JOIN imports AS other ON other.id = imported_images.import
            WHERE {_OTHER} AND other.name = imports.name
        );
        INSERT INTO catalogue_marks SELECT NEW.entry, 'split', NEW.split, 1
        WHERE NEW.split <> '' AND NOT EXISTS (SELECT 1 FROM imported_images WHERE {_OTHER} AND split = NEW.split);
    END
    """,
    """
    CREATE TRIGGER catalogue_sources_follow_images AFTER INSERT ON images BEGIN
        UPDATE catalogue SET source = NEW.sha WHERE source IS NULL AND id IN (
            SELECT entry FROM imported_images WHERE source = NEW.sha AND image <> NEW.sha AND made
        );
    END
    """,
    # Beside `catalogue_comes_and_goes`, which does the same for what entries have of others.
    f"""
    CREATE TRIGGER catalogue_imports_come_and_go AFTER UPDATE OF there ON catalogue WHEN OLD.there <> NEW.there BEGIN
        UPDATE catalogue_values SET entries = entries + iif(NEW.there, 1, -1) WHERE id IN (
            SELECT held.id FROM ({" UNION ALL ".join(f"{part} AND entry = NEW.id" for part in _OF_MADE + _OF_ALL)})
                JOIN catalogue_values AS held USING (facet, value)
        );
    END
    """,
    """
    CREATE TRIGGER imports_refuse_update BEFORE UPDATE ON imports
    WHEN OLD.state = 'done' OR (NEW.id, NEW.name, NEW.source, NEW.content, NEW.options, NEW.created)
        IS NOT (OLD.id, OLD.name, OLD.source, OLD.content, OLD.options, OLD.created)
    BEGIN SELECT RAISE(ABORT, 'an import stays what it was'); END
    """,
    """
    CREATE TRIGGER imports_refuse_delete BEFORE DELETE ON imports
    BEGIN SELECT RAISE(ABORT, 'an import stays what it was'); END
    """,
)
STATEMENTS = (*_TABLES, *_TRIGGERS)
