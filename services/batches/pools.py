"""Where lots are done: in this process, or in processes of this machine. `services.batches.cluster` does them on Ray.

Each worker has at most two lots, so that it need not wait for the next one.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from tqdm import tqdm

from core.batches import Done
from core.errors import UserError
from pipeline.profiles.profile import Profile
from pipeline.seams import Models
from services.batches.io_workers import end_with_parent, helpers_here
from services.batches.work import Lot, Order, Worker
from services.batches.worker_start import Recruit, recruited

AHEAD = 2
"""Lots that a worker has at a time."""
ENDS_WITHIN = 5.0
"""Seconds for a worker without a lot to end."""
MOST_DEATHS_AT_START = 3
"""Workers that may die one after another without a single lot done, before it is given up."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Returned:
    """A lot that comes back."""

    lot: Lot
    done: tuple[Done, ...] = ()
    died: bool = False
    """Its worker died while it had it: nothing is known of it."""
    untouched: bool = False
    """Its worker died before it began with it."""


class Does(Protocol):
    """A worker. Where its order gives it helpers, it can do two lots at a time."""

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """As `Worker.do`."""
        ...


class InTurn:
    """Gives lots to a worker in the order of their numbers, from 0: one at a time, or several where the worker has
    helpers. A lot of one piece is always alone with the worker, as it may be one that kills: so it shows.
    """

    def __init__(self, worker: Does, helpers: int | None) -> None:
        self._worker, self._several = worker, bool(helpers)
        self._changed = threading.Condition()
        self._next = self._inside = 0
        self._alone = False

    def do(self, number: int, lot: Lot) -> tuple[Done, ...]:
        """As `Worker.do`, when it is its turn. In a thread of its own for each lot."""
        with self.turn(number, lot):
            return self._worker.do(lot)

    @contextmanager
    def turn(self, number: int, lot: Lot) -> Iterator[None]:
        """Waits for the turn of a lot, which lasts while it holds: best until what became of the lot is told, so that
        nobody thinks that this lot killed the worker where it was the next one.
        """
        alone = not self._several or is_alone(lot)
        with self._changed:
            self._changed.wait_for(
                lambda: number == self._next and not self._alone and not (alone and self._inside),
            )
            self._next, self._inside, self._alone = self._next + 1, self._inside + 1, alone
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._alone = self._alone and not alone
                self._changed.notify_all()


def is_alone(lot: Lot) -> bool:
    """Whether no other lot is with its worker while that is at it."""
    return len(lot.pieces) == 1


def lost(lots: Sequence[Lot], helpers: int | None) -> list[Returned]:
    """The lots that a worker had when it died, of which it was at the first, or at several."""
    at = 1
    if helpers and lots and not is_alone(lots[0]):
        at = next((place for place, lot in enumerate(lots) if is_alone(lot)), len(lots))
    return [Returned(lot, died=place < at, untouched=place >= at) for place, lot in enumerate(lots)]


def with_helpers(order: Order, workers: int) -> Order:
    """The order for each of so many workers of this machine, which says how many helpers it has."""
    return order if order.helpers is not None else replace(order, helpers=helpers_here(workers))


class Pool(Protocol):
    """Does lots, in any order."""

    def room(self) -> int:
        """How many lots may be sent now."""
        ...

    def send(self, lot: Lot) -> None: ...

    def out(self) -> int:
        """How many lots have not come back."""
        ...

    def wait(self, seconds: float) -> Sequence[Returned]:
        """What has come back, waiting for the first at most so long. Raises UserError where no worker can work."""
        ...

    def close(self) -> None:
        """End the workers; lots that are out do not come back."""
        ...


class HerePool:
    """Does lots in this process and thread, when somebody waits for them."""

    def __init__(self, order: Order, models: Models | None = None) -> None:
        self._worker = Worker(order, models)
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
        return (Returned(lot, self._worker.do(lot)),)

    def close(self) -> None:
        self._lots.clear()


@dataclass
class _Slot:
    """A worker process with what it has."""

    worker: Recruit
    lots: dict[int, Lot] = field(default_factory=dict)
    """By their numbers, in the order in which they were sent."""
    sent: int = 0


