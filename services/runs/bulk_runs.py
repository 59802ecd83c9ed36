"""Acts on several runs at once: one task and settings for all, their text stages, and approval of all gates.

Each run stays independent; a refusal is reported for its run, and the others go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pydantic import BeforeValidator, Field

from core.errors import UserError
from core.types import TaskKind
from services.commands import Command, Commands, RunCommand, RunIds, Texts, does, parts_of
from services.runs.execution import Execution, Generate, RunUpToGate
from services.runs.life_cycle import RunService, SetRecipe, SetTask, task_problem
from services.runs.settings import ChangeSetting, DefaultSettings, RunSettings, TakePreset
from services.runs.state import RunState, RunStates

C = TypeVar("C", bound=RunCommand)

MOST_TOGETHER = 200
SHARED = ("counterfactuals.captions", "generation.images_per_caption", "generation.steps")
"""Settings shown at the top of the form for several runs."""


class TogetherCommand(Command):
    """An act on several runs."""

    runs: RunIds = Field(min_length=1, max_length=MOST_TOGETHER, description="The ids of the runs")


class TaskTogether(TogetherCommand, name="together-task"):
    """Set the task of the model under test for several runs."""

    kind: TaskKind = Field(description="What the model under test does")
    label: str | None = Field(None, description="What the pictures show; for classification; none: each keeps its own")
    protected: Annotated[tuple[str, ...] | None, BeforeValidator(parts_of)] = Field(
        None,
        max_length=200,
        description="The classes that must stay, as a list or with commas between; for segmentation; none: as they are",
    )


class SettingTogether(TogetherCommand, name="together-setting"):
    """Change one setting of several runs."""

    setting: str = Field(max_length=100, description="Section and name, such as generation.steps")
    value: bool | int | float | str = Field(description="Its new value; text is read as the kind that the setting has")


class PresetTogether(TogetherCommand, name="together-preset"):
    """Apply a preset of the profile to several runs; settings outside it stay."""

    preset: str = Field(max_length=100, description="The name of the preset")


class DefaultsTogether(TogetherCommand, name="together-defaults"):
    """Reset sections of the settings of several runs to the profile's."""

    sections: Texts = Field(max_length=20, description="The sections, as a list or with commas between")


class RecipeTogether(TogetherCommand, name="together-recipe"):
    """Change the recipe of several runs: their values stay."""

    recipe: str = Field(max_length=80, description="The name of the recipe")


class RunTogether(TogetherCommand, name="together-run"):
    """Run the empty or stale text stages of several runs, one run after another."""


class GenerateTogether(TogetherCommand, name="together-generate"):
    """Approve the gates of several runs: their images are made, one run after another."""

    shown: str = Field("", max_length=40, description="What was shown, by its name; empty: whatever they show now")


@dataclass(frozen=True)
class DoneTogether:
    """Result for each run."""

    done: tuple[str, ...]
    """Ids of the runs for which the command was done, or begun."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why it was not done, in one sentence, by run id."""


@dataclass(frozen=True)
class TogetherState:
    """State of several runs, for a page."""

    runs: tuple[RunState, ...]
    """In the requested order, without unknown or deleted runs."""
    images: int
    """Number of images that approval of all gates would make."""
    seconds: float | None
    """Seconds that it takes; None if unknown."""
    shown: str
    """A hash of all images that approval would make; "" for none."""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(state.run.id for state in self.runs)

    def ready(self) -> tuple[RunState, ...]:
        """Return the runs that no job uses and that have text stages to run."""
        return tuple(state for state in self.runs if _todo(state) and not state.active)


