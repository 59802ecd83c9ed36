"""The record of a run and of its images, as they leave the studio: one for saved images, for `run.json`, and for a
workspace that takes a run in.

As plain data it has format 2. What format 1 recorded reads the same: there the lineage of an image stood flat beside
its checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from PIL import Image

from core.images import image_sha
from core.lineage import Lineage, TestCase
from core.types import Check, StageName, StageValue, Task, from_plain, to_plain
from pipeline.methods import read_lineage
from pipeline.recipes import DEFAULT, known_recipes, recipe_of, values_from_plain

FORMAT = 2
MOST_ATTEMPTS = 2**63 - 1
"""A column of a table holds no more."""


@dataclass(frozen=True)
class RunRecord:
    """A run as it was when it was recorded."""

    id: str
    name: str
    profile: str
    """The name of its profile."""
    task: Task
    settings: Mapping[str, Any]
    values: Mapping[StageName, StageValue[Any]]
    prompts: Mapping[StageName, str] = field(default_factory=dict)
    """The templates that a person edited for this run, by the names of their slots."""
    recipe: str = DEFAULT
    """The name of its recipe."""
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
    """`image_sha` of each artifact by its name; "" where format 1 did not say it."""
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


def read_run(plain: Mapping[str, Any]) -> RunRecord:
    """The run of plain data. Raises KeyError, TypeError or ValueError (pydantic's too) for what is none, and
    UnknownRecipe.
    """
    values = values_from_plain(plain["values"])
    record: RunRecord = from_plain(RunRecord, {**plain, "values": {}})
    recipe_of(record.recipe)
    if record.prompts.keys() - {slot.name for recipe in known_recipes() for slot in recipe.prompt_slots}:
        raise ValueError("there is no such prompt")
    if any(not 0 <= number <= 255 for number in record.mask_classes):
        raise ValueError("a class number is out of range")
    if any(not 0 <= value.trace.attempts <= MOST_ATTEMPTS for value in values.values()):
        raise ValueError("a number of attempts is out of range")
    return RunRecord(**{**vars(record), "values": values})


def read_image(plain: Mapping[str, Any], artifacts: Mapping[str, str], task: Task) -> ImageRecord:
    """The image of plain data; `artifacts` are the hashes of its artifacts, and `task` is that of its run, for records
    that do not say theirs. Raises as `read_run` does.
    """
    lineage = read_lineage(plain.get("lineage", plain))
    if lineage.task is None:
        lineage = replace(lineage, task=task)
    sha, checks = plain["sha256"], from_plain(tuple[Check, ...], plain["checks"])
    if not all(isinstance(one, str) for one in (sha, *artifacts.values())):
        raise TypeError("a hash is no text")
    return ImageRecord(sha, lineage, dict(artifacts), checks)
