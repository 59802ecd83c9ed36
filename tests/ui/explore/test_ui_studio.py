"""Actions on the explore page without a browser: each changes saved values and the shown markup."""

from __future__ import annotations

import io
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import services.changes
import ui.explore.page
from core.errors import UserError
from core.model_sections import ROOT
from core.settings import GenerationSettings
from core.types import Task
from pipeline.models import load_models
from pipeline.models.server import ServerFault
from pipeline.profiles.profile import load_profile
from pipeline.seams import OnStep
from services.runs.state import RunState
from services.studio import Studio
from storage.workspace import Workspace
from tests.support.scripted import (
    NoiseGenerator,
    Refusing,
    ScriptedLanguageModel,
    ScriptedModels,
    answer,
    over,
    parts_of,
    perform,
    performed,
)
from tests.support.serving import until
from tests.support.workspaces import workspace_in
from ui.explore.page import Action, Batch, Explorer, PageValues, Performed
from ui.explore.strip import View

BIRD = Image.new("RGB", (32, 32), (200, 40, 40))
POLL = Action(name="poll")
CLOUDY = "A red bird in cloudy weather by day. The bird sits on a twig. The ground is grassy."


class SlowGenerator(NoiseGenerator):
    """Generator that waits at every step until the test lets it continue."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()
        self.at_work = threading.Event()
        self.steps = 0

    def generate(
        self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
    ) -> Image.Image:
        def slowly(done: int, total: int) -> None:
            self.at_work.set()
            self.steps += 1
            if not self.go_on.is_set():
                time.sleep(0.01)
            on_step(done, total)

        return super().generate(prompt, control, settings, seed, slowly)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with workspace_in(tmp_path / "workspace") as opened:
        yield opened


@pytest.fixture
def studio(workspace: Workspace) -> Iterator[Studio]:
    made = Studio(load_profile("demo"), ScriptedModels(), workspace)
    yield made
    made.close()


def new_run(studio: Studio, label: str = "bird") -> str:
    settings = studio.profile.settings.model_dump(mode="json")
    return studio.workspace.runs.create(BIRD, Task("classification", label=label), "demo", "bird", settings)


def do(studio: Studio, run_id: str, name: str, **data: object) -> Performed:
    return performed(studio, run_id, name, **data)


def wait(studio: Studio) -> None:
    over(studio.jobs)


def words(state: RunState, stage: str) -> str:
    """Return the state of a stage as the page shows it."""
    from ui.explore.stage import state_word

    return state_word(stage, state)[0]  # type: ignore[arg-type]


def part(studio: Studio, run_id: str, name: str) -> str:
    """Return the markup of one part of the page."""
    return parts_of(studio, run_id)[name]


def test_all_stages_up_to_the_gate_and_through_it(studio: Studio) -> None:
    run_id = new_run(studio)
    assert not do(studio, run_id, "run-all").problem
    state = studio.states.of(run_id)
    assert [words(state, stage) for stage in state.run.values] == ["ready"] * 4
    assert state.gate.plan is not None and len(state.gate.plan.images) == 4 and not state.run.test_cases
    assert "4 images from 4 captions" in part(studio, run_id, "generation")
    assert not do(studio, run_id, "generate").problem
    state = studio.states.of(run_id)
    assert len(state.run.test_cases) == 4 == len({case.image_sha for case in state.run.test_cases})
    assert state.run.jobs[-1].state == "done" and len(state.run.test_cases) - len(state.outdated) == 4


def test_an_edit_makes_later_stages_stale_and_they_run_again_from_there(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "caption", text=CLOUDY)
    state = studio.states.of(run_id)
    assert words(state, "caption") == "edited by you"
    for stage in ("keywords", "alternatives", "counterfactuals"):
        assert words(state, stage).startswith("stale: ") and "caption" in words(state, stage)
    assert state.gate.plan is None and "stale" in state.gate.closed
    assert do(studio, run_id, "generate").problem == state.gate.closed
    assert "is-stale" in part(studio, run_id, "keywords")


def test_a_captioner_that_says_the_same_again_is_told_to_be_sure(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "run", stage="caption")
    assert "asked 4 times, each time with another seed" in part(studio, run_id, "caption")
    assert words(studio.states.of(run_id), "keywords") == "ready", "nothing is outdated by it"


def test_keeping_a_stale_value_makes_it_fresh(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "caption", text="A red bird in sunny weather by day. The ground is grassy.")
    for stage in ("keywords", "alternatives", "counterfactuals"):
        assert stage in studio.states.of(run_id).stale
        do(studio, run_id, "keep", stage=stage)
    state = studio.states.of(run_id)
    assert not state.stale and state.gate.plan is not None


def test_an_edit_of_a_stale_value_does_not_make_it_fresh(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "caption", text=CLOUDY)
    do(studio, run_id, "keyword-use", text="red", used=False)
    assert "keywords" in studio.states.of(run_id).stale


def test_keywords_are_ticked_added_reworded_and_dropped(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "keyword-use", text="red", used=False)
    do(studio, run_id, "keyword-add", new="on a twig", edit_type="background")
    do(studio, run_id, "keyword-reword", text="sunny", new="sunny weather", edit_type="weather")
    do(studio, run_id, "delete-keyword", text="grassy")
    state = studio.states.of(run_id)
    items = state.run.values["keywords"].value.value.items
    assert [(item.text, item.used) for item in items] == [
        ("red", False),
        ("sunny weather", True),
        ("by day", True),
        ("on a twig", True),
    ]
    assert words(state, "keywords") == "edited by you" and "keywords were changed" in words(state, "alternatives")
    assert len(state.histories["keywords"]) == 5, "every version stays"


@pytest.mark.parametrize(
    ("name", "data", "stage", "said"),
    [
        ("caption", {"text": "  "}, "caption", "empty"),
        ("keyword-add", {"new": "snowy", "edit_type": "weather"}, "keywords", "not in the caption"),
        ("keyword-add", {"new": "bird", "edit_type": "subject"}, "keywords", "protected"),
        ("keyword-add", {"new": "RED", "edit_type": "attribute"}, "keywords", "already"),
        ("keyword-add", {"new": "twig", "edit_type": "nonsense"}, "keywords", "edit type"),
        ("alternative-add", {"keyword": "red", "new": "red"}, "alternatives", "same as its keyword"),
        ("alternative-add", {"keyword": "red", "new": ""}, "alternatives", "empty"),
        ("alternative-add", {"keyword": "gone", "new": "new"}, "alternatives", "no longer there"),
        (
            "alternative-reword",
            {"keyword": "red", "text": "blue", "new": "Red"},
            "alternatives",
            "same as its keyword",
        ),
        (
            "counterfactual-write",
            {"place": 0, "text": "not that", "new": "x"},
            "counterfactuals",
            "has changed since",
        ),
        ("setting", {"setting": "counterfactuals.captions", "value": "0"}, "counterfactuals", "from 1 to 32"),
        ("setting", {"setting": "generation.steps", "value": "many"}, "generation", "steps"),
        ("caption", {"text": "word " * 2000}, "caption", "too long"),
    ],
)
def test_what_makes_no_sense_is_said_at_its_stage_and_nothing_is_lost(
    studio: Studio, name: str, data: dict[str, object], stage: str, said: str
) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    before = studio.states.of(run_id).run
    outcome = do(studio, run_id, name, **data)
    assert said in outcome.problem and outcome.where == stage
    after = studio.states.of(run_id)
    assert {s: v.id for s, v in after.run.values.items()} == {s: v.id for s, v in before.values.items()}
    assert after.run.settings == before.settings
    assert said in part(studio, run_id, stage).replace("&#x27;", "'")


def test_what_was_refused_is_forgotten_once_what_is_saved_is_set_again(studio: Studio) -> None:
    run_id = new_run(studio)
    steps = studio.states.of(run_id).settings.generation.steps
    assert "was not changed" in do(studio, run_id, "setting", setting="generation.steps", value=9999).problem
    assert "generation" in studio.states.of(run_id).problems
    assert not do(studio, run_id, "setting", setting="generation.steps", value=steps).problem
    assert studio.states.of(run_id).problems == {}
    assert do(studio, run_id, "preset", preset="luxury").problem
    assert not do(studio, run_id, "default-settings", sections="generation").problem
    assert studio.states.of(run_id).problems == {}


def test_no_keyword_chosen_is_said_at_the_alternatives(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    for text in ("red", "sunny", "by day", "grassy"):
        do(studio, run_id, "keyword-use", text=text, used=False)
    do(studio, run_id, "run", stage="alternatives")
    problem = studio.states.of(run_id).problems["alternatives"]
    assert "No keyword is chosen" in problem.text
    assert "alternatives" in studio.states.of(run_id).run.values, "the earlier alternatives are still there"


def test_a_caption_without_its_label_is_saved_with_a_warning(studio: Studio) -> None:
    run_id = new_run(studio)
    outcome = do(studio, run_id, "caption", text="Something red on a twig.")
    assert not outcome.problem
    assert "does not name the label" in part(studio, run_id, "caption")
    assert studio.states.of(run_id).run.values["caption"].value.value.text == "Something red on a twig."


def test_a_task_without_a_label_is_said_and_nothing_runs(studio: Studio) -> None:
    run_id = new_run(studio, label="")
    outcome = do(studio, run_id, "run-all")
    assert "needs a label" in outcome.problem and outcome.where == "source"
    assert "needs a label" in part(studio, run_id, "source")
    do(studio, run_id, "task", kind="classification", label="bird", protected="")
    assert not do(studio, run_id, "run-all").problem


def test_another_task_makes_everything_that_reads_it_stale(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "task", kind="segmentation", label="bird", protected="")
    state = studio.states.of(run_id)
    assert state.run.task == Task("segmentation", protected=studio.profile.tasks.protected)
    assert {"keywords", "alternatives", "counterfactuals"} <= set(state.stale)


def test_an_unreadable_reply_is_shown_and_can_be_filled_in_by_hand(workspace: Workspace) -> None:
    models = ScriptedModels(ScriptedLanguageModel("<b>I would rather not.</b>"))
    studio = Studio(load_profile("demo"), models, workspace)
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    asked = list(models.language.seeds)
    do(studio, run_id, "run-all")
    assert models.language.seeds[len(asked) :] == [max(asked) + 1 + place for place in range(len(asked))], "other seeds"
    state = studio.states.of(run_id)
    assert words(state, "keywords") == "failed" and state.problems["keywords"].raw_reply == "<b>I would rather not.</b>"
    card = part(studio, run_id, "keywords")
    assert "&lt;b&gt;I would rather not.&lt;/b&gt;" in card and "<b>I would" not in card
    do(studio, run_id, "keyword-add", new="red", edit_type="attribute")
    do(studio, run_id, "alternative-add", keyword="red", new="blue")
    written = "A blue bird in sunny weather by day. The bird sits on a twig. The ground is grassy."
    do(studio, run_id, "counterfactual-add", new=written)
    state = studio.states.of(run_id)
    assert not state.stale and not state.problems and state.gate.plan is not None
    studio.close()


@pytest.mark.slow  # transformers and diffusers are loaded
def test_without_a_network_the_cards_say_what_is_possible(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    profile = load_profile("cpu")
    studio = Studio(profile, load_models(profile), workspace)
    settings = profile.settings.model_dump(mode="json")
    run_id = workspace.runs.create(BIRD, Task("classification", label="bird"), "cpu", "bird", settings)
    do(studio, run_id, "run", stage="caption")
    card = part(studio, run_id, "caption")
    assert "start a profile that needs none: laptop for photographs, demo for drawn scenes" in card
    shown = re.sub(r"<[^>]+>", "", card)
    assert "Write this text yourself, or let a model on a server or behind an API key write it. For a photo" in shown
    assert "make run PROFILE=laptop needs no model and no network: it puts the subject in front of pictures" in shown
    pages = re.findall(r'href="/(docs/[^"]+)"', card)
    assert pages == ["docs/captioners-and-servers.md", "docs/laptop.md"]
    assert all((ROOT / page).is_file() for page in pages)

    # All texts are written by hand. Only the image needs a model.
    do(studio, run_id, "caption", text="A red bird in sunny weather.")
    assert "PROFILE=laptop" not in part(studio, run_id, "caption")
    do(studio, run_id, "keyword-add", new="sunny", edit_type="weather")
    do(studio, run_id, "alternative-add", keyword="sunny", new="foggy")
    do(studio, run_id, "counterfactual-add", new="A red bird in foggy weather.")
    do(studio, run_id, "generate")
    card = part(studio, run_id, "generation")
    assert "weights of the image generator" in card and "make run PROFILE=laptop" in card
    assert "yourself" not in card
    studio.close()


def test_the_start_page_of_the_demo_says_what_to_start_for_photographs(studio: Studio) -> None:
    note = part(studio, "", "upload-note")
    assert "know only pictures like the samples" in note and "make run PROFILE=laptop" in note
    assert 'href="/docs/laptop.md"' in note


def test_edits_at_once_and_the_number_of_captions_are_settings(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "setting", setting="counterfactuals.edits_at_once", value="2")
    do(studio, run_id, "setting", setting="counterfactuals.captions", value="3")
    do(studio, run_id, "run-all")
    items = studio.states.of(run_id).run.values["counterfactuals"].value.value.items
    assert len(items) == 3 and all(len(item.edits) == 2 for item in items)
    do(studio, run_id, "setting", setting="counterfactuals.edits_at_once", value="0")
    assert "settings were changed" in words(studio.states.of(run_id), "counterfactuals")
    do(studio, run_id, "default-settings", sections="counterfactuals")
    assert studio.runs.settings(studio.workspace.runs.get(run_id)) == studio.profile.settings


def test_an_earlier_value_is_brought_back(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    first = studio.states.of(run_id).run.values["caption"]
    do(studio, run_id, "caption", text=CLOUDY)
    do(studio, run_id, "bring-back", version=first.id, stage="caption")
    state = studio.states.of(run_id)
    assert state.run.values["caption"].value.value == first.value.value and not state.stale


def test_an_undo_changes_no_stage_that_the_recipe_does_not_have(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "keyword-use", text="red", used=False)
    do(studio, run_id, "recipe", recipe="reconstruction")

    def versions() -> int:
        return len(studio.workspace.runs.history(run_id, "keywords"))

    assert versions() == 2
    assert "no edit of yours to undo" in do(studio, run_id, "undo", stage="keywords").problem
    assert not do(studio, run_id, "undo").problem and versions() == 2, "the recipe was the last thing"
    assert studio.workspace.runs.get(run_id).recipe == "dillema"
    assert not do(studio, run_id, "undo").problem and versions() == 3


def test_a_version_of_another_run_is_not_brought_back(studio: Studio) -> None:
    one, other = new_run(studio), new_run(studio)
    do(studio, one, "run-all")
    version = studio.states.of(one).run.values["caption"].id
    assert "another run" in do(studio, other, "bring-back", version=version, stage="caption").problem
    assert not studio.states.of(other).run.values


def test_a_caption_that_the_model_refuses_is_shown_with_the_reason_and_asked_for_alone(studio: Studio) -> None:
    run_id = new_run(studio)

    def refuse_one(prompt: str) -> str:
        good = answer(prompt)
        if "-> at sunset" in prompt:
            raise ServerFault("The server refused the text.")
        return good

    studio.driver.models.language = ScriptedLanguageModel(refuse_one)  # type: ignore[misc]
    do(studio, run_id, "run-all")
    items = studio.states.of(run_id).run.values["counterfactuals"].value.value.items
    assert [bool(item.text) for item in items].count(False) == 1 and len(items) == 4
    shown = re.sub(r"<.*?>", "", part(studio, run_id, "counterfactuals"))
    assert "3 of 4 ticked" in shown and "not written" in shown
    assert "The caption with “by day” → “at sunset” is missing. The server refused the text." in shown
    place = next(place for place, item in enumerate(items) if not item.text)
    refused = do(studio, run_id, "counterfactual-use", place=place, text="", used=True)
    assert refused.problem == "This caption is empty: write it, then tick it."

    studio.driver.models.language = model = ScriptedLanguageModel(answer)  # type: ignore[misc]
    do(studio, run_id, "run", stage="counterfactuals")
    again = studio.states.of(run_id).run.values["counterfactuals"].value.value.items
    assert all(item.text and item.used for item in again) and len(again) == 4 and len(model.prompts) == 1
    assert "only the missing were asked for" in re.sub(r"<.*?>", "", part(studio, run_id, "counterfactuals"))


def test_a_ticked_caption_that_fails_a_check_is_named_before_it_is_drawn(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    assert "gate-doubts" not in part(studio, run_id, "generation"), "nothing is wrong with the model's captions"
    item = studio.states.of(run_id).run.values["counterfactuals"].value.value.items[0]
    words = f"{item.text} A bird is seen in the distance." + " A bird is seen in the distance." * 19
    do(studio, run_id, "counterfactual-write", place=0, text=item.text, new=words)
    (doubt,) = studio.states.of(run_id).gate.doubts
    assert doubt.caption == words and "20 times" in " ".join(doubt.reasons)
    shown = part(studio, run_id, "generation")
    assert "1 ticked caption fails a check" in re.sub(r"<.*?>", "", shown) and "occurs 20 times" in shown
    told = studio.commands.send("show-run", {"run": run_id})["gate"]["doubts"]
    assert [one["caption"] for one in told] == [words]
    do(studio, run_id, "counterfactual-use", place=0, text=words, used=False)
    assert "gate-doubts" not in part(studio, run_id, "generation"), "it is not drawn"


def test_another_label_is_drawn_with_the_same_fixed_seed(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "setting", setting="generation.seed_mode", value="fixed")
    do(studio, run_id, "generate")
    assert studio.states.of(run_id).gate.closed.startswith("All images of the seed 0 are made")
    do(studio, run_id, "task", kind="classification", label="red bird")
    for stage in ("keywords", "alternatives", "counterfactuals"):
        do(studio, run_id, "keep", stage=stage)
    state = studio.states.of(run_id)
    assert not state.gate.closed and state.gate.plan is not None and len(state.gate.plan.images) == 4
    do(studio, run_id, "generate")
    cases = studio.states.of(run_id).run.test_cases
    assert {case.lineage.prompt.partition("Keep: ")[2] for case in cases[4:]} == {"red bird."} and len(cases) == 8


def test_a_cancel_keeps_what_is_whole_and_the_rest_can_be_made_later(workspace: Workspace) -> None:
    models = ScriptedModels()
    slow = models.generator = SlowGenerator()
    studio = Studio(load_profile("demo"), models, workspace)
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    perform(studio, run_id, "generate")
    until(lambda: studio.states.of(run_id).run.test_cases)
    perform(studio, run_id, "cancel")
    cancelled_at = slow.steps
    wait(studio)
    assert slow.steps <= cancelled_at + 2, "it stops at the step, not at the end of the image"
    state = studio.states.of(run_id)
    made = len(state.run.test_cases)
    assert 1 <= made < 4 and state.run.jobs[-1].state == "cancelled"
    assert state.gate.plan is not None and len(state.gate.plan.images) == 4 - made and state.gate.made == made
    slow.go_on.set()
    do(studio, run_id, "generate")
    state = studio.states.of(run_id)
    assert len(state.run.test_cases) == 4 and len({case.lineage.seed for case in state.run.test_cases}) == 4
    assert state.gate.seed == 1, "the next yes would make others"
    studio.close()


def test_an_image_that_is_refused_is_told_and_the_others_are_drawn(workspace: Workspace) -> None:
    models = ScriptedModels()
    models.generator = Refusing(UserError("The safety checker refused this image."))
    studio = Studio(load_profile("demo"), models, workspace)
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "generate")
    state, told = studio.states.of(run_id), "1 of 4 images could not be made: The safety checker refused this image."
    assert len(state.run.test_cases) == 3 and state.run.jobs[-1].state == "failed"
    assert told in str(state.problems["generation"])
    ((_prompt, seed),) = models.generator.refused
    assert state.gate.plan is not None and len(state.gate.plan.images) == 1, "it can be tried again"
    assert state.gate.plan.images[0].seed != seed, "the same seed would be refused once more"
    assert "1 image is tried again with another seed" in part(studio, run_id, "generation")
    do(studio, run_id, "generate")
    studio.close()
    restarted = Studio(load_profile("demo"), models, workspace)
    for one in (studio, restarted):
        state = one.states.of(run_id)
        assert len({case.lineage.seed for case in state.run.test_cases}) == 4
        assert seed not in {case.lineage.seed for case in state.run.test_cases}
        assert state.gate.seed == 1, "all of these are there: the next yes would make others"
    restarted.close()


def test_a_cancel_ends_the_asking_for_more_after_one_reply(workspace: Workspace) -> None:
    models = ScriptedModels()
    studio = Studio(load_profile("demo"), models, workspace)
    run_id = new_run(studio)
    do(studio, run_id, "run-all")

    def useless(_prompt: str) -> str:
        studio.jobs.cancel(run_id)
        return ""

    models.language = ScriptedLanguageModel(useless)
    do(studio, run_id, "alternative-more", keyword="red")
    assert len(models.language.prompts) == 1
    job = studio.jobs.of_run(run_id)
    assert job is not None and job.state == "cancelled" and not studio.states.of(run_id).problems
    studio.close()


def test_a_run_that_is_worked_on_takes_no_second_job(workspace: Workspace) -> None:
    models = ScriptedModels()
    slow = models.generator = SlowGenerator()
    studio = Studio(load_profile("demo"), models, workspace)
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    perform(studio, run_id, "generate")
    assert slow.at_work.wait(60)
    assert "worked on already" in perform(studio, run_id, "run", stage="caption").problem
    studio.close()
    assert workspace.runs.get(run_id).jobs[-1].state == "interrupted", "the server stopped it, and no person"


def test_uploads_are_put_right_or_refused(studio: Studio) -> None:
    grey = io.BytesIO()
    Image.new("I;16", (40, 40), 40000).save(grey, "PNG")
    run = studio.workspace.runs.get(studio.runs.from_upload(grey.getvalue(), "../my picture.PNG"))
    assert run.name == "../my picture" and not run.sample and any("16 bits" in note for note in run.notes)
    assert "16 bits" in part(studio, run.id, "source") and "PROFILE=paper" in part(studio, run.id, "source")
    assert run.task.label == "" and studio.workspace.images.load(run.source_sha).mode == "RGB"


def test_what_a_picture_shows_says_whether_the_models_know_it_and_not_its_name(studio: Studio) -> None:
    photo, again = io.BytesIO(), io.BytesIO()
    Image.effect_noise((96, 64), 90).save(photo, "PNG")
    with Image.open(ROOT / "demo" / "samples" / "town-at-night.png") as sample:
        sample.convert("RGB").resize((200, 200)).save(again, "JPEG", quality=60)
        known = studio.runs.from_upload(again.getvalue(), "holiday.jpg")
    named = studio.runs.from_upload(photo.getvalue(), "town at night.png")
    claims = studio.workspace.runs.create(BIRD, Task("classification"), "demo", "x", {}, sample="town-at-night")
    shown = ["unknown-picture" in part(studio, run_id, "source") for run_id in (known, named, claims)]
    assert shown == [False, True, True]


def test_what_is_typed_never_becomes_markup(studio: Studio) -> None:
    run_id = new_run(studio)
    nasty = "<script>alert(1)</script> \"bird\" 'x' & <img src=x onerror=alert(1)>"
    do(studio, run_id, "rename", title=nasty)
    do(studio, run_id, "caption", text=nasty)
    do(studio, run_id, "task", kind="classification", label='"><script>', protected="")
    for markup in parts_of(studio, run_id).values():
        assert "<script" not in markup and "<img src=x" not in markup


def test_an_unknown_run_leads_to_the_start_page(studio: Studio) -> None:
    batch = Batch(do=(Action(name="open", fields={"run": "0" * 16}),))
    reply = Explorer(studio).answer(batch)
    assert reply["run"] == "" and reply["where"] == "start" and "no run" in reply["problem"]
    start = reply["parts"]["start"]
    assert "Counterfactual testing changes something in a picture that should make no difference" in start
    assert re.findall(r"<li[^>]*><b>([^<]*)", start) == [
        "Caption",
        "Keywords",
        "Alternatives",
        "Counterfactual captions",
        "Generate",
    ]


def test_the_order_of_tries_gives_every_try_another_seed(studio: Studio) -> None:
    run_id = new_run(studio)
    for _ in range(3):
        do(studio, run_id, "run", stage="caption")
    assert [version.value.trace.seed for version in studio.states.of(run_id).histories["caption"]] == [0, 1, 2]


def test_what_is_measured_while_a_reply_is_drawn_is_asked_for_soon(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The similarity of a person's alternative is measured after the reply has read the values."""
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    draw = ui.explore.page.render

    def late(values: PageValues) -> dict[str, str]:
        until(lambda: not studio.similarities.waiting)
        return draw(values)

    monkeypatch.setattr(ui.explore.page, "render", late)
    add = Action(name="alternative-add", fields={"keyword": "red", "new": "turquoise"})
    explorer = Explorer(studio)
    reply = explorer.answer(Batch(run=run_id, do=(add,)))
    assert not reply["problem"] and reply["active"], "or the page looks again after four seconds"
    again = explorer.answer(Batch(run=run_id, do=(POLL,), revision=reply["revision"]))
    assert not again["active"]


