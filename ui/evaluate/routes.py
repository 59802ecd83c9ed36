"""Routes of the page Evaluate: pages, data, actions, images and reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import FileResponse, RedirectResponse, Response
from pydantic import ValidationError

from core.errors import UserError
from core.types import TaskKind, from_plain
from services.commands import Missing
from services.curation.views import list_address
from services.edit_conflicts import LARGEST_ID
from services.evaluation.commands import OnModel, OnTwoModels
from services.evaluation.factors import NOT_READ, parts_words
from services.evaluation.facts import file_of
from services.evaluation.model_files import keep_upload
from services.evaluation.retraining.jobs import TrainedModel
from services.evaluation.service import LOOKING, about, about_control, model_choice_key
from services.evaluation.study import StudyPlan
from services.evaluation.types import Cell, CellKind, Evaluated, EvaluationQuestion, FocusFigures, ModelChoice, Pending
from services.studio import Studio
from services.work_queue import WorkView
from ui.evaluate import page
from ui.evaluate.comparing import comparison_part
from ui.evaluate.ranking import most_shown, ranking_part
from ui.evaluate.render import render
from ui.evaluate.result import SHOWN_ROWS, result_part
from ui.evaluate.words import EVALUATE, Links, Place, evaluate_address
from ui.explore.parts import thumb_url
from ui.markup import Html, el
from ui.replies import FRESH, add_posted, attached, fetched_at, file_at, page_at, with_file
from ui.security.request_limits import MODEL_FILE

API = f"{EVALUATE}api/"
LIST = ("All test sets", EVALUATE)
_TYPES = {
    "html": "text/html; charset=utf-8",
    "markdown": "text/markdown; charset=utf-8",
    "latex": "application/x-tex; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "parquet": "application/vnd.apache.parquet",
}
T = TypeVar("T")
At = Annotated[Place, Depends()]


def to_evaluation(place: Place, **_: Any) -> tuple[str, str]:
    """Return text and address of a link back to the evaluation."""
    return "The evaluation", place.to()


class _Pages:
    """Reads from the services the values that the routes need."""

    def __init__(self, studio: Studio) -> None:
        self.studio, self.evaluations = studio, studio.evaluations

    def asked(self, place: Place) -> EvaluationQuestion:
        """Return the evaluation that a page's address describes. Raises UserError for an invalid address."""
        return self.evaluations.asked(OnModel.of(place.fields))

    def models(self, place: Place) -> Html:
        """Return the part of the page where a person chooses a model for the images at `place`."""
        subject = OnModel.of(place.fields).subject
        cases, choices = self.evaluations.cases(subject), self.evaluations.models(subject)
        return page.models_part(choices, place, self.trained(cases.view.kind), len(cases.pictures))

    def trained(self, kind: TaskKind | None) -> list[TrainedModel]:
        """Return the weights from all retrainings that are for one kind of task."""
        return [one for one in self.studio.retrainings.trained() if one.found.kind == kind]

    def model_first(self, place: Place) -> tuple[Html, ModelChoice | None]:
        """Return (part of the page about the chosen model, this model). If no model is chosen yet, return (part with
        all models, None). Raises UserError if the chosen model is gone.
        """
        if not place.key:
            return page.models_part(self.evaluations.models(), place, self.studio.retrainings.trained()), None
        chosen = self.evaluations.choice(place.key)
        stored = self.evaluations.predicting.stored(chosen.settings)
        identity = stored.identity if stored is not None else None
        return render("chosen", chosen=chosen, identity=identity, does=page.DOES), chosen

    def stand(self, place: Place) -> page.Stand:
        """Return the state of the evaluation at an address. Raises UserError for an invalid address."""
        service, question = self.evaluations, self.asked(place)
        drawing = service.controls.work.of(about_control(question.subject)) if service.controls is not None else ()
        control = next(iter(drawing), None)
        subject = service.view(question.subject)
        title = service.title(question.model)
        if subject.problem:
            return page.Stand(place, subject, title, None, Pending(0, 0), refused=subject.problem)
        work = next(iter(service.work.of(about(question))), None)
        try:
            mapping = service.mapping(question)
        except UserError as error:
            return page.Stand(place, subject, title, None, service.pending(question), work, str(error))
        if work is not None and not work.active and work.kind == LOOKING and mapping is not None:
            work = None
        return page.Stand(place, subject, title, mapping, service.pending(question), work, control=control)

    def parts(self, stand: page.Stand) -> dict[str, Html]:
        """Return the parts of the page. While a model predicts, figures are left out, since each batch changes them."""
        result, compared = el("section", id="part-result"), el("section", id="part-compared")
        if stand.ready and not stand.at_work:
            evaluated = self.evaluations.evaluate(self.asked(stand.place))
            result = result_part(evaluated, self._links(stand, evaluated))
            if (second := stand.place.second) is not None:
                compared = self._compared(evaluated, stand.place, second)
        return {"part-compared": compared, "part-work": page.work_part(stand), "part-result": result}

    def _links(self, stand: page.Stand, found: Evaluated) -> Links:
        place = stand.place
        can_make = stand.subject.can_make_control and self.evaluations.controls is not None
        study: StudyPlan | str | None = None
        if found.validity is None or found.validity.by_strata.value is None:
            plan, refused = _or_why(lambda: self.evaluations.study_plan(self.asked(place)))
            study = plan or refused
        return Links(
            place.images,
            thumb_url,
            lambda entry, cell: place.images(cell, entry),
            render("control", work=stand.control, can_make=can_make),
            render("figures_links", place=place, can_choose=found.kind == "classification" and found.mapping.left_over),
            study,
            can_check=True,
        )

    def ranking(self, place: Place) -> Html:
        """Return the ranking of the images to look at first, or text that says why no ranking can be made."""
        try:
            question = self.asked(place)
            cases = self.evaluations.view(question.subject).cases
            return ranking_part(self.evaluations.rank(question, most_shown(cases)), _listed, thumb_url)
        except UserError as error:
            return render("no_ranking", refused=str(error))

    def likeness(self, place: Place) -> Html:
        """Return the section on groups of similar edits and likeness to originals, or the progress of computing it."""
        question = self.asked(place)
        work = next(iter(self.studio.likeness.work.of(about(question))), None)
        figures = self.studio.likeness.figures(question) if work is None or not work.active else None
        return render("likeness", found=figures, work=work, listed=_listed, picture=thumb_url, acts=True)

    def factors(self, place: Place) -> Html:
        """Return the section on properties that together break the model, or the reason why it cannot be made."""
        found, refused = _or_why(lambda: self.studio.factors.figures(self.asked(place)))
        values = {"listed": _listed, "parts_words": parts_words, "NOT_READ": NOT_READ, "SHOWN": SHOWN_ROWS}
        return render("factors", found=found, refused=refused, **values)

    def focus(self, place: Place) -> Html:
        """Return the section on where in an image the model looks: figures, their progress, or why there are none."""
        work = next(iter(self.studio.focus.work.of(about(self.asked(place)))), None)
        found, refused = (None, "") if work is not None and work.active else self.focus_figures(place)
        return render("focus", found=found, work=work, refused=refused, acts=True)

    def focus_figures(self, place: Place) -> tuple[FocusFigures | None, str]:
        """Return (figures on where in an image the model looks, ""), or (None, the reason why there are none)."""
        asked_both, figures = self.evaluations.asked_both, self.studio.focus.figures
        return _or_why(lambda: figures(*asked_both(OnTwoModels.of(place.compared_fields))))

    def evidence(self, place: Place) -> Html:
        """Return the section with the evidence bundle, or the progress of writing it, or why it cannot be written."""
        question = self.asked(place)
        _, refused = _or_why(lambda: self.studio.evidence.require(question))
        work = next(iter(self.studio.evidence.work.of(about(question))), None)
        return render("evidence", work=work, refused=refused)

    def _compared(self, found: Evaluated, place: Place, second: Place) -> Html:
        try:
            stand = self.stand(second)
            if not stand.ready:
                words = stand.refused or f"{stand.model} has not read these images yet."
                link = el("a", "Open it alone", href=second.to(), class_="btn s")
                return el("section", el("p", words), link, id="part-compared", class_="card part")
            one, two = self.asked(place), self.asked(second)
            pair = found, self.evaluations.evaluate(two)
            return comparison_part(pair, (place, second), self.evaluations.compare(one, two))
        except UserError as error:
            return el("section", el("p", str(error), class_="notice"), id="part-compared", class_="card part")


