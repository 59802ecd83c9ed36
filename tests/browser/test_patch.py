"""Tests for updating a page in use with new markup from the server: the user's input stays, and no script runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ui.theme import ASSETS, SHARED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page, Route

HERE = "http://127.0.0.1:9/"
"""Address without a server. The test answers its requests."""


@pytest.fixture
def desk(page: Page) -> Iterator[Page]:
    page.route(HERE, lambda route: route.fulfill(body="<div id='root'></div>", content_type="text/html"))
    page.goto(HERE)
    for name in SHARED:
        page.add_script_tag(path=str(ASSETS / name))
    yield page
    page.goto("about:blank")
    page.unroute(HERE)


def show(page: Page, markup: str, keeps: str = "undefined") -> None:
    """Update the root element with `markup`."""
    page.evaluate(f"markup => patch(document.getElementById('root'), markup, {keeps})", markup)


def ask(page: Page, expression: str) -> object:
    """Return the value of a JavaScript expression on the page. Its variable `all` is the markup of the root element."""
    return page.evaluate(f"(() => {{ const all = document.getElementById('root').innerHTML; return {expression}; }})()")


def field(value: str, draft: str = "") -> str:
    return f"<input type='text' id='f' value='{value}'" + (f" data-draft='{draft}'>" if draft else ">")


def test_a_field_that_is_typed_in_is_not_touched(desk: Page) -> None:
    show(desk, field("one"))
    desk.click("#f")
    desk.keyboard.press("End")
    desk.keyboard.type(" more")
    desk.keyboard.press("ArrowLeft")
    show(desk, f"<p>new</p>{field('two')}")
    assert desk.input_value("#f") == "one more" and ask(desk, "document.activeElement.id") == "f"
    assert ask(desk, "document.activeElement.selectionStart") == len("one mor")


def test_what_is_typed_stays_while_the_server_says_the_same_and_goes_when_it_says_another(desk: Page) -> None:
    for made in ("<textarea id='f'>{}</textarea>", "<input id='f' value='{}'>"):
        show(desk, "")
        show(desk, made.format("one"))
        desk.fill("#f", "mine")
        desk.evaluate("document.activeElement.blur()")
        show(desk, f"<p></p>{made.format('one')}")
        assert desk.input_value("#f") == "mine"
        show(desk, made.format("two"))
        assert desk.input_value("#f") == "two"
        desk.fill("#f", "")
        desk.evaluate("document.activeElement.blur()")
        show(desk, made.format("two"))
        assert desk.input_value("#f") == "", "nothing is a text as well"


def test_a_choice_stays_until_another_one_is_saved(desk: Page) -> None:
    def options(*values: str, chosen: str) -> str:
        made = [f"<option value={one}{' selected' if one == chosen else ''}>{one}</option>" for one in values]
        return f"<select id=f>{''.join(made)}</select>"

    show(desk, options("a", "b", "c", chosen="a"))
    desk.select_option("#f", "b")
    show(desk, options("x", "a", "b", "c", chosen="a"))
    assert desk.input_value("#f") == "b"
    desk.evaluate("document.activeElement.blur()")
    show(desk, options("x", "a", "b", "c", chosen="c"))
    assert desk.input_value("#f") == "c"
    show(desk, options("a", "c", chosen="c"))
    assert ask(desk, "document.getElementById('f').options.length") == 2 and desk.input_value("#f") == "c"


def test_a_tick_follows_the_server_but_where_its_person_is_ahead(desk: Page) -> None:
    box = "<input type=checkbox id=f value=yes{}>"
    show(desk, box.format(" checked"))
    desk.click("#f")
    show(desk, box.format(" checked"), "() => true")
    assert not desk.is_checked("#f")
    show(desk, box.format(" checked"))
    assert desk.is_checked("#f") and desk.get_attribute("#f", "value") == "yes"
    show(desk, box.format(""))
    assert not desk.is_checked("#f")


def test_a_text_of_another_run_is_another_text(desk: Page) -> None:
    show(desk, field("one", "first:caption"))
    desk.fill("#f", "typed for the first")
    show(desk, field("other", "second:caption"))
    assert desk.input_value("#f") == "other"


def test_a_draft_comes_back_with_its_field(desk: Page) -> None:
    show(desk, field("one", "first:caption"))
    desk.fill("#f", "not saved")
    desk.evaluate("fields.mark(document.getElementById('f'))")
    show(desk, "")
    show(desk, f"<p>{field('one', 'first:caption')}</p>")
    assert desk.input_value("#f") == "not saved" and ask(desk, "fields.typed(document.getElementById('f'))")
    desk.evaluate("sessionStorage.clear()")


def test_what_a_person_opened_and_set_stays(desk: Page) -> None:
    card = "<section id=card{}><details{}><summary>more</summary></details><table><tr><th>a</th></tr></table></section>"
    show(desk, card.format("", ""))
    desk.evaluate("""() => {
      const card = document.getElementById("card");
      Object.assign(card.dataset, { open: "history", editing: "", beganVersion: "3", beganState: "4", other: "goes" });
      Object.assign(card, { inert: true, ariaInvalid: "true" });
      card.style.height = "80px";
      card.querySelector("th").ariaSort = "ascending";
      card.querySelector("details").open = true;
    }""")
    show(desk, card.format(" data-state=new", ""))
    kept = "data-open data-editing data-began-version data-began-state style inert aria-invalid data-state".split()
    assert all(desk.get_attribute("#card", name) is not None for name in kept)
    assert desk.get_attribute("#card", "data-other") is None
    assert desk.locator("details[open]").count() == 1 and desk.get_attribute("th", "aria-sort") == "ascending"


def test_what_belongs_to_a_script_is_left_alone(desk: Page) -> None:
    show(desk, "<div data-own class=said></div>")
    desk.evaluate("document.querySelector('.said').textContent = 'of a script'")
    show(desk, "<p>new</p><div data-own class=other></div>")
    assert desk.inner_text(".said") == "of a script"


@pytest.mark.parametrize("key", ["data-key", "id"])
def test_rows_that_move_keep_focus_scroll_and_what_they_are(desk: Page, key: str) -> None:
    def rows(*names: str) -> str:
        return "".join(
            f"<div {key}='row {one}' style='height:60px;overflow:auto'><div style='height:200px'>"
            f"<input aria-label='{one}'></div></div>"
            for one in names
        )

    show(desk, rows("a", "b", "c", "d"))
    desk.locator("[aria-label=c]").click()
    desk.keyboard.type("typed")
    desk.evaluate("""() => {
      window.rows = () => [...document.querySelectorAll("#root > div")];
      window.named = (row) => row.querySelector("input").ariaLabel;
      window.held = Object.fromEntries(rows().map((row) => [named(row), row]));
      held.c.scrollTop = 40;
    }""")
    show(desk, rows("c", "new", "d", "a"))
    assert ask(desk, "rows().map(named).join()") == "c,new,d,a"
    assert ask(desk, "rows()[0] === held.c && rows()[2] === held.d && rows()[3] === held.a && !held.b.isConnected")
    assert ask(desk, "document.activeElement.ariaLabel") == "c" and ask(desk, "document.activeElement.value") == "typed"
    assert ask(desk, "held.c.scrollTop") == 40


def test_a_press_that_is_under_way_arrives(desk: Page) -> None:
    row = "<div id='row-{0}'><button onclick='window.pressed = this.parentElement.id'>go</button></div>"
    show(desk, row.format("a") + row.format("b"))
    desk.locator("#row-b button").hover()
    desk.mouse.down()
    show(desk, row.format("b") + "<p>more</p>")
    desk.locator("#row-b button").hover()
    desk.mouse.up()
    assert ask(desk, "window.pressed") == "row-b"


def test_the_same_name_with_another_key_is_another_picture(desk: Page) -> None:
    show(desk, "<img id=big data-key=one alt=''>")
    desk.evaluate("window.held = document.getElementById('big')")
    show(desk, "<img id=big data-key=one alt='same'>")
    assert ask(desk, "held.isConnected")
    show(desk, "<img id=big data-key=two alt=''>")
    assert not ask(desk, "held.isConnected")


def test_whole_parts_are_found_by_their_ids(desk: Page) -> None:
    show(desk, "<section id=one><b>1</b></section><div id=two></div>")
    shown = desk.evaluate("""() => patch.parts({
      one: "<section id=one class=new><b>2</b></section>",
      two: "<section id=two>it</section>",
      three: "<p id=three></p>",
    }).map(part => `${part.tagName} ${part.id}`)""")
    assert shown == ["SECTION one", "SECTION two"]
    assert desk.get_attribute("#one", "class") == "new" and ask(desk, "document.getElementById('three')") is None


def test_nothing_that_comes_runs(desk: Page) -> None:
    hostile = "<script>window.ran = 1</script><p id=p><script>window.ran = 1</script></p>"
    show(desk, hostile)
    show(desk, f"<div>{hostile}</div>")
    desk.evaluate("markup => patch.parts({ p: `<p id=p>${markup}</p>` })", "<script id=s>window.ran = 1</script>")
    assert ask(desk, "window.ran") is None and desk.locator("script#s").count() == 1


def test_pictures_that_are_there_do_not_load_again(desk: Page) -> None:
    asked: list[str] = []

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    desk.route("http://127.0.0.1:9/pictures/**", refuse)
    show(desk, "<img id=a src='http://127.0.0.1:9/pictures/a.png' alt=''>")
    desk.wait_for_function("document.getElementById('a').complete")
    show(desk, "<p>new</p><img id=a src='http://127.0.0.1:9/pictures/a.png' alt=''>")
    desk.wait_for_function("document.getElementById('a').complete")
    desk.unroute("http://127.0.0.1:9/pictures/**")
    assert asked == ["http://127.0.0.1:9/pictures/a.png"]
