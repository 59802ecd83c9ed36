"""Inversion of a diffusion model: the noise from which the model draws a given picture under a given caption.

DDIM moves latents from one noise level to the next by `keep * latents + add * answer`. The answer is the network's
output for the noisier latents. Drawing knows the noisier latents. Inversion seeks them, so it solves each step by
fixed-point iteration, with the step's own `keep` and `add`. (`DDIMInverseScheduler` of diffusers takes `keep` and `add`
of the neighbouring noise level. With models that predict v, this spoils the pictures: PSNR 11 to 13 dB in the demo.)

The functions work on tensors and call the network through `Predict`; `WindowedPipeline.inverting` lends the network.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from PIL import Image

from core.errors import UserError
from core.settings import EditSettings, InversionSettings
from pipeline.models.attention import AttentionControl, aligned
from pipeline.profiles.image_sections import Scheduler
from pipeline.seams import InversionStore, OnStep

if TYPE_CHECKING:
    import torch

SMALLEST_SIGNAL = 1e-6
"""Minimum share of the picture in noisy latents. Below it, a predicted noise says nothing about the picture."""
CLOSE = 40.0
"""Minimum PSNR in dB at which a redrawn source counts as exact. Edits can then reuse the redrawn source."""
NULL_TEXT_RATE, NULL_TEXT_LOSS = 1e-2, 1e-5
"""Values of null-text inversion at the first step, from its code: the learning rate, and the loss that ends updates."""


@dataclass(frozen=True)
class Step:
    """A DDIM step: the next latents are `keep * latents + add * answer`, where `answer` is the network's output."""

    time: int
    """Timestep of the noisier latents, an input of the network."""
    keep: float
    add: float
    share: float
    """Share of the steps, 0 to 1, that are done once this step is done."""


_ABOUT = "inversion"
"""Key of the caption and the PSNR in the metadata of a stored inversion."""
Predict = Callable[["torch.Tensor", Step], "torch.Tensor"]
"""Function that returns the network's output for latents (n, c, h, w) at a step, in the same shape."""


class Ask(Protocol):
    """Function that returns the network's output for latents and texts, one text per row of the latents."""

    def __call__(
        self, latents: torch.Tensor, step: Step, texts: Texts, outputs: dict[Step, Any] | None = None, /
    ) -> torch.Tensor:
        """Call the network. With `outputs`, the ControlNet runs only once per step. `outputs` then holds its output."""


@dataclass(frozen=True)
class Texts:
    """Encoded texts, one per row."""

    states: torch.Tensor
    """Vectors of the tokens (n, tokens, width)."""
    pooled: torch.Tensor | None = None
    """One vector for each whole text (n, width). Only SDXL reads them, for other models they are None."""

    def rows(self, count: int) -> Texts:
        """Repeat the only text in `count` rows."""
        pooled = None if self.pooled is None else self.pooled.expand(count, -1)
        return Texts(self.states.expand(count, -1, -1), pooled)

    def __getitem__(self, rows: slice) -> Texts:
        return Texts(self.states[rows], None if self.pooled is None else self.pooled[rows])

    def __add__(self, other: Texts) -> Texts:
        import torch

        both = self.pooled is not None and other.pooled is not None
        pooled = torch.cat([self.pooled, other.pooled]) if both else None
        return Texts(torch.cat([self.states, other.states]), pooled)


@dataclass(frozen=True)
class Control:
    """A control image, its strength, and the share of steps, from the first, in which it applies."""

    image: Image.Image
    strength: float = 1.0
    until: float = 1.0


