"""All images of the catalogue as columns, to evaluate a hundred thousand images at once.

Each table is read in one query and no object is made for each image. Values that never change are read once, and again
only for new images. People's decisions are read again after each decision. A row is an index into these columns. A text
is an index into a list of distinct texts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.image_filter import ImageFilter
from core.settings import Start
from core.types import TaskKind
from storage.curation import entry_sets
from storage.curation.selection import Selection
from storage.engine.database import Database, Repository, read
from storage.engine.queries import first_column

OPEN, ACCEPTED, REJECTED = 0, 1, 2
_AT_ONCE = 4096
"""Number of rows fetched from the database at a time."""
Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
_QUERIES = DataTable(__file__, str)


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts that stores each distinct text once."""

    values: list[str]
    """Distinct texts."""
    numbers: Numbers
    """Index of each row's text in `values`; -1 for a row without a text."""

    def of(self, rows: Any) -> list[str]:
        """Return the texts of the rows with these indices; "" for a row without a text."""
        return [self.values[number] if number >= 0 else "" for number in self.numbers[rows].tolist()]


@dataclass(frozen=True, eq=False)
class EditColumns:
    """All edits of captions as columns. Each row is one edit of one image."""

    row: Numbers
    """Index of the edited image in `CaseTable`, ascending."""
    types: Texts
    keywords: Texts
    alternatives: Texts


@dataclass(frozen=True, eq=False)
class CaseTable:
    """All images of the catalogue, including those of deleted runs. All columns have the same length."""

    entry: Numbers
    """Catalogue number of each image, ascending."""
    test_case: Numbers
    """Id of the test case; -1 for an imported image."""
    images: Texts
    """SHA-256 of each image."""
    sources: Texts
    """SHA-256 of each image's source image. An image without a source image has no text here."""
    runs: Texts
    segmentation: NDArray[np.bool_]
    recipes: Texts
    profiles: Texts
    methods: Texts
    starts: Texts
    """Start from which each image was drawn, "noise" or "inverted" (the inverted source); index -1 if unknown."""
    labels: Texts
    """Label of each image after people's corrections; index -1 for none."""
    verdict: NDArray[np.int8]
    """Verdict on each image: `OPEN`, `ACCEPTED` or `REJECTED`."""
    there: NDArray[np.bool_]
    """False for each image whose run is deleted, True for all others."""
    task_labels: Texts
    """Label of each source image, from the task of its run; index -1 for none."""
    splits: Texts
    """Split of each source image in its original data set, such as "train"; index -1 for none."""
    masks: Texts
    """SHA-256 of the current mask of each image's run; index -1 for none."""
    mask_classes: Texts
    """Class names of each mask by class number, as JSON."""
    edits: EditColumns
    protected: Texts
    """Protected classes of the task, or mask classes of an imported image, as JSON. No text for a classification."""

    def __len__(self) -> int:
        return len(self.entry)

    def rows_of(self, entries: Numbers) -> Numbers:
        """Return the row index of each catalogue number. All of them must be in the table."""
        return np.searchsorted(self.entry, entries)


class SetRow(NamedTuple):
    """An image in a version of a test set."""

    image: str
    source: str
    label: str
    split: str
    mask: str
    mask_classes: str
    """Class names of the mask by class number, as JSON."""
    entry: int
    """Catalogue number; 0 for a source image and for an image outside the catalogue."""
    is_source: bool


class Outcome(NamedTuple):
    """The result of a study for one test case."""

    test_case: int
    outcome: str
    """Consensus of the votes, such as "valid" or "invalid"."""
    study: str
    title: str


class BatchSeconds(NamedTuple):
    batch: int
    run: str
    source: str
    """SHA-256 of the source image."""
    seconds: float


