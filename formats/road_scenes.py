"""Road scenes with a mask beside every image: Cityscapes, ACDC, BDD100K and SHIFT, in their published folders."""

from __future__ import annotations

import csv
import io
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from PIL import Image

from core import class_tables
from core.errors import UserError
from core.images import opened, png_of
from core.masks import UNLABELLED
from formats.common import read_classes, require_each, splits_of
from formats.draft import Draft, Picture
from formats.files import Files, images_in, joined, open_files
from formats.naming import split_folder, standard
from formats.pages import CLASSES, Description
from formats.source import NO_MASK, UNKNOWN, Source, Survey, mask_opener, opener, stem_of
from formats.types import Example, Found, Report

_LABEL_IDS = 34
"""Numbers from 0 in the files of Cityscapes; those that are not evaluated are of no class here."""
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
    """Cityscapes' folders, its masks with one list of class numbers for all. Raises UserError without masks."""
    require_each(examples, [example for example in examples if example.mask is None], "mask", "Cityscapes")
    common, number_of = _common_numbers(examples)

    def named(example: Example) -> tuple[str, None]:
        return f"leftImg8bit/{city(example)}/{example.name}_leftImg8bit.png", None

    def city(example: Example) -> str:
        # Three splits are all that its readers know; records.jsonl says which examples are of none.
        return f"{split_folder(example.split or 'test', 'val')}/studio"

    for picture in draft.pictures(examples, named):
        example = picture.example
        assert picture.mask is not None
        numbers = number_of(example)
        image, mask = named(example)[0], f"gtFine/{city(example)}/{example.name}_gtFine_labelIds.png"
        draft.put(mask, picture.mask if all(old == new for old, new in numbers.items()) else _mapped(picture, numbers))
        details = ("classes of masks", "splits") if example.split else ("classes of masks",)
        draft.record(picture, image, mask, details, mask_numbers={str(new): old for old, new in numbers.items()})
    draft.classes["masks"] = {str(number): name for number, name in common.items()}
    first = split_folder(splits_of(examples)[0] or "test", "val")
    return Description(
        "from torchvision.datasets import Cityscapes\n\n"
        f'images = Cityscapes("SET", split="{first}", mode="fine", target_type="semantic")',
        (
            ("leftImg8bit/SPLIT/studio/", "the images"),
            ("gtFine/SPLIT/studio/", f"their masks: the numbers of `{CLASSES}`, {UNLABELLED} for no class"),
        ),
        images="leftImg8bit/*/*/*.png",
        masks="gtFine/*/*/*.png",
        notes=(
            f"The class numbers are this set's own, in `{CLASSES}`: they are not the numbers of Cityscapes.",
            "Images of no split lie in `test`, since Cityscapes has three splits and no other.",
        ),
    )


def _common_numbers(
    examples: Sequence[Example],
) -> tuple[dict[int, str], Callable[[Example], dict[int, int]]]:
    """One list of class numbers for all masks: an example's own number where it is free, else the next free one."""
    placed: dict[tuple[str, int], int] = {}

    def keys(example: Example) -> list[tuple[int, tuple[str, int]]]:
        seen: dict[str, int] = {}
        found = []
        for number, name in sorted(example.mask_classes.items()):
            if number != UNLABELLED:
                found.append((number, (name, seen.get(name, 0))))
                seen[name] = seen.get(name, 0) + 1
        return found

    for example in examples:
        for number, key in keys(example):
            if key not in placed:
                taken = set(placed.values())
                free = number if number not in taken else next((n for n in range(UNLABELLED) if n not in taken), None)
                if free is None:
                    raise UserError("The masks have more than 255 classes, which Cityscapes' cannot hold: choose COCO.")
                placed[key] = free
    common = {number: name for (name, _), number in sorted(placed.items(), key=lambda item: item[1])}
    return common, lambda example: {number: placed[key] for number, key in keys(example)}


def _mapped(picture: Picture, numbers: Mapping[int, int]) -> bytes:
    table = np.full(256, UNLABELLED, np.uint8)
    for old, new in numbers.items():
        table[old] = new
    with Image.open(io.BytesIO(picture.mask or b"")) as mask:
        return png_of(Image.fromarray(table[np.asarray(mask.convert("L"))]))


