"""Cityscapes' folders: leftImg8bit and gtFine."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from core.errors import UserError
from core.images import png_of
from core.masks import UNLABELLED
from formats.common import (
    read_bytes,
    read_classes,
    read_mask_file,
    require_each,
    split_in,
    splits_of,
)
from formats.draft import Draft, Picture
from formats.files import Files, is_image
from formats.naming import split_folder
from formats.pages import CLASSES, Kept
from formats.types import Example, Found, Report

if TYPE_CHECKING:
    pass


def write_cityscapes(draft: Draft, examples: Sequence[Example]) -> Kept:
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
    return Kept(
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


def find_cityscapes(files: Files, report: Report) -> Iterator[Found]:
    """The images of leftImg8bit with the masks of gtFine."""
    masks = {_stem_of_mask(name): name for name in files.names if name.endswith("_gtFine_labelIds.png")}
    listed = read_classes(files, report)
    for name in files.names:
        if not is_image(name) or "leftImg8bit/" not in f"/{name}":
            continue
        stem = posixpath.splitext(posixpath.basename(name))[0].removesuffix("_leftImg8bit")
        split = split_in(posixpath.dirname(name))
        mask = masks.get((posixpath.basename(posixpath.dirname(name)), stem))
        if mask is None:
            report.refuse(name, "It has no mask in gtFine: add one, or import the images as a plain folder.")
            continue
        yield Found(name, stem, read_bytes(files, name), "", split, read_mask_file(files, mask), listed)


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


def _stem_of_mask(name: str) -> tuple[str, str]:
    return posixpath.basename(posixpath.dirname(name)), posixpath.basename(name).removesuffix("_gtFine_labelIds.png")
