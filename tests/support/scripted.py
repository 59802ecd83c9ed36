"""Stand-ins for the interfaces of `pipeline.seams`, with results that a test sets. They do not cover the real
models, which the tests marked `demo` run, in `tests/pipeline/test_pipeline_demo.py`.
"""

from __future__ import annotations

import hashlib
import random
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.images import image_sha
from core.lineage import DrawnBatch, TestCase
from core.settings import (
    CaptionSettings,
    ConditioningSettings,
    ControlKind,
    EditingSettings,
    GenerationSettings,
    InversionSettings,
    LanguageSettings,
)
from core.types import CounterfactualCaption, Task
from pipeline.seams import (
    CaseRequest,
    Detector,
    DrawnImage,
    DrawRequest,
    Editor,
    Found,
    Generator,
    LanguageRequest,
    Method,
    OnStep,
    P,
    Points,
    Segmenter,
)
from tests.support.serving import until

if TYPE_CHECKING:
    from pipeline.models.inverting import Control, Inversion, Inverter
    from services.jobs import JobQueue
    from services.studio import Studio
    from ui.explore.page import Performed

SUNNY_BIRD = "A red bird in sunny weather by day. The bird sits on a twig. The ground is grassy."


class ScriptedCaptioner:
    """Captioner that always gives the same caption."""

    name = "scripted captioner"

    def __init__(self, text: str = SUNNY_BIRD, prompt: str = "") -> None:
        self.text, self.prompt, self.calls = text, prompt, 0

    def caption(self, image: Image.Image, task: Task, settings: CaptionSettings, seed: int) -> tuple[str, str]:
        self.calls += 1
        return self.text, self.prompt


class ScriptedLanguageModel:
    """Language model that gives its replies one after another, and repeats the last one. It records prompts and
    seeds.
    """

    name = "scripted language model"

    def __init__(self, *replies: str | Callable[[str], str]) -> None:
        self.replies = list(replies)
        self.prompts: list[str] = []
        self.seeds: list[int] = []

    def complete(self, request: LanguageRequest, settings: LanguageSettings) -> str:
        self.prompts.append(request.prompt)
        self.seeds.append(request.seed)
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        return reply if isinstance(reply, str) else reply(request.prompt)


class ScriptedBatches(ScriptedLanguageModel):
    """`ScriptedLanguageModel` for batches. It records the seeds of each batch."""

    def __init__(self, *replies: str | Callable[[str], str]) -> None:
        super().__init__(*replies)
        self.batches: list[list[int]] = []

    def complete_many(
        self, requests: Sequence[LanguageRequest], settings: LanguageSettings, on_reply: Callable[[int], None]
    ) -> Sequence[str | UserError]:
        self.batches.append([one.seed for one in requests])
        replies = list[str | UserError]()
        for one in requests:
            try:
                replies.append(self.complete(one, settings))
            except UserError as error:
                replies.append(error)
            on_reply(len(replies))
        return replies


class ScriptedEmbedder:
    """Embedder that places everything at the same point."""

    name = "scripted embedder"

    def image(self, image: Image.Image) -> Sequence[float]:
        return (1.0, 0.0)

    def text(self, text: str) -> Sequence[float]:
        return (1.0, 0.0)


