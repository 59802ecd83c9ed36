"""Painting the region of a picture that may change, in Chromium: mouse, keys, fingers, undo, reload, and two pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image
from playwright.sync_api import expect

from core.regions import WHOLE, Region
from tests.browser.test_accessible import FOUND
from tests.support.browser import settled
from tests.support.explorer import Served, fill, look, open_run, serving_stand_ins, text_run
from tests.support.own_region import painting

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from services.studio import Studio

pytestmark = pytest.mark.slow

SIZE = (160, 96)
PICTURE = Image.linear_gradient("L").resize(SIZE).convert("RGB")
CANVAS = "#stage-region canvas"
SAID = "#painted-region"


@pytest.fixture(scope="module")
def served(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with painting(), serving_stand_ins(tmp_path_factory.mktemp("served")) as (url, behind):
        yield Served(url, behind, page)
        page.goto("about:blank")


@pytest.fixture
def run(served: Served, request: pytest.FixtureRequest, page: Page) -> str:
    """Id of a run of the recipe with a painted region, with its canvas open."""
    studio = served.begin(request)
    run_id = text_run(studio, PICTURE)
    studio.commands.send("recipe", {"run": run_id, "recipe": "painted"})
    fill(studio, run_id)
    open_run(page, run_id)
    page.click("#brush-region summary")
    return run_id


def region(studio: Studio, run_id: str) -> Region:
    """Return the saved region."""
    value = studio.workspace.runs.get(run_id).values["region"].value.value
    assert isinstance(value, Region)
    return value


def pixels(studio: Studio, run_id: str) -> np.ndarray:
    """Return the saved mask of the pixels that may change, as booleans."""
    mask = region(studio, run_id).mask(SIZE)
    return np.full(SIZE[::-1], True) if mask is None else np.asarray(mask) > 0


def place(page: Page, x: float, y: float) -> tuple[float, float]:
    """Return the position on the page of the picture's pixel (x, y)."""
    box = page.locator(CANVAS).bounding_box()
    assert box is not None
    return box["x"] + x / SIZE[0] * box["width"], box["y"] + y / SIZE[1] * box["height"]


def drag(page: Page, start: tuple[float, float], *stops: tuple[float, float]) -> None:
    page.locator(CANVAS).scroll_into_view_if_needed()
    page.mouse.move(*place(page, *start))
    page.mouse.down()
    for stop in stops:
        page.mouse.move(*place(page, *stop), steps=4)
    page.mouse.up()
    settled(page)


def shown(page: Page) -> np.ndarray:
    """Return a mask of the canvas pixels that show paint, as booleans."""
    painted = page.evaluate(
        f"""() => {{ const canvas = document.querySelector('{CANVAS}');
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        return Array.from(data).filter((_, at) => at % 4 === 3).map((alpha) => alpha > 127); }}"""
    )
    return np.asarray(painted, bool).reshape(SIZE[::-1])


def test_it_is_painted_erased_inverted_undone_and_there_after_a_reload(served: Served, run: str, page: Page) -> None:
    expect(page.locator(SAID)).to_have_text("The whole picture may change.")
    drag(page, (20, 48), (100, 48))
    first = pixels(served.studio, run)
    assert first[48, 20:101].all() and not first[80:].any() and not first[:, 130:].any()
    assert (shown(page) == first).all()
    expect(page.locator(SAID)).to_have_text(f"{100 * first.mean():.1f} % of the picture may change.")
    expect(page.locator("#state-region")).to_have_text("edited by you")

    page.click("#stage-region [data-brush=erase]")
    drag(page, (60, 20), (60, 80))
    second = pixels(served.studio, run)
    assert not second[48, 60] and second[48, 30] and second[48, 95] and (shown(page) == second).all()
    page.click("#stage-region [data-brush=invert]")
    settled(page)
    assert (pixels(served.studio, run) == ~second).all() and (shown(page) == ~second).all()

    page.locator(CANVAS).focus()
    for expected in (second, first):
        page.keyboard.press("Control+z")
        settled(page)
        assert (pixels(served.studio, run) == expected).all() and (shown(page) == expected).all()
    page.keyboard.press("Control+Shift+Z")
    settled(page)
    assert (shown(page) == second).all()

    page.reload()
    settled(page)
    assert page.locator("#brush-region").get_attribute("open") is not None, "what is painted is seen"
    assert (shown(page) == second).all()
    page.click("#stage-region [data-brush=clear]")
    settled(page)
    assert region(served.studio, run) == WHOLE and not shown(page).any()


