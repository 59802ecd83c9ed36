"""Tables of data in a TOML file that lies beside a module and has the module's name."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

V = TypeVar("V")


class DataTable(Mapping[Any, V], Generic[V]):
    """The values in a module's TOML file or in one table of it. Read at first use, so its mistakes break no import."""

    def __init__(self, module_file: str, kind: type[V], table: str = "") -> None:
        """Set the file and the table. `kind` is the type of each value, as in `DataTable(__file__, int, "ages")`."""
        self._file, self._kind, self._table = Path(module_file).with_suffix(".toml"), kind, table

    @cached_property
    def _values(self) -> dict[str, V]:
        data = tomllib.loads(self._file.read_text(encoding="utf-8"))
        read = TypeAdapter(self._kind).validate_python
        return {name: read(value) for name, value in (data[self._table] if self._table else data).items()}

    def __getitem__(self, name: Any) -> V:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
