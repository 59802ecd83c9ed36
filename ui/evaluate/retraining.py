"""Retraining section of the page Evaluate. A script loads the section, and reloads it while a model trains. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from core.evaluation_results import BEFORE, ON_GENERATED, ORIGINAL
from core.types import TaskKind
from services.evaluation.retraining.expected_time import ExpectedTime
from services.evaluation.retraining.jobs import TRAINING, KeptResult, RetrainingChoices
from services.evaluation.retraining.results import HOW_PARTED, RetrainingResult, sides_words
from services.evaluation.retraining.training import ARM_KEYS, ARM_NAMES, NO_TYPE, SEEDS, ArmKey
from services.evaluation.retraining.weights import ArmWeights
from services.work_queue import WorkView
from ui.evaluate.plots import change_axis
from ui.evaluate.render import render
from ui.evaluate.words import Place, evaluate_address
from ui.markup import Html, el

PART, TIME = "part-retraining", "retraining-time"
_ARM_HINTS: Mapping[ArmKey, str] = {
    "augmentation": "the originals, changed by torchvision at random each time",
    "reconstructions": "the sources drawn again without an edit",
    "generated": "all test cases of the sources to learn from",
    "valid": "test cases that votes, or a score learnt from votes, find valid",
    "ranked": "test cases at the head of the ranking",
}
_BEHIND: Mapping[TaskKind, str] = {
    "classification": "the images that are still wrong in most of the trainings",
    "segmentation": "the tenth of the images with the fewest right pixels",
}


def retraining_part(
    place: Place,
    choices: RetrainingChoices,
    results: Sequence[KeptResult],
    work: WorkView | None,
    weights: Sequence[ArmWeights] = (),
    disk: int = 0,
    time: ExpectedTime | None = None,
) -> Html:
    """Return the whole retraining section. `results` are saved results, latest first. `weights` are weight files of the
    latest result. `disk` is the size of all trainings in bytes. `time` is the expected time with the default settings.
    """
    place_fields = asdict(replace(place, beside="", other=None))

    def address(end: str, **query: Any) -> str:
        """Return an address below /evaluate/retraining/ about the latest result."""
        return evaluate_address(f"retraining/{end}", **place_fields, kept=results[0].number, **query)

    return render(
        "retraining",
        **(_figures(results[0].found) if results else {}),
        place=place,
        choices=choices,
        kept=results,
        work=work,
        weights=weights,
        disk=disk,
        active=work is not None and work.active,
        training=TRAINING,
        time=time_part(time),
        arms=[(key, ARM_NAMES[key], _ARM_HINTS[key]) for key in ARM_KEYS],
        types=[("", "the rarest"), *((one, one) for one in choices.edit_types), (NO_TYPE, "none: learn from all")],
        shifts=[("", "none"), *((f"{number}", words) for number, words in choices.shifts)],
        address=address,
        how_parted=HOW_PARTED,
        seeds=SEEDS,
    )


def time_part(time: ExpectedTime | None) -> Html:
    """Return the text on how long the training in the form would take; empty if this is unknown."""
    return el("p", time.words if time is not None else "", id=TIME, class_="mut small", role="status")


def _figures(found: RetrainingResult) -> dict[str, object]:
    """Return the latest result for the template. The columns of its table are for the kinds of training data."""
    gains = {row.arm: row.gain for row in found.rows if row.set == ON_GENERATED and row.arm not in (ORIGINAL, BEFORE)}
    return {
        "found": found,
        "gains": gains,
        "won": {one.arm: one.share for one in found.won_back},
        "axis": change_axis(gains.values()),
        "images": {one.name: f"{one.images:,}" for one in found.arms},
        "mious": {(one.arm, one.set): one.value for one in found.miou},
        "sides": sides_words(found),
        "behind": _BEHIND[found.kind],
    }