@dataclass(frozen=True)
class Inversion:
    """Result of the inversion of a source under its caption. The tensors are on the CPU."""

    caption: str
    clean: torch.Tensor
    """Latents of the source (1, c, h, w), float32."""
    trajectory: torch.Tensor
    """Noisy latents of every step in the order of inversion (steps, 1, c, h, w), float16. The last ones are the noise.
    If `redrawn` is set, these latents are from drawing the source again from the noise."""
    psnr: float
    """PSNR in dB of the source and the picture redrawn without correction, both decoded by the VAE."""
    null_texts: torch.Tensor | None = None
    """Optimised embeddings of the empty text (steps, tokens, width), in the order of drawing, or None."""
    redrawn: torch.Tensor | None = None
    """Latents redrawn without correction (1, c, h, w), float32. None if `psnr` < `CLOSE` or `null_texts` is set."""

    @property
    def noise(self) -> torch.Tensor:
        """The noise at the end of the inversion, float32. Its standard deviation is near 1 for a good inversion."""
        return self.trajectory[-1].float()

    def path(self, device: str) -> list[torch.Tensor]:
        """Return the latents in the order of drawing, from noise to clean, float32."""
        return [one.to(device).float() for one in (*self.trajectory.flip(0), self.clean)]

    def start(self, seed: int, fresh_noise: float) -> torch.Tensor:
        """Return the inverted noise (1, c, h, w), mixed with fresh noise of a seed. The variance is unchanged."""
        import torch

        fresh = torch.randn(self.clean.shape, generator=torch.Generator("cpu").manual_seed(seed))
        return (1 - fresh_noise) ** 0.5 * self.noise + fresh_noise**0.5 * fresh

    def stored(self) -> bytes:
        """Return the bytes of a safetensors file with the inversion, which `stored_inversion` can read."""
        from safetensors.torch import save

        tensors = {"clean": self.clean, "trajectory": self.trajectory}
        tensors |= {name: one for name in ("null_texts", "redrawn") if (one := getattr(self, name)) is not None}
        words = {_ABOUT: json.dumps({"caption": self.caption, "psnr": self.psnr})}
        return save({name: one.contiguous() for name, one in tensors.items()}, words)


def stored_inversion(data: bytes) -> Inversion:
    """Read an inversion from the bytes of `Inversion.stored`."""
    from safetensors.torch import load

    size = int.from_bytes(data[:8], "little")
    about = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_ABOUT])
    return Inversion(**about, **load(data))


def ddim_of(scheduler: Any) -> Any:
    """Return a DDIM scheduler with the noise levels of `scheduler`. Raises UserError if it cannot be inverted."""
    from diffusers import DDIMScheduler

    config = scheduler.config
    if hindrance := Scheduler(name=type(scheduler).__name__, options=dict(config)).cannot_invert:
        raise UserError(hindrance)
    # With "linspace" DDIM's arithmetic has no step left to reach the picture.
    spacing = {"timestep_spacing": "trailing"} if config.get("timestep_spacing") == "linspace" else {}
    return DDIMScheduler.from_config(config, clip_sample=False, thresholding=False, **spacing)


@lru_cache(maxsize=64)  # every image of a bank of backgrounds asks, and making a scheduler takes 15 ms
def ddim_steps(scheduler: Any, count: int) -> tuple[Step, ...]:
    """Return the steps of `ddim_of(scheduler)` in the order of drawing. Raises UserError if the scheduler or the
    model's kind of prediction cannot be inverted.
    """
    ddim = ddim_of(scheduler)
    ddim.set_timesteps(count)
    kind, stride = ddim.config.prediction_type, ddim.config.num_train_timesteps // count
    levels = [float(one) for one in ddim.alphas_cumprod]
    steps = []
    for place, time in enumerate(ddim.timesteps.tolist()):
        to = levels[time - stride] if time >= stride else float(ddim.final_alpha_cumprod)
        signal, noise = levels[time] ** 0.5, (1 - levels[time]) ** 0.5
        to_signal, to_noise = to**0.5, (1 - to) ** 0.5
        if kind == "v_prediction":
            keep, add = to_signal * signal + to_noise * noise, to_noise * signal - to_signal * noise
        elif kind == "epsilon" and signal > SMALLEST_SIGNAL:
            keep, add = to_signal / signal, to_noise - to_signal * noise / signal
        else:
            raise UserError(
                f"This model cannot be inverted: at some noise level, its predictions of kind {kind} do not give "
                "both picture and noise; use a model that predicts v, or a scheduler that never reaches pure noise."
            )
        steps.append(Step(time, keep, add, (place + 1) / count))
    return tuple(steps)


