"""The folder that a run on the command line writes: its images as PNG, and `run.json` to make each of them again.

Every image also has its run embedded, like images saved on the page. A run with a mask has a mask file beside each
image. `run.json` is written after its images, whole or not at all, so that the files it names are complete. Knows no
models.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from PIL import Image
from pydantic import ValidationError

from core.errors import UserError
from core.images import image_sha, png_of
from core.lineage import Failure, TestCase
from core.masks import NamedMask, resized
from core.run_record import ImageRecord, RunRecord, image_record
from core.settings import Settings
from core.types import Task, from_plain, read_json, to_plain
from core.version import version
from pipeline.profiles.profile import Profile
from pipeline.prompting import PromptSet, prompts_from_plain, prompts_to_plain
from pipeline.recipes import Recipe, recipe_of
from pipeline.run_files.embedded import FORMAT, read_image, read_run, with_run
from pipeline.run_files.provenance import made_with

FILE = "run.json"
SOURCE = "source.png"
MASK = "mask.png"
PACKAGES = ("torch", "diffusers", "transformers", "ctransformers", "opencv-python-headless", "pillow", "numpy")
"""The packages whose version may change a pixel."""


@dataclass(frozen=True)
class RunImageFiles:
    """An image of the run, and its files beside `run.json`."""

    record: ImageRecord
    file: str
    artifact_files: Mapping[str, str]
    """File names by name of the artifact."""
    mask_file: str = ""
    """File name of the mask at the image's size; "" for a run without a mask."""


@dataclass(frozen=True)
class RunFile:
    """The contents of `run.json`."""

    run: RunRecord
    profile: Mapping[str, Any]
    """The whole profile as plain data, so that later changes of its file have no effect."""
    prompts: PromptSet
    """All prompts with their templates, so that later changes of their files have no effect."""
    seed: int
    source_name: str
    """Original name of the source image; a copy of its pixels is in `SOURCE`."""
    source_sha256: str
    """Hash of the source image's pixels (`image_sha`)."""
    images: tuple[RunImageFiles, ...] = ()
    complete: bool = False
    """False if the run was stopped before all images were made, or if one could not be made."""
    versions: Mapping[str, str] = field(default_factory=dict)
    mask_sha256: str = ""
    """Hash of the pixels of the mask in `MASK` (`image_sha`); "" for a run without a mask."""
    failures: tuple[Failure, ...] = ()
    """Stages and images with a failed try, even if a later try with another seed succeeded."""

    @property
    def recipe(self) -> Recipe:
        return recipe_of(self.run.recipe)

    @property
    def settings(self) -> Settings:
        """The settings of the run, of the recipe's type."""
        return self.recipe.settings.model_validate(self.run.settings)


def asked_run(
    recipe: Recipe,
    task: Task,
    profile: Profile,
    seed: int,
    settings: Settings,
    prompts: PromptSet,
    source_name: str,
    source: Image.Image,
    notes: tuple[str, ...] = (),
    mask: NamedMask | None = None,
) -> RunFile:
    """Return the contents of `run.json` for a request, before anything is made. The same request has the same id."""
    source_sha, mask_sha = image_sha(source), image_sha(mask.image) if mask else ""
    plain = settings.model_dump(mode="json")
    request = [source_sha, to_plain(task), profile.name, seed, plain, mask_sha, recipe.name]
    run = RunRecord(
        id=hashlib.sha256(json.dumps(request).encode()).hexdigest()[:16],
        name=Path(source_name).stem[:200] or "run",
        profile=profile.name,
        recipe=recipe.name,
        task=task,
        settings=plain,
        values={},
        notes=notes,
        mask_classes=dict(mask.classes) if mask else {},
    )
    return RunFile(
        run=run,
        profile=profile.model_dump(mode="json"),
        prompts=prompts,
        seed=seed,
        source_name=source_name,
        source_sha256=source_sha,
        versions=versions(),
        mask_sha256=mask_sha,
    )


def versions() -> dict[str, str]:
    """Return the versions of the studio, Python, the machine and the packages that draw."""
    known = {"studio": version(), "python": platform.python_version(), "machine": platform.platform()}
    for name in PACKAGES:
        try:
            known[name] = package_version(name)
        except PackageNotFoundError:
            known[name] = "not installed"
    return known


# Images


def save_png(image: Image.Image, path: Path) -> None:
    """Save the pixels as PNG, whole or not at all, without metadata. Raises UserError if that fails."""
    _write_whole(_png(image), path)


def save_image(case: TestCase, path: Path, contents: RunFile, source: Image.Image, mask: Image.Image | None) -> None:
    """Save the image of a test case as PNG with its run embedded. Raises UserError if it cannot be written."""
    try:
        weights = made_with(Profile.model_validate(contents.profile), case.lineage.method, case.lineage.settings)
    except ValidationError:  # a profile of another version; the file can be opened without the weights' hashes
        weights = None
    _write_whole(with_run(_png(case.image), contents.run, case, source, mask, weights), path)


