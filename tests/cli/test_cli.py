"""The command line. The models are stand-ins (`tests/support/scripted.py`); `tests/pipeline/test_pipeline_demo.py` runs
real ones.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

import cli.pipeline as cli
from cli.options import changed_settings
from core.errors import CannotLoad, UserError
from core.images import image_sha
from core.model_sections import ROOT
from core.settings import GenerationSettings, Settings
from pipeline.models.machine import Machine
from pipeline.run_files import run_file
from pipeline.run_files.embedded import require_run_in
from pipeline.seams import OnStep
from tests.support.scripted import NoiseGenerator, Refusing, ScriptedLanguageModel, ScriptedModels, answer


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> ScriptedModels:
    """Stand-ins for the models of the command line in this test."""
    stand_ins = ScriptedModels()
    monkeypatch.setattr(cli, "load_models", lambda profile: stand_ins)
    return stand_ins


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "source picture.png"
    Image.radial_gradient("L").resize((96, 64)).convert("RGB").save(path)
    return path


def augment(image: Path, out: Path, *more: str) -> int:
    arguments = ["augment", str(image), "--task", "classification", "--label", "bird", "--out", str(out)]
    return cli.main([*arguments, "--captions", "3", "--steps", "2", *more])


def test_augment_writes_images_and_says_where(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "out"
    assert augment(image, out, "--images-per-caption", "2", "--seed", "7") == 0
    told = capsys.readouterr()
    paths = [Path(line) for line in told.out.splitlines()]
    assert paths == [out / f"image-{n:03d}.png" for n in range(1, 7)] + [out / "run.json"]
    for path in paths[:-1]:
        with Image.open(path) as made:
            assert (made.size, made.mode) == ((96, 64), "RGB")
            assert made.info["parameters"].splitlines()[-1].startswith("Steps: 2, Sampler: ")
    with Image.open(out / "image-001-control.png") as control:
        assert control.info == {}
    assert "caption: A red bird" in told.err
    assert "generation · image 1 of 6" in told.err
    assert not list(out.glob(".*"))


def test_a_profile_for_a_gpu_on_a_machine_without_one_is_told_and_goes_on(
    models: ScriptedModels,
    image: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipeline.models.machine.this_machine", lambda: Machine(16 * 10**9, 9 * 10**9, 0, ""))
    assert augment(image, tmp_path / "out", "--profile", "paper", "--captions", "1") == 0
    told = capsys.readouterr()
    assert told.err.count("No GPU was found: on the CPU the profile paper takes up to 31 GB") == 1
    assert told.out.splitlines()[-1] == str(tmp_path / "out" / "run.json")
    assert cli.main(["again", str(tmp_path / "out"), "--out", str(tmp_path / "again")]) == 0
    assert "and an image takes minutes; the profile cpu is the one" in capsys.readouterr().err


def test_the_run_file_tells_all(models: ScriptedModels, image: Path, tmp_path: Path) -> None:
    augment(image, tmp_path / "out", "--seed", "7", "--edits-at-once", "0")
    data = json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))
    run = data["run"]
    assert data["complete"] is True
    assert run["task"] == {"kind": "classification", "label": "bird", "protected": []}
    assert (data["seed"], data["profile"]["name"], data["source"]["name"]) == (7, "demo", "source picture.png")
    assert run["settings"]["counterfactuals"]["edits_at_once"] == 0
    assert set(run["values"]) == {"caption", "keywords", "alternatives", "counterfactuals"}
    trace = run["values"]["keywords"]["trace"]
    assert trace["model"] == "scripted language model"
    assert "A red bird" in trace["prompt"]
    assert "red | attribute" in trace["raw_reply"]
    assert "$caption" in data["prompts"]["diffusion"]["template"]
    assert data["versions"]["torch"]
    for held in data["images"]:
        with Image.open(tmp_path / "out" / held["file"]) as made:
            assert image_sha(made) == held["sha256"]
        assert held["lineage"]["prompt"].endswith("Keep: bird.")
    with Image.open(tmp_path / "out" / data["source"]["file"]) as copy, Image.open(image) as source:
        assert image_sha(copy) == image_sha(source) == data["source"]["sha256"]


def test_again_gives_the_same_pixels_even_after_the_prompts_changed(
    models: ScriptedModels,
    image: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    augment(image, tmp_path / "out")
    capsys.readouterr()
    held = (tmp_path / "out" / "run.json").read_text(encoding="utf-8")
    assert cli.main(["again", str(tmp_path / "out" / "run.json"), "--out", str(tmp_path / "two")]) == 0
    assert capsys.readouterr().out.count("same pixels") == 3
    for name in ("image-001.png", "image-002.png", "image-003.png"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert (tmp_path / "out" / "run.json").read_text(encoding="utf-8") == held

    changed = held.replace("$caption Keep: $kept.", "Keep $kept! $caption")
    assert changed != held
    (tmp_path / "out" / "run.json").write_text(changed, encoding="utf-8")
    arguments = [
        "again",
        str(tmp_path / "out" / "run.json"),
        "--out",
        str(tmp_path / "three"),
        "--image",
        "image-002.png",
    ]
    assert cli.main(arguments) == 1
    told = capsys.readouterr()
    assert told.out == f"{tmp_path / 'three' / 'image-002.png'}  DIFFERENT pixels\n"
    assert "compiled" not in told.err
    record = json.loads(changed)
    for shown in record["images"]:
        shown["lineage"]["settings"]["batch"] = {"size": 1, "place": 0, "compiled": True}
    (tmp_path / "out" / "run.json").write_text(json.dumps(record), encoding="utf-8")
    assert cli.main([*arguments[:3], str(tmp_path / "four"), *arguments[4:]]) == 1
    assert "They were drawn with compiled blocks, and now without" in capsys.readouterr().err
    assert "1 of 1 images differ. All versions are the same" in told.err


def test_the_images_carry_their_run_and_all_of_them_the_same_one(
    models: ScriptedModels, image: Path, tmp_path: Path
) -> None:
    augment(image, tmp_path / "out")
    data = run_file.read(tmp_path / "out" / "run.json")
    held = [require_run_in((tmp_path / "out" / kept.file).read_bytes()) for kept in data.images]
    assert len({one.run.id for one in held}) == 1
    for one, kept in zip(held, data.images, strict=True):
        assert (one.run.name, one.run.profile, one.run.values) == ("source picture", "demo", data.run.values)
        assert one.source_sha == data.source_sha256 and one.source is not None
        assert one.case is not None and image_sha(one.case.image) == kept.record.sha256
        assert one.case.lineage == kept.record.lineage


def test_a_mask_goes_with_every_image(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask, out = tmp_path / "mask.png", tmp_path / "out"
    Image.new("L", (192, 128), 4).save(mask)
    base = ["augment", str(image), "--task", "segmentation", "--captions", "2", "--steps", "2", "--mask", str(mask)]
    assert cli.main([*base, "--classes", "0 sky, 4 road", "--out", str(out)]) == 0
    assert "The mask was brought from 192x128 to the 96x64 pixels" in capsys.readouterr().err
    data = run_file.read(out / "run.json")
    assert data.run.mask_classes == {0: "sky", 4: "road"}
    for kept in data.images:
        with Image.open(out / kept.mask_file) as beside:
            assert (beside.mode, beside.size, beside.getextrema()) == ("L", (96, 64), (4, 4))
        held = require_run_in((out / kept.file).read_bytes())
        assert held.mask is not None and held.run.mask_classes == data.run.mask_classes
    assert cli.main(["again", str(out / "run.json"), "--out", str(tmp_path / "two")]) == 0
    capsys.readouterr()

    for more, said in (
        (["--classes", "0 sky"], "without a name: 4"),
        ([], "--mask needs --classes"),
        (["--classes", "road"], "“road” is no class"),
    ):
        assert cli.main([*base, *more, "--out", str(tmp_path / "three")]) == 2
        assert said in capsys.readouterr().err
    assert cli.main([*base, "--classes", "0 sky, 4 lane", "--out", str(out)]) == 2
    assert "a run with another mask" in capsys.readouterr().err
    wrong = ["augment", str(image), "--task", "classification", "--label", "bird", "--out", str(tmp_path / "four")]
    assert cli.main([*wrong, "--mask", str(mask), "--classes", "4 road"]) == 2
    assert "--mask belongs to --task segmentation" in capsys.readouterr().err


def test_the_same_command_again_makes_nothing_twice(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    augment(image, tmp_path / "out")
    first = capsys.readouterr().out
    made = list(models.generator.made)
    assert augment(image, tmp_path / "out") == 0
    assert capsys.readouterr().out == first
    assert models.generator.made == made
    assert augment(image, tmp_path / "out", "--seed", "1") == 2
    assert "holds a run with another seed: choose another --out" in capsys.readouterr().err


def test_an_interrupt_keeps_what_is_finished_and_the_same_command_goes_on(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(NoiseGenerator):
        def generate(
            self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
        ) -> Image.Image:
            if len(self.made) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return super().generate(prompt, control, settings, seed, on_step)

    whole = tmp_path / "whole"
    augment(image, whole)
    models.generator = Interrupted()
    assert augment(image, tmp_path / "out") == 130
    assert "Stopped. Images kept: 1" in capsys.readouterr().err
    assert [path.name for path in sorted((tmp_path / "out").glob("image-???.png"))] == ["image-001.png"]
    assert not run_file.read(tmp_path / "out" / "run.json").complete

    models.generator = NoiseGenerator()
    assert augment(image, tmp_path / "out") == 0
    assert len(models.generator.made) == 2
    assert run_file.read(tmp_path / "out" / "run.json").complete
    for name in ("image-001.png", "image-002.png", "image-003.png"):
        with Image.open(tmp_path / "out" / name) as one, Image.open(whole / name) as other:
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize(("by", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (None, 1)])
def test_whatever_ends_it_what_is_finished_is_kept_and_the_same_command_goes_on(
    models: ScriptedModels,
    image: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    by: signal.Signals | None,
    code: int,
) -> None:
    file, held = tmp_path / "out" / "run.json", list[run_file.RunFile]()

    class Ended(NoiseGenerator):
        def generate(
            self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
        ) -> Image.Image:
            held.append(run_file.read(file))  # the file that a kill at this moment would leave
            return super().generate(prompt, control, settings, seed, on_step)

    def write(run: run_file.RunFile, folder: Path) -> None:
        if len(run.images) == 2:  # the program ends while it saves, and keeps the image that is saved
            if by is None:
                raise RuntimeError("a programmer's mistake")
            os.kill(os.getpid(), by)
            os.kill(os.getpid(), by)
        whole(run, folder)

    whole, models.generator = run_file.write, Ended()
    with monkeypatch.context() as patched:
        patched.setattr(run_file, "write", write)
        if by is None:
            with pytest.raises(RuntimeError, match="programmer"):
                augment(image, tmp_path / "out")
        else:
            assert augment(image, tmp_path / "out") == code
    assert "Stopped. Images kept: 2" in capsys.readouterr().err
    assert [len(one.images) for one in held] == [0, 1] and not any(one.complete for one in held)
    assert set(held[0].run.values) == {"caption", "keywords", "alternatives", "counterfactuals"}
    assert len(run_file.read(file).images) == (1 if by is None else 2)

    asked, models.generator = len(models.language.prompts), NoiseGenerator()
    assert augment(image, tmp_path / "out") == 0
    assert (len(models.generator.made), len(models.language.prompts)) == (2 if by is None else 1, asked)
    assert run_file.read(file).complete


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UserError("The safety checker refused this image."), "The safety checker refused this image."),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "The machine ran out of memory while it drew"),
        (ValueError("a library's mistake\nin many lines"), "ValueError: a library's mistake\n"),
    ],
)
def test_an_image_that_fails_is_named_and_tried_again_with_the_next_seed(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    models.generator = refusing = Refusing(error)
    assert augment(image, tmp_path / "out") == 3
    ((prompt, seed),) = refusing.refused
    told = capsys.readouterr()
    assert f"(seed {seed}): {said}" in told.err and "No image of “at sunset”" in told.err
    assert "1 of 3 images could not be made. The same command tries it again, with the next seed." in told.err
    assert [Path(line).name for line in told.out.splitlines()] == ["image-001.png", "image-002.png", "run.json"]
    held = run_file.read(tmp_path / "out" / "run.json")
    assert not held.complete and [(one.tries, one.seed) for one in held.failures] == [(1, seed)]

    models.generator = NoiseGenerator()
    for once_more in (1, 0):
        assert augment(image, tmp_path / "out") == 0
        assert len(models.generator.made) == once_more
        models.generator.made.clear()
    held = run_file.read(tmp_path / "out" / "run.json")
    seeds = [kept.record.lineage.seed for kept in held.images if kept.record.lineage.prompt == prompt]
    assert held.complete and len(held.images) == 3 and seeds != [seed] and len(seeds) == 1


def test_replies_that_cannot_be_read_are_asked_for_again_with_the_next_seeds(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = "Sorry,\nI cannot do \x1b[2Jthat."
    models.language = ScriptedLanguageModel(refusal)
    assert augment(image, tmp_path / "out") == 3
    told = capsys.readouterr().err
    assert "The language model was asked" in told
    assert "The reply was:\n  Sorry,\n  I cannot do \\x1b[2Jthat.\n" in told, "a terminal obeys no reply"
    (failure,) = run_file.read(tmp_path / "out" / "run.json").failures
    assert failure.raw_reply == refusal and failure.prompt == models.language.prompts[-1]
    assert augment(image, tmp_path / "json", "--json") == 3
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1]["event"] == "error"
    assert (lines[-1]["prompt"], lines[-1]["raw_reply"]) == (models.language.prompts[-1], refusal)
    spent, models.language = set(models.language.seeds), ScriptedLanguageModel(answer)
    assert augment(image, tmp_path / "out") == 0
    assert models.language.seeds[0] == max(spent) + 1


def test_a_caption_that_fails_a_check_is_drawn_where_a_person_ticked_it_and_that_is_said(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def loses_the_bird(prompt: str) -> str:
        return answer(prompt).replace("bird", "toy") if "sunset" in prompt else answer(prompt)

    models.language = ScriptedLanguageModel(loses_the_bird)
    assert augment(image, tmp_path / "out") == 0
    lost = "A red toy in sunny weather at sunset."
    assert f"  not used: {lost}" in capsys.readouterr().err and len(models.generator.made) == 2
    held = run_file.read(tmp_path / "out" / "run.json")
    value = held.run.values["counterfactuals"]
    ticked = replace(value.value, items=tuple(replace(item, used=True) for item in value.value.items))
    values = {**held.run.values, "counterfactuals": replace(value, value=ticked)}
    run_file.write(replace(held, run=replace(held.run, values=values)), tmp_path / "out")
    assert augment(image, tmp_path / "out") == 0
    assert f"  used all the same: {lost}" in capsys.readouterr().err
    assert lost in models.generator.made[-1][0] and len(models.generator.made) == 3


@pytest.mark.slow
def test_the_language_model_chooses_the_edits_and_it_is_said_where_it_was_not_asked(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("--set", "counterfactuals.combinations=model", "--edits-at-once", "2", "--set", "generation.short_side=64")
    assert augment(image, tmp_path / "one", *asked, "--profile", "paper") == 0
    assert "spread evenly" not in capsys.readouterr().err
    held = run_file.read(tmp_path / "one" / "run.json")
    chosen = [[edit.alternative for edit in item.edits] for item in held.run.values["counterfactuals"].value.items]
    assert chosen == [["sandy"], ["blue", "snowy"]] and len(held.images) == 2
    assert "which changes make good new captions" in held.prompts["edits"].template
    assert held.run.values["counterfactuals"].trace.prompt.startswith("You help to test")
    assert augment(image, tmp_path / "one", *asked, "--profile", "paper") == 0
    assert "counterfactual captions (as it was)" in capsys.readouterr().err
    assert cli.main(["again", str(tmp_path / "one"), "--out", str(tmp_path / "again")]) == 0
    capsys.readouterr()

    assert augment(image, tmp_path / "two", *asked) == 0
    assert capsys.readouterr().err.count("\n  The edits were spread evenly: the language model was to choose them") == 1
    assert augment(image, tmp_path / "three", *asked, "--json") == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (remarks,) = [
        event["remarks"] for event in events if event.get("stage") == "counterfactuals" and "remarks" in event
    ]
    assert any("spread evenly" in remark for remark in remarks)
    (note,) = run_file.read(tmp_path / "two" / "run.json").run.values["counterfactuals"].trace.notes
    assert "edits.toml is missing" in note


def test_a_control_image_without_edges_is_told_of_its_source(
    models: ScriptedModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blank, remark = tmp_path / "blank.png", "The control image has edges in only 0 % of its area"
    Image.new("RGB", (96, 64), "teal").save(blank)
    assert augment(blank, tmp_path / "one") == 0
    assert capsys.readouterr().err.count(f"\n  {remark}") == 1
    assert augment(blank, tmp_path / "two", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    notes = [line for line in lines if line["event"] == "note" and line["message"].startswith(remark)]
    assert [note["source"] for note in notes] == [str(blank)]


def test_several_images_are_a_run_each_and_one_that_fails_stops_no_other(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "photos", tmp_path / "out"
    folder.mkdir()
    (folder / "broken.png").write_text("no picture")
    (folder / "notes.txt").write_text("no picture either")
    Image.new("L", (96, 64)).save(folder / "b.mask.png")
    Image.linear_gradient("L").resize((96, 64)).convert("RGB").save(folder / "b.jpg")
    command = ["augment", str(image), str(folder), "--task", "classification", "--label", "bird", "--out", str(out)]
    command += ["--captions", "1", "--steps", "1"]
    assert cli.main(command) == 3
    told = capsys.readouterr()
    named = [out / name / file for name in (image.stem, "b") for file in ("image-001.png", "run.json")]
    assert [Path(line) for line in told.out.splitlines()] == named and all(path.exists() for path in named)
    assert f"{folder / 'broken.png'}: The file is not an image" in told.err
    assert "Failed: 1 of 3 source images" in told.err
    assert told.err.count("This does not look like one of the drawn scenes") == 1

    (folder / "broken.png").unlink()
    made = len(models.generator.made)
    assert cli.main([*command, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(models.generator.made) == made
    assert [line["file"] for line in lines if line["event"] == "image-done"] == [str(named[0]), str(named[2])]
    assert {line["event"] for line in lines} == {"begun", "note", "stage-done", "image-done", "done", "ended"}
    assert [line["source"] for line in lines if line["event"] == "begun"] == [str(image), str(folder / "b.jpg")]
    assert lines[-1] == {"event": "ended", "sources": 2, "failed": 0, "images_failed": 0}

    assert cli.main([*command[:-1], "0", "--json"]) == 2
    refused = capsys.readouterr()
    assert json.loads(refused.out)["event"] == "error" and "generation.steps" in refused.err


def test_several_images_have_a_mask_each(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, masks, out = tmp_path / "photos", tmp_path / "masks", tmp_path / "out"
    for place in (folder, masks):
        place.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.png").write_bytes(image.read_bytes())
    Image.new("L", (96, 64), 4).save(masks / "a.mask.png")
    command = ["augment", str(folder), "--task", "segmentation", "--classes", "4 road", "--captions", "1"]
    assert cli.main([*command, "--mask", str(masks / "a.mask.png"), "--out", str(out)]) == 2
    assert cli.main([*command, "--mask", str(masks), "--steps", "1", "--out", str(out)]) == 3
    said = capsys.readouterr().err
    assert "give the folder of the masks with --mask" in said and f"The mask {masks / 'b.mask.png'} cannot be" in said
    assert run_file.read(out / "a" / "run.json").run.mask_classes == {4: "road"} and not (out / "b").exists()


def test_a_model_that_cannot_be_had_ends_all(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models.generator = Refusing(CannotLoad("There is not enough memory to load the ControlNet."))
    (tmp_path / "other.png").write_bytes(image.read_bytes())
    command = ["augment", str(image.parent), "--task", "classification", "--label", "bird"]
    assert cli.main([*command, "--out", str(tmp_path / "out")]) == 2
    assert "There is not enough memory to load the ControlNet." in capsys.readouterr().err
    assert len(models.generator.made) == 1


def test_a_sample_of_the_profile_gets_no_notice(
    models: ScriptedModels, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Image.open(ROOT / "demo" / "samples" / "bird-on-a-twig.png") as sample:
        sample.convert("RGB").save(tmp_path / "renamed.jpg", quality=80)
    assert augment(tmp_path / "renamed.jpg", tmp_path / "out", "--captions", "1") == 0
    assert "drawn scenes" not in capsys.readouterr().err


def test_a_reader_that_has_enough_ends_it_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(sys, "stdout", os.fdopen(writing, "w"))
    assert cli.main(["settings"]) == 141
    sys.stdout.close()  # Python does this when it exits


def test_values_are_kept_as_soon_as_they_are_there(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_prompt: str) -> str:
        raise RuntimeError("out of memory")

    models.language = ScriptedLanguageModel(answer, broken)
    assert augment(image, tmp_path / "out") == 2
    assert "The machine ran out of memory at the stage alternatives" in capsys.readouterr().err
    assert set(run_file.read(tmp_path / "out" / "run.json").run.values) == {"caption", "keywords"}


def test_segmentation_takes_the_profile_s_protected_classes_or_those_given(
    models: ScriptedModels, image: Path, tmp_path: Path
) -> None:
    models.captioner.text = "A road with a red car in sunny weather by day. The ground is grassy."
    base = ["augment", str(image), "--task", "segmentation", "--steps", "1", "--captions", "1"]
    assert cli.main([*base, "--out", str(tmp_path / "a")]) == 0
    protected = run_file.read(tmp_path / "a" / "run.json").run.task.protected
    assert protected == ("road", "pavement", "lane marking", "vehicle", "pedestrian")
    assert cli.main([*base, "--out", str(tmp_path / "b"), "--protected", "road, car"]) == 0
    assert run_file.read(tmp_path / "b" / "run.json").run.task.protected == ("road", "car")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--label", " "], "needs a label"),
        (["--protected", "road"], "--protected belongs to --task segmentation"),
        (["--profile", "nope"], "no profile 'nope'"),
        (
            ["--captions", "0"],
            "The setting counterfactuals.captions cannot be '0': it has to be a whole number from 1 to ",
        ),
        (
            ["--steps", "many"],
            "The setting generation.steps cannot be 'many': it has to be a whole number from 1 to 150",
        ),
        (
            ["--set", "generation.guidance=99"],
            "generation.guidance cannot be '99': it has to be a number from 1 to 20.",
        ),
        (["--set", "generation.seed_mode=last"], "cannot be 'last': choose next, fixed or random."),
        (["--set", "generation.colour=3"], "There is no setting 'generation.colour'"),
        (["--set", "steps"], "--set takes STAGE.NAME=VALUE"),
    ],
)
def test_a_wrong_request_is_one_sentence_and_code_2(
    models: ScriptedModels,
    image: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    message: str,
) -> None:
    assert augment(image, tmp_path / "out", *more) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert not (tmp_path / "out").exists()


def test_what_is_no_image_and_a_folder_that_cannot_be_are_refused(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.png"
    text.write_text("no picture")
    assert augment(text, tmp_path / "out") == 2
    assert augment(tmp_path / "missing.png", tmp_path / "out") == 2
    assert augment(image, image / "out") == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: "not json", "it is not JSON"),
        (lambda data: "[" * 100_000, "it is not JSON"),
        (lambda data: data.replace("A red bird", "\\ud800", 1), "it is not JSON"),
        (lambda data: data.replace('"seed": 0', '"seed": Infinity', 1), "it is not JSON"),
        (lambda data: "{}", "is not a run.json that this version of the studio reads"),
        (lambda data: data.replace('"seed"', '"sead"'), "damaged or was changed by hand"),
    ],
)
def test_a_damaged_run_file_is_refused(
    models: ScriptedModels,
    image: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[str], str],
    message: str,
) -> None:
    augment(image, tmp_path / "out")
    file = tmp_path / "out" / "run.json"
    file.write_text(damage(file.read_text(encoding="utf-8")), encoding="utf-8")
    capsys.readouterr()
    assert cli.main(["again", str(file), "--out", str(tmp_path / "two")]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["../victim.png", "..\\victim.png", "C:victim.png", "/{folder}/victim.png", "..", "a\0b"]
)
@pytest.mark.parametrize("where", ["file", "mask_file", "artifact"])
def test_a_run_file_names_no_file_outside_its_folder(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, where: str
) -> None:
    augment(image, tmp_path / "out", "--captions", "1")
    file, victim = tmp_path / "out" / "run.json", tmp_path / "victim.png"
    victim.write_bytes(b"precious")
    data = json.loads(file.read_text(encoding="utf-8"))
    (held,) = data["images"]
    named = held["artifacts"]["control image"] if where == "artifact" else held
    named["mask_file" if where == "mask_file" else "file"] = name.format(folder=tmp_path)
    file.write_text(json.dumps(data), encoding="utf-8")
    assert cli.main(["again", str(file), "--out", str(tmp_path / "two")]) == 2
    assert "damaged or was changed by hand" in capsys.readouterr().err
    assert victim.read_bytes() == b"precious"


def test_again_refuses_a_changed_source_and_its_own_folder(
    models: ScriptedModels, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    augment(image, tmp_path / "out")
    file = str(tmp_path / "out" / "run.json")
    assert cli.main(["again", file, "--out", str(tmp_path / "out")]) == 2
    whole = (tmp_path / "out" / "source.png").read_bytes()
    Image.new("RGB", (96, 64)).save(tmp_path / "out" / "source.png")
    assert cli.main(["again", file, "--out", str(tmp_path / "two")]) == 2
    assert cli.main(["again", file, "--out", str(tmp_path / "two"), "--image", "image-009.png"]) == 2
    told = capsys.readouterr().err
    assert "The new images would replace the old ones: choose another --out." in told
    assert "source.png was changed after it was made" in told
    assert "There is no image image-009.png" in told and "it has image-001.png to image-003.png." in told
    capsys.readouterr()
    assert cli.main(["again", str(tmp_path / "out" / "nothing"), "--out", str(tmp_path / "two")]) == 2
    (tmp_path / "out" / "source.png").write_bytes(whole)
    assert cli.main(["again", str(tmp_path / "out"), "--out", str(tmp_path / "two")]) == 0, "its folder will do"
    assert capsys.readouterr().out.count("same pixels") == 3


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("augment", "The following arguments are required: IMAGE, --task, --out. "),
        ("augment x.png --task class --out y", "--task: invalid choice: 'class' (choose from "),
        ("augment x.png --task classification --out y --seed -1", "--seed: a seed is a whole number from 0 to "),
        ("augmnt", "COMMAND: invalid choice: 'augmnt' (choose from "),
    ],
)
def test_a_wrong_option_is_one_sentence_too(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(command.split())
    told = capsys.readouterr().err
    assert ended.value.code == 2 and told.startswith(said) and told.count("\n") == 1 and "--help" in told


def test_without_a_command_those_there_are_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "make test cases from source images" in capsys.readouterr().err


def test_settings_from_text() -> None:
    changed = changed_settings(Settings(), {"generation.steps": "12", "conditioning.stretch": "false"})
    assert (changed.generation.steps, changed.conditioning.stretch) == (12, False)
    with pytest.raises(UserError, match="no setting 'steps'"):
        changed_settings(Settings(), {"steps": "12"})


def test_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["profiles"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} >= {"demo", "paper"}
    assert cli.main(["settings"]) == 0
    assert "generation.steps" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_itself_explains_and_shows_no_traceback(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pipeline", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)

    helped = run("--help")
    assert helped.returncode == 0
    for command in ("augment", "again", "profiles", "settings"):
        assert command in helped.stdout
    refused = run(
        "augment", "x.png", "--task", "classification", "--label", "bird", "--out", str(tmp_path), "--profile", "x"
    )
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "There is no profile 'x'" in refused.stderr
