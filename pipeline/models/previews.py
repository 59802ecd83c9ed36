"""Previews while a pipeline denoises: the finished image as predicted at the present step. They do not alter the image.

A scheduler gets the network's prediction and the noisy latents at every step. From these two, the clean latents
predicted now are computed. The profile's tiny VAE decodes them to a picture, or the model's VAE if it is small. Else a
linear map from four latent channels to RGB is used, which costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from pipeline.models.controlnet_skip import in_place

if TYPE_CHECKING:
    import torch

SMALL_VAE = 4_000_000
"""Maximum parameters of a VAE that decodes previews. Tiny VAEs have 1 or 2 million, that of SD 1.5 has 83 million."""
# Stable Diffusion 1.5's latent channels as RGB, each from -1 to 1: the factors that ComfyUI ships (latent_formats.py),
# found by least squares on many images.
SD15_RGB = ((0.3512, 0.2297, 0.3227), (0.3250, 0.4974, 0.2350), (-0.2829, 0.1762, 0.2721), (-0.2120, -0.2616, -0.7177))
SIDE = 512
"""Maximum long side of a preview, in pixels."""


class StepWatch:
    """Remembers the latest inputs of a scheduler."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._told: tuple[Any, Any, Any, Any] | None = None

    def tell(self, prediction: Any, time: Any, latents: Any) -> None:
        """Record the network's prediction for the noisy `latents` at a timestep, before the scheduler uses it."""
        self._told = (prediction, time, latents, getattr(self._scheduler, "step_index", None))

    def clean(self) -> torch.Tensor | None:
        """Return the clean latents that follow from the last inputs, or None before the first step."""
        if self._told is None:
            return None
        prediction, time, latents, index = self._told
        if not hasattr(self._scheduler, "alphas_cumprod"):  # a flow model predicts noise minus clean latents
            return latents - float(self._scheduler.sigmas[index or 0]) * prediction
        signal, noise = self._shares(time, index)
        # `signal` and `noise` are the factors in latents = signal * clean + noise * epsilon.
        kind = self._scheduler.config.get("prediction_type", "epsilon")
        if kind == "sample":
            return prediction
        if kind == "v_prediction":
            length = (signal**2 + noise**2) ** 0.5
            return (signal * latents / length - noise * prediction) / length
        return (latents - noise * prediction) / max(signal, 1e-4)  # at the first step there may be no signal at all

    def _shares(self, time: Any, index: int | None) -> tuple[float, float]:
        scheduler = self._scheduler
        if float(getattr(scheduler, "init_noise_sigma", 1.0)) > 1.001:  # schedulers like Euler add the noise on top
            place = index if index is not None else 0
            return 1.0, float(scheduler.sigmas[min(place, len(scheduler.sigmas) - 1)])
        signal_share = float(scheduler.alphas_cumprod[int(time)])
        return signal_share**0.5, (1 - signal_share) ** 0.5


@contextmanager
def watching(scheduler: Any) -> Iterator[StepWatch]:
    """Record the scheduler's inputs within the context. The scheduler works as usual."""
    watch, step = StepWatch(scheduler), scheduler.step

    @wraps(step)  # the pipeline reads the signature, to see what else the scheduler takes
    def watched(prediction: Any, time: Any, latents: Any, *rest: Any, **more: Any) -> Any:
        watch.tell(prediction, time, latents)
        return step(prediction, time, latents, *rest, **more)

    with in_place(scheduler, watched, "step"):
        yield watch


class Looks:
    """Turns clean latents into a small picture: by a tiny VAE, the model's own VAE if it is small, or a linear map."""

    def __init__(self, vae: Any, tiny: Callable[[], Any] | None = None) -> None:
        """`tiny` loads a tiny VAE, or returns None without one. It is called once, at the first picture."""
        self._vae, self._tiny = vae, tiny
        self._small = is_small(vae)
        self._linear = int(vae.config.latent_channels) == len(SD15_RGB)

    def of(self, latents: torch.Tensor | None, rows: Sequence[int] = (0,)) -> list[Image.Image]:
        """Return RGB previews of these rows of a batch. Empty if decoding is slow, or before the first step."""
        import torch

        if latents is not None and self._tiny is not None:
            tiny, self._tiny = self._tiny(), None
            if tiny is not None:
                self._vae, self._small = tiny, True
        if latents is None or not (self._small or self._linear):
            return []
        latents = latents[list(rows)]
        with torch.no_grad():
            if self._small:
                scaled = latents / self._vae.config.scaling_factor + (self._vae.config.get("shift_factor") or 0.0)
                pixels = self._vae.decode(scaled.to(self._vae.dtype), return_dict=False)[0]
            else:
                factors = torch.tensor(SD15_RGB, dtype=latents.dtype, device=latents.device)
                pixels = torch.einsum("bchw,cr->brhw", latents, factors)
        return as_pictures(pixels)


def is_small(vae: Any) -> bool:
    """Return True if a VAE is small enough to decode a preview in almost no time."""
    return sum(weights.numel() for weights in vae.parameters()) <= SMALL_VAE


def as_pictures(found: torch.Tensor) -> list[Image.Image]:
    """Return pixels (n, 3, height, width), from -1 to 1, as RGB pictures with sides up to `SIDE`."""
    pixels = ((found.float() / 2 + 0.5).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
    images = [Image.fromarray(np.ascontiguousarray(one, np.uint8)) for one in pixels]
    for image in images:
        image.thumbnail((SIDE, SIDE))
    return images


def side_by_side(images: Sequence[Image.Image]) -> Image.Image | None:
    """Join pictures of one size into a square grid with sides up to `SIDE`. None if there are no pictures."""
    if len(images) < 2:
        return next(iter(images), None)
    columns = math.ceil(len(images) ** 0.5)
    width, height = images[0].size
    sheet = Image.new("RGB", (columns * width, math.ceil(len(images) / columns) * height))
    for place, image in enumerate(images):
        sheet.paste(image, (place % columns * width, place // columns * height))
    sheet.thumbnail((SIDE, SIDE))
    return sheet
