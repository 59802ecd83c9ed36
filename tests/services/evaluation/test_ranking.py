"""Review order of test cases: planted errors of the demo's classifier come first, and unknown cases are reported."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cli.evaluation import main
from core.errors import UserError
from core.types import Check
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG
from services.evaluation.commands import OnModel
from services.evaluation.ranking import Ranking, rank, ranking_facts
from services.evaluation.results import EvaluationResult
from services.evaluation.scoring import NOT_JUDGED, score_images
from services.evaluation.service import EvaluationService
from services.evaluation.types import EvaluationQuestion
from storage.curation.case_columns import Floats, Outcome
from storage.workspace import Workspace
from tests.services.evaluation.test_results import BIRDS, CLASSIFIER, OBJECTS, ROADS, read_all, service_of
from tests.support.cases import made_case
from tests.support.evaluation_cases import READ_OBJECTS, READ_STREETS, fill, scenes_that_are_read
from tests.support.made_once import MadeOnce
from tests.support.set_cases import picture, run_of
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Path:
    return scenes_that_are_read(made_once, tmp_path_factory.mktemp("ranked"))


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[EvaluationService]:
    """Service whose models have read all images. Tests save nothing."""
    with Workspace(folder) as workspace:
        made = service_of(workspace)
        yield made
        made.close()


def parts(service: EvaluationService) -> tuple[EvaluationResult, Floats, Floats, Floats]:
    """Return the figures, two measures of the model's doubt, and NaN for the missing check."""
    found, stored = service.result(BIRDS), service.predicting.stored(BIRDS.model)
    assert stored is not None
    unsure, gini = service._answers.doubts(stored, found.cases, found.cases.generated)
    return found, unsure, gini, np.full(len(unsure), np.nan)


def test_all_test_cases_are_in_the_order_once_and_faults_come_first(service: EvaluationService) -> None:
    found = service.result(BIRDS)
    ranking = service.rank(BIRDS, 1000)
    table, images = found.cases.table, found.cases.generated
    assert sorted(one.entry for one in ranking.first) == sorted(table.entry[images.row].tolist())
    assert (ranking.cases, ranking.known) == (10 * READ_OBJECTS, 10 * READ_OBJECTS)
    ours, random, entropy, gini = ranking.orders
    assert [one.name for one in ranking.orders] == ["ours", "random", "entropy", "DeepGini"]
    assert ours.apfd is not None and random.apfd is not None and entropy.apfd is not None and gini.apfd is not None
    assert ours.apfd > random.apfd and ours.faults[0.1] >= random.faults[0.1]

    # A fault is a combination of a label, the predicted class, and the edit.
    place = {int(entry): at for at, entry in enumerate(table.entry[images.row].tolist())}
    wrong = [one for one in ranking.first if found.right[place[one.entry]] == WRONG]
    assert ours.all_faults == len({(one.label, one.said, one.edits) for one in wrong}) > 5
    first = ranking.first[: ours.images[0.1]]
    new = {(one.label, one.said, one.edits) for one in first if found.right[place[one.entry]] == WRONG}
    assert len(new) == ours.faults[0.1]
    assert all(0 <= one.wrong <= 1 and one.valid == 1 for one in ranking.first)
    assert ranking.valid_from == "nothing" and ranking.notes[-1].startswith(NOT_JUDGED)
    assert ranking.first[:7] == service.rank(BIRDS, 7).first, "the same whenever it is asked"


