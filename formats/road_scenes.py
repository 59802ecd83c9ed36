"""Road scenes with a mask for each image, as published: Cityscapes, ACDC, BDD100K and SHIFT."""

from __future__ import annotations

import csv
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from core import class_tables
from core.errors import UserError
from core.images import opened, png_of
from core.masks import UNLABELLED, renumbered
from core.test_sets import split_to_load
from formats.common import read_classes, require_each, splits_of
from formats.draft import Draft
from formats.files import Files, Inner, images_in, joined, lines_in, open_files
from formats.naming import choose_option, split_folder, standard
from formats.pages import CLASSES, Description, description_of
from formats.source import UNKNOWN, PathSource, Source, Survey, mask_opener, opener, stem_of
from formats.types import Example, Found, Report

_LABEL_IDS = 34
"""Number of label ids in Cityscapes' files, counted from 0. Ids outside the benchmark become "no class"."""
_ARCHIVES = (".zip", ".tar")
_SHIFT_PARTS = ("discrete", "continuous")
_SHIFT_RATES = ("images", "videos")
_SHIFT_SPEEDS = ("1x", "10x", "100x")
_ACDC_CONDITIONS: Mapping[str, Mapping[str, str]] = {
    "fog": {"weather": "foggy"},
    "night": {"time of day": "night"},
    "rain": {"weather": "rainy"},
    "snow": {"weather": "snowy"},
}


def write_cityscapes(draft: Draft, examples: Sequence[Example]) -> Description:
    """Write Cityscapes' folders, with equal class numbers in all masks. Raises UserError without masks."""
    require_each(examples, [example for example in examples if example.mask is None], "mask", "Cityscapes")
    common, number_of = _common_numbers(examples)

    def named(example: Example) -> tuple[str, None]:
        return f"leftImg8bit/{city(example)}/{example.name}_leftImg8bit.png", None

    def city(example: Example) -> str:
        # Readers of Cityscapes know only three splits. records.jsonl marks the examples without a split.
        return f"{split_folder(example.split or 'test', 'val')}/studio"

    for picture in draft.pictures(examples, named):
        example = picture.example
        assert picture.mask is not None
        numbers = number_of(example)
        image, mask = named(example)[0], f"gtFine/{city(example)}/{example.name}_gtFine_labelIds.png"
        if any(old != new for old, new in numbers.items()):
            draft.put(mask, png_of(renumbered(opened(picture.mask).convert("L"), numbers)))
        else:
            draft.put(mask, picture.mask)
        details = ("classes of masks", "splits") if example.split else ("classes of masks",)
        draft.record(picture, image, mask, details, mask_numbers={str(new): old for old, new in numbers.items()})
    draft.classes["masks"] = {str(number): name for number, name in common.items()}
    first = split_folder(split_to_load(splits_of(examples)) or "test", "val")
    return description_of("cityscapes", first)


def _common_numbers(examples: Sequence[Example]) -> tuple[dict[int, str], Callable[[Example], dict[int, int]]]:
    """Return the class names by common number, and a function that maps an example's numbers to the common numbers."""
    placed: dict[tuple[str, int], int] = {}

    def keys(example: Example) -> list[tuple[int, tuple[str, int]]]:
        seen: dict[str, int] = {}
        numbered_keys = []
        for number, name in sorted(example.mask_classes.items()):
            if number != UNLABELLED:
                numbered_keys.append((number, (name, seen.get(name, 0))))
                seen[name] = seen.get(name, 0) + 1
        return numbered_keys

    for example in examples:
        for number, key in keys(example):
            if key not in placed:
                taken = set(placed.values())
                free = number if number not in taken else next((n for n in range(UNLABELLED) if n not in taken), None)
                if free is None:
                    raise UserError("The masks have more than 255 classes, too many for Cityscapes: choose COCO.")
                placed[key] = free
    common = {number: name for (name, _), number in sorted(placed.items(), key=lambda item: item[1])}
    return common, lambda example: {number: placed[key] for number, key in keys(example)}


