"""Natural shift: a retraining is also measured on another test set, for a classifier by labels and for a segmenter
by masks. The set's classes may differ from those of the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from cli.evaluation import main
from core.errors import UserError
from core.evaluation_results import BEFORE, ON_ORIGINAL, ON_SHIFT
from core.predictions import decode_map
from core.test_sets import SetEntry
from demo.scene import SEMANTIC_CLASSES
from evaluation.answers import groups_in_mask
from evaluation.class_mapping import map_classes
from evaluation.models import ModelUnderTest
from evaluation.retraining.arm_statistics import GENERATED
from evaluation.segmentation import IGNORED
from services.evaluation.retraining.jobs import Retrainings
from services.evaluation.retraining.results import RetrainingResult
from services.evaluation.retraining.shifts import groups_of_shift
from services.evaluation.service import EvaluationService
from storage.workspace import Workspace
from tests.services.evaluation.test_results import ROADS, SEGMENTER, STREETS
from tests.support import retrain_cases
from tests.support.evaluation_cases import scenes_to_learn_from
from tests.support.made_once import MadeOnce
from tests.support.retrain_cases import QUICK, draft, masked, planned, quiet, sides

pytestmark = pytest.mark.slow

evaluations, retrainings = retrain_cases.evaluations, retrain_cases.retrainings
STREET = replace(QUICK, asked=ROADS, split_seed=2)
NAMES = dict(enumerate(SEMANTIC_CLASSES))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Iterator[Workspace]:
    """Workspace with sources of both tasks. Tests train in it, and make test sets."""
    with Workspace(scenes_to_learn_from(made_once, tmp_path_factory.mktemp("shift"))) as workspace:
        yield workspace


def right_before(found: RetrainingResult, on: str) -> float:
    row = found.row(BEFORE, on)
    assert row is not None and row.accuracy.value is not None
    return row.accuracy.value


def miou_before(found: RetrainingResult, on: str) -> float | None:
    return next(one.value for one in found.miou if (one.arm, one.set) == (BEFORE, on))


def test_a_classifier_is_measured_with_what_is_not_learnt_from(
    filled: Workspace, evaluations: EvaluationService, retrainings: Retrainings, capsys: pytest.CaptureFixture[str]
) -> None:
    cases, plain, _ = planned(filled, evaluations, QUICK)
    labels = dict(zip(cases.originals.shas, (cases.labels[one] for one in cases.originals.label), strict=True))
    measured = [one.image.stem for one in plain.sets[ON_ORIGINAL]]
    learnt_from = plain.arms[0].examples[0].image.stem
    entries = [SetEntry(sha, sha, labels[sha]) for sha in (*measured, learnt_from)]
    number = draft(filled, "Fog", [*entries, SetEntry(cases.generated.shas[0], cases.generated.shas[0])])
    found = retrainings.retrain(replace(QUICK, shift=number), quiet)
    row, same = found.row(GENERATED, ON_SHIFT), found.row(GENERATED, ON_ORIGINAL)
    assert row is not None and same is not None and row.accuracy.value == same.accuracy.value
    assert any("1 image is left out: without a label that the model can say" in note for note in found.notes)
    assert any("1 image is left out: each looks like one" in note for note in found.notes)
    quick = ["--seeds", "1", "--updates", "2", "--batch", "4", "--rate", "0.01", "--arms", "generated"]
    asked = ["retrain", "--filter", "kind=classification", *quick, "--workspace", str(filled.folder), "--shift"]
    assert main([*asked, "Fog@draft"]) == 0 and "## On natural shift" in capsys.readouterr().out
    assert main([*asked, "Snow"]) == 2 and "Snow" in capsys.readouterr().err
    with pytest.raises(UserError):
        retrainings.begin(replace(QUICK, shift=number + 99))


def test_a_segmenter_is_measured_by_the_masks_of_the_shift(
    filled: Workspace, evaluations: EvaluationService, retrainings: Retrainings
) -> None:
    cases, side = sides(filled, evaluations, STREET)
    measured = [place for place, one in enumerate(side) if one == "test"]
    other = [masked(cases, side.index("train")), SetEntry(cases.controls.shas[0], cases.controls.shas[0])]
    number = draft(filled, "Rain", [*(masked(cases, place) for place in measured), *other])
    assert number in [one for one, _ in retrainings.choices(ROADS).shifts]
    found = retrainings.retrain(replace(STREET, shift=number), quiet)
    # The same images with the same masks give the figures of the originals.
    assert right_before(found, ON_SHIFT) == pytest.approx(right_before(found, ON_ORIGINAL))
    assert miou_before(found, ON_SHIFT) == pytest.approx(miou_before(found, ON_ORIGINAL))
    assert [one.images for one in found.sets if one.name == ON_SHIFT] == [len(measured)]
    assert any("natural shift, 1 image is left out: without a mask" in note for note in found.notes)
    assert any("natural shift, 1 image is left out: each looks like one" in note for note in found.notes)
    assert not any("count nowhere" in note for note in found.notes)


def test_pixels_of_classes_that_are_not_learnt_count_nowhere(
    filled: Workspace, evaluations: EvaluationService, retrainings: Retrainings
) -> None:
    cases, side = sides(filled, evaluations, STREET)
    measured = [place for place, one in enumerate(side) if one == "test"]
    called = {"building": "unicorn", "car": "cars"}  # unknown to the model, and the plural of one of its classes
    sha = next(one for one, at in zip(cases.controls.shas, cases.controls.source, strict=True) if at == measured[0])
    alone = SetEntry(sha, sha, mask=cases.originals.masks[measured[0]][0], mask_classes=dict.fromkeys(NAMES, "unicorn"))
    number = draft(filled, "Dusk", [*(masked(cases, place, called) for place in measured), alone])
    found = retrainings.retrain(replace(STREET, shift=number), quiet)
    assert any("natural shift, 1 image is left out: the mask has nothing that is learnt" in one for one in found.notes)
    assert any("natural shift, the pixels of “unicorn” count nowhere" in one for one in found.notes)
    # Computed pixel by pixel.
    model, shares = ModelUnderTest(SEGMENTER), []
    place_of = {name: place for place, name in enumerate(model.identity.classes)}
    for place in measured:
        image = filled.images.load(cases.originals.shas[place])
        said = np.asarray(decode_map(model.predict(image).class_map).resize(image.size, Image.Resampling.NEAREST))
        mask = np.asarray(filled.images.load(cases.originals.masks[place][0]).convert("L"))
        true = np.array([place_of.get(NAMES.get(one, ""), IGNORED) for one in range(256)])[mask]
        counted = (true != IGNORED) & (true != place_of["building"])
        shares.append(float((said == true)[counted].mean()))
    assert right_before(found, ON_SHIFT) == pytest.approx(np.mean(shares), abs=0.01)
    assert right_before(found, ON_SHIFT) != pytest.approx(right_before(found, ON_ORIGINAL), abs=1e-6)


def test_a_shift_without_any_mask_is_told(
    filled: Workspace, evaluations: EvaluationService, retrainings: Retrainings
) -> None:
    sha = evaluations.cases(STREETS).controls.shas[0]
    found = retrainings.retrain(replace(STREET, shift=draft(filled, "Bare", [SetEntry(sha, sha)])), quiet)
    assert [one.why for one in found.left_out if one.name == ON_SHIFT] == ["None of its images can be measured with."]
    assert found.row(BEFORE, ON_SHIFT) is None


def test_classes_of_a_shift_are_the_groups_that_hold_all_that_is_right_for_them() -> None:
    model = ("road", "car", "truck", "person")
    learnt = map_classes(("road", "vehicle"), model, "segmentation", None)
    own = map_classes(("car", "truck", "person", "roads", "unicorn"), model, "segmentation", None)
    group_of = groups_of_shift(learnt, own)
    groups = [{learnt.labels[one].label for one in group} for group in learnt.groups]
    assert {name: groups[at] for name, at in group_of.items()} == {
        "car": {"vehicle"},
        "truck": {"vehicle"},
        "roads": {"road"},
    }
    numbers = groups_in_mask(group_of, {0: "roads", 3: "truck", 4: "person", 255: "car", -1: "car"})
    assert numbers[0] == group_of["roads"] and numbers[3] == group_of["car"]
    assert numbers[4] == IGNORED
