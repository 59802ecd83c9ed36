"""Compare the speed of the paper's released code (the reference) and of the studio, with the same embedded models. Also
measure the gain from batches and from reuse.

For every test case, the released code repeats all steps. It calls the captioner. It asks the language model for
keywords, for alternatives and for a new caption, and repeats each request until the reply can be parsed. Then the stock
pipeline of diffusers draws one image. All images share one random generator. The released code checks nothing. Its
method is rewritten here from a description, without any of the released code. The studio's method is `augment`, with
files and checks.

`python -m benchmarks.reference` runs only this benchmark. The two methods are warmed up and then measured in turns.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from PIL import Image

from benchmarks.figures import Comparison, reported
from benchmarks.gpu import operations_of
from core.images import SIDE_MULTIPLE, fit, read_image
from core.lineage import DEFAULT_RECIPE
from core.masks import NamedMask
from core.settings import LanguageSettings, Settings
from core.types import CounterfactualCaption, CounterfactualCaptions, Task, Trace
from pipeline.conditioning import control_image
from pipeline.driver import Driver
from pipeline.methods import drawing as method
from pipeline.methods.controlnet import CONTROLNET
from pipeline.models import load_models
from pipeline.models.weights import loading, locate
from pipeline.profiles.image_sections import ControlNetGenerator
from pipeline.profiles.profile import Profile, load_profile
from pipeline.profiles.text_sections import GgufLanguage
from pipeline.recipes import recipe_of
from pipeline.request import MemoryStore, Request
from pipeline.run_files import run_file
from pipeline.run_files.folder import FolderStore
from pipeline.seams import DrawRequest, LanguageRequest, Models
from pipeline.stages.parsing import Unreadable, read_alternatives, read_caption, read_keywords
from services.runs.samples import Sample, read_samples

CASES = 5
"""Number of test cases of a source image, as in the paper."""
SOURCES = ("bird-on-a-twig", "street-two-cars")
"""Names of the samples, one for each kind of task."""
ROUNDS = 7
BATCH = 8
LEAST, AIM = 1.4, 3.0
"""Minimum rate of test cases relative to the reference, and the goal."""
FULL = 0.95
"""Minimum speed of drawing relative to plain matrix products. From this speed on, all cores count as used."""
MATRIX, PRODUCTS = 1024, 10
"""Side of the multiplied matrices, and number of products. The speed is the same for sides from 200 to 2000."""
CHANGED_AT_ONCE = 3
"""Maximum number of keywords that the reference edits in a caption."""
TRIED = 50
"""Maximum number of requests until a reply is readable. The paper's released code has no limit."""

CHECKS = "checks"
"""Name of the part of the work that the reference does not do."""

V = TypeVar("V")


