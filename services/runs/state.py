"""The state of one run for a page: stored values, jobs, problems and stale stages."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from core.errors import CannotLoad, UnreadableReply, UserError
from core.lineage import Failure
from core.masks import NO_MASK, InMask, NamedMask, in_mask
from core.run_steps import RunSteps
from core.settings import ConditioningSettings, ControlKind, Settings
from core.stored_runs import Run, StoredState, StoredValue
from core.types import Alternative, Alternatives, Check, CounterfactualCaption, Keyword, KeywordAlternatives, StageName
from pipeline.checks.texts import alternative_checks, caption_checks, counterfactual_checks, keyword_checks
from pipeline.profiles.profile import Profile
from pipeline.prompting import PromptSet
from pipeline.recipes import Recipe, recipe_of, recipes_for
from services.commands import RunCommand
from services.jobs import JobView
from services.runs.estimates import Estimates
from services.runs.gate import Gate, Outdated, classes_of, gate_of
from services.runs.life_cycle import RunService
from services.runs.live_images import ControlImages
from services.runs.similarity import Similarities
from services.runs.words import section_title


@dataclass(frozen=True)
class Problem:
    """An error at a stage. The page shows it until the person tries again."""

    text: str
    prompt: str = ""
    raw_reply: str = ""
    """The model's unreadable reply; "" if there was none."""
    insist: RunCommand | None = None
    """The command that forces the refused edit; None if it cannot be forced."""
    of: str = ""
    """Description of the run's state when the problem arose; it is shown in no other state. "" to show it always."""
    cannot_load: bool = False
    """True if the stage's model cannot be loaded, for example because there is no network."""


class CanBeInsistedOn(UserError):
    """Raised for a command that is probably a mistake. If the person wants it anyway, `insist` carries it out."""

    def __init__(self, text: str, insist: RunCommand) -> None:
        super().__init__(text)
        self.insist = insist


class StageNotes:
    """Problems and notices at the stages of runs, kept until solved or the server stops. Thread-safe."""

    def __init__(self) -> None:
        self._notices: dict[tuple[str, StageName], str] = {}
        self._problems: dict[tuple[str, StageName], Problem] = {}
        self._failures: dict[tuple[object, ...], Failure] = {}
        self._lock = threading.Lock()

    def problems(self, run_id: str) -> dict[StageName, Problem]:
        """Return the problems of a run, by stage."""
        with self._lock:
            return {stage: problem for (of_run, stage), problem in self._problems.items() if of_run == run_id}

    def notices(self, run_id: str) -> dict[StageName, str]:
        """Return the notices of a run, by stage."""
        with self._lock:
            return {stage: text for (of_run, stage), text in self._notices.items() if of_run == run_id}

    def failed(self, run_id: str, stage: StageName, error: UserError, of: str = "") -> None:
        """Record an error at a stage. Show it only while the run's state matches `of`, or always if `of` is ""."""
        insist = error.insist if isinstance(error, CanBeInsistedOn) else None
        problem = Problem(str(error), insist=insist, of=of, cannot_load=isinstance(error, CannotLoad))
        if isinstance(error, UnreadableReply):
            problem = Problem(str(error), error.prompt, error.raw_reply)
        with self._lock:
            self._problems[run_id, stage] = problem

    def tell(self, run_id: str, stage: StageName, text: str) -> None:
        """Show a notice at a stage until the stage is edited or run again."""
        with self._lock:
            self._notices[run_id, stage] = text

    def failures(self, run_id: str) -> tuple[Failure, ...]:
        """Return the failed images and text stages of a run."""
        with self._lock:
            return tuple(failure for (of_run, *_), failure in self._failures.items() if of_run == run_id)

    def not_made(self, run_id: str, failure: Failure) -> None:
        """Record that an image or a text stage of a run failed."""
        with self._lock:
            self._failures[run_id, *failure.what] = failure

    def solved(self, run_id: str, *stages: StageName) -> None:
        """Forget problems and notices of these stages."""
        with self._lock:
            for stage in stages:
                self._problems.pop((run_id, stage), None)
                self._notices.pop((run_id, stage), None)


