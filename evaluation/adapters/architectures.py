"""Find the network and the weights of a model under test. The user names a network of torchvision or timm, or gives a
checkpoint file. Raises UserError for an unknown name, a bad file or a failed download. See also `transformers.py`.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from core.errors import UserError
from core.model_identity import Assumptions, ModelIdentity, Preprocessing
from core.model_sections import ROOT, WebFile, Weights
from core.settings import UnderTestSettings
from core.types import TaskKind
from core.words import count_of
from evaluation.adapters import network as shared
from evaluation.adapters.network import GIVEN, Network
from evaluation.adapters.transformers import FILES, from_transformers

SMALL_UNET = "small-unet"
_BYTES = 4
"""Bytes of one model parameter. Models under test run with 32-bit numbers."""
PREPARED_BY = "prepared_by"
"""Key in a checkpoint's header. Its value is the library that prepared the training images, such as timm."""
_WRAPPERS = ("state_dict", "model_state_dict", "model", "state")
"""Keys under which training scripts store the weights."""
_SQUEEZED = "squeezed"
_LIBRARIES = ("torchvision", "timm")
"""Libraries with architectures. If both have an architecture, “timm:resnet50” selects the one of timm."""


def find_network(settings: UnderTestSettings) -> Network:
    """Return the network with its weights, on the CPU. Raises UserError if the weights are missing or do not fit."""
    shared.require_read(settings)
    if settings.source == "file":
        return _from_file(settings)
    if settings.source == "transformers":
        return from_transformers(settings)
    return _from_torchvision(settings) if settings.source == "torchvision" else _from_timm(settings)


def untrained(network: Network, settings: UnderTestSettings) -> Any:
    """Return a copy of a network with random weights, as a torch module."""
    if settings.source == "transformers":
        return type(network.net)(network.net.config)
    auxiliary = any(key.startswith("aux_classifier.") for key in network.net.state_dict())
    name = network.identity.name
    if settings.source in _LIBRARIES:
        name = f"{settings.source}:{name}"
    return _empty(name, len(network.identity.classes), auxiliary)[0]


def _from_torchvision(settings: UnderTestSettings) -> Network:
    from torchvision import models

    name = settings.name
    weights = _torchvision_weights(name)
    try:
        net = models.get_model(name, weights=weights)
    except Exception as error:  # a download can fail with any kind of error
        raise shared.not_fetched(name, "torchvision", error) from error
    shown, prepare = _of_torchvision(weights)
    classes, origin = shared.named_classes(name, settings, weights.meta["categories"], "torchvision")
    shown = shared.with_assumptions(shown, origin, classes)
    return Network(net, ModelIdentity(name, str(weights), torchvision_names()[name], shown, classes), prepare)


def _from_timm(settings: UnderTestSettings) -> Network:
    import timm
    from timm.data import ImageNetInfo

    name = settings.name
    _timm_weights(name)
    try:
        net = timm.create_model(name, pretrained=True)
    except Exception as error:
        raise shared.not_fetched(name, "timm", error) from error
    info = ImageNetInfo()
    known = net.num_classes == info.num_classes()
    labels = [info.index_to_description(i) if known else f"class {i}" for i in range(net.num_classes)]
    config = net.pretrained_cfg
    shown, prepare = _of_timm(net)
    weights = str(config.get("hf_hub_id") or config.get("url") or config.get("tag") or "timm's own")
    label_origin = "ImageNet as timm has it" if known else "their numbers, since timm does not say them"
    classes, origin = shared.named_classes(name, settings, [label.split(",")[0] for label in labels], label_origin)
    shared.require_classes(name, "classification", classes)
    shown = shared.with_assumptions(shown, origin, classes)
    return Network(net, ModelIdentity(name, weights, "classification", shown, classes), prepare)


def _torchvision_weights(name: str) -> Any:
    from torchvision import models

    if name not in (known := torchvision_names()):
        raise shared.unknown(name, "torchvision", list(known))
    return models.get_model_weights(name).DEFAULT


