"""The page of an evaluation, without its figures, and the report as one self-contained HTML file. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from core.class_tables import words_of_id
from core.evaluation_results import MappingRow
from core.settings import UnderTestSettings
from core.types import TaskKind
from services.evaluation.facts import SUFFIXES
from services.evaluation.methods import COUNTED, MethodsCompared, method_counts, method_rows
from services.evaluation.ranking import Ranking
from services.evaluation.retraining.jobs import TrainedModel
from services.evaluation.service import READING
from services.evaluation.types import (
    WITHOUT_SPLIT,
    ClassMapping,
    Evaluated,
    FocusFigures,
    LikenessFigures,
    ModelChoice,
    Pending,
    SubjectView,
)
from services.work_queue import WorkView
from ui.evaluate.explained import explanations_folded, explanations_window
from ui.evaluate.ranking import ranking_part
from ui.evaluate.render import render
from ui.evaluate.result import result_part
from ui.evaluate.words import LONGEST_MAPPING, Links, Place, embedded
from ui.explore.forms import model_fields
from ui.explore.parts import help_button
from ui.frame import page
from ui.markup import Html
from ui.theme import ASSETS

HEAD = "label,model class"
"""First line of a mapping from labels to model classes that a person types as CSV."""
INPUT = "api/input.png"
"""End of the address of an image as the model gets it, cropped and scaled."""
DOES: Mapping[TaskKind, str] = {"classification": "classifier", "segmentation": "segmenter"}


@dataclass(frozen=True)
class Stand:
    """State of the evaluation of a model on a subject (a version of a test set, or a filter of the gallery)."""

    place: Place
    subject: SubjectView
    model: str
    mapping: ClassMapping | None
    """The mapping from labels to model classes, or None if the model was never loaded."""
    pending: Pending
    work: WorkView | None = None
    """Current or last job of the model on these images, or None."""
    refused: str = ""
    """Sentence on why the evaluation cannot continue; "" if it can."""
    control: WorkView | None = None
    """Latest job that draws the control set (images without an edit), or None. The job is read before the images."""

    @property
    def at_work(self) -> bool:
        return self.work is not None and self.work.active

    @property
    def reading(self) -> bool:
        """True while the model is predicting the images."""
        return self.work is not None and self.work.active and self.work.kind == READING

    @property
    def ready(self) -> bool:
        """True if there are figures to show."""
        return bool(self.mapping and not self.mapping.problem and self.pending.read and not self.refused)

    @property
    def done(self) -> bool:
        """True once the model has predicted all images."""
        return self.ready and not self.at_work and self.pending.left <= 0 and not self.pending.unreadable

    @property
    def has_to_look(self) -> bool:
        """True if the model must be loaded first: it was never loaded, or only by version 0.1, which stored less."""
        unknown = self.mapping is None or (not self.done and not self.mapping.identity.assumptions)
        return unknown and not self.refused and self.work is None


def subjects_part(subjects: Sequence[SubjectView], gallery: Mapping[TaskKind, int], chosen: ModelChoice | None) -> Html:
    """Return the list of subjects: every version of every test set, and the gallery. `gallery` maps a task to
    the gallery's number of images. An empty list explains how to get images. `chosen` is None before a model is chosen.
    """
    key = chosen.key if chosen is not None else ""
    return render("subjects", subjects=subjects, gallery=gallery, chosen=chosen, key=key, does=DOES)


def models_part(
    choices: Sequence[ModelChoice], place: Place, trained: Sequence[TrainedModel], total: int | None = None
) -> Html:
    """Return the known models, the trained ones, and a form for another. `total` is the number of images to predict, or
    None before the images are chosen.
    """
    fields = model_fields(UnderTestSettings(source="torchvision"), with_refusals=True)
    return render("models", choices=choices, place=place, trained=trained, total=total, fields=fields)


def work_part(stand: Stand) -> Html:
    """Return the part with the mapping from labels to classes, and the predictions that are still to be made."""
    picture = stand.place.to(INPUT, beside="", other=None, mapping="")
    return render("work", stand=stand, choices=_choices, input=picture)


def _choices(row: MappingRow, place: Place) -> Iterator[tuple[str, str]]:
    """Yield (model class, address) for classes with a name similar to the label. The address maps the label to the
    class; it is "" if it would be too long.
    """
    for name in row.suggestions:
        mapping, of_id = _with_line(place.mapping, row.label, name), words_of_id(name).split(", ")[0]
        yield f"{of_id} ({name})" if of_id else name, place.to(mapping=mapping) if mapping else ""


def _with_line(mapping: str, label: str, model_class: str) -> str:
    """Add a line to a mapping that a person typed. Return "" if it is not CSV with commas or would be too long."""
    text = mapping.strip() or HEAD
    if text.partition("\n")[0].strip() != HEAD:
        return ""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow((label, model_class))
    longer = f"{text}\n{line.getvalue()}"
    return longer if len(longer) <= LONGEST_MAPPING else ""


SHEETS, SCRIPTS = ("evaluate.css",), ("model-form.js", "evaluate.js", "evaluate-retraining.js")
_FILES = {"html": "one HTML file", "markdown": "Markdown", "latex": "LaTeX table", "csv": "CSV", "parquet": "Parquet"}


def list_page(
    subjects: Sequence[SubjectView], gallery: Mapping[TaskKind, int], models: Html, chosen: ModelChoice | None
) -> str:
    """Return the page with all subjects to evaluate. `models` is the part about the chosen model or all models."""
    content = render("list", models=models, subjects=subjects_part(subjects, gallery, chosen))
    return _page("Evaluate", content)


def subject_page(subject: SubjectView, place: Place, models: Html | None) -> str:
    """Return the page on which a person chooses a model for a subject."""
    content = render("subject", subject=subject, place=place, stand=None, models=models, WITHOUT_SPLIT=WITHOUT_SPLIT)
    return _page(subject.title, content)


def evaluation_page(
    stand: Stand,
    parts: Mapping[str, Html],
    choices: Sequence[ModelChoice],
    versions: Sequence[SubjectView],
    several_methods: bool,
) -> str:
    """Return the page that evaluates a model on a subject: class mapping, progress of the predictions, and figures.
    `several_methods` is True if several methods drew the images, so that the methods can be compared.
    """
    place = stand.place
    content = render(
        "evaluation",
        stand=stand,
        subject=stand.subject,
        place=place,
        parts=parts,
        models_beside=[(one.title, place.to(beside=one.key, other=None)) for one in choices if one.key != place.key],
        versions_beside=[
            (one.title, place.to(other=one.subject.version, beside=""))
            for one in versions
            if place.version is not None and one.subject.version != place.version and not one.problem
        ],
        several_methods=several_methods,
        files=_FILES,
        refused="",
        WITHOUT_SPLIT=WITHOUT_SPLIT,
    )
    return _page(f"{stand.model} on {stand.subject.title}", content)


def methods_page(found: MethodsCompared, place: Place, addresses: Sequence[str], opened: Callable[..., str]) -> str:
    """Return the page that compares methods. `addresses` lead to the evaluation of each single method. `opened`
    appends text and query parameters to the address of this page.
    """
    counts, rows, counted = method_counts(found), method_rows, COUNTED
    values = {"found": found, "place": place, "alone": addresses, "opened": opened}
    content = render("methods", **values, counts=counts, rows=rows, counted=counted)
    return _page("Methods on the same sources", content)


def _page(title: str, content: Html) -> str:
    ends = help_button("What the figures say")
    return page(title, content, explanations_window(), here="evaluate", ends=ends, sheets=SHEETS, scripts=SCRIPTS)


# The report as one file


def report_html(
    found: Evaluated,
    ranking: Ranking | None,
    thumbnail: Callable[[str], bytes],
    likeness: LikenessFigures | None = None,
    focus: FocusFigures | None = None,
) -> str:
    """Return the report as one HTML file with its styles and pictures. It has no script and no link to the studio."""

    def nowhere(entries: Sequence[int], image: int) -> None:
        """Return None: a report cannot link to a list of images."""

    def picture(sha: str) -> str | None:
        data = thumbnail(sha)
        return embedded(data) if data else None

    sheets = ("studio.css", "study.css", "evaluate.css")
    style = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in sheets)
    model: tuple[tuple[str, str], ...] = (("name", found.model),)
    if found.identity is not None:
        known = found.identity
        model = (("name", known.name), ("weights", known.weights), ("digest", known.digest), *known.assumptions)
    content = render(
        "report",
        found=found,
        style=Html(style.replace("</", "<\\/")),
        result=Html(result_part(found, Links(picture=picture)).replace(" hidden>", ">")),  # no script opens tables
        ranking=ranking_part(ranking, nowhere, picture) if ranking is not None else None,
        likeness=likeness
        and render("likeness", found=likeness, work=None, listed=nowhere, picture=picture, acts=False),
        focus=focus and focus.images and render("focus", found=focus, work=None, refused="", acts=False),
        model=model,
        explanations_folded=explanations_folded,
    )
    return f"<!doctype html>\n{content}\n"


FILES = {kind: SUFFIXES.get(kind, ".html") for kind in _FILES}  # type: ignore[call-overload]
"""File name extension of each kind of report."""
