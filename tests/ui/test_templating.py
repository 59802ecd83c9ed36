"""The templates of the pages: how they write texts, and that each can be compiled."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from ui import templating
from ui.addresses import served_below
from ui.markup import Html, el

TEMPLATES = sorted(Path(templating.__file__).parent.glob("**/templates/*.html"))
ADDRESS = re.compile(r"""\b(?:href|src|action)=["']?(?!["'#])\S*?(?:\{\{(?:[^}]|\}(?!\}))*\}\}|/)""")
"""Pattern of addresses in templates that are made from values, or that are the studio's own."""


def made(template: str, **values: object) -> str:
    return templating._environment().from_string(template).render(values)


def test_a_text_is_never_markup() -> None:
    told = made("<p title='{{ text }}'>{{ text }}{{ made }}</p>", text="<b>'", made=el("i", "x"))
    assert told == "<p title='&lt;b&gt;&#39;'>&lt;b&gt;&#39;<i>x</i></p>"


def test_what_is_nothing_is_not_shown_and_what_is_missing_fails() -> None:
    assert made("{{ empty }}{{ few }}{{ 'x' if no }}", empty=None, few=["a", None, "<"], no=False) == "a&lt;"
    with pytest.raises(UndefinedError):
        made("{{ mistyped }}")


def test_line_breaks_are_for_the_reader_of_the_template() -> None:
    told = made(
        "<p\n  class='a'\n  {% if yes %}hidden{% endif %}\n>\n  One\n  word {{ yes }}\n  <b>x</b>\n</p>\n", yes=1
    )
    assert told == "<p class='a' hidden >One word 1<b>x</b></p>"


def test_a_function_of_parts_takes_what_a_macro_made() -> None:
    told = made("{% macro two() %}<b>2</b>{% endmacro %}{{ pill(two()) }}{{ button('x', data_a='y' if no) }}", no=False)
    assert told == '<span class="pill"><b>2</b></span><button type="button" class="btn">x</button>'


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_every_address_holds_below_the_path_of_a_proxy(path: Path) -> None:
    templating._environment().parse(path.read_text())
    addresses = [found.group() for found in ADDRESS.finditer(path.read_text())]
    assert [one for one in addresses if not re.search(r"\|\s*at\s*\}\}", one)] == []


def test_an_address_begins_with_the_path_of_the_proxy() -> None:
    with served_below("/studio"):
        assert made("<a href='{{ to | at }}'>", to="/curate/") == "<a href='/studio/curate/'>"
        assert Html(made("<a{{ attributes(href='/x', hidden=True, title=None) }}>")) == '<a href="/studio/x" hidden>'


def test_a_fixed_address_follows_the_path_of_each_request() -> None:
    template = templating._environment().from_string("<a href='{{ '/curate/' | at }}'>")
    assert template.render() == "<a href='/curate/'>"
    with served_below("/studio"):
        assert template.render() == "<a href='/studio/curate/'>"
