"""Pictures as an annotator gets them: pixels and nothing else in the file, no name that tells anything.

What is stored was encoded from bare pixels by the storage, so its chunks are passed on, those of pixels only: encoding
a picture of 512 pixels anew takes a tenth of a second, and a hundred annotators ask for twenty-five in each.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections import OrderedDict
from collections.abc import Callable

from PIL import Image

from pipeline.png import bare

MEDIA_TYPE = "image/png"
MAX_HELD = 96 * 2**20
"""Bytes of encoded pictures that are kept: several annotators get the same ones within minutes."""


class Pictures:
    """Gives stored images and keeps the latest. For any thread.

    `load` gives a stored image by its hash, and `read`, where there is one, the bytes of its file.
    """

    def __init__(
        self,
        load: Callable[[str], Image.Image],
        held: int = MAX_HELD,
        read: Callable[[str], bytes] | None = None,
    ) -> None:
        self._load, self._most, self._read = load, held, read
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def png(self, sha: str) -> bytes:
        """A file with these very pixels. Raises UserError where the image is missing or damaged."""
        with self._lock:
            if sha in self._kept:
                self._kept.move_to_end(sha)
                return self._kept[sha]
        data = self._made(sha)  # unlocked: two that ask at once may both do it, and none waits for another
        with self._lock:
            if sha not in self._kept and len(data) <= self._most:
                self._kept[sha] = data
                self._size += len(data)
                while self._size > self._most:
                    _, dropped = self._kept.popitem(last=False)
                    self._size -= len(dropped)
        return data

    def _made(self, sha: str) -> bytes:
        if self._read is not None:
            data = self._read(sha)
            pixels = bare(data) if hashlib.sha256(data).hexdigest() == sha else None
            if pixels is not None:
                return pixels
        return encoded(self._load(sha))


def encoded(image: Image.Image) -> bytes:
    """The pixels as PNG: header, pixels and end, not one chunk more."""
    pixels = image.copy()
    pixels.info = {}
    file = io.BytesIO()
    pixels.save(file, "PNG")
    return file.getvalue()
