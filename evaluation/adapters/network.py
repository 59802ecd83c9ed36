"""A loaded network under test, and functions for all adapters: paths, class names, image preparation, errors."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from core.data_files import DataTable
from core.errors import UserError
from core.model_identity import ModelIdentity, Preprocessing, files_hash
from core.model_identity import Output as Numbers
from core.settings import UnderTestSettings
from core.types import TaskKind

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
GIVEN = "the list that was given"
"""Origin of class names that the user gave, for messages."""
MOST_CLASSES = 255
"""Maximum number of classes of a segmenter: class maps are stored with one byte per pixel."""
LEAST_SPAN, MOST_SPAN = 0.1, 300.0
"""Minimum and maximum difference between a white and a black pixel in a model's input. Usual are 1, 2, 4.6 and 255."""
_READS = DataTable(__file__, frozenset[str], "reads")
_CALLED = DataTable(__file__, str, "called")
_INSTEAD = DataTable(__file__, str, "preparations")
_MISSING = DataTable(__file__, str, "missing")


@dataclass(frozen=True)
class Network:
    """A loaded network, with its identity and its preparation of images."""

    net: Any
    """A torch module. It takes normalised pixels (n, 3, h, w) and returns logits (n, classes) or (n, classes, h, w)."""
    identity: ModelIdentity
    prepare: Callable[[Any], Any]
    """Function that turns an RGB image into the network's input, (3, h, w)."""


def checkpoint_path(named: str) -> Path:
    """Return the path of a checkpoint file, which may not exist. Expands “~”. Raises UserError for an invalid path."""
    try:
        path = Path(named).expanduser()
        path.stat()
    except FileNotFoundError:
        return path
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"There can be no checkpoint file at {named[:200]!r}: give a path on the machine of the studio.",
            field="file",
        ) from error
    return path


def file_of(settings: UnderTestSettings) -> tuple[Path, str]:
    """Return the path and the hash of a model's checkpoint or ONNX file. Raises UserError if it cannot be read."""
    file = checkpoint_path(settings.file)
    what = "an ONNX file" if settings.source == "onnx" else "a checkpoint"
    if not file.is_file():
        raise UserError(
            f"There is no file {settings.file}: give the path of {what} on the machine of the studio.", field="file"
        )
    try:
        return file, files_hash([file])
    except OSError as error:
        raise UserError(f"{file.name} cannot be read: {error.strerror or 'it is damaged'}.") from error


def require_named(settings: UnderTestSettings) -> None:
    """Raise UserError, naming the field, if a model's name, file or address is needed but missing."""
    field = {"http": "address", "file": "file", "onnx": "file"}.get(settings.source, "name")
    has_folder = settings.source == "transformers" and bool(settings.file)
    if settings.source in _MISSING and not (getattr(settings, field) or has_folder):
        raise UserError(_MISSING[settings.source], field=field)


def require_read(settings: UnderTestSettings) -> None:
    """Raise UserError, naming the field, if a required setting is missing (`require_named`), or if a setting is given
    that this kind of model does not use.
    """
    plain = UnderTestSettings(source=settings.source)
    for name, called in _CALLED.items():
        if getattr(settings, name) != getattr(plain, name) and name not in _READS[settings.source]:
            if settings.source == "profile":
                raise UserError(
                    f"The profile's own model does not use {called}: leave this setting out. To test a model of your "
                    "own, set “source”.",
                    field="source",
                )
            pixels = name in ("size", "mean", "std", "layout")
            why = f" ({_INSTEAD[settings.source]})" if pixels and settings.source in _INSTEAD else ""
            raise UserError(f"A model from {settings.source} does not use {called}{why}: leave it out.", field=name)
    if settings.source == "transformers" and settings.name and settings.file:
        raise UserError(
            f"Both a repository, {settings.name}, and a folder, {settings.file}, are named: leave one of them out.",
            field="file",
        )
    require_named(settings)


def classes_given(settings: UnderTestSettings) -> tuple[str, ...]:
    """Return the class names that the user gave, or (). Raises UserError for a name that occurs twice."""
    names = tuple(name.strip() for name in settings.classes.split(",") if name.strip())
    twice = twice_in(names)
    if twice:
        raise UserError(
            f"The class “{twice[0][:60]}” is given twice: correct the list of classes, and give each name to one "
            "class only.",
            field="classes",
        )
    return names


def named_classes(
    called: str, settings: UnderTestSettings, own: Sequence[str], origin: str
) -> tuple[tuple[str, ...], str]:
    """Return class names and their origin: the names that the user gave, or else the model's names `own` with `origin`.
    Raises UserError if the number of given names is not the number of classes.
    """
    names = classes_given(settings)
    if names and len(names) != len(own):
        raise UserError(
            f"{called} has {len(own)} classes, but {len(names)} names are given: correct the list, or leave it empty "
            "to use the model's own names.",
            field="classes",
        )
    return (names, GIVEN) if names else (tuple(own), origin)


