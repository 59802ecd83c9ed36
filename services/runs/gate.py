"""The gate before generation: which images would be made if a person approved, or why none can be made.

It also finds outdated images of a run: those made for another task, caption, mask or region than the run has now.
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
EARLIER_REGION = "of an earlier region"
EARLIER_TASK = "made for "
"""Beginning of the reason why an image made for another task is outdated. The other task follows."""


MaskClasses = tuple[tuple[int, str], ...]
"""The number and name of each class of a mask, sorted, as a key of caches."""


def classes_of(run: Run) -> MaskClasses:
    """Return the classes of a run's mask as a key of caches."""
    return tuple(sorted(run.mask_classes.items()))


@dataclass(frozen=True)
class CaptionDoubt:
    """A ticked caption that fails a text check, about which a page warns before the caption is drawn."""

    caption: str
    reasons: tuple[str, ...]
    """Notes of the failed checks."""


@dataclass(frozen=True)
class Gate:
    """State of the gate: the images that approval would make, or why none can be made."""

    plan: Plan | None = None
    seed: int = 0
    """Seed from which the seeds of the planned images are derived. Unused if the settings fix the seed."""
    made: int = 0
    """Number of images of the ticked captions that exist already, such as from a stopped job."""
    measuring: bool = False
    """True if the time is not known yet, but the speed of this machine is being measured."""
    shown: str = ""
    """A hash of the planned images and all that they depend on; "" if the gate is closed."""
    doubts: tuple[CaptionDoubt, ...] = ()
    """Ticked captions that fail a text check, in the order of the captions."""
    closed: str = ""
    """One sentence on why approval cannot make images; "" if images are planned and wait for approval."""


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
    in_mask: InMask = NO_MASK,
) -> Gate:
    """Return the gate of a run. `prompts` are the run's prompts, `stale` its stale stages with the reason, and `size`
    is the source image's size. `warmed` is True if the drawing speed was or is being measured. `outdated` holds the ids
    of test cases whose mask artifacts would differ now; they do not count as made. `failures` are the failed attempts
    so far. `in_mask` describes the protected classes in the mask.
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
    drawing, source_caption = method.planning(settings), recipe.source_caption(values)
    drawn = (case.lineage for case in run.test_cases if case.id not in outdated)
    existing = driver.made(recipe, drawn, drawn_with, run.task, prompts, in_mask)
    for seed in _seeds(run, drawing, len(existing)):
        plan = driver.plan(recipe, values, settings, seed, existing, size, failures)
        if plan.images:
            before = used * drawing.images_per_caption - len(plan.images)
            texts = [method.prompt(prompts, image.counterfactual, run.task, in_mask) for image in plan.images]
            effort = method.effort(drawn_with, size)  # no other model's speed is measured in advance
            measuring = warmed and plan.seconds is None and effort is not None and not effort.by
            name = _name_of(plan, run, settings, texts)
            return Gate(plan, seed, before, measuring, name, _doubts(captions, source_caption, run.task))
    if equal := method.equal_images(drawn_with):
        return Gate(closed=f"All images of these captions are made. {equal}")
    return Gate(closed=f"All images of the seed {drawing.seed} are made: take another seed, or change something else.")


def _doubts(captions: CounterfactualCaptions, source: str, task: Task) -> tuple[CaptionDoubt, ...]:
    checked = ((item.text, failed(counterfactual_checks(source, item, task))) for item in captions.items if item.used)
    return tuple(CaptionDoubt(text, tuple(check.note for check in wrong)) for text, wrong in checked if wrong)


def _name_of(plan: Plan, run: Run, settings: Settings, texts: Sequence[str | None]) -> str:
    """Return a hash of all that the planned images depend on. `texts` has the prompt of each image."""
    recipe, values = recipe_of(run.recipe), {name: stored.value.value for name, stored in run.values.items()}
    method = method_of(recipe.method)
    on_mask = method.needs_mask(method.settings_of(settings))
    made_of = [
        recipe.name,
        drawing_key(recipe, run.task, run.source_sha, values, settings),
        [run.mask_sha, classes_of(run)] if on_mask else None,
        [(image.counterfactual.text, image.seed) for image in plan.images],
        texts,
    ]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:20]


def _seeds(run: Run, drawing: GenerationSettings, made: int) -> Iterable[int]:
    """Return the seeds to try, in order. The gate uses the first seed that gives an image which is not made yet."""
    if drawing.seed_mode == "fixed":
        return (0,)
    if drawing.seed_mode == "random":
        # The seed depends on the random id of the run, so it is unpredictable, and on the numbers of its jobs and
        # images, so it changes after each job. A page that is loaded again plans the same images.
        return (derive_seed(int(run.id, 16), len(run.jobs), len(run.test_cases)),)
    return range(made + 1)


def made_for(task: Task) -> str:
    """Return a few words on the earlier task that an image was made for."""
    if task.kind == "classification":
        return f"{EARLIER_TASK}the label {task.label}"
    return f"{EARLIER_TASK}the protected classes {', '.join(task.protected)}"


class Outdated:
    """Finds outdated images of one workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        # Each request checks all images of a run, so the hashes of pictures are cached.
        self._wanted = lru_cache(maxsize=64)(self._wanted_shas)
        self._held = lru_cache(maxsize=1024)(lambda sha: image_sha(workspace.images.load(sha)))

    def reasons(self, run: Run, size: tuple[int, int]) -> dict[int, str]:
        """Return the reason, in a few words, for each outdated test case, by id. `size` is the source image's size."""
        values = {name: stored.value.value for name, stored in run.values.items()}
        other_mask, reasons_by_case = self.of_another_mask(run, size), dict[int, str]()
        for case in run.test_cases:
            drawn_with = case.lineage.settings
            if case.task != run.task:
                reasons_by_case[case.id] = made_for(case.task)
            elif not is_drawn_from(case.lineage.recipe, case.lineage.counterfactual, values):
                reasons_by_case[case.id] = EARLIER_CAPTION
            elif case.id in other_mask:
                reasons_by_case[case.id] = EARLIER_MASK
            elif drawn_with.source_caption not in (None, recipe_of(case.lineage.recipe).source_caption(values)):
                reasons_by_case[case.id] = EARLIER_SOURCE_CAPTION
            elif drawn_with.region not in (None, recipe_of(case.lineage.recipe).region(values)):
                reasons_by_case[case.id] = EARLIER_REGION
        return reasons_by_case

    def of_another_mask(self, run: Run, size: tuple[int, int]) -> frozenset[int]:
        """Return the ids of test cases whose control image or another artifact would differ with the present mask."""
        return frozenset(case.id for case in run.test_cases if self._redrawn(case, run, size))

    def _redrawn(self, case: StoredTestCase, run: Run, size: tuple[int, int]) -> bool:
        lineage = case.lineage
        if not method_of(lineage.method).needs_mask(lineage.settings):
            return False
        if run.mask_sha is None:
            return True
        try:
            expected = self._wanted(run.mask_sha, classes_of(run), size, lineage.method, lineage.settings)
            stored = case.artifacts
            return any(name not in stored or self._held(stored[name].sha) != sha for name, sha in expected.items())
        except UserError:  # a missing or damaged file, which the page reports elsewhere
            return True

    def _wanted_shas(
        self, mask_sha: str, classes: MaskClasses, size: tuple[int, int], method: str, settings: MethodSettings
    ) -> dict[str, str]:
        mask = NamedMask(self._workspace.images.load(mask_sha), dict(classes))
        artifacts = method_of(method).mask_artifacts(settings, mask, size)
        return {name: image_sha(image) for name, image in artifacts.items()}
