"""Results of a retraining, calculated from the answers of the trained models. Shares are 0 to 1. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.csv_tables import cells
from core.evaluation_results import BEFORE, ON_GENERATED, ON_ORIGINAL, ON_SHIFT, ON_UNSEEN, ORIGINAL, ArmRow
from core.figures import Figure, Floats
from core.twins import RATES
from core.types import TaskKind, to_plain
from evaluation.retraining.arm_statistics import CONTROLS, GENERATED, Arms, Measured, WonBack, beside_controls
from evaluation.retraining.data_split import SHARES, Side
from evaluation.retraining.stored_training import right_of
from evaluation.retraining.training import Augmentation, TrainingRecipe
from evaluation.segmentation import mean_iou
from services.evaluation.facts import finite
from services.evaluation.retraining.expected_time import TrainingPace
from services.evaluation.retraining.training import NotMeasured, Preset, RetrainingPlan, RetrainingQuestion, SetEntries
from services.evaluation.service import title_of
from services.evaluation.subjects import Cases
from services.evaluation.texts import TEXTS
from storage.evaluation.models_under_test import StoredModel

MOST_OPENED = 1000
"""Maximum number of catalogue entries that the gallery shows for one table cell. People look at no more."""
LOWEST = 10
"""For a segmenter, 1 in `LOWEST` images is listed: the images with the smallest shares of right pixels."""
HOW_PARTED = (
    f"{100 * SHARES['train']:.0f} % of the sources are for training, {100 * SHARES['tune']:.0f} % for tuning and "
    f"{100 * SHARES['test']:.0f} % for measuring. Images made from a source are on its side. Sources that look alike "
    "are on one side, and so are copies: mirrored, cropped, shifted, scaled, saved again, or with a mark upon them.",
    RATES,
)
"""Explanation of the split of sources, for people. Each entry is a paragraph."""


@dataclass(frozen=True)
class ArmSummary:
    """A set of images that a model learns from (an arm)."""

    name: str
    images: int
    augmentation: Augmentation


@dataclass(frozen=True)
class SetSummary:
    """A set of images that the trained models are measured on."""

    name: str
    images: int
    sources: int


@dataclass(frozen=True)
class GainOverControl:
    """Gain in accuracy of an arm (a set of training images) over a control arm, measured on one set of images."""

    arm: str
    control: str
    gain: Figure
    set: str = ON_GENERATED


@dataclass(frozen=True)
class MiouRow:
    """Mean intersection over union that an arm (a set of training images) reaches on one set, averaged over seeds."""

    arm: str
    set: str
    value: float | None
    """Mean IoU, 0 to 1; None if no mask has a class that the model knows."""


@dataclass(frozen=True)
class ArmTraining:
    """One training with the images of an arm (a set of training images) and one seed."""

    arm: str
    seed: int
    """Seed of the training: 0, 1, 2 and so on."""
    folder: str
    """Name of the training's folder in the workspace."""
    score: float | None
    """Share of the tuning images, or of their pixels, that the best state gets right; None if unknown."""


@dataclass(frozen=True)
class OpenedImages:
    """The images that the gallery shows for one number in a table."""

    set: str
    arm: str
    """Arm that fails on these images; "" if the images are the whole set. The function `opened` defines failure."""
    images: int
    """Total number of images."""
    shown: int
    """Number of images that `entries` show."""
    entries: tuple[int, ...]
    """Sorted catalogue entries to show, at most `MOST_OPENED`. Instead of an original, its test cases are shown."""


@dataclass(frozen=True)
class RetrainingResult:
    """A report on a retraining. Accuracies are shares of images, or of pixels; each source weighs the same."""

    kind: TaskKind
    title: str
    """Name of the images: a test set's version, or a filter in words."""
    split: str
    """Split of the data set; "" for none."""
    model: str
    identity: str
    """`ModelIdentity.digest` of the model before the retraining."""
    preset: Preset
    recipe: TrainingRecipe
    seeds: int
    split_seed: int
    sources: Mapping[Side, int]
    sides: str
    """Digest that changes if a source moves to another split."""
    pictures: str
    """Digest that changes with the images."""
    unseen: str
    """Edit type that no arm (set of training images) contains; "" for none."""
    arms: tuple[ArmSummary, ...]
    sets: tuple[SetSummary, ...]
    rows: tuple[ArmRow, ...]
    won_back: tuple[WonBack, ...]
    beside: tuple[GainOverControl, ...]
    miou: tuple[MiouRow, ...]
    """Mean intersection over union of each arm (set of training images) on each set; empty for a classifier."""
    left_out: tuple[NotMeasured, ...]
    notes: tuple[str, ...]
    opened: tuple[OpenedImages, ...]
    trainings: tuple[ArmTraining, ...]
    twins_together: bool = False
    """True if mirrored and cropped copies of a source are in its split. Missing in results of version 0.1.0."""
    pace: TrainingPace | None = None
    """Speed of the training; None in results of version 0.1.0."""

    def opens(self, on: str, arm: str = "") -> OpenedImages | None:
        """Return the images of the set `on` on which `arm` fails; all images if `arm` is "". None if there are none."""
        return next((one for one in self.opened if (one.set, one.arm) == (on, arm) and one.entries), None)

    def row(self, arm: str, on: str) -> ArmRow | None:
        """Return the row of one arm on one set, or None."""
        return next((one for one in self.rows if (one.arm, one.set) == (arm, on)), None)

    @property
    def main(self) -> str:
        """Return the name of the arm (set of training images) that the answer reports: the arm with generated images,
        else the first arm that is no control, else the first control.
        """
        names = [one.name for one in self.arms if one.name != ORIGINAL]
        rest = [name for name in names if name not in CONTROLS] or names
        return GENERATED if GENERATED in names else next(iter(rest), "")

    @property
    def answer(self) -> str:
        """Return the result in a few sentences."""
        main, on_made = self.main, self.row(self.main, ON_GENERATED)
        base, before = self.row(ORIGINAL, ON_GENERATED), self.row(BEFORE, ON_GENERATED)
        if base is None or on_made is None:
            return "Nothing is compared: every arm but the originals is left out."
        values = {"found": self, "main": main, "on_made": on_made, "base": base, "before": before}
        return TEXTS.paragraph("retraining-answer.txt", **values)


