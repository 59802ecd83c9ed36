"""Runs, the versions of their values, the list of runs, and new runs that start from existing ones."""

from __future__ import annotations

import itertools
import json
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from PIL import Image
from sqlite_utils import Database as Db

from core.csv_tables import cells
from core.data_files import DataTable
from core.errors import UserError
from core.images import StoredImage
from core.lineage import DEFAULT_RECIPE, TestCase
from core.run_record import RunRecord
from core.stored_runs import BatchOfRuns, EditedShare, Run, RunSummary, SavedCase, StoredState, StoredValue
from core.types import GENERATION, EditType, ReviewDecision, StageName, StageValue, Task, stage_kinds
from storage.engine.database import Database, Repository, read, reading, write, writing
from storage.engine.queries import first_column, first_value, insert_rows, records
from storage.engine.rows import Row, checked_text, now, pack, pack_value, record_of, unpack_value
from storage.images import Images, keep_image
from storage.runs.rows import (
    BEGUN,
    appear,
    append_state,
    begin_steps,
    change_state,
    insert_value,
    latest_state,
    latest_values,
    repeat_value,
    require_run,
    run_exists,
    stored_value,
    waits,
)
from storage.runs.test_cases import insert_test_cases, read_jobs, read_test_cases, save_cases
from storage.thumbnails import Thumbnails

LONGEST_NAME = 200
LOOKED_AT = 2000
"""Number of latest runs that are read for the list of runs. In the list, all runs of a batch share one row."""
_QUERIES = DataTable(__file__, str)


@dataclass(frozen=True)
class ImportedRun:
    """A run to be imported, with its source image, test cases and reviews."""

    record: RunRecord
    source: Image.Image
    """Source image of mode L, RGB or RGBA."""
    mask: Image.Image | None = None
    cases: Iterable[TestCase] = ()
    reviews: Sequence[ReviewDecision | None] = ()
    """People's decisions on the run's test cases, in the same order."""


@dataclass(frozen=True)
class Branch:
    """A new run that starts from an existing run."""

    run: str
    ending: str
    """Text that is appended to the name of the existing run to name the new run."""
    settings: Mapping[str, Any]
    values: Mapping[StageName, StageValue[Any]]


@dataclass(frozen=True)
class LatestRun:
    """The latest run of a source image. Runs limited to some edit types count only if a source has no other runs."""

    run: str
    source_sha: str
    waiting: int
    """Number of the source's runs that are limited to the requested edit types and have no image so far."""


