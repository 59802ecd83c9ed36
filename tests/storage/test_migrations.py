"""The steps forward: from an empty file, again without effect, all or nothing; and what the tables refuse."""

from __future__ import annotations

import base64
import io
import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlite_utils
from PIL import Image

from core.catalogue import Order
from core.model_identity import ModelIdentity, Preprocessing
from core.predictions import Doubt, Guess, Prediction, decode_map, encode_map
from core.studies import NewItem
from core.test_sets import ImageHashes, SetEntry
from core.types import Caption, StageValue, Task, Trace
from evaluation.by_source import Figure
from evaluation.validity_score import Agreement, ValidityScore
from storage.curation.catalogue_check import catalogue_faults
from storage.curation.decisions import Target
from storage.curation.imports import ImportRow, NewImage
from storage.curation.scores import NewScores
from storage.engine.database import Database
from storage.evaluation.models_under_test import PIXELS, NewPixelCount, NewProbabilities
from storage.evaluation.predictions import NewPrediction
from storage.images import StoredImage
from storage.schema import migrations, state_tables
from storage.workspace import Workspace
from study.panel import Panel
from tests.support.cases import made_case
from tests.support.study_desk import YES, assert_counted, crew, started, vote


def opened(path: Path) -> Database:
    database = Database(path)
    database.open(migrations.check, migrations.migrate)
    return database


def schema(path: Path) -> list[tuple[str, str]]:
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
    connection.close()
    return rows


PREDICTION = Prediction("classification", "a classifier", (Guess("bird", 0.75),))


def filled(folder: Path) -> None:
    """At least one row in every table."""
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
        workspace.steps.take_back(run_id, "review 1")
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
        workspace.scores.save(NewScores({"s": "A study"}, learnt, agreement, np.array([1]), np.array([0.5])))


def _judged_by_a_model(workspace: Workspace, sha: str) -> None:
    models, identity = (
        workspace.models_under_test,
        ModelIdentity("net", "v1", "classification", Preprocessing(), ("a",)),
    )
    known = models.record("a net", identity, "a net", {})
    models.keep(known, [], probabilities=[NewProbabilities(sha, np.ones(1))])
    models.keep_pixel_counts([NewPixelCount(1, sha, np.zeros(1, PIXELS))])
    seen = Prediction("segmentation", "net", classes=("a",), class_map=encode_map(Image.new("L", (8, 8))))
    workspace.predictions.extend([NewPrediction(sha, "net", seen, Doubt(0.5, 0.25))])
    workspace.retrainings.keep("images and a model", "a question", known.id, {"answer": "It gains."})


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
        (summary,) = workspace.runs.search()
        assert workspace.runs.get(summary.id).values["caption"].value.value == Caption("A bird.")


