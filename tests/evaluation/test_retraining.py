"""Tests for trainings of equally many updates: a stopped training resumes to the same weights, and the best are
kept.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torchvision.models.inception import InceptionOutputs
from torchvision.transforms.functional import to_tensor
from transformers.modeling_outputs import ImageClassifierOutput

from core.errors import Cancelled, UserError
from evaluation.adapters.network import logits_of
from evaluation.retraining.stored_training import kept_state
from evaluation.retraining.training import (
    Arm,
    Example,
    TrainingRecipe,
    _grouped,
    batches,
    paper_deeplab,
    paper_resnet,
    short,
    train,
)

pytestmark = pytest.mark.slow  # models are trained

COLOURS = ((220, 40, 40), (40, 60, 220))
QUICK = TrainingRecipe("quick", 30, 8, "sgd", 0.2, looks=3)


def net(kind: str = "classification") -> nn.Module:
    """Return a small network with the same weights each time."""
    torch.manual_seed(0)
    if kind == "segmentation":
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))


def pictures(folder: Path, number: int = 24) -> tuple[Example, ...]:
    """Save noisy pictures of two colours. The target of each is the number of its colour."""
    chance = np.random.default_rng(1)
    folder.mkdir(exist_ok=True)
    found = []
    for place in range(number):
        pixels = np.clip(np.array(COLOURS[place % 2]) + chance.normal(0, 40, (12, 12, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{place}.png")
        found.append(Example(folder / f"{place}.png", place % 2))
    return tuple(found)


def right(examples: tuple[Example, ...], model: nn.Module) -> float:
    """Return the share of examples whose class the model predicts."""
    with torch.inference_mode():
        said = [int(model(to_tensor(Image.open(one.image))[None]).argmax()) == one.target for one in examples]
    return sum(said) / len(said)


def test_batches_go_through_all_before_any_comes_again_and_can_begin_anywhere() -> None:
    everything = list(batches(10, 4, 25, seed=3))
    flat = [place for some in everything for place in some]
    for turn in range(10):
        assert sorted(flat[10 * turn : 10 * turn + 10]) == list(range(10))
    assert list(batches(10, 4, 25, seed=3, begin=7)) == everything[7:]
    assert list(batches(10, 4, 25, seed=4)) != everything
    assert set(Counter(flat).values()) == {10}
    assert [len(some) for some in batches(3, 8, 2, seed=0)] == [8, 8]  # fewer images than a batch holds


def test_what_was_stopped_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    examples = pictures(tmp_path / "images")
    arm, losses = Arm("original only", examples), list[float]()

    def run(folder: str, stop: bool = False) -> nn.Module:
        model = net()
        seen: list[float] = []

        def told(update: int, loss: float) -> None:
            seen.append(loss)
            if stop and update == 17:
                raise Cancelled

        def score(model: nn.Module) -> float:
            return right(examples, model)

        try:
            train(model, "classification", to_tensor, arm, QUICK, 5, score, tmp_path / folder, told)
        finally:
            losses.append(len(seen))
        return model

    whole = run("whole").state_dict()
    with pytest.raises(Cancelled):
        run("stopped", stop=True)
    assert json.loads((tmp_path / "stopped/about.json").read_text())["update"] == 10
    again = run("stopped").state_dict()
    assert losses == [30, 17, 20]  # training continues from the last validation
    for name, held in whole.items():
        assert torch.equal(held, again[name]), name
    kept = load_file(tmp_path / "whole/best.safetensors")
    assert kept.keys() == whole.keys()
    train(net(), "classification", to_tensor, arm, QUICK, 5, lambda m: 0.0, tmp_path / "whole")
    done = kept_state(tmp_path / "whole")
    assert done is not None and done.done and done.score > 0.9  # a finished training does not run again


@pytest.mark.parametrize("where", ["in the state", "before it is told"])
def test_what_was_killed_while_its_state_was_saved_goes_on_to_the_same_weights(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed at the second of three validations. The state of the first one is still there."""
    examples = pictures(tmp_path / "images")
    arm, real, saved = Arm("original only", examples), Accelerator.save_state, list[str]()

    def save_state(self: Accelerator, place: str) -> None:
        saved.append(place)
        if len(saved) == 2 and where == "in the state":
            Path(place).mkdir(parents=True, exist_ok=True)
            (Path(place) / "model.safetensors").write_bytes(b"half")
        else:
            real(self, place)
        if len(saved) == 2:
            raise KeyboardInterrupt

    def run(folder: str) -> dict[str, torch.Tensor]:
        model = net()
        train(model, "classification", to_tensor, arm, QUICK, 5, lambda model: 0.5, tmp_path / folder)
        return model.state_dict()

    whole = run("whole")
    monkeypatch.setattr(Accelerator, "save_state", save_state)
    with pytest.raises(KeyboardInterrupt):
        run("killed")
    again = run("killed")
    assert len(saved) == 4
    for name, held in whole.items():
        assert torch.equal(held, again[name]), name
    assert [path.name for path in (tmp_path / "killed/state").iterdir()] == ["30"], "one state is kept"


def test_the_best_state_of_the_tuning_images_is_kept(tmp_path: Path) -> None:
    examples = pictures(tmp_path / "images")
    scores = iter([0.2, 0.9, 0.4])
    states: list[dict[str, torch.Tensor]] = []

    def score(model: nn.Module) -> float:
        assert not model.training
        states.append({name: held.clone() for name, held in model.state_dict().items()})
        return next(scores)

    train(net(), "classification", to_tensor, Arm("a", examples), QUICK, 1, score, tmp_path / "t")
    found = kept_state(tmp_path / "t")
    assert found is not None and found.score == 0.9
    assert json.loads((tmp_path / "t/about.json").read_text())["best"] == [20, 0.9]
    kept = load_file(tmp_path / "t/best.safetensors")
    assert all(torch.equal(kept[name], held) for name, held in states[1].items())
    assert not all(torch.equal(kept[name], held) for name, held in states[2].items())


