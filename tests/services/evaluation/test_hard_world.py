"""A realistic case: unequal numbers of test cases, reconstructions of some sources, and a study of selected images
with annotators who err together. Page, report, files, command and scripts agree, and the figures are true.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from cli.evaluation import main
from core.figures import Figure
from evaluation.effectiveness import UNKNOWN, WRONG
from evaluation.report import with_interval
from services.evaluation.commands import OnModel
from services.evaluation.facts import facts_of, file_of
from services.evaluation.results import EvaluationResult
from services.evaluation.service import EvaluationService
from services.evaluation.types import Cell
from storage.workspace import Workspace
from tests.services.evaluation.test_results import judged
from tests.support.evaluation_cases import BIRDS, fill, read_all, service_of
from ui.evaluate.page import report_html
from ui.evaluate.result import result_part
from ui.evaluate.words import Links

pytestmark = pytest.mark.slow

KIND = ["--filter", "kind=classification"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Workspace of 6 sources with 2 test cases and a reconstruction each, and 5 sources with 10 test cases and none."""
    path = tmp_path_factory.mktemp("hard") / "workspace"
    with Workspace(path) as workspace:
        fill(workspace, 6, most=(1, 1), seed=5)
        fill(workspace, 5, controls=False, seed=6)
        service = service_of(workspace)
        read_all(service, BIRDS)
        found = service.result(BIRDS)
        case = found.cases.table.test_case[found.cases.generated.row]
        # Only wrong images are judged, and both annotators find all of them valid.
        judged(workspace, dict.fromkeys(case[found.right == WRONG].tolist()[::2], "yes"))
        service.close()
    return path


@pytest.fixture
def service(folder: Path) -> Iterator[EvaluationService]:
    with Workspace(folder) as workspace:
        made = service_of(workspace)
        yield made
        made.close()


def wrong_of_sources(found: EvaluationResult) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each source whether its original is wrong, the error rate of its test cases, and their number."""
    source = found.cases.generated.source
    assert not (found.right == UNKNOWN).any() and found.compared.all()
    shares = [np.mean(found.right[source == one] == WRONG) for one in range(len(found.before))]
    return found.before == WRONG, np.array(shares), np.bincount(source)


def test_the_figures_are_those_of_the_sources(service: EvaluationService) -> None:
    found = service.result(BIRDS)
    before, shares, size = wrong_of_sources(found)
    held = found.evaluated.effectiveness
    assert held is not None and sorted(size.tolist()) == [2] * 6 + [10] * 5
    assert held.error_original.value == pytest.approx(before.mean())
    assert held.error_generated.value == pytest.approx(shares.mean())
    assert held.difference.value == pytest.approx(shares.mean() - before.mean())
    by_case = service.evaluate(replace(BIRDS, weighing="case")).effectiveness
    assert by_case is not None
    assert by_case.error_generated.value == pytest.approx(np.average(shares, weights=size))
    assert by_case.error_generated.value == pytest.approx(len(service.entries(BIRDS, Cell("wrong"))) / size.sum())
    controlled = size == 2
    assert (held.controlled, held.sources) == (6, 11)
    assert held.error_original_controlled.value == pytest.approx(before[controlled].mean())
    assert held.error_generated_controlled.value == pytest.approx(shares[controlled].mean())
    assert held.error_reconstructed.value is not None and held.excess.value == pytest.approx(
        shares[controlled].mean() - held.error_reconstructed.value
    )


def test_the_answer_says_what_it_is_of_and_promises_no_more(service: EvaluationService) -> None:
    evaluated = service.evaluate(BIRDS)
    words, validity = evaluated.answer, evaluated.validity
    assert "of 11 originals and on" in words and "62 test cases made of them (each source weighs the same)" in words
    assert "On the 6 of 11 sources that have a reconstruction, it is wrong on" in words
    assert "Drawing alone" not in words
    assert validity is not None and validity.by_strata.high is not None
    # Wrong and valid images are wrong ones. Only wrong images were judged, and all were found valid.
    assert validity.as_measured.high is not None and validity.by_strata.high <= validity.as_measured.high + 1e-9
    assert validity.among_valid.value is None, "no right image was judged"
    assert "a selected sample" in words and "Without control items" in words


def test_page_report_files_command_and_scripts_say_the_same(
    service: EvaluationService, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluated = service.evaluate(BIRDS)
    facts = facts_of(evaluated)
    assert service.evaluate(service.asked(OnModel(filter="kind=classification"))) == evaluated
    assert main(["effectiveness", *KIND, "--workspace", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == facts == json.loads(file_of(evaluated, "json"))

    rows = list(csv.DictReader(io.StringIO(file_of(evaluated, "csv").decode())))
    table = pyarrow.parquet.read_table(io.BytesIO(file_of(evaluated, "parquet"))).to_pylist()
    assert len(rows) == len(table) == len(facts["figures"])
    for row, typed, plain in zip(rows, table, facts["figures"], strict=True):
        assert typed == plain
        for name in ("value", "low", "high"):
            assert row[name] == ("" if plain[name] is None else repr(plain[name]))

    held, latex = evaluated.effectiveness, file_of(evaluated, "latex").decode()
    assert held is not None
    markdown, page = (
        file_of(evaluated, "markdown").decode(),
        re.sub(r"<[^>]*>", "", str(result_part(evaluated, Links()))),
    )
    report = report_html(evaluated, None, lambda _sha: b"")
    assert evaluated.answer in markdown and facts["weighing"] == "source"
    for figure, points in (
        (held.error_original, False),
        (held.error_generated, False),
        (held.difference, True),
        (held.error_generated_controlled, False),
        (held.excess, True),
    ):
        assert figure.value is not None and figure.low is not None
        assert f"| {with_interval(figure, points)} |" in markdown
    for figure in (held.error_original, held.error_generated, held.excess):
        assert f"{100 * (figure.value or 0):.2f} [" in latex.replace("+", "")
    for words in (page, report):
        assert _short(held.error_generated) in words and "6 of 11 sources" in words


def _short(figure: Figure) -> str:
    return f"{100 * (figure.value or 0):.1f} %"
