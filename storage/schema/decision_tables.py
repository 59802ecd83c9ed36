"""The tables of what people decide about images, as the step `m017_decisions` makes them. A released step is never
edited.

A decision is one thing that a person did to one image or to many: a verdict, a tag, a label. What it changed stands in
the log of its kind (`reviews`, `catalogue_tags`, `catalogue_labels`), a row an image, and each row names its decision;
of an image (and a tag) the latest row counts. To take a decision back is another decision, which says again what
counted before: its rows name in `restores` the row whose word counts again, 0 where nobody had said anything; NULL is a
new word. What follows from the logs is kept by triggers, as all of the catalogue.

- `reviews` gets a table anew: a review is of a test case, or of an entry of the catalogue that has none.
- `catalogue_labels`: the latest row of an entry is its label instead of that of its task; "" is that of its task again.
- The order by source is one more measure of the catalogue: minus the number of the first entry that has the source, so
  that entries of one source stand together, the newest source first. An entry without a source is its own.
- `review_sessions`, `review_repeats`: what a person decided at one go, and what they said of images that they were
  shown once more.
"""

from __future__ import annotations

import sqlite_utils

from storage.curation.entry_sets import CHUNK_BITS, KEY_BITS
from storage.schema import catalogue_tables
from storage.schema.catalogue_tables import OUTCOME_COLUMNS, OUTCOMES

APPEND_ONLY = ("image_decisions", "catalogue_labels", "review_sessions", "review_repeats")

