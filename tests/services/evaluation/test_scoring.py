"""A validity score from the checks and votes of a workspace: its training data, its agreement, and its use."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.types import Caption, Check, StageValue, Task, TaskKind, Trace
from services.evaluation.facts import facts_of, json_text
from services.evaluation.scoring import Scored, agreement_words, score_images
from services.evaluation.service import EvaluationService
from storage.workspace import Workspace
from tests.services.evaluation.test_results import BIRDS, judged, read_all
from tests.support.cases import made_case
from tests.support.set_cases import CAPTION, picture

pytestmark = pytest.mark.slow

RUNS, OF_ONE = 50, 3
BIRD, STREET = Task("classification", "bird"), Task("segmentation", protected=("road",))


def drawn(
    workspace: Workspace, runs: int = RUNS, task: Task = BIRD, rises: bool = True, seed: int = 3
) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Add `runs` runs of test cases with a single check. Return the cases, the values of the check, and whether each
    is valid. Validity rises with the check, or falls without `rises`.
    """
    chance = np.random.default_rng(seed)
    cases: list[int] = []
    figures = chance.uniform(0, 1, (runs, OF_ONE))
    valid = (figures if rises else 1 - figures) + chance.normal(0, 0.25, figures.shape) > 0.5
    for run_number, own in enumerate(figures):
        run = workspace.runs.create(picture(seed * 10_000 + run_number), task, "demo", "A run", {})
        workspace.runs.append_value(run, "caption", StageValue(Caption("A red bird."), Trace("model"), "k"))
        made = [
            replace(
                made_case(picture(seed * 1_000 + run_number * OF_ONE + at), seed=at, counterfactual=CAPTION, task=task),
                checks=(Check("edges kept", True, float(value)), Check("label seen", None, note="cannot tell")),
            )
            for at, value in enumerate(own)
        ]
        cases += workspace.test_cases.extend(run, None, made)
    return cases, figures.ravel(), valid.ravel()


def score_of(workspace: Workspace, task: TaskKind = "classification") -> Scored | str:
    columns = workspace.case_columns
    return score_images(columns.table(), columns.checks(), columns.outcomes(), task)


def test_checks_are_read_as_columns(workspace: Workspace) -> None:
    cases, figures, _ = drawn(workspace, 4)
    table, checks = workspace.case_columns.table(), workspace.case_columns.checks()
    assert list(checks) == ["edges kept"], "a check without a figure is no column"
    entries, numbers = checks["edges kept"]
    assert dict(zip(table.test_case[table.rows_of(entries)].tolist(), numbers.tolist(), strict=True)) == pytest.approx(
        dict(zip(cases, figures.tolist(), strict=True))
    )


def test_a_score_is_held_against_votes_that_it_has_not_seen(workspace: Workspace) -> None:
    from sklearn.metrics import roc_auc_score

    cases, figures, valid = drawn(workspace)
    half = len(cases) // 2
    for part in (slice(None, half), slice(half, None)):  # two studies on different sources
        judged(workspace, {case: "yes" if ok else "no" for case, ok in zip(cases[part], valid[part], strict=True)})
    scored = score_of(workspace)
    assert isinstance(scored, Scored)
    table = workspace.case_columns.table()
    chance = dict(zip(table.test_case.tolist(), scored.chance.tolist(), strict=True))
    assert all(0 <= chance[case] <= 1 for case in cases)

    own = scored.view.own
    assert own.images == len(cases) and own.valid == valid.sum()
    assert own.auc.value == pytest.approx(roc_auc_score(valid, [chance[case] for case in cases]))
    assert own.auc.low is not None and own.auc.low > 0.75
    assert f"{len(cases)} judged images" in agreement_words(own)

    # With a single check that rises with validity, a score learned elsewhere gives the order of the check.
    assert [one.agreement.images for one in scored.view.shown] == [half, len(cases) - half]
    for one, part in zip(scored.view.shown, (slice(None, half), slice(half, None)), strict=True):
        assert one.agreement.auc.value == pytest.approx(roc_auc_score(valid[part], figures[part]))


