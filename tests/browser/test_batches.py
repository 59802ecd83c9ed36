"""The page of a batch in Chromium, from a plan to its images in Explore: progress, pause, retry and cancel."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import expect

from core.batches import Item
from services.batches import service
from services.batches.plan_file import BatchPlan
from services.evaluation.service import model_choice_key
from tests.support.batch_cases import NO_IDEA, Doubtful, Gate, comes_to, pictures, plan_text, planned, work_here
from tests.support.model_cases import onnx_of_steps
from tests.support.scripted import ScriptedLanguageModel, ScriptedModels
from tests.support.search_cases import Looking, Painter, coloured, one_edit_each, plan_of_colours
from tests.support.serving import serving_here, until

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

    from services.studio import Studio


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    """Server for all tests of this file. Each test has its own batch."""
    with serving_here(tmp_path_factory.mktemp("batches") / "workspace", ScriptedModels()) as served:
        yield served


@pytest.fixture
def desk(page: Page, served: tuple[str, Studio]) -> Iterator[Desk]:
    page.set_viewport_size({"width": 1280, "height": 900})
    yield Desk(page, *served)
    page.goto("about:blank")


class Desk:
    """The engineer's page in the browser."""

    def __init__(self, page: Page, url: str, studio: Studio) -> None:
        self.page, self.url, self.studio = page, url, studio
        self.gate: Gate = work_here(studio.batches)

    def open(self, path: str | int = "") -> None:
        self.page.goto(f"{self.url}batches/{path}")
        self.page.wait_for_function("() => window.batches?.ready")

    def press(self, words: str) -> None:
        self.page.get_by_role("button", name=words).click()

    def sees(self, state: str) -> None:
        expect(self.page.locator("#state")).to_have_text(state)

    def row(self, stage: str) -> Locator:
        return self.page.locator(f"[data-pass={stage}] .told")

    def to_the_yes(self, text: str) -> int:
        """Plan a batch and wait until all its captions are written and it waits for approval. Return its number."""
        number = planned(self.studio, text)
        self.studio.batches.begin(number)
        comes_to(self.studio, number, "approval")
        return number


def test_from_a_plan_by_a_look_at_its_captions_to_images_in_explore(desk: Desk, tmp_path: Path) -> None:
    page = desk.page
    desk.open()
    page.click("#new")
    file = tmp_path / "plan.toml"
    file.write_text(plan_text(pictures(tmp_path / "data"), "From a plan"), encoding="utf-8")
    page.set_input_files("#plan-file", file)
    expect(page.locator("#f-plan")).to_have_value(re.compile("From a plan"))
    desk.press("Choose the images")
    page.wait_for_url(re.compile(r"/batches/\d+$"))
    desk.sees("ready to begin")
    expect(page.locator("#part-figures")).to_contain_text("at most 6 test cases from 3 source images")

    desk.press("Begin")
    desk.sees("waits for your yes")
    approve = page.locator("#part-approve")
    expect(approve.locator(".sample-line")).to_have_count(6)
    expect(approve.locator("ins").first).to_be_visible()
    expect(desk.row("images")).to_have_text("0 of 6 done")
    desk.press("Approve and draw 6 images")
    desk.sees("done")
    expect(desk.row("images")).to_have_text("6 of 6 done")
    expect(approve).to_be_empty()

    page.click("#to-evaluate")
    expect(page.locator("#part-models")).to_be_visible()
    expect(page.locator("main")).to_contain_text("6 test cases")
    page.go_back()

    shots = page.locator("#part-latest a[data-case]")
    expect(shots).to_have_count(6)
    case = shots.first.get_attribute("data-case")
    shots.first.click()
    page.wait_for_url(re.compile(rf"/\?run=.+&image={case}"))
    expect(page.locator(f"[data-case='{case}']").first).to_be_visible()


def test_no_word_is_broken_on_a_phone(desk: Desk, tmp_path: Path) -> None:
    page = desk.page
    number = desk.to_the_yes(plan_text(pictures(tmp_path / "data"), "On a phone"))
    page.set_viewport_size({"width": 390, "height": 844})
    desk.gate.shut()
    desk.open(number)
    lines = "one => Math.round(one.clientHeight / parseFloat(getComputedStyle(one).lineHeight))"
    edits = page.locator("#part-approve .sample-line > small > a")
    assert set(edits.evaluate_all(f"all => all.map({lines})")) == {1}
    desk.press("Approve and draw 6 images")
    row = desk.row("images")
    expect(row).to_contain_text("workers load their models")
    assert page.locator("[data-pass=images] > b").evaluate(lines) == 1
    desk.gate.let()


