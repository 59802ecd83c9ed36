"""Reads and decodes the source images of a batch; encodes, hashes and saves its drawn images and their thumbnails.

A worker does this work itself, or helper processes do it while a GPU draws the next images. An image of 512 x 512
pixels keeps one CPU core busy for 40 to 80 ms. Helpers save no time if the workers use all cores already.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

from PIL import Image

from core.batches import Item, Piece, ReadSource, SourceRun
from core.errors import UserError
from core.images import Picture, StoredImage
from core.masks import Mask, NamedMask, with_own_numbers
from core.settings import Settings
from core.types import Task
from formats.in_place import DataSet, open_data_set
from pipeline.models.machine import this_machine
from pipeline.profiles.profile import Profile
from services.batches.plan_file import BatchPlan
from services.own_processes import end_with_parent
from storage.images import ImageFiles
from storage.inversions import Inversions
from storage.thumbnails import ThumbnailFiles
from storage.workspace import IMAGES, INVERSIONS, THUMBNAILS

P = ParamSpec("P")
T = TypeVar("T")
MOST_HELPERS = 4
"""Maximum number of helpers of a worker. Four encode 50 images of 512 x 512 pixels a second, more than a GPU draws."""

THREADS = 8
"""Maximum number of files that a worker without helpers reads or writes at the same time."""

_GPUS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of GPUs: for NVIDIA, AMD, and Linux within Windows. If none of them exists, torch finds no GPU."""


@dataclass(frozen=True)
class Order:
    """The facts that a worker needs about its batch. It can be pickled and sent to another machine."""

    plan: BatchPlan
    profile: Profile
    settings: Settings
    at_once: int
    """Number of images that are drawn together. A `Lot` of images has at most this number."""
    workspace: Path
    """Folder of the workspace, under the same path on each machine."""
    process: int
    """Number of the process that runs the batch, used in the names of unfinished files."""
    helpers: int | None = None
    """Number of helper processes of a worker; None for as many as suit its machine."""


@dataclass(frozen=True)
class OpenedSource:
    """A source image with its pixels."""

    image: Image.Image
    mask: NamedMask | None
    kept: ReadSource | None = None
    """Files saved for the source, safe on the disk after `FileWork.settle`; None if it came from the workspace."""


@dataclass(frozen=True)
class UnreadSource:
    """A source image that cannot be read."""

    failed: str
    final: bool
    """True if another try would fail in the same way."""


