"""Formats that describe regions in text: COCO (run lengths) and YOLO (outlines).

Masks here know classes, not objects, so a connected region of a class stands for an object. A class that falls into
very many pieces in an image becomes one region marked as a crowd in COCO, as COCO does with what it does not count.
"""

from __future__ import annotations

import io
import json
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.images import png_of
from core.masks import UNLABELLED, require_names
from formats import rle
from formats.draft import Draft, Picture
from formats.folders import read_bytes, read_classes, split_in, splits_of
from formats.naming import split_folder
from formats.pages import RECORDS, Kept
from formats.sources import MOST_TABLE, Files, Found, Report, by_form, is_image, names_by_form
from formats.types import Example, Split

DATA = "data.yaml"
MOST_REGIONS = 100
"""Of a class in an image, each with an annotation of its own."""
_SMALL_LISTS = 1_000_000
"""Bytes of a file of outlines."""

Numbers = NDArray[np.uint8]


def write_coco(draft: Draft, examples: Sequence[Example]) -> Kept:
    """COCO: SPLIT/NAME.png and annotations/instances_SPLIT.json, masks as run lengths."""
    ids = {name: number for number, name in enumerate(_class_names(examples), start=1)}
    splits: dict[Split, dict[str, Any]] = {}

    def named(example: Example) -> tuple[str, None]:
        return f"{split_folder(example.split, 'val')}/{example.name}.png", None

    for picture in draft.pictures(examples, named):
        example = picture.example
        held = splits.setdefault(example.split, {"images": [], "annotations": []})
        draft.record(picture, *named(example))
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


def write_yolo(draft: Draft, examples: Sequence[Example]) -> Kept:
    """YOLO: images/SPLIT/NAME.png, labels/SPLIT/NAME.txt with outlines, exact masks in masks/SPLIT/, data.yaml."""
    import yaml

    names = _class_names(examples)
    ids = {name: number for number, name in enumerate(names)}

    def named(example: Example) -> tuple[str, str | None]:
        file = f"{split_folder(example.split, 'val')}/{example.name}.png"
        return f"images/{file}", None if example.mask is None else f"masks/{file}"

    for picture in draft.pictures(examples, named):
        example = picture.example
        if picture.mask is not None:
            lines = list(_outlines(picture, ids))
        else:
            lines = [f"{ids[example.label]} 0.5 0.5 1 1"] if example.label else []
        text = "".join(f"{line}\n" for line in lines)
        draft.put(f"labels/{split_folder(example.split, 'val')}/{example.name}.txt", text.encode())
        draft.record(picture, *named(example))
    there = [split_folder(split, "val") for split in splits_of(examples)]
    # Its readers want both of them: what is there stands for what is not.
    wanted = {name: f"images/{name if name in there else there[0]}" for name in ("train", "val")}
    about = {**wanted, **({"test": "images/test"} if "test" in there else {}), "names": dict(enumerate(names))}
    draft.put(DATA, yaml.safe_dump(about, allow_unicode=True, sort_keys=False).encode())
    masks = any(example.mask is not None for example in examples)
    return Kept(
        'from ultralytics import YOLO\n\nfigures = YOLO("yolo11n-seg.pt").val(data="SET/data.yaml")',
        (
            ("images/SPLIT/", "the images"),
            ("labels/SPLIT/", "a text an image: a line an outline, the class first; a box for an image without mask"),
            *([("masks/SPLIT/", "the exact masks: a class number a pixel")] if masks else []),
            (DATA, "the classes, and where the images are"),
        ),
        images="images/*/*.png",
        masks="masks/*/*.png" if masks else "",
        notes=(
            "An outline has no holes and no pixels of its own: the exact masks are in `masks/`.",
            "`train` and `val` of `data.yaml` name what is there where the set has no such split.",
        ),
    )


