"""The tables of the catalogue, as the step `m015_catalogue` makes them. A released step is never edited.

The catalogue has a row for each image that can be curated. All that images can be filtered by says again what other
tables say, so that a page of a million is found without a look into each: triggers keep it, in the same transaction as
what it follows, and the views below say how each part follows from the other tables. The step fills the tables from
these views, and `storage.curation.catalogue_check` compares the two.

The parts:

- `catalogue`: a row an image, under a number of its own: imported images, which have no test case, stand beside the
  others. Numbers of test cases grow with those of their entries.
- `catalogue_values` and `catalogue_sets`: the facets. A value of a facet (such as `class` `bird`) has the set of
  entries that have it (`storage.curation.entry_sets`), so that any filter is an intersection of sets, and any count the
  size of one.
- `catalogue_numbers`: what can be ordered: the figures of checks, and reviews in the order in which they were given.
  Each measure is parted into bins, which are facets too: histograms, sliders and the place in an order come from them.
- `catalogue_outcomes`: what each model under test gets right. Classifications are judged here, by their labels;
  segmentations, which take their class maps, by `services.evaluation.model_outcomes`, and stand as "not measured" until
  then.
- `catalogue_words`: full text over captions and edited words.
- `catalogue_cells`: how many entries each cell of a coverage table has, by review and by model under test.
- `catalogue_tags`: the log of tags; the latest row of an entry and a tag counts.
"""

from __future__ import annotations

import sqlite3

from storage.curation.entry_sets import BINS, CHUNK_BITS, KEY_BITS, REVIEWS, changed_set, common_size, set_of_places

