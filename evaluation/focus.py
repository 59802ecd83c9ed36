"""Measures which part of an image a classifier uses: Grad-CAM maps for the true class (Selvaraju et al., ICCV 2017),
and figures computed from these maps.

All figures are 0 to 1. Pointing game (Zhang et al., IJCV 2018): 1 if the highest place of the map is in the mask.
Relevance mass (Arras et al., Information Fusion 2022): the share of the map that is in the mask. Insertion and deletion
(Petsiuk et al., BMVC 2018): the mean probability of the true class. Insertion sharpens a blurred picture step by step;
deletion makes a picture grey. The map's highest pixels come first. AIC and SIC (Kapishnikov et al., ICCV 2019) are from
`saliency`. Purity: the share of similar images of other sources that have the same label. Loads torch at first use.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from core.data_files import DataTable
from core.errors import UserError
from core.figures import Figure, Flags, Floats, Numbers
from core.latest import Latest
from evaluation.adapters.network import extremes, logits_of
from evaluation.by_source import MeansOfSources, shares_of_sources

POINTING, MASS, SHARE = "pointing game", "relevance mass", "share of the mask"
INSERTION, DELETION, AIC, SIC, PURITY = "insertion", "deletion", "AIC", "SIC", "purity"
FIGURES = (POINTING, MASS, SHARE, INSERTION, DELETION, AIC, SIC, PURITY)
"""Names of the figures. `SHARE` is the mask's share of the image. A random map has this `POINTING` and this `MASS`."""
FEWEST = 20
"""Minimum number of images to report a mean."""
STEPS = 50
"""Number of steps of insertion and deletion. Each step changes equally many pixels."""
NEIGHBOURS = 10
THRESHOLDS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.1, 0.13, 0.21, 0.34, 0.5, 0.75)
"""Shares of the pixels that stay sharp in AIC and SIC, as chosen by the authors of `saliency`."""
REASONS = DataTable(__file__, str, "reasons")
"""Reasons why an image has no AIC or SIC. The key is a word of the error message of `saliency`."""


@dataclass(frozen=True, eq=False)
class Look:
    """The Grad-CAM map of an image, and figures computed from it."""

    figures: Mapping[str, float]
    """Figures by name. A figure that cannot be computed is missing."""
    layer: str
    """Name of the network's layer behind the map: the last one whose features lie on a grid."""
    features: Floats
    picture: bytes
    """WebP picture of the model's input, with the map in red and the outline of the mask."""
    left_out: Mapping[str, str] | None = None
    """Reasons why AIC or SIC is missing, by the figure's name; None before they were computed."""


