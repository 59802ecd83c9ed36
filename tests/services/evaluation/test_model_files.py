"""A user's own model, uploaded or trained here, is stored in the workspace and chosen like any other."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from core.errors import UserError
from core.settings import Settings, UnderTestSettings
from core.types import Task
from evaluation.models import ModelUnderTest
from evaluation.retraining.arm_statistics import GENERATED
from pipeline.profiles.profile import load_profile
from services.evaluation.model_files import keep_upload
from services.evaluation.retraining.jobs import Retrainings
from services.evaluation.retraining.training import kept_under
from services.evaluation.retraining.weights import remove_old
from services.evaluation.service import EvaluationService, model_choice_key, title_of
from services.evaluation.types import EvaluationQuestion
from services.jobs import JobQueue
from services.runs.predictions import PredictionService
from storage.workspace import Workspace
from tests.support.evaluation_cases import BIRDS, CLASSIFIER, OBJECTS, scenes_to_learn_from
from tests.support.made_once import MadeOnce
from tests.support.model_cases import CLASSES, onnx_file, transformers_folder
from tests.support.retrain_cases import QUICK, quiet

pytestmark = pytest.mark.slow


@pytest.fixture
def filled(tmp_path: Path, made_once: MadeOnce) -> Iterator[Workspace]:
    with Workspace(scenes_to_learn_from(made_once, tmp_path)) as opened:
        yield opened


def loaded(said: dict[str, str], **more: str) -> ModelUnderTest:
    return ModelUnderTest(UnderTestSettings.model_validate({**said, **more}))


def test_what_is_uploaded_is_a_model(workspace: Workspace, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    shutil.copyfile(CLASSIFIER.file, sent)
    said = keep_upload(workspace, sent, "C:\\models\\My best (2).safetensors")
    assert said["source"] == "file" and Path(said["file"]).name == "My-best-2-.safetensors"
    assert Path(said["file"]).is_relative_to(workspace.model_files)
    assert loaded(said).identity == ModelUnderTest(CLASSIFIER).identity
    assert keep_upload(workspace, sent, "My best (2).safetensors") == said, "the same file is kept once"

    own = onnx_file(tmp_path / "own.onnx")
    said = keep_upload(workspace, Path(own.file), "../../own.onnx")
    assert said["source"] == "onnx" and Path(said["file"]).is_relative_to(workspace.model_files)
    assert loaded(said, classes=own.classes, mean=own.mean, std=own.std).identity.classes == CLASSES

    folder = transformers_folder(tmp_path / "vit")
    (tmp_path / "vit" / "evil.py").write_text("raise SystemExit")
    packed = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "vit")
    said = keep_upload(workspace, Path(packed), "vit.zip")
    assert said["source"] == "transformers" and not list(Path(said["file"]).glob("*.py"))
    assert loaded(said).identity.digest == ModelUnderTest(folder).identity.digest
    assert not [one for one in workspace.model_files.iterdir() if "-" in one.name], "nothing half-done is left"


def test_what_can_be_no_model_is_refused_in_a_sentence(workspace: Workspace, tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sent.write_bytes(b"x")
    for name in ("model.pkl", "notes.txt", ".onnx", ""):
        with pytest.raises(UserError, match="is no model that can be read"):
            keep_upload(workspace, sent, name)
    with pytest.raises(UserError, match="The zip cannot be read"):
        keep_upload(workspace, sent, "a.zip")
    for names, sentence in (((), "no config.json"), (("a/config.json", "b/config.json"), "2 files config.json")):
        with zipfile.ZipFile(sent, "w") as archive:
            for name in names:
                archive.writestr(name, "{}")
        with pytest.raises(UserError, match=sentence):
            keep_upload(workspace, sent, "a.zip")
    left = [one for folder in workspace.model_files.iterdir() for one in folder.iterdir()]
    assert not left, "and nothing of it is kept"


def test_what_was_trained_here_is_the_next_model(filled: Workspace) -> None:
    from tests.support.evaluation_cases import service_of

    service = service_of(filled)
    retrainings = Retrainings(filled, service)
    assert retrainings.trained() == ()
    found = retrainings.retrain(QUICK, quiet)
    trained = retrainings.trained()
    assert [one.weights.arm for one in trained] == [one.name for one in found.arms]
    said = retrainings.as_model(trained[1].number, GENERATED)
    model = UnderTestSettings.model_validate(said)
    assert title_of(model) == "classifier-generated-all.safetensors", "not what all trainings are called"
    retrainings.retrain(replace(QUICK, rate=0.02), quiet)
    remove_old(filled)
    assert ModelUnderTest(model).identity.classes == ModelUnderTest(CLASSIFIER).identity.classes
    service.predicting.identify(model)
    assert model in [one.settings for one in service.models(OBJECTS)]
    for number, arm in ((999, GENERATED), (trained[1].number, "no such arm")):
        with pytest.raises(UserError, match=r"There is no such result|no longer exist"):
            retrainings.as_model(number, arm)
    retrainings.close()
    service.close()


def test_what_was_trained_of_a_model_of_transformers_has_its_folder(filled: Workspace, tmp_path: Path) -> None:
    from tests.support.evaluation_cases import service_of

    service = service_of(filled)
    retrainings = Retrainings(filled, service)
    vit = transformers_folder(tmp_path / "vit")
    asked = replace(QUICK, asked=EvaluationQuestion(OBJECTS, vit, "label,model class\n"))
    labels = service.cases(OBJECTS).labels
    mapping = "label,model class\n" + "".join(f"{label},{CLASSES[at % 3]}\n" for at, label in enumerate(labels))
    retrainings.retrain(replace(asked, asked=replace(asked.asked, mapping=mapping)), quiet)
    (one,) = [one for one in retrainings.trained() if one.weights.arm == GENERATED]
    said = retrainings.as_model(one.number, GENERATED)
    assert said["source"] == "transformers"
    after, before = loaded(said).identity, ModelUnderTest(vit).identity
    assert after.classes == before.classes and after.weights != before.weights
    retrainings.close()
    service.close()


def test_models_are_chosen_before_there_is_an_image(workspace: Workspace, service: EvaluationService) -> None:
    (first, second) = service.models()
    assert (first.kind, second.kind) == ("classification", "segmentation") and first.from_profile
    service.look(EvaluationQuestion(BIRDS.subject, CLASSIFIER))
    own = UnderTestSettings(source="file", file=str(Path(CLASSIFIER.file).absolute()))
    service.predicting.identify(own)
    assert own in [one.settings for one in service.models()]


def test_a_model_is_offered_once_whatever_settings_loaded_it(filled: Workspace, tmp_path: Path) -> None:
    from tests.support.evaluation_cases import service_of

    service = service_of(filled)
    before = service.models()
    service.predicting.identify(CLASSIFIER)
    assert [one.title for one in service.models()] == [one.title for one in before], "the profile's own, once"
    copied = shutil.copyfile(CLASSIFIER.file, tmp_path / "copied.safetensors")
    own = CLASSIFIER.model_copy(update={"file": str(copied)})
    service.predicting.identify(own)
    assert [one.title for one in service.models(OBJECTS)] == [before[0].title], "the same weights in another file"
    service.close()


def test_a_model_that_was_chosen_first_is_known_once_there_are_images(filled: Workspace, tmp_path: Path) -> None:
    from tests.support.evaluation_cases import service_of

    service = service_of(filled)
    copied = shutil.copyfile(CLASSIFIER.file, tmp_path / "copied.safetensors")
    own = CLASSIFIER.model_copy(update={"file": str(copied)})
    service.predicting.identify(CLASSIFIER)
    service.predicting.identify(own)
    for key in (service.models()[0].key, model_choice_key(own)):
        first = service.choice(key)
        assert service.choice(key, OBJECTS).settings == first.settings
    with pytest.raises(UserError, match="no such model"):
        service.choice("file-gone", OBJECTS)
    service.close()


def test_a_workspace_that_is_moved_still_finds_the_models_that_lie_in_it(tmp_path: Path) -> None:
    from tests.support.evaluation_cases import service_of

    before = tmp_path / "before"
    own = onnx_file(tmp_path / "own.onnx")
    with Workspace(before) as workspace:
        wanted = own.model_copy(update=keep_upload(workspace, Path(own.file), "own.onnx"))
        service = service_of(workspace)
        service.predicting.identify(wanted)
        service.close()
    moved = before.rename(tmp_path / "moved")
    with Workspace(moved) as workspace:
        service = service_of(workspace)
        found = service.choice(model_choice_key(wanted)).settings
        assert Path(found.file) == moved / Path(wanted.file).relative_to(before)
        assert service.predicting.stored(found), "what it has read is known before it is loaded again"
        assert service.predicting.identify(found).identity.classes == CLASSES
        assert kept_under(EvaluationQuestion(OBJECTS, found)) == kept_under(EvaluationQuestion(OBJECTS, wanted))
        picture, jobs = Image.new("RGB", (8, 8)), JobQueue()
        run = workspace.runs.get(workspace.runs.create(picture, Task("classification", "bird"), "demo", "A bird", {}))
        predictions = PredictionService(load_profile("demo"), workspace, jobs)
        assert predictions.model_of(run, Settings(under_test=wanted)) == found, "and so it is in Explore"
        jobs.close()
        shutil.rmtree(workspace.model_files)
        assert service.predicting.stored(service.choice(model_choice_key(wanted)).settings), "without its file too"
        service.close()
