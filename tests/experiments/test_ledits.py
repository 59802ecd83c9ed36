"""LEDITS++ of diffusers, the real class, on tiny random weights that predict epsilon or v, and on the demo's
weights.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from demo.render import render
from demo.scene import random_scene
from pipeline.profiles.profile import load_profile
from tests.support.made_once import MadeOnce
from tests.support.tiny import paper_models

pytestmark = [pytest.mark.slow, pytest.mark.soak]


def psnr(one: Image.Image | np.ndarray, other: Image.Image) -> float:
    """Return the PSNR in dB, at most 99."""
    apart = ((np.asarray(one, float) - np.asarray(other, float)) ** 2).mean()
    return float(10 * np.log10(255**2 / max(apart, 1e-5)))


@pytest.fixture(scope="module")
def base(made_once: MadeOnce) -> Path:
    return paper_models(made_once) / "generator"


@pytest.mark.parametrize("predicts", ["epsilon", "v_prediction"])
def test_the_last_step_is_undone_only_if_it_has_noise_and_the_order_of_the_others(base: Path, predicts: str) -> None:
    from diffusers import DPMSolverMultistepScheduler, LEditsPPPipelineStableDiffusion

    pipe = LEditsPPPipelineStableDiffusion.from_pretrained(
        base, variant="fp16", safety_checker=None, requires_safety_checker=False, torch_dtype=torch.float32
    )
    pipe.set_progress_bar_config(disable=True)
    image, reached = Image.radial_gradient("L").resize((64, 64)).convert("RGB"), {}
    for final in ("zero", "sigma_min"):
        pipe.scheduler = DPMSolverMultistepScheduler.from_config(
            pipe.scheduler.config,
            algorithm_type="sde-dpmsolver++",
            solver_order=2,
            final_sigmas_type=final,
            lower_order_final=final == "zero",
            prediction_type=predicts,
            rescale_betas_zero_snr=predicts == "v_prediction",
        )
        inverted = pipe.invert(image, num_inversion_steps=5, generator=torch.Generator().manual_seed(0))
        same = pipe(editing_prompt=None).images[0]
        reached[final] = psnr(same, inverted.vae_reconstruction_images[0])
        edited = pipe(editing_prompt=["a blue bird"], use_cross_attn_mask=False).images[0]
        assert np.abs(np.asarray(edited, int) - np.asarray(same, int)).mean() > 1, "it shows"
    assert reached["sigma_min"] > 60 > 40 > reached["zero"]


@pytest.mark.demo
def test_the_demos_weights_are_inverted_and_edited(monkeypatch: pytest.MonkeyPatch) -> None:
    from experiments.demo_report import ledits

    monkeypatch.setattr(ledits, "STEPS", 6)
    editor = ledits.Ledits(load_profile("demo"))
    vae = editor.invert(Image.fromarray(render(random_scene(9_300_000))[0]))
    same = editor.edited("", "")
    assert psnr(same, vae) > 60
    edited = editor.edited("A scene by day.", "A scene at night.")
    assert np.abs(edited.astype(int) - same).mean() > 1
    assert np.array_equal(editor.edited("", ""), same), "an edit leaves nothing behind"
