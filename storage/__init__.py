"""One folder holds a workspace: `studio.db` and `images/`. Start at `storage.workspace`."""

from __future__ import annotations

import sys

if "pandas" not in sys.modules:
    # sqlite_utils imports it where it is installed, for types that nothing here has: a quarter of a command's start.
    sys.modules["pandas"] = None  # type: ignore[assignment]
    import sqlite_utils  # noqa: F401

    del sys.modules["pandas"]
