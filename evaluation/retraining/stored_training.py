"""Train a model under test further, and store the training and its predictions in a folder. It can be resumed."""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import UserError
from core.figures import Floats, Numbers
from core.locks import take_lock
from core.settings import UnderTestSettings
from core.types import TaskKind
from evaluation.adapters.architectures import find_network, header_of, untrained
from evaluation.adapters.network import Network, logits_of
from evaluation.retraining.training import ABOUT, BEST, STATE, Arm, Example, TrainingRecipe, opened, replace_file, train
from evaluation.segmentation import confusion

TOGETHER = 50
"""Maximum number of images in one call of the network."""
NOT_TRAINED = {
    "onnx": "An ONNX file cannot be trained further: take the checkpoint that it was made of.",
    "http": "A model behind HTTP cannot be trained further: take its checkpoint.",
}
"""Reasons why models of some kinds cannot be trained, by kind."""
REMOVED = ".removed-"
"""Prefix of the name of a training folder while it is deleted."""


@dataclass(frozen=True)
class Training:
    """A training: its model, its data and settings, and the image sets on which the trained model is measured."""

    model: UnderTestSettings
    arm: Arm
    seed: int
    recipe: TrainingRecipe
    tune: tuple[Example, ...]
    """Images on which the training is scored, to keep its best weights."""
    sets: Mapping[str, tuple[Example, ...]]
    folder: Path
    scratch: bool = False
    """True to start from random weights instead of the model's weights."""
    groups: tuple[tuple[int, ...], ...] = ()
    """For a segmenter, the classes of each mask number; empty if masks use the model's class numbers."""


@dataclass(frozen=True)
class KeptState:
    """The stored state of a training, without its weights."""

    arm: str
    seed: int
    batch: int
    done: bool
    score: float
    """Best share of right answers or right pixels on the tuning images. The weights with this score are stored."""
    update_seconds: float | None = None
    """Mean time of an update in seconds; None if not measured."""
    other_seconds: float | None = None
    """Time for loading, scoring and measuring in seconds; None if the training was stopped."""


def kept_state(folder: Path) -> KeptState | None:
    """Return the state stored in a training's folder; None before the tuning images were scored for the first time."""
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        training, (_, score) = about["training"], about["best"]
        recipe = training["recipe"]
        seconds, timed = about.get("timed", (0.0, 0))
        return KeptState(
            *(training["arm"], training["seed"], recipe["batch"], about["update"] >= recipe["updates"], float(score)),
            update_seconds=seconds / timed if timed else None,
            other_seconds=about.get("other_seconds"),
        )
    except (FileNotFoundError, NotADirectoryError, KeyError, TypeError, ValueError):
        return None  # absent, of another version, or truncated


def weights_in(folder: Path) -> Path | None:
    """Return the file with the best weights of a finished training; None if it is missing."""
    state, file = kept_state(folder), folder / BEST
    return file if state is not None and state.done and file.is_file() else None


def is_trained(folder: Path) -> bool:
    """Return True while a process runs the training of this folder."""
    try:
        with _alone(folder):
            return False
    except FileNotFoundError:
        return False
    except UserError:
        return True


def remove_training(folder: Path) -> None:
    """Delete a training's folder with its weights. Raises UserError while a process runs the training."""
    with _alone(folder):
        # Renamed first, so that another process begins a new folder and never finds half of this one.
        away = folder.with_name(f"{REMOVED}{folder.name}-{secrets.token_hex(4)}")
        folder.rename(away)
    shutil.rmtree(away)


def learnt(
    training: Training, on_update: Callable[[int, float], None] = lambda update, loss: None
) -> dict[str, Floats]:
    """Train the model if needed, and return its answers by image set. A classifier's answers are (images,): 1 if right,
    else 0. A segmenter's are pixel counts by true and predicted class (or group), (images, classes, classes + 1).

    An exception from `on_update` stops the training, which can be resumed. Raises UserError for a model that cannot be
    trained, for an unreadable image, and while another process runs the same training.
    """
    file = training.folder / f"said-{_sets_digest(training)}.npz"
    if not file.exists():
        training.folder.mkdir(parents=True, exist_ok=True)
        with _alone(training.folder):
            measured = enumerate(_measured(training, on_update).values())
            named: dict[str, Any] = {f"{place}": one for place, one in measured}
            replace_file(file, lambda half: np.savez_compressed(half, **named))
    with np.load(file) as arrays:
        return {name: arrays[f"{place}"] for place, name in enumerate(training.sets)}


