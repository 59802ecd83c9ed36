"""Hugging Face's formats: ImageFolder with `metadata.jsonl`, and Parquet with the images inside."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from formats.common import (
    beside,
    in_shards,
    is_sheet,
    pair_of_files,
    read_bytes,
    read_mask_file,
    row_of_cells,
    rows_of_lines,
    split_in,
    splits_of,
    without,
)
from formats.draft import Draft
from formats.files import Files, is_image, names_by_form
from formats.naming import split_folder
from formats.pages import Kept
from formats.types import Example, Found, Report, Row, row_of

if TYPE_CHECKING:
    import pyarrow

METADATA = "metadata.parquet"
LINES = "metadata.jsonl"
"""What most people have in its place."""
_ROWS = 64
"""Images of a row group: so many are in memory at once."""


def write_imagefolder(draft: Draft, examples: Sequence[Example]) -> Kept:
    """Hugging Face ImageFolder: SPLIT/metadata.parquet beside SPLIT/images/ and SPLIT/masks/.

    In metadata.jsonl `datasets` would take labels such as 2024-01-01 for dates, and the types of columns from its first
    ten megabytes.
    """

    def named(example: Example) -> tuple[str, str | None]:
        split = split_folder(example.split)
        return pair_of_files(example, f"{split}/images", f"{split}/masks")

    # The image comes first, or `datasets` has its column last.
    schema = _schema({"file_name": None, **({"mask_file_name": None} if draft.masks else {})})
    for split, pictures in groupby(draft.pictures(examples, named), lambda picture: picture.example.split):
        with _table(draft, f"{split_folder(split)}/{METADATA}", schema) as add:
            for picture in pictures:
                image, mask = named(picture.example)
                files = {"file_name": image, "mask_file_name": mask}
                add({**{name: file and file.partition("/")[2] for name, file in files.items()}, **picture.row})
                draft.record(picture, image, mask)
    kinds = ("images", "masks") if draft.masks else ("images",)
    splits = [split_folder(split) for split in splits_of(examples)]
    return Kept(
        f'from datasets import load_dataset\n\nimages = load_dataset("SET", split="{splits[0]}")',
        (
            ("SPLIT/images/", "the images"),
            *([("SPLIT/masks/", "a class number a pixel, of the image of the same name")] if draft.masks else []),
            (f"SPLIT/{METADATA}", "a row an image, as `datasets` reads it"),
        ),
        images="*/images/*.png",
        masks="*/masks/*.png" if draft.masks else "",
        configs=tuple((split, (f"{split}/{METADATA}", *(f"{split}/{kind}/*" for kind in kinds))) for split in splits),
        notes=(
            '`edits`, `mask_classes` and `facts` are JSON texts: `json.loads(row["facts"])`.',
            'Labels are texts; `images.class_encode_column("label")` numbers them.',
        ),
    )


def find_imagefolder(files: Files, report: Report) -> Iterator[Found]:
    """The examples of every `metadata.jsonl` or `metadata.parquet`; images that none of their rows names are told."""
    known = names_by_form(files.names)
    used: set[str] = set()
    tables = [name for name in files.names if posixpath.basename(name) in (METADATA, LINES)]
    for table in tables:
        folder = posixpath.dirname(table)
        rows = rows_of_parquet if table.endswith(METADATA) else rows_of_lines
        for where, row in rows(files, table, report):
            extra = row.model_extra or {}
            named = extra.get("file_name")
            mask_named = extra.get("mask_file_name")
            image = beside(named, folder, known)
            if image is None:
                report.refuse(where, _missing("an image", named))
                continue
            mask = beside(mask_named, folder, known) if mask_named else None
            used.update(name for name in (image, mask) if name)
            if mask_named and mask is None:
                report.refuse(where, _missing("a mask", mask_named))
                continue
            split = split_in(row.split or posixpath.dirname(image))
            yield Found(
                image,
                row.name or posixpath.splitext(posixpath.basename(image))[0],
                read_bytes(files, image),
                row.label,
                split,
                read_mask_file(files, mask) if mask else None,
                row.mask_classes or None,
                without(row, "file_name", "mask_file_name"),
            )
    for name in files.names:
        if is_image(name) and name not in used and _within(name, tables):
            report.refuse(name, f"No line of {posixpath.basename(tables[0])} names it: add one, or take the file away.")


def _missing(what: str, named: object) -> str:
    return f"It names {what} that is not there (“{named}”): add the file." if named else f"It names no {what[3:]}."


def _within(name: str, tables: Sequence[str]) -> bool:
    """Whether an image lies beside or below one of the tables."""
    folders = [posixpath.dirname(table) for table in tables]
    return not is_sheet(name) and any(not folder or name.startswith(f"{folder}/") for folder in folders)


def write_parquet(draft: Draft, examples: Sequence[Example]) -> Kept:
    """Parquet: data/SPLIT-NUMBER.parquet, images and masks inside, as `datasets` shows them."""
    schema = _schema({"image": "Image", **({"mask": "Image"} if draft.masks else {})})
    splits: dict[str, None] = {}
    for split, number, group in in_shards(draft.pictures(examples)):
        name = f"data/{split}-{number:05d}.parquet"
        splits[split] = None
        with _table(draft, name, schema) as add:
            for picture in group:
                path, place = f"{picture.example.name}.png", f"{name}#{picture.example.name}"
                mask = None if picture.mask is None else {"bytes": picture.mask, "path": path}
                add({"image": {"bytes": picture.data, "path": path}, "mask": mask, **picture.row})
                draft.record(picture, place, place if mask else None)
    return Kept(
        f'from datasets import load_dataset\n\nimages = load_dataset("SET", split="{next(iter(splits))}")',
        (("data/SPLIT-NUMBER.parquet", "a row an image, with image and mask inside"),),
        shards="data/*.parquet",
        configs=tuple((split, (f"data/{split}-*.parquet",)) for split in splits),
        notes=('`edits`, `mask_classes` and `facts` are JSON texts: `json.loads(row["facts"])`.',),
    )


def find_parquet(files: Files, report: Report) -> Iterator[Found]:
    """The rows of every Parquet file that has a column `image` of bytes, or of files beside it."""
    for table in (name for name in files.names if name.endswith(".parquet")):
        for place, (where, cells) in enumerate(cells_of_parquet(files, table, report), start=1):
            if "image" not in cells:
                report.refuse(table, "It has no column “image”: name the column with the images so.")
                break
            found = _parquet_found(table, place, where, cells, report)
            if found is not None:
                yield found


def cells_of_parquet(files: Files, table: str, report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a Parquet file, each with its place in words; those that cannot be read are told.

    A number that `datasets` wrote for a class is its name.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        opened = pyarrow.parquet.ParquetFile(files.path(table))
        named = named_numbers(opened.schema_arrow.metadata)
        rows = chain.from_iterable(batch.to_pylist() for batch in opened.iter_batches(batch_size=_ROWS))
        for place, cells in enumerate(rows, start=1):
            where, unknown = f"{table}, row {place}", ""
            for column, names in named.items():
                number = cells.get(column)
                if isinstance(number, int):
                    unknown = unknown or ("" if -1 <= number < len(names) else f"Its {column} is class {number}")
                    cells[column] = names[number] if 0 <= number < len(names) else None  # -1: nobody knows it
            if unknown:
                report.refuse(where, f"{unknown}, which the table does not name.")
            else:
                yield where, cells
    except (pyarrow.ArrowException, OSError, UserError) as error:
        damaged = "It is damaged or no Parquet file: export it again."
        report.refuse(table, str(error) if isinstance(error, UserError) else damaged)


def rows_of_parquet(files: Files, table: str, report: Report) -> Iterator[tuple[str, Row]]:
    """The rows of a Parquet file without images, each with its place in words; those that cannot be read are told."""
    for where, cells in cells_of_parquet(files, table, report):
        row = row_of_cells(cells, where, report)
        if row is not None:
            yield where, row


def count_parquet(files: Files) -> int:
    """How many rows there are."""
    import pyarrow
    import pyarrow.parquet

    count = 0
    for table in (name for name in files.names if name.endswith(".parquet")):
        with suppress(pyarrow.ArrowException, OSError, UserError):  # `find_parquet` tells of it
            count += pyarrow.parquet.read_metadata(files.path(table)).num_rows
    return count


def _schema(files: Mapping[str, str | None]) -> pyarrow.Schema:
    """The columns of a table: those of the files, with "Image" for what `datasets` shows, then those of a row."""
    import pyarrow

    text, image = pyarrow.string(), pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    columns = {name: image if kind else text for name, kind in files.items()}
    columns |= dict.fromkeys(row_of(Example("x", Path(), "")), text) | {"edit_types": pyarrow.list_(text)}
    # What `datasets` looks for to show the bytes as images.
    value = {"dtype": "string", "_type": "Value"}
    features = dict.fromkeys(columns, value) | {"edit_types": {"feature": value, "_type": "List"}}
    features |= {name: {"_type": kind} for name, kind in files.items() if kind}
    about = {"huggingface": json.dumps({"info": {"features": features}})}
    return pyarrow.schema(list(columns.items()), metadata=about if any(files.values()) else None)


@contextmanager
def _table(draft: Draft, name: str, schema: pyarrow.Schema) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A Parquet file of an export, to which the function adds a row."""
    import pyarrow.parquet

    rows: list[dict[str, Any]] = []
    # Images are packed already.
    packed = dict.fromkeys(("facts", "caption", "new_caption", "edits"), "zstd")
    with (
        draft.stream(name) as file,
        pyarrow.parquet.ParquetWriter(file, schema, compression=packed, use_dictionary=False) as writer,
    ):

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()

        def add(row: dict[str, Any]) -> None:
            rows.append(row)
            if len(rows) == _ROWS:
                flush()

        yield add
        if rows:
            flush()


