"""An evidence bundle: from drawn scenes with votes and predictions to one zip, whose script recomputes every figure
with numpy, scipy and pandas alone, and finds what was changed.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.errors import Cancelled, UserError
from core.image_filter import ImageFilter
from core.studies import ControlPolicy, NewItem, Question
from evaluation.effectiveness import WRONG
from services.evaluation.evidence.bundle import write_bundle
from services.evaluation.facts import rows_of
from services.evaluation.service import EvaluationService
from services.evaluation.types import EvaluationQuestion, Subject
from services.test_sets.drafts import ReleaseTestSet, TestSetDrafts
from storage.workspace import Workspace
from study.figure_rows import figure_rows
from study.results import analyse
from tests.services.evaluation.test_cases import set_of
from tests.services.evaluation.test_results import judged
from tests.services.evaluation.test_study_votes import judged_by_five
from tests.support.called import answer, refused
from tests.support.evaluation_cases import (
    BIRDS,
    CLASSIFIER,
    PATIENCE,
    SEGMENTER,
    fill,
    read_all,
    scenes_that_are_read,
    service_of,
)
from tests.support.made_once import MadeOnce
from tests.support.model_cases import onnx_file
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.study_desk import VALID, rules
from tests.support.voted import cast
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

PACKAGES = "numpy numpy.libs scipy scipy.libs pandas pandas.libs dateutil six.py pytz tzdata".split()
"""Packages that `pip install numpy scipy pandas` installs."""
ALONE = """
import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
try:
    import PIL
except ImportError:
    runpy.run_path(sys.argv[1], run_name="__main__")
else:
    sys.exit("other packages can be imported")
"""
QUESTIONS = (
    VALID,
    Question("kind", "What is wrong?", "choice", ("shape", "colour"), follows="valid", follows_answer="no"),
    Question("looks", "How real does it look?", "scale"),
    Question("more", "Anything else?", "text", required=False),
)
SAID = "my name is Grace"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with numpy, scipy, pandas and what these need, and nothing else."""
    import pandas

    folder, installed = tmp_path_factory.mktemp("packages"), Path(pandas.__file__).parents[1]
    for name in PACKAGES:
        if (installed / name).exists():
            (folder / name).symlink_to(installed / name)
    return folder


