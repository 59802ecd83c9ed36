"""Road scenes with a mask beside every image: SHIFT, Cityscapes, ACDC and BDD100K, in their published folders."""

from __future__ import annotations

import csv
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core import class_tables
from core.batches import Item
from core.errors import UserError
from core.masks import UNLABELLED
from formats.data_sets.reader import NO_MASK, UNKNOWN, Reader, content_of, seen
from formats.data_sets.types import Content, DataSet, Layout
from formats.files import Files, images_in, joined, open_files
from formats.naming import choose, standard
from formats.types import Report

_LABEL_IDS = 34
"""Numbers from 0 in the files of Cityscapes; those that are not evaluated are of no class here."""
_SHIFT_PARTS = ("discrete", "continuous")
_SHIFT_RATES = ("images", "videos")
_SHIFT_SPEEDS = ("1x", "10x", "100x")
ARCHIVES = (".zip", ".tar")
_CONDITIONS = ("fog", "night", "rain", "snow")
_ACDC_CONDITIONS: Mapping[str, Mapping[str, str]] = {
    "fog": {"weather": "foggy"},
    "night": {"time of day": "night"},
    "rain": {"weather": "rainy"},
    "snow": {"weather": "snowy"},
}


@dataclass(frozen=True)
class _Scenes:
    """Where the images and masks of a data set lie, and what their names say."""

    layout: str
    title: str
    licence: str
    split: str
    images: Files
    folders: Sequence[str]
    """Those with the images of the split."""
    masks: Files | None
    """None for a split whose masks are not published, or not there."""
    mask_of: Callable[[str], str]
    """Where the mask of an image is, by the path of the image in `images`."""
    attributes_of: Callable[[str], Mapping[str, str]]
    classes: Mapping[int, str]
    before: str = ""
    """What comes before the paths of `images` in keys: an archive and its unpacked folder have the same keys."""
    ending: str = ""
    """Of the names of images."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """How `content_of` reads a mask file."""


class RoadScenes(Reader):
    """The images of such a data set."""

    def __init__(self, scenes: _Scenes, report: Report) -> None:
        super().__init__(
            scenes.layout,
            scenes.title,
            report,
            licence=scenes.licence,
            split=scenes.split,
            mask_classes=scenes.classes if scenes.masks is not None else {},
        )
        self._scenes = scenes

    def _items(self) -> Iterator[Item]:
        scenes = self._scenes
        for folder in scenes.folders:
            for path in images_in(scenes.images, folder):
                if path.endswith(scenes.ending):
                    key = joined(scenes.before, path)
                    yield Item(key, "", self.split, scenes.attributes_of(path), seen(scenes.images, path))

    def _path(self, key: str) -> str:
        before = f"{self._scenes.before}/" if self._scenes.before else ""
        if not key.startswith(before):
            raise UserError(UNKNOWN)
        return key[len(before) :]

    def _stamp(self, key: str) -> str:
        return self._scenes.images.stamp(self._path(key))

    def _read(self, key: str) -> Content:
        scenes, path = self._scenes, self._path(key)
        image = scenes.images.read(path)
        if scenes.masks is None:
            return content_of(image)
        mask = scenes.mask_of(path)
        if not scenes.masks.has(mask):
            raise UserError(NO_MASK)
        masks = scenes.masks
        return content_of(image, lambda _size: masks.read(mask), scenes.classes, **scenes.how)


def _opened(scenes: _Scenes, report: Report, expected: str) -> RoadScenes:
    """The data set. Raises UserError for one without an image."""
    if scenes.masks is None:
        report.changed(scenes.images.name, "There are no masks of this split: its images are read without.")
    reader = RoadScenes(scenes, report)
    if next(reader.items(), None) is None:
        raise UserError(f"There is no image of {scenes.title}: {expected} was looked for.", field="root")
    return reader


def open_cityscapes(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """Cityscapes with its fine masks, of which the 19 classes of the benchmark are kept."""
    tree = open_files(root, report, follow_links=True)
    top = _top(tree, ("", "cityscapes"), "leftImg8bit", CITYSCAPES)
    images, masks = joined(top, "leftImg8bit"), joined(top, "gtFine")
    chosen = choose(split, tree.folders(images), tree.name)

    def mask_of(path: str) -> str:
        city, name = path.split("/")[-2:]
        return joined(masks, chosen, city, f"{name.removesuffix('_leftImg8bit.png')}_gtFine_labelIds.png")

    scenes = _Scenes(
        *("cityscapes", CITYSCAPES.title),
        "Cityscapes licence: for research and teaching that is not commercial. https://www.cityscapes-dataset.com/license/",
        standard(chosen),
        tree,
        (joined(images, chosen),),
        tree if tree.has(joined(masks, chosen)) else None,
        mask_of,
        lambda path: {"city": path.split("/")[-2]},
        _evaluated(),
        ending="_leftImg8bit.png",
        how={"numbers": dict.fromkeys(range(_LABEL_IDS), UNLABELLED) | class_tables.train_ids()},
    )
    return _opened(scenes, report, CITYSCAPES.expected)


def open_acdc(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """ACDC: the conditions of a split one after another."""
    tree = open_files(root, report, follow_links=True)
    top = _top(tree, ("", "rgb_anon_trainvaltest"), "rgb_anon", ACDC)
    images = joined(top, "rgb_anon")
    labels = next((place for place in ("gt", "gt_trainval/gt") if tree.has(place)), "gt")
    conditions = [name for name in _CONDITIONS if tree.has(joined(images, name))]
    there = sorted({name for condition in conditions for name in tree.folders(joined(images, condition))})
    chosen = choose(split, there, tree.name)

    def parts(path: str) -> list[str]:
        return path.removeprefix(f"{images}/").split("/")

    def mask_of(path: str) -> str:
        inside = path.removeprefix(f"{images}/").removesuffix("_rgb_anon.png")
        return joined(labels, f"{inside}_gt_labelTrainIds.png")

    def attributes_of(path: str) -> Mapping[str, str]:
        condition, _, sequence = parts(path)[:3]
        return {**_ACDC_CONDITIONS.get(condition, {}), "condition": condition, "sequence": sequence}

    scenes = _Scenes(
        *("acdc", ACDC.title),
        "ACDC licence: for research and teaching that is not commercial. https://acdc.vision.ee.ethz.ch/license",
        standard(chosen),
        tree,
        tuple(joined(images, condition, chosen) for condition in conditions),
        tree if any(tree.has(joined(labels, condition, chosen)) for condition in conditions) else None,
        mask_of,
        attributes_of,
        _evaluated(),
        ending="_rgb_anon.png",
    )
    return _opened(scenes, report, ACDC.expected)


def open_bdd100k(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """The ten thousand images of BDD100K that have masks."""
    tree = open_files(root, report, follow_links=True)
    top = _top(tree, ("", "bdd100k"), "images/10k", BDD100K)
    images, masks = joined(top, "images/10k"), joined(top, "labels/sem_seg/masks")
    chosen = choose(split, tree.folders(images), tree.name)
    scenes = _Scenes(
        *("bdd100k", BDD100K.title),
        "BDD100K licence (BSD 3-clause, for research and teaching). https://doc.bdd100k.com/license.html",
        standard(chosen),
        tree,
        (joined(images, chosen),),
        tree if tree.has(joined(masks, chosen)) else None,
        lambda path: joined(masks, chosen, f"{posixpath.splitext(posixpath.basename(path))[0]}.png"),
        lambda path: {},
        _evaluated(),
    )
    return _opened(scenes, report, BDD100K.expected)


def open_shift(root: Path, split: str, options: Mapping[str, str], report: Report) -> DataSet:
    """SHIFT: one view of a split, its weather and time of day from seq.csv."""
    tree = open_files(root, report, follow_links=True)
    if not root.is_dir():
        raise UserError(f"{root.name} is an archive: give the folder in which SHIFT's own archives lie.", field="root")
    rates = [joined(kind, rate) for kind in _SHIFT_PARTS for rate in _SHIFT_RATES]
    parts = [part for rate in rates for part in (rate, *(joined(rate, speed) for speed in _SHIFT_SPEEDS))]
    parts += [joined(kind, speed, rate) for kind in _SHIFT_PARTS for speed in _SHIFT_SPEEDS for rate in _SHIFT_RATES]
    there = [part for part in parts if set(tree.folders(part)) - set(_SHIFT_SPEEDS)]
    if not there:
        raise UserError(f"{tree.name} holds no SHIFT: {SHIFT.expected} was looked for.", field="root")
    part = _said("part", options.get("part", ""), there)
    chosen = choose(split, tree.folders(part), f"{tree.name}/{part}")
    view = _said("view", options.get("view", ""), tree.folders(joined(part, chosen)))
    place = joined(part, chosen, view)
    images, masks = _group(root / place, "img", report), _group(root / place, "semseg", report)
    if images is None:
        raise UserError(
            f"There are no images in {place}: the folder img, img.zip or img.tar was looked for. Of HDF5 files nothing "
            "is read: give the zip that they were made of.",
            field="root",
        )
    if next(images_in(images), None) is None and any(name.endswith(".mp4") for name in images.files()):
        raise UserError(
            f"{place} holds videos: bring them to images with SHIFT's own tool (shift_dev.io.decompress_videos).",
            field="root",
        )
    sequences = _sequences(tree, (place, joined(part, chosen), part), report)

    def mask_of(path: str) -> str:
        name = posixpath.basename(path)
        frame = name.partition("_")[0]
        return joined(posixpath.dirname(path), f"{frame}_semseg_{view}.png")

    def attributes_of(path: str) -> Mapping[str, str]:
        sequence = posixpath.basename(posixpath.dirname(path))
        return sequences.get(sequence) or {"sequence": sequence}

    scenes = _Scenes(
        *("shift", SHIFT.title, "CC BY-NC-SA 4.0. https://www.vis.xyz/shift/"),
        standard(chosen),
        images,
        ("",),
        masks,
        mask_of,
        attributes_of,
        class_tables.class_table(class_tables.SHIFT).names,
        before=joined(place, "img"),
        how={"first_channel": True},
    )
    return _opened(scenes, report, SHIFT.expected)


def _evaluated() -> Mapping[int, str]:
    """The 19 classes that Cityscapes is evaluated on. ACDC and BDD100K have their numbers in their files."""
    return class_tables.class_table(class_tables.CITYSCAPES).names


def _group(place: Path, name: str, report: Report) -> Files | None:
    """The files of a data group: a folder or an archive; None where it is not there."""
    for called in (name, f"{name}_decompressed"):
        for ending in ("", *ARCHIVES):
            if (place / f"{called}{ending}").exists():
                return open_files(place / f"{called}{ending}", report, follow_links=True)
    return None


def _sequences(tree: Files, folders: Sequence[str], report: Report) -> Mapping[str, Mapping[str, str]]:
    """What seq.csv says of the sequences, by their names: weather, time of day, and its other columns as they are."""
    top = _below(tree, tuple(folders), "seq.csv")
    if top is None:
        report.changed("seq.csv", "It is not there: nothing says the weather and the time of day.")
        return {}
    rows = csv.DictReader(tree.read(joined(top, "seq.csv")).decode("utf-8-sig", "replace").splitlines())
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


def _below(tree: Files, candidates: tuple[str, ...], wanted: str) -> str | None:
    """The first of the folders that holds `wanted`; None where none does. Archives put a folder around all."""
    return next((folder for folder in candidates if tree.has(joined(folder, wanted))), None)


def _said(option: str, value: str, there: Sequence[str]) -> str:
    """What an option says of what there is; the only one without a word. Raises UserError."""
    if value in there:
        return value
    if not value and len(there) == 1:
        return there[0]
    what = f"There is no {option} “{value}”" if value else f"Say which {option} is meant"
    raise UserError(f"{what}: there is {', '.join(there) or 'none'}.", field=option)


def _top(tree: Files, candidates: tuple[str, ...], wanted: str, layout: Layout) -> str:
    found = _below(tree, candidates, wanted)
    if found is None:
        raise UserError(f"{tree.name} holds no {layout.title}: {layout.expected} was looked for.", field="root")
    return found


SHIFT = Layout(
    "SHIFT",
    "discrete/ or continuous/, images/ or videos/, SPLIT/VIEW/img and semseg as folder, zip or plain tar, with seq.csv",
    open_shift,
    {"part": "Such as discrete/images or continuous/videos/1x.", "view": "Such as front or left_45."},
)
CITYSCAPES = Layout("Cityscapes", "leftImg8bit/SPLIT/CITY/ and gtFine/SPLIT/CITY/ with labelIds", open_cityscapes)
ACDC = Layout("ACDC", "rgb_anon/CONDITION/SPLIT/SEQUENCE/ and gt/ with labelTrainIds", open_acdc)
BDD100K = Layout("BDD100K", "images/10k/SPLIT/ and labels/sem_seg/masks/SPLIT/", open_bdd100k)
