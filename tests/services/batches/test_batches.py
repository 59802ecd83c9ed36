"""A batch from its plan to its test cases, with stand-ins for the models: results, stops and failures.

`tests/services/batches/test_kills.py` has the real models, worker processes and kills.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from core.batches import Lot
from core.catalogue import Order as Sorted
from core.errors import UserError
from core.image_filter import ImageFilter
from core.regions import Region
from core.rle import packed
from core.types import CounterfactualCaption
from pipeline.recipes import AGA
from services.batches import planning
from services.batches.engine import Engine, OnLot, Outcome
from services.batches.io_workers import Order
from services.batches.plan_file import read_plan
from services.batches.pools import HerePool, Pool, Returned
from services.batches.service import BatchService
from services.batches.work import Worker
from storage.workspace import Workspace
from tests.support.batch_cases import batch_images, edited
from tests.support.batch_kills import plan_file
from tests.support.own_recipe import registered
from tests.support.scripted import NoiseGenerator, ScriptedLanguageModel, ScriptedModels, answer
from tests.support.workspaces import workspace_in

CLASSES = ("bird", "boat")
SOURCES = 6
PAINTED = Region("64x48 " + packed([0, 1000, 2072]))
"""Region of all but the right part of a picture."""
NAMES = ("good", "strange", "gone", "small", "odd")


def images(root: Path, number: int = SOURCES) -> Path:
    """Write an image folder whose pictures have one colour each. Return the folder."""
    for place in range(number):
        folder = root / "test" / CLASSES[place % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (64, 48), (6 * place, 90, 255 - 6 * place)).save(folder / f"{place}.png")
    return root


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def planned(workspace: Workspace, folder: Path, more: str = "") -> int:
    """Plan a batch of the images in `folder / "data"`. Return its number."""
    return BatchService(workspace).plan(read_plan(plan_file(folder, folder / "data", captions=2, more=more)))


def worked(
    workspace: Workspace,
    number: int,
    models: ScriptedModels | None = None,
    pool: Callable[[Order], Pool] | None = None,
    stop: threading.Event | None = None,
    tell: OnLot = lambda _stage, _done: None,
) -> Outcome:
    """Run a batch in this process with stand-ins for the models. Return the outcome."""
    order = BatchService(workspace).order(number)
    make = pool or partial(HerePool, make=partial(Worker, models=models or ScriptedModels()))  # type: ignore[arg-type]
    return Engine(workspace, number, order, make, stop, tell).run()


def stand_in(order: Order) -> Worker:
    """Return a worker with stand-ins for the models."""
    return Worker(order, ScriptedModels())  # type: ignore[arg-type]


def test_a_data_set_becomes_test_cases_after_a_yes(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data")
    service, number = BatchService(workspace), planned(workspace, tmp_path)
    assert service.status(number).sources == SOURCES
    assert worked(workspace, number) == "approval"
    status = service.status(number)
    assert status.state == "approval"
    assert [one.number("done") for one in status.passes] == [SOURCES, SOURCES, 0]
    assert status.passes[2].total == 2 * SOURCES
    shown = service.sample(number, 4)
    assert len(shown) == 4 and all(one.edits and one.new_caption != one.caption for one in shown)
    assert worked(workspace, number) == "approval"  # no image is drawn without approval
    workspace.batches.approve(number)
    assert worked(workspace, number) == "done"
    status = service.status(number)
    assert status.state == "done" and status.passes[2].number("done") == 2 * SOURCES
    page = workspace.catalogue.page(ImageFilter(), Sorted(), 100)
    assert len(page.entries) == 2 * SOURCES  # Curate lists the test cases
    classes = {entry.classes for entry in page.entries}
    assert classes == {("bird",), ("boat",)}
    run = workspace.runs.get(workspace.batches.latest_images(number)[0][2])
    assert set(run.values) == {"caption", "keywords", "alternatives", "counterfactuals"}  # Explore can open the run
    assert run.name.startswith("Drawn things: test/")


def test_a_plan_that_is_there_is_not_planned_twice(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data")
    number = planned(workspace, tmp_path)
    assert planned(workspace, tmp_path) == number
    assert planned(workspace, tmp_path, "[images]\ntries = 5\n") != number
    assert worked(workspace, number) == "approval"
    assert workspace.runs.count() == SOURCES


def test_what_is_broken_or_there_twice_is_told_and_the_rest_goes_on(workspace: Workspace, tmp_path: Path) -> None:
    root = images(tmp_path / "data") / "test"
    (root / "bird" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nno more")
    (root / "boat" / "again.png").write_bytes((root / "bird" / "0.png").read_bytes())
    number = planned(workspace, tmp_path)
    (root / "boat" / "1.png").unlink()
    Image.new("RGB", (30, 20), "red").save(root / "boat" / "3.png")  # the file changed after the plan
    worked(workspace, number)
    workspace.batches.approve(number)
    assert worked(workspace, number) == "done"
    failed = {group.examples[0]: group for group in workspace.batches.failures(number)}
    assert set(failed) == {f"test/{name}.png" for name in ("bird/broken", "boat/again", "boat/1", "boat/3")}
    assert "same picture as test/bird/0.png" in failed["test/boat/again.png"].reason
    assert failed["test/boat/again.png"].state == "skipped"
    assert all(group.state == "failed" for key, group in failed.items() if "again" not in key)
    assert all(group.reason.endswith(".") for group in failed.values())
    status = BatchService(workspace).status(number)
    assert status.passes[2].number("done") == 2 * (SOURCES - 2)
    assert status.state == "done" and status.failed == 3


def test_every_kind_of_bad_row_stands_in_the_report_and_the_rest_is_drawn(workspace: Workspace, tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    for name in NAMES:
        Image.new("RGB", (64, 48), (10 * len(name), 90, 40)).save(root / f"{name}.png")
        Image.new("L", (64, 48), 3).save(root / f"{name}-mask.png")
    Image.new("L", (32, 24), 3).save(root / "small-mask.png")  # a mask of half the image's size
    Image.new("L", (64, 48), 9).save(root / "odd-mask.png")  # a class without a name
    (root / "names.txt").write_text("car\ntree\n")
    rows = [f"{name}.png,{'99' if name == 'strange' else '0'},{name}-mask.png" for name in NAMES]
    (root / "list.csv").write_text("\n".join(["file_name,label,mask", *rows, "../outside.png,0,", ",0,"]))
    file = tmp_path / "plan.toml"
    file.write_text(
        f'name = "Rows"\n[data]\nroot = "{root}"\nlayout = "csv"\n'
        'options = { classes = "names.txt", mask_classes = "3 car" }\n'
        '[task]\nkind = "segmentation"\nprotected = ["car"]\n[make]\nprofile = "demo"\n'
    )
    service = BatchService(workspace)
    number = service.plan(read_plan(file))
    (root / "gone.png").unlink()
    workspace.batches.approve(number, ahead=True)
    assert worked(workspace, number) == "done"
    failed = {group.examples[0]: group.reason for group in workspace.batches.failures(number)}
    assert set(failed) == {"strange.png", "gone.png", "small.png", "odd.png"}
    assert "none of the 2 classes" in failed["strange.png"]
    assert "not there" in failed["gone.png"]
    assert "32x24" in failed["small.png"] and "without a name: 9" in failed["odd.png"]
    told = " ".join(workspace.batches.get(number).notes)
    assert "outside the folder" in told and "names no image" in told
    assert service.status(number).passes[2].number("done") > 0


def boats_fail(prompt: str) -> str:
    """Return a language model's reply, which is unreadable for boats."""
    return "?" if "label boat" in prompt else answer(prompt)


