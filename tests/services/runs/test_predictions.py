"""Predictions of a model under test for a run: made in the worker thread, stored, made once, and problems reported."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.image_filter import ImageFilter
from core.model_identity import ModelIdentity, Preprocessing
from core.predictions import Guess, PredictedBatch, Prediction, encode_map
from core.settings import Settings, UnderTestSettings
from core.stored_runs import Run
from core.types import Task, TaskKind
from evaluation.focus import GradCam
from pipeline.profiles.profile import CheckSettings, Profile, load_profile
from services.evaluation.service import EvaluationService
from services.evaluation.types import EvaluationQuestion, Subject
from services.jobs import JobQueue
from services.runs.predictions import ModelComparison, PredictionService, Predictor, model_key
from services.studio import Studio
from tests.support.cases import made_case
from tests.support.model_cases import CLASSES, MEAN, STD, onnx_file, onnx_that_says_all, transformers_folder
from tests.support.scripted import parts_of, perform
from tests.support.serving import until
from tests.support.workspaces import workspace_in
from tests.ui.explore.test_ui_studio import new_run

NAMED = Settings(under_test=UnderTestSettings(source="timm", name="resnet18"))
EVERYTHING = EvaluationQuestion(Subject(filter=ImageFilter()), NAMED.under_test)
BIRD = Task("classification", label="bird")
STREET = Task("segmentation", protected=("road", "vehicle"))


class Bright:
    """Model that calls a dark picture a bird and a bright one a boat. Or it sees a road, and a vehicle beside it if
    dark.
    """

    def __init__(self, kind: TaskKind, name: str = "bright") -> None:
        self.kind, self.name, self.asked = kind, name, 0
        self.weights = "v1"

    @property
    def identity(self) -> ModelIdentity:
        classes = ("bird", "boat", "house") if self.kind == "classification" else ("sky", "road", "vehicle")
        return ModelIdentity(self.name, self.weights, self.kind, Preprocessing(), classes)

    def predict_many(self, images: Sequence[Callable[[], Image.Image]]) -> Iterator[PredictedBatch]:
        for one in images:
            found = self.predict(one())
            sure = {guess.label: guess.probability for guess in found.top}
            row = np.array([[sure.get(name, 0.0) for name in self.identity.classes]], np.float32)
            yield PredictedBatch((found,), row if found.top else None)

    def grad_cam(self) -> GradCam:
        raise UserError("It has no network.")

    def input_picture(self, image: Image.Image) -> Image.Image:
        return image

    def predict(self, image: Image.Image) -> Prediction:
        self.asked += 1
        bright = np.asarray(image).mean() > 127
        if self.kind == "classification":
            first = "boat" if bright else "bird"
            return Prediction("classification", "bright", (Guess(first, 0.9), Guess("house", 0.1)))
        pixels = np.zeros((8, 8), np.uint8)
        pixels[:, :4] = 1
        pixels[:, 4:] = 0 if bright else 2
        names = ("sky", "road", "vehicle")
        return Prediction("segmentation", "bright", classes=names, class_map=encode_map(Image.fromarray(pixels)))


class Bench:
    """Workspace with one run, and its predictions."""

    def __init__(self, folder: Path, kind: TaskKind, checked: bool = False) -> None:
        """Open the workspace. `checked` keeps the profile's own segmenter for the checks."""
        self.workspace, self.jobs = workspace_in(folder).open(), JobQueue()
        self.model, self.loads = Bright(kind), 0
        self.profile: Profile = load_profile("demo")
        if not checked:
            self.profile = self.profile.model_copy(update={"checks": CheckSettings()})
        self.predictions = PredictionService(self.profile, self.workspace, self.jobs, self.load)
        task = BIRD if kind == "classification" else STREET
        self.run_id = self.workspace.runs.create(Image.new("RGB", (16, 16), (9, 9, 9)), task, "demo", "a run", {})

    def load(self, wanted: UnderTestSettings) -> Bright:
        self.loads += 1
        self.model.name = wanted.title
        return self.model

    def add(self, shade: int) -> int:
        picture = Image.new("RGB", (16, 16), (shade, shade, 1))
        return self.workspace.test_cases.append(self.run_id, None, made_case(picture, seed=shade))

    def run(self) -> Run:
        return self.workspace.runs.get(self.run_id)

    def compare(self, settings: Settings = NAMED) -> ModelComparison:
        """Return the comparison once no prediction is waiting."""
        until(lambda: not self.predictions.compare(self.run(), settings).waiting)
        return self.predictions.compare(self.run(), settings)


