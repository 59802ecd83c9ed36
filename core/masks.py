"""Masks: images of mode L whose values are class numbers, with a name for each number. This module reads untrusted
masks, resizes masks, and draws masks over images. Resizing never mixes class numbers: it takes the nearest pixel.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from PIL import Image

from core.data_files import DataTable
from core.errors import UserError
from core.images import opened
from core.types import Task
from core.words import classes_in, few_names

MASK_KEPT = "mask kept"

LARGE_PIECE = 0.01
"""Minimum size of a large piece of the mask, as a share of the image. People see changes to a large piece at once."""

UNLABELLED = 255
"""Value of pixels without a class, as data sets use it. A mask's class names need no name for this value."""
_NO_CLASS = frozenset(("unlabelled", "unlabeled", "void", "ignore", "ignored", "no class", "none", "unknown"))
"""Names, in lower case, that say that the number 255 means "no class"."""
BACKGROUND = frozenset(("background", "bg", "rest", "other", "others", "nothing"))
"""Names, in lower case, that say that the number 0 is background. Then 255 is likely to be a class."""
ASPECT_TOLERANCE = 0.01
"""Maximum relative difference between the aspect ratios of mask and source. It allows for a pixel lost to rounding."""
LONGEST_NAME = 60
OVERLAY_ALPHA = 150
"""Opacity (0 to 255) of the mask over the image. Classes can be told apart, and the image stays visible."""
_UNCLEAR = (
    "Its pixels are 0 or 255, and 255 was taken as no class: if it is one, name it, such as “0 background, 255 polyp”."
)
THE_CLASSES = "the classes"
_COLOURS = DataTable(__file__, tuple[int, int, int], "colours")
"""Colours of the first class numbers, taken from the classes of the drawn world. All masks use these colours."""
InMask = Mapping[str, bool]
"""Protected classes of a mask, by name: True if the class has pixels, False if the mask only has a number for it."""
NO_MASK: InMask = MappingProxyType({})


@dataclass(frozen=True)
class NamedMask:
    """The class of each pixel of the source image."""

    image: Image.Image
    """The mask in mode L: a class number at every pixel."""
    classes: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Mask(NamedMask):
    """A mask that has the size of its source image, with a sentence for each change made to fit it."""

    notes: tuple[str, ...] = ()


def renumbered(mask: Image.Image, numbers: Mapping[int, int]) -> Image.Image:
    """Replace class numbers by those in `numbers`. Class numbers that `numbers` lacks become UNLABELLED."""
    table = np.full(256, UNLABELLED, np.uint8)
    table[list(numbers)] = list(numbers.values())
    return Image.fromarray(table[np.asarray(mask)])


def read_mask(data: bytes, size: tuple[int, int], classes: Mapping[int, str], place: str = THE_CLASSES) -> Mask:
    """Read the mask of a source image of `size` (width, height) from a file's bytes. A class with the number 255 gets
    another number. Raises UserError if the file is no image of class numbers, has another aspect ratio than the source,
    or has numbers that `classes` does not name; then the message says in which `place` to add names.
    """
    image = _numbers(data)
    notes = []
    if image.size != size:
        found, needed = f"{image.width}x{image.height}", f"{size[0]}x{size[1]}"
        if abs(image.width * size[1] / (image.height * size[0]) - 1) > ASPECT_TOLERANCE:
            raise UserError(
                f"The mask has {found} pixels and the source image {needed}: give a mask of the same size, or at least "
                "of the same proportions."
            )
        notes.append(f"The mask was brought from {found} to the {needed} pixels of the source image.")
        image = resized(image, size)
    mask = with_own_numbers(image, classes, place)
    return Mask(mask.image, mask.classes, (*notes, *mask.notes))


def with_own_numbers(image: Image.Image, classes: Mapping[int, str], place: str = THE_CLASSES) -> Mask:
    """Return the mask with another number for class 255, since 255 means “no class” here. A note reports the change. If
    the mask has only background (0) and an unnamed 255, a note says so. Raises UserError if another number has no name.
    """
    named, own_name = numbered_classes(classes), classes.get(UNLABELLED, "")
    number = next((number for number, name in named.items() if name == own_name), None)
    if number is None:
        require_names(image, named, place)
        unclear = not own_name and named.get(0, "").casefold() in BACKGROUND and numbers_in(image) == (0, UNLABELLED)
        return Mask(image, named, (_UNCLEAR,) if unclear else ())
    pixels = np.array(image)
    pixels[pixels == UNLABELLED] = number
    image = Image.fromarray(pixels)
    require_names(image, named, place)
    return Mask(image, named, (f"Its class “{own_name}” has the number {number} here, as 255 stands for no class.",))


def numbered_classes(classes: Mapping[int, str]) -> dict[int, str]:
    """Give class 255 another number, or drop the class if it means no class. Raises UserError if no number is free."""
    named = {number: name for number, name in classes.items() if number != UNLABELLED}
    own_name = classes.get(UNLABELLED, "")
    if own_name and own_name.casefold() not in _NO_CLASS:
        free = next(
            (number for number in (*named, *range(UNLABELLED)) if named.get(number, own_name) == own_name), None
        )
        if free is None:
            raise UserError("There are more than 255 classes: leave out classes that the mask does not contain.")
        named[free] = own_name
    return named


