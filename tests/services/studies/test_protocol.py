"""The paper's protocol from end to end: random images and a third as many that the model gets wrong, five votes each,
control items, records, and an analysis by an independent script. `make soak` uses 300 and 100 images. Otherwise there
are 60 and 20, with more control items and shorter records.

The images are drawn scenes in another light or weather, like those of an ideal generator. Some show a wrong thing. The
embedded classifier, which was trained on fair days, reads all of them. Simulated annotators work over HTTP on the whole
application.
"""

from __future__ import annotations

import csv
import io
import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pandas as pd
import pytest
from PIL import Image

from core.csv_tables import csv_text
from core.studies import ControlPolicy, NewItem, Rules, wording
from core.types import Caption, CounterfactualCaption, Edit, StageValue, Task, Trace
from demo.language import caption
from demo.render import render
from demo.scene import OBJECT_CLASSES, random_scene
from evaluation.models import ModelUnderTest
from pipeline.profiles.profile import load_profile
from services.runs.predictions import model_key
from services.studies.templates import TEMPLATES
from storage.workspace import Workspace
from study.methods import paragraph
from study.results import analyse
from study.truth import TRUTH_COLUMNS, pixels_of, sight
from tests.support.cases import made_case
from tests.support.scripted import ScriptedModels
from tests.support.server_process import ROOT
from tests.support.serving import serving_here
from tests.support.workspaces import workspace_in

pytestmark = [pytest.mark.demo, pytest.mark.slow]

LOOKS = (
    ("cloudy", "day"),
    ("rainy", "day"),
    ("snowy", "day"),
    ("foggy", "day"),
    ("sunny", "sunset"),
    ("cloudy", "sunset"),
    ("foggy", "sunset"),
    ("rainy", "night"),
)
"""Weather and time of day of each scene's test cases. The classifier was trained on fair days."""
FIRST_SEED = 2_000_000
MOST_WRONG = 2
"""Maximum number of wrong verdicts in a sample. It takes four wrong votes of five, as for one image in 2,000."""


@dataclass(frozen=True)
class Size:
    """Size of a study, and of its crew."""

    at_random: int
    misclassified: int
    """Number of images to judge, drawn at random and drawn among the misclassified ones."""
    scenes: int
    """Number of source images."""
    wrong: int
    """Number of test cases that show a wrong thing."""
    careful: int
    """Number of careful workers. Two others answer the opposite, and one does not look. One more has a bad record
    and one has none, so both are refused. Five must stay for five votes per image. A careful worker fails two of the
    first five control items once in forty times, so there are more than five.
    """
    min_seen: int
    """Minimum number of control items that a worker has seen before they count."""
    share: float
    """Share of control items among the items that a worker sees."""
    finished: int
    """Minimum number of finished assignments in a record."""

    @property
    def items(self) -> int:
        return self.at_random + self.misclassified

    @property
    def rules(self) -> Rules:
        rules = TEMPLATES["classification"].rules()
        controls = ControlPolicy(share=self.share, min_seen=self.min_seen, min_right=0.75)
        eligible = replace(rules.eligibility, min_finished=self.finished)
        return replace(rules, controls=controls, eligibility=eligible, seed=7)

    @property
    def crew(self) -> list[str]:
        """Return the crew for the command `study simulate`, in the order of their codes."""
        return [f"{self.careful}:accuracy=0.95", "2:accuracy=0.15", "1:lazy=0.95", "2"]

    @property
    def excluded(self) -> slice:
        """Members of the crew who answer the opposite."""
        return slice(self.careful, self.careful + 2)

    @property
    def eligible(self) -> int:
        return self.careful + 3


SMALL = Size(at_random=60, misclassified=20, scenes=20, wrong=28, careful=9, min_seen=5, share=0.2, finished=8)
FULL = Size(at_random=300, misclassified=100, scenes=90, wrong=50, careful=12, min_seen=8, share=0.1, finished=50)