def test_a_reply_that_cannot_be_read_fails_its_source_alone_until_it_is_tried_again(
    workspace: Workspace, tmp_path: Path
) -> None:
    images(tmp_path / "data")
    service, number = BatchService(workspace), planned(workspace, tmp_path)
    workspace.batches.approve(number, ahead=True)
    assert worked(workspace, number, ScriptedModels(ScriptedLanguageModel(boats_fail))) == "done"
    status = service.status(number)
    assert (status.passes[1].number("done"), status.passes[1].number("failed")) == (SOURCES // 2, SOURCES // 2)
    assert status.passes[2].number("done") == SOURCES
    before = batch_images(workspace, number)
    (group,) = workspace.batches.failures(number)
    assert group.stage == "language" and group.examples[0].startswith("test/boat/")
    assert workspace.batches.retry_failed(number, group.reason) == SOURCES // 2
    assert not service.status(number).batch.finished
    assert worked(workspace, number) == "done"
    assert service.status(number).passes[2].number("done") == 2 * SOURCES
    assert before.items() <= batch_images(workspace, number).items()


def test_captions_that_were_edited_before_the_yes_are_drawn_as_they_are_then(
    workspace: Workspace, tmp_path: Path
) -> None:
    images(tmp_path / "data", 4)
    service, number = BatchService(workspace), planned(workspace, tmp_path)
    assert worked(workspace, number) == "approval"
    by_key = {source.item.key: source.run or "" for source in workspace.batches.sources(number)}
    one, other, third, fourth = (by_key[key] for key in sorted(by_key))

    chosen = {(shown.run, shown.new_caption) for shown in service.sample(number, 100)}

    def edit_first(run: str, text: str = "", used: bool = True, deleted: bool = False) -> None:
        """Change the first caption that the batch chose of a run."""

        def change(captions: list[CounterfactualCaption]) -> None:
            place = next(place for place, one in enumerate(captions) if (run, one.text) in chosen)
            captions[place] = replace(captions[place], text=text or captions[place].text, used=used)
            if deleted:
                del captions[place]

        edited(workspace, run, change)

    anew = "A bird of glass under a green sky."
    edit_first(one, text=anew)
    edit_first(other, used=False)
    edit_first(third, deleted=True)
    edit_first(fourth, used=False)
    assert anew in {shown.new_caption for shown in service.sample(number, 100)}
    assert len(service.sample(number, 100)) == 5
    assert worked(workspace, number) == "approval"
    assert service.status(number).passes[2].left == 5
    edit_first(fourth)  # the image is wanted after all
    workspace.batches.approve(number)
    assert worked(workspace, number) == "done"
    cases = [workspace.test_cases.get(case) for case, _, _ in workspace.batches.latest_images(number, 100)]
    drawn = Counter(case.run_id for case in cases)
    assert drawn == {one: 2, other: 1, third: 1, fourth: 2}
    texts = {case.lineage.counterfactual.text for case in cases if case.run_id == one}
    assert anew in texts and len(texts) == 2
    reasons = {group.reason: group.number for group in workspace.batches.failures(number)}
    assert reasons == {planning.EDITED: 1, planning.TAKEN_OUT: 2}
    edit_first(one, text="A bird of stone under a grey sky.")  # images that were drawn stay
    assert worked(workspace, number) == "done"
    assert service.status(number).passes[2].number("done") == 6


def test_where_no_caption_was_written_nobody_is_asked_for_a_yes(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data")
    number = planned(workspace, tmp_path)
    assert worked(workspace, number, ScriptedModels(ScriptedLanguageModel(lambda prompt: "?"))) == "done"
    status = BatchService(workspace).status(number)
    assert (status.state, status.failed) == ("done", SOURCES) and status.batch.approved is None
    assert workspace.batches.retry_failed(number) == SOURCES
    assert worked(workspace, number) == "approval"


def test_a_recipe_without_a_language_model_needs_no_worker_for_it(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data")
    file = plan_file(tmp_path, tmp_path / "data", captions=1)
    file.write_text(file.read_text().replace("[make]", '[make]\nrecipe = "reconstruction"'))
    number = BatchService(workspace).plan(read_plan(file))
    stages: list[str] = []

    class Noted(HerePool):
        def send(self, lot: Lot) -> None:
            stages.append(lot.stage)
            super().send(lot)

    workspace.batches.approve(number, ahead=True)
    assert (
        worked(workspace, number, pool=lambda order: Noted(order, lambda order: Worker(order, ScriptedModels())))
        == "done"
    )  # type: ignore[arg-type]
    assert set(stages) == {"captions", "images"}
    assert BatchService(workspace).status(number).passes[2].number("done") == SOURCES


def test_sources_of_a_recipe_without_a_caption_are_read_and_drawn(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data")
    file = plan_file(tmp_path, tmp_path / "data", captions=2)
    file.write_text(file.read_text().replace("[make]", '[make]\nrecipe = "aga"'))
    service = BatchService(workspace)
    number = service.plan(read_plan(file))
    assert worked(workspace, number) == "approval"
    assert all(one.new_caption.startswith("An empty place") and not one.caption for one in service.sample(number, 4))
    workspace.batches.approve(number)
    assert worked(workspace, number) == "done"
    assert [one.number("done") for one in service.status(number).passes] == [SOURCES, SOURCES, 2 * SOURCES]
    run = workspace.runs.get(workspace.batches.latest_images(number)[0][2])
    assert set(run.values) == {"subject", "counterfactuals"} and "subject mask" in run.test_cases[0].artifacts
    source, case = workspace.images.load(run.source_sha), run.test_cases[0]
    with Image.open(case.image_path) as image:
        assert image.getpixel((32, 24)) == source.getpixel((32, 24)), "the subject is in the middle"


def test_sources_without_a_stage_that_looks_at_them_are_read(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data")
    blind = replace(AGA, name="blind", stages=AGA.stages[1:], region=lambda _values: PAINTED)
    with registered(blind):
        file = plan_file(tmp_path, tmp_path / "data", captions=1)
        text = file.read_text().replace("[make]", '[make]\nrecipe = "blind"')
        file.write_text(text.replace("settings = {", 'settings = { "backgrounds.written" = false,'))
        number = BatchService(workspace).plan(read_plan(file))
        workspace.batches.approve(number, ahead=True)
        assert worked(workspace, number) == "done"
        assert BatchService(workspace).status(number).passes[2].number("done") == SOURCES


@pytest.mark.slow
def test_it_stops_when_it_is_asked_to_and_goes_on_where_it_was(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data", 40)
    number, stop = planned(workspace, tmp_path), threading.Event()
    assert worked(workspace, number, stop=stop, tell=lambda _stage, _done: stop.set()) == "paused"
    done = BatchService(workspace).status(number).passes[0]
    assert 0 < done.number("done") < 40 and done.number("leased") == 0
    assert (
        worked(workspace, number, tell=lambda _stage, _done: workspace.batches.set_wish(number, "cancel"))
        == "cancelled"
    )
    assert worked(workspace, number) == "approval"
    assert workspace.runs.count() == 40


@pytest.mark.slow
def test_the_same_plan_gives_the_same_images_in_whatever_order_lots_come_back(tmp_path: Path) -> None:
    images(tmp_path / "data", 12)
    made = []
    for name, backwards in (("one", False), ("other", True)):
        with workspace_in(tmp_path / name) as workspace:
            number = planned(workspace, tmp_path)
            workspace.batches.approve(number, ahead=True)
            assert worked(workspace, number, pool=lambda order, b=backwards: Shuffled(order, b)) == "done"  # type: ignore[misc]
            made.append(batch_images(workspace, number))
    assert len(made[0]) == 24
    assert made[0] == made[1]


class Shuffled(HerePool):
    """Pool that takes several lots at a time. With `backwards`, it does the last one first."""

    def __init__(self, order: Order, backwards: bool) -> None:
        super().__init__(order, stand_in)
        self._backwards = backwards

    def room(self) -> int:
        return 3 - len(self._lots)

    def wait(self, seconds: float) -> Sequence[Returned]:
        if self._backwards:
            self._lots.reverse()
        return super().wait(seconds)


class Dying(HerePool):
    """Pool whose worker dies whenever it has a certain source."""

    def wait(self, seconds: float) -> Sequence[Returned]:
        lot: Lot = self._lots[0]
        if any(piece.item.key.endswith("/3.png") for piece in lot.pieces):
            self._lots.popleft()
            return (Returned(lot, died=True),)
        return super().wait(seconds)


def test_a_source_that_kills_its_worker_is_set_aside(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data")
    number = planned(workspace, tmp_path)
    assert worked(workspace, number, pool=lambda order: Dying(order, stand_in)) == "approval"
    (group,) = workspace.batches.failures(number)
    assert group.examples == ["test/boat/3.png"] and "died 3 times" in group.reason


def test_a_check_that_the_plan_asks_for_sets_images_aside(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data", 2)
    number = planned(workspace, tmp_path, '[images]\nchecks = ["label kept"]\ntries = 2\n')
    workspace.batches.approve(number, ahead=True)
    models = ScriptedModels()
    models.generator = NoiseGenerator()
    assert worked(workspace, number, models) == "done"
    entries = workspace.catalogue.page(ImageFilter(), Sorted(), 100).entries
    status = BatchService(workspace).status(number).passes[2]
    assert status.number("done") == len(entries)
    assert status.number("done") + status.number("failed") == 4
    for entry in entries:
        assert all(check.passed is not False for check in entry.checks if check.name == "label kept")


def test_a_full_disk_ends_the_work_and_fails_nothing(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images(tmp_path / "data")
    number = planned(workspace, tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("storage.images.write_whole", full)
        with pytest.raises(UserError, match="No space left on device"):
            worked(workspace, number)
    status = BatchService(workspace).status(number).passes[0]
    assert (status.number("planned"), status.number("failed")) == (SOURCES, 0)
    assert worked(workspace, number) == "approval"


def test_a_layout_and_a_choice_that_there_is_not_are_refused(workspace: Workspace, tmp_path: Path) -> None:
    images(tmp_path / "data")
    service = BatchService(workspace)
    plan = plan_file(tmp_path, tmp_path / "data")
    plan.write_text(plan.read_text().replace('"imagefolder"', '"imagefolders"'))
    with pytest.raises(UserError, match="no layout 'imagefolders'"):
        service.plan(read_plan(plan))
    with pytest.raises(UserError, match="chooses no image"):
        planned(workspace, tmp_path, '[choose]\nclasses = ["horse"]\n')
    assert workspace.batches.all() == ()


def test_what_of_a_data_set_is_no_item_is_told(workspace: Workspace, tmp_path: Path) -> None:
    root = images(tmp_path / "data")
    (root / "test" / "alone.png").write_bytes((root / "test" / "bird" / "0.png").read_bytes())
    notes = workspace.batches.get(planned(workspace, tmp_path)).notes
    assert any("1 image lies beside the folders of classes" in note for note in notes)
