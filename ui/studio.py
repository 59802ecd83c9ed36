"""The studio behind the page: profile, models, workspace, worker, and what the page reads of them. No Gradio, no HTML.

What is saved comes from the workspace and what goes on from `jobs`, so every page, reloaded or second, sees the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any

from PIL import Image
from pydantic import ValidationError

from pipeline.checks import task_checks
from pipeline.errors import UnreadableReply, UserError
from pipeline.freshness import image_sha, inputs_key, stale_stages, with_maker
from pipeline.images import read_image
from pipeline.profile import Profile
from pipeline.prompting import PromptError, PromptSet, edited_prompts
from pipeline.runner import ModelBox, Runner
from pipeline.settings import Settings
from pipeline.speed import effort_of
from pipeline.types import (
    Alternatives,
    StageName,
    StageValue,
    Task,
    TextValue,
    Trace,
)
from storage.types import Run, RunSummary
from storage.workspace import Workspace
from ui.controls import Controls
from ui.gate import gate_of
from ui.jobs import Jobs
from ui.likenesses import Likenesses
from ui.outdated import Outdated
from ui.previews import Previews
from ui.readings import Readings
from ui.run_state import Problem, Refused, RunState
from ui.samples import Sample, read_samples
from ui.versions import Writers

LISTED_RUNS = 60


class Studio:
    """One profile on one workspace. All methods may be called from any thread; the workspace is open."""

    def __init__(self, profile: Profile, models: ModelBox, workspace: Workspace) -> None:
        self.profile, self.workspace = profile, workspace
        self.runner = Runner(profile, models)
        self.samples = read_samples(profile.samples_folder())
        self.jobs = Jobs()
        self.readings = Readings(profile, workspace, self.jobs)
        self.likenesses = Likenesses(self.runner, self.jobs)
        self.writers = Writers()
        """Of the versions of values."""
        self.state_writers = Writers()
        """Of the states of runs: their settings and prompts."""
        self.editing = threading.RLock()
        """Held from reading a value to saving what a person made of it."""
        self._notices: dict[tuple[str, StageName], str] = {}
        self._problems: dict[tuple[str, StageName], Problem] = {}
        self._model_names = model_names(profile)
        self._lock = threading.Lock()
        self._warmed = False
        self.previews = Previews()
        self.controls = Controls(workspace)
        self.outdated = Outdated(workspace)
        self.pixels = lru_cache(maxsize=256)(self._pixels)
        self.size = lru_cache(maxsize=256)(self._size)

    def close(self) -> None:
        """Stop the work that is going on; the workspace stays open."""
        self.jobs.close()

    # What the page shows

    def runs(self) -> tuple[RunSummary, ...]:
        """The latest runs, the one that was worked on last first."""
        return self.workspace.runs(LISTED_RUNS)

    def state(self, run_id: str) -> RunState:
        """All of a run. Raises UserError for an unknown one."""
        run = self.workspace.run(run_id)
        settings = self.settings(run)
        stale = self.stale(run, settings)
        with self._lock:
            problems = {stage: problem for (held, stage), problem in self._problems.items() if held == run_id}
            notices = {stage: text for (held, stage), text in self._notices.items() if held == run_id}
        stored = run.values.get("alternatives")
        histories = {stage: self.workspace.history(run_id, stage) for stage in run.values}
        size = self.size(run.source_sha)
        other_mask = self.outdated.of_another_mask(run, size)
        return RunState(
            run=run,
            settings=settings,
            stale=stale,
            problems=problems,
            histories=histories,
            job=self.jobs.of_run(run_id),
            gate=gate_of(self.runner, run, settings, stale, size, self._warmed, other_mask),
            control_there=self.controls.has(run, settings),
            outdated=self.outdated.reasons(run, size),
            model_names=self._model_names,
            notices=notices,
            prompts=self.prompts(run),
            earlier_prompts=self.workspace.prompt_states(run_id),
            alternatives=self.likenesses.filled(stored.value.value if stored else Alternatives(()), run.task),
        )

    def settings(self, run: Run) -> Settings:
        """The settings of a run; those of the profile where they were saved by a version with other ones."""
        try:
            return Settings.model_validate(run.settings)
        except ValidationError:
            return self.profile.settings

    def stale(self, run: Run, settings: Settings) -> dict[StageName, str]:
        """The outdated stages of a run, and why."""
        held = {stage: stored.value for stage, stored in run.values.items()}
        return stale_stages(
            run.task, self.pixels(run.source_sha), held, settings, self.runner.makers(self.prompts(run))
        )

    def prompts(self, run: Run) -> PromptSet:
        """The prompts of a run; those of the profile where what was saved does not fit them any more."""
        try:
            return edited_prompts(self.runner.prompts, {str(stage): text for stage, text in run.prompts.items()})
        except PromptError:
            return self.runner.prompts

    # What the work needs

    def source(self, run: Run) -> Image.Image:
        """The source image of a run."""
        return self.workspace.image(run.source_sha)

    def key(self, stage: StageName, run: Run, settings: Settings) -> str:
        """The key of what a stage would read now."""
        values: dict[StageName, TextValue] = {name: stored.value.value for name, stored in run.values.items()}
        try:
            return inputs_key(stage, run.task, self.pixels(run.source_sha), values, settings)
        except KeyError as missing:
            name = missing.args[0]
            raise UserError(
                f"There is nothing at the stage “{name}” yet, which this one reads: run the stages before it."
            ) from missing

    def seed_of(self, run: Run, stage: StageName) -> int:
        """The seed of the next try of a text stage: as many as the model has had, so that every try is another one."""
        if stage not in run.values:
            return 0
        return sum(version.author == "model" for version in self.workspace.history(run.id, stage))

    def save_by_person(self, run: Run, stage: StageName, value: Any) -> int | None:
        """Save what a person made of a stage's value; returns its id, or None when it is what was there.

        What was stale stays so: `keep` says otherwise.
        """
        settings = self.settings(run)
        held = run.values.get(stage)
        stale = held is not None and stage in self.stale(run, settings)
        key = held.value.inputs_key if held is not None and stale else self.key(stage, run, settings)
        version = None
        if held is None or held.value.value != value:
            version = self.workspace.append_value(run.id, stage, StageValue(value, Trace(author="person"), key))
        self.solved(run.id, stage)
        return version

    def append_by_model(self, run: Run, stage: StageName, value: Any, trace: Trace) -> None:
        """Save what a model added to a stage's value. What was stale stays so."""
        settings = self.settings(run)
        held = run.values.get(stage)
        if held is not None and stage in self.stale(run, settings):
            key = held.value.inputs_key
        else:
            key = with_maker(self.key(stage, run, settings), self.runner.makers(self.prompts(run))[stage])
        self.workspace.append_value(run.id, stage, StageValue(value, trace, key))

    def keep(self, run: Run, stage: StageName) -> None:
        """A person says that a stale value still fits: it is saved again, as made from what stands before it now."""
        held = run.values.get(stage)
        if held is None:
            raise UserError("There is nothing to keep at this stage yet: run it first.")
        key = self.key(stage, run, self.settings(run))
        self.workspace.append_value(run.id, stage, StageValue(held.value.value, Trace(author="person"), key))
        self.solved(run.id, stage)

    def failed(self, run_id: str, stage: StageName, error: UserError) -> None:
        """Remember what went wrong at a stage."""
        problem = error.problem if isinstance(error, Refused) else Problem(str(error))
        if isinstance(error, UnreadableReply):
            problem = Problem(str(error), error.prompt, error.raw_reply)
        with self._lock:
            self._problems[run_id, stage] = problem

    def tell(self, run_id: str, stage: StageName, text: str) -> None:
        """Say something at a stage, until it is edited again."""
        with self._lock:
            self._notices[run_id, stage] = text

    def solved(self, run_id: str, *stages: StageName) -> None:
        """Forget what went wrong or was said there."""
        with self._lock:
            for stage in stages:
                self._problems.pop((run_id, stage), None)
                self._notices.pop((run_id, stage), None)

    # New runs

    def run_from_sample(self, name: str) -> str:
        """A new run from a sample. Raises UserError when there is none of this name."""
        sample = self.sample(name)
        picture = read_image(sample.path)
        return self._new(picture.image, sample.task, sample.name, picture.notes, sample.name)

    def run_from_upload(self, data: bytes, file_name: str) -> str:
        """A new run from the bytes of a file. Raises UserError for what is no usable picture; then there is no run."""
        picture = read_image(data)
        task = Task("classification") if self.profile.tasks.labels else Task("segmentation", protected=())
        name = file_name.rsplit(".", 1)[0].strip()[:80] or "upload"
        return self._new(picture.image, task, name, picture.notes, "")

    def sample(self, name: str) -> Sample:
        """A sample by its name. Raises UserError."""
        for sample in self.samples:
            if sample.name == name:
                return sample
        raise UserError(f"There is no sample {name[:80]!r}: pick one of those shown.")

    def _new(self, image: Image.Image, task: Task, name: str, notes: tuple[str, ...], sample: str) -> str:
        settings = self.profile.settings.model_dump(mode="json")
        return self.workspace.create_run(image, task, self.profile.name, name, settings, notes, sample)

    # Speed

    def warm_up(self, steps: Mapping[str, Callable[[], None]]) -> None:
        """Line up what makes the first stage quick, once, and only where nothing has to be fetched for it."""
        with self._lock:
            if self._warmed or any(weights.local() is None for weights in self.profile.weights().values()):
                return
            self._warmed = True
        for name, step in steps.items():
            self.jobs.when_idle(name, step)

    def seconds_per_image(self, run: Run, settings: Settings) -> float | None:
        """What an image of a run is likely to take; None when nothing was measured."""
        return self.runner.speeds.seconds(effort_of(settings.generation, self.size(run.source_sha)))

    def _pixels(self, source_sha: str) -> str:
        """The sha of a source image's pixels, by which the stages know it; that of the file is another one."""
        return image_sha(self.workspace.image(source_sha))

    def _size(self, source_sha: str) -> tuple[int, int]:
        """Width and height of a source image."""
        with Image.open(self.workspace.image_path(source_sha)) as image:
            return image.size


def model_names(profile: Profile) -> dict[str, str]:
    """The kind of each model whose weights are a path: a path says little to a person."""
    kinds = {
        "blip": "BLIP",
        "blip-2": "BLIP-2",
        "llama-gguf": "LLaMA",
        "stable-diffusion-controlnet": "Stable Diffusion",
    }
    names = {
        section.title: kinds.get(section.kind, section.kind)
        for section in (profile.captioner, profile.language, profile.generator)
        if section.local() is not None
    }
    nets = profile.generator.controlnets.values()
    return names | {net.title: "ControlNet" for net in nets if net.local() is not None}


def task_problem(task: Task) -> str:
    """What the task lacks, in one sentence; "" when it is whole."""
    return next((check.note for check in task_checks(task) if not check.passed), "")


def clock(moment: datetime) -> str:
    """The time of day on this machine, such as 10:42:07."""
    return moment.astimezone().strftime("%H:%M:%S")
