"""Focus of a classifier: each figure is compared with loops, closed forms and other libraries."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from skimage.data import chelsea

from core.errors import UserError
from core.figures import Floats
from evaluation.focus import (
    AIC,
    DELETION,
    FEWEST,
    INSERTION,
    MASS,
    NEIGHBOURS,
    POINTING,
    REASONS,
    SHARE,
    SIC,
    STEPS,
    THRESHOLDS,
    GradCam,
    Look,
    focus_figures,
    plane,
    purity,
)
from evaluation.models import ModelUnderTest
from tests.support.model_cases import onnx_file, picture, wanted

SIDE = 48
MEAN, STD = 0.4, 0.25


def network(in_place: bool = False, channels_last: bool = False) -> Any:
    """Return a network whose logits are a linear function of the means of its last channels."""
    import torch
    from torch import nn

    class Toy(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.grid = nn.Sequential(nn.Conv2d(3, 6, 5, stride=3), nn.ReLU(), nn.Conv2d(6, 5, 3, stride=2))
            self.after = nn.ReLU(inplace=in_place)
            self.turned = nn.Identity()
            self.answer = nn.Linear(5, 4)

        def forward(self, images: Any) -> Any:
            features = self.after(self.grid(images))
            if channels_last:
                return self.answer(self.turned(features.permute(0, 2, 3, 1)).mean((1, 2)))
            return self.answer(features.mean((2, 3)))

    torch.manual_seed(3)
    return Toy().eval()


def prepared(image: Image.Image) -> Any:
    """Return the middle of the picture as a normalised tensor (3, SIDE, SIDE)."""
    import torch

    left, top = (image.width - SIDE) // 2, (image.height - SIDE) // 2
    middle = np.asarray(image.crop((left, top, left + SIDE, top + SIDE)), np.float32) / 255
    return torch.from_numpy((middle - MEAN) / STD).permute(2, 0, 1)


def looking(net: Any, name: str = "Toy") -> GradCam:
    return GradCam(name, net, prepared, at_once=7)


def probabilities(net: Any, pixels: Floats) -> Floats:
    import torch

    with torch.no_grad():
        return net(torch.from_numpy(np.asarray(pixels, np.float32)[None])).softmax(1)[0].double().numpy()  # type: ignore[no-any-return]


IMAGE = picture(5, (64, 56))
EMPTY = Look({}, "", np.zeros(0), b"")


def by_hand(net: Any, classes: Sequence[int]) -> Floats:
    """Return the map in closed form (Zhou et al., CVPR 2016). Several classes are weighed by their probabilities."""
    import torch

    with torch.no_grad():
        image = prepared(IMAGE)[None]
        features = net.after(net.grid(image).clone())
        logits = net.answer(features.mean((2, 3)))[0, list(classes)]
        weights = (logits.softmax(0)[:, None] * net.answer.weight[list(classes)]).sum(0) / features[0, 0].numel()
        grid = (weights[:, None, None] * features[0]).sum(0).relu()
        whole = torch.nn.functional.interpolate(grid[None, None], size=(SIDE, SIDE), mode="bilinear")
    return whole[0, 0].double().numpy()  # type: ignore[no-any-return]


@pytest.mark.parametrize("classes", [[0], [2], [1, 3]])
@pytest.mark.parametrize("how", [{}, {"in_place": True}, {"channels_last": True}])
def test_a_map_is_that_of_the_closed_form(classes: list[int], how: dict[str, bool]) -> None:
    net = network(**how)
    cam = looking(net)
    found, features = cam._map(cam._pixels(IMAGE), classes)
    assert found == pytest.approx(by_hand(net, classes), abs=1e-6) and found.max() > 0
    assert cam._layer == ("turned" if how.get("channels_last") else "after") and features.shape == (5,)
    assert found == pytest.approx(cam._map(cam._pixels(IMAGE), classes)[0]), "no hook is left behind"


def test_pointing_game_and_mass_are_counted_pixel_by_pixel() -> None:
    net = network()
    for corner in ((8, 4), (30, 20)):
        mask = Image.new("L", IMAGE.size)
        mask.paste(255, (*corner, corner[0] + 24, corner[1] + 18))
        look, found = looking(net).look(IMAGE, [0], mask), by_hand(net, [0])
        left, top = (IMAGE.width - SIDE) // 2, (IMAGE.height - SIDE) // 2
        inside = [
            (y, x)
            for y in range(SIDE)
            for x in range(SIDE)
            if mask.getpixel((x + left, y + top))  # pixels of the mask outside the crop do not count
        ]
        highest = max(((y, x) for y in range(SIDE) for x in range(SIDE)), key=lambda place: found[place])
        assert look.figures[SHARE] == pytest.approx(len(inside) / SIDE**2)
        assert look.figures[MASS] == pytest.approx(sum(found[place] for place in inside) / found.sum(), abs=1e-6)
        assert look.figures[POINTING] == float(highest in inside)
        assert Image.open(io.BytesIO(look.picture)).size == (SIDE, SIDE)
    assert MASS not in looking(net).look(IMAGE, [0]).figures
    outside = Image.new("L", IMAGE.size)
    outside.paste(255, (0, 0, 3, 3))
    assert MASS not in looking(net).look(IMAGE, [0], outside).figures, "the model never sees this corner"


def test_insertion_and_deletion_are_those_of_one_pixel_after_another() -> None:
    from scipy import ndimage

    net = network()
    look, found = looking(net).look(IMAGE, [1, 3]), by_hand(net, [1, 3])
    pixels = prepared(IMAGE).numpy()
    sigma = 5 * SIDE / 224
    kernel = np.exp(-0.5 * (np.arange(-1, 2) / sigma) ** 2)
    blurred = pixels
    for axis in (1, 2):
        blurred = ndimage.correlate1d(blurred, kernel / kernel.sum(), axis=axis, mode="mirror")
    order = sorted(((y, x) for y in range(SIDE) for x in range(SIDE)), key=lambda place: -found[place])
    areas = []
    for start, end in ((blurred, pixels), (pixels, np.full_like(pixels, (0.5 - MEAN) / STD))):
        shown, done, curve = start.copy(), 0, []
        for step in range(STEPS + 1):
            for y, x in order[done : round(step * SIDE**2 / STEPS)]:
                shown[:, y, x] = end[:, y, x]
            done = round(step * SIDE**2 / STEPS)
            curve.append(probabilities(net, shown)[[1, 3]].sum())
        areas.append(sum((one + two) / 2 for one, two in itertools.pairwise(curve)) / STEPS)
    assert [look.figures[INSERTION], look.figures[DELETION]] == pytest.approx(areas, abs=1e-4)


def _size(image: NDArray[np.uint8]) -> int:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "webp", lossless=True, quality=100)
    return len(file.getvalue())


def _blurred(image: NDArray[np.uint8], shown: NDArray[np.bool_], seed: int) -> NDArray[np.uint8]:
    """Return a picture interpolated from the shown pixels, the corners, and one in a hundred of all pixels."""
    from scipy.interpolate import LinearNDInterpolator

    seeds = np.zeros(shown.size, bool)
    seeds[np.random.default_rng(seed).choice(shown.size, int(0.01 * shown.size), replace=False)] = True
    shown = shown | seeds.reshape(shown.shape)
    shown[[0, 0, -1, -1], [0, -1, 0, -1]] = True
    filled = image.astype(float).copy()
    for channel in range(3):
        known = image[shown][:, channel].astype(float)
        make = LinearNDInterpolator(np.argwhere(shown), known, image[..., channel].mean())
        filled[~shown, channel] = make(np.argwhere(~shown))
    return filled.round().astype(np.uint8)


def _curve(image: NDArray[np.uint8], found: Floats, seed: int, ask: Callable[[NDArray[np.uint8]], float]) -> float:
    """Return the area under a performance information curve, as its authors describe it, without their package."""
    none = _blurred(image, np.zeros(found.shape, bool), seed)
    low, high = (_size(none), ask(none)), (_size(image), ask(image))
    points, best = [(0.0, 0.0)], 0.0
    for share in THRESHOLDS:
        one = _blurred(image, found >= np.quantile(found, 1 - share), seed)
        best = max(best, float(np.clip((ask(one) - low[1]) / (high[1] - low[1]), 0, 1)))
        points.append((float(np.clip((_size(one) - low[0]) / (high[0] - low[0]), 0, 1)), best))
    points = sorted([*points, (1.0, 1.0)])
    x = np.linspace(0, 1, 1001)
    return float(np.trapezoid(np.interp(x, *np.array(points).T), x))


def told_apart(image: NDArray[np.uint8], blurred: NDArray[np.uint8], sure: int) -> Any:
    """Return a network that is sure of class `sure` for a picture, and not for the blurred picture."""
    import torch

    net = network()
    with torch.no_grad():
        sharp, soft = (
            net.after(net.grid(prepared(Image.fromarray(one))[None])).mean((2, 3))[0] for one in (image, blurred)
        )
        net.answer.weight *= 0
        net.answer.bias *= 0
        net.answer.weight[sure] = 8 * (sharp - soft) / (sharp - soft).square().sum()
        net.answer.bias[sure] = 4 - (net.answer.weight[sure] * sharp).sum()
    return net


@pytest.mark.slow
def test_aic_and_sic_are_those_of_their_description() -> None:
    photo, best = Image.fromarray(chelsea()).resize((SIDE, SIDE)), 1
    image = np.asarray(photo)
    net = told_apart(image, _blurred(image, np.zeros((SIDE, SIDE), bool), 11), best)
    cam = looking(net)
    information = cam.informed(EMPTY, photo, [best], seed=11)
    found, _ = cam._map(cam._pixels(photo), [best])

    def ask(one: NDArray[np.uint8]) -> Floats:
        return probabilities(net, ((one / 255 - MEAN) / STD).transpose(2, 0, 1))

    assert set(information.figures) == {AIC, SIC} and information.left_out == {}
    assert information.figures[SIC] == pytest.approx(_curve(image, found, 11, lambda one: ask(one)[best]), abs=0.02)
    assert information.figures[AIC] == pytest.approx(
        _curve(image, found, 11, lambda one: float(ask(one).argmax() == best)), abs=0.02
    )
    assert cam.informed(EMPTY, photo, [best], seed=11).figures == information.figures
    unsure = cam.informed(EMPTY, photo, [0], seed=11)
    assert not unsure.figures and unsure.left_out == dict.fromkeys((SIC, AIC), REASONS["min_pred_value"])


def test_a_flat_picture_has_no_information_to_lose() -> None:
    net = network()
    net.answer.weight.data *= 0
    net.answer.bias.data[:] = 0
    net.answer.bias.data[1] = 9.0
    drawn = Image.new("RGB", (64, 56), (40, 90, 160))
    drawn.paste((200, 60, 40), (20, 20, 40, 40))
    look = looking(net).informed(EMPTY, drawn, [1], seed=0)
    assert look.left_out == dict.fromkeys((SIC, AIC), REASONS["entropy"])


def test_purity_is_that_of_the_neighbours_of_other_sources() -> None:
    from sklearn.neighbors import NearestNeighbors

    chance = np.random.default_rng(2)
    features, label, source = chance.normal(size=(60, 8)), chance.integers(0, 3, 60), np.arange(60) // 2
    features[:, 0] += 2 * label
    expected = []
    for number in range(60):
        others = np.flatnonzero(source != source[number])
        near = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(features[others]).kneighbors(features[[number]])[1][0]
        expected.append((label[others[near]] == label[number]).mean())
    assert purity(features, label, source) == pytest.approx(expected)
    assert np.isnan(purity(features[:NEIGHBOURS], label[:NEIGHBOURS], source[:NEIGHBOURS])).all()


def test_a_map_of_images_has_the_axes_of_most_spread() -> None:
    from sklearn.decomposition import PCA

    features = np.random.default_rng(4).normal(size=(30, 6)) * [5, 1, 3, 1, 1, 1]
    places, expected = plane(features), PCA(2).fit_transform(features)
    for axis in (0, 1):
        assert abs(np.corrcoef(places[:, axis], expected[:, axis])[0, 1]) == pytest.approx(1)
    assert places.min(axis=0).tolist() == [0, 0] and places.max(axis=0).tolist() == [1, 1]
    assert plane(np.ones((3, 1))).tolist() == [[0, 0]] * 3


def test_two_models_are_compared_on_the_images_that_both_have() -> None:
    values = np.random.default_rng(1).uniform(size=(80, 2)) * [1, 0.5]
    values[:10, 0], values[60:, 1] = np.nan, np.nan
    first, second, difference = focus_figures(values, np.arange(80) // 2)
    assert (first.n, second.n, difference.n, first.sources) == (50, 50, 50, 25)
    kept = values[10:60].reshape(25, 2, 2).mean(axis=1)
    assert [first.value, second.value] == pytest.approx(kept.mean(axis=0).tolist())
    assert difference.value == pytest.approx((kept[:, 1] - kept[:, 0]).mean())
    assert difference.low is not None and difference.high is not None and difference.low < 0 and difference.high < 0
    few = focus_figures(values[: 10 + FEWEST - 1], np.arange(10 + FEWEST - 1))
    assert all(one.value is None and one.n == FEWEST - 1 and "fewer than 20" in one.why for one in few)


@pytest.mark.slow
def test_models_that_cannot_be_looked_into_say_so(tmp_path: Path) -> None:
    import timm

    onnx = ModelUnderTest(onnx_file(tmp_path / "net.onnx", side=32))
    with pytest.raises(UserError, match="is no torch network"):
        onnx.grad_cam()
    segmenter = ModelUnderTest(wanted("file", file="demo/under_test/segmenter.safetensors"))
    with pytest.raises(UserError, match="is a segmenter"):
        segmenter.grad_cam()
    tokens = timm.create_model("test_vit", num_classes=4, img_size=SIDE).eval()
    with pytest.raises(UserError, match="does not keep its features on a grid"):
        looking(tokens).look(IMAGE, [0])


@pytest.mark.slow
def test_the_demos_classifier_is_looked_into() -> None:
    cam = ModelUnderTest(wanted("file", file="demo/under_test/classifier.safetensors")).grad_cam()
    look = cam.look(picture(1, (128, 128)), [0], Image.new("L", (128, 128), 255))
    assert look.figures[MASS] == look.figures[POINTING] == look.figures[SHARE] == 1.0 and look.layer == "layer4"
