"""Pools of workers, in this process or in processes of this machine. `services.batches.cluster` has a pool on Ray."""

from __future__ import annotations

import logging
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

from core.batches import Done, Lot
from core.errors import UserError
from services.batches.io_workers import Order, cores_here, has_gpu
from services.batches.work import Worker
from services.batches.worker_process import Answer, MakeRunner, Ready, start_worker, with_helpers

LOTS_AHEAD = 2
"""Maximum number of lots (groups of work) that a worker has at a time: one in progress, and one that waits."""
ENDS_WITHIN = 5.0
"""Maximum seconds for an idle worker to end by itself. After that it is terminated."""
LOOK_EVERY = 0.5
"""Seconds between two checks for a stop request."""
MOST_DEATHS_AT_START = 3
"""Worker deaths in a row, per worker of a pool, at which the pool stops: a pool of 2 workers stops at 6 deaths."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Returned:
    """A group of work (`Lot`) that came back from a worker."""

    lot: Lot
    done: tuple[Done, ...] = ()
    died: bool = False
    """True if the worker died while it had the lot, so the results are unknown."""


@cache
def workers_here(spare: int = 0) -> int:
    """Return the number of workers that suits this machine: 1 with a GPU, else the number of CPU cores less `spare`."""
    return 1 if has_gpu() else max(1, cores_here() - spare)


def work_off(pool: Pool, next_lot: Callable[[], Lot | None], is_stopped: Callable[[], bool]) -> Generator[Returned]:
    """Send lots (groups of work) to a pool, and yield the lots that come back. `next_lot` returns None if none exists
    now. End, and close the pool, when all lots are back or `is_stopped` returns True.
    """
    try:
        lot = next_lot()
        while (lot is not None or pool.out()) and not is_stopped():
            while lot is not None and pool.room() > 0:
                pool.send(lot)
                lot = next_lot()
            for returned in pool.wait(LOOK_EVERY):
                yield returned
                lot = lot or next_lot()
    finally:
        pool.close()


class HerePool:
    """A pool with one worker: the thread that calls `wait`."""

    def __init__(self, order: Order, make: MakeRunner = Worker) -> None:
        self._runner = make(order)
        self._lots: deque[Lot] = deque()

    def room(self) -> int:
        return 1 - len(self._lots)

    def send(self, lot: Lot) -> None:
        self._lots.append(lot)

    def out(self) -> int:
        return len(self._lots)

    def wait(self, seconds: float) -> Sequence[Returned]:
        if not self._lots:
            return ()
        lot = self._lots.popleft()
        return (Returned(lot, self._runner.do(lot)),)

    def close(self) -> None:
        self._lots.clear()


@dataclass(frozen=True)
class Died:
    """Message that a worker ended without being asked to."""

    how: str
    """Sentence on how the worker ended, for the person who runs the batch."""


@dataclass(eq=False)
class Slot:
    """A worker of a pool, with the groups of work (`Lot`) that were sent to it."""

    process: int = 0
    """Process id of the worker on its own machine; 0 until it is ready."""
    lots: dict[int, Lot] = field(default_factory=dict)
    """Each `Lot` that the worker has, by number, in sending order."""
    sent: int = 0

    @property
    def is_busy(self) -> bool:
        """Return True until the worker is ready, and whenever it has a `Lot` to do."""
        return bool(self.lots) or not self.process


S = TypeVar("S", bound=Slot)


class WorkerPool(ABC, Generic[S]):
    """Sends lots (groups of work) to several workers, and replaces workers that die. All lots of a dead worker come
    back with `died` set.

    A lot with a single piece of work may have killed a worker before, and may kill another. So it is sent only to a
    worker that has no other lot.
    """

    def __init__(self, order: Order, workers: int, make: MakeRunner) -> None:
        """Start the workers. Each worker calls `make` to get the object that does its work."""
        self._order, self._make = order, make
        self._deaths = 0
        self._single_lots: deque[Lot] = deque()
        """Lots with only one piece of work, which wait for an idle worker."""
        self._slots = [self._started() for _ in range(workers)]

    def room(self) -> int:
        """Return the number of further `Lot` objects that may be sent now."""
        return 0 if self._single_lots else sum(LOTS_AHEAD - len(slot.lots) for slot in self._open_slots())

    def send(self, lot: Lot) -> None:
        if _is_single(lot):
            self._single_lots.append(lot)
            self._send_single_lots()
        else:
            self._give(min(self._open_slots(), key=lambda slot: len(slot.lots)), lot)

    def out(self) -> int:
        """Return the number of `Lot` objects that were sent and have not come back."""
        return sum(len(slot.lots) for slot in self._slots) + len(self._single_lots)

    def wait(self, seconds: float) -> Sequence[Returned]:
        """Return each `Lot` that came back; wait up to `seconds` for one. Raises UserError if no worker can work."""
        returned: list[Returned] = []
        for slot, answer in self._answers([slot for slot in self._slots if slot.is_busy], seconds):
            if slot not in self._slots:  # replaced because of an earlier answer
                continue
            if isinstance(answer, UserError):
                raise answer
            if isinstance(answer, Died):
                returned += self._replaced(slot, answer)
            elif isinstance(answer, Ready):
                slot.process = answer.process
            else:
                self._deaths = 0
                returned.append(Returned(slot.lots.pop(answer.number), answer.done))
        self._send_single_lots()
        return returned

    def close(self) -> None:
        """End the workers. Unfinished `Lot` objects do not come back."""
        slots, self._slots = self._slots, []
        self._end(slots)

    @property
    def processes(self) -> tuple[int, ...]:
        """Return the process ids of the ready workers. Each id is valid on the worker's machine."""
        return tuple(slot.process for slot in self._slots if slot.process)

    @abstractmethod
    def _started(self) -> S:
        """Start a worker and return its slot in the pool."""

    @abstractmethod
    def _post(self, slot: S, number: int, lot: Lot) -> None:
        """Send a `Lot` to a worker. `number` identifies it in the worker's reply."""

    @abstractmethod
    def _answers(self, busy: Sequence[S], seconds: float) -> Iterable[tuple[S, Answer | Died]]:
        """Yield messages of the `busy` workers, each with its worker. Wait up to `seconds` for the first."""

    @abstractmethod
    def _end(self, slots: Sequence[S]) -> None:
        """End the workers in `slots`. Some may be dead already."""

    def _open_slots(self) -> Iterator[S]:
        for slot in self._slots:
            if slot.process and not any(map(_is_single, slot.lots.values())):
                yield slot

    def _send_single_lots(self) -> None:
        for slot in self._slots:
            if self._single_lots and not slot.is_busy:
                self._give(slot, self._single_lots.popleft())

    def _give(self, slot: S, lot: Lot) -> None:
        number, slot.sent = slot.sent, slot.sent + 1
        slot.lots[number] = lot
        self._post(slot, number, lot)

    def _replaced(self, slot: S, died: Died) -> list[Returned]:
        """Replace a dead worker, and return its unfinished work. Raises UserError after too many deaths in a row."""
        self._end([slot])
        self._deaths += 1
        if self._deaths >= MOST_DEATHS_AT_START * len(self._slots):
            raise UserError(
                f"{self._deaths} workers in a row died before finishing any work. Memory may be too small: try "
                f"fewer workers. {died.how}"
            )
        self._slots[self._slots.index(slot)] = self._started()
        return [Returned(lot, died=True) for lot in slot.lots.values()]


