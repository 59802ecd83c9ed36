"""Share of the values of each stage that people changed, by profile and stage: for pages, scripts and exports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.csv_tables import csv_text, facts
from core.stored_runs import EditedShare
from storage.workspace import Workspace

FILE = "edited_values.csv"
COLUMNS = ("profile", "stage", "values", "changed", "share")


def edited_rows(shares: Sequence[EditedShare]) -> list[dict[str, Any]]:
    """Return one row for each profile and stage, with the columns `COLUMNS`."""
    return [facts(one, "profile stage values changed", share=round(one.share, 4)) for one in shares]


def edited_csv(workspace: Workspace, run_ids: Sequence[str]) -> bytes:
    """Return the shares of these runs as CSV. If no value is stored for them, the CSV has only the header."""
    return csv_text(edited_rows(workspace.runs.edited(run_ids)), COLUMNS).encode()
