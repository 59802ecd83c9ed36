"""Parts of the page Evaluate before its figures: test set, model, map of its classes, reading of the images. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from core.class_tables import words_of_id
from core.evaluation_results import MappingReport, MappingRow
from core.model_identity import ModelIdentity
from core.settings import UnderTestSettings
from core.types import TaskKind
from core.words import count_of
from services.evaluation.retraining.jobs import TrainedModel
from services.evaluation.service import READING
from services.evaluation.types import ClassMapping, ModelChoice, Pending, SubjectView
from services.work_queue import WorkView
from ui.evaluate.words import EVALUATE, Place, evaluate_address, per_cent
from ui.explore.model_form import model_fields
from ui.explore.parts import (
    acts,
    bar,
    button,
    facts,
    head_table,
    left,
    more_line,
    muted,
    named_row,
    pill,
    problem,
    small,
    thumb_url,
)
from ui.markup import Child, Html, el
from ui.study.fields import area, field

SHOWN = 12
"""Labels of a table that stand in sight."""
FEW = 5
"""Classes without a label that the summary names itself."""
LONGEST_MAPPING = 4000
"""Characters of a file of one's own that an address can hold; more is for the command line."""
HEAD = "label,model class"
"""The first of a person's own lines."""
INPUT = "api/input.png"
"""Of the address of an image as the model gets it, below the page's own."""
_KINDS = {"classification": "classification", "segmentation": "segmentation", None: "no images"}
_DOES: Mapping[TaskKind, str] = {"classification": "classifier", "segmentation": "segmenter"}


@dataclass(frozen=True)
class Stand:
    """How far it is with a model and a subject."""

    place: Place
    subject: SubjectView
    model: str
    """What it is called."""
    mapping: ClassMapping | None
    """None where nobody has loaded the model yet."""
    pending: Pending
    work: WorkView | None = None
    """What is done with the model now, or was done last."""
    refused: str = ""
    """Why there is nothing to go on with, in one sentence."""
    control: WorkView | None = None
    """The drawing of the control set, as it was before the subject was looked at: what is over by then is counted."""

    @property
    def at_work(self) -> bool:
        return self.work is not None and self.work.active

    @property
    def ready(self) -> bool:
        """Whether there are figures to show."""
        return bool(self.mapping and not self.mapping.problem and self.pending.read and not self.refused)

    @property
    def done(self) -> bool:
        """Whether everything is read."""
        return self.ready and not self.at_work and self.pending.left <= 0 and not self.pending.unreadable


# Which test set


def subjects_part(subjects: Sequence[SubjectView], gallery: Mapping[TaskKind, int], chosen: ModelChoice | None) -> Html:
    """List every version of every test set and the gallery with its images by kind, or say how to get some. `chosen` is
    the model that is evaluated on them, if it was chosen first.
    """
    if not subjects and not gallery:
        return el(
            "section",
            el("h2", "Nothing to evaluate yet" if chosen is None else "On which images?"),
            el(
                "p",
                "A model is evaluated on images, and there are none yet: make some in ",
                el("a", "Explore", href="/"),
                ", or many of them as a ",
                el("a", "batch", href="/batches/"),
                ". You can choose your model now: it is kept." if chosen is None else ". The model is kept till then.",
            ),
            class_="card part",
            id="part-subjects",
        )
    hint = small(
        "Or evaluate whatever a filter shows: press “Evaluate a model on these” beside it in ",
        el("a", "Curate", href="/curate/"),
        "." if subjects else ", or put images into a test set there.",
    )
    return el(
        "section",
        el("h2", "On which images?"),
        [_subject_line(one, chosen) for one in subjects],
        [_gallery_line(kind, images, chosen) for kind, images in gallery.items()],
        hint,
        id="part-subjects",
        class_="subject-list",
    )


