"""Rejected images count in no figure of evaluation, ranking or retraining. Each states their number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.image_filter import ImageFilter
from core.test_sets import SetEntry
from services.evaluation.facts import facts_of, file_of
from services.evaluation.ranking import ranking_facts
from services.evaluation.retraining.jobs import Retrainings
from services.evaluation.subjects import read_cases
from services.evaluation.types import Cell, Subject
from storage.workspace import Workspace
from tests.services.evaluation.test_cases import ALL, set_of, shown
from tests.support.evaluation_cases import BIRDS, READ_OBJECTS, fill, scenes_that_are_read, service_of
from tests.support.made_once import MadeOnce
from tests.support.retrain_cases import QUICK, draft, planned, quiet
from tests.support.set_cases import run_of
from tests.support.workspaces import workspace_in

WHOLE = 10 * READ_OBJECTS
SAID = "2 rejected test cases count in no figure."


@pytest.mark.slow
def test_they_are_in_no_figure_order_or_training_and_every_one_of_these_says_so(
    tmp_path: Path, made_once: MadeOnce
) -> None:
    with Workspace(scenes_that_are_read(made_once, tmp_path)) as workspace:
        service = service_of(workspace)
        wrong = service.entries(BIRDS, Cell("wrong"))
        asked = Retrainings(workspace, service)
        plan = planned(workspace, service, QUICK)[1]
        measured = plan.arms[1].examples + sum(plan.sets.values(), ())
        rejected = wrong[:2]
        for case in workspace.catalogue.test_cases(rejected):
            workspace.test_cases.review(case, "rejected")

        found = service.evaluate(BIRDS)
        effect = found.effectiveness
        assert effect is not None and effect.cases == found.subject.cases == WHOLE - 2
        assert service.entries(BIRDS, Cell("wrong")) == wrong[2:]
        assert SAID in found.notes and SAID in facts_of(found)["notes"]
        assert f"- {SAID}" in file_of(found, "markdown").decode()
        assert not set(rejected) & {one for rows in found.edits.values() for row in rows for one in row.worst}

        ranking = service.rank(BIRDS, WHOLE)
        assert ranking.cases == ranking.known == len(ranking.first) == WHOLE - 2
        assert not set(rejected) & {one.entry for one in ranking.first}
        assert SAID in ranking_facts(ranking)["notes"]
        captions = service.rank_captions(BIRDS, ())
        assert captions.learnt == WHOLE - 2 and SAID in captions.notes

        plan = planned(workspace, service, QUICK)[1]
        left = plan.arms[1].examples + sum(plan.sets.values(), ())
        table = service.cases(BIRDS.subject).table
        shas = set(table.images.of(table.rows_of(np.array(rejected))))
        assert shas & {one.image.stem for one in measured}, "they would be learnt from, or measured with"
        assert not shas & {one.image.stem for one in left}
        assert SAID in asked.retrain(QUICK, quiet).notes
        asked.close()
        service.close()


def test_a_version_keeps_them_and_counts_them_no_more(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        first, *_ = run_of(workspace, 1, [10, 11], "bird")
        (second,) = run_of(workspace, 2, [20], "boat")
        version = set_of(workspace)
        assert shown(read_cases(workspace, Subject(version))) == (2, 3, 0, "")
        workspace.test_cases.review(first, "rejected")
        cases = read_cases(workspace, Subject(version))
        assert shown(cases) == (2, 2, 0, "")
        assert cases.left_out == ("1 rejected test case counts in no figure. The version still has it.",)
        boats = read_cases(workspace, Subject(version, ImageFilter.read("class=boat")))
        assert boats.left_out == (), "those that the filter leaves out are not told"
        workspace.test_cases.review(second, "rejected")
        alone = read_cases(workspace, Subject(version, ImageFilter.read("class=boat")))
        assert alone.view.problem == "It has rejected test cases alone, which count in no figure."


def test_of_a_split_only_its_own_are_told(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        first, _ = run_of(workspace, 1, [10, 11], "bird")
        run_of(workspace, 2, [20], "boat")
        version = set_of(workspace)
        entries = workspace.test_sets.entries(version)
        workspace.test_sets.set_splits(version, {one.image: "train" for one in entries if one.label == "boat"})
        workspace.test_cases.review(first, "rejected")
        assert read_cases(workspace, Subject(version, split="train")).left_out == ()
        assert len(read_cases(workspace, Subject(version, split="without a split")).left_out) == 1


@pytest.mark.slow
def test_rejected_reconstructions_are_told_too(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        fill(workspace, 2)
        cases = read_cases(workspace, ALL)
        workspace.test_cases.review(int(cases.table.test_case[cases.controls.row[0]]), "rejected")
        cases = read_cases(workspace, ALL)
        assert shown(cases) == (2, 20, 1, "")
        assert cases.left_out == ("1 rejected reconstruction counts in no figure.",)


@pytest.mark.slow
def test_a_natural_shift_is_without_them(tmp_path: Path, made_once: MadeOnce) -> None:
    with Workspace(scenes_that_are_read(made_once, tmp_path)) as workspace:
        service = service_of(workspace)
        trained = Retrainings(workspace, service)
        cases, plan, _ = planned(workspace, service, QUICK)
        at = {sha: place for place, sha in enumerate(cases.generated.shas)}
        measured = [one.image.stem for one in plan.sets["generated"]][:3]
        label = {sha: cases.labels[cases.generated.label[at[sha]]] for sha in measured}
        source = {sha: cases.originals.shas[cases.generated.source[at[sha]]] for sha in measured}
        number = draft(workspace, "Fog", [SetEntry(sha, source[sha], label[sha]) for sha in measured])
        row = cases.generated.row[at[measured[0]]]
        workspace.test_cases.review(int(cases.table.test_case[row]), "rejected")
        found = trained.retrain(replace(QUICK, shift=number), quiet)
        assert [one.images for one in found.sets if one.name == "natural shift"] == [2]
        assert "Of the natural shift, 1 image is left out: rejected by people." in found.notes
        trained.close()
        service.close()
