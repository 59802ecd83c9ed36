"""How values become columns and come back: times, JSON, seeds, image rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import sqlite_utils

from pipeline.types import from_plain, to_plain
from storage.images import StoredImage

Row = Mapping[str, Any]


def now() -> str:
    """The time as it is stored: UTC, ISO 8601 with microseconds, so that text order is time order."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def when(text: str) -> datetime:
    """A stored time."""
    return datetime.fromisoformat(text)


def pack(data: Any) -> str:
    """Plain data as JSON text. Raises TypeError or ValueError for what JSON does not have, NaN among them."""
    return json.dumps(data, allow_nan=False)


def pack_value(value: Any) -> str:
    """One of pipeline's dataclasses as JSON text."""
    return pack(to_plain(value))


def unpack_value(kind: Any, text: str) -> Any:
    """The dataclass back, validated."""
    return from_plain(kind, json.loads(text))


def whole(text: str) -> str:
    """The text with a question mark for each half of a letter (a lone surrogate), which no file and no table takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def insert_row(db: sqlite_utils.Database, table: str, row: Row) -> int:
    """Add a row with every value bound; return its id."""
    key = db.table(table).insert(dict(row)).last_pk
    assert key is not None  # insert() without ignore always has one
    return int(key)


def keep_image(db: sqlite_utils.Database, image: StoredImage) -> None:
    """The row of an image whose file is whole. The same image again changes nothing."""
    db.table("images").insert(
        {
            "sha": image.sha,
            "width": image.width,
            "height": image.height,
            "mode": image.mode,
            "bytes": image.bytes,
            "created": now(),
        },
        ignore=True,
    )
