"""Test sets as stored, and the id of a version, which is a hash of its content. Plain data; no SQL."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from core.csv_tables import facts

LONGEST_NAME = 200
"""Maximum number of characters in the name of a test set, and in a label."""

Review = Literal["accepted", "rejected", "open", "none"]
"""Decision of people on an image; "none" for a source, which is not reviewed."""

Split = Literal["train", "validation", "test", ""]
SPLITS: tuple[Split, ...] = get_args(Split)
"""Names of the splits (parts) of a test set; "" if the set is not split."""
Role = Literal["generated", "source"]
MANIFEST_FORMAT = 1


@dataclass(frozen=True)
class SetEntry:
    """One image of a version. A version contains each image only once."""

    image: str
    """SHA-256 of the image's file in 64 hexadecimal digits, like all hashes here."""
    source: str
    """SHA-256 of the source image; of the image itself if it has no source."""
    label: str = ""
    split: Split = ""
    mask: str | None = None
    """SHA-256 of the mask, or None. A mask has mode L, the size of the image and a class number at every pixel."""
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    role: Role = "generated"
    """"generated" for a generated image, "source" for the original of generated images, which is added beside them."""
    test_case: int | None = None
    """Id of the test case in this workspace; None for a source or an imported image."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Origin of an imported image, JSON-ready. Empty in lists of all images of a version, as origins may be long."""


@dataclass(frozen=True)
class SetVersion:
    """A version of a test set: a draft that may change, or a final release."""

    number: int
    """Row number of the version in this workspace. Other workspaces have other numbers."""
    test_set: str
    set_name: str
    place: int
    """One-based position of the version in its set."""
    id: str
    """SHA-256 of the version's manifest; "" for a draft."""
    parent: str
    """Id of the version from which this version was drafted, or ""."""
    note: str
    thresholds: Mapping[str, float]
    """Thresholds by which images were chosen and divided into splits. The keys are their names."""
    created: datetime
    released: datetime | None
    entries: int
    splits: Mapping[Split, int] = field(default_factory=dict)
    """Number of images by split, without empty splits."""

    @property
    def is_draft(self) -> bool:
        return not self.id

    @property
    def key(self) -> str:
        """Name of the version within its set: "draft", or `place` as text."""
        return "draft" if self.is_draft else str(self.place)

    @property
    def reference(self) -> str:
        """Name within the workspace, such as "0a1b2c3d4e5f6a7b@2"."""
        return f"{self.test_set}@{self.key}"

    @property
    def words(self) -> str:
        """Name for people, such as "birds@2" or "birds@draft"."""
        return f"{self.set_name}@{self.key}"


@dataclass(frozen=True)
class TestSet:
    """A named list of images, stored as a series of versions."""

    __test__ = False  # not a pytest class

    id: str
    name: str
    created: datetime
    versions: tuple[SetVersion, ...]
    """Versions in order. Only the last one may be a draft."""

    @property
    def draft(self) -> SetVersion | None:
        """The version that may still change, or None."""
        return next((version for version in self.versions if version.is_draft), None)

    @property
    def latest(self) -> SetVersion | None:
        """The latest version that is no draft, or None."""
        return next((version for version in reversed(self.versions) if not version.is_draft), None)


@dataclass(frozen=True)
class CaseOfSet:
    """Data of a test case that a test set copies."""

    id: int
    image: str
    source: str
    label: str
    """Label that a person gave the image, otherwise the label of its task."""
    task_label: str
    """Label of the image's task. The source image has this label too."""
    mask: str | None
    """SHA-256 of the current mask of the test case's run, or None. The mask has mode L and the size of the source."""
    mask_classes: Mapping[int, str]
    image_size: tuple[int, int]
    source_size: tuple[int, int]


@dataclass(frozen=True)
class ImageHashes:
    """Hashes of a picture, by which it is found again in any file."""

    pixels: str
    """`core.images.image_sha` of the picture."""
    perceptual: int
    """`core.perceptual_hashes.perceptual_hash` of the picture, 64 bits."""


def split_to_load(splits: Collection[Split]) -> Split:
    """Return the split that example code loads: the test split if there is one, otherwise another one of `splits`."""
    return next((split for split in ("test", "validation", "train", "") if split in splits), "test")


def manifest(name: str, parent: str, note: str, thresholds: Mapping[str, float], entries: Iterable[SetEntry]) -> bytes:
    """Return the content of a version as JSON in UTF-8, for its hash. Keys and entries are sorted, and row numbers are
    left out, so equal versions have the same id everywhere.
    """
    lines = [
        facts(entry, "image label mask_classes role source split", mask=entry.mask or "")
        for entry in sorted(entries, key=lambda entry: entry.image)
    ]
    content = {
        "format": MANIFEST_FORMAT,
        "name": name,
        "parent": parent,
        "note": note,
        "thresholds": {key: float(value) for key, value in thresholds.items()},
        "entries": lines,
    }
    return json.dumps(content, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def version_id(name: str, parent: str, note: str, thresholds: Mapping[str, float], entries: Iterable[SetEntry]) -> str:
    """Return the SHA-256 of the manifest in hexadecimal digits."""
    return hashlib.sha256(manifest(name, parent, note, thresholds, entries)).hexdigest()


@dataclass(frozen=True)
class ShownEntry:
    """An image of a version, and people's decision on it."""

    entry: SetEntry
    review: Review


@dataclass(frozen=True)
class EntryCount:
    """Number of images of a version with this label, split, role and review."""

    label: str
    split: Split
    role: Role
    review: Review
    images: int
