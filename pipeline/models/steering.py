"""Spares a ControlNet what it would do for nothing: the stock pipelines ask it at every step, also where its answer is
multiplied by zero, and let it read the same control image anew each time. What comes out is the same to the bit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any


@dataclass
class Held:
    """What a ControlNet made of the control image that it saw last."""

    key: Hashable = None
    features: Any = None


@contextmanager
def sparing(net: Any, held: Held, key: Hashable) -> Iterator[None]:
    """While it holds, the network reads the control image once, or not at all where `held` has it under the `key`;
    and is not asked where its answer would count nothing.
    """
    reader, whole, read = net.controlnet_cond_embedding, net.forward, net.controlnet_cond_embedding.forward

    @wraps(whole)
    def forward(*given: Any, conditioning_scale: Any = 1.0, guess_mode: bool = False, **more: Any) -> Any:
        if not guess_mode and isinstance(conditioning_scale, int | float) and conditioning_scale == 0:
            return None, None  # the network that it steers then runs by itself
        return whole(*given, conditioning_scale=conditioning_scale, guess_mode=guess_mode, **more)

    @wraps(read)
    def once(conditioning: Any) -> Any:
        if held.key != (key, conditioning.shape):
            held.features, held.key = read(conditioning), (key, conditioning.shape)
        return held.features

    with in_place(net, forward), in_place(reader, once):
        yield


@contextmanager
def in_place(module: Any, forward: Any) -> Iterator[None]:
    """A module's `forward` is another one; what stood there comes back."""
    before = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if before is None:
            del module.forward  # the method of its class shows again
        else:
            module.forward = before