class BulkRuns:
    """Several runs of one workspace. All methods may be called from any thread."""

    def __init__(self, runs: RunService, settings: RunSettings, states: RunStates, execution: Execution) -> None:
        self._workspace, self._runs, self._settings = runs.workspace, runs, settings
        self._states, self._execution = states, execution

    def register(self, commands: Commands) -> None:
        commands.add(SettingTogether, self._in_each(ChangeSetting, self._settings.change_setting))
        commands.add(PresetTogether, self._in_each(TakePreset, self._settings.take_preset))
        commands.add(DefaultsTogether, self._in_each(DefaultSettings, self._settings.put_defaults_back))
        commands.add(RecipeTogether, self._in_each(SetRecipe, self._runs.set_recipe))

    def of(self, run_ids: Sequence[str]) -> TogetherState:
        """Return the state of these runs for a page, without unknown or deleted ones."""
        known = [run_id for run_id in dict.fromkeys(run_ids[:MOST_TOGETHER]) if self._workspace.runs.exists(run_id)]
        states = tuple(state for state in map(self._states.of, known) if not state.run.removed)
        plans = [state.gate.plan for state in states if state.gate.plan is not None and _may_draw(state)]
        seconds = [plan.seconds for plan in plans]
        return TogetherState(
            runs=states,
            images=sum(len(plan.images) for plan in plans),
            seconds=None if None in seconds else sum(one for one in seconds if one is not None),
            shown=_name_of(states) if plans else "",
        )

    @does
    def set_task(self, command: TaskTogether) -> DoneTogether:
        """Set the task; fields that are None stay as they are in each run."""

        def set_one(run_id: str) -> None:
            task = self._workspace.runs.get(run_id).task
            label = task.label if command.label is None else command.label
            protected = task.protected if command.protected is None else command.protected
            self._runs.set_task(SetTask(run=run_id, kind=command.kind, label=label, protected=protected))

        return self._each(command.runs, set_one)

    @does
    def run(self, command: RunTogether) -> DoneTogether:
        known = self._workspace.runs.exists
        unfinished = [run_id for run_id in command.runs if not known(run_id) or _todo(self._states.of(run_id))]
        if not unfinished:
            raise UserError("All stages of these runs are done already: approve the images, or change something.")
        return self._each(unfinished, lambda run_id: self._execution.run_up_to_gate(RunUpToGate(run=run_id)))

    @does
    def generate(self, command: GenerateTogether) -> DoneTogether:
        """Draw the images of several runs. Raises UserError if the gates are closed, or show something else now."""
        with self._runs.changing:
            state = self.of(command.runs)
            if not state.shown:
                raise UserError("None of these runs has captions to draw yet: run their stages first.")
            if command.shown not in ("", state.shown):
                raise UserError("The planned images changed after they were shown: check them and approve again.")
            ids = [one.run.id for one in state.runs if one.gate.plan is not None and _may_draw(one)]
            return self._each(ids, lambda run_id: self._execution.generate(Generate(run=run_id)))

    def _in_each(self, single: type[C], do: Callable[[C], object]) -> Callable[[TogetherCommand], DoneTogether]:
        """Return a function that calls `do` for each run, with a command of the same fields."""

        def together(sent: TogetherCommand) -> DoneTogether:
            fields = sent.model_dump(exclude={"runs"})
            return self._each(sent.runs, lambda run_id: do(single.of({**fields, "run": run_id})))

        return together

    def _each(self, run_ids: Sequence[str], do: Callable[[str], object]) -> DoneTogether:
        """Call `do` for each run, and collect the errors. Raises the first UserError if it succeeds with no run."""
        done, refused, first = [], {}, None
        for run_id in dict.fromkeys(run_ids):
            try:
                do(run_id)
                done.append(run_id)
            except UserError as error:
                first = first or error
                refused[run_id] = str(error)
        if first is not None and not done:
            raise first
        return DoneTogether(tuple(done), refused)


def _todo(state: RunState) -> bool:
    return any(stage not in state.run.values or stage in state.stale for stage in state.recipe.names)


def _may_draw(state: RunState) -> bool:
    return not state.active and not task_problem(state.run.task)


def _name_of(states: Sequence[RunState]) -> str:
    shown = [(state.run.id, state.gate.shown) for state in states if _may_draw(state)]
    return hashlib.sha256(repr(sorted(shown)).encode()).hexdigest()[:20]
