"""YOLO: a text file for each image, with boxes or outlines, and a list of the classes.

The text files are in `labels/` if the images are in `images/`, else beside the images.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from core.errors import UserError
from core.masks import UNLABELLED
from formats.common import is_sheet, pair_of_files, read_classes, split_in, splits_of
from formats.draft import Draft, Picture
from formats.files import Files, is_image, lines_in
from formats.naming import split_folder
from formats.pages import RECORDS, Description, description_of
from formats.regions import class_names, mask_numbers, painted
from formats.source import Source, Tally, mask_opener, opener, stem_of
from formats.types import Example, Found, Report

DATA = "data.yaml"
_SMALL_LISTS = 1_000_000
"""Maximum size in bytes of a class list. Text files with outlines may be ten times as large."""
_LISTS = ("classes.txt", "obj.names", "classes.names", "_darknet.labels")
"""Names of files that list one class on each line, as LabelImg, CVAT and Darknet write them."""
_SAMPLE = 20
"""Number of text files to inspect to recognise YOLO."""


def write_yolo(draft: Draft, examples: Sequence[Example]) -> Description:
    """Write a test set as YOLO: images/SPLIT/, outlines in labels/SPLIT/, exact masks in masks/SPLIT/, data.yaml."""
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
        # Outlines have classes but the image has none, and data.yaml knows only three splits.
        missing = {"labels": picture.mask is not None, "splits": not example.split}
        details = [detail for detail in ("classes of masks", "labels", "splits") if not missing.get(detail)]
        draft.record(picture, *named(example), details)
    split_folders = [split_folder(split, "val") for split in splits_of(examples)]
    # Readers of YOLO need both train and val, so an existing split replaces a missing one.
    places = {name: f"images/{name if name in split_folders else split_folders[0]}" for name in ("train", "val")}
    places |= {"test": "images/test"} if "test" in split_folders else {}
    # Quoted, as readers differ in which texts they take for a number, a date or a truth value.
    quoted = (yaml.safe_dump(name, allow_unicode=True, default_style='"', width=10_000) for name in names)
    lines = ["names:", *(f"  {number}: {name.rstrip()}" for number, name in enumerate(quoted))]
    draft.put(DATA, "\n".join([*(f"{name}: {place}" for name, place in places.items()), *lines, ""]).encode())
    return description_of("yolo", masks=draft.masks)


def _outlines(picture: Picture, ids: Mapping[str, int]) -> Iterator[str]:
    """Yield a line for each region: class number, then x and y of each point as shares of width and height."""
    import cv2

    numbers, (width, height) = mask_numbers(picture), picture.size
    for number, name in sorted(picture.example.mask_classes.items()):
        if number == UNLABELLED:
            continue
        in_class = (numbers == number).astype(np.uint8)
        outlines, _ = cv2.findContours(in_class, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
        for outline in outlines:
            points = outline.reshape(-1, 2).astype(np.float64) + 0.5
            if len(points) < 3:  # the outline is a dot or a line, so use the pixels' corners
                (left, top), (right, bottom) = points.min(axis=0) - 0.5, points.max(axis=0) + 0.5
                points = np.array([[left, top], [right, top], [right, bottom], [left, bottom]])
            shares = points / (width, height)
            yield f"{ids[name]} " + " ".join(f"{share:.6g}" for share in shares.ravel())


class YoloSource(Source):
    """Reads images with outlines and boxes from text files, or with exact masks if there is a folder masks/."""

    def prepare(self) -> None:
        self._there = frozenset(self.files.names)
        self._lower = {name.lower(): name for name in self.files.names}
        self.names = _class_names_of(self.files, self.report)
        self._listed = read_classes(self.files, Report())

    @classmethod
    def explained(cls, files: Files) -> int:
        if not any(name.lower().endswith(".txt") for name in files.names):
            return 0
        source = cls(files, Report(), {})
        texts = [text for name in source.images() if (text := source.text_of(name)) is not None]
        sample = texts[:_SAMPLE]
        return len(texts) if 2 * sum(map(source.reads, sample)) >= len(sample) else 0

    def count(self) -> int:
        return sum(1 for _ in self.images())

    def find(self, split: str | None = None) -> Iterator[Found]:
        tally = Tally(self.report)
        for name in self.images():
            found = self._found(name, tally)
            if split is None or found.split == split:
                yield found
        tally.tell()

    def images(self) -> Iterator[str]:
        """Yield the paths of the images. If a folder `images` has labels, yield only its files."""
        images = [name for name in self.files.names if is_image(name) and not is_sheet(name)]
        inside = [name for name in images if "images" in name.lower().split("/")[:-1]]
        labelled = any("labels" in name.lower().split("/")[:-1] for name in self.files.names if name.endswith(".txt"))
        return iter(inside if inside and labelled else images)

    def text_of(self, name: str) -> str | None:
        """Return the path of an image's text file; None without one."""
        candidates = (self._sibling(name, "labels", ".txt"), posixpath.splitext(name)[0] + ".txt")
        return next((self._lower[each.lower()] for each in candidates if each and each.lower() in self._lower), None)

    def reads(self, text: str) -> bool:
        """Return True if a text file has boxes or outlines whose class numbers are known."""
        try:
            label, shapes = self._lines(text, Tally(Report()))
        except UserError:
            return False
        return bool(label or shapes or self.files.read(text).strip())

    @staticmethod
    def _sibling(name: str, folder: str, ending: str) -> str | None:
        parts = name.split("/")
        at = next((at for at in range(len(parts) - 2, -1, -1) if parts[at].lower() == "images"), None)
        if at is None:
            return None
        return posixpath.splitext("/".join([*parts[:at], folder, *parts[at + 1 :]]))[0] + ending

    def _found(self, name: str, tally: Tally) -> Found:
        text, exact = self.text_of(name), self._sibling(name, "masks", ".png")
        found = Found(
            name, stem_of(name), opener(self.files, name), "", split_in(posixpath.dirname(name)), classes=self.names
        )
        try:
            label, shapes = self._lines(text, tally) if text is not None else ("", [])
        except UserError as error:
            return replace(found, problem=f"{error} The image of this name was left out.", where=text or name)
        if exact in self._there and exact and (RECORDS in self._there or self._listed is not None):
            return replace(found, label=label, mask=mask_opener(self.files, exact), classes=self._listed)
        return replace(found, label=label, mask=painted(shapes) if shapes else None)

    def _lines(self, text: str, tally: Tally) -> tuple[str, list[tuple[int, list[list[float]]]]]:
        """Return the label of a box over the whole image (else ""), and all outlines. Raises UserError if malformed."""
        shapes: list[tuple[int, list[list[float]]]] = []
        boxes: list[tuple[int, list[float]]] = []
        for place, line in enumerate(lines_in(self.files, text, _SMALL_LISTS * 10), 1):
            parts = line.split()
            if not parts:
                continue
            try:
                number, values = int(parts[0]), [float(part) for part in parts[1:]]
            except ValueError as error:
                raise UserError(f"Line {place} does not hold a class number followed by numbers.") from error
            if number not in self.names:
                raise UserError(f"Line {place} has the class {parts[0][:20]}, which {DATA} does not list.")
            if len(values) == 4:
                boxes.append((number, values))
            elif len(values) >= 6 and len(values) % 2 == 0 and all(-0.01 <= value <= 1.01 for value in values):
                shapes.append((number, [values]))
            else:
                raise UserError(f"Line {place} is no outline: points must be shares of width and height, 0 to 1.")
        if len(boxes) == 1 and not shapes and boxes[0][1] == [0.5, 0.5, 1.0, 1.0]:
            return self.names[boxes[0][0]], []
        if boxes:
            left_out = f"{len(boxes)} boxes without an outline were left out"
            tally.note(text, f"{left_out}: a test set holds labels and masks.")
        return "", shapes


