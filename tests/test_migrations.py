"""The steps forward: from an empty file, again without effect, all or nothing; and what the tables refuse."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import sqlite_utils
from PIL import Image

from pipeline.types import Caption, CounterfactualCaption, StageValue, Task, TestCase, Trace
from storage import migrations
from storage.database import Database
from storage.workspace import Workspace
from tests.study_desk import crew, started, vote


def opened(path: Path) -> Database:
    database = Database(path)
    database.open(migrations.check, migrations.migrate)
    return database


def schema(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    connection.close()
    return rows


def filled(folder: Path) -> None:
    """At least one row in every table."""
    with Workspace(folder) as workspace:
        image = Image.new("RGB", (8, 8))
        run_id = workspace.create_run(image, Task("classification", "bird"), "demo", "A bird", {})
        workspace.append_value(run_id, "caption", StageValue(Caption("A bird."), Trace("model"), "k"))
        job = workspace.start_job(run_id, 1)
        case = TestCase(image, image, CounterfactualCaption("x", ()), 1, "m", "m", "p", "", {}, 0.1)
        case_id = workspace.append_test_case(run_id, job, case)
        workspace.finish_job(job, "done")
        workspace.append_review(case_id, "accepted")
        workspace.append_reading(workspace.run(run_id).source_sha, "a classifier", {"top": ["bird"]})
        studies, study_id = workspace.studies, started(workspace)
        (worker,) = crew(studies, study_id, 1)
        judged = vote(studies, studies.claim(study_id, worker, "item")).item.id
        studies.exclude(study_id, worker, "too fast", "person")
        studies.decide(study_id, worker, "approved", "")
        studies.adjudicate(study_id, judged, "valid", "yes", "")


def test_the_list_of_steps_is_complete() -> None:
    pending = [step.name for step in migrations.studio.pending(sqlite_utils.Database(memory=True))]
    assert pending == list(migrations.STEPS)


def test_from_an_empty_file_and_again(tmp_path: Path) -> None:
    path = tmp_path / "studio.db"
    opened(path).close()
    first = schema(path)
    assert {name for name, _ in first} >= {*migrations.APPEND_ONLY, "jobs"}
    opened(path).close()
    assert schema(path) == first
    names = [row["name"] for row in sqlite_utils.Database(path)["_sqlite_migrations"].rows]
    assert names == list(migrations.STEPS)


def test_opening_again_keeps_what_was_saved(tmp_path: Path) -> None:
    filled(tmp_path)
    with Workspace(tmp_path) as workspace:
        (summary,) = workspace.runs()
        assert workspace.run(summary.id).values["caption"].value.value == Caption("A bird.")


def test_a_workspace_of_the_first_version_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has had the first step only, with a run as that version wrote it, opens with nothing lost."""
    first = sqlite_utils.Migrations("studio")
    first(name="m001_initial")(migrations.m001_initial)
    monkeypatch.setattr(migrations, "studio", first)
    database = opened(tmp_path / "studio.db")
    now, sha = "2025-11-01T10:00:00.000000+00:00", "a" * 64
    task = '{"kind": "classification", "label": "bird", "protected": []}'

    def write(db: sqlite_utils.Database) -> None:
        db.table("images").insert({"sha": sha, "width": 8, "height": 8, "mode": "RGB", "bytes": 9, "created": now})
        run = {"id": "0" * 16, "profile": "demo", "source": sha, "sample": "", "notes": "[]", "created": now}
        db.table("runs").insert(run)
        state = {"run": "0" * 16, "name": "A bird", "task": task, "settings": "{}", "created": now}
        db.table("run_states").insert(state)

    database.write(write)
    database.close()
    monkeypatch.undo()

    with Workspace(tmp_path) as workspace:
        (summary,) = workspace.runs()
        run = workspace.run(summary.id)
        assert (run.name, run.source_sha, run.task) == ("A bird", sha, Task("classification", "bird"))
        assert (run.mask_sha, run.mask_path, run.mask_classes, run.prompts, run.removed) == (None, None, {}, {}, False)
        workspace.rename(run.id, "A seagull")
        assert workspace.run(run.id).name == "A seagull"


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    path = tmp_path / "studio.db"
    before = schema(path)
    steps = sqlite_utils.Migrations("studio")
    steps(name="m001_initial")(migrations.m001_initial)

    @steps()
    def m002_broken(db: sqlite_utils.Database) -> None:
        db.execute("CREATE TABLE half (x)")
        raise ZeroDivisionError("in the middle of a step")

    monkeypatch.setattr(migrations, "studio", steps)
    with pytest.raises(ZeroDivisionError):
        opened(path)
    assert schema(path) == before
    monkeypatch.undo()
    opened(path).close()


@pytest.mark.parametrize("table", migrations.APPEND_ONLY)
def test_rows_never_change_and_never_go(tmp_path: Path, table: str) -> None:
    filled(tmp_path)
    database = opened(tmp_path / "studio.db")
    before = database.read(lambda db: list(db[table].rows))
    column = list(before[0])[-1]
    assert before
    for statement in (
        f"UPDATE {table} SET {column} = {column}",
        f"DELETE FROM {table}",
        f"INSERT OR REPLACE INTO {table} SELECT * FROM {table}",
    ):
        with pytest.raises(sqlite3.IntegrityError, match=f"{table} is append-only"):
            database.write(lambda db, statement=statement: db.execute(statement) and None)  # type: ignore[misc]
    assert database.read(lambda db: list(db[table].rows)) == before
    database.close()


@pytest.mark.parametrize("change", ["state = 'running'", "total = 5", "message = 'x'"])
def test_a_job_that_ended_stays_as_it_is(tmp_path: Path, change: str) -> None:
    filled(tmp_path)
    database = opened(tmp_path / "studio.db")
    with pytest.raises(sqlite3.IntegrityError, match="only be ended, once"):
        database.write(lambda db: db.execute(f"UPDATE jobs SET {change}") and None)
    with pytest.raises(sqlite3.IntegrityError, match="jobs are kept"):
        database.write(lambda db: db.execute("DELETE FROM jobs") and None)
    database.close()


def test_text_that_is_no_json_and_rows_without_a_run_are_refused(tmp_path: Path) -> None:
    filled(tmp_path)
    database = opened(tmp_path / "studio.db")
    row = dict(next(iter(database.read(lambda db: list(db["stage_values"].rows)))))
    del row["id"]
    for change in (
        {"value": "{half"},
        {"run": "none"},
        {"stage": "generation"},
        {"author": "robot"},
        {"brought_back": 99},
    ):
        with pytest.raises(sqlite3.IntegrityError):
            database.write(lambda db, change=change: db.table("stage_values").insert({**row, **change}) and None)  # type: ignore[misc]
    database.close()
