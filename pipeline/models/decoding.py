"""Decodes latents to images within limited memory: a batch at once, image by image, or in tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pipeline.models.model_memory import WORK, with_room

if TYPE_CHECKING:
    import torch


def decoding_bytes(vae: Any, latents: torch.Tensor) -> int:
    """Return the maximum bytes that `AutoencoderKL` of diffusers needs to decode one image of `latents` (n, c, h, w).
    This is three times the input of its last block, or the size of its attention if that is more. Counted on Stable
    Diffusion 1.5 (`tests/pipeline/models/test_decoding.py`).
    """
    height, width = latents.shape[-2:]
    widths = vae.config.block_out_channels
    scale = 2 ** (len(widths) - 1)
    convolutions = 3 * widths[min(1, len(widths) - 1)] * height * width * scale**2 * latents.element_size()
    attention = 9 * (height * width) ** 2  # in single precision, even if the rest computes in half precision
    return max(convolutions, attention)


def decode_within_memory(vae: Any, free_others: Callable[[], bool]) -> None:
    """Make `vae.decode` decode image by image if a batch would need more than `WORK` bytes. This depends only on the
    size and number of images, so an image drawn again has the same pixels. If memory runs out, `free_others` releases
    other models. If it still runs out, images are decoded one by one, then in tiles.
    """
    decode, tiled = vae.decode, set[tuple[int, ...]]()

    def decode_patiently(latents: torch.Tensor, *arguments: Any, **more: Any) -> Any:
        size = tuple(latents.shape[-2:])
        vae.use_tiling = size in tiled
        vae.use_slicing = vae.use_tiling or len(latents) * decoding_bytes(vae, latents) > WORK

        def take_one_by_one() -> bool:
            fewer = len(latents) > 1 and not vae.use_slicing
            vae.use_slicing |= fewer
            return fewer

        def take_tiles() -> bool:
            larger = not vae.use_tiling and max(size) > vae.tile_latent_min_size
            vae.use_tiling |= larger
            return larger

        try:
            decoded = with_room(lambda: decode(latents, *arguments, **more), free_others, take_one_by_one, take_tiles)
            tiled.update([size] if vae.use_tiling else [])  # so the next images of this size need not fail first
            return decoded
        finally:
            vae.use_tiling = False  # sources are encoded in one piece

    vae.decode = decode_patiently
