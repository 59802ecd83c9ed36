"""Convert values such as times, JSON and dataclasses to columns of the database and back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from core.errors import UserError
from core.types import from_plain, to_plain

Row = Mapping[str, Any]
T = TypeVar("T")


def now() -> str:
    """Return the current time as it is stored: UTC in ISO 8601 with microseconds. Text order is time order."""
    return later()


def later(**delta: float) -> str:
    """Return the time `delta` from now in the stored form. `delta` is given as for timedelta, such as `hours=1`."""
    return (datetime.now(UTC) + timedelta(**delta)).isoformat(timespec="microseconds")


def when(text: str) -> datetime:
    """Parse a stored time."""
    return datetime.fromisoformat(text)


def pack(data: Any) -> str:
    """Return plain data as JSON text. Raises TypeError or ValueError for values that JSON lacks, such as NaN."""
    return json.dumps(data, allow_nan=False)


def pack_value(value: Any) -> str:
    """Return a dataclass as JSON text."""
    return pack(to_plain(value))


def unpack_value(kind: Any, text: str) -> Any:
    """Parse JSON text as a dataclass of the type `kind`, with validation."""
    return from_plain(kind, json.loads(text))


def record_of(kind: Callable[..., T], row: Row, **values: Any) -> T:
    """Make a dataclass from a row. Each field comes from `values`, else from the column with the field's name."""
    columns = {name: read(row[name]) for name, read in _readers(kind).items() if name in row and name not in values}
    return kind(**columns, **values)


@lru_cache
def _readers(kind: Any) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(kind)
    return {field.name: _reader(hints[field.name]) for field in fields(kind)}


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Return the function that parses a column of this type.

    Lists, mappings and dataclasses are stored as JSON and seeds as text. NULL becomes "" for a text. If None is allowed
    instead of a dataclass, it is stored as NULL or "".
    """
    if get_origin(hint) in (tuple, dict, Mapping) or is_dataclass(hint):
        return partial(unpack_value, hint)
    parts = get_args(hint)
    if len(parts) == 2 and is_dataclass(parts[0]) and parts[1] is NoneType:
        return lambda text: unpack_value(parts[0], text) if text else None
    known: dict[Any, Callable[[Any], Any]] = {
        datetime: when,
        datetime | None: lambda text: when(text) if text else None,
        bool: bool,
        int: lambda number: int(number) if isinstance(number, str) else number,
        str: lambda text: text or "",
    }
    return known.get(hint, lambda value: value)


def whole(text: str) -> str:
    """Replace each lone surrogate in a text by a question mark. Neither files nor tables accept surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def checked_text(text: str, what: str, longest: int, field: str = "", one_line: bool = True, if_empty: str = "") -> str:
    """Return a typed text in the form to store. Raises UserError about `field` if it is too long.

    `what` names the text in the message. If `if_empty` is given, it is the message for empty text.
    """
    text = whole(" ".join(text.split()) if one_line else text.strip())
    if len(text) > longest:
        raise UserError(f"{what} has {len(text)} characters, but at most {longest} are allowed.", field=field)
    if if_empty and not text:
        raise UserError(if_empty, field=field)
    return text


def sha_of(text: str) -> str:
    """Return the SHA-256 of a text as 64 hexadecimal digits. A text that grants access is stored in this form only."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
