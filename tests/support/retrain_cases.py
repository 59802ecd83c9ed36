"""Helpers of the retraining tests: a small question, its plan, and fixtures for the services on a file's workspace.
The file defines a fixture `filled` for that workspace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest

from core.test_sets import SetEntry
from evaluation.retraining.data_split import SIDES, Side
from experiments.paper.shared_images import Pictured, shared
from services.evaluation.retraining.jobs import Retrainings, parted_of
from services.evaluation.retraining.training import (
    DataSplit,
    Examples,
    RetrainingPlan,
    RetrainingQuestion,
    ValidCases,
    plan,
)
from services.evaluation.service import EvaluationService
from services.evaluation.subjects import Cases
from storage.workspace import Workspace
from tests.support.evaluation_cases import BIRDS, service_of

QUICK = RetrainingQuestion(BIRDS, seeds=1, updates=2, batch=4, rate=0.01, arms=("generated",))
"""Maximum number of seconds."""


def quiet(what: str, done: int, total: int) -> None:
    """Progress callback that does nothing."""


@pytest.fixture(scope="module")
def evaluations(filled: Workspace) -> Iterator[EvaluationService]:
    made = service_of(filled)
    yield made
    made.close()


@pytest.fixture
def retrainings(filled: Workspace, evaluations: EvaluationService) -> Iterator[Retrainings]:
    made = Retrainings(filled, evaluations)
    yield made
    made.close()


def planned(
    workspace: Workspace, service: EvaluationService, question: RetrainingQuestion
) -> tuple[Cases, RetrainingPlan, int]:
    """Return the images, the plan of a question without votes, and the number of images shared by two splits."""
    cases, stored = service.cases(question.asked.subject), service.predicting.identify(question.asked.model)
    mapping = service.class_map(question.asked, cases, stored)
    parted, looks = parted_of(workspace, cases, mapping, question)
    nobody = ValidCases(np.full(len(cases.generated), -1), None, "Nobody judged.")
    made = Examples(mapping, workspace.images.path, lambda _: None)
    found = plan(cases, parted, question, made, nobody, lambda places: places[::-1])
    return cases, found, len(_shared_images(cases, parted, looks))


def _shared_images(cases: Cases, parted: DataSplit, looks: Mapping[str, int]) -> Sequence[object]:
    """Return the images that are in two splits, or look like one in another split."""
    sides: dict[Side, list[Pictured]] = {one: [] for one in SIDES}
    for which, images in enumerate(cases.all_images):
        for one in SIDES:
            for place in parted.rows(which, images, one).tolist():
                sha, source = images.shas[place], cases.originals.shas[images.source[place]]
                sides[one].append(Pictured(sha, source, sha, looks[sha]))
    return shared(sides)


def draft(workspace: Workspace, name: str, entries: list[SetEntry]) -> int:
    """Create a test set of these images. Return the number of its draft."""
    number = workspace.test_sets.get(workspace.test_sets.create(name)).versions[0].number
    workspace.test_sets.add(number, entries)
    return number


def sides(
    workspace: Workspace, service: EvaluationService, question: RetrainingQuestion
) -> tuple[Cases, tuple[str, ...]]:
    """Return the images of a question, and the split of each source."""
    cases, stored = service.cases(question.asked.subject), service.predicting.identify(question.asked.model)
    return cases, parted_of(workspace, cases, service.class_map(question.asked, cases, stored), question)[0].side


def masked(cases: Cases, place: int, changed: dict[str, str] | None = None) -> SetEntry:
    """Return an original with its mask as a set entry, with some classes renamed."""
    sha, (mask, names) = cases.originals.shas[place], cases.originals.masks[place]
    classes = {int(number): (changed or {}).get(name, name) for number, name in json.loads(names).items()}
    return SetEntry(sha, sha, mask=mask, mask_classes=classes)
