"""Read untrusted pictures of a few formats, normalise or refuse them, and scale them to a size that a generator
accepts. The size in the header is checked before anything is decoded.
"""

from __future__ import annotations

import hashlib
import io
import math
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops, ImageCms, ImageOps, TiffImagePlugin, UnidentifiedImageError

from core.errors import UserError

MODES = ("L", "RGB", "RGBA")
"""Modes of stored images. PNG preserves each of them exactly."""

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
MIN_SIDE, MAX_SIDE = 16, 4096
MAX_PIXELS = 50_000_000
"""Maximum number of pixels. Larger images are refused before decoding. This many pixels take 150 MB."""
MAX_BYTES = 200_000_000
MAX_ASPECT = 4.0
"""Maximum ratio of long side to short side. Longer images would need too much memory in the generator."""
SIDE_MULTIPLE = 8
"""Both sides of a generated image are multiples of this number, the factor by which latents are smaller than images."""
EDITING_MULTIPLE, EDITING_MIN_SIDE, EDITING_PIXELS = 16, 64, 1024 * 1024
"""Limits of a picture for an image editor: a number that divides each side, the minimum side, and the maximum number of
pixels. diffusers scales and crops larger pictures."""
_MODE_OF_PROFILE = {"RGB ": "RGB", "GRAY": "L", "CMYK": "CMYK"}
"""Pillow's mode for the pixels that a colour profile describes, by the profile's colour space."""
_SAME_COLOUR = 2
"""Maximum colour change, 0 to 255, by a conversion to sRGB. If no change is larger, the profile counts as sRGB."""
_NO_PROFILE = (
    "The colour profile of the image is damaged or of another kind: it was ignored, so colours may look different."
)
_DAMAGED = "The image is damaged or cut short: save or download it again."
_OTHERS = {
    b"%PDF": "a PDF",
    b"<svg": "an SVG drawing",
    b"<?xml": "an XML file, perhaps an SVG drawing",
    b"<!DOCTYPE": "a web page",
    b"<html": "a web page",
    b"PK\x03\x04": "a ZIP archive",
}
_STARTS = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF")


@dataclass(frozen=True)
class Picture:
    """A normalised image, and one sentence for each change made to it."""

    image: Image.Image
    """The picture in RGB, upright, each side from `MIN_SIDE` to `MAX_SIDE` pixels, without metadata."""
    notes: tuple[str, ...] = ()


def read_image(source: str | Path | bytes) -> Picture:
    """Read a picture from a file or from a file's bytes. Raises UserError if it is not a usable picture."""
    data = source if isinstance(source, bytes) else _read(Path(source))
    header = opened(data)
    notes: list[str] = []
    try:
        image = _put_right(header, data, notes)
    except Exception as error:  # a decoder fed with a damaged file may raise anything
        raise UserError(_DAMAGED) from error
    if max(image.size) > MAX_SIDE:
        was = image.size
        image.thumbnail((MAX_SIDE, MAX_SIDE), Image.Resampling.LANCZOS)
        notes.append(f"The image was scaled down from {was[0]}x{was[1]} to {image.width}x{image.height} pixels.")
    clean = Image.new("RGB", image.size)
    clean.paste(image)  # copies the pixels only, so no metadata travels on
    return Picture(clean, tuple(notes))


