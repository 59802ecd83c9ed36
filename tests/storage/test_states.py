"""The columns of latest states: the triggers keep them equal to the state of all rows, after any changes in any
order.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
import sqlite_utils
from PIL import Image

from core.errors import UserError
from core.lineage import TestCase
from core.predictions import Guess, Prediction
from core.run_record import RunRecord
from core.stored_runs import JobState, Verdict
from core.stored_studies import VoteRefused
from core.types import Caption, ReviewDecision, StageValue, Task, Trace
from storage.damage import catalogue_faults
from storage.runs.runs import ImportedRun
from storage.workspace import DATABASE, Workspace
from study.results import analyse
from tests.support.cases import made_case
from tests.support.study_desk import crew, started, vote
from tests.support.workspaces import workspace_in

IMAGE = Image.new("RGB", (8, 8), (10, 20, 30))
ACCEPTED = ReviewDecision("accepted")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path) as opened:
        yield opened


def picture(shade: int) -> Image.Image:
    return Image.new("RGB", (8, 8), (shade, 20, 30))


def case(seed: int) -> TestCase:
    return made_case(picture(seed % 4), seed=seed)


SUMMARIES = """
    SELECT row_number() OVER (ORDER BY runs.rowid) AS number, runs.id AS run, state.id AS state,
        state.name || char(10) || json_extract(state.task, '$.label') AS search, state.removed,
        max(
            state.created,
            coalesce((SELECT max(created) FROM stage_values WHERE run = runs.id), ''),
            coalesce((SELECT max(created) FROM test_cases WHERE run = runs.id), '')
        ) AS changed,
        coalesce((
            SELECT group_concat(stage || ' ', '') FROM (
                SELECT stage, max(id) AS latest FROM stage_values WHERE run = runs.id GROUP BY stage ORDER BY min(id)
            ) WHERE (SELECT value FROM stage_values WHERE id = latest) <> 'null'
        ), '') AS stages,
        (SELECT count(*) FROM test_cases WHERE run = runs.id) AS test_cases,
        (
            SELECT count(*) FROM test_cases
            JOIN reviews ON reviews.id = (SELECT max(id) FROM reviews WHERE test_case = test_cases.id)
            WHERE run = runs.id AND verdict = 'accepted' AND test_cases.task = state.task
        ) AS accepted,
        (SELECT jobs.state FROM jobs WHERE run = runs.id ORDER BY id DESC LIMIT 1) AS job
    FROM runs JOIN run_states AS state ON state.id = (SELECT max(id) FROM run_states WHERE run = runs.id)
    ORDER BY runs.rowid
"""
CASE_STATES = """
    SELECT test_cases.id AS test_case, run, iif(coalesce(verdict, 'open') = 'open', '', verdict) AS verdict,
        reviews.id AS review
    FROM test_cases LEFT JOIN reviews ON reviews.id = (SELECT max(id) FROM reviews WHERE test_case = test_cases.id)
    ORDER BY test_cases.id
