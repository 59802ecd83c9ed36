"""The editor LEDITS++, to compare our editor with it: the real class of diffusers with the demo's weights.

LEDITS++ inverts a source without any text. Then it adds what the changed caption names, and removes what the source's
caption names. It draws without a control image. Its reconstruction is exact only if the last denoising step has noise
and is of second order. The setting `final_sigmas_type="sigma_min"` keeps the noise in the last step. The setting
`lower_order_final=False` keeps the last step of second order, even with fewer than 15 steps.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderTiny, DPMSolverMultistepScheduler, LEditsPPPipelineStableDiffusion
from PIL import Image

from core.model_sections import ROOT
from pipeline.profiles.profile import Profile


class TinyVae(AutoencoderTiny):
    """The demo's VAE, with the interface of Stable Diffusion's VAE, which the pipeline of diffusers expects."""

    def encode(self, pixels: torch.Tensor, return_dict: bool = True) -> Any:
        """Return the latents of images, in the form of a distribution without variance."""
        latents = super().encode(pixels).latents
        return SimpleNamespace(latent_dist=SimpleNamespace(mode=lambda: latents))

    def decode(self, latents: torch.Tensor, generator: Any = None, return_dict: bool = True) -> Any:
        """Decode latents, and return the images."""
        return super().decode(latents, return_dict=return_dict)


STEPS, SKIP = 20, 0.15
"""Number of steps of the inversion, and share of them that is skipped: the noisiest ones."""
GUIDANCE, THRESHOLD = 1.0, 0.75
"""Strength of an edit, and quantile below which its changes are dropped. Best of five pairs in a test on nine edits."""


class Ledits:
    """The editor LEDITS++ with the Stable Diffusion models of a profile, whose VAE is an AutoencoderTiny."""

    def __init__(self, profile: Profile) -> None:
        base = ROOT / profile.generator.path
        vae = TinyVae.from_pretrained(base, subfolder="vae", torch_dtype=torch.float32)
        vae.register_to_config(sample_size=profile.settings.generation.short_side)
        self._pipe = LEditsPPPipelineStableDiffusion.from_pretrained(
            base, vae=vae, safety_checker=None, requires_safety_checker=False, torch_dtype=torch.float32
        )
        self._pipe.scheduler = DPMSolverMultistepScheduler.from_config(
            self._pipe.scheduler.config,
            algorithm_type="sde-dpmsolver++",
            solver_order=2,
            final_sigmas_type="sigma_min",
            lower_order_final=False,
            steps_offset=1,
        )
        self._pipe.set_progress_bar_config(disable=True)

    def invert(self, image: Image.Image, seed: int = 0) -> Image.Image:
        """Invert a source for the next edits. Return its reconstruction by the VAE alone."""
        noise = torch.Generator().manual_seed(seed)
        inverted = self._pipe.invert(image, num_inversion_steps=STEPS, skip=SKIP, generator=noise)
        return inverted.vae_reconstruction_images[0]

    @torch.no_grad()
    def edited(self, old: str, new: str) -> np.ndarray:
        """Return the inverted source, edited from the text `old` to the text `new`. Without texts, return its
        reconstruction.

        The pipeline's masks work only with four latent channels, and the demo has six. So this method adds the guidance
        to the UNet's output itself, by the pipeline's formula.
        """
        unet = self._pipe.unet
        states = [self._pipe.encode_prompt("cpu", 1, False, text)[1] for text in (new, old)]

        def guided(_module: Any, inputs: tuple[Any, ...], _named: Any, answer: Any) -> Any:
            latents, level = inputs
            total = torch.zeros_like(latents)
            for text, sign in zip(states, (1, -1), strict=True):
                change = sign * GUIDANCE * (unet.forward(latents, level, text).sample - answer.sample)
                size = change.abs().sum(1, keepdim=True)
                line = torch.quantile(size.flatten(1), THRESHOLD, dim=1)
                total = total + torch.where(size >= line.view(-1, 1, 1, 1), change, 0)
            return type(answer)(answer.sample + total)

        hook = unet.register_forward_hook(guided, with_kwargs=True) if new else None
        try:
            return np.asarray(self._pipe(editing_prompt=None, use_cross_attn_mask=False).images[0])
        finally:
            if hook is not None:
                hook.remove()
