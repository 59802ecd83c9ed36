"""Models that draw images with pipelines of diffusers: their base classes, and Stable Diffusion with ControlNets."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from PIL import Image

from core.errors import CannotLoad, UserError, one_line
from core.images import image_sha
from core.latest import Latest
from core.lineage import DrawnBatch
from core.model_sections import Weights
from core.settings import ControlKind, GenerationSettings, InversionSettings
from pipeline.models import hub
from pipeline.models.batching import judged, next_batch, shas
from pipeline.models.compiling import Compiling, cannot_compile
from pipeline.models.controlnet_skip import in_place, sparing
from pipeline.models.decoding import decode_within_memory
from pipeline.models.device_placement import parameters, place, this_gpu
from pipeline.models.inverting import Control, Inverter, Step, Texts, ddim_of, ddim_steps
from pipeline.models.kept_parts import Kept
from pipeline.models.loras import fuse
from pipeline.models.model_memory import UsesMemory, give_back_memory, with_room
from pipeline.models.previews import Looks, StepWatch, side_by_side, watching
from pipeline.models.weight_hashes import FILES, TRANSFORMERS_FILES, weights_hash
from pipeline.models.weights import loaded_from, locate
from pipeline.profiles.image_sections import (
    PREVIEW_VAE,
    ControlledGenerator,
    ControlNetGenerator,
    DrawingModel,
    Scheduler,
)
from pipeline.seams import DrawnImage, DrawRequest, OnStep

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)
INVERTED_PARTS = ("unet", "vae", "text_encoder", "text_encoder_2")
"""Folders of the networks that an inversion depends on."""

M = TypeVar("M", bound=DrawingModel)
S = TypeVar("S", bound=ControlledGenerator)
D = TypeVar("D")
Steered = Callable[["torch.Tensor", "torch.Tensor", dict[str, Any]], tuple[Any, Any]]
"""A ControlNet with a fixed control image. It takes latents, timestep and texts, and returns features for the UNet."""


@dataclass(frozen=True)
class Rows(Generic[D]):
    """A full batch. Each row has a request, a random generator and a picture."""

    requests: Sequence[DrawRequest]
    generators: list[torch.Generator]
    pictures: list[Image.Image]
    settings: D
    after_step: Callable[[Any, int, Any, dict[str, Any]], dict[str, Any]]
    stack: ExitStack
    """Contexts that are closed at the end of the batch."""
    start: torch.Tensor | None = None
    """Latents from which drawing starts, or None to start from noise of the rows' generators."""

    def texts(self, negative_prompt: str) -> list[tuple[str, str]]:
        """Return each row's prompt and negative prompt. `negative_prompt` is for rows whose request has none."""
        return [
            (row.prompt, negative_prompt if row.negative_prompt is None else row.negative_prompt)
            for row in self.requests
        ]


