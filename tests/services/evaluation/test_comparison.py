"""Two models on the same test cases: compared by command, on the page, and on every image that both have read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from core.errors import UserError
from evaluation.models import ModelUnderTest
from services.evaluation.service import EvaluationService
from services.evaluation.types import EvaluationQuestion, ModelComparison, Subject
from services.studio import Studio
from tests.support.evaluation_cases import BIRDS, CLASSIFIER, OBJECTS, fill, read_all, service_of
from tests.support.model_cases import onnx_file
from tests.support.workspaces import workspace_in
from ui.evaluate.comparing import comparison_part
from ui.evaluate.words import Place

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> EvaluationQuestion:
    """Question about a network with random weights, on the same images."""
    return EvaluationQuestion(OBJECTS, onnx_file(tmp_path_factory.mktemp("small") / "small.onnx"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, small: EvaluationQuestion) -> Iterator[EvaluationService]:
    """Service whose two classifiers have read six boats. Tests save nothing in it."""
    with workspace_in(tmp_path_factory.mktemp("two") / "workspace") as workspace:
        fill(workspace, 6, label="boat", controls=False, most=(2, 2))
        made = service_of(workspace)
        read_all(made, BIRDS)
        read_all(made, small)
        yield made
        made.close()


def compared(service: EvaluationService, small: EvaluationQuestion) -> ModelComparison:
    found = service.compare(BIRDS, small)
    assert found is not None
    return found


def test_the_difference_is_that_of_the_models_asked_image_by_image(
    service: EvaluationService, small: EvaluationQuestion
) -> None:
    cases, load = service.cases(OBJECTS), service._workspace.images.load
    wrong = [
        np.array([model.predict(load(sha)).top[0].label != "boat" for sha in cases.generated.shas])
        for model in (ModelUnderTest(CLASSIFIER), ModelUnderTest(small.model))
    ]
    source = cases.generated.source
    by_source = [wrong[1][source == n].mean() - wrong[0][source == n].mean() for n in np.unique(source)]
    found = compared(service, small).paired
    assert found.difference.value == pytest.approx(np.mean(by_source))
    assert (found.cases, found.sources, found.left_out) == (len(source), 6, 0)
    assert found.only_second == (wrong[1] & ~wrong[0]).sum() and found.only_first == (wrong[0] & ~wrong[1]).sum()


def test_the_page_says_which_is_better_and_a_version_beside_another_says_nothing_of_it(
    service: EvaluationService, small: EvaluationQuestion
) -> None:
    pair = service.evaluate(BIRDS), service.evaluate(small)
    found = compared(service, small)
    shown = comparison_part(pair, (Place(key="a"), Place(key="b")), found)
    assert 'id="which-is-better"' in shown and "each source weighs the same" in shown
    assert f"only small.onnx: {found.paired.only_second:,}." in shown
    other = EvaluationQuestion(Subject(version=1), CLASSIFIER)
    assert service.compare(BIRDS, other) is None
    assert "which-is-better" not in comparison_part(pair, (Place(version=1), Place(version=2)), None)


def test_a_script_asks_for_a_second_model_and_is_told_the_same(studio: Studio, tmp_path: Path) -> None:
    fill(studio.workspace, 3, label="boat", controls=False, most=(2, 2))
    second = EvaluationQuestion(OBJECTS, onnx_file(tmp_path / "small.onnx"))
    for asked in (BIRDS, second):
        read_all(studio.evaluations, asked)
    keys = {one.title: one.key for one in studio.evaluations.models(OBJECTS)}
    beside = next(key for title, key in keys.items() if "small.onnx" in title)
    told = studio.commands.send("show-evaluation", {"filter": "kind=classification", "beside": beside})
    found = compared(studio.evaluations, second)
    assert told["beside"]["answer"] == found.answer and told["beside"]["model"] == "small.onnx"
    assert told["beside"]["paired"]["difference"]["value"] == found.paired.difference.value
    assert studio.commands.send("show-evaluation", {"filter": "kind=classification"})["beside"] is None
    with pytest.raises(UserError, match="There is no such model any more"):
        studio.commands.send("show-evaluation", {"filter": "kind=classification", "beside": "none"})
