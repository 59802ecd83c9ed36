"""Splits for a retraining: no copy of a source is in another split, and a note names labels in one split only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.twins import cropped, flipped
from core.errors import UserError
from core.twins import RATES
from core.types import Task, from_plain, to_plain
from demo.render import render
from demo.scene import OBJECT_CLASSES, random_scene
from services.evaluation.markdown import result_markdown
from services.evaluation.retraining.jobs import Retrainings, parted_of
from services.evaluation.retraining.results import RetrainingResult
from services.evaluation.retraining.training import RetrainingQuestion, part
from services.test_sets.drafts import ReleaseTestSet, SplitTestSet, TestSetDrafts
from storage.workspace import Workspace
from tests.support.cases import made_case
from tests.support.evaluation_cases import BIRDS, service_of
from tests.support.retrain_cases import QUICK, quiet
from tests.support.workspaces import workspace_in

ASKED = RetrainingQuestion(BIRDS, unseen="none")
COPIES: tuple[Callable[[Image.Image], Image.Image], ...] = (flipped, lambda image: cropped(image, 0.05))


def source(number: int, label: str = "") -> tuple[Image.Image, str]:
    scene = random_scene(31_000 + number, "object", label or OBJECT_CLASSES[number % 3])
    return Image.fromarray(render(scene, 128)[0]), scene.label


def add(workspace: Workspace, image: Image.Image, label: str) -> str:
    """Add a source with one test case, and return its hash."""
    task = Task("classification", label)
    run = workspace.runs.create(image, task, "demo", "A run", {})
    case = workspace.test_cases.append(run, None, made_case(image.convert("L").convert("RGB"), image, task=task))
    workspace.test_cases.review(case, "accepted")
    return workspace.runs.get(run).source_sha


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, str]]]:
    """Workspace of 24 sources, each with a flipped copy and a copy cropped by 5 %, and the pairs of source and copy."""
    folder, pairs = tmp_path_factory.mktemp("copies"), list[tuple[str, str]]()
    with Workspace(folder) as workspace:
        for number in range(24):
            image, label = source(number)
            sha = add(workspace, image, label)
            pairs += [(sha, add(workspace, copy(image), label)) for copy in COPIES]
    return folder, pairs


@pytest.mark.slow  # torch is loaded
def test_no_flip_or_crop_of_a_source_is_on_another_side(copied: tuple[Path, list[tuple[str, str]]]) -> None:
    folder, pairs = copied
    with Workspace(folder) as workspace:
        service = service_of(workspace)
        cases, stored = service.cases(BIRDS.subject), service.predicting.identify(BIRDS.model)
        mapping = service.class_map(BIRDS, cases, stored)
        for seed in range(3):
            asked = replace(ASKED, split_seed=seed)
            parted, looks = parted_of(workspace, cases, mapping, asked)
            side = dict(zip(cases.originals.shas, parted.side, strict=True))
            assert not [pair for pair in pairs if side[pair[0]] != side[pair[1]]]
            assert {"train", "tune", "test"} == set(side.values())
            assert any("72 of 72 sources look like another one" in note for note in parted.notes)
            by_hash = dict(zip(cases.originals.shas, part(cases, mapping, looks, asked).side, strict=True))
            assert sum(by_hash[one] != by_hash[other] for one, other in pairs) > 12, "hashes alone do not find them"
        service.close()


def test_no_flip_or_crop_of_a_source_is_in_another_split(copied: tuple[Path, list[tuple[str, str]]]) -> None:
    folder, pairs = copied
    with Workspace(folder) as workspace:
        drafts = TestSetDrafts(workspace)
        set_id = workspace.test_sets.create("Birds")
        drafts.add(set_id, workspace.catalogue.test_cases(workspace.catalogue.ids()))
        done = drafts.split(SplitTestSet(test_set=set_id, train=0.5, test=0.5))
        assert done.groups == 24
        draft = workspace.test_sets.get(set_id).draft
        assert draft is not None
        split = {entry.source: entry.split for entry in workspace.test_sets.entries(draft.number)}
        assert not [pair for pair in pairs if split[pair[0]] != split[pair[1]]]
        assert not drafts.readiness(draft).obstacles
        (image,) = [e.image for e in workspace.test_sets.entries(draft.number) if e.source == pairs[0][1]]
        workspace.test_sets.set_splits(draft.number, {image: "validation"})
        assert [one.kind for one in drafts.readiness(draft).obstacles] == ["leak"]
        with pytest.raises(UserError, match="sources that look alike, would be in two splits"):
            drafts.release(ReleaseTestSet(test_set=set_id))


@pytest.mark.slow
def test_a_label_that_is_on_one_side_only_is_told(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as workspace:
        for number in range(24):
            add(workspace, *source(number))
        add(workspace, *source(90, "kite"))
        service = service_of(workspace)
        cases, stored = service.cases(BIRDS.subject), service.predicting.identify(BIRDS.model)
        mapping, told = service.class_map(BIRDS, cases, stored), dict[str, list[str]]()
        for seed in range(12):
            parted, _ = parted_of(workspace, cases, mapping, replace(ASKED, split_seed=seed))
            (kite,) = {
                parted.side[at] for at in cases.originals.source[cases.originals.label == cases.labels.index("kite")]
            }
            told[kite] = [note for note in parted.notes if "“kite”" in note]
        assert told["tune"] == []
        assert told["train"][0].startswith("1 label is learnt from and not measured with")
        assert told["test"][0].startswith("1 label is measured with and not learnt from")
        service.close()


@pytest.mark.slow
def test_a_result_of_the_released_version_says_that_copies_were_not_looked_for(
    copied: tuple[Path, list[tuple[str, str]]],
) -> None:
    with Workspace(copied[0]) as workspace:
        service = service_of(workspace)
        trained = Retrainings(workspace, service)
        found = trained.retrain(replace(QUICK, unseen="none"), quiet)
        service.close()
    assert found.twins_together and "as far as they are found" in result_markdown(found)
    assert RATES in result_markdown(found)
    kept = to_plain(found)
    del kept["twins_together"]
    older: RetrainingResult = from_plain(RetrainingResult, kept)
    assert older.sides == found.sides, "the sides that it was made with"
    assert "copies of a source were not looked for: they may be on another side" in result_markdown(older)
    assert RATES not in result_markdown(older)
