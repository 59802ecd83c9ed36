"""Identity of a model under test: name, weights, preprocessing and classes. Predictions are stored under it, so that
none is computed twice or taken for another model's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

from core.data_files import DataTable
from core.images import known_file_hash
from core.types import TaskKind

Output = Literal["logits", "softmax", "log softmax", "percentages", "probabilities", "class numbers"]
"""Kind of numbers in a model's output. Only servers send probabilities and class numbers."""

UNKNOWN_VERSION = "unknown version"
"""Version of a model behind HTTP whose server reports none. The model may change without notice."""
DIGEST = 16
_OUTPUT_WORDS = DataTable(__file__, str, "outputs")


_HASHES = re.compile(r"@[0-9a-f]{8,}(?= \(| \[|$)| \[[0-9a-f]{16}\]$")


def without_hashes(key: str) -> str:
    """Return a model's display name: the `key` of its predictions without the file's time and the digest."""
    return _HASHES.sub("", key)


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about a model's input and output, for people to check before anything is computed."""

    scaling: str = ""
    """Scaling of images for the model, in words. Empty if version 0.1 of the studio was the last to load the model."""
    values: tuple[float, ...] = ()
    """Smallest and largest pixel value that the model gets. Empty if a server prepares its images."""
    output: Output | Literal[""] = ""
    class_names: str = ""
    """Origin of the class names, such as "the file"."""
    remarks: tuple[str, ...] = ()
    """Choices that the studio made without asking the user, one sentence each."""


@dataclass(frozen=True)
class Preprocessing:
    """The steps that prepare an image for a model."""

    size: tuple[int, int] | None = None
    """Width and height in pixels to which images are scaled; None if they keep their size."""
    mean: tuple[float, ...] = ()
    """Mean that is subtracted from each channel, for pixels from 0 to 1. Empty if nothing is subtracted."""
    std: tuple[float, ...] = ()
    interpolation: str = ""
    """Resampling, such as "bilinear", or "" if a server behind HTTP does it."""
    more: str = ""
    """Further steps, in the words of the library that performs them."""
    assumed: Assumptions = field(default=Assumptions(), compare=False)
    """Assumptions about input and output. They follow from the other fields and from the model's own bytes."""


@dataclass(frozen=True)
class ModelIdentity:
    """Everything that decides a model's predictions. Models with the same digest predict the same."""

    name: str
    """Architecture, hub repository or web address of the model."""
    weights: str
    """Origin of the weights: a library and its name for them, "sha256:..." of the files, or a server's version."""
    kind: TaskKind
    preprocessing: Preprocessing
    classes: tuple[str, ...]
    """Class names in the order of the class numbers."""

    @cached_property
    def digest(self) -> str:
        """Return `DIGEST` hex digits of the hash of all fields except `Assumptions`. Version 0.1 of the studio took
        percentages and a segmenter's softmax for logits. Models with such outputs have another digest now.
        """
        plain = asdict(self)
        output = plain["preprocessing"].pop("assumed")["output"]
        if output == "percentages" or (output == "softmax" and self.kind == "segmentation"):
            plain["output"] = output
        text = json.dumps(plain, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:DIGEST]

    @property
    def assumptions(self) -> tuple[tuple[str, str], ...]:
        """Return the assumptions about the model's input and output as pairs: name and text of each assumption."""
        prepared, assumed = self.preprocessing, self.preprocessing.assumed
        rows: list[tuple[str, str]] = []
        if assumed.scaling:
            rows.append(("Picture", assumed.scaling))
        if assumed.values:
            numbers = " to ".join(f"{value:.3g}".replace("-", "\N{MINUS SIGN}") for value in assumed.values)
            normalised = f"; mean {_listed(prepared.mean)}, std {_listed(prepared.std)}" if prepared.mean else ""
            rows.append(("Pixel values", f"{numbers}{normalised}"))
        if assumed.output in get_args(Output):
            rows.append(("Answer", _OUTPUT_WORDS[assumed.output]))
        if assumed.class_names:
            rows.append(("Class names", f"{len(self.classes):,}, from {assumed.class_names}"))
        return (*rows, *(("Note", remark) for remark in assumed.remarks))

    @property
    def note(self) -> str:
        """Return a warning about the stored predictions of this model, or "" if no warning is needed."""
        if self.weights != UNKNOWN_VERSION:
            return ""
        return (
            f"The server at {self.name} does not say which version of its model it runs. If the model changes, earlier "
            "predictions still count as its own."
        )


def _listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:.4g}" for number in numbers)


def files_hash(files: Sequence[Path]) -> str:
    """Return "sha256:" and a cached hash of the files, and of their names if there are several. Raises OSError."""
    if len(files) == 1:
        return f"sha256:{known_file_hash(files[0])}"
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.name):
        whole.update(f"{file.name}\0{known_file_hash(file)}\n".encode())
    return f"sha256:{whole.hexdigest()}"