def resized(mask: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Return the mask at another size (width, height). No new class numbers appear."""
    return mask if mask.size == size else mask.resize(size, Image.Resampling.NEAREST)


def numbers_in(mask: Image.Image) -> tuple[int, ...]:
    """Return the class numbers in a mask, ascending."""
    return tuple(int(number) for number in np.unique(np.asarray(mask)))


def numbers_of(protected: str, classes: Mapping[int, str] | Sequence[str]) -> tuple[int, ...]:
    """Return the class numbers with the name of a protected class, else with a related name (vehicle for car)."""
    named = tuple(classes.items() if isinstance(classes, Mapping) else enumerate(classes))
    same = tuple(number for number, name in named if name.casefold() == protected.casefold())
    task = Task("segmentation", protected=(protected,))
    return same or tuple(number for number, name in named if classes_in(name, task))


def in_mask(mask: NamedMask | None, task: Task) -> InMask:
    """Map each protected class with a number in the mask to True if a pixel has that number."""
    if mask is None:
        return NO_MASK
    present, known = set(numbers_in(mask.image)), {name: numbers_of(name, mask.classes) for name in task.protected}
    return {name: not present.isdisjoint(numbers) for name, numbers in known.items() if numbers}


def require_names(mask: Image.Image, classes: Mapping[int, str], place: str = THE_CLASSES) -> None:
    """Raise UserError if class numbers of the mask lack a name. The message says in which `place` to add names."""
    unknown = [number for number in numbers_in(mask) if number not in classes and number != UNLABELLED]
    if not unknown:
        return
    one, shown = len(unknown) == 1, few_names([str(number) for number in unknown], 6)
    raise UserError(
        f"The mask has {'a class number' if one else 'class numbers'} without a name: {shown}. "
        f"Add {'it' if one else 'them'} to {place}, such as “{unknown[0]} road”."
    )


def parse_classes(text: str) -> dict[int, str]:
    """Parse classes from text such as "0 sky, 1 road": numbers 0 to 255 and names, separated by commas, semicolons or
    line breaks. Raises UserError, quoting the wrong piece, if a number is missing, too large or repeated.
    """
    classes: dict[int, str] = {}
    for piece in filter(None, (part.strip() for part in re.split(r"[,;\n]", text))):
        match = re.fullmatch(r"([0-9]{1,4})(?:\s*[:=]\s*|\s+)(\S.*)", piece)
        if match is None:
            raise UserError(f"“{piece[:80]}” is no class: write its number and its name, such as “1 road”.")
        number, name = int(match[1]), " ".join(match[2].split())
        if number > 255:
            raise UserError(f"The class “{name[:LONGEST_NAME]}” has the number {number}: numbers go from 0 to 255.")
        if len(name) > LONGEST_NAME:
            raise UserError(f"The name of class {number} is too long: at most {LONGEST_NAME} characters are allowed.")
        if number in classes:
            raise UserError(f"“{classes[number]}” and “{name}” have the same number {number}: correct one.")
        classes[number] = name
    return classes


def classes_text(classes: Mapping[int, str]) -> str:
    """Write classes as text. Inverse of `parse_classes`."""
    return ", ".join(f"{number} {name}" for number, name in sorted(classes.items()))


def colour(number: int) -> tuple[int, int, int]:
    """Return the fixed colour of a class number: RGB, 0 to 255 each."""
    if number < len(_COLOURS):
        return tuple(_COLOURS.values())[number]
    hue = (number * 0.618034) % 1.0  # the golden angle keeps neighbours apart
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.75 if number % 2 else 0.5, 0.95 if number % 3 else 0.7)
    return round(red * 255), round(green * 255), round(blue * 255)


def overlay(mask: Image.Image) -> Image.Image:
    """Return the mask in colours to lay over its image: RGBA, the mask's size, transparent where it has no class."""
    table = np.zeros((256, 4), np.uint8)
    for number in range(256):
        table[number] = (*colour(number), 0 if number == UNLABELLED else OVERLAY_ALPHA)
    return Image.fromarray(table[np.asarray(mask, np.uint8)])


def _numbers(data: bytes) -> Image.Image:
    image = opened(data)
    if image.format in ("JPEG", "WEBP", "GIF"):
        raise UserError(f"A mask cannot be a {image.format} file, which mixes neighbouring classes: save it as PNG.")
    mode = image.mode  # read before load(), which may turn palette numbers into colours
    try:
        image.load()
    except Exception as error:  # a decoder fed with a damaged file may raise anything
        raise UserError("The mask is damaged or cut short: save or download it again.") from error
    if mode in ("L", "P"):
        return Image.fromarray(np.asarray(image, np.uint8))
    if mode == "1":
        return Image.fromarray(np.asarray(image).astype(np.uint8))
    values = np.asarray(image)
    if mode.startswith("I"):
        if values.min() >= 0 and values.max() <= 255:
            return Image.fromarray(values.astype(np.uint8))
        raise UserError(f"The mask has class numbers up to {values.max()}: numbers go from 0 to 255.")
    if mode in ("RGB", "RGBA", "LA"):
        channels = values[..., :3] if mode != "LA" else values[..., :1]
        opaque = mode == "RGB" or bool((values[..., -1] == 255).all())
        if opaque and (channels == channels[..., :1]).all():
            return Image.fromarray(np.ascontiguousarray(channels[..., 0]))
    raise UserError("The mask is in colours: give one whose pixel values are class numbers, as a grey or palette PNG.")
