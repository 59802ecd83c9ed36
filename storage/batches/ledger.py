"""The ledger of batches: the pieces of work of each batch, the processes that do them, and their results.

A result is written in the same transaction that marks its work as done. So a result that arrives twice counts once, and
work without a result is done again. A batch belongs to one process at a time. If that process dies, its leased work is
planned again when the next process begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from sqlite_utils import Database as Db

from core.batches import (
    PASSES,
    Batch,
    BatchSource,
    Candidate,
    Chosen,
    Counted,
    Done,
    FailedGroup,
    Item,
    NewWork,
    Pass,
    Piece,
    PlannedDrawing,
    ReadSource,
    SourceRun,
    Wish,
    WorkState,
)
from core.csv_tables import cells
from core.data_files import DataTable
from core.errors import UserError
from core.run_record import RunRecord
from core.types import CounterfactualCaption
from storage.engine.database import Database, Repository, read, reading, write, writing
from storage.engine.queries import change_row, first_column, first_value, insert_row, insert_rows, records, required_row
from storage.engine.rows import Row, now, pack, pack_value, record_of, unpack_value, whole
from storage.images import Images
from storage.runs.rows import begin_steps, change_state, insert_value, latest_state, latest_values
from storage.runs.runs import insert_run, mask_columns
from storage.runs.test_cases import insert_test_cases

WAITS = "It waits for the search."
"""Reason stored for an image that waits until a search for failures chooses it. `ledger.toml` repeats it."""
MOST_DEATHS = 3
"""Number of workers that must die during the same piece of work before this piece counts as failed."""
_AT_ONCE = 20_000
"""Maximum number of rows written in one transaction. Other writers can write between transactions."""
_QUERIES = DataTable(__file__, str)


def _add_work(db: Db, batch: int, stage: Pass, work: Sequence[NewWork], skipped: Mapping[str, str]) -> None:
    """Add pieces of work to a pass, all or nothing. Existing pieces stay. `skipped` has reasons by key of skipped work.

    Add at most some thousand pieces in one call, as other writers have to wait for the transaction.
    """
    query = "SELECT key FROM batch_work WHERE batch = ? AND key IN (SELECT value FROM json_each(?))"
    known = set(first_column(db, query, [batch, pack([one.key for one in work])]))
    new = [
        {
            "batch": batch,
            "pass": stage,
            **cells(one, "lot place source key seed"),
            "counterfactual": pack_value(one.counterfactual) if one.counterfactual is not None else "",
            "state": "skipped" if one.key in skipped else "planned",
            "reason": skipped.get(one.key, ""),
            "changed": now(),
        }
        for one in work
        if one.key not in known
    ]
    insert_rows(db, "batch_work", new)


def _source_runs(db: Db, runs: Sequence[str]) -> Mapping[str, SourceRun]:
    """Return the runs with these ids, each with the current values of its text stages."""
    runs_by_id = {}
    for row in list(db.query(_QUERIES["source_runs"], [pack(list(runs))])):
        state = latest_state(db, row["id"])
        values = {name: stored.value for name, stored in latest_values(db, row["id"]).items()}
        size, classes = (row["width"], row["height"]), unpack_value(dict[int, str], state["mask_classes"])
        runs_by_id[row["id"]] = SourceRun(row["source"], size, state["mask"] or "", classes, values)
    return runs_by_id


class Batches(Repository):
    """The batches of a workspace. `alive(number)` returns True if the process of this number has the workspace open."""

    def __init__(self, database: Database, images: Images, alive: Callable[[int], bool]) -> None:
        super().__init__(database)
        self._images, self._alive = images, alive

    # Creating and reading batches

    @write
    def create(
        self,
        db: Db,
        name: str,
        plan: str,
        digest: str,
        profile: str,
        recipe: str,
        settings: Mapping[str, Any],
        at_once: int,
    ) -> int:
        """Create a batch without sources and return its number. Raises UserError for an empty name."""
        name = whole(" ".join(name.split()))[:200]
        if not name:
            raise UserError("The batch has no name: give it one.", field="name")
        row = {"name": name, "plan": plan, "digest": digest, "profile": profile, "recipe": recipe, "at_once": at_once}
        return insert_row(db, "batches", {**row, "settings": pack(dict(settings)), "created": now()})

    def add_sources(self, batch: int, items: Iterable[Item]) -> None:
        """Add images of a data set as sources, in several transactions. Call `is_planned` after the last one."""
        items = iter(items)
        while some := list(islice(items, _AT_ONCE)):
            self._add_sources(batch, some)

    @write
    def _add_sources(self, db: Db, batch: int, items: Sequence[Item]) -> None:
        rows = ({"batch": batch, **vars(one), "attributes": pack(dict(one.attributes))} for one in items)
        insert_rows(db, "batch_sources", rows, ignore=True)

    @write
    def is_planned(self, db: Db, batch: int, notes: Sequence[str]) -> None:
        """Record that all sources of a batch were added. `notes` are sentences on how the sources were chosen."""
        query = "UPDATE batches SET planned = ?, notes = ? WHERE id = ? AND planned IS NULL"
        db.execute(query, [now(), pack(list(notes)), batch])

    @read
    def find(self, db: Db, digest: str) -> int | None:
        """Return the number of the batch that was made from the plan with this digest, or None."""
        number: int | None = first_value(db, "SELECT id FROM batches WHERE digest = ?", [digest])
        return number

    @read
    def count_sources(self, db: Db, batch: int) -> int:
        return int(first_value(db, "SELECT count(*) FROM batch_sources WHERE batch = ?", [batch]))

    plan = writing(_add_work)

    @read
    def edited(self, db: Db, batch: int) -> tuple[BatchSource, ...]:
        """Return sources whose run was edited after the batch wrote it. Sources without planned images are left out."""
        return tuple(map(_source, db.query(_QUERIES["edited"], {"batch": batch})))

    @read
    def drawings(self, db: Db, source: int) -> tuple[PlannedDrawing, ...]:
        """Return the planned images of a source, in the order of planning. Images without a caption are left out."""
        return records(db, PlannedDrawing, _QUERIES["drawings"], [source])

    @write
    def replan(self, db: Db, batch: int, left: Mapping[int, str], back: Sequence[int], work: Sequence[NewWork]) -> None:
        """Skip images (`left`: reason by id), restore skipped images (`back`) and add images (`work`) to a batch."""
        time, change = now(), "UPDATE batch_work SET state = ?, reason = ?, changed = ? WHERE id = ?"
        for one, reason in left.items():
            db.execute(f"{change} AND (state = 'planned' OR reason = ?)", ["skipped", reason, time, one, WAITS])
        for one in back:
            db.execute(f"{change} AND state = 'skipped'", ["planned", "", time, one])
        _add_work(db, batch, "images", work, {})

    # A search for weak cells, which chooses what is drawn

    @read
    def candidates(self, db: Db, batch: int) -> tuple[Candidate, ...]:
        """Return the images of a batch for a search to choose from, in the order of planning. Each has a caption."""
        return records(db, Candidate, _QUERIES["candidates"], [batch])

    @write
    def add_search(self, db: Db, batch: int, settings: Mapping[str, Any]) -> None:
        """Record that a search for the model's failures begins or continues with these settings."""
        _require(db, batch)
        insert_row(db, "batch_searches", {"batch": batch, "settings": pack(settings), "created": now()})

    @read
    def search(self, db: Db, batch: int) -> Mapping[str, Any] | None:
        """Return the settings of the latest search in a batch, or None."""
        query = "SELECT settings FROM batch_searches WHERE batch = ? ORDER BY id DESC LIMIT 1"
        settings = first_value(db, query, [batch])
        return None if settings is None else json.loads(settings)

    @write
    def hold_back(self, db: Db, batch: int) -> int:
        """Postpone all planned images until a search chooses them. Return the number of postponed images."""
        _require(db, batch)
        return int(db.execute(_QUERIES["hold_back"], {"batch": batch, "reason": WAITS, "time": now()}).rowcount)

    @write
    def choose(self, db: Db, batch: int, chosen: Sequence[Chosen]) -> None:
        """Plan the images that a search chose, all or nothing."""
        for one in chosen:
            db.execute(_QUERIES["choose"], {**vars(one), "batch": batch, "reason": WAITS, "time": now()})
        change_row(db, "batches", batch, {"finished": None})

    @read
    def get(self, db: Db, batch: int) -> Batch:
        """Return a batch. Raises UserError if it is unknown."""
        return self._batch(_require(db, batch))

    @read
    def all(self, db: Db) -> tuple[Batch, ...]:
        """Return all batches, the latest first."""
        return tuple(self._batch(row) for row in db.query("SELECT * FROM batches ORDER BY id DESC"))

    @read
    def sources(
        self, db: Db, batch: int, lacking: Pass | None = None, after: int = 0, limit: int = 1000
    ) -> tuple[BatchSource, ...]:
        """Return up to `limit` sources whose number is above `after`.

        With `lacking`, return only sources on which this pass has no work yet and the pass before has finished work.
        """
        before = PASSES[PASSES.index(lacking) - 1] if lacking in PASSES[1:] else None
        parameters = {"batch": batch, "after": after, "lacking": lacking, "before": before, "limit": limit}
        return tuple(map(_source, db.query(_QUERIES["sources"], parameters)))

    @read
    def next_lot(self, db: Db, batch: int, stage: Pass) -> int:
        """Return the next free number for a lot. A lot is a group of pieces of work in one pass, leased together."""
        query = "SELECT coalesce(max(lot), -1) + 1 FROM batch_work WHERE batch = ? AND pass = ?"
        return int(first_value(db, query, [batch, stage]))

    source_runs = reading(_source_runs)

    # The process that works on a batch

    @write
    def hold(self, db: Db, batch: int) -> None:
        """Reserve a batch for this process, and end all leases. Raises UserError if another process has the batch."""
        row = _require(db, batch)
        process = self._images.process
        if row["process"] not in (None, process) and self._alive(row["process"]):
            raise UserError(f"Another process works on the batch “{row['name']}” already: wait for it, or stop it.")
        change_row(db, "batches", batch, {"process": process, "wish": "go"})
        _release(db, batch)

    @write
    def let_go(self, db: Db, batch: int) -> None:
        """End this process's work on a batch. Pieces of work that are still leased are planned again."""
        _release(db, batch)
        db.execute("UPDATE batches SET process = NULL WHERE id = ? AND process = ?", [batch, self._images.process])

    @write
    def set_wish(self, db: Db, batch: int, wish: Wish) -> None:
        """Record a person's wish: continue, pause or cancel. Takes effect after the current work. Raises UserError."""
        _require(db, batch)
        change_row(db, "batches", batch, {"wish": wish})

    @write
    def approve(self, db: Db, batch: int, ahead: bool = False) -> None:
        """Approve the captions. Raises UserError if they are approved, or if some are missing and `ahead` is False."""
        row = _require(db, batch)
        if row["approved"] is not None:
            raise UserError(f"The captions of “{row['name']}” are approved already.")
        if row["pass"] != "images" and not ahead:
            raise UserError(f"The captions of “{row['name']}” are not all written yet: run the batch first.")
        change_row(db, "batches", batch, {"approved": now()})

    @write
    def go_on(self, db: Db, batch: int, stage: Pass) -> None:
        """Start the next pass of a batch. Plan all work of this pass before the call."""
        change_row(db, "batches", batch, {"pass": stage})

    @write
    def note(self, db: Db, batch: int, sentences: Sequence[str]) -> None:
        notes = json.loads(_require(db, batch)["notes"])
        change_row(db, "batches", batch, {"notes": pack([*notes, *sentences])})

    @write
    def finish(self, db: Db, batch: int) -> None:
        change_row(db, "batches", batch, {"finished": now()})

    # The work

    @write
    def claim(self, db: Db, batch: int, stage: Pass) -> tuple[Piece, ...]:
        """Lease the next planned lot (pieces of work leased together) to this process; () if none exists.

        If a worker died during work on the lot, lease only one piece, to find the piece that kills workers.
        """
        rows = list(db.query(_QUERIES["claim"], {"batch": batch, "stage": stage}))
        rows = [row for row in rows if not row["deaths"]] or rows[:1]
        _set_leased(db, (row["id"] for row in rows))
        runs = _source_runs(db, [row["run"] for row in rows if row["run"]])
        return tuple(record_of(Piece, row, item=record_of(Item, row), run=runs.get(row["run"])) for row in rows)

    @write
    def lease(self, db: Db, batch: int, expected: Mapping[int, int]) -> frozenset[int]:
        """Lease these planned pieces, by id, if their number of tries is as `expected`. Return the leased ids."""
        rows = db.execute(_QUERIES["planned"], [batch, pack(list(expected))]).fetchall()
        leased = [one for one, tries in rows if tries == expected[one]]
        _set_leased(db, leased)
        return frozenset(leased)

    @write
    def worker_died(self, db: Db, pieces: Sequence[int]) -> None:
        """Plan the pieces of a dead worker again. A piece fails once `MOST_DEATHS` workers have died on it."""
        values = {"pieces": pack(list(pieces)), "most": MOST_DEATHS, "time": now()}
        db.execute(_QUERIES["worker_died"], values)

    @write
    def record(self, db: Db, batch: int, results: Sequence[Done], tries: int) -> None:
        """Save results of leased work, all or nothing. Failed work is planned again, up to `tries` tries in all."""
        row = _require(db, batch)
        for result in results:
            work = next(db.query("SELECT * FROM batch_work WHERE id = ?", [result.id]))
            if work["state"] in ("done", "skipped"):
                continue
            change: dict[str, Any] = {"state": "done", "seconds": work["seconds"] + result.seconds, "changed": now()}
            if result.failed:
                spent = work["tries"] + 1
                change["state"] = "failed" if result.final or spent - work["forgiven"] >= tries else "planned"
                change |= {"tries": spent, "seeds": work["seeds"] + result.seed_spent, "reason": whole(result.failed)}
            else:
                self._take(db, row, work, result, change)
            change_row(db, "batch_work", result.id, change)

    def _take(self, db: Db, batch: Row, work: Row, result: Done, change: dict[str, Any]) -> None:
        run = first_value(db, "SELECT run FROM batch_sources WHERE id = ?", [work["source"]])
        if result.source is not None and run is None:
            run = _begin_run(db, batch, work, result.source)
            change_row(db, "batch_sources", work["source"], {"run": run})
        if run is None:
            raise RuntimeError("a source has a result before it was read")
        for stage, value in result.values.items():
            insert_value(db, run, stage, value)
        if result.values:
            begin_steps(db, run)
        if result.case is not None:
            change["test_case"] = insert_test_cases(db, run, None, [result.case])[0]

    @write
    def retry_failed(self, db: Db, batch: int, reason: str | None = None) -> int:
        """Plan failed work again: all of it, or the work that failed for one `reason`. Return the number of pieces."""
        _require(db, batch)
        number = db.execute(_QUERIES["retry_failed"], [now(), batch, reason, reason]).rowcount
        if number:
            change_row(db, "batches", batch, {"finished": None})
        return int(number)

    # Figures from counters, which are fast for large batches

    @read
    def counts(self, db: Db, batch: int) -> Mapping[Pass, Mapping[WorkState, Counted]]:
        """Return the number of pieces of work and the seconds that workers spent on them, by pass and state."""
        counts_by_pass: dict[Pass, dict[WorkState, Counted]] = {one: {} for one in PASSES}
        for row in db.query("SELECT * FROM batch_counts WHERE batch = ? AND number > 0", [batch]):
            counts_by_pass[row["pass"]][row["state"]] = Counted(row["number"], row["seconds"])
        return counts_by_pass

    @read
    def waiting(self, db: Db, batch: int) -> int:
        """Return the number of images that a search has not chosen yet."""
        return int(first_value(db, _QUERIES["waiting"], [batch, WAITS]))

    @read
    def minutes(self, db: Db, batch: int, stage: Pass, most: int = 60) -> tuple[tuple[str, int], ...]:
        """Return up to `most` pairs (minute in UTC, number of finished results), latest first, without idle minutes."""
        query = "SELECT minute, number FROM batch_minutes WHERE batch = ? AND pass = ? ORDER BY minute DESC LIMIT ?"
        return tuple(db.execute(query, [batch, stage, most]).fetchall())

    @read
    def busy_minutes(self, db: Db, batch: int) -> int:
        """Return the number of minutes in which work was finished, an estimate of the time spent on the batch."""
        return int(first_value(db, "SELECT count(DISTINCT minute) FROM batch_minutes WHERE batch = ?", [batch]))

    @read
    def failures(self, db: Db, batch: int, most: int = 100) -> tuple[FailedGroup, ...]:
        """Count failed and skipped work by pass and reason, without images that wait for a search. Largest first."""
        groups = db.execute(_QUERIES["failures"], {"batch": batch, "most": most, "waits": WAITS}).fetchall()
        query = _QUERIES["examples_of_failure"]
        return tuple(
            FailedGroup(stage, state, reason, number, first_column(db, query, [batch, stage, state, reason]))
            for stage, state, reason, number in groups
        )

    @read
    def sample(self, db: Db, batch: int, most: int) -> tuple[tuple[str, str, CounterfactualCaption], ...]:
        """Return (key of the source, run, caption) for up to `most` images, chosen by hash: the same ones each time."""
        rows = db.execute(_QUERIES["sample"], [batch, most]).fetchall()
        return tuple((key, run, unpack_value(CounterfactualCaption, packed)) for key, run, packed in rows)

    @read
    def latest_images(self, db: Db, batch: int, most: int = 12) -> tuple[tuple[int, str, str], ...]:
        """Return (test case, image, run) of the latest images of a batch, up to `most`."""
        return tuple(db.execute(_QUERIES["latest_images"], [batch, most]).fetchall())

    @read
    def verdicts(self, db: Db, batch: int) -> Mapping[str, int]:
        """Count by verdict the images that the batch drew, without images of later jobs. Also count the accepted images
        that studies find valid or invalid, once for each study.
        """
        return dict(row for name in ("reviewed", "studied") for row in db.execute(_QUERIES[name], [batch]))

    def _batch(self, row: Row) -> Batch:
        return record_of(
            Batch,
            row,
            stage=row["pass"],
            planned=row["planned"] is not None,
            running=row["process"] is not None and self._alive(row["process"]),
        )


