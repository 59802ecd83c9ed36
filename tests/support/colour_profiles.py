"""Small colour profiles (ICC, version 2) like those of telephones and cameras, and pictures in their colours."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence

from PIL import Image, ImageCms

_WHITE = (0.9642, 1.0, 0.8249)


def _xyz(values: Sequence[float]) -> bytes:
    return b"XYZ \0\0\0\0" + b"".join(struct.pack(">i", round(value * 65536)) for value in values)


def profile_of(name: str, *primaries: Sequence[float]) -> bytes:
    """Return a profile with these primaries (red, green, blue in XYZ) and a gamma of 2.2."""
    title = name.encode()
    described = b"desc\0\0\0\0" + struct.pack(">I", len(title) + 1) + title + bytes(79)
    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(2.2 * 256)) + bytes(2)
    tags = [(b"desc", described + bytes(-len(described) % 4)), (b"cprt", b"text\0\0\0\0none\0\0\0\0")]
    tags += [(b"wtpt", _xyz(_WHITE))]
    for letter, primary in zip((b"r", b"g", b"b"), primaries, strict=True):
        tags += [(letter + b"XYZ", _xyz(primary)), (letter + b"TRC", curve)]
    start = 128 + 4 + 12 * len(tags)
    table, body = struct.pack(">I", len(tags)), b""
    for tag, data in tags:
        table += tag + struct.pack(">II", start + len(body), len(data))
        body += data
    kind = (b"lcms", 0x02400000, b"mntr", b"RGB ", b"XYZ ")
    head = struct.pack(">I4sI4s4s4s", start + len(body), *kind) + bytes(12) + b"acsp" + bytes(28)
    return head + _xyz(_WHITE)[8:] + bytes(48) + table + body


P3 = profile_of("like P3", (0.51512, 0.2412, -0.00105), (0.29198, 0.69225, 0.04189), (0.1571, 0.06657, 0.78407))
ADOBE = profile_of(
    "like Adobe RGB", (0.60974, 0.31111, 0.01947), (0.20528, 0.62567, 0.06087), (0.14919, 0.06322, 0.74457)
)
SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def in_colours_of(profile: bytes, image: Image.Image) -> Image.Image:
    """Return an image whose pixels, in this profile, have the colours that `image` has in sRGB."""
    target = ImageCms.ImageCmsProfile(io.BytesIO(profile))
    converted = ImageCms.profileToProfile(image, ImageCms.createProfile("sRGB"), target, outputMode="RGB")
    assert converted is not None
    return converted
