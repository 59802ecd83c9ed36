"""Addresses on pages. If a proxy serves the studio below a path such as /studio, the addresses begin with it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from core.errors import UserError

_ROOT: ContextVar[str] = ContextVar("root_path", default="")
_SEGMENTS = re.compile(r"[\w.~-]+(/[\w.~-]+)*", re.ASCII)


def read_root_path(text: str) -> str:
    """Return a typed root path in the form "/a/b", or "" for "/". Raises UserError if the path is invalid."""
    path = text.strip().strip("/")
    if not path:
        return ""
    if not _SEGMENTS.fullmatch(path) or {".", ".."} & set(path.split("/")):
        raise UserError(
            f"The root path {text!r} cannot be used: give the path alone, such as /studio for "
            "https://example.org/studio/, in letters, digits and the signs . _ ~ -"
        )
    return f"/{path}"


@contextmanager
def served_below(root_path: str) -> Iterator[None]:
    """Put `root_path` before all addresses on pages that are rendered in this context."""
    token = _ROOT.set(root_path)
    try:
        yield
    finally:
        _ROOT.reset(token)


def in_browser(address: str) -> str:
    """Return an address with the root path before it. An address that does not begin with a single "/" is unchanged."""
    return f"{_ROOT.get()}{address}" if address.startswith("/") and not address.startswith("//") else address


def studio_address(scheme: str, host: str) -> str:
    """Return the studio's address for `scheme` and `host`, such as "https://example.org/studio" (no "/" at the end)."""
    return f"{scheme}://{host}{_ROOT.get()}"
