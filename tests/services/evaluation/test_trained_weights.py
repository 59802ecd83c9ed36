"""Trained weights can be downloaded as a model under test, are listed with their size, and are removed once old. A
running training, and the parts and results of the latest retraining, are never removed.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cli.evaluation import main
from core.errors import Cancelled, UserError
from core.evaluation_results import BEFORE, ON_GENERATED, ON_ORIGINAL, ORIGINAL
from core.image_filter import ImageFilter
from core.settings import UnderTestSettings
from evaluation.adapters.architectures import find_network, header_of
from evaluation.models import ModelUnderTest
from evaluation.retraining.arm_statistics import GENERATED
from evaluation.retraining.stored_training import kept_state, learnt, remove_training, said_before
from services.evaluation.retraining.jobs import Retrainings
from services.evaluation.retraining.weights import MARK, disk_of, remove_old, trainings_of
from services.evaluation.service import EvaluationService
from services.evaluation.types import Subject
from storage.workspace import Workspace
from tests.evaluation.test_trainings import checkpoint, training
from tests.services.evaluation.test_results import BIRDS, CLASSIFIER, ROADS
from tests.support.evaluation_cases import scenes_to_learn_from
from tests.support.made_once import MadeOnce
from tests.support.model_cases import CLASSES, transformers_folder
from tests.support.retrain_cases import QUICK, planned, quiet

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path, made_once: MadeOnce) -> Iterator[Workspace]:
    with Workspace(scenes_to_learn_from(made_once, tmp_path)) as opened:
        yield opened


def test_the_weights_of_the_best_training_are_a_model_under_test(
    workspace: Workspace, service: EvaluationService, retrainings: Retrainings, tmp_path: Path
) -> None:
    retrainings.retrain(replace(QUICK, seeds=2), quiet)
    (kept,) = retrainings.kept(BIRDS)
    offered = retrainings.weights(kept)
    assert [one.arm for one in offered] == [ORIGINAL, GENERATED]
    of_arm = [one for one in kept.found.trainings if one.arm == GENERATED]
    states = [kept_state(workspace.trainings / one.folder) for one in of_arm]
    scores = [state.score for state in states if state is not None and state.done]
    assert len(scores) == 2 and [one.score for one in of_arm] == scores
    best = offered[1]
    assert best.score == max(scores) and best.seed == scores.index(max(scores))
    # The downloaded model predicts as in the training, on each measured image.
    name, kept_file = retrainings.weights_file(BIRDS, kept.number, GENERATED)
    assert name == "classifier-generated-all.safetensors"
    file = shutil.copy(kept_file, tmp_path / name)
    plan = planned(workspace, service, QUICK)[1]
    model = ModelUnderTest(UnderTestSettings(source="file", file=str(file)))
    before = ModelUnderTest(CLASSIFIER)
    assert model.identity.classes == before.identity.classes and model.identity.name == before.identity.name
    assert model.identity.preprocessing == before.identity.preprocessing
    says = [model.predict(Image.open(one.image)).top[0].label for one in plan.sets[ON_GENERATED]]
    targets = [one.target for one in plan.sets[ON_GENERATED]]
    right = [model.identity.classes.index(said) == true for said, true in zip(says, targets, strict=True)]
    (kept_said,) = (workspace.trainings / of_arm[best.seed].folder).glob("said-*.npz")
    with np.load(kept_said) as held:
        assert right == held[f"{list(plan.sets).index(ON_GENERATED)}"].astype(bool).tolist()
    # Weights whose file is gone are not offered.
    best.file.unlink()
    assert [one.arm for one in retrainings.weights(kept)] == [ORIGINAL]
    with pytest.raises(UserError, match="The weights of this arm no longer exist"):
        retrainings.weights_file(BIRDS, kept.number, GENERATED)
    with pytest.raises(UserError, match="There is no such result"):
        retrainings.weights_file(BIRDS, kept.number + 1, ORIGINAL)


def test_how_long_it_takes_is_told_by_the_speed_that_was_measured(
    retrainings: Retrainings,
) -> None:
    asked = replace(QUICK, updates=4, seeds=2)
    unknown = retrainings.expected(asked)
    assert unknown.seconds is None and "not known yet: this model was never trained here" in unknown.words

    def stop(what: str, done: int, total: int) -> None:
        if what.startswith("training") and done == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        retrainings.retrain(asked, stop)
    halfway = retrainings.expected(asked)
    assert halfway.at_least and halfway.seconds is not None and halfway.seconds > 0
    assert halfway.words.startswith("At least ") and "4 trainings of 4 updates with 4 images each" in halfway.words

    begun = time.monotonic()
    found = retrainings.retrain(asked, quiet)
    took = time.monotonic() - begun
    assert found.pace is not None and found.pace.other is not None
    known = retrainings.expected(asked)
    assert not known.at_least and known.seconds is not None and known.words.startswith("About ")
    # Two of four trainings take at least the median time, so a pause of the machine can only lengthen `took`.
    assert 0 < known.seconds < 3 * took and found.pace.other > 0, "the same once more takes as long"
    more = retrainings.expected(replace(asked, seeds=4, updates=40))
    assert more.trainings == 8 and more.seconds == pytest.approx(8 * (40 * 4 * found.pace.an_image + found.pace.other))
    # The speed applies to other images too, but to no other model before that is trained.
    some = replace(BIRDS, subject=Subject(filter=ImageFilter(facets={"kind": ("classification",), "class": ("bird",)})))
    assert retrainings.expected(replace(asked, asked=some)).seconds is not None
    assert retrainings.expected(replace(QUICK, asked=ROADS)).seconds is None
    assert retrainings.retrain(asked, quiet).pace == found.pace, "nothing was trained, and the same is told"


def test_a_segmenter_that_was_taken_away_is_the_next_model_as_it_is(retrainings: Retrainings) -> None:
    asked = replace(QUICK, asked=ROADS, split_seed=2)
    found = retrainings.retrain(asked, quiet)
    _, file = retrainings.weights_file(ROADS, retrainings.kept(ROADS)[0].number, GENERATED)
    model = UnderTestSettings(source="file", file=str(file))
    again = retrainings.retrain(replace(asked, asked=replace(ROADS, model=model)), quiet)
    for name in (ON_ORIGINAL, ON_GENERATED):
        after, before = found.row(GENERATED, name), again.row(BEFORE, name)
        assert after is not None and before is not None
        assert before.accuracy.value == pytest.approx(after.accuracy.value)


@pytest.mark.parametrize("source", ["torchvision", "timm"])
def test_a_model_of_a_library_prepares_images_as_it_was_trained(source: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    name = "resnet18" if source == "torchvision" else "mobilenetv3_small_050"
    plain = checkpoint(tmp_path, name)
    file = tmp_path / "taken.safetensors"
    save_file(load_file(plain.file), file, header_of(find_network(plain).identity, source))
    network = find_network(UnderTestSettings(source="file", file=str(file)))
    assert network.identity.classes == CLASSES and network.identity.name == name
    if source == "torchvision":
        from torchvision import models

        assert network.identity.preprocessing.more == repr(models.ResNet18_Weights.DEFAULT.transforms())
    else:
        assert "crop_pct" in network.identity.preprocessing.more
    assert network.identity.preprocessing.size == (224, 224)


def test_the_file_of_a_model_of_transformers_fits_into_its_folder(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(5)
    model = transformers_folder(tmp_path / "vit")
    one = training(tmp_path, model)
    said = learnt(one)
    shutil.copytree(tmp_path / "vit", tmp_path / "mine")
    shutil.copy(one.folder / "best.safetensors", tmp_path / "mine" / "model.safetensors")
    again = UnderTestSettings(source="transformers", file=str(tmp_path / "mine"))
    assert find_network(again).identity.weights != find_network(model).identity.weights
    assert (said_before(again, one.sets)["all"] == said["all"]).all()


def test_weights_that_are_damaged_are_told(workspace: Workspace, retrainings: Retrainings) -> None:
    retrainings.retrain(QUICK, quiet)
    (kept,) = retrainings.kept(BIRDS)
    file = retrainings.weights(kept)[1].file
    for data in (b"", b"\xff" * 20, b"\x02" + b"\0" * 7 + b"[]rest", b"\x03" + b"\0" * 7 + b"{x}"):
        file.write_bytes(data)
        with pytest.raises(UserError, match="missing or damaged"):
            retrainings.weights_file(BIRDS, kept.number, GENERATED)


def aged(folder: Path) -> None:
    """Make the folder look as if it was last used an hour ago."""
    before = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
    os.utime(folder / MARK, (before, before))


def stopped(retrainings: Retrainings, rate: float) -> None:
    """Stop a retraining within its second arm."""

    def on_step(what: str, done: int, total: int) -> None:
        if what.startswith("training") and done == 3:
            raise Cancelled

    with pytest.raises(Cancelled):
        retrainings.retrain(replace(QUICK, rate=rate), on_step)


def folders(workspace: Workspace) -> set[str]:
    return {one.parent.name for one in workspace.trainings.glob(f"*/{MARK}")}


def test_old_trainings_are_listed_and_removed_and_what_is_needed_stays(
    workspace: Workspace, retrainings: Retrainings, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["trainings", "--workspace", str(workspace.folder)]
    assert main(command) == 0 and "There are no trainings in this workspace." in capsys.readouterr().out
    retrainings.retrain(replace(QUICK, seeds=2), quiet)  # two arms by two seeds
    first = folders(workspace)
    assert len(first) == 4 and not remove_old(workspace)  # all belong to the latest retraining
    stopped(retrainings, 0.02)
    halfway = folders(workspace) - first
    assert len(halfway) == 2 and not remove_old(workspace)  # used after the latest retraining
    latest = retrainings.retrain(QUICK, quiet)
    own = {one.folder for one in latest.trainings}
    assert own < first
    stopped(retrainings, 0.03)
    newer = folders(workspace) - first - halfway
    listed = {one.folder: one for one in trainings_of(workspace)}
    assert listed.keys() == first | halfway | newer
    assert {name for name, one in listed.items() if one.latest} == own
    assert {name for name, one in listed.items() if one.retraining} == first
    assert {one.model for one in listed.values()} == {"classifier.safetensors"}
    assert {one.title for one in listed.values()} == {"Images of a filter (kind: classification)"}
    assert sorted(one.done for name, one in listed.items() if name in halfway) == [False, True]
    assert {name for name, one in listed.items() if not one.why_kept} == (first | halfway) - own
    busy = sorted(first - own)[0]
    with open(workspace.trainings / busy / "lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="Another process is running this training"):
            remove_training(workspace.trainings / busy)
        before = disk_of(workspace.trainings)
        assert main([*command, "--remove-old", "--json"]) == 0
        told: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert {one["folder"] for one in told["removed"]} == (first | halfway) - own - {busy}
        assert folders(workspace) == own | newer | {busy}
    assert disk_of(workspace.trainings) == before - sum(one["size"] for one in told["removed"])
    assert main([*command, "--remove-old"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("1 training removed") and folders(workspace) == own | newer
    assert said.count("keeps it: of the latest retraining") == 2 and "keeps it: used since" in said
    assert "| classifier.safetensors | Images of a filter (kind: classification) |" in said
    assert not list(workspace.trainings.glob(".removed*"))
    assert [one.found.seeds for one in retrainings.kept(BIRDS)] == [1, 2]  # their results are kept
    assert len(retrainings.weights(retrainings.kept(BIRDS)[0])) == 2
