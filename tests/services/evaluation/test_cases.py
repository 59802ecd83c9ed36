"""Images of an evaluation: originals, test cases and reconstructions of a selection, and refusals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.errors import UserError
from core.image_filter import ImageFilter
from core.types import Task
from pipeline.recipes import DILLEMA, INSTRUCT, RECONSTRUCTION, control_of
from services.evaluation.subjects import Cases, read_cases
from services.evaluation.types import WITHOUT_SPLIT, Subject
from services.test_sets.drafts import AddToTestSet, TestSetDrafts
from storage.curation.decisions import Target
from storage.workspace import Workspace
from tests.support.cases import made_case
from tests.support.evaluation_cases import fill
from tests.support.own_recipe import registered
from tests.support.set_cases import picture, run_of

ALL = Subject(filter=ImageFilter())


def shown(cases: Cases) -> tuple[int, int, int, str]:
    view = cases.view
    return view.sources, view.cases, view.controls, view.problem


def set_of(workspace: Workspace) -> int:
    """Create a test set with all accepted test cases and their sources. Return the number of its draft."""
    set_id = workspace.test_sets.create("Scenes")
    TestSetDrafts(workspace).add_chosen(
        AddToTestSet.of({"test_set": set_id, "filter": "review=accepted", "sources": True})
    )
    draft = workspace.test_sets.get(set_id).draft
    assert draft is not None
    return draft.number


@pytest.mark.slow
def test_reconstructions_are_controls_and_never_test_cases(workspace: Workspace) -> None:
    fill(workspace, 3)
    fill(workspace, 1, controls=False, seed=9)
    cases = read_cases(workspace, ALL)
    assert shown(cases) == (4, 40, 3, "") and cases.view.kind == "classification" and cases.view.can_make_control
    recipes = cases.table.recipes
    assert set(recipes.of(cases.generated.row)) == {"dillema"} and set(recipes.of(cases.controls.row)) == {
        "reconstruction"
    }
    # Each reconstruction belongs to the source of its run.
    for images in (cases.generated, cases.controls):
        for row, source in zip(images.row.tolist(), images.source.tolist(), strict=True):
            case = workspace.test_cases.get(int(cases.table.test_case[row]))
            assert workspace.runs.get(case.run_id).source_sha == cases.originals.shas[source]
    foggy = read_cases(workspace, Subject(filter=ImageFilter(facets={"weather": ("foggy",)})))
    assert foggy.view.controls == 3, "the controls of a filter are those of its sources, wherever they are"
    only = read_cases(workspace, Subject(filter=ImageFilter(facets={"recipe": ("reconstruction",)})))
    assert only.view.problem == "It has only reconstructions and no test case."


def test_labels_are_those_that_people_decided_and_sources_keep_that_of_their_task(workspace: Workspace) -> None:
    run_of(workspace, 1, [10, 11], "bird")
    run_of(workspace, 2, [12], "boat")
    first, *_ = workspace.catalogue.ids()
    workspace.decisions.relabel(Target((first,)), "gull", "Ada")
    cases = read_cases(workspace, ALL)
    assert cases.labels == ("bird", "boat", "gull")
    assert sorted(cases.labels[one] for one in cases.generated.label) == ["bird", "boat", "gull"]
    assert sorted(cases.labels[one] for one in cases.originals.label) == ["bird", "boat"]


def test_what_is_decided_and_made_later_counts(workspace: Workspace) -> None:
    (one, _) = run_of(workspace, 1, [10, 11], accepted=False)
    assert shown(read_cases(workspace, ALL))[1] == 2
    workspace.test_cases.review(one, "rejected")
    open_ones = Subject(filter=ImageFilter(facets={"review": ("open",)}))
    assert shown(read_cases(workspace, open_ones))[1] == 1
    assert read_cases(workspace, ALL).table.verdict.tolist() == [2, 0]
    run_of(workspace, 2, [12])
    assert shown(read_cases(workspace, ALL)) == (2, 2, 0, "")


def test_a_test_set_says_label_split_and_mask(workspace: Workspace) -> None:
    run_of(workspace, 1, [10, 11], "bird")
    run_of(workspace, 2, [12], "boat")
    version = set_of(workspace)
    entries = workspace.test_sets.entries(version)
    of_boat = [entry.image for entry in entries if entry.label == "boat"]
    workspace.test_sets.relabel(version, of_boat, "ship")
    cases = read_cases(workspace, Subject(version))
    assert (*shown(cases)[:2], cases.labels) == (2, 3, ("bird", "ship")) and cases.view.title == "Scenes@draft"
    workspace.test_sets.set_splits(version, dict.fromkeys(of_boat, "train"))
    mixed = read_cases(workspace, Subject(version))
    assert mixed.view.splits == ("train", WITHOUT_SPLIT)
    assert mixed.view.problem == (
        "Its sources are of several splits, which are never mixed: train (1 test case), without a split (2 test "
        "cases). Choose one of them."
    )
    train = read_cases(workspace, Subject(version, split="train"))
    assert shown(train) == (1, 1, 0, "") and train.split == ("train",) and train.labels == ("ship",)
    rest = read_cases(workspace, Subject(version, split=WITHOUT_SPLIT))
    assert shown(rest) == (1, 2, 0, "") and rest.split == ("",)
    assert "is of the split “test”" in read_cases(workspace, Subject(version, split="test")).view.problem


def test_edits_stand_with_the_images_that_have_them(workspace: Workspace) -> None:
    fill(workspace, 2)
    cases = read_cases(workspace, ALL)
    edits = cases.table.edits
    assert len(edits.row) == 20 and set(edits.types.values) == {"weather", "time of day"}
    for place in range(20):
        row = int(edits.row[place])
        case = workspace.test_cases.get(int(cases.table.test_case[row]))
        (edit,) = case.lineage.counterfactual.edits
        said = tuple(column.of([place])[0] for column in (edits.types, edits.keywords, edits.alternatives))
        assert said == (edit.edit_type, edit.keyword, edit.alternative)


def test_masks_of_segmentations_and_what_cannot_be_evaluated(workspace: Workspace) -> None:
    assert read_cases(workspace, ALL).view.problem == "It has no test case."
    street = workspace.runs.create(picture(1), Task("segmentation", protected=("road",)), "demo", "A street", {})
    task = Task("segmentation", protected=("road",))
    workspace.test_cases.append(street, None, made_case(picture(2), task=task))
    assert "None of its sources has a mask" in read_cases(workspace, ALL).view.problem
    fill(workspace, 1, road=True)
    cases = read_cases(workspace, ALL)
    assert cases.view.kind == "segmentation" and "road" in cases.labels and not cases.view.problem
    assert sorted(bool(mask) for mask, _ in cases.originals.masks) == [False, True]
    run_of(workspace, 3, [30])
    assert read_cases(workspace, ALL).view.problem == (
        "1 of these images are of a classification and 11 of a segmentation: choose those of one kind."
    )
    birds = read_cases(workspace, Subject(filter=ImageFilter(facets={"kind": ("classification",)})))
    assert shown(birds) == (1, 1, 0, "")


def test_images_without_a_label_are_told(workspace: Workspace) -> None:
    run = workspace.runs.create(picture(1), Task("classification", "bird"), "demo", "A bird", {})
    workspace.test_cases.append(run, None, made_case(picture(2), task=Task("classification", "")))
    cases = read_cases(workspace, ALL)
    assert cases.generated.label.tolist() == [-1] and cases.labels == ("bird",)
    assert cases.left_out == ("1 image is left out: it has no label.",)


def test_a_filter_goes_for_a_version_too(workspace: Workspace) -> None:
    run_of(workspace, 1, [10, 11], "bird")
    run_of(workspace, 2, [12], "boat")
    cases = read_cases(workspace, Subject(set_of(workspace), ImageFilter.read("class=boat")))
    assert shown(cases)[:2] == (1, 1) and cases.view.title == "Scenes@draft (class: boat)"
    with pytest.raises(UserError):
        read_cases(workspace, Subject(version=77))


def test_controls_of_another_profile_are_left_out_and_told(workspace: Workspace) -> None:
    fill(workspace, 2)
    cases = read_cases(workspace, ALL)
    other = workspace.runs.create(
        workspace.images.load(cases.originals.shas[0]), Task("classification", "bird"), "paper", "Drawn otherwise", {}
    )
    made = made_case(picture(5), task=Task("classification", "bird"), recipe="reconstruction")
    workspace.test_cases.append(other, None, made)
    again = read_cases(workspace, ALL)
    assert len(again.controls) == 2 and np.array_equal(again.controls.row, cases.controls.row)
    assert again.left_out == (
        "1 reconstruction of its sources is left out, drawn by another profile, method or start than its test cases.",
    )


MIRROR = replace(RECONSTRUCTION, name="mirror", title="Mirror")
MIRRORED = replace(DILLEMA, name="mirrored", title="Mirrored", control="mirror")


def test_each_test_case_has_the_control_of_its_own_recipe(workspace: Workspace) -> None:
    assert control_of("nobody's") == control_of("dillema") == RECONSTRUCTION and control_of(INSTRUCT.name) is None
    task = Task("classification", "bird")

    def add(run: str, number: int, recipe: str, method: str = "controlnet") -> None:
        made = made_case(picture(number), seed=number, recipe=recipe, task=task, method=method)
        workspace.test_cases.append(run, None, made)

    with registered(MIRROR), registered(MIRRORED):
        one, two = (workspace.runs.create(picture(number), task, "demo", "A run", {}) for number in (1, 2))
        for number, recipe in enumerate(("dillema", "mirrored", "mirrored", "reconstruction", "mirror"), start=10):
            add(one, number, recipe)
        add(two, 20, "dillema")
        add(two, 21, "mirror")  # this source has no test case of the recipe
        add(two, 22, INSTRUCT.name, "instruct")
        cases = read_cases(workspace, ALL)
        assert shown(cases) == (2, 5, 3, "") and cases.mixed
        recipes = cases.table.recipes
        of_case = dict(zip(recipes.of(cases.generated.row), cases.way.tolist(), strict=True))
        of_control = dict(zip(recipes.of(cases.controls.row), cases.control_way.tolist(), strict=True))
        assert of_case["dillema"] == of_control["reconstruction"] != of_case["mirrored"] == of_control["mirror"]
        assert of_case[INSTRUCT.name] == -1 and cases.left_out == (cases.without_control,)
        assert cases.without_control == (
            "1 test case has no control set, as the recipe “DILLEMA, edited” draws nothing without an edit. The "
            "errors on such images include what drawing alone causes, so they count in no excess."
        )
        lacks = cases.generated.row[cases.lacking]
        assert recipes.of(lacks) == ["dillema"] and cases.generated.source[cases.lacking].tolist() == [
            cases.originals.shas.index(workspace.runs.get(two).source_sha)
        ]
        # Controls of other recipes than the test cases' are ignored.
        alone = read_cases(workspace, Subject(filter=ImageFilter(facets={"recipe": ("dillema",)})))
        assert shown(alone) == (2, 2, 1, "") and not alone.mixed and not alone.left_out
        edited = read_cases(workspace, Subject(filter=ImageFilter(facets={"recipe": (INSTRUCT.name,)})))
        assert shown(edited) == (1, 1, 0, "") and not edited.view.can_make_control and not edited.left_out
        assert edited.without_control
