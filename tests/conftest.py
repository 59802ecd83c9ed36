"""Fixtures of all tests: no network, and a Chromium for those that need one. Other fixtures are next to their tests."""

from __future__ import annotations

import atexit
import gc
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

import pipeline.recipes  # noqa: F401 - tells storage the types of stages' values, as every program of the studio does
from ui.quick_gradio import no_stubs

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

    from services.studio import Studio
    from tests.support.made_once import MadeOnce

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub, which reads it once
# A folder without certificates. httpx reads all that a machine trusts for each client: 20 ms, and no test needs one.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
# Before anything imports numba: of few images it would be compiled for twenty seconds. `make soak` compiles it.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    # The results are with the main process by then. To free what is there would take Python several seconds.
    atexit.register(os._exit, 0)
else:
    # Libraries complain of what is frozen when the process ends. Not sooner: after the last test pytest looks for
    # garbage twice, which takes a second or more each time if it goes through all modules.
    atexit.register(gc.unfreeze)
gc.disable()  # until all tests are collected: it would take a third of that time, and there is no garbage yet

ALL_SLOW = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)
STARTS_PROCESSES = {f"tests/services/batches/test_{name}.py" for name in ("beside", "cluster", "shards")}
LOADS_MODELS = ("tests/pipeline/", "tests/services/batches/test_kills.py", "tests/services/batches/test_profiles.py")
LOADS_MODELS_UNDER_TEST = ("tests/evaluation/", "tests/services/evaluation/")
IN_MEMORY = Path("/dev/shm")
if IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > 4 << 30:
    # Two thousand tests with a database each wait a sixth of their time for a disk. No test is about power failure.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import what tests import as the studio does."""
    with no_stubs():
        return (yield)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave a file unread if all of its tests are slow and none of those is asked for: what they import is slow too."""
    if "not slow" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return bool(ALL_SLOW.search(collection_path.read_text(encoding="utf-8"))) or None


@pytest.hookimpl(tryfirst=True)  # before pytest goes by the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark browser tests, by their fixture. Put first what takes longest, so that what is short fills the gaps: the
    groups, then the files with a browser, of which a long file takes long.
    """
    for item in items:
        if "chromium_path" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    sizes = {path: path.stat().st_size for path in {item.path for item in items} if path.parent.name == "browser"}
    items.sort(key=lambda item: (_group(item.nodeid) is None, -sizes.get(item.path, 0)))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from going through all modules again and again: a tenth of the work of all tests."""
    _freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_runtest_setup() -> None:
    """Do so again once a test has imported a large library: models that are released ask for a collection each."""
    if len(sys.modules) > modules_frozen + 500:
        _freeze()


modules_frozen = 0


def _freeze() -> None:
    """Keep existing garbage with the rest: to look for it would take longer than all later collections."""
    global modules_frozen
    gc.freeze()
    modules_frozen = len(sys.modules)


def _group(nodeid: str) -> str | None:
    """The name of a group of files that one core runs one after another, or None.

    Files that load models share torch, diffusers, transformers and the embedded models, which take a core many seconds;
    files that load models under test share torch, torchvision and timm. Files that start several processes each would
    take the cores from each other.
    """
    file = nodeid.partition("::")[0]
    if file.endswith("_demo.py") or file.startswith(LOADS_MODELS):
        return "models"
    if file.startswith(LOADS_MODELS_UNDER_TEST):
        return "models under test"
    return "processes" if file in STARTS_PROCESSES else None


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """For all tests one more than there are cores: those with a browser wait a third of their time."""
    return (os.cpu_count() or 1) + (config.getoption("dist") == "loadfile")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Give each core a file or a group of files at a time."""
    if config.getoption("dist") != "loadfile":
        return None

    class FilesInGroups(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid) or super()._split_scope(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            """Give every third worker the last file and not the first. Files with a browser stand together and wait a
            lot: so a worker that computes runs beside them, and not all wait at once and all compute later. They meet
            at the shortest of these files.
            """
            if int(node.gateway.id.removeprefix("gw")) % 3 == 2:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return FilesInGroups(config, log)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """For playwright's `executable_path`. Without Chromium the test is skipped, or fails on a build server (CI set)."""
    from tests.support.chromium import ADVICE, find_chromium

    path = find_chromium()
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(ADVICE)
        pytest.skip(ADVICE)
    return path


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Folders that are slow to make, such as a workspace of many images: once for all tests of a run."""
    from tests.support.made_once import MadeOnce

    return MadeOnce(tmp_path_factory)


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    """A studio of the demo profile with stand-ins for its models, on a new workspace."""
    from tests.support.scripted import studio_in

    with studio_in(tmp_path) as made:
        yield made
