"""Offloading of a pipeline without a GPU."""

from __future__ import annotations

from typing import Any


def by_layers_on_the_cpu(pipe: Any) -> None:
    """Offload as `enable_sequential_cpu_offload` does, with the CPU in the place of the GPU."""
    import torch
    from accelerate import cpu_offload

    for name, model in pipe.components.items():
        if isinstance(model, torch.nn.Module) and name not in pipe._exclude_from_cpu_offload:
            cpu_offload(model, torch.device("cpu"), offload_buffers=len(model._parameters) > 0)
