"""From one plan for several methods to a comparison: batches with their control sets, figures, and the images behind
each number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import cli.evaluation
from core.errors import UserError
from core.image_filter import ImageFilter
from pipeline.profiles.profile import load_profile
from services.batches.plan_file import BatchPlan, plans_of_methods, read_plan
from services.evaluation.commands import OnMethods
from services.evaluation.methods import methods_facts
from services.evaluation.service import EvaluationService, model_choice_key
from services.evaluation.types import EvaluationQuestion, Subject
from storage.workspace import Workspace
from tests.support.evaluation_cases import read_all
from tests.support.made_once import MadeOnce
from tests.support.method_cases import SOURCES, colours, made_by_methods, plan_in, question_on


@pytest.fixture(scope="module")
def workspace(made_once: MadeOnce, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with Workspace(made_by_methods(made_once, tmp_path_factory.mktemp("methods"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def service(workspace: Workspace) -> Iterator[EvaluationService]:
    opened = EvaluationService(load_profile("demo"), workspace, lambda _: None)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def question(workspace: Workspace, service: EvaluationService) -> EvaluationQuestion:
    asked = question_on(workspace, colours(workspace.folder.parent))
    read_all(service, asked)
    return asked


def test_one_plan_makes_a_batch_for_each_method_and_for_each_control_set(workspace: Workspace) -> None:
    named = [(one.name, one.recipe) for one in workspace.batches.all()][::-1]
    assert named == [
        ("Reds, DILLEMA from noise", "dillema"),
        ("Reds, DILLEMA from inverted", "dillema"),
        ("Reds, AGA", "aga"),
        ("Reds, control of DILLEMA from noise", "reconstruction"),
        ("Reds, control of DILLEMA from inverted", "reconstruction"),
    ]
    keys = [{one.item.key for one in workspace.batches.sources(batch.id)} for batch in workspace.batches.all()]
    assert all(one == keys[0] for one in keys) and len(keys[0]) == SOURCES


def test_the_methods_are_told_apart_and_each_has_its_own_control_set(
    service: EvaluationService, question: EvaluationQuestion
) -> None:
    cases = service.cases(question.subject)
    assert [one.key for one in cases.methods] == ["dillema:noise", "dillema:inverted", "aga"]
    assert len(cases.controls) == 2 * SOURCES and not len(cases.lacking), (
        "each source has one of each control set, and AGA has none"
    )
    found = service.methods(question)
    assert found.compared.names == ("DILLEMA from noise", "DILLEMA from the inverted source", "AGA")
    assert found.compared.sources == SOURCES and found.compared.lacking == (0, 0, 0)
    table = found.compared.tables[0]
    figures = {one.name: one for one in table.figures}
    snowy = [
        sum("snowy" in caption for caption in captions) / len(captions) for captions in _captions(service, question)
    ]
    for place in (0, 1):
        assert 0 < snowy[place] < 1
        assert figures["wrong"].values[place].value == pytest.approx(snowy[place]), "the model is wrong about snow"
        assert figures["excess"].values[place].value == pytest.approx(snowy[place]), "and right about each control"
    assert figures["excess"].values[2].why == "it has no control set"
    unlike, within = figures["valid"].differences[2], {one.edit_type: one for one in found.compared.tables}
    assert unlike is not None and unlike.why == "it makes edits of one type: compare within this type"
    assert within["background"].images[2] == table.images[2], "AGA changes backgrounds"
    assert all(one.minutes is not None and one.minutes > 0 for one in found.compared.costs)
    assert all(figures[name].values[2].value is None for name in ("valid", "failures a minute")), "AGA has other checks"
    assert any("No other method has a check of AGA" in note for note in found.compared.notes)
    for place in (0, 1):
        assert figures["valid"].values[place].value is not None, "the two starts have checks in common"
        assert figures["failures a minute"].values[place].value is not None


def _captions(service: EvaluationService, question: EvaluationQuestion) -> list[list[str]]:
    workspace, found = service._workspace, service.methods(question)
    return [
        [
            workspace.test_cases.get(case).lineage.counterfactual.text
            for case in workspace.catalogue.test_cases(found.entries(one.key))
        ]
        for one in found.compared.methods
    ]


def test_each_number_opens_its_images(service: EvaluationService, question: EvaluationQuestion) -> None:
    found = service.methods(question)
    table = found.compared.tables[0]
    for place, method in enumerate(found.compared.methods):
        assert len(found.entries(method.key)) == table.images[place]
        alone = Subject(filter=method.of(question.subject.filter))
        assert service.view(alone).cases == table.images[place], "a method is a side of any comparison"
    wrong = service._workspace.catalogue.test_cases(found.entries("dillema:noise", "wrong"))
    texts = [service._workspace.test_cases.get(case).lineage.counterfactual.text for case in wrong]
    assert texts and all("snowy" in text for text in texts)
    assert set(found.entries("aga", "wrong", "background")) == set(found.entries("aga", "wrong"))
    with pytest.raises(UserError, match="no longer has the opened figure"):
        found.entries("aga", "beauty")


def test_a_rejected_image_counts_as_invalid(service: EvaluationService, question: EvaluationQuestion) -> None:
    workspace, before = service._workspace, service.methods(question).compared.tables[0]
    entry, *_ = service.methods(question).entries("dillema:noise")
    (case,) = workspace.catalogue.test_cases([entry])
    workspace.test_cases.review(case, "accepted")
    assert entry in service.methods(question).entries("dillema:noise", "valid")
    workspace.test_cases.review(case, "rejected")
    found = service.methods(question)
    assert found.compared.tables[0].images == before.images, "it stays in the total"
    assert entry not in found.entries("dillema:noise", "valid") and entry in found.entries("dillema:noise")
    assert found.compared.costs[0].reviews == 1
    assert any(note.startswith("1 rejected image counts as invalid here.") for note in found.compared.notes)
    workspace.test_cases.review(case, "accepted")


def test_another_method_can_be_the_reference(service: EvaluationService, question: EvaluationQuestion) -> None:
    found = service.methods(question, "aga").compared
    assert found.reference == 2 and found.tables[0].figures[0].differences[2] is None
    with pytest.raises(UserError, match=r"No method 'lance' made these images. Choose one of: dillema:noise, dill"):
        service.methods(question, "lance")
    only = EvaluationQuestion(Subject(filter=ImageFilter(facets={"recipe": ("aga",)})), question.model)
    with pytest.raises(UserError, match="made by one method, AGA"):
        service.methods(only)


def test_command_line_and_endpoint_give_the_same_figures(
    service: EvaluationService, question: EvaluationQuestion, capsys: pytest.CaptureFixture[str]
) -> None:
    address, folder = question.subject.filter.address, str(service._workspace.folder)
    options = ["--filter", address, "--model", question.model.file, "--workspace", folder]
    for name in ("classes", "mean", "std"):
        options += ["--set", f"{name}={getattr(question.model, name)}"]
    assert cli.evaluation.main(["compare-methods", *options]) == 0
    text = capsys.readouterr().out
    assert "| | DILLEMA from noise | DILLEMA from the inverted source | AGA |" in text
    assert "AGA less DILLEMA from noise" in text and "valid failures per minute of model time" in text
    assert cli.evaluation.main(["compare-methods", *options, "--reference", "aga", "--json"]) == 0
    by_command = json.loads(capsys.readouterr().out)
    sent = OnMethods.of({"filter": address, "key": model_choice_key(question.model), "reference": "aga"})
    by_endpoint = json.loads(json.dumps(service.compare_methods(sent)))
    assert by_command == by_endpoint == json.loads(json.dumps(methods_facts(service.methods(question, "aga").compared)))


def test_a_drafted_study_has_images_of_each_method_that_do_not_name_it(
    service: EvaluationService, question: EvaluationQuestion
) -> None:
    study = service.draft_study(question, 60)
    items = [one for one in service._workspace.studies.items(study) if one.kind == "item"]
    groups = {one.group for one in items}
    for method in ("DILLEMA from noise", "DILLEMA from the inverted source", "AGA"):
        assert any(str(one).endswith(f", {method}") for one in groups), method
    for standing in ("right", "wrong"):
        assert any(str(one).startswith(f"{standing}, ") and str(one).endswith("from noise") for one in groups), standing


def refused(plan: BatchPlan, *methods: str) -> str:
    with pytest.raises(UserError) as error:
        plans_of_methods(plan, methods)
    return str(error.value)


def test_plans_of_methods_read_only_their_own_settings_and_refuse_what_no_method_reads(tmp_path: Path) -> None:
    plan = read_plan(plan_in(tmp_path, 1))
    made, controls = plans_of_methods(plan, ["dillema:noise", "dillema:inverted", "lance", "aga"])
    assert [one.make.settings for one in made] == [
        {"generation.steps": 1, "counterfactuals.captions": 4, "generation.start": "noise"},
        {"generation.steps": 1, "counterfactuals.captions": 4, "generation.start": "inverted"},
        {"generation.steps": 1},
        {"generation.steps": 1},
    ]
    assert [one.make.recipe for one in controls] == ["reconstruction", "reconstruction", "lance-reconstruction"]
    assert all(one.edits.captions_a_source is not None and one.edits.captions_a_source <= 4 for one in made)
    assert "There is no recipe 'dilema'" in refused(plan, "dilema")
    assert refused(plan, "dillema:snow") == "A drawing cannot start from 'snow': write noise or inverted."
    bare = plan.model_copy(update={"make": plan.make.model_copy(update={"settings": {}})})
    assert "does not read generation.start" in refused(bare, "lance:noise")
    assert "does not read counterfactuals.captions" in refused(plan, "lance")
