"""Small files of data sets: pictures that all differ, masks, tables and archives."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIDE = 16
"""Width and height in pixels: the smallest picture that the studio accepts."""
_numbers = count()


def picture() -> Image.Image:
    """Return a new picture of soft noise."""
    noise = np.random.default_rng(next(_numbers)).integers(0, 256, (4, 4, 3), np.uint8)
    return Image.fromarray(noise).resize((SIDE, SIDE), Image.Resampling.BICUBIC)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """Return the image as a file of the given format."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def png() -> bytes:
    """Return a new picture as PNG."""
    return encoded(picture())


def jpeg() -> bytes:
    """Return a new picture as JPEG."""
    return encoded(picture(), "JPEG", quality=92)


def mask(inside: int = 1, outside: int = 0) -> bytes:
    """Return a PNG mask with `inside` in a square of 36 pixels, and `outside` around it."""
    numbers = np.full((SIDE, SIDE), outside, np.uint8)
    numbers[4:10, 4:10] = inside
    return encoded(Image.fromarray(numbers))


def write(folder: Path, files: Mapping[str, bytes | str]) -> Path:
    """Write files into a folder by their relative paths. Return the folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return folder


def tar_file(files: Mapping[str, bytes | str]) -> bytes:
    """Return an uncompressed tar of files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            content = data if isinstance(data, bytes) else data.encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def write_zip(path: Path, files: Mapping[str, bytes | str], marked: bool = True) -> None:
    """Write a zip. Without `marked`, its UTF-8 names are not flagged as UTF-8, like those of some macOS tools."""
    stand_ins = {name: name if marked else chr(ord("A") + at) * len(name.encode()) for at, name in enumerate(files)}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(stand_ins[name], data)
    packed = path.read_bytes()
    for name, stand_in in stand_ins.items():
        packed = packed.replace(stand_in.encode(), name.encode())
    path.write_bytes(packed)
