"""Plans that fill a cell of a coverage table: new runs from the source images that have the fewest images in the cell.

A plan draws nothing. Its runs wait in Explore, where a person runs their text stages, sees which images would be made,
and approves them. In a table of edit types, the plan sets the edit types of the keywords stage, and a model chooses the
keywords. In a table of weather and time of day, the plan itself sets the keywords and alternatives, stored as a
person's edits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from core.catalogue import GRIDS, CoverageGrid
from core.errors import UserError
from core.settings import Settings
from core.stored_runs import Run
from core.text_templates import TextTemplates
from core.types import (
    EDIT_TYPES,
    Alternative,
    Alternatives,
    EditType,
    Keyword,
    KeywordAlternatives,
    Keywords,
    StageName,
    StageValue,
    Trace,
    failed,
)
from pipeline.checks.texts import alternative_checks, keyword_checks
from pipeline.freshness import inputs_key
from pipeline.recipes import recipe_of, recipes_for
from services.commands import Command, does
from services.curation.coverage import cell_filter
from services.runs.estimates import Estimates
from services.runs.life_cycle import RunService, task_problem
from storage.runs.runs import Branch, LatestRun

MOST_SOURCES = 20
BY_WORDS: tuple[EditType, ...] = ("weather", "time of day")
"""Edit types of the rows and columns of the table of weather and time of day."""
_LOOKED_AT = 200
"""Maximum number of runs that a plan for weather or time of day checks to find enough usable ones."""
Values = Mapping[StageName, StageValue[Any]]


class CellCommand(Command):
    """A command on one cell of a coverage table."""

    grid: CoverageGrid = Field(GRIDS[0], description="The coverage table")
    line: str = Field(
        max_length=1200,
        description="Row of the cell: the class, or the weather; empty for images without an edit of the weather",
    )
    place: str = Field(
        max_length=1200,
        description="Column of the cell: the edit type, or the time of day; empty for images without an edit of it",
    )
    sources: int = Field(5, ge=1, le=MOST_SOURCES, description="Maximum number of source images")


@dataclass(frozen=True)
class PlannedSource:
    """A source image from which a plan begins a run."""

    run: str
    """Id of the latest run of the source. The new run begins with a copy of its values."""
    name: str
    """Name of the run with the id `run`."""
    source_sha: str
    images: int
    """Number of the source's images in the cell."""
    waiting: int
    """Number of runs that earlier plans began from this source for the same edit type, and that have no image yet."""


@dataclass(frozen=True)
class CellPlan:
    """The runs that a plan would begin, one for each source image."""

    sources: tuple[PlannedSource, ...]
    available: int
    """Number of usable source images, including `sources`. It can be too high: not every source image was checked."""
    captions: int | None
    """Maximum number of captions of all new runs together; None if the settings of a run do not limit them."""
    images: int | None
    """Maximum number of images of all new runs together; None if `captions` sets no limit."""
    seconds: float | None
    """Estimated seconds to draw `images`; None if unknown."""


@dataclass(frozen=True)
class BegunPlan:
    """Runs that a plan has begun, one for each source."""

    runs: tuple[str, ...]
    plan: CellPlan


@dataclass(frozen=True)
class _Begin:
    source: PlannedSource
    branch: Branch
    run: Run
    settings: Settings


