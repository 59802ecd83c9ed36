"""Tests for the inversion of image generators, with their real classes at small size."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from core.errors import Cancelled, UserError
from core.settings import EditSettings, GenerationSettings, InversionSettings, Settings, SettingsWithEdit
from core.types import CounterfactualCaption, Task
from pipeline.methods.edit import EDIT
from pipeline.models import load_models
from pipeline.models.attention import Alignment, AttentionControl
from pipeline.models.generator import make_scheduler
from pipeline.models.inverting import Control, Inversion, ddim_steps, stored_inversion
from pipeline.profiles.image_sections import Scheduler
from pipeline.profiles.profile import Profile, load_profile
from pipeline.recipes import LANCE
from pipeline.seams import CaseRequest, DrawRequest, Source
from tests.support import tiny
from tests.support.made_once import MadeOnce
from tests.support.scripted import models_of

pytestmark = [pytest.mark.slow]
EXACT = InversionSettings(steps=4, evaluations=12, close_enough=0)
ROUGH = InversionSettings(steps=4, evaluations=1)
EPSILON = Scheduler(
    name="DDIMScheduler",
    options={"steps_offset": 1, "timestep_spacing": "leading", "set_alpha_to_one": False, "clip_sample": False},
)
V = Scheduler(
    name="DDIMScheduler",
    options={
        "clip_sample": False,
        "prediction_type": "v_prediction",
        "rescale_betas_zero_snr": True,
        "timestep_spacing": "trailing",
    },
)


def unheard(_done: int, _total: int) -> None:
    pass


def noise_picture(seed: int = 1, size: tuple[int, int] = (64, 32)) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (4, 8, 3), np.uint8)).resize(size, Image.Resampling.BICUBIC)


def edges(size: tuple[int, int] = (64, 32)) -> Image.Image:
    rng = np.random.default_rng(2)
    return Image.fromarray(rng.integers(0, 2, (8, 16), np.uint8) * 255).convert("RGB").resize(size)


def sd_at(models: Path, dtype: str = "auto", checked: bool = False) -> Any:
    data = load_profile("demo").model_dump()
    data["generator"] = {
        "kind": "stable-diffusion-controlnet",
        "path": str(models / "generator"),
        "variant": "fp16",
        "safety_checker": checked,
        "dtype": dtype,
        "controlnets": {"canny": {"path": str(models / "controlnet"), "variant": "fp16"}},
    }
    return load_models(Profile.model_validate(data)).generator


@pytest.fixture(scope="module")
def sd(made_once: MadeOnce) -> Any:
    return sd_at(tiny.paper_models(made_once))


@pytest.fixture(scope="module")
def sdxl(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("sdxl")
    tiny.save_sdxl(folder / "sdxl", folder / "union")
    data = load_profile("demo").model_dump()
    data["generator"] = {
        "kind": "sdxl-controlnet-union",
        "path": str(folder / "sdxl"),
        "variant": "fp16",
        "union": {"path": str(folder / "union")},
        "kinds": ["canny"],
    }
    return load_models(Profile.model_validate(data)).generator


@pytest.fixture(params=[("sd", EPSILON, 10.0), ("sdxl", V, 1.0)], ids=["sd, epsilon", "sdxl, v with zero terminal SNR"])
def model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Scale the latents of the random autoencoder to the size of a trained one's, or larger. The output of random
    weights changes wildly with tiny latents, so that no inversion would be exact. The third pair, sd and v, is like
    the demo's model, which `tests/pipeline/test_edit.py` draws with.
    """
    name, scheduler, spread = request.param
    generator = request.getfixturevalue(name)
    pipe = generator._pipe
    monkeypatch.setattr(pipe, "scheduler", make_scheduler(scheduler, pipe.scheduler.config))
    factor = pipe.vae.config.scaling_factor
    with generator.inverting(EXACT) as inverter:
        larger = spread / float(inverter.encode(noise_picture()).std())
    pipe.vae.register_to_config(scaling_factor=factor * larger)
    yield generator
    pipe.vae.register_to_config(scaling_factor=factor)


