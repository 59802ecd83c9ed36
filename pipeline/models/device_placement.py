"""Chooses a generator's device, precision and offloading by free memory and the size of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from core.errors import CannotLoad
from core.model_sections import DType, in_bytes
from pipeline.models.model_memory import WORK, free_memory

if TYPE_CHECKING:
    import torch

Offload = Literal["none", "models", "layers"]
_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
"""Bytes that one parameter takes at each precision."""
_DRAWING = ("unet", "transformer")
"""Names that the folder of a pipeline's denoising network may have."""
_OFFLOADS: dict[Offload, str] = {
    "none": "no offload",
    "models": "one part at a time on the GPU",
    "layers": "one layer at a time on the GPU, which is slow",
}


@dataclass(frozen=True)
class Gpu:
    """The GPU's free memory and abilities."""

    free: int
    """Unused GPU memory in bytes."""
    bfloat16: bool = False


@dataclass
class Placing:
    """Device, precision and offloading of a generator."""

    device: str
    dtype: str
    offload: Offload
    reason: str

    @property
    def words(self) -> str:
        """Summary such as "cuda, bfloat16, no offload: 61 GB free, 18 GB needed"."""
        how = f", {_OFFLOADS[self.offload]}" if self.device != "cpu" else ""
        return f"{self.device}, {self.dtype}{how}: {self.reason}"

    @property
    def plain_words(self) -> str:
        """Text for a page, as in "on the GPU, half precision: 61 GB free, 18 GB needed"."""
        parts = ["on the CPU" if self.device == "cpu" else "on the GPU"]
        full = self.dtype == "float32"
        if self.device != "cpu" or not full:  # full precision is usual on a CPU, and not mentioned
            parts.append("full precision" if full else "half precision")
        if self.offload != "none":
            parts.append(_OFFLOADS[self.offload].replace("on the GPU", "on it"))
        return f"{', '.join(parts)}: {self.reason}"

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype


def place(
    gpu: Gpu | None,
    parts: Mapping[str, int],
    requested: DType = "auto",
    likes: str = "float16",
    by_layers: bool = True,
) -> Placing:
    """Choose device, precision and offloading of a model. `parts` has each part's number of parameters. If it is empty,
    the whole model goes to the GPU. `likes` is the model's half precision. `by_layers` is True if the model can run one
    layer at a time. Even then ControlNets stay on the GPU. Raises CannotLoad if nothing fits into free memory.
    """
    if gpu is None:
        return Placing("cpu", "float32" if requested == "auto" else requested, "none", "no GPU was found")
    half = "float32" if likes == "bfloat16" and not gpu.bfloat16 else likes
    dtype = half if requested == "auto" else requested
    size = _BYTES[dtype]
    net = sum(count for name, count in parts.items() if name.startswith("ControlNet"))
    drawing = net + max(parts.get(name, 0) for name in _DRAWING)
    needs: dict[Offload, int] = {
        "none": sum(parts.values()) * size + WORK,
        "models": max(drawing, *parts.values(), 0) * size + WORK,
    }
    if by_layers:
        needs["layers"] = net * size + WORK
    offload = next((way for way, need in needs.items() if need <= gpu.free), None)
    if not parts:
        offload = "none"
    if offload is None:
        raise CannotLoad(
            f"Drawing needs {in_bytes(min(needs.values()))} of GPU memory, even with one part at a time, "
            f"and {in_bytes(gpu.free)} are free: end other programs on the GPU, take a smaller profile, or draw on "
            "the CPU, slowly (CUDA_VISIBLE_DEVICES=)."
        )
    needed = f", {in_bytes(needs['none'])} needed" if parts else ""
    return Placing("cuda", dtype, offload, f"{in_bytes(gpu.free)} free{needed}")


def this_gpu() -> Gpu | None:
    """Return the GPU with its present free memory, or None without one."""
    import torch

    return Gpu(free_memory("cuda"), torch.cuda.is_bf16_supported()) if torch.cuda.is_available() else None


def parameters(folder: Path, variant: str = "") -> dict[str, int]:
    """Count the parameters in safetensors files, by subfolder, or in a single file (key "."). Reads only headers."""
    if folder.is_file():
        return {".": _count(folder)}
    by_part: dict[str, int] = {}
    for file in sorted(folder.rglob("*.safetensors")):
        # "model.fp16" belongs to the variant fp16, "model-00001-of-00002" to no variant.
        if file.stem.partition(".")[2].partition("-")[0] != variant:
            continue
        part = str(file.parent.relative_to(folder))
        by_part[part] = by_part.get(part, 0) + _count(file)
    return by_part


def _count(file: Path) -> int:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np") as opened:
            names = opened.keys()
            return sum(prod(opened.get_slice(name).get_shape()) for name in names)
    except SafetensorError:
        return 0
