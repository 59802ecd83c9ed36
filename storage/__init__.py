"""One folder holds a workspace: `studio.db` and `images/`. Start at `storage.workspace`."""

from __future__ import annotations

import sys

if "pandas" not in sys.modules:
    # sqlite_utils imports pandas if it is there, only to store its timestamps: half of the time of importing storage.
    sys.modules["pandas"] = None  # type: ignore[assignment]
    import sqlite_utils  # noqa: F401

    del sys.modules["pandas"]
