"""Trains the judges of the report (`demo.judges`) on rendered scenes, to tell what an image shows and where.

The pictures are randomly softened, so that the judges also read generated images, which are blurred and noisy.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional

from demo.judges import JudgeNet, Judges
from demo.render import render
from demo.scene import COLOURS, SEMANTIC_CLASSES, random_scene
from demo.train.batches import Batch, Batches, coloured_things, hits, soften
from demo.train.common import Run, arguments, device, half_precision
from demo.train.dataset import open_scenes

CHECK_SEEDS = range(3_000_000, 3_000_400)
_RARE = torch.tensor([1.0, 1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 1.5])
"""Weight of each semantic class in the loss. Without weights, thin objects would be taken for their background."""


def colour_loss(scores: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, float]:
    """Return the loss and the share of right colours. An object's colour is the one with the highest mean score.
    `scores` is (n, c, 64, 64).
    """
    pooled, targets = [], []
    for row, scene in enumerate(batch.scenes):
        for pixels, colour in coloured_things(batch.masks[row].numpy(), scene):
            share = torch.from_numpy(pixels).float().to(scores.device)[None, None]
            share = functional.avg_pool2d(share, 2)[0, 0]
            pooled.append((scores[row] * share).sum((1, 2)) / share.sum())
            targets.append(colour)
    if not pooled:
        return scores.sum() * 0, 1.0
    logits, labels = torch.stack(pooled), torch.tensor(targets, device=scores.device)
    return functional.cross_entropy(logits, labels), hits(logits, labels)


def main() -> None:
    options = arguments("judges", 70)
    batches = Batches(open_scenes(options.work), seed=1, roads=0.35)  # ten classes of objects take the longest to learn
    net = JudgeNet().to(device(), memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=1e-2)
    run = Run("judges", options, optimizer, net=net)
    rng = random.Random(run.step)
    for _ in run:
        batch = batches.draw(32)
        images = soften(batch.images.float() / 127.5 - 1, rng).to(device(), memory_format=torch.channels_last)
        with half_precision():
            predicted = net(images)
        predicted = {name: logits.float() for name, logits in predicted.items()}
        where = functional.cross_entropy(predicted["semantic"], batch.masks.to(device()), _RARE.to(device()))
        labels = {name: label.to(device()) for name, label in batch.labels().items()}
        what = sum(functional.cross_entropy(predicted[name], label) for name, label in labels.items())
        colours, colour_hits = colour_loss(predicted["colours"], batch)
        loss = 2 * where + what + 0.5 * colours
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        figures = {name: hits(predicted[name], label) for name, label in labels.items()}
        run.report(where=where.item(), colour=colour_hits, **figures)
    options.out.mkdir(parents=True, exist_ok=True)
    save_judges(net, options.out / "judges.safetensors")
    check(Judges(options.out / "judges.safetensors"))


def save_judges(net: JudgeNet, file: Path) -> None:
    """Save the weights in fp16. Integers, which count training batches, stay integers."""
    state = net.cpu().state_dict()
    halves = {name: value.half() if value.is_floating_point() else value for name, value in state.items()}
    save_file({name: value.contiguous() for name, value in halves.items()}, file)


def check(judges: Judges) -> None:
    """Print how often the judges are right on untouched scenes that no training saw."""
    right: dict[str, list[bool]] = {"class": [], "weather": [], "time": [], "colour": []}
    overlap, union = np.zeros(len(SEMANTIC_CLASSES)), np.zeros(len(SEMANTIC_CLASSES))
    for seed in CHECK_SEEDS:
        scene = random_scene(seed)
        image, mask = render(scene)
        reading = judges.read(image)
        right["class"].append(reading.label == (scene.label or "road"))
        right["weather"].append(reading.weather == scene.look.weather)
        right["time"].append(reading.time == scene.look.time)
        right["colour"] += [reading.colour(p) == COLOURS[c] for p, c in coloured_things(mask, scene)]
        for number in range(len(SEMANTIC_CLASSES)):
            overlap[number] += ((mask == number) & (reading.mask == number)).sum()
            union[number] += ((mask == number) | (reading.mask == number)).sum()
    print("judges: " + ", ".join(f"{name} {np.mean(hit):.1%}" for name, hit in right.items()) + " on unseen scenes")
    ious = overlap / np.maximum(union, 1)
    print("judges: IoU " + ", ".join(f"{name} {iou:.2f}" for name, iou in zip(SEMANTIC_CLASSES, ious, strict=True)))


if __name__ == "__main__":
    main()
