"""Imports items and votes made elsewhere: from a zip, a list, images, a folder, or the results of Mechanical Turk.

The files may come from anybody. So names are never used as paths, sizes are limited before unpacking, and all pictures
are read by `read_image`. A study gets all items or votes of a file, or none.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from core.csv_tables import read_csv
from core.errors import UserError
from core.images import MAX_BYTES, read_image
from core.stored_studies import ImportedVote
from core.studies import Item, NewItem, Rules, asked, right
from core.words import composed, count_of
from formats.files import BROKEN_ARCHIVE, by_form, hidden, is_image, names_by_form, zip_name
from services.commands import in_words
from services.studies.control_items import disguises, keep_in_step
from storage.studies.imported_votes import IMPORTED
from storage.workspace import Workspace
from study.listed_items import ListedItem, by_folder, listed_items
from study.readiness import check_more
from study.turk import TurkVotes, turk_votes

MOST_FILES = 20_000
MOST_UNPACKED = 8_000_000_000
"""Maximum bytes of all files of a zip, as declared in the zip."""
MOST_LIST = 50_000_000
"""Maximum bytes of a file that lists items, contains votes or describes an exported study."""
LISTS = ("items.csv", "metadata.csv")
"""Names that mark the list of items, if a zip or folder has several CSV files."""
_SHA = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class ImportFiles:
    """Files to import: of an upload, a zip or a local folder."""

    names: tuple[str, ...]
    """Paths of the files, with "/" between folders."""
    opened: Callable[[str], IO[bytes]]
    damaged: str = "cannot be read: {}."
    """End of the sentence about a file that cannot be read; {} is replaced by the reason."""
    any_name: bool = False
    """True if a file with any suffix may be an image."""

    def read(self, name: str, most: int) -> bytes:
        """Return the bytes of a file. Raises UserError if it is damaged or has more than `most` bytes."""
        try:
            with self.opened(name) as file:
                data = file.read(most + 1)
        except BROKEN_ARCHIVE as error:
            reason = getattr(error, "strerror", None) or error
            raise UserError(f"“{_short(name)}” {self.damaged.format(reason)}") from error
        return _bounded(data, name, most)


def zip_files(file: Path | bytes) -> ImportFiles:
    """Open a zip. Raises UserError if it is no zip, is too large unpacked, or has too many files or equal names."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(file) if isinstance(file, bytes) else file)
    except BROKEN_ARCHIVE as error:
        raise UserError("The zip is damaged or cut short: pack it again.") from error
    listed = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(listed) > MOST_FILES:
        raise UserError(f"The zip has {len(listed):,} files, but at most {MOST_FILES:,} can be read at once.")
    if sum(entry.file_size for entry in listed) > MOST_UNPACKED:
        raise UserError(f"The zip unpacks to more than {MOST_UNPACKED // 10**9} GB: cut it into several.")
    entries = {zip_name(entry).replace("\\", "/"): entry for entry in listed}
    if len(entries) < len(listed):
        raise UserError("Two files in the zip have the same name: pack it again.")
    damaged = "in the zip is damaged, or has a password: pack it again."
    return ImportFiles(tuple(entries), lambda name: archive.open(entries[name]), damaged)


def folder_files(folder: Path, only_list: str = "") -> ImportFiles:
    """Open a local folder, for the command line. `only_list` is the one CSV file to read, "" for all. Raises UserError
    if there are too many files.
    """
    paths = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and (not only_list or path.suffix.lower() != ".csv" or path == folder / only_list)
    )
    if len(paths) > MOST_FILES:
        raise UserError(f"{folder} holds {len(paths):,} files, but at most {MOST_FILES:,} can be read at once.")
    names = tuple(path.relative_to(folder).as_posix() for path in paths)
    return ImportFiles(names, lambda name: (folder / name).open("rb"))


def files_of(name: str, file: Path | bytes) -> ImportFiles:
    """Return the files of an upload: a zip, or a single file."""

    def opened(_: str) -> IO[bytes]:
        return io.BytesIO(file) if isinstance(file, bytes) else file.open("rb")

    with opened(name) as start:
        is_zip = start.read(4) == b"PK\x03\x04"
    if is_zip or name.lower().endswith(".zip"):
        return zip_files(file)
    return ImportFiles((name or "image",), opened, any_name=True)


