"""Where lots are done on Ray: by actors on the machines of a cluster, each with its own models.

The only module that imports Ray (`requirements-batch.txt`), and only when it is used. What travels is paths, keys and
plain data: each machine reads the data set and writes the images itself, under the same paths as here. That it can is
looked at on every machine before the first lot goes out.

`python -m services.batches.cluster` starts a cluster of two nodes on this machine, to try it out.
"""

from __future__ import annotations

import logging
import os
import secrets
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from core.batches import Done
from core.errors import CannotLoad, UserError
from core.version import version
from services.batches.pools import (
    AHEAD,
    MOST_DEATHS_AT_START,
    Does,
    InTurn,
    Returned,
    is_alone,
    lost,
    single_threaded,
    with_helpers,
)
from services.batches.work import Lot, Order, Worker

ANSWERS_WITHIN = 120.0
"""Seconds in which a node of the cluster has to say what it sees."""
_LOOPBACK = ("127.0.0.1", "localhost")
_NO_CLUSTERS = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""At 0, before Ray is imported, it listens on 127.0.0.1, as on Windows and macOS, where it makes no clusters of several
machines. There is no other way: given 127.0.0.1 as its address it takes that of the machine, and listens on all."""
_TOKEN = Path("~/.ray/auth_token").expanduser()
"""Where Ray keeps the token of an account."""

log = logging.getLogger(__name__)


@contextmanager
def on_ray(workers: int | None = None, address: str = "") -> Iterator[Callable[[Order], RayPool]]:
    """Be connected to Ray while it holds; gives what makes the pool of an order. `workers` None: one for each GPU of
    the cluster, or for each CPU where it has none. `address`: of a cluster that runs, such as "10.0.0.1:6379", or
    "auto" for the one on this machine; "": one on this machine for this program alone, that nobody else reaches.

    Raises UserError where Ray is not installed or already in use by this program, and where no cluster answers.
    """
    ray = _connected(workers, address)
    try:
        yield partial(RayPool, workers=workers)
    finally:
        ray.shutdown()


@dataclass(eq=False)
class _Slot:
    """An actor with what it has."""

    actor: Any
    begins: Any
    """The reference to the answer of its start; None once it is ready for lots."""
    process: int = 0
    helpers: int = 0
    """That the actor has, as it says when it is ready."""
    lots: dict[Any, Lot] = field(default_factory=dict)
    """By the references to what becomes of them, in the order in which the actor begins with them."""
    sent: int = 0

    @property
    def is_open(self) -> bool:
        """Whether another lot may be sent to it, as far as there is room."""
        return self.begins is None and not any(is_alone(lot) for lot in self.lots.values())

    @property
    def awaited(self) -> tuple[Any, ...]:
        """What it is going to answer."""
        return tuple(self.lots) if self.begins is None else (self.begins,)


class RayPool:
    """Does lots on Ray. An actor that dies is replaced. One that finds no room waits for a machine to join."""

    def __init__(self, order: Order, workers: int | None = None, make: Callable[[Order], Does] = Worker) -> None:
        """Within `on_ray`, which says what `workers` is. `make` is called in the actor.

        Raises UserError for a node that cannot work: it does not see the data set or the workspace, or has another
        version of the studio.
        """
        self._ray = _ray()
        self._order, self._make = order, make
        self._deaths = 0
        self._slots: list[_Slot] = []
        self._held: deque[Lot] = deque()
        """Lots that wait for an actor that has none."""
        there = self._ray.cluster_resources()
        self._gpus = int(there.get("GPU", 0)) > 0
        number = workers or int(there.get("GPU" if self._gpus else "CPU", 0))
        if number < 1:
            raise UserError("The cluster has neither a GPU nor a CPU to work with: start a node that has.")
        # Named like a half file, so that it is removed with those where this process is killed.
        self._token = order.images / f".{order.process}-{secrets.token_hex(8)}.tmp"
        try:
            self._token.touch()
        except OSError as error:
            raise UserError(f"{order.images} cannot be written to: {error.strerror}.") from error
        try:
            self._ask_all_nodes()
            self._slots = [self._started() for _ in range(number)]
        except BaseException:
            self.close()
            raise

    def room(self) -> int:
        return 0 if self._held else sum(AHEAD - len(slot.lots) for slot in self._slots if slot.is_open)

    def send(self, lot: Lot) -> None:
        if is_alone(lot):
            self._held.append(lot)
            self._send_held()
        else:
            _send(min((slot for slot in self._slots if slot.is_open), key=lambda one: len(one.lots)), lot)

    def _send_held(self) -> None:
        """A lot of one piece, which may be one that kills, has an actor for itself: what an actor has answered just
        before it dies gets lost, and an innocent lot beside it would be blamed.
        """
        for slot in self._slots:
            if self._held and slot.begins is None and not slot.lots:
                _send(slot, self._held.popleft())

    def out(self) -> int:
        return sum(len(slot.lots) for slot in self._slots) + len(self._held)

    def wait(self, seconds: float) -> Sequence[Returned]:
        awaited = {reference: slot for slot in self._slots for reference in slot.awaited}
        if not awaited:
            return ()
        if not self._ray.wait(list(awaited), num_returns=1, timeout=seconds)[0]:
            return ()
        ready, _ = self._ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
        returned: list[Returned] = []
        for reference in ready:
            slot = awaited[reference]
            if slot not in self._slots:  # it was buried with the lot before
                continue
            try:
                said = self._ray.get(reference)
            except self._ray.exceptions.RayError as error:
                returned += self._buried(slot, error)
                continue
            if isinstance(said, Exception):
                raise said
            if slot.begins is not None:
                slot.begins, (slot.process, slot.helpers) = None, said
                continue
            self._deaths = 0
            returned.append(Returned(slot.lots.pop(reference), said))
        self._send_held()
        return returned

    def close(self) -> None:
        for slot in self._slots:
            self._ray.kill(slot.actor)
        self._slots = []
        self._token.unlink(missing_ok=True)

    @property
    def processes(self) -> tuple[int, ...]:
        """The ids of the processes of the actors that are ready, each on its own machine."""
        return tuple(slot.process for slot in self._slots if slot.begins is None)

    def _buried(self, slot: _Slot, error: Exception) -> list[Returned]:
        """Another actor in the place of one that died; what it had, of which it was at the first, or at several."""
        log.warning("A worker on Ray ended before its work did: %s", str(error).strip())
        self._ray.kill(slot.actor)  # where it is only its lot that ended
        self._deaths += 1
        if self._deaths >= MOST_DEATHS_AT_START * len(self._slots):
            raise UserError(
                f"{self._deaths} workers on Ray ended one after another without a lot done: there may be too little "
                f"memory for so many, so try fewer. Of the last one Ray says: {_last_line(error)}"
            )
        self._slots[self._slots.index(slot)] = self._started()
        return lost(list(slot.lots.values()), slot.helpers)

    def _started(self) -> _Slot:
        # One thread each, as in processes of one machine: so the numbers are the same wherever they are calculated.
        remote = self._ray.remote(_Actor).options(
            num_cpus=1,
            num_gpus=1 if self._gpus else 0,
            scheduling_strategy="SPREAD",
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}},
            max_concurrency=AHEAD,  # and one lot at a time, where it has no helpers
            # What an actor had when it died is decided here and in the ledger, not repeated by Ray.
            max_restarts=0,
            max_task_retries=0,
        )
        actor = remote.remote(self._order, self._make, self._token)
        return _Slot(actor, actor.begin.remote())

    def _ask_all_nodes(self) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        look = self._ray.remote(_what_is_wrong_here)
        asked = {}
        for node in self._ray.nodes():
            if node["Alive"]:
                here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                reference = look.options(num_cpus=0, scheduling_strategy=here, max_retries=0).remote(
                    self._order, self._token, version()
                )
                asked[reference] = node["NodeManagerAddress"]
        until = time.monotonic() + ANSWERS_WITHIN
        for reference, address in asked.items():
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
    """A worker in a process that Ray started."""

    def __init__(self, order: Order, make: Callable[[Order], Does], token: Path) -> None:
        self._order, self._make, self._token = order, make, token

    def begin(self) -> tuple[int, int] | UserError:
        """The id of its process and how many helpers it has, or why it cannot work: its machine may have joined after
        all were asked.
        """
        if wrong := _what_is_wrong_here(self._order, self._token, version()):
            return UserError(f"A node that has joined the cluster {wrong}")
        try:
            order = with_helpers(self._order, workers=1)
            helpers = order.helpers or 0
            self._turns = InTurn(self._make(replace(order, profile=single_threaded(order.profile))), helpers)
        except CannotLoad as error:
            return error
        return os.getpid(), helpers

    def do(self, number: int, lot: Lot) -> tuple[Done, ...] | CannotLoad:
        """What became of a lot, whose number says when it is its turn, or why no lot can be done."""
        try:
            return self._turns.do(number, lot)
        except CannotLoad as error:
            return error


def _send(slot: _Slot, lot: Lot) -> None:
    slot.lots[slot.actor.do.remote(slot.sent, lot)] = lot
    slot.sent += 1


def _last_line(error: Exception) -> str:
    """Of what Ray says of a failure, what it came from."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1]


