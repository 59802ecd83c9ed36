"""Models on a simulated GPU: nothing is left behind on the CPU, and the results are those of the CPU.

The models are small, of the real classes, with random weights. In half precision, which a GPU gets by default, only the
mixing of devices and precisions is tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn.attention import SDPBackend, sdpa_kernel

from core.settings import (
    CaptionSettings,
    EditSettings,
    GenerationSettings,
    InversionSettings,
    LanguageSettings,
)
from pipeline.models import Models, load_models
from pipeline.models.device_placement import Gpu, place
from pipeline.models.inverting import Control
from pipeline.models.model_memory import WORK
from pipeline.models.weights import locate
from pipeline.profiles.profile import Profile
from pipeline.seams import CaptionRequest, DrawRequest, LanguageRequest
from pipeline.stages.reply_schema import caption_schema
from tests.pipeline.models.test_captioners import SEVERAL, asked, made
from tests.pipeline.models.test_language_chat import named
from tests.pipeline.models.test_real_classes import paper_at, photo
from tests.pipeline.models.test_segmenter import REAL, profile_with, section
from tests.pipeline.test_generators import few_steps_models, sdxl_at, z_image_at
from tests.support import tiny, tiny_captioners, tiny_segmenters
from tests.support.made_once import MadeOnce
from tests.support.scripted import SUNNY_BIRD
from tests.support.simulated_device import simulated_gpu

pytestmark = pytest.mark.slow
LIKELIEST = CaptionSettings(max_new_tokens=8)
WARM = CaptionSettings(max_new_tokens=8, temperature=1.0)
DRAWING = GenerationSettings(steps=2, short_side=64, guidance=5.0)
INVERSION = InversionSettings(steps=2, evaluations=2)
TWO = (DrawRequest("a bird", 0, 0), DrawRequest("a house", 1, 1))
Pixels = np.ndarray[Any, Any]


@contextmanager
def on_cpu() -> Iterator[None]:
    """Compute attention on the CPU with the same kernel as on the simulated GPU, for the same bits."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def unheard(_done: int, _total: int) -> None: ...


# Captioners


@pytest.fixture(scope="module")
def captioners(made_once: MadeOnce) -> Path:
    def make(folder: Path) -> None:
        tiny.save_blip2(folder / "blip-2")
        tiny_captioners.save_florence2(folder / "florence-2")
        tiny_captioners.save_qwen3_vl(folder / "qwen3-vl")
        tiny_captioners.save_idefics3(folder / "idefics3")

    return made_once("captioners", make)


@pytest.mark.parametrize("section", SEVERAL[:3], ids=lambda section: f"{section['path']}-{len(section)}")
def test_pictures_of_several_sizes_are_captioned_at_once(captioners: Path, section: dict[str, Any]) -> None:
    def captions(dtype: str, requests: Sequence[CaptionRequest]) -> list[Any]:
        captioner = made(captioners, {**section, "dtype": dtype})
        beams = LIKELIEST.model_copy(update={"beams": 2})
        several = [captioner.caption_many(requests, settings) for settings in (LIKELIEST, beams, WARM)]
        return [*several, captioner.caption(requests[0].image, requests[0].task, WARM, 3), captioner._device]

    with on_cpu():
        expected = captions("float32", asked())
    with simulated_gpu():
        assert captions("float32", asked()) == [*expected[:-1], "cuda"]
        half = captions("auto", asked()[:3])
    assert all(text for text, _ in half[0])


# Language models


@pytest.mark.parametrize(("kind", "template"), [("qwen3", tiny.THINKING), ("llama", tiny.NO_SYSTEM)])
def test_replies_are_written_at_once(tmp_path: Path, kind: str, template: str) -> None:
    tiny.save_chat(tmp_path, kind, template)
    prompts = ("a bird", "Name the colours of the bird.", "a bird " * 30)
    requests = [LanguageRequest(prompt, seed, schema=caption_schema(SUNNY_BIRD)) for seed, prompt in enumerate(prompts)]
    requests.append(LanguageRequest("a house", 4))

    def replies(dtype: str) -> list[Any]:
        model = named(tmp_path, system="You reply in one line.", dtype=dtype, repetition_penalty=1.1)
        settings = LanguageSettings(max_new_tokens=16, temperature=0.8)
        cold = settings.model_copy(update={"temperature": 0.0})
        several = [*model.complete_many(requests, settings), *model.complete_many(requests, cold)]
        return [*several, round(model.score("a red bird sits on a twig"), 4), model._device]

    with on_cpu():
        expected = replies("float32")
    with simulated_gpu():
        assert replies("float32") == [*expected[:-1], "cuda"]
        assert len(replies("auto")) == len(expected)


# Image generators


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Path:
    """Folder of a Stable Diffusion with a LoRA and a tiny VAE for previews."""
    folder = tmp_path_factory.mktemp("stable-diffusion")
    for part in ("generator", "controlnet"):
        (folder / part).symlink_to(tiny.paper_models(made_once) / part)
    tiny.save_lora(folder / "lora" / "few-steps.safetensors")
    tiny.save_preview_vae(folder / "tiny-vae")
    return folder


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generators")
    tiny.save_sdxl(folder / "xl" / "sdxl", folder / "xl" / "union")
    tiny.save_z_image(folder / "z" / "z-image", folder / "z" / "union")
    return folder