def _misfit(kind: TaskKind | None, chosen: ModelChoice | None) -> str:
    """Why the chosen model cannot be evaluated on images of a kind; "" if it can, or nobody knows yet."""
    if chosen is None or kind is None or chosen.kind in (None, kind):
        return ""
    return f"These images are of a {kind}, and {chosen.title} is no {_DOES[kind]}."


def _gallery_line(kind: TaskKind, images: int, chosen: ModelChoice | None) -> Html:
    misfit = _misfit(kind, chosen)
    to = evaluate_address(filter=urlencode({"kind": kind}), key=chosen.key if chosen is not None else "")
    return el(
        "div",
        el(
            "div",
            el("b", el("a", "The whole gallery", href=to) if not misfit else "The whole gallery"),
            el("small", count_of(images, "generated image"), class_="mut"),
            class_="what",
        ),
        pill(_KINDS[kind], "acc"),
        el("div", misfit or "All images that are there, in whatever set or none.", class_="mut small told"),
        class_="card subject-line no" if misfit else "card subject-line",
        data_kind=kind,
    )


def _subject_line(one: SubjectView, chosen: ModelChoice | None) -> Html:
    key, misfit = chosen.key if chosen is not None else "", _misfit(one.kind, chosen)
    splits = len(one.splits) > 1 and not misfit
    problem = one.problem or misfit
    look = "card subject-line" if not problem or splits else "card subject-line no"
    told: Child = problem
    if splits:
        told = [el("span", "split "), [_split_link(one, split, key) for split in one.splits]]
    name: Child = one.title
    if not problem or splits:
        name = el("a", one.title, href=evaluate_address(version=one.subject.version, key=key))
    figures = f"{count_of(one.sources, 'source')} · {count_of(one.cases, 'test case')}"
    if one.controls:
        figures += f" · {count_of(one.controls, 'reconstruction')}"
    return el(
        "div",
        el("div", el("b", name), el("small", figures, class_="mut"), class_="what"),
        pill(_KINDS[one.kind], "acc" if one.kind else ""),
        el("div", told, class_="mut small told"),
        class_=look,
        data_version=one.subject.version,
    )


def _split_link(one: SubjectView, split: str, key: str) -> Html:
    return el("a", split, href=evaluate_address(version=one.subject.version, split=split, key=key), class_="btn s")


def splits_part(one: SubjectView, place: Place) -> Html | None:
    """Of a subject with several splits: one has to be chosen."""
    if len(one.splits) < 2:
        return None
    links = [
        el("a", split, href=place.to(split=split), class_="btn p" if split == place.split else "btn")
        for split in one.splits
    ]
    words = (
        "Sources of several splits are never mixed: what a model was trained on says nothing of what it has not seen."
    )
    return el(
        "section",
        el("h2", "Which split?"),
        muted(words),
        acts(links),
        class_="card part",
        id="part-splits",
    )


# Which model


def models_part(
    choices: Sequence[ModelChoice], place: Place, trained: Sequence[TrainedModel], total: int | None = None
) -> Html:
    """The models that there are, those that were trained here, and a form for another one. `total` are the images of
    the subject; None as long as none is chosen.
    """
    lines = [
        el(
            "a",
            el("b", one.title),
            pill("of the profile", "acc") if one.from_profile else pill(one.settings.source),
            el("span", _read_words(one, total), class_="mut small"),
            href=place.to(key=one.key),
            class_="card model-line",
            data_model=one.key,
        )
        for one in choices
    ]
    empty = muted("The profile names no model under test for these images: choose one below.")
    return el(
        "section",
        el("h2", "Which model?"),
        el("div", lines, class_="model-list") if lines else empty,
        trained_here(trained) if trained else None,
        _other_model(opened=not lines),
        el("p", "", class_="wrong", data_problem="", role="alert", id="wrong-model"),
        class_="card part",
        id="part-models",
    )


