"""The cards of the text stages in Chromium: their values, edits in spite of a check, more values, undo, two pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from core.types import Keyword
from pipeline.models.server import ServerFault
from services.studio import Studio
from tests.support.browser import settled
from tests.support.explorer import Served, look, one_server, open_run, state, text_run
from tests.support.scripted import SUNNY_BIRD, ScriptedCaptioner, ScriptedLanguageModel, ScriptedModels, answer

FIRST, SECOND = "Name what may change ($task): $caption", "What else could this be ($task)? $caption"
DESERT = "A red bird in a desert in sunny weather by day. The bird sits on a twig. The ground is grassy."


class OtherCaptioner(ScriptedCaptioner):
    """Captioner that gives another caption when it is asked again."""

    def caption(self, image: object, task: object, settings: object, seed: int) -> tuple[str, str]:
        self.calls += 1
        return (SUNNY_BIRD.replace("grassy", f"sandy {seed}") if self.calls > 1 else SUNNY_BIRD), ""


def reply(prompt: str) -> str:
    """Reply like `answer`, with a colour close to red; if asked for more alternatives of red, with other colours."""
    if prompt.rstrip().endswith("Keywords: red\nReply:"):
        return "red: blue, crimson, golden, violet"
    if "Please" in prompt:
        return "I would rather not."
    return answer(prompt).replace("red: blue, green, white", "red: blue, crimson, green")


class TextModels(ScriptedModels):
    """Stand-ins for the models whose replies contain something to flag."""

    def __init__(self) -> None:
        super().__init__(ScriptedLanguageModel(reply))
        self.captioner = OtherCaptioner()


served = one_server(TextModels)


@pytest.fixture
def studio(served: Served, request: pytest.FixtureRequest) -> Studio:
    """New run of a bird, at the gate."""
    behind = served.begin(request)
    models: Any = behind.driver.models
    models.captioner.calls = 0
    open_run(served.page, text_run(behind))
    return behind


@pytest.fixture
def other(studio: Studio, page: Page) -> Iterator[Page]:
    """Second page on the same run."""
    opened = page.context.new_page()
    opened.goto(page.url)
    opened.wait_for_selector("#generate")
    settled(opened)
    yield opened
    opened.close()


def run_of(page: Page) -> str:
    return str(page.evaluate("studio.run"))


def chip(page: Page, stage: str, text: str) -> Locator:
    return page.locator(f"#stage-{stage} .chip:has(.toggle[data-text='{text}'])")


def keyword_chip(page: Page, text: str) -> Locator:
    return chip(page, "keywords", text)


def add_keyword(page: Page, text: str) -> None:
    add = page.locator("#stage-keywords .chip.add")
    add.locator(".toggle").click()
    add.locator(".pop input").fill(text)
    add.locator(".pop input").press("Enter")


def test_a_card_says_its_state_as_icon_word_and_colour(studio: Studio, page: Page) -> None:
    for stage in ("caption", "keywords", "alternatives", "counterfactuals"):
        pill = page.locator(f"#state-{stage}")
        expect(pill).to_have_text("ready")
        expect(pill.locator("svg")).to_have_count(1)
        assert "scripted" in page.inner_text(f"#stage-{stage} .meta") and " s" in page.inner_text(
            f"#stage-{stage} .meta"
        )
    keyword_chip(page, "grassy").locator(".toggle").click()
    expect(page.locator("#state-keywords")).to_have_text("edited by you")
    expect(page.locator("#state-alternatives")).to_contain_text("stale: the keywords were changed")
    assert page.locator("#state-alternatives svg").inner_html() != page.locator("#state-keywords svg").inner_html()
    page.click("#from-alternatives")
    settled(page)
    assert state(page, "alternatives") == state(page, "counterfactuals") == "ready"


HELD_BACK = """() => {
    const ask = window.fetch, gate = new Promise((open) => { window.letThrough = open; });
    window.answered = false;
    window.fetch = async (...given) => {
        const reply = await ask(...given);
        if (String(given[1]?.body).includes("grassy")) { window.answered = true; await gate; }
        return reply;
    }
}"""
"""JavaScript: hold back the reply to ticking the keyword "grassy" until `letThrough` is called."""


@pytest.fixture
def left(studio: Studio, page: Page) -> Iterator[None]:
    """Leave the page at the end, since its mouse button may still be down."""
    yield
    page.goto("about:blank")


def test_nothing_changes_under_a_pressed_pointer(left: None, studio: Studio, page: Page) -> None:
    page.evaluate(HELD_BACK)
    toggle = keyword_chip(page, "grassy").locator(".toggle")
    toggle.click()
    page.wait_for_function("window.answered")
    page.mouse.move(4, 500)
    page.mouse.down()
    page.evaluate("window.letThrough()")
    page.wait_for_function("studio.held")
    items = studio.workspace.runs.get(run_of(page)).values["keywords"].value.value.items
    assert [item.used for item in items].count(False) == 1
    assert toggle.get_attribute("aria-pressed") == "true", "the reply has come, and waits"
    page.mouse.up()
    expect(toggle).to_have_attribute("aria-pressed", "false")
    settled(page)

    # Releasing the button does not end a press that follows at once.
    page.evaluate(HELD_BACK)
    toggle.click()
    page.wait_for_function("window.answered")
    page.evaluate(
        """() => { for (const name of ["pointerdown", "pointerup", "pointerdown"])
            document.dispatchEvent(new PointerEvent(name, { button: 0 })); }"""
    )
    page.evaluate("window.letThrough()")
    page.wait_for_function("studio.held")
    assert toggle.get_attribute("aria-pressed") == "false"
    page.evaluate("document.dispatchEvent(new PointerEvent('pointerup', { button: 0 }))")
    expect(toggle).to_have_attribute("aria-pressed", "true")


def test_run_from_here_runs_this_stage_anew_and_only_what_it_outdates(studio: Studio, page: Page) -> None:
    before = studio.workspace.runs.get(run_of(page)).values
    page.click("#stage-alternatives button[data-do=run-from]")
    settled(page)
    after = studio.workspace.runs.get(run_of(page)).values
    assert after["alternatives"].id > before["alternatives"].id
    assert after["keywords"].id == before["keywords"].id, "what stands before it is not touched"
    assert after["counterfactuals"].id == before["counterfactuals"].id, "the same alternatives outdate nothing"


def test_caption_again_says_something_else_and_protected_words_are_marked(studio: Studio, page: Page) -> None:
    assert page.locator("#stage-caption mark").all_inner_texts() == ["bird", "bird"]
    caption = page.input_value("#caption-text")
    page.click("#run-caption")
    settled(page)
    assert page.inner_text("#run-caption") == "Caption again"
    assert page.input_value("#caption-text") != caption
    page.fill("#caption-text", "Something red.")
    page.press("#caption-text", "Enter")
    expect(page.locator("#stage-caption")).to_contain_text("does not name the label")


def test_a_protected_word_is_refused_with_the_reason_and_taken_when_a_person_insists(
    studio: Studio, page: Page
) -> None:
    add_keyword(page, "bird")
    expect(page.locator("#problem-keywords")).to_contain_text("protected by the task")
    page.click("#force-keywords")
    expect(keyword_chip(page, "bird")).to_contain_text("forced")
    expect(page.locator("#problem-keywords")).to_have_count(0)
    value = studio.workspace.runs.get(run_of(page)).values["keywords"].value.value
    assert Keyword("bird", "attribute", forced=True) in value.items, "it is recorded"
    page.click("#from-alternatives")
    settled(page)
    expect(page.locator("#state-alternatives")).to_have_text("ready")
    line = page.locator("#stage-counterfactuals .line", has_text="bird → ")
    expect(line.first).to_contain_text("protected word forced")
    assert "label lost" not in line.first.inner_text()


def test_alternatives_that_come_too_close_are_flagged_by_a_threshold_that_can_be_moved(
    studio: Studio, page: Page
) -> None:
    crimson = chip(page, "alternatives", "crimson")
    expect(crimson).to_contain_text("1.00 like “red”")
    expect(crimson.locator(".toggle")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#flagged")).to_have_text("1 flagged")
    asked = len(studio.driver.models.language.prompts)  # type: ignore[attr-defined]
    page.fill("#too-close", "-1")
    page.press("#too-close", "Enter")
    expect(chip(page, "alternatives", "blue")).to_contain_text("like “red”")
    expect(page.locator("#state-alternatives")).to_have_text("ready")
    page.fill("#too-close", "0.2")
    page.press("#too-close", "Enter")
    expect(page.locator("#flagged")).to_have_text("1 flagged")
    assert len(studio.driver.models.language.prompts) == asked, "no model was asked"  # type: ignore[attr-defined]
    crimson.locator(".toggle").click()
    expect(crimson.locator(".toggle")).to_have_attribute("aria-pressed", "true")

    # The similarity of an alternative that a person writes is measured after it is saved.
    row = page.locator("#stage-alternatives .row-line").first
    row.locator(".add .toggle").click()
    row.locator(".add .pop input").fill("deep crimson")
    row.locator(".add .pop input").press("Enter")
    expect(chip(page, "alternatives", "deep crimson")).to_contain_text("like “red”")


def test_more_is_asked_for_and_what_is_there_stays(studio: Studio, page: Page) -> None:
    row = page.locator("#stage-alternatives .row-line").first
    row.locator(".add .toggle").click()
    row.locator(".add .pop input").fill("my own colour")
    row.locator(".add .pop input").press("Enter")
    expect(row).to_contain_text("my own colour")
    settled(page)
    row.locator("button.ask").click()
    expect(row).to_contain_text("violet")
    settled(page)
    texts = row.locator(".toggle[data-text]").evaluate_all("chips => chips.map(chip => chip.dataset.text)")
    assert texts[:4] == ["blue", "crimson", "green", "my own colour"] and set(texts[4:]) == {"golden", "violet"}
    row.locator("button.ask").click()
    expect(page.locator("#problem-alternatives")).to_contain_text("has no alternative that is new")


def test_counterfactual_captions_show_their_edits_their_checks_and_what_contradicts(studio: Studio, page: Page) -> None:
    line = page.locator("#stage-counterfactuals .line").first
    expect(line.locator("del").first).to_be_visible()
    assert " → " in line.locator(".edits").inner_text()
    expect(line).to_contain_text("label kept")
    expect(line).to_contain_text("nothing else changed")

    line.locator(".diff").click()
    line.locator("textarea").fill("A blue bird in snowy weather by day. The bird sits in a desert.")
    line.locator("textarea").press("Enter")
    expect(line).to_contain_text("contradiction")
    expect(line).to_contain_text("“snowy” and “desert” do not go together")

    # Two captions that become the same are merged, with the edits of both.
    number = page.locator("#stage-counterfactuals .line").count()
    other = page.locator("#stage-counterfactuals .line").nth(1)
    other.locator(".diff").click()
    other.locator("textarea").fill("A blue bird in snowy weather by day. The bird sits in a desert.")
    other.locator("textarea").press("Enter")
    expect(page.locator("#stage-counterfactuals .line")).to_have_count(number - 1)


def test_a_click_into_the_caption_that_is_edited_in_place_keeps_it_open(studio: Studio, page: Page) -> None:
    line = page.locator("#stage-counterfactuals .line").first
    line.locator(".more").click()
    line.locator("textarea").click(position={"x": 60, "y": 12})
    expect(line.locator("textarea")).to_be_focused()
    page.keyboard.press("Control+End")
    page.keyboard.type(" It sings.")
    page.keyboard.press("Enter")
    expect(line.locator("ins").last).to_contain_text("It sings.")
    expect(line.locator("textarea")).to_be_hidden()


def test_what_it_was_told_is_one_click_away_and_its_prompt_can_be_edited_and_put_back(
    studio: Studio, page: Page
) -> None:
    page.click("#stage-keywords [data-panel-of=prompt]")
    expect(page.locator("#stage-keywords pre.prompt")).to_contain_text(SUNNY_BIRD)
    expect(page.locator("#stage-keywords pre.reply")).to_contain_text("red | attribute")
    template = page.locator("#template-keywords")
    original = template.input_value()
    save = page.locator("#stage-keywords .prompt-form [data-submit]")

    template.fill("Which words of $captoin may change for $task?")
    save.click()
    expect(page.locator("#stage-keywords .refusal")).to_contain_text("$captoin")
    template.fill("Which words may change for $task?")
    save.click()
    expect(page.locator("#stage-keywords .refusal")).to_contain_text("does not use $caption")
    assert not studio.workspace.runs.get(run_of(page)).prompts

    template.fill("Please\n")
    template.press("End")
    page.keyboard.type("Task: $task")
    page.keyboard.press("Enter")
    page.keyboard.type("Caption: $caption")
    save.click()
    expect(page.locator("#stage-keywords")).to_contain_text("prompt edited")
    expect(page.locator("#state-keywords")).to_have_text("stale: the prompt was changed after this was made")
    page.locator("#stage-keywords button[data-do=keep]").click()
    settled(page)
    page.click("#run-keywords")
    expect(page.locator("#problem-keywords")).to_contain_text("asked 4 times")
    settled(page)
    expect(page.locator("#stage-keywords pre.reply")).to_contain_text("I would rather not.")
    expect(page.locator("#stage-keywords pre.prompt")).to_contain_text("Please")
    page.locator("#stage-keywords button[data-do=prompt-back]").click()
    expect(template).to_have_value(original)
    assert not studio.workspace.runs.get(run_of(page)).prompts


def test_the_language_model_chooses_the_edits_by_a_prompt_of_its_own(studio: Studio, page: Page) -> None:
    card = page.locator("#stage-counterfactuals")
    page.click("#combinations-said")
    page.click("[data-key=combinations-model]")
    expect(card).to_contain_text("has no prompt for letting the model choose")
    page.click("#run-counterfactuals")
    expect(page.locator("#note-counterfactuals-0")).to_contain_text("The edits were spread evenly")
    expect(page.locator("#state-counterfactuals")).to_have_text("ready")

    page.click("#stage-counterfactuals [data-panel-of=prompt]")
    template = page.locator("#template-counterfactuals-edits")
    expect(template).to_have_value("")
    form = page.locator(".prompt-form", has=template)
    expect(form).to_contain_text("Prompt of this run: which edits go together")
    template.fill("$task $captoin")
    form.locator("[data-submit]").click()
    expect(form.locator(".refusal")).to_contain_text("$captoin")
    template.fill("Choose for $task.\nCaption: $caption\nAlternatives: $alternatives\nChanges:")
    form.locator("[data-submit]").click()
    expect(card).to_contain_text("prompt edited")
    expect(page.locator("#combinations-said")).to_contain_text("up to 4 captions: the language model chooses")
    expect(page.locator("#state-counterfactuals")).to_contain_text("stale: the prompt was changed")
    page.click("#run-counterfactuals")
    expect(page.locator("#combinations-said")).to_contain_text("1 of 8 combinations are captions")
    expect(page.locator("#note-counterfactuals-0")).to_have_count(0)
    expect(card.locator("pre.prompt").first).to_contain_text("Choose for image classification with the label bird.")
    settled(page)
    form.locator("[data-do=prompt-back]").click()
    expect(template).to_have_value("")
    assert not studio.workspace.runs.get(run_of(page)).prompts


def test_an_edit_is_undone_by_key_and_by_button_and_history_says_who(studio: Studio, page: Page) -> None:
    for word in ("red", "sunny"):
        keyword_chip(page, word).locator(".toggle").click()
        expect(keyword_chip(page, word).locator(".toggle")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("Control+z")
    expect(keyword_chip(page, "sunny").locator(".toggle")).to_have_attribute("aria-pressed", "true")
    expect(keyword_chip(page, "red").locator(".toggle")).to_have_attribute("aria-pressed", "false")
    expect(page.locator("#said")).to_contain_text("Taken back: the edit of “Keywords”.")
    page.click("#undo-keywords")
    expect(keyword_chip(page, "red").locator(".toggle")).to_have_attribute("aria-pressed", "true")
    for key, pressed in (("Control+Shift+Z", "false"), ("Control+z", "true"), ("Control+y", "false")):
        page.keyboard.press(key)
        expect(keyword_chip(page, "red").locator(".toggle")).to_have_attribute("aria-pressed", pressed)
    page.click("#said button:has-text('Undo')")
    expect(keyword_chip(page, "red").locator(".toggle")).to_have_attribute("aria-pressed", "true")
    page.click("#redo")
    expect(keyword_chip(page, "red").locator(".toggle")).to_have_attribute("aria-pressed", "false")
    page.click("#undo")
    expect(page.locator("#state-keywords")).to_have_text("ready")
    expect(page.locator("#undo-keywords")).to_have_count(0)
    assert "stale" not in page.inner_text("#column-stages")

    page.click("#stage-keywords [data-panel-of=history]")
    rows = page.locator("#stage-keywords .history tr")
    expect(rows).to_have_count(11)
    assert "you" in rows.nth(8).inner_text() and "restored" in rows.nth(0).inner_text()
    rows.nth(8).locator("button").click()  # back to the version with both keywords off
    expect(keyword_chip(page, "sunny").locator(".toggle")).to_have_attribute("aria-pressed", "false")

    # Ctrl+Z undoes a change to the run, also in a focused field. In a field that was typed in, it edits the text.
    page.click("#task-label")
    page.keyboard.press("Control+z")
    expect(keyword_chip(page, "sunny").locator(".toggle")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Control+y")
    expect(keyword_chip(page, "sunny").locator(".toggle")).to_have_attribute("aria-pressed", "false")
    page.click("#caption-text")
    page.keyboard.type(" more")
    page.keyboard.press("Control+z")
    expect(keyword_chip(page, "sunny").locator(".toggle")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("Escape")


def test_typing_goes_on_when_a_problem_of_its_card_is_solved_elsewhere(studio: Studio, page: Page, other: Page) -> None:
    caption = page.locator("#caption-text")
    caption.fill("")
    caption.press("Enter")
    expect(page.locator("#stage-caption .refusal")).to_be_visible()
    caption.click()
    page.keyboard.type("A red bi")
    other.fill("#caption-text", DESERT)
    other.press("#caption-text", "Enter")
    settled(other)
    look(page)
    expect(page.locator("#stage-caption .refusal")).to_have_count(0)
    expect(caption).to_be_focused()
    page.keyboard.type("rd, all of it.")
    expect(caption).to_have_value("A red bird, all of it.")
    page.keyboard.press("Escape")
    expect(caption).to_have_value(DESERT)


def test_two_pages_edit_the_same_stage_and_neither_is_lost(studio: Studio, page: Page, other: Page) -> None:
    page.click("#caption-text")
    page.keyboard.press("End")
    page.keyboard.type(" It sings.")
    other.fill("#caption-text", DESERT)
    other.press("#caption-text", "Enter")
    expect(other.locator("#state-caption")).to_have_text("edited by you")
    # The first page gets the change while its user is still typing.
    look(page)
    page.wait_for_function(f"document.querySelector('#caption-text').server === {json.dumps(DESERT)}")
    mine = page.input_value("#caption-text")
    assert mine.endswith("It sings."), "what is typed is not disturbed"
    page.keyboard.press("Enter")
    expect(page.locator("#notice-caption")).to_contain_text("changed elsewhere in the meantime")
    expect(page.locator("#caption-text")).to_have_value(mine)
    texts = [held.value.value.text for held in studio.workspace.runs.history(run_of(page), "caption")]
    assert texts[-2:] == [DESERT, mine], "both are in the history"

    # Changes of two pages to a list are both kept. A change that no longer fits is refused, and the typed text stays.
    other.bring_to_front()
    keyword_chip(other, "red").locator(".toggle").click()
    settled(other)
    page.bring_to_front()
    keyword_chip(page, "sunny").locator(".toggle").click()
    settled(page)
    items = studio.workspace.runs.get(run_of(page)).values["keywords"].value.value.items
    assert {item.text: item.used for item in items} == {"red": False, "sunny": False, "by day": True, "grassy": True}


def test_a_type_that_is_picked_stays_until_it_is_saved(studio: Studio, page: Page, other: Page) -> None:
    red, add = keyword_chip(page, "red"), page.locator("#stage-keywords .chip.add")
    red.locator(".more").click()
    red.locator(".pop select").select_option("weather")
    red.locator(".pop input").click()
    keyword_chip(other, "grassy").locator(".toggle").click()
    settled(other)
    look(page)
    expect(keyword_chip(page, "grassy").locator(".toggle")).to_have_attribute("aria-pressed", "false")
    expect(red.locator(".pop select")).to_have_value("weather")
    page.keyboard.press("Enter")
    expect(red.locator(".toggle small")).to_have_text("weather")
    settled(page)
    look(other)
    expect(keyword_chip(other, "red").locator(".pop select")).to_have_value("weather")

    # The form for a new keyword is empty again, like its text field.
    add.locator(".toggle").click()
    add.locator(".pop select").select_option("weather")
    add.locator(".pop input").fill("twig")
    add.locator(".pop input").press("Enter")
    expect(keyword_chip(page, "twig").locator(".toggle small")).to_have_text("weather")
    expect(add.locator(".pop select")).to_have_value("attribute")


def write_prompt(page: Page, text: str) -> None:
    page.fill("#template-keywords", text)
    page.click("#stage-keywords .prompt-form [data-submit]")


def test_of_two_settings_both_are_kept_and_the_later_page_is_told(studio: Studio, page: Page, other: Page) -> None:
    steps, guidance = "#setting-generation-steps", "#setting-generation-guidance"
    page.click(steps)
    page.keyboard.press("Control+a")
    page.keyboard.type("11")
    other.fill(steps, "7")
    other.press(steps, "Enter")
    settled(other)
    # The first page has the new value, but keeps what its user is typing. That replaces the value shown before.
    look(page)
    page.wait_for_function(f"document.querySelector('{steps}').server === '7'")
    expect(page.locator(steps)).to_have_value("11")
    page.keyboard.press("Enter")
    expect(page.locator("#notice-generation")).to_contain_text("steps to 7")
    expect(page.locator("#notice-generation")).to_contain_text("Yours was saved last")
    expect(page.locator(steps)).to_have_value("11")
    look(other)
    expect(other.locator(steps)).to_have_value("11")

    # This page has shown the change, so the next change causes no notice.
    other.fill(guidance, "4.5")
    other.press(guidance, "Enter")
    settled(other)
    expect(other.locator("#notice-generation")).to_have_count(0)
    run_id = page.evaluate("studio.run")
    drawing = studio.runs.settings(studio.workspace.runs.get(run_id)).generation
    assert (drawing.steps, drawing.guidance) == (11, 4.5)


def test_of_two_prompts_the_later_page_is_told_and_the_other_can_be_brought_back(
    studio: Studio, page: Page, other: Page
) -> None:
    for opened in (page, other):
        opened.click("#stage-keywords [data-panel-of=prompt]")
    page.fill("#template-keywords", SECOND)
    write_prompt(other, FIRST)
    settled(other)
    look(page)
    page.wait_for_function("text => document.querySelector('#template-keywords').server === text", arg=FIRST)
    expect(page.locator("#template-keywords")).to_have_value(SECOND)
    page.click("#stage-keywords .prompt-form [data-submit]")
    expect(page.locator("#notice-keywords")).to_contain_text("The prompt was changed elsewhere in the meantime")
    expect(page.locator("#template-keywords")).to_have_value(SECOND)

    earlier = page.locator("#earlier-prompts-keywords")
    earlier.locator("summary").click()
    expect(earlier.locator("pre")).to_have_text(FIRST)
    earlier.locator("button").click()
    expect(page.locator("#template-keywords")).to_have_value(FIRST)
    expect(earlier.locator("pre")).to_have_text(SECOND)
    assert studio.workspace.runs.get(page.evaluate("studio.run")).prompts == {"keywords": FIRST}


def test_a_caption_that_the_model_refuses_can_be_written_by_hand(studio: Studio, page: Page) -> None:
    def refuse_one(prompt: str) -> str:
        if "-> at sunset" in prompt:
            raise ServerFault("The server refused the text.")
        return reply(prompt)

    models: Any = studio.driver.models
    usual, models.language = models.language, ScriptedLanguageModel(refuse_one)
    try:
        page.locator("#stage-counterfactuals [data-do='run'][data-stage='counterfactuals']").click()
        expect(page.locator("#stage-counterfactuals")).to_contain_text("The server refused the text.")
        settled(page)
    finally:
        models.language = usual
    line = page.locator("#stage-counterfactuals .line:has(.pill:has-text('not written'))")
    expect(line).to_have_count(1)
    expect(line.locator(".diff")).to_have_text(
        "The model wrote no caption with this edit. Write one, or run the stage again to get only missing captions."
    )
    line.locator("input[name=used]").click()
    expect(page.locator("#stage-counterfactuals .problem")).to_contain_text(
        "This caption is empty: write it, then tick it."
    )
    written = SUNNY_BIRD.replace("by day", "at sunset")
    place = line.get_attribute("data-place")
    line.locator(".diff").click()
    line.locator("textarea").fill(written)
    line.locator("textarea").press("Enter")
    settled(page)
    expect(page.locator(f"#stage-counterfactuals .line[data-place='{place}'] .pill").first).to_contain_text(
        "label kept"
    )
