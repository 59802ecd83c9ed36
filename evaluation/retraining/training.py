"""Train a model under test further. Several trainings (arms) differ only in their images, and have equally many
optimiser updates (the paper's RQ3). A batch depends only on the seed and the number of the update, so a resumed
training reaches the same weights. Loads torch at first use.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from PIL import Image

from core.errors import UserError
from core.types import TaskKind
from evaluation.adapters.network import logits_of

if TYPE_CHECKING:
    import torch

IGNORED = 255
"""Value of mask pixels that the training ignores."""
STATE, BEST, ABOUT = "state", "best.safetensors", "about.json"
Augmentation = Literal["", "randaugment", "augmix"]
Groups = Sequence[Sequence[int]]
"""For a segmenter, the classes of each mask number; empty if masks use the segmenter's class numbers."""


@dataclass(frozen=True)
class TrainingRecipe:
    """The settings of a training."""

    name: str
    updates: int
    batch: int
    optimiser: Literal["sgd", "adam"]
    learning_rate: float
    momentum: float = 0.9
    """Momentum of the optimiser "sgd"; other optimisers ignore it."""
    weight_decay: float = 0.0
    falls: int = 0
    """Number of times that the learning rate is divided by ten, each time after equally many updates."""
    looks: int = 10
    """Number of times that the tuning images are scored. The best-scored weights are kept."""


def short(updates: int = 400, batch: int = 32) -> TrainingRecipe:
    """Return the recipe for fine-tuning from existing weights."""
    return TrainingRecipe("short fine-tuning", updates, batch, "sgd", 1e-3, weight_decay=1e-4)