def invert(clean: torch.Tensor, steps: Sequence[Step], predict: Predict, settings: InversionSettings) -> torch.Tensor:
    """Return the noisy latents after each step of the inversion of `clean` latents: (steps, n, c, h, w). `steps` are in
    the order of drawing. Each step starts with the network's output of the step before, and evaluates the network at
    most `settings.evaluations` times.
    """
    import torch

    latents, answer, path, left = clean, torch.zeros_like(clean), list[torch.Tensor](), 1.0
    for step in reversed(steps):
        guess, last, before = (latents - step.add * answer) / step.keep if path else latents, None, 0.0
        for _ in range(settings.evaluations):
            answer = predict(guess, step)
            better = (latents - step.add * answer) / step.keep
            change = better - guess
            guess = better if last is None else _mixed(last, (better, change))
            size = float(change.std() / latents.std())
            if before:  # the ratio of successive changes depends on the model and varies little between steps
                left = min(1.0, size / before)
            last, before = (better, change), size
            if left * size < settings.close_enough:
                break
        latents = guess
        path.append(latents)
    return torch.stack(path)


def _mixed(last: tuple[torch.Tensor, torch.Tensor], now: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Mix two guesses, each with its residual, to minimise each row's residual (Anderson's method of depth 1)."""
    (before, old_change), (better, change) = last, now
    turn = change - old_change
    products = (change * turn).double().sum(dim=(1, 2, 3), keepdim=True)
    squares = (turn * turn).double().sum(dim=(1, 2, 3), keepdim=True)
    # If nothing changes any more, the guess is right. The factor is then 0 and keeps it.
    mixed: torch.Tensor = better - (products / squares.clamp_min(1e-20)).to(better.dtype) * (better - before)
    return mixed


def redraw(
    noise: torch.Tensor,
    steps: Sequence[Step],
    predict: Predict,
    path: Sequence[torch.Tensor] | None = None,
    limited: Callable[[torch.Tensor, float], torch.Tensor] | None = None,
    redrawn: torch.Tensor | None = None,
) -> list[torch.Tensor]:
    """Return the latents after each step of drawing from `noise`, all (n, c, h, w). The last latents are clean.

    `path` has the stored latents of the source from noise to clean (one row each). With a `path`, row 0 of `noise` is
    the source. Each step moves the source back to its path, and moves all other rows by the same amount. A row that
    equals the source ends exactly on the path. `limited(change, share)` gets the rows' changes from the source and the
    share of steps done. It returns the changes to keep. With `redrawn` (one row), `noise` has no row for the source:
    the source is assumed to follow `path` and to end at `redrawn`.
    """
    latents, drawn = noise, []
    for number, step in enumerate(steps, 1):
        latents = step.keep * latents + step.add * predict(latents, step)
        if path is not None:
            source = latents[:1] if redrawn is None else redrawn if number == len(steps) else path[number]
            change = latents - source
            latents = path[number] + (change if limited is None else limited(change, step.share))
        drawn.append(latents)
    return drawn


def guided(ask: Ask, texts: Texts, negatives: Callable[[Step], Texts], guidance: Sequence[float]) -> Predict:
    """Return a prediction function for the texts, guided away from negative texts if any `guidance` exceeds 1."""
    import torch

    def predict(latents: torch.Tensor, step: Step) -> torch.Tensor:
        if max(guidance) <= 1:
            return ask(latents, step, texts)
        negative, positive = ask(torch.cat([latents, latents]), step, negatives(step) + texts).chunk(2)
        return negative + latents.new_tensor(guidance).view(-1, 1, 1, 1) * (positive - negative)

    return predict


def optimise_null_texts(
    path: Sequence[torch.Tensor],
    steps: Sequence[Step],
    ask: Ask,
    caption: Texts,
    empty: Texts,
    settings: InversionSettings,
) -> torch.Tensor:
    """Return an embedding of the empty text for each step (steps, tokens, width), optimised so that guided drawing
    stays on the `path` (null-text inversion). Needs float32, as gradients vanish in half precision.
    """
    import torch

    null_texts, latents, states = [], path[0], empty.states
    for number, (step, goal) in enumerate(zip(steps, path[1:], strict=True)):
        with torch.no_grad():
            with_caption = ask(latents, step, caption)
        states = states.detach().clone().requires_grad_()
        rate, enough = NULL_TEXT_RATE * (1 - number / (2 * len(steps))), NULL_TEXT_LOSS * (1 + 2 * number)
        optimiser = torch.optim.Adam([states], lr=rate)
        for _ in range(settings.null_text_updates):
            with torch.enable_grad():
                with_empty = ask(latents, step, Texts(states, empty.pooled))
                drawn = step.keep * latents + step.add * (with_empty + settings.guidance * (with_caption - with_empty))
                loss = (drawn - goal).square().mean()
                (states.grad,) = torch.autograd.grad(loss, [states])  # no gradients for the weights
            optimiser.step()
            if loss < enough:
                break
        states = states.detach()
        null_texts.append(states)
        with torch.no_grad():
            with_empty = ask(latents, step, Texts(states, empty.pooled))
            latents = step.keep * latents + step.add * (with_empty + settings.guidance * (with_caption - with_empty))
    return torch.cat(null_texts)


def steps_of(share: float, count: int) -> int:
    """Return the number of steps that make up the `share` of `count` steps. Halves are rounded up."""
    return int(share * count + 0.5)


def psnr(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the peak signal-to-noise ratio, in dB, of pixels from 0 to 1. Infinite for equal pixels."""
    return float(-10 * (one.double() - other.double()).square().mean().log10())