@dataclass
class Spent:
    """The time spent on test cases."""

    cases: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    """Processor seconds of all processes, including the language model's."""
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of each part of the work, by its name."""
    checks_cpu: float = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Add the seconds and processor seconds of all work in this context."""
        began_cpu, began = cpu_seconds(), time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began
        self.cpu += cpu_seconds() - began_cpu

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the seconds of this context to the part `name` of the work."""
        began_cpu, began = time.process_time(), time.perf_counter()
        yield
        self.parts[name] = self.parts.get(name, 0.0) + time.perf_counter() - began
        if name == CHECKS:
            self.checks_cpu += time.process_time() - began_cpu

    def each(self, checks: bool = True) -> float:
        """Return the seconds per test case, with or without its checks."""
        return (self.seconds - (0.0 if checks else self.parts[CHECKS])) / self.cases

    def each_cpu(self, checks: bool = True) -> float:
        return (self.cpu - (0.0 if checks else self.checks_cpu)) / self.cases


def measure(
    rounds: int = ROUNDS,
    sources: Sequence[str] = SOURCES,
    cases: int = CASES,
    together: int = BATCH,
    models: Models | None = None,
    warm_up: int = 1,
) -> list[Comparison]:
    """Measure and return all comparisons. `models` are loaded models of the profile `demo`, or None to load them.
    Additional `warm_up` rounds come first and do not count.
    """
    profile = load_profile("demo")
    models = models or load_models(profile)
    samples = [sample for sample in read_samples(profile.samples_folder()) if sample.name in sources]
    return [
        *beside_the_reference(profile, models, samples, rounds, cases, warm_up),
        *drawn_together(profile, models, samples[0], rounds, together),
        *edited(profile, models, samples[0], cases),
    ]


# The reference's way


class ReferenceWay:
    """Makes test cases by the reference's method, with loaded models and one random generator for all images."""

    def __init__(self, profile: Profile, seed: int) -> None:
        import torch

        language = profile.language
        assert isinstance(language, GgufLanguage)
        models = load_models(profile.model_copy(update={"language": language.model_copy(update={"hold_form": False})}))
        self._captioner, self._language = models.captioner, models.language
        self._prompts = recipe_of(DEFAULT_RECIPE).prompts(profile.prompts)
        self._pipe = stock_pipeline(profile)
        self._noise, self._chance = torch.Generator("cpu").manual_seed(seed), random.Random(seed)
        self._seeds = count(seed)
        self.calls = 0
        """Number of calls of the language model so far."""

    def test_case(self, path: Path, task: Task, settings: Settings, to: Path, spent: Spent) -> None:
        """Make one test case from the source file `path`, write it to the file `to`, and add the time to `spent`."""
        image = read_image(path).image
        with spent.part("captions"):
            caption, _ = self._captioner.caption(image, task, settings.caption, next(self._seeds))
        with spent.part("replies"):
            new = self._reworded(caption, task, settings)
        with spent.part("drawing"):
            drawing = settings.generation
            control = control_image(fit(image, drawing.short_side, SIDE_MULTIPLE), settings.conditioning)
            generated = self._pipe(
                prompt=CONTROLNET.prompt(self._prompts, CounterfactualCaption(new, ()), task),
                negative_prompt=drawing.negative_prompt,
                image=control,
                width=control.width,
                height=control.height,
                num_inference_steps=drawing.steps,
                guidance_scale=drawing.guidance,
                controlnet_conditioning_scale=drawing.control_strength,
                generator=self._noise,
            ).images[0]
        generated.resize(image.size).save(to)
        spent.cases += 1

    def _reworded(self, caption: str, task: Task, settings: Settings) -> str:
        """Ask the language model for keywords, for alternatives to up to three keywords, and for a new caption."""
        inputs: dict[str, Any] = {"task": task.describe(), "caption": caption}
        found = self._tried("keywords", inputs, settings.keywords, read_keywords)
        chosen = self._chance.sample(found, min(CHANGED_AT_ONCE, len(found)))
        fields = {"keywords": ", ".join(keyword for keyword, _ in chosen), "count": settings.alternatives.per_keyword}
        options = self._tried("alternatives", {**inputs, **fields}, settings.alternatives, read_alternatives)
        edits = "; ".join(f"{keyword} -> {self._chance.choice(texts)}" for keyword, texts in options)
        return self._tried("counterfactuals", {**inputs, "edits": edits}, settings.counterfactuals, read_caption)

    def _tried(
        self, name: str, variables: Mapping[str, Any], settings: LanguageSettings, read: Callable[[str], V]
    ) -> V:
        prompt = self._prompts[name]
        for _ in range(TRIED):
            self.calls += 1
            request = LanguageRequest(prompt.evaluate(**variables), next(self._seeds), prompt.stop)
            reply = self._language.complete(request, settings)
            try:
                return read(reply)
            except Unreadable:
                continue
        raise RuntimeError(f"none of {TRIED} replies to the prompt {prompt.where} could be read")


def stock_pipeline(profile: Profile) -> Any:
    """Return the standard pipeline of diffusers, set up as its documentation says, with a profile's weights."""
    import diffusers
    import torch

    section, same = profile.generator, {"dtype": torch.float32}
    assert isinstance(section, ControlNetGenerator)
    role, net = section.net_of("canny")
    with loading():
        pipe = diffusers.StableDiffusionControlNetPipeline.from_pretrained(
            locate("image generator", section),
            controlnet=diffusers.ControlNetModel.from_pretrained(locate(role, net), **same),
            safety_checker=None,
            requires_safety_checker=False,
            **same,
        )
    pipe.set_progress_bar_config(disable=True)
    return pipe


# The studio's way


def our_way(driver: Driver, sample: Sample, settings: Settings, seed: int, folder: Path, spent: Spent) -> FolderStore:
    """Make all test cases of a source in a folder, like `python -m pipeline augment`."""
    recipe, picture, mask = recipe_of(DEFAULT_RECIPE), read_image(sample.path), None
    if sample.mask is not None and sample.task.kind == "segmentation":
        with Image.open(sample.mask) as file:
            mask = NamedMask(file.copy(), sample.classes)
    run_data = run_file.asked_run(
        recipe,
        sample.task,
        driver.profile,
        seed,
        settings,
        driver.prompts(recipe),
        sample.path.name,
        picture.image,
        picture.notes,
        mask,
    )
    store = FolderStore(folder, run_data, picture.image, mask.image if mask else None)
    check = method.image_checks

    def checked(*arguments: Any, **named: Any) -> Any:
        with spent.part(CHECKS):
            return check(*arguments, **named)

    with mock.patch.object(method, "image_checks", checked):
        driver.run(Request(sample.task, settings, DEFAULT_RECIPE, seed, watched=False), store)
    store.finish(list(store.drawn()))
    for name, value in store.values().items():
        part = "captions" if name == "caption" else "replies"
        spent.parts[part] = spent.parts.get(part, 0.0) + value.trace.seconds
    spent.parts["drawing"] = spent.parts.get("drawing", 0.0) + sum(one.seconds for one in store.drawn())
    spent.cases += store.images
    return store


