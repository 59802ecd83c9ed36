"""The database schema: created in an empty file, unchanged on a second run, complete or absent, and what tables
refuse.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import sqlite_utils
from PIL import Image

from core.figures import Figure
from core.images import StoredImage
from core.imports import ImportRow
from core.judgements import Judgement, JudgeReply
from core.model_identity import ModelIdentity, Preprocessing
from core.panel import Panel
from core.predictions import Doubt, Guess, Prediction, encode_map
from core.test_sets import ImageHashes, SetEntry
from core.types import Caption, Check, StageValue, Task, Trace
from core.validity_score import Agreement, ValidityScore
from storage.curation.decisions import Target
from storage.curation.imports import NewImage
from storage.curation.scores import NewScores
from storage.engine.database import Database
from storage.evaluation.models_under_test import PIXELS, NewPixelCount
from storage.evaluation.predictions import NewPrediction
from storage.pending import take_up
from storage.schema import migrations
from storage.workspace import Workspace
from tests.support.cases import made_case
from tests.support.study_desk import crew, started, vote


def opened(path: Path) -> Database:
    database = Database(path, migrations.check, migrations.migrate, take_up)
    database.open()
    return database


def schema(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    connection.close()
    return rows


PREDICTION = Prediction("classification", "a classifier", (Guess("bird", 0.75),))


def filled(folder: Path) -> None:
    """Write at least one row into every table."""
    with Workspace(folder) as workspace:
        image = Image.new("RGB", (8, 8))
        run_id = workspace.runs.create(image, Task("classification", "bird"), "demo", "A bird", {})
        workspace.runs.append_value(run_id, "caption", StageValue(Caption("A bird."), Trace("model"), "k"))
        job = workspace.jobs.start(run_id, 1)
        case_id = workspace.test_cases.append(run_id, job, made_case(image))
        workspace.jobs.finish(job, "done")
        workspace.test_cases.review(case_id, "accepted")
        workspace.decisions.tag(Target(workspace.catalogue.ids()), "a favourite")
        workspace.decisions.relabel(Target(workspace.catalogue.ids()), "gull", "Ada")
        session = workspace.decisions.begin_session("Ada", 0.05)
        workspace.decisions.review(Target(workspace.catalogue.ids()), "rejected", "blurred", "Ada", session)
        workspace.decisions.answer_repeat(session, 1, "accepted")
        workspace.steps.take(run_id, "undo", "review 1")
        workspace.predictions.append(workspace.runs.get(run_id).source_sha, "a classifier", PREDICTION)
        _judged_by_a_model(workspace, workspace.runs.get(run_id).source_sha)
        studies, study_id = workspace.studies, started(workspace, training=1)
        (worker,) = crew(studies, study_id, 1)
        judged = vote(studies, studies.assignments.claim(study_id, worker, "item")).item.id
        studies.workers.exclude(study_id, worker, "too fast", "person")
        studies.workers.decide(study_id, worker, "approved", "")
        studies.workers.came_from(worker, "a browser")
        studies.adjudicate(study_id, judged, "valid", "yes", "")
        studies.panels.set(study_id, Panel("PID"))
        (told,) = crew(studies, study_id, 1)
        studies.assignments.read_on(vote(studies, studies.assignments.claim(study_id, told, "training")).public, told)
        studies.panels.answer(study_id, studies.panels.join(study_id, "p1", "b"), {"Age?": "40"})
        studies.archive(study_id, True)
        sha, set_id = workspace.runs.get(run_id).source_sha, workspace.test_sets.create("Birds")
        held = workspace.test_sets.get(set_id).versions[0]
        workspace.test_sets.add(held.number, [SetEntry(sha, sha, "bird", test_case=case_id)])
        brought = workspace.imports.begin("Birds", "birds.zip", "c" * 64, {})
        workspace.imports.add(brought, [NewImage("a bird", StoredImage("b" * 64, 8, 8, "RGB", 9))])
        workspace.imports.finish(brought, "folder", {}, [ImportRow("b.png", "It is damaged.", "refused")])
        workspace.test_sets.keep_hashes({sha: ImageHashes("0" * 64, 0)})
        workspace.vectors.add("an embedder", [1], np.ones((1, 4)))
        learnt = ValidityScore(("edges kept",), *((0.0,), (0.0,), (1.0,), (0.0, 0.0)), intercept=0.0)
        agreement = Agreement(1, 1, Figure(None), (), 0.5, None, None)
        reply = JudgeReply("Is it whole?", "yes", 1)
        judgement = Judgement((Check("judge: picture whole", True, 1.0),), {"judge: picture whole": reply}, 0.5, None)
        workspace.judgements.save("a judge", "q", {1: judgement})
        workspace.scores.save(NewScores({"s": "A study"}, learnt, agreement, np.array([1]), np.array([0.5])))


def _judged_by_a_model(workspace: Workspace, sha: str) -> None:
    models, identity = (
        workspace.models_under_test,
        ModelIdentity("net", "v1", "classification", Preprocessing(), ("a",)),
    )
    known = models.record("a net", identity, "a net", {})
    sure = NewPrediction(sha, known.key, Prediction("classification", "net"), probabilities=np.ones(1))
    workspace.predictions.extend([sure], known.id)
    models.keep_pixel_counts([NewPixelCount(1, sha, np.zeros(1, PIXELS))])
    seen = Prediction("segmentation", "net", classes=("a",), class_map=encode_map(Image.new("L", (8, 8))))
    workspace.predictions.extend([NewPrediction(sha, "net", seen, Doubt(0.5, 0.25))])
    workspace.retrainings.keep("images and a model", "a question", known.id, {"answer": "It gains."})


def test_from_an_empty_file_and_again(tmp_path: Path) -> None:
    path = tmp_path / "studio.db"
    opened(path).close()
    first = schema(path)
    assert {name for name, _ in first} >= {*migrations.APPEND_ONLY, "jobs"}
    opened(path).close()
    assert schema(path) == first


def test_opening_again_keeps_what_was_saved(tmp_path: Path) -> None:
    filled(tmp_path)
    with Workspace(tmp_path) as workspace:
        (summary,) = workspace.runs.search()
        assert workspace.runs.get(summary.id).values["caption"].value.value == Caption("A bird.")


def test_a_step_that_breaks_a_reference_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Foreign keys are off while the steps run, so they are checked at the end."""
    filled(tmp_path)
    before = schema(tmp_path / "studio.db")
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, lambda db: db.execute("DROP TABLE runs")))
    with pytest.raises(RuntimeError, match="refers to nothing"):
        opened(tmp_path / "studio.db")
    monkeypatch.undo()
    assert schema(tmp_path / "studio.db") == before
    with Workspace(tmp_path) as workspace:
        assert len(workspace.runs.search()) == 1


def test_a_step_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path)
    path = tmp_path / "studio.db"
    before = schema(path)

    def m002_broken(db: sqlite_utils.Database) -> None:
        db.execute("CREATE TABLE half (x)")
        raise ZeroDivisionError("in the middle of a step")

    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, m002_broken))
    with pytest.raises(ZeroDivisionError):
        opened(path)
    assert schema(path) == before
    monkeypatch.undo()
    opened(path).close()


@pytest.fixture(scope="module")
def of_all_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """Database with a row in each table. The tests check that the rows cannot be changed."""
    folder = tmp_path_factory.mktemp("filled")
    filled(folder)
    database = opened(folder / "studio.db")
    yield database
    database.close()


@pytest.mark.parametrize("table", (*migrations.APPEND_ONLY, "judgements"))
def test_rows_never_change_and_never_go(of_all_tables: Database, table: str) -> None:
    database = of_all_tables
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
        {"stage": "two words"},
        {"author": "robot"},
        {"brought_back": 99},
    ):
        with pytest.raises(sqlite3.IntegrityError):
            database.write(lambda db, change=change: db.table("stage_values").insert({**row, **change}) and None)  # type: ignore[misc]
    database.close()
