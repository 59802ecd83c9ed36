"""One training of a model under test further, and what it says of each set of images afterwards. Kept in a folder, so
that it is done once: where that holds a training that was stopped, it goes on.
"""

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
from numpy.typing import NDArray

from core.errors import UserError
from core.figures import Floats
from core.locks import take_lock
from core.settings import UnderTestSettings
from core.types import TaskKind
from evaluation.adapters.architectures import find_network, header_of, untrained
from evaluation.adapters.network import Network
from evaluation.retraining.training import (
    ABOUT,
    BEST,
    STATE,
    Arm,
    Example,
    TrainingRecipe,
    logits_of,
    opened,
    replace_file,
    train,
)
from evaluation.segmentation import confusion

TOGETHER = 50
"""Images that a net is asked about at once."""
NOT_TRAINED = {
    "onnx": "An ONNX file cannot be trained further: take the checkpoint that it was made of.",
    "http": "A model behind HTTP cannot be trained further: take its checkpoint.",
}
"""By source of a model: why nothing can be learnt by it."""
REMOVED = ".removed-"
"""How the name of a folder begins that is being removed."""


@dataclass(frozen=True)
class Training:
    """What is learnt, and what it is measured on."""

    model: UnderTestSettings
    """The model under test, with whose weights the training begins."""
    arm: Arm
    seed: int
    recipe: TrainingRecipe
    tune: tuple[Example, ...]
    """By which the best state is chosen."""
    sets: Mapping[str, tuple[Example, ...]]
    folder: Path
    """That of this training alone."""
    scratch: bool = False
    """Whether it begins with weights of chance, and not with those of the model."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Of a segmenter, the classes of each number of a mask; none where masks have the numbers of its classes."""


@dataclass(frozen=True)
class KeptState:
    """What is known of a training without a look at its weights."""

    arm: str
    seed: int
    updates: int
    """Done so far."""
    batch: int
    """Images of an update."""
    done: bool
    """Whether that is all of them."""
    best: int
    """The update with the best score on the tuning images: its weights are kept."""
    score: float
    """The share of the tuning images, or of their pixels, that it is right about."""
    update_seconds: float | None = None
    """Mean seconds of an update; None if none was measured."""
    other_seconds: float | None = None
    """Seconds for all else: to load the model, to look at the tuning images, to measure. None if it was stopped."""