@pytest.fixture(params=["classification", "segmentation"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "workspace", request.param)
    yield made
    made.jobs.close()
    made.workspace.close()


def test_a_model_that_takes_long_to_load_holds_up_no_job(bench: Bench) -> None:
    begun, let, plain = threading.Event(), threading.Event(), bench.predictions.load

    def endless(wanted: UnderTestSettings) -> Predictor:
        begun.set()
        assert let.wait(300)
        return plain(wanted)

    bench.predictions.load = endless
    bench.add(20)
    assert bench.predictions.compare(bench.run(), NAMED).waiting and begun.wait(60)
    job = bench.jobs.submit(bench.run_id, ("caption",), lambda _: None)
    done = bench.jobs.wait(job, 60)
    assert done is not None and done.state == "done", "it waits for the model"
    assert bench.predictions.compare(bench.run(), NAMED).waiting
    let.set()
    assert bench.compare().source is not None and bench.loads == 1


def test_source_and_results_are_read_once_and_failures_are_found(bench: Bench) -> None:
    dark, bright = bench.add(20), bench.add(220)
    first = bench.predictions.compare(bench.run(), NAMED)
    assert first.waiting and first.source is None, "a request does not wait for the model"
    seen = bench.compare()
    assert bench.model.asked == 3 and bench.loads == 1
    assert seen.source is not None and set(seen.results) == {dark, bright}
    assert seen.newly_misclassified == {bright}, "what the model lost it had in the source"
    if bench.model.kind == "segmentation":
        road, vehicle = seen.figures[bright]
        assert (road.name, road.generated, vehicle.generated) == ("road", 1.0, 0.0) and vehicle.dropped
    bench.add(230)
    bench.compare()
    assert bench.model.asked == 4, "only what is new is asked"
    again = PredictionService(bench.profile, bench.workspace, bench.jobs, bench.load)
    assert again.compare(bench.run(), NAMED).newly_misclassified >= {bright} and bench.model.asked == 4, (
        "after a restart too"
    )


@pytest.fixture
def evaluations(bench: Bench) -> Iterator[EvaluationService]:
    """Evaluations of the same workspace with the same model."""
    bench.workspace.runs.set_mask(bench.run_id, Image.new("L", (16, 16), 1), {1: "road"})
    made = EvaluationService(bench.profile, bench.workspace, bench.predictions.require_known)
    made.predicting.load = bench.load
    yield made
    made.close()


def read_by(evaluations: EvaluationService) -> None:
    done = evaluations.work.wait(evaluations.begin(EVERYTHING).id, 60)
    assert done.state == "done", done.error


def test_what_one_page_has_read_no_other_page_reads_again(bench: Bench, evaluations: EvaluationService) -> None:
    bench.add(20)
    bench.compare()
    assert bench.model.asked == 2
    bench.add(220)
    read_by(evaluations)
    assert bench.model.asked == 3 and evaluations.pending(EVERYTHING).left == 0, "only what was added"
    seen = bench.compare()
    assert bench.model.asked == 3 and len(seen.results) == 2
    (known,) = bench.workspace.models_under_test.all()
    assert known.model.identity == bench.model.identity and known.settings["name"] == NAMED.under_test.name
    if bench.model.kind == "classification":  # the predictions cover all classes
        rows, _ = bench.workspace.models_under_test.probabilities(known.model)
        assert len(rows.images) == 3 and rows.numbers.sum(axis=1) == pytest.approx(np.ones(3), abs=1e-3)
        assert len(seen.newly_misclassified) == 1


def test_a_model_that_is_another_one_by_now_is_asked_anew(bench: Bench, evaluations: EvaluationService) -> None:
    bench.add(20)
    before = bench.compare()
    bench.model.weights = "v2"
    stored = evaluations.predicting.identify(NAMED.under_test)
    assert bench.predictions.key_of(NAMED.under_test) == stored.key != model_key(NAMED.under_test)
    assert bench.predictions.compare(bench.run(), NAMED).waiting, "what the other one said does not count"
    after = bench.compare()
    assert bench.model.asked == 4 and set(after.results) == set(before.results)
    bench.compare()
    assert bench.model.asked == 4


def test_figures_are_measured_against_the_mask_where_there_is_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "workspace", "segmentation")
    mask = np.zeros((16, 16), np.uint8)
    mask[:, :8], mask[:, 8:12] = 7, 9
    bench.workspace.runs.set_mask(bench.run_id, Image.fromarray(mask), {0: "sky", 7: "road", 9: "vehicle"})
    case = bench.add(20)
    seen = bench.compare()
    assert seen.masked
    assert [(figure.name, figure.source) for figure in seen.figures[case]] == [("road", 1.0), ("vehicle", 0.5)]
    kept = seen.checks(bench.run().test_cases[0])[-1]
    assert (kept.name, kept.passed, kept.value) == ("mask kept", True, 0.75)
    lost = bench.add(220)
    seen = bench.compare()
    bad = seen.checks(bench.run().test_cases[1])[-1]
    assert bad.passed is None and bad.value == 0.5 and "0.75" in bad.note and lost in seen.newly_misclassified
    bench.jobs.close()
    bench.workspace.close()