def settings_of(profile: Profile, cases: int) -> Settings:
    """Return the profile's settings, changed to give `cases` test cases per source."""
    own = profile.settings
    return own.model_copy(
        update={"counterfactuals": own.counterfactuals.model_copy(update={"captions": cases})},
    )


def beside_the_reference(
    profile: Profile, models: Models, samples: Sequence[Sample], rounds: int, cases: int, warm_up: int
) -> list[Comparison]:
    """Measure the studio's rate of test cases relative to the reference's, with and without the studio's checks."""
    driver, settings = Driver(profile, models), settings_of(profile, cases)
    reference = ReferenceWay(profile, 0)
    pairs = list[tuple[Spent, Spent]]()
    calls = list[float]()
    with tempfile.TemporaryDirectory() as place:
        for number in range(warm_up + rounds):
            ours, theirs = Spent(), Spent()
            calls_before = reference.calls
            for sample in samples:
                folder = Path(place) / f"{number}-{sample.name}"
                before = ours.cases
                with ours.measured():
                    our_way(driver, sample, settings, number, folder, ours)
                with theirs.measured():
                    for case in range(ours.cases - before):
                        to = folder / f"reference-{case}.png"
                        reference.test_case(sample.path, sample.task, settings, to, theirs)
            if number >= warm_up:
                pairs.append((ours, theirs))
                calls.append((reference.calls - calls_before) / theirs.cases)
    checks = statistics.median(ours.parts[CHECKS] / ours.seconds for ours, _ in pairs)
    made = sum(ours.cases for ours, _ in pairs)
    words = (
        f"{made} test cases of each way. Ours {_told([ours for ours, _ in pairs])}, of which checks {checks:.0%}; "
        f"the reference's {_told([theirs for _, theirs in pairs])}, {statistics.median(calls):.2f} calls each."
    )
    return [
        Comparison(
            "test cases per second, by those of the reference's way",
            tuple(theirs.each() / ours.each() for ours, theirs in pairs),
            tuple(theirs.each_cpu() / ours.each_cpu() for ours, theirs in pairs),
            least=LEAST,
            aim=AIM,
            words=words,
        ),
        Comparison(
            "the same without our checks, as it has none",
            tuple(theirs.each() / ours.each(checks=False) for ours, theirs in pairs),
            tuple(theirs.each_cpu() / ours.each_cpu(checks=False) for ours, theirs in pairs),
            least=LEAST,
            aim=AIM,
        ),
    ]


def _told(spent: Sequence[Spent]) -> str:
    """Return in words the median milliseconds per test case: total time, CPU time, and time of each part."""
    parts = ", ".join(
        f"{part} {1000 * statistics.median(one.parts[part] / one.cases for one in spent):.0f}"
        for part in spent[0].parts
    )
    each, cpu = (
        statistics.median(values) for values in zip(*((one.each(), one.each_cpu()) for one in spent), strict=True)
    )
    return f"{1000 * each:.0f} ms each ({1000 * cpu:.0f} ms of processors; {parts})"


# Gain of a batch


