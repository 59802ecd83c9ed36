"""Subjects as arrays of pixels: cut out by GrabCut, moved, and put in front of a background. Pure; knows no model."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.settings import CompositeSettings

Mask = NDArray[np.bool_]
"""(height, width): True on the subject."""
Box = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels, as in Pillow."""
Matrix = tuple[float, float, float, float, float, float]
"""Affine map (a, b, c, d, e, f): pixel (x, y) of the source moves to (a x + b y + c, d x + e y + f) in the picture."""
LONGEST = 512
"""Long side, in pixels, at which GrabCut works."""
EPSILON = 6.5
"""Regularisation of the guided filter: 1e-4 * 255**2. Differences far below its root (2.5 grey levels) are noise."""
INSIDE, TRIES = 0.9, 20
"""Minimum share of a moved subject that must lie in the picture, and maximum number of random moves tried for that."""


def cut_out(image: Image.Image, box: Box | None = None, points: Sequence[tuple[int, int, bool]] = ()) -> Mask:
    """Return the mask of the subject: pixels that differ in colour from their surroundings, within the `box` if there
    is one. Points are on the subject (True) or beside it (False). Uses GrabCut (Rother, Kolmogorov, Blake 2004) of
    OpenCV.
    """
    import cv2

    scale = min(1.0, LONGEST / max(image.size))
    small = image.resize([max(1, round(side * scale)) for side in image.size], Image.Resampling.BOX)
    labels = np.full((small.height, small.width), cv2.GC_PR_BGD if box is None else cv2.GC_BGD, np.uint8)
    if box is not None:
        left, top, right, bottom = (round(side * scale) for side in box)
        labels[top : max(bottom, top + 1), left : max(right, left + 1)] = cv2.GC_PR_FGD
    labels[[0, -1]], labels[:, [0, -1]] = cv2.GC_BGD, cv2.GC_BGD  # GrabCut needs some background to learn from
    for x, y, on in points:
        place = (round(x * scale), round(y * scale))
        cv2.circle(labels, place, max(2, max(small.size) // 40), cv2.GC_FGD if on else cv2.GC_BGD, -1)
    if not np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).any():
        return np.zeros((image.height, image.width), np.bool_)
    cv2.setRNGSeed(0)
    models = np.zeros((1, 65)), np.zeros((1, 65))
    pixels = np.ascontiguousarray(np.asarray(small.convert("RGB"), np.uint8))
    cv2.grabCut(pixels, labels, None, *models, 5, cv2.GC_INIT_WITH_MASK)
    found = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    return np.asarray(Image.fromarray(255 * found).resize(image.size, Image.Resampling.BILINEAR)) >= 128


def move_of(settings: CompositeSettings, seed: int, subject: Mask) -> Matrix | None:
    """Return the random move that belongs to a seed, within the bounds of the settings, or None for no move. At least
    `INSIDE` of the subject stays in the picture. If `TRIES` random moves do not achieve that, the subject is not moved.
    """
    if not settings.moves:
        return None
    (height, width), rng = subject.shape, random.Random(seed)
    rows, columns = np.nonzero(subject)
    middle = np.array([columns.mean(), rows.mean()])
    for _ in range(TRIES):
        turn = np.deg2rad(rng.uniform(-settings.rotation, settings.rotation))
        factor = settings.scale ** rng.uniform(-1, 1)
        mirror = -1 if settings.flip and rng.random() < 0.5 else 1
        shift = [rng.uniform(-settings.shift, settings.shift) * side for side in (width, height)]
        linear = factor * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) * [mirror, 1]
        offset = middle + shift - linear @ middle
        x, y = linear @ np.stack([columns, rows]) + offset[:, None]
        if ((x >= 0) & (x <= width - 1) & (y >= 0) & (y <= height - 1)).mean() >= INSIDE:
            a, b, c, d, e, f = (float(one) for one in np.column_stack([linear, offset]).ravel())
            return a, b, c, d, e, f
    return None


def moved(image: Image.Image, subject: Mask, matrix: Matrix | None) -> tuple[NDArray[np.uint8], Mask]:
    """Return the picture (height, width, 3) and the subject's mask, both moved. Within the mask, the subject's colours
    are not mixed with its surroundings.
    """
    import cv2

    pixels = np.asarray(image.convert("RGB"), np.uint8)
    if matrix is None:
        return pixels, subject
    alpha = subject.astype(np.float32)
    place, size = np.reshape(matrix, (2, 3)), image.size
    share = np.asarray(cv2.warpAffine(alpha, place, size))[..., None]
    colours = np.asarray(cv2.warpAffine(pixels * alpha[..., None], place, size)) / np.maximum(share, 1e-6)
    around = np.asarray(cv2.warpAffine(pixels, place, size, borderMode=cv2.BORDER_REPLICATE))
    return np.where(share >= 0.5, np.rint(colours).clip(0, 255), around).astype(np.uint8), share[..., 0] >= 0.5


def composed(
    subject: NDArray[np.uint8], mask: Mask, background: Image.Image, soften: int, rim: Literal["fade", "hair"] = "fade"
) -> Image.Image:
    """Return the subject in front of a background of the same size. Pixels within the mask stay as they are. In a rim
    of `soften` pixels around the mask, the subject fades out, or with `rim` "hair" only its hair is kept.
    """
    import cv2

    behind, colours, alpha = np.asarray(background.convert("RGB")), subject.astype(np.float32), mask.astype(np.float32)
    if soften:
        distance = np.asarray(cv2.distanceTransform((~mask).astype(np.uint8), cv2.DIST_L2, 5))
        if rim == "hair":
            alpha, colours = _matted(colours, alpha, soften, distance)
        else:
            alpha = np.clip(1 - distance / (soften + 1), 0, 1)
    mixed = behind + alpha[..., None] * (colours - behind)
    return Image.fromarray(np.where(mask[..., None], subject, np.rint(mixed)).clip(0, 255).astype(np.uint8))


def _matted(
    pixels: NDArray[np.float32], mask: NDArray[np.float32], width: int, distance: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the share of the subject in each pixel, and the subject's colours without the old background. The share is
    a guided filter of the mask (He, Sun, Tang, TPAMI 2013, with a colour image). The colours follow Forte, Approximate
    Fast Foreground Colour Estimation, ICIP 2021.
    """
    import cv2

    def mean(values: Any) -> NDArray[np.float32]:
        return np.asarray(cv2.blur(values, (2 * width + 1,) * 2))

    at, means = mask[..., None], mean(pixels)
    products = [np.stack([mean(pixels[..., i] * pixels[..., j]) for j in range(3)], -1) for i in range(3)]
    spread = np.stack(products, -1) - means[..., None] * means[..., None, :] + EPSILON * np.eye(3, dtype=np.float32)
    slopes = np.linalg.solve(spread, (mean(pixels * at) - means * mean(mask)[..., None])[..., None])[..., 0]
    offsets = mean(mask) - (slopes * means).sum(-1)
    found = ((mean(slopes) * pixels).sum(-1) + mean(offsets)).clip(0, 1)
    alpha = np.where(mask > 0, 1, np.where(distance > width, 0, found)).astype(np.float32)
    at = alpha[..., None]
    front, back = (mean(pixels * share) / (mean(share)[..., None] + 1e-5) for share in (at, 1 - at))
    return alpha, front + at * (pixels - at * front - (1 - at) * back)
