"""`python -m evaluation` prints the figures of the page Evaluate as text and as data, and mistakes in a sentence."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.evaluation import main
from core.progress import OnCount
from core.settings import UnderTestSettings
from services.evaluation.facts import facts_of
from services.evaluation.predicting import Predicting, Read
from services.evaluation.service import EvaluationService
from services.evaluation.subjects import Cases
from storage.workspace import Workspace
from tests.services.evaluation.test_cases import set_of
from tests.services.evaluation.test_results import BIRDS, CLASSIFIER, SEGMENTER, service_of
from tests.support.evaluation_cases import fill
from tests.support.model_cases import onnx_file, onnx_of_steps
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
KIND = ["--filter", "kind=classification"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Workspace of both tasks with a test set. Tests save predictions in it, and nothing else."""
    path = tmp_path_factory.mktemp("command")
    with workspace_in(path) as workspace:
        fill(workspace, 3)
        for case in workspace.catalogue.test_cases(workspace.catalogue.ids()):
            workspace.test_cases.review(case, "accepted")
        set_of(workspace)
        fill(workspace, 1, road=True)
    yield path


def test_the_command_says_what_the_page_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["effectiveness", *KIND, "--json", "--workspace", str(folder)]) == 0
    told = json.loads(capsys.readouterr().out)
    with Workspace(folder) as workspace:
        service: EvaluationService = service_of(workspace)
        assert told == facts_of(service.evaluate(BIRDS))
        assert service.evaluate(BIRDS).pending.left == 0
        service.close()
    assert main(["effectiveness", *KIND, "--workspace", str(folder)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# classifier.safetensors on Images of a filter") and told["answer"] in text.replace(
        "\\", ""
    )


def test_a_version_of_a_test_set_and_a_model_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["effectiveness", "Scenes", "--model", CLASSIFIER.file, "--workspace", str(folder)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("# classifier.safetensors on Scenes@draft") and "## By class" in text
    assert main(["effectiveness", "Scenes", "--latex", "--workspace", str(folder)]) == 0
    assert r"\begin{tabular}" in capsys.readouterr().out
    assert main(["sensitivity", "Scenes", "--workspace", str(folder)]) == 0
    text = capsys.readouterr().out
    assert "## By edit type\n\n2 rows have fewer than 20 test cases" in text and "against reconstructions" in text
    assert main(["sensitivity", "Scenes", "--json", "--workspace", str(folder)]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert {row["part"] for row in figures} == {"edit type", "keyword", "alternative", "class"}
    assert [row["images"] for row in figures if row["name"] == "weather"] == [18], "all rows are in the data"


def test_a_segmenter_has_its_own_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["effectiveness", "--filter", "kind=segmentation", "--workspace", str(folder)]) == 0
    assert "mIoU on generated images" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "Name a test set"),
        (["Cars"], "Cars"),
        (["--filter", "class=nothing"], "It has no test case"),
        (["--filter", "like=fog"], "used as filters"),
        (["--filter", ""], "are of a classification and"),
        ([*KIND, "--model", "nothing"], "There is no model 'nothing'"),
        ([*KIND, "--model", "http://127.0.0.1:9"], "cannot be|could not|does not|127.0.0.1:9"),
        ([*KIND, "--mapping", "/nowhere.csv"], "nowhere.csv"),
        ([*KIND, "--split", "test"], "is of the split “test”"),
    ],
)
def test_mistakes_end_with_a_sentence(
    folder: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["effectiveness", *arguments, "--workspace", str(folder)]) == 2
    told = capsys.readouterr()
    assert not told.out and re.search(sentence, told.err) and "Traceback" not in told.err
    assert len(told.err.strip().splitlines()) == 1


def test_as_a_person_calls_it(folder: Path) -> None:
    command = [sys.executable, "-m", "evaluation", "effectiveness", "Cars", "--workspace", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (2, "") and "Cars" in done.stderr and done.stderr.count("\n") == 1


def test_a_segmenter_is_not_asked_about_birds(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["effectiveness", *KIND, "--model", SEGMENTER.file, "--workspace", str(folder)]) == 2
    assert "choose a classifier" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["effectiveness", "--nonsense"])
    assert ended.value.code == 2


def test_the_exit_code_of_the_gate_says_whether_a_model_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One model calls every picture a bird, which all are. The profile's classifier fails on most edits."""
    sure, folder = onnx_of_steps(tmp_path / "sure.onnx", bias=(50.0, 0.0, 0.0)), tmp_path / "workspace"
    with workspace_in(folder) as workspace:
        fill(workspace, 5, label="bird", controls=False, most=(3, 2))
    given = [f"--set={name}={getattr(sure, name)}" for name in ("mean", "std")]
    asked = [
        "gate",
        *KIND,
        "--workspace",
        str(folder),
        "--no-worse-than",
        "5",
        "--set=classes=bird, boat, kite",
        *given,
    ]
    junit = tmp_path / "gate.xml"
    assert main([*asked, "--against", sure.file, "--junit", str(junit)]) == 1
    text = capsys.readouterr().out
    assert (
        text.startswith("# Worse: classifier.safetensors should not replace sure.onnx") and "at most 5 points" in text
    )
    assert ElementTree.parse(junit).getroot().get("failures") == "1"
    assert main([*asked, "--model", sure.file, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["answer"], told["margin"], told["models"][1]) == ("no worse", 0.05, "sure.onnx")
    assert told["rows"][0]["difference"]["high"] <= 0.05
    assert main(asked) == 2 and "Both models are the same" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["gate", *KIND, "--workspace", str(folder), "--no-worse-than", "-1"])
    assert ended.value.code == 2 and "from 0 to 100" in capsys.readouterr().err


def test_ctrl_c_ends_it_and_what_was_read_is_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = onnx_file(folder / "net.onnx")
    whole = Predicting.read

    def interrupted(self: Predicting, wanted: UnderTestSettings, cases: Cases, on_count: OnCount) -> Read:
        def count(done: int, total: int) -> None:
            if done >= 8:
                signal.raise_signal(signal.SIGINT)
            on_count(done, total)

        return whole(self, wanted, cases, count)

    monkeypatch.setattr(Predicting, "read", interrupted)
    given = [f"--set={name}={getattr(model, name)}" for name in ("classes", "mean", "std")]
    asked = ["effectiveness", *KIND, "--model", model.file, *given, "--workspace", str(folder)]
    assert main(asked) == 130
    told = capsys.readouterr().err
    assert "Picture: scaled to 32 × 32 pixels" in told and "Class names: 3, from the list that was given" in told
    with Workspace(folder) as workspace:
        service = service_of(workspace)
        (choice,) = (one for one in service.models(BIRDS.subject) if one.settings.source == "onnx")
        assert 8 <= choice.predicted < 36
        service.close()
