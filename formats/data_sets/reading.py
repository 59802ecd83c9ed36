"""Opens a data set in any of the layouts that are known: the one way in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.errors import UserError
from formats.data_sets.class_folders import CLASS_FOLDERS
from formats.data_sets.coco import COCO
from formats.data_sets.imagenet import IMAGENET
from formats.data_sets.lists import CSV, FOLDER, STUDIO, WEBDATASET
from formats.data_sets.road_scenes import ACDC, BDD100K, CITYSCAPES, SHIFT
from formats.data_sets.rows import HUGGINGFACE
from formats.data_sets.types import DataSet, Layout
from formats.types import Report

LAYOUTS: Mapping[str, Layout] = {
    "imagefolder": CLASS_FOLDERS,
    "imagenet": IMAGENET,
    "shift": SHIFT,
    "cityscapes": CITYSCAPES,
    "acdc": ACDC,
    "bdd100k": BDD100K,
    "coco": COCO,
    "huggingface": HUGGINGFACE,
    "webdataset": WEBDATASET,
    "csv": CSV,
    "studio": STUDIO,
    "folder": FOLDER,
}
"""By their names in plans."""


def open_data_set(root: Path, layout: str, split: str = "", **more: str) -> DataSet:
    """The data set at a path. `more` are options of the layout.

    Nothing is copied or unpacked, and no image is opened. Raises UserError for an unknown layout or option, for a path
    where that layout does not lie, saying what was looked for, and for a set with several splits where none is said:
    torchvision would take train, here none is taken unasked.
    """
    if layout not in LAYOUTS:
        raise UserError(f"“{layout}” is no layout of a data set: choose one of {', '.join(LAYOUTS)}.", field="layout")
    known = LAYOUTS[layout]
    if unknown := sorted(set(more) - set(known.options)):
        there = f"there is {', '.join(known.options)}" if known.options else "it has none"
        raise UserError(f"“{unknown[0]}” is no option of the layout {layout}: {there}.", field=unknown[0])
    if not root.exists():
        raise UserError(f"{root} is not there: give the path of the data set.", field="root")
    return known.open(root, split, more, Report())
