"""Batches on Ray, on clusters of one and two nodes: the same images after any kill, and messages about what cannot
work.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from PIL import Image

from core.batches import Pass
from core.errors import UserError
from demo.render import render
from demo.scene import random_scene
from services.batches import planning, service
from services.batches.cluster import RayPool, on_ray
from services.batches.engine import Engine, OnLot
from services.batches.io_workers import Order
from services.batches.plan_file import read_plan
from services.batches.pools import Pool, ProcessPool
from services.batches.service import BatchService
from storage.workspace import Workspace
from tests.support.batch_workers import Deadly, Poisoned, here, leftovers, not_there, only_for, scripted
from tests.support.workspaces import workspace_in

pytestmark = [pytest.mark.slow]
Pools = Callable[[Order], Pool]
Images = dict[tuple[str, str, int], str]
"""Hash of each image by the hash of its source, its caption and its seed."""


@pytest.fixture(scope="module", autouse=True)
def alone() -> Iterator[None]:
    """Make Ray listen on this machine only, and keep its token out of the user's home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_prestart_worker_first_driver", "0")  # else nodes start workers that nobody needs
        yield


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """Address of a Ray cluster of two nodes with a CPU each."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()


@pytest.fixture(autouse=True)
def small_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lots of two sources, so that a few sources give several lots."""
    monkeypatch.setattr(planning, "SOURCES_OF_A_LOT", 2)
    monkeypatch.setattr(service, "AT_ONCE", 2)


def plan_of(folder: Path, sources: int) -> Path:
    """Draw this number of objects, and write a plan for them. Return the plan's file."""
    for number in range(sources):
        scene = random_scene(777_000 + number, "object")
        of_class = folder / "data" / "test" / scene.label
        of_class.mkdir(parents=True, exist_ok=True)
        Image.fromarray(render(scene, 64)[0]).save(of_class / f"{number:03d}.png")
    file = folder / "plan.toml"
    file.write_text(
        f"[data]\nroot = {str(folder / 'data')!r}\nlayout = 'imagefolder'\nsplit = 'test'\n"
        "[task]\nkind = 'classification'\n"
        "[make]\nprofile = 'demo'\nsettings = { 'generation.steps' = 2, 'counterfactuals.captions' = 1 }\n"
        "[edits]\ncaptions_a_source = 1\n",
        encoding="utf-8",
    )
    return file


def run(plan: Path, workspace: Path, pool: Pools, tell: OnLot = lambda _stage, _done: None) -> Images:
    """Run a plan to its end. Return the images."""
    with Workspace(workspace) as opened:
        batches = BatchService(opened)
        number = batches.plan(read_plan(plan))
        if batches.status(number).batch.approved is None:
            opened.batches.approve(number, ahead=True)
        assert Engine(opened, number, batches.order(number), pool, tell=tell).run() == "done"
        return images(opened)


def images(workspace: Workspace) -> Images:
    made: Images = {}
    for summary in workspace.runs.search(1000):
        held = workspace.runs.get(summary.id)
        for case in held.test_cases:
            assert case.image_path.exists() and case.lineage.counterfactual is not None
            key = (held.source_sha, case.lineage.counterfactual.text, case.lineage.seed)
            assert key not in made, "every test case once"
            made[key] = case.image_sha
    return made


def test_two_nodes_make_the_images_of_one_process_also_when_an_actor_is_killed(tmp_path: Path, two_nodes: str) -> None:
    plan = plan_of(tmp_path, 8)
    expected = run(plan, tmp_path / "here", here)
    assert len(expected) == 8
    pools: list[RayPool] = []
    killed: list[int] = []

    def pool(order: Order) -> RayPool:
        pools.append(RayPool(order, make=scripted))
        return pools[-1]

    def kill(stage: Pass, _done: int) -> None:
        if stage == "images" and not killed:
            killed.append(next(slot.process for slot in pools[-1]._slots if slot.process))
            os.kill(killed[0], signal.SIGKILL)

    with on_ray(address=two_nodes):
        assert run(plan, tmp_path / "two", only_for("images", pool), kill) == expected
    assert killed
    assert not leftovers(tmp_path / "two")


@pytest.mark.soak
def test_a_ray_for_itself_makes_the_images_of_one_process(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 16)
    with on_ray(2):
        assert run(plan, tmp_path / "one", partial(RayPool, make=scripted)) == run(plan, tmp_path / "here", here)
    assert not list((tmp_path / "one" / "images").glob(".*")), "no token and no half file"


IN_ANOTHER_PROCESS = """
import sys
from functools import partial
from pathlib import Path
from services.batches.cluster import RayPool, on_ray
from tests.support.batch_workers import scripted
from tests.services.batches.test_cluster import run

def wait(stage, _done):
    if stage == "images":
        print("drawing", flush=True)
        sys.stdin.readline()

with on_ray(2):
    run(Path(sys.argv[1]), Path(sys.argv[2]), partial(RayPool, make=scripted), wait)
"""


