"""What earlier versions wrote opens and says the same: workspaces, studies, `run.json` folders, saved PNGs, backups.

The files in `tests/fixtures/` say how they were made, and `expected.json` holds what the version that wrote them said
of them: facts as plain data, each under a name of its own, pictures by `image_sha` over their pixels. The first half of
this file asks today's code for the same facts. A renamed API is mended there; the facts and their names stay.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import cli.pipeline as cli
from cli.storage import main as storage_command
from core.images import image_sha
from core.predictions import decode_map
from core.studies import StudyData
from core.types import to_plain
from pipeline.methods.controlnet import CONTROL_IMAGE, ControlNetSettings
from pipeline.profiles.profile import CheckSettings, load_profile
from pipeline.prompting import prompts_to_plain
from pipeline.run_files import run_file
from pipeline.run_files.embedded import read_run_in
from services.studio import Studio, put_together
from storage.workspace import Workspace
from study.aggregation import dawid_skene
from study.consensus import Outcome, outcome
from study.results import analyse
from study.slices import NONE
from tests.support.scripted import ScriptedModels, performed
from tests.support.study_desk import assert_counted
from ui.security.passwords import SECRET, matches

FIXTURES = Path(__file__).parent / "fixtures" / "commit-1c19a8f"
MODELS_UNDER_TEST = ("timm drawn-classifier", "timm drawn-segmenter")
TEXT_STAGES = ("caption", "keywords", "alternatives", "counterfactuals")
Facts = dict[str, Any]


# The adapter: today's code asked for the facts of `expected.json`


@contextmanager
def studio_on(folder: Path) -> Iterator[Studio]:
    """A studio with stand-ins for its models on the workspace in `folder`. As the one that wrote it, it can draw on
    maps of a mask too: without a model for them the gate would be closed.
    """
    profile = load_profile("demo")
    nets = {**profile.generator.controlnets, "segmentation": profile.generator.controlnets["canny"]}
    drawn_by = profile.generator.model_copy(update={"controlnets": nets})
    # It had no segmenter of its own for the checks.
    drawing = profile.model_copy(update={"generator": drawn_by, "checks": CheckSettings()})
    with Workspace(folder) as workspace:
        studio = put_together(drawing, ScriptedModels(), workspace)
        yield studio
        studio.close()


def do(studio: Studio, run_id: str, name: str, **data: Any) -> None:
    """Something that a person does on the page, and the work that it starts, to its end."""
    assert not performed(studio, run_id, name, **data).problem


def restored(studio: Studio, png: bytes) -> tuple[str, int | None]:
    """The run and the image that a saved PNG brings into this workspace."""
    taken = studio.exchange.take_run(png)
    return taken.run_id, taken.case_id


def saved_png(studio: Studio, case_id: int) -> bytes:
    """An image of this workspace as the page saves it."""
    return studio.exchange.saved_image(case_id)[1]


def run_command(monkeypatch: pytest.MonkeyPatch, models: ScriptedModels, *arguments: str) -> int:
    """`python -m pipeline` with these models."""
    monkeypatch.setattr(cli, "load_models", lambda _profile: models)
    return cli.main(arguments)


def run_of(studio: Studio, run_id: str) -> Any:
    """A run with the latest of everything, its `jobs` and its `test_cases`."""
    return studio.workspace.runs.get(run_id)


def authors_of(studio: Studio, run_id: str, stage: Any) -> list[str]:
    """Who wrote the versions of a stage's value, oldest first."""
    return [held.author for held in studio.workspace.runs.history(run_id, stage)]


def stale_stages(studio: Studio, run_id: str) -> set[str]:
    return set(studio.states.of(run_id).stale)


def run_ids(studio: Studio) -> list[str]:
    """Of the list of runs, sorted."""
    return sorted(summary.id for summary in studio.workspace.runs.search())


def picture(workspace: Workspace, sha: str) -> str:
    """`image_sha` of a stored image, by the hash of its file."""
    return image_sha(workspace.images.load(sha))


def prediction(workspace: Workspace, sha: str, model: str) -> Any:
    """What a model under test said of an image last; None when it was not asked."""
    return workspace.predictions.latest(sha, model)