class ScriptedSentences:
    """Sentence model without similar texts, except for the pairs that a test names."""

    name = "scripted sentences"

    def __init__(self, *alike: tuple[str, str]) -> None:
        self.alike, self.calls = alike, 0

    def vectors(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.calls += 1
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> Sequence[float]:
        for pair in self.alike:
            if any(text.endswith(f" {word}") for word in pair):
                text = pair[0]
        draws = random.Random(text)
        vector = [draws.gauss(0, 1) for _ in range(64)]
        length = sum(x * x for x in vector) ** 0.5
        return [x / length for x in vector]


class OneByOne(ABC):
    """Base of generators that draw the images of a batch one after another."""

    def batch(self, size: tuple[int, int], watched: bool = True) -> int:
        return 1

    def reading_length(self, prompt: str) -> int:
        return 1

    def draw(
        self,
        requests: Sequence[DrawRequest],
        size: int,
        pictures: Sequence[Image.Image],
        settings: GenerationSettings,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        return [
            DrawnImage(
                self.generate(one.prompt, picture, settings, one.seed, on_step), DrawnBatch(size=size, place=one.place)
            )
            for one, picture in zip(requests, pictures, strict=True)
        ]

    @abstractmethod
    def generate(
        self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
    ) -> Image.Image:
        """Draw one image."""


class NoiseGenerator(OneByOne):
    """Generator of noise that depends on prompt and seed, with the requested number of steps."""

    name = "noise generator"

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []
        self.kinds: list[ControlKind] = []

    def on(self, kind: ControlKind) -> NoiseGenerator:
        self.kinds.append(kind)
        return self

    def preview(self) -> Image.Image | None:
        return Image.new("RGB", (16, 16), (90, 120, 150))

    def generate(
        self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
    ) -> Image.Image:
        for step in range(settings.steps):
            on_step(step + 1, settings.steps)
        self.made.append((prompt, seed))
        return noise(prompt, seed, control.size)

    @contextmanager
    def inverting(self, settings: InversionSettings, control: Control | None = None) -> Iterator[Inverter]:
        """Invert every source to the same noise, on which later images do not depend."""
        import torch

        from pipeline.models.inverting import Inversion

        def invert(image: Image.Image, caption: str, on_step: OnStep) -> Inversion:
            for step in range(settings.steps):
                on_step(step + 1, settings.steps)
            latents = torch.zeros(1, 4, 4, 4)
            return Inversion(caption, latents, latents.half()[None], 50.0)

        yield cast("Inverter", SimpleNamespace(invert=invert))

    def inversion_key(
        self, image: Image.Image, caption: str, settings: InversionSettings, control: Control | None = None
    ) -> str:
        facts = (image_sha(image), caption, settings, control and image_sha(control.image))
        return hashlib.sha256(repr(facts).encode()).hexdigest()


def noise(prompt: str, seed: int, size: tuple[int, int]) -> Image.Image:
    """Return noise that depends only on prompt, seed and size."""
    return Image.frombytes("RGB", size, random.Random(f"{prompt} {seed}").randbytes(size[0] * size[1] * 3))


class NoiseEditor:
    """Editor that returns the same noise as the generator."""

    name = "noise editor"

    def preview(self) -> Image.Image | None:
        return None

    def batch(self, size: tuple[int, int]) -> int:
        return 2

    def draw(
        self,
        requests: Sequence[DrawRequest],
        size: int,
        pictures: Sequence[Image.Image],
        settings: EditingSettings,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        for step in range(settings.steps):
            on_step(step + 1, settings.steps)
        return [
            DrawnImage(noise(one.prompt, one.seed, picture.size), DrawnBatch(size=size, place=one.place))
            for one, picture in zip(requests, pictures, strict=True)
        ]


class NoiseBatches(NoiseGenerator):
    """`NoiseGenerator` for batches that records the prompts and seeds of each batch. It refuses the seeds in
    `refused`.
    """

    def __init__(self, at_once: int, *refused: int) -> None:
        super().__init__()
        self.at_once, self.refused = at_once, refused
        self.batches: list[tuple[int, list[tuple[int, int]]]] = []

    def batch(self, size: tuple[int, int], watched: bool = True) -> int:
        return self.at_once

    def reading_length(self, prompt: str) -> int:
        return 1 + len(prompt) // 200

    def draw(
        self,
        requests: Sequence[DrawRequest],
        size: int,
        pictures: Sequence[Image.Image],
        settings: GenerationSettings,
        on_step: OnStep,
    ) -> Sequence[DrawnImage]:
        assert len({picture.size for picture in pictures}) == 1
        for step in range(settings.steps):
            on_step(step + 1, settings.steps)
        self.batches.append((size, [(one.place, one.seed) for one in requests]))
        return [self._drawn(one, size, pictures[0], settings) for one in requests]

    def _drawn(self, one: DrawRequest, size: int, control: Image.Image, settings: GenerationSettings) -> DrawnImage:
        batch = DrawnBatch(size=size, place=one.place)
        if one.seed in self.refused:
            return DrawnImage(None, batch, False, UserError("The safety checker refused this image."))
        image = self.generate(one.prompt, control, settings, one.seed, lambda _done, _total: None)
        return DrawnImage(image, batch, True)


class Refusing(NoiseGenerator):
    """Generator that draws all images except the second one, which raises when it is first requested."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error, self.refused = error, list[tuple[str, int]]()

    def generate(
        self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
    ) -> Image.Image:
        if len(self.made) == 1 and not self.refused:
            self.refused.append((prompt, seed))
            raise self.error
        return super().generate(prompt, control, settings, seed, on_step)


class HeldGenerator(NoiseGenerator):
    """Generator that stops each image at its second step until the test lets it go. It can be cancelled there."""

    def __init__(self) -> None:
        super().__init__()
        self._let = threading.Semaphore(0)
        self._all = threading.Event()

    def let_go(self, images: int = 1) -> None:
        """Let `images` images be finished."""
        self._let.release(images)

    def let_all(self) -> None:
        """Let all images be finished."""
        self._all.set()
        self._let.release()

    def generate(
        self, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
    ) -> Image.Image:
        def held(done: int, total: int) -> None:
            on_step(done, total)
            # As slow as real steps: each may give a preview, and only the latest are kept.
            while done == 2 and not self._all.is_set() and not self._let.acquire(timeout=0.25):
                on_step(done, total)

        return super().generate(prompt, control, settings, seed, held)


def one_image(
    generator: Generator, prompt: str, control: Image.Image, settings: GenerationSettings, seed: int, on_step: OnStep
) -> Image.Image:
    """Draw one image. Raises the generator's refusal."""
    (drawn,) = generator.draw([DrawRequest(prompt, seed, 0)], 1, [control], settings, on_step)
    if drawn.image is None:
        raise drawn.refused or UserError("There is no image.")
    return drawn.image


def one_case(
    method: Method[P], prepared: P, counterfactual: CounterfactualCaption, seed: int, on_step: OnStep = lambda *_: None
) -> TestCase:
    """Draw one test case."""
    (finish,) = method.make([prepared], [CaseRequest(counterfactual, seed, 0)], 1, on_step)
    return finish()


class InvertingDetector:
    """Detector that returns the negative of the picture, a little smaller."""

    name = "inverting detector"

    def draw(self, image: Image.Image, settings: ConditioningSettings) -> Image.Image:
        return image.resize((image.width // 2, image.height // 2)).point(lambda value: 255 - value)


class ScriptedSegmenter:
    """Segmenter that finds every word in the middle quarter of the picture. It knows no unicorn and never finds a
    ghost.
    """

    name = "scripted/segmenter"

    def find(self, image: Image.Image, phrase: str) -> list[Found]:
        if phrase == "unicorn":
            raise UserError("The segmenter does not know “unicorn”. It knows: bird, car.")
        return [] if phrase == "ghost" else [Found(self._middle(image), 0.9)]

    def at(self, image: Image.Image, points: Points) -> NDArray[np.bool_]:
        return self._middle(image)

    def _middle(self, image: Image.Image) -> NDArray[np.bool_]:
        width, height = image.size
        mask = np.zeros((height, width), bool)
        mask[height // 4 : height * 3 // 4, width // 4 : width * 3 // 4] = True
        return mask


class ScriptedModels:
    """Stand-ins for all models of a profile."""

    fit_together = True

    def __init__(self, language: ScriptedLanguageModel | None = None, caption: str = SUNNY_BIRD) -> None:
        self.captioner = ScriptedCaptioner(caption)
        self.language = language or ScriptedLanguageModel(answer)
        self.generator = NoiseGenerator()
        self.editor: Editor = NoiseEditor()
        self.segmenter: Segmenter = ScriptedSegmenter()
        self.judge = ScriptedLanguageModel('{"reason": "It is as asked for.", "answer": "yes"}')
        self.embedder = ScriptedEmbedder()
        self.sentences = ScriptedSentences(("crimson", "red"))

    def check(self) -> None:
        """Find no model missing."""

    def generator_name(self, kind: ControlKind) -> str:
        return self.generator.name

    def runs(self, role: str) -> str:
        return ""

    def editor_name(self) -> str:
        return self.editor.name

    def segmenter_name(self) -> str:
        return self.segmenter.name

    def detector(self, kind: ControlKind) -> InvertingDetector:
        return InvertingDetector()


def models_of(model: object, embedder: object = None, detector: Callable[[ControlKind], Detector] | None = None) -> Any:
    """Return models for a method: `model` draws, as generator and as editor. A model that is not needed is None."""
    return SimpleNamespace(generator=model, editor=model, embedder=embedder, detector=detector)


PERTURBED = {
    "attribute": ("red", "blue"),
    "background": ("grassy", "sandy"),
    "weather": ("sunny", "snowy"),
    "time of day": ("by day", "at night"),
}
"""Edit of `SUNNY_BIRD` by type, for the types that it has an edit of."""


def answer(prompt: str) -> str:
    """Reply sensibly about `SUNNY_BIRD` to the prompts of any shipped set."""
    caption = re.findall(r"Caption: (.*)", prompt)[-1]
    if edit_type := re.findall(r"\nType: (.*)", prompt):
        old, new = PERTURBED.get(edit_type[-1], ("", ""))
        return f"{old} -> {new} | {caption.replace(old, new)}" if old and old in caption else "none"
    if edits := re.findall(r"(?:Edits|Transformations): (.*)", prompt):
        for edit in edits[-1].split("; "):
            old, new = edit.split(" -> ")
            caption = caption.replace(old, new)
        return caption
    if prompt.rstrip().endswith("Changes:"):
        offered = re.findall(r"Alternatives: (.*)", prompt)[-1].split("; ")
        first = [one.partition(",")[0].replace(": ", " -> ") for one in offered]
        return "\n".join([first[-1], "; ".join(first[:2])])
    if "Keywords:" in prompt.rsplit("Caption:", 1)[-1]:
        words = re.findall(r"Keywords: (.*)", prompt)[-1].split(", ")
        options = {"red": "blue, green, white", "sunny": "snowy, rainy, foggy", "by day": "at night, at sunset"}
        return "\n".join(f"{word}: {options.get(word, 'sandy')}" for word in words)
    return "red | attribute\nsunny | weather\nby day | time of day\ngrassy | background"


@contextmanager
def studio_in(folder: Path, profile: str = "demo") -> Iterator[Studio]:
    """Open a studio with stand-ins for its models, on a workspace in `folder`."""
    from demo import data_set
    from pipeline.profiles.profile import load_profile
    from services.studio import Studio
    from tests.support.workspaces import workspace_in

    with workspace_in(folder / "workspace") as workspace:
        made = Studio(load_profile(profile), ScriptedModels(), workspace, scenes=data_set)
        yield made
        made.close()


def perform(studio: Studio, run_id: str, name: str, *, tab: Any = "", state: Any = 0, **fields: Any) -> Performed:
    """Perform an action on the explore page of a run ("" for the start page). `name` is the command, `fields` its
    fields, `tab` the page, and `state` the version of the run that its user saw.
    """
    from ui.explore.page import Action, Explorer

    action = Action(name=name, fields=fields, state=state)
    return Explorer(studio).perform(run_id, action, tab)


def performed(studio: Studio, run_id: str, name: str, **fields: Any) -> Performed:
    """Perform an action and finish all its work. Return the result."""
    outcome = perform(studio, run_id, name, **fields)
    over(studio.jobs)
    return outcome


def do(studio: Studio, run_id: str, name: str, **fields: Any) -> str:
    """Perform an action, and finish all its work. Return the refusal, "" if there was none."""
    return performed(studio, run_id, name, **fields).problem


def over(jobs: JobQueue) -> None:
    """Wait until no work runs or waits."""
    until(lambda: not jobs.active())


def parts_of(studio: Studio, run_id: str, picked: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the markup of all parts of a run's explore page. On the start page, `picked` selects the parts."""
    from ui.explore.page import Explorer, render
    from ui.explore.strip import View

    return render(Explorer(studio).read(run_id, View(), picked=picked))
