"""Tests for uploaded masks: a fitting mask gets the source's size without new classes, and others are refused by
reason.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.masks import OVERLAY_ALPHA, classes_text, colour, numbers_in, overlay, parse_classes, read_mask, resized

CLASSES = {0: "sky", 1: "road", 7: "vehicle"}
SIZE = (40, 24)


def numbers(size: tuple[int, int] = SIZE, values: tuple[int, ...] = (0, 1, 7)) -> Image.Image:
    """Return a mask with vertical stripes of these class numbers."""
    grid = np.zeros((size[1], size[0]), np.uint8)
    for place, value in enumerate(values):
        grid[:, place * size[0] // len(values) :] = value
    return Image.fromarray(grid)


def encoded(image: Image.Image, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, form)
    return file.getvalue()


def palette(image: Image.Image) -> Image.Image:
    new = image.copy()
    new.putpalette([9, 9, 9, 200, 0, 0] * 128)
    return new


@pytest.mark.parametrize(
    "image",
    [
        numbers(),
        palette(numbers()),
        numbers().convert("RGB"),
        Image.merge("LA", (numbers(), Image.new("L", SIZE, 255))),
        Image.fromarray(np.asarray(numbers()).astype(np.uint16)),
    ],
    ids=["grey", "palette", "grey as RGB", "grey and opaque", "16 bits"],
)
def test_class_numbers_come_out_as_they_are(image: Image.Image) -> None:
    mask = read_mask(encoded(image), SIZE, CLASSES)
    assert mask.image.mode == "L" and mask.notes == ()
    assert mask.image.tobytes() == numbers().tobytes()
    assert mask.classes == CLASSES


def test_a_black_and_white_mask_is_of_two_classes() -> None:
    image = Image.new("1", SIZE)
    image.putpixel((3, 3), 1)
    assert numbers_in(read_mask(encoded(image), SIZE, {0: "rest", 1: "road"}).image) == (0, 1)


def test_the_same_proportions_are_scaled_without_new_classes() -> None:
    mask = read_mask(encoded(numbers((400, 240))), SIZE, CLASSES)
    assert mask.image.size == SIZE and numbers_in(mask.image) == (0, 1, 7)
    assert mask.notes == ("The mask was brought from 400x240 to the 40x24 pixels of the source image.",)
    larger = resized(mask.image, (400, 240))
    assert larger.size == (400, 240) and numbers_in(larger) == (0, 1, 7)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (encoded(numbers((24, 40))), "The mask has 24x40 pixels and the source image 40x24"),
        (encoded(numbers(values=(0, 3, 9))), "class numbers without a name: 3, 9. Add them"),
        (encoded(numbers(values=(0, 4))), "a class number without a name: 4. Add it to the classes, such as “4 road”"),
        (encoded(Image.effect_noise(SIZE, 90)), " and "),
        (encoded(Image.new("RGB", SIZE, (255, 0, 0))), "The mask is in colours"),
        (encoded(Image.new("RGBA", SIZE, (1, 1, 1, 0))), "The mask is in colours"),
        (encoded(Image.fromarray(np.full((24, 40), 900, np.uint16))), "class numbers up to 900"),
        (encoded(numbers(), "JPEG"), "cannot be a JPEG file"),
        (encoded(numbers((400, 240)))[:80], "damaged or cut short"),
        (b"", "empty"),
        (b"<html>", "a web page"),
    ],
)
def test_what_does_not_fit_is_named_in_a_sentence(data: bytes, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_mask(data, SIZE, CLASSES)


def test_pixels_of_no_class_need_no_name_and_stay_clear() -> None:
    mask = read_mask(encoded(numbers(values=(0, 1, 255))), SIZE, CLASSES).image
    shown = overlay(mask)
    assert (shown.mode, shown.size) == ("RGBA", SIZE)
    assert shown.getpixel((0, 0)) == (*colour(0), OVERLAY_ALPHA)
    assert shown.getpixel((39, 0))[3] == 0  # type: ignore[index]


def test_a_class_of_the_number_255_gets_another_one() -> None:
    black_and_white = encoded(numbers(values=(0, 255)))
    mask = read_mask(black_and_white, SIZE, {0: "background", 255: "polyp"})
    assert numbers_in(mask.image) == (0, 1) and mask.classes == {0: "background", 1: "polyp"}
    assert mask.image.getpixel((39, 0)) == 1
    assert mask.notes == ("Its class “polyp” has the number 1 here, as 255 stands for no class.",)
    both = read_mask(encoded(numbers(values=(0, 1, 255))), SIZE, {0: "sky", 1: "road", 255: "road"})
    assert numbers_in(both.image) == (0, 1) and both.classes == {0: "sky", 1: "road"}, "two numbers of one class"
    void = read_mask(encoded(numbers(values=(0, 1, 255))), SIZE, {**CLASSES, 255: "Void"})
    assert numbers_in(void.image) == (0, 1, 255) and void.classes == CLASSES and void.notes == ()


def test_a_mask_of_0_and_255_says_that_255_is_no_class() -> None:
    mask = read_mask(encoded(numbers(values=(0, 255))), SIZE, {0: "background"})
    assert numbers_in(mask.image) == (0, 255) and "255 was taken as no class" in mask.notes[0]
    assert read_mask(encoded(numbers(values=(0, 1, 255))), SIZE, CLASSES).notes == ()


def test_classes_as_text_and_back() -> None:
    assert parse_classes("0 sky, 1: road\n7=a  big vehicle;") == {0: "sky", 1: "road", 7: "a big vehicle"}
    assert parse_classes(" \n") == {}
    assert parse_classes(classes_text(CLASSES)) == CLASSES
    assert parse_classes("3 <b>bold</b>") == {3: "<b>bold</b>"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sky", "“sky” is no class"),
        ("0 sky, 300 road", "number 300"),
        ("0 sky, 0 road", "“sky” and “road” have the same number 0: correct one."),
        ("1", "is no class"),
        ("1road", "is no class"),
        (f"1 {'x' * 61}", "too long"),
    ],
)
def test_classes_that_cannot_be_read_are_quoted(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse_classes(text)


def test_every_number_has_a_colour_of_its_own() -> None:
    assert len({colour(number) for number in range(256)}) > 200
    assert all(0 <= channel <= 255 for number in range(256) for channel in colour(number))
