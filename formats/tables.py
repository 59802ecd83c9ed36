"""Formats that are one table: CSV beside folders of images, Parquet and WebDataset with the images inside."""

from __future__ import annotations

import codecs
import csv
import io
import json
import posixpath
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import ValidationError

from core.csv_tables import as_written, csv_text
from core.errors import UserError
from core.validation_messages import reason
from formats.draft import Draft, Picture
from formats.folders import beside, read_bytes, split_in
from formats.naming import Names, split_folder
from formats.pages import Kept
from formats.sources import Files, Found, Report, is_image, names_by_form, tar_members
from formats.types import Example, Row, compact, row_of

if TYPE_CHECKING:
    import pyarrow

TABLE = "examples.csv"
SHARD_BYTES, SHARD_EXAMPLES = 500_000_000, 10_000
"""A shard is closed before it holds more than either."""
_ROWS = 64
"""Images of a row group: so many are in memory at once."""
_LONGEST_CELL = 50_000_000
IMAGE_COLUMNS = ("file_name", "image", "path", "filename", "file")
_MASK_PARTS = ("mask.", "seg.")
MASK_COLUMNS = ("mask_file_name", "mask", "mask_path", "mask_file")


class Lines(Protocol):
    """Text that is read by the line."""

    def readline(self, size: int = -1, /) -> str:
        """The next line, or as much of it as `size` characters; "" at the end."""


def write_csv(draft: Draft, examples: Sequence[Example]) -> Kept:
    """CSV: examples.csv with a row an image, images/SPLIT/NAME.png and masks/SPLIT/NAME.png."""
    columns: list[str] = []

    def named(example: Example) -> tuple[str, str | None]:
        file = f"{split_folder(example.split)}/{example.name}.png"
        return f"images/{file}", None if example.mask is None else f"masks/{file}"

    with draft.stream(TABLE) as table:
        for picture in draft.pictures(examples, named):
            example = picture.example
            image, mask = named(example)
            row = {**picture.row, "edit_types": compact(list(example.edit_types))}
            row = {"file_name": image, "mask_file_name": mask or "", **row}
            text = csv_text([row], columns or list(row))
            table.write((text.partition("\r\n")[2] if columns else text).encode())
            columns = columns or list(row)
            draft.record(picture, image, mask)
    masks = any(example.mask is not None for example in examples)
    return Kept(
        'import pandas\n\nimages = pandas.read_csv("SET/examples.csv", keep_default_na=False)',
        (
            (TABLE, "a row an image, with the paths of its files"),
            ("images/SPLIT/", "the images"),
            *([("masks/SPLIT/", "a class number a pixel, of the image of the same name")] if masks else []),
        ),
        images="images/*/*.png",
        masks="masks/*/*.png" if masks else "",
        notes=(
            "`edit_types`, `edits`, `mask_classes` and `facts` are JSON texts.",
            "A text that a spreadsheet would run as a formula has an apostrophe in front.",
        ),
    )


def find_csv(files: Files, report: Report) -> Iterator[Found]:
    """The rows of every CSV that has a column of image files."""
    known = names_by_form(files.names)
    used: set[str] = set()
    for table in (name for name in files.names if name.lower().endswith(".csv")):
        folder = posixpath.dirname(table)
        for where, cells in _csv_rows(files, table, report):
            image_column = next((name for name in IMAGE_COLUMNS if cells.get(name)), "")
            mask_column = next((name for name in MASK_COLUMNS if cells.get(name)), "")
            image = beside(cells.get(image_column), folder, known)
            mask = beside(cells.get(mask_column), folder, known)
            used.update(name for name in (image, mask) if name)
            if image is None or (mask_column and mask is None):
                missing = cells.get(image_column, "") if image is None else cells[mask_column]
                report.refuse(where, f"It names a file that is not there (“{missing}”): add the file.")
                continue
            try:
                plain = {name: text for name, text in cells.items() if name not in (image_column, mask_column)}
                row = Row.model_validate({name: text for name, text in plain.items() if text})
            except (ValidationError, ValueError, RecursionError) as error:
                why = reason(error) if isinstance(error, ValidationError) else "a cell is no JSON"
                report.refuse(where, f"The row cannot be read: {why}.")
                continue
            yield _found(files, image, mask, row)
    for name in files.names:
        if is_image(name) and name not in used and name != "sheet.jpg":
            report.refuse(name, "No row names it: add one, or take the file away.")


