"""The triggers of the catalogue, as the step `m015_catalogue` makes them. A released step is never edited.

Each follows one thing that is saved, in the same transaction. What it changes of the facets of an entry it puts into
the view `catalogue_marks`, and the first two triggers bring sets, counts and cells in step. What an entry has is said
once, in `storage.schema.catalogue_tables`.
"""

from __future__ import annotations

from storage.curation.entry_sets import CHUNK_BITS, KEY_BITS
from storage.schema.catalogue_tables import (
    CAPTION,
    CHECKED,
    COLUMN_NAMES,
    ENTRIES,
    OF_ENTRY,
    OF_NEW,
    OUTCOME_COLUMNS,
    OUTCOMES,
    PLACES,
    WORDS,
    WORDS_OF,
    bin_in_sql,
    facets,
)


def _mark(facet: str, value: str, entry: str, put: int, where: str = "1") -> str:
    return f"INSERT INTO catalogue_marks SELECT {entry}, {facet}, {value}, {put} WHERE {where};"


_CHANGE = "changed_set({members}, NEW.entry & " + str((1 << CHUNK_BITS) - 1) + ", NEW.put)"
_OTHER_ITEM = """
    EXISTS (SELECT 1 FROM study_items WHERE test_case = {row}.test_case AND kind = 'item' AND outcome = {row}.outcome
        AND id <> {row}.id)
"""
_STUDY = "iif({row}.outcome = '', 'undecided', {row}.outcome)"
_DRAWN = "SELECT id FROM catalogue WHERE test_case = {row}.test_case"


def _study_mark(row: str, put: int) -> str:
    """What a study says of an entry comes with the first item that says so, and goes with the last."""
    return f"""
        INSERT INTO catalogue_marks SELECT catalogue.id, 'study', {_STUDY.format(row=row)}, {put} FROM catalogue
        WHERE catalogue.test_case = {row}.test_case AND NOT {_OTHER_ITEM.format(row=row)};
    """


def _read_again(entries: str, model: str) -> str:
    """The statements that begin outcomes anew."""
    return f"""
        DELETE FROM catalogue_outcomes WHERE entry IN ({entries}) AND ({model});
        INSERT INTO catalogue_outcomes ({OUTCOME_COLUMNS})
        {OUTCOMES} AND catalogue.id IN ({entries}) AND ({model.replace("model", "held.model", 1)});
    """


def _follow_words(verb: str, caption: str) -> str:
    """Take the words of all entries of a run out of the full text, or put them in."""
    first = "catalogue_words, rowid" if verb == "delete" else "rowid"
    row = "'delete', entry" if verb == "delete" else "entry"
    return f"""
        INSERT INTO catalogue_words ({first}, caption, counterfactual, edited)
        SELECT {row}, caption, counterfactual, edited
        FROM ({WORDS_OF.format(caption=caption)} AND catalogue.run = NEW.run);
    """