def _measured(training: Training, on_update: Callable[[int, float], None]) -> dict[str, Floats]:
    import torch
    from safetensors.torch import load_file

    if training.model.source in NOT_TRAINED:
        raise UserError(NOT_TRAINED[training.model.source])
    began, is_new = time.monotonic(), kept_state(training.folder) is None
    # Dropout and other randomness depend on the seed, like the order of the images.
    torch.manual_seed(training.seed)
    network = find_network(training.model)
    if training.scratch:
        network = replace(network, net=untrained(network, training.model))
    kind = network.identity.kind

    def score(net: Any) -> float:
        answers = said_of(net, network, training.tune, training.groups)
        return float(right_of(kind, answers).mean()) if len(answers) else 0.0

    train(
        *(network.net, kind, network.prepare, training.arm, training.recipe, training.seed, score, training.folder),
        on_update=on_update,
        groups=training.groups,
        header=header_of(network.identity, training.model.source),
    )
    shutil.rmtree(training.folder / STATE, ignore_errors=True)  # no longer needed
    network.net.load_state_dict(load_file(training.folder / BEST))
    network.net.eval()
    sets = {name: said_of(network.net, network, examples, training.groups) for name, examples in training.sets.items()}
    if is_new:
        about = json.loads((training.folder / ABOUT).read_text(encoding="utf-8"))
        about["other_seconds"] = time.monotonic() - began - about["timed"][0]
        replace_file(training.folder / ABOUT, partial(Path.write_text, data=json.dumps(about)))
    return sets


def said_before(
    model: UnderTestSettings, sets: Mapping[str, Sequence[Example]], groups: Sequence[Sequence[int]] = ()
) -> dict[str, Floats]:
    """Return the answers on each set before any further training, in the form of `learnt`."""
    import torch

    network = find_network(model)
    network.net.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    return {name: said_of(network.net, network, examples, groups) for name, examples in sets.items()}


def right_of(kind: TaskKind, answers: Floats) -> Floats:
    """Return how right each image is, 0 to 1. A classifier has 0 or 1, a segmenter its share of right pixels."""
    if kind == "classification":
        return answers
    return np.diagonal(answers, axis1=1, axis2=2).sum(axis=1) / answers.sum(axis=(1, 2))


def said_of(net: Any, network: Network, examples: Sequence[Example], groups: Sequence[Sequence[int]] = ()) -> Floats:
    """Return a network's answers on examples, in the form of `learnt`. The network must be in evaluation mode."""
    import torch

    numbers = _numbers(len(network.identity.classes), groups)
    device = next((one.device for one in net.parameters()), None)
    counts: list[Floats] = []
    for begin in range(0, len(examples), TOGETHER):
        some = examples[begin : begin + TOGETHER]
        with torch.inference_mode():
            pixels = torch.stack([network.prepare(opened(one.image, "RGB")) for one in some])
            logits = logits_of(net(pixels.to(device)))
            counts += [_said(one, image_logits, numbers) for one, image_logits in zip(some, logits, strict=True)]
    return np.stack(counts) if counts else np.zeros(0)


def _numbers(classes: int, groups: Sequence[Sequence[int]]) -> Numbers:
    """Return the mask number of each class of a model. The last entry is the number for all other classes."""
    if not groups:
        return np.arange(classes + 1)
    numbers = np.full(classes + 1, len(groups))
    for number, one in enumerate(groups):
        numbers[list(one)] = number
    return numbers


def _said(example: Example, logits: Any, numbers: Numbers) -> Floats:
    """Return a model's answer on one image as one row of `learnt`, from logits (classes,) or (classes, h, w)."""
    if not isinstance(example.target, Path):
        right = example.target if isinstance(example.target, tuple) else (example.target,)
        return np.array(float(int(logits.argmax(0)) in right))
    from torch.nn import functional

    mask = np.asarray(opened(example.target, "L"), np.uint8)
    if logits.shape[-2:] != mask.shape:
        logits = functional.interpolate(logits[None].float(), size=mask.shape, mode="bilinear", align_corners=False)[0]
    return confusion(mask, numbers[logits.argmax(0).cpu().numpy()].astype(np.uint8), int(numbers[-1]))


def _sets_digest(training: Training) -> str:
    whole = hashlib.sha256(repr(training.groups).encode() if training.groups else b"")
    for name, examples in training.sets.items():
        whole.update(f"{name}\0".encode())
        whole.update("".join(f"{one.image}\0{one.target}\n" for one in examples).encode())
    return whole.hexdigest()[:16]


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a folder's lock. Raises UserError if another process holds it. The lock is freed when a process ends."""
    with open(folder / "lock", "w") as lock:
        try:
            take_lock(lock, folder)
        except BlockingIOError as error:
            raise UserError("Another process is running this training: wait until it ends, or stop it.") from error
        yield
