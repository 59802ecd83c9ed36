"""Folders of classes, as torchvision's ImageFolder reads them, and plain folders with masks."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from core.errors import UserError
from formats.common import (
    MASK_ENDINGS,
    MASK_FOLDERS,
    is_mask,
    is_sheet,
    pair_of_files,
    read_bytes,
    read_classes,
    read_mask_file,
    require_each,
    split_in,
    splits_of,
)
from formats.draft import Draft
from formats.files import Files, is_image
from formats.naming import SPLIT_OF, folder_names, split_folder
from formats.pages import CLASSES, Kept
from formats.types import Example, Found, Report

if TYPE_CHECKING:
    pass

_PICTURES = ("images", "image", "img", "imgs", "leftimg8bit", "data")
"""Folders that say nothing of a label."""


def write_torchvision(draft: Draft, examples: Sequence[Example]) -> Kept:
    """torchvision ImageFolder: SPLIT/LABEL/NAME.png; masks lie in a tree of their own.

    Raises UserError without labels.
    """
    require_each(
        examples, [example for example in examples if not example.label], "label", "ImageFolder of torchvision"
    )
    folders = folder_names(example.label for example in examples)
    details = ("labels", "splits", *(["classes of masks"] if draft.classes["masks"] is not None else []))

    def named(example: Example) -> tuple[str, str | None]:
        place = f"{split_folder(example.split)}/{folders[example.label]}"
        return pair_of_files(example, place, f"masks/{place}")

    for picture in draft.pictures(examples, named):
        draft.record(picture, *named(picture.example), details)
    draft.classes["folders"] = {folder: label for label, folder in folders.items()}
    first = split_folder(splits_of(examples)[0])
    return Kept(
        f'from torchvision.datasets import ImageFolder\n\nimages = ImageFolder("SET/{first}")',
        (
            ("SPLIT/LABEL/", "the images of a label"),
            *([("masks/SPLIT/LABEL/", "a class number a pixel, of the image of the same name")] if draft.masks else []),
        ),
        images="*/*/*.png",
        masks="masks/*/*/*.png" if draft.masks else "",
        notes=(
            "`ImageFolder` numbers the labels that a split has: compare by `images.classes`, not by number.",
            f"A folder stands for the label that `folders` of `{CLASSES}` gives.",
        ),
    )


def find_plain(files: Files, report: Report) -> Iterator[Found]:
    """Images with their folder as label, a folder called as a split as split, and masks beside them or in a tree of
    their own: ImageFolder of torchvision, and what people have.
    """
    labels = _folder_labels(files, report)
    classes = _Classes(files.names, labels)
    listed = read_classes(files, report)
    pictures = [name for name in files.names if is_image(name) and not is_sheet(name)]
    masks: dict[tuple[str, str], str] = {}
    images: list[str] = []
    for name in pictures:
        if is_mask(name) and not classes.hold(name):
            masks[_mask_key(name)] = name
        else:
            images.append(name)
    if not images and masks:
        images, masks = sorted(masks.values()), {}
    taken = set()
    top = images[0].split("/")[0] if images else ""
    one_folder = all(name.startswith(f"{top}/") for name in images)
    for name in images:
        key = _image_key(name)
        mask = masks.get(key) or masks.get(("", key[1]))
        if mask is not None:
            taken.add(mask)
        said = _label_of(name, classes, one_folder)
        label = labels.get(said, said)
        yield Found(
            name,
            posixpath.splitext(posixpath.basename(name))[0],
            read_bytes(files, name),
            label,
            split_in(posixpath.dirname(name)),
            read_mask_file(files, mask) if mask else None,
            listed,
        )
    for name in sorted(set(masks.values()) - taken):
        report.refuse(name, "It is a mask of no image here: give both the same name.")
    for name in files.names:
        if not is_image(name) and posixpath.splitext(name)[1].lower() not in (".json", ".jsonl", ".md", ".txt", ".csv"):
            report.refuse(name, "It is no image: PNG, JPEG, WebP, GIF, BMP and TIFF are taken.")


def _split_at(folders: Sequence[str]) -> int | None:
    """The place of the first folder that names a split."""
    return next((at for at, part in enumerate(folders) if part.lower() in SPLIT_OF), None)


class _Classes:
    """Which folders directly below a split are labels, though they are called as folders of images or masks are.

    A class list of an export says it. Else such a folder is a label where labels of other names lie beside it, unless
    it holds the masks of images beside it, or the images that these masks are of.
    """

    def __init__(self, names: Sequence[str], labels: Mapping[str, str]) -> None:
        below: dict[str, set[tuple[str, str]]] = {}
        for name in names:
            before, folder = self._place(name)
            if folder and is_image(name):
                below.setdefault(folder, set()).add((before, _mask_key(name)[1]))
        if labels:
            self._words = {folder.lower() for folder in labels}
            return
        masks = {folder for folder in below if folder in MASK_FOLDERS}
        plain = below.keys() - masks - set(_PICTURES)
        beside = {folder: set().union(*(below[other] for other in below if other != folder)) for folder in masks}
        paired = {folder for folder in masks if 2 * len(below[folder] & beside[folder]) >= len(below[folder])}
        self._words = set(plain)
        if plain:
            self._words |= masks - paired
            self._words |= set() if paired else below.keys() & set(_PICTURES)

    def hold(self, name: str) -> bool:
        """Whether a file lies directly in the folder of a label, and that directly below a split."""
        return self._place(name)[1] in self._words

    @staticmethod
    def _place(name: str) -> tuple[str, str]:
        """Where the split lies, and the folder below it, in lower case, that holds the file itself; "" for none."""
        folders = name.split("/")[:-1]
        at = _split_at(folders)
        if at is None or len(folders) != at + 2 or any(part.lower() in MASK_FOLDERS for part in folders[:at]):
            return "", ""
        if posixpath.splitext(name)[0].endswith(MASK_ENDINGS):
            return "", ""
        return "/".join(folders[: at + 1]), folders[-1].lower()


def _label_of(name: str, classes: _Classes, one_folder: bool) -> str:
    """The folder that is the label of an image; "" for none. `one_folder`: all images lie in one, which is the set."""
    folders = name.split("/")[:-1]
    if classes.hold(name):
        return folders[-1]
    said = [at for at, part in enumerate(folders) if at != _split_at(folders) and part.lower() not in _PICTURES]
    if one_folder and said[:1] == [0]:
        said = said[1:]
    return folders[said[-1]] if said else ""


def _mask_key(name: str) -> tuple[str, str]:
    """Folder and stem of the image that a mask is of."""
    stem = posixpath.splitext(posixpath.basename(name))[0]
    for ending in MASK_ENDINGS:
        stem = stem.removesuffix(ending)
    return _plain_folder(name), stem


def _image_key(name: str) -> tuple[str, str]:
    return _plain_folder(name), posixpath.splitext(posixpath.basename(name))[0]


def _plain_folder(name: str) -> str:
    parts = [part for part in name.split("/")[:-1] if part.lower() not in (*MASK_FOLDERS, *_PICTURES)]
    return "/".join(parts)


def _folder_labels(files: Files, report: Report) -> dict[str, str]:
    """The labels that an export's folders stand for."""
    if CLASSES not in files.names:
        return {}
    try:
        held = json.loads(files.read(CLASSES, 10_000_000))
        return {str(folder): str(label) for folder, label in held.get("folders", {}).items()}
    except (ValueError, AttributeError, UserError, RecursionError):
        report.refuse(CLASSES, "It is no list of classes: labels are taken from the names of folders.")
        return {}
