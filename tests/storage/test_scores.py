"""Validity scores in the catalogue: saved run by run, and filtered, counted and ordered like a search of every
image.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.catalogue import CatalogueEntry, Order
from core.errors import UserError
from core.figures import Figure, percent
from core.image_filter import ImageFilter, ScoreBand
from core.types import Check, Task, TaskKind
from core.validity_score import Agreement, ValidityScore
from services.curation.views import View
from services.evaluation.scoring import score_workspace
from services.studio import Studio
from storage.curation.scores import NewScores
from storage.damage import catalogue_faults
from storage.workspace import DATABASE, Workspace
from tests.services.evaluation.test_results import judged
from tests.services.evaluation.test_scoring import drawn
from tests.storage.test_catalogue import Busy, everything
from tests.support.cases import made_case
from tests.support.set_cases import picture, run_of
from tests.support.workspaces import workspace_in
from ui.curate.filters import filter_column

LEARNT = ValidityScore(("edges kept",), (0.5,), (0.5,), (1.0,), (2.0, 0.0), 0.1)
AGREEMENT = Agreement(40, 20, Figure(0.8, 0.7, 0.9, 40, 10), ((0.5, 0.5, 40),), 0.5, 0.75, None)
EDGES = (0.0, 0.02, 0.3, 0.5, float(np.nextafter(np.float32(0.5), np.float32(0))), 0.98, 1.0)
"""Scores at the ends of bins, where a range must be exact."""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened
        assert catalogue_faults(opened.folder / DATABASE) == ()


def new(scores: dict[int, float], name: str = "Birds", task: TaskKind | None = "classification") -> NewScores:
    """Return scores by entry for saving."""
    entries, learnt = np.array(sorted(scores), np.int64), replace(LEARNT, task=task)
    return NewScores({"s": name}, learnt, AGREEMENT, entries, np.array([scores[one] for one in sorted(scores)]))


def score_some(busy: Busy, every: int) -> dict[int, float]:
    """Score all images except each one whose entry is a multiple of `every`. Return the scores by entry."""
    fate = random.Random(every)
    entries = [entry.id for entry in everything(busy.workspace) if entry.id % every]
    scores = {one: fate.choice((*EDGES, fate.random())) for one in entries}
    busy.workspace.scores.save(new(scores))
    return {one: float(np.float32(score)) for one, score in scores.items()}


@pytest.mark.slow
def test_scores_are_found_counted_and_ordered_as_a_look_at_every_image_says(workspace: Workspace) -> None:
    busy, catalogue = Busy(workspace, 4), workspace.catalogue
    for _ in range(150):
        busy.step()
    score_some(busy, 2)
    scores = score_some(busy, 3)  # replaces the scores above
    for _ in range(60):  # runs come and go, verdicts change, and new images have no score
        busy.step()
    assert catalogue_faults(workspace.folder / DATABASE) == ()
    whole = everything(workspace)
    assert {one.id: one.score for one in whole if one.score is not None} == {
        one.id: scores[one.id] for one in whole if one.id in scores
    }

    def fitting(band: ScoreBand | None) -> set[int]:
        if band is None:
            return {one.id for one in whole if one.score is None}
        low, high = (-1.0 if band.low is None else band.low), (2.0 if band.high is None else band.high)
        return {one.id for one in whole if one.score is not None and low <= one.score < high}

    ends = (None, 0.0, 0.02, 0.3, 0.31, 0.5, 0.98, 1.0)
    bands = [None, *(ScoreBand(low, high) for low in ends for high in ends)]
    for band in bands:
        wanted = ImageFilter(scores=(band,))
        assert set(catalogue.ids(wanted)) == fitting(band), band
    both = ImageFilter(scores=(None, ScoreBand(None, 0.3)), facets={"kind": ("classification",)})
    of_kind = {one.id for one in whole if one.kind == "classification"}
    assert set(catalogue.ids(both)) == (fitting(None) | fitting(ScoreBand(None, 0.3))) & of_kind

    for half in (0.0, 0.5, 1.0):
        told = catalogue.scores(both, half)
        plain = [one.score for one in whole if one.kind == "classification"]
        figures = [score for score in plain if score is not None]
        counts = sum(score >= half for score in figures), sum(score < half for score in figures), plain.count(None)
        assert (told.at_least, told.below, told.not_scored) == counts
        assert sum(bar.entries for bar in told.bars) == len(figures)

    for falling in (False, True):
        expected = sorted(whole, key=lambda one: _place(one, falling))
        pages = catalogue.page(order=Order("score", "", falling), limit=10_000).entries
        assert [one.id for one in pages] == [one.id for one in expected]
        at = [catalogue.page(order=Order("score", "", falling), limit=1, at=place).entries[0].id for place in (0, 40)]
        assert at == [expected[0].id, expected[40].id]


def _place(one: CatalogueEntry, falling: bool) -> tuple[bool, float, int]:
    """Sort key: entries with a score come first, then the newest."""
    if one.score is None:
        return True, 0.0, -one.id
    return False, -one.score if falling else one.score, -one.id if falling else one.id


def test_each_run_is_kept_and_the_latest_counts(workspace: Workspace) -> None:
    run_of(workspace, 1, [10, 11])
    assert workspace.scores.latest() == ()
    first = workspace.scores.save(new({1: 0.25}, "The first"))
    second = workspace.scores.save(new({2: 0.75}, "The second"))
    (latest,) = workspace.scores.latest()
    assert latest.id == second and latest.images == 1 and latest.task == "classification"
    assert latest.agreement == AGREEMENT and latest.checks == ("edges kept",)
    assert workspace.scores.get(first).studies == {"s": "The first"}
    with pytest.raises(UserError, match="no scoring run with the number 9"):
        workspace.scores.get(9)
    assert [one.score for one in sorted(everything(workspace), key=lambda one: one.id)[:2]] == [None, 0.75]


def test_each_task_has_its_scores_and_keeps_them(workspace: Workspace) -> None:
    run_of(workspace, 1, [10, 11, 12, 13])

    def shown() -> list[float | None]:
        return [one.score for one in sorted(everything(workspace), key=lambda one: one.id)[:4]]

    workspace.scores.save(new({1: 0.25, 3: 0.5}, "Of all tasks", None))
    assert shown() == [0.25, None, 0.5, None] and [one.task for one in workspace.scores.latest()] == [None]
    workspace.scores.save(new({4: 0.75}, "Streets", "segmentation"))
    assert shown() == [None, None, None, 0.75], "what was learnt from all tasks together counts no more"
    workspace.scores.save(new({1: 0.125, 2: 0.5}))
    assert shown() == [0.125, 0.5, None, 0.75]
    workspace.scores.save(new({2: 0.25}))
    assert shown() == [None, 0.25, None, 0.75]
    assert [(one.task, one.id) for one in workspace.scores.latest()] == [("classification", 4), ("segmentation", 2)]
    assert set(workspace.catalogue.ids(ImageFilter(scores=(ScoreBand(),)))) == {2, 4}


@pytest.mark.parametrize("wrong", [float("nan"), -0.1, 1.1, None])
def test_what_is_no_score_is_refused_and_changes_nothing(workspace: Workspace, wrong: float | None) -> None:
    run_of(workspace, 1, [10, 11])
    workspace.scores.save(new({1: 0.25}))
    with pytest.raises(ValueError, match="from 0 to 1"):
        workspace.scores.save(new({2: wrong} if wrong is not None else {}))
    (latest,) = workspace.scores.latest()
    assert latest.id == 1
    assert workspace.catalogue.ids(ImageFilter(scores=(ScoreBand(),))) == (1,)


@pytest.mark.slow
def test_all_images_with_figures_are_scored_by_votes_and_the_others_are_not(workspace: Workspace) -> None:
    cases, figures, valid = drawn(workspace)
    half = len(cases) // 2
    with pytest.raises(UserError, match="no study has judged an image"):
        score_workspace(workspace)
    judged(workspace, {case: "yes" if ok else "no" for case, ok in list(zip(cases, valid, strict=True))[:half]})
    run = workspace.runs.create(picture(99_999), Task("classification", "bird"), "demo", "No figures", {})
    untold = replace(made_case(picture(99_001)), checks=(Check("label seen", None, note="cannot tell"),))
    workspace.test_cases.extend(run, None, [replace(made_case(picture(99_000)), checks=()), untold])
    (made,) = score_workspace(workspace).runs
    assert made.images == len(cases) and list(made.studies.values()) == ["Birds"]
    assert made.agreement.images == half and made.agreement.auc.value is not None and made.agreement.auc.value > 0.75
    by_case = {one.test_case: one.score for one in everything(workspace)}
    assert sum(score is None for score in by_case.values()) == 2, "what has no figure is not scored, and not 0"
    told = np.array([by_case[case] for case in cases[half:]], float)
    assert np.array_equal(np.argsort(told), np.argsort(figures[half:])), "one check, which rises with validity"


def test_nothing_learnt_leaves_the_scores_that_there_are(workspace: Workspace) -> None:
    cases, _, _ = drawn(workspace, 12)
    workspace.scores.save(new({1: 0.25}))
    judged(workspace, {case: "yes" if place % 2 else "no" for place, case in enumerate(cases[:20])})
    with pytest.raises(UserError, match="there are 10 and 10"):
        score_workspace(workspace)
    (latest,) = workspace.scores.latest()
    assert latest.id == 1


@pytest.mark.slow
def test_a_view_and_a_script_filter_by_the_score(studio: Studio) -> None:
    workspace = studio.workspace
    cases, _, valid = drawn(workspace)
    judged(workspace, {case: "yes" if ok else "no" for case, ok in list(zip(cases, valid, strict=True))[::2]})
    assert studio.commands.send("count-test-cases", {})["scores"] is None
    told = studio.commands.send("score-images", {})
    (of_birds,) = told["scores"]
    assert told["images"] == of_birds["images"] == len(cases) and told["notes"] == []
    assert of_birds["low"] <= of_birds["auc"] <= of_birds["high"] and of_birds["threshold"] == 0.5
    assert of_birds["judged"] == len(cases) // 2 and of_birds["studies"][0]["title"] == "Birds"
    assert of_birds["task"] == "classification" and 0.5 < of_birds["precision"] <= 1 and 0.5 < of_birds["recall"] <= 1
    assert sum(one["images"] for one in of_birds["reliability"]) == of_birds["judged"]
    counts = studio.commands.send("count-test-cases", {"filter": "class=bird"})["scores"]
    assert counts["at_least"] + counts["below"] == len(cases) and counts["not_scored"] == 0

    for address, key in (("score=0.5:", "at_least"), ("score=:0.5", "below"), ("none=score", "not_scored")):
        assert studio.commands.send("count-test-cases", {"filter": address})["count"] == counts[key]
        assert studio.gallery.count(View.read(address)).number == counts[key]
    totals = studio.gallery.totals(View.read("score=0.5:"))
    assert totals.scores is not None and totals.scores.below == counts["below"], "its own choice is left out"
    listed = studio.commands.send("list-test-cases", {"order": "score", "falling": True, "limit": 200})["test_cases"]
    scores = [one["score"] for one in listed]
    assert scores == sorted(scores, reverse=True) and len(scores) == len(cases)

    # The page says beside the button how good the score is, and that votes on birds say nothing about streets.
    street = Task("segmentation", protected=("road",))
    run = workspace.runs.create(picture(88_000), street, "demo", "A street", {})
    workspace.test_cases.append(run, None, made_case(picture(88_001), task=street))
    page = str(filter_column(View.read(""), studio.gallery.totals(View.read(""))))
    precision, recall = percent(of_birds["precision"]), percent(of_birds["recall"])
    assert f"{precision} are valid (precision), and {recall} of the valid ones are among them (recall)" in page
    for one in of_birds["reliability"]:
        assert f'{one["foretold"]:.2f}</th><td class="n">{one["valid"]:.2f}</td>' in page
    assert "Images of a classification: how likely people find an image valid" in page
    assert "Images of a segmentation have no score: a score needs 20 images of this task" in page