def test_a_profile_with_a_segmenter_of_its_own_tells_a_bad_image_from_a_failing_model(tmp_path: Path) -> None:
    """An error of the model under test is not blamed on the image: another model finds the thing that is really
    missing.
    """
    bench = Bench(tmp_path / "workspace", "segmentation", checked=True)
    mask = np.zeros((16, 16), np.uint8)
    mask[:, :8], mask[:, 8:] = 7, 9
    bench.workspace.runs.set_mask(bench.run_id, Image.fromarray(mask), {7: "road", 9: "vehicle"})
    fine, lost = bench.add(20), bench.add(220)
    seen = bench.compare()
    by_case = {case.id: seen.checks(case) for case in bench.run().test_cases}
    assert [check.outcome for check in by_case[fine]] == ["passed", "passed"]
    assert {check.name: check.outcome for check in by_case[lost]} == {"mask kept": "failed", "things kept": "failed"}
    assert all("vehicle" in check.note for check in by_case[lost]) and bench.loads == 2
    known = bench.predictions.mask_checks(bench.run(), NAMED, bench.run().test_cases[1])
    assert known == by_case[lost], "files carry the same"
    bench.jobs.close()
    bench.workspace.close()


def test_where_a_mask_cannot_be_checked_it_is_said_why(bench: Bench) -> None:
    bench.add(20)
    (case,) = bench.run().test_cases
    if bench.model.kind == "classification":
        assert bench.compare().mask_kept == {}, "a label has no mask"
        bench.workspace.runs.set_task(bench.run_id, STREET)
        assert bench.compare().mask_kept == {}, "it was made for its label"
        bench.add(30)
        case = bench.run().test_cases[-1]
    assert bench.compare().unmeasured(case) == "n/a, there is no mask"
    bench.workspace.runs.set_mask(bench.run_id, Image.new("L", (16, 16), 3), {3: "dragon"})
    if bench.model.kind == "classification":
        assert bench.compare().unmeasured(case) == "n/a, the model under test is no segmenter"
    else:
        assert bench.compare().unmeasured(case) == "n/a, the model under test knows no protected class of the mask"
    other = Settings(under_test=UnderTestSettings(source="timm", name="other"))
    assert bench.predictions.compare(bench.run(), other).unmeasured(case) == "being measured"
    bench.compare(other)
    assert bench.compare(other).checks(case) == (), "and no check is made up"


def test_a_label_that_the_model_has_no_class_for_is_told_and_counts_as_no_fault(tmp_path: Path) -> None:
    made = Bench(tmp_path / "workspace", "classification")
    made.add(220)
    dark = made.add(20)
    assert made.compare().outcomes[dark].standing == "right"
    made.workspace.runs.set_task(made.run_id, Task("classification", label="lighthouse"))
    later = made.add(30)
    seen = made.compare()
    assert seen.outcomes[later].standing == "cannot tell"
    assert seen.outcomes[later].words == "model has no class for “lighthouse”: bird 0.90"
    assert later not in seen.newly_misclassified
    assert seen.outcomes[dark].standing == "right", "each by the task it was made for"
    assert seen.is_right("bird", "lighthouse") is None
    assert seen.no_class_for("lighthouse") == (
        "“lighthouse” is not compared: no class of the model fits. So the model is neither right nor wrong about it."
    )
    assert seen.no_class_for("bird") == ""
    made.jobs.close()
    made.workspace.close()


