"""Test cases with their reviews. Each job generates and saves some of them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from sqlite_utils import Database as Db

from core.csv_tables import cells
from core.data_files import DataTable
from core.errors import UserError
from core.lineage import Lineage, MethodSettings, TestCase, read_settings
from core.predictions import Prediction
from core.stored_runs import (
    Job,
    JobState,
    Review,
    SavedCase,
    StoredArtifact,
    StoredTestCase,
    Verdict,
)
from core.stored_studies import Candidate
from core.types import LONGEST_REASON, Check, ReviewDecision, Task, to_plain
from storage.engine.database import Database, Repository, first_row, read, write, writing
from storage.engine.queries import insert_row, insert_rows, records
from storage.engine.rows import Row, checked_text, now, pack, pack_value, record_of, unpack_value, when
from storage.evaluation.predictions import prediction_of
from storage.images import ImageFiles, Images, file_name, keep_image
from storage.runs.rows import latest_state, require_run
from storage.thumbnails import ThumbnailFiles, Thumbnails

_QUERIES = DataTable(__file__, str)
_ORIGIN = "run run_name profile recipe method model prompt negative_prompt seed settings created".split()
"""Columns of a test case that are copied into the item of a study."""


def insert_review(db: Db, case_id: int, verdict: Verdict, reason: str = "", restores: int | None = None) -> int:
    """Save a verdict on a test case and return the row's id. "open" withdraws the verdict.

    Raises UserError for an unknown test case. For an undo, `restores` is the row that is restored, or 0 for no row. For
    a new verdict it is None.
    """
    reason = checked_text(reason, "The reason", LONGEST_REASON, "reason")
    if first_row(db, "SELECT 1 FROM test_cases WHERE id = ?", [case_id]) is None:
        raise _unknown_case(case_id)
    row = {"test_case": case_id, "verdict": verdict, "reason": reason, "restores": restores, "created": now()}
    return insert_row(db, "reviews", row)


class TestCases(Repository):
    __test__ = False  # pytest would take it for a class of tests

    def __init__(self, database: Database, images: Images, thumbnails: Thumbnails) -> None:
        super().__init__(database)
        self._images, self._thumbnails = images, thumbnails

    def append(self, run_id: str, job_id: int | None, case: TestCase) -> int:
        """Save a test case with its images and return its id. Raises UserError for an unknown run or a full disk."""
        return self.extend(run_id, job_id, [case])[0]

    def extend(
        self, run_id: str, job_id: int | None, cases: Iterable[TestCase], reviews: Sequence[ReviewDecision | None] = ()
    ) -> tuple[int, ...]:
        """Save test cases of a run, all or none; return their ids in order.

        `reviews` are people's decisions on them in the same order. `cases` are read one by one, so pass a generator to
        keep few pixels in memory. Raises the errors of `append`.
        """
        saved = save_cases(self._images, self._thumbnails, cases)
        return self._database.write(lambda db: insert_test_cases(db, run_id, job_id, saved, reviews))

    @read
    def get(self, db: Db, case_id: int) -> StoredTestCase:
        """Return a test case without its pixels. Raises UserError if it does not exist."""
        for case in cases_by_id(db, [case_id], self._images.folder):
            return case
        raise _unknown_case(case_id)

    def load(self, case_id: int) -> TestCase:
        """Return a test case with its images, which are checked. Raises UserError if they are missing or damaged."""
        stored = self.get(case_id)
        return TestCase(
            image=self._images.load(stored.image_sha),
            lineage=stored.lineage,
            artifacts={name: self._images.load(artifact.sha) for name, artifact in stored.artifacts.items()},
            checks=stored.checks,
        )

    review = writing(insert_review)

    @read
    def candidates(self, db: Db, cases: Sequence[int] | None = None) -> tuple[Candidate, ...]:
        """Return test cases by id in this order, or all (None), oldest first. Deleted runs' test cases are left out."""
        numbers = None if cases is None else json.dumps(list(cases))
        rows = list(db.query(_QUERIES["candidates"], {"cases": numbers}))
        shas = {row[name] for row in rows for name in ("source_sha", "image_sha")}
        predictions = _predictions(db, self._images.folder, shas)
        found = {row["test_case"]: _candidate(row, predictions) for row in rows}
        return tuple(found[case] for case in (found if cases is None else cases) if case in found)


def _finish_job(db: Db, job_id: int, state: JobState, message: str = "") -> bool:
    """End a job as "done", "cancelled", "failed" or "interrupted". Return False if it had ended already."""
    query = "UPDATE jobs SET state = ?, message = ?, finished = ? WHERE id = ? AND state = 'running'"
    return bool(db.execute(query, [state, message, now(), job_id]).rowcount)


class Jobs(Repository):
    """The jobs of all processes that use the workspace. A job generates images."""

    process = 0
    """Number of this process; 0 while the workspace is closed."""

    @write
    def start(self, db: Db, run_id: str, total: int, inputs_key: str = "") -> int:
        """Start a generation of `total` images and return the job's id. Raises UserError for an unknown run."""
        require_run(db, run_id)
        row = {"run": run_id, "process": self.process, "total": total, "inputs_key": inputs_key}
        return insert_row(db, "jobs", {**row, "state": "running", "message": "", "started": now(), "finished": None})

    finish = writing(_finish_job)


def interrupt_jobs(db: Db, alive: Callable[[int], bool]) -> None:
    """End each running job as "interrupted" if its process is no longer `alive`."""
    for job_id, process in db.execute("SELECT id, process FROM jobs WHERE state = 'running'").fetchall():
        if not alive(process):
            _finish_job(db, job_id, "interrupted", "The program stopped before all images were made.")


