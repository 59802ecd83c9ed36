"""Tests for uploaded pictures: they are corrected with a note, or refused in one sentence."""

from __future__ import annotations

import contextlib
import io
import resource
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from core.errors import UserError
from core.images import MAX_SIDE, fit, image_sha, read_image
from tests.support.colour_profiles import ADOBE, P3, SRGB, in_colours_of


def scene(width: int = 64, height: int = 48) -> Image.Image:
    """Return a picture that shows its orientation: red left, green right, a blue stripe on top."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, : width // 2, 0] = 200
    pixels[:, width // 2 :, 1] = 180
    pixels[: height // 4] = (20, 40, 220)
    return Image.fromarray(pixels)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def difference(a: Image.Image, b: Image.Image) -> float:
    return float(np.abs(np.asarray(a, float) - np.asarray(b, float)).mean())


def png(width: int, height: int, body: bytes = b"") -> bytes:
    """Return an 8-bit grey PNG that claims this size. `body` may hold fewer pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(body)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_plain_formats_come_through_without_a_word(kind: str) -> None:
    picture = read_image(saved(scene(), kind, **({"quality": 95} if kind in ("JPEG", "WEBP") else {})))
    assert picture.image.mode == "RGB" and picture.image.size == (64, 48)
    assert picture.notes == ()
    assert difference(picture.image, scene()) < 8


def test_path_and_text_path(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    scene().save(file)
    assert difference(read_image(file).image, read_image(str(file)).image) == 0


def test_metadata_does_not_travel_on() -> None:
    from PIL.PngImagePlugin import PngInfo

    text = PngInfo()
    text.add_text("prompt", "secret")
    assert read_image(saved(scene(), "PNG", pnginfo=text)).image.info == {}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"this is a text file, honest", "not an image"),
        (b"%PDF-1.7 ...", "a PDF"),
        (b"  <svg xmlns='http://www.w3.org/2000/svg'></svg>", "SVG"),
        (b"\0\0\0\x18ftypheic" + bytes(40), "HEIC"),
        (png(1, 1, b"\0\0"), "too small (1x1"),
        (png(200, 8, bytes(201 * 8)), "too small"),
        (png(20_000, 20_000), "too large"),
        (png(2_000_000_000, 2_000_000_000), "too large"),
        (png(8000, 7000), "too large (8000x7000"),
        (png(400, 50, bytes(401 * 50)), "long and narrow"),
    ],
)
def test_refused_in_one_sentence(data: bytes, said: str) -> None:
    with pytest.raises(UserError, match=said.replace("(", r"\(")) as caught:
        read_image(data)
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message and len(message) < 160


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_truncated_is_refused(kind: str, share: float) -> None:
    rng = np.random.default_rng(0)
    data = saved(Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)), kind)
    with pytest.raises(UserError, match=r"damaged or cut short|not an image"):
        read_image(data[: max(3, int(len(data) * share))])


def test_random_damage_never_escapes_as_another_error() -> None:
    rng = np.random.default_rng(1)
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"):
        whole = saved(scene(), kind)
        for _ in range(30):
            data = bytearray(whole)
            for at in rng.integers(0, len(data), 8):
                data[at] = rng.integers(256)
            with contextlib.suppress(UserError):
                read_image(bytes(data))


