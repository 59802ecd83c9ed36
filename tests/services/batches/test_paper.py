"""The paper's two plans at small size on data sets in their published layouts, with stand-ins for the models: the
chosen sources, the drawn images, and where they are found.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from core.catalogue import Order
from core.image_filter import ImageFilter
from core.stored_runs import Run
from services.batches.plan_file import PLANS, BatchPlan, read_plan
from services.batches.service import BatchService
from storage.workspace import Workspace
from tests.formats.test_data_sets import SYNSETS, imagenet_tars
from tests.formats.test_data_sets_scenes import shift
from tests.services.batches.test_batches import worked
from tests.support.scripted import ScriptedModels
from tests.support.workspaces import workspace_in

SEEDS = 5


def small(name: str, root: Path, **choose: int) -> BatchPlan:
    """Return the paper's plan with the numbers in `choose` and the demo's models."""
    plan = read_plan(PLANS / f"{name}.toml").with_root(root)
    make = plan.make.model_copy(update={"profile": "demo"})
    return plan.model_copy(update={"make": make, "choose": plan.choose.model_copy(update=choose)})


def made(workspace: Workspace, plan: BatchPlan) -> int:
    """Run the batch of a plan to its end, with approval. Return its number."""
    number = BatchService(workspace).plan(plan)
    assert worked(workspace, number, ScriptedModels()) == "approval"
    workspace.batches.approve(number)
    assert worked(workspace, number, ScriptedModels()) == "done"
    return number


@pytest.mark.slow
def test_imagenet_gives_five_test_cases_of_so_many_images_of_each_class(tmp_path: Path) -> None:
    root = imagenet_tars(tmp_path / "imagenet")
    with workspace_in(tmp_path / "workspace") as workspace:
        number = made(workspace, small("imagenet", root, a_class=1))
        status = BatchService(workspace).status(number)
        assert [one.number("done") for one in status.passes] == [3, 3, 3 * SEEDS]
        entries = workspace.catalogue.page(ImageFilter(), Order(), 100).entries
        first = sorted(words.split(",")[0] for words in SYNSETS.values())
        assert sorted(run.task.label.split(",")[0] for run in _runs(workspace, number)) == first
        assert len(entries) == 3 * SEEDS
        for run in _runs(workspace, number):
            cases = run.test_cases
            assert len({case.lineage.seed for case in cases}) == len(cases) == SEEDS
            assert len({case.lineage.counterfactual.text for case in cases}) == 1
            assert all(case.lineage.settings.steps == 5 for case in cases)
    assert not [path for path in root.rglob("*") if path.suffix not in (".tar", ".gz")]  # nothing is unpacked


def test_shift_gives_five_test_cases_of_each_frame_with_its_mask(tmp_path: Path) -> None:
    root = shift(tmp_path / "shift", "continuous/videos/1x")
    with workspace_in(tmp_path / "workspace") as workspace:
        number = made(workspace, small("shift", root, number=4))
        status = BatchService(workspace).status(number)
        # Both drives of this small set show the same two pictures.
        assert [one.number("done") for one in status.passes] == [4, 2, 2 * SEEDS]
        assert status.passes[1].number("skipped") == 2
        for source, run in zip(workspace.batches.sources(number), _runs(workspace, number), strict=True):
            assert run.task.protected == ("road", "vehicle", "pedestrian")
            assert run.mask_sha and set(run.mask_classes.values()) >= {"road", "vehicle", "pedestrian"}
            assert source.item.attributes["weather"] in ("rainy", "clear")
            assert len(run.test_cases) in (0, SEEDS)


def _runs(workspace: Workspace, number: int) -> list[Run]:
    return [workspace.runs.get(source.run or "") for source in workspace.batches.sources(number)]
