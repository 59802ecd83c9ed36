"""The method that puts the source's subject in front of a new background, and its recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from PIL import Image, ImageDraw

from core.errors import UserError
from core.lineage import read_settings
from core.regions import WHOLE, region_of
from core.settings import CompositeSettings, SettingsWithBackgrounds
from core.types import Task, failed
from pipeline.checks.backgrounds import background_checks
from pipeline.cutting import composed, move_of, moved
from pipeline.driver import Driver
from pipeline.methods.background import BACKGROUND, BackgroundSettings
from pipeline.models.kept_parts import Kept
from pipeline.profiles.profile import load_profile
from pipeline.recipes import AGA, edits_in_words
from pipeline.request import Event, ImageFailed, MemoryStore, Request, StageDone
from pipeline.run_files.embedded import read_run_in
from pipeline.seams import DrawRequest, Found
from services.studio import Studio
from tests.support.scripted import NoiseGenerator, ScriptedModels, ScriptedSegmenter, do, noise, parts_of
from tests.support.workspaces import workspace_in

BIRD = Task("classification", label="bird")
SOURCE = noise("source", 0, (96, 64))
COLOURS = ((190, 110, 50), (60, 140, 40), (90, 90, 200))
MIDDLE = ScriptedSegmenter()._middle(SOURCE)
SETTINGS = AGA.settings_in(load_profile("demo"))


def settings(**changes: Any) -> SettingsWithBackgrounds:
    """Return the demo's settings with two backgrounds of few steps, and `changes`."""
    base = {"generation": {"steps": 2, "short_side": 64}, "backgrounds": {"captions": 2}}
    plain = SETTINGS.model_dump(mode="json")
    for section, values in (*base.items(), *changes.items()):
        plain[section] |= values
    return SettingsWithBackgrounds.model_validate(plain)


def drawn(
    chosen: SettingsWithBackgrounds | None = None, models: ScriptedModels | None = None, **more: Any
) -> MemoryStore:
    """Run the whole recipe and return the store."""
    store = more.pop("store", None) or MemoryStore(SOURCE)
    driver = more.pop("driver", None) or Driver(load_profile("demo"), models or ScriptedModels(), **more)
    driver.run(Request(BIRD, chosen or settings(), "aga"), store, _raise_failures)
    return store


def _raise_failures(event: Event) -> None:
    if isinstance(event, ImageFailed):
        raise event.error


def test_every_pixel_of_the_subject_stays_and_all_is_recorded() -> None:
    store = drawn()
    assert list(store.held) == ["subject", "counterfactuals"] and len(store.cases) == 2
    for case in store.cases:
        image, background = np.asarray(case.image), np.asarray(case.artifacts["background"])
        assert (image[MIDDLE] == np.asarray(SOURCE)[MIDDLE]).all() and (image[~MIDDLE] == background[~MIDDLE]).all()
        assert (np.asarray(case.artifacts["subject mask"]) == np.where(MIDDLE, 255, 0)).all()
        control = np.asarray(case.artifacts["control image"])
        assert control[:10].any() and not control[MIDDLE].any() and not control[14, 22:74].any(), "with a margin"
        own = case.lineage.settings
        assert isinstance(own, BackgroundSettings) and own.matrix is None and own.region == AGA.region(values(store))
        assert read_settings("background", own.plain()) == own.model_copy(
            update={"backgrounds": type(own.backgrounds)(avoid=own.backgrounds.avoid)}
        )
        assert case.lineage.prompt == case.lineage.counterfactual.text and "bird" not in case.lineage.prompt
        assert [check.name for check in case.checks] == [
            "subject kept",
            "background free",
            "subject found",
            "subject not grown",
        ]
        assert all(check.passed for check in case.checks), "what the stand-in finds behind the subject does not count"


def values(store: MemoryStore) -> dict[str, Any]:
    return {name: held.value for name, held in store.held.items()}


