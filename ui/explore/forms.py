"""Forms made from the fields of settings, and the form for a model under test, which Explore and Evaluate share."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel

from core.data_files import DataTable
from core.settings import UnderTestSettings
from services.evaluation.model_choice import LONGEST_CLASSES, LONGEST_NAME, LONGEST_PATH
from services.evaluation.model_files import SOURCES as MODEL_FILES
from ui.markup import Html
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
"""Settings without a field in the general form of settings, as the body of their card always shows them."""


def settings_form(sections: Mapping[str, BaseModel]) -> Html:
    """Return a form with a field for each setting of each section. Each change is saved at once."""
    rows = [
        (section, name, settings, field.description)
        for section, settings in sections.items()
        for name, field in type(settings).model_fields.items()
        if f"{section}.{name}" not in HIDDEN
    ]
    return render("explore/settings.html", rows=rows, sections=sections)


SOURCES: Mapping[str, str] = DataTable(__file__, str, "sources")
"""Name and description of each place from which a model under test can be loaded."""
PROFILE = {"profile": "the profile's own"}
LAYOUTS = ("channels first", "channels last")


def model_fields(settings: UnderTestSettings, with_profile: bool = False, with_refusals: bool = False) -> Html:
    """Return the form for a model under test, filled from `settings`. `with_profile` adds the profile's own model, and
    `with_refusals` adds places for error messages.
    """
    return render(
        "explore/model_form.html",
        given=settings,
        refusals=with_refusals,
        sources={**(PROFILE if with_profile else {}), **SOURCES},
        files=",".join(MODEL_FILES),
        layouts=[(name, name) for name in LAYOUTS],
        longest={"model": LONGEST_NAME, "file": LONGEST_PATH, "classes": LONGEST_CLASSES},
    )
