"""The scores of validity, as the step `m024_scores` makes their tables. A released step is never edited.

A score is one more measure of the catalogue, so that images are found and ordered by it as by the figure of a check.
All images are scored at once, and each run of that takes the place of the one before: its log, `score_runs`, keeps them
all, and `catalogue_numbers` has the scores of the latest. `storage.curation.scores` keeps sets and counts in step with
them by itself, since triggers would do it image by image: those on `catalogue_numbers` leave this measure alone.
"""

from __future__ import annotations

import sqlite_utils

from storage.curation.entry_sets import CHUNK_BITS, KEY_BITS
from storage.schema import catalogue_tables

MEASURE = "validity score"
"""Its name among the measures of the catalogue."""
APPEND_ONLY = ("score_runs",)
NUMBER = f"(SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = '{MEASURE}')"
_TABLE = """
    CREATE TABLE score_runs (  -- the latest row counts
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        studies TEXT NOT NULL CHECK (json_valid(studies)),  -- whose votes it was learnt from: names by ids
        learnt TEXT NOT NULL CHECK (json_valid(learnt)),  -- what gives a score for the figures of checks
        agreement TEXT NOT NULL CHECK (json_valid(agreement)),  -- with people, on images that it was not learnt from
        images INTEGER NOT NULL CHECK (images > 0),  -- that have a score
        entries BLOB NOT NULL,  -- which ones: a bit an entry (storage.curation.entry_sets)
        scores BLOB NOT NULL,  -- of each of them, in order, 32 bits
        created TEXT NOT NULL
    ) STRICT
"""
_LEFT_ALONE = ("catalogue_numbers_come", "catalogue_numbers_go")


def apply(db: sqlite_utils.Database) -> None:
    """Make the table, and have the triggers leave the measure alone."""
    db.execute(_TABLE)
    for name, row in zip(_LEFT_ALONE, ("NEW", "OLD"), strict=True):
        (sql,) = db.execute("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = ?", [name]).fetchone()
        before, begin, after = sql.partition(" BEGIN")
        db.execute(f"DROP TRIGGER {name}")
        db.execute(f"{before} WHEN {row}.measure IS NOT {NUMBER}{begin}{after}")


_BIN = catalogue_tables.bin_in_sql("number", f"'{MEASURE}'")
FILL = (
    f"""
    CREATE TEMP TABLE catalogue_filling AS
    SELECT facet, value, entry >> {CHUNK_BITS} AS chunk, group_concat(entry & {(1 << CHUNK_BITS) - 1}) AS places
    FROM (
        SELECT entry, 'measure' AS facet, '{MEASURE}' AS value FROM catalogue_numbers WHERE measure = {NUMBER}
        UNION ALL SELECT entry, 'bin:{MEASURE}', CAST({_BIN} AS TEXT) FROM catalogue_numbers WHERE measure = {NUMBER}
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
    ), 0) WHERE facet = 'measure' AND value = '{MEASURE}' OR facet = 'bin:{MEASURE}'
    """,
)
"""Makes the sets and counts of the measure from its numbers, where there are no sets of it."""
