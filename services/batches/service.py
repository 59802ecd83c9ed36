"""Plans batches, and returns their progress, cost and captions as people see them.

Progress is read from the ledger alone, so that a batch looks the same whichever process works on it.
`services.batches.engine` does the work.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from core.batches import PASSES, Batch, BatchSource, Counted, FailedGroup, Item, Pass, WorkState
from core.csv_tables import facts
from core.errors import UserError
from core.image_filter import ImageFilter
from formats.in_place import DataSet
from pipeline.profiles.profile import load_profile, notice_for
from pipeline.recipes import edits_in_words, recipe_of
from services.batches.estimate import Estimate, images_at_most
from services.batches.io_workers import Order, data_set_of, read_item
from services.batches.item_selection import ItemSelection
from services.batches.plan_file import BatchPlan, CostPart, plan_from_text, settings_of
from services.batches.planning import caption_now
from services.batches.pools import workers_here
from storage.workspace import Workspace

AT_ONCE = 8
"""Number of images that are drawn together if the settings give none."""
RECENT = 10
"""Number of minutes up to now over which the speed of a batch is measured."""
LEFT_OUT = 8
"""Maximum number of left-out files or rows of a data set that are listed in the notes about a batch."""
COUNTED = 200
"""Number of items between two progress reports while a batch is planned."""
LATEST = 12
"""Maximum number of latest images shown of a batch."""
WEIGHED = 12
"""Maximum number of image files measured for the average size of an image."""
TITLES: Mapping[Pass, str] = {"captions": "Captions", "language": "Edits and new captions", "images": "Images"}
State = Literal[
    "unplanned", "new", "waiting", "running", "stopping", "approval", "paused", "stopped", "cancelled", "done"
]
Place = Literal["", "waiting", "running", "stopping"]
"""State of a batch in this process: absent, queued, running, or about to stop."""


@dataclass(frozen=True)
class PassStatus:
    """Progress of one pass of a batch: captions, language or images."""

    stage: Pass
    title: str
    counts: Mapping[WorkState, Counted]
    a_minute: float | None
    """Pieces of work finished per minute in the last `RECENT` minutes; None if none was finished."""
    waiting: int = 0
    """Number of skipped pieces of work that a search for weaknesses may still choose."""

    @property
    def left_out(self) -> int:
        """Return the number of skipped pieces of work that no search for weaknesses may choose any more."""
        return self.number("skipped") - self.waiting

    @property
    def total(self) -> int:
        return sum(one.number for one in self.counts.values())

    def number(self, state: WorkState) -> int:
        return self.counts[state].number if state in self.counts else 0

    @property
    def left(self) -> int:
        return self.number("planned") + self.number("leased")

    @property
    def seconds_left(self) -> float | None:
        """Return the seconds left at the recent speed; None if the speed is unknown or no work is left."""
        return None if not self.a_minute or not self.left else 60 * self.left / self.a_minute

    @property
    def seconds_each(self) -> float | None:
        """Return the mean seconds that one worker needs for a piece of work, or None if none was done."""
        done = self.counts.get("done")
        return done.seconds / done.number if done is not None and done.number else None


@dataclass(frozen=True)
class BatchStatus:
    """The state of a batch at one moment."""

    batch: Batch
    sources: int
    passes: tuple[PassStatus, ...]
    cost: float | None
    """Cost so far: the price of all clock minutes in which some work was finished. None if the plan has no price."""
    currency: str
    accepted: int
    """Number of images that people accepted."""
    rejected: int
    valid: int
    """Number of accepted images that studies find valid, by their votes; an image counts once for each such study."""
    invalid: int
    place: Place = ""
    """State of the batch in this process; "" if it neither waits nor runs here."""
    problem: str = ""
    """Sentence on why the batch stopped; "" if nothing went wrong."""

    @property
    def state(self) -> State:
        """Return the state of the batch in this process, or the recorded state if the batch neither waits nor runs
        here. If another process asked the running batch to stop, return "stopping".
        """
        recorded = self._recorded_state()
        return recorded if self.place == "running" and recorded == "stopping" else self.place or recorded

    def _recorded_state(self) -> State:
        batch = self.batch
        if batch.running:
            return "running" if batch.wish == "go" else "stopping"
        if not batch.planned:
            return "unplanned"
        if batch.finished:
            return "done"
        if batch.wish == "cancel":
            return "cancelled"
        if batch.stage == "images" and batch.approved is None:
            return "approval"
        if not any(one.total for one in self.passes):
            return "new"
        return "paused" if batch.wish == "pause" else "stopped"

    @property
    def at_work(self) -> bool:
        """Return True if the batch waits, runs or is about to stop, so its figures may change at any time."""
        return self.state in ("waiting", "running", "stopping")

    @property
    def current(self) -> PassStatus:
        return next(one for one in self.passes if one.stage == self.batch.stage)

    @property
    def images(self) -> PassStatus:
        return self.passes[-1]

    @property
    def failed(self) -> int:
        """Return the number of failed pieces of work in all passes."""
        return sum(one.number("failed") for one in self.passes)

    @property
    def share_valid(self) -> float | None:
        """Return the valid share, 0 to 1, of the accepted images that studies judged; None if no image was judged."""
        judged = self.valid + self.invalid
        return self.valid / judged if judged else None

    @property
    def cost_of_valid(self) -> float | None:
        """Return the cost so far per valid test case. The number of valid test cases is `accepted` times
        `share_valid`, or `accepted` if no image was judged. None if the cost is unknown or this number is 0.
        """
        valid = self.accepted * (1.0 if self.share_valid is None else self.share_valid)
        return None if self.cost is None or not valid else self.cost / valid


@dataclass(frozen=True)
class CaptionSample:
    """A caption that waits for approval."""

    key: str
    run: str
    """Id of the source's run, in which the caption can be edited."""
    caption: str
    edits: str
    new_caption: str
    source_sha: str