def paper_resnet(images: int) -> TrainingRecipe:
    """Return the paper's recipe for ResNet-18 (section III, RQ3): batches of 100, SGD with rate 0.1, momentum 0.9 and
    weight decay 1e-4, and 90 epochs. The rate falls to a tenth after every 30 epochs. `images` is the number of images
    of the arm "original only". Every arm gets as many updates as this arm.
    """
    return TrainingRecipe("paper, ResNet", max(1, 90 * images // 100), 100, "sgd", 0.1, 0.9, 1e-4, falls=2)


def paper_deeplab(images: int) -> TrainingRecipe:
    """Return the paper's recipe for DeepLabV3: batches of 12, Adam at 0.002, 200 epochs. See `paper_resnet`."""
    return TrainingRecipe("paper, DeepLabV3", max(1, 200 * images // 12), 12, "adam", 0.002)


@dataclass(frozen=True)
class Example:
    """An image for training or measuring: its file, and its class or mask."""

    image: Path
    target: int | tuple[int, ...] | Path
    """Number of the right class, or several such numbers, or a PNG mask with `IGNORED` for pixels without class."""


@dataclass(frozen=True)
class Arm:
    """The data of one training. Trainings that are compared differ only in it."""

    name: str
    examples: tuple[Example, ...]
    augmentation: Augmentation = ""
    """Name of torchvision's augmentation, applied to each image at each use; "" for none."""


def batches(examples: int, batch: int, updates: int, seed: int, begin: int = 0) -> Iterator[list[int]]:
    """Yield the indices of each update's examples, from update `begin`. Each example comes once before any repeats."""

    @lru_cache(maxsize=2)
    def order(turn: int) -> np.ndarray:
        return np.random.default_rng((seed, turn)).permutation(examples)

    for update in range(begin, updates):
        places = (divmod(update * batch + place, examples) for place in range(batch))
        yield [int(order(turn)[within]) for turn, within in places]


def train(
    net: Any,
    kind: TaskKind,
    prepare: Callable[[Image.Image], Any],
    arm: Arm,
    recipe: TrainingRecipe,
    seed: int,
    score: Callable[[Any], float],
    folder: Path,
    on_update: Callable[[int, float], None] = lambda update, loss: None,
    groups: Groups = (),
    header: dict[str, str] | None = None,
) -> None:
    """Train a torch module in place, and save the result in `folder`, where a stopped training is resumed. `prepare`
    returns an image's pixels as the module takes them, (3, h, w). `score` rates the module on the tuning images; larger
    is better. `groups` lists, for each number in a mask, the classes that are right answers for its pixels. `header` is
    written into the file of weights.

    Raises UserError if the arm has no examples or an unreadable file, and ValueError if the folder holds another
    training. An exception from `on_update` stops the training, which can then be resumed.
    """
    import torch
    from accelerate import Accelerator
    from safetensors.torch import save_file

    if not arm.examples:
        raise UserError(f"The training data “{arm.name}” have no image in the training split: add sources.")
    folder.mkdir(parents=True, exist_ok=True)
    about = {"arm": arm.name, "examples": len(arm.examples), "recipe": recipe.__dict__, "seed": seed, "kind": kind}
    saved = json.loads((folder / ABOUT).read_text()) if (folder / ABOUT).is_file() else {}
    if saved and saved["training"] != about:
        raise ValueError(f"{folder} holds another training")
    accelerator = Accelerator()
    net.to(memory_format=torch.channels_last)  # a ResNet on a CPU then takes 0.7 of the time
    optimiser, schedule = _optimiser(net, recipe)
    net, optimiser, schedule = accelerator.prepare(net, optimiser, schedule)
    update, best = saved.get("update", 0), saved.get("best", (-1, float("-inf")))
    timed = saved.get("timed", (0.0, 0))  # seconds of updates, and their number; version 0.1 measured none
    if update >= recipe.updates:
        return
    if saved:
        numbered = folder / STATE / str(update)
        # Version 0.1 kept a single state, without a number.
        accelerator.load_state(str(numbered if numbered.is_dir() else folder / STATE))
    every = max(1, recipe.updates // recipe.looks)
    learnt, first = _Examples(arm, kind, prepare, seed), update
    for some in batches(len(arm.examples), recipe.batch, recipe.updates, seed, update):
        began = time.monotonic()
        loss = _step(accelerator, net, optimiser, learnt.batch(some, update), kind, groups)
        schedule.step()
        if update > first:  # the first one after a start is slow
            timed = timed[0] + time.monotonic() - began, timed[1] + 1
        update += 1
        on_update(update, loss)
        if update % every and update != recipe.updates:
            continue
        net.eval()
        tuned_score = score(accelerator.unwrap_model(net))
        if tuned_score > best[1]:
            best = (update, tuned_score)
            # Cloned: safetensors refuses weights that a network uses twice.
            state = {name: one.contiguous().clone() for name, one in accelerator.unwrap_model(net).state_dict().items()}
            replace_file(folder / BEST, partial(save_file, state, metadata=header))
        # The previous state is removed once the new one is recorded: after a kill, one of them fits the record.
        state_now = folder / STATE / str(update)
        accelerator.save_state(str(state_now))
        record = json.dumps({"training": about, "update": update, "best": best, "timed": timed})
        replace_file(folder / ABOUT, partial(Path.write_text, data=record, encoding="utf-8"))
        for old in set((folder / STATE).iterdir()) - {state_now}:
            shutil.rmtree(old) if old.is_dir() else old.unlink()


class _Examples:
    def __init__(self, arm: Arm, kind: TaskKind, prepare: Callable[[Image.Image], Any], seed: int) -> None:
        from torchvision.transforms import v2

        self._arm, self._prepare, self._seed = arm, prepare, seed
        self._several = max((len(one.target) for one in arm.examples if isinstance(one.target, tuple)), default=0)
        """Maximum number of right classes of an image; 0 if every image has one single class."""
        if arm.augmentation and kind == "segmentation":
            # No augmentation that moves pixels: the mask would not follow.
            self._augment: Any = v2.ColorJitter(brightness=0.4, contrast=0.4, saturation=0.4, hue=0.05)
        else:
            self._augment = {"": None, "randaugment": v2.RandAugment(), "augmix": v2.AugMix()}[arm.augmentation]

    def batch(self, places: Sequence[int], update: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return pixels (batch, 3, h, w), and targets: (batch,), (batch, h, w), or (batch, classes) padded with -1."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self._seed << 20) + update)
            pairs = [self._one(self._arm.examples[place]) for place in places]
        if len({pixels.shape for pixels, _ in pairs}) > 1:
            raise UserError(
                "All images of one update must have the same size, but this model scales them to different sizes: "
                "choose another model."
            )
        return torch.stack([pixels for pixels, _ in pairs]), torch.stack([target for _, target in pairs])

    def _one(self, example: Example) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        image = opened(example.image, "RGB")
        if self._augment is not None:
            image = self._augment(image)
        pixels = self._prepare(image)
        if not isinstance(example.target, Path):
            if not self._several:
                return pixels, torch.tensor(example.target)
            right = example.target if isinstance(example.target, tuple) else (example.target,)
            return pixels, torch.tensor([*right, *[-1] * (self._several - len(right))])
        size = (pixels.shape[-1], pixels.shape[-2])
        mask = opened(example.target, "L").resize(size, Image.Resampling.NEAREST)
        return pixels, torch.from_numpy(np.asarray(mask).astype(np.int64))


def _step(
    accelerator: Any, net: Any, optimiser: Any, batch: Sequence[torch.Tensor], kind: TaskKind, groups: Groups
) -> float:
    from torch.nn import functional

    pixels, target = (one.to(accelerator.device) for one in batch)
    net.train()
    logits = _grouped(logits_of(net(pixels)).float(), groups)
    if kind == "segmentation" and logits.shape[-2:] != target.shape[-2:]:
        logits = functional.interpolate(logits, size=target.shape[-2:], mode="bilinear", align_corners=False)
    if kind == "classification" and target.ndim == 2:
        right_logits = logits.gather(1, target.clamp(min=0)).masked_fill(target < 0, float("-inf"))
        loss = (logits.logsumexp(1) - right_logits.logsumexp(1)).mean()
    else:
        loss = functional.cross_entropy(logits, target, ignore_index=IGNORED if kind == "segmentation" else -100)
    accelerator.backward(loss)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    return float(loss.detach())


def _grouped(logits: torch.Tensor, groups: Groups) -> torch.Tensor:
    """Return logits of groups of classes, (batch, groups + 1, ...). The last is for other classes, if any."""
    import torch

    if not groups:
        return logits
    rest = sorted(set(range(logits.shape[1])) - {number for one in groups for number in one})
    return torch.stack([logits[:, list(one)].logsumexp(1) for one in (*groups, rest) if len(one)], 1)


def _optimiser(net: Any, recipe: TrainingRecipe) -> tuple[Any, Any]:
    import torch

    if recipe.optimiser == "adam":
        optimiser: Any = torch.optim.Adam(net.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay)
    else:
        optimiser = torch.optim.SGD(
            net.parameters(), recipe.learning_rate, recipe.momentum, weight_decay=recipe.weight_decay
        )
    every = max(1, recipe.updates // (recipe.falls + 1)) if recipe.falls else recipe.updates + 1
    return optimiser, torch.optim.lr_scheduler.StepLR(optimiser, every, 0.1)


def opened(file: Path, mode: str) -> Image.Image:
    """Open an image or a mask in a mode such as "RGB". Raises UserError if it is unreadable."""
    try:
        with Image.open(file) as image:
            return image.convert(mode)
    except OSError as error:
        raise UserError(f"{file.name} cannot be read: it is missing or damaged.") from error


def replace_file(file: Path, write: Callable[[Path], Any]) -> None:
    """Replace a file in one step, so that a reader never sees half a file. `write` writes to the path it gets."""
    half = file.with_name(f".{os.getpid()}-{file.name}")
    write(half)
    half.replace(file)
