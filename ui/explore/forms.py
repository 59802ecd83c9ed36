"""Forms made from the fields of settings, and the form for a model under test, which Explore and Evaluate share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from core.data_files import DataTable
from core.settings import UnderTestSettings
from services.evaluation.model_choice import LONGEST_CLASSES, LONGEST_NAME, LONGEST_PATH
from services.evaluation.model_files import SOURCES as MODEL_FILES
from ui.markup import Html, el
from ui.templating import render

HIDDEN = {
    "counterfactuals.edits_at_once",
    "counterfactuals.captions",
    "counterfactuals.combinations",
    "counterfactuals.chosen",
    "alternatives.too_close",
    "perturbations.per_type",
    "backgrounds.captions",
}
"""Settings that the form of settings leaves out, because the body of their card always shows them."""


def settings_form(sections: Mapping[str, BaseModel]) -> Html:
    """Return a field for each setting of each section; a change is saved at once."""
    rows = [
        (section, name, settings, field.description)
        for section, settings in sections.items()
        for name, field in type(settings).model_fields.items()
        if f"{section}.{name}" not in HIDDEN
    ]
    return render("explore/settings.html", rows=rows, sections=sections, setting_input=setting_input)


def setting_input(section: str, name: str, settings: BaseModel, field_id: str, /, **more: Any) -> Html:
    """Return the input of one setting. `more` are further HTML attributes."""
    field, value = type(settings).model_fields[name], getattr(settings, name)
    common: dict[str, Any] = {"id": field_id, "data_do": "setting", "data_setting": f"{section}.{name}", **more}
    if isinstance(value, bool):
        return el("input", type="checkbox", **{"checked": value, **common})
    if isinstance(value, str):
        return el("input", type="text", **{"value": value, "maxlength": _bound(field, "max_length"), **common})
    step = _bound(field, "multiple_of") or (1 if isinstance(value, int) else 0.05)
    low, high = _bound(field, "ge"), _bound(field, "le")
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return el("input", type="number", **{"value": shown, "min": low, "max": high, "step": step, **common})


def _bound(field: FieldInfo, name: str) -> Any:
    return next((getattr(rule, name) for rule in field.metadata if getattr(rule, name, None) is not None), None)


SOURCES: Mapping[str, str] = DataTable(__file__, str, "sources")
"""Name and description of each source that a model under test can come from."""
PROFILE = {"profile": "the profile's own"}
LAYOUTS = ("channels first", "channels last")
"""Order of the axes in the input of an ONNX file."""


def model_fields(settings: UnderTestSettings, with_profile: bool = False, with_refusals: bool = False) -> Html:
    """Return the form for a model under test, with the profile's own model and with places for error messages if asked."""
    return render(
        "explore/model_form.html",
        given=settings,
        refusals=with_refusals,
        sources={**(PROFILE if with_profile else {}), **SOURCES},
        files=",".join(MODEL_FILES),
        layouts=[(name, name) for name in LAYOUTS],
        longest={"model": LONGEST_NAME, "file": LONGEST_PATH, "classes": LONGEST_CLASSES},
    )
