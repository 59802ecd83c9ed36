"""All of the paper's questions on the drawn world at a small size: the report has every part and claims no goal
without its figure, and a second run resumes the first.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from PIL import Image

from core.figures import Figure
from evaluation.retraining.data_split import SIDES
from experiments.paper import __main__ as paper
from experiments.paper import world
from experiments.paper.goals import MAIN_ARM
from experiments.paper.reading import Read
from experiments.paper.report import answers
from experiments.paper.retraining import ARMS, ON_SHIFT, UNSEEN, Parts, arms_of, shared_images
from experiments.paper.size import FAMILIES, SMALL

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.demo


HEADINGS = (
    "# The paper's questions on the drawn world",
    "## Goals",
    "## What is tested, and with what",
    "## RQ1: are the images valid?",
    "### Do the intervals hold the truth?",
    "## RQ2: where do the models break?",
    "### In which order to look",
    "## RQ3: what does retraining gain?",
)


@dataclass(frozen=True)
class Whole:
    """Folder, output and report of a small run."""

    folder: Path
    printed: str
    report: str


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """One run of all the paper's questions, with its report."""
    folder = tmp_path_factory.mktemp("paper")
    done = _run(folder)
    assert done.returncode == 0, done.stderr
    return Whole(folder, done.stdout, (folder / "paper-demo.md").read_text(encoding="utf-8"))


