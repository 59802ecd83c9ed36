"""Records of a run and its images outside the studio: in saved images, in `run.json`, for import into a workspace."""

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
    """A run with its settings and values at the time of recording."""

    id: str
    name: str
    profile: str
    task: Task
    settings: Mapping[str, Any]
    values: Mapping[StageName, StageValue[Any]]
    prompts: Mapping[StageName, str] = field(default_factory=dict)
    recipe: str = DEFAULT_RECIPE
    sample: str = ""
    """Name of the studio's sample that the run started from; "" for another picture."""
    notes: tuple[str, ...] = ()
    mask_classes: Mapping[int, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return JSON-ready data. Inverse of `read_run`."""
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
    """`image_sha` of the image: a hash of its pixels, not of its file."""
    lineage: Lineage
    artifacts: Mapping[str, str]
    checks: tuple[Check, ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return JSON-ready data without the artifacts, which are kept with their pictures. Inverse of `read_image`."""
        return {"sha256": self.sha256, "lineage": self.lineage.plain(), "checks": to_plain(self.checks)}

    def with_pictures(self, image: Image.Image, artifacts: Mapping[str, Image.Image]) -> TestCase:
        """Return the test case of this record with the given pictures."""
        return TestCase(image, self.lineage, artifacts, self.checks)


def image_record(case: TestCase) -> ImageRecord:
    """Return the record of a test case."""
    artifacts = {name: image_sha(image) for name, image in case.artifacts.items()}
    return ImageRecord(image_sha(case.image), case.lineage, artifacts, case.checks)
