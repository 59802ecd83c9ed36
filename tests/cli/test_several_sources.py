"""`augment` with several source images and models that do not fit into memory together. Each stage runs for all images
before the next one, and all else is as if each image was done by itself.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import cli.pipeline as cli
from core.errors import CannotLoad
from core.settings import CaptionSettings, GenerationSettings
from core.types import Task
from pipeline.run_files import run_file
from pipeline.seams import CaptionRequest, OnStep
from tests.support.scripted import (
    SUNNY_BIRD,
    NoiseGenerator,
    ScriptedBatches,
    ScriptedCaptioner,
    ScriptedLanguageModel,
    ScriptedModels,
    answer,
)

NAMES = ("a", "b", "c")
GNU = SUNNY_BIRD.replace("bird", "gnu")


class Noting(ScriptedModels):
    """Stand-ins that note which model works, in `order`. The picture `gnu` is captioned as a gnu."""

    def __init__(self, together: bool, batches: bool = False, reply: Callable[[str], str] = answer) -> None:
        order = self.order = list[str]()

        def replied(prompt: str) -> str:
            order.append("language model")
            return reply(prompt)

        class Captioner(ScriptedCaptioner):
            def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
                order.append("captioner")
                super().caption(image, task, settings, seed)
                return (GNU if image.getpixel((0, 0)) == GNU_COLOUR else SUNNY_BIRD), ""

        class Captioners(Captioner):
            def caption_many(
                self, requests: Sequence[CaptionRequest], settings: CaptionSettings
            ) -> list[tuple[str, str]]:
                return [self.caption(one.image, one.task, settings, one.seed) for one in requests]

        class Generator(NoiseGenerator):
            def generate(
                self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
            ) -> Image.Image:
                order.append("generator")
                return super().generate(prompt, control, settings, seed, on_step)

        super().__init__((ScriptedBatches if batches else ScriptedLanguageModel)(replied))
        self.captioner = Captioners() if batches else Captioner()
        self.generator = Generator()
        self.fit_together = together

    @property
    def turns(self) -> list[str]:
        return [name for name, _ in groupby(self.order)]


GNU_COLOUR = (9, 9, 9)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        picture = Image.radial_gradient("L").resize((96, 64)).convert("RGB")
        picture.paste((50 * number, 90, 120), (0, 0, 20, 20))
        picture.save(folder / f"{name}.png")
    return folder


@pytest.fixture
def augment(monkeypatch: pytest.MonkeyPatch, photos: Path) -> Callable[..., int]:
    def run(models: ScriptedModels, out: Path, *more: str) -> int:
        monkeypatch.setattr(cli, "load_models", lambda _profile: models)
        command = ["augment", str(photos), "--task", "classification", "--label", "bird", "--out", str(out)]
        return cli.main([*command, "--captions", "2", "--steps", "2", *more])

    return run


def by_source(told: str, out: Path) -> dict[str, list[str]]:
    """Return the printed lines about each source image, without progress and with OUT for the folder."""
    found, source = dict[str, list[str]](), ""
    for line in told.replace(str(out), "OUT").splitlines():
        if heading := re.fullmatch(r"\S*/(\w+)\.\w+ \(\d of \d\)", line):
            source = heading[1]
        elif " · " not in line and "do not fit into memory together" not in line:
            found.setdefault(source, []).append(line)
    return found


def events_by_source(told: str, out: Path) -> dict[str, list[dict[str, Any]]]:
    found = dict[str, list[dict[str, Any]]]()
    for line in told.replace(str(out), "OUT").splitlines():
        event = {name: value for name, value in json.loads(line).items() if not name.startswith("seconds")}
        if "together" not in event.get("message", ""):
            found.setdefault(Path(event.pop("source", "")).stem, []).append(event)
    return found


def made(out: Path) -> dict[str, Any]:
    """Return the values, the files of images with their pixels, and whether all is there, by folder."""
    runs = {file.parent.name: run_file.read(file) for file in sorted(out.glob("*/run.json"))}
    return {
        name: (
            {stage: value.value for stage, value in run.run.values.items()},
            [(image.file, image.record.sha256) for image in run.images],
            run.complete,
        )
        for name, run in runs.items()
    }


@pytest.mark.parametrize("batches", [False, True])
def test_stages_go_across_sources_and_nothing_else_changes(
    augment: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], batches: bool
) -> None:
    alone, across = tmp_path / "alone", tmp_path / "across"
    models = Noting(together=True)
    assert augment(models, alone) == 0
    assert models.turns == ["captioner", "language model", "generator"] * 3
    before = capsys.readouterr()
    models = Noting(together=False, batches=batches)
    assert augment(models, across) == 0
    assert models.turns == ["captioner", "language model", "generator"]
    now = capsys.readouterr()
    assert now.out.replace(str(across), "OUT") == before.out.replace(str(alone), "OUT")
    assert by_source(now.err, across) == by_source(before.err, alone)
    assert now.err.count("do not fit into memory together: each stage runs for up to 32 images") == 1
    assert "do not fit" not in before.err
    assert made(across) == made(alone) and [complete for *_, complete in made(across).values()] == [True] * 3

    again = Noting(together=False, batches=batches)
    assert augment(again, across) == 0 and not again.order, "nothing is made twice"
    assert capsys.readouterr().out == now.out


def test_json_lines_name_their_source(
    augment: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, across = tmp_path / "alone", tmp_path / "across"
    assert augment(Noting(together=True), alone, "--json") == 0
    before = events_by_source(capsys.readouterr().out, alone)
    for batches, out in ((False, across), (True, tmp_path / "batches")):
        assert augment(Noting(together=False, batches=batches), out, "--json") == 0
        lines = capsys.readouterr().out
        assert events_by_source(lines, out) == before and list(before) == ["a", "b", "c", ""]
        assert [json.loads(line).get("source") for line in lines.splitlines() if "together" in line] == [None]


@pytest.mark.parametrize("batches", [False, True])
def test_a_source_that_fails_stops_no_other(
    augment: Callable[..., int], photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], batches: bool
) -> None:
    def spoilt(prompt: str) -> str:
        return "I cannot help with that." if "gnu" in prompt else answer(prompt)

    (photos / "b.png").write_text("no picture")
    Image.new("RGB", (96, 64), GNU_COLOUR).save(photos / "d.png")
    out = tmp_path / "out"
    assert augment(Noting(together=False, batches=batches, reply=spoilt), out) == 3
    told = capsys.readouterr()
    files = [out / name / file for name in ("a", "c") for file in ("image-001.png", "image-002.png", "run.json")]
    assert [Path(line) for line in told.out.splitlines()] == files
    assert f"{photos / 'b.png'}: The file is not an image" in told.err
    assert f"{photos / 'd.png'}: The language model was asked" in told.err
    assert "The reply was:\n  I cannot help with that.\n" in told.err
    assert told.err.count("Stopped. Images kept: 0") == 1 and "Failed: 2 of 4 source images." in told.err
    kept = run_file.read(out / "d" / "run.json")
    assert set(kept.run.values) == {"caption"} and not kept.complete

    (photos / "b.png").unlink()
    models = Noting(together=False, batches=batches)
    assert augment(models, out) == 0
    assert models.turns == ["language model", "generator"], "only the failed source is left"
    assert run_file.read(out / "d" / "run.json").complete


@pytest.mark.parametrize("batches", [False, True])
def test_an_interrupt_in_a_text_stage_keeps_what_is_there_of_every_source(
    augment: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], batches: bool
) -> None:
    def interrupting(prompt: str) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return answer(prompt)

    out = tmp_path / "out"
    assert augment(Noting(together=False, batches=batches, reply=interrupting), out) == 130
    told = capsys.readouterr()
    assert not told.out
    for name in NAMES:
        assert f"Stopped. Images kept: 0, see {out / name / 'run.json'}." in told.err
        assert set(run_file.read(out / name / "run.json").run.values) == {"caption"}
    models = Noting(together=False, batches=batches)
    assert augment(models, out) == 0 and models.turns == ["language model", "generator"]


def test_an_interrupt_while_drawing_keeps_the_finished_sources(
    augment: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models, whole, out = Noting(together=False), tmp_path / "whole", tmp_path / "out"

    class Interrupted(NoiseGenerator):
        def generate(
            self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
        ) -> Image.Image:
            if len(self.made) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            return super().generate(prompt, control, settings, seed, on_step)

    augment(Noting(together=False), whole)
    capsys.readouterr()
    models.generator = Interrupted()
    assert augment(models, out) == 130
    told = capsys.readouterr()
    files = [out / "a" / file for file in ("image-001.png", "image-002.png", "run.json")]
    assert [Path(line) for line in told.out.splitlines()] == [*files, out / "b" / "image-001.png"]
    assert re.findall(r"Images kept: (\d), see \S*/(\w)/run", told.err) == [("1", "b"), ("0", "c")]
    assert augment(Noting(together=False), out) == 0
    assert made(out) == made(whole)


def test_a_model_that_cannot_be_loaded_ends_all(
    augment: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Missing(Noting):
        @property
        def language(self) -> ScriptedLanguageModel:
            raise CannotLoad("There is not enough memory to load the language model.")

        @language.setter
        def language(self, _model: ScriptedLanguageModel) -> None: ...

    assert augment(Missing(together=False), tmp_path / "out") == 2
    told = capsys.readouterr().err
    assert told.count("There is not enough memory to load the language model.") == 1
    assert told.count("Stopped. Images kept: 0") == 3


def test_models_that_made_room_for_each_other_at_the_first_source_do_so_no_more(
    augment: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Lacking(Noting):
        """Models, one freed for lack of memory once something is drawn."""

        @property
        def fit_together(self) -> bool:  # type: ignore[override]
            return "generator" not in self.order

        @fit_together.setter
        def fit_together(self, _together: bool) -> None: ...

    models = Lacking(together=True)
    assert augment(models, tmp_path / "out") == 0
    assert models.turns == ["captioner", "language model", "generator"] * 2
    assert models.order.count("captioner") == 3


def test_many_sources_are_done_in_parts_that_the_memory_holds(
    augment: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "SIDE_BY_SIDE", 2)
    models = Noting(together=False)
    assert augment(models, tmp_path / "out") == 0
    assert models.turns == ["captioner", "language model", "generator"] * 2
    assert re.findall(r"\((\d) of 3\)", capsys.readouterr().err)[-1] == "3"
    assert list(made(tmp_path / "out")) == list(NAMES)


def test_settings_that_cannot_be_drawn_are_refused_before_any_stage(
    augment: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = Noting(together=False)
    assert augment(models, tmp_path / "out", "--set", "conditioning.kind=depth") == 2
    assert capsys.readouterr().err == "This profile has no ControlNet for depth: take canny.\n"
    assert not models.order and not (tmp_path / "out").exists()
