"""COCO: images and a JSON file of regions as run lengths or outlines.

Masks here know classes, not objects, so a connected region of a class stands for an object. A class that falls into
very many pieces in an image becomes one region marked as a crowd, as COCO does with what it does not count.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from core.errors import UserError
from core.masks import UNLABELLED
from formats import rle
from formats.common import (
    read_bytes,
    split_in,
)
from formats.draft import Draft, Picture
from formats.files import MOST_TABLE, Files, by_form, is_image, names_by_form
from formats.naming import split_folder
from formats.pages import Kept
from formats.regions import MOST_REGIONS, area_of, class_names, mask_numbers, painted, pieces
from formats.types import Example, Found, Report, Split

if TYPE_CHECKING:
    pass


def write_coco(draft: Draft, examples: Sequence[Example]) -> Kept:
    """COCO: SPLIT/NAME.png and annotations/instances_SPLIT.json, masks as run lengths."""
    ids = {name: number for number, name in enumerate(class_names(examples), start=1)}
    splits: dict[Split, dict[str, Any]] = {}

    def named(example: Example) -> tuple[str, None]:
        return f"{split_folder(example.split, 'val')}/{example.name}.png", None

    for picture in draft.pictures(examples, named):
        example = picture.example
        held = splits.setdefault(example.split, {"images": [], "annotations": []})
        draft.record(picture, *named(example), ("labels", "classes of masks", "splits"))
        number, (width, height) = len(held["images"]) + 1, picture.size
        held["images"].append(
            {
                "id": number,
                "file_name": f"{example.name}.png",
                "width": width,
                "height": height,
                "label": example.label,
                # Beside what COCO has: what the mask needs to come back number by number.
                **({"mask_classes": _texts(example.mask_classes)} if picture.mask is not None else {}),
            }
        )
        made = _regions(picture, ids) if picture.mask is not None else _whole(picture, ids)
        for annotation in made:
            first = len(held["annotations"]) + 1
            held["annotations"].append({"id": first, "image_id": number, **annotation})
    categories = [{"id": number, "name": name, "supercategory": ""} for name, number in ids.items()]
    for split, held in sorted(splits.items()):
        about = {"info": {"description": "DILLEMA Studio test set"}, "licenses": [], **held, "categories": categories}
        data = json.dumps(about, ensure_ascii=False, separators=(",", ":")).encode()
        draft.put(f"annotations/instances_{split_folder(split, 'val')}.json", data)
    first_split = split_folder(next(iter(splits), ""), "val")
    return Kept(
        "from pycocotools.coco import COCO\n\n"
        f'images = COCO("SET/annotations/instances_{first_split}.json")  # their files lie in SET/{first_split}',
        (
            ("SPLIT/", "the images"),
            ("annotations/instances_SPLIT.json", "labels, classes, and the regions of the masks as run lengths"),
        ),
        images="*/*.png",
        notes=(
            "A connected region of a class is an instance, since the masks know classes and not objects; a class in "
            f"more than {MOST_REGIONS} pieces is one crowd.",
            "An image without a mask has one region, all of it, of its label; `label` stands in its entry as well.",
        ),
    )


def find_coco(files: Files, report: Report) -> Iterator[Found]:
    """The images of every JSON file of COCO's form. Boxes without a region, and categories that are not listed, are
    told.
    """
    known = names_by_form(files.names)
    by_stem: dict[str, list[str]] = {}
    for name in files.names:
        by_stem.setdefault(posixpath.basename(name), []).append(name)
    used: set[str] = set()
    for table in (name for name in files.names if name.endswith(".json")):
        held = _coco(files, table, report)
        if held is None:
            continue
        split = split_in(posixpath.splitext(posixpath.basename(table))[0].replace("_", "/").replace("2017", ""))
        named: dict[Any, str] = {}
        for category in held.get("categories", ()):
            if isinstance(category, dict) and isinstance(category.get("name"), str):
                named[_id(category, "id")] = category["name"]
        named.pop(None, None)
        regions: dict[Any, list[dict[str, Any]]] = {}
        for annotation in held.get("annotations", ()):
            if isinstance(annotation, dict):
                regions.setdefault(_id(annotation, "image_id"), []).append(annotation)
        for place, entry in enumerate(held["images"], start=1):
            where = f"{table}, image {place}"
            file_name = entry.get("file_name") if isinstance(entry, dict) else None
            image = _coco_image(file_name, table, split, known, by_stem)
            if image is None:
                report.refuse(where, f"It names an image that is not there (“{file_name}”): add the file.")
                continue
            used.add(image)
            found = _coco_found(files, image, entry, regions.get(_id(entry, "id"), []), named, where, report)
            if found is not None:
                yield Found(**{**found, "split": split or split_in(posixpath.dirname(image))})
    for name in files.names:
        if is_image(name) and name not in used and name != "sheet.jpg":
            report.refuse(name, "No list of images names it: add it there, or take the file away.")


def _texts(classes: Mapping[int, str]) -> dict[str, str]:
    """The classes of a mask as JSON has them."""
    return {str(number): name for number, name in sorted(classes.items())}


def _regions(picture: Picture, ids: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    numbers = mask_numbers(picture)
    for number, name in sorted(picture.example.mask_classes.items()):
        if number == UNLABELLED:
            continue
        for left, top, region in pieces(numbers, number):
            crowd = int(_is_crowd(region))
            height, width = region.shape
            counts = rle.counts_of(region, left, top, picture.size)
            yield {
                "category_id": ids[name],
                "iscrowd": crowd,
                "area": int(region.sum()),
                "bbox": [left, top, width, height],
                "segmentation": {"size": [picture.size[1], picture.size[0]], "counts": rle.packed(counts)},
                "mask_number": number,
            }


def _is_crowd(region: NDArray[np.bool_]) -> bool:
    import cv2

    return int(cv2.connectedComponents(region.astype(np.uint8), connectivity=8)[0]) > 2


def _whole(picture: Picture, ids: Mapping[str, int]) -> list[dict[str, Any]]:
    """The label of an image as a region that is all of it."""
    if not picture.example.label:
        return []
    width, height = picture.size
    return [
        {
            "category_id": ids[picture.example.label],
            "iscrowd": 0,
            "area": width * height,
            "bbox": [0, 0, width, height],
            "segmentation": [[0, 0, width, 0, width, height, 0, height]],
        }
    ]


def _coco(files: Files, table: str, report: Report) -> dict[str, Any] | None:
    """The JSON of COCO's form; None for other JSON, which other files of a set are, too."""
    try:
        held = json.loads(files.read(table, MOST_TABLE))
    except (ValueError, RecursionError, UserError) as error:
        report.refuse(table, str(error) if isinstance(error, UserError) else "It is no JSON: save it again.")
        return None
    if not isinstance(held, dict) or not isinstance(held.get("images"), list):
        return None
    if any(not isinstance(held.get(name, []), list) for name in ("annotations", "categories")):
        report.refuse(table, "Its annotations or categories are no lists: it is not of COCO's form.")
        return None
    return held