def test_somebody_without_data_plans_a_batch_of_drawn_scenes_with_one_press(desk: Desk) -> None:
    page = desk.page
    desk.open("new")
    plan = page.locator("#f-plan")
    expect(plan).to_have_value(re.compile(r'root = ".*/drawn-scenes/classification-60-\d+"'))
    plan.fill(plan.input_value().replace("classification-60-", "classification-4-"))
    desk.press("Choose the images")
    page.wait_for_url(re.compile(r"/batches/\d+$"))
    expect(page.locator("#part-figures")).to_contain_text("at most 8 test cases from 4 source images")
    expect(page.locator("#part-look")).to_be_empty()  # the embedded models know these images: no notice


def test_a_file_that_is_taken_before_the_page_is_ready_is_not_lost(desk: Desk, tmp_path: Path) -> None:
    file, page = tmp_path / "plan.toml", desk.page
    file.write_text(plan_text(pictures(tmp_path / "data"), "Taken early"), encoding="utf-8")
    held: list[Route] = []
    script = re.compile(r"/batches[^/]*\.js")
    page.route(script, lambda route: held.append(route))
    with page.expect_request(script):
        page.goto(f"{desk.url}batches/new", wait_until="commit")
    page.set_input_files("#plan-file", file)
    assert page.evaluate("window.batches === undefined") and held
    for one in held:
        one.continue_()
    page.unroute(script)
    expect(page.locator("#f-plan")).to_have_value(re.compile("Taken early"))


def test_a_caption_of_the_sample_is_edited_in_explore_and_drawn_so(desk: Desk, tmp_path: Path) -> None:
    number = desk.to_the_yes(plan_text(pictures(tmp_path / "data"), "Edited"))
    desk.open(number)
    line = desk.page.locator("#part-approve .sample-line").first
    line.get_by_role("link", name="Edit").click()
    desk.page.wait_for_url(re.compile(r"/\?run="))
    run = parse_qs(urlsplit(desk.page.url).query)["run"][0]
    expect(desk.page.locator("#stage-counterfactuals .line").first).to_be_visible()
    (first, *_) = desk.studio.workspace.runs.get(run).values["counterfactuals"].value.value.items
    mine = "A bird of glass, as nobody has seen one."
    sent = {"run": run, "place": 0, "text": first.text, "new": mine}
    desk.studio.commands.send("counterfactual-write", sent)
    desk.open(number)
    expect(desk.page.locator("#part-approve")).to_contain_text("of glass")
    desk.press("Approve and draw 6 images")
    desk.sees("done")
    expect(desk.row("images")).to_have_text("6 of 7 done, 1 left out")
    drawn = {case.lineage.counterfactual.text for case in desk.studio.workspace.runs.get(run).test_cases}
    assert mine in drawn and first.text not in drawn


def test_a_batch_is_watched_paused_and_goes_on(desk: Desk, tmp_path: Path) -> None:
    number = desk.to_the_yes(plan_text(pictures(tmp_path / "data", 12), "Watched"))
    desk.gate.shut()
    desk.open(number)
    desk.press("Approve and draw 24 images")
    desk.sees("at the images")
    desk.gate.let()
    expect(desk.row("images")).to_contain_text("8 of 24 done")
    expect(desk.row("images")).to_contain_text("left")
    expect(desk.page.locator(".throughput rect")).to_have_count(1)
    expect(desk.page.locator("#part-latest a[data-case]")).to_have_count(8)
    desk.press("Pause")
    desk.sees("paused")
    expect(desk.row("images")).to_have_text("8 of 24 done")
    desk.gate.open()
    desk.press("Go on")
    desk.sees("done")
    expect(desk.row("images")).to_have_text("24 of 24 done")


