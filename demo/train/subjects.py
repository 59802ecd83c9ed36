"""Trains the segmenter that finds objects in the demo's scenes by a phrase: `make train-subjects`.

The network predicts one of `WORDS` for each pixel. A phrase is a set of these words, so new phrases need no training.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from scipy.ndimage import label, maximum_filter, minimum_filter
from torch.nn import functional

from demo.render import SIZE, render
from demo.scene import OBJECT_CLASSES, SEMANTIC_CLASSES, WATER_CLASSES, Look, Scene, random_look, random_scene
from demo.train.batches import soften
from demo.train.common import TRAIN_SEEDS, Run, arguments, device
from pipeline.models.phrase_net import PhraseNet
from pipeline.models.segmenter import PhraseNetSegmenter
from pipeline.profiles.image_sections import PhraseNetSection
from pipeline.seams import Segmenter
from pipeline.subject_mask import take

SCENERY = ("sky", "ground", "water", "road", "pavement", "lane marking", "building", "vegetation")
WORDS = (*SCENERY, "vehicle", "pedestrian", *OBJECT_CLASSES)
PHRASES: dict[str, tuple[str, ...]] = {
    **{word: (word,) for word in WORDS if word != "vehicle"},
    "car": ("vehicle",),
    "vehicle": ("vehicle", "boat"),
    "person": ("pedestrian",),
    "people": ("pedestrian",),
    "sidewalk": ("pavement",),
    "ship": ("boat",),
    "building": ("building", "house", "lighthouse"),
    "animal": ("bird", "butterfly"),
    "insect": ("butterfly",),
    "plant": ("flower",),
    "fungus": ("mushroom",),
    "object": OBJECT_CLASSES,
    "thing": (*OBJECT_CLASSES, "vehicle", "pedestrian"),
}
"""Phrases that the segmenter knows, each with its words."""
SINGLE = ("vehicle", "pedestrian")
"""Words for objects that may occur several times in a picture. All pixels of any other word count as one object."""
CHECK_SEEDS = range(5_800_000, 5_800_200)
"""Seeds of the scenes to check on, smaller than all seeds used in training. So no training saw these scenes."""
FLOORS = {"object": 0.93, "car": 0.95, "pedestrian": 0.78}
"""Minimum mean IoU of a trained model, by kind of object."""
RIM_FLOOR = 0.98
"""Minimum share of the wrong pixels that must be within one pixel of the true outline of the object."""
BATCH = 12
EMPTY, PASTED = 0.08, 0.15
"""Share of training pictures without a subject, and share with a subject pasted onto another background."""
RIM, SCENERY_SHARE = 3.0, 0.3
"""Extra weight in the loss near outlines (two pixels on each side), and weight of the second loss in `loss_of`."""
EMA_DECAY = 0.998


@dataclass(frozen=True)
class Example:
    """A picture, uint8 (128, 128, 3); for each pixel an index into `WORDS`, (128, 128); and a subject to paste."""

    picture: np.ndarray
    words: np.ndarray
    pasted: np.ndarray
    """The subject's pixels: uint8 (128, 128, 3)."""
    where: np.ndarray
    """True on the subject: bool (128, 128). False everywhere if nothing is pasted."""


def example(rng: random.Random) -> Example:
    """Return a random training picture, mirrored with probability 0.5."""
    scene = random_scene(TRAIN_SEEDS + rng.randrange(10_000_000))
    kind = rng.random()
    if kind < EMPTY:
        scene = scene.without_subject()
    picture, words = drawn(scene)
    pasted, where = np.zeros_like(picture), np.zeros(words.shape, bool)
    if EMPTY <= kind < EMPTY + PASTED:
        subject, numbers = picture, words
        picture, words = drawn(_background(scene, rng))
        pasted, numbers = _moved(subject, numbers, rng) if scene.family == "object" else (subject, numbers)
        where = numbers >= len(SCENERY)
        words = np.where(where, numbers, words)
    step = rng.choice((1, -1))
    return Example(*(np.ascontiguousarray(part[:, ::step]) for part in (picture, words, pasted, where)))


