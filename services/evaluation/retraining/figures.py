"""What came of the trainings of a model, worked out from what it said of the measured images by arm and seed. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from core.evaluation_results import BEFORE, ON_GENERATED, ON_ORIGINAL, ORIGINAL
from core.figures import Floats
from core.types import TaskKind
from evaluation.retraining.arm_statistics import Arms, Measured, beside_controls
from evaluation.retraining.stored_training import right_of
from evaluation.retraining.training import TrainingRecipe
from evaluation.segmentation import mean_iou
from services.evaluation.retraining.results import (
    LOWEST,
    MOST_OPENED,
    ArmShown,
    Beside,
    MiouRow,
    Opened,
    Retrained,
    SetShown,
    TrainedOnce,
)
from services.evaluation.retraining.training import Behind, RetrainAsked, RetrainPlan
from services.evaluation.service import title_of
from services.evaluation.subjects import Cases
from storage.evaluation.models_under_test import StoredModel


def retrained(
    asked: RetrainAsked,
    cases: Cases,
    stored: StoredModel,
    planned: RetrainPlan,
    recipe: TrainingRecipe,
    before: dict[str, Floats],
    said: dict[tuple[str, int], dict[str, Floats]],
    trainings: Sequence[TrainedOnce],
) -> Retrained:
    """All that a report tells. `before` is what the model says of each set as it is, and `said` what it says by arm and
    seed once it was trained, as `evaluation.retraining.stored_training.learnt` has it; `trainings` says where each of
    these is.
    """
    sources, kind, seeds = planned.set_sources, stored.identity.kind, range(asked.seeds)
    measured = {
        arm.name: {
            name: Measured(sources[name], np.stack([right_of(kind, said[arm.name, seed][name]) for seed in seeds]))
            for name in planned.sets
        }
        for arm in planned.arms
    }
    compared = Arms(measured, ORIGINAL)
    beside = beside_controls(measured)
    as_it_is = {
        name: Measured(sources[name], np.tile(right_of(kind, one), (asked.seeds, 1))) for name, one in before.items()
    }
    rows_before = Arms({ORIGINAL: measured[ORIGINAL], BEFORE: as_it_is}, ORIGINAL).rows()
    return Retrained(
        kind=kind,
        title=cases.view.title,
        split=asked.asked.subject.split,
        model=title_of(asked.asked.model),
        identity=stored.identity.digest,
        preset=asked.preset,
        recipe=recipe,
        seeds=asked.seeds,
        split_seed=asked.split_seed,
        sources=planned.sources,
        sides=planned.sides,
        pictures=pictures_of(cases),
        unseen=planned.unseen,
        arms=tuple(ArmShown(one.name, len(one.examples), one.augmentation) for one in planned.arms),
        sets=tuple(
            SetShown(name, len(examples), len(np.unique(sources[name]))) for name, examples in planned.sets.items()
        ),
        rows=(*(one for one in rows_before if one.arm == BEFORE), *compared.rows()),
        won_back=compared.won_back(ON_ORIGINAL, ON_GENERATED),
        beside=tuple(Beside(arm, control, gain) for (arm, control), gain in beside.items()),
        miou=tuple(_miou(planned, before, said, asked.seeds)) if kind == "segmentation" else (),
        left_out=planned.left_out,
        notes=(*cases.left_out, *planned.notes),
        opened=tuple(opened(planned.behind, {BEFORE: as_it_is, **measured}, kind)),
        trainings=tuple(trainings),
    )


def opened(
    behind: Mapping[str, Behind], measured: Mapping[str, Mapping[str, Measured]], kind: TaskKind
) -> Iterator[Opened]:
    """What opens for each set and for each arm on it: the images that a classifier is wrong about in most of its seeds,
    those in most of all first; of a segmenter, which is never right about all pixels, one of `LOWEST` images, of which
    the smallest share of pixels is right.
    """
    for name, held in behind.items():
        for arm in ("", *measured):
            of_arm = measured[arm or next(iter(measured))][name]
            images = np.arange(of_arm.right.shape[1])
            if arm:
                share = of_arm.right.astype(float).mean(axis=0)
                images = np.argsort(share, kind="stable")
                number = -(-len(images) // LOWEST) if kind == "segmentation" else int((share < 0.5).sum())
                images = images[:number]
            entries, shown = held.entries(images, MOST_OPENED)
            yield Opened(name, arm, len(images), shown, entries)


def _miou(
    planned: RetrainPlan,
    before: Mapping[str, Floats],
    said: Mapping[tuple[str, int], Mapping[str, Floats]],
    seeds: int,
) -> Iterator[MiouRow]:
    """The mean over the seeds of each arm on each set; without a value where no mask has a class."""
    for name in planned.sets:
        yield MiouRow(BEFORE, name, _finite(mean_iou(before[name].sum(axis=0))))
        for arm in planned.arms:
            of_seeds = [mean_iou(said[arm.name, seed][name].sum(axis=0)) for seed in range(seeds)]
            yield MiouRow(arm.name, name, _finite(np.mean(of_seeds)))


def _finite(number: Any) -> float | None:
    return float(number) if np.isfinite(number) else None


def pictures_of(cases: Cases) -> str:
    """Another digest where the images of a subject are others."""
    return hashlib.sha256("\n".join(sorted(cases.pictures)).encode()).hexdigest()[:16]