def vote_all(workspace: Workspace, study_id: str, worker: str, answers: Mapping[str, str], seconds: float) -> None:
    """A worker judges all that there is for them."""
    assignments = workspace.studies.assignments
    while (given := assignments.claim(study_id, worker, "item")) is not None:
        assignments.submit(given.public, worker, answers, "", seconds, f"new-{given.public}")


def worker_with(workspace: Workspace, code: str) -> str | None:
    """Whose code this is."""
    return workspace.studies.workers.of_code(code)


def opens_with(workspace: Workspace, password: str) -> bool:
    """Whether this is the study lead's password."""
    return matches(password, workspace.studies.sessions.secret(SECRET) or "")


def moment(when: datetime | None) -> str:
    return when.isoformat() if when else ""


def value_facts(value: Any) -> Facts:
    """The value of a text stage, and how it came about."""
    return {"value": to_plain(value.value), **to_plain(value.trace)}


def case_facts(case: Any) -> Facts:
    """How an image came about; of one in the workspace, in a folder or in a PNG."""
    made, settings = case.lineage, case.lineage.settings
    assert isinstance(settings, ControlNetSettings)
    return {
        "seed": made.seed,
        "method": made.method,
        "model": made.model,
        "prompt": made.prompt,
        "negative_prompt": made.negative_prompt,
        "seconds": made.seconds,
        "settings": {**to_plain(settings.generation), "conditioning": to_plain(settings.conditioning)},
        "edit": to_plain(made.counterfactual),
        "checks": [to_plain(check) for check in case.checks],
    }


def readings_facts(workspace: Workspace, shas: list[str]) -> Facts:
    """What the models under test said of images last."""
    found = {}
    for sha in dict.fromkeys(shas):
        for model in MODELS_UNDER_TEST:
            said = prediction(workspace, sha, model)
            if said is not None:
                found[f"{model}: {picture(workspace, sha)}"] = _reading_facts(said)
    return found


def _reading_facts(reading: Any) -> Facts:
    class_map = decode_map(reading.class_map) if reading.class_map else None
    return {
        "kind": reading.kind,
        "model": reading.model,
        "top": [[guess.label, guess.probability] for guess in reading.top],
        "classes": list(reading.classes),
        "map": image_sha(class_map) if class_map else "",
        "size": list(class_map.size) if class_map else [],
    }


def under_test_facts(studio: Studio, run: Any) -> Facts:
    """What follows from the readings, where all images of the run were read; elsewhere the model would be asked now."""
    settings = studio.runs.settings(run)
    shas = [run.source_sha, *(case.image_sha for case in run.test_cases)]
    if any(prediction(studio.workspace, sha, settings.under_test.title) is None for sha in shas):
        return {}
    found = studio.predictions.compare(run, settings)
    assert not found.problem and not found.waiting
    # What the model under test does not find was held against the image then; now that check cannot tell.
    checks = {
        str(case): said if isinstance(said, str) else {**to_plain(said[0]), "passed": bool(said[0].passed)}
        for case, said in found.mask_kept.items()
    }
    figures = {str(case): [[f.name, f.source, f.generated] for f in each] for case, each in found.figures.items()}
    return {
        "newly_wrong": sorted(found.newly_misclassified),
        "mask_kept": checks,
        "figures": figures,
        "masked": found.masked,
    }


