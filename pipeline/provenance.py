"""What an image file says of itself to other programs: the `parameters` text and the IPTC digital source type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pipeline.images import fitted_size
from pipeline.profile import Profile

PARAMETERS_KEYWORD = "parameters"
"""Where AUTOMATIC1111's web UI, and all that read its files, look for the settings of an image."""
DRAWN_WHOLE = ("controlnet",)
"""The methods that draw every pixel anew; the source gives outlines only."""
_SOURCE_TYPES = "http://cv.iptc.org/newscodes/digitalsourcetype/"
_MODULES = {"canny": "canny", "soft edges": "softedge_hed", "line art": "lineart", "depth": "depth_midas"}
"""What the ControlNet extension calls the kinds of conditioning."""


def parameters(
    prompt: str,
    negative_prompt: str,
    seed: int,
    model: str,
    settings: Mapping[str, Any],
    size: tuple[int, int],
    sampler: str = "",
    made_by: str = "DILLEMA Studio",
) -> str:
    """The settings of an image in AUTOMATIC1111's words. `size` is the image's own (width, height).

    `settings` are those of a test case, and `model` names base model and ControlNet with a plus between. "Size" is
    the size that was generated, as there; the image may have been brought to another one since.
    """
    conditioning = settings.get("conditioning")
    conditioning = conditioning if isinstance(conditioning, Mapping) else {}
    base, _, control = model.partition(" + ")
    short_side = settings.get("short_side")
    width, height = fitted_size(size, short_side, 8) if isinstance(short_side, int) and short_side >= 8 else size
    kind = str(conditioning.get("kind", "canny"))
    network = {
        "Module": _MODULES.get(kind, kind),
        "Model": control,
        "Weight": settings.get("control_strength"),
        "Threshold A": conditioning.get("low") if kind == "canny" else None,
        "Threshold B": conditioning.get("high") if kind == "canny" else None,
    }
    fields = {
        "Steps": settings.get("steps"),
        "Sampler": sampler,
        "CFG scale": settings.get("guidance"),
        "Seed": seed,
        "Size": f"{width}x{height}",
        "Model": base,
        "ControlNet 0": _fields(network),
        "Version": made_by,
    }
    lines = [prompt.strip()]
    if negative_prompt.strip():
        lines.append(f"Negative prompt: {negative_prompt.strip()}")
    return "\n".join([*lines, _fields(fields)])


def xmp(method: str, made_by: str = "DILLEMA Studio") -> str:
    """The XMP packet that says, in IPTC's words, that a machine drew the image."""
    return (
        '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" '
        'xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/" '
        f'xmp:CreatorTool="{made_by}" Iptc4xmpExt:DigitalSourceType="{digital_source_type(method)}"/>'
        '</rdf:RDF></x:xmpmeta><?xpacket end="r"?>'
    )


def digital_source_type(method: str) -> str:
    """IPTC's term for how an image of this method came about.

    A ControlNet draws every pixel from noise: the source image gives outlines and nothing of its pixels is left, so
    that no part of the result may be taken for a photograph. That is `trainedAlgorithmicMedia`. A method that keeps
    pixels of the source, or is not known here, makes a `compositeWithTrainedAlgorithmicMedia`, which claims less.
    """
    return _SOURCE_TYPES + (
        "trainedAlgorithmicMedia" if method in DRAWN_WHOLE else "compositeWithTrainedAlgorithmicMedia"
    )


def sampler_name(profile: Profile) -> str:
    """The class of the scheduler that a profile draws with; "" where only its weights, on the hub, say so."""
    if profile.generator.scheduler is not None:
        return profile.generator.scheduler.name
    folder = profile.generator.local()
    if folder is None:
        return ""
    try:
        shipped = json.loads((folder / "scheduler" / "scheduler_config.json").read_text(encoding="utf-8"))
        return str(shipped["_class_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _fields(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {_quoted(str(value))}" for name, value in fields.items() if value not in (None, ""))


def _quoted(text: str) -> str:
    """As the web UI does it: a text that would be taken for more than one field becomes a JSON string."""
    return json.dumps(text, ensure_ascii=False) if any(mark in text for mark in ',:\n"') else text
