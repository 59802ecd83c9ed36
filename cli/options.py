"""Reads the options of the command line: settings, task, images and masks. Each mistake gets one sentence."""

from __future__ import annotations

import argparse
from pathlib import Path

from pydantic import ValidationError

from core.errors import UserError
from core.masks import Mask, parse_classes, read_mask
from core.settings import Settings
from core.types import Task
from core.validation_messages import reason
from formats.files import is_image
from pipeline.checks.texts import require, task_checks
from pipeline.methods import method_of
from pipeline.profiles.profile import Profile
from pipeline.recipes import Recipe

SHORTCUTS = {
    "captions": "counterfactuals.captions",
    "edits_at_once": "counterfactuals.edits_at_once",
    "images_per_caption": "generation.images_per_caption",
}
"""Setting by the option that sets it. The option --steps is not here, since each method has its own setting."""


def changed_settings(settings: Settings, changes: dict[str, str]) -> Settings:
    """Return the settings with changes such as {"generation.steps": "12"}. Raises UserError for a wrong change."""
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
        why = reason(error, type(settings))
        raise UserError(f"The setting {name} cannot be {first['input']!r:.80}: {why}.") from error


def asked_settings(options: argparse.Namespace, recipe: Recipe) -> dict[str, str]:
    """Return the settings given as options, by name. Raises UserError for a text that is not NAME=VALUE, and for a
    setting that the recipe does not use.
    """
    values = {}
    for text in options.set:
        name, separator, value = text.partition("=")
        if not separator:
            raise UserError(f"--set takes STAGE.NAME=VALUE, such as generation.steps=12, and not {text!r}.")
        values[name.strip()] = value.strip()
    shortcuts = {**SHORTCUTS, "steps": method_of(recipe.method).steps_setting}
    if recipe.last.settings == "backgrounds":
        shortcuts["captions"] = "backgrounds.captions"
    values |= {name: getattr(options, key) for key, name in shortcuts.items() if getattr(options, key) is not None}
    for name in values:
        if not recipe.reads(name):
            raise UserError(
                f"The recipe {recipe.name} does not read {name}: "
                f"`python -m pipeline settings --recipe {recipe.name}` lists what it reads."
            )
    return values


def asked_task(options: argparse.Namespace, profile: Profile) -> Task:
    """Return the task given as options. Raises UserError if an option is missing or belongs to another kind of task."""
    if options.task == "classification":
        if options.protected:
            raise UserError("--protected belongs to --task segmentation: for classification give --label.")
        task = Task("classification", label=options.label.strip())
    else:
        if options.label:
            raise UserError("--label belongs to --task classification: for segmentation give --protected.")
        names = tuple(name.strip() for name in options.protected.split(",") if name.strip())
        task = Task("segmentation", protected=names or profile.tasks.protected)
    require(task_checks(task))
    return task


def asked_sources(options: argparse.Namespace) -> dict[Path, Path]:
    """Return the given source images, each with the folder for its results. Raises UserError if a given folder contains
    no image.

    A single file uses the folder --out itself. If several files or a folder were given, each file gets a folder in
    --out, named after the file. A repeated name gets a number.
    """
    files = list(dict.fromkeys(file for name in options.images for file in _images_in(Path(name))))
    out = Path(options.out)
    if not several(options):
        return {files[0]: out}
    folders: dict[Path, Path] = {}
    for file in files:
        name, number = file.stem, 2
        while out / name in folders.values():
            name, number = f"{file.stem}-{number}", number + 1
        folders[file] = out / name
    return folders


def several(options: argparse.Namespace) -> bool:
    """Return True if several source images or a folder were given."""
    return len(options.images) > 1 or Path(options.images[0]).is_dir()


def _images_in(path: Path) -> list[Path]:
    """Return a file itself, or the images in a folder, sorted by name and without masks."""
    if not path.is_dir():
        return [path]
    try:
        files = sorted(file for file in path.iterdir() if is_image(file.name) and file.is_file())
    except OSError as error:
        raise UserError(f"The folder {path} cannot be read: {error.strerror or error}.") from error
    images = [file for file in files if not file.stem.endswith(".mask")]
    if not images:
        raise UserError(f"There is no image in the folder {path}: give a folder with PNG, JPEG or WebP files.")
    return images


def asked_mask(options: argparse.Namespace, source: Path, size: tuple[int, int]) -> Mask | None:
    """Return the mask given for a source image of `size`, or None without one. Raises UserError if it is unusable."""
    if not options.mask:
        return None
    path = Path(options.mask)
    if several(options):
        names = (f"{source.stem}.mask.png", f"{source.stem}.png")
        path = next((path / name for name in names if (path / name).is_file()), path / names[0])
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"The mask {path} cannot be read: {error.strerror or error}.") from error
    return read_mask(data, size, parse_classes(options.classes))


def require_mask_options(options: argparse.Namespace) -> None:
    """Raise UserError if the options --mask, --classes and --task do not fit together."""
    if not options.mask:
        if options.classes:
            raise UserError("--classes belongs to --mask: give the mask too.")
        return
    if options.task != "segmentation":
        raise UserError("--mask belongs to --task segmentation.")
    if not options.classes:
        raise UserError('--mask needs --classes: the number and name of each class, such as "0 sky, 1 road".')
    if several(options) and not Path(options.mask).is_dir():
        raise UserError("Several images need a mask each: give the folder of the masks with --mask.")
    parse_classes(options.classes)