@dataclass(frozen=True)
class World:
    """Workspace, and the truth about its images."""

    size: Size
    workspace: Path
    shown: Mapping[str, str]
    """Class of the thing in each image, by the hash of its file."""
    wrong: int
    """Number of test cases that the classifier gets wrong."""


def drawn(workspace: Workspace, size: Size, drawn_by: random.Random) -> dict[str, str]:
    """Create runs with test cases like those of the page. Return the class that each image shows, by hash."""
    shown: dict[str, str] = {}
    wrong = set(drawn_by.sample(range(size.scenes * len(LOOKS)), size.wrong))
    for number in range(size.scenes):
        label = OBJECT_CLASSES[number % len(OBJECT_CLASSES)]
        scene = random_scene(FIRST_SEED + number, "object", label).with_look(weather="sunny", time="day")
        source = Image.fromarray(render(scene)[0])
        run = workspace.runs.create(source, Task("classification", label), "demo", f"{label} {number}", {})
        said = StageValue(Caption(caption(scene)), Trace("person"), "key")
        workspace.runs.append_value(run, "caption", said)
        shown[workspace.runs.get(run).source_sha] = label
        for place, (weather, time) in enumerate(LOOKS):
            changed = scene.with_look(weather=weather, time=time)
            if number * len(LOOKS) + place in wrong:  # the generator lost the thing and drew another
                other = drawn_by.choice([name for name in OBJECT_CLASSES if name != label])
                changed = random_scene(FIRST_SEED + number, "object", other).with_look(weather=weather, time=time)
            image = Image.fromarray(render(changed)[0])
            edits = [Edit("sunny", weather, "weather"), Edit("day", time, "time of day")]
            made = made_case(
                image,
                Image.new("L", image.size),
                counterfactual=CounterfactualCaption(
                    caption(scene.with_look(weather=weather, time=time)),
                    tuple(e for e in edits if e.keyword != e.alternative),
                ),
                seed=place,
                method="drawn",
                model="demo.render",
                prompt=caption(changed),
            )
            case = workspace.test_cases.append(run, None, made)
            shown[workspace.test_cases.get(case).image_sha] = changed.label
    return shown


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Workspace whose runs the embedded classifier has read."""
    folder = tmp_path_factory.mktemp("protocol") / "workspace"
    wanted = load_profile("demo").model_under_test.of("classification")
    assert wanted is not None
    classifier = ModelUnderTest(wanted)
    wrong = 0
    with workspace_in(folder) as workspace:
        shown = drawn(workspace, request.param, random.Random(1))
        labels = {}
        for candidate in workspace.test_cases.candidates():
            labels[candidate.source_sha] = labels[candidate.image_sha] = candidate.label
        for sha in shown:
            prediction = classifier.predict(workspace.images.load(sha))
            workspace.predictions.append(sha, model_key(wanted), prediction)
            wrong += prediction.top[0].label != labels[sha]
    return World(request.param, folder, shown, wrong)


def record(workspace: Workspace, workers: list[str], shas: list[str], finished: int, rejected: int = 0) -> None:
    """Create earlier studies in which these workers finished `finished` assignments, the last `rejected` of them
    rejected.
    """
    studies = workspace.studies
    for name, count in (("Earlier", finished - rejected), ("Earlier still", rejected)):
        if not count:
            continue
        rules = replace(
            SMALL.rules, votes=len(workers), consensus=len(workers) // 2 + 1, controls=ControlPolicy(share=0.0)
        )
        study_id = studies.create(name, rules)
        studies.add_items(study_id, [NewItem(sha, label="bird") for sha in shas[:count]])
        studies.start(study_id)
        for worker in workers:
            studies.workers.enrol(study_id, worker)
            studies.workers.consent(study_id, worker)
            for _ in range(count):
                assignment = studies.assignments.claim(study_id, worker, "item")
                assert assignment is not None
                studies.assignments.submit(assignment.public, worker, {"valid": "yes"}, "", 3.0, "key")
            if name == "Earlier":
                studies.workers.decide(study_id, worker, "approved", "")
            else:
                studies.workers.decide(study_id, worker, "rejected", "answered without looking")
        studies.close(study_id)


def truth_of(workspace: Workspace, study_id: str, rules: Rules, shown: Mapping[str, str]) -> str:
    """Return the file of true answers: yes if the image shows its label."""
    rows = []
    question = rules.questions[0]
    for item in workspace.studies.items(study_id):
        asked = wording(question, item)
        answer = "yes" if shown[item.image_sha] == item.label else "no"
        if item.kind == "control":
            assert item.expected == {"valid": answer}
        seen = sight(pixels_of(workspace.images.load(item.image_sha)), "", asked)
        rows.append(dict(zip(TRUTH_COLUMNS, (item.public, item.kind, "valid", asked, answer, seen), strict=True)))
    return csv_text(rows, TRUTH_COLUMNS)


@pytest.mark.parametrize(
    "world", [SMALL, pytest.param(FULL, marks=pytest.mark.soak)], ids=["small", "in full"], indirect=True
)
def test_the_papers_protocol(world: World, tmp_path: Path) -> None:
    size, rules = world.size, world.size.rules
    assert world.wrong > 1.3 * size.misclassified, "the classifier has to fail on enough images to draw these from"
    with serving_here(world.workspace, ScriptedModels()) as (url, studio):
        workspace, studies = studio.workspace, studio.workspace.studies
        study_id = studies.create("The paper's protocol", rules)

        def lead(name: str, **data: object) -> None:
            """Send a request of the set-up page."""
            place = f"{url}study/api/{study_id}/{name}"
            reply = httpx.post(place, json=data, headers={"x-studio": "1"}, timeout=120)
            assert reply.status_code == 200, reply.text

        counts = {"random": size.at_random, "misclassified": size.misclassified}
        for group, count in counts.items():
            meant = "model=:newly wrong&model=:wrong" if group == "misclassified" else ""
            lead("draw-items", filter=meant, count=str(count))
        items = [item for item in studies.items(study_id) if item.kind == "item"]
        assert {group: sum(i.group == group for i in items) for group in counts} == counts
        assert all(item.model_right is False for item in items if item.group == "misclassified")
        assert len({item.image_sha for item in items}) == size.items
        assert studies.get(study_id).controls >= size.items // 10, (
            "made of the source images, as many as one worker sees"
        )
        lead("start-study")

        codes, names = [], []
        for _ in range(size.eligible + 2):
            worker, code = studies.workers.add()
            studies.workers.enrol(study_id, worker.id)
            codes.append(code)
            names.append(worker.id)
        shas = [item.image_sha for item in items]
        record(workspace, names[: size.eligible], shas, size.finished + 5)
        record(workspace, [names[size.eligible]], shas, size.finished + 5, rejected=5)
        (tmp_path / "codes").write_text("\n".join(codes))
        (tmp_path / "truth.csv").write_text(truth_of(workspace, study_id, rules, world.shown))
        command = [sys.executable, "-m", "study", "simulate", "--url", url, "--study", study_id, "--seconds", "0"]
        command += ["--codes", str(tmp_path / "codes"), "--truth", str(tmp_path / "truth.csv"), "--seed", "3"]
        command += ["--workers", "0", *(part for crew in size.crew for part in ("--crew", crew))]
        command += ["--journal", str(tmp_path / "votes.jsonl"), "--patience", "20"]
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
        assert told.returncode == 0, told.stdout + told.stderr
        print(told.stdout)
        studies.close(study_id)

        def export(name: str) -> bytes:
            reply = httpx.get(f"{url}study/{study_id}/export/{name}", timeout=120)
            assert reply.status_code == 200
            return reply.content

        (tmp_path / "answers.csv").write_bytes(export("answers.csv"))
        votes = pd.read_csv(io.BytesIO(export("votes.csv")))
        results = json.loads(export("results.json"))
        turk = list(csv.DictReader(io.StringIO(export("turk.csv").decode())))
        archive = zipfile.ZipFile(io.BytesIO(export("study.zip")))
        data = studies.data(study_id)

    # Exactly the acknowledged votes are stored.
    acknowledged = [json.loads(line) for line in (tmp_path / "votes.jsonl").read_text().splitlines()]
    assert len(acknowledged) == len(data.votes) == len({(vote.item, vote.worker) for vote in data.votes})
    # Workers without the needed record have no vote. Workers who answer the opposite are excluded.
    assert "2 not eligible" in told.stdout
    assert not {vote.worker for vote in data.votes} & set(names[size.eligible :])
    assert {exclusion.worker for exclusion in data.exclusions} >= set(names[size.excluded])
    assert {exclusion.by for exclusion in data.exclusions} == {"rule"}

    report = analyse(data)
    print(paragraph(report))
    script = [sys.executable, "tests/support/independent_analysis.py", str(tmp_path / "answers.csv")]
    script += ["--min-seen", str(rules.controls.min_seen), "--min-right", str(rules.controls.min_right)]
    found = json.loads(subprocess.run(script, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)
    assert found["excluded"] == sorted(exclusion.worker for exclusion in data.exclusions)
    assert found["votes"] == {
        "cast": report.votes_cast,
        "excluded": report.votes_excluded,
        "counted": report.votes_counted,
    }
    assert report.votes_counted == 5 * size.items and report.complete == size.items, (
        "five votes of workers who stay, for every image"
    )
    assert found["controls"] == {"right": report.controls.count, "n": report.controls.n}
    slices = {"after": report.images, "before": report.images_before}
    slices |= {each.name: each for each in report.image_slices.by_group}
    for name, ours in slices.items():
        theirs = found[name] if name in found else found["by_group"][name]
        assert (theirs["valid"], theirs["n"]) == (ours.rate.count, ours.rate.n), name
        assert (theirs["discarded"], theirs["waiting"]) == (ours.discarded, ours.waiting), name
        for figure, value in (
            ("rate", ours.rate.value),
            ("low", ours.rate.low),
            ("high", ours.rate.high),
            ("worst", ours.bounds.worst),
            ("best", ours.bounds.best),
        ):
            assert theirs[figure] == pytest.approx(value, abs=1e-9), (name, figure)
    right = {each.name.rpartition(": ")[2]: each.rate.count for each in report.image_slices.by_model}
    assert {
        "right": found["by_model_right"]["true"]["valid"],
        "wrong": found["by_model_right"]["false"]["valid"],
    } == right
    for name, measure in (
        ("raw", report.agreement.raw),
        ("alpha", report.agreement.alpha),
        ("ac1", report.agreement.ac1),
    ):
        assert found["agreement"][name] == pytest.approx(measure.value, abs=1e-6), name
    assert found["dawid_skene_yes"] == report.questions[0].second.dawid_skene.count
    assert found["kept"] == sorted(f"{row.task},{row.worker},{row.label}" for row in votes.itertuples())

    # The true share lies between the bounds of each sample, since only its discarded images are unknown.
    for name in ("after", *counts):
        judged = [item for item in data.items if item.kind == "item" and name in ("after", item.group)]
        true = sum(world.shown[item.image_sha] == item.label for item in judged)
        worst, best = slices[name].bounds.worst, slices[name].bounds.best
        assert worst is not None and best is not None
        assert worst * len(judged) - MOST_WRONG <= true <= best * len(judged) + MOST_WRONG, name

    # The other exports say the same.
    assert results["images"]["rate"]["count"] == report.images.rate.count
    assert results["methods"] == paragraph(report) and "not eligible" not in results["methods"]
    assert len(turk) == len(data.votes)
    assert {row["Input.kind"] for row in turk} == {"item", "control"}
    counted = [row for row in turk if row["Answer._counted"] == "true"]
    assert sorted(f"{row['HITId']},{row['WorkerId']},{row['Answer.valid']}" for row in counted) == found["kept"]
    assert archive.testzip() is None
    assert sum(name.startswith("images/") for name in archive.namelist()) == len(data.items)
    origin = json.loads(pd.read_csv(io.BytesIO(archive.read("items.csv"))).iloc[0]["origin"])
    assert origin["prompt"] and origin["model"] == "demo.render"
