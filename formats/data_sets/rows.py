"""Hugging Face data sets on the disk: what `save_to_disk` writes (Arrow), and Parquet files, of any repository.

Of Arrow files nothing is loaded, as they are mapped into memory; of Parquet files the row group that is at work.
"""

from __future__ import annotations

import json
import posixpath
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from core.batches import Item
from core.errors import UserError
from formats.data_sets.reader import UNKNOWN, Latest, Reader, content_of, json_of, option_classes
from formats.data_sets.types import Content, Layout
from formats.files import Folder, joined
from formats.huggingface import named_numbers
from formats.naming import SPLIT_OF, choose, choose_some, standard
from formats.types import Report

if TYPE_CHECKING:
    import pyarrow

_GROUPS = 2
"""Row groups of Parquet files that are kept. A group of ImageNet's takes some ten megabytes."""
_ROWS = 4096
"""Labels that are read at once."""
_IMAGE_NAMES = ("image", "img", "picture", "jpg", "png")


class _Table(Protocol):
    """A file of rows."""

    schema: pyarrow.Schema

    def count(self) -> int:
        """How many rows it has."""

    def column(self, name: str) -> Iterator[Any]:
        """A column from front to back; no other one is read."""

    def row(self, number: int, columns: Sequence[str]) -> dict[str, Any]:
        """Some columns of a row, from 0."""


class _Arrow:
    def __init__(self, file: Path) -> None:
        import pyarrow

        mapped = pyarrow.memory_map(str(file))
        try:
            self._table = pyarrow.ipc.open_stream(mapped).read_all()
        except pyarrow.ArrowInvalid:  # the other one of Arrow's two forms of files
            self._table = pyarrow.ipc.open_file(mapped).read_all()
        self.schema = self._table.schema

    def count(self) -> int:
        return int(self._table.num_rows)

    def column(self, name: str) -> Iterator[Any]:
        for chunk in self._table.column(name).chunks:
            for start in range(0, len(chunk), _ROWS):
                yield from chunk.slice(start, _ROWS).to_pylist()

    def row(self, number: int, columns: Sequence[str]) -> dict[str, Any]:
        row: dict[str, Any] = self._table.select(list(columns)).slice(number, 1).to_pylist()[0]
        return row


class _Parquet:
    def __init__(self, file: Path) -> None:
        import pyarrow.parquet

        self._file = pyarrow.parquet.ParquetFile(file)
        self.schema = self._file.schema_arrow
        about = self._file.metadata
        self._sizes = [about.row_group(group).num_rows for group in range(about.num_row_groups)]
        self._lock = threading.Lock()
        self._columns: tuple[str, ...] = ()
        self._groups = Latest(self._group, _GROUPS)

    def count(self) -> int:
        return sum(self._sizes)

    def column(self, name: str) -> Iterator[Any]:
        for group in range(len(self._sizes)):
            with self._lock:
                table = self._file.read_row_group(group, columns=[name])
            yield from table.column(name).to_pylist()

    def row(self, number: int, columns: Sequence[str]) -> dict[str, Any]:
        for group, size in enumerate(self._sizes):
            if number < size:
                table = self._groups.get(json.dumps([group, *columns]))
                row: dict[str, Any] = table.slice(number, 1).to_pylist()[0]
                return row
            number -= size
        raise UserError(UNKNOWN)

    def _group(self, wanted: str) -> pyarrow.Table:
        group, *columns = json.loads(wanted)
        with self._lock:
            return self._file.read_row_group(group, columns=columns)