Presets = Mapping[str, Mapping[str, Any]]
"""Generation settings that each preset changes, by the preset's name."""


@dataclass(frozen=True)
class ProfileOptions:
    """The part of a profile that a page shows."""

    name: str
    title: str
    notice: str
    """Notice for a picture of a kind that the models do not know; "" for none."""
    labels: tuple[str, ...]
    """Examples of labels, for classification."""
    control_kinds: tuple[ControlKind, ...]
    """Kinds of control image that the generator supports."""
    conditioning: ConditioningSettings
    """Default settings of the control image."""
    presets: Presets
    stages: tuple[str, ...]
    """Titles of the stages of a new run, with the generation last."""


def profile_options(profile: Profile) -> ProfileOptions:
    """Return the part of a profile that a page shows."""
    return ProfileOptions(
        profile.name,
        profile.title,
        profile.notice,
        profile.tasks.labels,
        tuple(profile.generator.controlnets),
        profile.settings.conditioning,
        {name: profile.preset(name) for name in profile.presets},
        (*(stage.title for stage in recipe_of(profile.first_recipe).stages), section_title("generation")),
    )


@dataclass(frozen=True)
class RunState:
    """The state of one run for a page."""

    run: Run
    source_size: tuple[int, int]
    """Width and height of the source image."""
    recipe: Recipe
    recipes: tuple[Recipe, ...]
    """All recipes that the profile offers and can run."""
    settings: Settings
    stale: dict[StageName, str]
    problems: dict[StageName, Problem]
    histories: dict[StageName, tuple[StoredValue, ...]]
    job: JobView | None
    """The run's latest job since the server was started; None if there was none."""
    gate: Gate
    control_there: bool
    """True if the control image can be shown. False if a model must draw it first, on request."""
    outdated: Mapping[int, str]
    """Reason, in a few words, why a test case is outdated, by the id of the test case."""
    model_names: Mapping[str, str]
    """Names to show for models whose title is a path, by title."""
    notices: dict[StageName, str]
    """Notices by stage. Each stays until its stage is edited or run again."""
    prompts: PromptSet
    earlier_prompts: tuple[StoredState, ...]
    """States of the run in which its prompts changed, oldest first."""
    alternatives: Alternatives
    """The run's alternatives, with all similarities measured so far."""
    generator_runs: str = ""
    """Words that say on which device the drawing model runs, and why on this one; "" until the device is known."""
    unknown_picture: str = ""
    """Notice on a source image of a kind that the profile's models do not know; "" for other images."""
    steps: RunSteps = field(default_factory=RunSteps)
    """History of the steps that changed the run, for undo and redo."""

    @property
    def active(self) -> bool:
        """Return True while a job on the run waits or runs."""
        return self.job is not None and self.job.active

    @property
    def caption(self) -> str:
        """Return the caption of the source; "" if the run has none, or if its recipe reads none."""
        return self.recipe.source_caption({name: stored.value.value for name, stored in self.run.values.items()})

    def caption_checks(self) -> tuple[Check, ...]:
        """Return the checks of the source caption."""
        return caption_checks(self.caption, self.run.task)

    def keyword_checks(self, keyword: Keyword) -> tuple[Check, ...]:
        """Return the checks of a keyword."""
        return keyword_checks(keyword.text, self.caption, self.run.task, keyword.forced)

    def alternative_checks(self, row: KeywordAlternatives, option: Alternative) -> tuple[Check, ...]:
        """Return the checks of `option`, an alternative of the keyword of `row`."""
        return alternative_checks(row.keyword, option.text, self.run.task, row.forced)

    def counterfactual_checks(self, counterfactual: CounterfactualCaption) -> tuple[Check, ...]:
        """Return the checks of a counterfactual caption against the source caption."""
        return counterfactual_checks(self.caption, counterfactual, self.run.task)

    def can_undo(self, stage: StageName) -> bool:
        """Return True if the last change to the value of a stage is a person's edit."""
        return self.steps.edit_of(stage) is not None


