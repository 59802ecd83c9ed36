"""Adds a natural shift to a retraining: a further set of images to measure on, such as photos in real fog. The images
are those of a version of a test set. Pure, as `services.evaluation.retraining.training` is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from core.evaluation_results import ON_SHIFT
from core.perceptual_hashes import near_any
from evaluation.class_mapping import ClassMap
from services.evaluation.retraining.training import DataSplit, Examples, NotMeasured, RetrainingPlan
from services.evaluation.subjects import Cases, Images, Masks, masks_of, numbered
from services.evaluation.texts import TEXTS
from storage.curation.case_columns import REJECTED, CaseTable, SetRow

MOST_NAMED = 8
"""Maximum number of classes of the shift's masks that a note names. Further ones are only counted."""


def groups_of_shift(learnt: ClassMap, own: ClassMap) -> dict[str, int]:
    """Map each class of the shift's masks to the index of its group in `learnt`: the group that has a label of the same
    name. If no label has this name, it is the group that contains all model classes that `own` lists for the class.
    A class without a group is absent, and its pixels do not count.
    """
    named = {learnt.labels[one].label: at for at, group in enumerate(learnt.groups) for one in group}
    of_class = {
        number: at for at, group in enumerate(learnt.groups) for one in group for number in learnt.labels[one].classes
    }
    group_of_class = {}
    for one in own.labels:
        groups = {of_class.get(number, -1) for number in one.classes}
        if one.label in named:
            group_of_class[one.label] = named[one.label]
        elif len(groups) == 1 and groups != {-1}:
            group_of_class[one.label] = groups.pop()
    return group_of_class


def classes_of(rows: Sequence[SetRow]) -> tuple[str, ...]:
    """Return the classes of the masks of a version of a test set, sorted."""
    texts = {row.mask_classes for row in rows if row.mask}
    return tuple(sorted({name for text in texts for name in json.loads(text).values()}))


def with_shift(
    planned: RetrainingPlan,
    cases: Cases,
    parted: DataSplit,
    looks: Mapping[str, int],
    rows: Sequence[SetRow],
    table: CaseTable,
    made: Examples,
    passed_over: Sequence[str] = (),
    twins: Collection[str] = (),
) -> RetrainingPlan:
    """Return the plan with a further set to measure on: originals and generated images of a version of a test set. For
    a classifier, the set has the images whose label is learnt; for a segmenter, those whose mask has a learnt class.
    Images are left out if people rejected them, or if they look like an image to learn from or to tune with.

    `table` has all entries of `rows`. `made` maps the labels of `rows` and finds the masks. A note names the mask
    classes `passed_over` as not counted. `twins` are images of the version to leave out: mirrored, cropped or similar
    copies of images to learn from or to tune with.
    """
    before = [
        looks[sha]
        for images in cases.all_images
        for source, sha in zip(images.source.tolist(), images.shas, strict=True)
        if parted.side[source] != "test"
    ]
    segments = cases.view.kind == "segmentation"
    place = {one.label: number for number, one in enumerate(made.mapping.labels) if one.classes}
    entries = np.array([row.entry for row in rows if row.entry], np.int64)
    verdicts = dict(zip(entries.tolist(), table.verdict[table.rows_of(entries)].tolist(), strict=True))
    not_rejected = [row for row in rows if row.is_source or verdicts.get(row.entry) != REJECTED]
    usable = [row for row in not_rejected if (row.mask if segments else row.label in place)]
    alike = near_any([looks[row.image] for row in usable], before)
    apart = [row for row, too in zip(usable, alike.tolist(), strict=True) if not (too or row.image in twins)]
    measured_rows = [row for row in apart if made.mask((row.mask, row.mask_classes)) is not None] if segments else apart
    sizes = [len(own) for own in (rows, not_rejected, usable, apart, measured_rows)]
    values = {"left_out": [one - other for one, other in pairwise(sizes)], "segments": segments, "most": MOST_NAMED}
    of_shift = TEXTS.paragraphs("shift-notes.txt", passed_over=passed_over if measured_rows else (), **values)
    notes = (*planned.notes, *of_shift)
    if not measured_rows:
        left_out = (*planned.left_out, NotMeasured(ON_SHIFT, "None of its images can be measured with."))
        return replace(planned, left_out=left_out, notes=notes)
    _, source = numbered(row.source or row.image for row in measured_rows)
    label = np.array([-1 if segments else place[row.label] for row in measured_rows], np.int64)
    nowhere = np.full(len(measured_rows), -1)
    masks = masks_of([(row.mask, row.mask_classes) for row in measured_rows]) if segments else Masks()
    images = Images(nowhere, source, label, nowhere, [row.image for row in measured_rows], masks)
    examples, places = made.of(images, np.arange(len(measured_rows)))
    # A source stored beside its images is no catalogue entry (0): nothing opens for it.
    entry = [[measured_rows[place].entry] if measured_rows[place].entry else [] for place in places.tolist()]
    return replace(
        planned,
        sets={**planned.sets, ON_SHIFT: examples},
        set_sources={**planned.set_sources, ON_SHIFT: source[places]},
        behind={**planned.behind, ON_SHIFT: entry},
        notes=notes,
    )