def opened(data: bytes) -> Image.Image:
    """Open an image without decoding it, and check the size in its header. Raises UserError if it cannot be used."""
    if not data:
        raise UserError("The file is empty: choose another one.")
    if len(data) > MAX_BYTES:
        raise UserError(f"The file is larger than {MAX_BYTES // 1_000_000} MB: save it smaller.")
    try:
        header = Image.open(io.BytesIO(data), formats=FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(_too_large("")) from error
    except UnidentifiedImageError as error:
        if data.startswith(_STARTS):
            raise UserError(_DAMAGED) from error
        raise UserError(f"The file is {_guess(data)}; PNG, JPEG, WebP, GIF, BMP and TIFF can be read.") from error
    except Exception as error:  # a decoder may raise anything on a damaged header
        raise UserError(_DAMAGED) from error
    _judge_size(*header.size)
    return header


def png_of(image: Image.Image) -> bytes:
    """Return a PNG of the pixels alone, without text, profile or gamma. The same pixels give the same bytes."""
    pixels = image.copy()
    pixels.info = {}
    file = io.BytesIO()
    pixels.save(file, "PNG")
    return file.getvalue()


def orientation_of(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 to 8, or 1 (upright) if it is missing or invalid."""
    noted = image.getexif().get(0x0112)
    return noted if isinstance(noted, int) and 1 <= noted <= 8 else 1


def file_hash(file: Path) -> str:
    """Return the SHA-256 of a file. Raises OSError if the file cannot be read."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def known_file_hash(file: Path) -> str:
    """Return the SHA-256 of a file, cached until its size or time changes. Raises OSError if it cannot be read."""
    status = file.stat()
    return _known_hash(file.resolve(), status.st_size, status.st_mtime_ns)


@cache
def _known_hash(file: Path, _size: int, _changed: int) -> str:
    return file_hash(file)


def image_sha(image: Image.Image) -> str:
    """Return the SHA-256 of an image's size and RGB pixels. Files that show the same pixels have the same hash."""
    rgb = image.convert("RGB")
    return hashlib.sha256(f"{rgb.width}x{rgb.height}".encode() + rgb.tobytes()).hexdigest()


def fit(image: Image.Image, short_side: int, multiple: int = 8) -> Image.Image:
    """Return the image scaled for a generator: short side about `short_side`, both sides multiples of `multiple`. Only
    this rounding changes the aspect ratio, and `image.resize(source.size)` restores it exactly.
    """
    size = fitted_size(image.size, short_side, multiple)
    return image if size == image.size else image.resize(size, Image.Resampling.LANCZOS)


def fitted_size(size: tuple[int, int], short_side: int, multiple: int = 8) -> tuple[int, int]:
    """Return the (width, height) to which `fit` scales an image of `size`."""
    scale = short_side / min(size)
    width, height = (max(multiple, round(side * scale / multiple) * multiple) for side in size)
    return width, height


def editing_size(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """Return (width, height) for editing: short side about `short_side`, or less to stay within `EDITING_PIXELS`."""
    side = min(short_side, math.sqrt(EDITING_PIXELS * min(size) / max(size)))
    scale = side / min(size)
    # Rounded down to keep the limit. 1e-6 keeps a side that is a multiple already, in spite of float errors.
    width, height = (int(pixels * scale / EDITING_MULTIPLE + 1e-6) * EDITING_MULTIPLE for pixels in size)
    return max(EDITING_MIN_SIDE, width), max(EDITING_MIN_SIDE, height)


def _read(file: Path) -> bytes:
    try:
        if file.stat().st_size > MAX_BYTES:
            raise UserError(f"{file.name} is larger than {MAX_BYTES // 1_000_000} MB: save it smaller.")
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror or error}.") from error


def _guess(data: bytes) -> str:
    if data[4:8] == b"ftyp":
        brand = data[8:12].decode("latin-1")
        return {"avif": "an AVIF image", "heic": "a HEIC image", "mif1": "a HEIC image"}.get(brand, "a video")
    start = data[:200].lstrip().lower()
    return next((name for magic, name in _OTHERS.items() if start.startswith(magic.lower())), "not an image")


def _too_large(size: str) -> str:
    return f"The image is too large{size}: scale it down to at most {MAX_PIXELS // 1_000_000} million pixels."


def _judge_size(width: int, height: int) -> None:
    size = f"{width}x{height} pixels"
    if width * height > MAX_PIXELS:
        raise UserError(_too_large(f" ({size})"))
    if min(width, height) < MIN_SIDE:
        raise UserError(f"The image is too small ({size}): each side needs at least {MIN_SIDE} pixels.")
    if max(width, height) > MAX_ASPECT * min(width, height):
        raise UserError(f"The image is too long and narrow ({size}): crop it to at most {MAX_ASPECT:.0f} to 1.")


def _put_right(image: Image.Image, data: bytes, notes: list[str]) -> Image.Image:
    """Decode `image` to upright RGB, and append a note for each change to `notes`."""
    if image.format in ("GIF", "WEBP", "PNG", "TIFF") and getattr(image, "is_animated", False):
        state = "has several pages" if image.format == "TIFF" else "is animated"
        notes.append(f"The image {state}: the first {'page' if image.format == 'TIFF' else 'frame'} is used.")
        image.seek(0)
    if image.format == "JPEG":
        image.draft(None, (MAX_SIDE, MAX_SIDE))  # decodes huge images at a fraction of their size
    turned = orientation_of(image) != 1  # read before load(), which turns a TIFF
    deep = _has_16_bits(image, data)
    image.load()
    profiles = [image.info["icc_profile"]] if "icc_profile" in image.info else []
    if turned:
        notes.append("The image was turned upright, as its camera noted.")
        image = ImageOps.exif_transpose(image)
    if image.mode == "F" or image.mode.startswith("I"):
        image = _from_deep(image, notes)
    elif deep:
        notes.append("The image had 16 bits a channel: it was brought to 8.")
        if _brightest(image) < 16:
            notes.append("The image is nearly black, as if its values had 12 bits: save it with 8 bits a channel.")
    if image.mode == "CMYK":
        notes.append("The image was in print colours (CMYK): they were converted to RGB.")
    elif image.mode in ("LAB", "YCbCr", "HSV"):
        notes.append(f"The image was in {image.mode} colours: they were converted to RGB.")
        image, profiles = image.convert("RGB"), []
    clear = "transparency" in image.info or image.mode in ("RGBA", "LA", "PA", "La", "RGBa")
    if clear and image.mode != "LA":
        image = image.convert("RGBA")
    elif image.mode in ("1", "P"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    for profile in profiles:
        image = _in_srgb(image, profile, notes)
    return _on_white(image.convert("RGBA"), notes) if clear else image.convert("RGB")


def _has_16_bits(image: Image.Image, data: bytes) -> bool:
    """Return True for a PNG or TIFF with 16 bits per channel. Pillow keeps only the upper 8, except for grey images."""
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        bits = image.tag_v2.get(TiffImagePlugin.BITSPERSAMPLE)
        return bits == 16 or (isinstance(bits, tuple) and 16 in bits)
    return data[:8] == _STARTS[0] and data[24] == 16


def _brightest(image: Image.Image) -> int:
    channels = zip(image.getbands(), image.split(), strict=True)
    return max(int(np.asarray(channel).max()) for name, channel in channels if name != "A")


def _in_srgb(image: Image.Image, profile: object, notes: list[str]) -> Image.Image:
    """Convert an image from the colours of its profile to sRGB. If the profile is unusable, only add a note."""
    try:
        name, mode, conversion = _conversion(profile)
        kind = {"CMYK": "CMYK", "L": "L", "LA": "L"}.get(image.mode, "RGB")
        if mode != kind and (kind, mode) != ("L", "RGB"):  # an RGB profile also describes grey pixels
            raise ValueError("a profile of another kind")
        if conversion is None:
            return image
        converted = conversion.apply(image.convert(mode))
    except (ImageCms.PyCMSError, OSError, TypeError, ValueError, KeyError):
        notes.append(_NO_PROFILE)
        return image
    if image.mode != "CMYK":  # the note on CMYK reports the conversion already
        notes.append(f"The colours of the image were converted from “{name}” to sRGB.")
    if "A" in image.getbands():
        converted.putalpha(image.getchannel("A"))
    return converted


@lru_cache(maxsize=16)
def _conversion(profile: object) -> tuple[str, str, ImageCms.ImageCmsTransform | None]:
    """Return a profile's name, its mode, and its conversion to sRGB (None if the profile is sRGB itself)."""
    if not isinstance(profile, bytes):
        raise TypeError("no profile")
    source, target = ImageCms.ImageCmsProfile(io.BytesIO(profile)), ImageCms.createProfile("sRGB")
    mode = _MODE_OF_PROFILE[source.profile.xcolor_space]
    intent = ImageCms.Intent.PERCEPTUAL if mode == "CMYK" else ImageCms.Intent.RELATIVE_COLORIMETRIC
    conversion = ImageCms.buildTransform(source, target, mode, "RGB", intent)
    words = "".join(letter for letter in ImageCms.getProfileDescription(source) if letter.isprintable())
    name = " ".join(words.split())[:60] or "a profile without a name"
    steps = np.arange(0, 256, 15, dtype=np.uint8)
    colours = np.stack(np.meshgrid(steps, steps, steps), -1).reshape(1, -1, 3)
    probe = Image.fromarray(colours if mode == "RGB" else np.repeat(colours[..., :1], 3, -1))
    if mode == "CMYK":  # a CMYK profile is never the same as sRGB
        return name, mode, conversion
    difference = ImageChops.difference(conversion.apply(probe.convert(mode)), probe)
    return name, mode, None if _brightest(difference) <= _SAME_COLOUR else conversion


def _from_deep(image: Image.Image, notes: list[str]) -> Image.Image:
    """Convert grey images of 16 or more bits to 8 bits. In images of more than 16 bits, the darkest value becomes 0 and
    the brightest 255. Sensors of 12 bits store unscaled values in files of 16 bits. So an image of 16 bits whose values
    fit in 12 or 8 bits is read with that many bits.
    """
    values = np.asarray(image).astype(np.float64)
    if image.mode != "F" and values.min() >= 0 and values.max() <= 65535:
        bits = next(bits for bits in (8, 12, 16) if values.max() < 1 << bits)
        used = "" if bits == 16 else f" and no value above {values.max():.0f}, so its values were read as {bits} bits"
        notes.append(f"The image had 16 bits a channel{used}: it was brought to 8.")
        grey = values * (255.0 / ((1 << bits) - 1))
    else:
        notes.append("The image had more than 16 bits a channel: its darkest value became black, its brightest white.")
        values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        low, high = float(values.min()), float(values.max())
        grey = (values - low) * (255.0 / ((high - low) or 1.0))
    return Image.fromarray(np.rint(grey).astype(np.uint8))


def _on_white(image: Image.Image, notes: list[str]) -> Image.Image:
    low, _ = image.getchannel("A").getextrema()
    if low < 255:  # type: ignore[operator]
        notes.append("The image had transparent parts: they became white.")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    return Image.alpha_composite(white, image).convert("RGB")


@dataclass(frozen=True)
class StoredImage:
    """Metadata of an image file in the database."""

    sha: str
    width: int
    height: int
    mode: str
    bytes: int
