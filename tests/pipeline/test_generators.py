"""The other generators with their real classes at small size, and the devices that generators run on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from core.errors import CannotLoad, UserError
from core.lineage import DrawnBatch
from core.settings import GenerationSettings
from pipeline.models import Models, load_models
from pipeline.models.device_placement import Gpu, Placing, parameters, place
from pipeline.models.generator import make_scheduler
from pipeline.profiles.image_sections import ControlNetGenerator, Scheduler, UnionGenerator
from pipeline.profiles.profile import Profile, load_profile
from pipeline.seams import DrawRequest
from tests.support import tiny
from tests.support.made_once import MadeOnce
from tests.support.offloading import by_layers_on_the_cpu

QUICK = GenerationSettings(steps=3, short_side=64, guidance=5.0)
GB = 1_000_000_000


def control() -> Image.Image:
    rng = np.random.default_rng(1)
    return Image.fromarray(rng.integers(0, 2, (8, 12), np.uint8) * 255).convert("RGB").resize((48, 32))


def drawn(generator: Any, prompt: str = "a bird", seed: int = 5, size: int = 1, at: int = 0, **changes: Any) -> bytes:
    settings = QUICK.model_copy(update=changes)
    (result,) = generator.draw([DrawRequest(prompt, seed, at)], size, [control()], settings, lambda _done, _total: None)
    assert (
        result.image is not None and result.image.size == (48, 32) and result.batch == DrawnBatch(size=size, place=at)
    )
    return bytes(result.image.tobytes())


# Where a generator runs


@pytest.mark.parametrize(
    ("gpu", "parts", "wanted", "likes", "words"),
    [
        (None, {"unet": GB}, "auto", "float16", "cpu, float32: no GPU was found"),
        (None, {"unet": GB}, "bfloat16", "float16", "cpu, bfloat16: no GPU was found"),
        (
            Gpu(61 * GB, True),
            {"transformer": 6 * GB, "text_encoder": 4 * GB},
            "auto",
            "bfloat16",
            "cuda, bfloat16, no offload: 61 GB free, 22 GB needed",
        ),
        (
            Gpu(16 * GB, True),
            {"transformer": 6 * GB, "text_encoder": 4 * GB},
            "auto",
            "bfloat16",
            "cuda, bfloat16, one part at a time on the GPU: 16 GB free, 22 GB needed",
        ),
        (
            Gpu(6 * GB, True),
            {"transformer": 6 * GB},
            "auto",
            "bfloat16",
            "cuda, bfloat16, one layer at a time on the GPU, which is slow: 6 GB free, 14 GB needed",
        ),
        (
            Gpu(8 * GB),
            {"unet": GB},
            "auto",
            "float16",
            "cuda, float16, no offload: 8 GB free, 3.5 GB needed",
        ),
        (
            Gpu(8 * GB),
            {"unet": GB},
            "auto",
            "bfloat16",
            "cuda, float32, no offload: 8 GB free, 5.5 GB needed",
        ),
        (Gpu(8 * GB), {}, "float32", "float16", "cuda, float32, no offload: 8 GB free"),
    ],
)
def test_where_it_runs_is_said_with_the_reason(
    gpu: Gpu | None, parts: dict[str, int], wanted: Any, likes: str, words: str
) -> None:
    assert place(gpu, parts, wanted, likes).words == words


def test_a_page_says_it_in_plain_words() -> None:
    said = [
        place(None, {"unet": GB}).plain_words,
        place(None, {}, "bfloat16").plain_words,
        place(Gpu(61 * GB), {"unet": 2 * GB}).plain_words,
        place(Gpu(8 * GB), {"unet": GB}, "float32").plain_words,
        place(Gpu(10 * GB), {"unet": 4 * GB, "vae": 3 * GB}).plain_words,
        place(Gpu(4 * GB), {"unet": 4 * GB}).plain_words,
    ]
    assert said == [
        "on the CPU: no GPU was found",
        "on the CPU, half precision: no GPU was found",
        "on the GPU, half precision: 61 GB free, 5.5 GB needed",
        "on the GPU, full precision: 8 GB free, 5.5 GB needed",
        "on the GPU, half precision, one part at a time on it: 10 GB free, 16 GB needed",
        "on the GPU, half precision, one layer at a time on it, which is slow: 4 GB free, 9.5 GB needed",
    ]


# Few steps: LoRAs and their schedulers


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, made_once: MadeOnce) -> Path:
    folder = tmp_path_factory.mktemp("few-steps")
    for part in ("generator", "controlnet"):
        (folder / part).symlink_to(tiny.paper_models(made_once) / part)
    tiny.save_lora(folder / "lora" / "few-steps.safetensors")
    return folder


def few_steps_at(folder: Path, scheduler: str = "LCMScheduler", preview: Any = None, **lora: Any) -> Any:
    return few_steps_models(folder, scheduler, preview, **lora).generator


def few_steps_models(folder: Path, scheduler: str = "LCMScheduler", preview: Any = None, **lora: Any) -> Models:
    data = load_profile("demo").model_dump()
    nets = {"canny": {"path": str(folder / "controlnet"), "variant": "fp16"}}
    section = {"kind": "stable-diffusion-controlnet", "path": str(folder / "generator"), "variant": "fp16"}
    named = {"path": str(folder / "lora"), "file": "few-steps.safetensors", **lora}
    more = {"safety_checker": False, "scheduler": {"name": scheduler}, "loras": [named] if lora else []}
    more["preview_vae"] = preview
    data["generator"] = {**section, **more, "controlnets": nets}
    return load_models(Profile.model_validate(data))


@pytest.fixture(scope="module")
def plain(small: Path) -> Any:
    return few_steps_at(small)


@pytest.mark.slow
def test_a_lora_is_added_when_the_model_is_loaded(small: Path, plain: Any) -> None:
    import torch
    from safetensors.torch import load_file

    fused = few_steps_at(small, weight=0.5)
    assert f"/generator with {small}/lora/few-steps.safetensors at 0.5 + " in fused.name
    layers = {
        "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q": (32, 32),
        "down_blocks.0.resnets.0.conv1": (32, 32, 3, 3),
    }
    held = load_file(small / "lora" / "few-steps.safetensors")
    for name, shape in layers.items():
        file_name = f"lora_unet_{name.replace('.', '_')}"
        down, up = (held[f"{file_name}.lora_{part}.weight"].flatten(1) for part in ("down", "up"))
        change = 0.5 * 2 / 4 * (up @ down).reshape(shape)  # weight, alpha and rank
        before, after = (one._pipe.unet.get_submodule(name).weight for one in (plain, fused))
        assert torch.allclose(after, before + change, atol=1e-6) and change.abs().max() > 0.01
    assert drawn(plain, guidance=1.0) != drawn(fused, guidance=1.0)
    with pytest.raises(UserError, match=r"LoRA .* missing"):
        few_steps_at(small, path=str(small / "nowhere"))
    with pytest.raises(UserError, match=r"LoRA .* does not fit this image generator"):
        tiny.save_lora(small / "lora" / "other.safetensors", width=48)
        few_steps_at(small, file="other.safetensors")


@pytest.mark.slow
def test_a_sampler_that_draws_noise_at_every_step_gives_the_same_bits_in_a_batch(plain: Any) -> None:
    generator = plain
    few = QUICK.model_copy(update={"guidance": 1.0, "steps": 2})
    asked = [DrawRequest("a bird", seed, seed) for seed in (0, 1)]
    seen = set()
    for name in ("LCMScheduler", "TCDScheduler", "DDIMScheduler"):
        generator._pipe.scheduler = make_scheduler(Scheduler(name=name), generator._pipe.scheduler.config)
        together = generator.draw(asked, 2, [control()] * len(asked), few, lambda _done, _total: None)
        alone = [drawn(generator, one.prompt, one.seed, 2, one.place, guidance=1.0, steps=2) for one in asked]
        assert alone == [result.image.tobytes() for result in together]
        seen |= set(alone)
    assert len(seen) == 6
    dropped = drawn(generator, guidance=1.0, steps=2, negative_prompt="blurred")
    assert dropped == drawn(generator, guidance=1.0, steps=2), "without guidance the negative prompt is not read"


# Previews through a tiny VAE


def previewed(generator: Any, batch: int = 1) -> tuple[list[Image.Image | None], list[bytes]]:
    """Draw images. Return the preview after each step, and the pixels of the results."""
    shown: list[Image.Image | None] = []
    asked = [DrawRequest("a bird", seed, seed) for seed in range(batch)]
    results = generator.draw(
        asked, batch, [control()] * len(asked), QUICK, lambda _done, _of: shown.append(generator.preview())
    )
    return shown, [result.image.tobytes() for result in results]


@pytest.mark.slow
def test_an_image_is_shown_through_the_tiny_vae_and_comes_from_the_full_one(small: Path) -> None:
    plain = few_steps_at(small)
    tiny.save_preview_vae(small / "tiny-vae")
    generator = few_steps_at(small, preview={"path": str(small / "tiny-vae")})
    unseen = drawn(generator)
    shown, (result,) = previewed(few_steps_at(small, preview={"path": str(small / "tiny-vae")}))
    assert [image and (image.size, image.getextrema()) for image in shown] == [((48, 32), ((255, 255),) * 3)] * 3
    assert unseen == drawn(plain) == drawn(generator), "whether somebody looks or not"
    assert result == previewed(plain)[1][0]
    rough, same = previewed(plain, 2)
    white, again = previewed(generator, 2)
    assert same == again and rough[0] is not None and rough[0].getextrema() != ((255, 255),) * 3
    assert white[0] is not None and white[0].size == rough[0].size, "side by side as ever"


@pytest.mark.slow
def test_without_its_tiny_vae_an_image_is_drawn_and_shown_as_before(small: Path) -> None:
    before = previewed(few_steps_at(small))
    (small / "damaged").mkdir()
    (small / "damaged" / "config.json").write_text("{}")
    tiny.save_preview_vae(small / "other", channels=16)
    for preview, why in (
        ({"path": str(small / "damaged")}, "cannot be loaded"),
        ({"path": str(small / "other")}, "reads latents of 16 channels, and this image generator has 4"),
        ({"hub": "nobody/tiny-vae"}, "could not be fetched"),
    ):
        generator = few_steps_at(small, preview=preview)
        assert previewed(generator) == before
        with pytest.raises(UserError, match=why):  # `python -m pipeline check` says so
            generator.preview_vae()


def test_the_tiny_vae_is_one_of_the_models_of_a_profile() -> None:
    for name in ("paper", "fast", "cpu", "sdxl", "modern", "edit", "lance"):
        weights = load_profile(name).weights()["preview VAE"]
        assert weights.hub and weights.bytes and weights.memory_full and weights.licence == "MIT"
    assert "preview VAE" not in load_profile("demo").weights(), "its own VAE is as small"


# Stable Diffusion XL with a union ControlNet


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generators")
    tiny.save_sdxl(folder / "sdxl", folder / "union")
    return folder


def sdxl_at(folder: Path, **changes: Any) -> Profile:
    data = load_profile("demo").model_dump()
    data["generator"] = {
        "kind": "sdxl-controlnet-union",
        "path": str(folder / "sdxl"),
        "variant": "fp16",
        "union": {"path": str(folder / "union")},
        "kinds": ["canny", "segmentation"],
        **changes,
    }
    return Profile.model_validate(data)


@pytest.fixture(scope="module")
def sdxl(folder: Path) -> Any:
    """Generator of Stable Diffusion XL. `counted` lists the parts whose sizes decide the device."""
    models, counted = load_models(sdxl_at(folder)), list[str]()
    models.check()

    def placed(gpu: Gpu | None, parts: dict[str, int], *more: Any) -> Placing:
        counted.extend(parts)
        return place(gpu, parts, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.models.generator.place", placed)
        assert models.runs("image generator") == "" and not models.loaded, "asking loads nothing"
        generator: Any = models.generator
    assert models.runs("image generator") == "on the CPU: no GPU was found"
    generator.counted = counted
    return generator


@pytest.mark.slow
def test_sdxl_draws_on_every_kind_with_one_controlnet(folder: Path, sdxl: Any) -> None:
    profile, generator = sdxl_at(folder), sdxl
    name = load_models(profile).generator_name("segmentation")
    assert generator.name == f"{folder / 'sdxl'} + {folder / 'union'}" == name
    assert generator.placing == "cpu, float32: no GPU was found"
    first = drawn(generator)
    assert first == drawn(generator) != drawn(generator, seed=6)
    others = [
        drawn(generator, "a house"),
        drawn(generator.on("segmentation")),
        drawn(generator, control_strength=0.2),
        drawn(generator, negative_prompt="blurred"),
        drawn(generator, control_until=0.34),
        drawn(generator, guidance=1.0),
    ]
    assert len({first, *others}) == 7
    end = [drawn(generator, "a photo of a very long road " * 6 + thing) for thing in ("bird", "house")]
    assert end[0] != end[1], "the end of a long prompt counts"
    with pytest.raises(UserError, match=r"no ControlNet for depth.*canny, segmentation"):
        generator.on("depth")
    assert list(profile.weights()) == [
        "captioner",
        "language model",
        "sentence model",
        "segmenter of subjects",
        "image generator",
        "ControlNet union",
        "embedder",
    ]


@pytest.mark.slow
def test_what_ran_out_of_memory_on_one_kind_is_known_on_all(sdxl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds of control image share a pipeline. Parts moved off the GPU are off it for all kinds."""
    monkeypatch.setattr(sdxl, "_placing", place(Gpu(61 * GB), {"unet": GB}))
    monkeypatch.setattr(sdxl._pipe, "enable_model_cpu_offload", lambda: None)
    sdxl.on("segmentation")._offload()
    assert sdxl.placing == sdxl.on("canny").placing
    assert sdxl.runs == "on the GPU, half precision, one part at a time on it: its memory ran out while it drew"


