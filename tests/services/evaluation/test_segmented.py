"""Losses of a segmenter: protected classes with several names in the masks, and the images that a table's cell
opens.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.image_filter import ImageFilter
from core.masks import NamedMask
from core.predictions import Prediction, encode_map
from evaluation.class_mapping import ClassMap, map_classes
from evaluation.metrics import class_figures
from evaluation.segmentation import Pixels, segmentation_effect
from services.evaluation.segmented import SegmenterCounts, cells_of, losses_of
from services.evaluation.subjects import Cases, masks_of, read_cases
from services.evaluation.types import Cell, Subject
from storage.curation.case_columns import Texts
from tests.support.evaluation_cases import fill, pixels_of
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

MASK = {0: "road", 1: "car", 2: "truck", 3: "sky"}
CLASSES = ("road", "car", "truck", "sky", "tree")
PROTECTED = ("road", "vehicle")


@pytest.fixture(scope="module")
def streets(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    """Three sources of ten test cases and a reconstruction each. Their predictions are made up below."""
    with workspace_in(tmp_path_factory.mktemp("streets")) as workspace:
        fill(workspace, 3, road=True)
        cases = read_cases(workspace, Subject(filter=ImageFilter()))
    protects = Texts([json.dumps(PROTECTED)], np.where(cases.table.segmentation, 0, -1))
    images = (
        replace(one, masks=masks_of([("mask", json.dumps({str(at): name for at, name in MASK.items()}))] * len(one)))
        for one in cases.all_images
    )
    originals, generated, controls = images
    return replace(
        cases,
        table=replace(cases.table, protected=protects),
        originals=originals,
        generated=generated,
        controls=controls,
        labels=tuple(MASK.values()),
    )


def seen(mask: np.ndarray, chance: np.random.Generator, wrong: float) -> Image.Image:
    """Return a class map with this share of wrong pixels, which confuses cars with trucks at random."""
    said = np.where(chance.random(mask.shape) < wrong, chance.integers(0, 5, mask.shape), mask)
    return Image.fromarray(np.where(mask == 1, chance.integers(1, 3, mask.shape), said).astype(np.uint8))


def counted(mapping: ClassMap, mask: np.ndarray, maps: list[Image.Image], source: np.ndarray) -> SegmenterCounts:
    named = NamedMask(Image.fromarray(mask), MASK)
    said = [Prediction("segmentation", "m", class_map=encode_map(one), classes=CLASSES) for one in maps]
    return SegmenterCounts(np.arange(len(maps)), pixels_of(mapping, [named] * len(maps), said, source))


def test_a_class_of_several_names_in_the_masks_is_lost_as_a_whole(streets: Cases) -> None:
    chance = np.random.default_rng(6)
    mapping = map_classes(streets.labels, CLASSES, "segmentation")
    mask = np.repeat(np.arange(4, dtype=np.uint8), 16).reshape(8, 8)
    source = streets.generated.source
    before = [seen(mask, chance, 0.1) for _ in range(3)]
    after = [seen(mask, chance, wrong) for wrong in np.linspace(0, 1, len(source))]
    first = counted(mapping, mask, before, streets.originals.source)
    cased = counted(mapping, mask, after, source)
    control = counted(mapping, mask, before, streets.controls.source)
    lost = losses_of(streets, mapping, first, cased, control)
    assert lost.names == PROTECTED and lost.groups == ((0,), (1, 2))
    assert not lost.controls.lost.any() and (lost.controls.right == 1).all()
    for row, (image, own) in enumerate(zip(after, source.tolist(), strict=True)):
        figures = class_figures(before[own], image, CLASSES, PROTECTED, NamedMask(Image.fromarray(mask), MASK))
        assert [one.dropped for one in figures] == lost.generated.lost[row].tolist()
        assert [one.found for one in figures] == lost.generated.could[row].tolist()
    assert 0 < lost.generated.lost.sum() < lost.generated.lost.size

    effect = segmentation_effect(
        first.pixels, cased.pixels, None, np.zeros(len(source), bool), mapping.group_names, streets.split
    )
    shares = effect.confusion_original, effect.confusion_generated
    kept = np.arange(len(source)) < 4
    cells = cells_of(streets, mapping.group_names, first, cased, lost, kept, shares)
    vehicles = cells.where(Cell("class", "vehicle", only_wrong=True), source)
    assert vehicles.tolist() == lost.generated.lost[:, 1].tolist()
    assert cells.where(Cell("class", "car"), source).all() and cells.where(Cell("kept"), source).sum() == 4
    assert not cells.where(Cell("class", "tram"), source).any(), "there is none"
    assert not cells.where(Cell("confusion", "road", "tram"), source).any()
    # Predicted as none of the masks' classes: the tree.
    tree = cased.pixels.counts[:, 0, 4] / cased.pixels.counts[:, 0].sum(axis=1)
    opened = cells.where(Cell("confusion", "road", ""), source)
    assert opened.tolist() == ((tree >= shares[1][0, 4] - 1e-12) & (tree > 0)).tolist() and opened.any()


def test_what_no_mask_has_is_counted_with_what_is_none_of_the_classes(streets: Cases) -> None:
    mapping = map_classes((*streets.labels, "tree"), CLASSES, "segmentation")
    generated = np.zeros((len(streets.generated), 5, 6))
    generated[:, 0, 0], generated[::2, 0, 4], generated[1::2, 0, 5] = 90, 10, 5
    originals = np.zeros((3, 5, 6))
    originals[:, 0, 0] = 100
    first = SegmenterCounts(np.arange(3), Pixels(np.arange(3), originals))
    cased = SegmenterCounts(np.arange(len(generated)), Pixels(streets.generated.source, generated))
    none = SegmenterCounts(np.zeros(0, np.int64), Pixels(np.zeros(0, np.int64), np.zeros((0, 5, 6))))
    kept, names = np.zeros(len(generated), bool), mapping.group_names
    effect = segmentation_effect(first.pixels, cased.pixels, None, kept, names, streets.split)
    lost = losses_of(streets, mapping, first, cased, none)
    cells = cells_of(streets, names, first, cased, lost, kept, (effect.confusion_original, effect.confusion_generated))
    share = generated[:, 0, 4:].sum(axis=1) / generated[:, 0].sum(axis=1)
    whole = generated[:, 0, 4:].sum() / generated[:, 0].sum()
    opened = cells.where(Cell("confusion", "road", ""), streets.generated.source)
    assert opened.tolist() == (share >= whole).tolist() and 0 < opened.sum() < len(opened)


def test_what_was_brought_in_protects_the_classes_of_its_mask(tmp_path: Path, streets: Cases) -> None:
    nothing = replace(streets, table=replace(streets.table, protected=Texts([], np.full(len(streets.table), -1))))
    mapping = map_classes(streets.labels, CLASSES, "segmentation")
    mask = np.repeat(np.arange(4, dtype=np.uint8), 16).reshape(8, 8)
    said = [Image.fromarray(mask)] * len(streets.generated)
    first, cased, control = (
        counted(mapping, mask, said[: len(one)], one.source) for one in (*streets.all_images[:2], streets.controls)
    )
    assert losses_of(nothing, mapping, first, cased, control).names == tuple(MASK.values())
