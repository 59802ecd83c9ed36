"""Table files: Arrow files, mapped into memory, and Parquet files, read and written one row group at a time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from core.errors import UserError
from formats.source import UNKNOWN, Latest
from formats.types import Example, row_of

if TYPE_CHECKING:
    import pyarrow

_ROWS = 64
"""Maximum number of rows with images that are in memory at once, when reading, and when writing a row group."""
_GROUPS = 2
"""Maximum number of Parquet row groups in memory. A row group of ImageNet takes some ten megabytes."""
_LABELS = 4096
"""Number of rows to read at once when only their labels are read."""
MOST_ROWS = 2_000_000
"""Maximum number of rows of a table. A small compressed file can hold enough equal rows for hours of import."""


def require_few(rows: int) -> None:
    """Raise UserError if a table has more than `MOST_ROWS` rows."""
    if rows > MOST_ROWS:
        raise UserError(f"The table has more than {MOST_ROWS:,} rows: split it into smaller tables.")


class ArrowFile:
    """Arrow file that is mapped into memory."""

    def __init__(self, file: Path) -> None:
        import pyarrow

        mapped = pyarrow.memory_map(str(file))
        try:
            self._table = pyarrow.ipc.open_stream(mapped).read_all()
        except pyarrow.ArrowInvalid:  # Arrow's file format; its other format is a stream
            self._table = pyarrow.ipc.open_file(mapped).read_all()
        self.schema = self._table.schema
        require_few(self.count())

    def count(self) -> int:
        return int(self._table.num_rows)

    def rows(self, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
        """Yield rows from front to back, with the given columns only; None reads all columns."""
        table = self._table if columns is None else self._table.select(list(columns))
        for batch in table.to_batches(_ROWS if columns is None else _LABELS):
            yield from batch.to_pylist() if batch.num_columns else ({} for _ in range(batch.num_rows))

    def row(self, number: int, columns: Sequence[str]) -> dict[str, Any]:
        """Return the row with a zero-based number, with the given columns only."""
        row: dict[str, Any] = self._table.select(list(columns)).slice(number, 1).to_pylist()[0]
        return row


class ParquetFile:
    """Parquet file. The row groups read last stay in memory."""

    def __init__(self, file: Path) -> None:
        import pyarrow.parquet

        self._file = pyarrow.parquet.ParquetFile(file)
        self.schema = self._file.schema_arrow
        metadata = self._file.metadata
        require_few(metadata.num_rows)
        self._sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._lock = threading.Lock()
        self._groups = Latest(self._group, _GROUPS)

    def count(self) -> int:
        return sum(self._sizes)

    def rows(self, columns: Sequence[str] | None) -> Iterator[dict[str, Any]]:
        if columns is None:
            for batch in self._file.iter_batches(batch_size=_ROWS):
                yield from batch.to_pylist()
        elif not columns:
            yield from ({} for _ in range(self.count()))
        else:
            for group in range(len(self._sizes)):
                yield from self._group(json.dumps([group, *columns])).to_pylist()

    def row(self, number: int, columns: Sequence[str]) -> dict[str, Any]:
        for group, size in enumerate(self._sizes):
            if number < size:
                table = self._groups.get(json.dumps([group, *columns]))
                row: dict[str, Any] = table.slice(number, 1).to_pylist()[0]
                return row
            number -= size
        raise UserError(UNKNOWN)

    def _group(self, key: str) -> pyarrow.Table:
        group, *columns = json.loads(key)
        with self._lock:
            return self._file.read_row_group(group, columns=columns)


def features_of(schema: pyarrow.Schema) -> dict[str, Any]:
    """Return the column descriptions that the library `datasets` wrote into the file; {} without any."""
    try:
        features = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return {name: about for name, about in features.items() if isinstance(about, dict)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def class_names(schema: pyarrow.Schema) -> dict[str, list[str]]:
    """Return the class names of each column that the library `datasets` wrote as class numbers, by column."""
    names = {column: about.get("names") for column, about in features_of(schema).items() if column in schema.names}
    return {column: list(map(str, listed)) for column, listed in names.items() if isinstance(listed, list)}


def with_class_names(values: dict[str, Any], names: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Replace class numbers in a row by class names. The number -1 (unknown class) becomes None."""
    for column, listed in names.items():
        number = values.get(column)
        if isinstance(number, int) and -1 <= number < len(listed):
            values[column] = listed[number] if number >= 0 else None
    return values


def row_schema(files: Mapping[str, str | None]) -> pyarrow.Schema:
    """Return the columns of a table: first `files` (name and kind, such as "Image"), then the columns of `row_of`."""
    import pyarrow

    text, image = pyarrow.string(), pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = {name: image if kind else text for name, kind in files.items()}
    columns |= dict.fromkeys(row_of(Example("x", Path(), "")), text) | {"edit_types": pyarrow.list_(text)}
    # Metadata that makes `datasets` show the bytes as images.
    value = {"dtype": "string", "_type": "Value"}
    features = dict.fromkeys(columns, value) | {"edit_types": {"feature": value, "_type": "List"}}
    features |= {name: {"_type": kind} for name, kind in files.items() if kind}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pyarrow.schema(list(columns.items()), metadata=metadata if any(files.values()) else None)


@contextmanager
def row_table(file: BinaryIO, schema: pyarrow.Schema) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Open a Parquet file for writing, with the columns of `schema`. Yields a function that adds a row."""
    import pyarrow.parquet

    rows: list[Mapping[str, Any]] = []
    # Images are compressed already.
    packed = dict.fromkeys(("facts", "caption", "new_caption", "edits"), "zstd")
    with pyarrow.parquet.ParquetWriter(file, schema, compression=packed, use_dictionary=False) as writer:

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()

        def add(row: Mapping[str, Any]) -> None:
            rows.append(row)
            if len(rows) == _ROWS:
                flush()

        yield add
        if rows:
            flush()