def test_a_page_is_told_that_nothing_is_new_and_what_is(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes come from the page itself, another page, a script, the worker thread, or another process."""
    run_id, drawn = new_run(studio), list[PageValues]()
    draw, explorer = ui.explore.page.render, Explorer(studio)

    def counted(values: PageValues) -> dict[str, str]:
        drawn.append(values)
        return draw(values)

    monkeypatch.setattr(ui.explore.page, "render", counted)
    until(lambda: not studio.similarities.waiting)
    held = explorer.answer(Batch(run=run_id, do=(POLL,)))["revision"]

    def looks(**more: Any) -> dict[str, Any]:
        return explorer.answer(Batch(run=run_id, do=(POLL,), revision=held, **more))

    drawn.clear()
    assert looks() == {"same": True} and not drawn
    assert "parts" in looks(find="bird") and "parts" in looks(view=View(mode="source")), "it looks at something else"

    def another_process() -> None:
        with Workspace(studio.workspace.folder) as workspace:
            workspace.runs.rename(run_id, "By another process")

    def a_prediction() -> None:
        studio.jobs.when_idle("a prediction", lambda: None)
        until(lambda: "parts" in looks())

    changes: list[Callable[[], object]] = [
        lambda: do(studio, run_id, "rename", title="By another page"),
        lambda: do(studio, run_id, "run", stage="caption"),
        lambda: do(studio, run_id, "alternative-add", keyword="nowhere", new="x"),  # refused, with a message
        a_prediction,
        another_process,
    ]
    for change in changes:
        change()
        reply = looks()
        assert "parts" in reply, change
        until(lambda: not studio.jobs.active())
        held = explorer.answer(Batch(run=run_id, do=(POLL,)))["revision"]
    assert looks() == {"same": True}


def test_while_something_is_worked_on_the_seconds_are_told(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 100.0
    monkeypatch.setattr(services.changes.time, "monotonic", lambda: seconds)
    quiet = studio.revisions.now()
    working = studio.revisions.now(1)
    seconds = 101.0
    assert studio.revisions.now() == quiet and studio.revisions.now(1) != working
    seconds = 161.0
    assert studio.revisions.now() != quiet, "the day may be another one"


def test_a_sample_that_nothing_was_done_with_leaves_no_run_behind(studio: Studio) -> None:
    def listed() -> list[str]:
        listing = studio.runs.listing()
        assert listing.total == len(listing.runs) and not listing.removed
        return [run.id for run in listing.runs]

    for sample in ("balloon", "street-two-cars"):
        looked_at = perform(studio, "", "run-from-sample", sample=sample, listed=False).run_id
        assert listed() == [] and not studio.workspace.runs.get(looked_at).removed
        assert "This run was deleted" not in part(studio, looked_at, "source")
    assert "nothing to undo" in do(studio, looked_at, "undo").problem
    do(studio, looked_at, "rename", title=studio.workspace.runs.get(looked_at).name)
    assert listed() == [], "that is what it was called already"
    do(studio, looked_at, "rename", title="A street")
    assert listed() == [looked_at]
    other = perform(studio, "", "run-from-sample", sample="balloon", listed=False).run_id
    do(studio, other, "run-all")
    assert listed() == [other, looked_at]
    assert not do(studio, other, "undo").problem and not studio.workspace.runs.get(other).values
    by_script = studio.commands.send("run-from-sample", {"sample": "balloon"}).run_id
    assert by_script in listed(), "who begins one by a command means it"


def test_several_runs_are_deleted_at_once_or_none_of_them(studio: Studio) -> None:
    first, second, third = (new_run(studio) for _ in range(3))
    assert "no run 'nobody'" in perform(studio, first, "delete-runs", runs=[first, "nobody"]).problem
    assert studio.runs.listing().total == 3
    assert perform(studio, first, "delete-runs", runs=[first, second]).run_id == "", "the page leaves what is gone"
    assert perform(studio, third, "delete-runs", runs=[first, second]).run_id == third
    assert [run.id for run in studio.runs.listing().runs] == [third]
    perform(studio, third, "restore-runs", runs=[first, second])
    assert studio.runs.listing().total == 3 and not studio.runs.listing().removed