_BEFORE = CAPTION.format(run="NEW.run", before="AND id < NEW.id")
TRIGGERS = (
    f"""
    CREATE TRIGGER catalogue_marks_change_sets INSTEAD OF INSERT ON catalogue_marks BEGIN
        INSERT INTO catalogue_values (facet, value) SELECT NEW.facet, NEW.value
        WHERE NOT EXISTS (SELECT 1 FROM catalogue_values WHERE facet = NEW.facet AND value = NEW.value);
        INSERT INTO catalogue_sets
        SELECT (id << {KEY_BITS}) | (NEW.entry >> {CHUNK_BITS}), {_CHANGE.format(members="NULL")}
        FROM catalogue_values WHERE facet = NEW.facet AND value = NEW.value
        ON CONFLICT (id) DO UPDATE SET members = {_CHANGE.format(members="members")};
        UPDATE catalogue_values SET entries = entries + iif(NEW.put, 1, -1)
        WHERE facet = NEW.facet AND value = NEW.value
            AND (NEW.facet = 'there' OR (SELECT there FROM catalogue WHERE id = NEW.entry));
    END
    """,
    f"""
    CREATE TRIGGER catalogue_marks_change_cells INSTEAD OF INSERT ON catalogue_marks
    WHEN (NEW.facet = 'review' OR NEW.facet LIKE 'model:%') AND (SELECT there FROM catalogue WHERE id = NEW.entry)
    BEGIN
        INSERT INTO catalogue_cells SELECT grid, line, place, NEW.facet, NEW.value, iif(NEW.put, 1, -1)
        FROM ({PLACES.format(only="AND catalogue.id = NEW.entry")}) WHERE true
        ON CONFLICT DO UPDATE SET entries = entries + excluded.entries;
    END
    """,
    f"""
    CREATE TRIGGER catalogue_follows_test_cases AFTER INSERT ON test_case_states BEGIN
        INSERT INTO catalogue ({COLUMN_NAMES}) {ENTRIES} WHERE test_cases.id = NEW.test_case;
    END
    """,
    f"""
    CREATE TRIGGER catalogue_begins AFTER INSERT ON catalogue BEGIN
        INSERT INTO catalogue_marks SELECT entry, facet, value, 1 FROM ({facets(OF_NEW, OF_ENTRY)});
        INSERT INTO catalogue_values (facet, value)
        SELECT DISTINCT 'measure', measure FROM ({CHECKED.format(only=OF_NEW)}) AS held WHERE NOT EXISTS (
            SELECT 1 FROM catalogue_values WHERE facet = 'measure' AND value = held.measure
        );
        INSERT INTO catalogue_numbers SELECT measures.id, number, entry
        FROM ({CHECKED.format(only=OF_NEW)}) AS held
            JOIN catalogue_values AS measures ON measures.facet = 'measure' AND measures.value = held.measure;
        INSERT INTO catalogue_words (rowid, caption, counterfactual, edited) {WORDS} {OF_NEW};
        INSERT INTO catalogue_outcomes ({OUTCOME_COLUMNS}) {OUTCOMES} {OF_NEW};
    END
    """,
    """
    CREATE TRIGGER catalogue_follows_reviews AFTER UPDATE OF review, verdict ON test_case_states BEGIN
        UPDATE catalogue SET review = NEW.review, verdict = iif(NEW.verdict = '', 'open', NEW.verdict)
        WHERE test_case = NEW.test_case;
    END
    """,
    f"""
    CREATE TRIGGER catalogue_changes_verdict AFTER UPDATE OF verdict ON catalogue WHEN OLD.verdict <> NEW.verdict BEGIN
        {_mark("'review'", "OLD.verdict", "NEW.id", 0)}
        {_mark("'review'", "NEW.verdict", "NEW.id", 1)}
    END
    """,
    """
    CREATE TRIGGER catalogue_changes_review AFTER UPDATE OF review, verdict ON catalogue
    WHEN OLD.review IS NOT NEW.review OR OLD.verdict <> NEW.verdict
    BEGIN
        DELETE FROM catalogue_numbers WHERE entry = NEW.id AND measure = (
            SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = 'reviewed'
        );
        INSERT INTO catalogue_values (facet, value) SELECT 'measure', 'reviewed'
        WHERE NOT EXISTS (SELECT 1 FROM catalogue_values WHERE facet = 'measure' AND value = 'reviewed');
        INSERT INTO catalogue_numbers SELECT id, NEW.review, NEW.id FROM catalogue_values
        WHERE facet = 'measure' AND value = 'reviewed' AND NEW.verdict <> 'open';
    END
    """,
    *(
        f"""
        CREATE TRIGGER catalogue_numbers_{name} AFTER {verb} ON catalogue_numbers BEGIN
            INSERT INTO catalogue_marks SELECT {row}.entry, 'measure', value, {put}
            FROM catalogue_values WHERE id = {row}.measure;
            INSERT INTO catalogue_marks SELECT {row}.entry, 'bin:' || value,
                CAST({bin_in_sql(f"{row}.number", "value")} AS TEXT), {put}
            FROM catalogue_values WHERE id = {row}.measure;
        END
        """
        for name, verb, row, put in (("come", "INSERT", "NEW", 1), ("go", "DELETE", "OLD", 0))
    ),
    """
    CREATE TRIGGER catalogue_follows_runs AFTER UPDATE OF removed ON run_summaries WHEN OLD.removed <> NEW.removed
    BEGIN UPDATE catalogue SET there = NOT NEW.removed WHERE run = NEW.run; END
    """,
    f"""
    CREATE TRIGGER catalogue_comes_and_goes AFTER UPDATE OF there ON catalogue WHEN OLD.there <> NEW.there BEGIN
        {_mark("'there'", "''", "NEW.id", 1, "NEW.there")}
        {_mark("'there'", "''", "NEW.id", 0, "NOT NEW.there")}
        UPDATE catalogue_values SET entries = entries + iif(NEW.there, 1, -1)
        WHERE facet <> 'there' AND id IN (
            SELECT held.id FROM ({facets(OF_NEW)}) AS facets JOIN catalogue_values AS held USING (facet, value)
        );
        INSERT INTO catalogue_cells SELECT grid, line, place, facet, value, iif(NEW.there, 1, -1)
        FROM ({PLACES.format(only=OF_NEW)}) AS places JOIN ({facets(OF_NEW)}) AS facets USING (entry)
        WHERE facet = 'review' OR facet LIKE 'model:%'
        ON CONFLICT DO UPDATE SET entries = entries + excluded.entries;
    END
    """,
    *(
        f"""
        CREATE TRIGGER catalogue_outcomes_{name} AFTER {verb} ON catalogue_outcomes
        BEGIN {_mark(f"'model:' || {row}.model", f"{row}.standing", f"{row}.entry", put)} END
        """
        for name, verb, row, put in (("come", "INSERT", "NEW", 1), ("go", "DELETE", "OLD", 0))
    ),
    f"""
    CREATE TRIGGER catalogue_outcomes_change AFTER UPDATE ON catalogue_outcomes WHEN OLD.standing <> NEW.standing BEGIN
        {_mark("'model:' || OLD.model", "OLD.standing", "OLD.entry", 0)}
        {_mark("'model:' || NEW.model", "NEW.standing", "NEW.entry", 1)}
    END
    """,
    *(
        f"""
        CREATE TRIGGER catalogue_outcomes_follow_{name} AFTER {verb} ON test_case_predictions
        BEGIN {_read_again(_DRAWN.format(row="NEW"), "model = NEW.model")} END
        """
        for name, verb in (("new_predictions", "INSERT"), ("predictions", "UPDATE OF prediction"))
    ),
    f"""
    CREATE TRIGGER catalogue_outcomes_follow_sources AFTER INSERT ON predictions BEGIN
        {_read_again("SELECT id FROM catalogue WHERE source = NEW.image", "model = NEW.model")}
    END
    """,
    f"""
    CREATE TRIGGER catalogue_outcomes_follow_masks AFTER UPDATE OF state ON run_summaries
    WHEN (SELECT mask || mask_classes FROM run_states WHERE id = OLD.state)
        IS NOT (SELECT mask || mask_classes FROM run_states WHERE id = NEW.state)
    BEGIN
        {_read_again("SELECT id FROM catalogue WHERE run = NEW.run AND kind = 'segmentation'", "model <> ''")}
    END
    """,
    f"""
    CREATE TRIGGER catalogue_words_follow_captions AFTER INSERT ON stage_values
    WHEN NEW.stage = 'caption' AND coalesce(json_extract(NEW.value, '$.text'), '') <> {_BEFORE}
    BEGIN
        {_follow_words("delete", _BEFORE)}
        {_follow_words("insert", "coalesce(json_extract(NEW.value, '$.text'), '')")}
    END
    """,
    f"""
    CREATE TRIGGER catalogue_follows_new_items AFTER INSERT ON study_items
    WHEN NEW.kind = 'item' AND NEW.test_case IS NOT NULL BEGIN {_study_mark("NEW", 1)} END
    """,
    f"""
    CREATE TRIGGER catalogue_follows_gone_items AFTER DELETE ON study_items
    WHEN OLD.kind = 'item' AND OLD.test_case IS NOT NULL BEGIN {_study_mark("OLD", 0)} END
    """,
    f"""
    CREATE TRIGGER catalogue_follows_outcomes AFTER UPDATE OF outcome ON study_items
    WHEN NEW.kind = 'item' AND NEW.test_case IS NOT NULL AND OLD.outcome <> NEW.outcome
    BEGIN {_study_mark("OLD", 0)} {_study_mark("NEW", 1)} END
    """,
    """
    CREATE TRIGGER catalogue_follows_tags AFTER INSERT ON catalogue_tags WHEN NEW.put <> coalesce((
        SELECT put FROM catalogue_tags WHERE entry = NEW.entry AND tag = NEW.tag AND id < NEW.id
        ORDER BY id DESC LIMIT 1
    ), 0)
    BEGIN INSERT INTO catalogue_marks VALUES (NEW.entry, 'tag', NEW.tag, NEW.put); END
    """,
)
