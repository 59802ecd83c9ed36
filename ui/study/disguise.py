"""Makes a source image look like a generated one of itself, for control items that are shown beside their source.

Two equal pictures would tell an annotator at once that the answer is known. Only light and colour change, everywhere by
as much: what the picture shows, and where, stays.
"""

from __future__ import annotations

import random
import threading

from PIL import Image, ImageEnhance

from storage.workspace import Workspace

LIGHT = (0.72, 0.88)
"""Brightness, as a share of the source's."""
COLOUR = (0.55, 0.85)
"""Saturation, as a share of the source's."""


class Disguises:
    """The images of one workspace and their disguises. May be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._made: dict[str, str] = {}
        self._lock = threading.Lock()

    def __call__(self, sha: str) -> str:
        """The hash of the disguise of an image; the same whenever it is asked for. Raises UserError for no image."""
        with self._lock:
            if sha not in self._made:
                self._made[sha] = self._workspace.add_image(disguised(self._workspace.image(sha), sha))
            return self._made[sha]


def disguised(image: Image.Image, seed: str) -> Image.Image:
    """An RGB image of the same size, darker and paler, by amounts drawn with `seed`."""
    drawn = random.Random(f"disguise\0{seed}")
    darker = ImageEnhance.Brightness(image.convert("RGB")).enhance(drawn.uniform(*LIGHT))
    return ImageEnhance.Color(darker).enhance(drawn.uniform(*COLOUR))