def test_nothing_is_asked_before_there_is_a_result(bench: Bench) -> None:
    assert not bench.predictions.compare(bench.run(), NAMED).waiting and bench.loads == 0


def test_the_profile_names_a_model_for_each_task_and_a_run_another(bench: Bench) -> None:
    own = bench.predictions.model_of(bench.run(), Settings())
    assert own is not None and own.source == "file" and Path(own.file).is_absolute()
    assert bench.predictions.model_of(bench.run(), NAMED) == NAMED.under_test


def test_a_model_that_cannot_be_loaded_is_told_and_can_be_tried_again(bench: Bench) -> None:
    def fails(_wanted: UnderTestSettings) -> Bright:
        raise UserError("The weights could not be fetched.")

    bench.add(20)
    bench.predictions.load = fails
    seen = bench.compare()
    assert seen.problem == "The weights could not be fetched." and not seen.waiting
    bench.predictions.load = bench.load
    assert bench.compare().problem, "it is not tried at every look"
    bench.predictions.try_again(NAMED.under_test)
    assert bench.compare().problem == "" and bench.compare().source is not None


def test_images_are_sent_to_no_server_that_the_profile_does_not_name(bench: Bench) -> None:
    """Settings can come from files and scripts, whose authors could name a server of theirs and receive the images."""
    asked = {"source": "http", "address": "http://127.0.0.1:9"}
    stranger = Settings(under_test=UnderTestSettings.model_validate(asked))
    bench.add(200)
    assert "only if the profile names this address" in bench.compare(stranger).problem and bench.loads == 0
    own = bench.profile.model_under_test.model_copy(update={"classification": stranger.under_test})
    bench.predictions._profile = bench.profile.model_copy(update={"model_under_test": own})
    bench.predictions.try_again(stranger.under_test)
    assert bench.compare(stranger).problem == "" and bench.loads == 1


def test_a_model_that_breaks_harms_nothing_else(bench: Bench) -> None:
    def breaks(_wanted: UnderTestSettings) -> Bright:
        raise ZeroDivisionError("oh")

    bench.add(20)
    bench.predictions.load = breaks
    assert "ZeroDivisionError" in bench.compare().problem
    bench.predictions.load = bench.load
    assert bench.compare(Settings(under_test=UnderTestSettings(source="timm", name="other"))).source is not None


def test_a_file_that_was_changed_is_another_model(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    file.write_bytes(b"a")
    wanted = UnderTestSettings(source="file", file=str(file))
    before = model_key(wanted)
    assert before == model_key(wanted)
    os.utime(file, ns=(1, 1))
    assert model_key(wanted) != before
    assert model_key(UnderTestSettings(source="file", file="/nowhere")) == "/nowhere"


NO_PATHS = ("~nobody-such/x.pt", "~models/net.pt", "a\0b.pt", f"/{'x' * 300}.pt")
"""Paths that name no file on the machines of the tests."""


@pytest.mark.parametrize("path", NO_PATHS)
def test_a_path_that_can_be_none_is_refused_and_nothing_is_saved(studio: Studio, path: str) -> None:
    run_id = new_run(studio)
    done = perform(studio, run_id, "under-test", source="file", model="resnet18", file=path)
    assert done.field == "file" and done.problem.startswith("There can be no checkpoint file at ")
    assert studio.states.of(run_id).settings.under_test.source == "profile"


@pytest.mark.parametrize("path", NO_PATHS)
def test_a_run_that_came_with_such_a_path_can_be_looked_at_and_says_what_is_wrong(studio: Studio, path: str) -> None:
    run_id = new_run(studio)
    held = studio.workspace.runs.get(run_id).settings
    chosen = UnderTestSettings(source="file", name="resnet18", file=path).model_dump(mode="json")
    studio.workspace.runs.set_settings(run_id, {**held, "under_test": chosen})
    studio.workspace.test_cases.append(run_id, None, made_case(Image.new("RGB", (16, 16))))
    assert "resnet18" in parts_of(studio, run_id)["pictures"]
    state = studio.states.of(run_id)
    until(lambda: not studio.predictions.compare(state.run, state.settings).waiting)
    said = studio.predictions.compare(state.run, state.settings).problem
    assert said.startswith("There can be no checkpoint file at ")
    assert perform(studio, run_id, "under-test", source="profile").problem == ""


@pytest.mark.slow
def test_an_onnx_file_that_does_not_say_its_mean_is_asked_in_explore(studio: Studio, tmp_path: Path) -> None:
    run_id, file = new_run(studio), onnx_file(tmp_path / "street.onnx").file
    studio.workspace.test_cases.append(run_id, None, made_case(Image.new("RGB", (16, 16))))
    said = {"file": file, "classes": ", ".join(CLASSES)}

    def asked(**more: str) -> ModelComparison:
        assert perform(studio, run_id, "under-test", source="onnx", **said, **more).problem == ""
        state = studio.states.of(run_id)
        until(lambda: not studio.predictions.compare(state.run, state.settings).waiting)
        return studio.predictions.compare(state.run, state.settings)

    assert "give the mean of the three channels" in asked().problem
    found = asked(mean=MEAN, std=STD, size="32")
    assert not found.problem and found.source is not None
    assert {one.label for one in found.source.top} == set(CLASSES)
    done = perform(studio, run_id, "under-test", source="onnx", **said, std="0, 0, 0")
    assert done.field == "std" and "each of three channels" in done.problem


@pytest.mark.parametrize(
    ("given", "field", "longest"),
    [
        ({"source": "timm", "model": "x" * 150}, "model", 120),
        ({"source": "file", "model": "resnet18", "file": "/x" * 600}, "file", 1000),
        ({"source": "file", "model": "resnet18", "file": "x.pt", "classes": "x, " * 10_000}, "classes", 20_000),
    ],
)
def test_what_is_too_long_for_a_model_is_named(studio: Studio, given: dict[str, str], field: str, longest: int) -> None:
    done = perform(studio, new_run(studio), "under-test", **given)
    assert (done.field, done.problem) == (field, f"“{field}” is too long: at most {longest} characters are allowed.")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["onnx", "transformers"])
