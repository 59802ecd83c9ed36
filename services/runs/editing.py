"""What a person does to the values of the text stages, and to their history. The rules of each edit are `edits`.

A change is always made to the latest version of a value, whichever one the person saw: see `edit_conflicts`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import Field

from core.errors import UserError
from core.stored_runs import Run
from core.types import (
    Alternatives,
    Caption,
    CounterfactualCaptions,
    EditType,
    Keyword,
    Keywords,
    StageName,
    StageValue,
    Trace,
    from_text,
)
from pipeline.freshness import with_producer
from pipeline.recipes import recipe_of
from services.commands import Commands, KnownStage, RunCommand, does
from services.edit_conflicts import LARGEST_ID, PageWrites, ValueEdit, value_conflict
from services.runs import edits
from services.runs.life_cycle import RunService
from services.runs.state import CanBeInsistedOn, StageNotes

LONGEST_VALUE = 400_000
"""Characters in the value of a stage that is written as text."""


class WriteCaption(ValueEdit, name="caption", stage_of_command="caption"):
    """Write the caption."""

    text: str = Field(description="The whole caption")


class WriteValue(ValueEdit, name="value"):
    """Write the value of a stage as text, whatever its type: see `core.types.from_text`."""

    stage: KnownStage = Field(description="The stage")
    text: str = Field(max_length=LONGEST_VALUE, description="The whole value")


class KeywordEdit(ValueEdit, stage_of_command="keywords"):
    """An edit of the list of keywords."""


class UseKeyword(KeywordEdit, name="keyword-use"):
    """Tick or untick a keyword."""

    text: str = Field(description="The keyword")
    used: bool = Field(description="Whether it may be changed")


class AddKeyword(KeywordEdit, name="keyword-add"):
    """Add a keyword."""

    new: str = Field(description="Words of the caption")
    edit_type: EditType = Field(description="What a change of it would be")
    force: bool = Field(False, description="Also where the task protects it")


class RewordKeyword(KeywordEdit, name="keyword-reword"):
    """Give a keyword other words or another edit type."""

    text: str = Field(description="The keyword as it is")
    new: str = Field(description="Words of the caption")
    edit_type: EditType = Field(description="What a change of it would be")
    force: bool = Field(False, description="Also where the task protects it")


class DeleteKeyword(KeywordEdit, name="delete-keyword"):
    """Delete a keyword."""

    text: str = Field(description="The keyword")


class AlternativeEdit(ValueEdit, stage_of_command="alternatives"):
    """An edit of the alternatives of a keyword."""

    keyword: str = Field(description="The keyword")


class UseAlternative(AlternativeEdit, name="alternative-use"):
    """Tick or untick an alternative."""

    text: str = Field(description="The alternative")
    used: bool = Field(description="Whether captions are made with it")


class AddAlternative(AlternativeEdit, name="alternative-add"):
    """Add an alternative."""

    new: str = Field(description="What the keyword may become")


class RewordAlternative(AlternativeEdit, name="alternative-reword"):
    """Give an alternative other words."""

    text: str = Field(description="The alternative as it is")
    new: str = Field(description="What the keyword may become")


class DeleteAlternative(AlternativeEdit, name="delete-alternative"):
    """Delete an alternative."""

    text: str = Field(description="The alternative")


class CounterfactualEdit(ValueEdit, stage_of_command="counterfactuals"):
    """An edit of the list of counterfactual captions."""


class AddCounterfactual(CounterfactualEdit, name="counterfactual-add"):
    """Add a counterfactual caption."""

    new: str = Field(description="The whole caption")


class PlacedCounterfactualEdit(CounterfactualEdit):
    """An edit of one counterfactual caption."""

    place: int = Field(ge=0, le=10_000, description="Its place in the list, from 0")
    text: str = Field(description="Its text as the person saw it")


class UseCounterfactual(PlacedCounterfactualEdit, name="counterfactual-use"):
    """Tick or untick a counterfactual caption."""

    used: bool = Field(description="Whether an image is made of it")


class WriteCounterfactual(PlacedCounterfactualEdit, name="counterfactual-write"):
    """Write another text for a counterfactual caption."""

    new: str = Field(description="The whole caption")


class DeleteCounterfactual(PlacedCounterfactualEdit, name="delete-counterfactual"):
    """Delete a counterfactual caption."""


class KeepValue(RunCommand, name="keep"):
    """Say that a stale value still fits."""

    stage: KnownStage = Field(description="The stage")


class BringBack(RunCommand, name="bring-back"):
    """Make an earlier version of a value the latest one."""

    stage: KnownStage = Field(description="The stage")
    version: int = Field(ge=0, le=LARGEST_ID, description="The version, from the history of the stage")
    tab: str = Field("", max_length=40, description="Which page it is, by a name of its own")


class Dismiss(RunCommand, name="dismiss"):
    """Take away what is said at a stage: a refusal, or what is to be known."""

    stage: KnownStage = Field(description="The stage")


class Editing:
    """Edits of the values of one workspace. All methods may be called from any thread.

    Each raises UserError, and changes nothing, for an edit that makes no sense.
    """

    def __init__(self, runs: RunService, notes: StageNotes) -> None:
        self._workspace, self._runs, self._driver, self._notes = runs.workspace, runs, runs.driver, notes
        self.writes = PageWrites()
        """Which page saved which version, so that no page is told of its own as of another one's."""

    def register(self, commands: Commands) -> None:
        """Take on the edits of lists, each as what it makes of the value: `c` is the command, `v` the value, `k` the
        keyword that it names.
        """
        commands.add(
            WriteCaption, lambda c: self._change(c, "caption", lambda run: edits.write_caption(c.text, run.task))
        )
        keywords: dict[type[Any], Callable[[Any, Keywords, Run], Keywords]] = {
            UseKeyword: lambda c, v, _: edits.use_keyword(v, c.text, c.used),
            DeleteKeyword: lambda c, v, _: edits.delete_keyword(v, c.text),
            AddKeyword: lambda c, v, run: edits.add_keyword(
                v, c.new, c.edit_type, caption_of(run), run.task, force=c.force
            ),
            RewordKeyword: lambda c, v, run: edits.reword_keyword(
                v, c.text, c.new, c.edit_type, caption_of(run), run.task, force=c.force
            ),
        }
        alternatives: dict[type[Any], Callable[[Any, Alternatives, Keyword, Run], Alternatives]] = {
            UseAlternative: lambda c, v, k, _: edits.use_alternative(v, k, c.text, c.used),
            AddAlternative: lambda c, v, k, run: edits.add_alternative(v, k, c.new, run.task),
            RewordAlternative: lambda c, v, k, run: edits.reword_alternative(v, k, c.text, c.new, run.task),
            DeleteAlternative: lambda c, v, k, _: edits.delete_alternative(v, k, c.text),
        }
        captions: dict[type[Any], Callable[[Any, CounterfactualCaptions, Run], CounterfactualCaptions]] = {
            UseCounterfactual: lambda c, v, _: edits.use_counterfactual(v, c.place, c.text, c.used),
            WriteCounterfactual: lambda c, v, run: edits.write_counterfactual(
                v, c.place, c.text, c.new, caption_of(run), run.task
            ),
            AddCounterfactual: lambda c, v, run: edits.add_counterfactual(v, c.new, caption_of(run), run.task),
            DeleteCounterfactual: lambda c, v, _: edits.delete_counterfactual(v, c.place, c.text),
        }
        for kind, of_keywords in keywords.items():
            commands.add(kind, partial(self._keywords, of_keywords))
        for kind, of_alternatives in alternatives.items():
            commands.add(kind, partial(self._alternatives, of_alternatives))
        for kind, of_captions in captions.items():
            commands.add(kind, partial(self._counterfactuals, of_captions))
        commands.add(Dismiss, lambda command: self._notes.solved(command.run, command.stage))

    @does
    def write_value(self, command: WriteValue) -> None:
        """Raises UserError for text that is no value of the stage, and for a value that does not fit the source."""
        run = self._workspace.runs.get(command.run)
        stage = recipe_of(run.recipe).stage(command.stage)
        value = from_text(stage.value, command.text)
        stage.fits(value, self._runs.size(run.source_sha))
        self._change(command, command.stage, lambda _run: value)

    @does
    def keep(self, command: KeepValue) -> None:
        """A stale value is saved again, as made from what stands before it now. Raises UserError for an empty stage."""
        with self._runs.changing:
            run = self._workspace.runs.get(command.run)
            stored = run.values.get(command.stage)
            if stored is None:
                raise UserError("There is nothing to keep at this stage yet: run it first.")
            key = self._runs.inputs_key(command.stage, run, self._runs.settings(run))
            kept = StageValue(stored.value.value, Trace(author="person"), key)
            self._workspace.runs.append_value(run.id, command.stage, kept)
            self._notes.solved(run.id, command.stage)

    @does
    def bring_back(self, command: BringBack) -> None:
        """Raises UserError for a version of another run or stage."""
        versions = self._workspace.runs.history(command.run, command.stage)
        found = next((version for version in versions if version.id == command.version), None)
        if found is None:
            raise UserError("This version belongs to another run: pick one from the history.")
        with self._runs.changing:
            self.writes.note(self._workspace.runs.bring_back(found.id), command.tab)
        self._notes.solved(command.run, found.stage)

    def append_by_model(self, run: Run, stage: StageName, value: Any, trace: Trace) -> None:
        """Save what a model added to a stage's value. What was stale stays so."""
        settings = self._runs.settings(run)
        stored = run.values.get(stage)
        if stored is not None and stage in self._runs.stale(run, settings):
            key = stored.value.inputs_key
        else:
            producers = self._driver.producers(recipe_of(run.recipe), self._runs.prompts(run), settings)
            key = with_producer(self._runs.inputs_key(stage, run, settings), producers[stage])
        self._workspace.runs.append_value(run.id, stage, StageValue(value, trace, key))

    def _keywords(self, change: Callable[[Any, Keywords, Run], Keywords], command: KeywordEdit) -> None:
        try:
            self._change(command, "keywords", lambda run: change(command, _held(run, "keywords", Keywords(())), run))
        except edits.ProtectedKeyword as error:
            raise CanBeInsistedOn(str(error), command.model_copy(update={"force": True})) from error

    def _alternatives(
        self, change: Callable[[Any, Alternatives, Keyword, Run], Alternatives], command: AlternativeEdit
    ) -> None:
        def changed(run: Run) -> Alternatives:
            value = _held(run, "alternatives", Alternatives(()))
            return change(command, value, keyword_of(run, command.keyword), run)

        self._change(command, "alternatives", changed)

    def _counterfactuals(
        self, change: Callable[[Any, CounterfactualCaptions, Run], CounterfactualCaptions], command: CounterfactualEdit
    ) -> None:
        def changed(run: Run) -> CounterfactualCaptions:
            return change(command, _held(run, "counterfactuals", CounterfactualCaptions(())), run)

        self._change(command, "counterfactuals", changed)

    def _change(self, command: ValueEdit, stage: StageName, change: Callable[[Run], Any]) -> None:
        """Save what `change` makes of the latest version; the lock keeps a second page from doing so in between."""
        with self._runs.changing:
            run = self._workspace.runs.get(command.run)
            versions = self._workspace.runs.history(run.id, stage)
            other = self.writes.by_others(versions, command.version, command.tab)
            version = self._save(run, stage, change(run))
            if version is None:
                return
            self.writes.note(version, command.tab)
            if other is not None:
                self._notes.tell(run.id, stage, value_conflict(stage, other))

    def _save(self, run: Run, stage: StageName, value: Any) -> int | None:
        """Save a person's value and return its id, None if nothing changed. A stale value stays stale."""
        settings = self._runs.settings(run)
        stored = run.values.get(stage)
        stale = stored is not None and stage in self._runs.stale(run, settings)
        key = stored.value.inputs_key if stored is not None and stale else self._runs.inputs_key(stage, run, settings)
        version = None
        if stored is None or stored.value.value != value:
            version = self._workspace.runs.append_value(run.id, stage, StageValue(value, Trace(author="person"), key))
        self._notes.solved(run.id, stage)
        return version


def keyword_of(run: Run, text: str) -> Keyword:
    """A keyword of the third or the second stage, by its text. Raises UserError when it is in neither."""
    for item in _held(run, "alternatives", Alternatives(())).items:
        if item.keyword == text:
            return Keyword(item.keyword, item.edit_type, forced=item.forced)
    for keyword in _held(run, "keywords", Keywords(())).items:
        if keyword.text == text:
            return Keyword(keyword.text, keyword.edit_type, forced=keyword.forced)
    raise UserError(f"The keyword “{text}” is no longer there: the list was changed meanwhile.")


def caption_of(run: Run) -> str:
    """The caption of a run, or ""."""
    return str(_held(run, "caption", Caption("")).text)


def _held(run: Run, stage: StageName, empty: Any) -> Any:
    return run.values[stage].value.value if stage in run.values else empty
