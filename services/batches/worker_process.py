"""A worker process: it starts, gets its order, and answers lots until its connection ends."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
    """Does lots. If it has helper processes, two threads may call `do`."""

    def do(self, lot: Lot) -> tuple[Done, ...]:
        """Do a lot, as `Worker.do`."""
        ...


MakeRunner = Callable[[Order], LotRunner]
"""Makes a runner in the process that does the lots."""


@dataclass(frozen=True)
class Ready:
    """Answer of a worker that is ready for lots."""

    process: int
    """Id of its process."""


@dataclass(frozen=True)
class LotDone:
    """Answer of a worker that has done a lot."""

    number: int
    done: tuple[Done, ...]


Answer = Ready | LotDone | UserError
"""A worker's answer: it is ready, a lot is done, or an error that every other lot would meet, which ends the batch."""


def with_helpers(order: Order, workers: int) -> Order:
    """Return the order for each of `workers` on this machine, with its number of helpers."""
    return order if order.helpers is not None else replace(order, helpers=helpers_here(workers))


def single_threaded_runner(order: Order, make: MakeRunner) -> LotRunner:
    """Return a runner for a worker with one core: its language model does not use all cores."""
    language = order.profile.language
    if getattr(language, "threads", None) == -1:
        profile = order.profile.model_copy(update={"language": language.model_copy(update={"threads": 1})})
        order = replace(order, profile=profile)
    return make(order)


def start_worker(order: Order, make: MakeRunner) -> tuple[SpawnProcess, Connection]:
    """Start a process that serves lots in one thread, and that ends when this process does."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs,), daemon=True, name="batch worker")
    with _environment_of_a_worker():
        process.start()
    theirs.close()  # else the end of the worker would not end the connection
    with suppress(OSError):  # it has died already: the connection says so
        ours.send((order, make))
    return process, ours


@contextmanager
def _environment_of_a_worker() -> Iterator[None]:
    """Set one thread and no Ctrl-C for processes that start within this context."""
    threads = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if threads is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = threads


def serve(connection: Connection) -> None:
    """Take an order, then do lots until the connection ends."""
    gc.disable()  # it would scan a million objects while models are loaded: a fifth of the time
    end_with_parent()
    tqdm.set_lock(threading.RLock())  # its default lock is for processes, and is left behind if this one is killed
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            order, make = connection.recv()
            if order.helpers:
                # A daemon may start no processes, as they would outlive it if it is killed. Helpers do not.
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
    """Do each lot in a thread: one is drawn while another is saved. Raises EOFError when the connection ends."""
    answering = threading.Lock()

    def do(number: int, lot: Lot) -> None:
        answer: Answer
        try:
            answer = LotDone(number, runner.do(lot))
        except UserError as error:
            answer = UserError(str(error))
        except BaseException:  # a helper died, or this is a bug: as in one thread, that ends the worker
            log.exception("A worker of a batch ends")
            os._exit(1)
        with answering, suppress(OSError):
            connection.send(answer)

    while True:
        threading.Thread(target=do, args=connection.recv(), name="lot", daemon=True).start()
