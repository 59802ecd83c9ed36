"""The images of the catalogue as columns, for evaluations of a hundred thousand images at once.

Each table is read in one query, without an object for each image. Constant values are read once, then only for new
images; decisions of people are read again after each decision. Rows are indices into these columns, and texts are
indices into a list of distinct texts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.image_filter import ImageFilter
from storage.curation import entry_sets
from storage.curation.selection import Selection
from storage.engine.database import Database, Repository, read

OPEN, ACCEPTED, REJECTED = 0, 1, 2
_AT_ONCE = 4096
"""Number of rows fetched from the database at a time."""
Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
_QUERIES = DataTable(__file__, str)


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts, each stored once."""

    values: list[str]
    """Distinct texts."""
    numbers: Numbers
    """For each row the index of its text in `values`; -1 for none."""

    def of(self, rows: Any) -> list[str]:
        """Return the texts of rows, "" for none."""
        return [self.values[number] if number >= 0 else "" for number in self.numbers[rows].tolist()]


@dataclass(frozen=True, eq=False)
class EditColumns:
    """All edits of all images, one row each."""

    row: Numbers
    """Index of the edit's image in the columns of images, ascending."""
    types: Texts
    keywords: Texts
    alternatives: Texts


@dataclass(frozen=True, eq=False)
class CaseTable:
    """All images of the catalogue, including those of deleted runs. All columns have the same length."""

    entry: Numbers
    """Numbers in the catalogue, ascending."""
    test_case: Numbers
    """Id of the test case; -1 for an imported image."""
    images: Texts
    """SHA-256 of each image."""
    sources: Texts
    """SHA-256 of the source image; -1 if the workspace has none."""
    runs: Texts
    segmentation: NDArray[np.bool_]
    recipes: Texts
    profiles: Texts
    methods: Texts
    labels: Texts
    """Labels after people's decisions; -1 for none."""
    verdict: NDArray[np.int8]
    """`OPEN`, `ACCEPTED` or `REJECTED`."""
    there: NDArray[np.bool_]
    """False if its run is deleted."""
    task_labels: Texts
    """Label of the source, by the task of the run; -1 for none."""
    splits: Texts
    """Split in the data set of the source; -1 for none."""
    masks: Texts
    """SHA-256 of the run's current mask; -1 for none."""
    mask_classes: Texts
    """JSON of the mask's class names by number."""
    edits: EditColumns
    protected: Texts
    """JSON of the classes that must not change: those of its task, for imported images those of the mask; -1 for a
    classification."""

    def __len__(self) -> int:
        return len(self.entry)

    def rows_of(self, entries: Numbers) -> Numbers:
        """Return the row indices of entries that are in the catalogue."""
        return np.searchsorted(self.entry, entries)


class SetRow(NamedTuple):
    """An image of a version of a test set."""

    image: str
    source: str
    label: str
    split: str
    mask: str
    mask_classes: str
    """JSON of the class names by number."""
    entry: int
    """Number in the catalogue; 0 for a source and for an image that is not in it."""
    is_source: bool


class Outcome(NamedTuple):
    """Outcome of a test case in a study."""

    test_case: int
    outcome: str
    """Outcome, such as "valid" or "invalid"."""
    study: str
    title: str