class FileWork:
    """Reads and writes the files of a batch, in any process. Thread-safe."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._files = ImageFiles(order.workspace / IMAGES)
        self._files.process = order.process
        self.settle = self._files.settle
        """Waits until the files of all saved images are safe on the disk."""
        self._thumbnails = ThumbnailFiles(order.workspace / THUMBNAILS, self._files)
        self.inversions = Inversions(order.workspace / INVERSIONS, self._files)
        self._opening, self._opened = threading.Lock(), list[DataSet]()

    @property
    def _data(self) -> DataSet:
        with self._opening:  # a large data set takes a while to list
            if not self._opened:
                self._opened.append(data_set_of(self._order.plan))
            return self._opened[0]

    def read(self, piece: Piece) -> OpenedSource | UnreadSource:
        """Read a source image from the data set and save it in the workspace. Raises UserError if the disk is full."""
        try:
            picture, task, mask = read_item(self._data, self._order.plan, piece.item)
        except OSError as error:  # an absent disk or share may come back
            return UnreadSource(f"The data set cannot be read: {error.strerror or error}.", final=False)
        except UserError as error:
            return UnreadSource(str(error), final=True)
        named = NamedMask(mask.image, mask.classes) if mask is not None else None
        return OpenedSource(picture.image, named, self._kept(picture, mask, task))

    def _kept(self, picture: Picture, mask: Mask | None, task: Task) -> ReadSource:
        image = self._thumbnails.save(picture.image, settled=False)
        if mask is None:
            return ReadSource(image, task, picture.notes)
        stored = self._files.save(mask.image, settled=False)
        return ReadSource(image, task, (*picture.notes, *mask.notes), stored, mask.classes)

    def load(self, run: SourceRun) -> OpenedSource | UnreadSource:
        """Load from the workspace a source image that was read before."""
        try:
            mask = NamedMask(self._files.load(run.mask_sha), run.mask_classes) if run.mask_sha else None
            return OpenedSource(self._files.load(run.source_sha), mask)
        except UserError as error:
            return UnreadSource(str(error), final=True)

    def save(self, image: Image.Image, in_galleries: bool) -> StoredImage:
        """Save an image, with a thumbnail if galleries show it. The file is safe on the disk only after `settle`."""
        return (self._thumbnails if in_galleries else self._files).save(image, settled=False)


class HelperDied(Exception):
    """A helper process ended before its work was done."""


class IoWorkers:
    """Does the work of `FileWork` in threads of this process, or in `order.helpers` helper processes if this number is
    above 0. Helpers end with this process. If a helper dies, waiting for its results raises HelperDied.
    """

    def __init__(self, order: Order, files: FileWork) -> None:
        self._files, self._helpers = files, order.helpers or 0
        # A thread waits for each helper. Python's own pools would leave semaphores behind if this process is killed.
        self._threads = ThreadPoolExecutor(self._helpers or THREADS, "files")
        self._free: SimpleQueue[Connection] = SimpleQueue()
        context = multiprocessing.get_context("spawn")
        for _ in range(self._helpers):
            ours, theirs = context.Pipe()
            context.Process(target=_help, args=(theirs, order), daemon=True, name="batch helper").start()
            theirs.close()  # else the connection would stay open after the helper ends
            self._free.put(ours)

    def close(self) -> None:
        """End the threads and the helpers once all submitted work is done."""
        self._threads.shutdown()
        while not self._free.empty():
            self._free.get().close()

    def submit(
        self, method: Callable[Concatenate[FileWork, P], T], *arguments: P.args, **named: P.kwargs
    ) -> Callable[[], T]:
        """Start a method of `FileWork`, and return a function that waits for its result."""
        if self._helpers:
            return self._threads.submit(self._call, method, arguments, named).result
        return self._threads.submit(method, self._files, *arguments, **named).result

    def _call(self, *call: Any) -> Any:
        connection = self._free.get()  # one is free: there are no more threads than helpers
        try:
            connection.send(call)
            result = connection.recv()
        except (EOFError, OSError) as error:
            raise HelperDied from error
        finally:
            self._free.put(connection)
        if isinstance(result, Exception):
            raise result
        return result


def data_set_of(plan: BatchPlan) -> DataSet:
    """Open the data set of a plan. Raises UserError if it cannot be opened."""
    part = plan.data
    options = {name: str(value) for name, value in part.options.items()}
    return open_data_set(Path(part.root), part.layout, part.split, **options)


def read_item(data: DataSet, plan: BatchPlan, item: Item) -> tuple[Picture, Task, Mask | None]:
    """Return the picture, task and mask of an item of the data set. The mask is None for a classification, and for an
    item without one. Raises UserError for an item that the batch cannot use, and OSError if a file cannot be read.
    """
    content, task = data.read(item.key, item.stamp), plan.task_of(item.label)
    if task.kind != "segmentation" or content.mask is None:
        return content.picture, task, None
    return content.picture, task, with_own_numbers(content.mask, data.mask_classes)


def helpers_here(workers: int) -> int:
    """Return the number of helpers for each of `workers` workers. 0 without a GPU: the models then use all cores."""
    return min(MOST_HELPERS, max(1, cores_here() // workers - 1)) if has_gpu() else 0


def has_gpu() -> bool:
    """Return True if torch finds a GPU. Without a GPU device, torch is not loaded, since that takes seconds."""
    if sys.platform == "linux" and not any(os.path.exists(device) for device in _GPUS):
        return False
    return bool(this_machine().gpu)


def cores_here() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _help(connection: Connection, order: Order) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    files = FileWork(order)
    with suppress(EOFError, OSError):
        while True:
            method, arguments, named = connection.recv()
            try:
                result = method(files, *arguments, **named)
            except UserError as error:
                result = UserError(str(error))
            connection.send(result)
