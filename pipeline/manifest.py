"""The folder of a run without a browser: its images as PNG, and `run.json`, enough to make each of them again.

Every image also carries its run inside, as those that the page saves do; a run with a mask has one beside each image.
`run.json` is written last and appears whole or not at all: what it names is there, finished. Knows no models.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Any

from PIL import Image
from pydantic import TypeAdapter, ValidationError

from pipeline.carried import RunRecord, carrying
from pipeline.errors import UserError
from pipeline.freshness import image_sha
from pipeline.masks import carried
from pipeline.prompting import PromptSet, prompts_from_plain, prompts_to_plain
from pipeline.provenance import MadeWith
from pipeline.settings import Settings
from pipeline.types import (
    VALUE_TYPES,
    Check,
    CounterfactualCaption,
    StageName,
    StageValue,
    Task,
    TestCase,
    from_plain,
    to_plain,
)
from pipeline.version import version

FILE = "run.json"
SOURCE = "source.png"
MASK = "mask.png"
FORMAT = 1
PACKAGES = ("torch", "diffusers", "transformers", "ctransformers", "opencv-python-headless", "pillow", "numpy")
"""The packages whose version may change a pixel."""


@dataclass(frozen=True)
class ImageRecord:
    """A test case with its images in files beside `run.json`."""

    file: str
    control_file: str
    sha256: str
    """`image_sha` of the image: over its pixels, not over the file."""
    counterfactual: CounterfactualCaption
    seed: int
    method: str
    model: str
    prompt: str
    negative_prompt: str
    settings: Mapping[str, Any]
    seconds: float
    checks: tuple[Check, ...] = ()
    mask_file: str = ""
    """The mask at the image's size; "" for a run without one."""


@dataclass(frozen=True)
class Manifest:
    """What `run.json` holds."""

    task: Task
    profile: Mapping[str, Any]
    """The whole profile as plain data, so that a later change of its file does no harm."""
    seed: int
    settings: Settings
    prompts: PromptSet
    source_name: str
    """What the source image was called; a copy of its pixels is in `SOURCE`."""
    source_sha256: str
    """`image_sha` of the source image."""
    source_notes: tuple[str, ...]
    """What was put right when it was read."""
    values: Mapping[StageName, StageValue[Any]]
    images: tuple[ImageRecord, ...]
    complete: bool
    """False when the run was stopped before all images were made."""
    versions: Mapping[str, str]
    mask_sha256: str = ""
    """`image_sha` of the mask in `MASK`; "" for a run without one."""
    mask_classes: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Inside:
    """What the images of a run carry."""

    run: Manifest
    """As it is when an image is saved."""
    source: Image.Image
    mask: Image.Image | None = None
    made_with: MadeWith | None = None

    def record(self) -> RunRecord:
        """The run as files carry it. The same request has the same id, so all its images come back to one run."""
        run = self.run
        settings = run.settings.model_dump(mode="json")
        asked = [run.source_sha256, to_plain(run.task), run.profile.get("name"), run.seed, settings, run.mask_sha256]
        return RunRecord(
            id=hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16],
            name=Path(run.source_name).stem[:200] or "run",
            profile=str(run.profile.get("name", "")),
            task=run.task,
            settings=settings,
            values=run.values,
            notes=run.source_notes,
            mask_classes=run.mask_classes,
        )


