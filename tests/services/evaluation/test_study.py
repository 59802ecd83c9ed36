"""A study drafted for an evaluation: its sample, its expected precision, and its results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.errors import UserError
from core.studies import Item
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG
from services.evaluation.commands import OnModel
from services.evaluation.facts import file_of
from services.evaluation.service import EvaluationQuestion, EvaluationService
from services.studies.drafts import QUIZ, StudyDrafts
from services.studies.life_cycle import StartStudy, StudyLifeCycle
from storage.workspace import Workspace
from study.control_items import controls_wanted
from tests.services.evaluation.test_results import judged
from tests.support.evaluation_cases import (
    BIRDS,
    FEW,
    OBJECTS,
    ROADS,
    fill,
    read_all,
    scenes_that_are_read,
    service_of,
)
from tests.support.made_once import MadeOnce
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Iterator[Workspace]:
    with Workspace(scenes_that_are_read(made_once, tmp_path_factory.mktemp("drafted"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def service(workspace: Workspace) -> Iterator[EvaluationService]:
    made = service_of(workspace)
    yield made
    made.close()


def plain_items(workspace: Workspace, study: str) -> list[Item]:
    """Return the items that annotators judge, without control and quiz items."""
    return [item for item in workspace.studies.items(study) if item.kind == "item"]


@pytest.mark.parametrize("asked", [BIRDS, ROADS], ids=["classification", "segmentation"])
def test_a_drafted_study_can_start(workspace: Workspace, service: EvaluationService, asked: EvaluationQuestion) -> None:
    study = service.draft_study(asked, 40)
    drafted = workspace.studies.get(study)
    assert (drafted.items, drafted.quiz) == (40, QUIZ) and drafted.controls == controls_wanted(40, 0.1)
    life_cycle = StudyLifeCycle(workspace.studies, StudyDrafts(workspace, lambda run, model: None))
    life_cycle.do(StartStudy(study=study))
    assert workspace.studies.get(study).state == "running"


def test_a_draft_of_an_earlier_version_is_made_ready_by_its_start(
    workspace: Workspace, service: EvaluationService
) -> None:
    study = service.draft_study(BIRDS, 40)
    made = [item.id for item in workspace.studies.items(study) if item.kind != "item"]
    workspace.studies.remove_items(study, made)
    life_cycle = StudyLifeCycle(workspace.studies, StudyDrafts(workspace, lambda run, model: None))
    life_cycle.do(StartStudy(study=study))
    started = workspace.studies.get(study)
    assert started.state == "running" and started.controls + started.quiz == len(made)


def test_a_drafted_study_of_too_few_images_says_what_to_add(workspace: Workspace, service: EvaluationService) -> None:
    study = service.draft_study(BIRDS, 2)
    life_cycle = StudyLifeCycle(workspace.studies, StudyDrafts(workspace, lambda run, model: None))
    with pytest.raises(
        UserError, match=r"The quiz asks 5 questions, .* mark images whose answer you know, or ask fewer"
    ):
        life_cycle.do(StartStudy(study=study))


def test_the_sample_has_some_of_every_group_and_not_more_than_asked_for(service: EvaluationService) -> None:
    plan = service.study_plan(BIRDS, 40)
    assert plan.judged == 40 and sum(row.images for row in plan.rows) == len(service.cases(OBJECTS).generated)
    assert all(min(5, row.images) <= row.judged <= row.images for row in plan.rows)
    assert {row.stratum.partition(", ")[0] for row in plan.rows} == {"right", "wrong"}
    assert "40 images, drawn at random within" in plan.words
    few, all_of_them = service.study_plan(BIRDS, 30), service.study_plan(BIRDS, 5_000)
    assert 0 < all_of_them.width < plan.width < few.width < 1


def test_the_draft_has_the_sample_with_one_question_and_its_groups(
    workspace: Workspace, service: EvaluationService
) -> None:
    plan = service.study_plan(BIRDS, 40)
    study = workspace.studies.get(service.draft_study(BIRDS, 40))
    assert study.state == "draft" and [one.text for one in study.rules.questions] == [
        "Does the image still show a {label}?"
    ]
    items = plain_items(workspace, study.id)
    assert Counter(item.group for item in items) == {row.stratum: row.judged for row in plan.rows if row.judged}
    assert len({item.test_case for item in items}) == 40

    found = service.result(BIRDS)
    generated = found.cases.generated
    wrong = set(found.cases.table.test_case[generated.row[found.right == WRONG]].tolist())
    assert {item.test_case for item in items if str(item.group).startswith("wrong")} <= wrong
    assert all(item.test_case not in wrong for item in items if str(item.group).startswith("right"))
    assert all(item.label and item.source_sha for item in items)


def test_what_a_script_asks_is_a_draft_of_its_own(service: EvaluationService, workspace: Workspace) -> None:
    before = {study.id for study in workspace.studies.all()}
    study = service.draft_evaluation_study(OnModel(filter="kind=classification"), 10)["study"]
    assert (
        study not in before
        and workspace.studies.get(study).name == "Validity of Images of a filter (kind: classification)"
    )


def test_of_a_segmenter_images_are_asked_that_lose_a_class_and_that_do_not(
    workspace: Workspace, service: EvaluationService
) -> None:
    plan, found = service.study_plan(ROADS, 20), service.result(ROADS)
    assert plan.judged == 20 and not plan.not_asked
    assert sum(row.images for row in plan.rows) == (found.right != UNKNOWN).sum()
    assert {row.stratum.partition(", ")[0] for row in plan.rows} == {"loses no class", "loses a class"}
    assert "the share that loses a class and is valid will be known to about" in plan.words
    assert "are road, vehicle and pedestrian kept?" in plan.words and 0 < plan.width < 1

    study = workspace.studies.get(service.draft_study(ROADS, 20))
    assert [one.id for one in study.rules.questions] == ["road", "vehicles", "pedestrians"]
    items = plain_items(workspace, study.id)
    assert Counter(item.group for item in items) == {row.stratum: row.judged for row in plan.rows if row.judged}
    wrong = set(found.cases.table.test_case[found.cases.generated.row[found.right == WRONG]].tolist())
    for item in items:
        assert (item.test_case in wrong) == str(item.group).startswith("loses a class")
        assert item.model_right == (item.test_case not in wrong) and "road" in item.classes


def test_votes_say_how_many_images_that_lose_a_class_are_valid(tmp_path: Path, made_once: MadeOnce) -> None:
    with Workspace(scenes_that_are_read(made_once, tmp_path)) as workspace:
        service = service_of(workspace)
        before = service.evaluate(ROADS)
        assert before.validity is None and any(note.startswith("No study has judged") for note in before.notes)
        found = service.result(ROADS)
        case = found.cases.table.test_case[found.cases.generated.row]
        wrong, right = (case[found.right == standing].tolist() for standing in (WRONG, RIGHT))
        answers = {one: "yes" if place % 2 else "no" for place, one in enumerate(wrong)}
        judged(workspace, answers | dict.fromkeys(right[::2], "yes"))
        evaluated = service.evaluate(ROADS)
        validity, losses = evaluated.validity, evaluated.losses
        assert validity is not None and losses is not None and validity.judged == len(wrong) + len(right[::2])
        valid = sum(answer == "yes" for answer in answers.values())
        assert validity.as_measured.value == losses.generated.value
        assert validity.by_strata.value == pytest.approx(valid / losses.cases), "all are judged: nothing is guessed"
        assert f"{100 * valid / losses.cases:.1f} % of these test cases lose a class and are valid" in evaluated.answer
        text = file_of(service.evaluate(ROADS), "markdown").decode()
        assert "| loses a class and valid, by strata |" in text and "lose a class and are valid" in text
        service.close()


def test_no_study_is_drafted_where_no_question_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.evaluation_cases.PROTECTED_ROAD_CLASSES", ("sky", "building"))
    with workspace_in(tmp_path / "streets") as workspace:
        fill(workspace, 1, road=True, most=FEW)
        service = service_of(workspace)
        read_all(service, ROADS)
        with pytest.raises(UserError, match="No question template fits the classes of these images"):
            service.draft_study(ROADS)
        assert not workspace.studies.all()
        service.close()


def test_no_study_is_drafted_where_nothing_can_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.evaluation_cases.PROTECTED_ROAD_CLASSES", ("nothing that is there",))
    with workspace_in(tmp_path / "streets") as workspace:
        fill(workspace, 1, road=True, most=FEW)
        service = service_of(workspace)
        read_all(service, ROADS)
        evaluated = service.evaluate(ROADS)
        losses = evaluated.losses
        assert losses is not None and losses.generated.value is None and losses.left_out == 5
        assert any(note.startswith("On the originals of 5 test cases no protected") for note in evaluated.notes)
        assert "How often it loses a class cannot be told" in evaluated.answer
        with pytest.raises(UserError, match="there is nothing to judge"):
            service.draft_study(ROADS)
        service.close()
