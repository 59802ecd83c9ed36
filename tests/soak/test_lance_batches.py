"""Images of LANCE and of AGA by the embedded models in batches: worker processes, Ray and Explore's driver draw the
same pixels, each image once, also after kills and a stop in the middle.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from core.batches import Pass
from core.images import image_sha, read_image
from core.lineage import DrawnBatch
from pipeline.driver import Driver
from pipeline.methods.drawing import BatchedSettings
from pipeline.profiles.profile import load_profile
from pipeline.recipes import AGA, LANCE, Recipe
from pipeline.request import MemoryStore, Request
from pipeline.stages.generation import PlannedImage
from services.batches.cluster import RayPool, on_ray
from services.batches.io_workers import Order
from storage.workspace import Workspace
from tests.services.batches import test_cluster
from tests.services.batches.test_cluster import alone
from tests.support.batch_kills import (
    command,
    drawn_data,
    made,
    plan_file,
    random_kills,
    run,
    wait_for_pieces,
    with_kills,
)
from tests.support.demo_server import demo_models

__all__ = ["alone"]
pytestmark = pytest.mark.demo
SOURCES, CAPTIONS = 3, 2


@pytest.fixture(scope="module", params=[LANCE, AGA], ids=lambda recipe: recipe.name)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    made: Recipe = request.param
    return made


@pytest.fixture(scope="module")
def plan(recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(recipe.name)
    drawn_data(folder / "data", SOURCES)
    file = plan_file(folder, folder / "data", captions=CAPTIONS, together=2)
    text = file.read_text(encoding="utf-8")
    text = text.replace('profile = "demo"', f'profile = "demo"\nrecipe = "{recipe.name}"')
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def calm(plan: Path) -> Path:
    """Workspace of the plan, completed by one worker without a kill."""
    done = run(plan.parent / "calm", "run", plan, "--yes", "--workers", 1)
    assert done.returncode == 0, done.stderr
    return plan.parent / "calm"


def same_as_without(calm: Path, workspace: Path, done: object) -> None:
    """Check that every image exists once, with the same pixels."""
    before, after = made(calm), made(workspace)
    assert len(before.images) == SOURCES * CAPTIONS
    assert after.images == before.images, done
    assert after.test_cases == SOURCES * CAPTIONS and set(after.states) == {"done"}


def test_after_kills_of_workers_and_of_their_driver_the_images_are_the_same(
    plan: Path, calm: Path, tmp_path: Path
) -> None:
    done = list(with_kills(tmp_path / "workspace", plan, random_kills(5)))
    same_as_without(calm, tmp_path / "workspace", done)


def test_a_batch_that_is_stopped_while_it_draws_goes_on(plan: Path, calm: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    with subprocess.Popen(command(workspace, "run", plan, "--yes", "--workers", 1)) as process:
        begun = wait_for_pieces(workspace, process, 2 * SOURCES + 1)  # all texts and one image
        process.send_signal(signal.SIGINT)
    assert process.returncode and 2 * SOURCES < begun < (2 + CAPTIONS) * SOURCES
    assert sum(made(workspace).states.values()) > len(made(workspace).images) > 0, "some of it is not done"
    again = run(workspace, "run", plan, "--yes", "--workers", 1)
    assert again.returncode == 0, again.stderr
    same_as_without(calm, workspace, "a stop")


def test_ray_draws_the_same_also_when_one_of_its_workers_is_killed(plan: Path, calm: Path, tmp_path: Path) -> None:
    pools, killed = list[RayPool](), list[int]()

    def pool(order: Order) -> RayPool:
        pools.append(RayPool(order))
        return pools[-1]

    def kill(stage: Pass, _done: int) -> None:
        if stage == "images" and not killed:
            killed.append(pools[-1].processes[0])
            os.kill(killed[0], signal.SIGKILL)

    with on_ray(2):
        drawn = test_cluster.run(plan, tmp_path / "workspace", pool, kill)
    with Workspace(calm) as workspace:
        assert killed and drawn == test_cluster.images(workspace)
    same_as_without(calm, tmp_path / "workspace", "a kill on Ray")


def test_the_driver_of_explore_draws_each_image_of_a_batch_to_the_bit(recipe: Recipe, calm: Path) -> None:
    """Draw each image again from its source, caption and settings. For LANCE, the source is inverted again."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # like worker processes
    driver, drawn = Driver(load_profile("demo"), demo_models()), 0
    try:
        with Workspace(calm) as workspace:
            for run_id in [one.id for one in workspace.runs.search(100)]:
                held = workspace.runs.get(run_id)
                settings = recipe.settings_in(driver.profile, held.settings)
                values = {name: stored.value for name, stored in held.values.items()}
                for case in held.test_cases:
                    own = case.lineage.settings
                    assert case.lineage.counterfactual is not None and isinstance(own, BatchedSettings)
                    images = (PlannedImage(case.lineage.counterfactual, case.lineage.seed, batch=own.drawn_in),)
                    assert own.drawn_in is None or own.drawn_in == DrawnBatch(size=2, place=own.drawn_in.place)
                    store = MemoryStore(read_image(workspace.images.path(held.source_sha)).image, values)
                    driver.run(Request(held.task, settings, recipe.name, stages=(), images=images), store)
                    with read_image(case.image_path).image as before:
                        assert image_sha(store.cases[0].image) == image_sha(before)
                    drawn += 1
    finally:
        torch.set_num_threads(threads)
    assert drawn == SOURCES * CAPTIONS