Recompute = Callable[[Path], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def recompute(packages: Path) -> Recompute:
    """Function that runs the script of an unpacked bundle, with these packages alone."""

    def run(folder: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-I", "-S", "-c", ALONE, str(packages), str(folder / "recompute.py")]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)

    return run


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Iterator[Workspace]:
    """Workspace with a released test set."""
    with Workspace(scenes_that_are_read(made_once, tmp_path_factory.mktemp("evidence"))) as workspace:
        ids = workspace.catalogue.ids(ImageFilter(facets={"kind": ("classification",), "recipe": ("dillema",)}))
        for case in workspace.catalogue.test_cases(ids):
            workspace.test_cases.review(case, "accepted")
        release(workspace)
        yield workspace


@pytest.fixture(scope="module")
def service(opened: Workspace) -> Iterator[EvaluationService]:
    made = service_of(opened)
    yield made
    made.close()


@pytest.fixture(scope="module")
def questions(
    opened: Workspace, service: EvaluationService, tmp_path_factory: pytest.TempPathFactory
) -> tuple[EvaluationQuestion, ...]:
    """Questions on two models, on a set with the votes of three studies."""
    asked = EvaluationQuestion(Subject(version=1), CLASSIFIER)
    other = replace(asked, model=onnx_file(tmp_path_factory.mktemp("small") / "small.onnx"))
    for one in (asked, other):
        read_all(service, one)
    found = service.result(asked)
    cases = found.cases.table.test_case[found.cases.generated.row]
    wrong, right = (cases[found.right == standing].tolist() for standing in (WRONG, 1 - WRONG))
    judged_by_five(opened, {case: at % 3 > 0 for at, case in enumerate([*wrong[::3], *right[:15]])}, controls=8)
    others = [*wrong[1::3], *wrong[2::3], *right[15:45]]
    judged(opened, {case: "yes" if at % 5 > 1 else "no" for at, case in enumerate(others)})
    _busy_study(opened, [*wrong[::4], *right[40:60]])
    return asked, other


def _busy_study(workspace: Workspace, cases: list[int]) -> None:
    """Add a study with several kinds of questions and all that may befall one: a worker is excluded, the rules change,
    the lead decides, and it is closed before all votes are in.
    """
    studies = workspace.studies
    study = studies.create(
        "Looks", rules(questions=QUESTIONS, votes=3, consensus=3, controls=ControlPolicy(min_seen=1))
    )
    items = [
        NewItem(
            workspace.test_cases.get(case).image_sha,
            label="bird" if at % 3 else "",
            classes=("sky", "bird"),
            edit_types=("weather", "time of day")[: at % 3],
            test_case=case,
            model="drawn" if at % 2 else "",
            model_right=(True, False, None)[at % 3],
            group="random" if at % 4 else "",
        )
        for at, case in enumerate(cases)
    ]
    known = NewItem(items[0].image_sha, kind="control", expected={"valid": "no", "kind": "shape"}, label="bird")
    *ids, control = studies.add_items(study, [*items, known])
    studies.start(study)
    of = {item.id: item for item in studies.items(study)}
    votes = []
    for at, item in enumerate(ids):
        for place, worker in enumerate(("grace", "bo", "cy", "di")[: 3 + at % 2]):
            answer = "yes" if (at * 7 + place * place) % 5 else "no"
            said = {"valid": answer, "looks": str(1 + (at + place) % 5), "more": SAID if not at else ""}
            said |= {"kind": "shape" if place else "colour"} if answer == "no" else {}
            votes.append(cast(of[item], worker, said, 10 * at + place, comment=SAID if at == 1 else ""))
    for place, worker in enumerate(("grace", "bo")):
        said = {"valid": "no", "kind": ("shape", "colour")[place], "looks": "1"}
        votes.append(cast(of[control], worker, said, 9000 + place, right=not place))
    studies.import_votes(study, votes)
    studies.set_votes(study, 3, 2)
    studies.workers.exclude(study, "imported-di", "pressed at random", "person")
    for item in (ids[1], ids[3]):
        studies.adjudicate(study, item, "valid", "no", SAID)
    studies.close(study)


@pytest.fixture(scope="module")
def bundle(
    opened: Workspace,
    service: EvaluationService,
    questions: tuple[EvaluationQuestion, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The bundle of both models. Tests unpack it."""
    file = tmp_path_factory.mktemp("bundle") / "birds.zip"
    write_bundle(opened, service, questions, file, lambda done, total: None)
    return file


def release(workspace: Workspace) -> None:
    set_of(workspace)
    TestSetDrafts(workspace).release(ReleaseTestSet.of({"test_set": "Scenes"}))


def unpacked(file: Path, into: Path) -> Path:
    with zipfile.ZipFile(file) as archive:
        archive.extractall(into)
    return into / file.stem


def stated(folder: Path) -> dict[str, dict[str, Any]]:
    figures = json.loads((folder / "figures.json").read_text(encoding="utf-8"))["figures"]
    by_name = {one["name"]: one for one in figures}
    assert len(by_name) == len(figures), "each name is used once"
    return by_name


def edited(folder: Path, table: str, change: Callable[[dict[str, Any]], None], at: int) -> None:
    """Change a row of a table, and the manifest too, as a forger would."""
    file, manifest = folder / "tables" / f"{table}.jsonl", folder / "manifest.json"
    lines = file.read_text(encoding="utf-8").splitlines()
    row = json.loads(lines[at])
    change(row)
    lines[at] = json.dumps(row)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    about = json.loads(manifest.read_text(encoding="utf-8"))
    for one in about["files"]:
        if one["name"] == f"tables/{table}.jsonl":
            one["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(about), encoding="utf-8")


def test_a_stranger_recomputes_every_figure(
    opened: Workspace,
    service: EvaluationService,
    questions: tuple[EvaluationQuestion, ...],
    bundle: Path,
    recompute: Recompute,
    tmp_path: Path,
) -> None:
    folder = unpacked(bundle, tmp_path)
    done = recompute(folder)
    differing = [line for line in done.stdout.splitlines() if not line.startswith("equal")]
    assert done.returncode == 0, done.stderr + "\n".join(differing)
    figures = stated(folder)
    assert f"{len(figures):,} figures are stated; 0 differ." in done.stdout

    # Every number of the reports is stated.
    for number, question in enumerate(questions, start=1):
        for row in rows_of(service.evaluate(question)):
            name = ": ".join(filter(None, (f"model {number}", row.part, row.name, row.figure)))
            assert (figures[name]["value"], figures[name]["low"]) == (row.value, row.low), name
    comparison = service.compare(*questions)
    assert comparison is not None
    assert figures["models compared: second less first"]["high"] == comparison.paired.difference.high
    names = [json.loads((folder / "settings.json").read_text())["studies"][at]["study"] for at in range(3)]
    for number, study in enumerate(names, start=1):
        for told in figure_rows(analyse(opened.studies.data(study))):
            parts = (f"study {number}", *(told[key] for key in ("figure", "question", "votes_used", "part", "name")))
            one = figures[": ".join(filter(None, map(str, parts)))]
            assert all(one.get(key) == told.get(key) for key in ("value", "low", "count", "worst")), one
    hardest = figures["model 1: validity: wrong and valid, by strata"]
    assert hardest["low"] < hardest["value"] < hardest["high"]


def test_names_of_workers_and_what_they_wrote_stay_out(bundle: Path, tmp_path: Path) -> None:
    folder = unpacked(bundle, tmp_path)
    texts = {file.name: file.read_text(encoding="utf-8") for file in folder.rglob("*.*[!g]")}
    assert [name for name, text in texts.items() if "Grace" in text or "grace" in text or "pressed at" in text] == []
    assert '"imported-1"' in texts["votes.jsonl"]
    manifest = json.loads(texts["manifest.json"])
    assert manifest["left_out"] == {"comments of workers": 4, "free texts of workers": 3}
    assert "- 4 comments of workers" in texts["README.md"]


def test_every_image_is_there_with_its_lineage(bundle: Path, tmp_path: Path) -> None:
    folder = unpacked(bundle, tmp_path)
    rows, lineage = (
        [json.loads(line) for line in (folder / "tables" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("images", "lineage")
    )
    assert len(rows) == len(lineage) == 14 + 140 + 14
    for row, made in zip(rows, lineage, strict=True):
        data = (folder / "images" / f"{row['sha256']}.png").read_bytes()
        assert hashlib.sha256(data).hexdigest() == row["sha256"] == made["sha256"]
        if row["role"] == "test case":
            assert made["facts"]["lineage"]["method"] and made["new_caption"] and made["edits"]
    columns = json.loads((folder / "columns.json").read_text())
    for table, names in columns.items():
        first = (folder / "tables" / f"{table}.jsonl").read_text().splitlines()[:1]
        assert all(set(json.loads(line)) == set(names) for line in first) and (first or table == "pixels"), table


@pytest.mark.parametrize(
    ("table", "change", "found"),
    [
        ("votes", lambda row: row.update(answer="no" if row["answer"] == "yes" else "yes"), "study 1: "),
        ("predictions", lambda row: row.update(predicted="nothing"), "model 1: confusion: "),
    ],
)
def test_one_changed_row_is_found_even_with_a_new_checksum(
    bundle: Path,
    recompute: Recompute,
    tmp_path: Path,
    table: str,
    change: Callable[[dict[str, Any]], None],
    found: str,
) -> None:
    folder = unpacked(bundle, tmp_path)
    edited(folder, table, change, 0)
    done = recompute(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert any(line.startswith(f"DIFFERENT | {found}") for line in done.stdout.splitlines())


def test_a_damaged_image_and_a_missing_file_are_named(bundle: Path, recompute: Recompute, tmp_path: Path) -> None:
    folder = unpacked(bundle, tmp_path)
    one, other = sorted((folder / "images").iterdir())[:2]
    one.write_bytes(one.read_bytes() + b"x")
    other.unlink()
    done = recompute(folder)
    assert done.returncode == 1
    assert f"DAMAGED: images/{one.name} differs from its checksum" in done.stdout
    assert f"DAMAGED: images/{other.name} is missing" in done.stdout


def test_a_figure_that_the_script_does_not_know_is_found(bundle: Path, recompute: Recompute, tmp_path: Path) -> None:
    folder = unpacked(bundle, tmp_path)
    figures = json.loads((folder / "figures.json").read_text())
    figures["figures"].append({**figures["figures"][0], "name": "how good it is"})
    (folder / "figures.json").write_text(json.dumps(figures))
    done = recompute(folder)
    assert done.returncode == 1 and "not recomputed | how good it is" in done.stdout


def test_each_case_weighs_the_same_few_sources_and_no_votes(recompute: Recompute, tmp_path: Path) -> None:
    """Other weights, no reconstructions, and rows with too few test cases."""
    with workspace_in(tmp_path / "workspace") as workspace:
        fill(workspace, 3, controls=False, most=(3, 2))
        fill(workspace, 2, controls=False, seed=8, most=(1, 1))
        for case in workspace.catalogue.test_cases(workspace.catalogue.ids()):
            workspace.test_cases.review(case, "accepted")
        release(workspace)
        service = service_of(workspace)
        asked = EvaluationQuestion(Subject(version=1), CLASSIFIER, weighing="case", among_labels=True)
        read_all(service, asked)
        write_bundle(workspace, service, [asked], tmp_path / "birds.zip", lambda done, total: None)
        service.close()
    done = recompute(unpacked(tmp_path / "birds.zip", tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_segmenter_is_recomputed_from_its_pixels(recompute: Recompute, made_once: MadeOnce, tmp_path: Path) -> None:
    with Workspace(scenes_that_are_read(made_once, tmp_path)) as workspace:
        ids = workspace.catalogue.ids(ImageFilter(facets={"kind": ("segmentation",), "recipe": ("dillema",)}))
        for case in workspace.catalogue.test_cases(ids):
            workspace.test_cases.review(case, "accepted")
        release(workspace)
        service = service_of(workspace)
        asked = EvaluationQuestion(Subject(version=1), SEGMENTER)
        found = service.result(asked)
        cases = found.cases.table.test_case[found.cases.generated.row]
        judged(workspace, {case: "no" if at % 3 else "yes" for at, case in enumerate(cases.tolist()[::2])})
        for each in ("source", "case"):
            file = tmp_path / f"streets-{each}.zip"
            write_bundle(workspace, service, [replace(asked, weighing=each)], file, lambda done, total: None)
        names = {f"model 1: {row.part}: {row.figure}" for row in rows_of(service.evaluate(asked)) if not row.name}
        service.close()
    for each in ("source", "case"):
        folder = unpacked(tmp_path / f"streets-{each}.zip", tmp_path)
        done = recompute(folder)
        assert done.returncode == 0, done.stdout + done.stderr
        assert names <= set(stated(folder)), "every figure of the report is stated"


def test_nothing_is_overwritten_and_nothing_half_is_left(
    opened: Workspace,
    service: EvaluationService,
    questions: tuple[EvaluationQuestion, ...],
    bundle: Path,
    tmp_path: Path,
) -> None:
    before = bundle.read_bytes()
    with pytest.raises(UserError, match="never overwrites"):
        write_bundle(opened, service, questions, bundle, lambda done, total: None)
    assert bundle.read_bytes() == before
    again = tmp_path / bundle.name
    write_bundle(opened, service, questions, again, lambda done, total: None)
    assert again.read_bytes() == before, "the same state gives the same bytes"

    def stop(done: int, total: int) -> None:
        if done == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        write_bundle(opened, service, questions, tmp_path / "half.zip", stop)
    assert not (tmp_path / "half.zip").exists()
    with pytest.raises(UserError, match="released version"):
        write_bundle(opened, service, [BIRDS], tmp_path / "filter.zip", lambda done, total: None)


def test_a_script_begins_follows_and_downloads_the_evidence(tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, studio):
        fill(studio.workspace, 2, most=(2, 2))
        made = studio.commands.send("create-test-set", {"title": "Birds"})["test_set"]
        studio.commands.send("add-to-test-set", {"test_set": made, "filter": "recipe=dillema", "sources": True})
        draft = answer(url, "begin_predictions", version=1)["result"]["work"]
        studio.evaluations.work.wait(draft, PATIENCE)
        assert "is a draft" in refused(url, "begin_evidence", version=1)[0]
        studio.commands.send("release-test-set", {"test_set": made, "unreviewed": True})
        work = answer(url, "begin_evidence", version=1)["result"]["work"]
        studio.evidence.work.wait(work, PATIENCE)
        assert answer(url, "show_evidence", work=work)["state"] == "done"
        file = answer(url, "download_evidence", work=work)
        assert file["orig_name"] == "birds-v1-evidence.zip" and zipfile.is_zipfile(file["path"])
