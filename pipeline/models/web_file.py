"""Fetches one file from a URL, such as torchvision's weights, with progress and resumption, and checks its hash."""

from __future__ import annotations

import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.images import file_hash
from core.model_sections import WebFile
from pipeline.models.hub import Download, Told, bring, part_of, patiently, refused

_HASH = re.compile(r"-([0-9a-f]{8,64})\.")
"""The beginning of a file's sha256 in its name, in the way torch names files."""


@dataclass(frozen=True)
class FileListing:
    """A file, and whether it has yet to be fetched."""

    weights: WebFile
    bytes: int
    """Size in bytes, or 0 if the server does not tell it."""
    missing: bool

    @property
    def place(self) -> Path:
        return Path(self.weights.path)

    @property
    def left(self) -> dict[Path, int]:
        """Bytes still to fetch, by destination; empty if the file is here."""
        part = part_of(self.place)
        came = part.stat().st_size if part.exists() else 0
        return {self.place: self.bytes - min(self.bytes, came)} if self.missing else {}

    @property
    def bytes_missing(self) -> int:
        return sum(self.left.values())


def listing(role: str, weights: WebFile) -> FileListing:
    """Return the size of the file and whether it is missing. Raises CannotLoad if the server cannot be asked."""
    from huggingface_hub.utils import get_session, hf_raise_for_status

    place = Path(weights.path)
    if place.is_file():
        return FileListing(weights, place.stat().st_size, False)
    with refused(role, weights):
        # Ask for the file uncompressed, so that the answer has the length of the file itself.
        plain = {"Accept-Encoding": "identity"}

        def ask() -> Any:
            answer = get_session().head(weights.url, follow_redirects=True, headers=plain)
            hf_raise_for_status(answer)
            return answer

        answer = patiently(ask)
    return FileListing(weights, int(answer.headers.get("Content-Length", 0)), True)


def damaged(role: str, found: FileListing) -> FileListing:
    """Remove a file whose hash is not the one in its name, and return the listing with it as missing."""
    if found.missing or _right(found.place, found.place.name):
        return found
    found.place.unlink()
    return listing(role, found.weights)


def download(role: str, found: FileListing, on_bytes: Told, cancelled: threading.Event | None = None) -> Path:
    """Return the path of the file, fetched if it is missing. Raises CannotLoad if that fails, and Cancelled."""
    from huggingface_hub.utils import WeakFileLock

    place = found.place
    lock = place.parent / ".locks" / f"{place.name}.lock"
    with refused(role, found.weights):
        lock.parent.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if place.exists():  # another role uses the same file, or another process was faster
                on_bytes(found.bytes)
                return place
            part, what = part_of(place), f"{place.name} of the {role} {found.weights.title}"
            bring(
                Download(found.weights.url, part, found.bytes, what, lambda came: _right(came, place.name)),
                on_bytes,
                cancelled,
            )
            os.replace(part, place)
    return place


def _right(file: Path, name: str) -> bool:
    """Return True if a file has the hash that its name contains, or if the name has none."""
    match = _HASH.search(name)
    return match is None or file_hash(file).startswith(match[1])
