"""Creates, names, lists, deletes and restores runs, sets task and mask, and reads settings, prompts and staleness."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

from PIL import Image
from pydantic import Field, ValidationError

from core.errors import UserError
from core.images import image_sha, png_of, read_image
from core.masks import parse_classes, read_mask, with_own_numbers
from core.settings import Settings
from core.stored_runs import Run, RunSummary, StoredTestCase, Verdict
from core.types import StageName, Task, TaskKind, failed
from pipeline.checks.texts import task_checks
from pipeline.driver import Driver
from pipeline.freshness import inputs_key, stale_stages
from pipeline.profiles.profile import Profile, notice_for
from pipeline.prompting import PromptError, PromptSet
from pipeline.recipes import recipe_of
from services.commands import RunCommand, RunIds, Texts, does
from services.edit_conflicts import CaseId
from services.jobs import JobQueue, JobView
from services.runs.samples import Sample, sample_named, sample_of
from storage.workspace import Workspace

LISTED_RUNS = 60
LISTED_REMOVED = 20
MOST_AT_ONCE = 1000
_Several = Annotated[RunIds, Field(min_length=1, max_length=MOST_AT_ONCE, description="The ids of the runs")]
ShownImages = Annotated[
    str, Field(max_length=40, description="Hash of the planned images that you saw; empty to accept any")
]
RecipeName = Annotated[str, Field(max_length=80, description="The name of the recipe")]


@dataclass(frozen=True)
class OpenedRun:
    """The run that a command began or restored."""

    run_id: str


@dataclass(frozen=True)
class Listing:
    """Content of the list of runs."""

    runs: tuple[RunSummary, ...]
    """The latest runs that match the search, last changed first. Without a search, one run of each batch is listed."""
    total: int
    """Number of runs that are not deleted."""
    found: int
    """Number of runs that match the search. Equals `total` without a search."""
    find: str = ""
    removed: tuple[RunSummary, ...] = ()
    """Deleted runs, the most recently changed first."""
    jobs: Mapping[str, JobView] = field(default_factory=dict)
    """Running and waiting jobs by run."""


class RunService:
    """Manages the runs of one workspace, from any thread. Methods raise UserError for the id of an unknown run."""

    def __init__(
        self, workspace: Workspace, profile: Profile, driver: Driver, samples: tuple[Sample, ...], jobs: JobQueue
    ) -> None:
        self.profile, self.samples = profile, samples
        self.workspace, self.driver, self.jobs = workspace, driver, jobs
        self.changing = threading.RLock()
        """Lock to hold from reading a run's value or settings until a person's change is saved."""
        images = workspace.images
        self.pixels = lru_cache(maxsize=256)(lambda sha: image_sha(images.load(sha)))
        """Returns the SHA-256 of a stored image's pixels, on which stages depend. The file's SHA-256 differs."""
        self.size = lru_cache(maxsize=256)(self._size)
        self.notice = lru_cache(maxsize=256)(lambda sha: notice_for(profile, images.load(sha)))
        """Returns the profile's notice on an image of a kind that its models do not know; "" for other images."""
        self.edited = workspace.runs.edited
        """Returns, by profile and stage, the number of values that people changed. Reads all stored values."""

    @does("rename", RunCommand)
    def rename(self, run: str, title: Annotated[str, Field(description="The new name")]) -> None:
        """Rename a run."""
        self.workspace.runs.rename(run, title)

    @does("run-duplicate", RunCommand)
    def duplicate(self, run: str) -> OpenedRun:
        """Begin a new run with a copy of the picture, task and texts of another run, without its images."""
        return OpenedRun(self.workspace.runs.duplicate(run))

    def settings(self, run: Run, recipe_name: str = "") -> Settings:
        """Return a run's settings for a recipe, or the profile's settings if the recipe rejects the run's settings."""
        recipe = recipe_of(recipe_name or run.recipe)
        try:
            return recipe.settings_in(self.profile, run.settings)
        except ValidationError:
            return recipe.settings_in(self.profile)

    def prompts(self, run: Run) -> PromptSet:
        """Return the prompts of a run, or the profile's if the saved ones do not fit the recipe any more."""
        return self.driver.prompts(recipe_of(run.recipe), self.templates(run))

    def templates(self, run: Run) -> Mapping[StageName, str]:
        """Return the prompt templates that a person edited, by stage; {} if they do not fit the recipe any more."""
        try:
            self.driver.prompts(recipe_of(run.recipe), run.prompts)
        except PromptError:
            return {}
        return run.prompts

    def stale(self, run: Run, settings: Settings) -> dict[StageName, str]:
        """Return the stale stages of a run, each with the reason."""
        values = {stage: stored.value for stage, stored in run.values.items()}
        recipe, pixels = recipe_of(run.recipe), self.pixels(run.source_sha)
        producers = self.driver.producers(recipe, self.prompts(run), settings)
        return stale_stages(recipe, run.task, pixels, values, settings, producers)

    def inputs_key(self, stage: StageName, run: Run, settings: Settings) -> str:
        """Return a hash of a stage's current inputs. Raises UserError if another stage that it reads is empty."""
        values = {name: stored.value.value for name, stored in run.values.items()}
        try:
            return inputs_key(recipe_of(run.recipe), stage, run.task, self.pixels(run.source_sha), values, settings)
        except KeyError as missing:
            name = missing.args[0]
            raise UserError(
                f"The stage “{name}” is empty, and this stage reads it: run the stages before this one."
            ) from missing

    def source_png(self, run_id: str) -> bytes:
        """Return the source image of a run as PNG. Raises UserError for an unknown run."""
        return png_of(self.source(self.workspace.runs.get(run_id)))

    def source(self, run: Run) -> Image.Image:
        """Return the source image of a run."""
        return self.workspace.images.load(run.source_sha)

    def _size(self, source_sha: str) -> tuple[int, int]:
        with Image.open(self.workspace.images.path(source_sha)) as image:
            return image.size

    def listing(self, find: str = "") -> Listing:
        """List the runs whose name or label contains `find`. Capital letters are treated as small letters."""
        find = " ".join(find.split())
        total = self.workspace.runs.count()
        return Listing(
            runs=self.workspace.runs.search(LISTED_RUNS, find=find) if find else self.workspace.runs.lines(LISTED_RUNS),
            total=total,
            found=self.workspace.runs.count(find) if find else total,
            find=find,
            removed=self.workspace.runs.search(LISTED_REMOVED, removed=True),
            jobs={job.run_id: job for job in reversed(self.jobs.active())},
        )

    def latest(self) -> tuple[RunSummary, ...]:
        """Return the latest `LISTED_RUNS` runs, the most recently changed first."""
        return self.workspace.runs.search(LISTED_RUNS)

    @does("run-from-sample", keeps=True)
    def from_sample(
        self,
        sample: Annotated[str, Field(max_length=200, description="The name of the sample")],
        listed: Annotated[
            bool, Field(description="False to keep the run out of the list until something is done with it")
        ] = True,
    ) -> OpenedRun:
        """Begin a run with a sample picture of the profile, its task, and its mask for segmentation. Raises UserError
        if there is no sample of this name.
        """
        begun = sample_named(self.samples, sample)
        picture = read_image(begun.path)
        run_id = self._new(picture.image, begun.task, begun.name, picture.notes, begun.name)
        if begun.task.kind == "segmentation" and begun.mask is not None:
            self.take_sample_mask(run_id)
        self.workspace.runs.begun_with(run_id, listed=listed)  # the sample's mask belongs to the beginning of the run
        return OpenedRun(run_id)

    def from_upload(self, data: bytes, file_name: str, label: str = "") -> str:
        """Begin a run with an uploaded picture and return its id. Raises UserError if it is no usable picture."""
        picture, label = read_image(data), " ".join(label.split())
        classified = bool(label or self.profile.tasks.labels)
        task = Task("classification", label=label) if classified else Task("segmentation", protected=())
        name = file_name.rsplit(".", 1)[0].strip()[:80] or "upload"
        return self._new(picture.image, task, name, picture.notes, "")

    def _new(self, image: Image.Image, task: Task, name: str, notes: tuple[str, ...], sample: str) -> str:
        settings = self.profile.settings.model_dump(mode="json")
        recipe = self.profile.first_recipe
        return self.workspace.runs.create(image, task, self.profile.name, name, settings, notes, sample, recipe=recipe)

    @does("delete-run", RunCommand)
    def delete(self, run: str) -> None:
        """Delete a run: it leaves the list, but can be restored in full. Raises UserError if it is busy or unknown."""
        self.delete_all((run,))

    @does("delete-runs", keeps=True)
    def delete_all(self, runs: _Several) -> None:
        """Delete several runs: they disappear from the list, but can be restored in full. If one of them is busy or
        unknown, none is deleted. Raises UserError in that case.
        """
        busy = {job.run_id for job in self.jobs.active()} & set(runs)
        if busy and len(runs) == 1:
            raise UserError("This run is being worked on: wait for it or cancel it, then delete it.")
        if busy:
            what = "One of these runs is busy" if len(busy) == 1 else f"{len(busy)} of these runs are busy"
            raise UserError(f"{what}. Wait until the work ends or cancel the work, then delete the runs.", field="runs")
        self.workspace.runs.remove(*runs)

    @does("restore-runs", keeps=True)
    def restore_all(self, runs: _Several) -> None:
        """Restore several deleted runs."""
        self.workspace.runs.restore(*runs)

    @does("restore-run", RunCommand)
    def restore(self, run: str) -> OpenedRun:
        """Restore a deleted run."""
        self.workspace.runs.restore(run)
        return OpenedRun(run)

    @does("review", RunCommand)
    def review(
        self,
        run: str,
        case: CaseId,
        verdict: Annotated[Verdict, Field(description="The verdict; “open” withdraws an earlier one")],
        reason: Annotated[str, Field(description="Reason of a rejection")] = "",
    ) -> None:
        """Accept or reject a test case, or withdraw its verdict. Raises UserError for a test case of another run."""
        reviewed = case_of(self.workspace, run, case)
        reason = " ".join(reason.split()) if verdict == "rejected" else ""
        self.workspace.test_cases.review(reviewed.id, verdict, reason)

    @does("task", RunCommand)
    def set_task(
        self,
        run: str,
        kind: Annotated[TaskKind, Field(description="Kind of task of the model under test")],
        label: Annotated[str, Field(description="Label for classification: what the picture shows")] = "",
        protected: Annotated[
            Texts, Field(max_length=200, description="Protected classes for segmentation, as a list or with commas")
        ] = (),
    ) -> None:
        """Set the task of a run. An incomplete task is saved, but no stage runs before the task is complete."""
        if kind == "classification":
            task = Task(kind, label=" ".join(label.split()))
        else:
            names = [" ".join(name.split()) for name in protected]
            # A run that becomes a segmentation without protected classes gets those of the profile.
            if self.workspace.runs.get(run).task.kind != kind and not any(names):
                names = list(self.profile.tasks.protected)
            task = Task(kind, protected=tuple(dict.fromkeys(name for name in names if name)))
        self.workspace.runs.set_task(run, task)

    @does("recipe", RunCommand)
    def set_recipe(self, run: str, recipe: RecipeName) -> None:
        """Change the recipe of a run. The values of the stages stay. Raises UserError if the recipe is unknown, if the
        profile cannot draw it, or if the run is busy.
        """
        chosen = recipe_of(recipe)
        if refused := chosen.cannot_draw(self.profile):
            raise UserError(refused, field="recipe")
        self.jobs.require_idle(run)
        self.workspace.runs.set_recipe(run, chosen.name)

    def give_mask(self, run_id: str, data: bytes, classes: str) -> tuple[str, ...]:
        """Set a run's mask with `classes` such as "0 sky, 1 road". Return notes on corrections. Raises UserError."""
        run = self.workspace.runs.get(run_id)
        mask = read_mask(data, self.source(run).size, parse_classes(classes))
        self.workspace.runs.set_mask(run_id, mask.image, mask.classes)
        return mask.notes

    @does("mask-sample", RunCommand)
    def take_sample_mask(self, run: str) -> None:
        """Give a run the mask of its sample picture. Raises UserError if none exists."""
        stored = self.workspace.runs.get(run)
        sample = sample_of(self.samples, stored)
        if sample is None or sample.mask is None:
            raise UserError("There is no mask for this picture: upload a mask.")
        mask = read_mask(sample.mask.read_bytes(), self.source(stored).size, sample.classes)
        self.workspace.runs.set_mask(run, mask.image, mask.classes)

    @does("mask-classes", RunCommand)
    def name_mask_classes(
        self,
        run: str,
        classes: Annotated[str, Field(description="The number and the name of each class, such as: 0 sky, 1 road")],
    ) -> None:
        """Rename the classes of a run's mask. Raises UserError if there is no mask, or if a class gets no name."""
        sha = self.workspace.runs.get(run).mask_sha
        if sha is None:
            raise UserError("There is no mask yet: upload one first.")
        mask = with_own_numbers(self.workspace.images.load(sha), parse_classes(classes))
        self.workspace.runs.set_mask(run, mask.image, mask.classes)

    @does("delete-mask", RunCommand)
    def delete_mask(self, run: str) -> None:
        """Delete the mask of a run."""
        self.workspace.runs.set_mask(run, None)


def case_of(workspace: Workspace, run_id: str, case_id: int) -> StoredTestCase:
    """Return a test case of a run. Raises UserError if the run does not have it."""
    for case in workspace.runs.get(run_id).test_cases:
        if case.id == case_id:
            return case
    raise UserError("This test case is not of this run: choose a test case of this run.", field="case")


def task_problem(task: Task) -> str:
    """Return one sentence on what a task lacks; "" if the task is complete."""
    return next((check.note for check in failed(task_checks(task))), "")


def require_task(run: Run) -> None:
    """Raise UserError, naming what is missing, if the task of a run is incomplete."""
    if missing := task_problem(run.task):
        raise UserError(missing)
