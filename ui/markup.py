"""Builds HTML. Whatever is not `Html` already is escaped, so that a text can never become markup."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from html import escape

from jinja2 import Undefined

from ui.addresses import in_browser


class Html(str):
    """Markup that is shown as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        """Jinja asks for this, and then escapes nothing."""
        return self


Child = Html | str | int | float | None | Iterable["Child"]
Attribute = str | int | float | bool | None

_ADDRESSES = frozenset({"href", "src", "action"})
"""Attributes whose value a browser asks for. Scripts do the same with `wire.at`."""
_VOID = frozenset({"img", "input", "br", "hr", "meta", "link"})


def el(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element, with `attributes` as the function of that name writes them."""
    opening = f"<{name}{_attributes(attributes)}>"
    return Html(opening if name in _VOID else f"{opening}{join(*children)}</{name}>")


def attributes(**named: Attribute) -> Html:
    """Attributes, each after a space. They get hyphens and lose a last underscore.

    None, False and what Jinja's `"x" if y` gives without an else are left out; True stands without a value.
    """
    return _attributes(named)


def _attributes(named: Mapping[str, object]) -> Html:
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
    """Children one after another."""
    return Html("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str) and hasattr(child, "__html__"):  # what a macro of a template made
        return child
    if isinstance(child, str | int | float):
        return escape(str(child), quote=False)
    return join(*child)


def stamped(markup: Html) -> str:
    """Markup behind a comment with its hash: the page sends the hashes back, and what it shows already is not sent."""
    return f"<!--{fingerprint(markup)}-->{markup}"


def fingerprint(markup: str) -> str:
    """12 hexadecimal digits."""
    return hashlib.sha256(markup.encode()).hexdigest()[:12]
