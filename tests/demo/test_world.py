"""The drawn world: a seed repeats its scene, another look moves nothing, and picture, mask and words agree."""

from __future__ import annotations

import numpy as np
import pytest

from demo.language import caption, keywords, protected_words
from demo.render import render
from demo.scene import COLOURS, OBJECT_CLASSES, SEMANTIC_CLASSES, TIMES, WEATHERS, random_scene

pytestmark = pytest.mark.slow

SEEDS = range(40)


def pixels_of(mask: np.ndarray, name: str) -> int:
    return int((mask == SEMANTIC_CLASSES.index(name)).sum())


def test_same_seed_gives_the_same_pixels() -> None:
    for seed in SEEDS:
        first, second = render(random_scene(seed)), render(random_scene(seed))
        assert np.array_equal(first[0], second[0]) and np.array_equal(first[1], second[1])


def test_other_seeds_give_other_pictures() -> None:
    pictures = {render(random_scene(seed))[0].tobytes() for seed in SEEDS}
    assert len(pictures) == len(SEEDS)


@pytest.mark.parametrize("family", ["road", "object"])
def test_a_new_look_moves_nothing(family: str) -> None:
    for seed in SEEDS:
        scene = random_scene(seed, family)
        _, mask = render(scene)
        for weather, time in (("snowy", "night"), ("foggy", "sunset"), ("cloudy", "day")):
            _, other_mask = render(scene.with_look(weather=weather, time=time, ground="sandy"))
            assert np.array_equal(mask, other_mask), f"seed {seed}: {weather} {time} moved something"


def test_night_is_darker_than_day_and_snow_whitens_the_ground() -> None:
    for seed in SEEDS:
        scene = random_scene(seed).with_look(weather="sunny", time="day", ground="grassy")
        day, mask = render(scene)
        assert render(scene.with_look(time="night"))[0].mean() < 0.6 * day.mean()
        ground = mask == SEMANTIC_CLASSES.index("ground")
        if scene.label in ("boat", "lighthouse") or ground.sum() < 200:
            continue
        snow = render(scene.with_look(weather="snowy"))[0]
        assert snow[ground].min(axis=1).mean() > day[ground].min(axis=1).mean() + 60


def test_a_colour_change_is_seen_on_the_thing_it_names() -> None:
    for label in OBJECT_CLASSES:
        scene = random_scene(5, "object", label).with_look(weather="sunny", time="day")
        red, mask = render(scene.with_look(colours=("red",)))
        blue, _ = render(scene.with_look(colours=("blue",)))
        changed = np.abs(red.astype(int) - blue).sum(2) > 60
        inside = mask == SEMANTIC_CLASSES.index("object")
        assert changed[inside].mean() > 0.3
        assert changed[~inside].mean() < 0.03  # pixels on a shape's border mix both colours


def test_the_mask_holds_what_the_caption_says() -> None:
    for seed in range(120):
        scene = random_scene(seed)
        _, mask = render(scene)
        if scene.family == "object":
            assert pixels_of(mask, "object") > 500
            assert f" {scene.label} " in caption(scene)
        else:
            assert (pixels_of(mask, "vehicle") > 60) == (scene.vehicles > 0)
            assert (pixels_of(mask, "pedestrian") > 15) == (scene.pedestrians > 0)
            assert pixels_of(mask, "road") > 1000


def test_a_scene_without_its_subject_is_the_same_place_with_nothing_in_it() -> None:
    for seed in SEEDS:
        scene = random_scene(seed)
        picture, mask = render(scene)
        empty_picture, empty_mask = render(scene.without_subject())
        assert not any(pixels_of(empty_mask, name) for name in ("object", "vehicle", "pedestrian"))
        sky = (mask == SEMANTIC_CLASSES.index("sky")) & (empty_mask == SEMANTIC_CLASSES.index("sky"))
        assert (np.abs(picture[sky].astype(int) - empty_picture[sky]).max(1) > 40).mean() < 0.05
        text = caption(scene.without_subject())
        assert not scene.label or f" {scene.label}" not in text
        assert "car " not in text and "pedestrian" not in text


def test_captions_have_several_sentences_and_name_the_look() -> None:
    for seed in range(120):
        scene = random_scene(seed)
        text = caption(scene)
        assert text.count(".") >= 3
        assert f"in {scene.look.weather} weather" in text
        for colour in scene.look.colours:
            assert colour in text
        for word in protected_words(scene):
            assert word in text.replace(".", "").split()


def test_keywords_are_in_the_caption_and_leave_the_task_alone() -> None:
    for seed in range(120):
        scene = random_scene(seed)
        for keyword in keywords(scene):
            assert keyword.text in caption(scene)
            assert keyword.text not in protected_words(scene)
            assert keyword.text not in keyword.alternatives and keyword.alternatives


def test_every_weather_hour_and_colour_comes_up() -> None:
    scenes = [random_scene(seed) for seed in range(400)]
    assert {scene.look.weather for scene in scenes} == set(WEATHERS)
    assert {scene.look.time for scene in scenes} == set(TIMES)
    assert {colour for scene in scenes for colour in scene.look.colours} == set(COLOURS)
    assert {scene.label for scene in scenes if scene.family == "object"} == set(OBJECT_CLASSES)
    assert {scene.vehicles for scene in scenes if scene.family == "road"} == {0, 1, 2, 3}


def test_a_family_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="road or object"):
        random_scene(1, "sea")
