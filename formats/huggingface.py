"""Hugging Face's formats: ImageFolder with `metadata.jsonl`, and Parquet with the images inside."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from core.errors import UserError
from core.validation_messages import reason
from formats.common import (
    beside,
    in_shards,
    is_sheet,
    pair_of_files,
    read_bytes,
    read_mask_file,
    rows_of_lines,
    split_in,
    splits_of,
    without,
)
from formats.draft import Draft, HashedFile
from formats.files import Files, is_image, names_by_form
from formats.naming import split_folder
from formats.pages import Kept
from formats.types import Example, Found, Report, Row, json_lines, row_of

if TYPE_CHECKING:
    import pyarrow

METADATA = "metadata.jsonl"
_ROWS = 64
"""Images of a row group: so many are in memory at once."""


def write_imagefolder(draft: Draft, examples: Sequence[Example]) -> Kept:
    """Hugging Face ImageFolder: SPLIT/metadata.jsonl beside SPLIT/images/ and SPLIT/masks/."""
    masks = any(example.mask is not None for example in examples)
    splits = splits_of(examples)

    def named(example: Example) -> tuple[str, str | None]:
        split = split_folder(example.split)
        return pair_of_files(example, f"{split}/images", f"{split}/masks")

    with ExitStack() as open_files:
        tables: dict[str, HashedFile] = {}
        for picture in draft.pictures(_telling_first(examples), named):
            example, split = picture.example, split_folder(picture.example.split)
            if split not in tables:
                tables[split] = open_files.enter_context(draft.stream(f"{split}/{METADATA}"))
            image, mask = named(example)
            # The image comes first, or `datasets` has its column last; a column is there in every line or in none.
            files = {"file_name": f"images/{example.name}.png"}
            if masks:
                files["mask_file_name"] = f"masks/{example.name}.png" if mask else None  # type: ignore[assignment]
            tables[split].write(json_lines([{**files, **picture.row}]))
            draft.record(picture, image, mask)
    kinds = ("images", "masks") if masks else ("images",)
    first = split_folder(splits[0])
    return Kept(
        f'from datasets import load_dataset\n\nimages = load_dataset("SET", split="{first}")',
        (
            ("SPLIT/images/", "the images"),
            *([("SPLIT/masks/", "a class number a pixel, of the image of the same name")] if masks else []),
            (f"SPLIT/{METADATA}", "a line an image, as `datasets` reads it"),
        ),
        images="*/images/*.png",
        masks="*/masks/*.png" if masks else "",
        configs=tuple(
            (split, (f"{split}/{METADATA}", *(f"{split}/{kind}/*" for kind in kinds)))
            for split in map(split_folder, splits)
        ),
        notes=(
            '`edits`, `mask_classes` and `facts` are JSON texts: `json.loads(row["facts"])`.',
            'Labels are texts; `images.class_encode_column("label")` numbers them.',
        ),
    )


def find_imagefolder(files: Files, report: Report) -> Iterator[Found]:
    """The examples of every `metadata.jsonl`; images that no line names are told."""
    known = names_by_form(files.names)
    used: set[str] = set()
    tables = [name for name in files.names if posixpath.basename(name) == METADATA]
    for table in tables:
        folder = posixpath.dirname(table)
        for line, row in rows_of_lines(files, table, report):
            where, extra = f"{table}, line {line}", row.model_extra or {}
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
            report.refuse(name, f"No line of {METADATA} names it: add one, or take the file away.")


def _telling_first(examples: Sequence[Example]) -> list[Example]:
    """Those in front that are the first of their split to fill a column: `datasets` takes the types of columns from the
    first ten megabytes, and cannot read what comes after them if it does not fit.
    """
    known: set[tuple[str, str]] = set()
    telling: list[Example] = []
    others: list[Example] = []
    for example in examples:
        filled = {(example.split, name) for name in ("edit_types", "mask") if getattr(example, name)}
        (others if filled <= known else telling).append(example)
        known |= filled
    return [*telling, *others]


def _missing(what: str, named: object) -> str:
    return f"It names {what} that is not there (“{named}”): add the file." if named else f"It names no {what[3:]}."


def _within(name: str, tables: Sequence[str]) -> bool:
    """Whether an image lies beside or below one of the tables."""
    folders = [posixpath.dirname(table) for table in tables]
    return not is_sheet(name) and any(not folder or name.startswith(f"{folder}/") for folder in folders)


def write_parquet(draft: Draft, examples: Sequence[Example]) -> Kept:
    """Parquet: data/SPLIT-NUMBER.parquet, images and masks inside, as `datasets` shows them."""
    import pyarrow

    masks = any(example.mask is not None for example in examples)
    shards: dict[str, list[str]] = {}
    schema = _schema(masks)
    for split, number, group in in_shards(draft.pictures(examples)):
        name = f"data/{split}-{number:05d}.parquet"
        shards.setdefault(split, []).append(name)
        with draft.stream(name) as file, _parquet_writer(file, schema) as writer:
            rows: list[dict[str, Any]] = []
            for picture in group:
                example = picture.example
                mask = None if picture.mask is None else {"bytes": picture.mask, "path": f"{example.name}.png"}
                rows.append(
                    {
                        "image": {"bytes": picture.data, "path": f"{example.name}.png"},
                        **({"mask": mask} if masks else {}),
                        **picture.row,
                    }
                )
                draft.record(picture, f"{name}#{example.name}", f"{name}#{example.name}" if mask else None)
                if len(rows) == _ROWS:
                    writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                    rows = []
            if rows:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))
    first = next(iter(shards))
    return Kept(
        f'from datasets import load_dataset\n\nimages = load_dataset("SET", split="{first}")',
        (("data/SPLIT-NUMBER.parquet", "a row an image, with image and mask inside"),),
        shards="data/*.parquet",
        configs=tuple((split, (f"data/{split}-*.parquet",)) for split in shards),
        notes=('`edits`, `mask_classes` and `facts` are JSON texts: `json.loads(row["facts"])`.',),
    )


def find_parquet(files: Files, report: Report) -> Iterator[Found]:
    """The rows of every Parquet file that has a column `image` of bytes, or of files beside it."""
    import pyarrow
    import pyarrow.parquet

    for table in (name for name in files.names if name.endswith(".parquet")):
        try:
            opened = pyarrow.parquet.ParquetFile(files.path(table))
            if "image" not in opened.schema_arrow.names:
                report.refuse(table, "It has no column “image”: name the column with the images so.")
                continue
            named = named_numbers(opened.schema_arrow.metadata)
            place = 0
            for batch in opened.iter_batches(batch_size=_ROWS):
                for held in batch.to_pylist():
                    place += 1
                    found = _parquet_found(table, place, held, named, report)
                    if found is not None:
                        yield found
        except (pyarrow.ArrowException, OSError, UserError) as error:
            said = str(error) if isinstance(error, UserError) else "It is damaged or no Parquet file: export it again."
            report.refuse(table, said)


def count_parquet(files: Files) -> int:
    """How many rows there are."""
    import pyarrow
    import pyarrow.parquet

    count = 0
    for table in (name for name in files.names if name.endswith(".parquet")):
        with suppress(pyarrow.ArrowException, OSError, UserError):  # `find_parquet` tells of it
            count += pyarrow.parquet.read_metadata(files.path(table)).num_rows
    return count


def _schema(masks: bool) -> pyarrow.Schema:
    import pyarrow

    image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    texts = {name: pyarrow.string() for name in row_of(Example("x", Path(), ""))}
    columns = {"image": image, **({"mask": image} if masks else {}), **texts}
    columns["edit_types"] = pyarrow.list_(pyarrow.string())
    # What `datasets` looks for to show the bytes as images.
    text = {"dtype": "string", "_type": "Value"}
    features: dict[str, Any] = dict.fromkeys(texts, text)
    features |= {name: {"_type": "Image"} for name in ("image", "mask") if name in columns}
    features["edit_types"] = {"feature": text, "_type": "List"}
    about = {"info": {"features": {name: features[name] for name in columns}}}
    return pyarrow.schema(list(columns.items()), metadata={"huggingface": json.dumps(about)})


@contextmanager
def _parquet_writer(file: Any, schema: pyarrow.Schema) -> Iterator[Any]:
    import pyarrow.parquet

    # Images are packed already.
    packed = dict.fromkeys(("facts", "caption", "new_caption", "edits"), "zstd")
    pictures = [name for name in ("image", "mask") if name in schema.names]
    kinds = {f"{name}.{part}": "none" for name in pictures for part in ("bytes", "path")}
    rest = {name: "none" for name in schema.names if name not in (*packed, *pictures, "edit_types")}
    with pyarrow.parquet.ParquetWriter(
        file, schema, compression={**packed, **kinds, **rest, "edit_types.list.element": "none"}, use_dictionary=False
    ) as writer:
        yield writer


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


def _parquet_found(
    table: str, place: int, held: dict[str, Any], named: Mapping[str, Sequence[str]], report: Report
) -> Found | None:
    """The example of a row; None, told, when it cannot be one."""
    where = f"{table}, row {place}"
    image, mask = held.pop("image"), held.pop("mask", None)
    image = image.get("bytes") if isinstance(image, dict) else image
    mask = mask.get("bytes") if isinstance(mask, dict) else mask
    if not isinstance(image, bytes) or (mask is not None and not isinstance(mask, bytes)):
        report.refuse(where, "It does not hold the bytes of an image: export the images with the table.")
        return None
    for column, names in named.items():
        number = held.get(column)
        if isinstance(number, int):
            if not -1 <= number < len(names):
                report.refuse(where, f"Its {column} is class {number}, which the table does not name.")
                return None
            held[column] = names[number] if number >= 0 else None  # -1: nobody knows it
    try:
        row = Row.model_validate({name: value for name, value in held.items() if value is not None})
    except (ValidationError, ValueError, RecursionError) as error:
        why = reason(error) if isinstance(error, ValidationError) else "a cell is no JSON"
        report.refuse(where, f"The row cannot be read: {why}.")
        return None
    name = row.name or f"{posixpath.splitext(posixpath.basename(table))[0]}-{place}"
    return Found(
        f"{table}#{row.name or place}",
        name,
        lambda data=image: data,  # type: ignore[misc]
        row.label,
        split_in(row.split or posixpath.basename(table).partition("-")[0]),
        (lambda _size, data=mask: data) if mask is not None else None,  # type: ignore[misc]
        row.mask_classes or None,
        row,
    )
