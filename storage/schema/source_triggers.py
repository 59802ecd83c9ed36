"""What follows the sources of images, in time that grows with the images that it is about and no others, and indexes by
which imports are counted, as the step `m020_sources` makes them. A released step is never edited.

- A picture that comes is looked for among the sources that are waited for by their index. The trigger of `m018_imports`
  asked so that the index could not serve, and looked at all imported images for each new one.
- Of the images of a source that comes after them only those change their place in the order by source that have another
  first image by it. The trigger of `m017_decisions` gave all of them their place anew for each of them.
"""

from __future__ import annotations

from storage.schema.decision_tables import FIRST, MEASURE, SOURCES

_WAITING = "SELECT entry FROM imported_images WHERE source = NEW.sha AND source <> '' AND image <> NEW.sha AND made"
"""The entries whose source a new picture is; `source <> ''` is what lets the index serve."""


def _behind(row: str) -> str:
    """The images of a source, where the changed one comes before all the others, so that they have a new first one or
    had it so far; none otherwise.
    """
    earlier = f"SELECT 1 FROM catalogue WHERE source = {row}.source AND id < NEW.id"
    return f"SELECT id FROM catalogue WHERE source = (SELECT {row}.source WHERE NOT EXISTS ({earlier}))"


_MOVED = f"SELECT NEW.id UNION ALL {_behind('OLD')} UNION ALL {_behind('NEW')}"

STATEMENTS = (
    "DROP TRIGGER catalogue_sources_follow_images",
    f"""
    CREATE TRIGGER catalogue_sources_follow_images AFTER INSERT ON images BEGIN
        UPDATE catalogue SET source = NEW.sha WHERE source IS NULL AND id IN ({_WAITING});
    END
    """,
    "DROP TRIGGER catalogue_follows_sources",
    f"""
    CREATE TRIGGER catalogue_follows_sources AFTER UPDATE OF source ON catalogue WHEN OLD.source IS NOT NEW.source BEGIN
        DELETE FROM catalogue_numbers WHERE measure = {MEASURE} AND entry IN ({_MOVED})
            AND number <> (SELECT -{FIRST.format(row="moved")} FROM catalogue AS moved WHERE moved.id = entry);
        INSERT INTO catalogue_numbers
        SELECT {MEASURE}, number, entry FROM ({SOURCES.format(only=f"AND id IN ({_MOVED})")}) AS moved
        WHERE NOT EXISTS (
            SELECT 1 FROM catalogue_numbers AS held WHERE held.entry = moved.entry AND held.measure = {MEASURE}
        );
    END
    """,
    # What imports say of themselves in a list.
    "CREATE INDEX imported_images_counted ON imported_images (import, entry, made)",
    "CREATE INDEX import_rows_by_kind ON import_rows (import, kind)",
)