def test_a_run_may_take_a_model_of_a_file_of_another_kind(studio: Studio, tmp_path: Path, source: str) -> None:
    written = onnx_that_says_all(tmp_path) if source == "onnx" else transformers_folder(tmp_path / "folder")
    run_id = new_run(studio)
    case = studio.workspace.test_cases.append(run_id, None, made_case(Image.new("RGB", (16, 16))))
    done = perform(studio, run_id, "under-test", source=source, file=written.file)
    assert done.problem == ""
    state = studio.states.of(run_id)
    until(lambda: not studio.predictions.compare(state.run, state.settings).waiting)
    found = studio.predictions.compare(state.run, state.settings)
    assert found.problem == "" and found.source is not None
    assert {guess.label for guess in found.results[case].top} == set(CLASSES)
    name = Path(written.file).name
    assert name in parts_of(studio, run_id)["pictures"]
    (known,) = studio.workspace.models_under_test.all()
    assert known.model.identity.weights.startswith("sha256:")


def test_a_model_behind_http_is_taken_where_the_profile_names_it(studio: Studio) -> None:
    run_id = new_run(studio)
    done = perform(studio, run_id, "under-test", source="http", model="http://127.0.0.1:9/other")
    assert "only if the profile names this address" in done.problem
    assert studio.states.of(run_id).settings.under_test.source == "profile"
    offered = studio.profile.model_under_test
    named = UnderTestSettings(source="http", address="http://127.0.0.1:9/own")
    own = offered.model_copy(update={"classification": named})
    studio.predictions._profile = studio.profile.model_copy(update={"model_under_test": own})
    assert perform(studio, run_id, "under-test", source="http", model=named.address).problem == ""
    assert studio.states.of(run_id).settings.under_test == named


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"source": "pickle"}, "source", "Pick where the model under test comes from"),
        ({"source": "timm"}, "model", "Give the name of the model under test"),
        ({"source": "onnx", "model": "x"}, "file", "Give the path of the file"),
        ({"source": "transformers"}, "model", "on the hub, owner/name, or its folder"),
        ({"source": "http"}, "model", "Give the address of the server"),
        ({"source": "http", "model": "ftp://there"}, "model", "begins with http:// or https://"),
    ],
)
def test_a_choice_that_says_too_little_is_refused_at_its_field(
    studio: Studio, given: dict[str, str], field: str, words: str
) -> None:
    done = perform(studio, new_run(studio), "under-test", **given)
    assert done.field == field and words in done.problem
