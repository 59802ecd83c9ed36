"""The map of images: a plane in which each image is a point, and similar images lie near each other.

There are two maps. PCA shows the plane in which the vectors differ most. It is computed at once and always shows all
embedded images. UMAP keeps neighbours together. A separate process makes the UMAP map, which takes minutes and at least
a few hundred MB. The map's points are stored until somebody makes the map again. Both maps lie in one coordinate
system, UMAP two units to the right of PCA, so the corners of a region also say on which map it lies. The same vectors
give the same points.
"""

from __future__ import annotations

import logging
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from core.errors import UserError
from core.image_filter import STANDINGS, UNREAD, Facet, ImageFilter
from core.latest import Latest
from pipeline.models.nearest import Floats, products
from services.commands import does
from services.curation.meaning import Meaning
from services.curation.views import REST, ShownColours
from services.work_queue import OnWork, WorkQueue, WorkView
from storage.curation import entry_sets
from storage.curation.entry_sets import Bits, Numbers
from storage.curation.vectors import VectorTable
from storage.workspace import Workspace

MapName = Literal["pca", "umap"]
MAPS: tuple[MapName, ...] = get_args(MapName)
SEED = 1
FEWEST = 20
"""Minimum number of images for UMAP, which uses fifteen neighbours of each image."""
MOST = 200_000
"""Maximum number of images for UMAP. More would take hours and gigabytes."""
SAMPLE = 16_384
"""Maximum number of images from which the directions of PCA are computed."""
UMAP_RIGHT = 2.0
"""Horizontal offset of the UMAP map from the PCA map. Each map is one unit wide and high."""
COLOURED = 11
"""Maximum number of values, such as classes, that have a colour of their own on the map."""
LOOK_SECONDS = 0.2
"""Seconds between two checks of the process that makes the UMAP map."""
MAKING = "making the map"
Region = Sequence[tuple[float, float]]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Layout:
    """Positions of the images on one of the maps."""

    entries: Numbers
    places: Floats
    """Shape (entries, 2): x to the right, y down. x is 0 to 1 on the PCA map, 2 to 3 on the UMAP map. y is 0 to 1."""


@dataclass(frozen=True)
class Category:
    """An entry of the map's legend: one colour."""

    name: str
    value: str
    """Value of the images with this colour; "" for all other values, and for images without a value."""
    count: int


@dataclass(frozen=True)
class MapPoints:
    """The points of the images that match a filter, for a page to draw."""

    entries: NDArray[np.uint32]
    places: NDArray[np.uint16]
    """Shape (points, 2): x and y, from 0 to 65,535 across the width and height of the map."""
    categories: NDArray[np.uint8]
    """Index into the legend for each point."""
    legend: tuple[Category, ...]
    missing: int
    """Number of matching images that are not on the map: they are not embedded yet, or newer than the map."""


