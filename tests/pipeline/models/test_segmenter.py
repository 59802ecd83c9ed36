"""Segmenters of the real classes at small size with random weights, and the drawn world's with its trained weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from core.errors import CannotLoad, UserError
from demo.render import render
from demo.scene import OBJECT_CLASSES, random_scene
from demo.train.subjects import WORDS, save
from pipeline.models import Models, load_models
from pipeline.models.phrase_net import PhraseNet
from pipeline.models.segmenter import Remembering
from pipeline.profiles.profile import Profile, load_profile
from pipeline.seams import Found, Segmenter
from tests.pipeline.models.test_real_classes import photo
from tests.support import tiny_segmenters
from tests.support.made_once import MadeOnce

pytestmark = pytest.mark.slow
REAL = ("grounding-dino-sam2", "sam3", "clipseg")


def profile_with(segmenter: Mapping[str, Any] | None) -> Profile:
    return Profile.model_validate(load_profile("demo").model_dump() | {"segmenter": segmenter})


@pytest.fixture(scope="module")
def folder(made_once: MadeOnce) -> Path:
    def make(folder: Path) -> None:
        tiny_segmenters.save_grounding_dino(folder / "grounding-dino-sam2")
        tiny_segmenters.save_sam2(folder / "masks")
        tiny_segmenters.save_sam3(folder / "sam3")
        tiny_segmenters.save_clipseg(folder / "clipseg")

    return made_once("segmenters", make)


def section(folder: Path, kind: str, threshold: float = 0.3) -> dict[str, Any]:
    masks = {"masks": {"path": str(folder / "masks")}} if kind == "grounding-dino-sam2" else {}
    return {"kind": kind, "path": str(folder / kind), "threshold": threshold, **masks}


@pytest.mark.parametrize("kind", REAL)
def test_real_classes_find_masks_of_the_size_of_the_picture(folder: Path, kind: str) -> None:
    models = load_models(profile_with(section(folder, kind, 0.01)))
    models.check()
    segmenter, image = models.segmenter, photo(1, (150, 100))
    assert segmenter.name == models.segmenter_name() == str(folder / kind)
    found = segmenter.find(image, "A bird.")
    assert found and [thing.score for thing in found] == sorted((thing.score for thing in found), reverse=True)
    for thing in found:
        assert thing.mask.shape == (100, 150) and thing.mask.dtype == bool and 0 <= thing.score <= 1
    again = segmenter.find(image, "a bird")
    assert all(np.array_equal(a.mask, b.mask) for a, b in zip(found, again, strict=True))
    other = segmenter.find(image, "seven grey whales")
    assert [thing.score for thing in found] != [thing.score for thing in other]


@pytest.mark.parametrize("kind", REAL)
def test_real_classes_may_find_nothing_and_refuse_phrases_that_are_none(folder: Path, kind: str) -> None:
    segmenter = load_models(profile_with(section(folder, kind, 0.9999))).segmenter
    inner: Any = segmenter._segmenter  # type: ignore[attr-defined]
    inner._section = inner._section.model_copy(update={"threshold": 2.1})
    assert segmenter.find(photo(1), "bird") == []
    with pytest.raises(UserError, match="Name the thing to find"):
        segmenter.find(photo(1), " . ")
    with pytest.raises(UserError, match="too long for the segmenter"):
        segmenter.find(photo(1), "bird " * 300)


def test_points_give_a_mask_where_the_model_takes_them(folder: Path) -> None:
    image = photo(1, (150, 100))
    mask = load_models(profile_with(section(folder, REAL[0]))).segmenter.at(image, [(20, 30, True), (140, 90, False)])
    assert mask is not None and mask.shape == (100, 150) and mask.dtype == bool
    for kind in REAL[1:]:
        assert load_models(profile_with(section(folder, kind))).segmenter.at(image, [(20, 30, True)]) is None


def test_weights_that_are_missing_or_damaged_are_named(tmp_path: Path) -> None:
    with pytest.raises(CannotLoad, match="weights of the segmenter of subjects are missing"):
        load_models(profile_with({"kind": "clipseg", "path": str(tmp_path / "nowhere")})).check()
    (damaged := tmp_path / "subjects.safetensors").write_bytes(b"no weights")
    with pytest.raises(CannotLoad, match=r"segmenter of subjects at .* cannot be loaded"):
        _ = load_models(profile_with({"kind": "phrase-net", "path": str(damaged)})).segmenter


def test_a_profile_without_a_segmenter_says_which_ones_have_one() -> None:
    models = load_models(profile_with(None))
    assert models.segmenter_name() == ""
    with pytest.raises(
        UserError, match=r"has no segmenter: take the profile .*demo.*, or give it a table \[segmenter\]"
    ):
        _ = models.segmenter


# The network of the drawn world, untrained


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("world") / "subjects.safetensors"
    save(PhraseNet(len(WORDS)), file)
    return load_models(profile_with({"kind": "phrase-net", "path": str(file), "threshold": 0.01})).segmenter


def test_the_drawn_worlds_network_says_what_it_knows(world: Segmenter) -> None:
    with pytest.raises(UserError, match=r"does not know “water ouzel”\. It knows: .*bird.*car.*animal"):
        world.find(photo(1), "water ouzel")


def test_the_drawn_worlds_network_takes_phrases_and_pictures_of_any_size(world: Segmenter) -> None:
    image = photo(1, (150, 100))
    [everything] = world.find(image, "a thing")
    assert everything.mask.shape == (100, 150) and 0.01 < everything.score < 1
    cars, vehicles = world.find(image, "Cars"), world.find(image, "car")
    assert [thing.score for thing in cars] == [thing.score for thing in vehicles]


def test_a_click_takes_what_is_connected_and_another_lets_go_of_it(world: Segmenter) -> None:
    image = photo(1, (150, 100))
    mask = world.at(image, [(20, 30, True)])
    assert mask is not None and mask.shape == (100, 150) and mask[30, 20]
    none = world.at(image, [(20, 30, True), (20, 30, False)])
    assert none is not None and not none.any()


# The drawn world


@pytest.fixture(scope="module")
def drawn_world() -> Segmenter:
    models: Models = load_models(load_profile("demo"))
    return models.segmenter


def drawn(seed: int, family: str, label: str | None = None, **look: str) -> tuple[Image.Image, np.ndarray]:
    picture, mask = render(random_scene(seed, family, label).with_look(**look))
    return Image.fromarray(picture), mask


@pytest.mark.parametrize("label", OBJECT_CLASSES)
def test_the_demo_finds_each_object_by_its_name_and_no_other(drawn_world: Segmenter, label: str) -> None:
    image, mask = drawn(5_900_000, "object", label, weather="cloudy", time="day")
    [thing] = drawn_world.find(image, f"a {label}")
    truth = mask == mask.max()
    assert (thing.mask & truth).sum() / (thing.mask | truth).sum() > 0.85 and thing.score > 0.7
    [same] = drawn_world.find(image, "object")
    assert (thing.mask & same.mask).sum() / (thing.mask | same.mask).sum() > 0.95
    for other in set(OBJECT_CLASSES) - {label}:
        assert not drawn_world.find(image, other)


def test_the_demo_finds_cars_one_by_one_and_nothing_on_an_empty_road(drawn_world: Segmenter) -> None:
    scene = next(scene for seed in range(5_900_100, 5_900_200) if (scene := random_scene(seed, "road")).vehicles == 2)
    scene = scene.with_look(weather="sunny", time="day")
    image = Image.fromarray(render(scene)[0])
    assert len(drawn_world.find(image, "cars")) == len(drawn_world.find(image, "vehicle")) == 2
    empty = Image.fromarray(render(scene.without_subject())[0])
    assert drawn_world.find(empty, "car") == drawn_world.find(empty, "person") == []


def test_the_demo_says_what_it_knows(drawn_world: Segmenter) -> None:
    image, _ = drawn(5_900_000, "object")
    with pytest.raises(UserError, match=r"does not know “water ouzel”\. It knows: .*bird.*car.*animal"):
        drawn_world.find(image, "water ouzel")


def test_the_demo_takes_pictures_of_any_size(drawn_world: Segmenter) -> None:
    image, mask = drawn(5_900_000, "object", "house", weather="cloudy", time="day")
    [thing] = drawn_world.find(image.resize((320, 320)), "house")
    truth = np.asarray(Image.fromarray(mask == mask.max()).resize((320, 320)))
    assert thing.mask.shape == (320, 320) and (thing.mask & truth).sum() / (thing.mask | truth).sum() > 0.85


def test_a_click_on_the_demo_takes_the_thing_and_another_lets_go_of_one(drawn_world: Segmenter) -> None:
    scene = next(scene for seed in range(5_900_100, 5_900_200) if (scene := random_scene(seed, "road")).vehicles == 2)
    image = Image.fromarray(render(scene.with_look(weather="sunny", time="day"))[0])
    one, other = drawn_world.find(image, "car")
    inside = [
        (int(x), int(y))
        for y, x in (np.argwhere(thing.mask)[len(np.argwhere(thing.mask)) // 2] for thing in (one, other))
    ]
    first = drawn_world.at(image, [(*inside[0], True)])
    assert first is not None and (first & one.mask).sum() > 0.9 * one.mask.sum() and not (first & other.mask).any()
    both = drawn_world.at(image, [(*inside[0], True), (*inside[1], True)])
    alone = drawn_world.at(image, [(*inside[0], True), (*inside[1], False)])
    assert both is not None and alone is not None
    assert both[inside[1][1], inside[1][0]] and np.array_equal(alone, first)


def test_what_was_looked_for_in_a_picture_is_remembered() -> None:
    class Counts:
        name = "counts"
        calls = 0

        def find(self, image: Image.Image, phrase: str) -> list[Found]:
            self.calls += 1
            return [] if phrase == "boat" else [Found(np.eye(image.height, image.width, dtype=bool), 0.9, sure=False)]

        def at(self, image: Image.Image, points: Any) -> None: ...

    counts = Counts()
    both, same = Remembering(counts), photo(1).copy()
    assert both.find(photo(1), "boat") == both.find(same, "boat") == [] and counts.calls == 1
    [first], [again] = both.find(photo(1), "bird"), both.find(same, "bird")
    assert counts.calls == 2 and (first.mask == again.mask).all() and (again.score, again.sure) == (0.9, False)
    assert both.find(photo(2), "boat") == [] and counts.calls == 3