class ProcessPool:
    """Does lots in processes of this machine, each with its own models. One that dies is replaced."""

    def __init__(
        self,
        order: Order,
        workers: int,
        make: Callable[[Order], Does] = Worker,
        waiting: list[Recruit] | None = None,
    ) -> None:
        """One thread a worker, so that the numbers are the same however many there are. `make` makes a worker in its
        process. Those that are `waiting` for an order are taken, and away.
        """
        self._order, self._make, self._waiting = with_helpers(order, workers), make, waiting or []
        self._deaths = 0
        self._slots = [self._started() for _ in range(workers)]

    def ready(self) -> None:
        """Wait until all workers are there. Nobody need call it."""
        for slot in self._slots:
            slot.worker.connection.poll(None)  # it says so before anything else

    def room(self) -> int:
        return sum(AHEAD - len(slot.lots) for slot in self._slots)

    def send(self, lot: Lot) -> None:
        slot = min(self._slots, key=lambda one: len(one.lots))
        slot.lots[slot.sent] = lot
        slot.sent += 1
        # Where it has just died the lot comes back with the others that it had.
        with suppress(OSError):
            slot.worker.connection.send(lot)

    def out(self) -> int:
        return sum(len(slot.lots) for slot in self._slots)

    def wait(self, seconds: float) -> Sequence[Returned]:
        ready = wait([slot.worker.connection for slot in self._slots if slot.lots], seconds)
        returned: list[Returned] = []
        for place, slot in enumerate(self._slots):
            if slot.worker.connection not in ready:
                continue
            try:
                said = slot.worker.connection.recv()
            except (EOFError, OSError):
                returned += self._buried(place)
                continue
            if isinstance(said, UserError):
                raise said
            if said is None:  # it is there
                continue
            self._deaths = 0
            number, done = said
            returned.append(Returned(slot.lots.pop(number), done))
        return returned

    def close(self) -> None:
        for slot in self._slots:
            if slot.lots:
                slot.worker.process.terminate()
            slot.worker.connection.close()  # one that has nothing to do ends by itself, and leaves nothing behind
        for slot in self._slots:
            slot.worker.process.join(ENDS_WITHIN)
            slot.worker.process.terminate()
            slot.worker.process.join()
        self._slots = []

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of the workers' processes."""
        return tuple(slot.worker.process.pid or 0 for slot in self._slots)

    def _buried(self, place: int) -> list[Returned]:
        """Another worker in the place of one that died; what it had, of which it was at the first."""
        slot = self._slots[place]
        slot.worker.process.join()
        slot.worker.connection.close()
        self._deaths += 1
        if self._deaths >= MOST_DEATHS_AT_START * len(self._slots):
            code = slot.worker.process.exitcode or 0
            how = f"by the signal {signal.Signals(-code).name}" if code < 0 else f"with the code {code}"
            raise UserError(
                f"{self._deaths} workers ended one after another without a lot done, the last one {how}: there may be "
                "too little memory for so many, so try fewer; the terminal says more."
            )
        self._slots[place] = self._started()
        return lost(list(slot.lots.values()), self._order.helpers)

    def _started(self) -> _Slot:
        worker = self._waiting.pop() if self._waiting else recruited()
        with suppress(OSError):  # one that has died while it waited is buried as any other
            worker.connection.send((self._order, self._make))
        return _Slot(worker)


def single_threaded(profile: Profile) -> Profile:
    """The profile for a worker that has one core: its language model does not take all of them."""
    language = profile.language
    if getattr(language, "threads", None) != -1:
        return profile
    return profile.model_copy(update={"language": language.model_copy(update={"threads": 1})})


def serve(connection: Connection, order: Order, make: Callable[[Order], Does]) -> None:
    """The life of a worker process with an order, which `services.batches.worker_start` has begun: it ends when whoever
    started it does.
    """
    end_with_parent()
    tqdm.set_lock(threading.RLock())  # its own is one of processes, which stays behind where this one is ended
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            if order.helpers:
                # A daemon may start no processes, as they would outlive it where it is killed. Helpers do not.
                multiprocessing.current_process().daemon = False
            worker = make(replace(order, profile=single_threaded(order.profile)))
            connection.send(None)
            if order.helpers:
                gc.enable()
                _several(connection, worker, order.helpers)
            for number in count():
                connection.send((number, worker.do(connection.recv())))
                gc.enable()  # with the first lot came the models
        except UserError as error:  # such as a model that cannot be loaded: whoever waits is told, and this worker ends
            connection.send(UserError(str(error)))


def _several(connection: Connection, worker: Does, helpers: int) -> None:
    """Does lots, each in a thread: one is drawn while another is saved. Raises EOFError when nobody wants any more."""
    turns, answering = InTurn(worker, helpers), threading.Lock()

    def do(number: int, lot: Lot) -> None:
        said: Any
        with turns.turn(number, lot):
            try:
                said = number, worker.do(lot)
            except UserError as error:
                said = UserError(str(error))
            except BaseException:  # a helper died, or this program is wrong: as in one thread, that ends the worker
                log.exception("A worker of a batch ends")
                os._exit(1)
            with answering, suppress(OSError):
                connection.send(said)

    for number in count():
        threading.Thread(target=do, args=(number, connection.recv()), name="lot", daemon=True).start()
