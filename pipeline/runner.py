"""Drives the stages with the models of a profile: one by one for the page, all of them for the command line.

Takes and gives plain values, reports progress, stops when asked to and goes on from what is there already. Knows
neither the page nor the database.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from PIL import Image

from pipeline.conditioning import NamedMask
from pipeline.freshness import Maker, changed_inputs, image_sha, with_maker
from pipeline.methods import ControlNetMethod, drawn_alike
from pipeline.profile import Profile
from pipeline.progress import OnProgress, Progress, stop_if
from pipeline.prompting import PromptSet, load_prompts
from pipeline.seams import Captioner, Detector, Embedder, Generator, LanguageModel, Method, Sentences
from pipeline.settings import ControlKind, Settings
from pipeline.speed import Speeds, effort_of
from pipeline.stages import alternatives, caption, counterfactuals, generation, keywords
from pipeline.types import (
    Alternatives,
    Caption,
    CounterfactualCaption,
    CounterfactualCaptions,
    Keyword,
    Keywords,
    StageName,
    StageValue,
    T,
    Task,
    TestCase,
    TextValue,
    Trace,
)

__all__ = ["Made", "Progress", "Runner"]

TEXT_STAGES: tuple[StageName, ...] = ("caption", "keywords", "alternatives", "counterfactuals")
LANGUAGE_STAGES = TEXT_STAGES[1:]
"""Those that ask the language model."""


class ModelBox(Protocol):
    """The models of a profile, each loaded when it is first asked for."""

    @property
    def captioner(self) -> Captioner: ...
    @property
    def language(self) -> LanguageModel: ...
    @property
    def generator(self) -> Generator: ...
    @property
    def embedder(self) -> Embedder: ...
    @property
    def sentences(self) -> Sentences: ...
    def detector(self, kind: ControlKind) -> Detector: ...


@dataclass(frozen=True)
class Made:
    """One thing that `Runner.augment` gives."""

    stage: StageName
    value: StageValue[Any] | TestCase
    """A `TestCase` for the stage "generation", else a `StageValue`."""
    reused: bool
    """It was there before and is still fresh."""


class Runner:
    """The stages of one profile. Each method loads the model that it needs at its first use.

    `settings` is those of the profile where none are given. Every method raises what its stage raises.
    """

    def __init__(self, profile: Profile, models: ModelBox, prompts: PromptSet | None = None) -> None:
        self.profile, self.models = profile, models
        self.prompts = prompts or load_prompts(profile.prompts)
        self.speeds = Speeds()
        """As measured at the images that were made."""

    def caption(
        self, image: Image.Image, task: Task, settings: Settings | None = None, seed: int = 0, unlike: str = ""
    ) -> StageValue[Caption]:
        """Stage 1; `unlike` is what was said before and is not wanted again."""
        own = (settings or self.profile.settings).caption
        return self._marked("caption", caption.run(image, task, self.models.captioner, own, seed, unlike), self.prompts)

    def keywords(
        self,
        source: Caption,
        task: Task,
        settings: Settings | None = None,
        seed: int = 0,
        prompts: PromptSet | None = None,
    ) -> StageValue[Keywords]:
        """Stage 2."""
        own, told = (settings or self.profile.settings).keywords, prompts or self.prompts
        return self._marked("keywords", keywords.run(source, task, self.models.language, told, own, seed), told)

    def alternatives(
        self,
        source: Caption,
        chosen: Keywords,
        task: Task,
        settings: Settings | None = None,
        seed: int = 0,
        prompts: PromptSet | None = None,
    ) -> StageValue[Alternatives]:
        """Stage 3."""
        own, told = (settings or self.profile.settings).alternatives, prompts or self.prompts
        made = alternatives.run(source, chosen, task, self.models.language, told, own, seed, self.models.sentences)
        return self._marked("alternatives", made, told)

    def more_alternatives(
        self,
        source: Caption,
        value: Alternatives,
        keyword: Keyword,
        task: Task,
        settings: Settings | None = None,
        seed: int = 0,
        prompts: PromptSet | None = None,
    ) -> tuple[Alternatives, Trace]:
        """Stage 3 again for one keyword: `value` with further alternatives, and how they came about."""
        own, told = (settings or self.profile.settings).alternatives, prompts or self.prompts
        model = self.models.language
        return alternatives.more(source, value, keyword, task, model, told, own, seed, self.models.sentences)

    def makers(self, prompts: PromptSet | None = None) -> dict[StageName, Maker]:
        """Who would make the values of the text stages now. Loads nothing."""
        told, model = prompts or self.prompts, self.profile.language
        title = f"{model.title}/{model.file}" if model.file else model.title
        return {
            "caption": Maker(self.profile.captioner.title),
            "keywords": Maker(title, told.keywords.template),
            "alternatives": Maker(title, told.alternatives.template),
            "counterfactuals": Maker(title, told.counterfactuals.template),
        }

    def _marked(self, stage: StageName, value: StageValue[T], prompts: PromptSet) -> StageValue[T]:
        return replace(value, inputs_key=with_maker(value.inputs_key, self.makers(prompts)[stage]))

    def counterfactuals(
        self,
        source: Caption,
        chosen: Alternatives,
        task: Task,
        settings: Settings | None = None,
        seed: int = 0,
        progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
        prompts: PromptSet | None = None,
    ) -> StageValue[CounterfactualCaptions]:
        """Stage 4."""
        own, told = (settings or self.profile.settings).counterfactuals, prompts or self.prompts
        model = self.models.language
        made = counterfactuals.run(source, chosen, task, model, told, own, seed, progress, cancelled)
        return self._marked("counterfactuals", made, told)

    def plan(
        self,
        chosen: CounterfactualCaptions,
        settings: Settings | None = None,
        seed: int = 0,
        made: Collection[tuple[CounterfactualCaption, int]] = (),
        size: tuple[int, int] | None = None,
    ) -> generation.Plan:
        """The gate before stage 5. The time is estimated for a source of `size`; without one the image is a square."""
        own = (settings or self.profile.settings).generation
        each = self.speeds.seconds(effort_of(own, size or (1, 1)))
        return generation.plan(chosen, own, seed, each, made)

    def generate(
        self,
        source: Image.Image,
        task: Task,
        chosen: CounterfactualCaptions,
        settings: Settings | None = None,
        seed: int = 0,
        progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
        made: Collection[tuple[CounterfactualCaption, int]] = (),
        source_caption: str = "",
        mask: NamedMask | None = None,
        images: generation.Worklist | None = None,
        on_preview: generation.OnPreview | None = None,
    ) -> Iterator[TestCase]:
        """Stage 5, one test case at a time, without those (caption and seed) already `made`.

        `source_caption` is what the checks measure the change of the caption from; `mask` is the source's, for a
        segmentation map. `images` replaces what `plan` says, for whoever wants to change it while it is worked on.
        """
        settings = settings or self.profile.settings
        generation.require_ready(task, chosen)
        todo = images or generation.Images(self.plan(chosen, settings, seed, made).images)
        if not todo.waiting():
            return  # nothing to do is no reason to load a generator
        effort = effort_of(settings.generation, source.size)
        known = self.speeds.seconds(effort)
        cases = generation.run(
            source,
            task,
            self.method(source_caption, mask),
            settings.conditioning,
            settings.generation,
            todo,
            progress,
            cancelled,
            None if known is None else known / settings.generation.steps,
            on_preview,
        )
        for case in cases:
            self.speeds.add(effort, case.seconds)
            yield case

    def method(self, source_caption: str = "", mask: NamedMask | None = None) -> Method:
        """How this profile makes an image; `source_caption` and `mask` as in `generate`."""
        return ControlNetMethod(
            self.models.generator,
            self.models.embedder,
            self.prompts,
            source_caption=source_caption,
            labels=self.profile.tasks.labels,
            detector=self.models.detector,
            mask=mask,
        )

    def augment(
        self,
        source: Image.Image,
        task: Task,
        settings: Settings | None = None,
        seed: int = 0,
        values: Mapping[StageName, StageValue[Any]] | None = None,
        test_cases: Collection[TestCase] = (),
        progress: OnProgress | None = None,
        cancelled: threading.Event | None = None,
        mask: NamedMask | None = None,
    ) -> Iterator[Made]:
        """All stages, from one image to its test cases; gives each thing as soon as it is there. `mask` is its mask.

        Of the `values` and `test_cases` of an earlier try, what is still fresh is taken as it is and given first come.
        Raises Cancelled between two replies or within one denoising step when asked to stop.
        """
        settings = settings or self.profile.settings
        earlier, sha = dict(values or {}), image_sha(source)
        now: dict[StageName, TextValue] = {}
        makers = self.makers()
        for done, stage in enumerate(TEXT_STAGES):
            stop_if(cancelled)
            if stage in earlier and not changed_inputs(stage, earlier[stage], task, sha, now, settings, makers[stage]):
                now[stage] = earlier[stage].value
                yield Made(stage, earlier[stage], reused=True)
                continue
            if progress is not None:
                progress(Progress(stage, 0, 1, note=f"stage {done + 1} of {len(TEXT_STAGES) + 1}"))
            value = self._text_stage(stage, source, task, now, settings, seed, progress, cancelled)
            now[stage] = value.value
            yield Made(stage, value, reused=False)
        chosen: Any = now["counterfactuals"]
        wanted = {(image.counterfactual, image.seed) for image in self.plan(chosen, settings, seed).images}
        fresh = [
            case
            for case in test_cases
            if (case.counterfactual, case.seed) in wanted
            and drawn_alike(case.settings, settings.conditioning, settings.generation)
        ]
        for case in fresh:
            yield Made("generation", case, reused=True)
        made = {(case.counterfactual, case.seed) for case in fresh}
        caption_text: Any = now["caption"]
        cases = self.generate(
            source, task, chosen, settings, seed, progress, cancelled, made, source_caption=caption_text.text, mask=mask
        )
        for case in cases:
            yield Made("generation", case, reused=False)

    def _text_stage(
        self,
        stage: StageName,
        source: Image.Image,
        task: Task,
        now: Mapping[StageName, Any],
        settings: Settings,
        seed: int,
        progress: OnProgress | None,
        cancelled: threading.Event | None,
    ) -> StageValue[Any]:
        match stage:
            case "caption":
                return self.caption(source, task, settings, seed)
            case "keywords":
                return self.keywords(now["caption"], task, settings, seed)
            case "alternatives":
                return self.alternatives(now["caption"], now["keywords"], task, settings, seed)
            case "counterfactuals":
                return self.counterfactuals(
                    now["caption"], now["alternatives"], task, settings, seed, progress, cancelled
                )
        raise ValueError(f"{stage} is not a text stage")