class SceneSource(Source):
    """Images below a folder a split, and their masks in a tree beside them."""

    around: tuple[str, ...] = ("",)
    """Folders in which the data set may lie."""
    images = ""
    """The folder of the images."""
    ending = ""
    """Of the names of images."""
    terms = ""

    def __init__(self, files: Files, report: Report, options: Mapping[str, str], in_place: bool = False) -> None:
        super().__init__(files, report, options, in_place)
        self.top = next((place for place in self.around if files.has(joined(place, self.images))), "")
        self.classes: Mapping[int, str] | None = class_tables.class_table(class_tables.CITYSCAPES).names
        self.numbers: Mapping[int, int] | None = None
        if in_place:
            self.licence = self.terms

    def splits(self) -> list[str]:
        return self.files.folders(joined(self.top, self.images))

    def survey(self, split: str) -> Survey:
        return Survey((), dict(self.classes or {}) if self._has_masks(split) else {})

    def find(self, split: str | None = None) -> Iterator[Found]:
        for each in self.splits() if split is None else [split]:
            if not self._has_masks(each):
                self.report.changed(self.files.name, "There are no masks of this split: its images are read without.")
            for folder in self.folders(each):
                for path in images_in(self.files, folder):
                    if path.endswith(self.ending):
                        yield self.at(path)

    def at(self, key: str) -> Found:
        split = self.split_of(key)
        found = Found(
            key,
            stem_of(key).removesuffix(posixpath.splitext(self.ending)[0]) or stem_of(key),
            opener(self.files, key),
            split=standard(split),
            attributes=self.attributes_of(key),
        )
        if not self._has_masks(split):
            return found
        mask = mask_opener(self.files, self.mask_of(key), NO_MASK)
        return replace(found, mask=mask, classes=self.classes, numbers=self.numbers)

    def _has_masks(self, split: str) -> bool:
        return any(self.files.has(folder) for folder in self.mask_folders(split))

    def folders(self, split: str) -> Sequence[str]:
        """Those with the images of a split."""
        return (joined(self.top, self.images, split),)

    def mask_folders(self, split: str) -> Sequence[str]:
        """Those with the masks of a split."""
        raise NotImplementedError

    def split_of(self, path: str) -> str:
        """The split of an image, as it is called."""
        return path.removeprefix(f"{joined(self.top, self.images)}/").split("/")[0]

    def mask_of(self, path: str) -> str:
        """Where the mask of an image is."""
        raise NotImplementedError

    def attributes_of(self, path: str) -> Mapping[str, str]:
        """What the path of an image says of it."""
        return {}


class CityscapesSource(SceneSource):
    """Cityscapes with its fine masks, of which the 19 classes of the benchmark are kept; or an export of its form."""

    around = ("", "cityscapes")
    images = "leftImg8bit"
    ending = ".png"
    terms = (
        "Cityscapes licence: for research and teaching that is not commercial. "
        "https://www.cityscapes-dataset.com/license/"
    )

    def __init__(self, files: Files, report: Report, options: Mapping[str, str], in_place: bool = False) -> None:
        super().__init__(files, report, options, in_place)
        listed = [name for name in (CLASSES, "classes.txt") if files.has(name)]
        if listed:
            self.classes = read_classes(files, report)
        elif options.get("mask_classes"):
            self.classes = None
        else:
            self.numbers = dict.fromkeys(range(_LABEL_IDS), UNLABELLED) | class_tables.train_ids()

    def mask_folders(self, split: str) -> Sequence[str]:
        return (joined(self.top, "gtFine", split),)

    def mask_of(self, path: str) -> str:
        *_, city, name = path.split("/")
        stem = stem_of(name).removesuffix("_leftImg8bit")
        return joined(self.top, "gtFine", self.split_of(path), city, f"{stem}_gtFine_labelIds.png")

    def attributes_of(self, path: str) -> Mapping[str, str]:
        return {"city": path.split("/")[-2]} if self.numbers is not None else {}

    def at(self, key: str) -> Found:
        found = super().at(key)
        return replace(found, name=stem_of(key).removesuffix("_leftImg8bit"))