def test_a_bomb_is_refused_without_being_decoded() -> None:
    bomb = png(20_000, 20_000, bytes(20_001 * 200))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="too large"):
        read_image(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 40_000  # kB


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.png", tmp_path):
        with pytest.raises(UserError, match="cannot be read"):
            read_image(path)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animated_image_the_first_frame_is_taken(kind: str) -> None:
    later = [ImageOps.mirror(scene()), ImageOps.flip(scene())]
    options = {"lossless": True} if kind == "WEBP" else {}
    picture = read_image(saved(scene(), kind, save_all=True, append_images=later, **options))
    assert difference(picture.image, scene()) < 8
    assert len(picture.notes) == 1 and "first" in picture.notes[0]


def test_cmyk_becomes_rgb() -> None:
    picture = read_image(saved(scene().convert("CMYK"), "JPEG", quality=95))
    assert "CMYK" in picture.notes[0]
    assert difference(picture.image, scene()) < 12


COLOURS = Image.fromarray(np.random.default_rng(1).integers(60, 200, (6, 8, 3), dtype=np.uint8)).resize((64, 48), 0)
"""Picture whose colours sRGB and the wider profiles can all show."""


@pytest.mark.parametrize("profile", [P3, ADOBE])
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "TIFF"])
def test_colours_of_a_profile_become_those_that_a_person_sees(kind: str, profile: bytes) -> None:
    options: dict[str, dict[str, object]] = {"JPEG": {"quality": 98, "subsampling": 0}, "WEBP": {"lossless": True}}
    image = in_colours_of(profile, COLOURS)
    picture = read_image(saved(image, kind, icc_profile=profile, **options.get(kind, {})))
    assert difference(picture.image, COLOURS) < 1
    name = "P3" if profile == P3 else "Adobe RGB"
    assert picture.notes == (f"The colours of the image were converted from “like {name}” to sRGB.",)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "L", "P", "1"])
def test_a_profile_is_applied_in_every_mode(mode: str) -> None:
    image = in_colours_of(P3, COLOURS).convert(mode)
    if mode.endswith("A"):
        image.putalpha(Image.fromarray(np.repeat(np.array([[0] * 32 + [255] * 32], np.uint8), 48, axis=0)))
    picture = read_image(saved(image, "PNG", icc_profile=P3))
    shown = read_image(saved(image.convert("RGB"), "PNG", icc_profile=P3)).image
    if mode.endswith("A"):
        shown.paste((255, 255, 255), (0, 0, 32, 48))
        assert picture.notes[1] == "The image had transparent parts: they became white."
    assert difference(picture.image, shown) == 0 and "from “like P3” to sRGB" in picture.notes[0]


def test_pixels_stay_where_a_profile_changes_nothing() -> None:
    plain = read_image(saved(COLOURS, "PNG"))
    held = read_image(saved(COLOURS, "PNG", icc_profile=SRGB))
    assert image_sha(held.image) == image_sha(plain.image) and held.notes == ()
    assert difference(plain.image, COLOURS) == 0


@pytest.mark.parametrize(
    ("kind", "mode", "profile"),
    [
        ("PNG", "RGB", b"no profile"),
        ("PNG", "RGB", P3[:200]),
        ("PNG", "RGB", P3.replace(b"RGB XYZ ", b"CMYKXYZ ")),
        ("JPEG", "RGB", P3[:100] + bytes(len(P3) - 100)),
        ("JPEG", "CMYK", P3),
    ],
)
def test_a_profile_that_cannot_be_used_is_told_and_ignored(kind: str, mode: str, profile: bytes) -> None:
    picture = read_image(saved(COLOURS.convert(mode), kind, icc_profile=profile))
    without = read_image(saved(COLOURS.convert(mode), kind))
    assert image_sha(picture.image) == image_sha(without.image)
    told = (
        "The colour profile of the image is damaged or of another kind: it was ignored, so colours may look different."
    )
    assert picture.notes == (*without.notes, told)


def test_a_damaged_profile_never_escapes_as_an_error() -> None:
    rng = np.random.default_rng(3)
    for _ in range(60):
        profile = bytearray(P3)
        for at in rng.integers(0, len(profile), 6):
            profile[at] = rng.integers(256)
        assert read_image(saved(COLOURS, "PNG", icc_profile=bytes(profile))).image.size == COLOURS.size


@pytest.mark.parametrize(("times", "bits"), [(1, 8), (16, 12), (257, 16)])
@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_grey_of_few_bits_in_sixteen_can_be_seen(kind: str, times: int, bits: int) -> None:
    grey = COLOURS.convert("L")
    picture = read_image(saved(Image.fromarray(np.asarray(grey).astype(np.uint16) * times), kind))
    assert difference(picture.image, grey.convert("RGB")) < 1
    told = f"no value above {int(np.asarray(grey).max()) * times}, so its values were read as {bits} bits"
    assert len(picture.notes) == 1 and "it was brought to 8." in picture.notes[0]
    assert (told in picture.notes[0]) == (bits < 16)