class CellPlans:
    """The commands to describe and begin a plan. All methods may be called from any thread."""

    def __init__(self, runs: RunService, estimates: Estimates) -> None:
        self._workspace, self._runs, self._estimates = runs.workspace, runs, estimates

    @does("describe-cell-plan", CellCommand, looks=True)
    def describe(self, sent: CellCommand) -> CellPlan:
        """Describe the runs that a plan for a cell of a coverage table would begin, without beginning them. Raises
        UserError with the reason if no run can fill the cell.
        """
        return self._plan(sent)[0]

    @does("plan-cell", CellCommand)
    def begin(self, sent: CellCommand) -> BegunPlan:
        """Begin runs that fill a cell of a coverage table. No image is drawn before somebody approves a run's images.
        Raises UserError, and begins no run, if no run can fill the cell.
        """
        with self._runs.changing:
            plan, begins = self._plan(sent)
            return BegunPlan(self._workspace.runs.branch([one.branch for one in begins]), plan)

    def _plan(self, command: CellCommand) -> tuple[CellPlan, tuple[_Begin, ...]]:
        by_class = command.grid == GRIDS[0]
        edits = _edit_type(command) if by_class else _alternatives(command)
        images_by_source = self._workspace.catalogue.by_source(cell_filter(command.grid, command.line, command.place))
        latest_runs = self._sources(command, edits)
        latest_runs = tuple(sorted(latest_runs, key=lambda one: images_by_source.get(one.source_sha, 0) + one.waiting))
        begins: list[_Begin] = []
        unfit = 0
        for one in latest_runs[: len(latest_runs) if by_class else _LOOKED_AT]:
            if len(begins) == command.sources:
                break
            begin = self._begin(one, edits, command, images_by_source.get(one.source_sha, 0))
            if begin is None:
                unfit += 1
            else:
                begins.append(begin)
        if not begins:
            raise UserError(
                _TEXTS.paragraph("no-plan.txt", plan=command, of_class=command.grid == GRIDS[0]), field="line"
            )
        return self._told(begins, len(latest_runs) - unfit), tuple(begins)

    def _sources(self, command: CellCommand, edits: Mapping[EditType, str]) -> tuple[LatestRun, ...]:
        recipes = [
            recipe.name
            for recipe in recipes_for(self._runs.profile)
            if recipe.section_card("keywords") == "keywords" and "alternatives" in recipe.names
        ]
        if command.grid == GRIDS[0]:
            return self._workspace.runs.by_source(recipes, command.line, begun_for=command.place)
        return self._workspace.runs.by_source(recipes, keywords=tuple(edits))

    def _begin(
        self, latest: LatestRun, edits: Mapping[EditType, str], command: CellCommand, images: int
    ) -> _Begin | None:
        """Return a new run for the source image of the run `latest`, or None if `latest` cannot make the `edits`."""
        run = self._workspace.runs.get(latest.run)
        if task_problem(run.task):
            return None
        settings = _limited(self._runs.settings(run), edits)
        names = recipe_of(run.recipe).names
        # Edit types do not affect the stages before the keywords, so their values are kept.
        unchanged = names[: names.index("keywords")]
        values: Values = {name: run.values[name].value for name in unchanged if name in run.values}
        if any(edits.values()):
            edited = self._edited(run, settings, edits, values)
            if edited is None:
                return None
            values = edited
        plain = {**run.settings, **settings.model_dump(mode="json")}
        ending = ", ".join(words or edit_type for edit_type, words in edits.items())
        source = PlannedSource(run.id, run.name, run.source_sha, images, latest.waiting)
        return _Begin(source, Branch(run.id, ending, plain, values), run, settings)

    def _edited(self, run: Run, settings: Settings, edits: Mapping[EditType, str], values: Values) -> Values | None:
        """Return the values of a run, changed to make `edits` (words by edit type): one keyword of each type is ticked,
        with these words as its alternative. Return None if the caption has no suitable keyword for a type.
        """
        if "caption" not in values or "keywords" not in run.values:
            return None
        caption = values["caption"].value.text
        found: Sequence[Keyword] = run.values["keywords"].value.value.items
        chosen: dict[EditType, Keyword] = {}
        for keyword in found:
            fits = keyword.edit_type in edits and not failed(
                (
                    *keyword_checks(keyword.text, caption, run.task, keyword.forced),
                    *alternative_checks(keyword.text, edits[keyword.edit_type], run.task),
                )
            )
            if fits:
                chosen.setdefault(keyword.edit_type, keyword)
        if len(chosen) < len(edits):
            return None
        ticked = {keyword.text for keyword in chosen.values()}
        keywords = Keywords(tuple(Keyword(one.text, one.edit_type, one.text in ticked, one.forced) for one in found))
        alternatives = Alternatives(
            tuple(
                KeywordAlternatives(one.text, one.edit_type, (Alternative(edits[one.edit_type]),), one.forced)
                for one in keywords.items
                if one.used
            )
        )
        return self._by_person(run, settings, values, {"keywords": keywords, "alternatives": alternatives})

    def _by_person(self, run: Run, settings: Settings, values: Values, edited: Mapping[StageName, Any]) -> Values:
        """Return `values` with `edited` added. The traces of edited and of stale values name a person as the author, so
        that no model replaces such values. Stale values are kept because they contain the words to change.
        """
        recipe, pixels = recipe_of(run.recipe), self._runs.pixels(run.source_sha)
        stale = self._runs.stale(run, settings)
        plain = {name: stage_value.value for name, stage_value in values.items()}
        by_person = {name: value for name, value in plain.items() if name in stale} | dict(edited)
        keys = {name: inputs_key(recipe, name, run.task, pixels, plain | by_person, settings) for name in by_person}
        person = Trace(author="person")
        return {**values, **{name: StageValue(value, person, keys[name]) for name, value in by_person.items()}}

    def _told(self, begins: Sequence[_Begin], available: int) -> CellPlan:
        captions = [_captions(one.settings, one.branch.values) for one in begins]
        if None in captions:
            return CellPlan(tuple(one.source for one in begins), available, None, None, None)
        each = [number or 0 for number in captions]
        planned = [recipe_of(one.run.recipe).drawing_method.planning(one.settings) for one in begins]
        images = [number * one.images_per_caption for number, one in zip(each, planned, strict=True)]
        paces = [self._estimates.seconds_per_image(one.run, one.settings) for one in begins]
        seconds = None
        if None not in paces:
            seconds = sum(number * (pace or 0.0) for number, pace in zip(images, paces, strict=True))
        return CellPlan(tuple(one.source for one in begins), available, sum(each), sum(images), seconds)


