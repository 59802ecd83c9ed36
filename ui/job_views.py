"""What a job of the worker looks like at one moment: plain values, for whoever shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.progress import Progress
from pipeline.types import StageName

JobState = Literal["waiting", "running", "done", "failed", "cancelled"]
PartState = Literal["waiting", "running", "done", "dropped"]


@dataclass(frozen=True)
class Part:
    """One of the things that a job makes, one after another."""

    id: int
    """Its place when the job was lined up, from 0."""
    name: str
    """In words."""
    state: PartState = "waiting"


@dataclass(frozen=True)
class JobView:
    """A job as it is at one moment."""

    id: int
    run_id: str
    stages: tuple[StageName, ...]
    """What it may change."""
    state: JobState
    stage: StageName | None = None
    """What it is at now, or was when it ended."""
    progress: Progress | None = None
    since: float = 0.0
    """`time.monotonic()` when the stage that it is at began."""
    stopping: bool = False
    """The person asked to stop, and it has not yet."""
    message: str = ""
    """Why it failed, in one sentence."""
    parts: tuple[Part, ...] = ()
    """In the order in which they are made; empty for work that is one piece."""
    seconds_each: float | None = None
    """What a part is likely to take."""
    preview: str = ""
    """The name of a picture of what is being made; "" when there is none."""

    @property
    def active(self) -> bool:
        """Whether it is not over."""
        return self.state in ("waiting", "running")

    @property
    def waiting(self) -> tuple[Part, ...]:
        """The parts that are not begun."""
        return tuple(part for part in self.parts if part.state == "waiting")

    @property
    def at_part(self) -> Part | None:
        """The part that is being made."""
        return next((part for part in self.parts if part.state == "running"), None)

    def seconds_left(self) -> float | None:
        """Until it is done, once it runs; None when that cannot be told."""
        if self.progress is not None:
            return self.progress.seconds_left
        return None if self.seconds_each is None else self.seconds_each * len(self.waiting)


def moved_up(parts: tuple[Part, ...], part_id: int) -> tuple[Part, ...]:
    """With a waiting part before the waiting part that it stood behind."""
    places = [place for place, part in enumerate(parts) if part.state == "waiting"]
    at = next((place for place in places if parts[place].id == part_id), None)
    if at is None or at == places[0]:
        return parts
    before, moved = places[places.index(at) - 1], list(parts)
    moved[before], moved[at] = moved[at], moved[before]
    return tuple(moved)
