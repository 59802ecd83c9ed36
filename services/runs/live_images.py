"""Pictures kept in memory for a short time: control images while a person changes a threshold, and previews.

Simple control images are computed at once. Control images that a model must draw are drawn on request.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from core.errors import UserError
from core.images import SIDE_MULTIPLE, fit
from core.latest import Latest
from core.masks import NamedMask
from core.settings import ConditioningSettings, ControlKind, Settings
from core.stored_runs import Run
from pipeline.conditioning import Gradients, as_png, control_image, edges_in, gradients, painted
from pipeline.profiles.image_sections import DRAWN_BY_MODEL
from pipeline.seams import Detector
from storage.workspace import Workspace

KEPT_PREVIEWS = 8
"""Number of latest previews kept: a page may ask for one just after the next arrived."""
Pixels = NDArray[np.uint8]


class ControlImages:
    """Computes and caches the control images of a workspace's runs."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._sources = Latest[str](256)
        self._fitted = Latest[Pixels](3)
        self._slopes = Latest[Gradients](4)
        self._done = Latest[bytes](48)
        self._drawn = Latest[Pixels](8)

    def png(self, run_id: str, settings: ConditioningSettings, side: int, longest: int = 0) -> bytes | None:
        """Return the control image of a run's source as the bytes of a PNG file; None if a model must draw it first.

        The image is computed with `side` pixels on its short side, then scaled down to `longest` pixels on its long
        side (0: not scaled). Raises UserError for an unknown run, and for a segmentation map if the run has no mask.
        """
        sha = self._sources.once(run_id, lambda: self._workspace.runs.get(run_id).source_sha)
        if settings.kind == "segmentation":
            return as_png(self._map(self._workspace.runs.get(run_id), side), longest)
        key = _key(sha, settings, side)
        if settings.kind not in DRAWN_BY_MODEL:
            return self._done.once((key, longest), lambda: as_png(self._canny(sha, settings, side), longest))
        drawn = self._drawn.get(key)
        return None if drawn is None else as_png(drawn, longest)

    def has(self, run: Run, settings: Settings) -> bool:
        """Return True if the control image can be shown at once: it needs no model, or a model has drawn it."""
        key = _key(run.source_sha, settings.conditioning, settings.generation.short_side)
        return settings.conditioning.kind not in DRAWN_BY_MODEL or self._drawn.get(key) is not None

    def draw(self, run: Run, settings: Settings, detector: Callable[[ControlKind], Detector]) -> None:
        """Let a model draw a run's control image, and store it. Raises the errors of loading the model."""
        side, conditioning = settings.generation.short_side, settings.conditioning
        drawn = control_image(Image.fromarray(self.fitted(run.source_sha, side)), conditioning, detector)
        self._drawn.put(_key(run.source_sha, conditioning, side), np.asarray(drawn, np.uint8))

    def fitted(self, sha: str, side: int) -> Pixels:
        """Return a source image in the generator's size, `side` pixels on the short side: RGB, shape (h, w, 3)."""

        def make() -> Pixels:
            return np.asarray(fit(self._workspace.images.load(sha).convert("RGB"), side, SIDE_MULTIPLE), np.uint8)

        return self._fitted.once((sha, side), make)

    def _canny(self, sha: str, settings: ConditioningSettings, side: int) -> Pixels:
        key = (sha, side, settings.median, settings.stretch)
        return edges_in(self._slopes.once(key, lambda: gradients(self.fitted(sha, side), settings)), settings)

    def _map(self, run: Run, side: int) -> Pixels:
        if run.mask_sha is None:
            raise UserError("A segmentation map needs a mask, and this run has none: add a mask.")
        mask = NamedMask(self._workspace.images.load(run.mask_sha), run.mask_classes)
        height, width = self.fitted(run.source_sha, side).shape[:2]
        return np.asarray(painted(mask, (width, height)), np.uint8)


def _key(sha: str, settings: ConditioningSettings, side: int) -> tuple[object, ...]:
    settings_of_kind = settings.model_dump(include=set(settings.own_fields()))
    return sha, side, settings.kind, tuple(sorted(settings_of_kind.items()))


class Previews:
    """Previews of images being drawn, each under an unguessable name. Thread-safe."""

    def __init__(self) -> None:
        self._latest = Latest[bytes](KEPT_PREVIEWS)
        self.png = self._latest.get
        """Returns the bytes of a preview by name, or None if it is unknown or forgotten."""

    def put(self, image: Image.Image) -> str:
        """Store an RGB image and return its name."""
        file, name = io.BytesIO(), secrets.token_urlsafe(18)
        image.save(file, "PNG", compress_level=1)
        self._latest.put(name, file.getvalue())
        return name