def _is_single(lot: Lot) -> bool:
    return len(lot.pieces) == 1


Pool = HerePool | WorkerPool[Any]
"""A pool of workers. Lots may come back in any order."""


@dataclass(eq=False, kw_only=True)
class ProcessSlot(Slot):
    """A worker process of this machine."""

    worker: SpawnProcess
    connection: Connection


class ProcessPool(WorkerPool[ProcessSlot]):
    """Worker processes of this machine, each with its own models. Their number does not change the results."""

    def __init__(self, order: Order, workers: int, make: MakeRunner = Worker) -> None:
        super().__init__(with_helpers(order, workers), workers, make)

    def _started(self) -> ProcessSlot:
        worker, connection = start_worker(self._order, self._make)
        return ProcessSlot(worker=worker, connection=connection)

    def _post(self, slot: ProcessSlot, number: int, lot: Lot) -> None:
        with suppress(OSError):  # the worker has just died: this lot comes back with its other lots
            slot.connection.send((number, lot))

    def _answers(self, busy: Sequence[ProcessSlot], seconds: float) -> Iterator[tuple[ProcessSlot, Answer | Died]]:
        ready = wait([slot.connection for slot in busy], seconds)
        for slot in busy:
            if slot.connection in ready:
                try:
                    yield slot, slot.connection.recv()
                except (EOFError, OSError):
                    yield slot, _died(slot.worker)

    def _end(self, slots: Sequence[ProcessSlot]) -> None:
        for slot in slots:
            if slot.lots:
                slot.worker.terminate()
            slot.connection.close()  # an idle worker then ends by itself, and cleans up
        for slot in slots:
            slot.worker.join(ENDS_WITHIN)
            slot.worker.terminate()
            slot.worker.join()


def _died(worker: SpawnProcess) -> Died:
    worker.join()
    code = worker.exitcode or 0
    how = f"by the signal {signal.Signals(-code).name}" if code < 0 else f"with the code {code}"
    return Died(f"The last worker ended {how}; the terminal says more.")