def with_dtype(profile: Profile, dtype: str) -> Models:
    generator = profile.generator.model_copy(update={"dtype": dtype})
    return load_models(profile.model_copy(update={"generator": generator}))


def models_of(name: str, small: Path, large: Path, dtype: str, scheduler: str = "UniPCMultistepScheduler") -> Models:
    if name == "sdxl":
        return with_dtype(sdxl_at(large / "xl"), dtype)
    if name == "z-image":
        return with_dtype(z_image_at(large / "z"), dtype)
    lora = {"weight": 0.5} if name.endswith("with a LoRA") else {}
    profile = few_steps_models(small, scheduler, {"path": str(small / "tiny-vae")}, **lora).profile
    return with_dtype(profile, dtype)


def edges(size: tuple[int, int] = (64, 32)) -> Image.Image:
    rng = np.random.default_rng(2)
    return Image.fromarray(rng.integers(0, 2, (8, 16), np.uint8) * 255).convert("RGB").resize(size)


def drawn(generator: Any, requests: Sequence[DrawRequest] = TWO) -> Pixels:
    """Draw images in a batch, with a preview of each step. Return their pixels.

    Without a preview if parts of a Z-Image take turns: a preview by its own small VAE would move them, and a large VAE
    makes no previews.
    """
    moving = type(generator).__name__ == "ZImagePipeline" and generator._placing.offload != "none"
    shown = list[Any]()
    results = generator.draw(
        requests,
        len(requests),
        [edges()] * len(requests),
        DRAWING,
        lambda _done, _total: None if moving else shown.append(generator.preview()),
    )
    assert moving or (shown and all(isinstance(one, Image.Image) for one in shown))
    return np.stack([np.asarray(result.image, int) for result in results])


def alike(found: Pixels, expected: Pixels) -> bool:
    return found.shape == expected.shape and bool(np.abs(found - expected).max() <= 2)


GENERATORS = ("stable diffusion", "stable diffusion with a LoRA", "sdxl", "z-image")
_on_cpu: dict[str, Pixels] = {}


def drawn_on_cpu(name: str, small: Path, large: Path) -> Pixels:
    """Return the pixels of the same images from the CPU, drawn once for all tests."""
    if name not in _on_cpu:
        with on_cpu():
            _on_cpu[name] = drawn(models_of(name, small, large, "float32").generator)
    return _on_cpu[name]


@pytest.mark.parametrize("name", GENERATORS)
def test_images_are_drawn_as_on_the_cpu(name: str, small: Path, large: Path) -> None:
    expected = drawn_on_cpu(name, small, large)
    with simulated_gpu():
        generator: Any = models_of(name, small, large, "float32").generator
        assert generator.placing.startswith("cuda, float32, no offload")
        assert alike(drawn(generator), expected)
        half: Any = models_of(name, small, large, "auto").generator
        assert "float16, no offload" in half.placing  # or bfloat16
        assert drawn(half, TWO[:1]).shape == (1, 32, 64, 3)


WAYS = [
    ("stable diffusion", "models"),
    ("stable diffusion with a LoRA", "layers"),
    ("sdxl", "models"),
    ("sdxl", "layers"),
]
"""A generator, and the way that its parts take turns on the GPU."""


def room_for(way: str, generator: Any) -> int:
    """Return the largest number of free bytes on a GPU with which a generator is placed this way."""
    parts = generator._parts(locate("image generator", generator._section))
    sizes = range(WORK + 4 * sum(parts.values()), WORK, -1000)
    return next(free for free in sizes if place(Gpu(free), parts, "float32").offload == way)


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_parts_take_turns_on_the_gpu(name: str, way: str, small: Path, large: Path) -> None:
    expected = drawn_on_cpu(name, small, large)
    free = room_for(way, models_of(name, small, large, "float32").generator)
    with simulated_gpu(free):
        generator: Any = models_of(name, small, large, "float32").generator
        assert generator._placing.device == "cuda" and generator._placing.offload == way
        assert alike(drawn(generator), expected)
        assert drawn(generator, TWO[:1]).shape == (1, 32, 64, 3), "and once more, in the places of before"


def test_parts_draw_again_after_memory_ran_out_in_the_decoder(small: Path, large: Path) -> None:
    """The ControlNet of Z-Image shares layers with the transformer, which leaves the GPU when an image is decoded."""
    expected = drawn_on_cpu("z-image", small, large)
    free, failures = room_for("models", models_of("z-image", small, large, "float32").generator), list[int]()

    def decoding(_decoder: object, given: tuple[torch.Tensor, ...]) -> None:
        if len(failures) < 3:
            failures.append(len(given[0]))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    with simulated_gpu(free):
        generator: Any = models_of("z-image", small, large, "float32").generator
        with generator._pipe.vae.decoder.register_forward_pre_hook(decoding):
            results = generator.draw(TWO, 2, [edges()] * 2, DRAWING, unheard)
    assert failures == [2, 1, 1] and [one.batch.size for one in results] == [1, 1], "in tiles, then drawn anew"
    assert alike(np.stack([np.asarray(one.image, int) for one in results]), expected)


