"""Imports uploads in the background, and puts imported images into test sets."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from core.csv_tables import cells, facts
from core.errors import Cancelled, UserError, disk_reason
from core.image_filter import ImageFilter
from core.imports import Import
from core.masks import parse_classes
from core.progress import Progress, stop_if
from core.test_sets import LONGEST_NAME, SetEntry, SetVersion
from core.words import count_of
from formats.naming import name_of_file
from services.changes import Changes
from services.commands import Missing, does
from services.curation import import_source
from services.curation.import_source import Done, bring_in, bring_in_apart, new_room, remove_room, require_layout
from services.edit_conflicts import LARGEST_ID, After
from services.queries import MOST_LISTED, Query
from services.test_sets.examples import origin_of
from services.test_sets.versions import LONGEST_REFERENCE, set_of
from storage.curation.imports import ImportedImage
from storage.engine.rows import whole
from storage.test_sets.test_sets import LONGEST_NOTE
from storage.workspace import Workspace

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InSet:
    """Result of putting an import into a test set."""

    version: SetVersion
    added: int
    already: int

    @property
    def words(self) -> str:
        """Return the result in a sentence, for a person."""
        if not self.added:
            return f"“{self.version.words}” has all of these images already: nothing was changed."
        already = f"; {self.already} were in it already" if self.already else ""
        into = f"the draft of “{self.version.set_name}”" if self.version.is_draft else f"“{self.version.words}”"
        return f"{count_of(self.added, 'image')} came into {into}{already}."


@dataclass(frozen=True)
class ImportState:
    """A snapshot of the import of an upload."""

    name: str
    state: Literal["running", "done", "failed", "stopped"] = "running"
    done: int = 0
    total: int = 0
    """Number of images found; 0 until it is known."""
    seconds_left: float | None = None
    rows: int = 0
    """Number of rows so far in the report on the files."""
    number: int = 0
    """Number of the import; 0 before its first images are read."""
    message: str = ""
    """Sentence for a person about the result or the failure; "" while the import runs."""
    upload: int = 1
    """Number of the upload, counted from 1 since the studio started."""


class ImportService:
    """Imports into one workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, changes: Changes | None = None) -> None:
        self.stored = workspace.imports
        """Stored imports, with the reports on their files."""
        self._workspace, self._changes = workspace, changes or Changes()
        self._lock = threading.Lock()
        self._state: ImportState | None = None
        self._cancelled = threading.Event()
        self._thread: threading.Thread | None = None

    def require_ready(self, layout: str = "", classes: str = "") -> None:
        """Raise UserError if another import is running, or if a field for `import_upload` is invalid."""
        require_layout(layout)
        try:
            parse_classes(classes)
        except UserError as error:
            raise UserError(str(error), field="classes") from error
        if self._state is not None and self._state.state == "running":
            raise UserError("Another import is running: wait for it, or stop it.")

    def import_upload(
        self,
        file: Path,
        file_name: str,
        name: str = "",
        layout: str = "",
        classes: str = "",
        labels: Sequence[str] = (),
        test_set: str | None = None,
    ) -> ImportState:
        """Begin to import an uploaded zip or tar in the background; `state` returns the progress. `file_name` is the
        name that the user's file had. The file is moved, and deleted when the import ends. With a `test_set`, the
        images also go into the draft of this set; "" stands for the set named in the upload. Other parameters are as in
        `bring_in`. Raises UserError for an invalid field, if another import runs, or if the file cannot be moved.
        """
        shown = whole(" ".join(name.split()) or Path(file_name).stem)[:LONGEST_NAME] or "upload"
        with self._lock:
            self.require_ready(layout, classes)
            room = new_room(self._workspace)
            moved_file = room / name_of_file(Path(file_name).name)
            try:
                shutil.move(file, moved_file)
            except OSError as error:
                remove_room(room)
                raise UserError(f"The upload cannot be stored. {disk_reason(error)}.") from error
            cancelled = self._cancelled = threading.Event()
            self._state = ImportState(shown, upload=1 if self._state is None else self._state.upload + 1)
            texts: dict[str, Any] = {"name": shown, "layout": layout, "classes": classes, "labels": tuple(labels)}
            bring = partial(bring_in, source=moved_file, **texts, at_once=import_source.AT_ONCE)
            arguments = bring, test_set, cancelled, room
            self._thread = threading.Thread(target=self._work, args=arguments, name="import", daemon=True)
            self._thread.start()
            return self._state

    def state(self) -> ImportState | None:
        """Return the progress of the latest upload, or None if there was none since the server started."""
        return self._state

    @does("stop-import")
    def stop(self) -> dict[str, bool]:
        """Stop the running import. Imported images stay. Start the same import again to resume it."""
        self._cancelled.set()
        return {"stopping": self._state is not None and self._state.state == "running"}

    def close(self, seconds: float = 5.0) -> None:
        """Stop the running import, and wait at most `seconds` for its end."""
        self.stop()
        if self._thread is not None:
            self._thread.join(seconds)

    # Queries

    @does("list-imports", Query)
    def listed(self) -> dict[str, Any]:
        """List the imports of folders and archives, the latest first."""
        state = self.state()
        return {
            "imports": [import_facts(import_record) for import_record in self._workspace.imports.all()],
            "going_on": asdict(state) if state is not None and state.state == "running" else None,
            "latest_upload": asdict(state) if state is not None else None,
        }

    @does("show-import", Query)
    def show(
        self,
        number: Annotated[int, Field(ge=0, le=LARGEST_ID, description="The number of the import, from list_imports")],
        after: After = 0,
        limit: Annotated[int, Field(ge=1, le=MOST_LISTED, description="Maximum number of report rows")] = 50,
    ) -> dict[str, Any]:
        """Show the progress of an import, and the report on its files. Raises UserError for an unknown number."""
        imports, state = self._workspace.imports, self.state()
        page = imports.rows(number, after, limit + 1)
        shown = page[:limit]
        return {
            **import_facts(imports.get(number)),
            "upload": asdict(state) if state is not None and state.number == number else None,
            "report": [facts(row, "file reason kind") for _, row in shown],
            "next": shown[-1][0] if len(page) > len(shown) else 0,
        }

    # Implementation

    @does("import-into-test-set")
    def put_into_set(
        self,
        number: Annotated[int, Field(ge=0, le=LARGEST_ID, description="The number of the import, from list_imports")],
        test_set: Annotated[
            str,
            Field(
                max_length=LONGEST_REFERENCE,
                description="The id or name of the test set; empty for the name that the set had when it was exported",
            ),
        ] = "",
    ) -> dict[str, Any]:
        """Put the images of a finished import into the draft of a test set, with their labels, splits and masks."""
        done = into_set(self._workspace, number, test_set)
        return facts(done, "added already", test_set=done.version.test_set)

    def _work(self, bring: Callable[..., Done], test_set: str | None, cancelled: threading.Event, room: Path) -> None:
        def on_progress(at: Progress, rows: int) -> None:
            stop_if(cancelled)
            self._tell(done=at.done, total=at.total, seconds_left=at.seconds_left, rows=rows)

        state: Literal["done", "failed", "stopped"] = "done"
        try:
            done = bring_in_apart(self._workspace.folder, bring, on_progress, lambda number: self._tell(number=number))
            self._tell(number=done.imported.id, name=done.imported.name, rows=sum(done.imported.rows.values()))
            message = done.words
            if test_set is not None:
                message += f" {into_set(self._workspace, done.imported.id, test_set).words}"
        except Cancelled:
            state, message = "stopped", "The import was stopped: start the same import again to resume it."
        except UserError as error:
            state, message = "failed", str(error)
        except Exception as error:  # the waiting person must see it
            log.exception("an import failed")
            words = f"The studio itself failed ({type(error).__name__}: {error}); the terminal says more. Try again."
            state, message = "failed", words
        remove_room(room)
        self._tell(state=state, message=message, seconds_left=None)

    def _tell(self, **changes: Any) -> None:
        assert self._state is not None
        self._state = replace(self._state, **changes)
        self._changes.tell()


