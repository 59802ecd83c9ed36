"""Table of all formats of data sets and test sets, with their readers and writers."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.data_files import DataTable
from core.errors import UserError
from core.words import count_of
from formats import coco, huggingface, image_folders, imagenet, published, road_scenes, tables, voc, webdataset, yolo
from formats.draft import MANIFEST, Draft, read_manifest
from formats.files import MOST_TABLE, Files, Inner, is_image
from formats.naming import SPLIT_OF
from formats.pages import RECORDS, Description
from formats.records import RecordedSource
from formats.source import Source
from formats.types import Example, Report

TITLES, _EXPECTED = DataTable(__file__, str, "titles"), DataTable(__file__, str, "expected")


@dataclass(frozen=True)
class Layout:
    """A format of data sets or test sets, with its reader and its writer."""

    name: str
    source: Callable[[Files, Report, Mapping[str, str], bool], Source]
    write: Callable[[Draft, Sequence[Example]], Description] | None = None
    """Function that writes test sets in this format; None if the format can only be read."""
    options: tuple[str, ...] = ()
    """Names of the options of this format that a batch's plan may set."""
    guessed: type[Source] | None = None
    """Reader that counts how many images fit this format, to guess a format. None if this format is never guessed."""

    @property
    def title(self) -> str:
        """Title of the format, for people."""
        return TITLES[self.name]

    @property
    def expected(self) -> str:
        """Description of the files that the format requires."""
        return _EXPECTED[self.name]


def _studio(files: Files, report: Report, options: Mapping[str, str], in_place: bool = False) -> Source:
    """Raise UserError: the files have no manifest. Only a manifest tells the format of a studio's export."""
    expected = LAYOUTS["studio"].expected
    message = f"{files.name} holds no test set that the studio exported: it needs {expected}."
    raise UserError(message, field="root")


_CLASSES = ("classes", "mask_classes")
_ROWS = ("image", "label", "mask", "mask_classes", "config")

_KNOWN = (
    Layout("imagefolder", huggingface.image_folder, huggingface.write_imagefolder, guessed=tables.MetadataSource),
    Layout("torchvision", image_folders.class_folders, image_folders.write_torchvision),
    Layout("imagenet", imagenet.ImagenetSource, None, ("label", "image"), imagenet.ImagenetSource),
    Layout("imagenet9", published.Imagenet9Source, guessed=published.Imagenet9Source),
    Layout("cub", published.CubSource, guessed=published.CubSource),
    Layout("iwildcam", published.IwildcamSource, guessed=published.IwildcamSource),
    Layout("coco", coco.CocoSource, coco.write_coco, ("label",), coco.CocoSource),
    Layout("cityscapes", road_scenes.CityscapesSource, road_scenes.write_cityscapes, (), road_scenes.CityscapesSource),
    Layout("acdc", road_scenes.AcdcSource, guessed=road_scenes.AcdcSource),
    Layout("bdd100k", road_scenes.Bdd100kSource, guessed=road_scenes.Bdd100kSource),
    Layout("shift", road_scenes.ShiftSource, None, ("part", "view"), road_scenes.ShiftSource),
    Layout("voc", voc.VocSource, None, ("mask_classes",), voc.VocSource),
    Layout("yolo", yolo.YoloSource, yolo.write_yolo, (), yolo.YoloSource),
    Layout("webdataset", webdataset.ShardSource, webdataset.write_webdataset, _CLASSES, webdataset.ShardSource),
    Layout("csv", tables.TableSource, tables.write_csv, (*_CLASSES, "label", "table"), tables.TableSource),
    Layout("parquet", huggingface.RowSource, huggingface.write_parquet, _ROWS, huggingface.RowSource),
    Layout("huggingface", huggingface.RowSource, None, _ROWS),
    Layout("studio", _studio),
    Layout("folder", image_folders.PlainFolder, None, ("mask_classes",), image_folders.PlainFolder),
)
LAYOUTS: Mapping[str, Layout] = {layout.name: layout for layout in _KNOWN}
"""Formats by their names in commands and plans. Strict formats come before lenient ones."""


