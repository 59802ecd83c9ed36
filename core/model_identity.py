"""Which model it was that said something: its name, its weights, how it is shown an image, and what it can say.

Predictions are kept under this, so that none is computed twice and none is taken for that of another model.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from core.types import TaskKind

UNKNOWN_VERSION = "unknown version"
"""Of a model behind HTTP whose server does not say which one it is: it may change without anybody noticing."""
DIGEST = 16
"""Hex digits of `ModelIdentity.digest`."""
_PIECE = 1 << 22


@dataclass(frozen=True)
class Preprocessing:
    """What is done to an image before the model sees it."""

    size: tuple[int, int] | None = None
    """Width and height in pixels; None where they follow the image's."""
    mean: tuple[float, ...] = ()
    """Of each channel, of pixels from 0 to 1; empty where nothing is taken off."""
    std: tuple[float, ...] = ()
    interpolation: str = ""
    """How it is scaled, such as "bilinear"; "" where the server behind HTTP does that."""
    more: str = ""
    """Whatever else there is to it, in the words of the library that does it."""


@dataclass(frozen=True)
class ModelIdentity:
    """All of a model under test that its predictions hang on. Two with the same digest say the same of an image."""

    name: str
    """Architecture, repository or address."""
    weights: str
    """Their name with the library that has them, "sha256:..." of the files, or a server's version."""
    kind: TaskKind
    preprocessing: Preprocessing
    classes: tuple[str, ...]
    """All that it can say, in the order of its numbers."""

    @cached_property
    def digest(self) -> str:
        """`DIGEST` hex digits of everything above."""
        plain = json.dumps(asdict(self), sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(plain.encode()).hexdigest()[:DIGEST]

    @property
    def note(self) -> str:
        """What a person has to know before relying on stored predictions, in one sentence; "" for nothing."""
        if self.weights != UNKNOWN_VERSION:
            return ""
        return (
            f"The server at {self.name} does not say which version of its model it runs: if that changes, what was "
            "computed before is still taken for its own."
        )


_hashes: dict[tuple[str, int, int], str] = {}
_hashing = threading.Lock()


def files_hash(files: Sequence[Path]) -> str:
    """The hash of the files' bytes and, where there are several, of their names, after "sha256:".

    A file of the same path, size and time of change is not read again. Raises OSError.
    """
    if len(files) == 1:
        return f"sha256:{_file_hash(files[0])}"
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        whole.update(f"{file.name}\0{_file_hash(file)}\n".encode())
    return f"sha256:{whole.hexdigest()}"


def _file_hash(file: Path) -> str:
    held = file.stat()
    key = (str(file.resolve()), held.st_size, held.st_mtime_ns)
    with _hashing:
        if key in _hashes:
            return _hashes[key]
    found = hashlib.sha256()
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            found.update(piece)
    with _hashing:
        return _hashes.setdefault(key, found.hexdigest())
