"""Locations of a model's weights, without network access: a file, torchvision's cache, or the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from core.errors import UserError
from core.model_sections import ROOT, WebFile, Weights
from core.settings import UnderTestSettings
from evaluation.adapters.architectures import timm_weights, torchvision_names
from evaluation.adapters.network import checkpoint_path, unknown
from evaluation.adapters.transformers import FILES

_BYTES = 4
"""Bytes per parameter, as models under test run at full precision."""


def weights_of(settings: UnderTestSettings) -> Weights:
    """Return the location of a model's weights. Raises UserError for an unknown name or an impossible path."""
    if settings.source == "http":
        raise UserError(
            f"The model at {settings.address} runs on its server, which keeps the weights: there is nothing to fetch."
        )
    if settings.source in ("file", "onnx") or (settings.source == "transformers" and settings.file):
        file = checkpoint_path(settings.file)
        return Weights(path=str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file))
    if not settings.name:
        raise UserError("Give the name of the model under test, such as resnet50.")
    if settings.source == "transformers":
        return _of_transformers(settings)
    return _of_torchvision(settings) if settings.source == "torchvision" else _of_timm(settings)


def _of_torchvision(settings: UnderTestSettings) -> Weights:
    from torchvision import models

    known = torchvision_names()
    if settings.name not in known:
        raise unknown(settings.name, "torchvision", list(known))
    chosen = models.get_model_weights(settings.name).DEFAULT
    memory = int(chosen.meta["num_params"]) * _BYTES
    return WebFile(
        called=settings.title,
        url=chosen.url,
        path=str(_cached(chosen.url)),
        revision=chosen.name,
        bytes=round(chosen.meta["_file_size"] * 2**20),  # torchvision's own figure
        memory_half=memory,
        memory_full=memory,
        licence=str(chosen.meta.get("license", "")),
    )


def _of_transformers(settings: UnderTestSettings) -> Weights:
    repository, _, revision = settings.name.partition("@")
    try:
        return Weights(hub=repository, revision=revision or "main", files=FILES)
    except ValidationError as error:
        raise UserError(
            f"{settings.name!r} is no repository of the hub: give owner/name, such as google/vit-base-patch16-224."
        ) from error


def _of_timm(settings: UnderTestSettings) -> Weights:
    import timm
    import torch
    from timm.models._hub import hf_split  # timm's own parser of a repository with a revision

    config = timm_weights(settings.name)
    with torch.device("meta"):  # to count parameters without memory
        net = timm.create_model(settings.name, pretrained=False)
    sizes: dict[str, Any] = dict.fromkeys(
        ("bytes", "memory_half", "memory_full"), sum(tensor.numel() for tensor in net.state_dict().values()) * _BYTES
    )
    sizes["licence"] = str(config.license or "")
    if config.hf_hub_id:
        hub, revision = hf_split(config.hf_hub_id)
        # timm itself prefers safetensors.
        named = Path(config.hf_hub_filename or "model.safetensors").with_suffix(".safetensors").name
        return Weights(hub=hub, revision=revision or "main", files=(named,), **sizes)
    if not config.url:
        raise UserError(f"timm does not say where the weights of {settings.name} are: give a checkpoint file.")
    return WebFile(called=settings.title, url=config.url, path=str(_cached(config.url)), **sizes)


def _cached(url: str) -> Path:
    import torch

    return Path(torch.hub.get_dir()).expanduser() / "checkpoints" / Path(urlsplit(url).path).name
