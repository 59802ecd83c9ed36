"""Commands on several runs at once: set a task or settings for all, run their text stages, and approve all gates.

The runs stay independent of each other. If a command fails for one run, the error is reported for this run, and the
command is still done for the other runs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import BeforeValidator, Field

from core.errors import UserError
from core.types import TaskKind
from services.commands import Command, RunIds, does, parts_of
from services.edit_conflicts import StateEdit
from services.runs.execution import Execution
from services.runs.life_cycle import RecipeName, RunService, ShownImages, task_problem
from services.runs.settings import (
    ChangeSetting,
    DefaultSettings,
    PresetName,
    RunSettings,
    Sections,
    SettingName,
    SettingValue,
)
from services.runs.state import RunState, RunStates

MOST_TOGETHER = 200


class TogetherCommand(Command):
    """A command on several runs."""

    runs: RunIds = Field(min_length=1, max_length=MOST_TOGETHER, description="The ids of the runs")


@dataclass(frozen=True)
class DoneTogether:
    """Result of a command on several runs."""

    done: tuple[str, ...]
    """Ids of the runs for which the command was done. Work on a run may still be queued."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Maps the id of each run on which the command was not done to the reason, in one sentence."""


@dataclass(frozen=True)
class TogetherState:
    """State of several runs, for a page."""

    runs: tuple[RunState, ...]
    """The runs in the requested order, without unknown or deleted ones."""
    images: int
    """Number of images that would be made if all gates were approved."""
    seconds: float | None
    """Estimated seconds to make these images; None if unknown."""
    shown: str
    """A hash of the images planned in these runs, to detect later changes; "" if no run has a plan to approve."""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(state.run.id for state in self.runs)

    def ready(self) -> tuple[RunState, ...]:
        """Return the runs that have empty or stale text stages and no waiting or running job."""
        return tuple(state for state in self.runs if _todo(state) and not state.active)


class BulkRuns:
    """The commands on several runs of one workspace. All methods may be called from any thread."""

    def __init__(self, runs: RunService, settings: RunSettings, states: RunStates, execution: Execution) -> None:
        self._workspace, self._runs, self._settings = runs.workspace, runs, settings
        self._states, self._execution = states, execution

    def of(self, run_ids: Sequence[str]) -> TogetherState:
        """Return the state of these runs, at most `MOST_TOGETHER`, without unknown or deleted ones."""
        known = [run_id for run_id in dict.fromkeys(run_ids[:MOST_TOGETHER]) if self._workspace.runs.exists(run_id)]
        states = tuple(state for state in map(self._states.of, known) if not state.run.removed)
        plans = [state.gate.plan for state in states if state.gate.plan is not None and _may_draw(state)]
        seconds = [plan.seconds for plan in plans]
        shown = sorted((state.run.id, state.gate.shown) for state in states if _may_draw(state))
        return TogetherState(
            runs=states,
            images=sum(len(plan.images) for plan in plans),
            seconds=None if None in seconds else sum(one for one in seconds if one is not None),
            shown=hashlib.sha256(repr(shown).encode()).hexdigest()[:20] if plans else "",
        )

    @does("together-setting", TogetherCommand)
    def change_setting(self, runs: RunIds, setting: SettingName, value: SettingValue) -> DoneTogether:
        """Change one setting of several runs."""
        change = self._settings.change_setting
        return self._each(runs, lambda run_id: change(ChangeSetting(run=run_id, setting=setting, value=value)))

    @does("together-preset", TogetherCommand)
    def take_preset(self, runs: RunIds, preset: PresetName) -> DoneTogether:
        """Apply a preset of the profile to several runs. Settings that the preset does not name stay as they are."""
        return self._each(runs, lambda run_id: self._settings.take_preset(StateEdit(run=run_id), preset))

    @does("together-defaults", TogetherCommand)
    def put_defaults_back(self, runs: RunIds, sections: Sections) -> DoneTogether:
        """Reset settings of several runs, by section, to the values in the profile."""
        put_back = self._settings.put_defaults_back
        return self._each(runs, lambda run_id: put_back(DefaultSettings(run=run_id, sections=sections)))

    @does("together-recipe", TogetherCommand)
    def set_recipe(self, runs: RunIds, recipe: RecipeName) -> DoneTogether:
        """Change the recipe of several runs. The values of their stages stay."""
        return self._each(runs, lambda run_id: self._runs.set_recipe(run_id, recipe))

    @does("together-task", TogetherCommand)
    def set_task(
        self,
        runs: RunIds,
        kind: Annotated[TaskKind, Field(description="Kind of task of the model under test")],
        label: Annotated[
            str | None,
            Field(description="Label for classification: what the pictures show; null keeps each run's label"),
        ] = None,
        protected: Annotated[
            tuple[str, ...] | None,
            BeforeValidator(parts_of),
            Field(
                max_length=200,
                description="Protected classes for segmentation, as a list or with commas; null keeps each run's",
            ),
        ] = None,
    ) -> DoneTogether:
        """Set the task of the model under test for several runs: a label to classify, or classes to segment."""

        def set_one(run_id: str) -> None:
            task = self._workspace.runs.get(run_id).task
            classes = task.protected if protected is None else protected
            self._runs.set_task(run_id, kind, task.label if label is None else label, classes)

        return self._each(runs, set_one)

    @does("together-run", TogetherCommand)
    def run(self, runs: RunIds) -> DoneTogether:
        """Run the empty or stale text stages of several runs, one run after another. If the models do not fit into
        memory together, the stages of one model run for all runs before the stages of the next model.
        """
        known = self._workspace.runs.exists
        unfinished = [run_id for run_id in runs if not known(run_id) or _todo(self._states.of(run_id))]
        if not unfinished:
            raise UserError("All stages of these runs are done already: approve the images, or change something.")
        return self._each(unfinished, self._execution.run_among_others)

    @does("together-generate", TogetherCommand)
    def generate(self, runs: RunIds, shown: ShownImages = "") -> DoneTogether:
        """Approve the gates of several runs, so that their planned images are made, one run after another. Raises
        UserError if all gates are closed, or if other images are planned now than were shown.
        """
        with self._runs.changing:
            state = self.of(runs)
            if not state.shown:
                raise UserError("None of these runs has captions to draw yet: run their stages first.")
            if shown not in ("", state.shown):
                raise UserError("The planned images changed after they were shown: check them and approve again.")
            ids = [one.run.id for one in state.runs if one.gate.plan is not None and _may_draw(one)]
            return self._each(ids, self._execution.generate)

    def _each(self, run_ids: Sequence[str], do: Callable[[str], object]) -> DoneTogether:
        """Call `do` for each run, and collect the errors. Raises the first UserError if `do` fails for all runs."""
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
