"""A workspace is one folder: `studio.db` and `images/`. Start at `storage.workspace`.

sqlite_utils is imported here first, without pandas, which it needs only to recognise one more type of value. Importing
pandas takes a fifth of a second and 60 MB in each process that opens a workspace, such as a worker of a batch.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    """Import hook that refuses pandas to the thread that made it. Other threads may import pandas at the same time."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("sqlite_utils does without pandas here", name=fullname)
        return None


_finder = _NoPandas()
sys.meta_path.insert(0, _finder)
try:
    import sqlite_utils  # noqa: F401 - imports of it elsewhere get this one
finally:
    sys.meta_path.remove(_finder)