def _what_is_wrong_here(order: Order, token: Path, wanted: str) -> str:
    """Why this machine cannot work, as what follows "The node"; "" where it can."""
    if version() != wanted:
        return f"has version {version()} of the studio, and {wanted} is needed: install the same one."
    root = Path(order.plan.data.root)
    if not os.path.exists(root):
        return f"does not see the data set: mount {root} there under the same path."
    if not os.path.exists(token):
        return f"does not see the images of the workspace: mount {token.parent} there under the same path."
    if not os.access(order.images, os.W_OK):
        return f"may not write to {order.images}: mount it there for writing."
    return ""


def _ray() -> Any:
    """Ray, or a word on how to get it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # or its makers are told of every cluster
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
    if not address and not _has_token():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    ray = _ray()
    if ray.is_initialized():
        raise UserError("This program works on Ray already: wait until that is done.")
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    with _handlers_kept():
        try:
            if address:
                ray.init(address=address, **quiet)
            else:
                cpus = workers or len(os.sched_getaffinity(0))
                # No picture goes through the object store: the least that Ray takes is enough.
                ray.init("local", num_cpus=cpus, include_dashboard=False, object_store_memory=100 << 20, **quiet)
        except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            where = f"No cluster answers at {address}" if address else "Ray does not start on this machine"
            raise UserError(f"{where}: {said}") from error
    if not address and ray.util.get_node_ip_address() != "127.0.0.1":
        ray.shutdown()
        raise UserError("This program was on a cluster before, and Ray would now listen on the network: start it anew.")
    return ray


def _has_token() -> bool:
    return any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray takes SIGTERM for itself when it starts; whoever handles it goes on to."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def main() -> int:
    """A cluster of two nodes with a CPU each, on this machine, until Ctrl-C. Gives the exit code."""
    os.environ.update({_NO_CLUSTERS: "0", "RAY_AUTH_MODE": "token"})
    try:
        _ray()
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    from ray.cluster_utils import Cluster

    if not _has_token():
        # Into ~/.ray/auth_token, unless there is one: there it is found by whoever connects from this account.
        command = [str(Path(sysconfig.get_path("scripts")) / "ray"), "get-auth-token", "--generate"]
        subprocess.run(command, capture_output=True, check=True)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        print(
            "Two nodes are up, with a CPU each. They listen on this machine only, and ask for a token. Use them:\n"
            f"  python -m pipeline batch run PLAN.toml --ray {cluster.address}\nCtrl-C ends them.",
            flush=True,
        )
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    except KeyboardInterrupt:
        pass
    finally:
        cluster.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