class GradCam:
    """Computes Grad-CAM maps of a torch network. One thread at a time may use it."""

    def __init__(self, name: str, net: Any, prepare: Callable[[Any], Any], at_once: int) -> None:
        """`prepare` turns an RGB image into the network's input, (3, h, w). One call takes `at_once` images."""
        self._name, self._net, self._prepare, self._at_once = name, net, prepare, at_once
        self._black, self._white = (each.astype(np.float32)[:, None, None] for each in extremes(prepare))
        self._device, self._layer = next(net.parameters()).device, ""

    def look(self, image: Image.Image, classes: Sequence[int], mask: Image.Image | None = None) -> Look:
        """Return the Grad-CAM map of an image for the numbers of its true classes. `mask` is white on the subject.
        Raises UserError if no layer of the network has features on a grid.
        """
        pixels, inside = self._pixels(image), None
        found, features = self._map(pixels, classes)
        figures = dict(zip((INSERTION, DELETION), self._revealed(pixels, found, classes), strict=True))
        if mask is not None:
            inside = ((self._pixels(mask) - self._black) / (self._white - self._black)).mean(axis=0) > 0.5
            if inside.any():  # else the model's input does not show the subject
                figures[SHARE] = float(inside.mean())
                if found.max() > 0:
                    figures[POINTING] = float(inside.flat[found.argmax()])
                    figures[MASS] = float(found[inside].sum() / found.sum())
        return Look(figures, self._layer, features, _shown(self._picture(pixels), found, inside))

    def informed(self, look: Look, image: Image.Image, classes: Sequence[int], seed: int) -> Look:
        """Return `look` plus the figures AIC and SIC, which use random pixels. Give all models the same `seed`."""
        pixels, pic = self._pixels(image), _saliency()
        found, _ = self._map(pixels, classes)
        known = np.zeros(found.size, bool)
        known[np.random.default_rng(seed).choice(found.size, int(0.01 * found.size), replace=False)] = True

        def ask(pictures: NDArray[np.uint8]) -> Floats:
            shares = pictures.astype(np.float32).transpose(0, 3, 1, 2) / 255
            return self._ask(self._black + shares * (self._white - self._black))

        requested = {
            SIC: lambda pictures: ask(pictures)[:, list(classes)].sum(axis=1),
            AIC: lambda pictures: np.isin(ask(pictures).argmax(axis=1), classes).astype(float),
        }
        figures, left_out = dict(look.figures), dict[str, str]()
        for name, predict in requested.items():
            whole = self._picture(pixels), found, known.reshape(found.shape)
            try:
                figures[name] = float(pic.compute_pic_metric(*whole, predict, THRESHOLDS).auc)
            except pic.ComputePicMetricError as error:
                left_out[name] = next(reason for words, reason in REASONS.items() if words in str(error))
        return replace(look, figures=figures, left_out=left_out)

    def _pixels(self, image: Image.Image) -> NDArray[Any]:
        return np.asarray(self._prepare(image.convert("RGB")), np.float32)

    def _picture(self, pixels: NDArray[Any]) -> NDArray[np.uint8]:
        shares = (pixels - self._black) / (self._white - self._black)
        return (255 * shares.clip(0, 1)).round().astype(np.uint8).transpose(1, 2, 0)

    def _ask(self, pixels: NDArray[Any]) -> Floats:
        """Return the class probabilities (images, classes) of prepared images (images, 3, h, w)."""
        import torch

        found = []
        with torch.inference_mode():
            for first in range(0, len(pixels), self._at_once):
                some = torch.from_numpy(np.ascontiguousarray(pixels[first : first + self._at_once], np.float32))
                found.append(logits_of(self._net(some.to(self._device))).float().softmax(1).cpu().numpy())
        return np.concatenate(found).astype(np.float64)

    def _map(self, pixels: NDArray[Any], classes: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the map, (h, w) like the pixels, and the mean of each channel of the layer's features."""
        import torch

        image = torch.from_numpy(pixels[None]).to(self._device).requires_grad_()
        self._layer = self._layer or self._last_grid(image)
        outputs: list[Any] = []

        def keep(_module: Any, _inputs: Any, output: Any) -> Any:
            outputs.append(output)
            return output.clone()  # the next layer may change it in place

        hook = self._net.get_submodule(self._layer).register_forward_hook(keep)
        try:
            logits = logits_of(self._net(image)).float()
        finally:
            hook.remove()
        (gradient,) = torch.autograd.grad(logits[0, list(classes)].logsumexp(0), outputs[-1])
        grid, slope = (_channels_first(one.detach(), pixels.shape[1:]) for one in (outputs[-1], gradient))
        found = (slope.mean((2, 3), keepdim=True) * grid).sum(1, keepdim=True).relu()
        whole = torch.nn.functional.interpolate(found, size=pixels.shape[1:], mode="bilinear", align_corners=False)
        return whole[0, 0].cpu().numpy().astype(np.float64), grid.mean((2, 3))[0].cpu().numpy().astype(np.float64)

    def _last_grid(self, image: Any) -> str:
        import torch

        last = ""

        def note(name: str, _module: Any, _inputs: Any, output: Any) -> None:
            nonlocal last
            if isinstance(output, torch.Tensor) and output.ndim == 4 and min(output.shape[2:]) > 1:
                last = name
            elif isinstance(output, torch.Tensor) and output.ndim == 3 and output.shape[1] > 1:
                last = ""  # tokens follow: the grid before them says little about the answer

        hooks = [each.register_forward_hook(partial(note, name)) for name, each in self._net.named_modules() if name]
        try:
            with torch.no_grad():
                self._net(image)
        finally:
            for hook in hooks:
                hook.remove()
        if not last:
            raise UserError(
                f"{self._name} does not keep its features on a grid of the image up to its last layers, so Grad-CAM "
                "cannot show where it looks: take a convolutional network."
            )
        return last

    def _revealed(self, pixels: NDArray[Any], found: Floats, classes: Sequence[int]) -> tuple[float, float]:
        import torch
        from torchvision.transforms.v2.functional import gaussian_blur

        side = min(found.shape)
        width, sigma = 2 * max(1, round(5 * side / 224)) + 1, 5 * side / 224  # 11 and 5 pixels of 224, as published
        blurred = gaussian_blur(torch.from_numpy(pixels), [width, width], [sigma, sigma]).numpy()
        rank = np.empty(found.size, np.int64)
        rank[np.argsort(-found, axis=None, kind="stable")] = np.arange(found.size)
        taken = [rank.reshape(found.shape) < edge for edge in np.linspace(0, found.size, STEPS + 1).round()]
        grey = np.broadcast_to((self._black + self._white) / 2, pixels.shape)
        areas = []
        for start, end in ((blurred, pixels), (pixels, grey)):
            steps = np.stack([np.where(one, end, start) for one in taken])
            areas.append(float(np.trapezoid(self._ask(steps)[:, list(classes)].sum(axis=1), dx=1 / STEPS)))
        return areas[0], areas[1]


def _channels_first(features: Any, size: Sequence[int]) -> Any:
    """Return features as (images, channels, rows, columns). Some networks put the channels last."""
    wide, (_, one, two, three) = size[1] / size[0], features.shape
    return features.permute(0, 3, 1, 2) if abs(three / two - wide) > abs(two / one - wide) else features


def _shown(picture: NDArray[np.uint8], found: Floats, inside: Flags | None) -> bytes:
    strength = 0.75 * (found / (found.max() or 1.0))[:, :, None]
    shown = Image.fromarray((picture * (1 - strength) + strength * np.array([235, 60, 40])).round().astype(np.uint8))
    if inside is not None:
        mask = Image.fromarray(inside.astype(np.uint8) * 255)
        rim = np.asarray(mask) != np.asarray(mask.filter(ImageFilter.MinFilter(3)))
        shown.paste((255, 255, 255), mask=Image.fromarray(rim))
    shown.thumbnail((160, 160))
    file = io.BytesIO()
    shown.save(file, "WEBP", quality=85)
    return file.getvalue()


@cache
def _saliency() -> Any:
    from saliency.metrics import pic

    # NumPy has no `trapz` any more, which the package calls.
    pic.np = SimpleNamespace(**vars(np), trapz=np.trapezoid)
    # AIC and SIC of an image need the same blurred pictures, which take most of the time.
    blurred, make = Latest[NDArray[np.uint8]](2 * len(THRESHOLDS)), pic.create_blurred_image
    pic.create_blurred_image = lambda full_img, pixel_mask: blurred.once(
        (full_img.tobytes(), pixel_mask.tobytes()), lambda: make(full_img, pixel_mask)
    )
    return pic


def purity(features: Floats, label: Numbers, source: Numbers) -> Floats:
    """Return a share for each image: how many of its `NEIGHBOURS` nearest images from other sources have its label. NaN
    if other sources have fewer images.
    """
    squares = (features**2).sum(axis=1)
    distance = squares[:, None] + squares[None, :] - 2 * features @ features.T
    distance[source[:, None] == source[None, :]] = np.inf
    nearest = np.argsort(distance, axis=1, kind="stable")[:, :NEIGHBOURS]
    if nearest.shape[1] < NEIGHBOURS:
        return np.full(len(label), np.nan)
    known = np.isfinite(np.take_along_axis(distance, nearest, axis=1)).all(axis=1)
    return np.where(known, (label[nearest] == label[:, None]).mean(axis=1), np.nan)


def plane(features: Floats) -> Floats:
    """Return positions of images on a plane, (images, 2), 0 to 1: two principal components of features."""
    centred = features - features.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = np.resize(axes, (2, features.shape[1])) if len(axes) < 2 else axes[:2]
    places = centred @ (axes * np.sign(axes[[0, 1], np.abs(axes).argmax(axis=1)])[:, None]).T
    spans = np.ptp(places, axis=0)
    return (places - places.min(axis=0)) / np.where(spans > 0, spans, 1.0)


def focus_figures(values: Floats, source: Numbers) -> tuple[Figure, ...]:
    """Return each model's mean over sources. For two models, also return the second mean minus the first. `values` are
    (images, models), NaN if unknown. An image counts only if the value of every model is known.
    """
    known, models = np.isfinite(values).all(axis=1), values.shape[1]
    n = int(known.sum())
    columns: list[Callable[[Floats], Floats]] = [lambda of, at=at: of[..., at] for at in range(models)]  # type: ignore[misc]
    if models == 2:
        columns.append(lambda of: of[..., 1] - of[..., 0])
    if n < FEWEST:
        return (Figure(None, n=n, why=f"fewer than {FEWEST} images have it"),) * len(columns)
    means = MeansOfSources(shares_of_sources(list(values[known].T), source[known])[0])
    return tuple(means.figure(column, n) for column in columns)
