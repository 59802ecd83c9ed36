"""Texts in PNG files: they are written and read back, the pixel data stays, and hostile files are refused in a
sentence.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable

import pytest
from PIL import Image

from core.errors import UserError
from core.png import LARGEST_TEXT, SIGNATURE, XMP_KEYWORD, read_texts, with_texts


def picture() -> bytes:
    file = io.BytesIO()
    Image.linear_gradient("L").resize((64, 48)).convert("RGB").save(file, "PNG")
    return file.getvalue()


def chunk(kind: bytes, body: bytes, crc: int | None = None) -> bytes:
    crc = zlib.crc32(kind + body) if crc is None else crc
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", crc)


def inserted(data: bytes, *chunks: bytes) -> bytes:
    """Return the PNG with `chunks` inserted after its header."""
    end = len(SIGNATURE) + 25
    return data[:end] + b"".join(chunks) + data[end:]


TEXTS = {
    "parameters": "a bird\nNegative prompt: blur\nSteps: 4",
    "names": "<script>alert('ä')</script> 鳥 😀",
    "long": "0123456789" * 3000,
    "long and odd": "鳥" * 9000,
    XMP_KEYWORD: "<x/>",
    "empty": "",
}


def test_texts_come_back_and_everything_else_stays_byte_for_byte() -> None:
    data = picture()
    with_all = with_texts(data, TEXTS)
    assert read_texts(with_all, list(TEXTS)) == TEXTS
    assert read_texts(with_all, ["parameters"]) == {"parameters": TEXTS["parameters"]}
    assert with_texts(with_all, dict.fromkeys(TEXTS, "x")).count(b"iTXt") == 1
    pixels = data[len(SIGNATURE) + 25 :]
    assert with_all.endswith(pixels) and with_all.startswith(data[: -len(pixels)])


def test_other_programs_read_the_same() -> None:
    image = Image.open(io.BytesIO(with_texts(picture(), TEXTS)))
    assert {name: image.text[name] for name in TEXTS} == TEXTS  # type: ignore[attr-defined]
    assert image.tobytes() == Image.open(io.BytesIO(picture())).tobytes()


def test_a_text_takes_the_place_of_the_one_before() -> None:
    first = with_texts(picture(), {"a": "one", "b": "two"})
    second = with_texts(first, {"a": "three"})
    assert read_texts(second, ["a", "b"]) == {"a": "three", "b": "two"}
    assert len(second) == len(first) + 2


def test_texts_of_other_programs_are_read_in_every_form() -> None:
    packed = zlib.compress("zwölf".encode("latin-1"))
    data = inserted(
        picture(),
        chunk(b"tEXt", b"plain\0zw\xf6lf"),
        chunk(b"zTXt", b"packed\0\0" + packed),
        chunk(b"iTXt", b"wide\0\0\0de\0breit\0" + "鳥".encode()),
        chunk(b"tEXt", b"plain\0again"),
    )
    assert read_texts(data, ["plain", "packed", "wide"]) == {"plain": "zwölf", "packed": "zwölf", "wide": "鳥"}


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff\xe0JFIF", b"tEXt", SIGNATURE, SIGNATURE + b"\xff" * 40])
def test_what_is_no_png_has_no_texts(data: bytes) -> None:
    assert read_texts(data, ["a"]) == {}
    with pytest.raises(ValueError, match="no complete PNG"):
        with_texts(data, {"a": "b"})


def test_a_cut_file_has_the_texts_up_to_the_cut() -> None:
    data = with_texts(picture(), {"a": "b"})
    assert read_texts(data[:-30], ["a"]) == {"a": "b"}
    with pytest.raises(ValueError, match="no complete PNG"):
        with_texts(data[:-30], {"a": "c"})


def bomb(size: int) -> bytes:
    """Return `size` bytes of zeros, compressed."""
    packer = zlib.compressobj(9)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(size >> 20)), packer.flush()])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        (lambda: chunk(b"zTXt", b"a\0\0" + bomb(1 << 28)), "larger than 8 MB"),
        (lambda: chunk(b"iTXt", b"a\0\1\0\0\0" + bomb(1 << 25)), "larger than 8 MB"),
        (lambda: chunk(b"tEXt", b"a\0" + b"x" * (LARGEST_TEXT + 1)), "larger than 8 MB"),
        (lambda: chunk(b"zTXt", b"a\0\0" + zlib.compress(b"x" * 999)[:-8]), "damaged"),
        (lambda: chunk(b"zTXt", b"a\0\0nothing packed"), "damaged"),
        (lambda: chunk(b"zTXt", b"a\0"), "damaged"),
        (lambda: chunk(b"iTXt", b"a\0"), "damaged"),
        (lambda: chunk(b"iTXt", b"a\0\0\0\0\0\xff\xfe"), "damaged"),
        (lambda: chunk(b"tEXt", b"a\0text", crc=7), "damaged"),
    ],
)
def test_hostile_texts_end_in_one_sentence_and_only_when_they_are_asked_for(
    hostile: Callable[[], bytes], said: str
) -> None:
    data = inserted(picture(), hostile())
    with pytest.raises(UserError, match=said) as told:
        read_texts(data, ["a"])
    assert str(told.value).count(".") <= 1
    assert read_texts(data, ["b"]) == {}


@pytest.mark.parametrize("keyword", ["", "x" * 80, "a\0b", "鳥"])
def test_a_keyword_that_png_does_not_allow_is_a_mistake_of_ours(keyword: str) -> None:
    with pytest.raises(ValueError):
        with_texts(picture(), {keyword: "x"})
    with pytest.raises(ValueError, match="too long"):
        with_texts(picture(), {"a": "x" * (LARGEST_TEXT + 1)})