class CaseColumns(Repository):
    """The columns of one workspace, cached until they change. May be called from any thread."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._held: CaseTable | None = None
        self._version: tuple[Any, ...] = ()
        self._static: tuple[Any, ...] = ()
        self._lock = threading.Lock()

    def table(self) -> CaseTable:
        """Return all images as they are now."""
        with self._lock:
            return self._table()

    @read
    def _table(self, db: Db) -> CaseTable:
        static = db.execute(_QUERIES["static"]).fetchone()
        changing = db.execute(_QUERIES["changing"]).fetchone()
        if self._held is None or self._static != static:
            columns = _constant_columns(db)
            self._held = CaseTable(**columns, **_changing_columns(db, columns["entry"], columns["runs"]))
            self._static, self._version = static, changing
        elif self._version != changing:
            self._held = replace(self._held, **_changing_columns(db, self._held.entry, self._held.runs))
            self._version = changing
        return self._held

    @read
    def entries(self, db: Db, image_filter: ImageFilter) -> Numbers:
        """Return the catalogue numbers of the images that match, ascending."""
        return entry_sets.entries_of(Selection(db, image_filter).whole)

    @read
    def set_rows(self, db: Db, version: int) -> list[SetRow]:
        """Return the images of a version of a test set, in the order of their addition."""
        return [SetRow(*row) for row in db.execute(_QUERIES["set_rows"], [version])]

    @read
    def outcomes(self, db: Db) -> list[Outcome]:
        """Return the outcomes of test cases in studies, in the order of their items."""
        return [Outcome(*row) for row in db.execute(_QUERIES["outcomes"])]

    @read
    def checks(self, db: Db) -> dict[str, tuple[Numbers, Floats]]:
        """Return for each check with figures its entries, ascending, and their figures."""
        query = "SELECT entry, number FROM catalogue_numbers WHERE measure = ? ORDER BY entry"
        figures_by_check = {}
        for measure, name in db.execute(_QUERIES["checks"]).fetchall():
            rows = np.array(db.execute(query, [measure]).fetchall(), np.float64).reshape(-1, 2)
            if len(rows):
                figures_by_check[name] = rows[:, 0].astype(np.int64), rows[:, 1]
        return figures_by_check

    @read
    def passed(self, db: Db, entries: Numbers) -> Floats:
        """Return for each entry the share of its checks that passed, 0 to 1; NaN if none could tell."""
        selection = Selection(db, ImageFilter())
        query = "SELECT DISTINCT facet FROM catalogue_values WHERE facet >= 'check:' AND facet < 'check;'"
        passed, decided = np.zeros(len(entries)), np.zeros(len(entries))
        for (facet,) in db.execute(query).fetchall():
            good = entry_sets.has(selection.value(facet, "passed"), entries)
            passed += good
            decided += good | entry_sets.has(selection.value(facet, "failed"), entries)
        return np.divide(passed, decided, out=np.full(len(entries), np.nan), where=decided > 0)


def _constant_columns(db: Db) -> dict[str, Any]:
    columns = _columns(db, _QUERIES["entries"], 11)
    entry = np.array(columns[0], np.int64)
    names = ("images", "sources", "runs", "recipes", "profiles", "methods", "labels", "protected")
    texts = (texts_of(column) for column in (*columns[2:5], *columns[6:]))
    return {
        "entry": entry,
        "test_case": np.array(columns[1], np.int64),
        "segmentation": np.array(columns[5], bool),
        "edits": _edits(db, entry),
        **dict(zip(names, texts, strict=True)),
    }


def _changing_columns(db: Db, entry: Numbers, runs: Texts) -> dict[str, Any]:
    selection = Selection(db, ImageFilter())
    verdict = np.full(len(entry), OPEN, np.int8)
    for number, value in ((ACCEPTED, "accepted"), (REJECTED, "rejected")):
        verdict[entry_sets.has(selection.value("review", value), entry)] = number
    is_present = entry_sets.has(selection.value("there", ""), entry)
    return {"verdict": verdict, "there": is_present, **_facts(db, entry, runs)}


def _facts(db: Db, entry: Numbers, runs: Texts) -> dict[str, Any]:
    splits = dict(db.execute("SELECT run, split FROM batch_sources WHERE run IS NOT NULL AND split <> ''"))
    nothing = ("", "", "", "{}")
    of_run = {
        run: (label, splits.get(run, ""), mask, names) for run, label, mask, names in db.execute(_QUERIES["facts"])
    }
    known_runs = [of_run.get(run, nothing) for run in runs.values] + [nothing]
    query = "SELECT entry, label, split, coalesce(mask, ''), mask_classes FROM imported_images WHERE made"
    imported = {number: columns for number, *columns in db.execute(query)}
    rows = np.searchsorted(entry, np.array(sorted(imported), np.int64)).tolist()
    imported_rows = [imported[number] for number in sorted(imported)]
    columns = {}
    for place, name in enumerate(("task_labels", "splits", "masks", "mask_classes")):
        column = texts_of([*(run[place] for run in known_runs), *(one[place] for one in imported_rows)])
        numbers = column.numbers[: len(known_runs)][runs.numbers]  # -1, for no run, selects the last one
        numbers[rows] = column.numbers[len(known_runs) :]
        columns[name] = Texts(column.values, numbers)
    return columns


def _edits(db: Db, entry: Numbers) -> EditColumns:
    """Read all edits. Many captions have the same edits: each JSON text is parsed once."""
    imported_edits = "SELECT entry, edits FROM imported_images WHERE made AND edits <> '[]'"
    known: dict[str, list[dict[str, Any]]] = {}
    numbers: list[int] = []
    texts: tuple[list[str], ...] = ([], [], [])
    for query in (_QUERIES["test_case_edits"], imported_edits):
        for number, text in zip(*_columns(db, query, 2), strict=True):
            edits = known.get(text)
            if edits is None:
                edits = known[text] = json.loads(text)
            for one in edits:
                numbers.append(number)
                for column, name in zip(texts, ("edit_type", "keyword", "alternative"), strict=True):
                    column.append(one[name])
    row = np.searchsorted(entry, np.array(numbers, np.int64))
    order = np.argsort(row, kind="stable")
    types, keywords, alternatives = (texts_of(column) for column in texts)
    return EditColumns(row[order], *(Texts(one.values, one.numbers[order]) for one in (types, keywords, alternatives)))


def _columns(db: Db, query: str, width: int) -> tuple[list[Any], ...]:
    """Return the columns of a query. No row outlives its block, or garbage collection would slow everything."""
    columns: tuple[list[Any], ...] = tuple([] for _ in range(width))
    cursor = db.execute(query)
    while rows := cursor.fetchmany(_AT_ONCE):
        for column, part in zip(columns, zip(*rows, strict=True), strict=True):
            column += part
    return columns


def texts_of(column: Sequence[str]) -> Texts:
    """Return a column of texts, "" for none."""
    known: dict[str, int] = {"": -1}
    numbers = [known.setdefault(text, len(known) - 1) for text in column]
    return Texts(list(known)[1:], np.array(numbers, np.int64))
