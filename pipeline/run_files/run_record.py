"""Reads the record of a run and of its images (`core.run_record`) from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from core.run_record import ImageRecord, RunRecord
from core.types import Check, Task, from_plain
from pipeline.methods import read_lineage
from pipeline.recipes import known_recipes, recipe_of, values_from_plain

FORMAT = 2
MOST_ATTEMPTS = 2**63 - 1
"""A column of a table holds no more."""


def read_run(plain: Mapping[str, Any]) -> RunRecord:
    """The run of plain data. Raises KeyError, TypeError or ValueError (pydantic's too) for what is none, and
    UnknownRecipe.
    """
    values = values_from_plain(plain["values"])
    record: RunRecord = from_plain(RunRecord, {**plain, "values": {}})
    recipe_of(record.recipe)
    if record.prompts.keys() - {slot.name for recipe in known_recipes() for slot in recipe.prompt_slots}:
        raise ValueError("there is no such prompt")
    if any(not 0 <= number <= 255 for number in record.mask_classes):
        raise ValueError("a class number is out of range")
    if any(not 0 <= value.trace.attempts <= MOST_ATTEMPTS for value in values.values()):
        raise ValueError("a number of attempts is out of range")
    return RunRecord(**{**vars(record), "values": values})


def read_image(plain: Mapping[str, Any], artifacts: Mapping[str, str], task: Task) -> ImageRecord:
    """The image of plain data; `artifacts` are the hashes of its artifacts, and `task` is that of its run, for records
    that do not say theirs. Raises as `read_run` does.
    """
    lineage = read_lineage(plain["lineage"])
    if lineage.task is None:
        lineage = replace(lineage, task=task)
    sha, checks = plain["sha256"], from_plain(tuple[Check, ...], plain["checks"])
    if not all(isinstance(one, str) for one in (sha, *artifacts.values())):
        raise TypeError("a hash is no text")
    return ImageRecord(sha, lineage, dict(artifacts), checks)