def test_what_the_model_has_not_read_is_ranked_by_its_kin(service: EvaluationService) -> None:
    found, unsure, _, none = parts(service)
    right = found.right.copy()
    unread = found.cases.generated.source < READ_OBJECTS // 2
    right[unread] = UNKNOWN
    half = EvaluationResult(**{**vars(found), "right": right})
    doubt = np.where(unread, np.nan, unsure)
    ranking = rank(half, doubt, doubt, NOT_JUDGED, none, (), 1000)
    assert (ranking.cases, ranking.known) == (10 * READ_OBJECTS, 5 * READ_OBJECTS)
    assert ranking.notes[0].startswith(f"For {5 * READ_OBJECTS} test cases the model's answer is not known")
    chance = {one.entry: one.wrong for one in ranking.first}
    entries = found.cases.table.entry[found.cases.generated.row]
    of_unread = np.array([chance[int(entry)] for entry in entries[unread]])
    wrong = found.right[unread] == WRONG
    assert of_unread[wrong].mean() > of_unread[~wrong].mean(), "edits that break other sources break these"

    nothing = EvaluationResult(**{**vars(found), "right": np.full_like(right, UNKNOWN)})
    blind = rank(nothing, none, none, NOT_JUDGED, none, (), 3)
    assert not blind.orders and blind.notes[0] == (
        "The model has read none of these test cases: how good the order is cannot be told."
    )


def test_what_the_model_cannot_say_comes_last(service: EvaluationService) -> None:
    found, unsure, gini, none = parts(service)
    right, lost = found.right.copy(), found.cases.generated.label == found.cases.generated.label[0]
    right[lost] = UNKNOWN
    ranking = rank(EvaluationResult(**{**vars(found), "right": right}), unsure, gini, NOT_JUDGED, none, (), 1000)
    assert 0 < lost.sum() < len(lost) and ranking.known == (~lost).sum()
    label = found.cases.labels[found.cases.generated.label[0]]
    assert {one.label for one in ranking.first[ranking.known :]} == {label}
    assert ranking.notes[0] == f"{lost.sum()} test cases come last: the model has no class for the label."


def test_no_image_is_foretold_from_itself_or_its_kin(service: EvaluationService) -> None:
    found, unsure, gini, none = parts(service)
    right = found.right.copy()
    own = found.cases.generated.source == 0
    entries = found.cases.table.entry[found.cases.generated.row][own].tolist()

    def chances(changed: np.ndarray) -> list[float]:
        ranking = rank(EvaluationResult(**{**vars(found), "right": changed}), unsure, gini, NOT_JUDGED, none, (), 1000)
        return [next(one.wrong for one in ranking.first if one.entry == entry) for entry in entries]

    before = chances(right)
    right[own] = 1 - right[own]
    assert chances(right) == before


def test_images_that_people_find_invalid_come_last_and_are_no_faults(service: EvaluationService) -> None:
    found, unsure, gini, _ = parts(service)
    cases, chance = found.cases, np.random.default_rng(3)
    rows = cases.generated.row
    good = chance.random(len(unsure)) < 0.6
    kept = np.where(good, 0.8, 0.2) + chance.normal(0, 0.1, len(unsure))
    checks = {"edges kept": (cases.table.entry[rows], kept)}
    ids = cases.table.test_case[rows].tolist()
    said = ["valid" if fine else "invalid" for fine in good.tolist()]
    votes = [Outcome(one, outcome, "s", "A study") for one, outcome in zip(ids, said, strict=True)]

    def ranked(judged: list[Outcome]) -> Ranking:
        score = score_images(cases.table, checks, judged, cases.task) if judged else NOT_JUDGED
        return rank(found, unsure, gini, score, (kept > 0.5).astype(float), judged, 1000)

    learnt = ranked(votes[:100])
    assert learnt.valid_from == "votes" and "as learnt from the votes of studies" in learnt.notes[-1]
    valid = {one.entry: one.valid for one in learnt.first}
    of_all = np.array([valid[int(entry)] for entry in cases.table.entry[rows]])
    assert of_all[100:][good[100:]].mean() > 0.8 and of_all[100:][~good[100:]].mean() < 0.2, "also of those not judged"
    # A judgement by people outranks the prediction for that image.
    entries = cases.table.entry[rows][:100]
    invalid, fine = set(entries[~good[:100]].tolist()), set(entries[good[:100]].tolist())
    assert {one.entry for one in learnt.first[-len(invalid) :]} == invalid
    assert {valid[entry] for entry in invalid} == {0.0} and {valid[entry] for entry in fine} == {1.0}
    assert f"{len(invalid)} test cases come last: judged invalid by people." in learnt.notes
    assert learnt.known == len(unsure) - len(invalid), "no order is judged by images that votes put at its end"
    assert 0 < ranked(votes).orders[0].all_faults < ranked([]).orders[0].all_faults

    elsewhere = score_images(cases.table, checks, votes[:100], cases.task)
    unjudged = rank(found, unsure, gini, elsewhere, kept, (), 5)
    assert unjudged.notes[-1].endswith("None of these was judged: it was learnt from other images of a classification.")
    few = ranked(votes[:10])
    assert few.valid_from == "checks" and "that takes 20 images" in few.notes[-1]
    assert {one.valid for one in few.first} == {0.0, 1.0}, "the share of its checks that passed"


