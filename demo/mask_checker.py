"""Checks whether a source's mask still fits a generated image. A table names the defect that each check should find."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from core.masks import MASK_KEPT
from core.predictions import Prediction, decode_map
from core.types import Check, Edit
from demo.scene import SEMANTIC_CLASSES
from evaluation.metrics import SURROUNDINGS_KEPT, THINGS_KEPT, kept_checks, kept_in_mask
from evaluation.models import ModelUnderTest
from pipeline.checks.images import FORMS_KEPT
from pipeline.profiles.profile import Profile

ABOUT = {
    "edit shows": "edit_missing",
    "edit direction": "edit_missing",
    "label seen": "label_lost",
    MASK_KEPT: "class_lost",
    THINGS_KEPT: "thing_lost",
    SURROUNDINGS_KEPT: "surroundings_lost",
    FORMS_KEPT: "form_lost",
}
"""Defect (a field of `Truth`) that each check should find. Checks that are missing here should find any defect."""


class MaskChecker:
    """Checks whether a mask still fits an image, with the segmenter of a profile."""

    def __init__(self, profile: Profile) -> None:
        settings = profile.checks.own_segmenter()
        assert settings is not None  # the demo profile has one
        self._model, self._profile = ModelUnderTest(settings), profile
        self._before: tuple[bytes, Prediction] | None = None
        """Pixels and prediction of the last source image, since images of one source follow each other."""

    def checks(
        self, source: Image.Image, image: Image.Image, mask: np.ndarray, edits: Sequence[Edit] = ()
    ) -> tuple[Check, ...]:
        """Check an image that `edits` have made from the road scene `source`, whose mask is `mask`."""
        before, after = self._of_source(source), self._model.predict(image)
        shares = kept_in_mask(
            decode_map(before.class_map),
            decode_map(after.class_map),
            before.classes,
            Image.fromarray(mask),
            dict(enumerate(SEMANTIC_CLASSES)),
            self._profile.tasks.protected,
            self._profile.checks.things,
            [edit.keyword for edit in edits],
        )
        return kept_checks(shares, self._profile.checks.bands)

    def _of_source(self, source: Image.Image) -> Prediction:
        pixels = source.tobytes()
        if self._before is None or self._before[0] != pixels:
            self._before = pixels, self._model.predict(source)
        return self._before[1]
