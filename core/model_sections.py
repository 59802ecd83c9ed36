"""Sections of a profile. A section states where a model's weights come from, and the disk space and memory they need.
This module has the base classes, and the sections of models that compare pictures, captions and phrases.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from core.types import Data

ROOT = Path(__file__).resolve().parent.parent
"""Folder of the repository. Relative paths in a profile start here."""
DType = Literal["auto", "float32", "float16", "bfloat16"]
COMMIT = re.compile(r"[0-9a-f]{40}")


def in_bytes(number: float) -> str:
    """Return a size in words, in powers of a thousand, as disks are sold: "31 GB", "2.7 GB", "29 MB"."""
    for power, unit in ((9, "GB"), (6, "MB"), (3, "kB")):
        share = number / 10**power
        if share >= 0.9995:
            digits = f"{share:.1f}" if power == 9 and share < 9.95 else f"{share:.0f}"
            return f"{digits.removesuffix('.0')} {unit}"
    return f"{number:.0f} bytes"


class Weights(Data):
    """Source of a model's weights: a local `path`, or a `hub` id with its `revision`. Exactly one of the two."""

    family: ClassVar[str] = ""
    """Name that pages show for a model with a path, since a path tells people little; "" to show the model's title."""

    path: str = ""
    """Path of a folder (of a file for GGUF), relative to the repository or absolute."""
    hub: str = Field("", pattern=r"^$|^[\w.-]+/[\w.-]+$")
    """owner/name on the Hugging Face hub. The weights are fetched at first use."""
    revision: str = Field("main", min_length=1)
    """Commit of the hub id, which fixes the weights. A branch such as "main" follows its current content instead."""
    files: tuple[str, ...] = ()
    """Patterns of the files to fetch from the hub; empty for all."""
    variant: str = ""
    """Variant of the weights, as their file names contain it, such as "fp16" for half precision."""
    bytes: int = Field(0, ge=0)
    """Size in bytes of the fetched files on disk; 0 if unknown."""
    memory_half: int = Field(0, ge=0)
    """Memory in bytes at half precision, as on a GPU; 0 if unknown. Drawing a picture takes further memory."""
    memory_full: int = Field(0, ge=0)
    """Memory in bytes at full precision, as on a CPU; 0 if unknown."""
    size: str = ""
    """Size in words, such as "about 31 GB", for a model without `bytes`."""
    licence: str = ""

    @model_validator(mode="after")
    def _one_place(self) -> Weights:
        if bool(self.path) == bool(self.hub):
            raise ValueError("give either path (local weights) or hub (an id on the hub)")
        return self

    def local(self) -> Path | None:
        """Return the absolute local path, or None for weights on the hub."""
        return ROOT / self.path if self.path else None

    @property
    def title(self) -> str:
        """The model's name in records: its id on the hub, or its path as the profile gives it."""
        return self.hub or self.path

    @property
    def pinned(self) -> bool:
        """True if `revision` is a commit and not a branch that moves."""
        return bool(COMMIT.fullmatch(self.revision))

    @property
    def size_in_words(self) -> str:
        """Size of the download in words, such as "about 31 GB" or "size unknown"."""
        return f"about {in_bytes(self.bytes)}" if self.bytes else self.size or "size unknown"


class WebFile(Weights):
    """A file with weights that a library downloads from a web address and stores at `path`."""

    called: str
    url: str

    @property
    def title(self) -> str:
        return self.called


class ClipEmbedder(Weights):
    """A CLIP model that checks use to compare pictures and captions."""

    kind: Literal["clip"]
    dtype: DType = "auto"


class PackagedWeights(Weights):
    """Source of a model's weights: a local `path`, a `hub` id or a Python `package`. Exactly one of the three."""

    package: str = ""
    folder: str = ""
    """The folder of the weights within the package."""

    @model_validator(mode="after")
    def _one_place(self) -> PackagedWeights:
        if sum(map(bool, (self.path, self.hub, self.package))) != 1:
            raise ValueError("give one of path (local weights), hub (an id on the hub) and package (a Python package)")
        return self

    def local(self) -> Path | None:
        """Return the absolute local path, or None for weights on the hub. A package is located without importing it."""
        if not self.package:
            return super().local()
        spec = find_spec(self.package)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        return Path(places[0] if places else f"(the package {self.package} is not installed)") / self.folder

    @property
    def title(self) -> str:
        return self.package or super().title


class SentenceModel(PackagedWeights):
    """A model that measures how similar two phrases are."""

    kind: Literal["sentence-embedding"] = "sentence-embedding"
    dtype: DType = "auto"