def _timm_weights(name: str) -> Any:
    """Return timm's description of a model's weights. Raises UserError if the name is unknown or has no weights."""
    import timm
    from timm.models import get_pretrained_cfg

    if not timm.is_model(name):
        raise shared.unknown(name, "timm", timm.list_models())
    architecture, _, tag = name.partition(".")
    tags = [one.partition(".")[2] for one in timm.list_pretrained(f"{architecture}.*")]
    try:
        config = get_pretrained_cfg(name)
    except RuntimeError as error:
        hint = f"it has {', '.join(tags)}" if tags else "it has no weights at all"
        raise UserError(f"timm has no weights {tag[:80]!r} for {architecture}: {hint}.", field="model") from error
    if config is None or not config.has_weights:
        raise UserError(f"timm has no weights for {name}: choose a name from timm.list_pretrained().", field="model")
    return config


def _of_torchvision(weights: Any) -> tuple[Preprocessing, Callable[[Any], Any]]:
    prepare = weights.transforms()
    scaling = f"shorter side scaled to {prepare.resize_size[0]} pixels"
    if crop := getattr(prepare, "crop_size", ()):
        scaling += f", then the middle {crop[-1]} × {crop[0]} taken"
    shown = Preprocessing(
        size=_size(getattr(prepare, "crop_size", ())),
        mean=tuple(getattr(prepare, "mean", ())),
        std=tuple(getattr(prepare, "std", ())),
        interpolation=getattr(getattr(prepare, "interpolation", None), "value", ""),
        more=repr(prepare),
        assumed=Assumptions(scaling),
    )
    return shown, prepare


def _of_timm(net: Any) -> tuple[Preprocessing, Callable[[Any], Any]]:
    from timm.data import create_transform, resolve_model_data_config

    config = resolve_model_data_config(net)
    height, width = config["input_size"][1:]
    side, mode = math.floor(min(height, width) / config["crop_pct"]), config.get("crop_mode", "center")
    to_side = {"squash": f"scaled to {side} × {side} pixels, whatever its shape", "border": f"longer side to {side}"}
    scaling = to_side.get(mode, f"shorter side scaled to {side} pixels") + f", then the middle {width} × {height} taken"
    shown = Preprocessing(
        size=_size(config["input_size"][1:]),
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation=str(config["interpolation"]),
        more=json.dumps({name: config[name] for name in ("crop_pct", "crop_mode") if name in config}),
        assumed=Assumptions(scaling),
    )
    return shown, create_transform(**config, is_training=False)


def _from_file(settings: UnderTestSettings) -> Network:
    file, weights = shared.file_of(settings)
    state, header = _read(file)
    named = settings.name or header.get("architecture", "")
    if not named:
        raise UserError(f"{file.name} does not say its architecture: name it, such as resnet18.")
    typed = shared.classes_given(settings)
    classes = typed or shared.listed(header, "classes")
    if not classes:
        raise UserError(f"{file.name} does not say its classes: give their names in order, with commas between.")
    name, remarks = _chosen_library(named, header.get(PREPARED_BY, ""), state, len(classes))
    net, kind = _empty(name, len(classes), any(key.startswith("aux_classifier.") for key in state))
    shared.require_classes(file.name, kind, classes)
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(
            f"{file.name} does not fit {named} with {len(classes)} classes: {_misfit(net, state)}. Give the "
            "architecture and the classes of the trained model. If no library has the architecture, use an ONNX file."
        ) from error
    shown, prepare = _prepared(name, net, kind, header, settings, file.name)
    shown = shared.with_assumptions(shown, GIVEN if typed else "the file", classes, *remarks)
    return Network(net, ModelIdentity(name, weights, kind, shown, tuple(classes)), prepare)


def _misfit(net: Any, state: Mapping[str, Any]) -> str:
    own_state = net.state_dict()
    lacking, foreign = ([*keys.keys() - other.keys()] for keys, other in ((own_state, state), (state, own_state)))
    shaped = [name for name in own_state.keys() & state.keys() if own_state[name].shape != state[name].shape]
    rows = (
        (lacking, "is", "missing"),
        (foreign, "belongs", "to another network"),
        (shaped, "has", "another shape"),
    )
    return "; ".join(
        f"{count_of(len(names), 'weight', verb)} {words}, such as {min(names)}" for names, verb, words in rows if names
    )


