"""A workspace is one folder: `studio.db` and `images/`. Start at `storage.workspace`.

sqlite_utils is imported here first, without pandas, which it needs only to recognise one more type of value. Importing
pandas takes a fifth of a second and 60 MB in each process that opens a workspace, such as a worker of a batch.
"""

from __future__ import annotations

import sys

_is_loaded = "pandas" in sys.modules
if not _is_loaded:
    sys.modules["pandas"] = None  # type: ignore[assignment]  # Python refuses to import a module of this value
try:
    import sqlite_utils  # noqa: F401 - imports of it elsewhere get this one
finally:
    if not _is_loaded:
        del sys.modules["pandas"]
