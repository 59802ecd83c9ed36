"""The control image shows where things are, and not the weather or the time of day."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from core.images import SIDE_MULTIPLE, fit, read_image
from core.settings import ConditioningSettings, ControlKind
from demo.render import render
from demo.scene import TIMES, WEATHERS, random_scene
from pipeline.conditioning import FEW_EDGES, cells_with_edges, condition, edges, gradients, remark_on
from pipeline.profiles.profile import load_profile
from tests.support.photographs import BLURRED, PHOTOGRAPHS

DEMO = load_profile("demo").settings.conditioning
FIXED = ConditioningSettings(median=3, low=100, high=200, stretch=False)
FITTED = load_profile("fast").settings.conditioning.model_copy(update={"kind": "canny"})
SCENES = [random_scene(seed, family) for seed in range(500, 504) for family in ("road", "object")]


def wide(found: np.ndarray) -> np.ndarray:
    """Return the edges widened by two pixels."""
    return cv2.dilate(found, np.ones((5, 5), np.uint8)) > 0


def borders(mask: np.ndarray) -> np.ndarray:
    """Return a mask that is True where two classes meet."""
    found = np.zeros(mask.shape, bool)
    found[:, 1:] |= mask[:, 1:] != mask[:, :-1]
    found[1:] |= mask[1:] != mask[:-1]
    return found


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("time", TIMES)
def test_borders_are_found_in_every_light(weather: str, time: str) -> None:
    shares = []
    for scene in SCENES:
        image, mask = render(scene.with_look(weather=weather, time=time))
        true = borders(mask)
        shares.append((wide(edges(image, DEMO)) & true).sum() / true.sum())
    assert np.mean(shares) > 0.93


@pytest.mark.parametrize("weather", ["rainy", "snowy"])
def test_what_falls_through_the_air_leaves_few_edges(weather: str) -> None:
    def strays(settings: ConditioningSettings) -> float:
        shares = []
        for scene in SCENES:
            clear, mask = render(scene.with_look(weather="foggy", time="day"))
            image, _ = render(scene.with_look(weather=weather, time="day"))
            known = edges(clear, settings) | (borders(mask) * np.uint8(255))
            found = edges(image, settings) > 0
            shares.append((found & ~wide(known)).sum() / found.sum())
        return float(np.mean(shares))

    assert strays(DEMO) < 0.1
    assert strays(DEMO) < 0.4 * strays(DEMO.model_copy(update={"median": 0}))


def test_control_image_is_white_on_black_of_the_same_size() -> None:
    image = Image.fromarray(render(SCENES[0], 160)[0]).crop((0, 0, 160, 96))
    control = condition(image, DEMO)
    assert control.mode == "RGB" and control.size == (160, 96)
    assert set(np.unique(np.asarray(control))) == {0, 255}
    assert np.array_equal(np.asarray(control), np.asarray(condition(image, DEMO)))


def test_flat_and_noisy_flat_images_have_no_edges() -> None:
    flat = np.full((64, 64, 3), 120, np.uint8)
    noisy = (flat + np.random.default_rng(0).integers(-2, 3, flat.shape)).astype(np.uint8)
    assert edges(flat, DEMO).max() == 0 and edges(noisy, DEMO).max() == 0


def test_red_on_green_of_the_same_brightness_has_an_edge() -> None:
    image = np.zeros((64, 64, 3), np.uint8)
    image[:, :32], image[:, 32:] = (197, 0, 0), (0, 100, 0)
    assert edges(image, DEMO)[32].any()


def test_at_each_pixel_the_steepest_channel_counts_and_of_equals_the_first() -> None:
    image = np.random.default_rng(1).integers(0, 4, (61, 47, 3)).astype(np.uint8)
    across, down = gradients(image, ConditioningSettings(median=1, stretch=False))
    slopes = [
        cv2.Sobel(image, cv2.CV_16S, x, 1 - x, ksize=3, borderType=cv2.BORDER_REPLICATE).astype(int) for x in (1, 0)
    ]
    steepness = slopes[0] ** 2 + slopes[1] ** 2
    assert (np.sort(steepness, axis=2)[:, :, -1] == np.sort(steepness, axis=2)[:, :, -2]).any(), "some are equal"
    steepest = steepness.argmax(axis=2)[:, :, None]
    for found, each in zip((across, down), slopes, strict=True):
        assert np.array_equal(found, np.take_along_axis(each, steepest, 2)[:, :, 0])


def test_wrong_input_and_even_median_are_refused() -> None:
    with pytest.raises(ValueError, match="uint8"):
        edges(np.zeros((8, 8), np.uint8), DEMO)
    with pytest.raises(ValidationError, match="odd"):
        ConditioningSettings(median=4)


@pytest.mark.parametrize("file", PHOTOGRAPHS, ids=lambda file: file.stem)
def test_fitted_thresholds_find_what_fixed_ones_find_also_in_poor_light(file: Path) -> None:
    image = np.asarray(fit(read_image(file).image, 512, SIDE_MULTIPLE), np.uint8)
    fixed, fitted = edges(image, FIXED), edges(image, FITTED)
    assert fitted[fixed > 0].all() and (fitted > 0).mean() < 0.15, "lines, not areas"
    if file.stem == "chelsea":  # the portrait of a cat, soft nearly everywhere
        assert share(fixed) < 0.35 and share(fitted) > 0.65
    dim = (image * 0.5).astype(np.uint8)
    assert share(edges(dim, FITTED)) > 0.9 * share(fitted)


def test_fitted_thresholds_find_nothing_in_noise_and_something_in_a_chessboard() -> None:
    flat = np.full((64, 64, 3), 120, np.uint8)
    noisy = (flat + np.random.default_rng(0).integers(-4, 5, flat.shape)).astype(np.uint8)
    assert edges(flat, FITTED).max() == 0 and edges(noisy, FITTED).max() == 0
    stripes = np.repeat(np.repeat(np.tile(np.array([0, 255], np.uint8), 16)[None, :, None], 64, 0), 3, 2)
    assert edges(np.repeat(stripes, 2, 1), FITTED).any(), "a threshold as steep as the steepest gradients finds none"


def share(found: np.ndarray) -> float:
    return cells_with_edges(Image.fromarray(found))


def test_cells_are_counted_whole_and_at_the_rim() -> None:
    found = np.zeros((70, 64), np.uint8)
    found[69, 0] = 255
    assert share(found) == pytest.approx(1 / 6)


def test_a_remark_tells_of_a_control_image_with_nearly_nothing() -> None:
    few = condition(fit(read_image(BLURRED).image, 512, SIDE_MULTIPLE), FIXED)
    assert cells_with_edges(few) < FEW_EDGES and "lower its thresholds, or take another" in remark_on(few, FIXED)
    for settings in (FITTED, ConditioningSettings(kind="soft edges")):
        assert "of the source: take another kind" in remark_on(few, settings)
    without_edges: tuple[ControlKind, ...] = ("depth", "segmentation")
    for kind in without_edges:
        assert not remark_on(few, ConditioningSettings(kind=kind))


@pytest.mark.parametrize("file", PHOTOGRAPHS, ids=lambda file: file.stem)
def test_no_remark_on_a_usual_photograph(file: Path) -> None:
    assert not remark_on(condition(fit(read_image(file).image, 512, SIDE_MULTIPLE), FIXED), FIXED)


@pytest.mark.parametrize("weather", WEATHERS)
@pytest.mark.parametrize("time", TIMES)
def test_no_remark_on_a_drawn_scene_in_any_light(weather: str, time: str) -> None:
    for scene in SCENES:
        image = Image.fromarray(render(scene.with_look(weather=weather, time=time))[0])
        assert not remark_on(condition(image, DEMO), DEMO)
