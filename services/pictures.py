"""The pictures of a workspace by hash, for pages."""

from __future__ import annotations

from functools import lru_cache

from core.errors import UserError
from core.images import png_of
from core.masks import overlay
from storage.workspace import Workspace


class StoredPictures:
    """Images, coloured masks, and thumbnails. All methods may be called from any thread and raise UserError."""

    def __init__(self, workspace: Workspace) -> None:
        self._images = workspace.images
        self.png = workspace.images.read
        """Returns an image as PNG."""
        self.thumbnail = workspace.thumbnails.webp
        """Returns a thumbnail as WebP, made if missing."""
        self.ready_thumbnail = workspace.thumbnails.ready
        """Returns a thumbnail if it exists."""
        self.mask_colours = lru_cache(maxsize=32)(self._mask_colours)
        """Returns a mask as PNG, its classes in colours."""

    def _mask_colours(self, sha: str) -> bytes:
        mask = self._images.load(sha)
        if mask.mode != "L":
            raise UserError("This image is no mask.")
        return png_of(overlay(mask))