APPEND_ONLY = ("catalogue_tags",)
WORDS_TABLE = """
    CREATE VIRTUAL TABLE {name} USING fts5 (
        caption, counterfactual, edited, content = '', columnsize = 0,
        tokenize = 'porter unicode61 remove_diacritics 2'
    )
"""
TABLES = (
    """
    CREATE TABLE catalogue (  -- an image that can be curated
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        test_case INTEGER UNIQUE REFERENCES test_cases (id),  -- NULL of an image that was imported
        image TEXT NOT NULL REFERENCES images (sha),
        source TEXT REFERENCES images (sha),
        run TEXT REFERENCES runs (id),
        kind TEXT NOT NULL CHECK (kind IN ('classification', 'segmentation')),
        label TEXT NOT NULL,  -- of a classification
        classes TEXT NOT NULL CHECK (json_valid(classes)),  -- the label, or the protected classes
        edit_types TEXT NOT NULL CHECK (json_valid(edit_types)),
        edits INTEGER NOT NULL,
        weather TEXT NOT NULL,  -- as its edit says: '' where none does
        time_of_day TEXT NOT NULL,
        profile TEXT NOT NULL,
        recipe TEXT NOT NULL,
        method TEXT NOT NULL,
        verdict TEXT NOT NULL CHECK (verdict IN ('accepted', 'rejected', 'open')),
        review INTEGER REFERENCES reviews (id),  -- the latest, also one that took an earlier one back
        there INTEGER NOT NULL CHECK (there IN (0, 1)),  -- 0 while its run is deleted
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX catalogue_by_run ON catalogue (run, id) WHERE run IS NOT NULL",
    "CREATE INDEX catalogue_by_source ON catalogue (source, id) WHERE source IS NOT NULL",
    "CREATE INDEX catalogue_by_image ON catalogue (image)",
    """
    CREATE TABLE catalogue_values (  -- a value of a facet that some entry has or had
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        facet TEXT NOT NULL,
        value TEXT NOT NULL,
        entries INTEGER NOT NULL DEFAULT 0,  -- that have it, those of deleted runs left out
        UNIQUE (facet, value)
    ) STRICT
    """,
    f"""
    CREATE TABLE catalogue_sets (  -- the entries that have a value, those of deleted runs as well
        id INTEGER PRIMARY KEY,  -- value << {KEY_BITS} | entry >> {CHUNK_BITS}
        members BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE catalogue_numbers (  -- what entries can be ordered by
        measure INTEGER NOT NULL REFERENCES catalogue_values (id),
        number REAL NOT NULL,
        entry INTEGER NOT NULL REFERENCES catalogue (id),
        PRIMARY KEY (measure, number, entry)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE UNIQUE INDEX catalogue_numbers_by_entry ON catalogue_numbers (entry, measure)",
    """
    CREATE TABLE catalogue_outcomes (  -- what a model under test, which has read an image, gets right of it
        entry INTEGER NOT NULL REFERENCES catalogue (id),
        model TEXT NOT NULL,
        prediction INTEGER NOT NULL REFERENCES predictions (id),
        source_prediction INTEGER REFERENCES predictions (id),
        measured INTEGER NOT NULL CHECK (measured IN (0, 1)),  -- 0: it takes the class maps, and nobody looked yet
        source_right INTEGER CHECK (source_right IN (0, 1)),
        image_right INTEGER CHECK (image_right IN (0, 1)),
        standing TEXT NOT NULL GENERATED ALWAYS AS (CASE
            WHEN NOT measured THEN 'not measured' WHEN image_right = 1 THEN 'right'
            WHEN image_right = 0 AND source_right = 1 THEN 'newly wrong' WHEN image_right = 0 THEN 'wrong'
            ELSE 'cannot tell' END) STORED,
        PRIMARY KEY (entry, model)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE catalogue_cells (
        grid TEXT NOT NULL,
        line TEXT NOT NULL,
        place TEXT NOT NULL,
        facet TEXT NOT NULL,  -- 'review', or that of a model
        value TEXT NOT NULL,
        entries INTEGER NOT NULL,
        PRIMARY KEY (grid, line, place, facet, value)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE catalogue_tags (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        entry INTEGER NOT NULL REFERENCES catalogue (id),
        tag TEXT NOT NULL CHECK (tag <> ''),
        put INTEGER NOT NULL CHECK (put IN (0, 1)),
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX catalogue_tags_by_entry ON catalogue_tags (entry, tag, id)",
    # Contentless: captions stand in their own tables already, and a trigger knows what it takes out.
    WORDS_TABLE.format(name="catalogue_words"),
    # What is put into it changes the set of a value, and how many have it.
    "CREATE VIEW catalogue_marks AS SELECT 0 AS entry, '' AS facet, '' AS value, 0 AS put WHERE 0",
    "CREATE INDEX study_items_drawn ON study_items (study, test_case) WHERE test_case IS NOT NULL",
)

_DISTINCT = "(SELECT json_group_array(DISTINCT {value}) FROM {rows})"
_EDIT = """
    coalesce((
        SELECT json_extract(value, '$.alternative') FROM json_each(counterfactual, '$.edits')
        WHERE json_extract(value, '$.edit_type') = '{}' LIMIT 1
    ), '')
"""
ENTRIES = f"""
    SELECT test_cases.id AS test_case, image, runs.source, test_cases.run,
        iif(json_array_length(task, '$.protected') > 0, 'segmentation', 'classification') AS kind,
        iif(json_array_length(task, '$.protected') > 0, '', coalesce(json_extract(task, '$.label'), '')) AS label,
        iif(json_array_length(task, '$.protected') > 0,
            {_DISTINCT.format(value="value", rows="json_each(task, '$.protected')")},
            iif(coalesce(json_extract(task, '$.label'), '') = '', '[]', json_array(json_extract(task, '$.label'))))
            AS classes,
        {_DISTINCT.format(value="json_extract(value, '$.edit_type')", rows="json_each(counterfactual, '$.edits')")}
            AS edit_types,
        json_array_length(counterfactual, '$.edits') AS edits,
        {_EDIT.format("weather")} AS weather, {_EDIT.format("time of day")} AS time_of_day,
        profile, recipe, method, iif(verdict = '', 'open', verdict) AS verdict, review, NOT removed AS there,
        test_cases.created
    FROM test_cases JOIN runs ON runs.id = test_cases.run JOIN run_summaries ON run_summaries.run = test_cases.run
        JOIN test_case_states ON test_case_states.test_case = test_cases.id
"""
"""The rows of the catalogue but for their numbers, from test cases."""
OUTCOMES = """
    SELECT catalogue.id AS entry, held.model, held.prediction, sources.id AS source_prediction,
        catalogue.kind = 'classification' OR sources.id IS NULL OR images.kind = 'classification'
            OR sources.kind = 'classification' AS measured,
        iif(catalogue.kind = 'classification' AND sources.label <> '' AND catalogue.label <> '',
            names_label(sources.label, catalogue.label), NULL) AS source_right,
        iif(catalogue.kind = 'classification' AND images.label <> '' AND catalogue.label <> '',
            names_label(images.label, catalogue.label), NULL) AS image_right
    FROM catalogue JOIN test_case_predictions AS held ON held.test_case = catalogue.test_case
        JOIN predictions AS images ON images.id = held.prediction
        LEFT JOIN predictions AS sources ON sources.id = (
            SELECT max(id) FROM predictions WHERE image = catalogue.source AND model = held.model
        )
    WHERE 1
"""
"""The rows of the outcomes, as they begin."""
CAPTION = """
    coalesce((SELECT json_extract(value, '$.text') FROM stage_values WHERE id = (
        SELECT max(id) FROM stage_values WHERE run = {run} AND stage = 'caption' {before}
    )), '')
"""
WORDS_OF = """
    SELECT catalogue.id AS entry, {caption} AS caption, json_extract(counterfactual, '$.text') AS counterfactual,
        coalesce((
            SELECT group_concat(json_extract(value, '$.keyword') || ' ' || json_extract(value, '$.alternative'), ' ')
            FROM json_each(counterfactual, '$.edits')
        ), '') AS edited
    FROM catalogue JOIN test_cases ON test_cases.id = catalogue.test_case WHERE 1
"""
_LATEST_CAPTION = CAPTION.format(run="catalogue.run", before="")
CHECKED = """
    SELECT catalogue.id AS entry, 'check:' || (json_extract(held.value, '$.name')) AS measure,
        min(json_extract(held.value, '$.value')) AS number
    FROM catalogue JOIN test_cases ON test_cases.id = catalogue.test_case, json_each(test_cases.checks) AS held
    WHERE typeof(json_extract(held.value, '$.value')) IN ('real', 'integer') {only} GROUP BY 1, 2
"""
_REVIEWED = """
    SELECT catalogue.id AS entry, 'reviewed' AS measure, review AS number FROM catalogue WHERE verdict <> 'open' {only}
"""
OF_ENTRY = (
    "SELECT catalogue.id AS entry, 'there' AS facet, '' AS value FROM catalogue WHERE there",
    *(
        f"SELECT catalogue.id, '{facet}', {column} FROM catalogue WHERE {column} <> ''"
        for facet, column in (
            ("kind", "kind"),
            ("profile", "profile"),
            ("recipe", "recipe"),
            ("method", "method"),
            ("review", "verdict"),
            ("weather", "weather"),
            ("time of day", "time_of_day"),
        )
    ),
    "SELECT catalogue.id, 'edits', CAST(edits AS TEXT) FROM catalogue WHERE 1",
    "SELECT catalogue.id, 'class', held.value FROM catalogue, json_each(classes) AS held WHERE 1",
    "SELECT catalogue.id, 'edit type', held.value FROM catalogue, json_each(edit_types) AS held WHERE 1",
    """
    SELECT DISTINCT catalogue.id, 'check:' || (json_extract(held.value, '$.name')),
        CASE json_extract(held.value, '$.passed') WHEN 1 THEN 'passed' WHEN 0 THEN 'failed' ELSE 'cannot tell' END
    FROM catalogue JOIN test_cases ON test_cases.id = catalogue.test_case, json_each(test_cases.checks) AS held
    WHERE 1
    """,
)
"""What an entry has from the beginning."""
_OF_OTHERS = (
    """
    SELECT DISTINCT catalogue.id, 'study', iif(outcome = '', 'undecided', outcome)
    FROM catalogue JOIN study_items ON study_items.test_case = catalogue.test_case WHERE study_items.kind = 'item'
    """,
    """
    SELECT catalogue.id, 'model:' || model, standing
    FROM catalogue JOIN catalogue_outcomes ON catalogue_outcomes.entry = catalogue.id WHERE 1
    """,
    """
    SELECT catalogue.id, 'measure', measures.value
    FROM catalogue JOIN catalogue_numbers AS held ON held.entry = catalogue.id
        JOIN catalogue_values AS measures ON measures.id = held.measure WHERE 1
    """,
    """
    SELECT catalogue.id, 'bin:' || measures.value, CAST(BIN AS TEXT)
    FROM catalogue JOIN catalogue_numbers AS held ON held.entry = catalogue.id
        JOIN catalogue_values AS measures ON measures.id = held.measure WHERE 1
    """,
    """
    SELECT catalogue.id, 'tag', tag FROM catalogue JOIN catalogue_tags AS held ON held.entry = catalogue.id
    WHERE put AND held.id = (SELECT max(id) FROM catalogue_tags WHERE entry = held.entry AND tag = held.tag)
    """,
)
"""What it gets later."""
PLACES = """
    SELECT catalogue.id AS entry, 'class x edit type' AS grid, lines.value AS line, places.value AS place
    FROM catalogue, json_each(iif(classes = '[]', '[""]', classes)) AS lines,
        json_each(iif(edit_types = '[]', '[""]', edit_types)) AS places WHERE 1 {only}
    UNION ALL SELECT catalogue.id, 'weather x time of day', weather, time_of_day
    FROM catalogue WHERE (weather <> '' OR time_of_day <> '') {only}
"""
"""In which cells of the coverage tables an entry stands."""


def bin_in_sql(number: str, measure: str) -> str:
    """As `storage.curation.entry_sets.bin_of`; reviews are parted by their numbers, 8,192 a bin."""
    number = f"iif({measure} = 'reviewed', {number} / {REVIEWS}, {number})"
    return f"CAST(min(max({number}, -1000.0), 1000000.0) * {BINS} + 1000000 AS INTEGER) - 1000000"


def facets(only: str = "", parts: tuple[str, ...] = OF_ENTRY + _OF_OTHERS) -> str:
    binned = (part.replace("BIN", bin_in_sql("number", "measures.value")) for part in parts)
    return " UNION ALL ".join(f"{part} {only}" for part in binned)


OF_NEW = "AND catalogue.id = NEW.id"
FACETS = facets()
"""Entry, facet and value of all that entries have."""
NUMBERS = f"""
    SELECT measures.id AS measure, number, entry
    FROM ({CHECKED.format(only="")} UNION ALL {_REVIEWED.format(only="")}) AS held
        JOIN catalogue_values AS measures ON measures.facet = 'measure' AND measures.value = held.measure
"""
CELLS = f"""
    SELECT grid, line, place, facet, value, count(*) AS entries
    FROM ({PLACES.format(only="")}) AS places JOIN ({FACETS}) AS facets USING (entry)
    WHERE (facet = 'review' OR facet LIKE 'model:%') AND entry IN (SELECT id FROM catalogue WHERE there)
    GROUP BY grid, line, place, facet, value
"""
VALUES = """
    SELECT facet, value, count(*) AS entries FROM ({facets})
    WHERE entry IN (SELECT id FROM catalogue WHERE there) GROUP BY facet, value
"""
WORDS = WORDS_OF.format(caption=_LATEST_CAPTION)
COLUMNS = (
    "test_case image source run kind label classes edit_types edits weather time_of_day profile recipe method verdict "
    "review there created"
).split()
COLUMN_NAMES = ", ".join(COLUMNS)
OUTCOME_COLUMNS = "entry, model, prediction, source_prediction, measured, source_right, image_right"
REFILL = (
    f"INSERT INTO catalogue ({COLUMN_NAMES}) {ENTRIES} ORDER BY test_cases.id",
    f"INSERT INTO catalogue_outcomes ({OUTCOME_COLUMNS}) {OUTCOMES}",
    f"""
    CREATE TEMP TABLE catalogue_filling AS
    {CHECKED.format(only="")} UNION ALL {_REVIEWED.format(only="")}
    """,
    "INSERT INTO catalogue_values (facet, value) SELECT DISTINCT 'measure', measure FROM catalogue_filling",
    """
    INSERT INTO catalogue_numbers SELECT id, number, entry
    FROM catalogue_filling JOIN catalogue_values ON facet = 'measure' AND value = measure ORDER BY 1, 2, 3
    """,
    "DROP TABLE catalogue_filling",
    *(
        statement
        for part in OF_ENTRY + _OF_OTHERS
        for statement in (
            f"""
            CREATE TEMP TABLE catalogue_filling AS
            SELECT facet, value, entry >> {CHUNK_BITS} AS chunk, group_concat(entry & {(1 << CHUNK_BITS) - 1}) AS places
            FROM (SELECT 0 AS entry, '' AS facet, '' AS value WHERE 0 UNION ALL {facets(parts=(part,))})
            GROUP BY facet, value, chunk
            """,
            """
            INSERT INTO catalogue_values (facet, value) SELECT DISTINCT facet, value FROM catalogue_filling
            WHERE true ON CONFLICT DO NOTHING
            """,
            f"""
            INSERT INTO catalogue_sets
            SELECT (id << {KEY_BITS}) | chunk, set_of_places(places) FROM catalogue_filling JOIN catalogue_values
            USING (facet, value)
            """,
            "DROP TABLE catalogue_filling",
        )
    ),
    f"""
    UPDATE catalogue_values SET entries = coalesce((
        SELECT sum(common_size(held.members, there.members)) FROM catalogue_sets AS held JOIN catalogue_sets AS there
            ON there.id = (held.id & {(1 << KEY_BITS) - 1})
                | (SELECT id << {KEY_BITS} FROM catalogue_values WHERE facet = 'there')
        WHERE held.id >= catalogue_values.id << {KEY_BITS} AND held.id < (catalogue_values.id + 1) << {KEY_BITS}
    ), 0)
    """,
    f"INSERT INTO catalogue_cells {CELLS}",
    f"INSERT INTO catalogue_words (rowid, caption, counterfactual, edited) {WORDS}",
)
"""Fills the tables from those of an older workspace, before there are triggers."""


def give_functions(connection: sqlite3.Connection) -> None:
    """Give a connection what the triggers call."""
    connection.create_function("changed_set", 3, changed_set, deterministic=True)
    connection.create_function("common_size", 2, common_size, deterministic=True)
    connection.create_function("set_of_places", 1, set_of_places, deterministic=True)