def _run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "experiments.paper", "--small", "--work", str(folder), *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def _goal_lines(report: str) -> list[list[str]]:
    """Return the rows of the table of goals: question, goal, wanted, measured, beside, reached."""
    lines = report.split("| question | goal |")[1].splitlines()[2:]
    table = lines[: next(place for place, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table]


def test_a_small_run_writes_every_part_of_the_report(whole: Whole) -> None:
    places = [whole.report.find(f"{heading}\n") for heading in HEADINGS]
    assert -1 not in places and places == sorted(places)
    assert "**A small run: it shows that every part works, and its figures say nothing of the models.**" in whole.report
    pictures = re.findall(r"!\[[^]]+]\(([^)]+)\)", whole.report)
    assert len(pictures) == 4
    for name in pictures:
        with Image.open(whole.folder / name) as picture:
            assert picture.format == "PNG" and len(picture.convert("RGB").getcolors(1 << 20) or ()) > 4
    for arm in ARMS:
        assert whole.report.count(f"| {arm} |") + whole.report.count(f"| **{arm}** |") == 3  # two tables, and mIoU
    for edit in ("weather", "time of day", "attribute", "background"):
        assert whole.report.count(f"\n| {edit} |") == 4  # validity and faults of both tasks
    assert not re.search(r"\bnan\b|\binf\b|None", whole.report)


def test_no_goal_is_claimed_without_its_figure(whole: Whole) -> None:
    lines = _goal_lines(whole.report)
    wanted = paper.Work(whole.folder, SMALL).goals
    assert len(lines) == sum(len(rule.models) for rule in wanted.rules)
    assert {line[0] for line in lines} == {"RQ1", "RQ2", "RQ3", "time"}
    for question, what, bound, measured, beside, reached in lines:
        assert reached in ("reached", "MISSED", "cannot tell"), what
        assert bound and question and (beside != "-") == (question != "time"), what
        assert re.search(r"\d", measured) or "cannot tell: " in measured, (what, measured)
        assert "it was not measured" not in f"{measured}{beside}", what
        missed = f"- **MISSED:** {question}, {what}: {measured}, wanted {bound}." in whole.report.splitlines()
        assert missed == (reached == "MISSED")
    for rule in wanted.rules:
        assert f"- {rule.question}, {rule.goal}: {rule.missed_by}." in whole.report.splitlines()
    assert wanted.words in whole.report
    if not wanted.commit:
        assert {line[-1] for line in lines} == {"cannot tell"}


def test_what_is_shown_of_unseen_edits_and_of_natural_shift_is_said_whatever_its_sign(whole: Whole) -> None:
    for model in ("classifier", "segmenter"):
        for on in ("generated images of an unseen edit type", "the natural shift"):
            assert f"- On {on}, learning from generated images brings the {model} " in whole.report
    held, _ = paper.results(paper.Work(whole.folder, SMALL), SMALL)
    road = held.retraining["road"]
    for low, high, words in (
        (-0.1, -0.05, "less accuracy than augmentation does (-7.5 points (-10.0 to -5.0))"),
        (-0.1, 0.05, "neither more nor less accuracy than augmentation does for certain (-2.5 points (-10.0 to +5.0))"),
        (0.05, 0.1, "more accuracy than augmentation does (+7.5 points (+5.0 to +10.0))"),
    ):
        figure = Figure((low + high) / 2, low, high, 10, 5)
        beside = {**road.beside, (MAIN_ARM, "+ augmentation", ON_SHIFT): figure}
        said = list(answers(replace(held, retraining={**held.retraining, "road": replace(road, beside=beside)})))
        assert f"On the natural shift, learning from generated images brings the segmenter {words}." in said


def test_every_ranking_stands_beside_baselines(whole: Whole) -> None:
    table = whole.report.split("### In which order to look")[1].split("## RQ3")[0]
    for order in (
        "random (mean of 100)",
        "wrong images in random order (mean of 100)",
        "softmax entropy",
        "DeepGini",
        "least probability of the true class",
        "ours",
        "edits of weather and time of day, in random order (mean of 100)",
        "ours, before an image is made",
    ):
        assert f"\n| {order} |" in table


def test_annotators_are_called_simulated_wherever_they_appear(whole: Whole) -> None:
    lines = [line for line in whole.report.splitlines() if "annotators" in line]
    assert len(lines) >= 4
    assert not [line for line in lines if len(re.findall("annotators", line)) > len(re.findall("simulated", line))]


def test_a_second_run_goes_on_where_the_first_one_was(whole: Whole) -> None:
    assert "making: object-made" in whole.printed and "retraining: road-retraining" in whole.printed
    again = _run(whole.folder, "--out", str(whole.folder / "again.md"))
    assert again.returncode == 0, again.stderr
    assert not re.search(r"(?m)^(making|training|reading|figures|retraining): ", again.stdout), "nothing was left to do"
    told = (whole.folder / "again.md").read_text(encoding="utf-8").replace("(again-", "(paper-demo-")
    assert told == whole.report


def test_no_arm_learns_from_what_it_is_measured_on(whole: Whole) -> None:
    for family in FAMILIES:
        found: Read = pickle.loads((whole.folder / f"{family}-read.pickle").read_bytes())
        parts = Parts(found, whole.folder / "data" / family, ())
        assert not shared_images(parts)
        side = {str(parts.data / one.key): world.side(one) for one in found.sources}
        side |= {one.image: world.side(found.sources[one.source]) for one in (*found.cases, *found.controls)}
        kind = dict(zip((one.image for one in found.cases), found.edit_types, strict=True))
        arms = {arm.name: arm.examples for arm in arms_of(parts)}
        assert tuple(arms) == ARMS and set(side.values()) == set(SIDES)
        for examples in arms.values():
            files = [str(one.image) for one in examples]
            assert {side[file] for file in files} == {"train"}
            assert UNSEEN not in {kind.get(file) for file in files}
        assert len(arms[MAIN_ARM]) > len(arms["original only"])
        # The measured image stays in the test part, and its copy is left out of the training.
        of_side = {side[one.image]: at for at, one in enumerate(found.cases) if found.edit_types[at] != UNSEEN}
        twin = whole.folder / f"{family}-twin.png"
        twin.write_bytes(Path(found.cases[of_side["test"]].image).read_bytes())
        cases = list(found.cases)
        cases[of_side["train"]] = replace(cases[of_side["train"]], image=str(twin))
        twinned = Parts(replace(found, cases=tuple(cases)), parts.data, ())
        assert twinned.alike == {twin} | parts.alike and not shared_images(twinned)
        for arm in arms_of(twinned):
            assert twin not in {one.image for one in arm.examples}


def test_test_cases_are_unequal_and_errors_of_a_source_go_together(whole: Whole) -> None:
    for family in FAMILIES:
        found: Read = pickle.loads((whole.folder / f"{family}-read.pickle").read_bytes())
        for number, one in enumerate(found.sources):
            own = [kind for case, kind in zip(found.cases, found.edit_types, strict=True) if case.source == number]
            assert len(own) <= one.quota.captions and set(own) <= set(one.quota.types)
        sizes = {len([case for case in found.cases if case.source == at]) for at in range(len(found.sources))}
        assert len(sizes) >= 3
