"""Explanations of figures: each figure of a report has one, and `docs/evaluate.md` has the same words."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from core.figures import Figure
from evaluation.effectiveness import WRONG
from evaluation.report import Row, rows
from evaluation.segmentation import loss_effect, lost_by, missed_by
from evaluation.sensitivity import SensitivityRow
from evaluation.validity import Judged, validity_effect
from tests.evaluation.test_effectiveness import a_world, of_world
from tests.evaluation.test_segmentation_effect import NAMES, an_effect
from ui.evaluate.explained import GROUPS, explained
from ui.markup import join

DOCS = Path(__file__).resolve().parents[3] / "docs" / "evaluate.md"
EDITS = {"edit type": [SensitivityRow("weather", 90, 30, Figure(-0.4, -0.5, -0.3), 0.5, 45, 0.01, 0.02)]}
STRATA = ("right", "wrong")


def of_classifier() -> list[Row]:
    _, generated, _, _ = a_world()
    wrong = generated.right == WRONG
    votes = np.where(np.arange(len(wrong)) % 20 == 0, 3, 0)
    judged = Judged(generated.source, wrong, wrong.astype(np.int64), votes, votes)
    return list(rows(of_world(), validity_effect(judged, STRATA, resamples=200), EDITS))


def of_segmenter() -> list[Row]:
    effect, original, generated = an_effect()
    protected, groups = np.ones((30, 2), bool), [(0,), (1,)]
    lost = lost_by(original, generated, protected[generated.source], groups)
    losses = loss_effect(missed_by(original, protected, groups), lost, lost, NAMES[:2], [""] * 30)
    wrong, votes = lost.right == WRONG, np.ones(90, np.int64)
    judged = Judged(lost.source, wrong, wrong.astype(np.int64), votes, votes)
    return list(rows(effect, validity_effect(judged, STRATA, resamples=200), EDITS, losses))


def test_every_figure_of_a_report_has_an_explanation() -> None:
    figures = {row.figure for row in (*of_classifier(), *of_segmenter())}
    assert len(figures) > 40, "of both kinds of models, with votes and edits"
    assert [name for name in sorted(figures) if "data-explain" not in join(explained(name))] == []


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        ("what 2,500 test cases are worth", "Effective number of images"),
        ("what 1 test case is worth", "Effective number of images"),
        ("in excess of reconstruction", "Excess"),
        ("apfd", "APFD"),
    ],
)
def test_a_figure_is_explained_under_each_name_that_it_has(shown: str, name: str) -> None:
    assert f"What is “{name}”?" in join(explained(shown))
    assert join(explained(shown)).startswith(shown), "the name stays as it is"


def test_an_explanation_is_one_or_two_sentences_and_an_example() -> None:
    terms = [term for group in GROUPS.values() for term in group]
    assert len({term.key for term in terms}) == len(terms) and len(terms) == len({term.name for term in terms})
    for term in terms:
        assert term.words.endswith(".") and term.words.count(". ") <= 2, term.name
        assert term.example.endswith(".") and term.example != term.words, term.name


def test_the_docs_say_the_same_words() -> None:
    told = re.sub(r"\s+", " ", DOCS.read_text(encoding="utf-8"))
    for term in (term for group in GROUPS.values() for term in group):
        assert f"- *{term.name}*: {term.words} Example: {term.example}" in told, "docs/evaluate.md says it otherwise"