class DrawingPipeline(UsesMemory, ABC, Generic[M, D]):
    """A pipeline that draws batches of pictures. `M` is the type of its profile section, `D` of its settings."""

    role = "image generator"
    likes = "float16"
    """Name of the half precision that the model was made for."""
    by_layers = True
    """True if the model draws the same images when only one layer at a time is on the GPU. Tests check this."""
    kept_texts = 64
    """Maximum number of cached text embeddings: of negative prompts, and of captions that are drawn more than once."""

    def __init__(self, section: M) -> None:
        import torch

        self._section = section
        self._lock = threading.Lock()
        base = locate(self.role, section)
        # Shared with the pipelines for other kinds of control images.
        self._placing = place(this_gpu(), self._parts(base), section.dtype, self.likes, self.by_layers)
        self._device, self._dtype = self._placing.device, self._placing.torch_dtype
        self._compiling = Compiling(section.compile, self._device, self._placing.offload, section.title)
        self._shared = {"dtype": self._dtype, "local_files_only": True}
        # Tensors go straight from the files to the GPU, so that main memory never holds the whole model. With
        # offloading they stay on the CPU.
        self._to = {"device_map": self._device} if self._placing.offload == "none" else {}
        self._watch: StepWatch | None = None
        self._shown: tuple[int, ...] = ()
        self._texts = Latest[Any](self.kept_texts)
        self._room: dict[tuple[int, int], int] = {}
        """Maximum number of images drawn at once for each image size at which memory ran out."""
        self._load_beside()
        with loaded_from(self.role, section):
            pipe = self._load(base)
        self._loaded(pipe)
        if section.scheduler is not None:
            pipe.scheduler = make_scheduler(section.scheduler, pipe.scheduler.config)
        pipe.set_progress_bar_config(disable=True)
        if self._placing.offload == "models":
            pipe.enable_model_cpu_offload()
        elif self._placing.offload == "layers":
            pipe.enable_sequential_cpu_offload()
        else:
            pipe.to(self._device)  # moves tensors that are not in the files
            give_back_memory()  # frees the buffers through which the files were read
        self._pipe = pipe
        self._looks = Looks(pipe.vae, self._tiny_vae)
        for part in (getattr(pipe, "unet", None), pipe.vae):
            if part is not None:
                part.to(memory_format=torch.channels_last)  # the layout in which convolutions run fastest here
        decode_within_memory(pipe.vae, lambda: self.free_others())
        self._compiling.add(getattr(pipe, "unet", None) or pipe.transformer)

    def _parts(self, base: Path) -> dict[str, int]:
        return parameters(base, self._section.variant)

    def _load_beside(self) -> None:
        """Load some parts of the pipeline separately, so that an error names the faulty part. By default none."""

    def _loaded(self, pipe: Any) -> None:
        """Prepare the pipeline right after it is loaded. Does nothing by default."""

    def _tiny_vae(self) -> Any:
        return None

    def _network(self, kind: Any, role: str, section: Weights) -> Any:
        """Return a network of diffusers of the class `kind`. Raises UserError if it cannot be loaded."""
        folder = locate(role, section)
        with loaded_from(role, section):
            return kind.from_pretrained(folder, variant=section.variant or None, **self._to, **self._shared)

    @abstractmethod
    def _load(self, base: Path) -> Any:
        """Load the pipeline from the folder `base` to its device, or to the CPU if it is offloaded. Return it."""

    @abstractmethod
    def _call(self, rows: Rows[D]) -> tuple[list[Image.Image], Sequence[bool] | None]:
        """Return the images of the rows, and which of them the safety checker flags."""

    @abstractmethod
    def _windows_of(self, one: DrawRequest) -> int:
        """Return the number of windows of tokens that a prompt fills. All prompts of a batch need the same number."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of the model, as recorded in the lineage of each image."""

    @property
    def placing(self) -> str:
        """Device, reason for its choice, and remark about compiling, such as "cpu, float32: no GPU was found"."""
        return f"{self._placing.words}{self._compiling.words}"

    @property
    def runs(self) -> str:
        """`placing` in words for a page, such as "on the CPU: no GPU was found"."""
        return f"{self._placing.plain_words}{self._compiling.words}"

    @property
    def waits(self) -> str:
        """Reason why the next image will take longer than later images, or "" if there is none."""
        return self._compiling.waits

    def preview(self) -> Image.Image | None:
        return None if self._watch is None else side_by_side(self._looks.of(self._watch.clean(), self._shown))

    def batch(self, size: tuple[int, int], watched: bool = True) -> int:
        """Return the batch size: the profile's, else one that suits the device. A CPU draws one image at a time, so
        that each is shown when it is done. If no user watches (`watched` is False), it draws small images in batches,
        which keep its cores busy.
        """
        one_at_a_time = self._device == "cpu" and (watched or size[0] * size[1] > SMALL)
        best = self._section.batch or (1 if one_at_a_time else AT_ONCE)
        return min(best, self._room.get(size, best))

    def draw(
        self, requests: Sequence[DrawRequest], size: int, pictures: Sequence[Image.Image], settings: D, on_step: OnStep
    ) -> Sequence[DrawnImage]:
        """See `Draws.draw`. If memory runs out, these steps are tried in order: release other models, halve the batch,
        let parts of the model take turns on the GPU. Blocks that cannot be compiled run uncompiled.
        """
        area = pictures[0].size if pictures else (0, 0)
        if any(picture.size != area for picture in pictures):
            raise ValueError("pictures that are drawn together must have the same size")
        done: dict[int, DrawnImage] = {}
        compiling = self._compiling.spent
        todo = list(enumerate(requests))

        def draw_next() -> dict[int, DrawnImage]:
            now = min(size, self._room.get(area, size))
            part, places = next_batch(todo, now, now == size, self._windows_of)

            def told(step: int, steps: int) -> None:
                on_step(len(done) * steps + len(part) * step, len(requests) * steps)

            taken = [one for _, one in part]
            results = self._draw(taken, places, now, [pictures[at] for at, _ in part], settings, told)
            return {at: drawn for (at, _), drawn in zip(part, results, strict=True)}

        def halve() -> bool:
            now = min(size, self._room.get(area, size))
            if now > 1:
                self._room[area] = now // 2
            return now > 1

        with self._lock:
            while todo:
                unfit = ""
                try:
                    done |= with_room(draw_next, self.free_others, halve, self._offload)
                except Exception as error:
                    if not cannot_compile(error):
                        raise
                    unfit = one_line(error)
                if unfit:  # outside the handler, whose error keeps the failed batch in memory
                    self._compiling.stop(unfit)
                    give_back_memory()
                todo = [(at, one) for at, one in todo if at not in done]
        spent = self._compiling.spent - compiling
        return [replace(done[at], compiling=spent) for at in range(len(requests))]

    def _draw(
        self,
        requests: Sequence[DrawRequest],
        places: Sequence[int],
        size: int,
        pictures: Sequence[Image.Image],
        settings: D,
        on_step: OnStep,
    ) -> list[DrawnImage]:
        """Draw one batch. Empty rows repeat the first request. The content of one row does not affect another row."""
        import torch

        rows, seen = [requests[0]] * size, [pictures[0]] * size
        for one, picture, at in zip(requests, pictures, places, strict=True):
            rows[at], seen[at] = one, picture
        # Generators run on the CPU, so that a seed gives the same noise with and without a GPU.
        generators = [torch.Generator("cpu").manual_seed(one.seed) for one in rows]

        regions: Kept | None = None

        def after_step(pipe: Any, step: int, _time: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            self._compiling.begun()
            on_step(step + 1, pipe.num_timesteps)
            if regions is not None:
                tensors["latents"] = regions.put_back(tensors["latents"], step)
            return tensors

        vae = self._pipe.vae
        with torch.no_grad(), ExitStack() as stack:
            if vae.dtype != torch.float32:  # the pipeline may raise its precision and then run out of memory
                stack.callback(vae.to, dtype=vae.dtype)
            if any(row.kept for row in rows):
                regions = Kept(self._pipe, rows, self._device)
            self._shown = tuple(places)
            starts = [row.start for row in rows if row.start is not None]
            if starts:  # drawn with DDIM steps, as sources are inverted with them
                stack.enter_context(in_place(self._pipe, ddim_of(self._pipe.scheduler), "scheduler"))
            self._watch = stack.enter_context(watching(self._pipe.scheduler))
            stack.callback(setattr, self, "_watch", None)
            stack.enter_context(self._compiling.drawing())
            start = torch.cat(starts).to(self._device, self._dtype) if starts else None
            try:
                images, flagged = self._call(Rows(rows, generators, seen, settings, after_step, stack, start))
            except BaseException:
                # Parts that take turns all leave the GPU, also layers that two of them share and one has taken along.
                self._pipe.maybe_free_model_hooks()
                raise
        compiled = self._compiling.on
        return [
            judged(
                images[at],
                None if flagged is None else bool(flagged[at]),
                DrawnBatch(size=size, place=at, compiled=compiled),
            )
            for at in places
        ]

    def _offload(self) -> bool:
        """Let the pipeline's parts take turns on the GPU. Return False if they already do, or run on the CPU."""
        if self._placing.device == "cpu" or self._placing.offload != "none":
            return False
        self._pipe.enable_model_cpu_offload()
        self._placing.offload, self._placing.reason = "models", "its memory ran out while it drew"
        return True


class ControlNetPipeline(DrawingPipeline[S, GenerationSettings]):
    """Base of pipelines that draw on a control image."""

    def __init__(self, section: S) -> None:
        """Load the pipeline for the profile's first kind of control image."""
        self._kind: ControlKind = next(iter(section.by_kind()))
        self._nets: dict[ControlKind, Any] = {}
        self._held = Latest[Any](1)
        """Features of the last control images, as encoded by the ControlNet."""
        super().__init__(section)

    def _parts(self, base: Path) -> dict[str, int]:
        role, net = self._section.net_of(self._kind)
        return super()._parts(base) | {role: sum(parameters(locate(role, net), net.variant).values())}

    def _load_beside(self) -> None:
        self._net(self._kind)

    def _loaded(self, pipe: Any) -> None:
        for lora in self._section.loras:
            fuse(pipe, lora)

    @abstractmethod
    def _net(self, kind: ControlKind) -> Any:
        """Return the ControlNet of a kind, on the device. Raises UserError if it cannot be loaded."""

    @property
    def name(self) -> str:
        return self._section.name_on(self._kind)

    def on(self, kind: ControlKind) -> Self:
        """Return the pipeline for another kind of control image. Both pipelines share all but the ControlNet."""
        if kind not in self._section.by_kind():
            kinds = ", ".join(self._section.by_kind())
            raise UserError(f"This profile has no ControlNet for {kind}: choose one of its kinds ({kinds}).")
        other = copy(self)
        other._kind = kind
        return other

    def _on_device(self, net: Any) -> Any:
        """Move a ControlNet to its device. If the pipeline offloads parts, the first ControlNet stays on the CPU."""
        import torch

        where = "cpu" if self._placing.offload != "none" and not self._nets else self._device
        return net.to(where, memory_format=torch.channels_last)  # a fifth less work on a CPU

    def preview_vae(self) -> Any:
        """Return the tiny VAE for previews, on the device. Raises UserError if the profile names no fitting one."""
        from diffusers import AutoencoderTiny

        section, dtype = self._section.preview_vae, self._dtype
        if section is None:
            raise UserError("This profile names no preview VAE: add preview_vae to its generator.")
        folder = locate(PREVIEW_VAE, section)
        with loaded_from(PREVIEW_VAE, section):
            tiny: Any = AutoencoderTiny.from_pretrained(folder, dtype=dtype, local_files_only=True)
        channels, needed = int(tiny.config.latent_channels), int(self._pipe.vae.config.latent_channels)
        if channels != needed:
            raise CannotLoad(
                f"The preview VAE {section.title} reads latents of {channels} channels, and this image generator has "
                f"{needed}: use a preview VAE that was made for it."
            )
        return tiny.to(self._device)

    def _tiny_vae(self) -> Any:
        """Return the tiny VAE, or None if it is unavailable, since images can be drawn without it. Fetches nothing."""
        section = self._section.preview_vae
        if section is None:
            return None
        try:
            if hub.held(section).complete is not False:
                return self.preview_vae()
            why = "it is not here (`python -m pipeline fetch` brings it)"
        except UserError as error:
            why = str(error)
        log.warning("Previews are rough, without the preview VAE %s: %s", section.title, why)
        return None

    def reading_length(self, prompt: str) -> int:
        return self._windows_of(DrawRequest(prompt, 0, 0))


class WindowedPipeline(ControlNetPipeline[S]):
    """A pipeline whose text encoders read a fixed number of tokens at once, like those of CLIP."""

    @contextmanager
    def inverting(self, settings: InversionSettings, control: Control | None = None) -> Iterator[Inverter]:
        """Lend the networks to invert pictures and to draw from their noise. Until the context ends, other threads wait
        to draw. A call of `draw` by the same thread would deadlock. Raises UserError if inversion is impossible.
        """
        import torch

        pipe, device = self._pipe, self._device
        steps = ddim_steps(pipe.scheduler, settings.steps)
        with self._lock, torch.no_grad(), ExitStack() as stack:
            steered = None if control is None else self._steered(control, stack)
            stack.enter_context(self._compiling.drawing())

            def ask(
                latents: torch.Tensor, step: Step, texts: Texts, outputs: dict[Step, Any] | None = None
            ) -> torch.Tensor:
                sample, time = latents.to(device, self._dtype), torch.tensor(step.time, device=device)
                arguments = self._given(texts, sample)
                if steered is not None and control is not None and step.share <= control.until:
                    down, middle = steering = (outputs or {}).get(step) or steered(sample, time, arguments)
                    if outputs is not None:
                        outputs.clear()  # at full size the outputs of all steps would fill a GPU
                        outputs[step] = steering
                    arguments |= {"down_block_additional_residuals": down, "mid_block_additional_residual": middle}
                answer: torch.Tensor = pipe.unet(sample, time, **arguments, return_dict=False)[0]
                return answer.float()

            yield Inverter(settings, steps, ask, self._read, self._windows, pipe, device)

    def inversion_key(
        self, image: Image.Image, caption: str, settings: InversionSettings, control: Control | None = None
    ) -> str:
        """Return a hexadecimal key of all inputs of an inversion. Raises UserError if the model cannot be inverted."""
        section = self._section
        facts: dict[str, Any] = {
            "source": [image_sha(image), caption],
            "model": section.model_dump(mode="json", exclude={"batch", "preview_vae"}),
            "weights": [weights_hash(section, part, (*FILES, *TRANSFORMERS_FILES)) for part in INVERTED_PARTS],
            "computed": [self._device, str(self._dtype)],
            "settings": settings.model_dump(mode="json"),
            "steps": [astuple(step) for step in ddim_steps(self._pipe.scheduler, settings.steps)],
        }
        if control is not None:
            net = weights_hash(section.net_of(self._kind)[1])
            facts["control"] = [self._kind, image_sha(control.image), control.strength, control.until, net]
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def _steered(self, control: Control, stack: ExitStack) -> Steered:
        """Return a function that runs the ControlNet with a fixed control image. It works until the stack closes."""
        net, image, processor = self._net(self._kind), control.image, self._pipe.control_image_processor
        pixels = processor.preprocess(image, height=image.height, width=image.width).to(self._device, self._dtype)
        self._spare(net, [image], stack)

        def steered(sample: torch.Tensor, time: torch.Tensor, arguments: dict[str, Any]) -> tuple[Any, Any]:
            steering = self._steering(pixels.expand(len(sample), -1, -1, -1), control.strength)
            outputs: tuple[Any, Any] = net(sample, time, **steering, return_dict=False, **arguments)
            return outputs

        return steered

    def _steering(self, pixels: torch.Tensor, strength: float) -> dict[str, Any]:
        """Return the arguments of the ControlNet for the pixels of control images (n, 3, height, width)."""
        return {"controlnet_cond": pixels, "conditioning_scale": strength}

    def _spare(self, net: Any, controls: Sequence[Image.Image], stack: ExitStack) -> None:
        """Avoid needless work of a ControlNet on these control images (see `sparing`), until the stack closes."""
        stack.enter_context(sparing(net, self._held, (self._kind, shas(controls))))

    def _drawn(
        self, rows: Rows[GenerationSettings], pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> dict[str, Any]:
        """Return the pipeline's arguments. `pairs` has the embeddings of each row's prompt and negative prompt."""
        import torch

        settings = rows.settings
        return {
            "prompt_embeds": torch.cat([positive for positive, _ in pairs]),
            "negative_prompt_embeds": torch.cat([negative for _, negative in pairs]),
            "width": rows.pictures[0].width,
            "height": rows.pictures[0].height,
            "num_inference_steps": settings.steps,
            "guidance_scale": settings.guidance,
            "controlnet_conditioning_scale": float(settings.control_strength),
            "control_guidance_end": settings.control_until,
            "generator": rows.generators,
            "latents": rows.start,
            "callback_on_step_end": rows.after_step,
        }

    def _given(self, texts: Texts, sample: torch.Tensor) -> dict[str, Any]:
        return {"encoder_hidden_states": texts.states}

    def _read(self, texts: Sequence[str]) -> Texts:
        """Encode texts. Each gets as many windows of tokens as the longest text needs."""
        import torch

        count = max(len(self._windows(text)) for text in texts)
        return Texts(torch.cat([self._embedding(text, count) for text in texts]))

    @abstractmethod
    def _encode(self, windows: list[list[int]]) -> torch.Tensor:
        """Encode the windows of a text, one after another: (1, n, width)."""

    def embeddings(self, prompt: str, negative: str) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the cached embeddings of both texts, (1, n, width) each. A text longer than the encoder's window is
        read in several windows. The stock pipeline would cut off its end, and with it the label.
        """
        count = max(len(self._windows(text)) for text in (prompt, negative))
        return self._embedding(prompt, count), self._embedding(negative, count)

    def _embedding(self, text: str, count: int) -> torch.Tensor:
        def encode() -> torch.Tensor:
            windows = self._windows(text)
            return self._encode(windows + [self._windows("")[0]] * (count - len(windows)))

        return self._texts.once((text, count), encode)

    def _windows_of(self, one: DrawRequest) -> int:
        return max(len(self._windows(text)) for text in (one.prompt, one.negative_prompt or ""))

    def _windows(self, text: str) -> list[list[int]]:
        """Return a text's token ids in windows of the encoder's length, each with start, end and padding tokens."""
        tokenizer = self._pipe.tokenizer
        length = tokenizer.model_max_length
        ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
        pieces = [ids[at : at + length - 2] for at in range(0, len(ids), length - 2)] or [[]]
        windows = [[tokenizer.bos_token_id, *piece, tokenizer.eos_token_id] for piece in pieces]
        return [window + [tokenizer.pad_token_id] * (length - len(window)) for window in windows]


class StableDiffusion(WindowedPipeline[ControlNetGenerator]):
    """Stable Diffusion 1.5 and similar models. ControlNets are loaded when they are first needed, and then kept."""

    def _load(self, base: Path) -> Any:
        from diffusers import StableDiffusionControlNetPipeline

        section = self._section
        without = {} if section.safety_checker else {"safety_checker": None, "requires_safety_checker": False}
        return StableDiffusionControlNetPipeline.from_pretrained(
            base,
            controlnet=self._net(self._kind),
            variant=section.variant or None,
            **without,
            **self._to,
            **self._shared,
        )

    def _net(self, kind: ControlKind) -> Any:
        from diffusers import ControlNetModel

        if kind not in self._nets:
            net = self._network(ControlNetModel, *self._section.net_of(kind))
            self._nets[kind] = self._on_device(net)
            self._compiling.add(net)
        return self._nets[kind]

    def _call(self, rows: Rows[GenerationSettings]) -> tuple[list[Image.Image], Sequence[bool] | None]:
        net = self._net(self._kind)
        if self._pipe.controlnet is not net:
            self._pipe.controlnet = net
        self._spare(net, rows.pictures, rows.stack)
        pairs = [self.embeddings(*texts) for texts in rows.texts(rows.settings.negative_prompt)]
        result = self._pipe(image=rows.pictures, **self._drawn(rows, pairs))
        return result.images, result.nsfw_content_detected

    def _encode(self, windows: list[list[int]]) -> torch.Tensor:
        import torch

        states: torch.Tensor = self._pipe.text_encoder(torch.tensor(windows, device=self._device))[0]
        return states.reshape(1, -1, states.shape[-1])


AT_ONCE = 8
"""Default batch size. Larger batches gain little speed, and images wait longer."""
SMALL = 256 * 256
"""Maximum number of pixels of a small image. Drawing one small image leaves CPU cores partly idle: a batch of eight
images of 128 by 128 takes little more than half the time of eight single images (`benchmarks.reference` measures this).
A larger image keeps the cores busy and takes much memory."""


def make_scheduler(section: Scheduler, shipped: Any) -> Any:
    """Return the scheduler that the profile names, with the model's configuration and the profile's changes."""
    import diffusers

    kind: Any = getattr(diffusers, section.name, None)
    known = isinstance(kind, type) and issubclass(kind, diffusers.SchedulerMixin)
    if not known:
        raise UserError(f"The profile names the scheduler {section.name}, which diffusers does not have: correct it.")
    return kind.from_config(shipped, **section.options)
