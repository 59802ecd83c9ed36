"""The set-up of a study in Chromium: from the explore page to a running study with an invitation and personal codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.support.explorer import open_start
from tests.support.routing import HeldBack, routed
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.study_cases import object_runs, reconstructions

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from core.studies import Study
    from services.studio import Studio

HOSTILE = '<img src=x onerror=alert(1)> & "co"'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    """Server for all tests of this file. Each test sets up its own study."""
    with serving_here(tmp_path_factory.mktemp("setup") / "workspace", ScriptedModels()) as (url, studio):
        object_runs(studio.workspace, 12, wrong=range(0, 48, 3))
        reconstructions(studio.workspace, 2)
        yield url, studio


@pytest.fixture
def desk(page: Page, served: tuple[str, Studio]) -> Iterator[Desk]:
    page.set_viewport_size({"width": 1280, "height": 900})
    yield Desk(page, *served)
    page.goto("about:blank")


class Desk:
    """The lead's page in the browser."""

    def __init__(self, page: Page, url: str, studio: Studio) -> None:
        self.page, self.url, self.studio = page, url, studio

    def new(self, template: str = "classification", name: str = "Birds", images: int = 0) -> None:
        """Create a draft with `images` images, and open its set-up."""
        send = self.studio.commands.send
        study = send("create-study", {"title": name, "template": template})
        if images:
            send("draw-items", {"study": study, "count": images})
        self.page.goto(f"{self.url}study/{study}/")
        self.saved()  # no button works before the script has loaded

    @property
    def study(self) -> Study:
        """Return the saved study whose page is open."""
        return self.studio.workspace.studies.get(str(self.page.get_attribute("[data-study]", "data-study")))

    def saved(self) -> None:
        """Wait until the typed values are saved."""
        self.page.wait_for_function("() => window.study?.idle")

    def draw(self, count: int, verdict: str = "") -> None:
        """Draw `count` images into the draft."""
        self.page.select_option("[name='draw.verdict']", verdict)
        self.page.fill("[name='draw.count']", str(count))
        before = self.study.items
        self.page.click("#draw-now")
        expect(self.page.locator("#part-items")).not_to_have_attribute("data-items", str(before))
        self.saved()

    def confirm(self, button: str) -> str:
        """Press a button that asks for confirmation, and confirm. Return the text of the question."""
        self.page.click(button)
        return self.confirm_open()

    def confirm_open(self) -> str:
        """Confirm the open question. Return its text."""
        self.page.wait_for_selector("#confirm-go")
        said = self.page.inner_text("#confirm")
        self.page.click("#confirm-go")
        return said


@contextmanager
def second_window(page: Page) -> Iterator[Page]:
    other = page.context.new_page()
    yield other
    other.close()


def test_a_lead_sets_up_and_starts_a_study_and_invites(desk: Desk) -> None:
    page = desk.page
    open_start(page, desk.url)
    page.click("nav >> text=Study")
    page.click("#new-study")
    page.check("[value=classification]")
    page.click("#create")
    expect(page.locator("[data-problem=title]")).to_contain_text("name")
    page.fill("[name=title]", "Birds, November")
    page.press("[name=title]", "Enter")
    page.wait_for_selector("#setup")
    assert page.is_disabled("#start")
    desk.draw(20)
    desk.draw(5, "newly wrong,wrong")
    page.wait_for_selector("#start:enabled")
    assert "points" in page.inner_text("#part-plan")
    page.fill("[name=votes]", "3")
    page.fill("[name=consensus]", "2")
    desk.saved()
    page.wait_for_selector("#start:enabled")
    page.click("#start")
    page.click("#confirm-no")
    assert not page.is_visible("#confirm") and desk.study.state == "draft", "nothing is started without a yes"
    assert "25 images get 3 votes each" in desk.confirm("#start")
    page.wait_for_selector("#run")
    assert (desk.study.state, desk.study.items, desk.study.rules.votes) == ("running", 25, 3)
    desk.confirm("#link-on")
    page.wait_for_selector("#link")
    expect(page.locator("#link")).to_have_text(f"{desk.url}annotate/#join={desk.study.link}")
    page.fill("[name=codes]", "3")
    desk.confirm("#make-codes")
    page.wait_for_selector("#codes-table tbody tr:nth-child(3)")
    code = page.inner_text("#codes-table code >> nth=0")
    assert desk.studio.workspace.studies.workers.of_code(code) and page.is_visible("#print-codes")
    assert "print or copy them first" in desk.confirm("#pause"), "the codes go without a warning"
    page.wait_for_selector("#resume")
    assert not page.query_selector("#codes-table"), "codes are shown once"
    assert "print or copy them first" not in desk.confirm("#resume"), "there are no codes to lose"
    page.wait_for_selector("#pause")
    desk.confirm("#pause")
    page.wait_for_selector("#resume")
    page.goto(f"{desk.url}study/")
    assert "Birds, November" in page.inner_text(".study-line") and "paused" in page.inner_text(".study-line")