class RunStates:
    """Reads the whole state of a run. Thread-safe."""

    def __init__(self, runs: RunService, notes: StageNotes) -> None:
        self._runs, self._workspace, self._driver, self._jobs = runs, runs.workspace, runs.driver, runs.jobs
        self.estimates, self.control_images = Estimates(runs), ControlImages(runs.workspace)
        self.similarities = Similarities(runs.driver.models, runs.jobs)
        self._notes, self._outdated = notes, Outdated(runs.workspace)
        self._model_names = model_names(runs.profile)
        load = runs.workspace.images.load
        self._masks = lru_cache(maxsize=64)(lambda sha, of, task: in_mask(NamedMask(load(sha), dict(of)), task))

    def of(self, run_id: str) -> RunState:
        """Return the state of a run. Raises UserError for an unknown one."""
        run = self._workspace.runs.get(run_id)
        recipe, settings = recipe_of(run.recipe), self._runs.settings(run)
        stale = self._runs.stale(run, settings)
        stored = run.values.get("alternatives")
        size = self._runs.size(run.source_sha)
        prompts = self._runs.prompts(run)
        other_mask = self._outdated.of_another_mask(run, size)
        failures, warming_up = self._notes.failures(run_id), self.estimates.warming_up
        return RunState(
            run=run,
            source_size=size,
            recipe=recipe,
            recipes=recipes_for(self._runs.profile),
            settings=settings,
            stale=stale,
            problems={
                stage: problem
                for stage, problem in self._notes.problems(run_id).items()
                if problem.of in ("", self._now(run))
            },
            # Also of stages that are empty now: their earlier values can be restored.
            histories={
                stage: self._workspace.runs.history(run_id, stage)
                for stage in dict.fromkeys((*recipe.names, *run.values))
            },
            job=self._jobs.of_run(run_id),
            gate=gate_of(
                self._driver, run, settings, prompts, stale, size, warming_up, other_mask, failures, self._in_mask(run)
            ),
            control_there=self.control_images.has(run, settings),
            outdated=self._outdated.reasons(run, size),
            model_names=self._model_names,
            notices=self._notes.notices(run_id),
            prompts=prompts,
            earlier_prompts=self._workspace.runs.prompt_states(run_id),
            alternatives=self.similarities.filled(stored.value.value if stored else Alternatives(()), run.task),
            generator_runs=recipe.drawing_method.runs(self._driver.models),
            unknown_picture=self._runs.notice(run.source_sha),
            steps=self._workspace.steps.of(run_id),
        )

    def _in_mask(self, run: Run) -> InMask:
        if run.mask_sha is None:
            return NO_MASK
        try:
            return self._masks(run.mask_sha, classes_of(run), run.task)
        except UserError:  # a missing or damaged file, which the page reports elsewhere
            return NO_MASK

    def refused(self, run_id: str, stage: StageName, error: UserError) -> None:
        """Show the error of a refused command at a stage until the run changes: the command may be allowed then."""
        self._notes.failed(run_id, stage, error, self._now(self._workspace.runs.get(run_id)))

    def _now(self, run: Run) -> str:
        values = [stored.id for stored in run.values.values()]
        job = self._jobs.of_run(run.id)
        return f"{run.state} {values} {len(run.test_cases)} {job.id if job is not None and job.active else ''}"


def model_names(profile: Profile) -> dict[str, str]:
    """Return the family name of each model with local weights, by path. Pages show the name instead of the path."""
    used = profile.weights().values()
    return {weights.title: weights.family for weights in used if weights.family and weights.local() is not None}
