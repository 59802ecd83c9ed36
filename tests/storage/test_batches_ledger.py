"""Tests for a batch's table of work: leases, the cost of a worker's death, and that each piece of work counts once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from core.batches import Done, Item, NewWork, ReadSource
from core.errors import UserError
from core.types import Caption, CounterfactualCaption, Edit, StageValue, Task, Trace
from storage.batches.ledger import MOST_DEATHS
from storage.runs.test_cases import save_cases
from storage.workspace import Workspace
from tests.support.batch_cases import batch_images
from tests.support.cases import made_case
from tests.support.workspaces import workspace_in

TRIES = 3
SHOWN = CounterfactualCaption("A blue bird.", (Edit("red", "blue", "attribute"),))


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def batch_of(workspace: Workspace, sources: int = 5, lot: int = 4, digest: str = "d") -> int:
    """Plan a batch with the captions of this number of sources, in lots of the given size. Return its number."""
    held = workspace.batches
    number = held.create("Birds", "plan", digest, "demo", "dillema", {}, 8)
    held.add_sources(number, (Item(f"bird/{place}.png", "bird") for place in range(sources)))
    held.is_planned(number, ["All of them."])
    work = [
        NewWork(source.id, f"captions/{source.item.key}", *divmod(place, lot), seed=place)
        for place, source in enumerate(held.sources(number))
    ]
    held.plan(number, "captions", work, {})
    held.hold(number)
    return number


def read(workspace: Workspace, work: int, grey: int = 0) -> Done:
    """Return the result of reading and captioning a source."""
    image = workspace.images.save(Image.new("RGB", (16, 12), (grey, grey, grey)))
    value = StageValue(Caption("A red bird."), Trace("model", model="m"), "k")
    source = ReadSource(image, Task("classification", "bird"))
    return Done(work, 0.5, source=source, values={"caption": value})


def counted(workspace: Workspace, number: int) -> dict[str, int]:
    """Return the number of work items in each state, from the stored counts."""
    found = Counter[str]()
    for states in workspace.batches.counts(number).values():
        found.update({state: one.number for state, one in states.items()})
    return dict(found)


def test_what_is_planned_is_leased_once_a_lot_at_a_time(workspace: Workspace) -> None:
    number, held = batch_of(workspace), workspace.batches
    lots = [held.claim(number, "captions") for _ in range(3)]
    assert [[one.item.key for one in lot] for lot in lots] == [
        [f"bird/{place}.png" for place in range(4)],
        ["bird/4.png"],
        [],
    ]
    assert [one.place for one in lots[0]] == [0, 1, 2, 3]
    assert counted(workspace, number) == {"leased": 5}


def test_a_result_that_comes_twice_counts_once(workspace: Workspace) -> None:
    number, held = batch_of(workspace), workspace.batches
    lot = held.claim(number, "captions")
    done = [read(workspace, one.id, one.place) for one in lot]
    held.record(number, done, TRIES)
    held.record(number, done, TRIES)
    assert counted(workspace, number) == {"done": 4, "planned": 1}
    assert workspace.runs.count() == 4
    runs = [source.run for source in held.sources(number)]
    assert len({run for run in runs if run}) == 4 and runs[4] is None
    assert len(workspace.runs.history(runs[0] or "", "caption")) == 1


def test_a_result_is_written_whole_or_not_at_all(workspace: Workspace) -> None:
    number, held = batch_of(workspace), workspace.batches
    lot = held.claim(number, "captions")
    case = save_cases(workspace.images, workspace.thumbnails, [made_case(Image.new("RGB", (16, 12)))])[0]
    with pytest.raises(RuntimeError, match="before it was read"):
        held.record(number, [read(workspace, lot[0].id), Done(lot[1].id, case=case)], TRIES)
    assert counted(workspace, number) == {"leased": 4, "planned": 1}
    assert workspace.runs.count() == 0


def test_an_image_is_a_test_case_of_the_run_of_its_source(workspace: Workspace) -> None:
    number, held = batch_of(workspace, 1), workspace.batches
    held.record(number, [read(workspace, held.claim(number, "captions")[0].id)], TRIES)
    source = held.sources(number)[0]
    held.plan(number, "images", [NewWork(source.id, "key", 0, 0, 7, SHOWN)], {})
    (claimed,) = held.claim(number, "images")
    assert (claimed.counterfactual, claimed.seed) == (SHOWN, 7) and claimed.run is not None
    (case,) = save_cases(workspace.images, workspace.thumbnails, [made_case(Image.new("RGB", (16, 12), "red"))])
    held.record(number, [Done(claimed.id, case=case)], TRIES)
    assert batch_images(workspace, number) == {"key": case.image.sha}
    assert [one.image_sha for one in workspace.runs.get(source.run or "").test_cases] == [case.image.sha]
    assert workspace.catalogue.get(1).image_sha == case.image.sha  # Curate finds the image


def test_after_a_death_each_piece_goes_out_alone_until_the_one_that_kills_is_set_aside(workspace: Workspace) -> None:
    number, held = batch_of(workspace, 3), workspace.batches
    deadly, deaths = "bird/1.png", 0
    while lot := held.claim(number, "captions"):
        if any(one.item.key == deadly for one in lot):
            deaths += 1
            held.worker_died([one.id for one in lot])
        else:
            assert deaths == 0 or len(lot) == 1
            held.record(number, [read(workspace, one.id, one.place) for one in lot], TRIES)
    assert deaths == MOST_DEATHS
    assert counted(workspace, number) == {"done": 2, "failed": 1}
    (group,) = held.failures(number)
    assert (group.number, group.examples) == (1, [deadly])
    assert group.reason == f"Its worker died {MOST_DEATHS} times while it had this."


def test_what_fails_is_tried_as_often_as_the_plan_says_and_again_when_a_person_asks(workspace: Workspace) -> None:
    number, held = batch_of(workspace, 1), workspace.batches
    seeds = []
    for _ in range(TRIES):
        (one,) = held.claim(number, "captions")
        seeds.append(one.seeds)
        held.record(number, [Done(one.id, failed="The reply cannot be read.", seed_spent=True)], TRIES)
    assert held.claim(number, "captions") == ()
    assert counted(workspace, number) == {"failed": 1}
    assert held.retry_failed(number, "Another reason.") == 0
    assert held.retry_failed(number, "The reply cannot be read.") == 1
    (one,) = held.claim(number, "captions")
    assert [*seeds, one.seeds] == [0, 1, 2, 3]  # no seed is used twice
    held.record(number, [read(workspace, one.id)], TRIES)
    assert counted(workspace, number) == {"done": 1}


def test_what_no_other_try_would_mend_fails_at_once_and_a_mishap_takes_the_same_seed(workspace: Workspace) -> None:
    number, held = batch_of(workspace, 2), workspace.batches
    broken, unlucky = held.claim(number, "captions")
    failed = [Done(broken.id, failed="The image is damaged.", final=True), Done(unlucky.id, failed="It was cut off.")]
    held.record(number, failed, TRIES)
    assert counted(workspace, number) == {"failed": 1, "planned": 1}
    (again,) = held.claim(number, "captions")
    assert (again.id, again.seeds) == (unlucky.id, 0)


def test_one_process_at_a_time_works_on_a_batch_and_what_a_gone_one_had_is_planned_again(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as first:
        number = batch_of(first)
        first.batches.claim(number, "captions")
        with workspace_in(tmp_path / "workspace") as second:
            assert second.batches.get(number).running
            with pytest.raises(UserError, match="Another process works on the batch “Birds” already"):
                second.batches.hold(number)
    with workspace_in(tmp_path / "workspace") as third:
        assert not third.batches.get(number).running
        third.batches.hold(number)
        assert len(third.batches.claim(number, "captions")) == 4


def test_the_same_items_and_the_same_work_are_taken_once(workspace: Workspace) -> None:
    number, held = batch_of(workspace), workspace.batches
    items = [Item("bird/0.png", "bird"), Item("bird/9.png", "bird")]
    before = held.count_sources(number)
    held.add_sources(number, items)
    assert held.count_sources(number) == before + 1
    source, planned = held.sources(number)[0], counted(workspace, number)
    held.plan(number, "captions", [NewWork(source.id, "captions/bird/0.png", 9, 0, 0)], {})
    assert counted(workspace, number) == planned
    with pytest.raises(Exception, match="UNIQUE"):
        held.create("Again", "plan", "d", "demo", "dillema", {}, 8)
    assert held.find("d") == number and held.find("e") is None


def test_captions_are_approved_once_and_not_before_they_are_there(workspace: Workspace) -> None:
    number, held = batch_of(workspace), workspace.batches
    with pytest.raises(UserError, match="not all written yet"):
        held.approve(number)
    held.go_on(number, "images")
    held.approve(number)
    with pytest.raises(UserError, match="approved already"):
        held.approve(number)


def test_the_counts_are_those_of_the_rows_whatever_happens(workspace: Workspace) -> None:
    number, held = batch_of(workspace, 9), workspace.batches
    first = held.claim(number, "captions")
    held.record(number, [read(workspace, one.id, one.place) for one in first[:2]], TRIES)
    held.let_go(number)
    held.hold(number)
    second = held.claim(number, "captions")
    held.record(number, [Done(one.id, 1.5, failed="No.") for one in second], TRIES)
    plain = "SELECT state, count(*), sum(seconds) FROM batch_work WHERE batch = ? GROUP BY state"
    rows = workspace._database.read(lambda db: db.execute(plain, [number]).fetchall())
    counts = held.counts(number)["captions"]
    assert {(state, one.number) for state, one in counts.items()} == {(state, count) for state, count, _ in rows}
    for state, _, seconds in rows:
        assert counts[state].seconds == pytest.approx(seconds)
    assert sum(done for _, done in held.minutes(number, "captions")) == 2


def test_an_unknown_batch_is_told_in_a_sentence(workspace: Workspace) -> None:
    for ask in (workspace.batches.get, workspace.batches.hold, workspace.batches.approve):
        with pytest.raises(UserError, match="There is no batch 7"):
            ask(7)
