"""What all readers of data sets share: the run through the items, and the look at what an item holds."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.batches import Item
from core.errors import UserError
from core.images import opened, orientation_of, png_of, read_image
from core.masks import UNLABELLED, parse_classes, read_mask, require_names
from formats.data_sets.types import Content
from formats.files import Files
from formats.reading import turned
from formats.types import Report, ReportRow

T = TypeVar("T")

CHANGED = "The file was changed since the data set was listed: list the data set again."
UNKNOWN = "The data set has no such item: list the data set again."
NO_MASK = "It has no mask, and others of its split have one: add the mask, or leave the image out."


class Reader:
    """A data set whose items are told by `_items`, `_stamp` and `_read`."""

    def __init__(
        self,
        layout: str,
        title: str,
        report: Report,
        *,
        licence: str = "",
        split: str = "",
        classes: Iterable[str] = (),
        mask_classes: Mapping[int, str] | None = None,
    ) -> None:
        self.layout, self.title, self.licence, self.split = layout, title, licence, split
        self.classes = tuple(classes)
        self.mask_classes: Mapping[int, str] = dict(mask_classes or {})
        self._known: Collection[str] = frozenset(self.classes)
        self._report = report
        self._told_before: int | None = None

    @property
    def left_out(self) -> Sequence[ReportRow]:
        return tuple(self._report.rows)

    def count(self) -> int:
        return sum(1 for _ in self.items())

    def items(self) -> Iterator[Item]:
        if self._told_before is None:
            self._told_before = len(self._report.rows)
        del self._report.rows[self._told_before :]
        try:
            yield from self._items()
        except OSError as error:  # such as a list that is gone
            raise UserError(f"The data set cannot be listed: {error.filename}: {error.strerror or error}.") from error

    def read(self, key: str, stamp: str = "") -> Content:
        self._require_same(key, stamp)
        try:
            content = self._read(key)
        except OSError as error:
            raise UserError(f"The data set cannot be read: {error.filename}: {error.strerror or error}.") from error
        self._require_same(key, stamp)  # while it was read
        return content

    def _require_same(self, key: str, stamp: str) -> None:
        if stamp and self._stamp(key) != stamp:
            raise UserError(CHANGED)

    def _require_label(self, label: str) -> None:
        if label and self.classes and label not in self._known:
            raise UserError(
                f"Its label “{label[:80]}” is none of the {len(self.classes):,} classes of the data set: correct it, "
                "or leave the image out."
            )

    def _items(self) -> Iterator[Item]:
        raise NotImplementedError

    def _stamp(self, key: str) -> str:
        """As the item of this key has it. Raises UserError for a file that is missing."""
        raise NotImplementedError

    def _read(self, key: str) -> Content:
        raise NotImplementedError


def seen(tree: Files, path: str) -> str:
    """The stamp of a file that is listed; "" for one that is missing, of which `read` tells."""
    try:
        return tree.stamp(path)
    except UserError:
        return ""


def content_of(
    image: bytes,
    mask: Callable[[tuple[int, int]], bytes] | None = None,
    classes: Mapping[int, str] | None = None,
    *,
    first_channel: bool = False,
    numbers: Mapping[int, int] | None = None,
) -> Content:
    """The files of an item, looked at. `mask` gives the mask file for an image of a size (width, height).

    With `first_channel`, the class numbers of a mask in colours are its red channel. `numbers` says which number of
    `classes` stands for each number that a file may have. Raises UserError.
    """
    size = read_image(image).image.size
    if mask is None:
        return Content(image)
    found = mask(size)
    if first_channel:
        found = _first_channel(found)
    found = turned(found, image, orientation_of(opened(image)))
    given = opened(found).size
    if given != size:
        raise UserError(
            f"The mask has {given[0]}x{given[1]} pixels and the image {size[0]}x{size[1]}: give a mask of its size."
        )
    every = {
        number: str(number) for number in range(UNLABELLED)
    }  # names are judged when the numbers are those of the set
    pixels = np.asarray(read_mask(found, size, every).image)
    if numbers is not None:
        require_names(Image.fromarray(pixels), {number: str(number) for number in numbers})
        table = np.full(256, UNLABELLED, np.uint8)
        for number, own in numbers.items():
            table[number] = own
        pixels = table[pixels]
    drawn = Image.fromarray(pixels)
    require_names(drawn, classes or {})
    return Content(image, png_of(drawn))


def _first_channel(mask: bytes) -> bytes:
    try:
        image = opened(mask)
        image.load()
    except UserError:
        raise
    except Exception as error:  # a decoder fed with a damaged file may raise anything
        raise UserError("The mask is damaged or cut short: save or download it again.") from error
    values = np.asarray(image)
    return mask if values.ndim == 2 else png_of(Image.fromarray(np.ascontiguousarray(values[..., 0])))


def option_classes(text: str) -> dict[int, str]:
    """The classes of masks in an option such as "0 sky, 1 road". Raises UserError for what is none."""
    try:
        return parse_classes(text)
    except UserError as error:
        raise UserError(str(error), field="mask_classes") from error


def class_list(tree: Files, file: str) -> tuple[str, ...]:
    """The labels of a list: a JSON list, JSON with `labels` as our exports have it, or a label a line.

    Raises UserError for a file that is missing or none of them.
    """
    try:
        text = tree.read(file, 100_000_000).decode("utf-8-sig")
        if not file.endswith(".json"):
            return tuple(line.strip() for line in text.splitlines() if line.strip())
        held = json.loads(text)
        names = held.get("labels") if isinstance(held, dict) else held
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("it is no list of texts")
        return tuple(names)
    except UserError as error:
        raise UserError(f"The list of classes {file} cannot be read. {error}", field="classes") from error
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{file} is no list of classes: write a label a line, or a JSON list of labels.", field="classes"
        ) from error


def digest(text: str) -> int:
    """64 bits that stand for a text, the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