def test_a_segmenter_learns_from_masks_and_nothing_from_pixels_without_a_class(tmp_path: Path) -> None:
    examples = []
    for place, one in enumerate(pictures(tmp_path / "images", 12)):
        mask = np.full((12, 12), place % 2, dtype=np.uint8)
        mask[:3] = 255
        Image.fromarray(mask).save(tmp_path / f"mask-{place}.png")
        examples.append(Example(one.image, tmp_path / f"mask-{place}.png"))
    losses: list[float] = []
    recipe = TrainingRecipe("quick", 40, 6, "adam", 0.02, looks=1)
    arm = Arm("with colours", tuple(examples), "augmix")
    net_of_pixels, told = net("segmentation"), lambda _, loss: losses.append(loss)
    train(net_of_pixels, "segmentation", to_tensor, arm, recipe, 1, lambda m: 1.0, tmp_path / "t", told)
    assert np.mean(losses[-5:]) < 0.5 * np.mean(losses[:5])


def test_augmentation_changes_images_and_not_their_order(tmp_path: Path) -> None:
    examples = pictures(tmp_path / "images")
    first: list[float] = []

    def told(update: int, loss: float) -> None:
        if update == 1:
            first.append(loss)

    for name in ("", "randaugment", "augmix"):
        arm = Arm(name, examples, name)  # type: ignore[arg-type]
        train(net(), "classification", to_tensor, arm, QUICK, 2, lambda m: 0.0, tmp_path / f"t{name}", told)
    assert len(set(first)) == 3


def test_an_empty_arm_a_broken_file_and_another_training_are_told(tmp_path: Path) -> None:
    examples = pictures(tmp_path / "images", 4)
    with pytest.raises(UserError, match="“none” have no image in the training split"):
        train(net(), "classification", to_tensor, Arm("none", ()), QUICK, 1, lambda m: 0.0, tmp_path / "t")
    train(net(), "classification", to_tensor, Arm("a", examples), QUICK, 1, lambda m: 0.0, tmp_path / "t")
    with pytest.raises(ValueError, match="another training"):
        train(net(), "classification", to_tensor, Arm("a", examples), QUICK, 2, lambda m: 0.0, tmp_path / "t")
    examples[0].image.write_bytes(b"no image")
    with pytest.raises(UserError, match=r"0\.png cannot be read"):
        train(net(), "classification", to_tensor, Arm("a", examples), QUICK, 1, lambda m: 0.0, tmp_path / "u")


def test_an_image_may_be_of_several_classes_of_which_each_is_right(tmp_path: Path) -> None:
    """“bird” covers 59 classes of ImageNet. The loss is that of all of them together. A single class has the usual
    loss.
    """
    examples = pictures(tmp_path / "images")
    alone = tuple(Example(one.image, (one.target,)) for one in examples if isinstance(one.target, int))
    several = tuple(Example(one.image, (0, 2) if one.target == 0 else 1) for one in examples)
    losses: dict[str, list[float]] = {"one": [], "alone": [], "several": []}
    wide = nn.Sequential(net(), nn.Linear(2, 3))
    for name, given in (("one", examples), ("alone", alone), ("several", several)):
        model = wide if name == "several" else net()
        told = lambda _, loss, name=name: losses[name].append(loss)  # noqa: E731
        train(model, "classification", to_tensor, Arm(name, given), QUICK, 1, lambda m: 0.0, tmp_path / name, told)
    assert losses["one"] == pytest.approx(losses["alone"], abs=1e-6)
    assert losses["several"][-1] < 0.3 < losses["several"][0]


def test_each_class_of_a_group_is_right_for_its_pixels() -> None:
    """“car” and “bus” form “vehicle”. A group's probability is the sum of its classes, and all other classes form a
    group.
    """
    chance = torch.Generator().manual_seed(3)
    logits, target = torch.randn(2, 5, 3, 4, generator=chance), torch.tensor([0, 1, 255, 1]).expand(2, 3, 4)
    groups = ((1, 3), (0,))
    shares = logits.softmax(1)
    true = torch.stack([shares[:, [1, 3]].sum(1), shares[:, 0], shares[:, [2, 4]].sum(1)], 1).log()
    loss = nn.functional.cross_entropy(_grouped(logits, groups), target, ignore_index=255)
    assert torch.allclose(loss, nn.functional.nll_loss(true, target, ignore_index=255), atol=1e-6)
    assert _grouped(logits, ()) is logits and _grouped(logits, ((0, 1), (2, 3, 4))).shape == (2, 2, 3, 4)


def test_what_networks_give_is_taken_for_its_logits() -> None:
    logits = torch.zeros(2, 3)
    second = InceptionOutputs(logits, None)
    for said in (logits, {"out": logits, "aux": None}, second, ImageClassifierOutput(logits=logits)):
        assert logits_of(said) is logits


def test_the_papers_recipes_at_equal_updates() -> None:
    resnet, deeplab = paper_resnet(25_000), paper_deeplab(2_000)
    assert (resnet.updates, resnet.batch, resnet.learning_rate, resnet.falls) == (22_500, 100, 0.1, 2)
    assert (deeplab.updates, deeplab.batch, deeplab.optimiser) == (33_333, 12, "adam")
    assert short().learning_rate == 1e-3
