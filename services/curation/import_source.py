"""Imports a folder, a zip or a tar of any known format into a workspace, in this process or in a separate one. In a
separate one, a file that fills the memory ends the import but not the server.

Images are saved in groups: first their files on the disk, then their rows in the database. So a stopped or killed
import can be run again and completes. A source whose import was completed is recognised by the SHA-256 of its content
and not imported again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from core.csv_tables import cells
from core.errors import Cancelled, UserError, disk_reason, out_of_memory
from core.images import StoredImage, file_hash
from core.imports import Import, ImportRow
from core.masks import parse_classes
from core.progress import OnProgress, Progress
from core.test_sets import LONGEST_NAME
from core.text_templates import TextTemplates
from core.types import Check, from_plain, to_plain
from core.words import count_of
from formats.files import open_files
from formats.layouts import LAYOUTS
from formats.reading import read
from formats.types import Example, Imported, Report
from services.own_processes import end_with_parent, own_processes
from storage.curation.imports import ImportedImage, NewImage
from storage.engine.rows import whole
from storage.workspace import Workspace

AT_ONCE = 200
"""Number of images whose database rows are saved together. A killed import loses at most this many."""
MOST_SAID = 1_000_000
"""Maximum number of characters of the metadata of one image, as JSON."""
_FOLDER = "importing"
"""Name of the workspace's folder for pictures not imported yet. Each import has its own folder inside."""
_SHA = re.compile(r"[0-9a-f]{64}")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Done:
    """Result of an import."""

    imported: Import
    already: bool
    """True if the same source was imported before: nothing was changed."""

    @property
    def words(self) -> str:
        """Return the result in a sentence or two, for a person."""
        return _TEXTS.paragraph("imported.txt", found=self.imported, already=self.already)


def bring_in(
    workspace: Workspace,
    source: Path,
    name: str = "",
    layout: str = "",
    classes: str = "",
    labels: Sequence[str] = (),
    progress: OnProgress | None = None,
    report: Report | None = None,
    begun: Callable[[int], None] = lambda _: None,
    at_once: int | None = None,
) -> Done:
    """Import the images of a folder, a zip or a tar on this machine. Never pass a path that a client sent.

    `name` is the name of the import, "" to use the name of the source. `layout` is the format, "" to detect it.
    `classes` names the class numbers in masks (“0 sky, 1 road”) if the files do not. `labels` are the known labels, ()
    to accept any. `begun` is called with the number of the import, perhaps repeatedly. `at_once` is the number of
    images that are saved together, None for `AT_ONCE`.

    Raises UserError if the import fails. An exception of `progress`, such as Cancelled, stops the import; images
    imported so far stay.
    """
    require_layout(layout)
    named = parse_classes(classes) if classes.strip() else {}
    known = tuple(dict.fromkeys(label.strip() for label in labels if label.strip()))
    options = {"layout": layout, "classes": {str(key): value for key, value in named.items()}, "labels": known}
    report = report or Report()
    room = new_room(workspace)
    try:
        content = content_of(source, room)
        earlier = workspace.imports.find(content, options)
        if earlier is not None and earlier.state == "done":
            return Done(earlier, already=True)
        words = (" ".join(whole(name).split()) or whole(source.absolute().name))[:LONGEST_NAME] or "import"

        def begin() -> int:
            number = workspace.imports.begin(words, source.absolute().name, content, options)
            begun(number)
            return number

        imported_shas = workspace.imports.held(earlier.id) if earlier is not None else frozenset()
        batches = _Batches(workspace, report, begin, imported_shas, at_once or AT_ONCE)
        imported = read(
            source,
            room,
            layout,
            classes=named or None,
            labels=known or None,
            progress=progress,
            report=report,
            each=batches.take,
        )
        return Done(_finish(workspace, batches.save(), imported), already=False)
    finally:
        remove_room(room)


_ENDED = (
    "The import ended early, perhaps since memory ran out. Images imported so far stay. Free some memory or leave out "
    "very large files, then start the same import again."
)


def bring_in_apart(
    workspace: Path,
    bring: Callable[..., Done],
    on_progress: Callable[[Progress, int], object],
    begun: Callable[[int], object],
) -> Done:
    """Import in another process, which opens the workspace. `bring` is `bring_in` with its source and options filled
    in. `on_progress` gets the progress and the number of report rows. `begun` gets the number of the import. An
    exception of a callback stops the import and is raised again. Raises UserError if the import fails.
    """
    context = own_processes()
    ours, theirs = context.Pipe()
    process = context.Process(target=_bring_in, args=(theirs, workspace, bring), name="import", daemon=True)
    process.start()
    theirs.close()
    stopped: Exception | None = None
    try:
        while True:
            message = ours.recv()
            if isinstance(message, Done):
                return message
            if isinstance(message, Exception):
                raise stopped or message
            try:
                if isinstance(message, int):
                    begun(message)
                else:
                    on_progress(*message)
            except Exception as error:  # noqa: BLE001 - raised above, once the process has cleaned up
                stopped = error
            ours.send(stopped is None)
    except (EOFError, OSError) as error:
        raise UserError(_ENDED) from error
    finally:
        ours.close()
        process.join()


