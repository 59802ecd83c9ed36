"""Writes an image's origin into its file, for other programs: `parameters` text and IPTC digital source type."""

from __future__ import annotations

import json

from core.lineage import Lineage, MethodSettings
from pipeline.methods import method_of
from pipeline.profiles.image_sections import DrawingModel
from pipeline.profiles.profile import Profile
from pipeline.run_files.webui import MadeWith, joined

PARAMETERS_KEYWORD = "parameters"
"""Key under which AUTOMATIC1111's web UI, and programs that read its files, look for the settings of an image."""
_SOURCE_TYPES = "http://cv.iptc.org/newscodes/digitalsourcetype/"


def parameters(
    lineage: Lineage,
    size: tuple[int, int],
    made_with: MadeWith | None = None,
    made_by: str = "DILLEMA Studio",
) -> str:
    """Return the settings of an image of `size` (width, height) as a text in the form of AUTOMATIC1111's web UI. In
    this text, "Size" is the drawn size. The text names a model by its file and by the first digits of a hash. This is
    the hash of the denoising network, since there is no checkpoint file.
    """
    fields = method_of(lineage.method).parameters(lineage, size, made_with or MadeWith())
    lines = [lineage.prompt.strip()]
    if lineage.negative_prompt.strip():
        lines.append(f"Negative prompt: {lineage.negative_prompt.strip()}")
    return "\n".join([*lines, joined({**fields, "Version": made_by})])


def xmp(method: str, made_by: str = "DILLEMA Studio") -> str:
    """Return the XMP packet that says, in IPTC's words, that a machine drew the image."""
    return (
        '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        '<rdf:Description rdf:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/" '
        'xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/" '
        f'xmp:CreatorTool="{made_by}" Iptc4xmpExt:DigitalSourceType="{digital_source_type(method)}"/>'
        '</rdf:RDF></x:xmpmeta><?xpacket end="r"?>'
    )


def digital_source_type(method: str) -> str:
    """Return IPTC's term for the origin of an image. It is `trainedAlgorithmicMedia` if the method draws every pixel.
    Otherwise it is `compositeWithTrainedAlgorithmicMedia`, as the image may contain parts of a photograph.
    """
    return _SOURCE_TYPES + (
        "trainedAlgorithmicMedia" if method_of(method).draws_whole else "compositeWithTrainedAlgorithmicMedia"
    )


def made_with(profile: Profile, method: str, settings: MethodSettings) -> MadeWith:
    """Return the scheduler's class name and the hashes of the weights that draw. Loads no weights."""
    description = method_of(method)
    model = description.drawn_by(profile)
    return MadeWith("" if model is None else _scheduler(model), description.weight_hashes(profile, settings))


def _scheduler(model: DrawingModel) -> str:
    """Return the class name of a model's scheduler, or "" if the weights that name it are not on this machine."""
    if model.scheduler is not None:
        return model.scheduler.name
    folder = model.local()
    if folder is None:
        return ""
    try:
        shipped = json.loads((folder / "scheduler" / "scheduler_config.json").read_text(encoding="utf-8"))
        return str(shipped["_class_name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
