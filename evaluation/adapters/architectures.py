"""Finds the network that a model under test names: of torchvision, of timm, or in a checkpoint file.

The only place here that knows those libraries; `transformers.py` knows the third one. Everything that can go wrong
with a name, a file or a download comes out as a UserError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.errors import UserError
from core.model_identity import ModelIdentity, Preprocessing, files_hash
from core.settings import UnderTestSettings
from evaluation.adapters.network import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Kind,
    Network,
    checkpoint_path,
    classes_given,
    listed,
    not_fetched,
    require_few_classes,
    squeezed,
    unknown,
)

SMALL_UNET = "small-unet"
PREPARED_BY = "prepared_by"
"""The key of a header that names the library whose own preparation of images the model was trained with."""
_WRAPPERS = ("state_dict", "model_state_dict", "model", "state")
"""Under which key training scripts put the weights."""


def find_network(wanted: UnderTestSettings) -> Network:
    """The network, its weights loaded, on the CPU. Raises UserError for what cannot be found, fetched or fitted."""
    if wanted.source == "file":
        return _from_file(wanted)
    if wanted.source == "transformers":
        from evaluation.adapters.transformers import from_transformers

        return from_transformers(wanted)
    if not wanted.name:
        raise UserError("Give the name of the model under test, such as resnet50.")
    return _from_torchvision(wanted.name) if wanted.source == "torchvision" else _from_timm(wanted.name)


def untrained(network: Network, wanted: UnderTestSettings) -> Any:
    """The module of a network anew, its weights as chance draws them."""
    if wanted.source == "transformers":
        return type(network.net)(network.net.config)
    auxiliary = any(key.startswith("aux_classifier.") for key in network.net.state_dict())
    return _empty(network.identity.name, len(network.identity.classes), auxiliary)[0]


def _from_torchvision(name: str) -> Network:
    from torchvision import models

    kinds = torchvision_names()
    if name not in kinds:
        raise unknown(name, "torchvision", list(kinds))
    try:
        weights = models.get_model_weights(name).DEFAULT
        net = models.get_model(name, weights=weights)
    except Exception as error:  # a download may fail in as many ways as there are networks
        raise not_fetched(name, "torchvision", error) from error
    shown, prepare = _of_torchvision(weights)
    return Network(
        net, ModelIdentity(name, str(weights), kinds[name], shown, tuple(weights.meta["categories"])), prepare
    )


def _from_timm(name: str) -> Network:
    import timm
    from timm.data import ImageNetInfo

    if not timm.is_model(name):
        raise unknown(name, "timm", timm.list_models())
    try:
        net = timm.create_model(name, pretrained=True)
    except Exception as error:
        raise not_fetched(name, "timm", error) from error
    info = ImageNetInfo()
    known = net.num_classes == info.num_classes()
    classes = [info.index_to_description(i) if known else f"class {i}" for i in range(net.num_classes)]
    come = net.pretrained_cfg
    shown, prepare = _of_timm(net)
    weights = str(come.get("hf_hub_id") or come.get("url") or come.get("tag") or "timm's own")
    labels = tuple(label.split(",")[0] for label in classes)
    return Network(net, ModelIdentity(name, weights, "classification", shown, labels), prepare)


def _of_torchvision(weights: Any) -> tuple[Preprocessing, Callable[[Any], Any]]:
    """How torchvision prepares images for some weights of its own."""
    prepare = weights.transforms()
    shown = Preprocessing(
        size=_size(getattr(prepare, "crop_size", ())),
        mean=tuple(getattr(prepare, "mean", ())),
        std=tuple(getattr(prepare, "std", ())),
        interpolation=getattr(getattr(prepare, "interpolation", None), "value", ""),
        more=repr(prepare),
    )
    return shown, prepare


def _of_timm(net: Any) -> tuple[Preprocessing, Callable[[Any], Any]]:
    """How timm prepares images for a model of its own."""
    from timm.data import create_transform, resolve_model_data_config

    config = resolve_model_data_config(net)
    shown = Preprocessing(
        size=_size(config["input_size"][1:]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=str(config["interpolation"]),
        more=json.dumps({name: config[name] for name in ("crop_pct", "crop_mode") if name in config}),
    )
    return shown, create_transform(**config, is_training=False)


def _from_file(wanted: UnderTestSettings) -> Network:
    if not wanted.file:
        raise UserError("Give the path of the checkpoint file of the model under test.")
    file = checkpoint_path(wanted.file)
    if not file.is_file():
        raise UserError(
            f"There is no file {wanted.file}: give the path of a checkpoint on the machine that serves this."
        )
    try:
        weights = files_hash([file])
    except OSError as error:
        raise UserError(f"{file.name} cannot be read: {error.strerror or 'it is damaged'}.") from error
    state, header = _read(file)
    name = wanted.name or header.get("architecture", "")
    if not name:
        raise UserError(f"{file.name} does not say its architecture: name it, such as resnet18.")
    classes = classes_given(wanted) or listed(header, "classes")
    if not classes:
        raise UserError(f"{file.name} does not say its classes: give their names in order, with commas between.")
    net, kind = _empty(name, len(classes), any(key.startswith("aux_classifier.") for key in state))
    require_few_classes(file.name, kind, classes)
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        reason = [line.strip() for line in str(error).splitlines()[1:] if line.strip()] or [str(error)]
        raise UserError(
            f"{file.name} does not fit {name} with {len(classes)} classes: {reason[0][:200].rstrip('.')}."
        ) from error
    shown, prepare = _prepared(name, net, kind, header)
    return Network(net, ModelIdentity(name, weights, kind, shown, classes), prepare)


def _prepared(name: str, net: Any, kind: Kind, header: Mapping[str, str]) -> tuple[Preprocessing, Callable[[Any], Any]]:
    """Preparation of images for the model of a file: that of the library in its header, else squeezed into its size."""
    library = header.get(PREPARED_BY, "")
    if library == "torchvision" and name in torchvision_names():
        from torchvision import models

        return _of_torchvision(models.get_model_weights(name).DEFAULT)
    if library == "timm" and hasattr(net, "pretrained_cfg"):
        return _of_timm(net)
    side = int(header.get("size") or (224 if kind == "classification" else 512))
    mean, std = listed(header, "mean") or IMAGENET_MEAN, listed(header, "std") or IMAGENET_STD
    shown = Preprocessing((side, side), tuple(mean), tuple(std), "bilinear", "squeezed")
    return shown, squeezed((side, side), mean, std)


def header_of(identity: ModelIdentity, source: str) -> dict[str, str]:
    """Return the header of a file with other weights of a model from `source`, by which the file is a model under test.
    The file of a transformers model says nothing: it belongs into the model's folder, which says all.
    """
    if source == "transformers":
        return {"format": "pt"}
    header = {"format": "pt", "architecture": identity.name, "classes": json.dumps(identity.classes)}
    if source in ("torchvision", "timm"):
        return header | {PREPARED_BY: source}
    shown = identity.preprocessing
    side = {"size": str(shown.size[0])} if shown.size is not None else {}
    return header | side | {"mean": json.dumps(shown.mean), "std": json.dumps(shown.std)}


def _read(file: Path) -> tuple[dict[str, Any], Mapping[str, str]]:
    """The tensors of a checkpoint and what its header says."""
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        if file.suffix == ".safetensors":
            with safe_open(file, "pt") as opened:
                return {key: opened.get_tensor(key) for key in opened.keys()}, opened.metadata() or {}  # noqa: SIM118
        # Only tensors are unpickled: a file from elsewhere must not be able to run anything.
        held = torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError) as error:
        raise UserError(f"{file.name} cannot be read as a checkpoint: it is damaged, or no such file.") from error
    except Exception as error:  # torch's own unpickling error, which refuses whatever is no tensor
        raise UserError(
            f"{file.name} holds more than weights, and that could be a program: save the state dict alone."
        ) from error
    for key in _WRAPPERS:
        if isinstance(held, dict) and isinstance(held.get(key), dict):
            held = held[key]
    if not isinstance(held, dict) or not all(isinstance(value, torch.Tensor) for value in held.values()):
        raise UserError(f"{file.name} holds no weights: save the state dict of the model.")
    return {str(key).removeprefix("module."): value for key, value in held.items()}, {}


def _empty(name: str, classes: int, auxiliary: bool) -> tuple[Any, Kind]:
    """An architecture without weights. torchvision is asked first, then timm."""
    if name == SMALL_UNET:
        from evaluation.adapters.small_unet import SmallUNet

        return SmallUNet(classes), "segmentation"
    kinds = torchvision_names()
    if name in kinds:
        from torchvision import models

        more: dict[str, Any] = {}
        if kinds[name] == "segmentation":
            more = {"weights_backbone": None, "aux_loss": auxiliary}
        return models.get_model(name, weights=None, num_classes=classes, **more), kinds[name]
    import timm

    if timm.is_model(name):
        return timm.create_model(name, pretrained=False, num_classes=classes), "classification"
    raise unknown(name, "torchvision or timm", [SMALL_UNET, *kinds, *timm.list_models()])


def torchvision_names() -> dict[str, Kind]:
    """The classification and segmentation models of torchvision."""
    from torchvision import models

    names: dict[str, Kind] = dict.fromkeys(models.list_models(module=models), "classification")
    return names | dict.fromkeys(models.list_models(module=models.segmentation), "segmentation")


def _size(size: Sequence[int]) -> tuple[int, int] | None:
    """Width and height of what torchvision and timm give as height and width, or as a side; None for nothing."""
    return (int(size[-1]), int(size[0])) if size else None
