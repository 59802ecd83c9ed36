"""Data sets that are lists: WebDataset tars, a CSV that names image files, and test sets that the studio exported."""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from core.batches import Item
from core.errors import UserError
from core.masks import UNLABELLED
from formats.data_sets.reader import (
    NO_MASK,
    UNKNOWN,
    Latest,
    Places,
    Reader,
    class_list,
    content_of,
    option_classes,
    seen,
)
from formats.data_sets.types import Content, DataSet, Layout
from formats.files import Folder, joined, open_files
from formats.naming import SPLIT_OF, choose_some, standard
from formats.pages import CLASSES
from formats.reading import laid_out
from formats.tables import IMAGE_COLUMNS, MASK_COLUMNS, cells_of
from formats.types import Found, Report
from formats.webdataset import find_webdataset

_SHARDS = 2
"""Lists of shards that are kept: a kilobyte for each of their samples."""
_CLASSES = {
    "classes": "A file in the folder with the labels: one a line, or a JSON list. Numbers of labels become its names.",
    "mask_classes": "The names of the numbers in the masks, such as “0 sky, 1 road”.",
}


class _Shard(Folder):
    """A folder of which one tar is read."""

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(folder, Report(), follow_links=True)
        self._names = (name,)


class Shards(Reader):
    """The samples of WebDataset tars. Where no option names the classes of masks, the first sample does."""

    def __init__(
        self,
        folder: Folder,
        shards: list[str],
        split: str,
        classes: tuple[str, ...],
        masks: Mapping[int, str],
        report: Report,
    ) -> None:
        self._folder, self._shards = folder, shards
        if not masks:
            first = next(self._samples(shards[0], Report()), None)
            masks = (first.classes if first is not None and first.mask else None) or {}
        super().__init__(*("webdataset", WEBDATASET.title, report), split=split, classes=classes, mask_classes=masks)
        self._lists = Latest(lambda shard: {found.file: found for found in self._samples(shard, Report())}, _SHARDS)

    def _samples(self, shard: str, report: Report) -> Iterator[Found]:
        return find_webdataset(_Shard(self._folder.path(shard).parents[shard.count("/")], shard), report)

    def _items(self) -> Iterator[Item]:
        for shard in self._shards:
            stamp = seen(self._folder, shard)
            for found in self._samples(shard, self._report):
                yield Item(found.file, self._label(found), self.split or found.split, {}, stamp)

    def _label(self, found: Found) -> str:
        """The label, by its number where there is a list of classes."""
        number = found.label
        if self.classes and number.isdecimal() and number not in self._known and int(number) < len(self.classes):
            return self.classes[int(number)]
        return number

    def _shard(self, key: str) -> str:
        shard = next((shard for shard in self._shards if key.startswith(f"{shard}/")), None)
        if shard is None:
            raise UserError(UNKNOWN)
        return shard

    def _stamp(self, key: str) -> str:
        return self._folder.stamp(self._shard(key))

    def _read(self, key: str) -> Content:
        found = self._lists.get(self._shard(key)).get(key)
        if found is None:
            raise UserError(UNKNOWN)
        self._require_label(self._label(found))
        numbers = None
        if found.mask is not None and found.classes:
            own = {name: number for number, name in self.mask_classes.items()}
            unknown = sorted({name for name in found.classes.values() if name not in own})
            if unknown:
                raise UserError(f"Its mask has classes that mask_classes does not name: {', '.join(unknown[:6])}.")
            numbers = {number: own[name] for number, name in found.classes.items()}
        return content_of(found.image(), found.mask, self.mask_classes, numbers=numbers)


