"""Pictures as an annotator gets them: pixels encoded anew, nothing else in the file, no name that tells anything."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Callable

from PIL import Image

MEDIA_TYPE = "image/png"
MAX_HELD = 96 * 2**20
"""Bytes of encoded pictures that are kept: several annotators get the same ones within minutes."""


class Pictures:
    """Encodes stored images and keeps the latest. `load` gives a stored image by its hash. For any thread."""

    def __init__(self, load: Callable[[str], Image.Image], held: int = MAX_HELD) -> None:
        self._load, self._most = load, held
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def png(self, sha: str) -> bytes:
        """A file with these very pixels. Raises UserError where the image is missing or damaged."""
        with self._lock:
            if sha in self._kept:
                self._kept.move_to_end(sha)
                return self._kept[sha]
        data = encoded(self._load(sha))  # unlocked: two that ask at once may both encode, and none waits for another
        with self._lock:
            if sha not in self._kept and len(data) <= self._most:
                self._kept[sha] = data
                self._size += len(data)
                while self._size > self._most:
                    _, dropped = self._kept.popitem(last=False)
                    self._size -= len(dropped)
        return data


def encoded(image: Image.Image) -> bytes:
    """The pixels as PNG: header, pixels and end, not one chunk more."""
    pixels = image.copy()
    pixels.info = {}
    file = io.BytesIO()
    pixels.save(file, "PNG")
    return file.getvalue()