def test_a_moved_subject_is_recorded_by_one_matrix_that_moves_its_mask_too() -> None:
    moving = settings(composite={"shift": 0.2, "scale": 1.3, "rotation": 15, "flip": True})
    seen = set()
    for case in drawn(moving).cases:
        own = case.lineage.settings
        assert isinstance(own, BackgroundSettings) and own.matrix is not None
        pixels, mask = moved(SOURCE, MIDDLE, own.matrix)
        image, shown = np.asarray(case.image), np.asarray(case.artifacts["subject mask"]) > 0
        assert (shown == mask).all() and (image[mask] == pixels[mask]).all() and (mask != MIDDLE).any()
        assert 0.9 / 1.7 < mask.sum() / MIDDLE.sum() < 1.7
        assert case.checks[0].value == 1.0
        seen.add(own.matrix)
    assert len(seen) == 2
    flips = [move_of(CompositeSettings(flip=True), seed, MIDDLE) for seed in range(8)]
    assert {round(one[0]) for one in flips if one is not None} == {1, -1}
    everywhere = np.ones((64, 96), bool)
    assert move_of(CompositeSettings(shift=0.5, rotation=45), 0, everywhere) is None, "none of them keeps it inside"
    assert move_of(CompositeSettings(), 0, MIDDLE) is None


def test_the_colours_beside_a_subject_do_not_mix_into_it() -> None:
    picture = np.zeros((64, 96, 3), np.uint8)
    picture[~MIDDLE] = (0, 255, 0)
    picture[MIDDLE] = (200, 0, 0)
    pixels, mask = moved(Image.fromarray(picture), MIDDLE, (0.9, -0.2, 12.0, 0.2, 0.9, -3.0))
    assert (pixels[mask] == (200, 0, 0)).all()
    soft = np.asarray(composed(pixels, mask, Image.new("RGB", (96, 64), (0, 0, 200)), 3))
    assert (soft[mask] == (200, 0, 0)).all() and len(np.unique(soft[~mask], axis=0)) > 3


