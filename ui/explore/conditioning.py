"""The control image before anything is generated: its kind, its settings, and what comes of them, beside the source."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import urlencode

from pydantic.fields import FieldInfo

from core.settings import ConditioningSettings, ControlKind
from services.runs.state import ProfileOptions, RunState
from ui.explore.large import image_url
from ui.explore.parts import acts, bar, button, muted, picture, small, toggle
from ui.explore.stage import panel
from ui.markup import Child, Html, el

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
SLIDERS = ("low", "high", "median")
NOTE = "The generator is held to this picture: what it shows stays where it is, all else may change."


def conditioning_panel(state: RunState, profile: ProfileOptions) -> Html:
    """Opened by a button in the head of the card; its pictures are asked for only while it is open."""
    settings = state.settings.conditioning
    parts: list[Child] = [_kinds(settings, profile), _pair(state, settings)]
    controls = _controls(settings)
    if controls:
        parts.append(el("div", controls, class_="sliders"))
    back = button("Back to the profile's settings", "default-settings", "s", data_sections="conditioning")
    changed = settings != profile.conditioning
    parts.append(acts(back) if changed else None)
    return panel("conditioning", NOTE, el("div", parts, class_="conditioning", data_control_of=state.run.id))


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


def _kinds(settings: ConditioningSettings, profile: ProfileOptions) -> Html:
    kinds = profile.control_kinds
    if len(kinds) == 1:
        words = f"{NAMES[kinds[0]]}: the only kind that the models of this profile were trained on."
        return small(words, id="control-kind")
    chips = [
        toggle(
            NAMES[kind],
            "setting",
            kind == settings.kind,
            data_setting="conditioning.kind",
            data_value=kind,
            title=MEANINGS[kind],
        )
        for kind in kinds
    ]
    return el(
        "div",
        el("div", chips, class_="choice wrap", role="group", aria_label="Kind of control image"),
        small(MEANINGS[settings.kind]),
        id="control-kind",
    )


def _pair(state: RunState, settings: ConditioningSettings) -> Html:
    source = el(
        "figure",
        picture(image_url(state.run.source_sha), state.source_size, alt="The source image", loading="lazy"),
        el("figcaption", el("span", "original")),
    )
    shown: Child
    if settings.kind == "segmentation" and state.run.mask_sha is None:
        shown = el("p", "This run has no mask yet: give it one at the top of the page.", class_="mut missing")
    elif not state.control_there:
        shown = _to_be_drawn(state, settings)
    else:
        # The script loads it, the latest settings first; what it shows is its own.
        shown = el(
            "img",
            style="aspect-ratio: {} / {}".format(*state.source_size),
            alt="The control image that these settings give",
            id="control-preview",
            data_own=True,
            data_key=f"control-{state.run.id}-{settings.kind}",
        )
    control = el(
        "figure",
        shown,
        el("i", data_control_url=control_url(state), hidden=True),
        el("figcaption", el("span", "control")),
    )
    return el("div", source, control, class_="pair")


def _to_be_drawn(state: RunState, settings: ConditioningSettings) -> Html:
    """In the place of a control image that a model has to draw: the button, or how far it is."""
    job = state.job
    active = job is not None and job.active
    if job is not None and active and not job.stages:
        if job.state == "waiting":
            doing = "It waits for its turn."
        else:
            # Whole seconds, so that the markup changes no more often than a person could read.
            doing = f"It is being drawn · {int(time.monotonic() - job.since)} s"
        return el(
            "div",
            bar(None),
            muted(doing, role="status", id="control-drawing"),
            small("The first time its model is loaded too, or fetched."),
            class_="missing",
        )
    return el(
        "div",
        muted(f"A model draws this kind ({NAMES[settings.kind].lower()})."),
        button("Draw it now", "draw-control", "s", id="draw-control", disabled=active),
        class_="missing",
    )


def _controls(settings: ConditioningSettings) -> list[Child]:
    fields = type(settings).model_fields
    found: list[Child] = []
    for name in settings.own_fields():
        value = getattr(settings, name)
        make = _slider if name in SLIDERS else _switch
        found.append(make(name, fields[name], value))
    return found


def _slider(name: str, field: FieldInfo, value: int) -> Html:
    # The median takes 0 (off) or an odd number: a slider over the odd ones, whose first leaves all as it is.
    low, high, step = (1, 15, 2) if name == "median" else (0, 500, 1)
    shown = "off" if name == "median" and value <= 1 else str(value)
    return _row(name, field, shown, type="range", min=low, max=high, step=step, value=max(low, value))


def _switch(name: str, field: FieldInfo, value: bool) -> Html:
    return _row(name, field, "on" if value else "off", type="checkbox", checked=value)


def _row(name: str, field: FieldInfo, shown: str, **control: str | int | bool) -> Html:
    """One setting: its name, the control with these attributes, what it is at, and what it does."""
    field_id = f"control-{name}"
    saved: dict[str, str] = {"data_do": "setting", "data_setting": f"conditioning.{name}", "data_control": name}
    return el(
        "label",
        el("span", name, class_="name"),
        el("input", id=field_id, **control, **saved),
        el("output", shown, for_=field_id),
        el("small", field.description or ""),
        for_=field_id,
        data_key=field_id,
    )


def _plain(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)
