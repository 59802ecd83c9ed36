"""A user's own method needs no change of page, storage, driver or files. Here it washes the source in a colour.

The method has settings and artifacts of its own and no control image. It prepares a source in steps that can be
stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from PIL import Image
from pydantic import BaseModel, Field

import cli.pipeline as cli
from core.errors import Cancelled
from core.images import image_sha
from core.lineage import Artifact, Lineage, MethodSettings, TestCase
from core.progress import OnProgress, Progress, stop_if
from core.settings import GenerationSettings, Settings
from core.types import GENERATION, CounterfactualCaption, CounterfactualCaptions, Task
from experiments.driving import draw
from pipeline.driver import Driver
from pipeline.methods import METHODS
from pipeline.methods.base import MethodDescription
from pipeline.profiles.profile import load_profile
from pipeline.prompting import PromptSet
from pipeline.recipes import DILLEMA, RECONSTRUCTION
from pipeline.request import Event, MemoryStore, Request
from pipeline.run_files import run_file
from pipeline.run_files.provenance import digital_source_type
from pipeline.seams import CaseRequest, InversionStore, Models, OnStep, Prepared, Source
from services.studio import Studio
from tests.support.own_recipe import registered
from tests.support.scripted import ScriptedModels, parts_of, performed
from tests.support.workspaces import workspace_in

pytestmark = pytest.mark.slow

BIRD = Task("classification", label="bird")
SOURCE = Image.linear_gradient("L").resize((96, 64)).convert("RGB")


class Colour(BaseModel, frozen=True):
    """Section of the method's own settings."""

    shade: int = Field(9, ge=0, le=255, description="How red the wash is")


class WashSettings(MethodSettings):
    """Settings that an image of this method was made with."""

    colour: Colour = Colour()
    generation: GenerationSettings = GenerationSettings()


class RunSettings(Settings):
    """Settings of every recipe, and the method's own section."""

    colour: Colour = Colour()


class WashDescription(MethodDescription):
    """Description of the method as data."""

    title = "Wash"
    settings_type = WashSettings
    artifacts = (Artifact("wash", "Wash", "The colour that was laid over it"),)

    def preparation_key(self, source: Source, settings: MethodSettings) -> object:
        assert isinstance(settings, WashSettings)
        return image_sha(source.image), settings.colour

    def with_models(
        self,
        models: Models,
        prompts: PromptSet,
        labels: Sequence[str] = (),
        inversions: InversionStore | None = None,
    ) -> Wash:
        return Wash()


@dataclass(frozen=True)
class Washed(Prepared):
    """Prepared source with its wash."""


class Wash:
    """Method that blends the source with a colour, as strongly as the seed says. It counts its preparations."""

    name, prepared = "wash", 0

    def prepare(
        self,
        source: Source,
        settings: MethodSettings,
        on_progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
    ) -> Washed:
        assert isinstance(settings, WashSettings)
        Wash.prepared += 1
        for step in range(2):
            stop_if(cancelled)
            if on_progress is not None:
                on_progress(Progress(GENERATION, step, 2, note="mixing the colour"))
        return Washed(source, settings, {"wash": Image.new("RGB", source.image.size, (settings.colour.shade, 0, 0))})

    def batch(self, prepared: Washed, waiting: int | None = None, watched: bool = True) -> int:
        return 1

    def together(self, prepared: Washed, counterfactual: CounterfactualCaption) -> Hashable:
        return None

    def make(
        self, prepared: Sequence[Washed], images: Sequence[CaseRequest], size: int, on_step: OnStep
    ) -> Sequence[Callable[[], TestCase]]:
        on_step(1, 1)
        return [partial(self._case, washed, one) for washed, one in zip(prepared, images, strict=True)]

    def _case(self, prepared: Washed, one: CaseRequest) -> TestCase:
        image = Image.blend(prepared.source.image, prepared.artifacts["wash"], (one.seed % 7 + 1) / 8)
        lineage = Lineage(one.counterfactual, one.seed, self.name, "a brush", "paint", "", prepared.settings, 0.1)
        return TestCase(image, lineage, prepared.artifacts)

    def preview(self) -> Image.Image | None:
        return None


WASH = WashDescription("wash")
WASHED = replace(RECONSTRUCTION, name="washed", title="Washed", method="wash", settings=RunSettings, unedited="washed")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(METHODS, "wash", WASH)
    monkeypatch.setattr(Wash, "prepared", 0)
    with registered(WASHED):
        yield


