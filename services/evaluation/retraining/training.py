"""Plans a retraining (the paper's RQ3): its arms (sets of images to learn from) and the sets of images to measure on.
Sources are split first. All images made of a source stay in the split of the source. This module trains no model.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from core.errors import UserError
from core.evaluation_results import AUGMENTED, CONTROL, ON_GENERATED, ON_ORIGINAL, ON_UNSEEN, ORIGINAL
from core.figures import Flags, Numbers
from core.perceptual_hashes import join_alike, near_any
from core.types import TaskKind
from core.words import count_of
from evaluation.class_mapping import ClassMap
from evaluation.retraining.arm_statistics import BY_VOTES, GENERATED, RANKED
from evaluation.retraining.data_split import SIDES, Side, side_of
from evaluation.retraining.training import (
    Arm,
    Augmentation,
    Example,
    TrainingRecipe,
    paper_deeplab,
    paper_resnet,
    short,
)
from services.evaluation.subjects import Cases, Images, MaskOf
from services.evaluation.texts import TEXTS
from services.evaluation.types import EvaluationQuestion
from services.runs.predictions import model_key

Preset = Literal["short", "paper"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
ArmKey = Literal["augmentation", "reconstructions", "generated", "valid", "ranked"]
ARM_KEYS: tuple[ArmKey, ...] = get_args(ArmKey)
ARM_NAMES: Mapping[ArmKey, str] = {
    "augmentation": AUGMENTED,
    "reconstructions": CONTROL,
    "generated": GENERATED,
    "valid": BY_VOTES,
    "ranked": RANKED,
}
"""Names of the arms (sets of training images). “original only” is always trained, to compare the others with it."""
SetEntries = Sequence[Sequence[int]]
"""Catalogue entries of each image of a set."""
SEEDS = 5
NO_TYPE = "none"
"""Value of `RetrainingQuestion.unseen`: no edit type is held out from the arms."""
SEGMENTED_AT_ONCE = 8
"""Number of images per update in a short fine-tuning of a segmenter."""
LARGE_GROUP = 0.25
"""The largest group of similar sources is reported if it has more than this share of all sources."""
MOST_TUNE = 500
"""Maximum number of originals to tune with, and of test cases to tune with."""


@dataclass(frozen=True)
class RetrainingQuestion:
    """One question: what does training this model further with images of this subject gain?
    `services.evaluation.commands.BeginRetraining` describes all fields except `asked`.
    """

    asked: EvaluationQuestion
    preset: Preset = "short"
    arms: tuple[ArmKey, ...] = ARM_KEYS
    seeds: int = SEEDS
    augmentation: Augmentation = "randaugment"
    unseen: str = ""
    split_seed: int = 0
    updates: int = 0
    batch: int = 0
    rate: float = 0.0
    shift: int | None = None

    @property
    def digest(self) -> str:
        """Return a digest of these settings. Default values are left out, so a new field changes no old digest."""
        question_fields = fields(self)[1:]
        changed = {one.name: value for one in question_fields if (value := getattr(self, one.name)) != one.default}
        return _lasting({"about": kept_under(self.asked), "mapping": self.asked.mapping} | changed)

    def recipe(self, images: int, kind: TaskKind) -> TrainingRecipe:
        """Return the training recipe for this number of originals to learn from."""
        if kind == "segmentation":
            recipe = paper_deeplab(images) if self.preset == "paper" else short(batch=SEGMENTED_AT_ONCE)
        else:
            recipe = paper_resnet(images) if self.preset == "paper" else short()
        changed = {"updates": self.updates, "batch": self.batch, "learning_rate": self.rate}
        return replace(recipe, **{name: value for name, value in changed.items() if value})  # type: ignore[arg-type]


def kept_under(question: EvaluationQuestion) -> str:
    """Return the key under which a question's retrainings are stored. A question must always get the same key."""
    evaluated = question.subject
    named = {"version": evaluated.version, "filter": evaluated.filter.address, "split": evaluated.split}
    return _lasting({**named, "model": model_key(question.model)})


