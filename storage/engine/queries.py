"""Short functions for common queries and changes of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from sqlite_utils import Database as Db

from core.errors import UserError
from storage.engine.rows import Row, record_of

T = TypeVar("T")
Values = Sequence[Any] | dict[str, Any]
"""Parameters of a query, by position or by name."""


def records(db: Db, kind: Callable[..., T], query: str, values: Values = ()) -> tuple[T, ...]:
    """Return the rows of a query as dataclasses of the type `kind`."""
    return tuple(record_of(kind, row) for row in db.query(query, values))


def record(db: Db, kind: Callable[..., T], query: str, values: Values = ()) -> T | None:
    """Return the first row of a query as a dataclass of the type `kind`, or None."""
    return next(iter(records(db, kind, query, values)), None)


def first_column(db: Db, query: str, values: Values = ()) -> list[Any]:
    """Return the values in the first column of a query."""
    return [row[0] for row in db.execute(query, values)]


def first_value(db: Db, query: str, values: Values = ()) -> Any:
    """Return the first value of the first row of a query; None if it has no row."""
    row = db.execute(query, values).fetchone()
    return None if row is None else row[0]


def required_row(db: Db, table: str, key: int | str, missing: str, field: str = "") -> Row:
    """Return the row with this id. If no row has it, raise UserError with the message `missing`, naming `field`."""
    for row in db.query(f"SELECT * FROM {table} WHERE id = ?", [key]):
        return row
    raise UserError(missing, field=field)


def insert_row(db: Db, table: str, row: Row) -> int:
    """Insert a row and return its id. All values are bound parameters."""
    key = db.table(table).insert(dict(row)).last_pk
    assert key is not None  # insert() without ignore always has one
    return int(key)


def insert_rows(db: Db, table: str, rows: Iterable[Row], ignore: bool = False) -> int:
    """Insert rows with the same columns and return how many. With `ignore`, skip rows that exist already."""
    new = list(rows)
    names = list(new[0]) if new else []
    query = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(f':{name}' for name in names)})"
    return db.conn.executemany(f"{query}{' ON CONFLICT DO NOTHING' if ignore else ''}", new).rowcount if new else 0


def change_row(db: Db, table: str, key: int | str, columns: Row) -> None:
    """Change columns of the row with this id. All values are bound parameters."""
    names = ", ".join(f"{name} = :{name}" for name in columns)
    db.execute(f"UPDATE {table} SET {names} WHERE id = :id", {**columns, "id": key})
