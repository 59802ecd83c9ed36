"""Workers for tests of batches, in a module that worker processes can import."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from core.batches import PASSES, Lot, Pass
from core.errors import CannotLoad
from services.batches.io_workers import Order
from services.batches.pools import HerePool, Pool
from services.batches.work import Worker
from tests.support.scripted import NoiseBatches, ScriptedBatches, ScriptedModels, answer
from tests.support.workspaces import workspace_in


def models(at_once: int = 2) -> Any:
    """Return stand-ins for all models, which take several images at once."""
    made = ScriptedModels(ScriptedBatches(answer))
    made.generator = NoiseBatches(at_once)
    return made


def here(order: Order) -> HerePool:
    """Return a pool that runs lots in this process with the stand-ins."""
    return HerePool(order, scripted)


def only_for(stage: Pass, pool: Callable[..., Pool]) -> Callable[..., Pool]:
    """Return a maker of pools: `pool` for this pass of a batch, and a pool in this process for the others."""
    stages = iter(PASSES)

    def made(order: Order) -> Pool:
        return (pool if next(stages) == stage else here)(order)

    return made


def scripted(order: Order) -> Worker:
    """Return a worker with the stand-ins, which loads no models."""
    return Worker(order, models())


class Poisoned:
    """Worker process that runs lots, and dies of one source."""

    def __init__(self, order: Order) -> None:
        self._worker = scripted(order)

    def do(self, lot: Lot) -> Any:
        if any(piece.item.key.endswith("002.png") for piece in lot.pieces):
            os.kill(os.getpid(), signal.SIGKILL)
        return self._worker.do(lot)


class Deadly:
    """Worker process that dies of any lot."""

    def __init__(self, order: Order) -> None:
        pass

    def do(self, lot: Lot) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def not_there(order: Order) -> Worker:
    raise CannotLoad("The weights of the captioner are not there: fetch them.")


def leftovers(folder: Path) -> list[Path]:
    """Open a workspace, which removes the leftovers of killed processes. Return the hidden files that remain in its
    folder of images.
    """
    with workspace_in(folder) as workspace:
        return list(workspace.images.folder.glob(".*"))
