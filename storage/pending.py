"""Pending work that SQL cannot do: bit sets, labels compared by meaning, outcomes of votes.

Triggers record pending work in the tables `pending_...`. This module does it before each commit, and when the workspace
is opened. So another program may insert rows with plain SQLite, and the studio completes them later.
"""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime

from sqlite_utils import Database as Db

from core.consensus import outcome_of_image
from core.data_files import DataTable
from core.predictions import names_label
from core.studies import Adjudication, Vote
from storage.curation.stored_sets import change_sets
from storage.engine.queries import first_value
from storage.studies.rows import item_of, rules_of

QUERIES = DataTable(__file__, str)


def give_functions(connection: sqlite3.Connection) -> None:
    """Register the SQL functions that the queries of this module call. No trigger calls them."""
    connection.create_function("names_label", 2, _names_label, deterministic=True)
    connection.create_function("study_outcome", 5, _study_outcome, deterministic=True)


def take_up(db: Db) -> None:
    """Do all pending work in the caller's transaction. Call `give_functions` for the connection first."""
    if first_value(db, "SELECT 1 FROM pending_outcomes LIMIT 1"):
        db.execute("DELETE FROM catalogue_outcomes WHERE (entry, model) IN (SELECT entry, model FROM pending_outcomes)")
        db.execute(QUERIES["take_up_outcomes"].format_map(QUERIES))
        db.execute("DELETE FROM pending_outcomes")
    if first_value(db, "SELECT 1 FROM pending_validity LIMIT 1"):
        db.execute(QUERIES["take_up_validity"].format_map(QUERIES))
        db.execute("DELETE FROM pending_validity")
    if first_value(db, "SELECT 1 FROM pending_set_changes LIMIT 1"):
        change_sets(db)


def _names_label(guess: str | None, label: str | None) -> bool | None:
    return None if guess is None or label is None else names_label(guess, label)


def _study_outcome(rules: str, state: str, content: str, votes: str, adjudications: str) -> str:
    """Return an item's outcome. JSON `votes` lists (worker, answers), JSON `adjudications` lists (question, answer)."""
    if state == "draft":
        return ""
    item = item_of({"id": 0, "public": "", "kind": "item", "image": "", "source": None, "content": content})
    then = datetime.fromtimestamp(0, UTC)
    outcome = outcome_of_image(
        item,
        [
            Vote(number, 0, "item", worker, json.loads(answers), "", then, then, 0.0, "left")
            for number, (worker, answers) in enumerate(json.loads(votes))
        ],
        [Adjudication(0, question, answer, "", then) for question, answer in json.loads(adjudications)],
        rules_of(rules),
        state == "closed",
    )
    if outcome is None or outcome.status == "waiting":
        return ""
    return outcome.answer if outcome.status == "consensus" else outcome.status
