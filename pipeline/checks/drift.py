"""Drift of an edited image: measures a shift and zoom of the whole picture against its source, and undoes them.

An edit changes colours, light and weather, so only the directions of outlines are compared. The measure is the
correlation of doubled gradient angles (Fitch, Kadyrov, Christmas, Kittler: Orientation correlation, BMVC 2002),
normalised over the overlap (Padfield: Masked object registration in the Fourier domain, 2012). It is computed for all
shifts at each of several zooms. A rotation, or a single thing that moved, is not detected.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.types import Check, Data

FRAMING_KEPT = "framing kept"
LEAST_COVERED = 0.95
"""Minimum share of the source's frame that a drifted image must show. An image that shows less is not moved back into
place, since the border to fill would be too wide."""
IN_PLACE = 0.0075
"""Maximum shift of a corner, as a share of the sides, that is left uncorrected."""
_CERTAIN = 0.2
"""Minimum margin by which the correlation at the best shift must exceed those at all distant shifts."""
_SIDE = 192
"""Short side, in pixels, at which images are compared. Smaller images keep their size."""
_ZOOMS = np.exp(np.linspace(-0.22, 0.22, 23))
"""Zooms that are tried: 0.80 to 1.25, 2 % apart. The best zoom is refined by interpolation with its two neighbours."""
_ELSEWHERE = 0.04
"""Distance from the best shift, as a share of the short side, beyond which another shift counts as distant."""
_LEAST_OVERLAP = 0.5
"""Minimum share of the source that a shifted image must overlap. Smaller overlaps may match by chance."""


class Drift(Data):
    """Zoom and shift of an image. A point (x, y) of its source lies in the image at zoom * (x, y) + (right, down). All
    coordinates are counted from the centre, in shares of width and height.
    """

    zoom: float
    right: float
    down: float

    @property
    def moved(self) -> float:
        """Largest distance by which a corner of the image moved, as a share of the sides."""
        grown = abs(self.zoom - 1) / 2
        return math.hypot(grown + abs(self.right), grown + abs(self.down))

    @property
    def covered(self) -> float:
        """Share of the source's frame that the image shows, 0 to 1."""
        shown = 1.0
        for shift in (self.right, self.down):
            ends = ((-0.5 - shift) / self.zoom, (0.5 - shift) / self.zoom)
            shown *= max(0.0, min(0.5, ends[1]) - max(-0.5, ends[0]))
        return shown

    def matrix(self, size: tuple[int, int]) -> NDArray[np.float64]:
        """Return the 2 x 3 matrix that maps the source's pixels to the image's, both of `size` (width, height)."""
        rows = [
            ((1 - self.zoom) * (side - 1) / 2 + shift * side)
            for side, shift in zip(size, (self.right, self.down), strict=True)
        ]
        return np.array([[self.zoom, 0, rows[0]], [0, self.zoom, rows[1]]])

    def words(self, size: tuple[int, int]) -> str:
        """Return the drift in words, such as "shifted by 12 px (4.7 %) to the right", for an image of `size`."""
        shifts = [
            f"{abs(shift) * side:.0f} px ({100 * abs(shift):.1f} %) {ways[shift > 0]}"
            for shift, side, ways in (
                (self.right, size[0], ("to the left", "to the right")),
                (self.down, size[1], ("upwards", "downwards")),
            )
            if round(abs(shift) * side)
        ]
        shifted = ["shifted by " + " and ".join(shifts)] if shifts else []
        return " and ".join(
            [*shifted, *([f"zoomed to {100 * self.zoom:.1f} %"] if abs(self.zoom - 1) > 0.0005 else [])]
        )


def drift_of(source: Image.Image, image: Image.Image) -> Drift | None:
    """Measure the shift and zoom of an image against its source of the same size. None if the best fit is not clear."""
    import cv2

    scale = min(1.0, _SIDE / min(source.size))
    size = (max(2, round(source.width * scale)), max(2, round(source.height * scale)))
    before, after = (_directions(one.convert("RGB").resize(size, Image.Resampling.BOX)) for one in (source, image))
    width, height = size
    frame = np.ones((height, width), np.float32)
    places = _Places(before)

    def at(zoom: float) -> NDArray[np.float32]:
        matrix = Drift(zoom=zoom, right=0, down=0).matrix(size)
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        inside, *parts = (
            np.asarray(cv2.warpAffine(np.ascontiguousarray(one), matrix, size, flags=flags))
            for one in (frame, after.real, after.imag)
        )
        shown: NDArray[np.bool_] = inside > 0.99
        return places.correlation(np.asarray((parts[0] + 1j * parts[1]) * shown, np.complex64), shown)

    best = [float(at(zoom).max()) for zoom in _ZOOMS]
    most = int(np.argmax(best))
    step = math.log(_ZOOMS[1] / _ZOOMS[0])
    around = best[most - 1 : most + 2]
    zoom = float(_ZOOMS[most]) * math.exp(step * (_top(*around) if len(around) == 3 else 0.0))
    correlations = at(zoom)
    rows, columns = correlations.shape
    row, column = divmod(int(correlations.argmax()), columns)
    down = row + _top(*(float(correlations[(row + one) % rows, column]) for one in (-1, 0, 1)))
    right = column + _top(*(float(correlations[row, (column + one) % columns]) for one in (-1, 0, 1)))
    score, reach = float(correlations[row, column]), max(3, round(_ELSEWHERE * min(size)))
    near = np.arange(-reach, reach + 1)
    correlations[np.ix_((row + near) % rows, (column + near) % columns)] = -1
    if score - float(correlations.max()) < _CERTAIN:
        return None
    right, down = (side - total if side > total / 2 else side for side, total in ((right, columns), (down, rows)))
    return Drift(zoom=round(zoom, 5), right=round(zoom * right / width, 5), down=round(zoom * down / height, 5))


