"""A person's changes to the values of the text stages. The rules of each edit are in `edits`.

A change always applies to the latest version of a value, even if the person saw an earlier one: see `edit_conflicts`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from core.errors import UserError
from core.stored_runs import Run
from core.types import StageName, StageValue, Trace, from_text
from pipeline.freshness import with_producer
from pipeline.recipes import recipe_of
from services.commands import Commands, KnownStage, RunCommand, does
from services.edit_conflicts import LARGEST_ID, PageWrites, Tab, ValueEdit, value_conflict
from services.runs import edits
from services.runs.life_cycle import RunService
from services.runs.state import CanBeInsistedOn, StageNotes

LONGEST_VALUE = 400_000
"""Maximum number of characters of a stage's value written as text."""


class Editing:
    """The commands to edit values of one workspace's runs. All methods may be called from any thread.

    Each raises UserError, and changes nothing, if the edit is not possible.
    """

    def __init__(self, runs: RunService, notes: StageNotes) -> None:
        self._workspace, self._runs, self._driver, self._notes = runs.workspace, runs, runs.driver, notes
        self.writes = PageWrites()
        """Remembers which page saved each version, so that a page is not warned of its own edits."""

    def register(self, commands: Commands) -> None:
        for kind, edit in edits.EDITS.items():
            commands.add(kind, partial(self._edit, edit))

    @does("dismiss", RunCommand)
    def dismiss(self, run: str, stage: KnownStage) -> None:
        """Dismiss the error or notice at a stage."""
        self._notes.solved(run, stage)

    @does("value", ValueEdit)
    def write_value(
        self,
        sent: ValueEdit,
        stage: KnownStage,
        text: Annotated[str, Field(max_length=LONGEST_VALUE, description="The whole value as text")],
    ) -> None:
        """Write the whole value of a stage as text, in the format that the stage's type has: see
        `core.types.from_text`. Raises UserError if the text is no value of the stage, or does not fit the source image.
        """
        run = self._workspace.runs.get(sent.run)
        written = recipe_of(run.recipe).stage(stage)
        value = from_text(written.value, text)
        written.fits(value, self._runs.size(run.source_sha))
        self._change(sent, stage, lambda _run: value)

    @does("keep", RunCommand)
    def keep(self, run: str, stage: KnownStage) -> None:
        """Confirm that a stale value still fits, which makes it fresh. Raises UserError for an empty stage."""
        with self._runs.changing:
            edited = self._workspace.runs.get(run)
            stored = edited.values.get(stage)
            if stored is None:
                raise UserError("This stage has no value to keep: run it first.")
            key = self._runs.inputs_key(stage, edited, self._runs.settings(edited))
            value = StageValue(stored.value.value, Trace(author="person"), key)
            self._workspace.runs.append_value(run, stage, value)
            self._notes.solved(run, stage)

    @does("bring-back", RunCommand)
    def bring_back(
        self,
        run: str,
        stage: KnownStage,
        version: Annotated[int, Field(ge=0, le=LARGEST_ID, description="The version, from the history of the stage")],
        tab: Tab = "",
    ) -> None:
        """Make an earlier version of a value the latest. Raises UserError for a version of another run or stage."""
        versions = self._workspace.runs.history(run, stage)
        chosen = next((known for known in versions if known.id == version), None)
        if chosen is None:
            raise UserError("This version belongs to another run or stage: choose one from the history.")
        with self._runs.changing:
            self.writes.note(self._workspace.runs.bring_back(chosen.id), tab)
        self._notes.solved(run, chosen.stage)

    def append_by_model(self, run: Run, stage: StageName, value: Any, trace: Trace) -> None:
        """Save `value`: the stage's value with an addition by a model. A stale value stays stale."""
        settings = self._runs.settings(run)
        stored = run.values.get(stage)
        if stored is not None and stage in self._runs.stale(run, settings):
            key = stored.value.inputs_key
        else:
            producers = self._driver.producers(recipe_of(run.recipe), self._runs.prompts(run), settings)
            key = with_producer(self._runs.inputs_key(stage, run, settings), producers[stage])
        self._workspace.runs.append_value(run.id, stage, StageValue(value, trace, key))

    def _edit(self, edit: Callable[..., Any], command: ValueEdit) -> None:
        stage, fields = command.stage_of_command, command.model_dump(exclude=set(ValueEdit.model_fields))
        try:
            self._change(command, stage, lambda run: edit(edits.value_of(run, stage), run, **fields))
        except edits.ProtectedKeyword as error:
            raise CanBeInsistedOn(str(error), command.model_copy(update={"force": True})) from error

    def _change(self, command: ValueEdit, stage: StageName, change: Callable[[Run], Any]) -> None:
        """Apply `change` to the latest values of a run. A stale value stays stale. A lock keeps other pages out."""
        with self._runs.changing:
            run = self._workspace.runs.get(command.run)
            other = self.writes.by_others(self._workspace.runs.history(run.id, stage), command.version, command.tab)
            value, settings, stored = change(run), self._runs.settings(run), run.values.get(stage)
            if stored is not None and stage in self._runs.stale(run, settings):
                key = stored.value.inputs_key
            else:
                key = self._runs.inputs_key(stage, run, settings)
            changed = stored is None or stored.value.value != value
            if changed:
                edited = StageValue(value, Trace(author="person"), key)
                self.writes.note(self._workspace.runs.append_value(run.id, stage, edited), command.tab)
            self._notes.solved(run.id, stage)
            if changed and other is not None:
                self._notes.tell(run.id, stage, value_conflict(stage, other))
