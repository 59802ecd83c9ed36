"""Jobs (one generation each) and the test cases that they save: the rows and back.

Functions of an open database, like those of `storage.runs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import sqlite_utils

from pipeline.errors import UserError
from pipeline.types import Check, CounterfactualCaption, TestCase, to_plain
from storage.images import StoredImage, file_name
from storage.judgements import review_of
from storage.rows import Row, insert_row, keep_image, now, pack, pack_value, unpack_value, when
from storage.types import JOB_STATES, Job, JobState, StoredTestCase

_CASES: Final = """
    SELECT test_cases.*, jobs.inputs_key, reviews.verdict, reviews.reason, reviews.created AS reviewed
    FROM test_cases LEFT JOIN jobs ON jobs.id = test_cases.job
    LEFT JOIN reviews ON reviews.id = (SELECT max(id) FROM reviews WHERE test_case = test_cases.id)
"""


def start_job(db: sqlite_utils.Database, process: int, run_id: str, total: int, inputs_key: str) -> int:
    """A job in the state "running", of the process with this number. The run must exist."""
    return insert_row(
        db,
        "jobs",
        {
            "run": run_id,
            "process": process,
            "total": total,
            "inputs_key": inputs_key,
            "state": "running",
            "message": "",
            "started": now(),
            "finished": None,
        },
    )


def finish_job(db: sqlite_utils.Database, job_id: int, state: JobState, message: str) -> bool:
    """End a job. The first end counts: False, and nothing changed, when it has ended already."""
    if state not in JOB_STATES or state == "running":
        raise ValueError(f"a job cannot end as {state!r}")
    rows = list(db.query("SELECT state FROM jobs WHERE id = ?", [job_id]))
    if not rows:
        raise ValueError(f"there is no job {job_id}")
    if rows[0]["state"] != "running":
        return False
    db.table("jobs").update(job_id, {"state": state, "message": message, "finished": now()})
    return True


def interrupt_jobs(db: sqlite_utils.Database, alive: Callable[[int], bool]) -> int:
    """End every running job whose process is not `alive` as "interrupted"; return how many there were."""
    running = list(db.query("SELECT id, process FROM jobs WHERE state = 'running'"))
    gone = [row["id"] for row in running if not alive(row["process"])]
    for job_id in gone:
        finish_job(db, job_id, "interrupted", "The program stopped before all images were made.")
    return len(gone)


def append_test_case(
    db: sqlite_utils.Database,
    run_id: str,
    job_id: int | None,
    case: TestCase,
    image: StoredImage,
    control: StoredImage,
) -> int:
    """A test case whose two image files are on the disk. The run must exist, and the job must be one of its own."""
    keep_image(db, image)
    keep_image(db, control)
    return insert_row(
        db,
        "test_cases",
        {
            "run": run_id,
            "job": job_id,
            "image": image.sha,
            "control": control.sha,
            "counterfactual": pack_value(case.counterfactual),
            "seed": str(case.seed),
            "method": case.method,
            "model": case.model,
            "prompt": case.prompt,
            "negative_prompt": case.negative_prompt,
            "settings": pack(to_plain(dict(case.settings))),
            "seconds": case.seconds,
            "checks": pack([to_plain(check) for check in case.checks]),
            "created": now(),
        },
    )


def read_test_cases(db: sqlite_utils.Database, run_id: str, images: Path) -> tuple[StoredTestCase, ...]:
    """The run's test cases, oldest first."""
    rows = db.query(f"{_CASES} WHERE test_cases.run = ? ORDER BY test_cases.id", [run_id])
    return tuple(_case(row, images) for row in rows)


def read_test_case(db: sqlite_utils.Database, case_id: int, images: Path) -> StoredTestCase:
    """One test case. Raises UserError when there is none with this id."""
    for row in db.query(f"{_CASES} WHERE test_cases.id = ?", [case_id]):
        return _case(row, images)
    raise UserError(f"This workspace has no test case {case_id}; pick one from its run.")


def read_jobs(db: sqlite_utils.Database, run_id: str) -> tuple[Job, ...]:
    """The run's jobs, oldest first."""
    rows = db.query(
        "SELECT *, (SELECT count(*) FROM test_cases WHERE job = jobs.id) AS done FROM jobs WHERE run = ? ORDER BY id",
        [run_id],
    )
    return tuple(_job(row) for row in rows)


def _job(row: Row) -> Job:
    return Job(
        id=row["id"],
        run_id=row["run"],
        total=row["total"],
        done=row["done"],
        state=row["state"],
        message=row["message"],
        inputs_key=row["inputs_key"],
        started=when(row["started"]),
        finished=when(row["finished"]) if row["finished"] else None,
    )


def _case(row: Row, images: Path) -> StoredTestCase:
    return StoredTestCase(
        id=row["id"],
        run_id=row["run"],
        job_id=row["job"],
        image_sha=row["image"],
        image_path=images / file_name(row["image"]),
        control_sha=row["control"],
        control_path=images / file_name(row["control"]),
        counterfactual=unpack_value(CounterfactualCaption, row["counterfactual"]),
        seed=int(row["seed"]),
        method=row["method"],
        model=row["model"],
        prompt=row["prompt"],
        negative_prompt=row["negative_prompt"],
        settings=json.loads(row["settings"]),
        seconds=row["seconds"],
        checks=unpack_value(tuple[Check, ...], row["checks"]),
        inputs_key=row["inputs_key"] or "",
        created=when(row["created"]),
        review=review_of(row),
    )
