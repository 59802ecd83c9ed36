"""Hugging Face's formats: ImageFolder with a metadata file, Parquet with images inside, and `save_to_disk` (Arrow).
Arrow files are mapped into memory. Of a Parquet file, only some row groups are in memory at a time.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from core.errors import UserError
from core.test_sets import split_to_load
from formats.columns import ArrowFile, ParquetFile, class_names, features_of, row_schema, row_table, with_class_names
from formats.common import in_shards, pair_of_files, read_row, split_in, splits_of
from formats.draft import Draft
from formats.files import Files, joined
from formats.image_folders import class_folders
from formats.naming import SPLIT_OF, choose_option, split_folder, standard
from formats.pages import RECORDS, TYPED, Description, description_of
from formats.source import UNKNOWN, Latest, Source, Survey, Tally, stem_of
from formats.tables import METADATA, METADATA_FILES, MetadataSource
from formats.types import Example, Found, Report, Row

if TYPE_CHECKING:
    import pyarrow

_IMAGE_NAMES = ("image", "img", "picture", "jpg", "png")


def write_imagefolder(draft: Draft, examples: Sequence[Example]) -> Description:
    """Write a test set as Hugging Face ImageFolder: SPLIT/metadata.parquet, SPLIT/images/ and SPLIT/masks/.

    The metadata file is Parquet, since `datasets` guesses column types of metadata.jsonl: a label such as 2024-01-01
    would become a date.
    """

    def named(example: Example) -> tuple[str, str | None]:
        split = split_folder(example.split)
        return pair_of_files(example, f"{split}/images", f"{split}/masks")

    # The image comes first, or `datasets` would show its column last.
    schema = row_schema({"file_name": None, **({"mask_file_name": None} if draft.masks else {})})
    for split, pictures in groupby(draft.pictures(examples, named), lambda picture: picture.example.split):
        with draft.stream(f"{split_folder(split)}/{METADATA}") as file, row_table(file, schema) as add:
            for picture in pictures:
                image, mask = named(picture.example)
                files = {"file_name": image, "mask_file_name": mask}
                add({**{name: file and file.partition("/")[2] for name, file in files.items()}, **picture.row})
                draft.record(picture, image, mask)
    kinds = ("images", "masks") if draft.masks else ("images",)
    splits = [split_folder(split) for split in splits_of(examples)]
    first = split_folder(split_to_load(splits_of(examples)))
    configs = ((split, (f"{split}/{METADATA}", *(f"{split}/{kind}/*" for kind in kinds))) for split in splits)
    return description_of("imagefolder", first, draft.masks, tuple(configs))


def write_parquet(draft: Draft, examples: Sequence[Example]) -> Description:
    """Write a test set as Parquet: data/SPLIT-NUMBER.parquet, with images and masks inside, for `datasets`."""
    schema = row_schema({"image": "Image", **({"mask": "Image"} if draft.masks else {})})
    splits: dict[str, None] = {}
    for split, number, group in in_shards(draft.pictures(examples)):
        name = f"data/{split}-{number:05d}.parquet"
        splits[split] = None
        with draft.stream(name) as file, row_table(file, schema) as add:
            for picture in group:
                path, place = f"{picture.example.name}.png", f"{name}#{picture.example.name}"
                mask = None if picture.mask is None else {"bytes": picture.mask, "path": path}
                add({"image": {"bytes": picture.data, "path": path}, "mask": mask, **picture.row})
                draft.record(picture, place, place if mask else None)
    first = split_folder(split_to_load(splits_of(examples)))
    return description_of("parquet", first, configs=tuple((split, (f"data/{split}-*.parquet",)) for split in splits))


def image_folder(files: Files, report: Report, options: Mapping[str, str], in_place: bool = False) -> Source:
    """Open a folder of images that has a metadata file (`METADATA_FILES`), or else a folder for each class."""
    near = [name for folder in ("", *files.folders()) for name in files.files(folder, deep=False)]
    listed = any(posixpath.basename(name) in METADATA_FILES for name in (near if in_place else files.names))
    return (MetadataSource if listed else class_folders)(files, report, options, in_place)


class RowSource(Source):
    """Reads Parquet files or a `save_to_disk` folder. Each row is an image."""

    def prepare(self) -> None:
        self._exported = self.files.has(RECORDS)
        self._by_split: dict[str, list[str]] = {}
        for split, tables in self._listed():
            self._by_split.setdefault(split, []).extend(tables)
        every = [table for tables in self._by_split.values() for table in tables]
        self._tables = Latest(self._open, max(16, len(every)) if self.in_place else 1)

    def _listed(self) -> Iterator[tuple[str, list[str]]]:
        if self.files.has("dataset_dict.json"):
            splits = self._json("dataset_dict.json").get("splits")
            yield from ((split, self._saved(str(split))) for split in (splits if isinstance(splits, list) else ()))
        elif self.files.has("state.json"):
            split_name = self._json("state.json").get("_split")
            yield split_name if isinstance(split_name, str) else "", self._saved("")
        else:
            for path in self.files.files(self.options.get("config", "")):
                if path.endswith(".parquet") and path != TYPED:
                    yield _split_of(path), [path]

    def _saved(self, inside: str) -> list[str]:
        place = joined(inside, "state.json")
        listed = self._json(place).get("_data_files")
        entries = [entry for entry in (listed if isinstance(listed, list) else []) if isinstance(entry, dict)]
        tables = [joined(inside, name) for entry in entries if isinstance(name := entry.get("filename"), str)]
        if not tables:
            raise UserError(f"{place} lists no files: save the data set again.", field="root")
        return tables

    def _json(self, name: str) -> dict[str, Any]:
        try:
            value = json.loads(self.files.read(name))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{name} is no JSON: download it again.") from error
        return value if isinstance(value, dict) else {}

    def splits(self) -> list[str]:
        return list(self._by_split)

    def survey(self, split: str) -> Survey:
        tables = self._by_split.get(split, [])
        configs = sorted({posixpath.dirname(path) for path in tables})
        if len(configs) > 1:
            raise UserError(
                f"{self.files.name} has Parquet files in several folders: name one with the option “config”, such "
                f"as {configs[0]}. The folders are {', '.join(configs[:8])}.",
                field="config",
            )
        if not tables:
            return Survey()
        if self._exported:
            return super().survey(split)
        table, columns = self._tables.get(tables[0])
        if columns.label and str(table.schema.field(columns.label).type).startswith(("list", "large_list", "struct")):
            raise UserError(
                f"The column “{columns.label}” holds several values per row, but an image has one label: name another "
                "column with the option “label”.",
                field="label",
            )
        return Survey(tuple(columns.named.get(columns.label, ())))

    @classmethod
    def explained(cls, files: Files) -> int:
        tables = any(name.endswith((".parquet", ".arrow")) for name in files.names)
        return cls(files, Report(), {}).count() if tables else 0

    def count(self) -> int:
        """Number of rows of the tables with an image column."""
        total = 0
        for name in chain.from_iterable(self._by_split.values()):
            with suppress(UserError, OSError):
                total += self._tables.get(name)[0].count()
        return total

    def find(self, split: str | None = None) -> Iterator[Found]:
        import pyarrow

        for each in self.chosen(split):
            for name in self._by_split[each]:
                tally = Tally(self.report)
                try:
                    table, columns = self._tables.get(name)
                    for number, values in enumerate(table.rows(columns.said if self.in_place else None)):
                        yield self._found(name, each, number, values, columns, tally)
                except (pyarrow.ArrowException, OSError, KeyError):
                    self.report.refuse(name, "It is damaged or no Parquet file: export or download it again.")
                except UserError as error:
                    if error.field and self.in_place:
                        raise
                    self.report.refuse(name, str(error))
                tally.tell()

    def at(self, key: str) -> Found:
        import pyarrow

        name, _, number = key.rpartition("/")
        split = next((each for each, tables in self._by_split.items() if name in tables), None)
        if split is None or not number.isdecimal() or int(number) >= self._tables.get(name)[0].count():
            raise UserError(UNKNOWN)
        table, columns = self._tables.get(name)
        try:
            names = [name for name in (columns.image, columns.mask, *columns.said) if name]
            values = table.row(int(number), names)
        except (pyarrow.ArrowException, OSError, KeyError) as error:
            raise UserError("The row cannot be read: the file is damaged, or lacks a column.") from error
        return self._found(name, split, int(number), values, columns, Tally(Report()))

    def stamp(self, key: str, file: str = "") -> str:
        return self.files.stamp(key.rpartition("/")[0])

    def _open(self, name: str) -> tuple[ArrowFile | ParquetFile, _Columns]:
        import pyarrow

        try:
            place = self.files.path(name)
            table = ParquetFile(place) if name.endswith(".parquet") else ArrowFile(place)
        except UserError as error:
            raise UserError(f"{name}: {error}", field="root") from error
        except (pyarrow.ArrowException, OSError) as error:
            kind = "Parquet" if name.endswith(".parquet") else "Arrow"
            raise UserError(
                f"{name} is damaged or no {kind} file: export or download it again.", field="root"
            ) from error
        return table, _Columns(table.schema, self.options, self.in_place and not self._exported)

    def _found(
        self, name: str, split: str, number: int, values: dict[str, Any], columns: _Columns, tally: Tally
    ) -> Found:
        where, problem = f"{name}, row {number + 1}", ""
        cells = {column: value for column, value in values.items() if column not in (columns.image, columns.mask)}
        cells = with_class_names(cells, columns.named)
        if columns.label and columns.label in cells:
            cells = {"label": cells.pop(columns.label), **cells}
        for column in () if self.in_place else columns.named:
            column = "label" if column == columns.label else column
            if isinstance(cells.get(column), int):
                problem = f"Its {column} is class {cells[column]}, which the table does not name."
        try:
            row = read_row(cells, where, tally)
        except UserError as error:
            row, problem = Row(), str(error)
        has_mask = bool(columns.mask and row.mask_classes)
        if columns.mask in values:
            has_mask = values[columns.mask] is not None
        if columns.image in values and self._data(name, values[columns.image]) is None:
            problem = "It does not hold the bytes of an image: export the images with the table."
        return Found(
            f"{name}#{row.name or number + 1}",
            row.name or f"{stem_of(name)}-{number + 1}",
            lambda: self._bytes(name, number, columns.image, values),
            row.label,
            split_in(row.split) or standard(split),
            (lambda _size: self._bytes(name, number, columns.mask, values)) if has_mask else None,
            row.mask_classes or None,
            row,
            key=f"{name}/{number}",
            problem=problem,
            where=where,
        )

    def _data(self, name: str, cell: Any) -> bytes | str | None:
        data = cell.get("bytes") if isinstance(cell, dict) else cell
        if isinstance(data, bytes):
            return data
        path = cell.get("path") if isinstance(cell, dict) else cell
        file = joined(posixpath.dirname(name), path) if isinstance(path, str) and path else ""
        return file if file and self.files.has(file) else None

    def _bytes(self, name: str, number: int, column: str, values: Mapping[str, Any]) -> bytes:
        cell = values[column] if column in values else self._tables.get(name)[0].row(number, [column])[column]
        data = self._data(name, cell)
        if data is None:
            raise UserError("The row does not hold the bytes of an image: save the data set with its images.")
        return data if isinstance(data, bytes) else self.files.read(data)


class _Columns:
    def __init__(self, schema: pyarrow.Schema, options: Mapping[str, str], in_place: bool) -> None:
        self.named = class_names(schema)
        self.image = _given("image", options, schema) or self._image_of(schema, features_of(schema))
        self.label = _given("label", options, schema) or self._label_of(schema, in_place)
        mask = "mask" if not in_place and "mask" in schema.names else ""
        self.mask = _given("mask", options, schema) or mask
        split = next((name for name in schema.names if name.casefold() == "split"), "")
        classes = "mask_classes" if "mask_classes" in schema.names and self.mask else ""
        self.said = [name for name in (self.label, split, classes) if name]
        """Columns that are read for many rows at once, before the images."""

    @staticmethod
    def _image_of(schema: pyarrow.Schema, features: Mapping[str, Any]) -> str:
        images = [name for name in schema.names if features.get(name, {}).get("_type") == "Image"]
        candidates = [name for name in _IMAGE_NAMES if name in (images or schema.names)]
        if len(images) == 1 or candidates:
            return images[0] if len(images) == 1 else candidates[0]
        raise UserError(f"Choose the column of images by the option “image”: {', '.join(schema.names)}.", field="image")

    def _label_of(self, schema: pyarrow.Schema, in_place: bool) -> str:
        if (label := next((name for name in schema.names if name.casefold() == "label"), "")) or not in_place:
            return label
        return choose_option("label", "", [*self.named]) if self.named else ""


def _given(option: str, options: Mapping[str, str], schema: pyarrow.Schema) -> str:
    """Return the column that the user gave for an option; "" without one. Raises UserError if it does not exist."""
    column = options.get(option, "")
    if column and column not in schema.names:
        raise UserError(
            f"There is no column “{column}” for the {option}, only {', '.join(schema.names)}.", field=option
        )
    return column


def _split_of(path: str) -> str:
    """Return a Parquet file's split, from its name (train-00000-of-00294.parquet) or from a folder; "" for none."""
    name = posixpath.basename(path).removesuffix(".parquet").partition("-")[0]
    folders = [part for part in path.split("/")[:-1] if part.lower() in SPLIT_OF]
    split = name if name.lower() in SPLIT_OF else folders[-1] if folders else ""
    return split if standard(split) else ""
