"""The sample pictures of a profile. Each is a file `NAME.png`, with its task and caption in `NAME.json`.

A file `NAME.mask.png` holds the mask, if any. Then `mask_classes` in the JSON names the classes from number 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from core.errors import UserError
from core.stored_runs import Run
from core.types import Task, from_plain


@dataclass(frozen=True)
class Sample:
    """A sample picture."""

    name: str
    path: Path
    task: Task
    caption: str
    """Caption written by the sample's author."""
    mask: Path | None = None
    classes: Mapping[int, str] = field(default_factory=dict)
    """Names of the mask's classes by class number."""


def read_samples(folder: Path | None) -> tuple[Sample, ...]:
    """Return the samples of a folder, sorted by name; () without a folder. Raises UserError for a damaged file."""
    if folder is None or not folder.is_dir():
        return ()
    return tuple(_read(path) for path in sorted(folder.glob("*.png")) if path.with_suffix(".json").is_file())


def _read(path: Path) -> Sample:
    described = path.with_suffix(".json")
    try:
        data = json.loads(described.read_text(encoding="utf-8"))
        task, caption = from_plain(Task, data["task"]), str(data.get("caption", ""))
        if not (mask := path.with_suffix(".mask.png")).is_file():
            return Sample(path.stem, path, task, caption)
        return Sample(path.stem, path, task, caption, mask, dict(enumerate(map(str, data["mask_classes"]))))
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise UserError(f"The sample {described} is damaged: restore it, or remove both of its files.") from error


def sample_named(samples: tuple[Sample, ...], name: str) -> Sample:
    """Return the sample with this name. Raises UserError if none exists."""
    for sample in samples:
        if sample.name == name:
            return sample
    raise UserError(f"There is no sample {name[:80]!r}: choose a listed one.", field="sample")


def sample_of(samples: tuple[Sample, ...], run: Run) -> Sample | None:
    """Return the sample with which a run began; None for an upload, or if the profile no longer has it."""
    return next((sample for sample in samples if run.sample and sample.name == run.sample), None)


def known_classes(samples: tuple[Sample, ...]) -> Mapping[int, str]:
    """Return the class names to suggest for a new mask: those of the first sample with a mask."""
    return next((sample.classes for sample in samples if sample.classes), {})