def versions() -> dict[str, str]:
    """What the run was made with: the studio, Python, the machine and the packages that draw."""
    found = {"studio": version(), "python": platform.python_version(), "machine": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = package_version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def save_png(image: Image.Image, path: Path) -> None:
    """The pixels as PNG, without metadata; the file appears whole or not at all. Raises UserError."""
    _write_whole(_png(image), path)


def save_case(case: TestCase, path: Path, inside: Inside) -> None:
    """The image of a test case as PNG that carries its run. Raises UserError."""
    data = carrying(_png(case.image), inside.record(), case, inside.source, inside.mask, inside.made_with)
    _write_whole(data, path)


def load_mask(manifest: Manifest, folder: Path) -> Image.Image | None:
    """The mask of a run, checked like its images; None for a run without one. Raises UserError."""
    if not manifest.mask_sha256:
        return None
    return load_png(folder / MASK, manifest.mask_sha256).getchannel(0)


def load_png(path: Path, sha: str) -> Image.Image:
    """The image of a file, its pixels checked against `image_sha`. Raises UserError when it is missing or changed."""
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except OSError as error:
        raise UserError(f"The image {path} is missing or damaged: it cannot be used for this run.") from error
    if image_sha(image) != sha:
        raise UserError(f"The image {path} was changed after it was made: it cannot be used for this run.")
    return image


def record(case: TestCase, folder: Path, number: int, inside: Inside) -> ImageRecord:
    """Saves both images of a test case as number `number` of the folder, and the mask at their size."""
    stem = f"image-{number:03d}"
    file, control_file, mask_file = f"{stem}.png", f"{stem}-control.png", ""
    save_png(case.control, folder / control_file)
    if inside.mask is not None:
        mask_file = f"{stem}-mask.png"
        save_png(carried(inside.mask, case.image.size), folder / mask_file)
    save_case(case, folder / file, inside)
    return ImageRecord(
        file,
        control_file,
        image_sha(case.image),
        case.counterfactual,
        case.seed,
        case.method,
        case.model,
        case.prompt,
        case.negative_prompt,
        case.settings,
        case.seconds,
        case.checks,
        mask_file,
    )


def load_case(kept: ImageRecord, folder: Path) -> TestCase:
    """The test case of a record, its images read from the folder. Raises UserError when they are not as they were."""
    image = load_png(folder / kept.file, kept.sha256)
    try:
        with Image.open(folder / kept.control_file) as file:
            control = file.convert("RGB")
    except OSError as error:
        raise UserError(f"The image {folder / kept.control_file} is missing or damaged.") from error
    return TestCase(
        image,
        control,
        kept.counterfactual,
        kept.seed,
        kept.method,
        kept.model,
        kept.prompt,
        kept.negative_prompt,
        kept.settings,
        kept.seconds,
        kept.checks,
    )


def write(manifest: Manifest, folder: Path) -> Path:
    """Writes `run.json`. Raises UserError when the folder refuses it."""
    data = {
        "format": FORMAT,
        "made_by": "DILLEMA Studio",
        "complete": manifest.complete,
        "profile": manifest.profile,
        "task": to_plain(manifest.task),
        "seed": manifest.seed,
        "settings": manifest.settings.model_dump(mode="json"),
        "source": {
            "file": SOURCE,
            "name": manifest.source_name,
            "sha256": manifest.source_sha256,
            "notes": manifest.source_notes,
        },
        "mask": _plain_mask(manifest),
        "values": {stage: to_plain(value) for stage, value in manifest.values.items()},
        "images": [to_plain(image) for image in manifest.images],
        "prompts": prompts_to_plain(manifest.prompts),
        "versions": manifest.versions,
    }
    path, part = folder / FILE, folder / f".{FILE}.part"
    try:
        with open(part, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=2, ensure_ascii=False)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return path


def read(path: Path) -> Manifest:
    """The manifest of a `run.json`. Raises UserError when it is missing, cut, changed or of another format."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"The file {path} cannot be read: {error.strerror or error}.") from error
    except ValueError as error:
        raise UserError(f"The file {path} is no {FILE} of this program: it is not JSON.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UserError(f"The file {path} is no {FILE} of this program, or of another version of it.")
    try:
        mask = data.get("mask") or {"sha256": "", "classes": {}}
        return Manifest(
            task=from_plain(Task, data["task"]),
            profile=data["profile"],
            seed=int(data["seed"]),
            settings=Settings.model_validate(data["settings"]),
            prompts=prompts_from_plain(data["prompts"]),
            source_name=str(data["source"]["name"]),
            source_sha256=str(data["source"]["sha256"]),
            source_notes=tuple(data["source"]["notes"]),
            values={
                stage: TypeAdapter(StageValue[kind]).validate_python(data["values"][stage])  # type: ignore[valid-type]
                for stage, kind in VALUE_TYPES.items()
                if stage in data["values"]
            },
            images=tuple(from_plain(ImageRecord, image) for image in data["images"]),
            complete=bool(data["complete"]),
            versions=dict(data["versions"]),
            mask_sha256=str(mask["sha256"]),
            mask_classes={int(number): str(name) for number, name in mask["classes"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError, ValidationError) as error:
        raise UserError(f"The file {path} is damaged or was changed by hand: it cannot be used.") from error


def _plain_mask(manifest: Manifest) -> dict[str, Any] | None:
    if not manifest.mask_sha256:
        return None
    classes = {str(number): name for number, name in manifest.mask_classes.items()}
    return {"file": MASK, "sha256": manifest.mask_sha256, "classes": classes}


def _png(image: Image.Image) -> bytes:
    """Grey stays grey, so that class numbers stay what they are; anything else becomes RGB."""
    clean = image.copy() if image.mode == "L" else image.convert("RGB").copy()
    clean.info = {}
    file = io.BytesIO()
    clean.save(file, format="PNG")
    return file.getvalue()


def _write_whole(data: bytes, path: Path) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(data)
        os.replace(part, path)
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(f"Nothing can be written to {folder} ({error.strerror or error}): choose another folder.")
