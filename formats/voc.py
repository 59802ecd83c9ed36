"""Pascal VOC: images in JPEGImages, masks in SegmentationClass, and splits in ImageSets."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace

from formats.common import read_classes
from formats.files import Files, images_in, joined, lines_in
from formats.naming import standard
from formats.source import Source, Tally, mask_opener, opener, stem_of
from formats.types import Found

CLASSES = (
    *("background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
"""Class names by number in the masks, from http://host.robots.ox.ac.uk/pascal/VOC/voc2012/"""
IMAGES, MASKS = "JPEGImages", "SegmentationClass"
_SPLITS = ("train", "val", "test")
_AROUND = ("", "VOC2012", "VOC2007", "VOCdevkit/VOC2012", "VOCdevkit/VOC2007")


class VocSource(Source):
    """Reads the images in JPEGImages. Most of them have no mask."""

    def prepare(self) -> None:
        around = [*_AROUND, *self.files.folders()]
        self._base = next((base for base in around if self.files.has(joined(base, IMAGES))), "")
        self._classes = read_classes(self.files, self.report) or (
            None if self.options.get("mask_classes") else dict(enumerate(CLASSES))
        )
        self._split_of: dict[str, str] = {}
        for kind in ("Segmentation", "Main"):
            for split in _SPLITS:
                name = joined(self._base, "ImageSets", kind, f"{split}.txt")
                if self.files.has(name):
                    for line in lines_in(self.files, name):
                        self._split_of.setdefault(line.split()[0] if line.split() else "", split)

    @classmethod
    def may_be(cls, files: Files) -> bool:
        folders = {posixpath.dirname(name).rpartition("/")[2] for name in files.names}
        return IMAGES in folders and (MASKS in folders or any("ImageSets/" in name for name in files.names))

    def find(self, split: str | None = None) -> Iterator[Found]:
        tally = Tally(self.report)
        for path in images_in(self.files, joined(self._base, IMAGES)):
            found = self.at(path)
            if split is not None and found.split != standard(split):
                continue
            for folder, ending, what in (
                ("Annotations", ".xml", "Its boxes are not taken over."),
                ("SegmentationObject", ".png", "Its mask of single objects is not taken over."),
            ):
                other = joined(self._base, folder, f"{found.name}{ending}")
                if not self.in_place and self.files.has(other):
                    tally.note(other, what)
            yield found
        tally.tell()

    def at(self, key: str) -> Found:
        stem = stem_of(key)
        mask = joined(self._base, MASKS, f"{stem}.png")
        found = Found(key, stem, opener(self.files, key), split=standard(self._split_of.get(stem, "")))
        if not self.files.has(mask):
            return found
        return replace(found, mask=mask_opener(self.files, mask), classes=self._classes)