def test_it_is_painted_with_the_keys_alone(served: Served, run: str, page: Page) -> None:
    page.locator(CANVAS).focus()
    page.keyboard.press("Space")
    settled(page)
    dab = pixels(served.studio, run)
    assert dab[48, 80] and 0 < dab.mean() < 0.02, "in the middle, as large as the brush"
    for _ in range(3):
        page.keyboard.press("]")
    assert int(page.input_value("#stage-region input[type=range]")) > 9
    page.keyboard.down("Space")
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
    page.keyboard.up("Space")
    settled(page)
    line = pixels(served.studio, run)
    assert line[48, 80:150].all() and len(served.studio.workspace.runs.history(run, "region")) == 3
    page.keyboard.press("x")
    page.keyboard.press("Space")
    settled(page)
    assert (pixels(served.studio, run) < line).any() and page.evaluate("studio.run") == run


def test_it_is_enlarged_and_moved_and_painted_there(served: Served, run: str, page: Page) -> None:
    drag(page, (80, 48))
    before = page.locator(CANVAS).bounding_box()
    page.mouse.move(*place(page, 120, 30))
    page.mouse.wheel(0, -700)
    expect(page.locator("#stage-region .zoomed")).not_to_have_text("100 %")
    after = page.locator(CANVAS).bounding_box()
    assert before is not None and after is not None and after["width"] > 3 * before["width"]
    drag(page, (120, 30))
    assert pixels(served.studio, run)[30, 120]
    page.click("#stage-region [data-brush=move]")
    left = after["x"]
    drag(page, (120, 30), (122, 30))
    moved = page.locator(CANVAS).bounding_box()
    assert moved is not None and moved["x"] > left
    page.locator(CANVAS).focus()
    page.keyboard.press("0")
    expect(page.locator("#stage-region .zoomed")).to_have_text("100 %")


def test_one_finger_paints_and_two_enlarge(served: Served, run: str, page: Page) -> None:
    page.locator(CANVAS).scroll_into_view_if_needed()
    hand, left, right = page.context.new_cdp_session(page), place(page, 20, 40), place(page, 140, 40)

    def touch(kind: str, *fingers: tuple[float, float]) -> None:
        points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(fingers)]
        hand.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    touch("touchStart", place(page, 40, 40))
    touch("touchMove", place(page, 60, 40))
    touch("touchEnd")
    settled(page)
    painted = pixels(served.studio, run)
    assert painted[40, 40:61].all()
    touch("touchStart", place(page, 60, 40))
    touch("touchStart", place(page, 60, 40), place(page, 100, 40))
    touch("touchMove", left, right)
    touch("touchEnd")
    settled(page)
    assert (pixels(served.studio, run) == painted).all(), "what the first finger had begun is dropped"
    expect(page.locator("#stage-region .zoomed")).not_to_have_text("100 %")
    hand.detach()


def test_what_is_not_saved_stays_and_is_saved_later(served: Served, run: str, page: Page) -> None:
    page.evaluate(
        "() => { window.ask = studio.server.answer; studio.server.answer = () => Promise.reject(new Error()); }"
    )
    page.locator(CANVAS).scroll_into_view_if_needed()
    page.mouse.move(*place(page, 30, 30))
    page.mouse.down()
    page.mouse.up()
    expect(page.locator("#stage-region .unsaved")).to_be_visible()
    assert shown(page)[30, 30] and region(served.studio, run) == WHOLE
    page.evaluate("studio.server.answer = window.ask")
    look(page)
    settled(page)
    assert shown(page)[30, 30], "a reply of the server does not take it away"
    page.click("#stage-region [data-brush=save]")
    settled(page)
    assert pixels(served.studio, run)[30, 30]
    expect(page.locator("#stage-region .unsaved")).to_be_hidden()


def test_a_second_page_shows_what_the_first_painted_and_nobody_overwrites_in_silence(
    served: Served, run: str, page: Page
) -> None:
    other = page.context.new_page()
    other.goto(page.url)
    other.wait_for_selector("#generate")
    settled(other)
    other.click("#brush-region summary")
    drag(page, (30, 30))
    look(other)
    settled(other)
    assert (shown(other) == pixels(served.studio, run)).all()
    other.close()

    page.mouse.move(*place(page, 100, 60))
    page.mouse.down()  # the page does not change while the mouse button is down
    served.studio.commands.send("value", {"run": run, "stage": "region", "text": "", "tab": "another"})
    page.mouse.up()
    expect(page.locator("#notice-region")).to_contain_text("was changed elsewhere in the meantime")
    settled(page)
    both = [version.value.value.whole for version in served.studio.workspace.runs.history(run, "region")]
    assert both == [True, False, True, False] and pixels(served.studio, run)[60, 100] and shown(page)[60, 100]


def test_the_canvas_has_a_name_and_keeps_nobody_out(run: str, page: Page) -> None:
    expect(page.get_by_role("application", name="Region: paint over the source image")).to_be_visible()
    page.evaluate(Axe().axe_script)
    assert page.evaluate(FOUND) == []
    page.goto("about:blank")
