"""Prompts, history, undo and two pages on one run, in Chromium with the embedded models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.test_text import keyword_chip
from tests.support.browser import settled
from tests.support.demo_server import replies_free
from tests.support.desk import (
    BIRD,
    TEXT_STAGES,
    Desk,
    add_alternative,
    desk_of,
    lines,
    row,
    stage,
    texts,
    write_caption,
    write_line,
)
from tests.support.explorer import DEMO_SECONDS

pytestmark = [pytest.mark.demo, pytest.mark.slow, pytest.mark.soak]


@pytest.fixture(scope="module")
def desk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk_of(browser, tmp_path_factory.mktemp("edits")) as opened:
        yield opened


def test_what_the_models_were_told_can_be_read_edited_and_put_back(desk: Desk) -> None:
    page = desk.at_gate(BIRD)
    caption = page.input_value("#caption-text")
    for name in TEXT_STAGES[1:]:
        stage(page, name).locator("[data-panel-of=prompt]").click()
        expect(stage(page, name).locator("pre.prompt")).to_contain_text(caption)
        expect(stage(page, name).locator("pre.prompt")).to_contain_text("image classification with the label bird")
    for word in texts(stage(page, "keywords")):
        expect(stage(page, "keywords").locator("pre.reply")).to_contain_text(word)
    for text in texts(stage(page, "alternatives")):
        expect(stage(page, "alternatives").locator("pre.reply")).to_contain_text(text)

    # A template without a needed variable, or with an unknown one, is refused, and the message names the variable.
    card, template = stage(page, "keywords"), page.locator("#template-keywords")
    original = template.input_value()
    save = card.locator(".prompt-form [data-submit]")
    for wrong, said in (
        ("Which words of $captoin may change for $task?", "uses $captoin, which nothing fills"),
        ("Which words may change for $task?", "does not use $caption"),
        ("Which words of $caption may change for a $?", "stray $"),
        (" ", "is empty"),
    ):
        template.fill(wrong)
        save.click()
        expect(card.locator(".refusal")).to_contain_text(said)
        expect(template).to_have_value(wrong)
    assert card.locator("pre.prompt").inner_text().count(caption) == 1, "nothing was asked"
    expect(card.locator("header")).not_to_contain_text("prompt edited")

    # In the prompt's field, Enter begins a new line. Without a schema, the model can reply anything, and the page shows
    # it.
    asked = ("### Counterfactual", "Task: $task", "Edits: sunny -> rainy", "Caption: $caption", "Reply:")
    template.fill("")
    for number, words in enumerate(asked):
        if number:
            page.keyboard.press("Enter")
        page.keyboard.type(words)
    assert template.input_value() == "\n".join(asked)
    save.click()
    expect(card.locator("header")).to_contain_text("prompt edited")
    expect(page.locator("#state-keywords")).to_have_text("stale: the prompt was changed after this was made")
    settled(page, DEMO_SECONDS)
    held = texts(card)
    with replies_free():
        card.locator("button[data-do=run]").click()
        expect(page.locator("#problem-keywords")).to_contain_text("asked 4 times for keywords")
        expect(page.locator("#state-keywords")).to_have_text("failed")
        settled(page, DEMO_SECONDS)
    expect(card.locator("pre.prompt")).to_contain_text(f"Edits: sunny -> rainy\nCaption: {caption}")
    card.locator(".raw summary").click()
    assert card.locator(".raw pre").inner_text().strip() == card.locator("pre.reply").inner_text().strip() != ""
    assert texts(card) == held, "what was there stays"

    card.locator("button[data-do=prompt-back]").click()
    expect(template).to_have_value(original)
    expect(page.locator("#state-keywords")).to_have_text("ready")
    expect(card.locator("header")).not_to_contain_text("prompt edited")


def test_every_edit_is_undone_by_key_and_history_leads_back(desk: Desk) -> None:
    page = desk.at_gate(BIRD)
    caption, first_line = page.input_value("#caption-text"), lines(page).first.locator("textarea").input_value()
    colour = texts(stage(page, "keywords"))[0]
    before = texts(row(page, colour))
    add_alternative(page, colour, "striped")
    write_line(lines(page).first, lambda text: f"{text} It sings.")
    expect(lines(page).first).to_contain_text("It sings.")
    keyword_chip(page, colour).locator(".toggle").click()
    expect(page.locator("#state-keywords")).to_have_text("edited by you")
    write_caption(page, f"{caption} It sings.")
    settled(page, DEMO_SECONDS)

    # In a field, Ctrl+Z belongs to the field. Elsewhere it undoes one edit after another, of any stage.
    page.click("#caption-text")
    page.keyboard.type("!")
    page.keyboard.press("Control+z")
    assert "It sings." in page.input_value("#caption-text")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+z")
    expect(page.locator("#caption-text")).to_have_value(caption)
    page.keyboard.press("Control+z")
    expect(keyword_chip(page, colour).locator(".toggle")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Control+z")
    expect(lines(page).first.locator("textarea")).to_have_value(first_line)
    page.click("#undo-alternatives")
    expect(page.locator("#undo-alternatives")).to_have_count(0)
    settled(page, DEMO_SECONDS)
    assert texts(row(page, colour)) == before
    for name in TEXT_STAGES:
        expect(page.locator(f"#state-{name}")).to_have_text("ready")

    # The history shows the author and the time of each version, also after a reload, and can restore any version.
    page.reload()
    page.wait_for_selector("#generate:enabled")
    stage(page, "caption").locator("[data-panel-of=history]").click()
    versions = stage(page, "caption").locator(".history tr")
    expect(versions).to_have_count(3)
    newest, mine, oldest = (text.replace("\t", " ") for text in versions.all_inner_texts())
    assert "BLIP" in newest and "restored" in newest and "now" in newest
    assert re.search(r"\d\d:\d\d:\d\d", mine) and "you" in mine and "It sings." in mine
    assert "BLIP" in oldest and caption in oldest
    versions.nth(1).locator("button").click()
    expect(page.locator("#caption-text")).to_have_value(f"{caption} It sings.")
    expect(page.locator("#state-caption")).to_have_text("edited by you")
    expect(page.locator("#state-keywords")).to_contain_text("stale: the caption was changed")
    expect(versions).to_have_count(4)

    # The list of keys names the keys used here.
    page.keyboard.press("?")
    for does in (
        "run all stages of text",
        "undo the last step",
        "save what was typed",
        "take back what was typed",
    ):
        expect(page.locator("#keys-window")).to_contain_text(does)
    page.keyboard.press("Escape")
    expect(page.locator("#keys-window")).to_be_hidden()


def test_two_pages_edit_the_same_stage_and_neither_is_lost(desk: Desk) -> None:
    page = desk.at_gate(BIRD)
    caption = page.input_value("#caption-text")
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector("#generate:enabled")
    page.bring_to_front()
    page.click("#caption-text")
    page.keyboard.press("End")
    page.keyboard.type(" It sings.")
    theirs = caption.replace("bird", "small bird", 1)
    write_caption(other, theirs)
    # The first page gets the change while its user types, and keeps the typed text.
    page.evaluate("studio.send({ name: 'poll' })")  # the page does this every few seconds
    page.wait_for_function(f"document.querySelector('#caption-text').server === {json.dumps(theirs)}")
    expect(page.locator("#caption-text")).to_have_value(f"{caption} It sings.")
    page.keyboard.press("Enter")
    expect(page.locator("#notice-caption")).to_contain_text("changed elsewhere in the meantime")
    expect(page.locator("#caption-text")).to_have_value(f"{caption} It sings.")
    stage(page, "caption").locator("[data-panel-of=history]").click()
    expect(stage(page, "caption").locator(".history tr").nth(1)).to_contain_text(theirs)

    # The changes of both pages to a list are kept, and the captions contain both.
    one, two = texts(stage(page, "keywords"))[:2]
    settled(page, DEMO_SECONDS)
    keyword_chip(other, one).locator(".toggle").click()
    settled(other, DEMO_SECONDS)
    keyword_chip(page, two).locator(".toggle").click()
    for both in (page, other):
        for word in (one, two):
            expect(keyword_chip(both, word).locator(".toggle")).to_have_attribute("aria-pressed", "false")
    other.close()