@pytest.mark.slow
def test_sdxl_reads_a_short_prompt_as_the_stock_pipeline_does_and_draws_the_same_in_a_batch(sdxl: Any) -> None:
    generator = sdxl
    pipe = generator._pipe
    stock = pipe.encode_prompt("a bird", device="cpu", negative_prompt="blurred")
    wanted, unwanted = generator.embeddings("a bird", "blurred")
    ours = (wanted, unwanted, generator._pooled("a bird"), generator._pooled("blurred"))
    assert all(mine.equal(theirs) for mine, theirs in zip(ours, stock, strict=True))
    import torch

    image = pipe(
        "a bird",
        control_image=[control()],
        control_mode=[3],
        num_inference_steps=3,
        guidance_scale=5.0,
        controlnet_conditioning_scale=1.0,
        generator=torch.Generator("cpu").manual_seed(5),
    ).images[0]
    assert image.tobytes() == drawn(generator)
    asked = [DrawRequest(prompt, seed, seed) for seed, prompt in enumerate(("a bird", "a house", "a tree"))]
    together = generator.draw(asked, 4, [control()] * len(asked), QUICK, lambda _done, _total: None)
    for one, result in zip(asked, together, strict=True):
        assert drawn(generator, one.prompt, one.seed, 4, one.place) == result.image.tobytes()