def open_webdataset(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """The tars of a folder, or one tar. Raises UserError for a folder without plain tars."""
    folder = Folder(root if root.is_dir() else root.parent, report)
    paths = list(folder.files()) if root.is_dir() else [root.name]
    shards = [path for path in paths if path.endswith(".tar")]
    packed = [path for path in paths if path.endswith((".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst"))]
    for path in packed:
        report.refuse(path, "It is compressed as a whole, so that no sample can be read alone: make a plain tar of it.")
    if not shards:
        more = f" Of the {len(packed)} compressed ones plain tars have to be made first." if packed else ""
        raise UserError(
            f"{folder.name} holds no WebDataset: {WEBDATASET.expected} were looked for.{more}", field="root"
        )
    by_split: dict[str, list[str]] = {}
    for shard in shards:
        by_split.setdefault(_split_of(shard), []).append(shard)
    chosen = choose_some(split, by_split, folder.name)
    file = options.get("classes", "") or (CLASSES if folder.has(CLASSES) else "")
    classes = class_list(folder, file) if file else ()
    masks = option_classes(options.get("mask_classes", ""))
    return Shards(folder, by_split[chosen], standard(chosen), classes, masks, report)


def _split_of(shard: str) -> str:
    """The split that a shard is of: imagenet-train-000012.tar, or train/000012.tar."""
    words = [*shard.removesuffix(".tar").replace("/", "-").replace("_", "-").split("-")]
    return next((word for word in words if SPLIT_OF.get(word.lower())), "")


class _Lines:
    """A text file by its lines, which knows where the next one begins."""

    def __init__(self, file: BinaryIO, first: bytes = b"") -> None:
        self._file, self._first = file, first
        """`first` comes before what the file goes on with: the names of the columns."""

    def readline(self, size: int = -1, /) -> str:
        line, self._first = (self._first, b"") if self._first else (self._file.readline(size), b"")
        try:
            return line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError("The table is not in UTF-8: save it as “CSV UTF-8”.", field="root") from error

    @property
    def place(self) -> int:
        """In bytes."""
        return self._file.tell()


class Csv(Reader):
    """The rows of a table. Of each row its place in the table is kept."""

    def __init__(self, folder: Folder, table: str, split: str, options: Mapping[str, str], report: Report) -> None:
        self._folder, self._table = folder, table
        self._label_column = options.get("label", "label")
        self._places = array("Q")
        splits: dict[str, None] = {}
        labels: dict[str, None] = {}
        told = Report()  # what it has to tell is told again by `items`

        def names() -> Iterator[str]:
            for place, named, cells in self._rows(told):
                if not self._places and options.get("label") and self._label_column not in cells:
                    raise UserError(
                        f"There is no column “{self._label_column}” for the label: there is {', '.join(cells)}.",
                        field="label",
                    )
                self._places.append(place)
                splits[cells.get("split", "")] = None
                labels[cells.get(self._label_column, "")] = None
                yield named

        self._names = Places(names())
        if not self._places:
            why = f" {told.rows[0].file}: {told.rows[0].reason}" if told.rows else ""
            raise UserError(f"{table} has no row with an image: {CSV.expected} was looked for.{why}", field="root")
        self._chosen = choose_some(split, splits, table)
        file = options.get("classes", "")
        listed = class_list(folder, file) if file else tuple(sorted(label for label in labels if label))
        self._numbered = bool(file)
        super().__init__(
            *("csv", CSV.title, report),
            split=standard(self._chosen),
            classes=listed,
            mask_classes=option_classes(options.get("mask_classes", "")),
        )

    def _rows(self, report: Report) -> Iterator[tuple[int, str, dict[str, str]]]:
        """The rows that name an image: the place at which to begin for each, its image, and its cells."""
        with self._folder.path(self._table).open("rb") as file:
            lines = _Lines(file)
            rows = cells_of(lines, self._table, report)
            place = 0
            for where, cells in rows:
                image = self._image(cells)
                if not image:
                    report.refuse(where, "It names no image.")
                elif self._outside(image):
                    report.refuse(where, "Its image lies outside the folder of the table, where nothing is read.")
                else:
                    yield place, image, cells
                place = lines.place

    def _image(self, cells: Mapping[str, str]) -> str:
        named = next((cells[column] for column in IMAGE_COLUMNS if cells.get(column)), "")
        return posixpath.normpath(named.replace("\\", "/")) if named else ""

    def _outside(self, path: str) -> bool:
        return path.startswith(("/", "../")) or path == ".."

    def _items(self) -> Iterator[Item]:
        told = {*IMAGE_COLUMNS, *MASK_COLUMNS, self._label_column, "split"}
        for at, (_, named, cells) in enumerate(self._rows(self._report)):
            if cells.get("split", "") != self._chosen:
                continue
            key = self._names.key(named, at)
            attributes = {name: text for name, text in cells.items() if name not in told and text}
            yield Item(key, self._label(cells), self.split, attributes, seen(self._folder, self._file(named)))

    def _label(self, cells: Mapping[str, str]) -> str:
        label = cells.get(self._label_column, "")
        if self._numbered and label.isdecimal() and label not in self._known and int(label) < len(self.classes):
            return self.classes[int(label)]
        return label

    def _file(self, named: str) -> str:
        return joined(posixpath.dirname(self._table), named)

    def _stamp(self, key: str) -> str:
        place = self._names.of(key)
        return self._folder.stamp(self._file(key if not self._repeated(key, place) else key.rpartition("#")[0]))

    def _repeated(self, key: str, place: int) -> bool:
        """Whether a key has a number behind the name, since the name comes again."""
        return key.endswith(f"#{place + 1}") and place not in self._names.all(key)

    def _read(self, key: str) -> Content:
        place = self._names.of(key)
        named = key.rpartition("#")[0] if self._repeated(key, place) else key
        path = self._folder.path(self._table)
        with path.open("rb") as file:
            header = file.readline()
            file.seek(self._places[place] or len(header))
            _, cells = next(cells_of(_Lines(file, header), self._table, Report()), ("", {}))
        if self._image(cells) != named:
            raise UserError("The table was changed since the data set was opened: open it again.")
        self._require_label(self._label(cells))
        image = self._folder.read(self._file(named))
        mask = next((cells[column] for column in MASK_COLUMNS if cells.get(column)), "")
        if not mask:
            if any(column in cells for column in MASK_COLUMNS):
                raise UserError(NO_MASK)
            return content_of(image)
        mask = posixpath.normpath(mask.replace("\\", "/"))
        if self._outside(mask):
            raise UserError("Its mask lies outside the folder of the table, where nothing is read.")
        return content_of(image, lambda _size: self._folder.read(self._file(mask)), self.mask_classes)


def open_csv(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """The table at `root`, or the one in it. Raises UserError for none or several."""
    folder = Folder(root if root.is_dir() else root.parent, report)
    there = [path for path in folder.files(deep=False) if path.lower().endswith(".csv")]
    table = options.get("table", "") or ("" if root.is_dir() else root.name)
    if not table and len(there) != 1:
        said = f"Say which table is meant with table: there is {', '.join(there)}." if there else ""
        raise UserError(said or f"{folder.name} holds no CSV: {CSV.expected} was looked for.", field="table")
    if not folder.has(table or there[0]):
        raise UserError(f"{table} is not in {folder.name}: there is {', '.join(there) or 'no CSV'}.", field="table")
    return Csv(folder, table or there[0], split, options, report)


@dataclass(frozen=True)
class _Kept:
    """What is kept of an example of a test set: about a kilobyte, as test sets are small."""

    file: str
    label: str
    split: str
    image: Callable[[], bytes]
    mask: Callable[[tuple[int, int]], bytes] | None
    numbers: Mapping[int, int]
    """Which number of the set's classes stands for a number of the mask file."""


class Exported(Reader):
    """The examples of a folder in a format of `formats`."""

    def __init__(
        self, layout: str, title: str, root: Path, split: str, options: Mapping[str, str], report: Report
    ) -> None:
        if not root.is_dir():
            raise UserError(f"{root} is no folder: give the folder of the set, unpacked.", field="root")
        files = open_files(root, report)
        _, form, manifest, found = laid_out(files, "folder" if layout == "folder" else "", report)
        if layout == "studio" and manifest is None:
            raise UserError(
                f"{root.name} holds no test set that the studio exported: {STUDIO.expected} was looked for.",
                field="root",
            )
        if form in ("parquet", "webdataset"):
            other = "huggingface" if form == "parquet" else "webdataset"
            raise UserError(f"The set was exported as {form}: open it with the layout {other}.", field="layout")
        named = option_classes(options.get("mask_classes", ""))
        common: dict[str, int] = {}
        kept: dict[str, _Kept] = {}
        splits: dict[str, None] = {}
        self._folder = Folder(root, report, follow_links=True)
        for one in found:
            splits[one.split] = None
            classes = one.classes or named
            if one.numbers and one.row is not None:
                classes = one.row.mask_classes
            numbers = {own: _number_of(name, own, common) for own, name in sorted(classes.items()) if own != UNLABELLED}
            if one.numbers:
                numbers = {number: numbers[own] for number, own in one.numbers.items() if own in numbers}
            key, number = one.file, 2
            while key in kept:
                key, number = f"{one.file}#{number}", number + 1
            kept[key] = _Kept(one.file, one.label, one.split, one.image, one.mask, numbers if one.mask else {})
        if not kept:
            why = f" {report.rows[0].file}: {report.rows[0].reason}" if report.rows else ""
            raise UserError(f"{root.name} holds no image that can be read.{why}", field="root")
        first = next(iter(kept.values())).file
        around = ("", *self._folder.folders())
        self._prefix = next((name for name in around if self._folder.has(joined(name, first))), "")
        chosen = choose_some(split, splits, root.name)
        self._kept = {key: one for key, one in kept.items() if one.split == chosen}
        held = manifest.get("test_set") if manifest is not None else None
        licences = held.get("licences") if isinstance(held, dict) else None
        super().__init__(
            *(layout, title, report),
            licence="; ".join(f"{model}: {terms}" for model, terms in licences.items() if terms)
            if isinstance(licences, dict)
            else "",
            split=chosen,
            classes=sorted({one.label for one in kept.values() if one.label}),
            mask_classes={number: name for name, number in common.items()},
        )
        self._told_before = len(report.rows)

    def count(self) -> int:
        return len(self._kept)

    def _items(self) -> Iterator[Item]:
        for key, one in self._kept.items():
            yield Item(key, one.label, one.split, {}, seen(self._folder, joined(self._prefix, one.file)))

    def _one(self, key: str) -> _Kept:
        if key not in self._kept:
            raise UserError(UNKNOWN)
        return self._kept[key]

    def _stamp(self, key: str) -> str:
        return self._folder.stamp(joined(self._prefix, self._one(key).file))

    def _read(self, key: str) -> Content:
        one = self._one(key)
        self._stamp(key)  # a file that is gone is said to be
        return content_of(one.image(), one.mask, self.mask_classes, numbers=one.numbers)


def _number_of(name: str, own: int, common: dict[str, int]) -> int:
    """The number of a class in all masks of the set: its own where that is free, else the next free one."""
    if name not in common:
        taken = set(common.values())
        free = own if own not in taken else next((n for n in range(UNLABELLED) if n not in taken), None)
        if free is None:
            raise UserError(
                "The masks of the set have more than 255 classes together, which no mask can hold.", field="root"
            )
        common[name] = free
    return common[name]


def open_studio(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """A test set that the studio exported or released, in any format that is a folder of files."""
    return Exported("studio", STUDIO.title, root, split, options, report)


def open_folder(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """Images and masks as people have them: masks beside the images or in a tree of their own."""
    return Exported("folder", FOLDER.title, root, split, options, report)


WEBDATASET = Layout(
    "WebDataset", "plain tars of samples (KEY.jpg, KEY.cls, KEY.json, KEY.mask.png)", open_webdataset, _CLASSES
)
CSV = Layout(
    "CSV",
    f"a CSV with a column of image files ({', '.join(IMAGE_COLUMNS)}) and, where there are any, label, split and mask",
    open_csv,
    {**_CLASSES, "label": "The column of the labels.", "table": "The CSV, where the folder has several."},
)
STUDIO = Layout(
    "Test set of the studio", "an export with its manifest, in a format that is a folder of files", open_studio
)
FOLDER = Layout(
    "Folder of images and masks",
    "images/ and masks/ with files of the same names, or masks called NAME_mask.png",
    open_folder,
    {"mask_classes": _CLASSES["mask_classes"]},
)
