"""The list of runs: those that a search finds, how far each is, and those that were deleted and can be put back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.types import RunSummary
from ui.job_views import JobView
from ui.studio import LISTED_RUNS, Studio

LISTED_REMOVED = 20


@dataclass(frozen=True)
class Listing:
    """What the list of runs shows."""

    runs: tuple[RunSummary, ...]
    """The latest that the search finds, the one that was worked on last first."""
    total: int
    """All runs that are not deleted."""
    found: int
    """Of them, how many the search finds; as many as `total` without one."""
    find: str = ""
    """What was searched for."""
    removed: tuple[RunSummary, ...] = ()
    """Those that were deleted, the latest first."""
    jobs: Mapping[str, JobView] = field(default_factory=dict)
    """What runs or waits, by its run."""


def listing(studio: Studio, find: str = "") -> Listing:
    """The list of runs whose name or label contains `find`, whatever its letters' case."""
    find = " ".join(find.split())
    total = studio.workspace.count_runs()
    return Listing(
        runs=studio.workspace.runs(LISTED_RUNS, find=find),
        total=total,
        found=studio.workspace.count_runs(find) if find else total,
        find=find,
        removed=studio.workspace.runs(LISTED_REMOVED, removed=True),
        jobs={job.run_id: job for job in reversed(studio.jobs.active())},
    )
