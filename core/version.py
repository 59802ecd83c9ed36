"""The studio's version: written once, in pyproject.toml, and read from there, as the checkout is not installed."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

_PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


@cache
def version() -> str:
    """Such as "0.1.0"."""
    return str(tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["version"])
