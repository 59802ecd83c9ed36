"""Pictures of images that are still being drawn: held in memory for a moment, each under a name nobody can guess."""

from __future__ import annotations

import io
import secrets
import threading
from collections import OrderedDict

from PIL import Image

KEPT = 8
"""So many of the latest are held: a page may ask for one a moment after the next one came."""


class Previews:
    """May be used from any thread."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, image: Image.Image) -> str:
        """Hold an RGB image; gives its name."""
        file, name = io.BytesIO(), secrets.token_urlsafe(18)
        image.save(file, "PNG", compress_level=1)
        with self._lock:
            self._held[name] = file.getvalue()
            while len(self._held) > KEPT:
                self._held.popitem(last=False)
        return name

    def png(self, name: str) -> bytes | None:
        """The bytes of one; None when there is none of this name, or no more."""
        with self._lock:
            return self._held.get(name)