def trained_here(trained: Sequence[TrainedModel]) -> Html:
    """The weights of retrainings, a button each, also for the form in Explore."""
    lines = [
        el(
            "button",
            el("b", f"{one.found.model}, {one.weights.arm}"),
            pill("trained here"),
            el(
                "span",
                f"on {one.found.title}; {per_cent(one.weights.score)} right on its tuning images",
                class_="mut small",
            ),
            type="button",
            class_="card model-line",
            data_trained=one.number,
            data_arm=one.weights.arm,
        )
        for one in trained
    ]
    return more_line(f"Trained here ({len(lines)})", el("div", lines, class_="model-list"), id="trained-here")


def chosen_part(chosen: ModelChoice, identity: ModelIdentity | None) -> Html:
    """The model that was chosen before its images."""
    words = "It is loaded when it reads its first images."
    if identity is not None:
        classes = identity.classes
        more = f" and {len(classes) - SHOWN:,} more" if len(classes) > SHOWN else ""
        does = f"A {_DOES[identity.kind]} of {count_of(len(classes), 'class')}"
        words = f"{does}: {', '.join(classes[:SHOWN])}{more}."
    return el(
        "section",
        el(
            "header",
            el("h2", chosen.title),
            pill("of the profile", "acc") if chosen.from_profile else pill(chosen.settings.source),
            el("a", "choose another", href=EVALUATE, class_="small", id="change-model"),
        ),
        el("p", words),
        more_line("How the model is asked", facts(identity.assumptions)) if identity and identity.assumptions else None,
        class_="card part",
        id="part-chosen",
    )


def _read_words(one: ModelChoice, total: int | None) -> str:
    if total is None:
        return one.kind or ""
    if not one.predicted:
        return "has read none of the images yet"
    return "has read all images" if one.predicted >= total else f"has read {one.predicted:,} of {total:,} images"


def _other_model(opened: bool) -> Html:
    form = el(
        "form",
        model_fields(UnderTestSettings(source="torchvision"), with_refusals=True),
        acts(
            el("button", "Look at it", type="submit", class_="btn", id="look"),
            el("span", "", class_="mut small", id="looking"),
        ),
        id="model-form",
        class_="model-form",
    )
    return more_line("Another model", form, open=opened, id="other-model")


# The control set


def control_part(work: WorkView | None, can_make: bool) -> Html | None:
    """Progress or result of drawing the control set. If it `can_make` one, a button begins it."""
    if work is not None and work.active:
        words = f"{work.done:,} of {count_of(work.total, 'reconstruction')} drawn" if work.total else "Drawing begins"
        if work.doing:
            words = f"All are drawn, and the model reads: {work.done:,} of {work.total:,} images"
        told = "Stopping: what was drawn stays." if work.stopping else f"{words}{left(work.seconds_left)}"
        cancel = button("Cancel", look="s", data_send="cancel-control-set", data_work=work.id, disabled=work.stopping)
        inside = [el("p", told, class_="small"), bar(work.done / work.total if work.total else None), cancel]
        return el("div", inside, class_="control", id="control", data_work=work.id)
    said = [problem(work.error)] if work is not None and work.state == "failed" else []
    note = str(getattr(work.result, "note", "")) if work is not None else ""
    if note:
        said.append(small(note))
    if can_make:
        said.append(button("Make the control set", look="s", data_send="make-control-set", id="make-control"))
    return el("div", said, class_="control", id="control") if said else None


# What its classes are


def work_part(stand: Stand) -> Html:
    """The map from labels to classes, and what is done to come to figures."""
    body: list[Child] = []
    if stand.refused:
        body.append(problem(stand.refused))
    elif stand.mapping is None:
        body.append(_looking(stand))
    else:
        body.append(_reading(stand))
    mapping = None
    if stand.mapping is not None:
        inside = [
            problem(stand.mapping.problem) if stand.mapping.problem else None,
            _mapping(stand.mapping.report, stand.place),
            _own_mapping(stand.place, open_=bool(stand.mapping.problem)),
        ]
        unmapped = len(stand.mapping.report.unmapped)
        title = "What the labels are for the model"
        says = pill(f"{unmapped:,} unmapped", "warn") if unmapped else pill("all mapped", "ok")
        if stand.done:
            mapping = el("details", el("summary", el("h2", title), says), inside, class_="mapping folded", id="mapping")
        else:
            mapping = el("div", el("header", el("h2", title), says), inside, class_="mapping", id="mapping")
    return el(
        "section",
        body,
        _assumptions(stand, stand.mapping) if stand.mapping is not None else None,
        mapping,
        id="part-work",
        class_="card part",
        data_at_work=stand.at_work,
        data_look=_unknown(stand) and not stand.refused and stand.work is None,
    )


