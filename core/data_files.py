"""Reads what is data and no code: the TOML file beside a module that has the module's name."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


def data_of(module_file: str, kind: type[T], table: str = "") -> T:
    """Return the data of a module, or one table of them, as a type: `data_of(__file__, dict[str, int], "ages")`."""
    data = _read(Path(module_file).with_suffix(".toml"))
    return TypeAdapter(kind).validate_python(data[table] if table else data)


@cache
def _read(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))
