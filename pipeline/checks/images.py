"""Checks of a generated image against its source: are the edges still there, does the edit show, is it still the label.

Each gives a `Check` with its figure, a threshold with a reason, and a sentence for a person. CLIP similarities are
cosines of unit vectors, from -1 to 1. Knows no models beyond the embedder's seam.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.masks import LARGE_PIECE, UNLABELLED, NamedMask
from core.settings import ConditioningSettings
from core.thresholds import Band
from core.types import Check, CounterfactualCaption, Task
from core.words import Span, find_phrase
from pipeline.conditioning import edges
from pipeline.seams import Embedder, Vector

EDGES_KEPT = 0.6
"""Measured on drawn scenes: of a scene under another look 0.80 to 1.00 of the edges are found again (5th to 95th
percentile), of another scene 0.14 to 0.50."""
EDGES_IN_PLACE = "edges in place"
"""What the check of the edges is called of an image that no control image held. Measured on 120 drawn scenes at 128 and
512 pixels, from the 5th to the 95th percentile: of the same geometry under another look, however dark or foggy, 0.24 to
1.00 (medians 0.70 to 0.86); the same moved sideways by 4 % of the width 0.07 to 0.55 (medians 0.25 to 0.32); of another
scene -0.03 to 0.29."""
DIRECTION = 0.2
FORMS_KEPT = "forms kept"
"""What the check of the forms in the mask is called."""
INVERTED = "source inverted"
"""What the check of the inversion is called of an image that was drawn from its inverted source."""
MOST_DECIBELS = 100.0
"""An inversion without any error, whose figure is infinite, is told as this one."""
BANDS: Mapping[str, Band] = {
    "edges kept": Band(failed_below=EDGES_KEPT, passed_from=EDGES_KEPT),
    FORMS_KEPT: Band(failed_below=0.0, passed_from=0.75),
    "edit shows": Band(failed_below=0.0, passed_from=0.0),
    "like the source": Band(failed_below=0.6, passed_from=0.6),
    "fits its caption": Band(failed_below=0.2, passed_from=0.2),
    "edit direction": Band(failed_below=DIRECTION, passed_from=DIRECTION),
    "label seen": Band(failed_below=0.0, passed_from=0.0),
    INVERTED: Band(failed_below=25.0, passed_from=35.0),
}
"""What holds for an embedder whose profile sets no band of its own (`demo.calibrate` sets those of the demo). For its
caption and the direction it is where InstructPix2Pix (Brooks, Holynski, Efros, CVPR 2023, section 3.1) drew the line
when it chose edited images by CLIP; of source and image it asked for 0.75 of edits that leave most of the image alone,
and another weather changes every pixel. An edit shows, and a label is seen, where the image is nearer to what it should
be than to anything else. Of forms only drawn scenes were measured (see docs/demo-report.md), where texture misleads
nobody: by itself it blames no image, it only says where to look.
"""
IN_PLACE = Band(failed_below=0.3, passed_from=0.6)
"""For `EDGES_IN_PLACE`, as it was measured: half of those that moved fail, and most of those that did not pass."""
FORM_SIDE = 128
"""Forms are compared at this short side, in pixels, where their lines were measured."""
WHITE = 127
SHAPELESS = ("sky", "water")
"""Classes that have no form of their own: clouds, stars and waves come and go with the weather."""
_FLAT, _STEEP = 1.5, 4.0
"""Grey values a pixel: below the first nothing rises, above the second an outline may be."""
_OUTLINE = 40
"""As many pixels of outline say something of a form."""
_NO_OUTLINES = "The source has no outlines that could be looked for."
_NOT_INVERTED = (
    "The source is not found again in its noise: take more steps or inversion evaluations, or start from noise."
)
_MISSING = "Much of the source's outlines is missing in the image: something may have moved or vanished."


def image_checks(
    source: Image.Image,
    image: Image.Image,
    control: Image.Image | None,
    source_caption: str,
    counterfactual: CounterfactualCaption,
    task: Task,
    embedder: Embedder | None,
    labels: Sequence[str] = (),
    conditioning: ConditioningSettings | None = None,
    drawn: Image.Image | None = None,
    mask: NamedMask | None = None,
    lines: Mapping[str, Band] = BANDS,
    psnr: float | None = None,
) -> tuple[Check, ...]:
    """All checks of one image. `source` and `image` are RGB of the same size; `labels` are the classes that the label
    is told apart from. Without an embedder, a caption, labels or a mask, what needs them is left out.

    Edges are looked for at the size at which was drawn, since their thresholds count in pixels: in `drawn`, the image
    before it was brought to the source's size, or in `image` where that was not needed. `control` has that size;
    without one, nothing held the image, and its edges are compared with those of the source (`edges_in_place`).
    `lines` hold where the profile's embedder sets none of its own. `psnr` is that of the source's inversion, if there
    was one.
    """
    settings, drawn = conditioning or ConditioningSettings(), drawn or image
    # Only a Canny control image holds edges that can be looked for; for others those of the source are taken.
    bands = {**BANDS, EDGES_IN_PLACE: IN_PLACE, **lines, **getattr(embedder, "bands", {})}
    if control is None:
        outlines = _outlines(source, drawn.size, settings)
        checks = [edges_in_place(drawn, outlines, settings, bands[EDGES_IN_PLACE])]
    else:
        wanted = control if settings.kind == "canny" else _outlines(source, drawn.size, settings)
        checks = [edges_kept(drawn, wanted, settings, bands["edges kept"])]
    if mask is not None and task.kind == "segmentation":
        forms = forms_kept(source, image, mask, bands[FORMS_KEPT])
        checks += [forms] if forms is not None else []
    if psnr is not None:
        checks.append(bands[INVERTED].judge(INVERTED, round(min(psnr, MOST_DECIBELS), 1), _NOT_INVERTED))
    if embedder is None:
        return tuple(checks)
    before, after, text = embedder.image(source), embedder.image(image), embedder.text(counterfactual.text)
    edited = source_caption != counterfactual.text
    if edited:  # of a caption that was left as it is, nothing is to show
        unedited = [embedder.text(other) for other in without_edits(source_caption, counterfactual)]
        checks.append(edit_shows(before, after, text, unedited, bands["edit shows"]))
    checks += [
        close_to_source(before, after, bands["like the source"]),
        fits_caption(after, text, bands["fits its caption"]),
    ]
    if edited and source_caption.strip():
        source_text = embedder.text(source_caption)
        checks.append(edit_direction(before, after, source_text, text, bands["edit direction"]))
    if others := _other_labels(task, labels):
        checks.append(label_seen(before, after, counterfactual.text, task.label, others, embedder, bands["label seen"]))
    return tuple(checks)


def texts_compared(
    source_caption: str, counterfactual: CounterfactualCaption, task: Task, labels: Sequence[str] = ()
) -> tuple[str, ...]:
    """The texts that `image_checks` has embedded for an image, each once."""
    texts = [counterfactual.text]
    if source_caption != counterfactual.text:
        texts += without_edits(source_caption, counterfactual)
    if others := _other_labels(task, labels):
        texts += [_labelled(counterfactual.text, task.label, name) for name in (task.label, *others)]
    return tuple(dict.fromkeys(texts))


def _other_labels(task: Task, labels: Sequence[str]) -> list[str]:
    if task.kind != "classification" or not task.label:
        return []
    return [label for label in dict.fromkeys(labels) if label.casefold() != task.label.casefold()]


def _labelled(caption: str, label: str, name: str) -> str:
    spans = find_phrase(caption, label)
    return _with(caption, spans, name) if spans else f"A photo of a {name}."


def without_edits(source_caption: str, counterfactual: CounterfactualCaption) -> tuple[str, ...]:
    """What the image would show had an edit not been made: the source's caption, and of several edits the new caption
    with each of them taken back.
    """
    texts = [source_caption] if source_caption.strip() else []
    if len(counterfactual.edits) > 1:
        for edit in counterfactual.edits:
            spans = find_phrase(counterfactual.text, edit.alternative)
            texts += [_with(counterfactual.text, spans, edit.keyword)] if spans else []
    return tuple(dict.fromkeys(texts))


def edges_kept(
    image: Image.Image, control: Image.Image, conditioning: ConditioningSettings, band: Band = BANDS["edges kept"]
) -> Check:
    """Recall of the control's edges in the image's edges, 0 to 1.

        edges kept = |{p in C : some q in E with max(|px - qx|, |py - qy|) <= t}| / |C|

    C are the white pixels of the control image, E the Canny edges of the generated image under the same settings, and
    t, the tolerance, is 1 pixel for every 128 of the short side, at most 4: a redrawn border moves a little.
    """
    wanted = np.asarray(control.convert("L"), np.uint8) > WHITE
    if not wanted.any():
        return Check("edges kept", None, None, _NO_OUTLINES)
    return band.judge("edges kept", float(_near_edges(image, conditioning)[wanted].mean()), _MISSING)


def edges_in_place(
    image: Image.Image, outlines: Image.Image, conditioning: ConditioningSettings, band: Band = IN_PLACE
) -> Check:
    """How much more of the source's `outlines` is found again in the image than chance would find: 1 for all of them, 0
    for as many as anywhere else, less than 0 for fewer.

        edges in place = (edges kept - c) / max(1 - c, 0.1)

    c is the share of the whole image that is as near to one of its edges. An image that is full of edges, such as noise
    or a picture that was drawn all anew, keeps those of any source; held to no control image, it has to do better.
    """
    wanted = np.asarray(outlines.convert("L"), np.uint8) > WHITE
    if not wanted.any():
        return Check(EDGES_IN_PLACE, None, None, _NO_OUTLINES)
    near = _near_edges(image, conditioning)
    chance = float(near.mean())
    return band.judge(EDGES_IN_PLACE, (float(near[wanted].mean()) - chance) / max(1 - chance, 0.1), _MISSING)


def _near_edges(image: Image.Image, conditioning: ConditioningSettings) -> NDArray[np.bool_]:
    """Where an edge of the image is within the tolerance, (height, width)."""
    import cv2

    found = edges(np.asarray(image.convert("RGB"), np.uint8), conditioning)
    reach = 2 * edge_tolerance(image.size) + 1
    return np.asarray(cv2.dilate(found, np.ones((reach, reach), np.uint8))) > 0


def edge_tolerance(size: tuple[int, int]) -> int:
    """How far, in pixels, an edge may have moved and still count as kept."""
    return max(1, min(4, round(min(size) / 128)))


def forms_kept(
    source: Image.Image, image: Image.Image, mask: NamedMask, band: Band = BANDS[FORMS_KEPT]
) -> Check | None:
    """Whether the outlines of every large piece of the mask run as they do in the source; the figure, 0 to 1, is that
    of the piece where they do least. What melts has outlines too, but they run elsewhere. None where no piece is large
    enough, or has outlines.

        form kept = mean over p in O of cos^2(angle between grad source(p) and grad image(p))

    O are the pixels of the piece where the source is steepest. By chance it is 0.5, whatever the contrast. Measured on
    242 drawn roads, of their least piece but the sky: 0.68 or more of the same scene under another look.
    """
    import cv2

    width, height = source.size
    scale = min(1.0, FORM_SIDE / min(source.size))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    shown, made = (
        np.asarray(one.convert("RGB").resize(size, Image.Resampling.BOX), np.uint8) for one in (source, image)
    )
    numbers = np.asarray(mask.image.resize(size, Image.Resampling.NEAREST))
    before_x, before_y = gradients(np.asarray(cv2.medianBlur(shown, 3), np.uint8))  # rain and snow have no form
    after_x, after_y = gradients(made)
    steep, there = np.hypot(before_x, before_y), np.hypot(after_x, after_y)
    along = (before_x * after_x + before_y * after_y) / np.maximum(steep * there, 1e-6)
    along = np.where(there > _FLAT, along**2, 0.0)
    least: tuple[float, str] | None = None
    for number in (int(one) for one in np.unique(numbers)):
        name = mask.classes.get(number, str(number))
        if number == UNLABELLED or name.casefold() in SHAPELESS:
            continue
        count, pieces = cv2.connectedComponents((numbers == number).astype(np.uint8))
        for one in range(1, count):
            piece: NDArray[np.uint8] = np.asarray(pieces == one, np.uint8)
            if piece.sum() < LARGE_PIECE * piece.size:
                continue
            around = cv2.dilate(piece, np.ones((3, 3), np.uint8)) > 0
            outline = around & (steep > max(_STEEP, 0.3 * float(np.quantile(steep[around], 0.98))))
            if outline.sum() >= _OUTLINE:
                kept = (float(along[outline].mean()), name)
                least = min(least or kept, kept)
    if least is None:
        return None
    note = f"Outlines of “{least[1]}” run otherwise than in the source: something may have melted."
    check = band.judge(FORMS_KEPT, least[0], note)
    return Check(check.name, None, check.value, note, check.threshold) if check.passed is None else check


def gradients(pixels: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """How steeply an RGB image, (height, width, 3), rises to the right and downwards, in grey values a pixel: at every
    pixel that of the colour that rises most.
    """
    import cv2

    smooth = cv2.GaussianBlur(pixels.astype(np.float32), (0, 0), 0.7)
    right, down = (cv2.Sobel(smooth, cv2.CV_32F, *axis, ksize=3) / 8 for axis in ((1, 0), (0, 1)))
    most = (right**2 + down**2).argmax(2)[..., None]
    x, y = (np.take_along_axis(np.asarray(one), most, 2)[..., 0] for one in (right, down))
    return x, y


def edit_shows(
    before: Vector, after: Vector, text: Vector, unedited: Sequence[Vector], band: Band = BANDS["edit shows"]
) -> Check:
    """How much closer the generated image is to its caption than to what it would show `unedited`.

    Where nobody said what the source shows: how much closer to its caption it is than the source image.
    """
    other = max((_product(after, one) for one in unedited), default=_product(before, text))
    note = "The image looks like the scene without the edit rather than like its caption: the edit may not show."
    return band.judge("edit shows", _product(after, text) - other, note)


def close_to_source(before: Vector, after: Vector, band: Band = BANDS["like the source"]) -> Check:
    """CLIP similarity of the two images: a test case changes something, not everything."""
    note = "The image has become very unlike its source: more may have changed than was asked for."
    return band.judge("like the source", _product(before, after), note)


def fits_caption(after: Vector, text: Vector, band: Band = BANDS["fits its caption"]) -> Check:
    """CLIP similarity of the image and its caption."""
    return band.judge("fits its caption", _product(after, text), "The image does not look like its caption.")


def edit_direction(
    before: Vector, after: Vector, source_text: Vector, text: Vector, band: Band = BANDS["edit direction"]
) -> Check:
    """Directional CLIP similarity: whether the image changed the way its caption changed.

        cos(I(generated) - I(source), T(counterfactual caption) - T(caption))

    From StyleGAN-NADA (Gal et al., SIGGRAPH 2022), as InstructPix2Pix measures edits with it.
    """
    pictures, words = _difference(after, before), _difference(text, source_text)
    lengths = math.hypot(*pictures) * math.hypot(*words)
    value = _product(pictures, words) / lengths if lengths > 1e-9 else 0.0
    note = "The image did not change the way its caption did: the edit may not show, or something else changed."
    return band.judge("edit direction", value, note)


def label_seen(
    before: Vector,
    after: Vector,
    caption: str,
    label: str,
    others: Sequence[str],
    embedder: Embedder,
    band: Band = BANDS["label seen"],
) -> Check:
    """How much closer the image is to its caption than to the same caption with the likeliest other label.

    An embedder that sees another label in the source already cannot tell.
    """

    def asked(name: str) -> Vector:
        return embedder.text(_labelled(caption, label, name))

    own, texts = asked(label), {name: asked(name) for name in others}
    likeliest = max(others, key=lambda name: _product(after, texts[name]))
    value = _product(after, own) - _product(after, texts[likeliest])
    seen_in_source = _product(before, own) - max(_product(before, text) for text in texts.values())
    if seen_in_source < min(0.0, band.failed_below):
        note = f"CLIP does not see “{label}” in the source either, so what it sees here says nothing."
        return Check("label seen", None, value, note, band.passed_from)
    note = f"The image looks more like “{likeliest}” than like its label “{label}”."
    return band.judge("label seen", value, note)


def _with(text: str, spans: Sequence[Span], words: str) -> str:
    for start, end in reversed(spans):
        text = text[:start] + words + text[end:]
    return text


def _outlines(source: Image.Image, size: tuple[int, int], settings: ConditioningSettings) -> Image.Image:
    fitted = source if source.size == size else source.resize(size, Image.Resampling.LANCZOS)
    return Image.fromarray(edges(np.asarray(fitted.convert("RGB"), np.uint8), settings))


def _difference(a: Vector, b: Vector) -> list[float]:
    return [x - y for x, y in zip(a, b, strict=True)]


def _product(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))