class AcdcSource(SceneSource):
    """ACDC: the conditions of a split one after another."""

    around = ("", "rgb_anon_trainvaltest")
    images = "rgb_anon"
    ending = "_rgb_anon.png"
    terms = "ACDC licence: for research and teaching that is not commercial. https://acdc.vision.ee.ethz.ch/license"

    def __init__(self, files: Files, report: Report, options: Mapping[str, str], in_place: bool = False) -> None:
        super().__init__(files, report, options, in_place)
        images = joined(self.top, self.images)
        self._conditions = [name for name in _ACDC_CONDITIONS if files.has(joined(images, name))]
        self._labels = next((place for place in ("gt", "gt_trainval/gt") if files.has(place)), "gt")

    def splits(self) -> list[str]:
        images = joined(self.top, self.images)
        return sorted({name for each in self._conditions for name in self.files.folders(joined(images, each))})

    def folders(self, split: str) -> Sequence[str]:
        return tuple(joined(self.top, self.images, condition, split) for condition in self._conditions)

    def mask_folders(self, split: str) -> Sequence[str]:
        return tuple(joined(self._labels, condition, split) for condition in self._conditions)

    def _parts(self, path: str) -> list[str]:
        return path.removeprefix(f"{joined(self.top, self.images)}/").split("/")

    def split_of(self, path: str) -> str:
        return [*self._parts(path), ""][1]

    def mask_of(self, path: str) -> str:
        return joined(self._labels, "/".join(self._parts(path)).removesuffix(self.ending) + "_gt_labelTrainIds.png")

    def attributes_of(self, path: str) -> Mapping[str, str]:
        condition, _, sequence = [*self._parts(path), "", ""][:3]
        return {**_ACDC_CONDITIONS.get(condition, {}), "condition": condition, "sequence": sequence}


class Bdd100kSource(SceneSource):
    """The ten thousand images of BDD100K that have masks."""

    around = ("", "bdd100k")
    images = "images/10k"
    terms = "BDD100K licence (BSD 3-clause, for research and teaching). https://doc.bdd100k.com/license.html"

    def mask_folders(self, split: str) -> Sequence[str]:
        return (joined(self.top, "labels/sem_seg/masks", split),)

    def mask_of(self, path: str) -> str:
        return joined(self.top, "labels/sem_seg/masks", self.split_of(path), f"{stem_of(path)}.png")


class ShiftSource(Source):
    """SHIFT: the views of its splits, weather and time of day from seq.csv. Its groups of files may be archives."""

    def __init__(self, files: Files, report: Report, options: Mapping[str, str], in_place: bool = False) -> None:
        super().__init__(files, report, options, in_place)
        self.licence = "CC BY-NC-SA 4.0. https://www.vis.xyz/shift/" if in_place else ""
        rates = [joined(kind, rate) for kind in _SHIFT_PARTS for rate in _SHIFT_RATES]
        parts = [part for rate in rates for part in (rate, *(joined(rate, speed) for speed in _SHIFT_SPEEDS))]
        parts += [
            joined(kind, speed, rate) for kind in _SHIFT_PARTS for speed in _SHIFT_SPEEDS for rate in _SHIFT_RATES
        ]
        there = [part for part in parts if set(files.folders(part)) - set(_SHIFT_SPEEDS)]
        if not there and in_place:
            raise UserError(f"{files.name} holds no SHIFT: discrete/ or continuous/ was looked for.", field="root")
        self._parts = [_said("part", options.get("part", ""), there)] if in_place else there
        self._told = Report()
        self._groups: dict[str, tuple[Files, Files | None, Mapping[str, Mapping[str, str]]]] = {}

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
        for part in self._parts:
            place, _, path = key.partition("/img/")
            if place.startswith(f"{part}/") and path:
                return self._found(place, path)
        raise UserError(UNKNOWN)

    def stamp(self, key: str, file: str = "") -> str:
        place, _, path = key.partition("/img/")
        return self._group(place)[0].stamp(path)

    def _places(self, split: str) -> Iterator[str]:
        for part in self._parts:
            views = self.files.folders(joined(part, split))
            chosen = [_said("view", self.options.get("view", ""), views)] if self.in_place else views
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
        """Images, masks and sequences of a view."""
        if place not in self._groups:
            images, masks = self._opened(place, "img"), self._opened(place, "semseg")
            if images is None:
                raise UserError(
                    f"There are no images in {place}: the folder img, img.zip or img.tar was looked for. Of HDF5 files "
                    "nothing is read: give the zip that they were made of.",
                    field="root",
                )
            if next(images_in(images), None) is None and any(name.endswith(".mp4") for name in images.files()):
                raise UserError(
                    f"{place} holds videos: bring them to images with SHIFT's own tool "
                    "(shift_dev.io.decompress_videos).",
                    field="root",
                )
            part, split, _ = place.rsplit("/", 2)
            sequences = _sequences(self.files, (place, joined(part, split), part), self._told)
            self._groups[place] = images, masks, sequences
        return self._groups[place]

    def _opened(self, place: str, name: str) -> Files | None:
        """The files of a group: a folder or an archive; None where it is not there."""
        for called in (name, f"{name}_decompressed"):
            for ending in ("", *_ARCHIVES):
                if self.files.has(file := joined(place, f"{called}{ending}")):
                    return open_files(self.files.path(file), self.report, follow_links=True)
        return None


