"""Read labelled images in the layouts in which they were published: ImageNet-9, CUB-200-2011 and WILDS' iWildCam."""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count, takewhile

from core.images import opened, png_of
from formats.files import Files, joined, lines_in
from formats.naming import standard
from formats.source import PathSource, Survey, mask_opener, opener
from formats.tables import TableSource
from formats.types import Found

BIRD: Mapping[int, str] = {0: "background", 1: "bird"}
_AGREED = 128
"""Minimum grey value of the pixels that belong to the bird: three of five annotators marked them."""


class ClassPaths(PathSource):
    """Reads images whose paths name the class. The regex `path` must have the groups class, folder and name."""

    @classmethod
    def may_be(cls, files: Files) -> bool:
        return any(cls.path.fullmatch(name) for name in files.names)

    def survey(self, split: str) -> Survey:
        classes = {match["folder"]: match["class"].replace("_", " ") for match in self.matches()}
        return Survey(tuple(classes[folder] for folder in sorted(classes)))

    def found(self, match: re.Match[str]) -> Found:
        groups = match.groupdict("")
        path, variant = match[0], groups.get("variant", "")
        return Found(
            *(path, groups["name"], opener(self.files, path), groups["class"].replace("_", " ")),
            split=standard(groups.get("split", "")),
            attributes={"variant": variant} if variant else {},
        )


class Imagenet9Source(ClassPaths):
    """Reads ImageNet-9 (backgrounds challenge), one variant or all. The variant (mixed_rand, ...) is an attribute."""

    path = re.compile(
        r"(?:.+/)??(?:(?P<variant>original|(?:mixed|only|no)_\w+)/)?(?P<split>train|val)/"
        r"(?P<folder>0\d_(?P<class>[^/]+))/(?P<name>[^/]+)\.\w+"
    )


class CubSource(ClassPaths):
    """Reads CUB-200-2011 with its splits. Masks are read if segmentations/ is in the folder or beside it."""

    path = re.compile(
        r"(?P<top>(?:.+/)?)images/(?P<folder>\d{3}\.(?P<class>[^/]+))/(?P<name>[^/]+)\.\w+", re.IGNORECASE
    )

    def prepare(self) -> None:
        top = next((folder for folder in ("", "CUB_200_2011") if self.files.has(joined(folder, "images.txt"))), "")
        paths, train = (self._list(joined(top, name)) for name in ("images.txt", "train_test_split.txt"))
        self._split_of = {paths[number]: "train" if flag == "1" else "test" for number, flag in train.items()}
        places = (joined(top, "segmentations"), "segmentations")
        self._masks = next((place for place in places if self.files.has(place)), "")

    def survey(self, split: str) -> Survey:
        return replace(super().survey(split), mask_classes=BIRD if self._masks else {})

    @classmethod
    def may_be(cls, files: Files) -> bool:
        listed = any(posixpath.basename(name) == "train_test_split.txt" for name in files.names)
        return listed and super().may_be(files)

    def _list(self, name: str) -> dict[str, str]:
        """Return the values in a list of CUB, by the number that begins each line. Empty if the file is missing."""
        if not self.files.has(name):
            return {}
        lines = lines_in(self.files, name)
        return {number: value.strip() for number, _, value in (line.partition(" ") for line in lines) if value}

    def found(self, match: re.Match[str]) -> Found:
        within = match[0].removeprefix(f"{match['top']}images/")
        found = replace(super().found(match), split=self._split_of.get(within, ""))
        if not self._masks:
            return found
        mask = mask_opener(self.files, joined(self._masks, f"{posixpath.splitext(within)[0]}.png"))
        return replace(found, mask=_agreed(mask), classes=BIRD)


class IwildcamSource(TableSource):
    """Reads iWildCam from WILDS. metadata.csv lists images of train/ with splits. categories.csv lists class names."""

    unnamed = "No row of metadata.csv names it: add one, or take the file away."

    def prepare(self) -> None:
        self.options = {**self.options, "label": "y"}
        super().prepare()
        self._classes = _categories(self.files)

    @classmethod
    def may_be(cls, files: Files) -> bool:
        return {"metadata.csv", "categories.csv"} <= {*files.names}

    def _chosen_tables(self) -> Iterator[str]:
        return filter(self.files.has, ("metadata.csv",))

    def _file(self, named: str, folder: str) -> str | None:
        return super()._file(joined("train", named), folder) if named else None


def _agreed(mask: Callable[[tuple[int, int]], bytes]) -> Callable[[tuple[int, int]], bytes]:
    """Return a function that reads a mask with the classes `BIRD`. It calls `mask` to read the original mask, whose
    grey values tell how many annotators marked a pixel.
    """
    return lambda size: png_of(opened(mask(size)).convert("L").point([value >= _AGREED for value in range(256)]))


def _categories(files: Files) -> tuple[str, ...]:
    """Return class names in order of their number in column y, up to a gap. Classes after the gap have no images."""
    if not files.has("categories.csv"):
        return ()
    rows = csv.DictReader(lines_in(files, "categories.csv"))
    names = {row.get("y", ""): (row.get("name") or "").strip() for row in rows}
    return tuple(names[number] for number in takewhile(names.__contains__, map(str, count())))
