"""Builds HTML. Whatever is not `Html` already is escaped, so that a text can never become markup."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from html import escape

from ui.addresses import in_browser


class Html(str):
    """Markup that is shown as it is."""

    __slots__ = ()


Child = Html | str | int | float | None | Iterable["Child"]
Attribute = str | int | float | bool | None

_ADDRESSES = frozenset({"href", "src", "action"})
"""Attributes whose value a browser asks for. Scripts do the same with `wire.at`."""
_VOID = frozenset({"img", "input", "br", "hr", "meta", "link"})


def el(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. Attributes get hyphens and lose a last underscore. None and False are left out, True is bare."""
    parts = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        hyphened = key.rstrip("_").replace("_", "-")
        if key in _ADDRESSES:
            value = in_browser(str(value))
        parts.append(f" {hyphened}" if value is True else f' {hyphened}="{escape(str(value))}"')
    opening = f"<{name}{''.join(parts)}>"
    return Html(opening if name in _VOID else f"{opening}{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """Children one after another."""
    return Html("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
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
