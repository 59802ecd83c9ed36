"""What a model under test is right about: told of a test case, and kept in the catalogue where it takes class maps.

A classification is right or wrong by its label, which the catalogue follows by itself. A segmentation takes the class
maps of source and image and the mask of its run: they are compared here, once, after the model has read them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from PIL import Image

from core.catalogue import Unmeasured
from core.errors import UserError
from core.masks import NamedMask
from core.predictions import Prediction, decode_map, map_size
from core.stored_studies import Candidate
from core.types import TaskKind
from evaluation.metrics import against_mask, without_mask
from evaluation.outcomes import is_right
from storage.workspace import Workspace

MASKS = 64
"""Masks that are kept in memory: many test cases of a run are measured one after the other."""
AT_ONCE = 100
"""Test cases that are measured before what was found is saved."""


class RunMasks:
    """The masks of the runs of a workspace; those used last are kept. For any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._numbers = lru_cache(maxsize=MASKS)(self._read)

    def of(self, run_id: str) -> NamedMask | None:
        """The mask that a run has now, at the size at which a reading is kept; None where it has none."""
        sha, classes = self._workspace.runs.mask(run_id)
        return NamedMask(self._numbers(sha), classes) if sha is not None else None

    def _read(self, sha: str) -> Image.Image:
        numbers = self._workspace.images.load(sha)
        size = map_size(numbers.size)
        return numbers if size == numbers.size else numbers.resize(size, Image.Resampling.NEAREST)


def measure(
    workspace: Workspace,
    masks: RunMasks,
    model: str,
    sha: str = "",
    enough: Callable[[], bool] = lambda: False,
) -> bool:
    """Compare the class maps that wait for it, and keep what was found; returns whether all was measured.

    `sha`: only for the test cases whose image or source this is. `enough`: asked before each test case; once it says
    so, the others wait on. Of a test case with a file that is missing or damaged nothing can be told.
    """
    while waiting := workspace.catalogue.not_measured(model, AT_ONCE, sha):
        by_case = {one.test_case: one for one in waiting}
        found: list[tuple[Unmeasured, tuple[bool | None, bool | None]]] = []
        for candidate in workspace.test_cases.candidates(tuple(by_case)):
            if enough():
                break
            try:
                verdict = verdict_with_masks(candidate, model, masks)
            except (UserError, OSError, ValueError):
                verdict = None, None
            found.append((by_case[candidate.test_case], verdict))
        workspace.catalogue.measured(model, found)
        if len(found) < len(waiting):
            return False
    return True


def verdict_of(
    candidate: Candidate, model: str, mask: NamedMask | None = None, classes: tuple[str, ...] = ()
) -> tuple[bool | None, bool | None]:
    """Whether a model under test is right about the source image and about the generated one; None where unknown.

    A classifier is right when its likeliest class is one that the label is mapped to; where none of its `classes` is,
    that is unknown. A segmenter is right about a source
    image when it finds every protected class there that can be measured, and about a generated one when none of those
    that it found in the source dropped: measured against the mask where there is one, else against what it found in the
    source (`evaluation.metrics`).
    """
    source, image = candidate.predictions.get(model, (None, None))
    if kind_of(candidate) == "classification":
        return _names(source, candidate.label, classes), _names(image, candidate.label, classes)
    if source is None or image is None or "classification" in (source.kind, image.kind):
        return None, None
    before, after = decode_map(source.class_map), decode_map(image.class_map)
    if mask is None:
        figures = without_mask(before, after, source.classes, candidate.classes)
    else:
        figures = against_mask(before, after, source.classes, mask.image, mask.classes, candidate.classes)
    found = [figure.found for figure in figures]
    source_right = all(found) if found else None
    return source_right, not any(figure.dropped for figure in figures) if any(found) else None


def kind_of(candidate: Candidate) -> TaskKind:
    """The kind of its task: one of a classification protects no classes."""
    return "segmentation" if candidate.classes else "classification"


def verdict_with_masks(
    candidate: Candidate, model: str, masks: RunMasks, classes: tuple[str, ...] = ()
) -> tuple[bool | None, bool | None]:
    """`verdict_of` with the mask looked up where it is needed."""
    needs = kind_of(candidate) == "segmentation" and model in candidate.predictions
    return verdict_of(candidate, model, masks.of(candidate.run_id) if needs else None, classes)


def _names(prediction: Prediction | None, label: str, classes: tuple[str, ...]) -> bool | None:
    if prediction is None or not prediction.top or not label:
        return None
    return is_right(prediction.top[0].label, label, classes)