def drawn_together(profile: Profile, models: Models, sample: Sample, rounds: int, many: int) -> list[Comparison]:
    """Compare drawing `many` images as a batch with drawing them singly, and measure how busy the cores are."""
    import torch

    settings = profile.settings
    image = fit(read_image(sample.path).image, settings.generation.short_side, SIDE_MULTIPLE)
    control = control_image(image, settings.conditioning)
    generator = models.generator
    numbers = count()

    def draw(size: int) -> None:
        requests = [DrawRequest(f"a red bird on a twig, number {next(numbers)}", at, at) for at in range(size)]
        generator.draw(requests, size, [control] * size, settings.generation, lambda _done, _of: None)

    def timed(do: Callable[[], object]) -> tuple[float, float]:
        spent = Spent()
        with spent.measured():
            do()
        return spent.seconds, spent.cpu

    def multiply() -> None:
        for _ in range(PRODUCTS):
            torch.mm(factor, factor, out=out)

    def one_by_one() -> None:
        for _ in range(many):
            draw(1)

    factor = torch.randn(MATRIX, MATRIX)
    out = torch.empty_like(factor)
    draw(1)
    operations = operations_of(lambda: draw(many))
    multiply()
    singles, batches, rates = list[tuple[float, float]](), list[tuple[float, float]](), list[float]()
    for _ in range(rounds):
        rates.append(PRODUCTS * 2 * MATRIX**3 / timed(multiply)[0])
        singles.append(timed(one_by_one))
        batches.append(timed(lambda: draw(many)))
    ratios = tuple(batch[0] / single[0] for batch, single in zip(batches, singles, strict=True))
    of_rate = tuple(operations / batch[0] / rate for batch, rate in zip(batches, rates, strict=True))
    of_rate_alone = statistics.median(operations / one[0] / rate for one, rate in zip(singles, rates, strict=True))
    full, busy = statistics.median(of_rate), statistics.median(cpu / seconds for seconds, cpu in batches)
    together, single, rate = (
        statistics.median(values) for values in ([b for b, _ in batches], [s for s, _ in singles], rates)
    )
    return [
        Comparison(
            f"a batch of {many}, by the time of {many} images one after another",
            ratios,
            tuple(batch[1] / single[1] for batch, single in zip(batches, singles, strict=True)),
            most=0.5,
            because="the cores are full" if full >= FULL else "",
            words=(
                f"{1000 * together:.0f} ms and {1000 * single:.0f} ms for {operations / 1e9:.0f} GFLOP, at {full:.0%} "
                f"and {of_rate_alone:.0%} of the rate of multiplied matrices ({rate / 1e9:.0f} GFLOP/s); together with "
                f"{busy:.2f} of {torch.get_num_threads()} cores busy."
            ),
        )
    ]


# Cost of a second run


def edited(profile: Profile, models: Models, sample: Sample, cases: int) -> list[Comparison]:
    """Edit one caption after a first run. Measure the model calls of a second run, relative to those of the first."""
    driver, settings = Driver(profile, models), settings_of(profile, cases)
    image = read_image(sample.path).image
    store = MemoryStore(image)
    request = Request(sample.task, settings, seed=1, watched=False)

    def run() -> tuple[int, float, int]:
        """Run all stages. Return the number of model calls, the seconds, and the number of images."""
        drawn, before = Spent(), len(store.cases)
        with counting(models) as counted, drawn.measured():
            driver.run(request, store)
        return counted[0], drawn.seconds, len(store.cases) - before

    calls, seconds, images = run()
    stored = store.held["counterfactuals"]
    first, *others = stored.value.items
    new = replace(first, text=first.text.replace(" by day", " at night") + " It is quiet.", used=True)
    value = CounterfactualCaptions((new, *others))
    store.save_value("counterfactuals", replace(stored, value=value, trace=Trace("person")))
    calls_again, seconds_again, images_again = run()
    return [
        Comparison(
            "a second run with one caption edited, in model calls of the first",
            (calls_again / calls,),
            most=1 / calls,
            words=f"{calls_again} of {calls} calls ({images_again} of {images} images); {seconds_again:.2f} s "
            f"after {seconds:.2f} s.",
        )
    ]


@contextmanager
def counting(models: Models) -> Iterator[list[int]]:
    """Count captions, language model replies and drawn images in this context. Yield a list that holds their sum."""
    counted = [0]
    drawing: Any = type(models.generator)  # copies of it draw on each kind of control image

    def counting(call: Callable[..., Any], many: Callable[..., int] = lambda *_arguments: 1) -> Callable[..., Any]:
        def counts(*arguments: Any) -> Any:
            counted[0] += many(*arguments)
            return call(*arguments)

        return counts

    with (
        mock.patch.object(models.captioner, "caption", counting(models.captioner.caption)),
        mock.patch.object(models.language, "complete", counting(models.language.complete)),
        mock.patch.object(drawing, "draw", counting(drawing.draw, lambda _self, requests, *_: len(requests))),
    ):
        yield counted


def cpu_seconds() -> float:
    """Return the processor seconds of this process and its living children."""
    import psutil

    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def main() -> int:
    """Measure, print the table, and return the exit code: 1 if a bound was missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reference", description="Our way and the reference's.")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"each way is taken so often ({ROUNDS})")
    return reported(measure(parser.parse_args().rounds))


if __name__ == "__main__":
    raise SystemExit(main())
