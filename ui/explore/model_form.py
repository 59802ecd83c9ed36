"""The fields by which a person names another model under test: the same in Explore and on the page Evaluate. What a
kind of model does not have is not shown (`studio.css`), and not sent. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.settings import UnderTestSettings
from services.evaluation.model_choice import LONGEST_CLASSES, LONGEST_NAME, LONGEST_PATH
from services.evaluation.model_files import SOURCES as MODEL_FILES
from ui.explore.parts import text_line
from ui.markup import Child, Html, el

SOURCES: Mapping[str, str] = {
    "torchvision": "torchvision, by name",
    "timm": "timm, by name",
    "transformers": "the hub (transformers), owner/name",
    "file": "a checkpoint file",
    "onnx": "an ONNX file",
    "http": "a server of the profile",
}
"""Where another model may come from."""
PROFILE = {"profile": "the profile's own"}
LAYOUTS = ("channels first", "channels last")
"""Of the pixels that an ONNX file takes."""
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
"""Proposed while a name is typed; any other of torchvision or timm is taken too."""
_NUMBERS, _SIZE = 100, 20
"""Characters of three numbers, and of a size, as the settings take them."""


@dataclass(frozen=True)
class _Field:
    """A line of text that is typed."""

    name: str
    label: Child
    of: str
    """The sources that have it, with spaces between."""
    placeholder: str
    longest: int
    hint: Child = ""


_FIELDS = (
    _Field(
        "model",
        [
            el("span", "Name", data_of="torchvision timm transformers file"),
            el("span", "Address", data_of="http"),
        ],
        "torchvision timm transformers file http",
        "",
        LONGEST_NAME,
        [
            el("span", "such as resnet50", data_of="torchvision timm"),
            el("span", "such as google/vit-base-patch16-224, or empty and a folder as file", data_of="transformers"),
            el(
                "span",
                "its architecture: resnet50, timm:resnet50; empty where the file says it",
                data_of="file",
            ),
            el("span", "one that the profile names, such as http://localhost:8000", data_of="http"),
        ],
    ),
    _Field(
        "file",
        "File",
        "file onnx transformers",
        "/models/mine.safetensors",
        LONGEST_PATH,
        "a path on the machine of the studio; no pickled code",
    ),
    _Field("mean", "Mean", "file onnx", "0.485, 0.456, 0.406", _NUMBERS, "of each channel, 0 to 1"),
    _Field("std", "Deviation", "file onnx", "0.229, 0.224, 0.225", _NUMBERS, "standard deviation of each channel"),
    _Field("size", "Size", "file onnx", "224", _SIZE, "224, or width x height; empty where the file says it"),
)

_CLASSES = _Field(
    "classes",
    "Classes",
    "file onnx http",
    "bird, boat, house",
    LONGEST_CLASSES,
    "in order, with commas between; empty where the model says them",
)


def model_fields(given: UnderTestSettings, with_profile: bool = False, with_refusals: bool = False) -> Html:
    """All fields, filled from `given`. Flags offer the profile's own model, and places for what is wrong."""

    def row(
        name: str, label: Child, of: str | None, control: Html, hint: Child = "", look: str = "", tag: str = "label"
    ) -> Html:
        return el(
            tag,
            el("span", label, class_="name"),
            el("span", control, el("small", hint, class_="mut") if hint else None, class_="control"),
            el("p", "", class_="wrong", data_problem=name, role="alert") if with_refusals else None,
            class_=f"field-row {look}".strip(),
            data_of=of,
        )

    sources = {**(PROFILE if with_profile else {}), **SOURCES}
    picker = el(
        "input",
        type="file",
        accept=",".join(MODEL_FILES),
        data_model_file=True,
        aria_label="A file of your own: .safetensors, .pt, .pth, .onnx, or a zip of a folder of transformers",
    )
    upload = el("label", "Upload a file", picker, class_="btn s file")
    sent = el("small", "", class_="mut", data_sent=True, role="status")
    options = [el("option", words, value=name, selected=name == given.source) for name, words in sources.items()]
    source = el("select", options, name="source", aria_label="Where the model comes from")
    layouts = [el("option", name, value=name, selected=name == given.layout) for name in LAYOUTS]
    values = {"model": given.address or given.name, "file": given.file}
    values |= {"mean": given.mean, "std": given.std, "size": given.size}
    return el(
        "div",
        row("source", "From", None, el("span", source, upload, sent, class_="with-upload"), tag="div"),
        [row(one.name, one.label, one.of, _text(one, values[one.name]), one.hint) for one in _FIELDS],
        row("layout", "Layout", "onnx", el("select", layouts, name="layout")),
        row("classes", "Classes", "file onnx http", _text(_CLASSES, given.classes), _CLASSES.hint, "whole"),
        el("datalist", [el("option", value=name) for name in KNOWN], id="known-models"),
        class_="model-fields",
    )


def _text(one: _Field, value: str) -> Html:
    return text_line(
        name=one.name,
        value=value,
        placeholder=one.placeholder or None,
        maxlength=one.longest,
        spellcheck="false",
        list="known-models" if one.name == "model" else None,
    )
