"""The studio's version, read from pyproject.toml, as the checkout is not installed as a package."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

_PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


@cache
def version() -> str:
    """Return the version, such as "0.1.0"."""
    return str(tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["version"])