@dataclass(frozen=True)
class Inverter:
    """Inverts sources and draws from the resulting noise, with networks that a generator lends. Tensors are float32."""

    settings: InversionSettings
    steps: tuple[Step, ...]
    ask: Ask
    read: Callable[[Sequence[str]], Texts]
    """Encodes texts. Each gets as many windows of tokens as the longest text needs."""
    windows: Callable[[str], list[list[int]]]
    """Returns the token ids of a text, cut into windows of equal length."""
    pipe: Any
    device: str

    def invert(self, image: Image.Image, caption: str, on_step: OnStep) -> Inversion:
        """Invert a picture of a size that the model can draw. `on_step` is called at each evaluation of the network.
        Raises UserError if numbers overflow in half precision, or if null texts are requested in half precision.
        """
        import torch

        settings, updates = self.settings, self.settings.null_text_updates
        total, done = len(self.steps) * (settings.evaluations + 1 + (updates + 2 if updates else 0)), 0

        def ask(latents: torch.Tensor, step: Step, texts: Texts, known: dict[Step, Any] | None = None) -> torch.Tensor:
            nonlocal done
            answer = self.ask(latents, step, texts, known)
            done += 1
            on_step(done, total)
            return answer

        clean, text = self.encode(image), self.read([caption])
        if updates and text.states.dtype != torch.float32:
            raise UserError("Null-text optimisation needs full precision: set dtype to float32 in the profile.")
        # Latents change so little within a step that the ControlNet's first output serves all its evaluations, unless
        # the inversion has to be exact.
        outputs: dict[Step, Any] | None = {} if settings.close_enough else None
        trajectory = invert(clean, self.steps, lambda latents, step: ask(latents, step, text, outputs), settings)
        # Kept in half precision, as it is stored, so that a stored inversion draws the same pixels as a fresh one.
        trajectory = trajectory.half().cpu()
        if not trajectory.isfinite().all():
            raise UserError("The inversion's numbers overflow in half precision: set dtype to float32 in the profile.")
        inversion = Inversion(caption, clean.cpu(), trajectory, 0.0)
        path, predict = inversion.path(self.device), guided(ask, text, lambda _step: text, [1.0])
        if updates:
            null_texts = optimise_null_texts(path, self.steps, ask, text, self.read([""]), settings)
            inversion = replace(inversion, null_texts=null_texts.cpu())
            predict = guided(ask, text, self._negatives(inversion, self.read(["", caption]), 1), [settings.guidance])
        *states, redrawn = redraw(path[0], self.steps, predict)
        on_step(total, total)
        inversion = replace(inversion, psnr=psnr(self.pixels(redrawn), self.pixels(clean)))
        if updates or inversion.psnr < CLOSE:
            return inversion
        trajectory = torch.stack([*reversed(states), path[0]]).half().cpu()
        return replace(inversion, trajectory=trajectory, redrawn=redrawn.cpu())

    def redraw(
        self,
        inversion: Inversion,
        prompts: Sequence[str],
        guidance: float | Sequence[float] = 1.0,
        corrected: bool = True,
        control: AttentionControl | None = None,
        on_step: OnStep | None = None,
    ) -> torch.Tensor:
        """Return the latents (n, c, h, w) that are drawn for prompts from the noise of an inversion.

        The null texts of the inversion are the negative prompt. If the inversion has none, the source's caption is
        the negative prompt (negative-prompt inversion). With `corrected`, the source is redrawn in the same batch. Each
        step moves the source back to the stored path, and moves all other rows by the same amount. A prompt equal to
        the caption gets exactly the stored latents. A `control` needs `corrected`. If the `control` does not
        read the source and the inversion has `redrawn` latents, the source is not redrawn. This saves a row.
        """
        import torch

        path, same = inversion.path(self.device), [prompt == inversion.caption for prompt in prompts]
        if corrected and all(same):
            return path[-1].repeat(len(prompts), 1, 1, 1)
        redrawn = None if control is None or control.reads_source else inversion.redrawn
        with_source = corrected and redrawn is None
        rows = [inversion.caption, *prompts] if with_source else list(prompts)
        read = self.read(["", inversion.caption, *rows])
        strengths = [guidance] * len(prompts) if isinstance(guidance, int | float) else list(guidance)
        strengths = [max(strengths)] * with_source + strengths
        predict = guided(self.ask, read[2:], self._negatives(inversion, read[:2], len(rows)), strengths)

        def predict_step(latents: torch.Tensor, step: Step) -> torch.Tensor:
            number = self.steps.index(step)
            if control is not None:
                control.step = number
            answer = predict(latents, step)
            if on_step is not None:
                on_step(number + 1, len(self.steps))
            return answer

        noise, own_path = path[0].expand(len(rows), -1, -1, -1), path if corrected else None
        limited = None if control is None else control.limited
        end = None if redrawn is None else redrawn.to(self.device)
        with nullcontext() if control is None else control.on(self.pipe.unet, noise):
            drawn = redraw(noise, self.steps, predict_step, own_path, limited, end)[-1][with_source:]
        if corrected:
            drawn[torch.tensor(same)] = path[-1]
        return drawn

    def control(
        self,
        inversion: Inversion,
        prompts: Sequence[str],
        settings: EditSettings,
        self_replace: Sequence[float],
        region: Image.Image | None = None,
    ) -> AttentionControl:
        """Return the attention control for `prompts`. `self_replace` (a share per prompt) overrides the setting."""
        import numpy as np
        import torch

        texts = [self.windows(text) for text in (inversion.caption, *prompts)]
        most, empty = max(len(text) for text in texts), self.windows("")
        source, *rows = (text + empty * (most - len(text)) for text in texts)
        end, count, where = self.pipe.tokenizer.eos_token_id, len(self.steps), None
        if region is not None:
            height, width = inversion.clean.shape[-2:]
            where = torch.from_numpy(np.asarray(region.resize((width, height), Image.Resampling.BOX)) / np.float32(255))
        return AttentionControl(
            [aligned(source, row, end) for row in rows],
            steps_of(settings.cross_replace, count),
            [steps_of(share, count) for share in self_replace],
            settings.local_blend,
            where,
            settings.least_change,
        )

    def images(self, latents: torch.Tensor) -> tuple[list[Image.Image], list[bool] | None]:
        """Decode latents. Return the pictures, and the safety checker's flag for each, or None without a checker."""
        pixels, pipe = self.pixels(latents), self.pipe
        images: list[Image.Image] = pipe.image_processor.postprocess(pixels, "pil", [False] * len(pixels))
        if getattr(pipe, "safety_checker", None) is None:
            return images, None
        return images, pipe.run_safety_checker(2 * pixels - 1, self.device, pipe.safety_checker.dtype)[1]

    def encode(self, image: Image.Image) -> torch.Tensor:
        """Return the latents of a picture (1, c, h, w), float32."""
        vae = self.pipe.vae
        pixels = self.pipe.image_processor.preprocess(image).to(self.device, vae.dtype)
        encoded = vae.encode(pixels)
        latents = encoded.latent_dist.mode() if hasattr(encoded, "latent_dist") else encoded.latents
        scaled: torch.Tensor = (latents.float() - (vae.config.get("shift_factor") or 0.0)) * vae.config.scaling_factor
        return scaled

    def pixels(self, latents: torch.Tensor) -> torch.Tensor:
        """Return the pixels of latents (n, 3, height, width), from 0 to 1."""
        vae = self.pipe.vae
        scaled = latents / vae.config.scaling_factor + (vae.config.get("shift_factor") or 0.0)
        decoded: torch.Tensor = vae.decode(scaled.to(self.device, vae.dtype), return_dict=False)[0]
        return (decoded.float() / 2 + 0.5).clamp(0, 1)

    def _negatives(self, inversion: Inversion, read: Texts, rows: int) -> Callable[[Step], Texts]:
        """Return a function that gives the negative texts of a step. `read` has the empty text and the caption."""
        null_texts = inversion.null_texts
        if null_texts is None:
            negatives = read[1:].rows(rows)
            return lambda _step: negatives
        at_times = null_texts.to(self.device)
        empty, by_time = read[:1], dict(zip((step.time for step in self.steps), at_times, strict=True))

        def negatives_at(step: Step) -> Texts:
            states = empty.states.clone()
            states[0, : at_times.shape[1]] = by_time[step.time]
            return Texts(states, empty.pooled).rows(rows)

        return negatives_at


@runtime_checkable
class Inverts(Protocol):
    """An image generator that can be inverted."""

    def inverting(
        self, settings: InversionSettings, control: Control | None = None
    ) -> AbstractContextManager[Inverter]: ...

    def inversion_key(
        self, image: Image.Image, caption: str, settings: InversionSettings, control: Control | None = None
    ) -> str: ...


def inversion_of(
    generator: Inverts,
    image: Image.Image,
    caption: str,
    settings: InversionSettings,
    control: Control,
    store: InversionStore | None,
    on_step: OnStep,
) -> Inversion:
    """Return the inversion of a picture from the store, or make it with `Inverter.invert` and store it."""
    key = "" if store is None else generator.inversion_key(image, caption, settings, control)
    if store is not None and (stored := store.read(key)) is not None:
        return stored_inversion(stored)
    with generator.inverting(settings, control) as inverter:
        inversion = inverter.invert(image, caption, on_step)
    if store is not None:
        store.save(key, inversion.stored())
    return inversion
