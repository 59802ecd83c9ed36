"""Base class of the readers of data sets, for imports and batches, and functions that these readers share."""

from __future__ import annotations

import hashlib
import posixpath
import re
import threading
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, ImageOps

from core import latest
from core.errors import UserError
from core.images import opened, orientation_of, png_of
from core.masks import THE_CLASSES, UNLABELLED, Mask, numbered_classes, read_mask, renumbered, require_names
from core.words import composed
from formats.files import Files, images_in
from formats.types import Found, Report

T = TypeVar("T")

UNKNOWN = "The data set has no such item: list the data set again."


@dataclass
class Survey:
    """Facts about a split that a batch needs before it reads the items."""

    classes: tuple[str, ...] = ()
    """All labels; empty if items have no labels, or if any label is allowed."""
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    """Class names by number in the masks, equal for all masks of the split."""

    def __post_init__(self) -> None:
        self.classes = tuple(dict.fromkeys(map(composed, self.classes)))
        self.mask_classes = {number: composed(name) for number, name in self.mask_classes.items()}


class Source:
    """Finds and reads the items of a data set. Each format has a subclass. With `in_place`, items are read later, in
    any order and maybe in another process. Otherwise each item is read right after it was found. Raises UserError if
    the files do not have the format.
    """

    def __init__(self, files: Files, report: Report, options: Mapping[str, str], in_place: bool = False) -> None:
        self.files, self.report, self.options, self.in_place = files, report, options, in_place
        self._by_key: dict[str, Found] | None = None
        self.prepare()

    def prepare(self) -> None:
        """Read the lists and folders that describe the whole data set. Called once, when it is opened."""

    @classmethod
    def may_be(cls, files: Files) -> bool:
        """Return False if the files certainly have another format."""
        return True

    @classmethod
    def explained(cls, files: Files) -> int:
        """Return how many images this format would find, judged by file names and lists."""
        try:
            return sum(not found.problem for found in cls(files, Report(), {}).find()) if cls.may_be(files) else 0
        except (UserError, OSError):
            return 0

    def find(self, split: str | None = None) -> Iterator[Found]:
        """Yield the items in a fixed order: of one split (see `splits`), or of all splits. No image is opened."""
        raise NotImplementedError

    def at(self, key: str) -> Found:
        """Return the item with this key. Raises UserError if none exists."""
        if self._by_key is None:
            with self.report.muted():
                self._by_key = {found.key: found for found in self.find()}
        if key not in self._by_key:
            raise UserError(UNKNOWN)
        return self._by_key[key]

    def stamp(self, key: str, file: str = "") -> str:
        """Return a text that changes with the item's files; "" if unknown. Raises UserError for missing files."""
        return self.files.stamp(file or key)

    def holds(self, key: str) -> bool:
        """Return True if an item may have this key, without opening a file."""
        return True

    def splits(self) -> list[str]:
        """Return the names that the data set itself gives to its splits. "" means items without a split."""
        return list(dict.fromkeys(found.split for found in self.find()))

    def chosen(self, split: str | None) -> list[str]:
        """Return the names of all splits. With a `split`, return this name, or [] if the data set lacks it."""
        return [name for name in self.splits() if split in (None, name)]

    def survey(self, split: str) -> Survey:
        """Return labels and mask classes of a split. Raises UserError for more classes than a mask can hold."""
        labels: dict[str, None] = {}
        numbers: dict[str, int] = {}
        for found in self.find():
            if found.label:
                labels[found.label] = None
            classes = numbered_classes(found.classes or {}) if found.mask is not None else {}
            for number, name in sorted(classes.items()):
                number_of(name, number, numbers)
        return Survey(tuple(sorted(labels)), {number: name for name, number in numbers.items()})

    def count(self) -> int:
        """Return the number of items, without opening an image."""
        return sum(1 for _ in self.find())


class PathSource(Source):
    """Reads images whose paths tell facts such as split or class. Each format has a pattern of these paths."""

    path: re.Pattern[str]
    """Pattern of an image's path inside the folder `top`."""
    top = ""
    """Folder that contains all images, ending in "/"; "" for the whole data set."""

    def find(self, split: str | None = None) -> Iterator[Found]:
        for match in self.matches():
            found = self.found(match)
            if split in (None, found.split):
                yield found

    def at(self, key: str) -> Found:
        match = self._match(key)
        if match is None:
            raise UserError(UNKNOWN)
        return self.found(match)

    def matches(self) -> Iterator[re.Match[str]]:
        """Yield the pattern's match for each image path. The full path is the match's `string`."""
        return filter(None, map(self._match, images_in(self.files, self.top)))

    def found(self, match: re.Match[str]) -> Found:
        raise NotImplementedError

    def _match(self, path: str) -> re.Match[str] | None:
        return self.path.fullmatch(path, len(self.top)) if path.startswith(self.top) else None


