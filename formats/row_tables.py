"""Parquet tables with a row for each example of an export."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from formats.types import Example, row_of

if TYPE_CHECKING:
    import pyarrow

_ROWS = 64
"""Number of images of a row group, which are in memory at once."""


def row_schema(files: Mapping[str, str | None]) -> pyarrow.Schema:
    """Return the columns of a table: those of the files ("Image" if `datasets` shows them), then those of a row."""
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
    """Write a Parquet file. Yields a function that adds a row; the table uses the columns in `schema`."""
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
