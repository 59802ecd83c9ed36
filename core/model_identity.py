"""Identity of a model under test: name, weights, preprocessing and classes.

Predictions are stored under it, so that none is computed twice or mistaken for another model's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path

from core.types import TaskKind

UNKNOWN_VERSION = "unknown version"
"""Version of a model behind HTTP whose server tells none. Such a model may change unnoticed."""
DIGEST = 16
"""Hex digits of `ModelIdentity.digest`."""


@dataclass(frozen=True)
class Preprocessing:
    """Preprocessing of an image for a model."""

    size: tuple[int, int] | None = None
    """Width and height in pixels, or None if they follow the image's."""
    mean: tuple[float, ...] = ()
    """Mean of each channel, for pixels from 0 to 1. Empty if nothing is subtracted."""
    std: tuple[float, ...] = ()
    interpolation: str = ""
    """Resampling, such as "bilinear", or "" if a server behind HTTP does it."""
    more: str = ""
    """Further steps, in the words of the library that does them."""


@dataclass(frozen=True)
class ModelIdentity:
    """Everything that a model's predictions depend on. Models with the same digest predict the same."""

    name: str
    """Architecture, repository or address."""
    weights: str
    """Their name with the library that has them, "sha256:..." of the files, or a server's version."""
    kind: TaskKind
    preprocessing: Preprocessing
    classes: tuple[str, ...]
    """Class names in the order of the class numbers."""

    @cached_property
    def digest(self) -> str:
        """Return `DIGEST` hex digits of the hash of all fields."""
        plain = json.dumps(asdict(self), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(plain.encode()).hexdigest()[:DIGEST]

    @property
    def note(self) -> str:
        """Return one sentence of warning about stored predictions, or ""."""
        if self.weights != UNKNOWN_VERSION:
            return ""
        return (
            f"The server at {self.name} does not say which version of its model it runs. If the model changes, earlier "
            "predictions still count as its own."
        )


def files_hash(files: Sequence[Path]) -> str:
    """Return "sha256:" and the hash of files, with their names if several. Reads changed files only. Raises OSError."""
    if len(files) == 1:
        return f"sha256:{_file_hash(files[0])}"
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        whole.update(f"{file.name}\0{_file_hash(file)}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _file_hash(file: Path) -> str:
    stat = file.stat()
    return _hash_of(file.resolve(), stat.st_size, stat.st_mtime_ns)


@cache
def _hash_of(file: Path, _size: int, _changed: int) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