def test_reconstructions_are_drawn_only_when_their_recipe_is_chosen(desk: Desk) -> None:
    page = desk.page
    desk.new()
    expect(page.locator("#draw-note")).to_contain_text("48 fit. You ask for 100")
    expect(page.locator("#draw-note")).to_contain_text("2 reconstructions are left out: choose their recipe")
    desk.draw(100)
    assert desk.study.items == 48
    page.select_option("[name='draw.recipe']", label="Reconstruction")
    expect(page.locator("#draw-note")).to_contain_text("2 fit.")
    desk.draw(100)
    assert desk.study.items == 50


def test_a_draft_is_deleted_when_asked_twice(desk: Desk) -> None:
    page = desk.page
    desk.new(name="A mistake", images=10)
    page.click("#delete")
    page.click("#confirm-no")
    assert desk.study.name == "A mistake"
    address = page.url
    assert "its choice of 10 images" in desk.confirm("#delete")
    page.wait_for_url(f"{desk.url}study/")
    assert "A mistake" not in page.inner_text("main")
    page.goto(address)
    assert "Not there" in page.inner_text("main")


def test_what_is_typed_is_saved_and_mistakes_stay_beside_their_fields(desk: Desk) -> None:
    page = desk.page
    desk.new()
    page.fill("[name=votes]", "many")
    page.fill("[name=instructions]", "Look closely.")
    desk.saved()
    expect(page.locator("[data-problem=votes]")).not_to_be_empty()
    assert "except the marked fields" in page.inner_text("#saved")
    assert desk.study.rules.instructions == "Look closely." and desk.study.rules.votes == 5
    page.reload()
    expect(page.locator("[data-problem=votes]")).not_to_be_empty()
    assert page.input_value("[name=votes]") == "many" and page.input_value("[name=instructions]") == "Look closely."
    desk.draw(10)
    assert page.is_disabled("#start"), "a field that cannot be read stops the start, whatever else is done"
    page.click("#part-missing >> text=Votes an image")
    expect(page.locator("[name=votes]")).to_be_focused()
    page.fill("[name=votes]", "7")
    desk.saved()
    page.wait_for_selector("#start:enabled")
    page.reload()
    assert page.input_value("[name=votes]") == "7"


def test_what_is_typed_before_the_script_is_there_is_saved(desk: Desk) -> None:
    page, script = desk.page, HeldBack()
    desk.new()
    page.route("**/study-setup.js*", script)
    page.goto(page.url, wait_until="commit")
    page.fill("[name=consent]", "I agree.")
    page.wait_for_function("() => window.study")
    script.let_through()
    desk.saved()
    assert desk.study.rules.consent == "I agree."
    page.unroute("**/study-setup.js*")