def same_on_control_images_of_its_own(generator: Any, **changes: Any) -> None:
    """Check that each image of a batch gets its own control image: it is as if drawn alone, and differs from the
    others.
    """
    settings, wanted = QUICK.model_copy(update=changes), [DrawRequest("a bird", 5, at) for at in range(3)]
    controls = [control(), control().rotate(180), control().transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
    together = generator.draw(wanted, 4, controls, settings, lambda _done, _total: None)
    alone = [
        generator.draw([one], 4, [its], settings, lambda _done, _total: None)[0].image.tobytes()
        for one, its in zip(wanted, controls, strict=True)
    ]
    assert [result.image.tobytes() for result in together] == alone and len(set(alone)) == 3
    with pytest.raises(ValueError, match="the same size"):
        generator.draw(wanted[:2], 2, [control(), control().resize((32, 32))], settings, lambda *_: None)


@pytest.mark.slow
def test_sdxl_draws_on_control_images_of_several_sources(sdxl: Any) -> None:
    same_on_control_images_of_its_own(sdxl)
    same_on_control_images_of_its_own(sdxl.on("segmentation"), guidance=1.0)
    assert sdxl.reading_length("a bird") < sdxl.reading_length("a photo of a very long road " * 12)


@pytest.mark.slow
def test_the_controlnet_of_sdxl_is_not_asked_after_its_end(sdxl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net = type(sdxl._pipe.controlnet)
    asked, whole = list[Any](), net.forward

    def watched(self: Any, *given: Any, **more: Any) -> Any:
        asked.append(more["conditioning_scale"])
        return whole(self, *given, **more)

    monkeypatch.setattr(net, "forward", watched)
    spared = drawn(sdxl, control_until=0.34)
    assert asked == [[1.0]], "at the first of three steps"
    monkeypatch.setattr("pipeline.models.generator.sparing", lambda *_: nullcontext())
    assert drawn(sdxl, control_until=0.34) == spared and asked[1:] == [[1.0], [0.0], [0.0]], "the same bits"


@pytest.mark.slow
def test_the_parameters_of_a_pipeline_are_counted_by_its_parts(folder: Path, sdxl: Any) -> None:
    found = parameters(folder / "sdxl", "fp16")
    assert set(found) == {"text_encoder", "text_encoder_2", "unet", "vae"} and min(found.values()) > 10_000
    assert parameters(folder / "sdxl") == {} and set(parameters(folder / "union")) == {"."}
    assert set(sdxl.counted) == {*found, "ControlNet union"}, "its ControlNet has to go in as well"


# Z-Image with its ControlNet


def z_image_at(folder: Path) -> Profile:
    data = load_profile("demo").model_dump()
    union = {"path": str(folder / "union"), "file": "Controlnet-Union.safetensors"}
    data["generator"] = {
        "kind": "z-image",
        "path": str(folder / "z-image"),
        "union": {**union, "config": {"path": str(folder / "union")}},
        "kinds": ["canny", "segmentation"],
    }
    return Profile.model_validate(data)


@pytest.mark.slow
def test_z_image_draws_on_its_controlnet_alone_and_in_a_batch(tmp_path: Path) -> None:
    import torch

    tiny.save_z_image(tmp_path / "z-image", tmp_path / "union")
    models = load_models(z_image_at(tmp_path))
    models.check()
    generator: Any = models.generator
    first = drawn(generator, guidance=1.0)
    stock = generator._pipe(
        "a bird",
        control_image=control(),
        controlnet_conditioning_scale=1.0,
        height=32,
        width=48,
        num_inference_steps=3,
        guidance_scale=0.0,
        generator=torch.Generator("cpu").manual_seed(5),
    ).images[0]
    assert first == stock.tobytes(), "as its page has it"
    others = [
        drawn(generator, seed=6, guidance=1.0),
        drawn(generator, "a house", guidance=1.0),
        drawn(generator, control_strength=0.2, guidance=1.0),
        drawn(generator, control_until=0.34, guidance=1.0),
        drawn(generator, guidance=4.0),
        drawn(generator, guidance=4.0, negative_prompt="blurred"),
    ]
    assert len({first, *others}) == 7
    asked = [DrawRequest(prompt, seed, seed) for seed, prompt in enumerate(("a bird", "a bird " * 40))]
    seen: list[Any] = []
    together = generator.draw(
        asked, 4, [control()] * len(asked), QUICK, lambda _done, _total: seen.append(generator.preview())
    )
    for one, result in zip(asked, together, strict=True):
        assert drawn(generator, one.prompt, one.seed, 4, one.place) == result.image.tobytes()
    assert all(isinstance(image, Image.Image) for image in seen), "its way to the picture is previewed as well"
    encoded, vae = list[Any](), generator._pipe.vae
    with vae.encoder.register_forward_pre_hook(lambda _net, given: encoded.append(given)):
        again = drawn(generator, guidance=1.0)
        assert again == first and len(encoded) == 1, "it drew four at once last"
        assert drawn(generator, "a house", guidance=1.0) in others and len(encoded) == 1, "once for a source"
    same_on_control_images_of_its_own(generator, guidance=1.0)
    same_on_control_images_of_its_own(generator, guidance=4.0)
    odd = control().crop((0, 0, 40, 24))
    (result,) = generator.draw([DrawRequest("a bird", 1, 0)], 1, [odd], QUICK, lambda _done, _total: None)
    assert result.image.size == (40, 24)


def test_a_section_that_does_not_fit_says_why() -> None:
    folder = Path("nowhere")
    with pytest.raises(ValueError, match="needs detector"):
        sdxl_at(folder, kinds=["depth"])
    with pytest.raises(ValueError, match="not one of the kinds"):
        sdxl_at(folder, detectors={"depth": {"path": "x"}})
    assert isinstance(sdxl_at(folder).generator, UnionGenerator)
    assert isinstance(load_profile("paper").generator, ControlNetGenerator)


# Where the weights go when they are loaded


@pytest.mark.slow
@pytest.mark.parametrize("family", ["stable-diffusion", "sdxl", "z-image"])
def test_weights_go_from_the_files_to_where_they_stay(
    family: str, small: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device "meta" represents a GPU: no part of the pipeline was on the CPU before."""
    import diffusers.pipelines.pipeline_utils as pipelines
    from diffusers import DiffusionPipeline

    def there(pipe: Any) -> set[str]:
        networks = [part for part in pipe.components.values() if hasattr(part, "parameters")]
        assert len(networks) >= 4
        return {weights.device.type for network in networks for weights in network.parameters()}

    moved = list[set[str]]()
    move = DiffusionPipeline.to

    def watched(pipe: Any, *given: Any, **more: Any) -> Any:
        moved.append(there(pipe))
        return move(pipe, *given, **more)

    monkeypatch.setattr(DiffusionPipeline, "to", watched)
    monkeypatch.setattr(pipelines, "SUPPORTED_DEVICE_MAP", [*pipelines.SUPPORTED_DEVICE_MAP, "meta"])
    monkeypatch.setattr("pipeline.models.generator.place", lambda *_: Placing("meta", "float32", "none", "a test"))
    if family == "stable-diffusion":
        few_steps_at(small, weight=0.5)
    elif family == "sdxl":
        _ = load_models(sdxl_at(folder)).generator
    else:
        tiny.save_z_image(tmp_path / "z-image", tmp_path / "union")
        _ = load_models(z_image_at(tmp_path)).generator
    assert moved == [{"meta"}]


@pytest.mark.slow
def test_what_is_offloaded_waits_on_the_cpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from diffusers import DiffusionPipeline

    waiting = set[str]()

    def offloaded(pipe: Any) -> None:
        waiting.update(weights.device.type for weights in pipe.unet.parameters())

    monkeypatch.setattr(DiffusionPipeline, "enable_model_cpu_offload", offloaded)
    monkeypatch.setattr("pipeline.models.generator.place", lambda *_: Placing("meta", "float32", "models", "a test"))
    assert load_models(sdxl_at(folder)).generator and waiting == {"cpu"}


# Memory runs out while images are drawn


def out_of_memory_if(condition: Callable[[int], bool]) -> Callable[[object, tuple[Any, ...]], None]:
    """Return a hook that runs out of memory if `condition` holds for the number of rows."""
    import torch

    def hook(_network: object, given: tuple[Any, ...]) -> None:
        if condition(len(given[0])):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    return hook


@pytest.mark.slow
def test_other_models_leave_before_a_batch_gets_smaller(small: Path) -> None:
    models = few_steps_models(small)
    generator: Any = models.generator
    asked = [DrawRequest("a bird", seed, seed) for seed in (0, 1)]

    def sizes(condition: Callable[[int], bool]) -> set[int]:
        assert models.captioner and models.sentences
        with generator._pipe.unet.register_forward_pre_hook(out_of_memory_if(condition)):
            results = generator.draw(asked, 2, [control()] * 2, QUICK, lambda _done, _total: None)
        return {result.batch.size for result in results}

    assert sizes(lambda _rows: "captioner" in models.loaded) == {2}
    assert models.loaded == ("image generator",), "each is loaded again when it is next needed"
    assert sizes(lambda rows: rows > 2) == {1}, "with guidance an image takes two rows"
    assert models.loaded == ("image generator",)
    assert sizes(lambda _rows: False) == {1}, "remembered"
    assert set(models.loaded) == {"captioner", "sentence model", "image generator"}


@pytest.mark.slow
def test_a_model_draws_again_after_memory_ran_out_while_it_decoded(folder: Path) -> None:
    """SDXL raises its VAE to single precision to decode, and would leave it there."""
    import torch

    generator: Any = load_models(sdxl_at(folder, dtype="float16")).generator
    vae = generator._pipe.vae
    vae.register_to_config(force_upcast=True)
    before = drawn(generator)
    with (
        vae.decoder.register_forward_pre_hook(out_of_memory_if(lambda _rows: True)),
        pytest.raises(torch.OutOfMemoryError),
    ):
        drawn(generator)
    same = drawn(generator) == before
    assert vae.dtype == torch.float16 and same


# Less memory than a model needs


@pytest.mark.slow
def test_a_generator_that_may_go_by_layers_draws_the_same_so(small: Path, folder: Path) -> None:
    generators: list[Any] = [few_steps_at(small, "DDIMScheduler"), load_models(sdxl_at(folder)).generator]
    for generator in generators:
        whole = drawn(generator)
        by_layers_on_the_cpu(generator._pipe)
        same = drawn(generator) == whole
        assert generator.by_layers and same


@pytest.mark.slow
def test_z_image_cannot_go_by_layers(tmp_path: Path) -> None:
    """If this fails, the packages can do it now, and the generator may offer it."""
    tiny.save_z_image(tmp_path / "z-image", tmp_path / "union")
    generator: Any = load_models(z_image_at(tmp_path)).generator
    assert not generator.by_layers
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        by_layers_on_the_cpu(generator._pipe)


M = 1_000_000
STABLE_DIFFUSION = {"unet": 859 * M, "text_encoder": 123 * M, "vae": 84 * M, "safety_checker": 304 * M}
GENERATORS: dict[str, tuple[dict[str, int], bool]] = {
    "paper": (STABLE_DIFFUSION | {"ControlNet canny": 361 * M}, True),
    "sdxl": (
        {"unet": 2567 * M, "text_encoder": 123 * M, "text_encoder_2": 695 * M, "vae": 84 * M}
        | {"ControlNet union": 1255 * M},
        True,
    ),
    "modern": (
        {"transformer": 6155 * M, "text_encoder": 4022 * M, "vae": 84 * M} | {"ControlNet union": 3350 * M},
        False,
    ),
    "edit": ({"transformer": 3876 * M, "text_encoder": 4022 * M, "vae": 84 * M}, True),
}
"""Parameters of the parts of each profile's generator or editor, and whether it can go by layers."""
CARDS = (8, 12, 16, 24, 48, 80)
WAYS = {
    "paper": "none none none none none none",
    "sdxl": "layers none none none none none",
    "modern": "- - - models none none",
    "edit": "layers models models none none none",
}
"""The way to draw on a card of 8, 12, 16, 24, 48 and 80 GB, "-" if it is refused."""


@pytest.mark.parametrize("name", GENERATORS)
def test_the_way_to_draw_on_each_card_follows_from_the_counted_need(name: str) -> None:
    parts, by_layers = GENERATORS[name]
    profile = load_profile(name)
    section: Any = profile.generator if profile.editor is None else profile.editor
    counted = 2 * sum(count for part, count in parts.items() if not part.startswith("ControlNet"))
    assert counted == pytest.approx(section.memory_half, rel=0.01), "what the profile says that it needs"
    ways = list[str]()
    for card in CARDS:
        gpu = Gpu(card * 2**30 - GB // 2, bfloat16=True)  # the driver takes some of it
        try:
            ways.append(place(gpu, parts, likes="bfloat16", by_layers=by_layers).offload)
        except CannotLoad as error:
            ways.append("-")
            assert str(error).startswith("Drawing needs 21 GB of GPU memory, even with one part at a time, ")
    assert " ".join(ways) == WAYS[name]
