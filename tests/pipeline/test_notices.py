"""Notices that a profile's models do not know a picture: shown for photographs, and not for drawn scenes."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from core.images import read_image
from demo.make_samples import FOLDER, skies
from demo.render import render
from demo.scene import TIMES, WEATHERS, random_scene
from pipeline.profiles.profile import SKIES, load_profile, notice_for
from tests.support.photographs import PHOTOGRAPHS

DEMO = load_profile("demo")


@pytest.mark.parametrize("file", PHOTOGRAPHS, ids=lambda file: file.stem)
def test_photographs_are_told(file: Path) -> None:
    image = read_image(file).image
    assert "drawn scenes" in notice_for(DEMO, image)
    assert notice_for(DEMO, image.resize((128, 128)))


@pytest.mark.slow
def test_drawn_scenes_of_every_weather_and_hour_are_known_also_as_jpeg_and_larger() -> None:
    for place, (weather, time) in enumerate((weather, time) for weather in WEATHERS for time in TIMES):
        scene = Image.fromarray(render(random_scene(6_100_500 + place).with_look(weather=weather, time=time))[0])
        file = io.BytesIO()
        scene.resize((300, 300)).save(file, "JPEG", quality=80)
        for image in (scene, Image.open(file)):
            assert not notice_for(DEMO, image), (weather, time)


def test_the_skies_are_those_of_the_drawn_world() -> None:
    kept = read_image(FOLDER / SKIES).image
    assert np.array_equal(np.asarray(kept), np.asarray(skies()))


def test_noise_and_a_single_colour_are_told() -> None:
    assert notice_for(DEMO, Image.effect_noise((64, 64), 80).convert("RGB"))
    assert notice_for(DEMO, Image.new("RGB", (64, 64), (255, 0, 255)))