def save_case(
    case: TestCase, folder: Path, number: int, contents: RunFile, source: Image.Image, mask: Image.Image | None
) -> RunImageFiles:
    """Save a test case as number `number` of the folder: its image, its artifacts, and the mask at the image's size."""
    stem = f"image-{number:03d}"
    artifact_files, mask_file = {name: f"{stem}-{_slug(name)}.png" for name in case.artifacts}, ""
    for name, image in case.artifacts.items():
        save_png(image, folder / artifact_files[name])
    if mask is not None:
        mask_file = f"{stem}-mask.png"
        save_png(resized(mask, case.image.size), folder / mask_file)
    save_image(case, folder / f"{stem}.png", contents, source, mask)
    return RunImageFiles(image_record(case), f"{stem}.png", artifact_files, mask_file)


def load_case(image: RunImageFiles, folder: Path) -> TestCase:
    """Return a recorded test case with its images from the folder. Raises UserError if one is lost or changed."""
    artifacts = {
        name: load_png(folder / file, image.record.artifacts[name]) for name, file in image.artifact_files.items()
    }
    return image.record.with_pictures(load_png(folder / image.file, image.record.sha256), artifacts)


def load_mask(contents: RunFile, folder: Path) -> Image.Image | None:
    """Return the mask of a run, or None for a run without one. Raises UserError if it is missing or changed."""
    if not contents.mask_sha256:
        return None
    return load_png(folder / MASK, contents.mask_sha256).getchannel(0)


def load_png(path: Path, sha: str) -> Image.Image:
    """Return the image of a file. Raises UserError if it is missing, or if the hash of its pixels is not `sha`."""
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except OSError as error:
        raise UserError(f"The image {path} is missing or damaged: it cannot be used for this run.") from error
    if image_sha(image) != sha:
        raise UserError(f"The image {path} was changed after it was made: it cannot be used for this run.")
    return image


# run.json


def write(contents: RunFile, folder: Path) -> None:
    """Write `run.json`. Raises UserError if the folder cannot be written."""
    data = {
        "format": FORMAT,
        "made_by": "DILLEMA Studio",
        "complete": contents.complete,
        "run": contents.run.plain(),
        "profile": contents.profile,
        "seed": contents.seed,
        "source": {"file": SOURCE, "name": contents.source_name, "sha256": contents.source_sha256},
        "mask": {"file": MASK, "sha256": contents.mask_sha256} if contents.mask_sha256 else None,
        "images": [_plain_image(image) for image in contents.images],
        "failures": [to_plain(failure) for failure in contents.failures],
        "prompts": prompts_to_plain(contents.prompts),
        "versions": contents.versions,
    }
    _write_whole(json.dumps(data, indent=2, ensure_ascii=False).encode(), folder / FILE, synced=True)


def read(path: Path) -> RunFile:
    """Read a `run.json`. Raises UserError when it is missing, cut, changed or of another format."""
    try:
        data = read_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"The file {path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UserError(f"The file {path} is not a {FILE} of the studio: it is not JSON.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(f"The file {path} is not a {FILE} that this version of the studio reads.")
    try:
        run = read_run(data["run"])
        contents = RunFile(
            run=run,
            profile=data["profile"],
            prompts=prompts_from_plain(data["prompts"], recipe_of(run.recipe).prompt_slots),
            seed=int(data["seed"]),
            source_name=str(data["source"]["name"]),
            source_sha256=str(data["source"]["sha256"]),
            images=tuple(_read_image(image, run.task) for image in data["images"]),
            complete=bool(data["complete"]),
            versions=dict(data["versions"]),
            mask_sha256=str((data.get("mask") or {"sha256": ""})["sha256"]),
            failures=from_plain(tuple[Failure, ...], data["failures"]),
        )
        return replace(contents, run=replace(run, settings=contents.settings.model_dump(mode="json")))
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError) as error:
        raise UserError(f"The file {path} is damaged or was changed by hand: it cannot be used.") from error


def _slug(artifact: str) -> str:
    """Return the part of a file name that names an artifact, such as "control" for the artifact "control image"."""
    return re.sub(r"\W+", "-", artifact.removesuffix(" image")).strip("-") or "artifact"


def _plain_image(image: RunImageFiles) -> dict[str, Any]:
    artifacts = {
        name: {"file": file, "sha256": image.record.artifacts[name]} for name, file in image.artifact_files.items()
    }
    return {"file": image.file, "mask_file": image.mask_file, **image.record.plain(), "artifacts": artifacts}


def _read_image(data: Mapping[str, Any], task: Task) -> RunImageFiles:
    artifacts = data["artifacts"]
    record = read_image(data, {name: entry["sha256"] for name, entry in artifacts.items()}, task)
    files = {name: _file_name(entry["file"]) for name, entry in artifacts.items()}
    mask_file = str(data["mask_file"])
    return RunImageFiles(record, _file_name(data["file"]), files, _file_name(mask_file) if mask_file else "")


def _file_name(name: Any) -> str:
    """Return the name of a file beside `run.json`. Raises ValueError for others, such as a path to another folder."""
    if not re.fullmatch(r"\w[\w .-]*", str(name)):
        raise ValueError("this is no name of a file beside run.json")
    return str(name)


def _png(image: Image.Image) -> bytes:
    """Return a PNG's bytes. Grey images stay grey, so that class numbers are unchanged; others become RGB."""
    return png_of(image if image.mode == "L" else image.convert("RGB"))


def _write_whole(data: bytes, path: Path, synced: bool = False) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            if synced:  # on the disk before it replaces the old file
                file.flush()
                os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"Nothing can be written to {path.parent} ({reason}): choose another folder.") from error
