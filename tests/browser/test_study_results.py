"""The lead's pages in Chromium: live results, decisions by keys, adjudication, copying and sorting."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import pytest
from playwright.sync_api import expect

from core.studies import NewItem
from tests.support.explorer import EVERY_PLACE
from tests.support.routing import HeldBack, routed
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.voted import CREW, MOSTLY, NO, SPLIT, YES, bird_study, cast, picture, study_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

VOTES = [YES, MOSTLY, SPLIT, NO, SPLIT, YES, MOSTLY, YES, SPLIT, ()]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    with serving_here(tmp_path_factory.mktemp("results") / "workspace", ScriptedModels()) as (url, studio):
        yield url, studio


@pytest.fixture
def served(server: tuple[str, Studio]) -> tuple[str, Studio, str]:
    """Start a study. Return the address of its pages, the studio, and its id."""
    url, studio = server
    study_id = bird_study(studio.workspace, VOTES, {"ed": ["no", "no", "yes"], "ada": ["yes"] * 3})
    return f"{url}study/{study_id}/", studio, study_id


def wide(page: Page) -> bool:
    """Return True if the page is wider than its window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def test_results_follow_the_study_without_a_reload(page: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, study_id = served
    browser = page.context.browser
    assert browser is not None
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.clock.install()
    page.goto(url)
    every = int(page.get_attribute("[data-every]", "data-every") or 0)
    assert 1000 <= every <= 10_000
    assert page.locator("#tile-valid .figure").inner_text() == "83.3 %"
    page.evaluate("window.stays = 1")
    page.locator("#meanings summary").click()
    last = [item for item in studio.workspace.studies.items(study_id) if item.kind == "item"][-1]
    rows = [cast(last, worker, {"valid": "no"}, 900 + n) for n, worker in enumerate(CREW)]
    studio.workspace.studies.import_votes(study_id, rows)
    page.clock.fast_forward(every)
    expect(page.locator("#tile-valid .figure")).to_have_text("71.4 %")
    assert page.evaluate("window.stays") == 1, "the page was not loaded again"
    assert page.locator("#meanings").get_attribute("open") is not None, "what was unfolded stays so"
    studio.workspace.studies.pause(study_id)
    page.clock.fast_forward(every)
    expect(page.locator("#state")).to_have_text("paused")
    context.close()


def test_a_study_is_paused_from_its_results(page: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, study_id = served
    page.goto(url)
    page.locator("#pause").click()
    assert studio.workspace.studies.get(study_id).state == "running", "nothing before the yes"
    with page.expect_navigation():
        page.locator("#confirm-go").click()
    assert page.locator("#state").inner_text() == "paused"
    assert studio.workspace.studies.get(study_id).state == "paused"


def test_a_worker_is_excluded_and_readmitted_with_keys(page: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, study_id = served
    page.goto(f"{url}workers")
    row = page.locator("[id='worker-imported-ed']")
    row.locator("summary").focus()
    page.keyboard.press("Enter")
    row.get_by_role("button", name="Exclude…").focus()
    page.keyboard.press("Enter")
    dialog = page.locator("dialog[open]")
    assert "asked for replacement votes" in dialog.inner_text()
    dialog.get_by_role("button", name="Exclude imported-ed").click()
    assert "give the reason" in dialog.locator("[role=alert]").inner_text(), "no exclusion without a reason"
    dialog.locator("textarea").fill("clicks through")
    dialog.get_by_role("button", name="Exclude imported-ed").click()
    page.wait_for_selector("[id='worker-imported-ed'].out")
    assert "excluded by the study lead: clicks through" in row.inner_text()
    [exclusion] = studio.workspace.studies.data(study_id).exclusions
    assert (exclusion.worker, exclusion.by) == ("imported-ed", "person")
    row.locator("summary").click()
    row.get_by_role("button", name="Readmit…").click()
    page.locator("dialog textarea").fill("was a friend of the house")
    page.get_by_role("button", name="Readmit imported-ed").click()
    page.wait_for_selector("[id='worker-imported-ed']:not(.out)")
    assert not studio.workspace.studies.data(study_id).exclusions


def test_approval_rejection_escape_and_a_new_code(page: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, _ = served
    page.goto(f"{url}workers")
    row = page.locator("[id='worker-imported-bo']")
    row.get_by_role("button", name="Approve").click()
    expect(row).to_contain_text("9 approved")
    row.get_by_role("button", name="Reject…").click()
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert studio.workspace.studies.workers.get("imported-bo").approved == 9, "Escape does nothing"
    row.locator("summary").click()
    row.get_by_role("button", name="New code…").click()
    page.locator("dialog").get_by_role("button", name="New code imported-bo").click()
    code = page.locator("dialog code").inner_text()
    assert studio.workspace.studies.workers.of_code(code) == "imported-bo"
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert code not in page.content()


@pytest.fixture
def plain(page: Page) -> Iterator[Page]:
    """Page whose browser has no clipboard, as over plain http. Copied text is stored in `window.copied`."""
    browser = page.context.browser
    assert browser is not None
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, bypass_csp=True)
    context.add_init_script("""
        Object.defineProperty(navigator, "clipboard", { value: undefined });
        document.addEventListener("copy", () => { window.copied = document.activeElement.value; });
    """)
    yield context.new_page()
    context.close()


def new_code(page: Page, address: str) -> str:
    """Request a new code for the first worker, and return it."""
    page.goto(address)
    page.locator(".workers .menu summary").first.click()
    page.get_by_role("button", name="New code…").first.click()
    page.locator("dialog button.p").click()
    return page.locator("dialog code").inner_text()


def test_a_new_code_is_copied_without_a_clipboard_or_selected(plain: Page, served: tuple[str, Studio, str]) -> None:
    code = new_code(plain, f"{served[0]}workers")
    plain.get_by_role("button", name="Copy").click()
    expect(plain.get_by_role("button", name="Copied")).to_be_focused()
    assert plain.evaluate("window.copied") == code
    plain.evaluate("document.execCommand = () => false")
    plain.get_by_role("button", name="Copied").click()
    expect(plain.locator("dialog")).to_contain_text("Selected: copy it now")
    assert plain.evaluate("String(getSelection())") == code


def test_a_button_that_copies_says_its_own_words_again(plain: Page, served: tuple[str, Studio, str]) -> None:
    plain.clock.install()
    plain.goto(served[0])
    button = plain.locator("[data-copy-from]").first
    for _ in range(2):
        button.click()
        expect(button).to_have_text("Copied")
    plain.clock.run_for(10_000)
    expect(button).to_have_text("Copy methods paragraph")


def test_the_focus_stays_when_the_workers_are_drawn_anew(page: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, study_id = served
    page.goto(f"{url}workers")
    row = page.locator("[id='worker-imported-bo']")
    ways = (
        row.get_by_role("button", name="Reject…"),
        row.locator("summary"),
        row.locator("th a"),
        page.get_by_role("button", name="with consensus"),
    )
    for kept, other in zip(ways, CREW, strict=False):
        kept.focus()
        page.evaluate("() => { document.querySelector('.workers').dataset.old = '1'; }")
        studio.workspace.studies.workers.decide(study_id, f"imported-{other}", "approved", "")
        page.evaluate("window.study.refresh()")
        expect(page.locator(".workers[data-old]")).to_have_count(0)
        expect(kept).to_be_focused()


def test_the_focus_stays_with_the_worker_who_was_decided_of(page: Page, served: tuple[str, Studio, str]) -> None:
    page.goto(f"{served[0]}workers")
    row = page.locator("[id='worker-imported-bo']")
    row.get_by_role("button", name="Approve").focus()
    page.keyboard.press("Enter")
    expect(row).to_contain_text("9 approved")
    expect(row.locator("summary")).to_be_focused()
    row.get_by_role("button", name="Reject…").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("by mistake")
    page.get_by_role("button", name="Reject imported-bo").click()
    expect(row).to_contain_text("9 rejected")
    expect(row.locator("summary")).to_be_focused()


def test_what_was_decided_is_not_told_as_refused(page: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, study_id = served
    page.goto(f"{url}workers")
    with routed(page, "**/live?*", lambda route: route.abort()):
        page.locator("[id='worker-imported-bo']").get_by_role("button", name="Approve").click()
        expect(page.locator("dialog")).to_contain_text("The change is saved")
        assert "Not done" not in page.locator("dialog").inner_text()
        of_bo = [vote for vote in studio.workspace.studies.data(study_id).votes if vote.worker == "imported-bo"]
        assert {vote.verdict for vote in of_bo} == {"approved"}


def test_workers_are_sorted_by_any_column_and_by_keys(page: Page, served: tuple[str, Studio, str]) -> None:
    url, _, _ = served
    page.goto(f"{url}workers")
    head = page.locator(".sortable thead th", has_text="controls right")
    head.click()
    assert page.locator(".sortable tbody tr").first.get_attribute("id") == "worker-imported-ada"
    head.click()
    values = page.eval_on_selector_all(
        ".sortable tbody tr", "rows => rows.map(row => Number(row.cells[2].dataset.sort))"
    )
    assert values == sorted(values) and head.get_attribute("aria-sort") == "ascending"
    page.get_by_role("button", name="controls right").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    assert page.locator(".sortable tbody tr").first.get_attribute("id") == "worker-imported-ada"
    page.keyboard.press("Space")
    expect(head).to_have_attribute("aria-sort", "ascending")


def test_the_order_and_the_focus_stay_when_sorted_workers_are_drawn_anew(
    page: Page, served: tuple[str, Studio, str]
) -> None:
    url, studio, study_id = served
    page.goto(f"{url}workers")
    head = page.locator(".sortable thead th").first
    head.click()
    rows = "rows => rows.map(row => row.id)"
    names = page.eval_on_selector_all(".sortable tbody tr", rows)
    order = head.get_attribute("aria-sort")
    link = page.locator("[id='worker-imported-bo'] th a")
    link.focus()
    page.evaluate("() => { document.querySelector('.workers').dataset.old = '1'; }")
    studio.workspace.studies.workers.decide(study_id, "imported-ada", "rejected", "a test")
    page.evaluate("window.study.refresh()")
    expect(page.locator(".workers[data-old]")).to_have_count(0)
    assert page.eval_on_selector_all(".sortable tbody tr", rows) == names
    assert head.get_attribute("aria-sort") == order
    expect(link).to_be_focused()


def test_adjudication_goes_by_keys(page: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, study_id = served
    page.goto(url)
    with page.expect_navigation():  # waits until the script that handles keys has loaded
        page.get_by_role("link", name="Adjudicate 3").click()
    assert not page.locator("#peers .answers").is_visible(), "the votes are hidden until asked for"
    page.keyboard.press("v")
    assert page.locator("#peers").inner_text().endswith("3 yes, 2 no")
    page.keyboard.press("r")
    page.keyboard.type("no beak, y and n are letters here")
    page.reload()
    assert page.locator("#reason").input_value() == "no beak, y and n are letters here", "the draft survives"
    with page.expect_navigation():
        page.keyboard.press("n")
    assert "1 of 3 decided" in page.locator("#adjudicating").inner_text()
    with page.expect_navigation():  # waits for the script and the pictures of the next page
        page.keyboard.press("ArrowRight")
    assert "3 of 3" in page.locator(".r-steps").inner_text()
    with page.expect_navigation():
        page.keyboard.press("y")
    with page.expect_navigation():
        page.keyboard.press("y")
    assert "All decided" in page.locator("#adjudicating").inner_text()
    kept = {(one.answer, one.reason) for one in studio.workspace.studies.data(study_id).adjudications}
    assert kept == {("no", "no beak, y and n are letters here"), ("yes", "")}
    page.goto(url)
    assert "with your adjudications 77.8 %, n = 9" in page.locator("#tile-valid").inner_text()


def test_a_key_that_is_held_decides_one_case(page: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, study_id = served
    page.goto(f"{url}adjudication")
    with page.expect_navigation():  # waits for the script and the pictures of the next page
        page.keyboard.down("y")
    page.keyboard.down("y")  # repeated keydown: the key is held down
    page.keyboard.up("y")
    page.keyboard.press("r")
    page.keyboard.type("seen")
    page.keyboard.press("Escape")
    with page.expect_navigation():
        page.keyboard.press("n")
    kept = sorted(studio.workspace.studies.data(study_id).adjudications, key=lambda one: one.item)
    assert [(one.answer, one.reason) for one in kept] == [("yes", ""), ("no", "seen")]


def test_nobody_decides_on_an_image_that_has_not_come(page: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, study_id = served
    pictures = HeldBack()
    page.route("**/images/**", pictures)
    page.goto(f"{url}adjudication", wait_until="commit")
    expect(page.locator("[data-answer=yes]")).to_be_disabled()
    page.keyboard.press("y")
    places = page.evaluate(EVERY_PLACE)
    pictures.let_through()
    expect(page.locator("[data-answer=yes]")).to_be_enabled()
    assert page.evaluate(EVERY_PLACE) == places, "nothing moves when the pictures come"
    assert not studio.workspace.studies.data(study_id).adjudications
    with page.expect_navigation():
        page.keyboard.press("n")
    assert [one.answer for one in studio.workspace.studies.data(study_id).adjudications] == ["no"]
    page.unroute("**/images/**")


def test_the_methods_paragraph_is_copied_whole(page: Page, served: tuple[str, Studio, str]) -> None:
    url, _, _ = served
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(url)
    page.get_by_role("button", name="Copy methods paragraph").click()
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.locator("#methods-text").text_content() and copied.startswith(
        "10 images were to be judged by 5"
    )


BROKEN_WORDS = """() => {
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), range = new Range();
  while (texts.nextNode()) {
    for (const { 0: word, index } of texts.currentNode.data.matchAll(/\\b[A-Za-z]{2,12}\\b/g)) {
      range.setStart(texts.currentNode, index);
      range.setEnd(texts.currentNode, index + word.length);
      if (new Set([...range.getClientRects()].map(({ top }) => top)).size > 1) found.push(word);
    }
  }
  return found;
}"""
"""JavaScript: words of up to 12 letters that break over two lines. Longer words may break."""
CROWDED_TICKS = """() => [...document.querySelectorAll(".ruler")].flatMap((ruler) => {
  const shown = [...ruler.querySelectorAll("text")].filter((text) => text.getClientRects().length);
  const places = shown.map((text) => text.getBoundingClientRect());
  return shown.filter((text, n) => n && places[n].left < places[n - 1].right + 2
    || places[n].right > ruler.closest(".box").getBoundingClientRect().right).map((text) => text.textContent);
})"""
"""JavaScript: labels of axis ticks that overlap, or lie outside their box."""
VANISHED = """() => [...document.images]
  .filter((one) => one.checkVisibility() && one.getBoundingClientRect().width < 24).map((one) => one.src)"""
"""JavaScript: addresses of images too small to see, below 24 pixels."""


def hold(page: Page, address: str, theme: Literal["light", "dark"] = "light") -> None:
    """Check that all images of the page load, that it is never wider than its window, and that it is legible at any
    width.
    """
    page.emulate_media(color_scheme=theme)
    page.goto(address)
    page.evaluate("for (const one of document.images) one.loading = 'eager'")
    page.wait_for_function("[...document.images].every((one) => one.complete)")
    broken = "[...document.images].filter((one) => !one.naturalWidth).map((one) => one.src)"
    assert page.evaluate(broken) == [], address
    for width in (1280, 1920, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert not wide(page), f"{address} at {width}"
        if width != 1920:
            for cut in (BROKEN_WORDS, CROWDED_TICKS, VANISHED):
                assert page.evaluate(cut) == [], f"{address} at {width}"


@pytest.fixture
def window(page: Page) -> Iterator[Page]:
    """Page whose window size and theme a test may change. Both are reset at the end."""
    yield page
    page.set_viewport_size({"width": 1440, "height": 1000})
    page.emulate_media(color_scheme="light")


def test_pages_hold_at_any_width(window: Page, served: tuple[str, Studio, str]) -> None:
    url, studio, study_id = served
    items = studio.workspace.studies.items(study_id)
    ends = ("", "workers", "adjudication", "disagreements", "log", f"items/{items[2].public}", "workers/imported-ed")
    for place, end in enumerate(ends):
        hold(window, url + end, "dark" if place % 2 else "light")
    window.set_viewport_size({"width": 1920, "height": 1080})
    window.goto(url)
    left = {
        part: window.locator(f"[data-part='{part}']").evaluate("part => part.getBoundingClientRect().left")
        for part in ("divided", "timeline")
    }
    assert left["divided"] == left["timeline"], "no half of the page stays empty beside the other"
    window.goto(f"{url}workers")
    for width in (1280, 1920, 480):
        window.set_viewport_size({"width": width, "height": 900})
        window.locator(".menu summary").last.click()
        window.locator(".menu[open] button").last.click(trial=True)
        window.locator(".menu summary").last.click()


def test_long_words_do_not_stretch_the_pages(window: Page, server: tuple[str, Studio]) -> None:
    word = "W" * 300
    url, studio = server
    workspace = studio.workspace
    new = NewItem(
        picture(workspace, 1),
        source_sha=picture(workspace, 2),
        label=word,
        edit_types=(word,),
        caption=word,
        counterfactual=f"{word} {word}",
        group=word,
        model=word,
        model_right=True,
        origin={"prompt": word * 3},
    )
    study_id = study_of(workspace, [new], name=word[:120])
    [item] = workspace.studies.items(study_id)
    names = [f"{word[:60]}-{place}" for place in range(5)]
    votes = [cast(item, name, {"valid": SPLIT[n]}, n, comment=word) for n, name in enumerate(names)]
    workspace.studies.import_votes(study_id, votes)
    workspace.studies.workers.exclude(study_id, f"imported-{names[0]}", word, "person")
    ends = ("", "workers", "adjudication", "disagreements", "log")
    for end in (*ends, f"items/{item.public}", f"workers/imported-{names[1]}"):
        hold(window, f"{url}study/{study_id}/{end}")
    window.set_viewport_size({"width": 1280, "height": 900})
    window.goto(f"{url}study/{study_id}/workers")
    names_shown = window.locator(".workers th[scope='row']")
    expect(names_shown).to_have_count(len(names))
    cut = names_shown.evaluate_all("cells => cells.filter((cell) => cell.scrollWidth > cell.clientWidth).length")
    assert not cut, "the names differ at their ends only"
