"""What an image file says of itself to other programs: the `parameters` text and the IPTC digital source type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline.images import fitted_size
from pipeline.profile import Profile
from pipeline.weight_hashes import weights_hash

PARAMETERS_KEYWORD = "parameters"
"""Where AUTOMATIC1111's web UI, and all that read its files, look for the settings of an image."""
DRAWN_WHOLE = ("controlnet",)
"""The methods that draw every pixel anew; the source gives outlines only."""
_SOURCE_TYPES = "http://cv.iptc.org/newscodes/digitalsourcetype/"
MODEL_DIGITS, UNIT_DIGITS = 10, 8
"""Of the hash of a model, and of a ControlNet: as many as the web UI and its extension write."""
_SAMPLERS = {
    "DDIMScheduler": "DDIM",
    "PNDMScheduler": "PLMS",
    "EulerDiscreteScheduler": "Euler",
    "EulerAncestralDiscreteScheduler": "Euler a",
    "HeunDiscreteScheduler": "Heun",
    "LMSDiscreteScheduler": "LMS",
    "UniPCMultistepScheduler": "UniPC",
    "LCMScheduler": "LCM",
}
"""What the web UI calls the schedulers of diffusers; one that is not here keeps its own name."""
_MODULES = {"canny": "canny", "soft edges": "softedge_hed", "line art": "lineart", "depth": "depth_midas"}
"""What the ControlNet extension calls the kinds of conditioning."""


@dataclass(frozen=True)
class MadeWith:
    """What only the profile knows of how its images are drawn."""

    sampler: str = ""
    """The class of the scheduler, as diffusers calls it."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """sha256 of the weights, by the name that the test cases have for a model."""


def parameters(
    prompt: str,
    negative_prompt: str,
    seed: int,
    model: str,
    settings: Mapping[str, Any],
    size: tuple[int, int],
    made_with: MadeWith | None = None,
    made_by: str = "DILLEMA Studio",
) -> str:
    """The settings of an image in AUTOMATIC1111's words. `size` is the image's own (width, height).

    `settings` are those of a test case, and `model` names base model and ControlNet with a plus between. "Size" is
    the size that was generated, as there; the image may have been brought to another one since. Models are called
    what a file of them would be called, with the first digits of their hash: the denoising network's, since there is
    no checkpoint file here whose hash could be given.
    """
    made_with = made_with or MadeWith()
    conditioning = settings.get("conditioning")
    conditioning = conditioning if isinstance(conditioning, Mapping) else {}
    base, _, control = model.partition(" + ")
    short_side = settings.get("short_side")
    width, height = fitted_size(size, short_side, 8) if isinstance(short_side, int) and short_side >= 8 else size
    kind = str(conditioning.get("kind", "canny"))
    network = {
        "Module": _MODULES.get(kind, kind),
        "Model": _unit_model(control, made_with.hashes.get(control, "")),
        "Weight": settings.get("control_strength"),
        "Threshold A": conditioning.get("low") if kind == "canny" else None,
        "Threshold B": conditioning.get("high") if kind == "canny" else None,
    }
    fields = {
        "Steps": settings.get("steps"),
        "Sampler": _SAMPLERS.get(made_with.sampler, made_with.sampler),
        "CFG scale": settings.get("guidance"),
        "Seed": seed,
        "Size": f"{width}x{height}",
        "Model hash": made_with.hashes.get(base, "")[:MODEL_DIGITS],
        "Model": _file_name(base),
        "ControlNet 0": _fields(network),
        "Version": made_by,
    }
    lines = [prompt.strip()]
    if negative_prompt.strip():
        lines.append(f"Negative prompt: {negative_prompt.strip()}")
    return "\n".join([*lines, _fields(fields)])


def _unit_model(title: str, sha: str) -> str:
    """A ControlNet as the extension names it, such as control_canny [d14c016b]."""
    return f"{_file_name(title)} [{sha[:UNIT_DIGITS]}]" if sha else _file_name(title)


def _file_name(title: str) -> str:
    """The last part of a path or of an id on the hub: other programs know a model by its file alone."""
    name = re.split(r"[\\/]", title.rstrip("/"))[-1]
    return re.sub(r"\.(safetensors|ckpt|pt|bin)$", "", name)


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


def made_with(profile: Profile, kind: str = "canny") -> MadeWith:
    """What the profile knows of images that are drawn on this kind of control image. Loads no weights."""
    generator = profile.generator
    hashes = {generator.title: weights_hash(generator, "unet")}
    hashes |= {net.title: weights_hash(net) for known, net in generator.controlnets.items() if known == kind}
    return MadeWith(sampler_name(profile), hashes)


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
