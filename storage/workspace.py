"""A workspace is a folder with `studio.db`, `images/` and `thumbs/`. Repositories give access to its content.

Every repository method that saves returns after the commit. All methods may be called from any thread. Several
processes may have the same workspace open, and one of them may be its server.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlite_utils import Database as Db

from core.errors import UserError
from core.locks import take_lock
from storage.batches.ledger import Batches
from storage.curation.case_columns import CaseColumns
from storage.curation.catalogue import Catalogue
from storage.curation.decisions import Decisions
from storage.curation.imports import Imports
from storage.curation.judgements import Judgements
from storage.curation.scores import Scores
from storage.curation.vectors import Vectors
from storage.engine.database import Database
from storage.engine.process_locks import Presence
from storage.engine.queries import insert_row
from storage.engine.rows import now
from storage.evaluation.models_under_test import ModelsUnderTest, Retrainings
from storage.evaluation.predictions import Predictions
from storage.example import Example
from storage.images import Images, remove_temporary
from storage.inversions import Inversions
from storage.pending import give_functions, take_up
from storage.runs.runs import Runs
from storage.runs.test_cases import Jobs, TestCases, interrupt_jobs
from storage.runs.undo import Steps
from storage.schema import migrations
from storage.studies.studies import Studies
from storage.test_sets.test_sets import TestSets
from storage.thumbnails import Thumbnails
from storage.tokens import Tokens

DATABASE = "studio.db"
IMAGES = "images"
THUMBNAILS = "thumbs"
SERVER = "server"
"""Name of the lock file of a server. The file holds the server's address."""
INVERSIONS = "inversions"
MODEL_FILES = "models"
_MODEL_FILE = re.compile(rf".*[\\/]{MODEL_FILES}[\\/]([0-9a-f]{{24}})[\\/]([^\\/]+)")
"""Pattern of paths of model files stored in a workspace. Its groups are the content hash and the file name."""
_SCRATCH = re.compile(r"(\d+)-[0-9a-f]{8}")
"""Pattern of names of folders for incomplete files. Its group is the number of the process that made the folder."""