def find_yolo(files: Files, report: Report) -> Iterator[Found]:
    """The images of images/ with the outlines of labels/, or the exact masks of masks/ where they are."""
    names = _yolo_names(files, report)
    listed = read_classes(files, report)
    held = frozenset(files.names)
    for name in files.names:
        parts = name.split("/")
        if not is_image(name) or "images" not in parts[:-1]:
            continue
        at = len(parts) - 2 - parts[:-1][::-1].index("images")

        def sibling(folder: str, ending: str, parts: Sequence[str] = parts, at: int = at) -> str:
            path = "/".join([*parts[:at], folder, *parts[at + 1 :]])
            return posixpath.splitext(path)[0] + ending

        text, exact = sibling("labels", ".txt"), sibling("masks", ".png")
        stem, split = posixpath.splitext(parts[-1])[0], split_in(posixpath.dirname(name))
        try:
            label, shapes = _yolo_lines(files, text, names, report) if text in held else ("", [])
        except UserError as error:
            report.refuse(text, f"{error} The image of this name was left out.")
            continue
        mask: Callable[[tuple[int, int]], bytes] | None = None
        classes: dict[int, str] | None = dict(enumerate(names))
        if exact in held and (RECORDS in held or listed is not None):
            mask, classes = _whole_file(files, exact), listed
        elif shapes:
            mask = _drawn(shapes)
        yield Found(name, stem, read_bytes(files, name), label, split, mask, classes)


def _texts(classes: Mapping[int, str]) -> dict[str, str]:
    """The classes of a mask as JSON has them."""
    return {str(number): name for number, name in sorted(classes.items())}


def _class_names(examples: Sequence[Example]) -> list[str]:
    """All names of classes and labels, sorted."""
    masked = {name for e in examples if e.mask is not None for n, name in e.mask_classes.items() if n != UNLABELLED}
    return sorted(masked | {example.label for example in examples if example.label})


def _numbers(picture: Picture) -> Numbers:
    """The class numbers of a mask. Raises UserError for one that has no name."""
    with Image.open(io.BytesIO(picture.mask or b"")) as mask:
        grey = mask.convert("L")
    try:
        require_names(grey, picture.example.mask_classes)
    except UserError as error:
        raise UserError(f"“{picture.example.name}”: {error}") from error
    return np.asarray(grey, np.uint8)


def _pieces(numbers: Numbers, number: int) -> list[tuple[int, int, NDArray[np.bool_]]]:
    """The connected regions of a class as left, top and the region in its box; one of all where they are too many."""
    import cv2

    there = numbers == number
    rows, columns = np.flatnonzero(there.any(axis=1)), np.flatnonzero(there.any(axis=0))
    if not len(rows):
        return []
    top, left = int(rows[0]), int(columns[0])
    box = np.ascontiguousarray(there[top : rows[-1] + 1, left : columns[-1] + 1])
    count, parts, boxes, _ = cv2.connectedComponentsWithStats(box.astype(np.uint8), connectivity=8)
    if count - 1 > MOST_REGIONS:
        return [(left, top, box)]
    found = []
    for part in range(1, count):
        x, y, width, height = (int(side) for side in boxes[part][:4])
        found.append((left + x, top + y, parts[y : y + height, x : x + width] == part))
    return found