def read_items(workspace: Workspace, rules: Rules, files: ImportFiles) -> tuple[tuple[NewItem, ...], tuple[str, ...]]:
    """Store the pictures of the files. Return the items, ready for `Studies.add_items`, and notes for the person.

    A CSV among the files is the list of items (see `study.listed_items`). It names each image by its file, or by the
    SHA-256 of an image of the workspace. Without a list, every image is an item. Its label is the name of its folder
    if there are several folders. Raises UserError; pictures that are stored by then stay stored, but unused.
    """
    pictures = _Pictures(workspace, files)
    lists = [name for name in files.names if name.lower().endswith(".csv") and not hidden(name)]
    if lists:
        found, notes = _listed(files, _the_list(lists), rules)
        found = [replace(listed, image=pictures.find(listed.image, listed.row)) for listed in found]
        found = [replace(each, source=pictures.find(each.source, each.row)) if each.source else each for each in found]
        left = sum(pictures.is_image(name) for name in files.names if name not in lists) - len(pictures.named)
        if left > 0:
            notes = (*notes, f"{count_of(left, 'image', 'is')} not in the list, and left out.")
    else:
        images = [name for name in files.names if pictures.is_image(name)]
        if not images:
            raise UserError("There is no image among the files: PNG, JPEG, WebP, GIF, BMP and TIFF can be read.")
        labels = {name: composed(label) for name, label in by_folder(images).items()}
        found = [
            ListedItem(name, "", NewItem("", label=labels[name], origin={"file": name}), row)
            for row, name in enumerate(images, start=1)
        ]
        names = sorted({label for label in labels.values() if label})
        more = " and others" if len(names) > 8 else ""
        notes = (f"The label is the name of the folder: {', '.join(names[:8])}{more}.",) if names else ()
    items = tuple(
        replace(
            each.item,
            image_sha=pictures.save(each.image),
            source_sha=pictures.save(each.source) if each.source else None,
        )
        for each in found
    )
    return items, (*notes, *pictures.notes())


def import_items(workspace: Workspace, study_id: str, files: ImportFiles) -> tuple[int, str]:
    """Add the items in files to a study. Return their number, and notes for the person. Raises UserError."""
    study = workspace.studies.get(study_id)
    if study.state == "closed":
        raise UserError("This study is closed: nothing can be added to it; make a new study.")
    items, notes = read_items(workspace, study.rules, files)
    if study.state != "draft":
        with in_words():
            check_more(study.rules, items)
    workspace.studies.add_items(study_id, items)
    keep_in_step(workspace.studies, study_id, disguises(workspace))
    return len(items), " ".join((f"{count_of(len(items), 'image')} added.", *notes))


def read_votes(workspace: Workspace, study_id: str, data: bytes) -> tuple[tuple[Item, ...], TurkVotes]:
    """Return a study's items, and its votes in a result file of Mechanical Turk. Raises UserError for a bad file."""
    study, items = workspace.studies.get(study_id), workspace.studies.items(study_id)
    with in_words():
        return items, turk_votes(read_csv(_bounded(data, "The file", MOST_LIST)), study.rules, items)


def preview_votes(workspace: Workspace, study_id: str, data: bytes) -> tuple[int, str, str]:
    """Return the number of votes in a file of Mechanical Turk, notes for the person, and sentences on rows that are no
    votes. Saves nothing. Raises UserError if the file cannot be read as votes.
    """
    _, turk = read_votes(workspace, study_id, data)
    return len(turk.votes), " ".join((f"{_counted(turk.votes)}.", *turk.notes)), " ".join(turk.problems)


def import_votes(workspace: Workspace, study_id: str, data: bytes, even_so: bool = False) -> tuple[int, str]:
    """Save a file's votes, all or none. Raises UserError if a row is no vote; `even_so` leaves such rows out."""
    items, turk = read_votes(workspace, study_id, data)
    if turk.problems and not even_so:
        raise UserError("Nothing was imported. " + " ".join((*turk.notes, *turk.problems)))
    if not turk.votes:
        raise UserError("There is no usable vote in this file. " + " ".join((*turk.problems, *turk.notes)))
    by_id = {item.id: item for item in items}
    rules = workspace.studies.get(study_id).rules
    rows = [
        vote._replace(right=right(item, vote.answers, rules.questions) if _known(item, rules) else None)
        for vote in turk.votes
        if (item := by_id[vote.item])
    ]
    count = workspace.studies.import_votes(study_id, rows)
    for name, (by, why) in turk.excluded.items():
        worker = name if name.startswith(IMPORTED) else IMPORTED + name
        workspace.studies.workers.exclude(study_id, worker, why, by)
    left = (f"Left out: {' '.join(turk.problems)}",) if turk.problems else ()
    return count, " ".join((f"{_counted(rows)} brought in.", *left, *turk.notes))


