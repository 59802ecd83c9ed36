"""Which batch has made an image, as a facet of the catalogue: the step `m022_batch_facet`. A released step is never
edited.

Two batches may have one name, so the value is the name with the number of the batch behind it. It is there as soon as
the image is: in the transaction that marks the work as done. Images that a person draws later in a run of a batch are
not of the batch.
"""

from __future__ import annotations

from storage.curation.entry_sets import CHUNK_BITS, KEY_BITS

VALUE = "{row}.name || ' #' || {row}.id"
"""The value of a batch, as `core.batches.Batch.facet` has it."""
FACETS = f"""
    SELECT DISTINCT catalogue.id AS entry, 'batch' AS facet, {VALUE.format(row="batches")} AS value
    FROM batch_work JOIN batches ON batches.id = batch_work.batch
        JOIN catalogue ON catalogue.test_case = batch_work.test_case
    WHERE batch_work.test_case IS NOT NULL
"""
"""Entry, facet and value of all that entries have of batches."""

FILL = (
    f"""
    CREATE TEMP TABLE catalogue_filling AS
    SELECT facet, value, entry >> {CHUNK_BITS} AS chunk, group_concat(entry & {(1 << CHUNK_BITS) - 1}) AS places
    FROM ({FACETS}) GROUP BY facet, value, chunk
    """,
    "INSERT INTO catalogue_values (facet, value) SELECT DISTINCT facet, value FROM catalogue_filling",
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
    ), 0) WHERE facet = 'batch'
    """,
)
"""Fills the facet from the batches that there are."""

_TRIGGERS = (
    f"""
    CREATE TRIGGER catalogue_follows_batches AFTER UPDATE OF test_case ON batch_work
    WHEN OLD.test_case IS NULL AND NEW.test_case IS NOT NULL BEGIN
        INSERT INTO catalogue_marks SELECT catalogue.id, 'batch', {VALUE.format(row="batches")}, 1
        FROM catalogue JOIN batches ON batches.id = NEW.batch WHERE catalogue.test_case = NEW.test_case;
    END
    """,
    # Beside `catalogue_comes_and_goes`, which does the same for what entries have of others. The batch of an image is
    # found by its run: no index of the ledger is by test case, and each one more would cost at every piece of work.
    f"""
    CREATE TRIGGER catalogue_batches_come_and_go AFTER UPDATE OF there ON catalogue WHEN OLD.there <> NEW.there BEGIN
        UPDATE catalogue_values SET entries = entries + iif(NEW.there, 1, -1) WHERE facet = 'batch' AND value IN (
            SELECT {VALUE.format(row="batches")} FROM batch_sources JOIN batches ON batches.id = batch_sources.batch
                JOIN batch_work ON batch_work.source = batch_sources.id
            WHERE batch_sources.run = NEW.run AND batch_work.test_case = NEW.test_case
        );
    END
    """,
)
STATEMENTS = (*FILL, *_TRIGGERS)
