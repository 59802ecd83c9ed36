"""Released versions as zip files for browsers. A zip is written in the background, and kept for an hour.

The files are written in the workspace's folder, whose disk needs room for a copy of the images. They are packed without
compression, since pictures are compressed already. The same version in the same format always gives the same bytes.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import UserError, disk_reason
from core.progress import OnCount
from core.test_sets import SetVersion
from formats.draft import MANIFEST
from formats.layouts import LAYOUTS, TITLES
from services.changes import Changes
from services.commands import Missing
from services.test_sets.examples import export_version
from services.test_sets.versions import version_of
from services.work_queue import WorkQueue, WorkView
from storage.workspace import Workspace

FORMATS = tuple(LAYOUTS)
"""Names of all formats, as used in commands."""
FORMAT_TITLES = TITLES
WRITTEN = tuple(name for name, layout in LAYOUTS.items() if layout.write is not None)
"""Names of the formats in which a test set can be written."""
FOLDER = "exports"
"""Name of the workspace's folder for exports. It is not in backups, since exports can always be made again."""
_ABOUT = "export.json"
"""Name of a file in the folder of an export, with the export's format and version."""
_LONGEST_STEM = 60
_PIECE = 1 << 20
_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can store. All files get it, so that an export can be repeated exactly."""


@dataclass(frozen=True)
class ReadyExport:
    """A finished zip that can be downloaded."""

    version: str
    layout: str
    file: Path
    name: str
    """Suggested file name."""
    size: int
    """Size in bytes."""


class SetExports:
    """Makes and keeps the exports of one workspace, one after another. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, changes: Changes | None = None) -> None:
        self._workspace = workspace
        self._queue = WorkQueue(changes, drop_export)
        self.view, self.cancel, self.close = self._queue.view, self._queue.cancel, self._queue.close
        """`view` returns the progress of an export. `cancel` stops an export, or deletes its zip. `close` stops all
        exports and deletes all zips. `view` and `cancel` raise Missing for an unknown export.
        """
        self._lock = threading.Lock()
        self._waited: dict[int, int] = {}
        """Number of waiting callers, by export. An export without an entry does not depend on waiting callers."""
        self._tell_what_was_lost()

    def start(self, reference: str, layout: str, waits: bool = False) -> WorkView:
        """Begin an export of a released version, and return its progress. If the same export is in progress or
        finished, it is returned.

        A caller that `waits` for the export must call `leave` at the end. Raises UserError for an unknown version, a
        draft or an unknown format, or if too much work waits.
        """
        version = version_of(self._workspace, reference)
        if version.is_draft:
            raise UserError(f"“{version.words}” is a draft: release it, then export the version.", field="version")
        if layout not in WRITTEN:
            raise UserError("There is no such format: choose one from the list.", field="layout")
        with self._lock:
            for known in self._queue.of(version.id):
                is_useful = known.active or (known.state == "done" and known.result.file.is_file())
                if known.kind == layout and not known.stopping and is_useful:
                    if not waits:
                        self._waited.pop(known.id, None)
                    elif known.id in self._waited:
                        self._waited[known.id] += 1
                    return known
            number = self._queue.start(layout, version.id, lambda on_count: self._export(version, layout, on_count))
            if waits:
                self._waited[number] = 1
            return self._queue.view(number)

    def leave(self, number: int, needed: bool = False) -> None:
        """Stop waiting for an export. Cancel it if nobody else wants it and `needed` is False."""
        with self._lock:
            left = self._waited.pop(number, 0) - 1
            if left > 0 and not needed:
                self._waited[number] = left
            elif left == 0 and not needed:
                with suppress(Missing):  # a page has removed the export
                    if self._queue.view(number).active:
                        self._queue.cancel(number)

    def of(self, version: SetVersion) -> Sequence[WorkView]:
        """Return all known exports of a version, the latest first."""
        return self._queue.of(version.id) if version.id else ()

    def ready(self, number: int) -> ReadyExport:
        """Return the zip of an export. Raises UserError if the export is not finished, Missing if the zip is gone."""
        view = self._queue.view(number)
        if view.state != "done":
            raise UserError("This export is not finished, or it failed: see the page of the version.")
        export: ReadyExport = view.result
        if not export.file.is_file():
            self.cancel(number)
            raise Missing("The file of this export is gone: export the version again.")
        return export

    def _tell_what_was_lost(self) -> None:
        """Remove the files of exports that a killed studio left behind, and list these exports as failed."""

        def lost(_: OnCount) -> None:
            raise UserError("The studio ended before this export was downloaded: export the version again.")

        for left in self._workspace.left_behind(FOLDER):
            with suppress(OSError, ValueError):  # the studio was killed before it wrote this file
                layout, version = json.loads((left / _ABOUT).read_text(encoding="utf-8"))
                self._queue.start(layout, version, lost)
            shutil.rmtree(left, ignore_errors=True)

    def _export(self, version: SetVersion, layout: str, on_count: OnCount) -> ReadyExport:
        images = max(1, version.entries)  # the first half of the work is to write images, the second to pack files

        def write(file: Path) -> None:
            (file.parent / _ABOUT).write_text(json.dumps([layout, version.id]), encoding="utf-8")
            folder = export_version(
                self._workspace,
                version,
                file.with_suffix(""),
                layout,
                progress=lambda state: on_count(state.done, 2 * images),
            )
            packed(folder, file, file.stem, lambda done, files: on_count(images + images * done // files, 2 * images))

        return written_export(self._workspace, version, layout, write)


def written_export(
    workspace: Workspace, version: SetVersion, layout: str, write: Callable[[Path], object]
) -> ReadyExport:
    """Call `write` with the path of a zip in a new folder, and return the finished zip. An error removes the folder.
    Raises UserError if the disk fails.
    """
    name = f"{file_stem(version.set_name, 'test-set')}-v{version.place}-{layout}.zip"
    place: Path | None = None
    try:
        place = workspace.scratch(FOLDER)
        write(place / name)
        return ReadyExport(version.id, layout, place / name, name, (place / name).stat().st_size)
    except BaseException as error:
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
        if isinstance(error, OSError):
            home = workspace.folder / FOLDER
            raise UserError(f"The export could not be written below {home}. {disk_reason(error)}.") from error
        raise


def packed(folder: Path, file: Path, name: str, on_count: OnCount) -> None:
    """Pack `folder` as the zip `file` with one folder `name`, the manifest last. Files are deleted once packed."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())
    files.sort(key=lambda file: file == MANIFEST)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for number, file_name in enumerate(files, start=1):
            path = folder / file_name
            entry = zipfile.ZipInfo(f"{name}/{file_name}", _TIME)
            entry.create_system, entry.external_attr = 3, 0o644 << 16  # the same values on every system
            entry.file_size = path.stat().st_size
            with path.open("rb") as source, archive.open(entry, "w") as into:
                shutil.copyfileobj(source, into, _PIECE)
            path.unlink()
            on_count(number, len(files))
    shutil.rmtree(folder)


def file_stem(name: str, otherwise: str) -> str:
    """Return `name` changed to be valid in file names and HTTP headers, or `otherwise` if nothing of it is left."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:_LONGEST_STEM].strip("-") or otherwise


def drop_export(result: ReadyExport) -> None:
    """Delete a zip with its folder."""
    # On Unix a file can be deleted while it is sent. On other systems it stays until the next start of the studio.
    shutil.rmtree(result.file.parent, ignore_errors=True)
