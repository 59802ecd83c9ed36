"""Scores of validity: how likely people find each image valid, as it was foretold the last time and before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import sqlite_utils
from numpy.typing import NDArray

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
    """The scores of images, to be saved."""

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
    def save(self, db: sqlite_utils.Database, new: NewScores) -> int:
        """Replace all scores; return the number of the run. Raises ValueError for none or one not in 0 to 1."""
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
        # From a table, by one statement, in the order of the entries: a quarter of what a statement each takes, and
        # nobody else can save meanwhile.
        measure = value_id(db, "measure", MEASURE)
        db.execute("CREATE TEMP TABLE scores_coming (number REAL, entry INTEGER)")
        db.conn.executemany(
            "INSERT INTO scores_coming VALUES (?, ?)", zip(scores.tolist(), new.entries.tolist(), strict=True)
        )
        db.execute(
            "INSERT INTO catalogue_numbers (measure, number, entry) "
            "SELECT ?, number, entry FROM scores_coming ORDER BY entry",
            [measure],
        )
        db.execute("DROP TABLE scores_coming")
        # The triggers of the numbers leave this measure alone: they would change the sets image by image.
        make_set(db, measure, new.entries)
        bins = entry_sets.bins_of(scores.astype(np.float64))
        for place in np.unique(bins).tolist():
            make_set(db, value_id(db, f"bin:{MEASURE}", str(place)), new.entries[bins == place])
        return run

    @read
    def latest(self, db: sqlite_utils.Database) -> ScoreRun | None:
        """What the scores of the catalogue come from; None where no image has one."""
        return next(iter(_runs(db, "ORDER BY id DESC LIMIT 1")), None)

    @read
    def get(self, db: sqlite_utils.Database, run: int) -> ScoreRun:
        """Any run. Raises UserError for one that there is not."""
        for found in _runs(db, "WHERE id = ?", run):
            return found
        raise UserError(f"Images were never scored under the number {run}.", field="run")


def _forget(db: sqlite_utils.Database) -> None:
    """Take the scores of the run before out of the catalogue."""
    db.execute(f"DELETE FROM catalogue_numbers WHERE measure = {NUMBER}")
    query = "SELECT id FROM catalogue_values WHERE facet = 'measure' AND value = ? OR facet = ?"
    for (value,) in db.execute(query, [MEASURE, f"bin:{MEASURE}"]).fetchall():
        drop_set(db, value)


def _runs(db: sqlite_utils.Database, which: str, *values: int) -> tuple[ScoreRun, ...]:
    query = f"""
        SELECT id, studies, json_extract(learnt, '$.names') AS checks, agreement, images, created
        FROM score_runs {which}
    """
    return tuple(
        ScoreRun(
            row["id"],
            unpack_value(dict[str, str], row["studies"]),
            unpack_value(tuple[str, ...], row["checks"]),
            unpack_value(Agreement, row["agreement"]),
            row["images"],
            when(row["created"]),
        )
        for row in db.query(query, list(values))
    )


def scored_rows(db: sqlite_utils.Database) -> list[Row]:
    """The rows of `catalogue_numbers` that follow from the latest run."""
    query = f"SELECT entries, scores, {NUMBER} AS measure FROM score_runs ORDER BY id DESC LIMIT 1"
    for row in db.query(query):
        bits = np.frombuffer(row["entries"], np.uint8)
        assert len(bits) % BYTES == 0
        entries = entry_sets.entries_of(bits).tolist()
        scores = np.frombuffer(row["scores"], "<f4").tolist()
        return [
            {"measure": row["measure"], "entry": entry, "number": score}
            for entry, score in zip(entries, scores, strict=True)
        ]
    return []