def test_hair_beside_a_subject_comes_along() -> None:
    angles = np.arange(0, 2 * np.pi, 0.1)
    large = Image.new("L", (512, 512))
    pen = ImageDraw.Draw(large)
    pen.ellipse((156, 156, 356, 356), fill=255)
    for angle in angles:
        pen.line([(256 + r * np.cos(angle), 256 + r * np.sin(angle)) for r in (90, 160)], fill=255, width=4)
    alpha = np.asarray(large.resize((128, 128), Image.Resampling.BOX))[..., None] / 255
    fur, meadow, wall = (
        (np.array(colour) + noise("grain", 0, (128, 128)).point(lambda v: v // 16)) for colour in COLOURS
    )
    picture = np.rint(fur * alpha + meadow * (1 - alpha)).astype(np.uint8)
    truth = fur * alpha + wall * (1 - alpha)
    disc = np.hypot(*(np.indices((128, 128)) - 63.5)) < 25
    behind = Image.fromarray(wall.astype(np.uint8))

    def error(width: int, rim: Literal["fade", "hair"]) -> float:
        made = np.asarray(composed(picture, disc, behind, width, rim))
        assert (made[disc] == picture[disc]).all()
        return float(np.abs(made - truth)[~disc].mean())

    assert error(16, "hair") < 0.6 * min(error(0, "hair"), error(2, "fade"), error(16, "fade"))


def test_a_corrected_subject_outdates_only_what_follows() -> None:
    store = drawn()
    made_by = Driver(load_profile("demo"), ScriptedModels())
    painted = np.where(MIDDLE, 255, 0).astype(np.uint8)
    painted[:20, :20] = 255
    store.held["subject"] = replace(store.held["subject"], value=region_of(Image.fromarray(painted)))
    told = list[Event]()
    made_by.run(Request(BIRD, settings(), "aga"), store, told.append)
    assert {one.stage: one.reused for one in told if isinstance(one, StageDone)} == {
        "subject": True,
        "counterfactuals": True,
    }
    assert len(store.cases) == 4, "the images are drawn again, with the same descriptions"
    assert (np.asarray(store.cases[-1].image)[:20, :20] == np.asarray(SOURCE)[:20, :20]).all()


def test_without_a_subject_nothing_is_drawn() -> None:
    store = MemoryStore(SOURCE, {"subject": WHOLE, "counterfactuals": drawn().held["counterfactuals"].value})
    with pytest.raises(UserError, match="No subject is marked: paint it over the picture"):
        Driver(load_profile("demo"), ScriptedModels()).run(Request(BIRD, settings(), "aga", stages=()), store)
    lacking = BACKGROUND.lacks(AGA.drawn_with(settings(), {"subject": WHOLE}), False)
    assert lacking.startswith("No subject is marked")
    here = AGA.drawn_with(
        settings(composite={"shift": 0.1}), {"subject": region_of(Image.fromarray(MIDDLE * np.uint8(255)))}
    )
    assert "does not move with the subject" in BACKGROUND.lacks(here, True) and not BACKGROUND.lacks(here, False)


def test_from_text_alone_no_control_image_holds_the_background() -> None:
    models = ScriptedModels()
    strengths = list[float]()

    class Watched(NoiseGenerator):
        def generate(self, prompt: str, control: Image.Image, settings: Any, *more: Any) -> Image.Image:
            strengths.append(settings.control_strength)
            assert not np.asarray(control).any()
            return super().generate(prompt, control, settings, *more)

    models.generator = Watched()
    store = drawn(settings(composite={"layout": "text"}, generation={"guidance": 3.0}), models)
    assert strengths == [0.0, 0.0] and "control image" not in store.cases[0].artifacts
    assert store.cases[0].lineage.negative_prompt.startswith("bird, bird, boat, house")


class Shelf:
    """Stored preparations in memory."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}

    def read(self, key: str) -> bytes | None:
        return self.held.get(key)

    def save(self, key: str, data: bytes) -> None:
        self.held[key] = data


def test_a_background_of_the_bank_is_drawn_once_for_all_subjects() -> None:
    models, shelf = ScriptedModels(), Shelf()
    banked = settings(composite={"layout": "text"}, backgrounds={"bank": 2, "captions": 2})
    first = drawn(banked, models, inversions=shelf)
    assert len(models.generator.made) == len(shelf.held) == 2
    other = MemoryStore(noise("another", 1, (96, 64)))
    driver = Driver(load_profile("demo"), models, inversions=shelf)
    driver.run(Request(BIRD, banked, "aga", seed=5), other, _raise_failures)
    assert len(models.generator.made) == 2, "nothing is drawn again"

    def backgrounds(store: MemoryStore) -> dict[str, bytes]:
        return {case.lineage.prompt: case.artifacts["background"].tobytes() for case in store.cases}

    assert backgrounds(first) == backgrounds(other) and len(backgrounds(first)) == 2
    assert {case.image.tobytes() for case in first.cases}.isdisjoint({case.image.tobytes() for case in other.cases})
    without = drawn(banked, ScriptedModels())
    assert backgrounds(without) == backgrounds(first), "the store only saves time"


def test_pictures_of_a_folder_become_the_backgrounds_and_no_model_is_loaded(tmp_path: Path) -> None:
    class NoGenerator(ScriptedModels):
        @property
        def generator(self) -> Any:
            raise AssertionError("the generator was loaded")

        @generator.setter
        def generator(self, _value: Any) -> None: ...

    Image.new("RGB", (200, 100), (0, 0, 200)).save(tmp_path / "sea.png")
    Image.new("CMYK", (40, 90), (90, 0, 0, 0)).save(tmp_path / "print.jpg", "JPEG")
    own = settings(backgrounds={"folder": str(tmp_path), "captions": 2})
    store = drawn(own, NoGenerator())
    assert {case.lineage.model for case in store.cases} == {"pictures of a folder"}
    named = {edits_in_words("aga", case.lineage.counterfactual) for case in store.cases}
    assert named == {"sea", "print"}, "people see which picture it is"
    for case in store.cases:
        image = np.asarray(case.image)
        assert image.shape == (64, 96, 3) and (image[MIDDLE] == np.asarray(SOURCE)[MIDDLE]).all()
        recorded = case.lineage.settings.plain()
        assert recorded["backgrounds"]["folder"] == tmp_path.name, "not where it lies"
        assert case.lineage.settings.steps is None
    (tmp_path / "sea.png").unlink()
    failed_with = list[str]()
    Driver(load_profile("demo"), NoGenerator()).run(
        Request(BIRD, own, "aga", stages=()),
        MemoryStore(SOURCE, values(store)),
        lambda event: failed_with.append(str(event.error)) if isinstance(event, ImageFailed) else None,
    )
    assert failed_with == [f"There is no picture “sea.png” in the folder {tmp_path}: run the stage Backgrounds again."]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"composite": {"layout": "outpaint"}}, "The profile demo draws no background around the subject"),
        ({"backgrounds": {"bank": 5}}, "choose the layout text"),
        ({"composite": {"layout": "text"}, "backgrounds": {"bank": 5}}, ""),
    ],
)
def test_what_a_profile_cannot_draw_is_refused_before_anything_runs(changes: Any, reason: str) -> None:
    refused = BACKGROUND.refused(load_profile("demo"), BACKGROUND.settings_of(settings(**changes)))
    assert (reason in refused) if reason else not refused
    bank = BACKGROUND.settings_of(settings(composite={"layout": "text"}, backgrounds={"bank": 5}))
    assert "let the subject move to vary them" in BACKGROUND.equal_images(bank)
    assert not BACKGROUND.equal_images(BACKGROUND.settings_of(settings()))


def test_outpainting_keeps_the_subject_at_the_noise_of_every_step() -> None:
    import torch
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler()
    scheduler.set_timesteps(4)

    class Encoded:
        def __init__(self, latents: Any) -> None:
            self.latents = latents

    class Vae:
        dtype, config = torch.float32, {"scaling_factor": 2.0}

        def encode(self, pixels: Any) -> Encoded:
            return Encoded(torch.nn.functional.avg_pool2d(pixels, 8))

    class Config(dict[str, float]):
        __getattr__ = dict.__getitem__

    class Processor:
        def preprocess(self, image: Image.Image) -> Any:
            return torch.from_numpy(np.asarray(image, np.float32) / 127.5 - 1).permute(2, 0, 1)[None]

    vae: Any = Vae()
    vae.config = Config(scaling_factor=2.0)
    pipe: Any = type("Pipe", (), {"scheduler": scheduler, "vae": vae, "image_processor": Processor()})
    subject = Image.fromarray(np.where(MIDDLE, np.uint8(255), np.uint8(0)))
    kept = Kept(pipe, [DrawRequest("a", 1, 0, kept=(SOURCE, subject)), DrawRequest("b", 2, 1)], "cpu")
    drawn_latents = torch.zeros(2, 3, 8, 12)
    end = kept.put_back(drawn_latents, 3)
    clean = 2 * vae.encode(Processor().preprocess(SOURCE)).latents
    assert (end[1] == 0).all() and (end[0, :, 2:6, 3:9] == clean[0, :, 2:6, 3:9]).all() and (end[0, :, 0] == 0).all()
    early = kept.put_back(drawn_latents, 0)
    assert not torch.allclose(early[0, :, 2:6, 3:9], clean[0, :, 2:6, 3:9]) and (early[0, :, 0] == 0).all()


def test_the_checks_tell_a_changed_subject_a_phantom_and_a_grown_subject() -> None:
    class Blue:
        name = "blue"

        def find(self, image: Image.Image, phrase: str) -> list[Any]:
            if phrase == "unicorn":
                raise UserError("The segmenter does not know “unicorn”.")
            mask = (np.asarray(image) == (0, 0, 200)).all(axis=2)
            return [Found(mask, 1.0)] if mask.any() else []

        def at(self, image: Image.Image, points: Any) -> None: ...

    subject, green = np.zeros((64, 96, 3), np.uint8), Image.new("RGB", (96, 64), (0, 120, 0))
    subject[MIDDLE] = (0, 0, 200)
    image = composed(subject, MIDDLE, green, 0)
    good = background_checks(image, green, subject, MIDDLE, ("bird",), (), Blue())
    assert not failed(good) and [check.value for check in good] == [1.0, 1.0, 1.0, 1.0]
    phantom = green.copy()
    phantom.paste((0, 0, 200), (0, 0, 96, 30))
    grown = composed(subject, MIDDLE, phantom, 0)
    wrong = background_checks(grown, phantom, subject, MIDDLE, ("bird",), (), Blue())
    assert [check.name for check in failed(wrong)][:1] == ["background free"] and len(failed(wrong)) > 1
    broken = background_checks(green, green, subject, MIDDLE, ("bird",), (), None)
    assert [(check.name, check.passed, check.value) for check in broken] == [("subject kept", False, 0.0)]
    unknown = background_checks(image, green, subject, MIDDLE, ("unicorn",), (), Blue())
    assert [check.passed for check in unknown] == [True, None, None, None] and "does not know" in unknown[1].note


def test_the_background_shows_nothing_that_is_to_be_avoided() -> None:
    class Finds:
        """Segmenter that finds a boat beside the subject, a house below its threshold and a ship behind, but knows
        no unicorn.
        """

        name = "finds"

        def find(self, image: Image.Image, phrase: str) -> list[Found]:
            if phrase == "unicorn":
                raise UserError("The segmenter does not know “unicorn”.")
            place = MIDDLE if phrase == "ship" else ~MIDDLE
            return [Found(place, 0.6, sure=phrase != "house")] if phrase in ("boat", "house", "ship") else []

        def at(self, image: Image.Image, points: Any) -> None: ...

    subject, green = np.zeros((64, 96, 3), np.uint8), Image.new("RGB", (96, 64), (0, 120, 0))
    found = {
        avoid: background_checks(green, green, subject, MIDDLE, ("bird",), avoid, Finds())[1]
        for avoid in (("boat", "tree"), ("house",), ("ship",), ("unicorn",))
    }
    assert found["boat", "tree"].passed is False and "looks like “boat”." in found["boat", "tree"].note
    assert all(found[hidden,].passed and not found[hidden,].note for hidden in ("house", "ship"))
    assert found["unicorn",].passed and "does not know “unicorn”" in found["unicorn",].note


# The page


def test_the_page_of_a_run_without_a_caption(studio: Studio) -> None:
    run_id = studio.workspace.runs.create(SOURCE, BIRD, "demo", "bird", studio.profile.settings.model_dump(mode="json"))
    assert do(studio, run_id, "recipe", recipe="aga") == ""
    empty = parts_of(studio, run_id)
    assert (
        "Nothing is marked as the subject yet." in empty["subject"] and "your own pictures" in empty["counterfactuals"]
    )
    for name in ("run-all", "generate"):
        assert do(studio, run_id, name) == ""
    parts = parts_of(studio, run_id)
    assert "25.0 % of the picture is the subject." in parts["subject"] and 'data-points=""' in parts["subject"]
    assert "An empty place" in parts["counterfactuals"] and "nothing protected named" not in parts["counterfactuals"]
    assert "subject kept" in parts["pictures"] and "Subject" in parts["pictures"] and "stage-caption" not in str(parts)
    held = read_run_in(studio.exchange.saved_image(studio.states.of(run_id).run.test_cases[-1].id)[1])
    assert held is not None and held.case is not None and held.case.lineage.recipe == "aga"

    assert do(studio, run_id, "setting", setting="subject.points", value="30 30, -2 2") == ""
    state = studio.states.of(run_id)
    assert state.stale == {"subject": "the settings were changed after this was made"}
    assert do(studio, run_id, "run", stage="subject", force=True) == ""
    assert do(studio, run_id, "setting", setting="subject.points", value="30 99") == ""
    do(studio, run_id, "run", stage="subject", force=True)
    assert "The point 30 99 lies outside of the picture" in studio.states.of(run_id).problems["subject"].text
    assert not studio.states.of(run_id).run.values["subject"].value.value.whole, "nothing is lost"

    assert do(studio, run_id, "value", stage="subject", text="") == ""
    state = studio.states.of(run_id)
    assert state.gate.closed.startswith("No subject is marked: paint it over the picture")
    assert set(state.outdated.values()) == {"of an earlier region"}
    assert do(studio, run_id, "undo", stage="subject") == ""
    assert do(studio, run_id, "counterfactual-add", new="A quiet harbour at night.") == ""
    assert (
        do(studio, run_id, "counterfactual-write", place=0, text=first(studio, run_id).text, new="A bird bath.") == ""
    )
    assert not first(studio, run_id).edits
    assert "names the subject" in parts_of(studio, run_id)["counterfactuals"]


def first(studio: Studio, run_id: str) -> Any:
    return studio.workspace.runs.get(run_id).values["counterfactuals"].value.value.items[0]


def test_a_profile_offers_its_recipes_only(tmp_path: Path) -> None:
    with workspace_in(tmp_path / "workspace") as workspace:
        models = ScriptedModels()
        models.segmenter_name = lambda: ""  # type: ignore[method-assign]
        studio = Studio(load_profile("laptop"), models, workspace)
        run_id = studio.runs.from_upload(_png(SOURCE), "mine.png", "bird")
        state = studio.states.of(run_id)
        assert state.recipe is AGA and state.recipes == (AGA,)
        do(studio, run_id, "run-all")
        assert "no model that finds things by a word" in studio.states.of(run_id).problems["subject"].text
        studio.close()


def test_without_a_segmenter_a_painted_subject_is_enough(studio: Studio) -> None:
    models: Any = studio.driver.models
    models.segmenter_name = lambda: ""
    run_id = studio.workspace.runs.create(SOURCE, BIRD, "demo", "bird", SETTINGS.model_dump(mode="json"), recipe="aga")
    do(studio, run_id, "run-all")
    assert "paint it over the picture" in studio.states.of(run_id).problems["subject"].text
    painted = region_of(Image.fromarray(MIDDLE * np.uint8(255)))
    assert do(studio, run_id, "value", stage="subject", text=painted.text) == ""
    for name in ("run-all", "generate"):
        assert do(studio, run_id, name) == ""
    cases = studio.states.of(run_id).run.test_cases
    assert len(cases) == 4 and {check.name for case in cases for check in case.checks} == {"subject kept"}


def _png(image: Image.Image) -> bytes:
    import io

    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()
