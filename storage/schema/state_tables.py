"""The tables of latest states, as the step `m004_states` makes them. A released step is never edited.

They say again, in columns with an index, what the append-only rows say already: so a list of thousands of runs needs
no look into every run. Only triggers write them, so no writer can forget to, and `REFILL` says how each follows from
the rows: the migration fills them with it, and a test compares it with what the triggers kept. The rules of other rooms
come in as functions of the connection: `FUNCTIONS`.
"""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime

from core.predictions import names_label
from core.studies import Adjudication, Vote
from storage.schema import catalogue_tables
from storage.studies.rows import item_of, rules_of
from study.slices import outcome_of_image

TABLES = (
    """
    CREATE TABLE run_summaries (  -- a line in the list of runs
        number INTEGER PRIMARY KEY AUTOINCREMENT,  -- in the order in which the runs were made
        run TEXT NOT NULL UNIQUE REFERENCES runs (id),
        state INTEGER NOT NULL REFERENCES run_states (id),  -- the latest
        search TEXT NOT NULL,  -- name and label, case folded: what a search looks into
        removed INTEGER NOT NULL,
        changed TEXT NOT NULL,  -- when anything in it was saved last
        stages TEXT NOT NULL DEFAULT '',  -- those that have a value, each with a space behind it
        test_cases INTEGER NOT NULL DEFAULT 0,
        accepted INTEGER NOT NULL DEFAULT 0,  -- of the test cases, by the latest review
        job TEXT  -- the state of the latest generation
    ) STRICT
    """,
    "CREATE INDEX run_summaries_by_change ON run_summaries (removed, changed, number, search)",
    """
    CREATE TABLE test_case_states (  -- what a person thinks of a test case now
        test_case INTEGER PRIMARY KEY REFERENCES test_cases (id),
        run TEXT NOT NULL,
        verdict TEXT NOT NULL DEFAULT '' CHECK (verdict IN ('accepted', 'rejected', '')),  -- '': open
        review INTEGER REFERENCES reviews (id)  -- the latest, also one that took an earlier one back
    ) STRICT
    """,
    "CREATE INDEX test_case_states_by_verdict ON test_case_states (verdict, run, test_case)",
    """
    CREATE TABLE test_case_predictions (  -- what each model under test says of a test case now
        test_case INTEGER NOT NULL REFERENCES test_cases (id),
        model TEXT NOT NULL,
        prediction INTEGER NOT NULL REFERENCES predictions (id),  -- the latest
        correct INTEGER CHECK (correct IN (0, 1)),  -- NULL where it takes more than a label, as for a segmentation
        PRIMARY KEY (test_case, model)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX test_case_predictions_by_model ON test_case_predictions (model, correct, test_case)",
    # Whether the votes of a study find an item valid: '' as long as they do not say.
    """
    ALTER TABLE study_items ADD COLUMN outcome TEXT NOT NULL DEFAULT ''
        CHECK (outcome IN ('valid', 'invalid', 'no consensus', 'too few votes', ''))
    """,
    """
    ALTER TABLE study_items
        ADD COLUMN test_case INTEGER GENERATED ALWAYS AS (json_extract(content, '$.test_case')) VIRTUAL
    """,
    "CREATE INDEX study_items_by_test_case ON study_items (test_case, outcome) WHERE test_case IS NOT NULL",
)

_SEARCH = "casefold({row}.name || char(10) || coalesce(json_extract({row}.task, '$.label'), ''))"
_CORRECT = """
    iif({prediction}.kind = 'classification' AND {prediction}.label <> ''
        AND json_extract({state}.task, '$.kind') = 'classification' AND json_extract({state}.task, '$.label') <> '',
        names_label({prediction}.label, json_extract({state}.task, '$.label')), NULL)
"""
_OUTCOME = """
    (SELECT study_outcome(studies.rules, studies.state, study_items.content, (
        SELECT json_group_array(json_array(worker, answers)) FROM (
            SELECT assignments.worker, study_votes.answers FROM assignments
            JOIN study_votes ON study_votes.id = assignments.vote
            WHERE assignments.item = study_items.id AND assignments.state = 'submitted' AND counts ORDER BY first_vote
        )
    ), (
        SELECT json_group_array(json_array(question, answer)) FROM (
            SELECT question, answer FROM adjudications
            WHERE answer <> '' AND id IN (
                SELECT max(id) FROM adjudications WHERE study = studies.id AND item = study_items.id GROUP BY question
            ) ORDER BY id
        )
    )) FROM studies WHERE studies.id = study_items.study)
"""
_STAGES = """
    coalesce((
        SELECT group_concat(stage || ' ', '') FROM (
            SELECT stage, max(id) AS latest FROM stage_values WHERE run = {run} GROUP BY stage ORDER BY min(id)
        ) WHERE (SELECT value FROM stage_values WHERE id = latest) <> 'null'
    ), '')
"""
_LATEST_JOB = "(SELECT jobs.state FROM jobs WHERE run = {run} ORDER BY id DESC LIMIT 1)"

TRIGGERS = (
    f"""
    CREATE TRIGGER run_summaries_begin AFTER INSERT ON run_states
    WHEN NOT EXISTS (SELECT 1 FROM run_summaries WHERE run = NEW.run)
    BEGIN
        INSERT INTO run_summaries (run, state, search, removed, changed)
        VALUES (NEW.run, NEW.id, {_SEARCH.format(row="NEW")}, NEW.removed, NEW.created);
    END
    """,
    f"""
    CREATE TRIGGER run_summaries_follow_states AFTER INSERT ON run_states
    WHEN EXISTS (SELECT 1 FROM run_summaries WHERE run = NEW.run AND state < NEW.id)
    BEGIN
        UPDATE run_summaries SET state = NEW.id, search = {_SEARCH.format(row="NEW")}, removed = NEW.removed,
            changed = max(changed, NEW.created) WHERE run = NEW.run;
    END
    """,
    """
    CREATE TRIGGER run_summaries_follow_values AFTER INSERT ON stage_values BEGIN
        UPDATE run_summaries SET changed = max(changed, NEW.created),
            stages = stages || iif(instr(' ' || stages, ' ' || NEW.stage || ' '), '', NEW.stage || ' ')
        WHERE run = NEW.run;
    END
    """,
    """
    CREATE TRIGGER test_case_states_begin AFTER INSERT ON test_cases BEGIN
        INSERT INTO test_case_states (test_case, run) VALUES (NEW.id, NEW.run);
        UPDATE run_summaries SET changed = max(changed, NEW.created), test_cases = test_cases + 1
        WHERE run = NEW.run;
    END
    """,
    """
    CREATE TRIGGER test_case_states_follow_reviews AFTER INSERT ON reviews BEGIN
        UPDATE test_case_states SET review = NEW.id, verdict = iif(NEW.verdict = 'open', '', NEW.verdict)
        WHERE test_case = NEW.test_case AND coalesce(review, 0) < NEW.id;
    END
    """,
    """
    CREATE TRIGGER run_summaries_follow_verdicts AFTER UPDATE OF verdict ON test_case_states
    WHEN OLD.verdict <> NEW.verdict
    BEGIN
        UPDATE run_summaries SET accepted = accepted + (NEW.verdict = 'accepted') - (OLD.verdict = 'accepted')
        WHERE run = NEW.run;
    END
    """,
    f"""
    CREATE TRIGGER run_summaries_follow_new_jobs AFTER INSERT ON jobs BEGIN
        UPDATE run_summaries SET job = {_LATEST_JOB.format(run="NEW.run")} WHERE run = NEW.run;
    END
    """,
    f"""
    CREATE TRIGGER run_summaries_follow_jobs AFTER UPDATE OF state ON jobs BEGIN
        UPDATE run_summaries SET job = {_LATEST_JOB.format(run="NEW.run")} WHERE run = NEW.run;
    END
    """,
    f"""
    CREATE TRIGGER test_case_predictions_follow_predictions AFTER INSERT ON predictions BEGIN
        INSERT INTO test_case_predictions (test_case, model, prediction, correct)
        SELECT test_cases.id, NEW.model, NEW.id, {_CORRECT.format(prediction="NEW", state="run_states")}
        FROM test_cases JOIN run_summaries ON run_summaries.run = test_cases.run
            JOIN run_states ON run_states.id = run_summaries.state
        WHERE test_cases.image = NEW.image
        ON CONFLICT (test_case, model) DO UPDATE SET prediction = excluded.prediction, correct = excluded.correct
        WHERE prediction < excluded.prediction;
    END
    """,
    f"""
    CREATE TRIGGER test_case_predictions_follow_test_cases AFTER INSERT ON test_cases BEGIN
        INSERT INTO test_case_predictions (test_case, model, prediction, correct)
        SELECT NEW.id, predictions.model, predictions.id,
            {_CORRECT.format(prediction="predictions", state="run_states")}
        FROM predictions JOIN run_summaries ON run_summaries.run = NEW.run
            JOIN run_states ON run_states.id = run_summaries.state
        WHERE predictions.id IN (SELECT max(id) FROM predictions WHERE image = NEW.image GROUP BY model);
    END
    """,
    f"""
    CREATE TRIGGER test_case_predictions_follow_tasks AFTER UPDATE OF state ON run_summaries
    WHEN (SELECT task FROM run_states WHERE id = OLD.state) <> (SELECT task FROM run_states WHERE id = NEW.state)
    BEGIN
        UPDATE test_case_predictions SET correct = (
            SELECT {_CORRECT.format(prediction="predictions", state="run_states")}
            FROM predictions, run_states WHERE predictions.id = prediction AND run_states.id = NEW.state
        ) WHERE test_case IN (SELECT id FROM test_cases WHERE run = NEW.run);
    END
    """,
    f"""
    CREATE TRIGGER study_items_follow_votes AFTER UPDATE OF state, counts, vote ON assignments
    WHEN NEW.kind = 'item' AND 'submitted' IN (OLD.state, NEW.state)
        AND (OLD.state <> NEW.state OR OLD.counts <> NEW.counts OR OLD.vote IS NOT NEW.vote)
    BEGIN UPDATE study_items SET outcome = {_OUTCOME} WHERE id = NEW.item; END
    """,
    f"""
    CREATE TRIGGER study_items_follow_adjudications AFTER INSERT ON adjudications
    BEGIN UPDATE study_items SET outcome = {_OUTCOME} WHERE id = NEW.item; END
    """,
    f"""
    CREATE TRIGGER study_items_follow_rules AFTER UPDATE OF state, rules ON studies
    WHEN OLD.state <> 'draft' AND ((OLD.state = 'closed') <> (NEW.state = 'closed') OR OLD.rules <> NEW.rules)
    BEGIN UPDATE study_items SET outcome = {_OUTCOME} WHERE study = NEW.id AND kind = 'item'; END
    """,
)

FOLLOW_VALUES = f"""
    CREATE TRIGGER run_summaries_follow_values AFTER INSERT ON stage_values BEGIN
        UPDATE run_summaries SET changed = max(changed, NEW.created), stages = {_STAGES.format(run="NEW.run")}
        WHERE run = NEW.run;
    END
"""
"""In the place of the trigger of this name above, since the step `m008_undo`: a stage may be emptied again."""

REFILL = {
    "run_summaries": f"""
        SELECT row_number() OVER (ORDER BY runs.rowid) AS number, runs.id AS run, state.id AS state,
            {_SEARCH.format(row="state")} AS search, state.removed,
            max(
                state.created,
                coalesce((SELECT max(created) FROM stage_values WHERE run = runs.id), ''),
                coalesce((SELECT max(created) FROM test_cases WHERE run = runs.id), '')
            ) AS changed,
            {_STAGES.format(run="runs.id")} AS stages,
            (SELECT count(*) FROM test_cases WHERE run = runs.id) AS test_cases,
            (
                SELECT count(*) FROM test_cases
                JOIN reviews ON reviews.id = (SELECT max(id) FROM reviews WHERE test_case = test_cases.id)
                WHERE run = runs.id AND verdict = 'accepted'
            ) AS accepted,
            {_LATEST_JOB.format(run="runs.id")} AS job
        FROM runs JOIN run_states AS state ON state.id = (SELECT max(id) FROM run_states WHERE run = runs.id)
        ORDER BY runs.rowid
    """,
    "test_case_states": """
        SELECT test_cases.id AS test_case, run,
            iif(coalesce(verdict, 'open') = 'open', '', verdict) AS verdict, reviews.id AS review
        FROM test_cases LEFT JOIN reviews
            ON reviews.id = (SELECT max(id) FROM reviews WHERE test_case = test_cases.id)
        ORDER BY test_cases.id
    """,
    "test_case_predictions": f"""
        SELECT test_cases.id AS test_case, predictions.model, predictions.id AS prediction,
            {_CORRECT.format(prediction="predictions", state="run_states")} AS correct
        FROM test_cases JOIN predictions ON predictions.image = test_cases.image
            JOIN run_states ON run_states.id = (SELECT max(id) FROM run_states WHERE run = test_cases.run)
        WHERE predictions.id IN (SELECT max(id) FROM predictions GROUP BY image, model)
        ORDER BY test_cases.id, predictions.model
    """,
}
"""By table: its rows, worked out anew from the append-only tables."""
OUTCOMES = f"SELECT id, {_OUTCOME} AS outcome FROM study_items WHERE kind = 'item'"
"""The outcome of every item, worked out anew."""
REFILL_OUTCOMES = f"UPDATE study_items SET outcome = {_OUTCOME} WHERE kind = 'item'"


def give_functions(connection: sqlite3.Connection) -> None:
    """Give a connection what triggers call. SQLite knows no casefold (its lower() knows the letters of English only),
    no rule for labels and none for votes.
    """
    catalogue_tables.give_functions(connection)
    connection.create_function("casefold", 1, str.casefold, deterministic=True)
    connection.create_function("names_label", 2, names_label, deterministic=True)
    connection.create_function("study_outcome", 5, _study_outcome, deterministic=True)


def _study_outcome(rules: str, state: str, content: str, votes: str, adjudications: str) -> str:
    """`study_items.outcome` of an item: by the rules of its study, which is in this state, the votes that may count in
    their order, and what a person decided. `votes` holds pairs of worker and answers, `adjudications` of question and
    answer.
    """
    if state == "draft":
        return ""
    item = item_of({"id": 0, "public": "", "kind": "item", "image": "", "source": None, "content": content})
    then = datetime.fromtimestamp(0, UTC)
    found = outcome_of_image(
        item,
        [
            Vote(number, 0, "item", worker, json.loads(answers), "", then, then, 0.0, "left")
            for number, (worker, answers) in enumerate(json.loads(votes))
        ],
        [Adjudication(0, question, answer, "", then) for question, answer in json.loads(adjudications)],
        rules_of(rules),
        state == "closed",
    )
    if found is None or found.status == "waiting":
        return ""
    return found.answer if found.status == "consensus" else found.status
