"""Runs lots on Ray, by actors on the machines of a cluster, each with its own models.

The only module that imports Ray (`requirements-batch.txt`), and only when used. Only paths, keys and plain data travel:
each machine reads the data set and writes the images itself, under the same paths as here. Every machine is checked for
that before the first lot goes out.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from core.batches import Lot
from core.errors import CannotLoad, UserError
from core.version import version
from services.batches.io_workers import Order
from services.batches.pools import LOTS_AHEAD, Died, Slot, WorkerPool
from services.batches.work import Worker
from services.batches.worker_process import (
    Answer,
    LotDone,
    MakeRunner,
    Ready,
    single_threaded_runner,
    with_helpers,
)

ANSWERS_WITHIN = 600.0
"""Seconds in which each node of the cluster must answer the first check. Ray itself notices a node that is gone; a busy
one takes minutes to import what a worker needs."""
_LOOPBACK = ("127.0.0.1", "localhost")
_NO_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""At 0, before Ray is imported, Ray listens on 127.0.0.1, as on Windows and macOS, where it has no clusters of several
machines. No other way works: given 127.0.0.1 as its address, Ray takes the machine's and listens on all."""
_TOKEN = Path("~/.ray/auth_token").expanduser()
"""File in which Ray keeps an account's token."""

log = logging.getLogger(__name__)


@contextmanager
def on_ray(workers: int | None = None, address: str = "") -> Iterator[Callable[[Order], RayPool]]:
    """Connect to Ray within this context, and yield a function that makes the pool of an order. `workers` None: one for
    each GPU of the cluster, or for each CPU without GPUs. `address`: that of a running cluster, such as
    "10.0.0.1:6379"; "auto" for the one on this machine; "" for a private one on this machine.

    Raises UserError if Ray is not installed or already in use by this program, or if no cluster answers.
    """
    ray = _connected(workers, address)
    try:
        yield partial(RayPool, workers=workers)
    finally:
        ray.shutdown()


@dataclass(eq=False, kw_only=True)
class ActorSlot(Slot):
    """An actor on some machine of the cluster."""

    actor: Any
    references: set[Any] = field(default_factory=set)
    """References to its pending replies: whether it is ready, and the result of each lot."""


class RayPool(WorkerPool[ActorSlot]):
    """Runs lots in actors of Ray. An actor waits until a machine has room for it."""

    def __init__(self, order: Order, workers: int | None = None, make: MakeRunner = Worker) -> None:
        """Make the pool within `on_ray`, which explains `workers`. `make` runs in the actor.

        Raises UserError for a node that cannot work: it does not see the data set or the workspace, or has another
        version of the studio.
        """
        self._ray = _ray()
        resources = self._ray.cluster_resources()
        self._gpus = int(resources.get("GPU", 0)) > 0
        number = workers or int(resources.get("GPU" if self._gpus else "CPU", 0))
        if number < 1:
            raise UserError("The cluster has neither a GPU nor a CPU to work with: start a node that has.")
        # Named like a half file, so that it is removed with those if this process is killed.
        self._token = order.images / f".{order.process}-{secrets.token_hex(8)}.tmp"
        try:
            self._token.touch()
        except OSError as error:
            raise UserError(f"{order.images} cannot be written to: {error.strerror}.") from error
        try:
            self._ask_all_nodes(order)
            super().__init__(order, number, make)
        except BaseException:
            self._token.unlink(missing_ok=True)
            raise

    def close(self) -> None:
        super().close()
        self._token.unlink(missing_ok=True)

    def _started(self) -> ActorSlot:
        # One thread each, as in processes of one machine: so the numbers are the same on all machines.
        remote = self._ray.remote(_Actor).options(
            num_cpus=1,
            num_gpus=1 if self._gpus else 0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}},
            max_concurrency=LOTS_AHEAD,
            # The ledger decides on the lots of a dead actor, so Ray repeats nothing.
            max_restarts=0,
            max_task_retries=0,
        )
        actor = remote.remote(self._order, self._make, self._token)
        return ActorSlot(actor=actor, references={actor.begin.remote()})

    def _post(self, slot: ActorSlot, number: int, lot: Lot) -> None:
        slot.references.add(slot.actor.do.remote(number, lot))

    def _answers(self, busy: Sequence[ActorSlot], seconds: float) -> Iterator[tuple[ActorSlot, Answer | Died]]:
        slots = {reference: slot for slot in busy for reference in slot.references}
        if not slots or not self._ray.wait(list(slots), num_returns=1, timeout=seconds)[0]:
            return
        ready, _ = self._ray.wait(list(slots), num_returns=len(slots), timeout=0)
        for reference in ready:
            slot = slots[reference]
            slot.references.remove(reference)
            try:
                yield slot, self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                log.warning("A worker on Ray ended before its work did: %s", str(error).strip())
                yield slot, Died(f"Of the last one Ray says: {_last_line(error)}")

    def _end(self, slots: Sequence[ActorSlot]) -> None:
        for slot in slots:
            self._ray.kill(slot.actor)

    def _ask_all_nodes(self, order: Order) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        look = self._ray.remote(_problem_here)
        address_of = {}
        for node in self._ray.nodes():
            if node["Alive"]:
                here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                reference = look.options(num_cpus=0, scheduling_strategy=here, max_retries=0).remote(
                    order, self._token, version()
                )
                address_of[reference] = node["NodeManagerAddress"]
        until = time.monotonic() + ANSWERS_WITHIN
        for reference, address in address_of.items():
            try:
                wrong = self._ray.get(reference, timeout=max(0.0, until - time.monotonic()))
            except self._ray.exceptions.GetTimeoutError as error:
                raise UserError(f"The node {address} does not answer: take it out of the cluster.") from error
            except self._ray.exceptions.RayError as error:
                raise UserError(
                    f"The node {address} cannot run the studio ({_last_line(error)}): it needs the same checkout and "
                    "the same packages, under the same paths as here."
                ) from error
            if wrong:
                raise UserError(f"The node {address} {wrong}")


