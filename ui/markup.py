"""Builds HTML. All text is escaped unless it is of the type `Html`, so it can never become markup."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from html import escape

from jinja2 import Undefined

from ui.addresses import in_browser


class Html(str):
    """HTML that is not escaped again."""

    __slots__ = ()

    def __html__(self) -> str:
        """Return the HTML. Jinja does not escape a value that has this method."""
        return self


Child = Html | str | int | float | None | Iterable["Child"]
Attribute = str | int | float | bool | None

_ADDRESSES = frozenset({"href", "src", "action"})
"""Attributes that hold an address, to which the proxy's path is added. In scripts, `wire.at` adds it."""
_VOID = frozenset({"img", "input", "br", "hr", "meta", "link"})


def el(name: str, /, *children: Child, **named: Attribute) -> Html:
    """Return an HTML element. See `attributes` for the names and values of attributes."""
    opening = f"<{name}{attributes(**named)}>"
    return Html(opening if name in _VOID else f"{opening}{join(*children)}</{name}>")


def attributes(**named: object) -> Html:
    """Return attributes as HTML, each after a space. Underscores in names become hyphens; one at the end is dropped.
    An attribute is left out if its value is None, False or undefined. In Jinja, `"x" if y` is undefined if `y` is
    false. For the value True, only the name is written.
    """
    parts = []
    for key, value in named.items():
        if value is None or value is False or type(value) is Undefined:
            continue
        hyphened = key.rstrip("_").replace("_", "-")
        if key in _ADDRESSES:
            value = in_browser(str(value))
        parts.append(f" {hyphened}" if value is True else f' {hyphened}="{escape(str(value))}"')
    return Html("".join(parts))


def join(*children: Child) -> Html:
    """Return the children as HTML, one after another."""
    return Html("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str) and hasattr(child, "__html__"):  # Html, or the output of a template's macro
        return child
    if isinstance(child, str | int | float):
        return escape(str(child), quote=False)
    return join(*child)


def stamped(markup: Html) -> str:
    """Return HTML with its hash in a comment before it. A browser sends back the hashes to get only changed parts."""
    return f"<!--{fingerprint(markup)}-->{markup}"


def fingerprint(markup: str) -> str:
    """Return the first 12 hexadecimal digits of the SHA-256 of some HTML."""
    return hashlib.sha256(markup.encode()).hexdigest()[:12]
