"""Drafts a validity study for an evaluation. The study's votes separate faults of the model from invalid images."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from core.errors import UserError
from core.masks import numbers_of
from core.studies import Rules, asked
from core.types import TaskKind
from core.words import and_list
from evaluation.effectiveness import WRONG
from evaluation.samples import expected_width, sample_sizes
from services.evaluation.model_outcomes import RunMasks
from services.evaluation.results import STANDING, EvaluationResult, strata_of
from services.evaluation.texts import TEXTS
from services.studies import draft_form
from services.studies.control_items import disguises, keep_in_step
from services.studies.drafts import QUIZ
from services.studies.item_filter import items_of
from services.studies.templates import TEMPLATES
from storage.workspace import Workspace

LIKELY_VALID = 0.8
"""Share of valid images to assume before a study. The DILLEMA paper found that 82.7 % of 300 images are valid."""
TEMPLATE: Mapping[TaskKind, str] = {"classification": "classification", "segmentation": "preservation"}
"""Template of the questions for all images of the study: does the image still show its class, or are road, vehicles and
pedestrians still in their places?"""
SEED_DIGITS = 10**6
Create = Callable[[str, Rules], str]
"""Saves a new draft by its name and rules, and returns its id."""


@dataclass(frozen=True)
class SampleRow:
    """Number of images to judge in one stratum."""

    stratum: str
    """Name of the stratum: right or wrong (in words of `services.evaluation.results.STANDING`), and the edit type."""
    images: int
    judged: int


@dataclass(frozen=True)
class StudyPlan:
    """A sample of images to judge, and its expected precision."""

    rows: tuple[SampleRow, ...]
    width: float
    """Expected width of the 95 % interval of the share of images that are wrong and valid, 0 to 1."""
    kind: TaskKind = "classification"
    not_asked: int = 0
    """Number of test cases left out, since no question of the template is about their classes."""
    methods: int = 1
    """Number of methods that made the test cases. If there are several, each has strata of its own."""

    @property
    def judged(self) -> int:
        return sum(row.judged for row in self.rows)

    @property
    def words(self) -> str:
        """Return the plan in a sentence or two."""
        left = [f"{row.stratum} ({row.images:,})" for row in self.rows if row.images and not row.judged]
        values = {"likely_valid": LIKELY_VALID, "standing": STANDING[self.kind], "asked_of": _asked_of()}
        return TEXTS.paragraph("study-plan.txt", plan=self, left=left, **values)


def plan_study(found: EvaluationResult, judged: int) -> StudyPlan:
    """Plan how many images of each stratum to judge, at most `judged` in all. Raises UserError if no test case can be
    compared. For a segmenter, also raises UserError if the question template asks about none of the images' classes.
    """
    _, number, names, not_asked = _judgeable(found)
    images = np.bincount(number, minlength=len(names)).tolist()
    total = sum(images)
    # An image that the model gets right never counts as wrong and valid, for any votes.
    kind: TaskKind = found.cases.view.kind or "classification"
    is_wrong = [name.startswith(f"{STANDING[kind][1]}, ") for name in names]
    sizes = sample_sizes(images, judged, wrong=is_wrong)
    wrong = [place for place, one in enumerate(is_wrong) if one]
    shown = found.evaluated
    measured = shown.losses.generated if shown.losses is not None else None
    measured = shown.effectiveness.error_generated if shown.effectiveness is not None else measured
    shares, asked_of = [images[one] / total for one in wrong], [sizes[one] for one in wrong]
    width = expected_width(shares, asked_of, LIKELY_VALID, measured)
    rows = tuple(SampleRow(*row) for row in zip(names, images, sizes, strict=True))
    return StudyPlan(rows, width, kind, not_asked, len(found.cases.methods))


def draft_study(
    workspace: Workspace, found: EvaluationResult, plan: StudyPlan, model: str, create: Create | None = None
) -> str:
    """Draft a study with control and quiz items, and return its id. Images are drawn at random in each stratum.

    All images get the same questions, except questions that do not apply. `model` is the key of the model's stored
    predictions. `create` saves the draft before its items. Raises UserError if `plan_study` raises it.
    """
    places, number, names, _ = _judgeable(found)
    seed = secrets.randbelow(SEED_DIGITS)
    chance = np.random.default_rng(seed)
    sizes = {row.stratum: row.judged for row in plan.rows}
    cases, groups = found.cases, dict[int, str]()
    case_ids = cases.table.test_case[cases.generated.row]
    for at, name in enumerate(names):
        inside = places[number == at]
        drawn = chance.choice(inside, min(sizes.get(name, 0), len(inside)), replace=False)
        groups.update((int(case_ids[place]), name) for place in drawn)
    title = f"Validity of {cases.view.title}"[: draft_form.LONGEST_NAME]
    template = TEMPLATES[TEMPLATE[plan.kind]]
    rules = draft_form.default_rules(template.rules(), QUIZ, seed)
    known = workspace.models_under_test.known_classes(model)
    masks, read = RunMasks(workspace), workspace.test_cases.candidates(sorted(groups))
    items = [
        item
        for candidate in read
        for item in items_of([candidate], groups[candidate.test_case], model, masks, known=known)
        if asked(rules.questions, item, {})
    ]
    study = (create or workspace.studies.create)(title, rules)
    workspace.studies.add_items(study, items)
    keep_in_step(workspace.studies, study, disguises(workspace))
    workspace.studies.note(
        "items drawn",
        f"{len(items)} images drawn at random within {' and '.join(STANDING[plan.kind])}, by edit type, seed {seed}",
        study,
    )
    return study


def _judgeable(found: EvaluationResult) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], int]:
    """Return the positions of test cases that can be judged, their strata, the strata's names, and the number of test
    cases left out because no question is about their classes.
    """
    cases = found.cases
    places = np.flatnonzero(found.known & (cases.table.test_case[cases.generated.row] >= 0))
    segments = cases.view.kind == "segmentation"
    if not len(places):
        what = "shows a class that is found on its original" if segments else "can be compared with its label"
        raise UserError(f"None of these test cases {what}, so there is nothing to judge: choose other images.")
    not_asked = 0
    if segments:
        texts = cases.table.protected.of(cases.generated.row[places])
        known = {text: any(numbers_of(name, json.loads(text)) for name in _asked_of()) for text in {*texts} - {""}}
        is_asked = np.array([known.get(text, False) for text in texts], bool)
        not_asked, places = int((~is_asked).sum()), places[is_asked]
        if not len(places):
            raise UserError(
                "No question template fits the classes of these images: there are templates for "
                f"{and_list(_asked_of())}. Create a study with your own questions on the page Study."
            )
    stratum, names = strata_of(cases, found.right == WRONG)
    used, number = np.unique(stratum[places], return_inverse=True)
    return places, number, tuple(names[one] for one in used), not_asked


def _asked_of() -> tuple[str, ...]:
    return tuple(one.only_with for one in TEMPLATES[TEMPLATE["segmentation"]].questions)
