"""A workspace: one folder with `studio.db` and `images/`. The only door to what was saved.

Every method that saves returns after the commit. All methods may be called from any thread, and two processes may
have the same workspace open.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import sqlite_utils
from PIL import Image

from pipeline.errors import UserError
from pipeline.types import Decision, StageName, StageValue, Task, TestCase
from storage import generation, imports, judgements, migrations, runs, summaries
from storage.database import Database
from storage.images import ImageStore, StoredImage
from storage.presence import Presence
from storage.rows import insert_row, keep_image, now
from storage.studies import Studies
from storage.types import JobState, Run, RunSummary, StoredState, StoredTestCase, StoredValue, Verdict

if TYPE_CHECKING:
    from pipeline.carried import RunRecord

DATABASE = "studio.db"
IMAGES = "images"
PRESENCE = "open"


class Workspace:
    """What was saved in `folder`. Open it before use, or use it in a `with` block."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self._database = Database(self.folder / DATABASE)
        self._presence = Presence(self.folder / PRESENCE)
        self._images = ImageStore(self.folder / IMAGES, process=0)
        self._process = 0
        self.studies = Studies(self._database)
        """The validity studies."""

    def open(self) -> Workspace:
        """Open or create the workspace; end the jobs, and remove the half files, of processes that are gone.

        Raises UserError when the folder cannot be written, or its database is damaged, no database, another
        program's or a newer version's.
        """
        try:
            for folder in (self.folder, self._images.folder, self._presence.folder):
                folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.folder, self._images.folder):
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise self._not_writable(error) from error
        self._database.open(migrations.check, migrations.migrate)
        try:
            self._process = self._database.write(self._enter)
        except BaseException as error:
            self._presence.leave()
            self._database.close()
            if isinstance(error, OSError):
                raise self._not_writable(error) from error
            raise
        self._images = ImageStore(self._images.folder, self._process)
        return self

    def close(self) -> None:
        """Finish what is being saved and close. Jobs of this workspace still running end as "interrupted"."""
        process, self._process = self._process, 0
        try:
            if process:
                self._database.write(lambda db: generation.interrupt_jobs(db, lambda number: number != process))
        finally:
            self._presence.leave()
            self._database.close()

    def __enter__(self) -> Workspace:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # Runs

    def create_run(
        self,
        source: Image.Image,
        task: Task,
        profile: str,
        name: str,
        settings: Mapping[str, Any],
        notes: Sequence[str] = (),
        sample: str = "",
    ) -> str:
        """A new run from a source image (L, RGB or RGBA); returns its id.

        `settings` is plain data; `notes` say what was put right in the picture; `sample` is the name of the sample
        that it is, if it is one. Raises UserError for an empty name or a full disk.
        """
        image = self._save(source)
        return self._database.write(lambda db: runs.create_run(db, image, task, profile, name, settings, notes, sample))

    def set_task(self, run_id: str, task: Task) -> None:
        """Give the run another task; the earlier one stays in the database. Raises UserError for an unknown run."""
        self._database.write(lambda db: runs.set_task(db, run_id, task))

    def set_settings(self, run_id: str, settings: Mapping[str, Any]) -> int | None:
        """Give the run other settings (plain data); the earlier ones stay. Returns the id of the state that it has now,
        None when they are those it had. Raises UserError for an unknown run.
        """
        return self._database.write(lambda db: runs.set_settings(db, run_id, settings))

    def rename(self, run_id: str, name: str) -> None:
        """Give the run another name. Raises UserError for an unknown run and for an empty or too long name."""
        self._database.write(lambda db: runs.rename(db, run_id, name))

    def set_mask(self, run_id: str, mask: Image.Image | None, classes: Mapping[int, str] | None = None) -> None:
        """Give the run a mask (mode L, one class number a pixel) and the names of its classes, or take it away.

        Raises UserError for an unknown run or a full disk, ValueError for an image of another mode.
        """
        if mask is not None and mask.mode != "L":
            raise ValueError(f"a mask has mode L, not {mask.mode}")
        stored = self._save(mask) if mask is not None else None
        self._database.write(lambda db: runs.set_mask(db, run_id, stored, classes or {}))

    def set_prompts(self, run_id: str, prompts: Mapping[StageName, str]) -> int | None:
        """Give the run the prompt templates that a person edited, all at once; the earlier ones stay.

        Returns and raises as `set_settings`.
        """
        return self._database.write(lambda db: runs.set_prompts(db, run_id, prompts))

    def states(self, run_id: str, since: int = 0) -> tuple[StoredState, ...]:
        """Settings and prompts as they were, oldest first, from the state with the id `since` on. Raises UserError for
        an unknown run.
        """
        return self._database.read(lambda db: runs.read_states(db, run_id, since))

    def prompt_states(self, run_id: str) -> tuple[StoredState, ...]:
        """Of the states of a run those with which its prompts became others, oldest first."""
        return self._database.read(lambda db: runs.read_prompt_states(db, run_id))

    def remove_run(self, run_id: str) -> None:
        """Take the run out of the list of runs; nothing of it is lost. Raises UserError for an unknown run."""
        self._database.write(lambda db: runs.set_removed(db, run_id, True))

    def restore_run(self, run_id: str) -> None:
        """Put a removed run back into the list of runs. Raises UserError for an unknown run."""
        self._database.write(lambda db: runs.set_removed(db, run_id, False))

    def duplicate_run(self, run_id: str) -> str:
        """A copy of the run as it is now, without its test cases and earlier versions; returns the copy's id.

        Raises UserError for an unknown run.
        """
        return self._database.write(lambda db: runs.duplicate_run(db, run_id))

    def import_run(
        self,
        record: RunRecord,
        source: Image.Image,
        mask: Image.Image | None = None,
        case: TestCase | None = None,
        review: Decision | None = None,
    ) -> str:
        """Save a run from another workspace, all of it or nothing; returns its id, which is the record's if that is
        free. Raises UserError for a name that is empty or too long, or a full disk.
        """
        stored, stored_mask = self._save(source), self._save(mask) if mask is not None else None
        pictures = (self._save(case.image), self._save(case.control)) if case is not None else None
        return self._database.write(
            lambda db: imports.import_run(db, record, stored, stored_mask, case, pictures, review)
        )

    def has_run(self, run_id: str) -> bool:
        """Whether there is such a run, removed or not."""
        return self._database.read(lambda db: runs.run_exists(db, run_id))

    def run(self, run_id: str) -> Run:
        """The run with the latest of everything, also a removed one. Raises UserError for an unknown run."""
        return self._database.read(lambda db: runs.read_run(db, run_id, self._images.folder))

    def runs(self, limit: int = 50, removed: bool = False, find: str = "") -> tuple[RunSummary, ...]:
        """The runs, the one that was worked on last first; with `removed` those that a person deleted.

        Of them those that have `find` in their name or label.
        """
        return self._database.read(lambda db: summaries.read_runs(db, limit, self._images.folder, removed, find))

    def count_runs(self, find: str = "") -> int:
        """How many runs there are, without the deleted ones, that have `find` in their name or label."""
        return self._database.read(lambda db: summaries.count_runs(db, find))

    def latest_run(self) -> str | None:
        """The id of the run that was worked on last; None in an empty workspace."""
        latest = self.runs(limit=1)
        return latest[0].id if latest else None

    # Values of the text stages

    def append_value(self, run_id: str, stage: StageName, value: StageValue[Any]) -> int:
        """Save a new version of a stage's value; returns its id. Raises UserError for an unknown run."""
        return self._database.write(lambda db: runs.append_value(db, run_id, stage, value))

    def bring_back(self, value_id: int) -> int:
        """Make an earlier version the latest again by saving a copy; returns the copy's id. Raises UserError."""
        return self._database.write(lambda db: runs.bring_back(db, value_id))

    def history(self, run_id: str, stage: StageName) -> tuple[StoredValue, ...]:
        """Every version of a stage's value, oldest first. Raises UserError for an unknown run."""
        return self._database.read(lambda db: runs.read_history(db, run_id, stage))

    def share_edited(self) -> dict[StageName, float]:
        """For each text stage that has values: the share of runs (0 to 1) whose latest value a person wrote."""
        return self._database.read(runs.share_edited)

    # Jobs and test cases

    def start_job(self, run_id: str, total: int, inputs_key: str = "") -> int:
        """A generation of `total` images begins; returns its id. `inputs_key` as in `pipeline.freshness`."""

        def start(db: sqlite_utils.Database) -> int:
            runs.require_run(db, run_id)
            return generation.start_job(db, self._process, run_id, total, inputs_key)

        return self._database.write(start)

    def finish_job(self, job_id: int, state: JobState, message: str = "") -> bool:
        """End a job as "done", "cancelled", "failed" or "interrupted". The first end counts; False for a later one."""
        return self._database.write(lambda db: generation.finish_job(db, job_id, state, message))

    def append_test_case(self, run_id: str, job_id: int | None, case: TestCase) -> int:
        """Save a test case with its two images; returns its id. Raises UserError for an unknown run or a full disk."""
        image, control = self._save(case.image), self._save(case.control)

        def append(db: sqlite_utils.Database) -> int:
            runs.require_run(db, run_id)
            return generation.append_test_case(db, run_id, job_id, case, image, control)

        return self._database.write(append)

    def stored_test_case(self, case_id: int) -> StoredTestCase:
        """A test case without its pixels. Raises UserError when there is none with this id."""
        return self._database.read(lambda db: generation.read_test_case(db, case_id, self._images.folder))

    def test_case(self, case_id: int) -> TestCase:
        """A test case as it was made, images loaded and checked. Raises UserError when it is missing or damaged."""
        stored = self.stored_test_case(case_id)
        return TestCase(
            image=self.image(stored.image_sha),
            control=self.image(stored.control_sha),
            counterfactual=stored.counterfactual,
            seed=stored.seed,
            method=stored.method,
            model=stored.model,
            prompt=stored.prompt,
            negative_prompt=stored.negative_prompt,
            settings=stored.settings,
            seconds=stored.seconds,
            checks=stored.checks,
        )

    # What is said of an image

    def append_review(self, case_id: int, verdict: Verdict, reason: str = "") -> int:
        """Save a person's verdict on a test case; "open" takes it back. Raises UserError for an unknown test case."""
        return self._database.write(lambda db: judgements.append_review(db, case_id, verdict, reason))

    def append_reading(self, sha: str, model: str, value: Mapping[str, Any]) -> int:
        """Save what a model under test said of an image (plain data). Raises UserError for an unknown image."""
        return self._database.write(lambda db: judgements.append_reading(db, sha, model, value))

    def reading(self, sha: str, model: str) -> Mapping[str, Any] | None:
        """What `model` said of the image last; None when it was never asked."""
        return self._database.read(lambda db: judgements.read_reading(db, sha, model))

    # Images

    def image_path(self, sha: str) -> Path:
        """The file of an image. Raises UserError when `sha` is not 64 hexadecimal digits or the file is missing."""
        return self._images.path(sha)

    def add_image(self, image: Image.Image) -> str:
        """Save an image (L, RGB or RGBA) that was made elsewhere and belongs to no run; returns its hash.

        Raises UserError when the disk refuses.
        """
        stored = self._save(image)
        self._database.write(lambda db: keep_image(db, stored))
        return stored.sha

    def image(self, sha: str) -> Image.Image:
        """An image, its bytes checked against its hash. Raises UserError when it is missing or damaged."""
        return self._images.load(sha)

    def _save(self, image: Image.Image) -> StoredImage:
        if not self._process:
            raise RuntimeError("the workspace is closed")
        return self._images.save(image)

    def _enter(self, db: sqlite_utils.Database) -> int:
        row = {"host": socket.gethostname(), "pid": os.getpid(), "opened": now()}
        process = insert_row(db, "processes", row)
        self._presence.enter(process)
        generation.interrupt_jobs(db, self._presence.alive)
        self._images.sweep(self._presence.alive)
        self._presence.sweep()
        return process

    def _not_writable(self, error: OSError) -> UserError:
        return UserError(
            f"The workspace folder {self.folder} cannot be written ({error.strerror or error}); pick another folder."
        )