class Runs(Repository):
    """The runs of a workspace. Methods raise UserError for an unknown run id, except `exists` and `prompt_states`."""

    def __init__(self, database: Database, images: Images, thumbnails: Thumbnails) -> None:
        super().__init__(database)
        self._images, self._thumbnails = images, thumbnails

    def create(
        self,
        source: Image.Image,
        task: Task,
        profile: str,
        name: str,
        settings: Mapping[str, Any],
        notes: Sequence[str] = (),
        sample: str = "",
        recipe: str = DEFAULT_RECIPE,
    ) -> str:
        """Create a run from a source image (L, RGB or RGBA); return its id.

        `settings` is plain data. `notes` say how the picture was corrected. `sample` is the name of the studio's
        sample, or "". `recipe` is the name of a recipe. Raises UserError if the name is empty or too long, or the disk
        is full.
        """
        image = self._thumbnails.save(source)
        record = RunRecord(
            "", name, profile, task, settings, values={}, recipe=recipe, sample=sample, notes=tuple(notes)
        )
        return self._database.write(lambda db: insert_run(db, image, record))

    def import_runs(self, imported: Iterable[ImportedRun]) -> tuple[str, ...]:
        """Save imported runs with everything in their records, and their test cases with reviews, all or nothing.

        Return the ids in order. A run keeps its record's id if it is valid and free. Runs and their test cases are read
        one by one, so pass generators to keep few pixels in memory. Raises UserError if a name is empty or too long, or
        the disk is full.
        """
        saved = [
            (
                run.record,
                self._thumbnails.save(run.source, settled=False),
                self._images.save(run.mask, settled=False) if run.mask is not None else None,
                save_cases(self._images, self._thumbnails, run.cases),
                run.reviews,
            )
            for run in imported
        ]
        self._images.settle()
        return self._database.write(lambda db: tuple(_import_run(db, *run) for run in saved))

    @write
    def duplicate(self, db: Db, run_id: str) -> str:
        """Copy a run: its source, task, settings, mask, prompts and latest values. Return the new run's id.

        Test cases are not copied, as an image in two runs would count twice everywhere.
        """
        require_run(db, run_id)
        values = {stage: stored.value for stage, stored in latest_values(db, run_id).items()}
        return begin_from(db, Branch(run_id, "copy", json.loads(latest_state(db, run_id)["settings"]), values))

    @write
    def branch(self, db: Db, branches: Sequence[Branch]) -> tuple[str, ...]:
        """Start new runs from existing ones, all or none, and return their ids. Raises UserError for an unknown run."""
        for one in branches:
            require_run(db, one.run)
        return tuple(begin_from(db, one) for one in branches)

    # Changes by a person. Each adds a row, and the latest row counts

    @write
    def rename(self, db: Db, run_id: str, name: str) -> None:
        """Rename a run. Raises UserError for an empty or too long name."""
        change_state(db, run_id, name=_name(name))

    @write
    def set_task(self, db: Db, run_id: str, task: Task) -> None:
        change_state(db, run_id, task=pack_value(task))

    @write
    def set_recipe(self, db: Db, run_id: str, recipe: str) -> None:
        """Give a run the recipe named `recipe`. The run keeps the values of its stages."""
        change_state(db, run_id, recipe=recipe)

    @write
    def set_settings(self, db: Db, run_id: str, settings: Mapping[str, Any]) -> int | None:
        """Change the settings of a run. Return the id of the new state, or None if nothing changed."""
        return change_state(db, run_id, settings=pack(dict(settings)))

    @write
    def set_prompts(self, db: Db, run_id: str, prompts: Mapping[StageName, str]) -> int | None:
        """Replace the run's edited prompt templates. Return the id of the new state, or None if nothing changed."""
        return change_state(db, run_id, prompts=pack(dict(prompts)))

    def set_mask(self, run_id: str, mask: Image.Image | None, classes: Mapping[int, str] | None = None) -> None:
        """Set the mask of a run with its class names; None removes it. Raises ValueError if its mode is not L."""
        if mask is not None and mask.mode != "L":
            raise ValueError(f"a mask has mode L, not {mask.mode}")
        stored = self._images.save(mask) if mask is not None else None
        self._database.write(lambda db: change_state(db, run_id, **mask_columns(db, stored, classes or {})))

    @write
    def remove(self, db: Db, *run_ids: str) -> None:
        """Remove runs from the list of runs. Their data remain."""
        for run_id in run_ids:
            change_state(db, run_id, removed=1)

    @write
    def restore(self, db: Db, *run_ids: str) -> None:
        """Put removed runs back into the list of runs."""
        for run_id in run_ids:
            change_state(db, run_id, removed=0)

    @write
    def begun_with(self, db: Db, run_id: str, listed: bool) -> None:
        """Start the undo history at the run's present content. If not `listed`, hide the run until its first use."""
        if not listed:
            change_state(db, run_id, removed=1)
        begin_steps(db, run_id)

    @write
    def appear(self, db: Db, run_id: str) -> None:
        """Add a run to the list of runs when something is first done with the run. A listed run stays unchanged."""
        require_run(db, run_id)
        appear(db, run_id)

    # Values of the text stages

    append_value = writing(insert_value)

    @write
    def bring_back(self, db: Db, value_id: int) -> int:
        """Save a copy of an earlier version as the latest one. Return its id. Raises UserError if it does not exist."""
        number = repeat_value(db, value_id)
        if number is not None:
            return number
        raise UserError(f"There is no version {value_id} to bring back; pick one from the history.", field="version")

    @read
    def history(self, db: Db, run_id: str, stage: StageName) -> tuple[StoredValue, ...]:
        """Return all versions of a stage's value, oldest first."""
        require_run(db, run_id)
        query = "SELECT * FROM stage_values WHERE run = ? AND stage = ? AND value <> 'null' ORDER BY id"
        return tuple(stored_value(row) for row in db.query(query, [run_id, stage]))

    # Queries

    exists = reading(run_exists)

    @read
    def by_source(
        self,
        db: Db,
        recipes: Collection[str],
        label: str = "",
        keywords: Collection[EditType] = (),
        begun_for: str = "",
    ) -> tuple[LatestRun, ...]:
        """Return the latest run of each source image, most recently changed first.

        Runs count if they have one of these recipes, the class `label` (as label or protected class; "" for any), and
        keywords of all these edit types. A run made for particular edit types is returned only if a source has no other
        run. `waiting` counts the runs that were made for the edit types `begun_for` and have no image yet.
        """
        values = {"recipes": pack(list(recipes)), "label": label, "keywords": pack(list(keywords))}
        latest: dict[str, str] = {}
        waiting: Counter[str] = Counter()
        for run, source, waits_here in db.execute(_QUERIES["by_source"], {**values, "begun_for": begun_for}):
            latest.setdefault(source, run)
            waiting[source] += waits_here
        return tuple(LatestRun(run, source, waiting[source]) for source, run in latest.items())

    @read
    def get(self, db: Db, run_id: str) -> Run:
        """Return a run with the latest version of everything, even if it was removed."""
        require_run(db, run_id)
        row = next(db.query(_QUERIES["run"], [run_id]))
        return record_of(
            Run,
            row,
            values=latest_values(db, run_id),
            test_cases=read_test_cases(db, run_id, self._images.folder),
            jobs=read_jobs(db, run_id),
            removed=bool(row["removed"]) and not waits(db, run_id),
        )

    @read
    def mask(self, db: Db, run_id: str) -> tuple[str | None, Mapping[int, str]]:
        """Return the SHA-256 of a run's mask (None without one) and the class names by class number."""
        require_run(db, run_id)
        state = latest_state(db, run_id)
        return state["mask"], unpack_value(dict[int, str], state["mask_classes"])

    @read
    def states(self, db: Db, run_id: str, since: int = 0) -> tuple[StoredState, ...]:
        """Return the states of a run with ids from `since` on, with settings, prompts and times."""
        require_run(db, run_id)
        query = "SELECT id, settings, prompts, created FROM run_states WHERE run = ? AND id >= ? ORDER BY id"
        return records(db, StoredState, query, [run_id, since])

    @read
    def prompt_states(self, db: Db, run_id: str) -> tuple[StoredState, ...]:
        """Return the states of a run in which its prompts changed, oldest first."""
        return records(db, StoredState, _QUERIES["prompt_states"], [run_id])

    @read
    def edited(self, db: Db, run_ids: Sequence[str] | None = None) -> tuple[EditedShare, ...]:
        """Count the values that people changed, by profile and stage, in these runs; None means all listed runs."""
        chosen, order = None if run_ids is None else pack(list(run_ids)), list(stage_kinds())
        shares = [EditedShare(**row) for row in db.query(_QUERIES["edited"], {"runs": chosen}) if row["stage"] in order]
        return tuple(sorted(shares, key=lambda one: (one.profile, order.index(one.stage))))

    @read
    def search(
        self, db: Db, limit: int = 50, removed: bool = False, find: str = "", after: str = ""
    ) -> tuple[RunSummary, ...]:
        """Return up to `limit` runs after the run `after`, most recently changed first; with `removed`, deleted ones.

        `find` selects runs with this text in name or label, ignoring case.
        """
        values = {"removed": int(removed), "find": find.casefold(), "limit": limit, "after": after}
        return tuple(_summary(row) for row in db.query(_QUERIES["search"].format(begun=BEGUN), values))

    @read
    def lines(self, db: Db, limit: int) -> tuple[RunSummary, ...]:
        """Return the rows of the list of runs, most recently changed first, without deleted runs.

        The latest run of a batch represents all its runs. Only the latest `LOOKED_AT` runs are read.
        """
        return tuple(_summary(row) for row in db.query(_QUERIES["lines"], {"looked_at": LOOKED_AT, "limit": limit}))

    @read
    def count(self, db: Db, find: str = "") -> int:
        """Return the number of runs with `find` in their name or label, without deleted runs."""
        return int(first_value(db, _QUERIES["count"], {"find": find.casefold()}))