def named_numbers(metadata: Mapping[bytes, bytes] | None) -> dict[str, list[str]]:
    """The columns that `datasets` wrote as numbers of classes, and the names of these numbers."""
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return {
            column: [str(name) for name in about["names"]]
            for column, about in features.items()
            if isinstance(about, dict) and isinstance(about.get("names"), list)
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _parquet_found(table: str, place: int, where: str, cells: dict[str, Any], report: Report) -> Found | None:
    """The example of a row; None, told, when it cannot be one."""
    image, mask = cells.pop("image"), cells.pop("mask", None)
    image = image.get("bytes") if isinstance(image, dict) else image
    mask = mask.get("bytes") if isinstance(mask, dict) else mask
    if not isinstance(image, bytes) or (mask is not None and not isinstance(mask, bytes)):
        report.refuse(where, "It does not hold the bytes of an image: export the images with the table.")
        return None
    row = row_of_cells(cells, where, report)
    if row is None:
        return None
    return Found(
        f"{table}#{row.name or place}",
        row.name or f"{posixpath.splitext(posixpath.basename(table))[0]}-{place}",
        lambda data=image: data,  # type: ignore[misc]
        row.label,
        split_in(row.split or posixpath.basename(table).partition("-")[0]),
        (lambda _size, data=mask: data) if mask is not None else None,  # type: ignore[misc]
        row.mask_classes or None,
        row,
    )
