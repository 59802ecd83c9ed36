"""Models under test read the images of a selection: none twice, results are kept, and failures are reported."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from core.errors import Cancelled, UserError
from core.image_filter import ImageFilter
from core.model_identity import Assumptions, ModelIdentity, Preprocessing
from core.predictions import Doubt, Guess, PredictedBatch, Prediction
from core.settings import UnderTestSettings
from evaluation.focus import GradCam
from evaluation.models import ModelUnderTest
from pipeline.profiles.profile import load_profile
from services.evaluation.service import EvaluationService
from services.evaluation.stored_predictions import _PixelCounts
from services.evaluation.subjects import Images, read_cases
from services.evaluation.types import EvaluationQuestion, Subject
from services.runs import model_loading
from services.runs.predictions import Predictor, model_key
from services.studio import Studio
from storage.evaluation.models_under_test import PIXELS
from storage.evaluation.predictions import NewPrediction
from storage.workspace import Workspace
from tests.support.evaluation_cases import fill, model_of
from tests.support.model_cases import CLASSES, ModelServer, onnx_file, serving
from tests.support.set_cases import run_of

pytestmark = pytest.mark.slow

CLASSIFIER = model_of("classification")
SEGMENTER = model_of("segmentation")
ALL = Subject(filter=ImageFilter())


class Counted:
    """Loaded model that counts its images. `until` stops it after this number of batches of eight images."""

    def __init__(self, wanted: UnderTestSettings) -> None:
        self._model = ModelUnderTest(wanted)
        self._model.at_once = 8
        self.name, self.asked = self._model.name, 0
        self.after_batch: Callable[[], None] = lambda: None

    @property
    def identity(self) -> ModelIdentity:
        return self._model.identity

    def grad_cam(self) -> GradCam:
        return self._model.grad_cam()

    def input_picture(self, image: Image.Image) -> Image.Image:
        return self._model.input_picture(image)

    def predict_many(self, images: object) -> Iterator[PredictedBatch]:
        for batch in self._model.predict_many(images):  # type: ignore[arg-type]
            self.asked += len(batch.predictions)
            yield batch
            self.after_batch()


def counting(service: EvaluationService) -> list[Counted]:
    """Record the models that the service loads from now on."""
    loaded: list[Counted] = []

    def load(wanted: UnderTestSettings) -> Predictor:
        loaded.append(Counted(wanted))
        return loaded[-1]

    service.predicting.load = load
    return loaded


def read_all(service: EvaluationService, asked: EvaluationQuestion) -> object:
    done = service.work.wait(service.begin(asked).id, 60)
    assert done.state == "done", done.error
    return done.result


def test_all_images_are_read_once_and_kept_by_the_identity(workspace: Workspace, service: EvaluationService) -> None:
    fill(workspace, 3)
    loaded, asked = counting(service), EvaluationQuestion(ALL, CLASSIFIER)
    assert service.mapping(asked) is None, "nobody loaded it yet"
    read_all(service, asked)
    assert service.pending(asked).left == 0 and loaded[0].asked == service.pending(asked).images == 3 * 12
    read_all(service, asked)
    assert loaded[0].asked == 36, "nothing is computed twice"
    fill(workspace, 1, seed=8)
    assert service.pending(asked).left == 12
    read_all(service, asked)
    assert sum(one.asked for one in loaded) == 48
    stored = service.predicting.stored(CLASSIFIER)
    assert stored is not None and stored.identity == loaded[0].identity and stored.key == model_key(CLASSIFIER)
    # The stored probabilities are the model's, in float16.
    sha = service.cases(ALL).generated.shas[0]
    rows, _ = workspace.models_under_test.probabilities(stored)
    (batch,) = ModelUnderTest(CLASSIFIER).predict_many([workspace.images.load(sha)])
    assert batch.probabilities is not None
    kept = rows.numbers[rows.images.index(sha)]
    np.testing.assert_allclose(kept, batch.probabilities[0], atol=1e-3)
    assert rows.likeliest[rows.images.index(sha)] == batch.probabilities[0].argmax()
    (choice,) = service.models(ALL)
    assert choice.from_profile and choice.predicted == 48


def test_a_cancelled_work_keeps_what_it_read_and_goes_on(workspace: Workspace, service: EvaluationService) -> None:
    fill(workspace, 4)
    loaded, asked = counting(service), EvaluationQuestion(ALL, CLASSIFIER)
    cases, calls = service.cases(ALL), list[tuple[int, int]]()

    def stop_early(done: int, total: int) -> None:
        calls.append((done, total))
        if done >= 16:
            raise Cancelled

    with pytest.raises(Cancelled):
        service.predicting.read(CLASSIFIER, cases, stop_early)
    assert service.pending(asked).read == 16 and calls[-1] == (16, 48)
    read_all(service, asked)
    assert sum(one.asked for one in loaded) == 48 and service.pending(asked).left == 0


def test_cancel_by_command_stops_the_work(studio: Studio) -> None:
    fill(studio.workspace, 4)
    begun, let = threading.Event(), threading.Event()
    loaded = counting(studio.evaluations)
    load = studio.evaluations.predicting.load

    def held(wanted: UnderTestSettings) -> Predictor:
        load(wanted)

        def hold() -> None:
            begun.set()
            assert let.wait(60)

        loaded[-1].after_batch = hold
        return loaded[-1]

    studio.evaluations.predicting.load = held
    sent = studio.commands.send("begin-predictions", {})
    assert begun.wait(60)
    assert studio.commands.send("begin-predictions", {})["work"] == sent["work"], "one at a time"
    assert studio.commands.send("cancel-predictions", {"work": sent["work"]})["state"] == "stopping"
    let.set()
    assert studio.evaluations.work.wait(sent["work"], 60).state == "cancelled"
    assert studio.commands.send("show-predictions", {"work": sent["work"]})["state"] == "cancelled"
    (listed,) = studio.commands.send("list-models-under-test", {})["models"]
    assert 0 < listed["predicted"] < 48


def test_a_model_whose_loading_never_ends_is_cancelled_and_waited_for_again(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(studio.workspace, 2)
    begun, let = threading.Event(), threading.Event()
    loaded = counting(studio.evaluations)
    load = studio.evaluations.predicting.load

    def endless(wanted: UnderTestSettings) -> Predictor:
        begun.set()
        assert let.wait(300)
        return load(wanted)

    studio.evaluations.predicting.load = endless
    sent = studio.commands.send("begin-predictions", {})
    assert begun.wait(60)
    studio.commands.send("cancel-predictions", {"work": sent["work"]})
    assert studio.evaluations.work.wait(sent["work"], 60).state == "cancelled"
    with monkeypatch.context() as impatient:
        impatient.setattr(model_loading, "LOAD_SECONDS", 0.0)
        late = studio.evaluations.work.wait(studio.commands.send("begin-predictions", {})["work"], 60)
    assert late.state == "failed" and late.error == (
        f"{CLASSIFIER.title} was not loaded within 0 minutes: the drive of its file may not answer. Copy the file to "
        "another drive, or choose another model."
    )
    let.set()
    again = studio.evaluations.work.wait(studio.commands.send("begin-predictions", {})["work"], 60)
    assert again.state == "done" and len(loaded) == 1, "what was begun is used"


def test_a_broken_image_is_passed_over_and_told(workspace: Workspace, service: EvaluationService) -> None:
    fill(workspace, 2)
    asked, cases = EvaluationQuestion(ALL, CLASSIFIER), service.cases(ALL)
    broken = cases.generated.shas[3]
    path = workspace.images.path(broken)
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    read = read_all(service, asked)
    assert [sha for sha, _ in read.broken] == [broken] and "damaged" in read.note  # type: ignore[attr-defined]
    pending = service.pending(asked)
    assert (pending.read, pending.unreadable, pending.left) == (23, 1, 0)
    assert any("could not be read" in note for note in service.evaluate(asked).notes)
    path.write_bytes(good)
    read_all(service, asked)
    assert service.pending(asked).read == 24 and not service.pending(asked).unreadable


def test_a_model_that_fails_ends_the_work_with_its_sentence_and_keeps_what_it_did(
    workspace: Workspace, service: EvaluationService
) -> None:
    fill(workspace, 2)
    loaded, asked = counting(service), EvaluationQuestion(ALL, CLASSIFIER)
    load = service.predicting.load

    def failing(wanted: UnderTestSettings) -> Predictor:
        load(wanted)

        def fail() -> None:
            if loaded[-1].asked >= 16:
                raise UserError("The server answers nothing.")

        loaded[-1].after_batch = fail
        return loaded[-1]

    service.predicting.load = failing
    done = service.work.wait(service.begin(asked).id, 60)
    assert (done.state, done.error) == ("failed", "The server answers nothing.")
    assert service.pending(asked).read == 16


def test_changed_weights_are_another_model_with_predictions_of_its_own(
    workspace: Workspace, service: EvaluationService, tmp_path: Path
) -> None:
    run_of(workspace, 1, [10, 11], CLASSES[0])
    first = onnx_file(tmp_path / "net.onnx")
    read_all(service, EvaluationQuestion(ALL, first))
    before = service.predicting.stored(first)
    second = onnx_file(tmp_path / "net.onnx", seed=3)
    asked = EvaluationQuestion(ALL, second)
    assert service.pending(asked).read == 0
    read_all(service, asked)
    after = service.predicting.stored(second)
    assert before is not None and after is not None and before.identity.digest != after.identity.digest
    one, _ = workspace.models_under_test.probabilities(before)
    other, _ = workspace.models_under_test.probabilities(after)
    assert sorted(one.images) == sorted(other.images) and not np.allclose(one.numbers, other.numbers)


def test_another_identity_under_the_same_settings_gets_a_key_of_its_own(workspace: Workspace) -> None:
    models = workspace.models_under_test
    version = [ModelIdentity("net", f"v{number}", "classification", Preprocessing(), ("a",)) for number in (1, 2)]
    first, second = (models.record("http there", one, "there", {"source": "http"}) for one in version)
    assert first.key == "http there" and second.key == f"http there [{version[1].digest}]"
    found = models.asked_for("http there")
    assert found is not None and found.id == second.id
    assert models.record("http there", version[0], "there", {"source": "http"}).id == first.id
    found = models.asked_for("http there")
    assert found is not None and found.id == first.id, "the server went back"
    assert [one.model.id for one in models.all()] == [first.id, second.id]


def test_what_is_assumed_of_a_model_is_told_before_it_reads_and_also_of_one_that_an_older_version_loaded(
    workspace: Workspace, tmp_path: Path
) -> None:
    fill(workspace, 1)
    wanted = onnx_file(tmp_path / "net.onnx")
    identity = ModelUnderTest(wanted).identity
    older = replace(identity, preprocessing=replace(identity.preprocessing, assumed=Assumptions()))
    plain = wanted.model_dump(mode="json")
    first = workspace.models_under_test.record(model_key(wanted), older, wanted.title, plain)
    service = EvaluationService(load_profile("demo"), workspace, lambda wanted: None)
    asked = EvaluationQuestion(ALL, wanted)
    try:
        mapping = service.mapping(asked)
        assert mapping is not None and mapping.identity.assumptions == ()
        assert service.work.wait(service.look(asked).id, 60).state == "done"
        mapping, stored = service.mapping(asked), service.predicting.stored(wanted)
        assert mapping is not None and stored is not None and stored.id == first.id, "it is the same model"
        assert mapping.identity.assumptions == identity.assumptions and dict(identity.assumptions)["Class names"]
        assert service.pending(asked).read == 0
        with Image.open(io.BytesIO(service.input_picture(asked))) as shown:
            assert shown.size == (32, 32) and len(shown.getcolors(1024) or ()) > 1
    finally:
        service.close()


def test_pixels_of_masks_are_counted_once(workspace: Workspace, service: EvaluationService) -> None:
    fill(workspace, 2, road=True)
    asked = EvaluationQuestion(ALL, SEGMENTER)
    read_all(service, asked)
    stored = service.predicting.stored(SEGMENTER)
    assert stored is not None
    new, last = workspace.models_under_test.pixel_counts(stored.key)
    counts = {(image, mask): held for image, mask, held in new}
    cases = service.cases(ALL)
    assert len(counts) == 24 == len(cases.pictures)
    mask = workspace.images.load(cases.originals.masks[0][0])
    found = counts[cases.originals.shas[0], cases.originals.masks[0][0]]
    assert int(found["pixels"].sum()) == mask.size[0] * mask.size[1]
    read_all(service, asked)
    assert workspace.models_under_test.pixel_counts(stored.key, last) == ([], last)


def test_how_unsure_a_segmenter_is_is_kept_with_what_it_says(workspace: Workspace, service: EvaluationService) -> None:
    fill(workspace, 1, road=True)
    asked = EvaluationQuestion(ALL, SEGMENTER)
    read_all(service, asked)
    stored, cases = service.predicting.stored(SEGMENTER), service.cases(ALL)
    assert stored is not None
    images = cases.generated
    entropy, gini = service._answers.doubts(stored, cases, images)
    batches = ModelUnderTest(SEGMENTER).predict_many([workspace.images.load(sha) for sha in images.shas])
    said = [doubt for batch in batches for doubt in batch.doubts]
    np.testing.assert_allclose(entropy, [one.entropy for one in said], rtol=1e-3)
    np.testing.assert_allclose(gini, [one.gini for one in said], rtol=1e-3)
    # A later prediction of an image replaces the earlier one, and new images get predictions too.
    sha = images.shas[3]
    held = workspace.predictions.latest(sha, stored.key)
    assert held is not None
    workspace.predictions.extend([NewPrediction(sha, stored.key, held, Doubt(0.5, 0.25))])
    entropy, gini = service._answers.doubts(stored, cases, images)
    assert (entropy[3], gini[3]) == (0.5, 0.25) and entropy[2] != 0.5
    fill(workspace, 1, road=True, seed=8)
    read_all(service, asked)
    cases = service.cases(ALL)
    assert np.isfinite(service._answers.doubts(stored, cases, cases.generated)).all()
    assert np.isfinite(service._answers.doubts(stored, cases, cases.originals)).all()


def test_counts_are_those_of_an_image_with_its_mask_the_last_that_came(workspace: Workspace) -> None:
    fill(workspace, 2, road=True)
    cases, held = read_cases(workspace, ALL), _PixelCounts()
    first, images = cases.originals, cases.generated
    mask = [sha for sha, _ in images.masks]

    def pixels(number: int) -> NDArray[Any]:
        return np.array([(0, 0, number)], PIXELS)

    def found(of: Images) -> dict[str, float]:
        rows = held.rows_of(cases, of)
        return {of.shas[at]: float(held.pairs[[row]].sum()) for at, row in enumerate(rows.tolist()) if row >= 0}

    assert not found(images)
    held.add([(images.shas[0], mask[0], pixels(1)), (images.shas[1], "another mask", pixels(2))])
    assert found(images) == {images.shas[0]: 1}
    held.add([(images.shas[2], mask[2], pixels(3)), (images.shas[0], mask[0], pixels(4))])
    assert found(images) == {images.shas[0]: 4, images.shas[2]: 3} and not found(first)
    held.add([(first.shas[1], first.masks[1][0], pixels(5))])
    assert found(first) == {first.shas[1]: 5} and found(images) == {images.shas[0]: 4, images.shas[2]: 3}


def test_images_go_to_no_server_that_the_profile_does_not_name(studio: Studio) -> None:
    fill(studio.workspace, 1)
    card = {"kind": "classification", "classes": list(CLASSES)}
    with serving(ModelServer(lambda: (200, card, {}), lambda images: (500, {}, {}))) as server:
        with pytest.raises(UserError, match="only if the profile names this address"):
            wanted = UnderTestSettings(source="http", address=server.url)
            studio.evaluations.predicting.read(wanted, studio.evaluations.cases(ALL), lambda done, total: None)
        sent = studio.commands.send("begin-predictions", {"source": "http", "model": server.url})
        done = studio.evaluations.work.wait(sent["work"], 60)
        assert done.state == "failed" and "only if the profile names" in done.error
        assert not server.asked


def test_what_a_prediction_costs_does_not_grow_with_those_that_are_there(workspace: Workspace) -> None:
    fill(workspace, 12, controls=False)
    shas = workspace.case_columns.table().images.values
    assert len(shas) > 60

    def steps(some: list[str]) -> float:
        """Return the number of SQLite steps for each of these predictions."""
        counted = 0

        def step() -> int:
            nonlocal counted
            counted += 1
            return 0

        new = [NewPrediction(sha, "m", Prediction("classification", "m", (Guess("cat", 0.5),))) for sha in some]

        workspace._database.write(lambda db: db.conn.set_progress_handler(step, 1))
        workspace.predictions.extend(new)
        workspace._database.write(lambda db: db.conn.set_progress_handler(None, 1))
        return counted / len(some)

    first = steps(shas[:10])
    steps(shas[10:50])
    assert steps(shas[50:60]) < 1.1 * first
