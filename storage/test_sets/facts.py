"""Current facts about the images of a test set: lineage, checks, review, votes and predictions."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlite_utils import Database as Db

from core.csv_tables import plain
from core.data_files import DataTable
from core.types import Edit, to_plain
from storage.engine.rows import pack
from storage.runs.test_cases import cases_by_id

_QUERIES = DataTable(__file__, str)


@dataclass(frozen=True)
class CaseFacts:
    """Current facts about one test case."""

    run: str
    new_caption: str
    edits: tuple[Edit, ...]
    facts: dict[str, Any]
    """Lineage, checks, review, votes and predictions, as JSON-ready data."""


def captions_of(db: Db, version: int) -> dict[str, str]:
    """Return the captions of source images in a version, by run id and by source hash; "" without a caption."""
    caption_by_key: dict[str, str] = {}
    for run, source, caption in db.execute(_QUERIES["captions_of"], [version]):
        caption_by_key[run] = caption
        caption_by_key[source] = caption or caption_by_key.get(source, "")
    return caption_by_key


def facts_of(db: Db, ids: Sequence[int], images: Path) -> dict[int, CaseFacts]:
    """Return the current facts about the test cases with these ids, by id."""
    votes, predictions = _votes(db, ids), _predictions(db, ids)
    profiles = dict(db.execute(_QUERIES["profiles"], [pack(list(ids))]).fetchall())
    facts_by_case = {}
    for case in cases_by_id(db, ids, images):
        lineage = case.lineage
        facts_by_case[case.id] = CaseFacts(
            run=case.run_id,
            new_caption=lineage.counterfactual.text,
            edits=lineage.counterfactual.edits,
            facts={
                "test_case": case.id,
                "run": case.run_id,
                "profile": profiles[case.id],
                "created": case.created.isoformat(),
                "task": to_plain(case.task),
                "lineage": {**lineage.plain(), "seed": str(lineage.seed)},  # JSON readers lose digits of 64 bits
                "checks": [to_plain(check) for check in case.checks],
                "review": plain(case.review),
                "votes": votes.get(case.id, []),
                "predictions": predictions.get(case.id, {}),
            },
        )
    return facts_by_case


def _votes(db: Db, ids: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    votes_by_case: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in db.query(_QUERIES["votes"], [pack(list(ids))]):
        votes_by_case[row.pop("test_case")].append(row)
    return votes_by_case


def _predictions(db: Db, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    predictions_by_case: dict[int, dict[str, Any]] = defaultdict(dict)
    for row in db.query(_QUERIES["predictions"], [pack(list(ids))]):
        prediction = {"kind": row["kind"], "name": row["name"], "label": row["label"], "top": json.loads(row["top"])}
        predictions_by_case[row["test_case"]][row["model"]] = prediction
    return predictions_by_case
