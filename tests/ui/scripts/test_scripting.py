"""The scripts of docs/scripting.md, run unchanged except for the address of the studio.

tests/browser/test_records_demo.py runs the first script and the agent's, against a served studio with the embedded
models.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from core.image_filter import ImageFilter
from core.stored_runs import RunSummary
from services.studio import Studio
from tests.support.batch_cases import pictures, plan_text, work_here
from tests.support.called import made_token
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.study_cases import object_runs
from tests.support.voted import MOSTLY, SPLIT, YES, bird_study

pytestmark = pytest.mark.slow
Served = tuple[str, Studio]
ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "scripting.md").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
ADDRESS = "http://127.0.0.1:7860"
PATIENT = """import functools, gradio_client
gradio_client.Client = functools.partial(gradio_client.Client, httpx_kwargs={"timeout": 120})
"""
"""Code before a script. By default the client gives up a server that is silent for five seconds, as on a busy
machine.
"""


def said(name: str, url: str, folder: Path, typed: str = "", replaced: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the output of the script under this heading."""
    script = SCRIPTS[name]
    for old, new in {ADDRESS: url.rstrip("/"), **replaced}.items():
        assert old in script
        script = script.replace(old, new)
    # Keep the downloads and the caches of the script in folders of the test.
    own = {"GRADIO_TEMP_DIR": str(folder / "downloads"), "HF_DATASETS_CACHE": str(folder / "loaded")}
    environment = {**os.environ, **own}
    command = [sys.executable, "-W", "error::DeprecationWarning", "-c", PATIENT + script]
    done = subprocess.run(
        command, cwd=folder, input=typed, capture_output=True, text=True, timeout=300, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_script_is_short_and_run_here() -> None:
    assert list(SCRIPTS) == [
        "From a picture to an accepted test case",
        "A folder of pictures",
        "A study as a data frame",
        "Test cases of all runs",
        "Whole data sets",
        "Decisions about images",
        "From a filter to a set that loads",
        "Plain HTTP",
        "An agent by MCP",
    ]
    assert all(script.count("\n") <= 25 for script in SCRIPTS.values())


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which scripts may plan batches."""
    return tmp_path_factory.mktemp("sets")


@pytest.fixture(scope="module")
def served(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Studio for tests that only look at their own script's results."""
    workspace = tmp_path_factory.mktemp("open") / "workspace"
    with serving_here(workspace, ScriptedModels(), data_roots=(sets,)) as there:
        yield there


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A studio like `served`, with a password."""
    with serving_here(tmp_path_factory.mktemp("locked") / "workspace", ScriptedModels(), "a long password") as there:
        yield there


@contextmanager
def new_runs(studio: Studio) -> Iterator[list[RunSummary]]:
    """Yield a list, which contains the new runs when the context ends."""
    before, made = {run.id for run in studio.runs.latest()}, list[RunSummary]()
    yield made
    made += [run for run in studio.runs.latest() if run.id not in before]


def test_whole_data_sets(served: Served, sets: Path, tmp_path: Path) -> None:
    url, studio = served
    (tmp_path / "plan.toml").write_text(plan_text(pictures(sets / "birds")), encoding="utf-8")
    work_here(studio.batches)
    told = said("Whole data sets", url, tmp_path, replaced={"time.sleep(5)": "time.sleep(0.1)"})
    assert told.startswith("approval [") and told.count("A ") >= 6
    assert [view.state for view in studio.batches.all()] == ["approval"]


@pytest.mark.parametrize("typed", ["yes", "no"])
def test_a_folder_of_pictures(served: Served, tmp_path: Path, typed: str) -> None:
    url, studio = served
    (tmp_path / "pictures").mkdir()
    for name in ("lighthouse", "balloon"):
        shutil.copy(ROOT / "demo" / "samples" / f"{name}.png", tmp_path / "pictures")
    with new_runs(studio) as made:
        told = said("A folder of pictures", url, tmp_path, f"{typed}\n")
    assert told.startswith("Make 8 images? ")
    images = 4 if typed == "yes" else 0
    assert sorted((run.name, run.test_cases) for run in made) == [("balloon", images), ("lighthouse", images)]


def test_a_study_as_a_data_frame(served: Served, tmp_path: Path) -> None:
    url, studio = served
    bird_study(studio.workspace, [YES, MOSTLY, SPLIT])
    told = said("A study as a data frame", url, tmp_path)
    assert "Birds, November 15 of 15 votes" in told
    assert re.search(r"valid\s+consensus\s+2", told) and re.search(r"no consensus\s+1", told)
    assert re.search(r"imported-ada\s+3", told)


def test_cases_of_all_runs_are_found_decided_about_and_made_a_set(tmp_path: Path) -> None:
    """Three scripts run on one workspace, one after another."""
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, studio):
        first = object_runs(studio.workspace, 2)[0]
        studio.workspace.test_cases.review(first, "accepted")
        told = said("Test cases of all runs", url, tmp_path)
        assert "1 accepted in snow, by class: {'bird': 1}" in told and "and then after \n" in told
        assert "bird weather 2 {'accepted': 1, 'open': 1}" in told and "boat time of day 2 {'open': 2}" in told

        studio.workspace.test_cases.review(first, "open")
        lines = said("Decisions about images", url, tmp_path).splitlines()
        birds = ImageFilter(facets={"class": ("bird",)})
        decided = studio.workspace.catalogue.page(birds).entries
        assert lines[0] == "Rejected 3 images."
        assert lines[1] == "Taken back: the verdict “rejected: blurred” on 3 images."
        assert lines[2] == f"Accepted {len(decided)} images." and len(lines) == 5, "the undo has no name"
        assert {(one.verdict, one.reviewer) for one in decided} == {("accepted", "Ada")}

        studio.commands.send("decide", {"filter": "class=bird", "verdict": "open", "author": "Eve"})
        made = said("From a filter to a set that loads", url, tmp_path).splitlines()[-1]
        assert re.fullmatch(rf"{len(decided)} of {len(decided)} \S+ \(\d+, \d+\)", made) and len(decided) > 1


@pytest.mark.parametrize("password", [False, True])
def test_plain_http(request: pytest.FixtureRequest, password: bool) -> None:
    url, studio = request.getfixturevalue("locked" if password else "served")
    shown = ")"
    if password:
        shown = f", headers={{'Authorization': 'Bearer {made_token(studio, 'curl').text}'}})"
    with new_runs(studio) as made:
        told = said("Plain HTTP", url, ROOT, replaced={", timeout=60)": f", timeout=60{shown}"})
    (run,) = made
    accepted = [case.review.verdict for case in studio.workspace.runs.get(run.id).test_cases if case.review]
    assert re.fullmatch(r"\d{4,} bytes", told.strip()) and run.name == "lighthouse" and accepted == ["accepted"]


def test_the_first_script_with_a_token(locked: Served, tmp_path: Path) -> None:
    url, studio = locked
    (tmp_path / "demo" / "samples").mkdir(parents=True)
    shutil.copy(ROOT / "demo" / "samples" / "lighthouse.png", tmp_path / "demo" / "samples")
    shown = f"headers={{'Authorization': 'Bearer {made_token(studio, 'notebook').text}'}}, verbose=False)"
    with new_runs(studio) as made:
        told = said("From a picture to an accepted test case", url, tmp_path, replaced={"verbose=False)": shown})
    assert Path(told.strip()).read_bytes().startswith(b"\x89PNG")
    (run,) = made
    assert (run.name, run.test_cases, run.accepted) == ("lighthouse", 1, 1)