def written_by(folder: Path, steps: int, rows: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """A workspace that has had so many of the first steps, with these rows of tables."""
    folder.mkdir(parents=True, exist_ok=True)
    db = sqlite_utils.Database(folder / "studio.db")
    state_tables.give_functions(db.conn)
    earlier = sqlite_utils.Migrations("studio")
    for name in migrations.STEPS[:steps]:
        earlier(name=name)(getattr(migrations, name))
    earlier.apply(db)
    for table, row in rows:
        db.table(table).insert(row)
    db.close()


THEN, SHA, RUN = "2025-11-01T10:00:00.000000+00:00", "a" * 64, "0" * 16
TASK = '{"kind": "classification", "label": "Möwe", "protected": []}'
FIRST_ROWS: list[tuple[str, dict[str, Any]]] = [
    ("images", {"sha": SHA, "width": 8, "height": 8, "mode": "RGB", "bytes": 9, "created": THEN}),
    ("runs", {"id": RUN, "profile": "demo", "source": SHA, "sample": "", "notes": "[]", "created": THEN}),
    ("run_states", {"run": RUN, "name": "A bird", "task": TASK, "settings": "{}", "created": THEN}),
]


def test_a_workspace_of_the_first_version_goes_on(tmp_path: Path) -> None:
    """A file that has had the first step only, with a run as that version wrote it, opens with nothing lost."""
    written_by(tmp_path, 1, FIRST_ROWS)
    with Workspace(tmp_path) as workspace:
        (summary,) = workspace.runs.search()
        run = workspace.runs.get(summary.id)
        assert (run.name, run.source_sha, run.task) == ("A bird", SHA, Task("classification", "Möwe"))
        assert (run.mask_sha, run.mask_path, run.mask_classes, run.prompts, run.removed) == (None, None, {}, {}, False)
        workspace.runs.rename(run.id, "A seagull")
        assert workspace.runs.get(run.id).name == "A seagull"


def test_outcomes_of_closed_studies_are_worked_out_anew(tmp_path: Path) -> None:
    """They were kept when four equal votes of four passed for the four of five that were announced."""
    with Workspace(tmp_path) as workspace:
        study_id = started(workspace, items=1, votes=5, consensus=4)
        for worker in crew(workspace.studies, study_id, 4):
            vote(workspace.studies, workspace.studies.assignments.claim(study_id, worker, "item"))
        workspace.studies.close(study_id)
    connection = sqlite3.connect(tmp_path / "studio.db")
    state_tables.give_functions(connection)
    assert connection.execute("SELECT outcome FROM study_items").fetchall() == [("too few votes",)]
    connection.execute("UPDATE study_items SET outcome = 'valid'")
    connection.execute("DELETE FROM _sqlite_migrations WHERE name = 'm006_announced_rule'")
    connection.commit()
    with Workspace(tmp_path):
        assert connection.execute("SELECT outcome FROM study_items").fetchall() == [("too few votes",)]
    connection.close()


def test_studies_of_the_twelfth_step_go_on_with_their_counts(tmp_path: Path) -> None:
    """The items get a table anew, in which training is a kind: votes, outcomes and all that follows them stay."""
    with Workspace(tmp_path / "now") as workspace:
        study_id = started(workspace, items=1, votes=1, consensus=1, controls=1)
        rules = workspace._database.read(lambda db: dict(next(iter(db["studies"].rows))))["rules"]
        content = workspace._database.read(lambda db: [row["content"] for row in db["study_items"].rows])
    written_by(tmp_path, 12, FIRST_ROWS[:1])
    db = sqlite_utils.Database(tmp_path / "studio.db")
    state_tables.give_functions(db.conn)
    here = {"study": study_id, "worker": "heron-41", "created": THEN}
    study = {"id": study_id, "name": "Birds", "state": "running", "rules": rules, "votes": 1}
    db.table("studies").insert({**study, "created": THEN, "changed": THEN})
    db.table("workers").insert({"id": "heron-41", "created": THEN})
    db.table("enrolments").insert({**here, "given": 2})
    for number, kind in enumerate(("item", "control")):
        item = {"study": study_id, "public": str(number) * 16, "kind": kind, "place": 0, "image": SHA, "created": THEN}
        db.table("study_items").insert({**item, "content": content[number]})
        given = {"study": study_id, "worker": "heron-41", "item": number + 1, "kind": kind, "side": "left"}
        given |= {"public": f"p{number}", "image_token": f"i{number}", "number": number + 1, "state": "leased"}
        db.table("assignments").insert({**given, "accepted": THEN, "expires": THEN})
        said = {"assignment": number + 1, "event": "submitted", "key": "k", "answers": '{"valid": "yes"}'}
        db.table("study_votes").insert({**said, "comment": "", "seconds": 1.0, "created": THEN})
        change = "state = 'submitted', submitted = accepted, first_vote = :n, vote = :n, was_right = :right"
        right = None if kind == "item" else 1
        db.execute(f"UPDATE assignments SET {change} WHERE id = :n", {"n": number + 1, "right": right})
    db.conn.commit()
    db.close()
    with Workspace(tmp_path) as workspace:
        studies = workspace.studies
        assert [(vote.kind, vote.answers) for vote in studies.data(study_id).votes] == [("item", YES), ("control", YES)]
        outcomes = workspace._database.read(lambda db: [row["outcome"] for row in db["study_items"].rows])
        assert outcomes == ["valid", ""]
        assert studies.workers.get("heron-41").pending == 2
        sha = workspace.images.add(Image.new("L", (4, 4)))
        studies.add_items(study_id, [NewItem(sha, kind="training", expected=YES, label="bird")])
        told = vote(studies, studies.assignments.claim(study_id, "heron-41", "training"))
        assert studies.assignments.read_on(told.public, "heron-41")
        assert studies.workers.get("heron-41").pending == 2, "training is nothing to approve"
    assert_counted(tmp_path)


def value_row(text: str, **columns: Any) -> tuple[str, dict[str, Any]]:
    row: dict[str, Any] = {
        "run": RUN,
        "stage": "caption",
        "value": json.dumps({"text": text}),
        "author": "model",
        "model": "BLIP",
    }
    row |= {"prompt": "Say.", "raw_reply": text, "settings": '{"beams": 5}', "seed": str(2**64 - 1), "attempts": 2}
    return "stage_values", {**row, "seconds": 0.25, "inputs_key": "k", "created": THEN, **columns}


def case_row(number: int) -> tuple[str, dict[str, Any]]:
    row: dict[str, Any] = {
        "run": RUN,
        "job": 1,
        "image": SHA,
        "control": SHA,
        "seed": str(2**63 + number),
        "method": "controlnet",
    }
    row |= {"counterfactual": '{"text": "A gull.", "edits": []}', "model": "SD", "prompt": "A gull.", "checks": "[]"}
    row |= {"negative_prompt": "", "settings": '{"steps": 4}', "seconds": 0.5, "created": THEN}
    return "test_cases", row


def test_a_workspace_of_the_third_step_goes_on(tmp_path: Path) -> None:
    """Versions, jobs, test cases and reviews as that version wrote them: the list and the run say the same."""
    later = THEN.replace("2025", "2026")
    written_by(
        tmp_path,
        3,
        [
            ("processes", {"host": "x", "pid": 1, "opened": THEN}),
            *FIRST_ROWS,
            ("runs", {**FIRST_ROWS[1][1], "id": "1" * 16}),
            ("run_states", {**FIRST_ROWS[2][1], "run": "1" * 16, "name": "Gone"}),
            ("run_states", {**FIRST_ROWS[2][1], "run": "1" * 16, "name": "Gone", "removed": 1}),
            value_row("One."),
            value_row("Two.", author="person"),
            value_row("One.", brought_back=1, created=later),
            (
                "jobs",
                {"run": RUN, "process": 1, "total": 3, "inputs_key": "k", "state": "running", "message": ""}
                | {"started": THEN},
            ),
            *(case_row(number) for number in range(3)),
            ("reviews", {"test_case": 1, "verdict": "accepted", "reason": "", "created": THEN}),
            ("reviews", {"test_case": 2, "verdict": "accepted", "reason": "", "created": THEN}),
            ("reviews", {"test_case": 2, "verdict": "open", "reason": "", "created": THEN}),
            ("reviews", {"test_case": 3, "verdict": "rejected", "reason": "blurred", "created": THEN}),
        ],
    )
    with Workspace(tmp_path) as workspace:
        (line,) = workspace.runs.search(find="MÖWE")
        assert (line.name, line.stages, line.test_cases, line.accepted) == ("A bird", ("caption", "generation"), 3, 1)
        assert (line.job, line.changed.year) == ("interrupted", 2026)
        assert [run.name for run in workspace.runs.search(removed=True)] == ["Gone"]
        run = workspace.runs.get(RUN)
        assert [case.review.verdict if case.review else "" for case in run.test_cases] == ["accepted", "", "rejected"]
        assert [case.lineage.seed for case in run.test_cases] == [2**63, 2**63 + 1, 2**63 + 2]
        assert {case.artifacts["control image"].sha for case in run.test_cases} == {SHA}
        assert {case.lineage.recipe for case in run.test_cases} == {"dillema"}
        history = workspace.runs.history(RUN, "caption")
        assert [(held.value.value.text, held.author, held.brought_back) for held in history] == [
            ("One.", "model", None),
            ("Two.", "person", None),
            ("One.", "model", 1),
        ]
        trace = history[0].value.trace
        assert (trace.seed, trace.settings, trace.attempts, trace.raw_reply) == (2**64 - 1, {"beams": 5}, 2, "One.")
        number = workspace.runs.bring_back(history[1].id)
        assert number == history[-1].id + 1 and workspace.runs.get(RUN).values["caption"].value.value.text == "Two."


def test_reviews_and_tags_of_the_sixteenth_step_go_on(tmp_path: Path) -> None:
    """Reviews get a table anew, tags an author, and all images a place by their source; one run is deleted."""
    cases = [
        ("test_cases", {**{name: held for name, held in case_row(number)[1].items() if name != "control"}, **of})
        for number, of in enumerate({"run": run, "job": None, "recipe": "dillema", "task": TASK}
                                    for run in (RUN, "1" * 16, RUN, "1" * 16))
    ]  # fmt: skip
    said = {"reason": "", "created": THEN}
    written_by(
        tmp_path,
        16,
        [
            *FIRST_ROWS,
            ("images", {**FIRST_ROWS[0][1], "sha": "b" * 64}),
            ("runs", {**FIRST_ROWS[1][1], "id": "1" * 16, "source": "b" * 64}),
            ("run_states", {**FIRST_ROWS[2][1], "run": "1" * 16}),
            *cases,
            ("reviews", {"test_case": 1, "verdict": "accepted", **said}),
            ("reviews", {"test_case": 2, "verdict": "accepted", **said}),
            ("reviews", {"test_case": 3, "verdict": "accepted", **said}),
            ("reviews", {"test_case": 3, "verdict": "open", **said}),
            ("catalogue_tags", {"entry": 2, "tag": "odd", "put": 1, "created": THEN}),
            ("run_states", {**FIRST_ROWS[2][1], "removed": 1}),
        ],
    )
    with Workspace(tmp_path) as workspace:

        def by_source() -> list[int]:
            return [one.id for one in workspace.catalogue.page(order=Order("source")).entries]

        assert by_source() == [2, 4] and catalogue_faults(tmp_path / "studio.db") == ()
        workspace.runs.restore(RUN)
        assert by_source() == [2, 4, 1, 3] and catalogue_faults(tmp_path / "studio.db") == ()
        held = [workspace.catalogue.get(entry) for entry in (1, 2, 3, 4)]
        assert [(one.verdict, one.reviewer) for one in held] == [
            ("accepted", ""), ("accepted", ""), ("open", ""), ("open", "")
        ]  # fmt: skip
        assert [line.accepted for line in workspace.runs.search()] == [1, 1] and held[1].tags == ("odd",)
        assert [one.what for one in workspace.decisions.of_entry(3)] == ["open", "accepted"]
        workspace.decisions.review(Target([1, 2, 3]), "rejected", "dark", "Ada")
        assert workspace.decisions.take_back(author="Ada").changed == 3
        assert [workspace.catalogue.get(entry).verdict for entry in (1, 2, 3)] == ["accepted", "accepted", "open"]
        assert catalogue_faults(tmp_path / "studio.db") == ()


def reading_rows() -> list[tuple[str, dict[str, Any]]]:
    """What models under test said, as the third step kept it: JSON with class maps as PNGs in base64."""
    coloured = Image.frombytes("P", (6, 4), bytes(range(24)))
    coloured.putpalette([255 - part for part in range(256) for _ in "rgb"])
    file = io.BytesIO()
    coloured.save(file, "PNG", optimize=True)
    plain = {"kind": "segmentation", "model": "net", "top": [], "classes": ["road", "sky"]}
    values: list[Any] = [
        {**plain, "class_map": base64.b64encode(file.getvalue()).decode()},
        {"kind": "classification", "model": "timm x", "top": [{"label": "gull", "probability": 0.5}], "classes": []}
        | {"class_map": ""},
        {"top": "of a version that nobody remembers"},
        {**plain, "class_map": "no picture"},
    ]
    return [
        ("readings", {"image": SHA, "model": f"model {number}", "value": json.dumps(value), "created": THEN})
        for number, value in enumerate(values)
    ]


def test_readings_of_the_third_step_become_predictions(tmp_path: Path) -> None:
    written_by(tmp_path, 3, [*FIRST_ROWS, *reading_rows()])
    with Workspace(tmp_path) as workspace:
        seen, guessed, *others = (workspace.predictions.latest(SHA, f"model {number}") for number in range(4))
        assert seen is not None and (seen.kind, seen.model, seen.classes) == ("segmentation", "net", ("road", "sky"))
        assert decode_map(seen.class_map).tobytes() == bytes(range(24))
        assert guessed == Prediction("classification", "timm x", (Guess("gull", 0.5),))
        assert others == [None, None], "it could not be read before either"
    with Workspace(tmp_path) as workspace:
        assert workspace.predictions.latest(SHA, "model 0") == seen
        assert not workspace._database.read(lambda db: db.table("readings").exists())


def test_a_kill_while_readings_become_predictions_leaves_them_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written_by(tmp_path, 3, [*FIRST_ROWS, *reading_rows()])

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("storage.evaluation.predictions.insert_row", stopped)
    with pytest.raises(KeyboardInterrupt), Workspace(tmp_path):
        pass
    monkeypatch.undo()
    held = sqlite_utils.Database(tmp_path / "studio.db")
    assert held.table("readings").count == 4 and held.table("predictions").count == 0
    held.close()
    test_opening_again_keeps_what_was_saved(tmp_path / "another")
    with Workspace(tmp_path) as workspace:
        assert workspace.predictions.latest(SHA, "model 1") is not None


def test_a_step_that_breaks_a_reference_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Foreign keys are off while the steps run, so they are checked at the end."""
    filled(tmp_path)
    before = schema(tmp_path / "studio.db")
    steps = sqlite_utils.Migrations("studio")
    for name in migrations.STEPS:
        steps(name=name)(getattr(migrations, name))

    @steps()
    def m999_broken(db: sqlite_utils.Database) -> None:
        db.execute("DROP TABLE runs")

    monkeypatch.setattr(migrations, "studio", steps)
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, "m999_broken"))
    with pytest.raises(RuntimeError, match="refers to nothing"):
        opened(tmp_path / "studio.db")
    monkeypatch.undo()
    assert schema(tmp_path / "studio.db") == before
    test_opening_again_keeps_what_was_saved(tmp_path / "another")


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
        {"stage": "two words"},
        {"author": "robot"},
        {"brought_back": 99},
    ):
        with pytest.raises(sqlite3.IntegrityError):
            database.write(lambda db, change=change: db.table("stage_values").insert({**row, **change}) and None)  # type: ignore[misc]
    database.close()
