"""A search for weak cells in a batch in which one cell is planted as weak (`tests.support.search_cases`)."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from core.errors import UserError
from core.image_filter import ImageFilter
from core.types import Alternative, Alternatives, CounterfactualCaption
from pipeline.profiles.profile import load_profile
from services.batches.engine import Engine, Outcome
from services.batches.plan_file import read_plan
from services.batches.pools import HerePool
from services.batches.service import BatchService
from services.batches.work import Worker
from services.evaluation.near_cells import add_alternative, near_cells
from services.evaluation.service import EvaluationService
from services.evaluation.subjects import read_cases
from services.evaluation.types import Subject
from services.evaluation.weak_cells import ROUND, SearchSettings, SearchView, WeakCellSearch
from storage.workspace import Workspace
from tests.services.evaluation.test_results import judged
from tests.support.batch_cases import batch_images, edited
from tests.support.model_cases import onnx_of_steps
from tests.support.scripted import ScriptedLanguageModel, ScriptedModels
from tests.support.search_cases import SOURCES, WEAK, Looking, Painter, coloured, one_edit_each, plan_of_colours
from tests.support.workspaces import workspace_in


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    coloured(tmp_path / "data")
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


class Searched:
    """A batch of the pictures in `folder / "data"`, and searches in it."""

    def __init__(
        self,
        workspace: Workspace,
        folder: Path,
        reply: Callable[[str], str] = one_edit_each,
        captions: int = 20,
    ) -> None:
        self.workspace, self.model, self.reply = workspace, onnx_of_steps(folder / "colours.onnx"), reply
        plan = folder / "plan.toml"
        plan.write_text(plan_of_colours(folder / "data", captions))
        self.number = BatchService(workspace).plan(read_plan(plan))

    def search(
        self,
        images: int,
        stop: threading.Event | None = None,
        on_round: Callable[[SearchView], None] = lambda _view: None,
    ) -> tuple[Outcome, SearchView]:
        """Search until `images` are chosen. Return how it ended and what was found."""
        order = BatchService(self.workspace).order(self.number)
        models = ScriptedModels(ScriptedLanguageModel(self.reply))
        models.captioner, models.generator = Looking(), Painter()
        pool = partial(HerePool, make=partial(Worker, models=models))  # type: ignore[arg-type]
        with self.opened(images, on_round) as search:
            outcome = Engine(self.workspace, self.number, order, pool, stop, choose=search.choose).run()
            return outcome, search.view()

    @contextmanager
    def opened(
        self, images: int, on_round: Callable[[SearchView], None] = lambda _view: None
    ) -> Iterator[WeakCellSearch]:
        """Open a search of `images`."""
        service = EvaluationService(load_profile("demo"), self.workspace, lambda _: None)
        settings = SearchSettings(self.model, images)
        try:
            yield WeakCellSearch(self.workspace, service, self.number, settings, on_round=on_round)
        finally:
            service.close()


def test_the_planted_cell_is_told_and_no_other_and_most_images_go_there(workspace: Workspace, tmp_path: Path) -> None:
    searched = Searched(workspace, tmp_path)
    assert searched.search(60)[0] == "approval"
    assert not batch_images(workspace, searched.number), "nothing is drawn before a person agrees"
    workspace.batches.approve(searched.number)
    outcome, view = searched.search(60)
    assert outcome == "done" and (view.chosen, view.drawn) == (60, 60)
    assert [(row.label, row.edit_type, row.alternative) for row in view.weak_cells] == [WEAK]
    assert view.weak_cells[0].images == view.weak_cells[0].faults >= 4
    assert view.over_labels[0].alternative == "foggy" and view.over_labels[0].faults == view.weak_cells[0].faults
    assert sum(row.images for row in view.over_labels) == 60
    others = [row for row in view.cells if row.state != "weak"]
    assert all(row.faults == 0 for row in others) and sum(row.images for row in view.cells) == 60
    assert view.error.value is not None and view.error.n == 60 // 5
    facet = ImageFilter(facets={"batch": (workspace.batches.get(searched.number).facet,)})
    (told,) = read_cases(workspace, Subject(filter=facet)).left_out
    assert told.startswith("A search drew 48 test cases")
    candidates = workspace.batches.candidates(searched.number)
    assert sum(one.waits for one in candidates) == len(candidates) - 60
    for row in view.cells:
        assert row.images <= SOURCES // 2, "a cell has at most one image of a source"
    assert not view.aimed and not view.next_random, "the budget is spent"
    assert searched.search(60)[0] == "done" and len(batch_images(workspace, searched.number)) == 60
    foretold = list[SearchView]()
    assert searched.search(80, on_round=foretold.append)[1].drawn == 80, "a larger budget goes on"
    assert foretold[0].next_random == ROUND // 5
    more = {(row.label, row.spellings): row.images for row in foretold[1].cells}
    for row in foretold[0].aimed:
        drawn = more[row.label, row.spellings] - row.images
        assert row.next <= drawn <= row.next + ROUND // 5, "the round draws what it said before, and some at random"
    assert sum(row.next for row in foretold[0].aimed) == ROUND - ROUND // 5
    assert all(row.state != "weak" for row in foretold[0].aimed)


def test_alternatives_that_differ_in_spelling_alone_are_one_cell_that_names_them(
    workspace: Workspace, tmp_path: Path
) -> None:
    spelled = itertools.cycle(("the foggy", "foggy", "foggy"))

    def reply(prompt: str) -> str:
        text = one_edit_each(prompt)
        return text.replace("foggy", next(spelled)) if "rainy, foggy" in text else text

    searched = Searched(workspace, tmp_path, reply)
    workspace.batches.approve(searched.number, ahead=True)
    view = searched.search(60)[1]
    (weak,) = view.weak_cells
    assert (weak.label, weak.edit_type, weak.spellings) == ("red", "weather", ("foggy", "the foggy"))
    assert weak.images == weak.faults >= 4
    drawn = [one.counterfactual.edits[0].alternative for one in workspace.batches.candidates(1) if one.test_case]
    assert {"foggy", "the foggy"} <= {*drawn}


def test_a_search_that_was_stopped_in_a_round_goes_on_with_the_same_images(
    workspace: Workspace, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = Searched(workspace, tmp_path)
    workspace.batches.approve(whole.number, ahead=True)
    whole.search(3 * ROUND)
    with workspace_in(tmp_path_factory.mktemp("other") / "workspace") as other:
        cut = Searched(other, tmp_path)
        other.batches.approve(cut.number, ahead=True)
        stop = threading.Event()

        def on_round(view: SearchView) -> None:
            if view.drawn >= ROUND:  # the second round is chosen, and none of it drawn
                stop.set()

        assert cut.search(3 * ROUND, stop, on_round)[0] == "paused"
        drawn = batch_images(other, cut.number)
        assert ROUND <= len(drawn) < 2 * ROUND + 8
        assert cut.search(3 * ROUND)[1].drawn == 3 * ROUND
        assert batch_images(other, cut.number) == batch_images(workspace, whole.number)


def test_two_searches_beside_each_other_find_what_each_finds_alone(
    workspace: Workspace, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with workspace_in(tmp_path_factory.mktemp("other") / "workspace") as other:
        alone = Searched(other, tmp_path)
        other.batches.approve(alone.number, ahead=True)
        alone.search(2 * ROUND)
        images = batch_images(other, alone.number)
    both = [Searched(workspace, tmp_path, captions=captions) for captions in (20, 21)]
    for one in both:
        workspace.batches.approve(one.number, ahead=True)
    with ThreadPoolExecutor() as threads:
        found = [view for _, view in threads.map(lambda one: one.search(2 * ROUND), both)]
    assert batch_images(workspace, both[0].number) == images
    for one, view in zip(both, found, strict=True):
        assert view.drawn == 2 * ROUND == len(batch_images(workspace, one.number))
        assert {(row.label, row.edit_type, row.alternative) for row in view.weak_cells} <= {WEAK}


def foggy_cases(workspace: Workspace, batch: int) -> list[int]:
    """Return the test cases of the planted cell."""
    return [
        one.test_case
        for one in workspace.batches.candidates(batch)
        if one.test_case is not None and (one.label, one.counterfactual.edits[0].alternative) == ("red", "foggy")
    ]


def test_the_search_follows_what_people_reject(workspace: Workspace, tmp_path: Path) -> None:
    searched = Searched(workspace, tmp_path)
    workspace.batches.approve(searched.number, ahead=True)
    view = searched.search(2 * ROUND)[1]
    assert view.weak_cells
    foggy = foggy_cases(workspace, searched.number)
    for case in foggy:
        workspace.test_cases.review(case, "rejected")
    view = searched.search(2 * ROUND)[1]
    assert not view.weak_cells and sum(row.images for row in view.cells) == 2 * ROUND - len(foggy)


def test_an_image_that_a_study_finds_invalid_counts_once_in_the_share_of_valid_images(
    workspace: Workspace, tmp_path: Path
) -> None:
    searched = Searched(workspace, tmp_path)
    workspace.batches.approve(searched.number, ahead=True)
    searched.search(2 * ROUND)
    cases = foggy_cases(workspace, searched.number)
    judged(workspace, dict.fromkeys(cases, "no"))
    with searched.opened(2 * ROUND) as search:
        (row,) = (row for row in search.view().cells if (row.label, row.alternative) == ("red", "foggy"))
    assert (row.images, row.faults) == (len(cases), 0)
    assert row.valid == pytest.approx(2 / (2 + len(cases)))


def test_a_question_is_answered_by_images_drawn_for_it_with_an_interval(workspace: Workspace, tmp_path: Path) -> None:
    searched = Searched(workspace, tmp_path)
    workspace.batches.approve(searched.number, ahead=True)
    searched.search(ROUND)

    def near(text: str, names: Sequence[str]) -> Sequence[str]:
        assert "foggy" in names and "red" in names
        return ["foggy"]

    with searched.opened(100) as search:
        search.begin()
        with pytest.raises(UserError, match=r"named in “mist”. The nearest in meaning: “foggy”"):
            search.ask("mist", near)
        search.ask("is it weak in  foggy weather", near)
        search.ask("is it weak in foggy weather", near)
        assert search.view().next_asked > 0
    view = searched.search(100)[1]
    (answer,) = view.answers
    (part,) = answer.parts
    assert (answer.question, answer.unknown) == ("is it weak in foggy weather", ("weak",))
    assert part.spellings == ("foggy",) and part.images >= part.share.n >= 8
    assert part.share.low is not None and part.share.high is not None
    assert part.share.low < 0.5 < part.share.high, "all red ones are faults, and no blue one"
    asked = [one for one in workspace.batches.candidates(searched.number) if one.asked]
    assert {one.asked for one in asked} == {part.part.key} and {one.chosen_by for one in asked} == {"aim"}
    assert {one.label for one in asked} == {"red", "blue"}
    with searched.opened(100) as search:
        search.forget(answer.question)
    assert not searched.search(100)[1].answers


def test_captions_that_a_person_edits_or_adds_are_searched_as_they_are_then(
    workspace: Workspace, tmp_path: Path
) -> None:
    searched = Searched(workspace, tmp_path)
    workspace.batches.approve(searched.number, ahead=True)
    searched.search(ROUND)
    old = next(one for one in workspace.batches.candidates(searched.number) if one.waits)

    def hazy(captions: list[CounterfactualCaption]) -> None:
        edit = replace(old.counterfactual.edits[0], alternative="hazy")
        captions[captions.index(old.counterfactual)] = CounterfactualCaption("A bird in haze.", (edit,))

    def dusty(captions: list[CounterfactualCaption]) -> None:
        edit = replace(old.counterfactual.edits[0], alternative="dusty")
        captions.append(CounterfactualCaption("A bird in dust.", (edit,)))

    edited(workspace, old.run, hazy)
    edited(workspace, old.run, dusty)
    before = workspace.batches.waiting(searched.number)
    view = searched.search(2 * ROUND)[1]
    for name in ("hazy", "dusty"):
        (cell,) = (row for row in view.cells if row.alternative == name)
        assert cell.images + cell.waiting == 1, "what a person edits or adds is searched, once"
    assert workspace.batches.waiting(searched.number) == before + 1 - ROUND
    now = {one.id: one for one in workspace.batches.candidates(searched.number)}
    assert not now[old.id].waits and now[old.id].test_case is None


def test_an_alternative_near_a_weak_cell_gets_a_caption_for_each_source_of_the_cell(
    workspace: Workspace, tmp_path: Path
) -> None:
    searched = Searched(workspace, tmp_path)
    workspace.batches.approve(searched.number, ahead=True)
    view = searched.search(3 * ROUND)[1]
    (near,) = near_cells(workspace, searched.number, [one.name for one in view.weak_cells])
    assert (near.label, near.alternative, near.keyword, near.proposals) == ("red", "foggy", "sunny", ())
    run = workspace.runs.get(near.run).values["alternatives"].value
    items = [
        replace(item, options=(*item.options, Alternative("misty"))) if item.keyword == "sunny" else item
        for item in run.value.items
    ]
    workspace.runs.append_value(near.run, "alternatives", replace(run, value=Alternatives(tuple(items))))
    (near,) = near_cells(workspace, searched.number, [one.name for one in view.weak_cells])
    assert near.proposals == ("misty",)

    with pytest.raises(UserError, match="same as its keyword"):
        add_alternative(workspace, searched.number, near.key, "sunny")
    assert add_alternative(workspace, searched.number, near.key, " in  mist") == {"added": SOURCES // 2}
    with pytest.raises(UserError, match="have it already"):
        add_alternative(workspace, searched.number, near.key, "Mist")
    (near,) = near_cells(workspace, searched.number, [one.name for one in view.weak_cells])
    assert near.added == ("in mist",)
    view = searched.search(4 * ROUND)[1]
    (cell,) = (row for row in view.cells if row.alternative == "in mist")
    mist = [one for one in workspace.batches.candidates(searched.number) if "in mist" in one.counterfactual.text]
    assert len(mist) == SOURCES // 2 and {one.label for one in mist} == {cell.label} == {"red"}
    assert cell.images, "the search draws them"
    texts = {one.counterfactual.text for one in workspace.batches.candidates(searched.number) if one.label == "red"}
    assert any(text.startswith("A bird in in mist weather") for text in texts), "the same words otherwise"
    (near,) = near_cells(workspace, searched.number, [one.name for one in view.weak_cells])
    assert not near.added