def _chosen_library(
    named: str, prepared_by: str, state: Mapping[str, Any], classes: int
) -> tuple[str, tuple[str, ...]]:
    """Return the name of the architecture to load, and remarks if its library (torchvision or timm) is unclear."""
    library, _, plain = named.partition(":")
    if library not in _LIBRARIES:
        library, plain = prepared_by, named
    if plain not in torchvision_names():
        return named, ()
    import timm

    if not timm.is_model(plain):
        return named, ()
    timms = f"timm:{plain}"
    if library in _LIBRARIES:
        return (timms if library == "timm" else plain), ()
    fits = [name for name in (plain, timms) if _fits(name, state, classes)]
    both = f"torchvision and timm both have an architecture {plain}"
    if len(fits) == 1:
        return fits[0], (f"{both}; these weights fit {'timm' if fits == [timms] else 'torchvision'}'s alone.",)
    which = "these weights fit both" if fits else "these weights fit neither"
    return plain, (f"{both}; {which}, and torchvision's was taken. Name {timms} for the other.",)


def _fits(name: str, state: Mapping[str, Any], classes: int) -> bool:
    import torch

    with torch.device("meta"):  # for a comparison that takes no memory
        net, _ = _empty(name, classes, any(key.startswith("aux_classifier.") for key in state))
    own_state = net.state_dict()
    return own_state.keys() == state.keys() and all(own_state[key].shape == state[key].shape for key in own_state)


def _prepared(
    name: str, net: Any, kind: TaskKind, header: Mapping[str, str], settings: UnderTestSettings, called: str
) -> tuple[Preprocessing, Callable[[Any], Any]]:
    """Return how images are prepared, as a description and as a function. If the header of the file names a library,
    that library's preparation is used. Otherwise images are scaled to one size, and normalised.
    """
    library = header.get(PREPARED_BY, "")
    typed = [one for one in ("size", "mean", "std") if getattr(settings, one)]
    plain = name.partition(":")[2] or name
    known = library == "torchvision" and plain in torchvision_names()
    known |= library == "timm" and hasattr(net, "pretrained_cfg")
    if known and typed:
        raise UserError(
            f"{library} prepares the images of {called} itself, as it did during training: leave “{typed[0]}” empty.",
            field=typed[0],
        )
    if known:
        return _of_timm(net) if library == "timm" else _of_torchvision(_torchvision_weights(plain))
    side = _only_side(net) or (224 if kind == "classification" else 512)
    size = shared.size_given(settings.size or header.get("size", "")) or (side, side)
    mean = shared.numbers_given(settings.mean, header, "mean") or shared.IMAGENET_MEAN
    std = shared.numbers_given(settings.std, header, "std") or shared.IMAGENET_STD
    if len(mean) != 3 or len(std) != 3:
        raise UserError(f"{called} needs a mean and a std, each with three numbers: give both.", field="mean")
    shown = Preprocessing(size, mean, std, "bilinear", _SQUEEZED, Assumptions(shared.squeezed_words(size)))
    return shown, shared.squeezed(size, mean, std)


def _only_side(net: Any) -> int:
    """Return the side in pixels of the only image size that a network accepts; 0 if it has no such limit."""
    config = getattr(net, "pretrained_cfg", None) or {}  # of timm
    if config.get("fixed_input_size") and len(config.get("input_size") or ()) == 3:
        return int(config["input_size"][-1])
    side = getattr(net, "image_size", 0)  # of torchvision's vision transformers
    return side if isinstance(side, int) else 0


def header_of(identity: ModelIdentity, source: str) -> dict[str, str]:
    """Return the header for a file of retrained weights. `source` is the library or file type of the original model."""
    if source == "transformers":  # other files in the model's folder say the rest
        return {"format": "pt"}
    header = {"format": "pt", "architecture": identity.name, "classes": json.dumps(identity.classes)}
    shown = identity.preprocessing
    if source not in _LIBRARIES and shown.more != _SQUEEZED:  # a file whose images a library prepares
        source = "timm" if shown.more.startswith("{") else "torchvision"
    if source in _LIBRARIES:
        return header | {PREPARED_BY: source}
    size = {"size": "x".join(map(str, shown.size))} if shown.size is not None else {}
    return header | size | {"mean": json.dumps(shown.mean), "std": json.dumps(shown.std)}