def _lasting(stored: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(stored, sort_keys=True, default=asdict).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class NotMeasured:
    """An arm (a set of training images) or a set to measure on that is left out, and why."""

    name: str
    why: str


@dataclass(frozen=True, eq=False)
class ValidCases:
    """Test cases that count as valid."""

    judged: Numbers
    """For each test case: 1 if votes find it valid, 0 if not, -1 if nobody judged it."""
    foretold: Flags | None
    """True for each test case that a score, learnt from votes, predicts to be valid; None without a score."""
    why: str = ""


@dataclass(frozen=True, eq=False)
class RetrainingPlan:
    """Training arms (sets of images to learn from), and the sets to measure them on."""

    arms: tuple[Arm, ...]
    """Arms, each with the images that it learns from. The first is `ORIGINAL`."""
    tune: tuple[Example, ...]
    sets: Mapping[str, tuple[Example, ...]]
    set_sources: Mapping[str, Numbers]
    """For each set to measure on, the source number of each image."""
    behind: Mapping[str, SetEntries]
    """For each set to measure on, the catalogue entries that show its images in the gallery."""
    originals: int
    """Number of originals to train on."""
    sources: Mapping[Side, int]
    sides: str
    """Digest that changes if a source moves to another split."""
    unseen: str
    """Edit type that no arm (set of training images) contains; "" for none."""
    left_out: tuple[NotMeasured, ...]
    notes: tuple[str, ...]
    twins_together: bool


@dataclass(frozen=True, eq=False)
class DataSplit:
    """The images of an evaluation, split by source into train, tune and test, and which of them are usable."""

    side: tuple[Side, ...]
    """Split of each source: train, tune or test."""
    usable: Sequence[Flags]
    """Flags of usable images: of originals, of test cases, and of reconstructions."""
    unseen: str
    of_unseen: Flags
    """True for each test case with an edit of the type `unseen`."""
    notes: tuple[str, ...]
    left_out: tuple[NotMeasured, ...]
    twins_together: bool = False
    """True if mirrored and cropped copies of sources were searched and kept in one split."""

    def rows(self, which: int, images: Images, side: Side, chosen: Flags | None = None) -> Numbers:
        """Return positions of usable images of a split: originals (`which` 0), test cases (1), reconstructions (2)."""
        here = np.array([one == side for one in self.side], bool)[images.source]
        return np.flatnonzero(here & self.usable[which] & (True if chosen is None else chosen))


def part(
    cases: Cases,
    mapping: ClassMap,
    looks: Mapping[str, int],
    question: RetrainingQuestion,
    twins: Iterable[tuple[str, str]] | None = None,
) -> DataSplit:
    """Split the sources into train, tune and test. Similar sources stay together. `looks` has each picture's perceptual
    hash. `twins` has pairs of sources that show the same picture, mirrored, cropped or the like; None if not searched.
    A train image that looks like a tune or test image is left out, and so is a tune image that looks like a test image.
    Raises UserError if nothing can be learnt from the images, for example if all have the same label.
    """
    shas = cases.originals.shas
    if len(shas) < len(SIDES):
        raise UserError(
            f"The images have {count_of(len(shas), 'source')}, but at least three are needed: one to learn from, "
            "one to tune with and one to measure with."
        )
    usable, lacking = _usable(cases, mapping), "a mask" if cases.view.kind == "segmentation" else "a label"
    without = sum(int((~one).sum()) for one in usable)
    side, together = _sides(shas, looks, twins or (), question.split_seed)
    for one in SIDES:
        if one not in side:
            words = {"train": "to learn from", "tune": "to tune with", "test": "to measure with"}[one]
            raise UserError(
                f"None of the {len(shas):,} sources is left {words}: add sources, or take another seed.",
                field="split_seed",
            )
    alike = _too_alike(cases, side, looks)
    for flags, images in zip(usable, cases.all_images, strict=True):
        flags &= np.array(
            [(side[source], sha) not in alike for source, sha in zip(images.source.tolist(), images.shas, strict=True)],
            bool,
        )
    values = {"together": together, "sources": len(shas), "without": without, "lacking": lacking, "alike": len(alike)}
    notes = TEXTS.paragraphs("retraining-groups.txt", compared=twins is not None, large=LARGE_GROUP, **values)
    parted = DataSplit(side, usable, "", np.zeros(len(cases.generated), bool), (), (), twins is not None)
    parted = replace(parted, notes=(*notes, *_notes_on_labels(cases, parted)))
    return _with_unseen(parted, cases, question.unseen)


def plan(
    cases: Cases,
    parted: DataSplit,
    question: RetrainingQuestion,
    made: Examples,
    valid: ValidCases,
    ranked: Callable[[Numbers], Numbers],
) -> RetrainingPlan:
    """Plan the training arms and the measured sets. `ranked` sorts test cases. Raises UserError for too few images."""
    generated, notes, left_out = cases.generated, list(parted.notes), list(parted.left_out)
    # An image that people found invalid would count as a fault of the model.
    invalid = valid.judged == 0
    originals = made.of(cases.originals, parted.rows(0, cases.originals, "train"))[0]
    learnt_from = parted.rows(1, generated, "train", ~parted.of_unseen)
    sets: dict[str, tuple[Example, ...]] = {}
    sources: dict[str, Numbers] = {}
    behind: dict[str, SetEntries] = {}
    for name, images, rows in (
        (ON_ORIGINAL, cases.originals, parted.rows(0, cases.originals, "test")),
        (ON_GENERATED, generated, parted.rows(1, generated, "test", ~parted.of_unseen & ~invalid)),
        (ON_UNSEEN, generated, parted.rows(1, generated, "test", parted.of_unseen & ~invalid)),
    ):
        examples, places = made.of(images, rows)
        if examples:
            sets[name], sources[name] = examples, images.source[places]
            # An original is no catalogue entry: the test cases made of it open in its place, as for "originals"
            # elsewhere on the page.
            itself = [[entry] for entry in cases.table.entry[images.row[places]].tolist()]
            behind[name] = _made_of(cases, images.source[places]) if name == ON_ORIGINAL else itself
        elif name == ON_UNSEEN and parted.unseen:
            why = f"No test case of the measured sources has an edit of the type “{parted.unseen}”."
            left_out.append(NotMeasured(ON_UNSEEN, why))
    for name, count in (("learn from", len(originals)), ("measure with", len(sets.get(ON_ORIGINAL, ())))):
        if not count:
            raise UserError(f"The retraining has no original that it can {name}: add sources, or take another seed.")
    for name, count in (("learn from", len(learnt_from)), ("measure with", len(sets.get(ON_GENERATED, ())))):
        if not count:
            other = f", or keep another edit type than “{parted.unseen}” from the arms" if parted.unseen else ""
            raise UserError(f"The retraining has no test case that it can {name}: take another seed{other}.")
    faulty = int(invalid[parted.rows(1, generated, "test")].sum())
    if faulty:
        notes.append(f"{count_of(faulty, 'test case', 'is')} not measured with: judged invalid by people.")
    arms = [Arm(ORIGINAL, originals)]
    for key in (one for one in ARM_KEYS if one in question.arms):
        arm_examples = _arm(key, cases, parted, learnt_from, made, valid, ranked)
        augmentation: Augmentation = question.augmentation if key == "augmentation" else ""
        if isinstance(arm_examples, str):
            left_out.append(NotMeasured(ARM_NAMES[key], arm_examples))
        else:
            arms.append(Arm(ARM_NAMES[key], (*originals, *arm_examples), augmentation))
    if valid.foretold is not None and "valid" in question.arms:
        notes.append(
            f"“{BY_VOTES}” has the test cases that votes find valid. Of those that nobody judged, it has those that a "
            "score finds valid, which was learnt from votes."
        )
    sides = "".join(f"{one}\0{sha}\n" for one, sha in sorted(zip(parted.side, cases.originals.shas, strict=True)))
    return RetrainingPlan(
        arms=tuple(arms),
        tune=_tune(cases, parted, made, invalid),
        sets=sets,
        set_sources=sources,
        behind=behind,
        originals=len(originals),
        sources={one: parted.side.count(one) for one in SIDES},
        sides=hashlib.sha256(sides.encode()).hexdigest()[:16],
        unseen=parted.unseen,
        left_out=tuple(left_out),
        notes=tuple(notes),
        twins_together=parted.twins_together,
    )


def require_unseen(cases: Cases, name: str) -> None:
    """Raise UserError for an edit type that no test case has."""
    if name not in ("", NO_TYPE, *cases.of_edit_type):
        present = ", ".join(cases.of_edit_type) or "none"
        raise UserError(f"No test case has an edit of the type “{name[:80]}”. Choose: {present}.", field="unseen")


@dataclass(frozen=True)
class Examples:
    """Makes training examples of images, in an order that depends on the images alone."""

    mapping: ClassMap
    path: Callable[[str], Path]
    mask: Callable[[MaskOf], Path | None]
    """Returns the path of an image with the class group of each mask pixel; None if no pixel has a class group."""

    def of(self, images: Images, rows: Numbers) -> tuple[tuple[Example, ...], Numbers]:
        """Return examples of the images at these positions, and the position of each. Images that cannot be learnt from
        are left out.
        """
        examples = []
        for row in sorted(rows.tolist(), key=lambda row: (images.shas[row], int(images.label[row]))):
            classes = () if images.masks else self.mapping.labels[int(images.label[row])].classes
            target = self.mask(images.masks[row]) if images.masks else classes[0] if len(classes) == 1 else classes
            if target is not None:
                examples.append((Example(self.path(images.shas[row]), target), row))
        return tuple(one for one, _ in examples), np.array([row for _, row in examples], np.int64)


def _made_of(cases: Cases, sources: Numbers) -> SetEntries:
    entries, all_entries = defaultdict[int, list[int]](list), cases.table.entry[cases.generated.row]
    for source, entry in zip(cases.generated.source.tolist(), all_entries.tolist(), strict=True):
        entries[source].append(entry)
    return [entries[source] for source in sources.tolist()]


def _arm(
    key: ArmKey,
    cases: Cases,
    parted: DataSplit,
    learnt_from: Numbers,
    made: Examples,
    valid: ValidCases,
    ranked: Callable[[Numbers], Numbers],
) -> tuple[Example, ...] | str:
    """Return the examples of an arm besides the originals, or a sentence on why it cannot be made."""
    if key == "augmentation":
        return ()
    if key == "reconstructions":
        rows = parted.rows(2, cases.controls, "train")
        if not len(rows):
            return "The sources to learn from have no reconstructions: make the control set."
        return made.of(cases.controls, rows)[0]
    if key == "valid":
        foretold = valid.foretold if valid.foretold is not None else np.zeros(len(valid.judged), bool)
        accepted = (valid.judged == 1) | ((valid.judged == -1) & foretold)
        if valid.foretold is None and not (valid.judged[learnt_from] >= 0).any():
            return f"Nobody has judged the test cases to learn from. {valid.why}".strip()
        learnt_from = learnt_from[accepted[learnt_from]]
        if not len(learnt_from):
            return "None of the test cases to learn from is valid."
    if key == "ranked":
        order = ranked(learnt_from)
        learnt_from = order[: (len(order) + 1) // 2]
    return made.of(cases.generated, learnt_from)[0]


def _tune(cases: Cases, parted: DataSplit, made: Examples, invalid: Flags) -> tuple[Example, ...]:
    """Return originals to tune with, and at most as many test cases, so that test cases do not outweigh originals."""
    originals = made.of(cases.originals, parted.rows(0, cases.originals, "tune"))[0]
    originals = originals[:: max(1, -(-len(originals) // MOST_TUNE))]
    usable = ~parted.of_unseen & ~invalid
    generated = made.of(cases.generated, parted.rows(1, cases.generated, "tune", usable))[0]
    some = generated[:: max(1, -(-len(generated) // max(1, len(originals))))]
    if not originals and not some:
        raise UserError("There is no image to tune with: add sources, or take another seed.")
    return (*originals, *some)


def _sides(
    shas: Sequence[str], looks: Mapping[str, int], twins: Iterable[tuple[str, str]], seed: int
) -> tuple[tuple[Side, ...], list[int]]:
    """Return the split of each source, and the size of each group of similar sources, such as frames of one film. A
    group is in the split of its first source.
    """
    from scipy.cluster.hierarchy import DisjointSet

    groups = DisjointSet()
    join_alike(groups, {sha: looks[sha] for sha in shas})
    for one, other in twins:
        groups.merge(one, other)
    first = {groups[sha]: sha for sha in sorted(shas, reverse=True)}
    sizes = Counter(groups[sha] for sha in shas)
    return tuple(side_of(first[groups[sha]], seed) for sha in shas), [size for size in sizes.values() if size > 1]


def _notes_on_labels(cases: Cases, parted: DataSplit) -> tuple[str, ...]:
    """Return notes on labels that no test image has, and on labels that no training image has; () for segmentation."""
    if cases.view.kind == "segmentation":
        return ()

    def labels_of(side: Side) -> set[int]:
        both = enumerate((cases.originals, cases.generated))
        return {label for at, images in both for label in images.label[parted.rows(at, images, side)].tolist()}

    train, test = labels_of("train"), labels_of("test")
    one_sided = [[f"“{cases.labels[one]}”" for one in sorted(own)] for own in (train - test, test - train)]
    return TEXTS.paragraphs("retraining-labels.txt", only_learnt=one_sided[0], only_measured=one_sided[1])


def _too_alike(cases: Cases, side: Sequence[Side], looks: Mapping[str, int]) -> set[tuple[Side, str]]:
    """Return pairs: a split, and the SHA-256 of a picture in it that looks like a picture of another split, mirrored or
    not. Tune pictures are compared with test pictures. Train pictures are compared with tune and test pictures.

    Sources were compared pixel by pixel before (`core.twins`). That takes quadratic time, so generated images are
    compared by hash.
    """
    of_side: dict[Side, dict[str, int]] = {one: {} for one in SIDES}
    for images in cases.all_images:
        for source, sha in zip(images.source.tolist(), images.shas, strict=True):
            of_side[side[source]][sha] = looks[sha]
    before, found = list[int](), set[tuple[Side, str]]()
    for one in reversed(SIDES):
        shas, hashes = list(of_side[one]), list(of_side[one].values())
        alike = near_any(hashes, before)
        found |= {(one, sha) for sha, too in zip(shas, alike.tolist(), strict=True) if too}
        before += [look for look, too in zip(hashes, alike.tolist(), strict=True) if not too]
    return found


def _with_unseen(parted: DataSplit, cases: Cases, unseen: str) -> DataSplit:
    of_type = cases.of_edit_type

    def enough(flags: Flags) -> bool:
        needed: tuple[tuple[Side, Flags], ...] = (("train", ~flags), ("test", ~flags), ("test", flags))
        return all(len(parted.rows(1, cases.generated, side, chosen)) for side, chosen in needed)

    rarest = sorted(of_type, key=lambda name: (int(of_type[name].sum()), name))
    unseen_type = unseen or next((name for name in rarest if enough(of_type[name])), "")
    if unseen_type not in ("", NO_TYPE):
        return replace(parted, unseen=unseen_type, of_unseen=of_type[unseen_type])
    why = "No edit type can be kept from the arms: each has test cases of too few sources."
    if unseen == NO_TYPE:
        why = "Nobody asked for an edit type to be kept from the arms."
    return replace(parted, left_out=(NotMeasured(ON_UNSEEN, why),))


def _usable(cases: Cases, mapping: ClassMap) -> list[Flags]:
    """Return flags of usable originals, test cases and reconstructions. Raises UserError for fewer than two classes."""
    if cases.view.kind == "segmentation":
        names = mapping.group_names
        usable = [images.masks.there for images in cases.all_images]
    else:
        mapped = np.array([*(bool(one.classes) for one in mapping.labels), False], bool)  # -1 is the last
        usable = [mapped[images.label] for images in cases.all_images]
        numbers = {int(one) for own, images in zip(usable, cases.all_images, strict=True) for one in images.label[own]}
        names = tuple(cases.labels[number] for number in sorted(numbers))
    if len(names) < 2:
        what = f"The model knows one of these labels alone, “{names[0]}”" if names else "The model knows no label here"
        raise UserError(f"{what}, but training needs two labels or more: map more labels to its classes.")
    return usable
