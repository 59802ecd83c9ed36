"""A user's own recipe needs no change of page, storage or driver. `tests/support/own_recipe.py` defines the recipe."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

import cli.pipeline as cli
from core.errors import UserError
from core.settings import GenerationSettings, Settings
from core.types import Caption, CounterfactualCaption, Task, from_text, to_text
from pipeline.driver import Driver
from pipeline.profiles.profile import load_profile
from pipeline.prompting import PROMPTS_FOLDER
from pipeline.recipes import DILLEMA, Recipe, known_stages, recipe_of, register
from pipeline.request import Event, MemoryStore, Request, StageDone
from pipeline.run_files import run_file
from pipeline.run_files.embedded import require_run_in
from pipeline.stages.caption import CAPTION
from services.studio import Studio
from tests.support.own_recipe import (
    POSTCARD,
    Greeting,
    GreetingSettings,
    PostcardSettings,
    Stamps,
    greeting_models,
    registered,
)
from tests.support.scripted import SUNNY_BIRD, ScriptedModels, do, parts_of
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

BIRD = Task("classification", label="bird")
SOURCE = Image.linear_gradient("L").resize((96, 64)).convert("RGB")
SETTINGS = PostcardSettings(generation=GenerationSettings(steps=2, short_side=64))
RECIPES = "choose dillema, reconstruction, dillema-instruct, lance, lance-reconstruction, aga, postcard"
DRAWN = ("Greetings, bird! From the sea.", "Greetings, bird! From the hills.")


@pytest.fixture(autouse=True)
def postcard() -> Iterator[Recipe]:
    with registered(POSTCARD) as recipe:
        yield recipe


def test_the_driver_runs_it_and_keeps_what_is_fresh() -> None:
    models, store = greeting_models(), MemoryStore(SOURCE)
    driver = Driver(load_profile("demo"), models)
    driver.run(Request(BIRD, SETTINGS, "postcard"), store)
    assert list(store.held) == ["caption", "greeting", "stamps"]
    assert store.held["greeting"].value == Greeting("Greetings, bird!")
    assert models.language.prompts == [f"image classification with the label bird: greet from {SUNNY_BIRD}"]
    assert tuple(case.lineage.counterfactual.text for case in store.cases) == DRAWN
    assert {case.lineage.recipe for case in store.cases} == {"postcard"}

    def again(settings: PostcardSettings, **prompts: str) -> dict[str, bool]:
        said: list[Event] = []
        request = Request(BIRD, settings, "postcard", prompts=prompts, images=())
        driver.run(request, MemoryStore(SOURCE, store.held), said.append)
        return {event.stage: event.reused for event in said if isinstance(event, StageDone)}

    assert again(SETTINGS) == {"caption": True, "greeting": True, "stamps": True}
    loud = SETTINGS.model_copy(update={"greeting": GreetingSettings(shout=True)})
    assert again(loud) == {"caption": True, "greeting": False, "stamps": False}
    assert not again(SETTINGS, greeting="$task! greet from $caption")["greeting"]
    assert again(SETTINGS, keywords="of another recipe")["greeting"]


def test_the_command_line_runs_it_and_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = greeting_models()
    monkeypatch.setattr(cli, "load_models", lambda profile: models)
    image, out = tmp_path / "bird.png", tmp_path / "out"
    SOURCE.save(image)
    base = ["augment", str(image), "--task", "classification", "--label", "bird", "--steps", "2", "--out", str(out)]
    assert cli.main([*base, "--recipe", "postcard", "--set", "greeting.shout=true"]) == 0
    told = capsys.readouterr()
    assert [Path(line).name for line in told.out.splitlines()] == ["image-001.png", "image-002.png", "run.json"]
    assert "greeting: GREETINGS, BIRD!" in told.err and "stamps: GREETINGS, BIRD! From the sea." in told.err

    held = run_file.read(out / "run.json")
    assert held.run.recipe == "postcard"
    assert isinstance(held.settings, PostcardSettings) and held.settings.greeting.shout
    assert held.run.values["stamps"].value == Stamps(
        (("GREETINGS, BIRD! From the sea.", 1), ("GREETINGS, BIRD! From the hills.", 2))
    )
    carried = require_run_in((out / "image-001.png").read_bytes())
    assert carried.run.recipe == "postcard" and carried.run.values == held.run.values
    assert carried.case is not None and carried.case.lineage.recipe == "postcard"
    assert cli.main(["again", str(out / "run.json"), "--out", str(tmp_path / "two")]) == 0
    assert capsys.readouterr().out.count("same pixels") == 2
    assert cli.main([*base, "--recipe", "postcard", "--set", "greeting.shout=true"]) == 0, "nothing is made twice"
    assert len(models.generator.made) == 4

    assert cli.main([*base, "--recipe", "dillema"]) == 2
    assert "holds a run with another recipe: choose another --out" in capsys.readouterr().err
    assert cli.main([*base, "--set", "greeting.shout=true"]) == 2
    assert "There is no setting 'greeting.shout'" in capsys.readouterr().err
    assert cli.main([*base, "--recipe", "letter"]) == 2
    assert RECIPES in capsys.readouterr().err


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    with workspace_in(tmp_path / "workspace") as workspace:
        made = Studio(load_profile("demo"), greeting_models(), workspace)
        yield made
        made.close()


def new_run(studio: Studio) -> str:
    run_id = studio.workspace.runs.create(SOURCE, BIRD, "demo", "bird", studio.profile.settings.model_dump(mode="json"))
    assert do(studio, run_id, "setting", setting="generation.steps", value=2) == ""
    return run_id


def test_the_page_runs_it_shows_its_values_and_stores_its_images(studio: Studio) -> None:
    run_id = new_run(studio)
    assert do(studio, run_id, "recipe", recipe="postcard") == ""
    parts = parts_of(studio, run_id)
    assert "Greeting" in parts["greeting"] and "The caption comes first." in parts["greeting"]
    assert not any(stamped_away(parts[name]) for name in ("keywords", "alternatives", "counterfactuals"))
    assert "Stamps come first." in parts["generation"] and ">4</span>" in parts["generation"], "the fourth card"
    assert "Draws a greeting instead of the caption." in parts["source"]

    assert do(studio, run_id, "run-all") == ""
    state = studio.states.of(run_id)
    assert list(state.run.values) == ["caption", "greeting", "stamps"] and not state.stale
    parts = parts_of(studio, run_id)
    assert "Greetings, bird!" in parts["greeting"] and "From the sea." in parts["stamps"]
    assert "A prompt must contain $task, $caption" in parts["greeting"], "its prompt can be edited"
    assert "Write it in capital letters" in parts["greeting"], "its settings can be changed"
    assert "2 images from 2 captions" in parts["generation"] and "ready to generate" in parts["runs"]

    assert do(studio, run_id, "generate") == ""
    state = studio.states.of(run_id)
    assert [case.lineage.counterfactual.text for case in state.run.test_cases] == list(DRAWN)
    assert {case.lineage.recipe for case in state.run.test_cases} == {"postcard"}
    assert len(state.run.test_cases) - len(state.outdated) == 2
    parts = parts_of(studio, run_id)
    assert "postcard" in parts["pictures"]
    assert " gate" not in " ".join(re.sub(r"<[^>]*>", " ", part) for part in parts.values()), "a word of ours"


def stamped_away(part: str) -> str:
    """Return the markup of a part of the page without its leading version stamp."""
    return part[part.index("-->") + 3 :]


def test_a_person_edits_values_settings_and_prompts_of_it(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "recipe", recipe="postcard")
    do(studio, run_id, "run-all")
    assert do(studio, run_id, "value", stage="greeting", text=" Greetings, parrot! ") == ""
    state = studio.states.of(run_id)
    assert state.run.values["greeting"].value.value == Greeting("Greetings, parrot!")
    assert state.stale == {"stamps": "the greeting was changed after this was made"}
    assert state.gate.closed == "The stamps are stale: run them again, or keep them as they are."
    assert "This is not valid JSON" in do(studio, run_id, "value", stage="stamps", text="one, two")
    assert do(studio, run_id, "value", stage="stamps", text='{"items": [["A stamp.", 7]]}') == ""
    assert do(studio, run_id, "keep", stage="stamps") == ""
    assert do(studio, run_id, "undo", stage="greeting") == ""
    assert studio.states.of(run_id).run.values["greeting"].value.value == Greeting("Greetings, bird!")

    assert do(studio, run_id, "setting", setting="greeting.shout", value=True) == ""
    assert studio.states.of(run_id).stale["greeting"] == "the settings were changed after this was made"
    assert "nothing fills" in do(studio, run_id, "prompt-save", stage="greeting", template="$task $caption $weather")
    assert do(studio, run_id, "prompt-save", stage="greeting", template="$task, greet from $caption") == ""
    assert do(studio, run_id, "run-from", stage="greeting") == ""
    state = studio.states.of(run_id)
    assert state.run.values["greeting"].value.value == Greeting("GREETINGS, BIRD!") and not state.stale
    assert state.run.values["greeting"].value.trace.prompt.startswith("image classification with the label bird, greet")
    assert "no such stage" not in do(studio, run_id, "run", stage="stamps")
    assert "has no stage 'keywords'" in do(studio, run_id, "run", stage="keywords")


def test_a_further_prompt_of_a_stage_outdates_what_was_made_with_it_and_nothing_else(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "recipe", recipe="postcard")
    do(studio, run_id, "run-all")
    about = {"stage": "greeting", "prompt": "farewell"}
    assert "how to end" not in parts_of(studio, run_id)["greeting"], "as long as it is not sent"
    assert "has no prompt 'hello': it has greeting, farewell" in do(
        studio, run_id, "prompt-save", stage="greeting", prompt="hello", template="x"
    )
    assert "uses $task" in do(studio, run_id, "prompt-save", **about, template="$task")
    assert do(studio, run_id, "prompt-save", **about, template="Say goodbye.") == ""
    state = studio.states.of(run_id)
    assert not state.stale and state.run.prompts == {"farewell": "Say goodbye."}
    assert do(studio, run_id, "prompt-back", **about) == "" and not studio.states.of(run_id).run.prompts

    assert do(studio, run_id, "setting", setting="greeting.farewell", value=True) == ""
    card = parts_of(studio, run_id)["greeting"]
    assert "Prompt of this run: how to end" in card and "This profile has no prompt for this request" in card
    do(studio, run_id, "run-all")
    state = studio.states.of(run_id)
    assert state.run.values["greeting"].value.value == Greeting("Greetings, bird!") and not state.stale
    assert "There is no prompt for a farewell." in parts_of(studio, run_id)["greeting"]
    told = studio.commands.send("show-run", {"run": run_id})["stages"]
    assert [stage["notes"] for stage in told] == [[], ["There is no prompt for a farewell."], []]
    copy = studio.workspace.runs.duplicate(run_id)
    assert studio.workspace.runs.get(copy).values["greeting"].value == state.run.values["greeting"].value
    assert do(studio, run_id, "prompt-save", **about, template="To the end: greet from here.") == ""
    assert studio.states.of(run_id).stale["greeting"] == "the prompt was changed after this was made"
    do(studio, run_id, "run-all")
    state = studio.states.of(run_id)
    assert state.run.values["greeting"].value.value == Greeting("Greetings, bird! Greetings, bird!")
    card = parts_of(studio, run_id)["greeting"]
    assert "To the end: greet from here." in card and "prompt edited" in card
    assert "There is no prompt for a farewell." not in card
    assert do(studio, run_id, "setting", setting="greeting.farewell", value=False) == ""
    do(studio, run_id, "run-all")
    assert do(studio, run_id, "prompt-save", **about, template="Once more.") == ""
    assert not studio.states.of(run_id).stale, "it is not sent"


def test_a_stage_and_a_further_prompt_of_another_do_not_share_a_name() -> None:
    stage = dataclasses.replace(CAPTION, name="farewell")
    with pytest.raises(ValueError, match="'farewell' is both a stage and a further prompt"):
        register(Recipe("letters", "Letters", "", (stage,), lambda values: None))


def test_a_folder_of_a_version_without_a_further_prompt_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "load_models", lambda profile: greeting_models())
    image, out = tmp_path / "bird.png", tmp_path / "out"
    SOURCE.save(image)
    base = ["augment", str(image), "--task", "classification", "--label", "bird", "--steps", "2", "--out", str(out)]
    base += ["--recipe", "postcard"]
    assert cli.main(base) == 0
    assert cli.main([*base, "--set", "greeting.farewell=true", "--out", str(tmp_path / "noted")]) == 0
    assert "\n  There is no prompt for a farewell.\n" in capsys.readouterr().err
    noted = run_file.read(tmp_path / "noted" / "run.json").run.values["greeting"].trace
    assert noted.notes == ("There is no prompt for a farewell.",)
    prompts = tmp_path / "prompts"
    shutil.copytree(PROMPTS_FOLDER, prompts)
    (prompts / "demo" / "farewell.toml").write_text('template = "Now greet from here."')
    own = recipe_of("postcard").prompts("demo", prompts)
    monkeypatch.setattr(Recipe, "prompts", lambda self, name, folder=prompts: own)
    assert (
        own["farewell"].template == "Now greet from here."
        and "farewell" not in run_file.read(out / "run.json").prompts.prompts
    )
    assert cli.main(base) == 0, "nothing hangs on a prompt that is not sent"
    asked = ["--set", "greeting.farewell=true", "--out", str(tmp_path / "two")]
    assert cli.main([*base, *asked]) == 0
    data = json.loads((tmp_path / "two" / "run.json").read_text())
    assert data["prompts"].pop("farewell")["template"] == "Now greet from here."
    (tmp_path / "two" / "run.json").write_text(json.dumps(data))
    capsys.readouterr()
    assert cli.main([*base, *asked]) == 2
    assert "holds a run with another prompts" in capsys.readouterr().err


def test_another_recipe_leaves_values_images_and_settings_where_they_are(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "run-all")
    do(studio, run_id, "generate")
    assert do(studio, run_id, "recipe", recipe="postcard") == ""
    do(studio, run_id, "setting", setting="greeting.shout", value=True)
    do(studio, run_id, "run-all")
    do(studio, run_id, "generate")
    state = studio.states.of(run_id)
    assert len(state.run.test_cases) == 6 and not state.outdated, "each is judged by its own recipe"
    do(studio, run_id, "value", stage="greeting", text="Farewell!")
    do(studio, run_id, "run-from", stage="stamps")
    state = studio.states.of(run_id)
    assert {case.lineage.recipe for case in state.run.test_cases if case.id not in state.outdated} == {"dillema"}
    assert do(studio, run_id, "recipe", recipe="dillema") == ""
    state = studio.states.of(run_id)
    assert not state.stale and len(state.run.values) == 6 and isinstance(state.settings, Settings)
    assert do(studio, run_id, "setting", setting="generation.steps", value=3) == ""
    assert do(studio, run_id, "recipe", recipe="postcard") == ""
    again = studio.states.of(run_id).settings
    assert isinstance(again, PostcardSettings) and again.greeting.shout and again.generation.steps == 3
    assert "no recipe 'letter' here" in do(studio, run_id, "recipe", recipe="letter")


def test_a_reconstruction_on_the_page(studio: Studio) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "recipe", recipe="reconstruction")
    assert studio.states.of(run_id).gate.closed == "The caption comes first."
    do(studio, run_id, "run-all")
    parts = parts_of(studio, run_id)
    assert "1 image from 1 caption" in parts["generation"] and not stamped_away(parts["keywords"])
    do(studio, run_id, "generate")
    state = studio.states.of(run_id)
    (case,) = state.run.test_cases
    assert case.lineage.counterfactual == CounterfactualCaption(SUNNY_BIRD, ())
    pictures = parts_of(studio, run_id)["pictures"]
    assert "reconstruction" in pictures and "by hand" not in pictures
    # The image is drawn again by its own recipe, although the run has another recipe now.
    do(studio, run_id, "recipe", recipe="dillema")
    assert do(studio, run_id, "regenerate", case=case.id) == ""
    state = studio.states.of(run_id)
    assert [held.lineage.recipe for held in state.run.test_cases] == ["reconstruction"] * 2 and not state.outdated
    do(studio, run_id, "caption", text="A blue bird.")
    assert set(studio.states.of(run_id).outdated.values()) == {"of an earlier caption"}


def test_a_saved_picture_brings_the_recipe_to_another_workspace(studio: Studio, tmp_path: Path) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "recipe", recipe="postcard")
    do(studio, run_id, "run-all")
    do(studio, run_id, "generate")
    was = studio.states.of(run_id)
    name, data = studio.exchange.saved_image(was.run.test_cases[0].id)
    assert name.startswith("bird-postcard-")
    with workspace_in(tmp_path / "elsewhere") as other:
        there = Studio(load_profile("demo"), greeting_models(), other)
        taken = there.exchange.take_run(data)
        held = there.states.of(taken.run_id)
        there.close()
    assert held.run.recipe == "postcard" and not held.stale
    assert {name: stored.value for name, stored in held.run.values.items()} == {
        name: stored.value for name, stored in was.run.values.items()
    }


def test_recipes_and_their_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recipes"]) == 0
    told = capsys.readouterr().out
    assert "caption -> greeting -> stamps -> ControlNet" in told and "caption -> ControlNet" in told
    assert DILLEMA.description in told and POSTCARD.description in told
    assert cli.main(["settings", "--recipe", "postcard"]) == 0
    assert "greeting.shout " in capsys.readouterr().out


def test_a_file_of_a_recipe_that_is_not_known_here_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "load_models", lambda profile: ScriptedModels())
    image, out = tmp_path / "bird.png", tmp_path / "out"
    SOURCE.save(image)
    arguments = ["augment", str(image), "--task", "classification", "--label", "bird", "--steps", "1"]
    assert cli.main([*arguments, "--recipe", "reconstruction", "--out", str(out)]) == 0
    data = json.loads((out / "run.json").read_text(encoding="utf-8"))
    run = data["run"]
    assert run["recipe"] == "reconstruction" and list(run["values"]) == ["caption"]
    assert set(data["prompts"]) == {"name", "diffusion"}
    (out / "run.json").write_text(json.dumps({**data, "run": {**run, "recipe": "letter"}}), encoding="utf-8")
    with pytest.raises(UserError, match=RECIPES):
        run_file.read(out / "run.json")


def test_the_profile_may_set_what_a_recipe_begins_with() -> None:
    profile = load_profile("demo").model_copy(update={"recipes": {"postcard": {"greeting": {"shout": True}}}})
    settings = POSTCARD.settings_in(profile)
    assert isinstance(settings, PostcardSettings) and settings.greeting.shout
    assert settings.generation == profile.settings.generation
    # Settings of a recipe leave out the sections of other recipes.
    assert not hasattr(DILLEMA.settings_in(profile, {"greeting": {"shout": True}}), "greeting")
    wrong = profile.model_copy(update={"recipes": {"postcard": {"greeting": {"shout": "loud"}}}})
    with pytest.raises(
        UserError, match=r"wrong value at recipes\.postcard\.greeting\.shout: it has to be yes or no\.$"
    ):
        POSTCARD.settings_in(wrong)


def test_a_stage_name_means_one_type_of_value_and_reads_only_what_comes_before() -> None:
    assert [stage.name for stage in known_stages() if stage.name in DILLEMA.names] == list(DILLEMA.names)
    assert {"greeting", "stamps"} < {stage.name for stage in known_stages()}
    other = dataclasses.replace(CAPTION, value=Greeting)
    early = dataclasses.replace(CAPTION, name="early", reads=("later",))
    for stage, said in (
        (other, "means something else"),
        (early, "that does not come before it"),
        (dataclasses.replace(CAPTION, name="task"), "no name for a stage"),
        (dataclasses.replace(CAPTION, name="Half done"), "no name for a stage"),
    ):
        with pytest.raises(ValueError, match=said):
            register(dataclasses.replace(POSTCARD, name="other", stages=(stage,)))
    with pytest.raises(ValueError, match="there is a recipe 'postcard' already"):
        register(POSTCARD)
    with pytest.raises(UserError, match="no recipe 'other' here"):
        recipe_of("other")


def test_a_value_of_any_type_can_be_written_as_text() -> None:
    stamps = Stamps((("From the sea.", 1), ("From the hills.", 2)))
    for value in (Caption("A bird."), Greeting("Greetings!"), stamps):
        assert from_text(type(value), to_text(value)) == value
    assert to_text(Greeting("Greetings!")) == "Greetings!"
    with pytest.raises(UserError, match="This is not valid JSON"):
        from_text(Stamps, "From the sea.")
    with pytest.raises(UserError, match=r"This value does not fit: items\.0\.1: it has to be a whole number\.$"):
        from_text(Stamps, '{"items": [["x", "y"]]}')


@pytest.mark.parametrize(
    "text",
    [
        '{"items": [["half a letter \\ud800", 7]]}',
        '{"items": [["A stamp.", 7]], "price": NaN}',
        '{"items": [["A stamp.", 7]], "price": 1e999}',
        "[" * 100_000,
    ],
)
def test_text_that_could_not_be_saved_is_refused_and_the_run_opens_on(studio: Studio, text: str) -> None:
    run_id = new_run(studio)
    do(studio, run_id, "recipe", recipe="postcard")
    do(studio, run_id, "run-all")
    before = studio.states.of(run_id).run.values
    assert "This is not valid JSON" in do(studio, run_id, "value", stage="stamps", text=text)
    assert studio.states.of(run_id).run.values == before
