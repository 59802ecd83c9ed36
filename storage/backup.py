"""Back up a workspace into one zip file, and restore it. A finished backup and a restored folder have been checked.

An image whose file is lost or damaged does not stop a backup. It is left out and listed. `studio.db` is copied through
SQLite's backup API, so the workspace may be in use. The manifest is written last, and only then the file gets its final
name. So a file with this name is complete. No existing file is overwritten.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlite_utils import Database as Db

from core.errors import UserError
from core.images import file_hash
from core.locks import held_folder, keeps_locks, no_locks
from core.types import from_plain, to_plain
from storage.engine.rows import now
from storage.images import ImageFiles, file_name, sync_folder
from storage.schema import migrations
from storage.workspace import DATABASE, IMAGES

MANIFEST = "manifest.json"
FORMAT = 1
_BROKEN = (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError)  # RuntimeError for an entry with a password


@dataclass(frozen=True)
class BackupContents:
    """The content of a backup, written as the last entry of the zip file."""

    format: int
    created: str
    runs: int
    test_cases: int
    database_sha: str
    images: tuple[str, ...]
    """SHA-256 of each image, which is also the name of its file."""
    left_out: tuple[str, ...] = ()
    """Images that are not in the backup, as their files were missing or damaged."""


def backup(workspace: Path, target: Path) -> BackupContents:
    """Write the database and all intact images of a workspace into the zip file `target`.

    Raises UserError if `workspace` holds no workspace, its database is damaged, `target` exists, or the folder of
    `target` cannot be written. In these cases no file `target` is made.
    """
    source = workspace / DATABASE
    if not source.is_file():
        raise UserError(f"{workspace} holds no workspace (there is no {DATABASE} in it); name the workspace's folder.")
    _refuse_existing(target)
    with _scratch(target.absolute().parent) as scratch:
        database = scratch / DATABASE
        _copy_database(source, database)
        contents = _inspect(database, source)
        draft = scratch / "draft.zip"
        images = ImageFiles(workspace / IMAGES)
        with open(draft, "xb") as file, zipfile.ZipFile(file, "w") as archive:
            archive.write(database, DATABASE, zipfile.ZIP_DEFLATED)
            contents = _add_images(archive, images, contents)
            archive.writestr(MANIFEST, json.dumps(to_plain(contents), indent=1), zipfile.ZIP_DEFLATED)
            archive.close()
            file.flush()
            os.fsync(file.fileno())
        _refuse_existing(target)  # checked again, as the work took a while
        os.rename(draft, target)
        sync_folder(target.absolute().parent)
    return contents


def restore(source: Path, folder: Path) -> BackupContents:
    """Restore the workspace `folder` from the zip file `source`. Everything is checked before the folder gets its name.

    Raises UserError if `source` is no complete backup, if a newer version wrote it, or if `folder` exists and is not
    empty. `folder` stays unchanged then.
    """
    folder = folder.absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} is not empty and was left as it is; name a folder that does not exist.")
    with _opened(source) as archive, _scratch(folder.parent) as scratch:
        contents = _read_contents(archive, source)
        draft = scratch / "workspace"
        (draft / IMAGES).mkdir(parents=True)
        _extract(archive, DATABASE, draft / DATABASE, contents.database_sha, source)
        for sha in contents.images:
            _extract(archive, f"{IMAGES}/{file_name(sha)}", draft / IMAGES / file_name(sha), sha, source)
        restored = _inspect(draft / DATABASE, source)
        if set(restored.images) != {*contents.images, *contents.left_out}:
            raise UserError(f"{source} is incomplete: its images are not those of its database; use another backup.")
        sync_folder(draft / IMAGES)
        sync_folder(draft)
        os.rename(draft, folder)  # succeeds only if there is nothing or an empty folder
        sync_folder(folder.parent)
    return contents


def _refuse_existing(target: Path) -> None:
    if target.exists() or target.is_symlink():
        raise UserError(f"{target} exists and was left as it is; name a file that does not exist.")


def _copy_database(source: Path, target: Path) -> None:
    try:
        with closing(sqlite3.connect(source, isolation_level=None)) as live, closing(sqlite3.connect(target)) as copy:
            live.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")  # one file, without a write-ahead log beside it
    except sqlite3.Error as error:
        for place in (source, target):
            if not keeps_locks(place.parent):
                raise no_locks(place) from error
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise UserError(f"Nothing was written in {target.parents[1]}: its disk is full.") from error
        raise UserError(f"{source} cannot be read ({error}); name the folder of a workspace.") from error


def _inspect(database: Path, source: Path) -> BackupContents:
    """Return the contents that a backup's database lists. Raises UserError if it is damaged, newer or foreign."""
    try:
        # immutable: reading must not leave files beside the database
        with closing(sqlite3.connect(f"{database.as_uri()}?immutable=1", uri=True)) as connection:
            reason = migrations.refusal(Db(connection))
            if reason:
                raise UserError(f"The database in {source} {reason}; it was left as it is.")
            findings = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if findings != "ok" or connection.execute("PRAGMA foreign_key_check").fetchone():
                raise UserError(f"The database in {source} is damaged ({findings}); use an earlier backup.")
            images = tuple(sha for (sha,) in connection.execute("SELECT sha FROM images ORDER BY sha"))
            runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
            cases = connection.execute("SELECT count(*) FROM test_cases").fetchone()[0]
    except sqlite3.Error as error:
        raise UserError(f"The database in {source} is damaged ({error}); use an earlier backup.") from error
    return BackupContents(FORMAT, now(), runs, cases, file_hash(database), images)


