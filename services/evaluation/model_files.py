"""Model files in a workspace, uploaded or left by a retraining. Each is in a folder named after the file's SHA-256."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from core.errors import UserError, disk_reason
from core.images import file_hash
from core.settings import UnderTestSettings
from storage.workspace import Workspace

SOURCES: Mapping[str, str] = {
    ".safetensors": "file",
    ".pt": "file",
    ".pth": "file",
    ".onnx": "onnx",
    ".zip": "transformers",
}
"""Value of `UnderTestSettings.source` for each suffix of a model file."""
MOST_UNPACKED = 8_000_000_000
"""Maximum total size of the files in an archive, in bytes."""
_OF_TRANSFORMERS = (".json", ".safetensors", ".txt")
"""Suffixes of files that are unpacked from an archive: neither code nor pickles."""


def keep_upload(workspace: Workspace, file: Path, name: str) -> dict[str, str]:
    """Store an uploaded file called `name`; a zip must have the folder that `save_pretrained` of transformers wrote.
    Return the fields `source` and `file` of commands that use the model. Raises UserError for a file that is no model.
    """
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePosixPath(name.replace("\\", "/")).name).strip("-.")[-80:]
    stem, suffix = os.path.splitext(plain)
    source = SOURCES.get(suffix.lower(), "")
    if not source or not stem:
        raise UserError(
            f"{name[:80]!r} is no model that can be read: choose a checkpoint (.safetensors, .pt, .pth), an .onnx, or "
            "a zip of the folder that save_pretrained of transformers wrote.",
            field="file",
        )
    digest = file_hash(file)
    if source == "transformers":
        return {"source": source, "file": str(_kept(workspace, digest, stem, lambda to: _unpack(file, to)))}
    return {"source": source, "file": str(_kept(workspace, digest, plain, lambda to: shutil.copyfile(file, to)))}


def found_here(workspace: Workspace, settings: UnderTestSettings) -> UnderTestSettings:
    """Return the settings of a model, with the new path of its file if this workspace was moved."""
    file = workspace.model_file(settings.file)
    return settings if file == settings.file else settings.model_copy(update={"file": file})


def keep_weights(workspace: Workspace, weights: Path, name: str, model_folder: Path | None) -> Path:
    """Store trained weights as a file called `name`. For transformers, store them in a folder of that name, with copies
    of the JSON files of `model_folder`. Takes no space if the disk can link files.
    """
    digest = file_hash(weights)
    if model_folder is None:
        return _kept(workspace, digest, f"{name}.safetensors", lambda to: _link(weights, to))

    def fill(to: Path) -> None:
        to.mkdir()
        for one in sorted(model_folder.glob("*.json")):
            shutil.copyfile(one, to / one.name)
        _link(weights, to / "model.safetensors")

    return _kept(workspace, digest, name, fill)


def _kept(workspace: Workspace, digest: str, name: str, fill: Callable[[Path], object]) -> Path:
    """Return the path of the file or folder `name` with this digest. If it does not exist, `fill` makes it."""
    place = workspace.model_files / digest[:24]
    if (place / name).exists():
        return place / name
    try:
        half = workspace.scratch(workspace.model_files.name)
        try:
            fill(half / name)
            place.mkdir(parents=True, exist_ok=True)
            (half / name).rename(place / name)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    except OSError as error:
        raise UserError(f"The file cannot be saved. {disk_reason(error)}.", field="file") from error
    return place / name


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file, to)
    except OSError:  # another disk, or one that cannot link
        shutil.copyfile(file, to)


def _unpack(file: Path, to: Path) -> None:
    to.mkdir()
    try:
        with zipfile.ZipFile(file) as archive:
            members = {PurePosixPath(one.filename): one for one in archive.infolist() if not one.is_dir()}
            folders = [path.parent for path in members if path.name == "config.json"]
            if len(folders) != 1:
                number = "no config.json" if not folders else f"{len(folders)} files config.json"
                raise UserError(
                    f"The zip has {number}. Save one model with save_pretrained of transformers, then pack its folder.",
                    field="file",
                )
            members_to_unpack = [
                one
                for path, one in members.items()
                if path.parent == folders[0] and path.suffix in _OF_TRANSFORMERS and not path.name.startswith(".")
            ]
            if sum(one.file_size for one in members_to_unpack) > MOST_UNPACKED:
                raise UserError(
                    "The zip holds too much data: unpack it, and give the path of the folder instead.", field="file"
                )
            for one in members_to_unpack:
                with archive.open(one) as packed, (to / PurePosixPath(one.filename).name).open("wb") as written:
                    shutil.copyfileobj(packed, written)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:  # the middle two: encrypted
        raise UserError("The zip cannot be read: it is damaged or locked. Pack it again.", field="file") from error