def test_a_tick_that_is_set_while_its_part_is_drawn_anew_stays(desk: Desk) -> None:
    page, save = desk.page, HeldBack()
    desk.new("lance")
    answers = page.locator("[name='questions.0.valid']")
    first = answers.first.get_attribute("value")
    before = answers.first.is_checked()
    with routed(page, "**/save-draft", save):
        page.select_option("[name='questions.1.kind']", "text")  # the page builds the questions again
        page.wait_for_selector("#saved >> text=saving")
        page.locator("label.chip:has([name='questions.0.valid'])").first.click()
        save.let_through()
        expect(page.locator("[name='questions.1.valid']")).to_have_count(0)
        desk.saved()
        assert answers.first.is_checked() is not before
        assert (first in desk.study.rules.questions[0].valid) is not before


def test_what_was_typed_last_is_saved_when_the_page_is_left(desk: Desk) -> None:
    desk.new()
    desk.saved()
    address = desk.page.url
    desk.page.fill("[name=consent]", "I agree.")
    desk.page.goto(f"{desk.url}study/")
    desk.page.goto(address)
    expect(desk.page.locator("[name=consent]")).to_have_value("I agree.")
    desk.saved()
    assert desk.study.rules.consent == "I agree."


def test_who_comes_back_before_the_save_arrives_finds_what_was_typed(desk: Desk) -> None:
    """The save request on leaving the page is lost, as when a connection breaks."""
    page = desk.page
    desk.new()
    desk.saved()
    page.evaluate("() => { window.fetch = () => new Promise(() => {}); }")
    page.fill("[name=consent]", "I agree.")
    page.fill("[name=votes]", "many")
    page.reload()
    expect(page.locator("[name=consent]")).to_have_value("I agree.")
    expect(page.locator("[data-problem=votes]")).not_to_be_empty()
    desk.saved()
    assert desk.study.rules.consent == "I agree." and page.input_value("[name=votes]") == "many"
    assert not page.is_visible("#confirm")


def test_who_leaves_while_a_save_is_under_way_is_told_of_another_window(desk: Desk) -> None:
    page = desk.page
    desk.new()
    desk.saved()
    address = page.url
    page.evaluate("""() => {
      const send = window.fetch;
      window.fetch = (path, how) => how?.body?.includes("Late") ? send(path, how) : new Promise(() => {});
    }""")
    page.fill("[name=consent]", "Mine.")
    page.wait_for_selector("#saved >> text=saving")
    with second_window(page) as other:
        other.goto(address)
        other.fill("[name=votes]", "7")
        other.wait_for_function("() => window.study?.idle")
        page.fill("[name=consent]", "Late.")
        page.goto(f"{desk.url}study/")
        page.goto(address)
        page.wait_for_selector("#confirm >> text=another window")
    assert desk.study.rules.votes == 7 and desk.study.rules.consent != "Late.", "nothing is overwritten"
    assert page.input_value("[name=consent]") == "Late."


def test_a_double_click_removes_one_question(desk: Desk) -> None:
    page = desk.page
    desk.new("lance")
    questions = len(desk.study.rules.questions)
    desk.saved()
    page.evaluate("""() => {
      for (const time of [1, 2]) document.querySelector("[data-question=remove][data-place='0']").click();
    }""")
    page.wait_for_selector(f"[name='questions.{questions - 1}.text']", state="detached")
    desk.saved()
    assert len(desk.study.rules.questions) == questions - 1