def run_facts(studio: Studio, run_id: str) -> Facts:
    """All of a run."""
    workspace = studio.workspace
    run = run_of(studio, run_id)
    for case in run.test_cases[-1:]:  # by another model its images would be drawn anew
        studio.driver.models.generator.name = case.lineage.model
    state = studio.states.of(run_id)
    plan = state.gate.plan
    return {
        "name": run.name,
        "task": to_plain(run.task),
        "profile": run.profile,
        "sample": run.sample,
        "notes": list(run.notes),
        "created": moment(run.created),
        "removed": run.removed,
        "source": picture(workspace, run.source_sha),
        "mask": picture(workspace, run.mask_sha) if run.mask_sha else "",
        "mask_classes": {str(number): name for number, name in run.mask_classes.items()},
        "settings": dict(run.settings),
        "prompts": dict(run.prompts),
        "states": [
            {"id": held.id, "settings": dict(held.settings), "prompts": dict(held.prompts), "at": moment(held.created)}
            for held in workspace.runs.states(run_id)
        ],
        "prompt_states": [held.id for held in workspace.runs.prompt_states(run_id)],
        "histories": {
            stage: [
                {
                    "id": held.id,
                    "at": moment(held.created),
                    "brought_back": held.brought_back,
                    **value_facts(held.value),
                }
                for held in workspace.runs.history(run_id, stage)  # type: ignore[arg-type]
            ]
            for stage in TEXT_STAGES
        },
        "latest": {stage: held.id for stage, held in run.values.items()},
        "stale": dict(state.stale),
        "jobs": [
            {
                **{name: getattr(job, name) for name in ("id", "total", "done", "state", "message")},
                "started": moment(job.started),
                "ended": job.finished is not None,
            }
            for job in run.jobs
        ],
        "images": [_image_facts(workspace, case) for case in run.test_cases],
        "outdated": {str(case): why for case, why in state.outdated.items()},
        "gate": {
            "closed": state.gate.closed,
            "images": [[image.counterfactual.text, image.seed] for image in plan.images] if plan else [],
        },
        "readings": readings_facts(workspace, [run.source_sha, *(case.image_sha for case in run.test_cases)]),
        "under_test": under_test_facts(studio, run),
    }


def _image_facts(workspace: Workspace, case: Any) -> Facts:
    loaded, review = workspace.test_cases.load(case.id), case.review
    return {
        "id": case.id,
        "job": case.job_id,
        "at": moment(case.created),
        "image": image_sha(loaded.image),
        "control": image_sha(loaded.artifacts[CONTROL_IMAGE]),
        "review": {**to_plain(review), "at": moment(review.created)} if review else None,
        **case_facts(case),
    }


def summary_facts(summary: Any) -> Facts:
    """A line in the list of runs."""
    fields = ("id", "name", "profile", "sample", "test_cases", "accepted", "job", "removed")
    return {
        **{name: getattr(summary, name) for name in fields},
        "created": moment(summary.created),
        "changed": moment(summary.changed),
        "task": to_plain(summary.task),
        "stages": list(summary.stages),
    }


def study_facts(workspace: Workspace, study_id: str) -> Facts:
    """All of a study, and what is made of it."""
    studies = workspace.studies
    study, data = studies.get(study_id), studies.data(study_id)
    counts = ("items", "controls", "quiz", "votes", "needed")
    return {
        "name": study.name,
        "state": study.state,
        "link": study.link,
        "created": moment(study.created),
        "changed": moment(study.changed),
        **{name: getattr(study, name) for name in counts},
        "workers": len(data.workers),  # all who belong to it: today's `workers` are those who have answered
        "rules": to_plain(study.rules),
        "examples": [picture(workspace, example.sha) for example in study.rules.examples],
        "rules_history": [[to_plain(rules), moment(since)] for rules, since in studies.rules_history(study_id)],
        "item_list": [_item_facts(workspace, item) for item in studies.items(study_id)],
        "vote_list": [to_plain(vote) for vote in data.votes],
        "worker_list": [to_plain(worker) for worker in data.workers],
        "enrolments": [to_plain(studies.workers.enrolment(study_id, worker.id)) for worker in data.workers],
        "progress": {worker.id: list(studies.assignments.progress(study_id, worker.id)) for worker in data.workers},
        "exclusions": [to_plain(exclusion) for exclusion in data.exclusions],
        "adjudications": [to_plain(decision) for decision in data.adjudications],
        "log": [to_plain(line) for line in studies.log(study_id)],
        "report": report_facts(data),
    }