def into_set(workspace: Workspace, number: int, test_set: str = "") -> InSet:
    """Put the images of a finished import into the draft of a test set. The set and its draft are created if needed.
    Images that the set already has stay as they are. If it has all of them, no draft is created. Raises UserError if
    the import is unknown, unfinished or without images.
    """
    imported = workspace.imports.get(number)
    if imported.state != "done":
        raise UserError(f"The import “{imported.name}” is not finished: import the same files again, then repeat this.")
    sets, header = workspace.test_sets, imported.header
    set_name = " ".join(test_set.split()) or str(header.get("name", "")) or imported.name
    images = workspace.imports.held(number)
    if not images:
        raise UserError(f"The import “{imported.name}” has no images.")
    entries = (entry_of(image, imported.name) for image in workspace.imports.images(number))
    # All images go in by one transaction: a draft with only some of them would look complete.
    try:
        test_set_found = set_of(workspace, set_name)
    except Missing:
        version, added = sets.create_with(set_name, str(header.get("note", ""))[:LONGEST_NOTE], entries)
        return InSet(version, added, len(images) - added)
    if test_set_found.draft is not None:
        added = sets.add(test_set_found.draft.number, entries)
        return InSet(sets.version(test_set_found.draft.number), added, len(images) - added)
    assert test_set_found.latest is not None  # a set is removed with its last version
    if images <= {*sets.chosen(test_set_found.latest.number, ImageFilter())}:
        return InSet(test_set_found.latest, 0, len(images))
    version, added = sets.begin_draft_with(test_set_found.latest.number, entries)
    return InSet(version, added, len(images) - added)


def entry_of(image: ImportedImage, import_name: str) -> SetEntry:
    """Return an imported image as an entry of a test set, with the test case's id if this workspace made the image."""
    return SetEntry(
        **cells(image, "image label split mask mask_classes role"),
        source=image.source or image.image,
        test_case=image.test_case if image.role == "generated" else None,
        origin=origin_of(image, import_name) if image.test_case is None else {},
    )


def import_facts(import_record: Import) -> dict[str, Any]:
    """Return an import as plain data, without its images and rows."""
    return {
        **facts(import_record, "name source state created images sources rows"),
        "number": import_record.id,
        "format": import_record.layout,
        "finished": import_record.finished.isoformat() if import_record.finished is not None else "",
        "new": import_record.made,
        "test_set": str(import_record.header.get("name", "")),
    }
