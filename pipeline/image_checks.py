"""Checks of a generated image against its source: are the edges still there, does the edit show, is it still the label.

Each gives a `Check` with its figure, a threshold with a reason, and a sentence for a person. CLIP similarities are
cosines of unit vectors, from -1 to 1. Knows no models beyond the embedder's seam.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipeline.conditioning import edges
from pipeline.seams import Embedder
from pipeline.settings import ConditioningSettings
from pipeline.types import Check, CounterfactualCaption, Task

EDGES_KEPT = 0.6
"""Measured on drawn scenes: of a scene under another look 0.80 to 1.00 of the edges are found again (5th to 95th
percentile), of another scene 0.14 to 0.50."""
IMAGE_IMAGE = 0.6
"""Measured likewise with the demo's CLIP: 0.64 to 0.93 for another weather or hour, up to 0.69 for another scene.
InstructPix2Pix asked for 0.75 of edits that leave most of the image alone; another weather changes every pixel."""
IMAGE_TEXT, DIRECTION = 0.2, 0.2
"""Where InstructPix2Pix (Brooks, Holynski, Efros, CVPR 2023, section 3.1) drew the line when it chose edited images by
CLIP; drawn scenes under the look that their caption asks for reach 0.45 and 0.67."""
LABEL_SCALE = 100.0
"""What CLIP multiplies its cosines with before they become probabilities (its learnt temperature)."""
WHITE = 127


def image_checks(
    source: Image.Image,
    image: Image.Image,
    control: Image.Image,
    source_caption: str,
    counterfactual: CounterfactualCaption,
    task: Task,
    embedder: Embedder | None,
    labels: Sequence[str] = (),
    conditioning: ConditioningSettings | None = None,
    drawn: Image.Image | None = None,
) -> tuple[Check, ...]:
    """All checks of one image. `source` and `image` are RGB of the same size; `labels` are the classes that the label
    is told apart from. Without an embedder, a caption or labels, what needs them is left out.

    Edges are looked for at the size at which was drawn, since their thresholds count in pixels: in `drawn`, the image
    before it was brought to the source's size, or in `image` where that was not needed. `control` has that size.
    """
    settings, drawn = conditioning or ConditioningSettings(), drawn or image
    # Only a Canny control image holds edges that can be looked for; for others those of the source are taken.
    wanted = control if settings.kind == "canny" else _outlines(source, drawn.size, settings)
    checks = [edges_kept(drawn, wanted, settings)]
    if embedder is None:
        return tuple(checks)
    before, after, text = embedder.image(source), embedder.image(image), embedder.text(counterfactual.text)
    edited = source_caption != counterfactual.text
    if edited:  # of a caption that was left as it is, nothing is to show
        checks.append(edit_shows(before, after, text))
    checks += [close_to_source(before, after), fits_caption(after, text)]
    if edited and source_caption.strip():
        checks.append(edit_direction(before, after, embedder.text(source_caption), text))
    others = [label for label in dict.fromkeys(labels) if label.casefold() != task.label.casefold()]
    if task.kind == "classification" and task.label and others:
        checks.append(label_seen(after, task.label, others, embedder))
    return tuple(checks)


def edges_kept(image: Image.Image, control: Image.Image, conditioning: ConditioningSettings) -> Check:
    """Recall of the control's edges in the image's edges, 0 to 1.

        edges kept = |{p in C : some q in E with max(|px - qx|, |py - qy|) <= t}| / |C|

    C are the white pixels of the control image, E the Canny edges of the generated image under the same settings, and
    t, the tolerance, is 1 pixel for every 128 of the short side, at most 4: a redrawn border moves a little.
    """
    import cv2

    wanted = np.asarray(control.convert("L"), np.uint8) > WHITE
    if not wanted.any():
        return Check("edges kept", True, None, "")
    found = edges(np.asarray(image.convert("RGB"), np.uint8), conditioning)
    reach = 2 * edge_tolerance(image.size) + 1
    near: NDArray[np.uint8] = np.asarray(cv2.dilate(found, np.ones((reach, reach), np.uint8)), np.uint8)
    kept = float((near[wanted] > 0).mean())
    note = "Much of the source's outlines is missing in the image: something may have moved or vanished."
    return _check("edges kept", kept >= EDGES_KEPT, kept, note)


def edge_tolerance(size: tuple[int, int]) -> int:
    """How far, in pixels, an edge may have moved and still count as kept."""
    return max(1, min(4, round(min(size) / 128)))


def edit_shows(before: Sequence[float], after: Sequence[float], text: Sequence[float]) -> Check:
    """Whether the generated image is closer to the counterfactual caption than the source image is."""
    value, was = _product(after, text), _product(before, text)
    note = "The image is no closer to its caption than the source image is: the edit may not show."
    return _check("edit shows", value > was, value - was, note)


def close_to_source(before: Sequence[float], after: Sequence[float]) -> Check:
    """CLIP similarity of the two images: a test case changes something, not everything."""
    value = _product(before, after)
    note = "The image has become very unlike its source: more may have changed than was asked for."
    return _check("like the source", value >= IMAGE_IMAGE, value, note)


def fits_caption(after: Sequence[float], text: Sequence[float]) -> Check:
    """CLIP similarity of the image and its caption."""
    value = _product(after, text)
    return _check("fits its caption", value >= IMAGE_TEXT, value, "The image does not look like its caption.")


def edit_direction(
    before: Sequence[float], after: Sequence[float], source_text: Sequence[float], text: Sequence[float]
) -> Check:
    """Directional CLIP similarity: whether the image changed the way its caption changed.

        cos(I(generated) - I(source), T(counterfactual caption) - T(caption))

    From StyleGAN-NADA (Gal et al., SIGGRAPH 2022), as InstructPix2Pix measures edits with it.
    """
    pictures, words = _difference(after, before), _difference(text, source_text)
    lengths = math.hypot(*pictures) * math.hypot(*words)
    value = _product(pictures, words) / lengths if lengths > 1e-9 else 0.0
    note = "The image did not change the way its caption did: the edit may not show, or something else changed."
    return _check("edit direction", value >= DIRECTION, value, note)


def label_seen(after: Sequence[float], label: str, others: Sequence[str], embedder: Embedder) -> Check:
    """Zero-shot label: the probability that CLIP gives the label among all labels; it must be the likeliest."""
    names = [label, *others]
    scores = [LABEL_SCALE * _product(after, embedder.text(f"A photo of a {name}.")) for name in names]
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    first = max(range(len(names)), key=lambda place: scores[place])
    note = f"The image looks more like “{names[first]}” than like its label “{label}”."
    return _check("label seen", first == 0, weights[0] / sum(weights), note)


def _outlines(source: Image.Image, size: tuple[int, int], settings: ConditioningSettings) -> Image.Image:
    fitted = source if source.size == size else source.resize(size, Image.Resampling.LANCZOS)
    return Image.fromarray(edges(np.asarray(fitted.convert("RGB"), np.uint8), settings))


def _check(name: str, passed: bool, value: float, note: str) -> Check:
    return Check(name, passed, value, "" if passed else note)


def _difference(a: Sequence[float], b: Sequence[float]) -> list[float]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _product(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