_inverted: dict[object, Inversion] = {}


def inverted(generator: Any, settings: InversionSettings = EXACT, control: Control | None = None) -> Inversion:
    """Return the inversion of one picture, computed once for all tests of this file with the same arguments."""
    scheduler = str(generator._pipe.scheduler.config.prediction_type)
    key = id(generator._pipe), scheduler, settings, control and (control.strength, control.until)
    if key not in _inverted:
        with generator.inverting(settings, control) as inverter:
            _inverted[key] = inverter.invert(noise_picture(), "a red bird", unheard)
    return _inverted[key]


@pytest.mark.parametrize("control", [None, Control(edges(), 0.8, 0.5)], ids=["text alone", "on edges"])
def test_the_stock_pipeline_draws_the_source_from_its_noise(
    model: Any, control: Control | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline gets the same texts, sizes, ControlNet and noise levels as the inversion.

    Its drawing is compared with the one along the found path: how exact an inversion of random weights is depends on
    how a processor rounds.
    """
    found = inverted(model, control=control)
    assert found.psnr > 40
    with model.inverting(EXACT, control) as inverter:
        redrawn = inverter.redraw(found, ["a red bird"], corrected=False)
    pipe, drawn = model._pipe, []
    decode = pipe.vae.decode

    def decoded(latents: Any, **more: Any) -> Any:
        drawn.append(latents * pipe.vae.config.scaling_factor)
        return decode(latents, **more)

    monkeypatch.setattr(pipe, "prepare_latents", lambda *_given: found.noise)
    monkeypatch.setattr(pipe.vae, "decode", decoded)
    shown = control or Control(edges(), 0.0)
    settings = GenerationSettings(
        steps=EXACT.steps, guidance=1.0, control_strength=shown.strength, control_until=shown.until
    )
    for prompt in ("a red bird", "a house"):
        model.draw([DrawRequest(prompt, 0, 0)], 1, [shown.image], settings, unheard)
    again, other = (float((latents - redrawn).std()) for latents in drawn)
    assert again < other / 1000
    assert (drawn[0] - found.clean).std() < 0.01 * found.clean.std()


def test_more_evaluations_are_more_exact(model: Any) -> None:
    assert inverted(model, ROUGH).psnr < inverted(model, EXACT.model_copy(update={"evaluations": 3})).psnr


@pytest.mark.parametrize("settings", [EXACT, ROUGH], ids=["right", "rough"])
def test_the_same_prompt_gives_the_stored_latents_to_the_bit(model: Any, settings: InversionSettings) -> None:
    found = inverted(model, settings)
    with model.inverting(settings) as inverter:
        for guidance in (1.0, 3.0):
            same, other = inverter.redraw(found, ["a red bird", "a blue bird"], guidance).split(1)
            assert same.equal(found.clean)
            assert not other.equal(same)
        free = inverter.redraw(found, ["a red bird"], corrected=False)
        guided = inverter.redraw(found, ["a red bird"], 3.0, corrected=False)
        assert (free - guided).abs().max() < 1e-3 * found.clean.std(), "its own caption is the negative prompt"


def test_the_caption_is_taken_from_the_path_where_equal_rows_of_a_batch_differ(sd: Any) -> None:
    """On a GPU, equal rows of a batch give different results."""
    found = inverted(sd, ROUGH)
    with sd.inverting(ROUGH) as inverter:

        def uneven(latents: Any, step: Any, texts: Any) -> Any:
            answer = inverter.ask(latents, step, texts)
            return answer * (1 + 1e-3 * torch.arange(len(answer)).view(-1, 1, 1, 1))

        on_gpu = replace(inverter, ask=uneven)
        other, own = on_gpu.redraw(found, ["a blue bird", "a red bird"]).split(1)
        assert own.equal(found.clean) and not other.equal(own)
        assert on_gpu.redraw(found, ["a red bird"] * 2)[1:].equal(found.clean)


# Attention control


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_attention_control_changes_pictures_and_leaves_the_network_as_it_was(model: Any, guidance: float) -> None:
    found, unet = inverted(model), model._pipe.unet
    own, prompts = dict(unet.attn_processors), ["a red bird", "a blue bird", "a very red bird at night"]

    def untouched() -> bool:
        now = unet.attn_processors
        return list(now) == list(own) and all(now[name] is one for name, one in own.items())

    with model.inverting(EXACT) as inverter:

        def drawn(on_step: Any = unheard, region: Image.Image | None = None, **changes: Any) -> Any:
            settings = EditSettings.model_validate({"cross_replace": 0, "self_replace": 0} | changes)
            control = inverter.control(found, prompts, settings, [settings.self_replace] * 3, region)
            return inverter.redraw(found, prompts, guidance, control=control, on_step=on_step)

        free, alone = inverter.redraw(found, prompts, guidance), drawn()
        assert found.redrawn is not None and alone[0].equal(free[0])
        assert (alone - free).abs().max() < 1e-3 * free.std(), "nothing is taken over, so the source is not drawn again"
        steps = list[tuple[int, int]]()
        for taken_over in ("cross_replace", "self_replace"):
            edited = drawn(lambda *at: steps.append(at), None, **{taken_over: 0.5})
            assert edited[0].equal(found.clean[0]) and untouched()
            assert all(not one.equal(other) for one, other in zip(edited[1:], free[1:], strict=True))
        assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)] * 2

        left = Image.new("L", (64, 32))
        left.paste(255, (0, 0, 32, 32))
        kept = drawn(region=left, cross_replace=1)
        width = kept.shape[-1]
        assert kept[..., width // 2 :].equal(found.clean[..., width // 2 :].expand(3, -1, -1, -1))
        assert not kept[1, ..., : width // 2].equal(found.clean[0, ..., : width // 2])
        assert drawn(local_blend=1).equal(found.clean.expand(3, -1, -1, -1)), "no place exceeds the maximum"
        blended = drawn(local_blend=0.5)
        assert blended.isfinite().all() and not blended[1].equal(found.clean[0])

        def fail(error: Exception) -> Any:
            def on_step(done: int, _total: int) -> None:
                assert not untouched()
                if done == 2:
                    raise error

            return on_step

        for error in (Cancelled("Stopped."), ValueError("broken")):
            with pytest.raises(type(error)):
                drawn(fail(error), cross_replace=1, self_replace=1)
            assert untouched()
        assert drawn().equal(alone)


def test_the_method_edit_draws_its_batch_and_leaves_the_network_as_it_was_also_after_a_stop_and_an_error(
    model: Any,
) -> None:
    """Run the method from the source to its test cases."""
    own = dict(model._pipe.unet.attn_processors)
    drawing = GenerationSettings(steps=4, guidance=1.5, short_side=64, inversion_evaluations=12)
    shared = {name: getattr(load_profile("demo").settings, name) for name in Settings.model_fields}
    settings = EDIT.settings_of(SettingsWithEdit.model_validate(shared | {"generation": drawing}), "a red bird")
    method = EDIT.with_models(models_of(model), LANCE.prompts("demo"))
    source = Source(noise_picture(size=(64, 64)), Task("classification", label="bird"), "a red bird")
    prepared = method.prepare(source, settings)
    texts = ("a blue bird", "a red bird", "a very red bird at night")
    wanted = [CaseRequest(CounterfactualCaption(text, ()), 0, place) for place, text in enumerate(texts)]

    def drawn(on_step: Any = unheard) -> Any:
        made = method.make([prepared] * 3, wanted, 3, on_step)
        assert model._pipe.unet.attn_processors == own
        return np.stack([np.asarray(finish().image, int) for finish in made])

    def fail(error: Exception) -> Any:
        def on_step(done: int, total: int) -> None:
            assert model._pipe.unet.attn_processors != own
            if done > total / 2:
                raise error

        return on_step

    first = drawn()
    assert prepared.inversion is not None and len({one.tobytes() for one in first}) == 3
    with model.inverting(drawing.inversion()) as inverter:
        (round_trip,), _ = inverter.images(prepared.inversion.clean)
    assert np.abs(first[1] - np.asarray(round_trip)).max() <= 1, "its own caption gives the source through the VAE"
    for error in (Cancelled("Stopped."), ValueError("broken")):
        with pytest.raises(type(error)):
            drawn(fail(error))
        assert model._pipe.unet.attn_processors == own
    assert np.array_equal(drawn(), first)


def test_controlled_attention_computes_what_the_own_processors_compute(model: Any) -> None:
    with model.inverting(ROUGH) as inverter:
        texts, latents = (
            inverter.read(["a red bird", "a blue bird"]),
            inverter.encode(noise_picture()).repeat(2, 1, 1, 1),
        )
        places = texts.states.shape[1]
        nothing = torch.zeros(places)
        alike = Alignment(torch.zeros(places, places), nothing + 1, nothing, nothing)  # each token keeps its attention
        free = inverter.ask(latents, inverter.steps[0], texts)
        with AttentionControl([alike], 4, [0]).on(model._pipe.unet, latents):
            explicit = inverter.ask(latents, inverter.steps[0], texts)
    assert not explicit.equal(free) and (explicit - free).abs().max() < 1e-4 * free.std()


def test_edited_pictures_are_shown_to_the_safety_checker(sd: Any, tmp_path: Path) -> None:
    tiny.save_stable_diffusion(tmp_path / "generator", tmp_path / "controlnet", safety_checker=True)
    with sd_at(tmp_path, checked=True).inverting(ROUGH) as inverter:
        pictures, flagged = inverter.images(inverter.encode(noise_picture()).repeat(2, 1, 1, 1))
    assert [one.size for one in pictures] == [(64, 32)] * 2 and list(flagged) == [True, True], "it refuses everything"
    with sd.inverting(ROUGH) as inverter:
        assert inverter.images(inverter.encode(noise_picture()))[1] is None


def test_compiled_blocks_run_uncompiled_under_attention_control(sd: Any) -> None:
    found, calls = inverted(sd, ROUGH), list[Any]()
    blocks = [one for one in sd._pipe.unet.modules() if type(one).__name__ == "BasicTransformerBlock"]

    def compiled(*_given: Any, **_more: Any) -> Any:
        raise AssertionError("a compiled block was called with other processors")

    for block in blocks:
        block._compiled_call_impl = compiled
    try:
        with sd.inverting(ROUGH) as inverter:
            control = inverter.control(found, ["a blue bird"], EditSettings(), [0.5])
            inverter.redraw(found, ["a blue bird"], control=control)
        calls = [block._compiled_call_impl for block in blocks]
    finally:
        for block in blocks:
            block._compiled_call_impl = None
    assert calls == [compiled] * len(blocks) and blocks


def test_a_longer_prompt_is_read_beside_the_caption(model: Any) -> None:
    found = inverted(model)
    with model.inverting(EXACT) as inverter:
        long = [f"{'a very long road ' * 8}with a {thing}" for thing in ("bird", "house")]
        one, other = inverter.redraw(found, long, 3.0).split(1)
        control = inverter.control(found, long, EditSettings(), [0.5, 0.5])
        same, _ = inverter.redraw(found, ["a red bird", *long[:1]], 3.0, control=control).split(1)
    assert not one.equal(other) and same.equal(found.clean)


def test_optimised_null_texts_bring_guided_drawing_nearer_to_the_source(model: Any) -> None:
    rough = EXACT.model_copy(update={"evaluations": 3})
    settings = rough.model_copy(update={"null_text_updates": 5, "guidance": 5.0})
    control = Control(edges())
    plain = inverted(model, rough, control)
    with model.inverting(settings, control) as inverter:
        found = inverter.invert(noise_picture(), "a red bird", unheard)
        assert found.null_texts is not None and found.null_texts.shape[0] == settings.steps
        assert found.noise.equal(plain.noise)
        empty = inverter.read(["", "a red bird"])
        as_read = empty.states[:1].expand(settings.steps, -1, -1)
        unguided = Inversion(found.caption, found.clean, found.trajectory, math.nan, as_read)

        def distance(inversion: Inversion) -> float:
            redrawn = inverter.redraw(inversion, ["a red bird"], settings.guidance, corrected=False)
            return float((redrawn - found.clean).square().mean())

        assert distance(found) < distance(unguided)
        assert inverter.redraw(found, ["a red bird"], settings.guidance).equal(found.clean)
    assert all(weights.grad is None for weights in model._pipe.unet.parameters())


def test_a_stored_inversion_draws_the_same_to_the_bit(model: Any) -> None:
    settings = ROUGH.model_copy(update={"null_text_updates": 1})
    plain = inverted(model)
    with model.inverting(settings) as inverter:
        for found in (plain, inverter.invert(noise_picture(), "a red bird", unheard)):
            again = stored_inversion(found.stored())
            assert (again.caption, again.psnr) == ("a red bird", found.psnr) and again.clean.equal(found.clean)
            one, other = (inverter.redraw(inversion, ["a house"], 3.0) for inversion in (found, again))
            assert one.equal(other)
            control = inverter.control(found, ["a house"], EditSettings(cross_replace=0, self_replace=0), [0])
            one, other = (inverter.redraw(inversion, ["a house"], 3.0, control=control) for inversion in (found, again))
            assert one.equal(other)


def test_images_from_inverted_sources_are_the_same_alone_and_beside_others(model: Any) -> None:
    """Each row has its own start and negative prompt. The longer of its two texts sets its length."""
    settings, controls = GenerationSettings(steps=4, guidance=3.0), [edges(), Image.new("RGB", (64, 32)), edges()]
    found, own = inverted(model), model._pipe.scheduler
    wanted = [
        DrawRequest("a house", 5, place, found.start(5, share), negative)
        for place, (share, negative) in enumerate([(0.0, "a red bird"), (0.5, "rain"), (0.0, "a red bird " * 40)])
    ]
    together = model.draw(wanted, 3, controls, settings, unheard)
    alone = [model.draw([one], 3, [controls[at]], settings, unheard)[0] for at, one in enumerate(wanted)]
    assert [one.image.tobytes() for one in together] == [one.image.tobytes() for one in alone]
    assert len({one.image.tobytes() for one in together}) == 3 and [one.batch.place for one in together] == [0, 1, 2]
    assert model._pipe.scheduler is own, "other images are drawn by the scheduler of the profile"
    assert found.start(5, 0.0).equal(found.noise) and not found.start(5, 0.5).equal(found.start(6, 0.5))


def test_the_key_of_an_inversion_changes_with_what_it_depends_on(sd: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source = noise_picture()
    keys = [
        sd.inversion_key(source, "a bird", EXACT),
        sd.inversion_key(noise_picture(2), "a bird", EXACT),
        sd.inversion_key(source, "a house", EXACT),
        sd.inversion_key(source, "a bird", ROUGH),
        sd.inversion_key(source, "a bird", EXACT, Control(edges())),
        sd.inversion_key(source, "a bird", EXACT, Control(edges(), 0.5)),
    ]
    monkeypatch.setattr(sd._pipe, "scheduler", make_scheduler(V, sd._pipe.scheduler.config))
    keys.append(sd.inversion_key(source, "a bird", EXACT))
    assert len(set(keys)) == len(keys) and keys[-1] == sd.inversion_key(source.copy(), "a bird", EXACT)


def test_half_precision_inverts_but_optimises_no_null_texts(made_once: MadeOnce) -> None:
    half = sd_at(tiny.paper_models(made_once), "bfloat16")
    with half.inverting(ROUGH) as inverter:
        assert inverter.invert(noise_picture(), "a bird", unheard).noise.isfinite().all()
    optimised = half.inverting(InversionSettings(null_text_updates=1))
    with pytest.raises(UserError, match="needs full precision: set dtype to float32"), optimised as inverter:
        inverter.invert(noise_picture(), "a bird", unheard)
    half._pipe.unet.conv_out.bias.data.fill_(float("inf"))
    with (
        pytest.raises(UserError, match="overflow in half precision: set dtype to float32"),
        half.inverting(ROUGH) as it,
    ):
        it.invert(noise_picture(), "a bird", unheard)


def test_a_cancelled_inversion_stops_at_the_next_evaluation(sd: Any) -> None:
    seen, settings = [], InversionSettings(steps=4, evaluations=2)

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 3:
            raise Cancelled("Stopped.")

    with pytest.raises(Cancelled), sd.inverting(settings) as inverter:
        inverter.invert(noise_picture(), "a red bird", stop)
    assert seen == [(1, 12), (2, 12), (3, 12)]
    with sd.inverting(settings) as inverter:  # the model is not locked any more
        inverter.invert(noise_picture(), "a red bird", lambda *at: seen.append(at))
    assert seen[-1] == (12, 12)


def test_steps_follow_the_levels_of_the_scheduler() -> None:
    from diffusers import DDIMScheduler, UniPCMultistepScheduler

    v = make_scheduler(V, {"beta_schedule": "scaled_linear"})
    steps = ddim_steps(v, 5)
    assert [step.time for step in steps] == [999, 799, 599, 399, 199]
    assert [step.share for step in steps] == [0.2, 0.4, 0.6, 0.8, 1.0]
    level = float(v.alphas_cumprod[799])
    assert steps[0].keep == pytest.approx((1 - level) ** 0.5), "at the top there is nothing but noise"
    assert steps[0].add == pytest.approx(-(level**0.5))
    config = DDIMScheduler(timestep_spacing="linspace").config
    assert ddim_steps(UniPCMultistepScheduler.from_config(config), 4)[0].time == 999


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("LCMScheduler", {}, "LCMScheduler does not lead back to the noise"),
        ("TCDScheduler", {}, "TCDScheduler does not lead back"),
        ("DDPMScheduler", {}, "DDPMScheduler does not lead back"),
        ("FlowMatchEulerDiscreteScheduler", {}, "FlowMatchEulerDiscreteScheduler does not lead back"),
        ("DPMSolverMultistepScheduler", {"algorithm_type": "sde-dpmsolver++"}, "does not lead back to the noise"),
        ("DDIMScheduler", {"prediction_type": "sample"}, "its predictions of kind sample do not give"),
        (
            "DDIMScheduler",
            {"rescale_betas_zero_snr": True, "timestep_spacing": "trailing"},
            "its predictions of kind epsilon do not give",
        ),
    ],
)
def test_a_scheduler_that_cannot_be_inverted_is_refused_in_one_sentence(
    name: str, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError, match=reason) as refused:
        ddim_steps(make_scheduler(Scheduler(name=name, options=options), {}), 4)
    assert str(refused.value).count(".") == 1


@pytest.mark.demo
def test_the_demo_inverts_drawn_scenes() -> None:
    from demo.language import caption
    from demo.render import render
    from demo.scene import random_scene

    generator: Any = load_models(load_profile("demo")).generator
    settings, found = InversionSettings(), []
    with generator.inverting(settings) as inverter:
        for seed in (2_100_000, 2_100_001):
            scene = random_scene(seed)
            source = Image.fromarray(render(scene)[0])
            found.append(inverter.invert(source, caption(scene), unheard))
    assert np.mean([one.psnr for one in found]) > 40 and min(one.psnr for one in found) > 35
    assert 0.9 < np.mean([float(one.noise.std()) for one in found]) < 1.1
