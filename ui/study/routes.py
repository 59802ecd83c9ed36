"""All routes of the lead's pages: called once by `app.py`, before Gradio is mounted at "/".

A GET of /study/{id}/ shows a draft's set-up, and the results of a study that has started, which are made of one
analysis a study. What the pages send stands in `requests`. Whoever adds a page adds its route here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from fastapi.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)

from core.errors import UserError
from core.studies import Item, Study
from services.changes import Revisions
from services.commands import Commands, Missing
from services.studies.analyses import Analyses, Analysis
from services.studies.exports import EXPORTS, ZIP, stem
from services.studies.services import StudyServices
from ui.annotate.page import POLICY, annotate_page
from ui.explore.parts import Size
from ui.frame import not_there, page, signed_in
from ui.markup import Child, Html, el
from ui.security.request_limits import refusal
from ui.study.disagreements import DisagreementFilter, adjudication_page, all_disagreements, image_page
from ui.study.frame import study_address, study_head
from ui.study.items_form import item_window, thumbs
from ui.study.listing import list_page, log_page, new_page
from ui.study.requests import add_requests
from ui.study.result_page import copy_methods, export_menu, layout, parts, sent
from ui.study.run_page import Invited, actions, progress_part, run_page
from ui.study.setup import Assumptions, dialogs, example_window, plain, plan_figures, read_assumptions, setup_page
from ui.study.workers import all_workers, control_items_box, worker_page

ALL_STUDIES = ("All studies", "/study/")
SHEETS, SCRIPTS = ("results-study.css",), ("results-study.js",)
LOG_LIMIT = 500
FRESH = {"Cache-Control": "no-store"}


def add_study_routes(app: FastAPI, commands: Commands, services: StudyServices, revisions: Revisions) -> None:
    """Add the pages below /study/, what they fetch again, and what they send."""
    add_requests(app, commands, services)
    _add_pages(app, services)
    _add_result_pages(app, services)
    _add_watched(app, services, revisions)
    _add_fetched(app, services)


def _add_pages(app: FastAPI, services: StudyServices) -> None:
    """The list, a new study, set-up, preview, and running a study."""
    studies, drafts, life, analyses = services.stored, services.drafts, services.life_cycle, services.analyses

    @app.get("/study", include_in_schema=False)
    def to_list() -> Response:
        return RedirectResponse("/study/", status_code=308)

    @app.get("/study/", include_in_schema=False)
    def all_studies(request: Request) -> Response:
        return HTMLResponse(list_page(studies.all(), signed_in(request)), headers=FRESH)

    @app.get("/study/new", include_in_schema=False)
    def new(request: Request) -> Response:
        return HTMLResponse(new_page(signed_in(request)), headers=FRESH)

    @app.get("/study/{study_id}", include_in_schema=False)
    def to_study(study_id: str) -> Response:
        return _shown(study_id, lambda study: RedirectResponse(study_address(study.id), status_code=308))

    @app.get("/study/{study_id}/", include_in_schema=False)
    def one(request: Request, study_id: str) -> Response:
        signed = signed_in(request)

        def make(study: Study) -> Response:
            if study.state != "draft":
                return HTMLResponse(_results_page(analyses, study, signed), headers=FRESH)
            return HTMLResponse(setup_page(drafts.state(study.id), Assumptions(), signed), headers=FRESH)

        return _shown(study_id, make, signed)

    @app.get("/study/{study_id}/run", include_in_schema=False)
    def run(request: Request, study_id: str) -> Response:
        signed = signed_in(request)

        def make(study: Study) -> Response:
            if study.state == "draft":
                return RedirectResponse(study_address(study.id), status_code=303)
            shown = Invited(len(studies.workers.of_study(study.id)), life.can_be_invited(study.id))
            history, panel = studies.rules_history(study.id), studies.panels.get(study.id)
            made = run_page(study, shown, history, drafts.models(), signed, panel)
            return HTMLResponse(made, headers=FRESH)

        return _shown(study_id, make, signed)

    @app.get("/study/{study_id}/preview", include_in_schema=False)
    def preview(request: Request, study_id: str) -> Response:
        headers = FRESH | {"Content-Security-Policy": POLICY}
        return _shown(
            study_id,
            lambda study: HTMLResponse(annotate_page(preview=study.id), headers=headers),
            signed_in(request),
        )

    def _shown(study_id: str, make: Callable[[Study], Response], signed: bool = False) -> Response:
        """A page of a study, or a page that says that there is none."""
        try:
            return make(studies.get(study_id))
        except UserError as error:
            return HTMLResponse(not_there(str(error), signed, ALL_STUDIES), status_code=404)


def _add_result_pages(app: FastAPI, services: StudyServices) -> None:
    """What a lead sees of a study that has started: workers, adjudication, disagreements, single images, the log."""
    studies, analyses = services.stored, services.analyses

    def shown(request: Request, study_id: str, tab: str, make: Callable[[Analysis], Child]) -> Response:
        """A page made of the analysis; a draft has none, and goes to its set-up."""
        try:
            study = studies.get(study_id)
            if study.state == "draft":
                return RedirectResponse(study_address(study.id), status_code=303)
            content = make(analyses.of(study.id))
        except UserError as error:
            return HTMLResponse(not_there(str(error), signed_in(request), ALL_STUDIES), status_code=404)
        return HTMLResponse(_document(study, tab, signed_in(request), content), headers=FRESH)

    @app.get("/study/{study_id}/workers", include_in_schema=False)
    def workers(request: Request, study_id: str) -> Response:
        def make(found: Analysis) -> Child:
            return el("div", layout(workers_parts(found)), **_live(found.report.study, "workers"))

        return shown(request, study_id, "workers", make)

    @app.get("/study/{study_id}/workers/{name:path}", include_in_schema=False)
    def one_worker(request: Request, study_id: str, name: str, page: str = "1") -> Response:
        def make(found: Analysis) -> Child:
            worker = next((one for one in found.report.workers if one.worker == name), None)
            if worker is None:
                raise Missing("There is no such worker in this study.")
            return worker_page(found.report, found.data, worker, _number(page))

        return shown(request, study_id, "workers", make)

    @app.get("/study/{study_id}/adjudication", include_in_schema=False)
    def adjudication(request: Request, study_id: str, item: str = "", question: str = "") -> Response:
        def make(found: Analysis) -> Child:
            sizes = _sizes(services, found.data.items)
            return adjudication_page(found.report, found.data, _number(item) if item else None, question, sizes)

        return shown(request, study_id, "adjudication", make)

    @app.get("/study/{study_id}/disagreements", include_in_schema=False)
    def disagreements(
        request: Request, study_id: str, question: str = "", status: str = "", page: str = "1"
    ) -> Response:
        chosen = DisagreementFilter(question[:40], status[:40], _number(page))
        return shown(request, study_id, "results", lambda found: all_disagreements(found.report, found.data, chosen))

    @app.get("/study/{study_id}/items/{public}", include_in_schema=False)
    def image(request: Request, study_id: str, public: str) -> Response:
        def make(found: Analysis) -> Child:
            item = next((one for one in found.data.items if one.public == public), None)
            if item is None:
                raise Missing("There is no such image in this study.")
            return image_page(found.report, found.data, item, _sizes(services, [item]))

        return shown(request, study_id, "results", make)

    @app.get("/study/{study_id}/log", include_in_schema=False)
    def log(request: Request, study_id: str, all: str = "") -> Response:
        def make(found: Analysis) -> Child:
            study = found.report.study
            names = {one.id: one.name for one in studies.all()} if all else None
            return log_page(study, studies.log("" if all else study.id, LOG_LIMIT), LOG_LIMIT, names)

        return shown(request, study_id, "log", make)

    @app.get("/study/{study_id}/export/{file}", include_in_schema=False)
    def export(study_id: str, file: str) -> Response:
        try:
            if file == ZIP:
                name, chunks = services.export_zip(study_id)
                return StreamingResponse(chunks, media_type="application/zip", headers=_attached(name))
            if file not in EXPORTS:
                return PlainTextResponse("There is no such file.", status_code=404)
            media_type, make = EXPORTS[file]
            study = services.export(study_id)
            return Response(make(study), media_type=media_type, headers=_attached(f"{stem(study.data)}-{file}"))
        except UserError as error:
            return PlainTextResponse(str(error), status_code=404)


def _fetched(make: Callable[[], Mapping[str, Any]]) -> Response:
    try:
        return JSONResponse(make(), headers=FRESH)
    except UserError as error:
        return refusal(error, 404 if not error.field else 400)


def _add_watched(app: FastAPI, services: StudyServices, revisions: Revisions) -> None:
    """What pages ask for again and again, with the `revision` that they show: nothing is read while it is the same."""
    studies, analyses = services.stored, services.analyses

    def watched(shown: str, make: Callable[[], Mapping[str, Any]]) -> Response:
        # Named before anything is read: what changes in between is then asked for once more, and never missed.
        revision = revisions.now()
        if shown == revision:
            return JSONResponse({"same": True}, headers=FRESH)
        return _fetched(lambda: {"revision": revision, **make()})

    @app.get("/study/api/{study_id}/live", include_in_schema=False)
    def live(study_id: str, view: str = "results", revision: str = "") -> Response:
        def make() -> Mapping[str, Any]:
            state = studies.get(study_id).state
            found = analyses.of(study_id)
            made = workers_parts(found) if view == "workers" else parts(found.report, found.data, found.methods)
            late = {} if analyses.is_current(found) else {"revision": ""}
            return {"state": state, "parts": sent(made), **late}

        return watched(revision, make)

    @app.get("/study/api/{study_id}/progress", include_in_schema=False)
    def progress(study_id: str, revision: str = "") -> Response:
        def make() -> Mapping[str, Any]:
            study = studies.get(study_id)
            return {"state": study.state, "parts": {"part-progress": progress_part(study)}}

        return watched(revision, make)


def _add_fetched(app: FastAPI, services: StudyServices) -> None:
    """What the pages fetch when a person asks for it: windows, figures of the plan. All of it JSON."""
    studies, drafts = services.stored, services.drafts

    @app.get("/study/api/{study_id}/plan", include_in_schema=False)
    def plan(request: Request, study_id: str) -> Response:
        def make() -> Mapping[str, Any]:
            assumed = read_assumptions(request.query_params)
            rules = studies.get(study_id).rules
            return {"parts": {"part-plan": plan_figures(rules, plain(drafts.items(study_id)), assumed)}}

        return _fetched(make)

    @app.get("/study/api/{study_id}/item", include_in_schema=False)
    def item(study_id: str, item: int) -> Response:
        def make() -> Mapping[str, Any]:
            study = studies.get(study_id)
            shown = drafts.item(study_id, item)
            html = item_window(shown, study.rules, study.state == "draft", _sizes(services, [shown]))
            return {"html": html}

        return _fetched(make)

    @app.get("/study/api/{study_id}/thumbs", include_in_schema=False)
    def more(study_id: str, start: Annotated[int, Query(ge=0)]) -> Response:
        def make() -> Mapping[str, Any]:
            items = drafts.items(studies.get(study_id).id)
            return {"html": thumbs([item for item in items if item.kind == "item"], start)}

        return _fetched(make)

    @app.get("/study/api/{study_id}/examples", include_in_schema=False)
    def examples(study_id: str) -> Response:
        return _fetched(lambda: {"html": example_window(drafts.possible_examples(studies.get(study_id).id))})


def _sizes(services: StudyServices, items: Iterable[Item]) -> Mapping[str, Size]:
    """Of the pictures that these items show."""
    return services.picture_sizes(sha for item in items for sha in (item.image_sha, item.source_sha))


def workers_parts(found: Analysis) -> Mapping[str, Html | None]:
    """The parts of the page of workers."""
    return {"all-workers": all_workers(found.report), "controls": control_items_box(found.report, found.data)}


def _results_page(analyses: Analyses, study: Study, signed_in: bool) -> str:
    """The page of results of a study that has started, as a document."""
    found = analyses.of(study.id)
    shown = layout(parts(found.report, found.data, found.methods))
    content = el("div", shown, data_study=study.id, **_live(study, "results"))
    acts = (el("span", actions(study), copy_methods(), export_menu(study), class_="r-acts"),)
    # The script for pause and close stands before ours, with the window in which it asks.
    return _document(study, "results", signed_in, [content, dialogs()], acts, ("study-acts.js",))


def _document(
    study: Study, tab: str, signed: bool, content: Child, acts: Sequence[Child] = (), scripts: Sequence[str] = ()
) -> str:
    return page(
        study.name,
        study_head(study, tab, *acts),
        content,
        signed_in=signed,
        sheets=SHEETS,
        scripts=(*scripts, *SCRIPTS),
    )


def _live(study: Study, view: str) -> dict[str, str | None]:
    """The attributes that let a page fetch its parts again; not of a closed study, which only the lead changes."""
    return {
        "class_": "live",
        "data_live": f"/study/api/{study.id}/live",
        "data_view": view,
        "data_state": study.state,
        "data_every": "4000" if study.state != "closed" else None,
    }


def _number(text: str) -> int:
    """A number from an address; 1 for anything else, as for one that is out of any range."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1


def _attached(name: str) -> dict[str, str]:
    # A header takes ASCII only: other letters are written as RFC 8187 has it.
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}", "Cache-Control": "no-store"}
