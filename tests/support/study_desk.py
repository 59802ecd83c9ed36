"""A workspace with a study for tests of its storage, without pages and without rules beyond the storage's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlite_utils
from PIL import Image

from core.stored_studies import Assignment
from core.studies import ControlPolicy, ItemKind, NewItem, Question, Rules
from storage.studies.studies import Studies
from storage.workspace import Workspace

YES: Mapping[str, str] = {"valid": "yes"}
VALID = Question("valid", "Does the image still show a {label}?", "yes-no", valid=("yes",))


def rules(**changes: Any) -> Rules:
    """Return rules of one question with two votes an item and a consensus of two."""
    fields: dict[str, Any] = {"questions": (VALID,), "votes": 2, "consensus": 2, "controls": ControlPolicy(share=0)}
    return Rules(**{**fields, **changes})


def picture(workspace: Workspace, shade: int = 0) -> str:
    """Store a picture of this shade, from 0 to 255. Return its hash."""
    return workspace.images.add(Image.new("L", (8, 8), shade))


def started(
    workspace: Workspace, items: int = 3, controls: int = 0, quiz: int = 0, training: int = 0, **changes: Any
) -> str:
    """Start a study. Return its id."""
    study_id = workspace.studies.create("Birds", rules(training=training, **changes))
    sha = picture(workspace)
    new = [NewItem(sha, label="bird", origin={"number": number}) for number in range(items)]
    kinds: dict[ItemKind, int] = {"control": controls, "quiz": quiz, "training": training}
    for kind, number in kinds.items():
        for shade in range(number):  # each has its own picture, since a worker gets no picture twice
            shown = picture(workspace, 1 + shade + {"control": 0, "quiz": 100, "training": 200, "item": 0}[kind])
            new.append(NewItem(shown, kind=kind, expected=YES, label="bird"))
    workspace.studies.add_items(study_id, new)
    workspace.studies.start(study_id)
    return study_id


def crew(studies: Studies, study_id: str, number: int) -> list[str]:
    """Add `number` new workers to a study."""
    names = [studies.workers.add()[0].id for _ in range(number)]
    for name in names:
        studies.workers.enrol(study_id, name)
    return names


def vote(studies: Studies, assignment: Assignment | None, answer: str = "yes", key: str = "key") -> Assignment:
    """Submit a vote on an assignment. Fails if it is None."""
    assert assignment is not None
    right = None if assignment.item.kind == "item" else answer == "yes"
    assert (
        studies.assignments.submit(assignment.public, assignment.worker, {"valid": answer}, "", 1.0, key, right)
        == "saved"
    )
    return assignment


def vote_all(studies: Studies, study_id: str, worker: str) -> list[int]:
    """Vote until no item is left for the worker. Return the ids of the items in order."""
    judged: list[int] = []
    while (assignment := studies.assignments.claim(study_id, worker, "item")) is not None:
        judged.append(vote(studies, assignment).item.id)
    return judged


def assert_counted(folder: Path) -> None:
    """Check that all counts equal those of the assignments, and that SQLite finds no fault in the file."""
    db = sqlite_utils.Database(folder / "studio.db")
    try:
        off = """
            SELECT id, leases, votes,
                (SELECT count(*) FROM assignments WHERE item = study_items.id AND state = 'leased' AND counts),
                (SELECT count(*) FROM assignments WHERE item = study_items.id AND state = 'submitted' AND counts)
            FROM study_items
        """
        for item, leases, votes, live, counted in db.execute(off).fetchall():
            assert (leases, votes) == (live, counted), item
        off = """
            SELECT study, worker, given, items_seen, controls_seen, controls_right, quiz_seen, quiz_right,
                training_seen, count(*), sum(kind = 'item' AND submitted),
                sum(kind = 'control' AND submitted AND was_right NOT NULL),
                sum(kind = 'control' AND submitted AND was_right IS 1),
                sum(kind = 'quiz' AND submitted AND was_right NOT NULL),
                sum(kind = 'quiz' AND submitted AND was_right IS 1),
                sum(kind = 'training' AND submitted)
            FROM enrolments JOIN (
                SELECT study, worker, kind, was_right, state = 'submitted' AS submitted FROM assignments
            ) USING (study, worker)
            GROUP BY study, worker
        """
        for row in db.execute(off).fetchall():
            assert row[2:9] == row[9:], row
        off = """
            SELECT workers.id, approved, rejected, pending,
                sum(verdict = 'approved'), sum(verdict = 'rejected'), sum(verdict = 'pending')
            FROM workers JOIN assignments ON worker = workers.id
            WHERE state = 'submitted' AND kind IN ('item', 'control', 'quiz') GROUP BY workers.id
        """
        for row in db.execute(off).fetchall():
            assert row[1:4] == row[4:], row
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        db.close()
