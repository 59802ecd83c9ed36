"""Compiles only the blocks that a generator's networks repeat (torch.compile). A block is compiled once for all its
repetitions, so the first image waits for a fraction of the time that whole networks would take.

Compiled code has no fixed sizes: one compilation serves every image size, batch size and length of text. Only a batch
of a single row, such as one image without guidance, is compiled separately by torch. Strengths and texts are inputs of
a block, so changing them needs no new compilation.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

REPEATED = frozenset(("BasicTransformerBlock", "ZImageTransformerBlock", "ZImageControlTransformerBlock"))
"""Class names of blocks to compile, for networks such as ControlNets that lack the list `_repeated_blocks`."""
CACHE = "TORCHINDUCTOR_CACHE_DIR"
"""Name of the environment variable for the folder in which torch caches compiled code."""
KINDS_OF_BLOCKS = 32
"""Maximum number of compiled variants of a block. SD 1.5 needs six: they differ in width, and in whether the batch
has one row. The default limit of torch is eight, and a ninth variant raises an error."""
SECONDS = "seconds.json"


class Compiling:
    """The compiled blocks of one drawing pipeline, which all kinds of control images share. Not thread-safe."""

    def __init__(self, enabled: bool, device: str, offload: str = "none", title: str = "") -> None:
        """`title` is the model's name in the record of compiling times. Imports nothing heavy unless `enabled`."""
        self.refused = why_not(device, offload) if enabled else ""
        """Reason why nothing is compiled although compiling is enabled, else ""."""
        self.on = enabled and not self.refused
        self._blocks: list[Any] = []
        self._first = self._unmeasured = True
        self._known, self._key = 0.0, ""
        if self.refused:
            log.warning("Nothing is compiled: %s", self.refused)
        if self.on:
            os.environ.setdefault(CACHE, str(cache_folder()))
            import torch

            machine = torch.cuda.get_device_name() if device == "cuda" else "CPU"
            self._key = f"{title}, {machine}, torch {torch.__version__}"
            self._known = _remembered().get(self._key, 0.0)

    @property
    def spent(self) -> float:
        """Seconds that went into compiling in this process so far."""
        dynamo = sys.modules.get("torch._dynamo.utils")
        return 0.0 if dynamo is None else float(dynamo.calculate_time_spent()["total_wall_time"])

    @property
    def words(self) -> str:
        """Remark about compiling, to append to the text that says where a generator runs. "" if compiling is off."""
        if self.refused:
            return f"; not compiled: {self.refused}"
        return f"; compiled{f', {self.waits}' if self.waits else ''}" if self.on else ""

    @property
    def waits(self) -> str:
        """Reason in words why the first image takes longer than others, or "" once it is drawn."""
        if not (self.on and self._first):
            return ""
        if self._known:
            return f"the first image takes about {max(1, round(self._known))} s more"
        return "the first image takes minutes more, once on this machine"

    def add(self, network: Any) -> None:
        """Mark the blocks of a network to be compiled when they first run. Its weights must be final."""
        names = REPEATED | set(getattr(network, "_repeated_blocks", None) or ())
        for block in network.modules() if self.on else ():
            if type(block).__name__ in names and block._compiled_call_impl is None:
                block.compile(fullgraph=True, dynamic=True)
                self._blocks.append(block)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Draw an image within the context. Compile the needed blocks, and record how long that takes."""
        if not self.on:
            yield
            return
        before = self.spent
        with _sizes_apart():
            yield
        self.begun()
        if self._unmeasured and self.spent > before:
            self._unmeasured = False
            _remember(self._key, self.spent - before)

    def begun(self) -> None:
        """Record that the first step is done, so that nothing is left to compile."""
        self._first = False

    def stop(self, reason: str) -> None:
        """Stop compiling. Blocks then run uncompiled."""
        for block in self._blocks:
            block._compiled_call_impl = None  # what `Module.compile` sets, and has no method to undo
        self._blocks.clear()
        self.on, self.refused = False, reason
        log.warning("Nothing is compiled from now on: %s", reason)


def why_not(device: str, offload: str = "none") -> str:
    """Return the reason why blocks cannot be compiled on a device, in words, or "" if they can."""
    if offload == "layers":
        return "the GPU holds one layer of the model at a time"
    # On a GPU triton needs a C compiler for its launchers. On the CPU torch looks for g++, on Linux for no other.
    on_cpu = ("g++",) if sys.platform == "linux" else ("g++", "clang++")
    variable, names = ("CC", ("gcc", "clang")) if device == "cuda" else ("CXX", on_cpu)
    named = os.environ.get(variable)
    if not any(shutil.which(one) for one in ((named,) if named else names)):
        where = f"there is no {named}, which {variable} names" if named else f"there is no {' or '.join(names)}"
        return f"torch.compile needs a compiler, and {where}"
    return ""


def cannot_compile(error: BaseException) -> bool:
    """Return True if compiling failed, False if the error comes from running the compiled code."""
    dynamo = sys.modules.get("torch._dynamo.exc")
    return dynamo is not None and isinstance(error, dynamo.TorchDynamoException | dynamo.FailOnRecompileLimitHit)


def cache_folder() -> Path:
    """Return the folder for compiled code: the one that the environment names, else one beside the hub's cache."""
    from pipeline.models import hub

    return Path(os.environ.get(CACHE) or hub.cache_folder().parent / "compiled")


@contextmanager
def _sizes_apart() -> Iterator[None]:
    """Within the context, two sizes that happen to be equal, such as batch and height, are compiled as independent."""
    import torch._dynamo.config
    import torch.fx.experimental._config

    shapes: Any = torch.fx.experimental._config
    limits: Any = torch._dynamo.config
    with shapes.patch(use_duck_shape=False), limits.patch(recompile_limit=KINDS_OF_BLOCKS):
        yield


def _remembered() -> dict[str, float]:
    """Return the recorded seconds of compiling, by model, device and torch version. Empty if there is no record."""
    with suppress(OSError, ValueError):
        recorded = json.loads((cache_folder() / SECONDS).read_text(encoding="utf-8"))
        if isinstance(recorded, dict):
            return {str(key): float(value) for key, value in recorded.items() if isinstance(value, int | float)}
    return {}


def _remember(key: str, seconds: float) -> None:
    file = cache_folder() / SECONDS
    text = json.dumps({**_remembered(), key: round(seconds, 1)}, indent=1)
    with suppress(OSError):  # the next start then does not know the time, and says so
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        os.replace(part, file)  # at once, as other processes may read the file now
