"""The weights of a model that was trained further, as a file that says what it is, so that the studio takes it as a
model under test. The tensors are passed on as they are: only the header of the safetensors file is another one.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.errors import UserError
from core.model_identity import ModelIdentity

PREPARED_BY = "prepared_by"
"""The key of a header that names the library whose own preparation of images the model was trained with."""
LIBRARIES = ("torchvision", "timm")
_LENGTH = struct.Struct("<Q")
"""The first bytes of a safetensors file: the length of its header in JSON, which the tensors follow."""
_LARGEST_HEADER = 100_000_000
"""Bytes, as the format allows."""
_PIECE = 1 << 20


def header_of(identity: ModelIdentity, source: str) -> dict[str, str]:
    """What the file of a model says of itself, for `evaluation.adapters.architectures`. `source` is that of the model
    which was trained. Of transformers the header says nothing: its folder does, in which the file is the
    `model.safetensors`.
    """
    if source == "transformers":
        return {"format": "pt"}
    said = {"format": "pt", "architecture": identity.name, "classes": json.dumps(identity.classes)}
    if source in LIBRARIES:
        return said | {PREPARED_BY: source}
    shown = identity.preprocessing
    side = {"size": str(shown.size[0])} if shown.size is not None else {}
    return said | side | {"mean": json.dumps(shown.mean), "std": json.dumps(shown.std)}


def with_header(file: Path, said: Mapping[str, str]) -> tuple[int, Iterator[bytes]]:
    """A safetensors file with another header: how many bytes it has, and these piece by piece. Raises UserError for a
    file that is gone or damaged.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            (length,) = _LENGTH.unpack(opened.read(_LENGTH.size))
            if length > min(size, _LARGEST_HEADER):
                raise ValueError("the header is longer than the file")
            tensors = json.loads(opened.read(length))
        head = json.dumps(tensors | {"__metadata__": dict(said)}, ensure_ascii=True).encode()
    except (OSError, ValueError, TypeError, struct.error) as error:
        raise UserError("The weights of this training are gone or damaged: train it again.") from error
    head += b" " * (-len(head) % 8)  # tensors begin at a multiple of eight

    def pieces() -> Iterator[bytes]:
        yield _LENGTH.pack(len(head)) + head
        with file.open("rb") as opened:
            opened.seek(_LENGTH.size + length)
            while piece := opened.read(_PIECE):
                yield piece

    return size - length + len(head), pieces()