def result_of(
    question: RetrainingQuestion,
    cases: Cases,
    stored: StoredModel,
    planned: RetrainingPlan,
    recipe: TrainingRecipe,
    before: dict[str, Floats],
    answers: dict[tuple[str, int], dict[str, Floats]],
    trainings: Sequence[ArmTraining],
    pace: TrainingPace | None,
) -> RetrainingResult:
    """Calculate everything in a report. `before` has the untrained model's answers, by set. `answers` has the trained
    models' answers, by arm and seed, then by set. `evaluation.retraining.stored_training.learnt` states the form of the
    answers. `trainings` describes the training of each arm and seed.
    """
    sources, kind, seeds = planned.set_sources, stored.identity.kind, range(question.seeds)
    measured = {
        arm.name: {
            name: Measured(sources[name], np.stack([right_of(kind, answers[arm.name, seed][name]) for seed in seeds]))
            for name in planned.sets
        }
        for arm in planned.arms
    }
    compared = Arms(measured, ORIGINAL)
    as_it_is = {
        name: Measured(sources[name], np.tile(right_of(kind, one), (question.seeds, 1)), trained=False)
        for name, one in before.items()
    }
    rows_before = Arms({ORIGINAL: measured[ORIGINAL], BEFORE: as_it_is}, ORIGINAL).rows()
    miou = list[MiouRow]()
    for name in planned.sets if kind == "segmentation" else ():
        miou.append(MiouRow(BEFORE, name, finite(mean_iou(before[name].sum(axis=0)))))
        for arm in planned.arms:
            of_seeds = [mean_iou(answers[arm.name, seed][name].sum(axis=0)) for seed in seeds]
            miou.append(MiouRow(arm.name, name, finite(np.mean(of_seeds))))
    return RetrainingResult(
        kind=kind,
        title=cases.view.title,
        split=question.asked.subject.split,
        model=title_of(question.asked.model),
        identity=stored.identity.digest,
        **cells(question, "preset seeds split_seed"),
        **cells(planned, "sources sides unseen left_out twins_together"),
        recipe=recipe,
        pictures=cases.digest,
        arms=tuple(ArmSummary(one.name, len(one.examples), one.augmentation) for one in planned.arms),
        sets=tuple(
            SetSummary(name, len(examples), len(np.unique(sources[name]))) for name, examples in planned.sets.items()
        ),
        rows=(*(one for one in rows_before if one.arm == BEFORE), *compared.rows()),
        won_back=compared.won_back(ON_ORIGINAL, ON_GENERATED),
        beside=tuple(
            GainOverControl(arm, control, gain, name)
            for name in (ON_GENERATED, ON_UNSEEN, ON_SHIFT)
            for (arm, control), gain in beside_controls(measured, name).items()
        ),
        miou=tuple(miou),
        notes=(*cases.left_out, *planned.notes),
        opened=tuple(opened(planned.behind, {BEFORE: as_it_is, **measured}, kind)),
        trainings=tuple(trainings),
        pace=pace,
    )


def opened(
    behind: Mapping[str, SetEntries], measured: Mapping[str, Mapping[str, Measured]], kind: TaskKind
) -> Iterator[OpenedImages]:
    """Yield the images that the gallery shows for each set, and for each arm on that set. For an arm of a classifier,
    these are the images that it gets wrong with more than half of the seeds, the most often wrong first. An arm of a
    segmenter is never right about all pixels. So the gallery shows 1 in `LOWEST` images: the ones with the smallest
    share of right pixels.
    """
    for name, set_entries in behind.items():
        for arm in ("", *measured):
            of_arm = measured[arm or next(iter(measured))][name]
            images = np.arange(of_arm.right.shape[1])
            if arm:
                share = of_arm.right.astype(float).mean(axis=0)
                images = np.argsort(share, kind="stable")
                number = -(-len(images) // LOWEST) if kind == "segmentation" else int((share < 0.5).sum())
                images = images[:number]
            entries, shown = shown_entries(set_entries, images.tolist(), MOST_OPENED)
            yield OpenedImages(name, arm, len(images), shown, entries)


def shown_entries(set_entries: SetEntries, images: Sequence[int], most: int) -> tuple[tuple[int, ...], int]:
    """Return the ascending catalogue entries that show these images of a set, and the number of images shown. Images
    are taken in the given order, until the next image would bring the number of entries above `most`.
    """
    entries, shown = set[int](), 0
    for own in (set_entries[image] for image in images):
        if own and len(entries) + len(own) > most:
            break
        entries.update(own)
        shown += bool(own)
    return tuple(sorted(entries)), shown


def result_facts(found: RetrainingResult, entries: bool = True) -> dict[str, Any]:
    """Return the whole result, JSON-ready; without `entries`, the images of `opened` are only counted."""
    facts: dict[str, Any] = to_plain(found) | {"answer": found.answer}
    if not entries:
        facts["opened"] = [{name: value for name, value in one.items() if name != "entries"} for one in facts["opened"]]
    return facts


def sides_words(found: RetrainingResult) -> str:
    """Return how the sources are split, in a sentence or two."""
    return TEXTS.paragraph("retraining-sides.txt", found=found)