def _first_channel(mask: bytes) -> bytes:
    """The class numbers of a mask in colours, which are its red channel."""
    try:
        image = opened(mask)
        image.load()
    except UserError:
        raise
    except Exception as error:  # a decoder fed with a damaged file may raise anything
        raise UserError("The mask is damaged or cut short: save or download it again.") from error
    values = np.asarray(image)
    return mask if values.ndim == 2 else png_of(Image.fromarray(np.ascontiguousarray(values[..., 0])))


def explained(files: Files, kind: type[SceneSource]) -> int:
    """Number of images in the folders of a data set."""
    if not any(f"{kind.images}/" in name and name.startswith(kind.around) for name in files.names):
        return 0
    return sum(1 for _ in kind(files, Report(), {}).find())


def shift_explained(files: Files) -> int:
    """Number of images in the folders of SHIFT."""
    if not any(name.startswith(_SHIFT_PARTS) and re.search(r"/(img|semseg)[./]", name) for name in files.names):
        return 0
    try:
        return sum(1 for _ in ShiftSource(files, Report(), {}).find())
    except UserError:
        return 0


def _sequences(files: Files, folders: Sequence[str], report: Report) -> Mapping[str, Mapping[str, str]]:
    """What seq.csv says of the sequences, by their names: weather, time of day, and its other columns as they are."""
    top = _below(files, tuple(folders), "seq.csv")
    if top is None:
        report.changed("seq.csv", "It is not there: nothing says the weather and the time of day.")
        return {}
    rows = csv.DictReader(files.read(joined(top, "seq.csv")).decode("utf-8-sig", "replace").splitlines())
    columns = [name.strip() for name in rows.fieldnames or ()]
    rows.fieldnames = columns
    name = next((column for column in ("video", "seq", "sequence", "name") if column in columns), "")
    if not name:
        report.changed(joined(top, "seq.csv"), "It has no column “video” with the sequences: nothing says the weather.")
        return {}
    # The coarse columns are the classes of SHIFT's own split by weather; the fine ones stay beside them.
    weather, time = _column(columns, "weather"), _column(columns, "timeofday")
    found: dict[str, Mapping[str, str]] = {}
    for row in rows:
        told = {column: (row.get(column) or "").strip() for column in columns if column != name}
        own = {"weather": told.get(weather, ""), "time of day": told.get(time, ""), "sequence": row[name] or ""}
        found[row[name] or ""] = {key: value for key, value in {**told, **own}.items() if value}
    return found


def _column(columns: Sequence[str], word: str) -> str:
    """The column that says something of all of a sequence: its coarse class at its start, or what there is."""
    own = [column for column in columns if word in column.lower().replace("_", "").replace(" ", "")]
    wanted = ("start", "coarse"), ("coarse",), ("start",), ()
    return next((column for parts in wanted for column in own if all(part in column for part in parts)), "")


def _below(files: Files, candidates: tuple[str, ...], wanted: str) -> str | None:
    """The first of the folders that holds `wanted`; None where none does. Archives put a folder around all."""
    return next((folder for folder in candidates if files.has(joined(folder, wanted))), None)


def _said(option: str, value: str, there: Sequence[str]) -> str:
    """What an option says of what there is; the only one without a word. Raises UserError."""
    if value in there:
        return value
    if not value and len(there) == 1:
        return there[0]
    what = f"There is no {option} “{value}”" if value else f"Say which {option} is meant"
    raise UserError(f"{what}: there is {', '.join(there) or 'none'}.", field=option)
