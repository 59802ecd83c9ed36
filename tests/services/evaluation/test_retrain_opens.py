"""Figures of a retraining open their images: those of a set, and those that the model of an arm gets wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.evaluation_results import BEFORE, ON_GENERATED, ON_ORIGINAL, ON_SHIFT, ON_UNSEEN, ORIGINAL
from core.test_sets import SetEntry
from evaluation.models import ModelUnderTest
from evaluation.retraining.arm_statistics import GENERATED, Measured
from services.curation.views import list_address
from services.evaluation.retraining.jobs import KeptResult, RetrainingChoices, Retrainings
from services.evaluation.retraining.results import MOST_OPENED, opened, result_facts, shown_entries
from services.evaluation.service import EvaluationService
from storage.workspace import Workspace
from tests.services.evaluation.test_results import BIRDS, CLASSIFIER, ROADS
from tests.support import retrain_cases
from tests.support.evaluation_cases import scenes_to_learn_from
from tests.support.made_once import MadeOnce
from tests.support.retrain_cases import QUICK, draft, masked, planned, quiet, sides
from ui.evaluate.retraining import retraining_part
from ui.evaluate.words import Place

pytestmark = pytest.mark.slow

evaluations, retrainings = retrain_cases.evaluations, retrain_cases.retrainings
CREATED = "2026-01-01T00:00:00+00:00"
PLACE = Place(filter="kind=classification", key="mine")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Iterator[Workspace]:
    """Workspace with sources of both tasks. Tests train in it."""
    with Workspace(scenes_to_learn_from(made_once, tmp_path_factory.mktemp("opens"))) as workspace:
        yield workspace


def test_a_set_opens_its_images_and_an_arm_those_that_it_is_wrong_about(
    filled: Workspace, evaluations: EvaluationService, retrainings: Retrainings
) -> None:
    found = retrainings.retrain(QUICK, quiet)
    cases, plan, _ = planned(filled, evaluations, QUICK)
    entry_of = dict(zip(cases.generated.shas, cases.table.entry[cases.generated.row].tolist(), strict=True))
    model, names = ModelUnderTest(CLASSIFIER), ModelUnderTest(CLASSIFIER).identity.classes
    for name in (ON_GENERATED, ON_UNSEEN):
        shas = [one.image.stem for one in plan.sets[name]]
        says = [names.index(model.predict(Image.open(one.image)).top[0].label) for one in plan.sets[name]]
        wrong = [sha for sha, one, example in zip(shas, says, plan.sets[name], strict=True) if one != example.target]
        whole, as_it_is = found.opens(name), found.opens(name, BEFORE)
        assert whole is not None and set(whole.entries) == {entry_of[sha] for sha in shas}
        assert (whole.images, whole.shown) == (len(shas), len(shas))
        assert wrong and as_it_is is not None and set(as_it_is.entries) == {entry_of[sha] for sha in wrong}
    # Originals have no entries, so their test cases open instead.
    source_of = dict(zip(cases.generated.shas, cases.generated.source.tolist(), strict=True))
    measured = {cases.originals.shas.index(one.image.stem) for one in plan.sets[ON_ORIGINAL]}
    whole = found.opens(ON_ORIGINAL)
    assert whole is not None and whole.images == len(measured)
    assert set(whole.entries) == {entry_of[sha] for sha, source in source_of.items() if source in measured}
    (kept,) = retrainings.kept(BIRDS)
    assert retrainings.opens(BIRDS, kept.number, ON_ORIGINAL) == whole.entries
    for asked, number, on, why in (
        (BIRDS, kept.number, "nonsense", "The images behind this number are not stored"),
        (BIRDS, kept.number + 1, ON_ORIGINAL, "There is no such result any more"),
    ):
        with pytest.raises(UserError, match=why):
            retrainings.opens(asked, number, on)


def test_of_a_segmenter_the_lowest_tenth_opens_and_of_a_shift_what_is_in_the_catalogue(
    filled: Workspace, evaluations: EvaluationService, retrainings: Retrainings
) -> None:
    asked = replace(QUICK, asked=ROADS, split_seed=2)
    cases, side = sides(filled, evaluations, asked)
    first = side.index("test")
    case = next(at for at, source in enumerate(cases.generated.source.tolist()) if source == first)
    sha, (mask, names) = cases.generated.shas[case], cases.generated.masks[case]
    told = {int(number): name for number, name in json.loads(names).items()}
    made = SetEntry(sha, cases.originals.shas[first], mask=mask, mask_classes=told)
    found = retrainings.retrain(
        replace(asked, shift=draft(filled, "Snow", [masked(cases, first), made]), seeds=1), quiet
    )
    measured = next(one.images for one in found.sets if one.name == ON_GENERATED)
    lowest = found.opens(ON_GENERATED, GENERATED)
    assert lowest is not None and lowest.images == -(-measured // 10) == len(lowest.entries)
    shift = found.opens(ON_SHIFT)
    assert shift is not None and (shift.images, shift.shown) == (2, 1)  # the source has no catalogue entry
    assert shift.entries == (int(cases.table.entry[cases.generated.row[case]]),)
    alone = replace(found, opened=tuple(replace(one, entries=(), shown=0) for one in found.opened))
    for one, there in ((found, False), (alone, True)):
        shown = str(retraining_part(PLACE, RetrainingChoices("", ()), (KeptResult(one, CREATED, "", 7),), None))
        assert ("None of these images is in the gallery." in shown) is there
        assert "the tenth of the images with the fewest right pixels" in shown


def test_those_that_most_trainings_are_wrong_about_open_the_worst_first_and_so_many_at_most() -> None:
    source = np.arange(5)
    right = np.array([[1, 0, 0, 0, 1], [1, 0, 1, 0, 0], [1, 1, 0, 0, 1]], bool)
    measured = {ORIGINAL: {"set": Measured(source, right)}}
    behind = {"set": [[50], [51], [52], [54, 53], []]}
    whole, wrong = opened(behind, measured, "classification")
    assert (whole.arm, whole.images, whole.shown, whole.entries) == ("", 5, 4, (50, 51, 52, 53, 54))
    assert (wrong.arm, wrong.images, wrong.shown, wrong.entries) == (ORIGINAL, 3, 3, (51, 52, 53, 54))
    assert shown_entries(behind["set"], [3, 1, 2], 3) == ((51, 53, 54), 2)


def test_a_hundred_and_twenty_five_thousand_images_make_a_small_row_whose_numbers_an_address_holds() -> None:
    size = 125_000
    chance = np.random.default_rng(0)
    right = chance.random((5, size)) < 0.4
    names = ("a", "b", "c", "d", "e", "f", "g")
    measured = {name: {"set": Measured(np.arange(size), right)} for name in names}
    entries = np.sort(chance.choice(8 * size, size, replace=False)) + 1
    behind = {"set": [[entry] for entry in entries.tolist()]}
    found = list(opened(behind, measured, "classification"))
    assert {len(one.entries) for one in found} == {MOST_OPENED} == {one.shown for one in found}
    assert found[0].images == size and found[1].images > size // 2
    assert len(json.dumps([one.entries for one in found])) < 100_000
    assert all(list_address(one.entries) for one in found)


def test_a_number_opens_its_images_and_a_script_counts_them(retrainings: Retrainings) -> None:
    found = retrainings.retrain(QUICK, quiet)
    kept = KeptResult(found, CREATED, "", 7)
    page = str(retraining_part(PLACE, RetrainingChoices("", ()), (kept,), None))
    assert page.count("retraining/images") >= 6 and "kept=7" in page
    facts = result_facts(found, entries=False)
    assert {one["images"] for one in facts["opened"]} and not any("entries" in one for one in facts["opened"])
    assert [tuple(one["entries"]) for one in result_facts(found)["opened"]] == [one.entries for one in found.opened]
