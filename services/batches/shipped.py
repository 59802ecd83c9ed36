"""Plans that come with the studio, as a start for editing. They are complete except for the path of the data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from formats.layouts import LAYOUTS
from services.batches.plan_file import PLANS, plan_from_text

ROOT = 'root = "" # absolute path of the data set'
"""Line of TOML that replaces the example path in a shipped plan."""
_ROOT = re.compile(r"^root = .*$", re.MULTILINE)


@dataclass(frozen=True)
class ShippedPlan:
    """A plan to start with."""

    name: str
    title: str
    """Title of the plan's data set."""
    note: str
    """Sentence that describes the result of the plan."""
    profile: str
    text: str
    """Plan in TOML; its data.root is empty."""


@cache
def shipped_plans() -> tuple[ShippedPlan, ...]:
    """Return the shipped plans, sorted by file name."""
    plans = []
    for file in sorted(PLANS.glob("*.toml")):
        text = file.read_text(encoding="utf-8")
        plan = plan_from_text(text, file)
        title, text_to_edit = LAYOUTS[plan.data.layout].title, _ROOT.sub(ROOT, text, count=1)
        plans.append(ShippedPlan(plan.name, title, plan.note, plan.make.profile, text_to_edit))
    return tuple(plans)


def layouts_in_words() -> Mapping[str, tuple[str, str]]:
    """Return title and expected content of each layout of data sets, by the layout's name in a plan."""
    return {name: (layout.title, layout.expected) for name, layout in LAYOUTS.items()}