def test_a_batch_is_cancelled_after_a_second_yes_and_taken_up_again(desk: Desk, tmp_path: Path) -> None:
    number = desk.to_the_yes(plan_text(pictures(tmp_path / "data"), "Cancelled"))
    desk.open(number)
    desk.page.click("#cancel")
    desk.page.keyboard.press("Escape")
    expect(desk.page.get_by_role("button", name="Cancel the batch")).to_be_hidden()
    desk.sees("waits for your yes")
    desk.page.click("#cancel")
    desk.press("Cancel the batch")
    desk.sees("cancelled")
    desk.press("Resume")
    desk.sees("waits for your yes")


def test_failures_stand_by_their_reason_and_are_tried_again(desk: Desk, tmp_path: Path) -> None:
    models = ScriptedModels()
    models.captioner = Doubtful()
    work_here(desk.studio.batches, models)
    number = planned(desk.studio, plan_text(pictures(tmp_path / "data", 3, broken=True), "Failing"))
    desk.open(number)
    desk.press("Begin")
    groups = desk.page.locator(".failed-group")
    expect(groups).to_have_count(2)
    doubtful = groups.filter(has_text=NO_IDEA)
    expect(doubtful.locator("> b")).to_have_text("3")
    expect(doubtful).to_contain_text("bird/0.png")
    models.captioner.sure = True
    until(lambda: not desk.studio.batches.status(number).at_work)
    doubtful.get_by_role("button", name="Try again").click()
    desk.sees("waits for your yes")
    expect(groups).to_have_count(1)
    expect(groups).not_to_contain_text(NO_IDEA)
    expect(desk.row("captions")).to_have_text("3 of 4 done, 1 failed")


def test_the_list_shows_a_batch_that_goes_on(desk: Desk, tmp_path: Path) -> None:
    number = desk.to_the_yes(plan_text(pictures(tmp_path / "data", 12), "Of the list"))
    desk.gate.shut()
    desk.open()
    line = desk.page.locator(".batch-line", has_text="Of the list")
    expect(line).to_contain_text("waits for your yes")
    desk.studio.batches.approve(number)
    expect(line).to_contain_text("at the images")
    desk.gate.let()
    expect(line).to_contain_text("8 of 24 images")
    desk.gate.open()
    expect(line).to_contain_text("24 of 24 images")
    expect(line.locator(".pill")).to_have_text("done")


def test_a_batch_opens_its_own_images_in_curate_while_it_grows(desk: Desk, tmp_path: Path) -> None:
    page, root = desk.page, pictures(tmp_path / "data", 12)
    other = desk.to_the_yes(plan_text(root, "Grows", "[choose]\nnumber = 1\n"))
    desk.studio.batches.approve(other)
    comes_to(desk.studio, other, "done")
    number = desk.to_the_yes(plan_text(root, "Grows"))
    desk.gate.shut()
    desk.open(number)
    desk.press("Approve and draw 24 images")
    desk.gate.let()
    expect(desk.row("images")).to_contain_text("8 of 24 done")
    page.click("#to-curate")
    page.wait_for_url(f"{desk.url}curate/?batch=Grows+%23{number}")
    page.wait_for_function("() => window.gallery?.idle")
    expect(page.locator("#count")).to_have_text("8")
    expect(page.locator(".chip.used")).to_contain_text(f"one batch: Grows #{number}")
    mine, theirs = (page.locator(f"[data-key='batch:Grows #{one}']") for one in (number, other))
    expect(mine).to_have_attribute("aria-pressed", "true")
    expect(theirs.locator("small")).to_have_text("2")

    desk.gate.let()
    expect(page.locator("#came")).to_have_text("8 more")
    expect(page.locator("#count")).to_have_text("8")  # the list changes only when the user asks
    page.click("#came")
    expect(page.locator("#count")).to_have_text("16")
    expect(page.locator("#came")).to_be_hidden()
    theirs.click()
    expect(page.locator("#count")).to_have_text("18")
    page.locator(".chip.used", has_text=f"#{number}").click()
    expect(page.locator("#count")).to_have_text("2")
    desk.gate.open()
    comes_to(desk.studio, number, "done")