class Rows(Reader):
    """The rows of the files of a split, each of them an image."""

    def __init__(
        self, folder: Folder, files: Sequence[str], split: str, options: Mapping[str, str], licence: str, report: Report
    ) -> None:
        self._folder, self._files = folder, tuple(files)
        self._tables = Latest(self._open, max(16, len(files)))
        first = self._tables.get(files[0]).schema
        self._image = _image_column(first, options.get("image", ""))
        named = {column: names for column, names in named_numbers(first.metadata).items() if column in first.names}
        self._label = _label_column(first, named, options.get("label", ""))
        self._mask = options.get("mask", "")
        if self._mask and self._mask not in first.names:
            raise UserError(_no_column("mask", self._mask, first), field="mask")
        super().__init__(
            *("huggingface", HUGGINGFACE.title, report),
            licence=licence,
            split=split,
            classes=named.get(self._label, ()),
            mask_classes=option_classes(options.get("mask_classes", "")) if self._mask else {},
        )

    def count(self) -> int:
        return sum(self._tables.get(file).count() for file in self._files)

    def _open(self, file: str) -> _Table:
        import pyarrow

        try:
            place = self._folder.path(file)
            return _Parquet(place) if file.endswith(".parquet") else _Arrow(place)
        except (pyarrow.ArrowException, OSError) as error:
            kind = "Parquet" if file.endswith(".parquet") else "Arrow"
            raise UserError(f"{file} is damaged or no {kind} file: download it again.", field="root") from error

    def _items(self) -> Iterator[Item]:
        import pyarrow

        for file in self._files:
            try:
                table, stamp = self._tables.get(file), self._folder.stamp(file)
                labels = table.column(self._label) if self._label else iter([None] * table.count())
                for number, label in enumerate(labels):
                    yield Item(f"{file}/{number}", self._named(label), self.split, {}, stamp)
            except (pyarrow.ArrowException, OSError, KeyError) as error:
                self._report.refuse(file, f"It cannot be read ({str(error).splitlines()[0][:120]}): download it again.")
            except UserError as error:
                self._report.refuse(file, str(error))

    def _named(self, label: Any) -> str:
        """The label of a cell: its class's name; what is outside the class list stays a number."""
        if label is None or (label == -1 and self.classes):  # nobody knows it
            return ""
        if self.classes and isinstance(label, int) and 0 <= label < len(self.classes):
            return self.classes[label]
        return str(label)

    def _stamp(self, key: str) -> str:
        return self._folder.stamp(key.rpartition("/")[0])

    def _read(self, key: str) -> Content:
        import pyarrow

        file, _, number = key.rpartition("/")
        if file not in self._files or not number.isdecimal():
            raise UserError(UNKNOWN)
        table = self._tables.get(file)
        if int(number) >= table.count():
            raise UserError(UNKNOWN)
        columns = [column for column in (self._image, self._mask, self._label) if column]
        try:
            row = table.row(int(number), columns)
        except (pyarrow.ArrowException, OSError, KeyError) as error:
            raise UserError("The row cannot be read: the file is damaged, or its columns are others.") from error
        if self._label:
            self._require_label(self._named(row[self._label]))
        image, mask = self._bytes(file, row[self._image]), None
        if self._mask:
            held = self._bytes(file, row[self._mask])
            mask = _giving(held)
        return content_of(image, mask, self.mask_classes)

    def _bytes(self, file: str, held: Any) -> bytes:
        """The bytes in a cell, or of the file beside the table that it names."""
        data = held.get("bytes") if isinstance(held, dict) else held
        if isinstance(data, bytes):
            return data
        path = held.get("path") if isinstance(held, dict) else held
        if isinstance(path, str) and path:
            return self._folder.read(joined(posixpath.dirname(file), path))
        raise UserError("The row does not hold the bytes of an image: save the data set with its images.")


def _giving(data: bytes) -> Callable[[tuple[int, int]], bytes]:
    return lambda _size: data


def open_huggingface(root: Path, split: str, options: Mapping[str, str], report: Report) -> Rows:
    """A data set of `save_to_disk`, or the Parquet files below a folder. Raises UserError where neither lies there, and
    where it is not clear which split, column or configuration is meant.
    """
    folder = Folder(root, report, follow_links=True)
    if folder.has("dataset_dict.json"):
        held = json_of(folder.read("dataset_dict.json"), "dataset_dict.json")
        splits = held.get("splits") if isinstance(held, dict) else None
        there = [name for name in splits if isinstance(name, str)] if isinstance(splits, list) else []
        chosen = choose(split, there, folder.name)
        return _saved(folder, chosen, chosen, options, report)
    if folder.has("state.json"):
        return _saved(folder, "", split, options, report)
    config = options.get("config", "")
    found = [path for path in folder.files(config) if path.endswith(".parquet")]
    if not found:
        raise UserError(
            f"{folder.name} holds no data set of Hugging Face: {HUGGINGFACE.expected} was looked for.", field="root"
        )
    by_split: dict[str, list[str]] = {}
    for path in found:
        by_split.setdefault(_split_of(path), []).append(path)
    chosen = choose_some(split, by_split, folder.name)
    files = by_split[chosen]
    configs = sorted({posixpath.dirname(path) for path in files})
    if len(configs) > 1:
        raise UserError(
            f"{folder.name} has Parquet files in several folders: say which one with config, such as {configs[0]}. "
            f"There is {', '.join(configs[:8])}.",
            field="config",
        )
    return Rows(folder, files, standard(chosen), options, "", report)


