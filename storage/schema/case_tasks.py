"""The task of each test case in a column of its own, as the step `m007_case_tasks` makes it. A released step is never
edited.

An image is checked and reviewed for the task that it was made for. A run may get another task later: what is said of
its images then stays what it was, and the list of runs counts those of its present task.
"""

from __future__ import annotations

from storage.schema import state_tables

_ACCEPTED = """
    (
        SELECT count(*) FROM test_cases JOIN test_case_states ON test_case_states.test_case = test_cases.id
        WHERE test_cases.run = {run} AND verdict = 'accepted'
            AND test_cases.task = (SELECT task FROM run_states WHERE id = {state})
    )
"""
_CORRECT = """
    iif({prediction}.kind = 'classification' AND {prediction}.label <> ''
        AND json_extract({task}, '$.kind') = 'classification' AND json_extract({task}, '$.label') <> '',
        names_label({prediction}.label, json_extract({task}, '$.label')), NULL)
"""
_FOLLOW_TASKS = "test_case_predictions_follow_tasks"

STATEMENTS = (
    "ALTER TABLE test_cases ADD COLUMN task TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(task))",
    # Until now nobody wrote it down: it was the task that the run had when the image was saved. One of a run that
    # came from a file is as old as its run.
    "DROP TRIGGER test_cases_refuse_update",
    """
    UPDATE test_cases SET task = coalesce(
        (
            SELECT task FROM run_states AS state WHERE state.run = test_cases.run
                AND state.created <= test_cases.created ORDER BY id DESC LIMIT 1
        ),
        (SELECT task FROM run_states AS state WHERE state.run = test_cases.run ORDER BY id LIMIT 1)
    )
    """,
    """
    CREATE TRIGGER test_cases_refuse_update BEFORE UPDATE ON test_cases
    BEGIN SELECT RAISE(ABORT, 'test_cases is append-only'); END
    """,
    "DROP TRIGGER run_summaries_follow_verdicts",
    f"""
    CREATE TRIGGER run_summaries_follow_verdicts AFTER UPDATE OF verdict ON test_case_states
    WHEN OLD.verdict <> NEW.verdict
    BEGIN
        UPDATE run_summaries SET accepted = {_ACCEPTED.format(run="NEW.run", state="run_summaries.state")}
        WHERE run = NEW.run;
    END
    """,
    f"""
    CREATE TRIGGER run_summaries_follow_tasks AFTER UPDATE OF state ON run_summaries
    WHEN (SELECT task FROM run_states WHERE id = OLD.state) <> (SELECT task FROM run_states WHERE id = NEW.state)
    BEGIN
        UPDATE run_summaries SET accepted = {_ACCEPTED.format(run="NEW.run", state="NEW.state")} WHERE run = NEW.run;
    END
    """,
    f"DROP TRIGGER {_FOLLOW_TASKS}",  # what a model says of an image is right or wrong for the image's own task
    "DROP TRIGGER test_case_predictions_follow_predictions",
    f"""
    CREATE TRIGGER test_case_predictions_follow_predictions AFTER INSERT ON predictions BEGIN
        INSERT INTO test_case_predictions (test_case, model, prediction, correct)
        SELECT test_cases.id, NEW.model, NEW.id, {_CORRECT.format(prediction="NEW", task="test_cases.task")}
        FROM test_cases WHERE test_cases.image = NEW.image
        ON CONFLICT (test_case, model) DO UPDATE SET prediction = excluded.prediction, correct = excluded.correct
        WHERE prediction < excluded.prediction;
    END
    """,
    "DROP TRIGGER test_case_predictions_follow_test_cases",
    f"""
    CREATE TRIGGER test_case_predictions_follow_test_cases AFTER INSERT ON test_cases BEGIN
        INSERT INTO test_case_predictions (test_case, model, prediction, correct)
        SELECT NEW.id, predictions.model, predictions.id, {_CORRECT.format(prediction="predictions", task="NEW.task")}
        FROM predictions
        WHERE predictions.id IN (SELECT max(id) FROM predictions WHERE image = NEW.image GROUP BY model);
    END
    """,
    f"UPDATE run_summaries SET accepted = {_ACCEPTED.format(run='run_summaries.run', state='run_summaries.state')}",
    f"""
    UPDATE test_case_predictions SET correct = (
        SELECT {_CORRECT.format(prediction="predictions", task="test_cases.task")}
        FROM predictions, test_cases WHERE predictions.id = prediction AND test_cases.id = test_case
    )
    """,
)

REFILL = {
    **state_tables.REFILL,
    "run_summaries": f"""
        SELECT number, filled.run, filled.state, search, removed, changed, stages, test_cases,
            {_ACCEPTED.format(run="filled.run", state="filled.state")} AS accepted, job
        FROM ({state_tables.REFILL["run_summaries"]}) AS filled ORDER BY number
    """,
    "test_case_predictions": f"""
        SELECT test_cases.id AS test_case, predictions.model, predictions.id AS prediction,
            {_CORRECT.format(prediction="predictions", task="test_cases.task")} AS correct
        FROM test_cases JOIN predictions ON predictions.image = test_cases.image
        WHERE predictions.id IN (SELECT max(id) FROM predictions GROUP BY image, model)
        ORDER BY test_cases.id, predictions.model
    """,
}
"""By table: its rows, worked out anew from the append-only tables and the states of reviews."""
