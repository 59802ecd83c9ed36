"""Stable Diffusion XL with one ControlNet for many kinds of control image (a "union"), by the pipeline of diffusers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from core.settings import ControlKind, GenerationSettings
from pipeline.models.controlnet_skip import rows_apart
from pipeline.models.generator import Rows, WindowedPipeline
from pipeline.models.inverting import Texts
from pipeline.profiles.image_sections import UnionGenerator

if TYPE_CHECKING:
    import torch

MODES: dict[ControlKind, int] = {"depth": 1, "soft edges": 2, "canny": 3, "line art": 3, "segmentation": 5}
"""Numbers of the kinds of control image in SDXL's union ControlNet (xinsir/controlnet-union-sdxl-1.0)."""


class UnionPipeline(WindowedPipeline[UnionGenerator]):
    """SDXL. All kinds of control images share one ControlNet, which takes the kind as an input."""

    def _load(self, base: Path) -> Any:
        from diffusers import AutoencoderKL, StableDiffusionXLControlNetUnionPipeline

        section, more = self._section, dict[str, Any]()
        if section.vae is not None:
            more["vae"] = self._network(AutoencoderKL, "VAE", section.vae)
        pipe: Any = StableDiffusionXLControlNetUnionPipeline.from_pretrained(
            base,
            controlnet=self._net(self._kind),
            variant=section.variant or None,
            add_watermarker=False,  # a watermark would be drawn into every image
            **more,
            **self._to,
            **self._shared,
        )
        # It has weights beside its layers, which stay behind when only layers are moved to the GPU.
        pipe._exclude_from_cpu_offload = ["controlnet"]
        return pipe

    def _net(self, kind: ControlKind) -> Any:
        from diffusers import ControlNetUnionModel

        if not self._nets:
            net = self._network(ControlNetUnionModel, *self._section.net_of(kind))
            self._nets = dict.fromkeys(self._section.kinds, self._on_device(net))
            self._compiling.add(net)
        return self._nets[kind]

    def _call(self, rows: Rows[GenerationSettings]) -> tuple[list[Image.Image], Sequence[bool] | None]:
        import torch

        self._spare(self._net(self._kind), rows.pictures, rows.stack)
        texts = rows.texts(rows.settings.negative_prompt)
        pairs = [self.embeddings(*both) for both in texts]
        pooled = [(self._pooled(positive), self._pooled(unwanted)) for positive, unwanted in texts]
        if self._pipe.config.force_zeros_for_empty_prompt:
            for both in (pairs, pooled):
                both[:] = [
                    (positive, unwanted if negative else torch.zeros_like(unwanted))
                    for (positive, unwanted), (_, negative) in zip(both, texts, strict=True)
                ]
        result = self._pipe(
            pooled_prompt_embeds=torch.cat([positive for positive, _ in pooled]),
            negative_pooled_prompt_embeds=torch.cat([unwanted for _, unwanted in pooled]),
            control_image=[rows.pictures],  # a list of kinds, each with its images
            control_mode=[MODES[self._kind]],
            **self._drawn(rows, pairs),
        )
        return result.images, None

    def _spare(self, net: Any, controls: Sequence[Image.Image], stack: ExitStack) -> None:
        super()._spare(net, controls, stack)
        stack.enter_context(rows_apart(net))

    def _steering(self, pixels: torch.Tensor, strength: float) -> dict[str, Any]:
        import torch

        mode, count = MODES[self._kind], self._net(self._kind).config.num_control_type
        kinds = torch.zeros((len(pixels), count), dtype=self._dtype, device=self._device)
        kinds[:, mode] = 1
        strengths = [strength]  # lists, as a union takes several control images at once
        return {
            "controlnet_cond": [pixels],
            "control_type": kinds,
            "control_type_idx": [mode],
            "conditioning_scale": strengths,
        }

    def _given(self, texts: Texts, sample: torch.Tensor) -> dict[str, Any]:
        """Return UNet arguments: the texts, their pooled vectors, and the image's size as original and target size."""
        import torch

        height, width = (side * self._pipe.vae_scale_factor for side in sample.shape[-2:])
        sizes = torch.tensor([height, width, 0, 0, height, width], dtype=self._dtype, device=self._device)
        added = {"text_embeds": texts.pooled, "time_ids": sizes.expand(len(sample), -1)}
        return {**super()._given(texts, sample), "added_cond_kwargs": added}

    def _read(self, texts: Sequence[str]) -> Texts:
        """Encode texts as token vectors and pooled vectors. If the pipeline says so, empty texts become zeros."""
        import torch

        states = super()._read(texts).states
        pooled = torch.cat([self._pooled(text) for text in texts])
        if self._pipe.config.force_zeros_for_empty_prompt:
            not_empty = torch.tensor([bool(text) for text in texts], dtype=self._dtype, device=self._device)
            states, pooled = states * not_empty[:, None, None], pooled * not_empty[:, None]
        return Texts(states, pooled)

    def _encode(self, windows: list[list[int]]) -> torch.Tensor:
        """Return the outputs of the second-to-last layer of both text encoders, joined as in the stock pipeline."""
        import torch

        parts = []
        for tokenizer, encoder in self._encoders():
            padded = [self._as_in(tokenizer, window) for window in windows]
            states = encoder(torch.tensor(padded, device=self._device), output_hidden_states=True).hidden_states[-2]
            parts.append(states.reshape(1, -1, states.shape[-1]))
        return torch.cat(parts, dim=-1)

    def _pooled(self, text: str) -> torch.Tensor:
        def encode() -> torch.Tensor:
            import torch

            tokenizer, encoder = self._encoders()[1]
            window = self._as_in(tokenizer, self._windows(text)[0])
            pooled: torch.Tensor = encoder(torch.tensor([window], device=self._device), output_hidden_states=True)[0]
            return pooled

        return self._texts.once((text, 0), encode)

    def _encoders(self) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
        pipe = self._pipe
        return (pipe.tokenizer, pipe.text_encoder), (pipe.tokenizer_2, pipe.text_encoder_2)

    def _as_in(self, tokenizer: Any, window: list[int]) -> list[int]:
        """Return a window of token ids by the first tokenizer, with padding replaced by another tokenizer's padding."""
        first = self._pipe.tokenizer
        end = window.index(first.eos_token_id) + 1
        return window[:end] + [tokenizer.pad_token_id] * (len(window) - end)
