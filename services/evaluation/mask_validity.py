"""Which test cases have a mask that demonstrably holds: by the segmenter of the checks, which is never the model that
is evaluated, and by checks that came with a file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from core.figures import Flags, Numbers
from core.image_filter import ImageFilter
from core.masks import MASK_KEPT
from core.settings import UnderTestSettings
from evaluation.metrics import hold
from pipeline.profiles.profile import CheckSettings
from services.evaluation.segmented import ways_of
from services.evaluation.stored_predictions import ModelAnswers
from services.evaluation.subjects import Cases
from services.runs.predictions import model_key
from storage.evaluation.models_under_test import StoredModel
from storage.workspace import Workspace

if TYPE_CHECKING:
    from scipy import sparse

NOBODY = (
    "Which masks demonstrably hold cannot be told: the profile names no segmenter that checks them, and the model that "
    "is evaluated cannot vouch for itself."
)
ITSELF = (
    "Which masks demonstrably hold cannot be told: this model is the one that checks them, and cannot vouch for itself."
)


@dataclass(frozen=True, eq=False)
class MaskValidity:
    """What is known of the masks of test cases."""

    holds: Flags
    """Of each test case, whether its mask demonstrably holds."""
    unchecked: int = 0
    """How many masks of test cases wait for the segmenter of the checks."""
    why: str = ""
    """What cannot be told, in a sentence; "" for nothing."""


class MaskChecks:
    """What the segmenter of the checks says of the masks of one workspace. May be used from any thread."""

    def __init__(self, workspace: Workspace, answers: ModelAnswers, checks: CheckSettings) -> None:
        self._workspace, self._answers, self._checks = workspace, answers, checks
        self._lock = threading.Lock()
        self._key, self._warm = "", False
        self._ways: dict[tuple[str, str], int] = {}
        self._known = np.zeros((0, 3), np.int64)
        """Of each row of what it said of masks: the row of the original and the way that it was last held against, and
        whether it holds. So each mask is looked at once, whatever is evaluated.
        """

    @property
    def checker(self) -> UnderTestSettings | None:
        """The segmenter of the checks; None where the profile names none."""
        return self._checks.own_segmenter()

    def warm(self, cases: Cases) -> None:
        """Look once at what was said so far, so that nobody waits for that who waits for figures."""
        if not self._warm and self.checker is not None:
            self._warm = True
            self.of(cases)

    def of(self, cases: Cases, model: StoredModel | None = None, broken: Container[str] = ()) -> MaskValidity:
        """What is known of masks, for an evaluation of `model`. `broken` images, by SHA-256, wait for nothing."""
        images, columns = cases.generated, self._workspace.case_columns
        passed = columns.entries(ImageFilter(checks={MASK_KEPT: ("passed",)}))
        holds = np.isin(cases.table.entry[images.row], passed)
        if self.checker is None:
            return MaskValidity(holds, why=NOBODY)
        key = self._workspace.models_under_test.key_of(model_key(self.checker))
        if model is not None and key == model.key:
            return MaskValidity(holds, why=ITSELF)
        pairs, row = self._answers.pairs(key, cases, images)
        before = self._answers.pairs(key, cases, cases.originals)[1][images.source]
        place = np.flatnonzero((row >= 0) & (before >= 0))
        with self._lock:
            holds[place] |= self._held(key, pairs, row[place], before[place], *ways_of(cases, images, place))
        waiting = np.flatnonzero(images.masks.there & ((row < 0) | (before < 0))).tolist()
        unchecked = sum(images.shas[at] not in broken for at in waiting)
        why = f"{unchecked:,} masks of test cases are not checked yet: whether they hold is not known."
        return MaskValidity(holds, unchecked, why if unchecked else "")

    def _held(
        self,
        key: str,
        pairs: sparse.csr_array,
        row: Numbers,
        before: Numbers,
        ways: Sequence[tuple[str, str]],
        number: Numbers,
    ) -> Flags:
        """Whether each row of `pairs` holds, beside that of its original; `number` is its way among `ways`."""
        if key != self._key:  # another model is found under the settings
            self._key, self._known = key, self._known[:0]
        more = max(0, pairs.shape[0] - len(self._known))  # another thread may know of more rows by now
        self._known = np.concatenate([self._known, np.full((more, 3), -1)])
        way = np.array([self._ways.setdefault(one, len(self._ways)) for one in ways], np.int64)[number]
        flags: Flags = self._known[row, 2] > 0
        new = np.flatnonzero((self._known[row, 0] != before) | (self._known[row, 1] != way))
        classes = self._workspace.models_under_test.classes_of(key) if len(new) else ()
        for at, (protected, names) in enumerate(ways):
            own = new[number[new] == at]
            if len(own):
                numbered = {int(one): name for one, name in json.loads(names).items()}
                named = json.loads(protected or "[]")
                flags[own] = hold(pairs[before[own]], pairs[row[own]], classes, numbered, named, self._checks.bands)
        self._known[row[new]] = np.stack([before[new], way[new], flags[new]], axis=1)
        return flags