def test_what_is_typed_while_a_question_moves_does_not_land_in_another(desk: Desk) -> None:
    page, move = desk.page, HeldBack()
    desk.new("lance")
    first, second = (question.text for question in desk.study.rules.questions[:2])
    with routed(page, "**/edit-questions", move):
        page.click("[data-question=up][data-place='1']")
        page.locator("[name='questions.1.text']").focus()
        page.keyboard.type("Too early. ")
        page.fill("[name=name]", "Birds, typed meanwhile")
        move.let_through()
        expect(page.locator("[name='questions.0.text']")).to_have_value(second)
        expect(page.locator("[name='questions.1.text']")).to_have_value(first)
        page.fill("[name='questions.1.text']", "Typed after it?")
        desk.saved()
        assert [question.text for question in desk.study.rules.questions[:2]] == [second, "Typed after it?"]
        assert desk.study.name == "Birds, typed meanwhile", "the rest of the form goes on meanwhile"


def test_who_moves_questions_by_keys_stays_at_them(desk: Desk) -> None:
    page = desk.page
    desk.new("lance")
    last = len(desk.study.rules.questions) - 1
    page.focus("[data-question=up][data-place='2']")
    page.keyboard.press("Enter")
    expect(page.locator("[data-question=up][data-place='1']")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("[data-question=down][data-place='0']")).to_be_focused()
    page.focus(f"[data-question=remove][data-place='{last}']")
    page.keyboard.press("Enter")
    expect(page.locator(f"[data-question=remove][data-place='{last - 1}']")).to_be_focused()
    page.focus("[data-template]")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"[name='questions.{last}.text']")
    expect(page.locator("[data-template]")).to_be_focused()


def test_questions_are_written_on_the_page(desk: Desk) -> None:
    page = desk.page
    page.goto(f"{desk.url}study/new")
    page.check("[value=own]")
    page.fill("[name=title]", HOSTILE)
    page.click("#create")
    page.wait_for_selector("#setup")
    desk.saved()
    assert page.inner_text("h1") == HOSTILE
    page.click("[data-question=add]")
    page.wait_for_selector("[name='questions.0.text']:focus")
    page.keyboard.type("Which weather does it show?")
    page.select_option("[name='questions.0.kind']", "choice")
    page.wait_for_selector("[name='questions.0.options']")
    page.fill("[name='questions.0.options']", f"sun\n{HOSTILE}")
    page.press("[name='questions.0.options']", "Tab")
    page.wait_for_selector("[name='questions.0.valid'] >> nth=1", state="attached")
    page.click("text=sun >> nth=-1")
    page.click("[data-question=add]")
    page.wait_for_selector("[name='questions.1.text']:focus")
    page.keyboard.type("Is it real?")
    page.click("[data-question-line='1'] summary")
    page.select_option("[name='questions.1.follows']", "0")
    page.wait_for_selector("[name='questions.1.follows_answer']")
    page.select_option("[name='questions.1.follows_answer']", HOSTILE)
    desk.saved()
    first, second = desk.study.rules.questions
    assert (first.text, first.options, first.id) == ("Which weather does it show?", ("sun", HOSTILE), "weather-show")
    assert first.valid == ("sun",)
    assert (second.text, second.follows, second.follows_answer) == ("Is it real?", first.id, HOSTILE)
    page.click("[data-question=up][data-place='1']")
    expect(page.locator("[name='questions.0.text']")).to_have_value("Is it real?")
    assert [question.follows for question in desk.study.rules.questions] == ["", ""]
    page.click("[data-question=remove][data-place='0']")
    page.wait_for_selector("[name='questions.1.text']", state="detached")
    assert [question.text for question in desk.study.rules.questions] == ["Which weather does it show?"]


def test_another_template_is_taken(desk: Desk) -> None:
    desk.new()
    desk.page.select_option("[name=template]", "lance")
    desk.page.click("[data-template]")
    desk.page.wait_for_selector("[name='questions.5.text']")
    assert desk.page.is_checked("[name=show_captions]") and desk.study.rules.template == "lance"
    assert "ethical concern" in desk.page.input_value("[name=instructions]")