def drawn(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Return the picture of a scene, and the index into `WORDS` of each pixel."""
    picture, mask = render(scene)
    names = [*SEMANTIC_CLASSES]
    names[names.index("object")] = scene.label or "bird"  # a road has no object
    if scene.label in WATER_CLASSES:
        names[names.index("ground")] = "water"
    return picture, np.array([WORDS.index(name) for name in names], np.uint8)[mask]


def _background(scene: Scene, rng: random.Random) -> Scene:
    """Return a scene of the same family, with random weather, light and colours, and without a subject."""
    if rng.random() < 0.5:
        scene = random_scene(TRAIN_SEEDS + rng.randrange(10_000_000), scene.family)
    look: Look = random_look(rng, len(scene.look.colours))
    return Scene(**{**scene.__dict__, "look": look}).without_subject()


def _moved(picture: np.ndarray, words: np.ndarray, rng: random.Random) -> tuple[np.ndarray, np.ndarray]:
    turn = cv2.getRotationMatrix2D((SIZE / 2, SIZE / 2), rng.uniform(-15, 15), rng.uniform(0.7, 1.3))
    turn[:, 2] += [rng.uniform(-0.2, 0.2) * SIZE, rng.uniform(-0.2, 0.2) * SIZE]
    moved = cv2.warpAffine(picture, turn, (SIZE, SIZE), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return moved, cv2.warpAffine(words, turn, (SIZE, SIZE), flags=cv2.INTER_NEAREST)


def batch(rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pictures in -1..1, (BATCH, 3, 128, 128), half of them softened; and each pixel's index in `WORDS`."""
    examples = [example(rng) for _ in range(BATCH)]
    images, pasted = (
        torch.from_numpy(np.stack(parts)).permute(0, 3, 1, 2).float() / 127.5 - 1
        for parts in ([one.picture for one in examples], [one.pasted for one in examples])
    )
    images[: BATCH // 2] = soften(images[: BATCH // 2], rng)
    where = torch.from_numpy(np.stack([one.where for one in examples]))[:, None]
    images = torch.where(where, pasted, images)  # a subject keeps its pixels on a drawn background
    return images, torch.from_numpy(np.stack([one.words for one in examples])).long()


def loss_of(logits: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """Return the sum of two losses. One loss is for finding objects: all scenery is one class, and pixels
    near outlines weigh more. The other loss, with weight `SCENERY_SHARE`, is for predicting the word of each pixel.
    """
    count = len(SCENERY)
    scenery = logits[:, :count].logsumexp(1, keepdim=True)
    things = (words - count + 1).clamp(min=0)
    numbers = things[:, None].float()
    highest, lowest = functional.max_pool2d(numbers, 5, 1, 2), -functional.max_pool2d(-numbers, 5, 1, 2)
    weights = 1 + RIM * (highest != lowest)[:, 0].float()
    errors = functional.cross_entropy(torch.cat([scenery, logits[:, count:]], 1), things, reduction="none")
    return (errors * weights).sum() / weights.sum() + SCENERY_SHARE * functional.cross_entropy(logits, words)


def save(net: PhraseNet, file: Path) -> None:
    """Save the weights in fp16, with a header that holds the words and the phrases."""
    state = {name: value.half() if value.is_floating_point() else value for name, value in net.state_dict().items()}
    about = {"words": WORDS, "phrases": PHRASES, "single": SINGLE}
    file.parent.mkdir(parents=True, exist_ok=True)
    header = {name: json.dumps(value) for name, value in about.items()}
    save_file({name: value.cpu().contiguous() for name, value in state.items()}, file, metadata=header)


def truth_of(taken: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """Return the connected part of the true mask `thing` that overlaps most with the predicted mask `taken`."""
    numbers, count = label(thing, np.ones((3, 3)))
    return max((numbers == k for k in range(1, count + 1)), key=lambda piece: ((piece & taken).sum(), piece.sum()))


def check(segmenter: Segmenter) -> None:
    """Print the IoU of the segmenter's masks on scenes that no training saw, and whether the minima are reached.

    A wrong pixel is at the rim if the true mask changes between it and one of its eight neighbours.
    """
    overlaps: dict[str, list[float]] = {name: [] for name in FLOORS}
    wrong, at_rim = dict.fromkeys(FLOORS, 0), dict.fromkeys(FLOORS, 0)
    phantoms = []
    for seed, family in itertools.product(CHECK_SEEDS, ("object", "road")):
        scene = random_scene(seed, family)
        picture, words = drawn(scene)
        empty, _ = drawn(scene.without_subject())
        image = Image.fromarray(picture)
        for name in ("object",) if family == "object" else ("car", "pedestrian"):
            phrase = scene.label or name
            phantoms.append(bool(segmenter.find(Image.fromarray(empty), phrase)))
            thing = np.isin(words, [WORDS.index(word) for word in PHRASES[phrase]])
            if not thing.any():
                continue
            found = segmenter.find(image, phrase)
            taken = take(found, phrase)[0] if found else np.zeros(words.shape, bool)
            truth = thing if family == "object" else truth_of(taken, thing)
            errors, rim = taken != truth, maximum_filter(truth, 3) != minimum_filter(truth, 3)
            overlaps[name].append(float((taken & truth).sum() / (taken | truth).sum()))
            wrong[name] += int(errors.sum())
            at_rim[name] += int((errors & rim).sum())
    print("| thing | n | mean IoU | floor | median | 5th percentile | wrong pixels at the rim |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, floor in FLOORS.items():
        figures, share = np.array(overlaps[name]), at_rim[name] / max(wrong[name], 1)
        verdicts = ["reached" if ok else "missed" for ok in (figures.mean() >= floor, share >= RIM_FLOOR)]
        print(
            f"| {name} | {len(figures)} | {figures.mean():.3f} | {floor}: {verdicts[0]} | {np.median(figures):.3f} | "
            f"{np.percentile(figures, 5):.3f} | {share:.1%}, {RIM_FLOOR:.0%}: {verdicts[1]} |"
        )
    print(f"found in scenes without a subject: {np.mean(phantoms):.1%} of {len(phantoms)}")


def main() -> None:
    options = arguments("segmenter of subjects", 100, can_go_on=True)
    file = options.out / "subjects.safetensors"
    net = PhraseNet(len(WORDS)).to(device(), memory_format=torch.channels_last)
    if options.go_on and file.exists():
        net.load_state_dict(load_file(file))
    average = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3 if options.go_on else 3e-3, weight_decay=1e-2, fused=True)
    run = Run("subjects", options, optimizer, net=net, average=average)
    rng = random.Random(run.step)
    for step in run:
        images, words = (part.to(device()) for part in batch(rng))
        loss = loss_of(net(images.contiguous(memory_format=torch.channels_last)), words)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        decay = min(EMA_DECAY, (1 + step) / (10 + step))
        with torch.no_grad():
            for old, new in zip(average.state_dict().values(), net.state_dict().values(), strict=True):
                old.lerp_(new, 1 - decay) if old.is_floating_point() else old.copy_(new)
        run.report(loss=loss.item())
    save(average, file)
    check(PhraseNetSegmenter(PhraseNetSection(kind="phrase-net", path=str(file.resolve()))))


if __name__ == "__main__":
    main()
