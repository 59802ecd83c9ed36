"""What is known of a batch without a look at its plan: counts, speeds, failures, samples, what people say of it."""

from __future__ import annotations

from collections.abc import Mapping

import sqlite_utils

from core.batches import PASSES, Counted, FailedGroup, Pass, WorkState
from core.types import CounterfactualCaption
from storage.engine.database import Repository, read
from storage.engine.rows import unpack_value


class BatchFigures(Repository):
    """Figures of the batches of a workspace."""

    @read
    def counts(self, db: sqlite_utils.Database, batch: int) -> Mapping[Pass, Mapping[WorkState, Counted]]:
        """By pass and state."""
        found: dict[Pass, dict[WorkState, Counted]] = {one: {} for one in PASSES}
        for row in db.query("SELECT * FROM batch_counts WHERE batch = ? AND number > 0", [batch]):
            found[row["pass"]][row["state"]] = Counted(row["number"], row["seconds"])
        return found

    @read
    def minutes(
        self, db: sqlite_utils.Database, batch: int, stage: Pass, most: int = 60
    ) -> tuple[tuple[str, int], ...]:
        """How much of a pass was done in each of the last minutes in which something was; UTC, the latest first."""
        query = "SELECT minute, number FROM batch_minutes WHERE batch = ? AND pass = ? ORDER BY minute DESC LIMIT ?"
        return tuple(db.execute(query, [batch, stage, most]).fetchall())

    @read
    def busy_minutes(self, db: sqlite_utils.Database, batch: int) -> int:
        """In how many minutes something was done: how long it was worked on, by the clock."""
        query = "SELECT count(DISTINCT minute) FROM batch_minutes WHERE batch = ?"
        return int(db.execute(query, [batch]).fetchone()[0])

    @read
    def failures(self, db: sqlite_utils.Database, batch: int, most: int = 100) -> tuple[FailedGroup, ...]:
        """What failed and what was skipped, by pass and reason, the most frequent first."""
        query = """
            SELECT pass, state, reason, count(*) AS number, min(id) AS first FROM batch_work
            WHERE batch = ? AND state IN ('failed', 'skipped') GROUP BY pass, state, reason ORDER BY number DESC LIMIT ?
        """
        examples = """
            SELECT DISTINCT batch_sources.key FROM batch_work JOIN batch_sources ON batch_sources.id = source
            WHERE batch_work.batch = ? AND pass = ? AND state = ? AND reason = ? LIMIT 3
        """
        groups = list(db.query(query, [batch, most]))
        return tuple(
            FailedGroup(
                *(row["pass"], row["state"], row["reason"], row["number"]),
                [key for (key,) in db.execute(examples, [batch, row["pass"], row["state"], row["reason"]])],
            )
            for row in groups
        )

    @read
    def sample(
        self, db: sqlite_utils.Database, batch: int, most: int
    ) -> tuple[tuple[str, str, CounterfactualCaption], ...]:
        """Key and run of the source, and the caption, of some images: of those whose hashes come first."""
        query = """
            SELECT batch_sources.key, run, counterfactual FROM batch_work
            JOIN batch_sources ON batch_sources.id = source
            WHERE batch_work.batch = ? AND pass = 'images' AND counterfactual <> '' AND state <> 'skipped'
            ORDER BY batch_work.key LIMIT ?
        """
        rows = db.execute(query, [batch, most]).fetchall()
        return tuple((key, run, unpack_value(CounterfactualCaption, packed)) for key, run, packed in rows)

    @read
    def images(self, db: sqlite_utils.Database, batch: int) -> Mapping[str, str]:
        """The hash of each image that was made, by the key of its work."""
        query = """
            SELECT key, image FROM batch_work JOIN test_cases ON test_cases.id = test_case
            WHERE batch_work.batch = ? AND test_case IS NOT NULL
        """
        return dict(db.execute(query, [batch]).fetchall())

    @read
    def latest_images(self, db: sqlite_utils.Database, batch: int, most: int = 12) -> tuple[tuple[int, str, str], ...]:
        """Test case, image and run of what was drawn last."""
        query = """
            SELECT test_cases.id, test_cases.image, test_cases.run FROM batch_work
            JOIN test_cases ON test_cases.id = test_case
            WHERE batch_work.batch = ? AND test_case IS NOT NULL ORDER BY test_case DESC LIMIT ?
        """
        return tuple(db.execute(query, [batch, most]).fetchall())

    @read
    def reviewed(self, db: sqlite_utils.Database, batch: int) -> Mapping[str, int]:
        """How many of its images people have accepted and rejected, by the verdict; images that somebody drew in its
        runs are not counted.
        """
        query = """
            SELECT verdict, count(*) FROM test_case_states JOIN test_cases ON test_cases.id = test_case
            JOIN batch_sources ON batch_sources.run = test_cases.run
            WHERE verdict IN ('accepted', 'rejected') AND batch = ? AND test_cases.job IS NULL GROUP BY verdict
        """
        return dict(db.execute(query, [batch]).fetchall())

    @read
    def studied(self, db: sqlite_utils.Database, batch: int) -> Mapping[str, int]:
        """How many of its accepted images the votes of studies find valid and invalid, by the outcome. One that is in
        several studies counts in each; without a consensus it counts in none.
        """
        query = """
            SELECT outcome, count(*) FROM test_case_states JOIN test_cases ON test_cases.id = test_case_states.test_case
            JOIN batch_sources ON batch_sources.run = test_cases.run
            JOIN study_items ON study_items.test_case = test_cases.id
            WHERE verdict = 'accepted' AND batch = ? AND test_cases.job IS NULL
                AND kind = 'item' AND outcome IN ('valid', 'invalid')
            GROUP BY outcome
        """
        return dict(db.execute(query, [batch]).fetchall())
