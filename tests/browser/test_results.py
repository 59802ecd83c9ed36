"""Results in Chromium: views, checks, the model under test before and after, review, and every key."""

from __future__ import annotations

import re
import threading

import pytest
from PIL import Image
from playwright.sync_api import Page, expect

from core.errors import UserError
from core.settings import UnderTestSettings
from services.studio import Studio
from tests.services.runs.test_predictions import Bright
from tests.support.browser import settled
from tests.support.explorer import (
    EVERY_PLACE,
    Served,
    choose_a_model_that_is_none,
    draw,
    encoded,
    fill,
    held_drawing,
    look,
    one_server,
    open_run,
    shows_every_check,
    text_run,
)
from tests.support.model_cases import MEAN, STD
from tests.support.routing import HeldBack
from tests.support.scripted import noise
from tests.support.serving import until

SOON = 60_000
"""Maximum number of milliseconds for background work of the worker. Other background work may come first."""


PLACES = """[...document.querySelectorAll('#viewer :is(.pane, .verdict-line, .checks, .review)')].map((part) => {
  const { x, y, width, height } = part.getBoundingClientRect(); return [x, y, width, height].map(Math.round); })"""
"""JavaScript: positions and sizes of the pictures and of the parts below them."""

PICTURES = re.compile(r"/(images|masks|control)/")

MISSING = """[...document.querySelectorAll('.studio img')].filter(
  (one) => one.checkVisibility() && !(one.complete && one.naturalWidth)).map((one) => one.outerHTML)"""
"""JavaScript: markup of the pictures that have not loaded."""


COVERED = """[...document.querySelectorAll("button, input, textarea, a, summary")].filter((one) => {
  const line = document.getElementById("said"), over = line.getBoundingClientRect(), at = one.getBoundingClientRect();
  if (!over.width || line.contains(one) || !one.checkVisibility()) return false;
  return at.left < over.right && over.left < at.right && at.top < over.bottom && over.top < at.bottom;
}).map((one) => one.outerHTML)"""
"""JavaScript: markup of controls under the message that reports finished work."""

WIDTHS = (
    """[1, 2].map(() => { document.body.classList.toggle('all-open'); return document.documentElement.scrollWidth; })"""
)


def load(wanted: UnderTestSettings) -> Bright:
    if wanted.name == "resnet5":
        raise UserError("There is no classifier or segmenter 'resnet5' in torchvision: perhaps you mean resnet50.")
    return Bright("classification", wanted.title)


served = one_server()