def insert_run(db: Db, source: StoredImage, record: RunRecord) -> str:
    """Add a run with task, settings and notes of a record, without its values, mask and prompts. Return its id.

    The run keeps the record's id (16 hexadecimal digits) if it is valid and free. Raises UserError if the name is empty
    or too long.
    """
    keep_image(db, source)
    is_free = re.fullmatch(r"[0-9a-f]{16}", record.id) is not None and not run_exists(db, record.id)
    run_id = record.id if is_free else secrets.token_hex(8)
    row = {"id": run_id, "source": source.sha, **cells(record, "profile sample"), "notes": pack(list(record.notes))}
    insert_rows(db, "runs", [{**row, "created": now()}])
    state = {"name": _name(record.name), "task": pack_value(record.task), "settings": pack(dict(record.settings))}
    append_state(db, run_id, {**state, "recipe": record.recipe})
    return run_id


def _import_run(
    db: Db,
    record: RunRecord,
    source: StoredImage,
    mask: StoredImage | None,
    cases: Sequence[SavedCase],
    reviews: Sequence[ReviewDecision | None],
) -> str:
    run_id = insert_run(db, source, record)
    if record.prompts:
        change_state(db, run_id, prompts=pack(dict(record.prompts)))
    if mask is not None:
        change_state(db, run_id, **mask_columns(db, mask, record.mask_classes))
    for stage, value in record.values.items():
        insert_value(db, run_id, stage, value)
    insert_test_cases(db, run_id, None, cases, reviews)
    begin_steps(db, run_id)
    return run_id