def test_all_kinds_of_control_image_draw_once_memory_ran_out(small: Path, large: Path) -> None:
    """A ControlNet that is loaded later stays on the GPU while the other parts take turns."""
    data = models_of("stable diffusion", small, large, "float32").profile.model_dump()
    data["generator"]["controlnets"]["segmentation"] = data["generator"]["controlnets"]["canny"]
    expected = drawn_on_cpu("stable diffusion", small, large)
    with simulated_gpu():
        generator: Any = load_models(Profile.model_validate(data)).generator
        assert generator._offload()
        for kind in ("canny", "segmentation", "canny"):
            assert alike(drawn(generator.on(kind)), expected)


@pytest.mark.parametrize(("name", "dtype"), [("stable diffusion", "float32"), ("sdxl", "auto")])
def test_kept_parts_and_inverted_starts_are_drawn(name: str, dtype: str, small: Path, large: Path) -> None:
    picture, mask = photo(1, (64, 32)), Image.new("L", (64, 32))
    mask.paste(255, (0, 0, 32, 32))

    def images() -> Pixels:
        generator: Any = models_of(name, small, large, dtype).generator
        with generator.inverting(INVERSION, Control(edges(), 0.8, 0.5)) as inverter:
            found = inverter.invert(picture, "a red bird", unheard)
        assert found.clean.device.type == found.noise.device.type == "cpu", "they are stored"
        kept = [DrawRequest("a bird", 1, 0, kept=(picture, mask)), DrawRequest("a house", 2, 1)]
        started = [
            DrawRequest("a bird", 3, 0, found.start(3, 0.2), "a red bird"),
            DrawRequest("a house", 4, 1, found.start(4, 0.0)),
        ]
        return np.concatenate([drawn(generator, kept), drawn(generator, started)])

    with simulated_gpu():
        found = images()
    if dtype == "float32":
        with on_cpu():
            assert alike(found, images())


def test_sources_are_inverted_and_edited_while_parts_take_turns(small: Path, large: Path) -> None:
    region = Image.new("L", (64, 32))
    region.paste(255, (0, 0, 32, 32))

    def edited() -> Pixels:
        generator: Any = models_of("stable diffusion", small, large, "float32").generator
        if generator._device == "cuda":
            generator._offload()
        with generator.inverting(INVERSION, Control(edges(), 0.8, 0.5)) as inverter:
            found = inverter.invert(photo(1, (64, 32)), "a red bird", unheard)
            images = list[Image.Image]()
            for blend, where in ((0.3, None), (0.0, region)):
                settings = EditSettings(local_blend=blend, least_change=0.5, cross_replace=0.5, self_replace=0.5)
                prompts = ["a very blue bird at night", "a red bird"]
                control = inverter.control(found, prompts, settings, [0.5, 0.0], where)
                images += inverter.images(inverter.redraw(found, prompts, 3.0, control=control))[0]
        return np.stack([np.asarray(one, int) for one in images])

    with simulated_gpu():
        found = edited()
    with on_cpu():
        assert alike(found, edited())


# Models beside the generator


@pytest.mark.parametrize("kind", REAL)
def test_things_are_found(made_once: MadeOnce, kind: str) -> None:
    def make(folder: Path) -> None:
        tiny_segmenters.save_grounding_dino(folder / "grounding-dino-sam2")
        tiny_segmenters.save_sam2(folder / "masks")
        tiny_segmenters.save_sam3(folder / "sam3")
        tiny_segmenters.save_clipseg(folder / "clipseg")

    profile, image = profile_with(section(made_once("segmenters", make), kind, 0.01)), photo(1, (150, 100))

    def found() -> tuple[list[Any], Any]:
        segmenter = load_models(profile).segmenter
        return segmenter.find(image, "A bird."), segmenter.at(image, [(20, 30, True), (140, 90, False)])

    with on_cpu():
        expected, at_points = found()
    with simulated_gpu():
        things, at_points_too = found()
    assert things and [one.score for one in things] == pytest.approx([one.score for one in expected], abs=1e-5)
    assert all((one.mask != other.mask).mean() < 0.01 for one, other in zip(things, expected, strict=True))
    assert (at_points is None) == (at_points_too is None) == (kind != "grounding-dino-sam2")


def test_pictures_and_texts_are_embedded(made_once: MadeOnce) -> None:
    profile = paper_at(tiny.paper_models(made_once))

    def vectors() -> list[list[float]]:
        models: Any = load_models(profile)
        pictures = [photo(seed, size) for seed, size in enumerate([(96, 64), (40, 90), (64, 64)])]
        return [*models.embedder.images(pictures), *models.embedder.texts(["a bird", "a house " * 9])]

    expected = vectors()
    with simulated_gpu():
        found = vectors()
    assert all(one == pytest.approx(other, abs=0.01) for one, other in zip(found, expected, strict=True))