class _Actor:
    """A worker in a process started by Ray. Without helpers it does one lot at a time."""

    def __init__(self, order: Order, make: MakeRunner, token: Path) -> None:
        self._order, self._make, self._token = with_helpers(order, workers=1), make, token
        self._one_at_a_time: AbstractContextManager[object] = nullcontext() if self._order.helpers else threading.Lock()

    def begin(self) -> Ready | UserError:
        """Make the runner. Its machine may have joined after the check of all nodes, so it is checked here too."""
        if problem := _problem_here(self._order, self._token, version()):
            return UserError(f"A node that has joined the cluster {problem}")
        try:
            self._runner = single_threaded_runner(self._order, self._make)
        except CannotLoad as error:
            return error
        return Ready(os.getpid())

    def do(self, number: int, lot: Lot) -> LotDone | CannotLoad:
        """Do a lot. Return the error if no lot can be done."""
        with self._one_at_a_time:
            try:
                return LotDone(number, self._runner.do(lot))
            except CannotLoad as error:
                return error


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _problem_here(order: Order, token: Path, required: str) -> str:
    """Return why this machine cannot work, as the rest of a sentence "The node …"; "" if it can."""
    if version() != required:
        return f"has version {version()} of the studio, and {required} is needed: install the same one."
    root = Path(order.plan.data.root)
    if not os.path.exists(root):
        return f"does not see the data set: mount {root} there under the same path."
    if not os.path.exists(token):
        return f"does not see the images of the workspace: mount {token.parent} there under the same path."
    if not os.access(order.images, os.W_OK):
        return f"may not write to {order.images}: mount it there for writing."
    return ""


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # or Ray reports usage to its makers
    try:
        import ray
    except ImportError as error:
        raise UserError("Ray is not installed: pip install -r requirements-batch.txt, or leave --ray out.") from error
    return ray


def _connected(workers: int | None, address: str) -> Any:
    if address.startswith("ray://"):
        raise UserError(
            f"{address} is the address of a client server, which is not used here: run this on a machine of the "
            "cluster, with the address of its head, such as 10.0.0.1:6379, or auto."
        )
    if not address or address.rpartition(":")[0] in _LOOPBACK:
        os.environ.setdefault(_NO_CLUSTERS, "0")
        if not address or _TOKEN.exists():
            os.environ.setdefault("RAY_AUTH_MODE", "token")
    if not address and not os.environ.keys() & {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"}:
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    ray = _ray()
    if ray.is_initialized():
        raise UserError("This program uses Ray for other work already: wait until that is done.")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _handlers_kept():
        try:
            if address:
                ray.init(address=address, **quiet)
            else:
                cpus = workers or len(os.sched_getaffinity(0))
                # No picture goes through the object store: Ray's minimum is enough.
                ray.init("local", num_cpus=cpus, include_dashboard=False, object_store_memory=100 << 20, **quiet)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            where = f"No cluster answers at {address}" if address else "Ray does not start on this machine"
            raise UserError(f"{where}: {reason}") from error
    if not address and ray.util.get_node_ip_address() != "127.0.0.1":
        ray.shutdown()
        raise UserError("This program was on a cluster before, and Ray would now listen on the network: restart it.")
    return ray


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restore the handler of SIGTERM, which Ray replaces when it starts."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
