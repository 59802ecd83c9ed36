"""COCO: an instances file for each split, and its images beside it.

The file is gone through once, and of each entry only its place in it is kept: whole, that of COCO's training images
would take gigabytes. An entry is read again when its image's turn comes.
"""

from __future__ import annotations

import json
import posixpath
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from core.batches import Item
from core.errors import UserError
from core.masks import UNLABELLED
from formats.data_sets.reader import Places, Reader, content_of, digest, seen
from formats.data_sets.types import Content, DataSet, Layout
from formats.files import Folder, joined, stamp_of
from formats.naming import choose, standard
from formats.regions import area_of, painted
from formats.types import Report

_BLOCK = 4_000_000
_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_LICENCE = (
    "Annotations CC BY 4.0; each image under the terms that Flickr shows for it. https://cocodataset.org/#termsofuse"
)


class _Damaged(ValueError):
    """The file is no JSON of the form that is read."""


class _Text:
    """A JSON file that is gone through from front to back, a character for a byte."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._text = ""
        self._at = 0
        self._before = 0
        """Bytes of the file before the text that is kept."""
        self._more()
        if self._text.startswith("\xef\xbb\xbf"):  # the mark of UTF-8
            self._at = 3

    def sign(self) -> str:
        """The next character that is not blank, which is not yet passed. Raises _Damaged at the end."""
        while True:
            match = _BLANK.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise _Damaged

    def take(self, signs: str) -> str:
        """Pass one of some characters. Raises _Damaged for another one."""
        if (sign := self.sign()) not in signs:
            raise _Damaged
        self._at += 1
        return sign

    def value(self) -> tuple[Any, int, int]:
        """The next value, passed; where it begins and how many bytes it has. Raises _Damaged."""
        self.sign()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                if end < len(self._text) or not self._more():  # a number may go on behind the end
                    break
            except ValueError as error:
                if not self._more():
                    raise _Damaged from error
            except RecursionError as error:
                raise _Damaged from error
        start, size = self._before + self._at, end - self._at
        piece = self._text[self._at : end]
        if not piece.isascii():  # here a character is a byte: its texts have to be read anew
            value = json.loads(piece.encode("latin-1"))
        self._at = end
        return value, start, size

    def _more(self) -> bool:
        data = self._file.read(max(_BLOCK, len(self._text) - self._at))
        if not data:
            return False
        self._before += self._at
        self._text = self._text[self._at :] + data.decode("latin-1")
        self._at = 0
        return True


def entries(file: BinaryIO) -> Iterator[tuple[str, Any, int, int]]:
    """The entries of the lists that a JSON object holds: name of the list, the entry, its place and size in bytes.

    Raises ValueError for another form.
    """
    text = _Text(file)
    text.take("{")
    if text.sign() == "}":
        return
    while True:
        name, _, _ = text.value()
        text.take(":")
        if text.sign() != "[":
            text.value()
        else:
            text.take("[")
            if text.sign() == "]":
                text.take("]")
            else:
                while True:
                    yield (str(name), *text.value())
                    if text.take(",]") == "]":
                        break
        if text.take(",}") == "}":
            return


class _Annotations:
    """Where the annotations of an image lie in the file."""

    def __init__(self, images: array[int], places: array[int], sizes: array[int]) -> None:
        told = np.frombuffer(images, np.uint64) if images else np.empty(0, np.uint64)
        order = np.argsort(told, kind="stable")
        self._images = told[order]
        self._places = np.frombuffer(places, np.uint64)[order] if places else np.empty(0, np.uint64)
        self._sizes = np.frombuffer(sizes, np.uint64)[order] if sizes else np.empty(0, np.uint64)

    def of(self, image: Any) -> list[tuple[int, int]]:
        found = np.uint64(digest(repr(image)))
        first, last = np.searchsorted(self._images, found, "left"), np.searchsorted(self._images, found, "right")
        return [(int(self._places[at]), int(self._sizes[at])) for at in range(int(first), int(last))]


class Coco(Reader):
    """The images of an instances file. With `largest`, their label is the category of their largest object."""

    def __init__(self, folder: Folder, table: str, split: str, largest: bool, report: Report) -> None:
        self._folder, self._table, self._largest = folder, folder.path(table), largest
        self._licences: dict[Any, str] = {}
        names: list[str] = []
        places, sizes = array("Q"), array("Q")
        images, a_places, a_sizes = array("Q"), array("Q"), array("Q")
        self._categories: dict[Any, str] = {}
        try:
            with self._table.open("rb") as file:
                for name, entry, place, size in entries(file):
                    if not isinstance(entry, dict):
                        continue
                    if name == "images":
                        names.append(_text(entry.get("file_name")))
                        places.append(place)
                        sizes.append(size)
                    elif name == "annotations":
                        images.append(digest(repr(entry.get("image_id"))))
                        a_places.append(place)
                        a_sizes.append(size)
                    elif name == "categories":
                        self._categories[_plain(entry.get("id"))] = _text(entry.get("name"))
                    elif name == "licenses":
                        about = [_text(entry.get(part)) for part in ("name", "url")]
                        self._licences[_plain(entry.get("id"))] = ", ".join(part for part in about if part)
        except ValueError as error:
            raise UserError(f"{table} is no list of COCO's form: download it again.", field="root") from error
        except OSError as error:
            raise UserError(f"{table} cannot be read: {error.strerror or error}.", field="root") from error
        self._numbers = {name: number for number, name in enumerate(dict.fromkeys(self._categories.values()))}
        if len(self._numbers) > UNLABELLED:
            report.changed(
                table, f"It has {len(self._numbers)} categories, more than a mask can hold: masks are left out."
            )
            self._numbers = {}
        super().__init__(
            *("coco", COCO.title, report),
            licence=_LICENCE,
            split=split,
            classes=dict.fromkeys(self._categories.values()) if largest else (),
            mask_classes={number: name for name, number in self._numbers.items()},
        )
        self._places, self._sizes = places, sizes
        self._stamped = stamp_of(self._table)
        self._images = self._folder_of(names, table, split)
        self._names = Places(joined(self._images, name) for name in names)
        self._of_image = _Annotations(images, a_places, a_sizes)

    def count(self) -> int:
        return len(self._places)

    def _folder_of(self, names: Sequence[str], table: str, split: str) -> str:
        """Where the images lie: in a folder called as the split, within `images` or not."""
        kind = posixpath.splitext(posixpath.basename(table))[0].removeprefix("instances_")
        above = posixpath.dirname(posixpath.dirname(table))
        candidates = [joined(above, *parts) for parts in ((kind,), ("images", kind), (split,), ("images",), ())]
        if not names:
            raise UserError(f"{table} lists no image: download it again.", field="root")
        for candidate in candidates:
            if any(self._folder.has(joined(candidate, name)) for name in names[:20] if name):
                return candidate
        raise UserError(
            f"The images that {table} lists are not there: {names[0]} was looked for in "
            f"{', '.join(f'{candidate}/' if candidate else 'the folder itself' for candidate in candidates)}.",
            field="root",
        )

    def _items(self) -> Iterator[Item]:
        with self._table.open("rb") as file:
            for place in range(len(self._places)):
                entry = self._entry(file, place)
                name = joined(self._images, _text(entry.get("file_name")))
                key = self._names.key(name, place)
                label = self._label(self._regions(file, entry)) if self._largest else ""
                licence = self._licences.get(_plain(entry.get("license")), "")
                yield Item(key, label, self.split, {"licence": licence} if licence else {}, seen(self._folder, name))

    def _entry(self, file: BinaryIO, place: int) -> dict[str, Any]:
        return _read_at(file, self._places[place], self._sizes[place])

    def _regions(self, file: BinaryIO, entry: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [_read_at(file, *where) for where in self._of_image.of(entry.get("id"))]

    def _label(self, regions: Sequence[Mapping[str, Any]]) -> str:
        """The category of the largest object, no crowd; "" for an image without one."""
        objects = [region for region in regions if not region.get("iscrowd")]
        if not objects:
            return ""
        category = _plain(max(objects, key=area_of).get("category_id"))
        return self._categories.get(category, f"category {category}")

    def _stamp(self, key: str) -> str:
        return self._folder.stamp(self._file(key))

    def _file(self, key: str) -> str:
        place = self._names.of(key)
        with self._table.open("rb") as file:
            return joined(self._images, _text(self._entry(file, place).get("file_name")))

    def _read(self, key: str) -> Content:
        if stamp_of(self._table) != self._stamped:
            raise UserError("The list of annotations was changed since the data set was opened: open it again.")
        with self._table.open("rb") as file:
            entry = self._entry(file, self._names.of(key))
            regions = self._regions(file, entry)
        unknown = sorted({str(region.get("category_id"))[:40] for region in regions if self._category(region) is None})
        if unknown:
            raise UserError(f"Its annotations have a category that is not listed: {', '.join(unknown[:6])}.")
        if self._largest:
            self._require_label(self._label(regions))
        image = self._folder.read(joined(self._images, _text(entry.get("file_name"))))
        if not self._numbers:
            return content_of(image)
        try:
            size = int(entry["width"]), int(entry["height"])
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise UserError("Its width and height are not both given as numbers: add them.") from error
        if not (0 < size[0] <= 1 << 15 and 0 < size[1] <= 1 << 15):
            raise UserError("Its width and height cannot be those of an image.")
        # Smaller objects lie on larger ones, so that none is hidden as a whole.
        shapes = [
            (self._numbers[self._category(region) or ""], region["segmentation"])
            for region in sorted(regions, key=area_of, reverse=True)
            if region.get("segmentation")
        ]
        return content_of(image, painted(shapes, size), self.mask_classes)

    def _category(self, region: Mapping[str, Any]) -> str | None:
        return self._categories.get(_plain(region.get("category_id")))


def open_coco(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """COCO's images of a split with the masks of their objects. Raises UserError where its files are not there."""
    label = options.get("label", "")
    if label not in ("", "largest"):
        raise UserError(f"The label of COCO's images is “largest” (object) or nothing, not “{label}”.", field="label")
    folder = Folder(root, report, follow_links=True)
    tables = {
        posixpath.basename(path).removeprefix("instances_").removesuffix(".json"): path
        for inside in ("annotations", "")
        for path in folder.files(inside, deep=False)
        if posixpath.basename(path).startswith("instances_") and path.endswith(".json")
    }
    if not tables:
        raise UserError(f"{folder.name} holds no COCO: {COCO.expected} was looked for.", field="root")
    chosen = choose(split, sorted(tables), folder.name, _in_words)
    return Coco(folder, tables[chosen], _in_words(chosen), label == "largest", report)


def _in_words(split: str) -> str:
    """train2017 as "train"."""
    return standard(re.sub(r"(19|20)\d\d$", "", split) or split)


def _read_at(file: BinaryIO, place: int, size: int) -> dict[str, Any]:
    file.seek(place)
    try:
        held = json.loads(file.read(size))
    except ValueError as error:
        raise UserError("The list of annotations was changed since the data set was opened: open it again.") from error
    return held if isinstance(held, dict) else {}


def _text(held: object) -> str:
    return held if isinstance(held, str) else ""


def _plain(held: object) -> int | float | str | None:
    """What an entry has as an id; None for what cannot be one, such as a list."""
    return held if isinstance(held, int | float | str) else None


COCO = Layout(
    "COCO",
    "annotations/instances_SPLIT.json and the images in SPLIT/ or images/SPLIT/",
    open_coco,
    {"label": "“largest” takes the category of the largest object as the label; without it there are no labels."},
)