def _add_images(archive: zipfile.ZipFile, images: ImageFiles, contents: BackupContents) -> BackupContents:
    left_out = []
    for sha in contents.images:
        try:
            data = images.read(sha)
        except UserError:
            left_out.append(sha)
        else:
            archive.writestr(f"{IMAGES}/{file_name(sha)}", data)  # a PNG is compressed already
    readable = tuple(sha for sha in contents.images if sha not in set(left_out))
    return replace(contents, images=readable, left_out=tuple(left_out))


def _read_contents(archive: zipfile.ZipFile, source: Path) -> BackupContents:
    try:
        data = json.loads(archive.read(MANIFEST))
        if data.get("format", 0) > FORMAT:
            raise UserError(f"{source} was written by a newer version; update this program.")
        return from_plain(BackupContents, data)
    except (KeyError, ValueError, TypeError, AttributeError, *_BROKEN) as error:
        raise UserError(f"{source} is not a whole backup (its {MANIFEST} is missing); use another backup.") from error


def _extract(archive: zipfile.ZipFile, name: str, target: Path, sha: str, source: Path) -> None:
    """Copy one entry of the zip to `target` and check its hash. Names in the zip are never used as paths."""
    try:
        with archive.open(name) as entry, open(target, "xb") as file:
            shutil.copyfileobj(entry, file)
            file.flush()
            os.fsync(file.fileno())
    except (KeyError, *_BROKEN) as error:
        raise UserError(f"{source} is damaged ({name} cannot be read); use another backup.") from error
    if file_hash(target) != sha:
        raise UserError(f"{source} is damaged ({name} does not fit its hash); use another backup.")


@contextmanager
def _opened(source: Path) -> Iterator[zipfile.ZipFile]:
    try:
        archive = zipfile.ZipFile(source)
    except OSError as error:
        raise UserError(f"{source} cannot be read ({error.strerror or error}); name a backup's zip file.") from error
    except zipfile.BadZipFile as error:
        raise UserError(f"{source} is not a whole zip file; use another backup.") from error
    with archive:
        yield archive


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder on the disk of the result and remove it at the end. Disk errors become UserErrors."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with held_folder(parent, ".storage-") as scratch:
            yield scratch
    except OSError as error:
        raise UserError(f"Nothing was written in {parent} ({error.strerror or error}); use another folder.") from error