def report_facts(data: StudyData) -> Facts:
    """The figures of a study, as they were counted then. Three things are counted otherwise today, on purpose: in a
    study that was closed early four equal votes of four were a consensus, and its images without a class or a sample
    had no part of their own; Dawid and Skene's model went on for longer than crowd-kit does.
    """

    def outcome_then(*asked: Any) -> Outcome:
        found = outcome(*asked)
        best = next(iter(found.counts), "")
        question, _, _, _, needed, _ = asked
        if found.status != "too few votes" or not best or found.counts[best] < needed:
            return found
        valid = best in question.valid if question.valid else None
        return replace(found, status="consensus", answer=best, valid=valid)

    def for_longer(votes: Any) -> Any:
        return dawid_skene(votes, rounds=200, tolerance=1e-7)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("study.slices.outcome", outcome_then)
        patched.setattr("study.results.dawid_skene", for_longer)
        report = analyse(data)
    facts = {name: figure for name, figure in to_plain(report).items() if name != "study"}
    for slices in (facts["image_slices"], *(question["slices"] for question in facts["questions"])):
        for name, parts in slices.items():
            slices[name] = [part for part in parts if part["name"] != NONE]
    told_since = ("The rules were changed after the start.", "By the rules as first announced")
    facts["notes"] = [note for note in facts["notes"] if not note.startswith(told_since)]
    return without_rounds(facts)


def without_rounds(report: Facts) -> Facts:
    """The facts of a report, but after how many rounds Dawid and Skene's model settled: it ends by another bound."""
    for question in report["questions"]:
        question["second"]["words"] = re.sub(r" \(settled after \d+ rounds\)", "", question["second"]["words"])
    return report


def _item_facts(workspace: Workspace, item: Any) -> Facts:
    return {
        **{name: fact for name, fact in to_plain(item).items() if name not in ("image_sha", "source_sha")},
        "removed": False,  # told by earlier versions, and never true
        "image": picture(workspace, item.image_sha),
        "source": picture(workspace, item.source_sha) if item.source_sha else "",
    }


def candidate_facts(workspace: Workspace) -> list[Facts]:
    """The images that may become items of a study."""
    fields = ("test_case", "run_id", "label", "classes", "caption", "edit_types", "verdict", "origin")
    return [{name: to_plain(getattr(found, name)) for name in fields} for found in workspace.test_cases.candidates()]


def share_edited(workspace: Workspace, runs: list[str]) -> dict[str, float]:
    """For each stage that has values: the share of runs whose latest value a person wrote."""
    wrote: dict[str, list[bool]] = {}
    for run_id in runs:
        for stage, held in workspace.runs.get(run_id).values.items():
            wrote.setdefault(stage, []).append(held.author == "person")
    return {stage: sum(found) / len(found) for stage, found in wrote.items()}


def workspace_facts(studio: Studio) -> Facts:
    """All that a workspace holds."""
    workspace = studio.workspace
    listed, removed = workspace.runs.search(), workspace.runs.search(removed=True)
    return {
        "listed": [summary_facts(summary) for summary in listed],
        "removed": [summary_facts(summary) for summary in removed],
        "found": [summary.id for summary in workspace.runs.search(find="RED BIRD")],
        "share_edited": share_edited(workspace, [summary.id for summary in (*listed, *removed)]),
        "runs": {summary.id: run_facts(studio, summary.id) for summary in (*listed, *removed)},
        "candidates": candidate_facts(workspace),
        "studies": {study.id: study_facts(workspace, study.id) for study in workspace.studies.all()},
        "log": [to_plain(line) for line in workspace.studies.log()],
    }


def folder_facts(folder: Path) -> Facts:
    """What a folder of `python -m pipeline augment` holds."""
    held = run_file.read(folder / run_file.FILE)
    mask = run_file.load_mask(held, folder)
    return {
        "task": to_plain(held.run.task),
        "profile": held.profile["name"],
        "seed": held.seed,
        "settings": held.settings.model_dump(mode="json"),
        "prompts": prompts_to_plain(held.prompts),
        "source_name": held.source_name,
        "source": held.source_sha256,
        "notes": list(held.run.notes),
        "mask": image_sha(mask) if mask else "",
        "mask_classes": {str(number): name for number, name in held.run.mask_classes.items()},
        "values": {stage: value_facts(value) for stage, value in held.run.values.items()},
        "images": [
            {
                "file": kept.file,
                "control_file": kept.artifact_files[CONTROL_IMAGE],
                "mask_file": kept.mask_file,
                "image": image_sha(run_file.load_case(kept, folder).image),
                "control": image_sha(run_file.load_case(kept, folder).artifacts[CONTROL_IMAGE]),
                **case_facts(kept.record),
            }
            for kept in held.images
        ],
        "complete": held.complete,
        "versions": dict(held.versions),
    }