class SceneSource(PathSource):
    """Reads images from a folder for each split, and masks from a second tree with the same folders."""

    around: tuple[str, ...] = ("",)
    """Possible top folders of the data set, tried in this order. "" is the folder that contains all files."""
    images = ""
    """Folder that contains all images. The regex `path` matches the images' paths below this folder."""
    mask = ""
    """Path of an image's mask. Names in braces, such as {name}, stand for groups that the regex `path` matched."""

    def prepare(self) -> None:
        place = next((place for place in self.around if self.files.has(joined(place, self.images))), "")
        self.top, self.mask_path = f"{joined(place, self.images)}/", joined(place, self.mask)
        self.classes: Mapping[int, str] | None = class_tables.class_table(class_tables.CITYSCAPES).names
        self.numbers: Mapping[int, int] | None = None
        self._there: dict[str, bool] = {}
        """True for folders of masks that exist, False for other folders that were looked for."""

    @classmethod
    def may_be(cls, files: Files) -> bool:
        return any(f"{cls.images}/" in name and name.startswith(cls.around) for name in files.names)

    def splits(self) -> list[str]:
        return sorted({match["split"] for match in self.matches()})

    def survey(self, split: str) -> Survey:
        masked = any(match["split"] == split and self._has_masks(match) for match in self.matches())
        return Survey((), dict(self.classes or {}) if masked else {})

    def find(self, split: str | None = None) -> Iterator[Found]:
        unmasked: set[str] = set()
        for match in self.matches():
            if split not in (None, match["split"]):
                continue
            if match["split"] not in unmasked and not self._has_masks(match):
                unmasked.add(match["split"])
                self.report.changed(self.files.name, "There are no masks of this split: its images are read without.")
            yield self.found(match)

    def attributes_of(self, groups: Mapping[str, str]) -> Mapping[str, str]:
        """Return an image's attributes, such as weather, from the groups of its path."""
        return {}

    def _has_masks(self, match: re.Match[str]) -> bool:
        folder = (self.mask_path.partition("{split}")[0] + "{split}").format(**match.groupdict(""))
        if folder not in self._there:
            self._there[folder] = self.files.has(folder)
        return self._there[folder]

    def found(self, match: re.Match[str]) -> Found:
        path, groups = match.string, match.groupdict("")
        split, attributes = standard(groups["split"]), self.attributes_of(groups)
        found = Found(path, groups["name"], opener(self.files, path), split=split, attributes=attributes)
        if not self._has_masks(match):
            return found
        mask = mask_opener(self.files, self.mask_path.format(**groups))
        return replace(found, mask=mask, classes=self.classes, numbers=self.numbers)


class CityscapesSource(SceneSource):
    """Reads Cityscapes with fine masks, reduced to the benchmark's 19 classes, or a studio's export in this form."""

    around = ("", "cityscapes")
    images = "leftImg8bit"
    path = re.compile(r"(?P<split>[^/]+)/(?:.+/)?(?P<city>[^/]+)/(?P<name>[^/]+?)(?:_leftImg8bit)?\.png")
    mask = "gtFine/{split}/{city}/{name}_gtFine_labelIds.png"

    def prepare(self) -> None:
        super().prepare()
        if any(self.files.has(name) for name in (CLASSES, "classes.txt")):
            self.classes = read_classes(self.files, self.report)
        elif self.options.get("mask_classes"):
            self.classes = None
        else:
            self.numbers = dict.fromkeys(range(_LABEL_IDS), UNLABELLED) | class_tables.train_ids()

    def attributes_of(self, groups: Mapping[str, str]) -> Mapping[str, str]:
        return {"city": groups["city"]} if self.numbers is not None else {}


