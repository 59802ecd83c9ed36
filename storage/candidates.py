"""The test cases that may become items of a study, with what is known of them. Functions of an open database."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlite_utils

from pipeline.types import CounterfactualCaption, Task
from storage.rows import Row, unpack_value
from storage.study_types import Candidate

Reading = Mapping[str, Any]


def read_candidates(db: sqlite_utils.Database) -> tuple[Candidate, ...]:
    """Every test case of the runs that were not deleted, the oldest first."""
    readings = _readings(db)
    captions = _captions(db)
    query = """
        SELECT test_cases.*, state.name AS run_name, state.task, runs.source, runs.profile, reviews.verdict
        FROM test_cases JOIN runs ON runs.id = test_cases.run
            JOIN run_states AS state ON state.id = (SELECT max(id) FROM run_states WHERE run = runs.id)
            LEFT JOIN reviews ON reviews.id = (SELECT max(id) FROM reviews WHERE test_case = test_cases.id)
        WHERE state.removed = 0 ORDER BY test_cases.id
    """
    return tuple(_candidate(row, captions.get(row["run"], ""), readings) for row in db.query(query))


def _candidate(row: Row, caption: str, readings: Mapping[str, Mapping[str, Reading]]) -> Candidate:
    task: Task = unpack_value(Task, row["task"])
    counterfactual: CounterfactualCaption = unpack_value(CounterfactualCaption, row["counterfactual"])
    of_source, of_image = readings.get(row["source"], {}), readings.get(row["image"], {})
    return Candidate(
        test_case=row["id"],
        run_id=row["run"],
        run_name=row["run_name"],
        profile=row["profile"],
        label=task.label,
        classes=tuple(task.protected),
        image_sha=row["image"],
        source_sha=row["source"],
        caption=caption,
        counterfactual=counterfactual,
        edit_types=tuple(dict.fromkeys(edit.edit_type for edit in counterfactual.edits)),
        verdict=row["verdict"] if row["verdict"] in ("accepted", "rejected") else "",
        readings={model: (of_source.get(model), of_image.get(model)) for model in sorted({*of_source, *of_image})},
        origin={
            "run": row["run"],
            "run_name": row["run_name"],
            "profile": row["profile"],
            "method": row["method"],
            "model": row["model"],
            "prompt": row["prompt"],
            "negative_prompt": row["negative_prompt"],
            "seed": row["seed"],  # text: JSON readers lose the last digits of 64 bits
            "settings": json.loads(row["settings"]),
            "created": row["created"],
        },
    )


def _captions(db: sqlite_utils.Database) -> dict[str, str]:
    """By run: the text of its latest caption."""
    query = """
        SELECT run, value FROM stage_values
        WHERE id IN (SELECT max(id) FROM stage_values WHERE stage = 'caption' GROUP BY run)
    """
    return {row["run"]: json.loads(row["value"])["text"] for row in db.query(query)}


def _readings(db: sqlite_utils.Database) -> dict[str, dict[str, Reading]]:
    """By image and model: what the model said last."""
    found: dict[str, dict[str, Reading]] = {}
    query = "SELECT image, model, value FROM readings WHERE id IN (SELECT max(id) FROM readings GROUP BY image, model)"
    for row in db.query(query):
        found.setdefault(row["image"], {})[row["model"]] = json.loads(row["value"])
    return found