class Opened(NamedTuple):
    """A data set that was opened. None of its images has been read."""

    source: Source
    layout: str
    manifest: dict[str, Any] | None
    """Content of the manifest if the studio exported the data set, else None."""


def source_of(files: Files, layout: str, report: Report, options: Mapping[str, str], in_place: bool = False) -> Opened:
    """Open files in the format `layout`; "" guesses it. Raises UserError if it is unknown or does not fit."""
    manifest = None
    if not in_place or layout in ("studio", "folder"):
        files = _unwrapped(files, layout, options)
        manifest = _manifest(files, report)
    if layout in ("", "studio") and manifest is not None:
        layout = manifest["layout"]
    layout = layout or _guess(files, report)
    if layout not in LAYOUTS:
        raise UserError(f"“{layout}” is no format: choose one of {', '.join(LAYOUTS)}.", field="layout")
    source = LAYOUTS[layout].source(files, report, options, in_place)
    if (manifest is not None or not in_place) and files.has(RECORDS):
        source = RecordedSource(source)
    return Opened(source, layout, manifest)


def _unwrapped(files: Files, layout: str, options: Mapping[str, str]) -> Files:
    """Return the content of the only outer folder if this content fits the format better than `files`, else `files`."""
    folders = files.folders()
    if len(folders) != 1 or folders[0].lower() in SPLIT_OF or next(files.files(deep=False), None) is not None:
        return files
    inner = Inner(files, folders[0])
    marks = (MANIFEST, *tables.METADATA_FILES, "data.yaml", "leftImg8bit", "annotations", "obj.names", "classes.txt")
    if any(inner.has(mark) for mark in marks):
        return inner
    named = LAYOUTS.get(layout)
    if named and not _finds(named, files, options) and _finds(named, inner, options):
        return inner
    readings = [one.guessed for name, one in LAYOUTS.items() if one.guessed and name != "folder"]
    if named and named.guessed:
        readings = [named.guessed]
    return inner if any(reading.explained(inner) > reading.explained(files) for reading in readings) else files


def _finds(layout: Layout, files: Files, options: Mapping[str, str]) -> bool:
    try:
        return next(layout.source(files, Report(), options, False).find(), None) is not None
    except (UserError, OSError):
        return False


def _manifest(files: Files, report: Report) -> dict[str, Any] | None:
    if not files.has(MANIFEST):
        return None
    try:
        manifest = read_manifest(files.read(MANIFEST, MOST_TABLE))
    except UserError as error:
        report.refuse(MANIFEST, str(error))
        return None
    return manifest if manifest is not None and manifest["layout"] in LAYOUTS else None


def _guess(files: Files, report: Report) -> str:
    """Return the format that finds most images, or an earlier format in `LAYOUTS` that finds at least half as many."""
    explained = {name: layout.guessed.explained(files) for name, layout in LAYOUTS.items() if layout.guessed}
    most = max(explained.values())
    if not most:
        return _claimed(files)
    chosen = next(name for name, count in explained.items() if count and 2 * count >= most)
    for name, count in explained.items():
        if count and name != chosen and (count > explained[chosen] or (_by_lists(name) and not _by_lists(chosen))):
            report.changed(
                files.name,
                f"It was read as {LAYOUTS[chosen].title}. As {LAYOUTS[name].title} it has {count_of(count, 'image')}: "
                f"choose the format “{name}” if that is meant.",
            )
    return chosen


def _claimed(files: Files) -> str:
    """Return the most likely format if no format finds images. The reader of this format can then report the reason."""
    names = [posixpath.basename(name) for name in files.names]
    if set(names) & set(tables.METADATA_FILES):
        return "imagefolder"
    if coco.CocoSource.may_be(files):
        return "coco"
    if yolo.claims(files):
        return "yolo"
    if tables.claims(files):
        return "csv"
    if not any(map(is_image, names)):
        for name, endings in (("parquet", (".parquet",)), ("webdataset", (".tar", *webdataset.PACKED))):
            if any(each.endswith(endings) for each in names):
                return name
    return "folder"


def _by_lists(name: str) -> bool:
    return name in ("csv", "parquet", "coco", "imagefolder", "webdataset", "yolo")
