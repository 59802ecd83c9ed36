"""A study from its draft to its results by commands alone, without a page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from core.errors import UserError
from services.commands import Commands, Malformed
from services.studies.analyses import Analyses
from services.studies.annotation import AnnotationService, AnnotationStep
from services.studies.life_cycle import AddItems, NewCodes, StudyLifeCycle
from services.studies.services import StudyServices
from storage.workspace import Workspace
from tests.support.study_cases import MODEL, object_runs
from tests.support.workspaces import workspace_in


@dataclass
class Lead:
    """Services and commands of studies that a script can use."""

    workspace: Workspace
    analyses: Analyses
    life: StudyLifeCycle
    commands: Commands

    def send(self, name: str, **data: Any) -> Any:
        return self.commands.send(name, data)


@contextmanager
def leading(folder: Path) -> Iterator[Lead]:
    """Services of studies on a new workspace in `folder`, without images."""
    with workspace_in(folder) as workspace:
        commands = Commands()
        services = StudyServices(workspace, commands, lambda run, model: None)
        yield Lead(workspace, services.analyses, services.life_cycle, commands)


@pytest.fixture
def lead(tmp_path: Path) -> Iterator[Lead]:
    with leading(tmp_path / "workspace") as made:
        object_runs(made.workspace, 4, wrong=(1, 6, 14))
        yield made


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lead]:
    """Services for requests that are refused at once."""
    with leading(tmp_path_factory.mktemp("refusing") / "workspace") as made:
        yield made


def test_a_study_goes_from_draft_to_decision_without_a_page(lead: Lead) -> None:
    study = lead.send("create-study", title="Birds", template="classification")
    asked = {"filter": {"model": [f"{MODEL}:newly wrong", f"{MODEL}:wrong"]}, "count": 3}
    assert lead.send("describe-filter", study=study, **asked).free == 3
    drawn = lead.send("draw-items", study=study, **asked)
    assert f"3 that fitted ({MODEL}: newly wrong or wrong)" in drawn.words and not drawn.draft.unread
    form = {"votes": "2", "consensus": "2", "share": "0", "quiz": "0", "min_finished": "0", "min_approval": "0"}
    assert not lead.send("save-draft", study=study, form=form).problems
    lead.send("start-study", study=study)
    made = lead.send("make-codes", study=study, codes=2)
    assert isinstance(made, NewCodes) and len({new.code for new in made.codes}) == 2

    annotation = AnnotationService(lead.workspace.studies, lead.workspace.images.read).commands()
    for place, new in enumerate(made.codes):
        step: AnnotationStep = annotation.send("consent", {"worker": new.worker, "study": study})
        while step.assignment is not None:
            answer = "yes" if place == 0 else "no"
            sent = {"assignment": step.assignment.public, "answers": {"valid": answer}, "seconds": 4.0, "key": "k"}
            step = annotation.send("submit", {"worker": new.worker, **sent, "key": step.assignment.public[:20]})
        assert step.status == "done"

    cases = lead.analyses.of(study).report.disagreements
    assert len(cases) == 3 and {case.status for case in cases} == {"no consensus"}
    done = lead.send("adjudicate", study=study, item=cases[0].item, question="valid", answer="yes", reason="a beak")
    assert done.next is not None and done.next.item != cases[0].item
    lead.send("exclude-worker", study=study, worker=made.codes[1].worker, reason="in a hurry")
    assert lead.analyses.of(study).report.votes_excluded == 3
    lead.send("close-study", study=study)
    assert lead.workspace.studies.get(study).state == "closed"


def test_what_a_command_will_do_is_said_before_and_changes_nothing(lead: Lead) -> None:
    study = lead.send("create-study", title="Birds", template="classification")
    lead.send("draw-items", study=study, count="12")  # drawn from at least three sources: enough for the quiz
    lead.send("start-study", study=study)
    command = lead.commands.parse("add-items", {"study": study, "count": "4"})
    assert isinstance(command, AddItems)
    told = lead.life.before(command)
    assert told.title == "Add 4 images?" and not told.final
    assert lead.workspace.studies.get(study).items == 12


@pytest.mark.parametrize(
    ("name", "data", "field", "words"),
    [
        ("make-codes", {"codes": "many"}, "codes", "Give a whole number from 1 to 200."),
        ("make-codes", {}, "codes", "missing"),
        ("ask-for-votes", {"votes": 0, "consensus": 4}, "votes", "It has to be a whole number from 1 to 50."),
        ("draw-items", {"count": "0"}, "count", "It has to be a whole number from 1 to 20,000."),
        ("draw-items", {"how": "by hand"}, "how", "choose 'random', 'label' or 'edit type'"),
        ("exclude-worker", {"worker": "x", "reason": "y" * 501}, "reason", "at most 500 fit."),
        ("adjudicate", {"item": True, "question": "q", "answer": "a"}, "item", "has to be a whole number"),
        ("start-study", {"now": 1}, "now", "there is no such field here"),
    ],
)
def test_an_error_names_its_field_in_a_sentence(
    refusing: Lead, name: str, data: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(Malformed) as caught:
        refusing.send(name, study="0" * 16, **data)
    assert caught.value.field == field and words in str(caught.value)
    assert isinstance(caught.value, UserError) and str(caught.value).endswith(".")