class Tally:
    """Counts ignored content by reason, to report each reason once instead of for each item."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._first: dict[str, str] = {}
        self._count: Counter[str] = Counter()

    def note(self, file: str, reason: str) -> None:
        """Count a file that is ignored for the given reason."""
        self._first.setdefault(reason, file)
        self._count[reason] += 1

    def tell(self) -> None:
        """Report each noted reason once, with the first file that it concerns and the number of such files."""
        for reason, count in self._count.items():
            more = f" So it is for {count:,} in all." if count > 1 else ""
            self._report.changed(self._first[reason], f"{reason}{more}")
        self._first, self._count = {}, Counter()


def number_of(name: str, own: int, common: dict[str, int]) -> int:
    """Return a class's number in all masks. A new class gets `own`, or if `own` is taken, the lowest free number."""
    if name not in common:
        taken = set(common.values())
        free = own if own not in taken else next((n for n in range(UNLABELLED) if n not in taken), None)
        if free is None:
            raise UserError(
                "The masks of the set have more than 255 classes together, which no mask can hold.", field="root"
            )
        common[name] = free
    return common[name]


def upright_mask(mask: bytes, data: bytes) -> bytes:
    """Turn a mask upright, as its picture's EXIF data say. Raises UserError if the mask may be upright already."""
    image = opened(data)
    orientation = orientation_of(image)
    if not 2 <= orientation <= 8:
        return mask
    turned = opened(mask)
    mask_size = turned.size
    # Pillow gives a TIFF's size after turning, and other formats' size before.
    lying = image.size[::-1] if image.format == "TIFF" and orientation >= 5 else image.size
    upright = lying[::-1] if orientation >= 5 else lying
    if mask_size == upright and mask_size != lying:
        return mask
    if mask_size == lying and mask_size != upright:
        turned.getexif()[ExifTags.Base.Orientation] = orientation
        return png_of(ImageOps.exif_transpose(turned))
    raise UserError(
        "The camera stored the picture rotated, and it is unclear if its mask is rotated too: save the picture upright."
    )


def mask_of(
    found: Found, data: bytes, size: tuple[int, int], classes: Mapping[int, str] | None = None, exact: bool = False
) -> Mask | None:
    """Return an item's mask, None without one. `data` is the image file, `size` its upright (width, height).

    `classes` has class names for files without names. With `exact`, a mask of another size is refused. Raises UserError
    if the mask cannot be read or has a class number without a name.
    """
    if found.mask is None:
        return None
    mask = upright_mask(found.mask(size), data)
    shape = opened(mask).size
    if exact and shape != size:
        raise UserError(
            f"The mask has {shape[0]}x{shape[1]} pixels and the image {size[0]}x{size[1]}: give one of the same size."
        )
    named = found.classes if found.classes is not None else classes or {}
    place = found.classes_file or THE_CLASSES
    if found.numbers is None:
        return read_mask(mask, size, named, place)
    read = read_mask(mask, size, {number: str(number) for number in range(UNLABELLED)})
    require_names(read.image, dict.fromkeys(found.numbers, "known"))
    image = renumbered(read.image, found.numbers)
    require_names(image, named, place)
    return Mask(image, named, read.notes)


def stem_of(path: str) -> str:
    """Return a file's name without folders and ending."""
    return posixpath.splitext(posixpath.basename(path))[0]


def opener(files: Files, name: str) -> Callable[[], bytes]:
    """Return a function that reads a file of the data set when it is called."""
    return lambda: files.read(name)


def mask_opener(files: Files, name: str) -> Callable[[tuple[int, int]], bytes]:
    """Return a function that reads a mask file when it is called. It raises UserError if the mask is missing."""

    def read(_size: tuple[int, int]) -> bytes:
        if not files.has(name):
            raise UserError("The image has no mask, but the data set has masks: add the mask, or leave the image out.")
        return files.read(name)

    return read


def numbered(label: str, classes: Collection[str]) -> str:
    """Return the label. If it is a number, return the name at this index of `classes` instead."""
    if classes and label.isdecimal() and label not in classes and int(label) < len(classes):
        return tuple(classes)[int(label)]
    return label


def digest(text: str) -> int:
    """Return a 64-bit hash of a text. It is the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little")


class Places:
    """Index that finds the positions of texts in a long list. It takes twelve bytes per text."""

    def __init__(self, digests: Iterable[int] = ()) -> None:
        digests = np.array(array("Q", digests), np.uint64)
        self._order: NDArray[np.uint32] = np.argsort(digests, kind="stable").astype(np.uint32)
        self._sorted: NDArray[np.uint64] = digests[self._order]
        again = self._sorted[1:] == self._sorted[:-1]
        self._again = frozenset(int(place) for place in self._order[1:][again])

    def all(self, text: str) -> list[int]:
        """Return all zero-based positions of a text in the list, ascending."""
        hashed = np.uint64(digest(text))
        first, last = np.searchsorted(self._sorted, hashed, "left"), np.searchsorted(self._sorted, hashed, "right")
        return [int(place) for place in self._order[first:last]]

    def key(self, text: str, place: int) -> str:
        """Return a unique key for the text at a position. A repeated text gets its position added."""
        return f"{text}#{place + 1}" if place in self._again else text

    def find(self, key: str) -> int | None:
        """Return the position of the text for which the method `key` returns this key, or None for an unknown key."""
        if found := self.all(key):
            return found[0]
        text, _, number = key.rpartition("#")
        return int(number) - 1 if number.isdecimal() and int(number) - 1 in self.all(text) else None


class Latest(Generic[T]):
    """Cache of the values used last. If one thread makes a value, other threads that need the value wait."""

    def __init__(self, make: Callable[[str], T], most: int) -> None:
        self._make, self._kept, self._lock = make, latest.Latest[T](most), threading.Lock()

    def get(self, name: str) -> T:
        with self._lock:
            return self._kept.once(name, lambda: self._make(name))
