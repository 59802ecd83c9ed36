"""The gate before generation: what a yes would start, or why it cannot start. Reads a run, starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.methods import plain_settings
from pipeline.runner import Runner
from pipeline.settings import Settings
from pipeline.stages.generation import Plan
from pipeline.types import CounterfactualCaptions, StageName
from storage.types import Run


@dataclass(frozen=True)
class Gate:
    """What stands before generation: what a yes would start, or why it cannot start."""

    plan: Plan | None = None
    seed: int = 0
    made: int = 0
    """Images of this plan that are there already, from a job that was stopped."""
    measuring: bool = False
    """No image was made on this machine yet, but its speed is about to be known."""
    closed: str = ""
    """Why nothing can be generated, in one sentence; "" when the gate waits for a yes."""


def gate_of(runner: Runner, run: Run, settings: Settings, stale: Mapping[StageName, str], warmed: bool) -> Gate:
    """What a yes would start. The seed is the lowest one of which not all images are made."""
    stored = run.values.get("counterfactuals")
    captions = stored.value.value if stored else None
    if not isinstance(captions, CounterfactualCaptions):
        return Gate(closed="Counterfactual captions come first.")
    used = sum(item.used for item in captions.items)
    if not used:
        return Gate(closed="No counterfactual caption is ticked: tick at least one.")
    if "counterfactuals" in stale:
        return Gate(closed="The counterfactual captions are stale: run them again, or keep them as they are.")
    same = plain_settings(settings.conditioning, settings.generation)
    made = {(case.counterfactual, case.seed) for case in run.test_cases if case.settings == same}
    wanted = used * settings.generation.images_per_caption
    for seed in range(len(made) + 1):
        plan = runner.plan(captions, settings, seed, made)
        if plan.images:
            return Gate(plan, seed, wanted - len(plan.images), warmed and plan.seconds is None)
    raise AssertionError("more seeds are made than there are images")