def test_a_source_is_prepared_once_for_all_captions_and_seeds_and_a_stop_ends_it() -> None:
    driver, said = Driver(load_profile("demo"), ScriptedModels()), list[Event]()
    settings = RunSettings(generation=GenerationSettings(images_per_caption=3))
    captions = CounterfactualCaptions(tuple(CounterfactualCaption(text, ()) for text in ("A bird.", "A red bird.")))
    cases = draw(driver, SOURCE, BIRD, captions, settings, emit=said.append, recipe="washed")
    assert len(cases) == 6 and Wash.prepared == 1
    assert [event.note for event in said if isinstance(event, Progress)][:2] == ["mixing the colour"] * 2
    assert len(draw(driver, SOURCE, BIRD, captions, settings, 1, recipe="washed")) == 6 and Wash.prepared == 1
    redder = settings.model_copy(update={"colour": Colour(shade=200)})
    draw(driver, SOURCE, BIRD, captions, redder, recipe="washed")
    assert Wash.prepared == 2

    stop, store = threading.Event(), MemoryStore(SOURCE, {"caption": DILLEMA.stages[0].value("A bird.")})
    with pytest.raises(Cancelled):
        driver.run(
            Request(BIRD, RunSettings(colour=Colour(shade=1)), "washed", stages=()), store, lambda _: stop.set(), stop
        )
    assert not store.cases


def test_what_would_be_drawn_alike_is_not_drawn_again() -> None:
    driver, settings = Driver(load_profile("demo"), ScriptedModels()), RunSettings()
    store = MemoryStore(SOURCE, {"caption": DILLEMA.stages[0].value("A bird.")})
    for asked in (settings, settings, settings.model_copy(update={"colour": Colour(shade=10)})):
        driver.run(Request(BIRD, asked, "washed", stages=()), store)
    assert [case.lineage.settings for case in store.cases] == [WashSettings(), WashSettings(colour=Colour(shade=10))]


def test_the_command_line_makes_it_and_repeats_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "load_models", lambda profile: ScriptedModels())
    image, out = tmp_path / "bird.png", tmp_path / "out"
    SOURCE.save(image)
    base = ["augment", str(image), "--task", "classification", "--label", "bird", "--out", str(out)]
    assert cli.main([*base, "--recipe", "washed", "--set", "colour.shade=99"]) == 0
    (kept,) = run_file.read(out / "run.json").images
    assert kept.artifact_files == {"wash": "image-001-wash.png"} and (out / "image-001-wash.png").exists()
    assert kept.record.lineage.settings.plain()["colour"] == {"shade": 99}
    assert cli.main(["again", str(out / "run.json"), "--out", str(tmp_path / "two")]) == 0
    assert capsys.readouterr().out.count("same pixels") == 1


def do(studio: Studio, run_id: str, name: str, **fields: object) -> None:
    """Perform an action on the page, and finish its work. Fails if the page refuses."""
    assert performed(studio, run_id, name, **fields).problem == ""


def test_the_page_makes_it_and_a_saved_picture_brings_it_to_another_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workspace_in(tmp_path / "one") as one, workspace_in(tmp_path / "two") as two:
        here, there = (Studio(load_profile("demo"), ScriptedModels(), workspace) for workspace in (one, two))
        run_id = one.runs.create(SOURCE, BIRD, "demo", "bird", here.profile.settings.model_dump(mode="json"))
        do(here, run_id, "recipe", recipe="washed")
        do(here, run_id, "run-all")
        card = parts_of(here, run_id)["generation"]
        assert "How red the wash is" in card and 'data-setting="colour.shade"' in card, "its settings can be changed"
        do(here, run_id, "setting", setting="colour.shade", value=40)
        do(here, run_id, "generate")
        (case,) = here.states.of(run_id).run.test_cases
        assert (case.lineage.method, list(case.artifacts)) == ("wash", ["wash"])
        assert isinstance(case.lineage.settings, WashSettings) and case.lineage.settings.colour == Colour(shade=40)
        parts = parts_of(here, run_id)
        assert ">Wash · " in parts["generation"] and "toggle-conditioning" not in parts["generation"]
        assert 'data-view-mode="made-wash"' in parts["pictures"] and "Overlay" not in parts["pictures"]

        data = here.exchange.saved_image(case.id)[1]
        (taken,) = there.states.of(there.exchange.take_run(data).run_id).run.test_cases
        assert taken.lineage == case.lineage
        assert (
            two.test_cases.load(taken.id).artifacts["wash"].tobytes()
            == one.images.load(case.artifacts["wash"].sha).tobytes()
        )
        assert digital_source_type("wash").endswith("compositeWithTrainedAlgorithmicMedia")

        # Without the method, the image still shows its method and seed.
        monkeypatch.delitem(METHODS, "wash")
        parts = parts_of(there, taken.run_id)
        assert 'data-view-mode="made-wash"' in parts["pictures"] and f"seed {case.lineage.seed}" in parts["pictures"]
        for studio in (here, there):
            studio.close()