def _require(db: Db, batch: int) -> Row:
    missing = f"There is no batch {batch}: `batch status` lists all batches."
    return required_row(db, "batches", batch, missing, "batch")


def _source(row: Row) -> BatchSource:
    return BatchSource(row["id"], record_of(Item, row), row["run"], row["first"] or "")


def _set_leased(db: Db, work: Iterable[int]) -> None:
    time = now()
    query = "UPDATE batch_work SET state = 'leased', changed = ? WHERE id = ?"
    db.conn.executemany(query, [(time, one) for one in work])


def _release(db: Db, batch: int) -> None:
    query = "UPDATE batch_work SET state = 'planned', changed = ? WHERE batch = ? AND state = 'leased'"
    db.execute(query, [now(), batch])


def _begin_run(db: Db, batch: Row, work: Row, source: ReadSource) -> str:
    name = f"{batch['name']}: {first_value(db, 'SELECT key FROM batch_sources WHERE id = ?', [work['source']])}"
    name = name if len(name) <= 200 else f"{name[:99]}…{name[-100:]}"
    of_batch = {"profile": batch["profile"], "settings": json.loads(batch["settings"]), "recipe": batch["recipe"]}
    record = RunRecord("", name, task=source.task, values={}, notes=tuple(source.notes), **of_batch)
    run = insert_run(db, source.image, record)
    if source.mask is not None:
        change_state(db, run, **mask_columns(db, source.mask, source.mask_classes))
    return run