def file_facts(png: bytes) -> Facts:
    """What a saved PNG has inside."""
    held = read_run_in(png)
    assert held is not None and held.case is not None and held.source is not None
    run, case = held.run, held.case
    return {
        **{name: getattr(run, name) for name in ("id", "name", "profile", "sample")},
        "task": to_plain(run.task),
        "settings": dict(run.settings),
        "prompts": dict(run.prompts),
        "notes": list(run.notes),
        "values": {stage: value_facts(value) for stage, value in run.values.items()},
        "source": image_sha(held.source),
        "source_sha": held.source_sha,
        "mask": image_sha(held.mask) if held.mask else "",
        "mask_classes": {str(number): name for number, name in run.mask_classes.items()},
        "image": image_sha(case.image),
        "control": image_sha(case.artifacts[CONTROL_IMAGE]),
        **{f"image_{name}": fact for name, fact in case_facts(case).items()},
        "review": to_plain(held.review) if held.review else None,
        "lost": held.lost,
    }


# The tests


MAPPINGS = (
    *("runs", "studies", "histories", "latest", "stale", "outdated", "readings", "prompts", "values", "mask_classes"),
    *("share_edited", "mask_kept", "figures", "progress", "answers", "expected"),
)
"""Facts whose names are data and no fields: one more is a difference."""


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Where `found` does not say what was expected. A record may say more: a field that is new."""
    if isinstance(expected, dict) and isinstance(found, dict):
        lines = [f"{path}/{name}: is missing" for name in expected if name not in found]
        if path.rsplit("/", 1)[-1] in MAPPINGS:
            lines += [f"{path}/{name}: was not there" for name in found if name not in expected]
        both = [name for name in expected if name in found]
        return lines + [line for name in both for line in differences(expected[name], found[name], f"{path}/{name}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [line for place, (one, other) in pairs for line in differences(one, other, f"{path}/{place}")]
    if isinstance(expected, float) and isinstance(found, float) and math.isclose(expected, found, rel_tol=1e-9):
        return []
    return [] if expected == found else [f"{path}: {expected!r} is {found!r} now"]


def plain(facts: Any) -> Any:
    """As it would come out of a JSON file."""
    return json.loads(json.dumps(facts))


def same(expected: Any, found: Any) -> None:
    """Every fact is still told, and told alike."""
    changed = differences(expected, plain(found))
    assert not changed, "\n".join(changed[:40])


@pytest.fixture(scope="module")
def expected() -> Facts:
    facts: Facts = json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))
    for study in facts["workspace"]["studies"].values():
        without_rounds(study["report"])
    return facts


def unpacked(folder: Path) -> Path:
    """The workspace as its last process left it: `studio.db` and `images/`, and a job that nobody ended."""
    shutil.unpack_archive(FIXTURES / "workspace.zip", folder)
    (folder / "manifest.json").unlink()
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return unpacked(tmp_path / "earlier")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What is said of the workspace today."""
    folder = unpacked(tmp_path_factory.mktemp("earlier") / "workspace")
    with studio_on(folder) as studio:
        facts: Facts = plain(workspace_facts(studio))
    assert_counted(folder)
    return facts


def run_named(facts: Facts, name: str) -> str:
    """The id of a run."""
    return next(str(run_id) for run_id, run in facts["workspace"]["runs"].items() if run["name"] == name)


@pytest.mark.parametrize(
    "run",
    [
        "nothing done",
        "The red bird",
        "The red bird, copy",
        "Thrown away",
        "avenue",
        "street-two-cars",
        "Stopped with the studio",
        "Killed",
    ],
)
def test_every_run_of_an_earlier_workspace_says_the_same(run: str, expected: Facts, said: Facts) -> None:
    named = {run_id: facts for run_id, facts in expected["workspace"]["runs"].items() if facts["name"] == run}
    assert named
    same(named, {run_id: said["runs"][run_id] for run_id in named})