class AcdcSource(SceneSource):
    """Reads ACDC: images in fog, rain, snow and at night."""

    around = ("", "rgb_anon_trainvaltest")
    images = "rgb_anon"
    path = re.compile(
        r"(?P<condition>fog|night|rain|snow)/(?P<split>[^/]+)/(?P<sequence>[^/]+)/(?P<name>[^/]+)_rgb_anon\.png"
    )
    mask = "{condition}/{split}/{sequence}/{name}_gt_labelTrainIds.png"

    def prepare(self) -> None:
        super().prepare()
        self.mask_path = joined("gt" if self.files.has("gt") else "gt_trainval/gt", self.mask)

    def attributes_of(self, groups: Mapping[str, str]) -> Mapping[str, str]:
        condition = groups["condition"]
        return {**_ACDC_CONDITIONS[condition], "condition": condition, "sequence": groups["sequence"]}


class Bdd100kSource(SceneSource):
    """Reads BDD100K: its ten thousand images that have masks."""

    around = ("", "bdd100k")
    images = "images/10k"
    path = re.compile(r"(?P<split>[^/]+)/(?:.+/)?(?P<name>[^/]+)\.\w+")
    mask = "labels/sem_seg/masks/{split}/{name}.png"


class ShiftSource(Source):
    """Reads SHIFT in its published folders (or archives of these), with weather and time of day from seq.csv."""

    def prepare(self) -> None:
        below = [(rate, speed) for rate in _SHIFT_RATES for speed in ("", *_SHIFT_SPEEDS)]
        below += [(speed, rate) for speed in _SHIFT_SPEEDS for rate in _SHIFT_RATES]
        parts = [joined(kind, *folders) for kind in _SHIFT_PARTS for folders in below]
        available = [part for part in parts if set(self.files.folders(part)) - set(_SHIFT_SPEEDS)]
        if not available and self.in_place:
            raise UserError(
                f"{self.files.name} holds no SHIFT data: it has neither discrete/ nor continuous/.", field="root"
            )
        self._parts = [choose_option("part", self.options.get("part", ""), available)] if self.in_place else available
        self._told = Report()
        self._groups: dict[str, tuple[Files, Files | None, Mapping[str, Mapping[str, str]]]] = {}

    @classmethod
    def may_be(cls, files: Files) -> bool:
        return any(name.startswith(_SHIFT_PARTS) and re.search(r"/(img|semseg)[./]", name) for name in files.names)

    def splits(self) -> list[str]:
        return sorted({split for part in self._parts for split in self.files.folders(part)} - set(_SHIFT_SPEEDS))

    def survey(self, split: str) -> Survey:
        masked = any(self._group(place)[1] is not None for place in self._places(split))
        return Survey((), class_tables.class_table(class_tables.SHIFT).names if masked else {})

    def find(self, split: str | None = None) -> Iterator[Found]:
        for each in self.splits() if split is None else [split]:
            for place in self._places(each):
                images, masks, _ = self._group(place)
                self.report.rows += [row for row in self._told.rows if row not in self.report.rows]
                if masks is None:
                    self.report.changed(images.name, "There are no masks of this split: its images are read without.")
                for path in images_in(images):
                    yield self._found(place, path)

    def at(self, key: str) -> Found:
        place, _, path = key.partition("/img/")
        if not path or not place.startswith(tuple(f"{part}/" for part in self._parts)):
            raise UserError(UNKNOWN)
        return self._found(place, path)

    def stamp(self, key: str, file: str = "") -> str:
        place, _, path = key.partition("/img/")
        return self._group(place)[0].stamp(path)

    def _places(self, split: str) -> Iterator[str]:
        for part in self._parts:
            views = self.files.folders(joined(part, split))
            chosen = [choose_option("view", self.options.get("view", ""), views)] if self.in_place else views
            yield from (joined(part, split, view) for view in chosen)

    def _found(self, place: str, path: str) -> Found:
        images, masks, sequences = self._group(place)
        split, view = place.split("/")[-2:]
        sequence = posixpath.basename(posixpath.dirname(path))
        found = Found(
            joined(place, "img", path),
            stem_of(path),
            opener(images, path),
            split=standard(split),
            attributes=sequences.get(sequence) or {"sequence": sequence},
        )
        if masks is None:
            return found
        frame = posixpath.basename(path).partition("_")[0]
        mask = mask_opener(masks, joined(posixpath.dirname(path), f"{frame}_semseg_{view}.png"))
        names = class_tables.class_table(class_tables.SHIFT).names
        return replace(found, mask=lambda size: _first_channel(mask(size)), classes=names)

    def _group(self, place: str) -> tuple[Files, Files | None, Mapping[str, Mapping[str, str]]]:
        if place not in self._groups:
            images, masks = self._opened(place, "img"), self._opened(place, "semseg")
            if images is None:
                raise UserError(
                    f"There are no images in {place}: it needs the folder img, img.zip or img.tar. HDF5 files are not "
                    "read: give the zip from which they were made.",
                    field="root",
                )
            if next(images_in(images), None) is None and any(name.endswith(".mp4") for name in images.files()):
                raise UserError(
                    f"{place} holds videos: convert them to images with SHIFT's own tool "
                    "(shift_dev.io.decompress_videos).",
                    field="root",
                )
            part, split, _ = place.rsplit("/", 2)
            sequences = _sequences(self.files, (place, joined(part, split), part), self._told)
            self._groups[place] = images, masks, sequences
        return self._groups[place]

    def _opened(self, place: str, name: str) -> Files | None:
        for called in (name, f"{name}_decompressed"):
            if self.files.has(folder := joined(place, called)):
                return Inner(self.files, folder)
            for ending in _ARCHIVES:
                if self.files.has(file := joined(place, f"{called}{ending}")):
                    return open_files(self.files.path(file), self.report, follow_links=True)
        return None


