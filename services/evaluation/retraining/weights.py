"""Trainings stored in a workspace: disk use, weights to download, and removal. Their results are in the database."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from core.errors import UserError
from core.types import from_plain
from evaluation.retraining import stored_training as stored
from evaluation.retraining.training import ABOUT, replace_file
from services.evaluation.retraining.results import RetrainingResult
from storage.workspace import Workspace

MARK = "of.json"
"""Name of a file in each training's folder. It names the model, images, arm and seed. Each use rewrites it."""
_TRAINING = re.compile(r"[0-9a-f]{24}")
"""Pattern of a training's folder name."""


@dataclass(frozen=True)
class Marked:
    """The model, images, arm and seed of a training."""

    about: str
    """Key of the model and the images, made by `services.evaluation.retraining.training.kept_under`."""
    model: str
    title: str
    """Name of the images: a test set's version, or a filter in words."""
    split: str
    arm: str
    seed: int


@dataclass(frozen=True)
class ArmWeights:
    """Weights of the best training of an arm."""

    arm: str
    seed: int
    """Zero-based seed of the training."""
    score: float
    """Score on the tuning images, 0 to 1."""
    size: int
    """Size in bytes."""
    file: Path


@dataclass(frozen=True)
class KeptTraining:
    """A training in the workspace."""

    folder: str
    model: str
    """Name of the model; "" if unknown."""
    title: str
    split: str
    arm: str
    seed: int
    done: bool
    used: str
    """Time of the training's last use: ISO 8601, UTC."""
    size: int
    """Size in bytes."""
    retraining: str
    """End time of the latest retraining that uses this training; "" for none."""
    latest: bool
    """True if `retraining` is the latest one of this model with these images."""
    why_kept: str
    """Reason why the training is not removed, in a few words; "" if `remove_old` removes it."""


