"""The fields that name another model under test, the same in Explore and on the page Evaluate. Fields that a kind of
model does not have are hidden (`studio.css`) and not sent. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.data_files import DataTable
from core.settings import UnderTestSettings
from services.evaluation.model_choice import LONGEST_CLASSES, LONGEST_NAME, LONGEST_PATH
from services.evaluation.model_files import SOURCES as MODEL_FILES
from ui.markup import Html
from ui.templating import render

SOURCES: Mapping[str, str] = DataTable(__file__, str, "sources")
"""Sources of another model."""
PROFILE = {"profile": "the profile's own"}
LAYOUTS = ("channels first", "channels last")
"""Order of the axes in the input of an ONNX file."""


def model_fields(settings: UnderTestSettings, with_profile: bool = False, with_refusals: bool = False) -> Html:
    """Return all fields, filled from `settings`. Flags add the profile's own model, and places for error messages."""
    return render(
        "explore/model_form.html",
        given=settings,
        refusals=with_refusals,
        sources={**(PROFILE if with_profile else {}), **SOURCES},
        files=",".join(MODEL_FILES),
        layouts=[(name, name) for name in LAYOUTS],
        longest={"model": LONGEST_NAME, "file": LONGEST_PATH, "classes": LONGEST_CLASSES},
    )
