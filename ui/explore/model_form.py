"""The fields that name another model under test, the same in Explore and on the page Evaluate. Fields that a kind of
model does not have are hidden (`studio.css`) and not sent. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from core.settings import UnderTestSettings
from services.evaluation.model_choice import LONGEST_CLASSES, LONGEST_NAME, LONGEST_PATH
from services.evaluation.model_files import SOURCES as MODEL_FILES
from ui.markup import Html
from ui.templating import render

SOURCES: Mapping[str, str] = {
    "torchvision": "torchvision, by name",
    "timm": "timm, by name",
    "transformers": "the hub (transformers), owner/name",
    "file": "a checkpoint file",
    "onnx": "an ONNX file",
    "http": "a server of the profile",
}
"""Sources of another model."""
PROFILE = {"profile": "the profile's own"}
LAYOUTS = ("channels first", "channels last")
"""Order of the axes in the input of an ONNX file."""
KNOWN = (
    "resnet50",
    "resnet18",
    "convnext_tiny",
    "efficientnet_b0",
    "vit_b_16",
    "swin_t",
    "mobilenet_v3_large",
    "deeplabv3_resnet50",
    "fcn_resnet50",
    "lraspp_mobilenet_v3_large",
)
"""Suggestions while a name is typed. Any other name of torchvision or timm is accepted too."""


def model_fields(settings: UnderTestSettings, with_profile: bool = False, with_refusals: bool = False) -> Html:
    """Return all fields, filled from `settings`. Flags add the profile's own model, and places for error messages."""
    return render(
        "explore/model_form.html",
        given=settings,
        refusals=with_refusals,
        sources={**(PROFILE if with_profile else {}), **SOURCES},
        files=",".join(MODEL_FILES),
        layouts=[(name, name) for name in LAYOUTS],
        known=KNOWN,
        longest={"model": LONGEST_NAME, "file": LONGEST_PATH, "classes": LONGEST_CLASSES},
    )
