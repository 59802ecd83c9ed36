"""Compare a model's answers with the labels of a data set: right, wrong or not comparable. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.figures import Floats, Numbers
from core.predictions import Prediction, decode_map
from evaluation.class_mapping import ClassMap
from evaluation.effectiveness import RIGHT, UNKNOWN, WRONG, Answers
from evaluation.segmentation import IGNORED

if TYPE_CHECKING:
    from scipy import sparse


PAIRS = 256 * 256
"""Number of pairs (class number in a mask, predicted class number). The pair (a, b) has the number 256 a + b."""


def answers_of(
    mapping: ClassMap,
    label: Numbers,
    source: Numbers,
    likeliest: Numbers,
    probabilities: NDArray[Any],
    rows: Numbers | None = None,
) -> tuple[Answers, Floats]:
    """Return a classifier's answers, and the probability of each image's true label: the sum over the label's classes,
    or NaN if image and label cannot be compared.

    For each image, `label` is the index of its label in the map, `source` the number of its source, and `likeliest` the
    class that the model predicts. `probabilities` are (images, classes), of any float type. `rows` is each image's row
    in `probabilities`, by default its index. An answer is right if the likeliest class is one of the label's classes.
    Its confidence sums the probabilities of the predicted label's classes. An image with an unmapped label is
    `UNKNOWN`. With `ClassMap.among_labels`, only classes with a label count, and their probabilities are scaled to sum
    to 1.
    """
    place, total = np.arange(len(label)) if rows is None else rows, np.ones(len(label))
    if mapping.among_labels and mapping.members.any():
        classes = np.flatnonzero(mapping.members.any(axis=0))
        of_labels = probabilities[np.ix_(place, classes)].astype(np.float64)
        likeliest, total = classes[of_labels.argmax(axis=1)], of_labels.sum(axis=1)
        total[total == 0] = np.nan
    right = mapping.members[label, likeliest]
    answer = np.where(right, label, mapping.label_of_class[likeliest])
    true, named = (_of_labels(mapping, probabilities, place, number) / total for number in (label, answer))
    probability = probabilities[place, likeliest].astype(np.float64) / total
    confidence = np.minimum(np.where(answer >= 0, named, probability), 1.0)
    mapped = np.array([len(one.classes) > 0 for one in mapping.labels], bool)
    known = mapped[label] & np.isfinite(confidence) & np.isfinite(true)
    standing = np.where(known, np.where(right, RIGHT, WRONG), UNKNOWN).astype(np.int8)
    answers = Answers(source, standing, answer.astype(np.int64), np.where(np.isfinite(confidence), confidence, 0.0))
    return answers, np.where(known, np.minimum(true, 1.0), np.nan)


def _of_labels(mapping: ClassMap, probabilities: NDArray[Any], place: Numbers, label: Numbers) -> Floats:
    """Return each image's summed probability of its label's classes, 0 for label -1. `place` is each image's row in
    `probabilities`.
    """
    found = np.zeros(len(label))
    order = np.argsort(label, kind="stable")
    ends = np.searchsorted(label[order], np.arange(len(mapping.labels) + 1))
    for number, one in enumerate(mapping.labels):
        images = order[ends[number] : ends[number + 1]]
        if len(images) and one.classes:
            of_classes = probabilities[np.ix_(place[images], np.array(one.classes))]
            found[images] = of_classes.astype(np.float64).sum(axis=1)
    return found


def groups_in_mask(group_of: Mapping[str, int], mask_classes: Mapping[int, str]) -> NDArray[np.uint8]:
    """Return the group of each mask number, (256,). A number gets `IGNORED` if its class has no group in `group_of`."""
    groups_by_number = np.full(256, IGNORED, np.uint8)
    for number, name in mask_classes.items():
        if 0 <= number < len(groups_by_number):  # Cityscapes numbers its licence plates -1
            groups_by_number[number] = group_of.get(name, IGNORED)
    return groups_by_number


def groups_of_numbers(mapping: ClassMap, mask_classes: Mapping[int, str]) -> tuple[NDArray[np.uint8], ...]:
    """Return two arrays, (256,) each: the index in `mapping.groups` of each class number of the mask, and of each class
    number of the model. A number without a group gets `IGNORED`. Raises ValueError for a class of the mask that
    the map does not know.
    """
    group_of = {mapping.labels[number].label: at for at, group in enumerate(mapping.groups) for number in group}
    unknown = set(mask_classes.values()) - {one.label for one in mapping.labels}
    if unknown:
        raise ValueError(f"the mask has the class “{min(unknown)}”, which is none of the labels of the map")
    true, of_model = groups_in_mask(group_of, mask_classes), np.full(256, IGNORED, np.uint8)
    for at, group in enumerate(mapping.groups):
        for one in group:
            of_model[list(mapping.labels[one].classes)] = at
    return true, of_model


def fitted_map(prediction: Prediction, size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return a segmenter's predicted class numbers, resized to the size of a mask (nearest neighbour)."""
    numbers = decode_map(prediction.class_map)
    return np.asarray(numbers if numbers.size == size else numbers.resize(size, Image.Resampling.NEAREST))


def pairs_of_pixels(mask: Image.Image, prediction: Prediction) -> tuple[Numbers, Numbers, Numbers]:
    """Return the pairs of classes in an image, as three arrays: true class in the mask, predicted class, and pixels."""
    predicted = fitted_map(prediction, mask.size)
    pairs = np.asarray(mask).astype(np.int64).ravel() * 256 + predicted.ravel()
    counts = np.bincount(pairs, minlength=1)
    present = np.flatnonzero(counts)
    return present // 256, present % 256, counts[present]


def pairs_of_images(
    masks: NDArray[Any], models: NDArray[Any], pixels: NDArray[Any], sizes: Sequence[int]
) -> sparse.csr_array:
    """Return pixel counts, (images, `PAIRS`). The pairs are listed image by image; image i has `sizes[i]` of them."""
    from scipy import sparse

    ends, columns = np.cumsum([0, *sizes]), masks.astype(np.int32) * 256 + models
    return sparse.csr_array((pixels.astype(np.float64), columns, ends), shape=(len(sizes), PAIRS))


def count_pairs(
    true: NDArray[np.uint8], predicted: NDArray[np.uint8], pairs: sparse.csr_array, kind: Numbers, groups: int
) -> Floats:
    """Return numbers of pixels, (images, groups, groups + 1). The axes are image, true group and predicted group.
    Groups have the order of `ClassMap.groups`. The last column counts pixels predicted as a class without a
    label. Pixels without a true group are not counted.

    `pairs` comes from `pairs_of_images`, `true` and `predicted` from `groups_of_numbers`. Masks may use several
    class numberings: `true`, (numberings, 256), has a row for each numbering. `kind` gives each image's row in `true`.
    """
    from scipy import sparse

    named = np.minimum(predicted.astype(np.int32), groups)
    rows = true.astype(np.int32)[:, :, None]
    # Pixels that are not counted have a column of their own, the last.
    cells = np.where(rows < groups, rows * (groups + 1) + named, groups * (groups + 1)).reshape(len(true), PAIRS)
    of_pair = np.repeat(kind, np.diff(pairs.indptr)) if len(true) > 1 else 0
    shape = len(kind), groups * (groups + 1) + 1
    # Several pairs of an image may belong to one cell, so they are added up.
    found: Floats = sparse.csr_array((pairs.data, cells[of_pair, pairs.indices], pairs.indptr), shape=shape).toarray()
    return found[:, :-1].reshape(-1, groups, groups + 1)