def test_a_template_is_taken_once_more(desk: Desk) -> None:
    page = desk.page
    desk.new()
    asked = page.locator("[name='questions.0.text']")
    page.click("[data-template]")
    desk.saved()
    written = asked.input_value()
    for place in range(2):
        page.fill("[name='questions.0.text']", f"My own words, {place}?")
        desk.saved()
        page.click("[data-template]")
        expect(asked).to_have_value(written)
        desk.saved()
    page.fill("[name=votes]", "7")
    desk.saved()
    assert desk.study.rules.votes == 7 and desk.study.rules.questions[0].text == written


def test_an_image_is_looked_at_marked_and_removed(desk: Desk) -> None:
    page = desk.page
    desk.new(images=20)
    page.click(".item-thumb >> nth=0")
    page.click("[data-known=control]")
    expect(page.locator("[data-problem=expected]")).to_contain_text("right answer")
    page.select_option("[name='expected.valid']", "yes")
    page.click("[data-known=control]")
    expect(page.locator("#part-items")).to_have_attribute("data-items", "19")
    assert "1 given" in page.inner_text("#part-control")
    page.click(".item-thumb >> nth=0")
    page.click("[data-remove-item]")
    expect(page.locator("#part-items")).to_have_attribute("data-items", "18")
    page.click("[data-remove-group]")
    expect(page.locator("#part-items")).to_have_attribute("data-items", "0")
    assert page.is_disabled("#start")


def test_images_come_as_files(desk: Desk, tmp_path: Path) -> None:
    import io
    import zipfile

    from PIL import Image

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(3):
            picture = io.BytesIO()
            Image.new("RGB", (40, 40), (60 * number, 90, 120)).save(picture, "PNG")
            archive.writestr(f"bird/{number}.png", picture.getvalue())
    page = desk.page
    desk.new()
    page.click(".files summary")
    page.set_input_files("#bring", {"name": "birds.zip", "mimeType": "application/zip", "buffer": file.getvalue()})
    expect(page.locator("#part-items")).to_have_attribute("data-items", "3")
    assert desk.study.items == 3 and "3 images added" in page.inner_text("#bring-note")
    page.set_input_files("#bring", {"name": "no.png", "mimeType": "image/png", "buffer": b"no picture"})
    expect(page.locator("[data-problem=bring]")).not_to_be_empty()
    assert desk.study.items == 3


def test_an_example_is_picked_and_explained(desk: Desk) -> None:
    page = desk.page
    desk.new(images=10)
    page.click("[data-example-pick]")
    page.wait_for_selector("[data-example-add]")
    names = page.locator("[data-example-add]").evaluate_all("all => all.map((one) => one.ariaLabel)")
    assert names and all(names) and len(set(names)) == len(names), "pictures to pick from have names"
    page.click("[data-example-add] >> nth=0")
    page.fill("[name='examples.0.answer']", "yes")
    page.fill("[name='examples.0.why']", "it has wings")
    desk.saved()
    assert [(one.answer, one.why) for one in desk.study.rules.examples] == [("yes", "it has wings")]
    page.click("[data-example-remove]")
    page.wait_for_selector("[name='examples.0.why']", state="detached")


def test_the_preview_is_the_annotators_page_and_records_nothing(desk: Desk) -> None:
    page = desk.page
    desk.new(images=10)
    page.fill("[name=quiz]", "0")
    page.fill("[name=min_finished]", "0")
    desk.saved()
    study = desk.study
    page.goto(f"{desk.url}study/{study.id}/preview")
    page.click("text=I agree")
    page.wait_for_selector("text=nothing is recorded")
    for place in range(1, 4):
        page.wait_for_selector(f"text=Image {place} of")
        page.wait_for_selector(".judge[aria-busy=false]")
        page.keyboard.press("y" if place % 2 else "n")
    page.wait_for_selector("text=Image 4 of")
    after = desk.studio.workspace.studies.get(study.id)
    assert (after.votes, after.workers, after.state) == (0, 0, "draft")


