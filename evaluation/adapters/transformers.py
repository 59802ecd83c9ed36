"""Classifiers and segmenters of transformers, from a repository on the hub or a folder. Only safetensors are read, and
no code of a model is run. Segmenters return logits at about a quarter of the size, and callers enlarge them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import UserError, out_of_memory
from core.loading import LOADING
from core.model_identity import Assumptions, ModelIdentity, Preprocessing, files_hash
from core.settings import UnderTestSettings
from core.types import TaskKind
from evaluation.adapters import network as shared
from evaluation.adapters.network import Network

FILES = ("*.json", "*.safetensors")
"""Patterns of the files to download: weights and settings, but no code and no pickle files."""
CLASSES: dict[str, TaskKind] = {"ForImageClassification": "classification", "ForSemanticSegmentation": "segmentation"}
"""Tasks by the ending of a model's class name. Other models are not supported."""
_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def from_transformers(settings: UnderTestSettings) -> Network:
    """Return the network on the CPU. Raises UserError if the download fails, or the model is for another task."""
    folder, called, weights = folder_of(settings)
    config = _config(folder, called)
    kind = _kind(config, called)
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{called} has no weights in safetensors, and other files could contain a program: save it again with "
            "save_pretrained of a current transformers."
        )
    net = _load(folder, called, kind, own_code=bool(config.get("auto_map")))
    labels = net.config.id2label
    _require_one_of_all(net.config, called)
    own = [str(labels[number]) for number in sorted(labels)]
    classes, origin = shared.named_classes(called, settings, own, "config.json")
    shared.require_classes(called, kind, classes)
    processor = _processor(folder, called)

    def prepare(image: Any) -> Any:
        try:
            return processor(images=image, return_tensors="pt")["pixel_values"][0]
        except Exception as error:  # of transformers, which checks the configured size only here
            if out_of_memory(error):
                raise
            why = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
            raise UserError(
                f"The image processor of {called} cannot prepare an image of {image.width} × {image.height} pixels: "
                f'{why}. Correct the size in preprocessor_config.json, such as {{"height": 224, "width": 224}}.',
                field="size",
            ) from error

    shown = shared.with_assumptions(_shown(processor.to_dict()), origin, classes)
    name = type(net).__name__ if settings.file else called  # a folder's name says nothing about the model
    return Network(net, ModelIdentity(name, weights, kind, shown, classes), prepare)


def folder_of(settings: UnderTestSettings) -> tuple[Path, str, str]:
    """Return the folder of the files, the model's name, and an id of its weights. Raises UserError if the folder is
    missing, or the repository cannot be fetched.
    """
    if settings.file:
        folder = shared.checkpoint_path(settings.file)
        if not folder.is_dir():
            raise UserError(
                f"There is no folder {settings.file}: give one that save_pretrained wrote, on the machine of the "
                "studio, or the name of a repository.",
                field="file",
            )
        files = [file for pattern in FILES for file in sorted(folder.glob(pattern))]
        return folder, folder.resolve().name, files_hash(files) if files else ""
    from huggingface_hub import snapshot_download

    repository, _, revision = settings.name.partition("@")
    try:
        folder = Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(FILES)))
    except Exception as error:  # a download can fail with any kind of error
        raise shared.not_fetched(settings.name, "the hub", error) from error
    return folder, repository, f"{repository}@{folder.name}"  # the hub's cache names a folder by its commit


