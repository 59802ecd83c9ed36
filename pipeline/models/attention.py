"""Attention control (prompt-to-prompt, Hertz et al. 2022): pictures take over attention maps of their source.

A picture and its source are drawn in one batch. In the first steps, the picture takes over cross-attention maps, which
place the words of a prompt, and self-attention maps, which relate positions of a picture to each other. Full maps are
computed only where they are replaced or read. Other layers keep the network's attention processors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

SMALL = 16 * 16
"""Maximum number of positions of a network level. Self-attention is replaced at levels up to this size. If every level
is larger, self-attention is replaced at the smallest level."""
MOST, PEAK = 1.5, 0.98
"""Maximum factor for a weak change in one step. Quantile, over positions, that counts as the strength of a change."""
Windows = Sequence[Sequence[int]]
"""Token ids of a text, cut into windows of equal length. Each window has a start token, an end token and padding."""


class Alignment(NamedTuple):
    """Matches tokens of a prompt with tokens of the source's prompt. Token numbers run on from window to window."""

    moved: torch.Tensor
    """(source tokens, tokens): 1 where a token of the prompt gets its attention map from a source token, else 0."""
    own: torch.Tensor
    """(tokens,): 1 for tokens of the prompt that keep their own attention map, as no source token matches them."""
    gone: torch.Tensor
    """(source tokens,): 1 for tokens of the source that the prompt changes or drops."""
    new: torch.Tensor
    """(tokens,): 1 for tokens of the prompt that the source does not have."""


def aligned(source: Windows, prompt: Windows, end: int) -> Alignment:
    """Match a prompt's tokens with its source's tokens, both in the same number of windows. `end` is the id of the end
    token. If a part of the text was replaced by as many tokens, they are matched one by one. Start, end and padding
    tokens (padding carries meaning too) are matched by position.
    """
    import torch

    length = len(source[0])
    before, after = ([one for window in text for one in window[1 : window.index(end)]] for text in (source, prompt))

    def place(token: int) -> int:
        return token // (length - 2) * length + 1 + token % (length - 2)

    moved = torch.zeros(len(source) * length, len(prompt) * length)
    own, gone, new = moved.new_zeros(len(moved)), moved.new_zeros(len(moved)), moved.new_zeros(len(moved))
    for kind, begin, stop, start, until in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if stop - begin == until - start:
            for one, other in zip(range(begin, stop), range(start, until), strict=True):
                moved[place(one), place(other)] = 1
        else:
            own[[place(token) for token in range(start, until)]] = 1
        if kind != "equal":
            gone[[place(token) for token in range(begin, stop)]] = 1
            new[[place(token) for token in range(start, until)]] = 1
    for number, windows in enumerate(zip(source, prompt, strict=True)):
        at, (begin, start) = number * length, (window.index(end) for window in windows)
        moved[at, at] = moved[at + begin, at + start] = 1
        for pad in range(start + 1, length):
            moved[at + min(max(pad, begin + 1), length - 1), at + pad] = 1
    return Alignment(moved, own, gone, new)


