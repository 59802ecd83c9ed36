"""Votes of studies in an evaluation: workers who err together, control items, images without a consensus, and how
the judged images were chosen.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from core.image_filter import ImageFilter
from core.studies import ControlPolicy, NewItem
from evaluation.effectiveness import RIGHT, WRONG
from evaluation.report import validity_figures
from services.evaluation.facts import file_of
from services.evaluation.service import EvaluationService
from services.evaluation.study_votes import how_chosen
from services.studies.drafts import StudyDrafts
from services.studies.item_filter import ItemDraw
from storage.workspace import Workspace
from tests.services.evaluation.test_results import judged
from tests.support.evaluation_cases import BIRDS, scenes_that_are_read
from tests.support.made_once import MadeOnce
from tests.support.study_desk import crew, rules
from ui.evaluate.result import result_part
from ui.evaluate.words import Links

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path, made_once: MadeOnce) -> Iterator[Workspace]:
    with Workspace(scenes_that_are_read(made_once, tmp_path)) as opened:
        yield opened


def cases_of(service: EvaluationService) -> tuple[list[int], list[int]]:
    """Return the test cases that the model gets wrong, and those that it gets right."""
    found = service.result(BIRDS)
    case = found.cases.table.test_case[found.cases.generated.row]
    return case[found.right == WRONG].tolist(), case[found.right == RIGHT].tolist()


def judged_by_five(workspace: Workspace, truth: Mapping[int, bool], controls: int) -> str:
    """Create a study with `controls` control items, half of them valid. Two of five workers always say yes, and
    three vote the truth. Four equal votes are a consensus.
    """
    studies = workspace.studies
    policy = ControlPolicy(share=0.2 if controls else 0, min_seen=100)
    study = studies.create("Yes, yes", rules(votes=5, consensus=4, controls=policy))
    items = [NewItem(workspace.test_cases.get(case).image_sha, label="bird", test_case=case) for case in truth]
    valid = dict(zip(studies.add_items(study, items), truth.values(), strict=True))
    known = [
        NewItem(item.image_sha, kind="control", expected={"valid": "no" if place % 2 else "yes"}, label="bird")
        for place, item in enumerate(items[:controls])
    ]
    valid |= {item: place % 2 == 0 for place, item in enumerate(studies.add_items(study, known))}
    studies.note("items drawn", f"{len(items)} images drawn at random, from 140 that fitted, seed 1", study)
    studies.start(study)
    for number, worker in enumerate(crew(studies, study, 5)):
        for kind in ("control", "item"):
            while (claimed := studies.assignments.claim(study, worker, kind)) is not None:  # type: ignore[arg-type]
                answer = "yes" if number < 2 or valid[claimed.item.id] else "no"
                expected = claimed.item.expected.get("valid")
                right = None if expected is None else answer == expected
                said = {"valid": answer}
                studies.assignments.submit(claimed.public, worker, said, "", 1.0, claimed.public, right)
    return study


def test_workers_who_always_say_yes_do_not_make_faults_valid(workspace: Workspace, service: EvaluationService) -> None:
    """By consensus all judged images would be valid: two false yes votes leave every invalid image without a
    consensus.
    """
    wrong, right = cases_of(service)
    truth = {case: place % 2 == 0 for place, case in enumerate([*wrong, *right[:10]])}
    judged_by_five(workspace, truth, controls=8)
    evaluated = service.evaluate(BIRDS)
    validity = evaluated.validity
    assert validity is not None and validity.control_answers == 40 and not validity.chosen
    invalid = sum(not valid for valid in truth.values())
    assert (validity.judged, validity.discarded) == (len(truth) - invalid, invalid)
    assert validity.undecided.value == pytest.approx(invalid / len(truth))

    # Each source has ten test cases, so all have the same weight.
    true = sum(truth[case] for case in wrong) / 140
    figure, measured = validity.by_strata, validity.as_measured.value
    assert figure.value == pytest.approx(true, abs=0.02) and validity.as_measured.value == pytest.approx(
        len(wrong) / 140
    )
    assert measured is not None and figure.low is not None and figure.high is not None
    assert figure.low < true < figure.high < measured
    assert [validity.at_least.value, validity.at_most.value] == pytest.approx([true, measured], abs=0.001)

    answer = evaluated.answer
    assert f"{100 * (figure.value or 0):.1f} % of all test cases are wrong and valid (" in answer
    assert f"On {invalid} of these images ({100 * invalid / len(truth):.1f} %) people reached no consensus" in answer
    assert "Without control items" not in answer and "selected sample" not in answer
    page = result_part(evaluated, Links())
    assert page.count(f"{len(truth)} images judged") == 2
    rows = {row["figure"]: row for row in csv.DictReader(io.StringIO(file_of(evaluated, "csv").decode()))}
    plain = {row["figure"]: row for row in json.loads(file_of(evaluated, "json"))["figures"]}
    text = file_of(evaluated, "markdown").decode()
    for name, found in validity_figures(validity):
        assert name in text and name in page
        assert [rows[name]["value"], plain[name]["value"]] == [
            "" if found.value is None else repr(found.value),
            found.value,
        ]
        assert plain[name]["low"] == found.low and plain[name]["high"] == found.high


def test_without_control_items_the_answer_says_what_cannot_be_seen(
    workspace: Workspace, service: EvaluationService
) -> None:
    wrong, right = cases_of(service)
    judged(workspace, dict.fromkeys(wrong, "yes") | dict.fromkeys(right[::2], "yes"))
    answer = service.evaluate(BIRDS).answer
    assert "Without control items, errors that annotators share cannot be seen." in answer
    assert "a selected sample (“Birds”: how they were chosen is not recorded)" in answer
    assert "if the other images are like these" in answer


def test_a_study_of_accepted_images_alone_is_named_and_gives_bounds(
    workspace: Workspace, service: EvaluationService
) -> None:
    wrong, right = cases_of(service)
    accepted = [*wrong[::2], *right[::2]]
    for case in accepted:
        workspace.test_cases.review(case, "accepted")
    judged(workspace, dict.fromkeys(accepted, "yes"))
    evaluated = service.evaluate(BIRDS)
    validity = evaluated.validity
    assert validity is not None and validity.by_strata.value is None
    assert "all of them accepted" in validity.chosen and validity.by_strata.why == "no other image was judged"
    assert [validity.at_least.value, validity.at_most.value] == pytest.approx([len(wrong[::2]) / 140, len(wrong) / 140])
    low, high = validity.by_strata.low, validity.by_strata.high
    assert low is not None and high is not None
    ends = f"{100 * low:.1f} and {100 * high:.1f} %"
    assert f"By {len(accepted)} judged images, a selected sample (all of them accepted" in evaluated.answer
    assert f"between {ends} of all test cases are wrong and valid, as no other image was judged." in evaluated.answer
    assert f"between {ends}: no other image was judged" in file_of(evaluated, "markdown").decode()
    assert "No closer estimate: no other image was judged." in result_part(evaluated, Links())


def test_two_studies_that_contradict_each_other_give_no_figure(
    workspace: Workspace, service: EvaluationService
) -> None:
    wrong, right = cases_of(service)
    judged(workspace, dict.fromkeys([*wrong[:30], *right], "yes"))
    assert "are wrong and valid" in service.evaluate(BIRDS).answer
    judged(workspace, dict.fromkeys(wrong[30:], "no"))
    evaluated = service.evaluate(BIRDS)
    assert evaluated.validity is not None and "contradict each other" in evaluated.validity.by_strata.why
    assert "cannot be told: the studies “Birds”, with 0 of " in evaluated.answer
    assert "asked the same question?" in evaluated.answer and "are wrong and valid" not in evaluated.answer


def test_how_images_were_chosen_is_read_from_the_log(workspace: Workspace) -> None:
    """The log holds the exact words of the draw."""
    drafts = StudyDrafts(workspace, lambda run, model: None)
    study = workspace.studies.get(workspace.studies.create("Drawn", rules()))
    for chosen, ways in (
        (ItemDraw(count=10), ()),
        (ItemDraw(filter=ImageFilter(facets={"kind": ("classification",)}), count=10), ()),
        (ItemDraw(filter=ImageFilter(facets={"edit type": ("weather",)}), count=10), ("edit type: weather",)),
        (ItemDraw(how="label", count=10), ("equally of each class",)),
    ):
        _, words = drafts.drawn(study, chosen)
        assert how_chosen([("created", ""), ("items drawn", words)]) == ways, words
    assert how_chosen([("created", "")]) == ("how they were chosen is not recorded",)
    removed = [("items drawn", "9 images drawn at random, from 9 that fitted, seed 1"), ("items removed", "1 removed")]
    assert how_chosen(removed) == ("some taken out by hand",)


def test_the_plan_names_groups_without_a_judged_image_and_what_votes_cannot_do(service: EvaluationService) -> None:
    plan = service.study_plan(BIRDS, 4)
    assert plan.judged == 4, "never more than asked for"
    assert all(row.stratum.startswith("wrong") for row in plan.rows if row.judged)
    left = [row for row in plan.rows if not row.judged]
    assert f"none of {left[0].stratum} ({left[0].images})" in plan.words
    assert "More votes per image do not mend errors that annotators share" in plan.words
