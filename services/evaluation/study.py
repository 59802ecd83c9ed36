"""A validity study for an evaluation: which images people should judge, so that faults of the model can be told from
images that are no good, and how sure that will be.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import numpy as np

from evaluation.effectiveness import UNKNOWN, WRONG
from evaluation.validity import expected_width, sample_sizes
from pipeline.errors import UserError
from services.evaluation.results import Found, strata_of
from services.model_outcomes import RunMasks
from services.studies import draft_form
from services.studies.drafts import QUIZ
from services.studies.item_filter import ItemFilter, items_of
from storage.workspace import Workspace
from study.templates import TEMPLATES

LIKELY_VALID = 0.8
"""How many images are taken to be valid for the expected width: the paper found 82.7 % of 300."""
TEMPLATE = "classification"
"""The one question that every image of the study is asked, right or wrong: does it still show its class?"""
SEED_DIGITS = 10**6


@dataclass(frozen=True)
class SampleRow:
    """What is drawn of one stratum."""

    stratum: str
    """Right or wrong, and the edit type."""
    images: int
    judged: int


@dataclass(frozen=True)
class StudyPlan:
    """A sample, and what may be expected of it."""

    rows: tuple[SampleRow, ...]
    width: float
    """How wide the 95 % interval of the share of images that are wrong and valid is likely to be, 0 to 1."""

    @property
    def judged(self) -> int:
        return sum(row.judged for row in self.rows)

    @property
    def words(self) -> str:
        """In a sentence."""
        return (
            f"{self.judged:,} images, drawn at random within {len(self.rows):,} groups (right or wrong, by edit type): "
            f"the share that is wrong and valid will be known to about ± {50 * self.width:.1f} points, if some "
            f"{LIKELY_VALID:.0%} are valid."
        )


def plan_study(found: Found, judged: int) -> StudyPlan:
    """How many images of each stratum to judge, of at most `judged` in all. Raises UserError where no test case can be
    judged: of a segmenter, and where none can be compared with its label.
    """
    _, number, names = _judgeable(found)
    images = np.bincount(number, minlength=len(names)).tolist()
    sizes = sample_sizes(images, judged)
    total = sum(images)
    # An image that the model gets right is none that is wrong and valid, whatever people say of it.
    wrong = [place for place, name in enumerate(names) if name.startswith("wrong")]
    width = expected_width([images[one] / total for one in wrong], [sizes[one] for one in wrong], LIKELY_VALID)
    return StudyPlan(tuple(SampleRow(*row) for row in zip(names, images, sizes, strict=True)), width)


def draft_study(workspace: Workspace, found: Found, plan: StudyPlan, model: str) -> str:
    """The id of a new draft with such a sample, drawn at random within each stratum: one question, the same for all.
    `model` is what the predictions of the model are stored under. Raises UserError as `plan_study`.
    """
    places, number, names = _judgeable(found)
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
    rules = draft_form.default_rules(TEMPLATES[TEMPLATE].rules(), QUIZ, seed)
    masks, read = RunMasks(workspace), workspace.test_cases.candidates(sorted(groups))
    items = [
        item
        for candidate in read
        for item in items_of([candidate], ItemFilter(group=groups[candidate.test_case]), model, masks)
    ]
    study = workspace.studies.create(title, rules)
    workspace.studies.add_items(study, items)
    workspace.studies.note(
        "items drawn", f"{len(items)} images drawn at random within right and wrong, by edit type, seed {seed}", study
    )
    return study


def _judgeable(found: Found) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """The test cases of this workspace that can be compared, by their places; the stratum of each; their names."""
    cases = found.cases
    if cases.view.kind == "segmentation":
        raise UserError(
            "A study of what validity does is drafted for a classifier: for a segmenter, draw one on the page Study."
        )
    there = found.compared[cases.generated.source] & (found.right != UNKNOWN)
    there &= cases.table.test_case[cases.generated.row] >= 0
    places = np.flatnonzero(there)
    if not len(places):
        raise UserError("No test case of this workspace can be compared with its label: there is nothing to judge.")
    stratum, names = strata_of(cases, found.right == WRONG)
    used, number = np.unique(stratum[places], return_inverse=True)
    return places, number, tuple(names[one] for one in used)