class Workspace:
    """The content of a workspace folder. Call `open` before use, or use it in a `with` block."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.trainings = self.folder / "retrainings"
        """Folder of retrained weights, with one folder for each model that was trained further. It need not exist."""
        self.model_files = self.folder / MODEL_FILES
        """Folder of model files that were uploaded, or trained here and then chosen. It need not exist."""
        self._database = Database(self.folder / DATABASE, migrations.check, _migrate, take_up)
        self._presence = Presence(self.folder / "open")
        self.images = Images(self.folder / IMAGES, self._database)
        self.thumbnails = Thumbnails(self.folder / THUMBNAILS, self.images, self._database)
        self.inversions = Inversions(self.folder / INVERSIONS, self.images)
        self.runs = Runs(self._database, self.images, self.thumbnails)
        self.test_cases = TestCases(self._database, self.images, self.thumbnails)
        self.catalogue = Catalogue(self._database, self.images)
        self.decisions = Decisions(self._database)
        self.steps = Steps(self._database)
        self.jobs = Jobs(self._database)
        self.predictions = Predictions(self._database, self.images)
        self.models_under_test = ModelsUnderTest(self._database)
        self.retrainings = Retrainings(self._database)
        self.case_columns = CaseColumns(self._database)
        self.scores = Scores(self._database)
        self.judgements = Judgements(self._database)
        self.studies = Studies(self._database)
        self.test_sets = TestSets(self._database, self.images)
        self.imports = Imports(self._database)
        self.vectors = Vectors(self._database, self.folder / "vectors")
        self.batches = Batches(self._database, self.images, self._presence.alive)
        self.tokens = Tokens(self._database)
        self.example = Example(self._database)

    def open(self) -> Workspace:
        """Open or create the workspace. End the jobs of dead processes and remove their temporary files.

        Raises UserError if the folder cannot be written, or its database is damaged or of another program or version.
        """
        try:
            for folder in (self.folder, self.images.folder, self._presence.folder):
                folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.folder, self.images.folder):
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError(13, "Permission denied")
        except OSError as error:
            raise self._not_writable(error) from error
        self._database.open()
        try:
            process = self._database.write(self._enter)
            self.images.process = self.jobs.process = process
        except BaseException as error:
            self.images.process = self.jobs.process = 0
            self._presence.leave()
            self._database.close()
            if isinstance(error, OSError):
                raise self._not_writable(error) from error
            raise
        return self

    def close(self) -> None:
        """Finish pending writes and close. Running jobs of this process are marked "interrupted"."""
        process = self.images.process
        self.images.process = self.jobs.process = 0
        try:
            if process:
                self._database.write(lambda db: interrupt_jobs(db, lambda number: number != process))
        finally:
            self._presence.leave()
            self._database.close()

    @contextmanager
    def served(self, address: str) -> Iterator[None]:
        """Reserve the workspace for this server within the `with` block. Two servers would draw each approved image
        twice.

        Raises UserError if another server has reserved the workspace. The message names this server's address.
        """
        path = self._presence.folder / SERVER
        with path.open("a+", encoding="utf-8") as file:
            try:
                take_lock(file, path)
            except BlockingIOError as error:
                file.seek(0)
                who = file.read() or "Another studio"
                raise UserError(
                    f"{who} has the workspace {self.folder} open: use that studio, end it, or choose another workspace."
                ) from error
            file.truncate(0)
            file.write(f"The studio at {address} (process {os.getpid()} on {socket.gethostname()})")
            file.flush()
            yield

    def scratch(self, name: str) -> Path:
        """Make a new folder for incomplete files inside the folder `name`. Remove such folders of dead processes.
        Raises OSError.

        The new folder's name has the number of this process in the workspace. A process id would not do, as the next
        process of a container may have the same one (see `storage.engine.process_locks`).
        """
        if not self.images.process:
            raise RuntimeError("the workspace is closed")
        home = self.folder / name
        home.mkdir(parents=True, exist_ok=True)
        for left in self.left_behind(name):
            shutil.rmtree(left, ignore_errors=True)
        folder = home / f"{self.images.process}-{secrets.token_hex(4)}"
        folder.mkdir(parents=True)  # another process may have removed the parent folder in the meantime
        return folder

    def left_behind(self, name: str) -> list[Path]:
        """Return the folders inside `name` that `scratch` made for processes that are now dead."""
        home = self.folder / name
        matches = [_SCRATCH.fullmatch(left.name) for left in home.iterdir()] if home.is_dir() else []
        return [home / match[0] for match in matches if match and not self._presence.alive(int(match[1]))]

    def model_file(self, named: str) -> str:
        """Return the path in this workspace of a stored model file. The path `named` may be from another workspace.
        Return any other path unchanged.
        """
        stored_model = kept_model(named)
        if stored_model is None or not (here := self.model_files.joinpath(*stored_model)).exists():
            return named
        return str(here)

    def saved(self) -> int:
        """Return a number that changes with every commit of any process."""
        return self._database.saved()

    def __enter__(self) -> Workspace:
        return self.open()

    def __exit__(self, *error: object) -> None:
        self.close()

    def _enter(self, db: Db) -> int:
        process = insert_row(db, "processes", {"host": socket.gethostname(), "pid": os.getpid(), "opened": now()})
        self._presence.enter(process)
        interrupt_jobs(db, self._presence.alive)
        for files in (self.images, self.thumbnails, self.inversions):
            remove_temporary(files.folder, self._presence.alive)
        self._presence.sweep()
        return process

    def _not_writable(self, error: OSError) -> UserError:
        return UserError(
            f"The workspace folder {self.folder} cannot be written ({error.strerror or error}); pick another folder."
        )


def kept_model(path: str) -> tuple[str, str] | None:
    """Return (content hash, name) from the path of a model file stored in any workspace; None for any other path."""
    match = _MODEL_FILE.fullmatch(path)
    return None if match is None else (match[1], match[2])


def _migrate(db: Db) -> None:
    give_functions(db.conn)
    migrations.migrate(db)
