"""The scripts of docs/scripting.md, run as they stand there but for the address of the studio.

The first one and the agent's run in tests/browser/test_records_demo.py, against the studio as it is served, with the
embedded models.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from core.image_filter import ImageFilter
from tests.support.batch_cases import pictures, plan_text, work_here
from tests.support.called import made_token
from tests.support.scripted import ScriptedModels
from tests.support.serving import serving_here
from tests.support.study_cases import object_runs
from tests.support.voted import MOSTLY, SPLIT, YES, bird_study

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "scripting.md").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
ADDRESS = "http://127.0.0.1:7860"
PATIENT = """import functools, gradio_client
gradio_client.Client = functools.partial(gradio_client.Client, httpx_kwargs={"timeout": 120})
"""
"""Put before a script: the client gives up a server that is silent for five seconds, as on a busy machine."""


def said(name: str, url: str, folder: Path, typed: str = "", replaced: Mapping[str, str] = MappingProxyType({})) -> str:
    """What the script prints that stands under this heading."""
    script = SCRIPTS[name]
    for old, new in {ADDRESS: url.rstrip("/"), **replaced}.items():
        assert old in script
        script = script.replace(old, new)
    # What the client downloads, and what is remembered of loaded sets, goes to folders of the test's own.
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


def test_whole_data_sets(tmp_path: Path) -> None:
    root = pictures(tmp_path / "sets" / "birds")
    (tmp_path / "plan.toml").write_text(plan_text(root), encoding="utf-8")
    with serving_here(tmp_path / "workspace", ScriptedModels(), data_roots=(tmp_path / "sets",)) as (url, studio):
        work_here(studio.batches)
        told = said("Whole data sets", url, tmp_path, replaced={"time.sleep(5)": "time.sleep(0.1)"})
        assert told.startswith("approval [") and told.count("A ") >= 6
        assert [view.state for view in studio.batches.all()] == ["approval"]


@pytest.mark.parametrize("typed", ["yes", "no"])
def test_a_folder_of_pictures(tmp_path: Path, typed: str) -> None:
    (tmp_path / "pictures").mkdir()
    for name in ("lighthouse", "balloon"):
        shutil.copy(ROOT / "demo" / "samples" / f"{name}.png", tmp_path / "pictures")
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, studio):
        told = said("A folder of pictures", url, tmp_path, f"{typed}\n")
        assert told.startswith("Make 8 images? ")
        made = {run.name: run.test_cases for run in studio.runs.latest()}
        assert made == dict.fromkeys(("lighthouse", "balloon"), 4 if typed == "yes" else 0)


def test_a_study_as_a_data_frame(tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, studio):
        bird_study(studio.workspace, [YES, MOSTLY, SPLIT])
        told = said("A study as a data frame", url, tmp_path)
    assert "Birds, November 15 of 15 votes" in told
    assert re.search(r"valid\s+consensus\s+2", told) and re.search(r"no consensus\s+1", told)
    assert re.search(r"imported-ada\s+3", told)


def test_test_cases_of_all_runs(tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, studio):
        cases = object_runs(studio.workspace, 2)
        studio.workspace.test_cases.review(cases[0], "accepted")
        told = said("Test cases of all runs", url, tmp_path)
    assert "1 accepted in snow, by class: {'bird': 1}" in told and "and then after \n" in told
    assert "bird weather 2 {'accepted': 1, 'open': 1}" in told and "boat time of day 2 {'open': 2}" in told


def test_decisions_about_images(tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, studio):
        object_runs(studio.workspace, 2)
        told = said("Decisions about images", url, tmp_path).splitlines()
        birds = studio.workspace.catalogue.page(ImageFilter(facets={"class": ("bird",)})).entries
    assert told[0] == "Rejected 3 images."
    assert told[1] == "Taken back: the verdict “rejected: blurred” on 3 images."
    assert told[2] == f"Accepted {len(birds)} images." and len(told) == 5, "the undo has no name"
    assert {(one.verdict, one.reviewer) for one in birds} == {("accepted", "Ada")}


def test_from_a_filter_to_a_set_that_loads(tmp_path: Path) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels()) as (url, studio):
        object_runs(studio.workspace, 2)
        told = said("From a filter to a set that loads", url, tmp_path).splitlines()[-1]
        birds = studio.workspace.catalogue.page(ImageFilter(facets={"class": ("bird",)})).entries
    assert re.fullmatch(rf"{len(birds)} of {len(birds)} \S+ \(\d+, \d+\)", told) and len(birds) > 1


@pytest.mark.parametrize("password", ["", "a long password"])
def test_plain_http(tmp_path: Path, password: str) -> None:
    with serving_here(tmp_path / "workspace", ScriptedModels(), password) as (url, studio):
        token = made_token(studio, "curl").text
        shown = f", headers={{'Authorization': 'Bearer {token}'}})" if password else ")"
        told = said("Plain HTTP", url, ROOT, replaced={", timeout=60)": f", timeout=60{shown}"})
        (run,) = studio.runs.latest()
        accepted = [case.review.verdict for case in studio.workspace.runs.get(run.id).test_cases if case.review]
    assert re.fullmatch(r"\d{4,} bytes", told.strip()) and run.name == "lighthouse" and accepted == ["accepted"]


def test_the_first_script_with_a_token(tmp_path: Path) -> None:
    (tmp_path / "demo" / "samples").mkdir(parents=True)
    shutil.copy(ROOT / "demo" / "samples" / "lighthouse.png", tmp_path / "demo" / "samples")
    with serving_here(tmp_path / "workspace", ScriptedModels(), "a long password") as (url, studio):
        made = made_token(studio, "notebook")
        shown = f"headers={{'Authorization': 'Bearer {made.text}'}}, verbose=False)"
        told = said("From a picture to an accepted test case", url, tmp_path, replaced={"verbose=False)": shown})
        assert Path(told.strip()).read_bytes().startswith(b"\x89PNG")
        (run,) = studio.runs.latest()
        assert (run.name, run.test_cases, run.accepted) == ("lighthouse", 1, 1)