def test_a_plan_of_the_paper_is_a_start_whose_root_is_left_to_be_filled_in(desk: Desk) -> None:
    desk.open("new")
    page, text = desk.page, desk.page.locator("#f-plan")
    expect(page.locator(".starts [aria-pressed=true]")).to_have_text("Drawn scenes (demo)")
    desk.press("SHIFT, as in the paper")
    expect(text).to_have_value(re.compile(r'root = "" # absolute path.*layout = "shift"', re.DOTALL))
    expect(page.locator("#start-words")).to_contain_text("2,000 frames")
    expect(page.locator("#ask-replace")).to_be_hidden()
    desk.press("Choose the images")
    expect(page.locator("#wrong-f-plan")).to_contain_text("data.root is empty: write an absolute path")
    desk.press("ImageNet-1K, as in the paper")
    expect(page.locator("#wrong-f-plan")).to_be_empty()
    page.keyboard.type("/sets/imagenet")
    expect(text).to_have_value(re.compile('root = "/sets/imagenet" #.*layout = "imagenet"', re.DOTALL))


def test_who_has_typed_is_asked_before_another_text_takes_its_place(desk: Desk, tmp_path: Path) -> None:
    desk.open("new")
    page, text, ask = desk.page, desk.page.locator("#f-plan"), desk.page.locator("#ask-replace")
    mine = plan_text(tmp_path, "Mine")
    text.fill(mine)
    desk.press("SHIFT, as in the paper")
    expect(ask).to_contain_text("What you have written would be replaced by “SHIFT, as in the paper”.")
    expect(text).to_have_value(mine)
    desk.press("Keep it")
    expect(ask).to_be_hidden()
    expect(text).to_have_value(mine)
    file = tmp_path / "other.toml"
    file.write_text(plan_text(tmp_path, "From a file"), encoding="utf-8")
    page.set_input_files("#plan-file", file)
    expect(ask).to_contain_text("other.toml")
    desk.press("Replace it")
    expect(text).to_have_value(re.compile("From a file"))
    expect(ask).to_be_hidden()
    desk.press("SHIFT, as in the paper")
    expect(text).to_have_value(re.compile('name = "shift"'))


def test_a_plan_with_a_mistake_stays_in_the_form_with_what_is_wrong(desk: Desk, tmp_path: Path) -> None:
    desk.open("new")
    wrong = plan_text(tmp_path).replace('kind = "classification"', 'kind = "guessing"')
    desk.page.fill("#f-plan", wrong)
    desk.press("Choose the images")
    expect(desk.page.locator("#wrong-f-plan")).to_contain_text("task.kind")
    expect(desk.page.locator("#f-plan")).to_have_value(wrong)


def test_what_another_page_did_is_told_where_it_no_longer_can_be_done(desk: Desk, tmp_path: Path) -> None:
    number = desk.to_the_yes(plan_text(pictures(tmp_path / "data"), "Twice"))
    desk.open(number)
    desk.page.evaluate("batches.busy = 1")  # stops the page from polling while its user presses the button
    desk.studio.batches.approve(number)
    comes_to(desk.studio, number, "done")
    desk.press("Approve and draw")
    expect(desk.page.locator("#said")).to_contain_text("approved already")


