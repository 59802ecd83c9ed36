"""`python -m benchmarks.gpu` measures how fast the real models would be on this GPU, without downloading them.

The product's own classes run models of the published sizes with random weights. These models take as long as trained
models to draw an image or to write a caption or reply. Each time is shown with the shortest possible time on the GPU.
`--tiny` runs tiny models, also on a CPU. The times of tiny models say nothing about a machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from PIL import Image

from benchmarks.random_weights import filled_in_place, save_blip2, save_llama, save_stable_diffusion
from core.errors import UserError, out_of_memory
from core.lineage import DEFAULT_RECIPE
from core.model_sections import in_bytes
from core.settings import CaptionSettings, ConditioningSettings, GenerationSettings, LanguageSettings
from core.types import Task
from pipeline.conditioning import condition
from pipeline.models.compiling import CACHE
from pipeline.models.model_memory import WORK, free_memory, give_back_memory
from pipeline.models.weights import loading, pick_device, pick_dtype
from pipeline.profiles.image_sections import ControlNetGenerator
from pipeline.profiles.profile import load_profile
from pipeline.profiles.text_sections import Blip2Captioner, ChatLanguage
from pipeline.recipes import recipe_of
from pipeline.seams import DrawRequest, LanguageRequest

NO_GPU = (
    "There is no GPU here that torch can use, so there is nothing to measure: --tiny tries it at tiny size on the CPU."
)
PAPER = "The paper counts 2.76 s a test case on an A10G, all stages together (96 GPU hours for 125,000)."
FLOOR = (
    "The floor: the counted operations at the rate of the first line, or the bytes of weights that each word reads at "
    "the rate of its copies, whichever takes longer."
)
COMPILED = (
    "Images are drawn as the studio does it, and with compiled blocks (generator.compile); nothing else is compiled."
)
STEPS, GUIDANCE = 8, 7.5
BATCHES = (1, 2, 4, 8, 16, 32, 64)
NO_GAIN = 1.02
"""Minimum gain in images per second by a larger batch, as a factor. After two batches with less, the search ends."""
ANSWER = 12
"""Number of tokens in each reply of the captioner."""
REPLIES = (("keywords", 80, 1), ("alternatives", 160, 1), ("counterfactuals", 80, 5))
"""Language stages: name, tokens of a reply, and number of replies. The paper writes five new captions per image."""
CAPTION = (
    "A photo of a small red bird on a twig. The main objects are a bird and a twig with green leaves. "
    "In the background there is a blurred meadow. The weather is sunny. The time of day is morning."
)
FILLED = {
    "task": "image classification with the label bird",
    "caption": CAPTION,
    "keywords": "red, twig, green, blurred meadow, sunny, morning",
    "edits": "red -> yellow; sunny -> snowy; morning -> evening",
    "count": "3",
}
"""Values for the variables in the prompts of the language stages."""
BIRD = Task("classification", label="bird")


@dataclass(frozen=True)
class Machine:
    """Speed limits of a device, as measured."""

    name: str
    operations: float
    """Operations per second in matrix products."""
    copied: float
    """Bytes per second that a copy reads and writes."""


@dataclass(frozen=True)
class Speed:
    """Measured time and memory of one kind of work, such as drawing a batch of images."""

    what: str
    where: str
    """Device and number format, such as half precision."""
    made: int
    """Number of results, such as images, per repetition."""
    seconds: tuple[float, ...]
    """Seconds of each repetition."""
    operations: float
    """Number of operations of each repetition."""
    read: float
    """Bytes of weights that each repetition has to read."""
    memory: int
    """Peak memory in bytes."""

    @property
    def each(self) -> float:
        """Median seconds for one result."""
        return statistics.median(self.seconds) / self.made

    def floor(self, machine: Machine) -> float:
        """Return the least seconds per result: the time for operations or for reading weights, whichever is longer."""
        return max(self.operations / machine.operations, self.read / machine.copied) / self.made


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all models and print a table. Return the exit code: 2 without a GPU."""
    import torch

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description="How fast the real models would be on this GPU. Fetches nothing."
    )
    parser.add_argument("--tiny", action="store_true", help="tiny models, on the CPU too, in seconds: to try it")
    parser.add_argument("--times", type=int, default=5, help="each thing is timed so often, after a warm-up (5)")
    tiny = (options := parser.parse_args(arguments)).tiny
    if options.times < 3:
        parser.error("--times is 3 or more: one time says nothing")
    device = pick_device()
    if device == "cpu" and not tiny:
        print(NO_GPU, file=sys.stderr)
        return 2
    machine = measured_machine(device, tiny)
    half = pick_dtype("auto", device)
    print(
        f"{machine.name}, torch {torch.__version__}: at best {machine.operations / 1e12:.3g} TFLOP/s (matrices of "
        f"{_short(half)} multiplied) and {in_bytes(machine.copied)}/s (copied within its memory).\n"
        f"{'Tiny models: these figures say nothing of real ones. ' if tiny else ''}{COMPILED}\n"
    )
    print(
        "| what | each: median (fastest to slowest) | a second | times | most memory | counted | floor | of the floor |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    left_out = list[str]()
    with tempfile.TemporaryDirectory() as place:
        parts = (
            ("images", images),
            ("compiled images", compiled_images),
            ("captions", captions),
            ("replies", replies),
        )
        for name, part in parts:
            try:
                for speed in part(Path(place), device, tiny, options.times):
                    print(line(speed, machine), flush=True)
            except (UserError, RuntimeError) as error:  # a model that does not fit must not stop the others
                if not (isinstance(error, UserError) or out_of_memory(error)):
                    raise
                reason = str(error) if isinstance(error, UserError) else "The memory does not hold them."
                left_out.append(f"No {name}: {reason}")
            give_back_memory()
    print("", *left_out, FLOOR, PAPER, sep="\n")
    return 0


def line(speed: Speed, machine: Machine) -> str:
    """Return the row of the table for one measured speed."""
    spread = " to ".join(_seconds(ends(speed.seconds) / speed.made) for ends in (min, max))
    floor = speed.floor(machine)
    return (
        f"| {speed.what}; {speed.where} | {_seconds(speed.each)} ({spread}) | {1 / speed.each:.3g} "
        f"| {len(speed.seconds)} | {in_bytes(speed.memory)} | {speed.operations / speed.made / 1e12:.3g} TFLOP "
        f"| {_seconds(floor)} | {speed.each / floor:.1f} × |"
    )


def compiled_images(folder: Path, device: str, tiny: bool, times: int) -> Iterator[Speed]:
    """Yield the speeds of drawing with compiled blocks. A cache folder named in the environment is reused."""
    with patch.dict(os.environ, {CACHE: os.environ.get(CACHE) or str(folder / "compiled")}):
        yield from images(folder, device, tiny, times, compiled=True)


def images(folder: Path, device: str, tiny: bool, times: int, compiled: bool = False) -> Iterator[Speed]:
    """Yield the speeds of Stable Diffusion 1.5 with a ControlNet: for one image, and for the fastest batch."""
    import torch

    from pipeline.models.generator import StableDiffusion

    with loading():
        base, net = save_stable_diffusion(folder, tiny)
    section = ControlNetGenerator.model_validate(
        {
            "kind": "stable-diffusion-controlnet",
            "path": str(base),
            "variant": "fp16",
            "controlnets": {"canny": {"path": str(net), "variant": "fp16"}},
            "scheduler": load_profile("paper").generator.scheduler,
            "compile": compiled,
        }
    )
    generator = StableDiffusion(section)
    side = 128 if tiny else 512
    first = 0.0
    control = condition(_picture(side), ConditioningSettings())
    drawn, all_steps = 0, 2 if tiny else STEPS

    def draw(batch: int, steps: int = all_steps) -> int:
        """Draw a batch of images with different texts. Return its size, which is smaller if memory was too small."""
        nonlocal drawn, first
        requests = [DrawRequest(f"a red bird on a twig, number {drawn + at}", drawn + at, at) for at in range(batch)]
        drawn += batch
        settings = GenerationSettings(steps=steps, guidance=GUIDANCE, short_side=side)
        found = generator.draw(requests, batch, [control] * batch, settings, lambda _done, _of: None)[0]
        if compiled and not found.batch.compiled:
            raise UserError(generator.placing.rpartition("; ")[2])
        first = first or found.compiling
        return found.batch.size

    best: list[Speed] = []
    for batch in BATCHES[:2] if tiny else BATCHES:
        at_once = list[int]()

        def draw_all(batch: int = batch, at_once: list[int] = at_once) -> None:
            at_once.append(draw(batch))

        with _most_memory() as most:
            draw_all()
            seconds = timed(draw_all, times) if at_once == [batch] else ()
        if min(at_once) < batch:  # this batch size does not fit
            break
        with torch.compiler.set_stance("force_eager"):  # compiled code does not count operations
            operations = counted(partial(draw, batch), all_steps)
        what = f"an image of {side} pixels in {all_steps} steps with guidance, batch {batch}"
        where = generator.placing.partition(":")[0]
        where += f", compiled (the first image {_seconds(first)} more)" if compiled else ""
        best.append(Speed(what, where, batch, seconds, operations, 0, most()))
        if batch == 1:
            yield best[0]
        if len(best) > 2 and min(one.each for one in best[:-2]) < NO_GAIN * min(one.each for one in best[-2:]):
            break
    if (fastest := min(best, key=lambda one: one.each)).made > 1:
        yield fastest


def captions(folder: Path, device: str, tiny: bool, times: int) -> Iterator[Speed]:
    """Yield the speed of BLIP-2 with the questions and the number of beams of the profile `paper`."""
    from transformers import Blip2ForConditionalGeneration

    from pipeline.models.captioner import Blip2

    paper = load_profile("paper")
    settings = paper.captioner
    assert isinstance(settings, Blip2Captioner)
    _require_room("BLIP-2 6.7B", settings.memory_half, device, tiny)
    section = Blip2Captioner(kind="blip-2", path=str(save_blip2(folder / "blip-2", tiny)), questions=settings.questions)
    with filled_in_place(Blip2ForConditionalGeneration, Blip2ForConditionalGeneration, device):
        captioner = Blip2(section)
    picture = _picture(512)
    beams, questions = paper.settings.caption.beams, len(settings.questions)

    def caption(tokens: int = ANSWER) -> None:
        captioner.caption(picture, BIRD, CaptionSettings(max_new_tokens=tokens, beams=beams), 0)

    with _most_memory() as most:
        caption()
        seconds = timed(caption, times)
    # The settings allow no fewer than eight tokens.
    eight, nine = operations_of(lambda: caption(8)), operations_of(lambda: caption(9))
    operations = eight + (ANSWER - 8) * (nine - eight)
    language = _bytes_of(captioner._model.language_model)
    what = f"a caption: {questions} questions, {ANSWER} tokens each, {beams} beams, batch 1"
    yield Speed(
        what, f"{device}, {_short(captioner._dtype)}", 1, seconds, operations, questions * ANSWER * language, most()
    )


def replies(folder: Path, device: str, tiny: bool, times: int) -> Iterator[Speed]:
    """Yield the speed of the language stages for an image, with the `paper` prompts and replies of fixed length."""
    from transformers import AutoModelForCausalLM, LlamaForCausalLM

    from pipeline.models.language_chat import ChatLanguageModel

    _require_room("A language model in the shape of Llama-2 13B", 26_100_000_000, device, tiny)
    path = str(save_llama(folder / "llama", tiny))
    section = ChatLanguage(kind="transformers", path=path, dtype="auto", hold_form=False)
    with filled_in_place(AutoModelForCausalLM, LlamaForCausalLM, device):
        chat = ChatLanguageModel(section)
    prompts = recipe_of(DEFAULT_RECIPE).prompts("paper")
    written = {name: prompts[name].evaluate(**FILLED) for name, _, _ in REPLIES}
    stages = [(name, tokens // 10 if tiny else tokens, many) for name, tokens, many in REPLIES]

    def reply(name: str, tokens: int) -> None:
        chat.complete(LanguageRequest(written[name], 0), LanguageSettings(max_new_tokens=tokens))

    def image() -> None:
        for name, tokens, many in stages:
            for _ in range(many):
                reply(name, tokens)

    with _most_memory() as most:
        image()
        seconds = timed(image, times)
    operations = 0.0
    for name, tokens, many in stages:
        eight, nine = operations_of(partial(reply, name, 8)), operations_of(partial(reply, name, 9))
        operations += many * (eight + (tokens - 8) * (nine - eight))
    out = sum(tokens * many for _, tokens, many in stages)
    tokens_read = sum(len(chat._encode(chat.chat(written[name]))) * many for name, _, many in stages)
    calls = sum(many for _, _, many in stages)
    what = f"the language stages of an image: {calls} calls, {tokens_read} tokens read and {out} written, batch 1"
    yield Speed(
        what, f"{device}, {_short(chat._model.dtype)}", 1, seconds, operations, out * _bytes_of(chat._model), most()
    )


# Measurement


def timed(do: Callable[[], object], times: int) -> tuple[float, ...]:
    """Return the seconds of each of `times` calls, including the GPU's work. The caller does the warm-up."""
    taken = []
    for _ in range(times):
        _finish()
        began = time.perf_counter()
        do()
        _finish()
        taken.append(time.perf_counter() - began)
    return tuple(taken)


def operations_of(do: Callable[[], object]) -> float:
    """Count the multiplications and additions that a call performs for matrix products, convolutions and attention."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        do()
    return float(counter.get_total_flops())


def counted(do: Callable[[int], object], steps: int) -> float:
    """Return the operations of a call with `steps` steps, computed from calls with one and with two steps."""
    one, two = operations_of(lambda: do(1)), operations_of(lambda: do(2))
    return one + (steps - 1) * (two - one)


def measured_machine(device: str, tiny: bool) -> Machine:
    """Measure how fast the device multiplies matrices of the models' number format, and how fast it copies bytes."""
    import torch

    dtype = pick_dtype("auto", device)
    side, size = (256, 1 << 22) if tiny else (8192, 1 << 30)
    factor = torch.randn(side, side, device=device).to(dtype)
    out = torch.empty_like(factor)
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def multiply() -> None:
        for _ in range(10):
            torch.mm(factor, factor, out=out)

    def copy() -> None:
        for _ in range(10):
            target.copy_(source)

    multiply()
    copy()
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return Machine(
        name,
        10 * 2 * side**3 / statistics.median(timed(multiply, 7)),
        10 * 2 * size / statistics.median(timed(copy, 7)),
    )


def _require_room(model: str, needed: int, device: str, tiny: bool) -> None:
    """Raise UserError if the GPU cannot hold a model."""
    free = free_memory(device)
    if not tiny and needed + WORK > free:
        raise UserError(
            f"{model} is not measured: it needs {in_bytes(needed + WORK)} on the GPU, but {in_bytes(free)} are free."
        )


@contextmanager
def _most_memory() -> Iterator[Callable[[], int]]:
    """Yield a function. Call this function after the `with` block. It returns the block's peak memory in bytes."""
    from pipeline.models.machine import memory_in_use

    memory_in_use(reset=True)
    most = 0
    yield lambda: most
    process, gpu = memory_in_use()
    most = gpu or process


def _finish() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _picture(side: int) -> Image.Image:
    """Return a picture with fine and coarse structures."""
    return Image.effect_mandelbrot((side, side), (-2, -1.5, 1, 1.5), 90).convert("RGB")


def _bytes_of(model: Any) -> int:
    return sum(weights.numel() * weights.element_size() for weights in model.parameters())


def _short(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _seconds(value: float) -> str:
    return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"


if __name__ == "__main__":
    raise SystemExit(main())
