"""The folder of a run as a store. The command `augment` fills the folder. The command `again` redraws its images to
compare them. `run.json` is written after each value and image, so that finished work is kept however the run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from core.errors import UserError
from core.images import image_sha
from core.lineage import Failure, Lineage, TestCase
from core.masks import NamedMask
from core.types import CounterfactualCaption, StageName, StageValue
from pipeline.prompting import PromptSet
from pipeline.request import MemoryStore
from pipeline.run_files import run_file
from pipeline.run_files.run_file import RunFile, RunImageFiles


class FolderStore(MemoryStore):
    """Stores a request's results in a new folder, or in one with its earlier results. Other folders raise UserError."""

    def __init__(
        self,
        folder: Path,
        requested: RunFile,
        source: Image.Image,
        mask: Image.Image | None,
        saving: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`requested` is the run without values and images. `saving` delays signals that end the program."""
        stored = _open(folder, requested)
        super().__init__(source, stored.run.values, named_mask(mask, requested))
        self._saving, self._folder, self._asked, self._picture = saving, folder, requested, mask
        self._images = list(stored.images)
        self._failures = list(stored.failures)
        for image in self._images:
            run_file.load_case(image, folder)  # raises an error now for a missing or changed file
        run_file.save_png(source, folder / run_file.SOURCE)
        if mask is not None:
            run_file.save_png(mask, folder / run_file.MASK)
        if not self.file.exists():
            self._write()

    def save_value(self, stage: StageName, value: StageValue[Any]) -> None:
        with self._saving():
            self.held[stage] = value
            self._write()

    def drawn(self) -> Collection[Lineage]:
        return [image.record.lineage for image in self._images]

    def save_case(self, case: TestCase) -> None:
        with self._saving():
            so_far, number = self._run(complete=False), len(self._images) + 1
            self._images.append(run_file.save_case(case, self._folder, number, so_far, self._source, self._picture))
            self._write()

    def failures(self) -> Collection[Failure]:
        return self._failures

    def save_failure(self, failure: Failure) -> None:
        with self._saving():
            self._failures = [one for one in self._failures if one.what != failure.what]
            self._failures.append(failure)
            self._write()

    def file_of(self, lineage: Lineage) -> Path:
        return self._folder / next(image.file for image in reversed(self._images) if image.record.lineage == lineage)

    @property
    def images(self) -> int:
        """Number of images in the folder."""
        return len(self._images)

    @property
    def file(self) -> Path:
        """Path of `run.json`."""
        return self._folder / run_file.FILE

    def finish(self, lineages: Collection[Lineage], complete: bool = True) -> None:
        """Write `run.json` with these images. Set `complete` if no image failed. Raises UserError if writing fails."""
        order = list(lineages)
        images = [image for image in self._images if image.record.lineage in order]
        self._images = sorted(images, key=lambda image: order.index(image.record.lineage))
        with self._saving():
            self._write(complete)

    def _write(self, complete: bool = False) -> None:
        run_file.write(self._run(complete), self._folder)

    def _run(self, complete: bool) -> RunFile:
        return replace(
            self._asked,
            run=replace(self._asked.run, values=self.held),
            images=tuple(self._images),
            failures=tuple(self._failures),
            complete=complete,
        )


class RepeatStore(MemoryStore):
    """A finished run whose images are drawn again into another folder. Each new image is compared with its record."""

    def __init__(
        self,
        record: RunFile,
        images: Collection[RunImageFiles],
        source: Image.Image,
        mask: Image.Image | None,
        folder: Path,
        compared: Callable[[Path, bool], None],
    ) -> None:
        """`compared` is called for each new file with its path, and with True if its pixels equal the recorded ones."""
        super().__init__(source, record.run.values, named_mask(mask, record))
        self._run, self._picture, self._folder = record, mask, folder
        self._images: dict[tuple[CounterfactualCaption, int], RunImageFiles] = {
            (image.record.lineage.counterfactual, image.record.lineage.seed): image for image in images
        }
        self._compared = compared

    def save_value(self, stage: StageName, value: StageValue[Any]) -> None:
        raise RuntimeError("a finished run keeps its values: only its images are drawn again")

    def save_case(self, case: TestCase) -> None:
        lineage = case.lineage
        image = self._images[lineage.counterfactual, lineage.seed]
        record, file = image.record, self._folder / image.file
        # The file gets the recorded time and checks, so that equal pixels give an equal file, byte for byte.
        noted = replace(case, lineage=replace(lineage, seconds=record.lineage.seconds), checks=record.checks)
        run_file.save_image(noted, file, self._run, self._source, self._picture)
        self._compared(file, image_sha(case.image) == record.sha256)


def named_mask(mask: Image.Image | None, record: RunFile) -> NamedMask | None:
    """Return the mask of a run with the names of its classes."""
    return NamedMask(mask, record.run.mask_classes) if mask is not None else None


def make_folder(folder: Path) -> Path:
    """Return the folder, created if it is missing. Raises UserError if it cannot be created."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"The folder {folder} cannot be created ({error.strerror or error}): choose another one."
        ) from error
    return folder


def _open(folder: Path, requested: RunFile) -> RunFile:
    """Return the folder's run, or `requested` if it has none. Raises UserError for a run of another request."""
    make_folder(folder)
    if not (folder / run_file.FILE).exists():
        return requested
    stored = run_file.read(folder / run_file.FILE)
    unsent = requested.recipe.unsent(requested.settings)
    for what, then, now in (
        ("image", stored.source_sha256, requested.source_sha256),
        ("recipe", stored.run.recipe, requested.run.recipe),
        ("task", stored.run.task, requested.run.task),
        ("profile", _of_a_run(stored.profile), _of_a_run(requested.profile)),
        ("prompts", _sent(stored.prompts, unsent), _sent(requested.prompts, unsent)),
        ("settings", stored.settings, requested.settings),
        ("seed", stored.seed, requested.seed),
        ("mask", (stored.mask_sha256, stored.run.mask_classes), (requested.mask_sha256, requested.run.mask_classes)),
    ):
        if then != now:
            raise UserError(f"The folder {folder} holds a run with another {what}: choose another --out.")
    return stored


_NO_OTHER_RUN = frozenset("title notice licence samples tasks model_under_test checks settings recipes presets".split())
"""Parts of a profile that do not affect a run: texts, image checks, and defaults that the run's settings replace."""


def _of_a_run(profile: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a profile that must stay the same throughout a run."""
    return {name: value for name, value in profile.items() if name not in _NO_OTHER_RUN}


def _sent(prompts: PromptSet, unsent: Collection[str]) -> PromptSet:
    return replace(prompts, prompts={name: one for name, one in prompts.prompts.items() if name not in unsent})
