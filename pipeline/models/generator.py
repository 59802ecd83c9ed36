"""A generator: a Stable Diffusion with one of several ControlNets, run by the stock pipeline of diffusers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import TYPE_CHECKING, Any

from PIL import Image

from pipeline.errors import UserError
from pipeline.models.captioner import LOAD_ERRORS
from pipeline.models.previews import Looks, StepWatch, watching
from pipeline.models.weights import loading, locate, pick_device, pick_dtype, unreadable
from pipeline.profile import ControlNetGenerator, Scheduler
from pipeline.seams import OnStep
from pipeline.settings import ControlKind, GenerationSettings

if TYPE_CHECKING:
    import torch


class ControlNetPipeline:
    """One pipeline, one image at a time. Its ControlNets are loaded when they are first needed, and then kept."""

    def __init__(self, section: ControlNetGenerator, kind: ControlKind | None = None) -> None:
        """Draws on control images of `kind`; without one, of the profile's first."""
        from diffusers import StableDiffusionControlNetPipeline

        self._section = section
        self._kind: ControlKind = next(iter(section.controlnets)) if kind is None else kind
        self._lock = threading.Lock()
        self._device = pick_device()
        self._dtype = pick_dtype(section.dtype, self._device)
        self._nets: dict[ControlKind, Any] = {}
        self._shared = {"dtype": self._dtype, "local_files_only": True}
        self._watch: StepWatch | None = None
        base = locate("image generator", section)
        without = {} if section.safety_checker else {"safety_checker": None, "requires_safety_checker": False}
        net = self._net(self._kind)
        try:
            with loading():
                pipe: Any = StableDiffusionControlNetPipeline.from_pretrained(
                    base, controlnet=net, variant=section.variant or None, **without, **self._shared
                )
        except LOAD_ERRORS as error:
            raise unreadable("image generator", section, error) from error
        if section.scheduler is not None:
            pipe.scheduler = make_scheduler(section.scheduler, pipe.scheduler.config)
        pipe.set_progress_bar_config(disable=True)
        self._pipe = pipe.to(self._device)
        self._looks = Looks(pipe.vae)
        for part in (pipe.unet, pipe.vae):
            part.to(memory_format=torch_channels_last())

    @property
    def name(self) -> str:
        return self._section.name_on(self._kind)

    def on(self, kind: ControlKind) -> ControlNetPipeline:
        """The same pipeline, held to another kind of control image: it shares all but the ControlNet."""
        if kind not in self._section.controlnets:
            there = ", ".join(self._section.controlnets)
            raise UserError(f"This profile has no ControlNet for {kind}: choose one of its kinds ({there}).")
        other = copy(self)
        other._kind = kind
        return other

    def preview(self) -> Image.Image | None:
        """What the image that it is drawing looks like now (see `pipeline.models.previews`); None between images."""
        return None if self._watch is None else self._looks.of(self._watch.clean())

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            with watching(self._pipe.scheduler) as self._watch:
                yield
        finally:
            self._watch = None

    def _net(self, kind: ControlKind) -> Any:
        """The ControlNet of a kind, on the device. Raises UserError when it cannot be had."""
        from diffusers import ControlNetModel

        if kind not in self._nets:
            wanted = self._section.controlnets[kind]
            folder = locate(f"ControlNet for {kind}", wanted)
            try:
                with loading():
                    net: Any = ControlNetModel.from_pretrained(folder, variant=wanted.variant or None, **self._shared)
            except LOAD_ERRORS as error:
                raise unreadable(f"ControlNet for {kind}", wanted, error) from error
            net.to(self._device, memory_format=torch_channels_last())  # a fifth less work on a CPU
            self._nets[kind] = net
        return self._nets[kind]

    def generate(
        self,
        prompt: str,
        control: Image.Image,
        settings: GenerationSettings,
        seed: int,
        on_step: OnStep,
    ) -> Image.Image:
        """RGB, the size of `control`, whose sides are multiples of 8. What `on_step` raises ends the work at once.

        Raises UserError when the safety checker refuses the image, and when it comes out black.
        """
        import torch

        def after_step(pipe: Any, step: int, _time: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            on_step(step + 1, pipe.num_timesteps)
            return tensors

        with self._lock, torch.no_grad(), self._watched():
            net = self._net(self._kind)
            if self._pipe.controlnet is not net:
                self._pipe.controlnet = net
            wanted, unwanted = self.embeddings(prompt, settings.negative_prompt)
            result = self._pipe(
                prompt_embeds=wanted,
                negative_prompt_embeds=unwanted,
                image=control,
                width=control.width,
                height=control.height,
                num_inference_steps=settings.steps,
                guidance_scale=settings.guidance,
                controlnet_conditioning_scale=settings.control_strength,
                # On the CPU, so that a seed gives the same noise with and without a GPU.
                generator=torch.Generator("cpu").manual_seed(seed),
                callback_on_step_end=after_step,
            )
        image: Image.Image = result.images[0]
        if any(result.nsfw_content_detected or ()):
            raise UserError("The safety checker refused this image: try another seed, or change the caption.")
        if image.convert("L").getextrema() == (0, 0):
            raise UserError("The image came out black: try another seed, or set dtype to float32 in the profile.")
        return image

    def embeddings(self, prompt: str, negative: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Both texts as the pipeline reads them, (1, n, width) each.

        A text longer than the encoder's window is read in several windows, one after another: cut off at the first,
        as the stock pipeline does it, the prompt would lose its end, and with it the label.
        """
        import torch

        both = [self._windows(text) for text in (prompt, negative)]
        count = max(map(len, both))
        empty = self._windows("")[0]
        encoder = self._pipe.text_encoder
        parts = []
        for windows in both:
            ids = torch.tensor(windows + [empty] * (count - len(windows)), device=self._device)
            states = encoder(ids)[0]
            parts.append(states.reshape(1, -1, states.shape[-1]))
        return parts[0], parts[1]

    def _windows(self, text: str) -> list[list[int]]:
        """The token ids of a text in windows as long as the encoder reads, each with its start, end and padding."""
        tokenizer = self._pipe.tokenizer
        length = tokenizer.model_max_length
        ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        pieces = [ids[at : at + length - 2] for at in range(0, len(ids), length - 2)] or [[]]
        windows = [[tokenizer.bos_token_id, *piece, tokenizer.eos_token_id] for piece in pieces]
        return [window + [tokenizer.pad_token_id] * (length - len(window)) for window in windows]


def torch_channels_last() -> Any:
    """The layout in which convolutions run fastest here."""
    import torch

    return torch.channels_last


def make_scheduler(wanted: Scheduler, shipped: Any) -> Any:
    """The scheduler that the profile names, with the shipped configuration and the profile's changes to it."""
    import diffusers

    kind: Any = getattr(diffusers, wanted.name, None)
    known = isinstance(kind, type) and issubclass(kind, diffusers.SchedulerMixin)
    if not known:
        raise UserError(f"The profile names the scheduler {wanted.name}, which diffusers does not have.")
    return kind.from_config(shipped, **wanted.options)