def _is_torchscript(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def _read(file: Path) -> tuple[dict[str, Any], Mapping[str, str]]:
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        if file.suffix == ".safetensors":
            with safe_open(file, "pt") as opened:
                return {key: opened.get_tensor(key) for key in opened.keys()}, opened.metadata() or {}  # noqa: SIM118
        # Unpickle tensors only: a file from elsewhere must not be able to run code.
        content = torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, ValueError) as error:
        if _is_torchscript(file):
            raise UserError(
                f"{file.name} is a TorchScript file, which contains a program. Programs are not run: export the "
                "model as ONNX, or save its state dict."
            ) from error
        raise UserError(f"{file.name} cannot be read as a checkpoint: it is damaged or of another format.") from error
    except Exception as error:  # torch's own unpickling error, which refuses everything but tensors
        raise UserError(
            f"{file.name} contains more than weights, possibly a program: save only the state dict."
        ) from error
    for key in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise UserError(f"{file.name} contains no weights: save the model's state dict.")
    return {str(key).removeprefix("module."): value for key, value in content.items()}, {}


def _empty(name: str, classes: int, auxiliary: bool) -> tuple[Any, TaskKind]:
    """Return a network with random weights and its task. Names without a library are searched in torchvision first."""
    if name == SMALL_UNET:
        from evaluation.adapters.small_unet import SmallUNet

        return SmallUNet(classes), "segmentation"
    library, _, plain = name.partition(":")
    if library not in _LIBRARIES:
        library, plain = "", name
    kinds = torchvision_names() if library != "timm" else {}
    if plain in kinds:
        from torchvision import models

        more: dict[str, Any] = {}
        if kinds[plain] == "segmentation":
            more = {"weights_backbone": None, "aux_loss": auxiliary}
        return models.get_model(plain, weights=None, num_classes=classes, **more), kinds[plain]
    import timm

    if library != "torchvision" and timm.is_model(plain):
        return timm.create_model(plain, pretrained=False, num_classes=classes), "classification"
    known = [SMALL_UNET, *kinds, *(timm.list_models() if library != "torchvision" else ())]
    raise shared.unknown(plain, library or "torchvision or timm", known)


def torchvision_names() -> dict[str, TaskKind]:
    """Map the names of torchvision's classification and segmentation models to their tasks."""
    from torchvision import models

    names: dict[str, TaskKind] = dict.fromkeys(models.list_models(module=models), "classification")
    return names | dict.fromkeys(models.list_models(module=models.segmentation), "segmentation")


def _size(size: Sequence[int]) -> tuple[int, int] | None:
    """Return (width, height) for a size of torchvision or timm: (height, width) or (side,). None if it is empty."""
    return (int(size[-1]), int(size[0])) if size else None


def weights_of(settings: UnderTestSettings) -> Weights:
    """Return where a model's weights are. Raises UserError for an unknown name or an invalid path."""
    if settings.source == "http":
        raise UserError(f"The model at {settings.address} runs on its server: there are no weights to download.")
    if settings.source in ("file", "onnx") or (settings.source == "transformers" and settings.file):
        file = shared.checkpoint_path(settings.file)
        return Weights(path=str(file.relative_to(ROOT) if file.is_relative_to(ROOT) else file))
    shared.require_named(settings)
    if settings.source == "transformers":
        repository, _, revision = settings.name.partition("@")
        try:
            return Weights(hub=repository, revision=revision or "main", files=FILES)
        except ValidationError as error:
            raise UserError(
                f"{settings.name!r} is no repository of the hub: give owner/name, such as google/vit-base-patch16-224."
            ) from error
    return _place_in_torchvision(settings) if settings.source == "torchvision" else _place_in_timm(settings)


def _place_in_torchvision(settings: UnderTestSettings) -> Weights:
    chosen = _torchvision_weights(settings.name)
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


def _place_in_timm(settings: UnderTestSettings) -> Weights:
    import timm
    import torch
    from timm.models._hub import hf_split  # timm's own parser of a repository with a revision

    config = _timm_weights(settings.name)
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
