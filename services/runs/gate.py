"""The gate before generation: what a yes would start, or why it cannot start. Reads a run, starts nothing.

Tells too which images of a run no longer fit what stands before them, and why: another task by now, another caption,
another mask, or another region.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from core.errors import UserError
from core.images import image_sha
from core.lineage import Failure, MethodSettings
from core.masks import NO_MASK, InMask, NamedMask
from core.seeds import derive_seed
from core.settings import GenerationSettings, Settings
from core.stored_runs import Run, StoredTestCase
from core.types import CounterfactualCaptions, StageName, Task, failed
from pipeline.checks.texts import counterfactual_checks
from pipeline.driver import Driver
from pipeline.freshness import drawing_key
from pipeline.methods import method_of
from pipeline.prompting import PromptSet
from pipeline.recipes import is_drawn_from, recipe_of
from pipeline.stages.generation import Plan
from storage.workspace import Workspace

EARLIER_CAPTION = "of an earlier caption"
EARLIER_MASK = "of an earlier mask"
EARLIER_SOURCE_CAPTION = "of an earlier caption of the source"
"""Only of images that were drawn from the inverted source."""
EARLIER_REGION = "of an earlier region"
"""Only of images whose method looked at where the source may change."""
EARLIER_TASK = "made for "
"""How the reason begins where an image was made for another task; what it was made for follows."""


@dataclass(frozen=True)
class CaptionDoubt:
    """A ticked caption that fails a check of texts, so that a person knows before it is drawn."""

    caption: str
    reasons: tuple[str, ...]
    """The notes of the checks that it fails."""


@dataclass(frozen=True)
class Gate:
    """What stands before generation: what a yes would start, or why it cannot start."""

    plan: Plan | None = None
    seed: int = 0
    """What the seeds of the images are derived from; nothing hangs on it when the seed is fixed."""
    made: int = 0
    """Images of this plan that are there already, from a job that was stopped."""
    measuring: bool = False
    """No image was made on this machine yet, but its speed is about to be known."""
    shown: str = ""
    """A short name of all that a yes would make; another one once anything of it is another. "" when it is closed."""
    doubts: tuple[CaptionDoubt, ...] = ()
    """The ticked captions that fail a check, in order."""
    closed: str = ""
    """Why nothing can be generated, in one sentence; "" when the gate waits for a yes."""


def gate_of(
    driver: Driver,
    run: Run,
    settings: Settings,
    prompts: PromptSet,
    stale: Mapping[StageName, str],
    size: tuple[int, int],
    warmed: bool = False,
    outdated: Collection[int] = (),
    failures: Collection[Failure] = (),
    held: InMask = NO_MASK,
) -> Gate:
    """What a yes would start. `prompts` are the run's, `size` is that of the source; `warmed` says that the speed is
    being measured, and `outdated` which test cases would be drawn on another control image now, though their settings
    are the same. `failures` are what could not be made so far, `held` what the mask says of the protected classes.
    """
    recipe, values = recipe_of(run.recipe), {name: stored.value.value for name, stored in run.values.items()}
    captions = recipe.captions(values)
    if captions is None:
        return Gate(closed=recipe.last.comes_first)
    used = sum(item.used for item in captions.items)
    if not used:
        return Gate(closed="No counterfactual caption is ticked: tick at least one.")
    if recipe.last.name in stale:
        is_stale, it = ("are stale", "them") if recipe.last.plural else ("is stale", "it")
        they = "they are" if recipe.last.plural else "it is"
        return Gate(closed=f"The {recipe.last.noun} {is_stale}: run {it} again, or keep {it} as {they}.")
    method = method_of(recipe.method)
    drawn_with = recipe.drawn_with(settings, values)
    hindrance = method.refused(driver.profile, drawn_with) or method.lacks(drawn_with, run.mask_sha is not None)
    if hindrance:
        return Gate(closed=hindrance)
    drawing, said = method.planning(settings), recipe.source_caption(values)
    drawn = (case.lineage for case in run.test_cases if case.id not in outdated)
    made = driver.made(recipe, drawn, drawn_with, run.task, prompts, held)
    for seed in _seeds(run, drawing, len(made)):
        plan = driver.plan(recipe, values, settings, seed, made, size, failures)
        if plan.images:
            before = used * drawing.images_per_caption - len(plan.images)
            texts = [method.prompt(prompts, image.counterfactual, run.task, held) for image in plan.images]
            effort = method.effort(drawn_with, size)  # what is tried out while nobody waits is the generator
            measuring = warmed and plan.seconds is None and effort is not None and not effort.by
            name = _name_of(plan, run, settings, texts)
            return Gate(plan, seed, before, measuring, name, _doubts(captions, said, run.task))
    if equal := method.equal_images(drawn_with):
        return Gate(closed=f"All images of these captions are made. {equal}")
    return Gate(closed=f"All images of the seed {drawing.seed} are made: take another seed, or change something else.")


def _doubts(captions: CounterfactualCaptions, source: str, task: Task) -> tuple[CaptionDoubt, ...]:
    checked = ((item.text, failed(counterfactual_checks(source, item, task))) for item in captions.items if item.used)
    return tuple(CaptionDoubt(text, tuple(check.note for check in wrong)) for text, wrong in checked if wrong)


def _name_of(plan: Plan, run: Run, settings: Settings, texts: Sequence[str | None]) -> str:
    """Name what a yes would make by its images, their prompts (`texts`), settings, and mask where one is used."""
    recipe, values = recipe_of(run.recipe), {name: stored.value.value for name, stored in run.values.items()}
    method = method_of(recipe.method)
    on_mask = method.needs_mask(method.settings_of(settings))
    made_of = [
        recipe.name,
        drawing_key(recipe, run.task, run.source_sha, values, settings),
        [run.mask_sha, sorted(run.mask_classes.items())] if on_mask else None,
        [(image.counterfactual.text, image.seed) for image in plan.images],
        texts,
    ]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:20]


def _seeds(run: Run, drawing: GenerationSettings, made: int) -> Iterable[int]:
    """What may be tried, in this order: each one gives other images, but for a fixed seed."""
    if drawing.seed_mode == "fixed":
        return (0,)
    if drawing.seed_mode == "random":
        # Nobody can foresee it, but the page can name the images before they are made, and names the same ones at
        # every look: it hangs on the run, whose name was drawn at random, and on how often something was made in it.
        return (derive_seed(int(run.id, 16), len(run.jobs), len(run.test_cases)),)
    return range(made + 1)


def made_for(task: Task) -> str:
    """What an image was made for, in a few words."""
    if task.kind == "classification":
        return f"{EARLIER_TASK}the label {task.label}"
    return f"{EARLIER_TASK}the protected classes {', '.join(task.protected)}"


class Outdated:
    """Of the runs of one workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        # A request asks for every image of its run: pictures are compared by hashes that are worked out once.
        self._wanted = lru_cache(maxsize=64)(self._wanted_shas)
        self._held = lru_cache(maxsize=1024)(lambda sha: image_sha(workspace.images.load(sha)))

    def reasons(self, run: Run, size: tuple[int, int]) -> dict[int, str]:
        """The outdated test cases by their id, each with the reason in a few words. `size` is that of the source."""
        values = {name: stored.value.value for name, stored in run.values.items()}
        other_mask, found = self.of_another_mask(run, size), dict[int, str]()
        for case in run.test_cases:
            drawn_with = case.lineage.settings
            if case.task != run.task:
                found[case.id] = made_for(case.task)
            elif not is_drawn_from(case.lineage.recipe, case.lineage.counterfactual, values):
                found[case.id] = EARLIER_CAPTION
            elif case.id in other_mask:
                found[case.id] = EARLIER_MASK
            elif drawn_with.source_caption not in (None, recipe_of(case.lineage.recipe).source_caption(values)):
                found[case.id] = EARLIER_SOURCE_CAPTION
            elif drawn_with.region not in (None, recipe_of(case.lineage.recipe).region(values)):
                found[case.id] = EARLIER_REGION
        return found

    def of_another_mask(self, run: Run, size: tuple[int, int]) -> frozenset[int]:
        """Return the test cases whose artifacts the mask would make differently now, by their pixels."""
        return frozenset(case.id for case in run.test_cases if self._redrawn(case, run, size))

    def _redrawn(self, case: StoredTestCase, run: Run, size: tuple[int, int]) -> bool:
        lineage = case.lineage
        if not method_of(lineage.method).needs_mask(lineage.settings):
            return False
        if run.mask_sha is None:
            return True
        try:
            classes = tuple(sorted(run.mask_classes.items()))
            expected = self._wanted(run.mask_sha, classes, size, lineage.method, lineage.settings)
            return any(
                name not in case.artifacts or self._held(case.artifacts[name].sha) != sha
                for name, sha in expected.items()
            )
        except UserError:  # a file is missing or damaged, which the page says where it shows it
            return True

    def _wanted_shas(
        self,
        mask_sha: str,
        classes: tuple[tuple[int, str], ...],
        size: tuple[int, int],
        method: str,
        settings: MethodSettings,
    ) -> dict[str, str]:
        mask = NamedMask(self._workspace.images.load(mask_sha), dict(classes))
        made = method_of(method).mask_artifacts(settings, mask, size)
        return {name: image_sha(image) for name, image in made.items()}
