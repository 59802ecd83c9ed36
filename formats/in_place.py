"""Read a whole data set in place for a batch. Nothing is copied or unpacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from core.batches import Item
from core.errors import UserError
from core.images import Picture, read_image
from core.imports import ImportRow
from core.masks import UNLABELLED, numbered_classes, numbers_in, parse_classes, renumbered
from formats.files import open_files
from formats.layouts import LAYOUTS, source_of
from formats.naming import choose_split, standard
from formats.source import Source, Survey, mask_of
from formats.types import Found, Report

CHANGED = "The file was changed since the data set was listed: list the data set again."
_TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".arrow")
"""Endings of files that can be a whole data set, such as a table with image paths."""


@dataclass(frozen=True)
class Content:
    """The decoded image and mask of an item. They were checked: the mask fits the image."""

    image: bytes
    picture: Picture
    """The decoded picture: upright and in RGB."""
    mask: Image.Image | None = None
    """Mask of mode L: each pixel is a number of `mask_classes`, or 255 for no class. None without a mask."""


class DataSet:
    """An opened split of a data set. Any thread may read it. Another process has to open it again."""

    def __init__(self, source: Source, split: str, survey: Survey, classes: Mapping[int, str]) -> None:
        self.split = standard(split)
        """Name of the opened split, as in the items; "" if the data set has no splits."""
        self.classes = survey.classes
        """All labels of the data set; empty if it has none or allows any."""
        self.mask_classes = survey.mask_classes
        """Class names by number in the masks; empty without masks."""
        self._source, self._chosen, self._named = source, split, classes
        self._known = frozenset(survey.classes)
        self._numbers = {name: number for number, name in self.mask_classes.items()}
        self._told_before = len(source.report.rows)

    @property
    def left_out(self) -> Sequence[ImportRow]:
        """Rows of the report, about files and entries that were left out when the set was opened or last listed."""
        return tuple(self._source.report.rows)

    def items(self) -> Iterator[Item]:
        """Yield the items in a fixed order. No image is opened, and no full list is kept."""
        del self._source.report.rows[self._told_before :]
        try:
            for found in self._source.find(self._chosen):
                yield Item(found.key, found.label, found.split, found.attributes, self._seen(found))
        except OSError as error:  # such as a list that was deleted
            raise UserError(f"The data set cannot be listed: {error.filename}: {error.strerror or error}.") from error

    def read(self, key: str, stamp: str = "") -> Content:
        """Read and check the files of the item `key`. Raises UserError if a file is missing or unusable, or was changed
        since `stamp` was made. Also raises UserError if the mask has another size than the image or a class without a
        name, or if the label is not in `classes`. The message does not name the item.
        """
        try:
            if stamp and (now := self._source.stamp(key)) and now != stamp:
                raise UserError(CHANGED)
            found = self._source.at(key)
            self._require_same(found, stamp)
            content = self._read(found)
            self._require_same(found, stamp)  # checked again, as the file may change while it is read
        except OSError as error:
            raise UserError(f"The data set cannot be read: {error.filename}: {error.strerror or error}.") from error
        return content

    def _seen(self, found: Found) -> str:
        """Return the stamp (size and time) of an item's files; "" if a file is missing, which `read` reports later."""
        try:
            return self._source.stamp(found.key, found.file)
        except UserError:
            return ""

    def _require_same(self, found: Found, stamp: str) -> None:
        if stamp and self._source.stamp(found.key, found.file) != stamp:
            raise UserError(CHANGED)

    def _read(self, found: Found) -> Content:
        if found.problem:
            raise UserError(found.problem)
        if found.label and self.classes and found.label not in self._known:
            known = f"the {len(self.classes):,} classes of the data set"
            raise UserError(f"The label “{found.label[:80]}” is none of {known}: correct it, or leave the image out.")
        data = found.image()
        picture = read_image(data)
        mask = mask_of(found, data, picture.image.size, self._named or self.mask_classes, exact=True)
        if mask is None:
            return Content(data, picture)
        names = {number: mask.classes[number] for number in numbers_in(mask.image) if number != UNLABELLED}
        if unknown := sorted(set(names.values()) - self._numbers.keys()):
            raise UserError(f"The mask has classes that mask_classes does not name: {', '.join(unknown[:6])}.")
        numbers = {number: self._numbers[name] for number, name in names.items()}
        return Content(data, picture, renumbered(mask.image, numbers))


def open_data_set(root: Path, layout: str, split: str = "", **options: str) -> DataSet:
    """Open the data set at the path `root`, in the format `layout` and with its options. No file is copied or unpacked,
    and no image is opened. Raises UserError for an unknown layout or option, if the path has no data set of this
    layout, or if the set has several splits and none is chosen.
    """
    if layout not in LAYOUTS:
        raise UserError(f"“{layout}” is no layout of a data set: choose one of {', '.join(LAYOUTS)}.", field="layout")
    known = LAYOUTS[layout]
    if unknown := sorted(set(options) - set(known.options)):
        available = f"there is {', '.join(known.options)}" if known.options else "it has none"
        raise UserError(f"“{unknown[0]}” is no option of the layout {layout}: {available}.", field=unknown[0])
    if not root.exists():
        raise UserError(f"{root} does not exist: give the path of the data set.", field="root")
    if root.is_file() and root.suffix.lower() in _TABLES:
        root, options = root.parent, {**options, "table": root.name}
    report = Report()
    source = source_of(open_files(root, report, follow_links=True), layout, report, options, in_place=True).source
    with report.muted():
        splits = source.splits()
        chosen = choose_split(split, splits, source.files.name) if splits else ""
        before = len(report.rows)
        if next(source.find(chosen), None) is None:
            why = "".join(f" {row.file}: {row.reason}" for row in report.rows[before : before + 1])
            raise UserError(
                f"{source.files.name} holds no {known.title}: this format needs {known.expected}.{why}", field="root"
            )
        survey = source.survey(chosen)
    try:
        named = parse_classes(options.get("mask_classes", ""))
    except UserError as error:
        raise UserError(str(error), field="mask_classes") from error
    if named:
        survey.mask_classes = numbered_classes(named)
    return DataSet(source, chosen, survey, named)
