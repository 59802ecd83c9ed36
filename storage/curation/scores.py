"""Scores of validity: how likely people find each image valid, as it was foretold the last time and before."""

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
from storage.engine.database import Repository, read, write
from storage.engine.rows import Row, insert_row, now, pack, pack_value, unpack_value, when, whole

MEASURE = "validity score"
"""The name of the score among the measures of the catalogue."""
NUMBER = f"(SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = '{MEASURE}')"


@dataclass(frozen=True, eq=False)
class NewScores:
    """The scores of images of one task, to be saved."""

    studies: Mapping[str, str]
    """Names by ids: those whose votes it was learnt from."""
    learnt: ValidityScore
    agreement: Agreement
    """With people, on images whose votes the score has not seen."""
    entries: NDArray[np.int64]
    """Those in the catalogue that have a score, ascending."""
    scores: NDArray[np.float64]
    """Of each of them, 0 to 1."""


class Scores(Repository):
    """The scores of one workspace. All methods may be called from any thread."""

    @write
    def save(self, db: Db, new: NewScores) -> int:
        """Replace the scores of images of its task, and all scores that are not of one task; return the number of the
        run. Raises ValueError for no score or one not in 0 to 1.
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
        # From a table, by one statement, in the order of the entries: a quarter of what a statement each takes, and
        # nobody else can save meanwhile.
        measure = value_id(db, "measure", MEASURE)
        db.execute("CREATE TEMP TABLE scores_coming (number REAL, entry INTEGER)")
        db.conn.executemany(
            "INSERT INTO scores_coming VALUES (?, ?)", zip(numbers.tolist(), scored.tolist(), strict=True)
        )
        db.execute(
            "INSERT INTO catalogue_numbers (measure, number, entry) "
            "SELECT ?, number, entry FROM scores_coming ORDER BY entry",
            [measure],
        )
        db.execute("DROP TABLE scores_coming")
        # The triggers of the numbers leave this measure alone: they would change the sets image by image.
        make_set(db, measure, scored)
        bins = entry_sets.bins_of(numbers.astype(np.float64))
        for place in np.unique(bins).tolist():
            make_set(db, value_id(db, f"bin:{MEASURE}", str(place)), scored[bins == place])
        return run

    @read
    def latest(self, db: Db) -> tuple[ScoreRun, ...]:
        """What the scores of the catalogue come from, by task; () where no image has one."""
        found = [one for run in _in_use(db) for one in _runs(db, "WHERE id = ?", run)]
        return tuple(sorted(found, key=lambda one: one.task or ""))

    @read
    def get(self, db: Db, run: int) -> ScoreRun:
        """Any run. Raises UserError for one that there is not."""
        for found in _runs(db, "WHERE id = ?", run):
            return found
        raise UserError(f"Images were never scored under the number {run}.", field="run")


def _forget(db: Db) -> None:
    db.execute(f"DELETE FROM catalogue_numbers WHERE measure = {NUMBER}")
    query = "SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = ? OR facet = ?"
    for (value,) in db.execute(query, [MEASURE, f"bin:{MEASURE}"]).fetchall():
        drop_set(db, value)


def _runs(db: Db, which: str, *values: int) -> tuple[ScoreRun, ...]:
    query = f"""
        SELECT id, json_extract(learnt, '$.task') AS task, studies, json_extract(learnt, '$.names') AS checks,
            agreement, images, created
        FROM score_runs {which}
    """
    return tuple(
        ScoreRun(
            row["id"],
            row["task"],
            unpack_value(dict[str, str], row["studies"]),
            unpack_value(tuple[str, ...], row["checks"]),
            unpack_value(Agreement, row["agreement"]),
            row["images"],
            when(row["created"]),
        )
        for row in db.query(query, list(values))
    )


def _in_use(db: Db) -> list[int]:
    """The runs whose scores the catalogue has: the latest of each task, and none from before one that is of all."""
    found: dict[str, int] = {}
    for run, task in db.execute("SELECT id, json_extract(learnt, '$.task') FROM score_runs ORDER BY id DESC"):
        if task is None:
            return list(found.values()) or [run]
        found.setdefault(task, run)
    return list(found.values())


def _scores_in_use(db: Db) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The entries of the catalogue that have a score, ascending, and their scores."""
    entries, scores = [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
    for run in _in_use(db):
        held, numbers = db.execute("SELECT entries, scores FROM score_runs WHERE id = ?", [run]).fetchone()
        bits = np.frombuffer(held, np.uint8)
        assert len(bits) % BYTES == 0
        entries.append(entry_sets.entries_of(bits))
        scores.append(np.frombuffer(numbers, "<f4"))
    both, numbers = np.concatenate(entries), np.concatenate(scores)
    order = np.argsort(both)
    return both[order], numbers[order]


def scored_rows(db: Db) -> list[Row]:
    """The rows of `catalogue_numbers` that follow from the runs in use."""
    measure = db.execute(f"SELECT {NUMBER}").fetchone()[0]
    entries, scores = _scores_in_use(db)
    return [
        {"measure": measure, "entry": entry, "number": score}
        for entry, score in zip(entries.tolist(), scores.tolist(), strict=True)
    ]
