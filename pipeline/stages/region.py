"""The region of the source that may change: all of it, until a person paints one."""

from __future__ import annotations

from core.regions import WHOLE, Region
from core.types import StageValue, Trace, Values
from pipeline.stages.base import Stage, StageInputs


def run(inputs: StageInputs) -> StageValue[Region]:
    return StageValue(WHOLE, Trace("model"))


def painted_region(values: Values) -> Region:
    """Return the painted region, given the values by stage, or the whole picture if none is painted."""
    region = values.get("region")
    return region if isinstance(region, Region) else WHOLE


REGION = Stage(
    name="region",
    title="Region",
    value=Region,
    run=run,
    reads_source=True,
    reads_task=False,
    producer="nothing",
    fits=Region.require_fit,
    summary=Region.describe,
    doing="taking the whole picture",
    plural=False,
    again="Whole picture",
)
