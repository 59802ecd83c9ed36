"""How values become columns and come back: times, JSON, seeds; and what all repositories ask of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar, get_type_hints

from sqlite_utils import Database as Db

from core.errors import UserError
from core.types import from_plain, to_plain

Row = Mapping[str, Any]
T = TypeVar("T")


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


def record_of(kind: Callable[..., T], row: Row, **values: Any) -> T:
    """Return a dataclass from a row: its fields from the columns of the same names, except those given as `values`."""
    columns = {name: read(row[name]) for name, read in _readers(kind).items() if name in row and name not in values}
    return kind(**columns, **values)


@lru_cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any]]:
    """Map each field of a dataclass to the function that reads its column: times and truth values, others as stored."""
    known: dict[Any, Callable[[Any], Any]] = {
        datetime: when,
        datetime | None: lambda text: when(text) if text else None,
        bool: bool,
    }
    hints = get_type_hints(kind)
    return {field.name: known.get(hints[field.name], lambda value: value) for field in fields(kind)}


def whole(text: str) -> str:
    """The text with a question mark for each half of a letter (a lone surrogate), which no file and no table takes."""
    return text.encode("utf-8", "replace").decode("utf-8")


def checked_text(text: str, what: str, longest: int, field: str = "", one_line: bool = True) -> str:
    """What a person typed, as it is kept. Raises UserError about the `field` where it is longer; `what` names it."""
    text = whole(" ".join(text.split()) if one_line else text.strip())
    if len(text) > longest:
        raise UserError(f"{what} has {len(text)} characters; at most {longest} are taken.", field=field)
    return text


def sha_of(text: str) -> str:
    """The SHA-256 of a text, which is kept in its place where the text opens something: 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def insert_row(db: Db, table: str, row: Row) -> int:
    """Add a row with every value bound; return its id."""
    key = db.table(table).insert(dict(row)).last_pk
    assert key is not None  # insert() without ignore always has one
    return int(key)


def require_run(db: Db, run_id: str) -> None:
    """Raises UserError when there is no such run."""
    if not run_exists(db, run_id):
        raise UserError(f"This workspace has no run {run_id[:80]!r}; pick one from the list of runs.", field="run")


def run_exists(db: Db, run_id: str) -> bool:
    """Whether there is such a run, removed or not."""
    return db.execute("SELECT 1 FROM runs WHERE id = ?", [run_id]).fetchone() is not None