def _config(folder: Path, called: str) -> Mapping[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        config = None
    if not isinstance(config, dict):
        raise UserError(f"{called} is no model of transformers: it has no config.json that can be read.")
    return config


def _kind(config: Mapping[str, Any], called: str) -> TaskKind:
    named = [str(name) for name in config.get("architectures") or ()]
    kinds = {kind for name in named for ending, kind in CLASSES.items() if name.endswith(ending)}
    if len(kinds) != 1:
        raise UserError(
            f"{called} is a {', '.join(named) or 'model of no stated kind'}, not a model for image classification or "
            "semantic segmentation: choose a model for one of these tasks."
        )
    return kinds.pop()


def _require_one_of_all(config: Any, called: str) -> None:
    names, purpose = config.id2label, config.problem_type
    if sorted(names) != list(range(len(names))):
        raise UserError(
            f"The id2label in the config.json of {called} gives {len(names)} classes the numbers "
            f"{', '.join(str(number) for number in sorted(names)[:8])}: number them from 0 to {len(names) - 1}, in the "
            "order of the model's outputs.",
            field="classes",
        )
    if purpose in ("multi_label_classification", "regression"):
        raise UserError(
            f"{called} was trained for {purpose.replace('_', ' ')}: it does not choose exactly one class. Take a "
            "model for single-label classification."
        )


def _load(folder: Path, called: str, kind: TaskKind, own_code: bool) -> Any:
    from transformers import AutoModelForImageClassification, AutoModelForSemanticSegmentation

    loader = AutoModelForImageClassification if kind == "classification" else AutoModelForSemanticSegmentation
    try:
        # With mismatched shapes allowed, it reports which layers they are in.
        with LOADING:
            net, report = loader.from_pretrained(
                folder, **_LOCAL, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True
            )
    except Exception as error:  # of transformers, of safetensors or of the operating system
        if out_of_memory(error):
            raise UserError(
                f"There is not enough memory to load {called}: free some memory, or choose a smaller model."
            ) from error
        if own_code:
            raise UserError(
                f"{called} needs its own program code, which the studio does not run: choose another model."
            ) from error
        why = " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__
        raise UserError(f"{called} cannot be loaded by transformers: {why}.") from error
    for what, names in (("lack", report["missing_keys"]), ("have another shape of", report["mismatched_keys"])):
        if names:
            first = min(name if isinstance(name, str) else str(name[0]) for name in names)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise UserError(
                f"The weights of {called} do not fit its config.json: they {what} {first}{more}. Take both from one "
                "save_pretrained."
            )
    return net


def _processor(folder: Path, called: str) -> Any:
    from transformers import AutoImageProcessor

    try:
        return AutoImageProcessor.from_pretrained(folder, **_LOCAL)
    except Exception as error:  # of transformers or of the operating system
        raise UserError(
            f"{called} does not say how images are prepared for it: add the preprocessor_config.json that its image "
            "processor was saved with."
        ) from error


def _scaling(config: Mapping[str, Any]) -> str:
    def sides(size: Any) -> str:
        return f"{size['width']} × {size['height']}" if isinstance(size, dict) and size.get("width") else ""

    size, crop = config.get("size"), config.get("crop_size")
    if not config.get("do_resize", True):
        scaling = "left at its own size"
    elif sides(size):
        scaling = f"scaled to {sides(size)} pixels, whatever its shape"
    elif isinstance(size, dict) and size.get("shortest_edge") and not config.get("crop_pct"):
        scaling = f"shorter side scaled to {size['shortest_edge']} pixels"
    else:
        scaling = f"scaled as preprocessor_config.json says (size {json.dumps(size, default=str)})"
    return (
        f"{scaling}, then the middle {sides(crop)} taken" if config.get("do_center_crop") and sides(crop) else scaling
    )


def _shown(config: Mapping[str, Any]) -> Preprocessing:
    size = config.get("crop_size") if config.get("do_center_crop") else config.get("size")
    whole = isinstance(size, dict) and size.get("width") and size.get("height")
    normalised = bool(config.get("do_normalize", True))
    return Preprocessing(
        size=(int(size["width"]), int(size["height"])) if whole and isinstance(size, dict) else None,
        mean=tuple(config.get("image_mean") or ()) if normalised else (),
        std=tuple(config.get("image_std") or ()) if normalised else (),
        interpolation=str(config.get("resample", "")),
        more=json.dumps(dict(config), sort_keys=True, default=str),
        assumed=Assumptions(_scaling(config)),
    )