def test_a_plan_that_takes_long_says_how_far_it_is_and_is_stopped(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    through, plain = threading.Event(), service.data_set_of

    class Slow:
        """Data set that lists its images and waits in the middle of the list."""

        def __init__(self, plan: BatchPlan) -> None:
            self._data = plain(plan)

        def items(self) -> Iterator[Item]:
            for number, item in enumerate(self._data.items()):
                if number == service.COUNTED + 1:
                    assert through.wait(120)
                yield item

    monkeypatch.setattr(service, "data_set_of", Slow)
    desk.open("new")
    page = desk.page
    page.fill("#f-plan", plan_text(pictures(tmp_path / "data", 2 * service.COUNTED + 1), "Long"))
    desk.press("Choose the images")
    expect(page.locator("#part-planning")).to_contain_text(f"{service.COUNTED} images so far")
    page.get_by_role("button", name="Stop").click()
    through.set()
    expect(page.locator("#part-planning")).to_be_empty()
    expect(page.locator("#plan-it")).to_be_enabled()
    desk.open()
    expect(page.locator(".batch-line", has_text="Long")).to_contain_text("planning was interrupted")


def test_a_search_draws_some_images_and_tells_what_it_found(desk: Desk, tmp_path: Path) -> None:
    """The pictures are plain colours, which the model under test gets wrong, so their images do not count."""
    page = desk.page
    number = desk.to_the_yes(plan_text(pictures(tmp_path / "data", 4), "Searched", captions=4))
    desk.open(number)
    page.get_by_role("spinbutton", name="Images", exact=True).fill("0")
    page.click("#begin-search")
    assert not page.eval_on_selector("#search-form", "form => form.checkValidity()"), "no image is no search"
    page.get_by_role("spinbutton", name="Images", exact=True).fill("3")
    page.click("#begin-search")
    expect(page.locator("#search-said")).to_contain_text("0 weak cells")
    expect(page.locator("#search-said")).to_contain_text("3 of 3 chosen images drawn.")
    expect(page.locator("#part-search")).to_contain_text("The model is wrong about")
    expect(page.locator("#part-head")).to_contain_text("The others wait.")
    expect(desk.row("images")).to_have_text(re.compile(r"^3 of \d+ done, \d+ wait for the search$"))
    expect(page.locator("#part-failures")).to_be_empty()
    expect(page.locator("#begin-search")).to_have_text("Go on searching")
    expect(page.get_by_role("spinbutton", name="Images", exact=True)).to_have_value("3")
    assert len(desk.studio.batches.details(number).latest) == 3


def test_a_person_follows_a_search_asks_stops_it_and_drafts_a_study_of_the_weak_cell(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, models = desk.page, ScriptedModels(ScriptedLanguageModel(one_edit_each))
    monkeypatch.setattr(desk.studio.driver.models, "language", models.language)
    models.captioner, models.generator = Looking(), Painter()
    gate = desk.gate = work_here(desk.studio.batches, models)
    coloured(tmp_path / "data")
    model = onnx_of_steps(tmp_path / "colours.onnx")
    desk.studio.evaluations.predicting.identify(model)
    number = desk.to_the_yes(plan_of_colours(tmp_path / "data"))
    gate.shut()
    desk.open(number)
    page.select_option("#search-form [name=key]", model_choice_key(model))
    page.get_by_role("spinbutton", name="Images", exact=True).fill("100")
    page.click("#begin-search")
    said = page.locator("#search-said")
    for drawn in (20, 40, 60):
        expect(said).to_contain_text(f"{drawn - 20} of {drawn} chosen images drawn")
        gate.let(3)  # a round of 20 images is three lots
    expect(said).to_contain_text("60 of 80 chosen images drawn")
    expect(page.locator("#search-budget")).to_contain_text("20 of 100 images are left")
    weak = page.locator(".cells-found").first.locator("tbody tr").first
    expect(weak).to_contain_text("weak")
    expect(weak).to_contain_text("foggy")
    page.locator("#next-round > summary").click()
    expect(page.locator("#next-round")).to_contain_text("4 from all cells at random")

    page.fill("#ask-form [name=question]", "fog")
    page.keyboard.press("Enter")
    expect(page.locator("#ask-form [data-problem]")).to_contain_text("The nearest in meaning")
    expect(page.locator("#ask-form [name=question]")).to_have_value("fog")
    page.fill("#ask-form [name=question]", "red things in foggy weather")
    page.click("#ask")
    answer = page.locator(".answer")
    expect(answer).to_contain_text("red, foggy")
    expect(answer).to_contain_text("Not among the labels and edits of this batch: things.")
    expect(page.locator("#ask-form [data-problem]")).to_be_empty()

    page.locator("#near > summary").click()
    desk.press("Propose more")
    proposed = page.locator("#near form").filter(has=page.locator("[name=alternative][value=misty]"))
    proposed.get_by_role("button", name="Add").click()
    expect(page.locator("#near")).to_contain_text("the search uses these in its next round: misty.")

    desk.press("Pause")
    desk.sees("paused")
    expect(page.locator("#begin-search")).to_have_text("Go on searching")
    weak.get_by_role("link", name="foggy").click()
    page.wait_for_url(re.compile("/curate/"))
    cell = desk.studio.searches.state(number).view
    assert cell is not None
    expect(page.locator(".cell:not([hidden])")).to_have_count(cell.weak_cells[0].images)
    desk.open(number)
    page.click("#draft-weak")
    page.wait_for_url(re.compile("/study/"))
