"""Avoids needless work of a ControlNet, with bit-identical images. The stock pipelines run it even at strength 0, and
encode the control image at each step. Also prevents a ControlNet from mixing the images of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

from core.latest import Latest


@contextmanager
def sparing(net: Any, cache: Latest[Any], key: Hashable) -> Iterator[None]:
    """Within the context, skip the ControlNet at strength 0, and encode the control image at most once. The encoded
    control image is stored in `cache` under the `key`.
    """
    reader, whole = net.controlnet_cond_embedding, net.forward

    @wraps(whole)
    def forward(*arguments: Any, conditioning_scale: Any = 1.0, guess_mode: bool = False, **more: Any) -> Any:
        # With a list of control images there is a scale for each.
        scales = conditioning_scale if isinstance(conditioning_scale, list) else [conditioning_scale]
        if not guess_mode and all(isinstance(scale, int | float) and scale == 0 for scale in scales):
            return None, None  # the UNet then runs without it
        return whole(*arguments, conditioning_scale=conditioning_scale, guess_mode=guess_mode, **more)

    with in_place(net, forward), in_place(reader, encoding_once(reader.forward, cache, key)):
        yield


def encoding_once(encode: Callable[..., Any], cache: Latest[Any], key: Hashable) -> Callable[..., Any]:
    """Return `encode` with a cache: it encodes a control image only if `cache` lacks its features under the `key`."""

    @wraps(encode)
    def once(pixels: Any, *arguments: Any, **more: Any) -> Any:
        return cache.once((key, pixels.shape), lambda: encode(pixels, *arguments, **more))

    return once


@contextmanager
def rows_apart(net: Any) -> Iterator[None]:
    """Within the context, stop a union ControlNet's attention from mixing the images (rows) of a batch."""
    with ExitStack() as stack:
        for layer in net.transformer_layes:
            stack.enter_context(in_place(layer, _apart(layer.attention), "attention"))
        yield


def _apart(attention: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(attention)
    def apart(rows: Any) -> Any:
        return attention(rows.flatten(0, 1).unsqueeze(0)).reshape(rows.shape)

    return apart


@contextmanager
def in_place(module: Any, other: Any, method: str = "forward") -> Iterator[None]:
    """Within the context, replace the attribute `method` of a module by `other`. Afterwards restore it."""
    before = module.__dict__.get(method)
    setattr(module, method, other)
    try:
        yield
    finally:
        if before is None:
            delattr(module, method)  # the method of the class is used again
        else:
            setattr(module, method, before)
