"""A network under test, and what all adapters share: paths, class names, preparation of images, refusals."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.errors import UserError
from core.model_identity import ModelIdentity
from core.settings import UnderTestSettings

Kind = Literal["classification", "segmentation"]
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
MOST_CLASSES = 255
"""Of a segmenter: class maps are kept with a byte a pixel."""


@dataclass(frozen=True)
class Network:
    """A network ready to be asked."""

    net: Any
    """A torch module: normalised pixels (n, 3, h, w) in; logits (n, classes), or (n, classes, h, w), out."""
    identity: ModelIdentity
    prepare: Callable[[Any], Any]
    """An RGB image in, its pixels as the network wants them out, (3, h, w)."""

    @property
    def kind(self) -> Kind:
        """What it does."""
        return self.identity.kind


def checkpoint_path(named: str) -> Path:
    """Return the path of a checkpoint, there or not; "~" is the home. Raises UserError for what can be no path."""
    try:
        path = Path(named).expanduser()
        path.stat()
    except FileNotFoundError:
        return path
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"There can be no checkpoint file at {named[:200]!r}: give a path on the machine that serves this.",
            field="file",
        ) from error
    return path


def classes_given(wanted: UnderTestSettings) -> tuple[str, ...]:
    """The names of classes that a person gave; empty for none."""
    return tuple(name.strip() for name in wanted.classes.split(",") if name.strip())


def require_few_classes(called: str, kind: Kind, classes: Sequence[str]) -> None:
    """Raise UserError for a segmenter with more classes than a class map can number."""
    if kind == "segmentation" and len(classes) > MOST_CLASSES:
        raise UserError(f"{called} has {len(classes)} classes: of a segmenter at most {MOST_CLASSES} are taken.")


def listed(header: Mapping[str, str], name: str) -> tuple[Any, ...]:
    """A list in the header of a file; empty where there is none."""
    try:
        return tuple(json.loads(header.get(name, "[]")))
    except (ValueError, TypeError):
        return ()


def squeezed(size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> Callable[[Any], Any]:
    """Squeezes a picture into a width and height and normalises it."""
    import torch
    from torchvision.transforms import v2

    steps = [
        v2.PILToTensor(),
        v2.Resize((size[1], size[0]), antialias=True),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(list(mean), list(std)),
    ]
    return v2.Compose(steps)


def unknown(name: str, where: str, known: list[str]) -> UserError:
    """What is said of a name that a library does not know."""
    near = difflib.get_close_matches(name, known, 3)
    hint = f"perhaps you mean {' or '.join(near)}" if near else "look the name up in its list of models"
    return UserError(f"There is no classifier or segmenter {name[:80]!r} in {where}: {hint}.")


def not_fetched(name: str, where: str, error: Exception) -> UserError:
    """What is said of weights that do not come."""
    return UserError(
        f"The weights of {name} of {where} could not be fetched ({type(error).__name__}): connect to the network and "
        "try again, or give a checkpoint file that is on this machine."
    )