def _or_why(make: Callable[[], T]) -> tuple[T | None, str]:
    """Return (result of `make`, ""), or (None, message of its UserError)."""
    try:
        return make(), ""
    except UserError as error:
        return None, str(error)


def _listed(entries: Sequence[int], image: int) -> str | None:
    """Return the gallery's address for these entries, with `image` enlarged unless it is 0; None if it is too long."""
    to, _ = _or_why(lambda: list_address(entries))
    return f"{to}&image={image}&large=1" if to and image else to


def add_evaluate_routes(app: FastAPI, studio: Studio) -> None:
    """Add the pages below /evaluate/, their data and their actions."""
    pages = _Pages(studio)
    _add_pages(app, pages, studio)
    _add_sent(app, pages, studio)


def _add_pages(app: FastAPI, pages: _Pages, studio: Studio) -> None:
    evaluations = studio.evaluations

    @page_at(app, EVALUATE, LIST)
    def one(request: Request, place: At) -> str:
        if place.version is None and "filter" not in request.query_params:
            models, chosen = pages.model_first(place)
            return page.list_page(evaluations.subjects(), evaluations.gallery(), models, chosen)
        about = OnModel.of(place.fields).subject
        subject = evaluations.view(about)
        if not place.key or (subject.problem and len(subject.splits) > 1):  # a person chooses the split first
            return page.subject_page(subject, place, None if subject.problem else pages.models(place))
        stand = pages.stand(place)
        versions = evaluations.subjects() if place.version is not None else ()
        several = len(evaluations.cases(about).methods) > 1
        return page.evaluation_page(stand, pages.parts(stand), evaluations.models(about), versions, several)

    @page_at(app, f"{EVALUATE}methods", to_evaluation)
    def methods(place: At, reference: str = "") -> str:
        found = evaluations.methods(pages.asked(place), reference).compared
        chosen = OnModel.of(place.fields).subject.filter
        addresses = [place.to(filter=one.of(chosen).address) for one in found.methods]
        reference = found.methods[found.reference].key

        def opened(end: str, **parameters: str) -> str:
            return evaluate_address(f"methods{end}", **{**asdict(place), "reference": reference, **parameters})

        return page.methods_page(found, place, addresses, opened)

    @page_at(app, f"{EVALUATE}methods/images", to_evaluation)
    def images_of_method(
        place: At, method: str, figure: str = "", edit_type: str = "", reference: str = ""
    ) -> Response:
        found = evaluations.methods(pages.asked(place), reference)
        return RedirectResponse(list_address(found.entries(method, figure, edit_type)), status_code=303)

    @fetched_at(app, f"{API}state")
    def state(place: At) -> Mapping[str, Any]:
        return _state(pages, place)

    def add_part(name: str, part: Callable[[Place], Html]) -> None:
        @fetched_at(app, f"{API}{name}")
        def shown(place: At) -> Mapping[str, Any]:
            return {"parts": {f"part-{name}": part(place)}}

    for part in (pages.ranking, pages.likeness, pages.factors, pages.focus, pages.evidence):
        add_part(part.__name__, part)

    @fetched_at(app, f"{API}trained")
    def trained(kind: TaskKind) -> Mapping[str, Any]:
        """Return the weights of retrainings, for the form of Explore."""
        found = pages.trained(kind)
        return {"html": render("trained", trained=found) if found else ""}

    @fetched_at(app, f"{API}work")
    def work(number: Annotated[int, Query(ge=1, le=LARGEST_ID)]) -> Mapping[str, Any]:
        return _work_said(evaluations.work.view(number))

    @fetched_at(app, f"{API}drawing")
    def drawing(number: Annotated[int, Query(ge=1, le=LARGEST_ID)]) -> Mapping[str, Any]:
        """Return the progress of drawing a control set. Figures are left out, since each image changes them."""
        if evaluations.controls is None:
            raise Missing("No reconstructions are being drawn: reload the page.")
        work = evaluations.controls.work.view(number)
        part = render("control", work=work, can_make=False) if work.active else None
        return {"active": work.active, "parts": {"control": part} if part else {}}

    @page_at(app, f"{EVALUATE}images", to_evaluation)
    def images(
        place: At,
        kind: CellKind,
        name: str = "",
        said: str = "",
        only_wrong: bool = False,
        image: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
    ) -> Response:
        entries = evaluations.entries(pages.asked(place), Cell(kind, name, said, only_wrong))
        to = list_address(entries)
        return RedirectResponse(f"{to}&image={image}&large=1" if image in entries else to, status_code=303)

    @page_at(app, f"{EVALUATE}{page.INPUT}", to_evaluation)
    def input_picture(place: At) -> Response:
        """Return the first image of the set as the model gets it."""
        return Response(evaluations.input_picture(pages.asked(place)), media_type="image/png", headers=FRESH)

    @page_at(app, f"{EVALUATE}report/{{kind}}", to_evaluation)
    def report(place: At, kind: Literal["html", "markdown", "latex", "csv", "parquet"]) -> Response:
        question = pages.asked(place)
        evaluated, likeness = evaluations.evaluate(question), studio.likeness.figures(question)
        focus, _ = pages.focus_figures(place)
        if kind == "html":
            thumbnail = studio.workspace.thumbnails.webp
            data = page.report_html(evaluated, evaluations.rank(question), thumbnail, likeness, focus).encode()
        else:
            data = file_of(evaluated, kind, likeness, focus)
        name = plain_name(f"{evaluated.subject.title} {evaluated.model}") or "evaluation"
        return Response(data, media_type=_TYPES[kind], headers=attached(f"{name}{page.FILES[kind]}"))

    @file_at(app, f"{EVALUATE}evidence/{{number}}/{{name}}")
    def bundle(number: int, name: str) -> Response:
        ready = studio.evidence.ready(number)
        return FileResponse(ready.file, media_type="application/zip", filename=ready.name, headers=FRESH)


