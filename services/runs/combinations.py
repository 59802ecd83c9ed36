"""Combinations of keywords and alternatives: those that counterfactual captions would use, and a person's choice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from core.errors import UserError
from core.settings import MOST_COMBINATIONS, Combination, Combinations, Settings
from core.stored_runs import Run, StoredValue
from core.types import Edit
from pipeline.prompting import PromptSet
from pipeline.recipes import recipe_of
from pipeline.stages.counterfactuals import all_combinations, choose_edits, count_combinations, edit_pools
from pipeline.stages.edit_choice import EDITS_PROMPT
from services.commands import does
from services.edit_conflicts import StateEdit
from services.runs.life_cycle import RunService
from services.runs.settings import RunSettings

STAGE = "counterfactuals"
SHOWN = 100
"""Number of combinations that a page lists, besides the planned ones."""


def _from_json(edits: Any) -> Any:
    try:
        return json.loads(edits) if isinstance(edits, str) else edits
    except ValueError as error:
        raise ValueError("This is no list of keywords and alternatives.") from error


@dataclass(frozen=True)
class Grid:
    """The possible edits of a run, and the combinations planned for its captions."""

    pools: tuple[tuple[Edit, ...], ...]
    """For each keyword, one edit per ticked alternative."""
    at_once: int
    """Number of keywords that a caption changes."""
    total: int
    listed: tuple[tuple[Edit, ...], ...]
    """Combinations that a page lists: the first ones, and all planned ones."""
    planned: tuple[tuple[Edit, ...], ...]
    """Combinations that the present captions use, or that the next run of the stage would use."""
    groups: int
    """Number of combinations if a person chooses “one of each”."""
    problem: str = ""
    at_most: int = 0
    """Maximum number of combinations that the language model will choose; 0 if `planned` is complete."""


def grid_of(
    run: Run, settings: Settings, history: tuple[StoredValue, ...], fresh: bool, prompts: PromptSet
) -> Grid | None:
    """Return the possible edits of a run; None if the run has no caption or no ticked alternatives. `fresh` is True if
    the counterfactual captions are up to date. Then `Grid.planned` has their combinations. Otherwise, `Grid.planned`
    has the combinations for the captions to write next. `history` holds all versions of the captions.
    """
    caption, alternatives = run.values.get("caption"), run.values.get("alternatives")
    if caption is None or alternatives is None or "alternatives" not in recipe_of(run.recipe).names:
        return None
    about = caption.value.value, alternatives.value.value, settings.counterfactuals
    pools, at_once = edit_pools(*about)
    if not pools:
        return None
    planned: tuple[tuple[Edit, ...], ...] = ()
    problem, at_most = "", 0
    if fresh and STAGE in run.values:
        planned = tuple(item.edits for item in run.values[STAGE].value.value.items if item.edits)
    elif settings.counterfactuals.combinations == "model" and prompts.get(EDITS_PROMPT.name) is not None:
        at_most = settings.counterfactuals.captions
    else:
        try:
            planned = choose_edits(*about, seed=sum(version.author == "model" for version in history))
        except UserError as error:
            problem = str(error)
    listed = dict.fromkeys([*islice(all_combinations(*about), SHOWN), *planned])
    groups = count_combinations([pool[:1] for pool in pools], at_once)
    total = count_combinations(pools, at_once)
    return Grid(pools, at_once, total, tuple(listed), planned, min(groups, MOST_COMBINATIONS), problem, at_most)


def pairs_of(edits: tuple[Edit, ...]) -> Combination:
    """Return a combination as stored in the settings: pairs of keyword and alternative."""
    return tuple((edit.keyword, edit.alternative) for edit in edits)


class CombinationEdits:
    """The commands to choose combinations for a run. All methods may be called from any thread."""

    def __init__(self, runs: RunService, settings: RunSettings) -> None:
        self._workspace, self._runs, self._settings = runs.workspace, runs, settings

    @does("combinations", StateEdit, stage_of_command=STAGE)
    def choose(
        self,
        sent: StateEdit,
        how: Annotated[
            Combinations,
            Field(
                description="“spread”: a number of combinations, spread evenly; “all”; “one of each”: one for each "
                "keyword or group of keywords; “at random”: a number of random ones; “factorial”: a factorial "
                "experiment of the edit types, up to a number; “chosen”: those ticked one by one; “model”: those that "
                "the language model chooses, up to a number"
            ),
        ],
        captions: Annotated[int | None, Field(ge=1, le=32, description="Number; null keeps the present one")] = None,
    ) -> None:
        """Choose which combinations of keywords and alternatives become counterfactual captions when their stage is
        run. Raises UserError for "chosen" if no combination was chosen before.
        """

        def change(plain: dict[str, Any]) -> None:
            section = plain[STAGE]
            if how == "chosen" and not section["chosen"]:
                raise UserError("No combination is ticked yet: tick the combinations that you want.", field="how")
            section["combinations"] = how
            if captions is not None:
                section["captions"] = captions

        self._settings.change(sent, change)

    @does("combination-use", StateEdit, stage_of_command=STAGE)
    def use(
        self,
        sent: StateEdit,
        edits: Annotated[
            Combination,
            BeforeValidator(_from_json),
            Field(
                min_length=1,
                max_length=20,
                description="Keyword and alternative of each edit, such as [[“red”, “blue”]]",
            ),
        ],
        used: Annotated[bool, Field(description="True to tick the combination, false to untick it")],
    ) -> None:
        """Tick one combination of keywords and alternatives, or untick it. Other combinations stay as they are. Raises
        UserError if the combination does not exist, if none would stay ticked, or if too many would be.
        """
        with self._runs.changing:
            run = self._workspace.runs.get(sent.run)
            settings, history = self._runs.settings(run), self._workspace.runs.history(run.id, STAGE)
            fresh, prompts = STAGE not in self._runs.stale(run, settings), self._runs.prompts(run)
            grid = grid_of(run, settings, history, fresh, prompts)
            known = {pairs_of((edit,))[0] for pool in (grid.pools if grid is not None else ()) for edit in pool}
            if grid is None or not set(edits) <= known:
                raise UserError("This keyword no longer has this alternative: choose a ticked one.", field="edits")
            if len({keyword for keyword, _ in edits}) < len(edits):
                raise UserError("A combination can hold only one alternative of a keyword.", field="edits")
            chosen = [pairs_of(planned) for planned in grid.planned]
            chosen = [pairs for pairs in chosen if set(pairs) != set(edits)] + [edits] * used
            if not chosen:
                raise UserError("At least one combination has to stay ticked: tick another one first.", field="used")
            if len(chosen) > MOST_COMBINATIONS:
                raise UserError(f"At most {MOST_COMBINATIONS} combinations can be ticked: untick one.", field="used")
            order = {pairs_of(listed): place for place, listed in enumerate(grid.listed)}
            chosen.sort(key=lambda pairs: order.get(pairs, len(order)))

            def change(plain: dict[str, Any]) -> None:
                plain[STAGE] |= {"combinations": "chosen", "chosen": [list(map(list, pairs)) for pairs in chosen]}

            self._settings.change(sent, change)
