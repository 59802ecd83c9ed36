"""Trains the demo's classifier under test, a `test_resnet` of timm, on fair days only: `make train-classifier`.

Share of right classes on 150 scenes that no training saw, after 8 minutes on one CPU core: fair day 1.00, rain 0.95,
snow 0.89, sunset 0.83, fog 0.81, night 0.37.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import timm
import torch
from torch.nn import functional

from demo.judges import CLASSES
from demo.train.batches import hits
from demo.train.common import Run, arguments, device, half_precision
from demo.train.dataset import open_scenes
from demo.under_test.fair import FOLDER, FairScenes, as_input, check_scenes, print_table, save_checkpoint

ARCHITECTURE = "test_resnet"


def main() -> None:
    options = arguments("classifier under test", 8)
    scenes = FairScenes(open_scenes(options.work), seed=2)
    net = timm.create_model(ARCHITECTURE, pretrained=False, num_classes=len(CLASSES))
    net = net.to(device(), memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3, weight_decay=2e-2)
    run = Run("classifier", options, optimizer, net=net)
    for _ in run:
        images, _, labels = scenes.draw(32)
        images = images.to(device(), memory_format=torch.channels_last)
        targets = torch.tensor([CLASSES.index(label) for label in labels], device=device())
        with half_precision():
            logits = net(images)
        loss = functional.cross_entropy(logits.float(), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        run.report(loss=loss.item(), hits=hits(logits, targets))
    save_checkpoint(net, FOLDER / "classifier.safetensors", ARCHITECTURE, CLASSES)
    check(net)


@torch.inference_mode()
def check(net: torch.nn.Module) -> None:
    """Print how often the class is right, on scenes that no training saw."""
    net = net.cpu().eval()
    right: dict[str, list[bool]] = defaultdict(list)
    for condition, scene, picture, _ in check_scenes():
        predicted = CLASSES[int(net(as_input(picture)).argmax())]
        right[condition].append(predicted == (scene.label or "road"))
    print_table("classifier", ("right",), lambda condition, _: float(np.mean(right[condition])))


if __name__ == "__main__":
    main()