def _bring_in(connection: Connection, folder: Path, bring: Callable[..., Done]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    with suppress(OSError):  # on Linux: if memory runs out, the kernel kills this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    report = Report()

    def tell(message: object) -> None:
        connection.send(message)
        if not connection.recv():
            raise Cancelled

    def on_progress(progress: Progress) -> None:
        tell((progress, len(report.rows)))

    answer: Done | Exception
    try:
        with Workspace(folder) as workspace:
            answer = bring(workspace, progress=on_progress, report=report, begun=tell)
    except Cancelled as error:
        answer = error
    except UserError as error:
        answer = UserError(str(error), field=error.field)
    except Exception as error:
        if not out_of_memory(error):
            log.exception("an import failed")
            raise
        answer = UserError(_ENDED)
    connection.send(answer)


def _finish(workspace: Workspace, number: int, imported: Imported) -> Import:
    imports = workspace.imports
    rows = [*imported.rows]
    rows += [ImportRow(image.name, _known(image), "known") for image in imports.images(number, linked=True)]
    header = imported.header
    imports.finish(number, imported.layout, asdict(header) if header is not None else {}, rows)
    return imports.get(number)


def require_layout(layout: str) -> None:
    """Raise UserError for an unknown format; "" means to detect it."""
    if layout and layout not in LAYOUTS:
        raise UserError(f"“{layout[:80]}” is no format: choose one of {', '.join(LAYOUTS)}.", field="layout")


class _Batches:
    """Takes images (examples) from the reader of an import, and saves them in groups."""

    def __init__(
        self, workspace: Workspace, report: Report, begin: Callable[[], int], present: frozenset[str], at_once: int
    ) -> None:
        self._workspace, self._report, self._begin, self._held = workspace, report, begin, present
        self._at_once = at_once
        self._waiting: list[Example] = []

    def take(self, example: Example) -> bool:
        """Take one example and return True, or report why its metadata cannot be stored and return False."""
        reason = _why_refused(example)
        if reason:
            self._report.refuse(example.name, reason)
            return False
        if example.source and not _SHA.fullmatch(example.source):
            self._report.changed(example.name, "The SHA-256 of its source is not valid: it was left out.")
            example = replace(example, source="")
        if example.sha not in self._held:
            self._waiting.append(example)
        if len(self._waiting) == self._at_once:
            self.save()
        return True

    def save(self) -> int:
        """Save the examples taken since the last call. Return the number of the import."""
        images, number = self._workspace.images, self._begin()
        new = []
        for example in self._waiting:
            mask = images.take(example.mask, example.mask.stem) if example.mask is not None else None
            new.append(_new_image(example, images.take(example.image, example.sha), mask))
        if new:
            images.settle()
            self._workspace.imports.add(number, new)
        self._waiting = []
        return number


def content_of(source: Path, scratch: Path) -> str:
    """Return the SHA-256 of an archive, or of the names and contents of a folder's files. `scratch` is a work folder.

    Raises UserError if the source cannot be read.
    """
    whole_hash = hashlib.sha256()
    try:
        if not source.is_dir():
            return file_hash(source)
        files = open_files(source, Report(), scratch)
        for name in files.names:
            digest = "unreadable"
            with suppress(OSError):  # the reader will report the file
                digest = file_hash(files.path(name))
            whole_hash.update(f"{len(name)} {name} {digest} ".encode())
    except OSError as error:
        raise UserError(
            f"{source} cannot be read ({error.strerror or error}): give a folder, a zip or a tar."
        ) from error
    return whole_hash.hexdigest()


def _why_refused(example: Example) -> str:
    """Return in one sentence why an image's metadata cannot be stored; "" if it can."""
    if len(example.label) > LONGEST_NAME:
        return f"Its label has {len(example.label):,} characters, and a label may have at most {LONGEST_NAME}."
    if any(len(name) > LONGEST_NAME for name in (*example.mask_classes.values(), *example.edit_types)):
        return f"A class of its mask or an edit type has a name of more than {LONGEST_NAME} characters."
    try:
        edits = [to_plain(edit) for edit in example.edits]
        metadata = json.dumps([example.caption, example.new_caption, edits, example.facts], allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        return "Its metadata contains infinity or NaN, which JSON cannot store: replace these values."
    if len(metadata) > MOST_SAID:
        return f"Its metadata is larger than {MOST_SAID // 1000:,} kB: shorten it."
    return ""


def _new_image(example: Example, image: StoredImage, mask: StoredImage | None) -> NewImage:
    return NewImage(
        **cells(example, "name mask_classes label split role source caption new_caption edits edit_types facts"),
        image=image,
        mask=mask,
        checks=_checks(example.facts.get("checks")),
    )


def _checks(value: Any) -> tuple[Check, ...]:
    """Return the checks in the data that a studio exported with an image; () if `value` is anything else."""
    try:
        checks: tuple[Check, ...] = from_plain(tuple[Check, ...], value)  # type: ignore[arg-type]
    except ValidationError:
        return ()
    return checks


def _known(image: ImportedImage) -> str:
    named = f"test case {image.test_case}" if image.test_case is not None else f"number {image.entry} of the catalogue"
    return f"It is in the workspace already, as {named}: no second one was made."


def new_room(workspace: Workspace) -> Path:
    """Make a folder in the workspace for pictures during an import. Remove such folders left by ended processes."""
    try:
        return workspace.scratch(_FOLDER)
    except OSError as error:
        raise UserError(f"Nothing can be written to {workspace.folder / _FOLDER}. {disk_reason(error)}.") from error


def remove_room(room: Path) -> None:
    """Remove a folder that `new_room` made, with its content."""
    shutil.rmtree(room, ignore_errors=True)
    with suppress(OSError):  # another import still has a folder inside
        room.parent.rmdir()


_TEXTS = TextTemplates(Path(__file__).with_name("texts"), count_of=count_of)