"""


def assert_counted_anew(workspace: Workspace) -> None:
    """Check that every table of states equals the states computed from all rows."""

    def compare(db: sqlite_utils.Database) -> None:
        for table, query in (("run_summaries", SUMMARIES), ("test_case_states", CASE_STATES)):
            expected = list(db.query(query))
            columns = ", ".join(expected[0]) if expected else "*"
            assert list(db.query(f"SELECT {columns} FROM {table} ORDER BY 1")) == expected

    workspace._database.read(compare)
    assert catalogue_faults(workspace.folder / DATABASE) == ()


@pytest.mark.slow
def test_states_follow_whatever_is_saved(workspace: Workspace) -> None:
    fate = random.Random(20)
    runs: list[str] = []
    cases: list[int] = []
    jobs: list[int] = []
    values: list[int] = []
    verdicts: tuple[Verdict, ...] = ("accepted", "rejected", "open")
    ends: tuple[JobState, ...] = ("done", "cancelled", "failed")

    def step() -> None:
        what, run = fate.randrange(13), fate.choice(runs) if runs else ""
        if what == 0 or not runs:
            label = fate.choice(("Möwe", "bird", "İğne"))
            runs.append(workspace.runs.create(IMAGE, Task("classification", label), "demo", f"Run {len(runs)}", {}))
        elif what == 1:
            workspace.runs.rename(run, fate.choice(("STRASSE", "Weg", "Gasse")))
        elif what == 2:
            workspace.runs.set_task(run, Task("segmentation", protected=("car",)))
        elif what == 3:
            fate.choice((workspace.runs.remove, workspace.runs.restore))(run)
        elif what in (4, 5):
            value: StageValue[Any] = StageValue(Caption(f"{fate.random()}"), Trace("model"), "k")
            values.append(workspace.runs.append_value(run, "caption", value))
        elif what == 6 and values:
            workspace.runs.bring_back(fate.choice(values))
        elif what in (7, 8):
            cases.append(workspace.test_cases.append(run, None, case(len(cases))))
        elif what == 9 and cases:
            workspace.test_cases.review(fate.choice(cases), fate.choice(verdicts), "")
        elif what == 10:
            sha = workspace.images.add(picture(fate.randrange(4)))
            guess = Guess(fate.choice(("Möwe", "MÖWE", "bird", "boat")), 0.5)
            top = (guess,) if fate.random() < 0.8 else ()
            workspace.predictions.append(sha, fate.choice(("one", "two")), Prediction("classification", "m", top))
        elif what == 11:
            workspace.runs.set_task(run, Task("classification", fate.choice(("Möwe", "boat"))))
        elif jobs and fate.random() < 0.5:
            workspace.jobs.finish(fate.choice(jobs), fate.choice(ends))
        else:
            jobs.append(workspace.jobs.start(run, 1))

    for number in range(600):
        step()
        if number % 40 == 0:
            assert_counted_anew(workspace)
    workspace.runs.duplicate(runs[0])
    assert_counted_anew(workspace)
    assert len(workspace.runs.search(1000)) == workspace.runs.count() > 5
    assert sum(run.accepted for run in workspace.runs.search(1000)) > 0
    entries = workspace.catalogue.page(limit=1000).entries
    assert {"right", "wrong", "cannot tell"} <= {standing for one in entries for standing in one.standings.values()}


def test_pages_of_the_list_meet_without_gap(workspace: Workspace) -> None:
    runs = [
        workspace.runs.create(IMAGE, Task("classification", "bird"), "demo", f"Run {number}", {}) for number in range(7)
    ]
    pages, after = [], ""
    while page := workspace.runs.search(3, find="run", after=after):
        pages.append([run.id for run in page])
        after = page[-1].id
    assert pages == [runs[:3:-1], runs[3:0:-1], runs[:1]]


@pytest.mark.parametrize("how", ["in one write", "alone"])
def test_a_write_that_is_undone_leaves_no_trace_in_the_states(
    workspace: Workspace, how: Literal["in one write", "alone"]
) -> None:
    run = workspace.runs.create(IMAGE, Task("classification", "bird"), "demo", "A bird", {})
    number = workspace.test_cases.append(run, None, case(1))

    def fail(db: sqlite_utils.Database) -> None:
        db.execute(
            "INSERT INTO reviews (test_case, verdict, reason, created) VALUES (?, 'accepted', '', '2099')", [number]
        )
        raise ZeroDivisionError

    if how == "alone":
        with pytest.raises(UserError):
            workspace.test_cases.review(999, "accepted")
    else:
        with pytest.raises(ZeroDivisionError):
            workspace._database.write(fail)
    assert workspace.runs.search()[0].accepted == 0
    assert_counted_anew(workspace)


def test_states_belong_to_rows_that_exist(workspace: Workspace) -> None:
    """Foreign keys are enforced again after the migrations."""
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        workspace._database.write(
            lambda db: db.execute("INSERT INTO test_case_states (test_case, run) VALUES (1, 'x')") and None
        )


def test_a_run_has_a_recipe(workspace: Workspace) -> None:
    task = Task("classification", "bird")
    plain = workspace.runs.create(IMAGE, task, "demo", "A bird", {})
    other = workspace.runs.create(IMAGE, task, "demo", "A bird", {}, recipe="reconstruction")
    assert [workspace.runs.get(run).recipe for run in (plain, other)] == ["dillema", "reconstruction"]
    workspace.runs.append_value(plain, "caption", StageValue(Caption("A bird."), Trace("model"), "k"))
    workspace.runs.set_recipe(plain, "one that comes later")
    held = workspace.runs.get(plain)
    assert (held.recipe, held.values["caption"].value.value.text) == ("one that comes later", "A bird.")
    assert workspace.runs.get(workspace.runs.duplicate(plain)).recipe == "one that comes later"
    with pytest.raises(UserError, match="no run"):
        workspace.runs.set_recipe("nowhere", "dillema")


def test_values_of_a_stage_that_is_not_known_here_hinder_nothing(workspace: Workspace) -> None:
    """For example the values of a recipe whose program is not installed now."""
    run = workspace.runs.create(IMAGE, Task("classification", "bird"), "demo", "A bird", {})
    workspace.runs.append_value(run, "caption", StageValue(Caption("A bird."), Trace("model"), "k"))
    insert = """
        INSERT INTO stage_values
        SELECT NULL, run, 'subject-box', '{"x": 1}', author, model, prompt, raw_reply, settings, seed,
             attempts, seconds, inputs_key, NULL, batch, notes, created FROM stage_values
    """
    workspace._database.write(lambda db: db.execute(insert) and None)
    assert list(workspace.runs.get(run).values) == ["caption"]
    assert workspace.runs.search()[0].stages == ("caption",)
    assert list(workspace.runs.get(workspace.runs.duplicate(run)).values) == ["caption"]
    workspace.steps.take(run, "undo", "value 2")
    workspace.steps.take(run, "redo", "value 2")
    assert list(workspace.runs.get(run).values) == ["caption"]


def test_a_method_may_make_what_artifacts_it_likes(workspace: Workspace) -> None:
    run = workspace.runs.create(IMAGE, Task("classification", "bird"), "demo", "A bird", {})
    mask = Image.new("L", (8, 8), 3)
    lineage = replace(case(1).lineage, recipe="another", method="inpainting")
    for artifacts in ({}, {"mask": mask, "reconstruction": IMAGE}):
        number = workspace.test_cases.append(run, None, TestCase(IMAGE, lineage, artifacts))
        held = workspace.test_cases.load(number)
        assert (held.lineage.recipe, held.lineage.method) == ("another", "inpainting")
        assert {name: image.tobytes() for name, image in held.artifacts.items()} == {
            name: image.tobytes() for name, image in artifacts.items()
        }


def test_the_outcome_of_an_item_follows_votes_decisions_and_the_state(workspace: Workspace) -> None:
    studies, study_id = workspace.studies, started(workspace, items=4, votes=2, consensus=2)
    first, second, third, fourth = (item.id for item in studies.items(study_id) if item.kind == "item")
    one, two, three = crew(studies, study_id, 3)

    def outcomes() -> list[str]:
        assert_counted_anew(workspace)
        query = "SELECT outcome FROM study_items WHERE kind = 'item' ORDER BY id"
        return [row["outcome"] for row in workspace._database.read(lambda db: list(db.query(query)))]

    def judge(worker: str, answers: dict[int, str]) -> None:
        while (given := studies.assignments.claim(study_id, worker, "item")) is not None:
            if given.item.id not in answers:
                break
            vote(studies, given, answers[given.item.id], key=f"{worker} {given.item.id}")
        studies.assignments.release(study_id, worker)

    every = (first, second, third, fourth)
    assert outcomes() == ["", "", "", ""]
    judge(one, dict(zip(every, ("yes", "no", "yes", "yes"), strict=True)))
    assert outcomes() == ["", "", "", ""]
    judge(two, dict(zip(every, ("yes", "no", "no", "yes"), strict=True)))
    assert outcomes() == ["valid", "invalid", "no consensus", "valid"]
    studies.adjudicate(study_id, third, "valid", "yes", "")
    assert outcomes() == ["valid", "invalid", "valid", "valid"]
    studies.adjudicate(study_id, third, "valid", "", "")
    studies.workers.exclude(study_id, two, "too fast", "person")
    assert outcomes() == ["", "", "", ""]
    judge(three, dict.fromkeys(every, "yes"))
    assert outcomes() == ["valid", "no consensus", "valid", "valid"]
    studies.set_votes(study_id, 3, 2)
    assert outcomes() == ["", "", "", ""]
    studies.close(study_id)
    assert outcomes() == ["too few votes"] * 4, "three were announced, and each has two"
    report = analyse(studies.data(study_id))
    assert (report.images.rate.n, report.images.short) == (0, 4)


@pytest.mark.slow
def test_outcomes_agree_with_the_report_whatever_happens(workspace: Workspace) -> None:
    """There is one rule for outcomes. This checks that the triggers apply it after every change."""
    fate = random.Random(7)
    studies, study_id = workspace.studies, started(workspace, items=6, votes=2, consensus=2)
    items = [item.id for item in studies.items(study_id) if item.kind == "item"]
    names = crew(studies, study_id, 5)
    for number in range(250):
        worker, chance = fate.choice(names), fate.random()
        with suppress(VoteRefused):
            if chance < 0.6:
                given = studies.assignments.claim(study_id, worker, "item")
                if given is not None:
                    answer = {"valid": fate.choice(("yes", "yes", "no"))}
                    studies.assignments.submit(given.public, worker, answer, "", 1.0, f"{number}")
            elif chance < 0.75:
                studies.assignments.undo(study_id, worker)
            elif chance < 0.8:
                studies.workers.exclude(study_id, worker, "why", "person")
            elif chance < 0.88:
                studies.workers.readmit(study_id, worker, "")
            else:
                studies.adjudicate(study_id, fate.choice(items), "valid", fate.choice(("yes", "no", "")), "")
        if number % 10 == 0:
            assert_counted_anew(workspace)
    assert_counted_anew(workspace)


def test_many_test_cases_are_saved_at_once_or_none(workspace: Workspace) -> None:
    run = workspace.runs.create(IMAGE, Task("classification", "bird"), "demo", "A bird", {})
    reviews = [ReviewDecision("accepted"), None, ReviewDecision("rejected", "blurred")]
    ids = workspace.test_cases.extend(run, None, (case(number) for number in range(3)), reviews)
    held = workspace.runs.get(run).test_cases
    assert [found.id for found in held] == list(ids)
    assert [found.review.verdict if found.review else "" for found in held] == ["accepted", "", "rejected"]
    assert [workspace.test_cases.load(found.id).image.tobytes() for found in held] == [
        picture(number).tobytes() for number in range(3)
    ]
    with pytest.raises(UserError, match="1001 characters"):
        too_long = [None, ReviewDecision("rejected", "x" * 1001)]
        workspace.test_cases.extend(run, None, [case(8), case(9)], too_long)
    with pytest.raises(ValueError):
        workspace.test_cases.extend(run, None, [case(8), case(9)], [None])
    assert len(workspace.runs.get(run).test_cases) == 3
    assert_counted_anew(workspace)


def test_many_runs_are_imported_at_once_or_none(workspace: Workspace) -> None:
    def imported(number: int, name: str = "From elsewhere") -> ImportedRun:
        record = RunRecord(f"{number:016x}", name, "demo", Task("classification", "bird"), {"steps": 4}, {})
        return ImportedRun(record, picture(number), cases=[case(number), case(number + 1)], reviews=[None, ACCEPTED])

    with pytest.raises(UserError, match="no name"):
        workspace.runs.import_runs([imported(1), imported(2, name=" ")])
    assert workspace.runs.count() == 0
    ids = workspace.runs.import_runs(imported(number) for number in range(1, 6))
    assert ids == tuple(f"{number:016x}" for number in range(1, 6))
    assert [(run.test_cases, run.accepted) for run in workspace.runs.search()] == [(2, 1)] * 5
    (again,) = workspace.runs.import_runs([imported(1)])
    assert again not in ids, "an id that is taken stays with its run"
    assert_counted_anew(workspace)
