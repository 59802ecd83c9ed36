"""Addresses on pages, with the path put before them below which a proxy serves the studio."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from core.errors import UserError

_ROOT: ContextVar[str] = ContextVar("root_path", default="")
_SEGMENTS = re.compile(r"[\w.~-]+(/[\w.~-]+)*", re.ASCII)


def read_root_path(text: str) -> str:
    """Return "/a/b" for "/a/b", "a/b" and "/a/b/", and "" for "" and "/". Raises UserError for anything else."""
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
    """Put `root_path` before the addresses of all pages that are rendered in this context."""
    token = _ROOT.set(root_path)
    try:
        yield
    finally:
        _ROOT.reset(token)


def in_browser(address: str) -> str:
    """Return an address as a browser asks for it. Only one that begins with a single "/" changes."""
    return f"{_ROOT.get()}{address}" if address.startswith("/") and not address.startswith("//") else address


def studio_address(scheme: str, host: str) -> str:
    """Return the whole address of the studio, without a "/" at its end. A client reaches it by `scheme` at `host`."""
    return f"{scheme}://{host}{_ROOT.get()}"
