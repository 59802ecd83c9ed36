"""The commands to undo and redo the last step of a run. A step is an edit, new values of stages or another change.

Nothing is deleted: undo saves the earlier value again, and all values stay in the history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from core.errors import UserError
from core.run_steps import RunSteps, UndoStep
from core.types import StageName, stage_title
from pipeline.recipes import prompt_title, recipe_of, section_card, stage_of_prompt
from services.commands import KnownStage, RunCommand, does
from services.edit_conflicts import Tab
from services.runs.editing import Editing
from services.runs.life_cycle import RunService
from services.runs.settings import RunSettings
from services.runs.state import StageNotes
from storage.runs.undo import Way

_OF_THE_STATE = {"name": "name", "recipe": "recipe", "mask": "mask", "kind": "task", "protected": "protected classes"}
"""Words for the fields that a step can change. Other fields are called by their own name."""


@dataclass(frozen=True)
class Undone:
    """Result of an undo or a redo."""

    said: str
    again: str
    """The command that reverses this one: "undo" or "redo"."""


class Undoing:
    """The commands to undo and redo steps of one workspace's runs. All methods may be called from any thread."""

    def __init__(self, runs: RunService, notes: StageNotes, editing: Editing, settings: RunSettings) -> None:
        self._workspace, self._runs, self._jobs, self._notes = runs.workspace, runs, runs.jobs, notes
        self._editing, self._settings = editing, settings

    @does("undo", RunCommand)
    def undo(
        self,
        run: str,
        stage: Annotated[
            KnownStage | None, Field(description="Undo the last edit of this stage; null for the last step of any kind")
        ] = None,
        tab: Tab = "",
    ) -> Undone:
        """Undo the last step of a run: an edit, a stage's new values, a verdict, or a change of name, task or settings.
        Images stay. Raises UserError if there is no such step, or if the step changed the recipe and the run is busy.
        """
        with self._runs.changing:
            steps = self._workspace.steps.of(run)
            step = steps.next_undo if stage is None else self._edit_of(run, steps, stage)
            if step is None:
                what = "There is nothing to undo" if stage is None else "There is no edit of yours to undo here"
                raise UserError(f"{what}. Earlier values are in the history of each stage.")
            self._take(run, tab, step, "undo")
        return Undone(f"Taken back: {words_of(step)}.", "redo")

    @does("redo", RunCommand)
    def redo(self, run: str, tab: Tab = "") -> Undone:
        """Redo the step that was undone last, if nothing else was changed since. Raises the errors of `undo`."""
        with self._runs.changing:
            step = self._workspace.steps.of(run).next_redo
            if step is None:
                raise UserError("There is nothing to redo: only the last undone step can be redone.")
            self._take(run, tab, step, "redo")
        return Undone(f"Done again: {words_of(step)}.", "undo")

    def _edit_of(self, run_id: str, steps: RunSteps, stage: StageName) -> UndoStep | None:
        """Return the last edit of a stage that can be undone; None if the run's recipe lacks the stage."""
        return steps.edit_of(stage) if stage in recipe_of(self._workspace.runs.get(run_id).recipe).names else None

    def _take(self, run_id: str, tab: str, step: UndoStep, what: Way) -> None:
        """Undo or redo a step, and record that the page `tab` made this change. Remove the notes at the stages that the
        step changed. Raises UserError if the step changed the recipe and the run is busy.
        """
        if ("recipe",) in step.changed:
            self._jobs.require_idle(run_id)
        writes = {"value": self._editing.writes, "state": self._settings.writes}.get(step.kind)
        for row in self._workspace.steps.take(run_id, what, step.key):
            if writes is not None:
                writes.note(row, tab)
        cards = {section_card(path[1]) for path in step.changed if path[0] == "settings"}
        prompts = {stage_of_prompt(path[1]) for path in step.changed if path[0] == "prompts"}
        self._notes.solved(run_id, *step.stages, *prompts, *(card for card in cards if card is not None))


def words_of(step: UndoStep) -> str:
    """Return a few words that name a step, such as "the edit of “Keywords”"."""
    if step.kind == "review":
        return "the verdict on an image" if len(step.rows) == 1 else f"the verdicts on {len(step.rows)} images"
    if step.kind == "value":
        titles = " to ".join(f"“{stage_title(stage)}”" for stage in dict.fromkeys((step.stages[0], step.stages[-1])))
        return f"the edit of {titles}" if step.by_person else f"the run of {titles}"
    kinds = {path[0] for path in step.changed}
    if kinds == {"settings"}:
        name = step.changed[0][-1].replace("_", " ")
        return f"the setting “{name}”" if len(step.changed) == 1 else "the settings"
    if kinds == {"prompts"}:
        return f"the prompt of “{prompt_title(step.changed[0][1])}”"
    if kinds == {"task"}:
        fields = [path[-1] for path in step.changed]
        field = "kind" if "kind" in fields else fields[0]
        return f"the {_OF_THE_STATE.get(field, field)}"
    first = step.changed[0][0] if step.changed else ""
    return f"the {_OF_THE_STATE.get(first, 'last change')}"
