"""Parts of the page Evaluate before its figures: test set, model, class mapping, reading of the images. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.class_tables import words_of_id
from core.evaluation_results import MappingRow
from core.settings import UnderTestSettings
from core.types import TaskKind
from services.evaluation.retraining.jobs import TrainedModel
from services.evaluation.service import READING
from services.evaluation.types import ClassMapping, ModelChoice, Pending, SubjectView
from services.work_queue import WorkView
from ui.evaluate.render import render
from ui.evaluate.words import Place
from ui.explore.model_form import model_fields
from ui.markup import Html

LONGEST_MAPPING = 4000
"""Maximum number of characters of a mapping file in an address. Longer files need the command line."""
HEAD = "label,model class"
"""The first line of a person's own mapping."""
INPUT = "api/input.png"
"""Path of an image as the model gets it, below the page's own."""
DOES: Mapping[TaskKind, str] = {"classification": "classifier", "segmentation": "segmenter"}


@dataclass(frozen=True)
class Stand:
    """Progress of the evaluation of a model on a subject."""

    place: Place
    subject: SubjectView
    model: str
    """Title of the model."""
    mapping: ClassMapping | None
    """The class mapping, or None if the model was never loaded."""
    pending: Pending
    work: WorkView | None = None
    """Current or last work with the model."""
    refused: str = ""
    """Why the evaluation cannot go on, in one sentence; "" if it can."""
    control: WorkView | None = None
    """Work that draws the control set. It is read before the subject, so that finished images are counted."""

    @property
    def at_work(self) -> bool:
        return self.work is not None and self.work.active

    @property
    def reading(self) -> bool:
        """True while the model reads images."""
        return self.work is not None and self.work.active and self.work.kind == READING

    @property
    def ready(self) -> bool:
        """True if there are figures to show."""
        return bool(self.mapping and not self.mapping.problem and self.pending.read and not self.refused)

    @property
    def done(self) -> bool:
        """True once every image has been read."""
        return self.ready and not self.at_work and self.pending.left <= 0 and not self.pending.unreadable

    @property
    def has_to_look(self) -> bool:
        """True if the model must be loaded first: never loaded, or last by version 0.1, which stored less about it."""
        unknown = self.mapping is None or (not self.done and not self.mapping.identity.assumptions)
        return unknown and not self.refused and self.work is None


def subjects_part(subjects: Sequence[SubjectView], gallery: Mapping[TaskKind, int], chosen: ModelChoice | None) -> Html:
    """Return the list of subjects: every version of every test set, and the gallery with its images by kind. Without
    any, it explains how to get some. `chosen` is the model to evaluate on them, if it was chosen first.
    """
    key = chosen.key if chosen is not None else ""
    return render("subjects", subjects=subjects, gallery=gallery, chosen=chosen, key=key, does=DOES)


def models_part(
    choices: Sequence[ModelChoice], place: Place, trained: Sequence[TrainedModel], total: int | None = None
) -> Html:
    """Return the known models, those trained here, and a form for another one. `total` is the number of images of the
    subject, or None before one is chosen.
    """
    fields = model_fields(UnderTestSettings(source="torchvision"), with_refusals=True)
    return render("models", choices=choices, place=place, trained=trained, total=total, fields=fields)


def work_part(stand: Stand) -> Html:
    """Return the mapping from labels to classes, and the work needed to get figures."""
    return render(
        "work",
        stand=stand,
        choices=_choices,
        longest=LONGEST_MAPPING,
        input=stand.place.to(INPUT, beside="", other=None, mapping=""),
    )


def _choices(row: MappingRow, place: Place) -> Iterator[tuple[str, str]]:
    """Yield the model's classes that are similar to a label. Each comes with the address that maps the label to it, or
    "" if an address cannot hold the longer mapping.
    """
    for name in row.suggestions:
        mapping, of_id = _with_line(place.mapping, row.label, name), words_of_id(name).split(", ")[0]
        yield f"{of_id} ({name})" if of_id else name, place.to(mapping=mapping) if mapping else ""


def _with_line(mapping: str, label: str, model_class: str) -> str:
    """Return a person's mapping with one more line; "" if it is not CSV with commas or would be too long."""
    text = mapping.strip() or HEAD
    if text.partition("\n")[0].strip() != HEAD:
        return ""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow((label, model_class))
    longer = f"{text}\n{line.getvalue()}"
    return longer if len(longer) <= LONGEST_MAPPING else ""
