"""Trains the autoencoder of the embedded Stable Diffusion, which is a diffusers AutoencoderTiny.

The loss is L1 plus L1 of the gradients, for sharp outlines. Noise on the latents teaches the decoder to tolerate small
errors of the diffusion model. A soft term keeps each latent channel near mean 0 and spread 1, which the noise schedule
needs. AutoencoderTiny's decoder also squashes values beyond 3. Latents are a quarter as wide as the images.
"""

from __future__ import annotations

import numpy as np
import torch
from diffusers import AutoencoderTiny

from demo.render import render
from demo.scene import random_scene
from demo.train.common import Run, arguments, device, half_precision
from demo.train.dataset import open_scenes

LATENT_CHANNELS = 6
WIDTH = 32
LATENT_NOISE = 0.06


def new_autoencoder(width: int = WIDTH) -> AutoencoderTiny:
    """Return an untrained autoencoder. It compresses 128 x 128 x 3 values to 32 x 32 x `LATENT_CHANNELS` values."""
    return AutoencoderTiny(
        encoder_block_out_channels=(width,) * 3,
        decoder_block_out_channels=(width,) * 3,
        num_encoder_blocks=(0, 1, 3),
        num_decoder_blocks=(3, 2, 0),
        latent_channels=LATENT_CHANNELS,
    )


def to_tensor(pictures: np.ndarray) -> torch.Tensor:
    """Convert pictures, uint8 (n, h, w, 3), to tensors of -1 to 1, (n, 3, h, w)."""
    return torch.from_numpy(pictures).permute(0, 3, 1, 2).float() / 127.5 - 1


def gradients(images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the differences between neighbouring pixels, across and down."""
    return images[..., :, 1:] - images[..., :, :-1], images[..., 1:, :] - images[..., :-1, :]


def main() -> None:
    options = arguments("autoencoder", 25, can_go_on=True)
    folder = options.out / "stable-diffusion" / "vae"
    model = new_autoencoder()
    if options.go_on:
        finished = AutoencoderTiny.from_pretrained(folder, dtype=torch.float32)
        model.load_state_dict(finished.state_dict())
        model.encoder.requires_grad_(False)  # the diffusion model was trained on the latents of the present autoencoder
    model = model.to(device(), memory_format=torch.channels_last)
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=5e-4 if options.go_on else 1.5e-3, weight_decay=1e-4, betas=(0.9, 0.98))
    run = Run("autoencoder", options, optimizer, model=model)
    scenes = open_scenes(options.work)
    rng = np.random.default_rng(run.step)
    batch = 4 if device().type == "cpu" else 32
    for step in run:
        source = scenes.images if step % 2 else scenes.twins
        chosen = np.sort(rng.integers(0, scenes.count, batch))
        images = to_tensor(source[chosen]).to(device(), memory_format=torch.channels_last)
        with half_precision():
            latents = model.encoder(images)
            decoded = model.decoder(latents + LATENT_NOISE * torch.randn_like(latents))
        decoded, latents = decoded.float(), latents.float()
        error = (decoded - images).abs().mean()
        edges = sum((a - b).abs().mean() for a, b in zip(gradients(decoded), gradients(images), strict=True))
        drift = latents.mean((0, 2, 3)).square().mean() + (latents.std((0, 2, 3)) - 1).square().mean()
        loss = error + 0.5 * edges + 0.01 * drift
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimizer.step()
        run.report(l1=error.item(), edges=edges.item())
    model.eval()
    with torch.no_grad():
        check = to_tensor(np.stack([render(random_scene(seed))[0] for seed in range(128)])).to(device())
        latents = model.encoder(check)
        again = model.decoder(latents)
    scaling = finished.config.scaling_factor if options.go_on else round(1 / latents.std().item(), 4)
    model.register_to_config(scaling_factor=scaling)
    print(f"autoencoder: L1 {(again - check).abs().mean():.4f} on unseen scenes")
    model.half().save_pretrained(folder, safe_serialization=True)


if __name__ == "__main__":
    main()