class AttentionControl:
    """Gives the attention maps of a source to the last rows of a batch. The source is the row before these rows."""

    def __init__(
        self,
        rows: Sequence[Alignment],
        cross_steps: int,
        self_steps: Sequence[int],
        local_blend: float = 0.0,
        region: torch.Tensor | None = None,
        least_change: float = 0.0,
    ) -> None:
        """Row i uses the source's cross-attention in the first `cross_steps` steps, and the source's self-attention in
        the first `self_steps[i]` steps. With a `local_blend` above 0, a position changes only if its attention to
        changed tokens exceeds `local_blend` times the maximum. `region` (h, w) has a factor (0 to 1) for the change at
        each position. A row's change is strengthened if it is weaker than `least_change` times the share of steps done.
        """
        import torch

        self._moved, self._own, self._gone, self._new = map(torch.stack, zip(*rows, strict=True))
        self._count, self._cross_steps, self._self_steps = len(rows), cross_steps, tuple(self_steps)
        self._local_blend, self._region, self._least_change = local_blend, region, least_change
        self._size, self._small = (0, 0), 0
        self._seen: Any = 0.0
        """Sums of attention (rows, 2, h, w). Index 0: source to dropped tokens. Index 1: drawn row to new tokens."""
        self.step = 0
        """Zero-based number of the present denoising step."""

    @property
    def reads_source(self) -> bool:
        """True if the control reads attention maps of the source. The source must then be drawn in the same batch."""
        return self._cross_steps > 0 or max(self._self_steps) > 0 or self._local_blend > 0

    @contextmanager
    def on(self, network: Any, latents: torch.Tensor) -> Iterator[None]:
        """Within the context, change the network's attention, if `reads_source` is True. Compiled blocks then run
        uncompiled. `latents` have the size that is drawn. The previous attention processors are always restored.
        """
        self._size = (latents.shape[-2], latents.shape[-1])
        self._small = max(SMALL, math.prod(self._sides(len(network.down_blocks) - 1)))
        for name in ("_moved", "_own", "_gone", "_new", "_region"):
            if (tensor := getattr(self, name)) is not None:
                setattr(self, name, tensor.to(latents.device))
        if not self.reads_source:
            yield
            return
        processors = network.attn_processors
        calls = {one: call for one in network.modules() if (call := one._compiled_call_impl) is not None}
        try:
            for block in calls:
                block._compiled_call_impl = None
            network.set_attn_processor({name: _Controlled(self, processor) for name, processor in processors.items()})
            yield
        finally:
            network.set_attn_processor(dict(processors))  # a copy, as the call empties its dict
            for block, call in calls.items():
                block._compiled_call_impl = call

    def wants(self, cross: bool, places: int) -> bool:
        """Return True if this step needs the full cross- or self-attention maps of a level with `places` positions."""
        if cross:
            return self.step < self._cross_steps or (self._local_blend > 0 and places <= self._small)
        return places <= self._small and self.step < max(self._self_steps)

    def change(self, maps: torch.Tensor, cross: bool) -> torch.Tensor:
        """Return the attention maps. If this step replaces maps, controlled rows get the source row's maps. `maps`
        are (rows, heads, positions, tokens) if `cross`, and (rows, heads, positions, positions) for self-attention.
        """
        import torch

        others, source, rows = maps[: -self._count - 1], maps[-self._count - 1], maps[-self._count :]
        if not cross:
            taken = [self.step < steps for steps in self._self_steps]
            rows = torch.stack([source if one else row for one, row in zip(taken, rows, strict=True)])
        else:
            if self._local_blend > 0 and maps.shape[2] <= self._small:
                self._look(source, rows)
            if self.step < self._cross_steps:
                own = self._own.to(maps.dtype)[:, None, None]
                taken_over = torch.einsum("hps,nst->nhpt", source, self._moved.to(maps.dtype))
                mixed = taken_over * (1 - own) + rows * own
                # The share of removed tokens goes to the others.
                rows = mixed / mixed.sum(-1, keepdim=True).clamp_min(1e-4)
        return torch.cat([others, source[None], rows])

    def limited(self, change: torch.Tensor, done: float) -> torch.Tensor:
        """Return each row's change from the source (rows, c, h, w). The change is removed where the picture must stay.
        A weak change is strengthened. `done` is the share of steps done, 0 to 1. A source row is unchanged.
        """
        import torch
        from torch.nn import functional

        rows, share = change[-self._count :], torch.ones_like(change[-self._count :, :1])
        if self._local_blend > 0:
            near = functional.max_pool2d(self._seen, 3, 1, 1)
            shown = near / near.amax((2, 3), keepdim=True).clamp_min(1e-9) > self._local_blend
            share = share * shown.any(1, keepdim=True)
        if self._region is not None:
            share = share * self._region
        if self._least_change > 0:
            amount = functional.avg_pool2d(rows.square().mean(1, keepdim=True), 3, 1, 1, count_include_pad=False)
            peak = amount.sqrt().flatten(1).quantile(PEAK, dim=1).clamp_min(1e-9).view(-1, 1, 1, 1)
            factor = (self._least_change * done / peak).clamp(1, MOST)
            share = share * (1 + (factor - 1) * (amount.sqrt() / peak).clamp(max=1))  # faint places stay faint
        return torch.cat([change[: -self._count], share * rows])

    def _look(self, source: torch.Tensor, rows: torch.Tensor) -> None:
        import torch
        from torch.nn import functional

        before = torch.einsum("ps,ns->np", source.float().mean(0), self._gone)
        after = torch.einsum("npt,nt->np", rows.float().mean(1), self._new)
        # The maps do not tell their level, but their number of positions does. No network has as many as ten levels.
        sides = next(sides for level in range(10) if math.prod(sides := self._sides(level)) == before.shape[-1])
        both = torch.stack([before, after], 1).unflatten(-1, sides)
        self._seen = self._seen + functional.interpolate(both, self._size, mode="bilinear")

    def _sides(self, level: int) -> tuple[int, int]:
        height, width = self._size
        return math.ceil(height / 2**level), math.ceil(width / 2**level)


class _Controlled:
    """An attention processor whose maps a control can change. If no maps are needed, the previous processor runs."""

    def __init__(self, control: AttentionControl, own: Any) -> None:
        self._control, self._own = control, own

    def __call__(
        self, attn: Any, hidden_states: torch.Tensor, encoder_hidden_states: torch.Tensor | None = None, **more: Any
    ) -> torch.Tensor:
        cross = encoder_hidden_states is not None
        if not self._control.wants(cross, hidden_states.shape[1]):
            output: torch.Tensor = self._own(attn, hidden_states, encoder_hidden_states, **more)
            return output
        seen = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        query, key = attn.head_to_batch_dim(attn.to_q(hidden_states)), attn.head_to_batch_dim(attn.to_k(seen))
        maps = attn.get_attention_scores(query, key).unflatten(0, (-1, attn.heads))
        drawn = self._control.change(maps, cross).flatten(0, 1) @ attn.head_to_batch_dim(attn.to_v(seen))
        result: torch.Tensor = attn.to_out[1](attn.to_out[0](attn.batch_to_head_dim(drawn)))
        return result