def _saved(folder: Folder, inside: str, split: str, options: Mapping[str, str], report: Report) -> Rows:
    """A data set of `save_to_disk` in a folder."""
    place = joined(inside, "state.json")
    held = json_of(folder.read(place), place)
    listed = held.get("_data_files") if isinstance(held, dict) else None
    files = [
        joined(inside, each["filename"])
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict) and isinstance(each.get("filename"), str)
    ]
    if not files:
        raise UserError(f"{place} names no files: save the data set again.", field="root")
    own = held.get("_split") if isinstance(held, dict) else None
    if not inside and split and isinstance(own, str) and standard(own) != standard(split):
        raise UserError(f"There is no split “{split}” in {folder.name}: it is “{own}”.", field="split")
    known = split or (own if isinstance(own, str) else "")
    return Rows(folder, files, standard(known), options, _licence(folder, inside), report)


def _licence(folder: Folder, inside: str) -> str:
    """What the data set's own description says."""
    place = joined(inside, "dataset_info.json")
    if not folder.has(place):
        return ""
    held = json_of(folder.read(place), place)
    told = [held.get(name) for name in ("license", "homepage")] if isinstance(held, dict) else []
    return ". ".join(part for part in told if isinstance(part, str) and part)


def _split_of(path: str) -> str:
    """The split that a Parquet file is of: by its name (train-00000-of-00294.parquet), or the folder it lies in."""
    name = posixpath.basename(path).removesuffix(".parquet").partition("-")[0]
    folders = [part for part in path.split("/")[:-1] if part.lower() in SPLIT_OF]
    found = name if name.lower() in SPLIT_OF else folders[-1] if folders else ""
    return found if standard(found) else ""


def _image_column(schema: pyarrow.Schema, said: str) -> str:
    if said:
        if said not in schema.names:
            raise UserError(_no_column("image", said, schema), field="image")
        return said
    told = _features(schema)
    images = [name for name in schema.names if told.get(name, {}).get("_type") == "Image"]
    own = [name for name in _IMAGE_NAMES if name in (images or schema.names)]
    if len(images) == 1 or own:
        return images[0] if len(images) == 1 else own[0]
    raise UserError(f"Say which column holds the images with image: there is {', '.join(schema.names)}.", field="image")


def _label_column(schema: pyarrow.Schema, named: Mapping[str, Sequence[str]], said: str) -> str:
    if said:
        if said not in schema.names:
            raise UserError(_no_column("label", said, schema), field="label")
        return said
    if "label" in schema.names:
        return "label"
    if len(named) > 1:
        raise UserError(f"Say which label is meant with label: there is {', '.join(named)}.", field="label")
    return next(iter(named), "")


def _no_column(what: str, said: str, schema: pyarrow.Schema) -> str:
    return f"There is no column “{said}” for the {what}: there is {', '.join(schema.names)}."


def _features(schema: pyarrow.Schema) -> dict[str, Any]:
    """What `datasets` wrote of the columns."""
    try:
        held = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
        return {name: about for name, about in held.items() if isinstance(about, dict)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


HUGGINGFACE = Layout(
    "Hugging Face data set",
    "a folder of save_to_disk (dataset_dict.json or state.json), or Parquet files",
    open_huggingface,
    {
        "image": "The column of the images, where it is not clear.",
        "label": "The column of the labels, where there are several.",
        "mask": "The column of masks; without it none are read.",
        "mask_classes": "The names of the numbers in the masks, such as “0 sky, 1 road”.",
        "config": "The folder of the Parquet files, where there are several.",
    },
)
