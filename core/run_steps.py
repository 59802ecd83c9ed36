"""The steps of a run that can be undone and redone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.types import StageName

Kind = Literal["state", "value", "review"]
Path = tuple[str, ...]
"""Path to one value in the state of a run, such as ("task", "label") or ("settings", "generation", "steps")."""


@dataclass(frozen=True)
class UndoStep:
    """One change of a run, by a person or by a piece of work."""

    kind: Kind
    rows: tuple[int, ...]
    """Ids of the step's rows, in the table of the step's kind. A piece of work with many results has several rows."""
    stages: tuple[StageName, ...] = ()
    by_person: bool = True
    batch: str = ""
    """Id of the piece of work or decision that the step belongs to; "" for a single step."""
    changed: tuple[Path, ...] = ()
    """Paths in the run's state that the step changed. Set only for `next_undo` and `next_redo` of `RunSteps`."""

    @property
    def key(self) -> str:
        """Name of the step in the undo log."""
        return f"{self.kind} {self.rows[0]}"


@dataclass(frozen=True)
class RunSteps:
    """Undo history of a run."""

    done: tuple[UndoStep, ...] = ()
    """Steps that are in effect, oldest first."""
    undone: tuple[UndoStep, ...] = ()
    """Undone steps that can be redone, latest undone first. Any new step clears them."""

    @property
    def next_undo(self) -> UndoStep | None:
        return self.done[-1] if self.done else None

    @property
    def next_redo(self) -> UndoStep | None:
        return self.undone[-1] if self.undone else None

    def edit_of(self, stage: StageName) -> UndoStep | None:
        """Return the last step that changed a stage, if a person made it and it changed no other stage; else None."""
        last = next((step for step in reversed(self.done) if stage in step.stages), None)
        return last if last is not None and last.by_person and last.stages == (stage,) else None
