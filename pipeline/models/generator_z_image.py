"""Draws with Z-Image through the pipeline of diffusers. One ControlNet serves many kinds of control image."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from core.settings import ControlKind, GenerationSettings
from pipeline.models.batching import shas
from pipeline.models.controlnet_skip import encoding_once, in_place
from pipeline.models.generator import ControlNetPipeline, Rows
from pipeline.models.weights import loaded_from, locate
from pipeline.profiles.image_sections import ZImageGenerator
from pipeline.seams import DrawRequest

if TYPE_CHECKING:
    import torch

MULTIPLE = 16
"""Sides of drawn images are multiples of this number of pixels. Control images are resized to such sides, and results
are resized back."""
TOKENS = 32
"""Number of tokens per piece. The model reads a text in pieces of this length."""


class ZImagePipeline(ControlNetPipeline[ZImageGenerator]):
    """Z-Image. All kinds of control images share one ControlNet, which recognises the kind by the image itself."""

    likes = "bfloat16"
    by_layers = False  # the ControlNet shares layers with the transformer, and they cannot be moved for both

    def _load(self, base: Path) -> Any:
        from diffusers import ZImageControlNetPipeline

        return ZImageControlNetPipeline.from_pretrained(
            base, controlnet=self._net(self._kind), **self._to, **self._shared
        )

    def _net(self, kind: ControlKind) -> Any:
        from diffusers import ZImageControlNetModel

        if not self._nets:
            union = self._section.union
            file, config = locate("ControlNet union", union), locate("configuration of the ControlNet", union.config)
            with loaded_from("ControlNet union", union, also=(AttributeError,)):
                net: Any = ZImageControlNetModel.from_single_file(
                    str(file), config=str(config), device=self._to.get("device_map"), **self._shared
                )
            self._nets = dict.fromkeys(self._section.kinds, net)
            self._compiling.add(net)
        return self._nets[kind]

    def _call(self, rows: Rows[GenerationSettings]) -> tuple[list[Image.Image], Sequence[bool] | None]:
        settings, controls = rows.settings, rows.pictures
        guided = settings.guidance > 1
        size = controls[0].size
        width, height = (-(-side // MULTIPLE) * MULTIPLE for side in size)
        fitted = [one if one.size == (width, height) else one.resize((width, height)) for one in controls]
        rows.stack.enter_context(self._steered_until(settings.control_until))
        encode = encoding_once(self._pipe.vae.encode, self._held, shas(controls))
        rows.stack.enter_context(in_place(self._pipe.vae, encode, "encode"))
        images: list[Image.Image] = self._pipe(
            prompt_embeds=[self._text(row.prompt) for row in rows.requests],
            negative_prompt_embeds=[self._text(settings.negative_prompt) for _ in rows.requests] if guided else None,
            control_image=fitted,
            width=width,
            height=height,
            num_inference_steps=settings.steps,
            guidance_scale=settings.guidance - 1 if guided else 0.0,  # 0 means no guidance here
            controlnet_conditioning_scale=settings.control_strength,
            generator=rows.generators,
            callback_on_step_end=rows.after_step,
        ).images
        return [one if one.size == size else one.resize(size) for one in images], None

    def _steered_until(self, share: float) -> AbstractContextManager[None]:
        """Within the context, run the ControlNet only in the first `share` of steps. Other pipelines have an option for
        this.
        """
        net, steps = self._pipe.controlnet, 0
        whole = net.forward

        @wraps(whole)
        def forward(*arguments: Any, **more: Any) -> Any:
            nonlocal steps
            steps += 1
            return None if steps / self._pipe.num_timesteps > share else whole(*arguments, **more)

        return in_place(net, forward)

    def _text(self, text: str) -> torch.Tensor:
        """Return the embedding of a text, (n, width)."""

        def encode() -> torch.Tensor:
            import torch

            with torch.no_grad():
                embedding: torch.Tensor = self._pipe.encode_prompt([text], do_classifier_free_guidance=False)[0][0]
            return embedding

        return self._texts.once((text, 0), encode)

    def _windows_of(self, one: DrawRequest) -> int:
        return -(-len(self._text(one.prompt)) // TOKENS)