def test_a_model_whose_file_has_gone_is_said(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(Path(CLASSIFIER.file).read_bytes())
    with workspace_in(tmp_path / "workspace") as workspace:
        fill(workspace, 1)
        service = service_of(workspace)
        asked = EvaluationQuestion(OBJECTS, CLASSIFIER.model_copy(update={"file": str(file)}))
        read_all(service, asked)
        assert service.rank(asked, 3).first
        file.unlink()
        with pytest.raises(UserError, match="This model is not loaded"):
            service.rank(asked, 3)
        service.close()


def test_the_share_of_checks_is_that_of_those_that_could_tell(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        run_of(workspace, 1, [10])
        (case,) = [workspace.test_cases.get(one) for one in workspace.catalogue.test_cases(workspace.catalogue.ids())]
        told = (Check("edges kept", True, 0.75), Check("label seen", False, -0.2), Check("mask kept", None))
        shown = replace(made_case(picture(11), task=case.task), checks=told)
        workspace.test_cases.append(case.run_id, None, shown)
        found = workspace.case_columns.passed(workspace.case_columns.table().entry)
    assert np.isnan(found[0]) and found[1] == 0.5


def test_by_script_and_from_the_command_line(
    folder: Path, service: EvaluationService, capsys: pytest.CaptureFixture[str]
) -> None:
    told = service.rank_test_cases(OnModel(filter="kind=classification"), 5)
    arguments = ["rank", "--filter", "kind=classification", "--workspace", str(folder), "--most", "5"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(told)) and len(told["first"]) == 5
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("# In which order to look at Images of a filter") and "| DeepGini |" in text
    assert text.count("\n| 5 |") == 1 and "\n| 6 |" not in text
    with pytest.raises(SystemExit):
        main([*arguments[:-1], "0"])
    assert "say a number from 1 to 5,000" in capsys.readouterr().err


def test_of_a_segmenter_a_fault_is_the_class_that_is_lost_and_the_edit(service: EvaluationService) -> None:
    found = service.result(ROADS)
    ranking = service.rank(ROADS, 1000)
    table, images = found.cases.table, found.cases.generated
    assert sorted(one.entry for one in ranking.first) == sorted(table.entry[images.row].tolist())
    known = int((found.right != UNKNOWN).sum())
    assert (ranking.kind, ranking.cases, ranking.known) == ("segmentation", 10 * READ_STREETS, known)
    ours, random, entropy, gini = ranking.orders
    assert (entropy.name, gini.name) == ("entropy", "DeepGini")
    assert ours.apfd is not None and random.apfd is not None and ours.apfd > random.apfd
    assert entropy.apfd is not None and gini.apfd is not None and ours.apfd >= max(entropy.apfd, gini.apfd)

    place = {int(entry): at for at, entry in enumerate(table.entry[images.row].tolist())}
    wrong = [one for one in ranking.first if found.right[place[one.entry]] == WRONG]
    assert {one.said for one in wrong} <= {"road", "pavement", "lane marking", "vehicle", "pedestrian"}
    assert all(bool(one.said) == (one in wrong) and not one.label for one in ranking.first)
    standing = {RIGHT: True, WRONG: False, UNKNOWN: None}
    assert all(one.right == standing[int(found.right[place[one.entry]])] for one in ranking.first)
    assert ours.all_faults == len({(one.said, one.edits) for one in wrong}) > 5
    first = ranking.first[: ours.images[0.1]]
    assert ours.faults[0.1] == len({(one.said, one.edits) for one in first if one in wrong})
    # Test cases that cannot lose a class come last.
    last = [one.entry for one in ranking.first[known:]]
    assert all(found.right[place[entry]] == UNKNOWN for entry in last)
    said = [note for note in ranking.notes if "last: the model finds no protected class on the original" in note]
    assert bool(said) == bool(last)


def test_where_a_segmenter_does_not_tell_how_unsure_it_is_that_is_said(service: EvaluationService) -> None:
    found, stored = service.result(ROADS), service.predicting.stored(ROADS.model)
    assert stored is not None
    unsure, gini = service._answers.doubts(stored, found.cases, found.cases.generated)
    none = np.full(len(unsure), np.nan)
    never = rank(found, None, None, NOT_JUDGED, none, (), 1000)
    assert [one.name for one in never.orders] == ["ours", "random"]
    assert never.notes[-1].startswith("The model's uncertainty on each image is not known")
    unsure[::2] = gini[::2] = np.nan
    half = rank(found, unsure, gini, NOT_JUDGED, none, (), 1000)
    assert half.known == never.known and len(half.orders) == 4, "what it says of them is known"
    assert half.notes[-1].startswith(f"For {len(unsure[::2])} test cases it is not known how unsure the model is")
    assert sorted(one.entry for one in half.first) == sorted(one.entry for one in never.first)
    assert not any("how unsure" in note for note in service.rank(ROADS, 5).notes)


def test_half_of_a_segmenters_test_cases_are_ranked_alone(service: EvaluationService) -> None:
    found = service.result(ROADS)
    some = np.flatnonzero(found.cases.generated.source < READ_STREETS // 2)
    entries = found.cases.table.entry[found.cases.generated.row[some]]
    order = service.ranked(ROADS, entries, ())
    assert sorted(order) == sorted(entries.tolist()) and order == service.ranked(ROADS, entries, ())
    wrong = dict(zip(entries.tolist(), (found.right[some] == WRONG).tolist(), strict=True))
    half = len(order) // 2
    assert sum(wrong[one] for one in order[:half]) > sum(wrong[one] for one in order[half:])


def test_a_segmenters_order_is_told_by_script_and_command_line(
    folder: Path, service: EvaluationService, capsys: pytest.CaptureFixture[str]
) -> None:
    told = ranking_facts(service.rank(ROADS, 5))
    arguments = ["rank", "--filter", "kind=segmentation", "--workspace", str(folder), "--most", "5"]
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(told)) and len(told["first"]) == 5
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "| random |" in text and "| DeepGini |" in text and "| loses a class |" in text
    assert main(["sensitivity", *arguments[1:-2]]) == 0
    text = capsys.readouterr().out
    assert "The change of the share of right pixels, against reconstructions" in text and "## By edit type" in text
    row = next(one.row for one in service.evaluate(ROADS).edits["edit type"] if one.row.name == "weather")
    assert f"| weather | {row.n} | {row.change.value:+.2f} (" in text
    assert main(["effectiveness", "--latex", *arguments[1:-2]]) == 0
    losses = service.evaluate(ROADS).losses
    assert losses is not None and losses.generated.value is not None
    assert f"& {100 * losses.generated.value:.2f} [" in capsys.readouterr().out
