"""Outpainting: keeps parts of pictures while the rest is drawn around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from PIL import Image

from pipeline.seams import DrawRequest

if TYPE_CHECKING:
    import torch


class Kept:
    """The kept parts of pictures, with the noise of each step added (RePaint, Lugmayr et al. 2022)."""

    def __init__(self, pipe: Any, rows: Sequence[DrawRequest], device: str) -> None:
        """Encode the pictures that keep a part. Rows without `kept` are drawn entirely."""
        import numpy as np
        import torch

        self._scheduler, clean, shares, noise = pipe.scheduler, list[torch.Tensor](), list[torch.Tensor](), []
        blank = next(row.kept for row in rows if row.kept)[0]
        for row in rows:
            picture, mask = row.kept or (blank, Image.new("L", blank.size))
            pixels = pipe.image_processor.preprocess(picture).to(device, pipe.vae.dtype)
            encoded = pipe.vae.encode(pixels)
            latents = encoded.latent_dist.mode() if hasattr(encoded, "latent_dist") else encoded.latents
            clean.append((latents - (pipe.vae.config.get("shift_factor") or 0.0)) * pipe.vae.config.scaling_factor)
            small = mask.resize((latents.shape[-1], latents.shape[-2]), Image.Resampling.BOX)
            shares.append(torch.from_numpy(np.asarray(small) > 0)[None, None].to(device))
            generator = torch.Generator("cpu").manual_seed(row.seed)
            noise.append(torch.randn(latents.shape, generator=generator).to(device, latents.dtype))
        self._clean, self._where, self._noise = torch.cat(clean), torch.cat(shares), torch.cat(noise)

    def put_back(self, latents: torch.Tensor, step: int) -> torch.Tensor:
        """Return the latents after a step, with the kept parts at the noise level of the next step."""
        import torch

        times, at = self._scheduler.timesteps, self._clean
        if step + 1 < len(times):
            at = self._scheduler.add_noise(at, self._noise, times[step + 1 : step + 2])
        return torch.where(self._where, at.to(latents.dtype), latents)