def test_too_few_votes_teach_nothing_and_it_is_said(workspace: Workspace) -> None:
    cases, _, _ = drawn(workspace, 12)
    assert "found valid and 20 that they found invalid, and there are 0 and 0" in str(score_of(workspace))
    judged(workspace, {case: "yes" if place % 2 else "no" for place, case in enumerate(cases[:20])})
    assert "there are 10 and 10" in str(score_of(workspace))


def test_the_score_narrows_what_is_wrong_and_valid_and_is_among_the_facts(
    workspace: Workspace, service: EvaluationService
) -> None:
    cases, _, valid = drawn(workspace)
    judged(workspace, {case: "yes" if ok else "no" for case, ok in list(zip(cases, valid, strict=True))[::2]})
    read_all(service, BIRDS)
    evaluated = service.evaluate(BIRDS)
    validity, score = evaluated.validity, evaluated.score
    assert validity is not None and score is not None and score.shown == ()
    plain, helped = validity.by_strata, validity.with_score
    assert plain.value is not None and helped.value is not None and helped.why == ""
    assert helped.high is not None and helped.low is not None and plain.high is not None and plain.low is not None
    assert helped.high - helped.low < plain.high - plain.low, "the images that nobody judged say something too"
    truth = valid.mean()  # the model knows no class in these pictures: all valid images are wrong and valid
    assert helped.low <= truth <= helped.high
    assert not any("does not narrow the interval" in note for note in evaluated.notes)
    facts = json_text(facts_of(evaluated))
    assert '"validity_score"' in facts and "NaN" not in facts


def test_a_score_is_of_one_task_and_foretells_no_other(workspace: Workspace) -> None:
    """A check that rises with validity on birds falls with it on streets. A score for both would be wrong on each."""
    from sklearn.metrics import roc_auc_score

    birds, _, good = drawn(workspace)
    streets, _, fine = drawn(workspace, task=STREET, rises=False, seed=5)
    judged(workspace, {case: "yes" if ok else "no" for case, ok in zip(streets, fine, strict=True)})
    why = score_of(workspace)
    assert isinstance(why, str) and "for a classification" in why and "there are 0 and 0" in why
    learnt = score_of(workspace, "segmentation")
    assert isinstance(learnt, Scored) and learnt.learnt.task == "segmentation"
    assert learnt.view.own.images == len(streets)
    row = {case: at for at, case in enumerate(workspace.case_columns.table().test_case.tolist())}
    assert np.isnan(learnt.chance[[row[case] for case in birds]]).all(), "votes on streets say nothing of birds"
    assert not learnt.checked[[row[case] for case in birds]].any()

    judged(workspace, {case: "yes" if ok else "no" for case, ok in zip(birds, good, strict=True)})
    for task, cases, valid in (("classification", birds, good), ("segmentation", streets, fine)):
        of_task = score_of(workspace, task)  # type: ignore[arg-type]
        assert isinstance(of_task, Scored)
        chance = of_task.chance[[row[case] for case in cases]]
        assert roc_auc_score(valid, chance) > 0.8
        assert of_task.view.own.auc.value == pytest.approx(roc_auc_score(valid, chance))


def test_a_score_that_makes_nothing_surer_is_said_to(workspace: Workspace, service: EvaluationService) -> None:
    cases, _, _ = drawn(workspace)
    fate = np.random.default_rng(9)  # random votes, which no check predicts
    judged(workspace, {case: "yes" if fate.random() < 0.5 else "no" for case in cases[::2]})
    read_all(service, BIRDS)
    evaluated = service.evaluate(BIRDS)
    validity = evaluated.validity
    assert validity is not None and validity.by_strata.width is not None and validity.with_score.width is not None
    assert (
        f"The score of validity does not narrow the interval here: {100 * validity.with_score.width:.1f} points with "
        f"the score, and {100 * validity.by_strata.width:.1f} without."
    ) in evaluated.notes
