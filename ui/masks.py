"""The mask of a run: taken from a file or with its sample, its classes named, or taken away."""

from __future__ import annotations

from collections.abc import Mapping

from pipeline.errors import UserError
from pipeline.masks import parse_classes, read_mask, require_names
from storage.types import Run
from ui.samples import Sample
from ui.studio import Studio


def give_mask(studio: Studio, run_id: str, data: bytes, classes: str) -> tuple[str, ...]:
    """Give the run the mask in a file's bytes, with its classes as text, such as "0 sky, 1 road".

    Returns what was put right, a sentence each. Raises UserError, and changes nothing, for a mask that does not fit
    the source image or its classes.
    """
    run = studio.workspace.run(run_id)
    mask = read_mask(data, studio.source(run).size, parse_classes(classes))
    studio.workspace.set_mask(run_id, mask.image, mask.classes)
    return mask.notes


def take_sample_mask(studio: Studio, run_id: str) -> None:
    """Give the run the mask of its sample. Raises UserError when the sample has none."""
    run = studio.workspace.run(run_id)
    sample = sample_of(studio.samples, run)
    if sample is None or sample.mask is None:
        raise UserError("There is no mask for this picture: give one of your own.")
    mask = read_mask(sample.mask.read_bytes(), studio.source(run).size, sample.classes)
    studio.workspace.set_mask(run_id, mask.image, mask.classes)


def name_classes(studio: Studio, run_id: str, text: str) -> None:
    """Other names for the classes of the run's mask. Raises UserError for text that names not all, or no, classes."""
    run = studio.workspace.run(run_id)
    if run.mask_sha is None:
        raise UserError("There is no mask yet: give one first.")
    classes, mask = parse_classes(text), studio.workspace.image(run.mask_sha)
    require_names(mask, classes)
    studio.workspace.set_mask(run_id, mask, classes)


def sample_of(samples: tuple[Sample, ...], run: Run) -> Sample | None:
    """The sample that the run was begun with; None for an upload, or when the profile no longer has it."""
    return next((sample for sample in samples if run.sample and sample.name == run.sample), None)


def known_classes(samples: tuple[Sample, ...]) -> Mapping[int, str]:
    """The classes that a mask is taken to have until a person says otherwise: those of the profile's samples."""
    return next((sample.classes for sample in samples if sample.classes), {})
