"""A workspace keeps all versions of its values, and refuses in one sentence what it cannot do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from core.errors import UserError
from core.lineage import Lineage, TestCase, read_settings
from core.predictions import Guess, Prediction, encode_map
from core.settings import Settings
from core.types import (
    Alternative,
    Alternatives,
    Caption,
    Check,
    CounterfactualCaption,
    CounterfactualCaptions,
    Edit,
    Keyword,
    KeywordAlternatives,
    Keywords,
    StageValue,
    Task,
    Trace,
)
from pipeline.methods.controlnet import CONTROL_IMAGE
from storage.evaluation.predictions import NewPrediction
from storage.workspace import Workspace
from tests.support.workspaces import workspace_in

BIRD = Task("classification", label="bird")
ROAD = Task("segmentation", protected=("road", "vehicle"))
NASTY = 'Robert\'); DROP TABLE runs;-- "quoted" %s ? :name \x00 😀 \\ \n[x](y)'


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


def picture(shade: int = 90, mode: str = "RGB") -> Image.Image:
    return Image.linear_gradient("L").resize((12, 8)).point(lambda v: (v + shade) % 256).convert(mode)


def new_run(workspace: Workspace, name: str = "A bird", shade: int = 90) -> str:
    return workspace.runs.create(picture(shade), BIRD, "demo", name, Settings().model_dump())


def by_model(text: str, key: str = "k") -> StageValue[Caption]:
    trace = Trace("model", "blip", "say", f"raw {text}", {"beams": 1}, seed=2**63 + 5, attempts=2, seconds=0.25)
    return StageValue(Caption(text), trace, key)


def by_person(text: str) -> StageValue[Caption]:
    return StageValue(Caption(text), Trace("person"), "k")


def case(seed: int = 7, shade: int = 10) -> TestCase:
    return TestCase(
        image=picture(shade),
        lineage=Lineage(
            counterfactual=CounterfactualCaption("A red bird.", (Edit("blue", "red", "attribute"),)),
            seed=seed,
            method="controlnet",
            model="sd",
            prompt="A red bird. bird",
            negative_prompt="blur",
            settings=read_settings("controlnet", {"steps": 30, "conditioning": {"low": 60}}),
            seconds=3.5,
            task=BIRD,
        ),
        artifacts={CONTROL_IMAGE: picture(shade + 1, "L")},
        checks=(Check("label kept", True, 0.31), Check("edit shown", False, None, "No red was found.")),
    )


def test_a_run_comes_back_after_the_workspace_was_closed(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as workspace:
        notes = ("The picture was turned upright.",)
        run_id = workspace.runs.create(picture(), ROAD, "demo", " Main  street ", {"a": 1}, notes, sample="street-3")
    with Workspace(str(tmp_path)) as workspace:
        run = workspace.runs.get(run_id)
        assert (run.name, run.task, run.profile, run.settings) == ("Main street", ROAD, "demo", {"a": 1})
        assert (run.notes, run.sample) == (notes, "street-3")
        assert (run.values, run.test_cases, run.jobs) == ({}, (), ())
        assert workspace.images.load(run.source_sha).tobytes() == picture().tobytes()
        assert run.created.tzinfo is not None


def test_every_stage_value_comes_back_as_it_was(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    trace = Trace("model", "llama", "prompt", "raw", {"temperature": 0.2}, 3, 1, 1.5)
    values = {
        "caption": StageValue(Caption("A bird. It sits."), trace, "k1"),
        "keywords": StageValue(
            Keywords((Keyword("blue", "attribute"), Keyword("day", "time of day", False))), trace, "k2"
        ),
        "alternatives": StageValue(
            Alternatives(
                (KeywordAlternatives("blue", "attribute", (Alternative("red"), Alternative("green", False))),)
            ),
            trace,
            "k3",
        ),
        "counterfactuals": StageValue(CounterfactualCaptions((case().lineage.counterfactual,)), Trace("person"), "k4"),
    }
    for stage, value in values.items():
        workspace.runs.append_value(run_id, stage, value)  # type: ignore[arg-type]
    stored = workspace.runs.get(run_id).values
    assert list(stored) == list(values)
    assert {stage: item.value for stage, item in stored.items()} == values


def test_earlier_versions_stay_and_can_be_brought_back(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    first = workspace.runs.append_value(run_id, "caption", by_model("A bird.", "old key"))
    workspace.runs.append_value(run_id, "caption", by_person("A blue bird."))
    assert workspace.runs.get(run_id).values["caption"].author == "person"

    again = workspace.runs.bring_back(first)
    latest = workspace.runs.get(run_id).values["caption"]
    assert (latest.id, latest.value, latest.brought_back) == (again, by_model("A bird.", "old key"), first)
    texts = [version.value.value.text for version in workspace.runs.history(run_id, "caption")]
    assert texts == ["A bird.", "A blue bird.", "A bird."]
    with pytest.raises(UserError, match="no version 99"):
        workspace.runs.bring_back(99)


def test_a_value_of_another_stage_is_refused(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    with pytest.raises(TypeError, match="keywords has a Keywords, not a Caption"):
        workspace.runs.append_value(run_id, "keywords", by_model("A bird."))
    assert workspace.runs.get(run_id).values == {}


def test_a_test_case_comes_back_with_its_pixels_and_lineage(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    job = workspace.jobs.start(run_id, total=2, inputs_key="g1")
    case_id = workspace.test_cases.append(run_id, job, case(seed=2**64 - 1))
    (stored,) = workspace.runs.get(run_id).test_cases
    assert (stored.id, stored.job_id, stored.inputs_key) == (case_id, job, "g1")
    assert stored.image_path == workspace.images.path(stored.image_sha)

    loaded, made = workspace.test_cases.load(case_id), case(seed=2**64 - 1)
    assert (loaded.image.mode, loaded.image.tobytes()) == ("RGB", made.image.tobytes())
    control = loaded.artifacts[CONTROL_IMAGE]
    assert (control.mode, control.tobytes()) == ("L", made.artifacts[CONTROL_IMAGE].tobytes())
    assert replace(loaded, image=made.image, artifacts=made.artifacts) == made


def test_a_job_counts_its_images_and_ends_once(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    job = workspace.jobs.start(run_id, total=3)
    workspace.test_cases.append(run_id, job, case())
    (running,) = workspace.runs.get(run_id).jobs
    assert (running.state, running.done, running.total, running.finished) == ("running", 1, 3, None)
    assert workspace.jobs.finish(job, "failed", "The disk is full.")
    assert not workspace.jobs.finish(job, "done")
    (ended,) = workspace.runs.get(run_id).jobs
    assert (ended.state, ended.message) == ("failed", "The disk is full.")
    assert ended.finished is not None and ended.finished >= ended.started


def test_a_test_case_cannot_go_to_another_runs_job(workspace: Workspace) -> None:
    job = workspace.jobs.start(new_run(workspace), total=1)
    other = new_run(workspace, "Another")
    with pytest.raises(sqlite3.IntegrityError):
        workspace.test_cases.append(other, job, case())
    assert workspace.runs.get(other).test_cases == ()


def test_task_settings_and_name_change_and_the_earlier_ones_stay(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    workspace.runs.set_task(run_id, ROAD)
    workspace.runs.set_settings(run_id, {"steps": 5})
    workspace.runs.rename(run_id, "Second name")
    workspace.runs.rename(run_id, "Second name")
    run = workspace.runs.get(run_id)
    assert (run.task, run.settings, run.name) == (ROAD, {"steps": 5}, "Second name")
    rows = sqlite3.connect(workspace.folder / "studio.db").execute("SELECT name FROM run_states ORDER BY id").fetchall()
    assert [name for (name,) in rows] == ["A bird"] * 3 + ["Second name"]


def test_names_are_checked(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    for name, word in (("  ", "no name"), ("x" * 201, "201 characters")):
        with pytest.raises(UserError, match=word):
            workspace.runs.rename(run_id, name)
    assert workspace.runs.get(run_id).name == "A bird"


def test_the_list_of_runs_starts_with_the_one_worked_on_last(workspace: Workspace) -> None:
    assert not workspace.runs.search(1)
    first, second = new_run(workspace, "First"), new_run(workspace, "Second", shade=3)
    assert workspace.runs.search(1)[0].id == second
    workspace.runs.append_value(first, "caption", by_person("A bird."))
    workspace.test_cases.append(first, None, case())
    summaries = workspace.runs.search()
    assert [summary.name for summary in summaries] == ["First", "Second"]
    assert (summaries[0].stages, summaries[0].test_cases) == (("caption", "generation"), 1)
    assert summaries[0].changed > summaries[0].created
    assert workspace.runs.search(1)[0].id == first
    assert len(workspace.runs.search(limit=1)) == 1


def test_what_a_person_types_is_only_text(workspace: Workspace) -> None:
    task = Task("classification", label=NASTY)
    run_id = workspace.runs.create(picture(), task, NASTY, NASTY, {NASTY: NASTY}, (NASTY,), NASTY)
    workspace.runs.append_value(run_id, "caption", replace(by_model(NASTY), inputs_key=NASTY))
    workspace.jobs.start(run_id, 1, inputs_key=NASTY)
    run = workspace.runs.get(run_id)
    assert (run.task.label, run.profile, run.settings, run.notes) == (NASTY, NASTY, {NASTY: NASTY}, (NASTY,))
    assert run.values["caption"].value.value.text == NASTY
    for unknown in (NASTY, "' OR 1=1 --", ""):
        with pytest.raises(UserError, match="has no run"):
            workspace.runs.get(unknown)


def test_an_unknown_run_is_refused_everywhere(workspace: Workspace) -> None:
    for action in (
        lambda: workspace.runs.append_value("none", "caption", by_person("x")),
        lambda: workspace.test_cases.append("none", None, case()),
        lambda: workspace.jobs.start("none", 1),
        lambda: workspace.runs.set_task("none", BIRD),
        lambda: workspace.runs.history("none", "caption"),
    ):
        with pytest.raises(UserError, match="This workspace has no run 'none'"):
            action()


def test_an_image_is_stored_once_and_without_what_came_with_it(workspace: Workspace) -> None:
    private = picture()
    private.info = {"icc_profile": b"secret profile", "Comment": "secret words", "gamma": 0.5, "dpi": (72, 72)}
    with_extras = workspace.runs.get(workspace.runs.create(private, BIRD, "demo", "One", {}))
    plain = workspace.runs.get(workspace.runs.create(picture(), BIRD, "demo", "Two", {}))
    assert with_extras.source_sha == plain.source_sha
    assert [path.name for path in (workspace.folder / "images").iterdir()] == [f"{plain.source_sha}.png"]
    assert b"secret" not in workspace.images.path(plain.source_sha).read_bytes()
    assert private.info["Comment"] == "secret words"


@pytest.mark.parametrize(
    "sha", ["../studio.db", "a" * 63, "A" * 64, "a" * 64 + "\n", "", "/etc/passwd", "a" * 62 + "/."]
)
def test_an_image_name_is_no_path(workspace: Workspace, sha: str) -> None:
    with pytest.raises(UserError, match="not the name of an image"):
        workspace.images.path(sha)


def test_a_missing_and_a_damaged_image_are_told_apart(workspace: Workspace) -> None:
    run = workspace.runs.get(new_run(workspace))
    with pytest.raises(UserError, match="is missing"):
        workspace.images.path("a" * 64)
    path = workspace.images.path(run.source_sha)
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match="is damaged"):
        workspace.images.load(run.source_sha)


def test_a_mode_that_png_would_change_is_refused(workspace: Workspace) -> None:
    with pytest.raises(ValueError, match="CMYK"):
        workspace.runs.create(picture().convert("CMYK"), BIRD, "demo", "A bird", {})
    assert workspace.runs.search() == ()


def test_a_closed_workspace_says_so(tmp_path: Path) -> None:
    workspace = workspace_in(tmp_path)
    with pytest.raises(RuntimeError, match="closed"):
        workspace.runs.search()
    workspace.open()
    workspace.close()
    workspace.close()
    with pytest.raises(RuntimeError, match="closed"):
        new_run(workspace)
    workspace.open()
    assert workspace.runs.search() == ()
    workspace.close()


def test_closing_interrupts_its_own_jobs_only(tmp_path: Path) -> None:
    with workspace_in(tmp_path) as other:
        run_id = new_run(other)
        others = other.jobs.start(run_id, 1)
        with workspace_in(tmp_path) as workspace:
            own, done = workspace.jobs.start(run_id, 1), workspace.jobs.start(run_id, 1)
            workspace.jobs.finish(done, "done")
        states = {job.id: job.state for job in other.runs.get(run_id).jobs}
        assert states == {others: "running", own: "interrupted", done: "done"}


def test_a_review_counts_until_it_is_taken_back(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    case_id = workspace.test_cases.append(run_id, None, case())
    assert workspace.test_cases.get(case_id).review is None
    workspace.test_cases.review(case_id, "accepted")
    workspace.test_cases.review(case_id, "rejected", "  the bird\n is gone ")
    (stored,) = workspace.runs.get(run_id).test_cases
    assert stored.review is not None and stored.review.created >= stored.created
    assert (stored.review.verdict, stored.review.reason) == ("rejected", "the bird is gone")
    assert workspace.runs.search()[0].accepted == 0
    workspace.test_cases.review(case_id, "accepted")
    assert workspace.runs.search()[0].accepted == 1
    workspace.test_cases.review(case_id, "open")
    assert workspace.test_cases.get(case_id).review is None
    assert workspace.runs.search()[0].accepted == 0
    with pytest.raises(UserError, match="no test case 99"):
        workspace.test_cases.review(99, "accepted")
    with pytest.raises(UserError, match="1001 characters"):
        workspace.test_cases.review(case_id, "rejected", "x" * 1001)
    with pytest.raises(sqlite3.IntegrityError):
        workspace.test_cases.review(case_id, "maybe")  # type: ignore[arg-type]


def test_the_latest_prediction_of_each_model_counts(workspace: Workspace) -> None:
    sha = workspace.runs.get(new_run(workspace)).source_sha
    bird, boat = (Prediction("classification", "net", (Guess(label, 0.5),)) for label in (NASTY, "boat"))
    assert workspace.predictions.latest(sha, NASTY) is None
    workspace.predictions.append(sha, NASTY, bird)
    workspace.predictions.append(sha, NASTY, boat)
    workspace.predictions.append(sha, "another", bird)
    assert workspace.predictions.latest(sha, NASTY) == boat
    assert workspace.predictions.latest(sha, "another") == bird
    with pytest.raises(UserError, match="has no image"):
        workspace.predictions.append("a" * 64, NASTY, bird)
    with pytest.raises(UserError, match="has no image"):
        workspace.predictions.extend([NewPrediction(sha, NASTY, bird), NewPrediction("a" * 64, NASTY, bird)])
    assert workspace.predictions.latest(sha, NASTY) == boat, "all or none"
    ids = workspace.predictions.extend(NewPrediction(sha, model, bird) for model in ("one", "two"))
    assert ids[1] == ids[0] + 1 and workspace.predictions.latest(sha, "two") == bird


def test_class_maps_are_image_files(workspace: Workspace) -> None:
    sha = workspace.runs.get(new_run(workspace)).source_sha
    numbers = Image.frombytes("L", (6, 4), bytes(range(24)))
    found = Prediction("segmentation", "net", classes=("road", NASTY), class_map=encode_map(numbers))
    workspace.predictions.append(sha, "net", found)
    assert workspace.predictions.latest(sha, "net") == found
    (path,) = (path for path in workspace.images.folder.iterdir() if Image.open(path).size == (6, 4))
    assert Image.open(path).mode == "L" and Image.open(path).tobytes() == numbers.tobytes()
    path.unlink()
    assert workspace.predictions.latest(sha, "net") is None, "the model can say it again"


def test_a_mask_with_its_classes_stays_with_the_run(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    mask = Image.new("L", (12, 8), 3)
    workspace.runs.set_mask(run_id, mask, {3: "road", 7: NASTY})
    run = workspace.runs.get(run_id)
    assert run.mask_classes == {3: "road", 7: NASTY}
    assert run.mask_sha is not None and workspace.images.load(run.mask_sha).tobytes() == mask.tobytes()
    workspace.runs.rename(run_id, "Another name")
    assert workspace.runs.get(run_id).mask_sha == run.mask_sha
    workspace.runs.set_mask(run_id, None)
    run = workspace.runs.get(run_id)
    assert (run.mask_sha, run.mask_classes) == (None, {})
    with pytest.raises(ValueError, match="mode L, not RGB"):
        workspace.runs.set_mask(run_id, picture(), {})


def test_edited_prompts_stay_with_the_run(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    workspace.runs.set_prompts(run_id, {"keywords": f"Name ${{caption}} {NASTY}"})
    assert workspace.runs.get(run_id).prompts == {"keywords": f"Name ${{caption}} {NASTY}"}
    workspace.runs.set_prompts(run_id, {})
    assert workspace.runs.get(run_id).prompts == {}


def test_earlier_settings_and_prompts_stay(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    first = workspace.runs.get(run_id)
    assert [state.id for state in workspace.runs.states(run_id)] == [first.state]
    number = workspace.runs.set_settings(run_id, {"steps": 5})
    assert number == workspace.runs.get(run_id).state and number is not None and number > first.state
    assert workspace.runs.set_settings(run_id, {"steps": 5}) is None, "nothing was changed"
    one = workspace.runs.set_prompts(run_id, {"keywords": "$task $caption"})
    workspace.runs.rename(run_id, "another")
    two = workspace.runs.set_prompts(run_id, {})
    assert [state.settings for state in workspace.runs.states(run_id)][:2] == [first.settings, {"steps": 5}]
    assert [state.id for state in workspace.runs.states(run_id, number)] == [number, one, two - 1 if two else 0, two]
    assert [(state.id, state.prompts) for state in workspace.runs.prompt_states(run_id)] == [
        (one, {"keywords": "$task $caption"}),
        (two, {}),
    ]
    with pytest.raises(UserError, match="has no run"):
        workspace.runs.states("none")


def test_a_removed_run_leaves_the_list_and_can_come_back(workspace: Workspace) -> None:
    first, second = new_run(workspace, "First"), new_run(workspace, "Second")
    workspace.runs.append_value(second, "caption", by_person("A bird."))
    workspace.runs.remove(second)
    assert [run.id for run in workspace.runs.search()] == [first]
    assert [run.id for run in workspace.runs.search(removed=True)] == [second]
    assert workspace.runs.search(1)[0].id == first
    run = workspace.runs.get(second)
    assert run.removed and run.values["caption"].value == by_person("A bird.")
    workspace.runs.restore(second)
    assert not workspace.runs.get(second).removed
    assert [run.id for run in workspace.runs.search()] == [second, first]
    with pytest.raises(UserError, match="has no run"):
        workspace.runs.remove("none")


def test_a_duplicate_goes_its_own_way(workspace: Workspace) -> None:
    run_id = new_run(workspace, "Street")
    workspace.runs.append_value(run_id, "caption", by_model("A bird."))
    workspace.runs.append_value(run_id, "caption", by_person("A blue bird."))
    workspace.runs.set_mask(run_id, Image.new("L", (12, 8)), {0: "road"})
    workspace.runs.set_prompts(run_id, {"keywords": "x"})
    workspace.test_cases.append(run_id, None, case())
    copy_id = workspace.runs.duplicate(run_id)
    run, copy = workspace.runs.get(run_id), workspace.runs.get(copy_id)
    assert (copy.name, copy.test_cases, copy.jobs) == ("Street, copy", (), ())
    for part in ("task", "profile", "settings", "sample", "notes", "source_sha", "mask_sha", "mask_classes", "prompts"):
        assert getattr(copy, part) == getattr(run, part)
    assert copy.values["caption"].value == run.values["caption"].value
    assert len(workspace.runs.history(copy_id, "caption")) == 1
    workspace.runs.append_value(copy_id, "caption", by_person("A red bird."))
    assert workspace.runs.get(run_id).values["caption"].value == by_person("A blue bird.")
    assert workspace.runs.get(workspace.runs.duplicate(copy_id)).name == "Street, copy 2"


def test_the_list_says_how_the_last_generation_ended(workspace: Workspace) -> None:
    run_id = new_run(workspace)
    assert workspace.runs.search()[0].job is None
    job = workspace.jobs.start(run_id, 1)
    assert workspace.runs.search()[0].job == "running"
    workspace.jobs.finish(job, "cancelled")
    assert workspace.runs.search()[0].job == "cancelled"


def test_runs_are_found_by_name_and_label(workspace: Workspace) -> None:
    street, bird = new_run(workspace, "STRASSE im Regen"), new_run(workspace, "Ein Ärger 100%")
    workspace.runs.set_task(bird, Task("classification", label="Möwe"))
    workspace.runs.set_task(street, ROAD)
    for find, found in (
        ("straße", [street]),
        ("ärger", [bird]),
        ("MÖWE", [bird]),
        ("r", [street, bird]),
        ("%", [bird]),
        ("label", []),
        (NASTY, []),
        ("", [street, bird]),
    ):
        assert [run.id for run in workspace.runs.search(find=find)] == found
        assert workspace.runs.count(find) == len(found)
    workspace.runs.remove(street)
    assert workspace.runs.count() == 1 and workspace.runs.search(find="straße") == ()
    assert [run.id for run in workspace.runs.search(removed=True, find="straße")] == [street]


def test_an_image_from_elsewhere_is_kept_without_a_run(tmp_path: Path) -> None:
    image = Image.effect_noise((20, 16), 50).convert("RGB")
    with workspace_in(tmp_path) as workspace:
        sha = workspace.images.add(image)
        assert workspace.images.add(image) == sha
        assert workspace.images.sizes([sha, None, "0" * 64]) == {sha: image.size}
        assert workspace.images.load(sha).tobytes() == image.tobytes()
        assert workspace.predictions.append(sha, "model", Prediction("classification", "model")) > 0