def _first_channel(mask: bytes) -> bytes:
    """Return a mask of class numbers, which are the red channel of a colour mask."""
    image = opened(mask)
    try:
        return mask if len(image.getbands()) == 1 else png_of(image.getchannel(0))
    except Exception as error:  # a decoder may raise anything on a damaged file
        raise UserError("The mask is damaged or cut short: save or download it again.") from error


def _sequences(files: Files, folders: Sequence[str], report: Report) -> Mapping[str, Mapping[str, str]]:
    top = next((folder for folder in folders if files.has(joined(folder, "seq.csv"))), None)
    if top is None:
        report.changed("seq.csv", "It is missing, so weather and time of day are unknown.")
        return {}
    rows = csv.DictReader(lines_in(files, joined(top, "seq.csv")))
    columns = [name.strip() for name in rows.fieldnames or ()]
    rows.fieldnames = columns
    name = next((column for column in ("video", "seq", "sequence", "name") if column in columns), "")
    if not name:
        report.changed(joined(top, "seq.csv"), "It has no column “video” with the sequences, so weather is unknown.")
        return {}
    # The coarse columns are the classes by which SHIFT splits weather. The fine columns add detail.
    weather, time = _column(columns, "weather"), _column(columns, "timeofday")
    attributes_by_sequence: dict[str, Mapping[str, str]] = {}
    for row in rows:
        attributes = {column: (row.get(column) or "").strip() for column in columns if column != name}
        attributes |= {"weather": attributes.get(weather, ""), "time of day": attributes.get(time, "")}
        attributes["sequence"] = row[name] or ""
        attributes_by_sequence[row[name] or ""] = {key: value for key, value in attributes.items() if value}
    return attributes_by_sequence


def _column(columns: Sequence[str], word: str) -> str:
    candidates = [column for column in columns if word in column.lower().replace("_", "").replace(" ", "")]
    preferences = ("start", "coarse"), ("coarse",), ("start",), ()
    return next((column for parts in preferences for column in candidates if all(part in column for part in parts)), "")
