"""How many of the values of each stage people changed, by profile and stage: for the page, for scripts, in exports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.csv_tables import csv_text, facts
from core.stored_runs import EditedShare
from storage.workspace import Workspace

FILE = "edited_values.csv"
COLUMNS = ("profile", "stage", "values", "changed", "share")


def edited_rows(shares: Sequence[EditedShare]) -> list[dict[str, Any]]:
    """A row a profile and stage."""
    return [facts(one, "profile stage values changed", share=round(one.share, 4)) for one in shares]


def edited_csv(workspace: Workspace, run_ids: Sequence[str]) -> bytes:
    """Those of these runs as a file, with a row of names alone where nothing is known of them."""
    return csv_text(edited_rows(workspace.runs.edited(run_ids)), COLUMNS).encode()