def _unknown(stand: Stand) -> bool:
    """Whether the model has to be loaded before it reads: never loaded, or last by version 0.1, which kept less."""
    return stand.mapping is None or (not stand.done and not stand.mapping.identity.assumptions)


def _looking(stand: Stand) -> Html:
    work = stand.work
    if work is not None and work.state == "failed":
        return el("div", problem(work.error), button("Try again", look="s", data_again=True), class_="stack")
    return el(
        "div",
        el("p", f"Loading {stand.model}, so that it can say what classes it knows.", class_="working"),
        bar(None),
        class_="stack wide",
    )


def _reading(stand: Stand) -> Html | None:
    assert stand.mapping is not None
    work, pending = stand.work, stand.pending
    if work is not None and work.active and work.kind == READING:
        stopping = work.stopping
        done = f"{work.done:,} of {work.total:,} images" if work.total else "beginning"
        words = (
            "Stopping: what was read is kept." if stopping else f"{stand.model} reads: {done}{left(work.seconds_left)}"
        )
        return el(
            "div",
            acts(
                el("p", words, id="progress"),
                el("span", class_="grow"),
                button("Cancel", look="s", data_send="cancel-predictions", data_work=work.id, disabled=stopping),
            ),
            bar(work.done / work.total if work.total else None),
            class_="stack wide",
        )
    failed = problem(work.error) if work is not None and work.state == "failed" else None
    if stand.mapping.problem:
        return failed
    if pending.left > 0:
        begun = pending.read > 0
        words = (
            f"{pending.read:,} of {pending.images:,} images are read: originals and what was drawn of them."
            if begun
            else f"{count_of(pending.images, 'image')} to read: originals and what was drawn of them, each once."
        )
        if stand.control is not None and stand.control.active:
            words += " Reconstructions are being drawn just now."
            return el("div", failed, el("p", words, id="progress"), class_="stack wide")
        stopped = work is not None and work.state == "cancelled"
        act = button("Go on" if begun else "Begin", look="p", data_send="begin-predictions", id="begin")
        return el(
            "div",
            failed,
            acts(
                el("p", "Cancelled: what was read is kept. " if stopped else None, words, id="progress"),
                el("span", class_="grow"),
                act,
            ),
            bar(pending.read / pending.images) if begun else None,
            class_="stack wide",
        )
    if pending.unreadable:
        again = button("Try these again", look="s", data_send="begin-predictions")
        words = f"{count_of(pending.unreadable, 'image')} could not be read."
        return acts(failed, el("p", words), again)
    return failed


def _assumptions(stand: Stand, mapping: ClassMapping) -> Html | None:
    """What is assumed of the model, beside an image as it is and as the model gets it."""
    rows = mapping.identity.assumptions
    if not rows:
        return None
    pictures = None
    if mapping.sample and not stand.at_work:  # a model at work has no time for another picture
        address = stand.place.to(INPUT, beside="", other=None, mapping="")
        pictures = el(
            "div",
            _picture(thumb_url(mapping.sample), "an image of the set"),
            el("span", "→", class_="mut", aria_hidden=True),
            _picture(address, "as the model gets it"),
            class_="model-input",
        )
    title, inside = el("h2", "How the model is asked"), el("div", pictures, facts(rows), class_="assumptions")
    if stand.done:
        return el("details", el("summary", title), inside, class_="mapping folded", id="assumptions")
    return el("div", el("header", title), inside, class_="mapping", id="assumptions")