def write_parquet(draft: Draft, examples: Sequence[Example]) -> Kept:
    """Parquet: data/SPLIT-NUMBER.parquet, images and masks inside, as `datasets` shows them."""
    import pyarrow

    masks = any(example.mask is not None for example in examples)
    shards: dict[str, list[str]] = {}
    schema = _schema(masks)
    for split, number, group in _in_shards(draft.pictures(examples)):
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


def write_webdataset(draft: Draft, examples: Sequence[Example]) -> Kept:
    """WebDataset: SPLIT-NUMBER.tar with KEY.png, KEY.json, KEY.cls and KEY.mask.png for each example."""
    numbers = {label: number for number, label in enumerate(draft.classes["labels"])}
    names = Names()
    first = ""
    for split, number, group in _in_shards(draft.pictures(examples)):
        shard = f"{split}-{number:06d}.tar"
        first = first or shard
        with draft.stream(shard) as file, tarfile.open(fileobj=file, mode="w|", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
            for picture in group:
                example = picture.example
                # What comes before the first dot is the key, so it has none.
                key = names.take(example.name.replace(".", "-"))
                _put(archive, f"{key}.png", picture.data)
                if picture.mask is not None:
                    _put(archive, f"{key}.mask.png", picture.mask)
                if example.label:
                    _put(archive, f"{key}.cls", str(numbers[example.label]).encode())
                _put(archive, f"{key}.json", json.dumps(picture.row, ensure_ascii=False).encode())
                draft.record(
                    picture, f"{shard}/{key}.png", f"{shard}/{key}.mask.png" if picture.mask is not None else None
                )
    return Kept(
        f'import webdataset\n\nimages = webdataset.WebDataset("SET/{first}", shardshuffle=False).decode("pil")',
        (("SPLIT-NUMBER.tar", "of each example .png, .json, .cls (the number of its label) and .mask.png"),),
        shards="*.tar",
        notes=(
            "`edits`, `mask_classes` and `facts` of the `.json` are JSON texts.",
            "The numbers of the labels are their places in `labels` of `classes.json`.",
        ),
    )


def find_webdataset(files: Files, report: Report) -> Iterator[Found]:
    """The samples of every tar; of one tar, the samples that it holds itself."""
    shards = [name for name in files.names if name.endswith(".tar")]
    if not shards:
        yield from _samples(files, "", report)
    for shard in shards:
        try:
            inner = Report()
            members = tar_members(files.path(shard), inner)
        except UserError as error:
            report.refuse(shard, str(error))
            continue
        for row in inner.rows:
            report.rows.append(row.__class__(f"{shard}/{row.file}", row.reason, row.kind))
        yield from _samples(members, shard, report)


def count_webdataset(files: Files) -> int:
    """About how many samples there are."""
    shards = [name for name in files.names if name.endswith(".tar")]
    count = 0 if shards else sum(_is_sample(name) for name in files.names)
    for shard in shards:
        with suppress(UserError):  # `find_webdataset` tells of it
            count += sum(_is_sample(name) for name in tar_members(files.path(shard), Report()).names)
    return count


def _is_sample(name: str) -> bool:
    return is_image(name) and not _ending(name).startswith(_MASK_PARTS)


def _ending(name: str) -> str:
    """All behind the first dot, which is what part of its sample a file is."""
    return posixpath.basename(name).partition(".")[2].lower()


def _samples(files: Files, shard: str, report: Report) -> Iterator[Found]:
    """Files that share all before the first dot of their name are a sample."""
    samples: dict[str, dict[str, str]] = {}
    for name in files.names:
        folder, _, base = name.rpartition("/")
        key = base.partition(".")[0]
        samples.setdefault(f"{folder}/{key}" if folder else key, {})[_ending(name)] = name
    for key, parts in samples.items():
        masks = [ending for ending in parts if ending.startswith(_MASK_PARTS) and is_image(f"x.{ending}")]
        images = [ending for ending in parts if is_image(f"x.{ending}") and ending not in masks]
        where = f"{shard}/{key}" if shard else key
        if len(images) != 1:
            report.refuse(where, f"The sample has {len(images) or 'no'} images: it needs one.")
            continue
        image = parts[images[0]]
        try:
            row = Row()
            if "json" in parts:
                row = Row.model_validate(json.loads(files.read(parts["json"], _LONGEST_CELL)))
            label = row.label or _label_text(files, parts)
        except (ValidationError, ValueError, RecursionError, UserError) as error:
            why = str(error) if isinstance(error, UserError) else "its .json is no object that can be read"
            report.refuse(where, f"The sample cannot be read: {why}.")
            continue
        found = _found(files, image, parts[masks[0]] if masks else None, row.model_copy(update={"label": label}))
        yield Found(
            **{
                **vars(found),
                "file": f"{shard}/{image}" if shard else image,
                "name": row.name or posixpath.basename(key),
                "split": split_in(row.split or shard.rpartition("/")[2].rpartition("-")[0] or key),
            }
        )


def _label_text(files: Files, parts: Mapping[str, str]) -> str:
    """The label of a sample without one in its .json: as text, or the number of a class."""
    for ending in ("cls", "txt"):
        if ending in parts:
            return files.read(parts[ending], 10_000).decode("utf-8", "replace").strip()
    return ""


def _found(files: Files, image: str, mask: str | None, row: Row) -> Found:
    return Found(
        image,
        row.name or posixpath.splitext(posixpath.basename(image))[0],
        read_bytes(files, image),
        row.label,
        split_in(row.split or posixpath.dirname(image)),
        (lambda _size, name=mask: files.read(name)) if mask else None,  # type: ignore[misc]
        row.mask_classes or None,
        row,
    )


def _in_shards(pictures: Iterator[Picture]) -> Iterator[tuple[str, int, Iterator[Picture]]]:
    """The pictures, which come sorted by split, in shards: folder of the split, number of the shard, its pictures. Each
    shard has to be used up before the next.
    """
    waiting: list[Picture] = []

    def group(split: str) -> Iterator[Picture]:
        size = count = 0
        while waiting and split_folder(waiting[0].example.split) == split:
            picture = waiting.pop()
            size += len(picture.data) + len(picture.mask or b"")
            count += 1
            waiting.extend(following for following in [next(pictures, None)] if following is not None)
            yield picture
            if size >= SHARD_BYTES or count >= SHARD_EXAMPLES:
                return

    waiting.extend(following for following in [next(pictures, None)] if following is not None)
    numbers: dict[str, int] = {}
    while waiting:
        split = split_folder(waiting[0].example.split)
        yield split, numbers.get(split, 0), group(split)
        numbers[split] = numbers.get(split, 0) + 1


def _put(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """A file of no time and no owner, so that the same set gives the same bytes."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    archive.addfile(member, io.BytesIO(data))


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


def _csv_rows(files: Files, table: str, report: Report) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a table with a column of images; those that cannot be read are told."""
    try:
        path = files.path(table)
        if not _is_utf8(path):
            report.refuse(table, "It is not in UTF-8: save it as “CSV UTF-8”.")
            return
        with path.open(encoding="utf-8-sig", newline="") as text:
            yield from cells_of(text, table, report)
    except UserError as error:
        report.refuse(table, str(error))
    except OSError as error:
        report.refuse(table, f"The file cannot be read: {error.strerror or error}.")


def cells_of(text: Lines, table: str, report: Report) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV with a column of images, each with its line; those that cannot be read are told. No line is
    read before its row is asked for.
    """
    first = text.readline(_LONGEST_CELL)
    separator = max(",;\t", key=first.count)
    lines = csv.reader(chain([first], iter(lambda: text.readline(_LONGEST_CELL), "")), delimiter=separator)
    columns = [as_written(name.strip()) for name in _next_row(lines) or ()]
    if not set(columns) & set(IMAGE_COLUMNS):
        report.refuse(table, f"It has no column of image files: call it {IMAGE_COLUMNS[0]}.")
        return
    while True:
        try:
            cells = _next_row(lines)
        except csv.Error as error:
            report.refuse(f"{table}, line {lines.line_num}", f"It cannot be read ({error}): check its quotes.")
            continue
        if cells is None:
            return
        if not any(cells):
            continue
        where = f"{table}, line {lines.line_num}"
        if len(cells) != len(columns):
            report.refuse(where, f"It has {len(cells)} cells for {len(columns)} columns: check its quotes.")
            continue
        yield where, {name: as_written(cell) for name, cell in zip(columns, cells, strict=True)}


def _next_row(lines: Iterator[list[str]]) -> list[str] | None:
    """The cells of one more row, long ones too; None at the end. Raises csv.Error."""
    before = csv.field_size_limit(_LONGEST_CELL)  # of all of Python, so it is put back at once
    try:
        return next(lines, None)
    finally:
        csv.field_size_limit(before)


def _is_utf8(path: Path) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with path.open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
