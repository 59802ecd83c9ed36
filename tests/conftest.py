"""Fixtures of all tests: no network, and Chromium for the tests that need a browser. Other fixtures are near their
tests.
"""

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

os.environ["HF_HUB_OFFLINE"] = "1"  # set before huggingface_hub is imported, which reads the variable once
# Name a folder without certificates. httpx would read all of the machine's for each client, which takes 20 ms.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)
# Set before numba is imported. For few images, numba would compile for twenty seconds. `make soak` compiles.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Leave without freeing memory, which would take Python several seconds. The main process has the results by then.
    atexit.register(os._exit, 0)
else:
    # Libraries complain about frozen objects when the process ends. Unfreeze no sooner: after the last test pytest
    # collects garbage twice, which takes a second or more each time if all modules are searched.
    atexit.register(gc.unfreeze)
gc.disable()  # off until all tests are collected: the collector would take a third of that time and find nothing

ALL_SLOW = re.compile(r"^pytestmark = .*\bmark\.slow\b", re.MULTILINE)
STARTS_PROCESSES = {f"tests/services/batches/test_{name}.py" for name in ("beside", "cluster", "shards")}
LOADS_SMALL_MODELS = "tests/pipeline/models/"
LOADS_MODELS = ("tests/pipeline/", "tests/services/batches/test_kills.py", "tests/services/batches/test_profiles.py")
LOADS_MODELS_UNDER_TEST = ("tests/evaluation/", "tests/services/evaluation/")
IN_MEMORY = Path("/dev/shm")
if IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > 4 << 30:
    # Two thousand tests with a database would wait for the disk a sixth of their time. No test is about power failure.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep Gradio from writing type stubs while pytest imports the tests. The studio starts like this too."""
    with no_stubs():
        return (yield)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip a file whose tests are all marked slow if slow tests are deselected, since its imports are slow too."""
    if "not slow" not in config.option.markexpr or collection_path.suffix != ".py":
        return None
    return bool(ALL_SLOW.search(collection_path.read_text(encoding="utf-8"))) or None


@pytest.hookimpl(tryfirst=True)  # runs before pytest selects tests by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests with the Chromium fixture as browser tests. Put the longest work first, so that short tests fill
    the gaps: the groups first, then the browser tests, longest file first.
    """
    for item in items:
        if "chromium_path" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    sizes = {path: path.stat().st_size for path in {item.path for item in items} if path.parent.name == "browser"}
    items.sort(key=lambda item: (_group(item.nodeid) is None, -sizes.get(item.path, 0)))


def pytest_collection_finish() -> None:
    """Freeze the imported modules, so that the garbage collector does not search them. It saves a tenth of all
    tests' time.
    """
    _freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()


def pytest_runtest_setup() -> None:
    """Freeze again once a test has imported a large library. Models ask for a garbage collection when they are
    released.
    """
    if len(sys.modules) > modules_frozen + 500:
        _freeze()


modules_frozen = 0


def _freeze() -> None:
    """Freeze all objects. Existing garbage stays: finding it would take longer than all later collections."""
    global modules_frozen
    gc.freeze()
    modules_frozen = len(sys.modules)


def _group(nodeid: str) -> str | None:
    """Return the name of the group of files that one core runs one after another, or None.

    Files that load models share torch, diffusers, transformers and the embedded models, which take a core many seconds.
    Files of small models with random weights, which do without the embedded ones, are another group of that length.
    Files that load models under test share torch, torchvision and timm. Files that start several processes would
    compete for the cores.
    """
    file = nodeid.partition("::")[0]
    if file.startswith(LOADS_SMALL_MODELS):
        return "small models"
    if file.endswith("_demo.py") or file.startswith(LOADS_MODELS):
        return "models"
    if file.startswith(LOADS_MODELS_UNDER_TEST):
        return "models under test"
    return "processes" if file in STARTS_PROCESSES else None


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return the number of workers. For all tests it is one more than the cores, since browser tests wait a third of
    the time.
    """
    return (os.cpu_count() or 1) + (config.getoption("dist") == "loadfile")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Return a scheduler that gives each core a file or a group of files at a time."""
    if config.getoption("dist") != "loadfile":
        return None

    class FilesInGroups(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid) or super()._split_scope(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            """Give every third worker the last file instead of the first. Browser tests stand together and wait
            often. So a worker that computes runs beside them, instead of all waiting first and all computing later.
            The workers meet at the shortest files.
            """
            if int(node.gateway.id.removeprefix("gw")) % 3 == 2:
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    return FilesInGroups(config, log)


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Return the path of Chromium for playwright. Without Chromium, skip the test, or fail on a build server (CI
    set).
    """
    from tests.support.chromium import ADVICE, find_chromium

    path = find_chromium()
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(ADVICE)
        pytest.skip(ADVICE)
    return path


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Return the maker of folders that are slow to fill, such as a workspace of many images. A test run fills each
    once.
    """
    from tests.support.made_once import MadeOnce

    return MadeOnce(tmp_path_factory)


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    """A studio of the demo profile with stand-ins for its models, on a new workspace."""
    from tests.support.scripted import studio_in

    with studio_in(tmp_path) as made:
        yield made
