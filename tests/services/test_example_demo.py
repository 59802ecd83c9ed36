"""The example workspace by the embedded models, at the smallest size that shows each part."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.evaluation.types import EvaluationQuestion, Subject
from tests.support.demo_server import demo_models
from tests.support.evaluation_cases import CLASSIFIER, SEGMENTER
from tests.support.example_cases import example_studio, made

pytestmark = [pytest.mark.demo, pytest.mark.slow]


def test_the_embedded_models_make_an_example_with_figures(tmp_path: Path) -> None:
    with example_studio(tmp_path / "workspace", demo_models()) as studio:
        view = made(studio)
        things, streets = (
            studio.evaluations.evaluate(EvaluationQuestion(Subject(one.version), model))
            for one, model in zip(view.sets, (CLASSIFIER, SEGMENTER), strict=True)
        )
        assert things.effectiveness is not None and things.effectiveness.error_generated.value is not None
        assert things.effectiveness.error_original.value == 0, "the model knows fair days"
        assert streets.losses is not None and streets.losses.generated.value is not None
        assert things.against_control and things.effectiveness.excess.value is not None
        (study,) = studio.workspace.studies.all()
        assert study.votes == study.needed >= 5
