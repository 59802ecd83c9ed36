"""New runs that start from existing ones, and the latest run of each source image."""

from __future__ import annotations

import itertools
import re
import secrets
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database as Db

from core.data_files import DataTable
from core.types import EditType, StageName, StageValue
from storage.engine.queries import first_column
from storage.engine.rows import now, pack
from storage.runs.rows import append_state, begin_steps, insert_value, latest_state

LONGEST_NAME = 200
_QUERIES = DataTable(__file__, str)


@dataclass(frozen=True)
class Branch:
    """A new run that starts from an existing run."""

    run: str
    ending: str
    """Suffix for the name of the new run."""
    settings: Mapping[str, Any]
    values: Mapping[StageName, StageValue[Any]]


@dataclass(frozen=True)
class LatestRun:
    """The latest run of a source image. Runs limited to some edit types count only if a source has no other runs."""

    run: str
    source_sha: str
    waiting: int
    """Number of the source's runs that are limited to the requested edit types and have no image yet."""


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
    """Return a name such as "Street, copy", or "Street, copy 2" if a run has that name already."""
    taken = set(first_column(db, "SELECT DISTINCT name FROM run_states"))
    ending = f", {ending[: LONGEST_NAME // 2]}"
    root = re.sub(rf"{re.escape(ending)}( \d+)?$", "", name)[: LONGEST_NAME - len(ending) - 14]
    names = (f"{root}{ending}" + (f" {number}" if number > 1 else "") for number in itertools.count(1))
    return next(one for one in names if one not in taken)


def latest_of_sources(
    db: Db, recipes: Collection[str], label: str = "", keywords: Collection[EditType] = (), begun_for: str = ""
) -> tuple[LatestRun, ...]:
    """Return the latest run of each source image, most recently changed first.

    Runs count if they have one of these recipes, the class `label` (as label or protected class; "" for any), and
    keywords of all these edit types. A run made for particular edit types is returned only if a source has no other
    run. `waiting` counts the runs that were made for the edit types `begun_for` and have no image yet.
    """
    values = {"recipes": pack(list(recipes)), "label": label, "keywords": pack(list(keywords))}
    latest: dict[str, str] = {}
    waiting: Counter[str] = Counter()
    for run, source, waits_here in db.execute(_QUERIES["latest_of_sources"], {**values, "begun_for": begun_for}):
        latest.setdefault(source, run)
        waiting[source] += waits_here
    return tuple(LatestRun(run, source, waiting[source]) for source, run in latest.items())
