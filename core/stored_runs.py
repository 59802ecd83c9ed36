"""What comes back out of a workspace. Plain frozen dataclasses over the types of `pipeline`; no SQL, no files opened.

All times are in UTC and carry their zone.
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
JOB_STATES: tuple[JobState, ...] = get_args(JobState)
Verdict = Literal["accepted", "rejected", "open"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""What a person says of a test case; "open" takes an earlier verdict back."""


@dataclass(frozen=True)
class StoredValue:
    """One version of a text stage's value. Versions are only ever added; the one with the highest id counts."""

    id: int
    run_id: str
    stage: StageName
    value: StageValue[Any]
    """The value as the stage gave it, with its trace and the key of its inputs."""
    created: datetime
    brought_back: int | None = None
    """The id of the earlier version that this one repeats, when a person brought it back."""

    @property
    def author(self) -> Author:
        """Who wrote it."""
        return self.value.trace.author


@dataclass(frozen=True)
class StoredState:
    """What a person may change about a run, as it was from one moment on. States are only ever added."""

    id: int
    settings: Mapping[str, Any]
    prompts: Mapping[StageName, str]
    created: datetime


@dataclass(frozen=True)
class Review:
    """What a person decided about a test case."""

    verdict: Literal["accepted", "rejected"]
    """A verdict that was taken back reads as no review at all."""
    reason: str
    """In the person's words; "" where none was asked for."""
    created: datetime


@dataclass(frozen=True)
class StoredArtifact:
    """An image that the method of a test case made on the way."""

    sha: str
    path: Path


@dataclass(frozen=True)
class StoredTestCase:
    """A test case with its images on disk. `TestCases.load` gives it back with the images loaded."""

    id: int
    run_id: str
    job_id: int | None
    image_sha: str
    image_path: Path
    image_size: tuple[int, int]
    """Width and height of the image."""
    lineage: Lineage
    artifacts: Mapping[str, StoredArtifact]
    """By name, as in `TestCase`."""
    checks: tuple[Check, ...]
    inputs_key: str
    """The key that its job was started with; "" for a test case without a job."""
    created: datetime
    review: Review | None = None
    """The latest verdict, for the task that it was made for; None when nobody gave one or it was taken back."""

    @property
    def task(self) -> Task:
        """The task that it was made, checked and reviewed for; that of its run may be another one by now."""
        assert self.lineage.task is not None  # storage fills it in for records that do not say it
        return self.lineage.task


@dataclass(frozen=True)
class Job:
    """One generation: so many images were asked for, so many are saved."""

    id: int
    run_id: str
    total: int
    done: int
    """Test cases saved so far."""
    state: JobState
    message: str
    """One sentence for a person, when it failed."""
    inputs_key: str
    started: datetime
    finished: datetime | None


@dataclass(frozen=True)
class Run:
    """One source image on its way through the stages: all that was saved, the latest of everything."""

    id: str
    name: str
    task: Task
    profile: str
    settings: Mapping[str, Any]
    sample: str
    """The name of the sample that the source image is; "" for an upload."""
    notes: tuple[str, ...]
    """What was put right in the picture when it came in, a sentence each."""
    source_sha: str
    created: datetime
    values: Mapping[StageName, StoredValue]
    """The latest version of each text stage that has one."""
    test_cases: tuple[StoredTestCase, ...]
    """Oldest first."""
    jobs: tuple[Job, ...]
    """Oldest first."""
    mask_sha: str | None = None
    """The mask of the source image, mode L, one class number a pixel; None when the run has none."""
    mask_classes: Mapping[int, str] = field(default_factory=dict)
    """The name of each class number (0 to 255) of the mask."""
    prompts: Mapping[StageName, str] = field(default_factory=dict)
    """The prompt templates that a person edited for this run, by its name; others are the profile's."""
    removed: bool = False
    """Deleted by a person: out of the list of runs, and nothing of it lost."""
    state: int = 0
    """The id of the `StoredState` that counts."""
    recipe: str = DEFAULT_RECIPE
    """The name of its recipe (see `pipeline.recipes`); it may be one that is not known here."""


@dataclass(frozen=True)
class BatchOfRuns:
    """The batch that runs belong to, as the list of runs has it."""

    number: int
    name: str
    runs: int


@dataclass(frozen=True)
class RunSummary:
    """A line in the list of runs."""

    id: str
    name: str
    task: Task
    profile: str
    sample: str
    source_sha: str
    created: datetime
    changed: datetime
    """When anything in it was saved last."""
    stages: tuple[StageName, ...]
    """The stages that have a value, in the order of the stages."""
    test_cases: int
    recipe: str = DEFAULT_RECIPE
    accepted: int = 0
    """Of the test cases: how many a person accepted."""
    job: JobState | None = None
    """The state of the latest generation; None before the first."""
    removed: bool = False
    batch: BatchOfRuns | None = None
    """The batch that the line stands for; None for a run by itself."""


@dataclass(frozen=True)
class EditedShare:
    """How many of the values of a stage people changed, in the runs of a profile."""

    profile: str
    stage: StageName
    values: int
    """Runs that have a value at the stage."""
    changed: int
    """Of them: where the value that counts is a person's, and none that a model gave there."""

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.changed / self.values


@dataclass(frozen=True)
class SavedCase:
    """A test case whose image files are on the disk, and which has no row yet."""

    lineage: Lineage
    checks: tuple[Check, ...]
    image: StoredImage
    artifacts: Mapping[str, StoredImage]