def test_colours_of_few_bits_in_sixteen_are_told() -> None:
    import cv2

    ok, data = cv2.imencode(".png", np.asarray(scene()).astype(np.uint16)[:, :, ::-1] * 16)
    assert ok
    assert "nearly black, as if its values had 12 bits" in read_image(data.tobytes()).notes[1]


def test_lab_colours_are_converted_and_said() -> None:
    from PIL import ImageCms

    lab = ImageCms.profileToProfile(
        COLOURS, ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), outputMode="LAB"
    )
    assert lab is not None
    picture = read_image(saved(lab, "TIFF"))
    assert difference(picture.image, COLOURS) < 2 and picture.notes[0].startswith("The image was in LAB colours")


def test_sixteen_bits_are_scaled() -> None:
    ramp = np.repeat(np.linspace(0, 65535, 64).astype(np.uint16)[None], 48, axis=0)
    for kind in ("PNG", "TIFF"):
        picture = read_image(saved(Image.fromarray(ramp), kind))
        got = np.asarray(picture.image)[0, :, 0].astype(int)
        assert got[0] == 0 and got[-1] == 255 and abs(got[32] - 130) <= 1
        assert "16 bits" in picture.notes[0]


def test_sixteen_bit_colour_is_scaled_and_said() -> None:
    import cv2

    wide = np.asarray(scene()).astype(np.uint16) * 257
    ok, data = cv2.imencode(".png", wide[:, :, ::-1])
    assert ok
    picture = read_image(data.tobytes())
    assert difference(picture.image, scene()) < 1 and "16 bits" in picture.notes[0]


def test_transparency_becomes_white() -> None:
    clear = scene().convert("RGBA")
    clear.putalpha(Image.fromarray(np.repeat(np.array([[0] * 32 + [255] * 32], np.uint8), 48, axis=0)))
    palette = scene().quantize(8)
    holed = saved(palette, "PNG", transparency=palette.getpixel((2, 40)))
    for data in (saved(clear, "PNG"), saved(clear, "WEBP", lossless=True), holed):
        picture = read_image(data)
        assert picture.image.getpixel((2, 40)) == (255, 255, 255)
        assert picture.image.getpixel((60, 40)) == pytest.approx((0, 180, 0), abs=6)
        assert picture.notes == ("The image had transparent parts: they became white.",)


def test_opaque_alpha_is_not_worth_a_word() -> None:
    assert read_image(saved(scene().convert("RGBA"), "PNG")).notes == ()


@pytest.mark.parametrize("orientation", range(2, 9))
def test_exif_orientation_is_turned_upright(orientation: int) -> None:
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}[orientation]
    stored = scene().transpose(Image.Transpose(undo))
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture = read_image(saved(stored, "JPEG", quality=97, exif=exif))
    assert picture.image.size == (64, 48)
    assert difference(picture.image, scene()) < 8
    assert "upright" in picture.notes[0]


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA"])
def test_other_modes_become_rgb(mode: str) -> None:
    assert read_image(saved(scene().convert(mode), "PNG")).image.mode == "RGB"


def test_large_but_sane_is_scaled_down() -> None:
    picture = read_image(saved(scene(4300, 2150), "BMP"))
    assert picture.image.size == (MAX_SIDE, 2048)
    assert "4300x2150" in picture.notes[0] and "4096x2048" in picture.notes[0]


@pytest.mark.parametrize(
    ("size", "short", "expected"),
    [
        ((128, 128), 128, (128, 128)),
        ((400, 300), 512, (680, 512)),
        ((300, 400), 128, (128, 168)),
        ((1000, 250), 128, (512, 128)),
        ((17, 16), 128, (136, 128)),
    ],
)
def test_fit_keeps_the_aspect_within_a_multiple(size: tuple[int, int], short: int, expected: tuple[int, int]) -> None:
    fitted = fit(scene(*size), short, 8)
    assert fitted.size == expected
    assert fitted.resize(size).size == size