def _coco_image(
    named: Any, table: str, split: Split, known: Mapping[str, str], by_stem: Mapping[str, list[str]]
) -> str | None:
    """The file that an entry names: in the folder of the split, beside the table, or the only one so called."""
    if not isinstance(named, str):
        return None
    path = posixpath.normpath(named.replace("\\", "/"))
    above = posixpath.dirname(posixpath.dirname(table))
    kind = posixpath.splitext(posixpath.basename(table))[0].rpartition("_")[2]
    folders = (kind, split_folder(split, "val"), split_folder(split), "images", "")
    for folder in folders:
        for base in (above, posixpath.dirname(table)):
            if (found := by_form(known, posixpath.normpath(posixpath.join(base, folder, path)))) is not None:
                return found
    same = by_stem.get(posixpath.basename(path), [])
    return same[0] if len(same) == 1 else None


def _coco_found(
    files: Files,
    image: str,
    entry: Mapping[str, Any],
    annotations: Sequence[Mapping[str, Any]],
    named: Mapping[Any, str],
    where: str,
    report: Report,
) -> dict[str, Any] | None:
    """The example of an entry; None, told, when one of its regions cannot be read."""
    stem = posixpath.splitext(posixpath.basename(image))[0]
    found: dict[str, Any] = {"file": image, "name": stem, "image": read_bytes(files, image)}
    kinds = [_id(annotation, "category_id") for annotation in annotations]
    unknown = sorted({str(kind)[:80] for kind in kinds if kind not in named})
    if unknown:
        report.refuse(where, f"Its annotations have a category that is not listed: {', '.join(unknown[:6])}.")
        return None
    label = entry.get("label")
    own = entry.get("mask_classes")
    classes: dict[int, str]
    try:
        classes = {int(n): str(name) for n, name in own.items()} if isinstance(own, dict) else {}
        size = int(entry["width"]), int(entry["height"])
    except (KeyError, ValueError, TypeError, OverflowError):
        report.refuse(where, "Its width and height are not both given as numbers: add them.")
        return None
    if any(not 0 <= number <= UNLABELLED for number in classes):
        report.refuse(where, "Its mask_classes have a number that no mask can hold: they go from 0 to 255.")
        return None
    if not 0 < size[0] * size[1] <= rle.MOST_PIXELS >> 14:
        report.refuse(where, "Its width and height cannot be those of an image.")
        return None
    if isinstance(label, str) and not isinstance(own, dict):
        return {**found, "label": label}
    numbers = {name: number for number, name in classes.items()} or {
        name: number for number, name in enumerate(named.values()) if number < UNLABELLED
    }
    shaped = [a for a in annotations if a.get("segmentation")]
    if len(shaped) < len(annotations):
        labels = {named[kind] for kind in kinds}
        if len(labels) == 1 and not shaped:
            return {**found, "label": next(iter(labels))}
        left = len(annotations) - len(shaped)
        report.changed(where, f"{left} of its annotations have a box and no region: they were left out.")
    shapes = []
    for annotation in sorted(shaped, key=area_of, reverse=True):
        number = annotation.get("mask_number", numbers.get(named[_id(annotation, "category_id")]))
        if not isinstance(number, int) or not 0 <= number < UNLABELLED:
            report.refuse(where, "It has more than 255 classes, which a mask cannot hold.")
            return None
        shapes.append((number, annotation["segmentation"]))
    if shapes or isinstance(own, dict):
        found["mask"] = painted(shapes, size)
        found["classes"] = classes or {number: name for name, number in numbers.items()}
    return {**found, "label": label if isinstance(label, str) else ""}


def _id(held: Mapping[str, Any], name: str) -> int | float | str | None:
    """What an entry has as an id; None for what cannot be one, such as a list."""
    found = held.get(name)
    return found if isinstance(found, int | float | str) else None