class Places:
    """Where in a list a text stands: twelve bytes for each, as there may be a million. Texts may come again."""

    def __init__(self, texts: Iterable[str]) -> None:
        told = np.array(array("Q", (digest(text) for text in texts)), np.uint64)
        self.order: NDArray[np.uint32] = np.argsort(told, kind="stable").astype(np.uint32)
        self._sorted: NDArray[np.uint64] = told[self.order]
        again = self._sorted[1:] == self._sorted[:-1]
        self._again = frozenset(int(place) for place in self.order[1:][again])

    def all(self, text: str) -> list[int]:
        """The places of a text, ascending, from 0."""
        found = np.uint64(digest(text))
        first, last = np.searchsorted(self._sorted, found, "left"), np.searchsorted(self._sorted, found, "right")
        return [int(place) for place in self.order[first:last]]

    def key(self, text: str, place: int) -> str:
        """A key of its own for what stands at a place: the text, and for a text that comes again its number, too."""
        return f"{text}#{place + 1}" if place in self._again else text

    def of(self, key: str) -> int:
        """The place that a key of `key` stands for. Raises UserError for what is none."""
        if found := self.all(key):
            return found[0]
        text, _, number = key.rpartition("#")
        if number.isdecimal() and int(number) - 1 in self.all(text):
            return int(number) - 1
        raise UserError(UNKNOWN)


class Latest(Generic[T]):
    """Keeps the few things that were asked for last, each made once; what is made at a time is waited for."""

    def __init__(self, make: Callable[[str], T], most: int) -> None:
        self._make, self._most = make, most
        self._held: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str) -> T:
        with self._lock:
            if name not in self._held:
                self._held[name] = self._make(name)
                if len(self._held) > self._most:
                    self._held.popitem(last=False)
            self._held.move_to_end(name)
            return self._held[name]


def json_of(data: bytes, what: str) -> object:
    """The JSON of a file. Raises UserError for what is none."""
    try:
        return json.load(io.BytesIO(data))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{what} is no JSON: download it again.") from error
