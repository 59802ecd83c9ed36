"""Stages 1 to 4 in Chromium with the embedded models: their proposals, flags, refusals and new replies, and markup."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.test_text import add_keyword, chip, keyword_chip
from tests.support.browser import settled
from tests.support.demo_server import replies_held
from tests.support.desk import (
    BIRD,
    SLOWEST,
    STREET,
    TEXT_STAGES,
    Desk,
    add_alternative,
    desk_of,
    lines,
    row,
    stage,
    texts,
    version,
    write_caption,
    write_line,
)
from tests.support.explorer import DEMO_SECONDS, state

pytestmark = [pytest.mark.demo, pytest.mark.slow]
NASTY = "<img src=x onerror='window.broken=1'><b>bold</b>"


@pytest.fixture(scope="module")
def desk(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk_of(browser, tmp_path_factory.mktemp("stages")) as opened:
        yield opened


def place_of(page: Page, button: str) -> dict[str, float]:
    """Return the position and size of a button in the card of the alternatives."""
    card, inside = stage(page, "alternatives").bounding_box(), page.locator(f"#{button}-alternatives").bounding_box()
    assert card and inside
    return {
        "x": inside["x"] - card["x"],
        "y": inside["y"] - card["y"],
        "width": inside["width"],
        "height": inside["height"],
    }


@pytest.mark.soak
def test_a_card_says_its_state_and_running_again_reuses_what_is_fresh(desk: Desk) -> None:
    page = desk.empty(BIRD)
    assert [state(page, name) for name in TEXT_STAGES] == ["empty"] * 4
    expect(page.locator("#run-alternatives")).to_be_disabled()
    expect(page.locator("#run-alternatives")).to_have_attribute("title", "The caption comes first.")
    expect(stage(page, "counterfactuals").locator(".add-caption")).to_have_count(0)
    page.click("#run-caption")
    settled(page, DEMO_SECONDS)
    expect(stage(page, "counterfactuals").locator(".add-caption")).to_have_count(0)
    assert [state(page, name) for name in TEXT_STAGES] == ["ready", "empty", "empty", "empty"]
    first = version(page, "caption")

    # Run all with one key. Each state has an icon, a word and a colour. A stage shows its author and its time.
    page.fill("#captions-count", "8")
    page.press("#captions-count", "Enter")
    settled(page)
    assert state(page, "counterfactuals") == "empty"
    with replies_held("### Counterfactual") as held:
        page.keyboard.press("Control+Shift+Enter")
        expect(page.locator("#state-counterfactuals")).to_have_attribute("data-state", "running")
        expect(page.locator("#state-counterfactuals")).to_have_text("running")
        held.let_through(100)
        page.wait_for_selector("#generate:enabled", timeout=SLOWEST)
        settled(page, DEMO_SECONDS)
    assert version(page, "caption") == first, "what was there and fresh is reused"
    for name, model in zip(TEXT_STAGES, ("BLIP", "LLaMA", "LLaMA", "LLaMA"), strict=True):
        assert state(page, name) == "ready"
        assert re.search(rf"{model}.* · \d+(\.\d+)? s", page.inner_text(f"#stage-{name} .meta"))
    assert state(page, "generation") == "waiting for your yes"

    # An edit outdates the values made from it, and only these run again. The buttons keep their place and meaning,
    # since the user may be pressing one.
    places = [place_of(page, button) for button in ("run", "from")]
    keyword_chip(page, "grassy").locator(".toggle").click()
    expect(page.locator("#state-keywords")).to_have_text("edited by you")
    expect(page.locator("#state-alternatives")).to_have_text("stale: the keywords were changed after this was made")
    expect(page.locator("#state-counterfactuals")).to_contain_text("stale: the stage before it (alternatives) is stale")
    expect(page.locator("#gate")).to_contain_text("stale")
    assert [place_of(page, button) for button in ("run", "from")] == places
    icons = {page.inner_html(f"#state-{name} svg") for name in ("caption", "keywords", "alternatives")}
    assert len(icons) == 3, "told apart without a colour"
    edited = version(page, "keywords")
    page.click("#from-alternatives")
    page.wait_for_selector("#generate:enabled", timeout=SLOWEST)
    settled(page, DEMO_SECONDS)
    assert [state(page, name) for name in TEXT_STAGES] == ["ready", "edited by you", "ready", "ready"]
    assert (version(page, "caption"), version(page, "keywords")) == (first, edited)
    assert row(page, "grassy").count() == 0

    # Run this stage alone. Outdated values stay if the user keeps them.
    keyword_chip(page, "grassy").locator(".toggle").click()
    page.click("#run-alternatives")
    settled(page, DEMO_SECONDS)
    assert state(page, "alternatives") == "ready" and "stale" in state(page, "counterfactuals")
    kept = lines(page).locator(".diff").all_inner_texts()
    stage(page, "counterfactuals").locator("button[data-do=keep]").click()
    expect(page.locator("#state-counterfactuals")).to_have_text("edited by you")
    assert lines(page).locator(".diff").all_inner_texts() == kept


@pytest.mark.soak
def test_the_caption_is_marked_edited_and_said_again(desk: Desk) -> None:
    page = desk.at_gate(STREET)
    caption = page.input_value("#caption-text")
    assert caption.count(". ") >= 2, "several sentences"
    marked = set(stage(page, "caption").locator("mark").all_inner_texts())
    assert {"road", "pavement", "pedestrian"} <= marked and marked & {"car", "cars"}

    # The captioner knows two wordings: another seed gives the other one, and the history keeps the first.
    for _ in range(4):
        page.click("#run-caption")
        settled(page, DEMO_SECONDS)
        if page.input_value("#caption-text") != caption:
            break
    other = page.input_value("#caption-text")
    assert other != caption and "two cars" in other
    expect(page.locator("#state-keywords")).to_contain_text("stale: the caption was changed")
    stage(page, "caption").locator("[data-panel-of=history]").click()
    expect(stage(page, "caption").locator(".history")).to_contain_text(caption)

    # Escape discards the typed text and Enter saves it. The page names a protected class that is missing.
    page.click("#caption-text")
    page.keyboard.type("What is this? ")
    expect(stage(page, "caption").locator(".unsaved")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#caption-text")).to_have_value(other)
    write_caption(page, "A grassy field in sunny weather by day.")
    expect(page.locator("#state-caption")).to_have_text("edited by you")
    expect(stage(page, "caption")).to_contain_text("names none of the protected classes (road, pavement, lane marking")
    assert stage(page, "caption").locator("mark").count() == 0
    write_caption(page, "")
    expect(page.locator("#stage-caption .refusal")).to_contain_text("The caption is empty: write one")

    page = desk.at_gate(BIRD)
    assert set(stage(page, "caption").locator("mark").all_inner_texts()) == {"bird"}
    write_caption(page, page.input_value("#caption-text").replace("bird", "balloon"))
    expect(stage(page, "caption")).to_contain_text("does not name the label “bird”")


@pytest.mark.soak
def test_keywords_are_ticked_added_reworded_dropped_refused_and_forced(desk: Desk) -> None:
    page = desk.at_gate(BIRD)
    kinds = set(stage(page, "keywords").locator(".chip .toggle small").all_inner_texts())
    assert {"attribute", "weather", "time of day", "background"} <= kinds
    expect(stage(page, "keywords").locator(".locked")).to_contain_text("bird")

    adding = stage(page, "keywords").locator(".chip.add")
    adding.locator(".toggle").click()
    assert set(adding.locator("option").all_inner_texts()) == kinds | {"subject", "object", "domain"}
    adding.locator("select").select_option("object")
    adding.locator(".pop input").fill("twig")
    adding.locator(".pop input").press("Enter")
    expect(keyword_chip(page, "twig")).to_contain_text("object")
    add_keyword(page, "umbrella")
    expect(page.locator("#stage-keywords .refusal")).to_contain_text("“umbrella” is not in the caption")
    adding.locator(".pop input").fill("Twig")
    adding.locator(".pop input").press("Enter")
    expect(page.locator("#stage-keywords .refusal")).to_contain_text("“Twig” is there already")
    page.keyboard.press("Escape")
    expect(adding.locator(".pop")).to_be_hidden()

    keyword_chip(page, "twig").locator("[data-edit]").click()
    keyword_chip(page, "twig").locator(".pop input").fill("a twig")
    keyword_chip(page, "twig").locator("[data-submit]").click()
    expect(keyword_chip(page, "a twig")).to_contain_text("object")
    keyword_chip(page, "a twig").locator("[data-edit]").click()
    keyword_chip(page, "a twig").locator("button[data-do=delete-keyword]").click()
    expect(keyword_chip(page, "a twig")).to_have_count(0)
    for word in texts(stage(page, "keywords")):
        keyword_chip(page, word).locator(".toggle").click()
        expect(keyword_chip(page, word).locator(".toggle")).to_have_attribute("aria-pressed", "false")
    settled(page, DEMO_SECONDS)
    page.click("#run-alternatives")
    expect(page.locator("#problem-alternatives")).to_contain_text("tick at least one")
    expect(page.locator("#state-alternatives")).to_have_text("failed")

    # A protected word passes through all stages when the user insists, and every stage reports it.
    add_keyword(page, "bird")
    expect(page.locator("#problem-keywords")).to_contain_text("“bird” is protected by the task")
    expect(keyword_chip(page, "bird")).to_have_count(0)
    page.click("#force-keywords")
    expect(keyword_chip(page, "bird")).to_contain_text("forced")
    assert stage(page, "keywords").locator(".chip.add .pop input").input_value() == ""
    settled(page, DEMO_SECONDS)
    page.click("#from-alternatives")
    settled(page, DEMO_SECONDS)
    if state(page, "alternatives") != "ready":  # the model has no other word for a bird
        stage(page, "alternatives").locator("button[data-do=keep]").click()
        settled(page, DEMO_SECONDS)
    for text in texts(row(page, "bird")):  # the model's own alternatives do not matter here
        row(page, "bird").locator(f".toggle[data-text='{text}']").click()
    add_alternative(page, "bird", "butterfly")
    page.click("#run-counterfactuals")
    settled(page, DEMO_SECONDS)
    line = lines(page).filter(has_text="bird → butterfly").first
    expect(line).to_contain_text("protected word forced")
    assert "label lost" not in line.inner_text()


@pytest.mark.soak
def test_alternatives_are_ticked_added_reworded_asked_for_and_flagged(desk: Desk) -> None:
    page = desk.at_gate(BIRD)
    colour = texts(stage(page, "keywords"))[0]
    proposed = texts(row(page, colour))
    assert proposed and colour not in proposed
    # Other times of day and weathers may mean nearly the same. No colour does.
    assert not any("like" in text for text in row(page, colour).locator(".chip").all_inner_texts())
    told = page.inner_text("#flagged").split()[0]
    flagged, line = 0 if told == "none" else int(told), page.input_value("#too-close")
    chip(page, "alternatives", proposed[0]).locator(".toggle").click()
    expect(chip(page, "alternatives", proposed[0]).locator(".toggle")).to_have_attribute("aria-pressed", "false")

    # Asking for more adds alternatives and keeps those that exist.
    row(page, colour).locator("button.ask").click()
    expect(row(page, colour).locator(".toggle[data-text]")).not_to_have_count(len(proposed))
    settled(page, DEMO_SECONDS)
    now = texts(row(page, colour))
    assert now[: len(proposed)] == proposed and colour not in now and len(set(now)) == len(now)
    expect(chip(page, "alternatives", proposed[0]).locator(".toggle")).to_have_attribute("aria-pressed", "false")

    # A real model of similarity flags an alternative with the same meaning, and no other.
    assert "like" not in add_alternative(page, colour, "striped").inner_text()
    expect(add_alternative(page, colour, f"dark {colour}")).to_contain_text(f"like “{colour}”")
    expect(page.locator("#flagged")).to_have_text(f"{flagged + 1} flagged")
    page.fill("#too-close", "0.99")
    page.press("#too-close", "Enter")
    expect(page.locator("#flagged")).to_have_text("none flagged")
    page.fill("#too-close", "7")
    page.press("#too-close", "Enter")
    expect(page.locator("#stage-alternatives .refusal")).to_contain_text("a number from -1 to 1")
    page.fill("#too-close", line)
    page.press("#too-close", "Enter")
    expect(page.locator("#flagged")).to_have_text(f"{flagged + 1} flagged")
    expect(page.locator("#stage-alternatives .refusal")).to_have_count(0)

    striped = row(page, colour).locator(".chip", has_text="striped")
    striped.locator("[data-edit]").click()
    striped.locator(".pop input").fill(f"pale {colour}")
    striped.locator(".pop input").press("Enter")
    expect(page.locator("#flagged")).to_have_text(f"{flagged + 2} flagged")  # the similarity was measured again
    pale = chip(page, "alternatives", f"pale {colour}")
    pale.locator("[data-edit]").click()
    pale.locator("button[data-do=delete-alternative]").click()
    expect(page.locator("#flagged")).to_have_text(f"{flagged + 1} flagged")

    # The alternative of an object is compared with the label too.
    adding = stage(page, "keywords").locator(".chip.add")
    adding.locator(".toggle").click()
    adding.locator("select").select_option("object")
    adding.locator(".pop input").fill("twig")
    adding.locator(".pop input").press("Enter")
    expect(keyword_chip(page, "twig")).to_have_count(1)
    settled(page, DEMO_SECONDS)
    stage(page, "alternatives").locator("button[data-do=keep]").click()
    settled(page, DEMO_SECONDS)
    expect(add_alternative(page, "twig", "sparrow")).to_contain_text("like “bird”")
    assert "like" not in add_alternative(page, "twig", "roof").inner_text()


def test_counterfactual_captions_show_edits_differences_and_checks(desk: Desk) -> None:
    page = desk.at_gate(BIRD)
    caption = page.input_value("#caption-text")
    choices = stage(page, "counterfactuals").locator(".choices")
    choices.locator("button", has_text=re.compile("^2$")).click()
    expect(page.locator("#state-counterfactuals")).to_have_text("stale: the settings were changed after this was made")
    page.fill("#captions-count", "3")
    page.press("#captions-count", "Enter")
    page.click("#run-counterfactuals")
    settled(page, DEMO_SECONDS)
    expect(lines(page)).to_have_count(3)
    for line in lines(page).all():
        edits = [text.split(" → ") for text in line.locator(".edit").all_inner_texts()]
        assert len(edits) == 2
        removed, added = (set(" ".join(line.locator(tag).all_inner_texts()).split()) for tag in ("del", "ins"))
        for old, new in edits:  # a word in both texts, as in “at noon” and “at dusk”, is not marked
            assert old in caption and {*old.split()} - {*new.split()} <= removed
            assert next(word for word in new.split() if word not in old.split()) in added
        expect(line).to_contain_text("label kept")
    assert stage(page, "counterfactuals").locator(".pill.bad").count() == 0, "its own pass its own checks"
    expect(page.locator("#ticked")).to_have_text("3 of 3 ticked")
    lines(page).nth(0).locator("input[type=checkbox]").uncheck()
    expect(page.locator("#ticked")).to_have_text("2 of 3 ticked")
    expect(page.locator("#gate")).to_contain_text("2 images from 2 captions")

    # Every check also judges text that a person writes.
    line = lines(page).nth(1)
    write_line(line, lambda _: "A blue bird in snowy weather by day. The bird sits in a desert.")
    expect(line).to_contain_text("“snowy” and “desert” do not go together")
    expect(line.locator(".pill.bad", has_text="edit missing")).to_have_count(1)
    write_line(line, lambda _: caption.replace("bird", "balloon"))
    expect(line.locator(".pill.bad", has_text="label lost")).to_have_count(1)
    write_line(line, lambda text: "")
    expect(page.locator("#stage-counterfactuals .refusal")).to_contain_text("empty")
    page.keyboard.press("Escape")

    # Two captions with the same words are merged. A caption by a person has no edits.
    write_line(line, lambda _: str(lines(page).nth(2).locator("textarea").input_value()))
    expect(lines(page)).to_have_count(2)
    page.locator(".add-caption > button").click()
    page.locator(".add-caption [data-submit]").click()
    expect(page.locator("#stage-counterfactuals .refusal")).to_contain_text("This is the caption of the source")
    page.locator(".add-caption textarea").fill(caption.replace("bird", "small bird", 1))
    page.locator(".add-caption [data-submit]").click()
    expect(lines(page)).to_have_count(3)
    expect(lines(page).nth(2)).to_contain_text("written by you")
    lines(page).nth(2).locator("button[data-do=delete-counterfactual]").click()
    expect(lines(page)).to_have_count(2)
    settled(page, DEMO_SECONDS)

    choices.locator("button", has_text="all").click()
    expect(page.locator("#state-counterfactuals")).to_have_text(
        "edited by you"
    )  # settings outdate no value by a person
    page.click("#run-counterfactuals")
    page.click("#force-counterfactuals")  # confirms that the person's captions may be replaced
    settled(page, DEMO_SECONDS)
    used = page.locator("#stage-keywords .chip.on").count()
    assert lines(page).first.locator(".edit").count() == used >= 4


def test_markup_is_shown_as_text_wherever_it_is_typed(desk: Desk) -> None:
    page = desk.at_gate(BIRD)
    caption = f"{page.input_value('#caption-text')} {NASTY}"
    write_caption(page, caption)
    expect(page.locator("#caption-text")).to_have_value(caption)
    add_keyword(page, NASTY)
    expect(stage(page, "keywords").locator(".chip .toggle", has_text=NASTY)).to_have_count(1)
    page.fill("#run-name", NASTY)
    page.press("#run-name", "Enter")
    settled(page, DEMO_SECONDS)
    page.click("[data-toggle-runs]")
    expect(page.locator("#column-runs", has_text=NASTY)).to_have_count(1)
    page.keyboard.press("Escape")

    # The model gets the hostile text in its prompt, and its reply is shown as text.
    page.click("#run-keywords")
    settled(page, DEMO_SECONDS)
    colour = texts(stage(page, "keywords"))[0]
    add_alternative(page, colour, NASTY)
    page.click("#run-counterfactuals")
    settled(page, DEMO_SECONDS)
    write_line(lines(page).first, lambda text: f"{text} {NASTY}")
    expect(lines(page).first.locator(".diff")).to_contain_text("onerror")
    for name in TEXT_STAGES[1:]:
        stage(page, name).locator("[data-panel-of=prompt]").click()
        expect(stage(page, name).locator("pre.prompt")).to_contain_text(NASTY)
    page.reload()
    page.wait_for_selector("#stage-caption")
    settled(page, DEMO_SECONDS)
    assert page.locator("img[src=x]").count() == page.locator("b").filter(has_text=re.compile("^bold$")).count() == 0
    assert not page.evaluate("'broken' in window")
