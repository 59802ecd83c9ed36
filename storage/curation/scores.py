"""Validity scores of images (estimated probabilities that people find them valid), with earlier estimates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlite_utils import Database as Db

from core.errors import UserError
from core.validity_score import Agreement, ScoreRun, ValidityScore
from storage.curation import entry_sets
from storage.curation.entry_sets import BYTES, CHUNK_BITS
from storage.curation.stored_sets import drop_set, make_set, value_id
from storage.engine.database import Repository, read, reading, write
from storage.engine.queries import first_column, first_value, insert_row, record
from storage.engine.rows import Row, now, pack, pack_value, whole

MEASURE = "validity score"
"""Name of the validity score among the measures of the catalogue."""
NUMBER = f"(SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = '{MEASURE}')"


@dataclass(frozen=True, eq=False)
class NewScores:
    """Validity scores of images of one task, to be saved."""

    studies: Mapping[str, str]
    """Names of the studies from whose votes the score was learnt, by study id."""
    learnt: ValidityScore
    agreement: Agreement
    """Agreement of scores and people on images whose votes were not used to learn the score."""
    entries: NDArray[np.int64]
    """Catalogue numbers of the scored images, ascending."""
    scores: NDArray[np.float64]
    """Score of each entry, 0 to 1."""


def _run(db: Db, run: int) -> ScoreRun:
    """Return the record of a scoring run (of all images of one task). Raises UserError if it is unknown."""
    query = """
        SELECT id, json_extract(learnt, '$.task') AS task, studies, json_extract(learnt, '$.names') AS checks,
            agreement, images, created
        FROM score_runs WHERE id = ?
    """
    if found := record(db, ScoreRun, query, [run]):
        return found
    raise UserError(f"There is no scoring run with the number {run}.", field="run")


class Scores(Repository):
    @write
    def save(self, db: Db, new: NewScores) -> int:
        """Save scores and return the number of their run. The catalogue then shows these scores. They replace earlier
        scores of the same task. They also replace earlier scores that were learnt across all tasks.

        Raises ValueError if there is no score or a score is outside 0 to 1.
        """
        scores = new.scores.astype("<f4")
        if not len(scores) or not bool(((scores >= 0) & (scores <= 1)).all()):
            raise ValueError("scores are numbers from 0 to 1")
        chunks = (int(new.entries[-1]) >> CHUNK_BITS) + 1
        row = {
            "studies": pack({study: whole(name) for study, name in new.studies.items()}),
            "learnt": pack_value(new.learnt),
            "agreement": pack_value(new.agreement),
            "images": len(scores),
            "entries": entry_sets.of_entries(new.entries, chunks).tobytes(),
            "scores": scores.tobytes(),
            "created": now(),
        }
        run = insert_row(db, "score_runs", row)
        _forget(db)
        scored, numbers = _scores_in_use(db)
        # Insert from a table in one statement, in the order of the entries. Single statements take four times as long,
        # and nobody else can save in the meantime.
        measure = value_id(db, "measure", MEASURE)
        db.execute("CREATE TEMP TABLE scores_coming (number REAL, entry INTEGER)")
        pairs = zip(numbers.tolist(), scored.tolist(), strict=True)
        db.conn.executemany("INSERT INTO scores_coming VALUES (?, ?)", pairs)
        coming = "SELECT ?, number, entry FROM scores_coming ORDER BY entry"
        db.execute(f"INSERT INTO catalogue_numbers (measure, number, entry) {coming}", [measure])
        db.execute("DROP TABLE scores_coming")
        # Triggers on numbers skip this measure, as they would change the sets image by image.
        make_set(db, measure, scored)
        bins = entry_sets.bins_of(numbers.astype(np.float64))
        for place in np.unique(bins).tolist():
            make_set(db, value_id(db, f"bin:{MEASURE}", str(place)), scored[bins == place])
        return run

    @read
    def latest(self, db: Db) -> tuple[ScoreRun, ...]:
        """Return the runs whose scores the catalogue shows, by task; () if no image has a score."""
        return tuple(sorted((_run(db, run) for run in _in_use(db)), key=lambda one: one.task or ""))

    get = reading(_run)


def _forget(db: Db) -> None:
    db.execute(f"DELETE FROM catalogue_numbers WHERE measure = {NUMBER}")
    query = "SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = ? OR facet = ?"
    for value in first_column(db, query, [MEASURE, f"bin:{MEASURE}"]):
        drop_set(db, value)


def _in_use(db: Db) -> list[int]:
    """Return the ids of the scoring runs in use: the latest run of each task. A run across all tasks replaces all
    earlier runs, and is in use until the next run of any task.
    """
    run_by_task: dict[str, int] = {}
    for run, task in db.execute("SELECT id, json_extract(learnt, '$.task') FROM score_runs ORDER BY id DESC"):
        if task is None:
            return list(run_by_task.values()) or [run]
        run_by_task.setdefault(task, run)
    return list(run_by_task.values())


def _scores_in_use(db: Db) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the catalogue numbers of all images with a score in use, ascending, and their scores."""
    entries, scores = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for run in _in_use(db):
        entry_bits, numbers = db.execute("SELECT entries, scores FROM score_runs WHERE id = ?", [run]).fetchone()
        bits = np.frombuffer(entry_bits, np.uint8)
        assert len(bits) % BYTES == 0
        entries.append(entry_sets.entries_of(bits))
        scores.append(np.frombuffer(numbers, "<f4"))
    both, numbers = np.concatenate(entries), np.concatenate(scores)
    order = np.argsort(both)
    return both[order], numbers[order]


def scored_rows(db: Db) -> list[Row]:
    """Return the rows that the table `catalogue_numbers` should contain for the scores in use."""
    measure = first_value(db, f"SELECT {NUMBER}")
    pairs = zip(*(column.tolist() for column in _scores_in_use(db)), strict=True)
    return [{"measure": measure, "entry": entry, "number": score} for entry, score in pairs]
