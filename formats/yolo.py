"""YOLO: images/, labels/ with outlines or boxes as text, and data.yaml with the classes."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.images import png_of
from core.masks import UNLABELLED
from formats.common import (
    pair_of_files,
    read_bytes,
    read_classes,
    split_in,
    splits_of,
)
from formats.draft import Draft, Picture
from formats.files import Files, is_image
from formats.naming import split_folder
from formats.pages import RECORDS, Kept
from formats.regions import class_names, fill_outline, mask_numbers
from formats.types import Example, Found, Report

if TYPE_CHECKING:
    pass

DATA = "data.yaml"
_SMALL_LISTS = 1_000_000
"""Bytes of a file of outlines."""


def write_yolo(draft: Draft, examples: Sequence[Example]) -> Kept:
    """YOLO: images/SPLIT/NAME.png, labels/SPLIT/NAME.txt with outlines, exact masks in masks/SPLIT/, data.yaml."""
    import yaml

    names = class_names(examples)
    ids = {name: number for number, name in enumerate(names)}

    def named(example: Example) -> tuple[str, str | None]:
        split = split_folder(example.split, "val")
        return pair_of_files(example, f"images/{split}", f"masks/{split}")

    for picture in draft.pictures(examples, named):
        example = picture.example
        if picture.mask is not None:
            lines = list(_outlines(picture, ids))
        else:
            lines = [f"{ids[example.label]} 0.5 0.5 1 1"] if example.label else []
        text = "".join(f"{line}\n" for line in lines)
        draft.put(f"labels/{split_folder(example.split, 'val')}/{example.name}.txt", text.encode())
        # An outline is of a class, and not of the image; data.yaml knows three splits.
        details = [
            "classes of masks",
            *(["labels"] if picture.mask is None else []),
            *(["splits"] if example.split else []),
        ]
        draft.record(picture, *named(example), details)
    there = [split_folder(split, "val") for split in splits_of(examples)]
    # Its readers want both of them: what is there stands for what is not.
    places = {name: f"images/{name if name in there else there[0]}" for name in ("train", "val")}
    places |= {"test": "images/test"} if "test" in there else {}
    # In quotes, since readers differ in what they take for a number, a date or a truth value.
    quoted = (yaml.safe_dump(name, allow_unicode=True, default_style='"', width=10_000) for name in names)
    lines = ["names:", *(f"  {number}: {name.rstrip()}" for number, name in enumerate(quoted))]
    draft.put(DATA, "\n".join([*(f"{name}: {place}" for name, place in places.items()), *lines, ""]).encode())
    return Kept(
        'from ultralytics import YOLO\n\nfigures = YOLO("yolo11n-seg.pt").val(data="SET/data.yaml")',
        (
            ("images/SPLIT/", "the images"),
            ("labels/SPLIT/", "a text an image: a line an outline, the class first; a box for an image without mask"),
            *([("masks/SPLIT/", "the exact masks: a class number a pixel")] if draft.masks else []),
            (DATA, "the classes, and where the images are"),
        ),
        images="images/*/*.png",
        masks="masks/*/*.png" if draft.masks else "",
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


def _outlines(picture: Picture, ids: Mapping[str, int]) -> Iterator[str]:
    """The lines of a picture: class, then x and y of each point as shares of width and height."""
    import cv2

    numbers, (width, height) = mask_numbers(picture), picture.size
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
                fill_outline(numbers, points * size, number)
        except ValueError as error:
            raise UserError("One of its outlines cannot be drawn.") from error
        return png_of(Image.fromarray(numbers))

    return draw


def _whole_file(files: Files, name: str) -> Callable[[tuple[int, int]], bytes]:
    return lambda _size: files.read(name)
