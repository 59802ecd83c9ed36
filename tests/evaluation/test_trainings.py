"""Tests for a training of each kind of model: from its weights or from random ones, measured and saved."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.settings import UnderTestSettings
from evaluation.adapters.architectures import find_network
from evaluation.retraining.stored_training import Training, learnt, right_of, said_before
from evaluation.retraining.training import Arm, Example, TrainingRecipe
from tests.support.model_cases import CLASSES, onnx_file, picture, transformers_folder, wanted

pytestmark = pytest.mark.slow

RECIPE = TrainingRecipe("quick", 2, 4, "sgd", 0.01, looks=1)


def examples(folder: Path, number: int = 6) -> tuple[Example, ...]:
    folder.mkdir(exist_ok=True)
    for seed in range(number):
        picture(seed).save(folder / f"{seed}.png")
    return tuple(Example(folder / f"{seed}.png", seed % len(CLASSES)) for seed in range(number))


def checkpoint(folder: Path, name: str, classes: int = 3) -> UnderTestSettings:
    """Save random weights of an architecture of torchvision or timm. Return the model's settings."""
    import timm
    import torch
    from safetensors.torch import save_file
    from torchvision import models

    torch.manual_seed(0)
    known = name in models.list_models()
    net = models.get_model(name, num_classes=classes) if known else timm.create_model(name, num_classes=classes)
    names = json.dumps([*CLASSES, *(f"class {number}" for number in range(classes))][:classes])
    header = {"architecture": name, "classes": names, "size": "32"}
    save_file(net.state_dict(), folder / f"{name}.safetensors", header)
    return wanted("file", file=str(folder / f"{name}.safetensors"))


def training(folder: Path, model: UnderTestSettings, scratch: bool = False, name: str = "t") -> Training:
    held = examples(folder / "images")
    arm = Arm("original only", held)
    return Training(model, arm, 1, RECIPE, held[:2], {"all": held, "first": held[:1]}, folder / name, scratch)


@pytest.mark.parametrize("source", ["transformers", "resnet18", "mobilenetv3_small_050"])
def test_models_of_each_kind_learn_from_their_weights_or_from_chance(source: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    torch.manual_seed(5)
    many = 1000 if source == "resnet18" else 3  # like ImageNet, with more classes than the values of a mask
    model = transformers_folder(tmp_path / "vit") if source == "transformers" else checkpoint(tmp_path, source, many)
    before = find_network(model).net.state_dict()
    ends = []
    for scratch in (False, True):
        one = training(tmp_path, model, scratch, f"t{scratch}")
        said = learnt(one)
        assert {name: len(right) for name, right in said.items()} == {"all": 6, "first": 1}
        assert set(np.unique(said["all"])) <= {0.0, 1.0} and said["all"][0] == said["first"][0]
        after = load_file(one.folder / "best.safetensors")
        assert after.keys() == before.keys()
        ends.append({name: float((held.float() - before[name].float()).abs().max()) for name, held in after.items()})
        assert not (one.folder / "state").exists()
    near, far = (max(one[name] for name in one if name.endswith("weight")) for one in ends)
    assert 0 < near < far  # two small updates change the weights less than random weights do
    assert said_before(model, training(tmp_path, model).sets)["all"].shape == (6,)


def test_a_segmenter_is_measured_by_its_pixels_in_the_size_of_the_mask(tmp_path: Path) -> None:
    model = transformers_folder(tmp_path / "segformer", "segmentation")
    held = []
    for seed, one in enumerate(examples(tmp_path / "images", 4)):
        numbers = np.full((40, 60), seed % 3, np.uint8)
        numbers[:5] = 255
        Image.fromarray(numbers).save(tmp_path / f"mask-{seed}.png")
        held.append(Example(one.image, tmp_path / f"mask-{seed}.png"))
    arm = Arm("original only", tuple(held))
    said = learnt(Training(model, arm, 0, RECIPE, tuple(held[:1]), {"all": tuple(held)}, tmp_path / "t"))["all"]
    assert said.shape == (4, 3, 4) and (said.sum(axis=(1, 2)) == 35 * 60).all()
    assert ((right_of("segmentation", said) >= 0) & (right_of("segmentation", said) <= 1)).all()


def test_what_cannot_be_trained_and_what_is_trained_elsewhere_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="An ONNX file cannot be trained further"):
        learnt(training(tmp_path, onnx_file(tmp_path / "net.onnx")))
    with pytest.raises(UserError, match="A model behind HTTP cannot be trained further"):
        learnt(training(tmp_path, wanted("http", address="http://127.0.0.1:9")))
    one = training(tmp_path, checkpoint(tmp_path, "resnet18"), name="busy")
    one.folder.mkdir()
    with open(one.folder / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="Another process is running this training"):
            learnt(one)
    (tmp_path / "images" / "3.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"3\.png cannot be read"):
        learnt(one)
