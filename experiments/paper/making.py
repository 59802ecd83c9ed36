"""Make the test cases of the paper's questions as users would: batches of a workspace, through the real pipeline.

Only this module of `experiments.paper` uses a workspace. A stopped batch resumes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from core.batches import Pass
from core.errors import UserError
from core.types import CounterfactualCaption
from demo.scene import PROTECTED_ROAD_CLASSES
from experiments.paper.size import Family, Size
from experiments.paper.world import QUOTAS, Quota
from pipeline.models import load_models
from pipeline.profiles.profile import load_profile
from pipeline.recipes import DILLEMA, RECONSTRUCTION
from pipeline.seams import Models
from services.batches.engine import Engine
from services.batches.io_workers import Order
from services.batches.plan_file import plan_from_text
from services.batches.pools import HerePool, Pool, ProcessPool
from services.batches.service import BatchService
from services.batches.work import Worker
from storage.workspace import Workspace

SEED = 1
ALTERNATIVES = 5
"""Number of alternatives per keyword: enough for the largest quota, even if only weather and time of day may change."""
CHOICES = 12
"""Number of captions written per source. Some are chosen for test cases, so that each edit type is equally frequent."""
_PLAN = """
name = "The paper's questions: {family}, {what}"
[data]
root = "{root}"
layout = "csv"
[task]
{task}
[make]
profile = "demo"
recipe = "{recipe}"
seed = {seed}
settings = {{ "generation.start" = "noise", "generation.steps" = {steps}{settings} }}
"""
_EDITS = """
[choose]
attributes = {{ quota = ["{captions}"] }}
[edits]
captions_a_source = {captions}
types = {{ {types} }}
"""


@dataclass(frozen=True)
class Made:
    """A test case or a reconstruction, without its pixels."""

    source: int
    """Number of the source image."""
    recipe: str
    image: str
    """Path of the image's file."""
    caption: str
    """Caption that the captioner wrote for the source."""
    counterfactual: CounterfactualCaption
    checks: Mapping[str, float | None]
    """Value that each check measured, or None if it could not tell."""

    @property
    def control(self) -> bool:
        """True for a reconstruction, which shows no edit."""
        return self.recipe == RECONSTRUCTION.name


def make(family: Family, data: Path, folder: Path, size: Size) -> tuple[Made, ...]:
    """Make and return the test cases and reconstructions of all sources. Raises UserError if a batch was stopped."""
    images = list[Made]()
    with Workspace(folder / "workspace") as workspace:
        service = BatchService(workspace)
        for quota in (*QUOTAS, None):
            number = service.plan(plan_from_text(plan_text(family, data, size, quota), folder / "plan.toml"))
            if service.status(number).batch.approved is None:
                workspace.batches.approve(number, ahead=True)
            order = service.order(number)
            progress = _Progress(service.status(number).batch.name)
            outcome = Engine(workspace, number, order, partial(_pool, size.workers), tell=progress.tell).run()
            if outcome != "done":
                raise UserError(f"The batch “{service.status(number).batch.name}” was stopped: run it again to resume.")
            images += _made(workspace, number, recipe_of(quota))
    return tuple(images)


def recipe_of(quota: Quota | None) -> str:
    """Return the name of the recipe for the test cases of a quota. For None, it is the recipe of reconstructions."""
    return RECONSTRUCTION.name if quota is None else DILLEMA.name


def plan_text(family: Family, data: Path, size: Size, quota: Quota | None) -> str:
    """Return a batch's plan: test cases of the quota's sources, or without a quota, reconstructions of all sources."""
    if family == "object":
        task = 'kind = "classification"'
    else:
        listed = ", ".join(f'"{name}"' for name in PROTECTED_ROAD_CLASSES)
        task = f'kind = "segmentation"\nprotected = [{listed}]'
    what, settings, edits = "reconstructions", "", ""
    if quota is not None:
        what, settings = (
            f"{quota.captions} a source",
            f', "counterfactuals.captions" = {CHOICES}, "alternatives.per_keyword" = {ALTERNATIVES}',
        )
        edits = _EDITS.format(captions=quota.captions, types=", ".join(f'"{one}" = 1' for one in quota.types))
    about = {"family": family, "what": what, "root": data, "task": task, "seed": SEED}
    return _PLAN.format(**about, recipe=recipe_of(quota), steps=size.steps, settings=settings) + edits


def _pool(workers: int, order: Order) -> Pool:
    return ProcessPool(order, workers) if workers > 1 else HerePool(order, lambda order: Worker(order, _models()))


@lru_cache(maxsize=1)
def _models() -> Models:
    return load_models(load_profile("demo"))


class _Progress:
    """Prints the progress of a batch, at every hundred finished pieces of work."""

    def __init__(self, what: str) -> None:
        self._what, self._done, self._said = what, 0, 0

    def tell(self, stage: Pass, done: int) -> None:
        """Add `done` finished pieces of work, and print the total at every hundred."""
        self._done += done
        if self._done - self._said >= 100:
            self._said = self._done
            print(f"  {self._what}: {self._done:,} pieces of work are done, at the {stage}", flush=True)


def _made(workspace: Workspace, batch: int, recipe: str) -> Iterator[Made]:
    """Yield the images of a batch, in the order of its sources."""
    sources: dict[str, int] = {}
    captions: dict[str, str] = {}
    after = 0
    while some := workspace.batches.sources(batch, None, after, 500):
        runs = workspace.batches.source_runs([one.run for one in some if one.run])
        for one in some:
            if one.run:
                sources[one.run] = int(Path(one.item.key).stem)
                captions[one.run] = runs[one.run].values["caption"].value.text
        after = some[-1].id
    for candidate in workspace.test_cases.candidates():
        if candidate.run_id in sources:
            case = workspace.test_cases.get(candidate.test_case)
            yield Made(
                source=sources[candidate.run_id],
                recipe=recipe,
                image=str(case.image_path),
                caption=captions[candidate.run_id],
                counterfactual=case.lineage.counterfactual,
                checks={check.name: check.value for check in case.checks},
            )
