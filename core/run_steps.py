"""The steps of a run that can be undone and redone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.types import StageName

Kind = Literal["state", "value", "review"]
Path = tuple[str, ...]
"""Of one thing in the state of a run, such as ("task", "label") or ("settings", "generation", "steps")."""


@dataclass(frozen=True)
class UndoStep:
    """One thing that was done to a run, by a person or by a piece of work."""

    kind: Kind
    rows: tuple[int, ...]
    """Of the table that holds it; several for what one piece of work gave, or one decision about many images."""
    stages: tuple[StageName, ...] = ()
    """Whose values it changed."""
    by_person: bool = True
    batch: str = ""
    """The piece of work that gave it, or the decision that it is of; "" for a step of its own."""
    changed: tuple[Path, ...] = ()
    """What it changed in the state of the run; told of the steps that come next only."""

    @property
    def key(self) -> str:
        """Its name in the log."""
        return f"{self.kind} {self.rows[0]}"


@dataclass(frozen=True)
class RunSteps:
    """What was done to a run."""

    done: tuple[UndoStep, ...] = ()
    """What counts, in the order in which it was done."""
    undone: tuple[UndoStep, ...] = ()
    """What was taken back and can be done again; the last one first. Whatever else is done ends that."""

    @property
    def next_undo(self) -> UndoStep | None:
        """What is taken back next."""
        return self.done[-1] if self.done else None

    @property
    def next_redo(self) -> UndoStep | None:
        """What is done again next."""
        return self.undone[-1] if self.undone else None

    def edit_of(self, stage: StageName) -> UndoStep | None:
        """A person's edit of a stage, where that was the last thing done to its value."""
        last = next((step for step in reversed(self.done) if stage in step.stages), None)
        return last if last is not None and last.by_person and last.stages == (stage,) else None
