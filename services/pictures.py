"""The pictures of a workspace by their hashes, as pages show them."""

from __future__ import annotations

from functools import lru_cache

from core.errors import UserError
from core.images import png_of
from core.masks import overlay
from storage.workspace import Workspace


class StoredPictures:
    """Images, masks in colours, and thumbnails. All methods may be called from any thread and raise UserError."""

    def __init__(self, workspace: Workspace) -> None:
        self._images = workspace.images
        self.png = workspace.images.read
        """Return an image as PNG."""
        self.thumbnail = workspace.thumbnails.webp
        """Return a thumbnail as WebP. Make it if it is missing."""
        self.ready_thumbnail = workspace.thumbnails.ready
        """Return a thumbnail if it is there already."""
        self.mask_colours = lru_cache(maxsize=32)(self._mask_colours)
        """Return a mask as PNG, its classes in colours."""

    def _mask_colours(self, sha: str) -> bytes:
        mask = self._images.load(sha)
        if mask.mode != "L":
            raise UserError("This image is no mask.")
        return png_of(overlay(mask))
