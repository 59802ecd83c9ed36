"""A worker process, which receives its `Order`, then does the work sent to it until its connection ends."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Protocol

from tqdm import tqdm

from core.batches import Done, Lot
from core.errors import UserError
from services.batches.io_workers import Order, helpers_here
from services.own_processes import end_with_parent

log = logging.getLogger(__name__)


class LotRunner(Protocol):
    """Interface of objects that work on a batch, such as `Worker`. With helper processes, two threads may call `do`."""

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """Do a `Lot` (a group of work) and return the result of each piece, as `Worker.do` does."""
        ...


MakeRunner = Callable[[Order], LotRunner]
"""Function that returns the object that does a worker's work. It is called in the worker's process."""


@dataclass(frozen=True)
class Ready:
    """Message of a worker that is ready for work."""

    process: int
    """Process id of the worker."""


@dataclass(frozen=True)
class LotDone:
    """Message of a worker that has done a `Lot`."""

    number: int
    done: tuple[Done, ...]


Answer = Ready | LotDone | UserError
"""Message of a worker: it is ready, it has done some work, or it met an error that ends the batch."""


def with_helpers(order: Order, workers: int) -> Order:
    """Return the order, with a number of helpers that suits `workers` workers here if the order names none."""
    return order if order.helpers is not None else replace(order, helpers=helpers_here(workers))


def single_threaded_runner(order: Order, make: MakeRunner) -> LotRunner:
    """Return the object that does a worker's work on a single core. A language model then uses one thread."""
    language = order.profile.language
    if getattr(language, "threads", None) == -1:
        profile = order.profile.model_copy(update={"language": language.model_copy(update={"threads": 1})})
        order = replace(order, profile=profile)
    return make(order)


def start_worker(order: Order, make: MakeRunner) -> tuple[SpawnProcess, Connection]:
    """Start a worker process. Return it with the connection to it. The worker ends when this process does."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True, name="batch worker")
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"  # the worker uses one thread, and ignores Ctrl-C
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = threads
    theirs.close()  # else the connection would stay open after the worker ends
    with suppress(OSError):  # it has died already: the connection says so
        ours.send((order, make))
    return process, ours


def serve(connection: Connection) -> None:
    """Receive an `Order` through the connection. Then do each `Lot` that follows, until the connection ends."""
    gc.disable()  # scanning a million objects while models are loaded would take a fifth of the time
    end_with_parent()
    tqdm.set_lock(threading.RLock())  # the default lock is shared by processes, and stays behind if this one is killed
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            order, make = connection.recv()
            if order.helpers:
                # Python lets a daemon start no processes, which could outlive it. Helpers do not outlive it.
                multiprocessing.current_process().daemon = False
            runner = single_threaded_runner(order, make)
            connection.send(Ready(os.getpid()))
            if order.helpers:
                gc.enable()
                _serve_in_threads(connection, runner)
            while True:
                number, lot = connection.recv()
                connection.send(LotDone(number, runner.do(lot)))
                gc.enable()  # the first lot loaded the models
        except UserError as error:
            connection.send(UserError(str(error)))


def _serve_in_threads(connection: Connection, runner: LotRunner) -> None:
    """Do each `Lot` in a thread: one is drawn while another is saved. Raises EOFError when `connection` ends."""
    answering = threading.Lock()

    def do(number: int, lot: Lot) -> None:
        answer: Answer
        try:
            answer = LotDone(number, runner.do(lot))
        except UserError as error:
            answer = UserError(str(error))
        except BaseException:  # a helper died, or this is a bug: both end the worker, as in one thread
            log.exception("A worker of a batch ends")
            os._exit(1)
        with answering, suppress(OSError):
            connection.send(answer)

    while True:
        threading.Thread(target=do, args=connection.recv(), name="lot", daemon=True).start()
