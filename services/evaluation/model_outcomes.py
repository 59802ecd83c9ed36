"""Outcomes of a model under test: whether it is right about a test case.

The catalogue itself knows the outcome of a classification, by comparing prediction and label. For a segmentation, the
class maps of source and image and the mask of the run are compared here, once, after the model has read both images.
The catalogue stores the result.
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
from evaluation.metrics import class_figures
from evaluation.outcomes import is_right
from storage.workspace import Workspace

MASKS = 64
"""Maximum number of masks cached in memory: many test cases of one run are measured in a row."""
AT_ONCE = 100
"""Number of test cases measured before the results are saved."""


class RunMasks:
    """The masks of the runs of a workspace, with a cache of the masks used last. Thread-safe."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._numbers = lru_cache(maxsize=MASKS)(self._read)

    def of(self, run_id: str) -> NamedMask | None:
        """Return the current mask of a run at the size of stored class maps, or None if it has no mask."""
        sha, classes = self._workspace.runs.mask(run_id)
        return NamedMask(self._numbers(sha), classes) if sha is not None else None

    def _read(self, sha: str) -> Image.Image:
        numbers = self._workspace.images.load(sha)
        size = map_size(numbers.size)
        return numbers if size == numbers.size else numbers.resize(size, Image.Resampling.NEAREST)


def measure(
    workspace: Workspace, masks: RunMasks, model: str, sha: str = "", enough: Callable[[], bool] = lambda: False
) -> bool:
    """Compare the class maps of a model that are not compared yet, and store the results. Return True if none is left.

    `sha` limits this to test cases with this image or source. `enough` is called before each test case; if it returns
    True, the work ends. A test case with a missing or damaged file stays undecided.
    """
    while waiting := workspace.catalogue.not_measured(model, AT_ONCE, sha):
        by_case = {one.test_case: one for one in waiting}
        verdicts: list[tuple[Unmeasured, tuple[bool | None, bool | None]]] = []
        for candidate in workspace.test_cases.candidates(tuple(by_case)):
            if enough():
                break
            try:
                verdict = verdict_with_masks(candidate, model, masks)
            except (UserError, OSError, ValueError):
                verdict = None, None
            verdicts.append((by_case[candidate.test_case], verdict))
        workspace.catalogue.measured(model, verdicts)
        if len(verdicts) < len(waiting):
            return False
    return True


def verdict_of(
    candidate: Candidate, model: str, mask: NamedMask | None = None, classes: tuple[str, ...] = ()
) -> tuple[bool | None, bool | None]:
    """Return whether a model is right about the source and about the generated image; None if unknown.

    A classifier is right if its top class is one that the label is mapped to. The outcome is unknown if none of the
    model's `classes` fits. A segmenter is right about a source if it finds every measurable protected class there. It
    is right about a generated image if it loses none of the classes found on the source, measured against the mask if
    there is one, else against the source's class map (`evaluation.metrics`).
    """
    source, image = candidate.predictions.get(model, (None, None))
    if kind_of(candidate) == "classification":
        return _names(source, candidate.label, classes), _names(image, candidate.label, classes)
    if source is None or image is None or "classification" in (source.kind, image.kind):
        return None, None
    before, after = decode_map(source.class_map), decode_map(image.class_map)
    figures = class_figures(before, after, source.classes, candidate.classes, mask)
    found_classes = [figure.found for figure in figures]
    source_right = all(found_classes) if found_classes else None
    return source_right, not any(figure.dropped for figure in figures) if any(found_classes) else None


def kind_of(candidate: Candidate) -> TaskKind:
    """Return the kind of a test case's task: a classification has no protected classes."""
    return "segmentation" if candidate.classes else "classification"


def verdict_with_masks(
    candidate: Candidate, model: str, masks: RunMasks, classes: tuple[str, ...] = ()
) -> tuple[bool | None, bool | None]:
    """Return the result of `verdict_of` for a test case. For a segmentation, the mask is that of its run."""
    needs = kind_of(candidate) == "segmentation" and model in candidate.predictions
    return verdict_of(candidate, model, masks.of(candidate.run_id) if needs else None, classes)


def _names(prediction: Prediction | None, label: str, classes: tuple[str, ...]) -> bool | None:
    if prediction is None or not prediction.top or not label:
        return None
    return is_right(prediction.top[0].label, label, classes)