def _counted(votes: Sequence[ImportedVote]) -> str:
    people = len({vote.worker for vote in votes})
    return f"{count_of(len(votes), 'vote')} of {count_of(people, 'worker')}"


def _known(item: Item, rules: Rules) -> bool:
    """Return True if the right answer to a question of an item is known, so that votes on it can be right or wrong."""
    return item.kind != "item" and any(q.id in item.expected for q in asked(rules.questions, item, item.expected))


def _listed(files: ImportFiles, name: str, rules: Rules) -> tuple[list[ListedItem], tuple[str, ...]]:
    with in_words():
        found, notes = listed_items(read_csv(files.read(name, MOST_LIST), f"“{_short(name)}”"), rules)
    if len(found) > MOST_FILES:
        raise UserError(f"The list has {len(found):,} rows, but at most {MOST_FILES:,} can be read at once.")
    folder = name.rpartition("/")[0]
    if not folder:
        return list(found), notes

    names = names_by_form(files.names)

    def beside(file: str) -> str:
        return by_form(names, f"{folder}/{file}") or file

    return [
        replace(listed, image=beside(listed.image), source=beside(listed.source) if listed.source else "")
        for listed in found
    ], notes


def _the_list(lists: Sequence[str]) -> str:
    known = [name for file in LISTS for name in lists if name.rpartition("/")[2].lower() == file]
    if known or len(lists) == 1:
        return (known or list(lists))[0]
    raise UserError("There are several CSV files. Rename the CSV file with the list of images to items.csv.")


class _Pictures:
    """Finds the pictures that items name, in the files or the workspace, and saves each picture once."""

    def __init__(self, workspace: Workspace, files: ImportFiles) -> None:
        self._workspace, self._files = workspace, files
        self._all = names_by_form(files.names)
        self._ends: dict[str, list[str]] = {}
        for name in files.names:
            self._ends.setdefault(composed(name).rpartition("/")[2], []).append(name)
        self._saved: dict[str, str] = {}
        self._noted: Counter[str] = Counter()
        self.named: set[str] = set()

    def is_image(self, name: str) -> bool:
        """Return True if a file has the name of an image. With `any_name`, all names count except hidden ones."""
        return (is_image(name) or self._files.any_name) and not hidden(name)

    def find(self, name: str, row: int) -> str:
        """Return the file or stored image that a row of a list names. Raises UserError if it is missing."""
        plain = name.replace("\\", "/").removeprefix("./")
        if file := by_form(self._all, plain):
            self.named.add(file)
            return file
        if _SHA.fullmatch(plain):
            return plain
        plain = composed(plain)
        ending = [one for one in self._ends.get(plain.rpartition("/")[2], ()) if composed(one).endswith(f"/{plain}")]
        if len(ending) == 1:
            self.named.add(ending[0])
            return ending[0]
        raise UserError(f"Row {row} of the list names “{_short(name)}”, which is not among the images.")

    def save(self, name: str) -> str:
        """Save the file or stored image `name`, and return its SHA-256. Raises UserError if it is no picture."""
        if name not in self._all:  # the SHA-256 of a stored image
            self._workspace.images.path(name)
            return name
        if name not in self._saved:
            try:
                picture = read_image(self._files.read(name, MAX_BYTES))
            except UserError as error:
                raise UserError(f"“{_short(name)}”: {error}") from error
            self._noted.update(picture.notes)
            self._saved[name] = self._workspace.images.add(picture.image)
        return self._saved[name]

    def notes(self) -> tuple[str, ...]:
        """Return sentences on corrections that were made to pictures, each with the number of corrections."""
        kinds = Counter(re.sub(r"\d+x\d+ pixels", "another size", note) for note in self._noted.elements())
        return tuple(f"{note.rstrip('.')} ({count_of(count, 'time')})." for note, count in kinds.items())


def _bounded(data: bytes, name: str, most: int) -> bytes:
    if len(data) > most:
        raise UserError(f"“{_short(name)}” is larger than {most // 1_000_000} MB: save it smaller.")
    return data


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:79]}…"
