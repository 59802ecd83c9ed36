"""A study that is drafted for an evaluation: its sample, what is expected of it, and what it then says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluation.effectiveness import WRONG
from pipeline.errors import UserError
from services.evaluation.service import DraftEvaluationStudy, EvaluationService
from services.evaluation.types import Asked, Subject
from storage.catalogue_types import CatalogueFilter
from storage.workspace import Workspace
from tests.evaluation_cases import fill, model_of
from tests.test_eval_results import BIRDS, OBJECTS, read_all, service_of

STREETS = Asked(Subject(wanted=CatalogueFilter(facets={"kind": ("segmentation",)})), model_of("segmentation"))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with Workspace(tmp_path_factory.mktemp("drafted")) as opened:
        fill(opened, 8)
        yield opened


@pytest.fixture(scope="module")
def service(workspace: Workspace) -> Iterator[EvaluationService]:
    made = service_of(workspace)
    read_all(made, BIRDS)
    yield made
    made.close()


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
    items = workspace.studies.items(study.id)
    assert Counter(item.group for item in items) == {row.stratum: row.judged for row in plan.rows if row.judged}
    assert len({item.test_case for item in items}) == 40

    found = service._figures(BIRDS)
    generated = found.cases.generated
    wrong = set(found.cases.table.test_case[generated.row[found.right == WRONG]].tolist())
    assert {item.test_case for item in items if str(item.group).startswith("wrong")} <= wrong
    assert all(item.test_case not in wrong for item in items if str(item.group).startswith("right"))
    assert all(item.label and item.source_sha for item in items)


def test_what_a_script_asks_is_a_draft_of_its_own(service: EvaluationService, workspace: Workspace) -> None:
    before = {study.id for study in workspace.studies.all()}
    sent = DraftEvaluationStudy(view="kind=classification", judged=10)
    study = service.draft_study(service.asked(sent), sent.judged)
    assert study not in before and workspace.studies.get(study).name == "Validity of Images of a filter"


def test_no_study_is_drafted_where_nothing_can_be_compared(tmp_path: Path) -> None:
    with Workspace(tmp_path / "streets") as workspace:
        fill(workspace, 2, road=True)
        service = service_of(workspace)
        read_all(service, STREETS)
        with pytest.raises(UserError, match="drafted for a classifier"):
            service.draft_study(STREETS)
        assert not workspace.studies.all()
        service.close()