@pytest.fixture
def studio(served: Served, request: pytest.FixtureRequest) -> Studio:
    """Page of a run with four results by stand-ins for the models."""
    behind, page = served.begin(request), served.page
    behind.predictions.load = load
    dark = noise("source", 1, (64, 64)).point(lambda value: value // 5)  # its control image has edges
    run_id = text_run(behind, dark)
    draw(behind, run_id)
    open_run(page, run_id)
    assert page.evaluate("studio.cases.length") == 4
    return behind


def press(page: Page, *keys: str) -> None:
    """Press keys while no field has the focus."""
    page.evaluate("document.activeElement?.blur()")
    for name in keys:
        page.keyboard.press(name)
        settled(page)


def shown(page: Page) -> int:
    """Return the id of the test case on the page."""
    return int(page.get_attribute(".pictures", "data-case") or 0)


def test_every_way_to_look_has_its_tab_and_its_key(studio: Studio, page: Page) -> None:
    tabs = page.locator(".tab").all_inner_texts()
    assert tabs == ["Result", "Slider", "Source", "Control", "Overlay", "Difference"]
    places = page.evaluate(PLACES)
    for number, name in enumerate(tabs, 1):
        press(page, str(number))
        expect(page.locator(".tab.on")).to_have_text(name)
        assert page.get_attribute(".tab.on", "aria-pressed") == "true"
        assert page.evaluate(PLACES) == places, "neither picture, nor anything below, moves"
        loaded = page.locator("#viewer .after img")
        for image in loaded.all():
            image.evaluate("image => image.decode()")
            assert image.evaluate("image => image.naturalWidth") == 64
        assert loaded.count() == (2 if name in ("Slider", "Difference") else 1)
    press(page, "7")
    expect(page.locator(".tab.on")).to_have_text("Difference")  # no mask, so there is no seventh view
    press(page, "2")
    press(page, "ArrowRight")
    expect(page.locator(".tab.on")).to_have_text("Slider")  # the next result keeps the view


def test_nothing_moves_when_the_pictures_come(served: Served, request: pytest.FixtureRequest) -> None:
    """Every element stays in its place, however late the pictures load."""
    behind, page = served.begin(request), served.page
    run_id = text_run(behind, Image.new("RGB", (96, 64), (40, 20, 20)))
    kept = {"kind": "segmentation", "label": "", "protected": ["road"]}
    behind.commands.send("task", {"run": run_id, **kept})
    behind.runs.give_mask(run_id, encoded(Image.new("L", (96, 64), 1)), "1 road")

    def nothing_moves(*clicked: str) -> None:
        held = HeldBack()
        page.route(PICTURES, held)
        try:
            page.reload(wait_until="commit")  # the load event waits for the pictures
            page.wait_for_selector("#run-all")
            settled(page)
            page.wait_for_function("!studio.predicting", timeout=SOON)
            for button in clicked:
                page.click(button)
            settled(page)
            until(lambda: page.evaluate("true") and held.waiting)
            assert page.evaluate(MISSING)
            before = page.evaluate(EVERY_PLACE)
            held.let_through()
            until(lambda: not page.evaluate(MISSING))
            moved = set(before) ^ set(page.evaluate(EVERY_PLACE))
            assert not moved, sorted(moved)
        finally:
            held.let_through()
            page.unroute(PICTURES)

    fill(behind, run_id)
    open_run(page, run_id)
    nothing_moves("#toggle-conditioning", "#source .overlay")
    draw(behind, run_id)
    look(page)
    page.wait_for_function("studio.cases.length > 0")
    nothing_moves()
    nothing_moves("#tile-difference", "#tool-zoom")
    page.click("#tool-zoom")


def test_a_whole_run_fits_one_screen_of_a_laptop(studio: Studio, page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.evaluate("document.body.classList.remove('all-open')")
    try:
        page.wait_for_function("!studio.predicting", timeout=SOON)
        assert page.evaluate("document.documentElement.scrollHeight") == 800, "nothing to scroll to"
        for part in (".before img", ".after img", "#model-verdict", "#checks", "#accept", "#reject", "#regenerate"):
            expect(page.locator(f"#viewer {part}").first).to_be_in_viewport(ratio=1)
        for part in ("#edit-caption", "#results .thumb >> nth=0", "#stage-counterfactuals .line >> nth=3", "#generate"):
            expect(page.locator(part)).to_be_in_viewport(ratio=1)
        what_was_done_covers_nothing(page)
        what_checks_say_is_a_word_at_first(studio, page)
        strip_and_queue_stand_beside_each_other(studio, page)
        # Controls that are rarely needed are a press away.
        prompt = page.locator("#stage-keywords [data-panel-of=prompt]")
        expect(prompt).to_be_hidden()
        page.click("#stage-keywords [data-more-of]")
        prompt.click()
        expect(page.locator("#stage-keywords pre.prompt").first).to_be_visible()
        page.click("#stage-keywords [data-more-of]")
        expect(page.locator("#stage-keywords pre.prompt").first).to_be_hidden()
        page.click("#tool-open")
        expect(prompt).to_be_visible()
    finally:
        page.set_viewport_size({"width": 1440, "height": 1000})
        page.evaluate("document.body.classList.add('all-open')")


def what_was_done_covers_nothing(page: Page) -> None:
    """The message with Undo and a long refusal cover no control."""
    press(page, "r", "1")
    press(page, "Control+z")
    expect(page.locator("#said")).to_contain_text("Taken back")
    expect(page.locator("#said-act")).to_be_in_viewport(ratio=1)
    assert page.evaluate(COVERED) == []
    assert page.evaluate("document.documentElement.scrollHeight") == 800, "it moves nothing"
    page.evaluate("studio.say('A long sentence of what was refused. '.repeat(20), 'bad')")
    assert page.evaluate(COVERED) == []
    page.click("#said button:has-text('Close')")
    assert page.evaluate("document.documentElement.scrollHeight") == 800


def what_checks_say_is_a_word_at_first(studio: Studio, page: Page) -> None:
    """Two captions fail many checks. The page shows a word for each, and the whole text on request."""
    run = page.evaluate("studio.run")
    for place, item in enumerate(studio.workspace.runs.get(run).values["counterfactuals"].value.value.items[:2]):
        wrong = f"{place} toys lie about. " * 9
        studio.commands.send("counterfactual-write", {"run": run, "place": place, "text": item.text, "new": wrong})
    look(page)
    line = page.locator("#stage-counterfactuals .line").first
    expect(line.locator(".unfold")).to_have_text("5 checks fail")
    settled(page)
    assert page.evaluate("document.documentElement.scrollHeight") == 800
    for fold in (line, page.locator("#gate-doubts")):
        said, opener = fold.locator(".said, ul"), fold.locator(".unfold")
        expect(said).to_be_hidden()
        opener.click()
        expect(said).to_be_visible()
        expect(said).to_contain_text("is not in the caption where")
        opener.click()
        expect(said).to_be_hidden()


def strip_and_queue_stand_beside_each_other(studio: Studio, page: Page) -> None:
    """While an image is drawn, results can be viewed and waiting images can be removed from the queue."""
    with held_drawing(studio):
        page.click("#generate")
        expect(page.locator("#queue .part.waiting").first.locator("button").last).to_be_in_viewport(ratio=1)
        for thumb in (page.locator("#results .drawing"), page.locator("#results [data-view-case]").last):
            expect(thumb).to_be_in_viewport(ratio=1)
            thumb.click()
    settled(page)


def test_a_phone_shows_all_of_a_run_and_no_word_widens_the_page(studio: Studio, page: Page) -> None:
    run, word = page.evaluate("studio.run"), "Donaudampfschifffahrtsgesellschaftskapitaen" * 2
    caption = f"A bird and a {word} in sunny weather. The {word} is red."
    for command, fields in (
        ("rename", {"title": word}),
        ("review", {"case": shown(page), "verdict": "rejected", "reason": word}),
        ("caption", {"text": caption}),
        ("keyword-add", {"new": word, "edit_type": "object"}),
        ("alternative-add", {"keyword": word, "new": f"{word}en"}),
        ("counterfactual-add", {"new": caption.replace("red", word)}),
        ("setting", {"setting": "generation.negative_prompt", "value": word}),
    ):
        studio.commands.send(command, {"run": run, **fields})
    page.set_viewport_size({"width": 390, "height": 844})
    try:
        look(page)
        expect(page.locator("#stage-alternatives .row-line", has_text=word)).to_be_visible()
        settled(page)
        page.evaluate("document.querySelectorAll('.stage').forEach((card) => { card.dataset.open = 'prompt'; })")
        assert page.evaluate(WIDTHS) == [390, 390], "with every setting in the open, and as it is at first"
        expect(page.locator(".after img").first).to_be_in_viewport(ratio=1)

        # A sample far below opens at the top of its page, and "Run all" leads to the next step.
        page.evaluate("studio.send({ name: 'new' })")
        page.locator(".sample").last.click()
        page.wait_for_selector("#run-all:enabled")
        settled(page)
        assert page.evaluate("scrollY") == 0
        page.click("#run-all")
        page.wait_for_selector("#generate:enabled")
        expect(page.locator("#generate")).to_be_in_viewport(ratio=1)
    finally:
        page.set_viewport_size({"width": 1440, "height": 1000})


def test_full_window_with_the_same_ways_to_look(studio: Studio, page: Page) -> None:
    press(page, "f")
    box = page.locator("#viewer").bounding_box()
    assert box is not None and (box["width"], box["height"]) == (1440, 1000)
    expect(page.locator("#tool-full")).to_have_attribute("aria-pressed", "true")
    press(page, "2")
    expect(page.locator(".tab.on")).to_have_text("Slider")
    expect(page.locator("#accept")).to_be_in_viewport()
    first = shown(page)
    press(page, "ArrowRight")
    assert shown(page) != first
    press(page, "Escape")
    box = page.locator("#viewer").bounding_box()
    assert box is not None and box["width"] < 900
    press(page, "z")
    assert page.locator("#viewer .after img").first.evaluate("image => image.clientWidth") == 64
    press(page, "z")
    expect(page.locator("#beside-source")).to_be_visible()
    press(page, "b")
    expect(page.locator("#beside-source")).to_be_hidden()
    press(page, "b")


def test_accept_reject_and_take_back_by_keys(studio: Studio, page: Page) -> None:
    newest = shown(page)
    expect(page.locator("#results-count")).to_have_text("4 results")
    press(page, "a")
    expect(page.locator("#verdict")).to_have_text("accepted")
    expect(page.locator("#results-count")).to_have_text("4 results, 1 accepted")
    expect(page.locator(f"[data-view-case='{newest}'] .badge")).to_have_text("accepted")

    press(page, "ArrowRight", "r")
    expect(page.locator(".why")).to_be_visible()
    press_digit_in_the_open_form(page)
    expect(page.locator("#verdict")).to_have_text("rejected: edit does not show")
    expect(page.locator(".why")).to_be_hidden()
    expect(page.locator("#results-count")).to_have_text("4 results, 1 accepted, 1 rejected")

    # A reason in the user's own words is text, never markup. Letters typed in a field are no keys.
    reason = "<img src=x onerror=alert(1)> su f?"
    press(page, "ArrowRight", "r")
    page.click(".why input")
    page.keyboard.type(reason)
    page.keyboard.press("Enter")
    expect(page.locator("#verdict")).to_have_text(f"rejected: {reason}")
    assert page.locator("#verdict img").count() == 0
    assert page.locator("#keys-window").is_hidden() and len(page.evaluate("studio.cases")) == 4

    page.reload()
    page.wait_for_selector("#results-count")
    settled(page)
    expect(page.locator("#results-count")).to_have_text("4 results, 1 accepted, 2 rejected")
    expect(page.locator("#verdict")).to_have_text(f"rejected: {reason}")  # the reload kept this result open
    press(page, "u")
    expect(page.locator("#results-count")).to_have_text("4 results, 1 accepted, 1 rejected")
    expect(page.locator("#accept")).to_be_visible()
    press(page, "r", "Escape")
    expect(page.locator(".why")).to_be_hidden()


def test_a_verdict_leads_on_and_the_strip_shows_what_is_asked_for(studio: Studio, page: Page) -> None:
    run_id, order = page.evaluate("studio.run"), page.evaluate("studio.strip")
    page.check("#go-on-next")
    press(page, "a")
    assert shown(page) == order[1], "on to the next one that is not reviewed"
    press(page, "ArrowRight", "a")
    assert shown(page) == order[3]
    press(page, "n")
    assert shown(page) == order[1], "from the start again after the last"
    page.reload()
    page.wait_for_selector("#review")
    settled(page)
    expect(page.locator("#go-on-next")).to_be_checked()
    page.uncheck("#go-on-next")

    page.click(".filters [data-key=only-unreviewed]")
    settled(page)
    strip = page.locator("#results [data-view-case]")
    assert strip.evaluate_all("all => all.map((one) => Number(one.dataset.viewCase))") == [order[1], order[3]]
    assert shown(page) == order[1], "what is shown is among them"
    press(page, "ArrowRight")
    assert shown(page) == order[3]
    press(page, "r", "2", "n")
    assert shown(page) == order[1] and strip.count() == 1
    press(page, "a")
    expect(page.locator("#none-of-them")).to_be_visible()
    expect(page.locator("#next-unreviewed")).to_be_disabled()
    page.click(".filters [data-key=only-unreviewed]")
    expect(strip).to_have_count(4)
    verdicts = {case.id: case.review.verdict for case in studio.workspace.runs.get(run_id).test_cases if case.review}
    assert verdicts == {order[0]: "accepted", order[1]: "accepted", order[2]: "accepted", order[3]: "rejected"}


def press_digit_in_the_open_form(page: Page) -> None:
    page.keyboard.press("2")
    settled(page)


def test_again_with_a_new_seed_and_again_from_its_caption(studio: Studio, page: Page) -> None:
    run_id = page.evaluate("studio.run")
    before = studio.workspace.runs.get(run_id).test_cases
    press(page, "ArrowRight")
    press(page, "s")
    page.wait_for_function("studio.cases.length === 5")
    settled(page)
    new = studio.workspace.runs.get(run_id).test_cases[-1]
    assert new.lineage.counterfactual.text == before[-2].lineage.counterfactual.text
    assert new.lineage.seed not in {case.lineage.seed for case in before}
    assert shown(page) == new.id

    press(page, "e")
    line = page.locator("#stage-counterfactuals .line[data-editing]")
    expect(line.locator("textarea")).to_be_focused()
    assert line.locator("textarea").input_value() == new.lineage.counterfactual.text
    page.keyboard.press("Control+A")
    page.keyboard.type("A red bird at sea, as far as I can see.")
    page.keyboard.press("Enter")
    settled(page)
    expect(page.locator("#checks")).to_contain_text("of an earlier caption")
    assert all(case.review is None for case in studio.workspace.runs.get(run_id).test_cases), (
        "an A in a text accepts nothing"
    )

    # The caption of this result is gone: the field for the user's own caption opens with its words.
    press(page, "e")
    expect(page.locator(".add-caption textarea")).to_have_value(new.lineage.counterfactual.text)
    page.keyboard.press("Escape")

    # Away from the gate, G opens a question. A second G or Enter confirms it.
    press(page, "g")
    expect(page.locator("#ask-generate")).to_contain_text("generate now?")
    press(page, "Escape")
    expect(page.locator("#ask-generate")).to_be_hidden()
    assert not studio.jobs.active()
    press(page, "g", "g")
    page.wait_for_function("studio.cases.length > 5")
    settled(page)


def test_every_key_is_listed_under_the_question_mark_and_every_check_explained(studio: Studio, page: Page) -> None:
    press(page, "?")
    window = page.locator("#keys-window")
    expect(window).to_be_visible()
    listed = {text.strip() for text in window.locator("kbd").all_inner_texts()}
    assert {*"ARUSENBFZG12345678", "?", "Esc", "→", "←", "Ctrl"} <= listed
    assert window.locator("h3").count() >= 3
    press(page, "a")
    assert page.locator("#verdict").count() == 0, "the window is open: its keys are only shown"
    page.keyboard.press("Escape")
    expect(window).to_be_hidden()
    page.click("#keys-button")
    expect(window).to_be_visible()
    page.click("#keys-window [data-close-window]")
    expect(window).to_be_hidden()

    # The window explains each check too. Not only colour tells checks apart.
    pills = page.locator("#checks .pill")
    shows_every_check(page)
    assert pills.locator("svg").count() == pills.count()
    begins = {"passed": "Passed.", "failed": "Failed.", "cannot tell": "Cannot tell here."}
    for pill in pills.all():
        assert (pill.get_attribute("title") or "").startswith(begins[pill.get_attribute("data-outcome") or ""])
    edit = pills.filter(has_text="edit visible")
    assert "fits its new caption" in (edit.get_attribute("title") or ""), "what it looks at"
    edit.click()
    expect(page.locator("#keys-window #explains-edit-shows")).to_be_in_viewport()
    page.keyboard.press("Escape")


def test_the_model_under_test_before_and_after_and_another_one(studio: Studio, page: Page) -> None:
    expect(page.locator("#guesses")).to_be_visible(timeout=SOON)
    page.wait_for_function("!studio.predicting", timeout=SOON)
    source = page.locator("[data-side=source] li")
    assert source.first.inner_text().split() == ["bird", "0.90"] and "right" in (
        source.first.get_attribute("class") or ""
    )
    assert page.locator("[data-side=generated] li").count() == 2

    choose_a_model_that_is_none(page, SOON)
    page.click("#choose-model summary")
    page.fill("#choose-model [name=model]", "resnet50")
    page.press("#choose-model [name=model]", "Enter")
    expect(page.locator("#under-test-name")).to_have_text("resnet50 of torchvision")
    expect(page.locator("#guesses")).to_be_visible(timeout=SOON)
    assert page.locator("#stage-counterfactuals .pill.warn", has_text="stale").count() == 0


def test_an_onnx_file_is_told_how_it_wants_its_images(studio: Studio, page: Page) -> None:
    expect(page.locator("#guesses")).to_be_visible(timeout=SOON)
    form = page.locator("#choose-model")
    page.click("#choose-model summary")

    def shown() -> list[str]:
        return [str(one.get_attribute("name")) for one in form.locator("[name]").all() if one.is_visible()]

    assert shown() == ["source"]
    form.locator("[name=source]").select_option("timm")
    assert shown() == ["source", "model"]
    form.locator("[name=model]").fill("typed for another kind")
    form.locator("[name=source]").select_option("onnx")
    assert shown() == ["source", "file", "mean", "std", "size", "layout", "classes"]
    typed = {"file": "/models/street.onnx", "mean": "0.4, 0.5", "std": STD, "size": "32x24", "classes": "a, b"}
    for name, text in typed.items():
        form.locator(f"[name={name}]").fill(text)
    form.locator("[name=layout]").select_option("channels last")
    page.click("#choose-model [data-submit]")
    refused = form.locator(".field-row", has=page.locator("[name=mean]")).locator(".refusal")
    expect(refused).to_contain_text("a number for each of three channels")
    form.locator("[name=mean]").fill(MEAN)
    expect(refused).to_have_count(0)
    page.press("#choose-model [name=mean]", "Enter")
    expect(page.locator("#under-test-name")).to_have_text("street.onnx")
    wanted = studio.states.of(str(page.evaluate("studio.run"))).settings.under_test
    assert wanted.model_dump() == {
        **UnderTestSettings(source="onnx", layout="channels last").model_dump(),
        **typed,
        "mean": MEAN,
    }
    page.click("#choose-model summary")
    assert form.locator("[name=mean]").input_value() == MEAN, "the form shows what is chosen"
    assert form.locator("[name=layout]").input_value() == "channels last"


def test_a_choice_and_the_field_that_is_typed_in_stay_while_the_page_is_drawn_anew(
    studio: Studio, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect(page.locator("#guesses")).to_be_visible(timeout=SOON)
    answer, predict = threading.Event(), Bright.predict
    monkeypatch.setattr(Bright, "predict", lambda model, image: answer.wait(60) and predict(model, image))
    try:
        page.click("#regenerate")
        expect(page.locator("#under-test-waits")).to_be_visible()
        settled(page)
        source, path = page.locator("#choose-model [name=source]"), page.locator("#choose-model [name=file]")
        page.click("#choose-model summary")
        source.select_option("file")
        path.click()
        page.keyboard.type("/d")
    finally:
        answer.set()
    expect(page.locator("#guesses")).to_be_visible(timeout=SOON)
    expect(source).to_have_value("file")
    expect(path).to_be_focused()
    page.keyboard.type("ata")  # outside a field, the key "a" accepts
    settled(page)
    expect(path).to_have_value("/data")
    assert page.locator("#verdict").count() == 0

    page.keyboard.press("Escape")
    source.focus()
    page.keyboard.press("Escape")
    expect(source).to_have_value("profile")