def _state(pages: _Pages, place: Place) -> Mapping[str, Any]:
    stand = pages.stand(place)
    return {"at_work": stand.at_work, "ready": stand.ready, "parts": pages.parts(stand)}


def _work_said(work: WorkView) -> dict[str, Any]:
    """Return the number of a job, and whether it is running. Raises UserError if the job failed."""
    if work.state == "failed":
        raise UserError(work.error)
    return {"work": work.id, "active": work.active}


def plain_name(words: str) -> str:
    """Return a text as a file name: small letters, digits and hyphens, at most 80 characters."""
    return re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-").lower()[:80]


def _add_sent(app: FastAPI, pages: _Pages, studio: Studio) -> None:
    commands, evaluations = studio.commands, studio.evaluations

    def add(name: str, command: str, reply: Callable[[Place, Any], Mapping[str, Any]]) -> None:
        """Add a route for a command: about a job if the request names a job, otherwise about the page's evaluation."""

        def act(data: dict[str, Any]) -> Mapping[str, Any]:
            work, place = data.pop("work", None), _sent_place(data)
            fields, known = place.compared_fields, commands.known()[command].model_fields
            sent = {name: value for name, value in fields.items() if name in known} if work is None else {"work": work}
            return reply(place, commands.send(command, sent))

        add_posted(app, f"{API}{name}", act)

    def look(data: dict[str, Any]) -> Mapping[str, Any]:
        """Begin to load a chosen, described or trained model. The reply's `go` is the address of the model's page."""
        if "trained" in data:
            data |= studio.retrainings.as_model(data.pop("trained"), str(data.pop("arm", "")))
        question = evaluations.asked(OnModel.of({**data, "mapping": ""}))
        place = Place(question.subject.version, str(data.get("filter") or ""), question.subject.split)
        progress = _work_said(evaluations.look(question))
        return {**progress, "go": place.to(key=model_choice_key(question.model))}

    def keep_trained(data: dict[str, Any]) -> Mapping[str, Any]:
        """Save the weights of a retraining as a model. Return its source and file, as fields for the form."""
        return studio.retrainings.as_model(data.get("trained", 0), str(data.get("arm", "")))

    for name in ("begin-predictions", "cancel-predictions"):
        add(name, name, lambda place, _: _state(pages, place))
    add("draft-evaluation-study", "draft-evaluation-study", lambda _, drafted: {"go": f"/study/{drafted['study']}"})
    # After these commands the page reloads.
    add("check-masks", "begin-predictions", lambda place, _: {"go": place.to()})
    acts = (f"{act}-{work}" for work in ("likeness", "focus", "evidence") for act in ("begin", "cancel"))
    for name in ("make-control-set", "cancel-control-set", *acts):
        add(name, name, lambda place, _: {"go": place.to()})
    add_posted(app, f"{API}look", look)
    add_posted(app, f"{API}keep-trained", keep_trained)

    @app.post(MODEL_FILE, include_in_schema=False)
    async def model_file(request: Request, name: str = "") -> Response:
        return await with_file(request, lambda file: keep_upload(studio.workspace, file, name), "file")


def _sent_place(data: Mapping[str, Any]) -> Place:
    """Parse the images, model and comparison in a request. Raises UserError if no page of ours sends such values."""
    try:
        place: Place = from_plain(Place, data)
    except ValidationError as error:
        raise UserError("The page has sent an invalid evaluation. Please reload the page.") from error
    return place