class CaseColumns(Repository):
    """The columns of one workspace. They are cached until the data change. May be called from any thread."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._held: CaseTable | None = None
        self._version: tuple[Any, ...] = ()
        self._static: tuple[Any, ...] = ()
        self._lock = threading.Lock()

    def table(self) -> CaseTable:
        """Return the table of all images as they are now."""
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
        """Return the catalogue numbers of the images that match a filter, ascending."""
        return entry_sets.entries_of(Selection(db, image_filter).whole)

    @read
    def set_rows(self, db: Db, version: int) -> list[SetRow]:
        """Return the images of a version of a test set, in the order in which they were added."""
        return [SetRow(*row) for row in db.execute(_QUERIES["set_rows"], [version])]

    @read
    def outcomes(self, db: Db) -> list[Outcome]:
        """Return the results of studies for test cases, in the order of the studies' items."""
        return [Outcome(*row) for row in db.execute(_QUERIES["outcomes"])]

    @read
    def checks(self, db: Db) -> dict[str, tuple[Numbers, Floats]]:
        """Return (catalogue numbers, figures) by check, for checks that measure a number. The numbers ascend."""
        query = "SELECT entry, number FROM catalogue_numbers WHERE measure = ? ORDER BY entry"
        figures_by_check = {}
        for measure, name in db.execute(_QUERIES["checks"]).fetchall():
            rows = np.array(db.execute(query, [measure]).fetchall(), np.float64).reshape(-1, 2)
            if len(rows):
                figures_by_check[name] = rows[:, 0].astype(np.int64), rows[:, 1]
        return figures_by_check

    @read
    def outcomes_of_entries(self, db: Db) -> list[tuple[int, str, TaskKind, str]]:
        """Return a row for each test case in a study, in the order of the studies' items: catalogue number, SHA-256 of
        the source ("" for none), task, and result of the study.
        """
        return db.execute(_QUERIES["outcomes_of_entries"]).fetchall()

    def passed(self, entries: Numbers) -> Floats:
        """Return the share of checks that each entry passed, 0 to 1; NaN if no check passed or failed."""
        outcomes = list(self.check_outcomes(entries).values())
        table = np.array(outcomes, np.int8).reshape(len(outcomes), len(entries))
        passed, decided = (table == 1).sum(axis=0), (table >= 0).sum(axis=0)
        return np.divide(passed, decided, out=np.full(len(entries), np.nan), where=decided > 0)

    @read
    def check_outcomes(self, db: Db, entries: Numbers) -> dict[str, NDArray[np.int8]]:
        """Return each check's outcome for each entry: 1 passed, 0 failed, -1 cannot tell, -2 not made."""
        selection, outcomes = Selection(db, ImageFilter()), dict[str, NDArray[np.int8]]()
        query = "SELECT DISTINCT facet FROM catalogue_values WHERE facet >= 'check:' AND facet < 'check;' ORDER BY 1"
        for facet in first_column(db, query):
            numbers = outcomes[facet.removeprefix("check:")] = np.full(len(entries), -2, np.int8)
            for number, name in ((-1, "cannot tell"), (1, "passed"), (0, "failed")):
                numbers[entry_sets.has(selection.having(facet, [name]), entries)] = number
        return outcomes

    @read
    def batch_seconds(self, db: Db) -> list[BatchSeconds]:
        """Return the seconds that workers spent on each source of each batch: its captions, texts and images."""
        return [BatchSeconds(*row) for row in db.execute(_QUERIES["batch_seconds"])]

    @read
    def aimed_cases(self, db: Db) -> NDArray[np.int64]:
        """Return the ids of the test cases that a search drew because it expected the model to fail on them."""
        query = "SELECT test_case FROM batch_work WHERE chosen_by = 'aim' AND test_case IS NOT NULL"
        return np.array(first_column(db, query), np.int64)

    @read
    def edits_by_hand(self, db: Db) -> dict[str, int]:
        """Return the number of stage values that people wrote, by run. Runs without such values are left out."""
        return dict(db.execute("SELECT run, count(*) FROM stage_values WHERE author = 'person' GROUP BY run"))


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
        "starts": _starts(db, entry),
        **dict(zip(names, texts, strict=True)),
    }


def _starts(db: Db, entry: Numbers) -> Texts:
    selection, names = Selection(db, ImageFilter()), get_args(Start)
    numbers = np.full(len(entry), -1)
    for number, name in enumerate(names):
        numbers[entry_sets.has(selection.having("start", [name]), entry)] = number
    return Texts(list(names), numbers)


def _changing_columns(db: Db, entry: Numbers, runs: Texts) -> dict[str, Any]:
    selection = Selection(db, ImageFilter())
    verdict = np.full(len(entry), OPEN, np.int8)
    for number, value in ((ACCEPTED, "accepted"), (REJECTED, "rejected")):
        verdict[entry_sets.has(selection.having("review", [value]), entry)] = number
    is_present = entry_sets.has(selection.having("there", [""]), entry)
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
        numbers = column.numbers[: len(known_runs)][runs.numbers]  # -1 means no run, and indexes the last element
        numbers[rows] = column.numbers[len(known_runs) :]
        columns[name] = Texts(column.values, numbers)
    return columns


def _edits(db: Db, entry: Numbers) -> EditColumns:
    """Read all edits. Many captions have the same edits, so each distinct JSON text is parsed only once."""
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
    """Return a query's result as columns. Rows are freed in blocks: many live objects slow down garbage collection."""
    columns: tuple[list[Any], ...] = tuple([] for _ in range(width))
    cursor = db.execute(query)
    while rows := cursor.fetchmany(_AT_ONCE):
        for column, part in zip(columns, zip(*rows, strict=True), strict=True):
            column += part
    return columns


def texts_of(column: Sequence[str]) -> Texts:
    """Convert these texts to a column. "" counts as no text."""
    known: dict[str, int] = {"": -1}
    numbers = [known.setdefault(text, len(known) - 1) for text in column]
    return Texts(list(known)[1:], np.array(numbers, np.int64))