def test_a_second_window_is_told_instead_of_overwriting(desk: Desk) -> None:
    page = desk.page
    desk.new()
    with second_window(page) as other:
        other.goto(page.url)
        other.fill("[name=votes]", "7")
        other.wait_for_function("() => window.study.idle")
        page.fill("[name=consent]", "Mine.")
        page.wait_for_selector("#confirm >> text=another window")
    expect(page.locator("#saved")).to_contain_text("not saved")
    assert desk.study.rules.votes == 7
    assert page.input_value("[name=consent]") == "Mine."


def test_a_study_is_extended_and_closed(desk: Desk) -> None:
    page = desk.page
    desk.new(images=10)
    page.wait_for_selector("#start:enabled")
    desk.confirm("#start")
    page.wait_for_selector("#run")
    page.fill("[name='more.votes']", "4")
    page.click("#more-votes")
    expect(page.locator("[data-problem='more.votes']")).to_contain_text("can only be raised")
    page.fill("[name='more.votes']", "7")
    page.fill("[name='more.consensus']", "5")
    assert "20 more votes" in desk.confirm("#more-votes")
    page.wait_for_selector("text=Rules, version 2")
    page.fill("[name='draw.count']", "6")
    assert "6 images drawn at random" in desk.confirm("#draw-now")
    page.wait_for_selector("text=0 of 112 votes")
    assert "for good" in desk.confirm("#close")
    page.wait_for_selector("#state:has-text('closed')")
    assert desk.study.state == "closed" and not page.query_selector("#link-on, #make-codes, #more-votes")


def test_a_form_that_is_sent_before_the_script_is_there_keeps_what_was_typed(desk: Desk) -> None:
    page, script = desk.page, HeldBack()
    page.route("**/lead.js*", script)
    page.goto(f"{desk.url}study/new", wait_until="commit")
    page.fill("[name=title]", "Typed at once")
    page.press("[name=title]", "Enter")
    page.click("#create")
    assert page.input_value("[name=title]") == "Typed at once"
    script.let_through()
    page.wait_for_selector("#setup")
    expect(page.locator("[name=name]")).to_have_value("Typed at once")
    page.unroute("**/lead.js*")
    assert [study.name for study in desk.studio.workspace.studies.all()].count("Typed at once") == 1


def test_a_button_that_is_pressed_before_the_script_is_there_does_what_it_says(desk: Desk) -> None:
    page, script = desk.page, HeldBack()
    desk.new(images=10)
    page.wait_for_selector("#start:enabled")
    page.route("**/study-acts.js*", script)
    page.goto(page.url, wait_until="commit")
    page.click("#start")
    assert not page.query_selector("#confirm-go")
    script.let_through()
    assert "10 images get" in desk.confirm_open()
    page.wait_for_selector("#run")
    page.unroute("**/study-acts.js*")


def test_no_page_is_wider_than_its_window(desk: Desk) -> None:
    page = desk.page

    def fits() -> None:
        for width in (390, 1280, 1920):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{page.url} at {width}"

    for address in ("", "new"):
        page.goto(f"{desk.url}study/{address}")
        fits()
    desk.new(name=HOSTILE, images=12)
    fits()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.wait_for_selector("#start:enabled")
    desk.confirm("#start")
    page.wait_for_selector("#run")
    fits()


def test_light_and_dark_are_one_choice_for_all_pages(desk: Desk) -> None:
    page = desk.page
    open_start(page, desk.url)
    dark = bool(page.evaluate("document.body.classList.contains('dark')"))
    page.click("[data-theme-switch]")
    for address in ("study/", "study/new"):
        page.goto(f"{desk.url}{address}")
        assert page.evaluate("document.documentElement.classList.contains('dark')") is not dark
    page.click("[data-theme-switch]")
    page.goto(f"{desk.url}study/")
    assert page.evaluate("document.documentElement.classList.contains('dark')") is dark
    page.evaluate("localStorage.removeItem('studio-theme')")