def twice_in(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that occur more than once, in order."""
    return tuple(name for name, number in Counter(names).items() if number > 1)


def with_assumptions(
    shown: Preprocessing, origin: str, classes: Sequence[str], *remarks: str, output: Numbers = "logits"
) -> Preprocessing:
    """Return the preprocessing, now with the kind of output, the origin of the class names, and the remarks. If classes
    have equal names, a remark on these names is added to `remarks`.
    """
    if origin != GIVEN and (twice := twice_in(classes)):
        more = f" and {len(twice) - 1} more names" if len(twice) > 1 else ""
        own = f"The model itself calls several of its classes “{twice[0]}”{more}: map labels to them by their numbers."
        remarks = (*remarks, own)
    return replace(shown, assumed=replace(shown.assumed, output=output, class_names=origin, remarks=remarks))


def require_classes(called: str, kind: TaskKind, classes: Sequence[str]) -> None:
    """Raise UserError for fewer than two classes, or if a segmenter has more classes than a class map can number."""
    if len(classes) < 2:
        raise UserError(
            f"{called} has {len(classes) or 'no'} class{'' if classes else 'es'}, so its answer would be the same for "
            "every image: a model under test needs at least two classes.",
            field="classes",
        )
    if kind == "segmentation" and len(classes) > MOST_CLASSES:
        raise UserError(f"{called} has {len(classes)} classes, but a segmenter may have at most {MOST_CLASSES}.")


def size_given(text: str) -> tuple[int, int] | None:
    """Return (width, height) for “224” or “1024x512”; None for any other text."""
    sides = [int(side) for side in text.lower().split("x") if side.strip().isdigit()]
    return (sides[0], sides[-1]) if len(sides) in (1, 2) and all(sides) else None


def numbers_given(typed: str, header: Mapping[str, str], name: str) -> tuple[float, ...]:
    """Return the numbers that the user typed, or else those in the file's header under `name`; () without any."""
    try:
        return tuple(float(number) for number in (typed.split(",") if typed else listed(header, name)))
    except (ValueError, TypeError):
        return ()


def logits_of(output: Any) -> Any:
    """Return the logits from a network's output. torchvision and transformers wrap them in a dict or an object."""
    if isinstance(output, dict) and "out" in output:
        return output["out"]
    return getattr(output, "logits", output)


def extremes(prepare: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return a model's input values for black and for white, (3,) each: the extreme values of each channel."""
    side = (64, 64)
    black, white = (np.asarray(prepare(Image.new("RGB", side, colour))) for colour in ("black", "white"))
    return black.reshape(3, -1).mean(1), white.reshape(3, -1).mean(1)


def values_of(called: str, prepare: Callable[[Any], Any], mean: Sequence[float]) -> tuple[float, float]:
    """Return the smallest and largest value of a model's input. Raises UserError for an impossible `mean` or std."""
    black, white = extremes(prepare)
    least, largest = float(min(black.min(), white.min())), float(max(black.max(), white.max()))
    spans = np.abs(white - black)
    slack = 0.05 * spans
    holds_zero = bool((np.minimum(black, white) <= slack).all() and (np.maximum(black, white) >= -slack).all())
    if holds_zero and spans.min() >= LEAST_SPAN and spans.max() <= MOST_SPAN:
        return least, largest
    of_bytes = any(number > 1 for number in mean)
    hint = (
        "they look like those of pixels from 0 to 255, and here pixels go from 0 to 1: divide each number by 255"
        if of_bytes
        else "pixels go from 0 to 1 here, and the usual are 0.485, 0.456, 0.406 and 0.229, 0.224, 0.225"
    )
    raise UserError(
        f"With this mean and std, {called} would get values from {least:.3g} to {largest:.3g} for pixels from black to "
        f"white, and no model was trained with such values: {hint}.",
        field="mean" if of_bytes else "std",
    )


def listed(header: Mapping[str, str], name: str) -> tuple[Any, ...]:
    """Return the list that a file's header has under `name`; () without one."""
    try:
        return tuple(json.loads(header.get(name, "[]")))
    except (ValueError, TypeError):
        return ()


def squeezed(size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> Callable[[Any], Any]:
    """Return a function that scales a picture to `size`, ignoring its aspect, and normalises its pixels."""
    import torch
    from torchvision.transforms import v2

    steps = [
        v2.PILToTensor(),
        v2.Resize((size[1], size[0]), antialias=True),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(mean), list(std)),
    ]
    return v2.Compose(steps)


def squeezed_words(size: tuple[int, int]) -> str:
    """Return a sentence part that tells users how `squeezed` changes a picture's size."""
    return f"scaled to {size[0]} × {size[1]} pixels, whatever its shape"


def unknown(name: str, where: str, known: list[str]) -> UserError:
    """Return the error for a name that a library does not know."""
    near = difflib.get_close_matches(name, known, 3)
    hint = f"perhaps you mean {' or '.join(near)}" if near else "look the name up in its list of models"
    return UserError(f"There is no classifier or segmenter {name[:80]!r} in {where}: {hint}.")


def not_fetched(name: str, where: str, error: Exception) -> UserError:
    """Return the error for weights that cannot be fetched."""
    return UserError(
        f"The weights of {name} of {where} could not be fetched ({type(error).__name__}): connect to the network and "
        "try again, or give a checkpoint file on this machine."
    )
