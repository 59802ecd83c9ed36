"""The method `instruct`: its prompt for the editor, its results, and where it is offered. A real editor at small
size.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cli.pipeline as cli
from cli.models import _step_of
from core.errors import Cancelled, UserError
from core.images import EDITING_PIXELS, editing_size
from core.lineage import DrawnBatch
from core.masks import NamedMask
from core.settings import EditingSettings, SettingsWithEditing
from core.types import CounterfactualCaption, CounterfactualCaptions, Edit, Task
from demo.render import render
from demo.scene import random_scene
from pipeline.checks.drift import FRAMING_KEPT, moved_back
from pipeline.checks.images import EDGES_IN_PLACE, FORMS_KEPT
from pipeline.driver import Driver
from pipeline.methods import read_lineage
from pipeline.methods.instruct import INSTRUCT, InstructSettings
from pipeline.models import load_models
from pipeline.models.inventory import listed
from pipeline.models.machine import Machine
from pipeline.profiles.image_sections import EDITOR, KleinEditor
from pipeline.profiles.profile import Profile, load_profile
from pipeline.recipes import DILLEMA, recipe_of
from pipeline.run_files import run_file
from pipeline.run_files.provenance import digital_source_type
from pipeline.seams import DrawnImage, DrawRequest, OnStep, Source
from services.studio import Studio
from tests.support import tiny
from tests.support.offloading import by_layers_on_the_cpu
from tests.support.scripted import SUNNY_BIRD, ScriptedModels, models_of, one_case, parts_of, perform, performed
from tests.support.workspaces import workspace_in

RECIPE = recipe_of("dillema-instruct")
BIRD = Task("classification", label="bird")
STREET = Task("segmentation", protected=("road", "car"))
RED, SNOW = Edit("red", "blue", "attribute"), Edit("sunny", "snowy", "weather")
CAPTION = CounterfactualCaption("A blue bird in snowy weather.", (RED, SNOW))
QUICK = EditingSettings(steps=2, short_side=64)
GB = 1_000_000_000
NO_EDITOR = "The profile demo has no editor of images: take the profile edit, or give it a table [editor]."


def profile_with(folder: Path | str) -> Profile:
    """Return the demo profile with an editor and without a model under test."""
    editor = {"kind": "flux2-klein", "path": str(folder)}
    held = demo().model_dump() | {"name": "demo-edit", "editor": editor}
    return Profile.model_validate(held)


def demo() -> Profile:
    """Return the demo profile without a model under test, so that no page loads one."""
    held = load_profile("demo").model_dump()
    return Profile.model_validate(held | {"model_under_test": {}, "checks": {}})


def ignore(_done: int, _total: int) -> None: ...


# The editor's prompt


@pytest.mark.parametrize("prompt_set", ["paper", "demo"])
def test_the_instruction_names_the_edits_the_scene_and_what_has_to_stay(prompt_set: str) -> None:
    prompts = RECIPE.prompts(prompt_set)
    told = INSTRUCT.prompt(prompts, CAPTION, BIRD)
    assert told.startswith("Change red to blue, and sunny to snowy. The picture then shows this: A blue bird in snowy")
    assert "the same camera, every shape in its place" in told and told.endswith("where they are: bird.")
    by_hand = INSTRUCT.prompt(prompts, CounterfactualCaption("A bird at night.", ()), BIRD)
    assert by_hand.startswith("The picture then shows this: A bird at night. Keep") and "Change" not in by_hand
    bare = INSTRUCT.prompt(prompts, CAPTION, STREET)
    assert bare.endswith("every shape in its place and of its size."), "of nothing that is there nothing is said"
    held = {"road": True, "car": False}
    assert INSTRUCT.prompt(prompts, CAPTION, STREET, held).endswith("where they are: road.")


# The editor's result


class Painter:
    """Editor that returns the picture itself, shifted to the right by a share of its width."""

    name = "painter"

    def __init__(self, moved: float = 0.0) -> None:
        self.moved, self.told, self.sizes = moved, list[str](), list[tuple[int, int]]()

    def preview(self) -> Image.Image | None:
        return None

    def batch(self, size: tuple[int, int]) -> int:
        return 3

    def draw(
        self,
        requests: Sequence[DrawRequest],
        size: int,
        pictures: Sequence[Image.Image],
        settings: EditingSettings,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        picture = pictures[0]
        self.told += [one.prompt for one in requests]
        self.sizes.append(picture.size)
        by = round(self.moved * picture.width)
        image = Image.fromarray(np.roll(np.asarray(picture), by, axis=1))
        return [DrawnImage(image, DrawnBatch(size=size, place=one.place)) for one in requests]


@pytest.mark.parametrize("side", [128, 512])
@pytest.mark.parametrize("moved", [0.0, 0.08])
def test_edges_and_mask_tell_an_image_that_moved_from_one_that_did_not(side: int, moved: float) -> None:
    pixels, numbers = render(random_scene(7, "road"), side)
    source = Source(Image.fromarray(pixels), STREET, "A road.", NamedMask(Image.fromarray(numbers), {}))
    method = INSTRUCT.with_models(models_of(Painter(moved)), RECIPE.prompts("demo"))
    case = one_case(
        method, method.prepare(source, InstructSettings(editing=EditingSettings(short_side=256))), CAPTION, 1, ignore
    )
    found = {check.name: check.passed for check in case.checks}
    assert found == dict.fromkeys((FRAMING_KEPT, EDGES_IN_PLACE, FORMS_KEPT), moved == 0)
    assert all(check.note for check in case.checks if not check.passed)


def test_a_picture_that_shifted_a_little_is_moved_back_and_its_record_says_so() -> None:
    pixels, numbers = render(random_scene(7, "road"), 256)
    source = Source(Image.fromarray(pixels), STREET, "A road.", NamedMask(Image.fromarray(numbers), {}))
    method = INSTRUCT.with_models(models_of(Painter(0.03)), RECIPE.prompts("demo"))
    settings = InstructSettings(editing=EditingSettings(short_side=256))
    case = one_case(method, method.prepare(source, settings), CAPTION, 1, ignore)
    assert [(one.name, one.passed) for one in case.checks] == [
        (one, True) for one in (FRAMING_KEPT, EDGES_IN_PLACE, FORMS_KEPT)
    ]
    assert "3.1 %) to the right and has been moved back" in case.checks[0].note, "8 of 256 pixels"
    recorded = case.lineage.settings
    assert isinstance(recorded, InstructSettings) and recorded.moved_back is not None
    assert recorded.moved_back.right == pytest.approx(8 / 256, abs=0.002)
    shifted = Image.fromarray(np.roll(pixels, 8, axis=1))
    assert case.image == moved_back(shifted, recorded.moved_back), "the record is enough to do it again"
    assert read_lineage(json.loads(json.dumps(case.lineage.plain()))) == case.lineage
    assert INSTRUCT.drawn_alike(recorded, settings) and "moved_back" not in settings.plain()


@pytest.mark.slow
@pytest.mark.parametrize("size", [(150, 100), (61, 200), (1300, 333), (16, 64), (4096, 1024), (1024, 1024)])
def test_a_result_has_the_size_of_its_source_whatever_the_editor_takes(size: tuple[int, int]) -> None:
    editor = Painter()
    method = INSTRUCT.with_models(models_of(editor), RECIPE.prompts("demo"))
    source = Source(Image.linear_gradient("L").resize(size).convert("RGB"), BIRD)
    case = one_case(method, method.prepare(source, InstructSettings()), CAPTION, 9, ignore)
    (edited,) = editor.sizes
    assert case.image.size == size and case.artifacts == {}
    assert all(side % 16 == 0 and side >= 64 for side in edited) and edited[0] * edited[1] <= EDITING_PIXELS
    assert 0.8 < (edited[0] / edited[1]) / (size[0] / size[1]) < 1.25, "the aspect stays but for the rounding"


def test_the_record_is_enough_to_make_it_again() -> None:
    method = INSTRUCT.with_models(models_of(Painter()), RECIPE.prompts("demo"))
    prepared = method.prepare(Source(Image.new("RGB", (96, 64)), BIRD), InstructSettings(editing=QUICK))
    lineage = one_case(method, prepared, CAPTION, 9, ignore).lineage
    assert (lineage.method, lineage.model, lineage.seed, lineage.negative_prompt) == ("instruct", "painter", 9, "")
    assert lineage.prompt == INSTRUCT.prompt(RECIPE.prompts("demo"), CAPTION, BIRD)
    assert read_lineage(json.loads(json.dumps(lineage.plain()))) == lineage
    drawn_at_once = InstructSettings(editing=QUICK.model_copy(update={"batch": 4}))
    assert INSTRUCT.drawn_alike(lineage.settings, drawn_at_once)
    assert not INSTRUCT.drawn_alike(lineage.settings, InstructSettings())
    assert digital_source_type("instruct").endswith("compositeWithTrainedAlgorithmicMedia")


def test_what_the_editor_took_says_nothing_of_the_generator() -> None:
    settings = RECIPE.settings_in(profile_with("nowhere"))
    assert isinstance(settings, SettingsWithEditing)
    driver, captions = Driver(profile_with("nowhere"), ScriptedModels()), CounterfactualCaptions((CAPTION,))
    driver.speeds.add(INSTRUCT.effort(INSTRUCT.settings_of(settings), (64, 64)), 8.0)
    values = {"caption": DILLEMA.stages[0].value("A bird."), "counterfactuals": captions}
    assert driver.plan(RECIPE, values, settings, size=(64, 64)).seconds == 8.0
    assert driver.plan(DILLEMA, values, settings, size=(64, 64)).seconds is None


# Where it is offered


@pytest.fixture
def studio(tmp_path: Path) -> Iterator[Studio]:
    """Studio with an editor."""
    with workspace_in(tmp_path / "with") as workspace:
        made = Studio(profile_with("nowhere"), ScriptedModels(), workspace)
        yield made
        made.close()


def drawn_by(studio: Studio) -> str:
    """Create a run whose images were edited. Return its id."""
    source = Image.radial_gradient("L").resize((96, 64)).convert("RGB")
    plain = studio.profile.settings.model_dump(mode="json")
    run_id = studio.workspace.runs.create(source, BIRD, studio.profile.name, "bird", plain)
    for name, fields in (
        ("recipe", {"recipe": RECIPE.name}),
        ("run-all", {}),
        ("setting", {"setting": "editing.steps", "value": 3}),
        ("generate", {}),
    ):
        assert performed(studio, run_id, name, **fields).problem == ""
    return run_id


@pytest.mark.slow
def test_the_page_offers_it_with_an_editor_and_shows_nothing_of_a_control_image(studio: Studio) -> None:
    run_id = drawn_by(studio)
    run = studio.states.of(run_id).run
    assert {case.lineage.method for case in run.test_cases} == {"instruct"} and len(run.test_cases) > 1
    assert {case.lineage.settings.steps for case in run.test_cases} == {3}
    parts = parts_of(studio, run_id)
    card, pictures = parts["generation"], parts["pictures"]
    assert "Edited by instruction · 3 steps" in card and 'data-setting="editing.guidance"' in card
    assert 'data-setting="generation.images_per_caption"' in card and 'data-setting="generation.seed_mode"' in card
    for gone in ("toggle-conditioning", "control_strength", "negative_prompt", 'data-setting="generation.steps"'):
        assert gone not in card, gone
    for name, fields in (("setting", {"setting": "generation.steps", "value": 9}), ("preset", {"preset": "draft"})):
        assert "does not read generation.steps" in perform(studio, run_id, name, **fields).problem
    assert "Control" not in pictures and "Overlay" not in pictures and "made-" not in pictures
    assert "The editor may move the shapes" in parts["source"]
    (listed,) = [one for one in studio.commands.send("list-recipes", {})["recipes"] if one["recipe"] == RECIPE.name]
    assert listed["title"] == RECIPE.title


def test_a_profile_without_an_editor_shows_such_a_run_and_says_which_profile_draws_it(
    studio: Studio, tmp_path: Path
) -> None:
    run_id = drawn_by(studio)
    case = studio.states.of(run_id).run.test_cases[0]
    data = studio.exchange.saved_image(case.id)[1]
    with workspace_in(tmp_path / "without") as workspace:
        other = Studio(demo(), ScriptedModels(), workspace)
        taken = other.exchange.take_run(data).run_id
        state = other.states.of(taken)
        assert state.run.recipe == RECIPE.name and state.run.test_cases[0].lineage == case.lineage
        assert state.gate.plan is None and state.gate.closed == NO_EDITOR
        parts = parts_of(other, taken)
        assert NO_EDITOR in parts["generation"] and SUNNY_BIRD in parts["caption"]
        assert f"seed {case.lineage.seed}" in parts["pictures"]
        for name, fields in (("generate", {}), ("regenerate", {"case": state.run.test_cases[0].id})):
            assert perform(other, taken, name, **fields).problem == NO_EDITOR
        assert performed(other, taken, "run-from", stage="keywords").problem == "", "the texts can be made anew"

        plain = workspace.runs.create(Image.new("RGB", (64, 64)), BIRD, "demo", "bird", {})
        assert RECIPE.title not in parts_of(other, plain)["source"]
        assert perform(other, plain, "recipe", recipe=RECIPE.name).problem == NO_EDITOR
        names = {one["recipe"] for one in other.commands.send("list-recipes", {})["recipes"]}
        assert RECIPE.name not in names and "dillema" in names
        assert other.states.of(plain).run.recipe == "dillema"
        other.close()


def test_the_shipped_profile_has_one() -> None:
    profile = load_profile("edit")
    assert isinstance(profile.editor, KleinEditor) and profile.editor.pinned and EDITOR in profile.weights()
    assert RECIPE.cannot_draw(profile) == "" and RECIPE.cannot_draw(load_profile("demo")) == NO_EDITOR
    settings = RECIPE.settings_in(profile)
    assert isinstance(settings, SettingsWithEditing) and settings.editing.steps == 4
    gpu = Machine(64 * GB, 60 * GB, 200 * GB, "", "a GPU", 24 * GB, 24 * GB)
    shown = listed(profile, gpu)
    assert "one stage at a time" in shown.fits and EDITOR in [model.role for model in shown.models]
    assert listed(load_profile("modern"), gpu).to_fetch < 60 * GB, "who never edits fetches no editor"


# The command line


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "bird.png"
    Image.fromarray(render(random_scene(3, "object", "bird"), 150)[0]).crop((0, 0, 150, 100)).save(path)
    return path


def augment(image: Path, out: Path, *more: str) -> int:
    base = ["augment", str(image), "--task", "classification", "--label", "bird", "--out", str(out), "--captions", "2"]
    return cli.main([*base, "--recipe", RECIPE.name, *more])


def test_the_command_line_refuses_it_where_no_editor_is(
    image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert augment(image, tmp_path / "out") == cli.WRONG and not (tmp_path / "out").exists()
    assert capsys.readouterr().err.strip() == NO_EDITOR
    profile = tmp_path / "own.toml"
    assert augment(image, tmp_path / "out", "--profile", "edit", "--set", "generation.guidance=7") == cli.WRONG
    assert f"The recipe {RECIPE.name} does not read generation.guidance" in capsys.readouterr().err
    assert not profile.exists()
    assert cli.main(["recipes"]) == 0 and "with the profile edit" in capsys.readouterr().out


# A real editor at small size


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("editor") / "klein"
    tiny.save_flux2_klein(folder)
    return folder


@pytest.fixture(scope="module")
def editor(folder: Path) -> Any:
    models = load_models(profile_with(folder))
    models.check()
    assert models.runs(EDITOR) == "" and models.editor_name() == str(folder) and not models.loaded
    editor: Any = models.editor
    assert models.runs(EDITOR) == "on the CPU: no GPU was found" and models.loaded == (EDITOR,)
    return editor


def picture(seed: int = 1) -> Image.Image:
    noise = np.random.default_rng(seed).integers(0, 255, (6, 4, 3), np.uint8)
    return Image.fromarray(noise).resize((64, 96), Image.Resampling.BICUBIC)


def edited(
    editor: Any, told: str = "Make it snow.", seed: int = 5, size: int = 1, at: int = 0, of: int = 1, **changes: Any
) -> bytes:
    settings = QUICK.model_copy(update=changes)
    (result,) = editor.draw([DrawRequest(told, seed, at)], size, [picture(of)], settings, ignore)
    assert (
        result.image is not None and result.image.size == (64, 96) and result.batch == DrawnBatch(size=size, place=at)
    )
    return bytes(result.image.tobytes())


@pytest.mark.slow
def test_an_editor_draws_the_same_by_layers(folder: Path) -> None:
    editor: Any = load_models(profile_with(folder)).editor
    whole = edited(editor)
    by_layers_on_the_cpu(editor._pipe)
    same = edited(editor, seed=6) != whole and edited(editor) == whole
    assert editor.by_layers and same


@pytest.mark.slow
def test_an_image_hangs_on_instruction_source_seed_and_steps(editor: Any) -> None:
    import torch

    first = edited(editor)
    assert first == edited(editor), "the same seed gives the same bits"
    stock = editor._pipe(
        image=picture(),
        prompt="Make it snow.",
        height=96,
        width=64,
        num_inference_steps=2,
        guidance_scale=1.0,
        generator=torch.Generator("cpu").manual_seed(5),
    ).images[0]
    assert first == stock.tobytes(), "as its page has it"
    others = [
        edited(editor, "Make it night."),
        edited(editor, seed=6),
        edited(editor, of=2),
        edited(editor, steps=3),
    ]
    assert len({first, *others}) == 5 and edited(editor) == first, "nothing is left of another source"
    with pytest.raises(UserError, match=r"without guidance: set editing\.guidance to 1"):
        edited(editor, guidance=4.0)


@pytest.mark.slow
def test_an_image_has_the_same_bits_whatever_is_drawn_beside_it(editor: Any) -> None:
    asked = [
        DrawRequest(told, seed, seed) for seed, told in enumerate(("Make it snow.", "Make it night. " * 9, "Rain."))
    ]
    seen: list[Any] = []
    together = editor.draw(
        asked, 4, [picture()] * len(asked), QUICK, lambda _done, _total: seen.append(editor.preview())
    )
    for one, result in zip(asked, together, strict=True):
        assert edited(editor, one.prompt, one.seed, 4, one.place) == result.image.tobytes()
    assert [image.size for image in seen] == [(128, 192)] * 2, "all of them are previewed, in a square"
    assert editor.preview() is None, "between images there is nothing to show"


@pytest.mark.slow
def test_a_stop_ends_it_and_leaves_the_editor_as_it_was(editor: Any) -> None:
    before, steps = edited(editor), list[int]()

    def stop(done: int, _total: int) -> None:
        steps.append(done)
        raise Cancelled

    with pytest.raises(Cancelled):
        editor.draw([DrawRequest("Rain.", 1, 0)], 1, [picture(2)], QUICK, stop)
    assert steps == [1] and edited(editor) == before


@pytest.mark.slow
def test_an_instruction_that_cannot_be_read_to_its_end_is_refused_and_the_others_are_drawn(editor: Any) -> None:
    asked = [DrawRequest("Make it snow. " * 400, 0, 0), DrawRequest("Make it snow.", 5, 1)]
    long, short = editor.draw(asked, 2, [picture()] * len(asked), QUICK, ignore)
    assert long.image is None and "reads 512 tokens" in str(long.refused) and long.batch == DrawnBatch(size=2, place=0)
    assert short.image.tobytes() == edited(editor, size=2, at=1)


@pytest.mark.slow
def test_a_preview_without_a_small_vae_has_the_colours_of_the_source(
    editor: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr("pipeline.models.editor_flux2.is_small", lambda vae: False)
    seen: list[Any] = []
    editor.draw(
        [DrawRequest("Rain.", 1, 0)], 1, [picture()], QUICK, lambda _done, _total: seen.append(editor.preview())
    )
    assert [image.size for image in seen] == [(8, 12)] * 2, "a pixel for each of the latents"
    # The map finds each colour again in latents that mix the colours.
    small = np.asarray(picture().resize((8, 12), Image.Resampling.BOX), np.float32) / 127.5 - 1
    mixed = torch.from_numpy(np.concatenate([small @ small[:3, 0], small[..., :1]], axis=2)).permute(2, 0, 1)[None]
    latents = editor._pipe._patchify_latents(mixed)
    linear = editor._linear(latents, picture())
    found = editor._spread(latents)[0].flatten(1).T @ linear[:-1] + linear[-1]
    assert np.abs(found.numpy() - small.reshape(-1, 3)).max() < 0.01


@pytest.mark.slow
def test_too_little_memory_halves_the_batch(editor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    call, sizes = editor._call, list[int]()

    def tight(rows: Any) -> Any:
        sizes.append(len(rows.requests))
        if len(rows.requests) > 1:
            raise RuntimeError("out of memory: this machine holds one image")
        return call(rows)

    monkeypatch.setattr(editor, "_call", tight)
    monkeypatch.setattr(editor, "_room", {})
    asked = [DrawRequest("Rain.", seed, seed) for seed in range(2)]
    found = editor.draw(asked, 2, [picture()] * len(asked), QUICK, ignore)
    assert sizes == [2, 1, 1] and [one.batch for one in found] == [DrawnBatch()] * 2
    assert editor.batch(picture().size) == 1


@pytest.mark.slow
def test_an_editor_that_is_not_distilled_takes_guidance(tmp_path: Path) -> None:
    tiny.save_flux2_klein(tmp_path / "base", distilled=False)
    held, profile = load_models(profile_with(tmp_path / "base")), profile_with(tmp_path / "base")
    editor: Any = held.editor
    asked = [DrawRequest("Make it snow.", 5, 0), DrawRequest("Rain.", 6, 1)]
    guided = QUICK.model_copy(update={"guidance": 4.0})
    together = editor.draw(asked, 2, [picture()] * len(asked), guided, ignore)
    assert together[0].image.tobytes() == edited(editor, size=2, guidance=4.0) != edited(editor, size=2)
    (tried,) = _step_of(held, profile, EDITOR)()
    assert tried.image is not None, "what `check` does with it"
    held.release(EDITOR)
    assert held.runs(EDITOR) == ""


@pytest.mark.slow
def test_the_command_line_edits_and_repeats_it(
    folder: Path, editor: Any, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    stand_ins = ScriptedModels()
    stand_ins.editor = editor
    monkeypatch.setattr(cli, "load_models", lambda profile: stand_ins)
    monkeypatch.setattr(cli, "load_profile", lambda name: profile_with(folder))
    out = tmp_path / "out"
    assert augment(image, out, "--steps", "2", "--set", "editing.short_side=64", "--set", "editing.batch=2") == 0
    held = run_file.read(out / run_file.FILE)
    assert len(held.images) == 2 and held.run.recipe == RECIPE.name
    for kept in held.images:
        lineage = kept.record.lineage
        assert isinstance(lineage.settings, InstructSettings) and lineage.settings.editing.steps == 2
        assert lineage.model == str(folder) and lineage.prompt.startswith("Change ") and not kept.artifact_files
        with Image.open(out / kept.file) as made:
            assert made.size == (150, 100)
            told = made.info["parameters"]
        assert "Steps: 2" in told and "Sampler: FlowMatchEulerDiscreteScheduler" in told and "ControlNet" not in told
    capsys.readouterr()
    assert cli.main(["again", str(out), "--out", str(tmp_path / "two")]) == 0
    assert capsys.readouterr().out.count("same pixels") == 2
    assert editing_size((150, 100), 64) == (96, 64)