def moved_back(image: Image.Image, drift: Drift) -> Image.Image:
    """Undo a drift. Where the image does not reach the border of the frame, its outermost pixels are repeated."""
    import cv2

    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    pixels = np.asarray(image.convert("RGB"), np.uint8)
    matrix = drift.matrix(image.size)
    back = cv2.warpAffine(pixels, matrix, image.size, flags=flags, borderMode=cv2.BORDER_REPLICATE)
    return Image.fromarray(np.asarray(back, np.uint8))


def can_move_back(drift: Drift | None) -> bool:
    """Return True if a drift is worth undoing: it is visible, and undoing it leaves only a narrow border to fill."""
    return drift is not None and drift.moved > IN_PLACE and drift.covered >= LEAST_COVERED


def framing_kept(drift: Drift | None, size: tuple[int, int]) -> Check:
    """Check the share (0 to 1) of the source's frame that an image of `size` (width, height) shows. It fails below
    `LEAST_COVERED`, and gives no verdict if `drift` is None. The note describes the drift, and whether it was undone.
    """
    if drift is None:
        note = "Its outlines are too unlike those of the source to tell whether the picture was shifted or zoomed."
        return Check(FRAMING_KEPT, None, None, note)
    covered, note = drift.covered, ""
    if covered < LEAST_COVERED:
        lost = f"it shows {100 * covered:.0f} % of the source's frame, so masks and boxes do not fit it"
        note = f"The picture was {drift.words(size)}: {lost}."
    elif can_move_back(drift):
        border = f"; the border, {100 * (1 - covered):.1f} % of it, repeats the pixels beside it"
        note = f"The picture was {drift.words(size)} and has been moved back{border if covered < 0.9995 else ''}."
    return Check(FRAMING_KEPT, covered >= LEAST_COVERED, covered, note, LEAST_COVERED)


class _Places:
    """Correlates directions of outlines in an image with those in one source, for all shifts at once."""

    def __init__(self, directions: NDArray[np.complex64]) -> None:
        from scipy import fft

        self._fft, self._count = fft, directions.size
        self._shape = tuple(fft.next_fast_len(2 * side) for side in directions.shape)
        self._source, self._energy, self._frame = (
            np.conj(self._of(one)) for one in (_parts(directions), np.abs(directions) ** 2, np.ones(directions.shape))
        )

    def _of(self, values: NDArray[np.generic]) -> NDArray[np.complex64]:
        return np.asarray(self._fft.rfft2(values.astype(np.float32), self._shape))

    def correlation(self, directions: NDArray[np.complex64], shown: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return the correlation, -1 to 1, at each shift (down, right); shifts up or left wrap around. `shown` is True
        at pixels that the image covers. The correlation is -1 at shifts with too little overlap.
        """

        def back(values: NDArray[np.complex64]) -> NDArray[np.float32]:
            return np.asarray(self._fft.irfft2(values, self._shape))

        inside = self._of(shown)
        energies = back(self._energy * inside) * back(self._frame * self._of(np.abs(directions) ** 2))
        enough = back(self._frame * inside) > _LEAST_OVERLAP * self._count
        both = back((self._source * self._of(_parts(directions))).sum(axis=0))
        return np.where(enough, both / np.sqrt(np.maximum(energies, 1e-3)), np.float32(-1))


def _parts(directions: NDArray[np.complex64]) -> NDArray[np.float32]:
    """Return the real and the imaginary parts, (2, height, width). Their transforms take half of the time of a complex
    one.
    """
    return np.stack([directions.real, directions.imag])


def _directions(picture: Image.Image) -> NDArray[np.complex64]:
    """Return the direction of steepest change at each pixel, as a complex number. Its angle is doubled, so that light
    on dark equals dark on light. Its length is 0 in flat areas and near 1 at outlines, independent of contrast.
    """
    import cv2

    from pipeline.checks.images import gradients

    right, down = gradients(np.asarray(cv2.medianBlur(np.asarray(picture, np.uint8), 3), np.uint8))
    steep = np.hypot(right, down)
    usual = max(1.0, float(np.quantile(steep, 0.8)))
    length = np.where(steep > 0.5, steep / (steep + usual), 0.0)
    return np.asarray((right + 1j * down) ** 2 / np.maximum(steep**2, 1e-6) * length, np.complex64)


def _top(left: float, middle: float, right: float) -> float:
    """Return the offset, -0.5 to 0.5 from the middle, of the maximum of a parabola through three equidistant values."""
    bend = left - 2 * middle + right
    return 0.0 if bend >= 0 else max(-0.5, min(0.5, (left - right) / (2 * bend)))