def mask_columns(db: Db, mask: StoredImage | None, classes: Mapping[int, str]) -> dict[str, Any]:
    """Return the columns for a mask whose file is on the disk, or for no mask."""
    if mask is None:
        return {"mask": None, "mask_classes": "{}"}
    keep_image(db, mask)
    return {"mask": mask.sha, "mask_classes": pack({str(number): name for number, name in sorted(classes.items())})}


def _name(name: str) -> str:
    empty = "The run has no name; give it one."
    return checked_text(name, "The name of the run", LONGEST_NAME, "title", if_empty=empty)


def _summary(row: Row) -> RunSummary:
    present = {*row["stages"].split(), *(("generation",) if row["test_cases"] else ())}
    stages = tuple(stage for stage in (*stage_kinds(), GENERATION) if stage in present)
    batch = BatchOfRuns(row["batch"], row["batch_name"], row["batch_runs"]) if row.get("batch") is not None else None
    return record_of(RunSummary, row, source_sha=row["source"], stages=stages, batch=batch)


def begin_from(db: Db, branch: Branch) -> str:
    new_id, state = secrets.token_hex(8), latest_state(db, branch.run)
    row = next(db.query("SELECT profile, source, sample, notes FROM runs WHERE id = ?", [branch.run]))
    db.table("runs").insert({"id": new_id, **row, "created": now()})
    name, settings = _name_with(db, state["name"], branch.ending), pack(dict(branch.settings))
    append_state(db, new_id, {**state, "name": name, "settings": settings, "removed": 0})
    for stage, value in branch.values.items():
        insert_value(db, new_id, stage, value)
    begin_steps(db, new_id)
    return new_id


def _name_with(db: Db, name: str, ending: str) -> str:
    """Return `name` with an ending, such as "Street, copy"; "Street, copy 2" if a run has that name already."""
    taken = set(first_column(db, "SELECT DISTINCT name FROM run_states"))
    ending = f", {ending[: LONGEST_NAME // 2]}"
    root = re.sub(rf"{re.escape(ending)}( \d+)?$", "", name)[: LONGEST_NAME - len(ending) - 14]
    names = (f"{root}{ending}" + (f" {number}" if number > 1 else "") for number in itertools.count(1))
    return next(one for one in names if one not in taken)