def claims(files: Files) -> bool:
    """Return True if there is a list of classes, and an image has a text file. The text file may be unreadable."""
    source = YoloSource(files, Report(), {})
    return bool(source.names) and any(source.text_of(name) for name in source.images())


def _class_names_of(files: Files, report: Report) -> dict[int, str]:
    """Return class names by number, from data.yaml (all values as text) or a file with one class per line."""
    import yaml

    named = [name for name in files.names if name.endswith((".yaml", ".yml"))]
    tables = sorted(named, key=lambda name: (name.count("/"), name))
    for table in tables:
        try:
            names = yaml.load(files.read(table, _SMALL_LISTS), yaml.BaseLoader)["names"]  # reads all values as text
            numbered = names if isinstance(names, dict) else dict(enumerate(names)) if isinstance(names, list) else {}
            if numbered and all(isinstance(name, str) for name in numbered.values()):
                return {int(number): name for number, name in numbered.items()}
        except (yaml.YAMLError, ValueError, KeyError, TypeError, UserError, RecursionError):
            continue
    for name in files.names:
        if posixpath.basename(name) in _LISTS:
            return dict(enumerate(line.strip() for line in lines_in(files, name, _SMALL_LISTS) if line.strip()))
    report.refuse(tables[0] if tables else DATA, "It does not list the classes as `names`: number them from 0.")
    return {}
