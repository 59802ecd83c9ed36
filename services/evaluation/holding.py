"""Which test cases have a mask that demonstrably holds: by the segmenter of the checks, which is never the model that
is evaluated, and by checks that came with a file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np

from evaluation.metrics import MASK_KEPT, hold
from pipeline.profile import CheckSettings
from services.evaluation.answered import ModelAnswers
from services.evaluation.segmented import Flags, ways_of
from services.evaluation.subjects import Cases
from services.predictions import model_key
from storage.catalogue_types import CatalogueFilter
from storage.models_under_test import StoredModel
from storage.workspace import Workspace

NOBODY = (
    "Which masks demonstrably hold cannot be told: the profile names no segmenter that checks them, and the model that "
    "is evaluated cannot vouch for itself."
)
ITSELF = (
    "Which masks demonstrably hold cannot be told: this model is the one that checks them, and cannot vouch for itself."
)


@dataclass(frozen=True, eq=False)
class Holding:
    """What is known of the masks of test cases."""

    holds: Flags
    """Of each test case, whether its mask demonstrably holds."""
    unchecked: int = 0
    """How many masks of test cases wait for the segmenter of the checks."""
    why: str = ""
    """What cannot be told, in a sentence; "" for nothing."""


def holding_of(
    workspace: Workspace, answers: ModelAnswers, checks: CheckSettings, model: StoredModel, cases: Cases
) -> Holding:
    """What is known now, for an evaluation of `model`."""
    images, columns = cases.generated, workspace.case_columns
    passed = columns.entries(CatalogueFilter(checks={MASK_KEPT: ("passed",)}))
    holds = np.isin(cases.table.entry[images.row], passed)
    checker = checks.own_segmenter()
    if checker is None:
        return Holding(holds, why=NOBODY)
    key = workspace.models_under_test.key_of(model_key(checker))
    if key == model.key:
        return Holding(holds, why=ITSELF)
    pairs, row = answers.pairs(key, cases, images)
    before = answers.pairs(key, cases, cases.originals)[1][images.source]
    place = np.flatnonzero((row >= 0) & (before >= 0))
    said = workspace.predictions.latest(images.shas[place[0]], key) if len(place) else None
    if said is not None:
        ways, number = ways_of(cases, images, place)
        for way, (protected, names) in enumerate(ways):
            own = place[number == way]
            numbered = {int(one): name for one, name in json.loads(names).items()}
            named = json.loads(protected or "[]")
            holds[own] |= hold(pairs[before[own]], pairs[row[own]], said.classes, numbered, named, checks.bands)
    unchecked = int(images.masks.there.sum()) - len(place)
    why = f"{unchecked:,} masks of test cases are not checked yet: whether they hold is not known." if unchecked else ""
    return Holding(holds, unchecked, why)
