"""What a model under test says of images, in the labels of their data set: right, wrong or not to be compared.

Takes predictions and a map of classes, and gives what `evaluation.effectiveness` and `evaluation.segmentation` count.
Pure; knows no models and no files.
"""

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
"""Of a class number of a mask and one of a model: the first times 256, and the second."""


def answers_of(
    mapping: ClassMap,
    label: Numbers,
    source: Numbers,
    likeliest: Numbers,
    probabilities: NDArray[Any],
    rows: Numbers | None = None,
) -> tuple[Answers, Floats]:
    """Return the answers of a classifier, and the probability of the true class of each image: the sum over the classes
    of its label, NaN where the two cannot be compared.

    `label` numbers the label of each image among those of the map, `source` its source, and `likeliest` the class that
    the model says. `probabilities` are (images, classes), of any float type; `rows` picks the row of each image, if
    they are not in order. An answer is right if the likeliest class is one of the label's. Its confidence is the sum
    over the classes of the label that it says. An image with an unmapped label is `UNKNOWN`.
    """
    place = np.arange(len(label)) if rows is None else rows
    right = mapping.members[label, likeliest]
    said = np.where(right, label, mapping.label_of_class[likeliest])
    true, named = (_of_labels(mapping, probabilities, place, wanted) for wanted in (label, said))
    own = probabilities[place, likeliest].astype(np.float64)
    confidence = np.minimum(np.where(said >= 0, named, own), 1.0)
    mapped = np.array([len(one.classes) > 0 for one in mapping.labels], bool)
    known = mapped[label] & np.isfinite(confidence) & np.isfinite(true)
    standing = np.where(known, np.where(right, RIGHT, WRONG), UNKNOWN).astype(np.int8)
    answers = Answers(source, standing, said.astype(np.int64), np.where(np.isfinite(confidence), confidence, 0.0))
    return answers, np.where(known, np.minimum(true, 1.0), np.nan)


def _of_labels(mapping: ClassMap, probabilities: NDArray[Any], place: Numbers, label: Numbers) -> Floats:
    """The sum over the classes of each image's label; 0 without a label (-1). `place` is the row of each image."""
    found = np.zeros(len(label))
    order = np.argsort(label, kind="stable")
    ends = np.searchsorted(label[order], np.arange(len(mapping.labels) + 1))
    for number, one in enumerate(mapping.labels):
        images = order[ends[number] : ends[number + 1]]
        if len(images) and one.classes:
            own = probabilities[np.ix_(place[images], np.array(one.classes))]
            found[images] = own.astype(np.float64).sum(axis=1)
    return found


def groups_in_mask(group_of: Mapping[str, int], mask_classes: Mapping[int, str]) -> NDArray[np.uint8]:
    """The group of each class number of a mask, (256,), by the groups of class names; `IGNORED` for none."""
    found = np.full(256, IGNORED, np.uint8)
    for number, name in mask_classes.items():
        if 0 <= number < len(found):  # Cityscapes numbers its licence plates -1
            found[number] = group_of.get(name, IGNORED)
    return found


def groups_of_numbers(mapping: ClassMap, mask_classes: Mapping[int, str]) -> tuple[NDArray[np.uint8], ...]:
    """The place among `mapping.groups` of each class number of a mask, and of each of the model: (256,) each, `IGNORED`
    for none. Raises ValueError for a class of the mask that the map does not know.
    """
    group_of = {mapping.labels[number].label: at for at, group in enumerate(mapping.groups) for number in group}
    unknown = set(mask_classes.values()) - {one.label for one in mapping.labels}
    if unknown:
        raise ValueError(f"the mask has the class “{min(unknown)}”, which is none of the labels of the map")
    true, said = groups_in_mask(group_of, mask_classes), np.full(256, IGNORED, np.uint8)
    for at, group in enumerate(mapping.groups):
        for one in group:
            said[list(mapping.labels[one].classes)] = at
    return true, said


def fitted_map(prediction: Prediction, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The class numbers of a segmenter, brought to the size of a mask (nearest)."""
    numbers = decode_map(prediction.class_map)
    return np.asarray(numbers if numbers.size == size else numbers.resize(size, Image.Resampling.NEAREST))


def pairs_of_pixels(mask: Image.Image, prediction: Prediction) -> tuple[Numbers, Numbers, Numbers]:
    """The pairs of a mask and what a model says of it: class of the mask, of the model, and number of pixels."""
    said = fitted_map(prediction, mask.size)
    pairs = np.asarray(mask).astype(np.int64).ravel() * 256 + said.ravel()
    found = np.bincount(pairs, minlength=1)
    there = np.flatnonzero(found)
    return there // 256, there % 256, found[there]


def pairs_of_images(
    masks: NDArray[Any], models: NDArray[Any], pixels: NDArray[Any], sizes: Sequence[int]
) -> sparse.csr_array:
    """The pairs of several images, (images, `PAIRS`), from those of each in a row; `sizes` has the pairs of each."""
    from scipy import sparse

    ends, columns = np.cumsum([0, *sizes]), masks.astype(np.int32) * 256 + models
    return sparse.csr_array((pixels.astype(np.float64), columns, ends), shape=(len(sizes), PAIRS))


def count_pairs(
    true: NDArray[np.uint8], said: NDArray[np.uint8], pairs: sparse.csr_array, kind: Numbers, groups: int
) -> Floats:
    """How many pixels of the masks of several images are said to be what, (images, groups, groups + 1) in the order of
    `ClassMap.groups`, from their `pairs_of_images`. Pixels of no label, or of an unmapped one, count nowhere; a class
    of the model that no label has is none of the groups.

    `true` and `said` are those of `groups_of_numbers`: `true` is (kinds, 256), one row for each way in which masks
    number their classes, and `kind` says which of them the mask of each image has.
    """
    from scipy import sparse

    named = np.minimum(said.astype(np.int32), groups)
    rows = true.astype(np.int32)[:, :, None]
    # What counts nowhere has a column of its own, the last.
    cells = np.where(rows < groups, rows * (groups + 1) + named, groups * (groups + 1)).reshape(len(true), PAIRS)
    of_pair = np.repeat(kind, np.diff(pairs.indptr)) if len(true) > 1 else 0
    shape = len(kind), groups * (groups + 1) + 1
    # Several pairs of an image may be one cell: they are added up.
    found: Floats = sparse.csr_array((pairs.data, cells[of_pair, pairs.indices], pairs.indptr), shape=shape).toarray()
    return found[:, :-1].reshape(-1, groups, groups + 1)