def _edit_type(command: CellCommand) -> dict[EditType, str]:
    if not command.line:
        raise UserError(
            "These images have no class, so no source can be found for them: give their runs a label in Explore.",
            field="line",
        )
    if not command.place:
        raise UserError(
            "These images have no edit. To make more, run the recipe “Reconstruction” on a source image in Explore.",
            field="place",
        )
    for edit_type in EDIT_TYPES:
        if edit_type == command.place:
            return {edit_type: ""}
    raise UserError(f"There is no edit type “{command.place[:80]}”: choose {', '.join(EDIT_TYPES)}.", field="place")


def _alternatives(command: CellCommand) -> dict[EditType, str]:
    words = (" ".join(text.split()) for text in (command.line, command.place))
    words_by_type = {edit_type: text for edit_type, text in zip(BY_WORDS, words, strict=True) if text}
    if not words_by_type:
        raise UserError("Name a weather or a time of day: images without either need no plan.", field="line")
    return words_by_type


def _limited(settings: Settings, edits: Mapping[EditType, str]) -> Settings:
    """Return the settings of a run that makes only `edits`. If `edits` name the new words, one caption has all edits.

    The run's seeds are random: consecutive seeds would draw the images of an earlier run of this source again.
    """
    captions: dict[str, Any] = {}
    if settings.counterfactuals.combinations == "chosen":  # the chosen ones hold edits that are not made here
        captions = {"combinations": "spread", "chosen": ()}
    if any(edits.values()):
        captions = {"combinations": "spread", "chosen": (), "edits_at_once": len(edits)}
    return settings.model_copy(
        update={
            "keywords": settings.keywords.model_copy(update={"edit_types": ", ".join(edits)}),
            "counterfactuals": settings.counterfactuals.model_copy(update=captions),
            "generation": settings.generation.model_copy(update={"seed_mode": "random"}),
        }
    )


def _captions(settings: Settings, values: Values) -> int | None:
    """Return the maximum number of captions of a run; None if it depends on alternatives that are not written yet."""
    if "alternatives" in values:  # each keyword has one alternative, and all are in one caption
        return 1
    chosen = settings.counterfactuals
    return None if chosen.combinations in ("all", "one of each") else chosen.captions


_TEXTS = TextTemplates(Path(__file__).with_name("texts"))
