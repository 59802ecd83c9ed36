"""What a person can ask of batches, without a page: plan one, look at it, say yes to its captions, stop it, try again.

Working on one is `services.batches.engine`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Literal

from core.batches import PASSES, Batch, Counted, FailedGroup, Item, Pass, WorkState
from core.errors import UserError
from formats.in_place import DataSet
from formats.layouts import LAYOUTS
from pipeline.profiles.profile import load_profile
from pipeline.recipes import edits_in_words, recipe_of
from services.batches.io_workers import Order, data_set_of
from services.batches.item_selection import ItemSelection
from services.batches.plan_file import BatchPlan, CostPart, plan_from_text, require_layout, settings_of
from services.batches.planning import caption_now
from storage.workspace import Workspace

AT_ONCE = 8
"""Images that are drawn together, where the settings say nothing else."""
RECENT = 10
"""Minutes of which the speed is taken."""
LEFT_OUT = 8
"""Files that are no items of a data set, that are told."""
State = Literal["unplanned", "new", "running", "stopping", "approval", "paused", "stopped", "cancelled", "done"]
COUNTED = 200
"""Items between two looks at how far the planning is."""
TITLES: Mapping[Pass, str] = {"captions": "Captions", "language": "Edits and new captions", "images": "Images"}


@dataclass(frozen=True)
class PassStatus:
    """How far a pass is."""

    stage: Pass
    title: str
    counts: Mapping[WorkState, Counted]
    a_minute: float | None
    """How much was done in a minute lately; None where nothing was."""

    @property
    def total(self) -> int:
        """All that is planned of it."""
        return sum(one.number for one in self.counts.values())

    def number(self, state: WorkState) -> int:
        """How much is in a state."""
        return self.counts[state].number if state in self.counts else 0

    @property
    def left(self) -> int:
        """What is still to do."""
        return self.number("planned") + self.number("leased")

    @property
    def seconds_left(self) -> float | None:
        """As long as it goes on as it did lately; None where nobody can tell."""
        return None if not self.a_minute or not self.left else 60 * self.left / self.a_minute

    @property
    def seconds_each(self) -> float | None:
        """Seconds of one worker for one of them; None where none was done."""
        done = self.counts.get("done")
        return done.seconds / done.number if done is not None and done.number else None


@dataclass(frozen=True)
class BatchStatus:
    """All that is shown of a batch."""

    batch: Batch
    sources: int
    passes: tuple[PassStatus, ...]
    cost: float | None
    """Of the minutes in which something was done so far; None where the plan names no price."""
    currency: str

    @property
    def state(self) -> State:
        """What becomes of it, as the ledger knows it."""
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
    def words(self) -> str:
        """The same in words, with what it is at."""
        stage, failed = TITLES[self.batch.stage].lower(), sum(one.number("failed") for one in self.passes)
        return {
            "unplanned": "its planning was interrupted",
            "new": "planned, not begun",
            "running": f"at the {stage}",
            "stopping": f"about to stop at the {stage}",
            "approval": "waits for your yes to its captions",
            "paused": f"paused at the {stage}",
            "stopped": f"stopped at the {stage}",
            "cancelled": "cancelled",
            "done": f"done; {failed:,} failed" if failed else "done",
        }[self.state]


@dataclass(frozen=True)
class CaptionSample:
    """A caption that waits for a person's yes."""

    key: str
    run: str
    """Of its source: there it can be edited."""
    caption: str
    edits: str
    new_caption: str


