"""The pictures of a workspace, found by their SHA-256, for pages."""

from __future__ import annotations

from functools import lru_cache

from core.errors import UserError
from core.images import png_of
from core.masks import overlay
from storage.workspace import Workspace


class StoredPictures:
    """Returns image files, coloured masks and thumbnails. Methods may be called from any thread and raise UserError."""

    def __init__(self, workspace: Workspace) -> None:
        self._images = workspace.images
        self.png = workspace.images.read
        self.thumbnail = workspace.thumbnails.webp
        """Returns the WebP file of a thumbnail, after making it if it is missing."""
        self.ready_thumbnail = workspace.thumbnails.ready
        """Returns the WebP file of a thumbnail, or b"" if it does not exist."""
        self.mask_colours = lru_cache(maxsize=32)(self._mask_colours)
        """Returns a mask as a PNG file in which each class has a colour."""

    def _mask_colours(self, sha: str) -> bytes:
        mask = self._images.load(sha)
        if mask.mode != "L":
            raise UserError("This image is not a mask: choose a mask.")
        return png_of(overlay(mask))
