"""What the options of the command line ask for: settings, task and mask. Each mistake is one sentence."""

from __future__ import annotations

import argparse
from pathlib import Path

from pydantic import ValidationError

from pipeline.checks import require, task_checks
from pipeline.errors import UserError
from pipeline.masks import Mask, parse_classes, read_mask
from pipeline.profile import Profile
from pipeline.settings import Settings
from pipeline.types import Task

SHORTCUTS = {
    "captions": "counterfactuals.captions",
    "edits_at_once": "counterfactuals.edits_at_once",
    "images_per_caption": "generation.images_per_caption",
    "steps": "generation.steps",
}
"""Settings that have an option of their own."""


def changed_settings(settings: Settings, changes: dict[str, str]) -> Settings:
    """The settings with some of them set anew, such as {"generation.steps": "12"}. Raises UserError, naming the one."""
    data = settings.model_dump()
    for name, value in changes.items():
        stage, _, field = name.partition(".")
        if field not in data.get(stage, {}):
            raise UserError(f"There is no setting {name!r}: `python -m pipeline settings` lists them.")
        data[stage][field] = value
    try:
        return type(settings).model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        reason = first["msg"][0].lower() + first["msg"][1:]
        raise UserError(f"The setting {name} cannot be {first['input']!r}: {reason}.") from error


def asked_settings(options: argparse.Namespace) -> dict[str, str]:
    """The settings that were asked for, by their names. Raises UserError for one that is not NAME=VALUE."""
    asked = {}
    for text in options.set:
        name, separator, value = text.partition("=")
        if not separator:
            raise UserError(f"--set takes STAGE.NAME=VALUE, such as generation.steps=12, and not {text!r}.")
        asked[name.strip()] = value.strip()
    return asked | {name: getattr(options, key) for key, name in SHORTCUTS.items() if getattr(options, key) is not None}


def asked_task(options: argparse.Namespace, profile: Profile) -> Task:
    """The task that was asked for. Raises UserError when something of it is missing or of the other task."""
    if options.task == "classification":
        if options.protected:
            raise UserError("--protected belongs to --task segmentation: for classification give --label.")
        task = Task("classification", label=options.label.strip())
    else:
        if options.label:
            raise UserError("--label belongs to --task classification: for segmentation give --protected.")
        named = tuple(name.strip() for name in options.protected.split(",") if name.strip())
        task = Task("segmentation", protected=named or profile.tasks.protected)
    require(task_checks(task))
    return task


def asked_mask(options: argparse.Namespace, size: tuple[int, int]) -> Mask | None:
    """The mask that was given, for a source image of `size`; None without one. Raises UserError."""
    if not options.mask:
        if options.classes:
            raise UserError("--classes belongs to --mask: give the mask too.")
        return None
    if options.task != "segmentation":
        raise UserError("--mask belongs to --task segmentation.")
    if not options.classes:
        raise UserError('--mask needs --classes: the number and name of each class, such as "0 sky, 1 road".')
    try:
        data = Path(options.mask).read_bytes()
    except OSError as error:
        raise UserError(f"The mask {options.mask} cannot be read: {error.strerror or error}.") from error
    return read_mask(data, size, parse_classes(options.classes))
