"""Words about runs and test cases, for pages and files, taken from their recipes and methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.csv_tables import csv_text, facts
from core.lineage import DEFAULT_RECIPE, Artifact
from core.stored_runs import EditedShare, RunSummary, StoredTestCase
from core.types import GENERATION, stage_title
from pipeline.methods import method_of
from pipeline.recipes import edits_in_words, known_recipes, recipe_of, section_card
from storage.workspace import Workspace

DEFAULT_ARTIFACTS = recipe_of(DEFAULT_RECIPE).drawing_method.artifacts
EDITED = "edited_values.csv"
"""Name of an exported file that has, for each stage, the share of values that people changed."""
EDITED_COLUMNS = ("profile", "stage", "values", "changed", "share")


def edit_words(case: StoredTestCase) -> str:
    """Return the edits of a test case in a few words, such as "snowy, at night"."""
    return edits_in_words(case.lineage.recipe, case.lineage.counterfactual)


def artifacts_of(case: StoredTestCase) -> tuple[Artifact, ...]:
    """Return the artifacts that a test case's method declares, then others that are stored with the test case."""
    declared = method_of(case.lineage.method).artifacts
    names = {artifact.name for artifact in declared}
    others = (Artifact(name, name[:1].upper() + name[1:], f"The {name}") for name in case.artifacts)
    return (*declared, *(other for other in others if other.name not in names))


def recipe_title(name: str) -> str:
    """Return the title of a recipe, or "" for no name. Raises UnknownRecipe."""
    return recipe_of(name).title if name else ""


def section_title(section: str) -> str:
    """Return the title of the card that shows a section of the settings."""
    return stage_title(section_card(section) or GENERATION)


def text_progress(run: RunSummary) -> str:
    """Return the progress of the text stages of a run, such as "keywords done"."""
    recipe = next((known for known in known_recipes() if known.name == run.recipe), None)
    done = [name for name in run.stages if recipe is None or name in recipe.names]
    if recipe is not None and recipe.last.name in done:
        return "ready to generate"
    return f"{stage_title(done[-1]).lower()} done" if done else "not begun"


def edited_rows(shares: Sequence[EditedShare]) -> list[dict[str, Any]]:
    """Return shares of changed values as table rows with the columns `EDITED_COLUMNS`."""
    return [facts(one, "profile stage values changed", share=round(one.share, 4)) for one in shares]


def edited_csv(workspace: Workspace, run_ids: Sequence[str]) -> bytes:
    """Return the shares of changed values in these runs as CSV, with only the header if they have no values."""
    return csv_text(edited_rows(workspace.runs.edited(run_ids)), EDITED_COLUMNS).encode()
