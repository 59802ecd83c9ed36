"""A workspace is one folder: `studio.db` and `images/`. Start at `storage.workspace`."""

from __future__ import annotations

from storage.engine import sqlite_utils_alone as sqlite_utils_alone  # before any module here imports sqlite_utils
