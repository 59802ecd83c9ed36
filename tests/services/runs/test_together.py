"""Several runs at once: shared settings, settings of each run, and one approval for all."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from core.errors import UserError
from pipeline.recipes import DILLEMA
from services.jobs import JobHandle, JobView
from services.runs.bulk_runs import DoneTogether
from services.runs.state import profile_options
from services.studio import Studio
from tests.support.explorer import encoded
from tests.support.scripted import (
    ScriptedCaptioner,
    ScriptedLanguageModel,
    ScriptedModels,
    answer,
    parts_of,
    perform,
    studio_in,
)
from tests.support.serving import until
from ui.explore.runs import together_part

COLOURS = ("red", "green", "blue")


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    with studio_in(tmp_path) as made:
        yield made


def given(studio: Studio) -> list[str]:
    """Runs of three pictures, without labels."""
    pictures = [encoded(Image.new("RGB", (60, 40), colour)) for colour in COLOURS]
    return [studio.runs.from_upload(data, f"{colour}.png") for data, colour in zip(pictures, COLOURS, strict=True)]


def send(studio: Studio, name: str, runs: list[str], **fields: object) -> DoneTogether:
    done: DoneTogether = studio.commands.send(f"together-{name}", {"runs": runs, **fields})
    until(lambda: not studio.jobs.active())
    return done


def test_several_pictures_get_one_task_and_the_same_settings_and_all_are_run(studio: Studio) -> None:
    runs = given(studio)
    with pytest.raises(UserError, match="label"):
        send(studio, "run", runs)
    send(studio, "task", runs, kind="classification", label="bird")
    studio.commands.send("task", {"run": runs[1], "kind": "classification", "label": ""})
    send(studio, "setting", runs, setting="counterfactuals.captions", value="2")
    send(studio, "setting", runs, setting="generation.steps", value=2)
    with pytest.raises(UserError, match="steps"):
        send(studio, "setting", runs, setting="generation.steps", value=0)

    done = send(studio, "run", [*runs, "nothing"])
    assert done.done == (runs[0], runs[2]) and "label" in done.refused[runs[1]], "one that cannot run stops no other"
    assert "has no run" in done.refused["nothing"]
    shown = studio.together.of([*runs, "nothing"])
    assert shown.ids == tuple(runs) and shown.images == 4 and not shown.ready()[1:]
    markup = parts_of(studio, "", tuple(runs))["together"]
    assert "Generate 4 images" in markup and "needs a label" in markup and "red" in markup

    at_work = JobView(1, runs[1], ("caption",), "running", "caption")
    busy = replace(shown, runs=tuple(replace(one, job=at_work) if one.run.id == runs[1] else one for one in shown.runs))
    shown_busy = together_part(busy, profile_options(studio.profile))
    assert "Once the stages of all are done" in shown_busy, "what it shows still grows"
    assert "Once the stages of all are done" not in markup

    # The other run is ready now, so the plan that was shown is out of date.
    send(studio, "task", [runs[1]], kind="classification", label="bird")
    send(studio, "run", runs)
    with pytest.raises(UserError, match="changed after they were shown"):
        send(studio, "generate", runs, shown=shown.shown)
    now = studio.together.of(runs)
    studio.commands.send("together-generate", {"runs": runs, "shown": now.shown})
    until(lambda: not studio.jobs.active())
    states = studio.together.of(runs).runs
    assert [len(state.run.test_cases) for state in states] == [2, 2, 2] and now.images == 6
    assert {case.lineage.settings.steps for state in states for case in state.run.test_cases} == {2}
    markup = parts_of(studio, "", tuple(runs))["together"]
    assert markup.count("</svg>drawn</span>") == 3 and "to draw" not in markup and "Generate 6 more images" in markup


def test_several_pictures_take_recipe_preset_and_every_setting_as_one_does(studio: Studio) -> None:
    runs = given(studio)
    before = studio.together.of(runs).runs[0].settings
    send(studio, "preset", runs, preset="draft")
    send(studio, "setting", runs[:2], setting="keywords.attempts", value="2")
    send(studio, "setting", runs, setting="generation.seed_mode", value="fixed")
    shown, markup = studio.together.of(runs), parts_of(studio, "", tuple(runs))["together"]
    assert {state.settings.generation.steps for state in shown.runs} == {studio.profile.preset("draft")["steps"]}
    for held in (r'chip on"[^>]*data-preset="draft"', r'chip on"[^>]*data-value="fixed"'):
        assert re.search(held, markup), held
    field = re.search(r'<input[^>]*id="together-keywords-attempts"[^>]*>', markup)
    assert field and 'placeholder="differs"' in field[0] and 'value=""' in field[0]
    with pytest.raises(UserError, match="There is no preset 'x'"):
        send(studio, "preset", runs, preset="x")
    with pytest.raises(UserError, match=r"attempts.* was not changed: it has to be a whole number from 1 to 10"):
        send(studio, "setting", runs, setting="keywords.attempts", value="99")

    send(studio, "defaults", runs, sections="keywords,generation")
    assert {state.settings for state in studio.together.of(runs).runs} == {before}
    send(studio, "recipe", runs, recipe="reconstruction")
    assert {state.recipe.name for state in studio.together.of(runs).runs} == {"reconstruction"}
    markup = parts_of(studio, "", tuple(runs))["together"]
    assert 'data-recipe="reconstruction"' in markup and "together-keywords" not in markup, "it has no keywords"

    # A refusal names its run, and the other runs change.
    studio.runs.delete(runs[0])
    studio.commands.send("task", {"run": runs[1], "kind": "classification", "label": "bird"})
    refused = perform(studio, "", "together-run", runs=",".join(runs[1:]))
    assert "Not done for 1 of 2. “blue”: " in refused.problem and "label" in refused.problem


def test_what_is_not_given_of_a_task_stays_with_each_run(studio: Studio) -> None:
    runs = given(studio)
    for run, label in zip(runs, COLOURS, strict=True):
        studio.commands.send("task", {"run": run, "kind": "classification", "label": label})
    send(studio, "task", runs, kind="classification")
    assert [state.run.task.label for state in studio.together.of(runs).runs] == list(COLOURS)
    send(studio, "task", runs, kind="segmentation", protected="road, car")
    assert {state.run.task.protected for state in studio.together.of(runs).runs} == {("road", "car")}


class InTurns(ScriptedModels):
    """Models that do not fit into memory together. `order` has the name of the model that each request reached."""

    fit_together = False

    def __init__(self) -> None:
        self.order = order = list[str]()

        class Captioner(ScriptedCaptioner):
            def caption(self, *asked: Any) -> tuple[str, str]:
                order.append("captioner")
                return super().caption(*asked)

        def replied(prompt: str) -> str:
            order.append("language model")
            return answer(prompt)

        super().__init__(ScriptedLanguageModel(replied))
        self.captioner = Captioner()


def waiting_job(studio: Studio) -> threading.Event:
    """Begin a job that ends when the returned event is set, so that all further jobs are queued by then."""
    go_on = threading.Event()

    def wait(_handle: JobHandle) -> None:
        go_on.wait(60)

    studio.jobs.submit("another", (), wait)
    return go_on


def test_a_model_works_for_all_runs_before_the_next_if_they_do_not_fit_together(studio: Studio) -> None:
    studio.driver.models = models = InTurns()
    runs, all_wait = given(studio), waiting_job(studio)
    studio.commands.send("together-task", {"runs": runs, "kind": "classification", "label": "bird"})
    studio.commands.send("together-run", {"runs": runs})
    all_wait.set()
    until(lambda: not studio.jobs.active())
    assert models.order[:4] == ["captioner"] * 3 + ["language model"] and models.order.count("captioner") == 3
    states = studio.together.of(runs).runs
    assert [state.gate.plan is not None for state in states] == [True] * 3, "all wait for a yes"
    studio.commands.send("undo", {"run": runs[0]})
    assert not studio.workspace.runs.get(runs[0]).values, "the values of a job are undone together"

    models.fit_together = True
    models.order.clear()
    again = given(studio)
    studio.commands.send("together-task", {"runs": again, "kind": "classification", "label": "bird"})
    send(studio, "run", again)
    assert [name for name, _ in groupby(models.order)] == ["captioner", "language model"] * 3


def test_a_run_that_waits_for_its_next_model_can_be_cancelled_or_fail_alone(studio: Studio) -> None:
    studio.driver.models = models = InTurns()
    runs, all_wait, asked = given(studio), waiting_job(studio), list[str]()

    def spoilt(prompt: str) -> str:
        if not asked:
            studio.commands.send("cancel", {"run": runs[1]})
        asked.append(prompt)
        return "I cannot help with that." if "gnu" in prompt else answer(prompt)

    models.language = ScriptedLanguageModel(spoilt)
    for run, label in zip(runs, ("bird", "bird", "gnu"), strict=True):
        studio.commands.send("task", {"run": run, "kind": "classification", "label": label})
    studio.commands.send("together-run", {"runs": runs})
    all_wait.set()
    until(lambda: not studio.jobs.active())
    jobs = [studio.jobs.of_run(run) for run in runs]
    assert [job and job.state for job in jobs] == ["done", "cancelled", "failed"]
    values = [set(studio.workspace.runs.get(run).values) for run in runs]
    assert values == [set(DILLEMA.names), {"caption"}, {"caption"}]
    assert not any(job and job.stopping for job in jobs)
