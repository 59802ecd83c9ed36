"""Forms made from the typed settings: their bounds and descriptions are the only source."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ui.explore.parts import button
from ui.markup import Child, Html, el

HIDDEN = {
    "counterfactuals.edits_at_once",
    "counterfactuals.captions",
    "counterfactuals.combinations",
    "counterfactuals.chosen",
    "alternatives.too_close",
}
"""Settings that stand in the open, in the body of their card."""


def settings_form(sections: dict[str, BaseModel]) -> Html:
    """A field for each setting of each section; a change is saved at once."""
    rows: list[Child] = []
    for stage, settings in sections.items():
        for name, field in type(settings).model_fields.items():
            if f"{stage}.{name}" not in HIDDEN:
                rows.append(_row(stage, name, field, getattr(settings, name)))
    back = button("Back to the profile's settings", "default-settings", "s", data_sections=",".join(sections))
    return el("div", el("div", rows, class_="settings"), back)


def _row(stage: str, name: str, field: FieldInfo, value: Any) -> Html:
    field_id = f"setting-{stage}-{name}"
    return el(
        "label",
        el("span", name.replace("_", " "), class_="name"),
        setting_input(stage, name, field, value, field_id),
        el("small", field.description or ""),
        for_=field_id,
        data_key=field_id,
    )


def setting_input(stage: str, name: str, field: FieldInfo, value: Any, field_id: str, /, **more: Any) -> Html:
    """The input of one setting, with `more` attributes."""
    common: dict[str, Any] = {"id": field_id, "data_do": "setting", "data_setting": f"{stage}.{name}", **more}
    if isinstance(value, bool):
        return el("input", type="checkbox", **{"checked": value, **common})
    if isinstance(value, str):
        return el("input", type="text", **{"value": value, "maxlength": _bound(field, "max_length"), **common})
    step = _bound(field, "multiple_of") or (1 if isinstance(value, int) else 0.05)
    low, high = _bound(field, "ge"), _bound(field, "le")
    return el("input", type="number", **{"value": _plain(value), "min": low, "max": high, "step": step, **common})


def _bound(field: FieldInfo, name: str) -> Any:
    return next((getattr(rule, name) for rule in field.metadata if getattr(rule, name, None) is not None), None)


def _plain(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
