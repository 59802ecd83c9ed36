"""The list of runs without a browser: progress, dates and actions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from core.stored_runs import RunSummary
from core.types import Task
from services.jobs import JobView
from services.runs.life_cycle import Listing
from services.studio import Studio
from tests.support.scripted import perform
from tests.ui.explore.test_ui_studio import new_run
from ui.explore.runs import date_words, run_list, state_of

NASTY = "<script>alert(1)</script> \"'&"


def summary(**changes: object) -> RunSummary:
    then = datetime(2025, 3, 3, 9, 5, tzinfo=UTC)
    given: dict[str, object] = {
        "id": "0" * 16,
        "name": "A bird",
        "task": Task("classification", "bird"),
        "profile": "demo",
        "sample": "",
        "source_sha": "a" * 64,
        "created": then,
        "changed": then,
        "stages": (),
        "test_cases": 0,
    }
    return RunSummary(**{**given, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "job", "said"),
    [
        ({}, None, "not begun"),
        ({"stages": ("caption", "keywords")}, None, "keywords done"),
        ({"stages": ("caption", "counterfactuals")}, None, "ready to generate"),
        ({"stages": ("caption", "keywords"), "recipe": "reconstruction"}, None, "ready to generate"),
        ({"stages": ("caption", "counterfactuals"), "recipe": "unknown"}, None, "counterfactual captions done"),
        ({"test_cases": 1}, None, "1 result"),
        ({"test_cases": 4, "accepted": 3, "job": "done"}, None, "3 of 4 results accepted"),
        ({"test_cases": 2, "job": "interrupted"}, None, "interrupted · 2 results"),
        ({"job": "failed"}, None, "failed"),
        ({"job": "cancelled"}, None, "not begun"),
        ({}, JobView(1, "x", ("caption",), "waiting"), "in the queue"),
        ({"job": "interrupted"}, JobView(1, "x", ("generation",), "running", "generation"), "generating"),
    ],
)
def test_how_far_a_run_is(changes: dict[str, object], job: JobView | None, said: str) -> None:
    assert state_of(summary(**changes), job) == said


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (datetime(2025, 3, 3, 9, 5, tzinfo=UTC), "10:05"),
        (datetime(2025, 3, 2, 23, 30, tzinfo=UTC), "00:30"),
        (datetime(2025, 3, 2, 22, 30, tzinfo=UTC), "yesterday"),
        (datetime(2025, 2, 1, 12, 0, tzinfo=UTC), "1 Feb"),
        (datetime(2024, 12, 31, 12, 0, tzinfo=UTC), "31 Dec 2024"),
        (datetime(2025, 3, 4, 12, 0, tzinfo=UTC), "13:00"),
    ],
)
def test_dates_are_said_as_people_say_them(moment: datetime, said: str) -> None:
    now = datetime(2025, 3, 3, 18, 0, tzinfo=timezone(timedelta(hours=1)))
    assert date_words(moment, now) == said


def test_names_are_text_and_a_search_shows_where_many_runs_are(studio: Studio) -> None:
    run_id = new_run(studio)
    studio.workspace.runs.rename(run_id, NASTY)
    markup = run_list(studio.runs.listing(), run_id)
    assert "<script>" not in markup and "&lt;script&gt;" in markup
    assert "find-run" not in markup
    for _ in range(6):
        new_run(studio)
    assert "find-run" in run_list(studio.runs.listing(), "")
    found = studio.runs.listing(" <SCRIPT> ")
    assert (len(found.runs), found.found, found.total) == (1, 1, 7)
    assert "No run has “&lt;b&gt;”" in run_list(studio.runs.listing("<b>"), "")
    assert "The latest 1 of 90 are shown" in run_list(Listing((summary(),), 90, 90), "")


def test_a_run_is_duplicated_deleted_and_put_back(studio: Studio) -> None:
    run_id = new_run(studio)
    copy = perform(studio, run_id, "run-duplicate", run=run_id).run_id
    assert copy != run_id and studio.workspace.runs.get(copy).name == "bird, copy"
    assert perform(studio, copy, "delete-run", run=run_id).run_id == copy
    assert perform(studio, copy, "delete-run", run=copy).run_id == "", "its page becomes the start page"
    assert studio.runs.listing().total == 0 and len(studio.runs.listing().removed) == 2
    assert perform(studio, "", "restore-run", run=run_id).run_id == run_id
    assert [run.id for run in studio.runs.listing().runs] == [run_id]
    for name in ("run-duplicate", "delete-run", "restore-run"):
        assert "has no run" in perform(studio, "", name, run="../x").problem