class ImageMap:
    """The maps of one workspace. All methods may be called from any thread."""

    def __init__(self, workspace: Workspace, meaning: Meaning) -> None:
        self._workspace, self._meaning = workspace, meaning
        self._lock = threading.Lock()
        self._axes, self._pca, self._umap = Latest[_Axes](1), Latest[Layout](1), Latest[Layout](1)
        self._work = WorkQueue(name=MAKING)
        self.close = self._work.close
        """Stops making the UMAP map; called when the studio closes."""

    # Where images lie

    def layout(self, name: MapName) -> Layout | None:
        """Return the positions of the images on a map; None for UMAP before it is made."""
        table = self._meaning.table()
        return self._pca_of(table) if name == "pca" else self._umap_of(table)

    def _pca_of(self, table: VectorTable) -> Layout:
        number = len(table.entries)
        if not number:
            return Layout(table.entries, np.zeros((0, 2), np.float32))
        # The directions change only when the number of images has doubled, so that a region stays valid while images
        # are added.
        basis = table.version[0], 1 << (number.bit_length() - 1)
        with self._lock:
            axes = self._axes.once(basis, lambda: _axes_of(table.rows[: basis[1]]))
            return self._pca.once(table.version, lambda: Layout(table.entries, axes.places(table)))

    def _umap_of(self, table: VectorTable) -> Layout | None:
        path = self._kept(table)
        try:
            changed = path.stat().st_mtime_ns
        except FileNotFoundError:
            return None

        def read() -> Layout:
            coordinates = np.load(path)
            places = _in_unit(coordinates, coordinates.min(axis=0), coordinates.max(axis=0))
            places[:, 0] += UMAP_RIGHT
            return Layout(table.entries[: len(places)], places)

        with self._lock:
            return self._umap.once((table.version[0], changed), read)

    def inside(self, region: Region, allowed: Bits, colours: ShownColours | None = None) -> Bits:
        """Return the `allowed` entries in `region` (all if it is ()). With `colours`, only those of a shown colour."""
        if not region:
            return allowed
        middle = sorted(x for x, _ in region)[len(region) // 2]
        layout = self.layout("umap" if middle > (1 + UMAP_RIGHT) / 2 else "pca")
        if layout is None:
            return np.zeros_like(allowed)
        entries = layout.entries[_within(np.asarray(region, np.float32), layout.places)]
        if colours is not None:
            shown = [*(shown for _, shown in colours.values), colours.others, colours.none]
            has = self._categories(entries, colours.by, [value for value, _ in colours.values])
            entries = entries[np.array(shown)[has]]
        return allowed & entry_sets.of_entries(entries, len(allowed) // entry_sets.BYTES)

    def points(self, name: MapName, image_filter: ImageFilter, colour: str) -> MapPoints:
        """Return the points of the images that match a filter. `colour` names what the colours show: a facet such as
        "class", or "model:" and the name of a model under test.

        Raises UserError for UMAP before it is made.
        """
        layout = self.layout(name)
        if layout is None:
            raise UserError("There is no UMAP map yet: make it first.", field="map")
        allowed = self._workspace.catalogue.bits(image_filter)
        shown = np.flatnonzero(entry_sets.has(allowed, layout.entries))
        entries, places = layout.entries[shown], layout.places[shown]
        left = UMAP_RIGHT if name == "umap" else 0.0
        scaled = np.round((places - np.array([left, 0], np.float32)) * 65535).astype(np.uint16)
        categories, legend = self._coloured(entries, image_filter, colour)
        missing = entry_sets.size(allowed) - len(entries)
        return MapPoints(entries.astype(np.uint32), scaled, categories, legend, missing)

    def _coloured(
        self, entries: Numbers, image_filter: ImageFilter, colour: str
    ) -> tuple[NDArray[np.uint8], tuple[Category, ...]]:
        catalogue = self._workspace.catalogue
        if colour.startswith(_MODEL):
            names_by_value = {standing: standing for standing in (*STANDINGS, UNREAD)}
        else:
            facet: Facet = colour  # type: ignore[assignment]
            same: dict[bytes, list[str]] = {}
            for value in catalogue.facets(image_filter, (facet,), 3 * COLOURED)[facet]:
                has = entry_sets.has(catalogue.bits(_having(colour, value)), entries)
                if has.any():
                    same.setdefault(np.packbits(has).tobytes(), []).append(value)
            # Values that the same images have share one colour, such as the classes that are protected in all street
            # scenes.
            names_by_value = {
                values[0]: ", ".join(values[:3]) + (", …" if len(values) > 3 else "")
                for values in list(same.values())[:COLOURED]
            }
        colour_of = self._categories(entries, colour, list(names_by_value))
        counts = np.bincount(colour_of, minlength=len(names_by_value) + 2).tolist()
        names = [*((word, value) for value, word in names_by_value.items()), *((word, "") for word in REST)]
        return colour_of, tuple(Category(*one, count=count) for one, count in zip(names, counts, strict=True))

    def _categories(self, entries: Numbers, colour: str, values: Sequence[str]) -> NDArray[np.uint8]:
        """Return each entry's colour: the index of its first value in `values`, `len(values)` for any other value, and
        `len(values) + 1` without a value.
        """
        catalogue = self._workspace.catalogue
        colour_numbers = np.full(len(entries), len(values) + 1, np.uint8)
        colour_numbers[entry_sets.has(catalogue.bits(_having(colour)), entries)] = len(values)
        for place in range(len(values) - 1, -1, -1):
            colour_numbers[entry_sets.has(catalogue.bits(_having(colour, values[place])), entries)] = place
        return colour_numbers

    # UMAP, in a process of its own

    @property
    def available(self) -> bool:
        """Return True if UMAP is installed."""
        return find_spec("umap") is not None

    def making(self) -> WorkView | None:
        """Return the progress of the latest work on the UMAP map; None if it was stopped, or an hour after its end."""
        latest = next(iter(self._work.of(MAKING)), None)
        return None if latest is None or latest.stopping else latest

    @does("make-map")
    def make(self) -> None:
        """Make the UMAP map of all embedded images, in the background. Raises UserError if there are too few or too
        many images, if UMAP is not installed, or if the map is being made already.
        """
        table = self._meaning.table()
        number = len(table.entries)
        if not FEWEST <= number <= MOST:
            raise UserError(
                f"{number:,} images are embedded, but UMAP needs {FEWEST} to {MOST:,}: use PCA, which has no limit."
            )
        if not self.available:
            raise UserError("UMAP is not installed: pip install umap-learn, and start the studio again.")
        if self._work.going_on(MAKING, MAKING) is not None:
            raise UserError("The map is being made already: wait for it, or stop it.")
        self._work.start(MAKING, MAKING, partial(self._make, table))

    @does("stop-map")
    def stop(self) -> None:
        """Stop making the UMAP map; the earlier one stays."""
        if (work := self._work.going_on(MAKING, MAKING)) is not None:
            self._work.cancel(work.id)

    def _make(self, table: VectorTable, on_work: OnWork) -> None:
        rows = str(table.rows.filename)  # type: ignore[attr-defined]
        command = [sys.executable, "-m", "services.curation.umap_process", rows, *map(str, table.rows.shape), str(SEED)]
        with (
            tempfile.TemporaryFile() as output,
            subprocess.Popen(
                [*command, str(self._kept(table))],
                cwd=_ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                while process.poll() is None:
                    on_work(0, 0, _note(_printed(output)))
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(LOOK_SECONDS)
            finally:
                process.kill()
            if process.returncode:
                log.error("UMAP failed (%s): %s", process.returncode, _printed(output))
                raise UserError("UMAP failed: read the studio's terminal, or use PCA instead.")

    def _kept(self, table: VectorTable) -> Path:
        return self._workspace.vectors.folder / f"{table.version[0]}.umap.npy"


_MODEL = "model:"


def _having(colour: str, value: str = "") -> ImageFilter:
    """Return the filter for images with a `value` of the facet or model named by `colour`; "" matches any value."""
    if colour.startswith(_MODEL):
        return ImageFilter(models={colour.removeprefix(_MODEL): (value,)}) if value else ImageFilter()
    facet: Facet = colour  # type: ignore[assignment]
    return ImageFilter(facets={facet: (value,)}) if value else ImageFilter(without={facet: ("",)})


_ROOT = Path(__file__).resolve().parent.parent.parent
_STEPS: Mapping[str, str] = {
    "loading": "starting UMAP",
    "Finding Nearest Neighbors": "looking for neighbours",
    "Construct embedding": "placing images",
}


def _printed(output: IO[bytes]) -> str:
    """Return the first megabyte that a process has written, without moving the position at which it writes."""
    return os.pread(output.fileno(), 1_000_000, 0).decode(errors="replace")


def _note(output: str) -> str:
    _, step = max((output.rfind(mark), words) for mark, words in _STEPS.items())
    shares = re.findall(r"(\d+)%\|", output)
    return f"{step}, {shares[-1]} %" if shares and step == "placing images" else step


@dataclass(frozen=True)
class _Axes:
    """The two directions in which the vectors differ most, and the range of the images along them."""

    directions: Floats
    low: Floats
    high: Floats

    def places(self, table: VectorTable) -> Floats:
        return _in_unit(products(table.rows, self.directions), self.low, self.high)


def _axes_of(rows: NDArray[np.float16]) -> _Axes:
    sample = np.asarray(rows[:: max(1, math.ceil(len(rows) / SAMPLE))], np.float32)
    centred = sample - sample.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    directions = np.ascontiguousarray(vectors[:, -2:][:, ::-1].T if rows.shape[1] > 1 else np.ones((2, 1)), np.float32)
    # A direction and its opposite are equally good: choose the one whose largest component is positive.
    largest = directions[np.arange(2), np.abs(directions).argmax(axis=1)]
    directions *= np.where(largest < 0, -1, 1)[:, None]
    drawn = sample @ directions.T
    return _Axes(directions, drawn.min(axis=0), drawn.max(axis=0))


def _in_unit(drawn: Floats, low: Floats, high: Floats) -> Floats:
    """Scale positions to the unit square, equally in x and y, with a margin. Positions outside move to its edge."""
    scale = max(float((high - low).max()), 1e-6)
    fitted = 0.5 + (drawn - (low + high) / 2) * (0.96 / scale)
    return np.clip(fitted, 0, 1).astype(np.float32)


def _within(corners: Floats, places: Floats) -> Numbers:
    """Return the indices of positions inside a polygon: their ray to the right crosses an odd number of edges."""
    low, high = corners.min(axis=0), corners.max(axis=0)
    near = np.flatnonzero(np.all((places >= low) & (places <= high), axis=1))
    x, y = places[near, 0], places[near, 1]
    inside = np.zeros(len(near), bool)
    for (x1, y1), (x2, y2) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y1 != y2:
            crossed = ((y1 > y) != (y2 > y)) & (x < (x2 - x1) * (y - y1) / (y2 - y1) + x1)
            inside ^= crossed
    return near[inside].astype(np.int64)
