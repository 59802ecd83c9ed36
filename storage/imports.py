"""A run that comes from outside, saved whole or not at all. A function of an open database, like those of `runs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlite_utils

from pipeline.types import Decision, TestCase
from storage import generation, judgements, runs
from storage.images import StoredImage

if TYPE_CHECKING:
    from pipeline.carried import RunRecord


def import_run(
    db: sqlite_utils.Database,
    record: RunRecord,
    source: StoredImage,
    mask: StoredImage | None,
    case: TestCase | None,
    pictures: tuple[StoredImage, StoredImage] | None,
    review: Decision | None = None,
) -> str:
    """A new run with all that a record holds, and its test case with its image and control in `pictures`, as reviewed.

    It keeps the id of the record where that is one and still free. Returns its id. Raises UserError for a name that
    is empty or too long.
    """
    free = runs.is_run_id(record.id) and not runs.run_exists(db, record.id)
    run_id = runs.create_run(
        db,
        source,
        record.task,
        record.profile,
        record.name,
        record.settings,
        record.notes,
        record.sample,
        record.id if free else "",
    )
    if record.prompts:
        runs.set_prompts(db, run_id, record.prompts)
    if mask is not None:
        runs.set_mask(db, run_id, mask, record.mask_classes)
    for stage, value in record.values.items():
        runs.append_value(db, run_id, stage, value)
    if case is not None and pictures is not None:
        case_id = generation.append_test_case(db, run_id, None, case, *pictures)
        if review is not None:
            judgements.append_review(db, case_id, review.verdict, review.reason)
    return run_id