@pytest.mark.parametrize("part", ["listed", "removed", "found", "share_edited", "candidates", "log"])
def test_an_earlier_workspace_lists_the_same(part: str, expected: Facts, said: Facts) -> None:
    same(expected["workspace"][part], said[part])
    assert len(expected["workspace"][part]) == len(said[part])


@pytest.mark.parametrize("name", ["Birds, November", "Edits", "Roads, a draft"])
def test_an_earlier_study_has_every_vote_and_the_same_report(name: str, expected: Facts, said: Facts) -> None:
    (study_id,) = [key for key, study in expected["workspace"]["studies"].items() if study["name"] == name]
    same(expected["workspace"]["studies"][study_id], said["studies"][study_id])
    assert len(expected["workspace"]["studies"]) == len(said["studies"])


def test_a_generation_that_was_killed_is_told_as_interrupted_and_goes_on(folder: Path, expected: Facts) -> None:
    killed = run_named(expected, "Killed")
    with studio_on(folder) as studio:
        (job,) = run_of(studio, killed).jobs
        assert (job.state, job.done, job.total) == ("interrupted", 1, 4)
        first = run_of(studio, killed).test_cases
        do(studio, killed, "generate")
        run = run_of(studio, killed)
        assert [one.state for one in run.jobs] == ["interrupted", "done"]
        assert run.test_cases[:1] == first and len(run.test_cases) == 4
        assert len({case.lineage.counterfactual.text for case in run.test_cases}) == 4
        do(studio, killed, "run", stage="caption")
        assert authors_of(studio, killed, "caption") == ["model", "model"]


def test_a_stale_run_is_brought_up_to_date(folder: Path, expected: Facts) -> None:
    stale = run_named(expected, "The red bird, copy")
    with studio_on(folder) as studio:
        assert stale_stages(studio, stale) == {"keywords", "alternatives", "counterfactuals"}
        do(studio, stale, "run-all")
        assert not stale_stages(studio, stale)
        do(studio, stale, "generate")
        assert run_of(studio, stale).jobs[-1].state == "done"


def test_a_study_that_goes_on_takes_votes(folder: Path, expected: Facts) -> None:
    (study_id, before) = next(
        (key, study) for key, study in expected["workspace"]["studies"].items() if study["name"] == "Edits"
    )
    with Workspace(folder) as workspace:
        answers = {"realism": "5", "edit-success": "5", "fidelity": "5", "label-consistency": "yes"}
        for worker in before["worker_list"]:
            vote_all(workspace, study_id, worker["id"], answers, 0.0)
        now = plain(study_facts(workspace, study_id))
        assert (now["votes"], now["needed"]) == (6, 6)
        same(before["vote_list"], now["vote_list"][: len(before["vote_list"])])
    assert_counted(folder)


def test_who_could_sign_in_still_can(folder: Path, expected: Facts) -> None:
    signed = expected["signed_up"]
    with Workspace(folder) as workspace:
        assert opens_with(workspace, expected["password"]) and not opens_with(workspace, "another password")
        assert worker_with(workspace, signed["code"]) == signed["worker"]


