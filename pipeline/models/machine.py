"""Capacity of a machine: memory, GPU and disk, and whether models fit. The rules are pure functions of figures."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace

from core.model_sections import Weights, in_bytes
from pipeline.models.model_memory import memory, memory_of
from pipeline.profiles.image_sections import EDITOR
from pipeline.profiles.profile import Profile

SLOW_FROM = 2_000_000_000
"""Minimum bytes of weights for a model to be called slow on a CPU."""

FOR_A_GPU = 10_000_000_000
"""Bytes of weights at full precision. A profile counts as made for a GPU if one stage needs as many or more."""


@dataclass(frozen=True)
class Machine:
    """Capacity of a machine, in bytes."""

    memory: int
    memory_free: int
    disk_free: int
    """Free bytes on the disk of the hub's cache."""
    cache: str
    """The folder of the hub's cache."""
    gpu: str = ""
    """Name of the GPU; "" if none can be used."""
    gpu_memory: int = 0
    gpu_free: int = 0

    def in_words(self) -> str:
        gpu = f"{self.gpu} with {in_bytes(self.gpu_memory)} ({in_bytes(self.gpu_free)} free)" if self.gpu else "no GPU"
        return (
            f"This machine: {in_bytes(self.memory)} of memory ({in_bytes(self.memory_free)} free), {gpu}, "
            f"{in_bytes(self.disk_free)} free on the disk of {self.cache}."
        )


def share_cores(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let torch's threads sleep while they wait, unless the `environment` says otherwise. Call before torch is
    imported. Threads that wait busily are a tenth faster on an idle machine but slow other programs: two sources of the
    demo took 100 to 175 s instead of 18 to 30 s.
    """
    environment.setdefault("OMP_WAIT_POLICY", "passive")


def this_machine() -> Machine:
    """Measure this machine. Takes a second or two, in which torch looks for a GPU."""
    import torch

    from pipeline.models.hub import cache_folder, free_on_disk

    cache = cache_folder()
    plain = Machine(*memory(), free_on_disk(cache), str(cache))
    if not torch.cuda.is_available():
        return plain
    free, total = torch.cuda.mem_get_info()
    return replace(plain, gpu=torch.cuda.get_device_name(), gpu_memory=int(total), gpu_free=int(free))


def memory_in_use(reset: bool = False) -> tuple[int, int]:
    """Return bytes of memory: used by this process and its children now, and the GPU's peak since the last `reset`."""
    import psutil
    import torch

    this, used = psutil.Process(), 0
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):  # the process may have ended
            used += process.memory_info().rss
    if not torch.cuda.is_available():
        return used, 0
    if reset:
        torch.cuda.reset_peak_memory_stats()
    return used, int(torch.cuda.max_memory_allocated())


def _runs_on_gpu(weights: Weights, machine: Machine) -> bool:
    return bool(machine.gpu) and getattr(weights, "gpu_layers", 1) != 0


def model_fits(weights: Weights, machine: Machine, on_disk: int = 0) -> str:
    """Return in words whether a machine has memory for a model. `on_disk` (bytes) counts if the profile has no size."""
    gpu = _runs_on_gpu(weights, machine)
    needed = memory_of(weights, gpu) or on_disk
    if not needed:
        return "not known: the profile does not say what it needs"
    if gpu:
        if needed <= machine.gpu_memory:
            return "fits" + _free_now(needed, machine.gpu_free)
        problem = f"does not fit the GPU: needs {in_bytes(needed)}, there are {_there(machine.gpu_memory)}"
        on_cpu = (memory_of(weights, False) or on_disk) <= machine.memory
        return problem + ("; on the CPU (CUDA_VISIBLE_DEVICES=) it would, slowly" if on_cpu else "")
    if needed <= machine.memory:
        return f"fits on the CPU{', slowly' if needed >= SLOW_FROM else ''}" + _free_now(needed, machine.memory_free)
    return f"does not fit: needs {in_bytes(needed)}, there are {_there(machine.memory)}"


def profile_fits(profile: Profile, machine: Machine, on_disk: Mapping[str, int]) -> str:
    """Return in words whether a machine has the memory for a profile: for all models, or for one stage at a time.
    `on_disk` has the bytes of the files on this machine, by role.
    """
    models = profile.weights()
    together = _most(models, machine, on_disk)
    stages = [_most(stage, machine, on_disk) for stage in _stages(models)]
    room = (machine.gpu_memory, machine.memory)
    slowly = ", slowly" if max(sum(stage) for stage in stages) >= SLOW_FROM else ""
    where = "fits" if machine.gpu else f"fits on the CPU{slowly}"
    if all(need <= available for need, available in zip(together, room, strict=True)):
        part = ", the language model on the CPU, slowly" if machine.gpu and together[1] >= SLOW_FROM else ""
        return where + part
    if all(need <= available for stage in stages for need, available in zip(stage, room, strict=True)):
        return f"{where}, one stage at a time: what the last stage needed is freed for the next"
    worst = next(
        (need, available, kind)
        for stage in stages
        for need, available, kind in zip(stage, room, ("GPU memory", "memory"), strict=True)
        if need > available
    )
    return f"does not fit: one stage needs {in_bytes(worst[0])} of {worst[2]}, there are {_there(worst[1])}"


def without_gpu(profile: Profile, machine: Callable[[], Machine] | None = None) -> str:
    """Return a warning (one sentence) if a profile made for a GPU would run without a GPU, else "". The machine is
    inspected only for a GPU profile, as that takes a second or two.
    """
    models = profile.weights()
    bare = Machine(0, 0, 0, "")
    needed = max(_most(stage, bare, {})[1] for stage in _stages(models))
    if needed < FOR_A_GPU:
        return ""
    host = (machine or this_machine)()
    if host.gpu:
        return ""
    room = f"this machine has {'' if host.memory >= needed else 'only '}{in_bytes(host.memory)}"
    return (
        f"No GPU was found: on the CPU the profile {profile.name} takes up to {in_bytes(needed)} of memory at a time "
        f"({room}), and an image takes minutes; the profile cpu is the one for machines without a GPU."
    )


def _stages(models: Mapping[str, Weights]) -> list[dict[str, Weights]]:
    """Return groups of models, by role. The models of a group are needed at the same time."""
    drawing = [role for role in models if role not in ("captioner", "language model", "sentence model", EDITOR)]
    groups = (["captioner"], ["language model", "sentence model"], drawing, [EDITOR, "embedder"])
    return [{role: models[role] for role in group if role in models} for group in groups]


def _most(models: Mapping[str, Weights], machine: Machine, on_disk: Mapping[str, int]) -> tuple[int, int]:
    """Return the bytes of GPU memory and of main memory that models need. One ControlNet and one detector are counted:
    the largest of each kind.
    """
    gpu = memory = 0
    alternatives: dict[str, int] = {}
    for role, weights in models.items():
        on_gpu = _runs_on_gpu(weights, machine)
        need = memory_of(weights, on_gpu) or on_disk.get(role, 0)
        kind = next((kind for kind in ("ControlNet", "detector") if role.startswith(kind)), "")
        if kind:
            alternatives[kind] = max(alternatives.get(kind, 0), need)
        elif on_gpu:
            gpu += need
        else:
            memory += need
    one_each = sum(alternatives.values())
    return (gpu + one_each, memory) if machine.gpu else (gpu, memory + one_each)


def _free_now(needed: int, free: int) -> str:
    return "" if needed <= free else f" once other programs leave room: {in_bytes(free)} are free now"


def _there(number: int) -> str:
    return in_bytes(number).removesuffix(" GB") if number >= 1_000_000_000 else in_bytes(number)