@pytest.mark.soak
def test_when_all_of_ray_is_killed_the_next_run_goes_on(tmp_path: Path) -> None:
    plan, workspace = plan_of(tmp_path, 16), tmp_path / "killed"
    command = [sys.executable, "-c", IN_ANOTHER_PROCESS, str(plan), str(workspace)]
    soon = os.environ | {"RAY_NUM_REDIS_GET_RETRIES": "2"}  # Ray gives up the cluster after a minute
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=soon) as driver:
        assert driver.stdin is not None and driver.stdout is not None
        assert "drawing" in driver.stdout.readline()
        for process in psutil.Process(driver.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with suppress(BrokenPipeError):
            driver.stdin.write("\n" * 100)
            driver.stdin.close()
    assert driver.returncode != 0
    with Workspace(workspace) as opened:
        before = images(opened)
    assert 0 < len(before) < 16
    after = run(plan, workspace, here)
    assert after.items() >= before.items() and after == run(plan, tmp_path / "here", here)


@pytest.mark.soak
def test_what_kills_its_worker_three_times_is_set_aside_and_the_rest_is_done(tmp_path: Path, two_nodes: str) -> None:
    plan = plan_of(tmp_path, 6)
    with on_ray(address=two_nodes):
        made = run(plan, tmp_path / "workspace", partial(RayPool, make=Poisoned))
    assert len(made) == 5
    with workspace_in(tmp_path / "workspace") as opened:
        (failure,) = opened.batches.failures(1)
    assert (failure.number, failure.stage, failure.state) == (1, "captions", "failed")
    assert failure.reason == "Its worker died 3 times while it had this."
    assert failure.examples[0].endswith("002.png")


@pytest.mark.soak
def test_what_no_worker_can_do_is_told_in_a_sentence(tmp_path: Path, two_nodes: str) -> None:
    plan = plan_of(tmp_path, 8)
    with on_ray(address=two_nodes):
        with pytest.raises(UserError, match="weights of the captioner are not there"):
            run(plan, tmp_path / "weights", partial(RayPool, workers=1, make=not_there))
        with workspace_in(tmp_path / "gone") as opened:
            batches = BatchService(opened)
            order = batches.order(batches.plan(read_plan(plan)))
            shutil.move(tmp_path / "data", tmp_path / "elsewhere")
            with pytest.raises(UserError, match=r"^The node 127.0.0.1 does not see the data set: mount .* same path"):
                RayPool(order)
            assert not list((order.workspace / "images").glob(".*"))
        with pytest.raises(UserError, match="on Ray already"), on_ray(address=two_nodes):
            pass


@pytest.mark.soak
def test_workers_that_end_one_after_another_end_the_run_in_a_sentence(tmp_path: Path, two_nodes: str) -> None:
    with on_ray(address=two_nodes), pytest.raises(UserError, match="3 workers in a row died"):
        run(plan_of(tmp_path, 8), tmp_path / "deadly", partial(RayPool, workers=1, make=Deadly))


def test_a_stranger_with_another_token_is_not_let_in(two_nodes: str) -> None:
    script = f"from services.batches.cluster import on_ray\nwith on_ray(address={two_nodes!r}): print('in')"
    # Ray tries twenty times, a second apart. A cluster without tokens would accept the first try.
    other = os.environ | {"RAY_AUTH_TOKEN": "0" * 64, "RAY_NUM_REDIS_GET_RETRIES": "2"}
    asked = subprocess.run([sys.executable, "-c", script], env=other, capture_output=True, text=True)
    assert asked.returncode and "in" not in asked.stdout.split()
    assert "No cluster answers" in asked.stderr, asked.stderr


LISTENING = """
import os, psutil
from services.batches.cluster import on_ray
with on_ray(1):
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        for one in process.net_connections():
            if one.status == psutil.CONN_LISTEN:
                print(one.laddr.ip)
"""


def test_a_ray_for_itself_listens_on_this_machine_only() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    asked = subprocess.run([sys.executable, "-c", LISTENING], env=clean, capture_output=True, text=True, check=True)
    assert len(asked.stdout.split()) >= 4, "its head, its node, and this program"
    assert {one.removeprefix("::ffff:") for one in asked.stdout.split()} == {"127.0.0.1"}


def test_without_ray_and_with_an_address_of_another_kind_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(UserError, match=r"with the address of the head node, such as 10\.0\.0\.1:6379"),
        on_ray(None, "ray://x:1"),
    ):
        pass
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install -r requirements-batch\.txt"), on_ray():
        pass


@pytest.mark.soak
@pytest.mark.demo
def test_the_embedded_models_draw_the_same_on_two_nodes_as_in_one_process(tmp_path: Path, two_nodes: str) -> None:
    plan = plan_of(tmp_path, 4)
    expected = run(plan, tmp_path / "process", partial(ProcessPool, workers=1))
    assert len(expected) == 4
    with on_ray(address=two_nodes) as pool:
        assert run(plan, tmp_path / "two", pool) == expected


@pytest.mark.soak
@pytest.mark.demo
def test_processes_and_ray_make_the_same_images_however_many_there_are(tmp_path: Path, two_nodes: str) -> None:
    plan = plan_of(tmp_path, 16)
    expected = run(plan, tmp_path / "one", partial(ProcessPool, workers=1))
    assert len(expected) == 16
    assert run(plan, tmp_path / "eight", partial(ProcessPool, workers=8)) == expected
    with on_ray(2) as pool:
        assert run(plan, tmp_path / "node", pool) == expected
    with on_ray(address=two_nodes) as pool:
        assert run(plan, tmp_path / "nodes", pool) == expected
