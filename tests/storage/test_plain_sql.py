"""Another program adds rows to a workspace with plain SQLite and none of our functions. The studio shows the rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from PIL import Image

from core.image_filter import Facet, ImageFilter
from core.studies import NewItem
from core.types import Task
from storage.damage import catalogue_faults
from storage.workspace import DATABASE, Workspace
from tests.support.cases import made_case
from tests.support.study_desk import crew, rules, vote
from tests.support.workspaces import workspace_in

REVIEW = "INSERT INTO reviews (test_case, verdict, reason, created) VALUES (2, ?, '', ?)"
THEN = "2026-11-26T10:00:00.000000+00:00"


@contextmanager
def plain(folder: Path) -> Iterator[sqlite3.Connection]:
    """Connection of a program without the studio's functions. Changes are committed at the end."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        yield connection


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Closed workspace of a run with two images. One of them has one of two votes in a study."""
    with workspace_in(tmp_path) as workspace:
        run = workspace.runs.create(Image.new("RGB", (8, 8)), Task("classification", "bird"), "demo", "A bird", {})
        for shade in (1, 2):
            workspace.test_cases.append(run, None, made_case(Image.new("RGB", (8, 8), (shade, 0, 0)), seed=shade))
        case = workspace.test_cases.get(1)
        study = workspace.studies.create("Birds", rules())
        workspace.studies.add_items(study, [NewItem(case.image_sha, label="bird", test_case=1)])
        workspace.studies.start(study)
        one, two = crew(workspace.studies, study, 2)
        vote(workspace.studies, workspace.studies.assignments.claim(study, one, "item"))
        workspace.studies.assignments.claim(study, two, "item")
    return tmp_path


def found(workspace: Workspace, facet: Facet, value: str) -> set[int | None]:
    """Return the test cases with a value of a facet, found by the catalogue's sets."""
    return {one.test_case for one in workspace.catalogue.page(ImageFilter({facet: (value,)})).entries}


def test_rows_of_another_program_are_shown_after_the_next_opening(folder: Path) -> None:
    with plain(folder) as db:
        db.execute(
            "INSERT INTO run_states (run, name, task, settings, recipe, created) "
            "SELECT run, 'Große Möwe', json_set(task, '$.label', 'Möwe'), settings, recipe, ? FROM run_states",
            [THEN],
        )
        db.execute(
            "INSERT INTO reviews (test_case, verdict, reason, created) VALUES (2, 'rejected', 'dark', ?)", [THEN]
        )
        db.execute("INSERT INTO catalogue_tags (entry, tag, put, created) VALUES (1, 'a favourite', 1, ?)", [THEN])
        db.execute(
            "INSERT INTO predictions (image, model, kind, name, label, top, classes, created) "
            "SELECT image, 'a net', 'classification', 'A net', 'boat', '[]', '[]', ? FROM test_cases WHERE id = 1",
            [THEN],
        )
        db.execute(
            "INSERT INTO study_votes (assignment, event, answers, comment, seconds, created) "
            "SELECT id, 'submitted', '{\"valid\": \"yes\"}', '', 2.0, ? FROM assignments WHERE state = 'leased'",
            [THEN],
        )
        db.execute(
            "UPDATE assignments SET state = 'submitted', vote = last_insert_rowid(), first_vote = last_insert_rowid(), "
            "submitted = ? WHERE state = 'leased'",
            [THEN],
        )
    with Workspace(folder) as workspace:
        (run,) = workspace.runs.search(find="GROSSE MÖWE")
        assert (run.name, run.task.label) == ("Große Möwe", "Möwe")
        assert found(workspace, "review", "rejected") == {2} and found(workspace, "tag", "a favourite") == {1}
        assert workspace.catalogue.get(1).standings == {"a net": "wrong"}
        assert found(workspace, "study", "valid") == {1}, "both votes say so"
        assert workspace.catalogue.facets()["review"] == {"open": 1, "rejected": 1}
    assert catalogue_faults(folder / DATABASE) == ()


def test_an_open_studio_takes_rows_up_with_its_next_write(folder: Path) -> None:
    with Workspace(folder) as workspace:
        with plain(folder) as db:
            db.execute(
                "INSERT INTO reviews (test_case, verdict, reason, created) VALUES (2, 'accepted', '', ?)", [THEN]
            )
        assert workspace.test_cases.get(2).review is not None
        workspace.test_cases.review(1, "rejected")
        assert found(workspace, "review", "accepted") == {2} and found(workspace, "review", "rejected") == {1}


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE study_votes SET answers = '{}'", "study_votes is append-only"),
        ("DELETE FROM study_votes", "study_votes is append-only"),
        ("UPDATE reviews SET verdict = 'open'", "reviews is append-only"),
        ("DELETE FROM test_cases", "test_cases is append-only"),
        (
            "INSERT INTO study_votes (assignment, event, answers, comment, seconds, created) "
            "SELECT assignment, 'submitted', '[]', '', 1.0, created FROM study_votes LIMIT 1",
            "CHECK constraint failed: json_type",
        ),
        ("UPDATE studies SET votes = 1", "asks for no fewer votes later"),
        (
            "INSERT INTO assignments (public, image_token, study, worker, item, kind, side, number, state, accepted, "
            "expires) SELECT 'p', 'i', study, worker, item, 'item', side, 9, 'leased', accepted, expires "
            "FROM assignments LIMIT 1",
            "as many leases and votes as it gets",
        ),
    ],
)
def test_another_program_can_break_no_promise(folder: Path, statement: str, words: str) -> None:
    with plain(folder) as db:
        db.execute(REVIEW, ["rejected", THEN])
        with pytest.raises(sqlite3.IntegrityError, match=words):
            db.execute(statement)
