"""Decoding within memory: its bytes are counted on real decoders without weights, and small ones run out of memory."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pipeline.models.decoding import decode_within_memory, decoding_bytes
from pipeline.models.model_memory import WORK

BLOCKS = [128, 256, 512, 512]
"""Widths of the decoders of Stable Diffusion 1.5 and SDXL, of Z-Image and of FLUX.2."""


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that are in use. On the device "meta" nothing is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known = set[int]()

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = op(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)

        def freed() -> None:
            self._known.discard(key)
            self.now -= size

        weakref.finalize(storage, freed)


def decoder(widths: list[int], channels: int = 4, device: str = "meta", dtype: Any = torch.float16) -> Any:
    from diffusers import AutoencoderKL

    torch.manual_seed(0)
    with torch.device(device):
        return AutoencoderKL(
            down_block_types=["DownEncoderBlock2D"] * len(widths),
            up_block_types=["UpDecoderBlock2D"] * len(widths),
            block_out_channels=widths,
            layers_per_block=2,
            latent_channels=channels,
            norm_num_groups=min(32, widths[0]),
            sample_size=64,
        ).to(dtype)


def decoded_bytes(vae: Any, width: int, height: int, count: int) -> tuple[int, int]:
    """Return the bytes that a decoding takes at most, and the calculated ones of one image."""
    latents = torch.empty(count, vae.config.latent_channels, height // 8, width // 8, device="meta", dtype=vae.dtype)
    with torch.no_grad(), LiveBytes() as live:
        vae.decode(latents)
    return live.peak, decoding_bytes(vae, latents)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(512, 512), (512, 768), (1024, 1024), (768, 1344)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_the_bytes_of_a_decoding_are_known_before_it(width: int, height: int, dtype: torch.dtype) -> None:
    counted, calculated = decoded_bytes(decoder(BLOCKS, dtype=dtype), width, height, 1)
    assert 0.95 < calculated / counted < 1.1


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height", "before"), [(512, 768, 4.8e9), (1024, 1024, 19.1e9)])
def test_a_batch_of_eight_takes_no_more_than_one_image_and_the_pictures(width: int, height: int, before: float) -> None:
    vae = decoder(BLOCKS)
    whole, one = decoded_bytes(vae, width, height, 8)
    assert whole == pytest.approx(before, rel=0.02)
    decode_within_memory(vae, lambda: False)
    within, _ = decoded_bytes(vae, width, height, 8)
    pictures = 8 * 3 * width * height * 2
    assert within < 1.05 * one + 2 * pictures


@contextmanager
def failing(vae: Any, limit: Callable[[], int]) -> Iterator[list[int]]:
    """Run out of memory in decodings of more latent pixels than `limit`. Yields the latent pixels of all of them."""
    tried = list[int]()

    def begin(_decoder: object, given: tuple[torch.Tensor, ...]) -> None:
        tried.append(given[0][:, 0].numel())
        if tried[-1] > limit():
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    with vae.decoder.register_forward_pre_hook(begin):
        yield tried


def test_other_models_leave_before_images_go_one_by_one_and_then_in_tiles() -> None:
    vae = decoder([8, 8, 8, 8], device="cpu", dtype=torch.float32)
    latents = torch.randn(2, 4, 16, 12)
    with torch.no_grad():
        expected = vae.decode(latents)[0]
    others, room = ["captioner"], 10_000

    def free_others() -> bool:
        nonlocal room
        if not others:
            return False
        others.clear()
        return True

    decode_within_memory(vae, free_others)

    def decode() -> torch.Tensor:
        with torch.no_grad():
            pixels: torch.Tensor = vae.decode(latents, return_dict=False)[0]
        return pixels

    with failing(vae, lambda: 500 if not others else 0) as tried:
        assert decode().equal(expected) and tried == [384, 384], "two images at once, after the others left"
    with failing(vae, lambda: 200) as tried:
        assert torch.allclose(decode(), expected, atol=1e-4) and tried == [384, 192, 192]
    with failing(vae, lambda: 100) as tried:
        assert decode().shape == expected.shape and max(tried[2:]) <= 100, "tiles of 8 by 8"
    assert not vae.use_tiling, "sources are encoded in one piece"
    with failing(vae, lambda: 100) as tried:
        decode()
        assert max(tried) <= 100, "this size is known not to fit"
    with failing(vae, lambda: 10), pytest.raises(torch.OutOfMemoryError):
        decode()
    assert decoding_bytes(vae, latents) * 2 < WORK
