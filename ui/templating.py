"""Fills in the Jinja templates of pages. `ui/templates` has those for all pages, `ui/FEATURE/templates` the others."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, MutableMapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PrefixLoader, StrictUndefined, Undefined, pass_context
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.runtime import Context, Macro

from core.figures import percent
from core.form_numbers import form_numbers
from core.types import EDIT_TYPES
from core.words import count_of, duration
from services.curation.views import gallery_address
from ui.addresses import in_browser
from ui.explore import parts
from ui.markup import Html, attributes, join
from ui.study import plots, words

_UI = Path(__file__).parent


def render(name: str, /, **values: object) -> Html:
    """Fill in a template: "curate/sets.html" is `ui/curate/templates/sets.html`. Templates may call the functions of
    `ui.explore.parts`, `ui.study.plots` and `ui.study.words`, and the macros of `ui/templates/pieces.html`. Text is
    escaped, None becomes nothing, and a list becomes its items one after another. An undefined name is an error.
    Addresses of the studio in `href`, `src` and `action` need `| at`, so that they work below the path of a proxy.
    """
    return Html(_environment().get_template(name).render(values))


@cache
def _environment() -> Environment:
    features = {folder.parent.name: FileSystemLoader(folder) for folder in _UI.glob("*/templates")}
    environment = _Templates(
        loader=ChoiceLoader([FileSystemLoader(_UI / "templates"), PrefixLoader(features)]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        extensions=[NoLineBreaks],
        auto_reload=False,
        cache_size=-1,
    )
    for module in (parts, words, plots):
        environment.globals |= functions(module)
    environment.globals |= {"attributes": attributes, "count_of": count_of, "duration": duration}
    environment.globals |= {"gallery_address": gallery_address, "percent": percent}
    environment.globals |= {"edit_types": EDIT_TYPES, "form_numbers": form_numbers}
    environment.filters |= {"at": _at, "thousands": "{:,}".format}
    pieces = vars(environment.get_template("pieces.html").module)
    environment.globals |= {name: made for name, made in pieces.items() if isinstance(made, Macro)}
    return environment


class _Templates(Environment):
    """Environment in which all templates share one dict of globals. Jinja would copy it for each page (0.2 ms)."""

    def make_globals(self, d: MutableMapping[str, Any] | None) -> MutableMapping[str, Any]:
        """Return the global values; they are the same dict for all templates."""
        return self.globals


@pass_context
def _at(_: Context, address: str) -> str:
    """Return the address with the proxy's path before it. The unused context keeps Jinja from caching the result."""
    return in_browser(address)


def functions(module: ModuleType) -> dict[str, object]:
    """Return the public functions of a module by name."""
    return {name: function for name, function in inspect.getmembers(module, inspect.isfunction) if name[0] != "_"}


def _shown(value: object) -> object:
    if isinstance(value, str):  # first, since most values are
        return value
    if value is None or type(value) is Undefined:  # Undefined comes from a condition without an else
        return ""
    return join(*value) if isinstance(value, list | tuple) else value


class NoLineBreaks(Extension):
    """Extension of Jinja that removes the line breaks of a template, with the indent after them. A line break between
    two words, or between the attributes of an element, becomes a space. So a template can be laid out in lines.
    """

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        in_element = False
        for token in stream:
            if token.type == "data":
                text, in_element = _without_line_breaks(token.value, in_element)
                token = Token(token.lineno, "data", text)
            yield token


def _without_line_breaks(text: str, in_element: bool) -> tuple[str, bool]:
    """Return a text without line breaks, and True if it ends inside an element. `in_element` is True if it begins
    inside one.
    """
    pieces = []
    for piece in re.split(r"([<>])", text):
        if piece in ("<", ">"):
            in_element = piece == "<"
        elif in_element:
            piece = re.sub(r"\s*\n\s*", " ", piece)
        else:
            piece = re.sub(r"^\s*\n\s*|\s*\n\s*$", "", piece)
            piece = re.sub(r"\s*\n\s*", " ", piece)
        pieces.append(piece)
    return "".join(pieces), in_element
