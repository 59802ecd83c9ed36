"""The record of a run and of its images, as they leave the studio: one for saved images, for `run.json`, and for a
workspace that takes a run in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from PIL import Image

from core.images import image_sha
from core.lineage import DEFAULT_RECIPE, Lineage, TestCase
from core.types import Check, StageName, StageValue, Task, to_plain


@dataclass(frozen=True)
class RunRecord:
    """A run as it was when it was recorded."""

    id: str
    name: str
    profile: str
    task: Task
    settings: Mapping[str, Any]
    values: Mapping[StageName, StageValue[Any]]
    prompts: Mapping[StageName, str] = field(default_factory=dict)
    """The templates that a person edited for this run, by the names of their slots."""
    recipe: str = DEFAULT_RECIPE
    sample: str = ""
    """The name of the sample that its source is; "" for any other picture."""
    notes: tuple[str, ...] = ()
    """What was put right when the source was read."""
    mask_classes: Mapping[int, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """As JSON-ready data; `read_run` reads it back."""
        return {
            **{name: getattr(self, name) for name in ("id", "name", "profile", "recipe", "sample")},
            "notes": list(self.notes),
            "task": to_plain(self.task),
            "settings": to_plain(dict(self.settings)),
            "prompts": dict(self.prompts),
            "values": {stage: to_plain(value) for stage, value in self.values.items()},
            "mask_classes": {str(number): name for number, name in self.mask_classes.items()},
        }


@dataclass(frozen=True)
class ImageRecord:
    """An image of a run without its pixels."""

    sha256: str
    """`image_sha` of the image: over its pixels, not over a file."""
    lineage: Lineage
    artifacts: Mapping[str, str]
    """`image_sha` of each artifact by its name."""
    checks: tuple[Check, ...] = ()

    def plain(self) -> dict[str, Any]:
        """As JSON-ready data, without the artifacts, which stand where their pictures are; `read_image` reads it."""
        return {"sha256": self.sha256, "lineage": self.lineage.plain(), "checks": to_plain(self.checks)}

    def with_pictures(self, image: Image.Image, artifacts: Mapping[str, Image.Image]) -> TestCase:
        """The test case of this record."""
        return TestCase(image, self.lineage, artifacts, self.checks)


def image_record(case: TestCase) -> ImageRecord:
    """The record of a test case."""
    artifacts = {name: image_sha(image) for name, image in case.artifacts.items()}
    return ImageRecord(image_sha(case.image), case.lineage, artifacts, case.checks)
