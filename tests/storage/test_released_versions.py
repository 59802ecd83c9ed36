"""Files of released versions open without loss. Each version has a folder in `tests/fixtures`.

`expected.json` holds the facts that the version itself read from its files. This module reads the facts, so that a
later version can read the same facts in another way.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.image_filter import ImageFilter
from core.types import to_plain
from pipeline.run_files import run_file
from pipeline.run_files.embedded import require_run_in
from services.studies.exports import restore_study
from storage.backup import restore
from storage.damage import catalogue_faults
from storage.workspace import DATABASE, Workspace
from tests.support.cases import made_case
from tests.support.workspaces import workspace_in

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
VERSIONS = ("0.1.0",)
LATER = ("start", "fresh_noise", "fresh_noise_by_type", "inversion_evaluations")
"""Settings for drawing that were added after 0.1.0."""
Facts = Mapping[str, Any]


def workspace_facts(folder: Path) -> Facts:
    """Return the facts in a workspace: its runs, decisions, test sets, and the votes of its studies."""
    with Workspace(folder) as workspace:
        runs = [workspace.runs.get(summary.id) for summary in workspace.runs.search()]
        sets = [workspace.test_sets.get(one.id) for one in workspace.test_sets.all()]
        return {
            "runs": [
                {
                    "id": run.id,
                    "name": run.name,
                    "profile": run.profile,
                    "recipe": run.recipe,
                    "task": to_plain(run.task),
                    "settings": dict(run.settings),
                    "source": run.source_sha,
                    "values": {name: to_plain(stored.value) for name, stored in run.values.items()},
                    "test_cases": [
                        {
                            "image": case.image_sha,
                            "lineage": case.lineage.plain(),
                            "checks": to_plain(case.checks),
                            "review": [case.review.verdict, case.review.reason] if case.review else None,
                        }
                        for case in run.test_cases
                    ],
                }
                for run in runs
            ],
            "catalogue": [
                {
                    "test_case": one.test_case,
                    "classes": list(one.classes),
                    "verdict": one.verdict,
                    "tags": list(one.tags),
                    "standings": dict(one.standings),
                    "studies": list(one.study_outcomes),
                }
                for one in workspace.catalogue.page().entries
            ],
            "test_sets": [
                {
                    "name": one.name,
                    "versions": [
                        {
                            "place": version.place,
                            "id": version.id,
                            "note": version.note,
                            "entries": [
                                [entry.image, entry.source, entry.label, entry.split]
                                for entry in workspace.test_sets.entries(version.number)
                            ],
                        }
                        for version in one.versions
                    ],
                }
                for one in sets
            ],
            "studies": {one.name: study_facts(workspace, one.id) for one in workspace.studies.all()},
        }


def study_facts(workspace: Workspace, study: str) -> Facts:
    """Return the facts of a study: its rules, its items and its votes."""
    data = workspace.studies.data(study)
    return {
        "rules": to_plain(data.study.rules),
        "items": [[item.image_sha, item.kind, item.label, item.test_case] for item in data.items],
        "votes": [[vote.item, vote.worker, dict(vote.answers), vote.comment] for vote in data.votes],
    }


def known_then(run: Facts) -> Facts:
    """Return the facts of a run without the settings added after 0.1.0. In files of 0.1.0 these have their defaults."""
    settings = {name: dict(section) for name, section in run["settings"].items()}
    assert [settings["generation"].pop(name) for name in LATER] == ["noise", 0.0, "", 3]
    return {**run, "settings": settings}


def without_checks_of_captions(facts: Any) -> Any:
    """Drop the checks of counterfactual captions, which came after 0.1.0 and are empty in its files."""
    if isinstance(facts, list):
        return [without_checks_of_captions(one) for one in facts]
    if not isinstance(facts, dict):
        return facts
    kept = {name: without_checks_of_captions(one) for name, one in facts.items()}
    if {"text", "edits", "used"} <= kept.keys():
        assert kept.pop("checks") == []
    return kept


def folder_facts(folder: Path) -> Facts:
    """Return the facts in the folder of a run without a browser."""
    run = run_file.read(folder / run_file.FILE)
    for image in run.images:
        run_file.load_case(image, folder)
    return {
        "run": known_then(run.run.plain()),
        "seed": run.seed,
        "images": [image.record.plain() for image in run.images],
    }


def image_facts(image: bytes) -> Facts:
    """Return the facts about its run that a saved image holds."""
    saved = require_run_in(image)
    assert saved.case is not None and saved.source is not None
    review = to_plain(saved.review) if saved.review else None
    return {"run": saved.run.plain(), "lineage": saved.case.lineage.plain(), "review": review}


def facts_of(folder: Path, scratch: Path) -> Facts:
    """Return all facts in the files of a version. Archives are unpacked into `scratch`."""
    restore(folder / "workspace.zip", scratch / "workspace")
    with workspace_in(scratch / "another") as workspace:
        study, _ = restore_study(workspace, folder / "study.zip")
        restored = study_facts(workspace, study)
    found = {
        "workspace": workspace_facts(scratch / "workspace"),
        "study": restored,
        "folder": folder_facts(folder / "run"),
        "image": image_facts((folder / "saved.png").read_bytes()),
    }
    facts: Facts = without_checks_of_captions(json.loads(json.dumps(found)))
    return facts


@pytest.mark.parametrize("version", VERSIONS)
def test_files_of_a_released_version_say_the_same(version: str, tmp_path: Path) -> None:
    expected = json.loads((FIXTURES / version / "expected.json").read_text("utf-8"))
    found = facts_of(FIXTURES / version, tmp_path)
    for part in expected:
        assert found[part] == expected[part], part
    assert catalogue_faults(tmp_path / "workspace" / DATABASE) == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_work_goes_on_in_a_workspace_of_a_released_version(version: str, tmp_path: Path) -> None:
    restore(FIXTURES / version / "workspace.zip", tmp_path / "workspace")
    with Workspace(tmp_path / "workspace") as workspace:
        (run,) = workspace.runs.search()
        case = workspace.test_cases.append(run.id, None, made_case(Image.new("RGB", (48, 32)), seed=9))
        workspace.test_cases.review(case, "rejected")
        assert workspace.catalogue.count(ImageFilter({"review": ("rejected",)})).number == 1
    assert catalogue_faults(tmp_path / "workspace" / DATABASE) == ()