def _regions(picture: Picture, ids: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    numbers = _numbers(picture)
    for number, name in sorted(picture.example.mask_classes.items()):
        if number == UNLABELLED:
            continue
        for left, top, region in _pieces(numbers, number):
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


def area_of(annotation: Mapping[str, Any]) -> float:
    """The area of a region, 0 where the file gives no number."""
    area = annotation.get("area")
    return float(area) if isinstance(area, int | float) and -1e18 < area < 1e18 else 0.0


def painted(shapes: Sequence[tuple[int, Any]], size: tuple[int, int]) -> Callable[[tuple[int, int]], bytes]:
    """The mask of regions in an image of `size`, later ones above."""

    def draw(_wanted: tuple[int, int]) -> bytes:
        numbers = np.full((size[1], size[0]), UNLABELLED, np.uint8)
        try:
            for number, shape in shapes:
                if isinstance(shape, dict):
                    counts = shape["counts"]
                    counts = rle.unpacked(counts) if isinstance(counts, str) else counts
                    height, width = shape["size"]
                    if (width, height) != size:
                        raise ValueError("a region is of another size")
                    numbers[rle.region_of(counts, size)] = number
                else:
                    for outline in shape:
                        points = np.asarray(outline, np.float64).reshape(-1, 2)
                        _fill(numbers, points, number)
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise UserError("One of its regions cannot be read: its outline or its run lengths are damaged.") from error
        return png_of(Image.fromarray(numbers))

    return draw


def _fill(numbers: Numbers, points: NDArray[np.float64], number: int) -> None:
    """Paint an outline, given in pixels from the corner of the image."""
    import cv2

    if not np.isfinite(points).all() or len(points) < 3 or np.abs(points).max() > 1e6:
        raise ValueError("this is no outline")
    # Pixels are squares: the middle of the first is at half a pixel. Four bits behind the point are what OpenCV takes.
    fixed = np.rint((points - 0.5) * 16).astype(np.int32)
    cv2.fillPoly(numbers, [fixed.reshape(-1, 1, 2)], int(number), shift=4)


def _outlines(picture: Picture, ids: Mapping[str, int]) -> Iterator[str]:
    """The lines of a picture: class, then x and y of each point as shares of width and height."""
    import cv2

    numbers, (width, height) = _numbers(picture), picture.size
    for number, name in sorted(picture.example.mask_classes.items()):
        if number == UNLABELLED:
            continue
        there = (numbers == number).astype(np.uint8)
        outlines, _ = cv2.findContours(there, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        for outline in outlines:
            points = outline.reshape(-1, 2).astype(np.float64) + 0.5
            if len(points) < 3:  # a dot or a line: the pixels themselves
                (left, top), (right, bottom) = points.min(axis=0) - 0.5, points.max(axis=0) + 0.5
                points = np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
            shares = points / (width, height)
            yield f"{ids[name]} " + " ".join(f"{share:.6g}" for share in shares.ravel())


def _yolo_names(files: Files, report: Report) -> list[str]:
    """The classes of data.yaml, by number."""
    import yaml

    table = next((name for name in files.names if name.endswith((".yaml", ".yml"))), "")
    try:
        names = yaml.safe_load(files.read(table, _SMALL_LISTS))["names"]
        numbered = names if isinstance(names, dict) else dict(enumerate(names))
        if sorted(numbered) != list(range(len(numbered))):
            raise ValueError("numbers are missing")
        return [str(numbered[number]) for number in range(len(numbered))]
    except (yaml.YAMLError, ValueError, KeyError, TypeError, UserError, RecursionError):
        report.refuse(table or DATA, "It does not list the classes as `names`: number them from 0.")
        return []


def _yolo_lines(
    files: Files, text: str, names: Sequence[str], report: Report
) -> tuple[str, list[tuple[int, NDArray[np.float64]]]]:
    """The label of an image, if one box covers it all, and its outlines. Raises UserError for a line that is none."""
    shapes: list[tuple[int, NDArray[np.float64]]] = []
    boxes: list[tuple[int, list[float]]] = []
    lines = files.read(text, _SMALL_LISTS * 10).decode("utf-8", "replace").splitlines()
    for place, line in enumerate(lines, start=1):
        parts = line.split()
        if not parts:
            continue
        try:
            number, values = int(parts[0]), [float(part) for part in parts[1:]]
        except ValueError as error:
            raise UserError(f"Line {place} is no class with numbers.") from error
        if not 0 <= number < len(names):
            raise UserError(f"Line {place} has the class {parts[0][:20]}, which {DATA} does not list.")
        if len(values) == 4:
            boxes.append((number, values))
        elif len(values) >= 6 and len(values) % 2 == 0 and all(-0.01 <= value <= 1.01 for value in values):
            shapes.append((number, np.asarray(values).reshape(-1, 2)))
        else:
            raise UserError(f"Line {place} is no outline: points are shares of width and height.")
    if len(boxes) == 1 and not shapes and boxes[0][1] == [0.5, 0.5, 1.0, 1.0]:
        return names[boxes[0][0]], []
    if boxes:
        report.changed(text, f"{len(boxes)} boxes without an outline were left out: a test set holds labels and masks.")
    return "", shapes


def _drawn(shapes: Sequence[tuple[int, NDArray[np.float64]]]) -> Callable[[tuple[int, int]], bytes]:
    """The mask of outlines in an image of the size that is asked for."""

    def draw(size: tuple[int, int]) -> bytes:
        numbers = np.full((size[1], size[0]), UNLABELLED, np.uint8)
        try:
            for number, points in shapes:
                _fill(numbers, points * size, number)
        except ValueError as error:
            raise UserError("One of its outlines cannot be drawn.") from error
        return png_of(Image.fromarray(numbers))

    return draw


def _whole_file(files: Files, name: str) -> Callable[[tuple[int, int]], bytes]:
    return lambda _size: files.read(name)