def test_an_earlier_backup_is_restored_and_an_earlier_workspace_backed_up(tmp_path: Path, expected: Facts) -> None:
    """The fixture is itself a backup of that version; what it gives is backed up before anything else opens it."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert storage_command(["restore", str(FIXTURES / "workspace.zip"), str(first)]) == 0
    assert storage_command(["backup", str(first), str(tmp_path / "again.zip")]) == 0
    assert storage_command(["restore", str(tmp_path / "again.zip"), str(second)]) == 0
    with studio_on(second) as studio:
        same(expected["workspace"], workspace_facts(studio))
        # And as it is once it was opened.
        assert storage_command(["backup", str(second), str(tmp_path / "open.zip")]) == 0
    assert storage_command(["restore", str(tmp_path / "open.zip"), str(tmp_path / "third")]) == 0
    with studio_on(tmp_path / "third") as studio:
        same(expected["workspace"], workspace_facts(studio))


@pytest.mark.parametrize("name", ["folder", "stopped"])
def test_an_earlier_folder_says_the_same(name: str, expected: Facts) -> None:
    same(expected[name], folder_facts(FIXTURES / name))


def test_an_earlier_folder_that_was_stopped_is_finished_by_the_same_command(
    tmp_path: Path, expected: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, models = tmp_path / "out", ScriptedModels()
    shutil.copytree(FIXTURES / "stopped", out)
    source = tmp_path / "source picture.png"
    shutil.copy(out / "source.png", source)
    asked = ["--task", "classification", "--label", "bird", "--seed", "7", "--captions", "3", "--steps", "2"]
    # What a profile sets where nobody says otherwise may change from version to version.
    asked += ["--set", "caption.temperature=0", "--set", "generation.guidance=3"]
    asked += ["--set", "alternatives.temperature=0.2", "--set", "generation.control_strength=1"]
    assert run_command(monkeypatch, models, "augment", str(source), *asked, "--out", str(out)) == 0
    assert len(models.generator.made) == 2 and not models.captioner.calls and not models.language.prompts
    now = plain(folder_facts(out))
    assert now["complete"] and len(now["images"]) == 3
    for part in ("values", "settings", "prompts", "source", "task", "seed"):
        same(expected["stopped"][part], now[part])
    same(expected["stopped"]["images"], now["images"][:1])
    assert (out / "image-001.png").read_bytes() == (FIXTURES / "stopped" / "image-001.png").read_bytes()


@pytest.mark.parametrize("name", ["saved.png", "folder/image-001.png"])
def test_an_earlier_png_brings_its_run_into_an_empty_workspace(name: str, expected: Facts, tmp_path: Path) -> None:
    data, held = (FIXTURES / name).read_bytes(), expected[name]
    same(held, file_facts(data))
    with studio_on(tmp_path / "empty") as studio:
        run_id, case_id = restored(studio, data)
        assert run_id == held["id"] and case_id is not None
        now = plain(run_facts(studio, run_id))
        parts = ("name", "task", "profile", "sample", "notes", "settings", "prompts", "source", "mask", "mask_classes")
        same({part: held[part] for part in parts}, now)
        assert now["stale"] == {} and now["outdated"] == {}
        for stage, value in held["values"].items():
            same([value], now["histories"][stage])
        (image,) = now["images"]
        same({part.removeprefix("image_"): held[part] for part in held if part.startswith("image_")}, image)
        assert (image["image"], image["control"]) == (held["image"], held["control"])
        assert (image["review"] or {}).get("reason") == (held["review"] or {}).get("reason")
        same(held, file_facts(saved_png(studio, case_id)))
        assert restored(studio, data) == (run_id, case_id), "the same file again opens it"


def test_an_earlier_png_finds_its_run_in_the_workspace_it_came_from(folder: Path, expected: Facts) -> None:
    with studio_on(folder) as studio:
        before = run_ids(studio)
        run_id, case_id = restored(studio, (FIXTURES / "saved.png").read_bytes())
        assert run_ids(studio) == before
        held = expected["workspace"]["runs"][run_id]["images"]
        assert case_id == held[0]["id"] and len(run_of(studio, run_id).test_cases) == len(held)


@pytest.mark.demo
@pytest.mark.slow
def test_the_images_of_an_earlier_folder_are_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The embedded models are trained anew from time to time, and then draw other pixels, which is told. What today's
    make is made again to the bit.
    """
    earlier = str(FIXTURES / "folder" / "run.json")
    assert cli.main(["again", earlier, "--image", "image-001.png", "--out", str(tmp_path / "now")]) in (0, 1)
    assert " pixels" in capsys.readouterr().out
    assert cli.main(["again", earlier, "--image", "image-001.png", "--out", str(tmp_path / "later")]) in (0, 1)
    folders = (FIXTURES / "folder", tmp_path / "now", tmp_path / "later")
    then, now, later = (Image.open(folder / "image-001.png").convert("RGB") for folder in folders)
    assert now.size == then.size and now.tobytes() == later.tobytes()
