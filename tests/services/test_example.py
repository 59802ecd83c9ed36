"""The example workspace with stand-ins for the models that write and draw: made, stopped, killed, resumed and
removed.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from core.errors import UserError
from core.image_filter import ImageFilter
from experiments.example import main
from services.evaluation.types import EvaluationQuestion, Subject
from services.studio import DRAWN_SCENES, Studio
from storage.damage import catalogue_faults
from storage.workspace import DATABASE
from tests.support.evaluation_cases import model_of
from tests.support.example_cases import SMALL, example_studio, made, removed
from tests.support.made_once import MadeOnce
from tests.support.scripted import parts_of, studio_in
from tests.support.server_process import ROOT
from tests.support.serving import until

pytestmark = pytest.mark.slow
CASES = 2 * SMALL.scenes * SMALL.captions
KILLED = """
import sys
from pathlib import Path
from tests.support.example_cases import example_studio
with example_studio(Path(sys.argv[1])) as studio:
    studio.example.make()
    studio.example.wait(600)
"""


@pytest.fixture
def example(made_once: MadeOnce, tmp_path: Path) -> Path:
    """Workspace with a whole example, for one test."""

    def make(folder: Path) -> None:
        with example_studio(folder / "workspace") as studio:
            made(studio)

    shutil.copytree(made_once("example", make) / "workspace", tmp_path / "workspace")
    return tmp_path / "workspace"


def guards(folder: Path) -> list[tuple[str, str]]:
    """Return all triggers of a workspace by name."""
    with closing(sqlite3.connect(folder / DATABASE)) as database:
        return database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name").fetchall()


def require_whole(studio: Studio) -> None:
    """Fail unless the example has each of its parts once."""
    workspace = studio.workspace
    assert [status.state for status in studio.batches.all()] == ["done"] * 2
    assert [len(held.versions) for held in workspace.test_sets.all()] == [1, 1]
    (study,) = workspace.studies.all()
    assert study.state == "closed" and study.votes == study.needed > 0
    drawn = [one for one in workspace.test_cases.candidates() if one.origin["recipe"] != "reconstruction"]
    assert len(drawn) == CASES
    assert {one.verdict for one in drawn} >= {"accepted", ""}
    view = studio.example.view()
    assert view.state == "made" and len(view.sets) == 2 and view.study == study.id
    for one in view.sets:
        subject = studio.evaluations.view(Subject(one.version))
        assert subject.kind is not None and subject.controls == subject.sources > 0 and not subject.problem
        found = studio.evaluations.evaluate(EvaluationQuestion(Subject(one.version), model_of(subject.kind)))
        assert (
            found.against_control
            and not studio.evaluations.pending(
                EvaluationQuestion(Subject(one.version), model_of(subject.kind))
            ).unreadable
        )
    assert catalogue_faults(workspace.folder / DATABASE) == ()


def test_the_example_has_each_part_and_says_that_its_votes_are_simulated(example: Path) -> None:
    with example_studio(example) as studio:
        require_whole(studio)
        (study,) = studio.workspace.studies.all()
        assert "simulated" in study.name and "no person" in study.rules.instructions
        things = next(one.version for one in studio.example.view().sets if "things" in one.title)
        found = studio.evaluations.evaluate(EvaluationQuestion(Subject(things), model_of("classification")))
        assert f"Images were judged in the study “{study.name}”." in found.notes
        workers = studio.workspace.studies.workers.of_study(study.id)
        assert workers and all("simulated" in worker.id for worker in workers)
        card = parts_of(studio, "")["start"]
        assert "remove-example" in card and "make-example" not in card
        assert f"version={studio.example.view().sets[0].version}" in card and study.id in card


def test_a_removed_example_leaves_nothing_in_sight(example: Path) -> None:
    before = guards(example)
    with example_studio(example) as studio:
        assert not removed(studio).kept
        workspace = studio.workspace
        assert not workspace.runs.count() and not studio.batches.all()
        assert not workspace.test_sets.all() and not workspace.studies.all()
        assert not studio.evaluations.gallery() and not workspace.catalogue.ids(ImageFilter())
        assert not [*(example / DRAWN_SCENES).iterdir()]
        assert workspace.images.orphans() == ()
        assert "make-example" in parts_of(studio, "")["start"]
        made(studio)  # a second example with its own runs
        require_whole(studio)
    assert guards(example) == before and catalogue_faults(example / DATABASE) == ()


def test_a_persons_own_work_stays_and_is_told(example: Path) -> None:
    with example_studio(example) as studio:
        workspace, view = studio.workspace, studio.example.view()
        own = studio.commands.send("run-from-sample", {"sample": studio.runs.samples[0].name}).run_id
        cases = [one for one in workspace.test_cases.candidates() if one.origin["recipe"] != "reconstruction"]
        by_run = list({one.run_id: one for one in cases}.values())
        in_set, decided, edited = by_run[:3]
        mine = studio.commands.send("create-test-set", {"title": "Mine"})["test_set"]
        studio.commands.send("add-to-test-set", {"test_set": mine, "cases": [in_set.test_case]})
        studio.commands.send("review", {"run": decided.run_id, "case": decided.test_case, "verdict": "accepted"})
        studio.commands.send("caption", {"run": edited.run_id, "text": "A red bird in the snow."})
        version = workspace.test_sets.version(view.sets[1].version)
        studio.commands.send("draft-test-set", {"version": version.id})
        item = next(one for one in workspace.studies.items(view.study) if one.kind == "item")
        question = workspace.studies.get(view.study).rules.questions[0].id
        workspace.studies.adjudicate(view.study, item.id, question, "yes", "I looked.")

        kept = removed(studio).kept
        assert "1 test set stays" in kept and version.set_name in kept and "study “Example" in kept
        assert "you changed its texts" in kept or "a study of yours" in kept
        assert {held.name for held in workspace.test_sets.all()} == {"Mine", version.set_name}
        assert workspace.studies.get(view.study).votes and not studio.batches.all()
        there = {one.run_id for one in workspace.test_cases.candidates()}
        assert {in_set.run_id, decided.run_id, edited.run_id} <= there
        assert not workspace.runs.get(own).removed and workspace.runs.get(edited.run_id).values["caption"]
        assert studio.commands.send("verify-test-set", {"version": version.id})["whole"]
        assert studio.example.view().state == "none"
    assert catalogue_faults(example / DATABASE) == ()


def test_a_removal_does_not_open_what_is_kept_for_good(example: Path) -> None:
    with example_studio(example) as studio:
        mine = studio.commands.send("create-test-set", {"title": "Mine"})["test_set"]
        cases = [one.test_case for one in studio.workspace.test_cases.candidates()][:1]
        studio.commands.send("add-to-test-set", {"test_set": mine, "cases": cases})
        studio.commands.send("release-test-set", {"test_set": mine, "unreviewed": True})
        removed(studio)
    with closing(sqlite3.connect(example / DATABASE)) as database, pytest.raises(sqlite3.IntegrityError):
        database.execute("DELETE FROM test_set_versions")


def test_an_example_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    with example_studio(tmp_path / "workspace") as studio:
        for step in ("test cases: drawn things", "test cases: drawn streets", "read the images: drawn streets"):
            studio.example.make()
            until(lambda step=step: step in studio.example.view().doing)  # type: ignore[misc]
            studio.example.stop()
            until(lambda: not studio.example.view().active)
            assert studio.example.view().state == "unfinished"
            assert "Go on" in parts_of(studio, "")["start"]
        made(studio)
        require_whole(studio)


def test_an_example_is_removed_while_it_is_made(tmp_path: Path) -> None:
    with example_studio(tmp_path / "workspace") as studio:
        studio.example.make()
        until(lambda: studio.example.view().step >= 1)
        studio.commands.send("remove-example", {})
        until(lambda: studio.example.view().state == "none")
        assert not studio.workspace.runs.count() and not studio.batches.all()


def test_an_example_whose_studio_was_killed_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], cwd=ROOT)

    def drawn() -> bool:
        assert process.poll() is None, "it ended before it was killed"
        with closing(sqlite3.connect(folder / DATABASE)) as database:
            return bool(database.execute("SELECT count(*) > 2 FROM test_cases").fetchone()[0])

    until(lambda: (folder / DATABASE).exists(), 240)
    until(lambda: _quietly(drawn), 240)
    process.kill()
    process.wait()
    with example_studio(folder) as studio:
        assert studio.example.view().state == "unfinished"
        made(studio)
        require_whole(studio)


def _quietly(true: object) -> bool:
    """Return the result of `true`, or False while the database has no tables."""
    try:
        return bool(true())  # type: ignore[operator]
    except sqlite3.OperationalError:
        return False


def test_the_command_removes_an_example_too_and_goes_on_with_none(
    example: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--workspace", str(example)]) == 0, "nothing is left to do"
    assert str(example) in capsys.readouterr().out
    for _ in range(2):  # the second removal finds no example and does nothing
        assert main(["--workspace", str(example), "--remove"]) == 0
        assert "The example is removed." in capsys.readouterr().out
    with example_studio(example) as studio:
        assert studio.example.view().state == "none" and not studio.workspace.studies.all()


def test_it_is_not_offered_where_its_models_are_not(tmp_path: Path) -> None:
    with studio_in(tmp_path, "fast") as studio:
        with pytest.raises(UserError, match="profile “demo”"):
            studio.commands.send("make-example", {})
        assert 'id="example"' not in parts_of(studio, "")["start"]
        assert studio.commands.send("show-example", {})["state"] == "none"
