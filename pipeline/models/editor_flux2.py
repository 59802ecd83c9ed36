"""The editor FLUX.2 klein, run by diffusers: changes a picture as an instruction says."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from core.errors import UserError
from core.images import image_sha
from core.lineage import DrawnBatch
from core.settings import EditingSettings
from pipeline.models.controlnet_skip import in_place
from pipeline.models.generator import DrawingPipeline, Rows
from pipeline.models.previews import as_pictures, is_small, side_by_side
from pipeline.profiles.image_sections import EDITOR, KleinEditor
from pipeline.seams import DrawnImage, DrawRequest, OnStep

if TYPE_CHECKING:
    import torch

TOKENS = 512
"""Maximum number of tokens of an instruction with its chat template. The pipeline would cut off the rest."""
ON_GPU = 2
"""Default number of images edited at once on a GPU. An image has a million pixels, and so has its source, so larger
batches gain little."""


class Flux2Klein(DrawingPipeline[KleinEditor, EditingSettings]):
    """FLUX.2 klein. Besides the noise, its network reads the source picture, at the same size as the drawn image."""

    role = EDITOR
    likes = "bfloat16"
    kept_texts = 16  # fewer than for other models, since an embedding takes 8 MB at half precision

    def __init__(self, section: KleinEditor) -> None:
        self._read: tuple[str, torch.Tensor, torch.Tensor] | None = None
        """Latest edited picture: its hash, its latents, and a linear map from the latents to preview colours."""
        super().__init__(section)

    def _load(self, base: Path) -> Any:
        from diffusers import Flux2KleinPipeline

        return Flux2KleinPipeline.from_pretrained(
            base, variant=self._section.variant or None, **self._to, **self._shared
        )

    @property
    def name(self) -> str:
        return self._section.title

    def draw(
        self,
        requests: Sequence[DrawRequest],
        size: int,
        pictures: Sequence[Image.Image],
        settings: EditingSettings,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        """See `Editor`. Refuses too long instructions. Raises UserError for guidance above 1 with a distilled model."""
        if settings.guidance > 1 and self._pipe.config.is_distilled:
            raise UserError("This editor was distilled to draw without guidance: set editing.guidance to 1.")
        refused = {at: self._too_long(one.prompt) for at, one in enumerate(requests)}
        short = [one for at, one in enumerate(requests) if refused[at] is None]
        drawn = iter(super().draw(short, size, pictures[: len(short)], settings, on_step) if short else ())
        return [
            next(drawn)
            if why is None
            else DrawnImage(None, DrawnBatch(size=size, place=requests[at].place), refused=why)
            for at, why in refused.items()
        ]

    def batch(self, size: tuple[int, int], watched: bool = True) -> int:
        return min(super().batch(size, watched), self._section.batch or ON_GPU)

    def _call(self, rows: Rows[EditingSettings]) -> tuple[list[Image.Image], Sequence[bool] | None]:
        import torch

        picture = rows.pictures[0]  # several would be read as references of one and the same image
        self._read_once(picture, rows.stack)
        guided = rows.settings.guidance > 1
        images: list[Image.Image] = self._pipe(
            image=picture,
            prompt_embeds=torch.cat([self._text(row.prompt) for row in rows.requests]),
            negative_prompt_embeds=torch.cat([self._text("")] * len(rows.requests)) if guided else None,
            width=picture.width,
            height=picture.height,
            num_inference_steps=rows.settings.steps,
            guidance_scale=rows.settings.guidance,
            generator=rows.generators,
            callback_on_step_end=rows.after_step,
            max_sequence_length=TOKENS,
        ).images
        return images, None

    def _read_once(self, picture: Image.Image, stack: ExitStack) -> None:
        """Make the pipeline encode the picture once for all its batches, until `stack` closes."""
        key, read = image_sha(picture), self._pipe._encode_vae_image

        def once(image: torch.Tensor, generator: Any) -> torch.Tensor:
            if self._read is None or self._read[0] != key:
                latents = read(image=image, generator=generator)
                self._read = (key, latents, self._linear(latents, picture))
            return self._read[1]

        stack.enter_context(in_place(self._pipe, once, "_encode_vae_image"))

    # Texts

    def _text(self, text: str) -> torch.Tensor:
        """Return the embedding of a text, (1, TOKENS, width)."""

        def encode() -> torch.Tensor:
            embedding: torch.Tensor = self._pipe.encode_prompt([text], max_sequence_length=TOKENS)[0]
            return embedding

        return self._texts.once((text, 0), encode)

    def _too_long(self, text: str) -> UserError | None:
        tokenizer = self._pipe.tokenizer
        conversation = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        count = len(tokenizer(conversation).input_ids)
        if count <= TOKENS:
            return None
        return UserError(f"The editor reads {TOKENS} tokens, and this instruction has {count}: shorten the caption.")

    def _windows_of(self, one: DrawRequest) -> int:
        return 1  # all texts are filled up to the same length

    # Previews

    def preview(self) -> Image.Image | None:
        """Return a preview of the image being drawn. A small VAE makes it, else a linear map fitted to the source."""
        import torch

        packed = None if self._watch is None else self._watch.clean()
        if packed is None or self._read is None:
            return None
        _, source, linear = self._read
        height, width = source.shape[-2:]
        # (n, height * width, channels) to (n, channels, height, width): the pipeline packs them row by row.
        latents = packed[list(self._shown)].transpose(1, 2).unflatten(2, (height, width)).to(source.dtype)
        with torch.no_grad():
            spread = self._spread(latents)
            if is_small(self._pipe.vae):
                pixels = self._pipe.vae.decode(spread.to(self._pipe.vae.dtype), return_dict=False)[0]
            else:
                pixels = torch.einsum("bchw,cr->brhw", spread.float(), linear[:-1]) + linear[-1].view(1, 3, 1, 1)
            return side_by_side(as_pictures(pixels))

    def _spread(self, latents: torch.Tensor) -> torch.Tensor:
        """Convert the pipeline's latents, normalised and in patches, to the VAE's latents, which are neither."""
        import torch

        vae: Any = self._pipe.vae
        mean = vae.bn.running_mean.view(1, -1, 1, 1).to(latents)
        scale = torch.sqrt(vae.bn.running_var.view(1, -1, 1, 1) + vae.config.batch_norm_eps).to(latents)
        spread: torch.Tensor = self._pipe._unpatchify_latents(latents * scale + mean)
        return spread

    def _linear(self, latents: torch.Tensor, picture: Image.Image) -> torch.Tensor:
        """Return a linear map (channels + 1, 3; last row constant) from latents to the picture's RGB, -1 to 1."""
        import torch

        spread = self._spread(latents)[0].float().cpu()
        small = picture.resize((spread.shape[-1], spread.shape[-2]), Image.Resampling.BOX)
        target = torch.from_numpy(np.asarray(small, np.float32)).reshape(-1, 3) / 127.5 - 1
        inputs = torch.cat([spread.flatten(1).T, torch.ones(target.shape[0], 1)], dim=1)
        return torch.linalg.lstsq(inputs, target, driver="gelsd").solution.to(latents.device)
