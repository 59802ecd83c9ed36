"""Runs, test cases and jobs as read from a workspace, oldest first. Times have the time zone UTC. Sizes are (width,
height) in pixels. Hashes are SHA-256. A missing text is "".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, get_args

from core.images import StoredImage
from core.lineage import DEFAULT_RECIPE, Lineage
from core.types import Author, Check, StageName, StageValue, Task

JobState = Literal["running", "done", "cancelled", "failed", "interrupted"]
Verdict = Literal["accepted", "rejected", "open"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""A person's verdict on a test case; "open" withdraws an earlier one."""


@dataclass(frozen=True)
class StoredValue:
    """One version of a text stage's value. Versions are only added; the highest id is current."""

    id: int
    run_id: str
    stage: StageName
    value: StageValue[Any]
    created: datetime
    brought_back: int | None = None
    """Id of the earlier version that a person restored as this one, or None."""

    @property
    def author(self) -> Author:
        return self.value.trace.author


@dataclass(frozen=True)
class StoredState:
    """A version of the values that a person may change in a run, valid from `created`. Versions are only added."""

    id: int
    settings: Mapping[str, Any]
    prompts: Mapping[StageName, str]
    created: datetime


@dataclass(frozen=True)
class Review:
    """A person's decision on a test case."""

    verdict: Literal["accepted", "rejected"]
    """The person's verdict. A review whose verdict was withdrawn is read as None instead of a Review."""
    reason: str
    created: datetime


@dataclass(frozen=True)
class StoredArtifact:
    """An intermediate image that the test case's method made."""

    sha: str
    path: Path


@dataclass(frozen=True)
class StoredTestCase:
    """A test case with its images on disk. `TestCases.load` returns it with the images loaded."""

    id: int
    run_id: str
    job_id: int | None
    image_sha: str
    image_path: Path
    image_size: tuple[int, int]
    lineage: Lineage
    artifacts: Mapping[str, StoredArtifact]
    checks: tuple[Check, ...]
    inputs_key: str
    """Key that identifies the inputs of the job that made the test case; "" if no job made the test case."""
    created: datetime
    review: Review | None = None
    """Latest verdict for the task that the image was made for. None without a verdict or after its withdrawal."""

    @property
    def task(self) -> Task:
        """Task that the image was made, checked and reviewed for. Its run may have another task by now."""
        assert self.lineage.task is not None  # storage fills it in for records without it
        return self.lineage.task


@dataclass(frozen=True)
class Job:
    """One generation of images, with the numbers of images requested and saved."""

    id: int
    run_id: str
    total: int
    done: int
    state: JobState
    message: str
    inputs_key: str
    started: datetime
    finished: datetime | None


@dataclass(frozen=True)
class Run:
    """One source image and everything saved about it, in the latest version."""

    id: str
    name: str
    task: Task
    profile: str
    settings: Mapping[str, Any]
    sample: str
    notes: tuple[str, ...]
    """Corrections made to the picture at import, one sentence each."""
    source_sha: str
    created: datetime
    values: Mapping[StageName, StoredValue]
    test_cases: tuple[StoredTestCase, ...]
    jobs: tuple[Job, ...]
    mask_sha: str | None = None
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    prompts: Mapping[StageName, str] = field(default_factory=dict)
    """Prompt templates that a person edited for this run, by name. All others are the profile's."""
    removed: bool = False
    """True if a person deleted the run. Then the list of runs omits it, but its data remain."""
    state: int = 0
    """Id of the current `StoredState`."""
    recipe: str = DEFAULT_RECIPE
    """Name of the run's recipe (see `pipeline.recipes`). This installation may not have it."""


@dataclass(frozen=True)
class BatchOfRuns:
    """The batch that runs belong to, as shown in the list of runs."""

    number: int
    name: str
    runs: int


@dataclass(frozen=True)
class RunSummary:
    """One row of the list of runs: a run, or all runs of a batch."""

    id: str
    name: str
    task: Task
    profile: str
    sample: str
    source_sha: str
    created: datetime
    changed: datetime
    stages: tuple[StageName, ...]
    test_cases: int
    recipe: str = DEFAULT_RECIPE
    accepted: int = 0
    job: JobState | None = None
    """State of the latest generation; None before the first."""
    removed: bool = False
    batch: BatchOfRuns | None = None


@dataclass(frozen=True)
class EditedShare:
    """Share of a stage's values that people changed, in the runs of one profile."""

    profile: str
    stage: StageName
    values: int
    """Number of runs with a value at the stage."""
    changed: int
    """Number of runs whose current value is a person's, not a model's."""

    @property
    def share(self) -> float:
        """Share of values that people changed: changed / values, 0 to 1."""
        return self.changed / self.values


@dataclass(frozen=True)
class SavedCase:
    """A test case with image files on disk but no database row yet."""

    lineage: Lineage
    checks: tuple[Check, ...]
    image: StoredImage
    artifacts: Mapping[str, StoredImage]
