"""The control image before anything is generated: its kind, its settings, and what comes of them, beside the source."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from core.settings import ConditioningSettings, ControlKind
from services.jobs import JobView
from services.runs.state import ProfileOptions, RunState
from ui.explore.large import image_url
from ui.markup import Html
from ui.templating import render

NAMES: dict[ControlKind, str] = {
    "canny": "Canny edges",
    "soft edges": "Soft edges",
    "line art": "Line art",
    "depth": "Depth",
    "segmentation": "Segmentation map",
}
MEANINGS: dict[ControlKind, str] = {
    "canny": "Thin, hard edges: the image keeps every outline. For this the thresholds below count.",
    "soft edges": "Edges with a softness, drawn by a model: outlines stay, small details are freer.",
    "line art": "Lines as an illustrator draws them, drawn by a model.",
    "depth": "How far away everything is, drawn by a model: shapes stay, surfaces are free.",
    "segmentation": "The mask in the colours of its classes: every class stays where it is, its look is free.",
}
SLIDERS = {"low": (0, 500, 1), "high": (0, 500, 1), "median": (1, 15, 2)}
"""Least, most and step. The median takes 0 (off) or an odd number: its slider offers those, and 1 means off."""


def conditioning_panel(state: RunState, profile: ProfileOptions) -> Html:
    """Opened by a button in the head of the card; its pictures are asked for only while it is open."""
    settings = state.settings.conditioning
    fields = type(settings).model_fields
    return render(
        "explore/conditioning.html",
        state=state,
        settings=settings,
        kinds=profile.control_kinds,
        names=NAMES,
        meanings=MEANINGS,
        source=image_url(state.run.source_sha),
        control=control_url(state),
        drawn=_being_drawn(state.job),
        controls=[(name, getattr(settings, name), fields[name].description) for name in settings.own_fields()],
        sliders=SLIDERS,
        changed=settings != profile.conditioning,
    )


def what_it_is(settings: ConditioningSettings) -> str:
    """In a few words, for the head of the card."""
    if settings.kind == "canny":
        return f"Canny {settings.low} / {settings.high}"
    return NAMES[settings.kind]


def control_url(state: RunState) -> str:
    """Where the control image is served that these settings give."""
    settings = state.settings.conditioning
    own = {name: _plain(getattr(settings, name)) for name in settings.own_fields()}
    query: dict[str, Any] = {"kind": settings.kind, **own, "short_side": state.settings.generation.short_side}
    if settings.kind == "segmentation":
        query["v"] = (state.run.mask_sha or "")[:12]
    return f"control/{state.run.id}.png?{urlencode(query)}"


def _being_drawn(job: JobView | None) -> str:
    """How far a job that only draws a control image is; "" where there is none."""
    if job is None or not job.active or job.stages:
        return ""
    if job.state == "waiting":
        return "It waits for its turn."
    # Whole seconds, so that the markup changes no more often than a person could read.
    return f"It is being drawn · {int(time.monotonic() - job.since)} s"


def _plain(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