_TABLES = (
    """
    CREATE TABLE review_sessions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        author TEXT NOT NULL,
        repeats REAL NOT NULL CHECK (repeats BETWEEN 0 AND 0.2),  -- of its decisions, after how many one is shown again
        created TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE image_decisions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL CHECK (kind IN ('review', 'tag', 'label')),
        author TEXT NOT NULL,  -- '' for somebody who gave no name
        what TEXT NOT NULL,  -- the verdict, the tag or the label, in words
        entries INTEGER NOT NULL CHECK (entries >= 0),  -- that it changed
        undoes INTEGER UNIQUE REFERENCES image_decisions (id),  -- what it takes back
        session INTEGER REFERENCES review_sessions (id),
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX image_decisions_by_author ON image_decisions (author, id)",
    "CREATE INDEX image_decisions_by_session ON image_decisions (session, id) WHERE session IS NOT NULL",
    """
    CREATE TABLE review_repeats (  -- an image that was shown once more: its verdict stays what it was
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session INTEGER NOT NULL REFERENCES review_sessions (id),
        entry INTEGER NOT NULL REFERENCES catalogue (id),
        before TEXT NOT NULL CHECK (before IN ('accepted', 'rejected')),
        verdict TEXT NOT NULL CHECK (verdict IN ('accepted', 'rejected', 'open')),
        reason TEXT NOT NULL,
        created TEXT NOT NULL,
        UNIQUE (session, entry)
    ) STRICT
    """,
    """
    CREATE TABLE new_reviews (  -- a person's verdict; the latest row of an image counts, "open" takes it back
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
    ) STRICT
    """,
    """
    INSERT INTO new_reviews (id, test_case, verdict, reason, created)
    SELECT id, test_case, verdict, reason, created FROM reviews ORDER BY id
    """,
    "DROP TABLE reviews",
    "ALTER TABLE new_reviews RENAME TO reviews",
    "CREATE INDEX reviews_by_case ON reviews (test_case, id)",
    "CREATE INDEX reviews_by_entry ON reviews (entry, id) WHERE entry IS NOT NULL",
    "CREATE INDEX reviews_by_decision ON reviews (decision) WHERE decision IS NOT NULL",
    "ALTER TABLE catalogue_tags ADD COLUMN author TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE catalogue_tags ADD COLUMN decision INTEGER REFERENCES image_decisions (id)",
    "ALTER TABLE catalogue_tags ADD COLUMN restores INTEGER",
    "CREATE INDEX catalogue_tags_by_decision ON catalogue_tags (decision) WHERE decision IS NOT NULL",
    """
    CREATE TABLE catalogue_labels (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        entry INTEGER NOT NULL REFERENCES catalogue (id),
        label TEXT NOT NULL,  -- '' for that of its task
        before TEXT NOT NULL,  -- the label that it had; in its first row that of its task
        author TEXT NOT NULL,
        decision INTEGER REFERENCES image_decisions (id),
        restores INTEGER,
        created TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX catalogue_labels_by_entry ON catalogue_labels (entry, id)",
    # Cells in which nobody decided about an image yet are looked for by it.
    "CREATE INDEX catalogue_cells_reviewed ON catalogue_cells (grid, line, place, value) "
    "WHERE facet = 'review' AND entries > 0",
    "CREATE INDEX catalogue_labels_by_decision ON catalogue_labels (decision) WHERE decision IS NOT NULL",
)

FIRST = "coalesce((SELECT min(id) FROM catalogue AS other WHERE other.source = {row}.source), {row}.id)"
SOURCES = f"""
    SELECT id AS entry, 'source' AS measure, -{FIRST.format(row="catalogue")} AS number FROM catalogue WHERE 1 {{only}}
"""
MEASURE = "(SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = 'source')"
_NEW_MEASURE = """
    INSERT INTO catalogue_values (facet, value) SELECT 'measure', 'source'
    WHERE EXISTS (SELECT 1 FROM catalogue) AND NOT EXISTS (
        SELECT 1 FROM catalogue_values WHERE facet = 'measure' AND value = 'source'
    )
"""


def _with_sources(sql: str) -> str:
    """The SQL of the step before, with the order by source parted into bins as that by review is: by whole numbers."""
    return sql.replace("value = 'reviewed', ", "value IN ('reviewed', 'source'), ")


_BINNED = ("catalogue_numbers_come", "catalogue_numbers_go", "catalogue_comes_and_goes")
"""The triggers that part numbers into bins."""
_BIN = _with_sources(catalogue_tables.bin_in_sql("number", "held.value"))
FILL = (
    _NEW_MEASURE,
    f"INSERT INTO catalogue_numbers SELECT {MEASURE}, number, entry FROM ({SOURCES.format(only='')}) ORDER BY 2, 3",
    f"""
    CREATE TEMP TABLE catalogue_filling AS
    SELECT facet, value, entry >> {CHUNK_BITS} AS chunk, group_concat(entry & {(1 << CHUNK_BITS) - 1}) AS places
    FROM (
        SELECT entry, 'measure' AS facet, 'source' AS value FROM catalogue_numbers WHERE measure = {MEASURE}
        UNION ALL SELECT entry, 'bin:source', CAST({_BIN} AS TEXT)
        FROM (SELECT entry, number, 'source' AS value FROM catalogue_numbers WHERE measure = {MEASURE}) AS held
    ) GROUP BY facet, value, chunk
    """,
    """
    INSERT INTO catalogue_values (facet, value) SELECT DISTINCT facet, value FROM catalogue_filling
    WHERE true ON CONFLICT DO NOTHING
    """,
    f"""
    INSERT INTO catalogue_sets SELECT (id << {KEY_BITS}) | chunk, set_of_places(places)
    FROM catalogue_filling JOIN catalogue_values USING (facet, value)
    """,
    "DROP TABLE catalogue_filling",
    f"""
    UPDATE catalogue_values SET entries = coalesce((
        SELECT sum(common_size(held.members, there.members)) FROM catalogue_sets AS held JOIN catalogue_sets AS there
            ON there.id = (held.id & {(1 << KEY_BITS) - 1})
                | (SELECT id << {KEY_BITS} FROM catalogue_values WHERE facet = 'there')
        WHERE held.id >= catalogue_values.id << {KEY_BITS} AND held.id < (catalogue_values.id + 1) << {KEY_BITS}
    ), 0) WHERE facet = 'measure' AND value = 'source' OR facet = 'bin:source'
    """,
)
"""Fills the order by source from the catalogue."""

_LABEL = """
    iif(NEW.label <> '', NEW.label, (SELECT before FROM catalogue_labels WHERE entry = NEW.entry ORDER BY id LIMIT 1))
"""
_CLASSES = "FROM catalogue, json_each(classes) AS held WHERE catalogue.id = NEW.entry"
_OF_BOTH = "AND (source IN (OLD.source, NEW.source) OR id = NEW.id)"
_TRIGGERS = (
    # Counted on, not anew: a decision may be about all images of a large run.
    "DROP TRIGGER run_summaries_follow_verdicts",
    """
    CREATE TRIGGER run_summaries_follow_verdicts AFTER UPDATE OF verdict ON test_case_states
    WHEN OLD.verdict <> NEW.verdict
    BEGIN
        UPDATE run_summaries SET accepted = accepted + (NEW.verdict = 'accepted') - (OLD.verdict = 'accepted')
        WHERE run = NEW.run AND (SELECT task FROM test_cases WHERE id = NEW.test_case)
            = (SELECT task FROM run_states WHERE id = run_summaries.state);
    END
    """,
    """
    CREATE TRIGGER test_case_states_follow_reviews AFTER INSERT ON reviews WHEN NEW.test_case IS NOT NULL BEGIN
        UPDATE test_case_states SET review = NEW.id, verdict = iif(NEW.verdict = 'open', '', NEW.verdict)
        WHERE test_case = NEW.test_case AND coalesce(review, 0) < NEW.id;
    END
    """,
    """
    CREATE TRIGGER catalogue_follows_own_reviews AFTER INSERT ON reviews WHEN NEW.entry IS NOT NULL BEGIN
        UPDATE catalogue SET review = NEW.id, verdict = NEW.verdict
        WHERE id = NEW.entry AND coalesce(review, 0) < NEW.id;
    END
    """,
    # Cells of a coverage table go with the old class and come with the new one: by marks of what stands in them.
    f"""
    CREATE TRIGGER catalogue_follows_labels AFTER INSERT ON catalogue_labels
    WHEN {_LABEL} <> (SELECT label FROM catalogue WHERE id = NEW.entry)
    BEGIN
        DELETE FROM catalogue_outcomes WHERE entry = NEW.entry;
        INSERT INTO catalogue_marks SELECT id, 'review', verdict, 0 FROM catalogue WHERE id = NEW.entry;
        INSERT INTO catalogue_marks SELECT catalogue.id, 'class', held.value, 0 {_CLASSES};
        UPDATE catalogue SET label = {_LABEL}, classes = iif({_LABEL} = '', '[]', json_array({_LABEL}))
        WHERE id = NEW.entry;
        INSERT INTO catalogue_marks SELECT catalogue.id, 'class', held.value, 1 {_CLASSES};
        INSERT INTO catalogue_marks SELECT id, 'review', verdict, 1 FROM catalogue WHERE id = NEW.entry;
        INSERT INTO catalogue_outcomes ({OUTCOME_COLUMNS}) {OUTCOMES} AND catalogue.id = NEW.entry;
    END
    """,
    f"""
    CREATE TRIGGER catalogue_begins_in_its_source AFTER INSERT ON catalogue BEGIN
        {_NEW_MEASURE};
        INSERT INTO catalogue_numbers SELECT {MEASURE}, -{FIRST.format(row="NEW")}, NEW.id;
    END
    """,
    # The source of an image that was imported may come later: all that have it stand together then.
    f"""
    CREATE TRIGGER catalogue_follows_sources AFTER UPDATE OF source ON catalogue WHEN OLD.source IS NOT NEW.source BEGIN
        DELETE FROM catalogue_numbers WHERE measure = {MEASURE}
            AND entry IN (SELECT id FROM catalogue WHERE 1 {_OF_BOTH});
        INSERT INTO catalogue_numbers
        SELECT {MEASURE}, number, entry FROM ({SOURCES.format(only=_OF_BOTH)});
    END
    """,
)

_LABEL_NOW = """
    (SELECT nullif(label, '') FROM catalogue_labels WHERE id = (
        SELECT max(catalogue_labels.id) FROM catalogue JOIN catalogue_labels ON entry = catalogue.id
        WHERE catalogue.test_case = entries.test_case
    ))
"""
_DECIDED = {
    "label": f"coalesce({_LABEL_NOW}, label) AS label",
    "classes": f"iif({_LABEL_NOW} IS NULL, classes, json_array({_LABEL_NOW})) AS classes",
}
ENTRIES = f"""
    SELECT {", ".join(_DECIDED.get(name, name) for name in catalogue_tables.COLUMNS)}
    FROM ({catalogue_tables.ENTRIES}) AS entries
"""
"""The rows of the catalogue but for their numbers, from test cases and what was decided of their labels."""
OWN = """
    SELECT catalogue.id, catalogue.verdict AS verdict_kept, catalogue.review AS review_kept,
        coalesce(said.verdict, 'open') AS verdict, said.id AS review, catalogue.label AS label_kept,
        coalesce(
            nullif(labels.label, ''),
            (SELECT before FROM catalogue_labels WHERE entry = catalogue.id ORDER BY id LIMIT 1),
            catalogue.label
        ) AS label
    FROM catalogue LEFT JOIN reviews AS said ON said.id = (SELECT max(id) FROM reviews WHERE entry = catalogue.id)
        LEFT JOIN catalogue_labels AS labels
            ON labels.id = (SELECT max(id) FROM catalogue_labels WHERE entry = catalogue.id)
    WHERE catalogue.test_case IS NULL
"""
"""Of entries without a test case: what is kept of what was decided, and what follows from the logs."""
FACETS = _with_sources(catalogue_tables.FACETS)
NUMBERS = f"""
    {catalogue_tables.NUMBERS} UNION ALL SELECT {MEASURE}, number, entry FROM ({SOURCES.format(only="")})
"""


def apply(db: sqlite_utils.Database) -> None:
    """Make the tables so, and fill the order by source before there are triggers that would do it by one image."""
    binned = []
    for name in _BINNED:
        (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = ?", [name]).fetchone()
        binned.append(sql)
        db.execute(f"DROP TRIGGER {name}")
    for statement in (*_TABLES, *FILL, *map(_with_sources, binned), *_TRIGGERS):
        db.execute(statement)