def save_cases(images: ImageFiles, thumbnails: ThumbnailFiles, cases: Iterable[TestCase]) -> list[SavedCase]:
    """Save the image files and thumbnails of test cases. Return what to insert into the database."""
    saved = [
        SavedCase(
            case.lineage,
            case.checks,
            thumbnails.save(case.image, settled=False),
            {name: images.save(image, settled=False) for name, image in case.artifacts.items()},
        )
        for case in cases
    ]
    images.settle()
    return saved


def insert_test_cases(
    db: Db, run_id: str, job_id: int | None, saved: Sequence[SavedCase], reviews: Sequence[ReviewDecision | None] = ()
) -> tuple[int, ...]:
    """Insert test cases, with reviews if given. The job must belong to the run. Raises UserError for an unknown run."""
    require_run(db, run_id)
    numbers = tuple(_insert_test_case(db, run_id, job_id, case) for case in saved)
    for number, review in zip(numbers, reviews or [None] * len(numbers), strict=True):
        if review is not None:
            insert_review(db, number, review.verdict, review.reason)
    return numbers


def _insert_test_case(db: Db, run_id: str, job_id: int | None, saved: SavedCase) -> int:
    lineage = saved.lineage
    for stored in (saved.image, *saved.artifacts.values()):
        keep_image(db, stored)
    row = {
        "run": run_id,
        "job": job_id,
        "image": saved.image.sha,
        **cells(lineage, "recipe method model prompt negative_prompt seconds"),
        "counterfactual": pack_value(lineage.counterfactual),
        "seed": str(lineage.seed),
        "settings": pack(lineage.settings.plain()),
        "checks": pack([to_plain(check) for check in saved.checks]),
        # The record of an image may lack its task.
        "task": pack_value(lineage.task) if lineage.task is not None else latest_state(db, run_id)["task"],
        "created": now(),
    }
    number = insert_row(db, "test_cases", row)
    rows = ({"test_case": number, "name": name, "image": stored.sha} for name, stored in saved.artifacts.items())
    insert_rows(db, "artifacts", rows)
    return number


def read_test_cases(db: Db, run_id: str, images: Path) -> tuple[StoredTestCase, ...]:
    """Return the run's test cases, oldest first."""
    rows = db.query(f"{_QUERIES['cases']} WHERE test_cases.run = ? ORDER BY test_cases.id", [run_id])
    return tuple(_case(row, images) for row in rows)


def cases_by_id(db: Db, ids: Sequence[int], images: Path) -> tuple[StoredTestCase, ...]:
    """Return the test cases with these ids, of any run. Ids that do not exist are left out."""
    rows = db.query(f"{_QUERIES['cases']} WHERE test_cases.id IN (SELECT value FROM json_each(?))", [pack(list(ids))])
    return tuple(_case(row, images) for row in rows)


def read_jobs(db: Db, run_id: str) -> tuple[Job, ...]:
    """Return the run's jobs, oldest first."""
    return records(db, Job, _QUERIES["jobs"], [run_id])


def _unknown_case(case_id: int) -> UserError:
    return UserError(f"This workspace has no test case {case_id}. Open a run and pick a test case.", field="case")


@lru_cache(maxsize=256)
def _settings(method: str, packed: str) -> MethodSettings:
    # Cached, as images of a run share settings, and parsing these takes most of the time of a row.
    return read_settings(method, json.loads(packed))


@lru_cache(maxsize=256)
def _task(packed: str) -> Task:
    task: Task = unpack_value(Task, packed)
    return task


def _case(row: Row, images: Path) -> StoredTestCase:
    is_reviewed = row["verdict"] not in (None, "open")
    return record_of(
        StoredTestCase,
        row,
        image_path=images / file_name(row["image_sha"]),
        checks=checks_of(row),
        lineage=record_of(Lineage, row, settings=_settings(row["method"], row["settings"]), task=_task(row["task"])),
        artifacts={
            name: StoredArtifact(sha, images / file_name(sha)) for name, sha in json.loads(row["artifacts"]).items()
        },
        review=Review(row["verdict"], row["reason"], when(row["reviewed"])) if is_reviewed else None,
    )


def checks_of(row: Row) -> tuple[Check, ...]:
    """Return the checks of an image: those made when it was drawn, and those of its latest judgement by a model."""
    own: tuple[Check, ...] = unpack_value(tuple[Check, ...], row["checks"])
    judged: tuple[Check, ...] = unpack_value(tuple[Check, ...], row["judged"] or "[]")
    return own + judged


def _candidate(row: Row, predictions: Mapping[str, Mapping[str, Prediction]]) -> Candidate:
    of_source, of_image = predictions.get(row["source_sha"], {}), predictions.get(row["image_sha"], {})
    return record_of(
        Candidate,
        row,
        predictions={model: (of_source.get(model), of_image.get(model)) for model in sorted({*of_source, *of_image})},
        # Seed as text: JSON readers lose the last digits of 64 bits.
        origin={name: row[name] for name in _ORIGIN} | {"settings": json.loads(row["settings"])},
    )


def _predictions(db: Db, images: Path, shas: Iterable[str]) -> dict[str, dict[str, Prediction]]:
    by_image: dict[str, dict[str, Prediction]] = defaultdict(dict)
    latest = "SELECT max(id) FROM predictions WHERE image IN (SELECT value FROM json_each(?)) GROUP BY image, model"
    for row in db.query(f"SELECT * FROM predictions WHERE id IN ({latest})", [json.dumps(list(shas))]):
        if (prediction := prediction_of(row, images)) is not None:
            by_image[row["image"]][row["model"]] = prediction
    return by_image