def _picture(address: str, words: str) -> Html:
    return el("figure", el("img", src=address, alt=words, loading="lazy"), el("figcaption", words, class_="mut small"))


def _mapping(report: MappingReport, place: Place) -> list[Child]:
    said: list[Child] = [el("p", report.summary)]
    if report.unmapped:
        rows = [
            named_row(
                row.label,
                el("td", row.note or "no class of the model fits"),
                el("td", _choices(row, place), class_="mut"),
            )
            for row in report.unmapped
        ]
        said.append(_rows_folded(("unmapped label", "why", "map it to"), rows, "unmapped"))
    marked = [_mapped_row(row, row.note) for row in report.mapped if row.marked]
    if marked:
        said.append(_rows_folded(("look at", "taken for", "why"), marked, "marked"))
    if report.mapped:
        mapped = [_mapped_row(row, row.rule + (f"; {row.note}" if row.note else "")) for row in report.mapped]
        table = _rows_folded(("label", "class of the model", "by"), mapped, "mapped")
        said.append(more_line(f"{count_of(len(mapped), 'label')} mapped", table))
    if len(report.left_over) > FEW:
        names = small(f"{', '.join(report.left_over)}.")
        words = f"{len(report.left_over):,} classes of the model without a label"
        said.append(more_line(words, names))
    if report.together:
        words = f"Measured as one, since the model cannot tell them apart: {'; '.join(report.together)}."
        said.append(small(words))
    return said


def _choices(row: MappingRow, place: Place) -> list[Child]:
    """Classes of the model near a label. Each is a link that maps the label to it by a line of one's own."""
    links: list[Child] = []
    for name in row.suggestions:
        mapping, of_id = _with_line(place.mapping, row.label, name), words_of_id(name).split(", ")[0]
        words = f"{of_id} ({name})" if of_id else name
        links += [", " if links else "", el("a", words, href=place.to(mapping=mapping)) if mapping else words]
    return links or ["–"]


def _with_line(mapping: str, label: str, model_class: str) -> str:
    """Lines of one's own and one more; "" where they are no CSV with commas or would be too long."""
    text = mapping.strip() or HEAD
    if text.partition("\n")[0].strip() != HEAD:
        return ""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow((label, model_class))
    longer = f"{text}\n{line.getvalue()}"
    return longer if len(longer) <= LONGEST_MAPPING else ""


def _mapped_row(row: MappingRow, told: str) -> Html:
    names = ", ".join(row.classes[:SHOWN])
    more = f" and {len(row.classes) - SHOWN} more" if len(row.classes) > SHOWN else ""
    return named_row(row.label, el("td", names, more), el("td", told, class_="mut"))


def _rows_folded(head: Sequence[str], rows: Sequence[Html], name: str) -> Html:
    first = head_table(head, rows[:SHOWN], id=name)
    if len(rows) <= SHOWN:
        return first
    rest = el("details", el("summary", f"{len(rows) - SHOWN} more"), el("table", el("tbody", rows[SHOWN:])))
    return el("div", first, rest)


def _own_mapping(place: Place, open_: bool) -> Html:
    """A form of the browser's own means: what it says goes into the address."""
    hidden = [
        el("input", type="hidden", name=name, value=value) for name, value in place.fields.items() if name != "mapping"
    ]
    text = area(
        "mapping",
        place.mapping,
        5,
        class_="code",
        maxlength=LONGEST_MAPPING,
        spellcheck="false",
        placeholder=f"{HEAD}\nbird,house finch",
    )
    hint = "CSV with these two columns, or TOML with [labels]; it has the last word. An empty class leaves a label out."
    form = el(
        "form",
        hidden,
        field("mapping", "Your own lines", text, {}, hint),
        acts(el("button", "Map by these", type="submit", class_="btn s", id="map")),
        action=EVALUATE,
        method="get",
    )
    shown = open_ or bool(place.mapping)
    return more_line("Map labels by lines of your own", form, open=shown, id="own-mapping")