def kept_state(folder: Path) -> KeptState | None:
    """What a folder of a training says; None for one that has not come to its first look at the tuning images."""
    try:
        held = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        asked, (best, score) = held["training"], held["best"]
        recipe = asked["recipe"]
        done, (seconds, timed) = held["update"] >= recipe["updates"], held.get("timed", (0.0, 0))
        state = KeptState(asked["arm"], asked["seed"], held["update"], recipe["batch"], done, best, float(score))
        return replace(
            state, update_seconds=seconds / timed if timed else None, other_seconds=held.get("other_seconds")
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (KeyError, TypeError, ValueError):  # of another version, or cut off by hand
        return None


def weights_in(folder: Path) -> Path | None:
    """The file of the best weights of a training that is done; None where it is gone, or not there yet."""
    state, file = kept_state(folder), folder / BEST
    return file if state is not None and state.done and file.is_file() else None


def require_whole(file: Path) -> None:
    """Raise UserError for a file of weights that is gone or damaged."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, "np"):
            pass
    except (OSError, SafetensorError) as error:
        raise UserError("The weights of this training are gone or damaged: train it again.") from error


def is_trained(folder: Path) -> bool:
    """Whether a process is at this training now."""
    try:
        with _alone(folder):
            return False
    except FileNotFoundError:
        return False
    except UserError:
        return True


def remove_training(folder: Path) -> None:
    """Remove a folder of a training, with its weights. Raises UserError while a process is at it."""
    with _alone(folder):
        # Under another name first: whoever comes now begins anew, and never meets half of it.
        away = folder.with_name(f"{REMOVED}{folder.name}-{secrets.token_hex(4)}")
        folder.rename(away)
    shutil.rmtree(away)


def learnt(
    training: Training, on_update: Callable[[int, float], None] = lambda update, loss: None
) -> dict[str, Floats]:
    """What the trained model says of each set: of a classifier whether it is right about each image, (images,); of a
    segmenter the pixels of each class, or of each of the groups, and what it says of them, (images, classes,
    classes + 1).

    What `on_update` raises stops it, and it goes on later. Raises UserError for a model that cannot be trained, for an
    image that cannot be read, and while another process is at the same training.
    """
    file = training.folder / f"said-{_sets_digest(training)}.npz"
    if not file.exists():
        training.folder.mkdir(parents=True, exist_ok=True)
        with _alone(training.folder):
            said = _measured(training, on_update)
            half = file.with_suffix(".half.npz")
            named: dict[str, Any] = {f"{place}": one for place, one in enumerate(said.values())}
            np.savez_compressed(half, **named)
            half.replace(file)
    with np.load(file) as held:
        return {name: held[f"{place}"] for place, name in enumerate(training.sets)}


def _measured(training: Training, on_update: Callable[[int, float], None]) -> dict[str, Floats]:
    import torch
    from safetensors.torch import load_file

    if training.model.source in NOT_TRAINED:
        raise UserError(NOT_TRAINED[training.model.source])
    began, is_new = time.monotonic(), kept_state(training.folder) is None
    # What chance there is beside the order of the images, such as dropout, hangs on the seed too.
    torch.manual_seed(training.seed)
    network = find_network(training.model)
    if training.scratch:
        network = replace(network, net=untrained(network, training.model))
    kind = network.kind

    def score(net: Any) -> float:
        said = said_of(net, network, training.tune, training.groups)
        return float(right_of(kind, said).mean()) if len(said) else 0.0

    train(
        *(network.net, kind, network.prepare, training.arm, training.recipe, training.seed, score, training.folder),
        on_update=on_update,
        groups=training.groups,
        header=header_of(network.identity, training.model.source),
    )
    shutil.rmtree(training.folder / STATE, ignore_errors=True)  # of the optimiser: what is done does not go on
    network.net.load_state_dict(load_file(training.folder / BEST))
    network.net.eval()
    said = {name: said_of(network.net, network, examples, training.groups) for name, examples in training.sets.items()}
    if is_new:
        _note_other_seconds(training.folder, time.monotonic() - began)
    return said


def _note_other_seconds(folder: Path, whole: float) -> None:
    file = folder / ABOUT
    held = json.loads(file.read_text(encoding="utf-8"))
    replace_file(file, partial(Path.write_text, data=json.dumps(held | {"other_seconds": whole - held["timed"][0]})))


def said_before(
    model: UnderTestSettings, sets: Mapping[str, Sequence[Example]], groups: Sequence[Sequence[int]] = ()
) -> dict[str, Floats]:
    """What the model says of each set as it is, as `learnt` has it."""
    import torch

    network = find_network(model)
    network.net.to("cuda" if torch.cuda.is_available() else "cpu").eval()
    return {name: said_of(network.net, network, examples, groups) for name, examples in sets.items()}


def right_of(kind: TaskKind, said: Floats) -> Floats:
    """How much of each image is right, 0 to 1: all or nothing of a classifier, pixels of a segmenter."""
    if kind == "classification":
        return said
    right: Floats = np.diagonal(said, axis1=1, axis2=2).sum(axis=1) / said.sum(axis=(1, 2))
    return right


def said_of(net: Any, network: Network, examples: Sequence[Example], groups: Sequence[Sequence[int]] = ()) -> Floats:
    """What a net says of examples, as `learnt` has it. It is in its evaluating mode already."""
    import torch

    numbers = _numbers(len(network.identity.classes), groups)
    device = next((one.device for one in net.parameters()), None)
    found: list[Floats] = []
    for begin in range(0, len(examples), TOGETHER):
        some = examples[begin : begin + TOGETHER]
        with torch.inference_mode():
            pixels = torch.stack([network.prepare(opened(one.image, "RGB")) for one in some])
            logits = logits_of(net(pixels.to(device)))
            found += [_said(one, own, numbers) for one, own in zip(some, logits, strict=True)]
    return np.stack(found) if found else np.zeros(0)


def _numbers(classes: int, groups: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Of each class of a model its number in masks, and last, how many numbers there are."""
    if not groups:
        return np.arange(classes + 1)
    found = np.full(classes + 1, len(groups))
    for number, one in enumerate(groups):
        found[list(one)] = number
    return found


def _said(example: Example, logits: Any, numbers: NDArray[np.int64]) -> Floats:
    """What is said of one image, by its logits: (classes,) or (classes, h, w)."""
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
    """Raises UserError while another process is in it. The kernel lets go of the lock however a process ends."""
    with open(folder / "lock", "w") as held:
        try:
            take_lock(held, folder)
        except BlockingIOError as error:
            raise UserError("Another process is training this just now: wait until it is done, or stop it.") from error
        yield