IN_DATA_SET, IN_WORKSPACE = 24, 100
"""Maximum numbers of source images to check: in a data set, and in the workspace. The workspace is quicker to read."""


@dataclass(frozen=True)
class SampleLook:
    """Result of checking some source images of a batch."""

    looked_at: int
    unknown: frozenset[str] = frozenset()
    """Keys of checked images that are of a kind for which the profile's models were not made."""
    problems: Mapping[str, int] = field(default_factory=dict)
    """Reasons why images cannot be used, each with the number of checked images. The most frequent reason is first."""


def look_at(workspace: Workspace, batch: Batch, plan: BatchPlan) -> SampleLook:
    """Check if some source images of a batch can be used. Raises UserError if its profile or data set is gone."""
    profile, some = load_profile(batch.profile), _some_sources(workspace, batch.id)
    unknown, problems = set[str](), Counter[str]()
    in_workspace = {source.run: source for source in some if source.run}
    runs = workspace.batches.source_runs(list(in_workspace))
    looked_at = list(in_workspace.values()) or some[:: max(1, -(-len(some) // IN_DATA_SET))]
    data = None if runs else data_set_of(plan)
    for source in looked_at if data is not None or profile.notice else ():
        try:
            if data is not None:
                image = read_item(data, plan, source.item)[0].image
            else:
                image = workspace.images.load(runs[source.run or ""].source_sha)
        except UserError as error:
            problems[str(error)] += 1
            continue
        if notice_for(profile, image):
            unknown.add(source.item.key)
    return SampleLook(len(looked_at), frozenset(unknown), dict(problems.most_common()))


def _some_sources(workspace: Workspace, batch: int) -> Sequence[BatchSource]:
    """Return all sources of a batch, or `IN_WORKSPACE` of them, evenly spaced."""
    total = workspace.batches.count_sources(batch)
    if total <= IN_WORKSPACE:
        return workspace.batches.sources(batch, limit=IN_WORKSPACE)
    first = workspace.batches.sources(batch, limit=1)[0].id
    return [
        source
        for place in range(IN_WORKSPACE)
        for source in workspace.batches.sources(batch, after=first - 1 + place * total // IN_WORKSPACE, limit=1)
    ]


@dataclass(frozen=True)
class BatchDetails:
    """The facts that pages and scripts show of one batch."""

    status: BatchStatus
    hour: tuple[int, ...]
    """Number of pieces of work finished in each of the last 60 minutes in the current pass, the latest last."""
    failures: tuple[FailedGroup, ...]
    sample: tuple[CaptionSample, ...]
    """Captions that wait for approval; empty at any other time."""
    latest: tuple[tuple[int, str, str], ...]
    """Test case id, SHA-256 and run id of each of the latest images."""
    estimate: Estimate | None
    """Estimate of the work left. None if the batch waits, runs, is done or unplanned, or if its profile is unusable."""
    look: SampleLook | None = None
    """Result of checking some source images before text or images are made; None at any other time."""


class BatchService:
    """The batches of a workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, workers: Callable[[], int] = workers_here) -> None:
        """Create the service. `workers` returns the number of worker processes for batches whose plan sets none."""
        self._workspace, self._ledger, self._workers = workspace, workspace.batches, workers
        self._looks: dict[tuple[int, State], SampleLook] = {}

    def plan(self, plan: BatchPlan, on_count: Callable[[int], None] = lambda done: None) -> int:
        """Choose the items of a plan, record them as sources of a batch, and return the batch's number. An existing
        batch of the plan stays as it is; if its planning was interrupted, it is completed. `on_count` gets the number
        of items seen. An exception that it raises ends the planning.

        Raises UserError for an unusable plan: an unknown layout, folder or split.
        """
        settings, profile = settings_of(plan), load_profile(plan.make.profile)
        number = self._ledger.find(plan.digest)
        self._looks.pop((number or 0, "new"), None)  # the data set may have been repaired since
        if number is not None and self._ledger.get(number).planned:
            return number
        data = data_set_of(plan)
        chosen = ItemSelection(_counted(data.items(), on_count), plan.choose)
        first = next(chosen, None)
        if first is None:
            raise UserError("The plan chooses no image of the data set: correct its section [choose].")
        if number is None:
            plain, at_once = settings.model_dump(mode="json"), settings.generation.batch or AT_ONCE
            number = self._ledger.create(
                plan.name, plan.toml_text(), plan.digest, profile.name, plan.make.recipe, plain, at_once
            )
        self._ledger.add_sources(number, chain([first], chosen))
        self._ledger.is_planned(number, (*chosen.report, *_left_out(data)))
        return number

    def order(self, number: int) -> Order:
        """Return the facts that a batch's workers need. Raises UserError if its planning was interrupted."""
        batch = self._ledger.get(number)
        if not batch.planned:
            raise UserError(f"The planning of “{batch.name}” was interrupted: plan it again, then run it.")
        return order_of(plan_of(batch), batch.at_once, self._workspace.folder, self._workspace.images.process)

    def passes(self, number: int) -> tuple[PassStatus, ...]:
        counts = self._ledger.counts(number)
        waiting = self._ledger.waiting(number) if "skipped" in counts["images"] else 0
        return tuple(
            PassStatus(one, TITLES[one], counts[one], self._a_minute(number, one), waiting if one == "images" else 0)
            for one in PASSES
        )

    def status(self, number: int, place: Place = "", problem: str = "") -> BatchStatus:
        """Return a `BatchStatus`. That class explains `place` and `problem`. Raises UserError for an unknown batch."""
        batch = self._ledger.get(number)
        # Only the price is read from the plan: a missing profile must not prevent this.
        price = CostPart.model_validate(tomllib.loads(batch.plan).get("cost", {}))
        hours = self._ledger.busy_minutes(number) / 60
        verdicts = self._ledger.verdicts(number)
        return BatchStatus(
            batch=batch,
            sources=self._ledger.count_sources(number),
            passes=self.passes(number),
            cost=None if price.price_an_hour is None else price.price_an_hour * hours,
            currency=price.currency,
            accepted=verdicts.get("accepted", 0),
            rejected=verdicts.get("rejected", 0),
            valid=verdicts.get("valid", 0),
            invalid=verdicts.get("invalid", 0),
            place=place,
            problem=problem,
        )

    def details(self, status: BatchStatus) -> BatchDetails:
        """Return all that pages and scripts show of a batch."""
        number = status.batch.id
        left = None
        if not status.at_work and status.state not in ("done", "unplanned"):
            with suppress(UserError):  # an unusable profile is reported when the batch is begun
                left = self.estimate(status)
        return BatchDetails(
            status=status,
            hour=self._hour(number, status.batch.stage),
            failures=self._ledger.failures(number),
            sample=self.sample(number) if status.state == "approval" else (),
            latest=self._ledger.latest_images(number, LATEST),
            estimate=left,
            look=self.look(status),
        )

    def look(self, status: BatchStatus) -> SampleLook | None:
        """Check some source images of a batch that is about to begin or to draw. Return None at any other time, or if
        its profile or data set is gone, which is reported when the batch is begun.
        """
        if status.state not in ("new", "approval"):
            return None
        key = (status.batch.id, status.state)
        if key not in self._looks:
            try:
                self._looks[key] = look_at(self._workspace, status.batch, plan_of(status.batch))
            except UserError:
                return None
        return self._looks[key]

    def estimate(self, status: BatchStatus) -> Estimate:
        """Estimate a batch's remaining work from similar batches. Raises UserError if its profile is missing."""
        plan, (seconds, size) = plan_of(status.batch), self._measured(status.batch)
        captions, language, images = status.passes
        left: int | None
        if images.total:
            sources, left = 0, images.left
        else:
            left = images_at_most(plan, settings_of(plan), language.total or status.sources)
            if language.total:
                sources, seconds["captions"] = language.left, 0.0
            else:
                sources = captions.left if captions.total else status.sources
        workers = plan.run.workers or self._workers()
        return Estimate(sources, left, seconds, size, workers, plan.cost.price_an_hour, plan.cost.currency)

    def sample(self, number: int, most: int = 12) -> tuple[CaptionSample, ...]:
        """Return up to `most` captions to make images from, with people's edits: a random but repeatable sample."""
        batch = self._ledger.get(number)
        planned_captions = self._ledger.sample(number, most)
        recipe, runs = recipe_of(batch.recipe), self._ledger.source_runs(list({run for _, run, _ in planned_captions}))
        shown = []
        for key, run, planned in planned_captions:
            current = caption_now(recipe, self._workspace.runs, run, runs[run], planned)
            drawn = planned if current is None else current[1]
            if drawn is not None:
                before = recipe.source_caption({name: value.value for name, value in runs[run].values.items()})
                edits = edits_in_words(batch.recipe, drawn)
                shown.append(CaptionSample(key, run, before, edits, drawn.text, runs[run].source_sha))
        return tuple(shown)

    def _measured(self, batch: Batch) -> tuple[dict[Pass, float], float | None]:
        """Average over all batches with the same profile, recipe and settings as `batch`. Return `Estimate.seconds` and
        `Estimate.bytes_an_image`.
        """
        made_with = attrgetter("profile", "recipe", "settings")
        alike = [one.id for one in self._ledger.all() if made_with(one) == made_with(batch)]
        counts, seconds = [self._ledger.counts(number) for number in alike], dict[Pass, float]()
        for stage in PASSES:
            done = [stages[stage]["done"] for stages in counts if "done" in stages[stage]]
            if number := sum(one.number for one in done):
                seconds[stage] = sum(one.seconds for one in done) / number
        return seconds, self._bytes_an_image(alike)

    def _bytes_an_image(self, batches: Sequence[int]) -> float | None:
        shas = [sha for number in batches for _, sha, _ in self._ledger.latest_images(number, WEIGHED)][:WEIGHED]
        sizes = []
        for sha in shas:
            with suppress(UserError, OSError):  # a missing file is reported where it is shown
                thumbnail = self._workspace.thumbnails.ready(sha) or b""
                sizes.append(self._workspace.images.path(sha).stat().st_size + len(thumbnail))
        return sum(sizes) / len(sizes) if sizes else None

    def _hour(self, number: int, stage: Pass) -> tuple[int, ...]:
        now = datetime.now(UTC)
        known = dict(self._ledger.minutes(number, stage, 60))
        minutes = [(now - timedelta(minutes=ago)).isoformat()[:16] for ago in range(59, -1, -1)]
        return tuple(known.get(minute, 0) for minute in minutes)

    def _a_minute(self, number: int, stage: Pass) -> float | None:
        minutes = self._ledger.minutes(number, stage, RECENT + 1)
        now = datetime.now(UTC)
        since = (now - timedelta(minutes=RECENT)).isoformat()[:16]
        recent = [(minute, done) for minute, done in minutes if minute >= since]
        if not recent:
            return None
        began = datetime.fromisoformat(f"{recent[-1][0]}:00+00:00")
        return sum(done for _, done in recent) / max((now - began).total_seconds() / 60, 1.0)


def _counted(items: Iterable[Item], on_count: Callable[[int], None]) -> Iterator[Item]:
    for number, item in enumerate(items):
        if number % COUNTED == 0:
            on_count(number)
        yield item


def _left_out(data: DataSet) -> Iterator[str]:
    rows = data.left_out
    yield from (f"{row.file}: {row.reason}" for row in rows[:LEFT_OUT])
    if len(rows) > LEFT_OUT:
        yield f"{len(rows) - LEFT_OUT:,} more files or rows of the data set were noticed in the same way."


def order_of(plan: BatchPlan, at_once: int, workspace: Path, process: int) -> Order:
    """Return the facts that workers need about a plan. `Order` explains `at_once`, `workspace` and `process`."""
    return Order(plan, load_profile(plan.make.profile), settings_of(plan), at_once, workspace, process)


def plan_of(batch: Batch) -> BatchPlan:
    return plan_from_text(batch.plan, Path(f"of the batch {batch.id}"))


def facts_of(status: BatchStatus) -> dict[str, Any]:
    """Return the progress of a batch as plain data."""
    batch = status.batch
    return {
        **facts(batch, "name created", batch=batch.id, approved=batch.approved is not None),
        **facts(status, "state problem sources accepted rejected cost share_valid cost_of_valid currency"),
        "filter": ImageFilter(facets={"batch": (batch.facet,)}).address,
        "passes": [
            {
                "pass": one.stage,
                "planned": one.total,
                **{state: one.number(state) for state in ("done", "failed")},
                "skipped": one.left_out,
                **facts(one, "waiting left a_minute"),
                "seconds_left": one.seconds_left if status.state == "running" else None,
            }
            for one in status.passes
        ],
    }


def details_facts(details: BatchDetails) -> dict[str, Any]:
    """Return all that is shown of one batch, as plain data."""
    estimate = details.estimate
    return {
        **facts_of(details.status),
        "notes": list(details.status.batch.notes),
        "failures": [
            facts(group, "state reason number examples") | {"pass": group.stage} for group in details.failures
        ],
        "captions": [facts(one, "caption edits new_caption", source=one.key) for one in details.sample],
        "latest": [{"case": case, "run": run} for case, _, run in details.latest],
        "estimate": list(estimate.words()) if estimate is not None else [],
    }
