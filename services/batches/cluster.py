"""Does the work of a batch on a Ray cluster. The workers are Ray actors on its machines, each with its own models.

No other module imports Ray (`requirements-batch.txt`), and this one imports it at first use. Only paths, keys and plain
data are sent. Each machine reads the data set and writes the images itself, under the same paths as this machine. Every
machine is checked for that before any work is sent.
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
from services.batches.worker_process import Answer, LotDone, MakeRunner, Ready, single_threaded_runner, with_helpers
from storage.workspace import IMAGES

ANSWERS_WITHIN = 600.0
"""Maximum seconds for all machines to answer the first check: a busy machine takes minutes to import packages."""
_LOOPBACK = ("127.0.0.1", "localhost")
_NO_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Environment variable. If it is 0 when Ray is imported, Ray listens on 127.0.0.1 only and cannot form a cluster of
several machines. Giving Ray 127.0.0.1 as its address does not help: Ray replaces it by the machine's own address and
listens on all addresses."""
_TOKEN = Path("~/.ray/auth_token").expanduser()
"""File in which Ray stores the login token of the current user."""

log = logging.getLogger(__name__)


@contextmanager
def on_ray(workers: int | None = None, address: str = "") -> Iterator[Callable[[Order], RayPool]]:
    """Connect to Ray within this context, and yield a function that makes a pool of workers for an `Order`.

    `workers` is the number of workers. None means one for each GPU of the cluster, or one for each CPU if it has no
    GPU. `address` is the address of a running cluster, such as "10.0.0.1:6379"; "auto" finds the cluster of this
    machine; "" starts a private one on this machine.

    Raises UserError if Ray is not installed or already in use by this program, or if no cluster answers.
    """
    ray = _connected(workers, address)
    try:
        yield partial(RayPool, workers=workers)
    finally:
        ray.shutdown()


@dataclass(eq=False, kw_only=True)
class ActorSlot(Slot):
    """A worker that is a Ray actor on a machine of the cluster."""

    actor: Any
    references: set[Any] = field(default_factory=set)
    """Ray references to the actor's pending replies: one for its start, and one for each group of work sent to it."""


class RayPool(WorkerPool[ActorSlot]):
    """A pool of workers that are Ray actors. Ray starts an actor once a machine has a CPU or GPU free for it."""

    def __init__(self, order: Order, workers: int | None = None, make: MakeRunner = Worker) -> None:
        """Create the pool; call this within `on_ray`, which explains `workers`. Each actor calls `make` to get the
        object that does its work.

        Raises UserError if the cluster has neither GPU nor CPU, if the folder of images cannot be written to, or if a
        node cannot work: it does not see the data set or the workspace, or has another version of the studio.
        """
        self._ray = _ray()
        resources = self._ray.cluster_resources()
        self._gpus = int(resources.get("GPU", 0)) > 0
        number = workers or int(resources.get("GPU" if self._gpus else "CPU", 0))
        if number < 1:
            raise UserError("The cluster has neither a GPU nor a CPU to work with: start a node that has one.")
        # Named like an unfinished image file, so that it is removed with these if this process is killed.
        images = order.workspace / IMAGES
        self._token = images / f".{order.process}-{secrets.token_hex(8)}.tmp"
        try:
            self._token.touch()
        except OSError as error:
            raise UserError(f"No file can be written to {images}: {error.strerror}.") from error
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
        # One thread for each worker, as in `ProcessPool`, so that results are the same on all machines.
        remote = self._ray.remote(_Actor).options(
            num_cpus=1,
            num_gpus=1 if self._gpus else 0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}},
            max_concurrency=LOTS_AHEAD,
            # Ray must repeat nothing: the pool's caller decides what happens to the work of a dead actor.
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
                yield slot, Died(f"Ray says about the last worker: {_last_line(error)}")

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
    """A worker in a process that Ray started. Without helper processes it does one `Lot` at a time."""

    def __init__(self, order: Order, make: MakeRunner, token: Path) -> None:
        self._order, self._make, self._token = with_helpers(order, workers=1), make, token
        self._one_at_a_time: AbstractContextManager[object] = nullcontext() if self._order.helpers else threading.Lock()

    def begin(self) -> Ready | UserError:
        """Return `Ready`, or an error if this machine cannot work. It may have joined after the check of all nodes."""
        if problem := _problem_here(self._order, self._token, version()):
            return UserError(f"A node joined the cluster, but it {problem}")
        try:
            self._runner = single_threaded_runner(self._order, self._make)
        except CannotLoad as error:
            return error
        return Ready(os.getpid())

    def do(self, number: int, lot: Lot) -> LotDone | CannotLoad:
        """Do the work of a `Lot` and return its results, or return an error if the models cannot be loaded."""
        with self._one_at_a_time:
            try:
                return LotDone(number, self._runner.do(lot))
            except CannotLoad as error:
                return error


def _last_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _problem_here(order: Order, token: Path, required: str) -> str:
    """Return why this machine cannot work, in words that follow "The node <address>"; "" if it can work."""
    if version() != required:
        return f"has version {version()} of the studio, and {required} is needed: install that version."
    root = Path(order.plan.data.root)
    if not os.path.exists(root):
        return f"does not see the data set: mount {root} there under the same path."
    if not os.path.exists(token):
        return f"does not see the images of the workspace: mount {token.parent} there under the same path."
    if not os.access(token.parent, os.W_OK):
        return f"may not write to {token.parent}: mount it there for writing."
    return ""


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray reports usage to its makers
    try:
        import ray
    except ImportError as error:
        raise UserError("Ray is not installed: pip install -r requirements-batch.txt, or leave --ray out.") from error
    return ray


def _connected(workers: int | None, address: str) -> Any:
    if address.startswith("ray://"):
        raise UserError(
            f"{address} is the address of a Ray client server, which this program cannot use: run this program on a "
            "machine of the cluster, with the address of the head node, such as 10.0.0.1:6379, or with auto."
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
    handler = signal.getsignal(signal.SIGTERM)
    try:
        if address:
            ray.init(address=address, **quiet)
        else:
            cpus = workers or len(os.sched_getaffinity(0))
            # No image passes through Ray's object store, so its minimum size is enough.
            ray.init("local", num_cpus=cpus, include_dashboard=False, object_store_memory=100 << 20, **quiet)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        where = f"No cluster answers at {address}" if address else "Ray does not start on this machine"
        raise UserError(f"{where}: {reason}") from error
    finally:
        if threading.current_thread() is threading.main_thread():  # Ray replaced the handler when it started
            signal.signal(signal.SIGTERM, handler)
    if not address and ray.util.get_node_ip_address() != "127.0.0.1":
        ray.shutdown()
        raise UserError("This program used a cluster before, so Ray would listen on the network: restart the program.")
    return ray
