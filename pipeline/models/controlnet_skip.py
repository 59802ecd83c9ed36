"""Avoids needless work of a ControlNet, with bit-identical results: the stock pipelines run it at a strength of 0, and
encode an image at each step. Also keeps images of a batch apart if a ControlNet mixes them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

from core.latest import Latest


@contextmanager
def sparing(net: Any, cache: Latest[Any], key: Hashable) -> Iterator[None]:
    """Within the context, skip steps of strength 0, and encode the control image once, or not at all if `cache` has its
    features under the `key`.
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
    """Return a function that encodes a control image, unless `cache` already has its features under the `key`."""

    @wraps(encode)
    def once(pixels: Any, *arguments: Any, **more: Any) -> Any:
        return cache.once((key, pixels.shape), lambda: encode(pixels, *arguments, **more))

    return once


@contextmanager
def rows_apart(net: Any) -> Iterator[None]:
    """Keep a union ControlNet's attention from mixing the rows of a batch, which it reads as one sequence."""
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
    """Replace a method, or another attribute, of a module within the context, and restore it afterwards."""
    before = module.__dict__.get(method)
    setattr(module, method, other)
    try:
        yield
    finally:
        if before is None:
            delattr(module, method)  # the method of the class is used again
        else:
            setattr(module, method, before)
