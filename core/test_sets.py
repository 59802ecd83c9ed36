"""What comes out of the tables of test sets, and the name that a version has by what is in it. Plain; no SQL."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from core.csv_tables import facts

LONGEST_NAME = 200
"""Characters in the name of a test set, and in a label."""

Review = Literal["accepted", "rejected", "open", "none"]
"""What people decided of an image; "none" of a source, of which nobody decides."""

Split = Literal["train", "validation", "test", ""]
SPLITS: tuple[Split, ...] = get_args(Split)
"""What a part of a test set is for; "": it has no parts."""
Role = Literal["generated", "source"]
MANIFEST_FORMAT = 1


@dataclass(frozen=True)
class SetEntry:
    """One image of a version. A version has an image once."""

    image: str
    """The SHA-256 of its file, 64 hexadecimal digits, as of all images here."""
    source: str
    """Of the source image that it was made from; of the image itself where it was made from none."""
    label: str = ""
    """Of a classification; "" for none."""
    split: Split = ""
    mask: str | None = None
    """Mode L, the size of the image, a class number a pixel."""
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    """The name of each class number (0 to 255) of the mask."""
    role: Role = "generated"
    """"source": the original of generated images, put beside them."""
    test_case: int | None = None
    """The test case in this workspace; None of a source, and of an image that was brought in."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Where an image that was brought in comes from: JSON-ready. Empty among all images of a version."""


@dataclass(frozen=True)
class SetVersion:
    """A version of a test set: a draft that may change, or released for good."""

    number: int
    """Of its row, in this workspace alone."""
    test_set: str
    set_name: str
    place: int
    """1, 2, ... in its set."""
    id: str
    """The SHA-256 of its manifest; "" of a draft."""
    parent: str
    """The id of the version that it was drafted from; "" for none."""
    note: str
    thresholds: Mapping[str, float]
    """By name: the figures by which its images were chosen and parted."""
    created: datetime
    released: datetime | None
    entries: int
    splits: Mapping[Split, int] = field(default_factory=dict)
    """Images by split, for those splits that have any."""

    @property
    def is_draft(self) -> bool:
        """It may still change."""
        return not self.id

    @property
    def words(self) -> str:
        """What a person calls it."""
        return f"{self.set_name}@{'draft' if self.is_draft else self.place}"


@dataclass(frozen=True)
class TestSet:
    """A named list of images, in versions."""

    __test__ = False  # not a pytest class

    id: str
    name: str
    created: datetime
    versions: tuple[SetVersion, ...]
    """In their order; at most the last one is a draft."""

    @property
    def draft(self) -> SetVersion | None:
        """The version that may change."""
        return next((version for version in self.versions if version.is_draft), None)

    @property
    def latest(self) -> SetVersion | None:
        """The version that was released last."""
        return next((version for version in reversed(self.versions) if not version.is_draft), None)


@dataclass(frozen=True)
class CaseOfSet:
    """What a test set takes over of a test case."""

    id: int
    image: str
    source: str
    label: str
    """What a person decided, else that of its task."""
    task_label: str
    """That of its task: of the source image as well."""
    mask: str | None
    """The mask of its run as it is now: mode L, the size of the source."""
    mask_classes: Mapping[int, str]
    image_size: tuple[int, int]
    """Width and height."""
    source_size: tuple[int, int]


@dataclass(frozen=True)
class ImageHashes:
    """What a picture is found again by, in whatever file."""

    pixels: str
    """`core.images.image_sha` of it."""
    perceptual: int
    """`core.perceptual_hashes.perceptual_hash` of it, 64 bits."""


def split_to_load(splits: Collection[Split]) -> Split:
    """Return the split that the shown lines of code load: the test split, else another one of `splits`."""
    return next((split for split in ("test", "validation", "train", "") if split in splits), "test")


def manifest(name: str, parent: str, note: str, thresholds: Mapping[str, float], entries: Iterable[SetEntry]) -> bytes:
    """All that a version is, as the one text that it is hashed as: JSON in UTF-8 with sorted keys, entries sorted by
    the hash of their image. Numbers of this workspace are not in it, so equal versions have one id everywhere.
    """
    lines = [
        facts(entry, "image label mask_classes role source split", mask=entry.mask or "")
        for entry in sorted(entries, key=lambda entry: entry.image)
    ]
    held = {
        "format": MANIFEST_FORMAT,
        "name": name,
        "parent": parent,
        "note": note,
        "thresholds": {key: float(value) for key, value in thresholds.items()},
        "entries": lines,
    }
    return json.dumps(held, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def version_id(name: str, parent: str, note: str, thresholds: Mapping[str, float], entries: Iterable[SetEntry]) -> str:
    """The SHA-256 of the manifest, in hexadecimal digits."""
    return hashlib.sha256(manifest(name, parent, note, thresholds, entries)).hexdigest()


@dataclass(frozen=True)
class ShownEntry:
    """An image of a version, and what people decided of it."""

    entry: SetEntry
    review: Review


@dataclass(frozen=True)
class EntryCount:
    """How many images of a version have this label, split and role, and were decided on so."""

    label: str
    split: Split
    role: Role
    review: Review
    images: int
