"""SHA-256 of a model's weights. Programs that read image files look up models by this hash. Downloads nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from core.images import known_file_hash
from core.model_sections import ClipEmbedder, Weights

FILES = (
    "diffusion_pytorch_model.safetensors",
    "diffusion_pytorch_model.fp16.safetensors",
    "diffusion_pytorch_model.bin",
)
"""File names that a network's weights may have in a diffusers folder."""
TRANSFORMERS_FILES = ("model.safetensors", "pytorch_model.bin")
"""File names that weights may have in a transformers folder."""


def embedder_key(section: ClipEmbedder) -> str:
    """Return the key of an embedder's stored vectors: its name, and a hash or commit of its weights."""
    weights = weights_hash(section, files=TRANSFORMERS_FILES)[:16] if section.path else section.revision
    return f"{section.title}@{weights}"


def weights_hash(weights: Weights, part: str = "", files: Sequence[str] = FILES) -> str:
    """Return the sha256 of the first of `files` that exists in the weights' folder `part`, or "" if none exists."""
    found = next((file for name in files if (file := _file(weights, f"{part}/{name}" if part else name))), None)
    if found is None:
        return ""
    # The hub's cache names a large file by its hash, so gigabytes need not be read.
    blob = found.resolve().name
    if re.fullmatch(r"[0-9a-f]{64}", blob):
        return blob
    try:
        return known_file_hash(found)
    except OSError:
        return ""


def _file(weights: Weights, name: str) -> Path | None:
    folder = weights.local()
    if folder is not None:
        return folder / name if (folder / name).is_file() else None
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(weights.hub, name, revision=weights.revision)
    return Path(cached) if isinstance(cached, str) else None
