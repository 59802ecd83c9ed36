"""Training a model under test further with images of a workspace: sources are split first, arms differ only in their
images, a stopped training resumes, nothing is trained twice, and failures are explained.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.evaluation import main
from core.errors import Cancelled, UserError
from core.evaluation_results import AUGMENTED, BEFORE, CONTROL, ON_GENERATED, ON_ORIGINAL, ON_SHIFT, ON_UNSEEN, ORIGINAL
from core.figures import Figure, Floats
from core.image_filter import Between, ImageFilter
from core.settings import UnderTestSettings
from core.types import from_plain, to_plain
from evaluation.models import ModelUnderTest
from evaluation.retraining.arm_statistics import ARMS, BY_VOTES, GENERATED, RANKED
from evaluation.retraining.stored_training import Training, learnt
from services.evaluation.markdown import result_markdown
from services.evaluation.retraining import jobs as retrainings_module
from services.evaluation.retraining.jobs import Retrainings, parted_of
from services.evaluation.retraining.results import GainOverControl, RetrainingResult, result_facts
from services.evaluation.retraining.training import RetrainingQuestion, kept_under
from services.evaluation.service import EvaluationService
from services.evaluation.subjects import Cases
from services.evaluation.types import EvaluationQuestion, Subject
from storage.workspace import Workspace
from tests.services.evaluation.test_cases import set_of
from tests.services.evaluation.test_results import judged
from tests.support import retrain_cases
from tests.support.evaluation_cases import (
    BIRDS,
    CLASSIFIER,
    FEW,
    OBJECTS,
    ROADS,
    SEGMENTER,
    STREETS,
    fill,
    read_all,
    scenes_to_learn_from,
    service_of,
)
from tests.support.made_once import MadeOnce
from tests.support.model_cases import onnx_file
from tests.support.retrain_cases import QUICK, planned, quiet
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

evaluations, retrainings = retrain_cases.evaluations, retrain_cases.retrainings


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Iterator[Workspace]:
    """Workspace with classified sources in different weather and times of day, and with streets. Tests train in it,
    and save no image.
    """
    with Workspace(scenes_to_learn_from(made_once, tmp_path_factory.mktemp("retrain"))) as workspace:
        yield workspace


def test_sides_are_disjoint_and_what_is_made_of_a_source_is_on_its_side(
    filled: Workspace, evaluations: EvaluationService
) -> None:
    for seed in range(3):
        asked = RetrainingQuestion(BIRDS, split_seed=seed, unseen="weather")
        try:
            cases, found, on_two = planned(filled, evaluations, asked)
        except UserError as error:
            assert "is left" in str(error)
            continue
        assert on_two == 0
        learnt_from = {one.image.stem for arm in found.arms for one in arm.examples}
        tuned = {one.image.stem for one in found.tune}
        measured = {one.image.stem for examples in found.sets.values() for one in examples}
        assert learnt_from and tuned and measured
        assert not learnt_from & tuned and not learnt_from & measured and not tuned & measured
        source = {
            sha: cases.originals.shas[number]
            for images in cases.all_images
            for sha, number in zip(images.shas, images.source.tolist(), strict=True)
        }
        sides = [{source[sha] for sha in some} for some in (learnt_from, tuned, measured)]
        assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]
        assert sum(found.sources.values()) == 14


def test_arms_hold_what_they_are_named_after(filled: Workspace, evaluations: EvaluationService) -> None:
    cases, found, _ = planned(filled, evaluations, RetrainingQuestion(BIRDS, unseen="weather", augmentation="augmix"))
    arms = {one.name: one for one in found.arms}
    originals = set(arms[ORIGINAL].examples)
    assert found.originals == len(originals) == found.sources["train"]
    assert set(arms[AUGMENTED].examples) == originals and arms[AUGMENTED].augmentation == "augmix"
    assert {one.augmentation for name, one in arms.items() if name != AUGMENTED} == {""}
    assert len(arms[CONTROL].examples) == 2 * len(originals)
    types = {sha: cases.table.edits.types.of(cases.table.edits.row == row) for sha, row in _rows(cases)}
    made = [one.image.stem for one in arms[GENERATED].examples if one not in originals]
    assert made and {kind for sha in made for kind in types[sha]} == {"time of day"}
    half = [one.image.stem for one in arms[RANKED].examples if one not in originals]
    assert set(half) < set(made) and len(half) == (len(made) + 1) // 2
    assert {kind for one in found.sets[ON_UNSEEN] for kind in types[one.image.stem]} == {"weather"}
    assert {kind for one in found.sets[ON_GENERATED] for kind in types[one.image.stem]} == {"time of day"}
    assert [(one.name, one.why.startswith("Nobody has judged")) for one in found.left_out] == [(BY_VOTES, True)]


def _rows(cases: Cases) -> list[tuple[str, int]]:
    return list(zip(cases.generated.shas, cases.generated.row.tolist(), strict=True))


def test_what_retraining_brings_is_measured_kept_and_not_trained_twice(
    filled: Workspace, retrainings: Retrainings
) -> None:
    steps: list[tuple[str, int, int]] = []
    asked = replace(QUICK, arms=("augmentation", "reconstructions", "generated", "valid", "ranked"))
    found = retrainings.retrain(asked, lambda *told: steps.append(told))
    assert [one.name for one in found.arms] == [one for one in ARMS if one != BY_VOTES]
    assert [one.name for one in found.left_out] == [BY_VOTES]
    assert found.recipe.updates == 2 and found.seeds == 1
    assert {one.name for one in found.sets} == {ON_ORIGINAL, ON_GENERATED, ON_UNSEEN}
    # Five arms with one seed, two updates each.
    assert steps[-1] == ("training “+ generated, best ranked half”, seed 1 of 1", 10, 10)
    for row in found.rows:
        assert row.accuracy.value is not None and 0 <= row.accuracy.value <= 1
        assert row.arm in (ORIGINAL, BEFORE) or row.gain.value is not None
    assert {(one.arm, one.control) for one in found.beside} == {
        (arm, control) for arm in (GENERATED, RANKED) for control in (AUGMENTED, CONTROL)
    }
    whole = {file: file.stat().st_mtime_ns for file in filled.trainings.rglob("best.safetensors")}
    assert len(whole) == 5 and not list(filled.trainings.rglob("state"))
    more = retrainings.retrain(replace(asked, seeds=2, arms=("generated",)), quiet)
    again = {file: file.stat().st_mtime_ns for file in filled.trainings.rglob("best.safetensors")}
    assert {file: again[file] for file in whole} == whole and len(again) == len(whole) + 2
    assert retrainings.retrain(asked, quiet) == found
    held = retrainings.kept(BIRDS)
    questions = {one.asked for one in filled.retrainings.kept(kept_under(BIRDS))}
    assert questions == {asked.digest, replace(asked, seeds=2, arms=("generated",)).digest}
    assert [one.found for one in held] == [more, found] and not any(one.note for one in held)
    assert from_plain(RetrainingResult, to_plain(found)) == found
    text = result_markdown(found)
    assert "## On generated, unseen edit type" in text and "nan" not in text.lower()
    assert f"| {BEFORE} |" in text and f"- {BY_VOTES}: Nobody has judged" in text
    assert result_facts(found)["answer"] == found.answer and found.answer in text


@pytest.mark.parametrize(
    ("gain", "sentence"),
    [
        ((-0.077, -0.12, -0.03), "does worse than “+ augmentation”: -7.7 points (-12.0 to -3.0)"),
        ((0.05, 0.01, 0.09), "does better than “+ augmentation”: +5.0 points (+1.0 to +9.0)"),
        ((-0.02, -0.06, 0.02), "does neither better nor worse than “+ augmentation” for certain: -2.0 points (-6.0 to"),
    ],
)
def test_what_does_better_on_unseen_edits_and_a_shift_is_said_whatever_it_is(
    retrainings: Retrainings, gain: tuple[float, float, float], sentence: str
) -> None:
    found = retrainings.retrain(replace(QUICK, arms=("augmentation", "generated")), quiet)
    told = {(one.arm, one.control, one.set) for one in found.beside}
    assert told == {(GENERATED, AUGMENTED, name) for name in (ON_GENERATED, ON_UNSEEN)}
    assert "too few trainings to say: it takes 3 an arm" in found.answer, "with one training nothing is certain"
    beside = tuple(GainOverControl(GENERATED, AUGMENTED, Figure(*gain), name) for name in (ON_UNSEEN, ON_SHIFT))
    shift = replace(next(row for row in found.rows if (row.arm, row.set) == (GENERATED, ON_UNSEEN)), set=ON_SHIFT)
    answer = replace(found, beside=beside, rows=(*found.rows, shift)).answer
    assert f"On edits of the type “{found.unseen}”, which no arm learnt from, “{GENERATED}” {sentence}" in answer
    assert f"On the natural shift “{GENERATED}” {sentence}" in answer


def test_the_model_as_it_is_says_here_what_it_says_elsewhere(
    filled: Workspace, evaluations: EvaluationService, retrainings: Retrainings
) -> None:
    found = retrainings.retrain(QUICK, quiet)
    _, planned_here, _ = planned(filled, evaluations, QUICK)
    model, names = ModelUnderTest(CLASSIFIER), ModelUnderTest(CLASSIFIER).identity.classes
    for name, examples in planned_here.sets.items():
        says = [names.index(model.predict(Image.open(one.image)).top[0].label) for one in examples]
        right = np.mean([said == one.target for said, one in zip(says, examples, strict=True)])
        row = found.row(BEFORE, name)
        assert row is not None and row.accuracy.value == pytest.approx(right)


def test_what_is_kept_is_found_by_later_versions_that_ask_more() -> None:
    @dataclass(frozen=True)
    class AskedLater(RetrainingQuestion):
        more: int = 0

    assert kept_under(BIRDS) != kept_under(ROADS)
    assert (
        AskedLater(BIRDS, seeds=2).digest
        == RetrainingQuestion(BIRDS, seeds=2).digest
        != RetrainingQuestion(BIRDS).digest
    )
    between = ImageFilter(between=(Between("sharpness", 0.1),))
    assert kept_under(replace(BIRDS, subject=Subject(filter=between))) != kept_under(BIRDS)


def test_what_was_stopped_goes_on_to_the_same_weights(
    tmp_path: Path, evaluations: EvaluationService, filled: Workspace
) -> None:
    import torch
    from safetensors.torch import load_file

    _, found, _ = planned(filled, evaluations, QUICK)
    recipe = replace(QUICK.recipe(found.originals, "classification"), updates=6, looks=3)

    def training(folder: str) -> Training:
        return Training(CLASSIFIER, found.arms[1], 3, recipe, found.tune, found.sets, tmp_path / folder)

    updates: list[int] = []

    def stopped(update: int, loss: float) -> None:
        updates.append(update)
        if len(updates) == 5:
            raise Cancelled

    whole = learnt(training("whole"))
    with pytest.raises(Cancelled):
        learnt(training("stopped"), stopped)
    again = learnt(training("stopped"), stopped)
    assert updates == [1, 2, 3, 4, 5, 5, 6]  # training continues from the last validation
    assert all((whole[name] == again[name]).all() for name in found.sets)
    one, other = (load_file(tmp_path / folder / "best.safetensors") for folder in ("whole", "stopped"))
    assert one.keys() == other.keys() and all(torch.equal(held, other[name]) for name, held in one.items())


def test_begun_cancelled_and_begun_again(filled: Workspace, retrainings: Retrainings) -> None:
    asked = replace(QUICK, split_seed=3, updates=40)
    view = retrainings.begin(asked)
    assert retrainings.begin(asked).id == view.id
    retrainings.work.cancel(view.id)
    assert retrainings.work.wait(view.id, 60).state == "cancelled"
    assert all(one.asked != asked.digest for one in filled.retrainings.kept(kept_under(BIRDS)))
    done = retrainings.work.wait(retrainings.begin(replace(asked, updates=2)).id, 60)
    assert done.state == "done" and done.result in [one.found for one in retrainings.kept(BIRDS)]


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (replace(QUICK, asked=EvaluationQuestion(STREETS, CLASSIFIER)), "choose a segmenter"),
        (replace(QUICK, asked=EvaluationQuestion(OBJECTS, SEGMENTER)), "choose a classifier"),
        (
            replace(
                QUICK, asked=EvaluationQuestion(OBJECTS, UnderTestSettings(source="http", address="http://127.0.0.1:9"))
            ),
            "behind HTTP cannot be trained further",
        ),
        (replace(QUICK, batch=1), "at least 2 images"),
        (replace(QUICK, unseen="fashion"), "type “fashion”. Choose: time of day, weather"),
        (replace(QUICK, asked=EvaluationQuestion(Subject(filter=ImageFilter(text="unicorn")), CLASSIFIER)), "no test"),
    ],
)
def test_what_cannot_be_trained_is_said(retrainings: Retrainings, asked: RetrainingQuestion, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        retrainings.retrain(asked, quiet)


def test_an_onnx_file_one_source_and_one_label_are_told(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "few") as workspace:
        fill(workspace, 1)
        service = service_of(workspace)
        trained = Retrainings(workspace, service)
        with pytest.raises(UserError, match="The images have 1 source, but at least three are needed"):
            trained.retrain(QUICK, quiet)
        with pytest.raises(UserError, match="An ONNX file cannot be trained further"):
            trained.begin(replace(QUICK, asked=EvaluationQuestion(OBJECTS, onnx_file(tmp_path / "net.onnx"))))
        label = "kite"
        fill(workspace, 8, controls=False, seed=9, label=label, most=FEW)
        same = Subject(filter=ImageFilter(facets={"class": (label,)}))
        with pytest.raises(
            UserError, match=f"one of these labels alone, “{label}”, but training needs two labels or more"
        ):
            trained.retrain(replace(QUICK, asked=EvaluationQuestion(same, CLASSIFIER)), quiet)
        for case in workspace.catalogue.test_cases(workspace.catalogue.ids())[::10]:
            workspace.test_cases.review(case, "accepted")
        version = set_of(workspace)
        first = service.cases(Subject(version)).generated.shas[0]
        workspace.test_sets.set_splits(version, {first: "train"})
        with pytest.raises(UserError, match="of several splits, which are never mixed"):
            trained.retrain(replace(QUICK, asked=EvaluationQuestion(Subject(version), CLASSIFIER)), quiet)
        service.close()


def test_a_segmenter_learns_from_masks_and_is_measured_by_pixels(
    filled: Workspace, evaluations: EvaluationService, retrainings: Retrainings
) -> None:
    asked = replace(QUICK, asked=ROADS, arms=("augmentation", "generated", "ranked"), split_seed=2)
    steps: list[tuple[str, int, int]] = []
    found = retrainings.retrain(asked, quiet)
    assert found.kind == "segmentation" and found.recipe.batch == 4
    assert [one.name for one in found.arms] == [ORIGINAL, AUGMENTED, GENERATED, RANKED]
    originals, whole, half = (
        next(one.images for one in found.arms if one.name == name) for name in (ORIGINAL, GENERATED, RANKED)
    )
    assert half - originals == (whole - originals + 1) // 2 > 0
    assert all(one.value is not None and 0 < one.value < 1 for one in found.miou)
    # The untrained model: its pixels are counted in another way, from class maps.
    read_all(evaluations, ROADS)
    cases, stored = evaluations.cases(STREETS), evaluations.predicting.stored(SEGMENTER)
    assert stored is not None
    mapping = evaluations.class_map(ROADS, cases, stored)
    pixels = evaluations._answers.segmented(stored, mapping, cases, cases.originals).pixels
    right = np.diagonal(pixels.counts, axis1=1, axis2=2).sum(axis=1) / pixels.counts.sum(axis=(1, 2))
    side = parted_of(filled, cases, mapping, asked)[0].side
    row = found.row(BEFORE, ON_ORIGINAL)
    assert row is not None and row.accuracy.value == pytest.approx(
        right[[one == "test" for one in side]].mean(), abs=0.01
    )
    assert "pixels of the generated images" in found.answer
    # Masks are written once and not read again.
    times = {file: file.stat().st_mtime_ns for file in (filled.trainings / "masks").glob("*.png")}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(filled.images, "load", lambda sha: pytest.fail(f"{sha} was read again"))
        assert retrainings.retrain(asked, lambda *told: steps.append(told)) == found
    assert times and {file: file.stat().st_mtime_ns for file in times} == times
    assert ("preparing masks", 0, 0) in steps
    assert "## mIoU" in result_markdown(found) and from_plain(RetrainingResult, to_plain(found)) == found


def test_what_people_judged_is_learnt_from_and_not_measured_with(tmp_path: Path, made_once: MadeOnce) -> None:
    with Workspace(scenes_to_learn_from(made_once, tmp_path)) as workspace:
        service = service_of(workspace)
        trained, asked = Retrainings(workspace, service), replace(QUICK, arms=("valid",))
        before = trained.retrain(asked, quiet)
        assert [one.name for one in before.arms] == [ORIGINAL]
        assert before.answer == "Nothing is compared: every arm but the originals is left out."
        cases, found, _ = planned(workspace, service, asked)
        of_image = dict(zip(cases.generated.shas, cases.table.test_case[cases.generated.row].tolist(), strict=True))
        learnt_from = sorted(
            {one.image.stem for one in planned(workspace, service, QUICK)[1].arms[1].examples} & of_image.keys()
        )
        measured = sorted({one.image.stem for one in found.sets[ON_GENERATED]})
        answers = {of_image[sha]: "yes" if place % 3 else "no" for place, sha in enumerate(learnt_from)}
        judged(workspace, answers | {of_image[sha]: "no" for sha in measured[:2]})
        after = trained.retrain(asked, quiet)
        valid = sum(answer == "yes" for answer in answers.values())
        arms = {one.name: one.images for one in after.arms}
        assert 0 < valid < len(learnt_from) and arms == {ORIGINAL: arms[ORIGINAL], BY_VOTES: arms[ORIGINAL] + valid}
        assert [one.images for one in after.sets if one.name == ON_GENERATED] == [len(measured) - 2]
        assert any("2 test cases are not measured with" in note for note in after.notes)
        assert after.row(BY_VOTES, ON_GENERATED) is not None and after.main == BY_VOTES
        service.close()


def test_the_command_trains_goes_on_where_it_was_stopped_and_says_what_it_gains(
    filled: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ["retrain", "--filter", "kind=classification", "--seeds", "2", "--updates", "2", "--batch", "4"]
    asked = [*quick, "--arms", "generated,augmentation", "--workspace", str(filled.folder)]
    whole, seen = retrainings_module.learnt, list[int]()

    def interrupted(training: Training, on_update: Callable[[int, float], None]) -> dict[str, Floats]:
        def told(update: int, loss: float) -> None:
            seen.append(update)
            if len(seen) == 6:
                signal.raise_signal(signal.SIGINT)
            on_update(update, loss)

        return whole(training, told)

    monkeypatch.setattr(retrainings_module, "learnt", interrupted)
    assert main(asked) == 130
    assert main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert seen == [1, 2] * 3 + [2] + [1, 2] * 3  # finished trainings do not run again
    assert [one["name"] for one in told["arms"]] == [ORIGINAL, AUGMENTED, GENERATED] and told["seeds"] == 2
    assert {"arm", "set", "seeds", "accuracy", "gain"} == set(told["rows"][0])
    assert main(asked) == 0 and len(seen) == 13
    shown = capsys.readouterr()
    assert shown.out.startswith("# What retraining classifier.safetensors gains on Images of a filter")
    assert told["answer"] in shown.out and "| + generated, all |" in shown.out
    assert "training “+ generated, all”, seed 2 of 2" in shown.err
    assert shown.err.count("6 trainings of 2 updates with 4 images each") == 1, "how long it takes, before it begins"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--arms", "generated,nonsense"], "There is no arm 'nonsense': choose among augmentation, reconstructions"),
        (["--seeds", "0"], "seeds"),
        (["--seeds", "many"], "seeds"),
        (["--rate", "nan"], "rate"),
        (["--batch", "1"], "at least 2 images"),
        (["--unseen", "fashion"], "No test case has an edit of the type “fashion”"),
        (["--model", SEGMENTER.file], "choose a classifier"),
    ],
)
def test_mistakes_of_the_command_end_with_a_sentence(
    filled: Workspace, more: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["retrain", "--filter", "kind=classification", *more, "--workspace", str(filled.folder)]) == 2
    told = capsys.readouterr()
    assert not told.out and sentence in told.err
    assert len(told.err.strip().splitlines()) == 1