def mark(folder: Path, marked: Marked) -> None:
    """Write into a training's folder which model, images, arm and seed it is for. This also records the time of use."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / MARK, partial(Path.write_text, data=json.dumps(asdict(marked)), encoding="utf-8"))


def best_weights(workspace: Workspace, found: RetrainingResult) -> tuple[ArmWeights, ...]:
    """Return for each arm the weights of the training with the best tuning score, if they still exist."""
    weights = []
    for arm in found.arms:
        arm_trainings = [one for one in found.trainings if one.arm == arm.name and one.score is not None]
        best = max(arm_trainings, key=lambda one: (one.score or 0.0, -one.seed), default=None)
        file = stored.weights_in(workspace.trainings / best.folder) if best is not None else None
        if best is not None and best.score is not None and file is not None:
            weights.append(ArmWeights(arm.name, best.seed, best.score, file.stat().st_size, file))
    return tuple(weights)


def weights_file(workspace: Workspace, found: RetrainingResult, arm: str) -> tuple[str, Path]:
    """Return a name for the weights of an arm, and their file. Raises UserError if they are gone or damaged."""
    from safetensors import SafetensorError, safe_open

    file = next((one.file for one in best_weights(workspace, found) if one.arm == arm), None)
    if file is None:
        raise UserError("The weights of this arm no longer exist: train it again.")
    try:
        with safe_open(file, "np"):
            pass
    except (OSError, SafetensorError) as error:
        raise UserError("The weights file of this arm is missing or damaged: train the arm again.") from error
    stem = re.sub(r"[^A-Za-z0-9]+", "-", f"{Path(found.model).stem} {arm}").strip("-").lower()[:80]
    return f"{stem}.safetensors", file


def trainings_of(workspace: Workspace) -> tuple[KeptTraining, ...]:
    """Return all trainings of a workspace, the last used first."""
    uses, latest = _uses(workspace)
    folders = workspace.trainings.iterdir() if workspace.trainings.is_dir() else ()
    named = [one for one in folders if _TRAINING.fullmatch(one.name) and one.is_dir()]
    trainings = [_kept_training(folder, uses.get(folder.name), latest) for folder in named]
    return tuple(sorted(trainings, key=lambda one: one.used, reverse=True))


def trainings_about(workspace: Workspace, about: str) -> tuple[tuple[stored.KeptState, str], ...]:
    """Return (state, time of last use) for each stored training whose `Marked.about` is `about`: the key of a model and
    its images. Unfinished trainings are included.
    """
    marks = workspace.trainings.glob(f"*/{MARK}") if workspace.trainings.is_dir() else ()
    folders = [file.parent for file in marks if (mark := _marked(file.parent)) is not None and mark.about == about]
    states = ((stored.kept_state(folder), _used(folder)) for folder in folders)
    return tuple((state, used) for state, used in states if state is not None)


def remove_old(workspace: Workspace) -> tuple[KeptTraining, ...]:
    """Remove all trainings whose `why_kept` is empty, and return them. Trainings in progress stay."""
    removed = []
    for one in trainings_of(workspace):
        folder = workspace.trainings / one.folder
        if one.why_kept or _used(folder) != one.used:  # checked again: reading all of them takes a while
            continue
        try:
            stored.remove_training(folder)
        except UserError:  # in use since a moment ago
            continue
        removed.append(one)
    for left in workspace.trainings.glob(f"{stored.REMOVED}*"):  # left by an interrupted removal
        shutil.rmtree(left, ignore_errors=True)
    return tuple(removed)


def _uses(workspace: Workspace) -> tuple[dict[str, tuple[Marked, str]], dict[str, str]]:
    """Return two maps, `uses` and `latest`. `uses` maps each training's folder to a pair: the training's `Marked`, and
    the end time of a retraining that used the training. A retraining that is the latest for its model and images
    comes first. `latest` maps each `Marked.about` (key of a model and its images) to the latest retraining's end time.
    """
    uses: dict[str, tuple[Marked, str]] = {}
    latest: dict[str, str] = {}
    for row in workspace.retrainings.kept():
        is_latest = row.about not in latest
        latest.setdefault(row.about, row.created)
        result: RetrainingResult = from_plain(RetrainingResult, row.told)
        for one in result.trainings:
            marked, created = uses.get(one.folder, (None, ""))
            if marked is None or (is_latest and created != latest[marked.about]):
                mark_of = Marked(row.about, result.model, result.title, result.split, one.arm, one.seed)
                uses[one.folder] = mark_of, row.created
    return uses, latest


def _kept_training(folder: Path, use: tuple[Marked, str] | None, latest: Mapping[str, str]) -> KeptTraining:
    """Return facts about the training that `folder` stores. `use` and `latest` come from `_uses`."""
    marked, created = use or (_marked(folder), "")
    is_latest = use is not None and created == latest[use[0].about]
    state, used = stored.kept_state(folder), _used(folder)
    if is_latest:
        why_kept = "of the latest retraining"
    elif marked is None:
        why_kept = "its model and images are not recorded"
    elif marked.about not in latest:
        why_kept = "its retraining is not done"
    elif used >= latest[marked.about]:
        why_kept = "used since the latest retraining"
    else:
        why_kept = "it is being trained" if stored.is_trained(folder) else ""
    shown = marked or Marked("", "", "", "", *((state.arm, state.seed) if state is not None else ("", 0)))
    return KeptTraining(
        *(folder.name, shown.model, shown.title, shown.split, shown.arm, shown.seed),
        done=state is not None and state.done,
        used=used,
        size=disk_of(folder),
        retraining=created,
        latest=is_latest,
        why_kept=why_kept,
    )


def _marked(folder: Path) -> Marked | None:
    try:
        marked: Marked = from_plain(Marked, json.loads((folder / MARK).read_text(encoding="utf-8")))
    except (OSError, ValueError):  # pydantic's own error is a ValueError
        return None
    return marked


def _used(folder: Path) -> str:
    """Return the time of the training's last use. Each use rewrites the file `MARK` in the folder."""
    file = next((one for one in (folder / MARK, folder / ABOUT) if one.exists()), folder)
    return datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="microseconds")


def disk_of(folder: Path) -> int:
    """Return the bytes of all files in a folder and below. Files removed while it counts are skipped."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(Path(place) / name).st_size
    return total
