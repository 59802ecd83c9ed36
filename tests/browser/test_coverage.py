"""The coverage page in Chromium: from a cell to its images and back, by keys, and from a gap to runs in Explore."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image
from playwright.sync_api import expect

from core.types import CounterfactualCaption, Edit, EditType, Task
from tests.support.cases import made_case
from tests.support.explorer import encoded, fill
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from services.studio import Studio

pytestmark = pytest.mark.slow
HOSTILE = '<img src=x onerror="window.broken=1">'
NUMBERS = {"bird": {"weather": 6, "attribute": 2}, "owl": {"weather": 3}, HOSTILE: {"weather": 1}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Studio]]:
    """Images of three classes. The two runs of birds have all their texts."""
    with serving_here(tmp_path_factory.mktemp("coverage") / "workspace", ScriptedModels()) as (url, studio):
        for place, (label, numbers) in enumerate(NUMBERS.items()):
            runs = [run_of(studio, label, 40 * place + shade) for shade in range(2)]
            for kind, number in numbers.items():
                add(studio, runs[0], kind, number)  # type: ignore[arg-type]
        yield url, studio


def run_of(studio: Studio, label: str, shade: int) -> str:
    run = studio.runs.from_upload(encoded(Image.new("RGB", (48, 48), (shade, 90, 60))), f"source {shade}.png")
    studio.workspace.runs.set_task(run, Task("classification", label))
    if label == "bird":
        fill(studio, run)
    return run


def add(studio: Studio, run: str, kind: EditType, number: int) -> None:
    caption = CounterfactualCaption("A bird.", (Edit("sunny", "snowy", kind),))
    pictures = [Image.new("RGB", (24, 24), (number, 9 * place, len(kind))) for place in range(number)]
    cases = [made_case(one, counterfactual=caption) for one in pictures]
    for case in studio.workspace.test_cases.extend(run, None, cases)[::2]:
        studio.workspace.test_cases.review(case, "accepted")


def opened(page: Page, server: tuple[str, Studio], query: str = "") -> Page:
    page.goto(f"{server[0]}curate/coverage{query}")
    expect(page.locator("#cells-table [data-here]")).to_have_count(1)  # the script of the page has loaded
    return page


def cell(page: Page, line: str, place: str) -> Locator:
    """Return the cell of the table in the row `line` and the column `place`."""
    column = page.locator("#cells-table thead th").evaluate_all(
        "(heads, place) => heads.findIndex(head => head.dataset.place === place)", place
    )
    row = page.locator("#cells-table tbody tr").filter(has=page.locator("th", has_text=line))
    return row.locator("td").nth(column - 1)


def test_a_cell_leads_to_its_images_and_back(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server, "?by=accepted")
    found = cell(page, "bird", "weather")
    expect(found).to_contain_text("6")
    expect(found).to_contain_text("3 of 3 accepted")
    found.locator("a").click()
    expect(page.locator("#count")).to_have_text("6")
    assert parse_qs(urlsplit(page.url).query) == {"class": ["bird"], "edit type": ["weather"]}
    page.go_back()
    expect(page.locator("#cells-table")).to_be_visible()
    assert "by=accepted" in page.url


def test_a_label_of_a_stranger_is_shown_and_looked_for_as_text(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    cell(page, HOSTILE, "weather").locator("[data-plan]").click()
    expect(page.locator("#plan-title")).to_have_text(f"Make more: {HOSTILE} × weather")
    assert not page.evaluate("window.broken")
    page.keyboard.press("Escape")
    cell(page, HOSTILE, "weather").locator("a").click()
    expect(page.locator("#count")).to_have_text("1")


def test_cells_are_gone_through_by_keys_alone(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    expect(page.locator("#cells-table td [tabindex='0']").first).to_be_attached()
    cell(page, "bird", "weather").locator("a").focus()
    page.keyboard.press("ArrowRight")
    expect(cell(page, "bird", "attribute").locator("a")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(cell(page, "owl", "attribute").locator("button")).to_be_focused()
    expect(page.get_by_role("button", name="No images of owl × attribute: make some")).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(cell(page, "owl", "weather").locator("a")).to_be_focused()
    page.keyboard.press("m")
    expect(page.locator("#plan-title")).to_have_text("Make more: owl × weather")
    page.keyboard.press("Escape")
    expect(page.locator("#plan-dialog")).to_be_hidden()
    expect(cell(page, "owl", "weather").locator("a")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#count")).to_have_text("3")


def test_a_class_is_found_as_it_is_typed(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    page.keyboard.press("/")
    page.keyboard.type("OWL")
    expect(page.locator("#cells-table tbody tr:visible")).to_have_count(1)
    expect(page.locator("#cells-table tbody tr:visible")).to_contain_text("owl")
    reached = page.locator("#cells-table td[data-here]")
    expect(reached).to_be_visible()
    assert reached.locator("a, button").first.get_attribute("tabindex") == "0", "Tab leads to a cell that is shown"
    page.keyboard.press("Enter")
    page.wait_for_url("**find=OWL*")
    expect(page.locator("#cells-table tbody tr")).to_have_count(1)


def test_an_empty_cell_becomes_runs_that_explore_shows_together(page: Page, server: tuple[str, Studio]) -> None:
    workspace = server[1].workspace
    images, before = workspace.catalogue.count().number, {run.id for run in workspace.runs.search(100)}
    opened(page, server, "?table=weather")
    page.goto(f"{server[0]}curate/coverage")
    missing = page.locator(".gap", has_text="owl × attribute")
    missing.locator("button").click()
    expect(page.locator("#plan")).to_contain_text("2 pictures available")
    expect(page.locator("#plan-go")).to_have_text("Begin 2 runs")
    page.locator("#plan-sources").fill("1")
    page.locator("#plan-sources").press("Tab")
    expect(page.locator("#plan-go")).to_have_text("Begin 1 run")
    expect(page.locator(".plan-sources li")).to_have_count(1)
    page.locator("#plan-sources").fill("2")
    page.locator("#plan-sources").press("Tab")
    expect(page.locator("#plan-go")).to_have_text("Begin 2 runs")
    assert {run.id for run in workspace.runs.search(100)} == before, "nothing before the yes"

    page.locator("#plan-go").click()
    expect(page.locator("#together h2")).to_have_text("2 pictures together")
    begun = {run.id for run in workspace.runs.search(100)} - before
    shown = page.locator("#together [data-unpick]").evaluate_all("all => all.map(one => one.dataset.unpick)")
    assert set(shown) == begun and len(begun) == 2
    assert "picked" not in page.url, "a reload does not select them anew after they were put away"
    for run in begun:
        assert workspace.runs.get(run).settings["keywords"]["edit_types"] == "attribute"
        assert workspace.runs.get(run).task.label == "owl"
    assert workspace.catalogue.count().number == images, "nothing is drawn"
    page.reload()
    expect(page.locator("#together h2")).to_have_text("2 pictures together")


def test_a_weather_at_a_time_of_day_is_planned_by_its_words(page: Page, server: tuple[str, Studio]) -> None:
    studio = server[1]
    night = Edit("by day", "at night", "time of day")
    run = studio.runs.latest()[0].id
    studio.workspace.test_cases.append(
        run, None, made_case(Image.new("RGB", (24, 24)), counterfactual=CounterfactualCaption("x", (night,)))
    )
    opened(page, server, "?table=weather")
    cell(page, "snowy", "at night").locator("button").click()
    expect(page.locator("#plan")).to_contain_text("the weather becomes “snowy” and the time of day becomes “at night”")
    page.locator("#plan-go").click()
    expect(page.locator("#together")).to_contain_text(", snowy, at night")


def test_a_cell_without_a_source_says_so_and_leads_to_explore(page: Page, server: tuple[str, Studio]) -> None:
    studio = server[1]
    run = run_of(studio, "lone", 200)
    add(studio, run, "weather", 2)
    studio.workspace.runs.set_task(run, Task("classification", "other"))
    opened(page, server)
    cell(page, "lone", "attribute").locator("button").click()
    expect(page.locator("#plan")).to_contain_text("No run has a picture of the class “lone”: add one in Explore")
    expect(page.get_by_role("link", name="Open Explore")).to_have_attribute("href", "/?run=")
    page.locator("#plan-no").click()
    expect(page.locator("#plan-dialog")).to_be_hidden()


def test_a_narrow_window_scrolls_the_table_and_not_the_page(page: Page, server: tuple[str, Studio]) -> None:
    opened(page, server)
    before = page.viewport_size
    page.set_viewport_size({"width": 700, "height": 700})
    wide = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
    head = page.locator("#cells-table tbody th").first
    left = head.bounding_box()
    page.locator(".table-frame").evaluate("frame => { frame.scrollLeft = 400; }")
    assert not wide and head.bounding_box() == left, "the names of the lines stay in sight"
    if before is not None:
        page.set_viewport_size(before)
