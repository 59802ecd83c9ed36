"""The check of an image's mask by the model under test: a check like the others where there is one, else why not.

It is worked out from the readings that are kept, so another mask or another model gives another check.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaluation.metrics import MASK_KEPT, ClassFigures, mask_check
from evaluation.types import Reading
from pipeline.settings import UnderTestSettings
from pipeline.types import Check
from storage.types import Run

WAITING = "being measured"


def masks_kept(
    run: Run,
    wanted: UnderTestSettings | None,
    problem: str,
    source: Reading | None,
    figures: Mapping[int, tuple[ClassFigures, ...]],
) -> dict[int, Check | str]:
    """By test case: the check, or in words why there is none. Empty where the task needs no mask.

    `wanted` is the model under test, `problem` why it cannot be asked, `source` what it sees in the source image, and
    `figures` how well it finds the mask, by test case.
    """
    if run.task.kind != "segmentation":
        return {}
    why = ""
    if run.mask_sha is None:
        why = "n/a, there is no mask"
    elif wanted is None:
        why = "n/a, there is no model under test"
    elif problem:
        why = "n/a, the model under test cannot be asked"
    elif source is not None and source.kind != "segmentation":
        why = "n/a, the model under test is no segmenter"
    return {case.id: why or _check(figures.get(case.id)) for case in run.test_cases}


def with_mask_check(checks: Sequence[Check], found: Check | str | None, masked: bool) -> tuple[Check, ...]:
    """The checks with that of the mask, last. One that came with a file counts while the run is `masked` and nothing
    better is known.
    """
    others = tuple(check for check in checks if check.name != MASK_KEPT)
    if isinstance(found, Check):
        return (*others, found)
    return tuple(checks) if masked else others


def _check(figures: tuple[ClassFigures, ...] | None) -> Check | str:
    if figures is None:
        return WAITING
    return mask_check(figures) or "n/a, the model under test knows no protected class of the mask"