class BatchService:
    """The batches of a workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace, self._ledger = workspace, workspace.batches

    def plan(self, plan: BatchPlan, on_count: Callable[[int], None] = lambda done: None) -> int:
        """Choose the items of a plan and write down what is to be done with them; returns the number of the batch.
        A plan that is there already stays as it is, and one that was interrupted is brought to its end. `on_count` is
        told how many items of the data set were looked at; what it raises ends the planning.

        Raises UserError for what the plan cannot ask for: a layout, a folder, a split that there is not.
        """
        require_layout(plan, LAYOUTS)
        settings, profile = settings_of(plan), load_profile(plan.make.profile)
        number = self._ledger.find(plan.digest)
        if number is not None and self._ledger.get(number).planned:
            return number
        data = data_set_of(plan)
        chosen = ItemSelection(_counted(data.items(), on_count), plan.choose)
        first = next(chosen, None)
        if first is None:
            raise UserError("The plan chooses no image of the data set: look at what it says under [choose].")
        if number is None:
            number = self._ledger.create(
                plan.name,
                plan.toml_text(),
                plan.digest,
                profile.name,
                plan.make.recipe,
                settings.model_dump(mode="json"),
                settings.generation.batch or AT_ONCE,
            )
        items = chain([first], chosen)
        self._ledger.add_sources(number, items)
        self._ledger.is_planned(number, (*chosen.report, *_left_out(data)))
        return number

    def order(self, number: int) -> Order:
        """What workers need to know of a batch. Raises UserError for one whose planning was interrupted."""
        batch = self._ledger.get(number)
        if not batch.planned:
            raise UserError(f"The planning of “{batch.name}” was interrupted: plan it again, then run it.")
        plan = plan_of(batch)
        return Order(
            plan=plan,
            profile=load_profile(plan.make.profile),
            settings=settings_of(plan),
            at_once=batch.at_once,
            images=self._workspace.images.folder,
            thumbnails=self._workspace.thumbnails.folder,
            process=self._workspace.images.process,
        )

    def status(self, number: int) -> BatchStatus:
        """Raises UserError for an unknown batch."""
        batch = self._ledger.get(number)
        counts = self._ledger.counts(number)
        passes = tuple(PassStatus(one, TITLES[one], counts[one], self._a_minute(number, one)) for one in PASSES)
        cost = _cost_of(batch)
        hours = self._ledger.busy_minutes(number) / 60
        spent = None if cost.price_an_hour is None else cost.price_an_hour * hours
        return BatchStatus(batch, self._ledger.count_sources(number), passes, spent, cost.currency)

    def all(self) -> tuple[BatchStatus, ...]:
        """Of all batches, the latest first."""
        return tuple(self.status(batch.id) for batch in self._ledger.all())

    def sample(self, number: int, most: int = 12) -> tuple[CaptionSample, ...]:
        """Some of the captions that would be drawn, drawn by lot: the same ones whenever it is asked, as people have
        edited them since.
        """
        batch = self._ledger.get(number)
        found = self._ledger.sample(number, most)
        recipe, held = recipe_of(batch.recipe), self._ledger.source_runs(list({run for _, run, _ in found}))
        shown = []
        for key, run, planned in found:
            now = caption_now(recipe, self._workspace.runs, run, held[run], planned)
            drawn = planned if now is None else now[1]
            if drawn is not None:
                before = recipe.source_caption({name: value.value for name, value in held[run].values.items()})
                shown.append(CaptionSample(key, run, before, edits_in_words(batch.recipe, drawn), drawn.text))
        return tuple(shown)

    def failures(self, number: int) -> tuple[FailedGroup, ...]:
        """What failed and what is not done, by reason."""
        self._ledger.get(number)
        return self._ledger.failures(number)

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
    """What of the data set is no item: some of it, and how much more there is."""
    rows = data.left_out
    yield from (f"{row.file}: {row.reason}" for row in rows[:LEFT_OUT])
    if len(rows) > LEFT_OUT:
        yield f"{len(rows) - LEFT_OUT:,} more files or rows of the data set were noticed in the same way."


def _cost_of(batch: Batch) -> CostPart:
    """What the plan says of its price; a profile that is not there any more keeps nobody from looking."""
    return CostPart.model_validate(tomllib.loads(batch.plan).get("cost", {}))


def plan_of(batch: Batch) -> BatchPlan:
    """The plan of a batch."""
    return plan_from_text(batch.plan, Path(f"of the batch {batch.id}"))
