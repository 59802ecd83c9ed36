"""What is told of a batch while it goes on: what it is at, how fast it is, what it takes, and what it costs.

Reads the ledger alone, so that a batch is told in the same way whichever process works on it. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from core.batches import Batch, FailedGroup, Pass
from core.errors import UserError
from core.image_filter import ImageFilter
from services.batches.estimate import Estimate, Measured, estimate, images_at_most
from services.batches.plan_file import settings_of
from services.batches.service import BatchService, BatchStatus, CaptionSample, PassStatus, State, plan_of
from storage.workspace import Workspace

ViewState = Literal[State, "waiting"]
Place = Literal["", "waiting", "running", "stopping"]
"""Where this process has a batch: nowhere, in its queue, at work, or at work and about to stop."""
LATEST = 12
"""Images that are shown of a batch."""
SAMPLED = 12
"""Captions that a person is asked to approve by."""
WEIGHED = 12
"""Files that are looked at to learn how large an image is."""


@dataclass(frozen=True)
class BatchView:
    """A batch as it is at one moment."""

    status: BatchStatus
    state: ViewState
    here: bool
    """Whether this process works on it, or is about to."""
    problem: str
    """Why it stopped, in a sentence; "" where nothing went wrong."""
    accepted: int
    """Images that people have accepted."""
    rejected: int
    valid: int
    """Of those accepted, how many the votes of studies find valid."""
    invalid: int

    @property
    def batch(self) -> Batch:
        """What the ledger has of it."""
        return self.status.batch

    @property
    def at_work(self) -> bool:
        """Whether its figures change by themselves."""
        return self.state in ("waiting", "running", "stopping")

    @property
    def current(self) -> PassStatus:
        """The pass that it is at."""
        return next(one for one in self.status.passes if one.stage == self.batch.stage)

    @property
    def images(self) -> PassStatus:
        """The pass that draws."""
        return self.status.passes[-1]

    @property
    def share_valid(self) -> float | None:
        """Of the images that people accepted, the share that studies find valid; None where no study says it."""
        judged = self.valid + self.invalid
        return self.valid / judged if judged else None

    @property
    def cost_of_valid(self) -> float | None:
        """What a valid test case has cost so far: all of the cost, shared among the images that people accepted, or
        among that share of them which studies find valid. None where nobody can tell yet.
        """
        valid = self.accepted * (1.0 if self.share_valid is None else self.share_valid)
        return None if self.status.cost is None or not valid else self.status.cost / valid

    def failed(self) -> int:
        """How much has failed, of all passes."""
        return sum(one.number("failed") for one in self.status.passes)


@dataclass(frozen=True)
class BatchDetails:
    """What else is shown of one batch."""

    view: BatchView
    hour: tuple[int, ...]
    """How much of the current pass was done in each of the last 60 minutes, the latest last."""
    failures: tuple[FailedGroup, ...]
    sample: tuple[CaptionSample, ...]
    """Captions that wait for a yes; empty at any other time."""
    latest: tuple[tuple[int, str, str], ...]
    """Test case, image and run of what was drawn last."""
    estimate: Estimate | None
    """Of what is left; None while it is at work, when its own speed tells more, and when it is over."""


class BatchWatch:
    """Looks at the batches of a workspace. All methods may be called from any thread. `workers` says how many processes
    work on a batch whose plan does not say it.
    """

    def __init__(self, workspace: Workspace, workers: Callable[[], int]) -> None:
        self._workspace, self._ledger, self._workers = workspace, workspace.batches, workers
        self._service = BatchService(workspace)

    def view(self, number: int, place: Place = "", problem: str = "") -> BatchView:
        """One batch; `place` and `problem` are what this process knows of it. Raises UserError for an unknown one."""
        status = self._service.status(number)
        reviewed, studied = self._ledger.reviewed(number), self._ledger.studied(number)
        return BatchView(
            status=status,
            state=_state(status, place),
            here=bool(place),
            problem=problem,
            accepted=reviewed.get("accepted", 0),
            rejected=reviewed.get("rejected", 0),
            valid=studied.get("valid", 0),
            invalid=studied.get("invalid", 0),
        )

    def details(self, view: BatchView) -> BatchDetails:
        """All that is shown of a batch."""
        number, batch = view.batch.id, view.batch
        return BatchDetails(
            view=view,
            hour=self._hour(number, batch.stage),
            failures=self._service.failures(number),
            sample=self._service.sample(number, SAMPLED) if view.state == "approval" else (),
            latest=self._ledger.latest_images(number, LATEST),
            estimate=None if view.at_work or view.state in ("done", "unplanned") else self._estimate(view),
        )

    def _estimate(self, view: BatchView) -> Estimate | None:
        with suppress(UserError):  # of its profile, which is told when somebody begins it
            return self.estimate(view)
        return None

    def estimate(self, view: BatchView) -> Estimate:
        """What is left to do of a batch, by what was measured with the same models and settings. Raises UserError where
        its profile is not there any more.
        """
        plan, status, measured = plan_of(view.batch), view.status, self.measured(view.batch)
        captions, language, images = status.passes
        left: int | None
        if images.total:
            sources, left = 0, images.left
        else:
            left = images_at_most(plan, settings_of(plan), language.total or status.sources)
            if language.total:
                sources, measured = language.left, replace(measured, seconds_a_caption=0.0)
            else:
                sources = captions.left if captions.total else status.sources
        workers = plan.run.workers or self._workers()
        return estimate(sources, left, measured, workers, plan.cost.price_an_hour, plan.cost.currency)

    def measured(self, batch: Batch) -> Measured:
        """What was measured of batches in this workspace with the profile, recipe and settings of this one."""
        alike = [one.id for one in self._ledger.all() if _made_alike(one, batch)]
        counts = [self._ledger.counts(number) for number in alike]

        def seconds(stage: Pass) -> float | None:
            done = [held[stage]["done"] for held in counts if "done" in held[stage]]
            number = sum(one.number for one in done)
            return sum(one.seconds for one in done) / number if number else None

        return Measured(
            seconds("captions"), seconds("language"), seconds("images"), bytes_an_image=self._bytes_an_image(alike)
        )

    def _bytes_an_image(self, batches: Sequence[int]) -> float | None:
        """Of the file with its thumbnail, by a few of them; the record is small beside."""
        shas = [sha for number in batches for _, sha, _ in self._ledger.latest_images(number, WEIGHED)][:WEIGHED]
        sizes = []
        for sha in shas:
            with suppress(UserError, OSError):  # a file that somebody took away is told where it is shown
                thumbnail = self._workspace.thumbnails.ready(sha) or b""
                sizes.append(self._workspace.images.path(sha).stat().st_size + len(thumbnail))
        return sum(sizes) / len(sizes) if sizes else None

    def _hour(self, number: int, stage: Pass) -> tuple[int, ...]:
        now = datetime.now(UTC)
        known = dict(self._ledger.minutes(number, stage, 60))
        minutes = [(now - timedelta(minutes=ago)).isoformat()[:16] for ago in range(59, -1, -1)]
        return tuple(known.get(minute, 0) for minute in minutes)


def _state(status: BatchStatus, place: Place) -> ViewState:
    """What this process is about to do with it stands in no ledger yet; that another one wants it to stop does."""
    return status.state if place == "running" and status.state == "stopping" else place or status.state


def _made_alike(one: Batch, other: Batch) -> bool:
    return (one.profile, one.recipe, one.settings) == (other.profile, other.recipe, other.settings)


def require_known(workspace: Workspace, number: int) -> Batch:
    """Raises UserError for an unknown batch, in words for a page."""
    try:
        return workspace.batches.get(number)
    except UserError as error:
        raise UserError(f"There is no batch {number}: the page Batches lists those that there are.") from error


def facts_of(view: BatchView) -> Mapping[str, Any]:
    """How far a batch is, as plain data."""
    batch, status = view.batch, view.status
    return {
        "batch": batch.id,
        "name": batch.name,
        "filter": ImageFilter(facets={"batch": (batch.facet,)}).address,
        "state": view.state,
        "problem": view.problem,
        "created": batch.created.isoformat(),
        "approved": batch.approved is not None,
        "sources": status.sources,
        "passes": [
            {
                "pass": one.stage,
                "planned": one.total,
                "done": one.number("done"),
                "failed": one.number("failed"),
                "skipped": one.number("skipped"),
                "left": one.left,
                "a_minute": one.a_minute,
                "seconds_left": one.seconds_left if view.state == "running" else None,
            }
            for one in status.passes
        ],
        "accepted": view.accepted,
        "rejected": view.rejected,
        "cost": status.cost,
        "share_valid": view.share_valid,
        "cost_of_valid": view.cost_of_valid,
        "currency": status.currency,
    }


def details_facts(details: BatchDetails) -> Mapping[str, Any]:
    """The same with all that is shown of one batch."""
    found = details.estimate
    return {
        **facts_of(details.view),
        "notes": list(details.view.batch.notes),
        "failures": [
            {
                "pass": group.stage,
                "state": group.state,
                "reason": group.reason,
                "number": group.number,
                "examples": list(group.examples),
            }
            for group in details.failures
        ],
        "captions": [
            {"source": one.key, "caption": one.caption, "edits": one.edits, "new_caption": one.new_caption}
            for one in details.sample
        ],
        "latest": [{"case": case, "run": run} for case, _, run in details.latest],
        "estimate": list(found.words()) if found is not None else [],
    }
